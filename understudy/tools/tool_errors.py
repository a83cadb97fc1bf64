"""The errors that tools raise by accident: what the log says of them."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Literal, cast, get_args

from understudy._base.error_texts import error_text
from understudy._base.json_values import shown
from understudy._base.log_fields import log_extra
from understudy.errors import UsageError

logger: logging.Logger = logging.getLogger(__name__)

ToolErrors = Literal["log", "traceback", "raise"]
"""What happens with an error of a tool, in addition to its text for the model: the log gets its
first line, or its traceback, or the run fails by it."""

QUIET_SECONDS = 60.0
"""Seconds after a log entry in which errors of the same tool and class are only counted."""


def checked_tool_errors(given: object, *, what: str) -> ToolErrors | None:
    """`given`, if it is a `ToolErrors` or None; else raise a `UsageError`."""
    if given not in (None, *get_args(ToolErrors)):
        raise UsageError(
            f"{what}: `tool_errors` must be 'log', 'traceback' or 'raise', got {shown(given)}"
        )
    return cast("ToolErrors | None", given)


class _Entries:
    """The last log entries about one tool, so that a tool that fails again and again floods no
    log.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[type[BaseException], tuple[float, int]] = {}
        """By error class, the time of the last entry in seconds of a monotonic clock, and the
        number of errors since."""

    def since_last(self, kind: type[BaseException], now: float) -> int | None:
        """The number of errors of the class since the last entry; None if no entry is due yet."""
        with self._lock:
            last, count = self._last.get(kind, (None, 0))
            if last is not None and 0 <= now - last < QUIET_SECONDS:
                self._last[kind] = last, count + 1
                return None
            self._last[kind] = now, 0
            return count


_entries: weakref.WeakKeyDictionary[object, _Entries] = weakref.WeakKeyDictionary()


def log_tool_error(
    tool: object,
    error: Exception,
    *,
    name: str,
    agent: str,
    agent_id: str,
    run_id: str,
    hint: str,
    now: float,
    with_traceback: bool,
) -> None:
    """Log that the tool of an agent raised an error, which its model gets as a text.

    Args:
        tool: the tool that raised it.
        error: the error.
        name: the name of the tool.
        agent: the name of the agent.
        agent_id: the id of the agent.
        run_id: the id of the run.
        hint: the possible cause, in brackets; empty if unknown.
        now: the time, in seconds of a monotonic clock.
        with_traceback: whether the entry has the traceback of the error.

    """
    extra = log_extra(agent_id, run_id)
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("the traceback of an error of tool %r", name, exc_info=error, extra=extra)
    entries = _entries.setdefault(tool, _Entries())
    count = entries.since_last(type(error), now)
    if count is None:
        return
    lines = error_text(error).splitlines()
    logger.warning(
        "tool %r of agent %r raised %s%s%s",
        name,
        agent,
        lines[0] if lines else type(error).__name__,
        hint,
        f" (and {count:,} more times since the last entry about it)" if count else "",
        exc_info=error if with_traceback else None,
        extra=extra,
    )
