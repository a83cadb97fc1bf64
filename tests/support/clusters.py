"""Clusters of the tests' own application, and the hosts that they have."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support import cluster_app
from tests.support.processes import SECONDS
from understudy.cluster import Cluster, ClusterStatus, HostStatus

__all__ = ["APP", "hosts_of", "needs_ray"]

APP = cluster_app.__name__


def hosts_of(cluster: Cluster) -> list[HostStatus]:
    found: ClusterStatus = cluster.status().get(timeout=SECONDS)
    return list(found.hosts)


def needs_ray() -> None:
    """Skip where Ray is not installed: `make test-ray` installs it."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: make test-ray installs it")
