"""The arguments of a tool that may differ between two calls with the same meaning: times and new
ids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from understudy.tools.function_tool import Tool
from understudy.tools.schema import hints_of

TIMES = frozenset({"date-time", "date", "time"})
"""The formats of times in a JSON schema."""
UUID = "uuid"
_EMPTY = (list, dict, set, frozenset, tuple, str, int, float, bool)
"""Factories that make the same value each time."""


def varying_arguments(tool: Tool[Any]) -> dict[str, str]:
    """The arguments of a tool that are a time or a UUID, or that a factory fills in, with the
    reason.

    The key is the name of the argument. Fields of an argument count, at any depth.
    """
    found: dict[str, str] = {}
    definitions = tool.parameters.get("$defs", {})
    whole_schema = definitions.get(_referred(tool.parameters), tool.parameters)
    properties = whole_schema.get("properties", {})
    for name, schema in properties.items():
        formats = set(_formats(schema, definitions, set()))
        if formats & TIMES:
            found[name] = "a time"
        elif UUID in formats:
            found[name] = "a UUID"
    hints, signature = hints_of(tool.function, tool.name)
    for parameter in signature.parameters.values():
        whole = _Field(parameter.name, parameter.default, hints.get(parameter.name))
        # If a function has one model as its parameter, the fields of the model are the arguments.
        for field in (whole, *_fields(whole.hint)):
            if field.name in properties and _is_made(field, set()):
                found.setdefault(field.name, "made by a factory")
    return found


class _Field(NamedTuple):
    name: str
    default: Any
    hint: Any


def _formats(schema: Any, definitions: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    """The formats in a JSON schema, and in the definitions that it refers to."""
    if isinstance(schema, list):
        for each in schema:
            yield from _formats(each, definitions, seen)
    if not isinstance(schema, Mapping):
        return
    given = schema.get("format")
    if isinstance(given, str):
        yield given
    name = _referred(schema)
    if name in definitions and name not in seen:
        seen.add(name)
        yield from _formats(definitions[name], definitions, seen)
    for key, each in schema.items():
        if key not in ("default", "examples", "const", "enum"):  # these hold values, not schemas
            yield from _formats(each, definitions, seen)


def _referred(schema: Mapping[str, Any]) -> str:
    """The name of the definition that a schema refers to; empty if it refers to none."""
    return str(schema.get("$ref", "")).removeprefix("#/$defs/")


def _fields(hint: Any) -> Iterator[_Field]:
    """The fields of a model, a dataclass or a typed dict."""
    if not isinstance(hint, type):
        return
    if issubclass(hint, BaseModel):
        for name, field in hint.model_fields.items():
            yield _Field(name, field, field.annotation)
        return
    if not dataclasses.is_dataclass(hint) and not is_typeddict(hint):
        return
    defaults = dataclasses.fields(hint) if dataclasses.is_dataclass(hint) else ()
    by_name = {field.name: field for field in defaults}
    for name, inner in get_type_hints(hint, include_extras=True).items():
        yield _Field(name, by_name.get(name), inner)


def _is_made(field: _Field, seen: set[Any]) -> bool:
    """Whether a factory fills in the field, or one of its own fields at any depth."""
    hint = field.hint
    if _has_factory(field.default):
        return True
    if get_origin(hint) is Annotated:
        inner = field._replace(default=None, hint=hint.__origin__)
        return any(map(_has_factory, hint.__metadata__)) or _is_made(inner, seen)
    if get_args(hint):
        inside = [field._replace(default=None, hint=each) for each in get_args(hint)]
    elif hint in seen:
        return False
    else:
        seen.add(hint)
        inside = list(_fields(hint))
    return any(_is_made(each, seen) for each in inside)


def _has_factory(default: object) -> bool:
    factory = getattr(default, "default_factory", None)
    is_field = isinstance(default, (FieldInfo, dataclasses.Field))
    return is_field and factory not in (None, dataclasses.MISSING, *_EMPTY)
