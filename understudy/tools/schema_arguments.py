"""The arguments of a tool that is described by data, not by a signature: one dict, passed on as is.

`SchemaArguments` are checked by a JSON schema: `jsonschema` checks the schema where the tool is
made, and the arguments of each call. Those of a tool of another library are checked as it checks
them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from pydantic_ai.tools import ToolDefinition
from pydantic_core import from_json, to_json

from understudy._base.json_schema import faults_of, json_schema_of
from understudy._base.json_values import (
    NotJsonError,
    as_json,
    check_sendable,
    checked_text,
    shown,
    text_of,
)
from understudy.errors import UsageError
from understudy.tools.result import InvalidArguments
from understudy.tools.schema import hints_of, return_type

MAX_SCHEMA_BYTES = 200_000
"""The maximum bytes of a schema's JSON, which is sent with each request to a model."""


Check = Callable[[dict[str, Any]], None]
"""A function that raises `InvalidArguments` for arguments that the tool does not take."""


class GivenArguments:
    """`Arguments` as they were given: nothing is converted, and no default is filled in.

    Args:
        definition: the definition that the model gets.
        check: checks the arguments before anybody is asked about the call; None = no check.
        takes_context: whether the function takes a `ToolContext` before the arguments.
        returns: the type of what the function returns.

    """

    is_plain: bool = True

    def __init__(
        self,
        definition: ToolDefinition,
        check: Check | None,
        *,
        takes_context: bool,
        returns: Any = Any,
    ) -> None:
        self.definition: ToolDefinition = definition
        self.takes_context: bool = takes_context
        self.returns: Any = returns
        self._check = check

    def validate(self, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
        """The arguments, if they are an object of JSON that the check lets through.

        Raises:
            InvalidArguments: if they are not; the message tells the model what to correct.

        """
        try:
            if isinstance(arguments, str):
                arguments = from_json(arguments or "{}", allow_inf_nan=False)
            checked = as_json({} if arguments is None else arguments)
        except (NotJsonError, ValueError, TypeError) as error:
            raise InvalidArguments(f"The arguments are no JSON: {text_of(error)}") from None
        if not isinstance(checked, dict):
            raise InvalidArguments(f"The arguments must be an object, not {shown(checked)[:200]}")
        if self._check is not None:
            self._check(checked)
        return checked

    def canonical(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments: they are JSON already.

        Raises:
            InvalidArguments: if they are not.

        """
        try:
            return dict(as_json(checked))
        except NotJsonError as error:
            raise InvalidArguments(
                f"The arguments cannot be written as JSON: {text_of(error)}"
            ) from error

    def made(self, given: str | Mapping[str, Any] | None, checked: Mapping[str, Any]) -> None:
        """Return None, for `Tool.made`: nothing is converted, and no default is filled in."""

    def bind(self, checked: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as one dict. It is a copy, so that a further attempt gets the same."""
        return [deepcopy(dict(checked))], {}


class SchemaArguments(GivenArguments):
    """`Arguments` by a JSON schema: one dict, which the function takes as it is.

    Raises:
        UsageError: as `Tool.from_schema` does.

    """

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: object,
        *,
        name: str,
        description: str | None,
        sequential: bool,
    ) -> None:
        definition = ToolDefinition(
            name=name,
            description=checked_text(
                description, what=f"Tool {name!r}: `description`", may_be_empty=True
            ),
            parameters_json_schema=checked_parameters(parameters, f"Tool {name!r}: `parameters`"),
            sequential=sequential,
        )
        hints, signature = hints_of(function, name)
        super().__init__(
            definition,
            by_schema(definition.parameters_json_schema),
            takes_context=_takes_context(name, signature),
            returns=return_type(hints.get("return", Any)),
        )


def by_schema(schema: Mapping[str, Any]) -> Check:
    """The check of arguments by a JSON schema that was checked itself."""

    def check(arguments: dict[str, Any]) -> None:
        faults = faults_of(schema, arguments)
        if faults:
            lines = (f"{'.'.join(map(str, at)) or 'arguments'}: {why}" for at, why in faults)
            raise InvalidArguments("\n".join(lines), faults)

    return check


def checked_parameters(given: object, what: str) -> dict[str, Any]:
    """`given`, if it is the JSON schema of an object; else raise a `UsageError`."""
    if not isinstance(given, Mapping):
        raise UsageError(f"{what} must be a JSON schema as a dict, got {shown(given)}")
    try:
        size = len(to_json(given))
    except Exception:  # it is no JSON, which is reported below
        size = 0
    if size > MAX_SCHEMA_BYTES:  # before it is walked through
        raise UsageError(
            f"{what} is of {size:,} bytes, and is sent with each request to a model: it may have "
            f"at most {MAX_SCHEMA_BYTES:,}"
        )
    schema = json_schema_of(given, what=what)
    if schema.get("type") != "object":
        raise UsageError(
            f"{what} must be the schema of an object, as arguments have names: "
            f'{{"type": "object", "properties": {{...}}}}, got the type {shown(schema.get("type"))}'
        )
    check_sendable(schema, what=what)
    return schema


def _takes_context(name: str, signature: inspect.Signature) -> bool:
    """Whether the function takes two values: a context before the arguments."""
    for takes, given in ((False, ({},)), (True, (None, {}))):
        try:
            signature.bind(*given)
        except TypeError:
            continue
        return takes
    raise UsageError(
        f"Tool {name!r}: `call` must take the arguments as one dict, or a ToolContext before it: "
        f"call(arguments) or call(ctx, arguments), got call{signature}"
    )
