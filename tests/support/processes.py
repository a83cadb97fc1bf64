"""What other processes do: waits for what they bring about, and whether they are alive."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["SECONDS", "is_alive", "is_running", "until"]

T = TypeVar("T")
SECONDS = 100.0
"""A wait that long is a wait for ever: a node of Ray starts in half a minute on a busy machine."""


def until(condition: Callable[[], T]) -> T:
    """What the condition brings, once it holds. The thread waits meanwhile."""
    end = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.02)
    return found


def is_alive(pid: int | str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


def is_running(pid: int | str) -> bool:
    """As `is_alive`, without one that has ended and that nobody has asked for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return Path("/proc/self/stat").exists() is False and is_alive(pid)
    return fields[0] != "Z"
