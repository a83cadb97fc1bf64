"""A process that owns an agent of a store in PostgreSQL, to be killed or suspended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.support.programs import PIPE, Started, started

__all__ = ["owner"]

OWNER = """
import sys
from understudy.journal.postgres.backend import PostgresBackend
url, schema, host = sys.argv[1:]
backend = PostgresBackend(url, host=host, lease=60, schema=schema)
backend.open()
backend.begin()
backend.claim("t", "desk")
backend.commit()
print("owns", flush=True)
sys.stdin.read()
"""


@contextmanager
def owner(
    url: str, schema: str, host: str = "dead", *, is_fresh: bool = False
) -> Iterator[Started]:
    """A process that owns the agent "t" for a minute."""
    command = ("-c", OWNER, url, schema, host)
    with started(*command, stdin=PIPE, stdout=PIPE, is_fresh=is_fresh) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "owns\n"
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
