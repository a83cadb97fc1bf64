"""`SubAgent`: agents that run other agents, wait with them, and end with them.

Rules: S1, S2, S3, S4, S5, S6, S7.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart

from tests.support.agents import (
    FakeClock,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    reloaded,
    results,
)
from tests.support.cut_off import Crash, Disk, told
from tests.support.loops import never
from understudy import (
    Agent,
    AgentState,
    Completed,
    DecisionError,
    Failed,
    Interrupt,
    Interrupted,
    NotInterrupted,
    Outcome,
    Paused,
    Request,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    ToolContext,
    ToolResult,
    UsageError,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.events import RequestMade, ToolStarted
from understudy.middleware import HumanInTheLoop, Middleware, SubAgent
from understudy.models import ScriptedRequest


def task(name: str, instructions: str = "do it") -> Any:
    return call("task", {"task_name": name, "instructions": instructions})


def child(name: str, *turns: Any, **options: Any) -> dict[str, Any]:
    """The config of a child that says its turns, then "done"."""
    return {"name": name, "description": f"about {name}", "model": by_turn(*turns), **options}


def boss(
    *turns: Any, agents: Any = (), options: Mapping[str, Any] | None = None, **kw: Any
) -> Agent:
    """An agent that says its turns, with `SubAgent(agents)` before its other middleware."""
    sub = SubAgent(agents=agents, **{"general_purpose": False, **(options or {})})
    middleware = [sub, *kw.pop("middleware", ())]
    return Agent("boss", by_turn(*turns), middleware=middleware, **kw)


class Ran:
    """Tools that keep what was run, and by which agent."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        log = self.log

        @tool
        async def danger(ctx: ToolContext, x: int = 0) -> str:
            log.append((ctx.agent_path[-1], x))
            return f"did {x}"

        @tool
        async def note(ctx: ToolContext, x: int = 0) -> str:
            log.append((ctx.agent_path[-1], f"note {x}"))
            return f"noted {x}"

        @tool
        async def ask(ctx: ToolContext, what: str) -> str:
            if not ctx.resumed:
                raise Interrupt({"what": what})
            log.append((ctx.agent_path[-1], ctx.resume_value))
            return f"{what}: {ctx.resume_value}"

        self.danger, self.note, self.ask = danger, note, ask


@pytest.fixture
def ran() -> Ran:
    return Ran()


@pytest.fixture(params=[False, True], ids=["here", "elsewhere"])
def elsewhere(request: pytest.FixtureRequest) -> bool:
    """Whether each answer is given in another process, to agents that were built there."""
    return bool(request.param)


class Stage:
    """A tree of agents that is run, and resumed here or, through JSON, elsewhere."""

    def __init__(self, build: Callable[[], Agent], *, elsewhere: bool) -> None:
        self._build, self._elsewhere = build, elsewhere
        self._agent = build()

    def start(self, input: str = "go", **options: Any) -> Outcome:
        return self._agent.execute_sync(input, **options)

    def resume(self, outcome: Outcome, answers: Any = None, **options: Any) -> Outcome:
        if self._elsewhere:
            self._agent = self._build()
        state = reloaded(outcome.state) if self._elsewhere else outcome.state
        return self._agent.resume_sync(state, answers, **options)


def only(outcome: Outcome) -> Any:
    """The content of the only result in the conversation."""
    (part,) = results(outcome.state)
    return part.content


# ------------------------------------------------------------------- the tool (S1, S2)


def test_the_task_tool_offers_the_agents_by_name_and_says_what_they_are_for() -> None:
    """S1."""
    model = ScriptedModel(["hello"])
    agents: list[Any] = [
        child("searcher"),
        Agent("writer", by_turn(), description="writes {nicely}"),
    ]
    Agent("boss", model, middleware=[SubAgent(agents=agents)]).execute_sync("go")
    (definition,) = model.requests[0].parameters.function_tools
    schema = definition.parameters_json_schema["properties"]
    assert schema["task_name"]["enum"] == ["searcher", "writer", "general-purpose"]
    assert schema["instructions"]["type"] == "string"
    assert "about searcher" in (model.requests[0].instructions or "")
    assert "writes {nicely}" in (model.requests[0].instructions or "")


def test_without_general_purpose_only_the_given_agents_are_offered() -> None:
    """S1."""
    outcome = boss([task("general-purpose")], agents=[child("a")]).execute_sync("go")
    (part,) = results(completed(outcome).state)
    assert part.outcome == "failed"
    assert "'a'" in str(part.content)


def test_the_result_of_a_task_is_the_childs_last_text() -> None:
    """S4."""
    outcome = boss([task("a")], agents=[child("a", "the answer")]).execute_sync("go")
    assert only(completed(outcome)) == "the answer"
    assert_valid_history(outcome.state)


def test_the_result_of_a_task_with_an_until_tool_is_the_tools_result() -> None:
    """S4, U1."""

    @tool
    def answer(x: int) -> ToolResult[int]:
        return ToolResult(f"it is {x}", value=x)

    kid = child("a", [call("answer", {"x": 4})], "never said", tools=[answer], until_tool="answer")
    outcome = boss([task("a")], agents=[kid]).execute_sync("go")
    assert only(completed(outcome)) == "it is 4"
    assert outcome.usage.requests == 3, "two of the parent and one of the child"


@pytest.mark.parametrize("tried", [1, 2])
def test_until_tool_success_of_a_child_goes_on_after_an_error(tried: int) -> None:
    """S2, U1: the second boundary of the until pair."""

    @tool
    def answer(x: int) -> str:
        if x < tried:
            raise ValueError("too small")
        return f"it is {x}"

    kid = child(
        "a",
        *([call("answer", {"x": x})] for x in (1, 2)),
        tools=[answer],
        until_tool_success=["answer"],
    )
    outcome = boss([task("a")], agents=[kid]).execute_sync("go")
    assert only(completed(outcome)) == f"it is {tried}"


def test_a_child_that_never_calls_its_until_tool_is_an_error_result(ran: Ran) -> None:
    """S4, U5."""
    kid = child("a", "just text", tools=[ran.note], until_tool="note")
    outcome = completed(boss([task("a")], agents=[kid]).execute_sync("go"))
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert "'a'" in str(part.content)
    assert "UntilToolNotCalled" in str(part.content)


def test_max_runs_of_a_child_bounds_the_child_and_leaves_the_parent_alone(ran: Ran) -> None:
    """S2, R1: the child's limit, not the parent's."""
    turns = [[call("note", {"x": x})] for x in range(9)]
    kid = child("a", *turns, tools=[ran.note], max_runs=3)
    outcome = completed(boss([task("a")], agents=[kid], max_runs=2).execute_sync("go"))
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert "'a'" in str(part.content)
    assert "RunLimitExceeded" in str(part.content)
    assert len(ran.log) == 3


def test_a_child_may_make_more_calls_than_its_parent_may(ran: Ran) -> None:
    """R1: the count belongs to the run."""
    kid = child("a", *([call("note", {"x": x})] for x in range(5)), "end", tools=[ran.note])
    outcome = boss([task("a")], agents=[kid], max_runs=2).execute_sync("go")
    assert only(completed(outcome)) == "end"


def test_a_childs_instructions_tools_model_and_middleware_take_effect(ran: Ran) -> None:
    """S2."""
    model = ScriptedModel(["said"])

    class Loud(Middleware):
        async def after_model(self, run: Any, reply: Any) -> Any:
            ran.log.append((run.agent_path, reply.text))

    kid = {
        "name": "a",
        "description": "",
        "model": model,
        "instructions": "You are {who}.",
        "tools": [ran.note],
        "middleware": [Loud()],
    }
    agent = boss([task("a", "find it")], agents=[kid])
    completed(agent.execute_sync("go", state=AgentState(values={"who": "Ann"})))
    (asked,) = model.requests
    assert asked.instructions == "You are Ann."
    assert asked.tools == ("note",)
    assert ran.log == [(("boss", "a"), "said")], "the hooks of the child, in the child alone"
    (message,) = asked.messages
    assert isinstance(message, ModelRequest)
    (part,) = message.parts
    assert isinstance(part, UserPromptPart)
    assert part.content == "find it"


def test_a_child_without_a_model_asks_its_parents_with_the_parents_fallbacks() -> None:
    """S2."""

    def reply(request: ScriptedRequest) -> Any:
        if "task" not in request.tools:
            return "from the child"
        return [task("a")] if len(request.messages) == 1 else "end"

    down = ScriptedModel(lambda request: RuntimeError("down"))
    agent = Agent(
        "boss",
        down,
        fallback_models=[ScriptedModel(reply)],
        middleware=[SubAgent(agents=[{"name": "a"}], general_purpose=False)],
    )
    assert only(completed(agent.execute_sync("go"))) == "from the child"


def test_the_general_purpose_agent_has_the_parents_model_and_fallbacks() -> None:
    """S1: the parent's model; a fallback is a part of it."""

    def reply(request: ScriptedRequest) -> Any:
        if "task" not in request.tools:
            return "from the child"
        return [task("general-purpose")] if len(request.messages) == 1 else "end"

    down = ScriptedModel(lambda request: RuntimeError("down"))
    agent = Agent("boss", down, fallback_models=[ScriptedModel(reply)], middleware=[SubAgent()])
    assert only(completed(agent.execute_sync("go"))) == "from the child"


def test_the_general_purpose_agent_has_the_parents_tools_and_middleware_less_what_nests(
    ran: Ran,
) -> None:
    """S1."""
    seen: list[Any] = []

    class Kept(Middleware):
        async def after_model(self, run: Any, reply: Any) -> Any:
            seen.append(("kept", run.agent_path))

    class Blocked(Middleware):
        async def after_model(self, run: Any, reply: Any) -> Any:
            seen.append(("blocked", run.agent_path))

    def reply(request: ScriptedRequest) -> Any:
        if "task" not in request.tools:
            assert request.tools == ("note",)
            return "child" if len(request.messages) > 1 else [call("note", {"x": 1})]
        return "end" if len(request.messages) > 1 else [task("general-purpose")]

    agent = Agent(
        "boss",
        ScriptedModel(reply),
        tools=[ran.note],
        middleware=[Kept(), Blocked(), SubAgent(block_middleware=[Blocked])],
    )
    assert only(completed(agent.execute_sync("go"))) == "child"
    assert ran.log == [("general-purpose", "note 1")]
    inner = ("boss", "general-purpose")
    assert seen.count(("kept", inner)) == 2
    assert ("blocked", inner) not in seen
    assert ("blocked", ("boss",)) in seen


def test_a_gate_of_the_parent_holds_in_the_general_purpose_agent(ran: Ran) -> None:
    """S5."""

    def reply(request: ScriptedRequest) -> Any:
        if "task" not in request.tools:
            return "child" if len(request.messages) > 1 else [call("danger", {"x": 1})]
        return "end" if len(request.messages) > 1 else [task("general-purpose")]

    agent = Agent(
        "boss",
        ScriptedModel(reply),
        tools=[ran.danger],
        middleware=[SubAgent(block_middleware=[Middleware])],
        interrupt_on={"danger": True},
    )
    outcome = interrupted(agent.execute_sync("go"))
    assert ran.log == []
    completed(agent.resume_sync(outcome.state, outcome.decide(approve())))
    assert ran.log == [("general-purpose", 1)]


BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: boss(options={"general_purpose": False}), "no agents"),
    (lambda: boss(agents="searcher"), "must be a list"),
    (lambda: boss(agents={"name": "a"}), "must be a list"),
    (lambda: boss(agents=[5]), "5"),
    (lambda: boss(agents=[{}]), "name"),
    (lambda: boss(agents=[Path("a")]), "must hold agents"),  # it has a name, too
    (lambda: boss(agents=[child("a"), child("a")]), "'a'"),
    (lambda: boss(agents=[child("general-purpose")], options={"general_purpose": True}), "general"),
    (lambda: boss(agents=[child("a b")]), "a b"),
    (lambda: boss(agents=[child("a", prompt="x")]), "'prompt'"),
    (lambda: boss(agents=[child("a", max_runs=0)]), "max_runs"),
    (lambda: boss(agents=[child("a", early_stopping="perhaps")]), "early_stopping"),
    (lambda: boss(agents=[child("a", tools="x")]), "tools"),
    (lambda: boss(agents=[child("a", middleware=[5])]), "5"),
    (lambda: boss(agents=[child("a", until_tool="none")]), "none"),
    (lambda: boss(agents=[child("a", until_tool=[])]), "until_tool"),
    (lambda: boss(agents=[child("a", until_tool="x", until_tool_success="y")]), "until_tool"),
    (lambda: boss(agents=[child("a", model=5)]), "5"),
    (lambda: boss(agents=[child("a")], options={"max_depth": 0}), "max_depth"),
    (lambda: boss(agents=[child("a")], options={"max_depth": "5"}), "max_depth"),
    (lambda: boss(agents=[child("a")], options={"block_middleware": ["x"]}), "block_middleware"),
    (lambda: boss(agents=[child("a")], options={"block_middleware": Crash}), "block_middleware"),
    (
        lambda: boss(agents=[child("a")], options={"block_middleware": [HumanInTheLoop]}),
        "HumanInTheLoop",
    ),
    (lambda: boss(agents=[child("a")], interrupt_on={"missing": True}), "'missing'"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_a_wrong_option_is_an_error_when_the_agent_is_made(number: int) -> None:
    """S2, R8, U1, I1: naming the culprit."""
    make, names = BAD[number]
    with pytest.raises(UsageError) as caught:
        make()
    assert names in str(caught.value)


# ------------------------------------------------------------- what flows (S3), failures (S4)


def test_a_child_has_fresh_messages_and_a_copy_of_the_values_and_nothing_flows_back() -> None:
    """S3."""
    seen: list[Any] = []

    @tool
    async def change(ctx: ToolContext) -> ToolResult[str]:
        seen.append(dict(ctx.state.values))
        return ToolResult("changed", state={"shop": {"open": False}, "new": 1})

    @tool
    async def look(ctx: ToolContext) -> str:
        seen.append(dict(ctx.state.values))
        return "looked"

    kid = child("a", [call("change")], [call("look")], tools=[change, look])
    state = AgentState(values={"shop": {"open": True, "city": "Bonn"}})
    outcome = completed(boss([task("a")], agents=[kid]).execute_sync("go", state=state))
    assert seen == [
        {"shop": {"open": True, "city": "Bonn"}},
        {"shop": {"open": False, "city": "Bonn"}, "new": 1},
    ]
    assert dict(outcome.state.values) == {"shop": {"open": True, "city": "Bonn"}}
    assert len(outcome.state.messages) == 4, "only the parent's own"
    assert outcome.state.children == {}


def test_usage_of_children_at_any_depth_counts_once(elsewhere: bool, ran: Ran) -> None:
    """S3, J11: a recorded child is not counted again."""

    def build() -> Agent:
        leaf = child("leaf", [call("danger")], tools=[ran.danger])
        mid = child(
            "mid", [task("leaf")], middleware=[SubAgent(agents=[leaf], general_purpose=False)]
        )
        return boss([task("mid")], agents=[mid], interrupt_on={"danger": True})

    stage = Stage(build, elsewhere=elsewhere)
    outcome = interrupted(stage.start())
    end = completed(stage.resume(outcome, outcome.decide(approve())))
    assert end.usage.requests == 6, "two of each agent"
    assert end.usage.tool_calls == 3, "two tasks and one tool"
    assert end.usage.output_tokens > 0


class Unfit(Middleware):
    """Fails wherever a test says so."""

    def __init__(self, where: str) -> None:
        self.where = where

    async def on_run_start(self, run: Any) -> None:
        if self.where == "start":
            raise ValueError("bad start")

    async def on_run_end(self, run: Any, outcome: Any) -> None:
        if self.where == "end":
            raise ValueError("bad end")


@pytest.mark.parametrize(
    ("kid", "reason"),
    [
        (lambda: child("kid", RuntimeError("model down")), "model down"),
        (lambda: child("kid", middleware=[Unfit("start")]), "bad start"),
        (lambda: child("kid", middleware=[Unfit("end")]), "bad end"),
        (lambda: child("kid", instructions="{missing}"), "missing"),
        (lambda: {"name": "kid", "model": "nonsense:model"}, "nonsense:model"),
    ],
    ids=["model", "on_run_start", "on_run_end", "instructions", "unknown_model"],
)
def test_a_failure_of_a_child_is_an_error_result_naming_task_and_reason(
    kid: Callable[[], Any], reason: str
) -> None:
    """S4: of any kind; the parent continues."""
    outcome = completed(boss([task("kid")], agents=[kid()]).execute_sync("go"))
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert "'kid'" in str(part.content)
    assert reason in str(part.content)
    assert outcome.text == "done"


class Till:
    """An agent that pays, a person is asked first, and its model is down afterwards."""

    def __init__(self, *, is_lost: bool) -> None:
        self.paid = 0

        @tool(ask=True)
        async def pay(order: str) -> str:
            self.paid += 1
            if is_lost:
                raise ConnectionResetError("the answer is lost")
            return "paid"

        def reply(request: ScriptedRequest) -> Any:
            if len(request.messages) > 1:
                raise ConnectionError("the model is down")
            return call("pay", {"order": "17"})

        self.agent = Agent("till", ScriptedModel(reply), tools=[pay])


def test_a_failed_child_tells_of_a_payment_that_a_person_has_found() -> None:
    """S4, J4: the answer to the doubt is that it took effect."""
    till = Till(is_lost=True)
    agent = boss([task("till")], agents=[till.agent])
    asked = interrupted(agent.execute_sync("go"))
    doubt = interrupted(agent.resume_sync(asked.state, asked.decide(approve())))
    assert doubt.requests[0].kind == "doubt"
    end = completed(agent.resume_sync(doubt.state, doubt.decide(respond("it is paid"))))
    (part,) = results(end.state)
    assert part.outcome == "failed"
    assert "It has done, and this stands:" in str(part.content)
    assert 'pay({"order":"17"})' in str(part.content)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_request_shows_what_an_agent_that_is_over_has_done(is_lost: bool) -> None:
    """J4, S4: its conversation is gone, and a person must know of the payment all the same."""
    till = Till(is_lost=is_lost)
    agent = boss([task("till")], [task("till")], agents=[till.agent])
    outcome = interrupted(agent.execute_sync("go"))
    assert outcome.requests[0].earlier == ()
    outcome = interrupted(agent.resume_sync(reloaded(outcome.state), outcome.decide(approve())))
    if is_lost:
        decided = outcome.decide(respond("it is paid"))
        outcome = interrupted(agent.resume_sync(reloaded(outcome.state), decided))
    (request,) = outcome.requests
    assert [(each.agent, each.outcome) for each in request.earlier] == [("till", "success")]
    completed(agent.resume_sync(reloaded(outcome.state), outcome.decide(reject("paid already"))))
    assert till.paid == 1


def test_a_failing_child_leaves_its_siblings_alone() -> None:
    """S4."""
    agents = [child("bad", RuntimeError("down")), child("good", "fine")]
    outcome = completed(boss([task("bad"), task("good")], agents=agents).execute_sync("go"))
    bad, good = results(outcome.state)
    assert (bad.outcome, good.outcome, good.content) == ("failed", "success", "fine")


def test_tasks_of_one_reply_run_concurrently_and_their_results_keep_call_order() -> None:
    """S4, T1: the first can only end after the second has begun."""
    begun = asyncio.Event()
    order: list[str] = []

    @tool
    async def wait() -> str:
        await asyncio.wait_for(begun.wait(), 30)  # a hang would say nothing
        order.append("wait")
        return "waited"

    @tool
    async def begin() -> str:
        order.append("begin")
        begun.set()
        return "begun"

    agents = [
        child("first", [call("wait")], "first done", tools=[wait]),
        child("second", [call("begin")], "second done", tools=[begin]),
    ]
    agent = boss([task("first"), task("second")], agents=agents)
    outcome = completed(agent.execute_sync("go"))
    assert order == ["begin", "wait"]
    assert [part.content for part in results(outcome.state)] == ["first done", "second done"]


def test_one_agent_may_do_two_tasks_at_once() -> None:
    """S4: each task is a child of its own."""

    def reply(request: ScriptedRequest) -> Any:
        return f"did {request.prompt}"

    kid = {"name": "a", "model": ScriptedModel(reply)}
    outcome = completed(boss([task("a", "one"), task("a", "two")], agents=[kid]).execute_sync("go"))
    assert [part.content for part in results(outcome.state)] == ["did one", "did two"]


def test_agents_nest_no_deeper_than_max_depth() -> None:
    """S7: deeper is an error result of the one who wanted it."""
    leaf = child("leaf", "leaf")
    mid = child("mid", [task("leaf")], "mid", middleware=[SubAgent(agents=[leaf], max_depth=2)])
    asked = mid["model"]
    outcome = completed(boss([task("mid")], agents=[mid]).execute_sync("go"))
    assert only(outcome) == "mid"
    told_mid = asked.requests[1].messages[-1].parts[0]
    assert told_mid.outcome == "failed"
    assert "'leaf'" in str(told_mid.content)
    assert leaf["model"].requests == []


def test_events_of_a_child_tell_where_they_come_from(ran: Ran) -> None:
    """S3."""
    leaf = child("leaf", [call("note")], tools=[ran.note])
    mid = child("mid", [task("leaf")], middleware=[SubAgent(agents=[leaf])])
    events: list[Any] = []
    boss([task("mid")], agents=[mid]).execute_sync("go", on_event=events.append)
    started = [(e.agent_path, e.tool_name) for e in events if isinstance(e, ToolStarted)]
    assert started == [
        (("boss",), "task"),
        (("boss", "mid"), "task"),
        (("boss", "mid", "leaf"), "note"),
    ]
    texts = {e.agent_path for e in events if e.kind == "text_delta"}
    assert texts == {("boss",), ("boss", "mid"), ("boss", "mid", "leaf")}


# -------------------------------------------------------------------------- interrupts (S5)


def family(ran: Ran) -> Callable[[], Agent]:
    """Two tasks at once; one goes two levels down. `danger` is gated by the root alone."""

    def build() -> Agent:
        leaf = child(
            "leaf",
            [call("note", {"x": 1})],
            [call("danger", {"x": 1}), call("ask", {"what": "colour"})],
            "leaf done",
            tools=[ran.danger, ran.note, ran.ask],
        )
        mid = child("mid", [task("leaf")], "mid done", middleware=[SubAgent(agents=[leaf])])
        side = child("side", [call("danger", {"x": 2})], "side done", tools=[ran.danger])
        return boss([task("mid"), task("side")], agents=[mid, side], interrupt_on={"danger": True})

    return build


def test_interrupts_of_several_children_at_any_depth_are_listed_together(ran: Ran) -> None:
    """S5, I9: each with an id of its own, and where it comes from."""
    outcome = interrupted(family(ran)().execute_sync("go"))
    assert [(r.agent_path, r.tool_name, r.kind) for r in outcome.requests] == [
        (("boss", "mid", "leaf"), "danger", "approval"),
        (("boss", "side"), "danger", "approval"),
    ]
    assert len({r.id for r in outcome.requests}) == 2
    assert outcome.requests == reloaded(outcome.state).requests
    assert ran.log == [("leaf", "note 1")]


@pytest.mark.parametrize("backwards", [False, True])
def test_answers_may_come_one_by_one_in_any_order(
    ran: Ran, elsewhere: bool, backwards: bool
) -> None:
    """S5, I4: and the finished calls of a child that waits never repeat."""
    stage = Stage(family(ran), elsewhere=elsewhere)
    outcome: Outcome = stage.start()
    rounds = 0
    while isinstance(outcome, Interrupted):
        rounds += 1
        request = outcome.requests[-1 if backwards else 0]
        answer = respond("red") if request.kind == "interrupt" else approve()
        outcome = stage.resume(outcome, {request.id: answer})
    end = completed(outcome)
    assert rounds == 3
    assert [part.content for part in results(end.state)] == ["mid done", "side done"]
    assert sorted(map(str, ran.log)) == sorted(
        map(str, [("leaf", "note 1"), ("leaf", 1), ("leaf", "red"), ("side", 2)])
    )
    assert_valid_history(end.state)
    assert end.state.children == {}
    assert [r.decision.type for r in end.state.decisions].count("approve") == 2
    assert len(end.state.decisions) == 3, "the audit keeps what was decided below"


def test_rejects_and_edits_reach_the_call_that_asked(ran: Ran, elsewhere: bool) -> None:
    """S5, I6."""
    stage = Stage(family(ran), elsewhere=elsewhere)
    outcome = interrupted(stage.start())
    answers = outcome.decide(edit({"x": 9}), reject("no, never"))
    outcome = interrupted(stage.resume(outcome, answers))
    (question,) = outcome.requests
    assert (question.kind, question.payload) == ("interrupt", {"what": "colour"})
    completed(stage.resume(outcome, outcome.decide(respond("red"))))
    assert ran.log == [("leaf", "note 1"), ("leaf", 9), ("leaf", "red")]


def test_an_answer_that_does_not_fit_changes_nothing_below(ran: Ran, elsewhere: bool) -> None:
    """I5: a right one still works."""
    stage = Stage(family(ran), elsewhere=elsewhere)
    outcome = interrupted(stage.start())
    first = outcome.requests[0]
    with pytest.raises(DecisionError, match=first.id):
        stage.resume(outcome, {first.id: edit({"x": "many"})})
    assert ran.log == [("leaf", "note 1")]
    interrupted(stage.resume(outcome, outcome.decide(approve(), approve())))


def test_the_same_answer_again_is_taken_and_another_one_refused(ran: Ran, elsewhere: bool) -> None:
    """I5, J5: while the child stands, and when it is over."""
    stage = Stage(family(ran), elsewhere=elsewhere)
    outcome = interrupted(stage.start())
    side = {outcome.requests[1].id: approve()}
    after = interrupted(stage.resume(outcome, side))
    assert [r.agent_path[-1] for r in after.requests] == ["leaf"]
    again = interrupted(stage.resume(after, side))
    assert again.requests == after.requests
    with pytest.raises(NotInterrupted):
        stage.resume(after, {outcome.requests[1].id: reject()})
    assert ran.log.count(("side", 2)) == 1


def test_an_ancestors_gate_holds_unless_the_childs_own_says_false(ran: Ran) -> None:
    """S5."""
    kids = [
        child(
            name,
            [call("danger", {"x": number})],
            tools=[ran.danger],
            middleware=[HumanInTheLoop({"danger": rule})] if rule is not None else [],
        )
        for number, (name, rule) in enumerate(
            {
                "silent": None,
                "off": False,
                "lax": {"when": lambda arguments, ctx: False},
                "narrow": ["approve", "reject"],
            }.items()
        )
    ]
    agent = boss([task(kid["name"]) for kid in kids], agents=kids, interrupt_on={"danger": True})
    outcome = interrupted(agent.execute_sync("go"))
    assert {r.agent_path[-1] for r in outcome.requests} == {"silent", "lax", "narrow"}
    assert ran.log == [("off", 1)]


def test_a_gate_that_says_false_frees_that_child_and_not_the_agents_below_it(ran: Ran) -> None:
    """S5: the child's own definition, by name."""
    leaf = child("leaf", [call("danger", {"x": 2})], tools=[ran.danger])
    mid = child(
        "mid",
        [call("danger", {"x": 1})],
        [task("leaf")],
        tools=[ran.danger],
        middleware=[SubAgent(agents=[leaf]), HumanInTheLoop({"danger": False})],
    )
    agent = boss([task("mid")], agents=[mid], interrupt_on={"danger": True})
    outcome = interrupted(agent.execute_sync("go"))
    assert ran.log == [("mid", 1)]
    assert [r.agent_path for r in outcome.requests] == [("boss", "mid", "leaf")]


def test_a_childs_own_gate_asks_where_no_ancestor_does(ran: Ran) -> None:
    """S5, I1."""
    kid = child(
        "a",
        [call("danger")],
        tools=[ran.danger],
        middleware=[HumanInTheLoop({"danger": ["reject"]})],
    )
    outcome = interrupted(boss([task("a")], agents=[kid]).execute_sync("go"))
    assert outcome.requests[0].allowed == ("reject",)


def test_a_gate_on_the_task_itself_asks_before_any_child_begins(ran: Ran) -> None:
    """I2."""
    kid = child("a", "never")
    agent = boss([task("a")], agents=[kid], interrupt_on={"task": True})
    outcome = interrupted(agent.execute_sync("go"))
    assert outcome.requests[0].arguments == {"task_name": "a", "instructions": "do it"}
    end = completed(agent.resume_sync(outcome.state, outcome.decide(reject())))
    assert kid["model"].requests == []
    assert results(end.state)[0].outcome == "denied"


def test_a_doubt_in_a_child_makes_equal_calls_need_a_person_in_the_whole_tree() -> None:
    """J4: sibling agents and the parent, while the child stands and after it."""
    paid: list[int] = []

    @tool(timeout=0.05)
    async def pay(x: int) -> str:
        paid.append(x)
        if len(paid) == 1:
            await never()
        return f"paid {x}"

    same, another = call("pay", {"x": 1}), call("pay", {"x": 2})
    kid = child("a", [same], tools=[pay])
    other = child("b", [another], [same], tools=[pay])
    agent = boss([task("a")], [task("b")], [another, same], agents=[kid, other], tools=[pay])
    outcome = interrupted(agent.execute_sync("go"))
    assert paid == [1, 2], "a call that differs needs nobody"
    (request,) = outcome.requests
    assert request.agent_path == ("boss", "b")
    assert request.arguments == {"x": 1}
    assert [doubt.arguments for doubt in request.doubts] == [{"x": 1}]
    outcome = interrupted(agent.resume_sync(reloaded(outcome.state), outcome.decide(approve())))
    assert paid == [1, 2, 1]
    (request,) = outcome.requests
    assert request.agent_path == ("boss",)
    assert request.arguments == {"x": 1}
    assert [doubt.arguments for doubt in request.doubts] == [{"x": 1}]
    completed(agent.resume_sync(outcome.state, outcome.decide(approve())))
    assert sorted(paid) == [1, 1, 1, 2, 2]


# ------------------------------------------------------------ withdrawing, going on elsewhere


def test_a_new_message_ends_the_children_that_wait(ran: Ran, elsewhere: bool) -> None:
    """I10, J11: history stays well-formed, and an old answer is stale."""
    stage = Stage(family(ran), elsewhere=elsewhere)
    outcome = interrupted(stage.start())
    state = reloaded(outcome.state) if elsewhere else outcome.state
    end = completed(family(ran)().execute_sync("something else", state=state))
    assert end.state.children == {}
    assert_valid_history(end.state)
    assert all(part.outcome != "success" for part in results(end.state))
    assert ran.log == [("leaf", "note 1")]
    with pytest.raises(DecisionError):
        stage.resume(end, {outcome.requests[0].id: approve()})


def test_a_resumed_state_with_waiting_children_can_be_rebuilt_from_its_journal(ran: Ran) -> None:
    """J17: the snapshot that a new journal begins with holds them."""
    build = family(ran)
    outcome = interrupted(build().execute_sync("go"))
    disk = Disk()
    after = build().resume_sync(outcome.state, {outcome.requests[1].id: approve()}, journal=disk)
    assert disk.load() == after.state
    assert disk.load().requests == interrupted(after).requests


def gated(version: str, **gate: Any) -> Agent:
    """A child whose own gate holds its only tool, which has this version."""

    @tool(version=version)
    async def danger(x: int = 0) -> str:
        return f"did {x}"

    middleware = [HumanInTheLoop({"danger": True}, **gate)]
    kid = child("a", [call("danger")], tools=[danger], middleware=middleware)
    return boss([task("a")], agents=[kid])


def test_an_approval_in_a_child_does_not_hold_for_a_tool_that_has_changed() -> None:
    """I12."""
    outcome = interrupted(gated("1").execute_sync("go"))
    again = interrupted(gated("2").resume_sync(reloaded(outcome.state), outcome.decide(approve())))
    assert again.requests[0].id != outcome.requests[0].id
    completed(gated("2").resume_sync(reloaded(again.state), again.decide(approve())))


def test_a_request_of_a_child_that_nobody_answers_in_time_counts_as_rejected() -> None:
    """I14."""
    clock = FakeClock()
    agent = gated("1", expires_after=5)
    outcome = interrupted(agent.execute_sync("go", clock=clock))
    clock.advance(6)
    with pytest.raises(DecisionError, match="expired"):
        agent.resume_sync(reloaded(outcome.state), outcome.decide(approve()), clock=clock)
    end = completed(agent.resume_sync(reloaded(outcome.state), clock=clock))
    assert [record.decision.type for record in end.state.decisions] == ["reject"]


def test_a_standing_answer_holds_for_the_childs_next_call_of_that_tool(ran: Ran) -> None:
    """I3: for that tool and agent; another child is asked about."""
    kids = [
        child(name, [call("danger", {"x": 1})], [call("danger", {"x": 2})], tools=[ran.danger])
        for name in ("a", "b")
    ]
    agent = boss([task("a")], [task("b")], agents=kids, interrupt_on={"danger": True})
    outcome = interrupted(agent.execute_sync("go"))
    outcome = interrupted(
        agent.resume_sync(reloaded(outcome.state), outcome.decide(approve(always=True)))
    )
    assert ran.log == [("a", 1), ("a", 2)]
    assert outcome.requests[0].agent_path == ("boss", "b")


def test_a_child_that_is_not_offered_any_more_is_an_error_result(ran: Ran) -> None:
    """S4: the parent continues without it, and nothing of it is left."""
    outcome = interrupted(gated("1").execute_sync("go"))
    other = boss([task("a")], agents=[child("b")])
    end = completed(other.resume_sync(reloaded(outcome.state), outcome.decide(approve())))
    (part,) = results(end.state)
    assert part.outcome == "failed"
    assert "task_name" in str(part.content)
    assert end.state.children == {}


def answers(requests: Any) -> dict[str, Any]:
    return {
        r.id: respond("red") if r.kind == "interrupt" else edit({"x": r.arguments["x"] + 10})
        for r in requests
    }


class Idempotent:
    """The family for crashes: its tools may run again where they were cut off."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def build(self) -> Agent:
        ran = self.ran

        @tool(idempotent=True)
        async def note(ctx: ToolContext, x: int) -> str:
            ran.append(ctx.call_key)
            return f"noted {x}"

        @tool(idempotent=True)
        async def danger(ctx: ToolContext, x: int) -> str:
            ran.append(ctx.call_key)
            return f"did {x}"

        leaf = child(
            "leaf",
            [call("note", {"x": 1})],
            [call("danger", {"x": 1})],
            "leaf",
            tools=[note, danger],
        )
        mid = child(
            "mid",
            [call("note", {"x": 3}), task("leaf")],
            "mid",
            tools=[note],
            middleware=[SubAgent(agents=[leaf])],
        )
        side = child("side", [call("note", {"x": 2})], "side", tools=[note], until_tool="note")
        return boss([task("mid"), task("side")], agents=[mid, side], interrupt_on={"danger": True})

    def to_the_end(self, outcome: Outcome, disk: Disk | None = None) -> Outcome:
        while isinstance(outcome, Interrupted):
            outcome = self.build().resume_sync(
                outcome.state, answers(outcome.requests), journal=disk
            )
        return outcome


def finished(disk: Disk) -> set[str]:
    keys = set()
    for line in map(json.loads, disk.lines):
        while line["kind"] == "child_record":
            line = line["record"]
        if line["kind"] == "result":
            keys.add(line["call_key"])
    return keys


def ids() -> Callable[[], str]:
    numbers = count()
    return lambda: f"id{next(numbers)}"


@pytest.mark.slow
def test_a_tree_cut_off_after_any_record_ends_the_same_way_elsewhere() -> None:
    """J1, J3, J11: with children two levels down, and an approval in the middle."""
    whole = Idempotent()
    disk = Disk()
    end = whole.to_the_end(whole.build().execute_sync("go", journal=disk, new_id=ids()), disk)
    expected = told(end)
    assert len(whole.ran) == len(set(whole.ran)) == 4
    assert len(finished(disk)) >= 4
    for limit in range(1, len(disk.lines)):
        before, after, cut = Idempotent(), Idempotent(), Disk(limit)
        with pytest.raises(Crash):
            before.to_the_end(before.build().execute_sync("go", journal=cut, new_id=ids()), cut)
        state = cut.load()
        outcome = after.build().resume_sync(state)
        assert told(after.to_the_end(outcome)) == expected, f"cut after record {limit}"
        assert not finished(cut) & set(after.ran), f"cut after record {limit}"
        assert len(after.ran) == len(set(after.ran))


# ------------------------------------------------------------------------- under a Runtime


async def test_cancelling_the_parent_ends_every_descendant_and_leaves_none_behind() -> None:
    """S6, P7."""
    inside, ended = asyncio.Event(), list[str]()

    @tool
    async def hang() -> None:
        inside.set()
        try:
            await never()
        finally:
            ended.append("hang")

    leaf = child("leaf", [call("hang")], tools=[hang])
    mid = child("mid", [task("leaf")], middleware=[SubAgent(agents=[leaf])])
    agent = boss([task("mid")], agents=[mid])
    before = asyncio.all_tasks()
    async with Runtime(agents=[agent]) as runtime:
        ref = runtime.spawn("boss", id="one")
        future = ref.run("go")
        await inside.wait()
        stopped = await ref.cancel()
        assert isinstance(stopped, Stopped)
        assert isinstance(await future, Stopped)
        assert ended == ["hang"]
        assert ref.status() is Status.CANCELLED
        state = await ref.state()
        assert state.children == {}
        assert_valid_history(state)
        assert [doubt.tool_name for doubt in state.doubts.values()] == ["hang"]
        assert state.run is not None
        assert state.run.usage.requests == 3, "what the children used is counted"
        assert isinstance(await ref.run("again"), Completed)
    for _ in range(10):
        await asyncio.sleep(0)  # cancelled tasks of the runtime's own come to their end
    assert asyncio.all_tasks() == before


async def test_cancelling_while_a_child_waits_for_a_person_leaves_nothing_to_answer(
    ran: Ran,
) -> None:
    """S6, J11."""
    async with Runtime(agents=[family(ran)()]) as runtime:
        ref = runtime.spawn("boss", id="one")
        outcome = interrupted(await ref.run("go"))
        assert [p.request.id for p in await runtime.pending()] == [r.id for r in outcome.requests]
        assert isinstance(await ref.cancel(), Stopped)
        assert await runtime.pending() == []
        state = await ref.state()
        assert state.children == {}
        assert_valid_history(state)


async def test_an_agent_answers_for_its_children_under_a_runtime(ran: Ran) -> None:
    """S5, I10: their requests are pending, their events bear their path."""
    async with Runtime(agents=[family(ran)()]) as runtime:
        ref = runtime.spawn("boss", id="one")
        outcome: Any = await ref.run("go")
        while isinstance(outcome, Interrupted):
            pending = await runtime.pending()
            assert [p.request for p in pending] == list(outcome.requests)
            outcome = await ref.resume(answers(outcome.requests))
        assert isinstance(outcome, Completed), outcome
        assert len(await ref.decisions()) == 3
        asked = []
        async for event in ref.events():
            if isinstance(event.event, RequestMade):
                asked.append(event.event.agent_path[-1])
            if len(asked) == 3:
                break
        assert asked == ["leaf", "side", "leaf"]


async def test_a_new_message_to_an_actor_ends_the_children_that_wait(ran: Ran) -> None:
    """I10."""
    async with Runtime(agents=[family(ran)()]) as runtime:
        ref = runtime.spawn("boss", id="one")
        interrupted(await ref.run("go"))
        assert isinstance(await ref.run("never mind"), Completed)
        assert await runtime.pending() == []
        assert_valid_history(await ref.state())


async def test_an_agent_that_pauses_in_a_child_goes_on_there() -> None:
    """S6, R7: pause reaches the descendants, and so does unpause."""
    inside, leave, ran = asyncio.Event(), asyncio.Event(), list[int]()

    @tool
    async def step(x: int) -> str:
        ran.append(x)
        inside.set()
        await leave.wait()
        return "stepped"

    kid = child("a", [call("step", {"x": 1})], [call("step", {"x": 2})], tools=[step])
    async with Runtime(agents=[boss([task("a")], agents=[kid])]) as runtime:
        ref = runtime.spawn("boss", id="one")
        future = ref.run("go")
        await inside.wait()
        await ref.pause("look")
        leave.set()
        outcome = await future
        assert isinstance(outcome, Paused)
        assert outcome.reason == "look"
        assert ran == [1]
        await ref.unpause()
        assert isinstance(await ref.outcome(), Completed)
        assert ran == [1, 2]


def test_a_definition_reads_a_request_of_a_child_as_plain_data(ran: Ran) -> None:
    """I9."""
    outcome = interrupted(family(ran)().execute_sync("go"))
    request = outcome.requests[0]
    assert isinstance(request, Request)
    assert request.to_dict()["agent_path"] == ["boss", "mid", "leaf"]
    assert not any(
        isinstance(part, SystemPromptPart)
        for message in outcome.state.messages
        if isinstance(message, ModelRequest)
        for part in message.parts
    )
    assert not isinstance(outcome, Failed)


# ------------------------------------------------------------------------- errors stay errors


@tool
def books(order: int) -> str:
    raise LookupError(f"there is no order {order}")


def test_an_error_of_a_childs_until_tool_is_an_error_for_the_parent() -> None:
    """S4: it is no result of the task."""
    clerk = child("clerk", call("books", {"order": 7}), tools=[books], until_tool="books")
    parent = Agent(
        "parent",
        ScriptedModel([task("clerk"), "sorry"]),
        middleware=[SubAgent([clerk], general_purpose=False)],
    )
    (part,) = results(completed(parent.execute_sync("go")).state)
    assert part.outcome == "failed"
    assert "there is no order 7" in str(part.content)
    assert "'clerk'" in str(part.content)


@pytest.mark.parametrize("returned", ["outcome", "tool_result"])
def test_a_tool_that_returns_an_error_of_the_agent_that_it_ran_has_failed(returned: str) -> None:
    """S4."""
    clerk = child("clerk", call("books", {"order": 7}), tools=[books], until_tool="books")

    @tool
    async def delegate(ctx: ToolContext) -> Any:
        outcome = completed(await ctx.run_agent("clerk", "go"))
        return outcome if returned == "outcome" else outcome.tool_result

    parent = Agent(
        "parent",
        ScriptedModel([call("delegate"), "sorry"]),
        tools=[delegate],
        middleware=[SubAgent([clerk], general_purpose=False)],
    )
    (part,) = results(completed(parent.execute_sync("go")).state)
    assert part.outcome == "failed"
    assert "there is no order 7" in str(part.content)


@pytest.mark.parametrize("works", [True, False], ids=["completed", "failed"])
def test_a_tool_may_return_the_outcome_of_the_agent_that_it_ran(works: bool) -> None:
    """S4: its text is the result, and its failure an error."""
    inner = Agent("inner", ScriptedModel(["fine" if works else RuntimeError("no network")]))

    @tool
    async def delegate(ctx: ToolContext) -> Any:
        return await ctx.run_agent(inner, "go")

    parent = Agent("parent", ScriptedModel([call("delegate"), "done"]), tools=[delegate])
    (part,) = results(completed(parent.execute_sync("go")).state)
    if works:
        assert (part.outcome, part.content) == ("success", "fine")
    else:
        assert part.outcome == "failed"
        assert "no network" in str(part.content)
        assert "'inner'" in str(part.content)


def test_an_agent_whose_call_is_rejected_by_another_question_ends_with_its_hooks(ran: Ran) -> None:
    """R4, I8: the tool asked beside the agent that it runs, and is not entered again."""
    told: list[str] = []

    class Tells(Middleware):
        async def on_run_end(self, run: Any, outcome: Outcome) -> None:
            told.append(f"{run.agent_path[-1]} {type(outcome).__name__}")

    gate = {"danger": True}
    model = by_turn(call("danger", {"x": 1}))
    helper = Agent("helper", model, tools=[ran.danger], interrupt_on=gate, middleware=[Tells()])

    @tool
    async def delegate(ctx: ToolContext) -> str:
        async def ask() -> None:
            raise Interrupt("really?")

        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.run_agent(helper, "go"))
            group.create_task(ask())
        return "not reached"

    agent = Agent("boss", by_turn(call("delegate")), tools=[delegate], middleware=[Tells()])
    outcome = interrupted(agent.execute_sync("go"))
    kinds = {request.kind: request for request in outcome.requests}
    assert set(kinds) == {"interrupt", "approval"}
    answers = {kinds["interrupt"].id: reject("no"), kinds["approval"].id: approve()}
    done = completed(agent.resume_sync(outcome.state, answers))
    assert [part.outcome for part in results(done.state)] == ["denied"]
    assert told == ["helper Stopped", "boss Completed"]
    assert ran.log == []


def test_no_other_agent_is_started_by_a_tool_whose_agent_waits_for_a_person(ran: Ran) -> None:
    """S5: also if the tool catches every exception, and continues."""
    gate = {"danger": True}
    model, second = by_turn(call("danger", {"x": 1})), by_turn()
    first = Agent("first", model, tools=[ran.danger], interrupt_on=gate)

    @tool
    async def delegate(ctx: ToolContext) -> str:
        with contextlib.suppress(BaseException):
            await ctx.run_agent(first, "go")
        await ctx.run_agent(Agent("second", second), "go")
        return "both are done"

    agent = Agent("boss", by_turn(call("delegate")), tools=[delegate])
    outcome = interrupted(agent.execute_sync("go"))
    assert second.requests == []
    done = completed(agent.resume_sync(outcome.state, outcome.decide(approve())))
    assert [part.content for part in results(done.state)] == ["both are done"]
    assert len(second.requests) == 1
    assert ran.log == [("first", 1)]
