"""An agent of Pydantic AI runs in a cluster like any other (M9)."""

from __future__ import annotations

from pathlib import Path

from tests.support.adopted_app import SHOPS, Refund
from tests.support.agents import completed, contents, interrupted
from tests.support.inline_engine import Inline
from understudy import approve
from understudy.cluster import Cluster

SECONDS = 20.0


def test_an_adopted_agent_asks_in_one_cluster_and_goes_on_in_another(tmp_path: Path) -> None:
    """M9."""
    store = f"sqlite:///{tmp_path}/store.db"
    factory = "tests.support.adopted_app:supports"
    with Cluster(factory, 1, store=store, engine=Inline()) as cluster:
        asked = cluster.spawn("support", "ann").run("Refund 17.").get(timeout=SECONDS)
        (request,) = interrupted(asked).requests
        assert (request.kind, request.tool_name) == ("approval", "pay")
        assert SHOPS["ann"].paid == []
    with Cluster(factory, 1, store=store, engine=Inline()) as cluster:
        ref = cluster.get("ann")
        outcome = completed(ref.resume({request.id: approve()}).get(timeout=SECONDS))
        stored = ref.outcome().get(timeout=SECONDS)
        assert stored is not None
        assert completed(stored).output == Refund(order_id="17", cents=2000)
        assert ("success", "paid to ann") in contents(outcome.state)
    assert SHOPS.pop("ann").paid == [("17", 2000)]
    assert outcome.output == Refund(order_id="17", cents=2000)
