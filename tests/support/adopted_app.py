"""An agent of Pydantic AI as hosts of a cluster run it: its factory, by name."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext

from tests.support.agents import by_turn
from understudy import Agent, call
from understudy.cluster import Definitions


class Refund(BaseModel):
    order_id: str
    cents: int


@dataclass
class Shop:
    agent_id: str
    paid: list[tuple[str, int]] = field(default_factory=list)


SHOPS: dict[str, Shop] = {}
"""The deps of each agent, in the process of its host."""


def _shop_of(agent_id: str) -> Shop:
    return SHOPS.setdefault(agent_id, Shop(agent_id))


def support() -> PydanticAgent[Shop, Refund]:
    """An agent that pays when a person approves, and says what it has paid."""
    agent = PydanticAgent(
        by_turn(
            call("pay", {"order_id": "17", "cents": 2000}),
            call("final_result", {"order_id": "17", "cents": 2000}),
        ),
        name="support",
        deps_type=Shop,
        output_type=Refund,
    )

    @agent.tool(requires_approval=True)
    def pay(ctx: RunContext[Shop], order_id: str, cents: int) -> str:
        """Pay money back."""
        ctx.deps.paid.append((order_id, cents))
        return f"paid to {ctx.deps.agent_id}"

    return agent


def supports() -> Definitions:
    return Definitions([Agent.from_pydantic_ai(support())], deps_for=_shop_of)
