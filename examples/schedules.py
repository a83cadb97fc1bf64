"""A report on each working day, a message in the future, and what happens while nobody is there.

A week passes in a moment, by a simulated clock. The agent is not in memory between its runs. With a
store such as "sqlite:///support.db" and without `clock=` the same program does it by the time of
day. Schedules need one small library: pip install '.[schedules]'.
"""

import asyncio
import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

from understudy import Agent, AgentRef, Runtime, ScriptedModel, SimulatedClock

DAY = 24 * 3600.0
SUNDAY = datetime(2026, 3, 22, 12, tzinfo=timezone.utc)


def make_agent() -> Agent:
    return Agent("reporter", ScriptedModel(lambda request: f"{request.prompt} Nothing."))


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'reports.db'}"
        clock = SimulatedClock(SUNDAY)

        # 1. The schedule is recorded with the agent. To say the same again changes nothing, so a
        #    program may say it at each start.
        async with Runtime([make_agent()], store=store, clock=clock) as runtime:
            ref = runtime.spawn("reporter", id="sales")
            await runtime.schedule(
                ref,
                "morning",
                cron="30 2 * * *",
                timezone="Europe/Berlin",
                input="What is new?",
                missed="one",
            )
            await ref.send("And what of the kettle?", at=clock.now() + timedelta(days=1))

            # 2. Two days: a run for each morning, and one for the message.
            for _ in range(2):
                await clock.advance(DAY)
                await ref.outcome()
            await show(ref)

        # 3. Nobody is there for three days. Then the last of the missed mornings is made up for.
        later = SimulatedClock(clock.now() + timedelta(days=3))
        async with Runtime([make_agent()], store=store, clock=later) as runtime:
            ref = runtime.get("sales")
            await later.advance(1)
            await ref.outcome()

            # 4. On the 29th the clocks in Berlin go from 2 to 3 o'clock: it comes at 3, once.
            for _ in range(2):
                await later.advance(DAY)
                await ref.outcome()
            await show(ref)

            # 5. By hand, also while it is paused.
            schedules = runtime.schedules(ref)
            await schedules.pause("morning")
            print("triggered:", (await schedules.trigger("morning")).triggered)
            await ref.outcome()
            await schedules.remove("morning")
            print("schedules left:", await schedules.list())


async def show(ref: AgentRef) -> None:
    """What was due, and what became of it."""
    print("so far:")
    for entry in await ref.history(limit=1000):
        if entry.what == "occurrence":
            since, skipped = entry.detail["since"], entry.detail["skipped"]
            span = "" if since is None else f" (since {since[5:16]})"
            print(f"  {entry.detail['due'][5:16]}: {skipped or 'run'}{span}")
        elif entry.what == "message_due":
            print(f"  the message of the day before: {entry.at:%m-%dT%H:%M}")


if __name__ == "__main__":
    asyncio.run(main())
