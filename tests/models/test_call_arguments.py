"""Arguments of a call have one shape, which each provider's client can encode."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from understudy.models.call_arguments import as_arguments, invalid_json

texts = st.text(st.characters(exclude_categories=()), max_size=5)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=3)


def depth(levels: int) -> Any:
    deep: Any = 1
    for _ in range(levels):
        deep = [deep]
    return deep


@given(objects | objects.map(json.dumps) | texts | st.none())
@example("\ud800")
def test_whatever_comes_is_an_object_that_every_client_encodes_and_that_stays_the_same(
    sent: Any,
) -> None:
    arguments = as_arguments(sent)
    text = json.dumps(arguments, allow_nan=False).encode()
    assert from_json(text) == arguments
    assert from_json(to_json(arguments)) == arguments
    assert as_arguments(arguments) == arguments


@given(objects)
def test_data_and_its_text_become_the_same(sent: dict[str, Any]) -> None:
    assert as_arguments(sent) == as_arguments(json.dumps(sent))


@given(objects)
def test_a_text_that_strict_json_has_is_read_and_any_other_says_what_is_wrong(
    sent: dict[str, Any],
) -> None:
    try:
        text = json.dumps(sent, allow_nan=False, ensure_ascii=False)
        text.encode()
    except ValueError:
        assert invalid_json(as_arguments(sent))
    else:
        assert as_arguments(text) == sent


def test_long_integers_and_deep_data_are_kept_as_text() -> None:
    for sent in ({"a": depth(150)}, {"a": depth(600)}, '{"a": ' + "9" * 5000 + "}"):
        arguments = as_arguments(sent)
        assert invalid_json(arguments)
        assert from_json(to_json(arguments)) == arguments
