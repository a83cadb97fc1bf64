"""What the next runtime does with a store in which runs were cut off."""

from __future__ import annotations

import asyncio

import pytest

from understudy import Agent, Completed, Runtime, ScriptedModel
from understudy.journal import MemoryStore


def agent_called(name: str) -> Agent:
    return Agent(name, ScriptedModel(["done"]))


async def cut_off_run(store: MemoryStore) -> None:
    """Leave an agent of the definition 'clerk' behind, in the middle of its first model call."""
    asked = asyncio.Event()

    async def never(request: object) -> str:
        asked.set()
        return await asyncio.Future()

    async with Runtime([Agent("clerk", ScriptedModel(never))], store=store, stop_timeout=0) as old:
        run = old.spawn("clerk", id="a").run("go")
        await asked.wait()
    with pytest.raises(Exception, match="its runtime has stopped"):
        await run


async def test_recovery_tells_which_agent_it_has_no_definition_for_and_leaves_it_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    await cut_off_run(store)
    async with Runtime([agent_called("other")], store=store) as runtime:
        (ref,) = await runtime.recover()
        with pytest.raises(Exception, match="No agent is named 'clerk'; there are: 'other'"):
            await ref.outcome()
    assert "agent 'a' was not recovered: No agent is named 'clerk'" in caplog.text
    async with Runtime([agent_called("clerk")], store=store) as runtime:
        (ref,) = await runtime.recover()
        assert isinstance(await ref.outcome(), Completed)
