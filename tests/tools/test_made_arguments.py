"""The arguments of a call are made once: defaults, factories, and what a type converts (I6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Annotated, Any
from uuid import uuid4

import pytest
from pydantic import BaseModel, BeforeValidator, Field, SecretStr
from tenacity import AsyncRetrying, stop_after_attempt, wait_none

from tests.support.agents import (
    FakeClock,
    by_turn,
    calls_made,
    completed,
    interrupted,
    reloaded,
    results,
    until_status,
)
from tests.support.cut_off import Crash, Disk
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentState,
    Completed,
    Interrupted,
    Outcome,
    Runtime,
    SimulatedClock,
    Status,
    Tool,
    ToolContext,
    Waiting,
    approve,
    call,
    edit,
    tool,
)
from understudy.events import ToolStarted
from understudy.middleware import Middleware

HOUR = 3600.0


def new_reference() -> str:
    return uuid4().hex


Reference = Annotated[str, Field(default_factory=new_reference)]


@dataclass
class Bank:
    """A tool that pays, with a reference that is made where the model gives none."""

    entries: list[tuple[str, str, str]] = field(default_factory=list)
    """Of each entry into its body: the key of the call, the amount, the reference."""
    dies: bool = False
    """Whether the process goes away in the middle of the body."""
    sleeps: bool = False
    fails: int = 0
    """How many entries fail before one pays."""
    judged: list[dict[str, Any]] = field(default_factory=list)
    """The arguments that the gate was asked about."""

    def tool(self, **options: Any) -> Tool[Any]:
        @tool(**options)
        async def pay(ctx: ToolContext, amount: int, reference: Reference) -> str:
            self.entries.append((ctx.call_key, str(amount), reference))
            if self.dies:
                raise Crash
            if self.sleeps:
                await ctx.sleep("until the bank opens", HOUR)
            if len(self.entries) <= self.fails:
                raise ValueError("the bank is busy")
            return f"paid {amount} with {reference}"

        return pay

    def when(self, arguments: dict[str, Any], ctx: ToolContext) -> bool:
        self.judged.append(arguments)
        return True

    def agent(self, *turns: Any, gated: bool = False, **options: Any) -> Agent:
        turns = turns or (call("pay", {"amount": 5}),)
        gate = {"pay": {"when": self.when}} if gated else None
        return Agent("desk", by_turn(*turns), tools=[self.tool(**options)], interrupt_on=gate)


def references(bank: Bank) -> set[str]:
    return {reference for _, _, reference in bank.entries}


def to_the_end(
    agent: Agent, outcome: Outcome, disk: Disk | None = None, clock: FakeClock | None = None
) -> Completed:
    """What the host does until the run is over: a person approves, and time passes."""
    clock = clock or FakeClock()
    while not isinstance(outcome, Completed):
        decisions = None
        if isinstance(outcome, Interrupted):
            decisions = {request.id: approve() for request in outcome.requests}
        else:
            assert isinstance(outcome, Waiting), outcome
            clock.advance(HOUR)
        outcome = agent.resume_sync(outcome.state, decisions, journal=disk, clock=clock)
    return outcome


def live(agent: Agent, disk: Disk) -> Completed:
    """A whole life in one process."""
    return to_the_end(agent, agent.execute_sync("go", journal=disk, clock=FakeClock()), disk)


TWICE = AsyncRetrying(stop=stop_after_attempt(2), wait=wait_none())
LIVES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a plain life": ({}, {}),
    "a gate": ({}, {"gated": True}),
    "a sleep": ({"sleeps": True}, {}),
    "a gate and a sleep": ({"sleeps": True}, {"gated": True}),
    "a retry": ({"fails": 1}, {"retry": TWICE}),
}
"""What the bank does, and the options of its agent."""


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.slow
def test_a_factory_is_asked_once_for_a_call_wherever_its_run_is_cut_off(life: str) -> None:
    """T12: the same key never comes with another reference."""
    of_bank, options = LIVES[life]
    options = {"idempotent": True, **options}
    whole, bank = Disk(), Bank(**of_bank)
    agent = bank.agent(**options)
    live(agent, whole)
    assert len(references(bank)) == 1
    entered_before = 0
    for limit in range(1, len(whole.lines)):
        disk, bank = Disk(limit), Bank(**of_bank)
        agent = bank.agent(**options)
        with pytest.raises(Crash):
            live(agent, disk)
        entered_before += bool(bank.entries)
        shown = [request.arguments for request in disk.load().requests]
        rest = bank.agent(**options)
        clock = FakeClock()
        clock.advance(2 * HOUR)
        end = to_the_end(rest, rest.resume_sync(disk.load(), journal=Disk(), clock=clock), None)
        assert len(references(bank)) == 1, f"cut after record {limit}"
        (reference,) = references(bank)
        assert str(results(end.state)[0].content) == f"paid 5 with {reference}"
        assert all(arguments["reference"] == reference for arguments in shown)
    assert entered_before, "some cuts are behind an entry"


def test_a_factory_is_asked_once_for_a_call_whose_process_dies_in_its_body() -> None:
    """T12, J4: what runs again under the same key runs with the same arguments."""
    disk, bank = Disk(), Bank(dies=True)
    with pytest.raises(Crash):
        bank.agent(idempotent=True).execute_sync("go", journal=disk)
    bank.dies = False
    completed(bank.agent(idempotent=True).resume_sync(disk.load()))
    assert len(bank.entries) == 2
    assert len(set(bank.entries)) == 1


def test_tomorrow_is_the_same_day_before_a_sleep_and_after_it() -> None:
    """T12: a default that is a time is one time for the call."""
    clock, days = FakeClock(), list[datetime]()
    tomorrow: datetime = Field(default_factory=lambda: clock.now() + timedelta(days=1))

    @tool
    async def remind(ctx: ToolContext, at: datetime = tomorrow) -> str:
        days.append(at)
        await ctx.sleep("over midnight", 20 * HOUR)
        return f"{at:%d}"

    agent = Agent("desk", by_turn(call("remind")), tools=[remind])
    waiting = agent.execute_sync("go", clock=clock)
    assert isinstance(waiting, Waiting)
    clock.advance(20 * HOUR)
    end = completed(agent.resume_sync(reloaded(waiting.state), clock=clock))
    assert days == [datetime(2030, 1, 2, 12, tzinfo=timezone.utc)] * 2
    assert results(end.state)[0].content == "02"


def test_a_gate_and_its_person_see_what_runs() -> None:
    """T12, I2: the reference that is shown is the one that pays."""
    bank = Bank()
    agent = bank.agent(gated=True)
    outcome = interrupted(agent.execute_sync("go"))
    (request,) = outcome.requests
    again = interrupted(bank.agent(gated=True).resume_sync(reloaded(outcome.state)))
    assert again.requests == outcome.requests
    agent = bank.agent(gated=True)
    end = completed(agent.resume_sync(reloaded(outcome.state), outcome.decide(approve())))
    ((_, amount, reference),) = bank.entries
    assert request.arguments == {"amount": 5, "reference": reference}
    assert bank.judged == [request.arguments]
    assert amount == "5"
    (decision,) = end.state.decisions
    assert decision.request.arguments == request.arguments


def test_an_edit_that_leaves_out_what_a_factory_makes_is_asked_about_once() -> None:
    """T12, I5: it is completed once, and fixed then."""
    bank = Bank(sleeps=True)
    agent, clock = bank.agent(gated=True), FakeClock()
    outcome = interrupted(agent.execute_sync("go", clock=clock))
    shown = outcome.requests[0].arguments["reference"]
    waiting = agent.resume_sync(outcome.state, outcome.decide(edit({"amount": 7})), clock=clock)
    assert isinstance(waiting, Waiting)
    clock.advance(HOUR)
    end = completed(bank.agent(gated=True).resume_sync(reloaded(waiting.state), clock=clock))
    assert len(bank.entries) == 2
    ((_, amount, reference),) = set(bank.entries)
    assert (amount, reference != shown) == ("7", True)
    (decision,) = [line.decision for line in end.state.decisions]
    assert decision.arguments == {"amount": 7}
    assert decision.edited == {"amount": 7, "reference": reference}


def test_the_same_edit_given_again_is_no_other_decision() -> None:
    """I11: what was made for it is no part of what a person says."""
    bank = Bank(sleeps=True)
    agent = bank.agent(gated=True)
    outcome = interrupted(agent.execute_sync("go"))
    decisions = outcome.decide(edit({"amount": 7}))
    waiting = agent.resume_sync(outcome.state, decisions)
    assert isinstance(agent.resume_sync(waiting.state, decisions), Waiting)
    assert len(references(bank)) == 1


def test_an_edit_of_a_call_whose_agent_only_a_tool_knows_is_completed_once() -> None:
    """T12, S6: nobody can complete it where it is given."""
    bank = Bank(sleeps=True)

    def chief() -> Agent:
        worker = bank.agent(gated=True)

        @tool(read_only=True)
        async def delegate(ctx: ToolContext) -> str:
            return completed(await ctx.run_agent(worker, "pay")).text

        return Agent("chief", by_turn(call("delegate")), tools=[delegate])

    clock = FakeClock()
    outcome = interrupted(chief().execute_sync("go", clock=clock))
    decisions = outcome.decide(edit({"amount": 7}))
    waiting = chief().resume_sync(reloaded(outcome.state), decisions, clock=clock)
    assert isinstance(waiting, Waiting)
    clock.advance(HOUR)
    completed(chief().resume_sync(reloaded(waiting.state), clock=clock))
    assert [amount for _, amount, _ in bank.entries] == ["7", "7"]
    assert len(references(bank)) == 1


class Numbered:
    """The tool of a process in which the default is the number of the deploy."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, str]] = []

    def agent(self, deploy: int, *, gated: bool = False, adds: bool = False) -> Agent:
        @tool(idempotent=True, version="1")
        async def pay(ctx: ToolContext, account: int = deploy) -> str:
            self.entries.append((account, ctx.call_key))
            await ctx.sleep("nap", HOUR)
            return f"paid from {account}"

        @tool(name="pay", idempotent=True, version="1")
        async def pay_of_old(ctx: ToolContext) -> str:
            self.entries.append((0, ctx.call_key))
            await ctx.sleep("nap", HOUR)
            return "paid"

        used = pay_of_old if adds and deploy == 1 else pay
        gate = {"pay": True} if gated else None
        return Agent("desk", by_turn(call("pay")), tools=[used], interrupt_on=gate)


def test_a_deploy_that_changes_a_default_does_not_change_an_open_call() -> None:
    """T12: a started call continues with the arguments of its start."""
    bank, clock = Numbered(), FakeClock()
    waiting = bank.agent(1).execute_sync("go", clock=clock)
    assert isinstance(waiting, Waiting)
    clock.advance(HOUR)
    end = completed(bank.agent(2).resume_sync(reloaded(waiting.state), clock=clock))
    assert results(end.state)[0].content == "paid from 1"
    assert [account for account, _ in bank.entries] == [1, 1]


def test_a_deploy_that_changes_a_default_does_not_change_what_a_person_was_shown() -> None:
    """T12, I2: the schema has changed, so the person is asked again, about the same account."""
    bank, clock = Numbered(), FakeClock()
    outcome = interrupted(bank.agent(1, gated=True).execute_sync("go", clock=clock))
    assert outcome.requests[0].arguments == {"account": 1}
    agent = bank.agent(2, gated=True)
    again = interrupted(
        agent.resume_sync(reloaded(outcome.state), outcome.decide(approve()), clock=clock)
    )
    assert again.requests[0].arguments == {"account": 1}
    waiting = agent.resume_sync(again.state, again.decide(approve()), clock=clock)
    assert isinstance(waiting, Waiting)
    assert [account for account, _ in bank.entries] == [1]


def test_a_call_that_was_not_started_takes_the_default_of_today() -> None:
    """T12: nobody has judged it, and nothing of it has run."""
    bank, disk = Numbered(), Disk()
    whole = Disk()
    bank.agent(1).execute_sync("go", journal=whole)
    disk.lines = whole.lines[
        : next(n for n, line in enumerate(whole.lines) if json.loads(line)["kind"] == "started")
    ]
    bank.entries.clear()
    assert isinstance(bank.agent(2).resume_sync(disk.load()), Waiting)
    assert [account for account, _ in bank.entries] == [2]


def test_a_default_that_a_deploy_adds_under_an_open_call_is_made_once_from_then_on() -> None:
    """T12."""
    made = count(1)
    entries: list[int] = []

    def agent(*, has_number: bool) -> Agent:
        @tool(idempotent=True)
        async def pay(ctx: ToolContext) -> str:
            await ctx.sleep("nap", HOUR)
            return "paid"

        @tool(name="pay", idempotent=True)
        async def pay_later(
            ctx: ToolContext, number: int = Field(default_factory=lambda: next(made))
        ) -> str:
            entries.append(number)
            await ctx.sleep("nap", HOUR)
            await ctx.sleep("another", HOUR)
            return f"paid {number}"

        used = pay_later if has_number else pay
        return Agent("desk", by_turn(call("pay")), tools=[used])

    clock = FakeClock()
    outcome: Outcome = agent(has_number=False).execute_sync("go", clock=clock)
    while isinstance(outcome, Waiting):
        clock.advance(HOUR)
        outcome = agent(has_number=True).resume_sync(reloaded(outcome.state), clock=clock)
    assert results(completed(outcome).state)[0].content == "paid 1"
    assert set(entries) == {1}
    assert len(entries) > 1


def test_arguments_that_the_model_wrote_in_full_are_recorded_once() -> None:
    """T12: only what differs from the model's text is."""

    @tool
    def add(a: int, b: int) -> int:
        return a + b

    @tool
    def pay(amount: int, currency: str = "EUR") -> str:
        return f"{amount} {currency}"

    turn = [
        call("add", {"a": 1, "b": 2}),
        call("pay", {"amount": 1, "currency": "EUR"}),
        call("pay", {"amount": 2}),
    ]
    disk = Disk()
    agent = Agent("desk", by_turn(turn), tools=[add, pay])
    completed(agent.execute_sync("go", journal=disk))
    records = [json.loads(line) for line in disk.lines]
    assert [each.get("arguments") for each in records if each["kind"] == "started"] == [
        None,
        None,
        {"amount": 2, "currency": "EUR"},
    ]


# --------------------------------------------------- types that do not read what they write


def in_cents(value: Any) -> int:
    return int(value) * 100


KNOWN_PIN = SecretStr("pin-of-ann")
Cents = Annotated[int, BeforeValidator(in_cents)]


class Order(BaseModel):
    """A model with a name of its own in JSON, and a factory beside a secret."""

    number: str = Field(validation_alias="orderNumber")
    pin: SecretStr
    reference: str = Field(default_factory=new_reference)


def entered_twice(build: Callable[[list[Any]], Tool[Any]], arguments: dict[str, Any]) -> list[Any]:
    """What the body of a tool gets before a sleep and, in another process, after it."""
    seen: list[Any] = []
    clock = FakeClock()

    def agent() -> Agent:
        return Agent("desk", by_turn(call("act", arguments)), tools=[build(seen)])

    outcome: Outcome = agent().execute_sync("go", clock=clock)
    assert isinstance(outcome, Waiting), outcome
    clock.advance(HOUR)
    completed(agent().resume_sync(reloaded(outcome.state), clock=clock))
    assert len(seen) == 2
    return seen


def with_a_secret(seen: list[Any]) -> Tool[Any]:
    @tool(name="act")
    async def act(ctx: ToolContext, pin: SecretStr, reference: Reference) -> str:
        seen.append((pin.get_secret_value(), reference))
        await ctx.sleep("nap", HOUR)
        return "done"

    return act


def with_a_secret_default(seen: list[Any]) -> Tool[Any]:
    @tool(name="act")
    async def act(ctx: ToolContext, reference: Reference, pin: SecretStr = KNOWN_PIN) -> str:
        seen.append((pin.get_secret_value(), reference))
        await ctx.sleep("nap", HOUR)
        return "done"

    return act


def with_a_conversion(seen: list[Any]) -> Tool[Any]:
    @tool(name="act")
    async def act(ctx: ToolContext, amount: Cents, reference: Reference) -> str:
        seen.append((amount, reference))
        await ctx.sleep("nap", HOUR)
        return "done"

    return act


def with_an_alias(seen: list[Any]) -> Tool[Any]:
    @tool(name="act")
    async def act(
        ctx: ToolContext, number: Annotated[str, Field(alias="orderNumber")], reference: Reference
    ) -> str:
        seen.append((number, reference))
        await ctx.sleep("nap", HOUR)
        return "done"

    return act


def with_a_model(seen: list[Any]) -> Tool[Any]:
    @tool(name="act")
    async def act(ctx: ToolContext, order: Order, others: list[Order]) -> str:
        each = [order, *others]
        seen.append([(one.number, one.pin.get_secret_value(), one.reference) for one in each])
        await ctx.sleep("nap", HOUR)
        return "done"

    return act


def with_one_model(seen: list[Any]) -> Tool[Any]:
    @tool(name="act")
    async def act(ctx: ToolContext, order: Order) -> str:
        seen.append((order.number, order.pin.get_secret_value(), order.reference))
        await ctx.sleep("nap", HOUR)
        return "done"

    return act


ORDER = {"orderNumber": "17", "pin": "pin-of-ann"}
CASES: dict[str, tuple[Callable[[list[Any]], Tool[Any]], dict[str, Any], Callable[[Any], Any]]] = {
    "a secret": (with_a_secret, {"pin": "pin-of-ann"}, lambda seen: seen[0] == "pin-of-ann"),
    "a secret default": (with_a_secret_default, {}, lambda seen: seen[0] == "pin-of-ann"),
    "a conversion": (with_a_conversion, {"amount": 5}, lambda seen: seen[0] == 500),
    "an alias": (with_an_alias, {"orderNumber": "17"}, lambda seen: seen[0] == "17"),
    "models": (
        with_a_model,
        {"order": ORDER, "others": [ORDER, ORDER]},
        lambda seen: [each[:2] for each in seen] == [("17", "pin-of-ann")] * 3,
    ),
    "one model": (with_one_model, ORDER, lambda seen: seen[:2] == ("17", "pin-of-ann")),
}
"""The tool, what the model gives it, and what its body must get."""


@pytest.mark.parametrize("case", CASES)
def test_what_does_not_read_back_what_it_writes_is_the_same_at_each_entry(case: str) -> None:
    """T12: what the model wrote is kept, with the values of the defaults."""
    build, arguments, is_right = CASES[case]
    first, second = entered_twice(build, arguments)
    assert is_right(first)
    assert first == second


@pytest.mark.parametrize("case", CASES)
def test_a_person_approves_what_does_not_read_back_what_it_writes(case: str) -> None:
    """T12, I2: once is enough, and the body gets the value itself."""
    build, arguments, is_right = CASES[case]
    seen: list[Any] = []
    turns = by_turn(call("act", arguments))
    agent = Agent("desk", turns, tools=[build(seen)], interrupt_on={"act": True})
    outcome = interrupted(agent.execute_sync("go"))
    assert "pin-of-ann" not in json.dumps(outcome.requests[0].arguments), "a secret is not shown"
    waiting = agent.resume_sync(reloaded(outcome.state), outcome.decide(approve()))
    assert isinstance(waiting, Waiting)
    assert is_right(seen[0])


def test_a_secret_survives_a_deploy_that_asks_its_person_again() -> None:
    """T12, I2: what is shown is not what is recorded."""
    seen: list[str] = []

    def agent(version: str) -> Agent:
        @tool(version=version)
        def act(pin: SecretStr, times: int = 1) -> str:
            seen.append(pin.get_secret_value())
            return "done"

        turns = by_turn(call("act", {"pin": "pin-of-ann"}))
        return Agent("desk", turns, tools=[act], interrupt_on={"act": True})

    outcome = interrupted(agent("1").execute_sync("go"))
    again = interrupted(agent("2").resume_sync(outcome.state, outcome.decide(approve())))
    completed(agent("2").resume_sync(reloaded(again.state), again.decide(approve())))
    assert seen == ["pin-of-ann"]


# ------------------------------------------------------------------------ who sees them


@pytest.mark.parametrize("gated", [False, True])
async def test_everybody_is_told_of_the_arguments_that_ran(gated: bool) -> None:
    """T12: the outcome, the history, the event of the start, and a wrapper around the call."""
    wrapped: list[dict[str, Any]] = []

    class Watching(Middleware):
        async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
            wrapped.append(call.arguments)
            return await next(call)

    bank = Bank()
    agent = Agent(
        "desk",
        by_turn(call("pay", {"amount": 5})),
        tools=[bank.tool()],
        middleware=[Watching()],
        interrupt_on={"pay": True} if gated else None,
    )
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        events = ref.events()
        future = ref.run("go", until_tool="pay")
        if gated:
            await until_status(ref, Status.INTERRUPTED)
            waiting = interrupted(await soon(future))
            outcome = await soon(ref.resume(waiting.decide(approve())))
        else:
            outcome = await soon(future)
        started = []
        async for told in events:
            if isinstance(told.event, ToolStarted):
                started.append(told.event.arguments)
                break
        events.close()
        history = await soon(ref.history())
    ((_, _, reference),) = bank.entries
    ran = {"amount": 5, "reference": reference}
    result = completed(outcome).tool_result
    assert result is not None
    assert result.arguments == ran
    assert started == [ran]
    assert wrapped == [ran]
    details = [entry.detail for entry in history.entries if entry.what == "tool_started"]
    assert [detail["arguments"] for detail in details] == [ran]
    assert calls_made(completed(outcome).state)[0].args == {"amount": 5}, "the model's own words"


def test_the_event_of_a_start_has_the_arguments_of_an_edit() -> None:
    """T12."""
    bank, disk = Bank(), Disk()
    agent = bank.agent(gated=True)
    outcome = interrupted(agent.execute_sync("go", journal=disk))
    completed(agent.resume_sync(outcome.state, outcome.decide(edit({"amount": 7})), journal=disk))
    ((_, _, reference),) = bank.entries
    (started,) = [line for line in map(json.loads, disk.lines) if line["kind"] == "started"]
    assert started["arguments"] == {"amount": 7, "reference": reference}


async def test_a_call_in_doubt_shows_the_arguments_that_ran() -> None:
    """T12, J4: they are what a person has to look for."""
    bank = Bank(dies=True)
    disk = Disk()
    with pytest.raises(Crash):
        await bank.agent().execute("go", journal=disk)
    bank.dies = False
    end = completed(await bank.agent().resume(disk.load()))
    ((_, _, reference),) = bank.entries
    (doubt,) = end.state.doubts.values()
    assert doubt.arguments == {"amount": 5, "reference": reference}


def test_the_text_for_people_is_made_of_what_the_model_wrote() -> None:
    """T12: it is there before the arguments are made."""
    told: list[dict[str, Any]] = []

    def text(arguments: dict[str, Any]) -> str:
        told.append(arguments)
        return "Paying"

    completed(Bank().agent(display_text=text).execute_sync("go"))
    assert told == [{"amount": 5}]


async def test_a_runtime_passes_the_arguments_through_its_store() -> None:
    """T12: an agent that was passive meanwhile, too."""
    clock, bank = SimulatedClock(), Bank(sleeps=True)
    async with Runtime([bank.agent()], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        future = ref.run("go")
        await until_status(ref, Status.WAITING)
        await soon(ref.stop(block=False))
        await soon(clock.advance(HOUR))
        completed(await soon(future))
    assert len(bank.entries) == 2
    assert len(references(bank)) == 1


def test_a_state_that_was_stored_has_the_arguments() -> None:
    """T12, J17: nothing crosses but JSON text."""
    bank = Bank(sleeps=True)
    waiting = bank.agent().execute_sync("go")
    state = reloaded(waiting.state)
    assert isinstance(state, AgentState)
    assert state == waiting.state
    assert references(bank).pop() in json.dumps(state.to_dict())
