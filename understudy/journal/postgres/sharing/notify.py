"""`NotifyListener`: a connection on which a host hears what others tell it.

Imported where psycopg is installed. All that it hears are hints: while it is away nothing is wrong,
only later.
"""

from __future__ import annotations

import logging
import secrets
import threading
from typing import TYPE_CHECKING

import psycopg

from understudy.errors import StoreError
from understudy.journal.shared import Told

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PostgresConnection

_log = logging.getLogger(__name__)
_LONGEST_PAUSE = 5.0
"""Seconds between two attempts to connect."""


class NotifyListener:
    """Listens in a thread, and connects again by itself.

    Args:
        connection: its own.
        told: called in the thread.

    """

    def __init__(self, connection: PostgresConnection, told: Told) -> None:
        self.channel: str = f"understudy_{secrets.token_hex(8)}"
        """Unlike the number of the host it outlives a lost lease."""
        self._connection = connection
        self._told = told
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stopped = threading.Event()
        self._connection.open()
        self._thread = threading.Thread(
            target=self._run, args=(self._stopped,), name="understudy-listener", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Raises nothing. Waits for the thread."""
        self._stopped.set()
        self._connection.interrupt()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LONGEST_PAUSE)
        self._thread = None
        self._connection.close()

    def _run(self, stopped: threading.Event) -> None:
        pause = 0.05
        while not stopped.is_set():
            try:
                self._connection.connect()
                # Race: this against `stop`, which finds nothing to interrupt before it is connected
                # (test_a_host_that_closes_while_its_ear_connects_hears_nothing_any_more).
                if stopped.is_set():
                    return
                with self._connection.use() as connection:
                    connection.execute(f'LISTEN "{self.channel}"')
                    # Race: this against what was told before. Its caller looks again by itself
                    # too, but only after a while
                    # (test_what_was_posted_while_nobody_listened_is_done_when_somebody_does).
                    self._told(None)
                    pause = 0.05
                    for notify in connection.notifies():
                        self._told(notify.payload)
                        if stopped.is_set():
                            return
            except (StoreError, psycopg.Error) as error:
                if stopped.is_set():
                    return
                _log.warning("this host does not hear other ones: %s", error)
            stopped.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
