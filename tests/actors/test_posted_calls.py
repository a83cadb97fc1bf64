"""Calls that are posted to the owner of an agent that runs are done once, whoever goes away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pykka
import pytest

from tests.support.agents import Held, completed, desk, interrupted
from tests.support.held_commits import turns
from tests.support.hosts import (
    Point,
    Stopping,
    keep_stale_copies,
    may_be_taken,
    opened,
    posts,
    recorded,
    running,
    stores,
    unheard,
)
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    AgentRef,
    ScriptedModel,
    Stopped,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.actors.hosts import incoming, outgoing
from understudy.actors.reads import watch
from understudy.errors import (
    DecisionError,
    Fenced,
    NotInterrupted,
    OwnedElsewhere,
    RecordRefused,
    SchemaVersionError,
    UnfitHost,
    UnknownAgent,
    UsageError,
)
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres import sql
from understudy.journal.postgres.sharing import inbox
from understudy.journal.shared import Hint
from understudy.middleware import Middleware


def noted(method: Point, word: str, said: list[str]) -> Point:
    """The method, which also says that it is called."""

    async def says(*args: Any) -> Any:
        said.append(word)
        return await method(*args)

    return says


@pytest.mark.slow
@pytest.mark.quick
async def test_a_run_whose_owner_dies_between_record_and_reply_is_run_once(hosts: Hosts) -> None:
    """J14, J70: the asker takes the call back, and finds the run by the id that it gave."""
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    owner = Stopping(here, "reply")
    agents = [Agent("desk", ScriptedModel([held, "second", "second"])) for _ in "ab"]
    async with (
        opened(here, agents[0], sweep=None) as first,
        opened(there, Agent("desk", ScriptedModel(["second"] * 3)), sweep=None) as second,
    ):
        run = await running(first, held)
        asked = second.get("t").run("again")
        await until(lambda: bool(posts(hosts)))
        held.release.set()
        await soon(run)
        await soon(owner.reached.wait())
        hosts.end_lease("here")
        assert completed(await soon(asked)).text == "second"
        owner.released.set()
        await until(lambda: posts(hosts) == [])
    assert recorded(hosts, "run_started") == 2


async def test_a_retry_whose_owner_dies_between_record_and_reply_is_made_once(
    hosts: Hosts,
) -> None:
    """W8, J70: it names no run. The asker knows by the run that had failed what became of it."""
    here, there = stores(hosts, "here", "there")
    owner = Stopping(here, "reply")

    def agent(*replies: Any) -> Agent:
        return Agent("desk", ScriptedModel(list(replies)), movable=False)

    async with (
        opened(here, agent(ConnectionError("down"), "cured", "again"), sweep=None) as first,
        opened(there, agent("again"), sweep=None) as second,
    ):
        failed = await soon(first.spawn("desk", "t").run("go"))
        retried = second.get("t").retry()
        await soon(owner.reached.wait())
        hosts.end_lease("here")
        end = completed(await soon(retried))
        assert end.text == "cured"
        assert end.state.run is not None
        assert end.state.run.continues is not None
        assert end.state.run.continues.run_id == failed.run_id
        owner.released.set()
        await until(lambda: posts(hosts) == [])
    assert recorded(hosts, "run_started") == 2


async def test_a_message_whose_owner_dies_between_record_and_reply_is_queued_once(
    hosts: Hosts,
) -> None:
    """J14."""
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    owner = Stopping(here, "reply")
    async with (
        opened(here, Agent("desk", ScriptedModel([held])), sweep=None) as first,
        opened(there, Agent("desk", ScriptedModel(["second"] * 3)), sweep=None) as second,
    ):
        await running(first, held)
        sent = second.get("t").send("more", message_id="m")
        await soon(owner.reached.wait())
        hosts.end_lease("here")
        assert await soon(sent) == "m"
        owner.released.set()
    ((count,),) = hosts.sql("SELECT count(*) FROM records WHERE kind = 'message_queued'")
    assert count == 1


@pytest.mark.quick
async def test_a_call_that_its_owner_never_reads_is_done_by_the_asker(hosts: Hosts) -> None:
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    owner = Stopping(here, "posted")
    async with (
        opened(here, Agent("desk", ScriptedModel([held])), sweep=None) as first,
        opened(there, Agent("desk", ScriptedModel(["second"] * 3)), sweep=None) as second,
    ):
        await running(first, held)
        asked = second.get("t").run("again")
        await until(lambda: bool(posts(hosts)))
        hosts.end_lease("here")
        assert completed(await soon(asked)).text == "second"
        assert posts(hosts) == []
        owner.released.set()


async def test_a_cancel_that_comes_late_does_not_cancel_the_next_run(hosts: Hosts) -> None:
    """The call names the run of the time at which it was made."""
    held, second_held = Held("first"), Held("second")
    here, there = stores(hosts, "here", "there")
    owner = Stopping(here, "posted")
    async with (
        opened(here, Agent("desk", ScriptedModel([held, second_held])), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
    ):
        run = await running(first, held)
        cancelled = second.get("t").cancel()
        await until(lambda: bool(posts(hosts)))
        held.release.set()
        done = completed(await soon(run))
        again = first.get("t").run("again")
        await soon(second_held.entered.wait())
        owner.released.set()
        outcome = await soon(cancelled)
        assert outcome is not None
        assert outcome.run_id == done.run_id
        second_held.release.set()
        assert completed(await soon(again)).text == "second"


class Notes(Middleware):
    """Holds each message until it is released."""

    def __init__(self, seen: list[object], held: Held) -> None:
        self._seen = seen
        self._held = held

    async def on_message(self, run: Any, message: object) -> dict[str, Any]:
        self._seen.append(message)
        self._held.entered.set()
        await self._held.release.wait()
        return {"noted": message}


async def test_a_cancel_of_nothing_that_comes_late_does_not_cancel_the_next_run(
    hosts: Hosts,
) -> None:
    """No run was open when it was made: there is nothing to post."""
    seen: list[object] = []
    noted, held = Held("noted"), Held("first")
    here, there = stores(hosts, "here", "there")
    owner = Stopping(here, "posted")
    agent = Agent("desk", ScriptedModel(["zero", held]), middleware=[Notes(seen, noted)])
    async with (
        opened(here, agent, sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
    ):
        completed(await soon(first.spawn("desk", "t").run("go")))
        notified = first.get("t").notify("Notes", "hello")
        await soon(noted.entered.wait())
        assert await soon(second.get("t").cancel()) is None
        assert posts(hosts) == []
        again = first.get("t").run("again")
        await soon(held.entered.wait())
        owner.released.set()
        held.release.set()
        noted.release.set()
        await soon(notified)
        assert completed(await soon(again)).text == "first"


async def test_a_schedule_is_triggered_at_a_host_whose_copy_is_stale(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it was recorded there: it is done again."""
    here, there = stores(hosts, "here", "there")
    agents = [Agent("desk", ScriptedModel(lambda request: "done")) for _ in "ab"]
    async with (
        opened(here, agents[0], sweep=None) as first,
        opened(there, agents[1], sweep=None) as second,
    ):
        first.spawn("desk", "t")
        await soon(first.schedules("t").set("s", cron="0 3 * * *", input="check"))
        keep_stale_copies(monkeypatch)
        await may_be_taken(hosts)
        completed(await soon(second.get("t").run("go")))
        occurrence = await soon(first.schedules("t").trigger("s"))
        assert (occurrence.triggered, occurrence.skipped) == (True, None)
    assert recorded(hosts, "occurred") == 1


async def test_a_schedule_whose_owner_dies_between_record_and_reply_is_triggered_once(
    hosts: Hosts,
) -> None:
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    owner = Stopping(here, "reply")
    async with (
        opened(here, Agent("desk", ScriptedModel([held])), sweep=None) as first,
        opened(there, Agent("desk", ScriptedModel(lambda request: "done")), sweep=None) as second,
    ):
        first.spawn("desk", "t")
        await soon(first.schedules("t").set("s", cron="0 3 * * *", input="check"))
        await running(first, held)
        triggered = second.schedules("t").trigger("s")
        await soon(owner.reached.wait())
        hosts.end_lease("here")
        occurrence = await soon(triggered)
        assert (occurrence.triggered, occurrence.skipped) == (True, None)
        owner.released.set()
    assert recorded(hosts, "occurred") == 1


async def test_an_agent_whose_middleware_handles_a_message_is_not_taken(hosts: Hosts) -> None:
    """J6: what a message merges would be lost, and it would be passed on twice."""
    seen: list[object] = []
    held = Held()

    def agent() -> Agent:
        return Agent("desk", ScriptedModel(["a", "b"]), middleware=[Notes(seen, held)])

    here, there = stores(hosts, "here", "there")
    async with opened(here, agent()) as first, opened(there, agent()) as second:
        ref = first.spawn("desk", "t")
        await soon(ref.run("go"))
        told = ref.notify("Notes", {"n": 1})
        await soon(held.entered.wait())
        asked = second.get("t").run("again")
        await until(lambda: bool(posts(hosts)))
        held.release.set()
        await soon(told)
        assert completed(await soon(asked)).text == "b"
        assert (await soon(second.get("t").state())).values["noted"] == {"n": 1}
    assert seen == [{"n": 1}]


async def test_a_message_to_middleware_is_passed_on_once_at_most(hosts: Hosts) -> None:
    """Nobody knows what came of one whose host went away: the caller is told that."""
    seen: list[object] = []
    held, message = Held("first"), Held()

    def agent() -> Agent:
        return Agent("desk", ScriptedModel([held, "b"]), middleware=[Notes(seen, message)])

    here, there = stores(hosts, "here", "there")
    async with (
        opened(here, agent(), sweep=None) as first,
        opened(there, agent(), sweep=None) as second,
    ):
        await running(first, held)
        told = second.get("t").notify("Notes", "hello")
        await soon(message.entered.wait())
        hosts.end_lease("here")
        with pytest.raises(Fenced, match="nobody knows"):
            await soon(told)
        message.release.set()
    assert seen == ["hello"]


async def test_what_cannot_go_to_another_host_is_refused_before_it_is_posted(hosts: Hosts) -> None:
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    async with (
        opened(here, Agent("desk", ScriptedModel([held]))) as first,
        opened(there, desk("never")) as second,
    ):
        run = await running(first, held)
        with pytest.raises(UsageError, match="'here'"):
            await soon(second.get("t").notify("Notes", object()))
        for decision in (edit({"of": object()}), respond(object()), {"type": object()}):
            with pytest.raises(DecisionError, match=r"'asked'.* cannot be stored as JSON"):
                await soon(second.get("t").resume({"asked": decision}))
        with pytest.raises(RecordRefused):
            await soon(second.get("t").send("x" * (17 * 1024 * 1024)))
        assert posts(hosts) == []
        held.release.set()
        await soon(run)


async def test_an_agent_that_is_deleted_while_a_call_is_under_way_is_unknown_and_not_the_next_one(
    hosts: Hosts,
) -> None:
    """J7."""
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    owner = Stopping(here, "posted")
    async with (
        opened(here, Agent("desk", ScriptedModel([held, "anew"])), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
    ):
        await running(first, held)
        sent = second.get("t").send("for the first one")
        await until(lambda: bool(posts(hosts)))
        assert await soon(first.delete("t"))
        held.release.set()
        completed(await soon(first.spawn("desk", "t").run("go")))
        owner.released.set()
        with pytest.raises(UnknownAgent):
            await soon(sent)
        assert (await soon(first.get("t").state())).queue == {}


async def test_an_agent_that_runs_elsewhere_is_deleted_there(hosts: Hosts) -> None:
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    async with (
        opened(here, Agent("desk", ScriptedModel([held]))) as first,
        opened(there, desk("never")) as second,
    ):
        run = await running(first, held)
        assert await soon(second.delete("t")) is True
        assert type(await soon(run)) is Stopped
        assert await soon(second.delete("t")) is False
        await until(lambda: posts(hosts) == [])


async def test_two_persons_who_answer_one_request_at_two_hosts_make_one_decision(
    hosts: Hosts, ran: list[str]
) -> None:
    """J5."""

    @tool
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    def agent() -> Agent:
        return desk(call("pay"), "done", tools=[pay], interrupt_on={"pay": True})

    here, there = stores(hosts, "here", "there")
    approved = 0
    async with opened(here, agent()) as first, opened(there, agent()) as second:
        for number in range(10):
            id = f"t{number}"
            asked = interrupted(await soon(first.spawn("desk", id).run("go")))
            answers = await soon(
                asyncio.gather(
                    _result(first.get(id).resume(asked.decide(approve()))),
                    _result(second.get(id).resume(asked.decide(reject()))),
                )
            )
            refused = [answer for answer in answers if isinstance(answer, NotInterrupted)]
            assert len(refused) == 1, answers
            approved += not isinstance(answers[0], Exception)
            both = await soon(
                asyncio.gather(*(_result(at.get(id).outcome()) for at in (first, second)))
            )
            assert both[0].run_id == both[1].run_id == asked.run_id
    assert ran == ["pay"] * approved


async def _result(future: Any) -> Any:
    try:
        return await future
    except Exception as error:
        return error


@pytest.mark.quick
async def test_calls_of_one_caller_are_done_in_their_order(hosts: Hosts) -> None:
    """J70."""
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    async with (
        opened(here, Agent("desk", ScriptedModel([held, "next"]))) as first,
        opened(there, desk("never")) as second,
    ):
        run = await running(first, held)
        ref: AgentRef = second.get("t")
        for future in [ref.send(str(number), message_id=str(number)) for number in range(50)]:
            await soon(future)
        state = await soon(first.get("t").state())
        assert list(state.queue) == [str(number) for number in range(50)]
        assert type(await soon(ref.cancel())) is Stopped
        await soon(run)


async def test_calls_are_done_though_no_hint_arrives(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NOTIFY that is lost costs time: owner and asker look by themselves."""
    monkeypatch.setattr(sql, "CLAIM", unheard(sql.CLAIM))
    for name in ("POST", "REPLY", "RETELL", "TELL_OWNER", "TELL_ASKERS"):
        monkeypatch.setattr(inbox, name, unheard(getattr(inbox, name)))
    monkeypatch.setattr(incoming, "BEAT", 0.1)
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    async with (
        opened(here, Agent("desk", ScriptedModel([held]))) as first,
        opened(there, desk("never")) as second,
    ):
        run = await running(first, held)
        assert await soon(second.get("t").send("more", message_id="m")) == "m"
        held.release.set()
        await soon(run)


@pytest.fixture
def hints_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No host looks by itself: a hint that is lost, or not understood, is waited for in vain."""
    for module in outgoing, watch:
        for name in {"BEAT", "PATIENCE", "POLL"} & set(vars(module)):
            monkeypatch.setattr(module, name, 1000.0)


async def test_calls_at_another_host_are_answered_by_hints_and_not_by_a_poll(
    hosts: Hosts, hints_alone: None
) -> None:
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    async with (
        opened(here, Agent("desk", ScriptedModel([held, "second"]))) as first,
        opened(there, desk("never")) as second,
    ):
        run = await running(first, held)
        far = second.get("t")
        assert await soon(far.send("more", message_id="m")) == "m"
        assert await soon(far.cancel_message("m")) is True
        behind = far.run("behind")
        await until(lambda: any(kind == "run" for kind, _ in posts(hosts)))
        held.release.set()
        completed(await soon(run))
        assert completed(await soon(behind)).text == "second"


async def test_a_host_that_waits_for_a_queued_run_is_told_of_the_end_of_that_run(
    hosts: Hosts, hints_alone: None
) -> None:
    held, next_held = Held("first"), Held("second")
    here, there = stores(hosts, "here", "there")
    async with (
        opened(here, Agent("desk", ScriptedModel([held, next_held]))) as first,
        opened(there, desk("never")) as second,
    ):
        run = await running(first, held)
        behind = second.get("t").run("behind")
        await until(lambda: any(kind == "run" for kind, _ in posts(hosts)))
        await until(lambda: not posts(hosts))  # its asker has read that it is in the queue
        held.release.set()
        completed(await soon(run))
        await soon(next_held.entered.wait())
        next_held.release.set()
        assert completed(await soon(behind)).text == "second"


async def test_a_look_does_not_wait_behind_what_is_posted(hosts: Hosts, hints_alone: None) -> None:
    """Its owner reads nothing: who looks, at any host, is told what the store has."""
    held = Held("first")
    here, there, elsewhere = stores(hosts, "here", "there", "elsewhere")
    owner = Stopping(here, "posted")
    async with (
        opened(here, Agent("desk", ScriptedModel([held])), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
        opened(elsewhere, desk("never"), sweep=None) as third,
    ):
        await running(first, held)
        sent = [second.get("t").send("more", message_id=f"m{n}") for n in range(3)]
        at_once = second.get("t").state()
        await until(lambda: len(posts(hosts)) == 3)
        looks = [at_once, second.get("t").state(), third.get("t").state()]
        for look in looks:
            assert (await soon(look)).queue == {}
        owner.released.set()
        for each in sent:
            await soon(each)
        assert list((await soon(third.get("t").state())).queue) == ["m0", "m1", "m2"]


async def test_who_posts_to_an_agent_that_is_deleted_is_told_at_once(
    hosts: Hosts, hints_alone: None
) -> None:
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    Stopping(here, "posted")
    async with (
        opened(here, Agent("desk", ScriptedModel([held])), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
    ):
        await running(first, held)
        sent = second.get("t").send("for the first one")
        await until(lambda: bool(posts(hosts)))
        assert await soon(first.delete("t"))
        with pytest.raises(UnknownAgent):
            await soon(sent)


async def test_a_hint_that_comes_while_the_store_is_read_is_not_lost(
    hosts: Hosts, hints_alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody watches the agent yet: what was read is too old, and nothing would tell of it."""
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    told = asyncio.Event()
    async with (
        opened(here, Agent("desk", ScriptedModel([held]))) as first,
        opened(there, desk("never")) as second,
    ):
        run = await running(first, held)
        await until(lambda: recorded(hosts, "run_started") == 1)
        loads, read, released = there.load_latest, asyncio.Event(), asyncio.Event()

        async def load_latest(agent_id: str) -> Any:
            found = await loads(agent_id)
            read.set()
            await released.wait()
            return found

        monkeypatch.setattr(there, "load_latest", load_latest)
        outcome = second.get("t").outcome()
        await soon(read.wait())
        look_now = watch.Watch.look_now

        def heard(self: watch.Watch) -> None:
            look_now(self)
            told.set()

        monkeypatch.setattr(watch.Watch, "look_now", heard)
        held.release.set()
        completed(await soon(run))
        assert here.shared is not None
        assert there.shared is not None
        there_id = there.shared.host_id
        assert there_id is not None
        await here.shared.tell(there_id, Hint("ended", 0, "t"))
        await soon(told.wait())
        released.set()
        found = await soon(outcome)
        assert found is not None
        assert completed(found).text == "first"


async def test_a_call_that_crosses_a_change_of_owner_is_told_to_the_new_one(
    hosts: Hosts, hints_alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who was told is not the owner any more; the claim of the next one did not see it."""
    monkeypatch.setattr(inbox, "POST", unheard(inbox.POST))
    held, again = Held("first"), Held("second")
    here, there, third = stores(hosts, "here", "there", "third")
    asker = Stopping(there, "post")
    async with (
        opened(here, Agent("desk", ScriptedModel([held]))) as first,
        opened(there, desk("never")) as second,
        opened(third, Agent("desk", ScriptedModel([again]))) as next_owner,
    ):
        run = await running(first, held)
        sent = second.get("t").send("more", message_id="m")
        await soon(asker.reached.wait())
        held.release.set()
        completed(await soon(run))
        await soon(first.get("t").info())  # its rest is in the store: else it is posted to
        run = await running(next_owner, again)
        asker.released.set()
        assert await soon(sent) == "m"
        again.release.set()
        await soon(run)


async def test_the_owner_of_an_agent_is_told_again_once_for_all_that_is_posted_to_it(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a look costs does not grow with the calls that wait."""
    monkeypatch.setattr(outgoing, "PATIENCE", -1.0)
    monkeypatch.setattr(outgoing, "POLL", 0.01)
    held, may_read = Held("first"), asyncio.Event()
    here, there = stores(hosts, "here", "there")
    assert here.shared is not None
    assert there.shared is not None
    posted = here.shared.posted

    async def late(*given: Any) -> Any:
        await may_read.wait()
        return await posted(*given)

    monkeypatch.setattr(here.shared, "posted", late)
    said: list[str] = []
    for name in ("post_states", "retell"):
        monkeypatch.setattr(there.shared, name, noted(getattr(there.shared, name), name, said))
    async with (
        opened(here, Agent("desk", ScriptedModel([held, *["done"] * 6])), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
    ):
        run = await running(first, held)
        behind = [second.get("t").run(f"run {number}") for number in range(6)]
        await until(lambda: len(posts(hosts)) == 6)
        said.clear()
        await until(lambda: said.count("post_states") > 3)
        may_read.set()
        held.release.set()
        for each in (run, *behind):
            completed(await soon(each))
        looks = "".join("r" if word == "retell" else " " for word in said).split()
        assert looks, "it is told again"
        assert {len(retold) for retold in looks} == {1}, "once per look, for one agent"


async def test_what_was_posted_while_nobody_listened_is_done_when_somebody_does(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for the next look."""
    monkeypatch.setattr(inbox, "POST", unheard(inbox.POST))
    monkeypatch.setattr(incoming, "BEAT", 1000.0)
    monkeypatch.setattr(outgoing, "PATIENCE", 1000.0)
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    async with (
        opened(here, Agent("desk", ScriptedModel([held]))) as first,
        opened(there, desk("never")) as second,
    ):
        run = await running(first, held)
        sent = second.get("t").send("more", message_id="m")
        await until(lambda: bool(posts(hosts)))
        hosts.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE 'LISTEN%%' AND datname = current_database()"
        )
        assert await soon(sent) == "m"
        held.release.set()
        await soon(run)


async def test_what_was_posted_goes_before_what_is_asked_for_by_whoever_takes_over(
    hosts: Hosts,
) -> None:
    """It is done by the next owner, though its asker is gone as well."""
    held = Held("first")
    here, there, third = stores(hosts, "here", "there", "third")
    owner = Stopping(here, "posted")
    async with opened(here, Agent("desk", ScriptedModel([held])), sweep=None) as first:
        await running(first, held)
        async with opened(there, desk("never"), sweep=None) as second:
            sent = second.get("t").send("posted", message_id="posted")
            await until(lambda: bool(posts(hosts)))
        hosts.end_lease("here")
        async with opened(third, Agent("desk", ScriptedModel([held])), sweep=None) as last:
            assert await soon(last.get("t").send("asked", message_id="asked")) == "asked"
            kept = (await soon(last.export("t")))["records"]
            queued = [each["message_id"] for each in kept if each["kind"] == "message_queued"]
            assert queued == ["posted", "asked"]
            held.release.set()
        owner.released.set()
        with pytest.raises(pykka.ActorDeadError):
            await soon(sent)


@pytest.mark.quick
async def test_no_reply_precedes_the_commit_of_what_it_tells_of(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J16."""
    held, backend = Held("first"), hosts.new("here")
    commit, reached, may_commit = backend.commit, threading.Event(), threading.Event()

    def held_commit() -> None:
        reached.set()
        assert may_commit.wait(60)
        commit()

    (there,) = stores(hosts, "there")
    async with (
        opened(DatabaseStore(backend), Agent("desk", ScriptedModel([held]))) as first,
        opened(there, desk("never")) as second,
    ):
        run = await running(first, held)
        monkeypatch.setattr(backend, "commit", held_commit)
        sent = second.get("t").send("more", message_id="m")
        try:
            assert await soon(asyncio.to_thread(reached.wait, 60))
            await until(lambda: bool(posts(hosts)))
            await turns()
            assert [reply for _, reply in posts(hosts)] == [None]
            assert not sent.done()
        finally:
            may_commit.set()
        assert await soon(sent) == "m"
        held.release.set()
        await soon(run)


@pytest.mark.parametrize(
    "error",
    [
        OwnedElsewhere(agent_id="t", host="here"),
        Fenced(agent_id="t", why="another runtime has it"),
        UnfitHost(agent_id="t", agent="desk"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_call_that_another_host_is_to_do_is_told_at_once_that_its_runtime_stops(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A8: a step that waits for it would hold up the end of that runtime."""
    (here,) = stores(hosts, "here")
    assert here.shared is not None
    take, begun, may_fail = here.shared.take, asyncio.Event(), asyncio.Event()

    async def take_in_vain(agent_id: str, *args: Any, **options: Any) -> Any:
        if agent_id != "t":
            return await take(agent_id, *args, **options)
        begun.set()
        await may_fail.wait()
        raise error

    monkeypatch.setattr(here.shared, "take", take_in_vain)
    assert await raised_in_a_step(here, begun, may_fail) == "agent 't': its runtime has stopped"


@pytest.mark.parametrize("method", ["place", "post"])
async def test_a_call_on_its_way_to_another_host_is_told_at_once_that_its_runtime_stops(
    hosts: Hosts, method: str
) -> None:
    """A8."""
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    async with opened(there, Agent("desk", ScriptedModel([held]))) as owner:
        run = await running(owner, held)
        asker = Stopping(here, method)
        error = await raised_in_a_step(here, asker.reached, asker.released)
        assert error == "agent 't': its runtime has stopped"
        held.release.set()
        await soon(run)


async def raised_in_a_step(
    store: DatabaseStore, reached: asyncio.Event, released: asyncio.Event
) -> str:
    """What a call of 't' raises in a step in progress, for which a runtime waits that is left.

    It is left when the call has reached a point, and the call goes on from there afterwards.
    """
    raised: list[str] = []

    @tool
    async def ask() -> str:
        try:
            await runtime.spawn("desk", "t").run("go")
        except Exception as error:
            raised.append(str(error))
        return "asked"

    async def leave() -> None:
        async with runtime:
            runtime.spawn("asker", "a").run("go")
            await soon(reached.wait())

    def is_left() -> bool:
        try:
            runtime.get("t")
        except UsageError:
            return True
        return False

    asker = Agent("asker", ScriptedModel([call("ask"), "never"]), tools=[ask])
    runtime = opened(store, asker, desk("never"), stop_timeout=None)
    leaving = asyncio.create_task(leave())
    await soon(reached.wait())
    await until(is_left)
    released.set()
    await soon(leaving)
    (error,) = raised
    return error


async def test_a_call_whose_run_cannot_be_found_out_keeps_no_other_from_being_done(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller alone is told why."""
    held = Held("first")
    here, there = stores(hosts, "here", "there")

    async def unreadable(*_: object) -> Any:
        raise SchemaVersionError(what="a record", version=99, known=1)

    async with (
        opened(here, Agent("desk", ScriptedModel([held, "second"])), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
    ):
        run = await running(first, held)
        monkeypatch.setattr(outgoing, "latest_state", unreadable)
        paused, sent = second.get("t").pause("later"), second.get("t").send("more")
        with pytest.raises(SchemaVersionError):
            await soon(paused)
        assert await soon(sent)
        held.release.set()
        await soon(run)


class _Line(list[Any]):
    """A line to which another thread adds at the moment in which its calls are replaced."""

    between: Callable[[], object]

    def __setitem__(self, place: Any, value: Any) -> None:
        thread = threading.Thread(target=self.between)
        thread.start()
        thread.join(0.02)  # it may have to wait until the calls are replaced
        super().__setitem__(place, value)


async def test_a_call_that_comes_while_the_run_of_another_is_found_out_is_not_lost(
    hosts: Hosts,
) -> None:
    """It comes in any thread, and the calls in line are replaced by those that are left."""
    held = Held("first")
    here, there = stores(hosts, "here", "there")
    async with (
        opened(here, Agent("desk", ScriptedModel([held, *["more"] * 9])), sweep=None) as first,
        opened(there, desk("never"), sweep=None) as second,
    ):
        run = await running(first, held)
        ref, sent = second.get("t"), list[Any]()
        calls = second._agent_host.services.calls
        assert isinstance(calls, outgoing.Outgoing)

        class Lines(dict[str, list[Any]]):
            def __setitem__(self, id: str, line: list[Any]) -> None:
                hooked = _Line(line)
                hooked.between = lambda: sent.append(ref.send("more")) if len(sent) < 9 else None
                super().__setitem__(id, hooked)

        calls._lines = Lines()
        await soon(ref.pause("later"))
        await until(lambda: len(sent) > 2)
        for each in list(sent):
            assert await soon(each)
        held.release.set()
        await soon(run)
