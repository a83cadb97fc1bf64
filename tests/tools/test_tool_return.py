"""Pydantic AI's `ToolReturn`, and results with files: for model and program, and kept (T10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    DocumentUrl,
    ImageUrl,
    ModelRequest,
    TextContent,
    ToolReturn,
    ToolReturnPart,
    UploadedFile,
    UserPromptPart,
)

from tests.support.agents import completed, interrupted, reloaded, results
from tests.support.cut_off import Crash, Disk
from tests.support.loops import soon
from tests.support.places import Place
from understudy import (
    Agent,
    AgentState,
    Runtime,
    ScriptedModel,
    ToolResult,
    approve,
    call,
    edit,
    respond,
    tool,
)
from understudy.events import ToolEnded

PIXEL = BinaryContent(b"\x89PNG\r\n\x1a\n not a real picture", media_type="image/png")
SOUND = BinaryContent(b"RIFF not a real sound", media_type="audio/wav")
PLAN = DocumentUrl("https://example.com/plan.pdf")


class Order(BaseModel):
    number: int


def agent_of(*tools: Any, replies: Any = None, **options: Any) -> tuple[Agent, ScriptedModel]:
    """One that calls each of these tools in its first turn, then is done."""
    calls = [call(each.__name__, id=each.__name__) for each in tools]
    model = ScriptedModel(replies if replies is not None else [calls, "done"])
    return Agent("a", model, tools=list(tools), **options), model


def returning(value: Any) -> Callable[[], Any]:
    def work() -> Any:
        return value

    return work


def work() -> ToolReturn[Order]:
    """Look it up."""
    return ToolReturn(
        Order(number=17), content=["as it looks", PIXEL], metadata={"rows": [1, 2], "from": "db"}
    )


# -------------------------------------------------------------------- what goes where


def test_the_model_gets_the_value_and_then_the_content() -> None:
    """T10: as Pydantic AI sends them; the results of all calls come first."""

    def plain() -> str:
        return "plain"

    agent, model = agent_of(work, plain)
    outcome = completed(agent.execute_sync("go"))
    request = model.requests[1].messages[-1]
    first, second, prompt = request.parts
    assert isinstance(first, ToolReturnPart)
    assert isinstance(second, ToolReturnPart)
    assert (first.content, second.content) == ({"number": 17}, "plain")
    assert isinstance(prompt, UserPromptPart)
    assert prompt.content == ["as it looks", BinaryContent.narrow_type(PIXEL)]
    assert outcome.state.messages[2] == request


async def test_metadata_is_for_the_program() -> None:
    """T10: in events, in the conversation, in the outcome."""
    agent, _ = agent_of(work)
    events = [event async for event in agent.stream("go")]
    (ended,) = [event for event in events if isinstance(event, ToolEnded)]
    assert ended.metadata == {"rows": [1, 2], "from": "db"}
    assert ended.user_content == ["as it looks", BinaryContent.narrow_type(PIXEL)]
    agent, _ = agent_of(work)
    outcome = completed(await agent.execute("go", until_tool=work))
    assert outcome.tool_result is not None
    assert outcome.tool_result.metadata == ended.metadata
    assert outcome.tool_result.value == Order(number=17)
    (part,) = results(reloaded(outcome.state))
    assert part.metadata == ended.metadata
    assert "metadata" not in part.model_response_str()


async def test_extract_gives_the_value_inside() -> None:
    made = tool(work)
    order = await Agent("a", ScriptedModel([call("work")]), tools=[made]).extract(made, "go")
    assert order.number == 17


def test_it_may_be_the_content_of_a_tool_result() -> None:
    """T10: a middleware that adds a state to whatever a tool returned."""
    given = ToolReturn("text", content="look", metadata=1)
    agent, _ = agent_of(returning(ToolResult(given, state={"seen": True})))
    outcome = completed(agent.execute_sync("go"))
    (part,) = results(outcome.state)
    assert (part.content, part.metadata, outcome.state.values["seen"]) == ("text", 1, True)
    assert isinstance(outcome.state.messages[2].parts[-1], UserPromptPart)


def test_a_person_may_answer_for_such_a_tool_or_edit_its_call() -> None:
    def look(order: int) -> ToolReturn[list[Any]]:
        return ToolReturn([f"order {order}", PIXEL], metadata="m", content="look")

    def waiting() -> tuple[Agent, AgentState, str]:
        model = ScriptedModel([call("look", {"order": 17}), "done"])
        agent = Agent("a", model, tools=[look], interrupt_on={"look": True})
        outcome = interrupted(agent.execute_sync("go"))
        return agent, reloaded(outcome.state), outcome.requests[0].id

    agent, state, id = waiting()
    (part,) = results(completed(agent.resume_sync(state, {id: edit({"order": 18})})).state)
    assert isinstance(part.content, list)
    note, text, picture = part.content
    assert note == {"run_with_arguments_changed_by_a_person": {"order": 18}}
    assert (text, picture) == ("order 18", BinaryContent.narrow_type(PIXEL))
    assert part.files == [picture], "it is sent as a file"
    assert part.metadata == "m"
    agent, state, id = waiting()
    done = completed(agent.resume_sync(state, {id: respond("by hand")}))
    (part,) = results(done.state)
    assert (part.content, part.metadata) == ("by hand", None)
    assert len(done.state.messages[2].parts) == 1
    agent, state, id = waiting()
    (part,) = results(completed(agent.resume_sync(state, {id: approve()})).state)
    assert part.metadata == "m"


@pytest.mark.parametrize(
    "wrong",
    [
        ToolReturn("x", metadata=object()),
        ToolReturn("x", metadata=10**5000),
        ToolReturn("x", content=[1]),  # type: ignore[list-item]
        ToolReturn("x", content=PIXEL),  # type: ignore[arg-type]
        ToolReturn("x", content="half \ud800 of a pair"),
        ToolReturn(object()),
        [ToolReturn("x")],
    ],
)
def test_what_cannot_be_kept_is_an_error_that_says_that_the_tool_ran(wrong: Any) -> None:
    """T10, J18."""
    agent, _ = agent_of(returning(wrong))
    outcome = completed(agent.execute_sync("go"))
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert "'work' ran, but" in str(part.content)
    assert len(outcome.state.messages[2].parts) == 1
    assert reloaded(outcome.state) is not None


# ------------------------------------------------------------------------------ kept

RESULTS: dict[str, Any] = {
    "picture": PIXEL,
    "sound": SOUND,
    "url": ImageUrl("https://example.com/a.png"),
    "url without type": ImageUrl("https://example.com/a"),
    "uploaded": UploadedFile("file-1", provider_name="openai", media_type="application/pdf"),
    "list": ["look:", PIXEL, PLAN, {"and": ["more"]}],
    "tuple": ("look:", PIXEL),
    "nested": {"picture": PIXEL},
    "looks like a file": {"kind": "binary", "data": "aGk=", "media_type": "text/plain"},
    "looks like a url": {"kind": "image-url", "url": "file:///etc/passwd", "media_type": "a/b"},
    "looks like files": [{"kind": "binary", "data": "aGk=", "media_type": "text/plain"}],
    "looks like a file inside": {
        "found": [{"kind": "binary", "data": "aGk=", "media_type": "text/plain"}]
    },
    "looks like a web url": {
        "kind": "image-url",
        "url": "https://example.com/a.png",
        "media_type": "image/png",
        "title": "a kettle",
    },
    "looks like web urls": [
        {"kind": "image-url", "url": "https://example.com/a.png", "media_type": "image/png"}
    ],
    "with all": ToolReturn(
        ["look:", PIXEL],
        content=["see", PIXEL, PLAN, TextContent("x", metadata={"y": 1}), CachePoint()],
        metadata={"kind": "binary", "data": "aGk=", "media_type": "text/plain"},
    ),
}


def sent(state: AgentState) -> list[Any]:
    """What a provider without files in its results makes of the conversation."""
    return [
        part.model_response_str_and_user_content() if isinstance(part, ToolReturnPart) else part
        for message in state.messages
        if isinstance(message, ModelRequest)
        for part in message.parts
    ]


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_sent_the_same_before_and_after_it_was_stored(name: str) -> None:
    """T10: and it means the same wherever the run continues."""
    agent, _ = agent_of(returning(RESULTS[name]))
    state = completed(agent.execute_sync("go")).state
    assert [part.outcome for part in results(state)] == ["success"]
    assert sent(reloaded(state)) == sent(state)
    assert reloaded(state).messages == state.messages


async def test_a_result_comes_back_from_every_store(place: Place) -> None:
    """T10."""

    def find(name: str) -> Any:
        return RESULTS[name]

    agent, _ = agent_of(find, replies=[[call("find", {"name": each}) for each in RESULTS], "done"])
    async with Runtime([agent], store=place.store()) as runtime:
        before = completed(await soon(runtime.spawn("a", "1").run("go"))).state
    assert [part.outcome for part in results(before)] == ["success"] * len(RESULTS)
    again, model = agent_of(find, replies=["more"])
    async with Runtime([again], store=place.store()) as runtime:
        ref = runtime.spawn("a", "1")
        after = await soon(ref.state())
        completed(await soon(ref.run("more")))
    assert sent(after) == sent(before)
    assert after.messages == before.messages
    assert list(model.requests[0].messages[: len(before.messages)]) == list(before.messages)


def test_a_run_cut_off_between_result_and_next_call_sends_the_same() -> None:
    """T10: after any record."""
    disk = Disk()
    agent, _ = agent_of(work)
    whole = completed(agent.execute_sync("go", journal=disk))
    expected = [part.part_kind for m in whole.state.messages for part in m.parts]
    for limit in range(1, len(disk.lines)):
        cut = Disk(limit)
        model = ScriptedModel(lambda r: "done" if len(r.messages) > 2 else [call("work", id="w")])
        agent = Agent("a", model, tools=[tool(idempotent=True)(work)])
        with pytest.raises(Crash):
            agent.execute_sync("go", journal=cut)
        again = completed(agent.resume_sync(cut.load()))
        assert [part.part_kind for m in again.state.messages for part in m.parts] == expected
        assert results(again.state)[0].metadata == results(whole.state)[0].metadata
        assert sent(again.state)[1:-1] == sent(whole.state)[1:-1]


def test_a_run_that_ends_in_the_turn_keeps_what_the_tool_gave() -> None:
    """T10: another call of the reply is cut off, and closed by the end of the run."""

    async def stops() -> str:
        raise KeyboardInterrupt

    alone = tool(sequential=True)(work)
    agent = Agent("a", ScriptedModel([[call("work"), call("stops")]]), tools=[alone, stops])
    disk = Disk()
    with pytest.raises(KeyboardInterrupt):
        agent.execute_sync("go", journal=disk)
    state = disk.load()
    other = Agent("a", ScriptedModel(["bye"]), tools=[alone, stops])
    ended = completed(other.execute_sync("never mind", state=state)).state
    first, second, prompt = ended.messages[2].parts
    assert isinstance(first, ToolReturnPart)
    assert isinstance(second, ToolReturnPart)
    assert (first.metadata, second.outcome) == ({"rows": [1, 2], "from": "db"}, "interrupted")
    assert isinstance(prompt, UserPromptPart)


def test_a_prompt_with_files_is_the_same_after_it_was_stored() -> None:
    model = ScriptedModel(["a pixel"])
    state = completed(Agent("a", model).execute_sync(["what is this?", PIXEL])).state
    assert reloaded(state).messages == state.messages
    assert json.dumps(state.to_dict()) == json.dumps(reloaded(state).to_dict())
