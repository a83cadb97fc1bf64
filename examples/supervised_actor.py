"""A supervised actor that is not an agent: it crashes, and is restarted."""

import asyncio
import logging
from typing import Any

from tenacity import wait_fixed

from understudy.actors import ChildSpec, Down, LoopActor, Supervisor


# 1. An actor handles one message at a time. What it raises at a `tell` ends it.
class Till(LoopActor):
    """Adds up what is paid in."""

    def on_start(self) -> None:
        self.total = 0
        print("  ... the till is open")

    def on_receive(self, message: Any) -> int:
        self.total += int(message)
        return self.total


async def main() -> None:
    # 2. A supervisor starts its children from their specs, in order, and restarts what fails: here
    #    at most 3 times within 5 seconds, and after a short wait.
    shop = Supervisor.start(
        [ChildSpec("till", Till.start)],
        strategy="one_for_one",
        max_restarts=3,
        period=5,
        wait=wait_fixed(0.05),
        name="shop",
    )
    till = await shop.child("till")
    print(f"paid in: {await till.ask('40', block=False)}")

    # 3. A monitor reports the end of an actor: to another actor as a `Down` message, to a function
    #    by calling it.
    down: asyncio.Future[Down] = asyncio.get_running_loop().create_future()
    till.monitor(down.set_result)

    # 4. A message that is not a number is the end of the till ...
    till.tell("forty")
    print(f"the till crashed: {(await down).reason}")
    print(shop.tree())

    # 5. ... but not of the shop. The ref of the old till is dead; the id gives the new one, which
    #    starts from zero. During a restart `child` waits until it is done.
    till = await shop.child("till")
    print(f"paid in: {await till.ask('2', block=False)}")
    print(shop.tree())

    # 6. A supervisor that stops stops its children first, in reverse order.
    await shop.stop(block=False)
    print(f"the till is {'open' if till.is_alive() else 'closed'}")


if __name__ == "__main__":
    logging.getLogger("pykka").setLevel(logging.CRITICAL)  # it logs the crash with its traceback
    asyncio.run(main())
