"""Hints, and looks after them: what happens during a look is not missed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.support.loops import soon, until
from understudy._base.lookout import Hints, Lookout
from understudy.errors import StoreUnavailable


def start_task(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work, name=name)


async def test_a_hint_that_came_before_the_wait_ends_it_at_once() -> None:
    hints = Hints()
    hints.give()
    assert await soon(hints.wait(math.inf, 0)) == 1


async def test_a_hint_wakes_all_who_wait() -> None:
    hints = Hints()
    waiting = [asyncio.ensure_future(hints.wait(None, hints.count)) for _ in range(3)]
    await until(lambda: hints.is_awaited)
    hints.give()
    assert await soon(asyncio.gather(*waiting)) == [1, 1, 1]
    assert not hints.is_awaited


async def test_a_wait_without_a_hint_ends_with_the_period() -> None:
    assert await soon(Hints().wait(0.001, 0)) == 0


async def test_a_hint_during_a_look_leads_to_another_look() -> None:
    looks: list[bool] = []
    going_on = asyncio.Event()

    async def look(is_hinted: bool) -> None:
        looks.append(is_hinted)
        await going_on.wait()

    lookout = Lookout("all", lambda: math.inf, look, start_task)
    lookout.begin()
    lookout.hint()
    await until(lambda: looks == [True])
    lookout.hint()
    lookout.hint()
    going_on.set()
    await until(lambda: looks == [True, True])
    lookout.close()


async def test_a_look_without_a_hint_knows_that_the_period_has_passed() -> None:
    looks: list[bool] = []

    async def look(is_hinted: bool) -> None:
        looks.append(is_hinted)

    lookout = Lookout("all", lambda: None if looks else 0.001, look, start_task)
    lookout.begin()
    await until(lambda: looks == [False])


async def test_hints_without_end_put_off_no_look_that_is_due() -> None:
    """What a lost hint should have told of is found though other hints come all the time."""
    looks: list[bool] = []

    async def look(is_hinted: bool) -> None:
        looks.append(is_hinted)
        lookout.hint()
        await asyncio.sleep(0)

    lookout = Lookout("what is new", lambda: 0.02, look, start_task)
    lookout.hint()
    lookout.begin()
    await until(lambda: looks.count(False) == 2)
    lookout.close()


async def test_a_lookout_ends_where_there_is_nothing_to_look_at_and_begins_again() -> None:
    wanted, looked_at = ["a"], list[str]()
    tasks: list[asyncio.Task[None]] = []

    async def look(_: bool) -> None:
        looked_at.append(wanted.pop())

    def start(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        tasks.append(start_task(work, name))
        return tasks[-1]

    lookout = Lookout("all", lambda: 0.001 if wanted else None, look, start)
    for name in ("a", "b"):
        lookout.begin()
        lookout.begin()
        await soon(tasks[-1])
        assert looked_at[-1] == name
        wanted.append("b")
    assert len(tasks) == 2


@pytest.mark.parametrize("error", [StoreUnavailable(cause="away"), ValueError("no"), SystemExit(2)])
async def test_a_look_that_fails_is_logged_and_is_not_the_last_one(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    looks = 0

    async def look(_: bool) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise error

    lookout = Lookout("what is wrong", lambda: 0.001 if looks < 2 else None, look, start_task)
    lookout.begin()
    await until(lambda: looks == 2)
    (record,) = caplog.records
    assert record.getMessage().startswith("what is wrong is not known")
