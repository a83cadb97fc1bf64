"""A hundred mixed requests, as an operations team has them, for the pages of the queue."""

from __future__ import annotations

import json
from typing import Any

from pydantic_ai.messages import ModelResponse

from understudy import Agent, Interrupt, Runtime, ScriptedModel, ToolContext, call, tool
from understudy.middleware import HumanInTheLoop
from understudy.models import ScriptedRequest
from understudy.tools import OutcomeUnknown

CUSTOMERS = ("Ada Lovelace", "Grace Hopper", "Alan Turing", "Barbara Liskov", "Edsger Dijkstra")
PARAGRAPH = (
    "Thank you for your patience. We have looked into the parcel that arrived open, and the "
    "carrier has confirmed the damage. "
)


def queue_agents(done: list[tuple[str, Any]]) -> list[Agent[Any, Any]]:
    """The definitions; what tools do is added to `done`."""

    @tool(ask={"title": "Refund {amount:,.2f} {currency} to {customer}", "expires_after": 6 * 3600})
    async def refund(order_id: str, customer: str, amount: float, currency: str = "EUR") -> str:
        """Pay money back to a customer."""
        done.append(("refund", order_id))
        return "refunded"

    @tool(ask={"title": "Letter to {to}: {subject}", "expires_after": 3000})
    async def send_letter(to: str, subject: str, text: str) -> str:
        """Print and send a letter."""
        done.append(("send_letter", to))
        return "sent"

    @tool(ask={"title": "Delete {count} accounts", "expires_after": 1500})
    async def delete_accounts(count: int, names: list[str]) -> str:
        """Delete accounts for good."""
        done.append(("delete_accounts", count))
        return "deleted"

    @tool
    async def which_account(ctx: ToolContext, customer: str) -> str:
        """Ask which of the accounts of a customer is meant."""
        if ctx.resume_value is None:
            raise Interrupt(
                {"question": "Which account?", "choices": ["private", "business"]},
                title="Which account of {customer}?",
            )
        done.append(("which_account", ctx.resume_value))
        return str(ctx.resume_value)

    @tool
    async def order(lines: list[str], to: str) -> str:
        """Order something."""
        done.append(("order", to))
        return "ordered"

    @tool(on_unknown="ask")
    async def book(room: str) -> str:
        """Book a room."""
        raise OutcomeUnknown("the hotel did not answer in time")

    return [
        Agent("refunds", _calls(), tools=[refund]),
        Agent("letters", _calls(), tools=[send_letter]),
        Agent("accounts", _calls(), tools=[delete_accounts]),
        Agent("questions", _calls(), tools=[which_account]),
        Agent("rooms", _calls(), tools=[book]),
        Agent(
            "orders",
            _calls(),
            tools=[order],
            middleware=[HumanInTheLoop({"order": {"display": lambda given, _: "A new order"}})],
        ),
    ]


def _calls() -> ScriptedModel:
    """A model that makes the call which its prompt has as JSON: the tool, and the arguments."""

    def reply(request: ScriptedRequest) -> Any:
        if any(isinstance(message, ModelResponse) for message in request.messages):
            return "done"
        name, arguments = json.loads(request.prompt)
        return call(name, arguments)

    return ScriptedModel(reply)


def hundred(count: int = 100) -> list[tuple[str, str, dict[str, Any]]]:
    """Calls for so many requests: definition, tool, arguments. Each tenth is longer than a page."""
    found: list[tuple[str, str, dict[str, Any]]] = []
    for at in range(count):
        who = CUSTOMERS[at % len(CUSTOMERS)]
        if at % 10 == 3:
            lines = [f"{n}. {PARAGRAPH}" for n in range(1, 61)]
            letter = {"to": who, "subject": f"Parcel {at}", "text": "\n".join(lines)}
            found.append(("letters", "send_letter", letter))
        elif at % 10 == 6:
            found.append(("questions", "which_account", {"customer": who}))
        elif at % 20 == 9:
            names = [f"user-{at}-{n}" for n in range(8)]
            found.append(("accounts", "delete_accounts", {"count": 8, "names": names}))
        elif at % 50 == 12:
            found.append(("rooms", "book", {"room": f"R{at}"}))
        elif at % 20 == 19:
            found.append(("orders", "order", {"lines": ["lamp", "bulb"], "to": who}))
        else:
            amount = 4900.0 if at == 41 else round(20 + at * 1.37, 2)
            given = {"order_id": f"A-{1000 + at}", "customer": who, "amount": amount}
            found.append(("refunds", "refund", given))
    return found


async def fill(runtime: Runtime, count: int = 100) -> None:
    """Let agents ask so many requests."""
    for at, (definition, name, arguments) in enumerate(hundred(count)):
        ref = runtime.spawn(definition, id=f"{definition}-{at:05}")
        await ref.run(json.dumps([name, arguments]))
