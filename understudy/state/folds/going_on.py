"""Folds of a run that continues a failed run: it takes over what that run finished and left."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.usage import RunUsage

from understudy.errors import UsageError
from understudy.models.attribution import for_itself
from understudy.models.messages import Messages, StoredRequest
from understudy.state import records as r
from understudy.state.agent_state import AgentState
from understudy.state.children import with_child
from understudy.state.run_state import END_HOOKS, Call, Continued, RunState, Turn, is_child_of
from understudy.state.shared_empties import no_items, with_added


def take_over(state: AgentState, run: RunState, record: r.RunStarted) -> tuple[StoredRequest, ...]:
    """Make a new run continue where the last run stood. Returns the messages to be read in it.

    Limits, signals and hooks begin anew. Calls keep their keys, so a call that is safe to repeat is
    repeated under its key. A `once` that is done is not done again.

    Args:
        state: the state with the run that failed, or was cut off.
        run: the new run.
        record: the record of its start.

    """
    before = state.run
    if before is None or before.left is None or before.run_id != record.continues:
        raise UsageError("These records do not fit together: a run continues none that has failed")
    left = before.left
    earlier = before.continues
    retries = 1 if earlier is None else earlier.retries + 1
    since = before.began if earlier is None else earlier.since
    run.continues = Continued(before.run_id, since, retries)
    run.done = None if left.done is None else left.done.copied()
    run.turns, run.first_message = before.turns, before.first_message
    run.shared, run.progress = before.shared, before.progress
    run.escalated, run.trace = before.escalated, before.trace
    once = {key: value for key, value in before.once.items() if not key.startswith(END_HOOKS)}
    run.once = once or no_items()
    if left.turn is not None:
        closing = state.messages[left.messages :]
        run.turn = _reopened(state, run, left.turn, closing[0] if closing else None)
    state.messages = Messages(state.messages[: left.messages])
    for call in _calls_left(state):
        state.doubts.pop(call.key, None)
    children, state.left = state.left, no_items()
    said = left.unread
    for key, child in children.items():
        new = said if record.message is None else (*said, record.message)
        _take_over_child(child, new if run.workflow is not None else ())
        assert child.run is not None, "an agent that was left has begun"
        if child.run.shared is not None:  # the key of an agent of a workflow has the run's id
            key = record.run_id + key.removeprefix(before.run_id)
        state.children = with_child(state.children, key, child)
        if child.may_be_in_doubt:
            state.note_doubts_of(key)
    return said


def _take_over_child(child: AgentState, said: tuple[StoredRequest, ...]) -> None:
    """Reset a child for the new run: its usage and decisions are counted in the failed run.

    Args:
        child: the agent that was left.
        said: the user's new messages to the workflow, which are in its conversation already.

    """
    run = child.run
    assert run is not None, "an agent that was left has begun"
    run.usage, run.costs = RunUsage(), ()
    run.halt = None
    child.decisions = []
    if run.left is not None:
        run.left.taken_over = True
        run.left.unread += tuple(for_itself(message) for message in said)


def _reopened(state: AgentState, run: RunState, turn: Turn, closing: ModelMessage | None) -> Turn:
    """The turn that was open, restored as after a crash: unfinished calls have no result again."""
    turn.interrupts_checked = False
    for call in turn.calls.values():
        if call.result is None and _is_settled(state, call):
            call.result = r.Result(call_key=call.key, part=_closing_part(closing, call))
        if call.result is None:
            call.reopen()
        elif call.result.signal is not None:
            signalled = r.Signalled(turn=run.turns, signal=call.result.signal)
            run.signals = with_added(run.signals, signalled)
    return turn


def _is_settled(state: AgentState, call: Call) -> bool:
    """Whether the end of the run left the call in doubt, and a person has settled it since."""
    goes_on = any(is_child_of(key, call.key) for key in state.left)
    # A call that only looks something up is never in doubt: it runs again, as after a crash.
    is_running = call.running and call.effect != "read_only"
    is_doubt = call.check is not None or is_running or call.was_unknown
    return is_doubt and not goes_on and call.key not in state.doubts


def _closing_part(closing: ModelMessage | None, call: Call) -> ToolReturnPart:
    """The result of the call that the end of the run added to the conversation."""
    assert isinstance(closing, ModelRequest), "the end of the run reported its open calls"
    for part in closing.parts:
        if isinstance(part, ToolReturnPart) and part.tool_call_id == call.part.tool_call_id:
            return part
    raise AssertionError(f"the end of the run did not tell of {call.key}")


def _calls_left(state: AgentState) -> Iterator[Call]:
    """The calls without a result of this agent and of the agents that were left, at any depth."""
    run = state.run
    if run is not None and run.left is not None and run.left.turn is not None:
        yield from (call for call in run.left.turn.calls.values() if call.result is None)
    for child in state.left.values():
        yield from _calls_left(child)
