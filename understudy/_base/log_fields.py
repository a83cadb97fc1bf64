"""The fields of log entries about an agent, for handlers that keep more than the text."""

from __future__ import annotations


def log_extra(agent_id: str, run_id: str | None = None) -> dict[str, str]:
    """The `extra=` of a log call: the entry has `agent_id`, and `run_id` where one is given."""
    return {"agent_id": agent_id} if run_id is None else {"agent_id": agent_id, "run_id": run_id}
