"""The features that each host of the store must have."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from understudy.trust.required import Requirable
from understudy.web.visit import Visit


class RequireBody(BaseModel):
    """What is required, or is not any more."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: Requirable
    required: bool = True


async def required(visit: Visit) -> dict[str, Any]:
    """The features that may be required, whether they are, and which hosts lack them."""
    found = await visit.wait(visit.runtime.required())
    return {"requirements": [each.to_dict() for each in found]}


async def require(visit: Visit) -> dict[str, Any]:
    """Require a feature of each host, or require it no longer."""
    visit.need("admin")
    body = await visit.body(RequireBody)
    changed = await visit.wait(
        visit.runtime.require(body.name, required=body.required, by=visit.user.by)
    )
    return {"name": body.name, "required": body.required, "changed": changed}
