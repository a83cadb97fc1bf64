"""Schemas of answers: what is refused when it is given, and what any answer may lead to."""

from __future__ import annotations

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
