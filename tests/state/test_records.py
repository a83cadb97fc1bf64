"""Records are values: what one says cannot be changed afterwards."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any, get_args

import pytest

from understudy.state import fold
from understudy.state.records import Record, Started, record_from_dict, record_to_dict

RECORDS: tuple[Any, ...] = get_args(Record)


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_is_made_from_its_fields_by_name_and_is_frozen(kind: Any) -> None:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    parameters = inspect.signature(kind).parameters
    assert list(parameters) == list(fields)
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    needed = {name for name, p in parameters.items() if p.default is inspect.Parameter.empty}
    made = kind(**dict.fromkeys(needed, "x"))
    for name, field in fields.items():
        value = getattr(made, name)
        if name in needed:
            assert value == "x"
        elif field.default is not dataclasses.MISSING:
            assert value == field.default
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, name, "y")
    with pytest.raises(TypeError):
        kind("x")
    with pytest.raises(TypeError):
        kind(**dict.fromkeys(needed, "x"), no_such_field="x")


def test_a_record_goes_through_copies_pickle_and_json() -> None:
    started = Started(
        call_key="r.0.0", tool_name="pay", tool_call_id="c1", attempt=2, effect="idempotent"
    )
    assert copy.copy(started) == started
    assert pickle.loads(pickle.dumps(started)) == started
    assert record_from_dict(record_to_dict(started)) == started
    assert dataclasses.replace(started, attempt=3).attempt == 3


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_that_was_pickled_before_is_read(kind: Any) -> None:
    """When all kinds were in one module they were pickled by the name of what is a package now."""
    pickled = f"cunderstudy.state.records\n{kind.__qualname__}\n.".encode()
    assert pickle.loads(pickled) is kind


def test_a_reader_finds_a_record_where_its_topic_says() -> None:
    assert "that a call is about to run." in inspect.getsource(Started)


def test_every_kind_of_record_changes_the_state() -> None:
    """A kind that is not folded would fail the first run that records it."""
    missing = [kind.__name__ for kind in RECORDS if kind not in fold._APPLY]
    assert missing == [], f"add a function for each to _APPLY in {fold.__name__}"
