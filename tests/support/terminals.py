"""A program in a terminal, and a person who reads and types there."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.support.programs import Started, started

__all__ = ["Terminal", "in_a_terminal"]

SECONDS = 60


class Terminal:
    """What a program shows, and what is typed."""

    def __init__(self, program: Started, end: int) -> None:
        self.program = program
        self._end = end
        self._read = ""
        self._seen = 0

    def until(self, text: str) -> str:
        """What is shown from here until this text has come."""
        return self._until(lambda: self._read.find(text, self._seen), len(text), text)

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def answer(self, question: str, text: str) -> str:
        """Wait for a question, and answer it; what was shown before."""
        shown = self.until(question)
        self.type(f"{text}\n")
        return shown

    def rest(self) -> tuple[str, int]:
        """What is shown until the program has ended, and its exit code."""
        code = self.program.wait(timeout=SECONDS)
        while select.select([self._end], [], [], 0)[0]:
            if not self._take():
                break
        return self._read[self._seen :], code

    def _until(self, place: Any, size: int, text: str) -> str:
        end = time.monotonic() + SECONDS
        while (at := place()) < 0:
            assert time.monotonic() < end, (text, self._read[self._seen :])
            if select.select([self._end], [], [], 1)[0]:
                assert self._take(), (text, self._read[self._seen :])
        found = self._read[self._seen : at + size]
        self._seen = at + size
        return found

    def _take(self) -> bool:
        try:
            data = os.read(self._end, 65536)
        except OSError:  # the program has ended
            return False
        self._read += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)


@contextmanager
def in_a_terminal(
    *arguments: str, env: Mapping[str, str] | None = None, lines: int = 24
) -> Iterator[Terminal]:
    """A program whose standard streams are a terminal of 80 columns."""
    ours, theirs = os.openpty()
    size = {"COLUMNS": "80", "LINES": str(lines), "NO_COLOR": "1", "TERM": "xterm"}
    pipes: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    try:
        with started(*arguments, env={**os.environ, **size, **(env or {})}, **pipes) as program:
            os.close(theirs)
            theirs = -1
            try:
                yield Terminal(program, ours)
            finally:
                program.kill()
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
