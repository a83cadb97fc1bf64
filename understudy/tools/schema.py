"""The schema of a tool, from the function's signature and docstring."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from types import FunctionType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import BaseMetadata
from pydantic import ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_ai.exceptions import UserError as SchemaError
from pydantic_ai.messages import ToolReturn
from pydantic_ai.tools import Tool as SchemaTool
from pydantic_core import to_jsonable_python

from understudy.errors import UsageError
from understudy.tools.context import ToolContext
from understudy.tools.result import ToolResult

_VARIADIC = {
    inspect.Parameter.VAR_POSITIONAL: "one list, such as `numbers: list[int]`,",
    inspect.Parameter.VAR_KEYWORD: "one dict, such as `options: dict[str, int]`,",
}


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call of `function`, also a partial or a callable object, returns a coroutine."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or (
        not inspect.isfunction(function)
        and inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    )


def hints_of(function: Callable[..., Any], name: str) -> tuple[dict[str, Any], inspect.Signature]:
    """The type hints and the signature of the function of the tool `name`."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    if not inspect.isroutine(target):
        target = type(target).__call__
    try:
        return get_type_hints(target, include_extras=True), inspect.signature(function)
    except (NameError, TypeError, ValueError) as error:
        raise UsageError(
            f"Tool {name!r}: its annotations cannot be read ({error}). Types that a tool's "
            "signature names must be importable at run time, at the top of its module."
        ) from error


def takes_context(name: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> bool:
    """Whether the first parameter is a `ToolContext`; all parameters must have annotations."""
    takes = False
    for index, parameter in enumerate(signature.parameters.values()):
        if parameter.kind in _VARIADIC:
            plain = parameter.replace(annotation=inspect.Parameter.empty)
            raise UsageError(
                f"Tool {name!r}: {plain} takes any number of arguments, which a schema cannot "
                f"name: take {_VARIADIC[parameter.kind]} instead. A decorator around the tool's "
                "function needs functools.wraps."
            )
        if parameter.name not in hints:
            raise UsageError(
                f"Tool {name!r}: parameter {parameter.name!r} has no annotation. "
                + (
                    "Create the tool from the bound method instead: tool(thing.method)."
                    if parameter.name == "self"
                    else "Annotate it: the annotation becomes part of the tool's schema."
                )
            )
        hint = hints[parameter.name]
        if hint is ToolContext or get_origin(hint) is ToolContext:
            if index != 0:
                raise UsageError(
                    f"Tool {name!r}: ToolContext must be the first parameter, not "
                    f"{parameter.name!r}."
                )
            takes = True
    return takes


_PLAIN = (str, int, float, bool, type(None))


def is_plain(hint: Any) -> bool:
    """Whether a value of this type is written as JSON just as it is read, by no code of its own."""
    if hint in _PLAIN:
        return True
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        plain, *extras = arguments
        return is_plain(plain) and all(_only_describes(each) for each in extras)
    if origin is Literal:
        return all(type(each) in _PLAIN for each in arguments)
    if origin in (list, dict, Union, UnionType):
        return all(is_plain(each) for each in arguments)
    return False


def _only_describes(extra: Any) -> bool:
    """Whether an annotation's extra neither converts nor fills in a value."""
    if isinstance(extra, FieldInfo):
        named = extra.alias or extra.validation_alias or extra.serialization_alias
        described = all(_only_describes(each) for each in extra.metadata)
        return extra.is_required() and not named and described
    return isinstance(extra, (str, BaseMetadata))


def return_type(annotation: Any) -> Any:
    """The type of the value for the program."""
    for wrapper in (ToolResult, ToolReturn):
        if get_origin(annotation) is wrapper:
            return return_type(get_args(annotation)[0])
    return Any if annotation is ToolResult or annotation is ToolReturn else annotation


def schema_tool(
    function: Callable[..., Any],
    hints: Mapping[str, Any],
    signature: inspect.Signature,
    *,
    name: str,
    description: str | None,
    sequential: bool,
    context: bool,
) -> SchemaTool:
    """Pydantic AI's tool for a placeholder function without the context parameter.

    It has the schema and the validator; the placeholder is never called.
    """
    parameters = list(signature.parameters.values())[1 if context else 0 :]
    annotations = {p.name: hints[p.name] for p in parameters}

    def placeholder() -> None:
        raise AssertionError("the placeholder for a tool's schema was called")

    placeholder.__name__ = placeholder.__qualname__ = name
    placeholder.__doc__ = (
        inspect.getdoc(function)
        if isinstance(function, (FunctionType, functools.partial)) or inspect.ismethod(function)
        else inspect.getdoc(type(function))
    )
    placeholder.__module__ = getattr(function, "__module__", __name__)
    placeholder.__annotations__ = annotations
    placeholder.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[p.replace(annotation=annotations[p.name]) for p in parameters],
        return_annotation=inspect.Signature.empty,
    )
    try:
        return SchemaTool(
            placeholder,
            takes_ctx=False,
            name=name,
            description=description,
            sequential=sequential,
        )
    except (SchemaError, PydanticSchemaGenerationError, PydanticUserError) as error:
        raise UsageError(f"Tool {name!r}: no schema can be generated: {error}") from error


def validation_text(error: ValidationError) -> str:
    """The errors of arguments, as text for the model."""
    lines = []
    for detail in error.errors(include_url=False, include_context=False):
        where = ".".join(str(part) for part in detail["loc"]) or "arguments"
        given = json.dumps(to_jsonable_python(detail["input"], fallback=repr))
        lines.append(f"{where}: {detail['msg']} (given: {given[:200]})")
    return "\n".join(lines)


def error_places(error: ValidationError) -> tuple[tuple[tuple[int | str, ...], str], ...]:
    """The errors of arguments, each with its path."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return tuple((detail["loc"], detail["msg"]) for detail in details)
