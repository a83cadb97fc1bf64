"""W8: an agent whose run failed continues it in another run: limits, hooks, messages, options."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timezone
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.support.agents import (
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    reloaded,
    results,
    told_by_users,
)
from tests.support.loops import never, soon
from tests.support.outages import Outage, failed
from understudy import (
    Agent,
    Outcome,
    Paused,
    Run,
    ScriptedModel,
    UsageError,
    approve,
    call,
    tool,
)
from understudy.display import Display
from understudy.errors import (
    MiddlewareError,
    ModelFailed,
    NoProgress,
    OtherWorkflow,
    RunLimitExceeded,
    StreamBroken,
    UntilToolNotCalled,
)
from understudy.history import history_of
from understudy.middleware import Middleware
from understudy.models.attribution import GO_ON
from understudy.modes import AgentExecution, Mode, Parallel, Sequential
from understudy.state.fold import apply
from understudy.state.records import Imported, Record

NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)


class Kept:
    """Keeps records in memory."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def append(self, records: Any) -> None:
        self.records += [record for record in records if record.kind != "snapshot"]

    @property
    def has_unflushed(self) -> bool:
        return False

    async def durable(self) -> None:
        return


def breaking(broken: list[bool]) -> Mode:
    """A mode that fails right before the tools of a reply run."""

    async def check(run: Run) -> None:
        turn = run.current.turn
        if broken and turn is not None and turn.calls and not turn.propagated:
            raise ValueError("no")

    return AgentExecution().inserting(before="execute_tools", step=check)


@pytest.fixture
def outage() -> Outage:
    return Outage()


@pytest.fixture
def ran() -> list[str]:
    return []


def noting(ran: list[str]) -> Any:
    @tool
    async def note(text: str) -> str:
        ran.append(text)
        return f"noted {text}"

    return note


def test_the_run_continues_with_the_model_call_that_failed(outage: Outage, ran: list[str]) -> None:
    """W8: the tools of the turns before have run."""
    model = outage.model(
        [call("note", {"text": "a"})], [call("note", {"text": "b"})], outage.until_over("done")
    )
    agent = Agent("a", model, tools=[noting(ran)])
    first = failed(agent.execute_sync("go"))
    assert isinstance(first.error, ModelFailed)
    outage.lasts = False
    second = completed(agent.retry_sync(reloaded(first.state)))
    assert (second.text, ran) == ("done", ["a", "b"])
    assert second.run_id != first.run_id
    assert model.requests[-1].messages == model.requests[-2].messages
    assert_valid_history(second.state)


def test_a_turn_that_was_open_is_open_again(ran: list[str]) -> None:
    """W8: a hook failed while the calls of a reply ran. What was not started runs now."""
    broken = [True]

    class Fails(Middleware):
        async def wrap_tool_call(self, run: Run, call: Any, next: Any) -> Any:
            if broken and call.arguments["text"] == "b":
                raise ValueError("no")
            return await next(call)

    @tool(sequential=True)
    async def note(text: str) -> str:
        ran.append(text)
        return f"noted {text}"

    calls = [call("note", {"text": text}, id=text) for text in "abc"]
    agent = Agent("a", ScriptedModel([calls, "done"]), tools=[note], middleware=[Fails()])
    first = failed(agent.execute_sync("go"))
    assert isinstance(first.error, MiddlewareError)
    assert ran == ["a"]
    broken.clear()
    second = completed(agent.retry_sync(reloaded(first.state)))
    assert (second.text, ran) == ("done", ["a", "c"])
    assert [part.content for part in results(second.state)] == [
        "noted a",
        "Not run: a middleware failed before it was started.",
        "noted c",
    ]
    assert_valid_history(second.state)


def test_a_yes_to_a_call_that_was_not_started_is_asked_for_again(ran: list[str]) -> None:
    """W8: it was given to the run that failed."""
    broken = [True]
    agent = Agent(
        "a",
        ScriptedModel([[call("note", {"text": "a"})], "done"]),
        tools=[noting(ran)],
        interrupt_on={"note": True},
        mode=breaking(broken),
    )
    asks = interrupted(agent.execute_sync("go"))
    first = failed(agent.resume_sync(asks.state, asks.decide(approve())))
    broken.clear()
    again = interrupted(agent.retry_sync(reloaded(first.state)))
    assert not ran
    assert completed(agent.resume_sync(again.state, again.decide(approve()))).text == "done"
    assert ran == ["a"]


def test_limits_count_anew() -> None:
    """W8, R1: and the options of the run stay."""
    replies: list[Any] = [[call("note", {"text": str(n)})] for n in range(5)]
    agent = Agent("a", ScriptedModel([*replies, "done"]), tools=[noting([])])
    outcome: Outcome = agent.execute_sync("go", max_runs=2)
    for _ in range(2):
        error = failed(outcome).error
        assert isinstance(error, RunLimitExceeded)
        assert error.max_runs == 2
        outcome = agent.retry_sync(outcome.state)
    assert completed(outcome).text == "done"
    assert outcome.usage.requests == 2


def test_a_model_whose_own_reply_is_the_last_message_gets_a_prompt() -> None:
    """W8: of a reply that broke, for instance. A person reads that the model is asked again."""
    breaks = [True]

    async def stream(_: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "The answer "
        if breaks:
            raise ConnectionError("broken")
        yield "is 17."

    kept = Kept()
    agent = Agent("a", FunctionModel(stream_function=stream))
    first = failed(agent.execute_sync("go", on_event=lambda _: None, journal=kept))
    assert isinstance(first.error, StreamBroken)
    breaks.clear()
    second = completed(
        agent.retry_sync(reloaded(first.state), on_event=lambda _: None, journal=kept)
    )
    assert second.text == "The answer is 17."
    texts = [str(getattr(m.parts[0], "content", "")) for m in second.state.messages]
    assert texts == ["go", "The answer ", GO_ON, "The answer is 17."]
    display = Display("a")
    for seq, record in enumerate(kept.records, 1):
        display.record(seq, record)
    rows = [(row.kind, row.text) for row in display.rows]
    assert ("notice", "The model is asked again") in rows
    assert [text for kind, text in rows if kind == "user"] == ["go"]


def test_a_run_that_must_end_by_a_tool_must_still() -> None:
    """W8: the new run has the options of the one that failed."""
    agent = Agent(
        "a",
        ScriptedModel(["no", [call("note", {"text": "x"})]]),
        tools=[noting([])],
    )
    first = failed(agent.execute_sync("go", until_tool="note"))
    assert isinstance(first.error, UntilToolNotCalled)
    second = completed(agent.retry_sync(first.state))
    assert second.tool_result is not None
    assert second.tool_result.content == "noted x"


def test_a_run_that_had_deps_needs_them_again(outage: Outage) -> None:
    """W8: without them it is held up, as where it is resumed."""
    agent = Agent("a", outage.model(outage.until_over("done")))
    first = failed(agent.execute_sync("go", deps={"db": 1}))
    outage.lasts = False
    held = agent.retry_sync(first.state)
    assert isinstance(held, Paused)
    assert held.reason == "needs deps"
    assert completed(agent.resume_sync(held.state, deps={"db": 1})).text == "done"


def test_hooks_run_for_the_new_run_and_what_was_done_once_is_not_done_again(
    outage: Outage,
) -> None:
    """W8, R4."""
    done: list[str] = []

    class Watches(Middleware):
        async def on_run_start(self, run: Run) -> None:
            done.append("start")
            await run.once("reserve", lambda: done.append("reserve"))

        async def on_run_end(self, run: Run, outcome: Outcome) -> None:
            done.append(type(outcome).__name__)

    agent = Agent("a", outage.model(outage.until_over("done")), middleware=[Watches()])
    first = failed(agent.execute_sync("go"))
    outage.lasts = False
    completed(agent.retry_sync(first.state))
    assert done == ["start", "reserve", "Failed", "start", "Completed"]


# ------------------------------------------------------------------------- how often, and when


def test_five_retries_without_progress_are_enough(outage: Outage) -> None:
    """W8."""
    agent = Agent("a", outage.model(outage.until_over("done")))
    outcome = failed(agent.execute_sync("go"))
    for _ in range(5):
        outcome = failed(agent.retry_sync(outcome.state))
    with pytest.raises(NoProgress, match="5 retries in a row") as refused:
        agent.retry_sync(outcome.state)
    assert refused.value.run_id == outcome.run_id
    with pytest.raises(NoProgress):
        agent.execute_sync("go on", state=outcome.state, go_on=True)
    outage.lasts = False
    assert completed(agent.execute_sync("anew", state=outcome.state)).text == "done"


def test_a_stream_that_breaks_each_time_is_no_progress() -> None:
    """W8: though its reply is recorded."""

    async def stream(_: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "The answer "
        raise ConnectionError("broken")

    agent = Agent("a", FunctionModel(stream_function=stream))
    outcome = failed(agent.execute_sync("go", on_event=lambda _: None))
    for _ in range(5):
        outcome = failed(agent.retry_sync(outcome.state, on_event=lambda _: None))
    with pytest.raises(NoProgress):
        agent.retry_sync(outcome.state)


def test_progress_begins_the_count_of_retries_anew(ran: list[str]) -> None:
    """W8: a result is progress, also one of an agent inside."""
    down = ConnectionError("down")
    replies: list[Any] = [down, down, down, [call("note", {"text": "a"})]]
    model = ScriptedModel([*replies, *[down] * 6])
    flow = Agent("flow", mode=Sequential([Agent("a", model, tools=[noting(ran)])]))
    outcome = failed(flow.execute_sync("go"))
    retries = 0
    while True:
        try:
            outcome = failed(flow.retry_sync(outcome.state))
        except NoProgress:
            break
        retries += 1
    assert (retries, ran) == (3 + 5, ["a"])


def flow_of(*names: str, inside: tuple[str, ...] = ("x", "y"), outage: Outage) -> Agent:
    def agent(name: str) -> Agent:
        return Agent(name, outage.model(outage.until_over("done") if name == "x" else name))

    inner = Agent("inner", mode=Sequential([agent(name) for name in inside]))
    own = {name: agent(name) for name in names if name != "inner"} | {"inner": inner}
    return Agent("flow", mode=Sequential([own[name] for name in names]))


@pytest.mark.parametrize(
    ("names", "inside", "what"),
    [
        (("inner", "a"), ("x", "y"), r"Sequential\(a, inner\).*Sequential\(inner, a\)"),
        (("a", "inner", "b"), ("x", "y"), r"Sequential\(a, inner\).*Sequential\(a, inner, b\)"),
        (("a", "inner"), ("y", "x"), r"'inner' was Sequential\(x, y\).*Sequential\(y, x\)"),
    ],
)
def test_other_agents_or_another_order_are_refused(
    outage: Outage, names: tuple[str, ...], inside: tuple[str, ...], what: str
) -> None:
    """W8: the error names both lists, and nothing is begun."""
    first = failed(flow_of("a", "inner", outage=outage).execute_sync("go"))
    outage.lasts = False
    changed = flow_of(*names, inside=inside, outage=outage)
    with pytest.raises(OtherWorkflow, match=what):
        changed.retry_sync(first.state)
    with pytest.raises(OtherWorkflow):
        changed.execute_sync("go", state=first.state, go_on=True)
    assert completed(flow_of("a", "inner", outage=outage).retry_sync(first.state)).text == "y"


def test_a_step_without_a_model_is_continued_too() -> None:
    """W8: what it did by `once` is not done again."""
    done: list[str] = []
    broken = [True]

    async def first(run: Run) -> None:
        await run.once("first", lambda: done.append("first"))

    async def second(run: Run) -> Outcome:
        if broken:
            raise ValueError("no")
        return run.completed("done")

    agent = Agent("a", mode=Mode([first, second]))
    outcome = failed(agent.execute_sync("go"))
    broken.clear()
    assert completed(agent.retry_sync(reloaded(outcome.state))).text == "done"
    assert done == ["first"]


# ------------------------------------------------------------------------- with a new message


def test_a_message_continues_the_run(outage: Outage, ran: list[str]) -> None:
    """W8: the model reads it behind what was there."""
    model = outage.model([call("note", {"text": "a"})], outage.until_over("done"))
    agent = Agent("a", model, tools=[noting(ran)])
    first = failed(agent.execute_sync("go"))
    outage.lasts = False
    second = completed(agent.execute_sync("and hurry", state=reloaded(first.state), go_on=True))
    assert (second.text, ran) == ("done", ["a"])
    assert told_by_users(model.requests[-1]) == ["go", "and hurry"]
    assert second.state.run is not None
    assert second.state.run.first_message == 0
    assert_valid_history(second.state)


def test_a_message_comes_behind_the_results_of_a_turn_that_was_open(ran: list[str]) -> None:
    """W8."""
    broken = [True]
    model = ScriptedModel([[call("note", {"text": "a"})], "done"])
    agent = Agent("a", model, tools=[noting(ran)], mode=breaking(broken))
    first = failed(agent.execute_sync("go"))
    broken.clear()
    second = completed(agent.execute_sync("and hurry", state=reloaded(first.state), go_on=True))
    assert (second.text, ran) == ("done", ["a"])
    assert told_by_users(model.requests[-1]) == ["go", "and hurry"]
    assert_valid_history(second.state)


@pytest.mark.parametrize("nested", [False, True])
def test_a_message_that_was_not_read_is_read_by_the_next_run(ran: list[str], nested: bool) -> None:
    """W8: that one continues too, and with the results of the same turn."""
    broken = [True]
    model = ScriptedModel([[call("note", {"text": "a"})], "done"])
    agent = Agent("a", model, tools=[noting(ran)], mode=breaking(broken))
    if nested:
        agent = Agent("outer", mode=Sequential([Agent("inner", mode=Sequential([agent]))]))
    outcome = failed(agent.execute_sync("go"))
    for text in ("one", "two"):
        state = reloaded(outcome.state)
        outcome = failed(agent.execute_sync(text, state=state, go_on=True))
        said = [m.parts[0] for m in outcome.state.messages if m.kind == "request"]
        assert text in [getattr(part, "content", None) for part in said]
    broken.clear()
    end = completed(agent.retry_sync(reloaded(outcome.state)))
    assert (end.text, ran) == ("done", ["a"])
    assert told_by_users(model.requests[-1]) == ["go", "one", "two"]
    assert_valid_history(end.state)


def test_a_message_is_read_by_the_agents_that_continue_and_by_those_after_them(
    outage: Outage,
) -> None:
    """W8: those that have ended have ended. The conversation has it once."""
    first = Agent("first", ScriptedModel(["one"]))
    inner = outage.model(outage.until_over("two"))
    middle = Agent("middle", mode=Sequential([Agent("inner", inner)]))
    last = ScriptedModel(["three"])
    flow = Agent("flow", mode=Sequential([first, middle, Agent("last", last)]))
    outcome = failed(flow.execute_sync("go"))
    outage.lasts = False
    end = completed(flow.execute_sync("and hurry", state=reloaded(outcome.state), go_on=True))
    assert end.text == "three"
    assert told_by_users(inner.requests[-1]) == ["go", "[first] said: one", "and hurry"]
    assert told_by_users(last.requests[0]) == [
        "go",
        "[first] said: one",
        "and hurry",
        "[inner] said: two",
    ]


def test_all_branches_that_continue_read_the_message(outage: Outage) -> None:
    """W8."""
    models = [outage.model(outage.until_over(name)) for name in "ab"]
    agents = [Agent(name, model) for name, model in zip("ab", models, strict=True)]
    side = Agent("side", mode=Parallel(agents))
    first = failed(side.execute_sync("go"))
    outage.lasts = False
    completed(side.execute_sync("and hurry", state=first.state, go_on=True))
    assert [told_by_users(model.requests[-1]) for model in models] == [["go", "and hurry"]] * 2


def test_where_the_last_run_has_not_failed_the_message_begins_a_usual_run() -> None:
    """W8."""
    agent = Agent("a", ScriptedModel(["one", "two", "three"]))
    first = completed(agent.execute_sync("go", go_on=True))
    second = completed(agent.execute_sync("more", state=first.state, go_on=True))
    assert second.text == "two"
    assert second.state.run is not None
    assert second.state.run.continues is None
    with pytest.raises(UsageError, match="go_on"):
        agent.execute_sync("more", state=first.state, go_on="yes")  # type: ignore[arg-type]


# --------------------------------------------------------------------------- what else is told


def test_the_history_says_which_run_it_continues(outage: Outage) -> None:
    """W8."""
    kept = Kept()
    agent = Agent("a", outage.model(outage.until_over("done")))
    first = failed(agent.execute_sync("go", journal=kept))
    outage.lasts = False
    completed(agent.retry_sync(first.state, journal=kept))
    begun = [e for e in history_of(kept.records, "a") if e.what == "run_started"]
    assert [entry.detail.get("continues") for entry in begun] == [None, first.run_id]


def test_rows_of_calls_that_were_cut_off_go_on(ran: list[str]) -> None:
    """W8: the row of a call that was not run becomes that of its result."""
    broken = [True]
    kept, seen = Kept(), list[tuple[str, Any]]()
    agent = Agent(
        "a",
        ScriptedModel([[call("note", {"text": "a"})], "done"]),
        tools=[noting(ran)],
        mode=breaking(broken),
    )
    first = failed(agent.execute_sync("go", journal=kept))
    broken.clear()
    completed(agent.retry_sync(first.state, journal=kept))
    display = Display("a")
    for seq, record in enumerate(kept.records, 1):
        for row in display.record(seq, record).rows:
            if row.kind == "call":
                seen.append((row.state, row.detail.get("result")))
    assert seen == [
        ("ready", None),
        ("interrupted", None),
        ("running", None),
        ("success", "noted a"),
    ]


async def test_a_copy_that_is_imported_repeats_nothing_that_was_started(ran: list[str]) -> None:
    """W8, J7: what was started at the other place is in doubt here, also if it is idempotent."""
    entered, broken = asyncio.Event(), [True]

    @tool(idempotent=True)
    async def note(text: str) -> str:
        ran.append(text)
        entered.set()
        await never()
        return ""

    async def fails(_: Any) -> str:
        await entered.wait()
        if broken:
            raise ConnectionError("down")
        return "up"

    busy = Agent("busy", by_turn([call("note", {"text": "a"})]), tools=[note])
    side = Agent("side", mode=Parallel([busy, Agent("other", ScriptedModel(fails))]))
    first = failed(await soon(side.execute("go")))
    broken.clear()
    copy = reloaded(first.state)
    apply(copy, Imported(agent_id="there", incarnation=1, at=NOW))
    second = completed(await soon(side.retry(copy)))
    assert ran == ["a"]
    (part,) = results(second.state)
    assert "outcome of this call is unknown" in str(part.content)
