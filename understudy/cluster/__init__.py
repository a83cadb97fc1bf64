"""Many hosts on one store, called as one runtime: processes on this machine, or Ray.

from understudy.cluster import Cluster

with Cluster("my_app.agents:make", 4, store="postgresql://...") as cluster:
    outcome = cluster.spawn("support", "ticket-42").run("Hello!").get(timeout=60)
"""

from understudy.actors.runtime import RuntimeOptions
from understudy.cluster.cluster import Cluster
from understudy.cluster.definitions import Definitions
from understudy.cluster.engine import (
    Engine,
    HostLine,
    Hosts,
    HostSpec,
    NodeStatus,
    RunningHost,
)
from understudy.cluster.events import ClusterDisplay, ClusterSubscription
from understudy.cluster.hosts import HostPhase
from understudy.cluster.processes import Processes
from understudy.cluster.refs import ClusterRef, ClusterSchedules
from understudy.cluster.status import ClusterStatus, HostStatus

__all__ = [
    "Cluster",
    "ClusterDisplay",
    "ClusterRef",
    "ClusterSchedules",
    "ClusterStatus",
    "ClusterSubscription",
    "Definitions",
    "Engine",
    "HostLine",
    "HostPhase",
    "HostSpec",
    "HostStatus",
    "Hosts",
    "NodeStatus",
    "Processes",
    "RunningHost",
    "RuntimeOptions",
]
