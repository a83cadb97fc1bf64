"""`People`: the persons who may decide, and their roles, as the application knows them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from understudy._base.clock import Clock
from understudy._base.error_texts import error_text
from understudy._base.json_values import checked_text, shown
from understudy.approvals import Assurance, Kind, Voter
from understudy.errors import PeopleUnavailable, UsageError

LONGEST = 2.0
"""The seconds after which somebody who is asked for does not answer."""
KEPT = 60.0
"""The seconds for which an answer of the application holds."""
MOST_KEPT = 10_000
"""The number of answers that are kept at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody who may decide.

    Args:
        id: by which persons are told apart, byte for byte. It does not change.
        name: to be shown; None for the id.
        roles: what the person may vote for.
        kind: `"person"`, `"service"` or `"model"`.

    Raises:
        UsageError: where an id, a name or a role is no text, or the kind is unknown.

    """

    id: str
    name: str | None = None
    roles: frozenset[str] = frozenset()
    kind: Kind = "person"

    def __post_init__(self) -> None:
        checked_text(self.id, what="Person(id=...)")
        if self.name is not None:
            checked_text(self.name, what="Person(name=...)")
        if self.kind not in ("person", "service", "model"):
            raise UsageError(
                f"Person(kind=...) must be person, service or model, got {shown(self.kind)}"
            )
        object.__setattr__(self, "roles", _checked_roles(self.roles, f"Person {self.id!r}"))

    @property
    def shown_name(self) -> str:
        """The name, to be shown."""
        return self.id if self.name is None else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls, as far as the way by which the call came knows."""

    name: str
    """The name of the login, or the name that code of the host application gave."""
    assurance: Assurance = "host"


Found: TypeAlias = Person | None
GivenPeople: TypeAlias = (
    Mapping[str, Person | Iterable[str]] | Callable[[Caller], Found | Awaitable[Found]]
)
"""The persons by the names that they log in with, each with their roles; or a function, plain or
async, that finds a person. None is for somebody who is not known."""


class People:
    """The persons who may decide.

    Args:
        given: as of `Runtime(people=...)`.
        clock: of the runtime.

    Raises:
        UsageError: where these are no persons, or two logins of different persons have one id.

    """

    def __init__(self, given: GivenPeople, clock: Clock) -> None:
        self._clock = clock
        self._listed: dict[str, Person] | None = None
        self._find: Callable[[Caller], Found | Awaitable[Found]]
        self._kept: dict[Caller, tuple[float, Found]] = {}
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
    def listed(self) -> Mapping[str, Person] | None:
        """The persons by the names of their logins; None where a function finds them."""
        return self._listed

    def seen_roles(self) -> frozenset[str]:
        """The roles of the persons that the function has found lately."""
        found = (person for _, person in self._kept.values() if person is not None)
        return frozenset(role for person in found for role in person.roles)

    async def resolve(self, caller: Caller) -> Found:
        """The person who calls; None where the application does not know them.

        Raises:
            PeopleUnavailable: if the function of the application raises, or does not answer in two
                seconds.

        """
        if self._listed is not None:
            return self._listed.get(caller.name)
        now = self._clock.monotonic()
        kept = self._kept.get(caller)
        if kept is not None and now - kept[0] < KEPT:
            return kept[1]
        found = await self._asked(caller)
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[caller] = (now, found)
        return found

    async def voters(self, names: Iterable[str], assurance: Assurance = "host") -> dict[str, Voter]:
        """Who decides under these names, by name. Of who is not known it says so, and never raises.

        Args:
            names: of logins.
            assurance: who says that they are these.

        """
        found = {}
        for name in dict.fromkeys(names):
            caller = Caller(name=name, assurance=assurance)
            try:
                person = await self.resolve(caller)
            except PeopleUnavailable as error:
                found[name] = Voter(login=name, assurance=assurance, why_unknown=error.message)
                continue
            if person is None:
                found[name] = Voter(login=name, assurance=assurance)
                continue
            found[name] = Voter(
                login=name,
                person=person.id,
                name=person.shown_name,
                roles=tuple(sorted(person.roles)),
                kind=person.kind,
                assurance=assurance,
            )
        return found

    async def _asked(self, caller: Caller) -> Found:
        try:
            found = self._find(caller)
            if inspect.isawaitable(found):
                async with asyncio.timeout(LONGEST):
                    found = await found
        except TimeoutError:
            raise PeopleUnavailable(
                f"`people` has not said in {LONGEST:g} s who {caller.name!r} is"
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


def _listed(given: Mapping[str, Person | Iterable[str]]) -> dict[str, Person]:
    listed: dict[str, Person] = {}
    by_id: dict[str, Person] = {}
    for name, each in given.items():
        checked_text(name, what="Runtime(people=...): a name")
        person = each if isinstance(each, Person) else None
        if person is None:
            roles = _checked_roles(each, f"Runtime(people=...): {name!r}")
            person = Person(id=name, roles=roles)
        if by_id.setdefault(person.id, person) != person:
            raise UsageError(
                f"Runtime(people=...): two persons have the id {person.id!r}. One person has one "
                "id, name and roles, by whatever login"
            )
        listed[name] = person
    return listed


def _checked_roles(given: object, what: str) -> frozenset[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"{what} must have roles as a list of texts, got {shown(given)}")
    roles = frozenset(given)
    for role in roles:
        checked_text(role, what=f"{what}: a role")
    return roles
