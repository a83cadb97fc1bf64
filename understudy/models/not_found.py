"""The text for a 404 of a model's server: the URL that was asked, and what to change."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import Model

from understudy._base.error_texts import message_of


def model_error_text(model: Model, error: BaseException) -> str:
    """The text of a model's error: its own message, and for a 404 the URL."""
    text = message_of(error)
    if not isinstance(error, ModelHTTPError) or error.status_code != 404:
        return text
    url = _asked(model, error)
    if url is None:
        return text
    if url.endswith("/responses"):
        remedy = (
            "many servers have OpenAI's chat completions alone: name the model "
            f"'openai-chat:{model.model_name}', or make an OpenAIChatModel"
        )
    else:
        name = f"the name {model.model_name!r} of the model"
        is_chat = url.endswith("/chat/completions")
        remedy = f"check the `base_url`, which often ends with /v1, and {name}"
        remedy = remedy if is_chat else f"check the address of the server and {name}"
    return f"{text}; {url} was asked: {remedy}"


def _asked(model: Model, error: BaseException) -> str | None:
    """The URL that was asked, without its secrets: a login, or a key in its query."""
    request = getattr(error.__cause__, "request", None)
    found = getattr(request, "url", None) or getattr(model, "base_url", None)
    if found is None:
        return None
    parts = urlsplit(str(found))
    host = parts.hostname or ""
    return f"{parts.scheme}://{host}{'' if parts.port is None else f':{parts.port}'}{parts.path}"
