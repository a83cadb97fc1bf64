"""A real model drives runs, small as it is: what counts is what is recorded, not what it says."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.demo_models import problem_of_the_local_model
from tests.support.programs import ran
from understudy import (
    Agent,
    AgentState,
    Completed,
    Interrupted,
    Run,
    approve,
    respond,
    tool,
)
from understudy.middleware import AskUser, HumanInTheLoop, Middleware, ModelInput, SubAgent

if TYPE_CHECKING:
    from examples.local_model import LocalServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    if problem := problem_of_the_local_model():
        pytest.skip(problem)
    from examples.local_model import LocalServer  # loads a native library

    with LocalServer() as served:
        yield served


class OneCall(Middleware):
    """The model must call a tool, and then answer: so small a model does neither by itself."""

    async def before_model(self, run: Run, request: ModelInput) -> ModelInput:
        has_called = any(p.part_kind == "tool-return" for m in request.messages for p in m.parts)
        choice = "none" if has_called else "required"
        return request.replace(settings={**(request.settings or {}), "tool_choice": choice})


def test_the_demo_stops_for_a_person_and_another_process_refunds_what_was_approved_once(
    server: LocalServer, tmp_path: Path
) -> None:
    environment = {**os.environ, "MODEL": "local", "TMPDIR": str(tmp_path)}

    def desk(lines: str, *arguments: str) -> str:
        command = ("-m", "examples.support_desk", *arguments)
        done = ran(*command, input=lines, env=environment, is_fresh=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert "MODEL=local: SmolLM2-135M" in done.stdout
        return done.stdout

    def stored() -> tuple[AgentState, list[Any]]:
        data = json.loads(saved.read_text())
        return AgentState.from_dict(data["state"]), list(data["refunds"].values())

    found = re.search(r"--resume (\S+)$", desk(""), re.MULTILINE)  # nobody is there to decide
    assert found is not None
    saved = Path(found[1])
    waiting, refunds = stored()
    (request,) = waiting.requests
    assert (request.tool_name, request.arguments["order_id"], refunds) == ("refund", "17", [])
    assert [call.tool_name for call in calls_in(waiting)] == ["lookup_order", "refund"]

    desk("approve\n", "--resume", str(saved))

    ended, refunds = stored()
    assert refunds == [request.arguments]
    assert ended.requests == ()
    assert [record.decision.type for record in ended.decisions] == ["approve"]
    assert [call.tool_name for call in calls_in(ended)] == ["lookup_order", "refund"]


def calls_in(state: AgentState) -> list[Any]:
    return [p for m in state.messages for p in m.parts if p.part_kind == "tool-call"]


def test_an_approval_two_agents_below_is_asked_once_and_its_call_runs_once(
    server: LocalServer,
) -> None:
    paid: list[tuple[str, float]] = []

    @tool
    async def refund(order_id: str, amount: float) -> str:
        """Pay money back."""
        paid.append((order_id, amount))
        return f"refunded {amount}"

    def support() -> Agent:
        model, once = server.model(), OneCall()
        cashier = Agent("cashier", model, description="pays", tools=[refund], middleware=[once])
        below = SubAgent([cashier], general_purpose=False)
        billing = Agent("billing", model, description="does bills", middleware=[below, once])
        gate = HumanInTheLoop({"refund": True})
        return Agent(
            "support", model, middleware=[SubAgent([billing], general_purpose=False), gate, once]
        )

    before = len(server.requests)
    outcome = support().execute_sync("Please refund the 40 euros of order 17.")
    assert isinstance(outcome, Interrupted), outcome
    (request,) = outcome.requests
    assert request.agent_path == ("support", "billing", "cashier")
    assert paid == []
    assert len(server.requests) - before == outcome.usage.requests == 3

    state = AgentState.from_dict(json.loads(json.dumps(outcome.state.to_dict())))
    outcome = support().resume_sync(state, {request.id: approve(by="ann")})

    assert isinstance(outcome, Completed), outcome
    assert paid == [(request.arguments["order_id"], request.arguments["amount"])]
    assert [record.decision.by for record in outcome.state.decisions] == ["ann"]
    assert len(server.requests) - before == outcome.usage.requests == 6  # none was made again


def test_a_question_of_the_model_waits_for_a_person_and_the_answer_comes_to_the_model(
    server: LocalServer,
) -> None:
    def helper() -> Agent:
        return Agent("helper", server.model(), middleware=[AskUser(max_questions=1), OneCall()])

    outcome = helper().execute_sync("I want to send a parcel. Ask me where to.")
    assert isinstance(outcome, Interrupted), outcome
    (request,) = outcome.requests
    assert request.tool_name == "ask_user"
    (question,) = (request.schema or {})["properties"]

    outcome = helper().resume_sync(outcome.state, {request.id: respond({question: "To Ghent."})})

    assert isinstance(outcome, Completed), outcome
    assert "To Ghent." in json.dumps(server.requests[-1]["messages"][-1])
    assert outcome.usage.requests == 2
