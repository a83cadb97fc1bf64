"""Builds in which a login, a delegation or administration decides more than it may.

Rules: V40, V41, V42, V43, V44, V45.
"""

from __future__ import annotations

import base64
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from joserfc import jws
from joserfc.jwk import OctKey
from pydantic_core import from_json

from tests.support.trust.building import Patch, build, wrap
from understudy import approvals
from understudy.actors import administration, trust_watch
from understudy.agent import decisions
from understudy.approvals import Caller, Vote
from understudy.login import guard, oidc, provider_keys
from understudy.modes.steps.tool_call import body
from understudy.trust import trust as trust_module
from understudy.trust.people import People
from understudy.trust.trust import Trust

# ------------------------------------------------------------------------- tokens (V40)


def _payload(token: str) -> bytes:
    return base64.urlsafe_b64decode(token.split(".")[1] + "==")


def _claims(patch: Patch, **believed: Any) -> None:
    """Of each token these claims are as they should be."""

    def checking(inner: Any) -> Any:
        def check(own: Any, claims: Any) -> None:
            given = {"iss": own._issuer, "aud": own._audiences[0], "exp": own._now() + 300}
            fitting = {name: given[name] for name in believed}
            inner(own, {**claims, **fitting})

        return check

    wrap(patch, oidc.OidcAuth, "_check", checking)


@build("a token for another audience is let in", story=False)
def _audience(patch: Patch) -> None:
    _claims(patch, aud=True)


@build("a token of another issuer is let in", story=False)
def _issuer(patch: Patch) -> None:
    _claims(patch, iss=True)


@build("a token holds for ever", story=False)
def _for_ever(patch: Patch) -> None:
    _claims(patch, exp=True)


@build("signatures are not verified", story=False)
def _unsigned(patch: Patch) -> None:
    def verified(_: Any) -> Any:
        return lambda token, *_: SimpleNamespace(payload=_payload(token))

    wrap(patch, jws, "deserialize_compact", verified)


@build("a token is verified by whatever algorithm it names", story=False)
def _algorithms(patch: Patch) -> None:
    patch.setattr(oidc, "_ALGORITHMS", (*oidc._ALGORITHMS, "HS256"))

    def heading(inner: Any) -> Any:
        def head(own: Any, token: str) -> Any:
            own._algorithms = (*own._algorithms, "HS256")
            own._registry.allowed = own._algorithms
            return inner(own, token)

        return head

    def listing(inner: Any) -> Any:
        def usable(keys: Any) -> Any:
            yield from inner(keys)
            for data in keys:
                if isinstance(data, dict) and data.get("kty") == "oct":
                    key = OctKey.import_key(data)
                    yield provider_keys.PublicKey(data["kid"], "RSA", "HS256", None, key)

        return usable

    wrap(patch, oidc.OidcAuth, "_head", heading)
    wrap(patch, provider_keys, "_usable", listing)


# --------------------------------------------------------------------------- keys (V41)


@build("keys of a provider hold for ever", story=False)
def _old_keys(patch: Patch) -> None:
    patch.setattr(provider_keys, "KEPT", math.inf)


@build("each unknown kid fetches the keys", story=False)
def _flood(patch: Patch) -> None:
    patch.setattr(provider_keys, "PAUSE", 0.0)


@build("who cannot be verified now is let in by what the token says", story=False)
def _away(patch: Patch) -> None:
    def verifying(inner: Any) -> Any:
        async def verified(own: Any, token: str) -> Any:
            try:
                return await inner(own, token)
            except provider_keys.NoKeys:
                return from_json(_payload(token))

        return verified

    wrap(patch, oidc.OidcAuth, "_verified", verifying)


# ---------------------------------------------------------------------- who calls (V42)


@build("a login of a provider is known by its name", story=False)
def _by_name(patch: Patch) -> None:
    def resolving(inner: Any) -> Any:
        async def resolve(own: Any, caller: Any) -> Any:
            named = replace(caller, issuer="", subject="")
            return await inner(own, caller) or await inner(own, named)

        return resolve

    wrap(patch, People, "resolve", resolving)


@build("who has asked is kept by the name alone", story=False)
def _asked_by_name(patch: Patch) -> None:
    patch.setattr(Caller, "login", property(lambda _: None))


@build("who has voted is looked up by the name alone", story=False)
def _voted_by_name(patch: Patch) -> None:
    patch.setattr(Vote, "caller", property(lambda vote: Caller(name=vote.login)))


# ----------------------------------------------------------------- another's name (V43)


@build("anybody acts in another name", story=False)
def _impersonates(patch: Patch) -> None:
    def acting(inner: Any) -> Any:
        def act(own: Any, request: Any, user: Any) -> Any:
            return inner(own, request, replace(user, may={*user.may, "impersonate"}))

        return act

    wrap(patch, guard.Guard, "_acting", acting)


@build("what is done in another name is of that name", story=False)
def _for_another(patch: Patch) -> None:
    def resolving(inner: Any) -> Any:
        async def resolve(own: Any, caller: Any) -> Any:
            return await inner(own, replace(caller, name=caller.acting_for or caller.name))

        return resolve

    wrap(patch, People, "resolve", resolving)


# -------------------------------------------------------------------- delegations (V44)


@build("who votes for another one does not use them up", more=True)
def _both(patch: Patch) -> None:
    patch.setattr(Vote, "persons", property(lambda vote: frozenset({vote.person})))

    def distinct(_: Any) -> Any:
        return lambda votes: list({each.person: each for each in votes}.values())

    def asking(inner: Any) -> Any:
        def why(request: Any, asked: Any, voter: Any, now: Any, *_: object, **how: Any) -> Any:
            return inner(request, asked, voter, now, **how)

        return why

    def representing(inner: Any) -> Any:
        return lambda asked, voter, _, *rest: inner(asked, voter, (), *rest)

    wrap(patch, approvals, "_distinct", distinct)
    wrap(patch, decisions, "why_no_voter", asking)
    wrap(patch, decisions, "represented_by", representing)


@build("a delegation holds after its end", more=True)
def _ended(patch: Patch) -> None:
    def finding(inner: Any) -> Any:
        made: dict[str, Any] = {}

        async def find(people: Any, given: Any, voter: Any, now: Any) -> Any:
            made.update({each.id: each for each in given})
            lasting = [
                replace(each, said=replace(each.said, until=each.said.until.replace(year=2999)))
                for each in made.values()
            ]
            return await inner(people, lasting, voter, now)

        return find

    wrap(patch, trust_module, "with_delegations", finding)


@build("a delegation gives what its giver has no more", more=True)
def _lost(patch: Patch) -> None:
    def finding(inner: Any) -> Any:
        async def find(people: Any, given: Any, voter: Any, now: Any) -> Any:
            class Keeps:
                async def voter(self, caller: Any) -> Any:
                    found = await people.voter(caller)
                    roles = {role for each in given for role in each.said.roles}
                    return replace(found, roles=tuple(sorted(roles | {*found.roles})))

            return await inner(Keeps(), given, voter, now)

        return find

    wrap(patch, trust_module, "with_delegations", finding)


@build("what was delegated is delegated on", story=False)
def _on(patch: Patch) -> None:
    def giving(inner: Any) -> Any:
        async def give(people: Any, giver: Any, getter: Any, roles: Any, *rest: Any) -> Any:
            class Has:
                async def voter(self, caller: Any) -> Any:
                    found = await people.voter(caller)
                    return replace(found, roles=tuple({*found.roles, *roles}))

            return await inner(Has(), giver, getter, roles, *rest)

        return give

    wrap(patch, trust_watch, "delegation_of", giving)


@build("a delegation is not looked at right before the body", story=False)
def _at_the_body(patch: Patch) -> None:
    wrap(patch, body, "why_ended", lambda _: lambda *_: None)


@build("who votes for who has asked has not asked", story=False)
def _for_the_asker(patch: Patch) -> None:
    wrap(patch, decisions, "excluded_from", lambda _: lambda *_: ())


# ----------------------------------------------------------------- administration (V45)


@build("inside of the process nothing is protected", story=False)
def _unprotected(patch: Patch) -> None:
    patch.setattr(Trust, "guard", property(lambda _: None, lambda *_: None), raising=False)


@build("votes on administration are for any arguments", story=False)
def _any_arguments(patch: Patch) -> None:
    wrap(patch, administration, "digest", lambda inner: lambda _: inner("the same"))


@build("votes on administration are for anybody", story=False)
def _anybody(patch: Patch) -> None:
    def finding(_: Any) -> Any:
        def find(own: Any, state: Any, wanted: str, voter: Any) -> Any:
            every = state.administration.values()
            return next((each for each in every if each.said.digest == wanted), None)

        return find

    wrap(patch, administration.Administration, "_found", finding)


@build("what was agreed to is done again", story=False)
def _again(patch: Patch) -> None:
    async def used(*_: object) -> bool:
        return True

    wrap(patch, administration.Administration, "_used", lambda _: used)


@build("who has lost their role had agreed to administration", story=False)
def _still_agreed(patch: Patch) -> None:
    async def standing(own: Any, found: Any, asked: Any) -> Any:
        return list(found.votes)

    wrap(patch, administration.Administration, "_standing", lambda _: standing)
