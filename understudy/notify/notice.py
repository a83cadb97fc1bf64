"""`Notice`: the content about a request that a channel gets."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from understudy._base.clock import SystemClock, new_random_id
from understudy._base.confusables import odd_places
from understudy._base.json_values import digest, jsonable
from understudy._base.marks import plainly
from understudy._base.request_summary import summary, why_alone
from understudy.errors import UsageError
from understudy.interrupts import Request

What = Literal["asked", "reminder", "escalation", "expired"]
"""What happened to a request: it was made; nobody has answered for some time; an audience of its
escalation is notified; or its time was over."""
WHAT: tuple[What, ...] = ("asked", "reminder", "escalation", "expired")
Show: TypeAlias = bool | Collection[str] | Callable[[Request], Mapping[str, Any]]
"""The arguments that are sent outside: none, all, those with these names, or a function's
choice."""
TITLES: Mapping[What, str] = {
    "asked": "",
    "reminder": "Still waits: ",
    "escalation": "Nobody has answered: ",
    "expired": "Expired unanswered: ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What a channel learns about a request. Only `to_dict()` is meant to be sent.

    `request` has all arguments. A channel sends them only if you write code for it.
    """

    id: str
    """The id of the notice. It is the same at each attempt, so a receiver can recognize a
    repetition."""
    what: What
    """What happened to the request: `asked`, `reminder`, `escalation` or `expired`."""
    number: int
    """The number of the reminder or of the escalation, from 1 up; else 0."""
    audience: str
    """The people whom an escalation tells; else empty."""
    title: str
    """The title, in one line. It has arguments only if the rule shows them."""
    agent_id: str
    """The id of the agent."""
    agent: str
    """The name of the agent's definition."""
    url: str
    """The URL of the page of the request; empty without `base_url`."""
    shown: Mapping[str, Any]
    """The arguments that the rule shows."""
    request: Request = field(repr=False)
    """The whole request, for a channel of your own."""

    @property
    def shows_all(self) -> bool:
        """Whether the shown arguments are everything that a person decides on."""
        return dict(self.shown) == self.request.arguments

    def to_dict(self) -> dict[str, Any]:
        """Return the part of the notice that may be sent, as plain data."""
        expires_at = self.request.expires_at
        return {
            "id": self.id,
            "what": self.what,
            "number": self.number,
            "audience": self.audience,
            "title": self.title,
            "kind": self.request.kind,
            "tool": self.request.tool_name,
            "agent": self.agent,
            "agent_id": self.agent_id,
            "request_id": self.request.id,
            "asked_at": self.request.created_at.isoformat(),
            "expires_at": None if expires_at is None else expires_at.isoformat(),
            "arguments": jsonable(dict(self.shown)),
            "url": self.url,
        }


def notice_id(agent_id: str, request_id: str, what: str, number: int, channel: str) -> str:
    """The id of a notice."""
    return f"notice_{digest([agent_id, request_id, what, number, channel])[:32]}"


def sample_notice(url: str) -> Notice:
    """A notice of a request that does not exist. Nothing can be decided by it."""
    request = Request(
        id="test",
        kind="test",
        agent_id="test",
        run_id="test",
        agent_path=("test",),
        call_key="test",
        tool_call_id="test",
        tool_name="test",
        arguments={},
        allowed=(),
        created_at=SystemClock().now(),
        fingerprint="",
        digest="",
    )
    return Notice(
        id=f"notice_test_{new_random_id()}",
        what="asked",
        number=0,
        audience="",
        title="A test: nothing is asked",
        agent_id="test",
        agent="test",
        url=url,
        shown={},
        request=request,
    )


def shown_by(show: Show, request: Request) -> Mapping[str, Any]:
    """The arguments of a request that may be sent.

    Raises:
        UsageError: if the function of the application gives no mapping.

    """
    if show is True:
        return request.arguments
    if callable(show):
        found = show(request)
        if not isinstance(found, Mapping):
            raise UsageError(
                f"Rule(show=...): the function must return a mapping, got {type(found).__name__}"
            )
        return found
    wanted = show or ()
    return {name: value for name, value in request.arguments.items() if name in wanted}


def title_of(request: Request, shown: Mapping[str, Any]) -> str:
    """The subject of a request, in one line.

    The application's own `title` is shown, with its values. Otherwise only the arguments in `shown`
    are.
    """
    data = request.to_dict()
    about = plain(request.about or request.kind)
    if not request.title:
        # What a gate displays, or a tool asks, may have a secret in it.
        data |= {"display": None, "payload": None, "arguments": jsonable(dict(shown))}
        if request.kind not in ("approval", "doubt"):
            data["kind"] = "approval"  # its line is made from the arguments
    line = plain(summary(data))
    words = {"approval": "Approve", "doubt": "In doubt:", "halt": "Halted:"}
    if request.title:  # the title says what is to be done, or what was done
        return f"{words[request.kind]} {line}" if request.kind in ("doubt", "halt") else line
    first = f"{words.get(request.kind, 'Answer')} {about}"
    return f"{first}: {line}" if line else first


def needs_page(request: Request) -> str:
    """Why a request must be decided on its page, in a sentence; empty if it need not be."""
    data = request.to_dict()
    if request.kind != "approval" or request.payload is not None:
        return "It is more than an approval: answer it on its page."
    if request.earlier or request.asked_again or request.doubts:
        return "Such calls were made before, or it was asked before: look at it on its page."
    return why_alone(data) or ""


def plain(text: str) -> str:
    """The text in one line, with a visible mark for each misleading character."""
    return plainly(" ".join(text.split()))


def lines_of(value: Any) -> str:
    """A value as JSON in lines, without misleading characters."""
    text = json.dumps(jsonable(value), ensure_ascii=False, indent=2)
    lines = []
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        # A JSON text has no line break, and its spaces count, so they are not joined.
        marked = _marked(line[indent:])
        lines.append(" " * indent + marked)
    return "\n".join(lines)


def _marked(line: str) -> str:
    odd = dict(odd_places(line))
    return "".join(_escape(each) if place in odd else each for place, each in enumerate(line))


def _escape(character: str) -> str:
    """The character as JSON writes it in ASCII; above 0xFFFF with two escapes."""
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else json.dumps(character)[1:-1]


def when_text(time: datetime) -> str:
    """A time, as text for people."""
    return time.strftime("%Y-%m-%d %H:%M UTC")
