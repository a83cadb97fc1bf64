"""The state of a run: its open turn, the calls of that turn, and all that the run counts.

The names of the fields are stored, in `AgentState.to_dict`.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar

from pydantic_ai.messages import ToolCallPart
from pydantic_ai.usage import RunUsage

from understudy._base.authors import By
from understudy._base.context_codecs import StoredContext
from understudy.approvals import Approval, Vote, stricter
from understudy.interrupts import DOUBT_ENDS, Decision, Request
from understudy.models.messages import StoredRequest, StoredResponse
from understudy.state.costs import Lines
from understudy.state.done_calls import DoneCall, DoneCalls
from understudy.state.plans import Occurrence
from understudy.state.records import Effect, End, Override, PointEnd, PointKind, Result, Signalled
from understudy.state.shared_empties import no_items, no_list
from understudy.state.workflow_progress import Progress, Shared

T = TypeVar("T", "Call", "Turn", "RunState", "Left", "Continued")

BACKGROUND = "run/background"
"""The key under which a run keeps of which background call it is: its code and owner, who agreed.

The agent whose model made the call has asked all who must agree to it, before it was started.
"""
END_HOOKS = "on_run_end/"
"""The keys in `RunState.once` of `on_run_end` hooks that were called begin with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notices:
    """What is recorded about a request that waits: how many were told of it already."""

    reminders: int = 0
    """Its reminders up to this one are given, or were left out for a later one."""
    escalations: int = 0


NO_NOTICES = Notices()


@dataclass(frozen=True, slots=True, kw_only=True)
class PointAnswer:
    """How a point ended."""

    how: PointEnd
    value: Any = None
    reason: str | None = None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A named point of a tool's body: a sleep, a wait for the outside, or what is done once.

    Or the wait of a call in doubt for its check.
    """

    name: str
    kind: PointKind
    since: datetime | None
    """When the call first came to it to sleep or wait; None if it has not. Of a check: since when
    the call is in doubt."""
    due: datetime | None = None
    """When a sleep is over, a wait has timed out, or a check is asked."""
    reached_in: int = 0
    """The attempt at the call that came to it last and had to wait for its answer; 0 if none did,
    or if the answer came while that attempt went on."""
    token_hashes: tuple[str, ...] = ()
    """Of the tokens that may answer it."""
    answer: PointAnswer | None = None


@dataclass(slots=True)
class Call:
    """One tool call of the open turn: how far it is, and the requests about it."""

    key: str
    """`run.turn.index`. Unlike the provider's `tool_call_id` it is unique."""
    part: ToolCallPart
    attempts: int = 0
    """The number of times that it was started."""
    not_entered: int = 0
    """How many of these ended before its body was entered: a middleware asked, say."""
    effect: Effect = "effects"
    arguments: dict[str, Any] | None = None
    """Those that were made for it; None where they are as the model wrote them."""
    failed_in: int = 0
    """The last attempt at it whose failure is recorded because it is retried; 0 if none is."""
    unknown: bool = False
    """Whether an attempt at it was cut off, or failed so that nobody knows what it did."""
    copied_from: bool = False
    """Started before the agent was imported: it may have finished where it was exported."""
    running: bool = False
    """Started and without a result, as recorded; it need not run in this process."""
    requests: dict[str, Request] = field(default_factory=no_items)
    """The requests about it that are valid, by request id."""
    decisions: dict[str, Decision] = field(default_factory=no_items)
    """The decisions so far, by request id."""
    withdrawn: bool = False
    """A new message of the user withdrew its requests."""
    result: Result | None = None
    votes: dict[str, tuple[Vote, ...]] = field(default_factory=no_items)
    """The votes on those that ask several persons, in the order in which they were cast."""
    notices: dict[str, Notices] = field(default_factory=no_items)
    """The reminders and escalations so far, by request id."""
    points: dict[str, Point] = field(default_factory=no_items)
    """The points that its tool has come to, by their names."""
    checks: int = 0
    """How often it has waited for its check."""

    @property
    def entered(self) -> bool:
        """Whether its body was entered, or may have been."""
        return self.attempts > self.not_entered

    @property
    def was_unknown(self) -> bool:
        """Whether an attempt before left open what it did, and the call was to run again.

        So the call is in doubt where no later attempt brings a result.
        """
        return self.unknown and self.effect == "idempotent"

    @property
    def made_arguments(self) -> dict[str, Any]:
        """The arguments of the call: those that were made for it, or the model's."""
        return self.part.args_as_dict() if self.arguments is None else self.arguments

    @property
    def waits_at(self) -> list[Point]:
        """The points at which it is suspended, if none of them is answered yet."""
        if not self.points or self.running or self.result is not None:
            return []
        here = self._suspended_at()
        return [] if any(point.answer is not None for point in here) else here

    @property
    def is_woken(self) -> bool:
        """Whether a point at which it is suspended is answered: it can go on."""
        if not self.points or self.running or self.result is not None or self.pending_requests:
            return False
        return any(point.answer is not None for point in self._suspended_at())

    @property
    def check(self) -> Point | None:
        """Where it waits, as it is in doubt, for its check; None where it is not, or does not."""
        if not self.points or self.running or self.result is not None:
            return None
        return next((point for point in self._suspended_at() if point.kind == "check"), None)

    def _suspended_at(self) -> list[Point]:
        return [point for point in self.points.values() if point.reached_in == self.attempts]

    @property
    def pending_requests(self) -> list[Request]:
        """The requests without a decision."""
        if not self.requests:
            return []
        return [r for r in self.requests.values() if r.id not in self.decisions]

    @property
    def approval(self) -> tuple[Approval | None, tuple[str, ...] | None]:
        """Who had to agree to it, and the ids of the persons whom that excludes.

        None where nobody had to; and where one of these persons is not known.
        """
        asked: Approval | None = None
        requesters: set[str] | None = set()
        for request in self.requests.values() if self.requests else ():
            approval = request.approval or request.call_approval
            if approval is None:
                continue
            asked = approval if asked is None else stricter(asked, approval)
            if approval.never:
                ids = request.requesters
                requesters = None if ids is None or requesters is None else {*requesters, *ids}
        if asked is None or not asked.never or requesters is None:
            return asked, None
        return asked, tuple(sorted(requesters))

    @property
    def times_let_again(self) -> int:
        """How often a person has let the call, which was in doubt, run again."""
        return sum(
            request.kind == "doubt" and self.decisions[request.id].type == "approve"
            for request in self.requests.values()
            if request.id in self.decisions
        )

    @property
    def begins_anew(self) -> bool:
        """Whether its body is to be entered anew where it runs now, and not only continued."""
        return not self.entered or self.times_let_again > 0

    @property
    def unused_requests(self) -> list[Request]:
        """The requests about it but those by whose answers it has run already."""
        if self.result is not None or not self.requests:
            return []
        requests = list(self.requests.values())
        doubts = [number for number, request in enumerate(requests) if request.kind == "doubt"]
        since = requests[doubts[-1] if doubts else 0 :]  # it has run by all before
        if not self.entered:
            return since
        return [each for each in since if each.kind != "approval" or each.id not in self.decisions]

    @property
    def interrupt_answers(self) -> dict[str, Decision]:
        """The decisions on the tool's own questions by request, in the order of the questions."""
        return {
            request.id: self.decisions[request.id]
            for request in self.requests.values()
            if request.kind == "interrupt"
            and not request.question_key
            and request.id in self.decisions
        }

    def drop_request(self, request_id: str) -> Request:
        """Remove a request about it, which is valid no longer; the request."""
        self.notices.pop(request_id, None)
        self.votes.pop(request_id, None)
        return self.requests.pop(request_id)

    def reopen(self) -> None:
        """A run continues it that has not made its pending requests: they are made anew.

        So are the times of its check, if it waits for that.
        """
        self.running = self.running or self.check is not None
        for request in self.pending_requests:
            if request.kind == "doubt":
                self.running = True
            self.drop_request(request.id)

    def copied(self) -> Call:
        twin = _twin(self)
        twin.requests = self.requests and dict(self.requests)
        twin.decisions = self.decisions and dict(self.decisions)
        twin.votes = self.votes and dict(self.votes)
        twin.notices = self.notices and dict(self.notices)
        twin.points = self.points and dict(self.points)
        return twin


@dataclass(frozen=True, slots=True, kw_only=True)
class NotKept:
    """A call that ran, and whose result could not be kept."""

    tool_name: str
    arguments: dict[str, Any]
    text: str
    """What the model was told."""


@dataclass(slots=True)
class Turn:
    """One model reply and its tool calls."""

    index: int
    """The number of the turn in the run, from 0."""
    response: StoredResponse
    calls: dict[str, Call] = field(default_factory=dict)
    """By call key, in call order."""
    cut: bool = False
    """The reply is incomplete: its tool calls do not run."""
    broken: dict[str, Any] | None = None
    """The error that broke the stream of the reply."""
    pause_checked: bool = False
    interrupts_checked: bool = False
    asked_by: str = ""
    """Where `interrupts_checked`: the process and the definition that have asked the gates."""
    propagated: bool = False

    @property
    def has_all_results(self) -> bool:
        """Whether every call has its result."""
        # A generator takes 3 times as long: evaluated 3 times a step, 2 % of the step's time.
        for call in self.calls.values():  # noqa: SIM110
            if call.result is None:
                return False
        return True

    @property
    def last_result_at(self) -> datetime:
        """When the last of its calls got its result, once all have it."""
        return max(call.result.part.timestamp for call in self.calls.values() if call.result)

    @property
    def has_requests(self) -> bool:
        """Whether there is a request about any call, decided or not."""
        for call in self.calls.values():  # noqa: SIM110  # as above
            if call.requests:
                return True
        return False

    @property
    def pending_requests(self) -> list[Request]:
        """The requests of all calls without a decision, in call order."""
        if not self.has_requests:
            return []
        return [request for call in self.calls.values() for request in call.pending_requests]

    def copied(self) -> Turn:
        twin = _twin(self)
        twin.calls = {key: call.copied() for key, call in self.calls.items()}
        return twin


@dataclass(slots=True)
class ModelCall:
    """The model call of the next turn, where middleware asks about it, or puts it off.

    It ends with the reply that opens the turn. Where nothing waits there is none.
    """

    call: Call
    """The requests about it, and the points until which it is put off."""
    held: StoredResponse | None = None
    """The model's reply, as it came: `after_model` asks about it. The conversation has it not."""

    def copied(self) -> ModelCall:
        return ModelCall(self.call.copied(), self.held)


@dataclass(slots=True)
class Left:
    """Where a run stood when it failed, or was cut off: a run that continues it begins there."""

    messages: int
    """The number of messages in its conversation. What its end added comes after them."""
    turn: Turn | None
    """The turn that was open."""
    unread: tuple[StoredRequest, ...] = ()
    """Messages of the user that come after the results of that turn, or where it continues."""
    taken_over: bool = False
    """The run around it continues, and this one is to be continued with it."""
    done: DoneCalls | None = None
    """What it had done by then, but for what the agents had done that were open."""

    def copied(self) -> Left:
        twin = _twin(self)
        twin.turn = self.turn.copied() if self.turn is not None else None
        return twin


@dataclass(slots=True)
class Continued:
    """The failed run that a run continues."""

    run_id: str
    since: datetime | None = None
    """When the first of the failed runs started of which this one is the continuation."""
    retries: int = 1
    """The number of runs in a row, up to this one, that continued and got no further."""
    unread: tuple[StoredRequest, ...] = ()
    """Messages of the user that come after the results of the open turn."""

    def copied(self) -> Continued:
        return _twin(self)


@dataclass(slots=True)
class RunState:
    """The state of one run, from its input to its outcome."""

    run_id: str
    agent: str
    """The agent's name."""
    until_tool: tuple[str, ...] | None
    require_tool_success: bool
    max_runs: int
    early_stopping: str
    fingerprint: str
    deps_given: bool
    pause_when_given: bool
    model_calls: int = 0
    """The number of model calls, over all interrupts, pauses and crashes of the run."""
    attempts: int = 0
    """The number of times that it was started or continued."""
    fruitless: int = 0
    """The number of attempts since the last reply, result, decision or closed turn.

    Without those that ended because the agent was to be passivated.
    """
    quarantined: str | None = None
    """The cause of too many attempts without progress in a row: the run is not continued."""
    hooks_ran: bool = False
    """The `on_run_start` hooks are done."""
    turns: int = 0
    """The number of turns so far; also the index of the next one."""
    turn: Turn | None = None
    """The open turn. The model is not called while there is one."""
    paused: str | None = None
    """The reason, while the run is paused."""
    paused_by: By | None = None
    """The person who asked for that pause; None where nobody was named."""
    cancelled: dict[str, Any] | None = None
    """The signal of a requested cancellation."""
    closing: End | None = None
    """How the run ends, as decided at the end of the last turn."""
    end: End | None = None
    """How the run ended."""
    ended_by: dict[str, Result] = field(default_factory=no_items)
    """By call key, the until tool's result that ended the run."""
    ended_call: ToolCallPart | None = None
    """The call of that result."""
    usage: RunUsage = field(default_factory=RunUsage)
    once: dict[str, Any] = field(default_factory=no_items)
    """By key, the results of `run.once`; by `asked_key`, those of `run.ask_model`."""
    agent_id: str = ""
    """Of the actor that runs it; the agent's name where there is none."""
    signals: list[Signalled] = field(default_factory=no_list)
    """All stop signals with the boundary that each belongs to, oldest first."""
    overrides: list[Override] = field(default_factory=no_list)
    """All requests to continue in spite of signals, used or not."""
    max_overrides: int = 3
    forced: bool = False
    """The model must call the until tool."""
    early_stop: int | None = None
    """The turn in which the model answers without calling a tool, and with which the run ends."""
    tool_errors: int = 0
    """The number of failed results since the last successful one."""
    deadline: float | None = None
    """The seconds that the run may take, without the waits for people."""
    seconds: float = 0.0
    """The seconds that the run took so far, as recorded; only of runs with a time limit."""
    first_message: int = 0
    """The index of its first message; `include_contents="none"` hides the ones before."""
    contents: Literal["default", "none"] = "default"
    shared: Shared | None = None
    """Set where it is the run of an agent of a workflow."""
    workflow: str | None = None
    """Of a workflow: the agents of its mode when the run started."""
    progress: Progress | None = None
    """Of a workflow: how far it is."""
    escalated: bool = False
    """A tool asked to end the nearest loop around this agent."""
    halt: Request | None = None
    """The request of a `Halt` that a tool of this agent, or of one below it, raised."""
    dismissed: bool = False
    """A person dismissed the halt."""
    ends_at: datetime | None = None
    """The time at which the run is stopped, also while it waits."""
    occurrence: Occurrence | None = None
    """The time of a schedule that it is the run of."""
    model_call: ModelCall | None = None
    """The model call of the next turn, where it waits."""
    answers: dict[str, Decision] | None = None
    """The answers to questions of middleware, by `own_key`; None without one. Never changed."""
    context: StoredContext = field(default_factory=no_items)
    """That of who sent its message. That of an agent inside is the outermost run's."""
    costs: Lines = ()
    """What its requests to models cost that were priced, with those of the agents whose calls are
    over."""
    told: str = ""
    """What the agent is told besides its own instructions: only of one that a call runs."""
    began: datetime | None = None
    """When it started."""
    host: str | None = None
    """Who made its last attempt, of a store that hosts share."""
    trace: str | None = None
    """The W3C traceparent of its last attempt that had a span, or of that of the failed run."""
    done: DoneCalls | None = None
    """Its finished calls with effects, and those of the agents inside it that have ended."""
    not_kept: dict[str, NotKept] = field(default_factory=no_items)
    """By call key, the calls that ran and whose results could not be kept."""
    suspended_since: datetime | None = None
    """While it waits for a person, or is paused: since when its agent's status says so."""
    left: Left | None = None
    """Where it stood when it failed."""
    continues: Continued | None = None
    """The failed run that it continues."""
    doubt_ends: float | None = DOUBT_ENDS
    """Seconds after which a doubt ends of which only the model was told; None: never."""

    @property
    def calls(self) -> Collection[Call]:
        """The calls that are open: of the turn, or else the model call of the next one."""
        if self.turn is not None:
            return self.turn.calls.values()
        return () if self.model_call is None else (self.model_call.call,)

    @property
    def open_calls(self) -> Collection[Call]:
        """`calls`; those that it left, where it failed and is to be continued, but is not yet."""
        if self.left is None or not self.left.taken_over or self.left.turn is None:
            return self.calls
        return self.left.turn.calls.values()

    @property
    def pending_requests(self) -> list[Request]:
        """The requests of the open calls without a decision, in call order."""
        return [request for call in self.calls for request in call.pending_requests]

    @property
    def model_call_key(self) -> str:
        """The key of the model call of the next turn."""
        return f"{self.run_id}.{self.turns}.model"

    @property
    def is_held(self) -> bool:
        """Whether it is quarantined and waits to be released: one that is cancelled is stopped."""
        return self.quarantined is not None and self.cancelled is None

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.end is not None

    @property
    def has_failed(self) -> bool:
        """Whether the run has ended as failed."""
        return self.end is not None and self.end.outcome == "failed"

    @property
    def is_taken_over(self) -> bool:
        """Whether it has failed, or was cut off, and is to be continued under the run around it."""
        return self.left is not None and self.left.taken_over

    def add_done(self, call: DoneCall) -> None:
        """A call with effects is finished."""
        done = self.done
        if done is None:
            done = self.done = DoneCalls()
        done.add(call)

    def add_done_of(self, inside: RunState) -> None:
        """The run of an agent inside has ended: what it did is done by this one."""
        if inside.done is not None:
            if self.done is None:
                self.done = DoneCalls()
            self.done.add_agent(inside.agent, inside.done)

    def share_empties(self) -> None:
        """Drop what is empty for what all states share: this one was made of JSON."""
        self.once, self.ended_by = self.once or no_items(), self.ended_by or no_items()
        self.not_kept = self.not_kept or no_items()
        self.signals, self.overrides = self.signals or no_list(), self.overrides or no_list()
        self.context = self.context or no_items()

    def copied(self) -> RunState:
        twin = _twin(self)
        twin.turn = self.turn.copied() if self.turn is not None else None
        twin.model_call = self.model_call.copied() if self.model_call is not None else None
        twin.usage = copy(self.usage)
        twin.once = self.once and dict(self.once)
        twin.not_kept = self.not_kept and dict(self.not_kept)
        twin.signals = self.signals and list(self.signals)
        twin.overrides = self.overrides and list(self.overrides)
        twin.shared = self.shared.copied() if self.shared is not None else None
        twin.progress = self.progress.copied() if self.progress is not None else None
        twin.done = self.done.copied() if self.done is not None else None
        twin.left = self.left.copied() if self.left is not None else None
        twin.continues = self.continues.copied() if self.continues is not None else None
        return twin


def is_child_of(child_key: str, call_key: str) -> bool:
    """Whether the call runs this child. A call with several children numbers them behind a `+`."""
    return child_key == call_key or child_key.startswith(call_key + "+")


def asked_key(key: str) -> str:
    """The key in `RunState.once` of an answer to `run.ask_model`."""
    return f"ask_model/{key}"


def own_key(name: str, key: str) -> str:
    """The key, as one of the middleware with this name: no other name and key are the same text."""
    return f"{name.replace('%', '%25').replace('/', '%2F')}/{key}"


def _twin(original: T) -> T:
    """A shallow copy. `copy.copy` takes twice as long, 2 % of the time of a run of one step."""
    twin = object.__new__(type(original))
    for name in original.__slots__:
        setattr(twin, name, getattr(original, name))
    return twin
