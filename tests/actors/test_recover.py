"""What the next runtime does with a store in which runs were cut off."""

from __future__ import annotations

import asyncio

import pytest

from understudy import Agent, Completed, Interrupted, Runtime, ScriptedModel, approve, call, tool
from understudy.journal import MemoryStore


@tool
def pay() -> str:
    """Pay."""
    return "paid"


def agent_called(name: str, *, gated: bool = False) -> Agent:
    model = ScriptedModel(lambda r: "done" if len(r.messages) > 2 else call("pay"))
    return Agent(name, model, tools=[pay], interrupt_on={"pay": True} if gated else None)


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


def test_a_run_that_was_cut_off_goes_on_and_its_outcome_comes_to_whoever_asks() -> None:
    """J10: `outcome()` waits for a run that somebody else began."""

    async def main() -> None:
        store = MemoryStore()
        await cut_off_run(store)
        async with Runtime([agent_called("clerk")], store=store) as runtime:
            (ref,) = await runtime.recover()
            outcome = await ref.outcome()
            assert isinstance(outcome, Completed)
            assert (ref.id, outcome.text) == ("a", "done")
            assert await runtime.recover() == []

    asyncio.run(main())


def test_an_agent_that_waits_for_a_person_is_left_alone_by_recovery_and_listed() -> None:
    """I10, J10."""

    async def main() -> None:
        store = MemoryStore()
        async with Runtime([agent_called("clerk", gated=True)], store=store) as old:
            assert isinstance(await old.spawn("clerk", id="a").run("go"), Interrupted)
        async with Runtime([agent_called("clerk", gated=True)], store=store) as runtime:
            assert await runtime.recover() == []
            (pending,) = await runtime.pending()
            answer = {pending.request.id: approve()}
            assert isinstance(await runtime.get(pending.agent_id).resume(answer), Completed)

    asyncio.run(main())


def test_recovery_tells_which_agent_it_has_no_definition_for_and_leaves_it_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
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

    asyncio.run(main())
