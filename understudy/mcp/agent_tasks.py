"""`AgentTasks`: the runs of agents as tasks of MCP, for clients that take them.

A message to an agent is answered by a task, which ends with the run of the message. Only the
records of the agent are kept, so any host of the store can answer for the task.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, NamedTuple

import mcp_types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding

from understudy._base.json_values import text_of
from understudy.actors import AgentRef
from understudy.errors import UnderstudyError
from understudy.mcp.tasks import TASKS, CreatedTask, Status, Task, TaskParams, UpdateTaskParams
from understudy.outcomes import Completed, Outcome, Stopped
from understudy.state.agent_state import AgentState
from understudy.state.why import why

POLL_MS = 2_000
"""The milliseconds that a client waits before it asks again."""


class Asker(NamedTuple):
    """A caller that asks about a task and has the right to."""

    ref: AgentRef[Any]
    """The agent, for this caller."""
    by: str | None
    now: datetime
    seen: Callable[[str], str]
    """The function that hides what the caller must not see."""


Need = Callable[[Any, str, str], Awaitable[Asker]]
"""A function of the request, the name of a tool, and the id of an agent. It gives the caller, if
the caller may use the tool."""


class AgentTasks(Extension):
    """Answers `send_message` by a task, and reports its state.

    Args:
        need: see `Need`.

    """

    identifier = TASKS

    def __init__(self, need: Need) -> None:
        self._need = need

    def methods(self) -> tuple[MethodBinding, ...]:
        return (
            MethodBinding("tasks/get", TaskParams, self._get),
            MethodBinding("tasks/update", UpdateTaskParams, self._update),
            MethodBinding("tasks/cancel", TaskParams, self._cancel),
        )

    async def intercept_tool_call(
        self,
        params: types.CallToolRequestParams,
        ctx: ServerRequestContext[Any, Any],
        call_next: CallNext,
    ) -> HandlerResult:
        sent = await call_next(ctx)
        if params.name != "send_message" or not _takes_tasks(ctx):
            return sent
        if not isinstance(sent, types.CallToolResult) or sent.is_error:
            return sent
        (said,) = sent.content
        assert isinstance(said, types.TextContent), "as the tool returns it"
        agent_id = str((params.arguments or {})["agent_id"])
        task = f"{agent_id}/{json.loads(said.text)['message_id']}"
        now = _time((await self._need(ctx, "send_message", agent_id)).now)
        return CreatedTask(
            task_id=task,
            status="working",
            created_at=now,
            last_updated_at=now,
            poll_interval_ms=POLL_MS,
        )

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> Task:
        agent_id, message_id = _ids(params)
        asker = await self._need(ctx, "read_history", agent_id)
        try:
            state = await asker.ref.state()
            outcome = None
            if not _goes_on(state, message_id):
                outcome = await asker.ref.outcome(message_id=message_id)
        except UnderstudyError as error:
            raise _unknown(params, text_of(error)) from error
        return _task(params.task_id, message_id, state, outcome, asker)

    async def _update(
        self, ctx: ServerRequestContext[Any, Any], params: UpdateTaskParams
    ) -> types.EmptyResult:
        # No task asks its client, because people decide, and a client is a program.
        await self._need(ctx, "send_message", _ids(params)[0])
        return types.EmptyResult()

    async def _cancel(
        self, ctx: ServerRequestContext[Any, Any], params: TaskParams
    ) -> types.EmptyResult:
        agent_id, message_id = _ids(params)
        asker = await self._need(ctx, "send_message", agent_id)
        try:
            if not await asker.ref.cancel_message(message_id, by=asker.by):
                taken = (await asker.ref.state()).message_ids.get(message_id)
                if taken is not None:
                    await asker.ref.cancel(run_id=taken.run_id, by=asker.by)
        except UnderstudyError as error:
            raise _unknown(params, text_of(error)) from error
        return types.EmptyResult()


def _takes_tasks(ctx: ServerRequestContext[Any, Any]) -> bool:
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and TASKS in (capabilities.extensions or {})


def _ids(params: TaskParams) -> tuple[str, str]:
    agent_id, _, message_id = params.task_id.partition("/")  # no id of an agent has a slash
    if not agent_id or not message_id:
        raise _unknown(params, "it names no agent and message")
    return agent_id, message_id


def _unknown(params: TaskParams, why: str) -> MCPError:
    return MCPError(
        code=types.INVALID_PARAMS, message=f"no task {params.task_id[:100]!r} is known: {why}"
    )


def _goes_on(state: AgentState, message_id: str) -> bool:
    """Whether the message waits for its run, or its run is not over."""
    if message_id not in state.message_ids:
        return False  # the message is old, or unknown
    taken, run = state.message_ids[message_id], state.run
    return taken is None or (run is not None and run.run_id == taken.run_id and not run.over)


def _task(
    task_id: str, message_id: str, state: AgentState, outcome: Outcome | None, asker: Asker
) -> Task:
    taken = state.message_ids.get(message_id)
    began = asker.now if taken is None or taken.at is None else taken.at
    status: Status = "working"
    message, result = why(state), None
    if outcome is not None:
        status, message = "completed", outcome.explain()
        if isinstance(outcome, Stopped):
            status = "cancelled"
        else:
            is_error = not isinstance(outcome, Completed)
            text = asker.seen(outcome.text) if isinstance(outcome, Completed) else message
            content: list[types.ContentBlock] = [types.TextContent(type="text", text=text)]
            made = types.CallToolResult(content=content, is_error=is_error)
            result = made.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Task(
        task_id=task_id,
        status=status,
        status_message=message,
        created_at=_time(began),
        last_updated_at=_time(asker.now),
        poll_interval_ms=POLL_MS,
        result=result,
    )


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
