"""`tool`: makes a `Tool` of a function, or of a tool of another library."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.tools.foreign.injected import Inject
from understudy.tools.foreign.readers import reader_of
from understudy.tools.function_tool import Tool, ToolOptions

if TYPE_CHECKING:
    from understudy.tools.foreign.foreign_tool import Foreign

F = TypeVar("F", bound=Callable[..., Any])


class ToolDecorator:
    """The type of `tool`, its only instance.

    `@tool`, or `@tool(timeout=30, ...)` with options of `Tool`, makes a tool of a function.
    `tool.from_langchain`, `tool.from_openai_agents` and `tool.from_definition` make a tool of what
    was written for another library. Such a tool has the same records, gates, rules and effects as
    any other. It does not declare the effect of calling it again: give `read_only=True` or
    `idempotent=True` to declare it.
    """

    @overload
    def __call__(self, function: F, /) -> Tool[F]: ...
    @overload
    def __call__(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> Callable[[F], Tool[F]]: ...
    def __call__(self, function: Any = None, /, **options: Any) -> Any:
        """Make a `Tool` of a function: `@tool`, or `@tool(timeout=30, ...)` with its options."""
        if function is not None:
            return Tool(function)
        return functools.partial(Tool, **options)

    def from_langchain(
        self,
        given: object,
        *,
        name: str | None = None,
        description: str | None = None,
        inject: Inject | None = None,
        **options: Unpack[ToolOptions],
    ) -> Tool[Callable[..., Any]]:
        """Return a tool of LangChain as a tool of this library.

        LangChain validates the arguments, and calls the tool and its callbacks. The model gets the
        same text as in LangChain. An artifact becomes the value for the program. With
        `return_direct=True` the run ends with the turn.

        Args:
            given: a `BaseTool`, such as `@langchain_core.tools.tool` makes.
            name: another name for the model.
            description: another description for the model.
            inject: functions of the `ToolContext`, by the name of an argument. Each makes an
                argument that a graph of LangChain fills in: an `InjectedToolArg`, a
                `ToolRuntime` or a `RunnableConfig`. The id of a call needs none.
            options: the options of `Tool`.

        Raises:
            UsageError: if `given` is not such a tool, cannot be carried over, or has a schema
                that names other arguments than its function takes.

        """
        foreign = _read(given, "langchain", "a tool of LangChain (a BaseTool)", inject=inject)
        return _made(foreign, options, name=name, description=description)

    def from_openai_agents(
        self,
        given: object,
        *,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> Tool[Callable[..., Any]]:
        """Return a tool of the OpenAI Agents SDK as a tool of this library.

        A function that takes a context gets a context whose `context` is the `deps` of the run.
        `needs_approval` becomes a gate, also if it is a function. `timeout` becomes the limit of
        the call. An error that leaves open what the call did puts the call in doubt, as with any
        tool.

        Args:
            given: a `FunctionTool`, such as `@agents.function_tool` makes.
            name: another name for the model.
            description: another description for the model.
            options: the options of `Tool`.

        Raises:
            UsageError: if `given` is anything else, such as a tool that OpenAI runs, cannot be
                carried over, or has a schema that names other arguments than its function
                takes.

        """
        foreign = _read(given, "openai_agents", "a FunctionTool of the Agents SDK")
        return _made(foreign, options, name=name, description=description)

    def from_definition(
        self,
        definition: Mapping[str, Any],
        function: Callable[..., Any],
        **options: Unpack[ToolOptions],
    ) -> Tool[Callable[..., Any]]:
        """Return a tool made of a function and of the dict that describes it to OpenAI or
        Anthropic.

        Arguments are checked by the schema. The function gets them by name, unchanged. A
        `ToolContext` may be its first parameter.

        Args:
            definition: the dict that `tools=` of a request takes, in a form of OpenAI or of
                Anthropic.
            function: the function, async or plain.
            options: the options of `Tool`.

        Raises:
            UsageError: if `definition` is not such a dict, has a key or a type that cannot be
                carried over, has an invalid schema, or has a schema that does not fit the
                function: it names an argument that the function does not take or takes with
                another type, or lacks an argument that the function needs.

        """
        from understudy.tools.foreign.definitions import from_definition

        return _made(from_definition(definition, function), options)


def _read(given: object, library: str, wanted: str, **options: Any) -> Foreign:
    reader = reader_of(given)
    if reader is None or reader.__name__ != f"_{library}":
        raise UsageError(f"tool.from_{library} takes {wanted}, got {shown(given)}")
    return reader(given, **options)


def _made(
    foreign: Foreign,
    options: Mapping[str, Any],
    *,
    name: str | None = None,
    description: str | None = None,
) -> Tool[Callable[..., Any]]:
    from understudy.tools.foreign.foreign_tool import ForeignTool

    return ForeignTool(foreign, options, name=name, description=description)


tool: ToolDecorator = ToolDecorator()
"""Make a `Tool` of a function: `@tool`, or `@tool(timeout=30, ...)` with the options of `Tool`.

`tool.from_langchain(...)`, `tool.from_openai_agents(...)` and `tool.from_definition(...)` make a
tool of what was written for another library.
"""
