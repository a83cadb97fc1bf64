"""The steps that run the tools of a reply: `execute_tools` and `propagate_state`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from understudy.errors import UsageError
from understudy.modes.steps.check_interrupts import reserve_within
from understudy.modes.steps.concurrent import Concurrent, may_start
from understudy.modes.steps.conditions import acts_if
from understudy.modes.steps.run_end import end_agents_of
from understudy.modes.steps.tool_call.arguments import (
    CRASHED,
    ReadyCall,
    as_tool_call,
    blocked_by_doubt,
    effect_now,
    must_not_repeat,
    not_kept_before,
    prepare,
    record_asked_now,
)
from understudy.modes.steps.tool_call.body import record_started
from understudy.modes.steps.tool_call.grants import has_grants
from understudy.modes.steps.tool_call.invocation import invoke, note_not_begun
from understudy.modes.steps.tool_call.results import (
    LIMIT_PASSED,
    LIMIT_REASON,
    denied_by_rule,
    denied_result,
    doubt_result,
    failed_result,
    in_doubt_result,
    is_settled,
    limit_text,
    make_part,
    responded_result,
    settled_result,
    still_in_doubt,
)
from understudy.modes.steps.tool_call.rules import denial_in, unasked, verdict_on
from understudy.modes.steps.tool_call.votes import asked_now, still_agreed, with_requesters
from understudy.outcomes import Outcome
from understudy.run.ledger import calls_inside
from understudy.run.run import AttemptEnded, Run, end_if_stopped
from understudy.state.children import agents_of_call
from understudy.state.folds.ends import (
    IN_DOUBT,
    MOVED_ON,
    MOVED_ON_INSIDE,
    UNKNOWN_BEFORE,
    in_part,
    with_done,
)
from understudy.state.records import Propagated, Result
from understudy.state.run_state import BACKGROUND, Call, Turn
from understudy.state.waits import is_woken, woken_calls
from understudy.trust.freezes import Stops

STOPPED = "Not run: another call of the same reply asked the run to stop."
STOPPED_INSIDE = "another call of the same reply asked the run to stop"
CUT_OFF = "Not executed: the reply that asked for this call was cut off before its end."


async def execute_tools(run: Run) -> Outcome | None:
    """Run the calls of the open turn that were never started, or that may run again.

    Async tools run concurrently on the loop and plain ones in threads; a sequential tool runs
    alone. Each result is recorded as soon as its tool returns.
    """
    current = run.current
    turn = current.turn
    if turn is None or turn.propagated:
        return None
    gated = run.definition.hooks.check_tool_calls or run.gates
    if (
        gated
        and not (turn.interrupts_checked or run.gates_let_pass)
        and not (turn.cut or turn.has_all_results)
    ):
        raise UsageError("a middleware gates tools, but the mode has no step check_interrupts")
    ready, has_keys = [], run.definition.has_keys
    asked_some = turn.has_requests
    asked = asked_some and bool(turn.pending_requests)
    for call in turn.calls.values():
        if turn.cut and call.result is None:  # its arguments may be incomplete
            part = make_part(run, call, CUT_OFF, "interrupted")
            run.record(Result(call_key=call.key, part=part))
        elif call.result is not None or call.pending_requests:
            # A finished call is never repeated (test_nothing_is_lost_and_nothing_happens_twice).
            continue
        elif not (asked or call.points) or _may_run(run, call, asked):
            released = await _release(run, call)
            if released is not None:
                ready.append(released)
    trust, root = run.environment.trust, run.root
    has_account = root.ledger.account is not None
    for group in _batches(ready) if len(ready) > 1 else (ready,):
        # A call of an earlier batch, or of another branch, may have halted or stopped the run:
        # what was not started does not start
        # (test_calls_that_have_not_begun_do_not_begin_after_a_halt,
        # test_the_step_of_a_stop_agent_is_recorded_whole).
        if root.current.halt is not None:
            break
        if current.signals and _has_stop_signal(turn):
            group = [item for item in group if item.call.running]
        if trust.stamp is not None or trust.stops is not None or asked_some or has_account:
            group = await _that_may_start(run, group, asked_some)
        batch = await _with_keys(run, group) if has_keys else _record_starts(run, group)
        if not batch:
            continue
        # Race: a crash after the body was entered and before that was durable would let the next
        # attempt run it again (test_a_call_is_durably_started_before_its_body_is_entered). A tool
        # that only looks something up may run again.
        for item in batch:
            if item.call.effect != "read_only":
                if run.ledger.is_settled:
                    break
                try:
                    await run.durable()
                except asyncio.CancelledError:
                    _none_has_begun(run, batch)
                    raise
                break
        is_alone = len(batch) == 1 and (len(turn.calls) == 1 or batch[0].tool.sequential)
        waiting = None if is_alone else _waiting_beside(run, turn, batch)
        if len(batch) == 1 and not waiting:
            await invoke(run, batch[0])
        else:
            await _run_concurrently(run, turn, batch, waiting or {})
    if current.signals and _has_stop_signal(turn):
        await _close_unfinished(run, turn)
    if run.tool_raised is not None:
        raise run.tool_raised
    if trust.stops is not run.passed_stops:
        end_if_stopped(run)
    if run.stopped_by is not None:
        _rest(run, turn)
    return None


async def _that_may_start(run: Run, group: list[ReadyCall], asked_some: bool) -> list[ReadyCall]:
    """The calls that may start by what freezes, rules, votes and budgets say now."""
    trust = run.environment.trust
    stops = trust.stops
    if stops is not None:
        group = _startable(run, group, stops)
    if trust.stamp is not None and trust.rules is not None:
        group = [item for item in group if await _is_allowed(run, item)]
    if asked_some:
        group = [
            item
            for item in group
            if not (item.call.votes or has_grants(item.call))
            or await still_agreed(run, as_tool_call(run, item))
        ]
    if run.root.ledger.account is not None:
        group = await _afforded(run, group)
    if trust.stops is not stops and trust.stops is not None:  # they came while it waited
        group = _startable(run, group, trust.stops)
    return group


def _startable(run: Run, group: list[ReadyCall], stops: Stops) -> list[ReadyCall]:
    """The calls that may start now. The attempt ends if no call of the agent may start."""
    if stops is not run.passed_stops:
        end_if_stopped(run)
    if not stops.tools:
        return group
    kept = []
    for item in group:
        stop = stops.of_tool(item.tool.names)
        if stop is None:
            kept.append(item)
        else:
            run.stopped_by = stop
    return kept


def _rest(run: Run, turn: Turn) -> None:
    """End the attempt, because a call of the reply may not start or continue now.

    If a person is asked about another call, the attempt is not ended here: the run is interrupted.
    """
    asks = bool(run.state.requests) or run.state.pause is not None
    if turn.has_all_results or (asks and not is_woken(run.state)):
        return
    raise AttemptEnded(run.stopped_by)


async def _afforded(run: Run, group: list[ReadyCall]) -> list[ReadyCall]:
    """Reserve what these calls may spend. Returns those that start."""
    if BACKGROUND in run.current.once:
        return group  # what has started it has reserved it
    from understudy.modes.steps.tool_call.budgets import afford  # few runtimes have budgets

    return await afford(run, group)


def _may_run(run: Run, call: Call, asked: bool) -> bool:
    """Whether the call waits neither itself nor for a person who is `asked` about another call."""
    if call.check is not None:
        return call.is_woken
    if asked:  # no call is started now, but a call that waited continues
        return any(_woken_in(run, call))
    if not call.waits_at:
        return True
    return bool(agents_of_call(run.state.children, call.key))


def _woken_in(run: Run, call: Call) -> Iterator[Call]:
    """The calls that can continue because a point is answered: this call, and calls inside it."""
    if call.is_woken:
        yield call
    if call.check is not None:
        return  # what runs inside the call continues with the call
    children = run.state.children
    for key in agents_of_call(children, call.key):
        yield from woken_calls(children[key])


def _waits(run: Run, call: Call) -> bool:
    """Whether the call was started and is suspended, and may continue beside others."""
    if not call.attempts or call.running or call.result is not None or call.pending_requests:
        return False
    tool = run.definition.tool_of(call.part.tool_name)
    return tool is None or not tool.sequential


def _waiting_beside(run: Run, turn: Turn, batch: list[ReadyCall]) -> dict[str, Call]:
    """The suspended calls of the reply that may continue beside the batch, by their keys.

    A call in doubt whose check the batch asks does not start, so it looks like a waiting call
    (test_two_equal_calls_in_doubt_at_once_settle_themselves).
    """
    now = {item.call.key for item in batch}
    return {k: c for k, c in turn.calls.items() if k not in now and _waits(run, c)}


def _record_starts(run: Run, ready: list[ReadyCall]) -> list[ReadyCall]:
    """Record that these calls start, except the calls that have to wait for a person.

    A call in doubt whose check is to be asked does not start.
    """
    batch = []
    for item in ready:
        if not _is_held(run, item):
            batch.append(item)
    for item in batch:
        if not item.call.checks or item.call.check is None:
            record_started(run, item)
    return batch


async def _with_keys(run: Run, ready: list[ReadyCall]) -> list[ReadyCall]:
    """Record that these calls start, where tools of the agent may have a key."""
    if all(item.tool.key is None for item in ready):
        return _record_starts(run, ready)
    from understudy.modes.steps.tool_call.call_keys import start_with_keys  # few agents have one

    return await start_with_keys(run, [item for item in ready if not _is_held(run, item)])


def _is_held(run: Run, ready: ReadyCall) -> bool:
    """Whether the results of an earlier batch of the reply keep the call from starting.

    If so, a request or a result for it is recorded.
    """
    if run.current.not_kept:
        refusal = not_kept_before(run, ready)
        if refusal is not None:
            run.record(failed_result(run, ready.call, refusal))
            return True
    return blocked_by_doubt(run, ready)


def _none_has_begun(run: Run, batch: list[ReadyCall]) -> None:
    """Record that these calls, whose starts were not durable yet, did nothing."""
    run.not_begun |= {item.call.key for item in batch}
    note_not_begun(run, batch)


async def _is_allowed(run: Run, ready: ReadyCall) -> bool:
    """Whether the rules of today let the call start; else its result, or requests, are recorded.

    A call whose body was entered continues: it was allowed when it started. So does a call that was
    started to continue in the background. A call in doubt that a person lets run again starts anew.
    """
    call = ready.call
    if not call.begins_anew or call.check is not None or BACKGROUND in run.current.once:
        return True
    tool_call = as_tool_call(run, ready)
    await reserve_within(run, tool_call)
    verdict = verdict_on(run, tool_call)
    denied = denial_in(verdict)
    if denied is not None:
        doubt = "a rule of the application denies to run it again"
        is_doubt = call.entered
        run.record(
            doubt_result(run, call, doubt) if is_doubt else denied_by_rule(run, call, denied)
        )
        return False
    today = await with_requesters(run, unasked(verdict, tool_call))
    asked = await asked_now(run, tool_call, today)
    record_asked_now(run, ready, asked)
    return not asked


def _has_stop_signal(turn: Turn) -> bool:
    """Whether a tool of this turn raised `StopAgent`."""
    return any(call.result is not None and call.result.signal for call in turn.calls.values())


async def _close_unfinished(run: Run, turn: Turn) -> None:
    """The run is to stop: record that calls without a result are not run, or stay in doubt."""
    for call in turn.calls.values():
        if call.result is not None:
            continue
        doubt = next(
            (r.payload["reason"] for r in call.pending_requests if r.kind == "doubt"), None
        )
        if call.check is not None and call.key in run.state.doubts:
            doubt = run.state.doubts[call.key].reason
        if doubt is None and call.was_unknown:
            doubt = with_done(run.state, call, UNKNOWN_BEFORE)
        await end_agents_of(run, call.key)
        text = in_part(run.state, call, STOPPED_INSIDE) if call.entered else STOPPED
        if doubt is not None:
            text = IN_DOUBT.format(reason=doubt)
        part = make_part(run, call, text, "interrupted")
        run.record(Result(call_key=call.key, part=part, doubt=doubt))


async def _release(run: Run, call: Call) -> ReadyCall | None:
    """The call if it, or its check, is to run now; else None, and what is known is recorded."""
    if call.checks and call.check is not None:
        return await _release_check(run, call)
    if call.running:
        tool = run.definition.tool_of(call.part.tool_name)
        limit = run.current.once.get(LIMIT_PASSED + call.key)
        is_limited = limit is not None and effect_now(run, call) != "read_only"
        if is_limited or must_not_repeat(run, call):
            reason = CRASHED if limit is None else LIMIT_REASON.format(limit=limit)
            unknown = in_doubt_result(run, call, reason)
            if unknown is not None:
                await end_agents_of(run, call.key)
                run.record(unknown)
            return None
        if tool is not None and limit is not None:
            await end_agents_of(run, call.key)
            run.record(failed_result(run, call, limit_text(tool, limit)))
            return None
    if call.withdrawn and call.was_unknown:
        unknown = doubt_result(run, call, UNKNOWN_BEFORE)
        await end_agents_of(run, call.key)
        run.record(unknown)
        return None
    if call.withdrawn:
        await end_agents_of(run, call.key)
        text = in_part(run.state, call, MOVED_ON_INSIDE) if call.entered else MOVED_ON
        part = make_part(run, call, text, "denied")
        run.record(Result(call_key=call.key, part=part))
        return None
    decided = _decided_result(run, call) if call.requests else None
    if decided is not None:
        await end_agents_of(run, call.key)
        run.record(decided)
        return None
    ready = prepare(run, call)
    if isinstance(ready, ReadyCall):
        return ready
    await end_agents_of(run, call.key)
    if call.entered and call.effect != "read_only":  # the definition has changed since it began
        run.record(doubt_result(run, call, f"it cannot continue: {ready}"))
    else:
        run.record(failed_result(run, call, ready))
    return None


async def _release_check(run: Run, call: Call) -> ReadyCall | None:
    """The call in doubt if its check is to be asked now."""
    ready = prepare(run, call)
    is_known = is_settled(call)
    if not is_known and isinstance(ready, ReadyCall) and ready.tool.check is not None:
        return ready
    # Otherwise no check is asked, for instance because today's definition has none.
    result = settled_result(run, call) if is_known else still_in_doubt(run, call)
    if result is not None:
        await end_agents_of(run, call.key)
        run.record(result)
    return None


def _decided_result(run: Run, call: Call) -> Result | None:
    """The result, if a decision is one: the tool is rejected, or answered for."""
    decided = [(request, call.decisions[request.id]) for request in call.requests.values()]
    for request, decision in decided:
        if decision.type == "reject":  # one rejection is enough
            return denied_result(run, call, request, decision)
    for request, decision in decided:
        if decision.type == "respond" and request.kind != "interrupt":
            return responded_result(run, call, decision)
    return None


def _batches(ready: list[ReadyCall]) -> Iterator[list[ReadyCall]]:
    """Calls that may run concurrently; a sequential one is a batch of its own."""
    batch: list[ReadyCall] = []
    for item in ready:
        if item.tool.sequential:
            if batch:
                yield batch
            yield [item]
            batch = []
        else:
            batch.append(item)
    if batch:
        yield batch


async def _run_concurrently(
    run: Run, turn: Turn, batch: list[ReadyCall], waiting: dict[str, Call]
) -> None:
    """Run all calls at the same time. What ends one call, other than a failure of its tool, ends
    all.

    Args:
        run: the run of the calls.
        turn: the turn of their reply.
        batch: the calls, whose starts are durable.
        waiting: the suspended calls of the reply, by key; they may continue at the same time.

    """
    async with Concurrent[ReadyCall, None](run) as running:
        for item in batch:
            running.start(item, invoke(run, item))
        while running.any_runs:
            stops = run.current.signals and _has_stop_signal(turn)
            if waiting and not stops and may_start(run):
                for item in await _woken(run, waiting, running):
                    running.start(item, invoke(run, item))
            ended = await running.next()
            if ended is None:
                continue
            item, error = ended
            if error is not None:
                raise error
            if _waits(run, item.call):
                waiting[item.call.key] = item.call


async def _woken(
    run: Run, waiting: dict[str, Call], running: Concurrent[ReadyCall, None]
) -> list[ReadyCall]:
    """The suspended calls that continue now, and wait no longer. Their starts are durable."""
    running.look(each for call in waiting.values() for each in calls_inside(run.ledger, call))
    released = []
    for call in list(waiting.values()):
        if running.is_woken(call.key, _woken_in(run, call)):
            del waiting[call.key]
            released.append(await _release(run, call))
    batch = await _with_keys(run, [item for item in released if item is not None])
    if batch:
        try:
            await run.durable()
        except asyncio.CancelledError:
            _none_has_begun(run, batch)
            raise
    return batch


def _may_propagate(run: Run) -> bool:
    turn = run.current.turn
    return turn is not None and bool(turn.calls) and not turn.propagated


@acts_if(_may_propagate)
async def propagate_state(run: Run) -> Outcome | None:
    """Record the message of the turn and merge the state deltas, once every call has its result."""
    turn = run.current.turn
    if turn is not None and turn.calls and not turn.propagated and turn.has_all_results:
        run.record(Propagated(turn=turn.index, at=turn.last_result_at))
    return None
