"""What tests of notices share: a desk that asks, a channel that keeps, and waits for the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.support.agents import by_turn, interrupted
from tests.support.loops import SECONDS, soon
from understudy import Agent, Interrupted, Runtime, call, tool
from understudy.journal.notices import StoredNotice
from understudy.middleware import HumanInTheLoop
from understudy.notify import Channel, DeliveryFailed, Notice

__all__ = ["EVERY", "Kept", "asked", "desk", "listed", "told"]

EVERY = 0.01
"""Seconds between two looks: no test waits for that longer than it must."""


class Kept(Channel):
    """A channel that keeps its notices. It first fails as often as a test says."""

    def __init__(self, name: str = "kept", *, fails: int = 0, is_final: bool = False) -> None:
        super().__init__(name)
        self.fails = fails
        self.is_final = is_final
        self.tried: list[str] = []
        """The ids of all attempts."""
        self.ends: list[tuple[str, str]] = []
        self._got: asyncio.Queue[Notice] = asyncio.Queue()

    async def deliver(self, notice: Notice) -> str:
        self.tried.append(notice.id)
        if len(self.tried) <= self.fails:
            raise DeliveryFailed("the test says so", is_final=self.is_final)
        self._got.put_nowait(notice)
        return f"receipt of {notice.what} {notice.number}"

    async def ended(self, receipt: str, said: str) -> None:
        self.ends.append((receipt, said))

    async def next(self) -> Notice:
        return await soon(self._got.get())


def desk(*turns: Any, name: str = "desk", gate: Any = True, **options: Any) -> Agent:
    """An agent that asks about each refund, and whose notes need nobody."""

    @tool
    async def refund(order: str, amount: int, iban: str = "DE02") -> str:
        """Pay money back."""
        return "refunded"

    @tool
    async def mail(text: str) -> str:
        """Mail a text."""
        return "sent"

    given = turns or (call("refund", {"order": "17", "amount": 20}), "done")
    asks = HumanInTheLoop({"refund": gate, "mail": True}, **options)
    return Agent(name, by_turn(*given), tools=[refund, mail], middleware=[asks])


async def asked(runtime: Runtime, id: str = "t", agent: str = "desk") -> Interrupted:
    """The outcome of an agent that asks."""
    return interrupted(await soon(runtime.spawn(agent, id).run("go")))


async def listed(runtime: Runtime) -> list[StoredNotice]:
    return list(await soon(runtime.notices()))


async def told(runtime: Runtime, holds: Callable[[list[StoredNotice]], bool]) -> list[StoredNotice]:
    """What the outbox lists, once that holds."""
    async with asyncio.timeout(SECONDS):
        while not holds(found := await listed(runtime)):
            pass
    return found
