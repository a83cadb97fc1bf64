"""The story of two hosts that are both asked to pay for one order: it is paid once.

The first host stands still at a point of its call, and mostly loses its lease there. The second one
is asked the same meanwhile, continues the run of the first one, and is asked once more.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Literal, get_args

import pytest

from tests.support.agents import by_turn
from tests.support.durability.broken_hosts import replaced
from tests.support.loops import SECONDS, soon
from tests.support.postgres import Hosts
from understudy import Agent, Completed, Interrupted, Outcome, Runtime, call, tool
from understudy.journal import agent_journal, sql_keys
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres import writer
from understudy.journal.postgres.backend import PostgresBackend
from understudy.state import fold
from understudy.state import records as r

__all__ = ["BROKEN", "POINTS", "Point", "same_key"]

Point = Literal[
    "before the key",
    "in its transaction",
    "in its transaction, for a while",
    "behind the key",
    "in the body",
    "at rest",
]
POINTS: tuple[Point, ...] = get_args(Point)
"""Where the first host stands still: for ever, or until the second one has asked for the key."""
_LIVES: tuple[Point, ...] = ("in its transaction, for a while", "at rest")
"""The points after which the first host continues."""


class _StandsStill:
    """A host whose committing thread stands still at a point."""

    def __init__(self, backend: PostgresBackend, point: Point) -> None:
        self.is_there = threading.Event()
        self.goes_on = threading.Event()
        take, commit, has_taken = backend.take_key, backend.commit, False

        def takes(*given: Any) -> Any:
            nonlocal has_taken
            if point == "before the key":
                self._stand_still()
            taken = take(*given)
            has_taken = True
            if point.startswith("in its transaction"):
                self._stand_still()
            return taken

        def commits() -> None:
            nonlocal has_taken
            commit()
            if has_taken and point == "behind the key":
                has_taken = False
                self._stand_still()

        replaced(backend, "take_key", takes)
        replaced(backend, "commit", commits)

    def _stand_still(self) -> None:
        if not self.goes_on.is_set():
            self.is_there.set()
            assert self.goes_on.wait(SECONDS), "the test stands still for ever"


class _Story:
    """What both hosts do."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self.paid: list[str] = []
        self.in_body = asyncio.Event()
        self.may_return = asyncio.Event()

    def agents(self) -> list[Agent]:
        @tool(key=lambda arguments: f"refund:{arguments['order_id']}")
        async def refund(order_id: str, by: str) -> str:
            self.paid.append(by)
            if by == "first" and self.point == "in the body":
                self.in_body.set()
                await self.may_return.wait()
            return "paid"

        def ordered(name: str) -> Agent:
            arguments = {"order_id": "17", "by": name}
            return Agent(name, by_turn(call("refund", arguments), "Done."), tools=[refund])

        return [ordered(name) for name in ("first", "second", "third")]


async def same_key(hosts: Hosts, point: Point) -> list[str]:
    """Two hosts, of which the first one is cut off at a point.

    Returns:
        What is wrong with it.

    """
    story = _Story(point)
    here, there = hosts.new("here"), hosts.new("there")
    still, tries = _StandsStill(here, point), asyncio.Event()
    _tell_tries(there, tries)
    outcomes: dict[str, Outcome | None] = {}
    async with AsyncExitStack() as opened:
        first, second = (
            Runtime(story.agents(), store=DatabaseStore(backend), sweep=None)
            for backend in (here, there)
        )
        for runtime in (first, second):
            await opened.enter_async_context(runtime)
        opened.callback(still.goes_on.set)
        opened.callback(story.may_return.set)
        run = first.spawn("first", "first").run("Refund.")
        if point == "in the body":
            await soon(story.in_body.wait())
        elif point == "at rest":
            await soon(run)
        else:
            await asyncio.to_thread(still.is_there.wait, SECONDS)
        other = second.spawn("second", "second").run("Refund.")
        if point.startswith("in its transaction"):
            await soon(tries.wait())
        else:
            outcomes["second"] = await soon(other)
        if point in _LIVES:
            still.goes_on.set()
            outcomes["first"] = await soon(run)
        else:
            hosts.sql("UPDATE hosts SET lease_until = clock_timestamp() WHERE name = 'here'")
            await soon(second.recover())
            outcomes["first"] = await soon(second.get("first").outcome())
        outcomes["second"] = await soon(other)
        outcomes["third"] = await soon(second.spawn("third", "third").run("Refund."))
    return _violations(story, outcomes)


def _tell_tries(backend: PostgresBackend, tries: asyncio.Event) -> None:
    """Tell when the host has tried to take the key."""
    loop, take = asyncio.get_running_loop(), backend.take_key

    def takes(*given: Any) -> Any:
        found = take(*given)
        loop.call_soon_threadsafe(tries.set)
        return found

    replaced(backend, "take_key", takes)


def _violations(story: _Story, outcomes: dict[str, Outcome | None]) -> list[str]:
    wrong = []
    if len(story.paid) != 1:
        wrong.append(f"{len(story.paid)} have paid: {', '.join(story.paid)}")
    for name, outcome in outcomes.items():
        match outcome:
            case Completed() if name in story.paid:
                pass
            case Interrupted(requests=(request,)) if name not in story.paid:
                if not request.doubts:
                    wrong.append(f"the person who is asked about {name} does not see the others")
            case _:
                wrong.append(f"{name} ends as {outcome!r}")
    return wrong


# ---------------------------------------------------------------------- broken builds


def _not_taken(patch: pytest.MonkeyPatch, _: Hosts) -> None:
    patch.setattr(sql_keys, "TAKE", f"{sql_keys.TAKE.partition('ON CONFLICT')[0]} LIMIT 0")


def _without_order(patch: pytest.MonkeyPatch, hosts: Hosts) -> None:
    patch.setattr(writer, "LOCK_KEY", "SELECT %s::int8 IS NOT NULL")
    hosts.open("maker of tables")
    hosts.sql("ALTER TABLE call_keys DROP CONSTRAINT call_keys_pkey")


def _forgotten_with_the_doubt(patch: pytest.MonkeyPatch, _: Hosts) -> None:
    inner = fold._APPLY[r.Result]

    def result(state: Any, record: Any) -> None:
        inner(state, record)
        state.held_keys.pop(record.call_key, None)

    patch.setitem(fold._APPLY, r.Result, result)


def _not_in_the_commit(patch: pytest.MonkeyPatch, _: Hosts) -> None:
    patch.setattr(agent_journal.AgentJournal, "_note_keys", lambda *_: None)


BROKEN: dict[str, tuple[Point, Callable[[pytest.MonkeyPatch, Hosts], None]]] = {
    "J85: a key is looked up, and not taken": ("behind the key", _not_taken),
    "J85: two hosts take a key at once": ("in its transaction, for a while", _without_order),
    "T14: a call in doubt gives its key back": ("in the body", _forgotten_with_the_doubt),
    "J85: what is done is in no commit": ("at rest", _not_in_the_commit),
}
"""Each broken build, by what is wrong with it, and the point that finds it."""
