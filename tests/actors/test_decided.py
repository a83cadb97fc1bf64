"""What was decided on the requests of all agents: a list that outlives compaction and deletion."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.agents import by_turn, interrupted
from tests.support.loops import soon
from tests.support.plain_store import PlainStore
from tests.support.refunds import ONE, TWO, desk
from understudy import (
    Agent,
    Observer,
    Runtime,
    SimulatedClock,
    UsageError,
    approve,
    call,
    edit,
    grant,
    reject,
    tool,
)
from understudy.actors import DecidedRequest
from understudy.middleware import HumanInTheLoop, SubAgent
from understudy.trust import Person, approval, offer


async def listed(runtime: Any, **filters: Any) -> list[DecidedRequest]:
    return list(await soon(runtime.decided(**filters)))


async def decide(runtime: Runtime, id: str, *decisions: Any) -> None:
    """Have an agent ask, and answer it."""
    outcome = interrupted(await soon(runtime.spawn("desk", id).run("go")))
    await soon(runtime.get(id).resume(outcome.decide(*decisions)))


async def test_each_decision_is_listed_with_who_what_when_and_how_long_it_waited(
    store: str,
) -> None:
    """J36: the record and the row of a decision are one commit."""
    clock = SimulatedClock()
    async with Runtime([desk([], TWO)], store=store, clock=clock) as runtime:
        outcome = interrupted(await soon(runtime.spawn("desk", "a").run("go")))
        first, second = outcome.requests
        await clock.advance(90.0)
        await soon(runtime.get("a").decide({first.id: edit({"order": 7}, by="ann", note="typo")}))
        await clock.advance(30.0)
        await soon(runtime.get("a").resume({second.id: reject("No.", by="bob")}))
        newest, oldest = await listed(runtime)
    assert (newest.type, newest.by, newest.waited) == ("reject", "bob", 120.0)
    assert (oldest.type, oldest.by, oldest.waited) == ("edit", "ann", 90.0)
    assert oldest.request is not None
    assert oldest.request.arguments == {"order": 1}
    assert oldest.decision is not None
    assert (oldest.decision.edited, oldest.decision.note) == ({"order": 7}, "typo")
    assert {each.agent_id for each in (newest, oldest)} == {"a"}
    assert (oldest.agent, oldest.tool_name, oldest.origin) == ("desk", "refund", "person")
    assert oldest.request_id == first.id


async def test_what_nobody_answers_in_time_is_a_decision_by_expiry(store: str) -> None:
    clock = SimulatedClock()
    gate = {"refund": {"expires_after": 60.0}}
    async with Runtime([desk([], ONE, interrupt_on=gate)], store=store, clock=clock) as runtime:
        ref = runtime.spawn("desk", "a")
        await soon(ref.run("go"))
        await clock.advance(61.0)
        await soon(ref.outcome())
        (found,) = await listed(runtime, origin="expiry")
    assert (found.type, found.by, found.origin) == ("reject", None, "expiry")


async def test_what_a_grant_lets_through_is_listed_under_who_gave_it(store: str) -> None:
    gate = {"refund": {"grant": offer(for_at_most=3600, uses=5, free=["order"], scope="agent")}}
    turns = [call("refund", {"order": n}) for n in (1, 2)]
    async with Runtime([desk([], *turns, interrupt_on=gate)], store=store) as runtime:
        later = grant(until=60, uses=3, match=[], scope="agent")
        await decide(runtime, "a", approve(by="ann", grant=later))
        by_grant, given = await listed(runtime, person="ann")
    assert (by_grant.origin, given.origin) == ("grant", "person")
    assert by_grant.decision is not None
    assert by_grant.decision.by_grant == given.request_id
    assert by_grant.request is not None
    assert by_grant.request.arguments == {"order": 2}


async def test_each_who_votes_finds_the_decision(store: str) -> None:
    gate = {"refund": {"approval": approval({"finance": 2})}}
    people = {"ann": ["finance"], "bob": ["finance"]}
    async with Runtime([desk([], ONE, interrupt_on=gate)], store=store, people=people) as runtime:
        outcome = interrupted(await soon(runtime.spawn("desk", "a").run("go")))
        id = outcome.requests[0].id
        for name in ("ann", "bob"):
            ref = runtime.get("a")
            await soon(ref.decide({id: approve(by=name)}))
        await soon(runtime.get("a").outcome())
        for name in ("ann", "bob"):
            (found,) = await listed(runtime, person=name)
            assert found.origin == "votes"
            assert [vote.name for vote in found.votes] == ["ann", "bob"]


async def test_a_person_is_found_by_id_and_login_whatever_the_name(store: str) -> None:
    """J36: `by` has ids, and each vote the name beside its id."""
    gate = {"refund": {"approval": approval({"finance": 2}), "grant": offer(scope="agent")}}
    people = {
        "fin@example": Person(id="p-1", name="Fin Ance", roles=frozenset({"finance"})),
        "mia@example": Person(id="p-2", name="Mia Boss", roles=frozenset({"finance"})),
    }
    turns = [call("refund", {"order": 1}), call("refund", {"order": 1})]
    agent = desk([], *turns, interrupt_on=gate)
    async with Runtime([agent], store=store, people=people) as runtime:
        outcome = interrupted(await soon(runtime.spawn("desk", "a").run("go")))
        id, ref, later = outcome.requests[0].id, runtime.get("a"), grant(scope="agent")
        await soon(ref.decide({id: approve(by="fin@example", grant=later)}))
        await soon(ref.resume({id: approve(by="mia@example", grant=later)}))
        for person in ("p-1", "p-2", "fin@example", "mia@example"):
            by_grant, by_votes = await listed(runtime, person=person)
            assert (by_grant.origin, by_votes.origin) == ("grant", "votes")
            assert (by_grant.by, by_votes.by) == ("p-1, p-2", "p-1, p-2")
            for each in (by_grant, by_votes):
                told = [(v["person"], v["login"], v["name"]) for v in each.to_dict()["votes"]]
                assert told == [
                    ("p-1", "fin@example", "Fin Ance"),
                    ("p-2", "mia@example", "Mia Boss"),
                ]
        assert await listed(runtime, person="Fin Ance") == []
        await soon(runtime.delete("a"))
        assert [each.by for each in await listed(runtime, person="p-1")] == ["p-1, p-2"] * 2


async def test_what_an_agent_inside_asks_is_listed_with_its_path(store: str) -> None:
    """Also where the agent inside ends in the same turn of the loop."""
    cashier = desk([], ONE, interrupt_on={})
    task = call("task", {"task_name": "desk", "instructions": "go"})
    front = Agent(
        "front",
        by_turn(task),
        middleware=[
            SubAgent([cashier], general_purpose=False),
            HumanInTheLoop({"refund": True}),
        ],
    )
    async with Runtime([front], store=store) as runtime:
        outcome = interrupted(await soon(runtime.spawn("front", "a").run("go")))
        await soon(runtime.get("a").resume(outcome.decide(reject("No.", by="ann"))))
        (found,) = await listed(runtime)
    assert found.request is not None
    assert found.request.agent_path == ("front", "desk")
    assert (found.agent, found.agent_id) == ("front", "a")


async def test_a_compaction_keeps_what_was_decided_and_a_deletion_who_decided(
    store: str,
) -> None:
    """J36: an audit outlives its agents, and what they were about does not."""
    async with Runtime([desk([], ONE)], store=store) as runtime:
        await decide(runtime, "a", approve(by="ann", note="secret"))
        before = await listed(runtime)
        await soon(runtime.get("a").compact())
        assert await listed(runtime) == before
        await soon(runtime.delete("a"))
        (after,) = await listed(runtime)
        assert (after.by, after.type, after.at) == ("ann", "approve", before[0].at)
        assert (after.request, after.decision, after.votes) == (None, None, ())
        assert "secret" not in str(after.to_dict())
        await decide(runtime, "a", reject("No.", by="bob"))
        assert [(each.by, each.incarnation) for each in await listed(runtime)] == [
            ("bob", 2),
            ("ann", 1),
        ]


async def test_an_imported_agent_brings_no_decisions_with_it(store: str) -> None:
    """J36: who writes an export would say who has decided here."""
    async with Runtime([desk([], ONE)], store=store) as runtime:
        await decide(runtime, "a", approve(by="ann"))
        exported = await soon(runtime.export("a"))
        await soon(runtime.import_(exported, "copy"))
        assert len(await soon(runtime.get("copy").decisions())) == 1
        assert [each.agent_id for each in await listed(runtime)] == ["a"]


async def test_pages_go_on_behind_their_cursors_while_more_is_decided(store: str) -> None:
    async with Runtime([desk([], ONE)], store=store) as runtime:
        for number in range(5):
            await decide(runtime, f"a{number}", approve(by="ann"))
        page = await soon(runtime.decided(limit=2))
        assert [each.agent_id for each in page] == ["a4", "a3"]
        await decide(runtime, "new", approve(by="ann"))
        rest = await listed(runtime, after=page.after)
        assert [each.agent_id for each in rest] == ["a2", "a1", "a0"]
        with pytest.raises(UsageError, match="other filters"):
            runtime.decided(tool="refund", after=page.after)
        async for each in runtime.decided(limit=2):
            assert each.by == "ann"


async def test_an_observer_lists_them_beside_the_runtime(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'agents.db'}"
    async with Runtime([desk([], ONE)], store=url) as runtime:
        await decide(runtime, "a", approve(by="ann"))
        async with Observer(url) as observer:
            assert await listed(observer, agent_id="a") == await listed(runtime)
            assert await listed(observer, agent_id="b") == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"type": "maybe"}, "`type` must be one of 'approve', 'edit', 'reject'"),
        ({"origin": "me"}, "`origin` must be one of 'person', 'votes', 'grant'"),
        ({"since": timedelta(days=1)}, "`since` must be a datetime with a time zone"),
        ({"person": "a\0b"}, "`person` must be text without NUL"),
        ({"limit": 0}, "`limit` must be an integer"),
    ],
)
async def test_a_wrong_filter_is_named(given: dict[str, Any], said: str) -> None:
    async with Runtime([desk([])]) as runtime:
        with pytest.raises(UsageError, match=said):
            runtime.decided(**given)


async def test_a_store_that_keeps_no_decisions_says_so() -> None:
    async with Runtime([desk([], ONE)], store=PlainStore()) as runtime:
        await decide(runtime, "a", approve(by="ann"))
        with pytest.raises(UsageError, match="'decided' is not in its `keeps`"):
            await soon(runtime.decided())


async def test_a_run_without_decisions_writes_no_row(store: str) -> None:
    @tool
    def look() -> str:
        return "seen"

    agent = Agent("desk", by_turn(call("look"), call("look")), tools=[look])
    async with Runtime([agent], store=store) as runtime:
        await soon(runtime.spawn("desk", "a").run("go"))
        assert await listed(runtime) == []
