"""`wrap_model_call`: middleware around a model call, and the parts that are made of it (R5)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.usage import RequestUsage
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from tests.support.agents import completed
from tests.support.loops import own_tasks, soon
from understudy import Agent, Failed, Outcome, Run, Runtime, ScriptedModel, UsageError, call, tool
from understudy.errors import MiddlewareError, ModelFailed
from understudy.events import RunFinished, TextDelta
from understudy.middleware import (
    Fallback,
    Middleware,
    ModelInput,
    NextModelCall,
    Retry,
    SubAgent,
)
from understudy.models import ScriptedRequest
from understudy.modes import Sequential

Wrap = Callable[[Run, ModelInput, NextModelCall], Awaitable[ModelResponse]]


class Around(Middleware):
    """One function as the hook."""

    def __init__(self, wrap: Wrap) -> None:
        self._wrap = wrap

    async def wrap_model_call(
        self, run: Run, request: ModelInput, next: NextModelCall
    ) -> ModelResponse:
        return await self._wrap(run, request, next)


class Safe(Around):
    stream_safe = True


class Down(Exception):
    """The provider is down."""


def down(_: ScriptedRequest) -> str:
    raise Down("busy")


def failed(outcome: Outcome) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


def says(text: str, tokens: int = 1) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)], usage=RequestUsage(output_tokens=tokens))


def agent(model: ScriptedModel, *wraps: Wrap, **options: Any) -> Agent:
    return Agent("clerk", model, middleware=[Around(wrap) for wrap in wraps], **options)


# ------------------------------------------------------------------- what a hook may do


async def test_the_first_of_the_stack_is_the_outermost() -> None:
    order: list[str] = []

    def noting(name: str) -> Wrap:
        async def wrap(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
            order.append(f"{name} before")
            reply = await next(request)
            order.append(f"{name} after")
            return reply

        return wrap

    await agent(ScriptedModel(["hello"]), noting("one"), noting("two")).execute("go")
    assert order == ["one before", "two before", "two after", "one after"]


async def test_it_may_change_what_is_sent_and_what_came_back() -> None:
    async def louder(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        reply = await next(request.replace(instructions="Speak up."))
        return replace(reply, parts=[TextPart((reply.text or "").upper())])

    model = ScriptedModel(["hello"])
    outcome = completed(await agent(model, louder).execute("go"))
    assert outcome.text == "HELLO"
    assert model.requests[0].instructions == "Speak up."


async def test_it_may_answer_without_the_model() -> None:
    async def cached(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        return says("from the cache")

    model = ScriptedModel(["never asked"])
    assert completed(await agent(model, cached).execute("go")).text == "from the cache"
    assert model.requests == []


async def test_it_may_ask_another_model_for_this_call_only() -> None:
    small, large = ScriptedModel(["small", "small again"]), ScriptedModel(["large"])

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    large = ScriptedModel([call("look")])

    async def first_by_large(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        return await next(request.replace(model=large) if run.current.turns == 0 else request)

    outcome = completed(await agent(small, first_by_large, tools=[look]).execute("go"))
    assert outcome.text == "small"
    assert (len(small.requests), len(large.requests)) == (1, 1)


async def test_a_reply_that_it_did_not_take_is_paid_for() -> None:
    async def until_short(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        reply = await next(request)
        return reply if len(reply.text or "") < 5 else await next(request)

    model = ScriptedModel([says("far too long", 7), says("ok", 2)])
    outcome = completed(await agent(model, until_short).execute("go"))
    assert outcome.text == "ok"
    reply = outcome.state.messages[-1]
    assert isinstance(reply, ModelResponse)
    (attempt,) = reply.failed_attempts or []
    assert attempt.outcome == "rejected"
    assert outcome.usage.output_tokens == 9


async def test_it_may_make_an_answer_of_an_error_of_the_model() -> None:
    async def sorry(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        try:
            return await next(request)
        except Down:
            return says("We are busy.")

    outcome = completed(await agent(ScriptedModel(down), sorry).execute("go"))
    assert outcome.text == "We are busy."


# ----------------------------------------------------------------------- what goes wrong


async def test_an_error_of_the_model_that_passes_through_is_a_failure_of_the_model() -> None:
    async def passes(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        return await next(request)

    error = failed(await agent(ScriptedModel(down), passes, passes).execute("go")).error
    assert isinstance(error, ModelFailed)
    assert error.failures[0]["type"] == "Down"


async def test_its_own_error_names_it_whatever_the_one_around_it_does() -> None:
    async def catches(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        try:
            return await next(request)
        except Exception:
            return says("nothing happened")

    async def breaks(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        raise KeyError("mine")

    error = failed(await agent(ScriptedModel(["hi"]), catches, breaks).execute("go")).error
    assert isinstance(error, MiddlewareError)
    assert (error.middleware, error.hook) == ("Around", "wrap_model_call")


@pytest.mark.parametrize("given", [None, "text", {"instructions": "x"}], ids=repr)
async def test_what_is_no_request_is_refused_where_it_is_passed_on(given: Any) -> None:
    async def wrong(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        return await next(given)

    model = ScriptedModel(["hi"])
    error = failed(await agent(model, wrong).execute("go")).error
    assert isinstance(error, MiddlewareError)
    assert "request.replace" in error.message
    assert model.requests == []


async def test_a_text_that_cannot_be_sent_is_refused() -> None:
    async def wrong(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        return await next(request.replace(instructions="\ud800"))

    model = ScriptedModel(["hi"])
    assert isinstance(failed(await agent(model, wrong).execute("go")).error, MiddlewareError)
    assert model.requests == []


async def test_a_model_that_is_none_is_refused() -> None:
    async def wrong(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        return await next(request.replace(model="openai:gpt-5"))

    error = failed(await agent(ScriptedModel(["hi"]), wrong).execute("go")).error
    assert "must be a Pydantic AI Model" in error.message


@pytest.mark.parametrize("returned", [None, "text"], ids=repr)
async def test_what_is_no_reply_is_refused(returned: Any) -> None:
    async def forgets(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        await next(request)
        return returned  # type: ignore[no-any-return]

    error = failed(await agent(ScriptedModel(["hi"]), forgets).execute("go")).error
    assert isinstance(error, MiddlewareError)
    assert "return what next returned" in error.message


async def test_two_calls_of_next_at_the_same_time_are_refused() -> None:
    async def both(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        replies = await asyncio.gather(next(request), next(request))
        return replies[0]

    async def answers(_: ScriptedRequest) -> str:
        await asyncio.sleep(0)
        return "hi"

    error = failed(await agent(ScriptedModel(answers), both).execute("go")).error
    assert isinstance(error, MiddlewareError)
    assert "at the same time" in error.message or "another call of it runs" in error.message


async def test_a_client_that_cancels_itself_cancels_no_run_inside_a_hook_either() -> None:
    def gives_up(_: ScriptedRequest) -> str:
        raise asyncio.CancelledError

    async def passes(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        try:
            return await next(request)
        except asyncio.CancelledError:
            raise AssertionError("nobody cancelled the run") from None

    error = failed(await agent(ScriptedModel(gives_up), passes).execute("go")).error
    assert isinstance(error, ModelFailed)
    assert error.failures[0]["type"] == "CancelledError"


def test_a_plain_function_is_refused() -> None:
    class Plain(Middleware):
        def wrap_model_call(self, run: Any, request: Any, next: Any) -> Any:
            return next(request)

    with pytest.raises(UsageError, match=r"Plain.wrap_model_call must be async"):
        Agent("clerk", ScriptedModel(["hi"]), middleware=[Plain()])


def test_a_workflow_calls_no_model_to_be_wrapped() -> None:
    async def passes(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        return await next(request)

    inner = Agent("inner", ScriptedModel(["hi"]))
    with pytest.raises(UsageError, match="wrap_model_call"):
        Agent("flow", None, mode=Sequential([inner]), middleware=[Around(passes)])


# --------------------------------------------------------------------------- streaming


async def streamed(made: Agent) -> str:
    """All text that a subscriber gets in one run."""
    async with Runtime([made]) as runtime:
        ref = runtime.spawn("clerk")
        events = ref.events()
        done = ref.run("go")
        texts = []
        async for each in events:
            if isinstance(each.event, TextDelta):
                texts.append(each.event.text)
            elif isinstance(each.event, RunFinished):
                break
        await soon(done)
    return "".join(texts)


async def test_text_is_held_back_while_a_hook_may_still_refuse_it() -> None:
    async def until_short(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        reply = await next(request)
        return reply if len(reply.text or "") < 5 else await next(request)

    assert await streamed(agent(ScriptedModel(["far too long", "ok"]), until_short)) == "ok"


async def test_a_hook_that_is_safe_cannot_ask_again_when_text_is_out() -> None:
    async def twice(run: Run, request: ModelInput, next: NextModelCall) -> ModelResponse:
        await next(request)
        return await next(request)

    made = Agent("clerk", ScriptedModel(["one", "two"]), middleware=[Safe(twice)])
    assert await streamed(made) == "one"


# --------------------------------------------------------------------- Retry and Fallback


def policy(attempts: int, *kinds: type[Exception]) -> AsyncRetrying:
    return AsyncRetrying(
        stop=stop_after_attempt(attempts), retry=retry_if_exception_type(kinds or Exception)
    )


def failing(times: int, then: str = "at last") -> tuple[ScriptedModel, list[int]]:
    asked: list[int] = []

    def answer(_: ScriptedRequest) -> str:
        asked.append(len(asked))
        if len(asked) <= times:
            raise ModelHTTPError(503, "clerk")
        return then

    return ScriptedModel(answer), asked


@pytest.mark.parametrize("short", [False, True], ids=["middleware", "option"])
async def test_a_call_is_made_again_as_the_policy_says(short: bool) -> None:
    model, asked = failing(2)
    given: dict[str, Any] = {"retry": policy(3)} if short else {"middleware": [Retry(policy(3))]}
    assert completed(await Agent("clerk", model, **given).execute("go")).text == "at last"
    assert len(asked) == 3


async def test_a_policy_that_gives_up_leaves_the_error_of_the_model() -> None:
    model, asked = failing(5)
    outcome = failed(await Agent("clerk", model, middleware=[Retry(policy(2))]).execute("go"))
    assert isinstance(outcome.error, ModelFailed)
    assert [each["type"] for each in outcome.error.failures] == ["ModelHTTPError"]
    assert len(asked) == 2


async def test_a_refusal_is_not_asked_for_again() -> None:
    refusal = ModelResponse(parts=[], finish_reason="content_filter")
    model = ScriptedModel([refusal, "never asked"])
    failed(await Agent("clerk", model, middleware=[Retry(policy(3))]).execute("go"))
    assert len(model.requests) == 1


@pytest.mark.parametrize("short", [False, True], ids=["middleware", "option"])
async def test_the_next_model_is_asked_where_one_fails(short: bool) -> None:
    models = [ScriptedModel(down, name="two"), ScriptedModel(["from three"], name="three")]
    given: dict[str, Any] = (
        {"fallback_models": models} if short else {"middleware": [Fallback(models)]}
    )
    made = Agent("clerk", ScriptedModel(down, name="one"), **given)
    assert completed(await made.execute("go")).text == "from three"


async def test_each_model_is_asked_again_before_the_next_one() -> None:
    first, asked = failing(9)
    second = ScriptedModel(["from two"])
    made = Agent("clerk", first, middleware=[Fallback([second]), Retry(policy(2))])
    assert completed(await made.execute("go")).text == "from two"
    assert len(asked) == 2


async def test_the_failures_of_all_models_are_told() -> None:
    made = Agent(
        "clerk",
        ScriptedModel(down, name="one"),
        middleware=[Fallback([ScriptedModel(down, name="two")])],
    )
    error = failed(await made.execute("go")).error
    assert isinstance(error, ModelFailed)
    assert [each["model"] for each in error.failures] == ["one", "two"]


def test_fallbacks_given_twice_are_refused() -> None:
    other = ScriptedModel(["hi"])
    with pytest.raises(UsageError, match="given twice"):
        Agent(
            "clerk", ScriptedModel(["hi"]), fallback_models=[other], middleware=[Fallback([other])]
        )


@pytest.mark.parametrize("models", [[], "openai:gpt-5", None, [3]], ids=repr)
def test_what_are_no_models_is_refused(models: Any) -> None:
    with pytest.raises(UsageError, match="Fallback"):
        Fallback(models)


@pytest.mark.parametrize("given", [None, 3, policy], ids=["None", "3", "a function"])
def test_what_is_no_policy_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="AsyncRetrying"):
        Retry(given)


async def test_a_child_made_of_options_falls_back_as_its_parent_does() -> None:
    parent = Agent(
        "parent",
        ScriptedModel([call("run_subagent", {"agent": "kid", "task": "go"}), "done"]),
        middleware=[
            Fallback([ScriptedModel(["from the fallback"])]),
            SubAgent([{"name": "kid", "description": "helps"}]),
        ],
    )
    assert "kid" in parent.definition.children
    assert parent.definition.children["kid"].definition.fallback_models


def test_the_fingerprint_of_an_agent_does_not_know_of_its_retries() -> None:
    plain = Agent("clerk", ScriptedModel(["hi"]))
    given = Agent(
        "clerk", ScriptedModel(["hi"]), retry=policy(2), fallback_models=[ScriptedModel(["hi"])]
    )
    assert plain.definition.fingerprint == given.definition.fingerprint


async def test_nothing_is_left_running() -> None:
    model, _ = failing(1)
    await Agent("clerk", model, retry=policy(2)).execute("go")
    assert not own_tasks()
