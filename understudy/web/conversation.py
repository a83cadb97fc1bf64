"""The conversation of an agent, as rows for people."""

from __future__ import annotations

from typing import Any

from understudy.web.visit import Visit


async def conversation(visit: Visit) -> dict[str, Any]:
    """The rows of the conversation, oldest first."""
    await visit.state()
    return {"id": visit.agent_id, "rows": []}
