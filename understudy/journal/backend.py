"""`Backend`: the database under a store. Its docstrings are what a database of your own must do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn

from understudy.errors import Fenced, OwnedElsewhere, StoreConflict, UsageError
from understudy.journal.asks import StoredAsk
from understudy.journal.call_keys import KeyTaking, KeyUse
from understudy.journal.checkpoints import Checkpoint
from understudy.journal.contracts import (
    Batch,
    Deletion,
    IndexStatus,
    Owned,
    Refusal,
    StoredAgent,
    StoredRecords,
)
from understudy.journal.feed import FeedKey, FeedPage
from understudy.journal.kept import Kept, not_kept
from understudy.journal.lists import (
    AgentKey,
    AgentQuery,
    AskedAt,
    AskGroup,
    AskKey,
    AskPlace,
    AskQuery,
)
from understudy.journal.loaded import NEWEST, decoded
from understudy.journal.memory_index import MemoryIndex, unreadable_is_logged
from understudy.journal.notes import StoredNote
from understudy.journal.notices import NoticeState, Outbox, StoredNotice
from understudy.journal.retirement import TombstonePlace, WholeAgent
from understudy.journal.troubles import GoneHost, Troubles
from understudy.state.request_notes import RequestNote
from understudy.state.trust_log import HostBehind, TrustFact

if TYPE_CHECKING:
    from understudy.journal.decided import DecidedKey, DecidedQuery, StoredDecided
    from understudy.journal.search import SearchState, StoredHit, Work
    from understudy.journal.search_words import SearchQuery
    from understudy.journal.spending import CounterSums
    from understudy.journal.spending_books import Decision, KeptSpending
    from understudy.journal.usage import Used

PAGE = 500
"""Agents that one query of the index returns at most."""


class Backend(ABC):
    """A database that keeps records. Plain blocking calls: the store calls them in its threads.

    A database must define `host`, `open`, `close`, `reconnect`, `begin`, `commit`, `rollback`,
    `claim`, `append`, `release`, `compact`, `delete`, `is_committed`, `load` and `agents`. Every
    other method works without being defined: it calls `load` and `agents`, and looks at each agent
    or each record where a database would have an index.

    What a database keeps besides records is opt-in. A value of `keeps` needs all methods of its
    line. A store whose backend lacks one is not opened. `append` keeps the fields of `Batch`.

    - `"checkpoints"`: agents that wake from their last state, not from all records. Methods:
      `write_checkpoint`, `load_latest`.
    - `"decided"`: decisions on requests, over all agents. Methods: `list_decided`,
      `count_decided`. Of `Batch`: `decided`.
    - `"feed"`: `Runtime(feed=True)`. Methods: `turn_feed`, `add_deletions`, `trim_feed`,
      `read_feed`. Of `Batch`: `feed`.
    - `"files"`: files of agents, as of `Workspace`. Methods: `load_blobs`. Of `Batch`: `blobs`,
      `blobs_in_use`.
    - `"keys"`: `@tool(key=...)`. Methods: `key_secret`, `key_uses`, `take_key`, `free_key`,
      `has_old_keys`, `delete_old_keys`. Of `Batch`: `key_ends`.
    - `"messages"`: ids of old messages, which are not in the agent's state any more. Methods:
      `message_runs`. Of `Batch`: `message_runs`.
    - `"notes"`: comments beside requests. Methods: `add_note`, `notes`, `has_notes`,
      `sweep_notes`.
    - `"notices"`: `Runtime(notify=...)`. Methods: `outbox`, `notices`.
    - `"search"`: `Runtime(search=True)`. Methods: `turn_search`, `search_state`, `unindexed`,
      `index`, `search`.
    - `"spending"`: budgets. Methods: `load_spending`, `keep_reserved`, `counters`. Of `Batch`:
      `settlements`.
    - `"trust"`: freezes, rules and delegations of the whole store. Methods: `trust_seen`,
      `trust_after`, `add_trust`.
    - `"usage"`: `Runtime(usage=True)`. Methods: `read_usage`. Of `Batch`: `used`.

    One thread calls the *writer's* methods, another one the *reader's*, a third one `renew`: each
    needs a connection of its own. A fourth one calls `open` before they start, and `close` after.
    The docstring of each method says whose it is. Properties may be read in any thread.
    A writer's change is made between `begin` and `commit`; one transaction holds the changes of
    several agents. Such a change raises:

    - `Fenced`, `OwnedElsewhere`, `StoreConflict`: this change was not made; the other changes of
      the transaction continue.
    - `StoreUnavailable`: the database cannot be reached, or is locked. The transaction is rolled
      back, and retried after `reconnect`.
    - `StoreBroken` (disk full, read-only, an I/O error, damaged): the transaction is rolled back,
      and not retried.

    No other exception leaves these methods.
    """

    keeps: Collection[Kept] = ()
    """What it keeps besides records and their index: see the list above. What it does not keep,
    agents do without: no call of a tool has a key, say."""
    restored: bool = False
    """After `open`: whether this database is an older copy of the one that was used here last. A
    runtime then marks the agents that are open or due: what they did since the copy was made is
    unknown. A backend that cannot find that out leaves it False."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    @property
    @abstractmethod
    def host(self) -> str:
        """The name of this runtime, which other runtimes see as the owner of its agents."""

    # ------------------------------------------------------------------- the writer

    @abstractmethod
    def open(self) -> None:
        """Connect, create missing tables, and become a host. Called before the threads start.

        A database for one runtime forgets the owners of all agents: they were left by a process
        that was killed. Where hosts share it, agents of a host stay until its lease ends.

        Raises:
            StoreInUse: if the database is for one runtime, and another one has it.
            SchemaVersionError: if the store has another format.

        """

    @abstractmethod
    def close(self) -> None:
        """Release what this host owns, and disconnect. Called after the threads. Raises nothing."""

    @abstractmethod
    def reconnect(self) -> None:
        """The writer's, after `StoreUnavailable`: connect it again, as the same host.

        The reader and the heartbeat reconnect by themselves, and try once more.
        """

    @abstractmethod
    def begin(self) -> None:
        """The writer's: begin a transaction."""

    @abstractmethod
    def commit(self) -> None:
        """The writer's: commit it. On return it is durable."""

    @abstractmethod
    def rollback(self) -> None:
        """The writer's: roll it back. Raises nothing: a lost connection has done so already."""

    @abstractmethod
    def claim(self, agent_id: str, agent: str | None) -> Owned | None:
        """The writer's: become the owner of an agent, in a new epoch.

        A compare-and-set: it succeeds only if no other host with an unexpired lease owns the agent.
        An agent that this host owns already is claimed again, in a new epoch.

        Args:
            agent_id: up to 500 characters, which are up to 2,000 bytes in UTF-8.
            agent: the name of its definition. It begins the first incarnation of an unknown agent
                (after a deletion the next one, above the epoch of the tombstone). None: there is no
                such agent to begin, and the result is None.

        Raises:
            OwnedElsewhere: naming the host.
            Fenced: if this host's own lease is lost.
            StoreUnavailable: if it has ended and may still be renewed, by `renew`.

        """

    @abstractmethod
    def append(self, batch: Batch) -> None:
        """The writer's: add records, if the epoch is current and `first_seq` the next number.

        The index keeps `batch.entry`. `StoredAgent.status_at` becomes `batch.at` if these are the
        first records, `batch.status_noted` is set, or the status is another one than before.

        Raises:
            Fenced: if the epoch or the incarnation is another one by now, or the agent was deleted.
            StoreConflict: if `first_seq` is not the next number.

        """

    def append_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """The writer's: `append` for each, in order; a remote database does it in one round trip.

        Returns:
            For each batch, in the same order: None, or the error that `append` raises for it.

        """
        answers: list[Refusal | None] = []
        for batch in batches:
            try:
                self.append(batch)
            except (Fenced, StoreConflict) as refused:
                answers.append(refused)
            else:
                answers.append(None)
        return answers

    def commit_all(self, batches: Sequence[Batch]) -> list[Refusal | None]:
        """The writer's: `append_all` as a transaction of its own, in one round trip if remote.

        Whoever calls it calls `rollback` if it raises.

        Returns:
            As of `append_all`. All but those that are refused are durable.

        """
        self.begin()
        answers = self.append_all(batches)
        self.commit()
        return answers

    @abstractmethod
    def release(self, owned: Owned) -> bool:
        """The writer's: give up the agent, if this is still its epoch. Any host may claim it then.

        Returns:
            Whether it is: no other copy has gone on from it.

        """

    @abstractmethod
    def compact(self, batch: Batch) -> None:
        """The writer's: add a snapshot, the records of `batch`, and delete all records before them.

        As `append`, with the same errors; the floor is `batch.first_seq - 1` then. With `"files"`
        it keeps the bytes whose hashes are in `batch.blobs_in_use`, and deletes all others of this
        agent. A byte that it deletes too many is lost to the user. It deletes the checkpoint of the
        agent, and keeps all that is of other kinds.
        """

    @abstractmethod
    def delete(self, agent_id: str) -> bool:
        """The writer's: delete an agent's records, and keep a tombstone with its highest epoch.

        Of what is kept besides, files, messages, notes and the checkpoint go. Keys stay. The key of
        a call that is not done is left: nobody will know what the call did, and its key counts
        until `kept` after it was taken (`KeyUse.is_left`).

        Returns:
            Whether there was such an agent.

        Raises:
            OwnedElsewhere: if another host owns it.

        """

    def retire_all(self, agents: Sequence[StoredAgent]) -> list[bool]:
        """The writer's: delete those of these agents that have not changed since they were read.

        An agent has not changed if its incarnation, its epoch and its last number are the same. One
        that a living host has in its memory stays, unless the database can take it from that host.
        It waits for no other transaction: what is about to be changed stays.

        Returns:
            Of each, in the same order, whether it was deleted.

        """
        answers = []
        for agent in agents:
            try:
                owned = self.claim(agent.agent_id, None)
            except (Fenced, OwnedElsewhere):
                owned = None
            is_same = owned is not None and (
                (owned.incarnation, owned.epoch - 1, owned.last_seq)
                == (agent.incarnation, agent.epoch, agent.last_seq)
            )
            if owned is not None and not is_same:
                self.release(owned)
            answers.append(is_same and self.delete(agent.agent_id))
        return answers

    def note_deletions(self, agent_ids: Collection[str], at: datetime, by: str | None) -> None:
        """The writer's, in the transaction in which agents are deleted: keep when, and by whom."""
        return

    def deletion(self, agent_id: str) -> Deletion | None:
        """The reader's: when the agent of this id was deleted; None if it is there, or never was.

        Also None where that is not kept.
        """
        return None

    def free_pages(self, limit: int) -> int | None:
        """The writer's: give back some of the room that deletions have left, to the disk.

        Args:
            limit: pages at most.

        Returns:
            How many pages are left that could be given back; None where it cannot be done so.

        """
        return None

    def delete_tombstones(
        self, before: datetime, after: TombstonePlace | None
    ) -> TombstonePlace | None:
        """The writer's: delete some of the rows that deletions before a time have left.

        A row stays while anything else that is kept names its agent. What is new begins above the
        incarnation and the epoch of all rows that went.

        Args:
            before: the time.
            after: where the look before has ended; None: at the oldest.

        Returns:
            Where the next look goes on; None: this was the last one.

        """
        return None

    @abstractmethod
    def is_committed(self, batch: Batch) -> bool:
        """The writer's, after a commit with unknown outcome: whether it has exactly these records.

        Of a batch without records: whether the last number and the index status are those of it.
        """

    def renew(self) -> float:
        """The heartbeat's: renew the lease of this host, in a transaction of its own.

        A third thread calls it. It needs a connection of its own, unless the lease is only a lock.

        Returns:
            Seconds until the lease ends; infinity if only this host can have the store.

        Raises:
            Fenced: if the lease had ended and another host has claimed an agent of this one since,
                or may have. Its `agent_id` is `"*"`. The next call makes this a new host, which
                owns nothing yet. A lease that ended with all agents unclaimed is renewed: a claim
                and a late renewal are a compare-and-set on the same row.

        """
        return math.inf

    # ------------------------------------------------------------------- the reader

    @abstractmethod
    def load(self, agent_id: str, after: int) -> StoredRecords | None:
        """The reader's: the records of an agent above a number; None if there is no such agent.

        From the snapshot on, if `after` is below the floor.
        """

    @abstractmethod
    def agents(
        self, index_statuses: Collection[IndexStatus] | None, after_id: str, limit: int
    ) -> list[StoredAgent]:
        """The reader's: up to `limit` agents with one of these statuses, by id, above `after_id`.

        `index_statuses` is None for all. Ids are ordered by code point, as UTF-8 orders bytes.

        A row that cannot be what the store has written has its `damage`, and hides no other one.
        """

    # ---------------------------------------------- what has a default: opening, writing

    def open_to_read(self) -> None:
        """The reader's: connect it alone, take no lock, change nothing. `close` disconnects.

        Raises:
            UsageError: if a second process cannot read this kind of database.
            StoreUnavailable, StoreBroken, StoreDamaged: if it cannot be read.
            SchemaVersionError: if the store has another format.

        """
        raise UsageError(f"{self!r} cannot be opened to read: it has no open_to_read()")

    @property
    def time_offset(self) -> float:
        """Seconds by which the database's clock is ahead of what this machine's shows now.

        Those who share a database go by its clock. It is 0 where a database has none.
        """
        return 0.0

    # ------------------------------------------------ what has a default: the reader

    def load_part(self, agent_id: str, after: int, limit: int) -> StoredRecords | None:
        """The reader's: as `load`, but no more than the first `limit` of those records."""
        stored = self.load(agent_id, after)
        return None if stored is None else replace(stored, records=stored.records[:limit])

    def size(self) -> int:
        """The reader's: how many bytes the store has on the disk."""
        raise UsageError(f"{self!r} does not tell its size")

    def vacuum(self, *, whole: bool) -> None:
        """The reader's: give back what `free_pages` does not, or only makes free for new rows.

        Args:
            whole: whether nobody else needs the database meanwhile.

        """
        raise UsageError(f"{self!r} gives no room back: it has no vacuum()")

    def has_tombstones(self, before: datetime, after: TombstonePlace | None) -> bool:
        """The reader's: whether `delete_tombstones` would find any to look at."""
        return False

    def load_whole(self, agent_ids: Collection[str]) -> list[WholeAgent]:
        """The reader's: all that there is of those of these agents that there are, in any order.

        An agent that cannot be read is logged, and left out.
        """
        found = []
        for agent_id in agent_ids:
            with unreadable_is_logged(agent_id):
                stored = self.load(agent_id, 0)
                if stored is not None:
                    blobs = self.load_blobs(agent_id, None) if "files" in self.keeps else {}
                    runs = self.message_runs(agent_id, None) if stored.first_seq > 1 else {}
                    found.append(WholeAgent(stored, blobs, runs))
        return found

    def has_text(self, agent_id: str, kinds: Sequence[str], text: str) -> bool:
        """The reader's: whether a record of the agent, of one of these kinds, has this ASCII text.

        It is for what strangers may ask. A database that looks itself spends neither memory nor
        decoding on it, however long the journal is.
        """
        stored, wanted = self.load(agent_id, 0), text.encode()
        records = () if stored is None else stored.records
        return any(record.kind in kinds and wanted in record.payload for record in records)

    def find_agents(self, agent_ids: Collection[str]) -> list[StoredAgent]:
        """The reader's: the agents that there are of these, in any order.

        A damaged row is listed as by `agents`.
        """
        found = (self.load(id, NEWEST) for id in set(agent_ids))
        return [stored.agent for stored in found if stored is not None]

    def due(
        self, until: datetime, after: tuple[datetime, str] | None, limit: int
    ) -> list[StoredAgent]:
        """The reader's: the agents that are due by a time, in order of due time and id.

        A due time may be any from the year 1 to the year 9999: see `time_number`.

        A damaged row is listed as by `agents`, with its due time.

        Args:
            until: the last due time that counts.
            after: the due time and id of the last agent of the page before; None for the first.
            limit: how many at most.

        """
        due = self._index_of_rows().due(until)
        return [each for each in due if after is None or (each.due, each.agent_id) > after][:limit]

    def list_agents(
        self, query: AgentQuery, after: AgentKey | None, limit: int
    ) -> list[StoredAgent]:
        """The reader's: up to `limit` agents behind a key. A damaged row is as of `agents`."""
        return self._index_of_rows().list_agents(query, after, limit)

    def list_asks(self, query: AskQuery, after: AskKey | None, limit: int) -> list[StoredAsk]:
        """The reader's: up to `limit` asks behind a key. A damaged row has its `damage`."""
        return self._index_of_asks().list_asks(query, after, limit)

    def count_asks(self, query: AskQuery, times: Sequence[datetime]) -> list[AskGroup]:
        """The reader's: how many requests to persons are alike.

        Args:
            query: which are counted.
            times: in order. It is counted how many expire at each of them, or before.

        """
        return self._index_of_asks().count_asks(query, times)

    def find_place(self, query: AskQuery, of: AskedAt) -> AskPlace:
        """The reader's: what is around a request in a list, also where it waits no more."""
        return self._index_of_asks().find_place(query, of)

    def _index_of_asks(self) -> MemoryIndex:
        index = MemoryIndex()
        for agent in self._all_agents():
            index.put(agent, ())
            with unreadable_is_logged(agent.agent_id):
                stored = self.load(agent.agent_id, 0)
                if stored is not None:
                    index.put_loaded(decoded(stored))
        return index

    def ask_of(self, agent_id: str, request_id: str) -> StoredAsk | None:
        """The reader's: the row of a request, while it waits; None where it does not."""
        return self._index_of_asks().ask_of(agent_id, request_id)

    def count_agents(self) -> Mapping[str, int]:
        """The reader's: how many agents have each status."""
        return self._index_of_rows().count_agents()

    def count_troubles(self, failed_since: datetime, expires_by: datetime) -> Troubles:
        """The reader's: how much needs a person: see `journal.troubles`.

        Args:
            failed_since: runs that failed before are not counted.
            expires_by: requests that expire by then are counted as overdue.

        """
        return self._index_of_asks().count_troubles(failed_since, expires_by)

    def gone_hosts(self, limit: int) -> list[GoneHost]:
        """The reader's: the hosts whose leases have ended, and that have left open runs behind."""
        return []

    def _index_of_rows(self) -> MemoryIndex:
        index = MemoryIndex()
        for agent in self._all_agents():
            index.put(agent, ())
        return index

    def _all_agents(self) -> Iterator[StoredAgent]:
        after = ""
        while page := self.agents(None, after, PAGE):
            yield from page
            after = page[-1].agent_id

    # ------------------------------------------------------------------- "checkpoints"
    # One of each agent, as a cache. What replaces or deletes an agent's records deletes its
    # checkpoint: `compact` and `delete`.

    def write_checkpoint(self, owned: Owned, checkpoint: Checkpoint) -> None:
        """The writer's: put it in the place of the agent's last checkpoint.

        Its segments take the place of those with their numbers and above. Nothing happens where
        another epoch or incarnation is the current one by now, or where the store does not have
        the record `checkpoint.seq`.
        """
        self._refuse("checkpoints")

    def load_latest(self, agent_id: str) -> tuple[Checkpoint | None, StoredRecords] | None:
        """The reader's: the last checkpoint of an agent, and the records after it, of one moment.

        All records, as by `load`, where it has none, or none of this incarnation from the floor up
        to the newest record. None if there is no such agent. What is returned may be damaged.
        """
        stored = self.load(agent_id, 0)
        return None if stored is None else (None, stored)

    # ------------------------------------------------------------------- "files"
    # The bytes of files, each by its hash, of each agent. `append` adds those of `Batch.blobs`,
    # each once, with the records; `compact` deletes those that are not in `Batch.blobs_in_use`, and
    # `delete` all.

    def load_blobs(self, agent_id: str, hashes: Collection[str] | None) -> Mapping[str, bytes]:
        """The reader's: the kept bytes of an agent's files with these hashes; None = all files."""
        self._refuse("files")

    # ------------------------------------------------------------------- "messages"
    # The ids of old messages, each with its run. `append` adds those of `Batch.message_runs` with
    # the records; `compact` keeps all, and `delete` deletes them.

    def message_runs(self, agent_id: str, message_ids: Collection[str] | None) -> Mapping[str, str]:
        """The reader's: the runs that took old messages, by message id; None = all messages."""
        return {}

    # ------------------------------------------------------------------- "keys"
    # Which calls have taken a key, of all agents. `append` does what `Batch.key_ends` says of the
    # agent's own: a key is given back, or its call is done, and the key is kept for the time that
    # it was taken with. `compact` keeps all. `delete` keeps those of calls that are done. Those
    # that calls still have are left then: they are kept for that time, from when they were taken.

    def key_secret(self) -> bytes:
        """The reader's: the secret that the store was made with. It is never shown."""
        self._refuse("keys")

    def key_uses(self, key_hash: str, at: datetime) -> list[KeyUse]:
        """The writer's: the calls that have a key, in the order in which they took it.

        Those whose time is over at `at` are left out.
        """
        self._refuse("keys")

    def take_key(self, owned: Owned, taking: KeyTaking) -> list[KeyUse] | None:
        """The writer's: take a key for a call, as `may_take` says.

        A call has one key: what it took before is given back. It waits for nobody: hosts that wait
        for each other's transactions would stand still with whichever of them does.

        Returns:
            Empty if the call has the key now; else the calls that have it, as by `key_uses`. None
            if another host is about to take the key: try again.

        Raises:
            Fenced: if the agent has another epoch or incarnation by now, or was deleted.

        """
        self._refuse("keys")

    def free_key(self, key_hash: str, use: KeyUse) -> None:
        """The writer's: give back the key of a call that is over, unless it is done or left."""
        self._refuse("keys")

    def has_old_keys(self, before: datetime) -> bool:
        """The reader's: whether there are keys whose time was over before."""
        return False

    def delete_old_keys(self, before: datetime) -> None:
        """The writer's: delete the keys whose time was over before this time."""
        self._refuse("keys")

    # ------------------------------------------------------------------- "decided"
    # What was decided on requests, for an audit. `append` adds those of `Batch.decided`, in the
    # same transaction. `compact` keeps all. `delete` keeps of each who decided what, when and about
    # which tool, and forgets what was shown and written: see `journal.decided`.

    def list_decided(
        self, query: DecidedQuery, after: DecidedKey | None, limit: int
    ) -> list[StoredDecided]:
        """The reader's: up to `limit` decisions behind a key, the newest first."""
        self._refuse("decided")

    def count_decided(self, query: DecidedQuery) -> int:
        """The reader's: how many decisions `list_decided` would list."""
        self._refuse("decided")

    # ------------------------------------------------------------------- "usage"
    # What requests to models use, by day, definition and model: see `journal.usage`. `append` adds
    # those of `Batch.used` to the sums, in the same transaction. `compact` and `delete` keep all.

    def read_usage(self, first: int, end: int) -> list[Used]:
        """The reader's: the sums of the days from `first` on, before `end`; in order."""
        self._refuse("usage")

    # ------------------------------------------------------------------- "feed"
    # What happened to all agents, in the order of the commits: see `journal.feed`. `append` adds
    # the rows of `Batch.feed`.

    keeps_feed: bool = False
    """Whether the feed is on, as far as this host knows. `open` reads it from the database, and
    `turn_feed` sets it. While it is False, no batch has rows of the feed."""

    def turn_feed(self, on: bool) -> None:
        """The writer's: turn the feed on; or off, and empty it."""
        self._refuse("feed")

    def add_deletions(self, agent_ids: Collection[str], at: datetime) -> None:
        """The writer's, in the transaction of a deletion: add deletions of agents to the feed."""
        self._refuse("feed")

    def trim_feed(self, before: datetime, keep: int) -> None:
        """The writer's: remove rows of the feed before a time, and all but the newest `keep`."""
        self._refuse("feed")

    def read_feed(self, after: FeedKey | None, limit: int) -> FeedPage | None:
        """The reader's: up to `limit` rows behind a key, that no open transaction can come before.

        None: it is off. Without a key: no rows, but where the feed ends now, as to such rows.
        """
        return None

    # ------------------------------------------------------------------- "search"
    # The words of requests and conversations: see `journal.search`. No commit of records waits for
    # it: what changes is noted in its transaction, and worked off later.

    def turn_search(self, on: bool) -> None:
        """The writer's: make the index of the search, or remove it, unless it is so already.

        Of a database that hosts share it is the reader's, as `index`.
        """
        self._refuse("search")

    def search_state(self) -> SearchState:
        """The reader's: whether there is an index of the search, and how far it is."""
        from understudy.journal.search import OFF

        return OFF

    def unindexed(self, after: int) -> Work | None:
        """The reader's: a slice of the work left on the index of the search; None: all is done.

        Args:
            after: the `last` of the slice before.

        """
        self._refuse("search")

    def index(self, work: Work) -> bool:
        """The writer's: write a slice of the work on the index of the search.

        A slice that another host has written first is left.

        Returns:
            Whether it was written; False while another host writes.

        """
        self._refuse("search")

    def search(self, query: SearchQuery, before: int | None, limit: int) -> list[StoredHit]:
        """The reader's: up to `limit` texts with these words, below a number, the newest first."""
        self._refuse("search")

    # ------------------------------------------------------------------- "trust"
    # The log of trust: facts that hold for the whole store, see `state.trust_log`. No row of it is
    # changed, and no commit of records waits for it.

    @property
    def trust_seen(self) -> int:
        """The highest number of the log that this host has seen, as of `TrustLog`.

        Where one host has the database, that is the last number when it was opened: what is added
        later is added here, and the store knows it.
        """
        return 0

    def trust_after(self, number: int) -> list[TrustFact]:
        """The reader's: the facts of the log of trust above a number, in order.

        Raises:
            StoreDamaged: if a fact is missing, or cannot be read.

        """
        return []

    def add_trust(self, fact: TrustFact) -> bool:
        """The writer's: add a fact, if its number is one more than the last; as of `TrustLog`.

        Of a database that hosts share it is the reader's, and commits by itself, in one statement:
        no commit of records waits for it, and no host that is suspended in the middle of it keeps
        others from adding theirs.
        """
        self._refuse("trust")

    follows_trust: bool = False
    """Whether `append_all` notes the last number of the log for `trust_seen`, in the transaction of
    the records. A database that one host has needs no such note."""

    def follow_trust(self) -> None:
        """Set `follows_trust` from now on. It is called in any thread."""
        self.follows_trust = True

    def acknowledge_trust(self, number: int) -> None:
        """The reader's: say in this host's row that it judges by all facts of the log up to a
        number.

        Each renewal of the lease says so as well. It commits by itself, as `add_trust` does.
        """
        return

    def hosts_behind(self, number: int) -> list[HostBehind]:
        """The reader's: the other hosts that have not acknowledged facts of the log of trust.

        The facts are those up to a number: see `acknowledge_trust`. Hosts whose lease has ended are
        listed, too.
        """
        return []

    def provide(self, names: Collection[str]) -> None:
        """Say what this host has, of what a store may require: when it opens, and in each renewal.

        Called in any thread.
        """
        return

    def hosts_without(self, name: str) -> list[HostBehind]:
        """The reader's: the other hosts that have not said by `provide` that they have this."""
        return []

    def require_trust(self, fact: TrustFact, name: str) -> bool:
        """Add a fact, unless a host lacks what it requires; see `TrustLog.require_trust`.

        It is called in the thread that calls `add_trust`, and is committed as by `add_trust`.
        """
        return self.add_trust(fact)

    # ------------------------------------------------------------------- "notices"
    # What people are to be told of requests: see `journal.notices`.

    def outbox(self) -> Outbox:
        """The writer's: the changes of the outbox, for the open transaction."""
        self._refuse("notices")

    def notices(
        self, states: Sequence[NoticeState], after: int | None, limit: int
    ) -> list[StoredNotice]:
        """The reader's: the notices of channels with these states, newest first.

        Args:
            states: some of `STATES`.
            after: below this number; None: from the newest on.
            limit: so many at most.

        """
        return []

    # ------------------------------------------------------------------- "spending"
    # What calls have reserved and spent, over all agents: see `journal.spending`. `append` does
    # what `Batch.settlements` says of the agent's own calls. `compact` keeps all. `delete` settles
    # what is open of the agent as unknown. Where one host has the database, the store decides by
    # what it has read once; a database that hosts share decides itself: see `SharedBackend`.

    def load_spending(self) -> KeptSpending:
        """The writer's: all that is kept of the counters of spending."""
        self._refuse("spending")

    def keep_reserved(self, decision: Decision) -> None:
        """The writer's: keep what came of a reservation.

        Raises:
            Fenced: if the agent has another incarnation by now, or was deleted.

        """
        self._refuse("spending")

    def counters(self, budgets: Collection[str] | None) -> Sequence[CounterSums]:
        """The reader's: the committed counters of budgets; see `Spending.counters`."""
        self._refuse("spending")

    # ------------------------------------------------------------------- "notes"
    # What people write beside requests: see `state.request_notes`. `compact` keeps all; `delete`
    # deletes those of the agent. `list_asks` says by `StoredAsk.noted` which requests may have
    # some, and leaves out what `AskQuery.notes` does not want.

    def add_note(self, agent_id: str, request_id: str, note: RequestNote) -> bool:
        """The writer's: keep a note, once by its id; False if there is no such agent.

        Of a database that hosts share it is the reader's, and commits by itself, as `add_trust`.
        """
        self._refuse("notes")

    def notes(self, requests: Collection[tuple[str, str]], *, texts: bool) -> list[StoredNote]:
        """The reader's: the notes beside these requests, each by agent and id; oldest first.

        Args:
            requests: which.
            texts: whether comments are wanted; else each is told of without its note.

        """
        return []

    def has_notes(self) -> bool:
        """The reader's: whether there are notes beside any request."""
        return False

    def sweep_notes(self, now: datetime) -> None:
        """Mark notes of requests that are not asked any more, and delete old ones.

        It is called by the thread that calls `add_note`.

        A note goes `KEPT_NOTES` after it was marked.
        """
        self._refuse("notes")

    def _refuse(self, what: Kept) -> NoReturn:
        raise not_kept(self, what)
