"""JSON is coloured and folded, and says the same as before."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.web.json_view import MOST_COLOURED, MOST_FOLDED, coloured, folded, unpacked

seen = st.text('ab "\\:{}[],0-9<&\n', max_size=8)
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | seen,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(seen, inner, max_size=4),
    max_leaves=12,
)


def text_of(markup: str) -> str:
    """What a person reads."""
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


@pytest.mark.slow
@given(values)
def test_colours_change_no_character(value: Any) -> None:
    assert text_of(coloured(value)) == json.dumps(value, indent=2, ensure_ascii=False)


def test_a_name_a_text_a_number_and_a_word_look_different() -> None:
    found = coloured({"name": 'a "text": 1', "n": -1.5e9, "w": [True, None]})
    assert re.findall(r'class="json-(\w+)">([^<]*)', found) == [
        ("key", "&#34;name&#34;"),
        ("text", "&#34;a \\&#34;text\\&#34;: 1&#34;"),
        ("key", "&#34;n&#34;"),
        ("number", "-1500000000.0"),
        ("key", "&#34;w&#34;"),
        ("word", "true"),
        ("word", "null"),
    ]


def test_hostile_values_and_names_are_text() -> None:
    hostile = "<script>\u202e</script>"
    for found in (coloured({hostile: hostile}), folded({hostile: [hostile, f"{hostile}\nx"]})):
        assert "<script" not in found
        assert "\u202e" not in found
        assert "U+202E" in found


def test_what_is_large_is_folded_and_what_is_small_is_open() -> None:
    found = folded({"small": {"a": 1}, "large": {str(n): n for n in range(30)}})
    before_large = found[: found.index("large")]
    assert found.startswith('<div class="json"><details open>')
    assert before_large.endswith('<details><summary><span class="json-key">&#34;')
    assert before_large.count("<details open>") == 2


@given(values)
def test_every_text_and_name_is_in_what_is_folded(value: Any) -> None:
    shown = text_of(folded(value))
    for text in texts(value):
        assert text in shown or json.dumps(text, ensure_ascii=False) in shown


def texts(value: Any) -> list[str]:
    """The texts and names in a value."""
    if isinstance(value, dict):
        return [*value, *(text for each in value.values() for text in texts(each))]
    if isinstance(value, list):
        return [text for each in value for text in texts(each)]
    return [value] if isinstance(value, str) else []


def test_what_is_very_large_or_deep_is_one_text() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    assert text_of(folded(deep)).count("[") == 60
    assert "<details" not in folded(list(range(MOST_FOLDED + 1)))
    large = ["x" * MOST_COLOURED]
    assert "<span" not in coloured(large)
    assert text_of(coloured(large)) == json.dumps(large, indent=2)


def test_a_text_that_is_json_is_folded_where_nothing_of_it_changes_by_that() -> None:
    value = {"a": [1, "\u00e4"], "b": {}}
    for text in (
        json.dumps(value),
        json.dumps(value, separators=(",", ":")),
        json.dumps(value, indent=2, ensure_ascii=False),
    ):
        assert unpacked(text) == value
    for text in (
        '{"a": 1, "a": 2}', "[1e5]", '{"a": 1} ', "[1, 2", "{}x", "1", '"a"', "[NaN", "[1,  2]",
        "[" * 100_000,
    ):  # fmt: skip
        assert unpacked(text) == text
    assert unpacked({"a": 1}) == {"a": 1}
