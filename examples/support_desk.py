"""The support desk in the terminal: an agent needs your approval before it refunds.

    python -m examples.support_desk
    python -m examples.support_desk "Refund order 18, please"
    python -m examples.support_desk --resume support_desk_state.json

Without a terminal the decisions are read from standard input, one a line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic_ai.models import Model

from examples.demo_models import choose_model
from examples.demo_terminal import Terminal, ctrl_c_interrupts
from understudy import (
    Agent,
    AgentState,
    Completed,
    Decision,
    DecisionError,
    Failed,
    Interrupted,
    Outcome,
    Retry,
    ToolContext,
    UsageError,
    tool,
)
from understudy.journal import MemoryJournal, replay
from understudy.middleware import HumanInTheLoop

PROMPT = "My coffee grinder from order 17 came broken. Please refund it."
INSTRUCTIONS = (
    "You are the support desk of a shop. First look up the order, then refund what was paid for "
    "it. A person decides about each refund: if it is denied, do not try again. Then tell the "
    "customer in one or two sentences what was done."
)


OrderId = Annotated[str, Field(pattern=r"^[0-9]{1,6}$")]

# ---------------------------------------------------------------------------- the shop


@dataclass
class Shop:
    """What the agent acts on. It takes the place of your database and your payment service."""

    orders: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            "17": {"item": "coffee grinder", "paid": 49.9, "status": "delivered"},
            "18": {"item": "espresso machine", "paid": 420.0, "status": "delivered"},
        }
    )
    refunds: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By the key of the call that asked: the same call never refunds twice."""

    def refunded(self, order_id: str) -> float:
        made = [entry for entry in self.refunds.values() if entry["order_id"] == order_id]
        return round(sum(float(entry["amount"]) for entry in made), 2)


@tool(display_text="Looking up the order…")
async def lookup_order(ctx: ToolContext, order_id: OrderId) -> dict[str, Any]:
    """Look up an order: its item, what was paid and what was refunded already.

    Args:
        order_id: the number of the order.

    """
    shop: Shop = ctx.deps
    if order_id not in shop.orders:
        raise Retry(f"There is no order {order_id!r}.")
    return {"order_id": order_id, **shop.orders[order_id], "refunded": shop.refunded(order_id)}


# Its effect is kept under the call's key.
@tool(idempotent=True, display_text="Paying the money back…")
async def refund(ctx: ToolContext, order_id: OrderId, amount: Annotated[float, Field(gt=0)]) -> str:
    """Pay money back for an order.

    Args:
        order_id: the number of the order.
        amount: in euros, not more than what was paid.

    """
    shop: Shop = ctx.deps
    if ctx.call_key not in shop.refunds:
        if order_id not in shop.orders:
            raise Retry(f"There is no order {order_id!r}.")
        left = round(shop.orders[order_id]["paid"] - shop.refunded(order_id), 2)
        if amount > left:
            raise Retry(f"Only {left:.2f} euros of order {order_id} can be refunded.")
        shop.refunds[ctx.call_key] = {"order_id": order_id, "amount": amount}
    return f"{amount:.2f} euros of order {order_id} were refunded."


def support_agent(model: str | Model) -> Agent:
    return Agent(
        name="support",
        model=model,
        instructions=INSTRUCTIONS,
        tools=[lookup_order, refund],
        middleware=[HumanInTheLoop({"refund": True})],
        max_runs=10,
    )


# ---------------------------------------------------------------------------- the desk


class Desk:
    """One run of the agent, from the customer's message (or a saved state) to its end."""

    def __init__(self, agent: Agent, terminal: Terminal, saved: Path | None = None) -> None:
        self.agent = agent
        self.terminal = terminal
        self.shop = Shop()
        self.journal = MemoryJournal()  # keeps each fact of the run as it happens
        self.saved = saved

    def serve(self, prompt: str) -> int:
        """Answer a customer."""
        self.terminal.customer(prompt)
        return self._decide(self._stream(prompt, None, None))

    def resume(self) -> int:
        """Continue a run that was saved."""
        state = self._load()
        return self._decide(self._stream(None, state, None))

    def _stream(
        self,
        prompt: str | None,
        state: AgentState | None,
        decisions: Mapping[str, Decision] | None,
    ) -> Outcome:
        events = self.agent.stream(
            prompt, state=state, decisions=decisions, deps=self.shop, journal=self.journal
        )
        return asyncio.run(self.terminal.play(events))

    def _decide(self, outcome: Outcome) -> int:
        while isinstance(outcome, Interrupted):
            request = outcome.requests[0]  # the others stay pending, and are asked next
            decision = self.terminal.ask(request, more=len(outcome.requests) - 1)
            if decision is None:
                self.terminal.say(
                    "Nobody is here to decide, so the request stays open. Answer it at a terminal, "
                    "or by a line of standard input such as: approve",
                    "yellow",
                )
                self.save()
                return 0
            try:
                outcome = self._stream(None, outcome.state, {request.id: decision})
            except DecisionError as error:  # nothing ran, and a right answer still works
                self.terminal.say(f"That cannot be done: {error}", "red")
        return self._end(outcome)

    def _end(self, outcome: Outcome) -> int:
        for entry in self.shop.refunds.values():
            text = f"In the shop's books: order {entry['order_id']}, {entry['amount']:.2f} refunded"
            self.terminal.say(text, "bold")
        if not self.shop.refunds:
            self.terminal.say("In the shop's books: nothing refunded", "bold")
        if self.saved is not None:
            self._write(self.saved)
        if isinstance(outcome, Failed):
            self.terminal.say(f"The run failed: {outcome.error}", "red")
        return 0 if isinstance(outcome, Completed) else 1

    # ------------------------------------------------------------------ saved runs

    def save(self) -> None:
        """Save the state of the run, if it has started, and say how to continue it."""
        if self.journal.records:
            if self.saved is None:
                folder = tempfile.mkdtemp(prefix="support-desk-")
                self.saved = Path(folder, "support_desk_state.json")
            self._write(self.saved)
        if self.saved is not None:
            self.terminal.say(f"Go on any time, in a new process: {_command(self.saved)}")

    def _write(self, path: Path) -> None:
        state = replay(self.journal.records)
        data = {"state": state.to_dict(), "refunds": self.shop.refunds}
        path.write_text(json.dumps(data, indent=1), encoding="utf-8")

    def _load(self) -> AgentState:
        assert self.saved is not None
        try:
            data = json.loads(self.saved.read_text(encoding="utf-8"))
            self.shop.refunds = dict(data["refunds"])
            return AgentState.from_dict(data["state"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise UsageError(f"{self.saved} holds no saved run ({problem})") from error


def _command(saved: Path) -> str:
    words = [sys.executable, "-m", "examples.support_desk", "--resume", str(saved)]
    model = os.environ.get("MODEL")
    return (f"MODEL={shlex.quote(model)} " if model else "") + shlex.join(words)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.support_desk",
        description="A support desk: the agent needs your approval before it refunds.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("prompt", nargs="?", default=PROMPT, help="what the customer says")
    what.add_argument("--resume", type=Path, metavar="FILE", help="continue a saved run")
    arguments = parser.parse_args()
    terminal = Terminal()
    try:
        with ctrl_c_interrupts():
            return _serve(terminal, arguments.prompt, arguments.resume)
    except UsageError as error:
        terminal.say(f"{error}", "red")
        return 2
    except KeyboardInterrupt:
        return 130


def _serve(terminal: Terminal, prompt: str, saved: Path | None) -> int:
    choice = choose_model(os.environ)
    terminal.say(choice.line, "dim")
    desk = Desk(support_agent(choice.model), terminal, saved)
    try:
        return desk.resume() if saved else desk.serve(prompt)
    except KeyboardInterrupt:
        terminal.say("\nStopped.", "yellow")
        desk.save()
        return 130


if __name__ == "__main__":
    sys.exit(main())
