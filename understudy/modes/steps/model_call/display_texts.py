"""What a person reads of a tool call, put into the reply when it is recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from pydantic_ai.messages import ModelResponse, ToolCallPart

from understudy._base.json_values import shown, storable_text
from understudy.models.display_halves import with_display_texts
from understudy.run.run import log_fields
from understudy.tools import Tool

logger: logging.Logger = logging.getLogger(__name__)


def with_texts_of_calls(response: ModelResponse, tools: Mapping[str, Tool]) -> ModelResponse:
    """The reply with the texts of the calls whose tools have a `display_text`."""
    texts: dict[str, str] = {}
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            tool = tools.get(part.tool_name)
            if tool is not None and tool.display_text is not None:
                text = _text_of(tool.name, tool.display_text, part)
                if text is not None:
                    texts[part.tool_call_id] = text
    return with_display_texts(response, texts) if texts else response


def _text_of(
    name: str, given: str | Callable[[Mapping[str, Any]], str], part: ToolCallPart
) -> str | None:
    """The text; None, so that the tool's name is shown, where its function does not make one."""
    if isinstance(given, str):
        return given
    try:
        text = given(deepcopy(part.args_as_dict(raise_if_invalid=True)))
    except Exception:  # the arguments are not checked yet: they may be of any form
        logger.warning(
            "display_text of tool %r raised; its name is shown",
            name,
            exc_info=True,
            extra=log_fields(),
        )
        return None
    if not isinstance(text, str):
        logger.warning(
            "display_text of tool %r returned %s, and no text",
            name,
            shown(text),
            extra=log_fields(),
        )
        return None
    return storable_text(text) or None
