"""Placeholder until the table is merged."""

from __future__ import annotations

import socket
from enum import Enum
from typing import Any

from understudy.tools.result import InvalidArguments, Retry, ToolFailed


class Known(Enum):
    NOTHING_HAPPENED = "n"
    FAILED = "f"
    UNKNOWN = "u"


Errors = Any


def checked_errors(given: Any, *, what: str) -> Any:
    if isinstance(given, (type, str)):
        given = (given,)
    return tuple(given)


def check_tables(nothing_happened: Any, unknown_after: Any, *, what: str) -> None: ...
def what_is_known(
    error: BaseException,
    *,
    nothing_happened: Any = (),
    unknown_after: Any = (),
    is_strict: bool = False,
) -> Known:
    if isinstance(error, BaseExceptionGroup):
        ks = {
            what_is_known(
                e,
                nothing_happened=nothing_happened,
                unknown_after=unknown_after,
                is_strict=is_strict,
            )
            for e in error.exceptions
        }
        return next(
            (k for k in (Known.UNKNOWN, Known.FAILED, Known.NOTHING_HAPPENED) if k in ks),
            Known.FAILED,
        )
    if any(isinstance(t, type) and isinstance(error, t) for t in nothing_happened):
        return Known.NOTHING_HAPPENED
    if any(isinstance(t, type) and isinstance(error, t) for t in unknown_after):
        return Known.UNKNOWN
    own = (Retry, ToolFailed, InvalidArguments)
    if is_strict:
        return Known.NOTHING_HAPPENED if isinstance(error, own) else Known.UNKNOWN
    if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
        return Known.NOTHING_HAPPENED
    if isinstance(error, (TimeoutError, ConnectionError)):
        return Known.UNKNOWN
    return Known.FAILED
