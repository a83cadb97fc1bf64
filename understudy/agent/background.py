"""Background calls: the starters of calls, and the agents that make them.

In its agent, a tool with `background=True` is replaced by a starter: its call lets another agent
make the real call, and the model learns that the call has begun. The other agent has an id, a
journal and one run, whose only turn is the call. So all rules for a run hold for the call: its
start is written ahead, it is in doubt if it is cut off, it sleeps, waits, asks, is cancelled and
continues on any host. When it ends, its result is sent to the owner as a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.tools import ToolDefinition

from understudy._base.json_values import digest, text_of
from understudy.errors import UsageError
from understudy.modes.pipeline import Mode
from understudy.modes.steps.check_interrupts import check_tool_interrupts
from understudy.modes.steps.execute_tools import execute_tools, propagate_state
from understudy.outcomes import Completed, Failed, Outcome, Stopped
from understudy.run.background import OWNER_DELETED, BackgroundCalls
from understudy.run.definition import BACKGROUND_SUFFIX, AgentDefinition, ChildAgent
from understudy.run.hooks import Hook, Hooks
from understudy.run.run import Run, inside_run
from understudy.state.plans import BackgroundCall, result_id
from understudy.state.records import BackgroundStarted, Once
from understudy.state.run_state import BACKGROUND, Call
from understudy.stopping import StopSignal
from understudy.tools import Tool, ToolContext, ToolFailed
from understudy.tools.function_tool import Arguments

MAX_OWNER_ID = 480
"""The maximum characters of an owner's id: the ids of the agents that make its calls begin with
it."""

STARTED = (
    "Started in the background as {code}. The result will come in a message that begins with "
    "[{code}]. Do not call it again for that."
)
_IN_DOUBT = (
    "Not started: nobody knows what the same call has done that agent {agent_id!r} has made. Ask a "
    "person to settle it."
)
_EQUAL = (
    "Not started: the same call is open in the background as {code}, and its result will come in a "
    "message that begins with [{code}]."
)
_CANCELLED = "Cancelled: a message that begins with [{code}] says what has become of it."
_HAS_ENDED = "It has ended already: its result is in the message that begins with [{code}]."
_NO_MESSAGES = (
    "This agent makes one call in the background, and takes no messages: send them to the agent "
    "that gets its result"
)
_SAID = {
    "success": "has returned",
    "failed": "has failed",
    "denied": "did not run",
    "interrupted": "was cut off",
}


# ------------------------------------------------------------------------------- starters


def with_starters(definition: AgentDefinition) -> AgentDefinition:
    """The definition with starters in place of its background tools."""
    background = {name: tool for name, tool in definition.tools.items() if tool.background}
    starters = {name: _starter(tool) for name, tool in background.items()}
    return replace(definition, tools={**definition.tools, **starters}, background=background)


class _WholeArguments:
    """The arguments of a tool, which its starter gets as one argument."""

    takes_context = True
    returns: Any = Any

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self.is_plain: bool = arguments.is_plain
        self.definition: ToolDefinition = arguments.definition

    def validate(self, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
        return self._arguments.validate(arguments)

    def canonical(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        return self._arguments.canonical(checked)

    def made(
        self, given: str | Mapping[str, Any] | None, checked: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        return self._arguments.made(given, checked)

    def bind(self, checked: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        return [dict(checked)], {}


def _starter(tool: Tool) -> Tool:
    """The starter of a background tool: the model and people see no difference.

    It may be called again under the same key, whatever the tool does: it starts the call once.
    """

    async def start(ctx: ToolContext[Any], checked: dict[str, Any]) -> str:
        return await _start(_run(), tool, ctx.call_key, checked)

    starter = copy(tool)
    starter._arguments = _WholeArguments(tool._arguments)
    starter.function = start
    starter.is_async = starter.takes_context = True
    starter.inline = starter.background = starter.is_known_to_have_effects = False
    starter.effect = "idempotent"
    starter.check = starter.key = starter.timeout = starter.retry = starter.on_unknown = None
    starter.nothing_happened = starter.unknown_after = ()
    starter.agent_argument = ""
    return starter


async def _start(run: Run, tool: Tool, call_key: str, checked: dict[str, Any]) -> str:
    turn = run.current.turn
    assert turn is not None, "a call is of a turn"
    call, root = turn.calls[call_key], run.root
    key = f"{BACKGROUND}/{call_key}"
    code = run.current.once.get(key)
    waiting = {} if root.state.plans is None else root.state.plans.background
    if code is not None and code not in waiting and result_id(code) in root.state.message_ids:
        return STARTED.format(code=code)  # it has ended; this attempt repeats its start
    if root.environment.background is None:  # an agent of the application, run without a runtime
        raise UsageError(f"{tool.name!r} runs in the background, and needs a Runtime")
    if tool.name not in background_definition(root.definition).tools:
        raise ToolFailed(
            f"{tool.name!r} was not started: agent {run.definition.name!r} is not declared as one "
            f"inside {root.definition.name!r}, so its background tools are not known"
        )
    arguments = _arguments(tool, call, checked)
    if code is None:
        await _refuse_equal(run, tool, waiting, arguments)
        if len(root.agent_id) > MAX_OWNER_ID:
            raise ToolFailed(f"{tool.name!r} was not started: the agent's id is too long")
        code = "bg-" + digest([root.new_id()])[:12]
        run.record(Once(key=key, value=code))
    made = waiting.get(code)
    calls: BackgroundCalls = root.environment.background()
    if made is None:
        agent_id = ""
        # Race: this against the start of another call in the same turn
        # (test_two_calls_of_one_turn_are_made_by_two_agents).
        while not agent_id or any(each.agent_id == agent_id for each in root.state.background):
            agent_id = await calls.free_id(f"{root.agent_id}~{root.ledger.count}")
        approval, requesters = call.approval
        made = BackgroundCall(
            code=code,
            agent_id=agent_id,
            owner=root.agent_id,
            call_key=call_key,
            tool_call_id=call.part.tool_call_id,
            tool_name=tool.name,
            arguments=arguments,
            agent_path=run.agent_path,
            at=run.clock.now(),
            authors=root.state.authors or (None,),
            was_asked=bool(call.requests),
            approval=approval,
            requesters=requesters,
        )
        root.ledger.record(BackgroundStarted(call=made, at=made.at))
    await run.durable()
    await calls.start(
        root.definition.name + BACKGROUND_SUFFIX,
        made,
        values=run.state.stored_values(),
        deps=root.deps,
        context=root.current.context,
    )
    return STARTED.format(code=code)


def _arguments(tool: Tool, call: Call, checked: dict[str, Any]) -> dict[str, Any]:
    """The arguments as data from which the tool gets the same: see `Tool.made`."""
    edits = [each.edited for each in call.decisions.values() if each.edited is not None]
    given = edits[-1] if edits else call.arguments
    if given is None:
        given = call.part.args_as_dict()
    made = tool.made(given, checked)
    return dict(given) if made is None else made


async def _refuse_equal(
    run: Run, tool: Tool, waiting: Mapping[str, BackgroundCall], arguments: dict[str, Any]
) -> None:
    """Raise if an equal call is open or in doubt, unless it never harms to make it twice."""
    if tool.effect == "read_only":
        return
    for each in waiting.values():
        if each.tool_name == tool.name and each.arguments == arguments:
            raise ToolFailed(_EQUAL.format(code=each.code))
    root = run.root
    assert root.environment.background is not None, "the caller has looked"
    doubtful = await root.environment.background().in_doubt(
        root.definition.name + BACKGROUND_SUFFIX, root.agent_id, tool.name, arguments
    )
    if doubtful is not None:
        raise ToolFailed(_IN_DOUBT.format(agent_id=doubtful))


# ------------------------------------------------------------- what the model does with calls


@cache
def tools_for_calls() -> tuple[Tool, ...]:
    """The tools by which a model sees and cancels the background calls of its agent."""
    return (
        Tool(list_background_calls, read_only=True),
        Tool(cancel_background_call, idempotent=True),
    )


async def list_background_calls() -> list[dict[str, str | dict[str, Any]]]:
    """List the calls that you have started in the background and whose results have not come."""
    run = _run()
    calls, own = _calls_of_runtime(run), _own_calls(run)
    statuses = await calls.statuses(own)
    return [
        {
            "code": each.code,
            "tool": each.tool_name,
            "arguments": each.arguments,
            "started": each.at.isoformat(timespec="seconds"),
            "status": statuses.get(each.agent_id, "not begun"),
        }
        for each in own
    ]


async def cancel_background_call(code: str) -> str:
    """Cancel a call that goes on in the background. What it has done by then is not undone.

    Args:
        code: of the call, such as bg-0123456789ab.

    """
    run = _run()
    calls, own = _calls_of_runtime(run), {each.code: each for each in _own_calls(run)}
    code = code.strip().strip("[]")
    made = own.get(code)
    if made is None:
        if result_id(code) in run.root.state.message_ids:
            return _HAS_ENDED.format(code=code)
        known = ", ".join(own) or "none"
        raise ToolFailed(f"No call {code!r} is open in the background; open are: {known}")
    message = f"the model of {run.definition.name!r} has cancelled it"
    signal = StopSignal.stop_requested(message, source=cancel_background_call.__name__)
    if why := await calls.cancel(made, signal):
        text = f"[{code}] The background call of {made.tool_name!r} {why}"
        await calls.bring(run.root.agent_id, made.owner, code, text)
    return _CANCELLED.format(code=code)


def _run() -> Run:
    run = inside_run.get()
    assert run is not None, "a tool is called in a run"
    return run


def _own_calls(run: Run) -> list[BackgroundCall]:
    """The open calls that were started by this agent, or by agents inside it."""
    path = run.agent_path
    return [each for each in run.root.state.background if each.agent_path[: len(path)] == path]


def _calls_of_runtime(run: Run) -> BackgroundCalls:
    background = run.root.environment.background
    if background is None:  # an agent of the application, run without a runtime
        raise UsageError(f"{run.definition.name!r} has background tools, and needs a Runtime")
    return background()


# ----------------------------------------------------------------- the agent that makes one


_definitions: WeakKeyDictionary[AgentDefinition, AgentDefinition] = WeakKeyDictionary()


def background_definition(owner: AgentDefinition) -> AgentDefinition:
    """The definition of that agent.

    Raises:
        UsageError: if two agents have different background tools of one name.

    """
    known = _definitions.get(owner)
    if known is None:
        known = _definitions[owner] = _made_for(owner)
    return known


def _made_for(owner: AgentDefinition) -> AgentDefinition:
    tools: dict[str, Tool] = {}
    children: dict[str, ChildAgent] = {}
    _collect(owner, owner.name, tools, children)
    return replace(
        owner,
        name=owner.name + BACKGROUND_SUFFIX,
        model=None,
        description=f"Makes the background calls of {owner.name!r}.",
        instructions=(),
        tools=tools,
        middleware=(),
        children=children,
        hooks=Hooks(on_run_end=(_BRINGS,)),
        schemas={},
        mode=Mode((execute_tools, propagate_state, check_tool_interrupts, finish_call)),
        fallback_models=(),
        model_settings=None,
        retry=None,
        pause_when=None,
        output=None,
        output_tools=(),
        native_tools=(),
        include_contents="default",
        has_plain_turns=False,
        background={},
        background_of=owner.name,
    )


def _collect(
    definition: AgentDefinition,
    owner: str,
    tools: dict[str, Tool],
    children: dict[str, ChildAgent],
) -> None:
    """Add what the background calls of an agent need, and those of the agents inside it."""
    for name, tool in definition.background.items():
        if tools.setdefault(name, tool) is not tool:
            raise UsageError(
                f"Agent {owner!r} and the agents inside it have two background tools named "
                f"{name!r}: rename one with @tool(name=...)"
            )
    for child in (*definition.mode.agents, *definition.children.values()):
        if children.setdefault(child.definition.name, child).definition is not child.definition:
            raise UsageError(
                f"Agent {owner!r} has background tools, and two agents named "
                f"{child.definition.name!r} inside: rename one"
            )
        if child.definition.background_inside:
            _collect(child.definition, owner, tools, children)


async def finish_call(run: Run) -> Outcome | None:
    """End the run once its call has a result."""
    turn = run.current.turn
    if turn is None:
        return run.failed(UsageError(_NO_MESSAGES))
    if not turn.propagated:
        return None
    (call,) = turn.calls.values()
    assert call.result is not None, "it is in the conversation"
    return run.completed(_text_of(call.result.part))


async def _bring(run: Run, outcome: Completed | Stopped | Failed) -> None:
    """Bring the result to the owner, before the end of the run is recorded.

    So a crash in between brings it again, which changes nothing.
    """
    kept, cancelled = run.current.once.get(BACKGROUND), run.current.cancelled
    if kept is None or run.environment.background is None:
        return
    if cancelled is not None and cancelled["source"] == OWNER_DELETED:
        return  # T36: another agent may have the id of the owner by now
    calls: BackgroundCalls = run.environment.background()
    await calls.bring(
        run.agent_id,
        kept["owner"],
        kept["code"],
        _said(run, outcome, kept["code"]),
    )


_BRINGS = Hook("Background", "on_run_end", _bring, is_async=True)


def _said(run: Run, outcome: Completed | Stopped | Failed, code: str) -> str:
    """The text for the owner's model. It begins with the code, which nobody else can write."""
    turn = run.current.turn
    call = None if turn is None else next(iter(turn.calls.values()))
    if call is None:  # the run continues with a call that is over
        return f"[{code}] The background call is over."
    what = f"[{code}] The background call of {call.part.tool_name!r}"
    if call.result is not None:
        part = call.result.part
        how = "has an unknown outcome" if call.result.doubt is not None else _SAID[part.outcome]
        return f"{what} {how}: {_text_of(part)}"
    why = str(outcome.signals) if isinstance(outcome, Stopped) else ""
    if isinstance(outcome, Failed):
        why = text_of(outcome.error)
    if not call.entered:
        return f"{what} did not run: {why}"
    unknown = "" if call.effect == "read_only" else " Nobody knows whether it took effect."
    return f"{what} was cut off: {why}{unknown}"


def _text_of(part: ToolReturnPart) -> str:
    return part.content if isinstance(part.content, str) else part.model_response_str()
