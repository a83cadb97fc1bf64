"""Ctrl-C, as a thread that waits gets it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

__all__ = ["ctrl_c", "ctrl_c_raises"]


@pytest.fixture
def ctrl_c_raises() -> Iterator[None]:
    """SIGINT raises `KeyboardInterrupt` in the main thread, whatever this process inherited."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c() -> None:
    """Interrupt the main thread, also where it waits for a lock. Called in another thread."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)
