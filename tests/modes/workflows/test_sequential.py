"""W4, W5, W7: agents one after the other, and what is common to all workflows."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from tests.support.agents import (
    Held,
    authors,
    completed,
    interrupted,
    reloaded,
    results,
    told_by_users,
)
from tests.support.loops import never, soon
from understudy import (
    Agent,
    AgentState,
    Failed,
    InMemoryCancellation,
    Interrupted,
    ModelFailed,
    Outcome,
    Paused,
    Runtime,
    ScriptedModel,
    Status,
    Stopped,
    StopReason,
    StopSignal,
    StopSignals,
    ToolContext,
    ToolResult,
    UsageError,
    approve,
    call,
    reject,
    tool,
)
from understudy.errors import AgentFailed, DefinitionChanged, MissingValue, error_from_dict
from understudy.events import AgentEnded, ReplyEnded, TextDelta
from understudy.middleware import HumanInTheLoop, Limits, Middleware, SubAgent
from understudy.modes import AgentExecution, Loop, Mode, Parallel, Sequential
from understudy.outcomes import Completed


@tool
async def look(x: int) -> ToolResult[str]:
    """Look at something."""
    return ToolResult(f"saw {x}", state={"seen": {str(x): True}})


@tool
async def mail(to: str) -> str:
    """Send a mail."""
    return f"mailed {to}"


def agent(name: str, *replies: Any, **options: Any) -> Agent:
    return Agent(name, ScriptedModel(list(replies)), **options)


SAME = Agent("same", ScriptedModel([]))


def sequence(*agents: Agent, **options: Any) -> Agent:
    return Agent("flow", mode=Sequential(agents), **options)


# ------------------------------------------------------------- one after the other


def test_agents_run_in_order_and_the_last_text_is_the_workflows() -> None:
    flow = sequence(agent("writer", "A draft."), agent("reviewer", "A review."))
    outcome = completed(flow.execute_sync("Kettles."))
    assert outcome.text == outcome.output == "A review."
    assert [(r.agent, r.outcome, r.text) for r in outcome.results] == [
        ("writer", "completed", "A draft."),
        ("reviewer", "completed", "A review."),
    ]
    assert outcome.usage.requests == 2


def test_an_agent_sees_the_conversation_with_the_turns_of_others_marked() -> None:
    """W5."""
    model = ScriptedModel(["A review."])
    writer = agent("writer", ["I look.", call("look", {"x": 1})], "A draft.", tools=[look])
    flow = sequence(writer, Agent("reviewer", model))
    outcome = completed(flow.execute_sync("Kettles."))
    assert told_by_users(model.requests[0]) == [
        "Kettles.",
        '[writer] said: I look.\n[writer] called look({"x": 1})',
        "[writer] got from look: saw 1",
        "[writer] said: A draft.",
    ]
    assert authors(outcome.state) == [None, "writer", "writer", "writer", "reviewer"]
    assert isinstance(outcome.state.messages[1], ModelResponse), "kept as it was said"


def test_an_agent_sees_its_own_turns_of_earlier_runs_as_its_own() -> None:
    """W5: a conversation of several runs."""
    first, second = ScriptedModel(["one", "three"]), ScriptedModel(["two", "four"])
    flow = sequence(Agent("a", first), Agent("b", second))
    outcome = flow.execute_sync("go")
    flow.execute_sync("again", state=reloaded(outcome.state))
    assert told_by_users(first.requests[1]) == ["go", "[b] said: two", "again"]
    said = [m for m in first.requests[1].messages if isinstance(m, ModelResponse)]
    assert [message.text for message in said] == ["one"]
    assert told_by_users(second.requests[1]) == [
        "go",
        "[a] said: one",
        "again",
        "[a] said: three",
    ]


def test_a_conversation_from_elsewhere_is_shown_as_it_is() -> None:
    before: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("hi")]),
        ModelResponse(parts=[TextPart("hello")]),
    ]
    model = ScriptedModel(["ok"])
    sequence(Agent("a", model)).execute_sync("go", state=AgentState(messages=before))
    assert told_by_users(model.requests[0]) == ["hi", "go"]
    assert isinstance(model.requests[0].messages[1], ModelResponse)


def test_without_contents_an_agent_sees_only_the_latest_turn_by_somebody_else() -> None:
    """W5: a turn is a reply with its results."""
    model, last = ScriptedModel(["A review."]), ScriptedModel(["x"])
    writer = agent("writer", "first", call("look", {"x": 1}), "A draft.", tools=[look])
    editor = agent("editor", call("look", {"x": 2}), tools=[look])
    flow = Agent(
        "flow",
        mode=Sequential(
            [
                writer,
                Agent("reviewer", model, include_contents="none"),
                Agent("ender", ScriptedModel([call("stop")]), tools=[stop]),
                Agent("last", last, include_contents="none"),
            ]
        ),
    )
    assert editor.name == "editor"
    completed(flow.execute_sync("Kettles."))
    assert told_by_users(model.requests[0]) == ["[writer] said: first"]
    assert told_by_users(last.requests[0]) == [
        "[ender] called stop({})",
        "[ender] got from stop: stopped",
    ]


@tool
async def stop() -> ToolResult[str]:
    """Stop here."""
    return ToolResult("stopped", skip_summarization=True)


def test_without_contents_the_first_agent_sees_the_input() -> None:
    model = ScriptedModel(["one", "two"])
    flow = sequence(Agent("a", model, include_contents="none"))
    outcome = flow.execute_sync("first")
    flow.execute_sync("second", state=outcome.state)
    assert [told_by_users(request) for request in model.requests] == [["first"], ["second"]]


def test_a_workflow_without_contents_hides_earlier_runs_from_its_agents() -> None:
    model = ScriptedModel(["one", "two"])
    flow = sequence(Agent("a", model), include_contents="none")
    outcome = flow.execute_sync("first")
    flow.execute_sync("second", state=outcome.state)
    assert told_by_users(model.requests[1]) == ["second"]


def test_agents_share_values_through_output_keys_tools_and_instructions() -> None:
    """W4, W5."""
    model = ScriptedModel(["ok"])
    writer = agent("writer", call("look", {"x": 1}), "A draft.", tools=[look], output_key="doc")
    flow = sequence(writer, Agent("reviewer", model, "Judge {doc} of {shop}, {seen}."))
    outcome = completed(flow.execute_sync("go", state=AgentState(values={"shop": "Ann's"})))
    assert model.requests[0].instructions == "Judge A draft. of Ann's, {'1': True}."
    assert outcome.state.values == {"shop": "Ann's", "doc": "A draft.", "seen": {"1": True}}


def test_a_key_that_no_agent_before_has_put_fails_the_workflow_naming_key_and_agent() -> None:
    """W4."""
    outcome = sequence(agent("a", "x"), agent("b", "y", instructions="{doc}")).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AgentFailed)
    assert outcome.error.agent == "b"
    assert "'doc'" in str(outcome.error)
    assert isinstance(outcome.error.__cause__, MissingValue)


def test_deltas_of_several_agents_are_merged_in_order_and_once() -> None:
    """T4, W5: what one set to no mapping, the next makes one again."""

    def setting(value: Any) -> Any:
        @tool
        async def put() -> ToolResult[str]:
            return ToolResult("put", state={"k": value})

        return put

    agents = [
        agent(name, [call("put")], "done", tools=[setting(value)])
        for name, value in (("a", None), ("b", {"y": 2}), ("c", {"z": [1]}))
    ]
    flow = sequence(*agents)
    outcome = completed(flow.execute_sync("go", state=AgentState(values={"k": {"x": 1}})))
    assert outcome.state.values == {"k": {"y": 2, "z": [1]}}


def test_an_output_replaces_what_was_there_for_the_workflow_too() -> None:
    """W4: it is put, and not merged into what another agent put before."""

    class Review(BaseModel):
        notes: dict[str, int]

    agents = [
        agent(name, f'{{"notes": {{"{name}": 1}}}}', output_type=Review, output_key="review")
        for name in "ab"
    ]
    outcome = completed(sequence(*agents).execute_sync("go"))
    assert outcome.state.values == {"review": {"notes": {"b": 1}}}


def test_a_middlewares_typed_values_are_there_for_its_agent_and_stay() -> None:
    class Notes(BaseModel):
        notes: list[str] = ["none yet"]  # Pydantic copies it

    class Keeper(Middleware):
        state_schema = Notes

    model = ScriptedModel(["ok"])
    flow = sequence(Agent("a", model, "{notes}", middleware=[Keeper()]), agent("b", "x"))
    outcome = completed(flow.execute_sync("go"))
    assert model.requests[0].instructions == "['none yet']"
    assert outcome.state.values == {"notes": ["none yet"]}


def test_an_agent_that_answers_itself_is_told_to_go_on() -> None:
    """Models answer others: two of its own replies never follow each other."""
    model = ScriptedModel(["one", "two"])
    Agent("flow", mode=Loop([Agent("a", model)], max_iterations=2)).execute_sync("go")
    kinds = [type(message).__name__ for message in model.requests[1].messages]
    assert kinds == ["ModelRequest", "ModelResponse", "ModelRequest"]
    assert told_by_users(model.requests[1])[1].startswith("Go on with your part")


def test_the_ids_of_calls_are_unique_over_all_agents_of_a_workflow() -> None:
    """T7: their calls will stand in one conversation."""
    calls = [call("look", {"x": 1}, id="same")]
    agents = [agent(name, calls, "done", tools=[look]) for name in ("a", "b")]
    side = [agent(name, calls, "done", tools=[look]) for name in ("c", "d")]
    flow = sequence(*agents, Agent("both", mode=Parallel(side)))
    outcome = completed(flow.execute_sync("go"))
    ids = [part.tool_call_id for part in results(outcome.state)]
    assert len(ids) == len(set(ids)) == 4


def test_a_summary_in_one_agent_leaves_the_workflows_conversation_whole() -> None:
    class Summary(Middleware):
        async def before_model(self, run: Any, request: Any) -> None:
            async def shorten() -> None:
                await run.replace_history([ModelRequest(parts=[UserPromptPart("in short")])])

            if run.current.turns == 1:
                await run.once("shorten", shorten)

    model, after = ScriptedModel([call("look", {"x": 1}), "A draft."]), ScriptedModel(["ok"])
    writer = Agent("writer", model, tools=[look], middleware=[Summary()])
    outcome = completed(sequence(writer, Agent("b", after)).execute_sync("Kettles."))
    assert told_by_users(model.requests[1]) == ["in short"]
    assert authors(outcome.state) == [None, "writer", "writer", "writer", "b"]
    assert told_by_users(after.requests[0])[-1] == "[writer] said: A draft."


# ------------------------------------------------------------------ ends and limits


def test_an_agent_that_fails_fails_the_workflow_and_the_rest_does_not_run() -> None:
    rest = ScriptedModel(["never"])
    broken = agent("b", call("look", {"x": 1}), ValueError("down"), tools=[look])
    outcome = sequence(agent("a", "one"), broken, Agent("c", rest)).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AgentFailed)
    assert outcome.error.agent == "b"
    assert isinstance(error_from_dict(outcome.error.error), ModelFailed)
    assert rest.requests == []
    assert authors(outcome.state) == [None, "a", "b", "b"], "finished turns are kept"
    assert outcome.usage.requests == 2


def test_the_limit_of_an_agent_is_its_own_and_usage_is_the_workflows() -> None:
    """R1: each part of an agent in a workflow is a run of its own."""
    loops = [call("look", {"x": x}) for x in range(3)]
    first = agent("a", *loops[:2], "done", tools=[look], max_runs=3)
    second = agent("b", *loops, "done", tools=[look], max_runs=3)
    outcome = sequence(first, second).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AgentFailed)
    assert outcome.error.agent == "b"
    assert outcome.usage.requests == 6
    assert outcome.usage.tool_calls == 5


def test_an_agent_in_a_workflow_is_stopped_alone() -> None:
    """P8: what a nested agent stopped on does not leak; it has had its turn."""

    async def enough(run: Any) -> Outcome:
        stopped: Outcome = run.stopped(StopSignals((StopSignal(StopReason.TOKEN_LIMIT),)))
        return stopped

    mode = AgentExecution().inserting(step=enough, before="call_llm")
    outcome = sequence(agent("a", mode=mode), agent("b", "text")).execute_sync("go")
    assert [(r.agent, r.outcome) for r in completed(outcome).results] == [
        ("a", "stopped"),
        ("b", "completed"),
    ]


def test_a_cancellation_source_stops_a_workflow_and_keeps_what_was_finished() -> None:
    """P7."""
    flag, rest = InMemoryCancellation(), ScriptedModel(["never"])

    def says(_: Any) -> str:
        flag.cancel()
        return "one"

    flow = sequence(agent("a", says), Agent("b", rest))
    outcome = flow.execute_sync("go", cancellation=flag)
    assert isinstance(outcome, Stopped)
    assert authors(outcome.state) == [None, "a"]
    assert rest.requests == []


def test_a_deadline_of_a_workflow_ends_the_agent_at_work() -> None:
    """P9: children inherit what is left, and the workflow does not continue with the next."""
    rest = ScriptedModel(["never"])

    async def waits(_: Any) -> str:
        await never()
        return ""

    flow = sequence(agent("a", waits), Agent("b", rest))
    outcome = flow.execute_sync("go", deadline=0.05)
    assert isinstance(outcome, Stopped)
    assert outcome.signals.highest is not None
    assert outcome.signals.highest.reason is StopReason.TIME_LIMIT
    assert outcome.state.children == {}
    assert rest.requests == []


def test_limits_belong_to_the_agents_of_a_workflow() -> None:
    """R8: a guard is never silently off."""
    with pytest.raises(UsageError, match="Limits"):
        sequence(agent("a"), middleware=[Limits(max_steps=1)])


def test_hooks_of_the_workflow_run_once_and_those_of_an_agent_around_its_part() -> None:
    """R4."""
    told: list[str] = []

    class Tells(Middleware):
        async def on_run_start(self, run: Any) -> None:
            told.append(f"{run.definition.name} starts")

        async def on_run_end(self, run: Any, outcome: Outcome) -> None:
            told.append(f"{run.definition.name} ends")

    inner = agent("a", "x", middleware=[Tells()])
    completed(sequence(inner, middleware=[Tells()]).execute_sync("go"))
    assert told == ["flow starts", "a starts", "a ends", "flow ends"]


def test_events_tell_who_speaks_and_whose_part_is_over() -> None:
    events: list[Any] = []
    sequence(agent("a", "x"), agent("b", "y")).execute_sync("go", on_event=events.append)
    told = [e for e in events if isinstance(e, (ReplyEnded, AgentEnded))]
    assert [(type(e).__name__, e.agent_path) for e in told] == [
        ("ReplyEnded", ("flow", "a")),
        ("AgentEnded", ("flow", "a")),
        ("ReplyEnded", ("flow", "b")),
        ("AgentEnded", ("flow", "b")),
    ]


# ------------------------------------------------------------------ persons, pauses


def gated() -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(["one"])
    mailer = agent("mailer", call("mail", {"to": "ann"}), "two", tools=[mail])
    return sequence(Agent("a", model), mailer, interrupt_on={"mail": True}), model


def test_a_gate_of_the_workflow_holds_in_its_agents_and_it_goes_on_at_the_same_one() -> None:
    """S5, W7."""
    flow, model = gated()
    outcome = interrupted(flow.execute_sync("go"))
    assert [r.agent_path for r in outcome.requests] == [("flow", "mailer")]
    done = completed(flow.resume_sync(reloaded(outcome.state), outcome.decide(approve())))
    assert done.text == "two"
    assert len(model.requests) == 1
    assert [d.decision.type for d in done.state.decisions] == ["approve"]


def test_a_grant_holds_for_that_agent_in_later_rounds_and_runs() -> None:
    """I3: and for no other agent with such a tool; it can be taken back."""

    def flow() -> Agent:
        rounds = [call("mail", {"to": "ann"}), "x"] * 2
        agents = [agent(name, *rounds, tools=[mail], interrupt_on={"mail": True}) for name in "ab"]
        return sequence(Agent("rounds", mode=Loop(agents, max_iterations=2)))

    first = flow()
    outcome: Outcome = first.execute_sync("go")
    asked = []
    while isinstance(outcome, Interrupted):
        asked.append(outcome.requests[0].agent_path[-1])
        answers = outcome.decide(approve(always=asked[-1] == "a"))
        outcome = first.resume_sync(reloaded(outcome.state), answers)
    assert asked == ["a", "b", "b"]
    (grant,) = outcome.state.grants.values()
    assert (grant.agent_path[-2:], grant.tool_name) == (("rounds", "a"), "mail")
    again = interrupted(flow().execute_sync("again", state=outcome.state))
    assert again.requests[0].agent_path[-1] == "b"
    assert first.revoke(outcome.state, grant.id).grants == {}


def test_a_new_message_takes_back_what_an_agent_of_a_workflow_asked() -> None:
    """I10."""
    flow, _ = gated()
    outcome = interrupted(flow.execute_sync("go"))
    fresh = sequence(agent("a", "new one"), agent("mailer", "new two"))
    done = completed(fresh.execute_sync("never mind", state=reloaded(outcome.state)))
    (denied,) = results(done.state)
    assert denied.outcome == "denied"
    assert "moved on" in str(denied.content)
    assert authors(done.state) == [None, "a", "mailer", "mailer", None, "a", "mailer"]


def test_a_rejected_call_goes_back_to_its_agent() -> None:
    flow, _ = gated()
    outcome = interrupted(flow.execute_sync("go"))
    done = completed(flow.resume_sync(outcome.state, outcome.decide(reject("no"))))
    assert [part.outcome for part in results(done.state)] == ["denied"]
    assert done.text == "two"


def test_the_pause_of_an_agent_pauses_the_workflow_and_it_goes_on_there() -> None:
    """R7, W7."""
    asked = [False, True, False]
    first, second = ScriptedModel(["one"]), ScriptedModel(["two"])
    flow = sequence(Agent("a", first), Agent("b", second), pause_when=lambda: asked.pop(0))
    outcome = flow.execute_sync("go")
    assert isinstance(outcome, Paused)
    assert completed(flow.resume_sync(reloaded(outcome.state))).text == "two"
    assert (len(first.requests), len(second.requests)) == (1, 1)


def test_every_pause_when_around_an_agent_is_asked() -> None:
    """R7: the workflow's and the host's."""
    flow = sequence(agent("a", "one"), pause_when=lambda: False)
    outcome = flow.execute_sync("go", pause_when=lambda: "the host")
    assert isinstance(outcome, Paused)
    assert outcome.reason == "the host"


def test_deps_reach_the_tools_of_every_agent() -> None:
    @tool
    async def read(ctx: ToolContext) -> str:
        return f"{ctx.deps} {ctx.agent_path}"

    flow = sequence(agent("a", call("read"), "x", tools=[read]))
    outcome = completed(flow.execute_sync("go", deps="shop"))
    assert [part.content for part in results(outcome.state)] == ["shop ('flow', 'a')"]


@pytest.mark.parametrize("mode", [Sequential, Parallel, Loop])
def test_a_changed_list_of_agents_fails_the_run(mode: Any) -> None:
    """J12: agents taken out, put in, put elsewhere, or another kind of workflow."""

    def flow(mode: Any, *names: str) -> Agent:
        asks = [call("mail", {"to": "ann"})]
        agents = [agent(n, asks, tools=[mail], interrupt_on={"mail": True}) for n in names]
        return Agent("flow", mode=mode(agents))

    outcome = interrupted(flow(mode, "a", "b").execute_sync("go"))
    answers = {request.id: approve() for request in outcome.requests}
    other = Parallel if mode is Sequential else Sequential
    for changed in (
        flow(mode, "a"),
        flow(mode, "a", "b", "c"),
        flow(mode, "b", "a"),
        flow(other, "a", "b"),
    ):
        failed = changed.resume_sync(reloaded(outcome.state), answers)
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, DefinitionChanged)
        assert "(a, b)" in str(failed.error)
        assert failed.state.requests == ()


# ---------------------------------------------------------------- as any other agent


def test_a_workflow_is_nested_as_a_sub_agent() -> None:
    """S3: its agents share its state, and it shares nothing with who runs it."""
    model = ScriptedModel(["A draft."])
    flow = sequence(Agent("writer", model, output_key="doc"), agent("reviewer", "Fine."))
    boss = Agent(
        "boss",
        ScriptedModel([call("task", {"task_name": "flow", "instructions": "Kettles."}), "ok"]),
        middleware=[SubAgent([flow], general_purpose=False)],
    )
    outcome = completed(boss.execute_sync("go"))
    assert [part.content for part in results(outcome.state)] == ["Fine."]
    assert told_by_users(model.requests[0]) == ["Kettles."]
    assert outcome.state.values == {}
    assert outcome.usage.requests == 4


async def test_a_workflow_is_streamed() -> None:
    told = [e async for e in sequence(agent("a", "one"), agent("b", "two")).stream("go")]
    assert isinstance(told[-1], Completed)
    assert [e.agent_path[-1] for e in told if isinstance(e, TextDelta)] == ["a", "b"]


def test_a_workflow_is_spawned_approved_and_run_again() -> None:
    flow, _ = gated()
    with Runtime(agents=[flow]) as runtime:
        ref = runtime.spawn("flow", id="one")
        outcome = ref.run("go").get(timeout=60)
        assert ref.status() is Status.INTERRUPTED
        (pending,) = runtime.pending().get(timeout=60)
        assert pending.request.agent_path == ("flow", "mailer")
        done = ref.resume(interrupted(outcome).decide(approve())).get(timeout=60)
        assert completed(done).text == "two"
        assert ref.status() is Status.IDLE


def test_a_cancelled_workflow_is_over_and_the_next_message_starts_a_new_one() -> None:
    """P7, S6: what had finished is kept; nothing of it is left behind."""
    flow, _ = gated()
    with Runtime(agents=[flow]) as runtime:
        ref = runtime.spawn("flow", id="one")
        interrupted(ref.run("go").get(timeout=60))
        stopped = ref.cancel().get(timeout=60)
        assert isinstance(stopped, Stopped)
        assert authors(stopped.state) == [None, "a", "mailer", "mailer"]
        assert stopped.state.requests == ()
        assert stopped.state.children == {}
        assert stopped.usage.requests == 2


async def test_a_message_that_steers_is_seen_by_the_agent_that_is_at_work() -> None:
    """A2."""
    held, after = Held("one"), ScriptedModel(["two"])
    first = ScriptedModel([held, "one, in haste"])
    flow = sequence(Agent("a", first), Agent("b", after))
    async with Runtime(agents=[flow]) as runtime:
        ref = runtime.spawn("flow", id="one")
        future = ref.run("go")
        await soon(held.entered.wait())
        await soon(ref.send("and hurry", steer=True))
        held.release.set()
        outcome = completed(await soon(future))
        assert told_by_users(first.requests[1]) == ["go", "and hurry"]
        assert "and hurry" in told_by_users(after.requests[0]), "it is still the user's"
        assert outcome.text == "two"
        assert not outcome.state.queue


# -------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Sequential([]), ["Sequential", "no agents"]),
        (lambda: Loop([]), ["Loop", "no agents"]),
        (lambda: Parallel([]), ["Parallel", "no agents"]),
        (lambda: Sequential("ab"), ["list of agents", "'ab'"]),  # type: ignore[arg-type]  # on purpose
        (lambda: Sequential(3), ["list of agents", "3"]),  # type: ignore[arg-type]  # on purpose
        (lambda: Sequential(["a"]), ["got 'a'"]),  # type: ignore[list-item]  # on purpose
        (lambda: Sequential([Loop([agent("a")])]), ["wrap it", "mode="]),  # type: ignore[list-item]
        (lambda: Sequential([SAME, SAME]), ["'same'", "twice"]),
        (lambda: Sequential([agent("a"), agent("a")]), ["'a'", "another name"]),
        (lambda: sequence(agent("flow")), ["'flow'", "nested in itself"]),
        (
            lambda: sequence(Agent("in", mode=Loop([agent("flow")]))),
            ["'flow'", "nested in itself"],
        ),
        (
            lambda: sequence(SAME, Agent("in", mode=Loop([SAME]))),
            ["'same'", "twice in this workflow"],
        ),
        (lambda: Agent("a"), ["'a'", "`model` is None", "Sequential([...])"]),
        (lambda: sequence(agent("a"), tools=[look]), ["'flow'", "tools", "look"]),
        (lambda: sequence(agent("a"), instructions="Go."), ["'flow'", "instructions"]),
        (lambda: sequence(agent("a"), model="openai:gpt-5-mini"), ["'flow'", "model"]),
        (lambda: sequence(agent("a"), output_key="x"), ["'flow'", "output_key"]),
        (
            lambda: sequence(agent("a"), middleware=[SubAgent([SAME], general_purpose=False)]),
            ["'flow'", "calls no model", "task"],
        ),
        (
            lambda: sequence(agent("a"), interrupt_on={"mial": True}),
            ["'mial'", "no such tool"],
        ),
    ],
)
def test_a_workflow_that_could_not_work_is_refused_when_it_is_made(make: Any, told: Any) -> None:
    """R8."""
    with pytest.raises(UsageError) as raised:
        make()
    assert all(word in str(raised.value) for word in told), str(raised.value)


def test_an_unknown_model_of_an_agent_is_an_error_before_anything_runs() -> None:
    """R8."""
    first = ScriptedModel(["never"])
    flow = sequence(Agent("a", first), Agent("b", "nobody:nothing"))
    with pytest.raises(UsageError, match="nobody:nothing"):
        flow.execute_sync("go")
    assert first.requests == []


def test_a_step_is_put_into_a_workflow_as_into_any_mode() -> None:
    seen: list[int] = []

    async def count(run: Any) -> None:
        seen.append(len(run.current.progress.results))

    mode = Sequential([agent("a", "x"), agent("b", "y")]).inserting(step=count, before="run_agents")
    assert isinstance(mode, Mode)
    assert completed(Agent("flow", mode=mode).execute_sync("go")).text == "y"
    assert seen == [0, 1, 2]
    assert repr(Sequential([agent("a"), agent("b")])) == "Sequential(a → b)"


def test_a_gate_in_an_agent_can_be_off_for_a_tool_by_name() -> None:
    """S5."""
    mailer = agent("m", call("mail", {"to": "ann"}), "sent", tools=[mail])
    open_ = agent(
        "m",
        call("mail", {"to": "ann"}),
        "sent",
        tools=[mail],
        middleware=[HumanInTheLoop({"mail": False})],
    )
    assert isinstance(sequence(mailer, interrupt_on={"mail": True}).execute_sync("go"), Interrupted)
    completed(sequence(open_, interrupt_on={"mail": True}).execute_sync("go"))


def test_the_models_of_an_agent_made_in_a_tool_go_with_it() -> None:
    """A long-lived agent that makes others in its tools keeps none of them."""
    models: list[weakref.ref[ScriptedModel]] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        model = ScriptedModel(["ok"])
        models.append(weakref.ref(model))
        outcome: Outcome = await ctx.run_agent(Agent("helper", model), "help")
        return type(outcome).__name__

    boss = Agent("boss", ScriptedModel([call("ask"), "done"]), tools=[ask])
    completed(boss.execute_sync("go"))
    gc.collect()
    assert [made() for made in models] == [None]
