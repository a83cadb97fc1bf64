"""`HumanInTheLoop`: which calls need a person, and what that person is shown."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.agents import (
    FakeClock,
    Stage,
    assert_valid_history,
    completed,
    interrupted,
    results,
)
from understudy import (
    Agent,
    DecisionError,
    NotInterrupted,
    Request,
    Run,
    ScriptedModel,
    ToolContext,
    UsageError,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.middleware import HumanInTheLoop, Middleware, SubAgent
from understudy.middleware.base import Next
from understudy.run.tool_call import ToolCall

ALL = ("approve", "edit", "reject", "respond")


class Shop:
    """Tools that tell what they really did."""

    def __init__(self) -> None:
        self.did: list[tuple[str, Any]] = []
        did = self.did

        @tool
        async def refund(order: str, amount: float = 5.0) -> str:
            """Refund an order."""
            did.append(("refund", (order, amount)))
            return f"refunded {order}"

        @tool
        async def lookup(order: str) -> str:
            """Look an order up."""
            did.append(("lookup", order))
            return f"found {order}"

        @tool
        def mail(to: str) -> str:
            """Send a mail."""
            did.append(("mail", to))
            return f"mailed {to}"

        self.tools = [refund, lookup, mail]


@pytest.fixture
def shop() -> Shop:
    return Shop()


def agent_with(rules: Any, **options: Any) -> Agent:
    return Agent(
        "support",
        ScriptedModel([]),
        tools=Shop().tools,
        middleware=[HumanInTheLoop(rules)],
        **options,
    )


# ------------------------------------------------------------------------ options (I1)


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        (True, ALL),
        (["approve", "reject"], ("approve", "reject")),
        (("respond",), ("respond",)),
        ({}, ALL),
        ({"allowed": ["edit"]}, ("edit",)),
        ({"when": lambda arguments, ctx: True}, ALL),
    ],
)
def test_a_rule_says_which_decisions_are_allowed(
    stage: Stage, shop: Shop, rule: Any, allowed: Sequence[str]
) -> None:
    """I1."""
    stage.cast(call("refund", {"order": "1"}), tools=shop.tools, interrupt_on={"refund": rule})
    outcome = interrupted(stage.start())
    assert outcome.requests[0].allowed == allowed
    assert stage.carried(outcome.state).requests[0].allowed == allowed
    for decision in (approve(), edit({"order": "2"}), reject(), respond("x")):
        if decision.type not in allowed:
            with pytest.raises(DecisionError, match="does not allow"):
                stage.resume(outcome, {outcome.requests[0].id: decision})
    assert shop.did == []


def test_false_means_never(stage: Stage, shop: Shop) -> None:
    """I1."""
    stage.cast(
        [call("refund", {"order": "1"}), call("mail", {"to": "a"})],
        tools=shop.tools,
        interrupt_on={"refund": False, "mail": True},
    )
    outcome = interrupted(stage.start())
    assert [request.tool_name for request in outcome.requests] == ["mail"]
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert sorted(name for name, _ in shop.did) == ["mail", "refund"]


def test_an_agent_whose_gates_are_all_false_asks_nobody(shop: Shop) -> None:
    """I1."""
    model = ScriptedModel([call("refund", {"order": "1"}), "done"])
    agent = Agent("support", model, tools=shop.tools, interrupt_on={"refund": False})
    assert completed(agent.execute_sync("go")).text == "done"
    assert shop.did == [("refund", ("1", 5.0))]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ([], "empty"),
        ((), "empty"),
        ({"allowed": []}, "empty"),
        (["aprove"], "aprove"),
        ({"allowed": ["approve", "no"]}, "'no'"),
        ({"allowed": "approve"}, "string"),
        ({"allowed": None}, "allowed"),
        ({"allowed": [3]}, "3"),
        ("approve", "approve"),
        (None, "None"),
        (1, "1"),
        ({"allow": ["approve"]}, "allow"),
        ({"when": "always"}, "when"),
        ({"display": 3}, "display"),
    ],
)
def test_a_gate_that_could_not_work_is_an_error_when_it_is_made(rule: Any, said: str) -> None:
    """I1: a gate is never silently off."""
    with pytest.raises(UsageError, match=said) as caught:
        HumanInTheLoop({"refund": rule})
    assert "refund" in str(caught.value), "the error names the culprit"
    with pytest.raises(UsageError):
        Agent("a", ScriptedModel([]), tools=Shop().tools, interrupt_on={"refund": rule})


@pytest.mark.parametrize("rule", [True, False, ["approve"]])
def test_a_gate_on_an_unknown_tool_is_an_error_when_the_agent_is_made(rule: Any) -> None:
    """I1: the name of a tool that is misspelt must not leave the tool ungated."""
    with pytest.raises(UsageError, match=r"'refnd'.*'refund'"):
        agent_with({"refnd": rule})


def test_rules_must_be_a_mapping() -> None:
    with pytest.raises(UsageError, match="mapping"):
        HumanInTheLoop(["refund"])  # type: ignore[arg-type]  # what is refused


def test_interrupt_on_and_the_middleware_together_are_an_error() -> None:
    """I1."""
    with pytest.raises(UsageError, match="both"):
        agent_with({"refund": True}, interrupt_on={"refund": True})


@pytest.mark.parametrize("seconds", [0, -1, "5", True, float("nan"), float("inf"), 10**400])
def test_an_expiry_that_is_no_time_is_an_error(seconds: Any) -> None:
    """I14."""
    with pytest.raises(UsageError, match="expires_after"):
        HumanInTheLoop({"refund": True}, expires_after=seconds)


@pytest.mark.parametrize("what", ["approve", "ignore", None])
def test_silence_approves_nothing(what: Any) -> None:
    """I14."""
    with pytest.raises(UsageError, match="on_expiry"):
        HumanInTheLoop({"refund": True}, expires_after=5, on_expiry=what)


def test_interrupt_on_is_short_for_the_middleware(stage: Stage, shop: Shop) -> None:
    """I1."""
    turn = call("refund", {"order": "1"})
    stage.cast(turn, tools=shop.tools, middleware=lambda: [HumanInTheLoop({"refund": ["reject"]})])
    long = interrupted(stage.start())
    stage.cast(turn, tools=shop.tools, interrupt_on={"refund": ["reject"]})
    short = interrupted(stage.start())
    assert long.requests[0].allowed == short.requests[0].allowed == ("reject",)
    assert completed(stage.resume(long, long.decide(reject()))).text == "done"


# ------------------------------------------------------------- what is asked (I2, I14)


def test_no_call_of_a_reply_starts_while_one_needs_a_person(stage: Stage, shop: Shop) -> None:
    """I2: not even those that need nobody; only those that do are asked, in call order."""
    stage.cast(
        [
            call("lookup", {"order": "1"}),
            call("mail", {"to": "a"}),
            call("lookup", {"order": "2"}),
            call("refund", {"order": "3"}),
        ],
        tools=shop.tools,
        interrupt_on={"refund": True, "mail": True},
    )
    outcome = interrupted(stage.start())
    assert shop.did == []
    assert results(outcome.state) == []
    assert [request.tool_name for request in outcome.requests] == ["mail", "refund"]
    assert [request.arguments for request in outcome.requests] == [
        {"to": "a"},
        {"order": "3", "amount": 5.0},
    ]
    end = completed(stage.resume(outcome, outcome.decide(approve(), approve())))
    assert sorted(shop.did, key=str) == [
        ("lookup", "1"),
        ("lookup", "2"),
        ("mail", "a"),
        ("refund", ("3", 5.0)),
    ]
    assert_valid_history(end.state)


def test_a_request_says_all_that_is_needed_to_decide(stage: Stage, shop: Shop) -> None:
    """I2, I14."""
    clock = FakeClock()
    stage.cast(
        call("refund", '{"order": "17", "amount": "3"}', id="c-1"),
        tools=shop.tools,
        interrupt_on={"refund": True},
    )
    outcome = interrupted(stage.start(clock=clock))
    for state in (outcome.state, stage.carried(outcome.state)):
        (request,) = state.requests
        assert request == outcome.requests[0]
        assert request.kind == "approval"
        assert request.agent_path == ("support",)
        assert request.tool_call_id == "c-1"
        assert request.tool_name == "refund"
        assert request.arguments == {"order": "17", "amount": 3.0}, "validated and converted"
        assert request.run_id == outcome.run_id
        assert request.created_at == clock.time
        assert request.expires_at is None
        assert request.display is None
        assert request.doubts == ()
        assert json.dumps(request.to_dict())


def test_each_request_has_an_id_of_its_own(shop: Shop, stage: Stage) -> None:
    """I2, J5: the same call twice, in one reply and in two, is four questions."""
    twice = [call("mail", {"to": "a"}), call("mail", {"to": "a"})]
    stage.cast(twice, twice, tools=shop.tools, interrupt_on={"mail": True})
    first = interrupted(stage.start())
    second = interrupted(stage.resume(first, first.decide(approve(), approve())))
    assert len({request.id for request in (*first.requests, *second.requests)}) == 4
    assert len(shop.did) == 2


def test_invalid_arguments_and_unknown_tools_bother_nobody(stage: Stage, shop: Shop) -> None:
    """I2, T2: a call that cannot run gets its error, and only the others are asked about."""
    stage.cast(
        [call("refund", {"amount": "many"}), call("refnd"), call("refund", {"order": "1"})],
        tools=shop.tools,
        interrupt_on={"refund": True},
    )
    outcome = interrupted(stage.start())
    assert [request.arguments for request in outcome.requests] == [{"order": "1", "amount": 5.0}]
    end = completed(stage.resume(outcome, outcome.decide(approve())))
    assert [part.outcome for part in results(end.state)] == ["failed", "failed", "success"]
    assert shop.did == [("refund", ("1", 5.0))]


def test_a_gate_on_a_misspelt_tool_of_an_agent_inside_names_the_tools_there() -> None:
    @tool
    def refund(x: int) -> int:
        """Refund."""
        return x

    clerk = Agent("clerk", ScriptedModel(["Done."]), tools=[refund])
    expected = r"did you mean 'refund'\?\); it has: 'task'; the agents inside it have: 'refund'"
    with pytest.raises(UsageError, match=expected):
        Agent(
            "desk",
            ScriptedModel(["Done."]),
            middleware=[SubAgent([clerk])],
            interrupt_on={"refnd": True},
        )


def test_a_gate_holds_in_every_turn(stage: Stage, shop: Shop) -> None:
    """I2: an approval releases one call, not the tool."""
    stage.cast(
        call("refund", {"order": "1"}),
        call("refund", {"order": "1"}),
        tools=shop.tools,
        interrupt_on={"refund": True},
    )
    outcome = interrupted(stage.start())
    again = interrupted(stage.resume(outcome, outcome.decide(approve())))
    assert len(shop.did) == 1
    assert again.requests[0].id != outcome.requests[0].id
    completed(stage.resume(again, again.decide(reject())))
    assert len(shop.did) == 1


# --------------------------------------------------------------------------- when (I7)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_when_says_which_calls_need_a_person(stage: Stage, shop: Shop, asynchronous: bool) -> None:
    """I7."""
    seen = []

    def plain(arguments: dict[str, Any], ctx: ToolContext) -> bool:
        seen.append((arguments["amount"], ctx.deps, ctx.tool_name))
        return bool(arguments["amount"] > 100)

    async def awaited(arguments: dict[str, Any], ctx: ToolContext) -> bool:
        return plain(arguments, ctx)

    stage.cast(
        call("refund", {"order": "1", "amount": 100}),
        call("refund", {"order": "2", "amount": 101}),
        tools=shop.tools,
        interrupt_on={"refund": {"when": awaited if asynchronous else plain}},
    )
    outcome = interrupted(stage.start(deps="shop"))
    assert shop.did == [("refund", ("1", 100.0))]
    assert [request.arguments["order"] for request in outcome.requests] == ["2"]
    completed(stage.resume(outcome, outcome.decide(approve()), deps="shop"))
    assert seen == [(100.0, "shop", "refund"), (101.0, "shop", "refund")], "once per call"


def test_the_answer_of_when_is_recorded(stage: Stage, shop: Shop) -> None:
    """I7: this process asks no `when` again; another one does, and a person, if it says so then."""
    asked = []

    def when(arguments: dict[str, Any], ctx: ToolContext) -> bool:
        asked.append(arguments["to"])
        return arguments["to"] == "a" or (arguments["to"] == "c" and len(asked) > 3)

    stage.cast(
        [call("mail", {"to": name}) for name in ("a", "b", "c")],
        tools=shop.tools,
        interrupt_on={"mail": {"when": when}},
    )
    outcome = interrupted(stage.start())
    assert [request.arguments["to"] for request in outcome.requests] == ["a"]
    after = stage.resume(outcome, outcome.decide(approve()))
    assert asked == ["a", "b", "c"] + (["b", "c"] if stage.elsewhere else [])
    if stage.elsewhere:
        assert [request.arguments["to"] for request in interrupted(after).requests] == ["c"]
        assert shop.did == []
        after = stage.resume(after, interrupted(after).decide(approve()))
    completed(after)
    assert sorted(shop.did) == [("mail", "a"), ("mail", "b"), ("mail", "c")]


def test_a_call_that_was_asked_about_stays_asked_about_when_the_gate_goes(
    stage: Stage, shop: Shop
) -> None:
    """I7: once asked, only an answer releases the call, whatever the definition says later."""
    turns = [call("mail", {"to": "a"}), call("mail", {"to": "b"})]
    stage.cast(turns, tools=shop.tools, interrupt_on={"mail": True})
    outcome = interrupted(stage.start())
    stage.cast(turns, tools=shop.tools)
    stage.agent = stage.build()
    again = interrupted(stage.resume(outcome))
    assert [request.id for request in again.requests] == [r.id for r in outcome.requests]
    assert shop.did == []
    end = completed(stage.resume(again, again.decide(reject(), approve())))
    assert shop.did == [("mail", "b")]
    assert_valid_history(end.state)


def test_when_that_raises_means_that_a_person_is_asked(
    stage: Stage, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """I7."""

    def when(arguments: dict[str, Any], ctx: ToolContext) -> bool:
        raise LookupError("the price list is gone")

    stage.cast(call("mail", {"to": "a"}), tools=shop.tools, interrupt_on={"mail": {"when": when}})
    with caplog.at_level(logging.ERROR, logger="understudy"):
        outcome = interrupted(stage.start())
    assert "price list" in caplog.text, "the host can find out"
    assert shop.did == []
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert shop.did == [("mail", "a")]


# ------------------------------------------------------------------------ display (I14)


@pytest.mark.parametrize("shown", ["Refund order 1?", {"title": "Refund", "rows": [1, 2]}])
def test_display_is_shown_beside_the_arguments(stage: Stage, shop: Shop, shown: Any) -> None:
    """I14: never instead of them."""

    async def display(arguments: dict[str, Any], ctx: ToolContext) -> Any:
        assert ctx.tool_call_id == "c1"
        return shown

    stage.cast(
        call("refund", {"order": "1"}, id="c1"),
        tools=shop.tools,
        interrupt_on={"refund": {"display": display}},
    )
    outcome = interrupted(stage.start())
    assert outcome.requests[0].display == shown
    assert outcome.requests[0].arguments == {"order": "1", "amount": 5.0}
    assert stage.carried(outcome.state).requests[0].display == shown
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert shop.did == [("refund", ("1", 5.0))]


@pytest.mark.parametrize("option", ["display", "when"])
def test_a_gate_function_cannot_change_the_arguments(stage: Stage, shop: Shop, option: str) -> None:
    """I14, I12: what hides a secret for the eye must not change what is approved and run."""

    def masking(arguments: dict[str, Any], ctx: ToolContext) -> Any:
        arguments["order"] = "***"
        return arguments

    stage.cast(
        call("refund", {"order": "4111"}),
        tools=shop.tools,
        interrupt_on={"refund": {option: masking}},
    )
    outcome = interrupted(stage.start())
    assert outcome.requests[0].arguments == {"order": "4111", "amount": 5.0}
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert shop.did == [("refund", ("4111", 5.0))]


def raising(arguments: dict[str, Any], ctx: ToolContext) -> str:
    raise LookupError("no template")


def unstorable(arguments: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
    return {"row": object()}


@pytest.mark.parametrize("display", [raising, unstorable])
def test_a_display_that_fails_keeps_nobody_from_deciding(
    stage: Stage, shop: Shop, display: Any
) -> None:
    """I14: the arguments are what counts."""
    stage.cast(
        call("mail", {"to": "a"}), tools=shop.tools, interrupt_on={"mail": {"display": display}}
    )
    outcome = interrupted(stage.start())
    assert outcome.requests[0].arguments == {"to": "a"}
    assert "display" in str(outcome.requests[0].display), "and says what went wrong"
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert shop.did == [("mail", "a")]


# ------------------------------------------------------------------------- expiry (I14)


def expiring(stage: Stage, shop: Shop, *turns: Any) -> FakeClock:
    stage.cast(
        *turns,
        tools=shop.tools,
        middleware=lambda: [
            HumanInTheLoop({"refund": True}, expires_after=60),
            HumanInTheLoop({"mail": True}),
        ],
    )
    return FakeClock()


def test_a_request_says_when_it_expires(stage: Stage, shop: Shop) -> None:
    """I14."""
    clock = expiring(stage, shop, call("refund", {"order": "1"}))
    (request,) = interrupted(stage.start(clock=clock)).requests
    assert request.expires_at is not None
    assert (request.expires_at - request.created_at).total_seconds() == 60


def test_an_answer_in_time_counts(stage: Stage, shop: Shop) -> None:
    """I14."""
    clock = expiring(stage, shop, call("refund", {"order": "1"}))
    outcome = interrupted(stage.start(clock=clock))
    clock.advance(59.999)
    completed(stage.resume(outcome, outcome.decide(approve()), clock=clock))
    assert shop.did == [("refund", ("1", 5.0))]


def test_a_late_answer_is_refused_and_the_call_counts_as_rejected(stage: Stage, shop: Shop) -> None:
    """I14."""
    clock = expiring(stage, shop, call("refund", {"order": "1"}))
    outcome = interrupted(stage.start(clock=clock))
    clock.advance(60)
    with pytest.raises(DecisionError, match="expired") as caught:
        stage.resume(outcome, outcome.decide(approve()), clock=clock)
    assert caught.value.request_id == outcome.requests[0].id
    assert shop.did == []
    end = completed(stage.resume(outcome, clock=clock))
    assert shop.did == []
    assert [part.outcome for part in results(end.state)] == ["denied"]
    (line,) = end.state.decisions
    assert (line.decision.type, line.at) == ("reject", clock.time)
    assert line.decision.origin == "expiry", "the audit tells it from a person's answer"


def test_resuming_before_the_expiry_decides_nothing(stage: Stage, shop: Shop) -> None:
    """I14: going on without an answer is no answer."""
    clock = expiring(stage, shop, call("refund", {"order": "1"}))
    outcome = interrupted(stage.start(clock=clock))
    clock.advance(59)
    again = interrupted(stage.resume(outcome, clock=clock))
    assert again.requests == outcome.requests
    assert again.state.decisions == []


def test_one_request_expires_and_another_waits_on(stage: Stage, shop: Shop) -> None:
    """I14, I4."""
    clock = expiring(stage, shop, [call("refund", {"order": "1"}), call("mail", {"to": "a"})])
    outcome = interrupted(stage.start(clock=clock))
    clock.advance(3600)
    again = interrupted(stage.resume(outcome, clock=clock))
    assert [request.tool_name for request in again.requests] == ["mail"]
    assert shop.did == []
    end = completed(stage.resume(again, again.decide(approve()), clock=clock))
    assert shop.did == [("mail", "a")]
    assert [part.outcome for part in results(end.state)] == ["denied", "success"]


def test_an_answer_beside_an_expired_request_is_taken(stage: Stage, shop: Shop) -> None:
    """I14: only the late answer is late."""
    clock = expiring(stage, shop, [call("refund", {"order": "1"}), call("mail", {"to": "a"})])
    outcome = interrupted(stage.start(clock=clock))
    clock.advance(3600)
    end = completed(stage.resume(outcome, {outcome.requests[1].id: approve()}, clock=clock))
    assert shop.did == [("mail", "a")]
    assert [part.outcome for part in results(end.state)] == ["denied", "success"]


def test_what_was_answered_in_time_does_not_expire_later(stage: Stage, shop: Shop) -> None:
    """I14: the decision stands, however long the rest takes."""
    clock = expiring(stage, shop, [call("refund", {"order": "1"}), call("mail", {"to": "a"})])
    outcome = interrupted(stage.start(clock=clock))
    again = interrupted(stage.resume(outcome, {outcome.requests[0].id: approve()}, clock=clock))
    clock.advance(3600)
    completed(stage.resume(again, again.decide(approve()), clock=clock))
    assert sorted(shop.did, key=str) == [("mail", "a"), ("refund", ("1", 5.0))]


def test_a_question_put_anew_gives_the_person_the_whole_time_again(
    stage: Stage, shop: Shop
) -> None:
    """I12, I14: answered in time, but the tool has changed since: there is time to answer anew."""
    clock = expiring(stage, shop, call("refund", {"order": "1"}))
    outcome = interrupted(stage.start(clock=clock, deps="shop"))
    waiting = stage.resume(outcome, outcome.decide(approve()), clock=clock)  # lacks its deps
    changed = Shop()
    changed.tools[0] = tool(name="refund", version="2")(changed.tools[0].function)
    expiring(stage, changed, call("refund", {"order": "1"}))
    stage.agent = stage.build()
    clock.advance(3600)
    again = interrupted(stage.resume(waiting, clock=clock, deps="shop"))
    assert changed.did == []
    completed(stage.resume(again, again.decide(approve()), clock=clock, deps="shop"))
    assert changed.did == [("refund", ("1", 5.0))]


# -------------------------------------------------------------- other middleware that asks (I9)


class Curious(Middleware):
    """Asks about every call of one tool."""

    def __init__(self, tool_name: str) -> None:
        self.tool_name = tool_name

    async def check_tool_calls(self, run: Run, calls: Sequence[ToolCall]) -> Sequence[Request]:
        return [
            call.request(kind="second_look", allowed=("approve", "reject"))
            for call in calls
            if call.tool_name == self.tool_name
        ]


@pytest.mark.parametrize("turned", [False, True])
def test_requests_stand_in_call_order_whatever_the_middleware_order(
    stage: Stage, shop: Shop, turned: bool
) -> None:
    """I9, I2."""

    def stack() -> list[Middleware]:
        both: list[Middleware] = [HumanInTheLoop({"mail": True}), Curious("refund")]
        return both[::-1] if turned else both

    stage.cast(
        [
            call("refund", {"order": "1"}),
            call("mail", {"to": "a"}),
            call("refund", {"order": "2"}),
            call("mail", {"to": "b"}),
        ],
        tools=shop.tools,
        middleware=stack,
    )
    outcome = interrupted(stage.start())
    kinds = [(request.tool_name, request.kind) for request in outcome.requests]
    assert kinds == [("refund", "second_look"), ("mail", "approval")] * 2
    end = completed(stage.resume(outcome, outcome.decide(approve(), reject(), reject(), approve())))
    assert sorted(shop.did, key=str) == [("mail", "b"), ("refund", ("1", 5.0))]
    assert [p.outcome for p in results(end.state)] == ["success", "denied", "denied", "success"]


@pytest.mark.parametrize("first", ["approve", "reject"])
def test_a_call_that_two_gates_ask_about_needs_both(stage: Stage, shop: Shop, first: str) -> None:
    """I9: one approval is not enough, and one rejection is."""
    stage.cast(
        call("mail", {"to": "a"}),
        tools=shop.tools,
        middleware=lambda: [HumanInTheLoop({"mail": True}), Curious("mail")],
    )
    outcome = interrupted(stage.start())
    one, other = outcome.requests
    decision = approve() if first == "approve" else reject()
    again = interrupted(stage.resume(outcome, {one.id: decision}))
    assert again.requests == (other,)
    assert shop.did == []
    completed(stage.resume(again, {other.id: approve()}))
    assert shop.did == ([("mail", "a")] if first == "approve" else [])


def test_an_edit_at_one_gate_is_shown_to_the_other(stage: Stage, shop: Shop) -> None:
    """I12: the second person approved other arguments than the edited ones."""
    stage.cast(
        call("mail", {"to": "a"}),
        tools=shop.tools,
        middleware=lambda: [HumanInTheLoop({"mail": True}), Curious("mail")],
    )
    outcome = interrupted(stage.start())
    again = interrupted(stage.resume(outcome, outcome.decide(edit({"to": "b"}), approve())))
    assert shop.did == []
    assert {str(request.arguments) for request in again.requests} == {"{'to': 'b'}"}
    completed(stage.resume(again, {request.id: approve() for request in again.requests}))
    assert shop.did == [("mail", "b")]


def test_two_gates_that_edit_differently_run_nothing_unseen(stage: Stage, shop: Shop) -> None:
    """I12: neither person decided for the other's arguments."""
    stage.cast(
        call("mail", {"to": "a"}),
        tools=shop.tools,
        middleware=lambda: [HumanInTheLoop({"mail": True}), HumanInTheLoop({"mail": True})],
    )
    outcome = interrupted(stage.start())
    again = stage.resume(outcome, outcome.decide(edit({"to": "b"}), edit({"to": "c"})))
    assert shop.did == []
    assert interrupted(again).requests


# ------------------------------------------------------------- what comes after the approval


class Rewriting(Middleware):
    """Gives the tool other arguments than it was called with."""

    def __init__(self, to: Any, *, in_place: bool = False) -> None:
        self.to = to
        self.in_place = in_place

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        if not self.in_place:
            return await next(call.replace({"to": self.to}))
        call.arguments["to"] = self.to
        return await next(call)


@pytest.mark.parametrize("in_place", [False, True], ids=["replaced", "in place"])
def test_arguments_changed_behind_the_approval_are_asked_again(
    stage: Stage, shop: Shop, in_place: bool
) -> None:
    """I12: compared at the innermost point, behind every middleware."""
    stage.cast(
        call("mail", {"to": "a"}),
        tools=shop.tools,
        middleware=lambda: [
            HumanInTheLoop({"mail": True}),
            Rewriting("b", in_place=in_place),
        ],
    )
    outcome = interrupted(stage.start())
    again = interrupted(stage.resume(outcome, outcome.decide(approve())))
    assert shop.did == []
    assert again.requests[0].arguments == {"to": "b"}
    assert again.requests[0].id != outcome.requests[0].id
    with pytest.raises(NotInterrupted, match="answered before"):
        stage.resume(again, {outcome.requests[0].id: reject()})
    end = completed(stage.resume(again, again.decide(approve())))
    assert shop.did == [("mail", "b")]
    assert_valid_history(end.state)


def test_arguments_that_a_middleware_leaves_alone_need_no_second_approval(
    stage: Stage, shop: Shop
) -> None:
    stage.cast(
        call("mail", {"to": "a"}),
        tools=shop.tools,
        middleware=lambda: [HumanInTheLoop({"mail": True}), Rewriting("a")],
    )
    outcome = interrupted(stage.start())
    completed(stage.resume(outcome, outcome.decide(approve())))
    assert shop.did == [("mail", "a")]


async def test_many_agents_wait_for_people_side_by_side(shop: Shop) -> None:
    """I2: what stands is in each state, not in the agent or its middleware."""
    model = ScriptedModel(
        lambda request: (
            call("mail", {"to": request.prompt}) if len(request.messages) == 1 else "done"
        )
    )
    agent = Agent("support", model, tools=shop.tools, interrupt_on={"mail": True})

    outcomes = [
        interrupted(outcome)
        for outcome in await asyncio.gather(*(agent.execute(f"u{i}") for i in range(20)))
    ]
    for outcome in outcomes:
        others = {request.id for o in outcomes if o is not outcome for request in o.requests}
        assert outcome.requests[0].id not in others
    decided = [
        outcome.decide(approve() if index % 2 else reject())
        for index, outcome in enumerate(outcomes)
    ]
    with pytest.raises(DecisionError):
        await agent.resume(outcomes[0].state, decided[1])
    ends = await asyncio.gather(
        *(agent.resume(o.state, d) for o, d in zip(outcomes, decided, strict=True))
    )
    assert all(completed(end).text == "done" for end in ends)
    assert sorted(shop.did) == sorted(("mail", f"u{i}") for i in range(1, 20, 2))
