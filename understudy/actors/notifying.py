"""`Notifying`: what a runtime knows of whoever tells people of requests while it is open."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from understudy._base.clock import Clock
from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.journal import Store
from understudy.state.agent_state import AgentState


@dataclass(frozen=True, slots=True)
class NotifyHost:
    """The services that a runtime gives to an object that tells people of requests."""

    store: Store
    clock: Clock
    state: Callable[[str], Awaitable[AgentState]]
    """The function that reads the state of an agent, which is not activated."""


class Notifying(ABC):
    """Tells people of requests. `understudy.notify.Notify` is one."""

    @abstractmethod
    async def begin(self, host: NotifyHost) -> None:
        """Tell people from now on. Called on the loop of a runtime that has just opened."""

    @abstractmethod
    async def end(self) -> None:
        """Tell people no more. Called on the loop, before the runtime closes."""


def checked_notify(given: object) -> Notifying | bool | None:
    """The `notify` argument of `Runtime`, checked.

    Raises:
        UsageError: for anything else.

    """
    if given is None or given is False or isinstance(given, Notifying):
        return given
    raise UsageError(
        f"`notify` must be a Notify of understudy.notify, False or None, got {shown(given)}"
    )
