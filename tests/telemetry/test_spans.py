"""The spans of runs: which there are, what is in which, and what they are linked to (O1, O2).

Rules: O3.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage
from opentelemetry import context as otel_context
from opentelemetry.trace import StatusCode

from tests.support.agents import (
    FakeClock,
    Held,
    by_turn,
    completed,
    interrupted,
    reloaded,
    until_status,
)
from tests.support.loops import soon
from tests.support.otel import Told, attributes_of, id_of, links_of, parent_of, trace_of
from understudy import (
    Agent,
    AgentState,
    Failed,
    Run,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Stopped,
    ToolContext,
    approve,
    call,
    reject,
    tool,
)
from understudy.middleware import Middleware, SubAgent
from understudy.modes.workflows.sequential import Sequential
from understudy.telemetry import TraceContext

DAY = 86400.0


def desk(told: Told, *turns: Any, **options: Any) -> Agent:
    """A desk that looks orders up and pays, each with a span of its own inside."""

    @tool
    def look_up(order: str) -> str:
        """Look an order up."""
        with told.caller("in thread"):
            return "20 euros"

    @tool(ask=True)
    async def pay(order: str) -> str:
        """Pay it."""
        with told.caller("in task"):
            return "paid"

    return Agent("desk", by_turn(*turns), tools=[look_up, pay], **options)


LOOK = call("look_up", {"order": "17"})
PAY = call("pay", {"order": "17"})


async def test_what_an_attempt_does_is_inside_its_span() -> None:
    """O1."""
    told = Told()
    agent = desk(told, LOOK, "Done.")
    async with Runtime([agent], telemetry=told.telemetry) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("Hi.")))

    attempt, tool_call = told.one("invoke_agent desk"), told.one("execute_tool look_up")
    assert attempt.parent is None
    assert [parent_of(span) for span in told.spans("chat")] == [id_of(attempt)] * 2
    assert parent_of(tool_call) == id_of(attempt)
    assert parent_of(told.one("in thread")) == id_of(tool_call)
    assert {trace_of(span) for span in told.spans()} == {trace_of(attempt)}
    found = attributes_of(attempt)
    assert found["gen_ai.operation.name"] == "invoke_agent"
    assert found["gen_ai.agent.id"] == found["gen_ai.conversation.id"] == "a"
    assert (found["understudy.run.attempt"], found["understudy.run.reason"]) == (1, "start")
    assert found["understudy.outcome"] == "completed"
    chat = attributes_of(told.spans("chat")[0])
    assert (chat["gen_ai.agent.name"], chat["gen_ai.conversation.id"]) == ("desk", "a")
    called = attributes_of(tool_call)
    assert (called["gen_ai.tool.name"], called["understudy.outcome"]) == ("look_up", "success")


async def test_no_span_is_open_while_a_person_is_waited_for() -> None:
    """O1."""
    told = Told()
    async with Runtime([desk(told, PAY)], telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("Hi.")))

        assert attributes_of(told.one("invoke_agent"))["understudy.outcome"] == "interrupted"
        assert told.spans("execute_tool") == []
        completed(await soon(ref.resume(asked.decide(approve()))))

    first, second = told.spans("invoke_agent")
    assert parent_of(told.one("execute_tool pay")) == id_of(second)
    assert links_of(second) == [id_of(first)]
    assert attributes_of(second)["understudy.run.reason"] == "resume"


async def test_a_run_that_continues_a_failed_one_is_linked_to_its_last_attempt() -> None:
    """W8."""
    told = Told()
    agent = Agent("desk", ScriptedModel([ConnectionError("down"), "Done."]))
    async with Runtime([agent], telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        failed = await soon(ref.run("Hi."))
        completed(await soon(ref.retry()))

    first, second = told.spans("invoke_agent")
    found = attributes_of(second)
    assert (found["understudy.run.reason"], links_of(second)) == ("retry", [id_of(first)])
    assert found["understudy.run.continues"] == failed.run_id
    assert "understudy.run.continues" not in attributes_of(first)


async def test_a_run_that_goes_on_in_another_process_is_linked_to_its_last_attempt(
    tmp_path: Path,
) -> None:
    """O2."""
    here, there, store = Told(), Told(), f"sqlite:///{tmp_path / 'agents.db'}"
    async with Runtime([desk(here, PAY)], store=store, telemetry=here.telemetry) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", id="a").run("Hi.")))
    async with Runtime([desk(there, PAY)], store=store, telemetry=there.telemetry) as runtime:
        completed(await soon(runtime.get("a").resume(asked.decide(approve()))))

    first, second = here.one("invoke_agent"), there.one("invoke_agent")
    assert links_of(second) == [id_of(first)]
    assert second.links[0].context.is_remote
    assert second.parent is None
    assert trace_of(second) != trace_of(first)
    ids = [attributes_of(span)["gen_ai.conversation.id"] for span in (first, second)]
    assert ids == ["a", "a"]
    assert parent_of(there.one("wait_for_person")) == id_of(first)


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_a_wait_for_a_person_has_its_true_duration(store: str, tmp_path: Path) -> None:
    """O2: its parent is the attempt that has asked, though the next one is recorded meanwhile."""
    told, clock = Told(), FakeClock()
    url = store if store == "memory:" else f"sqlite:///{tmp_path / 'agents.db'}"
    agent = desk(told, PAY)
    async with Runtime([agent], store=url, clock=clock, telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("Hi.")))
        clock.advance(3 * DAY)
        with told.caller("Ann's page") as page:
            completed(await soon(ref.resume(asked.decide(approve(by="ann")))))

    wait = told.one("wait_for_person pay")
    assert wait.start_time is not None
    assert wait.end_time is not None
    assert (wait.end_time - wait.start_time) / 1e9 == 3 * DAY
    assert parent_of(wait) == id_of(told.spans("invoke_agent")[0])
    assert links_of(wait) == [id_of(page)]
    found = attributes_of(wait)
    assert (found["understudy.decision"], found["understudy.request.kind"]) == (
        "approve",
        "approval",
    )
    assert "understudy.decision.by" not in found
    assert told.number("understudy.request.wait", tool="pay", decision="approve") == 1


async def test_a_call_that_is_denied_is_no_error() -> None:
    told = Told()
    async with Runtime([desk(told, PAY)], telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("Hi.")))
        completed(await soon(ref.resume(asked.decide(reject()))))

    assert told.spans("execute_tool") == []  # it was not executed
    assert attributes_of(told.one("wait_for_person"))["understudy.decision"] == "reject"
    assert {span.status.status_code for span in told.spans()} == {StatusCode.UNSET}


async def test_each_attempt_is_in_the_trace_of_who_caused_it() -> None:
    """O2."""
    told = Told()
    async with Runtime([desk(told, PAY)], telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        with told.caller("ask") as ask:
            asked = interrupted(await soon(ref.run("Hi.")))
        with told.caller("decide") as decide:
            completed(await soon(ref.resume(asked.decide(approve()))))

    first, second = told.spans("invoke_agent")
    assert (parent_of(first), parent_of(second)) == (id_of(ask), id_of(decide))
    assert links_of(second) == [id_of(first)]


async def test_a_run_is_no_part_of_the_trace_that_opened_the_runtime() -> None:
    told = Told()
    with told.caller("start of the program"):
        async with Runtime([desk(told)], telemetry=told.telemetry) as runtime:
            token = told.tracer.start_span("detached")
            ref = runtime.spawn("desk", id="a")
            await asyncio.create_task(_run(ref), context=_empty())
            token.end()

    assert told.one("invoke_agent").parent is None


def _empty() -> Any:
    from contextvars import Context

    return Context()


async def _run(ref: Any) -> None:
    completed(await soon(ref.run("Hi.")))


class BaggageCodec:
    """Carries a value of OpenTelemetry's baggage."""

    name = "shop"

    def capture(self) -> str | None:
        value = baggage.get_baggage("shop")
        return value if isinstance(value, str) else None

    @contextmanager
    def apply(self, value: str) -> Iterator[None]:
        token = otel_context.attach(baggage.set_baggage("shop", value))
        try:
            yield
        finally:
            otel_context.detach(token)


@pytest.mark.parametrize("options", [{}, {"continue_trace": True}])
async def test_what_codecs_put_into_the_context_of_a_run_stays_there(options: Any) -> None:
    told, seen = Told(**options), list[object]()

    @tool(ask=True)
    def look() -> str:
        """Look what is carried."""
        seen.append(baggage.get_baggage("shop"))
        return "seen"

    agent = Agent("desk", by_turn(call("look")), tools=[look])
    codecs = [BaggageCodec()]
    async with Runtime([agent], context=codecs, telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        token = otel_context.attach(baggage.set_baggage("shop", "acme"))
        asked = interrupted(await soon(ref.run("Hi.")))
        otel_context.detach(token)
        completed(await soon(ref.resume(asked.decide(approve()))))

    assert seen == ["acme"]


async def test_with_continue_trace_all_attempts_are_children_of_the_first_one() -> None:
    told = Told(continue_trace=True)
    agent = desk(told, PAY, call("pay", {"order": "18"}, id="second"))
    async with Runtime([agent], telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        asked = interrupted(await soon(ref.run("Hi.")))
        asked = interrupted(await soon(ref.resume(asked.decide(approve()))))
        completed(await soon(ref.resume(asked.decide(approve()))))

    first, second, third = told.spans("invoke_agent")
    assert {trace_of(span) for span in told.spans()} == {trace_of(first)}
    assert parent_of(second) == parent_of(third) == id_of(first)


async def test_an_agent_inside_is_below_the_call_that_runs_it() -> None:
    told = Told()
    inner = desk(told, LOOK, "Looked.")
    outer = Agent(
        "boss",
        by_turn(call("task", {"task_name": "desk", "instructions": "Look."})),
        middleware=[SubAgent(agents=[inner])],
    )
    async with Runtime([outer], telemetry=told.telemetry) as runtime:
        completed(await soon(runtime.spawn("boss", id="b").run("Hi.")))

    boss, below = told.one("invoke_agent boss"), told.one("invoke_agent desk")
    by_id = {id_of(span): span.name for span in told.spans()}
    assert by_id[parent_of(below) or 0].startswith("execute_tool")
    assert trace_of(below) == trace_of(boss)
    found = attributes_of(below)
    assert found["understudy.agent.path"] == "boss/desk"
    assert found["gen_ai.conversation.id"] == "b"
    assert parent_of(told.one("execute_tool look_up")) == id_of(below)


async def test_the_agents_of_a_workflow_are_below_it() -> None:
    told = Told()
    panel = Agent("panel", mode=Sequential([Agent("one", by_turn()), Agent("two", by_turn())]))
    async with Runtime([panel], telemetry=told.telemetry) as runtime:
        completed(await soon(runtime.spawn("panel", id="p").run("Hi.")))

    workflow = told.one("invoke_workflow panel")
    agents = told.spans("invoke_agent")
    assert [span.name for span in agents] == ["invoke_agent one", "invoke_agent two"]
    assert [parent_of(span) for span in agents] == [id_of(workflow)] * 2


async def test_a_run_that_another_agent_starts_is_below_the_call_that_starts_it() -> None:
    told = Told()

    @tool
    async def pass_on() -> str:
        """Pass it on."""
        return completed(await soon(runtime.spawn("desk", id="d").run("Hi."))).text

    boss = Agent("boss", by_turn(call("pass_on", {})), tools=[pass_on])
    async with Runtime([boss, desk(told)], telemetry=told.telemetry) as runtime:
        completed(await soon(runtime.spawn("boss", id="b").run("Hi.")))

    assert parent_of(told.one("invoke_agent desk")) == id_of(told.one("execute_tool pass_on"))


async def test_agents_side_by_side_share_no_parent() -> None:
    told, first, second = Told(), Held("one"), Held("two")
    agents = [Agent("a", ScriptedModel([first])), Agent("b", ScriptedModel([second]))]
    async with Runtime(agents, telemetry=told.telemetry) as runtime:
        runs = [runtime.spawn(name, id=name).run("Hi.") for name in "ab"]
        await soon(first.entered.wait())
        await soon(second.entered.wait())
        first.release.set()
        second.release.set()
        for run in runs:
            completed(await soon(run))

    for name in "ab":
        attempt = told.one(f"invoke_agent {name}")
        (chat,) = [
            span for span in told.spans("chat") if attributes_of(span)["gen_ai.agent.name"] == name
        ]
        assert parent_of(chat) == id_of(attempt)


async def test_a_call_that_has_finished_has_one_span_and_each_attempt_at_another_its_own() -> None:
    """O1."""
    told, tries = Told(), list[str]()

    @tool(idempotent=True)
    def fetch(page: str) -> str:
        """Read a page."""
        tries.append(page)
        if len(tries) == 1:
            raise SystemExit("out of luck")
        return "a kettle"

    @tool
    def look_up(order: str) -> str:
        """Look an order up."""
        return "20 euros"

    agent = Agent("desk", by_turn(LOOK, call("fetch", {"page": "1"})), tools=[fetch, look_up])
    async with Runtime([agent], telemetry=told.telemetry) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("Hi.")))

    assert len(told.spans("execute_tool look_up")) == 1
    numbers = [
        attributes_of(span)["understudy.call.attempt"] for span in told.spans("execute_tool fetch")
    ]
    assert numbers == [1, 2]
    first, second = told.spans("invoke_agent")
    assert attributes_of(first)["understudy.outcome"] == "crashed"
    assert first.status.status_code is StatusCode.ERROR
    assert attributes_of(first)["error.type"] == "SystemExit"
    assert (attributes_of(second)["understudy.run.reason"], links_of(second)) == (
        "continue",
        [id_of(first)],
    )


SECRET = "the password is kettle"


def failing(told: Told) -> Agent:
    @tool
    def look_up(order: str) -> str:
        """Look an order up."""
        raise OSError(SECRET)

    model = ScriptedModel(
        [call("look_up", {"order": SECRET}), RuntimeError(SECRET)], name="scripted"
    )
    return Agent("desk", model, tools=[look_up])


async def test_without_content_no_text_of_anybody_is_told() -> None:
    """O3."""
    told = Told()
    async with Runtime([failing(told)], telemetry=told.telemetry) as runtime:
        assert isinstance(await soon(runtime.spawn("desk", id="a").run(SECRET)), Failed)

    everything = "".join(span.to_json() for span in told.spans())
    assert SECRET not in everything
    assert "kettle" not in everything
    assert "gen_ai.input.messages" not in attributes_of(told.spans("chat")[0])
    attempt, tool_call = told.one("invoke_agent"), told.one("execute_tool")
    assert attempt.status.status_code is tool_call.status.status_code is StatusCode.ERROR
    assert attributes_of(attempt)["error.type"] == "ModelFailed"
    assert attributes_of(tool_call)["error.type"] == "tool_failed"


async def test_with_content_what_was_said_is_told() -> None:
    """O3."""
    told = Told(content=True)
    async with Runtime([failing(told)], telemetry=told.telemetry) as runtime:
        await soon(runtime.spawn("desk", id="a").run(SECRET))

    found = attributes_of(told.one("execute_tool"))
    assert SECRET in found["gen_ai.tool.call.arguments"]
    assert SECRET in found["gen_ai.tool.call.result"]
    assert SECRET in attributes_of(told.spans("chat")[0])["gen_ai.input.messages"]
    assert SECRET in (told.one("invoke_agent").status.description or "")


async def test_with_content_the_arguments_that_ran_are_told() -> None:
    """T12: with the values of defaults, which the model did not write."""
    told = Told(content=True)

    @tool
    def pay(amount: int, currency: str = "EUR") -> str:
        return "paid"

    agent = Agent("desk", by_turn(call("pay", {"amount": 5})), tools=[pay])
    async with Runtime([agent], telemetry=told.telemetry) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("Hi.")))

    found = attributes_of(told.one("execute_tool"))["gen_ai.tool.call.arguments"]
    assert json.loads(found) == {"amount": 5, "currency": "EUR"}


async def test_a_model_that_makes_its_own_spans_gets_no_second_ones() -> None:
    from pydantic_ai.models.instrumented import InstrumentationSettings, InstrumentedModel

    told = Told()
    settings = InstrumentationSettings(tracer_provider=told.tracers, include_content=False)
    agent = Agent("desk", InstrumentedModel(by_turn("Hello."), settings))
    async with Runtime([agent], telemetry=told.telemetry) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("Hi.")))

    assert parent_of(told.one("chat")) == id_of(told.one("invoke_agent"))


async def test_a_model_that_is_asked_beside_the_conversation_has_its_span_too() -> None:
    class Asks(Middleware):
        async def on_run_start(self, run: Run) -> None:
            await run.ask_model("mood", "What mood?")

    told = Told()
    agent = Agent("desk", ScriptedModel(["Good.", "Hello."]), middleware=[Asks()])
    async with Runtime([agent], telemetry=told.telemetry) as runtime:
        completed(await soon(runtime.spawn("desk", id="a").run("Hi.")))

    assert [parent_of(span) for span in told.spans("chat")] == [id_of(told.one("invoke_agent"))] * 2


async def test_an_agent_without_a_runtime_is_told_of_too() -> None:
    told = Told()
    with told.caller("program") as program:
        asked = interrupted(await desk(told, PAY).execute("Hi.", telemetry=told.telemetry))
    state = reloaded(asked.state)
    agent = desk(told, PAY)
    completed(await agent.resume(state, asked.decide(approve()), telemetry=told.telemetry))

    first, second = told.spans("invoke_agent")
    assert parent_of(first) == id_of(program)
    assert (second.parent, links_of(second)) == (None, [id_of(first)])
    assert parent_of(told.one("wait_for_person")) == id_of(first)
    assert told.number("understudy.requests", tool="pay") == 1


@pytest.mark.parametrize(
    "trace", ["", "garbage", "00-0-0-00", f"00-{'0' * 32}-{'0' * 16}-01", "\n" * 5000]
)
async def test_what_is_no_traceparent_in_the_facts_is_no_link(trace: str) -> None:
    told = Told()
    asked = interrupted(await desk(told, PAY).execute("Hi.", telemetry=told.telemetry))
    stored = asked.state.to_dict()
    assert stored["run"]["trace"].startswith("00-")
    stored["run"]["trace"] = trace
    state = AgentState.from_dict(stored)
    decided = asked.decide(approve())
    completed(await desk(told, PAY).resume(state, decided, telemetry=told.telemetry))

    second = told.spans("invoke_agent")[1]
    assert (second.parent, links_of(second)) == (None, [])


def test_a_span_goes_through_its_text_and_what_is_none_is_not_applied() -> None:
    told, codec = Told(), TraceContext()
    assert codec.capture() is None
    with told.caller("caller") as caller:
        text = codec.capture()
    assert text is not None
    with codec.apply(text), told.caller("inside"):
        pass
    with codec.apply("nonsense"), told.caller("outside"):
        pass

    assert parent_of(told.one("inside")) == id_of(caller)
    assert told.one("outside").parent is None


async def test_a_reply_that_is_streamed_has_its_span_in_the_attempt() -> None:
    told = Told()
    agent = desk(told, LOOK, "Done.")
    async for _ in agent.stream("Hi.", telemetry=told.telemetry):
        pass

    attempt = told.one("invoke_agent")
    assert [parent_of(span) for span in told.spans("chat")] == [id_of(attempt)] * 2
    assert parent_of(told.one("execute_tool")) == id_of(attempt)


async def test_calls_side_by_side_have_spans_side_by_side() -> None:
    told, both = Told(), asyncio.Barrier(2)

    @tool
    async def meet(name: str) -> str:
        """Meet the other one."""
        await soon(both.wait())
        with told.caller(f"met by {name}"):
            return name

    calls = [call("meet", {"name": name}, id=name) for name in "ab"]
    agent = Agent("desk", by_turn(calls), tools=[meet])
    completed(await agent.execute("Hi.", telemetry=told.telemetry))

    attempt, tool_calls = told.one("invoke_agent"), told.spans("execute_tool")
    assert [parent_of(span) for span in tool_calls] == [id_of(attempt)] * 2
    by_call = {attributes_of(span)["gen_ai.tool.call.id"]: id_of(span) for span in tool_calls}
    for name in "ab":
        assert parent_of(told.one(f"met by {name}")) == by_call[name]


async def test_a_tool_that_sleeps_has_a_span_for_each_stretch(tmp_path: Path) -> None:
    told, clock = Told(), SimulatedClock()

    @tool
    async def nap(ctx: ToolContext) -> str:
        """Sleep for a day."""
        await ctx.sleep("night", DAY)
        return "rested"

    agent = Agent("desk", by_turn(call("nap")), tools=[nap])
    store = f"sqlite:///{tmp_path / 'agents.db'}"
    async with Runtime([agent], store=store, clock=clock, telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        run = ref.run("Hi.")
        await until_status(ref, Status.WAITING)
        await soon(clock.advance(DAY))
        completed(await soon(run))

    outcomes = [
        attributes_of(span)["understudy.outcome"] for span in told.spans("execute_tool nap")
    ]
    assert outcomes == ["suspended", "success"]
    first, second = told.spans("invoke_agent")
    assert attributes_of(first)["understudy.outcome"] == "waiting"
    assert links_of(second) == [id_of(first)]


async def test_an_attempt_that_is_given_up_is_told_of_though_its_code_goes_on() -> None:
    told, held = Told(), Held()

    @tool
    async def stubborn() -> str:
        """Ignore a cancellation."""
        while not held.release.is_set():
            try:
                await held.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    agent = Agent("desk", by_turn(call("stubborn")), tools=[stubborn])
    async with Runtime([agent], cancel_timeout=0.01, telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        run = ref.run("Hi.")
        await soon(held.entered.wait())
        assert isinstance(await soon(ref.cancel()), Stopped)
        assert isinstance(await soon(run), Stopped)
        assert attributes_of(told.one("invoke_agent"))["understudy.outcome"] == "abandoned"
        held.release.set()


async def test_an_attempt_that_ends_because_its_agent_leaves_the_memory_is_no_error() -> None:
    told, held = Told(), Held()

    @tool
    async def slow() -> str:
        """Be slow."""
        await held.wait()
        return "done"

    agent = Agent("desk", by_turn(call("slow")), tools=[slow])
    async with Runtime([agent], telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        run = ref.run("Hi.")
        await soon(held.entered.wait())
        stopped = ref.stop(block=False)
        held.release.set()
        assert await soon(stopped)
        await soon(runtime.recover())
        completed(await soon(run))

    first, second = told.spans("invoke_agent")
    assert attributes_of(first)["understudy.outcome"] == "passivated"
    assert first.status.status_code is StatusCode.UNSET
    assert links_of(second) == [id_of(first)]


@pytest.mark.parametrize("content", [False, True])
async def test_a_restart_and_a_quarantine_are_told_of_below_the_last_attempt(content: bool) -> None:
    told = Told(content=content)
    agent = Agent("sick", ScriptedModel(lambda _: SystemExit("bang")))
    async with Runtime([agent], telemetry=told.telemetry) as runtime:
        assert isinstance(await soon(runtime.spawn("sick", id="s").run("Hi.")), Failed)

    attempts, restarts = told.spans("invoke_agent"), told.spans("restart_actor sick")
    assert [parent_of(span) for span in restarts] == [id_of(span) for span in attempts[:-1]]
    assert told.number("understudy.restarts", agent="sick") == len(restarts) == 2
    end = told.one("quarantine sick")
    assert parent_of(end) == id_of(attempts[-1])
    assert end.status.status_code is StatusCode.ERROR
    assert ("bang" in (end.status.description or "")) is content
    kept = attributes_of(end)
    assert kept["error.type"] == "quarantined"
    assert (kept["gen_ai.agent.id"], kept["understudy.run.attempt"]) == ("s", 3)


async def test_an_actor_that_leaves_the_memory_is_not_restarted() -> None:
    told = Told()
    agent = Agent("desk", by_turn("One.", "Two."))
    async with Runtime([agent], telemetry=told.telemetry) as runtime:
        ref = runtime.spawn("desk", id="a")
        completed(await soon(ref.run("Hi.")))
        assert await soon(ref.stop(block=False))
        completed(await soon(ref.run("Hi again.")))

    assert told.number("understudy.restarts") is None
    assert told.spans("restart_actor") == []
