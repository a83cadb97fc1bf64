"""`People`: the persons who may decide, and their roles, as the application knows them."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from understudy._base.authors import checked_author
from understudy._base.clock import Clock
from understudy._base.confusables import look_of
from understudy._base.error_texts import error_text
from understudy._base.json_values import checked_text, shown
from understudy._base.worker_threads import WorkerThreads
from understudy.approvals import Caller, Kind, Voter
from understudy.errors import PeopleUnavailable, UsageError

LONGEST = 2.0
"""The seconds after which a look-up of a person counts as failed."""
KEPT = 60.0
"""The seconds for which an answer of the application holds."""
MOST_KEPT = 10_000
"""The number of answers that are kept at once."""
THREADS = 16
"""The number of plain functions that are asked at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A person, service or model that may act. Only a person votes.

    Args:
        id: the identity, byte for byte. It does not change.
        name: the name for display; None = the id. The names that the library uses (`system`,
            `expiry`, `check`, `nobody`) are refused. Names with invisible characters or mixed
            look-alike characters are refused too.
        roles: the roles with which the person may vote.
        kind: `"person"`, `"service"` or `"model"`.

    Raises:
        UsageError: if an id, a name or a role is not text, or the kind is unknown.

    """

    id: str
    name: str | None = None
    roles: frozenset[str] = frozenset()
    kind: Kind = "person"

    def __post_init__(self) -> None:
        checked_text(self.id, what="Person(id=...)")
        what = "Person(name=...), or the id of a person without a name,"
        checked_author(self.shown_name, what=what)
        if self.kind not in ("person", "service", "model"):
            raise UsageError(
                f"Person(kind=...) must be person, service or model, got {shown(self.kind)}"
            )
        object.__setattr__(self, "roles", _checked_roles(self.roles, f"Person {self.id!r}"))

    @property
    def shown_name(self) -> str:
        """The name, for display: the name, or the id if there is no name."""
        return self.id if self.name is None else self.name


Key: TypeAlias = str | tuple[str, str]
"""The name of a login, or issuer and subject of a login of an identity provider."""
Found: TypeAlias = Person | None
GivenPeople: TypeAlias = (
    Mapping[Any, Person | Iterable[str]] | Callable[[Caller], Found | Awaitable[Found]]
)
"""The persons by the names that they log in with, or by issuer and subject of an identity provider,
each with their roles; or a function, plain or async, that finds a person, or returns None for an
unknown person."""


class People:
    """The persons who may decide.

    Args:
        given: the persons, as in `Runtime(people=...)`.
        clock: the clock of the runtime.

    Raises:
        UsageError: if a value is not a person, or two different persons have one id.

    """

    def __init__(self, given: GivenPeople, clock: Clock) -> None:
        self._clock = clock
        self._listed: dict[Key, Person] | None = None
        self._find: Callable[[Caller], Found | Awaitable[Found]]
        # The threads are separate: a tool that blocks holds up no vote, and a slow directory no
        # tool.
        self._threads = WorkerThreads(THREADS, name="understudy-people")
        self._kept: dict[tuple[Caller, str], tuple[float, Found]] = {}
        if isinstance(given, Mapping):
            self._listed = _listed(given)
        elif callable(given):
            self._find = given
        else:
            raise UsageError(
                'Runtime(people=...) must be a mapping such as {"ann": ["finance"]}, or a function '
                f"of a Caller that returns a Person, got {shown(given)}"
            )

    @property
    def listed(self) -> Mapping[Key, Person] | None:
        """The persons by the names of their logins; None if a function finds them."""
        return self._listed

    def seen_roles(self) -> frozenset[str]:
        """Return the roles of the persons whom the function found lately."""
        found = (person for _, person in self._kept.values() if person is not None)
        return frozenset(role for person in found for role in person.roles)

    async def resolve(self, caller: Caller) -> Found:
        """Return the person who calls; None if the application does not know the caller.

        A login of an identity provider is found by issuer and subject, never by name.

        Raises:
            PeopleUnavailable: if the function of the application raises, or does not answer in
                two seconds.

        """
        if self._listed is not None:
            is_signed = bool(caller.issuer)
            return self._listed.get((caller.issuer, caller.subject) if is_signed else caller.name)
        now = self._clock.monotonic()
        key = (caller, _text_of(caller.claims))
        kept = self._kept.get(key)
        if kept is not None and now - kept[0] < KEPT:
            return kept[1]
        found = await self._asked(caller)
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[key] = (now, found)
        return found

    async def voter(self, caller: Caller) -> Voter:
        """Return the caller as a voter. Never raises.

        An unknown caller becomes a voter without a person.
        """
        login = Voter(
            login=caller.name,
            assurance=caller.assurance,
            issuer=caller.issuer,
            subject=caller.subject,
            acting_for=caller.acting_for,
            auth_at=caller.auth_at,
        )
        try:
            person = await self.resolve(caller)
        except PeopleUnavailable as error:
            return replace(login, why_unknown=error.message)
        if person is None:
            return login
        return replace(
            login,
            person=person.id,
            name=person.shown_name,
            roles=tuple(sorted(person.roles)),
            kind=person.kind,
        )

    async def voters(self, callers: Iterable[Caller]) -> dict[Caller, Voter]:
        """Return each of these callers as a voter, as `voter` does."""
        return {each: await self.voter(each) for each in dict.fromkeys(callers)}

    async def _called(self, caller: Caller) -> object:
        """The return value of the function. A plain function does not hold up the loop."""
        find = self._find
        if inspect.iscoroutinefunction(find) or inspect.iscoroutinefunction(type(find).__call__):
            return await find(caller)  # type: ignore[misc]  # it is async
        found = await self._threads.run(find, caller)
        return await found if inspect.isawaitable(found) else found

    async def _asked(self, caller: Caller) -> Found:
        try:
            async with asyncio.timeout(LONGEST):
                found = await self._called(caller)
        except TimeoutError:
            raise PeopleUnavailable(
                f"`people` did not say within {LONGEST:g} s who {caller.name!r} is"
            ) from None
        except Exception as error:
            raise PeopleUnavailable(
                f"`people` raised {error_text(error)}, asked who {caller.name!r} is"
            ) from error
        if found is not None and not isinstance(found, Person):
            raise PeopleUnavailable(
                f"`people` returned {shown(found)} for {caller.name!r}: return a Person or None"
            )
        return found


def _listed(given: Mapping[Any, Person | Iterable[str]]) -> dict[Key, Person]:
    listed: dict[Key, Person] = {}
    by_id: dict[str, Person] = {}
    by_look: dict[str, str] = {}
    for key, each in given.items():
        name = _checked_key(key)
        person = each if isinstance(each, Person) else None
        if person is None:
            roles = _checked_roles(each, f"Runtime(people=...): {key!r}")
            if name is None:
                raise UsageError(
                    f"Runtime(people=...): {key!r} must be a Person(id=..., name=..., roles=...): "
                    "an issuer and a subject give no name for display"
                )
            person = Person(id=name, roles=roles)
        if by_id.setdefault(person.id, person) != person:
            raise UsageError(
                f"Runtime(people=...): two persons have the id {person.id!r}. Give a "
                "person the same id, name and roles under each login"
            )
        listed[key] = person
        if name is None:
            continue
        other = by_look.setdefault(look_of(name), name)
        if listed[other] != person:
            raise UsageError(
                f"Runtime(people=...): {other!r} and {name!r} look the same, and are logins of "
                f"different persons: {other!a} and {name!a}"
            )
    return listed


def _checked_key(key: object) -> str | None:
    """The name of a login; None if it is an issuer and a subject.

    Raises:
        UsageError: if the key is neither.

    """
    what = "Runtime(people=...): a name"
    if isinstance(key, tuple):
        if len(key) != 2:
            raise UsageError(f"{what} must be a text, or (issuer, subject), got {shown(key)}")
        for part in key:
            checked_text(part, what="Runtime(people=...): an issuer, or a subject,")
        return None
    return checked_author(checked_text(key, what=what), what=what)


def _text_of(claims: Mapping[str, Any]) -> str:
    """The claims as a text. Different claims have different texts."""
    return json.dumps(claims, sort_keys=True, default=repr) if claims else ""


def _checked_roles(given: object, what: str) -> frozenset[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"{what} must have roles as a list of texts, got {shown(given)}")
    roles = frozenset(given)
    for role in roles:
        checked_text(role, what=f"{what}: a role")
    return roles
