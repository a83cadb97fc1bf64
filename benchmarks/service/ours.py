"""The support agent on this library."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.service.desk import Desk
from benchmarks.service.model import FakeModel
from benchmarks.service.pydantic_model import PydanticModel
from benchmarks.service.workload import INSTRUCTIONS, PROMPT, found, paid
from understudy import Agent, Completed, Interrupted, Runtime, approve, tool

__all__ = ["DESK"]


@tool
async def look(order: str) -> dict[str, str | int]:
    """Look up an order."""
    return found(order)


@tool(idempotent=True)
async def pay(order: str) -> str:
    """Pay money back."""
    return paid(order)


class Understudy(Desk):
    """`Runtime(store=...)`, each conversation an agent of its own; every commit is durable."""

    def __init__(self, model: FakeModel) -> None:
        super().__init__(model)
        self._agent = Agent(
            "desk",
            PydanticModel(model),
            INSTRUCTIONS,
            tools=[look, pay],
            interrupt_on={"pay": True},
        )

    @asynccontextmanager
    async def opened(self, store: str) -> AsyncIterator[None]:
        async with Runtime([self._agent], store=store) as self._runtime:
            yield

    async def ask(self, id: str) -> str:
        outcome = await self._runtime.spawn("desk", id=id).run(PROMPT)
        assert isinstance(outcome, Interrupted), outcome
        return outcome.requests[0].id

    async def approve(self, id: str, request: str) -> str:
        outcome = await self._runtime.get(id).resume({request: approve(by="ann")})
        assert isinstance(outcome, Completed), outcome
        return outcome.text


DESK = Understudy
