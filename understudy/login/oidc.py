"""`oidc`: who makes a request, by a token that an identity provider has signed.

Needs the extra `oidc`: `pip install 'understudy[oidc]'`. It verifies tokens, and gets none: the
flow by which a browser logs in is that of the application, or of a proxy that forwards the token.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

try:
    from joserfc import jws
    from joserfc.errors import JoseError

    from understudy.login.provider_keys import NoKeys, ProviderKeys, checked_url
except ImportError as _error:
    raise ImportError(
        "understudy.login.oidc needs more: pip install 'understudy[oidc]'"
    ) from _error

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from understudy._base import security_log
from understudy._base.json_values import checked_text, is_storable_text, shown
from understudy.actors.verbs import Right
from understudy.approvals import Caller
from understudy.errors import UsageError
from understudy.login.problems import Problem, problem_response
from understudy.login.users import User, checked_rights

__all__ = ["OidcAuth", "oidc"]

_logger: logging.Logger = logging.getLogger(__name__)

_ALGORITHMS: tuple[str, ...] = (
    *("RS256", "RS384", "RS512"),
    *("PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512"),
    *("EdDSA", "Ed25519"),
)
"""The algorithms by which a token may be signed. Algorithms with a shared secret are excluded:
everybody has the public key, and could sign with it as the secret."""
_USUAL = ("RS256", "PS256", "ES256")
_MAX_TOKEN = 16 * 1024
"""The maximum characters of a token."""
_MAX_HEADER = 4 * 1024
"""The maximum characters of a token's first part."""
_MAX_LEEWAY = 300.0
_TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
"""The types of tokens for a login. A token for another purpose, such as a logout, is no login."""
_Claims: TypeAlias = Mapping[str, Any]
_May: TypeAlias = Callable[[_Claims], Iterable[Right]] | Iterable[Right]


class _Registry(jws.JWSRegistry):
    """The verifier of signatures by the allowed algorithms.

    joserfc warns at each token by `EdDSA`, whose name does not say the curve, and some of its
    versions do not know the new name `Ed25519`. The curve of the key was looked at before.
    """

    def get_alg(self, name: str) -> Any:
        """The algorithm of this name.

        Raises:
            UnsupportedAlgorithmError: if the algorithm is not allowed.

        """
        if name in ("EdDSA", "Ed25519") and name in (self.allowed or ()):
            return self.algorithms["EdDSA"]
        return super().get_alg(name)


class _Unfit(Exception):
    """The error of a token that is no login here. Its sender gets the reason."""


def oidc(
    issuer: str,
    *,
    audience: str | Sequence[str],
    may: _May = frozenset({"read"}),
    name: str | Sequence[str] = ("preferred_username", "email", "sub"),
    keys: str | Mapping[str, Any] | None = None,
    algorithms: Sequence[str] = _USUAL,
    parties: Sequence[str] = (),
    header: str = "Authorization",
    access_token_header: str | None = None,
    leeway: float = 60.0,
    now: Callable[[], float] = time.time,
) -> OidcAuth:
    """Make an `auth` for tokens of an identity provider: `auth=oidc("https://idp.example", ...)`.

    A request without a valid token is answered with 401. While the keys of the provider are not
    known, requests are answered with 503, and nobody is let in.

    Keys are fetched again after five minutes. For an unknown `kid` they are fetched at once, at
    most every ten seconds, so a token signed by a new key may have to wait that long. If the
    provider does not answer, known keys stay valid for an hour. A token may have at most 16 KB.

    Settings for a proxy that does the login:

    - oauth2-proxy with `--pass-authorization-header`: the issuer of the provider, and
      `access_token_header="X-Forwarded-Access-Token"`.
    - Envoy, Istio and Traefik: the issuer of the provider.
    - Cloudflare Access: the issuer `https://TEAM.cloudflareaccess.com`,
      `header="Cf-Access-Jwt-Assertion"` and the keys at
      `https://TEAM.cloudflareaccess.com/cdn-cgi/access/certs`.
    - Google IAP: the issuer `https://cloud.google.com/iap`, `header="X-Goog-IAP-JWT-Assertion"`,
      `algorithms=["ES256"]` and the keys at `https://www.gstatic.com/iap/verify/public_key-jwk`.

    Args:
        issuer: the issuer, exactly as the tokens name it in `iss`.
        audience: the audience of a token (`aud`), or several; a token needs one of them.
        may: the rights of the user; or a function that returns them for the claims of the
            token.
        name: the claim with the name for display, or several: the first claim that the token
            has is used. A person is identified by issuer and subject, never by this name.
        keys: the URL of the provider's keys, or the keys as a JWKS. By default the discovery
            document of the issuer says where they are.
        algorithms: the allowed signature algorithms: RS, PS and ES with 256, 384 and 512;
            `EdDSA` and `Ed25519`, both with keys of the curve Ed25519.
        parties: the clients whose tokens are accepted (`azp` or `client_id`). Without it a
            token for several audiences is refused, because each of the others could use it
            here.
        header: the name of the request header with the token. In `Authorization` the token must
            follow `Bearer`; in other headers `Bearer` is optional.
        access_token_header: the name of the header in which a proxy sends an access token
            beside the ID token. Then `at_hash` must fit the access token.
        leeway: seconds by which the clocks may differ, at most 300.
        now: returns the time, in seconds since 1970.

    Raises:
        UsageError: if an argument is wrong.

    """
    return OidcAuth(
        issuer,
        audience=audience,
        may=may,
        name=name,
        keys=keys,
        algorithms=algorithms,
        parties=parties,
        header=header,
        access_token_header=access_token_header,
        leeway=leeway,
        now=now,
    )


class OidcAuth:
    """An `auth` that verifies the token of each request. `oidc` makes an `OidcAuth`."""

    def __init__(
        self,
        issuer: str,
        *,
        audience: str | Sequence[str],
        may: _May,
        name: str | Sequence[str],
        keys: str | Mapping[str, Any] | None,
        algorithms: Sequence[str],
        parties: Sequence[str],
        header: str,
        access_token_header: str | None,
        leeway: float,
        now: Callable[[], float],
    ) -> None:
        self._issuer = checked_url(issuer, what="oidc(issuer)")
        self._audiences = _texts(audience, "audience")
        self._names = _texts(name, "name")
        self._parties = _texts(parties, "parties") if parties else ()
        self._algorithms = _texts(algorithms, "algorithms")
        unknown = next((each for each in self._algorithms if each not in _ALGORITHMS), None)
        if unknown is not None:
            raise UsageError(
                f"oidc(algorithms=...) holds {unknown!r}: use {', '.join(_ALGORITHMS)}. With "
                "others everybody with the public key can sign, or nobody has to"
            )
        self._header = checked_text(header, what="oidc(header=...)")
        self._access_token_header = access_token_header
        if access_token_header is not None:
            checked_text(access_token_header, what="oidc(access_token_header=...)")
        is_number = isinstance(leeway, (int, float)) and not isinstance(leeway, bool)
        if not is_number or not 0 <= leeway <= _MAX_LEEWAY:
            raise UsageError(
                f"oidc(leeway=...) must be from 0 to {_MAX_LEEWAY:.0f} seconds, got {shown(leeway)}"
            )
        self._leeway = leeway
        self._may = may if callable(may) else checked_rights(may)
        self._now = now
        self._keys = ProviderKeys(issuer, keys, now)
        self._registry = _Registry(algorithms=self._algorithms, strict_check_header=False)
        self._registry.max_header_length = _MAX_HEADER

    async def __call__(self, request: Request) -> User | Response | None:
        """The user of this request; or the refusal."""
        token = self._token_in(request)
        if token is None:
            return None
        try:
            claims = await self._verified(token)
            self._check_access_token(request, claims)
            return self._user(claims)
        except _Unfit as unfit:
            security_log.note("login", "refused", who=None)
            _logger.info("a token was refused: %s", unfit)
            return _refused(request, str(unfit))
        except NoKeys:
            problem = Problem(503, "LoginUnavailable", "Nobody can log in now: try again.")
            return problem_response(request.scope, problem, {"Retry-After": "10"})

    def _token_in(self, request: Request) -> str | None:
        given = request.headers.getlist(self._header)
        if len(given) != 1:  # a second header comes from an attacker
            return None
        scheme, _, rest = given[0].strip().partition(" ")
        if scheme.lower() == "bearer":
            return rest.strip()
        return None if self._header.lower() == "authorization" else given[0].strip()

    async def _verified(self, token: str) -> dict[str, Any]:
        """The claims of the token.

        Raises:
            _Unfit: if the token is not signed by the provider, or is not for a login here and now.
            NoKeys: if the keys of the provider are not known now.

        """
        kid, alg = self._head(token)
        key = await self._keys.key(kid, alg)
        if key is None:
            raise _Unfit("it is not signed by a key of the provider")
        try:
            # It is verified by this key and the checked algorithm: nothing in the token can name
            # another key.
            signed = jws.deserialize_compact(token, key.key, [alg], self._registry)
            claims = from_json(signed.payload or b"", allow_inf_nan=False)
        except (JoseError, ValueError, TypeError) as error:
            raise _Unfit("it is not signed by the provider") from error
        if not isinstance(claims, dict):
            raise _Unfit("it has no claims")
        self._check(claims)
        return claims

    def _head(self, token: str) -> tuple[str | None, str]:
        """The key and the algorithm that the token names, before anything in it is believed."""
        if len(token) > _MAX_TOKEN:
            raise _Unfit(f"it has more than {_MAX_TOKEN:,} characters")
        first, *others = token.split(".")
        if len(others) != 2 or not token.isascii() or len(first) > _MAX_HEADER:
            raise _Unfit("it is not a signed token")
        try:
            padded = first + "=" * (-len(first) % 4)
            head = from_json(base64.b64decode(padded, altchars=b"-_", validate=True))
        except ValueError as error:
            raise _Unfit("it is not a signed token") from error
        if not isinstance(head, dict) or "crit" in head or "b64" in head:
            raise _Unfit("it is not a signed token")
        kind = head.get("typ")
        if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
            raise _Unfit("it is not a token for a login")
        alg, kid = head.get("alg"), head.get("kid")
        if not isinstance(alg, str) or alg not in self._algorithms:
            raise _Unfit(f"it is not signed by {', '.join(self._algorithms)}")
        if kid is not None and not isinstance(kid, str):
            raise _Unfit("it is not a signed token")
        return kid, alg

    def _check(self, claims: _Claims) -> None:
        """Check that the token is of this issuer, for this audience, and valid now.

        Raises:
            _Unfit: if it is not.

        """
        if claims.get("iss") != self._issuer:
            raise _Unfit("it is from another issuer")
        audiences = claims.get("aud")
        audiences = [audiences] if isinstance(audiences, str) else audiences
        if not isinstance(audiences, list) or not set(self._audiences) & {
            each for each in audiences if isinstance(each, str)
        }:
            raise _Unfit("it is for another audience")
        party = claims.get("azp", claims.get("client_id"))
        if self._parties and party not in self._parties:
            raise _Unfit("it was given to another client")
        if not self._parties and len(audiences) > 1:
            raise _Unfit("it is for several audiences: name the clients, by oidc(parties=[...])")
        now = self._now()
        ends, issued = _time(claims, "exp"), _time(claims, "iat")
        begins, logged_in = _time(claims, "nbf"), _time(claims, "auth_time")
        if ends is None or issued is None:
            raise _Unfit("it does not say when it was made and when it ends: `iat` and `exp`")
        if now >= ends + self._leeway:
            raise _Unfit("it has expired")
        if max(issued, begins or 0, logged_in or 0) > now + self._leeway:
            raise _Unfit("it is not valid yet")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject or not is_storable_text(subject):
            raise _Unfit("it does not name its owner: `sub`")

    def _check_access_token(self, request: Request, claims: _Claims) -> None:
        """Check that the access token beside an ID token was given to the same person."""
        if self._access_token_header is None:
            return
        given = request.headers.getlist(self._access_token_header)
        if not given:
            return
        said = claims.get("at_hash")
        alg = self._head(self._token_in(request) or "")[1]
        size = "512" if alg in ("EdDSA", "Ed25519") else alg[-3:]  # that curve signs by SHA-512
        digest = hashlib.new(f"sha{size}", given[0].encode()).digest()
        half = base64.urlsafe_b64encode(digest[: len(digest) // 2]).decode().rstrip("=")
        if len(given) != 1 or said != half:
            raise _Unfit("the access token beside it is not its own: `at_hash`")

    def _user(self, claims: Mapping[str, Any]) -> User:
        name = self._name(claims)
        try:
            may = self._may(claims) if callable(self._may) else self._may
            rights = checked_rights(may)
        except Exception as error:
            # The application's function may expect a claim that is missing in this token.
            _logger.exception("oidc(may=...) raised for a token")
            raise _Unfit("its claims do not say what its owner may do") from error
        logged_in = _time(claims, "auth_time")
        caller = Caller(
            name=name,
            assurance="idp",
            issuer=self._issuer,
            subject=claims["sub"],
            auth_at=None if logged_in is None else datetime.fromtimestamp(logged_in, UTC),
            claims=claims,
        )
        try:
            return User(name, rights, verified=caller)
        except UsageError as error:
            raise _Unfit(f"its owner cannot be named so: {error.message}") from error

    def _name(self, claims: _Claims) -> str:
        for claim in self._names:
            found = claims.get(claim)
            # Some providers accept any address from anybody until it is verified.
            if claim == "email" and claims.get("email_verified", True) is not True:
                continue
            if isinstance(found, str) and found:
                return found
        raise _Unfit(f"it has no name to be shown: {', '.join(self._names)}")


def _refused(request: Request, why: str) -> Response:
    description = why.replace('"', "'").encode("ascii", "replace").decode()
    bearer = f'Bearer error="invalid_token", error_description="{description}"'
    problem = Problem(401, "LoginNeeded", f"The token does not fit: {why}.")
    return problem_response(request.scope, problem, {"WWW-Authenticate": bearer})


def _time(claims: _Claims, name: str) -> float | None:
    """A time in seconds since 1970; None if the token does not have it.

    Raises:
        _Unfit: if the value is no time.

    """
    found = claims.get(name)
    if found is None:
        return None
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if not is_number or not 0 <= found < 1 << 36:
        raise _Unfit(f"`{name}` is no time")
    return float(found)


def _texts(given: object, what: str) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else given
    if not isinstance(found, Iterable):
        raise UsageError(f"oidc({what}=...) must be a text or several, got {shown(given)}")
    texts = tuple(checked_text(each, what=f"oidc({what}=...)") for each in found)
    if not texts:
        raise UsageError(f"oidc({what}=...) must not be empty")
    return texts
