"""Agents of which nothing is open are archived, and deleted: `Runtime.retire`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from understudy._base import security_log
from understudy._base.clock import TimerClock, jittered, new_random_id
from understudy._base.clock_waits import DueWork
from understudy._base.json_values import shown
from understudy._base.lookout import look_once
from understudy._base.request_timing import Seconds, checked_delay
from understudy.actors.agent.events import Status
from understudy.actors.agent.phase import Phase
from understudy.actors.agent_host import AgentHost
from understudy.actors.reads.archive import (
    Archive,
    checked_archive,
    checked_folder,
    export_line,
)
from understudy.errors import UnderstudyError, UsageError
from understudy.journal.call_keys import open_keys
from understudy.journal.contracts import IndexStatus, StoredAgent, time_number
from understudy.journal.index_status import index_entry_of
from understudy.journal.lists import AgentKey, AgentQuery
from understudy.journal.loaded import decoded
from understudy.journal.retirement import WholeAgent
from understudy.state.agent_state import AgentState

logger: logging.Logger = logging.getLogger(__name__)

AT_REST = (Status.IDLE, Status.FAILED, Status.CANCELLED)
"""The statuses of agents of which nothing may be open."""
PAGE = 500
AT_ONCE = 200
"""The most agents that one transaction deletes."""
RECORDS_AT_ONCE = 2_500
"""The most records that one transaction deletes, unless one agent has more."""
MOST_LEFT = 1_000
"""The most agents for which the reason is told why they were left."""
_EARLIEST = datetime.min.replace(tzinfo=timezone.utc)
Ending = Literal[".jsonl", ".jsonl.gz", ".jsonl.zst"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retire:
    """A runtime retires agents by itself: `Runtime(retire=Retire(...))`.

    It is refused where `Runtime(protect=...)` asks persons for what it does: nobody could vote.
    Half of the time between two deletions is left to the agents that run.

    Raises:
        UsageError: if an argument is wrong; it names the argument.

    """

    older_than: Seconds
    """Seconds or a timedelta since the agent has come to rest."""
    to: str | os.PathLike[str] | None
    """The folder into which archives are written, one for each time that there is something. None:
    there is no archive, and the agents are deleted for good."""
    status: Status | str | None = None
    """Only agents of this status: `"idle"`, `"failed"` or `"cancelled"`. None: any of these."""
    every: Seconds = timedelta(hours=1)
    """Seconds or a timedelta between two looks, by the clock of the runtime. The first look comes
    as long after the start."""
    ending: Ending = ".jsonl.gz"
    """The ending of the archives' names."""

    def __post_init__(self) -> None:
        checked_delay(self.older_than, what="Retire(older_than=...)")
        checked_status(self.status, what="Retire(status=...)")
        if checked_delay(self.every, what="Retire(every=...)") < timedelta(seconds=1):
            raise UsageError(f"Retire(every=...) must be a second at least, got {self.every!r}")
        if self.ending not in get_args(Ending):
            known = ", ".join(map(repr, get_args(Ending)))
            raise UsageError(f"Retire(ending=...) must be one of {known}, got {shown(self.ending)}")
        if self.to is None:
            return
        folder = checked_folder(self.to, what="Retire(to=...)")
        checked_archive(folder / f"x-{new_random_id()}{self.ending}", what="Retire(ending=...)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """The result of `Runtime.retire`."""

    agents: int
    """How many were deleted, after they were archived if that was asked for; of a dry run, how
    many would be."""
    archive: Path | None
    """The path of the archive; None in a dry run, without an archive, or if there was nothing to
    put into it."""
    bytes: int
    """The size of that file; 0 without one."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Why agents without an open run were left, by their ids: of 1,000 at most.

    It lists agents that are old enough and have a queued message, a paused schedule, a background
    call without its result, or a call with a key that is not done; that are in use, or have changed
    meanwhile; and that cannot be read. All others that stay are not listed: those with an open run,
    request, doubt or review, an unsettled budget or an unsent notice, and those that are due, by a
    schedule or a message with a time.
    """
    dry_run: bool = False
    """Whether nothing was written and nothing deleted."""


def checked_status(status: object, *, what: str) -> Status | None:
    """The status of agents to retire; None for any. The argument is checked.

    Raises:
        UsageError: if there is no such status, or something is open of agents that have it.

    """
    if status is None:
        return None
    known = ", ".join(repr(each.value) for each in AT_REST)
    try:
        found = Status(status)
    except ValueError:
        raise UsageError(f"{what} must be one of {known}, got {shown(status)}") from None
    if found not in AT_REST:
        raise UsageError(
            f"{what}: agents that are {found.value!r} have something open, and stay: use {known}"
        )
    return found


def checked_retire(given: object) -> Retire | None:
    """The `retire` argument of `Runtime`, checked."""
    if given is None or isinstance(given, Retire):
        return given
    raise UsageError(f"`retire` must be Retire(...) or None, got {shown(given)}")


def open_in(state: AgentState) -> str:
    """What is open of an agent, in words; empty where nothing is."""
    entry = index_entry_of(state)
    if entry.status is not IndexStatus.REST:
        return f"it is {entry.status.value}"
    if entry.asks:
        return f"it has an open {entry.asks[0].kind}"
    if state.queue:
        return "a message is queued"
    if state.plans is not None and (state.plans.schedules or state.plans.timed):
        return "it has a schedule, or a message with a time"
    if state.background:
        return "a background call has not brought its result"
    if entry.due is not None:
        return f"it is due at {entry.due.isoformat(timespec='seconds')}"
    return "a call has a key and is not done" if open_keys(state) else ""


class Terms(NamedTuple):
    """The conditions by which agents are retired."""

    older_than: timedelta
    status: Status | None
    by: str | None = None
    """The person who asks to retire the agents."""
    is_quiet: bool = False
    """Whether the agents that run get a pause after each deletion, as long as the deletion took."""
    dry_run: bool = False


class Retiring:
    """Retires agents once. Used on the runtime's loop.

    An agent is deleted only as it was read: its incarnation, its epoch and its last number are
    compared in the transaction that deletes it. So a message that comes meanwhile keeps it, and of
    hosts that retire at once one deletes it.

    Args:
        host: the agents.
        terms: which are retired.
        archive: where they are put; None if they are not, and for a dry run.

    """

    def __init__(self, host: AgentHost, terms: Terms, archive: Archive | None) -> None:
        self._host = host
        self._store = host.services.store
        self._terms = terms
        self._archive = archive
        self._now = host.services.clock.now()
        self._count = 0
        self._left: dict[str, str] = {}

    async def run(self) -> Retired:
        """Retire all agents that are old enough now.

        Raises:
            OSError: if the archive cannot be written. What was read back from it by then is
                deleted; all else is still there.

        """
        before = self._now - self._terms.older_than
        status = None if self._terms.status is None else self._terms.status.value
        query = AgentQuery(status=status, updated_since=_EARLIEST, at_rest_until=before)
        after: AgentKey | None = None
        is_last = False
        loop = asyncio.get_running_loop()
        try:
            while not is_last:
                page = await self._store.list_agents(query, after, PAGE)
                after = _key_behind(page)
                is_last = len(page) < PAGE or after is None
                for agents in _batches(self._readable(page)):
                    since = loop.time()
                    await self._retire(agents, before)
                    await asyncio.sleep(loop.time() - since if self._terms.is_quiet else 0)
        finally:
            if self._archive is not None:
                await asyncio.to_thread(self._archive.close)
        is_made = self._archive is not None and self._archive.size > 0
        return Retired(
            agents=self._count,
            archive=self._archive.path if self._archive is not None and is_made else None,
            bytes=self._archive.size if self._archive is not None else 0,
            left=self._left,
            dry_run=self._terms.dry_run,
        )

    async def _retire(self, agents: Sequence[StoredAgent], before: datetime) -> None:
        ids = [agent.agent_id for agent in agents]
        if not self._terms.dry_run:
            await self._host.let_go(ids)
        place = {id: at for at, id in enumerate(ids)}
        wholes = sorted(
            await self._store.load_whole(ids), key=lambda whole: place[whole.stored.agent.agent_id]
        )
        checked = await asyncio.to_thread(lambda: list(self._checked(wholes, before)))
        if self._terms.dry_run:
            self._count += len(checked)
            return
        if not checked:
            return
        if self._archive is not None:
            await asyncio.to_thread(self._archive.add, [line for _, line in checked])
        gone = await self._delete([agent for agent, _ in checked])
        self._count += len(gone)
        for agent, _ in checked:
            if agent.agent_id not in gone:
                self._leave(agent.agent_id, "it has changed meanwhile, or is in use")

    def _checked(
        self, wholes: Collection[WholeAgent], before: datetime
    ) -> Iterator[tuple[StoredAgent, bytes]]:
        """Yield the agents that may be retired, each with its line for the archive. In a thread."""
        has_lines = self._archive is not None or self._terms.dry_run  # a dry run finds what fails
        for whole in wholes:
            id = whole.stored.agent.agent_id
            try:
                loaded = decoded(whole.stored)
                why = open_in(loaded.folded())
                last = loaded.records[-1].at if loaded.records else None
                line = export_line(whole, self._now, self._terms.by) if has_lines else b""
            except UnderstudyError as error:
                why, last, line = str(error), None, b""
            if not why and last is not None and last > before:
                why = "it was written to since"
            if why:
                self._leave(id, why)
            else:
                yield whole.stored.agent, line

    def _readable(self, page: Sequence[StoredAgent]) -> list[StoredAgent]:
        for each in page:
            if each.damage is not None:
                self._leave(each.agent_id, str(each.damage))
        return [each for each in page if each.damage is None]

    def _leave(self, id: str, why: str) -> None:
        if len(self._left) < MOST_LEFT:
            self._left[id] = why

    async def _delete(self, agents: Sequence[StoredAgent]) -> set[str]:
        """Delete the agents that have not changed since they were read; returns their ids."""
        directory, activator = self._host.directory, self._host.activator
        slots = [slot for each in agents if (slot := directory.find(each.agent_id)) is not None]
        busy = {slot.id for slot in slots if slot.phase is not Phase.PASSIVE or slot.inbox}
        held = [slot for slot in slots if slot.id not in busy]
        with activator.keeping_passive(held):
            free = [each for each in agents if each.agent_id not in busy]
            gone = await self._store.retire(free, self._terms.by)
            for slot in held:
                if slot.id in gone:
                    slot.forget(keeps_spawn=True)
                    directory.drop_unless_needed(slot)
        return gone


def _key_behind(page: Sequence[StoredAgent]) -> AgentKey | None:
    """The key of a page's last row with a time, where the next page begins; None without a time."""
    for each in reversed(page):
        if each.status_at is not None:
            return time_number(each.status_at), each.agent_id
    return None


def _batches(page: Sequence[StoredAgent]) -> Iterator[list[StoredAgent]]:
    """The agents of a page in batches, each of which one transaction deletes."""
    batch: list[StoredAgent] = []
    records = 0
    for agent in page:
        its = agent.last_seq - agent.floor
        if batch and (len(batch) == AT_ONCE or records + its > RECORDS_AT_ONCE):
            yield batch
            batch, records = [], 0
        batch.append(agent)
        records += its
    if batch:
        yield batch


def retire_regularly(host: AgentHost, retire: Retire) -> DueWork:
    """The work that retires agents again and again, as `Retire` says."""
    clock = host.services.clock
    every = checked_delay(retire.every, what="Retire(every=...)")
    due: datetime | None = None

    def next_time(now: datetime) -> datetime:
        nonlocal due
        if due is None:  # hosts that share a store do not retire at the same moment
            due = now + every * (1.0 if isinstance(clock, TimerClock) else jittered(1.0))
        return due

    async def work() -> None:
        nonlocal due
        await look_once("which agents are retired", _retire_once(host, retire))
        due = None

    return DueWork(clock, next_time, work, host.services.start_task)


async def _retire_once(host: AgentHost, retire: Retire) -> None:
    age = checked_delay(retire.older_than, what="Retire(older_than=...)")
    status = checked_status(retire.status, what="Retire(status=...)")
    archive = None
    if retire.to is not None:
        time = host.services.clock.now().strftime("%Y%m%dT%H%M%SZ")
        name = f"retired-{time}-{new_random_id()[:8]}{retire.ending}"
        archive = Archive(Path(retire.to) / name)
    done = await Retiring(host, Terms(age, status, is_quiet=True), archive).run()
    if done.agents:
        security_log.note("act", "retire", who=None)
        where = "deleted, without an archive" if archive is None else f"retired to {done.archive}"
        logger.info("%d agents were %s", done.agents, where)
