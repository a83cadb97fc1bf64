"""`Summarization`: if a conversation gets too long, its older turns become a summary.

It replaces the conversation that the model gets. What was said stays in the agent's history, and on
a chat screen. It owns no requests.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextContent,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model

from understudy._base.error_texts import error_text
from understudy._base.json_values import checked_text, digest, shown
from understudy._base.log_fields import log_extra
from understudy.errors import Fenced, JournalFailed, RecordRefused, UsageError
from understudy.middleware.base import Middleware
from understudy.models.token_counts import estimated_tokens, last_counted, text_tokens
from understudy.run.definition import AgentDefinition
from understudy.run.hooks import HookFailed
from understudy.run.model_input import ModelInput
from understudy.run.run import Run, outermost_workflow

logger: logging.Logger = logging.getLogger(__name__)

Summarize = Callable[[Sequence[ModelMessage]], str | Awaitable[str]]
"""A function that makes a summary of the older messages. A plain function runs in a worker
thread."""

PROMPT = (
    "Summarise the conversation below, in the language that it is in. It takes the place of these "
    "messages: keep what the user wants, what was decided and done, names, numbers, ids and "
    "results that may be needed later, and what is still open. Write nothing but the summary."
)
INTRODUCTION = "Summary of what was said and done since then:"
"""The text before a summary, for the model."""
_MARK = {"understudy": "summary"}
_KEY = "summarization/"
_LEFT_ALONE = "summarization: left alone/"
_AGAIN = 1.5
"""The growth factor after which messages that could not be summarised are tried again."""


class Summarization(Middleware):
    """A middleware that replaces older turns by a summary when a request has more than
    `max_tokens`.

    The first message of the user stays, and so do the last turns and everything that is not
    answered yet. A tool call is never separated from its result. Until the next summary each
    request begins with the same messages, so a provider's cache holds.

    The tokens of a request are those that the provider counted, in its last reply or when it is
    asked to count. The rest, or everything if nobody counts, is estimated by the length of the
    text.

    A summary is made once and recorded, even if the process ends in between. If it fails, or is
    longer than what it would replace, the conversation stays unchanged, and the log says so.

    Args:
        max_tokens: the maximum number of tokens of a request, with instructions and tools.
        keep_turns: the number of the last replies that stay, with their calls and results.
        model: the model that makes the summary, by `run.ask_model`; None = the agent's own.
        summarize: a function that makes the summary instead of a model.
        prompt: the instructions for the model, sent before the conversation.

    Raises:
        UsageError: if an option cannot work.

    """

    def __init__(
        self,
        max_tokens: int,
        *,
        keep_turns: int = 3,
        model: str | Model | None = None,
        summarize: Summarize | None = None,
        prompt: str | None = None,
    ) -> None:
        for option, given in (("max_tokens", max_tokens), ("keep_turns", keep_turns)):
            if not isinstance(given, int) or isinstance(given, bool) or given < 1:
                raise UsageError(
                    f"Summarization: `{option}` must be an integer of at least 1, got "
                    f"{shown(given)}"
                )
        if model is not None and (not isinstance(model, (str, Model)) or not model):
            raise UsageError(
                "Summarization: `model` must be a Pydantic AI Model, or its name such as "
                f"'openai:gpt-5-mini', got {shown(model)}"
            )
        if summarize is not None:
            if not callable(summarize):
                raise UsageError(
                    f"Summarization: `summarize` must be a function, got {shown(summarize)}"
                )
            if model is not None or prompt is not None:
                raise UsageError(
                    "Summarization: `summarize` makes the summary instead of a model: leave out "
                    "`model` and `prompt`"
                )
        if prompt is not None:
            checked_text(prompt, what="Summarization: `prompt`")
        self._max_tokens = max_tokens
        self._keep_turns = keep_turns
        self._model = model
        self._summarize = summarize
        self._prompt = PROMPT if prompt is None else prompt

    def check(self, definition: AgentDefinition) -> None:
        if sum(isinstance(item, Summarization) for item in definition.middleware) > 1:
            raise UsageError(
                f"Agent {definition.name!r} has two Summarizations, which would summarise each "
                "other's summaries: leave one out"
            )

    async def before_model(self, run: Run, request: ModelInput) -> None:
        if await self._tokens(run, request) <= self._max_tokens:
            return
        messages = _conversation(run)
        while await _reuse(run, messages):
            messages = _conversation(run)
            request = request.replace(messages=run.state.messages)
            if await self._tokens(run, request) <= self._max_tokens:
                return
        start, end = _older(messages, self._keep_turns)
        older = messages[start:end]
        if sum(not is_summary(message) for message in older) < 2 or _was_left_alone(run, older):
            return
        text = await self._summary(run, older)
        if text is not None:
            await _replace(run, messages, start, end, text)
            await _share(run, older, text)

    async def _tokens(self, run: Run, request: ModelInput) -> int:
        """The tokens of the request, as far as they are counted; the rest is estimated."""
        messages = request.messages
        counted = last_counted(messages)
        shared = run.current.shared
        # In a workflow, a reply of an earlier round was to a request that was summarised, and this
        # conversation is not (test_a_count_of_an_earlier_round_of_a_workflow_is_not_believed).
        if counted is not None and (shared is None or counted[1] >= shared.inherited):
            tokens, index = counted
            return tokens + estimated_tokens(messages[index + 1 :])
        estimate = estimated_tokens(messages) + text_tokens(request.instructions)
        for tool in request.tools:
            estimate += text_tokens(str(tool.definition))
        if 2 * estimate <= self._max_tokens:  # far below the limit: counting takes a request
            return estimate
        model = run.models[0] if request.model is None else request.model
        try:
            usage = await model.count_tokens(list(messages), request.settings, request.parameters())
        except NotImplementedError:
            return estimate
        except Exception as error:
            logger.info(
                "%s: its tokens were not counted: %s",
                run.agent_id,
                error_text(error),
                extra=log_extra(run.agent_id, run.run_id),
            )
            return estimate
        return usage.input_tokens

    async def _summary(self, run: Run, older: Sequence[ModelMessage]) -> str | None:
        """The summary; None if there is no shorter one."""
        conversation = transcript(older)
        key = f"{_KEY}{digest(conversation)}"
        try:
            text = await (
                self._by_function(run, key, older)
                if self._summarize
                else run.ask_model(
                    key,
                    f"{self._prompt}\n\n<conversation>\n{conversation}\n</conversation>",
                    self._model,
                )
            )
        except RecordRefused as error:  # it is too large
            why = str(error)
        except (JournalFailed, Fenced, HookFailed):
            raise
        except Exception as error:
            why = error_text(error)
        else:
            if estimated_tokens([_summary_message(run, text)]) < estimated_tokens(older):
                return text
            why = "the summary is no shorter than what it would replace"
        logger.warning(
            "%s: the conversation is not summarised: %s",
            run.agent_id,
            why,
            extra=log_extra(run.agent_id, run.run_id),
        )
        await run.once(f"{_LEFT_ALONE}{len(older)}", lambda: why)
        return None

    async def _by_function(self, run: Run, key: str, older: Sequence[ModelMessage]) -> str:
        function = self._summarize
        assert function is not None, "called only with one"

        async def made() -> str:
            if inspect.iscoroutinefunction(function):
                text = await function(older)
            else:
                text = await run.threads.run(function, older)
                if inspect.isawaitable(text):
                    text = await text
            return checked_text(text, what="The summary that `summarize` returned")

        text: str = await run.once(key, made)
        return text


def is_summary(message: ModelMessage) -> bool:
    """Whether the message is a summary that replaces earlier messages."""
    return any(map(_is_summary, message.parts))


def _is_summary(part: object) -> bool:
    """Whether a part is a summary, by the metadata of its text: adjacent messages are stored as
    one.
    """
    return (
        isinstance(part, UserPromptPart)
        and not isinstance(part.content, str)
        and any(isinstance(item, TextContent) and item.metadata == _MARK for item in part.content)
    )


def transcript(messages: Sequence[ModelMessage]) -> str:
    """The messages as text, which is the same whenever they were sent."""
    lines: list[str] = []
    for message in messages:
        for part in message.parts:
            match part.part_kind:
                case "user-prompt":
                    lines.append(f"User: {_words(part.content)}")
                case "text":
                    lines.append(f"Assistant: {part.content}")
                case "tool-call" | "builtin-tool-call":
                    lines.append(f"Assistant calls {part.tool_name}({part.args_as_json_str()})")
                case "tool-return" | "builtin-tool-return":
                    text, files = part.model_response_str_and_user_content()
                    more = "".join(f" [{item.kind}]" for item in files if not isinstance(item, str))
                    lines.append(f"Result of {part.tool_name}: {text}{more}")
                case "retry-prompt":
                    lines.append(f"Error of {part.tool_name or 'the answer'}: {_error(part)}")
                case "system-prompt":
                    lines.append(f"System: {part.content}")
                case _:
                    pass  # thinking, and parts that only one provider understands
    return "\n".join(lines)


def _error(part: RetryPromptPart) -> str:
    return part.model_response()


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(
        item
        if isinstance(item, str)
        else item.content
        if isinstance(item, TextContent)
        else f"[{getattr(item, 'kind', 'file')}]"
        for item in content
    )


def _conversation(run: Run) -> list[ModelMessage]:
    """The part of the conversation that the model may see."""
    current, messages = run.current, run.state.messages
    if current.contents == "none" and current.shared is None:
        return _with_own_summary(messages[current.first_message :])
    return _with_own_summary(list(messages))


def _with_own_summary(messages: list[ModelMessage]) -> list[ModelMessage]:
    """The messages with the summary as a separate message: stored messages have it merged."""
    for index, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            break
        at = next((n for n, part in enumerate(message.parts) if _is_summary(part)), None)
        if at is not None:
            parts = list(message.parts)
            pieces = [parts[:at], parts[at : at + 1], parts[at + 1 :]]
            apart = [replace(message, parts=piece) for piece in pieces if piece]
            return [*messages[:index], *apart, *messages[index + 1 :]]
    return messages


def _head(messages: Sequence[ModelMessage]) -> int:
    """The number of messages up to the first one of the user."""
    for index, message in enumerate(messages):
        if isinstance(message, ModelResponse) or is_summary(message):
            return index
        if any(isinstance(part, UserPromptPart) for part in message.parts):
            return index + 1
    return len(messages)


def _older(messages: Sequence[ModelMessage], keep_turns: int) -> tuple[int, int]:
    """The begin and the end of the messages that a summary may replace."""
    start = _head(messages)
    end = len(messages)
    replies = 0
    while end > start and replies < keep_turns:
        end -= 1
        replies += isinstance(messages[end], ModelResponse)
    if replies < keep_turns:
        return start, start
    # A result belongs to its call: the kept messages must not begin with the result of a dropped
    # call.
    kept = set[str]()
    for message in messages[end:]:
        kept |= _results(message)
    for index in range(start, end):
        message = messages[index]
        if isinstance(message, ModelResponse) and any(
            call.tool_call_id in kept for call in message.tool_calls
        ):
            end = index
            break
    while end > start and _is_prompt(messages[end - 1]):  # the prompt of the first kept reply
        end -= 1
    return start, end


def _results(message: ModelMessage) -> set[str]:
    return {
        part.tool_call_id
        for part in message.parts
        if isinstance(part, (ToolReturnPart, RetryPromptPart)) and part.tool_call_id
    }


def _is_prompt(message: ModelMessage) -> bool:
    return isinstance(message, ModelRequest) and not _results(message) and not is_summary(message)


def _was_left_alone(run: Run, older: Sequence[ModelMessage]) -> bool:
    """Whether about the same amount could not be summarised before in this run."""
    tried = [
        int(key.removeprefix(_LEFT_ALONE))
        for key in run.current.once
        if key.startswith(_LEFT_ALONE)
    ]
    return bool(tried) and len(older) < _AGAIN * max(tried)


def _summary_message(run: Run, text: str) -> ModelRequest:
    at = run.clock.now()
    content = TextContent(f"{INTRODUCTION}\n\n{text}", metadata=dict(_MARK))
    return ModelRequest(parts=[UserPromptPart([content], timestamp=at)], timestamp=at)


async def _replace(
    run: Run, messages: Sequence[ModelMessage], start: int, end: int, text: str
) -> None:
    summary = _summary_message(run, text)
    await run.replace_history([*messages[:start], summary, *messages[end:]])


# ---------------------------------------------------------- agents that share a conversation


async def _share(run: Run, older: Sequence[ModelMessage], text: str) -> None:
    """Keep the summary for the next run of this agent, which gets the original messages again."""
    workflow = outermost_workflow(run)
    if workflow is not run:
        key = f"{_KEY}{run.definition.name}/{len(older)}/{digest(transcript(older))}"
        await workflow.once(key, lambda: text)


async def _reuse(run: Run, messages: Sequence[ModelMessage]) -> bool:
    """Replace the messages that an earlier run of this agent, in the same workflow, has
    summarised.
    """
    workflow = outermost_workflow(run)
    if workflow is run:
        return False
    start, prefix = _head(messages), f"{_KEY}{run.definition.name}/"
    for key in reversed(workflow.current.once):
        if not key.startswith(prefix):
            continue
        count, _, known = key.removeprefix(prefix).partition("/")
        end = start + int(count)
        if end < len(messages) and digest(transcript(messages[start:end])) == known:
            await _replace(run, messages, start, end, workflow.current.once[key])
            return True
    return False
