"""Hosts that share a database take agents at rest from each other, and post calls to others."""

from __future__ import annotations

import queue
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from tests.support.batches import (
    append,
    append_batch,
    batch,
    claim,
    commit,
    meanwhile,
    refused,
    stored,
    texts,
)
from tests.support.postgres import Cutter, Hosts
from understudy.errors import Fenced, OwnedElsewhere
from understudy.journal.contracts import Batch, IndexStatus, Owned
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.postgres.connection import PostgresConnection
from understudy.journal.postgres.sharing import lease
from understudy.journal.shared import HostedDefinition, Post, Wanted, hint_of

CUT_EARS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE query LIKE 'LISTEN%%' AND datname = current_database()"
)
REST, WAITS = IndexStatus.REST, IndexStatus.WAITS


class Ears(dict[str, "queue.Queue[str | None]"]):
    """What each host has heard."""


@pytest.fixture
def ears() -> Ears:
    return Ears()


def open_host(hosts: Hosts, ears: Ears, name: str, *, lease: float = 60.0) -> PostgresBackend:
    """A host that listens."""
    heard = ears[name] = queue.Queue()
    backend = hosts.new(name, lease=lease)
    backend.listen(heard.put)
    backend.open()
    assert heard.get(timeout=60) is None, "it listens from now on"
    return backend


def at_rest(owned: Owned, *texts: str, seq: int | None = None) -> Batch:
    added = batch(owned, *texts, first_seq=seq, index_status=REST)
    return replace(added, entry=added.entry._replace(takeable=True))


def take(backend: PostgresBackend, agent_id: str = "x") -> Owned:
    with commit(backend):
        owned = backend.take(agent_id, "support")
    assert owned is not None
    return owned


def next_of(ears: Ears, name: str) -> Any:
    text = ears[name].get(timeout=60)
    assert text is not None
    return hint_of(text)


# ------------------------------------------------------------------------------ taking


@pytest.mark.quick
def test_an_agent_at_rest_is_taken_from_its_living_owner_who_is_told(
    hosts: Hosts, ears: Ears
) -> None:
    """J6."""
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    owned = claim(a, "x")
    append_batch(a, at_rest(owned, "one"))
    taken = take(b)
    assert (taken.last_seq, taken.epoch) == (1, owned.epoch + 1)
    assert next_of(ears, "a") == ("taken", taken.epoch, "x")
    assert refused(a, lambda: a.append(batch(owned, "late", first_seq=2))) is Fenced
    append(b, taken, "two")
    assert texts(a, "x") == ["one", "two"]
    assert stored(a, "x").host == "b"


def test_an_agent_of_which_something_goes_on_is_not_taken(hosts: Hosts, ears: Ears) -> None:
    """J6: its row says so, whatever it waits for."""
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    owned = claim(a, "x")
    assert refused(b, lambda: b.take("x", "support")) is OwnedElsewhere
    for seq, status in enumerate(IndexStatus, start=1):
        append(a, owned, "more", first_seq=seq, index_status=status)
        assert refused(b, lambda: b.take("x", "support")) is OwnedElsewhere


def test_an_agent_is_not_taken_from_a_host_that_does_not_listen(hosts: Hosts, ears: Ears) -> None:
    """J6: it would not hear that it has lost the agent."""
    deaf, b = hosts.open("deaf"), open_host(hosts, ears, "b")
    append_batch(deaf, at_rest(claim(deaf, "x"), "one"))
    assert refused(b, lambda: b.take("x", "support")) is OwnedElsewhere


def test_a_claim_takes_nothing_from_a_living_owner(hosts: Hosts, ears: Ears) -> None:
    """What a host looks for by itself, such as a due, does not move agents."""
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    append_batch(a, at_rest(claim(a, "x"), "one"))
    assert refused(b, lambda: b.claim("x", "support")) is OwnedElsewhere


def test_a_take_that_waits_for_an_append_judges_what_that_has_written(
    hosts: Hosts, ears: Ears
) -> None:
    """J6: in the statement that takes, and not before it."""
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    owned = claim(a, "x")
    append_batch(a, at_rest(owned, "one"))
    a.begin()
    a.append(batch(owned, "goes on", first_seq=2))
    b.begin()
    with meanwhile(lambda: b.take("x", "support")) as taken:
        hosts.wait_for_a_lock()
        a.commit()
    assert isinstance(taken.exception(), OwnedElsewhere)
    b.rollback()
    append(a, owned, "two", first_seq=3)


def test_a_take_that_waits_for_an_append_of_an_agent_that_rests_goes_on_behind_it(
    hosts: Hosts, ears: Ears
) -> None:
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    owned = claim(a, "x")
    append_batch(a, at_rest(owned, "one"))
    a.begin()
    a.append(at_rest(owned, "two", seq=2))
    b.begin()
    with meanwhile(lambda: b.take("x", "support")) as taken:
        hosts.wait_for_a_lock()
        a.commit()
    found, read = taken.result(), b.load_claimed("x", 1)
    b.commit()
    assert found is not None
    assert read is not None
    assert (found.last_seq, len(read[1].records)) == (2, 1), "what it has waited for is read"


@pytest.mark.quick
def test_an_append_that_waits_for_a_take_is_fenced(hosts: Hosts, ears: Ears) -> None:
    """J7."""
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    owned = claim(a, "x")
    append_batch(a, at_rest(owned, "one"))
    b.begin()
    b.take("x", "support")
    a.begin()
    with meanwhile(lambda: a.append(batch(owned, "late", first_seq=2))) as added:
        hosts.wait_for_a_lock()
        b.commit()
    assert isinstance(added.exception(), Fenced)
    a.commit()
    assert texts(b, "x") == ["one"]


def test_of_two_hosts_that_take_at_once_one_after_the_other_has_the_agent(
    hosts: Hosts, ears: Ears
) -> None:
    a, b, c = (open_host(hosts, ears, name) for name in "abc")
    owned = claim(a, "x")
    append_batch(a, at_rest(owned, "one"))
    b.begin()
    first = b.take("x", "support")
    c.begin()
    with meanwhile(lambda: c.take("x", "support")) as second:
        hosts.wait_for_a_lock()
        b.commit()
    c.commit()
    taken = second.result()
    assert first is not None
    assert taken is not None
    assert (first.epoch, taken.epoch) == (owned.epoch + 1, owned.epoch + 2)


def test_an_agent_at_rest_is_deleted_though_another_host_owns_it(hosts: Hosts, ears: Ears) -> None:
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    owned = claim(a, "x")
    append(a, owned, "one")
    assert refused(b, lambda: b.delete("x", at_rest=True)) is OwnedElsewhere
    append_batch(a, at_rest(owned, "two", seq=2))
    with commit(b):
        assert b.delete("x", at_rest=True)
    assert next_of(ears, "a").kind == "taken"
    assert a.load("x", 0) is None


# ----------------------------------------------------------------------------- posting


def post(
    backend: PostgresBackend, *kinds: str, incarnation: int = 1, agent_id: str = "x"
) -> list[int]:
    by = f"{agent_id} {backend.host}"
    posts = [Post(kind, b"{}", f"{kind} {n} {by}") for n, kind in enumerate(kinds)]
    with commit(backend):
        return backend.post(agent_id, incarnation, posts)


def wanted(*agent_ids: str, limit: int = 10, **given: list[Any]) -> Wanted:
    """All of these agents, or of all, but for what is given."""
    what: dict[str, list[Any]] = {"in_hand": [], "busy": [], **given}
    return Wanted(list(agent_ids) or None, limit=limit, **what)


def test_of_each_agent_as_many_calls_are_read_before_more_of_one(hosts: Hosts, ears: Ears) -> None:
    """J70: and none of those in hand, or of agents with much in hand."""
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    for id in ("x", "y"):
        append(a, claim(a, id), "one")
    xs = post(b, "run", "run", "send", "cancel", agent_id="x")
    ys = post(b, "run", agent_id="y")
    assert [each.id for each in a.posted(wanted(limit=2))] == [xs[0], ys[0]]
    assert [each.id for each in a.posted(wanted(limit=3))] == [xs[0], ys[0], xs[1]]
    assert [each.id for each in a.posted(wanted("y"))] == ys
    assert [each.id for each in a.posted(wanted("x", in_hand=xs[:2]))] == xs[2:]
    assert [each.id for each in a.posted(wanted(busy=["x"]))] == ys


@pytest.mark.quick
def test_a_call_is_posted_found_by_the_owner_and_answered(hosts: Hosts, ears: Ears) -> None:
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    append(a, claim(a, "x"), "one")
    one, two = post(b, "run", "cancel")
    assert one < two
    assert next_of(ears, "a") == ("posted", 0, "x")
    found = a.posted(wanted())
    assert [(each.id, each.kind, each.body) for each in found] == [
        (one, "run", b"{}"),
        (two, "cancel", b"{}"),
    ]
    assert b.posted(wanted()) == []
    with commit(a):
        a.reply(one, b"done")
    assert next_of(ears, "b") == ("look", one, "")
    states = b.post_states([one, two])
    assert [states[id].reply for id in (one, two)] == [b"done", None]
    assert [each.id for each in a.posted(wanted())] == [two]
    with commit(b):
        b.remove_posts([one, two])
    assert set(b.post_states([one, two])) == {two}


@pytest.mark.parametrize("first", ["reply", "withdraw"])
@pytest.mark.quick
def test_of_a_reply_and_a_call_that_is_taken_back_one_wins(
    hosts: Hosts, ears: Ears, first: str
) -> None:
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    append(a, claim(a, "x"), "one")
    (id,) = post(b, "run")

    def reply() -> None:
        a.reply(id, b"done")

    def withdraw() -> None:
        b.withdraw([id])

    one, other = (a, b) if first == "reply" else (b, a)
    does, waits = (reply, withdraw) if first == "reply" else (withdraw, reply)
    one.begin()
    does()
    other.begin()
    with meanwhile(waits) as waited:
        hosts.wait_for_a_lock()
        one.commit()
    waited.result()
    other.commit()
    assert [state.reply for state in b.post_states([id]).values()] == (
        [b"done"] if first == "reply" else []
    )


def test_nothing_is_posted_to_whoever_does_not_own_it_any_more(hosts: Hosts, ears: Ears) -> None:
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    owned = claim(a, "x")
    append(a, owned, "one")
    assert post(b, "run", incarnation=2) == []
    with commit(a):
        a.release(owned)
    assert post(b, "run") == []
    deaf = hosts.open("deaf")
    claim(deaf, "x")
    assert post(b, "run") == []


def test_a_call_whose_commit_was_not_answered_is_posted_once(hosts: Hosts, ears: Ears) -> None:
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    append(a, claim(a, "x"), "one")
    assert post(b, "run") == post(b, "run")
    assert len(a.posted(wanted())) == 1


def test_a_call_that_is_done_once_at_most_is_begun_by_one_attempt(hosts: Hosts, ears: Ears) -> None:
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    append(a, claim(a, "x"), "one")
    (id,) = post(b, "notify")
    with commit(a):
        assert a.begin_post(id, "first")
        assert a.begin_post(id, "first")
        assert not a.begin_post(id, "second")
    assert a.posted(wanted())[0].begun
    with commit(b):
        assert b.withdraw([id, 99]) == {id: True}
    with commit(a):
        assert not a.begin_post(id, "first")


def test_a_claim_says_that_calls_wait_for_the_agent(hosts: Hosts, ears: Ears) -> None:
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    append(a, claim(a, "x"), "one")
    post(b, "run")
    hosts.end_lease("a")
    assert b.orphans(10) == [("x", "support")]
    assert claim(b, "x").has_posts
    assert b.orphans(10) == []
    assert [each.kind for each in b.posted(wanted("x"))] == ["run"]
    assert b.posted(wanted("y")) == []


def test_a_release_tells_those_who_wait_to_look(hosts: Hosts, ears: Ears) -> None:
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    owned = claim(a, "x")
    append(a, owned, "one")
    (id,) = post(b, "run")
    with commit(a):
        a.release(owned)
    assert next_of(ears, "b") == ("look", 0, "")
    assert b.post_states([id])[id].is_free


def test_who_leaves_says_so_if_it_was_given_a_run_just_then(hosts: Hosts, ears: Ears) -> None:
    """J10: neither who gives it nor who leaves has seen the other one."""
    gives, leaves, _ = (open_host(hosts, ears, name) for name in ("gives", "leaves", "stays"))
    with commit(leaves):
        leaves.register([HostedDefinition(agent="support", fingerprint="f")])
    owned = claim(gives, "x")
    append(gives, owned, "one")
    with commit(gives):
        gives.release(owned)
    gives.begin()
    assert gives.give("x", "support", None) == "leaves"
    with meanwhile(leaves.close) as left:
        hosts.wait_for_a_lock()
        gives.commit()
        left.result(60)
    assert next_of(ears, "stays") == ("left", 0, "")
    with commit(gives):
        assert gives.give("x", "support", None) is None


def test_who_leaves_says_so_if_something_is_posted_to_its_agents(hosts: Hosts, ears: Ears) -> None:
    """J70: who has posted it may be gone as well, and look for it no more."""
    asks, leaves, _ = (open_host(hosts, ears, name) for name in ("asks", "leaves", "stays"))
    owned = claim(leaves, "x")
    append(leaves, owned, "one", index_status=REST)
    assert post(asks, "send")
    asks.close()
    leaves.close()
    assert next_of(ears, "stays") == ("left", 0, "")


def test_a_host_that_cannot_say_that_it_leaves_keeps_its_row(
    hosts: Hosts, ears: Ears, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J10: others see the end of its lease then, as of one that is killed between the two."""
    open_host(hosts, ears, "leaves").close()
    assert hosts.sql("SELECT name FROM hosts") == []
    monkeypatch.setattr(lease, "TELL_LEFT", "SELECT 1 / 0, %(told)s, %(id)s")
    open_host(hosts, ears, "leaves").close()
    assert hosts.sql("SELECT name FROM hosts") == [("leaves",)]


def test_what_waits_for_an_agent_that_is_deleted_is_answered_and_not_done_to_the_next_one(
    hosts: Hosts, ears: Ears
) -> None:
    """J7."""
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    append(a, claim(a, "x"), "one")
    run, delete = post(b, "run", "delete")
    with commit(a):
        a.delete("x")
    again = claim(a, "x")
    assert (again.incarnation, again.has_posts) == (2, False)
    states = b.post_states([run, delete])
    assert b"UnknownAgent" in (states[run].reply or b"")
    assert states[delete].reply == b'{"value":true}'
    assert a.posted(wanted()) == []


def test_an_ear_whose_connection_is_cut_listens_again_and_says_that_it_may_have_missed_something(
    hosts: Hosts, ears: Ears
) -> None:
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    append(a, claim(a, "x"), "one")
    hosts.sql(CUT_EARS)
    assert ears["a"].get(timeout=60) is None
    post(b, "run")
    assert next_of(ears, "a").kind == "posted"


def test_a_host_that_closes_while_its_ear_connects_hears_nothing_any_more(
    hosts: Hosts, cutter: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would listen until the host has waited for it in vain."""
    heard: queue.Queue[str | None] = queue.Queue()
    a = hosts.new("a", url=cutter.url)
    a.listen(heard.put)
    a.open()
    assert heard.get(timeout=60) is None
    interrupt = PostgresConnection.interrupt
    with ExitStack() as stack:
        is_asked = stack.enter_context(cutter.holding_connections())

        def interrupt_and_let_connect(connection: PostgresConnection) -> None:
            interrupt(connection)
            stack.close()

        monkeypatch.setattr(PostgresConnection, "interrupt", interrupt_and_let_connect)
        hosts.sql(CUT_EARS)
        assert is_asked.wait(60)
        a.close()
    assert heard.empty()


def test_a_host_that_lost_its_lease_is_another_one_that_listens_as_well(
    hosts: Hosts, ears: Ears
) -> None:
    a, b = open_host(hosts, ears, "a"), open_host(hosts, ears, "b")
    claim(a, "x")
    hosts.end_lease("a")
    claim(b, "x")
    with pytest.raises(Fenced):
        a.renew()
    a.renew()
    owned = claim(a, "y")
    append_batch(a, at_rest(owned, "one"))
    take(b, "y")
    assert next_of(ears, "a").kind == "taken"
