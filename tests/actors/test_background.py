"""Calls in the background: `@tool(background=True)` (T30, T31, T32, T33, T34, T35)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import (
    Held,
    by_turn,
    completed,
    contents,
    interrupted,
    told_by_users,
    until_status,
)
from tests.support.hosts import host
from tests.support.loops import soon, until
from tests.support.plans import outcome_of
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    AgentRef,
    Completed,
    Failed,
    Outcome,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    Tool,
    ToolContext,
    UsageError,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.actors import background
from understudy.journal.opening import open_store
from understudy.middleware import SubAgent
from understudy.models import ScriptedRequest
from understudy.state.plans import BackgroundCall
from understudy.tools import ToolFailed
from understudy.trust import Rules, approval, ask

CRAWL = call("crawl", {"site": "a.example"})


def crawler(held: Held | None = None, **options: Any) -> tuple[Any, list[str]]:
    """A background tool, and the sites for which its body was entered."""
    ran: list[str] = []

    @tool(background=True, **options)
    async def crawl(ctx: ToolContext, site: str) -> str:
        """Crawl a site."""
        ran.append(site)
        if held is not None:
            await held.wait()
        return f"{site} has 3 pages"

    return crawl, ran


async def open_call(ref: AgentRef) -> BackgroundCall:
    """The one call that is open in the background."""
    (found,) = (await soon(ref.state())).background
    return found


async def came_of(runtime: Runtime, ref: AgentRef) -> tuple[Outcome, str]:
    """The outcome of the one background call, and what its owner replies to that."""
    (info,) = await runtime.agents(agent="desk__background")
    outcome = await outcome_of(runtime.get(info.id))
    return outcome, completed(await outcome_of(ref)).text


def tells(request: ScriptedRequest) -> Any:
    """Calls `crawl` when it is told to, and repeats each other message."""
    last: Any = request.messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        return "begun"
    return CRAWL if last.content == "crawl" else str(last.content)


async def test_the_model_gets_started_at_once_and_the_result_in_a_message() -> None:
    """T30, T31."""
    held = Held()
    crawl, ran = crawler(held)
    async with Runtime([Agent("desk", ScriptedModel(tells), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        assert completed(await soon(ref.run("crawl"))).text == "begun"
        made = await open_call(ref)
        assert (made.tool_name, made.arguments, made.owner) == ("crawl", {"site": "a.example"}, "a")
        ((_, said),) = contents(await soon(ref.state()))
        assert f"[{made.code}]" in said
        await soon(held.entered.wait())
        assert [info.id for info in await runtime.agents(status="running")] == [made.agent_id]
        held.release.set()
        outcome, told = await came_of(runtime, ref)
        assert completed(outcome).text == "a.example has 3 pages"
        assert told.startswith(f"[{made.code}] ")
        assert "has returned: a.example has 3 pages" in told
        assert (await soon(ref.state())).background == ()
        assert ran == ["a.example"]
        rows = [row for row in (await soon(ref.display())).rows if row.kind == "user"]
        assert [row.detail.get("by") for row in rows] == [None, "understudy"]
        assert [each.name for each in runtime.definitions] == ["desk"]


async def test_nobody_can_send_a_message_as_a_result() -> None:
    """T31."""
    async with Runtime([Agent("desk", by_turn("hello"))]) as runtime:
        with pytest.raises(UsageError, match="must not begin with"):
            runtime.spawn("desk", id="a").send("done", message_id="background/bg-1")


async def test_a_result_joins_the_run_that_is_under_way() -> None:
    """T31."""
    held, look = Held(), Held()
    crawl, _ = crawler(held)

    @tool(read_only=True)
    async def look_up() -> str:
        await look.wait()
        return "found"

    model = by_turn([CRAWL, call("look_up")])
    async with Runtime([Agent("desk", model, tools=[crawl, look_up])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        running = ref.run("go")
        await soon(look.entered.wait())
        made = await open_call(ref)
        held.release.set()
        completed(await outcome_of(runtime.get(made.agent_id)))
        look.release.set()
        outcome = completed(await soon(running))
        assert len(told_by_users(model.requests[-1])) == 2
        assert outcome.state.queue == {}


async def test_a_result_withdraws_nothing_that_a_person_is_asked() -> None:
    """T31."""
    held = Held()
    crawl, _ = crawler(held)

    @tool
    def pay() -> str:
        return "paid"

    model = by_turn(CRAWL, call("pay"))
    agent = Agent("desk", model, tools=[crawl, pay], interrupt_on={"pay": True})
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        (request,) = interrupted(await soon(ref.run("go"))).requests
        made = await open_call(ref)
        held.release.set()
        completed(await outcome_of(runtime.get(made.agent_id)))
        (pending,) = await soon(runtime.pending())
        assert pending.request.id == request.id
        outcome = completed(await soon(ref.resume({request.id: approve()})))
        assert contents(outcome.state)[-1] == ("success", "paid")
        assert made.code in told_by_users(model.requests[-1])[-1]


@pytest.mark.parametrize("gate", ["gate", "rules", "tool"])
async def test_a_person_is_asked_once_and_before_the_call_is_started(gate: str) -> None:
    """T32."""
    crawl, ran = crawler(None, **({"ask": True} if gate == "tool" else {}))
    agent = Agent(
        "desk",
        ScriptedModel(tells),
        tools=[crawl],
        interrupt_on={"crawl": True} if gate == "gate" else None,
    )
    rules = Rules(ask("crawl")) if gate == "rules" else None
    async with Runtime([agent], rules=rules) as runtime:
        ref = runtime.spawn("desk", id="a")
        (request,) = interrupted(await soon(ref.run("crawl"))).requests
        assert (request.tool_name, request.arguments) == ("crawl", {"site": "a.example"})
        assert (ran, (await soon(ref.state())).background) == ([], ())
        await soon(ref.resume({request.id: approve()}))
        outcome, told = await came_of(runtime, ref)
        assert isinstance(outcome, Completed)
        assert "a.example has 3 pages" in told
        assert ran == ["a.example"]


async def test_a_call_that_a_person_rejects_is_not_started() -> None:
    """T32."""
    crawl, ran = crawler(ask=True)
    async with Runtime([Agent("desk", ScriptedModel(tells), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        (request,) = interrupted(await soon(ref.run("crawl"))).requests
        completed(await soon(ref.resume({request.id: reject("no")})))
        assert ran == []
        assert [info.id for info in await runtime.agents()] == ["a"]


def failing(error: Callable[[], BaseException], **options: Any) -> Any:
    @tool(background=True, **options)
    async def crawl(site: str) -> str:
        raise error()

    return crawl


async def test_a_background_call_in_doubt_asks_a_person_and_an_equal_one_is_not_started() -> None:
    """T33."""
    crawl = failing(lambda: TimeoutError("no answer"))
    async with Runtime([Agent("desk", ScriptedModel(tells), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        made = await open_call(ref)
        (request,) = interrupted(await outcome_of(runtime.get(made.agent_id))).requests
        assert (request.kind, request.allowed) == ("doubt", ("respond", "approve", "reject"))
        completed(await soon(ref.run("crawl")))
        (_, (how, said)) = contents(await soon(ref.state()))
        assert how == "failed"
        assert f"open in the background as {made.code}" in said
        await soon(runtime.get(made.agent_id).resume({request.id: respond("3 pages")}))
        _, told = await came_of(runtime, ref)
        assert "3 pages" in told


async def test_a_call_to_which_several_agreed_may_not_run_again_after_a_doubt() -> None:
    """T33."""
    crawl = failing(lambda: TimeoutError("no answer"))
    gates = {"crawl": {"approval": approval({"finance": 2})}}
    agent = Agent("desk", ScriptedModel(tells), tools=[crawl], interrupt_on=gates)
    people = {"ann": ["finance"], "bob": ["finance"]}
    async with Runtime([agent], people=people) as runtime:
        ref = runtime.spawn("desk", id="a")
        interrupted(await soon(ref.run("crawl")))
        await soon(ref.resume(approve(by="ann")))
        completed(await soon(ref.resume(approve(by="bob"))))
        made = await open_call(ref)
        (request,) = interrupted(await outcome_of(runtime.get(made.agent_id))).requests
        assert request.allowed == ("respond", "reject")


async def test_the_model_is_told_of_an_error() -> None:
    """T31."""
    crawl = failing(lambda: ToolFailed("no such site"))
    async with Runtime([Agent("desk", ScriptedModel(tells), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        _, told = await came_of(runtime, ref)
        assert "has failed: no such site" in told


async def test_a_background_call_that_is_cancelled_tells_its_owner() -> None:
    """T34."""
    held = Held()
    crawl, _ = crawler(held)
    async with Runtime([Agent("desk", ScriptedModel(tells), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        made = await open_call(ref)
        await soon(held.entered.wait())
        assert isinstance(await soon(runtime.get(made.agent_id).cancel(by="ann")), Stopped)
        _, told = await came_of(runtime, ref)
        assert "was cut off" in told
        assert "Nobody knows whether it took effect" in told


async def test_a_background_call_waits_for_an_answer_from_outside_without_memory() -> None:
    """T34."""
    tokens: list[str] = []

    @tool(background=True)
    async def crawl(ctx: ToolContext, site: str) -> str:
        tokens.append(await ctx.token("done"))
        return f"{await ctx.wait_for('done')} pages"

    async with Runtime([Agent("desk", ScriptedModel(tells), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        made = await open_call(ref)
        await until_status(runtime.get(made.agent_id), Status.WAITING)
        (wait,) = await soon(runtime.waiting())
        assert (wait.agent_id, wait.name) == (made.agent_id, "done")
        assert await soon(runtime.resolve(tokens[-1], 3))
        _, told = await came_of(runtime, ref)
        assert "has returned: 3 pages" in told


async def test_an_agent_with_an_open_background_call_is_not_retired(tmp_path: Path) -> None:
    """T34."""
    held = Held()
    crawl, _ = crawler(held)
    store = f"sqlite:///{tmp_path / 'a.db'}"
    agent = Agent("desk", ScriptedModel(tells), tools=[crawl])
    async with Runtime([agent], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        await soon(held.entered.wait())
        done = await soon(runtime.retire(older_than=timedelta(0), dry_run=True))
        assert done.left == {"a": "a background call has not brought its result"}
        held.release.set()


async def test_a_sub_agent_runs_in_the_background_under_the_gates_of_its_parent() -> None:
    """T32, T35."""

    @tool
    def pay() -> str:
        return "paid"

    helper = Agent("helper", by_turn(call("pay"), "all is paid"), tools=[pay])

    def reply(request: ScriptedRequest) -> Any:
        last: Any = request.messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return "begun"
        task = call("task", {"task_name": "helper", "instructions": "pay"})
        return task if last.content == "go" else str(last.content)

    agents = SubAgent([helper], general_purpose=False, background=True)
    agent = Agent("desk", ScriptedModel(reply), middleware=[agents], interrupt_on={"pay": True})
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a")
        assert completed(await soon(ref.run("go"))).text == "begun"
        made = await open_call(ref)
        (request,) = interrupted(await outcome_of(runtime.get(made.agent_id))).requests
        assert (request.tool_name, request.agent_path) == ("pay", ("desk", "helper"))
        await soon(runtime.get(made.agent_id).resume({request.id: approve()}))
        _, told = await came_of(runtime, ref)
        assert "all is paid" in told


async def test_what_an_agent_inside_starts_comes_to_the_outermost_one() -> None:
    """T35."""
    crawl, ran = crawler()
    helper = Agent("helper", by_turn(CRAWL, "it has begun"), tools=[crawl])

    def reply(request: ScriptedRequest) -> Any:
        last: Any = request.messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return "begun"
        task = call("task", {"task_name": "helper", "instructions": "crawl"})
        return task if last.content == "go" else str(last.content)

    middleware = [SubAgent([helper], general_purpose=False)]
    async with Runtime([Agent("desk", ScriptedModel(reply), middleware=middleware)]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("go")))
        _, told = await came_of(runtime, ref)
        assert "a.example has 3 pages" in told
        assert ran == ["a.example"]


async def test_it_has_the_deps_and_the_values_of_its_owner() -> None:
    seen: list[Any] = []

    @tool(background=True)
    async def crawl(ctx: ToolContext, site: str) -> str:
        seen.append((ctx.deps, ctx.state.values["shop"]))
        return "done"

    agent = Agent("desk", ScriptedModel(tells), tools=[crawl])
    async with Runtime([agent], deps_for="deps of {}".format) as runtime:
        ref = runtime.spawn("desk", id="a", values={"shop": "Acme"})
        completed(await soon(ref.run("crawl")))
        await came_of(runtime, ref)
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", id="a", values={"shop": "Acme"}, deps="given")
        completed(await soon(ref.run("crawl")))
        await came_of(runtime, ref)
    assert seen == [("deps of a", "Acme"), ("given", "Acme")]


async def test_who_asked_for_a_background_call_has_asked_for_what_it_asks() -> None:
    """T32, T31."""
    held = Held()
    crawl, _ = crawler(held)

    @tool
    def pay() -> str:
        return "paid"

    gates = {"pay": {"approval": approval({"finance": 1}, never=["requester"])}}
    agent = Agent(
        "desk",
        by_turn(CRAWL, "begun", call("pay")),
        tools=[crawl, pay],
        interrupt_on=gates,
    )
    people = {"ann": ["finance"], "bob": ["finance"]}
    async with Runtime([agent], people=people) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl", by="ann")))
        held.release.set()
        (info,) = await runtime.agents(agent="desk__background")
        completed(await outcome_of(runtime.get(info.id)))
        (request,) = interrupted(await outcome_of(ref)).requests
        assert request.requesters == ("ann",)


async def test_the_agent_that_makes_a_background_call_takes_no_messages() -> None:
    """T30."""
    crawl, ran = crawler()
    async with Runtime([Agent("desk", ScriptedModel(tells), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk__background", id="b")
        outcome = await soon(ref.run('{"tool": "crawl"}'))
        assert isinstance(outcome, Failed)
        assert "takes no messages" in outcome.error.message
        assert ran == []


async def test_an_agent_of_a_factory_has_background_calls() -> None:
    crawl, _ = crawler()

    def make(name: str, agent_id: str, values: Any) -> Agent | None:
        assert (name, agent_id) == ("desk", "a")
        return Agent("desk", ScriptedModel(tells), tools=[crawl])

    async with Runtime(factory=make) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        _, told = await came_of(runtime, ref)
        assert "a.example has 3 pages" in told


async def test_a_freeze_of_the_definition_holds_its_background_calls() -> None:
    """T34."""
    held = Held()
    crawl, _ = crawler(held)
    async with Runtime([Agent("desk", ScriptedModel(tells), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        await soon(held.entered.wait())
        try:
            freeze = await soon(runtime.freeze(definition="desk", why="a check", by="ann"))
        finally:
            held.release.set()
        assert [each.tool for each in freeze.entered] == ["crawl"]


def test_without_a_runtime_it_is_refused_before_anything_runs() -> None:
    """T30."""
    crawl, _ = crawler()
    model = ScriptedModel(tells)
    with pytest.raises(UsageError, match=r"run in the background \(crawl\).*Runtime"):
        Agent("desk", model, tools=[crawl]).execute_sync("crawl")
    assert model.requests == []


@pytest.mark.parametrize("options", [{"sequential": True}, {"inline": True}])
def test_options_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="nothing waits for a background call"):

        @tool(background=True, **options)
        def crawl(site: str) -> str:
            return site


@asynccontextmanager
async def at_two_hosts(hosts: Hosts, crawl: Tool) -> AsyncIterator[tuple[Runtime, Runtime]]:
    """Two hosts of an agent "desk" that has this tool."""
    agent = Agent("desk", ScriptedModel(tells), tools=[crawl])
    async with (
        Runtime([agent], store=host(hosts, "here"), sweep=None) as first,
        Runtime([agent], store=host(hosts, "there"), sweep=None) as second,
    ):
        yield first, second


async def test_a_result_reaches_its_owner_at_another_host(hosts: Hosts) -> None:
    """T31."""
    held = Held()
    crawl, ran = crawler(held)
    async with at_two_hosts(hosts, crawl) as (first, second):
        ref = first.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        await soon(held.entered.wait())
        await soon(ref.stop(block=False))
        completed(await soon(second.get("a").run("hello")))
        (row,) = await second.agents(agent="desk")
        assert row.host == "there"
        held.release.set()
        _, told = await came_of(second, second.get("a"))
        assert "a.example has 3 pages" in told
        assert ran == ["a.example"]


# ------------------------------------------------------------- what the model does with calls


def clerk(**calls: Any) -> ScriptedModel:
    """Calls `crawl`, or one of these, when it is told to; else it repeats what it is told."""

    def reply(request: ScriptedRequest) -> Any:
        last: Any = request.messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return str(last.content)
        said = str(last.content)
        return calls[said]() if said in calls else CRAWL if said == "crawl" else said

    return ScriptedModel(reply)


def cancels(open_calls: list[BackgroundCall]) -> Callable[[], Any]:
    return lambda: call("cancel_background_call", {"code": open_calls[-1].code})


async def test_the_model_lists_its_open_calls() -> None:
    """T36."""
    held = Held()
    crawl, _ = crawler(held)
    model = clerk(list=lambda: call("list_background_calls"))
    async with Runtime([Agent("desk", model, tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        made = await open_call(ref)
        await soon(held.entered.wait())
        await soon(ref.run("list"))
        listed = contents(await soon(ref.state()))[-1][1]
        assert [(each["code"], each["arguments"], each["status"]) for each in listed] == [
            (made.code, {"site": "a.example"}, "running")
        ]
        held.release.set()
        await came_of(runtime, ref)
        await soon(ref.run("list"))
        assert contents(await soon(ref.state()))[-1] == ("success", [])


async def test_a_call_that_the_model_cancels_is_in_doubt_and_holds_an_equal_one() -> None:
    """T36, T33."""
    held, calls = Held(), list[BackgroundCall]()
    crawl, ran = crawler(held)
    async with Runtime([Agent("desk", clerk(stop=cancels(calls)), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        calls.append(await open_call(ref))
        await soon(held.entered.wait())
        state = completed(await soon(ref.run("stop"))).state
        assert f"[{calls[0].code}]" in contents(state)[-1][1]
        told = told_by_users_of(state)[-1]
        assert told.startswith(f"[{calls[0].code}] ")
        assert "the model of 'desk' has cancelled it" in told
        assert "Nobody knows whether it took effect" in told
        assert state.background == ()
        assert isinstance(await outcome_of(runtime.get(calls[0].agent_id)), Stopped)
        (doubt,) = await soon(runtime.doubts())
        assert (doubt.agent_id, doubt.tool_name) == (calls[0].agent_id, "crawl")
        completed(await soon(ref.run("crawl")))
        how, said = contents(await soon(ref.state()))[-1]
        assert (how, calls[0].agent_id in said) == ("failed", True)
        await soon(runtime.get(doubt.agent_id).settle(doubt.call_key, how="it did nothing"))
        completed(await soon(ref.run("crawl")))
        assert (await open_call(ref)).code != calls[0].code
        await until(lambda: ran == ["a.example", "a.example"])
        held.release.set()


def told_by_users_of(state: Any) -> list[str]:
    parts = (part for message in state.messages for part in message.parts)
    return [str(part.content) for part in parts if part.part_kind == "user-prompt"]


async def test_a_call_that_reads_only_is_cancelled_without_a_doubt() -> None:
    """T36."""
    held, calls = Held(), list[BackgroundCall]()
    crawl, _ = crawler(held, read_only=True)
    async with Runtime([Agent("desk", clerk(stop=cancels(calls)), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        calls.append(await open_call(ref))
        await soon(held.entered.wait())
        state = completed(await soon(ref.run("stop"))).state
        assert "Nobody knows" not in told_by_users_of(state)[-1]
        assert isinstance(await outcome_of(runtime.get(calls[0].agent_id)), Stopped)
        assert await soon(runtime.doubts()) == []
        await soon(ref.run("stop"))  # it has ended
        how, said = contents(await soon(ref.state()))[-1]
        assert (how, "has ended already" in said) == ("success", True)


async def test_a_call_that_is_not_its_own_is_not_cancelled() -> None:
    """T36."""
    held, calls = Held(), list[BackgroundCall]()
    crawl, _ = crawler(held)
    async with Runtime([Agent("desk", clerk(stop=cancels(calls)), tools=[crawl])]) as runtime:
        ref, other = runtime.spawn("desk", id="a"), runtime.spawn("desk", id="b")
        completed(await soon(ref.run("crawl")))
        calls.append(await open_call(ref))
        await soon(other.run("stop"))
        assert contents(await soon(other.state()))[-1] == (
            "failed",
            f"No call {calls[0].code!r} is open in the background; open are: none",
        )
        assert await open_call(ref) == calls[0]
        held.release.set()


async def test_a_call_whose_agent_is_gone_is_open_no_longer_once_it_is_cancelled() -> None:
    """T36."""
    calls: list[BackgroundCall] = []
    crawl = failing(lambda: TimeoutError("no answer"))
    async with Runtime([Agent("desk", clerk(stop=cancels(calls)), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        calls.append(await open_call(ref))
        interrupted(await outcome_of(runtime.get(calls[0].agent_id)))
        await soon(runtime.get(calls[0].agent_id).stop(block=False))
        assert await soon(runtime.delete(calls[0].agent_id))
        state = completed(await soon(ref.run("stop"))).state
        assert "nobody knows what it did" in told_by_users_of(state)[-1]
        assert state.background == ()


async def test_an_agent_inside_cancels_what_it_has_started_alone() -> None:
    """T36, T35."""
    held, calls = Held(), list[BackgroundCall]()
    crawl, _ = crawler(held, read_only=True)
    seen: list[Any] = []

    def inside(request: ScriptedRequest) -> Any:
        last: Any = request.messages[-1].parts[-1]
        if last.part_kind != "tool-return":
            return [call("list_background_calls"), cancels(calls)()]
        parts: Any = request.messages[-1].parts
        seen.extend(part.content for part in parts)
        return "looked"

    helper = Agent("helper", ScriptedModel(inside), tools=[crawl])
    model = clerk(
        help=lambda: call("task", {"task_name": "helper", "instructions": "look"}),
        stop=cancels(calls),
    )
    agents = SubAgent([helper], general_purpose=False)
    async with Runtime([Agent("desk", model, tools=[crawl], middleware=[agents])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        calls.append(await open_call(ref))
        await soon(held.entered.wait())
        completed(await soon(ref.run("help")))
        assert (seen[0], "open are: none" in seen[1]) == ([], True)
        completed(await soon(ref.run("stop")))
        assert (await soon(ref.state())).background == ()


def names_for(agent: Agent[Any, Any]) -> set[str]:
    return set(agent.definition.tools)


def test_only_agents_with_background_calls_have_the_tools_for_them() -> None:
    """T36."""
    added = {"list_background_calls", "cancel_background_call"}
    crawl, _ = crawler()
    helper = Agent("helper", by_turn(), tools=[crawl])

    @tool
    def pay() -> str:
        return "paid"

    assert names_for(Agent("desk", by_turn(), tools=[pay])) == {"pay"}
    assert names_for(helper) == {"crawl", *added}
    outer = Agent("desk", by_turn(), middleware=[SubAgent([helper])])
    assert names_for(outer) == {"task", *added}


def test_a_tool_of_the_same_name_is_refused() -> None:
    crawl, _ = crawler()

    @tool
    def cancel_background_call(code: str) -> str:
        return code

    with pytest.raises(UsageError, match=r"two tools named .cancel_background_call.*rename one"):
        Agent("desk", by_turn(), tools=[crawl, cancel_background_call])


async def test_two_calls_of_one_turn_are_made_by_two_agents() -> None:
    """T30."""
    crawl, ran = crawler()
    two = [call("crawl", {"site": site}) for site in ("a.example", "b.example")]
    async with Runtime([Agent("desk", by_turn(two, "begun", "done"), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("go")))
        made = await runtime.agents(agent="desk__background")
        for info in made:
            completed(await outcome_of(runtime.get(info.id)))
        assert (len(made), sorted(ran)) == (2, ["a.example", "b.example"])


class Stubborn:
    """A background tool whose code goes on for a while after it is cancelled."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.release = asyncio.Event()

    def tool(self) -> Any:
        @tool(background=True)
        async def crawl(site: str) -> str:
            self.entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
                await self.release.wait()
            return site

        return crawl


async def test_a_runtime_closes_while_the_model_cancels_a_call(tmp_path: Path) -> None:
    """T36."""
    stubborn, calls = Stubborn(), list[BackgroundCall]()
    store = f"sqlite:///{tmp_path / 'a.db'}"
    agent = Agent("desk", clerk(stop=cancels(calls)), tools=[stubborn.tool()])
    async with Runtime([agent], store=store, cancel_timeout=600) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        calls.append(await open_call(ref))
        await soon(stubborn.entered.wait())
        stopping = ref.run("stop")
        await soon(stubborn.cancelled.wait())
        await soon(ref.stop(block=False))  # it does not wait for the end of the other agent
        stubborn.release.set()
        completed(await soon(stopping))
        assert (await soon(ref.state())).background == ()
        # The owner hears of the end before the end is recorded.
        assert isinstance(await outcome_of(runtime.get(calls[0].agent_id)), Stopped)
        (doubt,) = await soon(runtime.doubts())
        assert doubt.agent_id == calls[0].agent_id


# -------------------------------------------------------------------------- owners that go away


async def test_open_calls_of_a_deleted_owner_are_cancelled_and_listed_as_doubts() -> None:
    """T36."""
    held = Held()
    crawl, ran = crawler(held)
    async with Runtime([Agent("desk", ScriptedModel(tells), tools=[crawl])]) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        made = await open_call(ref)
        await soon(held.entered.wait())
        assert await soon(runtime.delete("a", by="ann"))
        stopped = await outcome_of(runtime.get(made.agent_id))
        assert isinstance(stopped, Stopped)
        assert "its owner is deleted" in str(stopped.signals)
        (doubt,) = await soon(runtime.doubts())
        assert (doubt.agent_id, doubt.arguments) == (made.agent_id, {"site": "a.example"})
        # Another agent of this id gets nothing of it, and its calls have agents of their own.
        held.release.set()
        again = runtime.spawn("desk", id="a")
        completed(await soon(again.run("hello")))
        assert told_by_users_of(await soon(again.state())) == ["hello"]
        assert ran == ["a.example"]


async def test_a_new_agent_of_a_deleted_id_has_agents_of_its_own_for_its_calls() -> None:
    """T30, T36."""
    crawl, ran = crawler(read_only=True)
    async with Runtime([Agent("desk", ScriptedModel(tells), tools=[crawl])]) as runtime:
        for _ in range(2):
            ref = runtime.spawn("desk", id="a")
            completed(await soon(ref.run("crawl")))
            for info in await runtime.agents(agent="desk__background"):
                completed(await outcome_of(runtime.get(info.id)))
            assert "has returned" in completed(await outcome_of(ref)).text
            assert await soon(runtime.delete("a"))
        assert len(await runtime.agents(agent="desk__background")) == 2
        assert ran == ["a.example", "a.example"]


async def test_a_passive_call_of_a_deleted_owner_is_cancelled_in_the_next_runtime(
    tmp_path: Path,
) -> None:
    """T36."""

    @tool(background=True)
    async def crawl(ctx: ToolContext, site: str) -> str:
        await ctx.token("done")
        return f"{await ctx.wait_for('done')} pages"

    store = f"sqlite:///{tmp_path / 'a.db'}"
    agent = Agent("desk", ScriptedModel(tells), tools=[crawl])
    async with Runtime([agent], store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        made = await open_call(ref)
        await until_status(runtime.get(made.agent_id), Status.WAITING)
    async with Runtime([agent], store=store) as runtime:
        assert await soon(runtime.delete("a"))
        assert isinstance(await outcome_of(runtime.get(made.agent_id)), Stopped)
        assert await soon(runtime.waiting()) == []


async def test_a_deletion_at_another_host_cancels_open_calls(hosts: Hosts) -> None:
    """T36."""
    held = Held()
    crawl, _ = crawler(held)
    async with at_two_hosts(hosts, crawl) as (first, second):
        ref = first.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        made = await open_call(ref)
        await soon(held.entered.wait())
        assert await soon(second.delete("a"))
        assert isinstance(await outcome_of(second.get(made.agent_id)), Stopped)
        (doubt,) = await soon(second.doubts())
        assert doubt.agent_id == made.agent_id


async def test_a_deletion_that_was_cut_off_cancels_open_calls_when_it_is_repeated(
    tmp_path: Path,
) -> None:
    """T36."""
    held = Held()
    crawl, _ = crawler(held)
    store = open_store(f"sqlite:///{tmp_path / 'a.db'}")
    async with Runtime(
        [Agent("desk", ScriptedModel(tells), tools=[crawl])], store=store
    ) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        made = await open_call(ref)
        await soon(held.entered.wait())
        await soon(ref.stop(block=False))
        assert await store.delete("a")
        assert not await soon(runtime.delete("a"))
        assert isinstance(await outcome_of(runtime.get(made.agent_id)), Stopped)


async def test_an_agent_whose_owner_cannot_be_reached_is_passivated_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """T34."""
    monkeypatch.setattr(background, "FIRST_PAUSE", 3600.0)
    held = Held()
    crawl, ran = crawler(held)
    store = f"sqlite:///{tmp_path / 'a.db'}"
    desk = Agent("desk", ScriptedModel(tells), tools=[crawl])
    is_away, tried = False, list[str]()

    def make(name: str, agent_id: str, values: Any) -> Agent[Any, Any]:
        if is_away and name == "desk" and agent_id == "a":
            tried.append(agent_id)
            raise RuntimeError("its definition is away")
        return desk

    async with Runtime(factory=make, store=store) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("crawl")))
        made = await open_call(ref)
        await soon(held.entered.wait())
        await soon(ref.stop(block=False))
        is_away = True
        held.release.set()
        maker = runtime.get(made.agent_id)
        await until(lambda: bool(tried))
        await soon(maker.stop(block=False))
        is_away = False
        _, told = await came_of(runtime, ref)
        assert "a.example has 3 pages" in told
        assert ran == ["a.example"]
