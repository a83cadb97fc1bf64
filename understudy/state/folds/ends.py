"""Folds of the ends of runs, with what they leave open: calls, doubts, inner agents."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

from pydantic_ai.messages import ModelRequest, ModelRequestPart, ToolReturnPart, UserPromptPart
from pydantic_core import to_json

from understudy.approvals import Approval
from understudy.interrupts import DoubtfulCall
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.children import agents_of_call
from understudy.state.costs import adding, below
from understudy.state.done_calls import DoneCall, DoneCalls, doubtful, in_a_sentence
from understudy.state.folds.places import note_status, open_run
from understudy.state.run_state import BACKGROUND, Call, Left, Point, RunState, Turn
from understudy.state.shared_empties import with_item
from understudy.state.what_it_did import NOT_KNOWN, done_in, doubts_in
from understudy.state.workflow_sharing import add_decisions_and_doubts, add_result, merge_child

NOT_RUN = "Not run: the run ended before this call was started."
IN_DOUBT = (
    "The outcome of this call is unknown: it was started and {reason}. It may or may not have "
    "taken effect. Do not repeat it; tell the user, or check by other means."
)
UNKNOWN_BEFORE = "an attempt at it left open what it did"
KNOWN = "The outcome of this call was unknown. It is known now: {how}"
CHILD_STOPPED = "the agent that this call ran was stopped before it had finished"
CHILD_HALTED = "The agent that this call ran halted the run: {reason}."
LOOKED_UP = "No answer: the run ended before this call had one. Calling it again does no harm."
IN_PART = "Ran in part: {why}. What it had done before stands"
ENDED = "the run ended before it was finished"
MOVED_ON = "Not run: the user moved on instead of answering whether this call may run."
MOVED_ON_INSIDE = "the user moved on instead of answering what it asked"


def run_ended(state: AgentState, record: r.RunEnded) -> None:
    may_go_on = record.cut_off or record.end.outcome == "failed"
    if record.closes_turn:
        run = open_run(state)
        run.closing, run.turn = record.end, None
        put_output(state, record.end)
    _end(state, record.end, record.at, may_go_on=may_go_on)
    if record.status is not None:
        note_status(state, record.status, record.at)


def _end(state: AgentState, end: r.End, at: datetime, *, may_go_on: bool) -> None:
    """End the run. If another run may continue it, keep what it left."""
    run = open_run(state)
    turn = run.turn
    run.model_call = None
    unread = () if run.continues is None else run.continues.unread
    if may_go_on:
        done = None if run.done is None else run.done.copied()
        run.left = Left(len(state.messages), turn, unread, done=done)
    if turn is not None:
        if turn.calls and not turn.propagated:
            for call in turn.calls.values():
                _end_open_children(state, call, at, may_go_on=may_go_on)
            parts: list[ModelRequestPart] = []
            parts += [_closing_part(state, call, at) for call in turn.calls.values()]
            parts += _prompts(turn)
            if state.held_keys:  # before the agents of its calls are gone
                _end_keys(state, turn, at)
            for call in turn.calls.values():
                end_children(state, call.key, at, may_go_on=may_go_on)
                if call.result is not None and call.result.state is not None:
                    state.merge(call.result.state)
            message = ModelRequest(parts=parts, timestamp=at)
            state.messages = state.messages.appending(message, *unread)
        run.turn = None
    for key, child in state.agents.items():
        assert child.run is not None, "agents are children with a run"
        if not child.run.over:
            _end(child, r.End(outcome="withdrawn"), at, may_go_on=may_go_on)
        del state.children[key]
        merge_child(state, child)
        if may_go_on:
            state.left = with_item(state.left, key, child)
    run.end = end
    run.paused = None


def sub_run_ended(state: AgentState, record: r.SubRunEnded) -> None:
    child = state.children[record.child]
    del state.children[record.child]
    add_result(open_run(state), child, record)
    merge_child(state, child)


def end_children(
    state: AgentState, call_key: str, at: datetime, *, may_go_on: bool = False
) -> None:
    """End the agents that the call ran; their usage, decisions and doubts are kept."""
    for key in agents_of_call(state.children, call_key):
        child = state.children[key]
        del state.children[key]
        if child.run is None:
            continue
        if not child.run.over:
            _end(child, r.End(outcome="withdrawn"), at, may_go_on=may_go_on)
        usage = child.run.usage
        if may_go_on:
            state.left = with_item(state.left, key, child)
        run = open_run(state)
        run.usage.incr(usage)
        run.costs = adding(run.costs, below(run.agent, child.run.costs))
        run.add_done_of(child.run)
        add_decisions_and_doubts(state, child)


def _end_open_children(state: AgentState, call: Call, at: datetime, *, may_go_on: bool) -> None:
    """End the agents that the call runs. They stay in the state: the end of the call names them.

    If the call has its result, nothing is done: the result reports its agents.
    """
    for key in [] if call.result is not None else agents_of_call(state.children, call.key):
        child = state.children[key]
        if child.run is not None and not child.run.over:
            _end(child, r.End(outcome="withdrawn"), at, may_go_on=may_go_on)


def closing_result(state: AgentState, call: Call, at: datetime) -> r.Result:
    """The result of a started call that has none when its run ends."""
    inside = bool(agents_of_call(state.children, call.key))
    doubt, outcome, check = None, "interrupted", call.check
    asked = [each for each in call.pending_requests if each.kind == "doubt" and not each.source]
    if asked:  # nobody has said what the call did, and nobody is asked any more
        doubt = str(asked[-1].payload["reason"])
        content = IN_DOUBT.format(reason=doubt)
    elif check is not None:
        waited = state.doubts.get(call.key)
        doubt = None if waited is None else waited.reason
        content = known(check) if doubt is None else IN_DOUBT.format(reason=doubt)
    elif call.was_unknown:
        doubt = with_done(state, call, UNKNOWN_BEFORE)
        content = IN_DOUBT.format(reason=doubt)
    elif not call.entered:
        content, outcome = (MOVED_ON, "denied") if call.withdrawn else (NOT_RUN, "interrupted")
    elif inside and (call.effect != "effects" or not call.running):
        content = _why_child_stopped(state, call)
    elif call.running and call.effect == "read_only":
        content = LOOKED_UP
    elif call.running:
        doubt = with_done(state, call, "the run ended before it answered")
        content = IN_DOUBT.format(reason=doubt)
    elif call.withdrawn:
        content, outcome = in_part(state, call, MOVED_ON_INSIDE), "denied"
    else:
        content = in_part(state, call, ENDED)
    return r.Result(call_key=call.key, part=_part(call, content, outcome, at), doubt=doubt, at=at)


def in_part(state: AgentState, call: Call, why: str) -> str:
    """The text for a model about a call whose body was entered and did not finish."""
    return text_with_done(state, call, f"{IN_PART.format(why=why)}.")


def text_with_done(state: AgentState, call: Call, text: str) -> str:
    """The text, followed by what the call has done and may have done."""
    done = done_by_call(state, call)
    inside = [child for _, child in _agents_of(state, call)]
    doubts = [doubt for child in inside for doubt in doubts_in(child)]
    unknown = in_a_sentence(doubtful(doubts, agent=open_run(state).agent))
    text = f"{text} It had done this: {done}." if done else text
    return f"{text} {NOT_KNOWN} {unknown}." if unknown else text


def with_done(state: AgentState, call: Call, reason: str) -> str:
    """The reason of a doubt, with what the call had done by then."""
    done = done_by_call(state, call)
    return f"{reason}, after it had done this: {done}" if done else reason


def done_by_call(state: AgentState, call: Call) -> str:
    """What a call has done by itself and by the agents that it runs; empty if nothing is known."""
    inside = DoneCalls()
    for _, child in _agents_of(state, call):
        assert child.run is not None, "only those that have one"
        inside.add_agent(child.run.agent, done_in(child))
    return ", ".join(filter(None, (done_once(call), in_a_sentence(inside))))


def done_once(call: Call) -> str:
    """What a call has done by `ctx.once`; empty if nothing."""
    return ", ".join(
        f"{name!r} once"
        for name, point in call.points.items()
        if point.kind == "once" and point.answer is not None
    )


def _agents_of(state: AgentState, call: Call) -> list[tuple[str, AgentState]]:
    """The agents that a call runs, whose runs have begun, by their keys."""
    return [
        (key, state.children[key])
        for key in agents_of_call(state.children, call.key)
        if state.children[key].run is not None
    ]


def _part(call: Call, content: str, outcome: str, at: datetime) -> ToolReturnPart:
    return ToolReturnPart(
        tool_name=call.part.tool_name,
        content=content,
        tool_call_id=call.part.tool_call_id,
        timestamp=at,
        outcome=cast("Any", outcome),
    )


def _closing_part(state: AgentState, call: Call, at: datetime) -> ToolReturnPart:
    """The result part of a call that the end of the run finds open, or its own result."""
    if call.result is not None:
        return call.result.part
    result = closing_result(state, call, at)
    note_done(open_run(state), call, result)
    if result.doubt is not None:
        doubt = unasked_doubt(open_run(state), call, result.doubt, at)
        state.add_doubt(doubt)
    return result.part


def known(check: Point) -> str:
    """The text for the model about a call whose doubt was settled while it waited for its check."""
    assert check.answer is not None, "else it is in doubt"
    text = KNOWN.format(how=check.answer.reason or "that was not said")
    value = check.answer.value
    return text if value is None else f"{text}: {to_json(value).decode()}"


def _end_keys(state: AgentState, turn: Turn, at: datetime) -> None:
    """End the keys of the calls that are open when the run ends."""
    for call in turn.calls.values():
        if call.result is None and call.key in state.held_keys and call.key not in state.doubts:
            end_key(state, call.key, is_done=ran_in_part(state, call), at=at)


def end_key(state: AgentState, call_key: str, *, is_done: bool, at: datetime | None) -> None:
    """End the key of a call that is over: the call is done, or gives the key back."""
    held = state.held_keys[call_key]
    if is_done:
        state.held_keys[call_key] = replace(held, is_done=True, at=at)
    else:
        del state.held_keys[call_key]


def ran_in_part(state: AgentState, call: Call) -> bool:
    """Whether a call without a result has done something: it came to a point, or ran an agent.

    A call that only asks a question does its effects after the answer.
    """
    if not call.entered:
        return False
    return bool(call.points or agents_of_call(state.children, call.key))


def _why_child_stopped(state: AgentState, call: Call) -> str:
    """The text for the model about a call whose agent did not finish, with a halt it raised."""
    halt = open_run(state).halt
    for key, _ in _agents_of(state, call):
        if halt is None:
            break
        if halt.run_id == key or halt.run_id.startswith(f"{key}."):
            return text_with_done(state, call, CHILD_HALTED.format(reason=halt.payload))
    return in_part(state, call, CHILD_STOPPED)


def note_done(run: RunState, call: Call, result: r.Result) -> None:
    """Add what a call with this result has done to the done calls of its run."""
    is_entered = call.attempts > call.not_entered
    if call.effect == "read_only" or not is_entered or result.doubt is not None:
        return
    if result.value_is == "given":
        is_finished = _was_in_doubt(call)  # a person has found that the call took effect
    else:
        is_ended = result.ran or result.signal is not None or result.halt is not None
        is_finished = result.part.outcome == "success" or is_ended
    in_part = ""
    if not is_finished:
        in_part = "" if _was_in_doubt(call) else done_once(call)
        if not in_part:
            return
    given = call.part.args if call.arguments is None else call.arguments
    run.add_done(DoneCall(call.part.tool_name, given, "", in_part))


def _was_in_doubt(call: Call) -> bool:
    """Whether a person, or a check, has found what a call in doubt had done."""
    return call.check is not None or any(
        request.kind == "doubt" and request.id in call.decisions
        for request in call.requests.values()
    )


def _prompts(turn: Turn) -> list[UserPromptPart]:
    """The prompts that the tools of the turn give the model in addition to their results."""
    return [
        call.result.user_prompt
        for call in turn.calls.values()
        if call.result is not None and call.result.user_prompt is not None
    ]


def put_output(state: AgentState, end: r.End) -> None:
    if end.output_key is not None:
        state.put({end.output_key: end.output if end.has_output else end.text})


def unasked_doubt(run: RunState, call: Call, reason: str, since: datetime) -> DoubtfulCall:
    """A call in doubt that nobody is asked about: only the model is informed."""
    ends_at = None if run.doubt_ends is None else since + timedelta(seconds=run.doubt_ends)
    return replace(doubtful_call(run, call, reason, since), ends_at=ends_at)


def doubtful_call(run: RunState, call: Call, reason: str, since: datetime) -> DoubtfulCall:
    """A call in doubt, as shown to the person who decides about an equal call."""
    approval, requesters = approval_of(run, call)
    return DoubtfulCall(
        call_approval=approval,
        requesters=requesters,
        call_key=call.key,
        tool_name=call.part.tool_name,
        tool_call_id=call.part.tool_call_id,
        arguments=last_arguments(call),
        reason=reason,
        agent=run.agent,
        since=since,
        token_hashes=tuple(
            each
            for point in call.points.values()
            if point.answer is None or point.answer.how == "expired"
            for each in point.token_hashes
        ),
    )


def approval_of(run: RunState, call: Call) -> tuple[Approval | None, tuple[str, ...] | None]:
    """The `Call.approval`; for a background call, the approval of the call that started it."""
    begun = run.once.get(BACKGROUND) if run.once else None
    if begun is None or begun["approval"] is None:
        return call.approval
    ids = begun["requesters"]
    return Approval.from_dict(begun["approval"]), None if ids is None else tuple(ids)


def last_arguments(call: Call) -> dict[str, Any]:
    """The arguments of the latest decision or request, otherwise the model's."""
    for request in reversed(call.requests.values()):
        decision = call.decisions.get(request.id)
        if decision is not None and decision.edited is not None:
            return decision.edited
        return request.arguments
    return call.made_arguments
