"""JSON values: the check that a value can be stored, and its digest."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, TypeGuard

from pydantic_core import from_json, to_json, to_jsonable_python

from understudy.errors import UsageError

MAX_DEPTH = 100
"""How deep a value from outside may be nested. Readers of JSON take 200 levels, and records, nested
agents and snapshots put more around it."""
MAX_DIGITS = 4300
"""The most digits of an integer: readers of JSON of Python and Pydantic refuse longer integers."""
SCALARS = frozenset({str, int, float, bool, type(None)})
"""The types of the values of JSON that have none inside."""
NOT_FINITE = "it holds NaN or an infinity, and numbers must be finite in JSON"
INVALID_TEXT = (
    "is not valid Unicode, as it holds half of a surrogate pair: decode its bytes with "
    'errors="replace"'
)
UNSENDABLE_NUMBER = (
    "holds NaN or an infinity, and numbers must be finite in JSON: leave it out, or use None"
)
MAX_INT: int = 10**MAX_DIGITS
"""The least integer that has too many digits."""


class NotJsonError(ValueError):
    """A value cannot be kept as JSON, or could not be read back. The message says why."""


def as_json(value: object, *, is_shown: bool = False) -> Any:
    """A copy of `value` as plain JSON data, as any reader brings it.

    It is written and read back, so what is returned can be stored.

    Args:
        value: what is to be stored.
        is_shown: it is for people alone: NaN and infinity become None, and are no error.

    Raises:
        NotJsonError: for anything else, whatever the value's own code raises.

    """
    # What most tools return needs no copy.
    kind = type(value)
    if value is None or kind is bool or (kind is str and value.isascii()):  # type: ignore[attr-defined]
        return value
    if kind is int and -MAX_INT < value < MAX_INT:  # type: ignore[operator]
        return value
    try:
        text = to_json(value, inf_nan_mode="null")
    except Exception as error:  # the methods of an object may raise anything
        raise NotJsonError(reason(error)) from error
    return read_json(text) if is_shown else read_json_of(value, text)


def read_json_of(value: object, text: bytes) -> Any:
    """The data of the JSON that was just written of this value.

    Raises:
        NotJsonError: as `read_json`; and where a number was written as null, which JSON lacks.

    """
    stored = read_json(text)
    if b"null" in text:  # seldom; a serializer of the value's own may write what it likes
        try:
            plain = to_jsonable_python(
                value, inf_nan_mode="constants", fallback=lambda _: None, by_alias=False
            )
        except Exception:  # written by a serializer of the tool's own, and by that alone
            return stored
        if _lost_number(stored, plain):
            raise NotJsonError(NOT_FINITE)
    return stored


def _lost_number(stored: object, plain: object) -> bool:
    """Whether a NaN or an infinity in `plain` became None in `stored`, the JSON of the same."""
    if isinstance(plain, float):
        return stored is None and not isfinite(plain)
    if isinstance(plain, dict) and isinstance(stored, dict):
        return any(_lost_number(stored[key], plain[key]) for key in plain.keys() & stored.keys())
    if isinstance(plain, list) and isinstance(stored, list):
        return any(map(_lost_number, stored, plain))
    return False


def read_json(text: bytes, *, max_depth: int = MAX_DEPTH) -> Any:
    """The data of JSON that was just written.

    Raises:
        NotJsonError: if it cannot be read (too deep, or an integer that is too long), or has a key
            twice.

    """
    try:
        plain = from_json(text)
    except ValueError as error:
        raise NotJsonError(_unreadable(str(error), max_depth)) from error
    if nested_deeper(text, plain, max_depth):
        raise NotJsonError(_unreadable("recursion limit", max_depth))
    if len(to_json(plain)) != len(text):
        raise NotJsonError("two of its keys are the same text in JSON")
    return plain


def is_storable_text(text: str) -> bool:
    """Whether UTF-8 can encode it: it holds no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable_text(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair, and with the pairs joined."""
    if is_storable_text(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def unsendable(value: object, *, depth: int = MAX_DEPTH) -> str | None:
    """Why no client of a provider could encode this value; None where nothing is known of it.

    A text in it that holds half of a surrogate pair, or a number that JSON lacks. Looks into
    mappings, lists, tuples and dataclasses, to this depth.
    """
    if isinstance(value, str):
        return None if is_storable_text(value) else INVALID_TEXT
    if isinstance(value, float):
        return None if isfinite(value) else UNSENDABLE_NUMBER
    inside: Iterable[object]
    if isinstance(value, (list, tuple)):
        inside = value
    elif isinstance(value, (dict, Mapping)):  # asking for a Mapping alone takes 10 times as long
        inside = (*value, *value.values())
    elif is_dataclass(value):
        inside = [getattr(value, field.name, None) for field in fields(value)]
    else:
        return None
    if depth > 0:
        for item in inside:
            found = unsendable(item, depth=depth - 1)
            if found is not None:
                return found
    return None


def check_sendable(value: object, *, what: str) -> None:
    """Check that a client of a provider can encode it: valid Unicode, and finite numbers.

    Raises:
        UsageError: if it cannot.

    """
    why = unsendable(value)
    if why is not None:
        raise UsageError(f"{what} {why}")


def shown(value: object) -> str:
    """The `repr` of a value for an error message, whatever its `repr` is or raises.

    It can be stored and sent: the half of a surrogate pair in it is U+FFFD.
    """
    try:
        text = storable_text(repr(value))
    except Exception:  # a long integer, deep data, or the object's own code
        return f"<{type(value).__name__}>"
    return text if len(text) <= 1000 else f"{text[:1000]}..."


def jsonable(value: object) -> Any:
    """A value as plain JSON data for people and programs that look; what JSON lacks as text.

    Nothing raises: what a tool emits may hold itself, bytes, or objects with code of their own.
    """
    if value is None or (type(value) is str and value.isascii()):
        return value
    try:
        return from_json(to_json(value, fallback=shown, inf_nan_mode="strings"))
    except Exception:
        return shown(value)


def text_of(error: BaseException) -> str:
    """What an exception says, as text that can be stored, whatever its `__str__` returns or raises.

    Everything that tells of an exception of other people's code goes through here: an error on the
    way would take its place, and end what goes on after it.
    """
    try:
        return storable_text(str(error))
    except Exception:
        return "(no text: its __str__ raised)"


def checked_text(given: object, *, what: str, may_be_empty: bool = False) -> str:
    """`given`, if it is text that can be stored.

    Raises:
        UsageError: for anything else, and for an empty text unless `may_be_empty`.

    """
    if not isinstance(given, str) or not (given or may_be_empty):
        expected = "text" if may_be_empty else "text and not empty"
        raise UsageError(f"{what} must be {expected}, got {shown(given)}")
    if not is_storable_text(given):
        raise UsageError(
            f"{what} is not valid Unicode, as it holds half of a surrogate pair, got {given!r}: "
            'decode its bytes with errors="replace"'
        )
    return given


def nested_deeper(text: bytes, plain: object, levels: int) -> bool:
    """Whether the data, with `text` as its JSON, is nested deeper than that."""
    if text.count(b"[") + text.count(b"{") <= levels:  # the common case, in no time
        return False
    layer: list[Any] = [plain]
    for _ in range(levels + 1):
        layer = [
            item
            for value in layer
            if type(value) in (dict, list)
            for item in (value.values() if type(value) is dict else value)
        ]
        if not layer:
            return False
    return True


def reason(error: Exception) -> str:
    """Why a value could not be written as JSON, by what Pydantic or the value's own code raised."""
    text = text_of(error)
    if "depth" in text or isinstance(error, RecursionError):
        return f"it is nested more than {MAX_DEPTH} levels deep"
    if "Circular" in text:
        return "it contains itself"
    if "surrogates" in text or isinstance(error, UnicodeError):
        return f"it holds text that is not valid Unicode ({text})"
    return text


def _unreadable(why: str, max_depth: int) -> str:
    if "recursion" in why:
        return f"it is nested more than {max_depth} levels deep"
    if "number out of range" in why:
        return f"it holds an integer of more than {MAX_DIGITS:,} digits"
    return why


def checked_json(values: Mapping[str, Any], *, what: str, is_shown: bool = False) -> dict[str, Any]:
    """A copy of `values` as plain JSON data.

    Args:
        values: what is to be stored.
        what: its name, for errors.
        is_shown: as of `as_json`.

    Raises:
        UsageError: for a key that is not a string, or a value that cannot be stored and read back.

    """
    if not isinstance(values, Mapping):
        raise UsageError(f"{what} must be a mapping, got {shown(values)}")
    checked = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise UsageError(f"{what} has the key {shown(key)}: keys must be strings")
        if not is_storable_text(key):
            raise UsageError(f"{what} has the key {key!r}: keys must be valid Unicode")
        try:
            checked[key] = as_json(value, is_shown=is_shown)
        except NotJsonError as error:
            raise UsageError(
                f"{what} holds {key!r}, which cannot be stored as JSON ({error}): store plain "
                "data, and pass live objects as deps"
            ) from error
    return checked


def first_difference(
    stored: Any,
    read: Any,
    *,
    is_foreign: Callable[[Mapping[str, Any]], bool],
    foreign_names: Collection[str],
) -> str | None:
    """The difference between stored JSON and what was read of it, with its path; None without one.

    Args:
        stored: as it was stored.
        read: what was read of it, as it is stored now.
        is_foreign: whether an object is of a foreign class, which may get further fields.
        foreign_names: the fields that foreign objects, and those inside them, must have; of the
            others all are needed.

    """

    def difference(stored: Any, read: Any, path: str, inside: bool) -> str | None:
        where = f"at {path!r}" if path else "at its top"
        if isinstance(stored, Mapping) and isinstance(read, dict):
            inside = inside or is_foreign(read)
            for key, value in stored.items():
                if key not in read:
                    return f"{where}, {shown(key)} is unknown"
                below = f"{path}.{key}" if path else key
                change = difference(value, read[key], below, inside)
                if change is not None:
                    return change
            missing = (key for key in read if key not in stored)
            needed = next((key for key in missing if not inside or key in foreign_names), None)
            return None if needed is None else f"{where}, {needed!r} is missing"
        if isinstance(stored, (list, tuple)) and isinstance(read, list):
            if len(stored) != len(read):
                return f"{where}, {len(stored)} items are read as {len(read)}"
            for index, (value, again) in enumerate(zip(stored, read, strict=True)):
                change = difference(value, again, f"{path}.{index}", inside)
                if change is not None:
                    return change
            return None
        same = stored == read and isinstance(stored, bool) is isinstance(read, bool)
        if same or (_is_nonfinite(stored) and (read is None or read != read)):
            return None
        return f"{where}, {shown(stored)} is not a value that is stored there"

    return difference(stored, read, "", False)


def _is_nonfinite(value: object) -> bool:
    return isinstance(value, float) and not isfinite(value)


def checked_seconds(given: object, *, what: str) -> float:
    """`given`, if it is a span of time in seconds.

    Raises:
        UsageError: for anything but a number above 0.

    """
    if not is_time_span(given):
        raise UsageError(f"{what} must be a number of seconds above 0, got {shown(given)}")
    return given


def checked_limit_seconds(given: object, *, what: str, may_be_zero: bool = False) -> float | None:
    """`given`, if it is a span of time in seconds, or None for no limit.

    Raises:
        UsageError: for anything else.

    """
    is_zero = may_be_zero and given == 0 and not isinstance(given, bool)
    if given is None or is_zero or is_time_span(given):
        return given  # type: ignore[return-value]  # it is one of the three
    least = "from 0 on" if may_be_zero else "above 0"
    raise UsageError(f"{what} must be a number of seconds {least}, or None, got {shown(given)}")


def checked_count(given: object, *, what: str) -> int:
    """`given`, if it is a whole number from 1 on.

    Raises:
        UsageError: for anything else.

    """
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise UsageError(f"{what} must be at least 1, got {shown(given)}")
    return given


def checked_flag(given: object, *, what: str) -> bool:
    """`given`, if it is True or False. A text such as "no", of a file of settings, would mean yes.

    Raises:
        UsageError: for anything else.

    """
    if not isinstance(given, bool):
        raise UsageError(f"{what} must be True or False, got {shown(given)}")
    return given


def checked_callable(given: Any, *, what: str, takes: str) -> Any:
    """`given`, if it can be called, or None.

    Raises:
        UsageError: for anything else.

    """
    if given is not None and not callable(given):
        raise UsageError(f"{what} must be a function {takes}, or None, got {shown(given)}")
    return given


def is_time_span(given: object) -> TypeGuard[float]:
    """Whether it is a number above 0 that a float can hold."""
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    return number and 0 < given <= sys.float_info.max  # type: ignore[operator]  # it is a number


def digest(value: object) -> str:
    """The SHA-256 of the canonical JSON of `value`, as hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
