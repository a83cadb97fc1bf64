"""Freezes: what begins no more, until it is thawed."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from understudy.actors import Observer, Runtime
from understudy.web.visit import Visit


class FreezeBody(BaseModel):
    """The whole store; or a definition; or a tool."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    why: str
    definition: str | None = None
    tool: str | None = None


class ThawBody(BaseModel):
    """Which freeze is over."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    id: str


async def freezes(visit: Visit) -> dict[str, Any]:
    """What is frozen now."""
    # A cluster freezes nothing itself.
    known = isinstance(visit.source, (Runtime, Observer))
    found = await visit.wait(visit.source.freezes()) if known else []
    return {"freezes": [each.to_dict() for each in found]}


async def freeze(visit: Visit) -> dict[str, Any]:
    """Let nothing begin any more. The answer comes once that holds at each living host."""
    visit.need("freeze")
    body = await visit.body(FreezeBody)
    made = await visit.wait(
        visit.runtime.freeze(
            definition=body.definition, tool=body.tool, why=body.why, by=visit.user.by
        )
    )
    return made.to_dict()


async def thaw(visit: Visit) -> dict[str, Any]:
    """End a freeze: what waited begins."""
    visit.need("freeze")
    body = await visit.body(ThawBody)
    return {
        "id": body.id,
        "thawed": await visit.wait(visit.runtime.thaw(body.id, by=visit.user.by)),
    }
