"""`Committer`: the one thread that writes to a database, many agents' records in one commit.

Whoever waits for his records makes it commit at once; what nobody waits for yet may linger for a
moment, so that a step costs one commit and not two. While a commit is under way the next one
gathers: the slower the disk, the larger the groups.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    stop_when_event_set,
    wait_random_exponential,
)
from tenacity.nap import sleep_using_event

from understudy.errors import StoreBroken, StoreError, StoreUnavailable
from understudy.journal.contracts import Backend, Batch

__all__ = ["Change", "Committer", "Job"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

WHILE_AWAY = retry_if_exception_type(StoreUnavailable)
PAUSES = wait_random_exponential(multiplier=0.05, max=2)
"""When a database is tried again, by whoever writes and whoever reads."""
LINGER = 0.0003
"""Seconds that records wait for company while nobody waits for them. A step of an agent, from a
tool's result to the start of the next tool, takes less where the model answers at once."""


class Job(Protocol):
    """Something to be done in the next transaction."""

    loop: asyncio.AbstractEventLoop

    def take(self) -> Batch | None:
        """The transaction begins: what is asked for from now on belongs to the next one.

        Returns:
            The records to append, where this is all that there is to do.

        """

    def work(self, backend: Backend) -> None:
        """Do it. A `StoreError` that leaves the transaction whole fails this job alone."""

    def is_done(self, backend: Backend, taken: Batch | None) -> bool:
        """After a commit with unknown outcome: whether what was taken is done (J16)."""

    def settle(self, error: StoreError | None) -> None:
        """On the job's loop: it is durable, or it is not."""


Taken = list[tuple[Job, Batch | None]]


class Change(Generic[T]):
    """A job that is a function of the database, with what it returns."""

    def __init__(
        self,
        function: Callable[[Backend], T],
        batch: Batch | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self._function = function
        self._batch = batch
        self._value: T

    def take(self) -> Batch | None:
        """Nothing is added to it later, and it does more than to append."""
        return None

    def work(self, backend: Backend) -> None:
        self._value = self._function(backend)

    def is_done(self, backend: Backend, taken: Batch | None) -> bool:
        # Without records of its own it may be done twice: a claim is simply claimed anew.
        return self._batch is not None and backend.is_committed(self._batch)

    def settle(self, error: StoreError | None) -> None:
        if self.future.done():
            return  # nobody waits any more
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(self._value)


class Committer:
    """Does jobs in transactions, in the order in which they came.

    Args:
        backend: whose writer's methods this thread calls.
        patience: seconds for which a database that cannot be reached is tried again.

    """

    def __init__(self, backend: Backend, *, patience: float) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._jobs: list[Job] = []
        self._flush_now = False
        self._closing = False
        self._ended = False
        self._broken: StoreBroken | None = None
        self._stopping = threading.Event()
        self._retry = Retrying(
            retry=WHILE_AWAY,
            wait=PAUSES,
            stop=stop_after_delay(patience) | stop_when_event_set(self._stopping),
            sleep=sleep_using_event(self._stopping),
            reraise=True,
        )
        self._thread = threading.Thread(target=self._run, name="understudy-store", daemon=True)

    @property
    def lock(self) -> threading.Lock:
        """Guards the queue, and what jobs gather while they are in it."""
        return self._lock

    def start(self) -> None:
        """Start the thread; the backend is open."""
        self._thread.start()

    def put(self, job: Job) -> None:
        """Add a job; the caller holds the lock. See `flush_now`."""
        if self._ended:
            job.loop.call_soon_threadsafe(job.settle, _closed())
            return
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._wake.notify()

    def flush_now(self) -> None:
        """Somebody waits: commit what there is now."""
        with self._lock:
            if self._jobs and not self._flush_now:
                self._flush_now = True
                self._wake.notify()

    def stop(self) -> None:
        """Commit what there is, then end. Waits for the thread."""
        with self._lock:
            self._closing = True
            self._wake.notify()
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while (jobs := self._next()) is not None:
            error: StoreError | None = None
            failed: dict[Job, StoreError] = {}
            try:
                failed = self._committed(jobs)
            except StoreError as refused:
                error = refused
            except Exception as unexpected:  # a defect of the backend: nobody may wait for ever
                logger.exception("the store failed")
                error = StoreBroken(cause=repr(unexpected), remedy="This is a defect: report it.")
            _settle(jobs, failed, error)
            del jobs, failed, error  # the next ones may be long in coming: nobody is held meanwhile

    def _next(self) -> Taken | None:
        with self._lock:
            while not self._jobs:
                if self._closing:
                    self._ended = True
                    return None
                self._wake.wait()
            if not self._flush_now and not self._closing:
                self._wake.wait(LINGER)
            jobs, self._jobs = self._jobs, []
            self._flush_now = False
            return [(job, job.take()) for job in jobs]

    def _committed(self, jobs: Taken) -> dict[Job, StoreError]:
        """Commit, again and again while the database cannot be reached; who failed alone."""
        if self._broken is not None:
            raise self._broken
        try:
            try:
                return self._transaction(jobs)
            except StoreUnavailable as error:
                return self._committed_later(jobs, error)
        except StoreBroken as error:
            if error.is_final:
                self._broken = error
            raise

    def _committed_later(self, jobs: Taken, first: StoreUnavailable) -> dict[Job, StoreError]:
        """The attempts after the first one, which has failed.

        They have the machinery of Tenacity around them, which takes as long as a commit does
        without a sync.
        """
        failure: StoreUnavailable | None = first

        def once() -> dict[Job, StoreError]:
            nonlocal failure
            if failure is not None:
                before, failure = failure, None
                raise before
            self._backend.reconnect()
            left = [item for item in jobs if not item[0].is_done(self._backend, item[1])]
            return self._transaction(left)

        return self._retry.copy()(once)

    def _transaction(self, jobs: Taken) -> dict[Job, StoreError]:
        backend = self._backend
        failed: dict[Job, StoreError] = {}
        try:
            backend.begin()
            for appends, group in groupby(jobs, key=lambda item: item[1] is not None):
                do = _appended if appends else _worked
                failed.update(do(backend, group))
            backend.commit()
        except BaseException:
            backend.rollback()
            raise
        return failed


def _closed() -> StoreError:
    return StoreBroken(cause="it is closed", remedy="Its runtime has stopped: make another one.")


def _appended(backend: Backend, group: Iterable[tuple[Job, Batch | None]]) -> dict[Job, StoreError]:
    """Append for many agents at once; who may not any more."""
    jobs, batches = [], []
    for job, batch in group:
        assert batch is not None, "grouped by that"
        jobs.append(job)
        batches.append(batch)
    answers = zip(jobs, backend.append_all(batches), strict=True)
    return {job: refused for job, refused in answers if refused is not None}


def _worked(backend: Backend, group: Iterable[tuple[Job, Batch | None]]) -> dict[Job, StoreError]:
    """Do one change after the other; who was refused, without harm to the others."""
    failed: dict[Job, StoreError] = {}
    for job, _ in group:
        try:
            job.work(backend)
        except (StoreUnavailable, StoreBroken):
            raise
        except StoreError as refused:
            failed[job] = refused
    return failed


def _settle(jobs: Taken, failed: dict[Job, StoreError], error: StoreError | None) -> None:
    """Tell each loop, once, what became of its jobs."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Job, StoreError | None]]]
    by_loop = defaultdict(list)
    for job, _ in jobs:
        by_loop[job.loop].append((job, error or failed.get(job)))

    def tell(settled: list[tuple[Job, Any]]) -> None:
        for job, its_error in settled:
            job.settle(its_error)

    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(tell, settled)
        except RuntimeError:
            logger.warning("records were committed for an event loop that is closed")
