"""The options that many commands have, each group as one parameter of the command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from understudy.cli.api import Api
from understudy.cli.output import JsonlOption, JsonOption, Output
from understudy.cli.sources import Source
from understudy.cli.targets import (
    AsOption,
    StoreOption,
    TokenOption,
    UrlOption,
    changing,
    looking,
)


@dataclass(frozen=True, slots=True)
class Where:
    """`--store`, `--url`, `--token` and `--as`: which agents a command is about, and for whom."""

    store: str | None
    url: str | None
    token: str | None
    acting_for: str | None = None

    def looking(self) -> Source:
        """The source of a command that changes nothing."""
        return looking(self.store, self.url, self.token)

    def changing(self) -> Api:
        """The server through which a command changes something."""
        return changing(self.store, self.url, self.token, self.acting_for)


class ListOutput(Output):
    """`--json` and `--jsonl`: how a command prints a list."""


_WHERE = {
    "store": (StoreOption, None),
    "url": (UrlOption, None),
    "token": (TokenOption, None),
    "acting_for": (AsOption, None),
}
_JSON = {"json": (JsonOption, False)}
_GROUPS: Mapping[Any, Mapping[str, tuple[Any, Any]]] = {
    Where: _WHERE,
    Output: _JSON,
    ListOutput: {**_JSON, "jsonl": (JsonlOption, False)},
}


def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command, with the options of each group as separate parameters, as Typer needs them."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        options = _GROUPS.get(parameter.annotation)
        if options is None:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = parameter.annotation
        parameters += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind
            )
            for name, (kind, default) in options.items()
        ]

    def run(**given: Any) -> Any:
        made = {
            name: group(**{option: given.pop(option) for option in _GROUPS[group]})
            for name, group in groups.items()
        }
        return command(**given, **made)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, __name__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
