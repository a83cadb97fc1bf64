"""An actor that notes what happens to it, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Any

from understudy.actors import Down, LoopActor, LoopActorRef

__all__ = ["Actor", "ended"]


class Actor(LoopActor):
    """Notes what happens to it."""

    def __init__(self, notes: list[Any] | None = None) -> None:
        super().__init__(notes)
        self.notes = notes if notes is not None else []

    def on_start(self) -> Awaitable[None] | None:  # type: ignore[override]  # it may be async
        self.notes.append("start")
        return None

    def on_stop(self) -> Awaitable[None] | None:  # type: ignore[override]  # it may be async
        self.notes.append("stop")
        return None

    def on_failure(  # type: ignore[override]  # it may be async
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Awaitable[None] | None:
        self.notes.append(exception_value)
        assert exception_type is type(exception_value)
        assert traceback is not None
        return None

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        self.notes.append(message)
        return message


async def ended(ref: LoopActorRef[Any]) -> Down:
    """Wait until the actor has ended, and say how."""
    loop = asyncio.get_running_loop()
    down: asyncio.Future[Down] = loop.create_future()
    ref.monitor(lambda message: loop.call_soon_threadsafe(down.set_result, message))
    return await asyncio.wait_for(down, 60)
