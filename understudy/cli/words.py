"""The words for people, instead of the words of the API."""

from __future__ import annotations

from collections.abc import Iterable

DECIDED = {
    "approve": "approved",
    "edit": "approved with other arguments",
    "reject": "rejected",
    "respond": "answered",
    "dismiss": "dismissed",
}
"""The words for what was done, by the type of the decision."""
KINDS = {"interrupt": "question", "doubt": "in doubt", "halt": "stopped"}
"""The kinds of requests whose names in the API say little."""
_KIND_OF = {"question": "interrupt", "in-doubt": "doubt", "in doubt": "doubt", "stopped": "halt"}


def decided_word(type: str) -> str:
    """The word for what was done."""
    return DECIDED.get(type, type)


def kind_word(kind: str) -> str:
    """The word for the kind of a request; a custom kind of a middleware has its own name."""
    return KINDS.get(kind, kind)


def kind_of(given: str | None) -> str | None:
    """The kind of requests that a person's word means."""
    return given if given is None else _KIND_OF.get(given, given)


def allowed_words(allowed: Iterable[str]) -> str:
    """The possible decisions on a request, in words: "approved, rejected or answered"."""
    words = [decided_word(each) for each in allowed]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
