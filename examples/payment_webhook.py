"""A tool that waits for a payment provider's webhook: for minutes, days, or in vain.

The provider and its webhook are played here, and the day passes in a moment, by a simulated clock.
The agent is not in memory while it waits. With a store such as "sqlite:///shop.db", without
`clock=`, and with `WaitRoute(runtime)` mounted in your web application the same program does it by
the time of day, whether its process lives all the time or not.
"""

import asyncio
import json
from typing import Any

from understudy import (
    Agent,
    AgentRef,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    WaitExpired,
    call,
    tool,
)
from understudy.actors import WaitRoute

HOUR = 3600.0


class Provider:
    """A payment provider: it creates payments, and later posts to the URL of each."""

    def __init__(self) -> None:
        self.callbacks: dict[str, str] = {}

    def create(self, order_id: str, callback: str) -> str:
        self.callbacks[order_id] = callback
        return f"payment-{order_id}"


PROVIDER = Provider()


@tool
async def take_payment(ctx: ToolContext, order_id: str) -> str:
    """Have the customer pay an order."""
    # 1. Whoever has the token may answer. Only its hash is stored.
    token = await ctx.token("paid")

    # 2. An effect goes into `once`: the tool runs again from its start when the wait is over.
    callback = f"/waits/{token}"
    payment = await ctx.once("create", lambda: PROVIDER.create(order_id, callback))

    # 3. Nothing of this call is in memory while it waits here.
    try:
        paid = await ctx.wait_for("paid", timeout=24 * HOUR)
    except WaitExpired:
        return f"{payment} was not paid within a day"
    await ctx.sleep("goods reserved", 1 * HOUR)
    return f"{payment} was paid by {paid['method']}"


def make_agent() -> Agent:
    def reply(request: Any) -> Any:
        last = request.messages[-1].parts[-1]
        if last.part_kind == "user-prompt":
            return call("take_payment", {"order_id": last.content})
        return last.content

    return Agent("shop", ScriptedModel(reply), tools=[take_payment])


async def post(app: WaitRoute, path: str, value: Any) -> int:
    """What the provider's web client does: a POST to the callback URL; the status of the answer."""
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(value).encode()}

    async def send(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    await app(scope, receive, send)
    return statuses[0]


async def until(ref: AgentRef, status: Status) -> None:
    subscription = ref.events()
    while ref.status() is not status:
        await anext(aiter(subscription))
    subscription.close()


async def main() -> None:
    clock = SimulatedClock()
    async with Runtime([make_agent()], clock=clock) as runtime:
        # In FastAPI or Starlette: app.mount("/waits", WaitRoute(lambda: app.state.runtime))
        app = WaitRoute(runtime)
        seventeen = runtime.spawn("shop", id="order-17")
        eighteen = runtime.spawn("shop", id="order-18")
        first, second = seventeen.run("17"), eighteen.run("18")
        for ref in (seventeen, eighteen):
            await until(ref, Status.WAITING)
            await ref.stop(block=False)  # the agent leaves memory; the future stays open
        for wait in await runtime.waiting():
            print(f"{wait.agent_id} waits at {wait.name!r} until {wait.expires_at:%d %b, %H:%M}")

        # 4. The webhook comes, and again: the first answer counts.
        paid = {"method": "card"}
        twice = [await post(app, PROVIDER.callbacks["17"], paid) for _ in range(2)]
        print(f"the webhook of order 17 comes twice, and gets {twice}")
        await until(seventeen, Status.WAITING)

        # 5. A day passes. An answer that comes too late is told so.
        await clock.advance(24 * HOUR)
        for outcome in (await first, await second):
            print(outcome.explain(), "-", getattr(outcome, "text", ""))
        late = [await post(app, PROVIDER.callbacks[order], paid) for order in ("17", "18")]
        print(f"those of both orders, after that: {late}")


if __name__ == "__main__":
    asyncio.run(main())
