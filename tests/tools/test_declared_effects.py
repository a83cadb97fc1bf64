"""What a tool, an agent, a runtime or a server says of what it does to call a tool again (T17).

Rules: P7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai.toolsets import FunctionToolset

from tests.support.agents import Stage, by_turn, completed, interrupted, reloaded, results
from tests.support.cut_off import Crash, Disk
from tests.support.loops import never, soon
from tests.support.raw_mcp_server import RawServer, a_tool
from understudy import (
    Agent,
    Interrupted,
    Outcome,
    Runtime,
    ScriptedModel,
    Tool,
    ToolContext,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.mcp import mcp_tools
from understudy.middleware import AskUser, HumanInTheLoop, SubAgent, TodoList, Workspace
from understudy.state.records import Record
from understudy.tools import OutcomeUnknown, as_tools, exit_loop


@pytest.fixture(params=["here", "elsewhere"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(elsewhere=request.param == "elsewhere")


class Shop:
    """A tool that looks something up, or does not: it tells what it was asked, and may fail."""

    def __init__(self, *ends: BaseException | str) -> None:
        self.keys: list[str] = []
        """The call key of each entry."""
        self.ends = list(ends)
        """How the entries end, one after the other; then with "found"."""

    def tool(self, **options: Any) -> Tool[Any]:
        @tool(**options)
        async def look(ctx: ToolContext, item: str = "kettle") -> str:
            self.keys.append(ctx.call_key)
            end = self.ends.pop(0) if self.ends else "found"
            if isinstance(end, BaseException):
                raise end
            return end

        return look

    def agent(self, *turns: Any, tools: Sequence[Any] | None = None, **options: Any) -> Agent:
        own = [self.tool()] if tools is None else tools
        return Agent("desk", by_turn(*(turns or (call("look"),))), tools=own, **options)


def died_in_its_body(agent: Agent, **options: Any) -> Any:
    """The state after the process went away in the body of a tool."""
    disk = Disk()
    with pytest.raises(Crash):
        agent.execute_sync("go", journal=disk, **options)
    return disk.load()


def outcomes(state: Any) -> list[str]:
    return [part.outcome for part in results(state)]


# -------------------------------------------------------------------------- what is said


def test_a_tool_is_read_only_or_idempotent_and_not_both() -> None:
    """T13."""
    both: dict[str, Any] = {"read_only": True, "idempotent": True}
    error = r"Tool 'look': use `read_only` .* or `idempotent` .*, not both"
    with pytest.raises(UsageError, match=error):
        Shop().tool(**both)
    with pytest.raises(UsageError, match=error):
        Tool.from_schema("look", "Looks.", {"type": "object"}, lambda given: given, **both)


@pytest.mark.parametrize("option", ["read_only", "idempotent"])
def test_what_is_neither_yes_nor_no_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=f"`{option}` must be True or False"):
        Shop().tool(**{option: "yes"})


def test_what_undeclared_cannot_mean_is_refused_naming_where_it_was_given() -> None:
    """T13: by the tool, the agent and the runtime."""
    wrong: Any = "idempotent"
    with pytest.raises(UsageError, match="Tool 'look': `undeclared` must be 'effects' or"):
        Shop().tool(undeclared=wrong)
    with pytest.raises(UsageError, match="Agent 'desk': `undeclared` must be 'effects' or"):
        Shop().agent(undeclared=wrong)
    with pytest.raises(UsageError, match="Runtime: `undeclared` must be 'effects' or"):
        Runtime([Shop().agent()], undeclared=wrong)


def test_our_own_tools_say_what_they_do() -> None:
    """T13: what only looks, or is judged by what is inside of it, is read-only."""
    inner = Agent("inner", by_turn())
    stack = [SubAgent([inner]), AskUser(), TodoList(), Workspace()]
    agent = Agent("desk", by_turn(), tools=[exit_loop], middleware=stack)
    effects = {name: each.effect for name, each in agent.definition.tools.items()}
    assert effects == {
        **dict.fromkeys(("exit_loop", "task", "ask_user", "write_todos"), "read_only"),
        **dict.fromkeys(("list_files", "read_file", "search_files"), "read_only"),
        **dict.fromkeys(("write_file", "edit_file", "delete_file", "move_file"), "idempotent"),
    }


# ----------------------------------------------------------------------------- read_only


def test_a_call_that_only_looks_runs_again_after_a_crash_and_is_never_in_doubt(
    stage: Stage,
) -> None:
    """T13, J3, J4."""
    shop = Shop(Crash())
    stage.cast(call("look"), tools=[shop.tool(read_only=True)])
    disk = Disk()
    with pytest.raises(Crash):
        stage.start(journal=disk)
    end = completed(stage.resume(disk.load()))
    assert outcomes(end.state) == ["success"]
    assert end.state.doubts == {}
    assert len(shop.keys) == 2
    assert len(set(shop.keys)) == 1


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("reset"),
        TimeoutError("slow"),
        OutcomeUnknown("no answer"),
        asyncio.CancelledError(),
        ExceptionGroup("both", [ValueError("one"), ConnectionResetError("other")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_call_that_only_looks_raises_the_model_may_look_again(
    error: BaseException,
) -> None:
    """T13, J4: it is no doubt, it is not repeated by itself, and nobody is asked."""
    shop = Shop(error)
    agent = shop.agent(call("look"), call("look"), tools=[shop.tool(read_only=True)])
    end = completed(agent.execute_sync("go"))
    assert outcomes(end.state) == ["failed", "success"]
    assert end.state.doubts == {}
    assert len(set(shop.keys)) == 2, "each is a call of the model"


def test_a_call_that_only_looks_and_takes_too_long_is_an_error_that_names_the_limit() -> None:
    """T6, T13."""
    shop = Shop()

    @tool(read_only=True, timeout=0.01)
    async def look() -> str:
        await never()
        return "late"

    end = completed(shop.agent(tools=[look]).execute_sync("go"))
    assert outcomes(end.state) == ["failed"]
    assert "its limit of 0.01 seconds" in str(results(end.state)[0].content)
    assert end.state.doubts == {}


class Lagging:
    """A journal whose records become durable only when it is waited for."""

    def __init__(self) -> None:
        self.log: list[str] = []
        """The kinds of records as they become durable, and the bodies as they are entered."""
        self.pending: list[Record] = []

    def append(self, records: Sequence[Record]) -> None:
        self.pending.extend(records)

    @property
    def has_unflushed(self) -> bool:
        return bool(self.pending)

    async def durable(self) -> None:
        self.log.extend(record.kind for record in self.pending)
        self.pending.clear()


@pytest.mark.parametrize(
    ("names", "waits"),
    [(["look"], False), (["put"], True), (["look", "put"], True), (["look", "look"], False)],
    ids=str,
)
def test_only_the_start_of_a_call_that_may_harm_is_durable_before_its_body(
    names: list[str], waits: bool
) -> None:
    """T13, J3: a call that only looks may be made again, so nobody waits for the store."""
    journal = Lagging()

    @tool(read_only=True)
    async def look() -> str:
        journal.log.append("body")
        return "found"

    @tool(idempotent=True)
    async def put() -> str:
        journal.log.append("body")
        return "put"

    agent = Agent("desk", by_turn([call(name) for name in names]), tools=[look, put])
    completed(agent.execute_sync("go", journal=journal))
    before = journal.log[: journal.log.index("body")]
    assert before.count("started") == (len(names) if waits else 0)
    assert journal.log.count("started") == len(names)


def test_a_call_that_only_looks_and_that_the_end_of_its_run_finds_is_not_in_doubt() -> None:
    """T13, J4: nothing that it did can harm."""
    for options in ({"read_only": True}, {"idempotent": True}, {}):
        shop = Shop(Crash())
        state = died_in_its_body(shop.agent(tools=[shop.tool(**options)]))
        moved_on = shop.agent("moved on", "moved on", tools=[shop.tool(**options)])
        end = completed(moved_on.execute_sync("never mind", state=state))
        assert outcomes(end.state) == ["interrupted"]
        is_read_only = "read_only" in options
        assert len(end.state.doubts) == (0 if is_read_only else 1)
        assert ("unknown" in str(results(end.state)[0].content)) is not is_read_only


def test_a_call_that_only_looked_is_not_in_doubt_where_its_tool_is_gone() -> None:
    """T13, J4: what the tool was when the call started says that it could not harm."""
    shop = Shop(Crash())
    state = died_in_its_body(shop.agent(tools=[shop.tool(read_only=True)]))
    end = completed(shop.agent(tools=[]).resume_sync(state))
    assert outcomes(end.state) == ["failed"]
    assert "Unknown tool 'look'" in str(results(end.state)[0].content)
    assert end.state.doubts == {}


@pytest.mark.parametrize("then", ["read_only", "idempotent", None])
@pytest.mark.parametrize("now", ["read_only", "idempotent", None])
def test_of_two_declarations_the_one_that_allows_less_holds(
    then: str | None, now: str | None
) -> None:
    """T13, J4: the author who declares a tool anew does not know of the open calls."""
    shop = Shop(Crash())

    def agent(effect: str | None) -> Agent:
        return shop.agent(tools=[shop.tool(**({effect: True} if effect else {}))])

    state = died_in_its_body(agent(then))
    end = completed(agent(now).resume_sync(reloaded(state)))
    if then is None or now is None:
        assert outcomes(end.state) == ["interrupted"]
        assert len(end.state.doubts) == 1
    else:
        assert outcomes(end.state) == ["success"]
        assert len(set(shop.keys)) == 1


@pytest.mark.usefixtures("repeats_at_once")
def test_what_a_call_was_when_it_started_holds_for_its_errors_too() -> None:
    """T13, J28: a tool is called read-only today; the call that is repeated may have harmed."""
    shop = Shop(Crash(), ConnectionError("reset"), ConnectionError("reset"), ConnectionError("no"))
    state = died_in_its_body(shop.agent(tools=[shop.tool(idempotent=True)]))
    end = completed(shop.agent(tools=[shop.tool(read_only=True)]).resume_sync(reloaded(state)))
    assert outcomes(end.state) == ["interrupted"]
    assert len(end.state.doubts) == 1
    assert len(set(shop.keys)) == 1


# --------------------------------------------------------------------------- undeclared


def no_doubts(agent: Agent, **runtime: Any) -> bool:
    """Whether a call of which nobody knows what it did is an error for the model, and no doubt."""

    async def run() -> Outcome:
        async with Runtime([agent], **runtime) as here:
            outcome = await soon(here.spawn("desk", id="a").run("go"))
            if isinstance(outcome, Interrupted):
                outcome = await soon(here.get("a").resume(outcome.decide(approve())))
            return outcome

    outcome = asyncio.run(run())
    if outcome.state.requests:
        assert [request.kind for request in outcome.state.requests] == ["doubt"]
        return False
    (result,) = outcomes(completed(outcome).state)
    assert (result, len(outcome.state.doubts)) in (("failed", 0), ("interrupted", 1))
    return result == "failed"


def looking(**options: Any) -> Tool[Any]:
    """A tool that raises what leaves open what it did."""
    return Shop(ConnectionError("reset")).tool(**options)


@pytest.mark.parametrize(
    ("of_tool", "of_agent", "of_runtime", "covered"),
    [
        (None, None, None, False),
        (None, None, "read_only", True),
        (None, "read_only", None, True),
        ("read_only", None, None, True),
        (None, "effects", "read_only", False),
        ("effects", "read_only", "read_only", False),
        ("read_only", "effects", "effects", True),
        (None, "read_only", "effects", True),
    ],
)
def test_the_nearest_that_says_it_decides_of_a_tool_that_does_not(
    of_tool: Any, of_agent: Any, of_runtime: Any, covered: bool
) -> None:
    """T13: the tool, then its agent, then the runtime; else it has effects."""
    agent = Shop().agent(tools=[looking(undeclared=of_tool)], undeclared=of_agent)
    assert no_doubts(agent, undeclared=of_runtime) is covered


@pytest.mark.parametrize("undeclared", ["read_only", "effects"])
def test_what_a_tool_says_itself_beats_what_undeclared_says(undeclared: Any) -> None:
    """T13."""
    said = Shop().agent(tools=[looking(read_only=True)], undeclared=undeclared)
    assert no_doubts(said) is True


GATES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the tool itself": ({"ask": True}, {}),
    "the tool itself, sometimes": ({"ask": {"when": lambda arguments, ctx: False}}, {}),
    "the agent": ({}, {"interrupt_on": {"look": True}}),
    "a middleware": ({}, {"middleware": [HumanInTheLoop({"look": ["approve"]})]}),
}
"""The options of the tool and of the agent."""


@pytest.mark.parametrize("gate", GATES)
def test_undeclared_never_covers_a_tool_that_a_gate_names(gate: str) -> None:
    """T13: a gate means that its author expects effects, whether a person is asked or not."""
    of_tool, of_agent = GATES[gate]
    agent = Shop().agent(tools=[looking(**of_tool)], undeclared="read_only", **of_agent)
    assert no_doubts(agent) is False


def test_undeclared_never_covers_a_tool_that_a_gate_of_an_agent_above_names() -> None:
    """T13, I9: the same tool is covered where no agent above gates it."""
    for gate, covered in ((None, True), ({"look": {"when": lambda arguments, ctx: False}}, False)):
        inner = Agent("inner", by_turn(call("look")), tools=[looking()], undeclared="read_only")
        task = call("task", {"task_name": "inner", "instructions": "look"})
        stack = [SubAgent([inner], general_purpose=False)]
        desk = Agent("desk", by_turn(task), middleware=stack, interrupt_on=gate)
        end = completed(desk.execute_sync("go"))
        assert len(end.state.doubts) == (0 if covered else 1)


def test_a_gate_that_names_another_tool_uncovers_nothing() -> None:
    """T13."""

    @tool
    def pay() -> str:
        return "paid"

    tools = [looking(), pay]
    gate = {"pay": True}
    agent = Shop().agent(tools=tools, undeclared="read_only", interrupt_on=gate)
    assert no_doubts(agent) is True


def test_a_gate_that_says_that_a_tool_needs_nobody_uncovers_nothing() -> None:
    """T13, I9."""
    agent = Shop().agent(tools=[looking()], undeclared="read_only", interrupt_on={"look": False})
    assert no_doubts(agent) is True


def test_undeclared_never_covers_a_tool_with_errors_after_which_nobody_knows() -> None:
    """T13: a list of errors means that its author expects effects."""
    tools = [looking(unknown_after=(ConnectionError,))]
    assert no_doubts(Shop().agent(tools=tools, undeclared="read_only")) is False


def test_undeclared_does_not_go_to_agents_of_their_own_inside() -> None:
    """T13: each agent speaks of its own tools."""
    inner = Agent("inner", by_turn(call("look")), tools=[looking()])
    task = call("task", {"task_name": "inner", "instructions": "look"})
    stack = [SubAgent([inner], general_purpose=False)]
    desk = Agent("desk", by_turn(task), middleware=stack, undeclared="read_only")
    assert len(completed(desk.execute_sync("go")).state.doubts) == 1


def general_purpose(**options: Any) -> Agent:
    """An agent whose tool is called by the agent that it is offered for any task."""
    task = call("task", {"task_name": "general-purpose", "instructions": "look"})

    def reply(request: Any) -> Any:
        is_inside = "one task" in request.instructions
        answered = len(request.messages) > 1
        return "done" if answered else call("look") if is_inside else task

    tools = options.pop("tools")
    return Agent("desk", ScriptedModel(reply), tools=tools, middleware=[SubAgent()], **options)


def test_the_agent_for_any_task_has_what_its_parent_says_of_their_tools() -> None:
    """T13, S1: they are the same tools."""
    agent = general_purpose(tools=[looking()], undeclared="read_only")
    assert completed(agent.execute_sync("go")).state.doubts == {}
    shop = Shop(ValueError("perhaps"))
    agent = general_purpose(tools=[shop.tool()], unknown_after=ValueError)
    assert len(completed(agent.execute_sync("go")).state.doubts) == 1


def test_undeclared_is_said_of_a_toolset() -> None:
    """T13: its tools cannot say it themselves."""
    for undeclared, covered in ((None, False), ("effects", False), ("read_only", True)):

        def look() -> str:
            """Look."""
            raise ConnectionError("reset")

        toolset: Any = FunctionToolset([look])
        tools = as_tools(toolset, undeclared=undeclared)  # type: ignore[arg-type]
        assert no_doubts(Shop().agent(tools=tools)) is covered


async def test_undeclared_is_said_of_a_server() -> None:
    """T13, M2: beside what the policy says, and what a trusted server says."""

    class Breaking(RawServer):
        async def answer(self, params: dict[str, Any]) -> dict[str, Any]:
            return {"error": {"code": -32603, "message": "broken"}}  # an internal error

    async def in_doubt(**options: Any) -> bool:
        server = Breaking(a_tool("look"), a_tool("put", annotations={"idempotentHint": True}))
        tools = await mcp_tools(server.transport, id="shop", undeclared="read_only", **options)
        agent = Agent("desk", by_turn(call("look")), tools=[*tools])
        outcome = await agent.execute("go")
        if outcome.state.requests and outcome.state.requests[0].kind == "approval":
            outcome = await agent.resume(outcome.state, interrupted(outcome).decide(approve()))
        return bool(outcome.state.requests or outcome.state.doubts)

    assert await in_doubt() is True, "a gate names the tools of a server that is not trusted"
    assert await in_doubt(policy={"look": {"ask": False}}) is False
    assert await in_doubt(policy={"look": {"ask": False, "undeclared": "effects"}}) is True
    with pytest.raises(UsageError, match="`undeclared` must be 'effects' or 'read_only'"):
        await in_doubt(policy={"look": {"undeclared": "yes"}})
