"""The story of a run that is cut off before a record, and that another definition continues.

It pays once. Whether a person is asked before that, a gate of then says, and another one of today.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any, Literal, get_args

import pytest

from tests.support.agents import by_turn
from tests.support.cut_off import Crash, Disk
from understudy import (
    Agent,
    Completed,
    Interrupted,
    Outcome,
    approve,
    call,
    respond,
    tool,
)
from understudy.middleware import HumanInTheLoop, Middleware, SubAgent
from understudy.modes import Parallel, Sequential
from understudy.modes.steps import check_interrupts
from understudy.modes.steps.tool_call.gates import requests_about
from understudy.run.run import Run

__all__ = ["BROKEN", "GATES", "PLACES", "Gate", "Place", "deployed"]

Gate = Literal["none", "asks nobody", "asks"]
GATES: tuple[Gate, ...] = get_args(Gate)
Place = Literal["alone", "as a task", "in a sequence", "in a branch"]
PLACES: tuple[Place, ...] = get_args(Place)
"""Where the agent that pays runs. Inside of another agent it is the same object then and today."""
MOST_ANSWERS = 3


def deployed(place: Place, then: Gate, today: Gate) -> list[str]:
    """What is wrong after a cut before any record of the run."""
    wrong: list[str] = []
    for cut in count(1):
        story = _Story(place, then, today)
        is_over = story.is_over_before(cut)
        wrong += [f"cut before record {cut}: {each}" for each in story.go_on()]
        if is_over:
            return wrong
    raise AssertionError("a run has an end")


class _Story:
    def __init__(self, place: Place, then: Gate, today: Gate) -> None:
        self.paid = 0
        self.place, self.then, self.today = place, then, today
        self.disk = Disk()

        @tool
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid += 1
            return "paid"

        @tool(sequential=True, read_only=True)
        async def look() -> str:
            """Look first: its start says that the gates were asked about both calls."""
            return "looked"

        self.tools = [look, pay]
        self.reply = [call("look", {}), call("pay", {"amount": 1})]
        self.clerk = Agent("clerk", by_turn(self.reply), tools=self.tools)

    def agent(self, gate: Gate) -> Agent:
        middleware: list[Middleware] = []
        if gate != "none":
            rule: Any = True if gate == "asks" else {"when": lambda arguments, ctx: False}
            middleware = [HumanInTheLoop({"pay": rule})]
        match self.place:
            case "alone":
                return Agent("boss", by_turn(self.reply), tools=self.tools, middleware=middleware)
            case "as a task":
                turn = call("task", {"task_name": "clerk", "instructions": "Pay."})
                children = SubAgent([self.clerk], general_purpose=False)
                return Agent("boss", by_turn(turn), middleware=[children, *middleware])
            case "in a sequence":
                return Agent("boss", None, mode=Sequential([self.clerk]), middleware=middleware)
            case "in a branch":
                branches = [Agent("beside", by_turn()), self.clerk]
                return Agent("boss", None, mode=Parallel(branches), middleware=middleware)

    def is_over_before(self, cut: int) -> bool:
        """Run it by the definition of then, with a person who approves. False: it was cut off."""
        self.disk.limit = cut
        agent = self.agent(self.then)
        try:
            outcome = agent.execute_sync("Go.", journal=self.disk)
            if isinstance(outcome, Interrupted):
                answers = outcome.decide(approve())
                agent.resume_sync(outcome.state, answers, journal=self.disk)
        except Crash:
            return False
        return True

    def go_on(self) -> list[str]:
        """Continue it by today's definition. Returns what is wrong."""
        state, paid, wrong = self.disk.load(), self.paid, []
        if state.run is None or state.run.over:
            return []
        is_approved = any(
            each.decision.type == "approve" for s in state.tree for each in s.decisions
        )
        was_asked = bool(state.requests)
        disk, agent = Disk(), self.agent(self.today)
        outcome = agent.resume_sync(state, journal=disk)
        asked = _approvals(outcome)
        if self.paid > paid and not is_approved and (self.today == "asks" or was_asked):
            wrong.append("it paid, and nobody was asked")
        if is_approved and asked:
            wrong.append("a person is asked again about what was approved")
        if not asked and not is_approved and was_asked:
            wrong.append("an open request is gone")
        if self.today != "asks" and "requested" in _kinds(disk):
            wrong.append("a request is recorded, and no gate of today asks")
        for _ in range(MOST_ANSWERS):
            if not isinstance(outcome, Interrupted):
                break
            answers = [
                approve() if request.kind == "approval" else respond("paid")
                for request in outcome.requests
            ]
            outcome = agent.resume_sync(outcome.state, outcome.decide(*answers))
        if not isinstance(outcome, Completed):
            wrong.append(f"it ends as {outcome!r}")
        if self.paid > 1:
            wrong.append(f"it paid {self.paid} times")
        return wrong


def _approvals(outcome: Outcome) -> list[str]:
    requests = outcome.requests if isinstance(outcome, Interrupted) else ()
    return [request.id for request in requests if request.kind == "approval"]


def _kinds(disk: Disk) -> list[str]:
    kinds = []
    for line in disk.lines:
        record = json.loads(line)
        while record["kind"] == "child_record":
            record = record["record"]
        if record["kind"] != "requested" or record["request"]["kind"] == "approval":
            kinds.append(record["kind"])
    return kinds


# ---------------------------------------------------------------------- broken builds


async def _nothing(*_: object) -> None:
    """A step that does nothing."""


def _not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(check_interrupts, "_ask_gates_of_today", _nothing)


def _own_gates_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "asked_by", property(lambda run: run.definition.asked_by))


def _asked_whatever_was_said(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(check_interrupts, "_was_asked_about", lambda _: False)


def _asked_about_all(patch: pytest.MonkeyPatch) -> None:
    async def about(run: Run, calls: Any) -> Any:
        found = await requests_about(run, calls)
        turn = run.current.turn
        is_again = turn is not None and turn.interrupts_checked
        return [each.request() for each in calls] if is_again and not found else found

    patch.setattr(check_interrupts, "requests_about", about)


BROKEN: dict[str, tuple[Place, Gate, Gate, Callable[[pytest.MonkeyPatch], None]]] = {
    "I4: gates of today are not asked": ("alone", "asks nobody", "asks", _not_asked),
    "I4: only gates of the agent itself count as new": (
        "as a task",
        "asks nobody",
        "asks",
        _own_gates_alone,
    ),
    "I4: who has said yes is asked again": ("alone", "asks", "asks", _asked_whatever_was_said),
    "I4: a person is asked though no gate asks": (
        "alone",
        "asks nobody",
        "asks nobody",
        _asked_about_all,
    ),
}
"""Each broken build, by what is wrong with it, and the story that finds it."""
