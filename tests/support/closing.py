"""A run whose task has not ended when its end is stored: it closes what it has opened."""

from __future__ import annotations

from typing import Any

import pydantic_ai
from pydantic_ai import FunctionToolset

from tests.support.agents import Held
from understudy import Agent, ScriptedModel

__all__ = ["closing_late"]


class _Closing(FunctionToolset[None]):
    """What a run opens, and closes at the end of its task."""

    held: Held | None = None

    async def __aenter__(self) -> _Closing:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.held is not None:
            await self.held.wait()


def closing_late(held: Held, *turns: Any, **options: Any) -> Agent[None, Any]:
    """An agent "desk" that replies these turns, and is held at the end of the task of a run."""
    closing = _Closing()
    made = pydantic_ai.Agent(ScriptedModel(turns), name="desk", toolsets=[closing])
    agent = Agent.from_pydantic_ai(made, **options)
    closing.held = held  # its tools were listed
    return agent
