"""The end of a run: its `on_run_end` hooks, and the end as a record and as an outcome."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from understudy._base.log_fields import log_extra
from understudy.errors import JournalFailed, error_from_dict
from understudy.outcomes import Completed, Failed, Stopped, ToolCallResult
from understudy.run.definition import AgentDefinition
from understudy.run.hooks import HookFailed
from understudy.run.ledger import close_calls
from understudy.run.run import AttemptEnded, Run, inside_run
from understudy.state.agent_state import AgentState
from understudy.state.children import agents_of_call
from understudy.state.records import End, Once
from understudy.state.run_state import END_HOOKS
from understudy.stopping import StopSignal, StopSignals

logger: logging.Logger = logging.getLogger(__name__)

Ended = Completed | Stopped | Failed


def withdrawn_by(message: str) -> StopSignals:
    """The signals that `on_run_end` sees where a run is withdrawn. They are not recorded."""
    return StopSignals((StopSignal.stop_requested(message, source="withdrawn"),))


WITHDRAWN: StopSignals = withdrawn_by("a new message took the place of the run")
_ENDED_ABOVE = withdrawn_by("the run that it was part of ended")


async def call_end_hooks(run: Run, outcome: Ended, *, final: bool = False) -> Ended:
    """Call `on_run_end` for a run that ends now, and before it for the open runs inside it.

    The caller records the end afterwards, so a crash in between calls them again.

    Args:
        run: the run that ends.
        outcome: how it ends.
        final: the outcome is settled: whatever a hook raises is logged only. Otherwise a hook that
            fails makes a completed or stopped run fail, and a `SystemExit` is raised.

    """
    if not run.definition.hooks.on_run_end and not run.state.children:
        return outcome
    ledger = run.root.ledger
    ledger.check_fence()  # what a later ledger ends is not ended here, too
    called: list[tuple[Run, str]] = []
    cancelled = run.root.current.cancelled

    def cut_off() -> None:
        # Race: a cancel that is recorded now, while the hooks run, cuts them off; the run is then
        # ended as cancelled, by hooks again. One that never returns would make that hang, too. So
        # these are not called again (test_a_hook_at_the_end_that_hangs_is_cut_off_by_a_cancel,
        # test_a_hook_at_the_end_that_goes_on_after_a_cancel_is_not_called_again).
        wish = run.root.current.cancelled
        if wish is not None and wish is not cancelled:
            for each, key in called:
                each.record(Once(key=key, value=None))

    ledger.on_fence += (cut_off,)
    try:
        return await _call_end_hooks(run, outcome, called, final=final)
    except asyncio.CancelledError:
        cut_off()
        raise
    finally:
        ledger.on_fence = tuple(call for call in ledger.on_fence if call is not cut_off)


async def _call_end_hooks(
    run: Run, outcome: Ended, called: list[tuple[Run, str]], *, final: bool
) -> Ended:
    signals = outcome.signals if isinstance(outcome, Stopped) else _ENDED_ABOVE
    for child in _open_children(run):
        await _call_end_hooks(child, child.stopped(signals), called, final=True)
    settled = final or run.current.cancelled is not None
    token = inside_run.set(run)
    try:
        for index, hook in enumerate(run.definition.hooks.on_run_end):
            key = f"{END_HOOKS}{index}"
            if key in run.current.once:
                continue
            called.append((run, key))
            try:
                await hook(run.threads, run, outcome)
            except HookFailed as failure:
                if settled or isinstance(outcome, Failed):
                    logger.error(
                        "%s: %s",
                        run.agent_id,
                        failure.error,
                        exc_info=failure,
                        extra=log_extra(run.agent_id, run.run_id),
                    )
                else:
                    outcome = run.failed(failure.error)
            except (asyncio.CancelledError, JournalFailed, AttemptEnded):
                raise
            except BaseException as error:
                # A crash here would keep a cancelled run from ever ending, and lose the message
                # that withdraws a run
                # (test_an_end_hook_that_kills_a_cancelled_run_is_not_called_again,
                # test_an_end_hook_that_kills_a_withdrawn_run_does_not_lose_the_new_message).
                if not final:
                    raise
                logger.error(
                    "%s: %s",
                    run.agent_id,
                    hook.failure(error),
                    exc_info=error,
                    extra=log_extra(run.agent_id, run.run_id),
                )
    finally:
        inside_run.reset(token)
    return outcome


def _open_children(run: Run, call_key: str | None = None) -> list[Run]:
    """The runs inside this one, or inside this call of it, that are open."""
    children = run.state.children
    keys = list(children) if call_key is None else agents_of_call(children, call_key)
    return [child for key in keys if (child := run.children.view(run, key)) is not None]


async def end_agents_of(run: Run, call_key: str) -> None:
    """Call `on_run_end` for the open runs of agents that this call leaves: it has its result."""
    if run.state.children:
        for child in _open_children(run, call_key):
            await call_end_hooks(child, child.stopped(_CALL_ENDED), final=True)
            close_calls(child.ledger, run.clock.now())


_CALL_ENDED = withdrawn_by("the call that it was for ended without it")


def end_of(run: Run, outcome: Completed | Stopped | Failed) -> End:
    """The end to record for an outcome; the one that a turn decided takes precedence."""
    if isinstance(outcome, Stopped):
        return End(outcome="stopped", signals=outcome.signals.to_dict())
    if isinstance(outcome, Failed):
        return End(outcome="failed", error=outcome.error.to_dict())
    closing = run.current.closing or run.ends_by
    if closing is not None and closing.outcome == "completed" and closing.text == outcome.text:
        return closing
    return End(outcome="completed", text=outcome.text, early_stopped=outcome.early_stopped)


def status_after(run: Run, end: End) -> str | None:
    """The status that this end gives the agent; None if the agent does not come to rest by it."""
    status_after = run.environment.status_after
    return None if status_after is None or run.parent is not None else status_after(end)


async def final_end(run: Run, text: str) -> End:
    """The end of a run by a final text, with the output parsed from it.

    Raises:
        InvalidOutput: if the text is not a value of the output type.

    """
    output = run.definition.output
    if output is None:
        return End(outcome="completed", text=text)
    value = output.read(text) if output.reader is None else await output.reader(run, text)
    key = output.key if output.typed or text else None
    if not output.typed:
        return End(outcome="completed", text=text, output_key=key)
    return End(outcome="completed", text=text, output=value, has_output=True, output_key=key)


def outcome_of(
    end: End, state: AgentState, definition: AgentDefinition, live: dict[str, object]
) -> Completed | Stopped | Failed:
    """The outcome that `end` records.

    Args:
        end: how the run ended.
        state: the state after the run.
        definition: of the agent, to rebuild the output and the until tool's value by their types.
        live: return values of until tools that this process still has, by call key.

    """
    run = state.run
    assert run is not None, "an end belongs to a run"
    if end.outcome == "failed":
        assert end.error is not None, "a failed end has an error"
        error = error_from_dict(end.error)
        return Failed(error=error, run_id=run.run_id, state=state, usage=run.usage)
    if end.outcome in ("stopped", "withdrawn"):
        signals = WITHDRAWN if end.signals is None else StopSignals.from_dict(end.signals)
        return Stopped(signals=signals, run_id=run.run_id, state=state, usage=run.usage)
    tool_result = None
    if end.tool_call is not None:
        tool_result = _tool_result(end, state, definition, live)
    results = run.progress.results if run.progress is not None else {}
    return Completed(
        text=end.text,
        tool_result=tool_result,
        early_stopped=end.early_stopped,
        output=_output(end, definition),
        results=tuple(results[index] for index in sorted(results)),
        run_id=run.run_id,
        state=state,
        usage=run.usage,
    )


def _output(end: End, definition: AgentDefinition) -> Any:
    if not end.has_output:
        return definition.untyped(end.text)
    try:
        return definition.output.load(end.output) if definition.output is not None else end.output
    except ValueError:  # the type has changed since: the stored data is all there is
        return end.output


def _tool_result(
    end: End, state: AgentState, definition: AgentDefinition, live: dict[str, object]
) -> ToolCallResult:
    run = state.run
    assert run is not None, "an end belongs to a run"
    assert run.ended_call is not None, "the turn that ended by a tool kept its call"
    assert end.tool_call is not None, "the end names its call"
    result, part = run.ended_by[end.tool_call], run.ended_call
    lost = result.value_is == "lost" and end.tool_call not in live
    value: object = None
    failed = result.part.outcome != "success"
    if failed:
        lost = False
    elif end.tool_call in live:
        value = live[end.tool_call]
    elif not lost:
        stored = result.value if result.value_is == "separate" else result.part.content
        try:
            tool = definition.tool_of(part.tool_name)
            value = tool.load_value(stored) if tool is not None else stored
        except ValueError:  # the return annotation does not accept it
            given = result.value_is == "given"
            value, lost = (stored, False) if given else (None, True)
    return ToolCallResult(
        tool_name=part.tool_name,
        call_key=end.tool_call,
        tool_call_id=part.tool_call_id,
        arguments=dict(end.tool_arguments or {}),
        content=result.part.content,
        value=value,
        is_error=failed,
        value_lost=lost,
        metadata=result.part.metadata,
    )
