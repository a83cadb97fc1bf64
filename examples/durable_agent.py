"""An agent that outlives its process: it asks, is killed in the middle of a refund, and goes on.

    python -m examples.durable_agent                      it asks for a refund, and the process ends
    python -m examples.durable_agent --approve --crash    you approve; killed during the refund
    python -m examples.durable_agent                      it goes on; the money is paid once
    python -m examples.durable_agent --new                forgets all of that, and starts anew

It says what it does, and what comes next. `--store postgresql://...` keeps the agent there instead
of in the file durable_agent.db.
"""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ToolReturnPart

from understudy import (
    Agent,
    Completed,
    Decision,
    Outcome,
    Request,
    Runtime,
    ScriptedModel,
    ToolContext,
    approve,
    call,
    reject,
    tool,
)
from understudy.errors import JournalFailed, UsageError
from understudy.models import ScriptedRequest

SECONDS = 60
TICKET = "ticket-42"
BANK = Path("durable_agent.bank")
COMMAND = f"{sys.orig_argv[0]} -m examples.durable_agent"  # as it was typed
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
    print("  ... the bank has paid already" if ctx.call_key in paid else "  ... the bank pays")
    BANK.write_text("\n".join(dict.fromkeys([*paid, ctx.call_key])))
    if ctx.deps["crash"]:
        print("  ... and this process is killed, before it has recorded that")
        print(f"Next, it goes on: {COMMAND}", flush=True)
        os.kill(os.getpid(), KILL)
    return f"refunded {amount:.2f} for order {order_id}"


def clerk(request: ScriptedRequest) -> Any:
    """Plays the model: it looks the order up, refunds it, and reports the result."""
    done = [p for m in request.messages for p in m.parts if isinstance(p, ToolReturnPart)]
    if not done:
        return call("look_up", {"order_id": "17"})
    if done[-1].tool_name == "look_up":
        return call("refund", {"order_id": "17", "amount": 49.9})
    if done[-1].outcome == "denied":
        return "I am sorry, order 17 is not refunded."
    return f"Done: {done[-1].model_response_str()}."


def serve(runtime: Runtime, given: argparse.Namespace) -> Outcome:
    """Continue what there is, ask a person if there is one, and return what came of it."""
    # 3. First of all: continue what was cut off. Agents with pending requests are left alone.
    for ref in runtime.recover().get(timeout=SECONDS):
        print(f"{ref.id} was cut off when its process ended. It goes on:")
        ref.outcome().get(timeout=SECONDS)

    # 4. The same message id twice is one message: a later start attaches to its run.
    ref = runtime.spawn("support", id=TICKET)
    outcome = ref.run("Refund order 17.", message_id="mail-1").get(timeout=SECONDS)

    # 5. Then the pending requests, from whatever process and however long ago.
    requests = runtime.pending().get(timeout=SECONDS)
    if given.answer and not requests:
        print(f"There is nothing to {given.answer}.")
    for pending in requests:
        decision = decide(pending.request, given)
        if decision is not None:
            answer = {pending.request.id: decision}
            outcome = runtime.get(pending.agent_id).resume(answer).get(timeout=SECONDS)
    return outcome


def decide(request: Request, given: argparse.Namespace) -> Decision | None:
    """What the options say, else what somebody at the terminal says; None if nobody does."""
    print(f"The agent asks a person: {request.tool_name} {dict(request.arguments)}")
    answer = given.answer
    if answer is None and sys.stdin.isatty():
        answer = {"y": "approve", "n": "reject"}.get(input("Approve? [y/n/later] ").strip()[:1])
    if answer is None:
        print("Nobody has answered: nothing is paid, and this process ends. The agent waits.")
        print(f"Next, answer it: {COMMAND} --approve --crash    (or without --crash; or --reject)")
        return None
    print(f"You {answer}.")
    return approve(by="you") if answer == "approve" else reject("Not now.", by="you")


def main() -> None:
    given = options()
    support = Agent(
        "support", ScriptedModel(clerk), tools=[look_up, refund], interrupt_on={"refund": True}
    )

    # 2. Tools are given `deps` by the agent's id, in each process anew: they are never stored.
    deps = {"crash": given.crash}
    with Runtime([support], store=given.store, deps_for=lambda agent_id: deps) as runtime:
        print(f"The agent {TICKET}, kept in {given.store}:")
        if given.new:
            BANK.unlink(missing_ok=True)
            runtime.delete(TICKET).get(timeout=SECONDS)
            print(f"The agent and its payments are forgotten. Next, a new one: {COMMAND}")
            return
        outcome = serve(runtime, given)
    if isinstance(outcome, Completed):
        print(f"{TICKET} is answered: {outcome.text}")
        payments = BANK.read_text().splitlines() if BANK.exists() else []
        print(f"Payments at the bank: {len(payments)}. To start anew: {COMMAND} --new")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--store", default="sqlite:///durable_agent.db", help="where it is kept")
    parser.add_argument("--crash", action="store_true", help="be killed during the refund")
    what = parser.add_mutually_exclusive_group()
    for answer in ("approve", "reject"):
        told = f"{answer} what the agent asks for"
        what.add_argument(
            f"--{answer}", dest="answer", action="store_const", const=answer, help=told
        )
    what.add_argument("--new", action="store_true", help="forget the agent and the payments")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except (UsageError, JournalFailed) as error:  # of the store: `--store`, or its database
        raise SystemExit(f"{type(error).__name__}: {error}") from None
