"""`LoadedLater`: the state of an outcome that came from another process without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from understudy.state.agent_state import AgentState

Place = tuple[str, int, str]
"""The place of a stored state: see the arguments of `LoadedLater`."""


class LoadedLater(AgentState):
    """A state that is loaded when it is first read. The reader waits for the load.

    Args:
        place: the id of the run, the number of the last record, and the status.

    """

    __slots__ = ("_load", "_place")

    def __init__(self, place: Place) -> None:  # __getattr__ finds all other attributes
        self._place = place

    def load_by(self, load: Callable[[Place], AgentState]) -> None:
        """Set the function that loads the state."""
        self._load = load

    def __getattr__(self, name: str) -> Any:
        if name == "_load" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name, name=name, obj=self)
        loaded = self._load(self._place)
        for slot in AgentState.__slots__:
            setattr(self, slot, getattr(loaded, slot))
        return getattr(self, name)

    def __reduce__(self) -> tuple[Callable[..., AgentState], tuple[Any, ...]]:
        load = getattr(self, "_load", None)
        return (LoadedLater, (self._place,)) if load is None else (_same, (load(self._place),))


def _same(state: AgentState) -> AgentState:
    return state
