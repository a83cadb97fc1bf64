"""`checked_author`: the name of the person who acts, as each act and each decision records it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from understudy._base.confusables import odd_places
from understudy._base.json_values import checked_text
from understudy.errors import UsageError

MAX_AUTHOR = 200
"""The characters of a name."""
RESERVED = frozenset({"understudy", "nobody", "somebody", "check", "expiry", "system"})
"""The names by which the library calls itself, or nobody, where it shows who did something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """The login of a person who acts: a name, and the identity that an identity provider gives."""

    name: str
    """The name, for display. Two persons may have the same name."""
    issuer: str = ""
    """The identity provider that gives the identity; empty if the name is the identity."""
    subject: str = ""
    """The provider's id of the person; empty without a provider."""
    acting_for: str = ""
    """The name of the person for whom this person acts; empty if for nobody else.

    The person who acts stays the author of the act.
    """
    assurance: Literal["host", "login", "idp"] = "login"
    """The source of the identity. The application is asked for the person by this source."""

    @property
    def shown(self) -> str:
        """The name, for display: "ann", or "ann for bob"."""
        return f"{self.name} for {self.acting_for}" if self.acting_for else self.name

    def __str__(self) -> str:
        return self.shown


By: TypeAlias = str | Login
"""The author of an act: a name, or a `Login` where more than the name is known."""


def shown_author(by: By | None) -> str | None:
    """The name of who has done it, to be shown."""
    return by.shown if isinstance(by, Login) else by


def logins_of(by: Iterable[object]) -> list[dict[str, str]]:
    """What tells authors apart from others of the same name, as plain data, each once.

    These are the issuer and the subject of an identity provider. An author of a bare name has none.
    """
    known = dict.fromkeys(each for each in by if isinstance(each, Login) and each.issuer)
    return [{"name": each.shown, "issuer": each.issuer, "subject": each.subject} for each in known]


def shown_authors(by: Iterable[By | None]) -> str | None:
    """The names of those who have done it, each once, to be shown; None for nobody."""
    return ", ".join(dict.fromkeys(each for each in map(shown_author, by) if each)) or None


def who_cancelled(signal: Mapping[str, Any]) -> By | None:
    """The author of a cancellation, by its signal as plain data; None where nobody is named."""
    context = signal.get("context") or {}
    by, login = context.get("by"), context.get("login")
    if not isinstance(by, str):
        return None
    return Login(**login) if isinstance(login, Mapping) else by


def checked_author(given: object, *, what: str) -> str | None:
    """`given`, if it is the name of a person or None.

    A name is shown and compared: it must not look like another one, or like one of the library's.

    Raises:
        UsageError: for anything else; it says what is wrong with the name.

    """
    if given is None:
        return None
    name = checked_text(given, what=what)
    why = _why_not(name)
    if why is not None:
        raise UsageError(f"{what} is the name of a person, and cannot be {name[:80]!r}: {why}")
    return name


def _why_not(name: str) -> str | None:
    if len(name) > MAX_AUTHOR:
        return f"it has {len(name)} characters, and may have {MAX_AUTHOR}"
    if name.casefold() in RESERVED:
        return "the library uses this name itself"
    if name != name.strip() or "\t" in name or "\n" in name:
        return "it begins or ends with a space, or holds a tab or the end of a line"
    if unicodedata.normalize("NFC", name) != name:
        return "its accents are letters of their own: normalize it to NFC"
    for at, is_seen in odd_places(name):
        how = "looks like another letter" if is_seen else "is not seen"
        return f"it holds {_named(name[at])}, which {how}"
    return None


def authors_of(names: Iterable[By | None]) -> tuple[By, ...]:
    """The authors in this list, each once and without None."""
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _named(letter: str) -> str:
    return f"U+{ord(letter):04X} ({unicodedata.name(letter, 'a control character')})"
