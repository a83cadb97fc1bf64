"""An identity provider on this machine: its documents by HTTP, and tokens that it signs."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.web_server import served
from understudy.login.oidc import OidcAuth, oidc

NOW = 1_800_000_000.0
"""When the tokens are made, by the clock of the tests."""
DESK = "desk"
"""The audience."""


class Provider:
    """An identity provider.

    Its documents are at `issuer`. It counts who asks for its keys, and can be away.
    """

    def __init__(self) -> None:
        self.issuer = ""
        self.now = NOW
        self.asked = 0
        self.away: Response | None = None
        self.says: dict[str, Any] = {}
        """What its discovery document says otherwise than it should."""
        self.keys: dict[str, Any] = {"k1": RSAKey.generate_key(2048, private=True)}
        self.more: list[dict[str, Any]] = []
        """Other keys of the list."""

    def app(self) -> Starlette:
        """What answers."""

        async def discovery(_: Request) -> Response:
            if self.away is not None:
                return self.away
            said = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", **self.says}
            return JSONResponse(said)

        async def keys(_: Request) -> Response:
            self.asked += 1
            return self.away or JSONResponse(self.jwks())

        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", discovery),
                Route("/keys", keys),
            ]
        )

    def jwks(self) -> dict[str, Any]:
        """Its public keys."""
        found = [
            {**key.as_dict(private=False), "kid": kid, "use": "sig"}
            for kid, key in self.keys.items()
        ]
        return {"keys": [*found, *self.more]}

    def auth(self, **options: Any) -> OidcAuth:
        """An `auth` for its tokens."""
        given = {"audience": DESK, "now": lambda: self.now, **options}
        return oidc(self.issuer, **given)

    def claims(self, **claims: Any) -> dict[str, Any]:
        """The claims of a token; those that are None are left out."""
        made = {
            "iss": self.issuer,
            "sub": "1",
            "aud": DESK,
            "iat": self.now,
            "exp": self.now + 300,
            "preferred_username": "ann",
            **claims,
        }
        return {name: value for name, value in made.items() if value is not None}

    def token(
        self, kid: str | None = "k1", head: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """A token of somebody, who is ann by default."""
        key = self.keys[kid or "k1"]
        alg = "ES256" if isinstance(key, ECKey) else "RS256"
        header = {"alg": alg, "typ": "JWT", **({} if kid is None else {"kid": kid}), **(head or {})}
        return signed(header, self.claims(**claims), key)

    def bearer(self, **claims: Any) -> dict[str, str]:
        """The header of a request of somebody."""
        return {"Authorization": f"Bearer {self.token(**claims)}"}


def signed(header: dict[str, Any], claims: dict[str, Any] | bytes, key: Any) -> str:
    """A token with any header and claims, also such as no library would sign."""
    said = unsigned(header, claims).rpartition(".")[0]
    name = "EdDSA" if header["alg"] == "Ed25519" else header["alg"]
    algorithm = jws.JWSRegistry.algorithms[name]
    return f"{said}.{_encoded(algorithm.sign(said.encode(), key))}"


def unsigned(header: dict[str, Any], claims: dict[str, Any] | bytes, signature: str = "") -> str:
    """A token that nobody has signed."""
    body = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    return f"{_encoded(json.dumps(header).encode())}.{_encoded(body)}.{signature}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@contextlib.contextmanager
def provider() -> Iterator[Provider]:
    """A provider that is there until the block ends."""
    found = Provider()
    with served(found.app()) as address:
        found.issuer = address
        yield found
