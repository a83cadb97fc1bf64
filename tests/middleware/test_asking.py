"""Questions of middleware: before the model, about its reply, and before a tool (I19)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage

from tests.support.agents import (
    FakeClock,
    Stage,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    reloaded,
    results,
    until_status,
    wake,
)
from tests.support.cut_off import Crash, Disk
from tests.support.loops import soon
from tests.support.places import Place
from understudy import (
    Agent,
    Decision,
    DecisionError,
    Failed,
    Interrupt,
    Interrupted,
    Outcome,
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
    respond,
    tool,
)
from understudy.events import RunFinished, TextDelta
from understudy.journal import MemoryJournal
from understudy.middleware import (
    HumanInTheLoop,
    Middleware,
    ModelInput,
    Next,
    ToolCall,
)
from understudy.models import ScriptedRequest
from understudy.modes import Parallel, Sequential


class Before(Middleware):
    """Asks before the first model call of a run whether it may, and how much."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.answers: list[Decision | None] = []

    async def before_model(self, run: Run, request: ModelInput) -> ModelInput | None:
        answer = run.answer("budget")
        self.answers.append(answer)
        if answer is None:
            raise Interrupt({"how much?": run.agent_id}, key="budget", **self.options)
        if answer.type == "reject":
            return request.replace(instructions="Spend nothing.")
        return request.replace(instructions=f"Spend {answer.value}.")


class After(Middleware):
    """Asks about each reply that says "maybe"."""

    async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse | None:
        text = reply.text or ""
        if "maybe" not in text:
            return None
        answer = run.answer(f"reply/{run.current.turns}")
        if answer is None:
            raise Interrupt(text, key=f"reply/{run.current.turns}", schema=str)
        said = "nothing" if answer.type == "reject" else answer.value
        return ModelResponse(parts=[TextPart(f"{text}: {said}")], usage=reply.usage)


class Around(Middleware):
    """Asks before each tool call."""

    def __init__(self, key: str = "tool", **options: Any) -> None:
        self.key = key
        self.options = options

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        answer = run.answer(f"{self.key}/{call.key}")
        if answer is None:
            raise Interrupt(f"{call.tool_name}?", key=f"{self.key}/{call.key}", **self.options)
        return f"{await next(call)} [{answer.value}]"


class Shop:
    def __init__(self) -> None:
        self.did: list[int] = []

    def buy(self) -> Any:
        @tool
        async def buy(count: int) -> str:
            """Buy some."""
            self.did.append(count)
            return f"bought {count}"

        return buy


BUY = call("buy", {"count": 2})


def counted(*replies: str) -> tuple[ScriptedModel, list[int]]:
    """A model that notes how often it was asked, with the usage of its replies."""
    asked: list[int] = []

    def reply(request: ScriptedRequest) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in request.messages)
        asked.append(turn)
        return ModelResponse(
            parts=[TextPart(replies[turn])], usage=RequestUsage(input_tokens=7, output_tokens=3)
        )

    return ScriptedModel(reply), asked


# ---------------------------------------------------------------------- before_model


def test_a_question_before_the_model_is_answered_by_its_key(stage: Stage) -> None:
    """I19."""
    stage.cast("Spent.", tools=[], middleware=lambda: [Before()])
    outcome = interrupted(stage.start("Buy."))
    assert stage.model.requests == []
    (request,) = outcome.requests
    assert (request.kind, request.source, request.question_key) == ("interrupt", "Before", "budget")
    assert (request.payload, request.tool_name) == ({"how much?": "support"}, "")
    assert request.allowed == ("respond", "reject")
    assert "interrupt of 'Before'" in outcome.explain()
    assert outcome.state.requests == outcome.requests
    after = completed(stage.resume(outcome, outcome.decide(respond(5))))
    assert after.text == "Spent."
    assert [each.instructions for each in stage.model.requests] == ["Spend 5."]
    assert after.state.decisions[0].request == request
    assert after.state.run is not None
    assert after.state.run.model_call is None
    assert_valid_history(after.state)


def test_a_rejection_is_an_answer_that_the_hook_reads(stage: Stage) -> None:
    stage.cast("Spent.", tools=[], middleware=lambda: [Before()])
    outcome = interrupted(stage.start("Buy."))
    completed(stage.resume(outcome, outcome.decide(reject("no money", by="ann"))))
    assert [each.instructions for each in stage.model.requests] == ["Spend nothing."]


def test_an_answer_holds_for_the_run_and_no_longer() -> None:
    shop, before = Shop(), Before()
    agent = Agent("a", by_turn(BUY, "One.", "Two."), tools=[shop.buy()], middleware=[before])
    outcome = interrupted(agent.execute_sync("Buy."))
    first = completed(agent.resume_sync(outcome.state, outcome.decide(respond(None))))
    # None before it is answered; the value None is an answer; the second model call has it too.
    assert before.answers == [None, respond(None), respond(None)]
    again = interrupted(agent.execute_sync("Once more.", state=first.state))
    assert again.requests[0].id != outcome.requests[0].id


def test_several_middlewares_ask_one_after_the_other(stage: Stage) -> None:
    class Other(Before):
        async def before_model(self, run: Run, request: ModelInput) -> ModelInput | None:
            if run.answer("other") is None:
                raise Interrupt("other?", key="other")
            return None

    stage.cast("Spent.", tools=[], middleware=lambda: [Before(), Other()])
    first = interrupted(stage.start("Buy."))
    second = interrupted(stage.resume(first, first.decide(respond(5))))
    assert [each.source for each in second.requests] == ["Other"]
    completed(stage.resume(second, second.decide(respond(1))))
    assert [each.instructions for each in stage.model.requests] == ["Spend 5."]


def test_one_hook_may_ask_several_at_once(stage: Stage) -> None:
    class Two(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> None:
            missing = [key for key in ("a", "b") if run.answer(key) is None]
            if missing:
                raise ExceptionGroup("questions", [Interrupt(key, key=key) for key in missing])

    stage.cast("Done.", tools=[], middleware=lambda: [Two()])
    outcome = interrupted(stage.start())
    assert [each.payload for each in outcome.requests] == ["a", "b"]
    one = interrupted(stage.resume(outcome, {outcome.requests[1].id: respond(1)}))
    assert [each.payload for each in one.requests] == ["a"]
    assert stage.model.requests == []
    completed(stage.resume(one, one.decide(respond(2))))


def test_a_question_that_is_asked_again_replaces_its_answer(stage: Stage) -> None:
    class Until(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> None:
            answer = run.answer("even")
            if answer is None or answer.value % 2:
                raise Interrupt("an even number?", key="even", schema=int)

    stage.cast("Done.", tools=[], middleware=lambda: [Until()])
    first = interrupted(stage.start())
    second = interrupted(stage.resume(first, first.decide(respond(3))))
    assert len(second.requests) == 1
    assert second.requests[0].id != first.requests[0].id
    with pytest.raises(DecisionError, match="not of type 'integer'"):
        second.decide(respond("four"))
    done = completed(stage.resume(second, second.decide(respond(4))))
    assert [each.decision.value for each in done.state.decisions] == [3, 4]


# ----------------------------------------------------------------------- after_model


def test_a_reply_is_held_until_the_answer_and_the_model_is_not_asked_again(stage: Stage) -> None:
    """I19."""
    stage.cast(tools=[])
    asked: list[int] = []

    def build() -> Agent:
        model, noted = counted("maybe")
        asked.append(0)
        model_of = stage.model = model
        builds.append(noted)
        return Agent("support", model_of, middleware=[After()])

    builds: list[list[int]] = []
    stage.build = build
    outcome = interrupted(stage.start("Hello."))
    assert [type(each).__name__ for each in outcome.state.messages] == ["ModelRequest"]
    assert (outcome.usage.requests, outcome.usage.input_tokens) == (1, 7)
    assert outcome.requests[0].payload == "maybe"
    after = completed(stage.resume(outcome, outcome.decide(respond("yes"))))
    assert after.text == "maybe: yes"
    assert sum(map(len, builds)) == 1
    assert (after.usage.requests, after.usage.input_tokens, after.usage.output_tokens) == (1, 7, 3)
    assert after.state.run is not None
    assert after.state.run.model_calls == 1
    assert_valid_history(after.state)


def test_a_new_message_drops_the_held_reply_and_its_cost_stays() -> None:
    model, asked = counted("maybe", "Hi.")
    agent = Agent("a", model, middleware=[After()])
    journal = MemoryJournal()
    outcome = interrupted(agent.execute_sync("Hello.", journal=journal))
    with pytest.raises(DecisionError):
        agent.resume_sync(outcome.state, {"other": approve()})
    later = interrupted(agent.execute_sync("Still there?", state=outcome.state, journal=journal))
    assert asked == [0, 0]
    texts = [part.content for m in later.state.messages for part in m.parts]  # type: ignore[union-attr]
    assert texts == ["Hello.", "Still there?"]
    with pytest.raises(DecisionError):
        agent.resume_sync(later.state, outcome.decide(respond("yes")))
    kinds = [record.kind for record in journal.records]
    assert kinds.count("reply_held") == 2
    assert "withdrawn" in kinds


def test_a_reply_cannot_be_held_that_was_said_already() -> None:
    class Safe(After):
        stream_safe = True

    outcome = Agent("a", by_turn("maybe"), middleware=[Safe()]).execute_sync("Hello.")
    assert isinstance(outcome, Failed)
    assert "stream_safe" in str(outcome.error)


def test_what_a_hook_changed_in_place_is_not_in_the_held_reply() -> None:
    seen: list[int] = []

    class Adds(After):
        async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse | None:
            seen.append(len(reply.parts))
            reply.parts.append(TextPart("more"))  # type: ignore[attr-defined]  # it is a list
            if run.answer("ok") is None:
                raise Interrupt("ok?", key="ok")
            return reply

    agent = Agent("a", by_turn("Hello."), middleware=[Adds()])
    outcome = interrupted(agent.execute_sync("Hi."))
    done = completed(agent.resume_sync(outcome.state, outcome.decide(respond(1))))
    assert seen == [1, 1]
    assert done.text == "Hello.\n\nmore" or done.text == "Hello.more"


async def test_a_held_reply_emits_no_text_until_it_counts() -> None:
    async with Runtime([Agent("a", by_turn("maybe"), middleware=[After()])]) as runtime:
        ref = runtime.spawn("a", id="a1")
        events = ref.events()
        outcome = interrupted(await soon(ref.run("Hello.")))
        decided = ref.resume(outcome.decide(respond("yes")))
        texts = []
        async for each in events:
            if isinstance(each.event, TextDelta):
                texts.append(each.event.text)
            elif isinstance(each.event, RunFinished):
                break
        await soon(decided)
        assert texts == ["maybe: yes"]


# -------------------------------------------------------------------- wrap_tool_call


def test_a_middleware_asks_before_a_tool_runs(stage: Stage) -> None:
    shop = Shop()
    stage.cast(BUY, "Done.", tools=[shop.buy()], middleware=lambda: [Around()])
    outcome = interrupted(stage.start("Buy."))
    assert shop.did == []
    (request,) = outcome.requests
    assert (request.source, request.tool_name, request.arguments) == ("Around", "buy", {"count": 2})
    after = completed(stage.resume(outcome, outcome.decide(respond("gift"))))
    assert [part.content for part in results(after.state)] == ["bought 2 [gift]"]
    assert shop.did == [2]
    assert after.state.doubts == {}


def test_a_rejection_before_a_tool_denies_the_call(stage: Stage) -> None:
    shop = Shop()
    stage.cast(BUY, "Done.", tools=[shop.buy()], middleware=lambda: [Around()])
    outcome = interrupted(stage.start("Buy."))
    after = completed(stage.resume(outcome, outcome.decide(reject("no"))))
    assert [part.outcome for part in results(after.state)] == ["denied"]
    assert shop.did == []


def test_two_middlewares_ask_about_one_call(stage: Stage) -> None:
    class Second(Around):
        pass

    shop = Shop()
    stack = lambda: [Around("one"), Second("two"), HumanInTheLoop({"buy": True})]  # noqa: E731
    stage.cast(BUY, "Done.", tools=[shop.buy()], middleware=stack)
    gate = interrupted(stage.start("Buy."))
    first = interrupted(stage.resume(gate, gate.decide(approve())))
    second = interrupted(stage.resume(first, first.decide(respond(1))))
    assert [[r.source for r in o.requests] for o in (gate, first, second)] == [
        ["HumanInTheLoop"],
        ["Around"],
        ["Second"],
    ]
    done = completed(stage.resume(second, second.decide(respond(2))))
    assert [part.content for part in results(done.state)] == ["bought 2 [2] [1]"]
    assert shop.did == [2]


def test_a_question_does_not_open_the_gate_for_other_arguments() -> None:
    """I19."""

    class Doubles(Around):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            if run.answer("double") is None:
                raise Interrupt("double it?", key="double")
            return await next(call.replace({"count": 20}))

    shop = Shop()
    gate = HumanInTheLoop({"buy": {"when": lambda arguments, ctx: arguments["count"] > 10}})
    agent = Agent("a", by_turn(BUY, "Done."), tools=[shop.buy()], middleware=[Doubles(), gate])
    asked = interrupted(agent.execute_sync("Buy."))
    gated = interrupted(agent.resume_sync(asked.state, asked.decide(respond(True))))
    assert [(r.kind, r.arguments) for r in gated.requests] == [("approval", {"count": 20})]
    assert shop.did == []
    completed(agent.resume_sync(gated.state, gated.decide(approve())))
    assert shop.did == [20]


def test_the_answer_to_a_middleware_is_none_for_the_tool() -> None:
    got: list[Any] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask."""
        got.append((ctx.resumed, ctx.resume_value))
        if not ctx.resumed:
            raise Interrupt("the tool asks")
        return "ok"

    agent = Agent("a", by_turn(call("ask", {}), "Done."), tools=[ask], middleware=[Around()])
    first = interrupted(agent.execute_sync("Ask."))
    second = interrupted(agent.resume_sync(first.state, first.decide(respond("middleware"))))
    assert [each.payload for each in second.requests] == ["the tool asks"]
    completed(agent.resume_sync(second.state, second.decide(respond("tool"))))
    assert got == [(False, None), (True, "tool")]


# -------------------------------------------------------------------------- mistakes


def hook(name: str, function: Callable[..., Awaitable[Any]]) -> Middleware:
    return type("Odd", (Middleware,), {name: function})()  # type: ignore[no-any-return]


async def _before(self: Any, run: Run, request: Any) -> None:
    raise Interrupt("?")


async def _late(self: Any, run: Run, call: ToolCall, next: Next) -> Any:
    await next(call)
    raise Interrupt("?", key="late")


async def _no_key(self: Any, run: Run, call: ToolCall, next: Next) -> Any:
    raise Interrupt("?")


async def _huge(self: Any, run: Run, request: Any) -> None:
    raise Interrupt(object(), key="huge")


async def _around_model(self: Any, run: Run, request: Any, next: Any) -> Any:
    raise Interrupt("?", key="x")


async def _at_start(self: Any, run: Run) -> None:
    raise Interrupt("?", key="x")


async def _mixed(self: Any, run: Run, request: Any) -> None:
    raise ExceptionGroup("both", [Interrupt("?", key="x"), ValueError("no")])


@pytest.mark.parametrize(
    ("name", "function", "told"),
    [
        ("before_model", _before, "needs a key"),
        ("before_model", _huge, "cannot be stored"),
        ("before_model", _mixed, "ExceptionGroup"),
        ("wrap_tool_call", _late, "wrap_tool_call before next"),
        ("wrap_tool_call", _no_key, "needs a key"),
        ("wrap_model_call", _around_model, "before_model, after_model"),
        ("on_run_start", _at_start, "before_model, after_model"),
    ],
)
def test_a_question_in_the_wrong_place_or_form_is_a_clear_error(
    name: str, function: Any, told: str
) -> None:
    shop = Shop()
    agent = Agent("a", by_turn(BUY, "D."), tools=[shop.buy()], middleware=[hook(name, function)])
    outcome = agent.execute_sync("Buy.")
    assert isinstance(outcome, Failed), outcome
    assert told in str(outcome.error)
    assert "'Odd'" in str(outcome.error)
    assert outcome.state.requests == ()
    assert outcome.state.doubts == {} or name == "wrap_tool_call"


class Named(Before):
    """As `Before`, under a name that is given."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    @property
    def name(self) -> str:
        return self._name


def test_each_middleware_reads_its_own_answer_though_they_ask_by_one_key(stage: Stage) -> None:
    """I22."""
    stage.cast("Spent.", tools=[], middleware=lambda: [Named("a"), Named("a/b"), Before()])
    outcome = interrupted(stage.start("Buy."))
    for source, amount in (("a", 1), ("a/b", 2)):
        assert [(each.source, each.question_key) for each in outcome.requests] == [
            (source, "budget")
        ]
        outcome = interrupted(stage.resume(outcome, outcome.decide(respond(amount))))
    after = completed(stage.resume(outcome, outcome.decide(reject())))
    assert [each.instructions for each in stage.model.requests] == ["Spend nothing."]
    assert [each.request.source for each in after.state.decisions] == ["a", "a/b", "Before"]


@pytest.mark.parametrize("hook", ["wrap_tool_call", "before_model", "after_model"])
def test_of_two_that_ask_at_once_only_their_own_question_is_replaced(hook: str) -> None:
    """I22: also about one call."""

    class Asks(Named):
        async def before_model(self, run: Run, request: ModelInput) -> None:
            self._ask(run, "before_model")

        async def after_model(self, run: Run, reply: ModelResponse) -> None:
            self._ask(run, "after_model")

        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            self._ask(run, "wrap_tool_call")
            return await next(call)

        def _ask(self, run: Run, place: str) -> None:
            if place != hook:
                return
            answer = run.answer("k")
            if answer is None:
                raise Interrupt(self.name, key="k")
            said.append((self.name, answer.value))

    said: list[tuple[str, Any]] = []
    shop = Shop()
    stack = [Asks("x"), Asks("y")]
    agent = Agent("a", by_turn(BUY, "D."), tools=[shop.buy()], middleware=stack)
    first = interrupted(agent.execute_sync("Buy."))
    second = interrupted(agent.resume_sync(reloaded(first.state), first.decide(respond("one"))))
    assert first.requests[0].payload != second.requests[0].payload
    completed(agent.resume_sync(reloaded(second.state), second.decide(respond("two"))))
    assert dict(said) == {first.requests[0].payload: "one", second.requests[0].payload: "two"}
    assert shop.did == [2]


def test_an_answer_stays_with_its_middleware_when_the_stack_is_another_one() -> None:
    """I22: after a deploy that puts others in front, in another order, or in its place."""

    def agent(*names: str) -> Agent:
        return Agent("a", by_turn("D."), middleware=[Named(name) for name in names])

    asked = interrupted(agent("old").execute_sync("Buy."))
    for names, then in (
        (("new", "old"), ["new"]),
        (("old", "new"), ["new"]),
        (("new",), ["new"]),
        (("old",), []),
    ):
        outcome = agent(*names).resume_sync(reloaded(asked.state), asked.decide(respond(1)))
        state = outcome.state
        assert state is not None
        assert [each.source for each in state.requests] == then


def test_two_middlewares_of_one_name_must_not_ask() -> None:
    """I22: after a change of the stack nobody could say whose answer it is."""
    failed = Agent("a", by_turn("D."), middleware=[Before(), Before()]).execute_sync("Buy.")
    assert isinstance(failed, Failed)
    assert "two middlewares named 'Before'" in str(failed.error)
    assert "a `name` of its own" in str(failed.error)
    assert failed.state.requests == ()


def test_two_of_one_name_that_ask_without_a_look_at_the_answer_are_refused_too() -> None:
    """I22."""

    class Asks(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> None:
            raise Interrupt("?", key="k")

    failed = Agent("a", by_turn("D."), middleware=[Asks(), Asks()]).execute_sync("Buy.")
    assert isinstance(failed, Failed)
    assert "two middlewares named 'Asks'" in str(failed.error)


def test_two_of_one_name_that_ask_nothing_are_as_good_as_any() -> None:
    """I22."""

    class Notes(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> None:
            seen.append(run.agent_id)

    seen: list[str] = []
    completed(Agent("a", by_turn("D."), middleware=[Notes(), Notes()]).execute_sync("Buy."))
    assert seen == ["a", "a"]


@pytest.mark.parametrize("hook", ["wrap_tool_call", "wrap_model_call"])
def test_a_hook_around_a_call_adds_no_records_and_what_is_inside_does(hook: str) -> None:
    """An agent inside records its steps; the hook around the call that runs it must not."""

    class Around(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            result = await next(call)
            if hook == "wrap_tool_call":
                run.record()
            return result

        async def wrap_model_call(self, run: Run, request: ModelInput, next: Any) -> Any:
            reply = await next(request)
            if hook == "wrap_model_call":
                run.record()
            return reply

    @tool
    async def delegate(ctx: ToolContext) -> str:
        """Delegate."""
        return (await ctx.run_agent(child, "Do.")).explain()

    child = Agent("child", by_turn("Done."))
    model = by_turn(call("delegate", {}), "D.")
    agent = Agent("a", model, tools=[delegate], middleware=[Around()])
    failed = agent.execute_sync("Buy.")
    assert isinstance(failed, Failed)
    assert "a hook cannot add records" in str(failed.error)
    assert "delegate" not in str(failed.error)


def test_a_tool_asks_without_a_key() -> None:
    @tool
    async def ask() -> str:
        """Ask."""
        raise Interrupt("?", key="x")

    done = completed(Agent("a", by_turn(call("ask", {}), "D."), tools=[ask]).execute_sync("Ask."))
    assert "a key is for middleware" in str(results(done.state)[0].content)


# --------------------------------------------------------- times, stores, nested agents


def test_a_question_that_expires_counts_as_rejected() -> None:
    clock, before = FakeClock(), Before(expires_after=60, remind_after=10)
    agent = Agent("a", by_turn("Done."), middleware=[before])
    outcome = interrupted(agent.execute_sync("Buy.", clock=clock))
    assert outcome.state.next_due == clock.now() + timedelta(seconds=10)
    clock.advance(61)
    completed(agent.resume_sync(outcome.state, clock=clock))
    assert [answer and answer.type for answer in before.answers] == [None, "reject"]


def test_a_question_that_expires_may_stop_the_run() -> None:
    clock = FakeClock()
    before = Before(expires_after=60, on_expiry="stop")
    agent = Agent("a", by_turn("Done."), middleware=[before])
    outcome = interrupted(agent.execute_sync("Buy.", clock=clock))
    clock.advance(61)
    assert isinstance(agent.resume_sync(outcome.state, clock=clock), Stopped)


@pytest.mark.parametrize("asking", [Before, After])
async def test_a_question_is_listed_reminds_and_survives_its_process(
    asking: type[Middleware], place: Place
) -> None:
    clock = SimulatedClock()

    def agent() -> Agent:
        stack = [asking(), Around()]
        return Agent("a", by_turn("maybe", "D."), tools=[Shop().buy()], middleware=stack)

    async with Runtime([agent()], store=place.store(), clock=clock) as runtime:
        ref = runtime.spawn("a", id="a1")
        await soon(ref.run("Hello."))
        assert ref.status() is Status.INTERRUPTED
        (pending,) = await soon(runtime.pending())
        assert pending.request.source == asking.__name__
        assert pending.tool_description is None
        rows = [row for row in (await soon(ref.display())).rows if row.kind == "request"]
        assert [row.state for row in rows] == ["pending"]
    async with Runtime([agent()], store=place.store(), clock=clock) as runtime:
        (again,) = await soon(runtime.pending())
        assert again.request == pending.request
        ref = runtime.get("a1")
        state = await soon(ref.state())
        assert reloaded(state) == state
        outcome = completed(await soon(ref.resume({again.request.id: respond("5")})))
        assert outcome.usage.requests == 1
        rows = [row for row in (await soon(ref.display())).rows if row.kind == "request"]
        assert [row.state for row in rows] == ["decided"]
        assert "request" in [entry.what for entry in (await soon(ref.history())).entries]


async def test_a_cancel_ends_a_run_that_asks_and_the_question_with_it(place: Place) -> None:
    agent = Agent("a", by_turn("maybe"), middleware=[After()])
    async with Runtime([agent], store=place.store()) as runtime:
        ref = runtime.spawn("a", id="a1")
        await soon(ref.run("Hello."))
        await soon(ref.cancel())
        await until_status(ref, Status.CANCELLED)
        assert list(await soon(runtime.pending())) == []
        state = await soon(ref.state())
        assert state.run is not None
        assert (state.run.model_call, state.usage.requests) == (None, 1)
        rows = [row for row in (await soon(ref.display())).rows if row.kind == "request"]
        assert [row.state for row in rows if row.state == "pending"] == []


@pytest.mark.parametrize("asking", [Before, After])
def test_a_question_of_a_sub_agent_is_asked_at_the_root(
    asking: type[Middleware], stage: Stage
) -> None:
    def build() -> Agent:
        child = Agent("child", by_turn("maybe"), middleware=[asking()])

        @tool
        async def delegate(ctx: ToolContext) -> str:
            """Have it done."""
            return completed(await ctx.run_agent(child, "Go.")).text

        stage.model = by_turn(call("delegate", {}), "Done.")
        return Agent("support", stage.model, tools=[delegate])

    stage.build = build
    outcome = interrupted(stage.start())
    (request,) = outcome.requests
    assert request.agent_path == ("support", "child")
    done = completed(stage.resume(outcome, outcome.decide(respond("yes"))))
    assert done.usage.requests == 3
    assert "maybe" in str(results(done.state)[0].content)


@pytest.mark.parametrize("kind", [Sequential, Parallel])
@pytest.mark.parametrize("asking", [Before, After])
def test_agents_of_a_workflow_ask(asking: type[Middleware], kind: Any, stage: Stage) -> None:
    def build() -> Agent:
        inner = [
            Agent(name, ScriptedModel(lambda _: "maybe"), middleware=[asking()])
            for name in ("a", "b")
        ]
        return Agent("flow", None, mode=kind(inner))

    stage.build = build
    outcome = stage.start()
    seen = []
    while isinstance(outcome, Interrupted):
        seen += [request.agent_path for request in outcome.requests]
        decisions = {request.id: respond("yes") for request in outcome.requests}
        outcome = stage.resume(outcome, decisions)
    assert completed(outcome).usage.requests == 2
    assert seen == [("flow", "a"), ("flow", "b")]
    assert_valid_history(outcome.state)


# ---------------------------------------------------------------- cut off anywhere


def _everything(shop: Shop, asked: list[int]) -> Agent:
    def reply(request: ScriptedRequest) -> Any:
        turn = sum(isinstance(message, ModelResponse) for message in request.messages)
        asked.append(turn)
        return [["maybe", call("buy", {"count": 2}, id="c1")], "maybe the end"][turn]

    @tool(idempotent=True)
    async def buy(count: int) -> str:
        """Buy some."""
        shop.did.append(count)
        return "bought"

    class Asks(After):
        async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse | None:
            key = f"reply/{run.current.turns}"
            if run.answer(key) is None:
                raise Interrupt(reply.text, key=key)
            return None

    return Agent("a", ScriptedModel(reply), tools=[buy], middleware=[Before(), Asks(), Around()])


def _answered(agent: Agent, outcome: Outcome, journal: Disk | None = None) -> Outcome:
    while isinstance(outcome, Interrupted):
        decisions = {request.id: respond("yes") for request in outcome.requests}
        outcome = agent.resume_sync(outcome.state, decisions, journal=journal)
    return outcome


def _live(disk: Disk, shop: Shop, asked: list[int]) -> Outcome:
    agent = _everything(shop, asked)
    return _answered(agent, agent.execute_sync("Go.", journal=disk), disk)


@pytest.mark.slow
def test_a_run_that_asks_everywhere_is_cut_off_at_any_record() -> None:
    """It ends the same way, no question is asked twice, and no reply that is held is asked for."""
    whole, asked = Disk(), list[int]()
    end = completed(_live(whole, Shop(), asked))
    assert asked == [0, 1]
    assert len(end.state.decisions) == 4
    for limit in range(1, len(whole.lines)):
        disk, before = Disk(limit), list[int]()
        with pytest.raises(Crash):
            _live(disk, Shop(), before)
        state = disk.load()
        held = state.run is not None and state.run.model_call is not None
        held = held and state.run.model_call.held is not None  # type: ignore[union-attr]
        after = list[int]()
        agent = _everything(Shop(), after)
        ended = completed(_answered(agent, agent.resume_sync(state)))
        assert ended.text == end.text
        assert ended.usage.requests == 2, limit
        assert [d.request.payload for d in ended.state.decisions] == [
            d.request.payload for d in end.state.decisions
        ]
        turn = 0 if state.run is None else state.run.turns
        assert after.count(turn) <= (0 if held else 1)
        assert_valid_history(ended.state)


async def test_an_import_asks_again_about_the_same_reply() -> None:
    """What is asked where it was exported does not hold here; the model is not asked again."""
    model, asked = counted("maybe")
    agent = Agent("a", model, middleware=[After()])
    async with Runtime([agent]) as one, Runtime([agent]) as two:
        ref = one.spawn("a", id="a1")
        await soon(ref.run("Hello."))
        (before,) = (await soon(ref.state())).requests
        there = await soon(two.import_(await soon(one.export("a1")), id="a2"))
        await wake(there)
        await until_status(there, Status.INTERRUPTED)
        (after,) = (await soon(there.state())).requests
        assert after.id != before.id
        done = completed(await soon(there.resume({after.id: respond("yes")})))
        assert (asked, done.text, done.usage.requests) == ([0], "maybe: yes", 1)


async def test_a_message_withdraws_the_question_of_a_run_that_also_waits() -> None:
    """The run continues, as another call waits; the hook reads a rejection."""
    clock, before = SimulatedClock(), Before()
    child = Agent("child", by_turn("Spent."), middleware=[before])

    @tool
    async def delegate(ctx: ToolContext) -> str:
        """Have it done."""
        return completed(await ctx.run_agent(child, "Go.")).text

    @tool
    async def nap(ctx: ToolContext) -> str:
        """Sleep."""
        await ctx.sleep("nap", 3600)
        return "slept"

    model = by_turn([call("nap", {}), call("delegate", {})], "Done.", "Again.")
    async with Runtime([Agent("a", model, tools=[nap, delegate])], clock=clock) as runtime:
        ref = runtime.spawn("a", id="a1")
        ref.run("Go.")
        await until_status(ref, Status.INTERRUPTED)
        later = ref.run("And now?")
        await until_status(ref, Status.WAITING)
        assert [answer and answer.type for answer in before.answers] == [None, "reject"]
        assert list(await soon(runtime.pending())) == []
        await clock.advance(3601)
        assert completed(await soon(later)).text == "Again."
        found = [part.content for part in results(await soon(ref.state()))]
        assert found == ["slept", "Spent."]
