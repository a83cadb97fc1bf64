"""What a request is about, in a line: for lists in the browser and in a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from understudy._base.titles import filled_title

SUMMARY = 160
"""Characters of the line; who decides is shown everything."""


def headline(request: Mapping[str, Any]) -> str:
    """The title of a request, or else the text that the application asks by it, or else nothing."""
    kind, display, payload = request["kind"], request.get("display"), request.get("payload")
    title = request.get("title_format") or ""
    if isinstance(title, str) and title:
        return filled_title(title, payload, request["arguments"])
    if kind == "doubt":  # what it displays says how to answer, and not what it is about
        return ""
    if isinstance(display, str) and display.strip():
        return _cut(display)
    return _cut(_named(payload, ": ")) if _is_said(kind, payload) else ""


def _is_said(kind: str, payload: Any) -> bool:
    return kind == "halt" or (kind == "interrupt" and payload is not None)


def details(request: Mapping[str, Any]) -> str:
    """The arguments of a request, and the reason of a doubt, in a line behind the headline."""
    payload = request.get("payload")
    reason = payload.get("reason") if isinstance(payload, Mapping) else None
    return summary_of_doubt(request["arguments"], reason if request["kind"] == "doubt" else None)


def summary(request: Mapping[str, Any]) -> str:
    """The headline of a request in its plain form, or else its details."""
    return headline(request) or details(request)


def summary_of_doubt(arguments: Any, reason: Any) -> str:
    """The line of a list about a call in doubt: its arguments, and the reason of the doubt."""
    called = _named(arguments, "=")
    return _cut(f"{called} ({one_line(reason)})" if reason else called)


def why_alone(request: Mapping[str, Any]) -> str | None:
    """Why nobody decides it with others at once, in a sentence; None where that is possible.

    The call itself, or an equal one, is in doubt: whoever lets it run may repeat what has happened
    already. A doubt may say how it is `settled`. Or several persons must agree.
    """
    if request["kind"] == "doubt" or any(
        doubt.get("status") == "in_doubt" and doubt.get("settled") is None
        for doubt in request["doubts"]
    ):
        return ALONE
    return SEVERAL if _asks_several(request.get("approval")) else None


def _asks_several(approval: object) -> bool:
    """Whether no person alone can approve it, as the approval of a request says as plain data."""
    if not isinstance(approval, Mapping):  # who hides it puts what they like in its place
        return approval is not None
    ways = approval.get("ways")
    return not isinstance(ways, list) or all(_persons(way) > 1 for way in ways)


def _persons(way: object) -> int:
    """How many persons a way asks; several where that is hidden."""
    given = list(way.values()) if isinstance(way, Mapping) else []
    return sum(given) if given and all(isinstance(each, int) for each in given) else 2


ALONE = "A call is in doubt: look at it, and decide this one by itself."
SEVERAL = "Several persons must agree to it: look at it, and vote on this one by itself."
LEFT_OUT = {ALONE: "a call is in doubt", SEVERAL: "several persons must agree to it"}
"""In short, why a request is left out where others are decided."""


def decision_word(decision: Mapping[str, Any]) -> str:
    """The word for a decision in its plain form: its type, or what it comes from if not a person.

    So nobody is said to have rejected what nobody decided, and who approves alone is not taken for
    who has voted.
    """
    words = {"expiry": "expired", "executor": "failed"}
    if decision.get("break_glass"):
        return "glass broken"
    return words.get(decision.get("origin", ""), str(decision["type"]))


def _cut(text: str) -> str:
    text = " ".join(text[: 4 * SUMMARY].split())
    return text if len(text) <= SUMMARY else text[: SUMMARY - 1] + "…"


def _named(values: Any, sign: str) -> str:
    if not isinstance(values, Mapping):  # who hides them puts what they like in their place
        return one_line(values)
    given = ((name, value) for name, value in values.items() if value not in ("", None, [], {}))
    return ", ".join(f"{name}{sign}{one_line(value)}" for name, value in given)


def one_line(value: Any) -> str:
    """A text as it is, a list of texts with commas between them, any other value as JSON."""
    if isinstance(value, str):
        return value[: 4 * SUMMARY]
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return ", ".join(each[:SUMMARY] for each in value[:SUMMARY])
    return json.dumps(value, ensure_ascii=False, default=str)
