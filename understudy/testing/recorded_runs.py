"""The records of a run, for playing it, and for comparing it with what happens now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any

from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_core import to_jsonable_python

from understudy._base.json_values import digest
from understudy.actors.reads.export import Exported
from understudy.interrupts import Decision, Request
from understudy.state.agent_state import AgentState
from understudy.state.fold import apply
from understudy.state.records import (
    Decided,
    End,
    InterruptsChecked,
    ModelAsked,
    Once,
    Record,
    Reply,
    ReplyHeld,
    Requested,
    Result,
    RunEnded,
    RunStarted,
    Snapshot,
    Started,
    UserMessage,
    agents_inside,
    innermost,
)
from understudy.state.run_state import asked_key
from understudy.trust.rules import DENIED_BY_RULE
from understudy.trust.trial import Fate

Key = tuple[str, str]
"""The kind of an event, and the id of its run, turn or call."""


@dataclass(slots=True)
class CallOfRun:
    """A call and its fate."""

    key: str
    path: tuple[str, ...]
    """The names of its agents."""
    part: ToolCallPart
    arguments: dict[str, Any] | None = None
    """The arguments that were made for it; None if they are as the model wrote them."""
    asked: set[str] = field(default_factory=set)
    """The persons who had to agree, in words; "" for a single person."""
    decisions: list[tuple[Request, Decision]] = field(default_factory=list)
    question: Request | None = None
    """The last question of its tool, or about its doubt."""
    is_judged: bool = False
    """Whether gates and rules were asked about it, or it ran without them."""
    started: bool = False
    result: Result | None = None
    at: datetime | None = None
    """The time at which it was made."""

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of the call."""
        if self.arguments is not None:
            return self.arguments
        try:
            return self.part.args_as_dict()
        except ValueError:  # the model wrote no JSON
            return {}

    @property
    def fate(self) -> Fate:
        """The fate of the call: denied by a rule, asked about, or neither."""
        if self.result is not None and self.result.part.outcome == "denied":
            content = self.result.part.content
            if isinstance(content, str) and content.startswith(DENIED_BY_RULE):
                return "denied"
        return "asked" if self.asked else "unasked"

    @property
    def decided(self) -> str:
        """The decisions of persons, in words."""
        if not self.asked:
            return "nobody was asked"
        if not self.decisions:
            return "nobody had decided yet"
        _, last = self.decisions[-1]
        said = {
            "approve": "approved",
            "edit": "edited",
            "reject": "REJECTED",
            "respond": "answered",
        }
        by = "" if last.by is None else f" by {last.by}"
        if last.by_grant is not None:
            by = " by an earlier decision"
        elif last.origin == "expiry":
            by = ", for nobody answered in time"
        return f"{said.get(last.type, last.type)}{by}"

    @property
    def text(self) -> str:
        """The call, for people."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.given.items())
        return f"{'/'.join((*self.path[1:], self.part.tool_name))}({given})"


@dataclass(frozen=True, slots=True)
class Happened:
    """One thing that happened in a run."""

    value: Any
    """The value to compare. It is equal if the same happened."""
    text: str
    """The text for people."""


class Story:
    """The events of a run by its records, as recorded or as in a replay.

    Args:
        agent: the name of its agent.

    """

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self.happened: dict[Key, Happened] = {}
        self.calls: dict[str, CallOfRun] = {}
        self.replies: dict[Key, ModelResponse] = {}
        """The replies, by the id of the run and the number of the turn."""
        self.times: dict[Key, datetime | None] = {}
        """The times at which replies were recorded, by the keys of `happened`."""
        self.once: dict[Key, Any] = {}
        """The results of `run.once` and `run.ask_model`, by run id and key."""
        self.questions: list[tuple[Request, Decision]] = []
        """The questions of middleware, with their answers."""
        self.messages: dict[int, list[UserMessage]] = {}
        """The messages that came during the run, by the number of the turn before which they were
        read."""
        self.ends: dict[str, End] = {}
        """The ends of runs, by run id."""
        self.model_replies: list[tuple[str, ModelResponse]] = []
        """All replies that were paid for, each with the name of its agent."""
        self._requests: dict[str, Request] = {}
        self._turns: dict[str, int] = {}

    def take_over(self, run: RecordedRun) -> None:
        """Take over the calls that a run has from the failed run that it continues."""
        if run.started.continues is None:
            return
        for state in run.before.whole_tree:
            left = None if state.run is None else state.run.left
            for call in left.turn.calls.values() if left is not None and left.turn else ():
                assert state.run is not None, "it is what is left of it"
                path = (self._agent,) if state is run.before else (self._agent, state.run.agent)
                self.calls[call.key] = CallOfRun(
                    call.key, path, call.part, call.arguments, started=call.entered
                )

    def add(self, record: Record, run_id: str) -> None:
        """Add the next record.

        Args:
            record: a record of the outermost agent, or of an inner agent.
            run_id: the id of the outermost run.

        """
        inside, record = agents_inside(record), innermost(record)
        path = (self._agent, *(each.name for each in inside))
        run_id = inside[-1].child if inside else run_id
        if isinstance(record, Reply):
            self._add_reply(record, run_id, path)
        elif isinstance(record, ReplyHeld):
            self.replies[run_id, str(record.turn)] = record.response
        elif isinstance(record, InterruptsChecked):
            for key, made in (record.arguments or {}).items():
                if key in self.calls:
                    self.calls[key].arguments = made
            for index in count():
                judged = self.calls.get(f"{run_id}.{record.turn}.{index}")
                if judged is None:
                    break
                judged.is_judged = True
            for request in record.requests:
                self._add_request(request)
            for decided in record.decided:
                self._add_decision(decided)
        elif isinstance(record, Requested):
            self._add_request(record.request)
        elif isinstance(record, Decided):
            self._add_decision(record)
        elif isinstance(record, Started):
            call = self.calls.get(record.call_key)
            if call is None:  # its run was compacted
                return
            call.started = call.is_judged = True
            if record.arguments is not None:
                call.arguments = record.arguments
            self.happened.setdefault(("runs", call.key), Happened(True, f"{call.text} runs"))
        elif isinstance(record, Result):
            self._add_result(record)
        elif isinstance(record, Once):
            self.once[run_id, record.key] = record.value
        elif isinstance(record, ModelAsked):
            self.once[run_id, asked_key(record.key)] = record.value
            self.model_replies.append((path[-1], record.response))
        elif isinstance(record, UserMessage):
            if len(path) == 1:
                self.messages.setdefault(self._turns.get(run_id, 0), []).append(record)
        elif isinstance(record, RunEnded):
            end = record.end
            self.ends[run_id] = end
            self.happened["end", run_id] = Happened(_end_value(end), _end_text(path, end))

    def _add_reply(self, record: Reply, run_id: str, path: tuple[str, ...]) -> None:
        response = record.response
        self.replies.setdefault((run_id, str(record.turn)), response)
        self.model_replies.append((path[-1], response))
        self._turns[run_id] = record.turn + 1
        self.times["reply", f"{run_id}.{record.turn}"] = record.at
        said: list[Any] = [response.text or ""]
        for index, part in enumerate(response.tool_calls):
            key = f"{run_id}.{record.turn}.{index}"
            self.calls[key] = call = CallOfRun(key, path, part, at=record.at)
            said.append((part.tool_name, digest(call.given)))
        called = ", ".join(part.tool_name for part in response.tool_calls)
        text = f"calls {called}" if called else f"says {_short(response.text or '')}"
        self.happened["reply", f"{run_id}.{record.turn}"] = Happened(said, f"{path[-1]} {text}")

    def _add_request(self, request: Request) -> None:
        self._requests[request.id] = request
        call = self.calls.get(request.call_key)
        if call is None:
            return
        if request.kind != "approval":
            if request.kind in ("interrupt", "doubt") and not request.question_key:
                call.question = request
            return
        call.is_judged = True
        call.asked.add("" if request.approval is None else str(request.approval.text))
        who = ", ".join(sorted(each or "a person" for each in call.asked))
        self.happened["asked", call.key] = Happened(
            sorted(call.asked), f"{who} is asked about {call.text}"
        )

    def _add_decision(self, record: Decided) -> None:
        request = self._requests.get(record.request_id)
        if request is None:
            return
        call = self.calls.get(request.call_key)
        if call is not None and request.kind == "approval":
            call.decisions.append((request, record.decision))
        else:
            self.questions.append((request, record.decision))

    def _add_result(self, record: Result) -> None:
        call = self.calls.get(record.call_key)
        if call is None:
            return
        call.result, call.is_judged = record, True
        part = record.part
        beside = None if record.user_prompt is None else record.user_prompt.content
        seen = (part.content, beside)
        said = digest(to_jsonable_python(seen, bytes_mode="base64", fallback=repr))
        self.happened["result", call.key] = Happened(
            (part.outcome, said), f"{call.text} {_outcome(part.outcome)} {_short(part.content)}"
        )


@dataclass(slots=True)
class RecordedRun:
    """A run of the outermost agent, and the state with which it began."""

    started: RunStarted
    before: AgentState
    story: Story
    ended_at: datetime | None = None
    """The time of its last record."""
    hidden: list[str] = field(default_factory=list)
    """The parts of the run that cannot be replayed, in words."""


def recorded_runs(export: Exported, since: datetime | None) -> Iterator[RecordedRun | str]:
    """The runs of an export in order, and texts about parts that cannot be replayed.

    A run is given when all its records were read. The state with which it began is a copy.

    Args:
        export: the export of an agent.
        since: the time before which runs are left out.

    """
    state = AgentState()
    run: RecordedRun | None = None
    for record in export.records:
        if isinstance(record, Snapshot) and state.run is None and not len(state.messages):
            if since is None or (record.at is not None and record.at > since):
                yield "conversations whose earlier runs were compacted"
        elif isinstance(record, RunStarted):
            if run is not None:
                yield run
            run = None
            if since is None or record.at >= since:
                run = RecordedRun(record, state.copied(), Story(export.agent))
                run.story.take_over(run)
        elif run is not None:
            if record.at is not None:
                run.ended_at = record.at
            run.story.add(record, run.started.run_id)
        apply(state, record)
    if run is not None:
        yield run


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def _outcome(outcome: str) -> str:
    return {"success": "returns", "failed": "fails:", "denied": "is denied:"}.get(
        outcome, f"is {outcome}:"
    )


def _end_value(end: End) -> Any:
    error = None if end.error is None else end.error.get("type") or end.error.get("code")
    signals = [each.get("reason") for each in (end.signals or {}).get("signals", ())]
    return [end.outcome, error, signals, end.early_stopped]


def _end_text(path: Iterable[str], end: End) -> str:
    said: str = end.outcome
    if end.error is not None:
        said += f": {_short(end.error.get('message', ''))}"
    signals = [str(each.get("reason")) for each in (end.signals or {}).get("signals", ())]
    if signals:
        said += f": {', '.join(signals)}"
    return f"the run of {'/'.join(path)} is {said}"
