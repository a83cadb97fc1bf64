"""What protects the pages, each attacked: who asks, from where, by which name, and what is sent.

Rules: I17.
"""

from __future__ import annotations

import asyncio
import html.parser
import json
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from sse_starlette import ServerSentEvent
from starlette.requests import Request
from starlette.responses import RedirectResponse

from tests.support.ag_ui_client import end_watchers
from tests.support.loops import soon
from tests.support.web_site import (
    ALL,
    HOSTILE,
    ORDER,
    Done,
    asked,
    client_of,
    desk,
    logged_in,
    only_request,
    refund,
    rest,
    site_of,
)
from tests.support.web_stream import get
from understudy import Runtime, Status, UsageError, approve, call
from understudy.login.event_stream import EventStream, StreamBound
from understudy.middleware import Workspace
from understudy.web import Auth, HideToken, TokenAuth, User, loopback_only, token_auth, ui

SAME = {"sec-fetch-site": "same-origin"}
PAGES = ("/", "/search", "/agents", "/runtime")
TABS = ("", "/timeline", "/decisions", "/usage", "/state", "/history")


async def decide(client: httpx.AsyncClient, **headers: str) -> httpx.Response:
    """Approve the one request."""
    request = await only_request(client)
    body = {
        "decisions": {request["id"]: {"type": "approve"}},
        "expect": {request["id"]: request["digest"]},
    }
    return await client.post(f"/api/agents/{request['agent_id']}/decisions", json=body, **headers)  # type: ignore[arg-type]


# ------------------------------------------------------------------------- who asks


def test_pages_without_a_login_are_refused_when_they_are_made() -> None:
    with pytest.raises(UsageError, match=r"ui\(auth=\.\.\.\) is missing"):
        ui(lambda: Runtime())
    with pytest.raises(UsageError, match=r"ui\(auth=\.\.\.\) cannot be 7: give a function"):
        ui(lambda: Runtime(), auth=7)  # type: ignore[arg-type]


async def test_nobody_sees_anything_and_changes_nothing() -> None:
    """I17."""
    done = Done()
    async with Runtime([desk(done, refund())]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime, auth=lambda request: None) as client:
            for path in (*PAGES, "/agents/a1", "/live", "/api/pending", "/api/openapi.json", "/x"):
                answer = await client.get(path)
                assert answer.status_code == 401, path
                assert "refund" not in answer.text
            for path in ("/bulk", "/api/bulk", "/agents/a1/do/delete"):
                assert (await client.post(path, json={})).status_code == 401
        assert ref.status() is Status.INTERRUPTED
    assert done.calls == []


async def test_the_applications_own_login_page_is_where_it_sends_people() -> None:
    async with Runtime() as runtime:
        to_login = lambda request: RedirectResponse("/login", 303)  # noqa: E731
        async with site_of(runtime, auth=to_login) as client:
            answer = await client.get("/")
            assert (answer.status_code, answer.headers["location"]) == (303, "/login")
            assert answer.headers["cache-control"] == "no-store"


async def test_who_may_only_read_changes_nothing() -> None:
    done = Done()
    async with Runtime([desk(done, refund())]) as runtime:
        ref = await asked(runtime)
        reader = logged_in("bob", frozenset({"read"}))
        async with site_of(runtime, auth=reader) as client:
            row = await only_request(client)
            page = f"/agents/a1/requests/{row['id']}"
            posts: list[tuple[str, dict[str, Any]]] = [
                (page, {"data": {"decision": "approve", "digest": row["digest"]}}),
                ("/bulk", {"data": {"chosen": f"a1/{row['id']}/{row['digest']}"}}),
                *((f"/agents/a1/do/{a}", {"data": {"text": "x", "confirm": "a1"}}) for a in (
                    "messages", "pause", "cancel", "delete", "compact", "revoke", "settle")),
            ]  # fmt: skip
            for path, sent in posts:
                assert (await client.post(path, **sent)).status_code in (403, 409), path
            assert (await decide(client)).status_code == 403
            assert (await client.get("/api/agents/a1/export")).status_code == 403
            assert (await client.get("/agents/a1/export")).status_code == 403
            body = (await client.get(page)).text
            assert "<button" not in body.split("<main")[1]
            assert "bob may not do that" in body
        assert ref.status() is Status.INTERRUPTED
    assert done.calls == []


async def test_read_only_pages_change_nothing_whoever_asks() -> None:
    done = Done()
    async with Runtime([desk(done, refund())]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime, read_only=True) as client:
            assert (await decide(client)).status_code == 403
            assert (await client.post("/api/agents/a1/cancel", json={})).status_code == 403
        assert ref.status() is Status.INTERRUPTED
    assert done.calls == []


async def test_a_decision_is_of_who_is_logged_in_whatever_the_form_says() -> None:
    """I17."""
    done = Done()
    async with Runtime([desk(done, refund())]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            forged = {"decision": "approve", "digest": row["digest"], "by": "mallory"}
            answer = await client.post(f"/agents/a1/requests/{row['id']}", data=forged)
            assert answer.status_code == 303
            body = {"decisions": {row["id"]: {"type": "approve", "by": "mallory"}}, "expect": {}}
            assert (await client.post("/api/agents/a1/decisions", json=body)).status_code == 400
        assert [record.decision.by for record in await soon(ref.decisions())] == ["ann"]


# ---------------------------------------------------------------------- by which name


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("localhost", True),
        ("localhost:8420", True),
        ("LOCALHOST.", True),
        ("a.localhost:1", True),
        ("127.0.0.1:8420", True),
        ("[::1]:8420", True),
        ("192.168.1.7", True),
        ("ops.example.com", True),
        ("x.below.example", True),
        ("below.example", False),
        ("evil.example", False),
        ("evil.example:8420", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example@127.0.0.1", False),
        ("localhost.evil.example", False),
        ("ops.example.com.evil.example", False),
        ("localhost/x", False),
        ("", False),
    ],
)
async def test_only_names_that_are_known_are_answered(host: str, is_allowed: bool) -> None:
    async with Runtime() as runtime:
        allowed = ("ops.example.com", "*.below.example")
        async with site_of(runtime, allowed_hosts=allowed) as client:
            answer = await client.get("/api", headers={"host": host})
            assert answer.status_code == (200 if is_allowed else 421)


@pytest.mark.parametrize("wrong", ["ops.example.com", ["*"], ["a:80"], ["http://a"], [7], [""]])
def test_what_is_no_name_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="allowed_hosts"):
        ui(lambda: Runtime(), auth=logged_in(), allowed_hosts=wrong)


# ------------------------------------------------------------------------ from where


@pytest.mark.parametrize(
    ("headers", "is_allowed"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"origin": "http://["}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://localhost:8420"}, False),
        ({"origin": "http://localhost:8420"}, True),
        ({"origin": "http://localhost:8421"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({}, True),
        ({"cookie": "understudy-8420=x"}, False),
    ],
    ids=str,
)
async def test_a_page_of_another_site_changes_nothing(
    headers: dict[str, str], is_allowed: bool
) -> None:
    done = Done()
    async with Runtime([desk(done, refund())]) as runtime:
        ref = await asked(runtime)
        async with client_of(ui(runtime, auth=logged_in()), headers={}) as client:
            client.headers.update(headers)
            row = await only_request(client)
            form = {"decision": "reject", "digest": row["digest"]}
            by_form = await client.post(f"/agents/a1/requests/{row['id']}", data=form)
            assert (by_form.status_code == 303) is is_allowed
            assert is_allowed or by_form.status_code == 403
            message = await client.post("/api/agents/a1/messages", json={"text": "hi"})
            assert (message.status_code == 200) is is_allowed
        if not is_allowed:
            assert ref.status() is Status.INTERRUPTED


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_the_api_takes_json_alone(kind: str) -> None:
    async with Runtime([desk(Done(), refund())]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            sent = b'{"text": "hi"}'
            answer = await client.post(
                "/api/agents/a1/messages", content=sent, headers={"content-type": kind}
            )
            assert answer.status_code == 415
            wrong = await client.post("/agents/a1/do/messages", json={"text": "hi"})
            assert wrong.status_code == 415
        assert ref.status() is Status.INTERRUPTED


async def test_looking_changes_nothing() -> None:
    """I17."""
    done = Done()
    two = [refund(), refund("18")]
    async with Runtime([desk(done, two)], search=True) as runtime:
        ref = await asked(runtime)
        await soon(Workspace.of(ref).write("a.txt", "hello"))
        before = await runtime.export("a1")
        async with site_of(runtime) as client:
            row = (await client.get("/api/pending")).json()["requests"][0]
            document = (await client.get("/api/openapi.json")).json()
            paths = [
                f"/api{path}".rstrip("/") or "/api"
                for path, calls in document["paths"].items()
                if "get" in calls and "event" not in path
            ]
            for path in (*PAGES, *(f"/agents/{{agent_id}}{tab}" for tab in TABS), *paths,
                         "/agents/{agent_id}/requests/{request_id}",
                         "/agents/{agent_id}/files/download"):  # fmt: skip
                whole = path.format(agent_id="a1", request_id=row["id"])
                given = {"/file": "?path=a.txt", "/search": "?text=refund"}
                query = next((given[name] for name in given if name in path), "")
                answer = await client.get(f"{whole}{query}")
                assert answer.status_code == 200, path
            for path in ("/agents/a1/do/delete", "/agents/a1/do/cancel"):
                assert (await client.get(path)).status_code == 405
        assert await runtime.export("a1") == before
        assert ref.status() is Status.INTERRUPTED


# ------------------------------------------------------------------------ what is sent


async def test_every_answer_has_the_headers_that_protect_it() -> None:
    async with Runtime([desk(Done(), refund())]) as runtime:
        await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            for path in (*PAGES, "/agents/a1", f"/agents/a1/requests/{row['id']}", "/nothing",
                         "/api/pending", "/api/nothing"):  # fmt: skip
                headers = (await client.get(path)).headers
                csp = headers["content-security-policy"]
                assert "unsafe" not in csp
                assert "default-src 'none'" in csp
                assert "frame-ancestors 'none'" in csp
                assert "form-action 'self'" in csp
                assert headers["x-content-type-options"] == "nosniff"
                assert headers["cache-control"] == "no-store"


class Elements(html.parser.HTMLParser):
    """The elements of a page, and the attributes of each."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._in: str = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in = tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in != "textarea":  # what is typed there is sent back as it is
            self.text += data


def elements(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(text)
    return parser.found


def assert_is_harmless(text: str) -> None:
    """No script of others, no handler, no style, no address elsewhere, and nothing hidden."""
    parser = Elements()
    parser.feed(text)
    for tag, attributes in parser.found:
        assert tag not in ("img", "iframe", "object", "embed", "style", "base"), tag
        if tag == "script":
            assert (attributes.get("src") or "").startswith("/"), attributes
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name not in ("style", "hx-get", "hx-post"), (tag, name)
            if name in ("href", "src", "action", "hx-sse:connect"):
                assert value is not None
                assert re.match(r"(/(?!/)|#|\?|\Z)", value), value
            if name in ("title", "aria-label"):
                parser.text += value or ""
    assert "\x1b" not in parser.text
    assert "\u202e" not in parser.text


@pytest.mark.slow
async def test_what_agents_and_people_write_is_only_text() -> None:
    """Arguments, display, results, ids, errors, values, notes and names."""
    done = Done()
    hostile_id = HOSTILE.replace("/", "|")
    arguments = {**ORDER, "tags": [HOSTILE], "to": {"street": HOSTILE, "zip": HOSTILE}}
    agents = [
        desk(done, [HOSTILE, refund(HOSTILE, 1, reason=HOSTILE)], HOSTILE),
        desk(done, call("order", arguments), name="orders"),
        desk(done, call("question"), name="asker"),
        desk(done, RuntimeError(HOSTILE), name="failing"),
    ]
    async with Runtime(agents) as runtime:
        await asked(runtime, "desk", hostile_id, HOSTILE)
        await asked(runtime, "orders", "o1", HOSTILE)
        await asked(runtime, "asker", "..", HOSTILE)
        await soon(runtime.spawn("failing", id="f1", values={HOSTILE: HOSTILE}).run(HOSTILE))
        async with site_of(runtime, title=HOSTILE) as client:
            links = {*PAGES, "/nothing", f"/?tool={quote(HOSTILE)}"}
            seen: set[str] = set()
            while todo := links - seen:
                for path in todo:
                    seen.add(path)
                    answer = await client.get(path)
                    if "text/html" not in answer.headers["content-type"]:
                        continue
                    assert answer.status_code in (200, 400, 404), (path, answer.text)
                    assert_is_harmless(answer.text)
                    found = elements(answer.text)
                    targets = {a["href"] for t, a in found if t == "a" and a.get("href")}
                    links |= {t for t in targets if t is not None and t.startswith("/")}
            assert len(seen) > 25
            for row in (await client.get("/api/pending")).json()["requests"]:
                (link,) = [p for p in seen if p.endswith(f"/requests/{row['id']}")]
                form = {"decision": "reject", "digest": row["digest"], "note": HOSTILE,
                        "message": HOSTILE}  # fmt: skip
                assert (await client.post(link, data=form)).status_code == 303
                assert_is_harmless((await client.get(link)).text)
                again = await client.post(link, data={**form, "message": "other"})
                assert again.status_code == 409
                assert_is_harmless(again.text)


async def test_a_page_that_fails_says_nothing_of_how() -> None:
    class Broken(Exception):
        pass

    def secret() -> Runtime:
        raise Broken("the secret of the database")

    app = ui(secret, auth=logged_in())
    async with client_of(app) as client:
        for path in ("/", "/api/pending"):
            answer = await client.get(path)
            assert answer.status_code == 500
            assert "secret" not in answer.text
            assert "Traceback" not in answer.text


async def test_a_client_that_goes_in_the_middle_of_its_request_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scope = {
        **get("/api/agents/a1/messages", content_type="application/json"),
        "method": "POST",
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async with Runtime() as runtime:
        await soon(ui(runtime, auth=logged_in())(scope, receive, send))
    assert sent[0]["status"] == 400
    assert caplog.records == []


async def test_what_is_too_large_is_refused() -> None:
    async with Runtime([desk(Done(), refund())]) as runtime:
        await asked(runtime)
        async with site_of(runtime) as client:
            large = {"text": "x" * (9 * 1024 * 1024)}
            for path in ("/api/agents/a1/messages", "/api/bulk"):
                assert (await client.post(path, json=large)).status_code == 413

            async def chunks() -> Any:
                for _ in range(10):
                    yield b"x" * 1024 * 1024

            endless = await client.post(
                "/agents/a1/do/messages",
                content=chunks(),
                headers={"content-type": "application/x-www-form-urlencoded"},
            )
            assert endless.status_code == 413
            many = "&".join(f"f{n}=1" for n in range(30_000))
            form = {"content-type": "application/x-www-form-urlencoded"}
            assert (await client.post("/bulk", content=many, headers=form)).status_code == 400
            deep = b'{"text": ' + b"[" * 90_000 + b"}"
            answer = await client.post(
                "/api/agents/a1/messages",
                content=deep,
                headers={"content-type": "application/json"},
            )
            assert answer.status_code == 400


async def test_files_are_only_ours() -> None:
    async with Runtime() as runtime, site_of(runtime) as client:
        assert (await client.get("/static/style.css")).status_code == 200
        for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd",
                     "/static/VENDORED.md", "/static/"):  # fmt: skip
            assert (await client.get(path)).status_code == 404, path


# ------------------------------------------------------------------------------ tokens


LONG = "kG7w-0pQvT3xB9sLmN2rY5"
"""22 characters of base64: as many bits as a token needs."""


def link(auth: TokenAuth, page: str = "/") -> str:
    return auth.login_url(page)


async def test_a_link_is_swapped_for_a_session_once_and_is_gone_from_the_address() -> None:
    auth = token_auth()
    async with Runtime() as runtime, site_of(runtime, auth=auth) as client:
        address = link(auth, "/agents?status=idle")
        assert auth.token not in address
        answer = await client.get(address)
        assert (answer.status_code, answer.headers["location"]) == (303, "/agents?status=idle")
        (cookie,) = answer.headers.get_list("set-cookie")
        assert all(each in cookie for each in ("HttpOnly", "SameSite=lax", "Max-Age=43200"))
        assert auth.token not in cookie
        assert cookie.startswith("understudy-8420=")
        assert (await client.get("/agents")).status_code == 200  # by the cookie
        redirect = await client.get(f"//evil.example{link(auth)}")
        assert redirect.headers.get("location", "/").startswith("/")
        assert not redirect.headers.get("location", "/").startswith("//")
    async with Runtime() as runtime, site_of(runtime, auth=auth) as client:
        again = await client.get(address)
        assert (again.status_code, "set-cookie" in again.headers) == (401, False)
        assert "This link is used, or is old." in again.text
        assert (await client.get(f"/?token={auth.token}")).status_code == 401, "it is no link"
        bearer = {"authorization": f"Bearer {auth.token}"}
        assert (await client.get("/api", headers=bearer)).status_code == 200
        assert (await client.get("/api")).status_code == 401


async def test_who_has_no_link_logs_in_by_the_token_and_comes_back_to_the_page() -> None:
    auth = token_auth(LONG)
    async with Runtime() as runtime, site_of(runtime, auth=auth) as client:
        page = await client.get("/agents?status=idle")
        assert (page.status_code, 'name="token"' in page.text) == (401, True)
        assert 'name="next" value="/agents?status=idle"' in page.text
        wrong = await client.post("/login", data={"token": "another", "next": "/agents"})
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        assert "That is not the token." in wrong.text
        for back, leads in (("/agents", "/agents"), ("//evil.example", "/evil.example"),
                            ("/\\evil.example", "/evil.example"), ("", "/")):  # fmt: skip
            done = await client.post("/login", data={"token": LONG, "next": back})
            assert (done.status_code, done.headers["location"]) == (303, leads)
        assert (await client.get("/agents")).status_code == 200
        other = {"sec-fetch-site": "cross-site"}
        sent = await client.post("/login", data={"token": LONG}, headers=other)
        assert sent.status_code == 403


async def test_a_session_ends_in_time_by_logging_out_and_when_it_is_revoked() -> None:
    now = [1_000_000.0]
    auth = TokenAuth(session=3600.0, now=lambda: now[0])
    async with Runtime() as runtime, site_of(runtime, auth=auth) as client:

        async def status() -> int:
            return (await client.get("/agents")).status_code

        async def log_in() -> dict[str, str]:
            now[0] += 1
            assert (await client.get(link(auth))).status_code == 303
            assert await status() == 200
            return {"cookie": f"understudy-8420={client.cookies['understudy-8420']}"}

        await log_in()
        now[0] += 3601
        assert await status() == 401
        kept = await log_in()
        assert "Log out" in (await client.get("/agents")).text
        out = await client.post("/logout", headers={"sec-fetch-site": "same-origin"})
        assert (out.status_code, out.headers["location"]) == (303, "/")
        client.cookies.clear()
        assert (await client.get("/agents", headers=kept)).status_code == 401, "a copy of it"
        kept = await log_in()
        unused = link(auth)
        auth.revoke()
        assert await status() == 401
        client.cookies.clear()
        assert (await client.get(unused)).status_code == 401
        await log_in()
    # Another process with the token knows a session: pages are served by several workers.
    twin = TokenAuth(auth.token, session=3600.0, now=lambda: now[0])
    async with Runtime() as runtime, site_of(runtime, auth=twin) as client:
        client.cookies.set("understudy-8420", auth_cookie(auth))
        assert (await client.get("/agents")).status_code == 200
        client.cookies.set("understudy-8420", auth_cookie(TokenAuth(now=lambda: now[0])))
        assert (await client.get("/agents")).status_code == 401


def request_of(path: str, *headers: tuple[bytes, bytes], address: str = "127.0.0.1") -> Request:
    path, _, query = path.partition("?")
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [(b"host", b"localhost:8420"), *headers],
            "client": (address, 1),
            "scheme": "http",
            "server": ("localhost", 8420),
            "root_path": "",
        }
    )


def auth_cookie(auth: TokenAuth) -> str:
    """The cookie of a new session."""
    answer: Any = auth(request_of(link(auth)))
    found: str = answer.headers["set-cookie"]
    return found.partition("=")[2].partition(";")[0]


@pytest.mark.parametrize("by", ["bearer", "link", "cookie", "form"])
async def test_guesses_are_limited_in_whatever_way_they_come(by: str) -> None:
    """Cookies were not counted, and the right token passed where wrong ones were refused."""
    now = [0.0]
    auth = TokenAuth(now=lambda: now[0])
    async with Runtime() as runtime:
        app = ui(runtime, auth=auth)

        async def tried(token: str, how: str) -> int:
            async with client_of(app) as client:
                if how == "form":
                    return (await client.post("/login", data={"token": token})).status_code
                if how == "link":
                    return (await client.get("/", params={"token": token})).status_code
                name, value = "authorization", f"Bearer {token}"
                if how == "cookie":
                    name, value = "cookie", f"understudy-8420={token}"
                return (await client.get("/api", headers={name: value})).status_code

        session = auth_cookie(auth)
        assert [await tried(f"guess-{n}", by) for n in range(12)] == [401] * 10 + [429] * 2
        for how in ("bearer", "form"):
            assert await tried(auth.token, how) == 429, "the right one tells no more than others"
        assert await tried(session, "cookie") == 200, "nobody who is logged in is put out"
        now[0] = 61.0
        assert await tried("guess-13", by) == 401
        assert await tried(auth.token, "bearer") == 200


async def test_the_same_wrong_cookie_again_is_no_other_guess() -> None:
    """The open pages of a server that was started anew come back with the cookie of before."""
    auth = TokenAuth()
    async with Runtime() as runtime, client_of(ui(runtime, auth=auth)) as client:
        for _ in range(50):
            headers = {"cookie": "understudy-8420=of-before"}
            assert (await client.get("/live", headers=headers)).status_code == 401
        assert (await client.get(link(auth))).status_code == 303


def test_no_other_address_makes_the_guesses_of_one_forgotten() -> None:
    now = [0.0]
    auth = TokenAuth(now=lambda: now[0])

    def tried(address: str, token: str) -> Any:
        header = (b"authorization", f"Bearer {token}".encode())
        return auth(request_of("/api", header, address=address))

    def is_blocked(address: str) -> bool:
        return getattr(tried(address, "one more"), "status_code", 0) == 429

    for number in range(10):
        tried("192.0.2.1", f"guess {number}")
    assert is_blocked("192.0.2.1")
    for number in range(5000):
        now[0] += 0.001
        tried(f"10.1.{number // 250}.{number % 250}", f"guess {number}")
    assert is_blocked("192.0.2.1")
    assert is_blocked("203.0.113.9"), "beyond those that are counted, all others count as one"
    now[0] += 61.0
    assert not is_blocked("192.0.2.1")
    # Of IPv6, one has a network of addresses.
    for number in range(10):
        tried(f"2001:db8::{number:x}", f"guess {number}")
    assert is_blocked("2001:db8::ffff")
    assert not is_blocked("2001:db8:1::1")


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (("a", "GET", "/?x=1&token=abc"), "/?x=1&token=..."),
        (("a", "POST", "/waits/YQ.Zm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyMDE/reject"),
         "/waits/.../reject"),
        (("a", "GET", "/agents/a.b/file.json"), "/agents/a.b/file.json"),
    ],
)  # fmt: skip
def test_a_token_is_not_in_the_log(args: tuple[str, ...], shown: str) -> None:
    record = logging.LogRecord("uvicorn.access", logging.INFO, "", 0, '%s - "%s %s"', args, None)
    assert HideToken().filter(record)
    assert record.getMessage() == f'a - "{args[1]} {shown}"'
    mapped = logging.LogRecord("gunicorn", logging.INFO, "", 0, "%(r)s", ({"r": args[2]},), None)
    assert HideToken().filter(mapped)
    assert mapped.getMessage() == shown


async def test_the_token_of_a_wait_is_hidden_in_the_log_as_it_is_made() -> None:
    from understudy.run.waits.tokens import new_token

    for id in ("a", "an agent / with ümlauts", "x" * 200):
        path = f"/waits/{quote(new_token(id))}"
        record = logging.LogRecord("uvicorn.access", logging.INFO, "", 0, "%s", (path,), None)
        HideToken().filter(record)
        assert record.getMessage() == "/waits/..."


@pytest.mark.parametrize(
    "wrong", ["short", 7, "a" * 64, "0123456789" * 5, "kG7w-0pQvT3xB9sLmN2rY", "f" * 31 + "0",
              "deadbeef01234567" * 2]
)  # fmt: skip
def test_a_token_that_can_be_guessed_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="at least 128 bits"):
        token_auth(wrong)


@pytest.mark.parametrize(
    "make", [lambda: LONG, lambda: secrets.token_hex(16), lambda: secrets.token_urlsafe(16)]
)
def test_a_token_of_128_random_bits_is_taken(make: Callable[[], str]) -> None:
    for _ in range(200):
        token = make()
        assert token_auth(token).token == token


@pytest.mark.parametrize("wrong", [0, -1.0, True, "1h", None])
def test_a_session_lasts_some_seconds(wrong: Any) -> None:
    with pytest.raises(UsageError, match="session"):
        token_auth(session=wrong)


@pytest.mark.parametrize("name", ["forwarded", "x-forwarded-for", "x-real-ip"])
def test_what_a_proxy_forwards_is_not_of_this_machine(name: str) -> None:
    headers = [(b"host", b"localhost"), (name.encode(), b"127.0.0.1")]
    scope = {"type": "http", "client": ("127.0.0.1", 1), "headers": headers}
    assert loopback_only()(Request(scope)) is None


async def test_a_user_has_so_many_streams_open_and_no_more() -> None:
    bound = StreamBound(2)

    async def events() -> AsyncGenerator[ServerSentEvent, None]:
        await asyncio.Event().wait()
        yield ServerSentEvent("never")

    async def opened(user: str) -> tuple[int, asyncio.Event, asyncio.Task[None]]:
        """The status; what says that the client is gone; and the answer."""
        begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        gone = asyncio.Event()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                begun.set_result(message["status"])

        async def receive() -> Any:
            await gone.wait()
            return {"type": "http.disconnect"}

        stream = EventStream(events(), bound=bound, user=user)
        scope = {"type": "http", "method": "GET", "path": "/api/events", "headers": []}
        answer = asyncio.create_task(stream(scope, receive, send))
        return await soon(begun), gone, answer

    streams = [await opened("ann") for _ in range(3)]
    assert [status for status, _, _ in streams] == [200, 200, 429]
    streams.append(await opened("bob"))
    assert streams[-1][0] == 200
    streams[0][1].set()
    await soon(streams[0][2])
    streams.append(await opened("ann"))
    assert streams[-1][0] == 200
    for _, gone, answer in streams:
        gone.set()
        await soon(answer)
    end_watchers()


@pytest.mark.parametrize(
    ("client_host", "host", "is_in"),
    [
        ("127.0.0.1", "localhost", True),
        ("::1", "[::1]:8420", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("192.168.1.7", "localhost", False),
        ("127.0.0.1", "192.168.1.2", False),
        ("", "localhost", False),
    ],
)
async def test_loopback_only_lets_in_this_machine_alone(
    client_host: str, host: str, is_in: bool
) -> None:
    scope = {
        "type": "http",
        "client": (client_host, 1),
        "headers": [(b"host", host.encode())],
    }
    auth: Auth = loopback_only()
    found = auth(Request(scope))
    assert (found == User("local", ALL)) is is_in


@pytest.mark.parametrize(
    "wrong", [{"may": {"read", "fly"}}, {"may": "read"}, {"may": 7}, {"name": " "}]
)
@pytest.mark.parametrize("of", [User, token_auth, loopback_only])
def test_a_user_that_cannot_be_is_refused(of: Callable[..., object], wrong: Any) -> None:
    with pytest.raises(UsageError, match="User"):
        of(**{"name": "ann", **wrong})


async def test_two_mounts_in_one_process_know_nothing_of_each_other() -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    done = Done()
    async with Runtime([desk(done, refund())]) as one, Runtime([desk(done, refund())]) as two:
        await asked(one, id="in-one")
        await asked(two, id="in-two")
        reader = logged_in("bob", frozenset({"read"}))
        app = Starlette(
            routes=[
                Mount("/deep/one", ui(lambda: one, auth=logged_in(), title="First")),
                Mount("/two", ui(lambda: two, auth=reader, title="Second")),
            ]
        )
        async with client_of(app, root_path="/proxy") as client:
            first = (await client.get("/proxy/deep/one/")).text
            second = (await client.get("/proxy/two/")).text
            assert "in-one" in first
            assert "in-one" not in second
            assert "Second" in second
            links = [a["href"] for t, a in elements(first) if t in ("a", "link") and "href" in a]
            for link in links:
                assert link is not None
                if link.startswith("#"):
                    continue
                assert link.startswith("/proxy/deep/one/"), link
                assert (await client.get(link)).status_code == 200, link
            row = (await client.get("/proxy/deep/one/api/pending")).json()["requests"][0]
            page = f"/proxy/deep/one/agents/in-one/requests/{row['id']}"
            answer = await client.post(page, data={"decision": "approve", "digest": row["digest"]})
            assert (answer.status_code, answer.headers["location"]) == (
                303,
                f"{page}?then=stay#top",
            )


async def test_an_import_over_http_brings_no_decision_that_holds() -> None:
    """I17, V24: who may not decide put another's decision into an export, and the call ran."""
    done = Done()
    turns = [refund("17"), "ok", refund("18"), "ok"]
    async with Runtime([desk(done, *turns)]) as runtime:
        ref = await asked(runtime)
        (pending,) = await soon(runtime.pending())
        await soon(ref.resume({pending.request.id: approve(always=True, by="carol")}))
        data = await soon(runtime.export("a1"))
        admin = logged_in("mallory", frozenset({"read", "act", "admin"}))
        async with site_of(runtime, auth=admin) as client:
            deleted = await client.request("DELETE", "/api/agents/a1", json={"confirm": "a1"})
            assert deleted.status_code == 200
            body = {"data": data}
            assert (await client.post("/api/import", json=body)).json() == {"id": "a1"}
            about = (await client.get("/api/agents/a1")).json()
            assert about["grants"] == []
            await client.post("/api/agents/a1/messages", json={"text": "again"})
            await rest(ref, Status.INTERRUPTED)
            assert len(done.calls) == 1, "a person is asked again"
            # Who imported it is said where what came with it is shown.
            (row,) = (await client.get("/api/agents/a1/decisions")).json()["decisions"]
            assert (row["by"], row["imported_by"]) == ("carol", "mallory")
            earlier = f"/api/agents/a1/decisions?before={len(data['records'])}"
            (row,) = (await client.get(earlier)).json()["decisions"]
            assert row["imported_by"] == "mallory"
            assert "as imported by mallory" in (await client.get("/agents/a1/decisions")).text
            entries = (await client.get("/api/agents/a1/history")).json()["entries"]
            assert [e["who"] for e in entries if e["what"] == "imported"] == ["mallory"]


async def test_a_program_imports_no_grant_either() -> None:
    """I17, V24: not under the same id, and not under another one."""
    done = Done()
    async with Runtime([desk(done, refund("17"), "ok")]) as runtime:
        ref = await asked(runtime)
        (pending,) = await soon(runtime.pending())
        await soon(ref.resume({pending.request.id: approve(always=True, by="carol")}))
        data = await soon(runtime.export("a1"))
        assert (await soon(ref.state())).grants != {}
        await soon(runtime.delete("a1"))
        for id in ("a1", "a2"):
            imported = await soon(runtime.import_(data, id))
            assert (await soon(imported.state())).grants == {}
            (decided,) = await soon(imported.decisions())
            assert decided.decision.grant is not None, "what was granted stays in the audit"
        with pytest.raises(UsageError, match="import_"):
            runtime.import_(data, "a3", by=17)  # type: ignore[arg-type]


# ------------------------------------------------------------- what no page expects


ODD_SEGMENTS = ("%00", "%00.css", "a" * 9000, "a" * 9000 + ".css", "%2e%2e", "%2e%2e%2fapp.py",
                "~", "%F0%9F%92%A9", "a%0d%0ab", "con", "\u202e")  # fmt: skip


@pytest.mark.slow
async def test_no_name_in_a_path_or_a_query_is_a_failure_of_the_server() -> None:
    """`/static/%00.css` was answered by 500: the name became a path of the disk."""
    async with Runtime([desk(Done(), refund())], feed=True) as runtime:
        await asked(runtime)
        async with site_of(runtime) as client:
            queries = ("prefix", "after", "status", "agent", "tool", "kind", "path", "before",
                       "version", "order", "page", "limit", "wait")  # fmt: skip
            for odd in ODD_SEGMENTS:
                paths = [f"/{odd}", f"/static/{odd}", f"/static/vendor/{odd}", f"/api/{odd}",
                         f"/agents/{odd}", f"/api/agents/{odd}", f"/agents/a1/{odd}",
                         f"/agents/a1/requests/{odd}",
                         f"/api/agents/a1/requests/{odd}"]  # fmt: skip
                for path in ("/api/agents", "/api/pending", "/api/doubts", "/api/agents/a1/file",
                             "/api/agents/a1/history", "/agents/a1/timeline"):  # fmt: skip
                    paths += [f"{path}?{name}={odd}" for name in queries]
                for path in paths:
                    assert (await client.get(path)).status_code < 500, path[:80]


@pytest.mark.parametrize(
    "host",
    ["localhost:abc", "localhost:99999", "127.0.0.1:80:80", "localhost:", "localhost:-1",
     "[::1]x", "[::1", "::1", "[v1.x]", "user@localhost", "localhost/a", "local%68ost", "a,b"],
)  # fmt: skip
async def test_a_malformed_host_is_not_answered(host: str) -> None:
    async with Runtime() as runtime, site_of(runtime) as client:
        for path in ("/api", "/static/style.css"):
            assert (await client.get(path, headers={"host": host})).status_code == 421
        two = [("host", "localhost"), ("host", "evil.example"), ("sec-fetch-site", "same-origin")]
        assert (await client.request("GET", "/api", headers=two)).status_code == 421


@pytest.mark.parametrize(
    "change",
    [
        lambda data: json.loads(re.sub(r"(:\d\d\.\d+)(Z|\+00:00)", r"\1", json.dumps(data))),
        lambda data: {**data, "agent": "a\0b"},
        lambda data: {**data, "agent": ""},
        lambda data: {**data, "agent": 7},
        lambda data: {**data, "incarnation": -1},
        lambda data: {**data, "incarnation": 10**30},
        lambda data: {**data, "incarnation": True},
        lambda data: {**data, "message_runs": {"m1": 1}},
        lambda data: {**data, "records": [{**data["records"][0], "at": "soon"}]},
        lambda data: {**data, "records": [[]]},
        lambda data: {**data, "blobs": {"x": "!"}},
    ],
)
async def test_an_export_that_is_damaged_is_a_mistake_of_who_sends_it(
    change: Callable[[Any], Any],
) -> None:
    """A time without a zone was a store that does not answer, or failed whenever it was read."""
    async with Runtime([desk(Done(), refund())]) as runtime:
        await asked(runtime)
        data = change(json.loads(json.dumps(await soon(runtime.export("a1")))))
        async with site_of(runtime) as client:
            answer = await client.post("/api/import", json={"data": data, "id": "a2"})
            assert (answer.status_code, answer.json()["error"]) == (400, "UsageError")
            assert (await client.get("/api/agents/a2")).status_code == 404


@pytest.mark.slow
async def test_a_body_of_very_many_values_is_refused_before_it_is_read() -> None:
    """220,000 decisions held the loop for two seconds."""
    async with Runtime([desk(Done(), refund())]) as runtime:
        await asked(runtime)
        async with site_of(runtime) as client:
            kind = {"content-type": "application/json"}
            for count, path in ((220_000, "decisions"), (20_000, "decisions")):
                many: dict[str, Any] = {f"k{number}": {} for number in range(count)}
                body = json.dumps({"decisions": many, "expect": {}})
                answer = await client.post(f"/api/agents/a1/{path}", content=body, headers=kind)
                assert (answer.status_code, answer.json()["error"]) == (413, "TooLarge")
            # What stands in a text is no value.
            code = {"text": '{[,\\"' * 60_000}
            sent = await client.post("/api/agents/a1/messages", json=code)
            assert sent.status_code == 200


async def test_a_login_of_ones_own_has_a_link_that_ends_it_and_is_not_told_of_tokens() -> None:
    async with Runtime() as runtime:
        async with site_of(runtime, logout_url="/bye?next=%2F") as client:
            page = (await client.get("/agents")).text
            assert '<a href="/bye?next=%2F">Log out</a>' in page
        async with site_of(runtime) as client:
            assert "Log out" not in (await client.get("/agents")).text
        async with site_of(runtime, auth=lambda _: None) as client:
            refused = await client.get("/api/agents")
            assert (refused.status_code, refused.json()["detail"]) == (401, "Log in first.")
        for url in ("javascript:alert(1)", "", 1):
            with pytest.raises(UsageError, match="logout_url"):
                ui(runtime, auth=lambda _: None, logout_url=url)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (2 * 86_400 - 5, "in 2 days"),
        (36 * 3_600, "in 36 hours"),
        (86_400, "in 1 day"),
        (3_600 - 5, "in 1 hour"),
        (5_400, "in 90 minutes"),
        (61, "in 1 minute"),
        (59, "in less than a minute"),
        (0, "over"),
    ],
)
async def test_a_page_says_how_long_it_is_until_a_request_expires(
    seconds: float, says: str
) -> None:
    from understudy.web.render import until

    now = datetime(2027, 1, 1, tzinfo=UTC)
    given: Any = {"now": now}
    assert f">{says}</time>" in until(given, now + timedelta(seconds=seconds))
