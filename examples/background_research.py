"""A tool that takes long, in the background: the conversation goes on, and the result comes later.

The process that crawls ends in the middle, and the next one goes on: an agent of its own makes the
call, and has a journal. The tool only looks something up, so it runs again by itself.
"""

import asyncio
import tempfile
from typing import Any

from understudy import Agent, Completed, Outcome, Runtime, ScriptedModel, call, tool


class Site:
    """A slow site: `is_up` says when it answers."""

    def __init__(self) -> None:
        self.is_up = asyncio.Event()
        self.was_asked = asyncio.Event()

    async def pages(self, name: str) -> int:
        self.was_asked.set()
        await self.is_up.wait()
        return len(name)


def make_agent(site: Site) -> Agent:
    # 1. The model gets "started", with a code by which it knows the result again.
    @tool(background=True, read_only=True)
    async def crawl(name: str) -> str:
        """Count the pages of a site."""
        return f"{name} has {await site.pages(name)} pages"

    return Agent("researcher", ScriptedModel(reply), tools=[crawl])


def reply(request: Any) -> Any:
    """Plays the model."""
    last = request.messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        return "I have begun to count."
    if last.content.startswith("["):  # the code, and what the call has returned
        return last.content.partition(": ")[2]
    if "count" in last.content:
        return call("crawl", {"name": "a.example"})
    return "Hello!"


def text_of(outcome: Outcome | None) -> str:
    return outcome.text if isinstance(outcome, Completed) else repr(outcome)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/research.db"

        # 2. The run ends at once. The call goes on, in an agent of its own.
        slow = Site()
        async with Runtime([make_agent(slow)], store=store, stop_timeout=0.1) as runtime:
            ref = runtime.spawn("researcher", id="desk")
            print(text_of(await ref.run("Please count the pages.")))
            print(text_of(await ref.run("Hi")))
            await slow.was_asked.wait()
            (background,) = (await ref.state()).background
            print(f"{background.tool_name} is made by {background.agent_id!r}")

        # 3. That process is gone. The next one makes the call again, and brings its result.
        site = Site()
        site.is_up.set()
        async with Runtime([make_agent(site)], store=store) as runtime:
            await runtime.recover()
            await runtime.get(background.agent_id).outcome()
            print(text_of(await runtime.get("desk").outcome()))


if __name__ == "__main__":
    asyncio.run(main())
