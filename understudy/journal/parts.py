"""The records of an agent, read a part at a time: no read, and no fold, is as long as its history.

Between two parts other agents are read, and the agent itself goes on. So the parts may be of a
history that was compacted, or deleted, meanwhile: it is read anew then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol, TypeVar

from understudy._base.pieces import each, in_pieces
from understudy.journal.contracts import StoredAgent
from understudy.journal.loaded import Loaded, size_of
from understudy.journal.reads import StoreReads
from understudy.state.records import Record

PART = 500
"""The number of records that are read at once. To decode them takes 10 ms, in the reader's
thread."""


class Reading(Protocol):
    """What is made of the records of an agent."""

    def add(self, seq: int, record: Record) -> object:
        """The next record, with its number."""


ReadingT = TypeVar("ReadingT", bound=Reading)
Begin = Callable[[StoredAgent], ReadingT]
"""Begins a reading. It is called again where the history has to be read anew."""


async def read_in_parts(
    store: StoreReads, agent_id: str, begin: Begin[ReadingT], *, after: int = 0
) -> tuple[Loaded, ReadingT] | None:
    """Read the records above a number, up to those that are there when it begins, or some more.

    Returns:
        The first part, and what was made of all of them; None if there is no such agent, or it
        was deleted meanwhile.

    """
    while True:
        first = await store.load_part(agent_id, after, PART)
        if first is None:
            return None
        reading = begin(first.agent)
        is_whole = await _read_on(store, first, reading)
        if is_whole is None:
            return None
        if is_whole:
            return first, reading


async def _read_on(store: StoreReads, first: Loaded, reading: Reading) -> bool | None:
    """Read a history to its end; False if it changed under the reader, None if it is gone."""
    part: Loaded | None = first
    while part is not None:
        # Race: a compaction or a deletion between two parts. The numbers that follow are those of
        # another history (test_what_is_compacted_while_it_is_read_in_parts_is_read_anew,
        # test_an_agent_that_is_made_anew_while_it_is_read_in_parts_is_read_anew).
        same = part.agent.incarnation == first.agent.incarnation
        if not same or part.agent.floor != first.agent.floor:
            return False
        await in_pieces(adding(part, reading))
        seq = part.first_seq + len(part.records) - 1
        if seq >= first.agent.last_seq or not part.records:
            return True
        part = await store.load_part(first.agent.agent_id, seq, PART)
    return None


def adding(part: Loaded, reading: Reading) -> Generator[None, None, None]:
    """The work of giving a part to a reading, for `in_pieces`."""
    numbered = enumerate(part.records, part.first_seq)
    yield from each(numbered, lambda item: reading.add(*item), size=lambda item: size_of(item[1]))
