"""The names of Pydantic AI that are not public, and that `understudy.adopted.source` reads.

Each test says what a name must mean. One that fails after an update says what has changed.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext, capture_run_messages
from pydantic_ai._agent_graph import get_captured_run_messages
from pydantic_ai._instructions import resolve_sourced_instructions
from pydantic_ai._output import (
    run_none_process_hooks,
    run_output_with_hooks,
    types_from_output_spec,
)
from pydantic_ai.capabilities import Hooks
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.toolsets._instruction_collection import collect_toolset_instructions

from tests.support.agents import by_turn


def agent(**options: Any) -> Any:
    return PydanticAgent(by_turn(), name="support", **options)


def test_the_agent_has_what_it_was_given_under_these_names() -> None:
    given = agent(
        output_type=[str, int],
        retries={"tools": 4, "output": 3},
        metadata={"tenant": "a"},
        system_prompt="Be kind.",
        max_concurrency=2,
    )

    def check(value: Any) -> Any:
        return value

    def more() -> str:
        return "More."

    given.output_validator(check)
    given.system_prompt(more)

    assert (given._max_tool_retries, given._max_output_retries) == (4, 3)
    assert given._metadata == {"tenant": "a"}
    assert given._system_prompts == ("Be kind.",)
    assert [each.function for each in given._system_prompt_functions] == [more]
    assert [each.function for each in given._output_validators] == [check]
    assert given._concurrency_limiter is not None
    assert agent()._concurrency_limiter is None
    assert given._event_hooks.has_on_event is False


def test_the_schema_of_an_output_has_a_mode_processors_and_tools() -> None:
    schema = agent(output_type=[str, int])._output_schema
    assert (schema.mode, schema.allows_text, schema.allows_image) == ("tool", True, False)
    assert (schema.object_def, schema.allows_pending_model_response) == (None, False)
    assert list(schema.toolset.processors) == ["final_result"]
    assert [each.name for each in schema.toolset._tool_defs] == ["final_result"]
    assert schema.toolset.output_validators == []
    context = schema.toolset.processors["final_result"].get_output_context(schema, mode="tool")
    assert context.has_function is False
    assert schema.text_processor is not None
    assert list(types_from_output_spec(agent(output_type=int).output_type)) == [int]


def test_toolsets_come_with_those_of_the_capabilities_that_are_given() -> None:
    extra: Any = FunctionToolset()
    toolsets = agent()._build_toolset_list(cap_toolsets=[extra])
    assert toolsets[-1] is extra


def test_capabilities_that_are_added_to_each_agent_have_these_names() -> None:
    kinds = [type(each).__name__ for each in agent().root_capability.capabilities]
    assert sorted(kinds) == ["PendingMessageDrainCapability", "ToolSearch"]


def test_hooks_are_registered_by_their_names() -> None:
    hooks: Hooks[Any] = Hooks()

    @hooks.on.before_run
    async def begin(ctx: RunContext[Any]) -> None:
        """Begin."""

    assert [name for name, entries in hooks._registry.items() if entries] == ["before_run"]


def test_what_is_overridden_is_kept_under_these_names() -> None:
    given = agent()
    names = sorted(name for name in vars(given) if name.startswith("_override_"))
    assert names == [
        "_override_deps",
        "_override_instructions",
        "_override_metadata",
        "_override_model",
        "_override_model_settings",
        "_override_name",
        "_override_native_tools",
        "_override_output_retries",
        "_override_root_capability",
        "_override_tool_retries",
        "_override_tools",
        "_override_toolsets",
        "_override_workspace",
    ]
    assert all(vars(given)[name].get() is None for name in names)
    with given.override(deps=3):
        assert given._override_deps.get().value == 3


async def test_who_captures_messages_is_known_until_a_run_has_them() -> None:
    with pytest.raises(LookupError):
        get_captured_run_messages()
    with capture_run_messages():
        assert not get_captured_run_messages().used
        await agent().run("go")
        assert get_captured_run_messages().used


def test_the_output_of_an_empty_reply_is_made_of_the_hooks() -> None:
    expected = {"run_context", "capability", "schema", "output_validators"}
    assert expected <= set(inspect.signature(run_none_process_hooks).parameters)
    assert agent(output_type=int | None)._output_schema.allows_none is True
    assert agent(output_type=int)._output_schema.allows_none is False


def test_these_functions_take_what_they_are_given() -> None:
    for function, names in (
        (resolve_sourced_instructions, ["instructions", "run_context"]),
        (collect_toolset_instructions, ["toolset", "ctx"]),
        (PydanticAgent._get_instructions, ["self", "additional_instructions", "cap_instructions"]),
    ):
        assert list(inspect.signature(function).parameters) == names
    expected = {"processor", "text", "run_context", "capability", "schema", "output_validators"}
    assert expected <= set(inspect.signature(run_output_with_hooks).parameters)
    assert agent().root_capability._collect_instructions() == []
