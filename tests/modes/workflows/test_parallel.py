"""W6: agents side by side, each on its own branch of the conversation."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.agents import (
    Held,
    authors,
    by_turn,
    completed,
    interrupted,
    reloaded,
    results,
    told_by_users,
    wake,
)
from tests.support.cut_off import Crash, Disk
from tests.support.loops import never, soon
from understudy import (
    Agent,
    AgentState,
    Failed,
    Interrupted,
    Paused,
    Run,
    Runtime,
    ScriptedModel,
    ToolResult,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.errors import AgentFailed
from understudy.middleware import Middleware
from understudy.modes import Loop, Parallel, Sequential


@tool
async def mail(to: str) -> str:
    """Send a mail."""
    return f"mailed {to}"


def agent(name: str, *replies: Any, **options: Any) -> Agent:
    return Agent(name, ScriptedModel(list(replies)), **options)


def side(*agents: Agent, return_failures: bool = False, **options: Any) -> Agent:
    return Agent("side", mode=Parallel(agents, return_failures=return_failures), **options)


async def test_agents_run_at_the_same_time() -> None:
    """Each waits until the other has been asked."""
    one, two = Held("1"), Held("2")
    both = side(agent("a", one), agent("b", two))
    running = asyncio.ensure_future(both.execute("go"))
    await soon(one.entered.wait())
    await soon(two.entered.wait())
    two.release.set()
    one.release.set()
    assert completed(await soon(running)).text == "[a] 1\n\n[b] 2"


async def test_results_stand_in_declared_order_whoever_is_done_first() -> None:
    """W6."""
    slow, done = Held("slow"), asyncio.Event()

    def fast(_: Any) -> str:
        done.set()
        return "fast"

    both = side(agent("a", slow), agent("b", fast))
    running = asyncio.ensure_future(both.execute("go"))
    await soon(done.wait())
    slow.release.set()
    outcome = completed(await soon(running))
    assert [(r.agent, r.text) for r in outcome.results] == [("a", "slow"), ("b", "fast")]
    assert authors(outcome.state) == [None, "a", "b"]


def test_each_sees_what_was_before_and_nothing_of_its_siblings() -> None:
    """W6: while they run; afterwards all of it is in the conversation."""
    first, second, after = (ScriptedModel([[call("mail", {"to": n})], n]) for n in "xyz")
    both = side(Agent("a", first, tools=[mail]), Agent("b", second, tools=[mail]))
    flow = Agent(
        "flow", mode=Sequential([agent("w", "draft"), both, Agent("c", after, tools=[mail])])
    )
    completed(flow.execute_sync("go"))
    for model in (first, second):
        for request in model.requests:
            assert told_by_users(request) == ["go", "[w] said: draft"]
    told = told_by_users(after.requests[0])
    assert "[a] said: x" in told
    assert told.index("[a] said: x") < told.index("[b] said: y")


def test_changes_of_values_are_merged_in_declared_order_and_nothing_is_put_back() -> None:
    """W5, W6: who did not touch a value does not undo what another did to it."""

    def setting(delta: dict[str, Any]) -> Any:
        @tool
        async def put() -> ToolResult[str]:
            return ToolResult("put", state=delta)

        return put

    both = side(
        agent("a", call("put"), "x", tools=[setting({"k": {"a": 1}, "last": "a"})]),
        agent("b", call("put"), "y", tools=[setting({"k": {"b": 2}, "last": "b"})]),
        agent("c", "z", output_key="c"),
    )
    outcome = completed(both.execute_sync("go", state=AgentState(values={"k": {"z": 0}, "o": 1})))
    assert outcome.state.values == {
        "k": {"z": 0, "a": 1, "b": 2},
        "last": "b",
        "o": 1,
        "c": "z",
    }


async def test_one_failure_cancels_the_rest_and_fails_the_whole() -> None:
    """W6: what the others had done is kept, a call in the middle is in doubt."""
    entered = asyncio.Event()

    @tool
    async def slow() -> str:
        entered.set()
        await never()
        return ""

    async def fails(_: Any) -> str:
        await entered.wait()
        raise ValueError("down")

    both = side(
        agent("a", ["working", call("slow")], tools=[slow]),
        agent("b", fails),
        agent("c", "done"),
    )
    outcome = await soon(both.execute("go"))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AgentFailed)
    assert outcome.error.agent == "b"
    assert authors(outcome.state) == [None, "a", "a", "c"]
    assert [doubt.tool_name for doubt in outcome.state.doubts.values()] == ["slow"]
    assert outcome.state.children == {}
    assert outcome.usage.requests == 2
    assert reloaded(outcome.state) == outcome.state


async def test_a_failure_ends_a_sibling_that_waits_for_a_person() -> None:
    """W6: nobody is asked for the sake of a workflow that has failed."""
    held = Held(ValueError("down"))

    async def fails(request: Any) -> Any:
        raise await held(request)

    asks = agent("a", call("mail", {"to": "ann"}), tools=[mail], interrupt_on={"mail": True})
    both = side(asks, agent("b", fails))
    told = asyncio.Event()
    running = asyncio.ensure_future(
        both.execute("go", on_event=lambda e: told.set() if e.kind == "request_made" else None)
    )
    await soon(told.wait())
    held.release.set()
    outcome = await soon(running)
    assert isinstance(outcome, Failed)
    assert outcome.state.requests == ()
    assert [part.outcome for part in results(outcome.state)] == ["interrupted"]


def test_with_return_failures_the_others_finish_and_the_failure_is_a_result() -> None:
    """W6."""
    both = side(agent("a", "one"), agent("b", ValueError("down")), return_failures=True)
    outcome = completed(both.execute_sync("go"))
    assert [(r.agent, r.outcome) for r in outcome.results] == [("a", "completed"), ("b", "failed")]
    assert outcome.results[1].error is not None
    assert outcome.results[1].error["type"] == "ModelFailed"
    assert outcome.text.startswith("[a] one\n\n[b] failed: No model answered")


def test_several_may_wait_for_persons_at_once_and_each_answer_finds_its_own() -> None:
    """S5, W7: the others finish first; some answers are enough to continue some."""

    def both() -> Agent:
        asking = [
            agent(n, call("mail", {"to": n}, id=f"c{n}"), f"done {n}", tools=[mail]) for n in "ab"
        ]
        return side(*asking, agent("c", "free"), interrupt_on={"mail": True})

    outcome = interrupted(both().execute_sync("go"))
    assert [r.arguments for r in outcome.requests] == [{"to": "a"}, {"to": "b"}]
    second = outcome.requests[1]
    flow = both_with("done b")
    part = interrupted(flow.resume_sync(reloaded(outcome.state), {second.id: approve()}))
    assert [r.arguments for r in part.requests] == [{"to": "a"}]
    flow = both_with("done a")
    done = completed(flow.resume_sync(reloaded(part.state), part.decide(approve())))
    assert [r.text for r in done.results] == ["done a", "done b", "free"]
    assert done.usage.requests == 5


def both_with(reply: str) -> Agent:
    """The same agents in another process, whose models say this next."""
    asking = [agent(n, reply, tools=[mail]) for n in "ab"]
    return side(*asking, agent("c"), interrupt_on={"mail": True})


def test_a_paused_branch_pauses_the_whole_after_the_others_are_done() -> None:
    def both(*replies: str) -> Agent:
        pauses = agent("a", *replies, pause_when=lambda: bool(replies))
        return side(pauses, agent("b", *replies))

    outcome = both("x").execute_sync("go")
    assert isinstance(outcome, Paused)
    done = completed(both().resume_sync(reloaded(outcome.state)))
    assert done.text == "[a] x\n\n[b] x"


def test_a_crash_while_one_has_failed_does_not_start_the_others_again() -> None:
    """W6, W7: wherever the process went away, the end is the failure of the same agent."""

    def both() -> Agent:
        return side(agent("a", ValueError("down")), agent("b", "x", "y"))

    disk = Disk()
    assert isinstance(both().execute_sync("go", journal=disk), Failed)
    for limit in range(1, len(disk.lines)):
        cut = Disk(limit)
        with pytest.raises(Crash):
            both().execute_sync("go", journal=cut)
        failed_before = any('"outcome": "failed"' in line for line in cut.lines)
        again = Disk()
        outcome = both().resume_sync(cut.load(), journal=again)
        assert isinstance(outcome, Failed), limit
        assert isinstance(outcome.error, AgentFailed)
        assert outcome.error.agent == "a"
        if failed_before:
            assert outcome.usage.requests <= 1
            records = [json.loads(line) for line in again.lines[1:]]  # after the snapshot
            begun = [r["name"] for r in records if r.get("record", {}).get("kind") == "attempt"]
            assert begun in ([], ["a"]), limit


async def test_what_is_no_exception_in_one_branch_ends_them_all() -> None:
    """A8: it is the host's to see, and no task is left."""

    class Gone(BaseException):
        pass

    entered = asyncio.Event()

    async def leaves(_: Any) -> Any:
        await entered.wait()
        raise Gone

    async def waits(_: Any) -> Any:
        entered.set()
        await never()

    with pytest.raises(Gone):
        await soon(side(agent("a", waits), agent("b", leaves)).execute("go"))


async def test_cancelling_the_task_cancels_every_branch() -> None:
    """J13: it writes nothing."""
    one, two, disk = Held(), Held(), Disk()
    both = side(agent("a", one), agent("b", two))
    task = asyncio.ensure_future(both.execute("go", journal=disk))
    await soon(one.entered.wait())
    await soon(two.entered.wait())
    count = len(disk.lines)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(disk.lines) == count


def test_parallel_agents_take_turns_in_a_loop_and_then_see_each_other() -> None:
    """W5, W6: a branch ends with its round."""
    models = [ScriptedModel([f"{n}1", f"{n}2"]) for n in "ab"]
    both = side(*(Agent(n, m) for n, m in zip("ab", models, strict=True)))
    rounds = Agent("rounds", mode=Loop([both], max_iterations=2))
    outcome = completed(rounds.execute_sync("go"))
    assert authors(outcome.state) == [None, "a", "b", "a", "b"]
    assert told_by_users(models[0].requests[1]) == ["go", "[b] said: b1"]
    assert told_by_users(models[1].requests[1])[:2] == ["go", "[a] said: a1"]


def test_one_agent_side_by_side_with_nobody_is_fine() -> None:
    assert completed(side(agent("a", "x")).execute_sync("go")).text == "[a] x"


def test_return_failures_is_yes_or_no() -> None:
    with pytest.raises(UsageError, match="return_failures"):
        Parallel([agent("a")], return_failures="yes")  # type: ignore[arg-type]  # on purpose


def test_a_branch_that_waits_does_not_hide_one_that_pauses() -> None:
    """Requests come first: an answer lets the asking branch continue."""
    asks = agent("a", call("mail", {"to": "x"}), tools=[mail], interrupt_on={"mail": True})
    pauses = agent("b", "x", pause_when=lambda: True)
    outcome = side(asks, pauses).execute_sync("go")
    assert isinstance(outcome, Interrupted)
    assert outcome.state.pause == "pause_when"


async def test_an_agent_that_ended_before_a_failure_cancelled_it_keeps_its_end() -> None:
    """W6: its end is recorded, and its task still waits for the journal when a sibling fails."""
    one_ended = asyncio.Event()

    class SlowForTheFirst:
        """Makes durable whatever is recorded, but not in the task that waits for it first."""

        has_unflushed = True

        def append(self, records: Any) -> None: ...

        async def durable(self) -> None:
            if not one_ended.is_set() and side_state.run_is_over("a"):
                one_ended.set()
                await never()

    class Ends:
        """Looks at the state of the workflow, which a hook of it is given."""

        run: Any = None

        def run_is_over(self, name: str) -> bool:
            children = self.run.state.children.values() if self.run is not None else ()
            return any(c.run is not None and c.run.agent == name and c.run.over for c in children)

    side_state = Ends()

    class Looks(Middleware):
        async def on_run_start(self, run: Run) -> None:
            side_state.run = run

    async def fails(_: Any) -> Any:
        await one_ended.wait()
        raise OSError("no line")

    both = side(agent("a", "well done"), agent("b", fails), middleware=[Looks()])
    outcome = await soon(both.execute("go", journal=SlowForTheFirst()))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AgentFailed)
    assert outcome.error.agent == "b"
    assert authors(outcome.state).count("a") == 1


async def test_stopping_while_branches_work_cuts_off_no_call() -> None:
    """A5, W6: each branch records the step in progress, also when another has stopped already."""
    inside = {"a": asyncio.Event(), "b": asyncio.Event()}
    leave = {"a": asyncio.Event(), "b": asyncio.Event()}
    ran: list[str] = []

    @tool
    async def work(name: str) -> str:
        ran.append(name)
        inside[name].set()
        await leave[name].wait()
        return name

    both = side(
        *(
            Agent(name, by_turn([call("work", {"name": name})], "done"), tools=[work])
            for name in inside
        )
    )
    async with Runtime(agents=[both]) as runtime:
        ref = runtime.spawn("side", id="one")
        future = ref.run("go")
        for event in inside.values():
            await soon(event.wait())
        stopping = ref.stop(block=False)
        for event in leave.values():
            for _ in range(20):
                await asyncio.sleep(0)  # the stop arrives; then a branch ends its step
            event.set()
        await soon(stopping)
        await wake(ref)  # so that the run continues
        outcome = completed(await soon(future))
        assert [result.text for result in outcome.results] == ["done", "done"]
        assert outcome.state.doubts == {}
        assert sorted(ran) == ["a", "b"]
