"""Reads the values of options without Pydantic, which takes longer to import than all the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin


def read_plainly(command: Any, function: Callable[..., Any] | None = None) -> Any:
    """The command, whose parameters take texts and numbers as they are.

    A value that is not plainly right is left to Typer, which reports the error.

    Args:
        command: the command that Typer has made.
        function: the function with the annotations of the parameters; None for a group.

    """
    signature = {} if function is None else inspect.signature(function).parameters
    usual: Callable[[Any], list[Any]] = command.get_params

    def get_params(ctx: Any) -> list[Any]:
        found = usual(ctx)
        for parameter in found:  # including Typer's own, for help and completion
            if "process_value" not in vars(parameter):
                known = signature.get(parameter.name)
                annotation = None if known is None else known.annotation
                parameter.process_value = _reading(parameter, annotation)
        return found

    # These methods of Click are replaced on these objects only.
    command.get_params = get_params
    return command


def _reading(parameter: Any, annotation: Any) -> Callable[[Any, Any], Any]:
    usual: Callable[[Any, Any], Any] = parameter.process_value
    kind, info = annotation, None
    if get_origin(annotation) is Annotated:
        kind, info = get_args(annotation)[:2]

    def process_value(ctx: Any, value: Any) -> Any:
        is_plain, found = _plain(kind, info, value, may_lack=not parameter.required)
        if not is_plain:
            return usual(ctx, value)
        callback = parameter.callback
        return found if callback is None else callback(ctx, parameter, found)

    return process_value


def _plain(kind: Any, info: Any, value: Any, *, may_lack: bool) -> tuple[bool, Any]:
    """Whether the value is plainly right, and the converted value."""
    if value is None:
        return may_lack, None
    if isinstance(value, bool):
        return kind is bool, value
    if isinstance(value, str) and kind in (None, str, str | None):
        return True, value
    if kind in (int, int | None):
        if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
            value = int(value)
        least, most = getattr(info, "min", None), getattr(info, "max", None)
        return (
            isinstance(value, int)
            and (least is None or least <= value)
            and (most is None or value <= most)
        ), value
    if kind in (list[str], list[str] | None) and isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(each, str) for each in value), list(value)
    return False, None
