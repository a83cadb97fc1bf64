"""A nested workflow that is cut off anywhere comes back to its place and ends the same way (W7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, UserPromptPart

from tests.support.agents import assert_valid_history, by_turn, reloaded
from tests.support.cut_off import Crash, Disk, ids, told
from tests.support.loops import never, soon
from understudy import (
    Agent,
    AgentState,
    Completed,
    Interrupted,
    Outcome,
    Paused,
    Runtime,
    ScriptedModel,
    Stopped,
    ToolContext,
    ToolResult,
    approve,
    call,
    tool,
)
from understudy.middleware import Middleware
from understudy.modes import Loop, Parallel, Sequential
from understudy.state.records import Record
from understudy.tools import exit_loop


def newsroom(ran: list[str], *middleware: Middleware) -> Agent:
    """A loop in a sequence beside an agent with tools; an agent of the loop asks for approval."""

    @tool(idempotent=True)
    async def check(ctx: ToolContext, fact: str) -> ToolResult[str]:
        ran.append(ctx.call_key)
        return ToolResult(f"{fact} holds", state={"checked": {fact: ctx.agent_path[-1]}})

    @tool(idempotent=True)
    async def publish(ctx: ToolContext, text: str) -> ToolResult[str]:
        ran.append(ctx.call_key)
        return ToolResult(f"published {text}", state={"published": [text]})

    writer = Agent("writer", by_turn("draft 1"), output_key="doc", middleware=middleware)
    critic = Agent(
        "critic",
        by_turn(
            [call("check", {"fact": "a"}, id="a")],
            "too long",
            [call("check", {"fact": "b"}, id="b")],
            "fine",
        ),
        "Judge {doc}.",
        tools=[check],
        output_key="critique",
        middleware=middleware,
    )
    refiner = Agent(
        "refiner",
        by_turn(
            "draft 2", [call("publish", {"text": "draft 2"}, id="p")], [call("exit_loop", id="x")]
        ),
        "Mend {doc} by {critique}.",
        tools=[publish, exit_loop],
        interrupt_on={"publish": True},
        output_key="doc",
        middleware=middleware,
    )
    improve = Agent("improve", mode=Loop([critic, refiner], max_iterations=4))
    scout = Agent(
        "scout",
        by_turn(
            [call("check", {"fact": "c"}, id="c"), call("check", {"fact": "d"}, id="d")], "scouted"
        ),
        tools=[check],
        output_key="scouted",
        middleware=middleware,
    )
    desk = Agent("desk", mode=Sequential([writer, improve]))
    return Agent("news", mode=Parallel([desk, scout]))


def to_the_end(agent: Agent, outcome: Outcome, **options: Any) -> Outcome:
    while not isinstance(outcome, Completed):
        state = reloaded(outcome.state)
        assert isinstance(outcome, (Interrupted, Paused)), outcome
        answers = None
        if isinstance(outcome, Interrupted):
            assert [r.tool_name for r in outcome.requests] == ["publish"]
            assert [r.agent_path for r in outcome.requests] == [
                ("news", "desk", "improve", "refiner")
            ]
            answers = {request.id: approve() for request in outcome.requests}
        outcome = agent.resume_sync(state, answers, new_id=ids(), **options)
    return outcome


def whole() -> tuple[dict[str, Any], Disk, list[str]]:
    """An undisturbed life."""
    disk, ran = Disk(), list[str]()
    agent = newsroom(ran)
    outcome = agent.execute_sync("Kettles.", journal=disk, new_id=ids())
    return told(to_the_end(agent, outcome, journal=disk)), disk, ran


def finished(lines: Sequence[str]) -> set[str]:
    keys = set()
    for record in map(json.loads, lines):
        while record["kind"] == "child_record":
            record = record["record"]
        if record["kind"] == "result":
            keys.add(record["call_key"])
    return keys


def life(disk: Disk, ran: list[str]) -> Outcome:
    agent = newsroom(ran)
    outcome = agent.execute_sync("Kettles.", journal=disk, new_id=ids())
    return to_the_end(agent, outcome, journal=disk)


def goes_on(disk: Disk, end: dict[str, Any], where: str, **options: Any) -> None:
    """Another process continues from what was recorded, to the same end; nothing runs again."""
    after: list[str] = []
    agent = newsroom(after)
    outcome = agent.resume_sync(disk.load(), new_id=ids(), **options)
    assert told(to_the_end(agent, outcome, **options)) == end, where
    assert not finished(disk.lines) & set(after), where
    assert len(after) == len(set(after)), where


def test_undisturbed_the_rounds_go_in_order_and_each_call_runs_once() -> None:
    end, _, ran = whole()
    assert len(ran) == len(set(ran)) == 5
    assert end["values"] == {
        "doc": "draft 2",
        "critique": "fine",
        "checked": {"a": "critic", "b": "critic", "c": "scout", "d": "scout"},
        "published": ["draft 2"],
        "scouted": "scouted",
    }


@pytest.mark.slow
def test_a_nested_workflow_that_crashes_after_any_record_ends_the_same_way() -> None:
    end, whole_disk, _ = whole()
    for limit in range(1, len(whole_disk.lines)):
        disk = Disk(limit)
        with pytest.raises(Crash):
            life(disk, [])
        goes_on(disk, end, f"cut after record {limit}")


@pytest.mark.parametrize("more", [9, 10, 11, 14])
@pytest.mark.slow
def test_it_ends_the_same_way_if_it_crashes_again_and_again(more: int) -> None:
    """Each process keeps some records, of which most may tell that it tries, and goes away."""
    end, _, _ = whole()
    disk, ran = Disk(1), list[str]()
    with pytest.raises(Crash):
        life(disk, ran)
    for _ in range(100):
        disk.limit = len(disk.lines) + more
        agent = newsroom(ran)
        try:
            outcome = agent.resume_sync(disk.load(), new_id=ids(), journal=_Behind(disk))
            final = to_the_end(agent, outcome, journal=_Behind(disk))
        except Crash:
            continue
        assert told(final) == end
        return
    raise AssertionError("it never came to its end")


class _Behind:
    """The same disk for a later process: it holds the past already, so it takes no snapshot."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def append(self, records: Sequence[Record]) -> None:
        self.disk.append([record for record in records if record.kind != "snapshot"])

    @property
    def has_unflushed(self) -> bool:
        return False

    async def durable(self) -> None:
        return


class CancellingDisk(Disk):
    """Cancels the task of the run when so many records are kept, as a host that goes down does."""

    cancel: Callable[[], object]

    def append(self, records: Sequence[Record]) -> None:
        for record in records:
            super().append([record])
            if len(self.lines) == self.at:
                self.cancel()

    at = 0


@pytest.mark.slow
def test_a_nested_workflow_that_is_cancelled_after_any_record_ends_the_same_way() -> None:
    """J13: nobody recorded the wish to cancel it, so it is a crash."""
    end, whole_disk, _ = whole()
    reached = set()
    for limit in range(1, len(whole_disk.lines)):
        disk = CancellingDisk()
        disk.at = limit

        async def main(disk: CancellingDisk = disk) -> Outcome:
            task = asyncio.current_task()
            assert task is not None
            disk.cancel = task.cancel
            agent = newsroom([])
            return await agent.execute("Kettles.", journal=disk, new_id=ids())

        try:
            outcome = asyncio.run(main())
        except asyncio.CancelledError:
            reached.add(limit)
            goes_on(disk, end, f"cancelled at record {limit}")
        else:
            agent = newsroom([])
            assert told(to_the_end(agent, outcome)) == end
    assert len(reached) > len(whole_disk.lines) / 3


def test_a_nested_workflow_that_pauses_after_each_reply_ends_the_same_way() -> None:
    """R7: the host's `pause_when` is asked after each reply of each agent in it."""
    end, _, _ = whole()
    ran: list[str] = []
    agent = newsroom(ran)
    pauses: list[str] = []

    def pause() -> str:
        pauses.append("asked")
        return "look first"

    outcome = agent.execute_sync("Kettles.", pause_when=pause, new_id=ids())
    assert isinstance(outcome, Paused)
    assert told(to_the_end(agent, outcome, pause_when=pause)) == end
    assert len(pauses) == end["model_calls"]
    assert len(ran) == len(set(ran))


def test_a_state_in_the_middle_is_the_fold_of_the_records() -> None:
    """What is in memory is what another process would load, after every record."""
    disk = Disk()
    agent = newsroom([])
    outcome = agent.execute_sync("Kettles.", journal=disk, new_id=ids())
    assert isinstance(outcome, Interrupted)
    assert disk.load() == outcome.state == AgentState.from_dict(outcome.state.to_dict())


def test_a_workflow_whose_actor_dies_in_the_middle_goes_on_there() -> None:
    """A3, W7: the supervisor starts another actor, and the waiting caller gets the outcome."""
    first, illness = ScriptedModel(["one"]), [SystemExit("bang"), SystemExit("bang")]
    second = ScriptedModel(lambda _: illness.pop() if illness else "two")
    line = Agent("line", mode=Sequential([Agent("a", first), Agent("b", second)]))
    flow = Agent("flow", mode=Parallel([line, Agent("c", ScriptedModel(["three", "three"]))]))
    with Runtime(agents=[flow]) as runtime:
        outcome = runtime.spawn("flow", id="one").run("go").get(timeout=60)
    assert isinstance(outcome, Completed)
    assert outcome.text == "[line] two\n\n[c] three"
    assert len(first.requests) == 1


class WaitsAt(Middleware):
    """The n-th model call of all agents together never comes back."""

    def __init__(self, place: int) -> None:
        self.left = place
        self.reached = asyncio.Event()

    async def before_model(self, run: Any, request: Any) -> None:
        self.left -= 1
        if self.left == 0:
            self.reached.set()
            await never()


@pytest.mark.parametrize("place", range(1, 9))
async def test_a_workflow_is_cancelled_at_any_model_call_and_nothing_of_it_is_left(
    place: int,
) -> None:
    """P7, S6: what was finished is kept; the next message starts it anew."""
    waits = WaitsAt(place)
    async with Runtime(agents=[newsroom([], waits)]) as runtime:
        ref = runtime.spawn("news", id="one")
        running = ref.run("Kettles.")
        await soon(waits.reached.wait())
        await soon(ref.cancel())
        outcome = await soon(running)
        assert isinstance(outcome, Stopped)
        assert outcome.state.children == {}
        assert outcome.state.requests == ()
        assert reloaded(outcome.state) == outcome.state
        assert_valid_history(outcome.state)
        assert outcome.usage.requests >= place - 2, "one more may have been on its way"
        again = await soon(ref.run("Kettles, again."))
        assert isinstance(again, (Completed, Interrupted))


def test_records_grow_with_the_rounds_and_not_with_their_square() -> None:
    """W5: what an agent shares is not written down again each time."""

    def size(rounds: int) -> int:
        disk = Disk()
        agents = [Agent(name, ScriptedModel(lambda _: "x" * 50)) for name in "ab"]
        mode = Loop(agents, max_iterations=rounds)
        Agent("rounds", mode=mode).execute_sync("go", journal=disk)
        return sum(map(len, disk.lines))

    ten, twenty, thirty = size(10), size(20), size(30)
    assert thirty - twenty < 1.05 * (twenty - ten)


def test_what_an_agent_said_before_its_history_was_replaced_goes_through_json() -> None:
    class Summary(Middleware):
        async def before_model(self, run: Any, request: Any) -> None:
            async def shorten() -> None:
                await run.replace_history([ModelRequest(parts=[UserPromptPart("in short")])])

            if run.current.turns == 1:
                await run.once("shorten", shorten)

    @tool
    async def publish(text: str) -> str:
        return "out"

    def flow(*replies: Any) -> Agent:
        writer = Agent(
            "writer",
            ScriptedModel(list(replies)),
            tools=[publish],
            middleware=[Summary()],
            interrupt_on={"publish": {"when": lambda arguments, ctx: arguments["text"] == "b"}},
        )
        return Agent("flow", mode=Sequential([writer]))

    calls = [[call("publish", {"text": text}, id=text)] for text in "ab"]
    outcome = flow(*calls).execute_sync("go")
    assert isinstance(outcome, Interrupted)
    done = flow("done").resume_sync(reloaded(outcome.state), outcome.decide(approve()))
    assert isinstance(done, Completed)
    kinds = [[part.part_kind for part in message.parts] for message in done.state.messages]
    assert kinds == [
        ["user-prompt"],
        ["tool-call"],
        ["tool-return"],
        ["tool-call"],
        ["tool-return"],
        ["text"],
    ]
