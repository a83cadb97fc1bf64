"""Hosts that have ended with open runs: `attention()` tells of them until another one goes on."""

from __future__ import annotations

from datetime import datetime, timezone

from tests.support.batches import batch, commit
from tests.support.postgres import Hosts
from understudy.journal.contracts import IndexEntry, IndexStatus, Owned
from understudy.journal.postgres.backend import PostgresBackend


def open_run(backend: PostgresBackend, agent_id: str, status: IndexStatus) -> None:
    """An agent of this host with an open run."""
    with commit(backend):
        owned = backend.claim(agent_id, "desk")
    assert isinstance(owned, Owned)
    added = batch(owned, "begun")
    added.entry = IndexEntry(status, run_version="one")
    with commit(backend):
        backend.append(added)


def test_a_host_that_ended_with_open_runs_is_told_until_another_one_goes_on(hosts: Hosts) -> None:
    """J38: not one that lives, and not for runs that wait for a person."""
    gone, other = hosts.open("gone"), hosts.open("other")
    open_run(gone, "a", IndexStatus.OPEN)
    open_run(gone, "b", IndexStatus.SUSPECT)
    open_run(gone, "c", IndexStatus.WAITS)
    open_run(other, "d", IndexStatus.OPEN)
    assert other.gone_hosts(9) == []
    hosts.end_lease("gone")
    (found,) = other.gone_hosts(9)
    assert (found.name, found.runs) == ("gone", 2)
    assert found.since is not None
    assert found.since < datetime.now(timezone.utc)
    for agent_id in ("a", "b"):
        with commit(other):
            assert other.claim(agent_id, "desk") is not None
    assert other.gone_hosts(9) == []
