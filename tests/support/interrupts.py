"""Ctrl-C, as a thread that waits gets it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

__all__ = ["ctrl_c", "ctrl_c_raises"]

_noticed = threading.Event()
"""The last `ctrl_c` was noticed, or nobody waits for that any more."""


@pytest.fixture
def ctrl_c_raises() -> Iterator[None]:
    """SIGINT raises `KeyboardInterrupt` in the main thread, whatever this process inherited."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        _noticed.set()
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, interrupted)
    # It stays: a thread may be about to send this signal, which ends a process by default.
    signal.signal(signal.SIGUSR2, lambda number, frame: None)
    yield
    _noticed.set()
    signal.signal(signal.SIGINT, before)


def ctrl_c() -> None:
    """Interrupt the main thread, also if it waits for a lock. Called in another thread."""
    _noticed.clear()
    _send(signal.SIGINT)
    # Race: Python looks for signals, and then waits for a lock. It does not notice one that comes
    # between the two, until another one interrupts the wait.
    threading.Thread(target=_until_noticed, daemon=True).start()


def _until_noticed() -> None:
    while not _noticed.wait(0.1):
        _send(signal.SIGUSR2)


def _send(number: signal.Signals) -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, number)
