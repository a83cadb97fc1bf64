"""`AskUser`: what the model may ask, what a person answers, and what the model gets of it (I21).

Rules: I20.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import Stage, by_turn, completed, interrupted, reloaded, results
from tests.support.cut_off import Crash, Disk
from tests.support.places import Place
from understudy import (
    Agent,
    DecisionError,
    Runtime,
    UsageError,
    call,
    reject,
    respond,
)
from understudy.middleware import AskUser, SubAgent
from understudy.modes.workflows.sequential import Sequential
from understudy.web.forms.edit import AnswerForm

ALL: list[dict[str, Any]] = [
    {"question": "Who are you?", "details": "Your full name."},
    {
        "question": "Which colour?",
        "kind": "one_of",
        "options": ["red", {"label": "dark blue", "value": "#008"}],
    },
    {
        "question": "Which days?",
        "kind": "several_of",
        "options": ["Monday", {"label": "Tuesday", "value": "2"}, "Sunday"],
        "default": ["Monday"],
    },
    {"question": "With milk?", "kind": "yes_or_no", "default": True},
    {"question": "How many?", "kind": "number", "minimum": 1, "maximum": 9, "whole": True},
    {"question": "From where?", "kind": "one_of", "options": ["here", "there"], "other": True},
    {"question": "Anything else?", "required": False},
]
ANSWERS = {
    "Who are you?": "Ann",
    "Which colour?": "dark blue",
    "Which days?": ["Tuesday", "Sunday"],
    "With milk?": False,
    "How many?": 3,
    "From where?": {"other": "Mars"},
}
TOLD = [
    {"question": "Who are you?", "answer": "Ann"},
    {"question": "Which colour?", "answer": "dark blue", "value": "#008"},
    {"question": "Which days?", "answer": ["Tuesday", "Sunday"], "value": ["2", "Sunday"]},
    {"question": "With milk?", "answer": False},
    {"question": "How many?", "answer": 3},
    {"question": "From where?", "other": "Mars"},
    {"question": "Anything else?", "answer": None},
]


def asks(*questions: Any) -> Any:
    return call("ask_user", {"questions": list(questions)})


def desk(*questions: Any, **options: Any) -> Agent:
    return Agent("desk", by_turn(asks(*questions)), middleware=[AskUser(**options)])


@pytest.fixture(params=["here", "elsewhere"])
def stage(request: pytest.FixtureRequest) -> Stage:
    stage = Stage(elsewhere=request.param == "elsewhere")
    stage.cast(asks(*ALL), tools=[], middleware=lambda: [AskUser()])
    return stage


def test_the_model_asks_several_things_at_once_and_gets_labels_and_values(stage: Stage) -> None:
    """I21."""
    asked = interrupted(stage.start())
    (request,) = asked.requests
    assert request.payload == {"questions": [each["question"] for each in ALL]}
    assert request.allowed == ("respond", "reject")
    (part,) = results(completed(stage.resume(asked, asked.decide(respond(ANSWERS)))).state)
    assert part.content == TOLD


def test_a_person_may_answer_nothing(stage: Stage) -> None:
    asked = interrupted(stage.start())
    ended = completed(stage.resume(asked, asked.decide(reject("ask me tomorrow"))))
    (part,) = results(ended.state)
    assert part.outcome == "denied"
    assert "ask me tomorrow" in str(part.content)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({}, "Who are you?"),
        ("Ann", "is not of type 'object'"),
        (ANSWERS | {"Who are you?": ""}, "Who are you?"),
        (ANSWERS | {"Which colour?": "#008"}, "Which colour?"),
        (ANSWERS | {"Which days?": []}, "Which days?"),
        (ANSWERS | {"Which days?": ["Sunday", "Sunday"]}, "Which days?"),
        (ANSWERS | {"With milk?": "yes"}, "With milk?"),
        (ANSWERS | {"How many?": 0}, "How many?"),
        (ANSWERS | {"How many?": 2.5}, "How many?"),
        (ANSWERS | {"From where?": {}}, "From where?"),
        (ANSWERS | {"From where?": {"choice": "here", "other": "there"}}, "From where?"),
        (ANSWERS | {"Why?": "so"}, "Why?"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_by_its_question(answers: Any, why: str) -> None:
    agent = desk(*ALL)
    asked = interrupted(agent.execute_sync("go"))
    with pytest.raises(DecisionError) as raised:
        agent.resume_sync(asked.state, asked.decide(respond(answers)))
    assert why in str(raised.value)


def test_the_choice_beside_one_of_ones_own_is_a_label_with_its_value() -> None:
    one = {"question": "a", "kind": "one_of", "options": [{"label": "x", "value": "1"}]}
    many = {"question": "b", "kind": "several_of", "options": ["x", "y"]}
    agent = desk(one | {"other": True, "default": "x"}, many | {"other": True})
    asked = interrupted(agent.execute_sync("go"))
    answers = {"a": {"choice": "x"}, "b": {"choice": ["y"], "other": "z"}}
    (part,) = results(agent.resume_sync(asked.state, asked.decide(respond(answers))).state)
    assert part.content == [
        {"question": "a", "answer": "x", "value": "1"},
        {"question": "b", "other": "z", "answer": ["y"], "value": ["y"]},
    ]


def q(**fields: Any) -> dict[str, Any]:
    return {"question": "What?", **fields}


@pytest.mark.parametrize(
    ("questions", "why"),
    [
        ([], "at least 1 item"),
        ([q()] * 2, "two questions are 'What?'"),
        ([q(question=f"{n}?") for n in range(11)], "at most 10 items"),
        ([q(question="")], "at least 1 character"),
        ([q(question="  ")], "at least 1 character"),
        ([q(question="x" * 501)], "at most 500 characters"),
        ([q(details="x" * 2001)], "at most 2000 characters"),
        ([q(kind="one_of")], "a question of the kind one_of needs `options`"),
        ([q(kind="several_of", options=[])], "needs `options`"),
        ([q(kind="one_of", options=["a", "b", "a"])], "two `options` have the label 'a'"),
        ([q(kind="one_of", options=["a", {"label": " a "}])], "two `options` have the label 'a'"),
        ([q(kind="one_of", options=[""])], "at least 1 character"),
        ([q(kind="one_of", options=[f"{n}" for n in range(51)])], "at most 50 items"),
        ([q(options=["a"])], "`options` and `other` are for"),
        ([q(other=True)], "`options` and `other` are for"),
        ([q(minimum=1)], "are for the kind number"),
        ([q(kind="number", minimum=2, maximum=1)], "`minimum` is above `maximum`"),
        ([q(kind="number", minimum="Infinity")], "finite number"),
        ([q(kind="number", maximum="NaN")], "finite number"),
        ([q(kind="number", default="many")], "the `default` of 'What?' is no answer to it"),
        ([q(kind="one_of", options=["a"], default="b")], "the `default` of 'What?'"),
        ([q(kind="yes_or_no", default="yes")], "the `default` of 'What?'"),
        ([q(kind="color")], "Input should be 'text'"),
        ([q(choices=["a"])], "Extra inputs are not permitted"),
        (["What?"], "questions"),
        ("What?", "questions"),
    ],
)
def test_a_question_that_is_none_goes_back_to_the_model(questions: Any, why: str) -> None:
    """I21."""
    agent = Agent(
        "desk",
        by_turn(call("ask_user", {"questions": questions}), asks(q())),
        middleware=[AskUser()],
    )
    asked = interrupted(agent.execute_sync("go"))
    (part,) = results(asked.state)
    assert part.outcome == "failed"
    assert why in str(part.content)
    assert asked.requests[0].payload == {"questions": ["What?"]}  # it has mended it


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_questions": 0}, "`max_questions`"),
        ({"max_questions": True}, "`max_questions`"),
        ({"max_questions": 51}, "`max_questions`"),
        ({"expires_after": 0}, "`expires_after`"),
        ({"on_expiry": "approve"}, "`on_expiry`"),
    ],
)
def test_an_option_that_is_not_possible_is_refused_at_once(options: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        AskUser(**options)


def test_its_requests_have_the_times_that_it_was_given() -> None:
    (request,) = interrupted(
        desk(q(), expires_after=60, remind_after=30).execute_sync("go")
    ).requests
    assert request.expires_at is not None
    assert (request.expires_at - request.created_at).total_seconds() == 60
    assert len(request.remind_at) == 1


def test_the_inbox_has_a_field_of_its_own_for_each_question() -> None:
    (request,) = interrupted(desk(*ALL).execute_sync("go")).requests
    assert request.schema is not None
    fields = {field.label: field for field in AnswerForm(request.schema).all}
    assert {label: fields[label].kind for label in ANSWERS} == {
        "Who are you?": "text",
        "Which colour?": "choice",
        "Which days?": "list",
        "With milk?": "boolean",
        "How many?": "integer",
        "From where?": "object",
    }
    assert fields["Who are you?"].help == "Your full name."
    assert fields["With milk?"].text == "true"
    assert fields["Which days? 1"].text == '"Monday"'
    assert fields["Anything else?"].empty == "absent"
    assert "json" not in {field.kind for field in fields.values()}


async def test_it_asks_in_every_store_and_after_a_crash(place: Place) -> None:
    async with Runtime([desk(*ALL)], store=place.store()) as runtime:
        interrupted(await runtime.spawn("desk", "a").run("go"))
    async with Runtime([desk(*ALL)], store=place.after_crash()) as runtime:
        (pending,) = await runtime.pending()
        ended = await runtime.get("a").resume({pending.request.id: respond(ANSWERS)})
    (part,) = results(completed(ended).state)
    assert part.content == TOLD


def test_it_asks_inside_of_other_agents_and_workflows() -> None:
    clerk = Agent("clerk", by_turn(asks(q())), middleware=[AskUser()])
    task = call("task", {"task_name": "clerk", "instructions": "go"})
    boss = Agent("boss", by_turn(task), middleware=[SubAgent(agents=[clerk])])
    flow = Agent("flow", None, mode=Sequential([boss]))
    asked = interrupted(flow.execute_sync("go"))
    assert asked.requests[0].agent_path == ("flow", "boss", "clerk")
    completed(flow.resume_sync(reloaded(asked.state), asked.decide(respond({"What?": "this"}))))


@pytest.mark.slow
def test_a_run_cut_off_anywhere_tells_the_model_the_same() -> None:
    """I21."""
    disk = Disk()
    asked = interrupted(desk(q()).execute_sync("go", journal=disk))
    answered = respond({"What?": "this"})
    desk(q()).resume_sync(asked.state, asked.decide(answered), journal=disk)
    for limit in range(1, len(disk.lines)):
        cut = Disk(limit)
        try:
            asked = interrupted(desk(q()).execute_sync("go", journal=cut))
            desk(q()).resume_sync(asked.state, asked.decide(answered), journal=cut)
        except Crash:
            cut.limit = None
        outcome = desk(q()).resume_sync(cut.load(), None, journal=cut)
        if outcome.state.requests:
            asked = interrupted(outcome)
            assert len(asked.requests) == 1
            outcome = desk(q()).resume_sync(asked.state, asked.decide(answered), journal=cut)
        (part,) = results(completed(outcome).state)
        assert part.content == [{"question": "What?", "answer": "this"}]


def test_an_agent_without_it_has_no_such_tool() -> None:
    assert list(Agent("desk", by_turn()).definition.tools) == []
