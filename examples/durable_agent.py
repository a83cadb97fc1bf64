"""An agent that outlives its process. Run this again and again: it continues where it was.

    python examples/durable_agent.py            it asks for a refund, and the process ends
    python examples/durable_agent.py --crash    you approve; killed in the middle of the refund
    python examples/durable_agent.py            it continues; the money is paid once

`--store postgresql://...` keeps the agent there instead of in the file durable_agent.db.
"""

import argparse
import os
import signal
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ToolReturnPart

from understudy import Agent, Interrupted, Runtime, ScriptedModel, ToolContext, approve, call, tool
from understudy.models import ScriptedRequest

SECONDS = 60
BANK = Path("durable_agent.bank")
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows any signal kills at once


@tool
def look_up(order_id: str) -> str:
    """Look an order up."""
    print("  ... looking the order up")
    return f"order {order_id}: a kettle, 49.90 paid"


# 1. `idempotent=True` declares that the same call may run again after a crash: the bank pays once
#    for each key, and the call has the same key whenever and wherever it runs. Without it the call
#    would be in doubt after a crash, and nothing would repeat it without a person.
@tool(idempotent=True)
def refund(ctx: ToolContext, order_id: str, amount: float) -> str:
    """Pay money back."""
    paid = BANK.read_text().splitlines() if BANK.exists() else []
    print("  ... that was paid already" if ctx.call_key in paid else "  ... the bank pays")
    BANK.write_text("\n".join(dict.fromkeys([*paid, ctx.call_key])))
    if ctx.deps["crash"]:
        print("  ... and now this process is killed", flush=True)
        os.kill(os.getpid(), KILL)
    return f"refunded {amount:.2f} for order {order_id}"


def clerk(request: ScriptedRequest) -> Any:
    """Plays the model: it looks the order up, refunds it, and reports the result."""
    done = [p for m in request.messages for p in m.parts if isinstance(p, ToolReturnPart)]
    if not done:
        return call("look_up", {"order_id": "17"})
    if done[-1].tool_name == "look_up":
        return call("refund", {"order_id": "17", "amount": 49.9})
    return f"Done: {done[-1].model_response_str()}."


def main() -> None:
    arguments = argparse.ArgumentParser(description="An agent that outlives its process.")
    arguments.add_argument("--store", default="sqlite:///durable_agent.db")
    arguments.add_argument("--crash", action="store_true", help="be killed during the refund")
    given = arguments.parse_args()
    support = Agent(
        "support", ScriptedModel(clerk), tools=[look_up, refund], interrupt_on={"refund": True}
    )

    # 2. Tools are given `deps` by the agent's id, in each process anew: they are never stored.
    deps = {"crash": given.crash}
    with Runtime([support], store=given.store, deps_for=lambda agent_id: deps) as runtime:
        # 3. First of all: continue what was cut off. Agents with pending requests are left alone.
        for ref in runtime.recover().get(timeout=SECONDS):
            print(f"{ref.id} was cut off and goes on")
            print(ref.outcome().get(timeout=SECONDS))

        # 4. Then the pending requests, from whatever process and however long ago.
        for pending in runtime.pending().get(timeout=SECONDS):
            print(f"you approve {pending.request.tool_name} {pending.request.arguments}")
            answer = {pending.request.id: approve(by="you")}
            print(runtime.get(pending.agent_id).resume(answer).get(timeout=SECONDS))

        # 5. The same message id twice is one message: a later start attaches to its run.
        ref = runtime.spawn("support", id="ticket-42")
        outcome = ref.run("Refund order 17.", message_id="mail-1").get(timeout=SECONDS)
        if isinstance(outcome, Interrupted):
            print("it waits for your approval: run this again, now or next week")
        else:
            print(f"{ref.id}: {len(BANK.read_text().splitlines())} payment, {outcome}")


if __name__ == "__main__":
    main()
