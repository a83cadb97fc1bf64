"""Requests are notified by rules, once, by one of the hosts, whatever ends meanwhile.

Rules: I80.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.loops import soon
from tests.support.notified import EVERY, Kept, asked, desk, listed, told
from tests.support.plans import DAY, HOUR
from tests.support.postgres import Hosts
from tests.support.web_site import site_of
from understudy import Runtime, SimulatedClock, approve, call, reject
from understudy.errors import UsageError
from understudy.journal import Store
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend
from understudy.notify import Email, Notice, Notify, Rule, Webhook
from understudy.notify.deliveries import LEASE
from understudy.trust import approval

URL = "https://ops.example.com/agents"
ROOT = Path(__file__).parents[2]


def notify(*rules: Rule, **options: Any) -> Notify:
    return Notify(*rules, **{"base_url": URL, "every": EVERY, **options})


async def test_a_request_is_told_once(store: str | Store) -> None:
    """I81."""
    kept = Kept()
    async with Runtime([desk()], store=store, notify=notify(Rule(kept))) as runtime:
        outcome = await asked(runtime, "ticket 7")
        (request,) = outcome.requests
        notice = await kept.next()
        assert (notice.what, notice.number, notice.agent_id) == ("asked", 0, "ticket 7")
        assert notice.title == "Approve refund", "no argument leaves the house by itself"
        assert notice.url == f"{URL}/agents/ticket%207/requests/{request.id}"
        (row,) = await told(runtime, lambda rows: [each.state for each in rows] == ["done"])
        assert (row.channel, row.request_id, row.attempts) == ("kept", request.id, 1)
        assert kept.tried == [notice.id]


async def test_a_notice_has_the_title_of_the_application_alone(store: str | Store) -> None:
    kept = Kept()
    agent = desk(gate={"title": "Refund {amount} EUR for order {order}"})
    async with Runtime([agent], store=store, notify=notify(Rule(kept))) as runtime:
        await asked(runtime)
        assert (await kept.next()).title == "Refund 20 EUR for order 17"


async def test_a_message_is_changed_when_somebody_decides(store: str | Store) -> None:
    kept = Kept()
    async with Runtime([desk()], store=store, notify=notify(Rule(kept))) as runtime:
        (request,) = (await asked(runtime)).requests
        await kept.next()
        await soon(runtime.get("t").resume({request.id: reject("No.", by="ann")}))
        await told(runtime, lambda rows: [each.state for each in rows] == ["done", "done"])
        assert kept.ends == [("receipt of asked 0", "ann rejected it.")]
        assert len(kept.tried) == 1


async def test_reminders_escalations_and_the_expiry_are_told(
    store: str | Store, clock: SimulatedClock
) -> None:
    kept, managers = Kept(), Kept("managers")
    rules = Rule(kept), Rule(managers, on="escalation", audience="managers", show=["amount"])
    agent = desk(remind_after=HOUR, escalate_after={2 * HOUR: "managers"}, expires_after=DAY)
    async with Runtime([agent], store=store, clock=clock, notify=notify(*rules)) as runtime:
        await asked(runtime)
        assert (await kept.next()).what == "asked"
        await soon(clock.advance(HOUR))
        reminder = await kept.next()
        assert (reminder.what, reminder.number) == ("reminder", 1)
        await soon(clock.advance(HOUR))
        escalation = await kept.next()
        assert (escalation.what, escalation.audience) == ("escalation", "managers")
        assert dict((await managers.next()).shown) == {"amount": 20}
        await soon(clock.advance(DAY))
        expired = await kept.next()
        assert (expired.what, expired.request.arguments["order"]) == ("expired", "17")
        assert managers.tried == [managers.tried[0]], "it is told of escalations alone"
        said = "Its time was over before somebody answered."
        await told(runtime, lambda rows: {each.state for each in rows} == {"done"})
        assert {ended for _, ended in kept.ends} == {said}


async def test_an_expiry_that_stops_the_run_is_told_too(
    store: str | Store, clock: SimulatedClock
) -> None:
    kept = Kept()
    agent, rule = desk(expires_after=DAY, on_expiry="stop"), Rule(kept, on="expired")
    async with Runtime([agent], store=store, clock=clock, notify=notify(rule)) as runtime:
        await asked(runtime)
        await soon(clock.advance(DAY))
        assert (await kept.next()).what == "expired"


async def test_what_was_decided_in_time_is_not_told_as_expired(
    store: str | Store, clock: SimulatedClock
) -> None:
    kept = Kept()
    both = Rule(kept, on=["asked", "expired"])
    async with Runtime(
        [desk(expires_after=DAY)], store=store, clock=clock, notify=notify(both)
    ) as runtime:
        (request,) = (await asked(runtime)).requests
        await kept.next()
        await soon(runtime.get("t").resume({request.id: approve(by="ann")}))
        await soon(clock.advance(2 * DAY))
        await asked(runtime, "other")
        await kept.next()
        await told(runtime, lambda rows: {each.state for each in rows} == {"done"})
        assert len(kept.tried) == 2


async def test_functions_of_the_application_are_called(clock: SimulatedClock) -> None:
    got: asyncio.Queue[tuple[str, Notice]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def in_a_thread(notice: Notice) -> None:
        loop.call_soon_threadsafe(got.put_nowait, ("request", notice))

    async def reminded(notice: Notice) -> None:
        got.put_nowait(("reminder", notice))

    async def expired(notice: Notice) -> None:
        got.put_nowait(("expiry", notice))

    hooks = Notify(on_request=in_a_thread, on_reminder=reminded, on_expiry=expired, every=EVERY)
    agent = desk(remind_after=HOUR, expires_after=DAY)
    async with Runtime([agent], clock=clock, notify=hooks) as runtime:
        await asked(runtime)
        name, notice = await soon(got.get())
        assert (name, notice.shown["order"]) == ("request", "17")
        await soon(clock.advance(HOUR))
        assert (await soon(got.get()))[0] == "reminder"
        await soon(clock.advance(DAY))
        assert (await soon(got.get()))[0] == "expiry"


async def test_rules_choose_by_tool_kind_agent_and_time() -> None:
    refunds, mails, others, urgent = (Kept(each) for each in ("a", "b", "c", "d"))
    rules = (
        Rule(refunds, tool="refund", kind="approval"),
        Rule([mails], tool=["mail"], agent="desk"),
        Rule(others, agent="nobody"),
        Rule(urgent, within=timedelta(minutes=5)),
    )
    both = [call("refund", {"order": "1", "amount": 1}), call("mail", {"text": "x"})]
    async with Runtime([desk(both, "done")], notify=notify(*rules)) as runtime:
        await asked(runtime)
        assert (await refunds.next()).request.tool_name == "refund"
        assert (await mails.next()).request.tool_name == "mail"
        await told(runtime, lambda rows: {each.state for each in rows} == {"done"})
        assert [len(each.tried) for each in (refunds, mails, others, urgent)] == [1, 1, 0, 0]


async def test_what_fails_is_tried_again_under_the_same_id(
    store: str | Store, clock: SimulatedClock
) -> None:
    kept = Kept(fails=2)
    async with Runtime([desk()], store=store, clock=clock, notify=notify(Rule(kept))) as runtime:
        await asked(runtime)
        await told(runtime, lambda rows: [each.detail for each in rows] == ["the test says so"])
        (row,) = await listed(runtime)
        assert (row.state, row.attempts, row.due) == ("new", 1, clock.now() + timedelta(seconds=5))
        await soon(clock.advance(5))
        pause = timedelta(seconds=10)
        await told(runtime, lambda rows: rows[0].due == clock.now() + pause)
        await soon(clock.advance(10))
        notice = await kept.next()
        assert kept.tried == [notice.id] * 3


async def test_what_has_failed_is_listed_and_may_be_tried_again(
    store: str | Store, clock: SimulatedClock
) -> None:
    kept = Kept(fails=2)
    given = notify(Rule(kept), attempts=2)
    async with Runtime([desk()], store=store, clock=clock, notify=given) as runtime:
        await asked(runtime)
        await told(runtime, lambda rows: [each.detail for each in rows] == ["the test says so"])
        await soon(clock.advance(5))
        (row,) = await told(runtime, lambda rows: rows[0].state == "failed")
        assert [each.no for each in await soon(runtime.notices(state="failed"))] == [row.no]
        needs = (await soon(runtime.attention())).notices
        assert (needs.count, [each.no for each in needs.rows]) == (1, [row.no])
        async with site_of(runtime) as client:
            page = (await client.get("/attention")).text
        assert "By kept" in page
        assert "Try again to tell of" in page
        assert not await soon(runtime.retry_notice(row.no + 1000, by="ann"))
        assert await soon(runtime.retry_notice(row.no, by="ann"))
        assert (await kept.next()).id == kept.tried[0]
        await told(runtime, lambda rows: rows[0].state == "done")
        assert (await soon(runtime.attention())).count == 0
        assert not await soon(runtime.retry_notice(row.no)), "it has not failed"


async def test_a_final_failure_is_not_tried_again() -> None:
    kept = Kept(fails=1, is_final=True)
    async with Runtime([desk()], notify=notify(Rule(kept))) as runtime:
        await asked(runtime)
        (row,) = await told(runtime, lambda rows: [each.state for each in rows] == ["failed"])
        assert (row.attempts, row.detail) == (1, "the test says so")


async def test_an_error_of_a_function_is_a_failure_that_is_tried_again(
    clock: SimulatedClock, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(notice: Notice) -> None:
        raise ValueError("no such table")

    given = Notify(on_request=broken, every=EVERY)
    async with Runtime([desk()], clock=clock, notify=given) as runtime:
        await asked(runtime)
        rows = await told(runtime, lambda rows: bool(rows) and rows[0].detail != "")
        assert (rows[0].state, rows[0].detail) == ("new", "ValueError: no such table")
    assert "is not delivered" in caplog.text


async def test_what_is_decided_before_it_could_be_told_is_dropped(clock: SimulatedClock) -> None:
    """I80."""
    kept = Kept(fails=1)
    async with Runtime([desk()], clock=clock, notify=notify(Rule(kept))) as runtime:
        (request,) = (await asked(runtime)).requests
        await told(runtime, lambda rows: [each.detail for each in rows] == ["the test says so"])
        await soon(runtime.get("t").resume({request.id: approve(by="ann")}))
        await soon(clock.advance(5))
        (row,) = await told(runtime, lambda rows: rows[0].state != "new")
        assert (row.state, row.detail) == ("dropped", "no longer asked: ann approved it.")


async def test_the_others_of_a_reply_are_not_told_twice_when_one_is_answered(
    store: str | Store, clock: SimulatedClock
) -> None:
    """I80."""
    kept = Kept()
    two = [call("refund", {"order": each, "amount": 1}) for each in "12"]
    async with Runtime(
        [desk(two, "done")], store=store, clock=clock, notify=notify(Rule(kept))
    ) as runtime:
        first, second = (await asked(runtime)).requests
        assert {(await kept.next()).request.id for _ in "12"} == {first.id, second.id}
        await soon(runtime.get("t").resume({first.id: approve(by="ann")}))
        await told(runtime, lambda rows: [each.state for each in rows] == ["done"] * 3)
        assert kept.ends == [("receipt of asked 0", "ann approved it.")]
        assert len(kept.tried) == 2


async def test_a_vote_is_no_end_and_no_new_request(store: str | Store) -> None:
    """I80."""
    kept = Kept()
    people = {"ann": {"finance"}, "bob": {"finance"}}
    agent = desk(gate={"approval": approval({"finance": 2})})
    async with Runtime([agent], store=store, people=people, notify=notify(Rule(kept))) as runtime:
        (request,) = (await asked(runtime)).requests
        await kept.next()
        await soon(runtime.get("t").resume({request.id: approve(by="ann")}))
        assert not kept.ends
        await soon(runtime.get("t").resume({request.id: approve(by="bob")}))
        await told(runtime, lambda rows: [each.state for each in rows] == ["done"] * 2)
        assert len(kept.ends) == len(kept.tried) == 1


async def test_the_end_of_an_agent_ends_its_messages(store: str | Store) -> None:
    kept = Kept()
    async with Runtime([desk()], store=store, notify=notify(Rule(kept))) as runtime:
        await asked(runtime)
        await kept.next()
        await told(runtime, lambda rows: rows[0].state == "done")
        assert await soon(runtime.delete("t", by="ann"))
        await told(runtime, lambda rows: [each.state for each in rows] == ["done"] * 2)
        assert kept.ends == [("receipt of asked 0", "The agent is deleted.")]


async def test_a_message_that_is_posted_while_its_request_is_decided_is_changed_too(
    store: str | Store,
) -> None:
    entered, released = asyncio.Event(), asyncio.Event()

    class Slow(Kept):
        async def deliver(self, notice: Notice) -> str:
            entered.set()
            await released.wait()
            return await super().deliver(notice)

    slow = Slow()
    async with Runtime([desk()], store=store, notify=notify(Rule(slow))) as runtime:
        (request,) = (await asked(runtime)).requests
        await soon(entered.wait())
        await soon(runtime.get("t").resume({request.id: approve(by="ann")}))
        # Another request shows that the outbox was looked at since.
        released.set()
        await told(runtime, lambda rows: [each.state for each in rows] == ["done"] * 2)
        assert slow.ends == [("receipt of asked 0", "ann approved it.")]


async def test_a_host_delivers_once_what_takes_longer_than_its_lease(
    clock: SimulatedClock,
) -> None:
    entered, released = asyncio.Event(), asyncio.Event()

    class Slow(Kept):
        async def deliver(self, notice: Notice) -> str:
            entered.set()
            await released.wait()
            return await super().deliver(notice)

    slow, other = Slow(), Kept("other")
    rules = Rule(slow, agent="desk"), Rule(other, agent="second")
    agents = [desk(), desk(name="second")]
    async with Runtime(agents, clock=clock, notify=notify(*rules)) as runtime:
        await asked(runtime)
        await soon(entered.wait())
        await soon(clock.advance(LEASE + 1))
        await told(runtime, lambda rows: rows[0].attempts == 2)
        await asked(runtime, "another", "second")
        await other.next()
        released.set()
        await told(runtime, lambda rows: {each.state for each in rows} == {"done"})
        assert len(slow.tried) == 1


async def test_hosts_without_notify_write_what_others_deliver(hosts: Hosts) -> None:
    """I80."""
    assert hosts.schema
    kept = Kept()
    silent, telling = DatabaseStore(hosts.new("silent")), DatabaseStore(hosts.new("telling"))
    async with (
        Runtime([desk()], store=telling, notify=notify(Rule(kept))),
        Runtime([desk()], store=silent) as runtime,
    ):
        await asked(runtime)
        assert (await kept.next()).agent_id == "t"


async def test_two_hosts_that_begin_at_once_deliver_once(hosts: Hosts) -> None:
    """I80."""
    assert hosts.schema
    kept = [Kept(), Kept()]
    stores = [DatabaseStore(hosts.new(name)) for name in ("a", "b")]
    runtimes = [
        Runtime([desk()], store=store, notify=notify(Rule(each)))
        for store, each in zip(stores, kept, strict=True)
    ]
    await asyncio.gather(*(each.__aenter__() for each in runtimes))
    try:
        await asyncio.gather(*(asked(runtimes[number % 2], f"t{number}") for number in range(20)))
        rows = await told(runtimes[0], lambda rows: [each.state for each in rows] == ["done"] * 20)
        ids = [each for one in kept for each in one.tried]
        assert len(ids) == len(set(ids)) == 20
        assert {row.attempts for row in rows} == {1}
    finally:
        for each in runtimes:
            await each.__aexit__(None, None, None)


KILLED = """
import os, signal, sys
from tests.support.notified import desk
from understudy import Runtime
from understudy.notify import Notify

def tell(notice):
    with open(sys.argv[2], "a") as file:
        file.write(notice.id)
        file.flush()
    os.kill(os.getpid(), signal.SIGKILL)

with Runtime([desk()], store=sys.argv[1], notify=Notify(on_request=tell, every=0.01)) as runtime:
    runtime.spawn("desk", "t").run("go").get()
    import threading
    threading.Event().wait()
"""


@pytest.mark.slow
async def test_a_host_that_is_killed_after_it_has_delivered_delivers_again_under_the_same_id(
    tmp_path: Path,
) -> None:
    """I80."""
    store, said = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "said"
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED, store, str(said)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=100,
        check=False,
    )
    assert done.returncode == -9
    from understudy._base.clock import SystemClock

    later = SimulatedClock(SystemClock().now())
    ids: list[str] = []
    given = Notify(on_request=lambda notice: ids.append(notice.id), every=EVERY)
    async with Runtime([desk()], store=store, clock=later, notify=given) as runtime:
        (row,) = await listed(runtime)
        assert (row.state, row.attempts) == ("new", 1)
        await soon(later.advance(LEASE))
        await told(runtime, lambda rows: rows[0].state == "done")
        assert ids == [said.read_text()]


async def test_what_waited_before_is_not_told(store: str | Store, clock: SimulatedClock) -> None:
    if not isinstance(store, str) or store == "memory:":
        pytest.skip("it is opened twice")
    async with Runtime([desk(remind_after=HOUR)], store=store, clock=clock) as runtime:
        await asked(runtime)
        assert await listed(runtime) == []
    kept = Kept()
    async with Runtime(
        [desk(remind_after=HOUR)], store=store, clock=clock, notify=notify(Rule(kept))
    ) as runtime:
        await soon(clock.advance(HOUR))
        assert (await kept.next()).what == "reminder"


async def test_notify_false_ends_it_for_the_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([desk()], store=store, notify=notify(Rule(Kept()))) as runtime:
        await asked(runtime)
        await told(runtime, lambda rows: [each.state for each in rows] == ["done"])
    async with Runtime([desk()], store=store) as runtime:
        assert len(await listed(runtime)) == 1
    async with Runtime([desk()], store=store, notify=False) as runtime:
        assert await listed(runtime) == []
        await asked(runtime, "other")
    kept = Kept()
    async with Runtime([desk()], store=store, notify=notify(Rule(kept))) as runtime:
        await asked(runtime, "third")
        assert (await kept.next()).agent_id == "third"
        assert len(await listed(runtime)) == 1


async def test_what_is_over_is_removed_after_its_time(
    store: str | Store, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.notify.deliveries.CLEAN", 0.0)
    kept = Kept()
    given = notify(Rule(kept), keep=DAY)
    async with Runtime([desk()], store=store, clock=clock, notify=given) as runtime:
        (request,) = (await asked(runtime)).requests
        await asked(runtime, "waits")
        await told(runtime, lambda rows: [each.state for each in rows] == ["done"] * 2)
        await soon(runtime.get("t").resume({request.id: approve(by="ann")}))
        await told(runtime, lambda rows: [each.state for each in rows] == ["done"] * 3)
        await soon(clock.advance(DAY + 1))
        (row,) = await told(runtime, lambda rows: len(rows) == 1)
        assert row.agent_id == "waits", "it would be told once more"
    assert len(kept.tried) == 2


async def test_no_delivery_holds_up_an_agent_or_the_end_of_a_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I80."""
    monkeypatch.setattr("understudy.notify.deliveries.STOP", 0.01)
    entered = asyncio.Event()

    class Hangs(Kept):
        async def deliver(self, notice: Notice) -> str:
            entered.set()
            await asyncio.Event().wait()
            raise AssertionError

    async with Runtime([desk()], notify=notify(Rule(Hangs()))) as runtime:
        (request,) = (await asked(runtime)).requests
        await soon(entered.wait())
        await soon(runtime.get("t").resume({request.id: approve(by="ann")}))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Notify(), "tells nobody"),
        (lambda: Notify(Rule(Kept())), "base_url"),
        (lambda: Notify(Rule(Kept()), base_url="ops"), "http:// or https://"),
        (lambda: notify(Rule(Kept()), Rule(Kept())), "two channels have the name 'kept'"),
        (lambda: notify(Rule(Kept()), every=0), "every"),
        (lambda: notify(Rule(Kept()), attempts=0), "attempts"),
        (lambda: Rule("kept"), "takes channels"),  # type: ignore[arg-type]
        (lambda: Rule([]), "takes a channel"),
        (lambda: Rule(Kept(), on="answered"), "on=..."),  # type: ignore[arg-type]
        (lambda: Rule(Kept(), tool=3), "tool=..."),  # type: ignore[arg-type]
        (lambda: Rule(Kept(), show=3), "show=..."),  # type: ignore[arg-type]
        (lambda: Rule(Kept(), within=-1), "within"),
        (lambda: Notify(on_request=3), "on_request"),  # type: ignore[arg-type]
        (lambda: Runtime(notify="mail"), "`notify`"),  # type: ignore[call-overload]
        (lambda: Webhook("w", "ftp://x", secrets="0123456789abcdef"), "url"),
        (lambda: Webhook("w", "https://x", secrets="short"), "at least 16"),
        (lambda: Webhook("w", "https://x", secrets="whsec_!!!!!!!!!!!!!!"), "base64"),
        (lambda: Webhook("w", "https://x", secrets=[]), "secrets"),
        (lambda: Email("m", "ann", sender="x@example.com", host="h"), "mail addresses"),
        (lambda: Email("m", "a@b.example\nBcc: x@y.example", sender="x@b.example", host="h"), "to"),
        (lambda: Email("m", [], sender="x@example.com", host="h"), "at least one"),
        (
            lambda: Email("m", "a@b.example", sender="x@b.example", host="h", user="u", tls="none"),
            "in the clear",
        ),
        (lambda: Kept(""), "name"),
        (lambda: Kept("a\nb"), "printable"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(make: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        make()
    assert said in str(error.value)
    assert "0123456789abcdef" not in str(error.value)


async def test_a_notify_that_cannot_end_leaves_no_store_open(tmp_path: Path) -> None:
    class Stuck(Notify):
        async def end(self) -> None:
            await super().end()
            raise RuntimeError("the server of mails is gone")

    store = f"sqlite:///{tmp_path / 'store.db'}"
    with pytest.raises(RuntimeError, match="gone"):
        async with Runtime(store=store, notify=Stuck(on_request=lambda notice: None)):
            pass
    async with Runtime(store=store) as runtime:  # the file is not locked
        assert runtime.status().agents == 0


async def test_one_notify_is_of_one_runtime() -> None:
    given = notify(Rule(Kept()))
    async with Runtime([desk()], notify=given):
        with pytest.raises(UsageError, match="another runtime"):
            async with Runtime([desk()], notify=given):
                pass


@pytest.mark.slow
def test_who_tells_nobody_imports_nothing_of_it() -> None:
    code = (
        "import sys; from understudy import Runtime\n"
        "with Runtime(): pass\n"
        "assert not any(each.startswith('understudy.notify') for each in sys.modules)\n"
        "assert 'understudy.journal.memory_notices' not in sys.modules\n"
        "assert 'smtplib' not in sys.modules\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=env, timeout=100, check=True)


@pytest.mark.postgres
async def test_a_schema_with_triggers_may_have_another_name(hosts: Hosts) -> None:
    old, new = hosts.schema, f"{hosts.schema}_moved"
    options: dict[str, Any] = {"search": True, "notify": notify(Rule(Kept()))}
    async with Runtime([desk()], store=DatabaseStore(hosts.new()), **options):
        pass  # it has made the triggers
    with psycopg.connect(hosts.url, autocommit=True) as connection:
        connection.execute(f"ALTER SCHEMA {old} RENAME TO {new}")
        try:
            kept = Kept()
            backend = PostgresBackend(hosts.url, host="a", lease=10, schema=new)
            options["notify"] = notify(Rule(kept))
            async with Runtime([desk()], store=DatabaseStore(backend), **options) as runtime:
                await asked(runtime, "t1")
                assert (await kept.next()).agent_id == "t1"
                assert [hit.agent_id for hit in await runtime.search("refund", limit=1)] == ["t1"]
        finally:
            connection.execute(f"DROP SCHEMA {new} CASCADE")
