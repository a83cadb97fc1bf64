"""What a middleware asks of its run by an exception: a question to a person, or to wait.

Each becomes facts about a tool call, or about the model call of the next turn. The hook is called
again when the question is answered or the time has come, in whichever process that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RunUsage

from understudy._base.json_values import checked_json, digest
from understudy.errors import MiddlewareError, RecordRefused, UsageError
from understudy.interrupts import Defer, Interrupt, Request
from understudy.outcomes import Outcome
from understudy.run.hooks import HookFailed
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.state.costs import Lines
from understudy.state.records import PointReached, ReplyHeld, Requested
from understudy.state.run_state import Call
from understudy.stopping import StopAgent, StopSignals


def at_rest(run: Run) -> Outcome | None:
    """The outcome of a run whose model call waits for a person, or is put off; else None."""
    waited = run.current.model_call
    if waited is None:
        return None
    if waited.call.pending_requests:
        return run.interrupted()
    return run.waiting() if waited.call.waits_at else None


def ask_before_turn(run: Run, failed: HookFailed, held: ModelResponse | None) -> Outcome:
    """Record the questions that a `before_model` or `after_model` raised; the run rests at them.

    A hook that raised `StopAgent` stops the run.

    Args:
        run: the run of the hook.
        failed: the failure; its cause is the `Interrupt`, or a group of interrupts.
        held: the reply, as it came, that `after_model` asks about for the first time.

    Raises:
        HookFailed: if it asks nothing, or cannot.

    """
    if failed.error.hook not in ("before_model", "after_model"):
        raise failed
    current = run.current
    if isinstance(failed.__cause__, StopAgent):
        if held is not None:  # it is dropped with the run; what it cost is counted
            run.record(ReplyHeld(turn=current.turns, response=held))
        return run.stopped(StopSignals((failed.__cause__.signal,)))
    interrupts = interrupts_in(failed.__cause__)
    if not interrupts:
        raise failed
    waited = current.model_call
    try:
        if failed.error.hook == "after_model" and run.definition.hooks.streams_safely:
            raise UsageError(
                "a middleware that asks in after_model must not say stream_safe=True: the text "
                "that it asks about would be out already"
            )
        asked = {} if waited is None else waited.call.requests
        records = [
            _requested(run, _about_model_call(run, each, failed.error.middleware), asked)
            for each in interrupts
        ]
        run.record(*([] if held is None else [ReplyHeld(turn=current.turns, response=held)]))
        run.record(*records)
    except (UsageError, RecordRefused) as error:
        raise _cannot(failed.error, error) from error
    return run.interrupted()


def ask_about_call(
    run: Run, call: ToolCall, interrupts: list[Interrupt], error: MiddlewareError
) -> None:
    """Record the questions that a `wrap_tool_call` raised before it called `next`.

    Raises:
        HookFailed: if it cannot ask them.

    """
    try:
        records = []
        for each in interrupts:
            request = call.request(
                kind="interrupt",
                allowed=each.allowed,
                title=each.title or None,
                payload=each.payload,
                schema=each.schema,
                question_key=_key(run, each, error.middleware),
                timing=each.timing,
                source=error.middleware,
            )
            asked = _requested(run, request, call.call.requests)
            records.append(replace(asked, not_entered=True))
        run.record(*records)
    except (UsageError, RecordRefused) as cause:
        raise _cannot(error, cause) from cause


def put_off(
    run: Run, middleware: str, defer: Defer, used: RunUsage | None, costs: Lines
) -> Outcome:
    """Record until when the model call is put off; the run waits until then.

    Raises:
        RecordRefused: if the reason is too large to be kept.

    """
    current = run.current
    now = run.clock.now()
    waited = current.model_call
    number = 1 if waited is None else waited.call.attempts + 1
    run.record(
        PointReached(
            call_key=current.model_call_key,
            name=defer.key or f"{middleware}/{number}",
            what="sleep",
            at=now,
            due=defer.due(now),
            reason=defer.reason,
            used=used,
            costs=costs,
        )
    )
    return run.waiting()


def interrupts_in(error: BaseException | None) -> list[Interrupt]:
    """The questions in what a hook raised: one, or a group of nothing else."""
    if isinstance(error, Interrupt):
        return [error]
    found = list(_leaves(error)) if isinstance(error, ExceptionGroup) else []
    questions = [each for each in found if isinstance(each, Interrupt)]
    return questions if len(questions) == len(found) else []


def _leaves(group: ExceptionGroup[Any]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, ExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _about_model_call(run: Run, interrupt: Interrupt, middleware: str) -> Request:
    return about_model_call(run, interrupt, _key(run, interrupt, middleware), middleware)


def about_model_call(run: Run, interrupt: Interrupt, key: str, source: str) -> Request:
    """A request to a person about the model call of the next turn.

    Args:
        run: the run that is about to ask its model.
        interrupt: the question.
        key: the key under which the answer is kept.
        source: the name of what asks.

    """
    call_key = run.current.model_call_key
    payload = checked_json({"payload": interrupt.payload}, what="Interrupt(...)", is_shown=True)
    now = run.clock.now()
    salt = run.new_id()
    about = [run.agent_id, run.run_id, call_key, key]
    bound = [*about, salt, payload, interrupt.schema, interrupt.allowed]
    if interrupt.title:
        bound.append({"title": interrupt.title})
    return Request(
        id=run.new_id(),
        kind="interrupt",
        agent_id=run.agent_id,
        run_id=run.run_id,
        agent_path=run.agent_path,
        call_key=call_key,
        tool_call_id="",
        tool_name="",
        arguments={},
        title_format=interrupt.title,
        payload=payload["payload"],
        allowed=interrupt.allowed,
        created_at=now,
        **interrupt.timing.times_from(now),
        fingerprint="",
        digest=digest(bound),
        source=source,
        schema=interrupt.schema,
        question_key=key,
        salt=salt,
    )


def _requested(run: Run, request: Request, asked: dict[str, Request]) -> Requested:
    """The record of a question, in the place of one that was asked by its key before."""
    asked_as = (request.source, request.question_key)
    same = tuple(id for id, each in asked.items() if (each.source, each.question_key) == asked_as)
    return Requested(request=request, replaces=same)


def _key(run: Run, interrupt: Interrupt, middleware: str) -> str:
    key = interrupt.key
    if key is None:
        raise UsageError(
            "the question of a middleware needs a key: raise Interrupt(payload, key='...'), and "
            "read the answer by run.answer('...')"
        )
    run.check_asker(middleware)
    return key


def _cannot(error: MiddlewareError, cause: Exception) -> HookFailed:
    failure = MiddlewareError(
        middleware=error.middleware, hook=error.hook, cause=f"{type(cause).__name__}: {cause}"
    )
    failure.__cause__ = cause
    return HookFailed(failure)


def is_own(call: Call) -> bool:
    """Whether only middleware asks about the call, and no gate."""
    return all(request.question_key for request in call.requests.values())
