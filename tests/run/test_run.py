"""What a run does: its limit, its prompt, its hooks, its models, its pauses.

Rules: R1, R2, R3, R4, R5, R6, R7, R8.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from tenacity import AsyncRetrying, stop_after_attempt, wait_none

from tests.support.agents import reloaded, results
from understudy import (
    Agent,
    AgentState,
    Completed,
    Failed,
    Interrupted,
    ModelFailed,
    Outcome,
    Paused,
    Run,
    RunLimitExceeded,
    ScriptedModel,
    Stopped,
    StreamBroken,
    Waiting,
    approve,
    call,
)
from understudy.events import Event, ReplyEnded
from understudy.middleware import Middleware, Prepared
from understudy.models import ScriptedRequest


def note(text: str) -> str:
    return f"noted {text}"


def always_noting(times: int) -> ScriptedModel:
    return ScriptedModel([call("note", {"text": str(n)}) for n in range(times)])


async def collected(agent: Agent, text: str, **options: Any) -> tuple[list[Event], Outcome]:
    events: list[Event] = []
    outcome: Outcome | None = None
    async for item in agent.stream(text, **options):
        if isinstance(item, (Completed, Failed, Interrupted, Paused, Stopped, Waiting)):
            outcome = item
        else:
            events.append(item)
    assert outcome is not None
    return events, outcome


# ------------------------------------------------------------------------- R1, R2: the limit


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_run_makes_exactly_as_many_model_calls_as_it_may_and_then_fails(limit: int) -> None:
    """R1."""
    model = always_noting(10)
    outcome = Agent("a", model, tools=[note], max_runs=limit).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, RunLimitExceeded)
    assert outcome.error.max_runs == limit
    assert len(model.requests) == limit


def test_a_run_that_finishes_within_its_last_call_is_completed() -> None:
    """R1."""
    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    outcome = Agent("a", model, tools=[note], max_runs=2).execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "done"


def test_an_until_tool_called_in_the_last_call_completes_the_run() -> None:
    """R1, U1: the turn of the last call is carried out whole before the limit is looked at."""
    outcome = Agent("a", always_noting(1), tools=[note], max_runs=1).execute_sync(
        "go", until_tool="note"
    )
    assert isinstance(outcome, Completed)


def test_the_limit_is_fifty_calls_unless_said_otherwise() -> None:
    """R1."""
    model = always_noting(60)
    outcome = Agent("a", model, tools=[note]).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert len(model.requests) == 50


def test_max_runs_of_one_execution_overrides_the_agents_own() -> None:
    """R1."""
    model = always_noting(10)
    outcome = Agent("a", model, tools=[note], max_runs=2).execute_sync("go", max_runs=4)
    assert isinstance(outcome, Failed)
    assert len(model.requests) == 4


def test_a_run_over_its_limit_keeps_its_state_and_can_be_gone_on_with() -> None:
    """R1: each finished turn is in the history, its last results too."""
    model = ScriptedModel([*(call("note", {"text": str(n)}) for n in range(2)), "done"])
    agent = Agent("a", model, tools=[note], max_runs=2)
    failed = agent.execute_sync("go")
    assert [part.content for part in results(failed.state)] == ["noted 0", "noted 1"]
    assert [m.kind for m in failed.state.messages] == [
        "request", "response", "request", "response", "request",
    ]  # fmt: skip

    outcome = agent.execute_sync("go on", state=failed.state)
    assert isinstance(outcome, Completed)
    assert outcome.text == "done"


def test_a_new_run_counts_from_zero() -> None:
    """R2: the count belongs to the run, not to the conversation."""
    model = ScriptedModel(["one", "two"])
    agent = Agent("a", model, max_runs=1)
    first = agent.execute_sync("go")
    assert isinstance(agent.execute_sync("again", state=first.state), Completed)


def test_an_approval_in_the_middle_neither_resets_the_count_nor_costs_a_call() -> None:
    """R2."""
    model = always_noting(9)
    agent = Agent("a", model, tools=[note], max_runs=3, interrupt_on={"note": True})
    outcome = agent.execute_sync("go")
    approvals = 0
    while isinstance(outcome, Interrupted):
        approvals += 1
        stored = AgentState.from_dict(outcome.state.to_dict())
        outcome = agent.resume_sync(stored, outcome.decide(approve()))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, RunLimitExceeded)
    assert approvals == len(model.requests) == 3


def test_a_pause_in_the_middle_neither_resets_the_count_nor_costs_a_call() -> None:
    """R2."""
    model = always_noting(9)
    agent = Agent("a", model, tools=[note], max_runs=3, pause_when=lambda: True)
    outcome = agent.execute_sync("go")
    pauses = 0
    while isinstance(outcome, Paused):
        pauses += 1
        outcome = agent.resume_sync(AgentState.from_dict(outcome.state.to_dict()))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, RunLimitExceeded)
    assert pauses == len(model.requests) == 3


# ------------------------------------------------------------------------- R3: the system prompt


class Adds(Middleware):
    def __init__(self, text: str) -> None:
        self.text = text

    def prepare(self, definition: Any) -> Prepared:
        return Prepared(instructions=self.text)


def test_the_system_prompt_joins_the_agents_and_the_middlewares_by_a_blank_line() -> None:
    """R3: in stack order; a middleware without instructions leaves no gap."""
    model = ScriptedModel(["done"])
    stack = [Adds("Second."), Adds(""), Adds("Third.")]
    Agent("a", model, "First.", middleware=stack).execute_sync("go")
    assert model.requests[0].instructions == "First.\n\nSecond.\n\nThird."


def test_the_system_prompt_is_built_fresh_for_each_model_call() -> None:
    """R3."""
    calls = 0

    def counting(state: AgentState) -> str:
        nonlocal calls
        calls += 1
        return f"call {calls}"

    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    Agent("a", model, counting, tools=[note]).execute_sync("go")
    assert [request.instructions for request in model.requests] == ["call 1", "call 2"]


def test_the_messages_never_hold_the_system_prompt() -> None:
    """R3: neither as a part nor as the instructions of a request."""
    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    stack = [Adds("Second.")]
    outcome = Agent("a", model, "First.", tools=[note], middleware=stack).execute_sync("go")
    for message in outcome.state.messages:
        if isinstance(message, ModelRequest):
            assert message.instructions is None
            assert all(part.part_kind != "system-prompt" for part in message.parts)
    told = str(outcome.state.to_dict()["messages"])
    assert "First." not in told
    assert "Second." not in told


def test_instructions_recorded_in_an_imported_history_are_not_kept() -> None:
    """R3: providers fall back to them where an agent has no instructions of its own."""
    history: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("hi")], instructions="You are someone else."),
        ModelResponse(parts=[TextPart("hello")]),
    ]
    messages = AgentState(messages=history).messages
    assert [m.instructions for m in messages if isinstance(m, ModelRequest)] == [None]


# ------------------------------------------------------------------------- R4: hooks


class Watching(Middleware):
    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self.log = name, log

    @property
    def name(self) -> str:
        return self._name

    async def on_run_start(self, run: Run) -> None:
        self.log.append(f"start {self._name}")

    async def before_model(self, run: Run, request: Any) -> None:
        self.log.append(f"before {self._name}")

    async def after_model(self, run: Run, reply: ModelResponse) -> None:
        self.log.append(f"after {self._name}")

    async def on_run_end(self, run: Run, outcome: Outcome) -> None:
        self.log.append(f"end {self._name}")


def test_model_hooks_run_around_every_model_call_and_run_hooks_once() -> None:
    """R4: `after_*` and `*_end` in reverse order."""
    log: list[str] = []
    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    stack = [Watching("x", log), Watching("y", log)]
    Agent("a", model, tools=[note], middleware=stack).execute_sync("go")
    around = ["before x", "before y", "after y", "after x"]
    assert log == ["start x", "start y", *around, *around, "end y", "end x"]


def test_a_run_that_is_interrupted_starts_once_and_ends_once() -> None:
    """R4: `on_run_end` waits until the run really ends; model hooks do not run again (J15)."""
    log: list[str] = []
    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    agent = Agent(
        "a", model, tools=[note], middleware=[Watching("x", log)], interrupt_on={"note": True}
    )
    interrupted = agent.execute_sync("go")
    assert isinstance(interrupted, Interrupted)
    assert log == ["start x", "before x", "after x"]

    agent.resume_sync(
        AgentState.from_dict(interrupted.state.to_dict()), interrupted.decide(approve())
    )
    assert log[3:] == ["before x", "after x", "end x"]


def test_a_run_that_is_paused_starts_once_and_ends_once() -> None:
    """R4."""
    log: list[str] = []
    agent = Agent(
        "a", ScriptedModel(["done"]), middleware=[Watching("x", log)], pause_when=lambda: True
    )
    paused = agent.execute_sync("go")
    assert log == ["start x", "before x", "after x"]
    agent.resume_sync(paused.state)
    assert log[3:] == ["end x"]


# ------------------------------------------------------------------------- R5: failing models


def test_without_a_policy_of_the_agent_a_failing_model_is_asked_once() -> None:
    """R5: only the provider's client retries by itself."""
    model = ScriptedModel([RuntimeError("down"), "never said"])
    outcome = Agent("a", model).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ModelFailed)
    assert "down" in str(outcome.error)
    assert isinstance(outcome.error.__cause__, RuntimeError)
    assert len(model.requests) == 1


def test_a_failing_model_is_retried_by_the_policy_before_any_fallback_is_asked() -> None:
    """R5."""
    model = ScriptedModel([OSError("one"), OSError("two"), "third time lucky"])
    spare = ScriptedModel(["spare"])
    policy = AsyncRetrying(stop=stop_after_attempt(3), wait=wait_none())
    agent = Agent("a", model, retry=policy, fallback_models=[spare])
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "third time lucky"
    assert len(model.requests) == 3
    assert spare.requests == []


def test_a_model_whose_retries_are_used_up_is_followed_by_its_fallback() -> None:
    """R5: and the retries are counted anew in the next call."""
    model = ScriptedModel([OSError("1"), OSError("2"), OSError("3"), "main"])
    spare = ScriptedModel([call("note", {"text": "x"})])
    policy = AsyncRetrying(stop=stop_after_attempt(2), wait=wait_none())
    agent = Agent("a", model, tools=[note], retry=policy, fallback_models=[spare])
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "main"
    assert len(model.requests) == 4
    assert len(spare.requests) == 1


def test_fallbacks_are_asked_in_order_for_that_call_only() -> None:
    """R5: nothing that already happened is repeated, and the next call goes to the model."""
    ran: list[str] = []

    def act(what: str) -> str:
        ran.append(what)
        return what

    model = ScriptedModel([call("act", {"what": "a"}), OSError("down"), "done"], name="main")
    first = ScriptedModel([OSError("down too")], name="first")
    second = ScriptedModel([call("act", {"what": "b"})], name="second")
    agent = Agent("a", model, tools=[act], fallback_models=[first, second])
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "done"
    assert ran == ["a", "b"]
    assert [len(m.requests) for m in (model, first, second)] == [3, 1, 1]
    assert second.requests[0].messages == model.requests[1].messages


def test_a_call_that_a_fallback_answered_counts_once() -> None:
    """R1, R5."""
    model = ScriptedModel([OSError("down"), "done"])
    spare = ScriptedModel([call("note", {"text": "x"})])
    agent = Agent("a", model, tools=[note], fallback_models=[spare], max_runs=2)
    assert isinstance(agent.execute_sync("go"), Completed)


def test_when_all_models_fail_the_error_names_each_with_its_reason() -> None:
    """R5."""
    model = ScriptedModel([OSError("no route")], name="main")
    spare = ScriptedModel([ValueError("bad key")], name="spare")
    outcome = Agent("a", model, fallback_models=[spare]).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ModelFailed)
    told = str(outcome.error)
    assert all(word in told for word in ("main", "no route", "spare", "bad key"))


def test_a_failed_model_call_keeps_every_finished_turn_exactly_once() -> None:
    """R5."""
    model = ScriptedModel(
        [call("note", {"text": "a"}), call("note", {"text": "b"}), OSError("down"), "done"]
    )
    agent = Agent("a", model, tools=[note])
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Failed)
    assert [part.content for part in results(outcome.state)] == ["noted a", "noted b"]
    calls = [
        part.args_as_dict()["text"]
        for message in outcome.state.messages
        for part in message.parts
        if isinstance(part, ToolCallPart)
    ]
    assert calls == ["a", "b"]
    assert len(outcome.state.messages) == 5
    after = agent.execute_sync("again", state=outcome.state)
    assert isinstance(after, Completed)
    assert len(results(after.state)) == 2


# ------------------------------------------------------------------------- R6: broken and cut


async def test_a_stream_that_breaks_fails_the_run_and_keeps_the_text_so_far_once() -> None:
    """R6."""
    spare = ScriptedModel(["an apology"])
    model = ScriptedModel([["some text", ConnectionError("reset")]])
    events, outcome = await collected(Agent("a", model, fallback_models=[spare]), "go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, StreamBroken)
    assert "reset" in str(outcome.error)
    last = outcome.state.messages[-1]
    assert isinstance(last, ModelResponse)
    assert last.text == "some text"
    assert last.state == "interrupted"
    assert len(outcome.state.messages) == 2
    assert len([e for e in events if isinstance(e, ReplyEnded)]) == 1
    assert spare.requests == []


async def test_a_stream_that_breaks_before_anything_came_is_a_failing_model_call() -> None:
    """R5, R6: there is no text to keep, so the fallback may answer."""
    model = ScriptedModel([ConnectionError("reset")])
    spare = ScriptedModel(["spare"])
    _, outcome = await collected(Agent("a", model, fallback_models=[spare]), "go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "spare"


async def test_tool_calls_of_a_broken_reply_are_not_run_and_get_an_interrupted_result() -> None:
    """R6: so that the history stays valid and a next run can begin from it."""
    ran: list[str] = []

    def act(what: str) -> str:
        ran.append(what)
        return what

    broken: list[Any] = [
        call("act", {"what": "a"}),
        call("act", {"what": "b"}),
        ConnectionError("x"),
    ]
    model = ScriptedModel([broken, "recovered"])
    agent = Agent("a", model, tools=[act])
    _, outcome = await collected(agent, "go")
    assert isinstance(outcome, Failed)
    assert [part.outcome for part in results(outcome.state)] == ["interrupted", "interrupted"]
    after = await agent.execute("go on", state=outcome.state)
    assert isinstance(after, Completed)
    assert ran == []
    assert_valid(model.requests[-1])


def assert_valid(request: ScriptedRequest) -> None:
    """Each call is answered, once, in the message after it."""
    for asked, answered in zip(request.messages, request.messages[1:], strict=False):
        calls = [p.tool_call_id for p in asked.parts if isinstance(p, ToolCallPart)]
        results = [p.tool_call_id for p in answered.parts if isinstance(p, ToolReturnPart)]
        assert calls == results


@pytest.mark.parametrize("streamed", [False, True])
async def test_tool_calls_of_a_reply_cut_by_its_length_are_not_run(streamed: bool) -> None:
    """R6: the run continues, the model sees that the call was not executed."""
    ran: list[str] = []

    def act(what: str) -> str:
        ran.append(what)
        return what

    cut = ModelResponse(
        parts=[TextPart("I will"), ToolCallPart("act", {"what": "a"}, tool_call_id="c1")],
        finish_reason="length",
    )
    model = ScriptedModel([cut, "done"])
    agent = Agent("a", model, tools=[act], interrupt_on={"act": True})
    if streamed:
        _, outcome = await collected(agent, "go")
    else:
        outcome = await agent.execute("go")
    assert isinstance(outcome, Completed)
    assert ran == []
    assert [part.outcome for part in results(outcome.state)] == ["interrupted"]
    assert_valid(model.requests[-1])


def test_an_until_tool_in_a_cut_reply_does_not_end_the_run() -> None:
    """R6, U1: it has not run, so it has no result of its own."""
    cut = ModelResponse(
        parts=[ToolCallPart("note", {"text": "a"}, tool_call_id="c1")], finish_reason="length"
    )
    model = ScriptedModel([cut, call("note", {"text": "b"})])
    outcome = Agent("a", model, tools=[note]).execute_sync("go", until_tool="note")
    assert isinstance(outcome, Completed)
    assert outcome.tool_result is not None
    assert outcome.tool_result.arguments == {"text": "b"}


# ------------------------------------------------------------------------- R7: pausing


@pytest.mark.parametrize("kind", ["agent, plain", "agent, async", "run, plain", "run, async"])
def test_a_pause_keeps_the_tools_from_starting_until_the_run_is_gone_on_with(kind: str) -> None:
    """R7: asked after each reply, of any model."""
    ran: list[str] = []
    answers = ["lunch", None]

    def act(what: str) -> str:
        ran.append(what)
        return what

    def plain() -> str | None:
        return answers.pop(0)

    async def awaited() -> str | None:
        return answers.pop(0)

    ask = plain if kind.endswith("plain") else awaited
    of_agent = kind.startswith("agent")
    model = ScriptedModel([call("act", {"what": "a"}), "done"])
    agent = Agent("a", model, tools=[act], pause_when=ask if of_agent else None)
    options: dict[str, Any] = {} if of_agent else {"pause_when": ask}

    paused = agent.execute_sync("go", **options)
    assert isinstance(paused, Paused)
    assert paused.reason == "lunch"
    assert ran == []
    assert len(model.requests) == 1

    outcome = agent.resume_sync(AgentState.from_dict(paused.state.to_dict()), **options)
    assert isinstance(outcome, Completed)
    assert ran == ["a"]
    assert len(model.requests) == 2
    assert answers == []


def test_true_pauses_and_any_false_answer_goes_on() -> None:
    """R7."""
    answers: list[tuple[bool | None, type]] = [
        (True, Paused),
        (False, Completed),
        (None, Completed),
    ]
    for answer, expected in answers:
        ask: Any = [answer].pop
        assert (
            type(Agent("a", ScriptedModel(["done"])).execute_sync("go", pause_when=ask)) is expected
        )


def test_a_reason_that_is_not_valid_unicode_is_mended() -> None:
    """R7, J16: it is a pause all the same."""
    paused = Agent("a", ScriptedModel(["done"])).execute_sync("go", pause_when=lambda: "no \ud800")
    assert isinstance(paused, Paused)
    assert paused.reason == "no \ufffd"
    assert reloaded(paused.state).pause == "no \ufffd"


def test_a_final_reply_can_be_paused_at_too_and_is_not_asked_for_again() -> None:
    """R7: after *each* reply."""
    model = ScriptedModel(["done"])
    agent = Agent("a", model, pause_when=lambda: True)
    paused = agent.execute_sync("go")
    assert isinstance(paused, Paused)
    outcome = agent.resume_sync(paused.state)
    assert isinstance(outcome, Completed)
    assert outcome.text == "done"
    assert len(model.requests) == 1


def test_a_pause_comes_before_an_approval_of_the_same_reply() -> None:
    """R7: nobody is asked while the run is paused; after it the person is."""
    model = ScriptedModel([call("note", {"text": "x"}), "done"])
    agent = Agent(
        "a",
        model,
        tools=[note],
        interrupt_on={"note": True},
        pause_when=iter([True, False]).__next__,
    )
    paused = agent.execute_sync("go")
    assert isinstance(paused, Paused)
    assert paused.state.requests == ()
    interrupted = agent.resume_sync(paused.state)
    assert isinstance(interrupted, Interrupted)
    assert isinstance(
        agent.resume_sync(interrupted.state, interrupted.decide(approve())), Completed
    )


async def test_an_outcome_that_is_taken_for_another_one_says_what_the_run_came_to() -> None:
    failed = await Agent("a", ScriptedModel([OSError("no network")])).execute("go")
    with pytest.raises(AttributeError, match=r"'Failed'.*'text'\. Failed after.*no network.*Match"):
        _ = failed.text  # type: ignore[union-attr]  # a type checker says it, too
    done = await Agent("a", ScriptedModel(["Done."])).execute("go")
    with pytest.raises(AttributeError, match=r"'Completed'.*'requests'\. Completed after"):
        _ = done.requests  # type: ignore[union-attr]
    with pytest.raises(AttributeError, match=r"no attribute 'txet'$"):
        _ = done.txet  # type: ignore[union-attr]
    assert not hasattr(failed, "__dict__")
    assert pickle.loads(pickle.dumps(done)) == done
