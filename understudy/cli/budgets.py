"""The commands for budgets: their use, and raising them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from understudy.cli.options import ListOutput, Where
from understudy.cli.output import Column, Output, note
from understudy.cli.text import line


def budgets(*, where: Where, out: ListOutput) -> None:
    """List how much of each budget is used. With --store, list only what is counted there."""
    with where.looking() as source:
        found = source.budgets()
    if "counters" in found:
        _print_counters(found["counters"], out)
        return
    rows, left_off = found["budgets"], found["left_off"]
    people = [
        {
            **row,
            "used": f"{row['text']}{', ends soon' if row['is_low'] else ''}",
            "left": row["texts"]["left"],
        }
        for row in rows
    ]
    columns = [
        Column("BUDGET", "budget", "bold"),
        Column("FOR", "key", optional=True),
        Column("USED", "used"),
        Column("LEFT", "left"),
        Column("ALLOWS", "allows", wide=True),
        Column("UNTIL", "until", optional=True),
    ]
    out.rows(
        "budgets",
        rows,
        columns,
        shown=people,
        more={"left_off": left_off},
        empty="there are no budgets",
    )
    if left_off and not out.is_data:
        note(f"{left_off} more are counted apart: these have used most")


def _print_counters(rows: list[dict[str, Any]], out: ListOutput) -> None:
    """Print what a store has counted. A store does not know the limits of its budgets."""
    columns = [
        Column("COUNTER", "counter", "bold"),
        Column("FOR", "key", optional=True),
        Column("SINCE", "since", optional=True),
        Column("USED", "used"),
        Column("RESERVED", "reserved"),
        Column("UNKNOWN", "unknown"),
    ]
    out.rows("counters", rows, columns, empty="nothing is counted")
    if rows and not out.is_data:
        note("a running server says what is left of them: --url")


def raise_budget(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of the budget: see `budgets`.")
    ],
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="The amount to add.")],
    why: Annotated[str, typer.Option("--why", help="The reason, for the record.")],
    key: Annotated[
        str,
        typer.Option("--for", metavar="KEY", help="The key of the counter, as `budgets` shows it."),
    ] = "",
    *,
    where: Where,
    out: Output,
) -> None:
    """Add an amount to a budget, until its window ends."""
    body = {"name": name, "amount": amount, "why": why, "key": key or None}
    done = where.changing().post("/budgets/raise", body)
    if out.is_data:
        out.document(done)
    else:
        left = f"{line(done['texts']['left'])} left of {line(done['texts']['limit'])}"
        out.say(f"the budget is raised: {left}", "green")
