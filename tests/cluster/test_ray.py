"""A cluster on Ray with several nodes: placement, and what is killed (J62)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no types
import pytest

from tests.support import cluster_app
from tests.support.agents import completed
from tests.support.clusters import APP, hosts_of, needs_ray
from tests.support.processes import SECONDS, until
from understudy import Runtime, approve
from understudy.cluster import Cluster, ClusterStatus, HostPhase, Hosts
from understudy.cluster.ray_engine import RayEngine
from understudy.errors import UsageError

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def nodes() -> Iterator[Any]:
    """Ray's own cluster of several nodes on one machine, with a head and nothing else."""
    needs_ray()
    import ray
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


def test_hosts_are_placed_by_their_resources_and_wait_for_place(nodes: Any, database: str) -> None:
    # Each has a place of its own: else the first may take that of the second.
    desk = nodes.add_node(num_cpus=1, resources={"chairs": 1})
    vision = nodes.add_node(num_cpus=1, resources={"eyes": 1})
    pools = [
        Hosts(f"{APP}:desks", 1, name="desk", resources={"chairs": 1}),
        Hosts(f"{APP}:vision", 1, name="vision", resources={"eyes": 1}),
    ]
    with Cluster(pools, store=database, engine=RayEngine(nodes.address)) as cluster:
        look = cluster.spawn("vision", "eye").run("block")
        assert completed(look.get(timeout=SECONDS)).text == "done"
        placed = {host.pool: host.node for host in hosts_of(cluster)}
        assert placed == {"desk": desk.node_id, "vision": vision.node_id}
        cluster.scale(2, "vision").get(timeout=SECONDS)
        waiting = hosts_of(cluster)[-1]
        assert (waiting.pool, waiting.phase) == ("vision", HostPhase.STARTING)
        found: ClusterStatus = cluster.status().get(timeout=SECONDS)
        assert {node.id for node in found.nodes} > {desk.node_id, vision.node_id}
        nodes.add_node(num_cpus=1, resources={"eyes": 1})
        until(lambda: hosts_of(cluster)[-1].phase is HostPhase.RUNNING)


def test_a_node_loses_its_power_and_its_runs_go_on_at_another_one(
    nodes: Any, database: str, tmp_path: Path
) -> None:
    nodes.add_node(num_cpus=1)
    nodes.add_node(num_cpus=1)
    with Cluster(f"{APP}:desks", 2, store=database, engine=RayEngine(nodes.address)) as cluster:
        until(lambda: all(h.phase is HostPhase.RUNNING for h in hosts_of(cluster)))
        ref = cluster.spawn("desk", "ann")
        run = ref.run(f"wait {tmp_path}/ann")
        until((tmp_path / "ann.entered").exists)
        pid = int((tmp_path / "ann.entered").read_text())
        (node_id,) = (h.node for h in hosts_of(cluster) if h.pid == pid)
        (node,) = (n for n in nodes.worker_nodes if n.node_id == node_id)
        nodes.remove_node(node, allow_graceful=False)
        (tmp_path / "ann.released").touch()
        assert completed(run.get(timeout=SECONDS)).text == "done"
        left = until(lambda: [h for h in hosts_of(cluster) if h.phase is HostPhase.RUNNING])
        assert {h.node for h in left} != {node_id}
        nodes.add_node(num_cpus=1)  # there is place again
        until(lambda: all(h.phase is HostPhase.RUNNING for h in hosts_of(cluster)))


def test_a_host_is_killed_and_ray_starts_it_again(database: str, tmp_path: Path) -> None:
    needs_ray()
    with Cluster(f"{APP}:desks", 1, store=database, engine="ray") as cluster:
        run = cluster.spawn("desk", "ann").run(f"wait {tmp_path}/ann")
        until((tmp_path / "ann.entered").exists)
        (host,) = hosts_of(cluster)
        assert host.pid is not None
        os.kill(host.pid, signal.SIGKILL)
        (tmp_path / "ann.released").touch()
        assert completed(run.get(timeout=SECONDS)).text == "done"
        (host,) = hosts_of(cluster)
        assert host.restarts == 1


PROGRAM = """
import sys
sys.path[:] = {path!r}
from ray.cluster_utils import Cluster as Nodes
from understudy.cluster import Cluster
from understudy.cluster.ray_engine import RayEngine

nodes = Nodes(initialize_head=True, head_node_args={{"num_cpus": 2, "include_dashboard": False}})
cluster = Cluster({factory!r}, 1, store={store!r}, engine=RayEngine(nodes.address))
cluster.__enter__()
cluster.spawn("desk", "ann").run("refund 17").get()
(host,) = cluster.status().get().hosts
print("pid", host.pid, flush=True)
nodes.head_node.kill_gcs_server(check_alive=False)
print("headless", flush=True)
# Calls go on without the head, until Ray ends this process.
print("said", cluster.spawn("desk", "bob").run("Hello!").get(timeout=60).text, flush=True)
input()
"""


def test_the_head_of_ray_is_killed_and_a_plain_runtime_goes_on(database: str) -> None:
    """Ray ends its drivers then, so this one is a process of its own."""
    needs_ray()
    program = PROGRAM.format(path=sys.path, factory=f"{APP}:desks", store=database)
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
        start_new_session=True,
    )
    told: list[str] = []
    children: list[psutil.Process] = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            told.append(line.strip())
            children = psutil.Process(process.pid).children(recursive=True)
            if line.startswith("said"):
                break
        assert told[-1] == "said heard Hello!", told
        assert re.match(r"pid \d+", told[-3])
    finally:
        process.kill()
        for child in children:  # without a head nobody ends them
            with suppress(psutil.NoSuchProcess):
                child.kill()
        process.wait(SECONDS)
        process.stdout.close()
        assert process.stdin is not None
        process.stdin.close()
    with Runtime(cluster_app.desks(), store=database) as runtime:

        def decided() -> Any:
            (pending,) = runtime.pending().get(timeout=SECONDS)
            ref = runtime.get("ann")
            with suppress(Exception):  # its owner's lease has not ended yet
                return ref.resume({pending.request.id: approve()}).get(timeout=SECONDS)
            return None

        assert completed(until(decided)).text == "done"


def test_an_address_that_is_none_of_ray_is_told(database: str) -> None:
    needs_ray()
    engine = RayEngine("nowhere")  # of an address where nobody answers Ray itself tells late
    with (
        pytest.raises(UsageError, match="Ray cannot be reached at 'nowhere'"),
        Cluster(f"{APP}:desks", 1, store=database, engine=engine),
    ):
        pass


def test_resources_that_ray_does_not_take_are_told(database: str) -> None:
    needs_ray()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"resources": {"CPU": 1}}, "num_cpus"),
        ({"num_gpus": 1.5}, "whole"),
    ]
    for wrong, told in cases:
        pool = Hosts(f"{APP}:desks", **wrong)
        with (
            pytest.raises(UsageError, match=f"{APP}:desks.*{told}"),
            Cluster([pool], store=database, engine="ray"),
        ):
            pass
