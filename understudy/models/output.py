"""An agent's final text as a value of a type, and its key in the agent's values."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError

from understudy._base.causes import cause_of
from understudy._base.json_values import (
    NotJsonError,
    as_json,
    check_text,
    lost_number,
    text_of,
)
from understudy.errors import UsageError

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL | re.IGNORECASE)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class InvalidOutput(Exception):
    """The final text is not a value of the output type. The message is for the model."""


class Output:
    """How the final text of an agent's run is read, and where it is put.

    Args:
        key: of `state.values`, where the text or its value is put; None for nowhere.
        type: of the value, which Pydantic validates from the text as JSON. None and `str` take the
            text as it is.
        agent: the agent's name, for errors.

    Raises:
        UsageError: for a key that `{key}` cannot read, or a type without a JSON schema.

    """

    def __init__(self, *, key: str | None, type: Any, agent: str) -> None:
        if key is not None and (not isinstance(key, str) or not _KEY.fullmatch(key)):
            raise UsageError(
                f"Agent {agent!r}: `output_key` must be a name that {{key}} can read, made of "
                f"letters, digits, _, . and -, got {key!r}"
            )
        self.key = key
        self.type = type
        self._adapter: TypeAdapter[Any] | None = None
        self.instructions: str = ""
        """The instructions that describe the type, after all others; empty for text."""
        if type is None or type is str:
            return
        try:
            if inspect.isroutine(type):
                raise TypeError("it is a function")
            self._adapter = TypeAdapter(type)
            schema = self._adapter.json_schema()
        except (
            PydanticSchemaGenerationError,
            PydanticInvalidForJsonSchema,
            TypeError,
            NameError,
        ) as error:
            raise UsageError(
                f"Agent {agent!r}: `output_type` must be a type that Pydantic can validate from "
                f"JSON, such as a BaseModel, got {type!r} ({error})"
            ) from error
        check_text(schema, what=f"Agent {agent!r}: the schema of `output_type` {type!r}")
        self.instructions = (
            "Your final answer is JSON that fits this schema, and nothing else, no Markdown "
            f"around it:\n{json.dumps(schema, ensure_ascii=False)}"
        )

    @property
    def typed(self) -> bool:
        """Whether the text is read as another type than `str`."""
        return self._adapter is not None

    def read(self, text: str) -> Any:
        """The value of this text, as JSON.

        Raises:
            InvalidOutput: if it is none; the message tells the model what to correct.

        """
        adapter = self._adapter
        if adapter is None:
            return text
        fenced = _FENCED.fullmatch(text)
        try:
            value = adapter.validate_json(fenced.group(1) if fenced else text)
            plain = adapter.dump_python(value, mode="json")
            stored = as_json(plain)
        except ValidationError as error:
            raise InvalidOutput(_error_text(error)) from error
        except (PydanticSerializationError, NotJsonError) as error:
            raise InvalidOutput(text_of(error)) from error
        except Exception as error:  # of a validator of the type's own
            raise InvalidOutput(f"answer: a validator raised {cause_of(error)}") from error
        if lost_number(stored, plain):
            raise InvalidOutput("answer: Numbers must be finite: NaN and infinity cannot be kept")
        return stored

    def load(self, data: Any) -> Any:
        """The value from the JSON that `read` returned.

        Raises:
            ValueError: if the type does not accept it any more.

        """
        return data if self._adapter is None else self._adapter.validate_python(data)


def _error_text(error: ValidationError) -> str:
    return "\n".join(
        f"{'.'.join(str(part) for part in detail['loc']) or 'answer'}: {detail['msg']}"
        for detail in error.errors(include_url=False, include_context=False)
    )
