"""The state of an agent: what its records add up to.

`AgentState` is what an outcome carries and `resume` takes; it goes through JSON and back without
loss, in the middle of an interrupt too. How a record changes it is told in `fold`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.usage import RunUsage

from understudy._base.json_values import checked_json
from understudy.errors import SchemaVersionError, UsageError
from understudy.interrupts import Decision, DecisionRecord, DoubtfulCall, Request, Sticky
from understudy.models.messages import (
    Messages,
    StoredRequest,
    StoredResponse,
    messages_from_dicts,
    messages_to_dicts,
    normalised,
)
from understudy.state.records import End, Override, Result, Signalled
from understudy.state.workflow_progress import Progress, Shared

__all__ = ["AgentState", "Call", "QueuedMessage", "RunState", "Turn"]

SCHEMA_VERSION = 1
_KEYS = (
    "messages",
    "values",
    "run",
    "decisions",
    "sticky",
    "doubts",
    "queue",
    "message_ids",
)

T = TypeVar("T", "Call", "Turn", "RunState")


@dataclass(slots=True)
class Call:
    """One tool call of the open turn, and what is known of it."""

    key: str
    """`run.turn.index`, given by us: the provider's `tool_call_id` is for the wire alone."""
    part: ToolCallPart
    attempts: int = 0
    """How often it was started."""
    idempotent: bool = False
    copied_from: bool = False
    """Started in another life of the agent: it may have been finished there (J7)."""
    running: bool = False
    """Started, and nothing has come back (in this record, not in this process)."""
    requests: dict[str, Request] = field(default_factory=dict)
    """What was asked about it and still counts, by request id."""
    decisions: dict[str, Decision] = field(default_factory=dict)
    """The answers so far, by request id."""
    withdrawn: bool = False
    """Nobody will answer any more: the user moved on (I10)."""
    result: Result | None = None

    @property
    def pending_requests(self) -> list[Request]:
        """The requests that nobody has answered yet."""
        if not self.requests:
            return []
        return [r for r in self.requests.values() if r.id not in self.decisions]

    @property
    def answer(self) -> Decision | None:
        """The latest answer to the tool's own question (I8)."""
        for request in reversed(self.requests.values()):
            if request.kind == "interrupt":
                return self.decisions.get(request.id)
        return None

    def copied(self) -> Call:
        twin = _twin(self)
        twin.requests, twin.decisions = dict(self.requests), dict(self.decisions)
        return twin


@dataclass(slots=True)
class Turn:
    """One model reply and what follows."""

    index: int
    response: StoredResponse
    calls: dict[str, Call] = field(default_factory=dict)
    cut: bool = False
    broken: dict[str, Any] | None = None
    pause_checked: bool = False
    interrupts_checked: bool = False
    propagated: bool = False

    @property
    def answered(self) -> bool:
        """Whether every call has its result."""
        # A generator would take 3 times as long: asked 3 times a step, 2 % of it.
        for call in self.calls.values():  # noqa: SIM110
            if call.result is None:
                return False
        return True

    @property
    def asked(self) -> bool:
        """Whether a question was put about any call, answered or not."""
        for call in self.calls.values():  # noqa: SIM110  # as above
            if call.requests:
                return True
        return False

    @property
    def pending_requests(self) -> list[Request]:
        """The unanswered requests of all calls, in call order."""
        if not self.asked:
            return []
        return [request for call in self.calls.values() for request in call.pending_requests]

    def copied(self) -> Turn:
        twin = _twin(self)
        twin.calls = {key: call.copied() for key, call in self.calls.items()}
        return twin


@dataclass(slots=True)
class RunState:
    """From an input to its outcome."""

    run_id: str
    agent: str
    """The name of the agent that runs it."""
    until_tool: tuple[str, ...] | None
    require_tool_success: bool
    max_runs: int
    early_stopping: str
    fingerprint: str
    deps_given: bool
    pause_when_given: bool
    model_calls: int = 0
    """Counted over all interrupts, pauses and crashes of the run (R2)."""
    attempts: int = 0
    fruitless: int = 0
    """Attempts since the last reply, result, decision or closed turn (J10)."""
    quarantined: str | None = None
    """What cut it off too often in a row: nothing wakes it any more (J10)."""
    hooks_ran: bool = False
    turns: int = 0
    turn: Turn | None = None
    """The open turn: while there is one, the model is not asked (J1)."""
    paused: str | None = None
    cancelled: dict[str, Any] | None = None
    """The signal by which somebody wants it cancelled (J13)."""
    closing: End | None = None
    """The last turn decided to end the run so."""
    end: End | None = None
    ended_by: dict[str, Result] = field(default_factory=dict)
    """The until tool's result, kept for the outcome, with the call that it belongs to."""
    ended_call: ToolCallPart | None = None
    usage: RunUsage = field(default_factory=RunUsage)
    once: dict[str, Any] = field(default_factory=dict)
    agent_id: str = ""
    """Of the actor that runs it; the agent's name where there is none."""
    signals: list[Signalled] = field(default_factory=list)
    """Who wanted the run to stop, and before which turn; all of them, oldest first (P3)."""
    overrides: list[Override] = field(default_factory=list)
    """Who wanted it to go on, used or not (P4)."""
    max_overrides: int = 3
    early_stop: int | None = None
    """The turn in which the model is to answer, without tools, and the run to end (R1)."""
    tool_errors: int = 0
    """Failed results since the last success of a tool (P5)."""
    deadline: float | None = None
    seconds: float = 0.0
    """How long it has been going, as far as that is recorded: runs with a time limit only."""
    first_message: int = 0
    """Where in the conversation it began: before it is what `include_contents="none"` hides."""
    contents: Literal["default", "none"] = "default"
    shared: Shared | None = None
    """Set where it is the run of an agent of a workflow."""
    workflow: str | None = None
    """The agents that its mode runs, as they were when it began (J12)."""
    progress: Progress | None = None
    """How far these are."""
    escalated: bool = False
    """A tool asked to end the nearest loop around this agent (W2)."""
    halt: Request | None = None
    """A tool of it, or of an agent below it, halted the whole tree (I11)."""
    dismissed: bool = False
    """A person took note of the halt."""

    @property
    def over(self) -> bool:
        return self.end is not None

    def copied(self) -> RunState:
        twin = _twin(self)
        twin.turn = self.turn.copied() if self.turn is not None else None
        twin.usage = copy(self.usage)
        twin.once = dict(self.once)
        twin.signals, twin.overrides = list(self.signals), list(self.overrides)
        twin.shared = self.shared.copied() if self.shared is not None else None
        twin.progress = self.progress.copied() if self.progress is not None else None
        return twin


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message that waits for its turn (A2)."""

    message_id: str
    message: StoredRequest
    steer: bool
    self_sent: bool


@dataclass(slots=True)
class _Stored:
    """The part of a state that Pydantic reads and writes; messages have a format of their own."""

    run: RunState | None
    decisions: list[DecisionRecord]
    sticky: dict[str, Sticky]
    doubts: dict[str, DoubtfulCall]
    queue: dict[str, QueuedMessage] = field(default_factory=dict)
    message_ids: dict[str, str | None] = field(default_factory=dict)
    status: str = "idle"


@cache
def _stored() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


class AgentState:
    """A conversation, the values beside it, and where the run in it stands.

    Treat it as a value: every outcome carries its own, and going on from one never changes it.

    Args:
        messages: a conversation so far, for instance one that Pydantic AI recorded; it is made
            valid for any provider once, here.
        values: JSON-able, what `{key}` in instructions reads and tools' state deltas merge into.

    Raises:
        UsageError: if a value cannot be stored as JSON.

    """

    __slots__ = (
        "_values",
        "children",
        "decisions",
        "doubts",
        "message_ids",
        "messages",
        "queue",
        "run",
        "status",
        "sticky",
    )

    messages: Messages
    """The conversation. The system prompt is never in it (R3)."""
    run: RunState | None
    """The run that is going on, or the last one."""
    decisions: list[DecisionRecord]
    """The audit: every answer ever given, oldest first (I14)."""
    sticky: dict[str, Sticky]
    """Answers given with `always=True`, by tool name (I3); `agent/tool` in a workflow."""
    doubts: dict[str, DoubtfulCall]
    """Calls whose outcome is unknown, by call key (J4)."""
    queue: dict[str, QueuedMessage]
    """Messages that wait for their turn, by message id, oldest first (A2)."""
    children: dict[str, AgentState]
    """The agents that open calls, or the workflow, run now, by child key (S3)."""
    message_ids: dict[str, str | None]
    """The ids of all messages that were ever taken: a repeat attaches to the first (J14).

    Each with the run that it went into; None while it waits.
    """
    status: str
    """The status of its actor that subscribers were told last (A1); `idle` without an actor."""

    def __init__(
        self, messages: Iterable[ModelMessage] = (), values: Mapping[str, Any] | None = None
    ) -> None:
        self.messages = Messages(normalised(messages) if messages else ())
        self._values: dict[str, Any] = (
            checked_json(values, what="AgentState(values=...)") if values else {}
        )
        self.run = None
        self.decisions = []
        self.sticky = {}
        self.doubts = {}
        self.queue = {}
        self.message_ids = {}
        self.status = "idle"
        self.children = {}

    @property
    def values(self) -> Mapping[str, Any]:
        """A read-only view of the values; the deltas of tools change them."""
        return MappingProxyType(self._values)

    def stored_values(self) -> dict[str, Any]:
        """The values, to be put into a record."""
        return self._values

    @property
    def requests(self) -> tuple[Request, ...]:
        """What a person is asked now, in call order."""
        run = self.run
        if run is None or run.over:
            return ()
        if run.halt is not None:
            return () if run.dismissed else (run.halt,)
        turn = run.turn
        if not self.children:
            return tuple(turn.pending_requests) if turn is not None else ()
        asked: list[Request] = []
        for call in turn.calls.values() if turn is not None else ():
            asked += call.pending_requests
            for key, child in self.children.items():
                if belongs(key, call.key):
                    asked += child.requests
        for child in self.agents.values():
            asked += child.requests
        return tuple(asked)

    @property
    def usage(self) -> RunUsage:
        """What the run has used so far, with the agents that it runs now: each counts once."""
        used = self.run.usage if self.run is not None else RunUsage()
        if not self.children:
            return used
        used = copy(used)
        for child in self.children.values():
            used.incr(child.usage)
        return used

    @property
    def agents(self) -> dict[str, AgentState]:
        """The agents of this workflow whose turn it is, by child key."""
        return {
            key: child
            for key, child in self.children.items()
            if child.run is not None and child.run.shared is not None
        }

    @property
    def tree(self) -> Iterator[AgentState]:
        """This state and those of all agents that it runs now."""
        yield self
        for child in self.children.values():
            yield from child.tree

    @property
    def pause(self) -> str | None:
        """Why the run, or one inside it, stands still; a halted one waits to be dismissed."""
        if self.run is not None and self.run.halt is not None:
            return None
        for state in self.tree:
            if state.run is not None and not state.run.over and state.run.paused is not None:
                return state.run.paused
        return None

    def copied(self, *, deeply: bool = False) -> AgentState:
        """A twin that further records leave alone. Costs nothing for the messages.

        Args:
            deeply: with values of its own, for somebody who may change what is in them.

        """
        twin = AgentState.__new__(AgentState)
        twin.messages = self.messages
        twin._values = deepcopy(self._values) if deeply else self._values
        twin.run = self.run.copied() if self.run is not None else None
        twin.decisions = list(self.decisions)
        twin.sticky, twin.doubts = dict(self.sticky), dict(self.doubts)
        twin.queue, twin.message_ids = dict(self.queue), dict(self.message_ids)
        twin.status = self.status
        twin.children = {key: child.copied() for key, child in self.children.items()}
        return twin

    def merge(self, delta: Mapping[str, Any]) -> None:
        """Take a delta into the values: mappings merge deeply (T4)."""
        self._values = merged(self._values, delta)
        self._changed("merge", delta)

    def put(self, values: Mapping[str, Any]) -> None:
        """Set these values, whatever they were."""
        self._values = {**self._values, **values}
        self._changed("set", values)

    def _changed(self, how: Literal["merge", "set"], values: Mapping[str, Any]) -> None:
        if self.run is not None and self.run.shared is not None:
            self.run.shared.changes.append((how, dict(values)))

    @classmethod
    def sharing(
        cls, parent: AgentState, messages: Iterable[ModelMessage], agent: str
    ) -> AgentState:
        """The state of an agent of a workflow when its turn comes (W5)."""
        state = cls()
        state.messages = Messages(messages)
        state._values = parent._values
        prefix = f"{agent}/"
        for name, sticky in parent.sticky.items():
            if name.startswith(prefix):
                state.sticky[name.removeprefix(prefix)] = sticky
        return state

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AgentState):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # compared by content

    def __repr__(self) -> str:
        run = "no run" if self.run is None else f"run {self.run.run_id!r}"
        return f"AgentState({len(self.messages)} messages, {run}, values={self._values!r})"

    def to_dict(self) -> dict[str, Any]:
        """The whole state as JSON-able data, with a schema version."""
        stored = _Stored(
            self.run,
            self.decisions,
            self.sticky,
            self.doubts,
            self.queue,
            self.message_ids,
            self.status,
        )
        return {
            "schema_version": SCHEMA_VERSION,
            "messages": messages_to_dicts(self.messages),
            "values": self._values,
            "children": {key: child.to_dict() for key, child in self.children.items()},
            **cast("dict[str, Any]", _stored().dump_python(stored, mode="json")),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AgentState:
        """The state that `to_dict` told.

        Raises:
            SchemaVersionError: if it was written by a newer version.
            UsageError: if it is no stored state, or not whole.

        """
        version = data.get("schema_version") if isinstance(data, Mapping) else None
        if version is None:
            raise UsageError("This is no stored AgentState: it has no 'schema_version'.")
        if isinstance(version, int) and version < 1:
            raise UsageError(f"This is no stored AgentState: its schema_version is {version!r}.")
        if version != SCHEMA_VERSION:
            raise SchemaVersionError(version=version, known=SCHEMA_VERSION)
        missing = [key for key in _KEYS if key not in data]
        if missing:
            raise UsageError(f"This stored AgentState is not whole: {missing[0]!r} is missing.")
        state = cls.__new__(cls)
        try:
            known = {key: data[key] for key in _KEYS[2:]}
            stored = _stored().validate_python({**known, "status": data.get("status", "idle")})
            state.messages = Messages(messages_from_dicts(data["messages"]))
        except (ValidationError, TypeError) as error:
            raise UsageError(
                f"This stored AgentState is damaged, in its run or messages: {error}"
            ) from error
        state._values = checked_json(data["values"], what="The stored AgentState's 'values'")
        state.run, state.decisions = stored.run, stored.decisions
        state.sticky, state.doubts = stored.sticky, stored.doubts
        state.queue, state.message_ids = stored.queue, stored.message_ids
        state.status = stored.status
        state.children = {
            key: cls.from_dict(child) for key, child in data.get("children", {}).items()
        }
        return state


def _twin(original: T) -> T:
    """A shallow copy. `copy.copy` takes twice as long: 2 % of a run of one step."""
    twin = object.__new__(type(original))
    for name in original.__slots__:
        setattr(twin, name, getattr(original, name))
    return twin


def belongs(child_key: str, call_key: str) -> bool:
    """Whether this child is run by this call."""
    return child_key == call_key or child_key.startswith(call_key + "+")


def merged(base: Mapping[str, Any], delta: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `delta` in it: mappings merge deeply, all else is replaced (T4)."""
    result = dict(base)
    for key, value in delta.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[key] = merged(before, value)
        else:
            result[key] = value
    return result
