"""`PostgresHosts`: what a PostgreSQL store knows of its hosts, by their rows in `hosts`."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from understudy.errors import UnfitHost
from understudy.journal.postgres.sharing.inbox import PostgresInbox
from understudy.journal.postgres.sharing.processes import has_ended, this_process
from understudy.journal.shared import HostedDefinition, Neighbours, Process
from understudy.journal.sql_backend import Rows
from understudy.journal.troubles import GoneHost
from understudy.state.trust_log import HostBehind

if TYPE_CHECKING:
    from understudy.journal.postgres.connection import PostgresConnection


NEIGHBOURS = """
SELECT id, pid, started FROM hosts
WHERE place = %s AND id <> %s AND lease_until > clock_timestamp()
    AND pid IS NOT NULL AND started IS NOT NULL"""
"""The other living hosts of this boot of this machine, and of these pids."""

LEASE_ENDS = """
SELECT id, extract(epoch FROM lease_until - clock_timestamp())::float8 FROM hosts
WHERE id <> %s AND lease_until > '-infinity'"""

END_HOST = """
UPDATE hosts SET lease_until = '-infinity'
WHERE id = %s AND place = %s AND pid = %s AND started = %s AND lease_until > '-infinity'
RETURNING id"""
"""Ends the lease of a host whose process has ended, also before its time: the process renews it no
more."""

LOCK_DEFINITIONS = "SELECT pg_advisory_xact_lock(x'756e64657274'::bigint)"
"""The lock for a new definition. Numbers are given in the order of the commits: the later commit
gets the higher number."""
REGISTER = """
INSERT INTO definitions (name, fingerprint, version, needs, continues_older)
VALUES (%(agent)s, %(fingerprint)s, %(version)s, %(needs)s::text[], %(continues_older)s)
ON CONFLICT (name, fingerprint) DO UPDATE SET version = excluded.version,
    needs = excluded.needs, continues_older = excluded.continues_older
RETURNING no"""
REGISTERED = """
SELECT no FROM definitions WHERE name = %(agent)s AND fingerprint = %(fingerprint)s
    AND version = %(version)s AND needs = %(needs)s::text[]
    AND continues_older = %(continues_older)s"""
SET_DEFINITIONS = "UPDATE hosts SET definitions = %s::bigint[] WHERE id = %s"
SET_DRAINING = "UPDATE hosts SET draining = %s WHERE id = %s"

GONE_HOSTS = """
SELECT h.name, count(*), nullif(h.lease_until, '-infinity') FROM agents a
JOIN hosts h ON h.id = a.owner
WHERE a.run_version IS NOT NULL AND NOT a.deleted AND h.lease_until <= clock_timestamp()
    AND a.index_status IN ('open', 'suspect')
GROUP BY h.id ORDER BY h.id LIMIT %s"""
"""The hosts whose leases have ended and whose open runs could go on, and do not."""

ACKNOWLEDGE_TRUST = "UPDATE hosts SET trust = greatest(trust, %s) WHERE id = %s"
HOSTS_BEHIND = """
SELECT id, name, lease_until > clock_timestamp() FROM hosts
WHERE id IS DISTINCT FROM %s AND trust < %s AND lease_until > '-infinity' ORDER BY id"""
"""The other hosts that do not judge by all facts of the log of trust up to a number. Hosts that are
known to have ended are left out: they own nothing any more, and enter no body."""
HOSTS_WITHOUT = """
SELECT id, name, lease_until > clock_timestamp() FROM hosts
WHERE id IS DISTINCT FROM %s AND NOT %s::text = ANY(has) ORDER BY id"""

FITTING_HOST = """
SELECT h.id, h.name FROM hosts h JOIN definitions d ON d.no = ANY(h.definitions)
WHERE h.lease_until > clock_timestamp() AND h.channel IS NOT NULL AND NOT h.draining
    AND h.id <> %(own_id)s AND (d.name = %(agent)s AND d.needs <@ h.labels
    AND (%(run_version)s::text IS NULL OR d.fingerprint = %(run_version)s OR (d.continues_older
        AND coalesce((d.version, d.no) > (SELECT r.version, r.no FROM definitions r
            WHERE r.name = d.name AND r.fingerprint = %(run_version)s), true)))
    OR d.name = '*' AND %(made_needs)s::text[] <@ h.labels)
ORDER BY d.name = '*', d.version DESC, d.no DESC, random() LIMIT 1
FOR KEY SHARE OF h SKIP LOCKED"""
"""Another living host that may run an agent, with the newest definition that there is.

Race: this against that host's leaving. It removes its row behind the commit of who gives it an
agent, and sees that agent then; who comes later finds another host
(test_who_leaves_says_so_if_it_was_given_a_run_just_then)."""

IS_NEWER = """
SELECT coalesce((SELECT (version, no) FROM definitions WHERE no = %(no)s) >
    (SELECT (version, no) FROM definitions
        WHERE name = %(agent)s AND fingerprint = %(run_version)s), true)"""
"""Whether a definition is newer than the one that has begun a run. One that no host has registered
was there before hosts did."""


class PostgresHosts(PostgresInbox):
    """What this host has and what it may run; and which other hosts there are."""

    def __init__(self, connections: Sequence[PostgresConnection], host: str) -> None:
        super().__init__(connections, host)
        self._labels: frozenset[str] = frozenset()
        self._draining = False
        self._held = ""
        self._trust_judged = 0
        """The number of the last fact of the log of trust by which this host judges."""
        self._has: list[str] = []
        """What this host has, of what a store may require."""
        self._process: Process | None = None
        self._neighbours: dict[int, Process] = {}
        """The other living hosts of this machine, by their ids, as of the last heartbeat."""
        self._seen: Neighbours | None = None
        """The living hosts in other processes of this machine, as of the last heartbeat; None where
        there are none."""
        self._living: frozenset[int] = frozenset()
        """The other living hosts, of any machine, as of the last heartbeat."""
        self._ended: set[int] = set()
        """The hosts whose leases had ended at the last heartbeat."""
        self._definitions: dict[str, tuple[HostedDefinition, int]] = {}
        """The definitions of this host by the agent's name, each with the number of its row."""

    def introduce(self, labels: Collection[str]) -> None:
        self._labels = frozenset(labels)

    # ------------------------------------------------------------- the heartbeat's thread

    def _introduction(self) -> list[Any]:
        """What this host is, and what it has, as columns of its row."""
        self._process = this_process()
        numbers = [no for _, no in self._definitions.values()]
        process = self._process or (None, None, None)
        return [self._has, *process, sorted(self._labels), numbers, self._draining]

    def end_dead_hosts(self) -> int:
        here, own_id = self._process, self.host_id
        if here is None or own_id is None:
            return 0
        rows = self._beat(NEIGHBOURS, [here.place, own_id])
        there = {id: Process(here.place, pid, started) for id, pid, started in rows}
        self._neighbours = there
        dead = [(id, *process) for id, process in there.items() if has_ended(process, here)]
        self._note_neighbours(own_id, here, there.keys() - {id for id, *_ in dead})
        return sum(len(self._beat(END_HOST, row)) for row in dead)

    @property
    def neighbours(self) -> Neighbours | None:
        return self._seen

    def _note_neighbours(self, own_id: int, here: Process, living: Collection[int]) -> None:
        """Note which living hosts are other processes of this machine.

        Another runtime of this process is none: two of one process need no socket.
        """
        there = {id: self._neighbours[id] for id in living if self._neighbours[id].pid != here.pid}
        seen = Neighbours(own_id, here, there, self._living <= there.keys()) if there else None
        if seen != self._seen:
            self._seen = seen
            if self.on_neighbours is not None:
                self.on_neighbours()

    def ended_leases(self) -> tuple[int, float]:
        own_id = self.host_id
        if own_id is None:
            return 0, math.inf
        rows = self._beat(LEASE_ENDS, [own_id])
        ended = {id for id, seconds in rows if seconds <= 0}
        new, self._ended = ended - self._ended, ended
        self._living = frozenset(id for id, seconds in rows if seconds > 0)
        return len(new), min((seconds for _, seconds in rows if seconds > 0), default=math.inf)

    # ----------------------------------------------------------------- the reader's thread

    def acknowledge_trust(self, number: int) -> None:
        self._trust_judged = max(self._trust_judged, number)
        self._note(ACKNOWLEDGE_TRUST, [number, self._own_id])

    def hosts_behind(self, number: int) -> list[HostBehind]:
        rows = self._read(HOSTS_BEHIND, [self._host_id, number])
        return [HostBehind(*row) for row in rows]

    def gone_hosts(self, limit: int) -> list[GoneHost]:
        return [GoneHost(*row) for row in self._read(GONE_HOSTS, [limit])]

    def provide(self, names: Collection[str]) -> None:
        self._has = sorted(names)

    def hosts_without(self, name: str) -> list[HostBehind]:
        return [HostBehind(*row) for row in self._read(HOSTS_WITHOUT, [self._host_id, name])]

    # ----------------------------------------------------------------- the writer's thread

    def _end_if_dead(self, host_id: int) -> bool:
        """End the lease of another host, if its process has ended for certain.

        Returns:
            Whether its row is to be looked at again.

        """
        process = self._neighbours.get(host_id)
        if process is None or not has_ended(process, self._process):
            return False
        # Its row may be another process's by now: then it is not looked at once more
        # (test_a_host_that_was_renewed_as_another_process_is_not_ended).
        self._neighbours.pop(host_id, None)
        self._fetch(END_HOST, [host_id, *process])
        return True

    def register(self, definitions: Sequence[HostedDefinition]) -> None:
        for definition in definitions:
            values = {**asdict(definition), "needs": sorted(definition.needs)}
            rows = self._fetch(REGISTERED, values)
            if not rows:
                self._fetch(LOCK_DEFINITIONS)
                rows = self._fetch(REGISTER, values)
            ((no,),) = rows
            self._definitions[definition.agent] = definition, no
        numbers = [no for _, no in self._definitions.values()]
        self._fetch(SET_DEFINITIONS, [numbers, self._own_id])

    def set_draining(self, draining: bool = True, held: str = "") -> None:
        self._draining, self._held = draining, held
        self._fetch(SET_DRAINING, [draining, self._own_id])

    def _fitting_host(
        self, agent: str, run_version: str | None, needs: Collection[str] | None
    ) -> Rows:
        """The id and the name of another living host that may run an agent; none if none lives.

        Args:
            agent, run_version: as of `_check_fits`.
            needs: as of `SharedBackend.give`.

        """
        made_needs = None if needs is None else sorted(needs)
        of_run = {"agent": agent, "run_version": run_version, "made_needs": made_needs}
        return self._fetch(FITTING_HOST, {**of_run, "own_id": self._own_id})

    def _check_fits(self, agent_id: str, agent: str, run_version: str | None) -> None:
        """Raise `UnfitHost` if this host must not run an agent.

        Args:
            agent_id: its id.
            agent: the name of its definition.
            run_version: the fingerprint under which its open run was begun, if one is open.

        """
        if self._draining:
            raise UnfitHost(
                agent_id=agent_id, agent=agent, draining=not self._held, held=self._held
            )
        definition, no = self._definitions.get(agent, (None, 0))
        if definition is None:
            return
        if run_version == definition.fingerprint:
            run_version = None
        if run_version is not None and definition.continues_older:
            values = {"no": no, "agent": agent, "run_version": run_version}
            ((is_newer,),) = self._fetch(IS_NEWER, values)
            if is_newer:
                run_version = None
        missing = definition.needs - self._labels
        if missing or run_version is not None:
            raise UnfitHost(
                agent_id=agent_id,
                agent=agent,
                missing=missing,
                version=run_version,
                waits=not definition.continues_older,
            )
