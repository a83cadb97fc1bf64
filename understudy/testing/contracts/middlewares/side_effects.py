"""A run with the middleware, compared with the same run without it."""

from __future__ import annotations

from collections import Counter

from understudy import call, tool
from understudy.models.scripted_model import ScriptedRequest
from understudy.testing.contracts.contract import on_a_loop
from understudy.testing.contracts.middlewares.middleware_tests import (
    MiddlewareTests,
    Outside,
    shown,
)


class SideEffects(MiddlewareTests):
    """A run with the middleware, compared with the same run without it."""

    @on_a_loop
    async def test_a_run_ends_as_without_it(self) -> None:
        without, _ = await self._alone()
        life, _, _ = await self._undisturbed()
        text = f"the run ends as {life.end} and without it as {without.end}"
        self._refuse_unless("outcome", life.end == without.end, text)

    @on_a_loop
    async def test_the_conversation_is_stored_as_without_it(self) -> None:
        without, _ = await self._alone()
        life, _, _ = await self._undisturbed()
        text = f"it stores {life.conversation}, and without it {without.conversation}"
        self._refuse_unless("conversation", life.conversation == without.conversation, text)

    @on_a_loop
    async def test_the_values_of_others_are_as_without_it(self) -> None:
        without, _ = await self._alone()
        life, _, _ = await self._undisturbed()
        schema = self.new_middleware().state_schema
        own = set() if schema is None else set(schema.model_fields)
        values = {key: value for key, value in life.state.values.items() if key not in own}
        assert values == dict(without.state.values), "it changes values that its schema has not"

    @on_a_loop
    async def test_each_tool_call_runs_once_as_without_it(self) -> None:
        without, before = await self._alone()
        life, after, _ = await self._undisturbed()
        twice = [key for key, times in Counter(after.entered).items() if times > 1]
        assert not twice, f"calls ran twice: {twice}"
        same = sorted(name for name, _ in after.entered) == sorted(n for n, _ in before.entered)
        text = f"the calls {after.entered} ran, and without it {before.entered}"
        self._refuse_unless("calls", same, text)
        results, others = self._results_of(life), self._results_of(without)
        text = f"the calls came to {sorted(results)}, and without it to {sorted(others)}"
        self._refuse_unless("calls", results == others, text)

    @on_a_loop
    async def test_no_call_is_left_in_doubt(self) -> None:
        life, _, _ = await self._undisturbed()
        doubts = list(life.state.doubts)
        assert not doubts, f"nobody knows what came of the calls {doubts}"
        kinds = [each.tool_name for each in life.asked if each.kind == "doubt"]
        assert not kinds, f"a person was asked what came of calls of {kinds}"

    @on_a_loop
    async def test_the_model_is_asked_the_same_as_without_it(self) -> None:
        _, before = await self._alone()
        _, after, _ = await self._undisturbed()
        text = f"the model is asked {len(after.requests)} times, not {len(before.requests)}"
        self._refuse_unless("requests", len(after.requests) == len(before.requests), text)
        for number, (one, other) in enumerate(zip(after.requests, before.requests, strict=False)):
            where = f"in request {number + 1}"
            self._refuse_unless(
                "requests",
                shown(one.messages) == shown(other.messages),
                f"{where} the model gets other messages",
            )
            self._refuse_unless(
                "requests",
                (one.tools, one.instructions) == (other.tools, other.instructions),
                f"{where} the model gets other tools or instructions",
            )

    @on_a_loop
    async def test_an_error_of_a_tool_reaches_the_model_as_without_it(self) -> None:
        lives = []
        for stack in ([], [self.new_middleware()]):
            agent = self.new_agent(stack, Outside(), _calls_what_fails, more=[broken])
            lives.append(await self._live(agent))
        without, life = lives
        results, others = self._results_of(life), self._results_of(without)
        text = f"a call that fails comes to {sorted(results)}, and without it to {sorted(others)}"
        self._refuse_unless("calls", results == others, text)
        text = f"where a call fails the run ends as {life.end}, and without it as {without.end}"
        self._refuse_unless("outcome", life.end == without.end, text)

    @on_a_loop
    async def test_an_error_of_the_model_fails_the_run_as_without_it(self) -> None:
        kinds = []
        for stack in ([], [self.new_middleware()]):
            agent = self.new_agent(stack, Outside(), _unreachable)
            kinds.append(type((await self._live(agent)).outcome).__name__)
        text = f"where the model fails the run is {kinds[1]}, and without it {kinds[0]}"
        self._refuse_unless("outcome", kinds[0] == kinds[1], text)


def _unreachable(request: ScriptedRequest) -> object:
    raise ConnectionError("the model cannot be reached")


def _calls_what_fails(request: ScriptedRequest) -> object:
    if any(part.part_kind != "user-prompt" for part in request.messages[-1].parts):
        return "It failed."
    return call("broken", {})


@tool(read_only=True)
def broken() -> str:
    """Fail."""
    raise ValueError("it is broken")
