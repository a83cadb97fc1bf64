"""Shows a text screen by screen, and knows how much was shown.

A pager of the system would not say whether a person has seen the end of the text.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import suppress

LEAST = 4
"""The minimum lines of a screen."""


def screens_of(text: str, width: int, height: int) -> list[list[str]]:
    """The lines of a text as a terminal of this size shows them, screen by screen."""
    from rich.cells import chop_cells

    room = max(height - 2, LEAST)  # for the question below
    lines = [
        piece
        for line in text.split("\n")
        for piece in (chop_cells(line.expandtabs(8), max(width, 8)) or [""])
    ]
    return [lines[start : start + room] for start in range(0, len(lines), room)]


class Shown:
    """A text of which the first screens were shown.

    Args:
        text: the clean text.
        write: a function that writes one line to the terminal.

    """

    def __init__(self, text: str, write: Callable[[str], None]) -> None:
        width, height = shutil.get_terminal_size()
        self._screens = screens_of(text, width, height)
        self._write = write
        self._next = 0
        self.more()

    @property
    def is_whole(self) -> bool:
        """Whether the whole text was shown."""
        return self._next == len(self._screens)

    @property
    def progress(self) -> str:
        """The part that was shown, in words."""
        shown = sum(map(len, self._screens[: self._next]))
        return f"{shown} of {sum(map(len, self._screens))} lines"

    def more(self) -> None:
        """Show the next screen."""
        for line in self._screens[self._next]:
            self._write(line)
        self._next += 1

    def rest(self) -> None:
        """Show the rest of the text."""
        while not self.is_whole:
            self.more()


def forget_typed() -> None:
    """Drop input that was typed before its question was shown: it was meant for another
    question.
    """
    if sys.platform == "win32":
        return
    import termios

    with suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def is_terminal() -> bool:
    """Whether a person reads and types here."""
    return sys.stdin.isatty() and sys.stdout.isatty()
