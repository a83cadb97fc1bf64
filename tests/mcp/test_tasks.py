"""Tasks of MCP, on both sides: a call whose result is asked for later (M20)."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.extension import advertise
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from pydantic import TypeAdapter

from tests.support.agents import by_turn, completed, contents, desk, interrupted, until_status
from tests.support.loops import soon
from tests.support.plans import outcome_of
from understudy import (
    Agent,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Waiting,
    call,
    respond,
)
from understudy.login import User
from understudy.mcp import mcp_tools
from understudy.mcp.agents_server import agents_server
from understudy.mcp.tasks import (
    TASKS,
    CreatedTask,
    GetTask,
    Task,
    TaskParams,
    UpdateTaskParams,
)

AT = "2030-01-01T12:00:00Z"
BUILD = call("build", {"what": "site"})


class Builds(Extension):
    """A server whose `build` becomes a task, which stands as a test says."""

    identifier = TASKS

    def __init__(self) -> None:
        self.made = 0
        self.looks = 0
        self.answered: list[Any] = []
        self.now: dict[str, Any] = {"status": "working"}

    def methods(self) -> tuple[MethodBinding, ...]:
        return (
            MethodBinding("tasks/get", TaskParams, self.get),
            MethodBinding("tasks/update", UpdateTaskParams, self.update),
        )

    async def intercept_tool_call(
        self,
        params: types.CallToolRequestParams,
        ctx: ServerRequestContext[Any, Any],
        call_next: CallNext,
    ) -> HandlerResult:
        self.made += 1
        return CreatedTask(task_id="t1", status="working", created_at=AT, last_updated_at=AT)

    async def get(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Task:
        self.looks += 1
        if params.task_id != "t1" or self.now["status"] == "gone":
            raise MCPError(code=types.INVALID_PARAMS, message="no such task")
        return Task(task_id="t1", created_at=AT, last_updated_at=AT, **self.now)

    async def update(
        self, ctx: ServerRequestContext[Any, Any], params: UpdateTaskParams
    ) -> types.EmptyResult:
        self.answered.append(params.input_responses)
        self.end("done")
        return types.EmptyResult()

    def end(self, text: str) -> None:
        result = types.CallToolResult(content=[types.TextContent(type="text", text=text)])
        self.now = {
            "status": "completed",
            "result": result.model_dump(mode="json", by_alias=True, exclude_none=True),
        }


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


@pytest.fixture
def builds() -> Builds:
    return Builds()


async def builder(builds: Builds, **policy: Any) -> Any:
    server = MCPServer("builder", extensions=[builds])

    @server.tool()
    def build(what: str) -> str:
        """Build something."""
        raise AssertionError("it becomes a task")

    return await mcp_tools(server, id="builder", policy={"build": {"ask": False, **policy}})


async def test_a_call_that_becomes_a_task_is_made_once_and_sleeps_between_two_looks(
    builds: Builds, clock: SimulatedClock
) -> None:
    """M20."""
    agent = Agent("desk", by_turn(BUILD), tools=[*await builder(builds)])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        future = ref.run("go")
        await until_status(ref, Status.WAITING)
        for looks in (1, 2):
            await clock.advance(2)
            await soon(ref.state())
            await until_status(ref, Status.WAITING)
            assert (builds.made, builds.looks) == (1, looks)
        builds.end("built")
        await clock.advance(10)
        outcome = completed(await soon(future))
        assert contents(outcome.state) == [("success", "built")]
        assert builds.made == 1


@pytest.mark.parametrize(
    ("now", "how", "text"),
    [
        ({"status": "failed", "error": {"code": 1, "message": "no disk"}}, "failed", "no disk"),
        ({"status": "cancelled", "status_message": "no time"}, "failed", "no time"),
    ],
)
async def test_a_task_that_fails_is_an_error_for_the_model(
    builds: Builds, clock: SimulatedClock, now: dict[str, Any], how: str, text: str
) -> None:
    builds.now = now
    agent = Agent("desk", by_turn(BUILD), tools=[*await builder(builds)])
    outcome = await agent.execute("go", clock=clock)
    assert isinstance(outcome, Waiting)
    await clock.advance(5)
    outcome = completed(await agent.resume(outcome.state, clock=clock))
    ((ended, said),) = contents(outcome.state)
    assert ended == how
    assert text in said


async def test_a_task_that_its_server_knows_no_more_is_a_call_in_doubt(
    builds: Builds, clock: SimulatedClock
) -> None:
    """M20."""
    builds.now = {"status": "gone"}
    agent = Agent("desk", by_turn(BUILD), tools=[*await builder(builds)])
    outcome = await agent.execute("go", clock=clock)
    await clock.advance(5)
    (request,) = interrupted(await agent.resume(outcome.state, clock=clock)).requests
    assert request.kind == "doubt"
    assert builds.made == 1


async def test_what_a_task_asks_is_answered_by_a_person(
    builds: Builds, clock: SimulatedClock
) -> None:
    """M20."""
    asked = types.ElicitRequestFormParams(
        message="Which branch?",
        requested_schema={"type": "object", "properties": {"branch": {"type": "string"}}},
    )
    requests = {"q1": types.ElicitRequest(params=asked)}
    builds.now = {"status": "input_required", "input_requests": requests}
    agent = Agent("desk", by_turn(BUILD), tools=[*await builder(builds)])
    outcome = await agent.execute("go", clock=clock)
    await clock.advance(5)
    asks = interrupted(await agent.resume(outcome.state, clock=clock))
    answer = {asks.requests[0].id: respond({"branch": "main"})}
    outcome = await agent.resume(asks.state, answer, clock=clock)
    await clock.advance(5)
    outcome = completed(await agent.resume(outcome.state, clock=clock))
    assert contents(outcome.state) == [("success", "done")]
    ((key, given),) = builds.answered[0].items()
    assert (key, given.content) == ("q1", {"branch": "main"})


async def test_a_call_of_a_server_runs_in_the_background(
    builds: Builds, clock: SimulatedClock
) -> None:
    def reply(request: Any) -> Any:
        last = request.messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return "begun"
        return BUILD if last.content == "go" else str(last.content)

    tools = await builder(builds, background=True)
    agent = Agent("desk", ScriptedModel(reply), tools=[*tools])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("desk", id="a")
        assert completed(await soon(ref.run("go"))).text == "begun"
        (made,) = (await soon(ref.state())).background
        await until_status(runtime.get(made.agent_id), Status.WAITING)
        builds.end("built")
        await clock.advance(5)
        completed(await outcome_of(runtime.get(made.agent_id)))
        assert "has returned: built" in completed(await outcome_of(ref)).text


ANSWER: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | CreatedTask)


async def sent(client: Client, **arguments: Any) -> Any:
    params = types.CallToolRequestParams(name="send_message", arguments=arguments)
    return await client.session.send_request(types.CallToolRequest(params=params), ANSWER)


async def stands(client: Client, task: str) -> Task:
    return await client.session.send_request(GetTask(params=TaskParams(task_id=task)), Task)


async def test_a_message_to_an_agent_is_a_task_for_a_client_that_takes_tasks() -> None:
    """M20."""
    user = User("a program", frozenset({"read", "act"}))
    async with Runtime([desk("hello")]) as runtime:
        server = agents_server(lambda: runtime, user=user)
        async with Client(server, extensions=[advertise(TASKS)]) as client:
            task = await sent(client, agent_id="a", text="go", agent="desk", message_id="m1")
            assert (task.status, task.task_id) == ("working", "a/m1")
            completed(await outcome_of(runtime.get("a"), message_id="m1"))
            now = await stands(client, "a/m1")
            assert now.status == "completed"
            assert now.result is not None
            assert now.result["content"] == [{"type": "text", "text": "hello"}]
            with pytest.raises(MCPError, match="no task 'a/m2' is known"):
                await stands(client, "a/m2")
        async with Client(server) as client:
            answer = await client.call_tool("send_message", {"agent_id": "a", "text": "again"})
            assert "message_id" in str(answer.content)


async def test_a_task_whose_run_asks_a_person_goes_on_and_ends_by_a_cancel() -> None:
    from tests.support.served_desk import desk as asking

    user = User("a program", frozenset({"read", "act"}))
    async with Runtime([asking()]) as runtime:
        server = agents_server(lambda: runtime, user=user)
        async with Client(server, extensions=[advertise(TASKS)]) as client:
            await sent(client, agent_id="a", text="go", agent="desk", message_id="m1")
            interrupted(await outcome_of(runtime.get("a"), message_id="m1"))
            now = await stands(client, "a/m1")
            assert now.status == "working"
            assert "waits for a person" in str(now.status_message)
            params = types.CancelTaskRequestParams(task_id="a/m1")
            await client.session.send_request(CancelTask(params=params), types.EmptyResult)
            assert (await stands(client, "a/m1")).status == "cancelled"


class CancelTask(types.CancelTaskRequest):
    name_param = "taskId"


async def test_a_client_that_may_not_read_gets_no_task() -> None:
    user = User("a program", frozenset({"act"}))
    async with Runtime([desk("hello")]) as runtime:
        server = agents_server(lambda: runtime, user=user)
        async with Client(server, extensions=[advertise(TASKS)]) as client:
            await sent(client, agent_id="a", text="go", agent="desk", message_id="m1")
            with pytest.raises(MCPError, match="may not read"):
                await stands(client, "a/m1")
