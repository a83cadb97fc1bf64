"""`Summarization`: older turns become a summary, once, and nothing that belongs together is cut.

Rules: R15.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from tests.support.agents import assert_valid_history, completed, interrupted, reloaded
from tests.support.cut_off import Crash, Disk, ids, told
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentState,
    Run,
    Runtime,
    ScriptedModel,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.journal import MemoryStore
from understudy.middleware import Guard, Limits, Middleware, ModelInput, Summarization
from understudy.models import ScriptedRequest
from understudy.models.token_counts import estimated_tokens
from understudy.modes import Loop

LONG = "word " * 40
"""Of about 50 tokens."""


@tool(idempotent=True)
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: {LONG}"


def reply(request: ScriptedRequest) -> Any:
    """Read page after page; the number is in the last result, so a fresh model continues."""
    pages = [
        int(str(part.content).split()[1].rstrip(":"))
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    page = max(pages, default=0) + 1
    return call("read", {"page": page}, id=f"c{page}") if page <= 6 else "The end."


def uncounted(request: ScriptedRequest) -> ModelResponse:
    """As `reply`, of a provider that counts no tokens."""
    given = reply(request)
    if isinstance(given, str):
        return ModelResponse(parts=[TextPart(given)])
    part = ToolCallPart(given.tool_name, dict(given.arguments), tool_call_id=given.id)
    return ModelResponse(parts=[part])


def small_model() -> ScriptedModel:
    return ScriptedModel(lambda request: f"In short: {request.prompt.count('Result of')} pages.")


def texts(messages: Sequence[ModelMessage]) -> list[str]:
    found: list[str] = []
    for message in messages:
        for part in message.parts:
            content = getattr(part, "content", part)
            items = content if isinstance(content, list) else [content]
            found += [str(i.content if isinstance(i, TextContent) else i) for i in items]
    return found


def clerk(small: ScriptedModel, **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(uncounted)
    given: dict[str, Any] = {"max_tokens": 200, "keep_turns": 1, "model": small}
    middleware = [Summarization(**{**given, **options})]
    return Agent("clerk", model, tools=[read], middleware=middleware), model


# ------------------------------------------------------------------------- what is sent


async def test_older_turns_become_a_summary_and_the_rest_stays_as_it_is() -> None:
    """R15."""
    small = small_model()
    agent, model = clerk(small)
    outcome = completed(await agent.execute("Read all."))
    assert outcome.text == "The end."
    assert_valid_history(outcome.state)
    sent = [texts(request.messages) for request in model.requests]
    assert all(each[0] == "Read all." for each in sent), "the first message of the user stays"
    summarised = [each for each in sent if "In short" in str(each)]
    assert summarised
    for each in summarised:
        assert each[1].startswith("Summary of"), "and the summary comes right after it"
        assert each[-1].startswith("page "), "the last result stays"
    assert outcome.usage.requests == len(model.requests) + len(small.requests)


@pytest.mark.parametrize("guard_first", [True, False])
async def test_a_summary_beside_a_guard_holds_for_the_call_that_is_about_to_be_made(
    guard_first: bool,
) -> None:
    def upper(text: str, run: Run) -> str:
        return text.upper()

    model = ScriptedModel(lambda request: ModelResponse(parts=[TextPart(LONG)]))
    summary = Summarization(60, keep_turns=1, summarize=lambda older: "They talked.")
    stack: list[Middleware] = [Guard(input=upper), summary]
    agent = Agent("a", model, middleware=stack if guard_first else stack[::-1])
    state = None
    for _ in range(4):
        state = completed(await agent.execute(LONG, state=state)).state
    assert [len(each.messages) for each in model.requests] == [1, 3, 5, 3]
    sent = texts(model.requests[-1].messages)
    assert "They talked." in str(sent)
    assert sent[-1] == LONG.upper()


async def test_a_request_begins_the_same_until_the_next_summary() -> None:
    small = small_model()
    agent, model = clerk(small, max_tokens=300)
    completed(await agent.execute("Read all."))
    changes = 0
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        changes += tuple(after.messages[: len(before.messages)]) != tuple(before.messages)
    assert changes == len(small.requests) > 0


async def test_what_was_said_stays_in_the_history() -> None:
    agent, _ = clerk(small_model())
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("clerk", id="one")
        completed(await soon(ref.run("Read all.")))
        page = await soon(ref.history(limit=500))
        rows = (await soon(ref.display())).rows
    read_pages = [e.detail["text"][:6] for e in page.entries if e.what == "tool_ended"]
    assert read_pages == [f"page {number}" for number in range(1, 7)]
    kinds = [entry.what for entry in page.entries]
    assert kinds.count("model_asked") == kinds.count("history_replaced") > 0
    assert "page 1" in str(rows)


async def test_a_short_conversation_is_not_summarised() -> None:
    small = small_model()
    agent, model = clerk(small, max_tokens=100_000)
    outcome = completed(await agent.execute("Read all."))
    assert small.requests == []
    assert len(outcome.state.messages) == 14
    assert len(model.requests) == 7


@pytest.mark.parametrize("keep", [1, 2, 3])
async def test_so_many_turns_stay_as_the_option_says(keep: int) -> None:
    agent, model = clerk(small_model(), keep_turns=keep)
    completed(await agent.execute("Read all."))
    first = next(request for request in model.requests if "In short" in str(request.messages))
    assert sum(isinstance(message, ModelResponse) for message in first.messages) == keep


async def test_the_question_that_a_kept_reply_answers_stays_with_it() -> None:
    state = AgentState(
        messages=[
            message
            for number in range(4)
            for message in (
                ModelRequest(parts=[UserPromptPart(f"question {number} {LONG}")]),
                ModelResponse(parts=[TextPart(f"answer {number}")]),
            )
        ]
    )
    model = ScriptedModel(["Fine."])
    agent = Agent(
        "clerk",
        model,
        middleware=[Summarization(100, keep_turns=1, summarize=lambda older: "short")],
    )
    completed(await agent.execute("And now?", state=state))
    assert [text[:10] for text in texts(model.requests[0].messages)] == [
        "question 0",
        "Summary of",
        "question 3",
        "answer 3",
        "And now?",
    ]


async def test_an_earlier_summary_becomes_part_of_the_next_one() -> None:
    small = small_model()
    agent, model = clerk(small)
    completed(await agent.execute("Read all."))
    assert len(small.requests) > 1
    assert "In short" in small.requests[1].prompt
    assert all(str(request.messages).count("Summary of") <= 1 for request in model.requests)


# ------------------------------------------------------------------------- counting


class Counting(ScriptedModel):
    """A model whose provider counts tokens when it is asked to."""

    def __init__(self, replies: Any, count: int | Exception) -> None:
        super().__init__(replies)
        self.count = count
        self.counted = 0

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        self.counted += 1
        if isinstance(self.count, Exception):
            raise self.count
        return RequestUsage(input_tokens=self.count)


def conversation(tokens: int) -> AgentState:
    """A long one whose last reply says how many tokens it had."""
    usage = RequestUsage(input_tokens=tokens)
    messages: list[ModelMessage] = []
    for number in range(6):
        messages.append(ModelRequest(parts=[UserPromptPart(f"question {number} {LONG}")]))
        messages.append(ModelResponse(parts=[TextPart("yes")], usage=usage))
    return AgentState(messages=messages)


@pytest.mark.parametrize(("tokens", "summaries"), [(10, 0), (10_000, 1)])
async def test_the_count_of_the_last_reply_is_believed(tokens: int, summaries: int) -> None:
    small = ScriptedModel(lambda _: "short")
    model = Counting(["Fine."], 0)
    agent = Agent("clerk", model, middleware=[Summarization(200, model=small)])
    completed(await agent.execute("And now?", state=conversation(tokens)))
    assert len(small.requests) == summaries
    assert model.counted == 0, "counting takes a request"


@pytest.mark.parametrize(
    ("count", "summaries"), [(10, 0), (10_000, 1), (ConnectionError("try later"), 1)]
)
async def test_a_provider_that_counts_is_asked_where_no_reply_says(
    count: int | Exception, summaries: int
) -> None:
    small = ScriptedModel(lambda _: "short")
    model = Counting(["Fine."], count)
    agent = Agent("clerk", model, middleware=[Summarization(200, model=small)])
    completed(await agent.execute("And now?", state=conversation(0)))
    assert (len(small.requests), model.counted) == (summaries, 1)


async def test_a_count_from_before_the_summary_makes_no_second_one() -> None:
    small = ScriptedModel(lambda _: "short")
    model = ScriptedModel([ConnectionError("try later"), "Fine."])
    agent = Agent("clerk", model, middleware=[Summarization(400, keep_turns=2, model=small)])
    outcome = await agent.execute("And now?", state=conversation(10_000))
    completed(await agent.execute("And now?", state=outcome.state))
    assert len(small.requests) == 1


async def test_a_count_of_an_earlier_round_of_a_workflow_is_not_believed() -> None:
    seen: list[int] = []

    def speak(request: ScriptedRequest) -> ModelResponse:
        tokens = estimated_tokens(request.messages)
        seen.append(tokens)
        usage = RequestUsage(input_tokens=tokens, output_tokens=50)
        return ModelResponse(parts=[TextPart(f"{len(seen)} {LONG}")], usage=usage)

    small = ScriptedModel(lambda _: "short")
    agents = [
        Agent(
            name,
            ScriptedModel(speak),
            middleware=[Summarization(400, keep_turns=1, model=small)],
        )
        for name in ("ann", "bob")
    ]
    completed(await Agent("flow", None, mode=Loop(agents, max_iterations=6)).execute("Talk."))
    assert max(seen) <= 400


# ------------------------------------------------------------------------- failing


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ConnectionError("try later"), "try later"),
        (LONG * 100, "no shorter"),
        ("", "empty"),
    ],
)
async def test_a_summary_that_fails_or_is_longer_leaves_the_conversation_alone(
    answer: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R15."""
    small = ScriptedModel(lambda _: answer)
    agent, model = clerk(small)
    with caplog.at_level(logging.WARNING, "understudy"):
        outcome = completed(await agent.execute("Read all."))
    assert len(outcome.state.messages) == 14
    assert "not summarised" in caplog.text
    assert why in caplog.text
    assert 1 <= len(small.requests) < len(model.requests), "it is not tried each time"


@pytest.mark.parametrize("returned", ["", 7, None])
async def test_a_function_that_returns_no_text_leaves_the_conversation_alone(
    returned: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(
        "clerk",
        ScriptedModel(["Fine."]),
        middleware=[Summarization(100, summarize=lambda older: returned)],
    )
    with caplog.at_level(logging.WARNING, "understudy"):
        completed(await agent.execute("And now?", state=conversation(0)))
    assert "`summarize` returned" in caplog.text


async def test_a_plain_or_async_function_makes_the_summary() -> None:
    async def later(older: Sequence[ModelMessage]) -> str:
        return f"{len(older)} messages"

    def now(older: Sequence[ModelMessage]) -> str:
        return f"{len(older)} messages"

    for function in (later, now):
        model = ScriptedModel(["Fine."])
        agent = Agent("clerk", model, middleware=[Summarization(100, summarize=function)])
        completed(await agent.execute("And now?", state=conversation(0)))
        assert "5 messages" in texts(model.requests[0].messages)[1]


async def test_what_a_summary_costs_counts_against_the_limits() -> None:
    costly = ModelResponse(parts=[TextPart("short")], usage=RequestUsage(input_tokens=5000))
    agent = Agent(
        "clerk",
        ScriptedModel(uncounted),
        tools=[read],
        middleware=[Limits(max_tokens=4000), Summarization(200, model=ScriptedModel([costly]))],
    )
    outcome = await agent.execute("Read all.")
    assert "5000 of 4000 tokens" in outcome.explain()


# ------------------------------------------------------------------------- crashes, stores, JSON


@pytest.mark.slow
async def test_a_run_cut_off_at_any_record_makes_no_recorded_summary_again() -> None:
    """R15."""
    disk = Disk()
    whole = told(await clerk(small_model())[0].execute("Read all.", journal=disk, new_id=ids()))
    made = sum('"kind": "model_asked"' in line for line in disk.lines)
    assert made > 0
    for limit in range(1, len(disk.lines)):
        cut = Disk(limit)
        with pytest.raises(Crash):
            await clerk(small_model())[0].execute("Read all.", journal=cut, new_id=ids())
        before = sum('"kind": "model_asked"' in line for line in cut.lines)
        small = small_model()
        assert told(await clerk(small)[0].resume(cut.load(), new_id=ids())) == whole, limit
        assert len(small.requests) == made - before


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_the_next_run_goes_on_with_the_summary_from_any_store(
    store: str, tmp_path: Path
) -> None:
    kept = MemoryStore() if store == "memory" else f"sqlite:///{tmp_path / 'store.db'}"
    small = small_model()
    async with Runtime([clerk(small)[0]], store=kept) as runtime:
        completed(await soon(runtime.spawn("clerk", id="one").run("Read all.")))
        await soon(runtime.compact("one"))
        exported = await soon(runtime.export("one"))
    made = len(small.requests)
    agent, model = clerk(small)
    async with Runtime([agent], store=kept) as runtime:
        completed(await soon(runtime.get("one").run("Thanks.")))
    assert "In short" in str(model.requests[0].messages)
    assert len(small.requests) - made <= 1
    agent, model = clerk(small)
    async with Runtime([agent]) as runtime:
        ref = await soon(runtime.import_(exported, id="two"))
        completed(await soon(ref.run("Thanks.")))
    assert "In short" in str(model.requests[0].messages)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_calls_that_wait_for_a_person_stay_as_they_are(elsewhere: bool) -> None:
    def build() -> Agent:
        return Agent(
            "clerk",
            ScriptedModel(uncounted),
            tools=[read],
            middleware=[Summarization(200, keep_turns=1, model=small_model())],
            interrupt_on={"read": True},
        )

    outcome = await build().execute("Read all.")
    for _ in range(6):
        waiting = interrupted(outcome)
        state = reloaded(waiting.state) if elsewhere else waiting.state
        outcome = await build().resume(state, waiting.decide(approve()))
    final = completed(outcome)
    assert final.text == "The end."
    assert_valid_history(final.state)


# ------------------------------------------------------------------------- workflows, stacks


async def test_an_agent_of_a_workflow_summarises_what_it_sees_and_not_the_same_again() -> None:
    small = ScriptedModel(lambda request: "short")
    seen: list[int] = []

    def speak(request: ScriptedRequest) -> ModelResponse:
        seen.append(len(request.messages))
        return ModelResponse(parts=[TextPart(f"{len(seen)} {LONG}")])

    def agent(name: str) -> Agent:
        stack = [Summarization(400, keep_turns=1, model=small)]
        return Agent(name, ScriptedModel(speak), middleware=stack)

    flow = Agent("flow", None, mode=Loop([agent("ann"), agent("bob")], max_iterations=5))
    outcome = completed(await flow.execute("Talk."))
    spoken = [message for message in outcome.state.messages if isinstance(message, ModelResponse)]
    assert len(spoken) == 10, "the conversation of the workflow has all that was said"
    assert not any("Summary of" in text for text in texts(outcome.state.messages))
    assert max(seen) < 12
    prompts = [request.prompt for request in small.requests]
    assert prompts
    assert len(set(prompts)) == len(prompts)
    firsts = [prompt for prompt in prompts if "Summary of" not in prompt]
    assert len(firsts) <= 2, "each agent summarises the beginning once"


async def test_it_works_with_a_middleware_that_changes_what_is_sent() -> None:
    class Hint(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
            hint = ModelRequest(parts=[UserPromptPart("Be quick.")])
            return request.replace(messages=[*request.messages, hint])

    model = ScriptedModel(uncounted)
    stack = [Summarization(200, keep_turns=1, model=small_model()), Hint()]
    agent = Agent("clerk", model, tools=[read], middleware=stack)
    completed(await agent.execute("Read all."))
    assert all(texts(request.messages)[-1] == "Be quick." for request in model.requests)
    assert "In short" in str(model.requests[-1].messages)


# ------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"max_tokens": 0}, "`max_tokens`"),
        ({"max_tokens": "many"}, "`max_tokens`"),
        ({"max_tokens": True}, "`max_tokens`"),
        ({"max_tokens": 1, "keep_turns": 0}, "`keep_turns`"),
        ({"max_tokens": 1, "model": 7}, "`model`"),
        ({"max_tokens": 1, "summarize": "short"}, "`summarize`"),
        ({"max_tokens": 1, "summarize": len, "prompt": "x"}, "leave out"),
        ({"max_tokens": 1, "prompt": ""}, "`prompt`"),
    ],
)
def test_an_option_that_cannot_work_is_refused(arguments: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Summarization(**arguments)


def test_two_of_them_are_refused() -> None:
    with pytest.raises(UsageError, match="two Summarizations"):
        Agent("a", ScriptedModel([]), middleware=[Summarization(100), Summarization(200)])
