"""The benchmark of clusters runs and brings its numbers; how fast anything is, no test asks."""

from __future__ import annotations

import pytest

from benchmarks.cluster import make, measure
from understudy import Runtime
from understudy.cluster import Cluster


@pytest.mark.slow
def test_a_runtime_and_a_cluster_bring_the_same_numbers(postgres_url: str) -> None:
    cases = [
        measure("a", lambda s: s.enter_context(Runtime(make(), store=postgres_url)), 3),
        measure(
            "b",
            lambda s: s.enter_context(Cluster("benchmarks.cluster:make", 1, store=postgres_url)),
            3,
        ),
    ]
    for found in cases:
        assert set(found) == {"start", "run", "decision"}
        assert min(found.values()) > 0
