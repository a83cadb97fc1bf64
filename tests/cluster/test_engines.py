"""What a cluster does where its engine loses a host, with an engine that needs no processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import completed
from tests.support.clusters import APP
from tests.support.inline_engine import Inline
from tests.support.loops import SECONDS, soon
from understudy.cluster import (
    Cluster,
    ClusterStatus,
    HostLine,
    HostPhase,
    Hosts,
    HostSpec,
    RunningHost,
)
from understudy.errors import CallLost, StoreUnavailable, UsageError


@pytest.fixture
def engine() -> Inline:
    return Inline()


@pytest.fixture
def cluster(engine: Inline, tmp_path: Path) -> Iterator[Cluster]:
    store = f"sqlite:///{tmp_path}/store.db"
    with Cluster(
        f"{APP}:desks", 1, store=store, engine=engine, stop_timeout=0.1, drain_timeout=5
    ) as started:
        yield started


def lose(cluster: Cluster, engine: Inline) -> None:
    """End the task of the host, and start another one."""
    (host,) = engine.hosts.values()
    cluster._calls.loop.call_soon_threadsafe(host.restart, "lost")


def test_an_engine_is_opened_and_closed_with_its_cluster(tmp_path: Path) -> None:
    engine = Inline()
    store = f"sqlite:///{tmp_path}/store.db"
    with Cluster(f"{APP}:desks", 1, store=store, engine=engine) as cluster:
        assert engine.is_open
        status: ClusterStatus = cluster.status().get(timeout=SECONDS)
        assert [(h.name, h.phase, h.node) for h in status.hosts] == [
            (f"{APP}-1", HostPhase.RUNNING, "here")
        ]
        assert [node.id for node in status.nodes] == ["here"]
    assert not engine.is_open
    with pytest.raises(UsageError, match="has stopped"):
        cluster.get("ann")


class NeverGreets:
    """A host whose process ends as it starts."""

    def __init__(self, line: HostLine) -> None:
        asyncio.get_running_loop().call_soon(line.lost, "exit code 4")

    def send(self, frame: bytes) -> None: ...
    def restart(self, why: str) -> None: ...
    async def end(self, timeout: float) -> None: ...


class StartsNone(Inline):
    async def start(self, spec: HostSpec, pool: Hosts, line: HostLine) -> RunningHost:
        return NeverGreets(line)


def test_a_cluster_whose_hosts_end_as_they_start_says_how(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    with (
        pytest.raises(StoreUnavailable, match=rf"{APP}-1' ends as it starts \(exit code 4\)"),
        Cluster(f"{APP}:desks", 1, store=store, engine=StartsNone(), start_timeout=0.1),
    ):
        pass


class Narrow(Inline):
    """Has no place for some hosts, or cannot have them at all."""

    waiting: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    async def start(self, spec: HostSpec, pool: Hosts, line: HostLine) -> RunningHost:
        if spec.name in self.refused:
            raise UsageError("there is no such place")
        if spec.name in self.waiting:
            return Waiting()
        return await super().start(spec, pool, line)


class Waiting:
    """A host that its engine has no place for."""

    def send(self, frame: bytes) -> None: ...
    def restart(self, why: str) -> None: ...
    async def end(self, timeout: float) -> None: ...


@pytest.mark.quick
def test_of_hosts_that_are_too_many_those_without_a_place_end_first(database: str) -> None:
    engine = Narrow()
    engine.waiting = (f"{APP}-1",)
    with Cluster(f"{APP}:desks", 2, store=database, engine=engine) as cluster:
        cluster.scale(1).get(timeout=SECONDS)
        status: ClusterStatus = cluster.status().get(timeout=SECONDS)
        assert [(h.name, h.phase) for h in status.hosts] == [(f"{APP}-2", HostPhase.RUNNING)]
        outcome = cluster.spawn("desk", "ann").run("Hello!").get(timeout=SECONDS)
        assert completed(outcome).text == "heard Hello!"


def test_a_host_that_its_engine_cannot_start_is_none_of_the_cluster(tmp_path: Path) -> None:
    engine = Narrow()
    engine.refused = (f"{APP}-2",)
    store = f"sqlite:///{tmp_path}/store.db"
    with Cluster(f"{APP}:desks", 1, store=store, engine=engine) as cluster:
        with pytest.raises(UsageError, match="no such place"):
            cluster.scale(2).get(timeout=SECONDS)
        status: ClusterStatus = cluster.status().get(timeout=SECONDS)
        assert [host.name for host in status.hosts] == [f"{APP}-1"]


def test_a_host_that_has_ended_has_no_pid(cluster: Cluster, engine: Inline) -> None:
    before: ClusterStatus = cluster.status().get(timeout=SECONDS)
    assert [(h.phase, h.pid) for h in before.hosts] == [(HostPhase.RUNNING, os.getpid())]
    (host,) = engine.hosts.values()
    cluster._calls.loop.call_soon_threadsafe(host._line.lost, "gone")
    after: ClusterStatus = cluster.status().get(timeout=SECONDS)
    assert [(h.phase, h.pid) for h in after.hosts] == [(HostPhase.STARTING, None)]


def test_calls_wait_for_a_host_and_keep_their_order(cluster: Cluster, engine: Inline) -> None:
    ref = cluster.spawn("desk", "ann")
    ref.run("Hello!").get(timeout=SECONDS)
    lose(cluster, engine)
    sent = [ref.send(f"number {n}") for n in range(50)]
    for future in sent:
        future.get(timeout=SECONDS)
    ref.outcome().get(timeout=SECONDS)
    while (state := ref.state().get(timeout=SECONDS)).queue:
        ref.outcome().get(timeout=SECONDS)
    texts = [p.content for m in state.messages for p in m.parts if p.part_kind == "user-prompt"]
    assert texts == ["Hello!", *(f"number {n}" for n in range(50))]
    status: ClusterStatus = cluster.status().get(timeout=SECONDS)
    assert status.restarts == 1


def test_calls_wait_while_a_cluster_has_no_hosts(cluster: Cluster) -> None:
    """J62: it knows what its hosts have, and takes calls as ever."""
    ref = cluster.spawn("desk", "ann")
    assert completed(ref.run("hello you").get(timeout=SECONDS)).text == "heard you"
    cluster.scale(0).get(timeout=SECONDS)
    more = ref.run("hello again")
    new = cluster.spawn("desk", "bob").run("hello bob")
    with pytest.raises(UsageError, match="the hosts have: 'desk'"):
        cluster.spawn("dsek")
    status: ClusterStatus = cluster.status().get(timeout=SECONDS)
    assert (list(status.hosts), more.done(), new.done()) == ([], False, False)
    cluster.scale(1).get(timeout=SECONDS)
    assert completed(more.get(timeout=SECONDS)).text == "heard again"
    assert completed(new.get(timeout=SECONDS)).text == "heard bob"


def test_calls_wait_for_the_pool_that_has_their_definition(tmp_path: Path) -> None:
    """J62: also where that has no host yet, and while it has none again."""
    pools = [Hosts(f"{APP}:desks", 1, name="desk"), Hosts(f"{APP}:vision", 0, name="vision")]
    store = f"sqlite:///{tmp_path}/store.db"  # of one host at a time
    with Cluster(pools, store=store, engine=Inline(), drain_timeout=5) as cluster:
        before = cluster.spawn("vision", "v").run("hello one")
        assert sum(cluster.count().get(timeout=SECONDS).values()) == 0
        cluster.scale(0, "desk").get(timeout=SECONDS)
        cluster.scale(1, "vision").get(timeout=SECONDS)
        assert completed(before.get(timeout=SECONDS)).text == "heard one"
        cluster.scale(0, "vision").get(timeout=SECONDS)
        cluster.scale(1, "desk").get(timeout=SECONDS)
        again = cluster.spawn("vision", "v").run("hello two")
        cluster.count().get(timeout=SECONDS)
        assert not again.done()
        cluster.scale(0, "desk").get(timeout=SECONDS)
        cluster.scale(1, "vision").get(timeout=SECONDS)
        assert completed(again.get(timeout=SECONDS)).text == "heard two"


def test_a_call_that_names_its_run_is_repeated_and_others_are_lost(
    cluster: Cluster, engine: Inline, tmp_path: Path
) -> None:
    ref = cluster.spawn("desk", "ann")
    run = ref.run(f"wait {tmp_path}/ann")
    events = ref.events()
    next(iter(e for e in events if e.event.kind == "tool_started"))
    events.close()
    run_id = _run_of(ref)
    lose(cluster, engine)
    lost, repeated = ref.pause("stop"), ref.cancel("enough", run_id=run_id)
    outcomes: list[Any] = []
    for future in (lost, repeated, run):
        try:
            outcomes.append(future.get(timeout=SECONDS))
        except CallLost as error:
            outcomes.append(error)
    assert type(outcomes[1]).__name__ == type(outcomes[2]).__name__ == "Stopped"
    assert outcomes[0] is None or outcomes[0].call == "pause"


async def test_a_subscription_that_is_closed_while_a_host_begins_it_ends(
    cluster: Cluster, engine: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = cluster.spawn("desk", "ann")
    await soon(ref.run("Hello!"))
    (host,) = engine.hosts.values()
    send, events = host.send, ref.events()

    def closed_first(frame: bytes) -> None:
        monkeypatch.undo()
        events.close()  # what asks the host to begin it is under way
        send(frame)

    monkeypatch.setattr(host, "send", closed_first)
    assert [event async for event in over(events)] == []


async def over(events: Any) -> AsyncIterator[Any]:
    """Its events, and no wait for what does not come."""
    iterator = aiter(events)
    with suppress(StopAsyncIteration):
        while True:
            yield await soon(anext(iterator))


def _run_of(ref: Any) -> str:
    run = ref.state().get(timeout=SECONDS).run
    assert run is not None
    return str(run.run_id)


def test_an_answer_that_cannot_be_sent_is_an_error_of_that_call(cluster: Cluster) -> None:
    ref = cluster.spawn("desk", "ann")
    with pytest.raises(UsageError, match="an argument cannot be sent"):
        ref.notify("Notes", lambda: None)
    assert completed(ref.run("Hello!").get(timeout=SECONDS)).text == "heard Hello!"
