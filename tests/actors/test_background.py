"""Calls in the background: `@tool(background=True)` (T30, T31, T32, T33, T34, T35)."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.support.loops import soon
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
    ToolContext,
    UsageError,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.journal.database_store import DatabaseStore
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


async def test_a_result_reaches_its_owner_at_another_host(hosts: Hosts) -> None:
    """T31."""
    held = Held()
    crawl, ran = crawler(held)
    agent = Agent("desk", ScriptedModel(tells), tools=[crawl])
    here, there = DatabaseStore(hosts.new("here")), DatabaseStore(hosts.new("there"))
    async with (
        Runtime([agent], store=here, sweep=None) as first,
        Runtime([agent], store=there, sweep=None) as second,
    ):
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
