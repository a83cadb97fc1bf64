"""Folds of model replies and of the turns that they open: their usage, and their end."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime

from pydantic_ai.messages import ModelRequest, ModelRequestPart, ModelResponse
from pydantic_ai.usage import RequestUsage, RunUsage

from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.costs import adding, is_priced, line_of
from understudy.state.folds.ends import put_output
from understudy.state.folds.places import open_run, open_turn, waiting_model_call
from understudy.state.run_state import Call, RunState, Turn, asked_key
from understudy.state.shared_empties import no_items, with_item


def reply(state: AgentState, record: r.Reply) -> None:
    run = open_run(state)
    response = record.response
    turn = Turn(record.turn, response, cut=record.cut, broken=record.broken)
    prefix = f"{run.run_id}.{record.turn}."
    for part in response.tool_calls:
        key = prefix + str(len(turn.calls))
        turn.calls[key] = Call(key, part)
    run.turn = turn
    run.turns = record.turn + 1
    waited, run.model_call = run.model_call, None
    if waited is None or waited.held is None:
        run.model_calls += 1
        response.usage = _count_usage(run, response)
    state.messages = state.messages.appending(response)


def reply_held(state: AgentState, record: r.ReplyHeld) -> None:
    run = open_run(state)
    waiting_model_call(run, run.model_call_key).held = record.response
    run.model_calls += 1
    _count_usage(run, record.response)


def model_asked(state: AgentState, record: r.ModelAsked) -> None:
    run = open_run(state)
    run.once = with_item(run.once, asked_key(record.key), record.value)
    _count_usage(run, record.response)


def model_gave_no_answer(state: AgentState, record: r.ModelGaveNoAnswer) -> None:
    _count_usage(open_run(state), record.response)


def _count_usage(run: RunState, response: ModelResponse) -> RequestUsage:
    """Count the usage of a reply, and of the replies that were rejected before it; see `_add`."""
    kept = _count_request(run, response.model_name, response.usage)
    for attempt in response.failed_attempts or ():
        if attempt.usage is not None:
            _count_request(run, attempt.model_name, attempt.usage)
    return kept


def _count_request(run: RunState, model: str | None, usage: RequestUsage) -> RequestUsage:
    kept = _add(run.usage, usage)
    run.usage.requests += 1
    if is_priced(usage):
        run.costs = adding(run.costs, [line_of(run.agent, model, usage)])
    return kept


def _add(total: RunUsage, usage: RequestUsage) -> RequestUsage:
    """Add the usage of a request. The usage is returned as a conversation keeps it.

    `RunUsage.incr`, which most usages do not need, takes 3 times as long: it looks at all that
    either of the two has. To look at the attributes of a usage makes a dict that stays with it, 64
    bytes, and its empty details take as many. So the conversation gets a usage that nobody has
    looked at, with the empty details that all share.
    """
    if usage.details or not _TOKENS.issuperset(usage.__dict__):
        total.incr(usage)
        return usage
    kept = object.__new__(type(usage))
    kept.details = no_items()
    for name, value in usage.__dict__.items():
        if value and isinstance(value, (int, float)):
            setattr(total, name, getattr(total, name) + value)
            setattr(kept, name, value)
    return kept


_TOKENS = frozenset(field.name for field in fields(RequestUsage)) - {"cost"}


def pause_checked(state: AgentState, record: r.PauseChecked) -> None:
    open_turn(state).pause_checked = True


def paused(state: AgentState, record: r.Paused) -> None:
    run = open_run(state)
    run.paused, run.paused_by = record.reason, record.by
    open_turn(state).pause_checked = True


def unpaused(state: AgentState, record: r.Unpaused) -> None:
    run = open_run(state)
    run.paused = run.paused_by = None


def propagated(state: AgentState, record: r.Propagated) -> None:
    propagate(state, open_run(state), open_turn(state), at=record.at)


def propagate(state: AgentState, run: RunState, turn: Turn, *, at: datetime) -> None:
    """Make one message of all results of the turn, and merge their deltas."""
    parts: list[ModelRequestPart] = []
    prompts: list[ModelRequestPart] = []
    for call in turn.calls.values():
        result = call.result
        assert result is not None, f"propagated without a result of {call.key}"
        parts.append(result.part)
        if result.user_prompt is not None:
            prompts.append(result.user_prompt)
        if result.part.outcome == "success":
            run.tool_errors = 0
        elif result.part.outcome == "failed":
            run.tool_errors += 1
        if result.state is not None:
            state.merge(result.state)
        if result.escalate:
            run.escalated = True
    turn.propagated = True
    message = ModelRequest(parts=parts + prompts, timestamp=at)
    state.messages = state.messages.appending(message)
    if run.continues is not None and run.continues.unread:
        state.messages = state.messages.appending(*run.continues.unread)
        run.continues.unread = ()


def turn_closed(state: AgentState, record: r.TurnClosed) -> None:
    run, turn = open_run(state), open_turn(state)
    if record.end is not None:
        run.closing = record.end
        if record.end.tool_call is not None:
            call = turn.calls[record.end.tool_call]
            assert call.result is not None, f"the run ends by {call.key}, which has no result"
            run.ended_by = {call.key: call.result}
            run.ended_call = call.part
        put_output(state, record.end)
    if record.message is not None:
        state.messages = state.messages.appending(record.message)
    run.turn = None
