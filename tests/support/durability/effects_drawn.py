"""Stories that are drawn: tools, errors, crashes and deploys in any mix."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.support.cut_off import Crash
from tests.support.durability.effects_story import ORDER, Cell, Kind, Lagging, Story, eager
from understudy import Agent, Retry, Tool, ToolContext
from understudy.middleware import Middleware, SubAgent
from understudy.modes import Sequential
from understudy.testing import Fault
from understudy.tools import OutcomeUnknown, ToolFailed

__all__ = ["Drawn", "drawn", "violations_of"]

FAULTS: dict[str, Fault | None] = {
    "works": None,
    "reset, paid": Fault.reset(),
    "reset, not paid": Fault.reset(happened=False),
    "no answer, paid": Fault.no_answer(),
    "no answer, not paid": Fault.no_answer(happened=False),
    "refused": Fault.refused(),
    "503, paid": Fault.status(503, happened=True),
    "503, not paid": Fault.status(503),
    "400": Fault.status(400),
    "cancelled, paid": Fault(asyncio.CancelledError, happened=True),
    "OutcomeUnknown, paid": Fault(OutcomeUnknown, happened=True),
    "ValueError, not paid": Fault(lambda: ValueError("no such order"), happened=False),
    "Retry": Fault(Retry, happened=False),
    "ToolFailed": Fault(lambda: ToolFailed("no money"), happened=False),
    "the process dies, paid": Fault(Crash, happened=True),
    "the process dies, not paid": Fault(Crash, happened=False),
}
SHAPES = ("alone", "inside a task", "in a workflow")


@dataclass(frozen=True, slots=True)
class Process:
    """What a process is deployed with, and when it goes away."""

    kind: Kind
    gated: bool
    records: int | None
    """It goes away after so many records of its own; None if only a tool may end it."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A story."""

    processes: tuple[Process, ...]
    """The last one lives, unless a tool ends it: then another one like it continues."""
    faults: tuple[str, ...]
    keys: bool
    has_key: bool
    has_check: bool
    wrapped: bool
    shape: str
    until: bool

    @property
    def is_looking(self) -> bool:
        return self.processes[0].kind == "read_only"


_with_effects: st.SearchStrategy[Kind] = st.sampled_from(["plain", "idempotent"])


_seldom = st.sampled_from([False, False, False, True])


@st.composite
def _drawn(draw: st.DrawFn) -> Drawn:
    looks = draw(st.integers(0, 4)) == 0
    kinds: st.SearchStrategy[Any] = st.just("read_only") if looks else _with_effects
    process = st.builds(Process, kinds, st.booleans(), st.none() | st.integers(1, 20))
    shape = draw(st.sampled_from(SHAPES))
    return Drawn(
        processes=tuple(draw(st.lists(process, min_size=1, max_size=3))),
        faults=tuple(draw(st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=4))),
        keys=not looks and draw(st.booleans()),
        has_key=not looks and draw(_seldom),
        has_check=not looks and draw(_seldom),
        wrapped=draw(_seldom),
        shape=shape,
        until=shape == "alone" and draw(st.booleans()),
    )


drawn: st.SearchStrategy[Drawn] = _drawn()


class _AfterErrors(Middleware):
    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        try:
            return await next(call)
        except Exception:
            return await next(call)


def _tool(story: Story, given: Drawn, process: Process) -> Tool[Any]:
    options: dict[str, Any] = {"ask": process.gated}
    if given.has_key:
        options["key"] = lambda arguments: f"order {arguments['order']}"
    if given.has_check:

        def check(ctx: ToolContext[Any], arguments: dict[str, Any]) -> Any:
            return story.bank.find(arguments["order"])

        options["check"] = check
    return story.tool(**options, **story.declared_as(process.kind))


def _agent(story: Story, given: Drawn, process: Process) -> Agent:
    wrappers = [_AfterErrors()] if given.wrapped else []
    payer = Agent("payer", eager(), tools=[_tool(story, given, process)], middleware=wrappers)
    if given.shape == "in a workflow":
        return Agent("desk", mode=Sequential([payer]))
    if given.shape == "inside a task":
        order = {"task_name": "payer", "instructions": f"Pay for {ORDER}."}
        model = eager(tool_name="task", id="t", arguments=order)
        return Agent("desk", model, middleware=[SubAgent([payer], general_purpose=False)])
    return payer


async def _live(story: Story, given: Drawn) -> None:
    story.fails_by(*(FAULTS[name] for name in given.faults))
    lines: list[str] = []
    options: dict[str, Any] = {"until_tool_success": "pay"} if given.until else {}
    last = given.processes[-1]
    lives = [*given.processes[:-1], *[Process(last.kind, last.gated, None)] * 6]
    for process in lives:
        journal = Lagging(process.records, behind=lines)
        state = journal.load() if lines else None
        left = await story.died(
            lambda process=process: _agent(story, given, process),  # type: ignore[misc]  # bound
            journal,
            state,
            **options,
        )
        if left is None:
            return
        lines = journal.lines
    story.violations.append("it never ends")


def violations_of(given: Drawn) -> list[str]:
    """What is wrong with it in the end."""
    first = given.processes[0]
    kinds = {process.kind for process in given.processes}
    kind: Kind = "read_only" if given.is_looking else first.kind
    if "idempotent" in kinds:
        kind = "idempotent"  # some calls may be repeated under their keys
    story = Story(Cell(kind, any(p.gated for p in given.processes), given.keys))
    asyncio.run(_live(story, given))
    story.judge_effects(times=None)
    return story.violations
