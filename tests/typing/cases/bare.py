"""Code that names no types: everything is accepted, and nothing is partly unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy import (
    Agent,
    AgentRef,
    Completed,
    Interrupted,
    Outcome,
    Run,
    Runtime,
    ScriptedModel,
    Tool,
    ToolContext,
    ToolResult,
    call,
    tool,
)
from understudy.middleware import Middleware, Next, Prepared, ToolCall
from understudy.models import ScriptedReply, ScriptedRequest
from understudy.modes import AgentExecution, Loop, Mode, Parallel, Sequential

replies: list[ScriptedReply] = ["Let me look.", [call("lookup"), call("note")], KeyError("down")]


def clerk(request: ScriptedRequest) -> str:
    return f"{len(request.tools)} tools"


replies.append(clerk)
MODEL = ScriptedModel(replies)
wrong: list[ScriptedReply] = [3]  # error: no reply


@tool
def lookup(ctx: ToolContext, order_id: str) -> ToolResult:
    return ToolResult(f"{ctx.deps} {order_id}", state={"seen": True})


class Polite(Middleware):
    def prepare(self, definition: Any) -> Prepared:
        return Prepared(instructions="Be polite.")

    async def on_message(self, run: Run, message: Any) -> Mapping[str, Any] | None:
        return None

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        return await next(call)


async def at_most_three(run: Run) -> Outcome | None:
    return run.completed("enough") if len(run.state.messages) > 3 else None


def make(name: str, tools: list[Tool], mode: Mode | None = None) -> Agent:
    return Agent(name, MODEL, tools=tools, middleware=[Polite()], mode=mode, output_type=str)


mode = AgentExecution().inserting(before="call_llm", step=at_most_three).without("check_pause")
writer = make("writer", [lookup], mode)
agents = [writer, Agent("reader", MODEL, output_type=int), Agent("b", MODEL)]
workflow = Agent("doc", mode=Sequential([writer, Agent("checked", mode=Loop(agents[2:], 3))]))
everyone: list[Agent] = [*agents, Agent("both", mode=Parallel(agents))]


def run(outcome: Outcome) -> str:
    match outcome:
        case Completed(text=text):
            return text
        case Interrupted(requests=requests):
            return ", ".join(request.tool_name for request in requests)
        case _:
            return outcome.explain()


async def hosted() -> None:
    async with Runtime(everyone) as runtime:
        refs: list[AgentRef] = [runtime.spawn(writer), runtime.spawn("doc"), runtime.get("1")]
        for ref in refs:
            run(await ref.run("hello"))
        async for event in writer.stream("hello"):
            if isinstance(event, Outcome):
                run(event)
