"""What a store in PostgreSQL does beyond the contract: many hosts, leases, a server that goes.

Rules: J33.
"""

from __future__ import annotations

import errno
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, LiteralString, TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus

from tests.support.agents import by_turn, completed, interrupted
from tests.support.batches import (
    append,
    append_batch,
    batch,
    claim,
    commit,
    knowing,
    meanwhile,
    record,
    refused,
    texts,
)
from tests.support.few_files import few_files
from tests.support.hosts import opened
from tests.support.loops import soon
from tests.support.postgres import Cutter, Hosts, Server
from tests.support.programs import PIPE, started
from understudy import Agent, approve, call, tool
from understudy.errors import (
    Fenced,
    OwnedElsewhere,
    RecordRefused,
    SchemaVersionError,
    StoreBroken,
    StoreConflict,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from understudy.journal.contracts import Batch, IndexEntry, IndexStatus, LostAttempt, Owned
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.postgres.errors import store_error

T = TypeVar("T")
# ------------------------------------------------------------------- leases and takeover


@pytest.mark.quick
def test_an_agent_is_taken_over_when_the_lease_of_its_owner_has_ended(hosts: Hosts) -> None:
    """J6."""
    a, b = hosts.open("a"), hosts.open("b")
    owned = claim(a, "x")
    append(a, owned, "one")
    with pytest.raises(OwnedElsewhere, match="'a'"):
        claim(b, "x")
    b.rollback()
    hosts.end_lease("a")
    taken = claim(b, "x")
    assert (taken.epoch, taken.last_seq) == (owned.epoch + 1, 1)
    assert refused(a, lambda: a.append(batch(owned, "late", first_seq=2))) is Fenced
    assert texts(b, "x") == ["one"]


def test_a_short_lease_ends_by_itself(hosts: Hosts) -> None:
    """J6, J8: by the database's clock."""
    a, b = hosts.open("a"), hosts.open("b")
    claim(a, "x")
    hosts.sql(
        "UPDATE hosts SET lease_until = clock_timestamp() + interval '0.3 s' WHERE name = 'a'"
    )
    taken = None
    while taken is None:  # a busy machine may let it pass before the first claim
        try:
            taken = claim(b, "x")
        except OwnedElsewhere:
            b.rollback()
    assert taken.epoch == 2
    with pytest.raises(Fenced):
        a.renew()


def test_a_renewed_lease_is_as_long_as_a_new_one(hosts: Hosts) -> None:
    a = hosts.open("a", lease=7777)
    hosts.sql("UPDATE hosts SET lease_until = clock_timestamp() + interval '1 s'")
    assert 7000 < a.renew() <= 7777


@pytest.mark.quick
def test_an_owner_that_was_paused_is_fenced_when_it_comes_back(hosts: Hosts) -> None:
    """J8: if another host has taken over meanwhile."""
    a, b = hosts.open("a"), hosts.open("b")
    owned = claim(a, "x")
    hosts.end_lease("a")
    claim(b, "x")
    with pytest.raises(Fenced, match="the lease of 'a' ended"):
        a.renew()
    assert refused(a, lambda: a.claim("x", None)) is Fenced
    assert refused(a, lambda: a.claim("y", "support")) is Fenced
    assert refused(a, lambda: a.delete("x")) is Fenced
    assert refused(a, lambda: a.append(batch(owned, "late"))) is Fenced
    assert [(agent.agent_id, agent.host) for agent in b.agents(None, "", 9)] == [("x", "b")]


def test_an_owner_whose_lease_ended_keeps_what_no_other_host_has_claimed(hosts: Hosts) -> None:
    """J6, J8: it claims nothing before it has renewed the lease."""
    a, b = hosts.open("a", lease=7777), hosts.open("b")
    owned = claim(a, "x")
    hosts.end_lease("a")
    assert refused(a, lambda: a.claim("y", "support")) is StoreUnavailable
    assert 7000 < a.renew() <= 7777
    append(a, owned, "one")
    assert refused(b, lambda: b.claim("x", None)) is OwnedElsewhere
    assert claim(a, "y").epoch == 1


def test_a_host_whose_process_has_ended_renews_no_lease(hosts: Hosts) -> None:
    """J50: tests of crashes rely on it, where the host lives on in the process of the test."""
    a, b = hosts.open("a"), hosts.open("b")
    claim(a, "x")
    hosts.end_for_good(a)
    with pytest.raises(StoreUnavailable):
        a.renew()
    assert refused(a, lambda: a.claim("y", "support")) is Fenced
    assert claim(b, "x").epoch == 2


def test_a_late_renewal_waits_for_a_claim_under_way_and_believes_it(hosts: Hosts) -> None:
    """J6, J8."""
    a, b = hosts.open("a"), hosts.open("b")
    owned = claim(a, "x")
    hosts.end_lease("a")
    b.begin()
    assert b.claim("x", None) is not None
    with meanwhile(a.renew) as renewed:
        hosts.wait_for_a_lock()
        b.commit()
        with pytest.raises(Fenced):
            renewed.result(60)
    assert refused(a, lambda: a.append(batch(owned, "late"))) is Fenced


def test_a_late_renewal_is_made_if_the_claim_under_way_fails(hosts: Hosts) -> None:
    """J6, J8."""
    a, b = hosts.open("a", lease=7777), hosts.open("b")
    owned = claim(a, "x")
    hosts.end_lease("a")
    b.begin()
    assert b.claim("x", None) is not None
    with meanwhile(a.renew) as renewed:
        hosts.wait_for_a_lock()
        b.rollback()
        assert renewed.result(60) > 7000
    append(a, owned, "one")


def test_a_fenced_host_that_is_opened_again_is_a_new_host(hosts: Hosts) -> None:
    a = hosts.open("a")
    owned = claim(a, "x")
    hosts.end_lease("a")
    a.open()
    assert a.renew() > 0
    assert refused(a, lambda: a.append(batch(owned, "late"))) is Fenced
    assert claim(a, "x").epoch == owned.epoch + 1


def test_a_fenced_host_becomes_a_new_one_at_its_next_renewal(hosts: Hosts) -> None:
    """It owns nothing yet: others may have taken its agents."""
    a, b = hosts.open("a", lease=7777), hosts.open("b")
    owned, lost = claim(a, "x"), claim(a, "lost")
    hosts.end_lease("a")
    claim(b, "lost")
    with pytest.raises(Fenced):
        a.renew()
    assert 7000 < a.renew() <= 7777
    assert 7000 < a.renew() <= 7777
    assert refused(a, lambda: a.append(batch(owned, "late"))) is Fenced
    assert refused(a, lambda: a.append(batch(lost, "late"))) is Fenced
    assert refused(a, lambda: a.claim("lost", None)) is OwnedElsewhere
    append(a, claim(a, "x"), "one")
    assert texts(b, "x") == ["one"]


def test_a_lease_that_ended_owns_nothing_even_before_it_is_taken_over(hosts: Hosts) -> None:
    a, b = hosts.open("a"), hosts.open("b")
    claim(a, "x")
    hosts.end_lease("a")
    assert [agent.host for agent in b.agents(None, "", 9)] == [None]
    with commit(b):
        assert b.delete("x")


def test_a_host_judged_dead_stays_dead_though_the_clock_be_set_back(hosts: Hosts) -> None:
    """J6: as if the end of the lease had come back into the future."""
    a, b = hosts.open("a"), hosts.open("b")
    claim(a, "x")
    hosts.end_lease("a")
    claim(b, "x")
    hosts.sql("UPDATE hosts SET lease_until = lease_until + interval '1 hour' WHERE name = 'a'")
    with pytest.raises(Fenced):
        a.renew()


# ------------------------------------------------------------- two at the same moment


@pytest.mark.quick
def test_a_claim_waits_for_a_renewal_that_is_under_way_and_believes_it(hosts: Hosts) -> None:
    """J6: else both would win."""
    a, b = hosts.open("a"), hosts.open("b")
    claim(a, "x")
    hosts.end_lease("a")
    b.begin()
    with hosts.connection() as heart:
        heart.execute("BEGIN")
        heart.execute("UPDATE hosts SET lease_until = clock_timestamp() + interval '60 s'")
        with meanwhile(lambda: b.claim("x", None)) as claimed:
            hosts.wait_for_a_lock()
            heart.execute("COMMIT")
    assert isinstance(claimed.exception(), OwnedElsewhere)
    b.commit()
    assert a.renew() > 0


def test_a_renewal_under_way_that_fails_leaves_the_agent_to_the_claim(hosts: Hosts) -> None:
    a, b = hosts.open("a"), hosts.open("b")
    claim(a, "x")
    hosts.end_lease("a")
    b.begin()
    with hosts.connection() as heart:
        heart.execute("BEGIN")
        heart.execute("UPDATE hosts SET lease_until = clock_timestamp() + interval '60 s'")
        with meanwhile(lambda: b.claim("x", None)) as claimed:
            hosts.wait_for_a_lock()
            heart.execute("ROLLBACK")
    assert claimed.exception() is None
    b.commit()
    with pytest.raises(Fenced):
        a.renew()


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("ends", ["commit", "rollback"])
@pytest.mark.quick
def test_of_two_claims_at_once_one_wins(hosts: Hosts, ends: str, *, known: bool) -> None:
    """J6."""
    a, b, c = (hosts.open(name) for name in "abc")
    if known:
        owned = claim(c, "x")
        with commit(c):
            c.release(owned)
    a.begin()
    a.claim("x", "support")
    b.begin()
    with meanwhile(lambda: b.claim("x", "support")) as claimed:
        hosts.wait_for_a_lock()
        a.commit() if ends == "commit" else a.rollback()
    if ends == "commit":
        assert isinstance(claimed.exception(), OwnedElsewhere)
    else:
        assert claimed.exception() is None
    b.commit()
    (agent,) = c.agents(None, "", 9)
    assert (agent.host, agent.epoch) == ("a" if ends == "commit" else "b", 2 if known else 1)


def test_a_takeover_waits_for_a_commit_under_way_and_goes_on_behind_it(hosts: Hosts) -> None:
    """J7: neither a gap nor a lost record."""
    a, b = hosts.open("a"), hosts.open("b")
    owned = claim(a, "x")
    a.begin()
    a.append(batch(owned, "one", "two"))
    hosts.end_lease("a")
    b.begin()
    with meanwhile(lambda: b.claim("x", None)) as claimed:
        hosts.wait_for_a_lock()
        a.commit()
    taken = claimed.result()
    assert taken is not None
    b.append(batch(taken, "three"))
    b.commit()
    assert texts(b, "x") == ["one", "two", "three"]


@pytest.mark.quick
def test_a_commit_waits_for_a_takeover_under_way_and_is_fenced(hosts: Hosts) -> None:
    """J7."""
    a, b = hosts.open("a"), hosts.open("b")
    owned = claim(a, "x")
    hosts.end_lease("a")
    b.begin()
    b.claim("x", None)
    a.begin()
    with meanwhile(lambda: a.append(batch(owned, "late"))) as added:
        hosts.wait_for_a_lock()
        b.commit()
    assert isinstance(added.exception(), Fenced)
    a.commit()
    assert texts(b, "x") == []


def test_who_has_lost_an_agent_does_not_wait_for_its_owner(hosts: Hosts) -> None:
    """J7."""
    a, b = hosts.open("a"), hosts.open("b")
    lost, kept = claim(a, "x"), claim(a, "y")
    hosts.end_lease("a")
    taken = claim(b, "x")
    b.begin()
    b.append(batch(taken, "new"))
    a.begin()
    refused_batch, added = a.append_all([batch(lost, "late"), batch(kept, "kept")])
    assert isinstance(refused_batch, Fenced)
    assert "'b'" in str(refused_batch)
    assert added is None
    b.commit()
    a.commit()
    assert texts(b, "x") == ["new"]
    assert texts(b, "y") == ["kept"]


def test_a_deletion_takes_what_was_committed_while_it_waited(hosts: Hosts) -> None:
    a, b = hosts.open("a"), hosts.open("b")
    owned = claim(a, "x")
    a.begin()
    a.append(batch(owned, "one"))
    hosts.end_lease("a")
    b.begin()
    with meanwhile(lambda: b.delete("x")) as deleted:
        hosts.wait_for_a_lock()
        a.commit()
    assert deleted.result()
    b.commit()
    assert claim(b, "x").last_seq == 0
    assert texts(b, "x") == []


def test_a_refused_claim_holds_up_neither_the_owner_nor_its_heartbeat(hosts: Hosts) -> None:
    a, b = hosts.open("a"), hosts.open("b")
    owned = claim(a, "x")
    b.begin()
    with pytest.raises(OwnedElsewhere):
        b.claim("x", None)
    with pytest.raises(OwnedElsewhere):
        b.delete("x")
    append(a, owned, "one")  # a lock would make it wait, and then fail
    assert a.renew() > 0
    b.commit()


@pytest.mark.slow
def test_a_host_suspended_in_the_middle_of_a_commit_does_not_keep_agents_locked(
    hosts: Hosts,
) -> None:
    b, a = hosts.open("b"), hosts.open("a", lease=2)
    claim(a, "x")
    a.begin()
    a.claim("x", None)
    hosts.end_lease("a")
    assert claim(b, "x").epoch == 2  # waits until the server has thrown the first one out
    with pytest.raises(StoreUnavailable):
        a.commit()
    a.rollback()
    a.reconnect()
    assert refused(a, lambda: a.claim("x", None)) is Fenced


_SUSPENDED = """
import sys
from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import Batch, IndexEntry, IndexStatus
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.postgres.errors import store_error

url, schema, change = sys.argv[1:]
backend = PostgresBackend(url, host="suspended", lease=2, schema=schema)
backend.open()
backend.begin()
owned = backend.claim("x", "support")
if change == "append":
    backend.commit()
    backend.begin()
    records = (EncodedRecord("once", 1, b"{}"),)
    backend.append(
        Batch(
            agent_id="x",
            incarnation=owned.incarnation,
            epoch=owned.epoch,
            first_seq=1,
            records=records,
            entry=IndexEntry(IndexStatus.REST),
        )
    )
print("in the middle", flush=True)
sys.stdin.read()
"""


@contextmanager
def suspended_host(hosts: Hosts, change: str) -> Iterator[None]:
    """A host is stopped meanwhile in the middle of a commit: of records, or of a claim."""
    hosts.open("a").close()  # makes the tables
    command = ("-c", _SUSPENDED, hosts.url, hosts.schema, change)
    child = started(*command, stdin=PIPE, stdout=PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "in the middle\n"
        child.send_signal(signal.SIGSTOP)
        yield
    finally:
        child.kill()
        child.communicate()


@pytest.mark.slow
async def test_an_owner_that_is_stopped_in_the_middle_of_a_commit_does_not_keep_its_agents_locked(
    hosts: Hosts,
) -> None:
    """J6: nor an agent that it has just claimed, so that it is nobody's for all others yet.

    Behind a pipeline the server's own timeout for an idle transaction does not run.
    """
    with suspended_host(hosts, "claim"):
        store = DatabaseStore(hosts.new("b"), patience=60)
        await store.open(lambda: None)
        try:
            while True:
                try:
                    owned = await soon(store.claim("x", "support"))
                except OwnedElsewhere:  # until the lease of the suspended host is over
                    continue
                break
        finally:
            await store.close()
        assert owned is not None
        assert (owned.epoch, owned.last_seq) == (1, 0)


@pytest.mark.slow
def test_a_takeover_does_not_wait_for_an_owner_that_is_stopped_in_a_commit(hosts: Hosts) -> None:
    """J6: whoever takes over ends its sessions first. To wait in vain would be an error here."""
    with suspended_host(hosts, "append"):
        b = hosts.open("b")
        while True:
            try:
                taken = claim(b, "x")
            except OwnedElsewhere:  # until its lease is over
                b.rollback()
            else:
                break
        assert (taken.epoch, taken.last_seq) == (2, 0)


def test_lost_attempts_are_those_of_one_run_and_end_with_their_agent(hosts: Hosts) -> None:
    """J10: whoever was fenced says so, whoever owns the agent now."""
    a, b = hosts.open("a"), hosts.open("b")
    claim(b, "x")
    for run, number in (("r1", 1), ("r1", 2), ("r1", 2)):
        a.begin()
        a.note_lost_attempt("x", LostAttempt(run, number))
        a.commit()
    assert b.lost_attempts("x", "r1") == {1, 2}
    assert b.lost_attempts("x", "r2") == frozenset()
    a.begin()
    a.note_lost_attempt("x", LostAttempt("r2", 7))
    a.note_lost_attempt("nobody", LostAttempt("r2", 7))
    a.commit()
    assert b.lost_attempts("x", "r1") == frozenset()
    assert b.lost_attempts("x", "r2") == {7}
    b.begin()
    assert b.delete("x")
    b.commit()
    assert b.lost_attempts("x", "r2") == frozenset()


class Fighter(threading.Thread):
    """A host that claims, writes, gives up, dies and comes back as chance will have it."""

    def __init__(
        self, hosts: Hosts, name: str, agents: list[str], has_fought: Callable[[], bool]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.hosts, self.agents, self.has_fought = hosts, agents, has_fought
        self.backend = hosts.open(name)
        self.chance = random.Random(name)
        self.owned: dict[str, tuple[Owned, int]] = {}
        self.written: dict[str, list[str]] = {agent: [] for agent in agents}
        self.fenced = self.takeovers = 0
        self.late = False
        """Whether its lease has ended and it does not renew it yet."""
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for number in range(5_000):
                self.round(number)
                if number >= 100 and self.has_fought():
                    return
            raise AssertionError("nobody lost a fight")
        except BaseException as error:
            self.error = error

    def round(self, number: int) -> None:
        if self.chance.random() < 0.1:  # it writes on, for it does not know yet
            self.hosts.end_lease(self.name)
            self.late = True
        chosen = sorted(self.chance.sample(self.agents, 2))  # in order: no deadlocks here
        news: dict[str, tuple[Owned, int]] = {}
        written: dict[str, str] = {}
        self.backend.begin()
        for agent in chosen:
            try:
                news[agent] = owned, seq = self.owned.get(agent) or self.claim(agent)
                text = f"{self.name}-{number}"
                self.backend.append(batch(owned, text, first_seq=seq))
                news[agent], written[agent] = (owned, seq + 1), text
            except (OwnedElsewhere, StoreUnavailable):
                pass  # another host's; or its own lease is not renewed yet
            except Fenced:
                news.pop(agent, None)
                self.owned.pop(agent, None)
                self.fenced += 1
        self.backend.commit()
        self.owned.update(news)
        for agent, text in written.items():
            self.written[agent].append(text)
        if self.late and self.chance.random() < 0.7:
            return
        self.late = False
        try:
            self.backend.renew()
        except Fenced:
            if self.chance.random() < 0.5:  # else it stays a ghost for a while
                self.backend.open()
                # What it had is still in its hand: a stale writer if there ever was one.

    def claim(self, agent: str) -> tuple[Owned, int]:
        owned = self.backend.claim(agent, "support")
        assert owned is not None
        self.takeovers += 1
        return owned, owned.last_seq + 1


@pytest.mark.slow
def test_hosts_that_fight_for_agents_never_write_in_a_stale_epoch(hosts: Hosts) -> None:
    """J6, J7."""
    agents = [f"agent-{n}" for n in range(4)]

    def has_fought() -> bool:
        return all(sum(getattr(f, what) for f in fighters) > 20 for what in ("fenced", "takeovers"))

    fighters = [Fighter(hosts, name, agents, has_fought) for name in ("a", "b", "c")]
    for fighter in fighters:
        fighter.start()
    for fighter in fighters:
        fighter.join(60)
        assert not fighter.is_alive()
        assert fighter.error is None, repr(fighter.error)
    for agent in agents:
        rows = hosts.sql(
            "SELECT seq, r.epoch, convert_from(payload, 'UTF8')::json->>'value' FROM records r"
            " JOIN agents a ON a.key = r.agent WHERE agent_id = %s ORDER BY seq",
            agent,
        )
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
        epochs = [row[1] for row in rows]
        assert epochs == sorted(epochs)  # type: ignore[type-var]  # rows are untyped
        writers = {(epoch, str(text)[0]) for _, epoch, text in rows}
        assert len(writers) == len({epoch for epoch, _ in writers})  # one host an epoch
        for fighter in fighters:
            wrote = [text for _, _, text in rows if str(text).startswith(f"{fighter.name}-")]
            assert wrote == fighter.written[agent]


# ------------------------------------------------------------------ many in one statement


def test_many_batches_are_added_at_once_and_each_gets_its_own_answer(hosts: Hosts) -> None:
    a, b = hosts.open("a"), hosts.open("b")
    x, y, z, stolen = (claim(a, agent_id) for agent_id in ("x", "y", "z", "stolen"))
    hosts.end_lease("a")
    claim(b, "stolen")
    with commit(a):
        answers = a.append_all(
            [
                batch(stolen, "late"),
                batch(y, "one", first_seq=7),
                batch(x, "one", "two"),
                batch(z, "one"),
                batch(x, "three", first_seq=3, index_status=IndexStatus.WAITS),
                batch(z, index_status=IndexStatus.REST, first_seq=2),
            ]
        )
    kinds = [type(answer) for answer in answers]
    assert kinds == [Fenced, StoreConflict, *[type(None)] * 4]
    assert [texts(a, agent_id) for agent_id in "xyz"] == [["one", "two", "three"], [], ["one"]]
    assert [agent.index_status.value for agent in a.agents(None, "x", 9)] == ["rest", "rest"]
    assert [agent.agent_id for agent in a.agents([IndexStatus.WAITS], "", 9)] == ["x"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements of all connections, in order; those that are sent together in brackets."""
    made: list[str] = []
    execute, pipeline = psycopg.Connection.execute, psycopg.Connection.pipeline

    @contextmanager
    def together(self: psycopg.Connection[Any]) -> Iterator[psycopg.Pipeline]:
        with pipeline(self) as sent:
            made.append("(")
            yield sent
            made.append(")")

    def noted(self: psycopg.Connection[Any], query: str, *given: Any, **options: Any) -> Any:
        made.append(query)
        return execute(self, query, *given, **options)

    monkeypatch.setattr(psycopg.Connection, "execute", noted)
    monkeypatch.setattr(psycopg.Connection, "pipeline", together)
    return made


def test_batches_of_many_agents_are_committed_by_one_statement(
    hosts: Hosts, made: list[str]
) -> None:
    a = hosts.open("a")
    x, y = claim(a, "x"), claim(a, "y")
    assert a.commit_all([knowing(batch(x, "one"))]) == [None]
    made.clear()
    second = knowing(batch(x, "two", "three", first_seq=2))
    assert a.commit_all([second, knowing(batch(y, "one"))]) == [None, None]
    assert len(made) == 1
    assert [texts(a, agent_id) for agent_id in "xy"] == [["one", "two", "three"], ["one"]]
    assert a.is_committed(second)


async def test_each_commit_of_a_run_that_asks_a_person_is_sent_at_once(
    hosts: Hosts, made: list[str]
) -> None:
    """But for the claim, whose answer is needed before it is committed."""

    @tool
    async def pay() -> str:
        return "paid"

    desk = Agent("desk", by_turn(call("pay"), "done"), tools=[pay], interrupt_on={"pay": True})
    async with opened(DatabaseStore(hosts.new("a")), desk) as runtime:
        made.clear()
        ref = runtime.spawn("desk", "ticket")
        asked = interrupted(await soon(ref.run("go")))
        completed(await soon(ref.resume(asked.decide(approve(by="ann")))))
        commits = [at for at, statement in enumerate(made) if statement == "COMMIT"]
        assert [made[at + 1] == ")" for at in commits] == [False, True]
        found = await soon(runtime.decided())
    assert [each.by for each in found] == ["ann"]


def test_a_statement_that_fails_as_it_commits_has_added_nothing(new_hosts: Hosts) -> None:
    """J16: the server has answered it by then."""
    hosts = new_hosts
    a = hosts.open("a")
    added = knowing(batch(claim(a, "x"), "one"))
    hosts.sql(
        """CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$"""
    )
    hosts.sql(
        """CREATE CONSTRAINT TRIGGER no AFTER INSERT ON records
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no()"""
    )
    with pytest.raises(StoreUnavailable, match="no"):
        a.commit_all([added])
    a.rollback()
    assert not a.is_committed(added)
    assert texts(a, "x") == []


def test_a_statement_whose_answer_was_lost_is_known_to_be_committed(
    hosts: Hosts, cutter: Cutter
) -> None:
    """J16."""
    a = hosts.open("a", url=cutter.url)
    owned = claim(a, "x")
    a.commit_all([knowing(batch(owned, "one"))])  # the server has prepared it by then
    added = knowing(batch(owned, "two", first_seq=2))
    cutter.lose_the_next_answer()
    with pytest.raises(StoreUnavailable):
        a.commit_all([added])
    a.rollback()
    a.reconnect()
    assert a.is_committed(added)
    assert [type(answer) for answer in a.commit_all([added])] == [StoreConflict]


def test_adding_nothing_needs_no_agent(hosts: Hosts) -> None:
    a = hosts.open()
    with commit(a):
        assert a.append_all([]) == []


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["p", "q", "r"]),
            st.integers(1, 4),
            st.integers(1, 2),
            st.integers(0, 3),
        ),
        max_size=8,
    )
)
def test_batches_added_at_once_fare_as_if_added_one_by_one(
    hosts: Hosts, given: list[tuple[str, int, int, int]]
) -> None:
    """J7."""
    a = hosts.open()
    found = []
    for way in ("one", "all"):
        for agent_id in "pqr":
            with commit(a):
                a.delete(f"{way}-{agent_id}")
            claim(a, f"{way}-{agent_id}")
        epochs = {agent.agent_id: agent for agent in a.agents(None, "", 9)}
        batches = [
            Batch(
                agent_id=f"{way}-{agent_id}",
                incarnation=epochs[f"{way}-{agent_id}"].incarnation,
                epoch=epochs[f"{way}-{agent_id}"].epoch - 1 + epoch,
                first_seq=seq,
                records=tuple(record(f"{n}-{k}") for k in range(count)),
                entry=IndexEntry(IndexStatus.OPEN),
            )
            for n, (agent_id, seq, epoch, count) in enumerate(given)
        ]
        answers: list[str] = []
        with commit(a):
            if way == "all":
                answers = [type(answer).__name__ for answer in a.append_all(batches)]
            else:
                for each in batches:
                    try:
                        a.append(each)
                        answers.append("NoneType")
                    except (Fenced, StoreConflict) as error:
                        answers.append(type(error).__name__)
        found.append((answers, [texts(a, f"{way}-{agent_id}") for agent_id in "pqr"]))
    a.close()
    assert found[0] == found[1]


# ----------------------------------------------------------- a server that goes and comes


@pytest.mark.slow
def test_a_crash_of_the_server_loses_nothing_that_was_committed(postgres_server: Server) -> None:
    """J16."""
    hosts = Hosts(postgres_server.url)
    a, lazy = hosts.open("a"), hosts.open("lazy", durability="off")
    owned = claim(a, "x")
    kept, lost = batch(owned, "one"), batch(owned, "two", first_seq=2)
    append_batch(a, kept)
    a.begin()
    a.append(lost)
    epoch = claim(lazy, "y").epoch
    postgres_server.crash()
    for change in (a.commit, a.reconnect, a.renew, lambda: a.load("x", 0)):
        with pytest.raises(StoreUnavailable):
            change()
    a.rollback()
    postgres_server.start()
    assert texts(a, "x") == ["one"]  # the reader connects anew by itself, and so does the heart
    assert a.renew() > 0
    a.reconnect()
    assert (a.is_committed(kept), a.is_committed(lost)) == (True, False)
    append_batch(a, lost)
    assert texts(a, "x") == ["one", "two"]
    lazy.reconnect()
    # J7: an epoch that was given away is never given again, though commits may be lost.
    assert claim(lazy, "y").epoch == epoch + 1
    hosts.close()


def test_closing_raises_nothing_though_the_server_is_gone(postgres_server: Server) -> None:
    hosts = Hosts(postgres_server.url)
    a = hosts.open("a")
    owned = claim(a, "x")
    a.begin()
    a.append(batch(owned, "one"))
    postgres_server.crash()
    try:
        a.close()
    finally:
        postgres_server.start()
    hosts.close()


@pytest.mark.quick
def test_a_commit_whose_answer_was_lost_is_known_to_be_made(hosts: Hosts, cutter: Cutter) -> None:
    """J16."""
    a = hosts.open("a", url=cutter.url)
    added = batch(claim(a, "x"), "one")
    a.begin()
    a.append(added)
    cutter.lose_the_next_answer()
    with pytest.raises(StoreUnavailable):
        a.commit()
    a.rollback()
    a.reconnect()
    assert a.is_committed(added)
    assert refused(a, lambda: a.append(added)) is StoreConflict


def test_a_change_whose_answer_was_lost_is_known_to_be_undone(hosts: Hosts, cutter: Cutter) -> None:
    """J16."""
    a = hosts.open("a", url=cutter.url)
    added = batch(claim(a, "x"), "one")
    a.begin()
    cutter.lose_the_next_answer()
    with pytest.raises(StoreUnavailable):
        a.append(added)
    a.rollback()
    a.reconnect()
    assert not a.is_committed(added)
    append_batch(a, added)
    assert texts(a, "x") == ["one"]


def test_reading_back_waits_for_a_transaction_that_is_not_settled(hosts: Hosts) -> None:
    """J16: else it would be denied, and made a moment later."""
    a, b = hosts.open("a"), hosts.open("b")
    added = batch(claim(a, "x"), "one")
    a.begin()
    a.append(added)
    with meanwhile(lambda: b.is_committed(added)) as told:
        hosts.wait_for_a_lock()
        a.commit()
    assert told.result() is True


@pytest.mark.parametrize("whose", ["writer", "heart", "reader"])
@pytest.mark.slow
def test_a_server_that_freezes_is_unavailable_and_can_be_used_when_it_thaws(
    postgres_server: Server, whose: str
) -> None:
    hosts = Hosts(postgres_server.url)
    a = hosts.open("a", patience=1, lease=5)
    owned = claim(a, "x")
    a.load("x", 0)
    a.renew()
    act: Callable[[], object] = {
        "writer": lambda: append(a, owned, "one"),
        "heart": a.renew,
        "reader": lambda: a.load("x", 0),
    }[whose]
    with postgres_server.frozen("understudy a"):
        if whose == "writer":
            with pytest.raises(StoreUnavailable):
                act()
            a.rollback()
            a.reconnect()
        act()  # the others connect anew by themselves
    assert texts(a, "x") == (["one"] if whose == "writer" else [])
    hosts.close()


@pytest.mark.quick
def test_connections_that_the_server_ends_are_made_anew(hosts: Hosts) -> None:
    a = hosts.open("a")
    owned = claim(a, "x")
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND application_name = 'understudy a' AND datname = current_database()"
    )
    assert len(hosts.sql(end)) == 3
    assert a.renew() > 0
    assert texts(a, "x") == []
    a.begin()
    with pytest.raises(StoreUnavailable):
        a.append(batch(owned, "one"))
    a.rollback()
    a.reconnect()
    append(a, owned, "one")
    assert texts(a, "x") == ["one"]


def test_a_read_that_fails_before_it_is_sent_leaves_the_reader_as_it_was(hosts: Hosts) -> None:
    """Its transaction is of one moment: left open, all later reads would be of that moment."""
    a = hosts.open("a")
    owned = claim(a, "x")
    with pytest.raises(OverflowError):
        a.load("x", 1 << 70)
    append(a, owned, "one")
    assert texts(a, "x") == ["one"]


def test_closing_gives_up_all_at_once_even_on_a_connection_that_was_lost(hosts: Hosts) -> None:
    a, b = hosts.open("a"), hosts.open("b")
    claim(a, "x")
    hosts.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'understudy a'"
    )
    a.close()
    assert claim(b, "x").epoch == 2


# ------------------------------------------------------------------------------- opening


def test_several_hosts_may_open_a_new_store_at_once(new_hosts: Hosts) -> None:
    backends = [new_hosts.new(f"host-{n}") for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda backend: backend.open(), backends))
    for n, backend in enumerate(backends):
        claim(backend, f"agent-{n}")
    assert [agent.host for agent in backends[0].agents(None, "", 9)] == [
        f"host-{n}" for n in range(6)
    ]


def test_hosts_that_ended_long_ago_are_forgotten_and_own_nothing(hosts: Hosts) -> None:
    a = hosts.open("a")
    claim(a, "x")
    hosts.sql("UPDATE hosts SET lease_until = clock_timestamp() - interval '2 days'")
    b = hosts.open("b")
    assert hosts.sql("SELECT name FROM hosts") == [("b",)]
    assert claim(b, "x").epoch == 2
    with pytest.raises(Fenced):
        a.renew()


@pytest.mark.quick
def test_tables_of_another_program_are_left_alone(new_hosts: Hosts) -> None:
    """J96: its schema may be shared, but not the names of tables."""
    with psycopg.connect(new_hosts.url, autocommit=True) as other:
        other.execute(f"CREATE SCHEMA {new_hosts.schema}".encode())
    new_hosts.sql("CREATE TABLE records (note text)")
    with pytest.raises(SchemaVersionError, match="the table 'meta' is missing") as refused:
        new_hosts.open("a")
    assert "the column 'records.note' is not known" in refused.value.differences
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
    assert new_hosts.sql(tables, new_hosts.schema) == [("records",)]


# -------------------------------------------------------------------------------- errors

TROUBLE = {
    "53100": (StoreBroken, "Free space"),
    "25006": (StoreBroken, "primary"),
    "42501": (StoreBroken, "rights"),
    "XX001": (StoreBroken, "restore it from a copy"),
    "XX002": (StoreBroken, "REINDEX"),
    "58030": (StoreBroken, "I/O error"),
    "22000": (StoreBroken, "report it"),
    "40001": (StoreUnavailable, "40001"),
    "40P01": (StoreUnavailable, "40P01"),
    "53200": (StoreUnavailable, "53200"),
    "55P03": (StoreUnavailable, "55P03"),
    "57014": (StoreUnavailable, "57014"),
}


@pytest.mark.parametrize("code", TROUBLE)
def test_trouble_in_the_server_is_told_with_its_remedy(hosts: Hosts, code: str) -> None:
    """J16."""
    a = hosts.open("a")
    owned = claim(a, "x")
    hosts.sql(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN RAISE EXCEPTION 'trouble' USING ERRCODE = '{code}'; END$$"
    )
    hosts.sql("CREATE TRIGGER fail BEFORE INSERT ON records EXECUTE FUNCTION fail()")
    kind, words = TROUBLE[code]
    a.begin()
    with pytest.raises(StoreError, match=words) as caught:
        a.append(batch(owned, "one"))
    assert caught.type is kind
    assert "trouble" in str(caught.value)
    a.rollback()
    hosts.sql("DROP TRIGGER fail ON records")
    append(a, owned, "one")
    assert texts(a, "x") == ["one"]


def test_a_transaction_that_failed_is_never_told_to_be_committed(hosts: Hosts) -> None:
    a = hosts.open("a")
    owned = claim(a, "x")
    hosts.sql("ALTER TABLE records RENAME TO elsewhere")
    a.begin()
    with pytest.raises(StoreBroken, match="dropped or renamed"):
        a.append(batch(owned, "one"))
    with pytest.raises(StoreUnavailable, match="ROLLBACK"):
        a.commit()


@pytest.mark.slow
def test_a_real_deadlock_is_a_reason_to_try_again(hosts: Hosts) -> None:
    a, b = hosts.open("a"), hosts.open("b")
    x, y = claim(a, "x"), claim(b, "y")
    a.begin()
    b.begin()
    a.append(batch(x, "one"))
    b.append(batch(y, "one"))
    hosts.end_lease("a")
    with meanwhile(lambda: a.is_committed(batch(y, "one"))) as crossed:
        hosts.wait_for_a_lock()
        failures = [crossed.exception(timeout=0.0)] if crossed.done() else []
        with meanwhile(lambda: b.is_committed(batch(x, "one"))) as other:
            failures += [crossed.exception(), other.exception()]
            a.rollback()
    assert [type(each) for each in failures if each is not None] == [StoreUnavailable]


def test_a_database_that_takes_no_writes_says_so_at_the_opening(hosts: Hosts) -> None:
    url = (
        f"{hosts.url}{'&' if '?' in hosts.url else '?'}options=-cdefault_transaction_read_only%3Don"
    )
    with pytest.raises(StoreBroken, match="read-only"):
        hosts.open("a", url=url)


def _elsewhere(hosts: Hosts, **parts: str) -> str:
    """The URL with another user or database."""
    found = psycopg.conninfo.conninfo_to_dict(hosts.url, **parts)
    query = "&".join(f"{name}={value}" for name, value in found.items() if value)
    return f"postgresql:///?{query}"


def test_a_missing_database_is_told_with_its_remedy(hosts: Hosts) -> None:
    with pytest.raises(StoreBroken, match="Create the database"):
        hosts.open("a", url=_elsewhere(hosts, dbname="no_such_database"))


def test_a_user_unknown_to_the_server_is_told_with_its_remedy(hosts: Hosts) -> None:
    with pytest.raises(StoreBroken, match="user and password"):
        hosts.open("a", url=_elsewhere(hosts, user="nobody_at_all"))


def test_a_user_without_rights_is_told_so_and_needs_none_to_create_what_exists(
    new_hosts: Hosts,
) -> None:
    user = f"{new_hosts.schema}_user"
    new_hosts.sql(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'")
    try:
        url = _elsewhere(new_hosts, user=user, password="secret")
        with pytest.raises(StoreBroken, match="rights"):
            new_hosts.open("a", url=url)
        new_hosts.sql(f"CREATE SCHEMA {new_hosts.schema} AUTHORIZATION {user}")
        claim(new_hosts.open("a", url=url), "x")
    finally:
        new_hosts.close()
        new_hosts.sql(f"DROP ROLE {user}")


def test_a_database_that_cannot_keep_every_text_is_refused(hosts: Hosts) -> None:
    name = f"{hosts.schema}_ascii"
    hosts.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    try:
        with pytest.raises(StoreBroken, match="ENCODING 'UTF8'"):
            hosts.open("a", url=_elsewhere(hosts, dbname=name))
    finally:
        hosts.sql(f"DROP DATABASE {name}")


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with tempfile.TemporaryDirectory() as folder:
        nobody = PostgresBackend(f"postgresql:///x?host={folder}", host="a")
        with pytest.raises(StoreUnavailable):
            nobody.open()
        with pytest.raises(StoreBroken, match="not open"):
            nobody.load("x", 0)
        with pytest.raises(StoreBroken, match="not open"):
            nobody.reconnect()
        nobody.close()


def test_a_gap_in_the_records_is_told_as_damage(hosts: Hosts) -> None:
    a = hosts.open("a")
    append(a, claim(a, "x"), "one", "two", "three")
    hosts.sql("DELETE FROM records WHERE seq = 2")
    with pytest.raises(StoreDamaged, match="'x'"):
        a.load("x", 0)
    claim(a, "y")
    assert texts(a, "y") == []


def test_a_damaged_row_is_told_in_a_list_and_hides_no_other(hosts: Hosts) -> None:
    """J16."""
    a = hosts.open("a")
    append(a, claim(a, "x"), "one")
    append(a, claim(a, "y"), "two")
    hosts.sql("UPDATE agents SET epoch = -1 WHERE agent_id = 'x'")
    x, y = a.agents(None, "", 9)
    assert isinstance(x.damage, StoreDamaged)
    assert (x.agent_id, y.agent_id, y.damage) == ("x", "y", None)
    with pytest.raises(StoreDamaged, match="'x'"):
        a.load("x", 0)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "ä" * 1001])
def test_an_id_that_cannot_be_kept_concerns_nobody_else(hosts: Hosts, name: str) -> None:
    """J16."""
    a = hosts.open("a")
    a.begin()
    with pytest.raises(RecordRefused):
        a.claim(name, "support")
    assert a.claim(name, None) is None
    assert a.delete(name) is False
    a.claim("ä" * 1000, "support")
    a.commit()
    assert a.load(name, 0) is None
    assert [agent.agent_id for agent in a.agents(None, "", 9)] == ["ä" * 1000]


# ----------------------------------------------------------------- what cannot be right


@pytest.mark.parametrize(
    "url",
    [
        "",
        "support.db",
        "sqlite:///support.db",
        "postgresql+psycopg://u:hunter2@server/db",
        "mysql://u:hunter2@server/db",
        "postgresql://u:hunter2%zz@server/db",
        "postgresql://u:hunter2@server/db?sslmod=require",
        "postgresql://u@server/db?password=hunter2&nonsense",
        "postgresql://u:hunter2@server:port:5432/db?x=y",
    ],
)
def test_what_is_no_url_of_a_database_is_refused_without_telling_the_password(url: str) -> None:
    with pytest.raises(UsageError, match="postgresql://user:password@server") as caught:
        PostgresBackend(url, host="a")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"durability": "most"}, "'full', 'normal', 'off', got 'most'"),
        ({"lease": 0}, "`lease` must be"),
        ({"lease": float("nan")}, "`lease` must be"),
        ({"patience": 0}, "`patience` must be"),
        ({"schema": "Robert'); --"}, "`schema` must be"),
        ({"schema": "pg_mine"}, "`schema` must be"),
    ],
)
def test_an_option_that_cannot_be_right_is_refused(wrong: dict[str, object], words: str) -> None:
    options: dict[str, object] = {"host": "a", **wrong}
    with pytest.raises(UsageError, match=words):
        PostgresBackend("postgresql://server/db", **options)  # type: ignore[arg-type]  # wrong


@pytest.mark.slow
def test_psycopg_is_loaded_only_for_a_postgresql_store_and_missed_with_a_remedy() -> None:
    code = (
        "import sys, understudy, understudy.journal.postgres as postgres\n"
        "print('psycopg' in sys.modules)\n"
        "sys.modules['psycopg'] = None\n"
        "try: postgres.PostgresBackend('postgresql://server/db', host='a')\n"
        "except understudy.errors.UsageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, error = done.stdout.strip().split("\n")
    assert loaded == "False"
    assert "pip install 'understudy[postgres]'" in error


def test_a_store_that_closes_while_a_reader_reconnects_leaves_no_connection(
    hosts: Hosts, cutter: Cutter
) -> None:
    a = hosts.open("a", url=cutter.url)
    append(a, claim(a, "x"), "one")
    with ThreadPoolExecutor(1) as reader:
        with cutter.holding_connections() as is_asked:
            cutter.lose_the_next_answer()
            read = reader.submit(a.load, "agent", 0)
            assert is_asked.wait(60)
            a.close()
        with pytest.raises(StoreBroken, match="not open"):
            read.result(60)
    cutter.wait_until_all_have_left()


def test_a_store_that_closes_ends_the_read_that_nobody_waits_for_before_its_connection(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else libpq frees what the thread of the read uses, and the process dies of it."""
    used: list[bool] = []

    def close(connection: psycopg.Connection[Any]) -> None:
        used.append(connection.pgconn.transaction_status == TransactionStatus.ACTIVE)
        close_it(connection)

    close_it = psycopg.Connection.close
    a = hosts.open("a")
    append(a, claim(a, "x"), "one")
    with hosts.connection() as other, ThreadPoolExecutor(1) as reader:
        with other.transaction():
            other.execute("LOCK TABLE records")
            read = reader.submit(a.load, "agent", 0)
            hosts.wait_for_a_lock()
            monkeypatch.setattr(psycopg.Connection, "close", close)
            a.close()
        monkeypatch.undo()
        with pytest.raises(StoreBroken, match="not open"):
            read.result(60)
    assert len(used) > 2
    assert not any(used)


@pytest.mark.parametrize("statement", ["EXECUTE nothing", "SELECT * FROM no_table"])
def test_what_a_pooler_of_transactions_does_is_told_as_that(
    postgres_url: str, statement: LiteralString
) -> None:
    """Behind one, what a session has prepared is another session's, and so are its settings."""
    with psycopg.connect(postgres_url) as connection, pytest.raises(psycopg.Error) as raised:
        connection.execute(statement)
    error = store_error(raised.value, lost=False)
    assert isinstance(error, StoreBroken)
    assert "have it pool sessions" in str(error)


@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_connection_for_which_no_descriptor_is_left_says_so_with_the_remedy(
    host: str, free: int
) -> None:
    """libpq has no details then, or the name of the host cannot be found."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://u@{host}:{silent.getsockname()[1]}/x"
        backend = PostgresBackend(url, host="a")
        with few_files(free), pytest.raises(StoreUnavailable) as raised:
            backend.open()
    assert "no file descriptor is left" in str(raised.value)
    assert "raise the limit of open files" in str(raised.value)


def test_a_store_opens_when_there_are_descriptors_again(hosts: Hosts) -> None:
    backend = hosts.open("a")
    ended = []
    for free in range(16):
        backend.close()
        with few_files(free):
            try:
                backend.open()
                ended.append("opened")
            except StoreUnavailable as error:
                ended.append(str(error))
        backend.close()
        backend.open()
    assert ended[-1] == "opened"
    assert all("no file descriptor is left" in each for each in ended[: ended.index("opened")])
    append(backend, claim(backend, "x"), "one")
    assert texts(backend, "x") == ["one"]


def test_a_call_whose_answer_nothing_can_wait_for_is_made_on_a_new_connection(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg's own code in Python opens a descriptor to wait with, for each call."""
    backend = hosts.open("a")
    owned = claim(backend, "x")
    with monkeypatch.context() as patch:
        patch.setattr(psycopg.waiting, "wait", _out_of_files)
        with pytest.raises(StoreUnavailable, match="no file descriptor is left"):
            append(backend, owned, "one")
    backend.reconnect()
    assert not backend.is_committed(batch(owned, "one"))
    append(backend, owned, "one")
    assert texts(backend, "x") == ["one"]


def _out_of_files(*_: object, **options: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")
