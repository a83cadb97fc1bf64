"""The commands that read: `ls`, `show`, `tree`, `pending`, `doubts`, `events` and others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any

import typer

from understudy._base.request_summary import summary, summary_of_doubt
from understudy._base.usd import shown_usd, total
from understudy.cli.api import agent_path
from understudy.cli.inputs import confirm
from understudy.cli.options import ListOutput, Where
from understudy.cli.output import Column, Output, note
from understudy.cli.show import author_text, grant_text, indented, row_lines
from understudy.cli.sources import Listed, every_row, first_rows
from understudy.cli.text import ago, clean, line, marked_letters, shown_json, utc
from understudy.cli.words import kind_of, kind_word

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the agent.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
LimitOption = Annotated[
    int | None, typer.Option("--limit", min=1, help="The number of rows; by default all.")
]
PageOption = Annotated[int, typer.Option("--limit", min=1, help="The number of rows.")]
KindOption = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help=(
            "Only requests of this kind: `approval`, `question`, `doubt`, `stopped`, or "
            "your own kind."
        ),
    ),
]
OrderOption = Annotated[str, typer.Option("--order", help="`oldest` or `expiring` first.")]
AgentOption = Annotated[
    str | None, typer.Option("--agent", help="Only agents with this definition.")
]
ToolOption = Annotated[str | None, typer.Option("--tool", help="Only requests about this tool.")]
_POSITION = re.compile(r"[0-9]{1,15}(\.[0-9]{1,6})?")
"""The number of a record, or the position of an event: as `actors.agent.events` has it."""


def ls(
    status: Annotated[
        str | None, typer.Option("--status", help="Only agents with this status.")
    ] = None,
    agent: AgentOption = None,
    prefix: Annotated[
        str, typer.Option("--prefix", help="Only agents whose ids begin with this text.")
    ] = "",
    limit: LimitOption = None,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """List the agents, with their status and what they wait for."""
    with where.looking() as source:
        filters = {"status": status, "agent": agent, "prefix": prefix or None}
        given = {key: value for key, value in filters.items() if value is not None}
        found, at = first_rows(source.agents, limit, **given), source.now()
    rows = found.rows
    columns = [
        Column("ID", "id", "bold"),
        Column("AGENT", "agent"),
        Column("STATUS", "status"),
        Column("SINCE", "since"),
        Column("HOST", "host"),
    ]
    people = [{**row, "since": ago(row["status_at"], at)} for row in rows]
    out.rows("agents", rows, columns, shown=people, more={"more": found.more}, empty="no agents")
    _say_more(found, limit)


def show(
    id: IdArgument,
    thinking: Annotated[
        bool, typer.Option("--thinking", help="Include the model's thinking.")
    ] = False,
    *,
    where: Where,
    out: Output,
) -> None:
    """Show one agent: what it does now, and its conversation."""
    with where.looking() as source:
        row, display = source.agent(id), source.display(id)
        now = source.now_of(row)
        held, frozen = source.held(row), source.frozen(row, now)
    data: dict[str, Any] = {
        **row,
        **{name: value for name, value in now.items() if name not in ("id", "tree")},
        "held": held or None,
        "frozen": frozen or None,
        "rows": display["rows"],
    }
    if out.is_data:
        out.document(data)
        return
    out.say(f"{id}  ({row['agent']})", "bold")
    out.say(f"{row['status']}: {data['why']}", "dim")
    if held:
        out.say(f"no call starts: {held}", "yellow")
    if frozen:
        out.say(line(frozen), "yellow")
    cost = now["cost"]
    if cost["unknown"] < cost["requests"]:
        out.say(f"cost: {cost['text']}; of all runs {now['total_cost']['text']}", "dim")
    for row in display["rows"]:
        if row["kind"] != "thinking" or thinking:
            for text, style in row_lines(row, out.console.width if out.is_terminal else None):
                out.say(text, style)
    for request in now["requests"]:
        still = f" ({line(request['still'])})" if request["still"] else ""
        about = line(request.get("title") or request["tool_name"] or request["kind"])
        out.say(
            f"? {about} waits for a person{still}: understudy approve {request['id']}", "yellow"
        )
    for queued in data["queue"]:
        by = f", sent by {line(queued['by'])}" if queued["by"] else ""
        turn = "the next model call" if queued["what"] == "steer" else "its turn"
        message_id = line(queued["message_id"])
        out.say(f"> {queued['what']} waits for {turn}: {message_id}{by}", "dim")
    for made in now["background"]:
        out.say(
            f"& {line(made['tool_name'])} continues in the background: {line(made['agent_id'])}"
        )
    for file in data["files"]:
        path = marked_letters(clean(file["path"], lines=False))
        out.say(f"file: {path}  {file['size']:,} bytes", "dim")
    for grant in now["grants"]:
        out.say(f"grant {line(grant['id'])}: {grant_text(grant)}", "dim")
    for doubt in now["doubts"]:
        out.say(f"in doubt: {line(doubt['call_key'])}  {line(doubt['tool_name'])}", "red")
    for review in now["reviews"]:
        out.say(f"to be reviewed: {line(review['text'])}", "red")
        out.say(f"  understudy close-review {line(id)} {line(review['id'])}", "yellow")


def tree(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The id of the agent.")] = None,
    *,
    where: Where,
    out: Output,
) -> None:
    """Show the agents inside an agent, or inside each agent that is not idle."""
    rows: list[dict[str, Any]] = []
    with where.looking() as source:
        if id is not None:
            found = [source.agent(id)]
        else:
            found = [row for row in every_row(source.agents, None) if row["status"] != "idle"]
        for row in found:
            rows += ({"agent_id": row["id"], **each} for each in source.now_of(row)["tree"])
    if out.is_data:
        out.document({"tree": rows})
        return
    last = None
    for row, text in zip(rows, indented(rows), strict=True):
        if row["agent_id"] != last:
            last = row["agent_id"]
            out.say(line(last), "bold")
        out.say(f"  {text}")


def pending(
    tool: ToolOption = None,
    agent: AgentOption = None,
    kind: KindOption = None,
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            help="`mine`, `nobody` (nobody has taken it), or `all`, with what you have snoozed.",
        ),
    ] = None,
    order: OrderOption = "oldest",
    limit: LimitOption = None,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """List the requests that wait for a person, of all agents."""
    with where.looking() as source:
        filters = {"tool": tool, "agent": agent, "kind": kind_of(kind), "order": order, "of": of}
        given = {key: value for key, value in filters.items() if value is not None}
        found, at = first_rows(source.pending, limit, **given), source.now()
    rows = found.rows
    people = [
        {
            **row,
            "short": short_id(row["id"], [each["id"] for each in rows]),
            "age": ago(row["created_at"], at),
            "what": _what(row),
            "about": row["tool_name"] or row["source"],
            "kind": kind_word(row["kind"]),
            "expires": ago(row["expires_at"], at) if row["expires_at"] else "",
            "path": " / ".join(line(name) for name in row["agent_path"][1:]),
        }
        for row in rows
    ]
    columns = [
        Column("REQUEST", "short", "bold"),
        Column("AGENT", "agent_id"),
        Column("INSIDE", "path", optional=True),
        Column("KIND", "kind"),
        Column("TOOL", "about"),
        Column("AGE", "age"),
        Column("EXPIRES", "expires", optional=True),
        Column("WHAT", "what", wide=True),
    ]
    more = {"more": found.more}
    nothing = "nothing waits for a person"
    out.rows("requests", rows, columns, shown=people, more=more, empty=nothing)
    _say_more(found, limit)


def _whose(notes: dict[str, Any]) -> str:
    """The person who looks after a request, or is to; empty if nobody does."""
    claim, assignment = notes["claim"], notes["assignment"]
    if claim is not None:
        return f"{claim['name']} has it"
    return "" if assignment is None else f"for {assignment['name']}"


def _what(row: dict[str, Any]) -> str:
    """The subject of a request, after who has it and which votes are missing."""
    about = row.get("title") or summary(row)
    if row["approved_at"]:
        return f"(agreed, starts at {row['approved_at']}) {about}"
    missing, whose = row["missing"], _whose(row["notes"])
    text = f"({missing} is missing) {about}" if missing else str(about)
    return f"({whose}) {text}" if whose else text


def _say_more(found: Listed, limit: int | None) -> None:
    """Say on standard error that the list is cut."""
    if found.more:
        note(f"there are more than these {limit}: without --limit all are listed")


def reviews(
    tool: Annotated[str | None, typer.Option("--tool", help="Only calls of this tool.")] = None,
    agent: AgentOption = None,
    limit: LimitOption = None,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """List the calls that one person has approved alone. Another person must review each of
    them.
    """
    with where.looking() as source:
        filters = {"tool": tool, "agent": agent}
        given = {key: value for key, value in filters.items() if value is not None}
        found, at = first_rows(source.reviews, limit, **given), source.now()
    people = [{**row, "age": ago(row["at"], at)} for row in found.rows]
    columns = [
        Column("REVIEW", "id", "bold"),
        Column("AGENT", "agent_id"),
        Column("TOOL", "tool_name"),
        Column("BY", "by"),
        Column("AGE", "age"),
        Column("WITHOUT", "must_agree"),
        Column("WHY", "note", wide=True),
    ]
    more, empty = {"more": found.more}, "nothing is to be reviewed"
    out.rows("reviews", found.rows, columns, shown=people, more=more, empty=empty)
    _say_more(found, limit)


def doubts(
    tool: Annotated[str | None, typer.Option("--tool", help="Only calls of this tool.")] = None,
    agent: AgentOption = None,
    order: Annotated[
        str, typer.Option("--order", help="`oldest` first, or `expiring`: doubts that end first.")
    ] = "oldest",
    limit: LimitOption = None,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """List the calls in doubt of all agents: nobody knows what they did."""
    with where.looking() as source:
        filters = {"tool": tool, "agent": agent, "order": order}
        given = {key: value for key, value in filters.items() if value is not None}
        found, at = first_rows(source.doubts, limit, **given), source.now()
    rows = found.rows
    asked = [row["request_id"] for row in rows if row["request_id"] is not None]
    people = [
        {
            **row,
            "by": row["made_by"] if row["made_by"] != row["agent"] else "",
            "age": ago(row["since"], at),
            "ends": ago(row["ends_at"], at) if row["ends_at"] else "",
            "checked": ago(row["checks_at"], at) if row["checks_at"] else "",
            "request": short_id(row["request_id"], asked) if row["request_id"] else "",
            "what": summary_of_doubt(row["arguments"], row["reason"]),
        }
        for row in rows
    ]
    columns = [
        Column("CALL", "call_key", "bold"),
        Column("AGENT", "agent_id"),
        Column("INSIDE", "by", optional=True),
        Column("TOOL", "tool_name"),
        Column("REQUEST", "request", optional=True),
        Column("SINCE", "age"),
        Column("CHECKED", "checked", optional=True),
        Column("ENDS", "ends", optional=True),
        Column("WHAT", "what", wide=True),
    ]
    more = {"more": found.more}
    out.rows("doubts", rows, columns, shown=people, more=more, empty="nothing is in doubt")
    _say_more(found, limit)
    if out.is_data:
        return
    if len(asked) < len(rows):
        note("to say what a call did: understudy settle AGENT CALL --how TEXT")
    if asked:
        note("with a request, a person is asked: understudy respond, approve or reject REQUEST")


def short_id(id: str, others: list[str], least: int = 6) -> str:
    """The shortest beginning of the id that no other id has."""
    for length in range(min(least, len(id)), len(id)):
        if sum(other.startswith(id[:length]) for other in others) == 1:
            return id[:length]
    return id


def events(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The id of the agent.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Then wait for new events.")
    ] = False,
    after: Annotated[
        str | None,
        typer.Option("--after", help="Only events after this number, position or cursor."),
    ] = None,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """Show the events of an agent; without an id, the feed of the store."""
    if out.is_json and follow:
        raise typer.BadParameter("--follow never ends: use --jsonl")
    if id is not None and after is not None and not _POSITION.fullmatch(after):
        raise typer.BadParameter(
            "--after takes the number or the position of an event", param_hint="--after"
        )
    with where.looking() as source:
        found = (
            source.feed(after=after, follow=follow)
            if id is None
            else source.events(id, after=after or "0", follow=follow)
        )
        if out.is_json:
            out.document({"events": list(found)})
            return
        for event in found:
            if out.is_jsonl:
                out.document(event)
            else:
                out.say(_event_line(event))


def _event_line(event: dict[str, Any]) -> str:
    what = event["event"]
    rest = {k: v for k, v in what.items() if k != "kind" and v not in (None, "", [], {})}
    number = "-" if event["seq"] is None else event["seq"]
    return (
        f"{event['at'] or '-'}  {number:>5}  {line(event['agent_id'])}  "
        f"{line(what['kind']).replace('_', ' ')}  "
        f"{line(shown_json(rest), 200)}"
    )


def history(
    id: IdArgument,
    after: Annotated[
        int, typer.Option("--after", min=0, help="Only entries after this number.")
    ] = 0,
    limit: PageOption = 100,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """Show what happened to an agent, with times and durations."""
    with where.looking() as source:
        page = source.history(id, after=after, limit=limit)
    people = [
        {
            "seq": entry["seq"],
            "at": (entry["at"] or "-")[:19],
            "what": "  " * (len(entry["agent_path"]) - 1) + entry["what"].replace("_", " "),
            "who": _who(entry),
            "took": "" if entry["seconds"] is None else f"{entry['seconds']:.2f} s",
            "cost": _cost_of(entry["detail"].get("model_requests", ())),
            "detail": clean(shown_json(_without_requests(entry["detail"])), lines=False),
        }
        for entry in page["entries"]
    ]
    columns = [
        Column("SEQ", "seq"),
        Column("AT", "at"),
        Column("WHAT", "what", "bold"),
        Column("WHO", "who"),
        Column("TOOK", "took"),
        Column("COST", "cost", optional=True),
        Column("DETAIL", "detail", "dim", wide=True),
    ]
    more = {"id": id, "next": page["next"]}
    out.rows("entries", page["entries"], columns, shown=people, more=more)
    if page["next"] is not None:
        note(f"there is more: --after {page['next']}")


def _cost_of(requests: Iterable[dict[str, Any]]) -> str:
    """The recorded cost, as text; empty if nothing is recorded."""
    costs = [request["cost"] for request in requests]
    known = [Decimal(cost) for cost in costs if cost is not None]
    if not known:
        return ""
    return f"{'at least ' if len(known) < len(costs) else ''}{shown_usd(total(known))}"


def _who(entry: dict[str, Any]) -> str | None:
    who: str | None = entry["who"]
    return author_text(who, entry["detail"]) if who else entry["tool_name"]


def _without_requests(detail: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in detail.items() if name != "model_requests"}


def _schedule_option(action: str, help: str) -> Any:
    return typer.Option(f"--{action}", metavar="SCHEDULE", help=help)


def schedules(
    id: IdArgument,
    pause: Annotated[str | None, _schedule_option("pause", "Pause this schedule.")] = None,
    unpause: Annotated[str | None, _schedule_option("unpause", "Continue this schedule.")] = None,
    trigger: Annotated[
        str | None, _schedule_option("trigger", ("Run this schedule once now."))
    ] = None,
    remove: Annotated[str | None, _schedule_option("remove", "Remove this schedule.")] = None,
    yes: YesOption = False,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """Show the schedules of an agent, or change one of them."""
    given = {"pause": pause, "unpause": unpause, "trigger": trigger, "remove": remove}
    changes = [(action, name) for action, name in given.items() if name is not None]
    if len(changes) > 1:
        raise typer.BadParameter("one change at a time: --pause, --unpause, --trigger or --remove")
    for action, name in changes:
        api = where.changing()
        if action == "remove" and not yes:
            question = f"Remove the schedule {name!r} of {id!r}? It cannot be brought back."
            confirm(question, to="that the schedule is removed", otherwise="nothing was removed")
        api.post(agent_path(id, "/schedules"), {"schedule": name, "action": action})
    with where.looking() as source:
        plans = source.schedules(id)
    rows = [
        {
            "id": schedule["id"],
            "name": schedule["name"],
            "cron": schedule["cron"],
            "timezone": schedule["timezone"],
            "paused": schedule["paused"],
            "next_due": utc(schedule["next_due"]),
            "missed": schedule["missed"],
            "overlap": schedule["overlap"],
        }
        for schedule in plans
    ]
    columns = [
        Column("ID", "id", "bold"),
        Column("CRON", "cron"),
        Column("ZONE", "timezone"),
        Column("NEXT", "next_due"),
        Column("PAUSED", "paused"),
        Column("NAME", "name"),
    ]
    out.rows("schedules", rows, columns, more={"id": id}, empty="no schedules")
