"""What a call brought, as a record: its value, an error, a denial, a doubt, a question."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ValidationError
from pydantic_ai.messages import ToolReturnPart

from understudy._base.json_values import checked_json
from understudy.errors import UsageError
from understudy.interrupts import Decision, Halt, Interrupt, Request
from understudy.modes.steps.check_stop import halt_request
from understudy.modes.steps.tool_arguments import Ready, prepare, record_request, view
from understudy.run.run import Run
from understudy.state.agent_state import merged
from understudy.state.fold import IN_DOUBT
from understudy.state.records import Result
from understudy.state.run_state import Call
from understudy.stopping import StopSignal
from understudy.tools.result import ToolResult, model_content

__all__ = [
    "EXPIRY",
    "as_edited",
    "denied_result",
    "failed_result",
    "gave_up_result",
    "halting_result",
    "in_doubt",
    "make_part",
    "question",
    "responded_result",
    "result_of",
    "stopped_result",
    "timed_out_result",
]

EXPIRY = "expiry"
"""Who decides about a request that nobody answered in time."""

DOUBT_ANSWERS = (
    "This call was started and never answered. Find out what it did: respond(result) if it took "
    "effect, approve() if it did not and is to run now, reject() if it did not and must not run."
)

PartOutcome = Literal["success", "failed", "denied", "interrupted"]


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


def timed_out_result(run: Run, ready: Ready, *, entered: bool) -> Result | None:
    limit = ready.tool.timeout
    if not entered:
        text = f"{ready.tool.name!r} was not started within its limit of {limit} seconds: no thread"
        return failed_result(run, ready.call, text)
    return in_doubt(run, ready.call, f"it did not answer within its limit of {limit} seconds")


def stopped_result(run: Run, call: Call, signal: StopSignal) -> Result:
    """The tool wants the run to stop: its signal is a part of what it brought (P6)."""
    part = make_part(run, call, f"Stopped the run: {signal}", "interrupted")
    return Result(call_key=call.key, part=part, signal=signal.to_dict())


def gave_up_result(run: Run, ready: Ready) -> Result | None:
    """Something that the tool itself waited for was cancelled, not the tool (J4)."""
    if ready.tool.idempotent:
        return failed_result(run, ready.call, f"{ready.tool.name!r} was cancelled from within.")
    return in_doubt(run, ready.call, "it was cancelled from within")


def question(run: Run, ready: Ready, interrupt: Interrupt) -> Result | None:
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


def halting_result(run: Run, ready: Ready, halt: Halt) -> Result:
    """The tool halts everything (I11)."""
    call = ready.call
    return Result(
        call_key=call.key,
        part=make_part(run, call, f"Halted the run: {halt.message}", "interrupted"),
        halt=halt_request(view(run, ready), halt),
    )


def result_of(run: Run, ready: Ready, returned: Any) -> Result:
    """What the tool returned, as a record (T4, J18)."""
    call, tool = ready.call, ready.tool
    content, value, delta, separate = returned, returned, None, False
    escalate = skip_summarization = False
    if isinstance(returned, ToolResult):
        content, separate = returned.content, returned.has_value
        value = returned.value if separate else content
        delta = returned.state
        escalate, skip_summarization = returned.escalate, returned.skip_summarization
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
        part=make_part(run, call, as_edited(shown, ready.edited), "success"),
        value=stored if value_is == "separate" or ready.edited is not None else None,
        value_is="separate" if ready.edited is not None and value_is == "content" else value_is,
        state=changes,
        escalate=escalate,
        skip_summarization=skip_summarization,
    )


def _plain(content: Any) -> Any:
    try:
        return checked_json({"content": content}, what="ToolResult")["content"]
    except UsageError as error:
        raise ValueError(str(error)) from error


def as_edited(content: Any, edited: dict[str, Any] | None) -> Any:
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
