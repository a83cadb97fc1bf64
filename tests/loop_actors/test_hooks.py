"""Hooks may be plain or async, and a type checker takes both; mypy reads this module, too."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, cast

import pytest

from understudy import UsageError
from understudy.actors import ChildSpec, LoopActor, Supervisor, async_hook


class Plain(LoopActor):
    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self.said = said

    def on_start(self) -> None:
        self.said.append("start")

    def on_stop(self) -> None:
        self.said.append("stop")

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.said.append(f"failure {exception_value!r}")

    def on_receive(self, message: str) -> Any:
        if message == "fail":
            raise ValueError(message)
        return message


class Async(Plain):
    @async_hook
    async def on_start(self) -> None:
        await asyncio.sleep(0)
        super().on_start()

    @async_hook
    async def on_stop(self) -> None:
        await asyncio.sleep(0)
        super().on_stop()

    @async_hook
    async def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.sleep(0)
        super().on_failure(exception_type, exception_value, traceback)

    async def on_receive(self, message: str) -> Any:
        await asyncio.sleep(0)
        return super().on_receive(message)


class Further(Async):
    """An async hook that calls the async one it overrides."""

    @async_hook
    async def on_start(self) -> None:
        await super().on_start()
        self.said.append("further")


class Troupe(Supervisor):
    """A supervisor with more to do at its start."""

    def __init__(self, said: list[str]) -> None:
        super().__init__([ChildSpec("plain", lambda: Plain.start(said))])
        self.said = said

    @async_hook
    async def on_start(self) -> None:
        await super().on_start()
        self.said.append("all are there")


@pytest.mark.parametrize("kind", [Plain, Async])
async def test_a_hook_runs_to_its_end_before_what_comes_after_it_plain_or_async(
    kind: type[Plain],
) -> None:
    said: list[str] = []
    actor = kind.start(said)
    assert await actor.ask("hello", block=False) == "hello"
    assert said == ["start"]
    assert await actor.stop(block=False)
    assert said == ["start", "stop"]
    actor = kind.start(said)
    gone = asyncio.get_running_loop().create_future()
    actor.monitor(gone.set_result)
    actor.tell("fail")
    await gone
    assert said == ["start", "stop", "start", "failure ValueError('fail')"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(Further, ["start", "further", "stop"]), (Troupe, ["start", "all are there", "stop"])],
)
async def test_an_async_hook_awaits_the_one_that_it_overrides(
    kind: Any, expected: list[str]
) -> None:
    said: list[str] = []
    assert await kind.start(said).stop(block=False)
    assert said == expected


def test_async_hook_returns_the_function_and_refuses_a_plain_one() -> None:
    async def hook() -> None: ...

    def plain() -> None: ...

    assert async_hook(hook) is hook
    with pytest.raises(UsageError, match=r"async_hook takes an `async def`, got .*plain"):
        async_hook(cast("Any", plain))
