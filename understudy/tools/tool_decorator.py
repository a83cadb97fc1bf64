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
        """A tool of LangChain as a tool.

        LangChain validates the arguments, and calls the tool and its callbacks. The model is told
        what it is told there. An artifact is the value for the program, and `return_direct=True`
        ends the run with the turn.

        Args:
            given: a `BaseTool`, such as `@langchain_core.tools.tool` makes.
            name: another name for the model.
            description: another description for the model.
            inject: by its name, a function of the `ToolContext` that makes an argument which a
                graph fills in there: an `InjectedToolArg`, a `ToolRuntime`, a `RunnableConfig`.
                The id of a call needs none.
            options: as of `Tool`.

        Raises:
            UsageError: for anything else, for what cannot be carried over, and for a schema that
                names other arguments than its function takes.

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
        """A tool of the OpenAI Agents SDK as a tool.

        A function that takes a context gets one, whose `context` are the `deps` of the run.
        `needs_approval` becomes a gate, also a function, and `timeout` the limit of the call. An
        error of the tool is ours: what leaves open what it did makes a doubt.

        Args:
            given: a `FunctionTool`, such as `@agents.function_tool` makes.
            name: another name for the model.
            description: another description for the model.
            options: as of `Tool`.

        Raises:
            UsageError: for anything else, such as a tool that OpenAI runs, for what cannot be
                carried over, and for a schema that names other arguments than its function takes.

        """
        foreign = _read(given, "openai_agents", "a FunctionTool of the Agents SDK")
        return _made(foreign, options, name=name, description=description)

    def from_definition(
        self,
        definition: Mapping[str, Any],
        function: Callable[..., Any],
        **options: Unpack[ToolOptions],
    ) -> Tool[Callable[..., Any]]:
        """A tool by the dict that OpenAI or Anthropic is told of it, and by its function.

        Arguments are checked by the schema. They are given to the function by their names, as they
        are; a `ToolContext` may come before them.

        Args:
            definition: as `tools=` of a request takes it, in one of the forms of OpenAI, or in that
                of Anthropic.
            function: async or plain.
            options: as of `Tool`.

        Raises:
            UsageError: for what is no such dict, a key or a type that cannot be carried over, a
                schema that is none, and one that does not fit the function: it names an argument
                that this does not take, or of another type, or leaves out what it needs.

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
