"""An agent's final answer as a value of a type, and its key in the agent's values."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import (
    PydanticInvalidForJsonSchema,
    PydanticSchemaGenerationError,
    PydanticUserError,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import Tool as SchemaTool
from pydantic_core import PydanticSerializationError

from understudy._base.error_texts import error_text
from understudy._base.json_values import (
    NotJsonError,
    as_json,
    check_sendable,
    text_of,
)
from understudy.errors import UsageError
from understudy.models.requirements import OutputMode

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
OUTPUT_TOOL = "final_result"
"""The name of the tool by which a model gives its answer, with `output_mode="tool"`."""


class InvalidOutput(Exception):
    """The final text is not a value of the output type. The message is for the model."""


def _without_fence(text: str) -> str:
    """The text inside Markdown's code fence, if the fence is the whole answer; else the text.

    No pattern looks for the fence: on many empty lines inside it would try each way to divide them.
    """
    first, _, rest = text.strip().partition("\n")
    is_framed = first[:3] == rest[-3:] == "```" and first[3:].strip().lower() in ("", "json")
    return rest[:-3].rstrip() if is_framed else text


class Output:
    """The rule by which the final answer of an agent's run is asked for, read and stored.

    Args:
        key: the key in `state.values` for the text or its value; None = it is not put there.
        type: the type of the value, which Pydantic validates from the text as JSON. None and `str`
            take the text as it is.
        mode: how the model is asked for such a value; None = by the instructions alone.
        agent: the agent's name, for errors.

    Raises:
        UsageError: for a key that `{key}` cannot read, a type without a JSON schema, or an unknown
            mode.

    """

    tools: tuple[Any, ...] = ()
    """The tools by which the answer is given, if another library has made them."""
    reader: Callable[[Any, str], Awaitable[Any]] | None = None
    """A function that reads a final text in its run, instead of `read`; it raises the same
    errors."""
    allows_nothing: bool = False
    """Whether a reply without text and tool calls is an answer."""

    def __init__(
        self, *, key: str | None, type: Any, mode: OutputMode | None = None, agent: str
    ) -> None:
        if key is not None and (not isinstance(key, str) or not _KEY.fullmatch(key)):
            raise UsageError(
                f"Agent {agent!r}: `output_key` must be a name that {{key}} can read, made of "
                f"letters, digits, _, . and -, got {key!r}"
            )
        self.key = key
        self.type = type
        self.mode = mode
        self._adapter: TypeAdapter[Any] | None = None
        self.instructions: str = ""
        """The instructions that describe the type, after all others; empty for text."""
        if mode is not None and mode not in get_args(OutputMode):
            raise UsageError(
                f"Agent {agent!r}: `output_mode` must be 'tool', 'native' or 'prompted', got "
                f"{mode!r}"
            )
        if type is None or type is str:
            if mode is not None:
                raise UsageError(
                    f"Agent {agent!r}: output_mode={mode!r} asks for a value of `output_type`: "
                    "give a type other than str"
                )
            return
        try:
            if inspect.isroutine(type):
                raise TypeError("it is a function")
            self._adapter = TypeAdapter(type)
            schema = self._adapter.json_schema()
        except (
            PydanticSchemaGenerationError,
            PydanticInvalidForJsonSchema,
            PydanticUserError,
            TypeError,
            NameError,
        ) as error:
            raise UsageError(
                f"Agent {agent!r}: `output_type` must be a type that Pydantic can validate from "
                f"JSON, such as a BaseModel, got {type!r} ({error})"
            ) from error
        check_sendable(schema, what=f"Agent {agent!r}: the schema of `output_type` {type!r}")
        if mode is not None:
            self._form = _form_of(type, agent=agent)
            return
        self.instructions = (
            "Your final answer is JSON that fits this schema, and nothing else, no Markdown "
            f"around it:\n{json.dumps(schema, ensure_ascii=False)}"
        )

    def is_held_back(self, calls: Iterable[Any]) -> bool:
        """Whether an answer by a tool does not count because of the other calls of its reply."""
        return False

    @property
    def typed(self) -> bool:
        """Whether the text is read as another type than `str`."""
        return self._adapter is not None

    def read(self, text: str) -> Any:
        """The value of this text, as JSON.

        Raises:
            InvalidOutput: if the text is no such value; the message tells the model what to
                correct.

        """
        adapter = self._adapter
        if adapter is None:
            return text
        answer = _without_fence(text)
        try:
            if self.mode is None:
                value = adapter.validate_json(answer)
            else:
                value = self._form.function_schema.validator.validate_json(answer)[_ANSWER]
            plain = adapter.dump_python(value, mode="json")
            stored = as_json(plain)
        except ValidationError as error:
            where = f"call the tool {OUTPUT_TOOL!r} with it\n" if self.mode == "tool" else ""
            raise InvalidOutput(where + _validation_text(error)) from error
        except (PydanticSerializationError, NotJsonError) as error:
            raise InvalidOutput(text_of(error)) from error
        except Exception as error:  # a validator of the type may raise anything
            raise InvalidOutput(f"answer: a validator raised {error_text(error)}") from error
        return stored

    def object_definition(self) -> OutputObjectDefinition:
        """The form of the answer for a model that is asked for it by its API or in a prompt."""
        schema = dict(self._form.function_schema.json_schema)
        if "$ref" in schema:  # of a recursive type: providers want the object at the top
            name = str(schema.pop("$ref")).rpartition("/")[2]
            schema = {**schema["$defs"][name], **schema}
        description = schema.pop("description", None) or self._form.description
        name = str(schema.get("title") or OUTPUT_TOOL)
        return OutputObjectDefinition(json_schema=schema, name=name, description=description)

    def load(self, data: Any) -> Any:
        """The value from the JSON that `read` returned.

        Raises:
            ValueError: if the type does not accept it any more.

        """
        return data if self._adapter is None else self._adapter.validate_python(data)


_ANSWER = "response"
"""The name of the value if its type is no object, because the top of an answer must be one."""


def _form_of(type: Any, *, agent: str) -> SchemaTool[Any]:
    """The answer as the arguments of a tool, whose schema Pydantic AI generates."""

    def answer(response: Any) -> None:
        raise AssertionError("the placeholder for the form of an answer was called")

    answer.__annotations__ = {_ANSWER: type}
    try:
        return SchemaTool(answer, takes_ctx=False, name=OUTPUT_TOOL)
    except (UserError, PydanticSchemaGenerationError) as error:
        raise UsageError(f"Agent {agent!r}: `output_type`: {error}") from error


def _validation_text(error: ValidationError) -> str:
    return "\n".join(
        f"{'.'.join(str(part) for part in detail['loc']) or 'answer'}: {detail['msg']}"
        for detail in error.errors(include_url=False, include_context=False)
    )
