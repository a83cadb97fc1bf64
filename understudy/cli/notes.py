"""The commands for notes beside requests: claims, comments, snoozes and assignments."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from understudy.cli.api import Api, request_path
from understudy.cli.deciding import RequestArgument, find
from understudy.cli.exits import NOT_FOUND, USAGE, refuse
from understudy.cli.inputs import given_text, span_or_time
from understudy.cli.options import Where
from understudy.cli.output import Output
from understudy.cli.sources import Source, every_row
from understudy.cli.text import utc

_SAID = {
    "take": "it is yours for now",
    "comment": "the comment is written",
    "snooze": "you do not see it until then",
    "assign": "it is assigned",
}
UntilOption = Annotated[
    str | None,
    typer.Option(
        "--until", metavar="SPAN|TIME", help="For 15m, 1h or 2d; or until a time with a time zone."
    ),
]


def take(
    request: RequestArgument,
    until: UntilOption = None,
    release: Annotated[bool, typer.Option("--release", help="Give the request up.")] = False,
    *,
    where: Where,
    out: Output,
) -> None:
    """Say that you look after a request, by default for an hour. Others may still decide it."""
    if release and until is not None:
        refuse(USAGE, "--release ends it at once: leave --until out")
    api = where.changing()
    body = {"release": True} if release else {"until": _time(until, api)}
    done = _write(api, find(api, request), "take", body)
    claim = done["claim"]
    if out.is_data:
        out.document(done)
    elif release and claim is not None:
        out.say(f"{claim['name']} has it until {utc(claim['until'])}")
    elif claim is None:
        out.say("it is not yours any more", "green")
    else:
        over = f"; you have taken it over from {claim['over']['name']}" if claim["over"] else ""
        out.say(f"it is yours until {utc(claim['until'])}{over}", "green")


def comment(
    request: RequestArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT|@FILE|-", help="The comment.")],
    *,
    where: Where,
    out: Output,
) -> None:
    """Write a comment beside a request, for other people. No agent reads it."""
    api = where.changing()
    body = {"text": given_text(text).strip()}
    if not body["text"]:
        refuse(USAGE, "the comment is empty")
    _say(_write(api, find(api, request), "comment", body), "comment", out)


def snooze(
    request: RequestArgument,
    until: UntilOption = None,
    wake: Annotated[bool, typer.Option("--wake", help="Show the request again.")] = False,
    *,
    where: Where,
    out: Output,
) -> None:
    """Hide a request from your list until a time, or until an hour before it expires."""
    if wake is (until is not None):
        refuse(USAGE, "give --until, or --wake")
    api = where.changing()
    done = _write(api, find(api, request), "snooze", {"until": _time(until, api)}, whole=True)
    if wake and not out.is_data:
        out.say("it is in your list again", "green")
    else:
        _say(done, "snooze", out)


def assign(
    request: RequestArgument,
    to: Annotated[
        str | None, typer.Argument(metavar="[PERSON]", help="The login name of the person.")
    ] = None,
    nobody: Annotated[bool, typer.Option("--nobody", help="Assign the request to nobody.")] = False,
    *,
    where: Where,
    out: Output,
) -> None:
    """Assign a request to a person. Others may still decide it."""
    if nobody is (to is not None):
        refuse(USAGE, "give the name of a person, or --nobody")
    api = where.changing()
    done = _write(api, find(api, request), "assign", {"to": to}, whole=True)
    if nobody and not out.is_data:
        out.say("it is assigned to nobody", "green")
    else:
        _say(done, "assign", out)


def notes(request: RequestArgument, *, where: Where, out: Output) -> None:
    """Show the notes beside a request, and who has taken it."""
    with where.looking() as source:
        found = source.notes(*_found(source, request))
    if out.is_data:
        out.document(found)
        return
    claim, assignment = found["claim"], found["assignment"]
    if claim is not None:
        out.say(f"{claim['name']} has it until {utc(claim['until'])}", "bold")
    if assignment is not None:
        out.say(f"assigned to {assignment['name']} by {assignment['by']['name']}", "bold")
    for name in found["looking"]:
        out.say(f"{name} looks at it now")
    for each in found["comments"]:
        out.say(f"{each['name']}, {utc(each['at'])}:", "bold")
        out.say(each["text"])
    if not (claim or assignment or found["looking"] or found["comments"]):
        out.say("nothing is written beside it")


def _found(source: Source, given: str) -> tuple[str, str]:  # noqa: RET503  # refused otherwise
    """The agent and the id of a request: a waiting request, or an id that is given in full."""
    agent, _, prefix = given.rpartition("/")
    fitting = {
        (row["agent_id"], row["id"])
        for row in every_row(source.pending, None, of="all")
        if row["id"].startswith(prefix) and (not agent or row["agent_id"] == agent)
    }
    exact = {each for each in fitting if each[1] == prefix}
    if len(exact or fitting) == 1:
        return (exact or fitting).pop()
    if len(fitting) > 1:
        refuse(USAGE, f"{given!r} is the beginning of {len(fitting)} requests")
    if agent and prefix:
        return agent, prefix  # the request waits no more, or never did
    more = f"; of one that waits no more, give AGENT/{prefix}"
    refuse(NOT_FOUND, f"no request that waits begins with {prefix!r}{more}")


def _write(
    api: Api, found: dict[str, Any], verb: str, body: dict[str, Any], *, whole: bool = False
) -> dict[str, Any]:
    path = request_path(found["agent_id"], found["id"], f"/{verb}")
    done: dict[str, Any] = api.post(path, body, whole=whole)
    return done


def _say(done: dict[str, Any], verb: str, out: Output) -> None:
    if out.is_data:
        out.document(done)
    else:
        out.say(_SAID[verb], "green")


def _time(given: str | None, api: Api) -> str | None:
    """A time in ISO 8601, from a span such as `15m` or from a time."""
    if given is None:
        return None
    until = span_or_time(given, "--until", ("15m", "1h", "2d"), digits=6)
    if isinstance(until, datetime):
        return given
    now = datetime.fromisoformat(api.get("")["now"])
    return (now + timedelta(seconds=until)).isoformat()
