"""What the security log has, and what it must not have (A12)."""

from __future__ import annotations

import json
import logging
from typing import Any

import httpx
import pytest

from tests.support.loops import soon
from tests.support.web_site import ALL, HOST, Done, asked, client_of, desk, refund, site_of
from understudy import Runtime
from understudy.login import User
from understudy.web import token_auth, ui

TOKEN = "the-right-token-of-these-pages-1"
WRONG = "a-guess-of-the-token"
SECRETS = ("planted-header", "planted-cookie", "planted-query", "planted-body", "planted-reason")
HEADER, COOKIE, QUERY, BODY, REASON = SECRETS


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "understudy.security")
    return caplog


def entries(log: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [each.__dict__ for each in log.records if each.name == "understudy.security"]


def told(log: pytest.LogCaptureFixture) -> list[tuple[str, str, str | None]]:
    return [(each["event"], each["what"], each["who"]) for each in entries(log)]


@pytest.mark.parametrize("path", ["/api/agents/a1/export", "/agents/a1/export"])
async def test_a_refused_export_is_no_read(path: str, log: pytest.LogCaptureFixture) -> None:
    """It was logged as a read as well, so that a search for leaks found one."""
    auth = lambda _: User("bob", frozenset({"read"}))  # noqa: E731
    async with Runtime([desk(Done(), refund())]) as runtime:
        await asked(runtime)
        async with site_of(runtime, auth=auth) as client:
            assert (await client.get(path)).status_code == 403
    assert told(log) == [("refused", "admin", "bob")]


async def test_an_export_of_which_some_is_hidden_is_told_as_refused(
    log: pytest.LogCaptureFixture,
) -> None:
    async with Runtime([desk(Done(), refund())]) as runtime:
        await asked(runtime)
        hide = lambda path, value: "hidden" if "order_id" in path else value  # noqa: E731
        async with site_of(runtime, redact=hide) as client:
            assert (await client.get("/api/agents/a1/export")).status_code == 403
    assert told(log)[-1] == ("refused", "export", "ann")


@pytest.mark.parametrize(
    ("headers", "what"),
    [
        ({"host": "evil.example"}, "UnknownHost"),
        ({"origin": "https://evil.example"}, "CrossSite"),
        ({"sec-fetch-site": "cross-site"}, "CrossSite"),
        ({"cookie": "login=1"}, "CrossSite"),
    ],
)
async def test_what_is_refused_before_anybody_is_asked_for_is_in_the_log(
    headers: dict[str, str], what: str, log: pytest.LogCaptureFixture
) -> None:
    async with Runtime([desk(Done(), refund())]) as runtime:
        await asked(runtime)
        async with client_of(ui(runtime, auth=lambda _: User("ann", ALL)), headers={}) as client:
            found = await client.post("/api/agents/a1/pause", json={}, headers=headers)
    assert found.json()["error"] == what
    assert told(log) == [("refused", what, None)]
    assert entries(log)[0]["address"] == "127.0.0.1"


async def test_a_program_with_a_cookie_is_told_what_to_send() -> None:
    """The refusal said that it is a page of another site, which it is not."""
    async with Runtime([desk(Done(), refund())]) as runtime:
        await asked(runtime)
        async with client_of(ui(runtime, auth=lambda _: User("ann", ALL)), headers={}) as client:
            pause = "/api/agents/a1/pause"
            cookie = {"cookie": "login=1"}
            refused = await client.post(pause, json={}, headers=cookie)
            assert refused.status_code == 403
            assert f"sends `Origin: {HOST}` as well" in refused.json()["detail"]
            assert "another site" not in refused.json()["detail"]
            for told_so in ({**cookie, "origin": HOST}, {"authorization": "Bearer x"}):
                assert (await client.post(pause, json={}, headers=told_so)).status_code == 200


async def _all_that_is_logged(runtime: Runtime, client: httpx.AsyncClient, session: str) -> None:
    """Each kind of entry, by requests that are full of secrets."""
    extra = {"x-api-key": HEADER, "cookie": f"{session}; mine={COOKIE}"}

    async def call(method: str, path: str, **given: Any) -> httpx.Response:
        made = {"params": {"q": QUERY}, **given}
        return await client.request(method, path, headers=extra, **made)

    at = "/api/agents/a1"
    assert (await call("GET", at)).status_code == 200
    exported = (await call("GET", f"{at}/export")).json()
    given = {"data": exported, "id": "copy"}
    assert (await call("POST", "/api/import", json=given)).status_code == 200
    assert (await call("POST", "/api/recover", json={})).status_code == 200
    assert (await call("POST", f"{at}/messages", json={"text": BODY})).status_code in (200, 409)
    assert (await call("POST", f"{at}/pause", json={"reason": REASON})).status_code == 200
    await soon(runtime.schedule("a1", "daily", cron="0 6 * * *", input=BODY))
    changed = {"schedule": "daily", "action": "pause"}
    assert (await call("POST", f"{at}/schedules", json=changed)).status_code == 200
    assert (await call("POST", f"{at}/revoke", json={"grant_id": "none"})).status_code < 500
    assert (await call("POST", "/api/agents/copy/compact", json={})).status_code == 200
    gone = await call("DELETE", "/api/agents/copy", json={"confirm": "copy"})
    assert gone.status_code == 200


async def test_no_token_cookie_password_or_text_is_in_the_security_log(
    log: pytest.LogCaptureFixture,
) -> None:
    auth = token_auth(TOKEN, name="ann")
    async with Runtime([desk(Done(), refund(reason=BODY))]) as runtime:
        await asked(runtime)
        app = ui(runtime, auth=auth)
        async with client_of(app) as client:
            link = auth.login_url("/")
            began = await client.get(link, headers={"accept": "text/html"})
            session = began.headers["set-cookie"].partition(";")[0]
            client.cookies.clear()
            await _all_that_is_logged(runtime, client, session)
            form = {"token": WRONG, "next": f"/?q={QUERY}"}
            await client.post("/login", data=form)
            await client.get(f"/?token={WRONG}")
            await client.get("/api", headers={"authorization": f"Bearer {WRONG}"})
            for at in range(12):  # until the address is limited
                await client.get("/api", headers={"authorization": f"Bearer {WRONG}{at}"})
            assert (await client.get(f"/api?token={WRONG}")).status_code == 429
        headers = {"host": "evil.example", "x-api-key": HEADER, "cookie": f"mine={COOKIE}"}
        async with client_of(app, headers=headers) as client:
            await client.post("/api/recover", params={"q": QUERY}, content=BODY)
        async with client_of(app, headers={"cookie": f"mine={COOKIE}"}) as client:
            await client.post("/api/recover", params={"q": QUERY}, content=BODY)
        watching = lambda _: User("bob", frozenset({"read"}))  # noqa: E731
        async with site_of(runtime, auth=watching) as client:
            await client.post("/api/agents/a1/pause", json={"reason": REASON})
    found = told(log)
    logged = {(event, what) for event, what, _ in found if event != "read"}
    assert logged == {
        *(("login", each) for each in ("ok", "refused", "limited")),
        *(("refused", each) for each in ("UnknownHost", "CrossSite", "act")),
        *(("act", each) for each in ("export", "import_", "recover", "compact", "delete")),
        *(("act", each) for each in ("revoke", "schedules.pause", "schedules.set")),
    }
    assert any(event == "read" for event, _, _ in found)
    fields = set(vars(logging.makeLogRecord({}))) - {"msg", "args"}
    for entry in entries(log):
        text = json.dumps({k: v for k, v in entry.items() if k not in fields}, default=str)
        text += log.handler.format(logging.makeLogRecord(entry))
        for secret in (TOKEN, WRONG, session.partition("=")[2], link, *SECRETS):
            assert secret not in text, entry
