"""What a store tells of a search, and the work by which its index follows its records.

The index follows in a batch behind the commits, and is in none of them: a step costs what it cost
without it. Triggers of the database note which agents have changed, in the transaction that changes
them, whoever makes it. The batch works that off by the numbers of the records, so what a crash cuts
off is done again, and what hosts without the option have written is found.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from understudy._base.json_values import text_of
from understudy._base.log_fields import log_extra
from understudy.errors import SchemaVersionError, StoreDamaged
from understudy.journal.asks import StoredAsk
from understudy.journal.codec import EncodedRecord, decode
from understudy.journal.contracts import time_number
from understudy.journal.search_texts import KINDS, Said, said_in

logger: logging.Logger = logging.getLogger(__name__)

SEARCH_VERSION = 1
"""The version of the words and the tables of the search. An index of another version is made
anew."""

_NUMBER_BITS = 12
_LAST = (1 << 50) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchState:
    """How far the index of a store is."""

    is_on: bool
    behind: int = 0
    """How many agents, at least, the index does not have all texts of yet."""


OFF = SearchState(is_on=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHit:
    """One text that has the words which are looked for."""

    no: int
    """The place of the text: of two texts the newer one has the higher number."""
    agent_id: str
    agent: str
    """The name of the agent's definition."""
    ask: StoredAsk | None = None
    """The request that has the words; None for a text of the conversation."""
    seq: int = 0
    """The number of the record that has the words; 0 for a request."""
    row: int = 0
    """The number of the row with the words, among the rows that the record makes, from 0; 0 for a
    result of a tool."""
    said: Said | None = None


def first_number(at: datetime | None) -> int:
    """The first of the numbers that texts of a moment may have."""
    microseconds = 0 if at is None else time_number(at)
    return min(max(microseconds // 1000, 0), _LAST) << _NUMBER_BITS


def moment_of(number: int) -> tuple[int, int]:
    """The numbers that texts of the same moment as a text may have: from, and up to."""
    first = number >> _NUMBER_BITS << _NUMBER_BITS
    return first, first + (1 << _NUMBER_BITS) - 1


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the conversation of an agent is in the index."""

    incarnation: int
    floor: int
    seq: int
    """The number of the last record that the index has as a whole."""
    part: int = 0
    """How many texts of the next record the index has."""
    version: int = 0
    """How often the progress was written: of two hosts that go on from it, the second does
    nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """A text as the index keeps it."""

    at: datetime | None
    words: frozenset[str]
    seq: int = 0
    part: int = 0
    ask: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWork:
    """What one slice of work changes in the index of one agent."""

    key: int
    """The key of the agent's row."""
    before: Progress | None
    after: Progress | None
    """The progress after the slice; None: nothing of the agent stays in the index."""
    drops: str | None = None
    """A further condition, in SQL, of the agent's texts that go first because they are of no use
    any more; empty: all its texts; None: no text goes."""
    answered: Sequence[int] = ()
    """The numbers of requests that wait no more."""
    new: Sequence[Indexed] = ()
    last_seq: int = 0
    """The number of the agent's last record, as this slice has found it."""
    noted: Sequence[int] = ()
    """The numbers of the notes of the agent's changes that are worked off with this slice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A slice of the work on the index."""

    agents: Sequence[AgentWork]
    filled: tuple[int, int | None, int] | None = None
    """The agents of an older store to note, by their keys: above the first number, up to the second
    number (None: to the end). The third number tells this slice from another host's."""
    last: int = 0
    """The key of the last agent that it looked at: the next slice goes on behind it."""


def texts_of(
    agent_id: str, records: Iterable[tuple[int, EncodedRecord]]
) -> Iterable[tuple[int, list[Said]]]:
    """The texts of each record. What cannot be read is logged, and has none."""
    for seq, record in records:
        said: list[Said] = []
        if record.kind in KINDS:
            try:
                said = said_in(decode(record))
            except (SchemaVersionError, StoreDamaged, ValueError, TypeError, LookupError) as error:
                what = f"record {seq} of agent {agent_id!r}"
                logger.error(
                    "%s is not searched: %s", what, text_of(error), extra=log_extra(agent_id)
                )
        yield seq, said
