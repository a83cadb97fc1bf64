"""Each verb that says who asks for it, with an agent that it can be asked of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.support.agents import by_turn, completed, desk, interrupted
from tests.support.loops import soon
from understudy import Agent, Runtime, ScriptedModel, approve, call, tool
from understudy.actors.verbs import VERBS, Verb
from understudy.middleware import HumanInTheLoop
from understudy.trust import Budget, approval, calls

__all__ = [
    "BESIDE",
    "BUDGETS",
    "BY",
    "NEED_RUNTIME",
    "OF_RUNTIME",
    "PEOPLE",
    "PREPARED",
    "SIGNED",
    "Act",
    "agents",
    "asked_by",
    "immovable_agents",
]

BY = "ann"
"""Who asks for the act, and for nothing before it."""
PEOPLE: Mapping[str, Any] = {BY: ["ops"], "bob": [], "cy": ["ops"]}
"""Who may vote, for what needs that."""
NEED_RUNTIME = frozenset(
    {
        "close_review",
        "delegate",
        "end_delegation",
        "freeze",
        "raise_budget",
        "require",
        "retry_notice",
        "thaw",
    }
)
"""The verbs that a cluster refuses: it knows no people, has no budgets, freezes nothing, and tells
nobody."""
BUDGETS = (Budget("mails", calls("send_*", 5)),)
"""What is raised; none of these agents has such a tool."""
OF_RUNTIME = frozenset(
    {
        "import_",
        "recover",
        "delegate",
        "end_delegation",
        "raise_budget",
        "freeze",
        "require",
        "retry_notice",
        "thaw",
    }
)
"""The verbs that are asked of a runtime, with no agent's id as the first argument."""
BESIDE = frozenset({"take", "comment", "snooze", "assign"})
"""The verbs that write beside a request. No record of an agent has them."""
SIGNED = [verb for verb in VERBS.values() if verb.is_signed]


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    raise ConnectionError("the line is dead")


def _broken(_request: Any) -> Any:
    raise RuntimeError("no model today")


def agents(**options: Any) -> list[Agent]:
    """What the acts are about; a cluster makes them by their name."""
    pays = by_turn(call("pay", {"amount": 5}))
    gated = [HumanInTheLoop({"pay": True})]
    voted: Any = {"pay": {"approval": approval({"ops": 2}, break_glass={"ops": 1})}}
    return [
        desk("hello", **options),
        Agent("voted", pays, tools=[pay], interrupt_on=voted, **options),
        Agent("gated", pays, tools=[pay], middleware=gated, **options),
        Agent("doubting", by_turn(call("pay", {"amount": 5})), tools=[pay], **options),
        Agent("broken", ScriptedModel(_broken), **options),
    ]


def immovable_agents() -> list[Agent]:
    """The same, which stay at their host: another host posts what it asks of them."""
    return agents(movable=False)


@dataclass(frozen=True)
class Act:
    """What a verb is asked with."""

    id: str
    """Of the agent."""
    arguments: Mapping[str, Any] = field(default_factory=dict)


async def _on_desk(runtime: Runtime, **arguments: Any) -> Act:
    await soon(runtime.spawn("desk", id="a").run("first"))
    return Act("a", arguments)


async def _waiting(runtime: Runtime) -> Act:
    interrupted(await soon(runtime.spawn("gated", id="g").run("go")))
    return Act("g")


async def _beside(runtime: Runtime, **arguments: Any) -> Act:
    [request] = interrupted(await soon(runtime.spawn("gated", id="g").run("go"))).requests
    return Act("g", {"request_id": request.id, **arguments})


async def _snooze(runtime: Runtime) -> Act:
    return await _beside(runtime, until=await soon(runtime.now()) + timedelta(hours=2))


async def _cancel_message(runtime: Runtime) -> Act:
    await _on_desk(runtime)
    at = (await soon(runtime.now())).replace(year=2999)
    await soon(runtime.get("a").send("later", at=at, message_id="m"))
    return Act("a", {"message_id": "m"})


async def _unpause(runtime: Runtime) -> Act:
    await _on_desk(runtime)
    await soon(runtime.get("a").pause())
    return Act("a")


async def _retry(runtime: Runtime) -> Act:
    await soon(runtime.spawn("broken", id="b").run("go"))
    return Act("b")


async def _settle(runtime: Runtime) -> Act:
    completed(await soon(runtime.spawn("doubting", id="d").run("pay")))
    (doubt,) = await soon(runtime.doubts())
    return Act("d", {"call_key": doubt.call_key, "how": "it was paid"})


async def _revoke(runtime: Runtime) -> Act:
    ref = runtime.spawn("gated", id="g")
    outcome = interrupted(await soon(ref.run("go")))
    await soon(ref.resume(outcome.decide(approve(always=True))))
    return Act("g", {"grant_id": outcome.requests[0].id})


async def _scheduled(runtime: Runtime, *names: str) -> Act:
    await _on_desk(runtime)
    schedules = runtime.schedules("a")
    await soon(schedules.set("daily", cron="0 9 * * *", input="go"))
    for name in names:
        await soon(getattr(schedules, name)("daily"))
    return Act("a", {"schedule": "daily"})


async def _import(runtime: Runtime) -> Act:
    await _on_desk(runtime)
    return Act("a", {"data": await soon(runtime.export("a")), "id": "copy"})


async def _reviewed(runtime: Runtime) -> Act:
    ref = runtime.spawn("voted", id="v")
    [request] = interrupted(await soon(ref.run("go"))).requests
    await soon(ref.resume(approve(break_glass=True, note="now", by="cy")))
    return Act("v", {"review_id": request.id})


async def _thaw(runtime: Runtime) -> Act:
    return Act("a", {"id": (await soon(runtime.freeze(why="a leak"))).id})


async def _given(runtime: Runtime) -> dict[str, Any]:
    until = (await soon(runtime.now())).replace(year=2999)
    return {"from_": BY, "to": "bob", "roles": ["ops"], "until": until, "reason": "away"}


async def _delegate(runtime: Runtime) -> Act:
    return Act("a", await _given(runtime))


async def _raise_budget(_runtime: Runtime) -> Act:
    return Act("a", {"name": "mails", "amount": "3", "why": "a campaign"})


async def _delegated(runtime: Runtime) -> Act:
    made = await soon(runtime.delegate(**await _given(runtime), by="cy"))
    return Act("a", {"id": made.id})


PREPARED: Mapping[str, Callable[[Runtime], Awaitable[Act]]] = {
    "run": lambda runtime: _on_desk(runtime, input="go"),
    "send": lambda runtime: _on_desk(runtime, input="go"),
    "cancel_message": _cancel_message,
    "cancel": _waiting,
    "pause": _on_desk,
    "unpause": _unpause,
    "retry": _retry,
    "settle": _settle,
    "revoke": _revoke,
    "compact": _on_desk,
    "delete": _on_desk,
    "schedules.set": lambda runtime: _on_desk(
        runtime, schedule="daily", cron="0 9 * * *", input="go"
    ),
    "schedules.trigger": _scheduled,
    "schedules.pause": _scheduled,
    "schedules.resume": lambda runtime: _scheduled(runtime, "pause"),
    "schedules.remove": _scheduled,
    "export": _on_desk,
    "import_": _import,
    "recover": _on_desk,
    "close_review": _reviewed,
    "take": _beside,
    "comment": lambda runtime: _beside(runtime, text="Who is that?"),
    "snooze": _snooze,
    "assign": lambda runtime: _beside(runtime, to="bob"),
    "delegate": _delegate,
    "end_delegation": _delegated,
    "freeze": lambda runtime: _on_desk(runtime, why="a leak"),
    "thaw": _thaw,
    "require": lambda runtime: _on_desk(runtime, name="freeze"),
    "raise_budget": _raise_budget,
    "retry_notice": lambda runtime: _on_desk(runtime, no=1),
}
"""By verb, what makes an agent of which it can be asked; nobody is named for that."""


async def asked_by(source: Any, verb: Verb, act: Act) -> None:
    """Ask for it by a ref, of a runtime or of a cluster."""
    arguments = dict(act.arguments)
    first: list[Any] = []
    if verb.name.startswith("schedules."):
        of, first = source.schedules(act.id), [arguments.pop("schedule")]
    elif verb.name in ("delete", "export"):
        of, first = source, [act.id]
    elif verb.name in BESIDE:
        of, first = source, [act.id, arguments.pop("request_id")]
        if verb.name == "comment":
            first.append(arguments.pop("text"))
    elif verb.name in OF_RUNTIME:
        of = source
    else:
        of = source.get(act.id)
    await soon(getattr(of, verb.method)(*first, **arguments, by=BY))
