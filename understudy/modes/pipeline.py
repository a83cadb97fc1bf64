"""`Mode`: a tuple of named async steps; and `run_pipeline`, which runs them in a loop.

A step gets the `Run`. It reads the state, does what is missing in it, and returns None to continue
or an `Outcome` to end. Each step checks the state before it acts, so running, resuming and
recovering are one operation: load the records, run the pipeline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Generic

from understudy._base.error_texts import error_text
from understudy._base.event_loops import is_cancelled
from understudy._base.pieces import in_pieces
from understudy._base.type_variables import DepsT, DepsT_contra
from understudy.errors import JournalFailed, RecordRefused, StepFailed, UnderstudyError, UsageError
from understudy.modes.steps.check_stop import (
    check_sources,
    deadline_reached,
    halted,
    within_deadline,
)
from understudy.modes.steps.conditions import Condition, condition_of
from understudy.modes.steps.execute_tools import execute_tools
from understudy.modes.steps.run_end import call_end_hooks, end_of, status_after
from understudy.outcomes import Completed, Failed, Interrupted, Outcome, Paused, Stopped, Waiting
from understudy.run.definition import Pipeline, name_of_step
from understudy.run.hooks import HookFailed
from understudy.run.ledger import end_run
from understudy.run.run import AttemptEnded, Run, end_if_stopped, inside_run
from understudy.run.waits.dues import end_doubts, record_dues
from understudy.state.records import Attempt, HooksRan, Once
from understudy.stopping import StopSignal, StopSignals

OUTCOMES = (Completed, Interrupted, Paused, Waiting, Stopped, Failed)
Step = Callable[[Run[DepsT]], Awaitable[Outcome | None]]
"""A step of a mode: an async function of the run."""


class Mode(Pipeline, Generic[DepsT_contra]):
    """A mode of your own: named steps in the order in which they run. `repr(mode)` prints the
    pipeline.

    The steps of a mode never change. `inserting`, `replacing` and `without` return another mode,
    which prints as "changed".

    Args:
        steps: async functions of the run. The name of a step is the name of its function.
        name: the name in `repr`; by default the name of the class.

    Raises:
        UsageError: if there is no step, a step is not async, or two steps have the same name.

    """

    _changed = False
    steps: tuple[Step[DepsT_contra], ...]

    def __init__(self, steps: Iterable[Step[DepsT_contra]], *, name: str | None = None) -> None:
        super().__init__(tuple(steps), name or type(self).__name__)
        self.conditions: tuple[Condition | None, ...] = tuple(map(condition_of, self.steps))
        """For each step, the condition under which it has something to do; None if only the step
        knows."""
        if not self.steps:
            raise UsageError(f"Mode {self.name!r} has no steps: give at least one")
        for step in self.steps:
            if not _is_async(step):
                plain = (
                    f"{name_of_step(step)!r} is a plain one" if callable(step) else f"got {step!r}"
                )
                raise UsageError(f"Mode {self.name!r}: a step must be an async function, {plain}")
        names = self.step_names
        for name_ in names:
            if names.count(name_) > 1:
                raise UsageError(f"Mode {self.name!r} has two steps named {name_!r}: rename one")

    def __repr__(self) -> str:
        changed = "changed " if self._changed else ""
        return f"{changed}{self.name}({' → '.join(self.step_names)})"

    def replacing(self: Mode[DepsT], name: str, step: Step[DepsT]) -> Mode[DepsT]:
        """Return a mode with `step` in place of the step `name`."""
        index = self._index(name)
        return self._with((*self.steps[:index], step, *self.steps[index + 1 :]))

    def inserting(
        self: Mode[DepsT],
        *,
        step: Step[DepsT],
        after: str | None = None,
        before: str | None = None,
    ) -> Mode[DepsT]:
        """Return a mode with `step` directly after, or directly before, the step with that name."""
        if (after is None) is (before is None):
            raise UsageError("inserting(step=...) takes exactly one of after= and before=")
        index = self._index(after) + 1 if after is not None else self._index(before or "")
        return self._with((*self.steps[:index], step, *self.steps[index:]))

    def without(self, name: str) -> Mode[DepsT_contra]:
        """Return a mode without the step `name`."""
        index = self._index(name)
        return self._with((*self.steps[:index], *self.steps[index + 1 :]))

    def _with(self, steps: tuple[Step[DepsT], ...]) -> Mode[DepsT]:
        mode = Mode(steps, name=self.name)
        mode._changed = True
        return mode

    def _index(self, name: str) -> int:
        names = self.step_names
        if name not in names:
            raise UsageError(f"{self.name} has no step {name!r}; it has: {', '.join(names)}")
        return names.index(name)


def _is_async(step: object) -> bool:
    return asyncio.iscoroutinefunction(step) or asyncio.iscoroutinefunction(
        getattr(step, "__call__", None)  # noqa: B004  # a step may be an object with an async __call__
    )


async def run_pipeline(run: Run, mode: Pipeline) -> Outcome:
    """Run the pipeline to an outcome. An open run continues from where its state is."""
    if run.instrument is None:
        return await _attempt(run, mode, None)
    with run.instrument.attempt(run) as watch:
        outcome = await _attempt(run, mode, watch.trace)
        watch.ended(outcome)
        return outcome


async def _attempt(run: Run, mode: Pipeline, trace: str | None) -> Outcome:
    token = inside_run.set(run)
    try:
        current = run.current
        run.begin_attempt()
        has_replies = current.workflow is None  # a workflow's replies are in its agents' runs
        waited = current.model_call
        is_held = waited is not None and waited.held is not None
        reply_lost = has_replies and current.attempts > 0 and current.turn is None and not is_held
        number, host = current.attempts + 1, run.ledger.host
        given = run.environment
        attempt = Attempt(
            number=number,
            reply_lost=reply_lost,
            host=host,
            trace=trace,
            by=given.by,
            status=given.status_in_run(run.state) if run.parent is None else None,
        )
        run.record(attempt)
        if current.attempts > 1 or run.state.message_ids or current.occurrence is not None:
            # Durable before anything else: if this attempt kills the process, the next one must
            # find it counted, or a run that kills each host would never be quarantined
            # (test_a_further_attempt_is_durably_recorded_before_anything_runs).
            await run.durable()
        try:
            if run.seconds_left is None:
                outcome = await _loop(run, mode)
            else:
                in_time = await within_deadline(run, _loop(run, mode))
                outcome = in_time if in_time is not None else _cut_off(run)
        except HookFailed as failure:
            outcome = run.failed(failure.error)
        return await _finish(run, outcome)
    finally:
        inside_run.reset(token)
        if run.opened is not None:
            await run.opened.close()


async def _loop(run: Run, mode: Pipeline) -> Outcome:
    current, root = run.current, run.root.current
    messages = run.state.messages
    if messages.is_unread:
        # The first look at a long conversation would stop all other agents of this loop. What is
        # recorded meanwhile (a cancel, a halt, a message) is looked at from here on
        # (test_a_cancel_while_a_long_conversation_is_read_ends_the_run).
        await in_pieces(messages.reading())
    if root.halt is not None:
        return halted(run)
    if run.parent is None:  # the root looks for all agents that it runs
        now = run.clock.now()
        end_doubts(run.ledger, now)
        record_dues(run.ledger, now)
        if current.cancelled is not None:
            return _cancelled(run)
    if current.paused is not None:
        return run.held(current.paused)
    cancellable = bool(run.cancellation) or run.seconds_left is not None
    if cancellable:
        await _check_cancelled(run)
        if current.cancelled is not None:
            return _cancelled(run)
    if not current.hooks_ran:
        for hook in run.definition.hooks.on_run_start:
            await hook(run.threads, run)
        if run.definition.hooks.on_run_start:
            run.record(HooksRan())
    if run.definition.hooks.on_resume:
        await _call_on_resume(run)
    assert isinstance(mode, Mode), "there is no other pipeline"
    steps = tuple(zip(mode.steps, mode.conditions, strict=True))
    is_to_end = run.environment.is_to_end_attempt
    may_close = execute_tools if run.definition.has_plain_turns else None
    trust = run.environment.trust
    while True:
        before = run.ledger.count
        if cancellable:
            await _check_cancelled(run)
        for step, may_act in steps:
            if may_act is not None and not may_act(run):
                continue
            # Race: while a step awaits, an actor's `cancel` is recorded and the task is cancelled,
            # but a tool or model may swallow that and return as if nothing had happened. So the
            # state is checked before each step
            # (test_a_tool_that_swallows_its_cancellation_does_not_save_the_run).
            if current.cancelled is not None:
                return _cancelled(run)
            if root.halt is not None:
                return halted(run)
            if is_to_end is not None and is_to_end():
                if run.timed:
                    run.keep_time()
                raise AttemptEnded
            if trust.stops is not run.passed_stops:
                end_if_stopped(run)
            try:
                outcome = await step(run)
                if outcome is None:
                    if step is may_close and current.turn is None:
                        break  # the last result has closed the turn: the others would do nothing
                    continue
                if not isinstance(outcome, OUTCOMES):
                    raise TypeError(f"a step returns None or an Outcome, got {outcome!r}")
            except RecordRefused as refused:
                return run.failed(_step_error(step, refused))
            except (HookFailed, JournalFailed):
                raise
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                return run.failed(_step_error(step, error))
            except Exception as error:
                return run.failed(_step_error(step, error))
            return outcome
        if run.ledger.count == before:
            cause = f"the steps {', '.join(mode.step_names)} ran and recorded nothing"
            return run.failed(StepFailed(step="pipeline", cause=cause))


async def _check_cancelled(run: Run) -> None:
    """Call the cancellation sources and check the deadline, whatever else is signalled.

    Not in a halted tree: a halt takes precedence over both.
    """
    if run.root.current.halt is not None:
        return
    await check_sources(run)
    if run.current.cancelled is None and run.seconds_left == 0.0:
        run.record(deadline_reached(run))


def _cut_off(run: Run) -> Outcome:
    """The outcome of a run that its deadline cut off.

    Without a recorded cancellation a halt was recorded first, and takes precedence
    (`test_a_halt_stands_where_the_time_is_over_before_its_siblings_are_done`).
    """
    return halted(run) if run.current.cancelled is None else _cancelled(run)


def _cancelled(run: Run) -> Stopped:
    signal = run.current.cancelled
    assert signal is not None, "a cancellation is recorded before the run ends by it"
    return run.stopped(StopSignals((StopSignal.from_dict(signal),)))


async def _call_on_resume(run: Run) -> None:
    """Call `on_resume` with the decisions about open calls that it has not seen yet."""
    current = run.current
    decisions = {
        f"on_resume/{request_id}": (request_id, decision)
        for call in current.calls
        for request_id, decision in call.decisions.items()
    }
    new = {key: pair for key, pair in decisions.items() if key not in current.once}
    if new:
        for hook in run.definition.hooks.on_resume:
            await hook(run.threads, run, deepcopy(dict(new.values())))
        run.record(*(Once(key=key, value=None) for key in new))


def _step_error(step: Step, error: BaseException) -> UnderstudyError:
    if isinstance(error, UnderstudyError):
        return error
    failure = StepFailed(step=name_of_step(step), cause=error_text(error))
    failure.__cause__ = error
    return failure


async def _finish(run: Run, outcome: Outcome) -> Outcome:
    """Record the outcome if it ends the run, and return it with the state of that moment.

    The outcome is returned only when all records are durable: what a caller has seen must not be
    lost in a crash (`test_nothing_is_visible_before_its_commit`).
    """
    if run.timed:
        run.keep_time()
    is_over = isinstance(outcome, (Completed, Stopped, Failed))
    if isinstance(outcome, (Completed, Stopped, Failed)):
        outcome = await _end(run, outcome)
    # The state before the wait: what others record meanwhile is in a later commit
    # (test_an_outcome_tells_nothing_that_was_recorded_while_it_waited). A ledger that nobody
    # continues with gives its state to the outcome without a copy.
    state = run.state if run.has_own_state else run.state.copied()
    run.closed = True  # from here on `_accepts_late_result` and `Run.signal` refuse
    await (run.ledger.end_is_durable() if is_over else run.durable())
    if outcome.state is state and outcome.usage is state.usage:
        return outcome
    return replace(outcome, state=state, usage=state.usage)


async def _end(run: Run, outcome: Completed | Stopped | Failed) -> Completed | Stopped | Failed:
    """Call `on_run_end` and record the end. A hook that fails here fails the run."""
    outcome = await call_end_hooks(run, outcome)
    try:
        end = end_of(run, outcome)
        closes_turn, status = end is run.ends_by, status_after(run, end)
        end_run(run.ledger, end, run.clock.now(), closes_turn=closes_turn, status=status)
    except RecordRefused as refused:  # its error, or its signals, are too large to be stored
        outcome = run.failed(refused)
        end = end_of(run, outcome)
        end_run(run.ledger, end, run.clock.now(), status=status_after(run, end))
    return outcome
