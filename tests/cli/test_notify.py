"""`understudy notify` lists notices, tries them again, and sends a test."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Desk, found_by_commands, run
from tests.support.notified import EVERY, Kept, desk
from tests.support.processes import until
from understudy import Runtime
from understudy.notify import Notify, Rule

APP = """
from tests.support.notified import Kept
from understudy.notify import Notify, Rule

notify = Notify(
    Rule([Kept("good"), Kept("bad", fails=1)]), base_url="https://ops.example.com"
)
other = 3
"""


@pytest.fixture
def failed(tmp_path: Path) -> Iterator[Desk]:
    """A server whose notice has failed."""
    store = f"sqlite:///{tmp_path / 'store.db'}"
    kept = Kept(fails=1, is_final=True)
    notify = Notify(Rule(kept), base_url="https://ops.example.com", every=EVERY)
    with (
        Runtime([desk()], store=store, notify=notify) as runtime,
        found_by_commands(runtime, store) as url,
    ):
        runtime.spawn("desk", "ticket 7").run("go").get(timeout=60)
        until(lambda: runtime.notices(state="failed").get(timeout=60))
        yield Desk(store, url, runtime, [])


@pytest.mark.parametrize("where", ["store", "server"])
def test_what_has_failed_is_listed(failed: Desk, where: str) -> None:
    at = ["--store", failed.store] if where == "store" else ["--url", failed.url]
    [row] = json.loads(run("notify", "list", "--json", *at).stdout)["notifications"]
    assert (row["agent_id"], row["state"], row["channel"]) == ("ticket 7", "failed", "kept")
    assert "the test says so" in run("notify", "list", "--state", "failed", *at).stdout
    done = run("notify", "list", "--state", "done", *at)
    assert "there are no notices" in done.stderr
    run("notify", "list", "--state", "lost", *at, code=2)


def test_what_has_failed_is_tried_again(failed: Desk) -> None:
    [row] = json.loads(run("notify", "list", "--json").stdout)["notifications"]
    assert "it is delivered again" in run("notify", "retry", str(row["no"])).stdout
    until(lambda: failed.runtime.notices(state="done").get(timeout=60))
    assert "it has not failed" in run("notify", "retry", str(row["no"])).stdout
    assert not json.loads(run("notify", "retry", "99", "--json").stdout)["retried"]


def test_a_test_is_sent_by_each_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app_that_tells.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        done = run("notify", "test", "app_that_tells:notify", code=1)
        assert done.stdout.splitlines() == ["good: sent", "bad: the test says so"]
        assert run("notify", "test", "app_that_tells:notify", "--channel", "bad").stdout == (
            "bad: sent\n"
        )
        run("notify", "test", "app_that_tells:notify", "--channel", "none", code=2)
        run("notify", "test", "app_that_tells:other", code=2)
    finally:
        sys.modules.pop("app_that_tells", None)
