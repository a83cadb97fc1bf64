"""Tasks of MCP (the extension `io.modelcontextprotocol/tasks`): a call whose result is asked for.

What both sides send. The server of the protocol decides which call becomes a task, where the client
says that it takes tasks.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import mcp_types as types

TASKS = "io.modelcontextprotocol/tasks"
"""The identifier of the extension."""
Status = Literal["working", "input_required", "completed", "failed", "cancelled"]


class Task(types.Result):
    """A task, and what has come of it."""

    task_id: str
    status: Status
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None
    result: dict[str, Any] | None = None
    """Of a task that is completed: the result of the call."""
    error: dict[str, Any] | None = None
    """The JSON-RPC error of a failed task."""
    input_requests: dict[str, types.InputRequest] | None = None
    """The questions of the server before it continues."""


class CreatedTask(Task):
    """The answer to a call that has become a task."""

    result_type: Literal["task"] = "task"


class TaskParams(types.RequestParams):
    """Which task."""

    task_id: str


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    """What has come of a task?"""

    method: Literal["tasks/get"] = "tasks/get"
    name_param: ClassVar[str | None] = "taskId"
    params: TaskParams


class UpdateTaskParams(TaskParams):
    """Answers to what the server has asked, by its keys."""

    input_responses: types.InputResponses


class UpdateTask(types.Request[UpdateTaskParams, Literal["tasks/update"]]):
    """Answers for a task."""

    method: Literal["tasks/update"] = "tasks/update"
    name_param: ClassVar[str | None] = "taskId"
    params: UpdateTaskParams
