"""When a run waits for its store: one commit a step, none of them in the way of the model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from tests.support.agents import by_turn
from understudy import Agent, Completed, Runtime, ScriptedModel
from understudy.errors import Fenced, StoreConflict
from understudy.journal import DatabaseStore
from understudy.journal.contracts import Batch
from understudy.journal.readable import readable_data
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.models import call


class Watched(SqliteBackend):
    """Counts its commits, and tells the loop of the kinds of records that became durable."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder / "store.db"), durability="off", host="here")
        self.commits = 0
        self.durable: list[str] = []
        self.changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._open: list[str] = []

    def append_all(self, batches: Sequence[Batch]) -> list[Fenced | StoreConflict | None]:
        self._open += [record.kind for batch in batches for record in batch.records]
        return super().append_all(batches)

    def commit(self) -> None:
        super().commit()
        self.commits += 1
        self.durable += self._open
        self._open = []
        self._loop.call_soon_threadsafe(self.changed.set)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit waits until somebody needs it, however long the loop takes to come to that."""
    monkeypatch.setattr("understudy.journal.agent_journal.LINGER", 60)


@pytest.mark.usefixtures("patient")
async def test_a_step_of_a_model_that_answers_at_once_is_one_commit(tmp_path: Path) -> None:
    """J2: the results of a turn, its end, the next reply and its calls' starts go together."""
    backend = Watched(tmp_path)
    commits: list[int] = []

    async def look() -> str:
        commits.append(backend.commits)
        return "seen"

    agent = Agent("clerk", by_turn(*[call("look", {})] * 10), tools=[look])
    async with Runtime([agent], store=DatabaseStore(backend)) as runtime:
        assert isinstance(await runtime.spawn("clerk").run("go"), Completed)

    assert commits == list(range(commits[0], commits[0] + 10))


@pytest.mark.usefixtures("patient")
async def test_all_calls_of_a_reply_start_in_the_commit_of_that_reply(tmp_path: Path) -> None:
    backend = Watched(tmp_path)
    commits: list[int] = []

    async def look() -> str:
        commits.append(backend.commits)
        return "seen"

    turn = [call("look", {}), call("look", {}), call("look", {})]
    agent = Agent("clerk", by_turn(turn, turn), tools=[look])
    async with Runtime([agent], store=DatabaseStore(backend)) as runtime:
        await runtime.spawn("clerk").run("go")

    assert len(set(commits[:3])) == 1
    assert set(commits[3:]) == {commits[0] + 1}


class Waits(ScriptedModel):
    """Answers its second question when the result of the first call is durable."""

    backend: Watched
    asked_again: asyncio.Event

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        if len(messages) > 1:
            self.asked_again.set()
            async with asyncio.timeout(60):
                while "result" not in self.backend.durable:
                    self.backend.changed.clear()
                    await self.backend.changed.wait()
        return await super().request(messages, model_settings, model_request_parameters)


def waiting(folder: Path) -> tuple[Waits, Agent]:
    """A model that waits for the result of its call, and the agent that uses it."""

    async def look() -> str:
        return "seen"

    model = Waits([call("look", {}), "done"])
    model.backend, model.asked_again = Watched(folder), asyncio.Event()
    return model, Agent("clerk", model, tools=[look])


async def test_results_are_committed_while_a_slow_model_thinks(tmp_path: Path) -> None:
    """J2."""
    model, agent = waiting(tmp_path)
    async with Runtime([agent], store=DatabaseStore(model.backend)) as runtime:
        assert isinstance(await runtime.spawn("clerk").run("go"), Completed)


@pytest.mark.usefixtures("patient")
async def test_results_are_in_the_next_commit_for_which_another_agent_waits(tmp_path: Path) -> None:
    model, agent = waiting(tmp_path)
    other = Agent("other", by_turn("hello"))
    async with Runtime([agent, other], store=DatabaseStore(model.backend)) as runtime:
        outcome = runtime.spawn("clerk").run("go")
        await model.asked_again.wait()
        await runtime.spawn("other").run("hi")
        assert isinstance(await outcome, Completed)


async def test_no_record_of_a_plain_run_is_read_back_when_it_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is surely readable is not decoded again, which takes longer than to encode it."""
    found: list[tuple[str, bool]] = []

    def looked(record: Any) -> dict[str, Any] | None:
        data = readable_data(record)
        found.append((type(record).__name__, data is not None))
        return data

    async def see(number: int) -> str:
        return f"seen {number}"

    monkeypatch.setattr("understudy.journal.codec.readable_data", looked)
    agent = Agent("clerk", by_turn(*[call("see", {"number": 1})] * 3), tools=[see])
    async with Runtime([agent], store=DatabaseStore(Watched(tmp_path))) as runtime:
        ref = runtime.spawn("clerk")
        for _ in range(2):
            assert isinstance(await ref.run("go"), Completed)

    assert {"RunStarted", "Reply", "Started", "Result", "RunEnded"} <= {name for name, _ in found}
    assert [name for name, is_readable in found if not is_readable] == []
