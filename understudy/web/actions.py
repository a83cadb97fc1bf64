"""The actions on an agent, apart from answers to its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from understudy._base.clock import new_random_id
from understudy.actors import AgentRef, Future
from understudy.actors.verbs import VERBS, Arguments, Verb, arguments_of
from understudy.errors import SchemaVersionError
from understudy.login.bodies import B, checked_as
from understudy.login.problems import refused
from understudy.web.views import schedules
from understudy.web.views.agents import actions_of
from understudy.web.visit import SECONDS, Form, Visit

IMPORTED = 5_000_000
"""The maximum number of values in an export, whose import holds the loop for some seconds."""
ANSWER_SECONDS = 1.0
"""Seconds that an action waits for its result. After that it counts as begun."""


class Body(BaseModel):
    """What the API takes."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


class MessageBody(Body):
    """A message for an agent."""

    text: str = Field(min_length=1)
    steer: bool = False
    at: datetime | None = None
    message_id: str | None = None
    agent: str | None = None
    """The definition of a new agent: it is made if there is none of this id."""
    go_on: bool = False
    """Where the last run failed, continue it with this message, as `retry` does."""


class DeleteBody(Body):
    """The id of the agent once more."""

    confirm: str


class ImportBody(Body):
    """An export, and another id for it."""

    data: dict[str, Any]
    id: str | None = None


class NothingBody(Body):
    """No arguments."""


async def send(visit: Visit) -> dict[str, Any]:
    """Queue a message, or steer the run."""
    visit.need("act")
    return await _send(visit, await visit.body(MessageBody))


async def _send(visit: Visit, body: MessageBody) -> dict[str, Any]:
    ref = visit.ref
    if body.agent is not None:
        ref = visit.own(visit.runtime.spawn(body.agent, id=visit.agent_id))
    if body.go_on:
        return await _go_on(visit, ref, body)
    message_id = await visit.wait(
        ref.send(
            body.text,
            steer=body.steer,
            at=body.at,
            message_id=body.message_id,
            by=visit.user.by,
        )
    )
    return {"id": visit.agent_id, "message_id": message_id}


async def _go_on(visit: Visit, ref: AgentRef[Any], body: MessageBody) -> dict[str, Any]:
    if body.steer or body.at is not None:
        raise refused(400, "BadRequest", "`go_on` goes neither with `steer` nor with `at`.")
    message_id = body.message_id or new_random_id()
    run = ref.run(body.text, message_id=message_id, go_on=True, by=visit.user.by)
    # A run is in no record before it begins. A client that had the answer earlier would take the
    # outcome of the failed run for the outcome of this run.
    async with asyncio.timeout(SECONDS):
        while not await begun(run):
            state = await ref.state()
            if message_id in state.message_ids or (state.run is not None and not state.run.over):
                break
    return {"id": visit.agent_id, "message_id": message_id}


def body_of(verb: Verb) -> type[Arguments]:
    """The body that the API takes for a verb whose call consists of its arguments."""
    return arguments_of(getattr(AgentRef, verb.method))


def view_of(verb: Verb) -> Callable[[Visit], Awaitable[dict[str, Any]]]:
    """The API call for a verb whose call consists of its arguments."""

    async def view(visit: Visit) -> dict[str, Any]:
        visit.need(verb.right)
        return await _call(visit, verb, await visit.body(body_of(verb)))

    view.__name__, view.__doc__ = verb.name, getattr(AgentRef, verb.method).__doc__
    return view


async def _call(visit: Visit, verb: Verb, body: Arguments) -> dict[str, Any]:
    given = body.model_dump()
    future = getattr(visit.ref, verb.method)(**given, by=visit.user.by)
    if verb.of_run or verb.is_long:
        return {"id": visit.agent_id, "done": await begun(future)}
    if await visit.wait(future) is False:
        raise refused(409, "NotNow", "There is nothing to do any more.")
    return {"id": visit.agent_id}


async def delete(visit: Visit) -> dict[str, Any]:
    """Delete the agent and all its records."""
    visit.need("admin")
    body = await visit.body(DeleteBody)
    return await _delete(visit, body)


async def _delete(visit: Visit, body: DeleteBody) -> dict[str, Any]:
    if body.confirm != visit.agent_id:
        raise refused(400, "NotConfirmed", "Type the agent's id to delete it.")
    if not await visit.wait(visit.runtime.delete(visit.agent_id, by=visit.user.by)):
        raise refused(404, "UnknownAgent", "There is no such agent.")
    return {"id": visit.agent_id, "deleted": True}


async def import_(visit: Visit) -> dict[str, Any]:
    """Put an exported agent into this store."""
    visit.need("admin")
    body = await visit.body(ImportBody, most=IMPORTED)
    try:
        ref = await visit.wait(visit.runtime.import_(body.data, body.id, by=visit.user.by))
    except SchemaVersionError as error:  # the file has it, not the store
        raise refused(400, "SchemaVersionError", str(error)) from error
    return {"id": ref.id}


async def recover(visit: Visit) -> dict[str, Any]:
    """Continue every run that was cut off."""
    visit.need("admin")
    await visit.body(NothingBody)
    found = await visit.wait(visit.runtime.recover(by=visit.user.by))
    return {"continued": [ref.id for ref in found]}


async def begun(future: Future[Any]) -> bool:
    """Whether the action is done already; otherwise it has begun. A refusal is raised."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await future
    except TimeoutError:
        return False
    return True


# ---------------------------------------------------------------- the forms of the page


SAID: dict[str, str] = {
    "taken": "They are yours for an hour.",
    "taken-some": "They are yours for an hour, but for those that wait no more.",
    **{verb.name: f"{verb.said[:1].upper()}{verb.said[1:]}." for verb in VERBS.values()},
    "cancel-begun": "The run is being stopped.",
    "decided": "The decision is recorded.",
    "recover": "The runs that were cut off are continued.",
    "retire_rules": "The rules are retired.",
    "freeze": "It is frozen, at each living host.",
    "freeze-begun": "It is frozen. Not every host has said yet that it knows.",
    "thaw": "It is thawed. What waited begins, unless something else is frozen that holds it.",
    "retry_notice-over": "It has not failed, or is not there any more.",
    "thaw-over": "It was thawed before.",
    "cancel_frozen": "The runs are cancelled.",
    **{f"schedule-{change}": said for change, said in schedules.SAID.items()},
}
"""The texts about actions that were done, by code. The address of a page has only the code."""


async def by_form(visit: Visit, name: str, form: Form) -> str:
    """Do what a form of the agent's page asks for. Returns the code of the text about it."""
    action = (
        name
        if name in ("settle", "revoke", "close_review", "cancel_message", "schedules")
        else _action_of(name, form)
    )
    known = {found.name: found for found in actions_of(visit, await visit.state())}
    visit.need(known[action].right if action in known else "act")
    if action in known and known[action].reason is not None:
        raise refused(409, "NotNow", known[action].reason or "")
    match name:
        case "schedules":
            return f"schedule-{await schedules.change_by_form(visit, form)}"
        case "messages":
            await _send(visit, _checked(MessageBody, form, "text", "steer"))
            return "send"
        case "delete":
            await _delete(visit, _checked(DeleteBody, form, "confirm"))
            return "delete"
        case _ if name in VERBS and VERBS[name].plain:
            verb = VERBS[name]
            if name == "settle" and not form.get("happened"):
                raise refused(422, "UsageError", "Choose whether it has happened.")
            body = _checked(body_of(verb), form, *body_of(verb).model_fields)
            begins = (await _call(visit, verb, body)).get("done") is False
            return f"{name}-begun" if begins and f"{name}-begun" in SAID else name
        case _:
            raise refused(404, "NotFound", "There is no such action.")


def _action_of(name: str, form: Form) -> str:
    if name != "messages":
        return name
    return "steer" if form.get("steer") else "send"


def _checked(model: type[B], form: Form, *names: str) -> B:
    return checked_as(model, {name: form.get(name) for name in names if form.get(name)})
