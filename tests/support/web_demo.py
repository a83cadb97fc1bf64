"""A support desk with everything that the pages show: for pictures, and for checks of each page."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

from tests.support.agents import by_turn
from tests.support.web_site import ORDER, Done, desk, noting, refund, rest
from understudy import Agent, Interrupt, Runtime, Status, ToolContext, approve, call, reject, tool
from understudy.middleware import (
    AskUser,
    Guard,
    Haltable,
    HumanInTheLoop,
    SubAgent,
    Workspace,
)

LONG = (
    "The customer writes that the parcel arrived open and that two of the three lamps were broken. "
    "Photos are attached to the ticket; the carrier has confirmed the damage. "
)


def says(*parts: Any) -> ModelResponse:
    """A reply with thinking, text and calls."""
    made: list[Any] = []
    for part in parts:
        if isinstance(part, tuple):
            made.append(ThinkingPart(part[0]))
        elif isinstance(part, str):
            made.append(TextPart(part))
        else:
            made.append(part)
    return ModelResponse(made)


def agents(done: Done) -> list[Agent]:
    """The definitions."""

    @tool
    async def search_orders(customer: str) -> list[dict[str, Any]]:
        """Find the orders of a customer."""
        await asyncio.sleep(0.12)
        return [{"order": "1234", "total": 149.9, "state": "delivered"}]

    @tool
    async def carrier_report(parcel: str) -> str:
        """Ask the carrier what became of a parcel."""
        await asyncio.sleep(0.3)
        raise RuntimeError("the carrier does not answer")

    @tool
    async def wait_for_photos(ctx: ToolContext) -> str:
        """Wait until the customer has sent photos."""
        await ctx.token("photos")
        return str(await ctx.wait_for("photos", timeout=86_400))

    def orders(number: str, amount: float) -> ToolCallPart:
        return ToolCallPart("refund", {"order_id": number, "amount": amount, "reason": LONG})

    clerk = Agent(
        "clerk",
        by_turn(says("I look at the order.", orders("1234", 149.9)), "The money is on its way."),
        description="Pays money back.",
        tools=noting(done),
        middleware=[HumanInTheLoop({"refund": {"display": shown}})],
    )
    front = Agent(
        "support",
        by_turn(
            says(
                ("The customer wants money back. First the orders, then the carrier.",),
                "Let me look that up for you.",
                ToolCallPart("search_orders", {"customer": "Kim"}),
                ToolCallPart("carrier_report", {"parcel": "P-77"}),
            ),
            says(
                "The lamps were broken on the way.",
                ToolCallPart("task", {"task_name": "clerk", "instructions": LONG}),
            ),
            "I have asked for your refund.",
        ),
        tools=[search_orders, carrier_report, wait_for_photos],
        middleware=[SubAgent([clerk])],
    )
    waiting = Agent(
        "photos",
        by_turn(call("wait_for_photos"), "Thank you for the photos."),
        tools=[wait_for_photos],
    )
    entered = asyncio.Event()

    @tool
    async def transfer(iban: str, amount: float) -> str:
        """Transfer money to an account."""
        entered.set()
        await asyncio.Event().wait()
        return "transferred"

    payer = Agent(
        "payer",
        by_turn(*[call("transfer", {"iban": "DE02 1203 0000 0000 2020 51", "amount": 149.9})] * 3),
        tools=[transfer],
        middleware=[HumanInTheLoop({"transfer": True})],
    )

    @tool
    async def book_pickup(parcel: str, day: str) -> str:
        """Have the carrier fetch a parcel."""
        raise ConnectionError("the carrier closed the connection")

    pickup = call("book_pickup", {"parcel": "P-77", "day": "Monday"})
    carrier = Agent("carrier", by_turn(pickup, "I could not find out."), tools=[book_pickup])
    courier = Agent("courier", by_turn(pickup, "It is booked."), tools=[book_pickup],
                    middleware=[HumanInTheLoop({"book_pickup": True})])  # fmt: skip
    three = [refund("17", 49.9, reason="arrived broken"), refund("18", 5), refund("19", 7.5)]
    gate = {"expires_after": 5400.0, "remind_after": [1.0]}
    return [
        front,
        waiting,
        Agent("planner", by_turn(call("ask_user", {"questions": QUESTIONS})),
              middleware=[AskUser()]),
        Agent("writer", by_turn("Dear Kim, you get 500 back. Yours, the desk."),
              middleware=[Guard(output=a_promise)]),
        payer,
        carrier,
        courier,
        desk(done, three, "Done.", gate=gate),
        desk(done, call("order", {**ORDER, "note": "Ring twice."}), "Ordered.", name="orders"),
        desk(done, call("question"), "Thanks.", name="accounts"),
        desk(done, call("stop_all"), "", name="budget"),
        desk(done, RuntimeError("the provider is down"), name="flaky"),
        Agent("paying", by_turn(call("refund", {"order_id": "4\u202e321", "amount": 12.5,
              "reason": "p\u0430ypal refund"}), "ok"), tools=noting(done),
              middleware=[HumanInTheLoop({"refund": True}), Haltable()]),
    ]  # fmt: skip


QUESTIONS: list[dict[str, Any]] = [
    {"question": "Who pays?", "details": "The name on the invoice."},
    {"question": "Which colour?", "kind": "one_of", "options": ["red", "dark blue"]},
    {"question": "Which days?", "kind": "several_of", "options": ["Monday", "Tuesday"]},
    {"question": "Wrapped as a gift?", "kind": "yes_or_no", "default": True},
    {"question": "How many lamps?", "kind": "number", "minimum": 1, "maximum": 9, "whole": True},
    {"question": "From where?", "kind": "one_of", "options": ["Kiel", "Oslo"], "other": True},
    {"question": "Anything else?", "required": False},
]


async def a_promise(text: str, run: Any) -> Interrupt | None:
    """Asks a person about a reply that promises money."""
    if "back" not in text:
        return None
    return Interrupt({"reply": text}, allowed=["approve", "respond", "reject"])


def shown(arguments: Any, ctx: Any) -> dict[str, Any]:
    """What the application shows beside the arguments."""
    return {"Customer": "Kim Hansen, since 2019", "Orders so far": 12, "Refunds so far": 0}


async def filled(runtime: Runtime, more: int = 12) -> None:
    """Bring the agents to where a team would find them."""
    names = {
        "ticket-2041": "support", "ticket-2042": "desk", "ticket-2043": "orders",
        "ticket-2044": "accounts", "ticket-2045": "budget", "ticket-2046": "flaky",
        "ticket-2047": "paying", "ticket-2048": "photos",
        "ticket-2050": "planner", "ticket-2051": "writer",
        "ticket-2052": "carrier", "ticket-2053": "courier",
    }  # fmt: skip
    for id, agent in names.items():
        ref = runtime.spawn(agent, id=id, values={"customer": "Kim", "since": 2019})
        text = "Hello, two of my three lamps arrived broken. Can I have my money back?"
        if agent == "photos":  # a run that waits for the outside does not end
            await ref.send(text)
            await rest(ref, Status.WAITING)
        else:
            await ref.run(text)
    await runtime.schedule(
        "ticket-2041", "follow-up", cron="0 9 * * mon-fri", timezone="Europe/Berlin",
        input="Ask whether the money has arrived.",
    )  # fmt: skip
    letter = "Dear Kim,\n\nthe lamps were broken <b>on the way</b>.\n"
    files: dict[str, str | bytes] = {"letters/kim.md": letter, "lamp.png": b"\x89PNG\0" * 9}
    await Workspace.of(runtime.get("ticket-2041")).write_all(files)
    ref = runtime.get("ticket-2053")
    outcome: Any = await ref.outcome()
    await ref.resume(outcome.decide(approve(by="ann")))
    ref = runtime.spawn("payer", id="ticket-2049")
    outcome = await ref.run("Send the money by bank transfer, please.")
    await ref.decide({outcome.requests[0].id: approve(by="ann")})
    await rest(ref, Status.RUNNING)
    async for event in ref.events():
        if event.event.kind == "tool_started":
            break
    await ref.cancel("ann is not sure", context={"by": "ann"})
    await ref.run("Where is my money?")
    for number in range(more):
        ref = runtime.spawn("desk", id=f"ticket-{1900 + number}")
        outcome = await ref.run("Please refund my three orders.")
        first, second, third = outcome.requests
        if number % 3 == 0:
            await ref.resume({first.id: approve(by="ann"), second.id: reject("no", by="bob"),
                              third.id: approve(by="ann", note="checked")})  # fmt: skip
            await rest(ref, Status.IDLE)
        elif number % 3 == 1:
            await ref.resume({first.id: approve(by="ann")})
