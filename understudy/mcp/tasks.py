"""Tasks of MCP (the extension `io.modelcontextprotocol/tasks`): calls whose results are polled.

The module has the messages of both sides. The server decides which call becomes a task, if the
client declares that it takes tasks.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import mcp_types as types

TASKS = "io.modelcontextprotocol/tasks"
"""The identifier of the extension."""
Status = Literal["working", "input_required", "completed", "failed", "cancelled"]


class Task(types.Result):
    """A task and its state."""

    task_id: str
    status: Status
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None
    result: dict[str, Any] | None = None
    """The result of the call of a completed task."""
    error: dict[str, Any] | None = None
    """The JSON-RPC error of a failed task."""
    input_requests: dict[str, types.InputRequest] | None = None
    """The questions of the server before it continues."""


class CreatedTask(Task):
    """The answer to a call that has become a task."""

    result_type: Literal["task"] = "task"


class TaskParams(types.RequestParams):
    """The parameters with the id of a task."""

    task_id: str


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    """The request for the state of a task."""

    method: Literal["tasks/get"] = "tasks/get"
    name_param: ClassVar[str | None] = "taskId"
    params: TaskParams


class UpdateTaskParams(TaskParams):
    """The parameters with answers to the questions of the server, by its keys."""

    input_responses: types.InputResponses


class UpdateTask(types.Request[UpdateTaskParams, Literal["tasks/update"]]):
    """The request with answers for a task."""

    method: Literal["tasks/update"] = "tasks/update"
    name_param: ClassVar[str | None] = "taskId"
    params: UpdateTaskParams
