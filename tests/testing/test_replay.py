"""A replay of what really happened: on another definition, with the world closed."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace as dc_replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from tests.support.agents import by_turn, completed
from tests.support.replays import calls_with_results, export_of
from tests.support.scenarios import Scenario, make_agent, scenarios
from understudy import (
    Agent,
    Completed,
    Decision,
    Interrupt,
    Interrupted,
    Observer,
    Price,
    Run,
    Runtime,
    ScriptedModel,
    ToolContext,
    ToolResult,
    UsageError,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.errors import SchemaVersionError
from understudy.middleware import HumanInTheLoop, Limits, Middleware, SubAgent, ToolCall
from understudy.models import ScriptedRequest
from understudy.modes import Sequential
from understudy.testing import Effects, Replay, replay
from understudy.tools import OutcomeUnknown
from understudy.trust import Rules, approval, ask, deny, tokens, usd

EFFECTS = Effects()
"""What tools and hooks have really done in a test."""


@pytest.fixture(autouse=True)
def no_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with none."""
    monkeypatch.setattr(EFFECTS, "_effects", [])


@tool
def refund(order: str, amount: int = 90) -> str:
    """Refund an order."""
    EFFECTS.add(f"refund {order}")
    return f"refunded {amount} for {order}"


@tool(read_only=True)
def look(order: str) -> str:
    """Look an order up."""
    EFFECTS.add(f"look {order}")
    return f"{order} is paid"


REFUND = (call("look", {"order": "A1"}), call("refund", {"order": "A1"}), "It is done.")
GATE = {"refund": True}


def desk(*turns: Any, **options: Any) -> Agent[Any, Any]:
    options.setdefault("tools", [look, refund])
    return Agent("desk", by_turn(*(turns or REFUND)), "You refund orders.", **options)


def exported(
    agent: Agent[Any, Any],
    *decisions: Decision | None,
    inputs: tuple[str, ...] = ("Refund A1",),
    **options: Any,
) -> dict[str, Any]:
    """What really happened: runs of an agent, and what a person has decided in them."""
    left = list(decisions)
    with Runtime([agent], store="memory:", **options) as runtime:
        ref = runtime.spawn(agent.name, id="ticket-1")
        for input in inputs:
            outcome = ref.run(input).get()
            while isinstance(outcome, Interrupted) and left:
                decision = left.pop(0)
                if decision is None:
                    break
                outcome = ref.resume(dict.fromkeys(outcome.requests, decision)).get()
        return runtime.export(ref.id).get()


def the_difference(found: Replay) -> tuple[str, str]:
    (difference,) = found.differences
    return difference.before, difference.now


# ---------------------------------------------------------------------------- what is compared


def test_the_same_definition_has_no_difference_and_no_effect() -> None:
    """All that happens happens again; no tool has run."""
    export = exported(desk(interrupt_on=GATE), approve(by="ann"))
    done = len(EFFECTS)
    found = replay([export], agent=desk(interrupt_on=GATE))
    assert (found.differences, found.changes, found.not_replayed) == ([], [], [])
    assert (found.conversations, found.runs, found.calls) == (1, 1, 2)
    assert found.headline == "No difference in 1 run of 1 conversation"
    assert len(EFFECTS) == done


def test_a_forgotten_gate_is_the_first_line() -> None:
    """The dangerous kind: a person was asked, and nobody would be."""
    export = exported(desk(interrupt_on=GATE), approve(by="ann"))
    found = replay([export], agent=desk())
    assert str(found).splitlines()[0] == "DANGER: 1 call would now run unasked: refund (1)"
    (unasked,) = found.newly_unasked
    assert (unasked.tool, unasked.before, unasked.now) == ("refund", "asked", "unasked")
    assert unasked.decided == "approved by ann"
    assert the_difference(found) == (
        "a person is asked about refund(order='A1', amount=90)",
        "nobody is asked about refund(order='A1', amount=90)",
    )
    assert found.not_replayed == []
    assert EFFECTS.repeated() == {}


def test_a_call_that_was_rejected_is_named_first_and_its_run_ends_there() -> None:
    """What the tool would have returned is not in the record."""
    rejected = exported(desk(interrupt_on=GATE), reject("no", by="bob"))
    approved = exported(desk(interrupt_on=GATE), approve(by="ann"))
    found = replay([approved, rejected], agent=desk())
    assert "refund (2), 1 of them rejected then" in found.headline
    assert [each.decided for each in found.newly_unasked] == ["REJECTED by bob", "approved by ann"]
    (missing,) = found.not_replayed
    assert missing.why == (
        "'refund' did not run then (REJECTED by bob): its result is not in the record"
    )
    assert EFFECTS.of("refund A1") == EFFECTS.of("refund A1")[:1]


def test_a_new_gate_is_told_and_the_run_goes_on_as_if_it_were_approved() -> None:
    export = exported(desk())
    found = replay([export], agent=desk(interrupt_on=GATE))
    (asked,) = found.newly_asked
    assert (asked.before, asked.now, asked.decided) == ("unasked", "asked", "nobody was asked")
    assert found.headline.startswith("1 call asked about otherwise")
    assert the_difference(found)[1] == "a person is asked about refund(order='A1', amount=90)"
    assert found.not_replayed == []


def test_a_request_that_is_still_open_is_compared_and_ends_the_run() -> None:
    export = exported(desk(interrupt_on=GATE))
    assert replay([export], agent=desk(interrupt_on=GATE)).headline.startswith("No difference")
    found = replay([export], agent=desk())
    assert found.newly_unasked[0].decided == "nobody had decided yet"


def test_a_call_that_nobody_is_asked_about_beside_one_that_waits_is_found() -> None:
    """Neither runs yet: the reply waits for the person who is asked about the other one."""
    both = [call("refund", {"order": "A1"}), call("look", {"order": "A1"})]
    export = exported(desk(both, interrupt_on={"refund": True, "look": True}))
    found = replay([export], agent=desk(both, interrupt_on={"look": True}))
    assert [each.tool for each in found.newly_unasked] == ["refund"]
    assert the_difference(found)[1] == "nobody is asked about refund(order='A1', amount=90)"


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (edit({"order": "A1", "amount": 10}), "refunded 10 for A1"),
        (reject("not this time"), "not this time"),
        (respond("done by hand"), "done by hand"),
    ],
)
def test_each_decision_is_made_again(decision: Decision, said: str) -> None:
    """The model of the record saw this result, and so does the replay."""
    export = exported(desk(interrupt_on=GATE), decision)
    assert said in json.dumps(export)
    found = replay([export], agent=desk(interrupt_on=GATE))
    assert (found.differences, found.changes, found.not_replayed) == ([], [], [])


def test_rules_are_judged_as_gates_are() -> None:
    """By rules that the record knows nothing of, and by a record whose rules are gone."""
    then = Rules(deny("refund", name="never"))
    export = exported(desk(), rules=then)
    found = replay([export], agent=desk())
    (unasked,) = found.newly_unasked
    assert (unasked.before, unasked.decided, unasked.was_rejected) == (
        "denied",
        "a rule DENIED it",
        True,
    )
    assert replay([export], agent=desk(), rules=then).changes == []
    two = Rules(ask("refund", approval({"finance": 2}), name="two"))
    people = {"ann": ["finance"], "bob": ["finance"]}
    found = replay([exported(desk())], agent=desk(), rules=two, people=people)
    (asked,) = found.newly_asked
    assert asked.now == "asked"
    found = replay([exported(desk())], agent=desk(), rules=then)
    assert [each.change for each in found.changes] == ["newly_denied"]


def test_a_tool_that_is_gone_is_a_difference() -> None:
    found = replay([exported(desk())], agent=desk(tools=[look]))
    assert the_difference(found) == (
        "refund(order='A1', amount=90) returns 'refunded 90 for A1'",
        "refund(order='A1') fails: \"Unknown tool 'refund'. Available tools: look\"",
    )


def test_a_tool_that_refuses_the_arguments_of_then_is_a_difference() -> None:
    @tool(name="refund")
    def with_reason(order: str, reason: str) -> str:
        """Refund an order."""
        return "never called"

    found = replay([exported(desk())], agent=desk(tools=[look, with_reason]))
    assert "reason" in the_difference(found)[1]


def test_a_renamed_tool_answers_by_its_alias() -> None:
    renamed = tool(name="pay_back", aliases=["refund"])(refund.function)
    found = replay([exported(desk())], agent=desk(tools=[look, renamed]))
    assert (found.changes, found.not_replayed) == ([], [])


def test_a_difference_in_one_run_does_not_hide_those_of_the_next() -> None:
    """Each run begins with the state that it really began with."""

    def reply(request: ScriptedRequest) -> Any:
        return call("refund", {"order": request.prompt}) if not request.results else "Done."

    agent = Agent("desk", ScriptedModel(reply), tools=[refund], interrupt_on=GATE)
    export = exported(agent, approve(), approve(), approve(), inputs=("A1", "A2", "A3"))
    found = replay([export], agent=Agent("desk", ScriptedModel(reply), tools=[refund]))
    assert [each.text for each in found.newly_unasked] == [
        f"refund(order='A{number}', amount=90)" for number in (1, 2, 3)
    ]
    assert (found.runs, found.conversations, len(found.differences)) == (3, 1, 1)


def test_the_state_that_tools_have_changed_is_there_again() -> None:
    @tool
    def note(text: str) -> ToolResult[str]:
        """Note it."""
        return ToolResult("noted", state={"note": text})

    seen: list[str] = []

    def instructions(state: Any) -> str:
        seen.append(state.values.get("note", ""))
        return "You note."

    agent = Agent("desk", by_turn(call("note", {"text": "hi"}), "Done."), instructions, [note])
    export = exported(agent)
    seen.clear()
    assert replay([export], agent=agent).headline.startswith("No difference")
    assert seen == ["", "hi"]


def test_a_tool_that_failed_fails_again() -> None:
    @tool
    def broken() -> str:
        """Break."""
        EFFECTS.add("broken")
        raise RuntimeError("no such table")

    agent = desk(call("broken"), "It is broken.", tools=[broken])
    export = exported(agent)
    found = replay([export], agent=agent)
    assert (found.differences, found.not_replayed, len(EFFECTS)) == ([], [], 1)


@pytest.mark.parametrize("on_unknown", ["ask", "tell"])
@pytest.mark.parametrize("decision", [respond("it is paid"), reject("it is not"), approve()])
def test_a_call_that_was_in_doubt_is_in_doubt_again(on_unknown: Any, decision: Decision) -> None:
    """And what a person has found out about it is found out again."""

    @tool(on_unknown=on_unknown)
    def pay() -> str:
        """Pay."""
        EFFECTS.add("paid")
        if len(EFFECTS) > 1:
            return "paid at last"
        raise OutcomeUnknown("no answer")

    agent = desk(call("pay"), "Done.", tools=[pay])
    export = exported(agent, decision)
    done = len(EFFECTS)
    found = replay([export], agent=agent)
    assert (found.differences, found.not_replayed, found.calls) == ([], [], 1)
    assert len(EFFECTS) == done


def test_a_question_of_a_tool_that_was_rejected_does_not_hide_what_follows() -> None:
    @tool
    def ask_first(ctx: ToolContext) -> str:
        """Ask."""
        if not ctx.resumed:
            raise Interrupt("sure?")
        return "sure"

    def whole(**options: Any) -> Agent[Any, Any]:
        turns = (call("ask_first"), call("refund", {"order": "A1"}), "Done.")
        return desk(*turns, tools=[ask_first, refund], **options)

    export = exported(whole(interrupt_on=GATE), reject("no"), approve())
    assert replay([export], agent=whole(interrupt_on=GATE)).calls == 2
    assert [each.tool for each in replay([export], agent=whole()).newly_unasked] == ["refund"]


def test_a_limit_that_is_lower_now_is_a_difference() -> None:
    found = replay([exported(desk())], agent=desk(max_runs=2))
    before, now = the_difference(found)
    assert before == "the run of desk is completed"
    assert now.startswith("the run of desk is failed: ")


def test_the_time_is_that_of_the_record() -> None:
    """A gate that looks at the clock decides as it did then."""
    seen: list[datetime] = []

    class Hours(Middleware[Any]):
        async def check_tool_calls(self, run: Run, calls: Any) -> Any:
            seen.append(run.clock.now())
            return [each.request() for each in calls if each.tool_name == "refund"]

    export = exported(desk(middleware=[Hours()]), approve())
    then = list(seen)
    seen.clear()
    found = replay([export], agent=desk(middleware=[Hours()]))
    assert found.changes == []
    assert all(abs(b - a) < timedelta(seconds=1) for a, b in zip(then, seen, strict=True))


# ------------------------------------------------------------------------------ agents inside


def test_agents_that_a_task_runs_are_replayed_with_their_gates() -> None:
    def whole(**options: Any) -> Agent[Any, Any]:
        payer = Agent("payer", by_turn(call("refund", {"order": "A1"}), "Paid."), tools=[refund])
        task = call("task", {"task_name": "payer", "instructions": "pay A1"})
        return desk(
            task,
            "Done.",
            tools=[],
            middleware=[SubAgent([payer], general_purpose=False)],
            **options,
        )

    export = exported(whole(interrupt_on=GATE), approve())
    assert replay([export], agent=whole(interrupt_on=GATE)).headline.startswith("No difference")
    found = replay([export], agent=whole())
    (unasked,) = found.newly_unasked
    assert unasked.agent_path == ("desk", "payer")
    assert EFFECTS.repeated() == {}


def test_agents_that_a_tool_runs_itself_are_left_out_and_no_difference() -> None:
    """Its body is closed, so what it returned is played, and its agent with it."""
    payer = Agent("payer", by_turn(call("refund", {"order": "A1"}), "Paid."), tools=[refund])

    @tool
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        return completed(await ctx.run_agent(payer, "pay")).text

    agent = desk(call("pay"), "Done.", tools=[pay])
    found = replay([exported(agent)], agent=agent)
    assert found.differences == []
    (left_out,) = found.not_replayed
    assert "the agent that 'pay' ran itself" in left_out.why
    assert EFFECTS.repeated() == {}


def test_a_workflow_is_replayed() -> None:
    def whole(gate: Any = None) -> Agent[Any, Any]:
        first = Agent("first", by_turn(call("look", {"order": "A1"}), "Paid."), tools=[look])
        second = Agent("second", ScriptedModel(_second), tools=[refund], interrupt_on=gate)
        return Agent("desk", mode=Sequential([first, second]))

    def _second(request: ScriptedRequest) -> Any:
        return "Done." if request.results else call("refund", {"order": "A1"})

    export = exported(whole(GATE), approve())
    found = replay([export], agent=whole(GATE))
    assert (found.differences, found.changes, found.not_replayed) == ([], [], [])
    (unasked,) = replay([export], agent=whole()).newly_unasked
    assert unasked.agent_path == ("desk", "second")


# ---------------------------------------------------------------------------- the world is closed


class Reaches(Middleware[Any]):
    """A middleware whose hook reaches out, and swallows the error."""

    def __init__(self, reach: Callable[[], Any], *, plain: bool = False) -> None:
        self._reach = reach
        self._plain = plain

    async def before_model(self, run: Run, request: Any) -> Any:
        try:
            self._reach()
        except OSError:
            EFFECTS.add("stopped")


def _connect() -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", 1))


@pytest.mark.parametrize(
    ("reach", "said"),
    [
        (_connect, "connect to 127.0.0.1:1"),
        (lambda: socket.getaddrinfo("example.invalid", 80), "look up the host example.invalid"),
        (lambda: subprocess.run(["true"], check=True), "start "),
        (lambda: Path("left_behind.txt").write_text("x"), "write left_behind.txt"),
        (lambda: Path("left_behind.txt").unlink(missing_ok=True), "remove left_behind.txt"),
    ],
)
def test_a_hook_reaches_nothing_and_the_report_says_what_it_tried(
    reach: Callable[[], Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    export = exported(desk())
    found = replay([export], agent=desk(middleware=[Reaches(reach)]))
    (missing,) = found.not_replayed
    assert f"code of the agent tried to {said}" in missing.why
    assert EFFECTS.of("stopped")
    assert list(tmp_path.iterdir()) == []


def test_a_plain_hook_in_its_thread_is_closed_too() -> None:
    class Plain(Middleware[Any]):
        def before_model(self, run: Run, request: Any) -> Any:
            _connect()

    found = replay([exported(desk())], agent=desk(middleware=[Plain()]))
    assert "connect to 127.0.0.1:1" in found.not_replayed[0].why


def test_other_threads_are_not_closed() -> None:
    """During a replay, the rest of the process reaches what it wants."""
    done: list[str] = []

    class Meanwhile(Middleware[Any]):
        async def before_model(self, run: Run, request: Any) -> Any:
            asked.set()
            answered.wait(30)

    asked, answered = threading.Event(), threading.Event()

    def elsewhere() -> None:
        asked.wait(30)
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            done.append("bound")
        answered.set()

    export = exported(desk())
    other = threading.Thread(target=elsewhere)
    other.start()
    found = replay([export], agent=desk(middleware=[Meanwhile()]))
    other.join(30)
    assert (done, found.not_replayed) == (["bound"], [])


class Audit(Middleware[Any]):
    """A middleware that does something once in a run."""

    def __init__(self, key: str = "audit") -> None:
        self._key = key

    async def on_run_start(self, run: Run) -> None:
        value = await run.once(self._key, self._audit)
        EFFECTS.add(f"value {value}")

    def _audit(self) -> int:
        EFFECTS.add(self._key)
        return len(EFFECTS)


def test_what_a_hook_does_once_comes_from_the_record() -> None:
    export = exported(desk(middleware=[Audit()]))
    found = replay([export], agent=desk(middleware=[Audit()]))
    assert (found.differences, found.not_replayed) == ([], [])
    assert (len(EFFECTS.of("audit")), len(EFFECTS.of("value 1"))) == (1, 2)


def test_what_a_hook_would_do_for_the_first_time_is_not_done() -> None:
    export = exported(desk())
    found = replay([export], agent=desk(middleware=[Audit("new")]))
    (missing,) = found.not_replayed
    assert "'new' once" in missing.why
    assert not EFFECTS.of("new")


def test_a_model_that_a_hook_asks_answers_from_the_record() -> None:
    other = ScriptedModel(["short"])

    class Asks(Middleware[Any]):
        async def on_run_start(self, run: Run) -> None:
            EFFECTS.add(await run.ask_model("sum", "Summarise", other))

    agent = desk(middleware=[Asks()])
    found = replay([exported(agent)], agent=agent)
    assert (found.not_replayed, len(EFFECTS.of("short")), len(other.requests)) == ([], 2, 1)


def test_checks_are_not_asked_and_people_are_not_looked_up() -> None:
    def nobody(*_: Any) -> Any:
        raise AssertionError("it was asked")

    checked = tool(name="refund", check=nobody)(refund.function)
    found = replay([exported(desk())], agent=desk(tools=[look, checked]), people=nobody)
    assert (found.differences, found.not_replayed) == ([], [])


def test_middleware_around_a_tool_sees_the_recorded_result() -> None:
    class Hides(Middleware[Any]):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Any) -> Any:
            await next(call)
            return "hidden"

    found = replay([exported(desk())], agent=desk(middleware=[Hides()]))
    assert the_difference(found)[1] == "look(order='A1') returns 'hidden'"
    assert found.not_replayed == []


# ------------------------------------------------------------------------------ a real model


def _priced(*parts: Any) -> ModelResponse:
    return ModelResponse(
        parts=list(parts),
        usage=RequestUsage(input_tokens=1_000_000, output_tokens=0),
        model_name="scripted",
    )


PRICES = {"scripted": Price(input=1, output=1)}


def _asks_for(*names: str) -> Any:
    calls = [_priced(ToolCallPart(name, {"order": "A1"}, tool_call_id=name)) for name in names]
    return [*calls, _priced(TextPart("It is done."))]


def test_a_model_is_asked_and_tools_answer_to_calls_that_were_made() -> None:
    """In another order, and other calls left out."""
    model = ScriptedModel(_asks_for("refund"))
    agent = Agent("desk", model, tools=[look, refund])
    export = exported(desk(interrupt_on=GATE), approve())
    found = replay([export], agent=agent, ask_model=True, budget=usd(5), pricing=PRICES)
    assert len(model.requests) == 2
    assert [each.tool for each in found.newly_unasked] == ["refund"]
    assert the_difference(found) == ("desk calls look", "desk calls refund")
    assert (found.cost_now.usd, found.cost_now.replies) == (Decimal(2), 2)
    assert EFFECTS.repeated() == {}
    assert found.not_replayed == []


def test_a_call_that_was_never_made_is_not_in_the_record() -> None:
    model = ScriptedModel([call("refund", {"order": "B7"}), "never asked"])
    agent = Agent("desk", model, tools=[look, refund])
    found = replay([exported(desk())], agent=agent, ask_model=True, budget=tokens(1000))
    assert "'refund' was not called so" in found.not_replayed[0].why
    assert (len(model.requests), EFFECTS.of("refund B7")) == (1, ())


def test_a_budget_ends_the_replay() -> None:
    model = ScriptedModel(lambda request: _priced(ToolCallPart("look", {"order": "A1"}, "1")))
    agent = Agent("desk", model, tools=[look, refund])
    exports = [exported(desk()), exported(desk())]
    found = replay(exports, agent=agent, ask_model=True, budget=usd(1), pricing=PRICES)
    assert len(model.requests) == 1
    assert {each.why for each in found.not_replayed} == {"the budget of the replay is used up"}
    assert found.cost_now.usd == 1


def test_a_reply_of_unknown_cost_ends_a_replay_with_a_budget_in_usd() -> None:
    unpriced = ModelResponse(parts=[TextPart("Hi.")], model_name="another one")
    agent = Agent("desk", ScriptedModel([unpriced, "never asked"]), tools=[look, refund])
    found = replay([exported(desk())], agent=agent, ask_model=True, budget=usd(1), pricing=PRICES)
    assert "is not known" in found.not_replayed[0].why


def test_a_model_without_a_price_is_refused_before_anything_is_asked() -> None:
    model = ScriptedModel(["never asked"])
    with pytest.raises(UsageError, match="needs to know what it costs"):
        replay([exported(desk())], agent=Agent("desk", model), ask_model=True, budget=usd(1))
    assert model.requests == []


def test_a_limit_of_costs_counts_what_the_recorded_replies_cost() -> None:
    """The middleware sees the cost of the record, though no model is asked."""
    model = ScriptedModel(_asks_for("look", "refund"))
    agent = Agent("desk", model, tools=[look, refund])
    export = exported(agent, pricing=PRICES)
    limited = Agent(
        "desk", model, tools=[look, refund], middleware=[Limits(max_cost=2, pricing=PRICES)]
    )
    found = replay([export], agent=limited, pricing=PRICES)
    assert the_difference(found)[1] == "the run of desk is stopped: cost_limit"
    assert found.cost_before.usd == 3
    assert found.cost_now.usd == 0


# ------------------------------------------------------------------------------ what is read


def test_only_runs_since_a_time_are_replayed() -> None:
    export = exported(desk())
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    found = replay([export], agent=desk(), since=later)
    assert (found.runs, found.conversations, str(found).splitlines()[0]) == (
        0,
        0,
        "Nothing was replayed.",
    )
    with pytest.raises(UsageError, match="zone"):
        replay([export], agent=desk(), since=datetime(2026, 1, 1))


def test_a_store_is_read_and_not_changed(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    agent = desk(interrupt_on=GATE)
    with Runtime([agent], store=store) as runtime:
        runtime.spawn("desk", id="t").run("Refund A1").get()
    before = (tmp_path / "store.db").read_bytes()
    with Observer(store) as observer:
        found = replay([observer.export("t").get()], agent=desk())
    assert found.newly_unasked
    assert (tmp_path / "store.db").read_bytes() == before


def test_a_conversation_whose_beginning_was_compacted_says_so() -> None:
    agent = desk()
    with Runtime([agent], store="memory:") as runtime:
        ref = runtime.spawn("desk", id="t")
        ref.run("Refund A1").get()
        runtime.compact("t").get()
        ref.run("And now?").get()
        export = runtime.export("t").get()
    found = replay([export], agent=agent)
    assert [each.why for each in found.not_replayed] == [
        "conversations whose earlier runs were compacted"
    ]
    assert (found.runs, found.differences) == (1, [])


def test_bad_exports_are_refused() -> None:
    export = exported(desk())
    other = Agent("shop", by_turn("hi"))
    with pytest.raises(UsageError, match=r"of an agent 'desk', and 'shop' is tried"):
        replay([export], agent=other)
    with pytest.raises(SchemaVersionError):
        replay([{**export, "export_version": 99}], agent=desk())
    with pytest.raises(UsageError, match="not an exported agent"):
        replay([{"messages": []}], agent=desk())
    with pytest.raises(UsageError, match="damaged"):
        replay([{**export, "records": [{"kind": "reply"}]}], agent=desk())
    with pytest.raises(UsageError, match="takes exports"):
        replay("ticket-1", agent=desk())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="takes an Agent"):
        replay([export], agent="desk")  # type: ignore[arg-type]


def test_wrong_options_are_refused() -> None:
    export = exported(desk())
    with pytest.raises(UsageError, match="how much at most"):
        replay([export], agent=desk(), ask_model=True)
    with pytest.raises(UsageError, match="ask_model=True"):
        replay([export], agent=desk(), budget=usd(1))
    with pytest.raises(UsageError, match="Rules"):
        replay([export], agent=desk(), rules=[])  # type: ignore[arg-type]


async def test_it_works_where_a_loop_runs() -> None:
    agent = desk()
    async with Runtime([agent], store="memory:") as runtime:
        ref = runtime.spawn("desk", id="t")
        assert isinstance(await ref.run("Refund A1"), Completed)
        export = await runtime.export("t")
    assert replay([export], agent=agent).runs == 1


def test_the_report_is_plain_data_and_fits_a_terminal() -> None:
    export = exported(desk(interrupt_on=GATE), reject("no", by="bob"))
    found = replay([export], agent=desk())
    data = json.loads(json.dumps(found.to_dict()))
    (unasked,) = data["changes"]["newly_unasked"]
    assert (unasked["tool"], unasked["was_rejected"]) == ("refund", True)
    assert data["differences"][0]["agent_id"] == "ticket-1"
    assert max(map(len, str(found).splitlines())) <= 80


def test_a_failed_run_that_was_retried_is_replayed() -> None:
    replies: list[Any] = [call("look", {"order": "A1"}), ConnectionError("away"), "Done."]
    agent = Agent("desk", ScriptedModel(replies), tools=[look])
    with Runtime([agent], store="memory:") as runtime:
        ref = runtime.spawn("desk", id="t")
        ref.run("go").get()
        ref.retry().get()
        export = runtime.export("t").get()
    found = replay([export], agent=desk(tools=[look]))
    assert (found.runs, found.differences) == (2, [])


def test_a_message_that_came_while_it_ran_comes_again() -> None:
    started, may_go_on = threading.Event(), threading.Event()

    @tool
    def wait() -> str:
        """Wait."""
        started.set()
        may_go_on.wait(30)
        return "waited"

    said: list[int] = []

    def reply(request: ScriptedRequest) -> Any:
        return "Done." if request.results or len(request.messages) > 1 else call("wait")

    agent = Agent("desk", ScriptedModel(reply), tools=[wait])
    with Runtime([agent], store="memory:") as runtime:
        ref = runtime.spawn("desk", id="t")
        run = ref.run("go")
        started.wait(30)
        ref.send("Hurry up", steer=True).get()
        may_go_on.set()
        run.get()
        export = runtime.export("t").get()

    class Counts(Middleware[Any]):
        async def before_model(self, run: Run, request: Any) -> Any:
            said.append(str(list(request.messages)).count("Hurry up"))

    found = replay(
        [export], agent=Agent("desk", ScriptedModel(reply), tools=[wait], middleware=[Counts()])
    )
    assert (found.differences, said) == ([], [0, 1])


def test_a_gate_of_grants_is_replayed_with_the_grants_of_then() -> None:
    def reply(request: ScriptedRequest) -> Any:
        return call("refund", {"order": request.prompt}) if not request.results else "Done."

    gated = Agent("desk", ScriptedModel(reply), tools=[refund], middleware=[HumanInTheLoop(GATE)])
    export = exported(gated, approve(always=True), inputs=("A1", "A2"))
    found = replay([export], agent=gated)
    assert (found.runs, found.changes, found.differences) == (2, [], [])


# ------------------------------------------------------------------------------ runs of all kinds


def without(scenario: Scenario, *parts: str) -> Scenario:
    return dc_replace(scenario, stack=tuple(each for each in scenario.stack if each not in parts))


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(scenarios)
def test_whatever_happened_happens_again(scenario: Scenario) -> None:
    """Of the same definition there is no difference, nothing is left out, and no tool runs."""
    scenario = without(scenario, "unanswered")  # an ask that failed is in no record
    ran: list[str] = []
    export = export_of(scenario)
    found = replay([export], agent=make_agent(scenario, ran))
    assert (found.differences, found.changes, found.not_replayed, ran) == ([], [], [], [])
    results = calls_with_results(export)
    assert found.calls == len(results)  # none is passed over without a word


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(scenarios.filter(lambda scenario: "gate" in scenario.stack))
def test_whatever_happened_a_gate_that_is_gone_is_found(scenario: Scenario) -> None:
    scenario = without(scenario, "unanswered")
    export = export_of(scenario)
    asked = '"kind": "approval"' in json.dumps(export)
    found = replay([export], agent=make_agent(without(scenario, "gate"), []))
    assert bool(found.newly_unasked) == asked
    assert {each.tool for each in found.newly_unasked} <= {"gated"}
