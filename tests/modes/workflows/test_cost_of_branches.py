"""What agents of a workflow cost together: what they share is made once (W6)."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from tests.support.agents import completed
from understudy import (
    Agent,
    AgentState,
    Interrupted,
    Runtime,
    ScriptedModel,
    approve,
    call,
    tool,
)
from understudy.errors import UsageError
from understudy.middleware import SubAgent
from understudy.modes import Loop, Parallel, Sequential


class Keeping(Model):
    """Answers at once, and keeps what it was sent and what it was asked to prepare."""

    model_name = system = "keeping"

    def __init__(self, sent: list[list[ModelMessage]], prepared: list[int]) -> None:
        super().__init__()
        self._sent, self._prepared = sent, prepared

    def prepare_messages(self, messages: list[ModelMessage], *rest: Any) -> list[ModelMessage]:
        self._prepared.append(len(messages))
        return super().prepare_messages(messages, *rest)

    async def request(self, messages: list[ModelMessage], *_: Any) -> ModelResponse:
        self._sent.append(list(messages))
        return ModelResponse([TextPart("Done.")], usage=RequestUsage(input_tokens=1))


class Branches:
    """A `Parallel` of so many agents that have all been asked once, and its last state."""

    def __init__(self, count: int, **options: Any) -> None:
        self.sent: list[list[ModelMessage]] = []
        self.prepared: list[int] = []
        model = Keeping(self.sent, self.prepared)
        agents = [Agent(f"b{index}", model, **options) for index in range(count)]
        self.agent = Agent("flow", mode=Parallel(agents))
        self.state = AgentState()
        self.run()

    def run(self) -> None:
        self.sent.clear()
        self.prepared.clear()
        self.state = completed(self.agent.execute_sync("Again.", state=self.state)).state


def calls_of(function: Callable[[], object]) -> int:
    """How many functions are called, in Python and in C: the same on any machine."""
    count = 0

    def profile(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("contents", ["default", "none"])
def test_a_branch_takes_as_many_calls_however_many_there_are(contents: str) -> None:
    """W6."""
    few, many = (Branches(count, include_contents=contents) for count in (10, 80))
    one = calls_of(few.run) / 10
    assert calls_of(many.run) / 80 < 1.1 * one
    # The third run has twice as much to send.
    assert calls_of(many.run) / 80 < 1.1 * one


def test_branches_are_sent_the_very_same_messages_but_for_their_own() -> None:
    """W6."""
    branches = Branches(40)
    branches.run()
    sent = [message for messages in branches.sent for message in messages]
    assert len(sent) == 40 * 42  # a prompt, what each has said, a prompt
    # What each has said is there twice: in its own view, and in words in all others.
    assert len({id(message) for message in sent}) == 2 + 2 * 40
    assert branches.prepared == []


def test_a_later_run_puts_into_words_only_what_is_new() -> None:
    branches = Branches(40)
    branches.run()
    before = {id(message): message for messages in branches.sent for message in messages}
    branches.run()
    new = [each for messages in branches.sent for each in messages if id(each) not in before]
    assert len({id(message) for message in new}) == 1 + 2 * 40


def test_an_agent_of_a_sequence_or_a_loop_costs_the_same_behind_many_others() -> None:
    def line(count: int) -> Callable[[], object]:
        agents = [Agent(f"a{index}", ScriptedModel(lambda _: "Said.")) for index in range(count)]
        flow = Agent("flow", mode=Loop([Agent("line", mode=Sequential(agents))], max_iterations=1))
        flow.execute_sync("Go.")
        return lambda: flow.execute_sync("Go.")

    assert calls_of(line(60)) / 60 < 1.1 * calls_of(line(10)) / 10


def test_runs_in_two_threads_from_one_state_get_the_same_conversation() -> None:
    model = ScriptedModel(lambda request: f"{len(request.messages)} messages")
    agents = [Agent(f"b{index}", model) for index in range(8)]
    flow = Agent("flow", mode=Sequential([Agent("both", mode=Parallel(agents))]))
    state = AgentState()
    for _ in range(5):
        state = completed(flow.execute_sync("Go.", state=state)).state
    state = AgentState.from_dict(state.to_dict())  # nothing of it is in words yet
    texts: list[str] = []

    def run() -> None:
        texts.append(completed(flow.execute_sync("Go.", state=state)).text)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 4
    assert len(set(texts)) == 1


class Asking(Model):
    """Calls a tool in each run, with an id of its own for each call, and then answers."""

    model_name = system = "asking"

    def __init__(self, tool_name: str = "look") -> None:
        super().__init__()
        self.tool_name: str | None = tool_name
        self._calls = 0

    async def request(self, messages: list[ModelMessage], *_: Any) -> ModelResponse:
        await asyncio.sleep(0)  # all others begin before this one goes on
        has_result = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        if has_result or self.tool_name is None:
            return ModelResponse([TextPart("Done.")], usage=RequestUsage(input_tokens=1))
        self._calls += 1
        asked = ToolCallPart(self.tool_name, {"what": self._calls}, f"call-{self._calls}")
        return ModelResponse([asked], usage=RequestUsage(input_tokens=1))


async def look(what: int) -> str:
    """Look something up."""
    await asyncio.sleep(0)
    return f"found {what}"


def branches_with_a_tool(count: int, **options: Any) -> tuple[Agent, Asking]:
    model = Asking()
    agents = [Agent(f"b{index}", model, tools=[look], **options) for index in range(count)]
    return Agent("flow", mode=Parallel(agents)), model


def test_a_branch_that_calls_a_tool_takes_as_many_calls_however_many_there_are() -> None:
    """W6."""

    def second_run(count: int) -> float:
        flow, _ = branches_with_a_tool(count)
        state = completed(flow.execute_sync("Go.")).state
        return calls_of(lambda: flow.execute_sync("Go.", state=state)) / count

    assert second_run(40) < 1.1 * second_run(10)


def test_a_call_in_doubt_makes_the_calls_of_other_branches_no_dearer_by_their_number() -> None:
    """W6."""

    @tool(timeout=0.001)
    async def lose(what: int) -> str:
        """Do something, and be cut off."""
        await asyncio.Event().wait()
        return "never"

    def run(count: int) -> float:
        losing = Agent("losing", Asking("lose"), tools=[lose])
        model = Asking()
        agents = [Agent(f"b{index}", model, tools=[look]) for index in range(count)]
        flow = Agent("flow", mode=Parallel([losing, *agents]))
        outcome = flow.execute_sync("Go.")
        assert next(iter(outcome.state.doubts.values())).tool_name == "lose"
        return calls_of(lambda: flow.execute_sync("Go.", state=outcome.state)) / count

    assert run(40) < 1.1 * run(20)


def test_an_agent_of_a_call_takes_as_many_calls_however_many_run_beside_it() -> None:
    def tasks(count: int) -> float:
        parts: list[Any] = [
            call("task", {"task_name": f"kid{index}", "instructions": "Do."})
            for index in range(count)
        ]
        kids = [Agent(f"kid{index}", Asking(), "Do it.", tools=[look]) for index in range(count)]
        above = Agent(
            "above",
            ScriptedModel([parts, "Done."]),
            middleware=[SubAgent(kids, general_purpose=False)],
        )
        return calls_of(lambda: above.execute_sync("Go.")) / count

    assert tasks(40) < 1.1 * tasks(10)


def waiting_branches(count: int) -> tuple[Agent, Interrupted]:
    """Branches that have said something in two runs, and wait for a person in the third one."""
    flow, model = branches_with_a_tool(count, interrupt_on={"look": True})
    model.tool_name = None
    state = AgentState()
    for _ in range(2):
        state = completed(flow.execute_sync("Go.", state=state)).state
    model.tool_name = "look"
    outcome = flow.execute_sync("Go.", state=state)
    assert isinstance(outcome, Interrupted)
    return flow, outcome


def test_the_stored_state_of_a_branch_that_waits_has_what_it_has_said_itself() -> None:
    """W6."""

    def size(count: int) -> float:
        _, outcome = waiting_branches(count)
        return len(json.dumps(outcome.state.to_dict())) / count

    assert size(30) < 1.1 * size(6)


def test_a_branch_whose_state_was_stored_goes_on_with_the_conversation_that_it_was_told() -> None:
    """W6."""
    flow, outcome = waiting_branches(3)
    stored = json.loads(json.dumps(outcome.state.to_dict()))
    read = AgentState.from_dict(stored)
    assert read == outcome.state
    for key, child in outcome.state.children.items():
        assert read.children[key].messages == child.messages
        assert len(child.messages) == 10  # 3 of the user, what 3 have said in 2 runs, the call
    approved = {request.id: approve() for request in read.requests}
    again = completed(flow.resume_sync(AgentState.from_dict(stored), approved))
    assert len(again.state.messages) == 3 + 3 * (2 + 3)


def test_a_stored_branch_that_was_told_what_cannot_be_made_again_is_refused_when_it_is_read() -> (
    None
):
    _, outcome = waiting_branches(2)
    stored = outcome.state.to_dict()
    branch = next(iter(stored["children"].values()))
    branch["run"]["shared"]["inherited"] += 1
    damaged = next(iter(AgentState.from_dict(stored).children.values()))
    with pytest.raises(UsageError, match="damaged"):
        damaged.messages[0]


async def test_branches_that_wait_go_on_after_their_agent_was_compacted_and_activated_again(
    tmp_path: Path,
) -> None:
    flow, model = branches_with_a_tool(3, interrupt_on={"look": True})
    model.tool_name = None
    async with Runtime([flow], store=f"sqlite:///{tmp_path / 'a.db'}") as runtime:
        ref = runtime.spawn("flow", id="a")
        await ref.run("Go.")
        model.tool_name = "look"
        waiting = await ref.run("Go.")
        assert isinstance(waiting, Interrupted)
        await ref.compact()
    async with Runtime([flow], store=f"sqlite:///{tmp_path / 'a.db'}") as runtime:
        ref = runtime.get("a")
        state = await ref.state()
        told = {key: child.messages for key, child in waiting.state.children.items()}
        assert {key: child.messages for key, child in state.children.items()} == told
        outcome = await ref.resume({request.id: approve() for request in state.requests})
        assert len(completed(outcome).state.messages) == 2 + 3 * (1 + 3)
