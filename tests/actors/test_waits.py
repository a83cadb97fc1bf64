"""Tools that sleep and wait for the outside, in agents of a runtime (T17) (P7)."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Held, by_turn, completed, interrupted, results, until_status, wake
from tests.support.held_commits import HeldCommits, turns
from tests.support.left_out import LeftOut
from tests.support.loops import soon, until
from tests.support.places import NewStore
from tests.support.plans import DAY, HOUR, left_after, outcome_of
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    AgentRef,
    Interrupt,
    Observer,
    Runtime,
    SimulatedClock,
    Status,
    Stopped,
    Tool,
    ToolContext,
    WaitExpired,
    approve,
    call,
    events,
    respond,
    tool,
)
from understudy.actors import due_clock
from understudy.errors import Expired, RecordRefused, UnknownToken, UsageError
from understudy.journal import IndexStatus, MemoryStore
from understudy.journal.database_store import DatabaseStore
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.middleware import HumanInTheLoop, Middleware, SubAgent
from understudy.modes import Parallel, Sequential
from understudy.run.waits import points
from understudy.state.agent_state import AgentState


class Bank:
    """A provider of payments: who pays there has a token, and calls back."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.created: list[str] = []

    @property
    def pay(self) -> Tool:
        @tool
        async def pay(ctx: ToolContext, order: str) -> str:
            """Have an order paid."""
            self.tokens.append(await ctx.token("paid"))
            await ctx.once("create", lambda: self.created.append(order))
            try:
                return f"paid by {await ctx.wait_for('paid', timeout=DAY)}"
            except WaitExpired:
                return "not paid in time"

        return pay

    def agent(self, *tools: Any, turns: Any = None, **options: Any) -> Agent:
        turns = turns if turns is not None else [call("pay", {"order": "17"})]
        return Agent("shop", by_turn(turns, "Done."), tools=[self.pay, *tools], **options)


@pytest.fixture
def bank() -> Bank:
    return Bank()


@tool
async def nap(ctx: ToolContext, seconds: float = HOUR) -> str:
    """Sleep."""
    await ctx.sleep("nap", seconds)
    return "slept"


async def waiting(runtime: Runtime, id: str = "a", agent: str = "shop") -> tuple[AgentRef, Any]:
    """An agent that waits, and the future of its run."""
    ref = runtime.spawn(agent, id=id)
    outcome = ref.run("Go.")
    await until_status(ref, Status.WAITING)
    return ref, outcome


def texts(outcome: Any) -> list[Any]:
    return [part.content for part in results(completed(outcome).state)]


# ------------------------------------------------------------------------- sleeps


async def test_a_tool_sleeps_and_the_run_ends_when_it_has_slept(
    clock: SimulatedClock, store: str
) -> None:
    agent = Agent("shop", by_turn(call("nap", {}), "Done."), tools=[nap])
    async with Runtime([agent], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        (wait,) = await runtime.waiting()
        assert (wait.agent_id, wait.agent_path, wait.tool_name) == ("a", ("shop",), "nap")
        assert (wait.name, wait.kind) == ("nap", "sleep")
        assert (wait.since, wait.expires_at) == (clock.now(), clock.now() + timedelta(hours=1))
        assert await runtime.pending() == []
        await soon(clock.advance(HOUR - 1))
        assert ref.status() is Status.WAITING
        assert not outcome.done()
        await soon(clock.advance(1))
        assert texts(await soon(outcome)) == ["slept"]
        assert await runtime.waiting() == []


async def test_a_point_may_have_any_name(clock: SimulatedClock, new_store: NewStore) -> None:
    names = ["a\0b", "".join(chr(0x4E00 + n * 7919 % 20_000) for n in range(20_000))]

    @tool
    async def name_it(ctx: ToolContext, number: int) -> str:
        await ctx.sleep(names[number], HOUR)
        return "slept"

    turns = [[call("name_it", {"number": number}) for number in range(len(names))]]
    agent = Agent("shop", by_turn(*turns, "Done."), tools=[name_it])
    async with Runtime([agent], store=new_store(), clock=clock) as runtime:
        _, outcome = await waiting(runtime)
        assert [wait.name for wait in await runtime.waiting()] == names
        await soon(clock.advance(HOUR))
        assert texts(await soon(outcome)) == ["slept", "slept"]


async def test_a_sleeping_agent_is_passive_and_wakes_by_itself(
    clock: SimulatedClock, store: str
) -> None:
    agent = Agent("shop", by_turn(call("nap", {}), "Done."), tools=[nap])
    async with Runtime([agent], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(ref.compact())
        assert ref.status() is Status.PASSIVE
        assert runtime.status().running == 0
        assert [info.index_status for info in await runtime.agents()] == [IndexStatus.WAITS]
        assert [wait.name for wait in await runtime.waiting()] == ["nap"]
        await soon(clock.advance(HOUR))
        assert texts(await soon(outcome)) == ["slept"]


async def test_who_waits_for_a_run_waits_through_many_activations(
    bank: Bank, clock: SimulatedClock
) -> None:
    async with Runtime([bank.agent()], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        for _ in range(5):
            await soon(ref.compact())
            await soon(ref.state())
            assert not outcome.done()
        again = ref.outcome()
        run = (await soon(ref.state())).run
        assert await soon(runtime.resolve(bank.tokens[-1], "ann"))
        assert texts(await soon(outcome)) == ["paid by ann"]
        assert texts(await soon(again)) == ["paid by ann"]
    assert run is not None
    assert run.attempts == 1


async def test_a_timer_survives_the_end_of_its_process(tmp_path: Path) -> None:
    """J22."""
    store, clock = f"sqlite:///{tmp_path / 'store.db'}", SimulatedClock()
    agent = Agent("shop", by_turn(call("nap", {}), "Done."), tools=[nap])
    async with Runtime([agent], store=store, clock=clock) as runtime:
        await waiting(runtime)
    later = SimulatedClock(clock.now() + timedelta(days=3))
    async with Runtime([agent], store=store, clock=later) as runtime:
        ref = runtime.get("a")
        assert texts(await soon(ref.outcome())) == ["slept"]


async def test_one_call_sleeps_while_the_others_of_its_reply_run(
    clock: SimulatedClock, store: str
) -> None:
    ran: list[str] = []

    @tool
    async def work() -> str:
        ran.append("work")
        return "worked"

    turns = [call("nap", {}), call("work", {}), call("nap", {"seconds": 2 * HOUR})]
    agent = Agent("shop", by_turn(turns, "Done."), tools=[nap, work])
    async with Runtime([agent], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        assert ran == ["work"]
        await soon(clock.advance(HOUR))
        await until_status(ref, Status.WAITING)
        await soon(ref.state())  # what is listed is committed
        assert len(await runtime.waiting()) == 1
        await soon(clock.advance(HOUR))
        ended = await soon(outcome)
    assert texts(ended) == ["slept", "worked", "slept"]
    assert ended.usage.requests == 2
    assert ran == ["work"]


async def test_a_plain_tool_sleeps_in_its_thread(clock: SimulatedClock, store: str) -> None:
    threads: list[str] = []

    @tool
    def rest(ctx: ToolContext) -> str:
        number = ctx.sync.once("draw", lambda: len(threads))
        threads.append(threading.current_thread().name)
        ctx.sync.sleep("rest", HOUR)
        token = ctx.sync.token("go")
        assert token
        try:
            ctx.sync.wait_for("go", timeout=60)
        except WaitExpired:
            return f"rested {number}"
        return "no"

    agent = Agent("shop", by_turn(call("rest", {}), "Done."), tools=[rest])
    async with Runtime([agent], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(clock.advance(HOUR))
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(60))
        assert texts(await soon(outcome)) == ["rested 0"]
    assert len(threads) == 3


async def test_a_deadline_does_not_count_sleeps_and_waits(
    bank: Bank, clock: SimulatedClock
) -> None:
    turns = [call("nap", {}), call("pay", {"order": "17"})]
    async with Runtime([bank.agent(nap, turns=turns)], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        outcome = ref.run("Go.", deadline=10)
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(HOUR))
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(HOUR))
        assert await soon(runtime.resolve(bank.tokens[-1], "ann"))
        assert texts(await soon(outcome)) == ["slept", "paid by ann"]


# ------------------------------------------------------------------------- answers


async def test_a_wait_ends_by_the_answer_to_its_token(
    bank: Bank, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([bank.agent()], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        (wait,) = await runtime.waiting()
        assert (wait.name, wait.kind) == ("paid", "wait")
        assert wait.expires_at == clock.now() + timedelta(days=1)
        assert await soon(runtime.resolve(bank.tokens[0], {"card": ["x", 1]}))
        assert texts(await soon(outcome)) == ["paid by {'card': ['x', 1]}"]
        assert ref.status() is Status.IDLE
        stored = json.dumps(await runtime.export("a"))
    assert bank.created == ["17"]
    assert len(bank.tokens) == 2
    assert not any(token in stored or token.partition(".")[2] in stored for token in bank.tokens)


async def test_an_answer_activates_a_passive_agent(bank: Bank, store: str) -> None:
    async with Runtime([bank.agent()], store=store) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(ref.compact())
        assert await soon(runtime.resolve(bank.tokens[0], "ann"))
        assert texts(await soon(outcome)) == ["paid by ann"]


async def test_an_answer_that_comes_before_the_wait_is_kept(clock: SimulatedClock) -> None:
    tokens: list[str] = []

    @tool
    async def slow(ctx: ToolContext) -> Any:
        tokens.append(await ctx.token("go"))
        await ctx.sleep("first", HOUR)
        return await ctx.wait_for("go")

    agent = Agent("shop", by_turn(call("slow", {}), "Done."), tools=[slow])
    async with Runtime([agent], clock=clock) as runtime:
        _, outcome = await waiting(runtime)
        assert await soon(runtime.resolve(tokens[0], "early"))
        assert [wait.name for wait in await runtime.waiting()] == ["first"]
        await soon(clock.advance(HOUR))
        assert texts(await soon(outcome)) == ["early"]


async def test_the_first_answer_stands(bank: Bank) -> None:
    """J22."""
    async with Runtime([bank.agent()]) as runtime:
        _, outcome = await waiting(runtime)
        token = bank.tokens[0]
        first = [runtime.resolve(token, "ann") for _ in range(3)]
        other = runtime.resolve(token, "ben")
        rejection = runtime.reject(token, "no")
        assert [await soon(each) for each in first] == [True, True, True]
        assert await soon(other) is False
        assert await soon(rejection) is False
        assert texts(await soon(outcome)) == ["paid by ann"]
        assert await soon(runtime.resolve(token, "ann")) is True
        assert await soon(runtime.resolve(token, "ben")) is False
        completed(await soon(runtime.get("a").run("Something else.")))
        assert await soon(runtime.resolve(token, "ann")) is True


async def test_each_token_of_a_wait_counts(bank: Bank, tmp_path: Path) -> None:
    store, clock = f"sqlite:///{tmp_path / 'store.db'}", SimulatedClock()
    turns = [call("pay", {"order": "17"}), call("nap", {})]

    @tool
    async def twice(ctx: ToolContext) -> Any:
        bank.tokens.append(await ctx.token("paid"))
        await ctx.sleep("first", 60)
        return await ctx.wait_for("paid")

    turns = [call("twice", {})]
    async with Runtime([bank.agent(twice, turns=turns)], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(clock.advance(60))
        await until_status(ref, Status.WAITING)
        assert len(set(bank.tokens)) == 2
        assert await soon(runtime.resolve(bank.tokens[0], "by the first"))
        assert texts(await soon(outcome)) == ["by the first"]


async def test_a_rejected_wait_raises_in_the_tool(bank: Bank) -> None:
    async with Runtime([bank.agent()]) as runtime:
        _, outcome = await waiting(runtime)
        assert await soon(runtime.reject(bank.tokens[0], "the card is stolen"))
        ended = await soon(outcome)
    (part,) = results(completed(ended).state)
    assert part.outcome == "interrupted", "the payment was created before"
    told = str(part.content)
    assert "WaitRejected: 'paid' was rejected: the card is stolen, after it had done this" in told
    assert "'create' once" in told


async def test_a_rejected_wait_is_an_error_of_a_tool_that_has_done_nothing_before() -> None:
    tokens: list[str] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        tokens.append(await ctx.token("yes"))
        return str(await ctx.wait_for("yes"))

    agent = Agent("shop", by_turn(call("ask"), "Done."), tools=[ask])
    async with Runtime([agent]) as runtime:
        _, outcome = await waiting(runtime)
        assert await soon(runtime.reject(tokens[0], "not today"))
        (part,) = results(completed(await soon(outcome)).state)
    assert part.outcome == "failed"
    assert part.content == "WaitRejected: 'yes' was rejected: not today"


async def test_a_wait_expires_and_a_late_answer_is_refused(
    bank: Bank, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([bank.agent()], store=store, clock=clock) as runtime:
        _, outcome = await waiting(runtime)
        await soon(clock.advance(DAY))
        assert texts(await soon(outcome)) == ["not paid in time"]
        for answer in (runtime.resolve(bank.tokens[0], "ann"), runtime.reject(bank.tokens[0], "x")):
            with pytest.raises(Expired, match="'paid' of agent 'a' is over"):
                await soon(answer)


async def test_an_answer_at_the_time_of_the_expiry_is_late_though_nothing_is_recorded_yet(
    bank: Bank,
) -> None:
    clock = Standing()
    async with Runtime([bank.agent()], clock=clock) as runtime:
        await waiting(runtime)
        clock.time += timedelta(days=1)
        with pytest.raises(Expired):
            await soon(runtime.resolve(bank.tokens[0], "ann"))


class Standing:
    """A clock of which nobody says when it has reached a time."""

    time = datetime(2030, 1, 1, tzinfo=timezone.utc)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return 0.0


async def test_unknown_and_foreign_and_malformed_tokens_are_told_alike(bank: Bank) -> None:
    async with Runtime([bank.agent()]) as runtime:
        ref, _ = await waiting(runtime)
        await soon(ref.compact())
        agent = base64.urlsafe_b64encode(b"a").decode().rstrip("=")
        nobody = base64.urlsafe_b64encode(b"nobody").decode().rstrip("=")
        slash = base64.urlsafe_b64encode(b"a/b").decode().rstrip("=")
        bad: list[Any] = [
            *(
                "",
                ".",
                "x",
                "a.b",
                "é.x",
                "x" * 5000,
                None,
                7,
                b"a.b",
                f"{agent}.",
                f"{agent}.wrong",
            ),
            *(f"{nobody}.x", f"{slash}.x", bank.tokens[0][:-1], bank.tokens[0] + " ", "\ud800.x"),
        ]
        told = set()
        for token in bad:
            with pytest.raises(UnknownToken) as error:
                await soon(runtime.resolve(token, 1))
            told.add(str(error.value))
        assert len(told) == 1
        assert ref.status() is Status.PASSIVE
        assert [info.id for info in await runtime.agents()] == ["a"]
        await soon(runtime.delete("a"))
        with pytest.raises(UnknownToken):
            await soon(runtime.resolve(bank.tokens[0], 1))


async def test_a_token_that_nobody_made_reads_no_records(bank: Bank, tmp_path: Path) -> None:
    """J22: whoever can guess the id of an agent does not make a host read its journal."""
    loads: list[str] = []

    class Counting(SqliteBackend):
        def load(self, agent_id: str, after: int) -> Any:
            loads.append(agent_id)
            return super().load(agent_id, after)

        def load_latest(self, agent_id: str) -> Any:
            loads.append(agent_id)
            return super().load_latest(agent_id)

    database = DatabaseStore(Counting(str(tmp_path / "store.db"), host="here"))
    async with Runtime([bank.agent()], store=database) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(ref.stop(block=False))
        loads.clear()
        guessed = bank.tokens[0].partition(".")[0]
        for n in range(10):
            with pytest.raises(UnknownToken):
                await soon(runtime.resolve(f"{guessed}.{n}", "ann"))
        assert loads == []
        assert ref.status() is Status.PASSIVE
        assert await soon(runtime.resolve(bank.tokens[0], "ann"))
        assert texts(await soon(outcome)) == ["paid by ann"]


@pytest.mark.parametrize("value", [object(), "\ud800", {"a": {1, object()}}])
async def test_a_value_that_cannot_be_stored_is_refused(bank: Bank, value: Any) -> None:
    async with Runtime([bank.agent()]) as runtime:
        _, outcome = await waiting(runtime)
        with pytest.raises(UsageError):
            runtime.resolve(bank.tokens[0], value)
        with pytest.raises(UsageError):
            runtime.reject(bank.tokens[0], value)
        assert await soon(runtime.resolve(bank.tokens[0], "ann"))
        assert texts(await soon(outcome)) == ["paid by ann"]


async def test_a_value_that_is_too_large_is_refused(bank: Bank, tmp_path: Path) -> None:
    database = DatabaseStore(
        SqliteBackend(str(tmp_path / "store.db"), host="here"), max_record_bytes=5_000
    )
    async with Runtime([bank.agent()], store=database) as runtime:
        _, outcome = await waiting(runtime)
        with pytest.raises(RecordRefused):
            await soon(runtime.resolve(bank.tokens[0], "x" * 6_000))
        assert await soon(runtime.resolve(bank.tokens[0], "ann"))
        assert texts(await soon(outcome)) == ["paid by ann"]


async def test_an_answer_that_comes_100_times_from_8_threads_is_one(bank: Bank) -> None:
    async with Runtime([bank.agent()]) as runtime:
        _, outcome = await waiting(runtime)
        told: list[bool] = []

        def post() -> None:
            for _ in range(100 // 8 + 1):
                told.append(runtime.resolve(bank.tokens[0], "ann").get(timeout=60))

        threads = [asyncio.to_thread(post) for _ in range(8)]
        await soon(asyncio.gather(*threads, return_exceptions=True))
        assert texts(await soon(outcome)) == ["paid by ann"]
        kinds = [
            (record["kind"], record.get("what"))
            for record in (await runtime.export("a"))["records"]
        ]
    assert told
    assert all(told)
    assert kinds.count(("point_answered", "wait")) == 1
    assert bank.created == ["17"]


class Doubt:
    """A call that is in doubt, with a token for a wait that it has not come to."""

    def __init__(
        self, bank: Bank, store: str, *, is_answered: bool = False, and_nap: bool = False
    ) -> None:
        self.bank, self.store = bank, store
        self.held = held = Held()

        @tool
        async def order(ctx: ToolContext) -> str:
            bank.tokens.append(await ctx.token("paid"))
            if is_answered:
                await ctx.wait_for("paid")
            await ctx.once("create", held.wait)
            return str(await ctx.wait_for("paid"))

        calls = [call("order", {}), call("nap", {})] if and_nap else [call("order", {})]
        self.agent = bank.agent(order, nap, turns=calls)

    async def make(self, answer: str | None = None) -> None:
        """Have a host that goes away in the middle of the call, and one that finds that out."""
        async with Runtime([self.agent], store=self.store, stop_timeout=0) as runtime:
            runtime.spawn("shop", id="a").run("Go.")
            if answer is not None:
                await until_status(runtime.get("a"), Status.WAITING)
                assert await soon(runtime.resolve(self.bank.tokens[0], answer))
            await soon(self.held.entered.wait())
        async with Runtime([self.agent], store=self.store) as runtime:
            await soon(runtime.recover())
            ref = runtime.get("a")
            await until_status(ref, Status.IDLE, Status.WAITING)
            (doubt,) = (await soon(ref.state())).doubts.values()
            assert doubt.tool_name == "order"


@pytest.mark.parametrize("how", ["active", "passive", "compacted", "in the open turn"])
async def test_a_late_answer_settles_the_doubt_about_its_call(
    bank: Bank, tmp_path: Path, how: str
) -> None:
    """The first answer counts here, too: the same again is the first, another one is refused."""
    is_open = how == "in the open turn"
    doubt = Doubt(bank, f"sqlite:///{tmp_path / 'store.db'}", and_nap=is_open)
    await doubt.make()
    async with Runtime([doubt.agent], store=doubt.store) as runtime:
        ref = runtime.get("a")
        if how == "compacted":
            await soon(ref.compact())
        elif how == "active":
            await soon(ref.state())
        for _ in range(2):
            assert await soon(runtime.resolve(bank.tokens[0], "ann"))
            assert not await soon(runtime.resolve(bank.tokens[0], "ben"))
            assert not await soon(runtime.reject(bank.tokens[0], "ann"))
            assert (await soon(ref.state())).doubts == {}
            await soon(ref.stop(block=False))
        history = await soon(ref.history())
    assert [e.detail["how"] for e in history.entries if e.what == "settled"] == ["late answer"]


async def test_an_answer_that_the_call_had_before_does_not_settle_its_doubt(
    bank: Bank, tmp_path: Path
) -> None:
    doubt = Doubt(bank, f"sqlite:///{tmp_path / 'store.db'}", is_answered=True)
    await doubt.make(answer="ann")
    async with Runtime([doubt.agent], store=doubt.store) as runtime:
        ref = runtime.get("a")
        for _ in range(2):
            assert await soon(runtime.resolve(bank.tokens[0], "ann"))
            assert not await soon(runtime.resolve(bank.tokens[0], "ben"))
            assert len((await soon(ref.state())).doubts) == 1


async def test_the_doubt_of_an_imported_agent_is_settled_by_none_of_its_old_tokens(
    bank: Bank, tmp_path: Path
) -> None:
    doubt = Doubt(bank, f"sqlite:///{tmp_path / 'store.db'}")
    await doubt.make()
    async with Runtime([doubt.agent], store=doubt.store) as runtime:
        exported = await soon(runtime.export("a"))
    async with Runtime([doubt.agent]) as runtime:
        ref = await soon(runtime.import_(exported))
        await soon(ref.state())
        with pytest.raises(UnknownToken):
            await soon(runtime.resolve(bank.tokens[0], "ann"))
        assert len((await soon(ref.state())).doubts) == 1


# ------------------------------------------------------------------------- messages


async def test_a_message_to_a_run_that_waits_is_queued(
    bank: Bank, clock: SimulatedClock, store: str
) -> None:
    async with Runtime([bank.agent()], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(ref.send("And another thing."))
        second = ref.run("Hello?")
        refused = ref.run("Hello?", if_interrupted="error")
        await soon(ref.compact())
        assert not outcome.done()
        assert len(await runtime.waiting()) == 1
        assert await soon(runtime.resolve(bank.tokens[-1], "ann"))
        assert texts(await soon(outcome)) == ["paid by ann"]
        ended = completed(await soon(second))
        completed(await soon(refused))
        assert ended.run_id != completed(await soon(outcome)).run_id


async def test_a_message_withdraws_requests_and_ends_no_wait(
    bank: Bank, clock: SimulatedClock, store: str
) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        raise Interrupt("Which?")

    turns = [call("pay", {"order": "17"}), call("ask", {})]
    async with Runtime([bank.agent(ask, turns=turns)], store=store, clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        asked = interrupted(await soon(ref.run("Go.")))
        assert ref.status() is Status.INTERRUPTED
        assert [wait.name for wait in await runtime.waiting()] == ["paid"]
        await soon(ref.send("Forget it."))
        await until_status(ref, Status.WAITING)
        assert await runtime.pending() == []
        assert [wait.name for wait in await runtime.waiting()] == ["paid"]
        outcome = ref.outcome()
        assert await soon(runtime.resolve(bank.tokens[-1], "ann"))
        ended = await soon(outcome)
    assert ended is not None
    assert ended.run_id == asked.run_id
    denied = results(ended.state)[1]
    assert (denied.outcome, "moved on" in str(denied.content)) == ("denied", True)


async def test_a_call_wakes_while_a_person_is_asked_about_another_one(
    bank: Bank, clock: SimulatedClock, store: str
) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        if not ctx.resumed:
            raise Interrupt("Which?")
        return str(ctx.resume_value)

    @tool(sequential=True)
    async def last(ctx: ToolContext) -> str:
        return "last"

    turns = [call("nap", {}), call("ask", {}), call("last", {})]
    async with Runtime([bank.agent(nap, ask, last, turns=turns)], store=store, clock=clock) as r:
        ref = r.spawn("shop", id="a")
        asked = interrupted(await soon(ref.run("Go.")))
        await soon(ref.compact())
        await soon(clock.advance(HOUR))
        await until_status(ref, Status.INTERRUPTED)
        assert await r.waiting() == []
        (pending,) = await r.pending()
        outcome = await soon(ref.resume({pending.request.id: respond("this")}))
    assert texts(outcome) == ["slept", "this", "last"]
    assert asked.run_id == outcome.run_id


async def test_an_answer_that_comes_before_its_person_leaves_the_run_waiting(
    bank: Bank, clock: SimulatedClock
) -> None:
    gate = HumanInTheLoop({"pay": True})
    turns = [call("nap", {}), call("pay", {"order": "17"})]
    agent = bank.agent(nap, turns=turns, middleware=[gate])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("shop", id="a")
        asked = interrupted(await soon(ref.run("Go.")))
        outcome = ref.resume(asked.decide(approve()))
        await until_status(ref, Status.WAITING)
        assert len(await runtime.waiting()) == 2
        assert await soon(runtime.resolve(bank.tokens[-1], "ann"))
        await until_status(ref, Status.WAITING)
        assert not outcome.done()
        await soon(clock.advance(HOUR))
        assert texts(await soon(outcome)) == ["slept", "paid by ann"]
    assert bank.created == ["17"]


async def test_a_run_that_waits_can_be_cancelled(bank: Bank, clock: SimulatedClock) -> None:
    async with Runtime([bank.agent()], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        stopped = await soon(ref.cancel())
        assert isinstance(stopped, Stopped)
        assert await soon(outcome) == stopped
        assert await runtime.waiting() == []
        assert stopped.state.doubts == {}
        (part,) = results(stopped.state)
        assert part.content == (
            "Ran in part: the run ended before it was finished. What it had done before stands. It "
            "had done this: 'create' once."
        )
        with pytest.raises(Expired):
            await soon(runtime.resolve(bank.tokens[0], "ann"))
        await soon(clock.advance(2 * DAY))
        assert ref.status() is Status.CANCELLED


@pytest.mark.parametrize("is_passive", [False, True])
async def test_an_answer_is_given_before_what_is_asked_after_it(
    bank: Bank, new_store: NewStore, is_passive: bool
) -> None:
    """J22: the calls of one caller, which waits for none of them. A guess among them is refused."""
    async with Runtime([bank.agent()], store=new_store()) as runtime:
        ref, outcome = await waiting(runtime)
        if is_passive:
            await soon(ref.stop(block=False))
        guess = bank.tokens[0].partition(".")[0] + ".guessed"
        guessed, answered = runtime.resolve(guess, "bob"), runtime.resolve(bank.tokens[0], "ann")
        cancelled = ref.cancel()
        assert await soon(answered)
        with pytest.raises(UnknownToken):
            await soon(guessed)
        assert isinstance(await soon(outcome), Stopped)
        assert await soon(cancelled) is not None
        assert [entry.what for entry in (await soon(ref.history())).entries].count("wait_over") == 1
        assert await soon(runtime.resolve(bank.tokens[0], "ann"))


async def test_an_answer_to_an_agent_that_leaves_memory_wakes_it_again(
    bank: Bank, new_store: NewStore
) -> None:
    """J22: it leaves when its middleware has handled a message."""
    held = Held()

    class Slow(Middleware):
        async def on_message(self, run: Any, message: Any) -> None:
            await held.wait()

    async with Runtime([bank.agent(middleware=[Slow()])], store=new_store()) as runtime:
        ref, outcome = await waiting(runtime)
        ref.notify("Slow", "take your time")
        await soon(held.entered.wait())
        ref.stop(block=False)
        answered = runtime.resolve(bank.tokens[0], "ann")
        held.release.set()
        assert await soon(answered)
        assert texts(await soon(outcome)) == ["paid by ann"]


async def test_a_cancel_before_an_answer_ends_its_wait(bank: Bank, new_store: NewStore) -> None:
    async with Runtime([bank.agent()], store=new_store()) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(ref.stop(block=False))
        cancelled, answered = ref.cancel(), runtime.resolve(bank.tokens[0], "ann")
        assert isinstance(await soon(outcome), Stopped)
        assert await soon(cancelled) is not None
        with pytest.raises(Expired):
            await soon(answered)


async def test_a_paused_agent_that_waits_goes_on_when_both_are_over(
    bank: Bank, clock: SimulatedClock
) -> None:
    agent = Agent(
        "shop",
        by_turn(call("nap", {}), call("pay", {"order": "1"}), "Done."),
        tools=[nap, bank.pay],
    )
    async with Runtime([agent], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(ref.pause("look first"))
        await soon(clock.advance(HOUR))
        paused = await soon(outcome)
        assert paused.reason == "look first"
        ref.unpause()
        await until_status(ref, Status.WAITING)
        assert await soon(runtime.resolve(bank.tokens[0], "ann"))
        assert texts(await soon(ref.outcome())) == ["slept", "paid by ann"]


async def test_who_waits_is_told_where_the_runtime_or_the_agent_ends(bank: Bank) -> None:
    async with Runtime([bank.agent()]) as runtime:
        _, first = await waiting(runtime, "a")
        ref, second = await waiting(runtime, "b")
        await soon(ref.compact())
        _, deleted = await waiting(runtime, "c")
        await soon(runtime.delete("c"))
        with pytest.raises(Exception, match="There is no agent 'c'"):
            await soon(deleted)
    for outcome in (first, second):
        with pytest.raises(Exception, match="its runtime has stopped"):
            await soon(outcome)


# ------------------------------------------------------------------------- nested agents


@pytest.mark.parametrize("kind", ["sub_agent", "run_agent", "sequential", "parallel"])
async def test_a_tool_of_a_nested_agent_waits(
    bank: Bank, clock: SimulatedClock, store: str, kind: str
) -> None:
    inner = Agent(
        "clerk", by_turn(call("pay", {"order": "17"}), "Paid."), tools=[bank.pay], description="c"
    )
    other = Agent("other", by_turn(call("nap", {}), "Slept."), tools=[nap], description="o")

    @tool
    async def hand_on(ctx: ToolContext) -> Any:
        return await ctx.run_agent(inner, "Pay.")

    if kind == "sub_agent":
        task = call("task", {"task_name": "clerk", "instructions": "Pay."})
        boss = Agent("boss", by_turn(task, "Done."), middleware=[SubAgent([inner])])
    elif kind == "run_agent":
        boss = Agent("boss", by_turn(call("hand_on", {}), "Done."), tools=[hand_on])
    elif kind == "sequential":
        boss = Agent("boss", mode=Sequential([inner]))
    else:
        boss = Agent("boss", mode=Parallel([inner, other]))
    async with Runtime([boss], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime, agent="boss")
        waits = [wait for wait in await runtime.waiting() if wait.name == "paid"]
        assert [(wait.agent_id, wait.agent_path) for wait in waits] == [("a", ("boss", "clerk"))]
        await soon(ref.compact())
        assert await soon(runtime.resolve(bank.tokens[0], "ann"))
        if kind == "parallel":
            await until_status(ref, Status.WAITING)
            assert not outcome.done()
            await soon(clock.advance(HOUR))
        completed(await soon(outcome))
    assert bank.created == ["17"]


async def test_a_nested_wait_expires(bank: Bank, clock: SimulatedClock, store: str) -> None:
    inner = Agent(
        "clerk", by_turn(call("pay", {"order": "17"}), "Paid."), tools=[bank.pay], description="c"
    )
    task = call("task", {"task_name": "clerk", "instructions": "Pay."})
    boss = Agent("boss", by_turn(task, "Done."), middleware=[SubAgent([inner])])
    async with Runtime([boss], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime, agent="boss")
        await soon(ref.compact())
        await soon(clock.advance(DAY))
        completed(await soon(outcome))
        with pytest.raises(Expired):
            await soon(runtime.resolve(bank.tokens[0], "ann"))


# ------------------------------------------------------------------------- elsewhere


async def test_an_imported_agent_waits_for_new_tokens(
    bank: Bank, clock: SimulatedClock, store: str
) -> None:
    turns = [call("nap", {}), call("pay", {"order": "17"})]
    agent = bank.agent(nap, turns=turns)
    async with Runtime([agent], store=store, clock=clock) as runtime:
        ref, _ = await waiting(runtime)
        document = json.loads(json.dumps(await runtime.export("a")))
    async with Runtime([agent], clock=clock) as runtime:
        ref = await soon(runtime.import_(document))
        await runtime.recover()
        await until_status(ref, Status.WAITING)
        old, new = bank.tokens
        due = {wait.name: wait.expires_at for wait in await runtime.waiting()}
        assert due == {"nap": clock.now() + timedelta(hours=1), "paid": clock.now() + timedelta(1)}
        with pytest.raises(UnknownToken):
            await soon(runtime.resolve(old, "ann"))
        assert await soon(runtime.resolve(new, "ben"))
        outcome = ref.outcome()
        await soon(clock.advance(HOUR))
        assert texts(await soon(outcome)) == ["slept", "paid by ben"]
    assert bank.created == ["17"]


@pytest.mark.quick
async def test_two_hosts_that_see_the_same_timer_record_one(hosts: Hosts) -> None:
    agent = Agent("shop", by_turn(call("nap", {}), "Done."), tools=[nap])
    clock, other = SimulatedClock(), SimulatedClock()
    here = DatabaseStore(hosts.new("here"))
    async with Runtime([agent], store=here, clock=clock, sweep=None) as first:
        ref, _ = await waiting(first)
        await soon(ref.stop(block=False))
        there = DatabaseStore(hosts.new("there"))
        async with Runtime([agent], store=there, clock=other, sweep=None) as second:
            await soon(asyncio.gather(clock.advance(HOUR), other.advance(HOUR)))
            await until_over(second)
            kinds = [record["kind"] for record in (await second.export("a"))["records"]]
    assert kinds.count("point_answered") == 1
    assert kinds.count("run_ended") == 1


@pytest.mark.quick
async def test_an_answer_on_one_host_ends_the_wait_of_another(bank: Bank, hosts: Hosts) -> None:
    here, there = DatabaseStore(hosts.new("here")), DatabaseStore(hosts.new("there"))
    async with (
        Runtime([bank.agent()], store=here, sweep=None) as first,
        Runtime([bank.agent()], store=there, sweep=None) as second,
    ):
        _, run = await waiting(first)
        assert await soon(second.resolve(bank.tokens[0], "ann"))
        await until_over(second)
        completed(await soon(run))
        kinds = [record["kind"] for record in (await second.export("a"))["records"]]
    assert kinds.count("point_answered") == 2
    assert bank.created == ["17"]


async def until_over(runtime: Runtime) -> None:
    """Return when the run of the agent is over, whichever host runs it."""
    async with asyncio.timeout(60):
        while True:
            (info,) = await runtime.agents()
            if info.index_status is IndexStatus.REST:
                return


async def test_waits_are_seen_by_subscribers_and_in_the_history(
    bank: Bank, clock: SimulatedClock
) -> None:
    turns = [call("nap", {}), call("pay", {"order": "17"})]
    async with Runtime([bank.agent(nap, turns=turns)], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        subscription = ref.events()
        await soon(runtime.resolve(bank.tokens[0], "ann"))
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(HOUR))
        await soon(outcome)
        subscription.close()
        told = [e.event async for e in subscription]
        page = await ref.history(limit=1000)
    started = [e for e in told if isinstance(e, events.WaitStarted)]
    over = [e for e in told if isinstance(e, events.WaitOver)]
    assert [(e.name, e.what) for e in started] == [("nap", "sleep"), ("paid", "wait")]
    assert [(e.name, e.how) for e in over] == [("paid", "value"), ("nap", "over")]
    found = [entry.what for entry in page.entries]
    for what in ("wait_started", "wait_over", "token_made", "done_once"):
        assert what in found


async def test_an_agent_that_is_never_answered_waits_for_ever(clock: SimulatedClock) -> None:
    @tool
    async def forever(ctx: ToolContext) -> Any:
        await ctx.token("go")
        return await ctx.wait_for("go")

    agent = Agent("shop", by_turn(call("forever", {}), "Done."), tools=[forever])
    async with Runtime([agent], clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(clock.advance(1000 * DAY))
        assert ref.status() is Status.WAITING
        assert [wait.expires_at for wait in await runtime.waiting()] == [None]
        assert not outcome.done()


@pytest.mark.slow
async def test_fifty_deploys_in_the_middle_of_one_run_lose_and_double_nothing(
    tmp_path: Path,
) -> None:
    """Each restart has new code: other instructions, another tool, other words of the same one."""
    store, deploys, effects = f"sqlite:///{tmp_path / 'store.db'}", 50, list[int]()
    start = SimulatedClock().now()

    def deployed(number: int) -> Agent:
        @tool
        async def journey(ctx: ToolContext) -> str:
            for day in range(deploys):
                await ctx.once(f"day {day}", partial(effects.append, day))
                await ctx.sleep(f"night {day}", DAY)
            return f"arrived in version {number}"

        @tool
        def added() -> str:
            return "new"

        tools = [journey, added] if number % 2 else [journey]
        model = by_turn(call("journey"), "Done.")
        return Agent("walker", model, f"This is version {number}.", tools=tools)

    for number in range(deploys):
        clock = SimulatedClock(start + timedelta(days=number, seconds=number))
        agents = [deployed(number)]
        async with Runtime(agents, store=store, clock=clock, durability="off") as runtime:
            ref = runtime.spawn("walker", id="a")
            if number == 0:
                ref.run("Go.", message_id="only")
            while len(effects) <= number or ref.status() is not Status.WAITING:
                await until_status(ref, Status.WAITING)
                await asyncio.sleep(0)
            if number % 3 == 0:
                await soon(ref.compact())
    clock = SimulatedClock(start + timedelta(days=deploys + 1))
    async with Runtime([deployed(deploys)], store=store, clock=clock) as runtime:
        ref = runtime.get("a")
        outcome = completed(await outcome_of(ref))
        same = completed(await soon(ref.run("Go.", message_id="only")))
        assert (same.run_id, same.text) == (outcome.run_id, outcome.text)
    assert effects == list(range(deploys))
    assert texts(outcome) == [f"arrived in version {deploys}"]
    assert outcome.state.doubts == {}


def done_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(points.Points, "_come_to_once", lambda *_: None)


def compaction_forgets_what_is_done(patch: pytest.MonkeyPatch) -> None:
    inner = AgentState.head

    def head(state: AgentState) -> dict[str, Any]:
        data = inner(state)
        for of_call in data["run"]["turn"]["calls"].values():
            points = of_call["points"].items()
            of_call["points"] = {name: each for name, each in points if each["kind"] != "once"}
        return data

    patch.setattr(AgentState, "head", head)


@pytest.mark.slow
@pytest.mark.parametrize("forget", [done_is_forgotten, compaction_forgets_what_is_done])
async def test_what_was_done_once_and_is_forgotten_is_noticed(
    forget: Callable[[pytest.MonkeyPatch], None], left_out: LeftOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T11, and J17 where a compaction forgets it."""
    await left_out(
        partial(forget, monkeypatch),
        test_fifty_deploys_in_the_middle_of_one_run_lose_and_double_nothing,
    )


class Order:
    """An order that is created, cools down, waits for its payment and is shipped or refunded."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.tokens: list[str] = []

    def agent(self) -> Agent:
        def effect(name: str) -> Callable[[], str]:
            def work() -> str:
                self.effects.append(name)
                return name

            return work

        @tool
        async def order(ctx: ToolContext) -> str:
            self.tokens.append(await ctx.token("paid"))
            await ctx.once("create", effect("create"))
            await ctx.sleep("cool down", HOUR)
            try:
                by = await ctx.wait_for("paid", timeout=DAY)
            except WaitExpired:
                return await ctx.once("refund", effect("refund"))
            return await ctx.once("ship", effect(f"ship to {by}"))

        return Agent("shop", by_turn(call("order", {}), "Done."), tools=[order])


@pytest.mark.parametrize("pays", [True, False])
async def test_a_host_that_goes_away_after_any_record_loses_and_doubles_nothing(
    pays: bool,
) -> None:
    """Each prefix of the records goes on elsewhere: to the same end, or to a told doubt."""
    order, clock, store = Order(), SimulatedClock(), MemoryStore()
    async with Runtime([order.agent()], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(clock.advance(HOUR))
        await until_status(ref, Status.WAITING)
        if pays:
            assert await soon(runtime.resolve(order.tokens[0], "ann"))
        else:
            await soon(clock.advance(DAY))
        end = completed(await soon(outcome))
    loaded = await store.load("a")
    assert loaded is not None
    kinds = [record.kind for record in loaded.records]
    first = kinds.index("run_started")
    tokens, doubts = order.tokens, 0
    for cut in range(first + 1, len(kinds) + 1):
        left = await left_after(loaded.records[:cut], agent="shop")
        again, order = SimulatedClock(clock.now()), Order()
        async with Runtime([order.agent()], store=left, clock=again) as runtime:
            await runtime.recover()
            ref = runtime.get("a")
            await wake(ref)  # activated, if nothing else has done that
            while await until_status(ref, Status.WAITING, Status.IDLE) is Status.WAITING:
                names = [wait.name for wait in await runtime.waiting()]
                known = [*tokens[: kinds[:cut].count("token_made")], *order.tokens]
                if pays and names == ["paid"]:
                    assert await soon(runtime.resolve(known[0], "ann"))
                    await until_status(ref, Status.IDLE)
                elif names:
                    await soon(again.advance(DAY))
            ended = completed(await outcome_of(ref))
        if ended.state.doubts:
            doubts += 1
            assert "unknown" in str(results(ended.state)[0].content)
        else:
            assert texts(ended)[0].startswith(str(texts(end)[0])[:4]), (cut, kinds[:cut])
        done_before = [
            record.name
            for record in loaded.records[:cut]
            if record.kind == "point_answered" and record.what == "once"
        ]
        assert len(order.effects) == len(set(order.effects))
        assert not set(done_before) & {effect.split()[0] for effect in order.effects}
    assert doubts, "a crash in the middle of a body is a doubt"


async def test_an_answer_that_comes_while_the_run_comes_to_rest_is_not_lost() -> None:
    """In each turn of the loop, from when the token is known until the agent waits."""
    for number in range(40):
        bank = Bank()
        async with Runtime([bank.agent()]) as runtime:
            ref = runtime.spawn("shop", id="a")
            outcome = ref.run("Go.")
            async with asyncio.timeout(60):
                while not bank.tokens:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            for _ in range(number):
                await asyncio.sleep(0)
            assert await soon(runtime.resolve(bank.tokens[0], "ann"))
            assert texts(await soon(outcome)) == ["paid by ann"]
        assert bank.created == ["17"]


@pytest.mark.parametrize("where", ["beside", "inside"])
async def test_what_ends_a_wait_while_another_call_of_the_reply_runs_is_not_lost(
    bank: Bank, clock: SimulatedClock, new_store: NewStore, where: str
) -> None:
    """J22: an answer, and a sleep that is over, in this agent or in one that a call of it runs."""
    held = Held()

    @tool
    async def work() -> str:
        await held.wait()
        return "worked"

    both = [call("pay", {"order": "17"}), call("nap", {})]
    agent = bank.agent(nap, work, turns=[*both, call("work", {})])
    if where == "inside":
        inner = Agent("inner", by_turn(both, "Paid."), tools=[bank.pay, nap])

        @tool
        async def delegate(ctx: ToolContext) -> list[Any]:
            return texts(await ctx.run_agent(inner, "Pay."))

        turns = [call("delegate", {}), call("work", {})]
        agent = Agent("shop", by_turn(turns, "Done."), tools=[delegate, work])
    async with Runtime([agent], clock=clock, store=new_store()) as runtime:
        ref = runtime.spawn("shop", id="a")
        told = ref.events()
        outcome = ref.run("Go.")
        began = 0
        async for each in told:
            began += isinstance(each.event, events.WaitStarted)
            if began == 2:
                break
        await soon(held.entered.wait())
        assert await soon(runtime.resolve(bank.tokens[0], "ann"))
        await soon(clock.advance(HOUR))
        held.release.set()
        waited = ["paid by ann", "slept"]
        expected = [*waited, "worked"] if where == "beside" else [waited, "worked"]
        assert texts(await soon(outcome)) == expected
    assert bank.created == ["17"]


async def test_waking_often_is_no_crash(clock: SimulatedClock, store: str) -> None:
    """A run that wakes again and again, in process after process, is not quarantined."""

    @tool
    async def poll(ctx: ToolContext) -> str:
        for n in range(8):
            await ctx.sleep(f"wait {n}", HOUR)
        return "polled"

    agent = Agent("shop", by_turn(call("poll", {}), "Done."), tools=[poll])
    async with Runtime([agent], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        for _ in range(8):
            await soon(ref.compact())
            await soon(clock.advance(HOUR))
            await until_status(ref, Status.WAITING, Status.IDLE)
        ended = completed(await soon(outcome))
    assert texts(ended) == ["polled"]


async def test_an_observer_sees_what_agents_wait_for(bank: Bank, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([bank.agent()], store=store) as runtime:
        await waiting(runtime)
        listed = await runtime.waiting()
        async with Observer(store) as observer:
            assert await observer.waiting() == listed
        assert [wait.name for wait in listed] == ["paid"]


@pytest.mark.slow
async def test_an_activation_that_fails_by_a_due_leaves_the_run_open(
    clock: SimulatedClock, store: str
) -> None:
    """J22: who waits for the run did not ask for that activation, and it is tried again."""
    started = 0

    class Fails(Middleware):
        async def on_start(self, actor: AgentRef) -> None:
            nonlocal started
            started += 1
            if started == 2:
                raise ValueError("not yet")

    agent = Agent("shop", by_turn(call("nap", {}), "Done."), tools=[nap], middleware=[Fails()])
    async with Runtime([agent], store=store, clock=clock) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(ref.stop(block=False))
        await soon(clock.advance(HOUR))
        assert started == 2
        assert not outcome.done()
        await soon(ref.state())  # activates it, before the clock tries again
        assert texts(await soon(outcome)) == ["slept"]


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")]}])
async def test_an_answer_with_a_number_that_json_lacks_is_refused(
    bank: Bank, clock: SimulatedClock, store: str, value: Any
) -> None:
    async with Runtime([bank.agent()], store=store, clock=clock) as runtime:
        await waiting(runtime)
        with pytest.raises(UsageError, match="NaN or an infinity"):
            await soon(runtime.resolve(bank.tokens[-1], value))


async def test_a_sleep_beyond_the_calendar_is_refused_and_its_agent_can_be_read(
    clock: SimulatedClock, store: str
) -> None:
    west = timezone(timedelta(hours=-5))

    @tool
    async def far(ctx: ToolContext) -> str:
        await ctx.sleep_until("far", datetime.max.replace(tzinfo=west))
        return "slept"

    agent = Agent("shop", by_turn(call("far", {}), "Done."), tools=[far])
    async with Runtime([agent], store=store, clock=clock) as runtime:
        ended = completed(await soon(runtime.spawn("shop", id="a").run("Go.")))
        assert "outside the calendar" in str(texts(ended)[0])
        assert await soon(runtime.waiting()) == []


# ------------------------------------------------------- a clock that is set back


class SetClock:
    """A clock whose time of day may be set. Its monotonic seconds go on by themselves."""

    def __init__(self) -> None:
        self.time = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
        self.seconds = 100.0
        self.looks = 0

    def now(self) -> datetime:
        self.looks += 1
        return self.time

    async def asked(self, times: int) -> None:
        """Return when it was asked so many times more."""
        before = self.looks
        await until(lambda: self.looks >= before + times)

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self.seconds += seconds

    def set_back(self) -> None:
        self.time -= timedelta(hours=1)


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    monkeypatch.setattr("understudy._base.clock_waits.RECHECK", 0.01)
    monkeypatch.setattr("understudy.modes.steps.concurrent.RECHECK", 0.01)
    return SetClock()


async def test_an_agent_that_cannot_be_told_that_it_is_due_keeps_no_other_waiting(
    set_clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J21: also where the sleep of the other one ends by the monotonic clock."""
    monkeypatch.setattr(due_clock, "LONGEST_BACKOFF", 0.01)
    starts: list[str] = []

    class Broken(Middleware):
        async def on_start(self, actor: Any) -> None:
            starts.append(actor.id)
            if starts.count("broken") == 2:
                raise ConnectionError("not yet")

    def agent(seconds: float) -> Agent:
        sleeps = by_turn(call("nap", {"seconds": seconds}), "Done.")
        return Agent(f"sleeps_{seconds:g}", sleeps, tools=[nap], middleware=[Broken()])

    async with Runtime([agent(2), agent(20)], clock=set_clock, sweep=None) as runtime:
        ref, broken = await waiting(runtime, "broken", "sleeps_2")
        _, other = await waiting(runtime, "other", "sleeps_20")
        await soon(ref.stop(block=False))
        set_clock.advance(2)
        completed(await soon(broken))
        set_clock.advance(18)
        completed(await soon(other))


async def test_an_agent_that_leaves_memory_as_it_is_told_is_no_defect(
    set_clock: SetClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """J21: it says that it is due as it leaves, and looks only then."""
    backend = SqliteBackend(str(tmp_path / "store.db"), durability="off", host="here")
    held = HeldCommits(backend)
    agent = Agent("shop", by_turn(call("nap", {"seconds": 2}), "Done.", "Later."), tools=[nap])
    async with Runtime([agent], store=DatabaseStore(held), clock=set_clock, sweep=None) as runtime:
        ref, outcome = await waiting(runtime)
        await soon(ref.info())
        with held.held():
            sent = ref.send("Later.")
            left = ref.stop(block=False)
            await held.reached()
            set_clock.advance(2)
            for _ in range(5):  # the due clock looks each 10 ms
                await soon(set_clock.asked(3))
                await turns()
        assert await soon(left) is True
        await soon(sent)
        completed(await soon(outcome))
    assert "could not be told" not in caplog.text


@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("is_passive", [True, False])
async def test_a_short_sleep_is_no_longer_where_the_clock_is_set_back(
    set_clock: SetClock, tmp_path: Path, where: str, is_passive: bool
) -> None:
    store = "memory:" if where == "memory" else f"sqlite:///{tmp_path / 'store.db'}"
    slept: list[float] = []

    @tool
    async def doze(ctx: ToolContext, seconds: float) -> str:
        await ctx.sleep("doze", seconds)
        slept.append(seconds)
        return "slept"

    naps = [call("doze", {"seconds": seconds}) for seconds in (2, 20)]
    agent = Agent("shop", by_turn(*naps, "Done."), tools=[doze])
    async with Runtime([agent], store=store, clock=set_clock) as runtime:
        ref, outcome = await waiting(runtime)
        for seconds in (2, 20):
            await until_status(ref, Status.WAITING)
            if is_passive:
                await soon(ref.compact())
            set_clock.set_back()
            set_clock.advance(seconds - 1)
            await soon(runtime.waiting())
            assert seconds not in slept
            set_clock.advance(1)
            await soon(until(partial(slept.__contains__, seconds)))
        assert texts(await soon(outcome)) == ["slept", "slept"]


async def test_a_short_sleep_beside_another_call_ends_where_the_clock_is_set_back(
    set_clock: SetClock,
) -> None:
    slept, began = asyncio.Event(), asyncio.Event()

    @tool
    async def rest(ctx: ToolContext) -> str:
        began.set()
        await ctx.sleep("rest", 2)
        slept.set()
        return "rested"

    @tool
    async def work() -> str:
        await began.wait()
        for _ in range(100):  # until the other call has come to rest
            await asyncio.sleep(0)
        set_clock.set_back()
        set_clock.advance(2)
        await slept.wait()
        return "worked"

    agent = Agent("shop", by_turn([call("rest"), call("work")], "Done."), tools=[rest, work])
    async with Runtime([agent], clock=set_clock) as runtime:
        outcome = runtime.spawn("shop", "a").run("Go.")
        assert texts(await soon(outcome)) == ["rested", "worked"]


async def test_a_long_sleep_goes_by_the_time_of_day(set_clock: SetClock) -> None:
    agent = Agent("shop", by_turn(call("nap", {"seconds": DAY}), "Done."), tools=[nap])
    async with Runtime([agent], clock=set_clock) as runtime:
        ref, outcome = await waiting(runtime)
        set_clock.set_back()
        set_clock.advance(DAY)
        short = runtime.spawn("shop", "b")
        await soon(short.state())
        assert not outcome.done()
        assert ref.status() is Status.WAITING
        set_clock.advance(HOUR)
        assert texts(await soon(outcome)) == ["slept"]
