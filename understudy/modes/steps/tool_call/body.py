"""The body of a tool: the last checks before it, its time limit, its thread, its late result."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from understudy.errors import Fenced
from understudy.modes.steps.tool_call.arguments import (
    ReadyCall,
    answers_match,
    as_tool_call,
    canonical,
    effect_now,
    effect_of,
)
from understudy.modes.steps.tool_call.checks import noted_while_it_runs
from understudy.modes.steps.tool_call.ends import (
    DeniedByRule,
    Held,
    InDoubt,
    NeedsDecision,
    NotEntered,
    signal_or_doubt,
    uncancel_after_task_group,
    was_cancelled_inside,
)
from understudy.modes.steps.tool_call.results import (
    LIMIT_REASON,
    limit_text,
    result_of,
)
from understudy.modes.steps.tool_call.retry import with_retries
from understudy.modes.steps.tool_call.rules import denial_in, unasked, verdict_on
from understudy.modes.steps.tool_call.time_limit import TimeLimit
from understudy.modes.steps.tool_call.votes import (
    asked_now,
    requests_of_ended_grants,
    why_ended,
    with_requesters,
)
from understudy.run.run import Run, stop_of
from understudy.run.tool_call import make_context
from understudy.state.records import Settled, Started
from understudy.state.run_state import BACKGROUND
from understudy.state.waits import open_calls
from understudy.trust.trust import Trust

LATE_RESULT = "late result"
"""How a doubt is settled by what the body returns after its call was given up."""


def record_started(
    run: Run, ready: ReadyCall, key_hash: str | None = None, *, goes_on: bool = False
) -> None:
    """Record that the call is about to run.

    Args:
        run: the run of the call.
        ready: the call.
        key_hash: the hash of the key that the call has taken for this start.
        goes_on: whether this process has started the call before, with the same arguments.

    """
    call = ready.call
    arguments = ready.made
    if goes_on:
        arguments = None
    elif arguments is None and call.arguments is not None and call.attempts == 0:
        arguments = call.arguments
    effect = effect_now(run, call) if call.attempts else effect_of(run, ready.tool)
    asked = run.root.ledger.gates_asked
    is_first = bool(asked) and run.gates_let_pass
    started = Started(
        call_key=call.key,
        tool_name=ready.tool.name,
        tool_call_id=call.part.tool_call_id,
        attempt=call.attempts + 1,
        effect=effect,
        epoch=run.ledger.epoch,
        arguments=arguments,
        key_hash=key_hash,
        gates_asked_by=run.asked_by if is_first else "",
    )
    if arguments is None:  # its texts are those of the reply, which was accepted
        run.ledger.record_sound(started)
    else:
        run.record(started)
    if asked and is_first:
        del asked[run.run_id]


def tried(run: Run, ready: ReadyCall) -> Awaitable[Any]:
    """What the tool's function returns; it is called again where that is safe and may help."""
    effect = ready.call.effect  # as its start was recorded
    if effect == "effects" or (effect == "read_only" and ready.tool.retry is None):
        return _body(run, ready)

    async def begin_again() -> None:
        record_started(run, ready, goes_on=True)
        await run.durable()

    body = partial(_body, run, ready)
    return with_retries(run, ready, body, begin_again)


class _JudgedBefore(Exception):
    """The rules, votes or log have changed since a call was judged, which is judged again."""


class _Entry:
    """Whether the body of a call was entered or given up. What comes first decides.

    Args:
        trust: what decides whether the body may be entered.

    """

    __slots__ = ("_first", "judged", "trust")

    def __init__(self, trust: Trust) -> None:
        self._first: dict[None, bool] = {}
        self.trust = trust
        self.judged: object | None = None
        """`Trust.stamp` of the last decision that the body may be entered."""

    @property
    def is_entered(self) -> bool:
        """Whether the body was entered."""
        return self._first.get(None, False)

    def enter(self) -> bool:
        """Enter the body; False if it was given up."""
        return self._first.setdefault(None, True)

    def enter_in_thread(self) -> bool:
        """As `enter`, in a thread.

        Raises:
            _JudgedBefore: if the rules, votes or log have changed since the call was judged.

        """
        if self.judged is None and self.trust.stamp is None:
            return self.enter()
        # Race: the rules, or the log of trust, may change while the call waits for a thread. The
        # look is taken under the lock by which they change: once they are changed, no body is
        # entered by the old ones
        # (test_a_body_that_waits_for_a_thread_is_not_entered_after_the_log_says_no).
        with self.trust.lock:
            if self.trust.stamp is not self.judged:
                raise _JudgedBefore
            return self.enter()

    def give_up(self) -> bool:
        """Give the body up, so that it is not entered; False if it was entered."""
        return not self._first.setdefault(None, False)


@contextmanager
def before_entry(run: Run, batch: Iterable[ReadyCall]) -> Iterator[None]:
    """Note that these calls did nothing, if they are cancelled here."""
    try:
        yield
    except asyncio.CancelledError:
        run.not_begun |= {ready.call.key for ready in batch}
        raise


# A test may stand around this: `testing.seams`.
async def _body(run: Run, ready: ReadyCall) -> Any:
    """The tool's function, and right before it the last checks.

    Nothing is awaited between the last check and the call, but a plain function may wait for a
    thread.
    """
    tool, call = ready.tool, ready.call
    if run.file_edits:  # by a failed attempt: test_what_a_failed_attempt_has_changed_is_gone
        run.file_edits.pop(call.key, None)
    # A middleware may have changed the arguments that a person approved
    # (test_arguments_changed_behind_the_approval_are_asked_again).
    if call.requests and not answers_match(run, call, tool, canonical(ready)):
        raise NeedsDecision(ready)
    if run.root.ledger.account is not None and BACKGROUND not in run.current.once:
        from understudy.modes.steps.tool_call.budgets import afford_now  # few runtimes have budgets

        with before_entry(run, [ready]):
            await afford_now(run, ready)
    positional, keywords = tool.bind(ready.checked)
    limit = None if tool.timeout is None else TimeLimit(run, call, tool.timeout)
    if tool.takes_context:
        positional.insert(0, make_context(run, call, limit=limit))
    # Race: the lease may have ended since the call was started, and another host may own the agent
    # and run this call. The store refuses the result then, but cannot undo the effect
    # (test_a_build_with_one_rule_left_out_is_found_out). Between this line and the effect there is
    # still a gap. A function that runs in a thread is checked there once more.
    waited = False
    try:
        run.ledger.check_owner()
    except Fenced:
        # Race: the lease has run out, for instance because the loop was blocked, and the heartbeat
        # is about to renew it. To give up here would leave a doubt about a call that never ran
        # (test_a_call_whose_lease_has_run_out_waits_until_it_is_renewed).
        with before_entry(run, [ready]):
            await run.ledger.wait_for_owner()
        waited = True
    trust = run.environment.trust
    is_simple = limit is None and tool.is_async and trust.stamp is None  # most are
    entry = None if is_simple else _Entry(trust)
    if entry is not None and trust.stamp is not None:
        await _judge(run, ready, entry, waited=waited)
    if call.requests:
        _check_grants(run, ready)
    if run.not_begun:  # a hook has caught the cancellation, and calls it once more
        run.not_begun -= {call.key}
    try:
        if entry is None or (limit is None and tool.is_async):
            function = tool.function if tool.check is None else noted_while_it_runs(run, ready)
            return await function(*positional, **keywords)
        if limit is None:
            return await _call_function(run, ready, positional, keywords, entry)
        async with limit:
            return await _call_function(run, ready, positional, keywords, entry)
    except (Exception, BaseExceptionGroup) as error:
        if tool.timeout is not None and limit is not None and limit.has_passed:
            assert entry is not None, "a call with a time limit has one"
            if entry.give_up():
                raise NotEntered from error
            if call.effect == "read_only":
                raise TimeoutError(limit_text(tool, tool.timeout)) from None
            raise InDoubt(LIMIT_REASON.format(limit=tool.timeout), TimeoutError()) from error
        if isinstance(error, BaseExceptionGroup):
            uncancel_after_task_group(run)
        signal = signal_or_doubt(run, ready, error)
        if signal is None and was_cancelled_inside(error):
            signal = asyncio.CancelledError()
        if signal is None:
            raise
        raise signal from error


async def _judge(run: Run, ready: ReadyCall, entry: _Entry, *, waited: bool = False) -> None:
    """Judge once more, right before a body is entered, whether it may be entered.

    On return nothing was awaited since the last look at everything that decides.

    Args:
        run: the run of the call.
        ready: the call.
        entry: the entry into its body.
        waited: whether the lease has run out, and was renewed.

    """
    trust, call = entry.trust, ready.call
    while True:
        # Race: a host that was suspended for longer than its lease does not know what other hosts
        # have decided meanwhile: no commit has reported it
        # (test_a_host_whose_lease_had_run_out_reads_the_log_before_a_body_is_entered).
        # Race: facts may have been added since this host read the log. The commit of the start has
        # brought the number of the last one
        # (test_a_fact_that_is_added_before_the_start_is_durable_holds_for_the_body).
        if waited or trust.is_behind:
            with before_entry(run, [ready]):
                await trust.look()
        entry.judged = trust.stamp
        # Race: it may be frozen, or the host be held, while the call waited for its start to be
        # durable, in a middleware, or for a thread
        # (test_no_body_is_entered_once_freeze_has_returned).
        stops = trust.stops
        if stops is not None:
            stop = stop_of(run) or stops.of_tool(ready.tool.names)
            if stop is not None:
                raise Held(stop)
        # Race: the rules may have changed while the call waited for its start to be durable, or in
        # a middleware (test_a_rule_that_comes_while_a_middleware_waits_holds_for_its_call).
        is_new = call.attempts - 1 <= call.not_entered and BACKGROUND not in run.current.once
        if trust.rules is not None and is_new:
            await _check_rules(run, ready)
        # Race: a delegation may have ended while the call waited for its start to be durable, or in
        # a middleware (test_a_delegation_that_ends_right_before_the_body_is_entered_counts_not).
        if call.votes and call.attempts - 1 <= call.not_entered:
            why = why_ended(run, call)
            if why is not None:
                raise NeedsDecision(ready, why=why)
        try:
            run.ledger.check_owner()
        except Fenced:
            with before_entry(run, [ready]):
                await run.ledger.wait_for_owner()
            waited = True
            continue
        if not trust.is_behind and entry.judged is trust.stamp:
            return
        waited = False


def _check_grants(run: Run, ready: ReadyCall) -> None:
    """Raise what ends the call if a grant that let it through does not hold any more."""
    call = ready.call
    # Race: a grant may be revoked, or its time or a delegation behind it be over, while the call
    # waits for its start to be durable, or in a middleware
    # (test_no_call_runs_that_a_grant_does_not_cover).
    if call.attempts - 1 <= call.not_entered:
        ended = requests_of_ended_grants(run, call)
        if ended:
            raise NeedsDecision(ready, ended=ended)


async def _check_rules(run: Run, ready: ReadyCall) -> None:
    """Raise what ends the call if today's rules deny it, or ask more than before."""
    call = as_tool_call(run, ready)
    verdict = verdict_on(run, call)
    denied = denial_in(verdict)
    if denied is not None:
        raise DeniedByRule(denied)
    today = unasked(verdict, call) if verdict.result == "ask" else ()
    if today:
        asked = await asked_now(run, call, await with_requesters(run, today))
        if asked:
            raise NeedsDecision(ready, asked)


async def _call_function(
    run: Run, ready: ReadyCall, positional: list[Any], keywords: dict[str, Any], entry: _Entry
) -> Any:
    """Call the function; `entry` is entered as soon as its body runs."""
    tool = ready.tool
    function = tool.function if tool.check is None else noted_while_it_runs(run, ready)
    if tool.is_async:
        entry.enter()
        return await function(*positional, **keywords)
    if tool.inline:
        entry.enter()
        returned = function(*positional, **keywords)
    else:

        def on_late(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and done.exception() is None and _accepts_late_result(run):
                _record_late_result(run, ready, done.result())

        def in_thread() -> Any:
            # Race: the lease may end while the call waits for a thread
            # (test_a_call_whose_lease_has_run_out_is_not_run_when_it_is_lost).
            run.ledger.check_owner()
            # Race: the time limit may pass meanwhile, or the run be cancelled. A call whose body
            # was not entered is not in doubt, so it must not be entered later: see `_Entry`.
            if not entry.enter_in_thread():
                raise RuntimeError("it was given up")
            return function(*positional, **keywords)

        while True:
            try:
                returned = await run.threads.run(in_thread, on_late=on_late)
                break
            except _JudgedBefore:
                await _judge(run, ready, entry)
            except Fenced:
                if entry.is_entered:
                    raise  # the tool's own, of another agent
                with before_entry(run, [ready]):
                    await run.ledger.wait_for_owner()
                if entry.trust.stamp is not None:
                    await _judge(run, ready, entry, waited=True)
            except asyncio.CancelledError:
                if entry.give_up():
                    run.not_begun |= {ready.call.key}
                raise
    # A plain function may return the coroutine of an async one.
    return await returned if inspect.isawaitable(returned) else returned


def _accepts_late_result(run: Run) -> bool:
    """Whether a record made now is still read: by the open run, or by an actor's ledger."""
    outlives = run.root.ledger.outlives_run
    return not run.root.closed if outlives is None else outlives


def _record_late_result(run: Run, ready: ReadyCall, returned: Any) -> None:
    """An abandoned call returned after all: its effect is known, so it is in doubt no longer.

    Race: since its time limit or cancellation the call's own agent, or its parents, may have ended.
    - The run continues and a person, or later the check of the tool, is asked about the doubt: the
      result is recorded, and nobody is asked
      (`test_a_late_result_settles_a_doubt_that_is_to_be_asked_about`,
      `test_a_late_result_settles_a_doubt_before_its_check`).
    - The run waits for the check: the check finds the effect.
    - The doubt is recorded: it is settled, in the agent that holds it now
      (`test_a_late_result_settles_the_doubt`,
      `test_a_late_result_settles_the_doubt_after_a_run_was_stopped`).
    - Otherwise there is nothing to settle.
    """
    call, place = ready.call, run
    while place.parent is not None and place.ledger.state is not place.state:
        place = place.parent  # this agent is gone from the state: its caller has its doubts
    now = next((each for each in open_calls(place.state) if each.key == call.key), None)
    waits = now is not None and now.check is not None
    asked = now is not None and any(each.kind == "doubt" for each in now.pending_requests)
    if place is run and not run.closed and (asked or waits):
        run.record(replace(result_of(run, ready, returned), settled=LATE_RESULT))
    elif call.key in place.state.doubts and not waits:
        place.record(Settled(call_key=call.key, how=LATE_RESULT))
