"""What tests of timed messages, schedules and ends of runs share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic_ai.messages import UserPromptPart

from tests.support.loops import soon
from understudy import Agent, AgentRef, Outcome, Runtime, ScriptedModel, tool
from understudy.journal import FoldedAgent, MemoryStore, replay
from understudy.middleware import HumanInTheLoop
from understudy.models import ScriptedRequest, call
from understudy.state.records import Record

HOUR = 3600.0
DAY = 24 * HOUR

__all__ = ["DAY", "HOUR", "Desk", "kinds", "later", "left_after", "occurrences", "outcome_of"]


class Desk:
    """An agent that says "done"; of a message with "refund" it asks a person first."""

    def __init__(self) -> None:
        self.told: list[list[str]] = []
        """The user prompts of each run, in order."""
        self.on_run: Any = None
        """Awaited in each model call, if set."""
        self.refunded = 0

    def agent(self, name: str = "desk", **options: Any) -> Agent:
        @tool
        async def refund() -> str:
            """Pay money back."""
            self.refunded += 1
            return "refunded"

        async def reply(request: ScriptedRequest) -> Any:
            parts = request.messages[-1].parts
            texts = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
            if not texts:
                return "done"
            self.told.append(texts)
            if self.on_run is not None:
                await self.on_run(texts)
            return call("refund") if "refund" in texts[-1] else "done"

        gate = HumanInTheLoop({"refund": True})
        return Agent(name, ScriptedModel(reply), tools=[refund], middleware=[gate], **options)


def later(runtime_or_clock: Any, seconds: float) -> datetime:
    """So many seconds after now."""
    now: datetime = runtime_or_clock.now()
    return now + timedelta(seconds=seconds)


async def outcome_of(ref: AgentRef, message_id: str | None = None) -> Outcome:
    outcome = await soon(ref.outcome(message_id=message_id))
    assert outcome is not None
    return outcome


async def kinds(runtime: Runtime, id: str = "a") -> list[str]:
    """The kinds of all records of an agent."""
    return [record["kind"] for record in (await soon(runtime.export(id)))["records"]]


async def occurrences(ref: AgentRef) -> list[tuple[str, str | None]]:
    """All occurrences of an agent: the time, and why it was skipped."""
    page = await soon(ref.history(limit=10_000))
    return [
        (entry.detail["due"], entry.detail["skipped"])
        for entry in page.entries
        if entry.what == "occurrence"
    ]


async def left_after(records: Sequence[Record], agent: str = "desk", id: str = "a") -> MemoryStore:
    """A store as a host leaves it that goes away when it has written these records."""
    left = MemoryStore()
    owned = await left.claim(id, agent)
    assert owned is not None
    left.journal(owned, FoldedAgent(replay(records))).append(records)
    await left.release(owned)
    return left
