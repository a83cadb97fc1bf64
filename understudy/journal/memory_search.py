"""`MemorySearch`: the words of what is in a `MemoryStore`, looked through one by one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from understudy.journal.asks import StoredAsk
from understudy.journal.search import StoredHit, first_number, moment_of
from understudy.journal.search_texts import row_number, said_in, text_asked, text_of_row
from understudy.journal.search_words import SearchQuery, kept_words
from understudy.state.records import Record


@dataclass(frozen=True, slots=True)
class _Text:
    hit: StoredHit
    words: frozenset[str]


@dataclass(slots=True)
class _Texts:
    """The texts of an agent, up to one of its records."""

    incarnation: int
    floor: int
    seq: int
    said: list[_Text] = field(default_factory=list)
    asked: dict[int, _Text] = field(default_factory=dict)


class MemorySearch:
    """The index of the search of a store in memory. It follows when somebody searches."""

    def __init__(self) -> None:
        self._agents: dict[str, _Texts] = {}
        self._numbers: list[int] = []

    def keep(self, agent_ids: Iterable[str]) -> None:
        """Forget all agents but these."""
        for agent_id in self._agents.keys() - set(agent_ids):
            del self._agents[agent_id]

    def follow(
        self,
        agent_id: str,
        agent: str,
        incarnation: int,
        floor: int,
        records: Sequence[Record],
        asks: Iterable[StoredAsk],
    ) -> None:
        """Have the texts of an agent as they are now: its records above the floor, and its asks."""
        texts = self._agents.get(agent_id)
        if texts is None or (texts.incarnation, texts.floor) != (incarnation, floor):
            texts = self._agents[agent_id] = _Texts(incarnation, floor, floor)
        for seq, record in enumerate(records[texts.seq - floor :], texts.seq + 1):
            every = said_in(record)
            for part, said in enumerate(every):
                words = frozenset(kept_words(text_of_row(said.row), "conversations"))
                about: dict[str, Any] = {"agent_id": agent_id, "agent": agent, "said": said}
                hit = StoredHit(no=0, seq=seq, row=row_number(every, part), **about)
                texts.said.append(self._numbered(hit, words, first_number(said.at)))
        texts.seq = floor + len(records)
        now = {ask.no: ask for ask in asks if ask.kind == "request"}
        for no in texts.asked.keys() - now.keys():
            del texts.asked[no]
        for no, ask in now.items():
            if no not in texts.asked:
                words = frozenset(kept_words(text_asked(ask.request()), "requests"))
                hit = StoredHit(no=0, agent_id=agent_id, agent=agent, ask=ask)
                texts.asked[no] = self._numbered(hit, words, first_number(ask.asked_at))

    def _numbered(self, hit: StoredHit, words: frozenset[str], moment: int) -> _Text:
        """Number a text by its time. No other text has had the number."""
        while True:
            first, last = moment_of(moment)
            end = bisect_right(self._numbers, last)
            taken = end > bisect_left(self._numbers, first)
            no = self._numbers[end - 1] + 1 if taken else first
            if no <= last:
                insort(self._numbers, no)
                return _Text(replace(hit, no=no), words)
            moment = last + 1

    def hits(self, query: SearchQuery, before: int | None, limit: int) -> list[StoredHit]:
        """Up to `limit` texts with some words, the newest first; see `Backend.search`."""
        wanted = SearchQuery(query.kept)
        found = [
            text.hit
            for texts in self._agents.values()
            for text in (*texts.said, *texts.asked.values())
            if (before is None or text.hit.no < before) and wanted.matches(text.words)
        ]
        return sorted(found, key=lambda hit: hit.no, reverse=True)[:limit]
