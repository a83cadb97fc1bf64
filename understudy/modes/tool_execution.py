"""One call, from its arguments to its result."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_ai.messages import ToolReturnPart

from understudy.calls import ToolCall, binding, make_context
from understudy.child_calls import ChildWaits, inner_runs_end
from understudy.errors import JournalFailed, UsageError
from understudy.fold import IN_DOUBT, doubtful
from understudy.hooks import Hook, HookFailed
from understudy.interrupts import DECISION_TYPES, Decision, DoubtfulCall, Interrupt, Request
from understudy.modes.gates import wanted_requests
from understudy.records import Requested, Result, Settled, Started, Suspended
from understudy.run import Halted, Run
from understudy.state import Call, merged
from understudy.tools import InvalidArguments, Retry, Tool, ToolFailed, ToolResult, model_content
from understudy.values import checked_json, digest

__all__ = [
    "Ready",
    "bound",
    "in_doubt",
    "make_part",
    "perform",
    "prepare",
    "start",
]

EXPIRY = "expiry"
"""Who decides about a request that nobody answered in time."""

DOUBT_ANSWERS = (
    "This call was started and never answered. Find out what it did: respond(result) if it took "
    "effect, approve() if it did not and is to run now, reject() if it did not and must not run."
)

PartOutcome = Literal["success", "failed", "denied", "interrupted"]


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that may run, with the arguments that its function takes."""

    call: Call
    tool: Tool[Any]
    checked: dict[str, Any]
    edited: dict[str, Any] | None = None
    """The arguments that a person gave instead of the model's."""


class _Signal(BaseException):
    """What ends a call whatever the middleware around it does with exceptions (J4, I8, I12)."""


class _AskAgain(_Signal):
    """What is about to run is not what was approved, or needs a person now (I12)."""

    def __init__(self, call: ToolCall, requests: Sequence[Request] = ()) -> None:
        super().__init__()
        self.call = call
        self.requests = requests


class _Asks(_Signal):
    """The tool raised `Interrupt` (I8)."""

    def __init__(self, interrupt: Interrupt) -> None:
        super().__init__()
        self.interrupt = interrupt


class _TimedOut(_Signal):
    """The time limit of a tool that is not idempotent passed (T6)."""

    def __init__(self, *, entered: bool) -> None:
        super().__init__()
        self.entered = entered


# -------------------------------------------------------------------- before


def prepare(run: Run, call: Call) -> Ready | str:
    """The call as it would run now, or the error that the model is told (T2)."""
    tool = run.definition.tools.get(call.part.tool_name)
    if tool is None:
        known = ", ".join(run.definition.tools) or "none"
        return f"Unknown tool {call.part.tool_name!r}. Available tools: {known}"
    try:
        asked = next(iter(call.requests.values()), None)
        decided = _edit(call)
        if decided is not None:
            checked = tool.revalidate(decided)
            return Ready(call, tool, checked, edited=tool.canonical(checked))
        if asked is not None:
            return Ready(call, tool, _as_shown(tool, call, asked.arguments))
        return Ready(call, tool, tool.validate(call.part.args))
    except InvalidArguments as error:
        return f"Invalid arguments for {call.part.tool_name!r}:\n{error}"


def _as_shown(tool: Tool[Any], call: Call, shown: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments that a person was shown.

    Where those cannot be read back from what was shown (a validator that converts, a secret), they
    are the model's own; whether they still look as shown is checked before the body.
    """
    try:
        checked = tool.revalidate(shown)
        if digest(tool.canonical(checked)) == digest(shown):
            return checked
    except InvalidArguments:
        pass  # as shown it is no input of the tool: the model's own arguments are
    return tool.validate(call.part.args)


def _edit(call: Call) -> dict[str, Any] | None:
    for decision in reversed(call.decisions.values()):
        if decision.type == "edit":
            return decision.arguments
    return None


def canonical(ready: Ready) -> dict[str, Any]:
    """What would run, as a person is shown it."""
    return ready.tool.canonical(ready.checked)


def view(run: Run, ready: Ready) -> ToolCall:
    """The call as middleware sees it."""
    return ToolCall(
        key=ready.call.key,
        tool=ready.tool,
        tool_call_id=ready.call.part.tool_call_id,
        arguments=canonical(ready),
        context=make_context(run, ready.call),
        run=run,
        call=ready.call,
    )


def bound(run: Run, call: Call, tool: Tool[Any], arguments: dict[str, Any]) -> bool:
    """Whether every answer about this call was given for exactly this (I12)."""
    for request in call.requests.values():
        shown = binding(
            agent_id=run.agent_id,
            run_id=run.run_id,
            call=call,
            fingerprint=tool.fingerprint,
            arguments=request.arguments,
        )
        intact = (
            request.digest == shown
            and request.fingerprint == tool.fingerprint
            and request.agent_id == run.agent_id
            and request.run_id == run.run_id
            and request.call_key == call.key
            and request.tool_name == call.part.tool_name
            and request.tool_call_id == call.part.tool_call_id
        )
        decision = call.decisions.get(request.id)
        wanted = request.arguments
        if decision is not None and decision.arguments is not None:
            try:
                wanted = tool.canonical(tool.revalidate(decision.arguments))
            except InvalidArguments:
                return False
        if not intact or digest(wanted) != digest(arguments):
            return False
    return True


def ask_again(run: Run, call: ToolCall) -> None:
    """Put each answered question about a call anew, showing what would run now (I12)."""
    for request in list(call.call.requests.values()):
        whole = request.expires_at - request.created_at if request.expires_at is not None else None
        fresh = call.request(
            kind=request.kind,
            allowed=request.allowed,
            display=request.display,
            payload=request.payload,
            expires_after=whole.total_seconds() if whole is not None else None,
            doubts=request.doubts,
        )
        record_request(run, fresh, replaces=(request.id,))


def doubts_about(run: Run, call: Call) -> tuple[DoubtfulCall, ...]:
    """Calls of the same tool whose outcome nobody knows, settled by no one so far (J4)."""
    name = call.part.tool_name
    root = run
    while root.parent is not None:
        root = root.parent
    doubts = {
        key: doubt
        for state in root.state.tree
        for key, doubt in state.doubts.items()
        if doubt.tool_name == name
    }
    turn = run.current.turn
    for other in turn.calls.values() if turn is not None else ():
        for request in other.standing:
            if request.kind == "doubt" and other.part.tool_name == name and other is not call:
                doubts[other.key] = doubtful(other, request.payload["reason"])
    doubts.pop(call.key, None)
    return tuple(doubts.values())


def doubted(run: Run, ready: Ready) -> bool:
    """Whether a doubt stands that nobody who decided about this call has seen; then ask (J4)."""
    turn = run.current.turn
    alone = run.parent is None and not run.state.children
    if alone and not run.state.doubts and (turn is None or not turn.standing):
        return False
    doubts = doubts_about(run, ready.call)
    approvals = [r for r in ready.call.requests.values() if r.kind == "approval"]
    seen = {doubt.call_key for request in approvals for doubt in request.doubts}
    if all(doubt.call_key in seen for doubt in doubts):
        return False
    first = approvals[0] if approvals else None
    request = view(run, ready).request(
        allowed=first.allowed if first is not None else DECISION_TYPES,
        display=first.display if first is not None else None,
        doubts=doubts,
    )
    record_request(run, request, replaces=tuple(r.id for r in approvals))
    return True


def record_request(run: Run, request: Request, replaces: tuple[str, ...] = ()) -> None:
    """Ask a person."""
    run.record(Requested(request=request, replaces=replaces))


# ------------------------------------------------------------------- running


def start(run: Run, ready: Ready) -> None:
    """Record that the call is about to run (J3)."""
    call = ready.call
    run.record(
        Started(
            call_key=call.key,
            tool_name=ready.tool.name,
            tool_call_id=call.part.tool_call_id,
            attempt=call.attempts + 1,
            idempotent=ready.tool.idempotent,
        )
    )


async def perform(run: Run, ready: Ready) -> None:
    """Run the call through the middleware and record what it brought."""
    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task is not None else 0

    def cancelled() -> bool:
        return task is not None and task.cancelling() > cancelled_before

    try:
        result = await _performed(run, ready, cancelled)
    except asyncio.CancelledError:
        if cancelled():
            raise  # from outside: it writes nothing (J13)
        result = _gave_up(run, ready)
    except (ChildWaits, Halted):
        await inner_runs_end(run, ready.call)
        run.record(Suspended(call_key=ready.call.key))
        return
    except BaseExceptionGroup as group:
        if group.split(ChildWaits)[1] is not None:
            raise
        run.record(Suspended(call_key=ready.call.key))
        return
    if result is not None:
        run.record(result)
    if cancelled():
        raise asyncio.CancelledError  # the tool swallowed it: what it brought is kept


async def _performed(run: Run, ready: Ready, cancelled: Callable[[], bool]) -> Result | None:
    call = ready.call
    try:
        if run.definition.hooks.wrap_tool_call:
            returned = await _wrapped(run, ready)
        else:
            returned = await _body(run, ready)
        return _result_of(run, ready, returned)
    except _Asks as asks:
        return _question(run, ready, asks.interrupt)
    except _AskAgain as changed:
        for request in changed.requests:
            record_request(run, request)
        if not changed.requests:
            ask_again(run, changed.call)
        return None
    except _TimedOut as timed_out:
        return _timed_out(run, ready, entered=timed_out.entered)
    except (HookFailed, JournalFailed):
        raise
    except Exception as error:
        if cancelled() and not ready.tool.idempotent:
            raise asyncio.CancelledError from error  # it broke in the middle: in doubt (J4)
        return failed_result(run, call, _as_edited(_said(error), ready.edited))


def _said(error: Exception) -> str:
    """What the model is told of an exception (T2)."""
    error = _sole(error)
    if isinstance(error, ToolFailed):
        return str(error)
    if isinstance(error, Retry):
        return str(error) or "Try again."
    return f"{type(error).__name__}: {error}"


def _sole(error: Exception) -> Exception:
    """The one exception in a group of one, as task groups raise."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _wrapped(run: Run, ready: Ready) -> Any:
    """The call inside all `wrap_tool_call` hooks; what they raise themselves is their failure."""
    raised: list[Exception] = []
    signals: list[_Signal] = []
    entered = False

    async def innermost(call: ToolCall) -> Any:
        nonlocal entered
        if signals:
            raise signals[0]  # it is over, whatever the hook would like to try
        if entered and not ready.tool.idempotent:
            raise UsageError(f"next was called twice for {ready.tool.name!r}: it is not idempotent")
        if entered:
            start(run, ready)
            await run.durable()
        entered = True
        try:
            return await _body(run, await _changed(run, ready, shown, call))
        except _Signal as signal:
            signals.append(signal)
            raise
        except Exception as error:
            raised.append(error)
            raise

    shown = view(run, ready)
    chain: Callable[[ToolCall], Any] = innermost
    for hook in reversed(run.definition.hooks.wrap_tool_call):
        chain = _link(run, hook, chain, raised)
    try:
        returned = await chain(shown)
    except HookFailed:
        if not entered:  # nothing ran, and nobody need doubt it
            told = "Not run: a middleware failed before it was started."
            run.record(
                Result(
                    call_key=ready.call.key, part=make_part(run, ready.call, told, "interrupted")
                )
            )
        raise
    if signals:
        raise signals[0]
    return returned


async def _changed(run: Run, ready: Ready, shown: ToolCall, call: ToolCall) -> Ready:
    """The call as the middleware hands it on; other arguments may need a person (I12)."""
    if digest(call.arguments) == digest(shown.arguments):
        return ready
    checked = ready.tool.revalidate(call.arguments)
    changed = Ready(ready.call, ready.tool, checked)
    if not ready.call.requests:
        anew = view(run, changed)
        requests = await wanted_requests(run, [anew])
        if requests:
            raise _AskAgain(anew, requests)
    return changed


def _link(
    run: Run, hook: Hook, inner: Callable[[ToolCall], Any], raised: list[Exception]
) -> Callable[[ToolCall], Any]:
    async def link(call: ToolCall) -> Any:
        try:
            return await hook.function(run, call, inner)
        except (HookFailed, JournalFailed):
            raise
        except Exception as error:
            if any(error is known for known in raised):
                raise  # the tool's own, passing through
            raise HookFailed(hook.failure(error)) from error

    return link


async def _body(run: Run, ready: Ready) -> Any:
    """The tool itself. The last check that this is what was approved stands right before it."""
    tool, call = ready.tool, ready.call
    if call.requests and not bound(run, call, tool, canonical(ready)):
        raise _AskAgain(view(run, ready))
    positional, keywords = tool.bind(ready.checked)
    if tool.takes_context:
        positional.insert(0, make_context(run, call))
    entered: list[bool] = []
    try:
        if tool.timeout is None:
            return await _enter(run, ready, positional, keywords, entered)
        async with asyncio.timeout(tool.timeout) as scope:
            return await _enter(run, ready, positional, keywords, entered)
    except Exception as error:
        if tool.timeout is not None and scope.expired():
            if tool.idempotent:
                raise TimeoutError(_over_time(tool)) from None
            raise _TimedOut(entered=bool(entered)) from error
        sole = _sole(error)
        if isinstance(sole, Interrupt):
            raise _Asks(sole) from error
        raise


def _over_time(tool: Tool[Any]) -> str:
    return f"{tool.name!r} did not answer within its limit of {tool.timeout} seconds."


async def _enter(
    run: Run,
    ready: Ready,
    positional: list[Any],
    keywords: dict[str, Any],
    entered: list[bool],
) -> Any:
    tool = ready.tool
    if tool.is_async:
        entered.append(True)
        return await tool.function(*positional, **keywords)
    if tool.inline:
        entered.append(True)
        returned = tool.function(*positional, **keywords)
    else:

        def late(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None and not run.closed:
                _settle_late(run, ready, done.result())

        def in_thread() -> Any:
            entered.append(True)
            return tool.function(*positional, **keywords)

        returned = await run.threads.run(in_thread, on_late=late)
    # A plain function may wrap an async one.
    return await returned if inspect.isawaitable(returned) else returned


def _settle_late(run: Run, ready: Ready, returned: Any) -> None:
    """An abandoned call came back after all: what it did is known, so its doubt is gone (J4)."""
    call = ready.call
    if call.key in run.state.doubts:
        run.record(Settled(call_key=call.key, how="late result"))
    elif call.result is None and any(request.kind == "doubt" for request in call.standing):
        run.record(_result_of(run, ready, returned))


# ------------------------------------------------------------------- results


def make_part(run: Run, call: Call, content: Any, outcome: PartOutcome) -> ToolReturnPart:
    return ToolReturnPart(
        tool_name=call.part.tool_name,
        content=content,
        tool_call_id=call.part.tool_call_id,
        timestamp=run.clock.now(),
        outcome=outcome,
    )


def failed_result(run: Run, call: Call, told: Any) -> Result:
    """An error for the model to mend or to live with (T2)."""
    return Result(call_key=call.key, part=make_part(run, call, told, "failed"))


def denied_result(run: Run, call: Call, request: Request, decision: Decision) -> Result:
    """A person said no, or nobody answered in time (I6, I14)."""
    if decision.by == EXPIRY:
        said = "nobody answered in time whether this call may run."
    elif request.kind == "doubt":
        said = "a person found that this call took no effect, and decided that it must not run."
    else:
        said = "a person decided that this call must not run."
    if decision.message:
        said += f" They say: {decision.message!r}"
    text = f"Denied: {said}\nDo not try the same call again."
    return Result(call_key=call.key, part=make_part(run, call, text, "denied"))


def responded_result(run: Run, call: Call, decision: Decision) -> Result:
    """A person gave the result instead of the tool (I6)."""
    part = make_part(run, call, decision.value, "success")
    return Result(call_key=call.key, part=part, value_is="given")


def in_doubt(run: Run, call: Call, reason: str) -> Result | None:
    """A started call whose outcome nobody knows: a person settles it, or the model is told (J4)."""
    ready = prepare(run, call)
    if isinstance(ready, Ready):
        gated = bool(call.requests)
        choice = ready.tool.on_unknown or ("ask" if gated else "tell")
        if choice == "ask":
            request = view(run, ready).request(
                kind="doubt",
                allowed=("respond", "approve", "reject"),
                display=DOUBT_ANSWERS,
                payload={"reason": reason, "started": call.attempts},
            )
            record_request(run, request)
            return None
    part = make_part(run, call, IN_DOUBT.format(reason=reason), "interrupted")
    return Result(call_key=call.key, part=part, doubt=reason)


def _timed_out(run: Run, ready: Ready, *, entered: bool) -> Result | None:
    limit = ready.tool.timeout
    if not entered:
        text = f"{ready.tool.name!r} was not started within its limit of {limit} seconds: no thread"
        return failed_result(run, ready.call, text)
    return in_doubt(run, ready.call, f"it did not answer within its limit of {limit} seconds")


def _gave_up(run: Run, ready: Ready) -> Result | None:
    """Something that the tool itself waited for was cancelled, not the tool (J4)."""
    if ready.tool.idempotent:
        return failed_result(run, ready.call, f"{ready.tool.name!r} was cancelled from within.")
    return in_doubt(run, ready.call, "it was cancelled from within")


def _question(run: Run, ready: Ready, interrupt: Interrupt) -> Result | None:
    """The tool asks a question of its own; an earlier answer of its is used up (I8)."""
    anew = prepare(run, ready.call)  # the tool may have changed the arguments that it got
    try:
        request = view(run, anew if isinstance(anew, Ready) else ready).request(
            kind="interrupt", allowed=interrupt.allowed, payload=interrupt.payload
        )
    except UsageError as error:
        return failed_result(run, ready.call, f"UsageError: {error}")
    earlier = tuple(r.id for r in ready.call.requests.values() if r.kind == "interrupt")
    record_request(run, request, replaces=earlier)
    return None


def _result_of(run: Run, ready: Ready, returned: Any) -> Result:
    """What the tool returned, as a record (T4, J18)."""
    call, tool = ready.call, ready.tool
    content, value, delta, separate = returned, returned, None, False
    if isinstance(returned, ToolResult):
        content, separate = returned.content, returned.has_value
        value = returned.value if separate else content
        delta = returned.state
    until = run.current.until_tool
    target = until is not None and tool.name in until
    value_is: Literal["content", "separate", "lost"] = "content"
    try:
        stored = tool.dump_value(value)
        told = stored if not separate else _plain(content)
    except ValueError as error:
        if target:
            text = f"{tool.name!r} ran, but its return value cannot be serialised: {error}"
            return failed_result(run, call, text)
        stored, told, value_is = None, str(content), "lost"
    shown = model_content(content, told)
    if value_is != "lost" and (separate or shown is not told):
        value_is = "content" if stored == shown else "separate"
    try:
        changes = _checked_delta(run, delta) if delta is not None else None
    except UsageError as error:
        return failed_result(run, call, f"{tool.name!r} ran, but {error}")
    if target:
        run.live_values[call.key] = value
    return Result(
        call_key=call.key,
        part=make_part(run, call, _as_edited(shown, ready.edited), "success"),
        value=stored if value_is == "separate" or ready.edited is not None else None,
        value_is="separate" if ready.edited is not None and value_is == "content" else value_is,
        state=changes,
    )


def _plain(content: Any) -> Any:
    try:
        return checked_json({"content": content}, what="ToolResult")["content"]
    except UsageError as error:
        raise ValueError(str(error)) from error


def _as_edited(content: Any, edited: dict[str, Any] | None) -> Any:
    """History keeps the model's call, so the result says what was run instead (I6)."""
    if edited is None:
        return content
    return {"run_with_arguments_changed_by_a_person": edited, "result": content}


def _checked_delta(run: Run, delta: Any) -> dict[str, Any]:
    """A state delta that can be stored and that fits the typed values of the middleware."""
    changes = checked_json(delta, what="ToolResult(state=...)")
    for owner, schema in run.definition.schemas.items():
        touched = [key for key in schema.model_fields if key in changes]
        if touched:
            after = merged(run.state.values, changes)
            known = {key: after[key] for key in schema.model_fields if key in after}
            try:
                schema.model_validate(known)
            except ValidationError as error:
                raise UsageError(
                    f"its state delta does not fit the values of {owner}: {error}"
                ) from error
    return changes
