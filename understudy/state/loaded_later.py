"""`LoadedLater`: the state of an outcome that came from another process without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from understudy.state.agent_state import AgentState

Place = tuple[str, int, str]
"""What a state is found by: as of `LoadedLater`."""


class LoadedLater(AgentState):
    """A state that is loaded when something of it is read first. That waits for who loads it.

    Args:
        place: the id of its run, the number of its last record, and its status.

    """

    __slots__ = ("_load", "_place")

    def __init__(self, place: Place) -> None:  # each other attribute is looked for in __getattr__
        self._place = place

    def load_by(self, load: Callable[[Place], AgentState]) -> None:
        """Say how it is loaded."""
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
