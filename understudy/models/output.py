"""What becomes of an agent's final text: a value of a type, under a key of the values (W4)."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError

from understudy.errors import UsageError

__all__ = ["InvalidOutput", "Output"]

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL | re.IGNORECASE)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class InvalidOutput(Exception):
    """The final text is no value of the output type; what the model is told is its text."""


class Output:
    """The final text of an agent's run, as somebody wants it.

    Args:
        key: where in `state.values` it is put, or None.
        type: what the text is read as: JSON that Pydantic accepts as this type. None, and `str`,
            take the text as it is.
        agent: whose it is, for errors.

    Raises:
        UsageError: for a key that no `{key}` could read, or a type that has no JSON schema.

    """

    def __init__(self, *, key: str | None, type: Any, agent: str) -> None:
        if key is not None and (not isinstance(key, str) or not _KEY.fullmatch(key)):
            raise UsageError(
                f"Agent {agent!r}: output_key is a name that {{key}} can read, made of letters, "
                f"digits, _, . and -; not {key!r}"
            )
        self.key = key
        self.type = type
        self._adapter: TypeAdapter[Any] | None = None
        self.instructions = ""
        """What the model is told of the type, after all other instructions."""
        if type is None or type is str:
            return
        try:
            if inspect.isroutine(type):
                raise TypeError("a function is no type")
            self._adapter = TypeAdapter(type)
            schema = self._adapter.json_schema()
        except (
            PydanticSchemaGenerationError,
            PydanticInvalidForJsonSchema,
            TypeError,
            NameError,
        ) as error:
            raise UsageError(
                f"Agent {agent!r}: output_type is a type that Pydantic can validate from JSON, "
                f"such as a BaseModel; not {type!r} ({error})"
            ) from error
        self.instructions = (
            "Your final answer is JSON that fits this schema, and nothing else, no Markdown "
            f"around it:\n{json.dumps(schema, ensure_ascii=False)}"
        )

    @property
    def typed(self) -> bool:
        """Whether the text is read as something else."""
        return self._adapter is not None

    def read(self, text: str) -> Any:
        """The value of this text, as JSON.

        Raises:
            InvalidOutput: saying what is wrong, for the model to mend.

        """
        adapter = self._adapter
        if adapter is None:
            return text
        fenced = _FENCED.fullmatch(text)
        try:
            value = adapter.validate_json(fenced.group(1) if fenced else text)
            return adapter.dump_python(value, mode="json")
        except ValidationError as error:
            raise InvalidOutput(
                _told(error.errors(include_url=False, include_context=False))
            ) from error
        except PydanticSerializationError as error:
            raise InvalidOutput(str(error)) from error

    def load(self, data: Any) -> Any:
        """The value that `read` told as JSON.

        Raises:
            ValueError: if the type does not accept it any more.

        """
        return data if self._adapter is None else self._adapter.validate_python(data)


def _told(errors: list[Any]) -> str:
    return "\n".join(
        f"{'.'.join(str(place) for place in error['loc']) or 'answer'}: {error['msg']}"
        for error in errors
    )
