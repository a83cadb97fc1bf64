"""`Committer`: the one thread that writes to a database, many agents' records in one commit.

A caller that waits for its records has them committed at once. Records for which no caller waits
yet linger for a moment, so that a step costs one commit and not two. During a commit the next group
collects: the slower the disk, the larger the groups.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from inspect import isabstract
from itertools import groupby
from typing import Any, Generic, TypeAlias, TypeVar, cast

from understudy.errors import StoreBroken, StoreDamaged, StoreError, StoreUnavailable
from understudy.journal.backend import Backend
from understudy.journal.contracts import Batch, Refusal

logger: logging.Logger = logging.getLogger(__name__)
T = TypeVar("T")

LINGER = 0.01
"""Seconds that records wait for others while no caller waits for them: about as long as a sync of a
disk takes. On a host with little to do, most results of tools go with the next commit for which
somebody waits, of any agent; each commit of its own wakes two threads."""


def while_unavailable(patience: float) -> dict[str, Any]:
    """The options of a policy of Tenacity's, by which a database is asked again for so long.

    Who writes or reads makes it before it is needed: a loop would stand still for the import. A
    program without a database loads no Tenacity.
    """
    from tenacity import retry_if_exception_type, stop_after_delay, wait_random_exponential

    return {
        "retry": retry_if_exception_type(StoreUnavailable),
        "wait": wait_random_exponential(multiplier=0.05, max=2),
        "stop": stop_after_delay(patience),
        "reraise": True,
    }


def failed_once(first: StoreUnavailable, attempt: Callable[[], T]) -> Callable[[], T]:
    """The attempts after a first one, which has failed by this error.

    The first call raises the error, so that Tenacity waits before the next attempt.
    """
    raised = [first]

    def attempt_again() -> T:
        if raised:
            raise raised.pop()
        return attempt()

    return attempt_again


class Job(ABC):
    """Something to be done in the next transaction."""

    __slots__ = ()

    loop: asyncio.AbstractEventLoop

    def take_batch(self) -> Batch | None:
        """The transaction begins: later additions to this job belong to the next one.

        Returns:
            The records to append; None if `execute` does the job.

        """
        return None

    def execute(self, backend: Backend) -> None:
        """Do it. A `StoreError` that leaves the transaction whole fails this job alone."""
        raise AssertionError("a batch is appended together with those of others")

    def is_committed(self, backend: Backend, batch: Batch | None) -> bool:
        """After a commit with unknown outcome: whether this job was done, with that batch.

        False where it may be done twice.
        """
        return False

    @abstractmethod
    def end(self, batch: Batch | None, error: StoreError | None) -> None:
        """On the job's loop: it is durable, with that batch, or it failed by this error.

        The batch is None also where the transaction of the job did not begin.
        """


Group: TypeAlias = list[tuple[Job, Batch | None]]
"""The jobs of one transaction, each with the batch that it gave."""


CommitListener: TypeAlias = Callable[[float, StoreError | None], None]
"""Gets the seconds that a transaction took, its retries included, and the error that ended it."""


class Change(Job, Generic[T]):
    """A job that is a function, which changes the backend, with its result.

    Args:
        function: does it.
        batch: the records that it adds, if it adds some.
        ended: called on the loop at the end of the job, before the next job ends. It gets the
            result, or the error.

    """

    def __init__(
        self,
        function: Callable[[], T],
        batch: Batch | None = None,
        *,
        ended: Callable[[T | None, StoreError | None], None] | None = None,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self._function = function
        self._batch = batch
        self._ended = ended
        self._value: T | None = None

    def execute(self, backend: Backend) -> None:
        self._value = self._function()

    def is_committed(self, backend: Backend, batch: Batch | None) -> bool:
        # Without records of its own it may be done twice: a claim claims again.
        return self._batch is not None and backend.is_committed(self._batch)

    def end(self, batch: Batch | None, error: StoreError | None) -> None:
        if self._ended is not None:
            self._ended(None if error is not None else self._value, error)
        if self.future.done():
            return  # its waiter was cancelled
        if error is not None:
            self.future.set_exception(error)
            self.future.exception()  # there may be no waiter
        else:
            self.future.set_result(cast("T", self._value))


class Committer:
    """Does jobs in transactions, in the order in which they were put.

    Not on a `ThreadPoolExecutor(1)`: the thread has to linger and to collect a group anyway, so
    there is no less code; a job takes 1.04 to 1.08 times as long (measured without a database); and
    the interpreter joins an executor's threads at exit, so a commit that hangs would hang the exit.

    Args:
        backend: whose writer's methods this thread calls.
        patience: seconds for which a database that cannot be reached is retried.

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
        self.on_commit: CommitListener | None = None
        """Called in this thread. It must neither raise nor block."""
        from tenacity import Retrying, stop_when_event_set
        from tenacity.nap import sleep_using_event

        options = while_unavailable(patience)
        options["stop"] |= stop_when_event_set(self._stopping)
        self._retry = Retrying(sleep=sleep_using_event(self._stopping), **options)
        self._thread = threading.Thread(target=self._run, name="understudy-committer", daemon=True)

    @property
    def lock(self) -> threading.Lock:
        """Guards the queue, and what jobs collect while they are in it."""
        return self._lock

    @property
    def queued(self) -> int:
        """How many jobs wait for the next transaction."""
        return len(self._jobs)

    def start(self) -> None:
        """Start the thread. The backend must be open."""
        self._thread.start()

    def put(self, job: Job) -> None:
        """Add a job. The caller holds `lock`. See `flush_now`."""
        if self._ended:
            # Race: this against `stop`. The thread has ended, so nothing else would end the job
            # (test_a_change_of_a_store_that_is_closed_is_refused_and_does_not_wait).
            job.loop.call_soon_threadsafe(job.end, None, _closed())
            return
        self._jobs.append(job)
        # Only the first job wakes the thread. With a job in the queue it lingers, and a
        # notification would end that early: a step would cost two commits
        # (test_a_step_of_a_model_that_answers_at_once_is_one_commit).
        if len(self._jobs) == 1:
            self._wake.notify()

    def put_alone(self, job: Job, *, flush: bool = True) -> None:
        """Acquire `lock`, and add one job. `flush` says whether a caller waits for it."""
        with self._lock:
            self.put(job)
            if flush:
                self.flush_now()

    def flush_now(self) -> None:
        """A caller waits: commit the queued jobs without lingering. The caller holds `lock`.

        In the hold of the lock in which a job is put, the thread wakes up once; else it does so to
        linger, and again to end that.
        """
        # A flag and not a notification alone: the thread may not have begun to linger yet.
        # Not on an empty queue: the flag would be for a later group, for which no caller waits.
        if self._jobs and not self._flush_now:
            self._flush_now = True
            self._wake.notify()

    def stop(self) -> None:
        """Commit the queued jobs, then end. Waits for the thread."""
        with self._lock:
            self._closing = True
            self._wake.notify()
        self._stopping.set()  # an unavailable database is not retried any longer
        self._thread.join()

    def _run(self) -> None:
        while (group := self._next_group()) is not None:
            error: StoreError | None = None
            failed: dict[Job, StoreError] = {}
            on_commit = self.on_commit
            since = time.perf_counter() if on_commit is not None else 0.0
            try:
                failed = self._commit(group)
            except StoreError as refused:
                error = refused
            except Exception as unexpected:  # a defect of the backend: no waiter may hang on it
                logger.exception("the store failed")
                error = defect_of(self._backend, unexpected)
            if on_commit is not None:
                on_commit(time.perf_counter() - since, error)
            _end(group, failed, error)
            del group, failed, error  # else they stay in memory until the next group

    def _next_group(self) -> Group | None:
        with self._lock:
            while not self._jobs:
                if self._closing:
                    # In the same hold of the lock as the last look at the queue: a job is either
                    # seen here, or refused by `put`.
                    self._ended = True
                    return None
                self._wake.wait()
            if not self._flush_now and not self._closing:
                self._wake.wait(LINGER)
            jobs, self._jobs = self._jobs, []
            self._flush_now = False
            # Under the lock, as are the additions of a loop to its job: each record is in this
            # group, or in the next one, to which its job is added again.
            return [(job, job.take_batch()) for job in jobs]

    # A test may stand around this: `testing.seams`.
    def _commit(self, group: Group) -> dict[Job, StoreError]:
        """Commit a group, with retries while the database is unavailable.

        Returns:
            The errors of jobs that failed alone.

        """
        if self._broken is not None:
            raise self._broken
        try:
            try:
                return self._run_transaction(group)
            except StoreUnavailable as error:
                # The first attempt runs without Tenacity, which takes as long as a commit without
                # a sync.
                return self._retry.copy()(failed_once(error, partial(self._run_again, group)))
            except StoreDamaged:
                # Perhaps one read of the disk has failed, and the next one does not.
                return self._run_again(group)
        except StoreBroken as error:
            if error.is_final:
                self._broken = error
            raise

    def _run_again(self, group: Group) -> dict[Job, StoreError]:
        self._backend.reconnect()
        # The answer of the last commit may be lost, and not the commit: a job that is done is
        # not repeated (test_a_commit_whose_answer_was_lost_is_not_made_twice).
        remaining = [
            (job, batch) for job, batch in group if not job.is_committed(self._backend, batch)
        ]
        return self._run_transaction(remaining)

    # A test may stand around this: `testing.seams`.
    def _run_transaction(self, group: Group) -> dict[Job, StoreError]:
        failed: dict[Job, StoreError] = {}
        try:
            if all(batch is not None for _, batch in group):
                return self._append(group, self._backend.commit_all)
            self._backend.begin()
            for appends, jobs in groupby(group, key=lambda item: item[1] is not None):
                if appends:
                    failed.update(self._append(list(jobs), self._backend.append_all))
                else:
                    failed.update(self._execute(list(jobs)))
            self._backend.commit()
        except BaseException:
            self._backend.rollback()
            raise
        return failed

    def _append(
        self, group: Group, append_all: Callable[[list[Batch]], list[Refusal | None]]
    ) -> dict[Job, StoreError]:
        """Append for many agents at once. Returns the errors of those that were refused."""
        answers = zip(group, append_all([batch for _, batch in group if batch]), strict=True)
        return {job: refused for (job, _), refused in answers if refused is not None}

    def _execute(self, group: Group) -> dict[Job, StoreError]:
        """Do one change after the other. Returns the errors of those that were refused."""
        failed: dict[Job, StoreError] = {}
        for job, _ in group:
            try:
                job.execute(self._backend)
            except (StoreUnavailable, StoreBroken):
                raise
            except StoreError as refused:
                failed[job] = refused
        return failed


def defect_of(backend: Backend, unexpected: Exception) -> StoreBroken:
    """What waiters get for an error that no method of a backend may raise."""
    name = backend.__class__.__name__
    method = _method_of(backend, unexpected)
    broken = StoreBroken(
        cause=f"{name}{method} raised {unexpected!r}",
        remedy=f"This is a defect of {name}: report it.",
    )
    broken.__cause__ = unexpected
    return broken


def _method_of(backend: Backend, error: Exception) -> str:
    """`.` and the innermost method of `Backend` that was called when this was raised, or nothing.

    It is one that an abstract class declares: what a backend has of its own says less.
    """
    contracts = [each for each in backend.__class__.__mro__ if isabstract(each)]
    found, trace = "", error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        code, trace = frame.f_code, trace.tb_next
        is_method = code.co_argcount and isinstance(
            frame.f_locals.get(code.co_varnames[0]), Backend
        )
        name = code.co_name
        if is_method and not name.startswith("_") and any(hasattr(c, name) for c in contracts):
            found = f".{name}"
    return found


def _closed() -> StoreError:
    return StoreBroken(cause="it is closed", remedy="Its runtime has stopped: make another one.")


def _end(group: Group, failed: dict[Job, StoreError], error: StoreError | None) -> None:
    """End the jobs on their loops, with one callback a loop.

    The loops run the callbacks of this one thread in order, so each job ends in the order of its
    commits.
    """
    by_loop: defaultdict[asyncio.AbstractEventLoop, Group] = defaultdict(list)
    for item in group:
        by_loop[item[0].loop].append(item)
    for loop, ended in by_loop.items():
        try:
            loop.call_soon_threadsafe(_end_all, ended, failed, error)
        except RuntimeError:
            logger.warning("records were committed for an event loop that is closed")


def _end_all(group: Group, failed: dict[Job, StoreError], error: StoreError | None) -> None:
    for job, batch in group:
        job.end(batch, error or failed.get(job))
