"""The floor: the same web app with a loop over model and tools, and no framework.

It stores nothing, so a conversation is lost with its process. What it costs is the part of the web
server and of the model's client, which is in the figures of all the others, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.service.desk import Desk
from benchmarks.service.model import FakeModel
from benchmarks.service.workload import FINAL, PROMPT, found, paid

__all__ = ["DESK"]


class BareLoop(Desk):
    """Messages in a list, and the lists of conversations in a dictionary."""

    def __init__(self, model: FakeModel) -> None:
        super().__init__(model)
        self._conversations: dict[str, list[object]] = {}

    @asynccontextmanager
    async def opened(self, store: str) -> AsyncIterator[None]:
        yield

    async def ask(self, id: str) -> str:
        messages = self._conversations[id] = [PROMPT]
        await self._until_approval(messages, 0)
        return id

    async def approve(self, id: str, request: str) -> str:
        messages = self._conversations.pop(request)
        before = len(messages) // 2
        messages.append(paid(f"o{before - 1}"))
        await self._until_approval(messages, before)
        return FINAL

    async def _until_approval(self, messages: list[object], before: int) -> None:
        while (tool := await self.model.reply(before)) == "look":
            messages += [tool, found(f"o{before}")]
            before += 1
        messages.append(tool)


DESK = BareLoop
