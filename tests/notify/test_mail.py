"""A mail has a link and no decision, goes by TLS, and has one id.

Rules: I81.
"""

from __future__ import annotations

from typing import Any

from tests.support.loops import soon
from tests.support.notified import EVERY, asked, desk, told
from tests.support.notify_servers import SmtpServer
from tests.support.plans import HOUR
from understudy import Runtime, SimulatedClock, call
from understudy.notify import Email, Notice, Notify, Rule

URL = "https://ops.example.com/agents"


def email(mail: SmtpServer, to: Any = "ann@example.com", **options: Any) -> Email:
    given = {
        "sender": "desk@shop.example",
        "host": "127.0.0.1",
        "port": mail.port,
        "context": mail.trusted(),
        **options,
    }
    return Email("mail", to, **given)


def notify(channel: Email, **options: Any) -> Notify:
    return Notify(Rule(channel, **options), base_url=URL, every=EVERY)


async def test_a_mail_says_what_is_asked_and_where(mail: SmtpServer) -> None:
    channel = email(mail, ["ann@example.com", "bob@example.com"], user="desk", password="secret")
    async with Runtime([desk()], notify=notify(channel, show=["order"])) as runtime:
        (request,) = (await asked(runtime)).requests
        got = await mail.next()
        (row,) = await told(runtime, lambda rows: bool(rows) and rows[0].state == "done")
        assert got["Subject"] == "Approve refund: order=17"
        assert (got["From"], got["To"]) == (
            "desk@shop.example",
            "ann@example.com, bob@example.com",
        )
        assert got["Message-ID"] == f"<{got['X-Understudy-Notice']}@shop.example>"
        text = got.get_content()
        assert f"{URL}/agents/t/requests/{request.id}" in text
        assert '"order": "17"' in text
        assert "amount" not in text
        assert (mail.logins, mail.is_encrypted) == ([("desk", "secret")], [True])
        assert row.attempts == 1


async def test_a_server_that_is_not_trusted_gets_no_mail(
    mail: SmtpServer, clock: SimulatedClock
) -> None:
    """I81."""
    channel = email(mail, context=None, user="desk", password="secret")
    async with Runtime([desk()], clock=clock, notify=notify(channel)) as runtime:
        await asked(runtime)
        (row,) = await told(runtime, lambda rows: bool(rows) and bool(rows[0].detail))
        assert "certificate" in row.detail
        assert (row.state, mail.logins) == ("new", [])


async def test_who_is_mailed_may_depend_on_the_audience(
    mail: SmtpServer, clock: SimulatedClock
) -> None:
    def to(notice: Notice) -> str:
        return f"{notice.audience or 'ann'}@example.com"

    agent = desk(escalate_after={HOUR: "managers"})
    async with Runtime([agent], clock=clock, notify=notify(email(mail, to))) as runtime:
        await asked(runtime)
        assert (await mail.next())["To"] == "ann@example.com"
        await soon(clock.advance(HOUR))
        got = await mail.next()
        assert got["To"] == "managers@example.com"
        assert got["Subject"] == "Nobody has answered: Approve refund"


async def test_a_recipient_that_is_refused_is_shown_and_others_are_not_mailed_twice(
    mail: SmtpServer,
) -> None:
    mail.refused["bob@example.com"] = "550 no such mailbox"
    channel = email(mail, ["ann@example.com", "bob@example.com"])
    async with Runtime([desk()], notify=notify(channel)) as runtime:
        await asked(runtime)
        await mail.next()
        (row,) = await told(runtime, lambda rows: bool(rows) and rows[0].state == "failed")
        assert row.detail == "1 refused, first bob@example.com: 550"


async def test_a_server_that_is_busy_is_tried_again_under_the_same_id(
    mail: SmtpServer, clock: SimulatedClock
) -> None:
    mail.refused["ann@example.com"] = "451 come back later"
    async with Runtime([desk()], clock=clock, notify=notify(email(mail))) as runtime:
        await asked(runtime)
        (row,) = await told(runtime, lambda rows: bool(rows) and bool(rows[0].detail))
        assert (row.state, row.detail) == ("new", "1 refused, first ann@example.com: 451")
        mail.refused.clear()
        await soon(clock.advance(5))
        await mail.next()


async def test_no_text_of_an_agent_adds_a_header_or_hides_what_it_says(mail: SmtpServer) -> None:
    """I81."""
    order = "17\r\nBcc: eve@evil.example\r\n\r\n\u202ee\U000e0041vil"
    turn = call("refund", {"order": order, "amount": 1})
    async with Runtime([desk(turn, "done")], notify=notify(email(mail), show=True)) as runtime:
        await asked(runtime)
        got = await mail.next()
        assert got["Bcc"] is None
        assert "[U+202E]e[U+E0041]vil" in got["Subject"]
        assert "\u202e" not in got.get_content()
        assert "\U000e0041" not in got.get_content()
