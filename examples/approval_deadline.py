"""An approval that reminds after an hour, escalates after four, and is rejected after a day.

The day passes in a moment, by a simulated clock. The agent is not in memory while it waits: what is
due activates it. With a store such as "sqlite:///support.db" and without `clock=` the same program
does it by the time of day, whether its process lives all the time or not.
"""

import asyncio

from understudy import Agent, Completed, Runtime, ScriptedModel, SimulatedClock, call, events, tool
from understudy.middleware import HumanInTheLoop

HOUR = 3600.0


@tool
async def refund(order_id: str, amount: float) -> str:
    """Pay money back."""
    return f"refunded {amount}"


def make_agent() -> Agent:
    # 1. The times of a request: they count from the moment at which it is made.
    gate = HumanInTheLoop(
        {"refund": True},
        remind_after=1 * HOUR,
        escalate_after={4 * HOUR: "the head of sales"},
        expires_after=24 * HOUR,
        on_expiry="reject",
    )
    model = ScriptedModel(
        [
            call("refund", {"order_id": "17", "amount": 900}),
            "I may not refund order 17: nobody has decided.",
        ]
    )
    return Agent("support", model, tools=[refund], middleware=[gate])


async def main() -> None:
    clock = SimulatedClock()
    async with Runtime([make_agent()], clock=clock) as runtime:
        ref = runtime.spawn("support", id="ticket-42")
        outcome = await ref.run("Refund order 17, please.")
        print(outcome.explain())
        start = clock.now()

        # 2. Whoever mails the people subscribes: each event comes once its record is durable.
        subscription = ref.events()
        await ref.stop(block=False)  # the agent leaves memory

        # 3. 23 hours pass. Nobody answers.
        await clock.advance(23 * HOUR)
        (pending,) = await runtime.pending()
        told = ", ".join(pending.escalated_to)
        print(f"After 23 hours: {pending.reminders} reminder was sent, and {told} was told.")

        # 4. And two more: silence approves nothing.
        await clock.advance(2 * HOUR)
        ended = await ref.outcome()
        assert ended is not None
        assert isinstance(ended, Completed), ended
        print(f"After 25 hours: {ended.text}")
        print("In the order in which it happened:")

        subscription.close()
        async for each in subscription:
            match each.event:
                case events.RequestReminder(at=at):
                    print(f"  after {(at - start).total_seconds() / HOUR:g} hour a reminder")
                case events.RequestEscalated(at=at, audience=audience):
                    hours = (at - start).total_seconds() / HOUR
                    print(f"  after {hours:g} hours {audience} is told")
        for record in ended.state.decisions:
            hours = (record.at - start).total_seconds() / HOUR
            who = (
                "nobody in time"
                if record.decision.origin == "expiry"
                else f"by {record.decision.by}"
            )
            print(f"  after {hours:g} hours: {record.decision.type}, {who}")


if __name__ == "__main__":
    asyncio.run(main())
