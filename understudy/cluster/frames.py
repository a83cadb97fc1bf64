"""The frames between a cluster and its hosts."""

from __future__ import annotations

import dataclasses
import pickle  # both ends are processes of one program, which the cluster itself starts
from collections.abc import Callable
from typing import Any, NamedTuple

from understudy._base.json_values import shown, text_of
from understudy.approvals import Caller
from understudy.errors import UsageError
from understudy.outcomes import Completed, Failed, Interrupted, Paused, Stopped, Waiting
from understudy.state.agent_state import AgentState
from understudy.state.loaded_later import LoadedLater, Place

_OUTCOMES = (Completed, Interrupted, Waiting, Paused, Stopped, Failed)


class Target(NamedTuple):
    """What a call is made on: the runtime, where `id` is empty, or the agent of this id."""

    id: str = ""
    agent: str | None = None
    """The definition with which it is spawned; None where it must be there."""
    values: dict[str, Any] | None = None
    caller: Caller | None = None
    """Who calls, where a login says it."""


class Call(NamedTuple):
    """A call to a host."""

    number: int
    target: Target
    method: str
    arguments: bytes
    """The pickled positional and keyword arguments, and the context of the caller."""


class Drain(NamedTuple):
    """Take no more calls, release all agents, and end."""


class Greeting(NamedTuple):
    """The first frame of a process: it is ready."""

    pid: int
    node: str
    host: str
    """As the store names it: the owner of its agents."""
    agents: tuple[str, ...]
    """The names of its definitions."""
    makes: bool
    """Whether it makes others by a factory."""


class CannotStart(NamedTuple):
    """The first and last frame of a process that cannot start."""

    error: Exception


class Answer(NamedTuple):
    """What came of a call."""

    number: int
    is_error: bool
    body: bytes
    """The pickled value, or the error. It is read apart: it may be of a class that the cluster's
    process cannot import, and the number must be read all the same."""

    def read(self) -> tuple[Any, Exception | None]:
        """The value, or the error."""
        try:
            found = loads(self.body)
        except Exception as error:
            why = f"the answer of a host cannot be read in this process: {text_of(error)}"
            return None, UsageError(why)
        return (None, found) if self.is_error else (found, None)


def dumps(frame: object) -> bytes:
    return pickle.dumps(frame, protocol=pickle.HIGHEST_PROTOCOL)


def loads(frame: bytes) -> Any:
    return pickle.loads(frame)  # noqa: S301  # see the import


def dump_arguments(method: str, arguments: object) -> bytes:
    """The arguments of a call.

    Raises:
        UsageError: if they cannot be sent to another process.

    """
    try:
        return dumps(arguments)
    except Exception as error:
        raise UsageError(
            f"{method}(): an argument cannot be sent to another process ({text_of(error)}); "
            f"got {shown(arguments)}"
        ) from error


def dump_answer(number: int, value: Any, error: Exception | None) -> bytes:
    """An answer that can be sent, whatever is in it."""
    if error is None:
        try:
            return dumps(Answer(number, False, dumps(_portable(value))))
        except Exception as broken:
            what = f"the answer cannot be sent to another process: {text_of(broken)}"
            error = UsageError(what)
    return dumps(Answer(number, True, dumps(portable_error(error))))


def portable_error(error: Exception) -> Exception:
    """The error, or one that says the same and can be read by another process."""
    try:
        loads(dumps(error))  # some exceptions are pickled, and cannot be read again
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {text_of(error)}")
    return error


def _portable(value: Any) -> Any:
    """An outcome goes without its state, and without a tool's value that cannot be pickled."""
    if not isinstance(value, _OUTCOMES):
        return value
    later = LoadedLater((value.run_id, value._seq, value.state.status))
    if isinstance(value, Completed) and value.tool_result is not None:
        try:
            dumps(value.tool_result.value)
        except Exception:
            lost = dataclasses.replace(value.tool_result, value=None, value_lost=True)
            value = dataclasses.replace(value, tool_result=lost)
    return dataclasses.replace(value, state=later)


def with_state(value: Any, load: Callable[[Place], AgentState]) -> Any:
    """The value of an answer; if it is an outcome, its state is loaded so."""
    state = getattr(value, "state", None) if isinstance(value, _OUTCOMES) else None
    if isinstance(state, LoadedLater):
        state.load_by(load)
    return value
