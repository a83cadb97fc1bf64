"""Freezes: what does not begin until it is thawed, and the calls that are under way nevertheless.

A live page has the list. The calls are on a separate page that is not live: to find them, all open
runs of the store are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from understudy._base.json_values import shown
from understudy.actors import Future, Runtime, Status
from understudy.agent.rule_checks import reachable_tools
from understudy.errors import UnderstudyError, UsageError
from understudy.login.bodies import checked_as
from understudy.login.problems import problem_of, refused
from understudy.state.agent_state import AgentState
from understudy.state.run_state import Call
from understudy.trust.freezes import Freeze
from understudy.web.visit import Form, Visit

MOST_RUNS = 500
"""The maximum number of runs that a form cancels at once."""
CANCEL_SECONDS = 5.0
"""Seconds that a page waits for runs to end. After that their cancellation has begun."""


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
    """The freezes of now; with `?id=` a single freeze, with the calls that are under way."""
    return {"freezes": [each.to_dict() for each in await _found(visit, visit.asked("id"))]}


async def _found(visit: Visit, id: str | None = None) -> list[Freeze]:
    if isinstance(visit.source, Runtime):
        return await visit.wait(visit.source.freezes(id))
    found = await visit.wait(visit.source.freezes())
    return [each for each in found if id in (None, each.id)]


async def freeze(visit: Visit) -> dict[str, Any]:
    """Let nothing begin any more. The answer comes once that holds at each living host."""
    visit.need("freeze")
    return (await visit.wait(_freeze(visit, await visit.body(FreezeBody)))).to_dict()


def _freeze(visit: Visit, body: FreezeBody) -> Future[Freeze]:
    return visit.runtime.freeze(
        definition=body.definition, tool=body.tool, why=body.why, by=visit.user.by
    )


async def thaw(visit: Visit) -> dict[str, Any]:
    """End a freeze: what waited begins."""
    visit.need("freeze")
    return await _thaw(visit, await visit.body(ThawBody))


async def _thaw(visit: Visit, body: ThawBody) -> dict[str, Any]:
    return {
        "id": body.id,
        "thawed": await visit.wait(visit.runtime.thaw(body.id, by=visit.user.by)),
    }


# ---------------------------------------------------------------- the forms of the pages


def form_values(visit: Visit) -> dict[str, Any]:
    """The choices of the form: the names of the definitions and tools that this host knows."""
    agents = visit.source.definitions if isinstance(visit.source, Runtime) else ()
    tools = list(reachable_tools(agents))
    definitions = {agent.name for agent in agents}
    definitions.update(name for tool in tools for name in tool.agent_path)
    return {
        "definitions": sorted(definitions),
        "tools": sorted({tool.names[0] for tool in tools if not tool.unseen}),
    }


async def freeze_by_form(visit: Visit, form: Form) -> tuple[str, str]:
    """Freeze, as the form of the page says. Returns the id of the freeze, and the code of the
    text.
    """
    visit.need("freeze")
    what, name, why = (form.get(field).strip() for field in ("what", "name", "why"))
    if form.get("confirm") != "yes":
        raise refused(400, "NotConfirmed", "Confirm that nothing of it begins any more.")
    if what not in ("store", "definition", "tool"):
        raise UsageError("Choose what is frozen: the whole store, a definition or a tool.")
    if what == "store" and name:
        raise UsageError(
            f"The whole store has no name: leave the name {shown(name)} out, or choose a "
            "definition or a tool."
        )
    if what != "store" and not name:
        raise UsageError(f"Name the {what} that is frozen.")
    if not why:
        raise UsageError("Say why it is frozen.")
    body = checked_as(FreezeBody, {"why": why} | ({} if what == "store" else {what: name}))
    try:
        return (await visit.wait(_freeze(visit, body))).id, "freeze"
    except TimeoutError:
        # The freeze is recorded, but a host has not answered yet: its lease may last longer.
        of = (what, name, why, visit.user.by)
        for each in await _found(visit):
            if (each.what, each.name, each.why, each.by) == of:
                return each.id, "freeze-begun"
        raise


async def thaw_by_form(visit: Visit, form: Form) -> str:
    """Thaw, as the form of the page says; the code of the text about it."""
    visit.need("freeze")
    if form.get("confirm") != "yes":
        raise refused(400, "NotConfirmed", "Confirm that what waits begins.")
    done = await _thaw(visit, checked_as(ThawBody, {"id": form.get("id")}))
    return "thaw" if done["thawed"] else "thaw-over"


async def under_way(visit: Visit) -> dict[str, Any]:
    """A freeze with the calls that are under way now, for its page."""
    found = await _found(visit, visit.request.path_params["freeze_id"])
    if not found:
        raise refused(404, "NotFound", "It is not frozen any more.")
    return {
        **visit.redacted(found[0].to_dict(), "freezes", 0),
        "is_known": isinstance(visit.source, Runtime),
    }


async def cancel_by_form(visit: Visit, freeze_id: str, form: Form) -> dict[str, str]:
    """Cancel the runs that the form names, in the name of the user.

    Returns:
        The reasons why other runs could not be cancelled, by agent id.

    """
    visit.need("act")
    chosen = list(dict.fromkeys(_runs_of(form)))
    if not chosen or len(chosen) > MOST_RUNS:
        raise refused(400, "UsageError", f"Name the runs to cancel, at most {MOST_RUNS} at once.")
    stands = next((each for each in visit.freezes if each.id == freeze_id), None)
    message = "cancelled" if stands is None else stands.text
    reasons = await asyncio.gather(
        *(_cancel(visit.about(agent_id), run_id, message) for agent_id, run_id in chosen)
    )
    return {
        agent_id: reason
        for (agent_id, _), reason in zip(chosen, reasons, strict=True)
        if reason is not None
    }


def _runs_of(form: Form) -> Iterator[tuple[str, str]]:
    """The agents, each with its run. No agent's id has a slash in it."""
    for value in form.all("run"):
        agent_id, _, run_id = value.partition("/")
        if not agent_id or not run_id:
            raise refused(400, "NotAForm", "The form cannot be read.")
        yield agent_id, run_id


async def _cancel(visit: Visit, run_id: str, message: str) -> str | None:
    """Cancel a run. Returns the reason if it is refused. A slow cancellation counts as begun."""
    try:
        async with asyncio.timeout(CANCEL_SECONDS):
            await visit.ref.cancel(message, run_id=run_id, by=visit.user.by)
    except TimeoutError:
        return None
    except UnderstudyError as error:
        return problem_of(error).detail
    return None


# ------------------------------------------------------------------ what holds an agent


async def frozen_rows(visit: Visit, rows: Collection[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a list of agents, each with the text of the freeze that holds the agent."""
    return [{**row, "frozen": await _frozen_row(visit, row)} for row in rows]


async def _frozen_row(visit: Visit, row: dict[str, Any]) -> str | None:
    text = frozen_by(visit, row["agent"], None)
    if text is not None or not visit.freezes or row["status"] != Status.RUNNING.value:
        return text
    # Its run may rest at a frozen call, or at a frozen inner agent, which the list does not say.
    try:
        return frozen_by(visit, row["agent"], await visit.about(row["id"]).state())
    except UnderstudyError:  # the agent is damaged, or was deleted meanwhile, which the row says
        return None


def frozen_by(visit: Visit, agent: str, state: AgentState | None) -> str | None:
    """The text of the freeze that holds an agent; None if none does.

    Args:
        visit: the visit, which knows what is frozen.
        agent: the name of its definition.
        state: the state of the agent; None = only the definition is checked.

    """
    return next((each.text for each in visit.freezes if _holds(visit, each, agent, state)), None)


def _holds(visit: Visit, freeze: Freeze, agent: str, state: AgentState | None) -> bool:
    if freeze.what != "tool" and freeze.is_about((agent,), ()):
        return True
    return state is not None and _rests_at(freeze, _names_of(visit, freeze), state)


def _rests_at(freeze: Freeze, names: Collection[str], state: AgentState) -> bool:
    """Whether the open run of an agent, or of an inner agent, rests because of a freeze."""
    run = state.run
    if run is None or run.over:
        return False
    waiting = [call for call in run.calls if call.result is None]
    if freeze.what == "definition" and (
        freeze.name == run.agent or any(_asks_for(call, freeze.name) for call in waiting)
    ):
        return True
    # A body that was entered runs to its end, whatever is frozen.
    if any(call.part.tool_name in names and not call.running for call in waiting):
        return True
    return any(_rests_at(freeze, names, child) for child in state.children.values())


def _asks_for(call: Call, name: str) -> bool:
    """Whether a call is to run an agent of a definition, which has no state before it begins."""
    return name == call.part.tool_name or name in call.made_arguments.values()


def _names_of(visit: Visit, freeze: Freeze) -> Collection[str]:
    """The present and earlier names of a frozen tool in the definitions of this host."""
    if freeze.what != "tool":
        return ()
    agents = visit.source.definitions if isinstance(visit.source, Runtime) else ()
    tools = [tool for tool in reachable_tools(agents) if freeze.name in tool.names]
    return {freeze.name}.union(*(tool.names for tool in tools))
