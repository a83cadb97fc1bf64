"""Tools as they are described to OpenAI and Anthropic: a dict with a JSON schema, and a
function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_origin

from understudy._base.json_values import checked_flag, shown
from understudy.errors import UsageError
from understudy.tools.context import ToolContext
from understudy.tools.foreign.fits import check_fits, check_types
from understudy.tools.foreign.foreign_tool import Foreign, not_carried
from understudy.tools.result import InvalidArguments
from understudy.tools.schema import hints_of, is_async
from understudy.tools.schema_arguments import Check, by_schema, checked_parameters

_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
_OPENAI = frozenset(("name", "description", "parameters", "strict"))
_ANTHROPIC = frozenset(("name", "description", "input_schema", "strict", "type"))


class Definition(NamedTuple):
    """The description of a tool for a provider."""

    name: str
    description: str
    parameters: Any
    strict: bool | None


def read_definition(given: object) -> Definition:
    """A definition in a form of OpenAI, for either of its APIs, or in the form of Anthropic.

    Raises:
        UsageError: for anything else, such as a tool that the provider runs itself, and for a key
            that says what is not carried over.

    """
    if not isinstance(given, Mapping):
        raise UsageError(
            "tool.from_definition takes the dict that describes a tool to OpenAI or Anthropic, "
            f"got {shown(given)}"
        )
    kind, inner = given.get("type"), given
    if kind == "function" and isinstance(given.get("function"), Mapping):
        _check_keys(given, frozenset(("type", "function")), "The definition")
        inner = given["function"]
    elif kind not in (None, "function", "custom"):
        raise UsageError(
            f"The definition has the type {shown(kind)}, so the provider runs its tool: give it "
            "to the agent as native_tools=[...]"
        )
    name = inner.get("name")
    if not isinstance(name, str) or not name:
        raise UsageError(f"A definition of a tool must have a `name`, got {shown(given)}")
    what = f"Tool {name!r}"
    is_anthropic = "input_schema" in inner
    key, known = ("input_schema", _ANTHROPIC) if is_anthropic else ("parameters", _OPENAI)
    if inner is given and not is_anthropic:
        known |= {"type"}
    if kind == "custom" and not is_anthropic:
        raise not_carried(what, "the type 'custom' of OpenAI", "its input is no JSON")
    _check_keys(inner, known, what)
    strict = inner.get("strict")
    if strict is not None:
        checked_flag(strict, what=f"{what}: `strict`")
    parameters = inner.get(key)
    description = inner.get("description")
    return Definition(
        name,
        description if description is not None else "",
        _NOTHING if parameters is None else parameters,
        strict,
    )


def _check_keys(given: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    for key in given:
        if key not in known:
            raise not_carried(what, f"the key {key!r}", "take it out of the definition")


def from_definition(given: object, function: Callable[..., Any]) -> Foreign:
    """A tool that is described by a definition, and called with its arguments by name.

    Raises:
        UsageError: as `read_definition` does, for an invalid schema, and for a function that does
            not take what the schema allows.

    """
    name, description, parameters, strict = read_definition(given)
    what = f"Tool {name!r}"
    if not callable(function):
        raise UsageError(f"{what}: give the function that it calls, got {shown(function)}")
    schema = checked_parameters(parameters, f"{what}: its schema")
    hints, signature = hints_of(function, name)
    first = next(iter(signature.parameters), None)
    hint = hints.get(first) if first is not None else None
    context = first if hint is ToolContext or get_origin(hint) is ToolContext else None
    named = list(schema.get("properties", {}))
    check_fits(
        function,
        named=named,
        always=schema.get("required", ()),
        besides=() if context is None else (context,),
        what=what,
    )
    check_types(function, schema, what=what)
    takes_all = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    takes_none_besides = schema.get("additionalProperties") is False
    return Foreign(
        name=name,
        description=description,
        parameters=schema,
        call=_called(function, takes_context=context is not None),
        check=None if takes_all or takes_none_besides else _known_names(schema, named),
        strict=strict,
    )


def _known_names(schema: Mapping[str, Any], named: list[str]) -> Check:
    """A check for a schema that allows arguments which the function does not take."""
    fits = by_schema(schema)

    def check(arguments: dict[str, Any]) -> None:
        fits(arguments)
        for name in arguments:
            if name not in named:
                there = ", ".join(named) or "none"
                raise InvalidArguments(f"{name}: there is no such argument; there are: {there}")

    return check


def _called(function: Callable[..., Any], *, takes_context: bool) -> Callable[..., Any]:
    async def call_async(ctx: ToolContext, arguments: dict[str, Any]) -> Any:
        return await (function(ctx, **arguments) if takes_context else function(**arguments))

    def call(ctx: ToolContext, arguments: dict[str, Any]) -> Any:
        return function(ctx, **arguments) if takes_context else function(**arguments)

    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return function  # which `Tool` refuses
    return call_async if is_async(function) else call
