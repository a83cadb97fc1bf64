"""The notes of people beside a request: claims, comments, snoozes and assignments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from understudy.actors import Future
from understudy.approvals import Caller
from understudy.errors import DecisionError, UsageError
from understudy.login.bodies import B, checked_as
from understudy.login.problems import refused
from understudy.state.request_notes import LONGEST_COMMENT, RequestNotes, viewer_keys
from understudy.web.visit import Form, Visit

OF = ("mine", "nobody", "all")
"""The owners by which a list can be filtered, instead of the usual list of the user."""
TIMES: tuple[tuple[str, str, timedelta], ...] = (
    ("15m", "15 minutes", timedelta(minutes=15)),
    ("1h", "an hour", timedelta(hours=1)),
    ("4h", "4 hours", timedelta(hours=4)),
    ("1d", "a day", timedelta(days=1)),
    ("7d", "a week", timedelta(days=7)),
)
"""The times that the forms offer, each with code, words and duration."""


class Body(BaseModel):
    """What the API takes."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


class TakeBody(Body):
    """Until when the user has it; an hour by default. Or the end of that."""

    until: datetime | None = None
    release: bool = False


class CommentBody(Body):
    """What is written."""

    text: str = Field(min_length=1, max_length=LONGEST_COMMENT)


class SnoozeBody(Body):
    """Until when the user does not see it in lists; null shows it again."""

    until: datetime | None


class AssignBody(Body):
    """The name of a login; or issuer and subject of an identity provider; null: nobody."""

    to: str | tuple[str, str] | None


# ------------------------------------------------------------------------------ looking


def filters(visit: Visit) -> dict[str, Any]:
    """The filters of a list for the user, as the arguments of `pending`."""
    of = visit.asked("of")
    if of not in (None, *OF):
        raise UsageError(f"`of` must be {', '.join(map(repr, OF))}, got {of!r}")
    found: dict[str, Any] = {"viewer": _party(visit.user.caller)}
    if of == "mine":
        found |= {"mine": True, "snoozed": True}
    elif of == "nobody":
        found["unassigned"] = True
    elif of == "all":
        found["snoozed"] = True
    return found


def _party(caller: Caller) -> Any:
    """A person in the form that can be sent to another process."""
    return (caller.issuer, caller.subject) if caller.issuer else caller.name


def notes_for_user(visit: Visit, notes: RequestNotes) -> dict[str, Any]:
    """The notes beside a request, as the user sees them."""
    return notes.to_dict(viewer_keys(visit.user.caller))


async def notes(visit: Visit) -> dict[str, Any]:
    """The notes beside a request, with the comments, and the viewers of its page now."""
    return _page(visit, await visit.wait(visit.source.notes(visit.agent_id, visit.request_id)))


def _page(visit: Visit, found: RequestNotes) -> dict[str, Any]:
    presence = visit.source.presence
    about = visit.agent_id, visit.request_id
    return {
        **notes_for_user(visit, found),
        "comments": [each.to_dict() for each in found.comments],
        "looking": presence.looking(*about, but=visit.user.caller),
    }


# ------------------------------------------------------------------------------ writing


async def take(visit: Visit) -> dict[str, Any]:
    """Note that the user looks after a request until a time, or no longer. It refuses nobody."""
    visit.need("decide")
    return await _take(visit, await visit.body(TakeBody))


async def _take(visit: Visit, body: TakeBody) -> dict[str, Any]:
    return await _done(
        visit,
        visit.runtime.take(
            *_about(visit), until=body.until, release=body.release, by=visit.user.by
        ),
    )


async def comment(visit: Visit) -> dict[str, Any]:
    """Write something beside a request, for others who look at it."""
    visit.need("decide")
    return await _comment(visit, await visit.body(CommentBody))


async def _comment(visit: Visit, body: CommentBody) -> dict[str, Any]:
    return await _done(visit, visit.runtime.comment(*_about(visit), body.text, by=visit.user.by))


async def snooze(visit: Visit) -> dict[str, Any]:
    """Leave a request out of the lists of the user until a time."""
    visit.need("decide")
    return await _snooze(visit, await visit.body(SnoozeBody))


async def _snooze(visit: Visit, body: SnoozeBody) -> dict[str, Any]:
    return await _done(
        visit, visit.runtime.snooze(*_about(visit), until=body.until, by=visit.user.by)
    )


async def assign(visit: Visit) -> dict[str, Any]:
    """Note who is to look after a request."""
    visit.need("decide")
    return await _assign(visit, await visit.body(AssignBody))


async def _assign(visit: Visit, body: AssignBody) -> dict[str, Any]:
    return await _done(visit, visit.runtime.assign(*_about(visit), to=body.to, by=visit.user.by))


def _about(visit: Visit) -> tuple[str, str]:
    return visit.agent_id, visit.request_id


async def _done(visit: Visit, future: Future[RequestNotes]) -> dict[str, Any]:
    try:
        return _page(visit, await visit.wait(future))
    except DecisionError as error:
        raise refused(409, "NotPending", str(error)) from error


VERBS: tuple[tuple[str, Callable[[Visit], Awaitable[dict[str, Any]]], type[BaseModel]], ...] = (
    ("take", take, TakeBody),
    ("comment", comment, CommentBody),
    ("snooze", snooze, SnoozeBody),
    ("assign", assign, AssignBody),
)
"""The API calls for notes beside a request."""


# ---------------------------------------------------------------- the forms of the pages


async def by_form(visit: Visit) -> None:
    """Write the note of a form."""
    verb = visit.request.path_params["verb"]
    visit.need("decide")
    form = await visit.form()
    match verb:
        case "take":
            await _take(visit, TakeBody(until=await _until(visit, form, "1h")))
        case "release":
            await _take(visit, TakeBody(release=True))
        case "comment":
            await _comment(visit, _checked(CommentBody, {"text": form.get("text").strip()}))
        case "snooze":
            await _snooze(visit, SnoozeBody(until=await _until(visit, form, "")))
        case "wake":
            await _snooze(visit, SnoozeBody(until=None))
        case "assign":
            to = visit.user.caller if form.get("to_me") else form.get("to").strip()
            if not to:
                raise refused(422, "UsageError", "Name the person who is to look after it.")
            party = _party(to) if isinstance(to, Caller) else to
            await _assign(visit, AssignBody(to=party))
        case "unassign":
            await _assign(visit, AssignBody(to=None))
        case _:
            raise refused(404, "NotFound", "There is no such action.")


def _checked(model: type[B], given: dict[str, Any]) -> B:
    if not given["text"]:
        raise refused(422, "UsageError", "Write the comment.")
    return checked_as(model, given)


async def _until(visit: Visit, form: Form, default: str) -> datetime:
    chosen = form.get("for", default)
    for code, _, long in TIMES:
        if code == chosen:
            return await visit.time() + long
    raise refused(422, "UsageError", "Choose one of the times.")


_LABELS = {
    "note": "Note for the audit",
    "message": "For the model",
    "value": "Answer",
    "text": "Text",
    "why": "Why",
}
MOST_TYPED = 50
"""The maximum number of fields that are given back."""


def typed_texts(form: Form | None) -> list[tuple[str, str]]:
    """The texts that were typed into a refused form, with the names of the fields."""
    if form is None:
        return []
    found = []
    for name, text in form.pairs:
        label = _LABELS.get(name) or name.removeprefix("v:/").replace("/", " ")
        if text.strip() and (name in _LABELS or name.startswith("v:/")):
            found.append((label, text.replace("\r\n", "\n")))
    return found[:MOST_TYPED]


# ------------------------------------------------------------------------- live pages


def watched(visit: Visit, give: Callable[[], None]) -> Callable[[], None]:
    """Give a hint whenever somebody writes a note or looks at what a page shows.

    The user of the page of a request counts as its viewer meanwhile.

    Returns:
        The function that ends it.

    """
    presence = visit.source.presence
    if "request_id" not in visit.request.path_params:
        return presence.listen(lambda *_: give())
    about = visit.agent_id, visit.request_id
    stop = presence.listen(lambda *changed: give() if changed == about else None)
    leave = presence.look(*about, visit.user.caller)

    def end() -> None:
        stop()
        leave()

    return end
