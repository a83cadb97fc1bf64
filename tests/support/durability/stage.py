"""The agents of the stories, what their tools do, and the person who answers for them.

Nothing here is left to chance: whatever is cut off wherever, each story has one end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from tests.support.durability.side_log import SideLog
from understudy import (
    Agent,
    AgentState,
    Decision,
    Request,
    Run,
    ScriptedModel,
    ToolContext,
    ToolResult,
    approve,
    call,
    respond,
    tool,
)
from understudy.middleware import Middleware, SubAgent
from understudy.models import ScriptedRequest

__all__ = [
    "Stage",
    "book",
    "call_of",
    "clerk",
    "decision",
    "mail",
    "mailer",
    "note",
    "publish",
    "support",
    "told_of",
    "walker",
]


@dataclass(frozen=True, slots=True)
class Stage:
    """What tools and hooks get as `deps`."""

    log: SideLog
    point: Callable[[str], None]

    def act(self, ctx: ToolContext, what: str) -> str:
        """The effect of a tool: one line in the log, between two points."""
        self.log.write("enter", ctx.call_key, ctx.tool_name, what)
        self.point(f"before effect of {ctx.tool_name}")
        self.log.write("effect", ctx.call_key, ctx.tool_name, what)
        self.point(f"after effect of {ctx.tool_name}")
        return _said(ctx.tool_name, what)


def _said(tool_name: str, what: str) -> str:
    return f"{tool_name} of {what} is done"


# ------------------------------------------------------------------------------ tools


def _act(ctx: ToolContext, what: str) -> str:
    stage: Stage = ctx.deps
    return stage.act(ctx, what)


@tool(on_unknown="ask")
async def book(ctx: ToolContext, what: str) -> str:
    """Book something; async, and not to be repeated."""
    await asyncio.sleep(0)  # a cancellation comes in here
    return _act(ctx, what)


@tool(on_unknown="ask")
def stamp(ctx: ToolContext, what: str) -> str:
    """Stamp something; in a thread, and not to be repeated."""
    return _act(ctx, what)


@tool(idempotent=True)
async def note(ctx: ToolContext, what: str) -> ToolResult[str]:
    """Note something; may be repeated. It changes the state."""
    return ToolResult(_act(ctx, what), state={"noted": {what: True}})


@tool(sequential=True)
async def refund(ctx: ToolContext, what: str) -> str:
    """Refund something; a person answers for it."""
    return _act(ctx, what)


@tool
async def publish(ctx: ToolContext, what: str) -> str:
    """Publish something; a person answers for it."""
    return _act(ctx, what)


@tool(on_unknown="ask")
async def report(ctx: ToolContext, what: str) -> str:
    """Ends the run."""
    return _act(ctx, what)


@tool(on_unknown="tell")
async def mail(ctx: ToolContext, what: str) -> str:
    """Mail something. If nobody knows whether it went off, the model gets to know that."""
    return _act(ctx, what)


# ----------------------------------------------------------------------------- agents


def _model(name: str, *turns: Any) -> ScriptedModel:
    """Its n-th reply in a conversation is the n-th turn; it keeps no count of its own."""

    def reply(request: ScriptedRequest) -> Any:
        turn = sum(isinstance(message, ModelResponse) for message in request.messages)
        return turns[turn] if turn < len(turns) else "and nothing more"

    return ScriptedModel(reply, name=name)


class Witness(Middleware):
    """Writes down when a run begins and ends, once, and when a reply is accepted."""

    async def on_run_start(self, run: Run) -> None:
        await run.once("begun", lambda: run.deps.log.write("once", run.run_id, "begun"))

    async def after_model(self, run: Run, reply: ModelResponse) -> None:
        run.deps.log.write("accepted", run.run_id, str(run.current.turns))

    async def on_run_end(self, run: Run, outcome: object) -> None:
        await run.once("ended", lambda: run.deps.log.write("once", run.run_id, "ended"))


def support() -> Agent:
    """Tools side by side, an approval, an agent inside that asks itself, an until tool."""
    researcher = Agent(
        "researcher",
        _model(
            "inner",
            [call("note", {"what": "a source"}), call("book", {"what": "an archive"})],
            call("publish", {"what": "a finding"}),
            "found it",
        ),
        tools=[note, book, publish],
        interrupt_on={"publish": True},
        description="Finds things out.",
    )
    task = {"task_name": "researcher", "instructions": "find it"}
    flight, hotel, taxi = ({"what": what} for what in ("a flight", "a hotel", "a taxi"))
    return Agent(
        "support",
        _model(
            "outer",
            [
                call("book", flight),
                call("stamp", {"what": "a form"}),
                call("book", hotel),
                call("note", {"what": "a sum"}),
            ],
            call("refund", {"what": "an order"}),
            [call("task", task), call("stamp", {"what": "a letter"})],
            call("report", {"what": "it all"}),
            call("book", taxi),
            "and the taxi",
        ),
        tools=[book, stamp, note, refund, report],
        middleware=[SubAgent([researcher], general_purpose=False), Witness()],
        interrupt_on={"refund": True},
    )


def call_of(tool_name: str, what: str) -> Any:
    """A call of one of these tools, for a script."""
    return call(tool_name, {"what": what})


def mailer() -> Agent:
    """Calls of a tool whose first may be in doubt when an equal one, and another, are due (J4)."""
    one, two = call("mail", {"what": "one"}), call("mail", {"what": "two"})
    return Agent("mailer", _model("mailer", one, one, two, "mailed"), tools=[mail])


def clerk() -> Agent:
    """One call that a person answers for, beside one that may be repeated."""
    turn = [call("refund", {"what": "an order"}), call("note", {"what": "a sum"})]
    return Agent(
        "clerk", _model("clerk", turn, "done"), tools=[refund, note], interrupt_on={"refund": True}
    )


def walker(steps: int) -> Agent:
    """So many steps, of tools that may be repeated and tools that may not."""
    names = ("book", "note", "stamp")
    turns = [call(names[step % 3], {"what": f"step {step}"}) for step in range(steps)]
    return Agent(f"walker-{steps}", _model("walker", *turns, "there"), tools=[book, note, stamp])


# ----------------------------------------------------------------------------- person


def decision(log: SideLog, request: Request, *, careful: bool = False) -> Decision:
    """What a person answers: yes; and of a call in doubt, what the log says that it did.

    Args:
        careful: they look into the log before they approve, too: it is not the first time that
            they are asked.

    """
    if request.kind != "doubt" and not careful:
        log.write("approved", request.call_key, request.tool_name)
        return approve()
    key, what = request.call_key, str(request.arguments["what"])
    log.write("approved", key, request.tool_name)
    if log.has("effect", key, request.tool_name, what):
        return respond(_said(request.tool_name, what))
    log.write("repeat allowed", key)
    return approve()


# -------------------------------------------------------------------------------- end


def told_of(state: AgentState) -> dict[str, Any]:
    """What came of it all, without what differs from one playing to the next (ids, times)."""
    return {
        "conversation": [_told(part) for message in state.messages for part in message.parts],
        "values": dict(state.values),
        "requests": state.run.usage.requests if state.run is not None else None,
        "over": state.run is not None and state.run.over,
        "queue": list(state.queue),
        "messages": sorted(state.message_ids),
        "doubts": sorted(state.doubts),
        "children": sorted(state.children),
    }


def _told(part: Any) -> list[Any]:
    match part:
        case UserPromptPart(content=content):
            return ["user", str(content)]
        case TextPart(content=content):
            return ["text", content]
        case ToolCallPart():
            arguments: Mapping[str, Any] = part.args_as_dict()
            return ["call", part.tool_name, dict(arguments)]
        case ToolReturnPart():
            return ["result", part.tool_name, part.outcome, part.content]
    raise AssertionError(f"no story holds {part!r}; nor does {ModelRequest.__name__}")
