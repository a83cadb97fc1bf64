"""Checks that a model's reply is whole, not refused, and not empty.

The checks read only the reply (`ModelResponse`). So all kinds of models are judged alike, also
models inside a wrapper or Pydantic AI's own `FallbackModel`.
"""

from __future__ import annotations

from pydantic_ai.exceptions import ContentFilterError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart
from pydantic_ai.models import Model

GIVES_FINISH_REASON = frozenset(
    {
        "anthropic",
        "azure",
        "bedrock",
        "cohere",
        "deepseek",
        "google",
        "google-cloud",
        "google-gla",
        "google-vertex",
        "groq",
        "mistral",
        "openai",
        "openai-chatgpt",
        "openai-codex",
        "openrouter",
    }
)
"""The providers that say why each whole reply ended, by `ModelResponse.provider_name`.

A reply of these providers without a reason ended early. Other models may never give a reason, such
as models written for a program, or models of many local servers.
"""
_FLAG = "openai_chat_streaming_requires_finish_reason"


class RefusedReply(ContentFilterError):
    """The model refused to answer, or a content filter stopped its reply."""


class EmptyReply(UnexpectedModelBehavior):
    """A reply without text, files and tool calls."""


class CancelledByModel(UnexpectedModelBehavior):
    """The model's client raised a `CancelledError` by itself: nobody cancelled the run."""


class UnfinishedReply(UnexpectedModelBehavior):
    """A reply that ended before its end, though its body ended well."""


def check_finished(response: ModelResponse, model: Model, *, streamed: bool) -> None:
    """Check that the reply came to its end.

    Raises:
        UnfinishedReply: if it did not; its tool calls may lack arguments.

    """
    if response.state != "complete":
        if response.state == "incomplete":
            raise UnfinishedReply("it ended before the reply did")
        if not response.parts and response.provider_response_id is None:
            raise UnfinishedReply("nothing came that could be continued")
        return
    reason = response.finish_reason
    if reason not in _DOUBTFUL:
        return
    if reason == "error":
        # Groq gives this for a call that does not fit its tool; the model gets that error.
        if response.tool_calls or is_empty(response):
            return
        raise UnfinishedReply(f"its provider ended it by an error{_reason_given(response)}")
    if response.provider_name not in GIVES_FINISH_REASON:
        return
    if (response.provider_details or {}).get("finish_reason"):  # as the provider worded it
        return
    # For OpenAI's chat completions Pydantic AI takes a missing reason for "stop". A reply that was
    # not streamed is whole nevertheless: its JSON could be read.
    if reason == "stop" and (not streamed or _may_lack_reason(model)):
        return
    raise UnfinishedReply(f"it ended without a finish reason, which {response.provider_name} gives")


_DOUBTFUL = frozenset({None, "stop", "error"})


def _may_lack_reason(model: Model) -> bool:
    """Whether the profile of the model says so, for a server that only speaks OpenAI's format."""
    try:
        return model.profile.get(_FLAG) is False
    except NotImplementedError:  # of a FallbackModel
        return False


def fault_of(response: ModelResponse) -> RefusedReply | EmptyReply | None:
    """Why the run cannot continue with the reply; None if it can.

    A reply that was cut by its length is not empty: its thinking took all its tokens.
    """
    if response.finish_reason == "content_filter":
        return RefusedReply(f"it was refused or filtered{_reason_given(response)}")
    if response.state == "complete" and is_empty(response) and response.finish_reason != "length":
        return EmptyReply(f"it is empty{_reason_given(response)}")
    return None


def is_empty(response: ModelResponse) -> bool:
    """Whether the reply has nothing but thinking."""
    for part in response.parts:
        if isinstance(part, TextPart):
            if part.content and not part.content.isspace():
                return False
        elif not isinstance(part, ThinkingPart):
            return False
    return True


def _reason_given(response: ModelResponse) -> str:
    """What the provider says about the end of its reply."""
    details = response.provider_details or {}
    reasons = [
        str(details[key])
        for key in ("finish_reason", "block_reason", "block_reason_message", "refusal")
        if details.get(key)
    ]
    return f" ({': '.join(reasons)})" if reasons else ""
