"""The schedules of an agent, and the possible actions on each."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from understudy._base.json_values import jsonable
from understudy._base.points_in_time import time_text
from understudy.actors import Future
from understudy.login.problems import refused
from understudy.models.display_halves import halves_of
from understudy.state.plans import Schedule
from understudy.web.views.agents import allowed_actions
from understudy.web.visit import Form, Visit

Change = Literal["pause", "unpause", "trigger", "remove"]
SAID: dict[Change, str] = {
    "pause": "The schedule is paused.",
    "unpause": "The schedule is resumed.",
    "trigger": "The schedule occurs now.",
    "remove": "The schedule is removed.",
}


class ScheduleBody(BaseModel):
    """A change of a schedule."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    schedule: str
    action: Change


async def schedules(visit: Visit) -> dict[str, Any]:
    """The schedules and timed messages of the agent, with the possible actions."""
    plans = (await visit.state()).plans
    found = () if plans is None else plans.schedules.values()
    return {"id": visit.agent_id, "schedules": [schedule_row(visit, each) for each in found]}


def schedule_row(visit: Visit, schedule: Schedule) -> dict[str, Any]:
    """A schedule of the list."""
    text, _ = halves_of(schedule.message)
    latest = schedule.latest
    reasons: dict[Change, str | None] = {
        "pause": "It is paused already." if schedule.paused else None,
        "unpause": None if schedule.paused else "It is not paused.",
        "trigger": None,
        "remove": None,
    }
    changes = [(name, "schedules.set", why) for name, why in reasons.items()]
    actions = allowed_actions(visit, changes)
    return {
        "id": schedule.id,
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "text": text,
        "missed": schedule.missed,
        "overlap": schedule.overlap,
        "paused": schedule.paused,
        "by": schedule.by,
        "created_at": time_text(schedule.created_at),
        "next_due": time_text(schedule.next_due),
        "latest": None
        if latest is None
        else {
            "due": time_text(latest.due),
            "triggered": latest.triggered,
            "skipped": latest.skipped,
        },
        "actions": [action.to_dict() for action in actions],
    }


async def change_schedule(visit: Visit) -> dict[str, Any]:
    """Pause a schedule or resume it, let it occur now, or remove it."""
    visit.need("act")
    body = await visit.body(ScheduleBody)
    result = jsonable(await _change(visit, body.schedule, body.action))
    return {"id": visit.agent_id, "schedule": body.schedule, "result": result}


async def change_by_form(visit: Visit, form: Form) -> Change:
    """Do with a schedule what a button of the page says."""
    visit.need("act")
    id, asked = form.get("schedule"), form.get("change")
    rows = {row["id"]: row for row in (await schedules(visit))["schedules"]}
    if id not in rows:
        raise refused(409, "NotNow", "The schedule is removed.")
    actions = {action["name"]: action for action in rows[id]["actions"]}
    for change in SAID:
        if change == asked:
            if not actions[change]["enabled"]:
                raise refused(409, "NotNow", actions[change]["reason"])
            await _change(visit, id, change)
            return change
    raise refused(404, "NotFound", "There is no such action.")


async def _change(visit: Visit, id: str, change: Change) -> Any:
    schedules = visit.runtime.schedules(visit.ref)
    doing: Future[Any]
    by = visit.user.by
    match change:
        case "pause":
            doing = schedules.pause(id, by=by)
        case "unpause":
            doing = schedules.resume(id, by=by)
        case "trigger":
            doing = schedules.trigger(id, by=by)
        case "remove":
            doing = schedules.remove(id, by=by)
    return await visit.wait(doing)
