"""The content that tools of other libraries return for a model: texts, pictures and files, in the
forms of providers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai.messages import BinaryContent, DocumentUrl, ImageUrl


def content_of(given: Any) -> Any:
    """The content, with pictures and files as a model here gets them.

    A single text stays a text, and several texts become the lines of one. Content in none of the
    known forms stays as it is.
    """
    if isinstance(given, Mapping):
        return _block(given)
    if not isinstance(given, list):
        return given
    blocks = [_block(each) if isinstance(each, Mapping) else each for each in given]
    if blocks and all(isinstance(each, str) for each in blocks):
        return "\n".join(blocks)
    return blocks


def _block(given: Mapping[str, Any]) -> Any:
    kind = given.get("type")
    if kind in ("text", "input_text") and isinstance(given.get("text"), str):
        return given["text"]
    if kind in ("image_url", "image", "input_image"):
        url = given.get("image_url", given.get("url"))
        url = url.get("url") if isinstance(url, Mapping) else url
        return _file(given, url, ImageUrl)
    if kind in ("file", "input_file"):
        return _file(given, given.get("file_url", given.get("url")), DocumentUrl)
    return dict(given)


def _file(given: Mapping[str, Any], url: Any, kind: type[ImageUrl | DocumentUrl]) -> Any:
    data = given.get("base64", given.get("data"))
    if isinstance(data, str) and isinstance(given.get("mime_type"), str):
        url = f"data:{given['mime_type']};base64,{data}"
    elif isinstance(given.get("file_data"), str) and given["file_data"].startswith("data:"):
        url = given["file_data"]
    if not isinstance(url, str):
        return dict(given)
    return BinaryContent.from_data_uri(url) if url.startswith("data:") else kind(url=url)
