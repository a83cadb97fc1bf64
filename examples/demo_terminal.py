"""The terminal of the demos: shows the events of a run, and reads a person's decisions."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from understudy import Decision, Outcome, Request, approve, dismiss, edit, reject, respond
from understudy.events import (
    Event,
    ReplyEnded,
    ReplyStarted,
    TextDelta,
    ToolCallAnnounced,
    ToolEnded,
    ToolStarted,
)

__all__ = ["Terminal", "ctrl_c_interrupts"]

_MARKS = {"success": ("✓", "green"), "denied": ("✗", "yellow")}


@contextmanager
def ctrl_c_interrupts() -> Iterator[None]:
    """Meanwhile, SIGINT raises `KeyboardInterrupt`, whatever this process has inherited.

    A job that a script starts in the background inherits an ignored SIGINT, and Python then leaves
    it ignored. A program that asks a person can be stopped at its question all the same.
    """
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, inherited)


class Terminal:
    """Rich on the way out, lines on the way in: from a keyboard, or from standard input."""

    def __init__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # text streams have it
        self.console = Console(highlight=False)
        self._waiting = self.console.status("")
        self._running: dict[str, str] = {}
        """What the tools that run do, by call key."""
        self._said: dict[str, str] = {}
        """What the tools say that they do, by their names."""
        self._in_text = False

    # ------------------------------------------------------------------------ out

    def say(self, text: str, style: str = "") -> None:
        """One line of the demo's own; never cut, so that commands in it can be copied."""
        self.console.print(Text(printable(text), style=style), soft_wrap=True)

    def customer(self, text: str) -> None:
        self.console.print(Panel(Text(printable(text)), title="customer", title_align="left"))

    async def play(self, events: AsyncIterator[Event | Outcome]) -> Outcome:
        """Show what `agent.stream(...)` yields; returns the last of it, the outcome."""
        last: Event | Outcome | None = None
        try:
            async for last in events:
                self._show(last)
        finally:
            self._waiting.stop()
            self._end_text()
        assert isinstance(last, Outcome), "the outcome comes last"
        return last

    def _show(self, event: Event | Outcome) -> None:
        self._waiting.stop()
        match event:
            case ReplyStarted():
                self._go_on("the model is asked")
            case ToolCallAnnounced(tool_name=name, display_text=said):
                self._said[name] = said or name
                self._end_text()
                self._go_on(f"the model calls {name}")
            case ToolStarted(call_key=key, tool_name=name):
                self._running[key] = self._said.get(name, name)
                self._go_on(", ".join(self._running.values()))
            case TextDelta(text=text):
                if not self._in_text:
                    self.console.print("[bold cyan]desk:[/] ", end="")
                    self._in_text = True
                self.console.print(Text(printable(text)), end="", soft_wrap=True)
            case ReplyEnded(response=response):
                self._end_text()
                for part in response.tool_calls:
                    arguments = printable(part.args_as_json_str())
                    self.say(f"  → {part.tool_name} {arguments}", "magenta")
            case ToolEnded(call_key=key, tool_name=name, outcome=outcome, content=content):
                self._running.pop(key, None)
                mark, style = _MARKS.get(outcome, ("!", "red"))
                if (
                    isinstance(content, dict)
                    and "run_with_arguments_changed_by_a_person" in content
                ):
                    content = content["result"]
                shown = content if isinstance(content, str) else _json(content)
                self.say(f"  {mark} {name}: {shown}", style)

    def _go_on(self, what: str) -> None:
        """Show what goes on, in a terminal, until something else comes."""
        self._waiting.update(Text(printable(what), style="dim"))
        self._waiting.start()

    def _end_text(self) -> None:
        if self._in_text:
            self.console.print()
            self._in_text = False

    # ------------------------------------------------------------------------- in

    def ask(self, request: Request, more: int = 0) -> Decision | None:
        """The person's answer, or None where the input has ended."""
        self.console.print(self._question(request, more))
        while True:
            try:
                line = self.console.input("[bold]decide>[/] ")
            except EOFError:
                self.console.print()
                return None
            if not sys.stdin.isatty():
                self.say(line)
            try:
                return read_decision(line, request)
            except ValueError as error:
                self.say(f"{error}", "red")

    def _question(self, request: Request, more: int) -> Panel:
        lines: list[RenderableType] = [
            Text.assemble((request.tool_name, "bold"), " ", _json(request.arguments))
        ]
        for beside in (request.display, request.payload):
            if beside is not None:
                lines.append(Text(printable(str(beside)), style="dim"))
        for doubt in request.doubts:
            lines.append(Text(f"In doubt: {_json(doubt.arguments)} {doubt.reason}", style="red"))
        lines += [Text(), _ways(request)]
        title = "a person decides" + (f" ({more} more after this)" if more else "")
        return Panel(Group(*lines), title=title, title_align="left", border_style="yellow")


def _ways(request: Request) -> Table:
    ways = {
        "dismiss": ("to end the run:", "dismiss"),
        "approve": ("to run it as shown:", "approve"),
        "edit": ("with other arguments:", f"edit {_json(request.arguments)}"),
        "reject": ("not to run it, and say why:", "reject why not"),
        "respond": ("to give its result yourself:", 'respond "its result"'),
    }
    table = Table.grid(padding=(0, 1))
    for name in request.allowed:
        meaning, written = ways[name]
        table.add_row(Text(meaning, style="dim"), Text(written))
    return table


def read_decision(line: str, request: Request) -> Decision:
    """The decision that a line says. Words may be cut short: `a`, `e {...}`, `rej too much`.

    Raises:
        ValueError: saying what to write instead.

    """
    word, rest = [*line.split(maxsplit=1), "", ""][:2]
    rest = rest.strip()
    names = [name for name in request.allowed if word and name.startswith(word.lower())]
    if len(names) != 1:
        offered = ", ".join(names or request.allowed)
        raise ValueError(f"{word!r} is not a decision here: write one of {offered}.")
    match names[0]:
        case "approve":
            if rest:  # someone who writes more than "approve" means more than that
                raise ValueError("approve takes nothing after it: use edit to change arguments.")
            return approve()
        case "edit":
            return edit(_arguments(rest))
        case "reject":
            return reject(rest or None)
        case "respond":
            if not rest:
                raise ValueError('respond needs the answer after it: respond "done by hand"')
            return respond(_value(rest))
        case "dismiss":
            return dismiss(note=rest or None)


def _arguments(text: str) -> Mapping[str, Any]:
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise ValueError(f"edit takes the arguments as a JSON object: {error}") from None
    if not isinstance(arguments, dict):
        raise ValueError(f"edit takes the arguments as a JSON object, not {text}")
    return arguments


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(data: Any) -> str:
    return printable(json.dumps(data, ensure_ascii=False))


def printable(text: str) -> str:
    """Text that cannot move the cursor or hide a part of itself: a model wrote some of it."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )
