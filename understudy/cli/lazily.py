"""Groups of commands: a command is imported when it is called, not when it is listed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from understudy.cli.ctrl_c import end_by_ctrl_c
from understudy.cli.exits import with_exit_codes
from understudy.cli.options import spread
from understudy.cli.plain_values import read_plainly

Listed = Mapping[str, tuple[str, str]]
"""Commands by name, each as the module under `understudy.cli` and the line of the help. The
function has the name of the command. A group of commands is a `typer.Typer` with the name `app`."""
BEFORE = ("--store", "--url", "--token", "--as")
"""The options that may stand before the command as well."""
SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


def group_of(titled: Mapping[str, Listed]) -> type[TyperGroup]:
    """The class of a group with these commands, under their titles."""

    class LazyGroup(TyperGroup):
        """A group that imports the command that is called."""

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.commands = _Commands(titled)
            read_plainly(self)

        def make_context(self, *args: Any, **given: Any) -> Any:
            try:
                return super().make_context(*args, **given)
            except KeyboardInterrupt as error:
                end_by_ctrl_c(error)

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as error:  # while the command is imported
                end_by_ctrl_c(error)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, _behind_the_command(args))

        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            for title, listed in titled.items():
                with formatter.section(title):
                    formatter.write_dl([(name, line) for name, (_, line) in listed.items()])

    return LazyGroup


class _Commands(MutableMapping[str, Any]):
    """The commands by name, each made when it is looked up."""

    def __init__(self, titled: Mapping[str, Listed]) -> None:
        self._modules = {
            name: module for listed in titled.values() for name, (module, _) in listed.items()
        }
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            module = importlib.import_module(f"understudy.cli.{self._modules[name]}")
            group = getattr(module, "app", None)
            if isinstance(group, typer.Typer) and group.info.name == name:
                self._made[name] = get_command(group)
            else:
                self._made[name] = command_of(name, function_of(module, name))
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command
        self._modules.setdefault(name, "")

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


def function_of(module: Any, name: str) -> Callable[..., Any]:
    """The function of a command. If the name is a word of Python, the function's name ends with
    `_`.
    """
    found = name.replace("-", "_")
    function: Callable[..., Any] = getattr(module, found, None) or getattr(module, f"{found}_")
    return function


def command_of(name: str, function: Callable[..., Any]) -> Any:
    """The command of a function, as Typer makes it."""
    made = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=SETTINGS,
    )
    run = with_exit_codes(spread(function))
    made.command(name)(run)
    return read_plainly(get_command(made), run)


def _behind_the_command(args: list[str]) -> list[str]:
    """The arguments, with the options before the command moved after it.

    The command refuses options that it does not have.
    """
    moved: list[str] = []
    at = 0
    while at < len(args) and args[at].partition("=")[0] in BEFORE:
        size = 1 if "=" in args[at] else 2
        moved += args[at : at + size]
        at += size
    if not moved or at >= len(args) or args[at].startswith("-"):
        return args
    return [args[at], *moved, *args[at + 1 :]]
