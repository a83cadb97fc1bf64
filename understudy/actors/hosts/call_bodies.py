"""Calls of an agent as JSON, and their replies: what goes from one host to another one."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pydantic_core import from_json, to_json

from understudy._base.json_values import checked_json, shown
from understudy.actors.agent.messages import (
    AgentMessage,
    AnswerWait,
    Cancel,
    CancelMessage,
    ChangeFiles,
    ChangePlans,
    Compact,
    Decide,
    Delete,
    Notify,
    Passivate,
    Pause,
    RecordFact,
    Resume,
    Retry,
    RunRequest,
    Send,
    Unpause,
    WaitOutcome,
)
from understudy.actors.agent.planner import PlanChange
from understudy.actors.agent.run_outcomes import Moment, moment_of
from understudy.errors import DecisionError, RecordRefused, UsageError
from understudy.interrupts import Decision, decision_from_outside
from understudy.journal.codec import MAX_RECORD_BYTES, EncodedRecord, decode, encode
from understudy.loop_actors.future import Future
from understudy.outcomes import Outcome
from understudy.run.waits.answers import Answer
from understudy.state.files import FileChange
from understudy.state.plans import Occurrence, RunChoices, Schedule
from understudy.state.records import (
    FilesChanged,
    MessageQueued,
    Occurred,
    Record,
    Revoked,
    ScheduleSet,
    Settled,
)
from understudy.stopping import StopSignal

Data = dict[str, Any]

ONCE_AT_MOST = frozenset({"notify"})
"""Calls that nothing tells from a second one: if their host goes away while it does them, nobody
knows what came of them."""
OF_A_RUN = frozenset({"run", "resume", "cancel", "retry"})
"""Calls that are answered by an outcome. Its run goes on when the call is done."""


def body_of(
    message: AgentMessage, *, owner: str, expects: str | None, has_deps: bool = False
) -> tuple[str, bytes]:
    """The kind and the body of a call.

    Args:
        message: the call.
        owner: the host that it goes to, for errors.
        expects: the definition that the agent must have for it; None: whichever it has.
        has_deps: whether the agent was spawned with deps where this is asked for.

    Raises:
        RecordRefused: if it is too large, or cannot be stored.
        UsageError: if something in it cannot go to another host.

    """
    kind, data = _body(message, owner)
    begins = isinstance(message, RunRequest) or (isinstance(message, Send) and not message.steer)
    needs_deps = has_deps and begins
    body = to_json({"expects": expects, **data, **({"needs_deps": True} if needs_deps else {})})
    if len(body) > MAX_RECORD_BYTES:
        why = f"it has {len(body):,} bytes; at most {MAX_RECORD_BYTES:,} are kept"
        raise RecordRefused(kind=kind, why=why)
    return kind, body


def _body(message: AgentMessage, owner: str) -> tuple[str, Data]:
    match message:
        case RunRequest():
            queued = MessageQueued(
                message_id=message.message_id,
                message=message.message,
                context={**message.context},
                choices=message.choices,
            )
            return "run", {
                "record": _record(queued),
                "refuse_if_interrupted": message.refuse_if_interrupted,
            }
        case Send():
            queued = MessageQueued(
                message_id=message.message_id,
                message=message.message,
                steer=message.steer,
                self_sent=message.self_sent,
                due=message.due,
                context={**message.context},
            )
            return "send", {"record": _record(queued)}
        case CancelMessage(message_id=message_id):
            return "cancel_message", {"message_id": message_id}
        case ChangePlans(change=change):
            wanted = None if change.wanted is None else _schedule(change.wanted)
            return "plans", {
                "action": change.action,
                "id": change.id,
                "wanted": wanted,
                "at": None if change.at is None else change.at.isoformat(),
                "message_id": change.message_id,
            }
        case Resume() | Decide():
            return "resume" if isinstance(message, Resume) else "decide", {
                "decisions": _decisions(message.decisions),
                "expect": message.expect,
                **({"context": {**message.context}} if message.context else {}),
            }
        case Cancel(signal=signal, run_id=run_id, message_id=message_id):
            named = {"run_id": run_id, "message_id": message_id}
            return "cancel", {"signal": signal.to_dict(), **named}
        case Pause(reason=reason, run_id=run_id):
            return "pause", {"reason": reason, "run_id": run_id}
        case Unpause(run_id=run_id):
            return "unpause", {"run_id": run_id}
        case Retry(run_id=run_id):
            return "retry", {"run_id": run_id}
        case Notify(middleware=middleware, message=given):
            what = f"notify({middleware!r}, ...): the agent runs at {owner!r}, so its message"
            return "notify", {
                "middleware": middleware,
                "message": checked_json({"message": given}, what=what)["message"],
            }
        case WaitOutcome(message_id=message_id):
            return "outcome", {"message_id": message_id}
        case Passivate():
            return "stop", {}
        case Compact():
            return "compact", {}
        case Delete(signal=signal):
            return "delete", {"signal": signal.to_dict()}
        case RecordFact(fact=fact):
            return "record", {"record": _record(fact)}
        case ChangeFiles(fact=fact, blobs=blobs, expected=expected):
            changes = tuple(FileChange(path=path, file=file) for path, file in expected.items())
            return "files", {
                "record": _record(fact),
                "expected": _record(FilesChanged(files=changes)),
                "blobs": {hash: b64encode(kept).decode() for hash, kept in blobs.items()},
            }
        case AnswerWait(token_hash=token_hash, answer=answer):
            given = {"how": answer.how, "value": answer.value, "reason": answer.reason}
            return "answer", {"token_hash": token_hash, "answer": given}
        case _:
            raise AssertionError(f"{type(message)} is never posted")


def message_of(
    kind: str, body: bytes, future: Future[Any], on_run: Callable[[str], None]
) -> tuple[str | None, bool, AgentMessage]:
    """What the agent must be for it, whether it needs deps, and the call that a body was made of.

    Raises:
        UsageError: if a later version of this library has posted it.

    """
    data = from_json(body)
    needs_deps = bool(data.get("needs_deps"))
    return data["expects"], needs_deps, _message(kind, data, future, on_run)


def _message(
    kind: str, data: Data, future: Future[Any], on_run: Callable[[str], None]
) -> AgentMessage:
    match kind:
        case "run":
            queued = _queued(data)
            return RunRequest(
                message=queued.message,
                choices=queued.choices or RunChoices(),
                future=future,
                message_id=queued.message_id,
                refuse_if_interrupted=data["refuse_if_interrupted"],
                on_run=on_run,
                context=queued.context,
                was_elsewhere=True,
            )
        case "send":
            queued = _queued(data)
            what = queued.message, queued.message_id, queued.steer, queued.self_sent
            return Send(*what, future, queued.due, queued.context, was_elsewhere=True)
        case "cancel_message":
            return CancelMessage(data["message_id"], future)
        case "plans":
            record = _decoded(data["wanted"])
            wanted = record.schedule if isinstance(record, ScheduleSet) else None
            at = None if data["at"] is None else datetime.fromisoformat(data["at"])
            change = PlanChange(data["action"], data["id"], wanted, at, data["message_id"])
            return ChangePlans(change, future)
        case "resume":
            return Resume(data["decisions"], future, data["expect"], data.get("context", {}))
        case "decide":
            return Decide(data["decisions"], data["expect"], future, data.get("context", {}))
        case "cancel":
            signal = StopSignal.from_dict(data["signal"])
            return Cancel(signal, future, data["run_id"], on_run, data.get("message_id"))
        case "pause":
            return Pause(data["reason"], future, data["run_id"], on_run)
        case "unpause":
            return Unpause(future, data["run_id"], on_run)
        case "retry":
            return Retry(future, data["run_id"], on_retried=lambda _, run_id: on_run(run_id))
        case "notify":
            return Notify(data["middleware"], data["message"], future)
        case "outcome":
            return WaitOutcome(future, data["message_id"])
        case "stop":
            return Passivate(future)
        case "compact":
            return Compact(future)
        case "delete":
            return Delete(StopSignal.from_dict(data["signal"]), future)
        case "record":
            fact = _decoded(data["record"])
            assert isinstance(fact, Revoked | Settled), "as `_body` has it"
            return RecordFact(fact, future)
        case "files":
            fact, before = _decoded(data["record"]), _decoded(data["expected"])
            assert isinstance(fact, FilesChanged), "as `_body` has it"
            assert isinstance(before, FilesChanged), "as `_body` has it"
            blobs = {hash: b64decode(kept) for hash, kept in data["blobs"].items()}
            expected = {change.path: change.file for change in before.files}
            return ChangeFiles(fact, blobs, expected, future)
        case "answer":
            return AnswerWait(data["token_hash"], Answer(**data["answer"]), future)
    raise UsageError(f"a call {kind!r} is not known to the version of this library that is there")


def reply_value(value: object) -> Data:
    """What a call has brought, as a part of its reply."""
    match value:
        case Schedule():
            return {"record": _schedule(value)}
        case Occurrence():
            occurred = Occurred(occurrence=value, at=value.due)
            return {"record": _record(occurred)}
        case _ if isinstance(value, Outcome):
            # It was there already, and its run may be another step further when it is read
            # (test_a_run_of_a_quarantined_agent_has_failed_though_it_is_cancelled_right_behind).
            moment = moment_of(value.state)
            return {"run": value.run_id, **({} if moment.is_over else {"moment": [*moment]})}
    return {"value": value}


def value_of_reply(data: Mapping[str, Any]) -> Any:
    """What a reply without a run says that the call has brought."""
    match _decoded(data.get("record")):
        case ScheduleSet(schedule=schedule):
            return schedule
        case Occurred(occurrence=occurrence):
            return occurrence
    return data.get("value")


def moment_of_reply(data: Mapping[str, Any]) -> Moment | None:
    """Of which moment the outcome is that a reply tells; None: of whichever comes first."""
    if data.get("moment") is None:
        return None
    run_id, is_over, requests, why, model_calls, status = data["moment"]
    return Moment(run_id, is_over, tuple(requests), why, model_calls, status)


def _record(record: Record) -> Data:
    kept = encode(record)
    return {"kind": kept.kind, "version": kept.version, "payload": kept.payload.decode()}


def _decoded(data: Data | None) -> Record | None:
    if data is None:
        return None
    return decode(EncodedRecord(data["kind"], data["version"], data["payload"].encode()))


def _schedule(schedule: Schedule) -> Data:
    return _record(ScheduleSet(schedule=schedule, at=schedule.created_at))


def _queued(data: Data) -> MessageQueued:
    queued = _decoded(data["record"])
    assert isinstance(queued, MessageQueued), "as `_body` has it"
    return queued


def _decisions(decisions: object) -> Data:
    if not isinstance(decisions, Mapping):
        raise DecisionError(
            f"resume takes a mapping of request ids to decisions, got {shown(decisions)}: "
            "interrupted.decide(approve(), ...) makes one from decisions in request order"
        )
    return {str(id): _decision(id, decision) for id, decision in decisions.items()}


def _decision(request_id: object, decision: object) -> Any:
    what = f"resume(...): the decision about {shown(request_id)}"
    try:
        if isinstance(decision, Decision):
            checked_json({"arguments": decision.arguments, "value": decision.value}, what=what)
            return decision.to_dict()
        given = checked_json({"decision": decision}, what=what)["decision"]
        if isinstance(given, dict):
            decision_from_outside(given)
        return given
    except DecisionError as error:
        raise DecisionError(f"{what}: {error.message}", request_id=str(request_id)) from error
    except UsageError as error:
        raise DecisionError(error.message, request_id=str(request_id)) from error
