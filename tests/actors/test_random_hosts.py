"""Random calls at random hosts: each caller gets its own outcome, and nothing is done twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from tests.support.agents import completed
from tests.support.hosts import opened, posts
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import Agent, Interrupted, Runtime, ScriptedModel, ToolContext, approve, call, tool
from understudy.journal.database_store import DatabaseStore

AGENTS = 4
CALLS = 60


def echoes(effects: Counter[str]) -> Agent:
    """Each run has its effect once, after an approval or without, and answers by its input."""

    @tool
    async def note(context: ToolContext, what: str) -> str:
        effects[what] += 1
        await asyncio.sleep(0)
        return what

    @tool
    async def gated(context: ToolContext, what: str) -> str:
        effects[what] += 1
        return what

    def reply(request: Any) -> Any:
        last = request.messages[-1].parts[-1]
        if last.part_kind == "user-prompt":
            name = "gated" if request.prompt.startswith("ask") else "note"
            return call(name, {"what": request.prompt})
        return f"{last.content}"

    return Agent("desk", ScriptedModel(reply), tools=[note, gated], interrupt_on={"gated": True})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_each_caller_at_a_random_host_gets_its_own_outcome(hosts: Hosts, seed: int) -> None:
    """J5, J6, J14."""
    effects: Counter[str] = Counter()
    rng = random.Random(seed)
    stores = [DatabaseStore(hosts.new(name)) for name in "abc"]
    async with (
        opened(stores[0], echoes(effects)) as first,
        opened(stores[1], echoes(effects)) as second,
        opened(stores[2], echoes(effects)) as third,
    ):
        runtimes = [first, second, third]
        asked: list[str] = []

        async def caller(number: int, id: str) -> None:
            for turn in range(CALLS // AGENTS // 2):
                prompt = f"{rng.choice(['do', 'ask'])} {id}.{number}.{turn}"
                asked.append(prompt)
                outcome = await rng.choice(runtimes).spawn("desk", id).run(prompt)
                for _ in range(2):
                    if isinstance(outcome, Interrupted):
                        decided = outcome.decide(approve())
                        outcome = await rng.choice(runtimes).get(id).resume(decided)
                assert completed(outcome).text == prompt

        # One caller for each agent at a time: a second one would withdraw what the first one asks.
        await soon(asyncio.gather(*(caller(0, f"t{n}") for n in range(AGENTS))))
        await until(lambda: posts(hosts) == [])
    assert effects == Counter(asked)
    ((runs,),) = hosts.sql("SELECT count(*) FROM records WHERE kind = 'run_started'")
    ((ends,),) = hosts.sql("SELECT count(*) FROM records WHERE kind = 'run_ended'")
    assert runs == ends == len(asked)


async def test_callers_who_meet_at_one_agent_get_their_own_outcomes(hosts: Hosts) -> None:
    """J14: whichever host the agent is at, and whoever takes it from whom."""
    effects: Counter[str] = Counter()
    stores = [DatabaseStore(hosts.new(name)) for name in "abc"]
    async with (
        opened(stores[0], echoes(effects)) as first,
        opened(stores[1], echoes(effects)) as second,
        opened(stores[2], echoes(effects)) as third,
    ):

        async def caller(runtime: Runtime, name: str) -> None:
            for turn in range(8):
                prompt = f"do {name}.{turn}"
                outcome = await runtime.spawn("desk", "t").run(prompt)
                assert completed(outcome).text == prompt

        callers = [(first, "a"), (second, "b"), (third, "c"), (first, "d"), (second, "e")]
        await soon(asyncio.gather(*(caller(*each) for each in callers)))
        await until(lambda: posts(hosts) == [])
    assert effects == Counter({f"do {name}.{n}": 1 for _, name in callers for n in range(8)})
