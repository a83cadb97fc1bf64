"""`SqlSearch`: the index of a search, in the tables of an SQL database that has one.

A database without a search has none of these tables and triggers. The triggers note the agents that
have changed, in the transaction of the change: `search_todo`. What is deleted or answered they
remove there and then. What is new is added in slices: `unindexed` reads and `put` writes. Both
databases have the same tables but for the column `words`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from understudy._base.log_fields import log_extra
from understudy.errors import SchemaVersionError, StoreDamaged
from understudy.journal.asks import StoredAsk
from understudy.journal.contracts import StoredRecords
from understudy.journal.lists import listed_ask
from understudy.journal.search import (
    OFF,
    SEARCH_VERSION,
    AgentWork,
    Indexed,
    Progress,
    SearchState,
    StoredHit,
    Work,
    first_number,
    logger,
    moment_of,
    texts_of,
)
from understudy.journal.search_texts import Said, row_number, text_asked, text_of_row
from understudy.journal.search_words import SearchQuery, kept_words

T = TypeVar("T")
Rows = list[tuple[Any, ...]]
Values = Sequence[Any] | Mapping[str, Any]
Fetch = Callable[[str, Values], Rows]

SLICE_TEXTS = 100
"""The texts that one transaction adds, at most."""
SLICE_WORDS = 4000
"""The words in them, at most, or those of one text: 5 to 10 ms."""
SLICE_SECONDS = 0.015
"""Seconds after which a slice looks at no further agent."""
SLICE_RECORDS = 50
SLICE_NOTES = 500
SLICE_DROPS = 300
MOST_COUNTED = 1000
"""The most agents that are counted as behind."""

TABLES = (
    # One row. `filled` is the key up to which the agents of before were noted. `number` changes
    # with it.
    """CREATE TABLE search_state (
        version integer NOT NULL,
        filled bigint NOT NULL,
        is_filled boolean NOT NULL,
        number bigint NOT NULL
    )""",
    # How far each agent is: `Progress`.
    """CREATE TABLE search_agents (
        agent bigint PRIMARY KEY,
        incarnation bigint NOT NULL,
        floor bigint NOT NULL,
        seq bigint NOT NULL,
        part bigint NOT NULL,
        version bigint NOT NULL
    )""",
    # A row for each text. `no` has the time in it, so the newest rows have the highest numbers.
    # `ask` is the number of a request. No text itself is kept: a hit is read from its record.
    """CREATE TABLE search_texts (
        no bigint PRIMARY KEY,
        agent bigint NOT NULL,
        seq bigint NOT NULL,
        part bigint NOT NULL,
        ask bigint,
        {words}
    )""",
    "CREATE INDEX search_texts_by_agent ON search_texts (agent)",
    "CREATE INDEX search_texts_by_ask ON search_texts (ask) WHERE ask IS NOT NULL",
)
NAMES = ("search_state", "search_agents", "search_todo", "search_texts")

_STATE = "SELECT version, filled, is_filled, number FROM search_state"
_NOTES = "SELECT agent, n FROM search_todo WHERE agent > %s ORDER BY agent, n LIMIT %s"
_AGENT = "SELECT agent_id, deleted, incarnation, floor, last_seq FROM agents WHERE key = %s"
_PROGRESS = "SELECT incarnation, floor, seq, part, version FROM search_agents WHERE agent = %s"
_ASK_COLUMNS = """
SELECT k.no, a.agent_id, k.definition, k.kind, k.tool, k.asked_at, k.expires_at, k.reminders,
    k.escalations, k.version, k.payload, false
FROM asks k CROSS JOIN agents a WHERE a.key = k.agent AND NOT a.deleted AND k.kind = 'request'"""
_NEW_ASKS = f"""{_ASK_COLUMNS} AND k.agent = %s
    AND NOT EXISTS (SELECT 1 FROM search_texts t WHERE t.ask = k.no) ORDER BY k.no LIMIT %s"""  # noqa: S608 - of constants
_GONE_ASKS = """
SELECT t.ask FROM search_texts t WHERE t.agent = %s AND t.ask IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM asks k WHERE k.no = t.ask AND k.agent = t.agent) LIMIT %s"""
_HAS_TEXTS = "SELECT 1 FROM search_texts WHERE agent = %s AND ask IS NULL LIMIT 1"
_BEGIN = """
INSERT INTO search_agents (agent, incarnation, floor, seq, part, version)
VALUES (%s, %s, %s, %s, %s, 1) ON CONFLICT DO NOTHING RETURNING agent"""
_GO_ON = """
UPDATE search_agents SET incarnation = %s, floor = %s, seq = %s, part = %s, version = version + 1
WHERE agent = %s AND incarnation = %s AND floor = %s AND version = %s RETURNING agent"""
_END = "DELETE FROM search_agents WHERE agent = %s"
_DROP = """
DELETE FROM search_texts WHERE no IN (SELECT no FROM search_texts WHERE agent = %s{which} LIMIT %s)
RETURNING no"""
_DROP_ASK = "DELETE FROM search_texts WHERE agent = %s AND ask = %s"
_LAST_NUMBER = "SELECT max(no) FROM search_texts WHERE no BETWEEN %s AND %s"
_NEXT_KEYS = "SELECT key FROM agents WHERE key > %s AND NOT deleted ORDER BY key LIMIT %s"
_FILLED = """
UPDATE search_state SET filled = %s, is_filled = %s, number = number + 1
WHERE number = %s RETURNING number"""
_COUNT_NOTED = "SELECT count(*) FROM (SELECT DISTINCT agent FROM search_todo LIMIT %s) AS noted"
_COUNT_NEXT = f"SELECT count(*) FROM ({_NEXT_KEYS}) AS next"  # noqa: S608 - of a constant

# A text that is of no use any more may be there until the next slice: it is never told.
_HITS = """
{found} JOIN agents a ON a.key = t.agent
WHERE {matches} AND {order} < %s AND NOT a.deleted AND (
    EXISTS (SELECT 1 FROM asks k WHERE k.no = t.ask AND k.agent = t.agent)
    OR (t.ask IS NULL AND EXISTS (SELECT 1 FROM search_agents d
        WHERE d.agent = t.agent AND d.incarnation = a.incarnation AND d.floor = a.floor)))
ORDER BY {order} DESC LIMIT %s"""


class Reads(Protocol):
    """What a search reads of its backend."""

    def _look(self, make: Callable[..., T], *queries: tuple[str, Values]) -> T: ...

    def load_part(self, agent_id: str, after: int, limit: int) -> StoredRecords | None: ...


class SqlSearch(ABC):
    """The index of the search of one database.

    Args:
        backend: reads the database.

    """

    is_there: str
    """Brings a row where the database has the tables."""
    made: Sequence[str]
    """The statements that make the tables and the triggers."""
    removed: Sequence[str]
    """The statements that remove them."""
    found: str = "SELECT {columns} FROM search_texts t"
    """The texts `t`, with what finds them."""
    order: str = "t.no"
    insert_text: str
    """Adds a text: `no`, `agent`, `seq`, `part`, `ask` and the words."""
    worked_off: str = "DELETE FROM search_todo WHERE agent = %(key)s AND n = %(note)s"
    """Removes a note, unless the agent has changed since its last record was `last_seq`."""
    note_agents: str
    """Notes the agents with keys above the first value, up to the second value."""

    def __init__(self, backend: Any) -> None:
        self._backend: Reads = backend

    # ----------------------------------------------------------- of each database

    @abstractmethod
    def matches(self, query: SearchQuery) -> tuple[str, str]:
        """The condition, with the value in it, that a text has the words."""

    @abstractmethod
    def words(self, words: frozenset[str]) -> Any:
        """The words of a text, as `insert_text` takes them."""

    # ------------------------------------------------------------------ on and off

    def turn(self, fetch: Fetch, on: bool) -> None:
        """Make the tables, or remove them, unless it is so already. In a transaction."""
        if fetch(self.is_there, ()):
            if on and fetch("SELECT 1 FROM search_state WHERE version = %s", [SEARCH_VERSION]):
                return
            for statement in self.removed:
                fetch(statement, ())
        if on:
            for statement in self.made:
                fetch(statement, ())
            fetch("INSERT INTO search_state VALUES (%s, 0, false, 0)", [SEARCH_VERSION])

    # ------------------------------------------------------------------- looking

    def _look(self, query: str, *values: Any) -> Rows:
        return self._backend._look(Rows, (query, values))

    def _state(self) -> tuple[int, bool, int] | None:
        """Up to which key agents of before were noted, whether all were, and its number."""
        if not self._look(self.is_there):
            return None
        for version, filled, is_filled, number in self._look(_STATE):
            if version == SEARCH_VERSION:
                return filled, bool(is_filled), number
        return None

    def state(self) -> SearchState:
        """Whether there is an index, and how far it is."""
        state = self._state()
        if state is None:
            return OFF
        filled, is_filled, _ = state
        ((behind,),) = self._look(_COUNT_NOTED, MOST_COUNTED)
        if not is_filled:
            behind += self._look(_COUNT_NEXT, filled, MOST_COUNTED)[0][0]
        return SearchState(is_on=True, behind=behind)

    def hits(self, query: SearchQuery, before: int | None, limit: int) -> list[StoredHit]:
        """Up to `limit` texts below a number, the newest first."""
        matches, value = self.matches(query)
        columns = "t.no, t.agent, a.agent_id, a.definition, t.seq, t.part, t.ask"
        found = self.found.format(columns=columns)
        text = _HITS.format(found=found, matches=matches, order=self.order)
        hits: list[StoredHit] = []
        said: dict[tuple[str, int], list[Said]] = {}
        last, wanted = (1 << 63) - 1 if before is None else before, limit
        while wanted > 0:
            rows = self._look(text, value, last, wanted)
            hits += [hit for row in rows if (hit := self._hit(row, said)) is not None]
            # Of a text whose record is compacted meanwhile, or cannot be read, there is none.
            if len(rows) < wanted:
                break
            last, wanted = rows[-1][0], limit - len(hits)
        return hits

    def _hit(
        self, row: tuple[Any, ...], said: dict[tuple[str, int], list[Said]]
    ) -> StoredHit | None:
        """Return the hit of a row of the index. A record with several hits is read once."""
        no, _, agent_id, agent, seq, part, ask = row
        hit = partial(StoredHit, no=no, agent_id=agent_id, agent=agent)
        if ask is not None:
            for found in self._look(f"{_ASK_COLUMNS} AND k.no = %s", ask):
                return hit(ask=listed_ask(found))
            return None
        place = agent_id, seq
        if place not in said:
            stored = self._backend.load_part(agent_id, seq - 1, 1)
            is_there = stored is not None and stored.first_seq == seq
            records = enumerate(stored.records if stored is not None and is_there else (), seq)
            said[place] = [each for _, texts in texts_of(agent_id, records) for each in texts]
        texts = said[place]
        if part >= len(texts):
            return None
        return hit(seq=seq, row=row_number(texts, part), said=texts[part])

    # --------------------------------------------------------- the work that is left

    def unindexed(self, after: int) -> Work | None:
        """A slice of the work that is left, behind the agent with a key; None: all is done."""
        state = self._state()
        if state is None:
            return None
        filled, is_filled, number = state
        notes = self._look(_NOTES, after, SLICE_NOTES)
        if not notes and after:
            notes = self._look(_NOTES, 0, SLICE_NOTES)
        noted: dict[int, list[int]] = defaultdict(list)
        for key, note in notes:
            noted[key].append(note)
        if len(notes) == SLICE_NOTES and len(noted) > 1:
            noted.popitem()  # it may have further notes
        agents: list[AgentWork] = []
        room, end = _Room(), time.monotonic() + SLICE_SECONDS
        for key, its in noted.items():
            agents.append(self._work_on(key, its, room))
            if room.is_full or time.monotonic() > end:
                break
        more: tuple[int, int | None, int] | None = None
        if not is_filled and len(notes) < SLICE_NOTES // 2:
            keys = self._look(_NEXT_KEYS, filled, SLICE_NOTES)
            more = filled, keys[-1][0] if keys else None, number
        if not agents and more is None:
            return None
        return Work(agents=agents, filled=more, last=agents[-1].key if agents else 0)

    def _work_on(self, key: int, notes: Sequence[int], room: _Room) -> AgentWork:
        """What is to be done about one agent, as far as there is room for it."""
        agents, progress, new, gone, old = self._backend._look(
            lambda *rows: rows,
            (_AGENT, [key]),
            (_PROGRESS, [key]),
            (_NEW_ASKS, [key, room.texts]),
            (_GONE_ASKS, [key, SLICE_DROPS]),
            (_HAS_TEXTS, [key]),
        )
        before = Progress(*progress[0]) if progress else None
        work = partial(AgentWork, key=key, before=before, last_seq=agents[0][4] if agents else 0)
        if not agents or agents[0][1]:
            return work(after=None, drops="", noted=notes)
        agent_id, _, incarnation, floor, last_seq = agents[0]
        is_known = before is not None and (before.incarnation, before.floor) == (incarnation, floor)
        start = before if is_known and before is not None else Progress(incarnation, floor, floor)
        if not is_known and old:  # what was before a deletion or a compaction
            return work(after=start, drops=" AND ask IS NULL")
        most = room.texts
        asked = room.take(_of_ask(listed_ask(row)) for row in new)
        is_done = len(asked) < most and len(asked) == len(new) and len(gone) < SLICE_DROPS
        seq, part, said = self._said(agent_id, start, last_seq, room)
        is_done &= seq >= last_seq
        return work(
            after=Progress(incarnation, floor, seq, part),
            answered=[no for (no,) in gone],
            new=[*said, *asked],
            noted=notes if is_done else (),
        )

    def _said(
        self, agent_id: str, start: Progress, last_seq: int, room: _Room
    ) -> tuple[int, int, list[Indexed]]:
        """The texts behind a place for which there is room, and the place behind them."""
        seq, part, found = start.seq, start.part, list[Indexed]()
        if seq >= last_seq or room.is_full:
            return seq, part, found
        try:
            stored = self._backend.load_part(agent_id, seq, SLICE_RECORDS)
        except StoreDamaged as error:
            logger.error(
                "agent %r is not searched from record %d on: %s",
                agent_id,
                seq + 1,
                error,
                extra=log_extra(agent_id),
            )
            return last_seq, 0, found
        if stored is None or stored.first_seq != seq + 1:  # it is compacted, or deleted, meanwhile
            return seq, part, found
        for number, texts in texts_of(agent_id, enumerate(stored.records, stored.first_seq)):
            rest = islice(enumerate(texts), part, None)
            found += (taken := room.take(_of_text(number, at, said) for at, said in rest))
            part += len(taken)
            if part < len(texts):
                return seq, part, found
            seq, part = number, 0
            if room.is_full:
                break
        return seq, part, found

    # ------------------------------------------------------------------- writing

    def put(self, fetch: Fetch, work: Work) -> None:
        """Write what `unindexed` has found, in a transaction.

        Nothing is written about an agent of which another host was first.
        """
        for each in work.agents:
            self._put_agent(fetch, each)
        if work.filled is not None:
            start, end, number = work.filled
            values = [start if end is None else end, end is None, number]
            if fetch(_FILLED, values) and end is not None:
                fetch(self.note_agents, [start, end])

    def _put_agent(self, fetch: Fetch, work: AgentWork) -> None:
        key, before, after = work.key, work.before, work.after
        if work.drops is not None:
            gone = fetch(_DROP.format(which=work.drops), [key, SLICE_DROPS])
            if len(gone) == SLICE_DROPS:
                return
        if after is None:
            fetch(_END, [key])
        else:
            place = [after.incarnation, after.floor, after.seq, after.part]
            if before is None:
                is_first = fetch(_BEGIN, [key, *place])
            else:
                was = [before.incarnation, before.floor, before.version]
                is_first = fetch(_GO_ON, [*place, key, *was])
            if not is_first:
                return
        for no in work.answered:
            fetch(_DROP_ASK, [key, no])
        for no, text in self._numbered(fetch, work.new):
            values = [no, key, text.seq, text.part, text.ask, self.words(text.words)]
            fetch(self.insert_text, values)
        for note in work.noted:
            fetch(self.worked_off, {"key": key, "note": note, "last_seq": work.last_seq})

    def _numbered(self, fetch: Fetch, texts: Sequence[Indexed]) -> Iterator[tuple[int, Indexed]]:
        """Each text with a number that no other text has, by its time."""
        free: dict[int, int] = {}
        for text in texts:
            moment = first_number(text.at)
            while True:
                first, last = moment_of(moment)
                if first not in free:
                    ((highest,),) = fetch(_LAST_NUMBER, [first, last])
                    free[first] = first if highest is None else highest + 1
                if free[first] <= last:
                    break
                moment = last + 1  # the moment is full: of the next one
            yield free[first], text
            free[first] += 1


class _Room:
    """How much one slice may add yet."""

    def __init__(self) -> None:
        self.texts = SLICE_TEXTS
        self.words = SLICE_WORDS

    @property
    def is_full(self) -> bool:
        return self.texts <= 0 or self.words <= 0

    def take(self, texts: Iterable[Indexed]) -> list[Indexed]:
        """The first texts, as long as there is room."""
        taken: list[Indexed] = []
        for text in texts:
            taken.append(text)
            self.texts -= 1
            self.words -= len(text.words)
            if self.is_full:
                break
        return taken


def _of_ask(ask: StoredAsk) -> Indexed:
    words: frozenset[str] = frozenset()
    try:
        words = frozenset(kept_words(text_asked(ask.request()), "requests"))
    except (SchemaVersionError, StoreDamaged) as error:
        logger.error(
            "a request of agent %r is not searched: %s",
            ask.agent_id,
            error,
            extra=log_extra(ask.agent_id),
        )
    return Indexed(at=ask.asked_at, words=words, ask=ask.no)


def _of_text(seq: int, part: int, said: Said) -> Indexed:
    words = frozenset(kept_words(text_of_row(said.row), "conversations"))
    return Indexed(at=said.at, words=words, seq=seq, part=part)
