"""A person approves a refund of an agent two levels below; the agents in between wait for it."""

import json
from typing import Any

from pydantic_ai.messages import ModelResponse

from understudy import (
    Agent,
    AgentState,
    Completed,
    Interrupted,
    ScriptedModel,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy.middleware import HumanInTheLoop, SubAgent
from understudy.models import ScriptedRequest


@tool
async def look_up(ctx: ToolContext, order_id: str) -> str:
    """What was paid for an order."""
    print(f"  ... {' > '.join(ctx.agent_path)} looks up order {order_id}")
    return "40.0 paid"


@tool
async def refund(ctx: ToolContext, order_id: str, amount: float) -> str:
    """Pay money back."""
    print(f"  ... {' > '.join(ctx.agent_path)} refunds {amount} for order {order_id}")
    return f"refunded {amount}"


def scripted(*turns: Any) -> ScriptedModel:
    """Says its n-th turn as the n-th reply of a conversation: like a real model, it keeps none."""

    def reply(request: ScriptedRequest) -> Any:
        return turns[sum(isinstance(message, ModelResponse) for message in request.messages)]

    return ScriptedModel(reply)


def make_support() -> Agent:
    # 1. The innermost agent does the work. It knows nothing of approvals.
    cashier = Agent(
        "cashier",
        scripted(
            call("look_up", {"order_id": "17"}),
            call("refund", {"order_id": "17", "amount": 40}),
            "Order 17: 40.0 are on their way.",
        ),
        description="looks up and pays",
        tools=[look_up, refund],
    )
    # 2. An agent in the middle gives it the task.
    billing = Agent(
        "billing",
        scripted(
            call("task", {"task_name": "cashier", "instructions": "Refund order 17 in full."}),
            "Refunded.",
        ),
        description="does all about money",
        middleware=[SubAgent(agents=[cashier], general_purpose=False)],
    )
    # 3. The root alone has a gate. It holds in every agent below.
    return Agent(
        "support",
        scripted(
            call("task", {"task_name": "billing", "instructions": "Order 17: refund it."}), "Done."
        ),
        middleware=[
            SubAgent(agents=[billing], general_purpose=False),
            HumanInTheLoop({"refund": True}),
        ],
    )


def main() -> None:
    # 4. The run stops before the refund. All three agents wait.
    outcome = make_support().execute_sync("Please refund order 17.")
    assert isinstance(outcome, Interrupted), outcome

    # 5. One state contains them all, as plain data: store it, and let this process end.
    stored = json.dumps(outcome.state.to_dict())

    # 6. Later, in another process: the request says which agent asks.
    state = AgentState.from_dict(json.loads(stored))
    (request,) = state.requests
    print(f"{' > '.join(request.agent_path)} wants {request.tool_name} {request.arguments}")

    print("ann approves")

    # 7. The answer reaches that agent; it continues where it was, then the others do.
    outcome = make_support().resume_sync(state, {request.id: approve(by="ann")})
    assert isinstance(outcome, Completed), outcome
    print(outcome.text)
    print(f"{outcome.usage.requests} model calls of three agents, all counted once")


if __name__ == "__main__":
    main()
