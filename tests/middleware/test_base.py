"""The middleware contract: order, failures, threads, typed values (R3, R4, J15, DESIGN 4)."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import re
import threading
from collections.abc import Awaitable, Sequence
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)

from tests.support.agents import results
from understudy import (
    Agent,
    AgentState,
    Completed,
    Decision,
    Failed,
    Interrupt,
    Interrupted,
    MiddlewareError,
    Outcome,
    Request,
    Retry,
    Run,
    ScriptedModel,
    ToolContext,
    ToolResult,
    UsageError,
    approve,
    call,
    respond,
    tool,
)
from understudy.errors import Fenced
from understudy.journal import MemoryJournal
from understudy.middleware import Middleware, Next, Prepared
from understudy.run.model_input import ModelInput
from understudy.run.tool_call import ToolCall


def note(text: str) -> str:
    return f"noted {text}"


def prompts(messages: Sequence[ModelMessage]) -> list[Any]:
    return [
        part.content
        for message in messages
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


def noting(*last: Any) -> ScriptedModel:
    return ScriptedModel([call("note", {"text": "x"}), *(last or ("done",))])


# ------------------------------------------------------------------------- order


class Logs(Middleware):
    """Every hook, each saying its name."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log

    @property
    def name(self) -> str:
        return self._name

    def log(self, hook: str) -> None:
        self._log.append(f"{hook} {self._name}")

    async def on_run_start(self, run: Run) -> None:
        self.log("on_run_start")

    async def before_model(self, run: Run, request: ModelInput) -> None:
        self.log("before_model")

    async def after_model(self, run: Run, reply: ModelResponse) -> None:
        self.log("after_model")

    async def check_tool_calls(self, run: Run, calls: Sequence[ToolCall]) -> Sequence[Request]:
        self.log("check_tool_calls")
        return [calls[0].request()] if self._name == "y" else ()

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        self.log("wrap_tool_call")
        try:
            return await next(call)
        finally:
            self.log("unwrap_tool_call")

    async def on_resume(self, run: Run, decisions: dict[str, Decision]) -> None:
        self.log("on_resume")

    async def on_run_end(self, run: Run, outcome: Outcome) -> None:
        self.log("on_run_end")

    def transform_display_message(self, message: ModelMessage) -> None:
        self.log("transform_display_message")


def test_hooks_run_in_stack_order_and_those_after_in_reverse() -> None:
    """R4, DESIGN 4."""
    log: list[str] = []
    agent = Agent("a", noting(), tools=[note], middleware=[Logs("x", log), Logs("y", log)])
    interrupted = agent.execute_sync("go")
    assert isinstance(interrupted, Interrupted)
    assert log == [
        "on_run_start x",
        "on_run_start y",
        "before_model x",
        "before_model y",
        "after_model y",
        "after_model x",
        "check_tool_calls x",
        "check_tool_calls y",
    ]
    log.clear()
    agent.resume_sync(interrupted.state, interrupted.decide(approve()))
    assert log == [
        "on_resume x",
        "on_resume y",
        "wrap_tool_call x",
        "wrap_tool_call y",
        "unwrap_tool_call y",
        "unwrap_tool_call x",
        "before_model x",
        "before_model y",
        "after_model y",
        "after_model x",
        "on_run_end y",
        "on_run_end x",
    ]


def test_on_resume_is_told_the_answers_once() -> None:
    """DESIGN 4: with the ids of their requests."""
    told: list[dict[str, Decision]] = []

    class Listens(Middleware):
        async def on_resume(self, run: Run, decisions: dict[str, Decision]) -> None:
            told.append(decisions)

    model = ScriptedModel([[call("note", {"text": "x"}), call("note", {"text": "y"})], "done"])
    agent = Agent("a", model, tools=[note], middleware=[Listens()], interrupt_on={"note": True})
    first = agent.execute_sync("go")
    assert isinstance(first, Interrupted)
    one, two = (request.id for request in first.requests)
    second = agent.resume_sync(first.state, {one: approve()})
    assert told == [{one: approve()}]
    agent.resume_sync(second.state, {two: respond("no need")})
    assert told == [{one: approve()}, {two: respond("no need")}]


def test_a_person_is_shown_messages_as_each_middleware_transforms_them() -> None:
    """DESIGN 4: what is stored stays as it is."""

    class Shouts(Middleware):
        def __init__(self, mark: str) -> None:
            self.mark = mark

        def transform_display_message(self, message: ModelMessage) -> ModelMessage | None:
            if isinstance(message, ModelResponse):
                return ModelResponse(parts=[TextPart(f"{message.text}{self.mark}")])
            return None

    agent = Agent("a", ScriptedModel(["done"]), middleware=[Shouts("1"), Shouts("2")])
    outcome = agent.execute_sync("go")
    shown = agent.display(outcome.state.messages)
    assert shown[0] == outcome.state.messages[0]
    assert isinstance(shown[1], ModelResponse)
    assert shown[1].text == "done12"
    stored = outcome.state.messages[1]
    assert isinstance(stored, ModelResponse)
    assert stored.text == "done"


# ------------------------------------------------------------------------- hooks that raise


class Boom(Exception):
    pass


def faulty(hook: str, *, plain: bool) -> Middleware:
    async def raises(self: Middleware, *args: Any) -> Any:
        raise Boom("faulty hook")

    def raises_plainly(self: Middleware, *args: Any) -> Any:
        raise Boom("faulty hook")

    made = type("Faulty", (Middleware,), {hook: raises_plainly if plain else raises})
    middleware = made()
    assert isinstance(middleware, Middleware)
    return middleware


EITHER = [
    "on_run_start",
    "before_model",
    "after_model",
    "check_tool_calls",
    "on_resume",
    "on_run_end",
]


@pytest.mark.parametrize(
    ("hook", "plain"),
    [(hook, plain) for hook in EITHER for plain in (False, True)] + [("wrap_tool_call", False)],
)
def test_a_hook_that_raises_fails_the_run_naming_hook_and_middleware(
    hook: str, plain: bool
) -> None:
    """DESIGN 4."""
    gate = {"note": True} if hook == "on_resume" else None
    agent = Agent(
        "a", noting(), tools=[note], middleware=[faulty(hook, plain=plain)], interrupt_on=gate
    )
    outcome = agent.execute_sync("go")
    if isinstance(outcome, Interrupted):
        outcome = agent.resume_sync(outcome.state, outcome.decide(approve()))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert (outcome.error.hook, outcome.error.middleware) == (hook, "Faulty")
    message = str(outcome.error)
    assert all(word in message for word in (hook, "'Faulty'", "Boom", "faulty hook"))
    assert isinstance(outcome.error.__cause__, Boom)
    assert outcome.state.run is not None
    assert outcome.state.run.over


def test_a_run_that_a_hook_failed_can_be_gone_on_with() -> None:
    """R5, T8: the history it leaves is valid."""
    model = noting("again")
    agent = Agent("a", model, tools=[note], middleware=[faulty("check_tool_calls", plain=False)])
    failed = agent.execute_sync("go")
    outcome = Agent("a", model, tools=[note]).execute_sync("go on", state=failed.state)
    assert isinstance(outcome, Completed)
    assert [part.outcome for part in results(outcome.state)] == ["interrupted"]


@pytest.mark.parametrize("answer", [None, "note", [3], 3])
def test_check_tool_calls_that_returns_no_list_of_requests_fails_the_run(answer: Any) -> None:
    """DESIGN 4: a gate is never silently off (I1)."""

    class Sloppy(Middleware):
        async def check_tool_calls(self, run: Run, calls: Sequence[ToolCall]) -> Any:
            return answer

    outcome = Agent("a", noting(), tools=[note], middleware=[Sloppy()]).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert (outcome.error.hook, outcome.error.middleware) == ("check_tool_calls", "Sloppy")
    assert [part.outcome for part in results(outcome.state)] == ["interrupted"]


# ------------------------------------------------------------------------- threads


def test_plain_hooks_run_in_threads_and_async_ones_on_the_loop() -> None:
    """DESIGN 5."""
    seen: dict[str, int] = {}

    class Plain(Middleware):
        def on_run_start(self, run: Run) -> None:  # type: ignore[override]  # plain is allowed
            seen["on_run_start"] = threading.get_ident()

        def before_model(self, run: Run, request: ModelInput) -> ModelInput:  # type: ignore[override]  # plain is allowed
            seen["before_model"] = threading.get_ident()
            return request.replace(instructions="changed by a plain hook")

        def on_run_end(self, run: Run, outcome: Outcome) -> None:  # type: ignore[override]  # plain is allowed
            seen["on_run_end"] = threading.get_ident()

    class Async(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> None:
            seen["async before_model"] = threading.get_ident()

    model = ScriptedModel(["done"])
    outcome = Agent("a", model, middleware=[Plain(), Async()]).execute_sync("go")
    assert isinstance(outcome, Completed)
    here = threading.get_ident()
    assert len(seen) == 4
    assert seen.pop("async before_model") == here
    assert here not in seen.values()
    assert model.requests[0].instructions == "changed by a plain hook"


# ------------------------------------------------------------------------- model hooks


def test_what_before_model_changes_is_shown_to_the_model_and_not_kept() -> None:
    """J15."""

    class Shortens(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
            return request.replace(
                messages=[ModelRequest(parts=[UserPromptPart("shown instead")])],
                instructions="instead",
                tools=(),
                settings={"temperature": 0.5},
            )

    model = ScriptedModel(["done"])
    agent = Agent("a", model, "Mine.", tools=[note], middleware=[Shortens()])
    outcome = agent.execute_sync("go")
    (asked,) = model.requests
    assert prompts(asked.messages) == ["shown instead"]
    assert asked.instructions == "instead"
    assert asked.tools == ()
    assert asked.settings == {"temperature": 0.5}
    assert prompts(outcome.state.messages) == ["go"]
    assert len(outcome.state.messages) == 2


def test_each_before_model_sees_what_the_one_before_it_made() -> None:
    """DESIGN 4."""

    class Adds(Middleware):
        def __init__(self, word: str) -> None:
            self.word = word

        async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
            return request.replace(instructions=f"{request.instructions} {self.word}")

    model = ScriptedModel(["done"])
    Agent("a", model, "zero", middleware=[Adds("one"), Adds("two")]).execute_sync("go")
    assert model.requests[0].instructions == "zero one two"


class Rewrites(Middleware):
    def __init__(self, mark: str) -> None:
        self.mark = mark

    async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse:
        return ModelResponse(parts=[TextPart(f"{reply.text}{self.mark}")], usage=reply.usage)


def test_the_reply_that_after_model_returns_is_what_is_recorded() -> None:
    """JOURNAL `reply`: the run ends by it, and the next model call sees it; in reverse order."""
    model = ScriptedModel(["done", "again"])
    agent = Agent("a", model, middleware=[Rewrites("1"), Rewrites("2")])
    outcome = agent.execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "done21"
    kept = outcome.state.messages[1]
    assert isinstance(kept, ModelResponse)
    assert kept.text == "done21"
    agent.execute_sync("more", state=outcome.state)
    assert model.requests[1].messages[1] == kept


def test_a_tool_call_that_after_model_strips_is_not_run() -> None:
    """JOURNAL `reply`."""
    ran: list[str] = []

    def act(what: str) -> str:
        ran.append(what)
        return what

    model = ScriptedModel([["no", call("act", {"what": "x"})]])
    outcome = Agent("a", model, tools=[act], middleware=[Rewrites("!")]).execute_sync("go")
    assert isinstance(outcome, Completed)
    assert outcome.text == "no!"
    assert ran == []


def test_after_model_does_not_run_for_a_recorded_reply() -> None:
    """J15: neither after an approval nor after a pause."""
    count: list[int] = []

    class Counts(Middleware):
        async def after_model(self, run: Run, reply: ModelResponse) -> None:
            count.append(1)

    agent = Agent(
        "a", noting(), tools=[note], middleware=[Counts()], interrupt_on={"note": True},
        pause_when=iter([True, False]).__next__,
    )  # fmt: skip
    paused = agent.execute_sync("go")
    interrupted = agent.resume_sync(AgentState.from_dict(paused.state.to_dict()))
    assert isinstance(interrupted, Interrupted)
    assert len(count) == 1
    stored = AgentState.from_dict(interrupted.state.to_dict())
    agent.resume_sync(stored, interrupted.decide(approve()))
    assert len(count) == 2


# ------------------------------------------------------------------------- run.once


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_once_runs_a_side_effect_once_a_run_and_gives_what_it_brought(kind: str) -> None:
    """J15: over all model calls of the run, and over an interrupt."""
    done: list[int] = []
    got: list[Any] = []

    def mail() -> dict[str, int]:
        done.append(1)
        return {"number": len(done)}

    async def mail_async() -> dict[str, int]:
        return mail()

    class Mails(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> None:
            got.append(await run.once("mail", mail if kind == "plain" else mail_async))

    agent = Agent(
        "a", noting("done", "more"), tools=[note], middleware=[Mails()], interrupt_on={"note": True}
    )
    interrupted = agent.execute_sync("go")
    assert isinstance(interrupted, Interrupted)
    stored = AgentState.from_dict(interrupted.state.to_dict())
    outcome = agent.resume_sync(stored, interrupted.decide(approve()))
    assert done == [1]
    assert got == [{"number": 1}, {"number": 1}]

    agent.execute_sync("more", state=outcome.state)
    assert done == [1, 1], "a new run has its own"


def test_once_runs_a_side_effect_once_for_hooks_that_run_at_the_same_time() -> None:
    """J15: around two calls of one reply, with one key."""
    done: list[int] = []
    got: list[Any] = []

    async def mail() -> int:
        done.append(1)
        await asyncio.sleep(0)  # the other hook comes here meanwhile
        return len(done)

    class Mails(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            got.append(await run.once("mail", mail))
            return await next(call)

    model = ScriptedModel([[call("note", {"text": "1"}), call("note", {"text": "2"})], "done"])
    outcome = Agent("a", model, tools=[note], middleware=[Mails()]).execute_sync("go")
    assert isinstance(outcome, Completed)
    assert done == [1]
    assert got == [1, 1]


def test_once_has_a_key_for_each_side_effect() -> None:
    """J15."""
    got: list[Any] = []

    class Mails(Middleware):
        async def on_run_start(self, run: Run) -> None:
            got.extend([await run.once("a", lambda: 1), await run.once("b", lambda: 2)])

    Agent("a", ScriptedModel(["done"]), middleware=[Mails()]).execute_sync("go")
    assert got == [1, 2]


def test_once_that_raises_is_not_recorded_and_may_be_tried_again() -> None:
    """J15: what ran to its end runs once."""
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise Boom
        return "sent"

    class Mails(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> None:
            try:
                await run.once("mail", flaky)
            except Boom:
                assert await run.once("mail", flaky) == "sent"

    outcome = Agent("a", noting(), tools=[note], middleware=[Mails()]).execute_sync("go")
    assert isinstance(outcome, Completed)
    assert len(tries) == 2


def test_once_refuses_what_cannot_be_stored() -> None:
    """J15: naming the key; the hook fails."""

    class Opens(Middleware):
        async def on_run_start(self, run: Run) -> None:
            await run.once("connection", object)

    outcome = Agent("a", ScriptedModel(["done"]), middleware=[Opens()]).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert "'connection'" in str(outcome.error)
    assert isinstance(outcome.error.__cause__, UsageError)


# ------------------------------------------------------------------------- run.replace_history


class Summarises(Middleware):
    async def before_model(self, run: Run, request: ModelInput) -> None:
        if len(run.state.messages) > 2:
            summary = ModelRequest(parts=[UserPromptPart("a summary")])
            await run.replace_history([summary])


class Records(Middleware):
    def __init__(self) -> None:
        self.seen: list[list[Any]] = []

    async def before_model(self, run: Run, request: ModelInput) -> None:
        self.seen.append(prompts(request.messages))


async def test_a_replaced_history_is_what_the_model_sees_and_what_is_kept() -> None:
    """J15: later hooks see it, too; the record makes it hold in another process."""
    model = noting()
    after = Records()
    journal = MemoryJournal()
    agent = Agent("a", model, tools=[note], middleware=[Summarises(), after])

    outcome = await agent.execute("go", journal=journal)
    assert isinstance(outcome, Completed)
    assert prompts(model.requests[1].messages) == ["a summary"]
    assert len(model.requests[1].messages) == 1
    assert after.seen == [["go"], ["a summary"]]
    assert prompts(outcome.state.messages) == ["a summary"]
    assert [message.kind for message in outcome.state.messages] == ["request", "response"]
    assert "history_replaced" in [record.kind for record in journal.records]


def test_a_replaced_history_leaves_the_given_state_as_it_was() -> None:
    """J15."""
    agent = Agent("a", ScriptedModel(["one", "two"]), middleware=[Summarises()])
    first = agent.execute_sync("go")
    agent.execute_sync("more", state=first.state)
    assert prompts(first.state.messages) == ["go"]


# ------------------------------------------------------------------------- state_schema


class Plan(BaseModel):
    goal: str
    steps: int


class TodoValues(BaseModel):
    todos: list[str] = ["begin"]
    count: int = 0
    plan: Plan = Plan(goal="none", steps=0)


class Todos(Middleware):
    state_schema: ClassVar[type[BaseModel] | None] = TodoValues


def put(delta: dict[str, Any]) -> ToolResult[str]:
    return ToolResult("put", state=delta)


def test_typed_values_are_seeded_with_their_defaults_where_the_state_lacks_them() -> None:
    """DESIGN 3: the instructions may read them; what is there stays."""
    model = ScriptedModel(["done"])
    agent = Agent("a", model, "Count {count}.", middleware=[Todos()])
    given = AgentState(values={"todos": ["mine"], "other": 1})
    outcome = agent.execute_sync("go", state=given)
    assert outcome.state.values == {
        "todos": ["mine"],
        "count": 0,
        "plan": {"goal": "none", "steps": 0},
        "other": 1,
    }
    assert model.requests[0].instructions == "Count 0."
    assert given.values == {"todos": ["mine"], "other": 1}


def test_values_that_do_not_fit_are_refused_before_anything_runs() -> None:
    """DESIGN 4, R8: naming the middleware and the value."""
    model = ScriptedModel(["done"])
    agent = Agent("a", model, middleware=[Todos()])
    with pytest.raises(UsageError, match=r"(?s)Todos.*count"):
        agent.execute_sync("go", state=AgentState(values={"count": "many"}))
    assert model.requests == []


def after_put(delta: dict[str, Any]) -> Outcome:
    model = ScriptedModel([call("put", {"delta": delta}), "done"])
    return Agent("a", model, tools=[put], middleware=[Todos()]).execute_sync("go")


def test_a_delta_that_fits_the_typed_values_is_merged() -> None:
    """DESIGN 4, T4."""
    outcome = after_put({"todos": ["a", "b"], "untyped": 1})
    assert outcome.state.values["todos"] == ["a", "b"]
    assert outcome.state.values["untyped"] == 1


@pytest.mark.parametrize("delta", [{"count": "many"}, {"plan": {"steps": "x"}}, {"todos": None}])
def test_a_delta_that_does_not_fit_is_an_error_result_and_changes_nothing(
    delta: dict[str, Any],
) -> None:
    """DESIGN 4: checked on change."""
    outcome = after_put({**delta, "other": 1})
    assert isinstance(outcome, Completed)
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert "Todos" in str(part.content)
    assert next(iter(delta)) in str(part.content)
    assert outcome.state.values == TodoValues().model_dump()


def test_a_delta_of_a_part_of_a_typed_mapping_is_checked_as_it_will_be_merged() -> None:
    """T4, DESIGN 4: mappings merge deeply, so what the delta leaves out is there."""
    outcome = after_put({"plan": {"steps": 5}})
    (part,) = results(outcome.state)
    assert part.outcome == "success", part.content
    assert outcome.state.values["plan"] == {"goal": "none", "steps": 5}


def test_two_middlewares_cannot_own_one_value() -> None:
    """DESIGN 4, R8."""

    class Others(Middleware):
        state_schema = TodoValues

    with pytest.raises(UsageError, match=r"Others and Todos.*'todos'"):
        Agent("a", ScriptedModel([]), middleware=[Todos(), Others()])


HALF = "half \ud800"
"""Text that is not valid Unicode."""


async def asks_for_it(run: Run, calls: Sequence[ToolCall]) -> Any:
    return [calls[0].request(kind=HALF)]


@pytest.mark.parametrize(
    ("hook", "does", "told"),
    [
        ("before_step", lambda run: run.once(HALF, lambda: 1), "run.once: `key`"),
        ("before_step", lambda run: run.once("", lambda: 1), "not empty"),
        ("after_step", lambda run: run.request_continuation(prompt=HALF), "`prompt`"),
        ("after_step", lambda run: run.request_continuation(source=HALF), "`source`"),
        ("check_tool_calls", asks_for_it, r"request\(kind=...\)"),
    ],
    ids=["key", "no key", "prompt", "source", "kind"],
)
def test_text_of_a_hook_that_cannot_be_stored_is_its_failure(
    hook: str, does: Any, told: str
) -> None:
    """J16, R4: the error names the hook, and what is wrong."""

    async def act(self: Middleware, run: Run, *rest: Any) -> Any:
        done = does(run, *rest)
        return await done if inspect.isawaitable(done) else done

    middleware = type("Mine", (Middleware,), {hook: act})
    outcome = Agent("a", noting(), tools=[note], middleware=[middleware()]).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert (outcome.error.hook, outcome.error.middleware) == (hook, "Mine")
    assert re.search(f"UsageError: .*{told}", str(outcome.error))


# ------------------------------------------------------------------------- wrap_tool_call


class Passes(Middleware):
    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        return await next(call)


def asks(ctx: ToolContext) -> str:
    if ctx.resume_value is None:
        raise Interrupt("which?")
    return f"this: {ctx.resume_value}"


def refuses() -> str:
    raise Retry("not yet")


def breaks() -> str:
    raise ValueError("no such order")


@pytest.mark.parametrize(("tool", "told"), [(refuses, "not yet"), (breaks, "no such order")])
def test_wrapping_a_call_passes_the_tools_own_error_through(tool: Any, told: str) -> None:
    """DESIGN 4, T2: it is the tool's result, no failure of the middleware."""
    ends = []
    for stack in ([], [Passes(), Passes()]):
        model = ScriptedModel([call(tool.__name__), "done"])
        outcome = Agent("a", model, tools=[tool], middleware=stack).execute_sync("go")
        assert isinstance(outcome, Completed)
        (part,) = results(outcome.state)
        ends.append((part.outcome, part.content))
    assert ends[0] == ends[1]
    assert ends[0][0] == "failed"
    assert told in str(ends[0][1])


def test_wrapping_a_call_passes_the_tools_own_question_through() -> None:
    """I8."""
    model = ScriptedModel([call("asks"), "done"])
    agent = Agent("a", model, tools=[asks], middleware=[Passes(), Passes()])
    interrupted = agent.execute_sync("go")
    assert isinstance(interrupted, Interrupted)
    outcome = agent.resume_sync(interrupted.state, interrupted.decide(respond("left")))
    assert [part.content for part in results(outcome.state)] == ["this: left"]


def test_a_wrapper_may_turn_the_tools_error_into_a_result() -> None:
    """DESIGN 4."""

    class Recovers(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            try:
                return await next(call)
            except ValueError as error:
                return f"recovered: {error}"

    model = ScriptedModel([call("breaks"), "done"])
    outcome = Agent("a", model, tools=[breaks], middleware=[Recovers()]).execute_sync("go")
    (part,) = results(outcome.state)
    assert (part.outcome, part.content) == ("success", "recovered: no such order")


def test_an_error_of_the_wrappers_own_is_its_failure_even_beside_the_tools() -> None:
    """DESIGN 4: raised while it handled the tool's error."""

    class Clumsy(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            try:
                return await next(call)
            except ValueError as error:
                raise Boom("clumsy") from error

    model = ScriptedModel([call("breaks"), "done"])
    outcome = Agent("a", model, tools=[breaks], middleware=[Clumsy(), Passes()]).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert (outcome.error.hook, outcome.error.middleware) == ("wrap_tool_call", "Clumsy")


async def _of(awaited: Awaitable[Any]) -> Any:
    return await awaited


class Recovers(Middleware):
    """Makes a result of every exception, or tries once more."""

    def __init__(self, *, again: bool = False, grouped: bool = False) -> None:
        self.again, self.grouped = again, grouped

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        try:
            if self.grouped:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_of(next(call)))
            return await next(call)
        except Exception:
            return await next(call) if self.again else "recovered"


@pytest.mark.parametrize("entered", [False, True], ids=["before the tool", "after the tool"])
@pytest.mark.parametrize("options", [{}, {"again": True}, {"grouped": True}], ids=str)
def test_a_wrapper_that_fails_inside_another_one_fails_the_run_whatever_that_one_does(
    entered: bool, options: dict[str, bool]
) -> None:
    """DESIGN 4: only a tool's own error may be turned into a result."""
    ran: list[int] = []

    @tool(idempotent=True)
    def act() -> str:
        ran.append(1)
        return "ran"

    class Fails(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            if entered:
                await next(call)
            raise Boom("inside")

    stack = [Recovers(**options), Fails()]
    outcome = Agent(
        "a", ScriptedModel([call("act"), "done"]), tools=[act], middleware=stack
    ).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert (outcome.error.hook, outcome.error.middleware) == ("wrap_tool_call", "Fails")
    assert len(ran) == entered
    (part,) = results(outcome.state)
    assert part.outcome == "interrupted"
    assert ("Not run" in str(part.content)) is not entered


def test_a_store_that_fails_inside_a_call_is_no_error_that_a_wrapper_may_recover_from() -> None:
    """J16: what the tool did is not known, and no result may be made of it."""

    class Ended(MemoryJournal):
        def check_owner(self) -> None:
            raise Fenced(agent_id="a", why="the test says so")

    agent = Agent("a", noting(), tools=[note], middleware=[Recovers()])
    with pytest.raises(Fenced):
        agent.execute_sync("go", journal=Ended())


def test_a_wrapper_may_answer_for_the_tool() -> None:
    """DESIGN 4."""
    ran: list[int] = []

    def act() -> str:
        ran.append(1)
        return "ran"

    class Caches(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            return "cached"

    model = ScriptedModel([call("act"), "done"])
    outcome = Agent("a", model, tools=[act], middleware=[Caches()]).execute_sync("go")
    assert [part.content for part in results(outcome.state)] == ["cached"]
    assert ran == []


def test_a_wrapper_may_change_the_arguments_and_they_are_validated() -> None:
    """DESIGN 4, T2."""

    class Changes(Middleware):
        def __init__(self, arguments: dict[str, Any]) -> None:
            self.arguments = arguments

        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            assert call.arguments == {"text": "x"}
            return await next(call.replace(arguments=self.arguments))

    outcome = Agent(
        "a", noting(), tools=[note], middleware=[Changes({"text": "changed"})]
    ).execute_sync("go")
    assert [part.content for part in results(outcome.state)] == ["noted changed"]

    outcome = Agent("a", noting(), tools=[note], middleware=[Changes({"txt": 1})]).execute_sync(
        "go"
    )
    assert isinstance(outcome, Completed)
    assert [part.outcome for part in results(outcome.state)] == ["failed"]


def test_arguments_that_a_wrapper_changes_in_place_reach_the_tool() -> None:
    """DESIGN 4: as those that it replaces do."""

    class Changes(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            call.arguments["text"] = "changed"
            return await next(call)

    agent = Agent("a", noting(), tools=[note], middleware=[Passes(), Changes(), Passes()])
    assert [part.content for part in results(agent.execute_sync("go").state)] == ["noted changed"]


ITSELF: dict[str, Any] = {}
ITSELF["text"] = ITSELF
UNFIT: dict[str, tuple[Any, str]] = {
    "an object": ({"text": object()}, r"'text'.*<class 'object'>"),
    "a cycle": (ITSELF, r"'text'.*contains itself"),
    "half a surrogate pair": ({"text": "\ud800"}, r"'text'.*not valid Unicode"),
    "a long integer": ({"text": 10**5000}, r"'text'.*4,300 digits"),
    "a key that is no text": ({1: "x"}, r"key 1: keys must be strings"),
    "no mapping": (["x"], r"must be a mapping, got \['x'\]"),
    "no call": (None, r"next takes the call, .* got None"),
}


@pytest.mark.parametrize("in_place", [False, True], ids=["replaced", "in place"])
@pytest.mark.parametrize(("given", "told"), UNFIT.values(), ids=UNFIT)
def test_what_a_wrapper_must_not_pass_on_is_its_failure_and_the_tool_does_not_run(
    given: Any, told: str, in_place: bool
) -> None:
    """DESIGN 4: the error names the middleware that did it, and the value."""
    ran: list[str] = []

    def act(text: str) -> str:
        ran.append(text)
        return text

    class Clumsy(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            if not isinstance(given, (dict, list)):
                return await next(given)
            if in_place and isinstance(given, dict):
                call.arguments.clear()
                call.arguments.update(given)
                return await next(call)
            unchecked: Any = given
            return await next(dataclasses.replace(call, arguments=unchecked))

    model = ScriptedModel([call("act", {"text": "x"}), "went on"])
    stack = [Passes(), Clumsy(), Passes()]
    outcome = Agent("a", model, tools=[act], middleware=stack).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MiddlewareError)
    assert (outcome.error.hook, outcome.error.middleware) == ("wrap_tool_call", "Clumsy")
    assert re.search(told, str(outcome.error))
    assert ran == []
    assert not outcome.state.doubts


# ------------------------------------------------------------------------- prepare


class Odd(Middleware):
    """Raises in one of the hooks that no run calls."""

    def __init__(self, hook: str, error: Exception) -> None:
        self.hook, self.error = hook, error

    def prepare(self, definition: Any) -> Prepared:
        if self.hook == "prepare":
            raise self.error
        return Prepared()

    def check(self, definition: Any) -> None:
        if self.hook == "check":
            raise self.error


@pytest.mark.parametrize("hook", ["prepare", "check"])
def test_what_is_raised_while_an_agent_is_made_names_the_middleware(hook: str) -> None:
    """R8."""
    with pytest.raises(UsageError, match=f"{hook} of middleware 'Odd' raised LookupError: none"):
        Agent("a", noting(), middleware=[Odd(hook, LookupError("none"))])
    with pytest.raises(UsageError, match="give two") as raised:
        Agent("a", noting(), middleware=[Odd(hook, UsageError("give two"))])
    (note_,) = raised.value.__notes__
    assert note_ == f"Raised by {hook} of middleware 'Odd' of agent 'a'."


def test_a_display_hook_that_raises_shows_that_message_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Half(Middleware):
        def transform_display_message(self, message: Any) -> Any:
            if not isinstance(message, ModelResponse):
                raise LookupError("only replies")
            return dataclasses.replace(message, parts=[TextPart("shown")])

    agent = Agent("a", ScriptedModel(["done"]), middleware=[Half()])
    messages = agent.execute_sync("go").state.messages
    asked, replied = agent.display(messages)
    assert asked is messages[0]
    assert isinstance(replied, ModelResponse)
    assert replied.text == "shown"
    assert "transform_display_message of middleware 'Half' raised LookupError" in caplog.text


def test_prepare_adds_instructions_and_tools() -> None:
    """DESIGN 4, R3."""

    class Adds(Middleware):
        def prepare(self, definition: Any) -> Prepared:
            assert definition.name == "a"
            return Prepared(instructions="Note all.", tools=[note])

    model = noting()
    outcome = Agent("a", model, "Be kind.", tools=[breaks], middleware=[Adds()]).execute_sync("go")
    assert isinstance(outcome, Completed)
    assert model.requests[0].instructions == "Be kind.\n\nNote all."
    assert model.requests[0].tools == ("breaks", "note")
    assert [part.content for part in results(outcome.state)] == ["noted x"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("check_tool_call", "check_tool_calls"),
        ("on_runstart", "on_run_start"),
        ("wrap_tool_calls", "wrap_tool_call"),
        ("before_llm", "before_model"),
        ("transform_quantum", "the hooks are"),
        ("befor_model", "before_model"),
        ("efore_model", "before_model"),
        ("befroe_model", "before_model"),
        ("beforeModel", "before_model"),
        ("wrap_toolcall", "wrap_tool_call"),
        ("wraptool_call", "wrap_tool_call"),
        ("warp_model_call", "wrap_model_call"),
        ("chek_tool_calls", "check_tool_calls"),
        ("onRunEnd", "on_run_end"),
        ("n_message", "on_message"),
        ("afterr_step", "after_step"),
    ],
)
def test_a_method_that_looks_like_a_hook_and_is_none_is_refused(name: str, meant: str) -> None:
    async def hook(self: Any, *_: Any) -> None: ...

    misspelt = type("Gate", (Middleware,), {name: hook})
    with pytest.raises(UsageError, match=rf"Gate\.{name} is not a hook.*{meant}"):
        Agent("a", ScriptedModel(["done"]), middleware=[misspelt()])


@pytest.mark.parametrize(
    "name",
    [
        "_check_anything",
        "_befor_model",
        "helper",
        "start",
        "resume",
        "run_end",
        "message",
        "step",
        "model",
        "tool_calls",
        "checked_tool_calls",
        "unwrap_tool_call",
        "restart",
        "message_of",
        "only_message",
        "restore_model",
        "prepared",
        "checks",
        "names",
    ],
)
def test_a_middleware_may_have_methods_of_its_own(name: str) -> None:
    def own(self: Any, *_: Any) -> None: ...

    Agent("a", ScriptedModel(["done"]), middleware=[type("Own", (Middleware,), {name: own})()])


def test_what_is_no_method_may_have_a_name_close_to_a_hook() -> None:
    Agent(
        "a", ScriptedModel(["done"]), middleware=[type("Own", (Middleware,), {"befor_step": 3})()]
    )


# ------------------------------------------------------------- results around results


class Keeps(Middleware):
    """Adds a value to each result, whatever the tool returned: as the docs show it."""

    def __init__(self, name: str, state: dict[str, Any] | None = None, **more: Any) -> None:
        self.label = name
        self.state = {"seen": {name: True}} if state is None else state
        self.more = more

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        return ToolResult(await next(call), state=self.state, **self.more)


def reserve() -> ToolResult[int]:
    return ToolResult("reserved", value=7, state={"seen": {"tool": True}, "last": "tool"})


def test_what_a_middleware_adds_to_a_result_replaces_nothing_of_it() -> None:
    """T4."""
    stack = [Keeps("outer", {"seen": {"outer": True}, "last": "outer"}), Keeps("inner")]
    agent = Agent("a", ScriptedModel([call("reserve")]), tools=[reserve], middleware=stack)
    outcome = agent.execute_sync("go", until_tool=reserve)
    assert isinstance(outcome, Completed)
    assert outcome.tool_result is not None
    assert (outcome.tool_result.content, outcome.tool_result.value) == ("reserved", 7)
    assert outcome.state.values == {
        "seen": {"tool": True, "inner": True, "outer": True},
        "last": "outer",
    }


def test_a_middleware_may_give_another_value_for_the_program() -> None:
    agent = Agent(
        "a",
        ScriptedModel([call("reserve")]),
        tools=[reserve],
        middleware=[Keeps("outer", value=8)],
    )
    outcome = agent.execute_sync("go", until_tool=reserve)
    assert isinstance(outcome, Completed)
    assert outcome.tool_result is not None
    assert (outcome.tool_result.content, outcome.tool_result.value) == ("reserved", 8)


def test_a_tool_that_ends_the_run_with_its_turn_does_so_below_a_middleware() -> None:
    def finish() -> ToolResult[str]:
        return ToolResult("the end", skip_summarization=True)

    model = ScriptedModel([call("finish")])  # a second request would find no reply
    outcome = Agent("a", model, tools=[finish], middleware=[Keeps("outer")]).execute_sync("go")
    assert isinstance(outcome, Completed), outcome.explain()


@pytest.mark.parametrize(
    ("reply", "expected"),
    [("from below", ("success", "from below")), (OSError("no line"), ("failed", "no line"))],
)
def test_a_middleware_adds_to_what_became_of_an_agent(
    reply: Any, expected: tuple[str, str]
) -> None:
    below = Agent("below", ScriptedModel([reply]))

    async def ask(ctx: ToolContext) -> Any:
        return await ctx.run_agent(below, "go")

    model = ScriptedModel([call("ask"), "done"])
    outcome = Agent("a", model, tools=[ask], middleware=[Keeps("outer")]).execute_sync("go")
    (part,) = results(outcome.state)
    assert (part.outcome, str(part.content)[-len(expected[1]) :]) == expected


def test_a_delta_that_is_no_mapping_is_an_error_below_a_middleware_too() -> None:
    def wrong() -> ToolResult[str]:
        return ToolResult("put", state=[1])  # type: ignore[arg-type]

    model = ScriptedModel([call("wrong"), "done"])
    outcome = Agent("a", model, tools=[wrong], middleware=[Keeps("outer")]).execute_sync("go")
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert "ToolResult(state=...)" in str(part.content)
    assert outcome.state.values == {}
