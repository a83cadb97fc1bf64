"""The exit codes, on which scripts rely, and the codes of errors."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

import typer

from understudy.cli.ctrl_c import end_by_ctrl_c
from understudy.cli.output import complain
from understudy.errors import StoreUnavailable, UnderstudyError

DONE = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
STALE = 4
STORE = 5
INTERRUPTED, PAUSED, STOPPED, RUN_FAILED = 10, 11, 12, 13
OUTCOMES = {
    "completed": DONE,
    "interrupted": INTERRUPTED,
    "paused": PAUSED,
    "stopped": STOPPED,
    "withdrawn": STOPPED,
    "failed": RUN_FAILED,
}
"""The exit codes of `run --wait`, by the outcome of the run."""
_OF_STATUS = {400: USAGE, 404: NOT_FOUND, 409: STALE, 422: STALE, 503: STORE, 504: STORE}
_OF_NAMES = {
    **dict.fromkeys(("LoginNeeded", "NoApi", "OwnedElsewhere", "StoreUnavailable"), STORE),
    **dict.fromkeys(("Fenced", "RecordRefused", "SchemaVersionError"), STORE),
    "VoteRefused": STALE,
    **dict.fromkeys(("Expired", "UnknownMessage", "UnknownToken"), USAGE),
    **dict.fromkeys(("NoProgress", "OtherAgent", "OtherWorkflow", "SearchOff"), USAGE),
    **dict.fromkeys(("ForkedRuntime", "LoopNotRunning", "WouldDeadlock"), USAGE),
}
"""The codes of a server's problems, if they differ from the codes of their statuses."""
_OF_ERRORS = {
    "UnknownAgent": NOT_FOUND,
    **dict.fromkeys(("RuntimeStopped", "OutOfDescriptors", "PeopleUnavailable"), STORE),
    **dict.fromkeys(("OwnedElsewhere", "StoreError", "JournalFailed"), STORE),
    **dict.fromkeys(("StoreDamaged", "SchemaVersionError"), STORE),
    **dict.fromkeys(("NotInterrupted", "OtherRun", "ApprovalNeeded", "DecisionError"), STALE),
    "UsageError": USAGE,
}
"""The codes of errors, by class name, so that a command imports only what it needs."""
F = TypeVar("F", bound=Callable[..., Any])


_to_close: ContextVar[ExitStack] = ContextVar("_to_close")


def close_at_end(close: Callable[[], None]) -> None:
    """Call a function when the command ends, however it ends."""
    _to_close.get().callback(close)


class Refusal(Exception):
    """The error of a command that cannot do what it is asked to do."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def refuse(code: int, message: str) -> NoReturn:
    """End the command with this code, and a message on standard error."""
    raise Refusal(code, message)


class NoAnswer(Exception):
    """The error of a server that cannot be reached, or has not answered."""


class ApiProblem(Exception):
    """The error of a request that the server has refused."""

    def __init__(self, status: int, data: dict[str, Any]) -> None:
        super().__init__(str(data.get("detail") or f"the server answered {status}"))
        self.status = status
        self.error: str = str(data.get("error") or "")
        self.data = data

    @property
    def code(self) -> int:
        """The exit code of this problem."""
        if self.error in _OF_NAMES:
            return _OF_NAMES[self.error]
        if self.error in ("AgentDeleted", "UnknownAgent"):
            return NOT_FOUND
        return _OF_STATUS.get(self.status, FAILED)


def code_of(error: Exception) -> int:
    """The exit code of an error."""
    if isinstance(error, (Refusal, ApiProblem)):
        return error.code
    if isinstance(error, NoAnswer):
        return STORE
    # The order matters: a class may match several entries.
    names = {kind.__name__ for kind in type(error).__mro__}
    return next((code for name, code in _OF_ERRORS.items() if name in names), FAILED)


def message_of(error: Exception) -> str:
    """The text of an error for a person. Notes about running runs are for the server, not for
    commands.
    """
    if isinstance(error, StoreUnavailable):
        return f"the store cannot be reached: {error.cause}"
    from understudy._base.json_values import text_of

    return text_of(error)


def with_exit_codes(command: F) -> F:
    """The command with its errors as a line on standard error and an exit code, without a
    traceback.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with ExitStack() as stack:
                _to_close.set(stack)
                return command(*args, **kwargs)
        except KeyboardInterrupt as error:
            end_by_ctrl_c(error)
        except BrokenPipeError:  # the reader has enough, such as `head`
            # The rest of the buffer goes nowhere when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(DONE) from None
        except NoAnswer as error:
            complain(f"the server does not answer: {error}")
            raise typer.Exit(STORE) from None
        except (Refusal, ApiProblem) as error:
            complain(str(error))
            raise typer.Exit(error.code) from None
        except UnderstudyError as error:
            complain(message_of(error))
            raise typer.Exit(code_of(error)) from None

    return run  # type: ignore[return-value]  # it has the signature of the command
