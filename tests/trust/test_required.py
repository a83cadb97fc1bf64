"""What a store requires of each of its hosts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import completed
from tests.support.freezes import Desk, Suspended, runs
from tests.support.hosts import host, opened
from tests.support.loops import soon, until
from tests.support.places import NewStore
from tests.support.postgres import Hosts
from understudy import Fenced, UnfitHost, UsageError
from understudy.journal import MemoryStore
from understudy.trust import Budget, Rules, approval, calls

OPS: Any = {"ann": ["ops"]}
HAS: dict[str, dict[str, Any]] = {
    "rules": {"rules": Rules()},
    "budgets": {"budgets": [Budget("all", calls("*", 5))]},
    "protect": {"people": OPS, "protect": {"delete": approval({"ops": 1})}},
}


@pytest.mark.parametrize("name", HAS)
async def test_a_host_that_lacks_what_is_required_does_not_open(
    new_store: NewStore, name: Any
) -> None:
    """V55: and its error says which, and how to give it; until it is required no longer."""
    async with opened(new_store(), **HAS[name]) as runtime:
        assert await soon(runtime.require(name, by="ann")) is True
        assert await soon(runtime.require(name, by="ann")) is False
        (found,) = [each for each in await soon(runtime.required()) if each.name == name]
        assert (found.is_required, found.by, found.lacking) == (True, "ann", ())
    with pytest.raises(UsageError, match=rf"requires {name}.*Runtime\({name}=.*trust disable"):
        async with opened(new_store()):
            pass
    async with opened(new_store(), **HAS[name]) as runtime:
        assert await soon(runtime.require(name, required=False, by="bob")) is True
        assert await soon(runtime.require(name, required=False, by="bob")) is False
    async with opened(new_store()):
        pass


async def test_what_a_host_lacks_itself_or_nobody_knows_is_not_required() -> None:
    """V55."""
    async with opened(MemoryStore()) as runtime:
        for wrong in ("rulez", 7, None):
            with pytest.raises(UsageError, match="rules, budgets, freeze, protect"):
                runtime.require(wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="does not have it itself"):
            await soon(runtime.require("rules"))
        assert await soon(runtime.require("freeze")) is True


async def test_a_host_does_not_give_up_what_is_required() -> None:
    """V55."""
    async with opened(MemoryStore(), rules=Rules()) as runtime:
        await soon(runtime.require("rules"))
        with pytest.raises(UsageError, match="requires rules"):
            runtime.rules = None
        with pytest.raises(UsageError, match="requires rules"):
            await soon(runtime.set_rules(None))
        assert runtime.rules is not None


async def test_nothing_is_required_while_a_living_host_lacks_it(hosts: Hosts) -> None:
    """V56: it is named; and a host that comes later does not open."""
    desk = Desk(7)
    async with opened(host(hosts, "one"), desk.agent, rules=Rules()) as one:
        async with opened(host(hosts, "bare"), desk.agent) as bare:
            with pytest.raises(UsageError, match="'bare' live and do not have it"):
                await soon(one.require("rules"))
            (found, *_) = await soon(one.required())
            assert (found.is_required, found.lacking) == (False, ("bare",))
            completed(await soon(bare.spawn("desk", "t").run("go")))
        assert await soon(one.require("rules")) is True
        with pytest.raises(UsageError, match="requires rules"):
            async with opened(host(hosts, "bare"), desk.agent):
                pass
        async with opened(host(hosts, "two"), desk.agent, rules=Rules()) as two:
            completed(await soon(two.spawn("desk", "u").run("go")))


async def test_a_stopped_host_that_lacks_it_writes_and_enters_nothing_more(hosts: Hosts) -> None:
    """V56: its lease is ended for good, and its agents have a higher epoch."""
    desk, other = Desk(7), Desk(7)
    desk.waits_at.add(7)
    stopped = Suspended(hosts, "stopped", lease=1.0)
    async with opened(stopped, desk.agent, any_host=False) as bare:
        run = bare.spawn("desk", "t").run("go")
        await soon(desk.held.entered.wait())
        stopped.stopped.set()
        async with opened(host(hosts, "one"), other.agent, rules=Rules()) as one:
            await until(lambda: hosts.sql(LIVING) == [("one",)])
            ((before,),) = hosts.sql("SELECT epoch FROM agents")
            assert await soon(one.require("rules")) is True
            assert hosts.sql("SELECT epoch, owner FROM agents") == [(int(str(before)) + 1, None)]
            stopped.go_on.set()
            desk.held.release.set()
            with pytest.raises(Fenced):
                await soon(run)
            await until(lambda: not runs())
            stopped.stopped.clear()
            await until(lambda: not bare.status().ready)
            with pytest.raises(UnfitHost, match="requires rules"):
                await soon(bare.spawn("desk", "u").run("go"))
    assert hosts.sql("SELECT count(*) FROM records WHERE kind = 'result'") == [(0,)]


LIVING = "SELECT name FROM hosts WHERE lease_until > clock_timestamp()"
