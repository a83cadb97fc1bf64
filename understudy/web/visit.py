"""`Visit`: one request of a logged-in user, and what its answer needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import Response

from understudy._base import security_log
from understudy._base.json_values import shown
from understudy.actors import AgentRef, Observer, Runtime
from understudy.actors.observer import ObservedAgent
from understudy.actors.verbs import Right
from understudy.display import Row
from understudy.errors import UnderstudyError
from understudy.interrupts import Request as AskedRequest
from understudy.login.bodies import (
    LARGE,
    MAX_PARTS,
    B,
    checked_as,
    media_type,
    read_body,
    read_json,
)
from understudy.login.event_stream import StreamBound
from understudy.login.guard import SAFE, path_in
from understudy.login.problems import Refused, refused
from understudy.login.redaction import Redaction
from understudy.login.users import User
from understudy.state.agent_state import AgentState
from understudy.trust.freezes import Freeze

T = TypeVar("T")

TYPED = "understudy.typed"
"""The key in the scope of a request for the form that was sent."""
MAX_FIELDS = 20_000
SECONDS = 20.0
"""Seconds that an agent may take to answer."""
MAX_LIMIT = 500
"""The maximum rows of a page."""
Source = Runtime | Observer
SourceOf = Callable[[], Source]


@dataclass(slots=True)
class Site:
    """A mounted application: everything that is shared by its requests."""

    source_of: SourceOf
    read_only: bool
    title: str
    redaction: Redaction
    log_out: Callable[[Request], Response] | None = None
    """A function that ends the session of a request; None if the pages cannot end it."""
    logout_url: str | None = None
    """The URL at which the application's login ends the session; None if it is not given."""
    streams: StreamBound = field(default_factory=StreamBound)
    attention: tuple[float, int] | None = None
    """The number of things that need a person, and the time of the count; None if unknown."""

    def source(self) -> Source:
        """The runtime, or the observer.

        Raises:
            Refused: if there is none yet.

        """
        try:
            source = self.source_of()
        except (AttributeError, LookupError, UnderstudyError) as error:
            raise refused(503, "NotStarted", "The runtime is not started yet.") from error
        if not isinstance(source, (Runtime, Observer)):
            raise TypeError(f"ui(runtime): it gave {type(source).__name__}, not a Runtime")
        return source


class Visit:
    """One request of a user.

    Args:
        request: the HTTP request.
        site: the application that it is sent to.

    """

    def __init__(self, request: Request, site: Site) -> None:
        self.request = request
        self.site = site
        self.user: User = request.scope["understudy.user"]
        self.source: Source = site.source()
        self._agent_id: str | None = None
        self.rows: list[Row] | None = None
        """The rows of the conversation, if a live page follows them; None otherwise."""
        self.now: datetime | None = None
        """The time of the visit, by the clock of the store; None until it is read."""
        self.shown: AskedRequest | None = None
        """The request of an agent that the page shows, if it is known."""
        self._freezes: Collection[Freeze] = ()
        self.attention: int | None = None
        """The number of things that need a person; None if unknown."""

    @property
    def has_people(self) -> bool:
        """Whether the application names persons who vote."""
        return isinstance(self.source, Runtime) and self.source.people is not None

    @property
    def has_administration(self) -> bool:
        """Whether there are people, or rules, for a page to show."""
        source = self.source
        return self.has_people or (
            isinstance(source, Runtime)
            and (source.rules is not None or source.trust.log is not None)
        )

    @property
    def has_budgets(self) -> bool:
        """Whether there are budgets for a page to show."""
        return isinstance(self.source, Runtime) and self.source.has_budgets

    @property
    def has_usage(self) -> bool:
        """Whether model usage may be counted. Without a runtime of its own the page cannot know."""
        return not isinstance(self.source, Runtime) or self.source.counts_usage

    @property
    def has_notify(self) -> bool:
        """Whether people are notified of requests, which a page then shows."""
        return isinstance(self.source, Runtime) and self.source.has_notify

    @property
    def low_budgets(self) -> int:
        """The number of nearly used-up budgets, as far as this host knows without reading the
        store.
        """
        return self.source.low_budgets if isinstance(self.source, Runtime) else 0

    @property
    def freezes(self) -> Collection[Freeze]:
        """The freezes, oldest first, as far as they are known without reading the store."""
        if isinstance(self.source, Runtime):
            return self.source.trust.state.freezes.values()
        return self._freezes

    async def look_at_freezes(self) -> None:
        """Read the `freezes` from the store if no runtime of the page knows them."""
        if isinstance(self.source, Observer):
            self._freezes = await self.wait(self.source.freezes())

    @property
    def frozen_store(self) -> Freeze | None:
        """The oldest freeze of the whole store; None if there is none."""
        return next((each for each in self.freezes if each.what == "store"), None)

    # ---------------------------------------------------------------------- rights

    def why_not(self, right: Right, *, changes: bool = True) -> str | None:
        """Why the user may not do that; None if they may.

        Args:
            right: the right that the act needs.
            changes: whether the act changes something; `read` never does.

        """
        is_read_only = self.site.read_only or isinstance(self.source, Observer)
        if changes and right != "read" and is_read_only:
            return "These pages are read-only."
        if right not in self.user.may:
            return f"{self.user.name} may not do that: it needs the right '{right}'."
        return None

    def need(self, *rights: Right, changes: bool = True) -> None:
        """Refuse the request if `why_not` says why, for any of these rights."""
        about = self._agent_id or self.request.path_params.get("agent_id")
        agent = about if self._agent_id or about is None else unescaped_id(about)
        for right in rights:
            why = self.why_not(right, changes=changes)
            if why is not None:
                security_log.note("refused", right, who=self.user.name, agent=agent)
                raise refused(403, "NotAllowed", why)
        if "read" in rights and self.request.method in SAFE:
            path = path_in(self.request.scope)
            security_log.note("read", path, who=self.user.name, agent=agent)

    def hidden(self, what: str, detail: str) -> Refused:
        """The refusal of data that is given only as a whole, and is partly hidden from the user."""
        security_log.note("refused", what, who=self.user.name, agent=self.agent_id)
        return refused(403, "NotAllowed", detail)

    # ------------------------------------------------------------------- what it says

    @property
    def agent_id(self) -> str:
        """The id of the agent in the path."""
        if self._agent_id is not None:
            return self._agent_id
        return unescaped_id(self.request.path_params["agent_id"])

    @property
    def request_id(self) -> str:
        """The id of the agent's request in the path."""
        return unescaped_id(self.request.path_params["request_id"])

    def about(self, agent_id: str) -> Visit:
        """The same visit, about another agent."""
        other = copy(self)
        other._agent_id = agent_id
        return other

    @property
    def runtime(self) -> Runtime:
        """The runtime, for a change."""
        if isinstance(self.source, Observer):
            raise refused(403, "NotAllowed", "These pages are read-only.")
        return self.source._asked_by(self.user.caller)

    @property
    def watched(self) -> AgentRef | ObservedAgent:
        """The agent in the path, for reading."""
        if isinstance(self.source, Observer):
            return ObservedAgent(self.source, self.agent_id)
        return self.source.get(self.agent_id)

    def redacted(self, data: Any, *path: str | int) -> Any:
        """The data as the user may see it, at its path in an answer."""
        return self.site.redaction.seen(self.user, data, *path)

    def hides(self, data: Any, *path: str | int) -> bool:
        """Whether some of the data is hidden from the user."""
        return self.site.redaction.hides(self.user, data, *path)

    @property
    def ref(self) -> AgentRef:
        """The agent in the path, for calls."""
        return self.own(self.runtime.get(self.agent_id))

    def own(self, ref: AgentRef) -> AgentRef:
        """The ref for calls of the user."""
        return self.user.calling(ref)

    def asked(self, name: str) -> str | None:
        """A parameter of the query; None if it is missing or empty."""
        return self.request.query_params.get(name) or None

    def number(self, name: str, default: int, *, least: int = 0, most: int = 1 << 53) -> int:
        """A number of the query."""
        given = self.asked(name)
        if given is None:
            return default
        if not given.isascii() or not given.isdecimal() or len(given) > 16:
            raise refused(400, "UsageError", f"`{name}` must be a number, got {shown(given)}")
        return max(least, min(int(given), most))

    def limit(self, default: int = 50) -> int:
        """The rows of a page that the query asks for."""
        return self.number("limit", default, least=1, most=MAX_LIMIT)

    async def body(self, model: type[B], *, most: int = MAX_PARTS) -> B:
        """The JSON body as this model, with a maximum number of parts."""
        return checked_as(model, await read_json(self.request, most=most))

    async def form(self) -> Form:
        """The body as the fields of a form."""
        if media_type(self.request) != "application/x-www-form-urlencoded":
            raise refused(415, "NotAForm", "Send the form of the page.")
        try:
            text = (await read_body(self.request)).decode("utf-8")
            read = partial(
                parse_qsl, text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
            )
            pairs = await asyncio.to_thread(read) if len(text) > LARGE else read()
        except ValueError as error:
            raise refused(400, "NotAForm", "The form cannot be read.") from error
        form = Form(pairs)
        self.request.scope[TYPED] = form  # for a page that says why it was refused
        return form

    # -------------------------------------------------------------------------- links

    def link(self, path: str) -> str:
        """The URL of a path of these pages, wherever they are mounted."""
        return link_to(self.request, path)

    def agent_link(self, agent_id: str, below: str = "") -> str:
        """The URL of the page of an agent."""
        return self.link(f"/agents/{escaped_id(agent_id)}{below}")

    def request_link(self, agent_id: str, request_id: str) -> str:
        """The URL of the page of a request."""
        return self.agent_link(agent_id, f"/requests/{escaped_id(request_id)}")

    # ------------------------------------------------------------------------ reading

    async def wait(self, awaited: Awaitable[T]) -> T:
        """The awaited value, if it comes in time."""
        async with asyncio.timeout(SECONDS):
            return await awaited

    async def time(self) -> datetime:
        """The time of the agents, from which this machine's clock may differ by minutes.

        It is the same for everything that a page shows.
        """
        if self.now is None:
            self.now = await self.wait(self.source.now())
        return self.now

    async def state(self) -> AgentState:
        """The state of the agent in the path."""
        return await self.wait(self.watched.state())


class Form:
    """The fields that were sent, in order."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs
        self._values = {name: value.replace("\r\n", "\n") for name, value in reversed(pairs)}

    def get(self, name: str, default: str = "") -> str:
        """The first value of a field."""
        return self._values.get(name, default)

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return name in self._values

    def all(self, name: str) -> list[str]:
        """All values of a field."""
        return [value for key, value in self.pairs if key == name]

    def starting(self, prefix: str) -> list[str]:
        """The rest of the names of the fields that begin so."""
        return [name.removeprefix(prefix) for name in self._values if name.startswith(prefix)]


def link_to(request: Request, path: str) -> str:
    """The URL of a path of the pages to which this request is sent."""
    return quote(request.scope.get("root_path", ""), safe="/") + path


def escaped_id(id: str) -> str:
    """The id as a segment of a path. A browser takes `..` for the folder above, also escaped."""
    return quote(f"~{id}" if id[0] in "~." else id, safe="")


def unescaped_id(segment: str) -> str:
    """The id from a segment of a path."""
    return segment[1:] if segment.startswith("~") else segment
