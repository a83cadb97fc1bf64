"""The empty collections that all states share: nothing can be put into them by mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from understudy import Agent, AgentState, Completed, ScriptedModel, call
from understudy.state.run_state import RunState
from understudy.state.shared_empties import no_items, no_list, with_added, with_item

_ADDING: dict[str, Callable[[], object]] = {
    "an item": lambda: no_items().__setitem__("a", 1),
    "a default": lambda: no_items().setdefault("a", 1),
    "items": lambda: no_items().update(a=1),
    "items by |=": lambda: no_items().__ior__({"a": 1}),
    "one": lambda: no_list().append(1),
    "more": lambda: no_list().extend([1]),
    "one in front": lambda: no_list().insert(0, 1),
    "more by +=": lambda: no_list().__iadd__([1]),
    "a slice": lambda: no_list().__setitem__(slice(0, 0), [1]),
}


@pytest.mark.parametrize("adding", _ADDING.values(), ids=_ADDING.keys())
def test_nothing_can_be_added_to_what_all_states_share(adding: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="shared by all states"):
        adding()
    assert (no_items(), no_list()) == ({}, [])


def test_the_first_item_makes_a_new_collection_and_later_ones_are_added_to_it() -> None:
    first = with_item(no_items(), "a", 1)
    assert with_item(first, "b", 2) is first == {"a": 1, "b": 2}
    one = with_added(no_list(), 1)
    assert with_added(one, 2, 3) is one == [1, 2, 3]
    assert with_added(no_list()) is no_list()
    assert (no_items(), no_list()) == ({}, [])


def _shared(state: AgentState) -> set[str]:
    """The names of the collections of a state, and of its run, that are the shared ones."""
    found = [(name, getattr(state, name)) for name in AgentState.__slots__]
    if state.run is not None:
        found += [(name, getattr(state.run, name)) for name in RunState.__slots__]
    return {name for name, value in found if value is no_items() or value is no_list()}


_MOSTLY_EMPTY = {
    *("grants", "doubts", "queue", "message_ids", "children", "left", "decisions", "_values"),
    "held_keys",
    "refused",
    "reviews",
    "findings",
}
_MOSTLY_EMPTY_OF_RUN = {"once", "ended_by", "signals", "overrides", "context", "not_kept"}


async def test_an_agent_that_needs_none_of_them_has_no_collection_of_its_own() -> None:
    assert _shared(AgentState()) == _MOSTLY_EMPTY

    def lookup() -> str:
        """Look something up."""
        return "17"

    agent = Agent("a", ScriptedModel([call("lookup"), "Done."]), tools=[lookup])
    outcome = await agent.execute("Go.")
    assert isinstance(outcome, Completed)
    assert _shared(outcome.state) == _MOSTLY_EMPTY | _MOSTLY_EMPTY_OF_RUN
    read = AgentState.from_dict(outcome.state.to_dict())
    assert _shared(read) == _MOSTLY_EMPTY - {"_values"} | _MOSTLY_EMPTY_OF_RUN


def test_the_data_of_a_state_are_the_callers_own() -> None:
    data: dict[str, Any] = AgentState().to_dict()
    data["values"]["a"] = 1
    assert AgentState.from_dict(data).values == {"a": 1}
    assert AgentState().values == {}
