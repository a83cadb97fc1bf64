"""What the middleware around and inside it sees of a run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from understudy import Run
from understudy.middleware import Middleware, ModelInput, Next, NextModelCall, ToolCall
from understudy.testing.contracts.contract import on_a_loop
from understudy.testing.contracts.middlewares.middleware_tests import MiddlewareTests, Outside


class Probe(Middleware):
    """A middleware that notes which of its hooks are called, and changes nothing."""

    stream_safe = True

    def __init__(self, label: str, seen: list[tuple[str, str]]) -> None:
        self._label = label
        self._seen = seen

    @property
    def name(self) -> str:
        return f"Probe {self._label}"

    def _note(self, what: str) -> None:
        self._seen.append((self._label, what))

    async def on_run_start(self, run: Run) -> None:
        self._note("run starts")

    async def on_run_end(self, run: Run, outcome: Any) -> None:
        self._note("run ends")

    async def before_model(self, run: Run, request: ModelInput) -> None:
        self._note("before model")

    async def after_model(self, run: Run, reply: Any) -> None:
        self._note("after model")

    async def wrap_model_call(self, run: Run, request: ModelInput, next: NextModelCall) -> Any:
        self._note("model in")
        reply = await next(request)
        self._note("model out")
        return reply

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        self._note(f"{call.key} in")
        result = await next(call)
        self._note(f"{call.key} out")
        return result


class HookOrder(MiddlewareTests):
    """What the middleware around and inside it sees of a run."""

    async def _seen(self) -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []
        stack = [Probe("before it", seen), self.new_middleware(), Probe("behind it", seen)]
        await self._live(self.new_agent(stack, Outside()))
        return seen

    @on_a_loop
    async def test_others_hear_of_the_begin_and_the_end_of_a_run_once(self) -> None:
        seen = Counter(await self._seen())
        for what in ("run starts", "run ends"):
            for label in ("before it", "behind it"):
                assert seen[label, what] == 1, f"the middleware {label} heard {what!r} {seen}"

    @on_a_loop
    async def test_a_call_goes_through_the_stack_inwards_and_back(self) -> None:
        """The inner middleware is called within its hook, for the same calls."""
        seen = await self._seen()
        calls = {what.removesuffix(" in") for _, what in seen if what.endswith(" in")}
        for call in sorted(calls):
            order = [each for each in seen if each[1] in (f"{call} in", f"{call} out")]
            nested = [
                ("before it", f"{call} in"),
                ("behind it", f"{call} in"),
                ("behind it", f"{call} out"),
                ("before it", f"{call} out"),
            ]
            if call == "model":
                times = len(order) // 4
                self._refuse_unless(
                    "requests", order == nested * times, f"a model call went by {order}"
                )
            else:
                self._refuse_unless("calls", order == nested, f"a tool call went by {order}")

    @on_a_loop
    async def test_each_model_call_is_seen_by_all_before_and_in_reverse_after(self) -> None:
        seen = [each for each in await self._seen() if each[1] in ("before model", "after model")]
        turn = [
            ("before it", "before model"),
            ("behind it", "before model"),
            ("behind it", "after model"),
            ("before it", "after model"),
        ]
        seen_text = f"the hooks around the model were called as {seen}"
        self._refuse_unless("requests", seen == turn * (len(seen) // 4), seen_text)
