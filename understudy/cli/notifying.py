"""`understudy notify`: the notices of requests to people, delivered or not."""

from __future__ import annotations

from typing import Annotated

import typer

from understudy.cli.exits import FAILED, USAGE, refuse
from understudy.cli.lazily import SETTINGS, Listed, group_of
from understudy.cli.options import ListOutput, Where
from understudy.cli.output import Column, Output, note


def list_(
    state: Annotated[
        str | None,
        typer.Option(
            "--state", help="Only notices in this state: `new`, `done`, `dropped` or `failed`."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=500, help="The number of notices.")
    ] = 100,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """List the notices, newest first."""
    with where.looking() as source:
        rows, more = source.notices(state=state, limit=limit)
    people = [
        {**row, "what": f"{row['what']} {row['count']}" if row["count"] else row["what"]}
        for row in rows
    ]
    columns = [
        Column("NO", "no", "bold"),
        Column("AGENT", "agent_id"),
        Column("WHAT", "what"),
        Column("BY", "channel"),
        Column("STATE", "state"),
        Column("ATTEMPTS", "attempts"),
        Column("AT", "at", optional=True),
        Column("WHY", "detail", optional=True, wide=True),
    ]
    out.rows("notifications", rows, columns, shown=people, empty="there are no notices")
    if more and not out.is_data:
        note(f"there are more: these are the newest {limit}; see --limit and --state")


def retry(
    no: Annotated[
        int, typer.Argument(metavar="NO", min=1, help="The number of the notice: see `list`.")
    ],
    *,
    where: Where,
    out: Output,
) -> None:
    """Deliver a failed notice again."""
    done = where.changing().post("/notifications/retry", {"no": no})
    if out.is_data:
        out.document(done)
    elif done["retried"]:
        out.say("it is delivered again", "green")
    else:
        out.say("it has not failed, or is not there any more")


def send(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:ATTR", help="The Notify, such as my_app:notify.")
    ],
    channel: Annotated[
        str | None, typer.Option("--channel", metavar="NAME", help="Use only this channel.")
    ] = None,
    *,
    out: Output,
) -> None:
    """Send a test notice by each channel. No store is needed."""
    from understudy.cli.serve import load
    from understudy.notify import Notify

    found = load(target)
    if not isinstance(found, Notify):
        refuse(USAGE, f"{target} must be a Notify of understudy.notify")
    import asyncio

    results = asyncio.run(found.send_test(channel))
    if out.is_data:
        out.document({"sent": results})
    else:
        for name, why in results.items():
            out.say(f"{name}: {why or 'sent'}", "red" if why else "green")
    if any(results.values()):
        raise typer.Exit(FAILED)


test = send
COMMANDS: dict[str, Listed] = {
    "Commands": {
        "list": ("notifying", "List the notices, newest first"),
        "retry": ("notifying", "Deliver a failed notice again"),
        "test": ("notifying", "Send a test notice"),
    }
}
app: typer.Typer = typer.Typer(
    name="notify",
    cls=group_of(COMMANDS),
    context_settings=SETTINGS,
    help="The notices to people about requests.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def notify() -> None:
    """See the help of the group."""
