"""The ways in which an effect can be repeated: one row of the table for each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field
from pydantic_ai.messages import ModelResponse
from tenacity import AsyncRetrying, retry_always, stop_after_attempt, wait_fixed, wait_none

from tests.support.agents import reloaded
from tests.support.cut_off import Crash, Disk
from tests.support.durability.effects_errors import AFTER, BEFORE, OF_NO_REQUEST, Make
from tests.support.durability.effects_story import (
    CELLS,
    ORDER,
    Cell,
    Lagging,
    Story,
    eager,
    paid_or_not,
)
from tests.support.loops import never, skip
from understudy import (
    Agent,
    Failed,
    Outcome,
    ScriptedModel,
    ToolContext,
    UsageError,
    call,
)
from understudy.errors import EffectUnknown, NotExtracted
from understudy.middleware import Fallback, Middleware, SubAgent
from understudy.modes import Loop, Parallel, Sequential
from understudy.testing import Fault

__all__ = ["CELLS_WITH_EFFECTS", "ROWS", "Row", "row"]

LIMIT = 60.0
"""Seconds, of a tool in a thread: the loop lets them pass at once."""
Play = Callable[[Story], Coroutine[Any, Any, None]]
CELLS_WITH_EFFECTS = [cell for cell in CELLS if cell.kind != "read_only"]
GATED = [cell for cell in CELLS if cell.gated]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way in which an effect can be repeated."""

    play: Play
    hole: str
    """The broken build that this row must find."""
    cells: Sequence[Cell] = field(default_factory=lambda: CELLS)


ROWS: dict[str, Row] = {}
"""By what happens."""


def row(name: str, *, hole: str, cells: Sequence[Cell] = CELLS) -> Callable[[Play], Play]:
    """Keep a row of the table, by its name."""

    def keep(play: Play) -> Play:
        assert name not in ROWS
        ROWS[name] = Row(play=play, hole=hole, cells=cells)
        return play

    return keep


# ------------------------------------------------------------------------------ errors


def _after(make: Make) -> Play:
    async def play(story: Story) -> None:
        story.fails_by(Fault(make, happened=True))
        await story.lived(story.agent)
        story.judge()

    return play


def _before(make: Make) -> Play:
    async def play(story: Story) -> None:
        story.fails_by(Fault(make, happened=False))
        await story.lived(story.agent)
        story.judge(no_person=True)
        if any(request.doubts or request.kind == "doubt" for request in story.asked):
            story.violations.append("a person is told of a doubt, and nothing happened")

    return play


def _after_of_no_request(make: Make) -> Play:
    """By the documented rule the call has failed. `unknown_after=Exception` makes it a doubt."""

    async def play(story: Story) -> None:
        story.fails_by(Fault(make, happened=True))
        await story.lived(lambda: story.agent([story.tool(unknown_after=Exception)]))
        story.judge()

    return play


for _name, _make in AFTER.items():
    row(f"after paying: {_name}", hole="each error is a failure")(_after(_make))
for _name, _make in BEFORE.items():
    row(f"before paying: {_name}", hole="each error is a doubt")(_before(_make))
for _name, _make in OF_NO_REQUEST.items():
    row(
        f"after paying, with unknown_after=Exception: {_name}",
        hole="each error is a failure",
        cells=CELLS_WITH_EFFECTS,
    )(_after_of_no_request(_make))


@row("an error after something was done by ctx.once", hole="what once did is forgotten")
async def _after_once(story: Story) -> None:
    async def pay(ctx: ToolContext[Any], order: str) -> str:
        story.enters(ctx)
        await ctx.once("pay", lambda: story.requests(ctx, order))
        if len(story.bank.requests) == 1:
            raise ValueError("the receipt cannot be read")
        return "paid"

    await story.lived(lambda: story.agent([story.tool(pay)]))
    story.judge()


# ------------------------------------------------------------------------------ limits


def _hangs_once(story: Story, *, limit: float | None = None) -> Any:
    """A body whose first request is made, and whose answer never comes."""

    async def pay(ctx: ToolContext[Any], order: str) -> str:
        answer = story.act(ctx, order)
        if len(story.bank.requests) == 1:
            async with asyncio.timeout(limit):
                await never()
        return answer

    return pay


@row("a time limit inside of the tool", hole="each error is a failure")
async def _limit_inside(story: Story) -> None:
    await story.lived(lambda: story.agent([story.tool(_hangs_once(story, limit=0.001))]))
    story.judge()


@row("a time limit of the tool", hole="a limit that passes is a failure")
async def _limit_outside(story: Story) -> None:
    await story.lived(lambda: story.agent([story.tool(_hangs_once(story), timeout=0.01)]))
    story.judge()


@row("a time limit of a tool in a thread", hole="a limit that passes is a failure")
async def _limit_in_a_thread(story: Story) -> None:
    goes_on, loop = threading.Event(), asyncio.get_running_loop()

    def pay(ctx: ToolContext[Any], order: str) -> str:
        answer = story.act(ctx, order)
        if len(story.bank.requests) == 1:
            skip(loop, LIMIT)
            goes_on.wait(60)
        return answer

    try:
        await story.lived(lambda: story.agent([story.tool(pay, timeout=LIMIT)]))
    finally:
        goes_on.set()
    story.judge()


@row("a cancellation from within", hole="a cancellation from within is a failure")
async def _cancelled_within(story: Story) -> None:
    story.fails_by(Fault(asyncio.CancelledError, happened=True))
    await story.lived(story.agent)
    story.judge()


@row("the run is cancelled in the middle of the call", hole="a run that ends leaves no doubt")
async def _cancelled(story: Story) -> None:
    entered = asyncio.Event()

    async def pay(ctx: ToolContext[Any], order: str) -> str:
        answer = story.act(ctx, order)
        if len(story.bank.requests) == 1:
            entered.set()
            await never()
        return answer

    def build() -> Agent:
        return story.agent([story.tool(pay)])

    disk = Disk()
    run = asyncio.ensure_future(story.lived(build, journal=disk))
    await entered.wait()
    run.cancel()
    await asyncio.wait([run])
    story.events.clear()
    # The next message moves on: the model gets a report of what was open.
    story.crashes += 1
    outcome = await build().execute("go on", state=reloaded(disk.load()), clock=story.clock)
    await story.lived(build, outcome)
    story.judge()


# ------------------------------------------------------------------------------ crashes


async def _cut_at_each_record(
    story: Story, build_of: Callable[[Story], Callable[[], Agent]], *faults: Fault
) -> None:
    whole = story.anew(*faults)
    journal = Lagging()
    await whole.lived(build_of(whole), journal=journal)
    whole.judge()
    story.violations += whole.violations
    assert journal.count > 5, "there is something to cut"
    for limit in range(1, journal.count):
        one = story.anew(*faults)
        state = await one.died(build_of(one), Lagging(limit))
        if state is None:
            one.violations.append("it is not cut off")
        else:
            await one.lived(build_of(one), state if state.run is not None else None)
            one.judge()
        story.violations += [f"cut after {limit}: {each}" for each in one.violations]


@row("a crash at each record", hole="a call that was cut off runs again")
async def _crash_anywhere(story: Story) -> None:
    await _cut_at_each_record(story, lambda one: one.agent)


@row("a crash at each record, before it is durable", hole="a tool starts before that is durable")
async def _crash_before_durable(story: Story) -> None:
    await _cut_at_each_record(story, lambda one: one.agent)


@row("a crash at each record after an answer that was lost", hole="a doubt holds up nothing")
async def _crash_after_doubt(story: Story) -> None:
    await _cut_at_each_record(story, lambda one: one.agent, Fault.reset())


def _dies_in_body(*, happened: bool) -> Play:
    async def play(story: Story) -> None:
        story.fails_by(Fault(Crash, happened))
        state = await story.died(story.agent, Disk())
        assert state is not None, "the body ends the process"
        await story.lived(story.agent, state)
        story.judge()

    return play


row("a crash in the body, after paying", hole="a call that was cut off runs again")(
    _dies_in_body(happened=True)
)
row("a crash in the body, before paying", hole="what was cut off is said not to have run")(
    _dies_in_body(happened=False)
)


# ----------------------------------------------------------------------------- repeats


def _faults(*faults: Fault) -> Play:
    async def play(story: Story) -> None:
        story.fails_by(*faults)
        await story.lived(story.agent)
        story.judge()

    return play


row("the repeats of an idempotent call: the second brings it", hole="each tool is repeated")(
    _faults(Fault.reset())
)
row("the repeats: unknown, then refused", hole="the last error counts", cells=CELLS_WITH_EFFECTS)(
    _faults(Fault.reset(), Fault.refused())
)
row("the repeats: none brings a result", hole="a doubt holds up nothing", cells=CELLS_WITH_EFFECTS)(
    _faults(Fault.reset(), Fault.no_answer(), Fault.status(503, happened=True))
)
row("the repeats: unknown before paying", hole="each error is a failure", cells=CELLS_WITH_EFFECTS)(
    _faults(Fault.reset(happened=False), Fault.reset(), Fault.status(400))
)


def _policy(wait: Any, *faults: Fault) -> Play:
    async def play(story: Story) -> None:
        policy = AsyncRetrying(stop=stop_after_attempt(3), wait=wait, retry=retry_always)
        if story.cell.kind == "plain":
            try:
                story.tool(retry=policy)
            except UsageError:
                story.fails_by(*faults)
                await story.lived(story.agent)
            else:
                story.violations.append("a tool with effects has a policy")
        else:
            story.fails_by(*faults)
            await story.lived(lambda: story.agent([story.tool(retry=policy)]))
        story.judge()

    return play


row("a retry policy", hole="the last error counts")(
    _policy(wait_none(), Fault.reset(), Fault.refused(), Fault.refused())
)
row("a retry policy that waits for a minute", hole="the last error counts")(
    _policy(wait_fixed(60), Fault.reset(), Fault.refused(), Fault.status(400))
)


# ----------------------------------------------------------------------------- models


@row("a fallback to another model after the call", hole="a fallback model forgets what ran")
async def _fallback(story: Story) -> None:
    def first(request: Any) -> Any:
        if any(isinstance(message, ModelResponse) for message in request.messages):
            raise ConnectionError("the first model is down")
        return call("pay", {"order": ORDER}, id="first")

    def build() -> Agent:
        return story.agent(model=ScriptedModel(first), middleware=[Fallback([eager()])])

    await story.lived(build)
    story.judge()


@row("a fallback to another model after a lost answer", hole="a doubt holds up nothing")
async def _fallback_after_doubt(story: Story) -> None:
    story.fails_by(Fault.reset(), Fault.reset(), Fault.reset())
    await _fallback(story)


class _Twice(Middleware):
    """Asks for each call twice."""

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        await next(call)
        return await next(call)


class _AfterErrors(Middleware):
    """Asks for a call again that raised."""

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        try:
            return await next(call)
        except Exception:
            return await next(call)


@row("a middleware that calls next twice", hole="a middleware may repeat a call")
async def _wrapper(story: Story) -> None:
    await story.lived(lambda: story.agent(middleware=[_Twice()]))
    story.judge()


@row("a middleware that calls next again after an error", hole="a middleware may repeat a call")
async def _wrapper_after_errors(story: Story) -> None:
    story.fails_by(Fault(lambda: ValueError("the receipt cannot be read"), happened=True))
    await story.lived(lambda: story.agent(middleware=[_AfterErrors()]))
    story.judge()


# ---------------------------------------------------------------------- loops of models


def _until(**options: Any) -> Play:
    async def play(story: Story) -> None:
        story.fails_by(*[Fault.reset()] * 10)
        outcome = await story.lived(story.agent, **options)
        story.judge()
        if story.cell.kind != "read_only" and not story.asked:
            _must_be_unknown(story, outcome)

    return play


def _must_be_unknown(story: Story, outcome: Outcome) -> None:
    if not (isinstance(outcome, Failed) and isinstance(outcome.error, EffectUnknown)):
        story.violations.append(f"the loop does not end with its doubt: {outcome!r}")


row("until_tool_success", hole="each error is a failure")(_until(until_tool_success="pay"))
row("until_tool", hole="each error is a failure")(_until(until_tool="pay"))
row("until_tool_success with force", hole="each error is a failure")(
    _until(until_tool_success="pay", force=True)
)


@row("extract", hole="each error is a failure", cells=[c for c in CELLS if not c.gated])
async def _extract(story: Story) -> None:
    story.fails_by(*[Fault.reset()] * 4)
    try:
        await story.agent().extract("pay", "go", on_event=story.events.append)
    except NotExtracted:
        if story.cell.kind == "read_only":
            story.violations.append("what only looks something up is tried again")
    else:
        if story.cell.kind != "read_only":
            story.violations.append("something is extracted")
    story.judge()


@row("a Loop whose agent calls again in each round", hole="a doubt does not end a loop")
async def _loop(story: Story) -> None:
    story.fails_by(*[Fault.reset()] * 3)

    def reply(request: Any) -> Any:
        last = request.messages[-1]
        asks = any(part.part_kind == "tool-return" for part in last.parts)
        return "on" if asks else call("pay", {"order": ORDER}, id=f"c{len(request.messages)}")

    def build() -> Agent:
        worker = Agent("worker", ScriptedModel(reply), tools=[story.tool()])
        return Agent("desk", mode=Loop([worker], max_iterations=3))

    outcome = await story.lived(build)
    story.judge()
    if story.cell.kind != "read_only" and not story.cell.gated:
        _must_be_unknown(story, outcome)


# ------------------------------------------------------------------ children, workflows


def _down(request: Any) -> Any:
    raise ConnectionError("the model is down")


def _pays_and_fails(story: Story, id: str) -> ScriptedModel:
    """Its model calls once, and is down then."""

    def reply(request: Any) -> Any:
        if any(isinstance(message, ModelResponse) for message in request.messages):
            raise ConnectionError("the model is down")
        story.lives += 1
        return call("pay", {"order": ORDER}, id=f"{id}{story.lives}")

    return ScriptedModel(reply)


def _parent(story: Story, heeds: Callable[[str], bool] | None) -> Agent:
    child = Agent("child", _pays_and_fails(story, "child"), tools=[story.tool()])
    ordered = {"task_name": "child", "instructions": "Pay."}
    model = eager(tool_name="task", id="t", heeds=heeds, arguments=ordered)
    return Agent("desk", model, middleware=[SubAgent([child], general_purpose=False)])


@row("a child that has paid, and fails", hole="a failed child does not tell what it did")
async def _failed_child(story: Story) -> None:
    await story.lived(lambda: _parent(story, paid_or_not))
    story.judge()


@row("a child whose payment is in doubt, and that fails", hole="a doubt holds up nothing")
async def _doubtful_child(story: Story) -> None:
    story.fails_by(*[Fault.reset()] * 3)
    await story.lived(lambda: _parent(story, None))
    story.judge()


def _flow(story: Story, make: Callable[[list[Agent]], Any], outage: list[bool]) -> Agent:
    def reply(request: Any) -> Any:
        if outage:
            raise ConnectionError("the model is down")
        return "up"

    payer = Agent("payer", eager(id="p"), tools=[story.tool()])
    other = Agent("other", ScriptedModel(reply))
    return Agent("desk", mode=make([payer, other]))


def _retried(make: Callable[[list[Agent]], Any], *faults: Fault) -> Play:
    async def play(story: Story) -> None:
        story.fails_by(*faults)
        outage = [True]

        def build() -> Agent:
            return _flow(story, make, outage)

        outcome: Outcome = await story.lived(build)
        assert isinstance(outcome, Failed)
        again = await build().retry(reloaded(outcome.state), clock=story.clock)
        assert isinstance(again, Failed)
        outage.clear()
        last = await build().retry(
            reloaded(again.state), clock=story.clock, on_event=story.events.append
        )
        await story.lived(build, last)
        story.judge()

    return play


row("retry() of a failed Sequential", hole="a retry begins anew")(_retried(Sequential))
row("retry() of a failed Sequential with a doubt", hole="a doubt holds up nothing")(
    _retried(Sequential, Fault.reset(), Fault.reset(), Fault.reset())
)
row("retry() of a failed Loop", hole="a retry begins anew")(
    _retried(lambda agents: Loop(agents, max_iterations=1))
)


@row(
    "retry() of a failed Parallel, whose branch is cut off",
    hole="a call that was cut off runs again",
)
async def _retried_parallel(story: Story) -> None:
    entered, outage = asyncio.Event(), [True]

    async def pay(ctx: ToolContext[Any], order: str) -> str:
        answer = story.act(ctx, order)
        if outage and len(story.bank.requests) == 1:
            entered.set()
            await never()
        return answer

    async def reply(request: Any) -> Any:
        if outage:
            if not story.cell.gated:
                await entered.wait()
            raise ConnectionError("the model is down")
        return "up"

    def build() -> Agent:
        payer = Agent("payer", eager(id="p"), tools=[story.tool(pay)])
        return Agent("desk", mode=Parallel([payer, Agent("other", ScriptedModel(reply))]))

    outcome = await story.lived(build)
    assert isinstance(outcome, Failed), outcome
    outage.clear()
    entered.set()
    again = await build().retry(
        reloaded(outcome.state), clock=story.clock, on_event=story.events.append
    )
    await story.lived(build, again)
    story.judge()


@row("retry() of an agent whose model failed after the call", hole="a retry begins anew")
async def _retried_agent(story: Story) -> None:
    outage = [True]
    inner = eager()

    def reply(request: Any) -> Any:
        if outage and any(isinstance(message, ModelResponse) for message in request.messages):
            raise ConnectionError("the model is down")
        return inner._answer_all(request)  # type: ignore[misc]  # it is a function

    def build() -> Agent:
        return story.agent(model=ScriptedModel(reply))

    outcome = await story.lived(build)
    assert isinstance(outcome, Failed)
    outage.clear()
    again = await build().retry(
        reloaded(outcome.state), clock=story.clock, on_event=story.events.append
    )
    await story.lived(build, again)
    story.judge()


# ------------------------------------------------------------------------------ deploys


def _with_account(story: Story, account: str, used: dict[str, set[str]], **options: Any) -> Any:
    """The tool of a process in which this account is the default."""

    # A factory: a default would be part of the schema, and an approval is bound to that.
    default = Field(default_factory=lambda: account)

    async def pay(ctx: ToolContext[Any], order: str, account: str = default) -> str:
        used.setdefault(ctx.call_key, set()).add(account)
        return story.act(ctx, order)

    return story.tool(pay, **options)


def _heeds_doubts(text: str) -> bool:
    return "unknown" in text


@row("a deploy that changes a default", hole="the arguments of a call are made anew")
async def _new_default(story: Story) -> None:
    used: dict[str, set[str]] = {}
    account = "one"

    def build() -> Agent:
        return story.agent([_with_account(story, account, used)], model=eager(heeds=_heeds_doubts))

    story.fails_by(Fault(Crash, happened=True))
    state = await story.died(build, Disk())
    assert state is not None, "the body ends the process"
    account = "two"
    await story.lived(build, state)
    story.judge()
    if any(len(each) > 1 for each in used.values()):
        story.violations.append(f"one call has several arguments: {used}")


@row(
    "a deploy that changes a default of what a person is asked about",
    hole="the arguments of a call are made anew",
    cells=GATED,
)
async def _new_default_asked(story: Story) -> None:
    used: dict[str, set[str]] = {}
    account = "one"

    def build() -> Agent:
        return story.agent([_with_account(story, account, used)])

    outcome = await build().execute("go", clock=story.clock)
    account = "two"
    await story.lived(build, outcome)
    story.judge()
    shown = {request.call_key: request.arguments["account"] for request in story.asked}
    if any({shown.get(key)} != accounts for key, accounts in used.items()):
        story.violations.append(f"a person has seen {shown}, and {used} ran")
    if len(story.asked) != 1:
        story.violations.append("a person is asked twice about one call")


def _never(*_: object) -> bool:
    return False


def _switched_on(kind: str, *, in_body: bool) -> Play:
    """A process goes away after a record of this kind; the next one has a gate."""

    async def play(story: Story) -> None:
        gate: Any = {"when": _never}

        def build(of: Story = story) -> Agent:
            # What a gate has seen of a default is recorded before the call starts.
            return of.agent([_with_account(of, "one", {}, ask=gate)])

        if in_body:
            story.fails_by(Fault(Crash, happened=True))
            state = await story.died(build, Disk())
        else:
            whole = story.anew()
            disk = Disk()
            await whole.lived(lambda: build(whole), journal=disk)
            kinds = [line.split('"kind": "')[1].split('"')[0] for line in disk.lines]
            state = await story.died(build, Disk(kinds.index(kind) + 1))
        assert state is not None
        gate = True
        await story.lived(build, state)
        asked_first = bool(story.asked) or in_body
        if not asked_first:
            story.violations.append("the gate has not asked")
        if not in_body or story.cell.kind == "plain":
            story.judge()

    return play


row(
    "a deploy that switches a gate on under a call that was not started",
    hole="gates of today are not asked",
    cells=GATED,
)(_switched_on("interrupts_checked", in_body=False))
row(
    "a deploy that switches a gate on under a call that was cut off",
    hole="a call that was cut off runs again",
    cells=GATED,
)(_switched_on("", in_body=True))


# --------------------------------------------------------------------------- checks, keys


def _check(*faults: Fault) -> Play:
    async def play(story: Story) -> None:
        story.fails_by(*faults)

        def check(ctx: ToolContext[Any], arguments: dict[str, Any]) -> Any:
            return story.bank.find(arguments["order"])

        await story.lived(lambda: story.agent([story.tool(check=check)]))
        story.judge(no_person=True)
        if any(request.kind == "doubt" or request.doubts for request in story.asked):
            story.violations.append("a person is asked about what a check can tell")

    return play


row(
    "a lost answer, and a check that finds the payment",
    hole="a check says that nothing happened",
    cells=CELLS_WITH_EFFECTS,
)(_check(*[Fault.reset()] * 3))
row(
    "a lost request, and a check that finds no payment",
    hole="each doubt is put to a person",
    cells=CELLS_WITH_EFFECTS,
)(_check(*[Fault.reset(happened=False)] * 3))
