"""Databases and clusters for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import pytest

from tests.support import cluster_app
from tests.support.clusters import APP, needs_ray
from tests.support.inline_engine import Inline
from tests.support.postgres import new_database
from understudy import Runtime
from understudy.cluster import Cluster


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    with new_database(postgres_url) as url:
        yield url


class Clusters:
    """One database, and one cluster of each engine on it, each started when it is wanted first."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self._stack = stack
        self._made: dict[str, Cluster] = {}

    def of(self, engine: Literal["processes", "ray"]) -> Cluster:
        if engine not in self._made:
            cluster = Cluster(f"{APP}:desks", 2, store=self.url, engine=engine, feed=True)
            self._made[engine] = self._stack.enter_context(cluster)
        return self._made[engine]


@pytest.fixture(scope="module")
def clusters(postgres_url: str) -> Iterator[Clusters]:
    with ExitStack() as stack:
        yield Clusters(stack.enter_context(new_database(postgres_url)), stack)


@pytest.fixture(
    params=[
        "runtime",
        "inline",
        pytest.param("processes", marks=[pytest.mark.slow, pytest.mark.postgres]),
        pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.postgres, pytest.mark.ray]),
    ]
)
def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runtime]:
    """What has the calls of a runtime: a runtime, or a cluster of two hosts; in one task, of one.

    Those of processes and of Ray are one for all tests of a module: they take seconds to start.
    """
    store = f"sqlite:///{tmp_path}/store.db"
    if request.param == "runtime":
        with Runtime(cluster_app.desks(), store=store, feed=True) as plain:
            yield plain
    elif request.param == "inline":
        inline = Inline()
        with Cluster(f"{APP}:desks", 1, store=store, engine=inline, feed=True) as cluster:
            yield cluster
    else:
        if request.param == "ray":
            needs_ray()
        clusters: Clusters = request.getfixturevalue("clusters")
        yield clusters.of(request.param)
