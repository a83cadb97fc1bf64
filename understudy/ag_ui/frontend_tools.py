"""Tools that a page executes: an agent declares them, and a client of AG-UI answers their calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from ag_ui.core import ToolMessage
from ag_ui.core.types import TextPart

from understudy._base.json_values import shown
from understudy._base.request_timing import Seconds
from understudy.ag_ui.conversation import Answer
from understudy.errors import UsageError
from understudy.interrupts import Decision, Interrupt, Request, respond
from understudy.login.problems import refused
from understudy.tools import Tool, ToolContext
from understudy.tools.function_tool import ToolOptions

WireIdOf = Callable[[Request], str]
"""The id of the call of a request, as clients know it."""


@dataclass(frozen=True, slots=True)
class _OfPage:
    """The function of a frontend tool: it asks for the result of its call."""

    question: dict[str, str]
    schema: object
    expires_after: Seconds | None

    def __call__(self, ctx: ToolContext, arguments: dict[str, Any]) -> Any:
        if not ctx.resumed:
            raise Interrupt(self.question, schema=self.schema, expires_after=self.expires_after)
        return ctx.resume_value


def frontend_tool(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    *,
    answer: object = None,
    expires_after: Seconds | None = None,
    **options: Unpack[ToolOptions],
) -> Tool[Callable[..., Any]]:
    """Make a tool that the page of a client executes. It has no code here.

    Put it into `Agent(tools=[...])` and into `ag_ui(frontend_tools=[...])`. Its call asks a
    question: the run ends with the question and continues with the answer, after a restart too. A
    person may also answer in the inbox.

    Args:
        name: the name, for the model and the client.
        description: the description, for the model.
        parameters: the JSON schema of its arguments, of an object.
        answer: the form of the result: a JSON schema as a dict, a Pydantic model, or any other
            type. Then the client sends JSON; a string is sent as it is. By default the result
            is text.
        expires_after: seconds after which the question expires; None = never.
        options: options of `Tool`, such as `read_only=True` if the page changes nothing, or
            `key=`.

    Raises:
        UsageError: if a schema or a time is wrong.

    """
    schema = str if answer is None else answer
    question = {"question": description}
    Interrupt(question, schema=schema, expires_after=expires_after)  # refused now, not in a run

    call = _OfPage(question, schema, expires_after)
    # The tool does nothing by itself, so a crash in its middle leaves no doubt.
    options.setdefault("idempotent", not options.get("read_only", False))
    options.setdefault("inline", True)
    return Tool.from_schema(name, description, parameters, call, **options)


def checked_tools(given: object) -> frozenset[str]:
    """The names of the tools that an endpoint lets pages execute.

    Raises:
        UsageError: for anything else: a page must not answer another tool's question.

    """
    names: set[str] = set()
    if not isinstance(given, Iterable):
        raise UsageError(f"ag_ui(frontend_tools=...) takes a list of tools, got {shown(given)}")
    for each in given:
        if not isinstance(each, Tool) or not isinstance(each.function, _OfPage):
            raise UsageError(
                "ag_ui(frontend_tools=...) takes tools that frontend_tool() has made, got "
                f"{shown(each)}"
            )
        names.add(each.name)
    return frozenset(names)


def is_for_page(request: Request, names: Collection[str]) -> bool:
    """Whether the page answers this request by the result of a call.

    A request of an inner agent is not: that agent is suspended, which the protocol has only for
    interrupts.
    """
    is_root = len(request.agent_path) == 1
    return is_root and request.kind == "interrupt" and request.tool_name in names


def results_in(
    messages: Iterable[object], names: Collection[str], wire_id_of: WireIdOf
) -> Callable[[Iterable[Request]], Sequence[Answer]]:
    """The answers to requests of frontend tools, from the messages of a client.

    Results of other calls, or of calls that nobody waits for, are the client's history and are
    ignored.
    """
    found = {each.tool_call_id: each for each in messages if isinstance(each, ToolMessage)}

    def answers(requests: Iterable[Request]) -> Sequence[Answer]:
        given: list[Answer] = []
        for request in requests:
            message = found.get(wire_id_of(request)) if is_for_page(request, names) else None
            if message is not None:
                given.append(_answer(request, message))
        return given

    return answers


def _answer(request: Request, message: ToolMessage) -> Answer:
    def decide(request: Request, by: str) -> Decision:
        if message.error is not None:
            return Decision(type="reject", origin="executor", message=message.error, by=by)
        return respond(_value(request, message), by=by)

    return Answer(request.id, decide)


def _value(request: Request, message: ToolMessage) -> Any:
    content = message.content
    if not isinstance(content, str):
        texts = [part.text for part in content if isinstance(part, TextPart)]
        if len(texts) < len(content):
            raise _bad(request, "it has parts that are no text")
        content = "\n".join(texts)
    if (request.schema or {}).get("type") == "string":
        return content
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise _bad(request, "it is no JSON") from None


def _bad(request: Request, why: str) -> Exception:
    what = f"The result of {request.tool_name!r} ({request.tool_call_id!r})"
    return refused(422, "BadAnswer", f"{what} does not fit: {why}. Nothing was done.")
