"""An estimate of the tokens of a request to a model, for tokens that nobody has counted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextContent

BYTES_PER_TOKEN = 4
"""The bytes of text per token, for English and most tokenizers. Other languages and code take more
tokens."""
TOKENS_PER_FILE = 1000
"""The tokens that providers count for a picture of medium size."""


def text_tokens(text: str) -> int:
    """An estimate of the tokens of a text."""
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def estimated_tokens(messages: Iterable[ModelMessage]) -> int:
    """An estimate of the tokens of messages: by the length of their text, plus a number for each
    file.
    """
    return sum(_part_tokens(part) for message in messages for part in message.parts)


def last_counted(messages: Any) -> tuple[int, int] | None:
    """The last reply whose provider counted its tokens.

    Returns:
        The tokens up to its end, with the instructions and tools of its request, and its index.
        None if the last reply has no count.

    """
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, ModelResponse):
            usage = message.usage
            if usage.input_tokens <= 0:
                return None
            return usage.input_tokens + usage.output_tokens, index
    return None


def _part_tokens(part: Any) -> int:
    match part.part_kind:
        case "tool-return" | "builtin-tool-return":
            text, files = part.model_response_str_and_user_content()
            return text_tokens(text) + TOKENS_PER_FILE * len(files)
        case "tool-call" | "builtin-tool-call":
            return text_tokens(part.tool_name) + text_tokens(part.args_as_json_str())
        case "retry-prompt":
            return text_tokens(part.model_response())
    content = getattr(part, "content", None)
    if isinstance(content, str):
        return text_tokens(content)
    if isinstance(content, list | tuple):
        texts = [item.content if isinstance(item, TextContent) else item for item in content]
        return sum(text_tokens(t) if isinstance(t, str) else TOKENS_PER_FILE for t in texts)
    return 0 if content is None else TOKENS_PER_FILE
