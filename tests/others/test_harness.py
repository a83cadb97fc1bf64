"""Capabilities of `pydantic-ai-harness` in an agent of Pydantic AI that is carried over (M9)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelResponse
from pydantic_ai_harness import (
    CodeMode,
    DynamicWorkflow,
    FileSystem,
    Planning,
    Shell,
    SlidingWindowCompaction,
    ToolOutputLimits,
)
from pydantic_ai_harness.planning import SqlitePlanStore

from tests.support.agents import by_turn, completed, contents, interrupted, reloaded
from understudy import Agent, ScriptedModel, UsageError, approve, call
from understudy.models import ScriptedRequest

pytestmark = [pytest.mark.others, pytest.mark.filterwarnings("ignore")]


def carried(*turns: Any, capability: Any, tools: Any = (), **options: Any) -> Agent[Any, Any]:
    """The agent "desk" with this capability, whose model replies these turns."""
    agent: Any = PydanticAgent(
        by_turn(*turns), name="desk", capabilities=[capability], tools=list(tools)
    )
    return Agent.from_pydantic_ai(agent, **options)


def test_a_file_is_read_at_once_and_written_when_a_person_approves(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a kettle")
    write = call("write_file", {"path": "b.txt", "content": "a pan"})

    def made() -> Agent[Any, Any]:
        return carried(
            call("read_file", {"path": "a.txt"}),
            write,
            capability=FileSystem(root_dir=tmp_path),
            interrupt_on={"write_file": True},
            tool_options={"read_file": {"read_only": True}},
        )

    first = interrupted(made().execute_sync("go"))
    assert "a kettle" in str(contents(first.state))
    assert not (tmp_path / "b.txt").exists()
    completed(made().resume_sync(reloaded(first.state), approve()))
    assert (tmp_path / "b.txt").read_text() == "a pan"


def test_no_path_leads_out_of_its_folder(tmp_path: Path) -> None:
    agent = carried(
        call("read_file", {"path": "../../etc/passwd"}), capability=FileSystem(root_dir=tmp_path)
    )
    ((how, said),) = contents(completed(agent.execute_sync("go")).state)
    assert how == "failed"
    assert "outside the root" in said


def test_a_command_runs_when_a_person_approves(tmp_path: Path) -> None:
    def made() -> Agent[Any, Any]:
        run = call("run_command", {"command": "echo hi > made"})
        shell = Shell(cwd=tmp_path)
        return carried(run, capability=shell, interrupt_on={"run_command": True})

    first = interrupted(made().execute_sync("go"))
    assert not (tmp_path / "made").exists()
    completed(made().resume_sync(reloaded(first.state), approve()))
    assert (tmp_path / "made").read_text() == "hi\n"


def test_a_command_in_the_background_ends_with_the_attempt(tmp_path: Path) -> None:
    def reply(request: ScriptedRequest) -> Any:
        turn = sum(isinstance(message, ModelResponse) for message in request.messages)
        if turn == 0:
            return call("start_command", {"command": "echo $$ > pid; exec sleep 600"})
        if turn == 1:
            found = re.search(r"ID: (\w+)", str(request.messages))
            assert found
            return call("check_command", {"command_id": found[1]})
        return (
            call("run_command", {"command": "until [ -s pid ]; do :; done"}) if turn == 2 else "x"
        )

    given: Any = PydanticAgent(
        ScriptedModel(reply), name="desk", capabilities=[Shell(cwd=tmp_path)]
    )
    outcome = completed(Agent.from_pydantic_ai(given).execute_sync("go"))
    assert "running" in str(contents(outcome.state)[1])
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_a_plan_in_a_store_is_there_after_a_wait(tmp_path: Path) -> None:
    def ask() -> str:
        """Ask."""
        return "asked"

    plan = call("write_plan", {"items": [{"content": "boil", "status": "in_progress"}]})

    def made() -> Agent[Any, Any]:
        store = SqlitePlanStore(str(tmp_path / "plan.db"), session="desk")
        return carried(
            plan,
            call("ask"),
            call("read_plan"),
            capability=Planning(store=store),
            tools=[ask],
            interrupt_on={"ask": True},
        )

    first = interrupted(made().execute_sync("go"))
    outcome = completed(made().resume_sync(reloaded(first.state), approve()))
    assert "boil" in str(contents(outcome.state)[-1])


def test_a_long_result_is_cut_and_can_be_read_on() -> None:
    def long() -> str:
        """Say much."""
        return "kettle\n" * 5000

    def reply(request: ScriptedRequest) -> Any:
        turn = sum(isinstance(message, ModelResponse) for message in request.messages)
        if turn == 0:
            return call("long")
        handle = re.search(r"handle='([^']+)'", str(request.messages))
        assert handle
        return call("read_tool_result", {"handle": handle[1], "limit": 2}) if turn == 1 else "done"

    given: Any = PydanticAgent(
        ScriptedModel(reply), name="desk", capabilities=[ToolOutputLimits()], tools=[long]
    )
    outcome = completed(Agent.from_pydantic_ai(given).execute_sync("go"))
    cut, read = (str(content) for _, content in contents(outcome.state))
    assert len(cut) < 5000
    assert "kettle\nkettle" in read


def asked(request: ScriptedRequest) -> list[str]:
    """What the parts of the messages of a request are."""
    return [part.part_kind for each in request.messages for part in each.parts]


def test_a_long_conversation_is_cut_for_the_model_and_whole_in_the_records() -> None:
    def look(at: int) -> str:
        """Look."""
        return f"seen {at}"

    requests: list[list[str]] = []

    def reply(request: ScriptedRequest) -> Any:
        requests.append(asked(request))
        return call("look", {"at": len(requests)}) if len(requests) < 6 else "done"

    def made() -> Agent[Any, Any]:
        window = SlidingWindowCompaction(max_messages=4, keep_messages=2)
        given: Any = PydanticAgent(
            ScriptedModel(reply), name="desk", capabilities=[window], tools=[look]
        )
        return Agent.from_pydantic_ai(given, interrupt_on={"look": True})

    outcome = made().execute_sync("go")
    for _ in range(5):
        outcome = made().resume_sync(reloaded(interrupted(outcome).state), approve())
    state = completed(outcome).state
    # No result is without its call, and the first message stays.
    assert requests == [["user-prompt"], *[["user-prompt", "tool-call", "tool-return"]] * 5]
    assert contents(state) == [("success", f"seen {at}") for at in range(1, 6)]
    assert len(state.messages) == 12


@pytest.mark.parametrize(
    ("capability", "error"),
    [
        (CodeMode(), "CodeMode, whose tool calls other tools inside of its own call"),
        (
            DynamicWorkflow(agents=[PydanticAgent("test", name="helper")]),
            "DynamicWorkflow, whose tool calls other tools inside of its own call",
        ),
        (Planning(), "Planning, which keeps in memory.*store="),
        (Shell(persist_cwd=True), "Shell, which keeps in memory.*persist_cwd"),
    ],
)
def test_what_would_be_lost_is_named(capability: Any, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        carried(capability=capability)
