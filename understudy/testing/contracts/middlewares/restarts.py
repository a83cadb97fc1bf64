"""A run with the middleware is cut off, goes through JSON, and continues in the next process."""

from __future__ import annotations

import json
import pickle
from collections import Counter

from understudy import Agent, AgentState
from understudy.state.records import Once
from understudy.testing.contracts.contract import on_a_loop
from understudy.testing.contracts.disk import Crash, Disk
from understudy.testing.contracts.middlewares.middleware_tests import (
    Life,
    MiddlewareTests,
    Outside,
)


class Restarts(MiddlewareTests):
    """A run with the middleware is cut off, goes through JSON, and continues elsewhere."""

    @on_a_loop
    async def test_a_run_that_is_cut_off_after_any_record_ends_the_same_way(self) -> None:
        whole, _, disk = await self._undisturbed()
        for limit in range(1, len(disk.lines)):
            rest, _, unknown = await self._cut_off(limit)
            if rest is None or unknown:
                continue
            where = f"cut off after record {limit} of {len(disk.lines)}"
            assert rest.end == whole.end, where
            assert self._results_of(rest) == self._results_of(whole), where
            assert rest.conversation == whole.conversation, where
            assert dict(rest.state.values) == dict(whole.state.values), where

    @on_a_loop
    async def test_no_call_runs_twice_wherever_a_run_is_cut_off(self) -> None:
        _, _, disk = await self._undisturbed()
        for limit in range(1, len(disk.lines)):
            await self._cut_off(limit)

    async def _cut_off(self, limit: int) -> tuple[Life | None, Outside, bool]:
        """A life whose process ends after a number of records, and that another process continues.

        Returns:
            The rest of the life, None if no run had begun; its effects outside; and whether a call
            that must not run twice is in doubt.

        """
        disk, before = Disk(limit), Outside()
        effects = len(self.effects())
        try:
            await self._live(self.new_agent([self.new_middleware()], before), disk)
        except Crash:
            pass
        else:
            raise AssertionError("the run has written other records than before")
        state = AgentState.from_dict(json.loads(json.dumps(disk.load().to_dict())))
        if state.run is None or state.run.over:
            return None, before, False
        after = Outside()
        rest = await self._live_on(self.new_agent([self.new_middleware()], after), state, Disk())
        done = disk.finished_calls()
        where = f"cut off after record {limit}"
        repeated = done & {key for _, key in after.entered}
        assert not repeated, f"{where}: calls that had a result ran again: {sorted(repeated)}"
        paid = Counter([*before.calls_of("pay"), *after.calls_of("pay")])
        assert not paid or max(paid.values()) == 1, f"{where}: a call was made twice: {paid}"
        effects_again = Counter(self.effects()[effects:])
        if effects_again and not isinstance(disk.refused, Once):
            assert max(effects_again.values()) == 1, (
                f"{where}: an effect of the middleware came twice: {effects_again}"
            )
        return rest, after, bool(set(before.calls_of("pay")) - done)

    @on_a_loop
    async def test_the_state_in_memory_is_what_the_records_add_up_to(self) -> None:
        """A hook that changes messages in place makes a change that no record has."""
        life, _, disk = await self._undisturbed()
        stored = disk.load()
        assert life.state.to_dict() == stored.to_dict()

    @on_a_loop
    async def test_the_state_goes_through_json_without_loss(self) -> None:
        life, _, _ = await self._undisturbed()
        data = json.loads(json.dumps(life.state.to_dict()))
        assert AgentState.from_dict(data).to_dict() == life.state.to_dict()

    @on_a_loop
    async def test_a_second_run_leaves_the_state_of_the_first_as_it_was(self) -> None:
        life, _, _ = await self._undisturbed()
        before = json.dumps(life.state.to_dict())
        agent = self.new_agent([self.new_middleware()], Outside())
        outcome = await agent.execute("And again.", state=life.state)
        assert json.dumps(life.state.to_dict()) == before
        assert len(outcome.state.messages) > 0

    @on_a_loop
    async def test_its_questions_are_answered_in_another_process(self) -> None:
        """Each request goes through JSON before a person answers it."""
        whole, _, _ = await self._undisturbed()
        if not whole.asked:
            self.skip("it asks nothing")
        outside = Outside()
        agent: Agent = self.new_agent([self.new_middleware()], outside)
        outcome = await agent.execute(self.prompt)
        for _ in whole.asked:
            state = AgentState.from_dict(json.loads(json.dumps(outcome.state.to_dict())))
            if not state.requests:
                break
            decisions = self._decided(state.requests)
            agent = self.new_agent([self.new_middleware()], outside)
            outcome = await agent.resume(state, decisions)
        rest = Life(outcome=outcome, asked=[])
        assert (rest.end, rest.conversation) == (whole.end, whole.conversation)

    @on_a_loop
    async def test_it_can_be_pickled(self) -> None:
        if not self.picklable:
            self.skip("it is not to be pickled")
        whole, _, _ = await self._undisturbed()
        again = pickle.loads(pickle.dumps(self.new_middleware()))  # noqa: S301
        life = await self._live(self.new_agent([again], Outside()))
        assert (life.end, life.conversation) == (whole.end, whole.conversation)
