"""What a cluster refuses, before a process is started (J61)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support import cluster_app
from understudy import Agent, ScriptedModel
from understudy.cluster import Cluster, Hosts
from understudy.errors import UsageError

STORE = "postgresql://localhost/none"


def cluster(hosts: Any = "app:make", count: Any = 1, **options: Any) -> Cluster:
    return Cluster(hosts, count, **{"store": STORE, **options})


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: cluster(Agent("desk", ScriptedModel([]))), "'my_app.agents:make'"),
        (lambda: cluster([Agent("desk", ScriptedModel([]))]), "cannot be sent"),
        (lambda: cluster(cluster_app.desks), "'tests.support.cluster_app:desks'"),
        (lambda: cluster("my_app.agents"), "'module:attribute'"),
        (lambda: cluster("my_app:1"), "'module:attribute'"),
        (lambda: cluster(count=-1), "from 0 to 10,000, got -1"),
        (lambda: cluster(count=True), "got True"),
        (lambda: cluster([]), "pools of different names"),
        (lambda: cluster([Hosts("app:make"), Hosts("app:other")]), "different names"),
        (lambda: cluster(store="memory:"), "'postgresql://"),
        (lambda: cluster(count=2, store="sqlite:///x.db"), "'postgresql://"),
        (lambda: cluster(engine="threads"), "`engine` must be"),
        (lambda: cluster(hang_timeout=-1), "`hang_timeout`"),
        (lambda: cluster(labels="gpu"), "`labels` must be a set"),
        (lambda: cluster(any_host=False), "a cluster asks any host"),
        (lambda: cluster([Hosts("app:make", options={"lease": -1})]), "`lease` must be"),
        (lambda: cluster("__main__:make"), "got '__main__:make'"),
        (lambda: Hosts("app:make", num_cpus=-1), "from 0 on, got -1"),
        (lambda: Hosts("app:make", num_gpus=cast("Any", "one")), "from 0 on, got 'one'"),
        (lambda: Hosts("app:make", resources={"eyes": True}), "from 0 on, got True"),
        (lambda: Hosts("app:make", resources=cast("Any", 2)), "resources=...) must be a mapping"),
        (lambda: Hosts("app:make", options=cast("Any", 2)), "options=...) must be a mapping"),
        (lambda: Hosts("app:make", name=cast("Any", 2)), "name=...) must be text"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(UsageError) as error:
        make()
    assert told in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["make", "'__main__:make'"])
def test_a_factory_of_a_script_is_named_by_the_file_of_the_script(
    tmp_path: Path, given: str
) -> None:
    script = tmp_path / "my_desk.py"
    script.write_text(
        "from understudy.cluster import Cluster\n"
        "def make(): return []\n"
        f"Cluster({given}, store='{STORE}')\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, timeout=60, check=False)
    assert "this one is 'my_desk:make'" in ended.stderr.decode()


@pytest.mark.parametrize("name", ["nothing", "store", "factory", "deps_for", "host", "new_id"])
def test_an_option_that_hosts_do_not_have_is_no_argument(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        cluster([Hosts("app:make", options={name: None})])


@pytest.mark.parametrize("name", ["factory", "deps_for", "pricing", "undeclared", "unknown_after"])
def test_an_option_that_a_factory_brings_is_refused_with_that_remedy(name: str) -> None:
    with pytest.raises(TypeError, match=rf"return Definitions\(agents, {name}=...\)"):
        cluster(**{name: None})


def test_a_password_is_not_told() -> None:
    with pytest.raises(UsageError) as error:
        cluster(store="mysql://ann:secret@host/db")
    assert "secret" not in str(error.value)


def test_a_cluster_that_is_not_started_refuses_calls() -> None:
    with pytest.raises(UsageError, match="not started"):
        cluster().get("ann")


def test_processes_are_not_placed_by_resources() -> None:
    pool = Hosts("tests.support.cluster_app:desks", num_gpus=1)
    with pytest.raises(UsageError, match="engine='ray'"), cluster([pool]):
        pass
