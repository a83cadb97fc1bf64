"""What hosts of one store know of each other: who has ended, and who may run what."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence

import pytest

from tests.support.owner import owner
from tests.support.postgres import Hosts
from understudy.errors import Fenced, OwnedElsewhere, UnfitHost
from understudy.journal.backend import Backend
from understudy.journal.contracts import Owned
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.shared import HostedDefinition

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes so")


def claim(backend: Backend, agent_id: str = "t", agent: str = "desk") -> Owned:
    backend.begin()
    try:
        owned = backend.claim(agent_id, agent)
    finally:
        backend.commit()
    assert owned is not None
    return owned


def register(backend: PostgresBackend, *definitions: HostedDefinition) -> None:
    backend.begin()
    backend.register(definitions)
    backend.commit()


def desk(fingerprint: str = "one", version: int = 0, **options: object) -> HostedDefinition:
    given: dict[str, object] = {"agent": "desk", "fingerprint": fingerprint, "version": version}
    return HostedDefinition(**{**given, **options})  # type: ignore[arg-type]  # of the test's own


# ------------------------------------------------------------------- who has ended


@linux
@pytest.mark.faults
def test_a_host_that_starts_ends_the_lease_of_one_that_was_killed(hosts: Hosts) -> None:
    """J50: and only that; before, its agents were refused for the rest of its lease."""
    with owner(hosts.url, hosts.schema) as process:
        alive = hosts.open("alive")
        with pytest.raises(OwnedElsewhere):
            claim(alive)
        process.kill()
        process.wait()
        again = hosts.open("again")
        assert again.end_dead_hosts() == 1
        assert again.end_dead_hosts() == 0
        assert claim(again).epoch == 2
        assert alive.renew() > 0
        assert again.renew() > 0


@linux
@pytest.mark.faults
def test_a_host_that_is_there_already_ends_it_with_its_next_heartbeat_or_claim(
    hosts: Hosts,
) -> None:
    """J50: it knows its neighbours since its last heartbeat."""
    alive = hosts.open("alive")
    with owner(hosts.url, hosts.schema) as process:
        assert alive.end_dead_hosts() == 0
        process.kill()
        process.wait()
        assert claim(alive).epoch == 2
        assert alive.end_dead_hosts() == 0


@linux
@pytest.mark.faults
def test_a_host_that_is_stopped_keeps_its_lease(hosts: Hosts) -> None:
    """J50: its process has not ended, so its lease is the judge."""
    alive = hosts.open("alive")
    with owner(hosts.url, hosts.schema, is_fresh=True) as process:  # only a child can be waited for
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert alive.end_dead_hosts() == 0
        with pytest.raises(OwnedElsewhere):
            claim(alive)
        hosts.end_lease("dead")
        assert claim(alive).epoch == 2


@linux
@pytest.mark.parametrize(
    "change",
    [
        "place = 'another boot pid:[4026531836] time:[4026531834]'",
        "place = NULL",
        "place = ''",
        "pid = NULL",
        "started = NULL",
        "pid = 0",
        "pid = -1",
        "pid = 9223372036854775807",
    ],
)
def test_a_host_of_which_nothing_is_certain_keeps_its_lease(hosts: Hosts, change: str) -> None:
    """J50: of another container or machine, or of another system."""
    there, here = hosts.open("there"), hosts.open("here")
    claim(there)
    hosts.sql("UPDATE hosts SET pid = 4194303, started = 1 WHERE name = 'there'")
    hosts.sql(f"UPDATE hosts SET {change} WHERE name = 'there'")
    assert here.end_dead_hosts() == 0
    with pytest.raises(OwnedElsewhere):
        claim(here)


@linux
def test_a_pid_that_another_process_has_by_now_keeps_no_lease(hosts: Hosts) -> None:
    """J50: the process of that pid started at another time."""
    there, here = hosts.open("there"), hosts.open("here")
    claim(there)
    assert here.end_dead_hosts() == 0  # it is this process
    hosts.sql("UPDATE hosts SET started = started - 1 WHERE name = 'there'")
    assert here.end_dead_hosts() == 1
    assert claim(here).epoch == 2
    with pytest.raises(Fenced):
        there.renew()


@linux
def test_a_host_that_was_renewed_as_another_process_is_not_ended(hosts: Hosts) -> None:
    """J50: what is ended is the process that was looked at, and no other one."""
    there, here = hosts.open("there"), hosts.open("here")
    hosts.sql("UPDATE hosts SET started = started - 1 WHERE name = 'there'")
    claim(there)
    with hosts.connection() as other:
        other.execute("BEGIN")
        other.execute("UPDATE hosts SET started = started + 1 WHERE name = 'there'")
        # `here` reads the row of before, and waits for this one.
        found: list[int] = []
        thread = threading.Thread(target=lambda: found.append(here.end_dead_hosts()))
        thread.start()
        hosts.wait_for_a_lock()
        other.execute("COMMIT")
        thread.join(60)
    assert found == [0]
    with pytest.raises(OwnedElsewhere):
        claim(here)


def test_without_the_files_of_linux_the_lease_is_the_judge(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J50: as on macOS."""
    monkeypatch.setattr("understudy.journal.postgres.sharing.hosts.this_process", lambda: None)
    there, here = hosts.open("there"), hosts.open("here")
    claim(there)
    assert hosts.sql("SELECT place, pid, started FROM hosts") == [(None, None, None)] * 2
    assert here.end_dead_hosts() == 0
    with pytest.raises(OwnedElsewhere):
        claim(here)


# ------------------------------------------------------------------- who may run what


@pytest.mark.quick
def test_a_host_without_the_labels_claims_no_such_agent(hosts: Hosts) -> None:
    """J51: neither a new one nor one that is free; one that has them does."""
    plain = hosts.open("plain")
    able = hosts.new("able")
    able.introduce({"gpu", "disk"})
    able.open()
    for backend in (plain, able):
        register(backend, desk(needs=frozenset({"gpu"})))
    with pytest.raises(UnfitHost, match="needs a host with 'gpu'") as refused:
        claim(plain)
    assert refused.value.missing == ["gpu"]
    assert hosts.sql("SELECT count(*) FROM agents") == [(0,)]
    owned = claim(able)
    with pytest.raises(OwnedElsewhere):  # its owner lives
        claim(plain)
    able.begin()
    able.release(owned)
    able.commit()
    with pytest.raises(UnfitHost):
        claim(plain)


def _open_run(hosts: Hosts, backend: PostgresBackend, version: str | None) -> None:
    """An agent whose run was begun by this definition, and whose owner has ended."""
    owned = claim(backend)
    hosts.sql("UPDATE agents SET run_version = %s", version)
    backend.begin()
    backend.release(owned)
    backend.commit()


@pytest.mark.parametrize(
    ("definitions", "run", "fits"),
    [
        # Those that hosts have seen, in this order; the last one is that of who claims.
        ([desk("one")], "one", True),
        ([desk("one")], None, True),
        ([desk("one"), desk("two")], "one", True),
        ([desk("one"), desk("two"), desk("one")], "two", False),
        ([desk("one", 2), desk("two", 1)], "one", False),
        ([desk("one", 2), desk("two", 10)], "one", True),
        ([desk("one"), desk("two", continues_older=False)], "one", False),
        ([desk("one"), desk("two", continues_older=False)], "two", True),
        ([desk("one")], "of no host", True),
    ],
)
def test_a_run_goes_on_on_no_older_definition_than_its_own(
    hosts: Hosts, definitions: Sequence[HostedDefinition], run: str | None, *, fits: bool
) -> None:
    """J52: `version` says which is newer; of one version, the one that was seen later."""
    backend = hosts.open()
    _open_run(hosts, backend, run)
    for number, definition in enumerate(definitions):
        backend = hosts.open(f"host{number}")
        register(backend, definition)
    if fits:
        claim(backend)
    else:
        with pytest.raises(UnfitHost) as refused:
            claim(backend)
        assert refused.value.version == run


def test_definitions_have_an_order_whoever_says_them_again(hosts: Hosts) -> None:
    """J52: a host that starts again with an older one does not make it the newer one."""
    first, second = hosts.open("first"), hosts.open("second")
    register(first, desk("one"))
    register(second, desk("two"))
    register(first, desk("one", needs=frozenset({"gpu"})))
    rows = hosts.sql("SELECT fingerprint, needs FROM definitions ORDER BY no")
    assert rows == [("one", ["gpu"]), ("two", [])]


def test_a_host_that_lost_its_lease_says_again_what_it_has(hosts: Hosts) -> None:
    """J51: its next row says the same."""
    host = hosts.new("host")
    host.introduce({"gpu"})
    host.open()
    register(host, desk())
    before = hosts.sql("SELECT place, pid, started, labels, definitions FROM hosts")
    hosts.sql("UPDATE hosts SET lease_until = '-infinity'")
    with pytest.raises(Fenced):
        host.renew()
    host.renew()
    after = hosts.sql(
        "SELECT place, pid, started, labels, definitions FROM hosts ORDER BY id DESC LIMIT 1"
    )
    assert after == before


@pytest.mark.quick
def test_a_host_that_is_being_drained_takes_nothing(hosts: Hosts) -> None:
    """J53."""
    host, other = hosts.open("host"), hosts.open("other")
    host.begin()
    host.set_draining()
    host.commit()
    assert hosts.sql("SELECT draining FROM hosts ORDER BY id") == [(True,), (False,)]
    with pytest.raises(UnfitHost, match="being drained"):
        claim(host)
    claim(other)
