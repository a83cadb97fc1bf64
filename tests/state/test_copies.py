"""A copy of a state is a value: no later record of either one changes the other."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.frozen.samples import AGENTS, START, bare_request, bare_run, reply, tool_call
from understudy import AgentState, approve
from understudy.state.fold import apply
from understudy.state.records import Decided, InterruptsChecked, Record, Reply, Revoked


def granted() -> Iterator[Record]:
    yield bare_run("desk")
    yield Reply(turn=0, response=reply(tool_call(0)))
    yield InterruptsChecked(turn=0, requests=(bare_request("q-1", "run-1.0.0"),))
    yield Decided(request_id="q-1", decision=approve(always=True), at=START)
    yield Revoked(grant_id="q-1")


LIVES = {**AGENTS, "granted": granted}


def stored(state: AgentState) -> str:
    return json.dumps(state.to_dict())


@pytest.mark.slow
@pytest.mark.parametrize("name", LIVES)
@pytest.mark.parametrize("deeply", [False, True], ids=["a copy", "a deep copy"])
def test_a_copy_and_its_original_do_not_change_each_other(name: str, deeply: bool) -> None:
    """Here each kind of record comes right after a copy was made."""
    state = AgentState()
    for record in LIVES[name]():
        before, copy = stored(state), state.copied(deeply=deeply)
        assert stored(copy) == before
        apply(state, record)
        assert stored(copy) == before, f"{record.kind} changed the copy"
        after = stored(state)
        apply(copy, record)
        assert stored(state) == after, f"{record.kind} of the copy changed the original"
        assert stored(copy) == after
