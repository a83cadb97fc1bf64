"""`run.ask_model` and `ctx.ask_model`: a model call beside the conversation, recorded once.

Rules: R14.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.usage import RequestUsage
from tenacity import AsyncRetrying, stop_after_attempt

from tests.support.agents import by_turn, completed, interrupted, reloaded, results
from tests.support.cut_off import Crash, Disk, ids, told
from tests.support.loops import own_tasks, soon
from understudy import (
    Agent,
    Failed,
    Interrupt,
    Outcome,
    Request,
    Run,
    Runtime,
    ScriptedModel,
    Stopped,
    ToolContext,
    UsageError,
    approve,
    call,
    respond,
    tool,
)
from understudy.errors import MiddlewareError, ModelFailed, RecordRefused
from understudy.history import history_of
from understudy.journal import MemoryStore
from understudy.middleware import (
    Fallback,
    HumanInTheLoop,
    Limits,
    Middleware,
    ModelInput,
    NextModelCall,
    SubAgent,
    ToolCall,
)
from understudy.models import ScriptedRequest
from understudy.modes import Loop
from understudy.state.fold import replay
from understudy.state.records import (
    Attempt,
    ModelAsked,
    ModelGaveNoAnswer,
    Record,
    RunStarted,
    record_to_dict,
)


class Verdict(BaseModel):
    ok: bool
    why: str = ""


class Asks(Middleware):
    """Asks in a hook, and keeps what it got."""

    def __init__(self, ask: Callable[[Run], Awaitable[Any]], hook: str = "on_run_start") -> None:
        self._ask = ask
        self._hook = hook
        self.got: list[Any] = []

    async def _in(self, hook: str, run: Run) -> None:
        if hook == self._hook:
            self.got.append(await self._ask(run))

    async def on_run_start(self, run: Run) -> None:
        await self._in("on_run_start", run)

    async def before_model(self, run: Run, request: ModelInput) -> None:
        await self._in("before_model", run)

    async def after_step(self, run: Run) -> None:
        await self._in("after_step", run)

    async def on_run_end(self, run: Run, outcome: Outcome) -> None:
        await self._in("on_run_end", run)


def says(text: str, input: int = 0, output: int = 0, **more: Any) -> ModelResponse:
    usage = RequestUsage(input_tokens=input, output_tokens=output)
    return ModelResponse(parts=[TextPart(text)] if text else [], usage=usage, **more)


def titled(model: ScriptedModel) -> Callable[[Run], Awaitable[Any]]:
    return lambda run: run.ask_model("title", "A title, please.", model)


def texts(request: ScriptedRequest) -> list[Any]:
    return [part.content for message in request.messages for part in message.parts]  # type: ignore[union-attr]


def failed(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def cause(outcome: Outcome) -> BaseException | None:
    error = failed(outcome).error
    assert isinstance(error, MiddlewareError), error
    return error.__cause__


# ------------------------------------------------------------------------- asking


@pytest.mark.parametrize("hook", ["on_run_start", "before_model", "after_step", "on_run_end"])
async def test_a_hook_asks_a_model_beside_the_conversation(hook: str) -> None:
    """R14."""
    small = ScriptedModel([says("Kettles", 7, 2)])
    asks = Asks(titled(small), hook)
    model = ScriptedModel([says("hello", 10, 1)])
    outcome = completed(await Agent("clerk", model, "Help.", middleware=[asks]).execute("go"))
    assert asks.got == ["Kettles"]
    assert texts(small.requests[0]) == ["A title, please."]
    assert small.requests[0].instructions == ""
    assert small.requests[0].tools == ()
    assert len(outcome.state.messages) == 2, "it is no part of the conversation"
    usage = outcome.state.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (2, 17, 3)
    assert outcome.state.run is not None
    assert outcome.state.run.model_calls == 1, "it is no step"


async def test_without_a_model_the_agents_own_is_asked_with_its_settings() -> None:
    asks = Asks(lambda run: run.ask_model("title", "A title, please."))
    model = ScriptedModel(["Kettles", "hello"])
    settings: Any = {"temperature": 0.5, "tool_choice": "required", "parallel_tool_calls": False}

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    agent = Agent("clerk", model, tools=[look], middleware=[asks], model_settings=settings)
    completed(await agent.execute("go"))
    assert asks.got == ["Kettles"]
    assert model.requests[0].settings == {"temperature": 0.5}
    assert model.requests[0].tools == ()


async def test_messages_of_a_conversation_may_be_asked_about() -> None:
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart("Which?")], instructions="Be brief."),
        ModelResponse(parts=[TextPart("The red one.")]),
        ModelRequest(parts=[UserPromptPart("Sum it up.")]),
    ]
    small = ScriptedModel(["Red."])
    asks = Asks(lambda run: run.ask_model("sum", messages, small))
    completed(await Agent("clerk", ScriptedModel(["hello"]), middleware=[asks]).execute("go"))
    assert asks.got == ["Red."]
    assert texts(small.requests[0]) == ["Which?", "The red one.", "Sum it up."]
    assert small.requests[0].instructions == "Be brief."


async def test_its_text_is_not_streamed_and_no_reply_is_announced() -> None:
    asks = Asks(titled(ScriptedModel(["Kettles"])))
    agent = Agent("clerk", ScriptedModel(["hello"]), middleware=[asks])
    kinds = [item.kind async for item in agent.stream("go") if hasattr(item, "kind")]
    assert kinds.count("reply_started") == 1
    assert kinds.count("text_delta") == 1


async def test_an_answer_of_a_type_is_asked_for_again_until_it_fits() -> None:
    small = ScriptedModel([says("yes", 1, 1), says('{"ok": true}', 1, 1)])
    asks = Asks(lambda run: run.ask_model("judge", "Fine?", small, output_type=Verdict))
    outcome = completed(
        await Agent("clerk", ScriptedModel(["hello"]), middleware=[asks]).execute("go")
    )
    assert asks.got == [Verdict(ok=True)]
    assert "JSON" in small.requests[0].instructions
    assert "does not fit" in str(texts(small.requests[1])[-1])
    assert texts(small.requests[1])[1] == "yes"
    assert outcome.usage.requests == 3


async def test_answers_that_never_fit_are_a_failing_model_and_are_paid_for() -> None:
    small = ScriptedModel(lambda _: says("no", 5, 1))
    caught: list[ModelFailed] = []

    async def ask(run: Run) -> None:
        try:
            await run.ask_model("judge", "Fine?", small, output_type=Verdict)
        except ModelFailed as error:
            caught.append(error)

    agent = Agent("clerk", ScriptedModel([says("hello")]), middleware=[Asks(ask)])
    outcome = completed(await agent.execute("go"))
    assert len(small.requests) == 3
    assert "3 answers did not fit" in str(caught[0])
    assert outcome.usage.input_tokens == 15


@pytest.mark.parametrize("reply", [says("", finish_reason="length"), call("look")])
async def test_a_reply_without_text_is_no_answer(reply: Any) -> None:
    small = ScriptedModel([reply, "Kettles"])
    asks = Asks(titled(small))
    completed(await Agent("clerk", ScriptedModel(["hello"]), middleware=[asks]).execute("go"))
    assert asks.got == ["Kettles"]


# ------------------------------------------------------------------------- failing models


def down(_: ScriptedRequest) -> str:
    raise ConnectionError("try later")


async def test_an_error_of_the_provider_is_a_failing_model_and_is_asked_again_by_who_wants() -> (
    None
):
    small = ScriptedModel([ConnectionError("try later"), "Kettles"])

    async def ask(run: Run) -> Any:
        try:
            return await titled(small)(run)
        except ModelFailed as error:
            return [error.failures[0]["type"], await titled(small)(run)]

    asks = Asks(ask)
    completed(await Agent("clerk", ScriptedModel(["hello"]), middleware=[asks]).execute("go"))
    assert asks.got == [["ConnectionError", "Kettles"]]


async def test_a_failure_that_nobody_catches_is_one_of_the_hook() -> None:
    asks = Asks(titled(ScriptedModel(down)))
    outcome = await Agent("clerk", ScriptedModel(["hello"]), middleware=[asks]).execute("go")
    assert isinstance(cause(outcome), ModelFailed)


async def test_what_refused_replies_cost_is_counted() -> None:
    refused = says("no", 9, 1, finish_reason="content_filter")
    asks = Asks(titled(ScriptedModel([refused])))
    outcome = await Agent("clerk", ScriptedModel(["hello"]), middleware=[asks]).execute("go")
    assert isinstance(cause(outcome), ModelFailed)
    assert outcome.usage.input_tokens == 9


async def test_the_agents_own_model_is_retried_and_falls_back() -> None:
    asks = Asks(lambda run: run.ask_model("title", "A title, please."))
    model, other = ScriptedModel(down), ScriptedModel(["Kettles", "hello"])
    retry = AsyncRetrying(stop=stop_after_attempt(2), reraise=True)
    agent = Agent("clerk", model, middleware=[asks], fallback_models=[other], retry=retry)
    assert completed(await agent.execute("go")).text == "hello"
    assert asks.got == ["Kettles"]
    assert len(model.requests) == 4


async def test_a_model_that_is_given_is_retried_and_has_no_fallback() -> None:
    small, other = ScriptedModel(down), ScriptedModel(["never"])
    asks = Asks(titled(small))
    retry = AsyncRetrying(stop=stop_after_attempt(2), reraise=True)
    agent = Agent("clerk", ScriptedModel([]), middleware=[asks, Fallback([other])], retry=retry)
    assert isinstance(cause(await agent.execute("go")), ModelFailed)
    assert (len(small.requests), len(other.requests)) == (2, 0)


# ------------------------------------------------------------------------- once


async def test_the_recorded_answer_wins_over_other_messages() -> None:
    """R14."""
    small = ScriptedModel(["Kettles"])

    async def ask(run: Run) -> list[str]:
        return [await run.ask_model("title", text, small) for text in ("one", "two")]

    asks = Asks(ask)
    completed(await Agent("clerk", ScriptedModel(["hello"]), middleware=[asks]).execute("go"))
    assert asks.got == [["Kettles", "Kettles"]]
    assert len(small.requests) == 1


async def test_an_answer_that_is_no_longer_of_its_type_says_so() -> None:
    small = ScriptedModel(["Kettles"])

    async def ask(run: Run) -> None:
        await run.ask_model("title", "one", small)
        await run.ask_model("title", "one", small, output_type=Verdict)

    agent = Agent("clerk", ScriptedModel(["hello"]), middleware=[Asks(ask)])
    assert "recorded answer is no" in str(cause(await agent.execute("go")))


async def test_several_may_ask_at_once_and_of_one_key_one_does() -> None:
    small = ScriptedModel(lambda request: f"about {request.prompt}")

    async def ask(run: Run) -> list[str]:
        keys = ("a", "b", "a")
        return await asyncio.gather(*(run.ask_model(key, key, small) for key in keys))

    asks = Asks(ask)
    completed(await Agent("clerk", ScriptedModel(["hello"]), middleware=[asks]).execute("go"))
    assert asks.got == [["about a", "about b", "about a"]]
    assert len(small.requests) == 2


async def test_each_middleware_has_an_answer_of_its_own_under_one_key() -> None:
    """I22."""

    class Named(Asks):
        def __init__(self, name: str) -> None:
            super().__init__(lambda run: run.ask_model("title", f"A title for {name}?", small))
            self._name = name

        @property
        def name(self) -> str:
            return self._name

    small = ScriptedModel(lambda request: f"<{request.prompt}>")
    stack = [Named("x"), Named("y"), Asks(lambda run: run.ask_model("title", "A title?", small))]
    completed(await Agent("clerk", by_turn("done"), middleware=stack).execute("go"))
    assert [each.got for each in stack] == [
        ["<A title for x?>"],
        ["<A title for y?>"],
        ["<A title?>"],
    ]


async def test_two_of_one_name_must_not_ask() -> None:
    """I22."""
    small = ScriptedModel(["a", "b"])
    stack = [Asks(lambda run: run.ask_model("title", "A title?", small)) for _ in range(2)]
    failed = await Agent("clerk", by_turn("done"), middleware=stack).execute("go")
    assert isinstance(failed, Failed)
    assert "two middlewares named 'Asks'" in str(failed.error)
    assert small.requests == []


async def test_a_gate_above_and_one_here_of_one_name_must_not_ask() -> None:
    """I22: both are asked about a call of the agent below, in its run."""

    class Judge(HumanInTheLoop):
        async def check_tool_calls(self, run: Run, calls: Sequence[ToolCall]) -> list[Request]:
            seen.append(await run.ask_model("judge", "Fine?", ScriptedModel(["yes"])))
            return []

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def rooms(*own: Middleware) -> Agent:
        below = Agent("below", by_turn(call("look"), "D."), tools=[look], middleware=own)
        tasks = call("task", {"task_name": "below", "instructions": "Do."})
        gates = [Judge({"look": True}), SubAgent([below], general_purpose=False)]
        return Agent("above", by_turn(tasks, "done"), tools=[look], middleware=gates)

    seen: list[str] = []
    completed(await rooms().execute("go"))
    assert seen == ["yes", "yes"]  # about the task, and about the call below
    outcome = completed(await rooms(Judge({})).execute("go"))
    assert "two middlewares named 'Judge'" in str(outcome.state.messages)


async def test_what_once_keeps_under_the_same_key_is_another_thing() -> None:
    small = ScriptedModel(["Kettles"])

    async def ask(run: Run) -> list[Any]:
        return [await run.once("title", lambda: 1), await titled(small)(run)]

    asks = Asks(ask)
    completed(await Agent("clerk", ScriptedModel(["hello"]), middleware=[asks]).execute("go"))
    assert asks.got == [[1, "Kettles"]]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_a_run_that_goes_on_returns_the_recorded_answer(elsewhere: bool) -> None:
    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    def build(small: ScriptedModel) -> tuple[Agent, Asks]:
        asks = Asks(titled(small), "before_model")
        model = by_turn(call("pay"))
        return Agent(
            "clerk", model, tools=[pay], middleware=[asks], interrupt_on={"pay": True}
        ), asks

    agent, _ = build(ScriptedModel(["Kettles"]))
    waiting = interrupted(await agent.execute("go"))
    again, asks = build(ScriptedModel([]))
    state = reloaded(waiting.state) if elsewhere else waiting.state
    outcome = completed(await again.resume(state, waiting.decide(approve())))
    assert asks.got == ["Kettles"]
    assert outcome.usage.requests == 3


async def test_a_run_cut_off_at_any_record_asks_for_no_recorded_answer_again() -> None:
    """R14."""

    def build() -> tuple[Agent, ScriptedModel]:
        small = ScriptedModel(["bad", '{"ok": true}'])

        def judged(run: Run) -> Awaitable[Any]:
            return run.ask_model("judge", "Fine?", small, output_type=Verdict)

        @tool(idempotent=True)
        async def weigh(ctx: ToolContext) -> str:
            return await ctx.ask_model("weight", "How heavy?", ScriptedModel(["3 kg"]))

        model = by_turn(call("weigh", id="c1"), "done")
        return Agent("clerk", model, tools=[weigh], middleware=[Asks(judged)]), small

    disk = Disk()
    whole = told(await build()[0].execute("go", journal=disk, new_id=ids()))
    for limit in range(1, len(disk.lines)):
        cut = Disk(limit)
        with pytest.raises(Crash):
            await build()[0].execute("go", journal=cut, new_id=ids())
        recorded = any('"model_asked"' in line and '"Asks/judge"' in line for line in cut.lines)
        agent, small = build()
        assert told(await agent.resume(cut.load(), new_id=ids())) == whole, limit
        assert len(small.requests) == (0 if recorded else 2)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_an_agent_that_is_passivated_keeps_the_answer(store: str, tmp_path: Path) -> None:
    small = ScriptedModel(["Kettles"])
    asks = Asks(titled(small), "before_model")

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    agent = Agent(
        "clerk", by_turn(call("pay")), tools=[pay], middleware=[asks], interrupt_on={"pay": True}
    )
    kept = MemoryStore() if store == "memory" else f"sqlite:///{tmp_path / 'store.db'}"
    async with Runtime([agent], store=kept) as runtime:
        waiting = interrupted(await soon(runtime.spawn("clerk", id="one").run("go")))
    async with Runtime([agent], store=kept) as runtime:
        ref = runtime.get("one")
        outcome = completed(await soon(ref.resume(waiting.decide(approve()))))
        page = await soon(ref.history())
    asked = [entry for entry in page.entries if entry.what == "model_asked"]
    assert [entry.detail["answer"] for entry in asked] == ["Kettles"]
    assert outcome.usage.requests == 3
    assert len(small.requests) == 1


class Small(Disk):
    """A journal that keeps no large record."""

    def check(self, record: Record, *, spare: int = 0) -> None:
        if len(str(record_to_dict(record))) > 10_000:
            raise RecordRefused(kind=record.kind, why="it is too large")


async def test_an_answer_that_is_too_large_to_be_kept_is_paid_for() -> None:
    small = ScriptedModel([says("x" * 20_000, 100)])
    caught: list[RecordRefused] = []

    async def ask(run: Run) -> None:
        try:
            await titled(small)(run)
        except RecordRefused as error:
            caught.append(error)

    agent = Agent("clerk", ScriptedModel([says("hello")]), middleware=[Asks(ask)])
    outcome = completed(await agent.execute("go", journal=Small()))
    assert caught
    assert outcome.usage.input_tokens == 100


# ------------------------------------------------------------------------- in tools


async def test_a_tool_asks_under_a_key_of_its_own_call() -> None:
    small = ScriptedModel(lambda request: f"about {request.prompt}")

    @tool
    async def judge(ctx: ToolContext, x: str) -> str:
        return await ctx.ask_model("judge", x, small)

    @tool
    def plainly(ctx: ToolContext, x: str) -> str:
        answer: str = ctx.sync.ask_model("judge", x, small)
        return answer

    model = by_turn(
        [call("judge", {"x": "a"}), call("judge", {"x": "b"}), call("plainly", {"x": "c"})]
    )
    outcome = completed(await Agent("clerk", model, tools=[judge, plainly]).execute("go"))
    assert [part.content for part in results(outcome.state)] == ["about a", "about b", "about c"]
    assert outcome.usage.requests == 5


async def test_a_tool_that_runs_again_gets_the_recorded_answer() -> None:
    small = ScriptedModel(["Kettles"])

    @tool(idempotent=True)
    async def publish(ctx: ToolContext) -> str:
        title = await ctx.ask_model("title", "A title, please.", small)
        if not ctx.resumed:
            raise Interrupt({"title": title})
        return title

    agent = Agent("clerk", by_turn(call("publish")), tools=[publish])
    waiting = interrupted(await agent.execute("go"))
    outcome = completed(await agent.resume(waiting.state, waiting.decide(respond(True))))
    assert [part.content for part in results(outcome.state)] == ["Kettles"]
    assert len(small.requests) == 1


async def test_a_sleep_beside_it_does_not_cut_it_off() -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def slowly(_: ScriptedRequest) -> str:
        asked.set()
        await may_answer.wait()
        return "Kettles"

    small = ScriptedModel(slowly)
    runs: list[str] = []

    @tool(idempotent=True)
    async def both(ctx: ToolContext) -> str:
        runs.append("run")

        async def sleeps() -> None:
            await asked.wait()
            asyncio.get_running_loop().call_soon(may_answer.set)
            await ctx.sleep("nap", 60)

        async with asyncio.TaskGroup() as group:
            title = group.create_task(ctx.ask_model("title", "A title, please.", small))
            group.create_task(sleeps())
        return title.result()

    outcome = await soon(Agent("clerk", by_turn(call("both")), tools=[both]).execute("go"))
    assert outcome.state.run is not None
    assert "Kettles" in outcome.state.run.once.values(), "it was not cut off"
    assert len(small.requests) == 1


# ------------------------------------------------------------------------- the run around it


async def test_a_cancel_of_the_run_ends_the_call() -> None:
    asked = asyncio.Event()

    async def hangs(_: ScriptedRequest) -> str:
        asked.set()
        await asyncio.get_running_loop().create_future()
        return "never"

    agent = Agent(
        "clerk", ScriptedModel(["hello"]), middleware=[Asks(titled(ScriptedModel(hangs)))]
    )
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("clerk")
        running = ref.run("go")
        await soon(asked.wait())
        await soon(ref.cancel())
        assert isinstance(await soon(running), Stopped)
    assert own_tasks() <= {asyncio.current_task()}


async def test_a_limit_of_tokens_counts_it() -> None:
    asks = Asks(titled(ScriptedModel([says("Kettles", 100)])))
    agent = Agent("clerk", ScriptedModel([]), middleware=[asks, Limits(max_tokens=50)])
    assert isinstance(await agent.execute("go"), Stopped)


async def test_what_a_sub_agent_asks_counts_as_its_parents() -> None:
    kid = Agent(
        "kid",
        ScriptedModel(["done"]),
        "Help.",
        description="a kid",
        middleware=[Asks(titled(ScriptedModel([says("Kettles", 100)])))],
    )
    model = by_turn(call("task", {"task_name": "kid", "instructions": "go"}))
    outcome = await Agent("clerk", model, middleware=[SubAgent([kid])]).execute("go")
    assert completed(outcome).usage.input_tokens == 103


async def test_agents_of_a_workflow_ask_in_each_round() -> None:
    small = ScriptedModel(["one", "two"])
    asks = Asks(titled(small))
    worker = Agent("worker", ScriptedModel(["a", "b"]), middleware=[asks])
    completed(await Agent("flow", None, mode=Loop([worker], max_iterations=2)).execute("go"))
    assert asks.got == ["one", "two"]


async def test_a_middleware_of_a_workflow_has_to_say_which_model() -> None:
    worker = Agent("worker", ScriptedModel(["a"]))

    class AsksAtTheStart(Middleware):
        async def on_run_start(self, run: Run) -> None:
            await run.ask_model("title", "A title, please.")

    flow = Agent("flow", None, mode=Loop([worker], max_iterations=1), middleware=[AsksAtTheStart()])
    assert "give `model`" in str(cause(await flow.execute("go")))


async def test_a_hook_of_a_cancelled_run_may_ask_the_agents_own_model() -> None:
    asks = Asks(lambda run: run.ask_model("title", "A title, please."), "on_run_end")
    begun = asyncio.Event()

    async def reply(request: ScriptedRequest) -> str:
        if request.prompt != "go":
            return "Kettles"
        begun.set()
        await asyncio.get_running_loop().create_future()
        return "never"

    async with Runtime([Agent("clerk", ScriptedModel(reply), middleware=[asks])]) as runtime:
        ref = runtime.spawn("clerk")
        running = ref.run("go")
        await soon(begun.wait())
        await soon(ref.cancel())
        assert isinstance(await soon(running), Stopped)
    assert asks.got == ["Kettles"]


# ------------------------------------------------------------------------- middleware around it


class Seen(Middleware):
    def __init__(self) -> None:
        self.asks: list[str | None] = []

    async def wrap_model_call(
        self, run: Run, request: ModelInput, next: NextModelCall
    ) -> ModelResponse:
        self.asks.append(request.ask_key)
        return await next(request)


class SeenEach(Seen):
    wraps_ask_model = True


async def test_only_middleware_that_says_so_stands_around_it() -> None:
    plain, each = Seen(), SeenEach()
    asks = Asks(titled(ScriptedModel(["Kettles"])))
    agent = Agent("clerk", ScriptedModel(["hello"]), middleware=[asks, plain, each])
    completed(await agent.execute("go"))
    assert (plain.asks, each.asks) == ([None], ["title", None])


async def test_one_that_asks_for_itself_is_told() -> None:
    small = ScriptedModel(lambda _: "Kettles")

    class AsksAround(Middleware):
        wraps_ask_model = True

        async def wrap_model_call(
            self, run: Run, request: ModelInput, next: NextModelCall
        ) -> ModelResponse:
            await titled(small)(run)
            return await next(request)

    agent = Agent("clerk", ScriptedModel(["hello"]), middleware=[AsksAround()])
    assert "wait for itself" in str(failed(await soon(agent.execute("go"))).error)


# ------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("", "go"), "`key` must be text"),
        ((7, "go"), "`key` must be text"),
        (("\ud800", "go"), "not valid Unicode"),
        (("k", ""), "is empty"),
        (("k", []), "is empty"),
        (("k", 7), "must be text"),
        (("k", [ModelResponse(parts=[TextPart("a")])]), "last of `messages`"),
        (("k", "go", 7), "`model` must be"),
        (("k", "go", ""), "`model` must be"),
        (("k", "go", "nobody:at-all"), "there is no provider"),
        (("k", "go", None, print), "must be a type"),
    ],
)
async def test_bad_input_says_what_is_wrong(arguments: Any, told: str) -> None:
    asks = Asks(lambda run: run.ask_model(*arguments))
    agent = Agent("clerk", ScriptedModel([]), middleware=[asks])
    error = cause(await agent.execute("go"))
    assert isinstance(error, UsageError)
    assert told in str(error)


async def test_a_tool_says_what_is_wrong_with_its_key() -> None:
    @tool
    async def judge(ctx: ToolContext) -> str:
        return await ctx.ask_model("", "go")

    outcome = completed(await Agent("clerk", by_turn(call("judge")), tools=[judge]).execute("go"))
    assert "`key` must be text" in str(results(outcome.state)[0].content)


# ------------------------------------------------------------------------- records


def test_only_an_answer_is_progress() -> None:
    started = RunStarted(
        run_id="r",
        agent="a",
        at=None,  # type: ignore[arg-type]
        message=None,
        until_tool=None,
        require_tool_success=False,
        max_runs=1,
        early_stopping="force",
        fingerprint="",
        deps_given=False,
        pause_when_given=False,
    )
    failing = ModelGaveNoAnswer(key="k", response=says("no", 3), error="refused")
    answered = ModelAsked(key="k", response=says("", 4), value="yes")
    attempts: list[Record] = [Attempt(number=1), failing, Attempt(number=2), failing]
    for records, fruitless, tokens in (
        (attempts, 2, 6),
        ([*attempts, answered], 0, 10),
    ):
        run = replay([started, *records]).run
        assert run is not None
        assert (run.fruitless, run.usage.input_tokens) == (fruitless, tokens)


def test_the_history_tells_what_was_asked_and_what_it_cost() -> None:
    entries = list(
        history_of(
            [
                ModelAsked(key="t", response=says("", 4, 2, model_name="small"), value="Kettles"),
                ModelGaveNoAnswer(key="t", response=says("no", 3), error="refused"),
            ],
            "clerk",
        )
    )
    assert [entry.what for entry in entries] == ["model_asked", "model_asked"]
    assert entries[0].who == "small"
    assert (entries[0].detail["key"], entries[0].detail["answer"]) == ("t", "Kettles")
    assert (entries[0].detail["input_tokens"], entries[0].detail["output_tokens"]) == (4, 2)
    assert (entries[1].detail["answer"], entries[1].detail["error"]) == ("no", "refused")
