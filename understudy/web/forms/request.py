"""The form by which a person answers one request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast, get_args
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from understudy._base.grant_terms import GrantTerms, checked_terms
from understudy._base.request_timing import span_text
from understudy.errors import DecisionError, UnknownAgent, UsageError
from understudy.interrupts import Decision, Seen
from understudy.login.problems import Refused, refused
from understudy.login.redaction import HIDDEN
from understudy.tools.result import InvalidArguments
from understudy.web.decide import take
from understudy.web.forms.edit import ANSWER, AnswerForm, EditForm, changed
from understudy.web.views.asks import last_of, request_page
from understudy.web.views.evidence import despite_of
from understudy.web.views.queue import around, place_in, queue_of
from understudy.web.visit import Form, Visit

NOTHING = "Nothing is decided yet: press the button of a decision."
NO_END = "no end"
"""The value of a form for a grant without an end."""
TIMES = (900.0, 3_600.0, 8 * 3_600.0, 24 * 3_600.0, 7 * 24 * 3_600.0)
"""The seconds that a form offers for a grant, as far as the request offers them."""
ANY_OBJECT: dict[str, Any] = {}
"""The schema for a tool that is not known here: one field for JSON."""


def form_values(
    visit: Visit, data: dict[str, Any], typed: Form | None = None, error: str = ""
) -> dict[str, Any]:
    """The values of the page of a request in addition to the request."""
    request = data["request"]
    edit = None
    if "edit" in request["allowed"] and not _hides_arguments(visit):
        edit = EditForm(data["tool_parameters"] or ANY_OBJECT, request["arguments"], typed)
    answer = None
    if "respond" in request["allowed"] and request["schema"] is not None:
        answer = AnswerForm(request["schema"], typed)
    return {
        "edit": edit,
        "answer": answer,
        "offer": _offer(request, typed or Form([])),
        "is_editing": typed is not None and typed.get("decision") == "edit",
        "edited": None,
        "typed": typed or Form([]),
        "error": error,
        "hidden": HIDDEN if _hides_arguments(visit) else "",
        "why_not": visit.why_not("decide") or _why_no_vote(data),
        "is_to_stay": visit.asked("then") == "stay" if typed is None else not typed.get("then"),
    }


async def request_values(
    visit: Visit, data: dict[str, Any], typed: Form | None = None, error: str = ""
) -> dict[str, Any]:
    """The `form_values`, with the place of the request in the queue, and the last decision."""
    queue = queue_of(visit)
    values: dict[str, Any] = {"queue": queue, "place": None, "last": await last_of(visit)}
    if visit.shown is not None:
        values["place"] = await place_in(visit, queue, visit.shown, is_pending=data["is_pending"])
    if data["is_pending"] and data["request"] is not None:
        values |= form_values(visit, data, typed, error)
    return values


def _why_no_vote(data: dict[str, Any]) -> str | None:
    """Why the user may not vote on the request, as a sentence; None if the user may."""
    why = data["why_no_vote"]
    if why is None:
        return None
    below = " In an emergency you may break the glass, below." if data["may_break_glass"] else ""
    does = "vote on" if data["must_agree"] else "answer"
    return f"You may not {does} this: {why}.{below}"


def _offer(request: dict[str, Any], typed: Form) -> dict[str, Any] | None:
    """The choices for a grant for later calls, with what was chosen; None if no grant is
    offered.
    """
    offered, arguments = request["offer"], request["arguments"]
    if not isinstance(offered, Mapping):
        return None  # or it is hidden
    names = list(arguments) if isinstance(arguments, Mapping) else []
    most, free = offered["seconds"], offered["free"]
    times = [each for each in TIMES if most is None or each <= most]
    if most is not None and most not in times:
        times.append(most)
    choices = [(f"{each:g}", f"for {span_text(each)}") for each in times]
    if most is None:
        choices.append((NO_END, "until revoked"))
    named = typed.all("match") if typed.get("grant") else names
    return {
        "choices": [(value, text, value == typed.get("grant")) for value, text in choices],
        "arguments": [(name, name in named, free is None or name in free) for name in names],
        "uses": typed.get("uses"),
        "most_uses": offered["uses"],
        "scopes": [("run", "in this run"), ("agent", "in all runs of the agent")]
        if offered["scope"] == "agent"
        else [],
        "scope": typed.get("scope"),
    }


def _hides_arguments(visit: Visit) -> bool:
    """Whether some arguments are hidden: a form would send the replacements as values."""
    arguments = None if visit.shown is None else visit.shown.to_dict()["arguments"]
    return visit.hides({"request": {"arguments": arguments}})


async def decide_by_form(visit: Visit) -> Response | tuple[int, str, dict[str, Any]]:
    """Take a decision, or change the form."""
    form = await visit.form()
    visit.need("decide")
    request_id = visit.request_id
    if form.get("do") == "changes":  # show the changes typed so far
        return await _again(visit, form, 200, edit=await _edited(visit, form))
    if form.get("do") == "nothing":  # from Enter in a field
        return await _again(visit, form, 422, error=NOTHING)
    if form.has("do"):  # add or remove an item
        return await _again(visit, changed(form, form.get("do")), 200)
    given = form.get("decision")
    unused = await _unused(visit, form, given)
    if unused:
        return await _again(visit, form, 422, error=unused)
    edit = answer = None
    if given == "respond" and not form.has("value"):  # the answer has the fields of a schema
        data = await _shown(visit, form, Decision(type="respond"))
        answer = AnswerForm(data["request"]["schema"] or ANY_OBJECT, form)
        value = answer.answer()
        if answer.has_errors:
            return await _again(visit, form, 422, answer=answer)
        decision = Decision(type="respond", value=value, **_who(visit, form))
    elif given == "edit":
        edit = await _edited(visit, form)
        if edit.has_errors:
            return await _again(visit, form, 422, edit=edit)
        decision = Decision(type="edit", arguments=edit.taken, **_who(visit, form))
    else:
        try:
            decision = _plain_decision(visit, form, given)
        except ValueError as error:
            return await _again(visit, form, 422, error=str(error))
    if given in ("approve", "break_glass", "edit"):
        despite = await _despite(visit, form, decision)
        if despite is not None:
            return despite
    decision = replace(decision, seen=seen_in(form))
    # It is read before the decision, while the request has its place in the queue.
    following = await next_of(visit) if form.get("then") == "next" else None
    try:
        await take(visit, visit.agent_id, {request_id: decision}, {request_id: form.get("digest")})
    except Refused as refusal:
        if refusal.problem.status != 422:
            raise
        detail = refusal.problem.detail
        return await _again(visit, form, 422, error=detail, edit=edit, answer=answer)
    if form.get("back") == "doubts":  # the form is in a row of the list of doubts
        return RedirectResponse(visit.link("/doubts?said=decided"), 303)
    return RedirectResponse(_behind(visit, form, following), 303)


async def next_of(visit: Visit) -> tuple[str, str] | None:
    """The agent and the request after the request of the visit, in the queue of the visit."""
    state = await visit.state()
    request = next((each for each in state.requests if each.id == visit.request_id), None)
    place = None if request is None else await around(visit, queue_of(visit), request)
    return None if place is None else place.next


def _behind(visit: Visit, form: Form, following: tuple[str, str] | None) -> str:
    """The page that a decision leads to: the next request, the queue at its end, or the request.

    It begins at its top: without its own fragment a browser keeps the fragment of the form, and the
    next request would open its edit, or begin at its answer.
    """
    query = queue_of(visit).query
    if form.get("then") != "next":
        path = visit.request_link(visit.agent_id, visit.request_id)
        query["then"] = "stay"
    else:
        path = visit.link("/") if following is None else visit.request_link(*following)
        query["last"] = f"{visit.agent_id}/{visit.request_id}"
    return f"{path}?{urlencode(query)}#top"


def seen_in(form: Form) -> Seen | None:
    """How the request was shown, as the script of the page reports it; None without a script.

    Raises:
        Refused: for a value that no page sends.

    """
    given = form.get("seen") or None
    if given is not None and given not in get_args(Seen):
        raise refused(400, "NotAForm", "The form cannot be read.")
    return cast("Seen | None", given)


async def _edited(visit: Visit, form: Form) -> EditForm:
    """The form of an edit with the typed texts, and each mistake at its field."""
    data = await _shown(visit, form, Decision(type="edit", arguments={}))
    if _hides_arguments(visit):
        raise refused(403, "NotAllowed", HIDDEN)
    edit = EditForm(data["tool_parameters"] or ANY_OBJECT, data["request"]["arguments"], form)
    edit.taken = edit.values()
    if not edit.has_errors:
        _validate(visit, edit, edit.taken)
    return edit


async def _despite(
    visit: Visit, form: Form, decision: Decision
) -> tuple[int, str, dict[str, Any]] | None:
    """The page that asks once more about an approval despite an equal call in doubt.

    None if there is no such call, or if the person has confirmed all of them.
    """
    try:
        asked = (await visit.state()).requests
    except UnknownAgent:
        return None  # the decision itself is refused
    if visit.request_id not in {each.id for each in asked}:
        return None  # as above
    data = await request_page(visit)
    despite = despite_of(data)
    request = data["request"]
    if not despite or form.get("despite") == despite or request["digest"] != form.get("digest"):
        return None  # an old digest is refused by the agent
    if decision.type == "edit" and decision.arguments != request["arguments"]:
        return None  # the call has changed
    again = [pair for pair in form.pairs if pair[0] not in ("decision", "despite", "do")]
    values = {
        "data": visit.redacted(data),
        "despite": despite,
        "given": form.get("decision"),
        "again": again,
        "queue": queue_of(visit),
        "page": None,
    }
    return 409, "pages/despite.html", values


async def _unused(visit: Visit, form: Form, given: str) -> str:
    """The fields that were filled in but are not used by this decision, as a sentence; or empty."""
    if given not in ("approve", "reject", "respond", "dismiss"):
        return ""
    if given != "reject" and form.get("message").strip():
        return "A reason for the model is written, which goes with a rejection alone: empty it."
    if given in ("respond", "dismiss") and form.get("grant"):
        return "Later calls can be approved or rejected as well, nothing else: choose “this call”."
    if given != "respond":
        is_written = bool(form.get("value").strip())
        if not is_written and form.starting(f"v:/{ANSWER}"):
            data: dict[str, Any] = visit.redacted(await request_page(visit))
            schema = None if data["request"] is None else data["request"]["schema"]
            is_written = schema is not None and AnswerForm(schema, form).is_touched
        if is_written:
            return "An answer is written, which goes with “Respond” alone: empty it."
    return ""


async def _shown(visit: Visit, form: Form, empty: Decision) -> dict[str, Any]:
    """The values of the page of the request. If it waits no more, the actor says what became of
    it.
    """
    data: dict[str, Any] = visit.redacted(await request_page(visit))
    if data["request"] is None or not data["is_pending"]:
        expect = {visit.request_id: form.get("digest")}
        await take(visit, visit.agent_id, {visit.request_id: empty}, expect)
        raise refused(409, "Stale", "It is no longer asked.", story=data["story"])
    return data


def _who(visit: Visit, form: Form) -> dict[str, Any]:
    return {"by": visit.user.by, "note": form.get("note").strip() or None}


def _plain_decision(visit: Visit, form: Form, given: str) -> Decision:
    """The decision of the buttons.

    Raises:
        ValueError: if there is no decision, or the answer is no JSON.

    """
    grant = _terms(form) if given in ("approve", "reject") else None
    who = _who(visit, form)
    match given:
        case "approve":
            return Decision(type="approve", grant=grant, **who)
        case "break_glass":
            return Decision(type="approve", break_glass=True, **who)
        case "reject":
            message = form.get("message").strip() or None
            return Decision(type="reject", message=message, grant=grant, **who)
        case "respond":
            text = form.get("value")
            if not text:
                raise ValueError('Say what the answer is. An empty text is "" as JSON.')
            value: Any = text
            if form.get("value_is") == "json":
                try:
                    value = json.loads(text)
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"The answer is no JSON: {error}") from error
            return Decision(type="respond", value=value, **who)
        case "dismiss":
            return Decision(type="dismiss", **who)
        case "":
            raise ValueError(NOTHING)
        case _:
            raise refused(400, "UsageError", "Choose one of the decisions.")


def _terms(form: Form) -> GrantTerms | None:
    """The terms of the form for later calls; None = only for this call.

    Raises:
        ValueError: if a text is no number.

    """
    chosen = form.get("grant")
    if not chosen:
        return None
    uses = form.get("uses").strip()
    if uses and not (uses.isascii() and uses.isdecimal() and len(uses) < 10):
        raise ValueError("The number of later calls is a number, or empty.")
    try:
        seconds = None if chosen == NO_END else float(chosen)
        return checked_terms(
            GrantTerms(
                seconds=seconds,
                uses=int(uses) if uses else None,
                match=tuple(form.all("match")) if form.has("named") else None,
                scope="agent" if form.get("scope") == "agent" else "run",
            )
        )
    except ValueError as error:
        raise refused(400, "UsageError", "Choose one of the times.") from error
    except UsageError as error:
        raise ValueError(str(error)) from error


def _validate(visit: Visit, edit: EditForm, arguments: dict[str, Any]) -> None:
    """Check the arguments by the tool's own validator, and note errors at their fields."""
    request = visit.shown
    tool = None if request is None else visit.source.tool_of(request)
    if tool is None:
        return  # the arguments are checked when the call is due
    try:
        tool.canonical(tool.revalidate(arguments))
    except InvalidArguments as error:
        if error.places:
            edit.place(error.places)
        else:
            edit.errors.append(str(error))
    except DecisionError as error:
        edit.errors.append(str(error))


async def _again(
    visit: Visit,
    form: Form,
    status: int,
    *,
    error: str = "",
    edit: EditForm | None = None,
    answer: AnswerForm | None = None,
) -> tuple[int, str, dict[str, Any]]:
    """The values of the page once more, with the typed texts."""
    data = visit.redacted(await request_page(visit))
    if data["request"] is None or not data["is_pending"]:
        raise refused(409, "Stale", "It is no longer asked.", story=data["story"])
    values = await request_values(visit, data, form, error)
    if edit is not None:
        values["edit"], values["edited"] = edit, edit.taken
    if answer is not None:
        values["answer"] = answer
    return status, "pages/request.html", {
        "data": data, "part": "parts/request.html", "live_link": None, "page": None, **values
    }  # fmt: skip
