"""`Schedules`: the schedules of one agent, to list and to change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Required, TypedDict, TypeVar, cast, get_args

from understudy._base import security_log
from understudy._base.authors import checked_author
from understudy._base.json_values import checked_text, shown
from understudy.actors.agent.cron import checked_cron, next_time
from understudy.actors.agent.messages import ChangePlans
from understudy.actors.agent.planner import PlanChange
from understudy.actors.agent_ref import AgentRef
from understudy.errors import UsageError
from understudy.loop_actors.future import Future
from understudy.loop_actors.monitor import Lifetime
from understudy.models.messages import UserInput, user_message
from understudy.state.plans import Missed, Occurrence, Overlap, Schedule

R = TypeVar("R", bound=AgentRef)


class ScheduleOptions(TypedDict, total=False):
    """The options of `Schedules.set`, as keyword arguments."""

    cron: Required[str]
    input: Required[UserInput]
    timezone: str
    name: str | None
    missed: Missed
    overlap: Overlap
    by: str | None


class Schedules:
    """The schedules of one agent. Each call returns a `Future`, which settles when it is durable.

    The future raises `UsageError` if the agent has no such schedule. `by` is the person who asks
    for a change, for the record.
    """

    def __init__(self, ref: AgentRef) -> None:
        self._ref = ref

    def __repr__(self) -> str:
        return f"<schedules of {self._ref!r}>"

    def set(
        self,
        id: str,
        *,
        cron: str,
        input: UserInput,
        timezone: str = "UTC",
        name: str | None = None,
        missed: Missed = "one",
        overlap: Overlap = "skip",
        by: str | None = None,
    ) -> Future[Schedule]:
        """Set a schedule; see `Runtime.schedule`."""
        what = f"Schedule {shown(id)}"
        _check_id(id)
        author = checked_author(by, what=f"{what}: `by`")
        label = id if name is None else checked_text(name, what=f"{what}: `name`")
        line, zone = checked_cron(cron, timezone, what=what)
        for option, given, known in (
            ("missed", missed, get_args(Missed)),
            ("overlap", overlap, get_args(Overlap)),
        ):
            if given not in known:
                there = ", ".join(map(repr, known))
                raise UsageError(f"{what}: `{option}` must be one of {there}, got {shown(given)}")
        if missed == "all" and overlap == "skip":
            raise UsageError(
                f"{what}: missed='all' queues one occurrence behind the other, and overlap='skip' "
                "skips all but one: give overlap='queue' too, or missed='one'"
            )

        now = self._ref._slot.services.clock.now()
        wanted = Schedule(
            id=id,
            name=label,
            cron=line,
            timezone=zone,
            message=user_message(input, at=now),
            missed=missed,
            overlap=overlap,
            created_at=now,
            next_due=next_time(line, zone, now),
            context={**self._ref._slot.services.codecs.capture()},
            by=author,
        )
        return self._change(PlanChange("set", id, wanted, by=author))

    def list(self) -> Future[list[Schedule]]:
        """Return all schedules by their ids."""
        return self._ref.state().map(
            lambda state: (
                sorted(state.plans.schedules.values(), key=lambda schedule: schedule.id)
                if state.plans is not None
                else []
            )
        )

    def pause(self, id: str, *, by: str | None = None) -> Future[Schedule]:
        """Stop the occurrences until `resume`. Occurrences that already wait for their runs get
        them.
        """
        return self._change(PlanChange("pause", id, by=by))

    def resume(self, id: str, *, by: str | None = None) -> Future[Schedule]:
        """Let occurrences come again. Occurrences during the pause are left out."""
        return self._change(PlanChange("resume", id, by=by))

    def trigger(self, id: str, *, by: str | None = None) -> Future[Occurrence]:
        """Add an occurrence now, even while the schedule is paused. Its own times stay as they are.

        The future resolves to the occurrence. With `overlap="skip"` it is skipped if another
        occurrence is under way.
        """
        services = self._ref._slot.services
        now = services.clock.now()
        message_id = services.new_id()
        return self._change(PlanChange("trigger", id, at=now, message_id=message_id, by=by))

    def remove(self, id: str, *, by: str | None = None) -> Future[None]:
        """Remove the schedule, and its occurrences that wait for their runs. A current run
        continues.
        """
        return self._change(PlanChange("remove", id, by=by))

    def _change(self, change: PlanChange) -> Future[Any]:
        _check_id(change.id)
        by = checked_author(change.by, what=f"Schedule {shown(change.id)}: `by`")
        security_log.note("act", f"schedules.{change.action}", who=by, agent=self._ref.id)
        return self._ref._ask(ChangePlans(replace(change, by=self._ref._by(by))))


def _check_id(given: object) -> None:
    checked_text(given, what="The `id` of a schedule")


def own_ref(given: object, get: Callable[[str], R], lifetime: Lifetime) -> R:
    """The ref of an agent, given by its id or its ref.

    Args:
        given: of the caller.
        get: the ref of an id.
        lifetime: of the runtime, or cluster, that is called: each of its refs has it.

    Raises:
        UsageError: if it is neither, or the ref of another runtime.

    """
    if isinstance(given, AgentRef):
        if given.actor_stopped is not lifetime:
            raise UsageError(
                f"{given!r} is the ref of an agent of another runtime: give one of this runtime, "
                f"such as get({given.id!r})"
            )
        return cast("R", given)
    if not isinstance(given, str):
        raise UsageError(f"`agent` must be a ref or the id of an agent, got {shown(given)}")
    return get(given)
