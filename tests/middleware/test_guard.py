"""`Guard`: texts of users and of replies that are passed, changed, asked about or stopped (R17)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    TextContent,
    UserPromptPart,
)

from tests.support.agents import by_turn, completed, interrupted, reloaded
from tests.support.cut_off import Crash, Disk
from tests.support.loops import soon
from tests.support.places import Place
from understudy import (
    Agent,
    DecisionError,
    Failed,
    Interrupt,
    Interrupted,
    Run,
    Runtime,
    ScriptedModel,
    Stopped,
    StopSignal,
    UsageError,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.events import RunFinished, TextDelta
from understudy.middleware import Guard, Middleware, ModelInput
from understudy.middleware.guard import Verdict
from understudy.models import ScriptedRequest


def redact(text: str, run: Run) -> str | None:
    return text.replace("pin-47-11", "****") if "pin-47-11" in text else None


async def person(text: str, run: Run) -> Interrupt | None:
    if "maybe" in text:
        return Interrupt(text, allowed=["approve", "respond", "reject"])
    return None


def stop(text: str, run: Run) -> StopSignal | None:
    return StopSignal.stop_requested("a secret", source="guard") if "secret" in text else None


def said_to(model: ScriptedModel) -> list[str]:
    return [request.prompt for request in model.requests]


def told(state: Any) -> list[str]:
    return [str(part.content) for m in state.messages for part in m.parts]


def test_what_passes_is_as_it_was() -> None:
    model = by_turn("Hello.")
    agent = Agent("a", model, middleware=[Guard(input=redact, output=redact)])
    assert completed(agent.execute_sync("Hi.")).text == "Hello."
    assert said_to(model) == ["Hi."]


def test_a_text_of_a_user_is_changed_for_good_before_the_model_gets_it() -> None:
    """R17."""
    model = by_turn("Noted.", "You told me.")
    agent = Agent("a", model, middleware=[Guard(input=redact)])
    first = completed(agent.execute_sync("My pin is pin-47-11."))
    second = completed(agent.execute_sync("What is it?", state=reloaded(first.state)))
    assert said_to(model) == ["My pin is ****.", "What is it?"]
    assert "pin-47-11" not in str(second.state.to_dict())
    assert [len(request.messages) for request in model.requests] == [1, 3]


def test_the_request_of_another_middleware_is_checked_too() -> None:
    class Adds(Middleware):
        async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
            added = ModelRequest(parts=[UserPromptPart("And pin-47-11.")])
            return request.replace(messages=[*request.messages, added])

    model = by_turn("Noted.")
    agent = Agent("a", model, middleware=[Adds(), Guard(input=redact)])
    completed(agent.execute_sync("My pin is pin-47-11."))
    (request,) = model.requests
    assert "pin-47-11" not in str([part for m in request.messages for part in m.parts])


def test_files_beside_a_text_stay() -> None:
    picture = BinaryContent(b"x", media_type="image/png")
    agent = Agent("a", by_turn("Nice."), middleware=[Guard(input=redact)])
    done = completed(agent.execute_sync(["It is pin-47-11.", picture]))
    (part,) = done.state.messages[0].parts
    assert isinstance(part, UserPromptPart)
    assert not isinstance(part.content, str)
    text, kept = part.content
    assert (text, isinstance(kept, BinaryContent) and kept.data) == ("It is ****.", b"x")


def test_a_reply_is_changed_before_anybody_gets_it_and_its_calls_stay() -> None:
    """R17."""
    did: list[int] = []

    @tool
    async def note(n: int) -> str:
        """Note it."""
        did.append(n)
        return "noted"

    model = by_turn(["The pin is pin-47-11.", call("note", {"n": 1})], "It is pin-47-11.")
    agent = Agent("a", model, tools=[note], middleware=[Guard(output=redact)])
    done = completed(agent.execute_sync("Hi."))
    assert (done.text, did) == ("It is ****.", [1])
    assert "pin-47-11" not in str(done.state.to_dict())


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize(
    ("decision", "text"),
    [(approve(), "maybe"), (respond("surely"), "surely"), (reject("no"), None)],
)
def test_a_person_passes_changes_or_stops(side: str, decision: Any, text: str | None) -> None:
    def agent() -> Agent:
        model = ScriptedModel([lambda r: r.prompt if side == "input" else "maybe"])
        return Agent("a", model, middleware=[Guard(**{side: person}, name="Desk")])

    outcome = interrupted(agent().execute_sync("maybe" if side == "input" else "Hi."))
    (request,) = outcome.requests
    assert (request.source, request.payload, request.schema) == (
        "Desk",
        "maybe",
        {"type": "string", "minLength": 1},
    )
    # Elsewhere: for a reply with a model that would be asked for another one.
    ended = agent().resume_sync(reloaded(outcome.state), outcome.decide(decision))
    if text is None:
        assert isinstance(ended, Stopped)
        assert ended.signals.highest is not None
        assert (ended.signals.highest.message, ended.signals.highest.source) == ("no", "Desk")
        assert "maybe" not in told(ended.state)[1:]
    else:
        assert completed(ended).text == text
        assert ended.usage.requests == 1


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_check_stops_the_run(side: str) -> None:
    model = by_turn("the secret")
    guard = Guard(input=stop) if side == "input" else Guard(output=stop)
    agent = Agent("a", model, middleware=[guard])
    outcome = agent.execute_sync("a secret?" if side == "input" else "Hi.")
    assert isinstance(outcome, Stopped)
    assert outcome.signals.highest is not None
    assert outcome.signals.highest.message == "a secret"
    assert len(model.requests) == (0 if side == "input" else 1)
    assert outcome.usage.requests == len(model.requests)
    assert [type(each).__name__ for each in outcome.state.messages] == ["ModelRequest"]


@pytest.mark.parametrize(
    ("judgement", "expected"),
    [
        ('{"verdict": "pass"}', "Hello."),
        ('{"verdict": "change", "text": "Hi there."}', "Hi there."),
        ('{"verdict": "stop", "reason": "rude"}', Stopped),
        ('{"verdict": "ask", "reason": "odd"}', "Hello."),
    ],
)
def test_an_agent_judges_and_is_asked_once(judgement: str, expected: Any) -> None:
    judge_model = ScriptedModel([judgement])
    judge = Agent("judge", judge_model, "Pass what is polite.")
    agent = Agent("a", by_turn("Hello."), middleware=[Guard(output=judge)])
    outcome = agent.execute_sync("Hi.")
    if "ask" in judgement:
        asked = interrupted(outcome)
        assert asked.requests[0].payload == {"text": "Hello.", "reason": "odd"}
        outcome = agent.resume_sync(reloaded(asked.state), asked.decide(approve()))
    (request,) = judge_model.requests
    assert "Pass what is polite." in (request.instructions or "")
    assert outcome.usage.requests == 2
    if expected is Stopped:
        assert isinstance(outcome, Stopped)
    else:
        assert completed(outcome).text == expected


async def _texts(guard: Guard) -> list[str]:
    async with Runtime(
        [Agent("a", ScriptedModel(["My pin is pin-47-11."]), middleware=[guard])]
    ) as one:
        ref = one.spawn("a", id="a1")
        events = ref.events()
        done = ref.run("Hi.")
        texts = []
        async for each in events:
            if isinstance(each.event, TextDelta):
                texts.append(each.event.text)
            elif isinstance(each.event, RunFinished):
                break
        await soon(done)
        return texts


async def test_text_is_held_back_for_a_check_of_replies_alone() -> None:
    assert await _texts(Guard(output=redact)) == ["My pin is ****."]
    assert "".join(await _texts(Guard(input=redact))) == "My pin is pin-47-11."
    assert len(await _texts(Guard(input=redact))) > 1


@tool
def nothing() -> str:
    """Do nothing."""
    return ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "checks nothing"),
        ({"input": 3}, "takes a function"),
        ({"output": "no"}, "takes a function"),
        ({"input": redact, "name": ""}, "name"),
        ({"input": Agent("t", ScriptedModel([]), tools=[nothing])}, "has tools"),
    ],
)
def test_what_cannot_check_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Guard(**options)


@pytest.mark.parametrize("returned", [True, 3, ["x"], b"x"])
def test_a_check_that_says_something_else_fails_the_run(returned: Any) -> None:
    guard = Guard(output=lambda text, run: returned)
    outcome = Agent("a", by_turn("Hello."), middleware=[guard]).execute_sync("Hi.")
    assert isinstance(outcome, Failed)
    assert "return None, a text, an Interrupt or a StopSignal" in str(outcome.error)


async def test_a_guarded_agent_goes_on_in_another_process(place: Place) -> None:
    def agent() -> Agent:
        return Agent("a", by_turn("maybe"), middleware=[Guard(output=person)])

    async with Runtime([agent()], store=place.store()) as runtime:
        interrupted(await soon(runtime.spawn("a", id="a1").run("Hi.")))
    async with Runtime([agent()], store=place.store()) as runtime:
        (pending,) = await soon(runtime.pending())
        ref = runtime.get("a1")
        done = completed(await soon(ref.resume({pending.request.id: respond("surely")})))
        assert (done.text, done.usage.requests) == ("surely", 1)


def test_a_guarded_run_is_cut_off_at_any_record() -> None:
    def agent() -> Agent:
        def reply(request: ScriptedRequest) -> str:
            assert "pin-47-11" not in request.prompt
            return "maybe pin-47-11"

        stack = [Guard(input=redact, name="Pins"), Guard(input=person, output=person)]
        return Agent("a", ScriptedModel(reply), middleware=stack)

    def live(disk: Disk | None, outcome: Any) -> Any:
        while not isinstance(outcome, (Failed, Stopped)) and hasattr(outcome, "requests"):
            decisions = {request.id: respond("surely") for request in outcome.requests}
            outcome = agent().resume_sync(outcome.state, decisions, journal=disk)
        return completed(outcome)

    whole = Disk()
    end = live(whole, agent().execute_sync("maybe pin-47-11", journal=whole))
    assert (end.text, told(end.state)) == ("surely", ["surely", "surely"])
    for limit in range(1, len(whole.lines)):
        disk = Disk(limit)
        with pytest.raises(Crash):
            live(disk, agent().execute_sync("maybe pin-47-11", journal=disk))
        again = live(None, agent().resume_sync(disk.load()))
        assert told(again.state) == told(end.state), limit
        assert again.usage.requests == 1 or limit < len(whole.lines)


def test_replies_of_before_are_not_checked_again() -> None:
    seen: list[str] = []

    def check(text: str, run: Run) -> None:
        seen.append(text)

    agent = Agent("a", by_turn("One.", "Two."), middleware=[Guard(input=check, output=check)])
    first = completed(agent.execute_sync("Hi."))
    completed(agent.execute_sync("Again.", state=first.state))
    assert seen == ["Hi.", "One.", "Again.", "Two."]
    assert isinstance(first.state.messages[1], ModelResponse)


def test_two_guards_of_one_name_do_not_answer_for_each_other() -> None:
    """R17."""

    def asks(text: str, run: Run) -> Verdict:
        return Interrupt(text, allowed=("approve", "reject"))

    for guards in (
        [Guard(output=asks), Guard(output=asks)],
        [Guard(output=asks, input=asks, name="G"), Guard(input=asks, name="G")],
    ):
        with pytest.raises(UsageError, match="two Guards named '"):
            Agent("a", by_turn("Hello."), middleware=guards)
    stack = [Guard(output=asks, name="a"), Guard(output=asks, name="b"), Guard(input=asks)]
    agent = Agent("a", by_turn("Hello."), middleware=stack)
    outcome, asked = agent.execute_sync("Hi."), []
    while isinstance(outcome, Interrupted):
        asked.append(outcome.requests[0].source)
        outcome = agent.resume_sync(outcome.state, outcome.decide(approve()))
    assert completed(outcome).text == "Hello."
    assert asked == ["InputGuard", "b", "a"]


def test_a_text_of_any_form_is_checked() -> None:
    model = by_turn("Hello.")
    agent = Agent("a", model, middleware=[Guard(input=lambda text, run: text.upper())])
    agent.execute_sync([TextContent("hi", metadata={"n": 1}), "you"])
    (part,) = model.requests[0].messages[0].parts
    assert isinstance(part, UserPromptPart)
    assert part.content == [TextContent("HI", metadata={"n": 1}), "YOU"]


def test_the_answer_to_a_guard_is_a_text() -> None:
    def flag(text: str, run: Run) -> Verdict:
        return Interrupt(text, schema=bool)

    def one_of(text: str, run: Run) -> Verdict:
        return Interrupt(text, schema={"enum": ["a", 5]})

    failed = Agent("a", by_turn("Hello."), middleware=[Guard(output=flag)]).execute_sync("Hi.")
    assert isinstance(failed, Failed)
    assert "must have the type 'string'" in str(failed.error)
    agent = Agent("a", by_turn("Hello."), middleware=[Guard(output=one_of)])
    asked = interrupted(agent.execute_sync("Hi."))
    with pytest.raises(DecisionError, match="5 is not of type 'string'"):
        agent.resume_sync(asked.state, asked.decide(respond(5)))
    assert completed(agent.resume_sync(asked.state, asked.decide(respond("a")))).text == "a"


def test_no_model_gets_an_empty_text_from_a_guard() -> None:
    agent = Agent("a", by_turn("Hello."), middleware=[Guard(input=lambda text, run: " ")])
    failed = agent.execute_sync("Hi.")
    assert isinstance(failed, Failed)
    assert "an empty text, which no model takes" in str(failed.error)
