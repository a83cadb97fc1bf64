"""`Ask`: what an agent waits for from outside, as the index of its store keeps it.

The rows of a store are changed in the transaction of the records from which they follow, and only
where they differ. So a list of what is asked loads no agent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import TypeAdapter

from understudy._base.json_values import digest
from understudy._base.request_summary import headline
from understudy.approvals import Vote
from understudy.errors import SchemaVersionError, StoreDamaged
from understudy.interrupts import Request
from understudy.journal.codec import EncodedRecord, decode, encode_again
from understudy.state.agent_state import AgentState
from understudy.state.doubts import Doubt, doubt_asked, doubt_told
from understudy.state.next_due import notices_of, votes_of
from understudy.state.record_format import FORMAT_VERSION
from understudy.state.records import Requested
from understudy.state.reviews import Review
from understudy.state.run_state import NO_NOTICES, Notices
from understudy.state.waits import Wait, has_waits, waits_of

K = TypeVar("K", Wait, Doubt, Review)
AskKind = Literal["request", "wait", "doubt", "review"]
"""What is asked. `request`: a person. `wait`: a tool's sleep or wait for the outside. `doubt`: what
a call did, whether a person is asked, who then has a `request` of its own, or nobody is. `review`:
somebody, to look at what a person alone has let run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One open ask of an agent, or of an agent that it runs. All but `told` never changes."""

    id: str
    """Used once for each agent."""
    kind: AskKind = "request"
    tool: str
    asked_at: datetime
    expires_at: datetime | None = None
    told: Notices = NO_NOTICES
    """How many were told of it so far."""
    asked: Request | Wait | Doubt | Review
    reply_size: int = 1
    """How many requests, answered or not, its reply of the model had when this was stored.

    Without those by which a call had run already.
    """

    votes: tuple[Vote, ...] = ()
    """On a request that asks several persons."""

    def encode(self) -> EncodedRecord:
        """The record that asks it, or the wait or the doubt, as a store keeps it."""
        asked = self.asked
        if isinstance(asked, Request):
            return encode_again(
                Requested(request=asked, reply_size=self.reply_size, votes=self.votes)
            )
        payload = _adapters()[type(asked)].dump_json(asked)
        return EncodedRecord(self.kind, FORMAT_VERSION, payload)


@cache
def _adapters() -> dict[type, TypeAdapter[Any]]:
    return {kind: TypeAdapter(kind) for kind in (Wait, Doubt, Review)}


def open_asks(state: AgentState) -> tuple[Ask, ...]:
    """What the agent waits for, in call order, with what all agents ask that it runs."""
    requests, told = state.requests, notices_of(state) if state.requests else {}
    votes = votes_of(state) if any(each.approval for each in requests) else {}
    sizes = reply_sizes(state) if requests else {}
    doubts = (request for request in requests if request.kind == "doubt")
    return (
        *(
            Ask(
                id=f"{id}/{len(votes[id])}" if votes.get(id) else id,  # another row with each vote
                tool=request.tool_name,
                asked_at=request.created_at,
                expires_at=request.expires_at,
                told=told.get(id, NO_NOTICES),
                asked=request,
                reply_size=sizes.get(id, 1),
                votes=votes.get(id, ()),
            )
            for request in requests
            for id in (request.id,)
        ),
        *(_ask_of_wait(wait) for wait in (waits_of(state) if has_waits(state) else ())),
        *(_ask_of_doubt(doubt_asked(request, *_named(state))) for request in doubts),
    )


def asks_of_doubts(state: AgentState) -> tuple[Ask, ...]:
    """What is in doubt, and only the model was told of, also while the agent is not at rest."""
    if not state.may_be_in_doubt:
        return ()
    named = _named(state)
    doubts = state.doubts_in_tree.values()
    return tuple(_ask_of_doubt(doubt_told(doubt, *named)) for doubt in doubts)


def asks_of_reviews(state: AgentState) -> tuple[Ask, ...]:
    """What a person alone has let run, and nobody has looked at yet, whatever the agent does."""
    return tuple(
        Ask(
            id=f"{review.id}/review",
            kind="review",
            tool=review.tool_name,
            asked_at=review.at,
            asked=review,
        )
        for review in state.reviews.values()
    )


def _named(state: AgentState) -> tuple[str, str]:
    """The id and the name of the agent, as its run has recorded them."""
    return ("", "") if state.run is None else (state.run.agent_id, state.run.agent)


def reply_sizes(state: AgentState) -> dict[str, int]:
    """How many requests, answered or not, the reply of each request has, by the request's id.

    Those by which a call has run already do not count: its start no longer waits for them.
    """
    sizes: dict[str, int] = {}
    for inner in state.tree:
        if inner.run is not None and not inner.run.over:
            ids = [request.id for call in inner.run.calls for request in call.unused_requests]
            sizes.update(dict.fromkeys(ids, len(ids)))
    return sizes


def _ask_of_wait(wait: Wait) -> Ask:
    until = "" if wait.expires_at is None else wait.expires_at.isoformat()
    # A tool may give its point any name, and no database keeps every text as a key
    # (test_a_point_may_have_any_name).
    return Ask(
        id=f"{wait.call_key}/{until}/{digest(wait.name)}",
        kind="wait",
        tool=wait.tool_name,
        asked_at=wait.since,
        expires_at=wait.expires_at,
        asked=wait,
    )


def _ask_of_doubt(doubt: Doubt) -> Ask:
    # What only the model was told of may be asked about later, and the other way round, and a check
    # is asked again later: the rows differ then.
    checks_at = "" if doubt.checks_at is None else doubt.checks_at.isoformat()
    return Ask(
        id=f"{doubt.request_id or doubt.call_key}/doubt{checks_at}",
        kind="doubt",
        tool=doubt.tool_name,
        asked_at=doubt.since,
        expires_at=doubt.ends_at,
        asked=doubt,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAsk:
    """One open ask, as the index of a store has it."""

    no: int
    """The place of the ask among all asks of the store, in the order in which they were stored."""
    agent_id: str
    agent: str
    """The name of the agent's definition."""
    kind: AskKind
    tool: str
    asked_at: datetime
    expires_at: datetime | None
    told: Notices
    asked: EncodedRecord | Requested | Wait | Doubt | Review
    """What is asked, or as it is stored."""
    damage: StoreDamaged | None = None
    """Why the row of the ask cannot be read: then it holds nothing to rely on."""
    times: tuple[object, object] | None = None
    """`asked_at` and `expires_at` as a damaged row has them; None for a row that can be read."""
    noted: bool = False
    """Whether there may be notes beside the ask."""

    def requested(self) -> Requested:
        """The request to a person, with the size of its reply.

        Raises:
            SchemaVersionError: if it has a later format.
            StoreDamaged: if it cannot be read.

        """
        if self.damage is not None:
            raise self.damage
        if isinstance(self.asked, Requested):
            return self.asked
        assert isinstance(self.asked, EncodedRecord), "a list of requests has no waits"
        found = decode(self.asked)
        if not isinstance(found, Requested):
            raise StoreDamaged(
                what=f"what agent {self.agent_id!r} asks", cause=f"it is a {found.kind!r}"
            )
        return found

    def request(self) -> Request:
        """The request alone of `requested`."""
        return self.requested().request

    def wait(self) -> Wait:
        """The sleep or wait of a tool.

        Raises:
            SchemaVersionError: if it has a later format.
            StoreDamaged: if it cannot be read.

        """
        # It may have been imported since.
        return replace(self._read(Wait, "waits for"), agent_id=self.agent_id)

    def doubt(self) -> Doubt:
        """The call in doubt.

        Raises:
            SchemaVersionError: if a newer version of this library wrote it.
            StoreDamaged: if it cannot be read.

        """
        return replace(self._read(Doubt, "has in doubt"), agent_id=self.agent_id, agent=self.agent)

    def review(self) -> Review:
        """What a person alone has let run.

        Raises:
            SchemaVersionError: if a newer version of this library wrote it.
            StoreDamaged: if it cannot be read.

        """
        return replace(self._read(Review, "lets review"), agent_id=self.agent_id, agent=self.agent)

    def _read(self, kind: type[K], what: str) -> K:
        if self.damage is not None:
            raise self.damage
        found = self.asked
        if isinstance(found, EncodedRecord):
            if found.version > FORMAT_VERSION:
                raise SchemaVersionError(
                    version=found.version, known=FORMAT_VERSION, what=self.kind
                )
            try:
                found = _adapters()[kind].validate_json(found.payload)
            except ValueError as error:
                raise StoreDamaged(
                    what=f"what agent {self.agent_id!r} {what}", cause=str(error)
                ) from error
        assert isinstance(found, kind), f"a list of one kind has no other: {self.kind!r}"
        return found


def request_words(asked: object) -> tuple[str, str]:
    """The kind of a request to a person, and the words by which it is found: see `folded`.

    Both are empty for what asks no person.
    """
    if not isinstance(asked, Request):
        return "", ""
    shown = {name: getattr(asked, name) for name in _SHOWN}
    return asked.kind, folded(f"{headline(shown)} {asked.about}")


_SHOWN = ("kind", "display", "payload", "title_format", "arguments")


def folded(text: str) -> str:
    """A text as texts are compared in a search: without upper case, in every store."""
    return text.casefold().replace("\0", "")


class AskChanges(NamedTuple):
    """How the rows of an agent's asks become what it asks now."""

    gone: list[str]
    """The ids of the asks that are answered or withdrawn."""
    new: list[Ask]
    told: list[Ask]
    """The asks of which more people were told."""


def told_of(asks: Collection[Ask]) -> dict[str, tuple[int, int]]:
    """The reminders and escalations of each ask, by the id of the ask."""
    return {ask.id: (ask.told.reminders, ask.told.escalations) for ask in asks}


def changes(stored: Mapping[str, tuple[int, int]], asks: Sequence[Ask]) -> AskChanges:
    """The difference between stored asks and present asks. It alone is written.

    Args:
        stored: the reminders and escalations of each row, by the id of the ask.
        asks: what the agent asks now.

    """
    now: Collection[str] = {ask.id for ask in asks}
    return AskChanges(
        gone=[id for id in stored if id not in now],
        new=[ask for ask in asks if ask.id not in stored],
        told=[
            ask
            for ask in asks
            if ask.id in stored and stored[ask.id] != (ask.told.reminders, ask.told.escalations)
        ],
    )
