"""An agent of Pydantic AI, made durable in one line: it asks, is killed in the middle, goes on.

    python -m examples.pydantic_ai_agent            it asks for a refund, and the process ends
    python -m examples.pydantic_ai_agent --crash    you approve; killed while the bank pays
    python -m examples.pydantic_ai_agent            it goes on; the money is paid once
    python -m examples.pydantic_ai_agent --new      forgets all of that

What it has paid is in pydantic_ai_agent.bank, and the agent in pydantic_ai_agent.db.
"""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext
from pydantic_ai.messages import ToolReturnPart

from understudy import Agent, Completed, Runtime, ScriptedModel, approve, call
from understudy.models import ScriptedRequest

SECONDS = 60
TICKET = "ticket-42"
STORE = "sqlite:///pydantic_ai_agent.db"
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows any signal kills at once


# 1. The agent as it was: deps, instructions, tools, an output. Nothing here knows this library, but
#    for the model, which is a script, so that it runs without a key.
@dataclass
class Bank:
    """What the tools need: it pays once for each key."""

    payments: Path = Path("pydantic_ai_agent.bank")
    crash: bool = False

    def pay(self, key: str) -> None:
        paid = self.payments.read_text().splitlines() if self.payments.exists() else []
        print("  ... the bank has paid already" if key in paid else "  ... the bank pays")
        self.payments.write_text("\n".join(dict.fromkeys([*paid, key])))
        if self.crash:
            print("  ... and this process is killed, before it has recorded that", flush=True)
            os.kill(os.getpid(), KILL)


class Answer(BaseModel):
    """What the customer is told."""

    text: str
    refunded: float


def clerk(request: ScriptedRequest) -> Any:
    """Plays the model: it refunds the order, and reports the result."""
    done = [p for m in request.messages for p in m.parts if isinstance(p, ToolReturnPart)]
    if not done:
        return call("refund", {"order_id": "17", "amount": 49.9})
    return call("final_result", {"text": done[-1].model_response_str(), "refunded": 49.9})


support = PydanticAgent(
    ScriptedModel(clerk), name="support", deps_type=Bank, output_type=Answer, retries=2
)


@support.instructions
def instructions(ctx: RunContext[Bank]) -> str:
    """Say where the payments are."""
    return f"You help customers. Payments are in {ctx.deps.payments}."


@support.tool(requires_approval=True)
def refund(ctx: RunContext[Bank], order_id: str, amount: float) -> str:
    """Pay money back."""
    # 2. The ids of the conversation and of the call are the same in each attempt at the call.
    ctx.deps.pay(f"{ctx.conversation_id}/{ctx.tool_call_id}")
    return f"refunded {amount:.2f} for order {order_id}"


def adopted() -> Agent[Bank, Answer]:
    """The same agent here. The bank pays once for a key, so its call may run again."""
    return Agent.from_pydantic_ai(support, tool_options={"refund": {"idempotent": True}})


def main() -> None:
    # 3. Deps are given by the agent's id, in each process anew: they are never stored.
    bank = Bank(crash="--crash" in sys.argv)
    with Runtime([adopted()], store=STORE, deps_for=lambda agent_id: bank) as runtime:
        if "--new" in sys.argv:
            bank.payments.unlink(missing_ok=True)
            runtime.delete(TICKET).get(timeout=SECONDS)
            print("The agent and its payments are forgotten.")
            return
        for ref in runtime.recover().get(timeout=SECONDS):
            print(f"{ref.id} was cut off when its process ended. It goes on:")
            ref.outcome().get(timeout=SECONDS)
        ref = runtime.spawn("support", id=TICKET)
        outcome = ref.run("Refund order 17.", message_id="mail-1").get(timeout=SECONDS)
        for pending in runtime.pending().get(timeout=SECONDS):
            request = pending.request
            print(f"The agent asks a person: {request.tool_name} {dict(request.arguments)}")
            if "--crash" not in sys.argv and "--approve" not in sys.argv:
                print("Nobody has answered: nothing is paid, and the agent waits.")
                return
            outcome = ref.resume({request.id: approve(by="you")}).get(timeout=SECONDS)
    assert isinstance(outcome, Completed)
    print(f"{TICKET} is answered: {outcome.output!r}")
    print(f"Payments at the bank: {len(bank.payments.read_text().splitlines())}.")


if __name__ == "__main__":
    main()
