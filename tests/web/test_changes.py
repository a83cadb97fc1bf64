"""A person's changes to a value are shown place by place, and to a text word by word."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.web.changes import Piece, changes, words

TEXT = "The parcel arrived open and two of the three lamps were broken."


def told(old: Any, new: Any) -> list[tuple[str, str, str, str]]:
    """The changes in short."""
    return [
        (c.place, c.kind, "".join(p.text for p in c.old), "".join(p.text for p in c.new))
        for c in changes(old, new)
    ]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [("a", "changed", "1", "2")]),
        ({"a": 1}, {"a": "1"}, [("a", "changed", "1", '"1"')]),
        ({"a": 1}, {"a": True}, [("a", "changed", "1", "true")]),
        ({"a": 1}, {}, [("a", "removed", "1", "")]),
        ({}, {"a": None}, [("a", "added", "", "null")]),
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}, [("a › b", "changed", "x", "y")]),
        ({"a": [1, 2, 3]}, {"a": [1, 3]}, [("a 2", "removed", "2", "")]),
        ({"a": [1, 2]}, {"a": [1, 5, 2]}, [("a 2", "added", "", "5")]),
        (
            {"a": [{"n": 1, "m": 1}]},
            {"a": [{"n": 2, "m": 1}]},
            [("a 1 › n", "changed", "1", "2")],
        ),
        ({"a": "x"}, {"a": ""}, [("a", "changed", "x", "")]),
        ({"a": None}, {"a": {"b": 1}}, [("a", "changed", "null", '{\n  "b": 1\n}')]),
    ],
)
def test_each_place_that_differs_is_told(old: Any, new: Any, found: Any) -> None:
    assert told(old, new) == found


def test_of_a_long_text_the_words_are_told() -> None:
    before, after = words(TEXT, TEXT.replace("two", "one").replace("broken", "missing"))
    assert [p.text.strip() for p in before if p.is_changed] == ["two", "broken"]
    assert [p.text.strip() for p in after if p.is_changed] == ["one", "missing"]


def test_texts_that_have_little_in_common_are_told_whole() -> None:
    assert words(TEXT, "Nobody knows anything about it") == (
        (Piece(TEXT, is_changed=True),),
        (Piece("Nobody knows anything about it", is_changed=True),),
    )


def test_a_change_in_a_very_long_text_is_found_without_comparing_all_of_it() -> None:
    long = "lamp and kettle " * 50_000
    before, after = words(f"{long}red {long}", f"{long}blue {long}")
    assert [p.text for p in before if p.is_changed] == ["red"]
    assert [p.text for p in after if p.is_changed] == ["blue"]
    assert [len(each) for each in words(long * 2, f"x{long}y{long}z")] == [1, 1]


@given(st.text("ab \n.", max_size=40), st.text("ab \n.", max_size=40))
def test_the_pieces_are_the_texts(old: str, new: str) -> None:
    before, after = words(old, new)
    assert "".join(each.text for each in before) == old
    assert "".join(each.text for each in after) == new
    same = ["".join(each.text for each in of if not each.is_changed) for of in (before, after)]
    assert same[0] == same[1]


values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("xyz"), inner),
    max_leaves=12,
)


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from("xyz"), values), st.dictionaries(st.sampled_from("xyz"), values)
)
def test_values_that_differ_have_a_change_and_equal_ones_have_none(old: Any, new: Any) -> None:
    is_same = json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
    assert (changes(old, new) == []) is is_same
