"""`RunningParts`: the parts of a tool call that run at the same time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class RunningParts:
    """The parts of one tool call that run at this moment, each in a task of the tool.

    A part is an agent or a `once`. When an agent waits for a person, or the tool waits at a point,
    the call is suspended: its body ends, and runs again when the wait is over. But the body ends
    only when no other part runs. An exception would make the tool's `TaskGroup` cancel them, in the
    middle of calls that people have approved.
    """

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        """The number of the attempt at the call to which the parts belong."""
        self._parts: set[object] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self.suspended = False
        """Whether the body is to end: no other part is started then."""
        self.body_ended = False

    @property
    def any_runs(self) -> bool:
        """Whether a part runs now."""
        return bool(self._parts)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Count a part as running while the context is open."""
        part = object()
        self.begin(part)
        try:
            yield
        finally:
            self.end(part)

    def begin(self, part: object) -> None:
        """Note that a part begins to run."""
        self._parts.add(part)

    def end(self, part: object) -> None:
        """Note that a part has ended."""
        self._parts.discard(part)
        if not self._parts:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait_until_none_runs(self) -> None:
        """Wait for the parts that run, or are about to be started, in other tasks."""
        # One iteration of the loop first: other tasks that the tool created at the same time may
        # not have begun, and an agent that has ended may be followed by another agent of the same
        # task (test_agents_side_by_side_are_all_asked_about_at_once).
        await asyncio.sleep(0)
        while self._parts:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
            await asyncio.sleep(0)
