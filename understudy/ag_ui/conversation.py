"""`Conversation`: a client's message to an agent, and the events until the agent is at rest."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from understudy._base.json_values import shown
from understudy.actors import AgentRef, Runtime, Status, StatusChanged
from understudy.ag_ui.native_events import Differs, Given, NativeEvents
from understudy.ag_ui.site import Site, need
from understudy.errors import AlreadyDecided, RequestExpired, UnknownAgent
from understudy.interrupts import Decision, Request
from understudy.login import User
from understudy.login.problems import refused
from understudy.login.redaction import HIDDEN
from understudy.models.messages import UserInput
from understudy.outcomes import Interrupted, Outcome
from understudy.state.agent_state import AgentState

T = TypeVar("T")
SECONDS = 20.0
"""The maximum seconds for an answer of the store."""
OWN_ID = "understudy-"
"""The beginning of the ids of messages that the server has made. Such a message is not new."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A client's answer to one request."""

    id: str
    decide: Callable[[Request, str], Decision]
    """A function of the request and the name of the person that gives the decision."""
    digest: str | None = None
    """The digest of what the person was shown, if the client says it."""


@dataclass(frozen=True, slots=True)
class Said:
    """The content of a client's request."""

    thread_id: str
    message_id: str | None = None
    content: UserInput | None = None
    answers: Sequence[Answer] = ()
    results: Callable[[Iterable[Request]], Sequence[Answer]] = lambda _: ()
    """A function that gives the answers to open requests that are results of calls executed by the
    page."""
    offered: Collection[str] = ()
    """The names of the tools that the page executes."""


class Writer(ABC, Generic[T]):
    """Writes the answer to one request in a protocol."""

    has_snapshots: ClassVar[bool]
    """Whether the protocol can show a whole conversation. If not, a client that comes back gets the
    last run."""

    @abstractmethod
    def begin(self) -> AsyncIterator[T]:
        """Begin the stream."""

    @abstractmethod
    def snapshot(self, state: AgentState | None) -> AsyncIterator[T]:
        """Write the whole conversation, which replaces what the client has."""

    @abstractmethod
    def write(self, given: Given) -> AsyncIterator[T]:
        """Write one native event, or one of the marks between them."""

    @abstractmethod
    def end(
        self, outcome: Outcome | None, state: AgentState | None, *, waits: bool
    ) -> AsyncIterator[T]:
        """End the stream: the agent is at rest, or waits for a time or for the outside."""

    @abstractmethod
    def error(self, error: Exception) -> AsyncIterator[T]:
        """End the stream by an error: nothing was done, or it failed."""


@dataclass(slots=True)
class Conversation:
    """One request of a client to an agent.

    Args:
        site: the endpoint.
        user: who is logged in.
        said: what the client says.

    """

    site: Site
    user: User
    said: Said
    source: Runtime = field(init=False)
    ref: AgentRef = field(init=False)

    def __post_init__(self) -> None:
        need(self.user, "events")
        if self.said.answers:
            need(self.user, "resume")
        self.source = self.site.source()
        self.ref = self.site.ref(self.source, self.user, self.said.thread_id)

    async def stream(self, writer: Writer[T]) -> AsyncGenerator[T, None]:
        """Do what the client asks, and write the events that follow."""
        async for item in writer.begin():
            yield item
        try:
            async with aclosing(self._followed(writer)) as items:
                async for item in items:
                    yield item
        except Exception as error:  # the client gets any error; the log has the rest
            async for item in writer.error(error):
                yield item

    async def _followed(self, writer: Writer[T]) -> AsyncGenerator[T, None]:
        self.site.check_offered(self.said.offered)
        state, number = await self._look()
        # The subscription begins before anything else, so that no event is missed.
        ask, is_news = self._what_is_asked(state)
        if ask is None:
            async for item in writer.snapshot(state):
                yield item
            async for item in writer.end(None, state, waits=_waits(state)):
                yield item
            return
        native = NativeEvents(state, but_its_run=not is_news and not writer.has_snapshots)
        if not is_news or (state is not None and _goes_on(state)):
            async for item in writer.snapshot(state):
                yield item
        if state is not None and not is_news and not writer.has_snapshots:
            for given in native.catch_up(state):
                async for item in writer.write(given):
                    yield item
        subscription = self.ref.events(number)
        asked: asyncio.Task[Outcome | None] | None = None
        waits = False
        try:
            asked = asyncio.create_task(_awaited(ask()))
            # Earlier events can still be read, and then the iteration ends.
            asked.add_done_callback(lambda _: subscription.close())
            async for found in subscription:
                if isinstance(found.event, StatusChanged):
                    waits = found.event.status is Status.WAITING
                    if waits:
                        break
                for given in native.event(found.event):
                    if isinstance(given, Differs):
                        async for item in self._again(native, writer):
                            yield item
                    else:
                        async for item in writer.write(given):
                            yield item
            outcome = None if waits else await asked
        finally:
            # The run continues: only its follower is gone.
            subscription.close()
            if asked is not None:
                asked.cancel()
                await asyncio.wait([asked])
                if not asked.cancelled():
                    asked.exception()  # asyncio would log an exception that nobody has read
        now = await self.ref.state()
        requests = outcome.requests if isinstance(outcome, Interrupted) else ()
        for given in (*native.catch_up(now), *native.end(requests)):
            if not isinstance(given, Differs):
                async for item in writer.write(given):
                    yield item
        async for item in writer.end(outcome, now, waits=waits):
            yield item

    async def _again(self, native: NativeEvents, writer: Writer[T]) -> AsyncIterator[T]:
        state = await self.ref.state()
        native.knows(state)
        async for item in writer.snapshot(state):
            yield item

    async def _look(self) -> tuple[AgentState | None, int]:
        """The state of the agent, and the number of its last record; None if it is new."""
        try:
            async with asyncio.timeout(SECONDS):
                info = await self.site.info(self.ref)
                state = await self.ref.state()
        except UnknownAgent:
            return None, 0
        return state, info.last_seq

    def _what_is_asked(
        self, state: AgentState | None
    ) -> tuple[Callable[[], Awaitable[Outcome | None]] | None, bool]:
        """The action to do, and whether it is new."""
        said, ref = self.said, self.ref
        answered = {answer.id for answer in said.answers}
        asked = () if state is None else state.requests
        results = [each for each in said.results(asked) if each.id not in answered]
        if results:
            need(self.user, "run")
        if said.answers or results:
            return self._answered(state, [*said.answers, *results])
        id = said.message_id
        if said.content is not None and id is not None:
            stored_id = f"client:{id}"
            known = {} if state is None else state.message_ids
            if stored_id not in known and not id.startswith(OWN_ID):
                return self._new_message(state, said.content, stored_id), True
        if state is None or _waits(state):
            return None, False
        run = None if state.run is None else state.run.run_id
        taken = f"client:{id}"
        by = state.message_ids.get(taken)
        if (taken in state.message_ids and by is None) or (by is not None and by.run_id == run):
            # The message waits for its run, or belongs to the last run.
            return (lambda: ref.outcome(message_id=taken)), False
        return ref.outcome, False

    def _new_message(
        self, state: AgentState | None, content: UserInput, stored_id: str
    ) -> Callable[[], Awaitable[Outcome | None]]:
        need(self.user, "run")
        if state is not None and state.requests:
            raise refused(
                409,
                "InterruptsPending",
                f"{_ids(r.id for r in state.requests)} must be answered before anything new is "
                "said. Nothing was done.",
            )
        if state is not None and state.pause is not None:
            raise refused(409, "Paused", "The run is paused: it has to be continued first.")
        if state is not None and _waits(state):
            raise refused(409, "Waiting", "The run waits for a time, or for the outside.")
        self.ref = self.source.spawn(self.site.agent, id=self.ref.id)
        ref, by = self.user.calling(self.ref), self.user.by
        return lambda: ref.run(content, message_id=stored_id, if_interrupted="error", by=by)

    def _answered(
        self, state: AgentState | None, answers: Sequence[Answer]
    ) -> tuple[Callable[[], Awaitable[Outcome | None]], bool]:
        """Resume the run, if the answers are for all open requests and there is no new message."""
        said, ref = self.said, self.ref
        pending = {} if state is None else {request.id: request for request in state.requests}
        made = {} if state is None else _made(state)
        given: dict[str, Decision] = {}
        for answer in answers:
            if answer.id in given:
                raise refused(400, "AnsweredTwice", f"{shown(answer.id)} is answered twice.")
            record = made.get(answer.id)
            request = record.request if record is not None else pending.get(answer.id)
            if request is None:
                raise refused(
                    404,
                    "UnknownInterrupt",
                    f"Nothing of the id {shown(answer.id)} is asked. Nothing was done.",
                )
            if answer.digest is not None and answer.digest != request.digest:
                raise refused(409, "RequestChanged", "The request is not what was shown.")
            decision = given[answer.id] = answer.decide(request, self.user.by)
            if decision.type == "edit" and self.site.redaction.hides(
                self.user, {"arguments": request.arguments}
            ):
                raise refused(403, "NotAllowed", HIDDEN)
            if record is not None and (
                not decision.same_as(record.decision) or self._is_guess(record.decision)
            ):
                if request.expires_at is not None and record.at >= request.expires_at:
                    raise refused(409, "InterruptExpired", "The time for an answer is over.")
                who = record.decision.by or "Somebody"
                raise refused(
                    409, "AnsweredElsewhere", f"{who} has answered {answer.id!r} differently."
                )
        missing = [id for id in pending if id not in given]
        if missing:
            raise refused(
                409, "PartialResume", f"{_ids(missing)} must be answered as well. Nothing was done."
            )
        if said.content is not None and not self._is_known(state):
            raise refused(409, "InterruptsPending", "Answer first, then say something new.")
        # Decisions made elsewhere are not made again; if all were made, it is a repetition.
        fresh = {id: given[id] for id in given if id in pending} or given
        expect = {id: (pending.get(id) or made[id].request).digest for id in fresh}
        ref = self.user.calling(ref)
        return (lambda: ref.resume(fresh, expect=expect)), fresh is not given or bool(pending)

    def _is_guess(self, before: Decision) -> bool:
        """Whether the answer must not reveal that a decision equals this one of another person."""
        return self.site.redaction.hides_decision(self.user, before.to_dict(), before.by)

    def _is_known(self, state: AgentState | None) -> bool:
        id = self.said.message_id or ""
        known = () if state is None else state.message_ids
        return id.startswith(OWN_ID) or f"client:{id}" in known


def refusal_of(error: Exception) -> Exception:
    """The error for a client. An answer that is too late, or was overtaken, has its own name."""
    if isinstance(error, RequestExpired):
        return refused(409, "InterruptExpired", "The time for an answer is over.")
    if isinstance(error, AlreadyDecided):
        return refused(409, "AnsweredElsewhere", str(error))
    return error


async def _awaited(asked: Awaitable[T]) -> T:
    return await asked


def _made(state: AgentState) -> dict[str, Any]:
    return {record.request.id: record for inner in state.tree for record in inner.decisions}


def _goes_on(state: AgentState) -> bool:
    """Whether something is under way that the client may not know of."""
    return state.status == "running" or bool(state.queue)


def _waits(state: AgentState | None) -> bool:
    """Whether tools of the agent sleep, or wait for the outside: perhaps for days."""
    return state is not None and state.status == "waiting"


def _ids(ids: Iterable[str]) -> str:
    return ", ".join(map(repr, ids))
