"""The requests that wait as a queue: titles, filters, counts, and the place of each request."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.support.agents import by_turn, interrupted
from tests.support.loops import soon
from tests.support.places import NewStore
from understudy import Agent, Interrupt, Runtime, ToolContext, UsageError, approve, call, tool
from understudy.actors import PendingRequest
from understudy.middleware import AskUser, HumanInTheLoop

MINUTE = 60


@tool(ask={"title": "Refund {amount:,.2f} {currency} to {to.name}", "expires_after": 20 * MINUTE})
async def refund(amount: float, currency: str, to: dict[str, str]) -> str:
    return "refunded"


@tool(ask={"expires_after": 90 * MINUTE})
async def deploy(version: str) -> str:
    return "deployed"


@tool
async def seat(ctx: ToolContext, passenger: str) -> str:
    if ctx.resume_value is None:
        raise Interrupt({"row": 7}, title="Which seat of row {row} for {passenger}?")
    return str(ctx.resume_value)


def paying(amount: float, name: str) -> Any:
    return call("refund", {"amount": amount, "currency": "EUR", "to": {"name": name}})


DESKS = [
    Agent("ada", by_turn(paying(1234.5, "Ada")), tools=[refund]),
    Agent("grace", by_turn(paying(7, "Grace 100%")), tools=[refund]),
    Agent("ops", by_turn(call("deploy", {"version": "1_0"})), tools=[deploy]),
    Agent("travel", by_turn(call("seat", {"passenger": "Ada"})), tools=[seat]),
]


async def ask(runtime: Runtime, *names: str) -> None:
    for name in names:
        interrupted(await soon(runtime.spawn(name, f"{name}-1").run("Go.")))


def ids(found: list[PendingRequest]) -> list[str]:
    return [each.agent for each in found]


@pytest.mark.quick
async def test_requests_are_found_by_kind_time_and_words(new_store: NewStore) -> None:
    async with Runtime(DESKS, store=new_store()) as runtime:
        await ask(runtime, "ada", "grace", "ops", "travel")

        async def found(**filters: Any) -> list[str]:
            return ids(await soon(runtime.pending(**filters)))

        assert await found(kind="interrupt") == ["travel"]
        assert await found(kind="approval", tool="refund") == ["ada", "grace"]
        assert await found(kind="none") == []
        assert await found(within=30 * MINUTE) == ["ada", "grace"]
        assert await found(within=timedelta(hours=2)) == ["ada", "grace", "ops"]
        assert await found(search="ADA") == ["ada", "travel"]
        assert await found(search="ada refund 1,234.50") == ["ada"]
        assert await found(search="100%") == ["grace"]
        assert await found(search="%") == ["grace"]
        assert await found(search="_") == [], "an underscore stands for itself"
        assert await found(search="row 7 for ada") == ["travel"]
        assert await found(search="OPS-1") == ["ops"]
        assert await found(search="  ") == ["ada", "grace", "ops", "travel"]
        (ops,) = [each for each in await soon(runtime.pending()) if each.agent == "ops"]
        assert await found(search=ops.request.id) == ["ops"]
        assert await found(search="'; DROP TABLE asks; --") == []
        page = await soon(runtime.pending(within=3600, search="refund", limit=1))
        rest = await soon(runtime.pending(within=3600, search="refund", after=page.after, limit=1))
        assert ids([*page, *rest]) == ["ada", "grace"]
        with pytest.raises(UsageError, match="other filters"):
            await soon(runtime.pending(search="refund", after=page.after))


@pytest.mark.quick
@pytest.mark.parametrize(
    "word", ["%" * 2000, "\N{GREEK SMALL LETTER IOTA WITH DIALYTIKA AND TONOS}" * 2000]
)
async def test_the_longest_search_finds_nothing_and_breaks_no_store(
    word: str, new_store: NewStore
) -> None:
    """SQLite compares with no long text, and a search for one was told as a broken store."""
    async with Runtime(DESKS, store=new_store()) as runtime:
        await ask(runtime, "ada")
        (first,) = await soon(runtime.pending())
        assert await soon(runtime.pending(search=word)) == []
        assert (await soon(runtime.count_pending(search=word))).total() == 0
        place = await soon(runtime.pending_place("ada-1", first.request, search=word))
        assert (place.before, place.next) == (0, None)


@pytest.mark.parametrize(
    ("filters", "culprit"),
    [
        ({"search": 7}, "`search`"),
        ({"search": "a " * 21}, "21 words"),
        ({"search": "a" * 2001}, "2,001 characters"),
        ({"kind": 7}, "`kind`"),
        ({"within": -1}, "within"),
        ({"within": "soon"}, "within"),
    ],
)
async def test_a_filter_that_cannot_be_is_refused_at_once(
    filters: dict[str, Any], culprit: str
) -> None:
    async with Runtime(DESKS) as runtime:
        with pytest.raises(UsageError, match=culprit):
            runtime.pending(**filters)


@pytest.mark.quick
async def test_what_waits_is_counted_by_each_filter_beside_the_others(new_store: NewStore) -> None:
    async with Runtime(DESKS, store=new_store()) as runtime:
        assert (await soon(runtime.count_pending())).total() == 0
        await ask(runtime, "ada", "grace", "ops", "travel")
        counts = await soon(runtime.count_pending())
        assert counts.total() == 4
        assert counts.by("kind") == {"approval": 3, "interrupt": 1}
        assert counts.by("tool") == {"refund": 2, "deploy": 1, "seat": 1}
        assert counts.by("tool", tool="refund", kind="approval") == {"refund": 2, "deploy": 1}
        assert [counts.total(within=each) for each in (1800, 3600, 4 * 3600)] == [2, 2, 3]
        assert counts.total(agent="ada", within=1800) == 1
        searched = await soon(runtime.count_pending(search="ada"))
        assert searched.by("agent") == {"ada": 1, "travel": 1}
        (ada,) = await soon(runtime.pending(agent="ada"))
        await soon(runtime.get("ada-1").decide(ada.decide(approve())))
        assert (await soon(runtime.count_pending())).total() == 3


@pytest.mark.quick
async def test_a_request_has_its_place_in_the_queue_also_when_it_is_decided(
    new_store: NewStore,
) -> None:
    async with Runtime(DESKS, store=new_store()) as runtime:
        await ask(runtime, "ada", "ops", "grace")
        ada, ops, grace = await soon(runtime.pending())

        async def around(of: PendingRequest, **filters: Any) -> Any:
            place = await soon(runtime.pending_place(of.agent_id, of.request, **filters))
            before, behind = place.previous, place.next
            return place.before, before and before[0], behind and behind[0]

        assert await around(ada) == (0, None, "ops-1")
        assert await around(ops) == (1, "ada-1", "grace-1")
        assert await around(grace) == (2, "ops-1", None)
        assert await around(ada, tool="refund") == (0, None, "grace-1")
        assert await around(ops, order="expiring") == (2, "grace-1", None)
        assert await around(ada, search="grace", within=3600) == (0, None, "grace-1")
        await soon(runtime.get("ops-1").decide(ops.decide(approve())))
        assert await around(ops) == (1, "ada-1", "grace-1")
        place = await soon(runtime.pending_place(ada.agent_id, ada.request))
        assert place.next == (grace.agent_id, grace.request.id)


async def test_a_title_is_what_the_application_calls_a_request(new_store: NewStore) -> None:
    gate = HumanInTheLoop({"deploy": {"title": "Put {version} live", "display": lambda *_: "!"}})
    agents = [
        *DESKS,
        Agent("gated", by_turn(call("deploy", {"version": "2.0"})), tools=[deploy],
              middleware=[gate]),
        Agent("asks", by_turn(call("ask_user", {"questions": [{"question": "How {many}?"},
              {"question": "When?"}]})), middleware=[AskUser()]),
    ]  # fmt: skip
    async with Runtime(agents, store=new_store()) as runtime:
        await ask(runtime, "ada", "travel", "asks", "gated", "ops")
        titles = {each.agent: each.request.title for each in await soon(runtime.pending())}
    assert titles == {
        "ada": "Refund 1,234.50 EUR to Ada",
        "travel": "Which seat of row 7 for Ada?",
        "asks": "How {many}?, When?",
        "gated": "Put 2.0 live",
        "ops": "",
    }
