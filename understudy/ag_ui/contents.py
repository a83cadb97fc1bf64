"""The content that a user sends: text and files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from urllib.parse import urlsplit

from ag_ui.core.types import ContentPart, TextPart
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    UserContent,
    VideoUrl,
)

from understudy.login.problems import refused
from understudy.models.messages import UserInput

_URLS = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl, "document": DocumentUrl}


def content_of_ag_ui(content: str | Sequence[ContentPart]) -> UserInput:
    """The content of a user's message of AG-UI.

    Pydantic AI's own adapter is not used, because it trusts a client about earlier messages.

    Raises:
        Refused: for content that cannot be sent.

    """
    if isinstance(content, str):
        return content
    found: list[UserContent] = []
    for part in content:
        if isinstance(part, TextPart):
            found.append(part.text)
        elif part.source.type == "data":
            found.append(_binary(part.source.value, part.source.mime_type))
        elif part.source.type == "url":
            found.append(_url(part.type, part.source.value))
        else:
            raise refused(
                400, "UsageError", "A file that a provider keeps cannot be sent by its name."
            )
    return found


def file_of_url(url: str, media_type: str) -> UserContent:
    """A file of Vercel's: its bytes are in the URL, or are where it points to.

    Raises:
        Refused: for content that cannot be sent.

    """
    if url.startswith("data:"):
        head, _, data = url[5:].partition(",")
        if not head.endswith(";base64"):
            raise refused(400, "UsageError", "A `data:` URL must be in base64.")
        return _binary(data, head.removesuffix(";base64") or media_type)
    kind = media_type.partition("/")[0]
    return _url(kind if kind in _URLS else "document", url)


def _binary(data: str, media_type: str) -> BinaryContent:
    try:
        return BinaryContent(base64.b64decode(data, validate=True), media_type=media_type)
    except (binascii.Error, ValueError) as error:
        raise refused(400, "UsageError", "A file is not in base64.") from error


def _url(kind: str, url: str) -> UserContent:
    try:
        is_fetched = urlsplit(url).scheme == "https"
    except ValueError:
        is_fetched = False
    if not is_fetched:
        raise refused(400, "UsageError", "A file must have an `https:` or a `data:` URL.")
    found: UserContent = _URLS[kind](url)
    return found
