"""`runtime.tree()`: what is really there, and what is a nested run."""

from __future__ import annotations

from tests.support.loops import soon, until
from understudy import Agent, Interrupted, Runtime, ScriptedModel, Status, call, tool
from understudy.actors import AgentTree, NestedRun
from understudy.middleware import SubAgent


@tool
def refund(order_id: str) -> str:
    """Pay money back."""
    return f"refunded {order_id}"


def boss_with_gated_kid() -> Agent:
    kid = Agent(
        "kid",
        ScriptedModel([call("refund", {"order_id": "17"}), "paid"]),
        tools=[refund],
        interrupt_on={"refund": True},
        description="Pays.",
    )
    model = ScriptedModel([call("task", {"task_name": "kid", "instructions": "pay"}), "done"])
    return Agent("boss", model, middleware=[SubAgent([kid], general_purpose=False)])


async def test_a_nested_run_that_waits_for_a_person_is_shown_as_interrupted_below_its_actor() -> (
    None
):
    async with Runtime([boss_with_gated_kid()]) as runtime:
        outcome = await soon(runtime.spawn("boss", "b-1").run("go"))
        assert isinstance(outcome, Interrupted)
        tree = runtime.tree()
        (agent,) = tree.children
        assert isinstance(agent, AgentTree)
        assert (agent.id, agent.class_name, agent.restarts) == ("b-1", "AgentActor", 0)
        (nested,) = agent.nested_runs
        assert nested == NestedRun(nested.key, "kid", Status.INTERRUPTED)
        assert str(tree).splitlines() == [
            "agents (Supervisor) running",
            "└── b-1 (AgentActor) running",
            f"    └── {nested.key} (nested run of kid) interrupted",
        ]


async def test_a_passive_agent_has_no_actor_in_the_tree() -> None:
    async with Runtime([boss_with_gated_kid()]) as runtime:
        ref = runtime.spawn("boss", "b-1")
        await soon(ref.run("go"))
        await soon(ref.stop(block=False))
        await until(lambda: runtime.tree().children == ())
