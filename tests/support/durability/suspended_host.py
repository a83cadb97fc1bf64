"""One of two hosts that own agents in turns, and are stopped in the middle of their calls."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import faulthandler
import functools
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.durability.commits import Answers, around_commits
from tests.support.durability.lives import is_held
from tests.support.durability.side_log import SideLog
from tests.support.durability.stage import call_of, decision
from understudy import (
    Agent,
    Interrupted,
    Outcome,
    Runtime,
    ScriptedModel,
    StoreError,
    ToolContext,
    UnderstudyError,
    call,
    tool,
)
from understudy._base.worker_threads import WorkerThreads
from understudy.journal import DatabaseStore
from understudy.journal.agent_journal import AgentJournal
from understudy.journal.contracts import Batch
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.shared_store import SharedStore
from understudy.run.ledger import Ledger
from understudy.state import records as r

__all__ = ["KINDS", "POINTS", "UNDER_WAY", "Setting", "play"]

POINTS = (
    "started appended",
    "before commit",
    "after commit",
    "durable",
    "queued for a thread",
    "before check",
    "after check",
    "in the body",
    "after the effect",
    "result appended",
    "before renewal",
    "after renewal",
)
"""Where a host stops itself, from the record of a start to that of its result."""
UNDER_WAY = ("after check", "in the body")
"""Behind the check: what happens there after the lease, no store can prevent (J8)."""
KINDS = ("async", "plain")
"""Of tools: on the loop, or in one of too few threads."""
THREADS = 2

_checked: contextvars.ContextVar[tuple[int, float, float]] = contextvars.ContextVar("checked")
"""Of the last check of the call's owner: its epoch, when it began, and when the lease ends."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What both hosts of a play have in common."""

    url: str
    schema: str
    lease: float


def now() -> float:
    """Seconds, the same in all processes."""
    return time.monotonic()


class _Stops:
    """Stops this process at the n-th time that it passes a point."""

    def __init__(self, log: SideLog, host: str) -> None:
        self._log = log
        self._host = host
        self._point, self._left = "", 0
        self._begun = False
        self._lock = threading.Lock()
        self.lease_end = 0.0

    def arm(self, point: str, nth: int) -> None:
        """From the next start of a call on; an empty point disarms."""
        with self._lock:
            self._point, self._left, self._begun = point, nth, False

    def __call__(self, point: str) -> None:
        with self._lock:
            self._begun = self._begun or point == "started appended"
            if point != self._point or not self._begun:
                return
            self._left -= 1
            if self._left:
                return
            self._point = ""
        self._log.write("stops", self._host, point, str(now()))
        # A signal to the process may stop another thread first, while this one continues.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def install(self) -> None:
        """Have this process pass all points, and note claims, checks and leases."""
        stops, log, host = self, self._log, self._host
        claimed: dict[str, float] = {}

        def around(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
            inner = getattr(owner, name)
            setattr(owner, name, functools.wraps(inner)(make(inner)))

        def append(inner: Any) -> Any:
            def appends(journal: AgentJournal, records: Any) -> None:
                inner(journal, records)
                for record in records:
                    if isinstance(record, r.Started) and record.tool_name in TOOLS:
                        stops("started appended")
                    elif isinstance(record, r.Result) and record.part.tool_name in TOOLS:
                        stops("result appended")

            return appends

        def around_commit(batches: Sequence[Batch], commit: Callable[[], Answers]) -> Answers:
            stops("before commit")
            began = now()
            answers = commit()
            for batch, refused in zip(batches, answers, strict=True):
                if refused is None:
                    log.write("wrote", batch.agent_id, str(batch.epoch), host, str(began))
            stops("after commit")
            return answers

        def durable(inner: Any) -> Any:
            async def is_durable(journal: AgentJournal) -> None:
                await inner(journal)
                stops("durable")

            return is_durable

        def run(inner: Any) -> Any:
            async def runs(threads: WorkerThreads, *args: Any, **kwargs: Any) -> Any:
                if threads._max == THREADS:
                    stops("queued for a thread")
                return await inner(threads, *args, **kwargs)

            return runs

        def check(inner: Any) -> Any:
            def checks(ledger: Ledger) -> None:
                stops("before check")
                asked = (ledger.epoch, now(), stops.lease_end)
                inner(ledger)
                _checked.set(asked)
                stops("after check")

            return checks

        def renew(inner: Any) -> Any:
            def renews(backend: PostgresBackend) -> float:
                stops("before renewal")
                seconds: float = inner(backend)
                stops.lease_end = now() + seconds
                stops("after renewal")
                return seconds

            return renews

        def take(inner: Any) -> Any:
            def takes(backend: PostgresBackend, agent_id: str, *given: Any, **options: Any) -> Any:
                owned = inner(backend, agent_id, *given, **options)
                claimed[agent_id] = now()
                return owned

            return takes

        def take_durably(inner: Any) -> Any:
            async def takes(shared: SharedStore, agent_id: str, *given: Any, **options: Any) -> Any:
                taken = await inner(shared, agent_id, *given, **options)
                if taken is not None:
                    epoch = str(taken.owned.epoch)
                    log.write("claimed", agent_id, epoch, host, str(claimed[agent_id]))
                return taken

            return takes

        around(AgentJournal, "append", append)
        around(AgentJournal, "durable", durable)
        around_commits(PostgresBackend, around_commit)
        around(PostgresBackend, "renew", renew)
        around(PostgresBackend, "take", take)
        around(SharedStore, "take", take_durably)
        around(WorkerThreads, "run", run)
        around(Ledger, "check_owner", check)


# ------------------------------------------------------------------------------ agents


@dataclass(slots=True)
class _Scene:
    """What the tools get as `deps`."""

    log: SideLog
    host: str
    stops: _Stops
    seconds: float = 0.0
    """How long each takes."""

    def enter(self, ctx: ToolContext, what: str) -> int:
        """The body begins; the epoch that it belongs to."""
        epoch, *facts = _checked.get()
        of = (ctx.call_key, ctx.agent_id, what, self.host, str(epoch))
        self.log.write("enter", *of, *(str(fact) for fact in facts), str(now()))
        self.stops("in the body")
        return epoch

    def act(self, ctx: ToolContext, what: str, epoch: int) -> str:
        """What the tool does in the world: twice in the log, once for the person alone."""
        self.log.write("effect", ctx.call_key, ctx.tool_name, what)
        self.log.write("effected", ctx.call_key, ctx.agent_id, str(epoch), str(now()))
        self.stops("after the effect")
        return f"{ctx.tool_name} of {what} is done"


@tool(on_unknown="ask")
async def post(ctx: ToolContext, what: str) -> str:
    """On the loop."""
    scene: _Scene = ctx.deps
    epoch = scene.enter(ctx, what)
    await asyncio.sleep(scene.seconds)
    return scene.act(ctx, what, epoch)


@tool(on_unknown="ask")
def stamp(ctx: ToolContext, what: str) -> str:
    """In a thread, of which there are too few."""
    scene: _Scene = ctx.deps
    epoch = scene.enter(ctx, what)
    time.sleep(scene.seconds)
    return scene.act(ctx, what, epoch)


@tool(idempotent=True)
async def begin() -> str:
    """Before it the run is durable."""
    return "begun"


TOOLS = ("post", "stamp")


def _agent(kind: str) -> Agent:
    name = "post" if kind == "async" else "stamp"
    turns: list[Any] = [
        [call("begin")],
        [call_of(name, "one"), call_of(name, "two")],
        call_of(name, "three"),
        "done",
    ]

    def reply(request: Any) -> Any:
        return turns[min(len(request.messages) // 2, len(turns) - 1)]

    return Agent(kind, ScriptedModel(reply), tools=[post, stamp, begin])


# -------------------------------------------------------------------------------- host


def play(setting: Setting, host: str, log: SideLog, commands: int) -> None:
    """Do what the commands say, until they end."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    stops = _Stops(log, host)
    stops.install()
    asyncio.run(_Host(setting, host, log, stops).follow(commands))


class _Host:
    def __init__(self, setting: Setting, host: str, log: SideLog, stops: _Stops) -> None:
        self._log = log
        self._stops = stops
        backend = PostgresBackend(
            setting.url, host=host, lease=setting.lease, schema=setting.schema
        )
        scene = self._scene = _Scene(log, host, stops)
        self._runtime = Runtime(
            [_agent(kind) for kind in KINDS],
            store=DatabaseStore(backend),
            deps_for=lambda _: scene,
            max_threads=THREADS,
            sweep=None,  # only a host that is asked to claims
            any_host=False,
        )

    async def follow(self, commands: int) -> None:
        """Until there are no more."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        with os.fdopen(commands, "rb") as pipe:
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
            tasks: list[asyncio.Task[None]] = []
            async with self._runtime:
                self._log.write("open")
                # The end of the pipe would not do: the other host has its other end as well.
                while (command := json.loads(await reader.readline())) is not None:
                    tasks += self._begin(**command)
                for task in tasks:
                    await task
            transport.close()

    def _begin(
        self, *, do: str, ids: list[str], kind: str, point: str, nth: int, seconds: float
    ) -> list[asyncio.Task[None]]:
        self._stops.arm(point, nth)
        self._log.write("armed", point)
        self._scene.seconds = seconds
        work = self._own if do == "own" else self._take
        return [asyncio.ensure_future(work(id, kind)) for id in ids]

    async def _own(self, id: str, kind: str) -> None:
        """Be the owner who is stopped: say what came of the run."""
        try:
            told = type(await self._answered(id, kind)).__name__
        except UnderstudyError as error:
            told = type(error).__name__
        except BaseException:
            traceback.print_exc()
            raise
        self._log.write("told", id, told)
        with contextlib.suppress(StoreError):  # its lease may run out just now
            await self._runtime.get(id).stop(block=False)

    async def _take(self, id: str, kind: str) -> None:
        """Take it over as soon as that can be, and see it to its end."""
        while True:
            try:
                outcome = await self._answered(id, kind)
            except StoreError:  # it is another host's
                await asyncio.sleep(0.01)
            else:
                break
        self._log.write("served", id, type(outcome).__name__)
        with contextlib.suppress(StoreError):
            await self._runtime.get(id).stop(block=False)

    async def _answered(self, id: str, kind: str) -> Outcome:
        """The run's outcome; a person answers what is in doubt."""
        ref = self._runtime.spawn(kind, id=id)
        outcome = await ref.run("go", message_id=f"{id}-1")
        while isinstance(outcome, Interrupted) or is_held(outcome):
            if isinstance(outcome, Interrupted):
                for request in outcome.requests:
                    self._log.write("doubt", id, request.call_key)
                answers = {each.id: decision(self._log, each) for each in outcome.requests}
                outcome = await ref.resume(answers)
            else:
                self._log.write("quarantined", id)
                outcome = await ref.retry()
        return outcome
