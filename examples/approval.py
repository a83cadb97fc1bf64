"""A person decides which refunds run, perhaps days later and in another process."""

import json

from understudy import (
    Agent,
    AgentState,
    Completed,
    Interrupted,
    ScriptedModel,
    approve,
    call,
    edit,
    reject,
    tool,
)
from understudy.middleware import HumanInTheLoop


@tool
async def refund(order_id: str, amount: float) -> str:
    """Pay money back."""
    print(f"  ... refunding {amount} for order {order_id}")
    return f"refunded {amount}"


def make_agent() -> Agent:
    # 1. Three refunds in one reply, then a summary. The gate holds every call of `refund`.
    model = ScriptedModel(
        [
            [
                call("refund", {"order_id": "17", "amount": 20}),
                call("refund", {"order_id": "18", "amount": 900}),
                call("refund", {"order_id": "19", "amount": 40}),
            ]
        ]
    )
    return Agent("support", model, tools=[refund], middleware=[HumanInTheLoop({"refund": True})])


def make_agent_elsewhere() -> Agent:
    # The same agent, as another process would make it: its model is asked for the summary alone.
    model = ScriptedModel(["Order 17 is refunded, 18 in part, 19 was declined."])
    return Agent("support", model, tools=[refund], middleware=[HumanInTheLoop({"refund": True})])


def main() -> None:
    # 2. The run stops before any of them starts.
    outcome = make_agent().execute_sync("Refund orders 17, 18 and 19, please.")
    assert isinstance(outcome, Interrupted), outcome
    print(outcome.explain())

    # 3. The state is plain data: store it anywhere, and let this process end.
    stored = json.dumps(outcome.state.to_dict())

    # 4. Later: the state lists the pending requests, so a person can be asked from it alone.
    state = AgentState.from_dict(json.loads(stored))
    for request in state.requests:
        print(f"  {request.tool_name} {request.arguments}")
    first, second, third = (request.id for request in state.requests)

    # 5. One answer for each request: run it, run it with other arguments, do not run it.
    decisions = {
        first: approve(by="ann"),
        second: edit({"order_id": "18", "amount": 90}, by="ann", note="90, not 900"),
        third: reject("Order 19 was never paid.", by="ann"),
    }

    # 6. The run continues exactly where it stopped.
    print("Ann approves the first, changes the second to 90, and rejects the third:")
    outcome = make_agent_elsewhere().resume_sync(state, decisions)
    assert isinstance(outcome, Completed), outcome
    print(outcome.text)

    # 7. Who decided what is kept with the state.
    print("Who decided what:")
    for record in outcome.state.decisions:
        ran_with = record.decision.arguments or record.request.arguments
        print(f"  {record.decision.by}: {record.decision.type} {ran_with}")


if __name__ == "__main__":
    main()
