"""A call in doubt whose tool has a `check`: when the check is asked, and what it finds.

The call waits at a point, as one that sleeps does: its agent may be passive meanwhile, and any host
asks when the time has come. A person may settle the doubt before that, and then nothing is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from understudy._base.error_texts import error_text
from understudy._base.event_loops import is_cancelled
from understudy._base.json_values import shown
from understudy.modes.steps.tool_call.arguments import ReadyCall, canonical
from understudy.modes.steps.tool_call.ends import uncancel_after_task_group
from understudy.run.run import Run, log_fields
from understudy.run.tool_call import make_context
from understudy.run.waits.points import CHECK
from understudy.state.records import PointReached
from understudy.state.run_state import Call
from understudy.tools import DidNotHappen, Happened, Unknown
from understudy.tools.checks import Found
from understudy.tools.schema import is_async

logger: logging.Logger = logging.getLogger(__name__)

CHECK_SECONDS = 60.0
"""The maximum seconds of a check."""
SETTLES_AFTER = 60.0
"""Seconds from a call's last sign of life until `DidNotHappen` counts."""

_bodies: dict[tuple[str, int], datetime | None] = {}
"""Bodies of tools with a check, by call key and attempt: None while the body runs in this process;
the time at which it ended, if its call was in doubt by then."""


def noted_while_it_runs(run: Run, ready: ReadyCall) -> Callable[..., Any]:
    """The function of a tool with a check, which notes whether its body still runs.

    The body may run after its call is given up: a thread, or async code that ignores its
    cancellation, continues.
    """
    tool, call = ready.tool, ready.call

    @contextlib.contextmanager
    def noted() -> Iterator[None]:
        attempt = call.key, call.attempts
        _bodies[attempt] = None
        try:
            yield
        finally:
            if call.check is None:
                _bodies.pop(attempt, None)  # two copies of a state may run in one process
            else:
                _bodies[attempt] = run.clock.now()

    def plain(*positional: Any, **keywords: Any) -> Any:
        with noted():
            return tool.function(*positional, **keywords)

    async def on_loop(*positional: Any, **keywords: Any) -> Any:
        with noted():
            return await tool.function(*positional, **keywords)

    return on_loop if tool.is_async else plain


def _is_early(run: Run, call: Call) -> bool:
    """Whether it is too early to see the effect of a call in doubt."""
    assert call.check is not None, "its check was asked"
    attempts = [(call.key, number) for number in range(1, call.attempts + 1)]
    signs = [call.check.since, *(_bodies[each] for each in attempts if each in _bodies)]
    times = [sign for sign in signs if sign is not None]
    if len(times) < len(signs):
        return True  # a body still runs
    is_early = run.clock.now() - max(times) < timedelta(seconds=SETTLES_AFTER)
    for attempt in () if is_early else attempts:
        _bodies.pop(attempt, None)
    return is_early


def wait_for_check(run: Run, ready: ReadyCall, reason: str) -> bool:
    """Record that the call is in doubt and waits for its next check; False if there is none.

    The times count from the moment at which the doubt was found: nobody knows when a process that
    was cut off did its last thing.
    """
    call, now = ready.call, run.clock.now()
    since = now if call.check is None or call.check.since is None else call.check.since
    dues = (since + timedelta(seconds=after) for after in ready.tool.check_after)
    due = next((due for due in dues if due > now), None)
    if due is None:
        return False
    name = f"{CHECK}{call.checks + 1}"
    run.record(
        PointReached(call_key=call.key, name=name, what="check", at=now, due=due, reason=reason)
    )
    return True


async def ask_check(run: Run, ready: ReadyCall) -> Found:
    """What the check finds: `Unknown` if it cannot tell, raises, or takes too long.

    `DidNotHappen` counts as `Unknown` while it may be too early.
    """
    found = await _asked(run, ready)
    # Race: what is being done at this moment cannot be found yet
    # (test_that_nothing_happened_does_not_count_too_early), and a thread that was given up after
    # its limit may do it yet (test_that_nothing_happened_does_not_count_while_the_body_goes_on).
    waits = ready.call.check is not None
    is_void = waits and isinstance(found, DidNotHappen) and _is_early(run, ready.call)
    return Unknown() if is_void else found


async def _asked(run: Run, ready: ReadyCall) -> Found:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            found = await _call(run, ready)
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        return _not_known(ready, error_text(error))
    except (Exception, BaseExceptionGroup, SystemExit) as error:
        if isinstance(error, BaseExceptionGroup):
            uncancel_after_task_group(run)
        return _not_known(ready, error_text(error))
    if isinstance(found, (Happened, DidNotHappen, Unknown)):
        return found
    return _not_known(
        ready, f"it returned {shown(found)}, which is no Happened, DidNotHappen or Unknown"
    )


async def _call(run: Run, ready: ReadyCall) -> Any:
    check = ready.tool.check
    assert check is not None, "only a call whose tool has one waits for it"
    context = make_context(run, ready.call, is_check=True)
    arguments = canonical(ready)
    if is_async(check):
        found: Any = check(context, arguments)
    else:
        found = await run.threads.run(check, context, arguments)
    return await found if inspect.isawaitable(found) else found


def _not_known(ready: ReadyCall, why: str) -> Unknown:
    logger.warning(
        "the check of tool %r could not tell what call %s did: %s",
        ready.tool.name,
        ready.call.key,
        why,
        extra=log_fields(),
    )
    return Unknown()
