"""The result of a call as a record: a value, an error, a denial, a doubt; or a question asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_ai.messages import ToolReturn, ToolReturnPart, UserPromptPart

from understudy._base.json_values import (
    SCALARS,
    as_json,
    checked_flag,
    checked_json,
    storable_text,
    text_of,
)
from understudy._base.request_timing import CHECK
from understudy.approvals import Approval, stricter
from understudy.errors import RecordRefused, UsageError
from understudy.events import ToolOutcome
from understudy.interrupts import Decision, Halt, Interrupt, Request
from understudy.models.messages import as_read_back
from understudy.modes.steps.check_stop import halt_request
from understudy.modes.steps.tool_call.arguments import (
    ReadyCall,
    as_tool_call,
    is_gated,
    prepare,
    record_request,
)
from understudy.modes.steps.tool_call.checks import wait_for_check
from understudy.modes.steps.tool_call.earlier_calls import EDITED
from understudy.outcomes import Completed, Failed, Stopped, ToolCallResult
from understudy.run.child_calls import result_of_agent
from understudy.run.file_edits import FileEdits
from understudy.run.run import Run
from understudy.state.agent_state import merged
from understudy.state.folds.ends import (
    IN_DOUBT,
    UNKNOWN_BEFORE,
    approval_of,
    in_part,
    known,
    with_done,
)
from understudy.state.records import Result
from understudy.state.run_state import BACKGROUND, Call
from understudy.stopping import StopSignal
from understudy.tools import DidNotHappen, Tool, ToolFailed, Unknown
from understudy.tools.checks import Found
from understudy.tools.result import ToolResult, content_holds_files, model_content

DOUBT_ANSWERS = (
    "This call was started, and nobody knows what it did. Find out: respond with its result if it "
    "took effect, approve if it did not and is to run now, reject if it did not and must not run."
)

DOUBT_ANSWERS_OF_VOTED = (
    "This call was started, and nobody knows what it did. Find out: respond with its result if it "
    "took effect, reject if it did not. Then the model may make the call again, and "
    "{who} must agree anew."
)
NOT_DONE = (
    "Not done: the outcome of this call was unknown, and a person found that it took no effect."
    "{said}\nIf it is still wanted, make the call again: persons are asked anew."
)
"""The result of a call in doubt that took no effect and cannot run by itself any more."""

NO_EFFECT = "The outcome of this call was unknown. A check has found that it did not take effect."
LIMIT_PASSED = "limit_passed/"
"""The prefix of a run's key for a call that continued after its time limit; the call key
follows."""
LIMIT_REASON = "it did not answer within its limit of {limit} seconds"


def make_part(
    run: Run, call: Call, content: Any, outcome: ToolOutcome, *, metadata: Any = None
) -> ToolReturnPart:
    return ToolReturnPart(
        tool_name=call.part.tool_name,
        content=content if isinstance(content, str) else as_read_back(content),
        tool_call_id=call.part.tool_call_id,
        metadata=metadata,
        timestamp=run.clock.now(),
        outcome=outcome,
    )


def failed_result(run: Run, call: Call, content: Any) -> Result:
    """An error, which the model sees."""
    if isinstance(content, str):  # of an exception, such as one that names an undecodable file
        content = storable_text(content)
    return Result(call_key=call.key, part=make_part(run, call, content, "failed"))


def closes_turn(run: Run, call: Call, result: Result) -> bool:
    """Whether the turn ends with this result, and the model is asked next.

    Only where no step, hook or signal has a say in that. The steps that decide it otherwise are
    `check_until_tool` and `continue_or_finish`.
    """
    current, definition = run.current, run.definition
    turn = current.turn
    if turn is None or not definition.has_plain_turns or turn.cut or turn.propagated:
        return False
    if current.signals or current.overrides or current.early_stop is not None:
        return False
    if current.cancelled is not None or run.root.current.halt is not None:
        return False
    if result.signal is not None or result.halt is not None or run.tool_raised is not None:
        return False
    outputs = definition.output_tools
    # The last ones first: where many run at once, these have no result yet.
    for each in reversed(turn.calls.values()):
        found = result if each is call else each.result
        if found is None or found.skip_summarization:
            return False
        if current.until_tool is not None and run.is_until_tool(each.part.tool_name):
            return False
        if outputs and any(each.part.tool_name == tool.name for tool in outputs):
            return False
    return True


def not_kept_result(run: Run, call: Call, why: str) -> Result:
    """The result of a call that ran, and of which nothing can be kept: it must not run again."""
    text = (
        f"{call.part.tool_name!r} ran, but {why.rstrip('.')}. Do not call it again only for its "
        "result."
    )
    part = make_part(run, call, storable_text(text), "failed")
    return Result(call_key=call.key, part=part, ran=True)


def is_sound(result: Result) -> bool:
    """Whether it is what a tool returned, and text or a number alone: it was written as JSON."""
    part = result.part
    return (
        part.outcome == "success"
        and type(part.content) in SCALARS
        and result.user_prompt is None
        and not result.files
    )


def _not_sent(run: Run, call: Call, content: object, error: ValueError) -> Result:
    why = f"its result of type {type(content).__name__!r} cannot be sent to the model: {error}"
    remedy = "The tool must return plain data, or ToolResult(text, value=...)."
    return not_kept_result(run, call, f"{why}. {remedy}")


def denied_by_rule(run: Run, call: Call, text: str) -> Result:
    """The result of a call that a rule of the application denies, which was not entered."""
    return Result(call_key=call.key, part=make_part(run, call, text, "denied"))


def denied_result(run: Run, call: Call, request: Request, decision: Decision) -> Result:
    """A rejection by a person, or by expiry; an error where a call made elsewhere failed."""
    if decision.origin == "executor":
        text = decision.message or f"{call.part.tool_name!r} failed where it is executed."
        return failed_result(run, call, text)
    is_expired = decision.origin == "expiry"
    said = f" They say: {decision.message!r}" if decision.message else ""
    if request.kind == "doubt" and "approve" not in request.allowed and not is_expired:
        # Several persons had agreed to the call. For the same effect, they must agree to a new
        # call.
        part = make_part(run, call, NOT_DONE.format(said=said), "denied")
        return Result(call_key=call.key, part=part)
    if is_expired:
        reason = "nobody answered in time whether this call may run."
    elif request.kind == "doubt":
        reason = "a person found that this call took no effect, and decided that it must not run."
    else:
        reason = "a person decided that this call must not run."
    if call.entered and request.kind != "doubt":  # it has asked, or waits: its body was entered
        why = "nobody answered it in time" if is_expired else "a person rejected it"
        reason = in_part(run.state, call, why)
        if call.unknown and request.kind == "approval":  # asked before it would have run again
            reason = f"it was started and cut off, and may have taken effect; {why}."
        elif call.was_unknown:
            reason = f"{UNKNOWN_BEFORE}, so it may have taken effect; {why}."
    text = f"Denied: {reason}{said}\nDo not try the same call again."
    is_doubt = call.was_unknown and request.kind != "doubt"
    doubt = with_done(run.state, call, UNKNOWN_BEFORE) if is_doubt else None
    return Result(call_key=call.key, part=make_part(run, call, text, "denied"), doubt=doubt)


def responded_result(run: Run, call: Call, decision: Decision) -> Result:
    """A result that a person gave in place of the tool."""
    part = make_part(run, call, decision.value, "success")
    return Result(call_key=call.key, part=part, value_is="given")


def in_doubt_result(run: Run, call: Call, reason: str) -> Result | None:
    """A result that says that the outcome of a started call is unknown, and what it had done.

    None if something that is to settle the doubt is recorded instead: that the check is asked
    later, or a request to a person if there is no check any more. The tool's `on_unknown` decides
    who is asked or informed. By default a person is asked about a call that a person was asked
    about before, or whose tool has a check.
    """
    return _in_doubt(run, call, with_done(run.state, call, reason))


def _in_doubt(run: Run, call: Call, reason: str) -> Result | None:
    ready = prepare(run, call)
    if isinstance(ready, ReadyCall):
        has_check = ready.tool.check is not None
        if has_check and wait_for_check(run, ready, reason):
            return None
        if has_check:
            reason = f"{reason}, and its check could not tell what it did"
        # Requests about a call end with an import: its gate says that it needs a person.
        needs_person = call.requests or (call.copied_from and is_gated(run, ready.tool))
        # The model that made the call may have ended its run, so nobody would read the result at
        # once.
        background = run.current.once.get(BACKGROUND)
        needs_person = needs_person or background is not None
        choice = ready.tool.on_unknown or ("ask" if has_check or needs_person else "tell")
        if choice == "ask":
            approval, requesters = approval_of(run.current, call)
            if approval is None and call.copied_from:
                approval = _approval_by_gates(run, ready.tool)
            request = as_tool_call(run, ready).request(
                kind="doubt",
                # The persons agreed to one call. For a second call the model must ask anew.
                allowed=("respond", "approve", "reject")
                if approval is None
                else ("respond", "reject"),
                display=DOUBT_ANSWERS
                if approval is None
                else DOUBT_ANSWERS_OF_VOTED.format(who=approval.who),
                payload={"reason": reason, "started": call.attempts},
                call_approval=approval,
            )
            record_request(run, replace(request, requesters=requesters))
            return None
    return unasked_doubt(run, call, reason)


def _approval_by_gates(run: Run, tool: Tool[Any]) -> Approval | None:
    """Who must agree to calls of the tool by the gates of today; None if nobody must."""
    asked = [] if tool.gate is None or tool.gate.approval is None else [tool.gate.approval]
    for gate in (*run.definition.gates, *run.gates):
        asked += [each for name, each in gate.approvals().items() if name in tool.names]
    return reduce(stricter, asked) if asked else None


def doubt_result(run: Run, call: Call, reason: str) -> Result:
    """The result of a call in doubt about which nobody is asked: see `in_doubt_result`."""
    return unasked_doubt(run, call, with_done(run.state, call, reason))


def unasked_doubt(run: Run, call: Call, reason: str) -> Result:
    """The result that informs the model of a doubt, with a reason that is complete."""
    part = make_part(run, call, IN_DOUBT.format(reason=reason), "interrupted")
    return Result(call_key=call.key, part=part, doubt=reason)


def is_settled(call: Call) -> bool:
    """Whether somebody has settled the doubt about a call that waited for its check."""
    check = call.check
    return check is not None and check.answer is not None and check.answer.how != "over"


def settled_result(run: Run, call: Call) -> Result:
    """The result of a call that waited for its check, when somebody settled the doubt."""
    assert call.check is not None, "it waited for that"
    return Result(call_key=call.key, part=make_part(run, call, known(call.check), "interrupted"))


def still_in_doubt(run: Run, call: Call) -> Result | None:
    """The `in_doubt_result` of a call that waited for its check, with the same reason."""
    return _in_doubt(run, call, run.state.doubts[call.key].reason)


def found_result(run: Run, ready: ReadyCall, found: Found) -> Result | None:
    """The result of a call in doubt by what its check found; None as for `in_doubt_result`."""
    call = ready.call
    if call.check is None:
        return None  # its body returned meanwhile, and that is its result
    if is_settled(call):
        # Race: a person who settles the doubt while the check is asked has decided
        # (test_who_settles_the_doubt_while_its_check_is_asked_has_decided).
        return settled_result(run, call)
    if isinstance(found, Unknown):
        return still_in_doubt(run, call)
    if isinstance(found, DidNotHappen):
        result = failed_result(run, call, as_edited(NO_EFFECT, ready.edited))
    else:
        try:
            result = result_of(run, ready, found.result)
        except ToolFailed as failed:
            result = failed_result(run, call, as_edited(text_of(failed), ready.edited))
    return replace(result, settled=CHECK)


def limit_text(tool: Tool[Any], limit: float) -> str:
    """The error of a call that only looks something up, and whose time limit passed."""
    return f"{tool.name!r} did not answer within its limit of {limit} seconds."


def not_entered_result(run: Run, ready: ReadyCall) -> Result:
    """The result of a call whose time limit passed while it waited for a thread: it did not run."""
    limit = ready.tool.timeout
    text = f"{ready.tool.name!r} was not started within its limit of {limit} seconds: no thread"
    return replace(failed_result(run, ready.call, text), not_entered=True)


def with_files(run: Run, ready: ReadyCall, result: Result, edits: FileEdits) -> Result:
    """The result with the files that the call has changed. Nothing is awaited until it is recorded.

    A failed call changes no file. If the call rests on a file that a concurrent agent or the
    application has changed meanwhile, the result is an error.
    """
    if result.part.outcome != "success":
        return result
    path = edits.conflict(run.ledger.files)
    if path is not None:
        text = f"{path!r} was changed meanwhile, and nothing was written: read it again."
        return failed_result(run, ready.call, text)
    return replace(result, files=edits.changes)


def stop_result(run: Run, call: Call, signal: StopSignal, doubt: str | None = None) -> Result:
    """The result of a tool that raised `StopAgent`, with its signal: a crash cannot part them.

    Args:
        run: the run of the call.
        call: the call.
        signal: the signal of the exception.
        doubt: why nobody knows what else the call did, with what it had done.

    """
    return replace(
        _ended_by(run, call, f"Stopped the run: {signal}", doubt), signal=signal.to_dict()
    )


def _ended_by(run: Run, call: Call, text: str, doubt: str | None) -> Result:
    """The result of a call that ended the run, and may have left a doubt."""
    if doubt is not None:
        text = f"{text}\n{IN_DOUBT.format(reason=doubt)}"
    return Result(call_key=call.key, part=make_part(run, call, text, "interrupted"), doubt=doubt)


def refused_result(run: Run, ready: ReadyCall, refused: Result, error: RecordRefused) -> Result:
    """The result that replaces one too large to be kept. A stop and a halt stand."""
    if refused.settled is not None:  # what its check has found is too large
        result = not_kept_result(run, ready.call, f"its result cannot be kept: {error}")
        return replace(result, settled=refused.settled)
    if refused.signal is not None:
        signal = StopSignal.from_dict(refused.signal)
        message = f"its message cannot be kept: {error}"
        signal = replace(signal, message=message, context={})
        return stop_result(run, ready.call, signal, refused.doubt)
    if refused.halt is not None:
        return halt_result(run, ready, Halt(f"its message cannot be kept: {error}"), refused.doubt)
    return not_kept_result(run, ready.call, f"its result cannot be kept: {error}")


def cancelled_inside_result(run: Run, ready: ReadyCall) -> Result | None:
    """The result of a tool that raised CancelledError without being cancelled itself."""
    if ready.call.effect == "read_only":
        return failed_result(run, ready.call, f"{ready.tool.name!r} was cancelled from within.")
    return in_doubt_result(run, ready.call, "it was cancelled from within")


def questions_asked(run: Run, ready: ReadyCall, interrupts: Sequence[Interrupt]) -> Result | None:
    """Record the questions that the tool raised; an error result if one cannot be stored.

    They replace earlier questions of this call, so their answers count no longer.
    """
    unchanged = prepare(run, ready.call)  # the tool may have changed the arguments that it got
    call = as_tool_call(run, unchanged if isinstance(unchanged, ReadyCall) else ready)
    if any(interrupt.key is not None for interrupt in interrupts):
        text = "its question cannot be asked: a key is for middleware; a tool has ctx.resume_value"
        return failed_result(run, ready.call, text)
    try:
        requests = [
            call.request(
                kind="interrupt",
                allowed=interrupt.allowed,
                title=interrupt.title or None,
                payload=interrupt.payload,
                schema=interrupt.schema,
                timing=interrupt.timing,
            )
            for interrupt in interrupts
        ]
    except UsageError as error:
        return failed_result(run, ready.call, f"its question cannot be asked: {error}")
    earlier = tuple(
        r.id for r in ready.call.requests.values() if r.kind == "interrupt" and not r.question_key
    )
    for request in requests:
        try:
            record_request(run, request, replaces=earlier)
        except RecordRefused as refused:  # its result withdraws the questions before it
            text = f"its question cannot be kept: {refused}"
            return failed_result(run, ready.call, text)
        earlier = ()
    return None


def halt_result(run: Run, ready: ReadyCall, halt: Halt, doubt: str | None = None) -> Result:
    """The result of a tool that raised `Halt`. The request that reports it is part of the record.

    Both are in one record, so that a crash cannot come between the result and the halt
    (`test_a_halt_that_was_recorded_stands_after_a_crash_at_any_record`).

    Args:
        run: the run of the call.
        ready: the call.
        halt: the exception that was raised.
        doubt: as for `stop_result`.

    """
    ended = _ended_by(run, ready.call, f"Halted the run: {halt.message}", doubt)
    return replace(ended, halt=halt_request(as_tool_call(run, ready), halt))


def result_of(run: Run, ready: ReadyCall, returned: Any) -> Result:
    """The return value of the tool as a record.

    If the content cannot be sent to the model, or cannot be kept, the result is an error that says
    that the tool ran. If only the value for the program cannot be kept, it is lost after a recovery
    (`value_is="lost"`). For an until tool that is an error too, since its value is the outcome of
    the run.

    Raises:
        ToolFailed: for an agent's outcome, or the result of its until tool, that is an error.

    """
    call, tool = ready.call, ready.tool
    target = run.current.until_tool is not None and run.is_until_tool(tool.name)
    if type(returned) in SCALARS and ready.edited is None and not target:
        # Nothing of what follows is about text or a number.
        try:
            shown = tool.dump_value(returned)
        except ValueError as error:
            return _not_sent(run, call, returned, error)
        return Result(call_key=call.key, part=make_part(run, call, shown, "success"))
    content, value, separate = returned, None, False
    changes: dict[str, Any] | None = None
    escalate = skip_summarization = False
    try:
        while isinstance(content, ToolResult):  # a middleware may put one around that of the tool
            if content.has_value and not separate:
                value, separate = content.value, True
            if content.state is not None:
                delta = checked_json(content.state, what="ToolResult(state=...)")
                changes = delta if changes is None else merged(delta, changes)
            if checked_flag(content.escalate, what="ToolResult(escalate=...)"):
                escalate = True
            if checked_flag(content.skip_summarization, what="ToolResult(skip_summarization=...)"):
                skip_summarization = True
            content = content.content
        if changes is not None:
            _check_values(run, changes)
    except UsageError as error:
        return not_kept_result(run, call, str(error))
    if isinstance(content, (Completed, Failed, Stopped)):
        assert content.state.run is not None, "an outcome is of a run"
        content = result_of_agent(content, what=f"agent {content.state.run.agent!r}")
    elif isinstance(content, ToolCallResult) and content.is_error:
        raise ToolFailed(f"an error of {content.tool_name!r}: {content.content}")
    metadata: Any = None
    prompt: UserPromptPart | None = None
    if isinstance(content, ToolReturn):
        try:
            metadata, prompt = as_json(content.metadata), _beside_result(run, content)
        except ValueError as error:
            why = "what it returned beside its result (the `metadata` or `content` of a ToolReturn)"
            return not_kept_result(run, call, f"{why} cannot be kept: {error}")
        content = content.return_value
    elif isinstance(content, list) and any(isinstance(item, ToolReturn) for item in content):
        return not_kept_result(run, call, "it returned a list of ToolReturn, not a single one")
    if not separate:
        value = content
    value_is: Literal["content", "separate", "lost"] = "content"
    try:
        shown = as_json(content) if separate else tool.dump_value(content)
    except ValueError as error:
        return _not_sent(run, call, content, error)
    stored = shown
    if separate:
        try:
            stored = tool.dump_value(value)
        except ValueError as error:
            if target:
                return not_kept_result(run, call, f"its value cannot be serialised: {error}")
            stored, value_is = None, "lost"
    for_model = model_content(content, shown)
    if value_is != "lost" and (separate or for_model is not shown):
        value_is = "content" if stored == for_model else "separate"
    if target:
        run.live_values[call.key] = value
    return Result(
        call_key=call.key,
        part=make_part(run, call, as_edited(for_model, ready.edited), "success", metadata=metadata),
        value=stored if value_is == "separate" or ready.edited is not None else None,
        value_is="separate" if ready.edited is not None and value_is == "content" else value_is,
        state=changes,
        escalate=escalate,
        skip_summarization=skip_summarization,
        user_prompt=prompt,
    )


def _beside_result(run: Run, returned: ToolReturn[Any]) -> UserPromptPart | None:
    """The content that goes to the model as a prompt of its own.

    Raises:
        ValueError: if a prompt cannot have this content.

    """
    if not returned.content:
        return None
    part = UserPromptPart(returned.content, timestamp=run.clock.now())
    if not isinstance(part.content, str):
        part.content = as_read_back(list(part.content))
    return part


def as_edited(content: Any, edited: dict[str, Any] | None) -> Any:
    """The content of a result; with the arguments that ran, if a person edited them.

    The conversation keeps the call as the model made it, so the result must say what ran instead.
    """
    if edited is None:
        return content
    note = {EDITED: edited}
    if content_holds_files(content):  # files are sent only from the top of a content
        return [note, *(content if isinstance(content, list) else [content])]
    return {**note, "result": content}


def _check_values(run: Run, changes: Mapping[str, Any]) -> None:
    """Check that a state delta is valid for the typed values of the middleware."""
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
