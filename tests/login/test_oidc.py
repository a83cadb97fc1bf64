"""Logins by tokens of an identity provider: what is taken, what is refused, and when keys are read.

Rules: V40, V41.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.support.oidc_provider import DESK, NOW, Provider, provider, signed, unsigned
from tests.support.trust.broken import is_found_out
from understudy import UsageError
from understudy.login.oidc import OidcAuth, oidc
from understudy.web import User


@pytest.fixture(scope="module")
def shared() -> Iterator[Provider]:
    with provider() as found:
        yield found


@pytest.fixture
def idp(shared: Provider) -> Provider:
    """The provider, as it was at first. Its key stays: to make one takes longer than a test."""
    shared.now, shared.asked, shared.away, shared.says, shared.more = NOW, 0, None, {}, []
    shared.keys = {"k1": shared.keys["k1"]}
    return shared


def request(headers: dict[str, str] | list[tuple[str, str]]) -> Request:
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": "/api/pending",
            "root_path": "",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in pairs],
        }
    )


async def asked(auth: OidcAuth, token: str) -> User | Response | None:
    return await auth(request({"Authorization": f"Bearer {token}"}))


async def let_in(auth: OidcAuth, token: str) -> User:
    found = await asked(auth, token)
    assert isinstance(found, User), getattr(found, "body", found)
    return found


async def refused(auth: OidcAuth, token: str, why: str) -> None:
    found = await asked(auth, token)
    assert isinstance(found, Response)
    assert found.status_code == 401
    assert why in bytes(found.body).decode()
    assert found.headers["www-authenticate"].startswith('Bearer error="invalid_token"')


async def test_a_token_of_the_provider_says_who_it_is_and_what_they_may(idp: Provider) -> None:
    auth = idp.auth(may=lambda claims: {"read", *claims["groups"]})
    token = idp.token(groups=["decide"], auth_time=NOW - 9, email="ann@example.com")
    user = await let_in(auth, token)
    assert (user.name, user.may) == ("ann", {"read", "decide"})
    caller = user.caller
    assert (caller.issuer, caller.subject, caller.assurance) == (idp.issuer, "1", "idp")
    assert caller.auth_at == datetime.fromtimestamp(NOW - 9, UTC)
    assert caller.claims["email"] == "ann@example.com"
    assert (await let_in(auth, idp.token(groups=[]))).caller.auth_at is None


async def test_a_request_without_a_token_is_of_nobody(idp: Provider) -> None:
    auth = idp.auth()
    for headers in ({}, {"Authorization": "Basic YW5uOmFubg=="}, {"Authorization": idp.token()}):
        assert await auth(request(headers)) is None
    twice = [("Authorization", f"Bearer {idp.token(sub=sub)}") for sub in "12"]
    assert await auth(request(twice)) is None  # a proxy has added one beside the client's


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://other.example"}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": ["other", 7]}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": [DESK, "other"]}, "several audiences"),
        ({"exp": NOW - 61}, "it has expired"),
        ({"exp": None}, "when it was made and when it ends"),
        ({"iat": None}, "when it was made and when it ends"),
        ({"exp": True}, "`exp` is no time"),
        ({"exp": "2030"}, "`exp` is no time"),
        ({"exp": 10**400}, "`exp` is no time"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"iat": NOW + 61}, "not valid yet"),
        ({"auth_time": NOW + 61}, "not valid yet"),
        ({"sub": None}, "does not name its owner"),
        ({"sub": ""}, "does not name its owner"),
        ({"sub": 7}, "does not name its owner"),
        ({"preferred_username": "expiry"}, "cannot be named so"),
        ({"preferred_username": "\u0430nn"}, "cannot be named so"),
        ({"preferred_username": "ann\u200b"}, "cannot be named so"),
    ],
)
async def test_a_token_that_does_not_fit_is_refused(
    idp: Provider, claims: dict[str, Any], why: str
) -> None:
    """V40."""
    await refused(idp.auth(), idp.token(**claims), why)


@pytest.mark.parametrize("claims", [{"exp": NOW - 59}, {"nbf": NOW + 59}, {"iat": NOW + 59}])
async def test_clocks_may_differ_by_the_leeway(idp: Provider, claims: dict[str, Any]) -> None:
    await let_in(idp.auth(), idp.token(**claims))


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
async def test_a_time_that_is_no_number_is_refused(idp: Provider, number: bytes) -> None:
    """V40: all that is compared with NaN is false."""
    claims = str(idp.claims(exp="END")).replace("'", '"').encode().replace(b'"END"', number)
    token = signed({"alg": "RS256", "kid": "k1"}, claims, idp.keys["k1"])
    found = await asked(idp.auth(), token)
    assert isinstance(found, Response)
    assert found.status_code == 401


async def test_a_token_for_several_audiences_needs_a_client_that_is_named(idp: Provider) -> None:
    """V40."""
    auth = idp.auth(parties=["page"])
    await let_in(auth, idp.token(aud=[DESK, "other"], azp="page"))
    await let_in(auth, idp.token(client_id="page"))
    await refused(auth, idp.token(aud=[DESK, "other"], azp="shop"), "another client")
    await refused(auth, idp.token(), "another client")


def by_secret(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    said = unsigned(header, claims)[:-1]
    mac = hmac.new(secret, said.encode(), hashlib.sha256).digest()
    return f"{said}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def forged(idp: Provider) -> dict[str, str]:
    """Tokens that nobody at the provider has signed."""
    other, claims = RSAKey.generate_key(2048, private=True), idp.claims(sub="mallory")
    public = idp.keys["k1"].as_pem(private=False)
    good = idp.token()
    head, _, signature = good.split(".")
    body = unsigned({}, claims).split(".")[1]
    rs = {"alg": "RS256", "typ": "JWT"}
    return {
        "none": unsigned({"alg": "none"}, claims),
        "None": unsigned({"alg": "None", "kid": "k1"}, claims),
        "none, with a signature": unsigned({"alg": "none", "kid": "k1"}, claims, signature),
        "the public key as a secret": by_secret({"alg": "HS256", "kid": "k1"}, claims, public),
        "another key under this kid": signed({**rs, "kid": "k1"}, claims, other),
        "a key in the token": signed(
            {**rs, "kid": "k1", "jwk": other.as_dict(private=False)}, claims, other
        ),
        "a list in the token": signed(
            {**rs, "kid": "k1", "jku": "https://evil.example/keys"}, claims, other
        ),
        "other claims": f"{head}.{body}.{signature}",
        "no signature": f"{head}.{body}.",
        "an algorithm that is not allowed": signed(
            {"alg": "RS512", "kid": "k1"}, claims, idp.keys["k1"]
        ),
        "for a logout": signed(
            {"alg": "RS256", "kid": "k1", "typ": "logout+jwt"}, claims, idp.keys["k1"]
        ),
        "critical": unsigned({**rs, "kid": "k1", "crit": ["b64"], "b64": False}, claims, signature),
        "encrypted": f"{good}.x.y",
        "no token": "ann",
        "empty": "",
        "no JSON": "bm8.bm8.bm8",
        "not ASCII": f"{good}\u00e9",
        "a list": signed({**rs, "kid": "k1"}, b"[]", idp.keys["k1"]),
        "no claims": signed({**rs, "kid": "k1"}, b"no", idp.keys["k1"]),
        "deep": signed({**rs, "kid": "k1"}, b"[" * 5000, idp.keys["k1"]),
    }


async def test_a_token_that_the_provider_has_not_signed_is_refused(idp: Provider) -> None:
    """V40: algorithm confusion, keys that the token brings, and what is no token."""
    auth = idp.auth()
    for what, token in forged(idp).items():
        found = await asked(auth, token)
        assert isinstance(found, Response), what
        assert found.status_code == 401, what
    await let_in(auth, idp.token())


async def test_a_shared_secret_among_the_keys_verifies_nothing(idp: Provider) -> None:
    """V40: also where the provider lists it."""
    secret = OctKey.generate_key(256)
    idp.more = [{**secret.as_dict(private=True), "kid": "s1", "alg": "HS256"}]
    token = by_secret({"alg": "HS256", "kid": "s1"}, idp.claims(), secret.raw_value)
    await refused(idp.auth(), token, "it is not signed by RS256")


async def test_keys_for_something_else_verify_nothing(idp: Provider) -> None:
    """V40: a key for encryption, for another algorithm, or too short a one."""
    key = idp.keys["k1"]
    curve = ECKey.generate_key("P-384", private=True)
    public = key.as_dict(private=False)
    idp.more = [
        {**public, "kid": "enc", "use": "enc"},
        {**public, "kid": "ops", "key_ops": ["encrypt"]},
        {**public, "kid": "alg", "alg": "RS512"},
        {"kty": "RSA", "kid": "short", "n": "_" * 171, "e": "AQAB"},
        {**curve.as_dict(private=False), "kid": "curve"},
        {"kty": "RSA", "kid": "broken"},
        {"kty": "RSA", "kid": 7},
        "not signed by a key",  # type: ignore[list-item]
    ]
    auth, rs = idp.auth(), {"alg": "RS256"}
    for kid in ("enc", "ops", "alg", "short", "broken"):
        await refused(auth, signed({**rs, "kid": kid}, idp.claims(), key), "not signed by a key")
    of_curve = signed({"alg": "ES384", "kid": "curve"}, idp.claims(), curve)
    await refused(idp.auth(algorithms=["ES256", "ES512"]), of_curve, "not signed by ES256")
    await let_in(idp.auth(algorithms=["ES384"]), of_curve)


@pytest.mark.parametrize("alg", ["EdDSA", "Ed25519"])
async def test_a_token_by_a_key_of_ed25519_is_let_in_where_that_is_allowed(
    idp: Provider, alg: str
) -> None:
    """V40: by no other curve of its kind, and by no key that the provider does not have."""
    key, other = OKPKey.generate_key("Ed25519"), OKPKey.generate_key("Ed25519")
    longer, for_keys = OKPKey.generate_key("Ed448"), OKPKey.generate_key("X25519")
    keys = {"ed": key, "ed448": longer, "x": for_keys}
    idp.more = [{**each.as_dict(private=False), "kid": kid} for kid, each in keys.items()]
    auth = idp.auth(algorithms=[alg, "RS256"], access_token_header="X-Access")
    half = hashlib.sha512(b"opaque").digest()[:32]
    at_hash = base64.urlsafe_b64encode(half).decode().rstrip("=")
    head = {"alg": alg, "kid": "ed"}
    token = signed(head, idp.claims(at_hash=at_hash), key)
    beside = {"Authorization": f"Bearer {token}", "X-Access": "opaque"}
    assert isinstance(await auth(request(beside)), User)
    assert isinstance(await auth(request({**beside, "X-Access": "other"})), Response)
    await let_in(auth, idp.token())
    await refused(auth, signed(head, idp.claims(), other), "not signed by the provider")
    await refused(
        auth, signed({**head, "kid": "ed448"}, idp.claims(), longer), "not signed by a key"
    )
    await refused(auth, signed({**head, "kid": "k1"}, idp.claims(), key), "not signed by a key")
    await refused(idp.auth(), token, "not signed by RS256")
    listed = {"keys": [{**key.as_dict(private=False), "kid": "ed"}]}
    given = idp.auth(keys=listed, algorithms=[alg])
    await let_in(given, signed(head, idp.claims(), key))


async def test_without_a_kid_the_only_key_is_meant(idp: Provider) -> None:
    auth = idp.auth()
    await let_in(auth, idp.token(None))
    idp.keys["k2"] = RSAKey.generate_key(2048, private=True)
    await refused(idp.auth(), idp.token(None), "not signed by a key")


@pytest.mark.parametrize(
    "head", [{"kid": "k" * 4000}, {"x5c": ["c" * 4000]}, {"kid": 7}, {"typ": ["JWT"]}]
)
async def test_what_is_too_large_or_odd_is_refused_before_a_key_is_looked_for(
    idp: Provider, head: dict[str, Any]
) -> None:
    """V41."""
    auth = idp.auth()
    await refused(auth, idp.token(head=head), "it is ")
    await refused(auth, idp.token(note="x" * 16_000), "characters")
    assert idp.asked == 0


# ----------------------------------------------------------------------------- keys


async def test_the_keys_are_fetched_once_and_again_after_a_while(idp: Provider) -> None:
    """V41."""
    auth = idp.auth()
    for _ in range(3):
        await let_in(auth, idp.token())
    assert idp.asked == 1
    idp.now += 301
    await let_in(auth, idp.token())
    await until(lambda: idp.asked == 2)


async def test_requests_at_once_share_one_fetch(idp: Provider) -> None:
    """V41: on several event loops, too."""
    auth = idp.auth()
    token = idp.token()
    found: list[Any] = []

    def elsewhere() -> None:
        found.append(asyncio.run(let_in(auth, token)))

    threads = [threading.Thread(target=elsewhere) for _ in range(3)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(let_in(auth, token) for _ in range(10)))
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
    assert len(found) == 3
    assert idp.asked == 1


async def test_whoever_gives_up_ends_the_fetch_for_nobody_else(idp: Provider) -> None:
    """V41."""
    auth = idp.auth()
    first = asyncio.create_task(let_in(auth, idp.token()))
    second = asyncio.create_task(let_in(auth, idp.token()))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    assert (await second).name == "ann"


async def test_a_new_key_is_found_by_its_kid_and_an_old_one_is_gone(idp: Provider) -> None:
    """V41."""
    auth = idp.auth()
    old = idp.token()
    await let_in(auth, old)
    idp.now += 11
    before = idp.keys
    idp.keys = {"k2": ECKey.generate_key("P-256", private=True)}
    await let_in(auth, idp.token("k2"))
    assert idp.asked == 2
    await refused(auth, old, "not signed by a key")
    idp.keys = before


async def test_made_up_kids_make_no_flood_of_fetches(idp: Provider) -> None:
    """V41: and a new key is found beside them."""
    auth = idp.auth()
    await let_in(auth, idp.token())
    for number in range(10):
        await refused(auth, idp.token(head={"kid": f"made-up-{number}"}), "not signed by a key")
    assert idp.asked == 1
    idp.now += 10
    idp.keys = {**idp.keys, "k2": ECKey.generate_key("P-256", private=True)}
    for number in range(10):
        await refused(auth, idp.token(head={"kid": f"made-up-{number}"}), "not signed by a key")
    assert idp.asked == 2
    await let_in(auth, idp.token("k2"))
    assert idp.asked == 2


AWAY = [
    Response(status_code=503),
    Response(status_code=302, headers={"location": "https://evil.example/keys"}),
    Response("<html>", media_type="text/html"),
    JSONResponse({"keys": []}),
    JSONResponse({"keys": [7] * 101}),
    JSONResponse([]),
    Response(b" " * 600_000),
]


@pytest.mark.parametrize("away", AWAY)
async def test_while_the_keys_are_not_known_nobody_is_let_in(idp: Provider, away: Response) -> None:
    """V41: 503, and not 401: the token may be a good one."""
    idp.away = away
    auth = idp.auth()
    for _ in range(3):
        found = await asked(auth, idp.token())
        assert isinstance(found, Response)
        assert found.status_code == 503
    idp.away = None
    idp.now += 10
    await let_in(auth, idp.token())


async def test_known_keys_hold_for_an_hour_without_the_provider(idp: Provider) -> None:
    """V41."""
    auth = idp.auth()
    await let_in(auth, idp.token())
    idp.away = Response(status_code=500)
    idp.now += 3599
    await let_in(auth, idp.token())
    idp.now += 11
    found = await asked(auth, idp.token())
    assert isinstance(found, Response)
    assert found.status_code == 503


async def test_a_clock_that_is_set_back_makes_no_keys_last_longer(idp: Provider) -> None:
    """V41."""
    auth = idp.auth()
    await let_in(auth, idp.token())
    idp.away = Response(status_code=500)
    idp.now -= 1000
    found = await asked(auth, idp.token())
    assert isinstance(found, Response)
    assert found.status_code == 503


@pytest.mark.parametrize(
    "says", [{"issuer": "https://evil.example"}, {"jwks_uri": "http://evil.example/keys"}]
)
async def test_a_discovery_document_of_another_issuer_says_no_keys(
    idp: Provider, says: dict[str, Any]
) -> None:
    """V41: also not at an address that is not encrypted."""
    idp.says = says
    found = await asked(idp.auth(), idp.token())
    assert isinstance(found, Response)
    assert found.status_code == 503


async def test_keys_may_be_given_or_their_address(idp: Provider) -> None:
    await let_in(idp.auth(keys=idp.jwks()), idp.token())
    assert idp.asked == 0
    await let_in(idp.auth(keys=f"{idp.issuer}/keys"), idp.token())
    assert idp.asked == 1
    await refused(idp.auth(keys=idp.jwks()), idp.token(head={"kid": "k9"}), "not signed by a key")


# ------------------------------------------------------------------ names and proxies


async def test_the_name_is_the_first_of_the_claims_that_a_token_has(idp: Provider) -> None:
    token = idp.token(preferred_username=None, email="ann@example.com")
    assert (await let_in(idp.auth(), token)).name == "ann@example.com"
    unverified = idp.token(preferred_username=None, email="boss@example.com", email_verified=False)
    assert (await let_in(idp.auth(), unverified)).name == "1"
    await refused(idp.auth(name="email"), unverified, "no name to be shown")
    assert (await let_in(idp.auth(name="nick"), idp.token(nick="Ann"))).name == "Ann"


async def test_two_subjects_with_one_name_are_two_users(idp: Provider) -> None:
    """V42."""
    auth = idp.auth(name="email")
    one, two = [await let_in(auth, idp.token(sub=sub, email="a@b.example")) for sub in "12"]
    assert one.name == two.name
    assert one.key != two.key
    assert one != two
    assert one.key != User("a@b.example").key


async def test_a_proxy_may_send_the_token_in_a_header_of_its_own(idp: Provider) -> None:
    auth = idp.auth(header="Cf-Access-Jwt-Assertion")
    found = await auth(request({"Cf-Access-Jwt-Assertion": idp.token()}))
    assert isinstance(found, User)
    assert await auth(request({"Authorization": f"Bearer {idp.token()}"})) is None


async def test_an_access_token_beside_must_be_that_of_the_id_token(idp: Provider) -> None:
    """V40: `at_hash`."""
    auth = idp.auth(access_token_header="X-Forwarded-Access-Token")
    half = hashlib.sha256(b"opaque").digest()[:16]
    at_hash = base64.urlsafe_b64encode(half).decode().rstrip("=")
    for claims, beside, fits in (
        ({"at_hash": at_hash}, "opaque", True),
        ({"at_hash": at_hash}, None, True),
        ({"at_hash": at_hash}, "of somebody else", False),
        ({}, "opaque", False),
    ):
        extra = {} if beside is None else {"X-Forwarded-Access-Token": beside}
        found = await auth(request({**idp.bearer(**claims), **extra}))
        assert isinstance(found, User) == fits, (claims, beside)


async def test_where_may_raises_nobody_is_let_in(idp: Provider) -> None:
    auth = idp.auth(may=lambda claims: claims["groups"])
    await refused(auth, idp.token(), "what its owner may do")
    await refused(auth, idp.token(groups=["everything"]), "what its owner may do")
    assert (await let_in(auth, idp.token(groups=["act"]))).may == {"act"}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"issuer": "http://idp.example"}, "must be a URL with https"),
        ({"issuer": "idp.example"}, "must be a URL with https"),
        ({"issuer": "https://ann@idp.example"}, "must be a URL with https"),
        ({"issuer": "https://[idp"}, "must be a URL with https"),
        ({"audience": ""}, "audience"),
        ({"audience": []}, "must not be empty"),
        ({"audience": 7}, "must be a text or several"),
        ({"algorithms": ["none"]}, "holds 'none'"),
        ({"algorithms": ["RS256", "HS256"]}, "holds 'HS256'"),
        ({"keys": {"keys": []}}, "no public key"),
        ({"keys": {"keys": [{"kty": "oct", "k": "AAAA"}]}}, "no public key"),
        ({"keys": {}}, "a JWKS is"),
        ({"keys": "http://idp.example/keys"}, "must be a URL with https"),
        ({"leeway": 301}, "from 0 to 300"),
        ({"leeway": True}, "from 0 to 300"),
        ({"may": ["everything"]}, "'everything'"),
        ({"header": ""}, "header"),
    ],
)
def test_what_could_let_in_the_wrong_ones_is_refused_when_it_is_made(
    options: dict[str, Any], told: str
) -> None:
    """V40."""
    given = {"issuer": "https://idp.example", "audience": DESK, **options}
    with pytest.raises(UsageError, match=told):
        oidc(given.pop("issuer"), **given)


async def until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  # a thread sets no event of this loop
            await asyncio.sleep(0.001)


CONTROLS: list[tuple[str, Any]] = [
    (
        "a token for another audience is let in",
        lambda idp: test_a_token_that_does_not_fit_is_refused(idp, {"aud": "other"}, "audience"),
    ),
    (
        "a token of another issuer is let in",
        lambda idp: test_a_token_that_does_not_fit_is_refused(
            idp, {"iss": "https://o.example"}, "issuer"
        ),
    ),
    (
        "a token holds for ever",
        lambda idp: test_a_token_that_does_not_fit_is_refused(idp, {"exp": NOW - 61}, "expired"),
    ),
    ("signatures are not verified", test_a_token_that_the_provider_has_not_signed_is_refused),
    (
        "a token is verified by whatever algorithm it names",
        test_a_shared_secret_among_the_keys_verifies_nothing,
    ),
    ("keys of a provider hold for ever", test_known_keys_hold_for_an_hour_without_the_provider),
    ("each unknown kid fetches the keys", test_made_up_kids_make_no_flood_of_fetches),
    (
        "who cannot be verified now is let in by what the token says",
        lambda idp: test_while_the_keys_are_not_known_nobody_is_let_in(idp, AWAY[0]),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "attack"), CONTROLS)
async def test_a_build_with_one_rule_left_out_is_found_out(
    idp: Provider, broken: str, attack: Any
) -> None:
    """V40, V41: else the attacks would prove nothing."""
    assert await is_found_out(broken, lambda: attack(idp))
