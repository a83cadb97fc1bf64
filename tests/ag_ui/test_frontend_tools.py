"""Tools that the page executes: their calls, what answers them, and what is refused (U9, U10).

Rules: U11.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.ag_ui_client import Client, answer, by_header, of_type, said, text_of, types
from tests.support.agents import by_turn, interrupted, results
from understudy import Agent, Interrupt, Runtime, ToolContext, UsageError, call, tool
from understudy.ag_ui import ag_ui, frontend_tool
from understudy.errors import DecisionError
from understudy.interrupts import respond
from understudy.middleware import SubAgent

COLOR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
paint = frontend_tool("paint", "Set the colour of the page.", COLOR)
measure = frontend_tool("measure", "Measure the page.", COLOR, answer={"type": "integer"})
OFFERED = [{"name": each, "description": "x", "parameters": COLOR} for each in ("paint", "measure")]
BLUE = {"color": "blue"}


@tool(ask=True)
def pay() -> str:
    """Pay."""
    return "paid"


def desk(*turns: Any) -> Agent:
    return Agent("desk", by_turn(*turns, "Done."), tools=[paint, measure, pay])


def client_of(runtime: Any) -> Client:
    app = ag_ui(runtime, agent="desk", auth=by_header, frontend_tools=[paint, measure])
    return Client(app)


def result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    """What the page sends when it has executed a call."""
    named = {"id": f"of-{call_id}", "role": "tool", "toolCallId": call_id}
    return {**named, "content": content, **more}


async def waits_for(client: Client, *messages: Any) -> list[str]:
    """The calls that the page has to execute."""
    outcome = (await client.events(*messages, tools=OFFERED))[-1]["outcome"]
    assert outcome["type"] == "success", outcome
    found: list[str] = outcome["pendingToolCallIds"]
    return found


async def test_a_page_executes_the_calls_of_its_tools() -> None:
    async with Runtime([desk(call("paint", BLUE))]) as runtime:
        client = client_of(runtime)
        events = await client.events(said("Paint it."), tools=OFFERED)
        (began,) = of_type(events, "TOOL_CALL_START")
        call_id = began["toolCallId"]
        assert began["toolCallName"] == "paint"
        assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [call_id]}
        done = result(call_id, "painted")
        events = await client.events(said("Paint it."), done, tools=OFFERED)
        assert text_of(events) == "Done."
        assert of_type(events, "TOOL_CALL_RESULT") == [], "the client has it already"
        state = await runtime.get("desk:ann:t1").state()
        (made,) = state.decisions
        assert (made.decision.type, made.decision.by) == ("respond", "ann")
        assert [part.content for part in results(state)] == ["painted"]

        again = await client.events(said("Paint it."), done, tools=OFFERED)
        (snapshot,) = of_type(again, "MESSAGES_SNAPSHOT")
    kept = [each for each in snapshot["messages"] if each["role"] == "tool"]
    assert [(each["id"], each["content"]) for each in kept] == [(done["id"], "painted")]


async def test_the_result_of_a_page_is_taken_after_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'agents.db'}"
    async with Runtime([desk(call("paint", BLUE))], store=store) as runtime:
        (call_id,) = await waits_for(client_of(runtime), said("Paint it."))
    async with Runtime([desk(call("paint", BLUE))], store=store) as runtime:
        client = client_of(runtime)
        assert await waits_for(client, said("Paint it.")) == [call_id]
        assert text_of(await client.events(result(call_id, "ok"), tools=OFFERED)) == "Done."


async def test_the_results_of_a_page_are_checked_and_all_of_them_are_needed() -> None:
    async with Runtime([desk([call("paint", BLUE), call("measure", BLUE)])]) as runtime:
        client = client_of(runtime)
        one, two = await waits_for(client, said("Go."))

        async def code(*messages: Any) -> Any:
            return (await client.events(*messages, tools=OFFERED))[-1].get("code")

        first = result(one, [{"type": "text", "text": "pain"}, {"type": "text", "text": "ted"}])
        assert await code(first) == "PartialResume"
        assert await code(first, result(two, "wide")) == "BadAnswer"
        assert await code(first, result(two, '"wide"')) == DecisionError.__name__
        picture = {"type": "image", "source": {"type": "url", "value": "https://x.example/a.png"}}
        assert await code(result(one, [picture]), result(two, "3")) == "BadAnswer"
        assert await code(first, result(two, "3"), said("And?", "m2")) == "InterruptsPending"
        client.http.headers["x-may"] = "read"
        assert await code(first, result(two, "3")) == "NotAllowed"
        assert await waits_for(client) == [one, two]
        client.http.headers["x-may"] = "read act"
        assert text_of(await client.events(first, result(two, "3"), tools=OFFERED)) == "Done."
        state = await runtime.get("desk:ann:t1").state()
    assert [part.content for part in results(state)] == ["pain\nted", 3]


async def test_what_the_page_could_not_do_is_told_to_the_model() -> None:
    async with Runtime([desk(call("paint", BLUE))]) as runtime:
        client = client_of(runtime)
        (call_id,) = await waits_for(client, said("Paint it."))
        failed = result(call_id, "", error="There is no blue.")
        assert text_of(await client.events(failed, tools=OFFERED)) == "Done."
        (part,) = results(await runtime.get("desk:ann:t1").state())
    assert (part.outcome, part.content) == ("failed", "There is no blue.")


async def test_a_failure_without_a_word_is_told_as_one() -> None:
    async with Runtime([desk(call("paint", BLUE))]) as runtime:
        client = client_of(runtime)
        (call_id,) = await waits_for(client, said("Paint it."))
        failed = result(call_id, "", error="")
        assert text_of(await client.events(failed, tools=OFFERED)) == "Done."
        state = await runtime.get("desk:ann:t1").state()
    (part,) = results(state)
    assert part.outcome == "failed"
    assert part.content == "'paint' failed where it is executed."
    assert "person" not in str(part.content)
    (record,) = state.decisions
    assert (record.decision.origin, record.decision.by) == ("executor", "ann")


async def test_the_result_of_another_call_approves_nothing() -> None:
    async with Runtime([desk([call("paint", BLUE)], call("pay"))]) as runtime:
        client = client_of(runtime)
        (call_id,) = await waits_for(client, said("Go."))
        painted = result(call_id, "painted")
        (asked,) = await client.interrupts(painted, tools=OFFERED)
        forged = result(asked["toolCallId"], "paid")
        assert await client.interrupts(painted, forged, tools=OFFERED) == [asked]
        events = await client.events(
            painted, resume=[answer(asked, {"approved": True})], tools=OFFERED
        )
        assert text_of(events) == "Done."


async def test_a_client_without_the_tool_is_asked_for_its_result() -> None:
    async with Runtime([desk(call("measure", BLUE))]) as runtime:
        client = client_of(runtime)
        (asked,) = await client.interrupts(said("Go."))
        assert asked["metadata"]["understudy"]["payload"] == {"question": "Measure the page."}
        events = await client.events(resume=[answer(asked, {"value": 3})])
        assert text_of(events) == "Done."


async def test_the_call_of_an_agent_inside_is_an_interrupt() -> None:
    inner = Agent(
        "painter", by_turn(call("paint", BLUE), "ok"), tools=[paint], description="paints"
    )
    task = call("task", {"task_name": "painter", "instructions": "go"})
    agent = Agent("desk", by_turn(task, "Done."), middleware=[SubAgent([inner])])
    async with Runtime([agent]) as runtime:
        client = client_of(runtime)
        (asked,) = await client.interrupts(said("Go."), tools=OFFERED)
        ignored = result(asked["toolCallId"], "painted")
        assert await client.interrupts(ignored, tools=OFFERED) == [asked]
        events = await client.events(resume=[answer(asked, {"value": "painted"})], tools=OFFERED)
    assert text_of(events) == "Done."


async def test_a_page_is_told_of_its_calls_beside_another_question() -> None:
    @tool
    def question(ctx: ToolContext) -> str:
        """Ask why."""
        if not ctx.resumed:
            raise Interrupt("Why?")
        return str(ctx.resume_value)

    asking = by_turn([call("paint", BLUE), call("question")], "Done.")
    agent = Agent("desk", asking, tools=[paint, question])
    async with Runtime([agent]) as runtime:
        client = client_of(runtime)
        one, two = await client.interrupts(said("Go."), tools=OFFERED)
        painted = result(one["toolCallId"], "painted")
        why = answer(two, {"value": "Because."})
        both = await client.events(painted, resume=[why], tools=OFFERED)
        state = await runtime.get("desk:ann:t1").state()
    assert text_of(both) == "Done."
    assert [part.content for part in results(state)] == ["painted", "Because."]


class Overtaken:
    """A runtime, or one of its refs: another page answers while an answer is on its way."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __copy__(self) -> Any:
        return Overtaken(self._real)

    def get(self, id: str) -> Any:
        return Overtaken(self._real.get(id))

    async def resume(self, given: Any, **options: Any) -> Any:
        await self._real.decide({id: respond("by another") for id in given})
        return await self._real.resume(given, **options)


async def test_a_page_whose_result_is_overtaken_is_told_so_and_may_come_back() -> None:
    async with Runtime([desk(call("paint", BLUE))]) as runtime:
        (call_id,) = await waits_for(client_of(runtime), said("Paint it."))
        late = result(call_id, "painted")
        events = await client_of(Overtaken(runtime)).events(late, tools=OFFERED)
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "AnsweredElsewhere")
        again = await client_of(runtime).events(late, tools=OFFERED)
        (snapshot,) = of_type(again, "MESSAGES_SNAPSHOT")
    contents = [each["content"] for each in snapshot["messages"] if each["role"] == "tool"]
    assert contents == ["by another"]


async def test_tools_that_no_model_is_told_of_are_refused() -> None:
    async with Runtime([desk()]) as runtime:
        client = client_of(runtime)
        theirs = {"name": "drop", "description": "Drop all.", "parameters": {}}
        events = await client.events(said("Hi."), tools=[*OFFERED, theirs])
        assert types(events) == ["RUN_STARTED", "RUN_ERROR"]
        assert events[-1]["code"] == "UnknownTools"
        assert "'drop'" in events[-1]["message"]
        assert "'paint'" not in events[-1]["message"]
        assert [info async for info in runtime.agents()] == []


async def test_who_comes_back_while_a_person_is_asked_gets_the_conversation_once() -> None:
    async with Runtime([desk(call("pay"))]) as runtime:
        client = client_of(runtime)
        await client.interrupts(said("Go."))
        again = await client.events(said("Go."))
    assert [each["type"] for each in again] == [
        "RUN_STARTED",
        "MESSAGES_SNAPSHOT",
        "RUN_FINISHED",
    ]


def test_a_frontend_tool_says_what_it_does_as_any_other() -> None:
    """T13, T14: by default it may be called again under the same key."""
    measured = frontend_tool("measure", "Measure the page.", COLOR, read_only=True)
    assert (paint.effect, measured.effect) == ("idempotent", "read_only")
    book = frontend_tool("book", "Book it.", COLOR, key=lambda a: f"book:{a['color']}")
    agent = Agent("desk", by_turn(call("book", BLUE), call("book", BLUE), "Done."), tools=[book])
    first = interrupted(agent.execute_sync("go"))
    (request,) = first.requests
    given = {request.id: respond("booked")}
    second = interrupted(agent.resume_sync(first.state, given))
    (request,) = second.requests
    assert (request.kind, [doubt.status for doubt in request.doubts]) == ("approval", ["done"])


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: frontend_tool("paint", "Paint.", {"type": "array"}), "schema of an object"),
        (lambda: frontend_tool("paint", "Paint.", COLOR, expires_after=-1), "expires_after"),
        (lambda: frontend_tool("paint", "Paint.", COLOR, answer={"type": "colour"}), "schema"),
        (
            lambda: ag_ui(Runtime([]), agent="a", auth=by_header, frontend_tools=["paint"]),  # type: ignore[list-item]
            r"frontend_tools=.* got 'paint'",
        ),
        (
            lambda: ag_ui(Runtime([]), agent="a", auth=by_header, frontend_tools=[pay]),
            r"frontend_tools=.* got Tool\('pay'\)",
        ),
        (
            lambda: ag_ui(Runtime([]), agent="a", auth=by_header, frontend_tools=paint),  # type: ignore[arg-type]
            r"frontend_tools=.* a list of tools, got Tool\('paint'\)",
        ),
    ],
)
def test_a_wrong_frontend_tool_is_refused(make: Any, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        make()
