"""The page of notices: failed ones are seen, and tried again by a form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.support.loops import soon
from tests.support.notified import EVERY, Kept, asked, desk, told
from tests.support.web_site import HOSTILE, logged_in, site_of
from understudy import Runtime, call
from understudy.notify import DeliveryFailed, Notice, Notify, Rule


class Hostile(Kept):
    async def deliver(self, notice: Notice) -> str:
        if len(self.tried) < self.fails:
            self.tried.append(notice.id)
            raise DeliveryFailed(HOSTILE, is_final=True)
        return await super().deliver(notice)


def notify(kept: Kept) -> Notify:
    return Notify(Rule(kept), base_url="https://ops.example.com", every=EVERY)


@pytest.fixture
async def failing() -> AsyncIterator[Runtime]:
    """A runtime in which one notice has failed, and one is delivered."""
    async with Runtime([desk()], notify=notify(Hostile(fails=1))) as runtime:
        await asked(runtime, "a")
        await told(runtime, lambda rows: [each.state for each in rows] == ["failed"])
        await asked(runtime, "b")
        await told(runtime, lambda rows: len(rows) == 2 and rows[0].state == "done")
        yield runtime


async def test_what_failed_is_seen_and_tried_again(failing: Runtime) -> None:
    async with site_of(failing) as client:
        assert 'href="/notifications"' in (await client.get("/")).text
        page = (await client.get("/notifications?state=failed")).text
        assert page.count("Try again</button>") == 1
        assert "<script>alert" not in page
        assert "\u202e" not in page
        [row] = await soon(failing.notices(state="failed"))
        sent = await client.post("/notifications/retry", data={"no": str(row.no)})
        assert sent.headers["location"].endswith("/notifications?said=retry_notice")
        await told(failing, lambda rows: {each.state for each in rows} == {"done"})
        page = (await client.get("/notifications")).text
        assert "Try again</button>" not in page
        assert page.count("delivered</span>") == 2
        again = await client.post("/notifications/retry", data={"no": str(row.no)})
        assert again.headers["location"].endswith("said=retry_notice-over")
        assert "It has not failed" in (await client.get(again.headers["location"])).text


@pytest.mark.parametrize("no", ["", "x", "-1", "1" * 16])
async def test_what_is_no_number_is_refused(failing: Runtime, no: str) -> None:
    async with site_of(failing) as client:
        assert (await client.post("/notifications/retry", data={"no": no})).status_code == 400


async def test_who_may_not_act_sees_it_and_tries_nothing_again(failing: Runtime) -> None:
    async with site_of(failing, auth=logged_in("bob", frozenset({"read"}))) as client:
        assert "Try again" not in (await client.get("/notifications")).text
        [row] = await soon(failing.notices(state="failed"))
        form = await client.post("/notifications/retry", data={"no": str(row.no)})
        sent = await client.post("/api/notifications/retry", json={"no": row.no})
        assert (form.status_code, sent.status_code) == (403, 403)
        assert len(await soon(failing.notices(state="failed"))) == 1


async def test_the_list_has_pages_and_filters() -> None:
    kept = Kept()
    turns = [call("refund", {"order": str(each), "amount": 1}) for each in range(5)]
    async with Runtime([desk(turns, "done")], notify=notify(kept)) as runtime:
        await asked(runtime)
        await told(runtime, lambda rows: [each.state for each in rows] == ["done"] * 5)
        async with site_of(runtime) as client:
            first = (await client.get("/api/notifications?limit=3&state=done")).json()
            rest = (
                await client.get(f"/api/notifications?limit=3&state=done&after={first['next']}")
            ).json()
            numbers = [each["no"] for each in (*first["notifications"], *rest["notifications"])]
            assert numbers == sorted(numbers, reverse=True)
            assert (len(set(numbers)), rest["next"]) == (5, None)
            assert (await client.get("/api/notifications?state=lost")).status_code == 400
            page = (await client.get("/notifications?limit=3")).text
            assert "Older</a>" in page


async def test_who_tells_nobody_has_no_link_and_an_empty_page(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([desk()], store=store) as runtime, site_of(runtime) as client:
        assert "/notifications" not in (await client.get("/")).text
        page: httpx.Response = await client.get("/notifications")
        assert "Nobody was told of a request." in page.text
