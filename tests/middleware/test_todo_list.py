"""`TodoList`: what the model writes, what it sees of it, and what a host reads (R19)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import by_turn, completed, interrupted, reloaded, results
from tests.support.cut_off import Crash, Disk
from tests.support.places import Place
from understudy import Agent, AgentState, Runtime, ScriptedModel, UsageError, approve, call
from understudy.middleware import HumanInTheLoop, SubAgent, TodoItem, TodoList
from understudy.modes.workflows.sequential import Sequential


def writes(*items: Any, merge: bool | None = None) -> Any:
    options = {} if merge is None else {"merge": merge}
    return call("write_todos", {"items": [*items], **options})


def item(id: str, text: str | None = None, status: str | None = None) -> dict[str, Any]:
    given = {"id": id, "text": text, "status": status}
    return {key: value for key, value in given.items() if value is not None}


def clerk(*turns: Any, **options: Any) -> Agent:
    return Agent("clerk", by_turn(*turns), middleware=[TodoList(**options)])


A, B = TodoItem(id="a", text="Ask"), TodoItem(id="b", text="Book")
PLAN = writes(item("a", "Ask"), item("b", "Book"))


def test_a_list_is_replaced_merged_and_cleared_when_all_is_done() -> None:
    model = ScriptedModel(
        [
            PLAN,
            writes(item("a", status="completed"), item("c", " Call \n Ann "), merge=True),
            writes(item("b", "Book two", "in_progress"), merge=True),
            writes(item("c", "Call", "in_progress")),
            writes(item("c", status="cancelled"), merge=True),
            "Done.",
        ]
    )
    seen = list[Any]()
    agent = Agent("clerk", model, middleware=[TodoList()])
    outcome = completed(agent.execute_sync("go", on_event=lambda e: seen.append(e)))
    lists = [found for found in map(TodoList.changed, seen) if found is not None]
    assert lists == [
        (A, B),
        (A.model_copy(update={"status": "completed"}), B, TodoItem(id="c", text="Call \n Ann")),
        (
            A.model_copy(update={"status": "completed"}),
            TodoItem(id="b", text="Book two", status="in_progress"),
            TodoItem(id="c", text="Call \n Ann"),
        ),
        (TodoItem(id="c", text="Call", status="in_progress"),),
        (TodoItem(id="c", text="Call", status="cancelled"),),
    ]
    told = [str(request.instructions) for request in model.requests]
    assert "Your list now" not in told[0]
    assert told[2].endswith("[x] a: Ask\n[ ] b: Book\n[ ] c: Call Ann")
    assert told[4].endswith("\n[>] c: Call")
    assert told[5] == told[0]
    assert TodoList.of(outcome.state) == ()


def test_the_calls_of_one_reply_build_on_each_other() -> None:
    """R19."""
    more = writes(item("b", "Book"), merge=True)
    outcome = clerk([writes(item("a", "Ask")), more]).execute_sync("go")
    assert TodoList.of(outcome.state) == (A, B)


def test_a_call_that_waits_for_a_person_is_not_overtaken() -> None:
    first, more = writes(item("a", "Ask")), writes(item("b", "Book"), merge=True)
    model = by_turn([first, more], more)
    stack = [TodoList(), HumanInTheLoop({"write_todos": {"when": _adds_a}})]
    agent = Agent("clerk", model, middleware=stack)
    asked = interrupted(agent.execute_sync("go"))
    outcome = completed(agent.resume_sync(asked.state, asked.decide(approve())))
    assert TodoList.of(outcome.state) == (A, B)


def _adds_a(arguments: Any, _: Any) -> bool:
    return bool(arguments["items"][0]["id"] == "a")


@pytest.mark.parametrize(
    ("items", "merge", "why"),
    [
        ([item("x", "One"), item(" x ", "Two")], False, "two items have the id 'x'"),
        ([item("", "One")], False, "at least 1 character"),
        ([item("x" * 51, "One")], False, "at most 50 characters"),
        ([item("x", "")], False, "at least 1 character"),
        ([item("x", "  ")], False, "at least 1 character"),
        ([item("x", "long" * 200)], False, "at most 500 characters"),
        ([item("x", "One", "doing")], False, "'pending', 'in_progress', 'completed' or"),
        ([item("x")], False, "the item 'x' is new and needs a `text`"),
        ([item("x", status="completed")], True, "the ids in the list: a, b"),
        ([item(str(n), "One") for n in range(4)], False, "at most 3 items"),
        ([item("x", "One"), item("y", "Two")], True, "the list would have 4 items: it takes 3"),
        ([{"id": "x", "text": "One", "done": True}], False, "Extra inputs are not permitted"),
        (["One"], False, "items"),
        ("One", False, "items"),
    ],
)
def test_what_is_no_list_goes_back_to_the_model(items: Any, merge: bool, why: str) -> None:
    bad = call("write_todos", {"items": items, "merge": merge})
    outcome = completed(clerk(PLAN, bad, max_items=3).execute_sync("go"))
    part = results(outcome.state)[1]
    assert part.outcome == "failed"
    assert why in str(part.content)
    assert TodoList.of(outcome.state) == (A, B)  # as it was


@pytest.mark.parametrize("given", [0, 101, True, 2.0, "many"])
def test_a_number_that_is_not_possible_is_refused_at_once(given: Any) -> None:
    with pytest.raises(UsageError, match="`max_items`"):
        TodoList(max_items=given)


def test_two_lists_in_one_agent_are_refused() -> None:
    with pytest.raises(UsageError):
        Agent("clerk", by_turn(), middleware=[TodoList(), TodoList()])


def test_each_sub_agent_and_each_agent_of_a_workflow_has_its_own() -> None:
    """R19."""
    inner = Agent(
        "helper", by_turn(writes(item("h", "Help"))), middleware=[TodoList()], description="helps"
    )
    task = call("task", {"task_name": "helper", "instructions": "go"})
    boss = Agent("boss", by_turn(PLAN, task), middleware=[TodoList(), SubAgent(agents=[inner])])
    flow = Agent("flow", None, mode=Sequential([boss, clerk(writes(item("c", "Close")))]))
    state = completed(flow.execute_sync("go")).state
    assert TodoList.of(state, "boss") == (A, B)
    assert TodoList.of(state, "clerk") == (TodoItem(id="c", text="Close"),)
    assert TodoList.of(state, "helper") == ()
    assert TodoList.of(state) == ()


def test_a_host_may_begin_with_a_list() -> None:
    state = AgentState(values={"todo_lists": {"clerk": [A.model_dump()]}})
    assert TodoList.of(reloaded(state)) == (A,)
    agent = clerk(writes(item("b", "Book"), merge=True))
    assert TodoList.of(agent.execute_sync("go", state=state).state) == (A, B)
    with pytest.raises(UsageError, match="todo_lists"):
        agent.execute_sync("go", state=AgentState(values={"todo_lists": {"clerk": ["Ask"]}}))


def test_it_is_read_of_a_state_or_a_ref_alone() -> None:
    given: Any = {"todo_lists": {}}
    with pytest.raises(UsageError, match=r"TodoList\.of takes"):
        TodoList.of(given)


async def test_it_is_there_in_every_store_after_a_crash_and_a_compaction(place: Place) -> None:
    async with Runtime([clerk(PLAN)], store=place.store()) as runtime:
        ref = runtime.spawn("clerk", "a")
        completed(await ref.run("go"))
        await ref.compact()
        assert await TodoList.of(ref) == (A, B)
    done = writes(item("a", status="completed"), merge=True)
    later = Agent("clerk", ScriptedModel([done, "done"]), middleware=[TodoList()])
    async with Runtime([later], store=place.after_crash()) as runtime:
        ref = runtime.get("a")
        assert await TodoList.of(ref) == (A, B)
        completed(await ref.run("on"))
        assert [each.status for each in await TodoList.of(ref)] == ["completed", "pending"]


def test_a_run_cut_off_anywhere_has_the_same_list() -> None:
    """R19."""
    turns = PLAN, [writes(item("a", status="completed"), merge=True)] * 2
    disk = Disk()
    whole = clerk(*turns).execute_sync("go", journal=disk).state
    for limit in range(1, len(disk.lines)):
        cut = Disk(limit)
        with pytest.raises(Crash):
            clerk(*turns).execute_sync("go", journal=cut)
        outcome = clerk(*turns).resume_sync(cut.load())
        assert TodoList.of(completed(outcome).state) == TodoList.of(whole)
        assert len(results(outcome.state)) == 3


def test_an_agent_without_it_has_no_such_tool_and_value() -> None:
    outcome = Agent("desk", by_turn()).execute_sync("go")
    assert "todo_lists" not in outcome.state.values
