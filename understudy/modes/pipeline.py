"""A mode is a tuple of named async steps, and the driver runs them in a circle.

A step gets the `Run`. It looks at the state, does what is still missing, and returns None to go on
or an `Outcome` to end. Because every step looks before it acts, running, resuming and recovering
are one operation: load the facts, run the pipeline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from copy import deepcopy
from dataclasses import replace

from understudy.errors import JournalFailed, RecordRefused, StepFailed, UnderstudyError, UsageError
from understudy.modes.steps.check_stop import ask_sources, halted, time_is_over, within_deadline
from understudy.modes.steps.run_end import end_of
from understudy.outcomes import Completed, Failed, Interrupted, Outcome, Paused, Stopped
from understudy.run.definition import ChildAgent, Pipeline
from understudy.run.hooks import HookFailed
from understudy.run.run import Halted, Run, inside_run
from understudy.state.records import Attempt, HooksRan, Once, RunEnded
from understudy.stopping import StopSignal, StopSignals

__all__ = ["Mode", "Step", "run_pipeline"]

OUTCOMES = (Completed, Interrupted, Paused, Stopped, Failed)
Step = Callable[[Run], Awaitable[Outcome | None]]


class Mode:
    """Named steps in reading order. `repr(mode)` prints the pipeline.

    Args:
        steps: async functions of the run; a step's name is its function's name.
        name: what `repr` shows.

    Raises:
        UsageError: if there is no step, or two have one name.

    """

    def __init__(self, steps: Iterable[Step], *, name: str | None = None) -> None:
        self.steps = tuple(steps)
        self._name = name or type(self).__name__
        if not self.steps:
            raise UsageError(f"Mode {self.name!r} has no steps: it would go round for ever")
        for step in self.steps:
            if not _is_async(step):
                raise UsageError(f"Mode {self.name!r}: {step!r} is no step: an async function is")
        names = self.step_names
        for name_ in names:
            if names.count(name_) > 1:
                raise UsageError(f"Mode {self.name!r} has two steps named {name_!r}")

    @property
    def name(self) -> str:
        """What `repr` shows."""
        return self._name

    @property
    def agents(self) -> tuple[ChildAgent, ...]:
        """The agents that its steps run, as those of a workflow; mostly none."""
        return tuple(agent for step in self.steps for agent in getattr(step, "agents", ()))

    @property
    def step_names(self) -> tuple[str, ...]:
        """The names of the steps, in order."""
        return tuple(_name_of(step) for step in self.steps)

    def __repr__(self) -> str:
        return f"{self.name}({' → '.join(self.step_names)})"

    def replacing(self, name: str, step: Step) -> Mode:
        """The mode with `step` in the place of the step `name`."""
        index = self._index(name)
        return self._with((*self.steps[:index], step, *self.steps[index + 1 :]))

    def inserting(self, *, step: Step, after: str | None = None, before: str | None = None) -> Mode:
        """The mode with `step` right after, or right before, the step of that name."""
        if (after is None) is (before is None):
            raise UsageError("inserting(step=...) takes exactly one of after= and before=")
        index = self._index(after) + 1 if after is not None else self._index(before or "")
        return self._with((*self.steps[:index], step, *self.steps[index:]))

    def without(self, name: str) -> Mode:
        """The mode less the step `name`."""
        index = self._index(name)
        return self._with((*self.steps[:index], *self.steps[index + 1 :]))

    def _with(self, steps: tuple[Step, ...]) -> Mode:
        return Mode(steps, name=self.name)

    def _index(self, name: str) -> int:
        names = self.step_names
        if name not in names:
            raise UsageError(f"{self.name} has no step {name!r}; it has: {', '.join(names)}")
        return names.index(name)


def _is_async(step: object) -> bool:
    return asyncio.iscoroutinefunction(step) or asyncio.iscoroutinefunction(
        getattr(step, "__call__", None)  # noqa: B004  # an object may be a step, too
    )


def _name_of(step: Step) -> str:
    return getattr(step, "__name__", type(step).__name__)


async def run_pipeline(run: Run, mode: Pipeline) -> Outcome:
    """Run the pipeline until an outcome. A run that stood somewhere goes on from there."""
    token = inside_run.set(run)
    try:
        current = run.current
        run.driven()
        asks = current.workflow is None  # a workflow has no replies of its own to lose
        lost = asks and current.attempts > 0 and current.turn is None
        run.record(Attempt(number=current.attempts + 1, reply_lost=lost))
        if current.attempts > 1 or run.state.message_ids:
            # Before anything that may bring the process down: else nobody counts it (J10).
            await run.durable()
        try:
            if current.deadline is None:
                outcome = await _loop(run, mode)
            else:
                in_time = await within_deadline(run, _loop(run, mode))
                outcome = in_time if in_time is not None else _overtaken(run)
        except HookFailed as failure:
            outcome = run.failed(failure.error)
        return await _finish(run, outcome)
    finally:
        inside_run.reset(token)


async def _loop(run: Run, mode: Pipeline) -> Outcome:
    current, root = run.current, run.root.current
    if root.halt is not None:
        return halted(run)
    if current.paused is not None:
        return run.paused(current.paused)
    watched = bool(run.cancellation) or current.deadline is not None
    if watched:
        await _check_cancelled(run)
        if current.cancelled is not None:
            return _cancelled(run)
    if not current.hooks_ran:
        for hook in run.definition.hooks.on_run_start:
            await hook(run.threads, run)
        if run.definition.hooks.on_run_start:
            run.record(HooksRan())
    if run.definition.hooks.on_resume:
        await _tell_answers(run)
    steps = mode.steps
    while True:
        before = run.ledger.count
        if watched:
            await _check_cancelled(run)
        for step in steps:
            if current.cancelled is not None:
                return _cancelled(run)
            if root.halt is not None:
                return halted(run)
            if run.halting is not None and run.halting():
                if run.timed:
                    run.keep_time()
                raise Halted
            try:
                outcome = await step(run)
                if outcome is not None and not isinstance(outcome, OUTCOMES):
                    raise TypeError(f"a step returns None or an Outcome, not {outcome!r}")
            except RecordRefused as refused:
                return run.failed(_step_error(step, refused))
            except (HookFailed, JournalFailed):
                raise
            except Exception as error:
                return run.failed(_step_error(step, error))
            if outcome is not None:
                return outcome
        if run.ledger.count == before:
            cause = f"the steps {', '.join(mode.step_names)} went round and recorded nothing"
            return run.failed(StepFailed(step="pipeline", cause=cause))


async def _check_cancelled(run: Run) -> None:
    """Whatever else stands, a run is asked before each step whether it is cancelled (P7, P9).

    But for a halt: that beats everything else (I11).
    """
    if run.root.current.halt is not None:
        return
    await ask_sources(run)
    if run.current.cancelled is None and run.seconds_left == 0.0:
        run.record(time_is_over(run))


def _overtaken(run: Run) -> Outcome:
    """How a run stands whose time was over in the middle of something."""
    return halted(run) if run.current.cancelled is None else _cancelled(run)


def _cancelled(run: Run) -> Stopped:
    wish = run.current.cancelled
    assert wish is not None, "what ends a drive from outside is recorded before"
    return run.stopped(StopSignals((StopSignal.from_dict(wish),)))


async def _tell_answers(run: Run) -> None:
    """Call `on_resume` with the answers of the open turn that it was not told of yet."""
    current = run.current
    if current.turn is None:
        return
    keys = {
        f"on_resume/{request_id}": (request_id, decision)
        for call in current.turn.calls.values()
        for request_id, decision in call.decisions.items()
    }
    news = {key: pair for key, pair in keys.items() if key not in current.once}
    if news:
        for hook in run.definition.hooks.on_resume:
            await hook(run.threads, run, deepcopy(dict(news.values())))
        run.record(*(Once(key=key, value=None) for key in news))


def _step_error(step: Step, error: Exception) -> UnderstudyError:
    if isinstance(error, UnderstudyError):
        return error
    failure = StepFailed(step=_name_of(step), cause=f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


async def _finish(run: Run, outcome: Outcome) -> Outcome:
    """Record how the run stands, then tell it: nothing visible precedes its commit (J16)."""
    if run.timed:
        run.keep_time()
    if isinstance(outcome, (Completed, Stopped, Failed)):
        outcome = await _end(run, outcome)
    await run.durable()
    run.closed = True
    state = run.state.copied()
    return replace(outcome, state=state, usage=state.usage)


async def _end(run: Run, outcome: Completed | Stopped | Failed) -> Completed | Stopped | Failed:
    """Record the end. A failed run skips `on_run_end` (R4); one whose hook fails, failed.

    So does one that was cancelled before its `on_run_start`.
    """
    hooks = run.definition.hooks
    began = run.current.hooks_ran or not hooks.on_run_start
    for hook in hooks.on_run_end:
        if isinstance(outcome, Failed) or not began:
            break
        try:
            await hook(run.threads, run, outcome)
        except HookFailed as failure:
            outcome = run.failed(failure.error)
    try:
        run.record(RunEnded(end=end_of(run, outcome), at=run.clock.now()))
    except RecordRefused as refused:  # its error, or its signals, say too much
        outcome = run.failed(refused)
        run.record(RunEnded(end=end_of(run, outcome), at=run.clock.now()))
    return outcome
