"""The middleware under a `Runtime`: its agent leaves memory, and is shown to people."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from understudy import Completed, Failed, Interrupted, Outcome, Request, Runtime, Stopped
from understudy.journal import MemoryStore, Store
from understudy.testing.contracts.contract import on_a_loop
from understudy.testing.contracts.middlewares.middleware_tests import (
    MOST_ANSWERS,
    Life,
    MiddlewareTests,
    Outside,
    shown,
)


class Hosted(MiddlewareTests):
    """The middleware under a `Runtime`: its agent leaves memory, and is shown to people."""

    def _runtime(self, store: Store, outside: Outside) -> Runtime:
        agent = self.new_agent([self.new_middleware()], outside)
        return Runtime([agent], store=store, clock=self.clock(), sweep=None)

    async def _hosted(self, store: Store, outside: Outside, *, restarts: bool) -> Life:
        """A run under a runtime; with `restarts` each answer comes to another runtime."""
        outcome: Outcome | None = None
        asked: list[Request] = []
        for _ in range(MOST_ANSWERS):
            async with self._runtime(store, outside) as runtime:
                if outcome is None:
                    outcome = await runtime.spawn("judged", id="a").run(self.prompt)
                else:
                    await runtime.recover()
                while isinstance(outcome, Interrupted):
                    asked += outcome.requests
                    decisions = self._decided(outcome.requests)
                    outcome = await runtime.get("a").resume(decisions)
                    if restarts:
                        break
                if isinstance(outcome, (Completed, Failed, Stopped)):
                    return Life(outcome=outcome, asked=asked)
        raise AssertionError("the run does not come to its end under a runtime")

    @on_a_loop
    async def test_a_run_under_a_runtime_is_the_same_run(self) -> None:
        whole, _, _ = await self._undisturbed()
        for restarts in (False, True):
            outside = Outside()
            with _errors() as errors:
                life = await self._hosted(MemoryStore(), outside, restarts=restarts)
            assert life.end == whole.end, life.end
            assert life.conversation == whole.conversation
            assert not errors, f"it is logged: {errors}"

    @on_a_loop
    async def test_a_second_message_comes_to_an_agent_that_had_left_memory(self) -> None:
        store, outside = MemoryStore(), Outside()
        first = await self._hosted(store, outside, restarts=False)
        async with self._runtime(store, outside) as runtime:
            state = await runtime.get("a").state()
            assert state.to_dict()["messages"] == first.state.to_dict()["messages"]
            assert dict(state.values) == dict(first.state.values)
            outcome = await runtime.get("a").run("And again.")
            assert outcome.explain()

    @on_a_loop
    async def test_people_are_shown_the_conversation_and_it_stays_as_it_was(self) -> None:
        life, _, _ = await self._undisturbed()
        agent = self.new_agent([self.new_middleware()], Outside())
        before = json.dumps(shown(life.state.messages))
        with _errors() as errors:
            displayed = agent.display(life.state.messages)
        assert len(displayed) == len(life.state.messages)
        assert json.dumps(shown(life.state.messages)) == before, "it changes what is stored"
        assert not errors, f"`transform_display_message` raises: {errors}"


@contextmanager
def _errors() -> Iterator[list[str]]:
    """The errors that the library logs while the context is open."""
    found: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("understudy")
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
