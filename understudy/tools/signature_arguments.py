"""The arguments of a tool by its signature: Pydantic validates them, and writes them as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import ValidationError
from pydantic_ai.tools import ToolDefinition
from pydantic_core import PydanticSerializationError, from_json, to_json

from understudy._base.error_texts import error_text
from understudy._base.json_values import digest, read_json, text_of
from understudy.tools.made_arguments import Path, is_same_at, left_out, with_value
from understudy.tools.result import InvalidArguments
from understudy.tools.schema import (
    error_places,
    hints_of,
    is_plain,
    return_type,
    schema_tool,
    takes_context,
    validation_text,
)


class SignatureArguments:
    """`Arguments` by the signature and the docstring of a function.

    Raises:
        UsageError: as `Tool` does.

    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        description: str | None,
        sequential: bool,
    ) -> None:
        hints, signature = hints_of(function, name)
        self.takes_context: bool = takes_context(name, signature, hints)
        self.returns: Any = return_type(hints.get("return", Any))
        made = schema_tool(
            function,
            hints,
            signature,
            name=name,
            description=description,
            sequential=sequential,
            context=self.takes_context,
        )
        self.definition: ToolDefinition = made.tool_def
        parameters = list(signature.parameters.values())[1 if self.takes_context else 0 :]
        self.is_plain: bool = all(
            each.default is each.empty and is_plain(hints[each.name]) for each in parameters
        )
        self._validator = made.function_schema.validator
        self._single = made.function_schema.single_arg_name
        self._positional = made.function_schema.positional_fields

    def validate(self, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
        """The arguments, converted to the types of the function, with defaults filled in."""
        try:
            # Data is validated by its JSON too: a strict date, for instance, is a text there.
            text = arguments if isinstance(arguments, str) else to_json(arguments or {})
            checked = self._validator.validate_json(text or "{}")
        except ValidationError as error:
            raise InvalidArguments(validation_text(error), error_places(error)) from None
        except (PydanticSerializationError, RecursionError) as error:
            raise InvalidArguments(
                f"The arguments cannot be written as JSON: {text_of(error)}"
            ) from error
        except Exception as error:  # a validator of the tool's own may raise anything
            raise InvalidArguments(f"A validator raised {error_text(error)}") from error
        return cast("dict[str, Any]", checked)

    def canonical(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as JSON, in the form of the schema."""
        arguments = checked[self._single] if self._single is not None else checked
        try:
            text = to_json(_ordered(arguments))
            canonical = read_json(text)
            if b"NaN" in text or b"Infinity" in text:
                json.dumps(canonical, allow_nan=False)  # raises, unless they are in a text
            return cast("dict[str, Any]", canonical)
        except (ValueError, RecursionError) as error:  # Pydantic's errors are ValueErrors
            raise InvalidArguments(
                f"The arguments cannot be written as JSON: {text_of(error)}"
            ) from error

    def made(
        self, given: str | Mapping[str, Any] | None, checked: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """The arguments for a record, for `Tool.made`."""
        if self.is_plain:
            return None
        written = from_json(given or "{}") if isinstance(given, str | None) else dict(given)
        canonical = self.canonical(checked)
        if _is_equal(written, canonical):
            return None
        if self._reads_back(canonical, (), checked) and _is_equal(
            canonical, self.canonical(self._read_back(canonical))
        ):
            return canonical
        made = written
        for path, value in left_out(written, canonical):
            filled = with_value(made, path, value)
            if self._reads_back(filled, path, checked):
                made = filled
        return None if made is written else made

    def _reads_back(
        self, arguments: Mapping[str, Any], path: Path, checked: Mapping[str, Any]
    ) -> bool:
        """Whether these arguments are read back as the validated value, at this path."""
        try:
            again = self._read_back(arguments)
        except InvalidArguments:
            return False
        if self._single is not None:
            return is_same_at((self._single, *path), again, checked)
        return is_same_at(path, again, checked)

    def _read_back(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return self.validate(to_json(arguments).decode())

    def bind(self, checked: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Validated arguments as positional and keyword arguments."""
        keywords = dict(checked)
        positional = [keywords.pop(name) for name in self._positional]
        return positional, keywords


def _is_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether these are the same JSON: 1 and True, and 1 and 1.0, are not."""
    return one == other and digest(one) == digest(other)


def _ordered(value: Any) -> Any:
    """The value with each set as a sorted list, so that its JSON is the same in every process."""
    if isinstance(value, dict):
        return {key: _ordered(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_ordered(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_ordered(item) for item in value), key=repr)
    return value
