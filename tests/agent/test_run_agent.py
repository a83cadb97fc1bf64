"""`ctx.run_agent`: a tool runs another agent inside its call, and waits with it.

Rules: T3, S3, S4, S5, S6, S7.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.agents import (
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    reloaded,
    results,
)
from tests.support.loops import never, own_tasks, soon
from understudy import (
    Agent,
    Completed,
    Failed,
    Interrupt,
    Interrupted,
    Outcome,
    Runtime,
    Status,
    ToolContext,
    approve,
    call,
    edit,
    respond,
    tool,
)
from understudy.middleware import HumanInTheLoop, SubAgent


@pytest.fixture(params=[False, True], ids=["here", "elsewhere"])
def elsewhere(request: pytest.FixtureRequest) -> bool:
    """Whether each answer is given to agents that were built anew, over JSON."""
    return bool(request.param)


class Cast:
    """A tool `work` that runs agents, and what was run; `build` makes all of them anew."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.outcomes: list[Outcome] = []

    def worker(self, name: str = "worker", *turns: Any, **options: Any) -> Agent:
        """An agent that does what its turns say; by default one dangerous thing."""
        ran = self.ran

        @tool
        async def danger(ctx: ToolContext, x: int = 0) -> str:
            ran.append((ctx.agent_path[-1], x))
            return f"did {x}"

        turns = turns or ([call("danger", {"x": 1})],)
        return Agent(name, by_turn(*turns), tools=[danger], **options)

    def build(self, *agents: Agent, **options: Any) -> Agent:
        """An agent whose only tool runs these agents, one after the other."""
        outcomes = self.outcomes

        @tool
        async def work(ctx: ToolContext) -> list[str]:
            done = []
            for agent in agents:
                outcome = await ctx.run_agent(agent, "do it")
                outcomes.append(outcome)
                done.append(outcome.text if isinstance(outcome, Completed) else "failed")
            return done

        return Agent("boss", by_turn([call("work")]), tools=[work], **options)


@pytest.fixture
def cast() -> Cast:
    return Cast()


def test_a_tool_gets_the_outcome_of_the_agent_that_it_runs(cast: Cast) -> None:
    """T3, S4: a failure is an outcome too; the tool decides what it means."""
    good, bad = Agent("good", by_turn("yes")), Agent("bad", by_turn(RuntimeError("down")))
    end = completed(cast.build(good, bad).execute_sync("go"))
    assert results(end.state)[0].content == ["yes", "failed"]
    assert isinstance(cast.outcomes[1], Failed)
    assert (end.usage.requests, end.usage.tool_calls) == (3, 1), "a failed request is none"
    assert end.state.children == {}


def test_an_agent_run_by_a_tool_waits_for_a_person_and_goes_on_where_it_stood(
    cast: Cast, elsewhere: bool
) -> None:
    """S5, J11: the tool runs again from its start; what was finished does not."""

    def build() -> Agent:
        first = cast.worker("first", "one")
        second = cast.worker("second", interrupt_on={"danger": True})
        third = cast.worker("third", [call("danger", {"x": 3})])
        return cast.build(first, second, third)

    agent = build()
    outcome = interrupted(agent.execute_sync("go"))
    (request,) = outcome.requests
    assert request.agent_path == ("boss", "second")
    state = reloaded(outcome.state) if elsewhere else outcome.state
    resumer = build() if elsewhere else agent
    end = completed(resumer.resume_sync(state, {request.id: approve()}))
    assert cast.ran == [("second", 1), ("third", 3)]
    assert [o.text for o in cast.outcomes if isinstance(o, Completed)] == [
        "one",
        "one",
        "done",
        "done",
    ]
    assert end.usage.requests == 2 + 1 + 2 + 2
    assert_valid_history(end.state)


def test_an_edit_reaches_an_agent_that_only_the_tool_knows(cast: Cast, elsewhere: bool) -> None:
    """S5, I6."""

    def build() -> Agent:
        return cast.build(cast.worker(interrupt_on={"danger": True}))

    agent = build()
    outcome = interrupted(agent.execute_sync("go"))
    state = reloaded(outcome.state) if elsewhere else outcome.state
    resumer = build() if elsewhere else agent
    completed(resumer.resume_sync(state, outcome.decide(edit({"x": 7}))))
    assert cast.ran == [("worker", 7)]


@pytest.mark.parametrize("rule", [None, False, {"when": lambda arguments, ctx: False}])
def test_a_gate_holds_in_an_agent_that_a_tool_runs(cast: Cast, rule: Any) -> None:
    """S5: unless that agent's own gate says False by name."""
    gates = [] if rule is None else [HumanInTheLoop({"danger": rule})]
    worker = cast.worker(middleware=gates)
    known = cast.worker("known")

    agent = cast.build(
        worker,
        middleware=[SubAgent(agents=[known], general_purpose=False)],
        interrupt_on={"danger": True},
    )
    outcome = agent.execute_sync("go")
    if rule is False:
        completed(outcome)
        assert cast.ran == [("worker", 1)]
    else:
        outcome = interrupted(outcome)
        assert cast.ran == []
        completed(agent.resume_sync(outcome.state, outcome.decide(approve())))
        assert cast.ran == [("worker", 1)]


def test_a_child_of_the_agent_can_be_run_by_its_name() -> None:
    """T3."""

    @tool
    async def work(ctx: ToolContext) -> str:
        return completed(await ctx.run_agent("known", "do it")).text

    sub = SubAgent(agents=[Agent("known", by_turn("by name"))], general_purpose=False)
    agent = Agent("boss", by_turn([call("work")]), tools=[work], middleware=[sub])
    assert results(completed(agent.execute_sync("go")).state)[0].content == "by name"


@pytest.mark.parametrize(
    ("agent", "input", "names"),
    [
        ("missing", "go", "'missing'"),
        (5, "go", "5"),
        (Agent("a", by_turn()), "", "empty"),
        (Agent("a", by_turn()), 5, "5"),
    ],
)
def test_what_cannot_be_run_is_an_error_of_the_tool(agent: Any, input: Any, names: str) -> None:
    """T2, R8: naming the culprit."""

    @tool
    async def work(ctx: ToolContext) -> str:
        outcome = await ctx.run_agent(agent, input)
        return f"ended as {type(outcome).__name__}"

    boss = Agent("boss", by_turn([call("work")]), tools=[work])
    (part,) = results(completed(boss.execute_sync("go")).state)
    assert part.outcome == "failed"
    assert names in str(part.content)


@pytest.mark.parametrize("grouped", [False, True], ids=["gather", "task_group"])
def test_a_tool_may_run_several_agents_at_once_and_wait_with_all_of_them(
    elsewhere: bool, cast: Cast, grouped: bool
) -> None:
    """S5, T3: all waiting agents are asked about, and each continues where it stood."""

    def build() -> Agent:
        workers = [
            cast.worker(name, [call("danger", {"x": x})], interrupt_on={"danger": True})
            for x, name in enumerate(["a", "b"])
        ]

        @tool
        async def work(ctx: ToolContext) -> list[str]:
            if not grouped:
                outcomes = await asyncio.gather(*(ctx.run_agent(w, "do it") for w in workers))
                return [completed(outcome).text for outcome in outcomes]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ctx.run_agent(w, "do it")) for w in workers]
            return [completed(done.result()).text for done in tasks]

        return Agent("boss", by_turn([call("work")]), tools=[work])

    agent = build()
    outcome: Outcome = agent.execute_sync("go")
    assert {r.agent_path[-1] for r in interrupted(outcome).requests} == {"a", "b"}
    while isinstance(outcome, Interrupted):
        state = reloaded(outcome.state) if elsewhere else outcome.state
        resumer = build() if elsewhere else agent
        outcome = resumer.resume_sync(state, {outcome.requests[-1].id: approve()})
    end = completed(outcome)
    assert results(end.state)[0].content == ["done", "done"]
    assert sorted(cast.ran) == [("a", 0), ("b", 1)]


async def test_one_agent_that_waits_does_not_leave_another_of_the_same_tool_running() -> None:
    """S6: when the outcome is returned, nothing continues behind it."""
    slow_ended, release = list[str](), asyncio.Event()

    @tool
    async def danger() -> str:
        return "did"

    @tool(idempotent=True)
    async def slow() -> str:
        try:
            await release.wait()
        finally:
            slow_ended.append("slow")
        return "slow"

    gate = HumanInTheLoop({"danger": True})
    asks = Agent("asks", by_turn([call("danger")]), tools=[danger], middleware=[gate])
    works = Agent("works", by_turn([call("slow")]), tools=[slow])

    @tool
    async def work(ctx: ToolContext) -> str:
        await asyncio.gather(ctx.run_agent(works, "x"), ctx.run_agent(asks, "x"))
        return "both"

    boss = Agent("boss", by_turn([call("work")]), tools=[work])
    running = asyncio.ensure_future(boss.execute("go"))
    for _ in range(50):
        await asyncio.sleep(0)  # lets everything come to rest
    before = running.done()
    assert not before or slow_ended, "an outcome was told while a child was still at work"
    release.set()
    outcome = interrupted(await running)
    end = await boss.resume(reloaded(outcome.state), outcome.decide(approve()))
    assert results(completed(end).state)[0].content == "both"
    assert not own_tasks()


async def test_a_doubt_is_kept_when_the_end_of_the_run_overtakes_a_tool_with_an_agent_inside() -> (
    None
):
    """J4: the tool may have had an effect of its own before it ran the agent."""
    inside = asyncio.Event()

    @tool
    async def hang() -> None:
        inside.set()
        await never()

    worker = Agent("worker", by_turn([call("hang")]), tools=[hang])

    @tool
    async def charge(ctx: ToolContext) -> str:
        await ctx.run_agent(worker, "go")  # after charging, say
        return "charged"

    async with Runtime(agents=[Agent("boss", by_turn([call("charge")]), tools=[charge])]) as rt:
        ref = rt.spawn("boss", id="one")
        ref.run("go")
        await inside.wait()
        await ref.cancel()
        state = await ref.state()
        assert {d.tool_name for d in state.doubts.values()} == {"charge", "hang"}


async def test_stopping_while_a_child_works_cuts_off_no_call_beside_it() -> None:
    """A5, S6: the step in progress is recorded; on waking nothing is in doubt."""
    inside, leave, ran = asyncio.Event(), asyncio.Event(), list[str]()
    slow_in, slow_leave = asyncio.Event(), asyncio.Event()

    @tool
    async def step() -> str:
        ran.append("step")
        inside.set()
        await leave.wait()
        return "stepped"

    @tool
    async def slow() -> str:
        ran.append("slow")
        slow_in.set()
        await slow_leave.wait()
        return "slow done"

    kid = Agent("kid", by_turn([call("step")]), tools=[step])
    task = call("task", {"task_name": "kid", "instructions": "do it"})
    boss = Agent(
        "boss",
        by_turn([task, call("slow")]),
        tools=[slow],
        middleware=[SubAgent(agents=[kid], general_purpose=False)],
    )
    async with Runtime(agents=[boss]) as runtime:
        ref = runtime.spawn("boss", id="one")
        future = ref.run("go")
        await inside.wait()
        await slow_in.wait()
        stopping = ref.stop(block=False)
        for _ in range(20):
            await asyncio.sleep(0)  # the wish to stop arrives
        leave.set()
        for _ in range(20):
            await asyncio.sleep(0)  # the child comes to the end of its step
        slow_leave.set()
        await stopping
        assert ref.status() is Status.PASSIVE
        state = await ref.state()
        await soon(runtime.recover())  # wakes it; a look does not, and the sweep comes later
        outcome = completed(await soon(future))
        assert state.doubts == {}
        assert outcome.state.doubts == {}
        assert [part.outcome for part in results(outcome.state)] == ["success", "success"]
        assert ran == ["step", "slow"]


@pytest.mark.slow
@pytest.mark.parametrize("levels", [1, 2, 3])
async def test_progress_at_any_depth_keeps_a_crashing_run_from_quarantine(levels: int) -> None:
    """J10: only attempts without anything new count."""
    crashes = {1, 2, 3, 4, 5}

    class Boom(BaseException):
        pass

    @tool(idempotent=True)
    async def dies(x: int) -> str:
        if x in crashes:
            crashes.remove(x)
            raise Boom
        return "held"

    turns = [[call("dies", {"x": x})] for x in range(1, 6)]
    agent = Agent("leaf", by_turn(*turns), tools=[dies])
    for level in range(levels):
        task = call("task", {"task_name": agent.name, "instructions": "do it"})
        sub = SubAgent(agents=[agent], general_purpose=False)
        agent = Agent(f"level{level}", by_turn([task]), middleware=[sub])
    async with Runtime(agents=[agent]) as runtime:
        outcome = await runtime.spawn(agent, id="one").run("go")
        assert isinstance(outcome, Completed), outcome
        assert crashes == set()


def test_a_question_of_a_tool_is_answered_through_a_tool_that_runs_an_agent(cast: Cast) -> None:
    """S5, I8: the call that runs the agent asks a question of its own, after its agent's."""
    worker = cast.worker(interrupt_on={"danger": True})

    @tool
    async def work(ctx: ToolContext) -> str:
        outcome = await ctx.run_agent(worker, "do it")
        if not ctx.resumed:
            raise Interrupt("publish?")
        return f"{completed(outcome).text}, {ctx.resume_value}"

    agent = Agent("boss", by_turn([call("work")]), tools=[work])
    outcome = interrupted(agent.execute_sync("go"))
    outcome = interrupted(agent.resume_sync(reloaded(outcome.state), outcome.decide(approve())))
    assert outcome.requests[0].payload == "publish?"
    end = completed(agent.resume_sync(reloaded(outcome.state), outcome.decide(respond("yes"))))
    assert results(end.state)[0].content == "done, yes"
    assert cast.ran == [("worker", 1)]


def test_a_tool_that_catches_everything_does_not_take_waiting_for_a_failure(cast: Cast) -> None:
    """S5: nothing is recorded of the call; it waits."""
    worker = cast.worker(interrupt_on={"danger": True})

    @tool
    async def work(ctx: ToolContext) -> str:
        try:
            outcome = await ctx.run_agent(worker, "do it")
        except Exception as error:
            return f"failed: {error}"
        return completed(outcome).text

    agent = Agent("boss", by_turn([call("work")]), tools=[work])
    outcome = interrupted(agent.execute_sync("go"))
    assert results(outcome.state) == []
    end = completed(agent.resume_sync(outcome.state, outcome.decide(approve())))
    assert results(end.state)[0].content == "done"


def test_an_agent_that_runs_itself_comes_to_an_end_soon() -> None:
    """S7: deeper than agents may nest is an error, not a thousand agents."""
    paths: list[int] = []

    @tool
    async def again(ctx: ToolContext) -> str:
        paths.append(len(ctx.agent_path))
        return completed(await ctx.run_agent(agent, "again")).text

    agent = Agent("agent", by_turn([call("again")]), tools=[again])
    completed(agent.execute_sync("go"))
    assert max(paths) < 100
    assert len(paths) == max(paths), "each level was entered once"


def test_the_time_limit_of_a_tool_ends_the_agent_in_it(cast: Cast) -> None:
    """T6, J4: a call that hung below is in doubt, and the agent is gone."""

    @tool
    async def hang() -> None:
        await never()

    worker = Agent("worker", by_turn([call("hang")]), tools=[hang])

    @tool(timeout=0.01, read_only=True)
    async def work(ctx: ToolContext) -> str:
        await ctx.run_agent(worker, "do it")
        return "done"

    end = completed(Agent("boss", by_turn([call("work")]), tools=[work]).execute_sync("go"))
    assert results(end.state)[0].outcome == "failed"
    assert end.state.children == {}
    assert [doubt.tool_name for doubt in end.state.doubts.values()] == ["hang"]
    assert end.usage.requests == 3, "what the agent used before is counted"


@pytest.mark.usefixtures("repeats_at_once")
def test_an_idempotent_tool_that_is_tried_again_goes_on_with_the_agent_in_it() -> None:
    """S6, J28: the call that hung below is in doubt, and is not made again."""
    hung: list[int] = []

    @tool
    async def hang() -> None:
        hung.append(1)
        await never()

    worker = Agent("worker", by_turn([call("hang")]), tools=[hang])

    @tool(timeout=0.01, idempotent=True)
    async def work(ctx: ToolContext) -> str:
        return completed(await ctx.run_agent(worker, "do it")).text

    end = completed(Agent("boss", by_turn([call("work")]), tools=[work]).execute_sync("go"))
    assert [part.content for part in results(end.state)] == ["done"]
    assert hung == [1]
    assert [doubt.tool_name for doubt in end.state.doubts.values()] == ["hang"]
