"""The arguments of a model's call in one shape: a dict that can be stored, and sent to any model.

Providers send arguments as JSON text, in pieces, or as data. Both may hold values that JSON does
not have and that a provider's client cannot encode when the call goes back with its result: one NaN
makes each further request of the conversation fail. So each reply is read here before it is
recorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic_ai.messages import INVALID_JSON_KEY
from pydantic_core import PydanticSerializationError, from_json, to_json

from understudy._base.json_values import (
    MAX_DEPTH,
    NOT_FINITE,
    NotJsonError,
    is_storable_text,
    nested_deeper,
    shown,
    text_of,
)

_HALF = re.compile("[\ud800-\udfff]")
_PLAIN = frozenset({bool, type(None)})
_SMALL: int = 2**63


def as_arguments(given: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments as data, whatever a provider sent.

    Text that is no JSON object is kept as it is, in the form that models know for it:
    `{"INVALID_JSON": "the text"}`. `invalid_json` recognises this form. No tool runs with it.
    """
    if not given:
        return {}
    if isinstance(given, str):
        try:
            plain = from_json(given)
        except (ValueError, TypeError):  # half a surrogate pair raises TypeError
            return {INVALID_JSON_KEY: _with_escapes(given)}
        if isinstance(plain, dict) and _is_plain(plain):
            return plain
        try:
            return _checked(given.encode())
        except (NotJsonError, UnicodeEncodeError):
            return {INVALID_JSON_KEY: _with_escapes(given)}
    if isinstance(given, dict) and _is_plain(given):
        return given
    try:
        return _checked(to_json(given))
    except PydanticSerializationError as error:
        if "unknown type" in str(error):  # a scripted model's record says what is wrong
            return dict(given)
    except NotJsonError:
        pass
    return {INVALID_JSON_KEY: _written(given)}


def invalid_json(arguments: Mapping[str, Any]) -> str | None:
    """Why a call has a text that is no JSON object instead of arguments; None if it has
    arguments.
    """
    if len(arguments) != 1 or INVALID_JSON_KEY not in arguments:
        return None
    text = arguments[INVALID_JSON_KEY]
    try:
        _checked(str(text).encode())
    except NotJsonError as error:
        return text_of(error)
    return "The arguments must be an object, not text inside of one"


def _checked(text: bytes) -> dict[str, Any]:
    """The object of this JSON.

    Raises:
        NotJsonError: if the text is no JSON object, or could not be stored or sent.

    """
    try:
        plain = from_json(text)
    except ValueError as error:
        raise NotJsonError(f"The arguments are no JSON: {text_of(error)}") from error
    if not isinstance(plain, dict):
        raise NotJsonError(f"The arguments must be an object, not {shown(plain)[:200]}")
    written = to_json(plain)
    if b"NaN" in written or b"Infinity" in written:
        try:
            json.dumps(plain, allow_nan=False)  # raises, unless the words are in a text
        except ValueError:
            raise NotJsonError(f"The arguments are no JSON: {NOT_FINITE}") from None
    if nested_deeper(written, plain, MAX_DEPTH):
        raise NotJsonError(f"The arguments are nested more than {MAX_DEPTH} levels deep")
    return plain


def _is_plain(arguments: dict[str, Any]) -> bool:
    """Whether a quick look shows that the arguments can be stored and sent: the common case."""
    for key, value in arguments.items():
        kind = type(value)
        if kind is str:
            if not value.isascii():
                return False
        elif kind is int:
            if not -_SMALL < value < _SMALL:
                return False
        elif kind is float:
            if value - value != 0:  # for NaN and the infinities
                return False
        elif kind not in _PLAIN:
            return False
        if not key.isascii():
            return False
    return True


def _written(given: Mapping[str, Any]) -> str:
    try:
        return json.dumps(given)
    except (ValueError, TypeError, RecursionError):
        return shown(given)


def _with_escapes(text: str) -> str:
    """The text with each half of a surrogate pair as an escape of JSON, so it can be stored."""
    if is_storable_text(text):
        return text
    return _HALF.sub(lambda half: f"\\u{ord(half.group()):04x}", text)
