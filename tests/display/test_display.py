"""The rows of a chat screen: one for each part, in order, changed in place (J40) (J35)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextContent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingCalls,
    DeltaThinkingPart,
    DeltaToolCall,
    DeltaToolCalls,
    FunctionModel,
)

from tests.support.agents import Held, by_turn, completed, interrupted, until_status
from tests.support.loops import soon
from understudy import (
    Agent,
    AgentRef,
    Defer,
    Halt,
    Observer,
    Run,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Stopped,
    ToolContext,
    UsageError,
    approve,
    call,
    edit,
    reject,
    tool,
)
from understudy.display import Display, DisplayUpdate, Row
from understudy.display.rows import merged
from understudy.errors import UnknownAgent
from understudy.journal import MemoryJournal
from understudy.middleware import Haltable, Middleware, ModelInput, NextModelCall, Workspace
from understudy.state import records as r
from understudy.state.why import why


def thinking_reply(thinking: str, text: str) -> ModelResponse:
    called = ToolCallPart("search", {"words": "x"})
    return ModelResponse(parts=[ThinkingPart(thinking), TextPart(text), called])


def waiting_tool(held: Held) -> Any:
    @tool
    async def wait() -> str:
        await held.wait()
        return "waited"

    return wait


async def rows_of(ref: AgentRef, **page: Any) -> list[Row]:
    update = await ref.display(**page)
    assert json.loads(json.dumps(update.to_dict()))
    return list(update.rows)


def told(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    return [(row.kind, row.state, row.text) for row in rows]


def the(rows: Sequence[Row], kind: str) -> Row:
    (row,) = [row for row in rows if row.kind == kind]
    return row


@tool(display_text="Searching the archive…")
async def search(words: str) -> str:
    return f"2 hits for {words}"


@tool(display_text=lambda given: f"Paying {given['amount']} euros")
async def pay(amount: int) -> str:
    return f"paid {amount}"


async def test_each_part_of_a_conversation_is_a_row() -> None:
    turn = thinking_reply("They want the letters.", "Let me look.")
    agent = Agent("desk", by_turn(turn, "Here they are."), tools=[search])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        completed(await ref.run("Find the letters."))
        rows = await rows_of(ref)
    assert told(rows) == [
        ("user", "done", "Find the letters."),
        ("thinking", "done", "They want the letters."),
        ("text", "done", "Let me look."),
        ("call", "success", "Searching the archive…"),
        ("text", "done", "Here they are."),
    ]
    assert the(rows, "call").detail["arguments"] == {"words": "x"}
    assert the(rows, "call").detail["result"] == "2 hits for x"
    assert len({row.id for row in rows}) == len(rows)
    assert [row.position for row in rows] == sorted(row.position for row in rows)
    assert {row.agent_path for row in rows} == {("desk",)}


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_a_request_and_its_decision_are_rows_that_change_in_place(
    store: str, tmp_path: Path
) -> None:
    place = f"sqlite:///{tmp_path / 'store'}" if store == "sqlite" else store
    agent = Agent(
        "desk",
        by_turn(call("pay", {"amount": 5}), "Done."),
        tools=[pay],
        interrupt_on={"pay": True},
    )
    async with Runtime([agent], store=place) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        asked = interrupted(await ref.run("Pay 5."))
        before = await ref.display()
        assert told(before.rows) == [
            ("user", "done", "Pay 5."),
            ("call", "asked", "Paying 5 euros"),
            ("request", "pending", "approval: pay"),
        ]
        assert the(before.rows, "request").parent == the(before.rows, "call").id
        request = asked.requests[0]
        assert the(before.rows, "request").detail["request"] == request.to_dict()
        await ref.resume({request.id: edit({"amount": 4}, by="ada")})
        assert before.seq is not None
        since = await ref.display(after=before.seq)
    assert told(since.rows) == [
        ("call", "success", "Paying 5 euros"),
        ("request", "decided", "approval: pay"),
        ("text", "done", "Done."),
    ]
    assert [row.id for row in since.rows[:2]] == [row.id for row in before.rows[1:]]
    assert the(since.rows, "request").detail["by"] == "ada"
    assert the(since.rows, "call").detail["arguments"] == {"amount": 4}


async def test_rows_are_the_same_after_a_restart_and_for_an_observer(tmp_path: Path) -> None:
    """J40."""
    place = f"sqlite:///{tmp_path / 'store'}"
    agent = Agent("desk", by_turn(call("search", {"words": "x"}), "Here."), tools=[search])
    async with Runtime([agent], store=place) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        completed(await ref.run("Find."))
        await ref.stop(block=False)
        before = await ref.display()
    async with Runtime(store=place) as runtime:  # without the definition
        assert await runtime.get("desk-1").display() == before
        with pytest.raises(UnknownAgent):
            await runtime.get("nobody").display()
    async with Observer(place) as observer:
        assert await observer.display("desk-1") == before
        assert the((await observer.display("desk-1")).rows, "call").text == "Searching the archive…"


async def test_a_nested_agent_is_indented_under_its_call() -> None:
    helper = Agent(
        "helper",
        ScriptedModel([call("pay", {"amount": 7}), "paid it"]),
        tools=[pay],
        interrupt_on={"pay": True},
    )

    async def consult(ctx: ToolContext) -> str:
        return completed(await ctx.run_agent(helper, "pay 7")).text

    agent = Agent("desk", ScriptedModel([call("consult"), "All done."]), tools=[consult])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        asked = interrupted(await ref.run("go"))
        rows = await rows_of(ref)
        consulted = next(row for row in rows if row.detail.get("tool_name") == "consult")
        inner = [row for row in rows if row.depth == 1]
        assert consulted.state == "waiting"
        assert {row.agent_path for row in inner} == {("desk", "helper")}
        assert [row.kind for row in inner] == ["user", "call", "request"]
        assert [row.parent for row in inner] == [consulted.id, consulted.id, inner[1].id]
        await ref.resume(asked.decide(approve()))
        rows = await rows_of(ref)
    assert [row.state for row in rows if row.kind == "call"] == ["success", "success"]


async def test_a_message_has_a_half_for_people_and_a_half_for_the_model() -> None:
    async def look() -> Any:
        from pydantic_ai.messages import ToolReturn

        return ToolReturn("row 1; row 2", metadata={"display": "2 rows"})

    agent = Agent("desk", by_turn(call("look"), "ok"), tools=[look])
    prompt = [
        TextContent("Summarise this file: ...", metadata={"display": "Summarise report.pdf"}),
        TextContent("(the user is on the page /reports)", metadata={"display": ""}),
    ]
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        completed(await ref.run(prompt))
        rows = await rows_of(ref)
    said = the(rows, "user")
    assert said.text == "Summarise report.pdf"
    assert said.model_text == "Summarise this file: ...\n(the user is on the page /reports)"
    looked = the(rows, "call").detail
    assert (looked["result"], looked["result_display"]) == ("row 1; row 2", "2 rows")


async def test_what_ends_a_run_is_a_row() -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("no model today")

    async def stop() -> None:
        raise Halt("the till is open")

    held = Held()
    failing = Agent("failing", ScriptedModel(broken))
    slow = Agent("slow", by_turn(call("wait")), tools=[waiting_tool(held)])
    halting = Agent("halting", by_turn(call("stop")), tools=[stop], middleware=[Haltable()])
    async with Runtime([failing, slow, halting]) as runtime:
        ref = runtime.spawn(failing)
        await ref.run("go")
        assert "no model today" in the(await rows_of(ref), "error").text

        ref = runtime.spawn(slow)
        running = ref.run("go")
        await soon(held.entered.wait())
        assert the(await rows_of(ref), "call").state == "running"
        await ref.cancel("ada wants to stop it")
        assert isinstance(await running, Stopped)
        rows = await rows_of(ref)
        assert (the(rows, "cancelled").text, the(rows, "cancelled").state) == (
            "ada wants to stop it",
            "done",
        )
        assert the(rows, "call").state == "interrupted"

        ref = runtime.spawn(halting)
        interrupted(await ref.run("go"))
        assert the(await rows_of(ref), "request").text == "the till is open"

        ref = runtime.spawn(slow)
        assert isinstance(await ref.run("go", ends_at=datetime(2020, 1, 1, tzinfo=UTC)), Stopped)
        assert "was to end" in the(await rows_of(ref), "notice").text


async def test_a_message_that_waits_is_a_row_until_a_run_takes_it() -> None:
    held = Held()
    agent = Agent("desk", by_turn(call("wait"), "one", "two"), tools=[waiting_tool(held)])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        running = ref.run("first")
        await soon(held.entered.wait())
        await ref.send("second", message_id="m2")
        rows = await rows_of(ref)
        assert [row.state for row in rows if row.kind == "user"] == ["done", "queued"]
        held.release.set()
        await running
        await ref.outcome()
        rows = await rows_of(ref)
    assert told(rows) == [
        ("user", "done", "first"),
        ("call", "success", "wait"),
        ("text", "done", "one"),
        ("user", "done", "second"),
        ("text", "done", "two"),
    ]


async def test_files_that_the_application_changes_are_a_row() -> None:
    async with Runtime([Agent("a", by_turn("Hi."))]) as runtime:
        ref = runtime.spawn("a", id="x")
        files = Workspace.of(ref)
        await soon(files.write_all({"a.md": "a", "b.md": "b"}))
        await soon(files.move("a.md", "c.md"))
        assert told(await rows_of(ref)) == [
            ("notice", "done", "Files written: a.md, b.md"),
            ("notice", "done", "Files written: c.md; gone: a.md"),
        ]


@pytest.mark.parametrize("is_compacted", [False, True])
async def test_a_model_call_that_is_put_off_is_a_row_until_its_time_has_come(
    is_compacted: bool,
) -> None:
    clock = SimulatedClock()
    opens = clock.now() + timedelta(hours=1)

    class Hours(Middleware):
        async def wrap_model_call(
            self, run: Run, request: ModelInput, next: NextModelCall
        ) -> ModelResponse:
            if run.clock.now() < opens:
                raise Defer(opens, reason="closed")
            return await next(request)

    agent = Agent("a", by_turn("Hi."), middleware=[Hours()])
    async with Runtime([agent], clock=clock) as runtime:
        ref = runtime.spawn("a", id="x")
        ended = ref.run("go")
        await until_status(ref, Status.WAITING)
        assert "a call of the model is put off until" in why(await ref.state())
        if is_compacted:
            await soon(ref.compact())
        row = (await rows_of(ref))[-1]
        reason = "" if is_compacted else ": closed"
        assert (row.kind, row.state) == ("notice", "open")
        assert row.text == f"The model is asked later{reason}"
        assert row.detail["until"] == opens.isoformat()
        await clock.advance(3600.0)
        completed(await soon(ended))
        ends = {row.kind: row.state for row in await rows_of(ref)}
        assert ends["notice"] == "done"


async def test_after_a_compaction_the_conversation_is_still_there() -> None:
    turn = ["I pay.", call("pay", {"amount": 5})]
    agent = Agent("desk", by_turn(turn, "Done.", turn), tools=[pay], interrupt_on={"pay": True})
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        asked = interrupted(await ref.run("Pay 5."))
        await ref.resume(asked.decide(approve(by="ada")))
        interrupted(await ref.run("And again."))
        before = await ref.display()
        await ref.compact()
        after = await ref.display()
        assert told(after.rows) == told(before.rows)
        # What is open keeps its id.
        open_ids = [row.id for row in before.rows if row.state in ("asked", "pending")]
        assert open_ids == [row.id for row in after.rows if row.state in ("asked", "pending")]
        late = await ref.display(after=1)
        assert late.reset
        assert merged(before.rows, late) == list(after.rows)


# ------------------------------------------------------------------------------- live


async def test_a_live_screen_has_what_the_store_has() -> None:
    """J40: text, thinking and announced calls come as they are streamed, and become rows."""
    gates = [asyncio.Event() for _ in range(3)]

    async def stream(
        messages: list[ModelMessage], _: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls | DeltaThinkingCalls]:
        if len(messages) > 1:
            yield "Here they are."
            return
        yield {0: DeltaThinkingPart(content="Hmm, ")}
        yield {0: DeltaThinkingPart(content="hmm.")}
        await gates[0].wait()
        yield "Let me look."
        await gates[1].wait()
        yield {2: DeltaToolCall(name="search", json_args='{"wor', tool_call_id="c1")}
        await gates[2].wait()
        yield {2: DeltaToolCall(json_args='ds": "x"}')}

    agent = Agent("desk", FunctionModel(stream_function=stream), tools=[search])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        updates = ref.display_events()
        screen: list[Row] = []
        iterator = aiter(updates)

        async def shows(kind: str, state: str, text: str) -> None:
            nonlocal screen
            while (kind, state, text) not in told(screen):
                update = await soon(anext(iterator))
                assert json.loads(json.dumps(update.to_dict()))
                screen = merged(screen, update)

        running = ref.run("Find.")
        await shows("thinking", "streaming", "Hmm, hmm.")
        gates[0].set()
        await shows("text", "streaming", "Let me look.")
        live_ids = [row.id for row in screen]
        gates[1].set()
        await shows("call", "announced", "Searching the archive…")
        live_ids.append(screen[-1].id)
        gates[2].set()
        completed(await running)
        await shows("text", "done", "Here they are.")
        assert screen == list((await ref.display()).rows)
        assert [row.id for row in screen[:4]] == live_ids
        updates.close()

        again = ref.display_events(after=3)
        first = await soon(anext(aiter(again)))
        assert first == await ref.display(after=3)
        again.close()


def test_a_thread_follows_a_display_until_the_runtime_ends() -> None:
    agent = Agent("desk", ScriptedModel(["hello"]))
    with Runtime([agent]) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        ref.run("hi").get()
        updates = ref.display_events()
    texts = [row.text for update in updates for row in update.rows]
    assert texts == ["hi", "hello"]


def test_what_a_tool_emits_is_on_its_row_and_the_text_of_a_failed_model_is_void() -> None:
    from understudy.events import ReplyStarted, TextDelta, ToolEmitted

    display = Display("desk")
    for seq, record in enumerate(journal_of_a_run(), 1):
        display.record(seq, record)
        if isinstance(record, r.Started):
            break
    row = next(row for row in display.rows if row.kind == "call")
    emitted = ToolEmitted(
        agent_path=("desk",),
        call_key=row.detail["call_key"],
        tool_call_id="",
        tool_name="search",
        data={"display": "half of it", "other": object()},
    )
    update = display.event(emitted)
    assert update is not None
    assert update.rows[0].detail["progress"] == "half of it"
    assert json.dumps(update.to_dict())

    run_id = row.run_id or ""
    started = ReplyStarted(agent_path=("desk",), turn=1, model="a", run_id=run_id)
    delta = TextDelta(agent_path=("desk",), turn=1, attempt=1, n=0, text="Wel", run_id=run_id)
    assert display.event(started) is None
    live = display.event(delta)
    assert live is not None
    assert (live.seq, live.rows[0].seq, live.rows[0].state) == (None, None, "streaming")
    void = display.event(started)
    assert void is not None
    assert told(void.rows) == [("text", "void", "Wel")]
    assert merged(live.rows, void) == []


def test_a_delta_of_a_reply_that_is_recorded_changes_nothing() -> None:
    from understudy.events import TextDelta

    display = Display("desk")
    for seq, record in enumerate(journal_of_a_run(), 1):
        display.record(seq, record)
    run_id = display.rows[0].run_id or ""
    late = TextDelta(agent_path=("desk",), turn=0, attempt=1, n=0, text="x", run_id=run_id)
    assert display.event(late) is None


def test_a_delta_of_an_attempt_that_is_over_changes_nothing() -> None:
    from understudy.events import TextDelta

    display = Display("desk")
    records = journal_of_a_run()[:2]
    for seq, record in enumerate([*records, r.Attempt(number=2, reply_lost=True)], 1):
        display.record(seq, record)
    run_id = display.rows[0].run_id or ""
    deltas = [
        TextDelta(agent_path=("desk",), turn=0, attempt=attempt, n=0, text="x", run_id=run_id)
        for attempt in (1, 2)
    ]
    assert display.event(deltas[0]) is None
    assert display.event(deltas[1]) is not None


# ------------------------------------------------------------------- any increments


def journal_of_a_run() -> list[r.Record]:
    """A run with a nested agent, a request, a rejection, a retry and a cancelled message."""
    helper = Agent(
        "helper",
        ScriptedModel([call("pay", {"amount": 7}), "paid it"] * 2),
        tools=[pay],
        interrupt_on={"pay": True},
    )

    async def consult(ctx: ToolContext) -> str:
        return completed(await ctx.run_agent(helper, "pay 7")).text

    model = ScriptedModel(
        [["Let me see.", call("search", {"words": "x"}), call("consult")], call("pay"), "All done."]
    )
    agent = Agent("desk", model, tools=[search, consult, pay])
    journal = MemoryJournal()
    asked = interrupted(agent.execute_sync("go", journal=journal))
    agent.resume_sync(asked.state, asked.decide(reject("no")), journal=journal)
    # The second journal of a state begins with its snapshot.
    return list(journal.records)


RECORDS = journal_of_a_run()


def folded(records: Sequence[r.Record]) -> Display:
    display = Display("desk")
    for seq, record in enumerate(records, 1):
        display.record(seq, record)
    return display


@pytest.mark.slow
@given(cuts=st.lists(st.integers(0, len(RECORDS)), max_size=6), limit=st.integers(1, 30))
@settings(max_examples=60)
def test_increments_come_to_the_rows_of_all_records_at_once(cuts: list[int], limit: int) -> None:
    """J40: from the fold that continues, or from new folds, in pages."""
    whole = folded(RECORDS)
    screen: list[Row] = []
    after = 0
    for cut in [*sorted(cuts), len(RECORDS)]:
        display = folded(RECORDS[:cut])
        more = True
        while more:
            update = display.update(after, limit)
            screen, after, more = merged(screen, update), update.seq or 0, update.more
    assert screen == whole.rows

    live: list[Row] = []
    going_on = Display("desk")
    for seq, record in enumerate(RECORDS, 1):
        live = merged(live, going_on.record(seq, record))
    assert live == whole.rows


def test_an_update_for_another_agent_of_the_same_id_begins_anew() -> None:
    display = folded(RECORDS[:5])
    update = display.update(after=1000)
    assert update.reset
    assert list(update.rows) == display.rows


# ----------------------------------------------------------------------- bad input


@pytest.mark.parametrize("page", [{"after": -1}, {"after": True}, {"limit": 0}, {"limit": 2.5}])
async def test_an_update_that_cannot_be_is_refused(page: Any) -> None:
    agent = Agent("desk", ScriptedModel(["done"]))
    async with Runtime([agent]) as runtime:
        with pytest.raises(UsageError, match=next(iter(page))):
            runtime.spawn(agent, "desk-1").display(**page)


def see() -> str:
    return "x"


@pytest.mark.parametrize("given", ["", 5, "\ud800"])
def test_a_display_text_that_cannot_be_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="display_text"):
        tool(display_text=given)(see)


async def test_an_async_display_text_is_refused() -> None:
    async def text(arguments: Any) -> str:
        return "x"

    with pytest.raises(UsageError, match="display_text"):
        tool(display_text=text)(see)  # type: ignore[arg-type]  # that is the point


async def test_a_display_text_that_raises_or_returns_no_text_shows_the_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool(display_text=lambda given: given["nothing"])
    async def one() -> str:
        return "1"

    @tool(display_text=lambda given: 5)  # type: ignore[arg-type]  # that is the point
    async def two() -> str:
        return "2"

    agent = Agent("desk", by_turn([call("one"), call("two")], "ok"), tools=[one, two])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn(agent, "desk-1")
        completed(await ref.run("go"))
        rows = await rows_of(ref)
    assert [row.text for row in rows if row.kind == "call"] == ["one", "two"]
    assert "'one' raised" in caplog.text
    assert "'two' returned 5" in caplog.text


def test_an_update_says_whether_there_is_more() -> None:
    whole = folded(RECORDS)
    page = whole.update(limit=1)
    assert page.more
    assert isinstance(page, DisplayUpdate)
    assert not whole.update(limit=len(whole.rows)).more
