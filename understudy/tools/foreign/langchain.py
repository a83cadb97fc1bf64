"""Tools of LangChain: any `BaseTool`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, cast, get_args, get_type_hints

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
from langchain_core.tools import Tool as OneInputTool
from langchain_core.tools.base import get_all_basemodel_annotations
from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticUserError

from understudy._base.error_texts import error_text
from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.interrupts import Interrupt
from understudy.tools.context import ToolContext
from understudy.tools.foreign.content import content_of
from understudy.tools.foreign.fits import check_fits
from understudy.tools.foreign.foreign_tool import Foreign, not_carried
from understudy.tools.foreign.injected import Inject
from understudy.tools.result import InvalidArguments, RemoteToolError, ResultLost, ToolResult
from understudy.tools.schema import error_places, validation_text
from understudy.tools.schema_arguments import Check

_OWN = ("run_manager", "callbacks")
"""Parameters that LangChain fills in itself."""
_ONE_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"__arg1": {"type": "string", "title": "__arg1"}},
    "required": ["__arg1"],
}
"""The parameters of a tool that takes one text, as LangChain describes them to a model."""


def read(given: BaseTool, *, inject: Inject | None = None) -> Foreign:
    """Read a tool of LangChain.

    Args:
        given: the tool.
        inject: functions that make arguments which the model does not write, by argument name.

    Raises:
        UsageError: for what cannot be carried over, and for a schema that does not fit the
            function.

    """
    what = f"Tool {given.name!r} of LangChain"
    if given.extras:
        raise not_carried(
            what,
            f"extras={shown(given.extras)} for one provider",
            'leave them out: tool.model_copy(update={"extras": None})',
        )
    function = _function_of(given)
    made = _injected(given, function, inject or {}, what=what)
    config = next((name for name, each in made.items() if each is _CONFIG), None)
    if isinstance(given, OneInputTool) and given.args_schema is None:
        parameters: Any = _ONE_INPUT
        model = None
    else:
        parameters, model = _schema_of(given, what=what)
        _check_function(function, given, parameters, besides=(*_OWN, *made), what=what)
    _check_return(function, what=what)
    call = _Call(given, inject or {}, config)
    return Foreign(
        name=given.name,
        description=given.description,
        parameters=parameters,
        call=call.later if _is_async(given) else call.now,
        check=None if model is None else _by(model),
    )


def _function_of(tool: BaseTool) -> Callable[..., Any]:
    """The function whose signature says what the tool takes."""
    for name in ("coroutine", "func"):
        function = getattr(tool, name, None)
        if callable(function):
            return cast("Callable[..., Any]", function)
    own = tool._run if type(tool)._arun is BaseTool._arun else tool._arun
    return cast("Callable[..., Any]", own)


def _is_async(tool: BaseTool) -> bool:
    if hasattr(tool, "coroutine"):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun


# ------------------------------------------------------------------ what a model does not write

_CONFIG = object()


def _injected(
    tool: BaseTool, function: Callable[..., Any], inject: Inject, *, what: str
) -> dict[str, Any]:
    """The arguments that a model does not write, each with the function that fills it in."""
    model = tool.args_schema
    hints = dict(get_all_basemodel_annotations(model)) if _is_model(model) else {}
    with suppress(NameError, TypeError):  # LangChain cannot read them either
        hints = {**get_type_hints(function, include_extras=True), **hints}
    # The arguments of the schema that the model does not see, and those of the function alone.
    visible = tool.tool_call_schema
    known = set(visible.model_fields) if _is_model(visible) else set(visible.get("properties", ()))
    found = set(tool._injected_args_keys)
    if _is_model(model):
        found |= set(model.model_fields) - known
    made: dict[str, Any] = {}
    for name in sorted(found):
        if any(_is_call_id(each) for each in get_args(hints.get(name))):
            made[name] = "tool_call_id"  # LangChain reads it from the call
        elif name in inject:
            made[name] = inject[name]
        else:
            raise _left_open(what, name, "", "...")
    for name, hint in hints.items():
        if hint is RunnableConfig or RunnableConfig in get_args(hint):
            if name not in inject:
                raise _left_open(what, name, " (a RunnableConfig)", '{"configurable": {...}}')
            made[name] = _CONFIG
    for name, each in inject.items():
        if name not in made or made[name] == "tool_call_id":
            raise UsageError(
                f"{what}: `inject` names {name!r}, which is not an argument that a graph fills in"
            )
        if not callable(each):
            raise UsageError(
                f"{what}: inject[{name!r}] must be a function of a ToolContext, got {shown(each)}"
            )
    return made


def _left_open(what: str, name: str, kind: str, example: str) -> UsageError:
    return UsageError(
        f"{what} takes {name!r}{kind}, which a graph of LangChain fills in, and not the model: "
        "say what it is here, by from_langchain(tool, "
        f"inject={{{name!r}: lambda ctx: {example}}})"
    )


def _is_call_id(given: object) -> bool:
    return given is InjectedToolCallId or isinstance(given, InjectedToolCallId)


def _is_model(given: object) -> bool:
    return isinstance(given, type) and issubclass(given, BaseModel)


# ------------------------------------------------------------------------------- its schema


def _schema_of(tool: BaseTool, *, what: str) -> tuple[Any, type[BaseModel] | None]:
    """The JSON schema for the model, and the class that validates by it; None without a class."""
    given = tool.tool_call_schema
    if isinstance(given, dict):
        return {key: each for key, each in given.items() if key not in _SAID_BESIDE}, None
    try:
        schema = given.model_json_schema() if _is_model(given) else given.schema()
    except (PydanticUserError, ValueError, TypeError) as error:
        raise UsageError(f"{what} has arguments without a JSON schema: {error}") from error
    schema = {key: each for key, each in schema.items() if key not in _SAID_BESIDE}
    if not _is_model(given):
        return schema, None
    own = tool.args_schema
    is_whole = _is_model(own) and set(own.model_fields) == set(given.model_fields)
    return schema, own if is_whole else given


_SAID_BESIDE = ("title", "description")


def _check_function(
    function: Callable[..., Any],
    tool: BaseTool,
    parameters: Mapping[str, Any],
    *,
    besides: tuple[str, ...],
    what: str,
) -> None:
    schema = tool.tool_call_schema
    if _is_model(schema):  # an argument that is left out gets its default
        named = always = list(schema.model_fields)
    else:
        named, always = list(parameters.get("properties", ())), parameters.get("required", ())
    check_fits(function, named=named, always=always, besides=besides, what=what)


def _check_return(function: Callable[..., Any], *, what: str) -> None:
    try:
        returns = get_type_hints(function).get("return")
    except (NameError, TypeError):
        return
    if any(getattr(each, "__name__", "") == "Command" for each in (returns, *get_args(returns))):
        raise not_carried(
            what,
            "a Command as its result, which changes the state of a graph",
            "write it as a tool that returns ToolResult(content, state={...})",
        )


def _by(model: type[BaseModel]) -> Check:
    def check(arguments: dict[str, Any]) -> None:
        try:
            model.model_validate(arguments)
        except ValidationError as error:
            raise InvalidArguments(validation_text(error), error_places(error)) from None
        except Exception as error:  # a validator of the tool's own may raise anything
            raise InvalidArguments(f"A validator raised {error_text(error)}") from error

    return check


# -------------------------------------------------------------------------------- its calls


_Answer = dict[str, Any]
"""The answer to a question: its `value`, and the `id` of the request."""


class _Answers:
    """The answers that `interrupt()` of LangGraph gives to the tool, in the order of its calls.

    In a graph, `interrupt()` finds the answers under these private names of LangGraph, and without
    the names it raises a KeyError (tests/others:
    test_each_interrupt_of_a_tool_is_a_question_to_a_person).

    A call has the answers to the latest questions. Earlier answers are points of the call, with the
    ids of their requests: an answer that is recorded right before the next question does not answer
    that question.
    """

    def __init__(self, ctx: ToolContext[Any]) -> None:
        self._ctx = ctx
        self._kept: list[_Answer] = []
        self.interrupt_counter: Callable[[], int] = partial(next, count())

    @property
    def resume(self) -> list[Any]:
        """The answers so far."""
        return [each["value"] for each in (*self._kept, *self._new())]

    def get_null_resume(self, consume: bool = False) -> None:
        """Return None: the only answers are those to earlier calls."""

    def points(self) -> Iterator[tuple[str, Callable[[], _Answer]]]:
        """The points that the call has come to. The caller adds what is recorded there by `add`."""
        while self._ctx.resumed and self._ctx.has_come_to(name := f"answer/{len(self._kept)}"):
            yield name, self._first_new

    def new_points(self) -> Iterator[tuple[str, Callable[[], _Answer]]]:
        """The points for answers that are not recorded, before the tool asks something else."""
        while self._new():
            yield f"answer/{len(self._kept)}", self._first_new

    def add(self, recorded: _Answer) -> None:
        """Add the answer that a point has."""
        self._kept.append(recorded)

    def _new(self) -> list[_Answer]:
        known = {each["id"] for each in self._kept}
        given = self._ctx.answers.items()
        return [{"id": id, "value": value} for id, value in given if id not in known]

    def _first_new(self) -> _Answer:
        return self._new()[0]

    def added_to(self, config: RunnableConfig | None) -> RunnableConfig:
        """The config with what `interrupt()` looks for. An inner graph ignores it."""
        found = {
            "__pregel_scratchpad": self,
            "__pregel_send": _drop,
            "checkpoint_ns": "",
            **((config or {}).get("configurable") or {}),
        }
        return {**(config or {}), "configurable": found}


def _drop(_: object) -> None:
    """Ignore the answers, which a graph would keep: they are recorded already."""


def _questions(error: Exception) -> Exception | None:
    """The questions of a tool that has called `interrupt()`, as interrupts; None if it has not."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.GraphInterrupt):
        return None
    asked = [Interrupt(each.value, schema=each.response_schema) for each in error.args[0]]
    return asked[0] if len(asked) == 1 else ExceptionGroup("the tool asks", asked)


class _Call:
    """Calls of the tool through LangChain, so that its callbacks are called as well."""

    def __init__(self, tool: BaseTool, inject: Inject, config: str | None) -> None:
        self._given = tool
        self._inject, self._config = inject, config
        handlers = ("handle_tool_error", "handle_validation_error")
        # The error itself counts, with what led to it: its text says nothing about the effect.
        own = dict.fromkeys(handlers, False) if any(getattr(tool, e) for e in handlers) else None
        self._tool = tool if own is None else tool.model_copy(update=own)

    async def later(self, ctx: ToolContext[Any], arguments: dict[str, Any]) -> Any:
        """Call a tool that has an async function."""
        answers = _Answers(ctx)
        for name, first in answers.points():
            answers.add(await ctx.once(name, first))
        call, config = self._asked(ctx, arguments, answers)
        try:
            return self._result(await self._tool.ainvoke(call, config))
        except Exception as error:
            if (asked := _questions(error)) is not None:
                for name, first in answers.new_points():
                    answers.add(await ctx.once(name, first))
            raised = asked or self._for_model(error)
            if raised is None:
                raise
            raise raised from error

    def now(self, ctx: ToolContext[Any], arguments: dict[str, Any]) -> Any:
        """Call a tool that has a plain function."""
        answers = _Answers(ctx)
        for name, first in answers.points():
            answers.add(ctx.sync.once(name, first))
        call, config = self._asked(ctx, arguments, answers)
        try:
            return self._result(self._tool.invoke(call, config))
        except Exception as error:
            if (asked := _questions(error)) is not None:
                for name, first in answers.new_points():
                    answers.add(ctx.sync.once(name, first))
            raised = asked or self._for_model(error)
            if raised is None:
                raise
            raise raised from error

    def _asked(
        self, ctx: ToolContext[Any], arguments: dict[str, Any], answers: _Answers
    ) -> tuple[dict[str, Any], RunnableConfig]:
        made = {name: function(ctx) for name, function in self._inject.items()}
        given = None if self._config is None else made.pop(self._config)
        call = {"id": ctx.tool_call_id, "name": self._tool.name, "args": {**arguments, **made}}
        return {"type": "tool_call", **call}, answers.added_to(given)

    def _for_model(self, error: Exception) -> RemoteToolError | None:
        """The error with the tool's own text for the model; None if the tool has no text for it."""
        if not isinstance(error, ToolException | ValidationError):
            return None
        is_own = isinstance(error, ToolException)
        handler = self._given.handle_tool_error if is_own else self._given.handle_validation_error
        if not handler:
            return None
        if isinstance(handler, str):
            return RemoteToolError(handler)
        if callable(handler):
            return RemoteToolError(str(content_of(handler(error))))
        return RemoteToolError(str(error.args[0]) if is_own and error.args else str(error))

    def _result(self, returned: Any) -> Any:
        if not isinstance(returned, ToolMessage):
            kind = type(returned).__name__
            raise ResultLost(f"it returned {kind}, by which LangGraph changes the state of a graph")
        content = content_of(returned.content)
        if returned.status == "error":
            raise RemoteToolError(str(content))
        ends = self._given.return_direct
        if self._given.response_format == "content_and_artifact":
            return ToolResult(content, value=returned.artifact, skip_summarization=ends)
        return ToolResult(content, skip_summarization=True) if ends else content
