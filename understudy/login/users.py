"""The users of the pages, and their rights."""

from __future__ import annotations

import inspect
import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from understudy._base.authors import checked_author
from understudy._base.json_values import shown
from understudy._base.type_variables import OutputT_co
from understudy.actors import AgentRef
from understudy.actors.agent_ref import of_login
from understudy.actors.verbs import RIGHTS, USUAL_RIGHTS, Right
from understudy.approvals import Caller
from understudy.errors import UsageError
from understudy.login.hosts import host_name, is_local


@dataclass(frozen=True, slots=True)
class User:
    """A person who is logged in. Decisions are recorded under the name.

    Args:
        name: the name, for the audit.
        may: the rights: `"read"`, `"decide"`, `"act"`, `"admin"`, `"budget"`, `"freeze"`,
            `"impersonate"`. No right includes another right.
        verified: the identity that an identity provider signed; None if the name is the
            identity.
        acting_for: the name of the person for whom the user acts; empty if for nobody else.

    Raises:
        UsageError: if the name cannot be the name of a person, or a right is unknown.

    """

    name: str
    may: AbstractSet[Right] = frozenset({"read"})
    _: KW_ONLY
    verified: Caller | None = None
    acting_for: str = ""

    def __post_init__(self) -> None:
        if self.name is None:
            raise UsageError("User(name): it must be the name of a person, got None")
        checked_author(self.name, what="User(name)")
        if self.acting_for:
            checked_author(self.acting_for, what="User(acting_for=...)")
        object.__setattr__(self, "may", checked_rights(self.may))

    @property
    def caller(self) -> Caller:
        """The author of calls with this login."""
        known = self.verified or Caller(name=self.name, assurance="login")
        return replace(known, acting_for=self.acting_for)

    def calling(self, ref: AgentRef[OutputT_co]) -> AgentRef[OutputT_co]:
        """Return a ref for calls of this user: `user.calling(ref).resume(approve(by=user.by))`.

        The calls record everything that is known about the login. Give the name by `by=` as before.
        A decision under another name is refused.
        """
        return of_login(ref, self.caller)

    @property
    def by(self) -> str:
        """The name that is recorded: "ann", or "ann for bob"."""
        return self.caller.shown

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of the user: the name, or issuer and subject."""
        known = self.verified
        return (self.name,) if known is None else (known.issuer, known.subject)


def checked_rights(given: Iterable[Right]) -> frozenset[Right]:
    """The checked rights of a user.

    Raises:
        UsageError: for anything but rights, or an unknown right.

    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"User(may=...) takes a set of rights, got {shown(given)}")
    found = frozenset(given)
    unknown = sorted(map(str, found - RIGHTS))
    if unknown:
        raise UsageError(f"User(may=...) holds {unknown[0]!r}: use {', '.join(sorted(RIGHTS))}")
    return found


NOBODY = User("anybody")
"""The reader if the application names none."""

Found = User | Response | None
Auth = Callable[[Request], Found | Awaitable[Found]]
"""A function that says who makes a request.

It returns a `User`; None for nobody, which is answered with 401; or a response of its own, such as
a redirect to a login page.
"""


def checked_auth(what: str, auth: object) -> Auth:
    """The `auth` that was given to `what`.

    Raises:
        UsageError: if it is missing, or no function.

    """
    if callable(auth):
        return auth
    is_what = "is missing" if auth is None else f"cannot be {shown(auth)}"
    raise UsageError(
        f"{what}(auth=...) {is_what}: give a function that says who makes a request, such as "
        "token_auth(), or loopback_only() for a machine of your own"
    )


async def asked_user(auth: Auth, request: Request) -> Found:
    """The answer of `auth`.

    Raises:
        TypeError: if the answer is neither a user, nor a response, nor None.

    """
    found = auth(request)
    if inspect.isawaitable(found):
        found = await found
    if found is None or isinstance(found, (User, Response)):
        return found
    raise TypeError(f"auth returned {type(found).__name__}: return a User, a Response or None")


_FORWARDED = frozenset({"forwarded", "x-forwarded-for", "x-real-ip"})


def loopback_only(name: str = "local", may: Iterable[Right] = USUAL_RIGHTS) -> Auth:
    """Make an `auth` that lets in everybody on this machine, and nobody else.

    Use it on a machine with one user: it asks for no password. The address of the client and the
    name in the `Host` header must both be of this machine, and no proxy may have forwarded the
    request.

    Raises:
        UsageError: if the name is not text, or a right is unknown.

    """
    user = User(name, checked_rights(may))

    def who(request: Request) -> User | None:
        host = host_name(request.headers.get("host", ""))
        if request.client is None or host is None or not is_local(host):
            return None
        # A client behind a proxy may send any text in these headers, and the server may believe
        # it: then the address is not the address of the client.
        if _FORWARDED & set(request.headers.keys()):
            return None
        try:
            address = ipaddress.ip_address(request.client.host)
        except ValueError:
            return None
        mapped = getattr(address, "ipv4_mapped", None)
        return user if (mapped or address).is_loopback else None

    return who
