"""Checks that a function takes what its schema allows, so that a wrong schema is found at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_origin

from understudy.errors import UsageError
from understudy.tools.schema import hints_of

_JSON_TYPES: dict[Any, frozenset[str]] = {
    str: frozenset(("string",)),
    bool: frozenset(("boolean",)),
    int: frozenset(("integer", "number")),
    float: frozenset(("integer", "number")),
    list: frozenset(("array",)),
    dict: frozenset(("object",)),
}
"""The JSON types of the values of each Python type."""


def check_fits(
    function: Callable[..., Any],
    *,
    named: Collection[str],
    always: Collection[str],
    what: str,
    besides: Collection[str] = (),
) -> None:
    """Check that a function can be called with the arguments that a schema names.

    Args:
        function: the function, called with each argument by name.
        named: all arguments that the schema names.
        always: the arguments that each call has.
        what: the name of the tool, for the error.
        besides: parameters that a model does not write.

    Raises:
        UsageError: for an argument that the function does not take, or a needed argument that a
            call may leave out.

    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a function in C does not say what it takes
    parameters = {name: each for name, each in signature.parameters.items() if name not in besides}
    taken = {
        name
        for name, each in parameters.items()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    for name in named:
        if name not in taken and not takes_all:
            raise UsageError(
                f"{what}: its schema names the argument {name!r}, which its function does not "
                f"take: {signature}"
            )
    for name, each in parameters.items():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) or each.default is not each.empty:
            continue
        if name not in named or name not in taken:
            raise UsageError(
                f"{what}: its function needs {name!r}, which its schema does not name: {signature}"
            )
        if name not in always:
            raise UsageError(
                f"{what}: its function needs {name!r}, which its schema does not require: add it "
                "to `required`, or give the parameter a default"
            )


def check_types(function: Callable[..., Any], schema: Mapping[str, Any], *, what: str) -> None:
    """Check that no argument is always of another type than its parameter.

    Raises:
        UsageError: for an argument whose JSON type the parameter never has.

    """
    hints, _ = hints_of(function, what)
    for name, own in schema.get("properties", {}).items():
        given = own.get("type") if isinstance(own, Mapping) else None
        types = {given} if isinstance(given, str) else set(given or ())
        wanted = _json_types(hints.get(name))
        if types and wanted and not types & wanted:
            raise UsageError(
                f"{what}: its schema says that {name!r} is of the type {given!r}, and its "
                f"function takes {hints[name]!r}"
            )


def _json_types(hint: Any) -> frozenset[str]:
    """The JSON types that a parameter takes; empty if they are not known."""
    return _JSON_TYPES.get(get_origin(hint) or hint, frozenset())
