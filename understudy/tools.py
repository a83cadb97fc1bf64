"""Tools: functions that a model may call.

The schema comes from the signature and the docstring (Pydantic AI makes it). We call the function
ourselves, so that a call has a key, a record and a person's answer behind it.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import (
    Any,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_ai.exceptions import UserError as SchemaError
from pydantic_ai.messages import is_multi_modal_content
from pydantic_ai.tools import Tool as SchemaTool
from pydantic_ai.tools import ToolDefinition
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from understudy.errors import UsageError
from understudy.state import AgentState
from understudy.values import digest

__all__ = ["InvalidArguments", "Retry", "Tool", "ToolContext", "ToolFailed", "ToolResult", "tool"]

T = TypeVar("T")
R = TypeVar("R")
OnUnknown = Literal["ask", "tell"]
_ABSENT: Any = object()


class Retry(Exception):
    """Raised by a tool on purpose: the model gets the text as an error and may try again (T2)."""


class ToolFailed(Exception):
    """Raised by a tool that failed and has nothing to add: the model gets the text as it is."""


class InvalidArguments(Exception):
    """What the model (or an edit) gave does not fit the tool's parameters; the text says why."""


@dataclass(frozen=True, slots=True)
class ToolResult(Generic[T]):
    """What a tool returns when it has more to say than one value (T4)."""

    content: Any = None
    """For the model."""
    value: T = _ABSENT
    """For the program: `outcome.tool_result.value`. By default the content."""
    state: Mapping[str, Any] | None = None
    """A delta for the agent's values: mappings merge deeply, all else is replaced."""

    @property
    def has_value(self) -> bool:
        """Whether a value of its own was given beside the content."""
        return self.value is not _ABSENT


class ToolContext:
    """What a tool may know of its call. Annotate the first parameter with it to get one (T3)."""

    __slots__ = (
        "_emit",
        "_read_state",
        "_run_agent",
        "_state",
        "agent_id",
        "agent_path",
        "call_key",
        "deps",
        "resume_value",
        "resumed",
        "run_id",
        "tool_call_id",
        "tool_name",
    )

    agent_id: str
    agent_path: tuple[str, ...]
    """Names of the agents from the root down to this one."""
    run_id: str
    call_key: str
    """The same whenever this very call runs: hand it to the target as its idempotency key."""
    tool_call_id: str
    tool_name: str
    deps: Any
    """What the host gave to the run: connections, settings, a user. Never stored."""
    resumed: bool
    """Whether the `Interrupt` that this call raised before was answered."""
    resume_value: Any
    """That answer, or None."""

    def __init__(
        self,
        *,
        read_state: Callable[[], AgentState],
        agent_id: str,
        agent_path: tuple[str, ...],
        run_id: str,
        call_key: str,
        tool_call_id: str,
        tool_name: str,
        deps: Any,
        resumed: bool,
        resume_value: Any,
        emit: Callable[[ToolContext, Any], None],
        run_agent: Callable[[Any, Any, int], Coroutine[Any, Any, Any]],
    ) -> None:
        self._read_state = read_state
        self._state: AgentState | None = None
        self.agent_id = agent_id
        self.agent_path = agent_path
        self.run_id = run_id
        self.call_key = call_key
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
        self.deps = deps
        self.resumed = resumed
        self.resume_value = resume_value
        self._emit = emit
        self._run_agent = run_agent

    @property
    def state(self) -> AgentState:
        """The agent's state, to read: a copy, made when first asked for in this call."""
        if self._state is None:
            self._state = self._read_state()
        return self._state

    async def run_agent(self, agent: Any, input: Any, *, max_depth: int = 5) -> Any:
        """Run another agent inside this call, and give its outcome (T3).

        If it waits for a person, so does this call: afterwards the tool runs again from its
        start, and the agent goes on where it was. Its requests, usage and events are this run's.

        Args:
            agent: an `Agent`, or the name of one that a `SubAgent` of this agent offers.
            input: what it is told.
            max_depth: how deep agents may nest, the root counted (S7).

        Raises:
            UsageError: for what is no agent, an empty input, or one level too deep.

        """
        return await self._run_agent(agent, input, max_depth)

    def emit(self, data: Any) -> None:
        """Tell the run's subscribers something: they get a `ToolEmitted` event with `data`."""
        self._emit(self, data)


class Tool(Generic[R]):
    """A function with its schema. Make one with `@tool`; it is still callable as the function.

    Args:
        function: async or plain. Plain ones run in worker threads.
        name: for the model; the function's name by default.
        description: for the model; the docstring by default.
        sequential: run alone, not beside its siblings of the same reply (T1).
        idempotent: running it again with the same `ctx.call_key` has no second effect, so a call
            that was cut off may run again (J4).
        timeout: seconds; after it an idempotent tool gets an error, any other is in doubt (T6).
        inline: run a plain function on the event loop itself. Only for fast ones.
        on_unknown: who settles a call in doubt: `ask` a person, or `tell` the model that the
            outcome is unknown. By default gated tools ask.
        version: part of what an approval is bound to; change it when the tool's meaning does (I12).

    Raises:
        UsageError: if the function has a parameter without annotation, or no schema can be made.

    """

    def __init__(
        self,
        function: Callable[..., Coroutine[Any, Any, R]] | Callable[..., R],
        *,
        name: str | None = None,
        description: str | None = None,
        sequential: bool = False,
        idempotent: bool = False,
        timeout: float | None = None,
        inline: bool = False,
        on_unknown: OnUnknown | None = None,
        version: str = "",
    ) -> None:
        if not callable(function):
            raise UsageError(f"A tool is a function, not {function!r}")
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", type(function).__name__))
        _check_options(self.name, timeout=timeout, on_unknown=on_unknown)
        self.sequential = sequential
        self.idempotent = idempotent
        self.timeout = timeout
        self.inline = inline
        self.on_unknown = on_unknown
        self.version = version
        self.is_async = _is_async(function)
        if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
            raise UsageError(f"Tool {self.name!r} is a generator: return one value instead")
        if inline and timeout is not None:
            raise UsageError(f"Tool {self.name!r}: what runs inline cannot be timed out")
        if inline and self.is_async:
            raise UsageError(
                f"Tool {self.name!r} is async: it runs on the loop without inline=True"
            )

        hints, signature = _hints(function, self.name)
        self.takes_context = _takes_context(self.name, signature, hints)
        self._return_type = _return_type(hints.get("return", Any))
        schema = _schema_tool(function, self, hints, signature, description)
        self._schema = schema.function_schema
        self._validator = schema.function_schema.validator
        self.definition: ToolDefinition = schema.tool_def
        self.description = schema.description or ""
        self.parameters: dict[str, Any] = schema.tool_def.parameters_json_schema
        self.fingerprint = digest([self.name, self.parameters, version])
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plain function, as a test would."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    # ------------------------------------------------------------------ arguments

    def validate(self, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
        """The keyword arguments for the function, converted to its types, defaults filled in.

        Raises:
            InvalidArguments: with a text that tells the model what to mend.

        """
        try:
            if isinstance(arguments, str):
                checked = self._validator.validate_json(arguments or "{}")
            else:
                checked = self._validator.validate_python(dict(arguments or {}))
        except ValidationError as error:
            raise InvalidArguments(_told(error)) from None
        return cast("dict[str, Any]", checked)

    def revalidate(self, canonical: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments that canonical arguments stand for."""
        try:
            return self.validate(to_json(canonical).decode())
        except PydanticSerializationError as error:
            raise InvalidArguments(f"The arguments cannot be written as JSON: {error}") from error

    def canonical(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """Validated arguments as JSON, in the shape of the tool's schema."""
        single = self._schema.single_arg_name
        shown = checked[single] if single is not None else checked
        try:
            canonical = to_jsonable_python(_ordered(shown))
            to_json(canonical)  # finds text that no encoding takes
            json.dumps(canonical, allow_nan=False)  # finds numbers that JSON lacks
            return cast("dict[str, Any]", canonical)
        except (PydanticSerializationError, ValueError) as error:
            raise InvalidArguments(f"The arguments cannot be written as JSON: {error}") from error

    def bind(self, checked: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """How to pass validated arguments to the function, less the context."""
        keywords = dict(checked)
        positional = [keywords.pop(name) for name in self._schema.positional_fields]
        if self._schema.var_positional_field is not None:
            positional.extend(keywords.pop(self._schema.var_positional_field))
        return positional, keywords

    # --------------------------------------------------------------------- values

    def dump_value(self, value: Any) -> Any:
        """A return value as JSON, through the return annotation (J18).

        Raises:
            ValueError: if it cannot be serialised.

        """
        if value is None or type(value) in (str, int, bool):
            return value
        try:
            adapter = self._adapter
            if adapter is None:
                return to_jsonable_python(value)
            return adapter.dump_python(value, mode="json", warnings=False)
        except PydanticSerializationError as error:
            raise ValueError(str(error)) from error

    def load_value(self, data: Any) -> Any:
        """The return value that `dump_value` wrote.

        Raises:
            ValueError: if the annotation does not accept it any more.

        """
        return data if self._adapter is None else self._adapter.validate_python(data)

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[Any] | None:
        if self._return_type is Any:
            return None
        try:
            return TypeAdapter(self._return_type)
        except (PydanticSchemaGenerationError, PydanticUserError):
            return None  # a type Pydantic cannot describe: its values are tried as JSON


class ToolDecorator(Protocol):
    """What `tool(...)` with options returns."""

    @overload
    def __call__(self, function: Callable[..., Coroutine[Any, Any, R]], /) -> Tool[R]: ...
    @overload
    def __call__(self, function: Callable[..., R], /) -> Tool[R]: ...


@overload
def tool(function: Callable[..., Coroutine[Any, Any, R]], /) -> Tool[R]: ...
@overload
def tool(function: Callable[..., R], /) -> Tool[R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    sequential: bool = False,
    idempotent: bool = False,
    timeout: float | None = None,
    inline: bool = False,
    on_unknown: OnUnknown | None = None,
    version: str = "",
) -> ToolDecorator: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Any
) -> Tool[Any] | ToolDecorator:
    """Make a `Tool` of a function: `@tool`, or `@tool(timeout=30, ...)`. See `Tool` for options."""
    if function is not None:
        return Tool(function)
    return cast("ToolDecorator", functools.partial(Tool, **options))


def _ordered(value: Any) -> Any:
    """The value with each set in it as a sorted list, so that its JSON is the same anywhere."""
    if isinstance(value, dict):
        return {key: _ordered(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_ordered(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_ordered(item) for item in value), key=repr)
    return value


def as_tool(given: object) -> Tool[Any]:
    """`given` if it is a `Tool`, or one made of it."""
    if isinstance(given, Tool):
        return given
    if callable(given) and not isinstance(given, type):
        return Tool(given)
    raise UsageError(f"tools=[...] takes functions and @tool functions, not {given!r}")


def model_content(value: Any, jsonable: Any) -> Any:
    """What the model is shown of a return value: text and files as they are, else JSON."""
    if isinstance(value, (str, int, float, dict)) or value is None:
        return jsonable
    if is_multi_modal_content(value):
        return value
    if isinstance(value, Sequence) and any(is_multi_modal_content(item) for item in value):
        return list(value)
    return jsonable


# ------------------------------------------------------------------------- building


def _check_options(name: str, *, timeout: float | None, on_unknown: str | None) -> None:
    if timeout is not None and not (
        isinstance(timeout, (int, float)) and not isinstance(timeout, bool) and timeout > 0
    ):
        raise UsageError(f"Tool {name!r}: timeout must be seconds above 0, not {timeout!r}")
    if on_unknown not in (None, "ask", "tell"):
        raise UsageError(f"Tool {name!r}: on_unknown must be 'ask' or 'tell', not {on_unknown!r}")


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or (
        not inspect.isfunction(function)
        and inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    )


def _hints(function: Callable[..., Any], name: str) -> tuple[dict[str, Any], inspect.Signature]:
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


def _takes_context(name: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> bool:
    takes = False
    for index, parameter in enumerate(signature.parameters.values()):
        if parameter.name not in hints:
            raise UsageError(
                f"Tool {name!r}: parameter {parameter.name!r} has no annotation. "
                + (
                    "Make a tool of the bound method instead: tool(thing.method)."
                    if parameter.name == "self"
                    else "Annotate it, so that the model is told what to give."
                )
            )
        if hints[parameter.name] is ToolContext:
            if index != 0:
                raise UsageError(
                    f"Tool {name!r}: ToolContext must be the first parameter, not "
                    f"{parameter.name!r}."
                )
            takes = True
    return takes


def _return_type(annotation: Any) -> Any:
    if get_origin(annotation) is ToolResult:
        return get_args(annotation)[0]
    return Any if annotation is ToolResult else annotation


def _schema_tool(
    function: Callable[..., Any],
    tool: Tool[Any],
    hints: Mapping[str, Any],
    signature: inspect.Signature,
    description: str | None,
) -> SchemaTool[Any]:
    """Pydantic AI's tool over a stand-in whose signature lacks the context parameter.

    It makes the schema and the validator, and is never called.
    """
    parameters = list(signature.parameters.values())[1 if tool.takes_context else 0 :]
    told = {p.name: hints[p.name] for p in parameters}

    def stand_in() -> None:
        raise AssertionError("the stand-in for a tool's schema was called")

    stand_in.__name__ = stand_in.__qualname__ = tool.name
    stand_in.__doc__ = (
        inspect.getdoc(function)
        if isinstance(function, (FunctionType, functools.partial)) or inspect.ismethod(function)
        else inspect.getdoc(type(function))
    )
    stand_in.__module__ = getattr(function, "__module__", __name__)
    stand_in.__annotations__ = told
    stand_in.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[p.replace(annotation=told[p.name]) for p in parameters],
        return_annotation=inspect.Signature.empty,
    )
    try:
        return SchemaTool(
            stand_in,
            takes_ctx=False,
            name=tool.name,
            description=description,
            sequential=tool.sequential,
        )
    except (SchemaError, PydanticSchemaGenerationError, PydanticUserError) as error:
        raise UsageError(f"Tool {tool.name!r}: no schema can be made: {error}") from error


def _told(error: ValidationError) -> str:
    lines = []
    for detail in error.errors(include_url=False, include_context=False):
        where = ".".join(str(part) for part in detail["loc"]) or "arguments"
        given = json.dumps(to_jsonable_python(detail["input"], fallback=repr))
        lines.append(f"{where}: {detail['msg']} (given: {given[:200]})")
    return "\n".join(lines)
