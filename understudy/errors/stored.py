"""A stored error, made again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from understudy.errors.base import UnderstudyError, _rebuild
from understudy.errors.runs import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping


def error_from_dict(data: Mapping[str, Any]) -> UnderstudyError:
    """Rebuild an error from its `to_dict`. An unknown type becomes a `RunError`."""
    cls = _subclasses(UnderstudyError).get(str(data["type"]), RunError)
    return _rebuild(cls, str(data["message"]), dict(data["facts"]))


def _subclasses(cls: type[UnderstudyError]) -> dict[str, type[UnderstudyError]]:
    """By name, `cls` and all of its subclasses that are loaded."""
    found = {cls.__name__: cls}
    for child in cls.__subclasses__():
        found.update(_subclasses(child))
    return found
