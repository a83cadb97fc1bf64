"""The notices of requests to people, delivered or not."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, Field

from understudy.login.problems import refused
from understudy.web.visit import Form, Visit


class RetryBody(BaseModel):
    """Which notice is delivered again."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    no: int = Field(ge=1, le=1 << 53)


async def notifications(visit: Visit) -> dict[str, Any]:
    """The notices, newest first, in pages: all, or those with a state."""
    state = visit.asked("state")
    page = await visit.wait(
        visit.source.notices(
            state=cast("Any", state), after=visit.asked("after"), limit=visit.limit(50)
        )
    )
    return {
        "notifications": [each.to_dict() for each in page],
        "next": page.after,
        "filters": {"state": state},
    }


async def retry(visit: Visit) -> dict[str, Any]:
    """Deliver a notice that has failed once more."""
    visit.need("act")
    return await _retry(visit, (await visit.body(RetryBody)).no)


async def _retry(visit: Visit, no: int) -> dict[str, Any]:
    retried = await visit.wait(visit.runtime.retry_notice(no, by=visit.user.by))
    return {"no": no, "retried": retried}


async def by_form(visit: Visit, form: Form) -> str:
    """Deliver a notice again, as the form of the page says; the code of the text about it."""
    visit.need("act")
    given = form.get("no")
    if not given.isascii() or not given.isdecimal() or not 1 <= len(given) <= 15:
        raise refused(400, "UsageError", "Say which notice is delivered again.")
    done = await _retry(visit, max(int(given), 1))
    return "retry_notice" if done["retried"] else "retry_notice-over"
