"""`understudy retire`, `vacuum`, and `import` of an archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.agents import desk
from understudy import Runtime
from understudy.cli import main


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with two agents at rest, which nobody has open."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    with Runtime([desk("hello")], store=url) as runtime:
        for id in ("t-1", "t-2"):
            runtime.spawn("desk", id=id).run("go").get(timeout=60)
    return url


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code, and what was printed."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out + told.err


def test_agents_at_rest_are_counted_and_put_into_an_archive(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "archive.jsonl.gz")
    age = ("retire", "--store", store, "--older-than", "0m")
    assert run(capsys, *age, "--dry-run") == (0, "2 agents would be retired\n")
    assert run(capsys, "retire", "--store", store, "--older-than", "1d", "--dry-run")[1][0] == "0"
    code, told = run(capsys, *age, "--to", path, "--by", "ann", "--yes", "--json")
    assert (code, '"agents": 2' in told) == (0, True)
    assert run(capsys, *age, "--to", path, "--yes")[0] == 2  # it is there
    code, told = run(capsys, "vacuum", "--store", store)
    assert (code, "bytes before" in told) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--older-than=-3d --dry-run", "write a number and a unit, such as 30d"),
        ("--older-than 3d", "say where the agents are put, by --to FILE; or give --dry-run"),
        ("--older-than 3d --to x.jsonl --dry-run", "leave --to out"),
        ("--older-than 3d --to x.json --yes", "must end with .jsonl"),
        ("--older-than 3d --to no/x.jsonl --yes", "there is no folder 'no': make it first"),
        ("--older-than 3d --dry-run --status no", "must be one of 'idle', 'failed', 'cancelled'"),
        ("--older-than 3d --to x.jsonl", "nobody is here to confirm that they are deleted"),
    ],
)
def test_wrong_usage_of_retire_is_refused(
    store: str, capsys: pytest.CaptureFixture[str], arguments: str, error: str
) -> None:
    code, told = run(capsys, "retire", "--store", store, *arguments.split())
    assert code == 2
    assert error in told


@pytest.mark.parametrize("command", ["retire --older-than 3d --dry-run", "vacuum"])
def test_what_is_about_a_store_needs_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.delenv("UNDERSTUDY_STORE", raising=False)
    code, told = run(capsys, *command.split())
    assert code == 2
    assert "is about a store: give --store URL" in told
