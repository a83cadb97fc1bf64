"""Whole agents on a store: they are asked, cut off, compacted, deleted and continued."""

from __future__ import annotations

from collections import Counter

from understudy import (
    Agent,
    AgentRef,
    Completed,
    Interrupted,
    Outcome,
    Runtime,
    ScriptedModel,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy.errors import UnknownAgent
from understudy.journal import FoldedAgent, Store, replay
from understudy.models.scripted_model import ScriptedRequest
from understudy.state.records import Record
from understudy.testing.contracts.contract import on_a_loop, raised
from understudy.testing.contracts.stores.store_tests import StoreTests, claim, ids, loaded


class Shop:
    """An agent that pays money back, and its effects outside."""

    def __init__(self) -> None:
        self.paid: Counter[tuple[str, str]] = Counter()
        """The number of entries into the body, by agent and call key."""

    def agent(self, *, gated: bool) -> Agent:
        """The agent; if it is gated, a person is asked before it pays."""

        @tool(idempotent=True)
        def refund(ctx: ToolContext, order: str) -> str:
            """Pay money back."""
            self.paid[ctx.agent_id, ctx.call_key] += 1
            return f"refunded {order}"

        def answer(request: ScriptedRequest) -> object:
            if request.results:
                return f"It is done: {request.results[-1].content}."
            return call("refund", {"order": request.prompt})

        rules = {"refund": True} if gated else None
        return Agent("desk", ScriptedModel(answer), tools=[refund], interrupt_on=rules)


class Lives(StoreTests):
    """Whole agents on a store: they are asked, cut off, compacted, deleted and continued."""

    def _runtime(self, store: Store, shop: Shop, *, gated: bool = True) -> Runtime:
        """A runtime on this store, which continues nothing by itself."""
        return Runtime([shop.agent(gated=gated)], store=store, sweep=None)

    @on_a_loop
    async def test_a_person_answers_in_the_next_process(self) -> None:
        shop = Shop()
        async with self._runtime(self.new_store(), shop) as runtime:
            outcome = await runtime.spawn("desk", id="a").run("17", message_id="mail-1")
            assert isinstance(outcome, Interrupted), outcome.explain()
        async with self._runtime(self.new_store(), shop) as runtime:
            await runtime.recover()
            pending = [each async for each in runtime.pending()]
            assert [(each.agent_id, each.request.tool_name) for each in pending] == [
                ("a", "refund")
            ]
            answer = {pending[0].request.id: approve(by="ann")}
            outcome = await runtime.get("a").resume(answer)
            _is_done(outcome, "17")
        assert list(shop.paid.values()) == [1]

    @on_a_loop
    async def test_a_message_that_comes_again_is_the_same_message(self) -> None:
        shop = Shop()
        async with self._runtime(self.new_store(), shop, gated=False) as runtime:
            first = await runtime.spawn("desk", id="a").run("17", message_id="mail-1")
        async with self._runtime(self.new_store(), shop, gated=False) as runtime:
            again = await runtime.get("a").run("17", message_id="mail-1")
            assert again == first
            assert await runtime.outcome("a", message_id="mail-1") == first
            _is_done(await runtime.get("a").run("18", message_id="mail-2"), "18")
        assert list(shop.paid.values()) == [1, 1]

    @on_a_loop
    async def test_a_run_that_was_cut_off_after_any_record_comes_to_its_end(self) -> None:
        """The records of a run are written one by one; another process continues it."""
        whole = await self._records_of_a_run()
        store = self.new_store()
        await store.open(lambda: None)
        try:
            for count in range(1, len(whole)):
                journal = store.journal(
                    await claim(store, f"cut-{count}"), FoldedAgent(replay(whole[:count]))
                )
                journal.append(whole[:count])
                await journal.durable()
                await store.release(journal.owned)
        finally:
            await store.close()
        shop = Shop()
        async with self._runtime(self.new_store(), shop, gated=False) as runtime:
            recovery = await runtime.recover()
            await recovery.settled
            assert not recovery.left, recovery.left
            for count in range(1, len(whole)):
                ref = runtime.get(f"cut-{count}")
                state = await ref.state()
                if state.run is not None:
                    _is_done(await ref.outcome(), "17")
        assert set(shop.paid.values()) <= {1}, "no call runs again that is done"

    async def _records_of_a_run(self) -> list[Record]:
        async with self._runtime(self.new_store(), Shop(), gated=False) as runtime:
            _is_done(await runtime.spawn("desk", id="whole").run("17"), "17")
        async with self._opened() as store:
            return list((await loaded(store, "whole")).records)

    @on_a_loop
    async def test_the_state_is_what_the_records_add_up_to(self) -> None:
        shop = Shop()
        async with self._runtime(self.new_store(), shop, gated=False) as runtime:
            ref = runtime.spawn("desk", id="a")
            for order in ("17", "18", "19"):
                _is_done(await ref.run(order), order)
            state = await ref.state()
        async with self._opened() as store:
            found, latest = await loaded(store, "a"), await store.load_latest("a")
            assert latest is not None
            assert replay(found.records).to_dict() == latest.folded().to_dict()
            assert found.folded().messages == state.messages
        async with self._runtime(self.new_store(), shop, gated=False) as runtime:
            assert (await runtime.get("a").state()).messages == state.messages

    @on_a_loop
    async def test_a_compacted_agent_continues_where_it_was(self) -> None:
        shop = Shop()
        async with self._runtime(self.new_store(), shop, gated=False) as runtime:
            ref = runtime.spawn("desk", id="a")
            _is_done(await ref.run("17", message_id="mail-1"), "17")
            before = await ref.state()
            await runtime.compact("a")
            assert (await runtime.get("a").state()).messages == before.messages
        async with self._runtime(self.new_store(), shop, gated=False) as runtime:
            ref = runtime.get("a")
            assert (await ref.state()).messages == before.messages
            _is_done(await ref.run("17", message_id="mail-1"), "17")
            _is_done(await ref.run("18"), "18")
        assert list(shop.paid.values()) == [1, 1], "the first message has come before"

    @on_a_loop
    async def test_an_agent_that_was_deleted_is_unknown(self) -> None:
        shop = Shop()
        async with self._runtime(self.new_store(), shop, gated=False) as runtime:
            _is_done(await runtime.spawn("desk", id="a").run("17"), "17")
            assert await runtime.delete("a")
            with raised(UnknownAgent):
                await runtime.get("a").state()
            ref: AgentRef = runtime.spawn("desk", id="a")
            assert len((await ref.state()).messages) == 0
            _is_done(await ref.run("18"), "18")
        async with self._runtime(self.new_store(), shop, gated=False) as runtime:
            assert len((await runtime.get("a").state()).messages) == 4

    @on_a_loop
    async def test_an_exported_agent_is_imported_with_all_that_it_was(self) -> None:
        shop = Shop()
        async with self._runtime(self.new_store(), shop, gated=False) as runtime:
            ref = runtime.spawn("desk", id="a")
            _is_done(await ref.run("17"), "17")
            data = await runtime.export("a")
            copy = await runtime.import_(data, id="b")
            assert (await copy.state()).messages == (await ref.state()).messages
            _is_done(await copy.run("18"), "18")

    @on_a_loop
    async def test_many_agents_are_listed_by_how_they_stand(self) -> None:
        shop = Shop()
        async with self._runtime(self.new_store(), shop) as runtime:
            names = [f"agent-{number:02}" for number in range(20)]
            for name in names:
                outcome = await runtime.spawn("desk", id=name).run(name)
                assert isinstance(outcome, Interrupted), outcome.explain()
            listed = [info.id async for info in runtime.agents(status="interrupted")]
            assert listed == names
            pending = [each async for each in runtime.pending()]
            assert sorted(each.agent_id for each in pending) == names
            assert sum((await runtime.count()).values()) == len(names)
        async with self._opened() as store:
            assert await ids(store) == names


def _is_done(outcome: Outcome | None, order: str) -> None:
    assert isinstance(outcome, Completed), outcome and outcome.explain()
    assert outcome.text == f"It is done: refunded {order}."
