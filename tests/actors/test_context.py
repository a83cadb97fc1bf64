"""Context: what held for the caller holds for the code of its run, wherever that is (J90)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.agents import Held, by_turn, completed, interrupted, reloaded
from tests.support.hosts import host, opened, posts
from tests.support.inline_engine import Inline
from tests.support.loops import soon, until
from tests.support.places import Place, SqlitePlace
from tests.support.plans import HOUR, later, outcome_of
from tests.support.postgres import Hosts
from tests.support.tenants import CODECS, TENANT, of, tenant
from understudy import (
    Agent,
    AgentRef,
    Paused,
    Run,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Stopped,
    ToolContext,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.cluster import Cluster, Definitions
from understudy.middleware import Middleware, SubAgent
from understudy.modes.workflows.sequential import Sequential


class Seen:
    """Tools and hooks that note for whom they ran."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []
        self.contexts: list[dict[str, str]] = []
        seen = self

        @tool(idempotent=True)
        async def note(ctx: ToolContext) -> str:
            """Note."""
            seen.note("tool")
            seen.contexts.append(dict(ctx.context))
            return "noted"

        @tool(idempotent=True)
        def plain(ctx: ToolContext) -> str:
            """Note it in a thread."""
            assert threading.current_thread() is not threading.main_thread()
            seen.note("thread")
            return ctx.context.get("tenant", "")

        @tool(ask=True)
        async def gated() -> str:
            """Note what a person has approved."""
            seen.note("gated")
            return "done"

        self.tools = [note, plain, gated]
        self.hooks = _Hooks(self)

    def note(self, what: str) -> None:
        self.notes.append((what, tenant.get()))

    def agent(self, *turns: Any, name: str = "desk", **options: Any) -> Agent:
        return Agent(name, by_turn(*turns), tools=self.tools, **options)


class _Hooks(Middleware):
    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    async def on_run_start(self, run: Run) -> None:
        self._seen.note("start")
        self._seen.contexts.append(dict(run.context))

    def before_step(self, run: Run) -> None:  # type: ignore[override]  # a hook may be plain
        assert threading.current_thread() is not threading.main_thread()
        self._seen.note("plain hook")

    async def on_run_end(self, run: Run, outcome: Any) -> None:
        self._seen.note("end")


@pytest.fixture
def seen() -> Seen:
    return Seen()


def run_of(ref: AgentRef, value: str | None, input: str = "go") -> Any:
    if value is None:
        return ref.run(input)
    with of(value):
        return ref.run(input)


async def test_tools_hooks_and_threads_have_the_context_of_the_caller(seen: Seen) -> None:
    """J90."""
    agent = seen.agent([call("note", {}), call("plain", {})], middleware=[seen.hooks])
    async with Runtime([agent], **CODECS) as runtime:
        outcome = completed(await run_of(runtime.spawn("desk", "a"), "acme"))
    assert {what for what, _ in seen.notes} == {"start", "plain hook", "tool", "thread", "end"}
    assert {who for _, who in seen.notes} == {"acme"}
    assert seen.contexts == [{"tenant": "acme"}] * 2
    assert reloaded(outcome.state).run.context == {"tenant": "acme"}  # type: ignore[union-attr]


async def test_each_run_has_that_of_its_own_caller(seen: Seen) -> None:
    turns: list[Any] = [call("note", {}), "done"] * 4
    agent = Agent("desk", ScriptedModel(turns), tools=seen.tools)
    async with Runtime([agent], **CODECS) as runtime:
        ref = runtime.spawn("desk", "a")
        for value in ("acme", None, "zeta"):
            await run_of(ref, value)
        await ref.stop(block=False)
        await run_of(ref, None)
    assert [who for _, who in seen.notes] == ["acme", "nobody", "zeta", "nobody"]
    assert seen.contexts == [{"tenant": "acme"}, {}, {"tenant": "zeta"}, {}]


def test_it_is_captured_in_the_thread_of_the_caller(seen: Seen) -> None:
    with Runtime([seen.agent(call("note", {}))], **CODECS) as runtime:
        run_of(runtime.spawn("desk", "a"), "acme").get()
    assert seen.notes == [("tool", "acme")]


async def test_it_is_there_after_a_decision_in_every_store_and_after_a_crash(
    place: Place, seen: Seen
) -> None:
    """J90."""

    def agent() -> Agent:
        return seen.agent(call("gated", {}), call("note", {}), middleware=[seen.hooks])

    async with Runtime([agent()], store=place.store(), **CODECS) as runtime:
        asked = interrupted(await run_of(runtime.spawn("desk", "a"), "acme"))
        assert asked.requests[0].context == {"tenant": "acme"}
        (pending,) = await runtime.pending()
        assert pending.request.context == {"tenant": "acme"}
    async with Runtime([agent()], store=place.after_crash(), **CODECS) as runtime:
        ref = runtime.get("a")
        with of("ann of zeta"):
            future = ref.resume(asked.decide(approve(by="ann")))
        completed(await future)
        (decision,) = await ref.decisions()
        assert decision.context == {"tenant": "ann of zeta"}
        history = (await ref.history()).entries
    assert {who for _, who in seen.notes} == {"acme"}
    assert {"gated", "end"} <= {what for what, _ in seen.notes}
    kept = {entry.what: entry.detail["context"] for entry in history if "context" in entry.detail}
    assert kept == {
        "run_started": {"tenant": "acme"},
        "request": {"tenant": "acme"},
        "decision": {"tenant": "ann of zeta"},
    }


async def test_it_is_there_where_a_run_is_recovered(place: Place, seen: Seen) -> None:
    held = Held()

    @tool(idempotent=True)
    async def wait() -> str:
        """Wait."""
        seen.note("tool")
        await held.wait()
        return "done"

    def agent() -> Agent:
        return Agent("desk", by_turn(call("wait", {})), tools=[wait])

    async with Runtime([agent()], store=place.store(), stop_timeout=0.01, **CODECS) as runtime:
        future = run_of(runtime.spawn("desk", "a"), "acme")
        await soon(held.entered.wait())
    assert future.done()
    held.release.set()
    async with Runtime([agent()], store=place.after_crash(), **CODECS) as runtime:
        await runtime.recover()
        completed(await outcome_of(runtime.get("a")))
    assert seen.notes == [("tool", "acme")] * 2


async def test_agents_inside_have_it(seen: Seen) -> None:
    clerk = seen.agent([call("note", {}), call("gated", {})], name="clerk")

    @tool
    async def delegate(ctx: ToolContext) -> str:
        """Delegate."""
        return (await ctx.run_agent(seen.agent(call("plain", {}), name="helper"), "go")).explain()

    boss = Agent(
        "boss",
        by_turn([call("task", {"task_name": "clerk", "instructions": "go"}), call("delegate", {})]),
        tools=[delegate],
        middleware=[SubAgent(agents=[clerk])],
    )
    flow = Agent("flow", None, mode=Sequential([boss]))
    async with Runtime([flow], **CODECS) as runtime:
        ref = runtime.spawn("flow", "f")
        asked = interrupted(await run_of(ref, "acme"))
        assert asked.requests[0].agent_path == ("flow", "boss", "clerk")
        assert asked.requests[0].context == {"tenant": "acme"}
        await ref.stop(block=False)
        completed(await ref.resume(asked.decide(approve())))
    assert {who for _, who in seen.notes} == {"acme"}
    assert {what for what, _ in seen.notes} == {"tool", "thread", "gated"}
    assert seen.contexts == [{"tenant": "acme"}]


async def test_what_a_tool_sends_to_another_agent_has_it(seen: Seen) -> None:
    @tool
    async def pass_on() -> str:
        """Pass it on."""
        return completed(await runtime.spawn("desk", "b").run("go")).text

    relay = Agent("relay", by_turn(call("pass_on", {})), tools=[pass_on])
    async with Runtime([relay, seen.agent(call("note", {}))], **CODECS) as runtime:
        completed(await run_of(runtime.spawn("relay", "a"), "acme"))
    assert seen.notes == [("tool", "acme")]


async def test_a_message_that_waits_for_its_time_has_that_of_who_sent_it(
    seen: Seen, sqlite: SqlitePlace
) -> None:
    clock = SimulatedClock()
    agents = [seen.agent(call("note", {}))]
    async with Runtime(agents, store=sqlite.store(), clock=clock, **CODECS) as runtime:
        ref = runtime.spawn("desk", "a")
        with of("acme"):
            sent = ref.send("Later.", at=later(clock, HOUR), message_id="m")
        await sent
        (entry,) = [e for e in (await ref.history()).entries if e.what == "message_queued"]
        assert entry.detail["context"] == {"tenant": "acme"}
    agents = [seen.agent(call("note", {}))]
    async with Runtime(agents, store=sqlite.after_crash(), clock=clock, **CODECS) as runtime:
        await soon(runtime.get("a").cancel_message("no such message"))  # it is in memory
        await soon(clock.advance(HOUR))
        completed(await outcome_of(runtime.get("a")))
    assert seen.notes == [("tool", "acme")]


async def test_the_runs_of_a_schedule_have_that_of_who_has_set_it(seen: Seen) -> None:
    clock = SimulatedClock()
    async with Runtime([seen.agent(call("note", {}))], clock=clock, **CODECS) as runtime:
        ref = runtime.spawn("desk", "a")
        with of("acme"):
            made = runtime.schedule(ref, "hourly", cron="0 * * * *", input="go")
        assert (await made).context == {"tenant": "acme"}
        await soon(clock.advance(HOUR))
        completed(await outcome_of(ref))
    assert seen.notes == [("tool", "acme")]


async def test_messages_that_one_run_takes_together_have_that_of_the_last_one(seen: Seen) -> None:
    held = Held(call("note", {}))
    agent = Agent(
        "desk", ScriptedModel([held, "first", call("note", {}), "second"]), tools=seen.tools
    )
    async with Runtime([agent], **CODECS) as runtime:
        ref = runtime.spawn("desk", "a")
        first = run_of(ref, "acme")
        await soon(held.entered.wait())
        for value in ("beta", "zeta"):
            with of(value):
                sent = ref.send(value)
            await sent
        held.release.set()
        await first
        await outcome_of(ref)
        entries = (await ref.history()).entries
    assert [who for _, who in seen.notes] == ["acme", "zeta"]
    queued = [e.detail["context"] for e in entries if e.what == "message_queued"]
    assert queued == [{"tenant": "beta"}, {"tenant": "zeta"}]


async def test_a_run_that_is_withdrawn_ends_in_its_own_context(seen: Seen) -> None:
    agent = seen.agent(call("gated", {}), middleware=[seen.hooks])
    async with Runtime([agent], **CODECS) as runtime:
        ref = runtime.spawn("desk", "a")
        interrupted(await run_of(ref, "acme"))
        await run_of(ref, "zeta")
    assert ("end", "acme") in seen.notes
    assert seen.notes.index(("end", "acme")) < seen.notes.index(("start", "zeta"))


async def test_a_run_that_is_cancelled_ends_in_its_own_context(seen: Seen) -> None:
    agent = seen.agent(call("gated", {}), middleware=[seen.hooks])
    async with Runtime([agent], **CODECS) as runtime:
        ref = runtime.spawn("desk", "a")
        interrupted(await run_of(ref, "acme"))
        await ref.stop(block=False)
        with of("zeta"):
            cancelled = ref.cancel()
        assert isinstance(await cancelled, Stopped)
    assert seen.notes[-1] == ("end", "acme")


async def test_a_value_that_cannot_be_kept_is_refused_before_anything_runs(seen: Seen) -> None:
    clock = SimulatedClock()
    async with Runtime([seen.agent("hi")], clock=clock, **CODECS) as runtime:
        ref = runtime.spawn("desk", "a")
        with of("x" * 5000):
            for wrong in (
                lambda: ref.run("go"),
                lambda: ref.send("go"),
                lambda: ref.resume({"r": approve()}),
                lambda: ref.decide({"r": approve()}),
                lambda: runtime.schedule(ref, "s", cron="* * * * *", input="go"),
            ):
                with pytest.raises(UsageError, match="5,000 characters"):
                    wrong()
        assert ref.status() is Status.PASSIVE


class Broken:
    """A codec whose value cannot be applied for now."""

    name = "tenant"
    is_broken = True

    def capture(self) -> str | None:
        return TENANT.capture()

    def apply(self, value: str) -> Any:
        if self.is_broken:
            raise LookupError(f"no tenant {value}")
        return TENANT.apply(value)


async def test_a_run_whose_context_cannot_be_applied_does_not_begin(seen: Seen) -> None:
    """J90."""
    async with Runtime([seen.agent(call("note", {}))], context=[Broken()]) as runtime:
        ref = runtime.spawn("desk", "a")
        with pytest.raises(UsageError, match=r"'tenant': apply\(\) raised LookupError"):
            await run_of(ref, "acme")
        assert (await ref.state()).run is None
    assert seen.notes == []


async def test_a_run_whose_context_cannot_be_applied_withdraws_no_other(seen: Seen) -> None:
    codec = Broken()
    codec.is_broken = False
    async with Runtime([seen.agent(call("gated", {}))], context=[codec]) as runtime:
        ref = runtime.spawn("desk", "a")
        asked = interrupted(await run_of(ref, "acme"))
        codec.is_broken = True
        with pytest.raises(UsageError, match="LookupError"):
            await run_of(ref, "zeta")
        codec.is_broken = False
        completed(await ref.resume(asked.decide(approve())))
    assert seen.notes == [("gated", "acme")]


async def test_a_run_goes_on_when_its_context_can_be_applied(seen: Seen) -> None:
    codec = Broken()
    codec.is_broken = False
    async with Runtime([seen.agent(call("gated", {}))], context=[codec]) as runtime:
        ref = runtime.spawn("desk", "a")
        asked = interrupted(await run_of(ref, "acme"))
        codec.is_broken = True
        held_up = await ref.resume(asked.decide(approve()))
        assert isinstance(held_up, Paused)
        assert "LookupError: no tenant acme" in held_up.reason
        assert seen.notes == []
        codec.is_broken = False
        await ref.unpause()
        completed(await outcome_of(ref))
    assert seen.notes == [("gated", "acme")]


async def test_what_a_host_does_not_know_is_kept_and_not_applied(place: Place, seen: Seen) -> None:
    async with Runtime([seen.agent("hi", "ho")], store=place.store(), **CODECS) as runtime:
        ref = runtime.spawn("desk", "a")
        with of("acme"):
            sent = ref.send("Later.", at=later(runtime._agent_host.services.clock, HOUR))
        await sent

    @tool
    async def pass_on(ctx: ToolContext) -> str:
        """Pass it on."""
        seen.note("relay")
        seen.contexts.append(dict(ctx.context))
        await runtime.get("a").send("more", message_id="m")
        return "passed"

    relay = Agent("relay", by_turn(call("pass_on", {})), tools=[pass_on])
    with of("acme"):
        context = {"tenant": TENANT.capture() or "", "trace": "00-1"}
    async with Runtime([relay, seen.agent("hi", "ho")], store=place.after_crash()) as runtime:
        codecs = runtime._agent_host.services.codecs
        with codecs.applied(context):
            future = runtime.spawn("relay", "r").run("go")
        completed(await future)
        state = await runtime.get("a").state()
        assert state.plans is not None
        assert [m.context for m in state.plans.timed.values()] == [{"tenant": "acme"}]
        entries = (await runtime.get("a").history()).entries
    assert seen.notes == [("relay", "nobody")]
    assert seen.contexts == [context]
    assert [e.detail.get("context") for e in entries if e.what == "message_queued"][-1] == context


async def test_nothing_is_written_where_there_are_no_codecs(seen: Seen) -> None:
    agent = seen.agent([call("note", {}), call("gated", {})])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", "a")
        asked = interrupted(await run_of(ref, "acme"))
        await ref.resume(asked.decide(approve()))
        await ref.send("more")
        data = await runtime.export("a")
        state = await ref.state()
    assert "context" not in str(data)
    assert "'context'" not in str(state.to_dict())


async def test_it_is_part_of_an_export(seen: Seen) -> None:
    async with Runtime([seen.agent(call("gated", {}))], **CODECS) as runtime:
        asked = interrupted(await run_of(runtime.spawn("desk", "a"), "acme"))
        data = await runtime.export("a")
    async with Runtime([seen.agent(call("gated", {}))], **CODECS) as runtime:
        ref = await runtime.import_(data, "b")
        del asked
        await ref.unpause()
        asked = interrupted(await outcome_of(ref))
        completed(await ref.resume(asked.decide(approve())))
    assert seen.notes == [("gated", "acme")]


@pytest.mark.quick
async def test_a_call_that_its_owner_does_has_that_of_its_caller(hosts: Hosts, seen: Seen) -> None:
    held = Held("held")
    desk = Agent(
        "desk",
        ScriptedModel([held, call("gated", {}), "done", call("note", {}), "done"]),
        tools=seen.tools,
    )
    async with (
        opened(host(hosts, "first"), desk, **CODECS) as first,
        opened(host(hosts, "second"), seen.agent(), **CODECS) as second,
    ):
        run = run_of(first.spawn("desk", "t"), "first")
        await soon(held.entered.wait())
        there = second.get("t")
        behind = run_of(there, "zeta", "behind")
        await until(lambda: bool(posts(hosts)))
        held.release.set()
        await soon(run)
        asked = interrupted(await soon(behind))
        with of("ann"):
            decided = there.resume(asked.decide(approve()))
        completed(await soon(decided))
        (decision,) = await soon(there.decisions())
    assert decision.context == {"tenant": "ann"}
    assert seen.notes == [("gated", "zeta")]


def made() -> Definitions:
    """What the host of a cluster runs."""
    return Definitions([_cluster_seen.agent(call("gated", {}))], context=[TENANT])


_cluster_seen = Seen()


def test_calls_of_a_cluster_have_that_of_their_caller(tmp_path: Any) -> None:
    _cluster_seen.notes.clear()
    store = f"sqlite:///{tmp_path}/store.db"
    factory = f"{__name__}:made"
    with Cluster(factory, 1, store=store, engine=Inline(), context=[TENANT]) as cluster:
        ref = cluster.spawn("desk", "a")
        asked = interrupted(run_of(ref, "acme").get(timeout=60))
        with of("ann"):
            decided = ref.resume(asked.decide(approve()))
        completed(decided.get(timeout=60))
        (decision,) = ref.decisions().get(timeout=60)
        with of("x" * 5000), pytest.raises(UsageError, match="5,000 characters"):
            ref.run("go")
    assert decision.context == {"tenant": "ann"}
    assert _cluster_seen.notes == [("gated", "acme")]
