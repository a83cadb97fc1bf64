"""`Guard`: checks what users write before the model sees it, and replies before users see them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, model_validator
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextContent,
    TextPart,
    UserPromptPart,
)

from understudy._base.json_values import checked_text, shown
from understudy.errors import UsageError
from understudy.interrupts import Interrupt
from understudy.middleware.base import Middleware
from understudy.models.attribution import is_for_itself
from understudy.run.definition import AgentDefinition, definition_of
from understudy.run.instructions import render
from understudy.run.model_input import ModelInput
from understudy.run.run import Run
from understudy.stopping import StopAgent, StopSignal

if TYPE_CHECKING:
    from pydantic_ai.models import Model

Verdict = str | Interrupt | StopSignal | None
"""The verdict of a check on a text. None: the text passes. A text: it replaces the checked text. An
`Interrupt`: a person is asked. A `StopSignal`: the run is stopped.
"""
Check = Callable[[str, Run], Verdict | Awaitable[Verdict]]
"""A function of the text and the run, async or plain; a plain one runs in a thread."""


class Judgement(BaseModel):
    """The answer of an agent that checks a text."""

    verdict: Literal["pass", "change", "ask", "stop"]
    """The verdict; with `ask` a person decides."""
    text: str = ""
    """The text that replaces the checked text, for `change`."""
    reason: str = ""

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Judgement:
        if self.verdict == "change" and not self.text.strip():
            raise ValueError("`change` needs the `text` that takes its place")
        return self


class Guard(Middleware):
    """A middleware that checks texts. It passes a text, changes it, asks a person, or stops the
    run.

    A person answers its question: `approve` passes the text, `respond(text)` replaces it, `reject`
    stops the run. A changed text of a user is changed in the conversation itself. A reply that is
    held for a person, or that stops the run, is neither shown nor in the conversation.

    A check is a function of the text and the run, or an `Agent` without tools. Such an agent judges
    the text by `run.ask_model`, with its own instructions, and with its own model or else the model
    of the guarded agent. A check may be called again with the same text, for instance after a
    crash. Results of tools are not checked.

    Args:
        input: the check of each text of a user, before the model gets it.
        output: the check of the text of each reply, before anybody gets it; also of text beside
            tool calls.
        name: the name in requests and errors. Its questions are kept under it, so each guard of
            an agent needs its own name. By default "Guard"; with one check alone, "InputGuard"
            or "OutputGuard".

    Raises:
        UsageError: if there is no check, or a check is anything else.

    """

    def __init__(
        self, *, input: object = None, output: object = None, name: str | None = None
    ) -> None:
        if input is None and output is None:
            raise UsageError("Guard checks nothing: give `input`, `output` or both")
        self._input = _checked(input, "input")
        self._output = _checked(output, "output")
        if name is None:
            name = "OutputGuard" if input is None else "InputGuard" if output is None else "Guard"
        self._name = checked_text(name, what="Guard(name=...)")
        # Without a check of replies, their text need not be held back.
        self.stream_safe: bool = output is None  # type: ignore[misc]  # of this one

    @property
    def name(self) -> str:
        return self._name

    def check(self, definition: AgentDefinition) -> None:
        for other in definition.middleware:
            if isinstance(other, Guard) and other is not self and other._name == self._name:
                raise UsageError(
                    f"Agent {definition.name!r} has two Guards named {self._name!r}: give one of "
                    "them another `name`"
                )

    async def before_model(self, run: Run, request: ModelInput) -> ModelInput | None:
        if self._input is None:
            return None
        changes: dict[str, str] = {}
        for number, text in enumerate(_new_texts(request.messages)):
            key = f"input/{run.current.turns}/{number}"
            said = await self._said(run, self._input, text, key)
            if not said.strip():
                raise UsageError(
                    "the check of the input returned an empty text, which no model takes: return "
                    "what to say instead, or a StopSignal"
                )
            if said != text:
                changes[text] = said
        if not changes:
            return None
        # The text is changed in the conversation, for later calls, and in this request, which may
        # differ.
        await run.replace_history(_changed(run.state.messages, changes))
        return request.replace(messages=_changed(request.messages, changes))

    async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse | None:
        text = reply.text or ""
        if self._output is None or not text.strip():
            return None
        key = f"output/{run.current.turns}"
        said = await self._said(run, self._output, text, key)
        if said == text:
            return None
        parts = [part for part in reply.parts if not isinstance(part, TextPart)]
        return replace(reply, parts=[TextPart(said), *parts])

    async def _said(self, run: Run, check: Check | AgentDefinition, text: str, key: str) -> str:
        """The text that replaces the checked text, or the text itself.

        Raises:
            Interrupt: if a person is to decide.
            StopAgent: if the run is to stop.

        """
        answer = run.answer(key)
        if answer is not None:
            if answer.type == "reject":
                why = answer.message or "a person rejected the text"
                raise StopAgent(StopSignal.stop_requested(why, source=self._name))
            return cast("str", answer.value) if answer.type == "respond" else text
        try:
            verdict = await _verdict(run, check, text, key)
        except Interrupt as asked:
            verdict = asked
        match verdict:
            case None:
                return text
            case str():
                return verdict
            case StopSignal():
                named = replace(verdict, source=verdict.source or f"{self._name}/{key}")
                raise StopAgent(named)
            case Interrupt():
                verdict.key = key
                verdict.schema = _of_text(verdict.schema)
                raise verdict
            case _:
                raise UsageError(
                    f"the check returned {shown(verdict)}: return None, a text, an Interrupt or a "
                    "StopSignal"
                )


def _of_text(schema: dict[str, Any] | None) -> dict[str, Any]:
    """The schema of an answer, which replaces the text."""
    if schema is None:
        return {"type": "string", "minLength": 1}
    if schema.get("type", "string") != "string":
        raise UsageError(
            f"the check asks for {shown(schema)}, but the answer takes the place of a text: its "
            "schema must have the type 'string'"
        )
    return {**schema, "type": "string"}


async def _verdict(run: Run, check: Check | AgentDefinition, text: str, key: str) -> Verdict:
    if isinstance(check, AgentDefinition):
        return await _judged(run, check, text, key)
    if inspect.iscoroutinefunction(check):
        return cast("Verdict", await check(text, run))
    said = await run.threads.run(check, text, run)
    return await said if inspect.isawaitable(said) else said


async def _judged(run: Run, judge: AgentDefinition, text: str, key: str) -> Verdict:
    instructions = [await render(each, run.state, agent=judge.name) for each in judge.instructions]
    asks = ModelRequest(
        parts=[UserPromptPart(text, timestamp=run.clock.now())],
        instructions="\n\n".join(each for each in instructions if each) or None,
        timestamp=run.clock.now(),
    )
    model: str | Model | None = judge.model
    said = await run.ask_model(key, [asks], model, output_type=Judgement)
    match said.verdict:
        case "pass":
            return None
        case "change":
            return said.text
        case "ask":
            payload = {"text": text, "reason": said.reason}
            return Interrupt(payload, allowed=("approve", "respond", "reject"))
        case "stop":
            return StopSignal.stop_requested(said.reason or "the text was refused")


def _checked(given: object, option: str) -> Check | AgentDefinition | None:
    definition = definition_of(given)
    if definition is not None:
        if definition.tools or definition.native_tools or definition.middleware:
            raise UsageError(
                f"Guard({option}=...): agent {definition.name!r} has tools or middleware: an "
                "agent that checks may have only instructions and a model"
            )
        if not definition.asks_model:
            raise UsageError(f"Guard({option}=...): {definition.name!r} is a workflow")
        return definition
    if given is not None and not callable(given):
        raise UsageError(
            f"Guard({option}=...) takes a function of the text and the run, or an Agent, got "
            f"{shown(given)}"
        )
    return cast("Check | None", given)


def _new_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """What users wrote since the last reply, each text once."""
    found: dict[str, None] = {}
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            break
        for part in reversed(message.parts):
            if isinstance(part, UserPromptPart) and not is_for_itself(message):
                found.update(dict.fromkeys(reversed(_texts(part)), None))
    return list(reversed(found))


def _texts(part: UserPromptPart) -> list[str]:
    content = [part.content] if isinstance(part.content, str) else part.content
    return [text for text in map(_text_of, content) if text is not None and text.strip()]


def _text_of(item: object) -> str | None:
    """The text of a part of a user's message; None for a file."""
    return (
        item.content if isinstance(item, TextContent) else item if isinstance(item, str) else None
    )


def _changed(messages: Sequence[ModelMessage], changes: dict[str, str]) -> list[ModelMessage]:
    """The messages with changed texts of what users wrote since the last reply."""
    after = list(messages)
    for index in range(len(after) - 1, -1, -1):
        message = after[index]
        if isinstance(message, ModelResponse):
            break
        parts: list[Any] = []
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                content: Any = part.content
                if isinstance(content, str):
                    content = changes.get(content, content)
                else:
                    content = [_item_changed(item, changes) for item in content]
                part = replace(part, content=content)
            parts.append(part)
        after[index] = replace(message, parts=parts)
    return after


def _item_changed(item: Any, changes: dict[str, str]) -> Any:
    after = changes.get(_text_of(item) or "")
    if after is None:
        return item
    return replace(item, content=after) if isinstance(item, TextContent) else after
