"""Slack shows a request, with buttons where all of it is shown; a click decides as a login does.

Rules: I82.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import importlib
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests.support.loops import soon
from tests.support.notified import EVERY, asked, desk, told
from tests.support.notify_servers import TOKEN, FakeSlack
from tests.support.plans import DAY
from understudy import Agent, Runtime, SimulatedClock, approve, call, reject
from understudy.approvals import Caller
from understudy.errors import UsageError
from understudy.notify import Notify, Rule, Slack, slack_actions
from understudy.notify.slack import LONGEST
from understudy.trust import approval
from understudy.web import User

URL = "https://ops.example.com/agents"
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
USERS = {
    "UANN": User("ann", {"read", "decide"}),
    "UBOB": User("bob", {"read"}),
    "UEVE": User("eve", {"read", "decide"}),
}
APPROVE, REJECT = "understudy.approve", "understudy.reject"


class Desk:
    """A runtime that tells Slack, and the application that takes the clicks."""

    def __init__(self, server: FakeSlack, *agents: Agent, show: Any = True, **options: Any) -> None:
        self.server = server
        self.channel = Slack("slack", "C1", token=TOKEN, api=f"{server.url}/api")
        notify = Notify(Rule(self.channel, show=show), base_url=URL, every=EVERY)
        self.runtime = Runtime(agents or [desk()], notify=notify, **options)
        self.app = slack_actions(
            lambda: self.runtime, self.channel, signing_secret=SECRET, users=USERS
        )

    async def message(self) -> dict[str, Any]:
        """The next message, as it was posted."""
        posted = await self.server.next()
        assert posted.path == "/api/chat.postMessage"
        found: dict[str, Any] = posted.json
        return found

    async def changed(self) -> str:
        """What the next changed message says."""
        posted = await self.server.next()
        assert posted.path == "/api/chat.update"
        assert APPROVE not in posted.body.decode()
        text: str = posted.json["text"]
        return text

    async def click(self, message: Any, action: str = APPROVE, **options: Any) -> int:
        body = clicked(message, action, options.pop("user", "UANN"))
        return await self.post(body, **options)

    async def post(self, body: bytes, **options: Any) -> int:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://localhost"
        ) as client:
            headers = options.pop("headers", None) or signed(body, **options)
            return (await client.post("/slack", content=body, headers=headers)).status_code


def buttons(message: Mapping[str, Any]) -> dict[str, Any]:
    """The buttons of a message, by what they do."""
    found = [
        each
        for block in message["blocks"]
        if block["type"] == "actions"
        for each in block["elements"]
    ]
    return {each["action_id"]: each for each in found}


def clicked(message: Mapping[str, Any], action: str, user: str) -> bytes:
    """The body that Slack sends for a click."""
    button = buttons(message)[action]
    payload = {
        "type": "block_actions",
        "user": {"id": user, "username": "x", "team_id": "T1"},
        "container": {"type": "message", "message_ts": "1", "channel_id": "C1"},
        "message": dict(message),
        "actions": [{**button, "type": "button", "block_id": "b"}],
    }
    return urlencode({"payload": json.dumps(payload)}).encode()


def signed(body: bytes, *, at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    sent = str(int(time.time() if at is None else at))
    text = f"v0:{sent}:".encode() + body
    signature = hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()
    return {
        "content-type": "application/x-www-form-urlencoded",
        "x-slack-request-timestamp": sent,
        "x-slack-signature": f"v0={signature}",
    }


async def test_a_message_shows_all_and_a_click_approves(slack: FakeSlack) -> None:
    """I82."""
    given = Desk(slack)
    async with given.runtime as runtime:
        await asked(runtime)
        message = await given.message()
        assert message["metadata"]["event_payload"]["notice_id"].startswith("notice_")
        assert list(buttons(message)) == [APPROVE, REJECT, "understudy.open"]
        shown = json.dumps(message["blocks"])
        assert all(each in shown for each in ("DE02", "17", "20", "agent t (desk)"))
        assert await given.click(message) == 200
        assert await given.changed() == (
            "Approve refund: order=17, amount=20, iban=DE02 - ann approved it."
        )
        await soon(runtime.get("t").outcome())
        (record,) = await soon(runtime.get("t").decisions())
        assert (record.decision.type, record.decision.by) == ("approve", "ann")
        assert record.login is not None
        assert record.login.assurance == "login"


async def test_a_click_rejects(slack: FakeSlack) -> None:
    given = Desk(slack)
    async with given.runtime as runtime:
        await asked(runtime)
        assert await given.click(await given.message(), REJECT) == 200
        assert (await given.changed()).endswith(" - ann rejected it.")


async def test_a_message_says_what_was_decided_elsewhere_and_a_late_click_decides_nothing(
    slack: FakeSlack,
) -> None:
    given = Desk(slack)
    async with given.runtime as runtime:
        (request,) = (await asked(runtime)).requests
        message = await given.message()
        await told(runtime, lambda rows: bool(rows) and rows[0].state == "done")
        await soon(runtime.get("t").resume({request.id: reject(by="bob")}))
        assert (await given.changed()).endswith(" - bob rejected it.")
        assert await given.click(message) == 200
        await slack.next()
        ((user, said),) = slack.told
        assert (user, said) == (
            "UANN",
            "Another person has decided it differently.",
        )
        assert len(await soon(runtime.get("t").decisions())) == 1


async def test_the_same_click_twice_is_one_decision(slack: FakeSlack) -> None:
    """I82."""
    given = Desk(slack)
    async with given.runtime as runtime:
        await asked(runtime)
        message = await given.message()
        body = clicked(message, APPROVE, "UANN")
        headers = signed(body)
        assert await given.post(body, headers=headers) == 200
        assert await given.post(body, headers=headers) == 200
        await soon(runtime.get("t").outcome())
        assert len(await soon(runtime.get("t").decisions())) == 1


async def test_what_is_not_signed_by_slack_or_old_decides_nothing(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I82."""
    now = int(time.time())
    # The time stands still: a click of the future would be one of now if it came a second later.
    clicks = importlib.import_module("understudy.notify.slack_actions")
    monkeypatch.setattr(clicks, "wall_seconds", lambda: float(now))
    given = Desk(slack)
    async with given.runtime as runtime:
        await asked(runtime)
        message = await given.message()
        body = clicked(message, APPROVE, "UANN")
        for headers in (
            signed(body, secret="another secret of an app"),
            signed(body, at=now - 301),
            signed(body, at=now + 301),
            signed(body + b"x"),
            {**signed(body), "x-slack-signature": ""},
            {**signed(body), "x-slack-request-timestamp": "now"},
            {"content-type": "application/x-www-form-urlencoded"},
        ):
            assert await given.post(body, headers=headers) == 401
        for wrong in (b"payload=3&x", b"x=1", b"payload=%7B", b"payload=%7B%22type%22%3A1%7D&x=1"):
            assert await given.post(wrong) in (200, 400)
        assert await soon(runtime.get("t").decisions()) == []
        assert len(await soon(runtime.pending())) == 1


async def test_who_is_not_known_or_has_no_right_decides_nothing(
    slack: FakeSlack, caplog: pytest.LogCaptureFixture
) -> None:
    """I82."""
    given = Desk(slack)
    async with given.runtime as runtime:
        await asked(runtime)
        message = await given.message()
        for user, said in (("UBOB", "it needs the right 'decide'"), ("UNOBODY", "not known")):
            assert await given.click(message, user=user) == 200
            await slack.next()
            assert slack.told[-1][0] == user
            assert said in slack.told[-1][1]
        assert len(await soon(runtime.pending())) == 1
        assert await soon(runtime.get("t").decisions()) == []


async def test_a_person_of_slack_is_the_person_of_the_rules(slack: FakeSlack) -> None:
    """I82."""
    agent = desk(gate={"approval": approval({"finance": 1})})
    people = {"ann": {"finance"}, "eve": {"sales"}}
    given = Desk(slack, agent, people=people)
    async with given.runtime as runtime:
        await asked(runtime)
        message = await given.message()
        assert await given.click(message, user="UEVE") == 200
        await slack.next()
        assert "finance" in slack.told[-1][1]
        assert len(await soon(runtime.pending())) == 1
        assert await given.click(message) == 200
        assert (await given.changed()).endswith(" - ann approved it.")


async def test_a_click_of_slack_is_no_login_at_the_identity_provider(slack: FakeSlack) -> None:
    """I82."""
    agent = desk(gate={"approval": approval({"finance": 1}, assurance="idp")})
    signed_in = Caller(name="ann", assurance="idp", issuer="https://idp.example", subject="1")
    given = Desk(slack, agent, people=lambda caller: None)
    given.app = slack_actions(
        lambda: given.runtime,
        given.channel,
        signing_secret=[SECRET, "the next secret of the app"],
        users=lambda user, team: User("ann", {"decide"}, verified=signed_in),
    )
    async with given.runtime as runtime:
        await asked(runtime)
        assert await given.click(await given.message()) == 200
        await slack.next()
        assert len(slack.told) == 1
        assert len(await soon(runtime.pending())) == 1


@pytest.mark.parametrize(
    ("turn", "show"),
    [
        (call("refund", {"order": "x" * (LONGEST + 1), "amount": 1}), True),
        (call("refund", {"order": "17", "amount": 1}), ["order"]),
        (call("refund", {"order": "17", "amount": 1}), False),
        (
            call("refund", {"order": "17", "amount": 1}),
            lambda request: {**request.arguments, "iban": "hidden"},
        ),
    ],
)
async def test_what_a_message_does_not_show_in_full_is_decided_on_its_page(
    slack: FakeSlack, turn: Any, show: Any
) -> None:
    """I82."""
    given = Desk(slack, desk(turn, "done"), show=show)
    async with given.runtime as runtime:
        await asked(runtime)
        message = await given.message()
        assert list(buttons(message)) == ["understudy.open"]
        assert buttons(message)["understudy.open"]["url"].startswith(URL)
        assert "on its page" in json.dumps(message["blocks"])


async def test_several_votes_are_cast_on_the_page(slack: FakeSlack) -> None:
    agent = desk(gate={"approval": approval({"finance": 2})})
    given = Desk(slack, agent, people={"ann": {"finance"}, "bob": {"finance"}})
    async with given.runtime as runtime:
        await asked(runtime)
        assert list(buttons(await given.message())) == ["understudy.open"]


async def test_a_request_that_has_changed_is_not_decided_by_an_old_message(
    slack: FakeSlack,
) -> None:
    """I82."""
    given = Desk(slack)
    async with given.runtime as runtime:
        await asked(runtime)
        message = await given.message()
        button = buttons(message)[APPROVE]
        value = {**json.loads(button["value"]), "digest": "0" * 64}
        button["value"] = json.dumps(value)
        assert await given.click(message) == 200
        await slack.next()
        assert "not what this message shows" in slack.told[-1][1]
        assert len(await soon(runtime.pending())) == 1


async def test_an_expired_request_is_not_decided_by_a_click(
    slack: FakeSlack, clock: SimulatedClock
) -> None:
    given = Desk(slack, desk(expires_after=DAY), clock=clock)
    async with given.runtime as runtime:
        await asked(runtime)
        message = await given.message()
        await told(runtime, lambda rows: bool(rows) and rows[0].state == "done")
        await soon(clock.advance(DAY))
        await soon(runtime.get("t").outcome())
        assert await given.click(message) == 200
        (record,) = await soon(runtime.get("t").decisions())
        assert record.decision.origin == "expiry"


async def test_no_text_of_an_agent_is_a_mention_a_link_or_unseen(slack: FakeSlack) -> None:
    hostile = "<!channel> <https://evil.example|Approve> *bold* \u202ee\U000e0041vil"
    given = Desk(slack, desk(call("refund", {"order": hostile, "amount": 1}), "done"))
    async with given.runtime as runtime:
        await asked(runtime)
        message = await given.message()
        assert "&lt;!channel&gt;" in message["text"]
        assert "\u202e" not in json.dumps(message, ensure_ascii=False)
        assert "\U000e0041" not in json.dumps(message, ensure_ascii=False)
        kinds = {
            text["type"]
            for block in message["blocks"]
            for text in (block.get("text"), *block.get("elements", []))
            if text is not None
        }
        assert "mrkdwn" not in kinds


async def test_an_error_of_slack_is_shown_and_final_where_it_stays(slack: FakeSlack) -> None:
    channel = Slack("slack", "C1", token="xoxb-wrong", api=f"{slack.url}/api")
    notify = Notify(Rule(channel), base_url=URL, every=EVERY)
    async with Runtime([desk()], notify=notify) as runtime:
        await asked(runtime)
        (row,) = await told(runtime, lambda rows: bool(rows) and rows[0].state == "failed")
        assert (row.detail, row.attempts) == ("Slack: invalid_auth", 1)


async def test_a_message_that_somebody_deleted_ends_no_worse(slack: FakeSlack) -> None:
    given = Desk(slack)
    async with given.runtime as runtime:
        (request,) = (await asked(runtime)).requests
        await given.message()
        await told(runtime, lambda rows: bool(rows) and rows[0].state == "done")
        slack.messages.clear()
        await soon(runtime.get("t").resume({request.id: approve(by="ann")}))
        await told(runtime, lambda rows: [each.state for each in rows] == ["done"] * 2)


async def test_it_answers_posts_alone_within_bounds(slack: FakeSlack) -> None:
    given = Desk(slack)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(given.app), base_url="http://localhost"
    ) as client:
        assert (await client.get("/slack?payload={}")).status_code == 405
        large = b"x" * (1024 * 1024 + 1)
        assert (await client.post("/slack", content=large)).status_code == 413


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"signing_secret": "short"}, "signing_secret"),
        ({"signing_secret": []}, "signing_secret"),
        ({"users": "UANN"}, "users"),
        ({"slack": "C1"}, "takes the Slack"),
        ({"runtime": 3}, "takes a Runtime"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], said: str) -> None:
    channel = Slack("slack", "C1", token=TOKEN)
    given: dict[str, Any] = {"signing_secret": SECRET, "users": USERS, **options}
    with pytest.raises(UsageError, match=said):
        slack_actions(given.pop("runtime", lambda: None), given.pop("slack", channel), **given)


async def test_a_user_that_a_function_finds_later_is_waited_for(slack: FakeSlack) -> None:
    async def who(user_id: str, team_id: str) -> User | None:
        await asyncio.sleep(0)
        return USERS.get(user_id) if team_id == "T1" else None

    given = Desk(slack)
    given.app = slack_actions(
        lambda: given.runtime, given.channel, signing_secret=SECRET, users=who
    )
    async with given.runtime as runtime:
        await asked(runtime)
        assert await given.click(await given.message()) == 200
        assert (await given.changed()).endswith(" - ann approved it.")
