"""One life of a process: continue what there is, do what the client wants, see it to its end.

The first life of a story and the one after a crash are the same code: a client that talks to agents
under a durable runtime needs no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.durability.facts import Facts, facts_of
from tests.support.durability.forks import patience
from tests.support.durability.points import NO_POINTS, Points, kill
from tests.support.durability.side_log import SideLog
from tests.support.durability.stage import Stage, decision, told_of
from understudy import (
    Agent,
    AgentRef,
    Completed,
    Failed,
    Interrupted,
    NotInterrupted,
    Outcome,
    Quarantined,
    Runtime,
    UnknownAgent,
)

__all__ = ["Wanted", "in_time", "is_held", "live"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the client wants of one agent."""

    agent_id: str
    agent: str
    until: str | None = None
    """Until tool of its first message."""
    followed: bool = False
    """Whether somebody reads its events, so that replies are streamed."""


def live(
    folder: Path,
    life: int,
    agents: Callable[[], list[Agent]],
    wanted: list[Wanted],
    *,
    stop_at: int | None,
    shutdown: bool = False,
    named: str = "",
    since: str = "",
    hold: float = 0.0,
    store: str | None = None,
) -> list[str]:
    """Continue until everybody has what he wants, or until the point `stop_at`.

    Args:
        shutdown: at that point the host shuts down, so everything is cancelled; else the process
            is killed.
        named, since, hold: see `Points`.

    Returns:
        The points that were passed.

    """
    log = SideLog(folder / "log", life)
    shut: list[Callable[[], None]] = []

    def stop(name: str) -> None:
        log.write("stopped", name)
        if shutdown:
            shut[0]()
            time.sleep(hold)  # what is done here takes longer than the host gives it
        else:
            kill()

    points = Points(stop_at, stop, named=named, since=since, hold=hold)
    if stop_at != NO_POINTS:
        points.install()
    stage = Stage(log, points)

    async def main() -> None:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        shut.append(lambda: _call(loop, task.cancel))
        runtime = Runtime(
            agents(),
            store=store or f"sqlite:///{folder}/store.db",
            deps_for=lambda _: stage,
            sweep=None,
            stop_timeout=0.001 if shutdown else None,
        )
        async with runtime:
            await in_time(_served(runtime, log, wanted))

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(main())
    return points.passed


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    loop.call_soon_threadsafe(function)


async def in_time(work: Coroutine[Any, Any, None]) -> None:
    """Wait for it; what would wait for ever fails, and every task says where it stands."""
    try:
        async with asyncio.timeout(patience()):
            await work
    except TimeoutError:
        for task in asyncio.all_tasks():
            task.print_stack(file=sys.stderr)
        raise


async def _served(runtime: Runtime, log: SideLog, wanted: list[Wanted]) -> None:
    for want in wanted:
        await _look(runtime, log, want)
    recovered = [ref.id for ref in await runtime.recover()]
    log.write("recovered", *recovered)
    clients = [asyncio.ensure_future(_Client(runtime, log, want).served()) for want in wanted]
    try:
        await asyncio.gather(*clients)
    finally:
        for client in clients:
            client.cancel()
    log.write("served")


async def _look(runtime: Runtime, log: SideLog, want: Wanted) -> None:
    """Compare what was seen so far with what is durable, before anything continues."""
    try:
        facts = facts_of(await runtime.export(want.agent_id))
    except UnknownAgent:
        facts = Facts()
    for violation in _too_early(log, want.agent_id, facts):
        log.write("violation", violation)
    for key in sorted(facts.finished):
        log.write("finished", key)
    for run_id, key in sorted(facts.once):
        log.write("once finished", run_id, key)


def _too_early(log: SideLog, agent_id: str, facts: Facts) -> Iterator[str]:
    """What was visible before it was durable (J2, J3, J14, J16)."""
    mine = [entry.of for entry in log.read("acked") if entry.of[0] == agent_id]
    for _, message_id in mine:
        if message_id not in facts.messages:
            yield f"J14: message {message_id!r} was acknowledged and is lost"
    for entry in log.read("saw end"):
        if entry.of[0] == agent_id and entry.of[1] not in facts.ended:
            yield f"J16: the outcome of run {entry.of[1]} was seen and is lost"
    for entry in log.read("saw event"):
        if entry.of[0] == agent_id and int(entry.of[1]) > facts.newest:
            yield f"J16: event {entry.of[1]} was seen and is lost: the newest is {facts.newest}"
    runs = {reply.rpartition(".")[0] for reply in facts.calls} | facts.ended
    for entry in log.read("accepted"):
        run_id, turn = entry.of
        before = facts.calls.get(f"{run_id}.{int(turn) - 1}", set())
        if run_id in runs and not before <= facts.finished:
            yield f"J2: reply {run_id}.{turn} was accepted, but not all results before it are kept"
    if facts.newest:
        for entry in log.read("enter"):
            key = entry.of[0]
            mine_too = any(key in keys for keys in facts.calls.values())
            if mine_too and key not in facts.started | facts.finished:
                yield f"J3: call {key} was entered before its start was durable"


class _Client:
    """Sends two messages, each once, answers what is asked, and waits for the end."""

    def __init__(self, runtime: Runtime, log: SideLog, want: Wanted) -> None:
        self._runtime = runtime
        self._log = log
        self._want = want
        self._first, self._second = f"{want.agent_id}-1", f"{want.agent_id}-2"
        self._ref: AgentRef = runtime.spawn(want.agent, id=want.agent_id)

    async def served(self) -> None:
        """Everything that was wanted is done, and reported."""
        with self._followed():
            await self._asked()
            await self._answered()
            if not self._log.has("acked", self._want.agent_id, self._second):
                await self._send()  # it may have arrived: then this one is that one (J14)
                await self._answered()
            elif self._second not in (await self._ref.state()).message_ids:
                self._log.write("violation", f"J14: {self._second!r} was lost")
        state = await self._ref.state()
        self._log.write("end", self._want.agent_id, json.dumps(told_of(state), sort_keys=True))

    async def _asked(self) -> None:
        """Run the first message, or attach to its run; the second follows while that is open."""
        running = self._ref.run(
            "begin", message_id=self._first, until_tool_success=self._want.until
        )
        if self._log.life == 0:
            # A run says that it has begun by its outcome only.
            while self._first not in (await self._ref.state()).message_ids:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await self._send()
        try:
            self._saw(await running)
        except NotInterrupted:  # it is over, and the second message has been run
            assert self._log.life, "nobody came before"

    async def _send(self) -> None:
        await self._ref.send("and then?", message_id=self._second)
        self._log.write("acked", self._want.agent_id, self._second)

    async def _answered(self) -> None:
        """Answer what is asked until the agent has come to rest."""
        while isinstance(outcome := await self._ref.outcome(), Interrupted) or is_held(outcome):
            if is_held(outcome):  # it was cut off three times before it got anywhere (J10)
                self._log.write("quarantined", self._want.agent_id)
                self._saw(await self._ref.retry())
            asked = [
                p.request
                for p in await self._runtime.pending()
                if p.agent_id == self._want.agent_id
            ]
            if asked:
                answers = {request.id: decision(self._log, request) for request in asked}
                with contextlib.suppress(NotInterrupted):
                    self._saw(await self._ref.resume(answers))
        assert outcome is not None
        self._saw(outcome)

    def _saw(self, outcome: Outcome) -> None:
        if isinstance(outcome, Interrupted) or is_held(outcome):
            return
        told = f"{type(outcome).__name__}: {getattr(outcome, 'text', '')}"
        if isinstance(outcome, Completed) and outcome.tool_result is not None:
            told += f"; {outcome.tool_result.value}"
        self._log.write("saw end", self._want.agent_id, outcome.run_id, told)

    @contextmanager
    def _followed(self) -> Iterator[None]:
        if not self._want.followed:
            yield
            return
        events = self._ref.events(after=0)

        async def follow() -> None:
            newest = 0
            async for event in events:
                if event.seq is not None and event.seq > newest:
                    newest = event.seq
                    self._log.write("saw event", self._want.agent_id, str(newest))

        following = asyncio.ensure_future(follow())
        try:
            yield
        finally:
            following.cancel()
            events.close()


def is_held(outcome: Outcome | None) -> bool:
    """Whether the run is quarantined: nothing but `retry` wakes it (J10)."""
    return isinstance(outcome, Failed) and isinstance(outcome.error, Quarantined)
