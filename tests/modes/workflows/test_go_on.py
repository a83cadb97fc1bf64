"""W8: a run that failed is continued by another one; what it had finished is not done again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse

from tests.support.agents import (
    assert_valid_history,
    authors,
    completed,
    interrupted,
    reloaded,
    results,
)
from tests.support.cut_off import Crash, Disk, finished_calls, ids, told
from tests.support.loops import never, soon
from tests.support.outages import Outage, failed
from understudy import (
    Agent,
    AgentState,
    Failed,
    Outcome,
    Run,
    ScriptedModel,
    Stopped,
    StopSignal,
    ToolContext,
    ToolResult,
    approve,
    call,
    tool,
)
from understudy.errors import (
    NotInterrupted,
)
from understudy.events import Event, ToolEnded
from understudy.middleware import Middleware, SubAgent
from understudy.models import ScriptedRequest
from understudy.modes import Loop, Parallel, Sequential
from understudy.tools import exit_loop


class Bank:
    """Pays, and knows what it has paid."""

    def __init__(self, *, idempotent: bool = False) -> None:
        self.paid: list[tuple[str, str]] = []
        """To whom, and under which key."""

        @tool(idempotent=idempotent)
        async def pay(ctx: ToolContext, to: str) -> ToolResult[str]:
            self.paid.append((to, ctx.call_key))
            return ToolResult(f"paid {to}", state={"paid": {to: ctx.tool_name}})

        self.pay = pay

    @property
    def whom(self) -> list[str]:
        return [to for to, _ in self.paid]


def payer(name: str, outage: Outage, bank: Bank, *turns: Any, **options: Any) -> Agent:
    return Agent(name, outage.model(*turns), tools=[bank.pay], **options)


def paying(to: str, id: str | None = None) -> Any:
    return [call("pay", {"to": to}, id=id or f"pay-{to}")]


# ------------------------------------------------------------------------------ in order


def three(outage: Outage, bank: Bank, *names: str) -> Agent:
    """Three agents pay, one after the other; the second one fails after it has paid."""
    first = payer("first", outage, bank, paying("a"), "a is paid", output_key="first")
    second = payer(
        "second", outage, bank, paying("b"), outage.until_over("b is paid"), output_key="second"
    )
    third = payer("third", outage, bank, paying("c"), "c is paid", output_key="third")
    known = {agent.name: agent for agent in (first, second, third)}
    order = [known[name] for name in names or known]
    return Agent("three", mode=Sequential(order))


def undisturbed(make: Callable[[Outage, Bank], Agent]) -> dict[str, Any]:
    """How it ends where nothing fails."""
    outage = Outage()
    outage.lasts = False
    return told(completed(make(outage, Bank()).execute_sync("go")))


def without_counts(end: dict[str, Any]) -> dict[str, Any]:
    """All but what the runs used: each counts its own."""
    return {name: value for name, value in end.items() if not name.endswith("_calls")}


def test_a_sequence_continues_with_the_agent_that_failed() -> None:
    """W8: and that one with its next model call. All ends as if nothing had happened."""
    outage, bank = Outage(), Bank()
    agent = three(outage, bank)
    first = failed(agent.execute_sync("go"))
    assert bank.whom == ["a", "b"]
    outage.lasts = False
    second = completed(agent.retry_sync(reloaded(first.state)))
    assert bank.whom == ["a", "b", "c"]
    assert second.run_id != first.run_id
    assert second.text == "c is paid"
    assert [(each.agent, each.text) for each in second.results] == [
        ("first", "a is paid"),
        ("second", "b is paid"),
        ("third", "c is paid"),
    ]
    assert without_counts(told(second)) == without_counts(undisturbed(three))
    assert_valid_history(second.state)


def test_each_run_counts_what_it_used_itself() -> None:
    """W8: nothing is counted twice."""
    outage, bank = Outage(), Bank()
    agent = three(outage, bank)
    first = failed(agent.execute_sync("go"))
    assert (first.usage.requests, first.usage.tool_calls) == (3, 2)
    outage.lasts = False
    second = completed(agent.retry_sync(first.state))
    assert (second.usage.requests, second.usage.tool_calls) == (3, 1)


def test_a_new_message_begins_anew() -> None:
    """W8."""
    outage, bank = Outage(), Bank()
    agent = three(outage, bank)
    first = failed(agent.execute_sync("go"))
    outage.lasts = False
    second = completed(agent.execute_sync("go", state=first.state))
    assert [each.agent for each in second.results] == ["first", "second", "third"]
    assert authors(second.state)[:6] == authors(first.state)
    assert second.state.left == {}


def test_a_run_that_has_not_failed_is_not_retried() -> None:
    """W8."""
    outage, bank = Outage(), Bank()
    outage.lasts = False
    agent = three(outage, bank)
    done = completed(agent.execute_sync("go"))
    with pytest.raises(NotInterrupted, match="nothing to retry"):
        agent.retry_sync(done.state)
    with pytest.raises(NotInterrupted, match="nothing to retry"):
        agent.retry_sync(AgentState())

    class Stops(Middleware):
        async def before_step(self, run: Run) -> None:
            run.signal(StopSignal.stop_requested("enough"))

    stopping = Agent("a", ScriptedModel(["never"]), middleware=[Stops()])
    stopped = stopping.execute_sync("go")
    assert isinstance(stopped, Stopped)
    with pytest.raises(NotInterrupted, match="nothing to retry"):
        stopping.retry_sync(stopped.state)


# --------------------------------------------------------------------------- round after round


def test_a_loop_continues_in_the_round_in_which_it_failed() -> None:
    """W8."""
    outage, bank = Outage(), Bank()

    def make(outage: Outage, bank: Bank) -> Agent:
        critic = Agent("critic", ScriptedModel(lambda request: f"{len(request.messages)}"))
        turns: list[Any] = []
        for round in range(3):
            turns += [paying(f"r{round}"), f"round {round}"]
        turns[5] = outage.until_over([call("exit_loop", id="x")])
        refiner = Agent("refiner", outage.model(*turns), tools=[bank.pay, exit_loop])
        return Agent("improve", mode=Loop([critic, refiner], max_iterations=5))

    agent = make(outage, bank)
    first = failed(agent.execute_sync("go"))
    assert bank.whom == ["r0", "r1", "r2"]
    outage.lasts = False
    second = completed(agent.retry_sync(reloaded(first.state)))
    assert bank.whom == ["r0", "r1", "r2"]
    assert [(each.agent, each.escalated) for each in second.results] == [
        ("critic", False),
        ("refiner", True),
    ]
    assert without_counts(told(second)) == without_counts(undisturbed(make))


# ------------------------------------------------------------------------------ side by side


async def test_branches_that_have_ended_are_not_run_again() -> None:
    """W8: and what they said and changed is merged in declared order, as where none fails."""
    outage, bank = Outage(), Bank()
    ended: list[str] = []

    def make(outage: Outage, bank: Bank) -> Agent:
        class Ends(Middleware):
            async def on_run_end(self, run: Run, outcome: Outcome) -> None:
                ended.append(run.definition.name)

        async def last(request: ScriptedRequest) -> Any:
            if outage.lasts:
                while set(ended) != {"left", "right"}:  # noqa: ASYNC110  # no event says so
                    await asyncio.sleep(0)
                raise ConnectionError("down")
            return "middle"

        watch = [Ends()]
        left = payer("left", outage, bank, paying("l"), "left", output_key="k", middleware=watch)
        middle = Agent("middle", ScriptedModel(last), output_key="k")
        right = payer("right", outage, bank, paying("r"), "right", output_key="k", middleware=watch)
        return Agent("side", mode=Parallel([left, middle, right]))

    agent = make(outage, bank)
    first = failed(await soon(agent.execute("go")))
    assert sorted(bank.whom) == ["l", "r"]
    outage.lasts = False
    second = completed(await soon(agent.retry(reloaded(first.state))))
    assert sorted(bank.whom) == ["l", "r"]
    assert second.text == "[left] left\n\n[middle] middle\n\n[right] right"
    assert second.state.values["k"] == "right", "the later one in the list wins"
    assert authors(second.state) == [None, *["left"] * 3, "middle", *["right"] * 3]
    assert second.usage.requests == 1
    assert sorted(ended) == ["left", "right"]


class Slow:
    """Tools that a failure beside them cuts off in the middle, the first time that they run."""

    def __init__(self, entered: asyncio.Event) -> None:
        self.ran: list[tuple[str, str]] = []

        async def body(ctx: ToolContext) -> str:
            again = any(name == ctx.tool_name for name, _ in self.ran)
            self.ran.append((ctx.tool_name, ctx.call_key))
            if not again:
                entered.set()
                await never()
            return f"{ctx.tool_name} ran"

        @tool
        async def plain(ctx: ToolContext) -> str:
            return await body(ctx)

        @tool(idempotent=True)
        async def safe(ctx: ToolContext) -> str:
            return await body(ctx)

        @tool(read_only=True)
        async def looking(ctx: ToolContext) -> str:
            return await body(ctx)

        @tool(on_unknown="ask")
        async def asking(ctx: ToolContext) -> str:
            return await body(ctx)

        @tool(sequential=True)
        async def behind(ctx: ToolContext) -> str:
            self.ran.append((ctx.tool_name, ctx.call_key))
            return "ran"

        self.tools = (plain, safe, looking, asking, behind)


def cut_off(calls: Sequence[Any]) -> tuple[Agent, Slow, Outage]:
    """An agent that fails while another one beside it is in the middle of these calls."""
    entered, outage = asyncio.Event(), Outage()
    slow = Slow(entered)

    async def fails(_: ScriptedRequest) -> str:
        await entered.wait()
        if outage.lasts:
            raise ConnectionError("down")
        return "up"

    busy = Agent("busy", outage.model(list(calls), "busy is done"), tools=slow.tools)
    other = Agent("other", ScriptedModel(fails))
    return Agent("side", mode=Parallel([busy, other])), slow, outage


async def test_a_call_that_was_cut_off_is_in_doubt() -> None:
    """W8, J4: the model of the branch gets the doubt, as after a crash."""
    agent, slow, outage = cut_off([call("plain", id="p"), call("behind", id="b")])
    first = failed(await soon(agent.execute("go")))
    assert [each.tool_name for each in first.state.doubts.values()] == ["plain"]
    outage.lasts = False
    second = completed(await soon(agent.retry(reloaded(first.state))))
    assert [name for name, _ in slow.ran] == ["plain", "behind"], "what was not started runs"
    plain, behind = results(second.state)
    assert "outcome of this call is unknown" in str(plain.content)
    assert behind.content == "ran"
    assert [each.tool_name for each in second.state.doubts.values()] == ["plain"]
    assert_valid_history(second.state)


async def test_a_call_that_is_safe_to_repeat_is_repeated_under_its_key() -> None:
    """W8, J3: and it is in doubt no longer."""
    agent, slow, outage = cut_off([call("safe", id="s")])
    first = failed(await soon(agent.execute("go")))
    outage.lasts = False
    second = completed(await soon(agent.retry(reloaded(first.state))))
    (one, key), (again, same_key) = slow.ran
    assert (one, key) == (again, same_key)
    assert [part.content for part in results(second.state)] == ["safe ran"]
    assert second.state.doubts_in_tree == {}


async def test_a_call_that_only_looks_something_up_runs_again() -> None:
    """W8, J3: as after a crash; and it has one end."""
    agent, slow, outage = cut_off([call("looking", id="l")])
    first = failed(await soon(agent.execute("go")))
    outage.lasts = False
    events: list[Event] = []
    second = completed(await soon(agent.retry(reloaded(first.state), on_event=events.append)))
    (_, key), (_, same_key) = slow.ran
    assert key == same_key
    assert [part.content for part in results(second.state)] == ["looking ran"]
    assert [event.call_key for event in events if isinstance(event, ToolEnded)] == [key]


async def test_a_person_is_asked_about_a_call_that_was_cut_off() -> None:
    """W8, J4: by the run that continues."""
    agent, slow, outage = cut_off([call("asking", id="a")])
    first = failed(await soon(agent.execute("go")))
    outage.lasts = False
    asks = interrupted(await soon(agent.retry(reloaded(first.state))))
    (request,) = asks.requests
    assert (request.kind, request.run_id) == ("doubt", f"{asks.run_id}.r0.0")
    end = completed(await soon(agent.resume(asks.state, asks.decide(approve()))))
    assert [name for name, _ in slow.ran] == ["asking", "asking"]
    assert end.text == "[busy] busy is done\n\n[other] up"


async def test_a_doubt_that_is_settled_meanwhile_asks_nobody() -> None:
    """W8: what the conversation says of the call stays."""
    agent, slow, outage = cut_off([call("asking", id="a")])
    first = failed(await soon(agent.execute("go")))
    (key,) = first.state.doubts
    settled = agent.settle(reloaded(first.state), key, how="it was paid")
    outage.lasts = False
    end = completed(await soon(agent.retry(settled)))
    assert len(slow.ran) == 1
    (part,) = results(end.state)
    assert "outcome of this call is unknown" in str(part.content)
    assert end.state.doubts_in_tree == {}


async def test_what_a_branch_had_asked_is_asked_again() -> None:
    """W8: the requests of the failed run are void."""
    entered, outage, ran = asyncio.Event(), Outage(), list[str]()

    @tool
    async def buy() -> str:
        ran.append("buy")
        return "bought"

    async def fails(_: ScriptedRequest) -> str:
        await entered.wait()
        if outage.lasts:
            raise ConnectionError("down")
        return "up"

    class Tells(Middleware):
        async def check_tool_calls(self, run: Run, calls: Any) -> Any:
            entered.set()
            return [each.request() for each in calls]

    buyer = Agent(
        "buyer", outage.model([call("buy", id="b")], "ok"), tools=[buy], middleware=[Tells()]
    )
    agent = Agent("side", mode=Parallel([buyer, Agent("other", ScriptedModel(fails))]))
    first = failed(await soon(agent.execute("go")))
    outage.lasts = False
    asks = interrupted(await soon(agent.retry(reloaded(first.state))))
    assert not ran
    end = completed(await soon(agent.resume(asks.state, asks.decide(approve()))))
    assert ran == ["buy"]
    assert [record.decision.type for record in end.state.decisions] == ["approve"]


async def test_an_agent_inside_of_a_call_that_was_cut_off_continues() -> None:
    """W8: it is in no doubt, as after a crash."""
    entered, outage, bank = asyncio.Event(), Outage(), Bank()

    async def slow(request: ScriptedRequest) -> Any:
        turn = sum(isinstance(message, ModelResponse) for message in request.messages)
        if turn == 0:
            return paying("x")
        entered.set()
        if outage.lasts:
            await never()
        return "x is paid"

    async def fails(_: ScriptedRequest) -> str:
        await entered.wait()
        if outage.lasts:
            raise ConnectionError("down")
        return "up"

    helper = Agent("helper", ScriptedModel(slow), tools=[bank.pay], description="helps")
    task = call("task", {"task_name": "helper", "instructions": "Pay x."}, id="t")
    lead = Agent("lead", outage.model([task], "all is paid"), middleware=[SubAgent([helper])])
    agent = Agent("side", mode=Parallel([lead, Agent("other", ScriptedModel(fails))]))
    first = failed(await soon(agent.execute("go")))
    assert bank.whom == ["x"]
    outage.lasts = False
    second = completed(await soon(agent.retry(reloaded(first.state))))
    assert bank.whom == ["x"]
    assert [part.content for part in results(second.state)] == ["x is paid"]
    assert second.usage.requests == 3, "of the helper one, of the two others one each"


# ------------------------------------------------------------------------------------ nested


def nested(outage: Outage, bank: Bank) -> Agent:
    """A sequence in a loop in a sequence beside an agent: the innermost one fails."""
    writer = payer("writer", outage, bank, paying("w"), "draft", output_key="doc")
    checker = payer("checker", outage, bank, paying("k1"), "so so", paying("k2"), "fine")
    mender = Agent(
        "mender",
        outage.model(
            paying("m1"), "mended", paying("m2"), outage.until_over([call("exit_loop", id="x")])
        ),
        tools=[bank.pay, exit_loop],
        output_key="doc",
    )
    inner = Agent("inner", mode=Sequential([checker, mender]))
    improve = Agent("improve", mode=Loop([inner], max_iterations=4))
    publisher = payer("publisher", outage, bank, paying("p"), "published", output_key="end")
    return Agent("desk", mode=Sequential([writer, improve, publisher]))


def test_a_nested_workflow_continues_at_its_innermost_agent() -> None:
    """W8."""
    outage, bank = Outage(), Bank()
    agent = nested(outage, bank)
    first = failed(agent.execute_sync("go"))
    assert bank.whom == ["w", "k1", "m1", "k2", "m2"]
    outage.lasts = False
    second = completed(agent.retry_sync(reloaded(first.state)))
    assert bank.whom == ["w", "k1", "m1", "k2", "m2", "p"]
    assert without_counts(told(second)) == without_counts(undisturbed(nested))


class Behind:
    """The same disk for what comes later: it holds the past already, so it takes no snapshot."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def append(self, records: Sequence[Any]) -> None:
        self.disk.append([record for record in records if record.kind != "snapshot"])

    @property
    def has_unflushed(self) -> bool:
        return False

    async def durable(self) -> None:
        return


def beside(outage: Outage, bank: Bank) -> Agent:
    """Three agents side by side, of which one is a sequence; two of them fail."""
    left = payer("left", outage, bank, paying("l1"), paying("l2"), "left", output_key="left")
    one = payer("one", outage, bank, paying("o1"), "one is done")
    two = payer("two", outage, bank, paying("t1"), outage.until_over(paying("t2")), "two is done")
    middle = Agent("middle", mode=Sequential([one, two]))
    right = payer("right", outage, bank, outage.until_over(paying("r1")), "right")
    return Agent("beside", mode=Parallel([left, middle, right]))


def life(make: Callable[[Outage, Bank], Agent], disk: Disk, outage: Outage, bank: Bank) -> Outcome:
    """It fails, is retried in vain, then the provider is up again; from what the disk has."""
    agent = make(outage, bank)
    if not disk.lines:
        agent.execute_sync("go", journal=disk, new_id=ids())
    while True:
        state = disk.load()
        run = state.run
        if run is None or not run.over:
            outcome = agent.resume_sync(state, journal=Behind(disk), new_id=ids())
        else:
            outage.lasts = run.continues is None
            outcome = agent.retry_sync(state, journal=Behind(disk), new_id=ids())
        if not isinstance(outcome, Failed):
            return outcome


@pytest.mark.slow
@pytest.mark.parametrize("make", [nested, beside])
def test_a_run_that_fails_and_is_retried_may_be_cut_off_after_any_record(
    make: Callable[[Outage, Bank], Agent],
) -> None:
    """W8, J3: it ends the same way, and what has a result is not done again."""
    whole = Disk()
    end = without_counts(told(completed(life(make, whole, Outage(), Bank(idempotent=True)))))
    assert sum('"continues": "id' in line for line in whole.lines) > 5
    for limit in range(1, len(whole.lines)):
        disk, outage, bank = Disk(limit), Outage(), Bank(idempotent=True)
        with pytest.raises(Crash):
            life(make, disk, outage, bank)
        finished, before = finished_calls(disk), len(bank.paid)
        disk.limit = None
        outcome = completed(life(make, disk, outage, bank))
        where = f"cut off after record {limit}"
        assert without_counts(told(outcome)) == end, where
        assert not finished & {key for _, key in bank.paid[before:]}, where
        assert len({key for _, key in bank.paid}) == len(set(bank.whom)) == 6, where
        assert disk.load() == outcome.state, where
