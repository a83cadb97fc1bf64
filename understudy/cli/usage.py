"""The command that sums up the usage of models: `usage`."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

import typer

from understudy._base.usd import shown_usd
from understudy.cli.options import ListOutput, Where
from understudy.cli.output import Column


def usage(
    first: Annotated[
        str | None, typer.Option("--from", metavar="DAY", help="From this day (UTC) on.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DAY", help="To the end of this day.")
    ] = None,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """Sum up what requests to models used, over all agents: by day, definition and model."""
    with where.looking() as source:
        rows = source.usage(first, last)
    columns = [
        Column("DAY", "day", "bold"),
        Column("AGENT", "agent"),
        Column("MODEL", "model"),
        Column("COST", "text"),
        Column("REQUESTS", "requests"),
        Column("IN", "input_tokens"),
        Column("CACHED", "cached_tokens"),
        Column("OUT", "output_tokens"),
    ]
    empty = "nothing was counted: see Runtime(usage=True)"
    people = [{**row, "text": _cost(row)} for row in rows]
    out.rows("usage", rows, columns, shown=people, empty=empty)


def _cost(row: dict[str, object]) -> str:
    """The cost of a row, as text for people."""
    if row["unknown"] == row["requests"]:
        return "unknown"
    text = shown_usd(Decimal(str(row["cost"])))
    return f"at least {text}" if row["unknown"] else text
