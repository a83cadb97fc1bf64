"""No mutation of a stored state is read as something else, or raises another error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.agents import by_turn, interrupted
from tests.support.frozen.walk import lost
from understudy import Agent, AgentState, UsageError, approve, call
from understudy.errors import SchemaVersionError

DATA = Path(__file__).parent.parent / "data" / "v1"
STATES: list[dict[str, Any]] = [
    json.loads((DATA / "state.json").read_text()),
    *json.loads((DATA / "folded.json").read_text()).values(),
]
STRANGE: list[Any] = [
    *(None, True, False, 0, 1, -1, 1.5, 10**20, float("nan"), "", "x", "1", "\ud800"),
    *([], {}, [None], ["hi"], {"x": 1}, [[1, 2]]),
]


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in it."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


PLACES = [(index, path) for index, state in enumerate(STATES) for path in places(state)]


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def check(mutated: dict[str, Any]) -> None:
    """It is refused, or read as exactly what it is."""
    before = deepcopy(mutated)
    try:
        state = AgentState.from_dict(mutated)
    except (UsageError, SchemaVersionError):
        return
    finally:
        assert repr(mutated) == repr(before)
    assert lost(stored(before), stored(state.to_dict())) == []


def stored(data: Any) -> Any:
    """As JSON in which 1 and 1.0 are the same, as they are to most programs that write it."""
    return json.loads(json.dumps(data), parse_constant=lambda name: None, parse_int=as_float)


def as_float(digits: str) -> float | int:
    exact, number = int(digits), float(digits)
    return number if number == exact else exact


@pytest.mark.slow
def test_each_field_of_a_stored_state_may_be_missing_without_a_change_of_meaning() -> None:
    fields = {(path[-2:-1], path[-1]): (index, path) for index, path in PLACES}
    for index, path in fields.values():
        mutated = deepcopy(STATES[index])
        del at(mutated, path[:-1])[path[-1]]
        check(mutated)


@pytest.mark.slow
@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_a_mutation_is_refused_or_read_as_it_is(data: st.DataObject) -> None:
    index, path = data.draw(st.sampled_from(PLACES))
    mutated = deepcopy(STATES[index])
    holder = at(mutated, path[:-1])
    how = data.draw(st.sampled_from(["replace", "add", "move", "double"]))
    if how == "replace":
        holder[path[-1]] = data.draw(st.sampled_from(STRANGE))
    elif how == "add" and isinstance(holder, dict):
        holder[data.draw(st.sampled_from(["strange", "1", "kind"]))] = "x"
    elif how == "move":
        _, other = data.draw(st.sampled_from([place for place in PLACES if place[0] == index]))
        holder[path[-1]] = deepcopy(at(STATES[index], other))
    elif isinstance(holder, list):
        holder.append(deepcopy(holder[path[-1]]))
    check(mutated)


@pytest.mark.parametrize("value", [10**20, 1e20, 0, -1])
def test_a_stored_span_that_no_approval_could_have_is_refused(value: float) -> None:
    names = ("within", "use_after", "use_within", "max_auth_age")
    spans = [(index, path) for index, path in PLACES if path[-1] in names]
    assert len({path[-1] for _, path in spans}) > 1
    for index, path in spans[::25]:
        mutated = deepcopy(STATES[index])
        at(mutated, path[:-1])[path[-1]] = value
        with pytest.raises(UsageError):
            AgentState.from_dict(mutated)


@pytest.mark.parametrize("data", [None, [], "x", 5, {}, {"schema_version": None}])
def test_what_is_no_stored_state_is_refused(data: Any) -> None:
    with pytest.raises(UsageError, match="not a stored AgentState"):
        AgentState.from_dict(data)


@pytest.mark.parametrize("version", [True, 0, -1, 1.0, [1], None])
def test_a_schema_version_that_is_no_number_from_1_is_refused(version: Any) -> None:
    with pytest.raises(UsageError, match="schema_version"):
        AgentState.from_dict({**AgentState().to_dict(), "schema_version": version})


@pytest.mark.parametrize("key", sorted(AgentState().to_dict()))
def test_each_key_of_a_stored_state_is_required(key: str) -> None:
    data = AgentState().to_dict()
    del data[key]
    with pytest.raises(UsageError, match=key):
        AgentState.from_dict(data)


@pytest.mark.parametrize("key", sorted(set(AgentState().to_dict()) - {"schema_version"}))
@pytest.mark.parametrize("value", [5, "x", ["hi"], {"x": 5}, True])
def test_a_value_of_another_type_is_refused(key: str, value: Any) -> None:
    if (key, str(value)) in {("status", "x"), ("values", "{'x': 5}")}:
        return
    with pytest.raises(UsageError):
        AgentState.from_dict({**AgentState().to_dict(), key: value})


async def test_the_error_names_the_place() -> None:
    def pay() -> str:
        return "paid"

    agent = Agent("desk", by_turn(call("pay")), tools=[pay], interrupt_on={"pay": True})
    asked = interrupted(await agent.execute("go"))
    data = json.loads(json.dumps(asked.state.to_dict()))
    (key,) = data["run"]["turn"]["calls"]
    del data["run"]["turn"]["calls"][key]["requests"]
    with pytest.raises(UsageError, match=rf"run\.turn\.calls\.{key}.*'requests' is missing"):
        AgentState.from_dict(data)
    await agent.resume(asked.state, asked.decide(approve()))
