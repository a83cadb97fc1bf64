"""`SubAgent`: an agent delegates tasks to other agents.

It only adds the tool `task(task_name, instructions)`. The pipeline runs the child, suspends the
call with it and continues it, the same way as for `ctx.run_agent`. It owns no interrupts; those of
its children are listed with those of the parent.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

from understudy._base.json_values import checked_flag, checked_text, shown
from understudy._base.type_variables import DepsT_contra
from understudy.errors import UnderstudyError, UsageError
from understudy.middleware.base import Middleware, Prepared
from understudy.run.child_calls import result_of_agent
from understudy.run.definition import AgentDefinition, definition_of
from understudy.run.instructions import check_instructions
from understudy.tools import Tool, ToolContext, ToolFailed
from understudy.tools.base_agent import BaseAgent, instead_of_agent

TaskInstructions = Callable[[ToolContext[Any], str], "str | Awaitable[str]"]
"""A function of the call's context and the agent's name that gives the instructions of a task."""

GENERAL_PURPOSE = "general-purpose"
_TOOL = "task"


class SubAgent(Middleware[DepsT_contra]):
    """A middleware that gives the model a `task` tool, which runs other agents.

    Args:
        agents: the agents, each an `Agent`, or a dict with `name`, `description` and any of
            `instructions`, `tools`, `middleware`, `model` (the parent's by default),
            `max_runs`, `early_stopping`, `early_stopping_prompt`, `max_overrides`,
            `native_tools`, `until_tool` or `until_tool_success`, `force`, `initial_messages`
            (the conversation with which each of its tasks begins).
        general_purpose: also offer an agent with the parent's model, tools and middleware,
            without its `SubAgent`. A text is its instructions.
        block_middleware: classes of the parent's middleware that the general-purpose agent does
            not get. A gate cannot be blocked: it applies to all agents below.
        max_depth: the number of levels of agents that may nest, including the root. A deeper
            task is an error result.
        task_instructions: the instructions of the agent of each task after its own ones, sent as
            they are: a text, or a function of the `ToolContext` and the agent's name, async or
            plain. A plain function is called on the event loop, so it must not block. The text is
            recorded when the task begins, and is kept when the call runs again.
        background: the model gets "started" at once, and the result of a task in a later
            message, as with `@tool(background=True)`.

    Raises:
        UsageError: if an option is invalid. If an agent is invalid, it is raised when the
            parent is made.

    """

    def __init__(
        self,
        agents: Sequence[BaseAgent[DepsT_contra, Any] | Mapping[str, Any]] | tuple[()] = (),
        *,
        general_purpose: bool | str = True,
        block_middleware: Sequence[type[Middleware[Any]]] = (),
        max_depth: int = 5,
        task_instructions: str | TaskInstructions = "",
        background: bool = False,
    ) -> None:
        if isinstance(agents, (str, Mapping)) or not isinstance(agents, Sequence):
            raise UsageError(f"SubAgent: `agents` must be a list, got {agents!r}")
        if not isinstance(general_purpose, bool):
            checked_text(general_purpose, what="SubAgent: `general_purpose`, if it is no bool,")
            check_instructions(general_purpose, agent=GENERAL_PURPOSE)
        if not agents and not general_purpose:
            raise UsageError(
                "SubAgent has no agents to run: give `agents`, or general_purpose=True"
            )
        if not isinstance(max_depth, int) or isinstance(max_depth, bool) or max_depth < 1:
            raise UsageError(
                f"SubAgent: `max_depth` must be an integer of at least 1, got {max_depth!r}"
            )
        if not isinstance(block_middleware, (list, tuple)):
            raise UsageError(
                f"SubAgent: `block_middleware` must be a list, got {block_middleware!r}"
            )
        for blocked in block_middleware:
            if not isinstance(blocked, type) or not issubclass(blocked, Middleware):
                raise UsageError(
                    f"SubAgent: `block_middleware` must hold middleware classes, got {blocked!r}"
                )
            if hasattr(blocked, "covers"):
                raise UsageError(
                    f"SubAgent: `block_middleware` holds {blocked.__name__}, a gate, which applies "
                    "to all agents below: give the child a gate of its own that says False for the "
                    "tool"
                )
        if not callable(task_instructions):
            what = "SubAgent: `task_instructions`, if it is no function,"
            checked_text(task_instructions, what=what, may_be_empty=True)
        self._task_instructions = task_instructions
        self._agents = tuple(agents)
        self._general_purpose = general_purpose
        self._blocked = tuple(block_middleware)
        self._max_depth = max_depth
        self._background = checked_flag(background, what="SubAgent: `background`")

    def prepare(self, definition: AgentDefinition) -> Prepared:
        agents: list[Any] = [*self._agents]
        if self._general_purpose:
            agents.append(self._general(definition))
        offered = {_name_of(agent): _description_of(agent) for agent in agents}
        if len(offered) != len(agents):
            names = [_name_of(agent) for agent in agents]
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"SubAgent has two agents named {twice!r}: rename one")
        listed = "\n".join(f"- {name}: {about}" for name, about in offered.items())
        return Prepared(
            instructions=(
                f"You can hand work to other agents with the tool {_TOOL!r}. Tell them all that "
                "they need to know: they see nothing of this conversation.\n"
                + listed.replace("{", "{{").replace("}", "}}")
            ),
            tools=[self._tool(tuple(offered))],
            agents=agents,
        )

    def check(self, definition: AgentDefinition) -> None:
        if not self._task_instructions or callable(self._task_instructions):
            return
        for name in map(_name_of, self._agents):
            if not definition.children[name].definition.asks_model:
                raise UsageError(
                    f"SubAgent: agent {name!r} calls no model, so nothing would read "
                    "`task_instructions`: give a function that returns '' for it"
                )

    async def _instructions_for(self, ctx: ToolContext[Any], task_name: str) -> str:
        if not callable(self._task_instructions):
            return self._task_instructions
        given = self._task_instructions(ctx, task_name)
        if inspect.isawaitable(given):
            given = await given
        if not isinstance(given, str):
            raise UsageError(f"`task_instructions` returned {shown(given)}: return a text")
        return given

    def _general(self, definition: AgentDefinition) -> dict[str, Any]:
        kept = [
            item
            for item in definition.middleware
            if not isinstance(item, (SubAgent, *self._blocked)) and not hasattr(item, "covers")
        ]
        return {
            "name": GENERAL_PURPOSE,
            "description": "Does any task with the same tools, on its own.",
            "instructions": (
                self._general_purpose
                if isinstance(self._general_purpose, str)
                else "You do one task, completely, and report what came of it."
            ),
            "tools": list(definition.tools.values()),
            "native_tools": definition.native_tools,
            "middleware": kept,
        }

    def _tool(self, names: tuple[str, ...]) -> Tool:
        max_depth = self._max_depth

        async def task(ctx: ToolContext, task_name: str, instructions: str) -> Any:
            if len(ctx.agent_path) >= max_depth:
                raise ToolFailed(
                    f"task {task_name!r} was not started: agents nest at most {max_depth} deep"
                )
            try:
                outcome = await ctx.run_agent(
                    task_name,
                    instructions,
                    max_depth=max_depth,
                    instructions=await self._instructions_for(ctx, task_name),
                )
            except UnderstudyError as error:  # the child could not begin
                raise ToolFailed(f"task {task_name!r} failed: {error}") from error
            return result_of_agent(outcome, what=f"task {task_name!r}")

        task.__annotations__["task_name"] = Literal[names]
        task.__annotations__["instructions"] = str
        task.__annotations__["ctx"] = ToolContext
        task.__doc__ = "Hand a task to another agent and get its result."
        # After a crash or an answer the call runs again, and continues the same child. What it does
        # is done by the agent inside, whose calls are judged one by one.
        tool = Tool(task, name=_TOOL, read_only=True, background=self._background)
        tool.agent_argument = "task_name"
        return tool


def _name_of(agent: Any) -> str:
    if isinstance(agent, Mapping):
        name = agent.get("name")
    else:
        name = getattr(definition_of(agent), "name", None)
    if not isinstance(name, str):
        raise UsageError(
            "SubAgent: `agents` must hold agents, or dicts with a name, got "
            f"{instead_of_agent(agent)}"
        )
    return name


def _description_of(agent: Any) -> str:
    if isinstance(agent, Mapping):
        return str(agent.get("description", ""))
    return str(agent.definition.description)
