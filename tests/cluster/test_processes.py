"""A cluster of processes: hosts that are killed, hang, cannot start, come and go (J62)."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no types
import pytest

from tests.support import cluster_app
from tests.support.agents import completed
from tests.support.clusters import APP, hosts_of
from tests.support.loops import SECONDS
from tests.support.processes import until
from understudy import Runtime, approve
from understudy.cluster import Cluster, HostPhase, Hosts
from understudy.errors import CallLost, StoreUnavailable, UsageError

pytestmark = [pytest.mark.slow, pytest.mark.faults]


@pytest.fixture
def cluster(database: str) -> Iterator[Cluster]:
    with Cluster(f"{APP}:desks", 2, store=database, sweep=0.5, drain_timeout=10) as started:
        yield started


def entered(path: Path) -> list[int]:
    """The processes that have entered the tool, once there is one."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_a_host_is_killed_and_its_run_goes_on_at_another_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    """J62."""
    until(lambda: all(h.phase is HostPhase.RUNNING for h in hosts_of(cluster)))
    run = cluster.spawn("desk", "ann").run(f"wait {tmp_path}/ann")
    (killed,) = until(lambda: entered(tmp_path / "ann.entered"))
    (tmp_path / "ann.released").touch()
    os.kill(killed, signal.SIGSTOP)  # so that it does not end the run meanwhile
    os.kill(killed, signal.SIGKILL)
    assert completed(run.get(timeout=SECONDS)).text == "done"
    until(lambda: all(h.phase is HostPhase.RUNNING for h in hosts_of(cluster)))
    assert [h.restarts for h in hosts_of(cluster)].count(1) == 1
    assert killed not in {h.pid for h in hosts_of(cluster)}
    state = cluster.get("ann").state().get(timeout=SECONDS)
    texts = [p.content for m in state.messages for p in m.parts if p.part_kind == "user-prompt"]
    assert len(texts) == 1, "the repeated call is known by the id of its message"


def test_a_host_that_is_told_to_end_ends_its_step_first(cluster: Cluster, tmp_path: Path) -> None:
    """As a process manager ends all processes at once: no call is cut off, no caller is told."""
    until(lambda: all(h.phase is HostPhase.RUNNING for h in hosts_of(cluster)))
    run = cluster.spawn("desk", "ann").run(f"wait {tmp_path}/ann")
    (owner,) = until(lambda: entered(tmp_path / "ann.entered"))
    os.kill(owner, signal.SIGTERM)
    late = cluster.get("ann").state()
    (tmp_path / "ann.released").touch()
    assert completed(run.get(timeout=SECONDS)).text == "done"
    assert entered(tmp_path / "ann.entered") == [owner]
    assert late.get(timeout=SECONDS).messages
    until(lambda: sorted(h.restarts for h in hosts_of(cluster)) == [0, 1])


def test_what_must_not_be_done_twice_is_not_repeated(database: str, tmp_path: Path) -> None:
    """J62."""
    # One host, so that no other one passes the call on to the owner.
    with Cluster(f"{APP}:desks", 1, store=database, drain_timeout=10) as cluster:
        ref = cluster.spawn("desk", "ann")
        run = ref.run(f"wait {tmp_path}/ann")
        (owner,) = until(lambda: entered(tmp_path / "ann.entered"))
        os.kill(owner, signal.SIGSTOP)  # it gets the call, and answers nothing
        lost = ref.notify("Notes", "once")
        os.kill(owner, signal.SIGKILL)
        with pytest.raises(CallLost, match="notify") as error:
            lost.get(timeout=SECONDS)
        assert error.value.call == "notify"
        (tmp_path / "ann.released").touch()
        assert completed(run.get(timeout=SECONDS)).text == "done"


def test_events_go_on_without_a_gap_where_their_host_ends(cluster: Cluster, tmp_path: Path) -> None:
    ref = cluster.spawn("desk", "ann")
    events = ref.events()
    run = ref.run(f"wait {tmp_path}/ann")
    seen = []
    for event in events:
        seen.append(event)
        if event.event.kind == "tool_started":
            break
    (owner,) = until(lambda: entered(tmp_path / "ann.entered"))
    os.kill(owner, signal.SIGKILL)
    (tmp_path / "ann.released").touch()
    for event in events:
        seen.append(event)
        if event.event.kind == "run_finished":
            break
    run.get(timeout=SECONDS)
    recorded = [(event.seq, event.event) for event in seen if event.seq is not None]
    stored = []
    for event in ref.events():
        if event.seq is not None:
            stored.append((event.seq, event.event))
        if event.event.kind == "run_finished":
            break
    assert recorded == stored


def test_a_host_that_hangs_is_started_again(database: str) -> None:
    # So long that a busy machine lets one that does not hang answer.
    with Cluster(f"{APP}:desks", 1, store=database, hang_timeout=5.0) as cluster:
        (host,) = hosts_of(cluster)
        assert host.pid is not None
        os.kill(host.pid, signal.SIGSTOP)
        until(lambda: hosts_of(cluster)[0].restarts == 1)
        assert not psutil.pid_exists(host.pid)


def test_hosts_come_and_go_and_runs_go_on(cluster: Cluster, tmp_path: Path) -> None:
    runs = [cluster.spawn("desk", f"a{n}").run(f"wait {tmp_path}/a{n}") for n in range(6)]
    until(lambda: all(entered(tmp_path / f"a{n}.entered") for n in range(6)))
    cluster.scale(3).get(timeout=SECONDS)
    until(lambda: [h.phase for h in hosts_of(cluster)] == [HostPhase.RUNNING] * 3)
    cluster.scale(1).get(timeout=SECONDS)
    (left,) = hosts_of(cluster)
    for n in range(6):
        (tmp_path / f"a{n}.released").touch()
    assert [completed(run.get(timeout=SECONDS)).text for run in runs] == ["done"] * 6
    assert left.restarts == 0


def test_a_cluster_that_drains_has_no_agents(cluster: Cluster) -> None:
    for n in range(4):
        cluster.spawn("desk", f"a{n}").run("Hello!").get(timeout=SECONDS)
    assert cluster.drain(30.0).get(timeout=SECONDS) is True
    counts = [host.runtime for host in hosts_of(cluster) if host.runtime is not None]
    assert counts
    assert all(count.draining and not count.agents for count in counts)


def test_the_hosts_of_a_cluster_end_with_it_and_a_runtime_goes_on(
    database: str, tmp_path: Path
) -> None:
    """J62."""
    program = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "from understudy.cluster import Cluster\n"
        f"cluster = Cluster({APP + ':desks'!r}, 1, store={database!r}, drain_timeout=1)\n"
        "cluster.__enter__()\n"
        "cluster.spawn('desk', 'ann').run('refund 17').get()\n"
        f"cluster.spawn('desk', 'bob').run('wait {tmp_path}/bob')\n"
        "cluster.get('bob').state().get()\n"
        "print(*[h.pid for h in cluster.status().get().hosts if h.pid], flush=True)\n"
        "input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        process.kill()
    assert pids
    until(lambda: not any(_runs(pid) for pid in pids))
    (tmp_path / "bob.released").touch()
    with Runtime(cluster_app.desks(), store=database) as runtime:
        (pending,) = runtime.pending().get(timeout=SECONDS)
        ref = runtime.get("ann")
        outcome = ref.resume({pending.request.id: approve()}).get(timeout=SECONDS)
        assert completed(outcome).text == "done"
        left = runtime.get("bob").outcome().get(timeout=SECONDS)
        assert left is not None
        assert completed(left).text == "done"


def test_a_factory_opens_what_its_agents_need(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER_TEST_FOLDER", str(tmp_path))
    with Cluster(f"{APP}:opened", 1, store=database) as cluster:
        (host,) = hosts_of(cluster)
        assert (tmp_path / f"opened-{host.pid}").exists()
    assert (tmp_path / f"closed-{host.pid}").exists()


def test_each_definition_runs_in_the_pool_that_has_it(database: str) -> None:
    pools = [Hosts(f"{APP}:desks", 1, name="desk"), Hosts(f"{APP}:vision", 1, name="vision")]
    with Cluster(pools, store=database) as cluster:
        look = completed(cluster.spawn("vision", "eye").run("block").get(timeout=SECONDS))
        assert look.text == "done"
        assert look.cost.usd == look.usage.output_tokens > 0
        pids = {h.pool: h.host for h in hosts_of(cluster)}
        cluster.spawn("desk", "ann").run("Hello!").get(timeout=SECONDS)
        owners = {info.id: info.host for info in cluster.agents().get(timeout=SECONDS)}
        assert owners == {"eye": pids["vision"], "ann": pids["desk"]}
        lost = completed(cluster.spawn("vision", "lost").run("lose 17").get(timeout=SECONDS))
        assert lost.state.doubts == {}  # its factory says that undeclared tools only look
        with pytest.raises(UsageError, match="'desk', 'vision'"):
            cluster.scale(2)
        # A cluster that has not seen the agent looks up what it is.
        cluster.get("eye").stop(timeout=SECONDS)
        cluster.get("ann").stop(timeout=SECONDS)
    with Cluster(pools, store=database) as cluster:
        for id, text in [("eye", "heard there?"), ("ann", "heard there?")]:
            outcome = cluster.get(id).run("Anybody there?").get(timeout=SECONDS)
            assert completed(outcome).text == text


def test_a_host_that_cannot_start_says_why(database: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    for factory, error, text in [
        ("broken", LookupError, "no model today"),
        ("other", UsageError, "must return a list of agents"),
        ("absent", UsageError, "cannot be imported"),
    ]:
        with (
            pytest.raises(error, match=text) as raised,
            Cluster(f"{APP}:{factory}", 1, store=database),
        ):
            pass
        (note,) = raised.value.__notes__
        assert f"of '{APP}:{factory}'" in note
        assert "Traceback" in note, "of the host, which says where"


def test_a_cluster_whose_hosts_do_not_come_up_says_so(database: str) -> None:
    with (
        pytest.raises(StoreUnavailable, match="no host of"),
        Cluster(f"{APP}:desks", 1, store=database, start_timeout=0.001),
    ):
        pass


def _runs(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False
