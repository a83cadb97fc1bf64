"""Schemas of answers: what is refused when it is given, and what any answer may lead to (I18)."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.support.agents import by_turn, interrupted
from understudy import Agent, DecisionError, Interrupt, UsageError, call, respond, tool
from understudy._base import json_schema
from understudy._base.json_schema import faults_of, json_schema_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TWICE = {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"$schema": 5}, r"its '\$schema' is 5"),
        ({"$schema": {}}, r"its '\$schema' is"),
        ({"$ref": "#/x", "x": 5}, "no schema but 5"),
        ({"properties": {"a": {"$ref": "#/x"}}, "x": [1]}, "no schema but"),
        ({"$ref": "#/$defs/a"}, "which it does not hold"),
        ({"properties": {"a": {"$schema": DIALECT}}}, "inside"),
    ],
)
def test_a_schema_that_no_answer_could_be_checked_by_is_refused(schema: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Interrupt("?", schema=schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"const": {"$ref": "x"}},
        {"default": {"$ref": "x"}},
        {"properties": {"$ref": {"type": "string"}, "$schema": {"type": "string"}}},
        {
            "$ref": "http://x/a",
            "$defs": {"a": {"$id": "http://x/a", "$ref": "b"}, "b": {"$id": "http://x/b"}},
        },
    ],
)
def test_what_is_no_reference_or_has_a_base_of_its_own_is_taken(schema: Any) -> None:
    assert json_schema_of(schema, what="schema") == schema


def test_a_number_that_is_too_large_to_be_checked_is_a_fault() -> None:
    ((_, why),) = faults_of({"multipleOf": 0.1}, 10**400)
    assert "it cannot be checked: OverflowError" in why


def _deep(levels: int) -> dict[str, Any]:
    return {"a": _deep(levels - 1)} if levels else {}


@pytest.mark.parametrize("schema", [TWICE, {"$schema": DIALECT, **TWICE}])
def test_a_small_schema_does_not_take_for_ever(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I18."""
    monkeypatch.setattr(json_schema, "MAX_STEPS", 200)
    checked = json_schema_of(schema, what="schema")
    ((_, why),) = faults_of(checked, _deep(60))
    assert "it takes more than 200 steps" in why
    assert faults_of(checked, _deep(2)) == ()  # each value has steps of its own


def test_an_answer_that_cannot_be_checked_is_a_decision_error() -> None:
    @tool
    async def ask() -> str:
        """Ask."""
        raise Interrupt("?", schema={"multipleOf": 0.1})

    agent = Agent("a", by_turn(call("ask")), tools=[ask])
    asked = interrupted(agent.execute_sync("go"))
    with pytest.raises(DecisionError, match="cannot be checked"):
        agent.resume_sync(asked.state, asked.decide(respond(10**400)))


# -------------------------------------------------------------------------- patterns

EVIL = "^(a+)+$"
LONG = "a" * 5_000 + "b"


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": EVIL},
        {"patternProperties": {EVIL: {"type": "integer"}}, "additionalProperties": False},
        {"patternProperties": {EVIL: {}}, "propertyNames": {"pattern": EVIL}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": EVIL},
        {"additionalProperties": {"pattern": EVIL}},
    ],
)
def test_a_pattern_is_looked_for_once_through_the_text(schema: Any) -> None:
    """Python's own engine would go on for years."""
    checked = json_schema_of(schema, what="schema")
    value: Any = LONG if "patternProperties" not in schema else {LONG: 1}
    if "additionalProperties" in schema and "patternProperties" not in schema:
        value = {"x": LONG}
    assert faults_of(checked, value) != ()


@pytest.mark.parametrize(
    ("schema", "fits", "not_"),
    [
        ({"pattern": "^a.c$"}, ["abc", 5, None], ["xabc", "abcd", "abc\n"]),
        ({"pattern": "b"}, ["abc", {}], ["ac", ""]),
        (
            {"patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": False},
            [{"n_a": 1}, {}, "text"],
            [{"n_a": "1"}, {"m_a": 1}],
        ),
        (
            {
                "properties": {"id": {"type": "string"}},
                "patternProperties": {"^x": {}, "y$": {}},
                "additionalProperties": {"type": "integer"},
            },
            [{"id": "1", "xa": "b", "ay": "b", "n": 1}],
            [{"n": "1"}, {"id": 5}],
        ),
        ({"properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}], [{"b": 1}]),
    ],
)
def test_patterns_mean_what_they_mean_elsewhere(schema: Any, fits: Any, not_: Any) -> None:
    checked = json_schema_of(schema, what="schema")
    assert [faults_of(checked, value) for value in fits] == [()] * len(fits)
    assert all(faults_of(checked, value) for value in not_)


def test_what_is_wrong_with_a_property_is_told_at_its_place() -> None:
    schema = {"patternProperties": {"^n_": {"pattern": "^[0-9]+$"}}, "additionalProperties": False}
    assert faults_of(schema, {"n_a": "x", "m": 1, "k": 2}) == (
        ((), "Additional properties are not allowed ('k', 'm' were unexpected)"),
        (("n_a",), "'x' does not match '^[0-9]+$'"),
    )


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"pattern": "(?=a)b"}, "look-around"),
        ({"items": {"pattern": r"(a)\1"}}, "backreferences"),
        ({"patternProperties": {"(?<!a)b": {}}}, "look-around"),
        ({"pattern": "((a{1000}){1000}){1000}"}, "repeats? too much"),
        ({"pattern": r"(\w{1000}){1000}"}, "repeats? too much"),
        ({"pattern": "(?x)(a # )\n b{1000}){1000}"}, "repeats? too much"),
        ({"properties": {f"p{n}": {"pattern": f"a{{{n}000}}"} for n in range(1, 99)}}, "too much"),
        ({"unevaluatedProperties": False, "patternProperties": {EVIL: {}}}, "for ever"),
        ({"$defs": {"a": {"unevaluatedProperties": False}}, "dependentSchemas": {}}, "for ever"),
    ],
)
def test_what_cannot_be_checked_in_a_bounded_time_is_refused(schema: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        json_schema_of(schema, what="schema")


def test_a_schema_that_was_stored_before_is_checked_in_a_bounded_time_too() -> None:
    for pattern in ("(?=a)b", "((a{1000}){1000}){1000}"):
        ((_, why),) = faults_of({"pattern": pattern}, "a")
        assert "it cannot be checked: ValueError" in why


def test_large_patterns_in_long_texts_count_as_steps() -> None:
    schema = json_schema_of({"items": {"pattern": "[ab]*a[ab]{2900}c"}}, what="schema")
    text = "ab" * 10_000
    ((_, why),) = faults_of(schema, [text])
    assert "it takes more than 100,000 steps" in why
    ids = {"items": {"pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}}
    assert faults_of(ids, ["00000000-0000-0000-0000-000000000000"] * 1_000) == ()


def test_the_library_looks_for_patterns_where_we_know_it() -> None:
    """In another place it would look by `re`: that must be replaced, or refused, too."""
    from jsonschema import _keywords, _legacy_keywords, _utils

    places = {
        name
        for module in (_keywords, _legacy_keywords, _utils)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and "re.search(" in inspect.getsource(function)
    }
    assert places == {
        "pattern",
        "patternProperties",
        "find_additional_properties",  # of "additionalProperties" alone
        "find_evaluated_property_keys_by_schema",  # of "unevaluatedProperties" alone
    }


@pytest.mark.parametrize(
    ("items", "fits"),
    [
        ([1, True, "1", None, False, 0.5], True),
        ([0, False], True),
        ([1, 1.0], False),
        ([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}], False),
        ([{"a": [1, 2]}, {"a": [2, 1]}, [["a", [1, 2]]]], True),
        ([[], {}], True),
        ([2**61 - 1, 0], True),
    ],
)
def test_items_are_unique_as_json_values_are(items: list[Any], fits: bool) -> None:
    assert (faults_of({"uniqueItems": True}, items) == ()) is fits
    assert faults_of({"uniqueItems": False}, items) == ()


@pytest.mark.parametrize(
    "items",
    [
        [{"number": number} for number in range(40_000)],
        [number * (2**61 - 1) for number in range(90_000)],  # their hashes are equal
    ],
    ids=["objects", "numbers"],
)
def test_many_items_are_compared_in_a_time_that_grows_with_their_number(items: list[Any]) -> None:
    """Each with all others would be a billion comparisons."""
    assert faults_of({"uniqueItems": True}, items) == ()
    faults = faults_of({"uniqueItems": True}, [*items, items[0]])
    assert len(faults) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"uniqueItems": True}},
        {"items": {"enum": list(range(10_000))}},
        {"items": {"required": list(map(str, range(10_000)))}},
    ],
)
def test_what_a_keyword_lists_counts_as_steps(schema: Any) -> None:
    value = [[{"a": number}] * 20 for number in range(5_000)]
    if "required" in str(schema):
        value = [{}] * 5_000  # type: ignore[list-item]
    ((_, why),) = faults_of(schema, value)
    assert "steps" in why
