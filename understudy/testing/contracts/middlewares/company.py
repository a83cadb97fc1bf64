"""The middleware in concurrent and nested runs, streamed and cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tenacity import AsyncRetrying, stop_after_attempt

from understudy import Agent, Completed, ScriptedModel, ToolContext, UsageError, call, tool
from understudy.events import ReplyEnded, TextDelta
from understudy.middleware import (
    AskUser,
    Fallback,
    Guard,
    Haltable,
    HumanInTheLoop,
    Limits,
    Middleware,
    Retry,
    SubAgent,
    TodoList,
    Workspace,
)
from understudy.models.scripted_model import ScriptedRequest
from understudy.testing.contracts.contract import cases, on_a_loop
from understudy.testing.contracts.disk import Disk
from understudy.testing.contracts.middlewares.middleware_tests import MiddlewareTests, Outside

_PATIENCE = 10.0
"""The maximum seconds until a cancelled run has ended."""


class Company(MiddlewareTests):
    """The middleware in concurrent and nested runs, streamed and cancelled."""

    @on_a_loop
    async def test_one_object_serves_runs_at_the_same_time(self) -> None:
        """Facts of a run are not kept on the object."""
        whole, _, _ = await self._undisturbed()
        agent = self.new_agent([self.new_middleware()], Outside())
        lives = await asyncio.gather(*(self._live(agent) for _ in range(3)))
        for life in lives:
            assert life.end == whole.end
            assert life.conversation == whole.conversation
            assert dict(life.state.values) == dict(whole.state.values)

    @on_a_loop
    async def test_one_object_serves_runs_one_after_the_other(self) -> None:
        whole, _, _ = await self._undisturbed()
        agent = self.new_agent([self.new_middleware()], Outside())
        for _ in range(3):
            life = await self._live(agent)
            assert life.end == whole.end
            assert life.conversation == whole.conversation
            assert dict(life.state.values) == dict(whole.state.values)

    @on_a_loop
    async def test_an_agent_with_it_runs_inside_another_agent(self) -> None:
        whole, _, _ = await self._undisturbed()
        outside = Outside()
        child = self.new_agent([self.new_middleware()], outside)
        disk = Disk()
        life = await self._live(self._parent(child), disk)
        assert isinstance(life.outcome, Completed), life.end
        assert life.outcome.text == f"The child says: {whole.end}"
        _, alone, _ = await self._undisturbed()
        assert sorted(each for each, _ in outside.entered) == sorted(n for n, _ in alone.entered)
        assert life.state.to_dict() == disk.load().to_dict()

    def _parent(self, child: Agent) -> Agent:
        @tool(idempotent=True)
        async def ask_child(ctx: ToolContext) -> str:
            """Ask the other agent."""
            outcome = await ctx.run_agent(child, self.prompt)
            text = outcome.text if isinstance(outcome, Completed) else ""
            failed = str(getattr(outcome, "error", ""))
            return f"{(type(outcome).__name__, text or failed)}"

        def says(request: ScriptedRequest) -> object:
            if not request.results:
                return call("ask_child", {})
            return f"The child says: {request.results[-1].content}"

        return Agent("parent", ScriptedModel(says), tools=[ask_child])

    @on_a_loop
    async def test_a_streamed_run_is_the_same_run(self) -> None:
        """The pieces of text that subscribers get make up the reply that is stored."""
        whole, _, _ = await self._undisturbed()
        agent = self.new_agent([self.new_middleware()], Outside())
        pieces: dict[int, str] = {}
        replies: dict[int, str] = {}

        def hear(event: Any) -> None:
            if isinstance(event, TextDelta):
                pieces[event.turn] = pieces.get(event.turn, "") + event.text
            elif isinstance(event, ReplyEnded):
                replies[event.turn] = event.response.text or ""

        clock = self.clock()
        outcome = await agent.execute(self.prompt, clock=clock, on_event=hear)
        life = await self._to_the_end(agent, outcome, clock, on_event=hear)
        assert (life.end, life.conversation) == (whole.end, whole.conversation)
        for turn, text in pieces.items():
            if turn in replies:
                assert text == replies[turn], (
                    f"subscribers got {text!r} of a reply that is stored as {replies[turn]!r}: "
                    "a middleware that changes replies is not `stream_safe`"
                )

    @cases(model="model", tool="tool")
    @on_a_loop
    async def test_a_cancelled_run_ends_at_once_and_can_be_continued(self, case: str) -> None:
        """The cancellation reaches the code that the run waits for, and the caller that cancelled
        it.
        """
        whole, _, _ = await self._undisturbed()
        waits, disk, outside = asyncio.Event(), Disk(), Outside()
        reached: list[str] = []

        async def wait() -> None:
            waits.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                reached.append("cancelled")
                raise

        async def says(request: ScriptedRequest) -> object:
            if case == "model":
                await wait()
            return call("stand", {})

        @tool(read_only=True)
        async def stand() -> str:
            """Wait for ever."""
            await wait()
            return "never"

        agent = self.new_agent([self.new_middleware()], outside, says, more=[stand])
        clock = self.clock()

        async def run() -> None:
            outcome = await agent.execute(self.prompt, journal=disk, clock=clock)
            await self._to_the_end(agent, outcome, clock, disk)

        task = asyncio.ensure_future(run())
        heard = asyncio.ensure_future(waits.wait())
        await asyncio.wait({task, heard}, return_when=asyncio.FIRST_COMPLETED)
        heard.cancel()
        if not waits.is_set():
            await task
            self.skip(f"no {case} is reached")
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=_PATIENCE)
        assert done, f"the run continues {_PATIENCE:.0f} s after it was cancelled"
        assert task.cancelled(), f"the cancellation was swallowed: {task.exception()!r}"
        assert reached == ["cancelled"], "what the run waited for was not cancelled"
        state = disk.load()
        assert state.run is not None
        assert not state.run.over, "a run that is cut off can be continued"
        if case == "model":
            life = await self._live_on(self.new_agent([self.new_middleware()], outside), state)
            assert life.end == whole.end

    @cases(
        AskUser=AskUser,
        Fallback=lambda: Fallback([ScriptedModel([])]),
        Guard=lambda: Guard(input=lambda text, run: None),
        Haltable=Haltable,
        HumanInTheLoop=lambda: HumanInTheLoop({"pay": True}),
        Limits=lambda: Limits(max_tokens=1_000_000),
        Retry=lambda: Retry(AsyncRetrying(stop=stop_after_attempt(2))),
        SubAgent=SubAgent,
        TodoList=TodoList,
        Workspace=Workspace,
        itself=None,
    )
    def test_it_fits_beside_another_middleware_or_is_refused_clearly(
        self, case: Callable[[], Middleware] | None
    ) -> None:
        """The order does not matter. A refusal is a `UsageError` when the agent is made."""
        other = case or self.new_middleware
        for stack in ([self.new_middleware(), other()], [other(), self.new_middleware()]):
            try:
                self.new_agent(stack, Outside())
            except UsageError:
                continue
