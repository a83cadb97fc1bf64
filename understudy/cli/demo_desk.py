"""The agents of `understudy demo`: a support desk whose model is a script, and its tickets."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from pydantic_ai.messages import ModelResponse

from understudy import (
    Agent,
    Interrupt,
    Runtime,
    ScriptedModel,
    ToolContext,
    call,
    tool,
)
from understudy.models.scripted_model import ScriptedRequest
from understudy.outcomes import Completed

ORDERS = {
    "17": ("coffee grinder", 49.9),
    "18": ("espresso machine", 420.0),
    "19": ("milk jug", 12.5),
    "20": ("filter papers", 4.2),
}
REFUNDS = {
    "ticket-201": ("17", "My coffee grinder from order 17 came broken. Please refund it."),
    "ticket-202": ("18", "The espresso machine of order 18 leaks. I want my money back."),
    "ticket-203": ("19", "Order 19: the milk jug is chipped."),
    "ticket-204": ("20", "The filter papers of order 20 are the wrong size. Refund, please."),
}


class Courier:
    """A courier that never answers on the first day, so that its calls are in doubt then."""

    def __init__(self) -> None:
        self.answers = True
        self.asked: threading.Event = threading.Event()


@tool(
    read_only=True,
    display_text=lambda arguments: f"Looking up order {arguments['order_id']}…",
)
async def look_up(order_id: str) -> dict[str, Any]:
    """Look up an order."""
    await asyncio.sleep(0.2)
    item, paid = ORDERS[order_id]
    return {"order": order_id, "item": item, "paid": paid}


@tool(display_text=lambda arguments: f"Refunding {arguments['amount']:.2f} euros")
async def refund(order_id: str, amount: float) -> str:
    """Pay money back."""
    await asyncio.sleep(0.3)
    return f"{amount:.2f} euros of order {order_id} are refunded"


@tool(display_text="Sending the replacement…")
async def reship(order_id: str, express: bool = False) -> str:
    """Send a replacement."""
    await asyncio.sleep(0.2)
    return f"the replacement for order {order_id} is on its way{' by express' if express else ''}"


@tool(display_text="Asking the customer's address")
async def ask_address(ctx: ToolContext, order_id: str) -> str:
    """Ask somebody for the right address of an order."""
    if not ctx.resumed:
        raise Interrupt({"question": "Which address is right?", "order": order_id})
    return str(ctx.resume_value)


@tool(display_text="Booking the courier…", on_unknown="ask")
async def book_courier(ctx: ToolContext[Courier], order_id: str) -> str:
    """Book a courier who fetches a parcel."""
    ctx.deps.asked.set()
    if not ctx.deps.answers:
        await asyncio.Event().wait()
    return f"a courier fetches order {order_id} tomorrow"


def warehouse() -> Agent[Any, str]:
    """The agent inside: it sends replacements, which a person approves."""

    def script(request: ScriptedRequest) -> Any:
        replies = [call("reship", {"order_id": "17", "express": True}), "It is sent by express."]
        return replies[_turn(request) % 2]

    return Agent(
        "warehouse",
        ScriptedModel(script, name="demo"),
        "You send replacements.",
        tools=[reship],
        interrupt_on={"reship": True},
    )


@tool(display_text="Asking the warehouse…")
async def ask_warehouse(ctx: ToolContext, what: str) -> str:
    """Ask the warehouse for something."""
    outcome = await ctx.run_agent(warehouse(), what)
    return outcome.text if isinstance(outcome, Completed) else "The warehouse could not do it."


def desk() -> Agent[Any, str]:
    """The agent that customers write to."""
    return Agent(
        "support",
        ScriptedModel(_reply, name="demo"),
        "You are the support desk of a shop. A person decides about each refund.",
        tools=[look_up, refund, ask_address, book_courier, ask_warehouse],
        interrupt_on={"refund": True},
    )


def _turn(request: ScriptedRequest) -> int:
    return sum(isinstance(message, ModelResponse) for message in request.messages)


def _reply(request: ScriptedRequest) -> Any:
    """The script's reply to the last message of the customer."""
    prompt = request.prompt.lower()
    since = 0
    for message in reversed(request.messages):
        if isinstance(message, ModelResponse):
            since += 1
        elif any(part.part_kind == "user-prompt" for part in message.parts):
            break
    replies = _plan(prompt)
    return replies[min(since, len(replies) - 1)]


def _plan(prompt: str) -> list[Any]:
    order = next((number for number in ORDERS if number in prompt), "17")
    item, paid = ORDERS[order]
    looked = ["Let me look that up.", call("look_up", {"order_id": order})]
    if "replace" in prompt:
        asked = call("ask_warehouse", {"what": f"Send another {item} to order {order}."})
        return [looked, asked, "A new one is on its way, by express."]
    if "courier" in prompt or "fetch" in prompt:
        return [looked, call("book_courier", {"order_id": order}), "A courier comes tomorrow."]
    if "address" in prompt:
        return [looked, call("ask_address", {"order_id": order}), "I have noted the new address."]
    if "refund" in prompt or "money" in prompt or "chipped" in prompt:
        paying = ["I ask for your refund.", call("refund", {"order_id": order, "amount": paid})]
        return [looked, paying, f"Your {paid:.2f} euros are on their way."]
    return [looked, f"Order {order} is the {item}, for which you paid {paid:.2f} euros."]


def set_up(store: str) -> None:
    """Begin the tickets on a runtime that is cut off while the courier is asked."""
    courier = Courier()
    courier.answers = False
    runtime = Runtime([desk()], store=store, deps_for=lambda _: courier, cancel_timeout=0.5)
    with runtime:
        runtime.spawn("support", "ticket-100").run("What is order 18?").get()
        for id, (_, text) in REFUNDS.items():
            runtime.spawn("support", id).run(text).get()
        runtime.spawn("support", "ticket-301").run("Please replace the grinder of order 17.").get()
        runtime.spawn("support", "ticket-302").run("The address of order 19 is wrong.").get()
        cut_off = runtime.spawn("support", "ticket-303").run("Please fetch order 18 by courier.")
        courier.asked.wait()
        runtime.stop(timeout=0)
        assert cut_off is not None, "its call is in doubt from now on"


def new_runtime(store: str) -> Runtime:
    """The runtime that continues the tickets."""
    courier = Courier()
    return Runtime([desk()], store=store, feed=True, deps_for=lambda _: courier)
