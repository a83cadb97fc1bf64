"""The last check before a tool's body: is this runtime still the owner?"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.loops import soon
from understudy import Agent, Runtime, ScriptedModel, call, tool
from understudy.errors import Fenced
from understudy.journal import IndexEntry, MemoryStore, Owned, OwnedJournal


class Lease:
    """A lease that ends when the test says so."""

    def __init__(self) -> None:
        self.ended = False


class _LeasedJournal:
    """The journal of a memory store whose owner has a lease."""

    def __init__(self, journal: OwnedJournal, lease: Lease) -> None:
        self._journal = journal
        self._lease = lease
        self.append = journal.append
        self.durable = journal.durable
        self.fence = journal.fence

    @property
    def owned(self) -> Owned:
        return self._journal.owned

    @property
    def has_unflushed(self) -> bool:
        return False

    def check_owner(self) -> None:
        if self._lease.ended:
            raise Fenced(agent_id=self.owned.agent_id, why="the test ended the lease")


class LeasedStore(MemoryStore):
    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def journal(  # type: ignore[override]  # a wrapper of what it returns
        self,
        owned: Owned,
        *,
        index_entry: Callable[[], IndexEntry],
        on_durable: Callable[[int], None],
    ) -> _LeasedJournal:
        journal = super().journal(owned, index_entry=index_entry, on_durable=on_durable)
        return _LeasedJournal(journal, self._lease)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()  # whatever happens: no thread waits for ever


async def test_a_plain_tool_whose_lease_ends_while_it_waits_for_a_thread_is_not_run(
    release: threading.Event,
) -> None:
    """J8: the check is the last thing before the body, in the thread itself."""
    lease = Lease()
    ran: list[str] = []
    entered = threading.Event()

    @tool
    def first() -> str:
        entered.set()
        release.wait(10)
        lease.ended = True
        return "first"

    @tool
    def second() -> str:
        ran.append("second")
        return "second"

    model = ScriptedModel([[call("first"), call("second")], "done"])
    agent = Agent("a", model, tools=[first, second])
    async with Runtime([agent], store=LeasedStore(lease), max_threads=1) as runtime:
        run = runtime.spawn("a").run("go")
        release.set()
        with pytest.raises(Fenced):
            await soon(run)
        assert entered.is_set()
        lease.ended = False
    assert ran == []
