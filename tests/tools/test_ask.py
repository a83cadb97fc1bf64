"""`@tool(ask=...)`: the tool itself says that it needs a person (I20)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import Stage, by_turn, completed, interrupted, reloaded, results
from tests.support.cut_off import Crash, Disk, told
from tests.support.places import Place
from understudy import (
    Agent,
    Runtime,
    Tool,
    ToolContext,
    UsageError,
    approve,
    call,
    edit,
    reject,
    tool,
)
from understudy.middleware import HumanInTheLoop, SubAgent
from understudy.modes import AgentExecution
from understudy.modes.workflows.sequential import Sequential

ALL = ("approve", "edit", "reject", "respond")


def payment(did: list[int], **options: Any) -> Tool:
    async def pay(amount: int) -> str:
        """Pay."""
        did.append(amount)
        return f"paid {amount}"

    return Tool(pay, **{"ask": True, **options})


def test_a_tool_that_asks_runs_when_a_person_has_approved_it(stage: Stage) -> None:
    """I20."""
    did: list[int] = []
    stage.cast(call("pay", {"amount": 5}), tools=[payment(did)])
    outcome = interrupted(stage.start())
    (request,) = outcome.requests
    assert (request.kind, request.tool_name, request.allowed) == ("approval", "pay", ALL)
    assert did == []
    ended = completed(stage.resume(outcome, {request.id: approve()}))
    assert did == [5]
    assert ended.text == "done"


def test_a_decision_is_as_that_of_any_gate(stage: Stage) -> None:
    did: list[int] = []
    stage.cast([call("pay", {"amount": n}) for n in (1, 2)], tools=[payment(did)])
    outcome = interrupted(stage.start())
    ended = completed(
        stage.resume(outcome, outcome.decide(edit({"amount": 3}), reject("too much")))
    )
    assert did == [3]
    assert [part.outcome for part in results(ended.state)] == ["success", "denied"]


def test_the_tool_says_which_decisions_are_allowed_and_when_it_asks(stage: Stage) -> None:
    did: list[int] = []
    rule = {
        "allowed": ["approve", "reject"],
        "when": lambda arguments, _ctx: arguments["amount"] > 100,
        "display": lambda arguments, _ctx: f"pays {arguments['amount']}",
        "remind_after": 60,
        "expires_after": 600,
    }
    stage.cast([call("pay", {"amount": n}) for n in (5, 500)], tools=[payment(did, ask=rule)])
    (request,) = interrupted(stage.start()).requests
    assert request.arguments == {"amount": 500}
    assert request.allowed == ("approve", "reject")
    assert request.display == "pays 500"
    assert request.expires_at is not None
    assert (request.expires_at - request.created_at).total_seconds() == 600
    assert len(request.remind_at) == 1


@pytest.mark.parametrize("asks", [True, ["approve"]])
def test_the_rule_of_a_gate_that_names_the_tool_decides(stage: Stage, asks: Any) -> None:
    """I20."""
    did: list[int] = []
    stage.cast(
        call("pay", {"amount": 5}),
        tools=[payment(did, ask=asks)],
        interrupt_on={"pay": ["approve", "reject"]},
    )
    (request,) = interrupted(stage.start()).requests
    assert request.allowed == ("approve", "reject")


@pytest.mark.parametrize("rule", [False, {"when": lambda _arguments, _ctx: False}])
def test_a_gate_that_needs_nobody_for_the_tool_decides_too(stage: Stage, rule: Any) -> None:
    """I20."""
    did: list[int] = []
    stage.cast(call("pay", {"amount": 5}), tools=[payment(did)], interrupt_on={"pay": rule})
    completed(stage.start())
    assert did == [5]


def test_a_gate_that_names_other_tools_leaves_it_alone(stage: Stage) -> None:
    did: list[int] = []
    other = Tool(lambda: "ok", name="other")
    stage.cast(
        [call("pay", {"amount": 5}), call("other", {})],
        tools=[payment(did), other],
        interrupt_on={"other": True},
    )
    assert {r.tool_name for r in interrupted(stage.start()).requests} == {"pay", "other"}


def test_a_grant_holds_whichever_gate_asked(stage: Stage) -> None:
    did: list[int] = []
    stage.cast(*[call("pay", {"amount": n}) for n in (1, 2)], tools=[payment(did)])
    outcome = interrupted(stage.start())
    completed(stage.resume(outcome, outcome.decide(approve(always=True))))
    assert did == [1, 2]


def child_of(did: list[int]) -> Agent:
    return Agent("teller", by_turn(call("pay", {"amount": 5})), tools=[payment(did)])


@pytest.mark.parametrize(
    ("rule", "allowed"), [(None, ALL), (["approve"], ("approve",)), (False, None)]
)
def test_inside_another_agent_it_asks_unless_a_gate_above_decides(
    rule: Any, allowed: tuple[str, ...] | None
) -> None:
    did: list[int] = []
    above = [HumanInTheLoop({"pay": rule})] if rule is not None else []
    bank = Agent(
        "bank",
        by_turn(call("task", {"task_name": "teller", "instructions": "pay"})),
        middleware=[SubAgent(agents=[child_of(did)]), *above],
    )
    outcome = bank.execute_sync("go")
    if allowed is not None:
        (request,) = interrupted(outcome).requests
        assert (request.agent_path, request.allowed) == (("bank", "teller"), allowed)
        outcome = bank.resume_sync(reloaded(outcome.state), {request.id: approve()})
    completed(outcome)
    assert did == [5]


def test_an_agent_of_a_workflow_asks() -> None:
    did: list[int] = []
    flow = Agent("flow", None, mode=Sequential([child_of(did)]))
    outcome = interrupted(flow.execute_sync("go"))
    completed(flow.resume_sync(reloaded(outcome.state), outcome.decide(approve())))
    assert did == [5]


def test_an_agent_that_a_tool_runs_asks() -> None:
    did: list[int] = []

    @tool
    async def delegate(ctx: ToolContext) -> str:
        """Delegate."""
        outcome = await ctx.run_agent(child_of(did), "pay")
        return outcome.explain()

    agent = Agent("boss", by_turn(call("delegate", {})), tools=[delegate])
    outcome = interrupted(agent.execute_sync("go"))
    completed(agent.resume_sync(reloaded(outcome.state), outcome.decide(approve())))
    assert did == [5]


async def test_it_asks_in_every_store_and_after_a_crash(place: Place) -> None:
    did: list[int] = []

    def agent() -> Agent:
        return Agent("bank", by_turn(call("pay", {"amount": 5})), tools=[payment(did)])

    async with Runtime([agent()], store=place.store()) as runtime:
        interrupted(await runtime.spawn("bank", "b").run("go"))
        await runtime.get("b").stop(block=False)
        (pending,) = await runtime.pending()
        assert pending.request.tool_name == "pay"
    async with Runtime([agent()], store=place.after_crash()) as runtime:
        (pending,) = await runtime.pending()
        completed(await runtime.get("b").resume({pending.request.id: approve()}))
    assert did == [5]


def test_a_run_cut_off_anywhere_asks_once_and_runs_the_tool_once() -> None:
    def agent(did: list[int]) -> Agent:
        return Agent(
            "bank", by_turn(call("pay", {"amount": 5})), tools=[payment(did, idempotent=True)]
        )

    undisturbed: list[int] = []
    disk = Disk()
    outcome = interrupted(agent(undisturbed).execute_sync("go", journal=disk))
    agent(undisturbed).resume_sync(outcome.state, outcome.decide(approve()), journal=disk)
    for limit in range(1, len(disk.lines)):
        did: list[int] = []
        cut = Disk(limit)
        try:
            outcome = interrupted(agent(did).execute_sync("go", journal=cut))
            agent(did).resume_sync(outcome.state, outcome.decide(approve()), journal=cut)
        except Crash:
            cut.limit = None
        again = agent(did).resume_sync(cut.load(), None, journal=cut)
        while not did:
            asked = interrupted(again)
            assert len(asked.requests) == 1
            again = agent(did).resume_sync(asked.state, asked.decide(approve()), journal=cut)
        assert told(again)["text"] == "done"


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        ([], "empty"),
        (["aprove"], "'aprove'"),
        ("approve", "True, False, a list|takes a list"),
        ({"alowed": ["approve"]}, "'alowed'"),
        ({"when": True}, "`when` must be a function"),
        ({"expires_after": -1}, "`expires_after`"),
        (1, "must be True, False"),
        (lambda _arguments, _ctx: True, 'write {"when": function}'),
        (None, "must be True, False"),
    ],
)
def test_what_cannot_be_the_rule_of_a_tool_is_refused_at_once(ask: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why) as raised:
        payment([], ask=ask)
    assert "Tool 'pay': `ask`" in str(raised.value)


def test_a_mode_that_would_never_ask_is_refused() -> None:
    mode = AgentExecution().without("check_interrupts")
    with pytest.raises(UsageError, match="check_interrupts"):
        Agent("bank", by_turn(), tools=[payment([])], mode=mode)


def test_who_asks_is_part_of_the_fingerprint_of_the_definition() -> None:
    def fingerprint(**options: Any) -> str:
        return Agent("bank", by_turn(), tools=[payment([], **options)]).definition.fingerprint

    plain = fingerprint(ask=False)
    assert fingerprint() != plain
    assert fingerprint(ask=["approve"]) == fingerprint()  # as of other gates: not its options
    assert payment([]).fingerprint == payment([], ask=False).fingerprint  # approvals stay bound
