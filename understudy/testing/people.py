"""`FakePeople`: persons for tests, whose roles can change and whose directory can fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from understudy.errors import UsageError
from understudy.trust import Caller, Person


class FakePeople:
    """A directory of persons for `Runtime(people=...)` that a test can change while runs wait.

    A runtime keeps an answer for a minute. A test that takes a role away must let more than a
    minute pass on its clock before the runtime sees the change.

    Args:
        given: the persons by their login names: each a `Person`, or the roles of a person.

    """

    def __init__(self, given: Mapping[str, Person | Iterable[str]]) -> None:
        self._persons: dict[str, Person] = {
            name: each if isinstance(each, Person) else Person(id=name, roles=frozenset(each))
            for name, each in given.items()
        }
        self.is_away: bool = False
        """Whether the directory fails: each look-up gets a `ConnectionError`."""
        self.asked: list[Caller] = []
        """The persons who were looked up, in order."""

    async def __call__(self, caller: Caller) -> Person | None:
        """The person of this login; None for an unknown login.

        Raises:
            ConnectionError: while the directory is away.

        """
        self.asked.append(caller)
        if self.is_away:
            raise ConnectionError("the directory is away")
        return self._persons.get(caller.name)

    def gain_role(self, name: str, role: str) -> None:
        """Give a role to the person with this login.

        Raises:
            UsageError: if nobody has this login.

        """
        person = self._person(name)
        self._persons[name] = replace(person, roles=person.roles | {role})

    def lose_role(self, name: str, role: str) -> None:
        """Take a role from the person with this login.

        Raises:
            UsageError: if nobody has this login, or the person does not have the role.

        """
        person = self._person(name)
        if role not in person.roles:
            has = ", ".join(sorted(person.roles)) or "none"
            raise UsageError(f"FakePeople: {name!r} does not have the role {role!r}; has: {has}")
        self._persons[name] = replace(person, roles=person.roles - {role})

    def leave(self, name: str) -> None:
        """Remove this login from the directory.

        Raises:
            UsageError: if nobody has this login.

        """
        self._person(name)
        del self._persons[name]

    def _person(self, name: str) -> Person:
        if name not in self._persons:
            known = ", ".join(map(repr, self._persons)) or "nobody"
            raise UsageError(f"FakePeople: nobody has the login {name!r}; there are: {known}")
        return self._persons[name]
