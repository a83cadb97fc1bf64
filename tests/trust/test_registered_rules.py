"""Rules with a version: registered in the store, and the same at all of its hosts."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.agents import FakeClock, Held, by_turn, completed, interrupted
from tests.support.hosts import host, opened
from tests.support.loops import soon, until
from tests.support.places import NewStore
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    Fenced,
    Runtime,
    ScriptedModel,
    Status,
    UnfitHost,
    UsageError,
    WouldDeadlock,
    approve,
    call,
    tool,
)
from understudy.journal import MemoryStore, Owned, OwnedJournal
from understudy.journal.memory import MemoryAgentJournal
from understudy.middleware import Middleware, ToolCall
from understudy.state.records import Record
from understudy.state.trust_facts import RulesRegistered, data_of
from understudy.state.trust_log import TrustFact
from understudy.trust import Rules, allow, approval, ask, deny


def over(limit: int) -> Any:
    return lambda arguments, view: arguments["amount"] > limit


def rules(version: int | None, limit: int = 500) -> Rules:
    return Rules(deny("refund", name="limit", when=over(limit)), version=version)


def desk(*amounts: int, before: Any = None, model: Any = None) -> tuple[Agent, list[int]]:
    paid: list[int] = []

    @tool
    async def refund(amount: int) -> str:
        """Refund."""
        if before is not None:
            await before(amount)
        paid.append(amount)
        return "paid"

    turns = [call("refund", {"amount": amount}) for amount in amounts]
    return Agent("desk", model or by_turn(*turns), tools=[refund]), paid


async def ended(runtime: Runtime, id: str = "t") -> None:
    """The run of this agent is completed."""
    outcome = await soon(runtime.get(id).outcome())
    assert outcome is not None
    completed(outcome)


# ----------------------------------------------------------------------- one after the other


async def test_a_version_is_registered_once_and_its_rules_hold(new_store: NewStore) -> None:
    """V9."""
    for _ in range(2):
        agent, paid = desk(700, 7)
        async with opened(new_store(), agent, rules=rules(7)) as runtime:
            completed(await soon(runtime.spawn(agent).run("go")))
        assert paid == [7]
    store = new_store()
    await store.open(lambda: None)
    (fact,) = await store.trust_after(0)
    await store.close()
    assert (fact.number, fact.kind, fact.data["version"]) == (1, "rules_registered", 7)
    assert fact.data["rules"] == [
        {
            "name": "limit",
            "kind": "deny",
            "tool": "refund",
            "agent": "*",
            "approval": "",
            "has_when": True,
        }
    ]


async def test_one_version_never_has_two_fingerprints(new_store: NewStore) -> None:
    """V9: the error names both hosts, and the remedy."""
    async with opened(new_store(), rules=rules(7)):
        pass
    with pytest.raises(UsageError, match=r"version 7: host .* others at .*version=8\)") as raised:
        async with opened(new_store(), rules=rules(7, 501)):
            pass
    assert raised.value.message.count("fingerprint ") == 2
    async with opened(new_store(), rules=rules(8, 501)):
        pass


@pytest.mark.parametrize("given", [None, rules(None)])
async def test_a_host_without_rules_of_a_version_does_not_open_where_the_store_has_some(
    new_store: NewStore, given: Rules | None
) -> None:
    """V10: unless they are retired, which is kept with who has retired them."""
    async with opened(new_store(), rules=rules(7)):
        pass
    with pytest.raises(UsageError, match=r"rules version 7 .*version=7.* rules retire"):
        async with opened(new_store(), rules=given):
            pass
    async with opened(new_store(), rules=rules(7)) as runtime:
        assert await soon(runtime.retire_rules(by="ann")) is True
        assert await soon(runtime.retire_rules(by="ann")) is False
        agent, paid = desk(700)
        completed(await soon(runtime.spawn(agent).run("go")))
        assert paid == [], "a host keeps the rules that it has"
    store = new_store()
    async with opened(store, rules=given):
        facts = await store.trust_after(1)
    assert [(fact.kind, fact.by) for fact in facts] == [("rules_retired", "ann")]
    async with opened(new_store(), rules=rules(7)):
        pass
    async with opened(new_store(), rules=given):
        pass  # the version that was retired does not come back by being there
    async with opened(new_store(), rules=rules(8)):
        pass
    with pytest.raises(UsageError, match="rules version 8"):
        async with opened(new_store(), rules=given):
            pass


async def test_a_host_with_older_rules_opens_and_starts_no_call(
    new_store: NewStore, caplog: pytest.LogCaptureFixture
) -> None:
    """V10: deploys are rolled out and back. What waits is continued by a host that has them."""
    async with opened(new_store(), rules=rules(7)):
        pass
    agent, paid = desk(7)
    with caplog.at_level(logging.WARNING):
        async with opened(new_store(), agent, rules=rules(6)) as runtime:
            assert not runtime.status().ready
            for _ in range(2):
                with pytest.raises(UnfitHost, match=r"rules version 6 here, 7 in the store"):
                    await soon(runtime.spawn("desk", "t").run("go"))
            assert runtime.rules is not None
            with pytest.raises(UsageError, match=r"above 7"):
                await soon(runtime.set_rules(rules(5)))
            await soon(runtime.set_rules(rules(8)))
            assert runtime.status().ready
            completed(await soon(runtime.spawn("desk", "t").run("go")))
    said = [each.message for each in caplog.records if "no call starts" in each.message]
    assert said == ["no call starts at this host: rules version 6 here, 7 in the store"]
    assert paid == [7]


async def test_a_runtime_that_uses_none_of_it_asks_nothing_of_the_log() -> None:
    """V8: and starts no task."""

    class Unread(MemoryStore):
        async def trust_after(self, number: int) -> Sequence[TrustFact]:
            raise AssertionError("it is read")

        def follow_trust(self) -> None:
            raise AssertionError("it is followed")

    agent, paid = desk(7)
    async with opened(Unread(), agent, rules=rules(None), people={"ann": ["finance"]}) as runtime:
        runtime.rules = rules(None, 5)
        runtime.rules = None
        completed(await soon(runtime.spawn(agent).run("go")))
    assert paid == [7]


async def test_a_store_without_a_log_refuses_rules_with_a_version() -> None:
    """V8: by an error that says what it lacks."""

    class Plain(MemoryStore):
        keeps = ()

        async def add_trust(self, fact: TrustFact) -> bool:
            return await super(MemoryStore, self).add_trust(fact)

    with pytest.raises(UsageError, match=r"keeps no log of trust.*'trust'"):
        async with opened(Plain(), rules=rules(1)):
            pass


async def test_rules_are_put_in_the_place_of_others_and_registered() -> None:
    """V9: on the loop by `set_rules`, and by the property where the loop has a thread."""
    store = MemoryStore()
    agent, paid = desk(7, 700, 700)
    async with opened(store, agent, rules=rules(1, 5)) as runtime:
        with pytest.raises(WouldDeadlock, match="set_rules"):
            runtime.rules = rules(2)
        with pytest.raises(UsageError, match="Rules"):
            runtime.set_rules("all")  # type: ignore[arg-type]
        await soon(runtime.set_rules(rules(2)))
        with pytest.raises(UsageError, match="rules version 2 hold"):
            await soon(runtime.set_rules(None))
        with pytest.raises(UsageError, match="two hosts have different rules"):
            await soon(runtime.set_rules(rules(2, 900)))
        assert runtime.rules is not None
        assert runtime.rules.version == 2
        completed(await soon(runtime.spawn(agent).run("go")))
    assert paid == [7]
    with opened(store, agent, rules=rules(2)) as runtime:
        runtime.rules = rules(3, 900)
        completed(runtime.spawn(agent).run("go").get(timeout=60))
        with pytest.raises(UsageError, match="two hosts"):
            runtime.rules = rules(3, 901)
    assert paid == [7, 7, 700, 700]
    assert [fact.data["version"] for fact in await store.trust_after(0)] == [1, 2, 3]


# -------------------------------------------------------------------------- two hosts


async def test_a_run_goes_on_at_the_host_that_has_the_newest_rules(hosts: Hosts) -> None:
    """V10: a call whose body was entered ends; the next one starts at the host that may."""
    held = Held()

    async def wait(amount: int) -> None:
        if amount == 1:
            await held.wait()

    slow, paid_before = desk(1, 2, before=wait)
    fast, paid_after = desk(1, 2)
    async with opened(host(hosts, "old"), slow, rules=rules(1)) as old:
        run = old.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        async with opened(host(hosts, "new"), fast, rules=rules(2)):
            await until(lambda: not old.status().ready)
            held.release.set()
            completed(await soon(run))
    assert (paid_before, paid_after) == ([1], [2])


async def test_a_fact_that_is_added_before_the_start_is_durable_holds_for_the_body(
    hosts: Hosts,
) -> None:
    """V8: the commit of the start brings the number of the last fact, also to a host without
    notifications.
    """
    held = Held(call("refund", {"amount": 7}))
    old_agent, paid_before = desk(model=ScriptedModel([held]))
    new_agent, paid_after = desk(7)
    deaf = host(hosts, "deaf", lease=3600.0)
    async with opened(deaf, old_agent, rules=rules(1), any_host=False) as old:
        run = old.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        async with opened(host(hosts, "new"), new_agent, rules=rules(2)) as new:
            assert old.status().ready, "it has heard of nothing"
            held.release.set()
            with pytest.raises(Fenced, match="no call may start"):
                await soon(run)
            assert paid_before == []
            await until(lambda: not old.status().ready)
            ((kinds,),) = hosts.sql(
                "SELECT string_agg(kind, ' ' ORDER BY seq) FROM records WHERE kind IN"
                " ('started', 'suspended', 'result')"
            )
            assert kinds == "started suspended"
            await soon(new.recover())
            await ended(new)
    assert (paid_before, paid_after) == ([], [7])


async def test_a_body_that_waits_for_a_thread_is_not_entered_after_the_log_says_no(
    hosts: Hosts,
) -> None:
    """V8: it is judged again in the thread, right before it is entered."""
    ran: list[str] = []
    entered, release = threading.Event(), threading.Event()

    @tool
    def work(name: str) -> str:
        """Work."""
        ran.append(name)
        if name == "first":
            entered.set()
            assert release.wait(60)
        return "done"

    both = [call("work", {"name": "first"}), call("work", {"name": "second"})]
    agent = Agent("desk", by_turn(both), tools=[work])
    async with opened(host(hosts, "old"), agent, rules=rules(1), max_threads=1) as old:
        run = old.spawn("desk", "t").run("go")
        assert await soon(asyncio.to_thread(entered.wait, 60))
        async with opened(host(hosts, "new"), agent, rules=rules(2)):
            await until(lambda: not old.status().ready)
            release.set()
            completed(await soon(run))
    assert ran == ["first", "second"]
    assert hosts.sql(
        "SELECT count(*), count(DISTINCT epoch) FROM records WHERE kind = 'started'"
    ) == [(3, 2)]


async def test_of_two_hosts_that_add_a_fact_at_once_the_second_decides_by_the_first(
    hosts: Hosts,
) -> None:
    """V9: two fingerprints are never registered, whichever host is faster."""
    first, second = host(hosts, "first"), host(hosts, "second")
    add = second.add_trust
    runtime = opened(first, rules=rules(7))

    async def after_the_other(fact: TrustFact) -> bool:
        await runtime.__aenter__()
        return await add(fact)

    second.add_trust = after_the_other  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="host 'first' registered"):
        async with opened(second, rules=rules(7, 501)):
            pass
    assert len(await first.trust_after(0)) == 1
    await runtime.__aexit__(None, None, None)


async def test_a_host_that_raises_the_version_of_its_rules_holds_no_call(
    hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    """V9: though it hears of what it adds before it knows that it has added it."""
    store = host(hosts, "only")
    agent, paid = desk(7)
    async with opened(store, agent, rules=rules(1)) as runtime:
        add = store.add_trust

        async def slowly(fact: TrustFact) -> bool:
            added = await add(fact)
            assert store.on_trust is not None
            store.on_trust()
            await until(lambda: runtime.trust.state.number == fact.number)
            return added

        store.add_trust = slowly  # type: ignore[method-assign]
        await soon(runtime.set_rules(rules(2)))
        assert runtime.status().ready
        completed(await soon(runtime.spawn(agent).run("go")))
    assert paid == [7]
    assert [each.message for each in caplog.records if "no call starts" in each.message] == []


async def test_no_more_agents_are_given_up_once_newer_rules_have_come(hosts: Hosts) -> None:
    """V9: though the step of one that was to be given up goes on by then."""
    held = Held()

    async def before(amount: int) -> None:
        if amount == 7:
            await held.wait()

    agent, paid = desk(7, 8, before=before)
    other = Agent("other", ScriptedModel(["done"]))
    async with opened(host(hosts, "first"), agent, other, rules=rules(1), sweep=3600) as first:
        await soon(first.spawn(agent, "t").send("go"))
        await soon(held.entered.wait())
        async with opened(host(hosts, "second"), rules=rules(2)):
            await until(lambda: not first.status().ready)
            await soon(first.set_rules(rules(2)))
            completed(await soon(first.spawn(other, "u").run("go")))
            held.release.set()
            await until(lambda: paid == [7, 8])
            assert first.get("u").status() is Status.IDLE


async def test_a_host_that_opened_without_rules_learns_that_the_store_has_some(
    hosts: Hosts,
) -> None:
    """V10."""
    agent, _ = desk(7)
    async with opened(host(hosts, "bare"), agent) as bare:
        assert bare.status().ready
        async with opened(host(hosts, "new"), rules=rules(1)) as new:
            await until(lambda: not bare.status().ready)
            with pytest.raises(UnfitHost, match="version 1 in the store, none here"):
                await soon(bare.spawn("desk", "t").run("go"))
            await soon(new.retire_rules())
            await until(lambda: bare.status().ready)
            completed(await soon(bare.spawn("desk", "t").run("go")))


# ------------------------------------------------------------- while a body is about to be entered


class _Leased(OwnedJournal):
    """The journal of a store in memory whose lease has run out until the test renews it."""

    def __init__(self, journal: MemoryAgentJournal, store: LeasedStore) -> None:
        self._journal, self._store = journal, store

    def append(self, records: Sequence[Record]) -> None:
        self._journal.append(records)
        if any(record.kind == "started" for record in records):
            self._store.ended = not self._store.renewed.is_set()

    async def durable(self) -> None:
        return

    def fence(self, why: str) -> None:
        return

    @property
    def owned(self) -> Owned:
        return self._journal.owned

    @property
    def has_unflushed(self) -> bool:
        return False

    def check_owner(self) -> None:
        if self._store.ended:
            raise Fenced(agent_id="t", why="the lease has ended")

    async def wait_for_owner(self) -> None:
        if self._store.ended:
            self._store.waited_for.set()
            await self._store.renewed.wait()
        self._store.ended = False


class LeasedStore(MemoryStore):
    """Its lease runs out with the start of a call, and nobody tells of what others have added."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False
        self.waited_for, self.renewed = asyncio.Event(), asyncio.Event()

    @property
    def trust_seen(self) -> int:
        return min(super().trust_seen, 1)

    def journal(self, owned: Owned, agent: Any) -> Any:
        return _Leased(super().journal(owned, agent), self)


async def test_a_host_whose_lease_had_run_out_reads_the_log_before_a_body_is_entered() -> None:
    """V8: others may have counted it as gone, and it has not heard of what they decided."""
    agent, paid = desk(7)
    store = LeasedStore()
    async with opened(store, agent, rules=rules(1)) as runtime:
        run = runtime.spawn("desk", "t").run("go")
        await soon(store.waited_for.wait())
        said = data_of(RulesRegistered(version=2, fingerprint="other"))
        at = FakeClock().now()
        assert await store.add_trust(
            TrustFact(number=2, at=at, by=None, kind="rules_registered", data=said)
        )
        store.renewed.set()
        with pytest.raises(Fenced, match="rules version 1 here, 2 in the store"):
            await soon(run)
    assert paid == []
    async with opened(store, agent, rules=Rules(version=3)) as runtime:
        await soon(runtime.recover())
        await ended(runtime)
    assert paid == [7]


class Waits(Middleware):
    def __init__(self, held: Held) -> None:
        self._held = held

    async def wrap_tool_call(self, run: Any, call: ToolCall, next: Any) -> Any:
        await self._held.wait()
        return await next(call)


@pytest.mark.parametrize("version", [None, 2])
async def test_a_rule_that_asks_comes_while_a_call_is_about_to_be_entered(
    version: int | None,
) -> None:
    """V7: persons are asked, and nothing was entered."""
    held, paid = Held(), list[int]()

    @tool
    def refund(amount: int) -> str:
        """Refund."""
        paid.append(amount)
        return "paid"

    model = by_turn(call("refund", {"amount": 7}))
    agent = Agent("desk", model, tools=[refund], middleware=[Waits(held)])
    first = Rules(allow("refund"), version=version and 1)
    async with opened(MemoryStore(), agent, rules=first, people={"ann": ["finance"]}) as runtime:
        run = runtime.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        asks = Rules(ask("refund", approval({"finance": 1})), version=version)
        await soon(runtime.set_rules(asks))
        held.release.set()
        asked = interrupted(await soon(run))
        assert asked.requests[0].asked_again
        assert paid == []
        completed(await soon(runtime.get("t").resume(approve(by="ann"))))
    assert paid == [7]
