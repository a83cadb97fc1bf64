"""What a tool returns: its value through the return annotation, and its state deltas (J18, T4)."""

from __future__ import annotations

import datetime
import json
import math
import threading
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import BaseModel, PlainSerializer

from tests.support.agents import (
    Stage,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    reloaded,
    results,
)
from understudy import (
    Agent,
    AgentState,
    Completed,
    Failed,
    Interrupt,
    NotExtracted,
    Outcome,
    ToolContext,
    ToolResult,
    UsageError,
    approve,
    call,
    edit,
    respond,
    tool,
)
from understudy.journal import MemoryJournal
from understudy.state.fold import replay
from understudy.state.records import record_from_dict, record_to_dict


class Line(BaseModel):
    sku: str
    n: int = 1


class Invoice(BaseModel):
    number: int
    due: datetime.date
    lines: list[Line] = []


@dataclass(frozen=True)
class Point:
    x: int
    y: Decimal


class Pair(NamedTuple):
    a: int
    b: str


class Color(Enum):
    RED = "red"


INVOICE = Invoice(number=7, due=datetime.date(2030, 1, 2), lines=[Line(sku="a", n=2)])

VALUES: list[tuple[Any, Any]] = [
    (str, "text"),
    (int, 3),
    (float, 2.5),
    (bool, False),
    (None, None),
    (list[int], [1, 2]),
    (dict[str, list[int]], {"a": [1]}),
    (Invoice, INVOICE),
    (list[Invoice], [INVOICE, INVOICE]),
    (dict[str, Invoice], {"x": INVOICE}),
    (Invoice | None, INVOICE),
    (Invoice | None, None),
    (Point, Point(1, Decimal("2.50"))),
    (Pair, Pair(1, "b")),
    (Color, Color.RED),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (datetime.datetime, datetime.datetime(2030, 1, 2, tzinfo=datetime.timezone.utc)),
    (datetime.timedelta, datetime.timedelta(seconds=90)),
    (Decimal, Decimal("1.10")),
    (bytes, b"abc"),
]


def returning(annotation: Any, value: Any, *, wrapped: bool = False) -> Any:
    """A tool of this return annotation that returns this value."""
    did: list[int] = []

    async def work() -> Any:
        did.append(1)
        return ToolResult("told", value=value) if wrapped else value

    work.__annotations__["return"] = ToolResult[annotation] if wrapped else annotation
    made = tool(work)
    return made, did


def agent_of(made: Any) -> Agent:
    return Agent("support", by_turn(call("work")), tools=[made])


def over_again(outcome: Outcome, agent: Agent, **options: Any) -> Completed:
    """The outcome as another process tells it, from the stored state alone.

    A run that stops at the very end is told from its records, without its last one.
    """
    journal = MemoryJournal()
    again = completed(agent.execute_sync("go", journal=journal, **options))
    assert isinstance(outcome, Completed)
    assert again.tool_result is not None
    lines = [json.dumps(record_to_dict(record)) for record in journal.records]
    assert json.loads(lines[-1])["kind"] == "run_ended"
    state = replay(record_from_dict(json.loads(line)) for line in lines[:-1])
    return completed(agent.resume_sync(reloaded(state)))


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(("annotation", "value"), VALUES)
def test_the_value_of_the_until_tool_comes_back_by_its_return_annotation(
    annotation: Any, value: Any, wrapped: bool
) -> None:
    """U7, J18: the tool's own value here, and the same rebuilt in another process."""
    made, did = returning(annotation, value, wrapped=wrapped)
    outcome = completed(agent_of(made).execute_sync("go", until_tool="work"))
    assert outcome.tool_result is not None
    assert outcome.tool_result.value is value
    assert not outcome.tool_result.value_lost
    assert not outcome.tool_result.is_error
    if wrapped:
        assert outcome.tool_result.content == "told"
        assert results(outcome.state)[0].content == "told"
    did.clear()
    again = over_again(outcome, agent_of(made), until_tool="work")
    assert len(did) == 1, "what was run is not run again for its value"
    assert again.tool_result is not None
    assert again.tool_result.value == value
    assert type(again.tool_result.value) is type(value)
    assert not again.tool_result.value_lost
    assert again.tool_result.content == outcome.tool_result.content


def test_without_an_annotation_the_value_comes_back_as_json() -> None:
    """J18."""
    made, _ = returning(Any, INVOICE)
    outcome = completed(agent_of(made).execute_sync("go", until_tool="work"))
    assert outcome.tool_result is not None
    assert outcome.tool_result.value is INVOICE
    again = over_again(outcome, agent_of(made), until_tool="work")
    assert again.tool_result is not None
    assert again.tool_result.value == INVOICE.model_dump(mode="json")


def test_the_model_is_told_the_value_as_json() -> None:
    """J18, T4."""
    made, _ = returning(Invoice, INVOICE)
    outcome = completed(agent_of(made).execute_sync("go"))
    assert results(outcome.state)[0].content == {
        "number": 7,
        "due": "2030-01-02",
        "lines": [{"sku": "a", "n": 2}],
    }


def test_the_answer_given_again_brings_the_value_again() -> None:
    """I5, J18: an approved until tool's value, for a host that asks once more elsewhere."""
    stage = Stage(elsewhere=True)
    made, did = returning(Invoice, INVOICE)
    stage.cast(call("work"), tools=[made], interrupt_on={"work": True})
    outcome = interrupted(stage.start(until_tool="work"))
    answers = outcome.decide(approve())
    end = completed(stage.resume(outcome, answers))
    again = completed(stage.resume(end, answers))
    for told in (end, again):
        assert told.tool_result is not None
        assert told.tool_result.value == INVOICE
        assert isinstance(told.tool_result.value, Invoice)
    assert did == [1]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_value_of_an_edited_call_is_its_own(elsewhere: bool) -> None:
    """U7, I6: the model's text about the edit is no part of the value."""
    stage = Stage(elsewhere=elsewhere)

    @tool
    async def invoice(number: int) -> Invoice:
        return Invoice(number=number, due=datetime.date(2030, 1, 2))

    stage.cast(call("invoice", {"number": 1}), tools=[invoice], interrupt_on={"invoice": True})
    outcome = interrupted(stage.start(until_tool="invoice"))
    answers = outcome.decide(edit({"number": 2}))
    end = completed(stage.resume(outcome, answers))
    again = completed(stage.resume(end, answers))
    for told in (end, again):
        assert told.tool_result is not None
        assert told.tool_result.value == Invoice(number=2, due=datetime.date(2030, 1, 2))
        assert told.tool_result.arguments == {"number": 2}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_response_in_place_of_the_until_tool_is_its_value(elsewhere: bool) -> None:
    """U7, I6: rebuilt through the annotation, where it fits."""
    stage = Stage(elsewhere=elsewhere)
    made, did = returning(Invoice, INVOICE)
    stage.cast(call("work"), tools=[made], interrupt_on={"work": True})
    outcome = interrupted(stage.start(until_tool="work"))
    given = INVOICE.model_dump(mode="json")
    answers = outcome.decide(respond(given))
    end = completed(stage.resume(outcome, answers))
    again = completed(stage.resume(end, answers))
    assert did == []
    assert end.tool_result is not None
    assert again.tool_result is not None
    assert end.tool_result.value == again.tool_result.value, "the same here and after a recovery"


# --------------------------------------------------------- what cannot be serialised (J18)


class Opaque:
    """Something that JSON knows nothing of."""


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("annotation", [Any, Opaque, dict[str, Any]])
def test_an_until_tool_whose_value_cannot_be_stored_gets_an_error(
    annotation: Any, wrapped: bool
) -> None:
    """J18: naming the tool, after recording that it ran; it is never run again."""
    value = {"x": Opaque()} if annotation == dict[str, Any] else Opaque()
    made, did = returning(annotation, value, wrapped=wrapped)
    journal = MemoryJournal()
    outcome = completed(agent_of(made).execute_sync("go", until_tool="work", journal=journal))
    assert outcome.tool_result is not None
    assert outcome.tool_result.is_error
    assert "'work'" in str(outcome.tool_result.content)
    assert "ran" in str(outcome.tool_result.content)
    assert outcome.tool_result.value is not value
    lines = [json.dumps(record_to_dict(record)) for record in journal.records]
    for cut in range(2, len(lines)):
        state = replay(record_from_dict(json.loads(line)) for line in lines[:cut])
        if any(json.loads(line)["kind"] == "started" for line in lines[:cut]):
            entered = len(did)
            agent_of(made).resume_sync(state)
            assert len(did) == entered, f"cut after {cut}"


def test_extract_of_a_value_that_cannot_be_stored_says_so() -> None:
    """J18, U5: with success required, an error result is none that counts."""
    made, did = returning(Any, Opaque())
    agent = agent_of(made)
    outcome = agent.execute_sync("go", until_tool_success="work")
    assert isinstance(outcome, Failed)
    assert results(outcome.state)[0].outcome == "failed"
    assert did == [1]


def test_another_tool_may_return_what_cannot_be_stored_beside_its_content() -> None:
    """J18: the run continues; the model gets the content, and the state is storable."""
    made, did = returning(Any, Opaque(), wrapped=True)
    outcome = completed(agent_of(made).execute_sync("go"))
    (part,) = results(outcome.state)
    assert part.outcome == "success"
    assert part.content == "told"
    assert reloaded(outcome.state) == outcome.state
    assert did == [1]


def cyclic() -> Any:
    value: list[Any] = []
    value.append({"again": value})
    return value


def nested(levels: int) -> Any:
    value: Any = "core"
    for _ in range(levels):
        value = [value]
    return value


class Angry:
    """Its own code raises."""

    def __repr__(self) -> str:
        raise KeyError("no repr")

    def __str__(self) -> str:
        raise KeyError("no str")


UNSENDABLE = [
    (threading.Lock(), "'lock'"),
    ([Opaque()], "Opaque"),
    (Angry(), "'Angry'"),
    (10**5000, "more than 4,300 digits"),
    ([-(10**4300)], "more than 4,300 digits"),
    (cyclic(), "contains itself"),
    (nested(5000), "nested more than 100 levels"),
    (nested(101), "nested more than 100 levels"),
    (b"\xff", "'bytes'"),
    ("\ud800", "not valid Unicode"),
    ({"\ud800": 1}, "not valid Unicode"),
    ({1: "a", "1": "b"}, "the same text"),
]


@pytest.mark.parametrize("annotation", [Any, object])
@pytest.mark.parametrize("wrap", [lambda value: value, ToolResult])
@pytest.mark.parametrize(("value", "why"), UNSENDABLE, ids=[why for _, why in UNSENDABLE])
def test_a_result_that_the_model_cannot_be_sent_is_an_error_that_says_that_the_tool_ran(
    value: Any, why: str, wrap: Any, annotation: Any
) -> None:
    """J18: it is no text of an object, and does not read like a failure to be repeated."""
    made, did = returning(annotation, wrap(value))
    outcome = completed(agent_of(made).execute_sync("go"))
    (part,) = results(outcome.state)
    assert part.outcome == "failed"
    assert isinstance(part.content, str)
    assert "'work' ran, but its result" in part.content
    assert why in part.content
    assert "0x" not in part.content
    assert reloaded(outcome.state) == outcome.state
    assert did == [1]


class Measuring:
    """A tool that measures something with an effect, and whose results cannot be kept."""

    def __init__(self, **options: Any) -> None:
        self.did: list[int] = []

        @tool(**options)
        def measure(x: int, unit: str = "m") -> float:
            self.did.append(x)
            return math.nan

        self.measure = measure

    def agent(self, *turns: Any, **options: Any) -> Agent:
        return Agent("a", by_turn(*turns), tools=[self.measure], **options)


def measure(x: int, **more: Any) -> Any:
    return call("measure", {"x": x, **more})


def test_an_equal_call_of_a_tool_that_ran_and_whose_result_is_lost_is_refused() -> None:
    """T10, J4: it ran, so it is no doubt; and it does not run again only for its result."""
    tools = Measuring()
    agent = tools.agent(measure(1), [measure(1, unit="m"), measure(2)], measure(1))
    end = completed(agent.execute_sync("go"))
    assert tools.did == [1, 2]
    first, again, other, later = results(end.state)
    assert str(first.content).startswith("'measure' ran, but its result of type 'float'")
    assert str(first.content).endswith("Do not call it again only for its result.")
    assert again.content == later.content == first.content
    assert other.content == first.content
    assert {part.outcome for part in (first, again, other, later)} == {"failed"}
    assert end.state.doubts == {}
    assert_valid_history(end.state)


def test_the_next_run_may_call_it_again() -> None:
    """T10: the result of one run is no rule for the next run."""
    tools = Measuring()
    end = completed(tools.agent(measure(1), "over", measure(1)).execute_sync("go"))
    completed(tools.agent(measure(1), "over", measure(1)).execute_sync("again", state=end.state))
    assert tools.did == [1, 1]


def test_an_equal_call_is_refused_after_a_crash_too() -> None:
    """T10, J17: wherever the run was cut off behind the first result."""
    tools, journal = Measuring(), MemoryJournal()
    turns = (measure(1), measure(1))
    completed(tools.agent(*turns).execute_sync("go", journal=journal))
    kinds = [record.kind for record in journal.records]
    for cut in range(kinds.index("result") + 1, len(kinds)):
        tools = Measuring()
        state = reloaded(replay(journal.records[:cut]))
        end = completed(tools.agent(*turns).resume_sync(state))
        assert tools.did == [], f"cut after {cut}"
        assert [part.outcome for part in results(end.state)] == ["failed", "failed"]


def test_nobody_is_asked_about_a_call_that_is_refused() -> None:
    """T10, I2: a person is not asked about a call that cannot run."""
    tools = Measuring()
    agent = tools.agent(measure(1), measure(1), interrupt_on={"measure": True})
    outcome = interrupted(agent.execute_sync("go"))
    end = completed(agent.resume_sync(outcome.state, outcome.decide(approve())))
    assert tools.did == [1]
    assert results(end.state)[1].content == results(end.state)[0].content
    assert len(end.state.decisions) == 1


async def test_a_call_that_was_entered_goes_on_where_an_equal_one_lost_its_result() -> None:
    """T10: what it has begun is no repetition."""
    asked: list[str] = []

    @tool
    async def measure(ctx: ToolContext) -> float:
        if ctx.tool_call_id == "lost":
            return math.nan
        asked.append(ctx.tool_call_id)
        if ctx.resume_value is None:
            raise Interrupt("which?")
        return 1.0

    turn = [call("measure", id="asks"), call("measure", id="lost")]
    agent = Agent("a", by_turn(turn), tools=[measure])
    outcome = interrupted(await agent.execute("go"))
    end = completed(await agent.resume(outcome.state, outcome.decide(respond("this"))))
    assert asked == ["asks", "asks"]
    assert [part.outcome for part in results(end.state)] == ["success", "failed"]


def test_a_tool_that_says_how_its_value_is_serialised_may_return_it() -> None:
    """J18, T4."""
    annotation = Annotated[Opaque, PlainSerializer(lambda opaque: "an opaque thing")]
    made, _ = returning(annotation, Opaque())
    outcome = completed(agent_of(made).execute_sync("go"))
    (part,) = results(outcome.state)
    assert (part.outcome, part.content) == ("success", "an opaque thing")


@pytest.mark.parametrize("value", [10**4300 - 1, nested(100), "\0", 5e-324, -0.0, "\U0010ffff"])
def test_a_result_at_the_edge_of_what_can_be_kept_is_kept(value: Any) -> None:
    made, _ = returning(Any, value)
    outcome = completed(agent_of(made).execute_sync("go"))
    (part,) = results(reloaded(outcome.state))
    assert part.content == value


def test_the_text_of_an_error_that_is_no_valid_unicode_reaches_the_model() -> None:
    def work() -> str:
        raise OSError("no file a\udcff.txt")

    outcome = completed(agent_of(tool(work)).execute_sync("go"))
    (part,) = results(outcome.state)
    assert part.content == "OSError: no file a\ufffd.txt"
    assert reloaded(outcome.state) == outcome.state


def test_a_value_that_its_annotation_no_longer_accepts_is_marked_lost() -> None:
    """J18: after a deployment that changed the type, the caller is not given something else."""
    before, _ = returning(Invoice, INVOICE)
    after, did = returning(Point, Point(1, Decimal(2)))
    stage = Stage(elsewhere=True)
    stage.cast(call("work"), tools=[before], interrupt_on={"work": True})
    outcome = interrupted(stage.start(until_tool="work"))
    answers = outcome.decide(approve())
    end = completed(stage.resume(outcome, answers))
    stage.cast(call("work"), tools=[after], interrupt_on={"work": True})
    again = completed(stage.resume(end, answers))
    assert again.tool_result is not None
    assert again.tool_result.value_lost
    assert again.tool_result.value is None
    assert again.tool_result.content == INVOICE.model_dump(mode="json"), "what was told stays"
    assert did == []


def test_a_value_that_is_no_instance_of_its_annotation_is_not_made_one_silently() -> None:
    """J18: a tool that breaks its own promise does not take the run down."""
    made, _ = returning(Invoice, {"number": "x"})
    outcome = completed(agent_of(made).execute_sync("go"))
    assert_valid_history(outcome.state)
    assert reloaded(outcome.state) == outcome.state


# --------------------------------------------------------------------------- deltas (T4)


def delta(name: str, state: Any) -> Any:
    """A tool that brings this delta."""

    async def work() -> ToolResult[str]:
        return ToolResult(name, state=state)

    return tool(name=name)(work)


def after(*deltas: Any, values: dict[str, Any] | None = None) -> Completed:
    """The end of a run whose one reply calls a tool for each delta."""
    tools = [delta(f"t{i}", state) for i, state in enumerate(deltas)]
    agent = Agent("support", by_turn([call(made.name) for made in tools]), tools=tools)
    return completed(agent.execute_sync("go", state=AgentState(values=values or {})))


@pytest.mark.parametrize(
    ("values", "deltas", "wanted"),
    [
        ({}, [{"a": 1}], {"a": 1}),
        ({"a": 1}, [{"b": 2}], {"a": 1, "b": 2}),
        ({"a": {"x": 1, "y": {"z": 1}}}, [{"a": {"y": {"w": 2}}}],
         {"a": {"x": 1, "y": {"z": 1, "w": 2}}}),
        ({"a": [1, 2]}, [{"a": [3]}], {"a": [3]}),
        ({"a": [1, 2]}, [{"a": []}], {"a": []}),
        ({"a": 1}, [{"a": None}], {"a": None}),
        ({"a": {"x": 1}}, [{"a": None}], {"a": None}),
        ({"a": {"x": 1}}, [{"a": 2}], {"a": 2}),
        ({"a": 2}, [{"a": {"x": 1}}], {"a": {"x": 1}}),
        ({"a": {"x": 1}}, [{}], {"a": {"x": 1}}),
        ({"a": {"x": 1}}, [None], {"a": {"x": 1}}),
        ({}, [{"a": 1}, {"a": 2}, {"a": 3}], {"a": 3}),
        ({}, [{"a": {"x": 1}}, {"a": {"y": 2}}], {"a": {"x": 1, "y": 2}}),
        ({}, [{"d": datetime.date(2030, 1, 2)}], {"d": "2030-01-02"}),
        ({}, [{"m": Line(sku="a")}], {"m": {"sku": "a", "n": 1}}),
    ],
)  # fmt: skip
def test_deltas_merge_in_call_order(values: Any, deltas: Any, wanted: Any) -> None:
    """T4: mappings deeply, lists replaced, what is not named untouched, None kept as said."""
    end = after(*deltas, values=values)
    assert dict(end.state.values) == wanted
    assert dict(reloaded(end.state).values) == wanted


def test_a_delta_is_merged_once_however_often_the_run_is_taken_up() -> None:
    """T4: each fact is in the state once."""
    stage = Stage(elsewhere=True)

    @tool
    async def count(ctx: ToolContext) -> ToolResult[str]:
        return ToolResult("ok", state={"n": ctx.state.values.get("n", 0) + 1})

    @tool
    async def gated() -> str:
        return "x"

    stage.cast(
        call("count"),
        [call("count"), call("gated")],
        tools=[count, gated],
        interrupt_on={"gated": True},
    )
    outcome = interrupted(stage.start())
    assert outcome.state.values == {"n": 1}
    outcome = interrupted(stage.resume(outcome))
    assert outcome.state.values == {"n": 1}
    end = completed(stage.resume(outcome, outcome.decide(approve())))
    assert end.state.values == {"n": 2}


@pytest.mark.parametrize("bad", [{"x": Opaque()}, {1: 2}, ["x"], "x"])
def test_a_delta_that_cannot_be_stored_is_an_error_of_the_tool(bad: Any) -> None:
    """T4, J18: it says that the tool ran, and changes nothing."""
    end = after({"a": 1}, bad)
    assert [part.outcome for part in results(end.state)] == ["success", "failed"]
    assert "ran" in str(results(end.state)[1].content)
    assert end.state.values == {"a": 1}


@pytest.mark.parametrize("option", ["escalate", "skip_summarization"])
@pytest.mark.parametrize("given", ["no", 1, None])
def test_an_option_of_a_result_that_is_no_bool_is_an_error_of_the_tool(
    option: str, given: Any
) -> None:
    """J18: a text such as "no" does not count as yes; it says that the tool ran."""
    options: dict[str, Any] = {option: given, "state": {"a": 1}}

    @tool
    async def work() -> ToolResult[str]:
        return ToolResult("done", **options)

    end = completed(agent_of(work).execute_sync("go"))
    (part,) = results(end.state)
    assert part.outcome == "failed"
    assert f"'work' ran, but ToolResult({option}=...) must be True or False" in str(part.content)
    assert end.state.values == {}


def test_a_tool_cannot_change_the_state_but_by_its_delta() -> None:
    """T3, T4."""
    caught = []

    @tool
    async def sly(ctx: ToolContext) -> ToolResult[str]:
        try:
            ctx.state.values["a"] = 2  # type: ignore[index]  # what is refused
        except TypeError as error:
            caught.append(error)
        return ToolResult("ok")

    agent = Agent("support", by_turn(call("sly")), tools=[sly])
    end = completed(agent.execute_sync("go", state=AgentState(values={"a": 1})))
    assert caught
    assert end.state.values == {"a": 1}


def test_a_delta_is_a_copy_of_what_the_tool_gave() -> None:
    """T4: what the tool keeps and changes later is no part of the state."""
    kept: dict[str, Any] = {"a": {"list": [1]}}
    end = after(kept)
    kept["a"]["list"].append(2)
    kept["a"]["new"] = True
    assert end.state.values == {"a": {"list": [1]}}


def test_deltas_of_one_run_leave_the_given_state_alone() -> None:
    """T4: two runs from one state do not see each other."""
    state = AgentState(values={"a": {"x": 1}, "l": [1]})
    made = delta("work", {"a": {"y": 2}, "l": [2]})
    agent = Agent("support", by_turn(call("work")), tools=[made])
    one = completed(agent.execute_sync("go", state=state))
    assert one.state.values == {"a": {"x": 1, "y": 2}, "l": [2]}
    assert state.values == {"a": {"x": 1}, "l": [1]}


@pytest.mark.parametrize("values", [{"x": Opaque()}, {1: 2}, [1]])
def test_values_that_cannot_be_stored_are_refused_at_once(values: Any) -> None:
    """J18: naming the key."""
    with pytest.raises(UsageError):
        AgentState(values=values)


async def test_extract_gives_the_value_itself() -> None:
    """U7: typed, through the tool's own annotation."""
    made, _ = returning(Invoice, INVOICE)

    assert await agent_of(made).extract(made, "go") is INVOICE
    bad, _ = returning(Any, Opaque())
    with pytest.raises(NotExtracted):
        await agent_of(bad).extract(bad, "go")
