"""`ProviderKeys`: the public keys of an identity provider, kept for a while and fetched anew.

A token says by `kid` which key has signed it. A provider changes its keys now and then, so for an
unknown `kid` the keys are fetched again. This happens at most every `PAUSE` seconds, so made-up key
ids cause no flood of requests to the provider.
"""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey
from pydantic_core import from_json

from understudy._base.error_texts import error_text
from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.login.hosts import is_local

logger: logging.Logger = logging.getLogger(__name__)

FRESH = 300.0
"""Seconds for which keys are used without checking for new keys."""
KEPT = 3600.0
"""Seconds after which keys that cannot be fetched again become invalid. Nobody is let in then."""
PAUSE = 10.0
"""The minimum seconds between two fetches."""
LONGEST = 5.0
"""The maximum seconds for an answer of the provider."""
MAX_BYTES = 512 * 1024
"""The maximum bytes of an answer of the provider."""
MAX_KEYS = 100
LEAST_BITS = 2048
"""The minimum bits of an RSA key."""
CURVES = {
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
    "Ed25519": "Ed25519",
}
"""The curve of each algorithm by elliptic curves."""
KINDS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "RSA": (RSAKey, ("kty", "n", "e")),
    "EC": (ECKey, ("kty", "crv", "x", "y")),
    "OKP": (OKPKey, ("kty", "crv", "x")),
}
"""The class of a key and the names of its public fields, by `kty`."""


class NoKeys(Exception):
    """The error that the keys of the provider are not known now."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key of the provider."""

    kid: str | None
    kind: str
    """The kind of the key, from `kty`: `"RSA"`, `"EC"` or `"OKP"`."""
    alg: str | None
    """The only algorithm for which it may be used; None if it does not say."""
    curve: str | None
    key: Any = field(repr=False)

    def is_for(self, alg: str) -> bool:
        """Whether the key may have signed a token with this algorithm."""
        if self.alg not in (None, alg):
            return False
        if alg in CURVES:
            return self.kind != "RSA" and self.curve == CURVES[alg]
        return self.kind == "RSA"


class ProviderKeys:
    """The keys of a provider: given, or fetched from a URL.

    Args:
        issuer: the issuer, whose discovery document names the URL if none is given.
        given: the keys as a JWKS, or the URL of a JWKS; None = by the discovery document.
        now: the time, in seconds.

    Raises:
        UsageError: for a JWKS without a usable key, or a URL that is not encrypted.

    """

    def __init__(
        self, issuer: str, given: str | Mapping[str, Any] | None, now: Callable[[], float]
    ) -> None:
        self._issuer = issuer
        self._now = now
        self._url: str | None = None
        self._keys: tuple[PublicKey, ...] = ()
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._flight: concurrent.futures.Future[None] | None = None
        self._lock = threading.Lock()
        self._is_given = isinstance(given, Mapping)
        if isinstance(given, Mapping):
            self._keys = _keys_of(given)
            if not self._keys:
                curves = ", ".join(dict.fromkeys(CURVES.values()))
                raise UsageError(
                    "oidc(keys=...) has no public key to verify by: give a JWKS with keys of RSA "
                    f"(from {LEAST_BITS} bits on) or of the curves {curves}"
                )
        elif given is not None:
            self._url = checked_url(given, what="oidc(keys=...)")

    async def key(self, kid: str | None, alg: str) -> PublicKey | None:
        """The key that a token names; None if the provider does not have it.

        Raises:
            NoKeys: if the keys are not known now.

        """
        if self._age() >= KEPT:
            await _done(self._begun_fetch())
            if self._age() >= KEPT:
                raise NoKeys
        elif self._age() >= FRESH:
            self._begun_fetch()  # the known keys stay valid meanwhile
        found = self._found(kid, alg)
        if found is None and not self._is_given:
            await _done(self._begun_fetch())
            found = self._found(kid, alg)
        return found

    def _age(self) -> float:
        """Seconds since the keys were fetched; `KEPT` if they are not known."""
        if self._is_given:
            return 0.0
        at = self._fetched_at
        age = KEPT if at is None else self._now() - at
        return age if age >= 0 else KEPT  # the clock was set back

    def _found(self, kid: str | None, alg: str) -> PublicKey | None:
        """The key that may have signed. Without a `kid`, only if it is the only possible key."""
        fits = [each for each in self._keys if each.is_for(alg)]
        if kid is not None:
            fits = [each for each in fits if each.kid == kid]
        return fits[0] if len(fits) == 1 else None

    def _begun_fetch(self) -> concurrent.futures.Future[None] | None:
        """The fetch that is under way now; None if the last one was a moment ago."""
        with self._lock:
            if self._flight is not None:
                return self._flight
            tried = self._tried_at
            if tried is not None and 0 <= self._now() - tried < PAUSE:
                return None
            self._tried_at = self._now()
            flight = self._flight = concurrent.futures.Future()
        # It runs in a separate thread: requests of several loops wait for one fetch. A request that
        # gives up does not end the fetch for others.
        fetch = threading.Thread(
            target=self._fetch, args=(flight,), name="understudy-oidc-keys", daemon=True
        )
        fetch.start()
        return flight

    def _fetch(self, flight: concurrent.futures.Future[None]) -> None:
        try:
            found = _keys_of(_fetched_keys(self._issuer, self._url))
            if not found:
                raise ValueError("there is no key to verify by")
        except Exception as error:
            logger.warning("the keys of %s cannot be fetched: %s", self._issuer, error_text(error))
        else:
            self._keys, self._fetched_at = found, self._now()
        finally:
            with self._lock:
                self._flight = None
            flight.set_result(None)


async def _done(flight: concurrent.futures.Future[None] | None) -> None:
    if flight is not None:
        await asyncio.shield(asyncio.wrap_future(flight))


def _fetched_keys(issuer: str, url: str | None) -> Any:
    limits = httpx2.Timeout(LONGEST)
    with httpx2.Client(timeout=limits, follow_redirects=False) as client:
        if url is None:
            place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
            found = _fetched_json(client, place)
            said = found.get("issuer") if isinstance(found, dict) else None
            if said != issuer:
                raise ValueError(f"{place} is of the issuer {shown(said)}")
            url = checked_url(found.get("jwks_uri"), what=f"`jwks_uri` of {place}")
        return _fetched_json(client, url)


def _fetched_json(client: httpx2.Client, url: str) -> Any:
    body, end = b"", time.monotonic() + 2 * LONGEST
    with client.stream("GET", url, headers={"Accept": "application/json"}) as response:
        if response.status_code != 200:
            raise ValueError(f"{url} answered {response.status_code}")
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                raise ValueError(f"{url} answered more than {MAX_BYTES:,} bytes")
            if time.monotonic() > end:
                raise ValueError(f"{url} took more than {2 * LONGEST:.0f} s to answer")
    return from_json(body, allow_inf_nan=False)


def _keys_of(given: object) -> tuple[PublicKey, ...]:
    """The keys of a JWKS by which signatures may be verified. Other keys are left out."""
    keys = given.get("keys") if isinstance(given, Mapping) else None
    if not isinstance(keys, list):
        raise UsageError(f'a JWKS is {{"keys": [...]}}, got {shown(given)}')
    if len(keys) > MAX_KEYS:
        raise UsageError(f"a JWKS with {len(keys)} keys: at most {MAX_KEYS} are taken")
    return tuple(_usable(keys))


def _usable(keys: Iterable[object]) -> Iterable[PublicKey]:
    for data in keys:
        # A shared secret is never accepted: a reader of the list could sign with it.
        if not isinstance(data, dict) or data.get("kty") not in tuple(KINDS):
            continue
        operations = data.get("key_ops")
        if data.get("use") not in (None, "sig") or (
            isinstance(operations, list) and "verify" not in operations
        ):
            continue
        kid, alg = data.get("kid"), data.get("alg")
        if not isinstance(kid, str | None) or not isinstance(alg, str | None):
            continue
        kind = data["kty"]
        made_by, names = KINDS[kind]
        try:
            if kind == "RSA" and len(_decoded(data["n"])) * 8 < LEAST_BITS:
                raise ValueError(f"it has less than {LEAST_BITS} bits")
            # Only the public part is used, even if somebody has published the whole key.
            public = {name: data[name] for name in names}
            key = made_by.import_key(public)
        except (JoseError, KeyError, TypeError, ValueError) as error:
            logger.warning("the key %s is left out: %s", shown(kid), error_text(error))
            continue
        yield PublicKey(kid, kind, alg, public.get("crv"), key)


def _decoded(text: str) -> bytes:
    """The decoded number, without leading zeros."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).lstrip(b"\0")


def checked_url(given: object, *, what: str) -> str:
    """The URL, if it is encrypted or points to this machine.

    Raises:
        UsageError: for anything else.

    """
    try:
        url = urlsplit(given if isinstance(given, str) else "")
        host, is_whole = url.hostname or "", not url.username and not url.fragment
        is_safe = url.scheme == "https" or (url.scheme == "http" and is_local(host))
    except ValueError:
        host, is_whole, is_safe = "", False, False
    if not isinstance(given, str) or not host or not is_whole or not is_safe:
        raise UsageError(f"{what} must be a URL with https, got {shown(given)}")
    return given
