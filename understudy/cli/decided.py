"""The command that lists decisions: `decisions`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from understudy._base.request_summary import summary
from understudy.cli import output
from understudy.cli.options import ListOutput, Where
from understudy.cli.output import Column
from understudy.cli.sources import first_rows
from understudy.cli.text import ago, clean, span

NOBODY = {"expiry": "nobody in time", "executor": "a program"}


def decisions(
    person: Annotated[
        str | None,
        typer.Option("--person", metavar="ID", help="Only decisions of this id or login."),
    ] = None,
    tool: Annotated[
        str | None, typer.Option("--tool", help="Only decisions about this tool.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="Only decisions for agents with this definition.")
    ] = None,
    agent_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Only decisions for the agent with this id."),
    ] = None,
    type: Annotated[
        str | None,
        typer.Option("--type", help="approve, edit, reject, respond or dismiss."),
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option("--origin", help="person, votes, grant, expiry or executor."),
    ] = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DAY", help="From this day (UTC) or time on.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DAY", help="To the end of this day.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The number of rows.")] = 100,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """List the decisions on the requests of all agents: by whom, when, about what."""
    filters = {
        "person": person,
        "tool": tool,
        "agent": agent,
        "agent_id": agent_id,
        "type": type,
        "origin": origin,
        "from": first,
        "to": last,
    }
    given = {key: value for key, value in filters.items() if value is not None}
    with where.looking() as source:
        found, at = first_rows(source.decided, limit, **given), source.now()
    columns = [
        Column("DECISION", "type", "bold"),
        Column("BY", "who"),
        Column("AGO", "age"),
        Column("WAITED", "waited"),
        Column("AGENT", "agent_id"),
        Column("TOOL", "tool_name"),
        Column("WHAT", "what", wide=True),
    ]
    people = [_shown(row, ago(row["at"], at)) for row in found.rows]
    more = {"more": found.more}
    out.rows("decisions", found.rows, columns, shown=people, more=more, empty="nothing was decided")
    if found.more:
        output.note(f"there are more than these {limit}: see --limit")


def _shown(row: dict[str, Any], age: str) -> dict[str, Any]:
    """A row in the form for people."""
    said = [clean(each["name"]) for each in row["votes"] if each["type"] == row["type"]]
    by = ", ".join(dict.fromkeys(said)) or row["by"] or "somebody"
    who = NOBODY.get(row["origin"], f"{by}, by a grant" if row["origin"] == "grant" else by)
    request, note = row["request"], (row["decision"] or {}).get("note")
    what = "(its agent was deleted)" if request is None else summary(request)
    return {
        **row,
        "who": who,
        "age": age,
        "waited": span(row["waited"]),
        "what": f"{what} ({note})" if note else what,
    }
