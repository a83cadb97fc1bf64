"""`understudy retire`, `vacuum`, and `import` of an archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.agents import desk
from tests.support.command_line import TOKEN, Desk, run
from understudy import Runtime


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with two agents at rest, which nobody has open."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    with Runtime([desk("hello")], store=url) as runtime:
        for id in ("t-1", "t-2"):
            runtime.spawn("desk", id=id).run("go").get(timeout=60)
    return url


def test_agents_at_rest_are_counted_and_put_into_an_archive(store: str, tmp_path: Path) -> None:
    path = str(tmp_path / "archive.jsonl.gz")
    age = ("retire", "--store", store, "--older-than", "0m")
    assert run(*age, "--dry-run").output == "2 agents would be retired\n"
    young = run("retire", "--store", store, "--older-than", "1d", "--dry-run")
    assert young.output == "0 agents would be retired\n"
    assert '"agents": 2' in run(*age, "--to", path, "--by", "ann", "--yes", "--json").output
    assert "is there already" in run(*age, "--to", path, "--yes", code=2).output
    assert "bytes before" in run("vacuum", "--store", store).output


def test_agents_at_rest_are_deleted_without_an_archive(store: str, tmp_path: Path) -> None:
    age = ("retire", "--store", store, "--older-than", "0m", "--without-archive", "--yes")
    before = {path.suffix for path in tmp_path.iterdir()}
    assert run(*age).output == "2 agents are deleted\n"
    assert run(*age).output == "there is nothing to retire\n"
    assert {path.suffix for path in tmp_path.iterdir()} == before


def test_an_archive_is_imported_as_a_whole_or_one_agent_of_it(desk: Desk, tmp_path: Path) -> None:
    path = str(tmp_path / "archive.jsonl.gz")
    for id in ("t-1", "t-2"):
        desk.runtime.spawn("echo", id=id).run("go").get(timeout=60)
    desk.runtime.retire(older_than=0, to=path).get(timeout=60)
    assert desk.json("import", path, "--only", "t-2") == {"imported": ["t-2"]}
    assert desk.json("import", path, "--only", "t-2", "--id", "t-3") == {"imported": ["t-3"]}
    at = ("--url", desk.url, "--token", TOKEN)
    assert "has no agent 'no'" in run("import", path, "--only", "no", *at, code=3).output
    assert "--id is for one agent" in run("import", path, "--id", "x", *at, code=2).output
    desk.runtime.delete("t-2").get(timeout=60)
    assert desk.json("import", path) == {"imported": ["t-1", "t-2"]}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--older-than=-3d --dry-run", "write a number and a unit, such as 30d"),
        ("--older-than 3d", "say where the agents are put, by --to FILE; or give --without-"),
        ("--older-than 3d --to x.jsonl --without-archive", "--to FILE or --without-archive, not"),
        ("--older-than 3d --dry-run --without-archive", "leave --without-archive out"),
        ("--older-than 3d --without-archive", "nobody is here to confirm that they are deleted"),
        ("--older-than 3d --to x.jsonl --dry-run", "leave --to out"),
        ("--older-than 3d --to x.json --yes", "must end with .jsonl"),
        ("--older-than 3d --to no/x.jsonl --yes", "there is no folder 'no': make it first"),
        ("--older-than 3d --dry-run --status no", "must be one of 'idle', 'failed', 'cancelled'"),
        ("--older-than 3d --to x.jsonl", "nobody is here to confirm that they are deleted"),
    ],
)
def test_wrong_usage_of_retire_is_refused(store: str, arguments: str, error: str) -> None:
    assert error in run("retire", "--store", store, *arguments.split(), code=2).output


@pytest.mark.parametrize("command", ["retire --older-than 3d --dry-run", "vacuum"])
def test_what_is_about_a_store_needs_one(command: str) -> None:
    told = run(*command.split(), code=2).output
    assert "is about a store: give --store URL" in told
