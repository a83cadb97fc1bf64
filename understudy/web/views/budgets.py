"""The budgets: their use, and what persons have added to them."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr

from understudy._base.json_values import shown
from understudy.actors import BudgetUse, Runtime
from understudy.errors import UsageError
from understudy.login.bodies import checked_as
from understudy.login.problems import refused
from understudy.web.visit import Form, Visit


class RaiseBody(BaseModel):
    """What is added to a budget for its window of now, for whom, and why."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    amount: StrictStr | StrictInt | StrictFloat
    why: str = Field(min_length=1, max_length=1000)
    key: str = ""
    """For whom it is counted, as the list says."""


async def budgets(visit: Visit) -> dict[str, Any]:
    """The current use of the budgets, for each budget the keys with the most use first."""
    source = visit.source
    if not isinstance(source, Runtime) or not source.has_budgets:
        return {"budgets": [], "left_off": 0}
    uses = [each for each in await visit.wait(source.budgets()) if _is_of_now(each)]
    places = {use.budget.id: place for place, use in reversed(list(enumerate(uses)))}
    uses.sort(key=lambda use: (places[use.budget.id], -use.used / use.limit, use.key))
    limit = visit.limit(200)
    return {
        "budgets": [use.to_dict() for use in uses[:limit]],
        "left_off": max(len(uses) - limit, 0),
    }


def _is_of_now(use: BudgetUse) -> bool:
    """Whether the use is worth a row: keys of agents that were used long ago are not."""
    return not use.budget.per or bool(use.used or use.raised)


async def raise_budget(visit: Visit) -> dict[str, Any]:
    """Add an amount to a budget for its current window, at all hosts of the store."""
    visit.need("budget")
    return await _raise(visit, await visit.body(RaiseBody))


async def _raise(visit: Visit, body: RaiseBody) -> dict[str, Any]:
    use = await visit.wait(
        visit.runtime.raise_budget(
            body.name, body.amount, key=body.key, why=body.why, by=visit.user.by
        )
    )
    return use.to_dict()


async def by_form(visit: Visit, form: Form) -> str:
    """Raise a budget, as the form of the page says; the code of the text about it."""
    visit.need("budget")
    if form.get("confirm") != "yes":
        raise refused(400, "NotConfirmed", "Confirm that more may be spent.")
    given = {name: form.get(name).strip() for name in ("name", "amount", "why")}
    if not given["why"]:
        raise UsageError(f"Say why the budget {shown(given['name'])} is raised.")
    await _raise(visit, checked_as(RaiseBody, given | {"key": form.get("key")}))
    return "raise_budget"
