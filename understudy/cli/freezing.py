"""The commands that freeze and thaw."""

from __future__ import annotations

from typing import Annotated

import typer

from understudy.cli.options import ListOutput, Where
from understudy.cli.output import Column, Output


def freeze(
    why: Annotated[str, typer.Option("--why", help="The reason, for people who find the freeze.")],
    definition: Annotated[
        str | None,
        typer.Option(
            "--definition", metavar="NAME", help="Freeze only the agents of this definition."
        ),
    ] = None,
    tool: Annotated[
        str | None,
        typer.Option("--tool", metavar="NAME", help="Freeze only the calls of this tool."),
    ] = None,
    *,
    where: Where,
    out: Output,
) -> None:
    """Freeze the store: nothing begins until it is thawed."""
    body = {"why": why, "definition": definition, "tool": tool}
    done = where.changing().post("/freezes", body)
    if out.is_data:
        out.document(done)
        return
    out.say(f"nothing of it begins any more: {done['text']}", "green")
    out.say(f"To end it: understudy thaw {done['id']}")
    if done["warning"]:
        out.say(f"It may hold nothing: {done['warning']}.", "yellow")
    for host in done["silent_hosts"]:
        out.say(
            f"Host {host!r} did not answer before its lease ended: what it had begun may continue.",
            "yellow",
        )
    for each in done["entered"]:
        at = "/".join(each["path"])
        out.say(f"Under way: {each['tool']} of {at}. To end its run:", "yellow")
        out.say(f"  understudy cancel {each['agent_id']} --run {each['run_id']}")


def thaw(
    id: Annotated[
        str, typer.Argument(metavar="FREEZE", help="The id of the freeze: see `freezes`.")
    ],
    *,
    where: Where,
    out: Output,
) -> None:
    """End a freeze. What waited for it begins."""
    done = where.changing().post("/freezes/thaw", {"id": id})
    if out.is_data:
        out.document(done)
    elif done["thawed"]:
        out.say("what waited begins", "green")
    else:
        out.say("there is no such freeze any more")


def freezes(*, where: Where, out: ListOutput) -> None:
    """List what is frozen, by whom and why."""
    rows = where.changing().get("/freezes")["freezes"]
    people = [{**row, "about": row["name"] or "all"} for row in rows]
    columns = [
        Column("FREEZE", "id", "bold"),
        Column("WHAT", "what"),
        Column("NAME", "about"),
        Column("BY", "by"),
        Column("AT", "at"),
        Column("WHY", "why", wide=True),
    ]
    out.rows("freezes", rows, columns, shown=people, empty="nothing is frozen")
