"""A webhook is signed over its id, its time and its body, and every attempt has the same id.

Rules: I81.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest

from tests.support.loops import soon
from tests.support.notified import EVERY, asked, desk, listed, told
from tests.support.notify_servers import HttpServer
from understudy import Runtime, SimulatedClock
from understudy.errors import UsageError
from understudy.notify import Notify, Rule, Webhook, verify_webhook

URL = "https://ops.example.com/agents"
OLD, NEW = "whsec_" + base64.b64encode(b"the old key of the hook").decode(), "a text as a key, new"


def notify(server: HttpServer, **options: Any) -> Notify:
    hook = Webhook("hook", f"{server.url}/in?x=1", secrets=[NEW, OLD], headers={"X-Team": "ops"})
    return Notify(Rule(hook, **options), base_url=URL, every=EVERY)


async def test_a_request_is_posted_and_signed_by_each_key(server: HttpServer) -> None:
    """I81."""
    async with Runtime([desk()], notify=notify(server, show=["amount"])) as runtime:
        (request,) = (await asked(runtime)).requests
        posted = await server.next()
        assert (posted.path, posted.headers["x-team"]) == ("/in?x=1", "ops")
        message = posted.json
        assert message["type"] == "request.asked"
        data = message["data"]
        assert (data["request_id"], data["tool"], data["kind"]) == (
            *(request.id, "refund"),
            "approval",
        )
        assert data["arguments"] == {"amount": 20}, "the rule shows no more"
        assert data["url"] == f"{URL}/agents/t/requests/{request.id}"
        assert data["id"] == posted.headers["webhook-id"]
        assert b"DE02" not in posted.body
        for secret in (OLD, NEW, [NEW, "another key that is long"]):
            assert verify_webhook(posted.headers, posted.body, secrets=secret) == message
        at = posted.headers["webhook-timestamp"]
        signed = f"{data['id']}.{at}.".encode() + posted.body
        known = hmac.new(NEW.encode(), signed, hashlib.sha256).digest()
        first, _ = posted.headers["webhook-signature"].split(" ")
        assert first == f"v1,{base64.b64encode(known).decode()}"


async def test_a_forged_altered_or_old_message_is_refused(server: HttpServer) -> None:
    """I81."""
    async with Runtime([desk()], notify=notify(server)) as runtime:
        await asked(runtime)
        posted = await server.next()
        headers, body, at = posted.headers, posted.body, float(posted.headers["webhook-timestamp"])
        assert verify_webhook(headers, body, secrets=OLD, now=at + 299)
        for changed, what, key, now in (
            ({}, body + b" ", OLD, at),
            ({}, body, "whsec_" + base64.b64encode(b"another key").decode(), at),
            ({"webhook-id": "notice_1"}, body, OLD, at),
            ({"webhook-timestamp": str(int(at) + 1)}, body, OLD, at),
            ({"webhook-timestamp": "1e3"}, body, OLD, at),
            ({"webhook-signature": ""}, body, OLD, at),
            ({}, body, OLD, at + 301),
            ({}, body, OLD, at - 301),
        ):
            with pytest.raises(UsageError, match="refuse it"):
                verify_webhook({**headers, **changed}, what, secrets=key, now=now)


async def test_an_answer_that_is_no_success_is_tried_again(
    server: HttpServer, clock: SimulatedClock
) -> None:
    answers = iter(
        [(503, {}, b""), (302, {"Location": server.url}, b""), (429, {"Retry-After": "60"}, b"")]
    )
    server.answer = lambda posted: next(answers, (204, {}, b""))
    async with Runtime([desk()], clock=clock, notify=notify(server)) as runtime:
        await asked(runtime)
        ids = [(await server.next()).headers["webhook-id"]]
        for status, pause in ((503, 5), (302, 10), (429, 60)):
            said = f"the server answered {status}"
            await told(runtime, lambda rows, said=said: rows[0].detail == said)  # type: ignore[misc]
            await soon(clock.advance(pause))
            ids.append((await server.next()).headers["webhook-id"])
        await told(runtime, lambda rows: rows[0].state == "done")
        assert len(set(ids)) == 1
        assert server.is_quiet, "a redirect is not followed"


async def test_what_is_gone_is_not_tried_again(server: HttpServer) -> None:
    server.answer = lambda posted: (410, {}, b"")
    async with Runtime([desk()], notify=notify(server)) as runtime:
        await asked(runtime)
        (row,) = await told(runtime, lambda rows: bool(rows) and rows[0].state == "failed")
        assert (row.detail, row.attempts) == ("the server answered 410", 1)


async def test_a_server_that_is_not_there_is_tried_again(clock: SimulatedClock) -> None:
    hook = Webhook("hook", "http://127.0.0.1:1/", secrets=OLD)
    given = Notify(Rule(hook), base_url=URL, every=EVERY)
    async with Runtime([desk()], clock=clock, notify=given) as runtime:
        await asked(runtime)
        await told(runtime, lambda rows: bool(rows) and rows[0].detail.startswith("no answer: "))
        (row,) = await listed(runtime)
        assert row.state == "new"
