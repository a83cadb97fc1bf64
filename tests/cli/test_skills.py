"""`understudy skills`: who has accepted which skill, and what has changed since (J83)."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import run
from understudy.middleware import Skills


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("pdf", "word"):
        skill = tmp_path / "skills" / name
        skill.mkdir(parents=True)
        header = f"---\nname: {name}\ndescription: About {name}.\nallowed-tools: pay\n---\n"
        (skill / "SKILL.md").write_text(f"{header}Do it.")
        (skill / "a.md").write_text("1")
    return tmp_path / "skills"


def listed(*options: str) -> dict[str, dict[str, Any]]:
    rows = json.loads(run("skills", "list", *options, "--json").stdout)["skills"]
    return {row["name"]: row for row in rows}


def test_accept_records_what_who_and_when(folder: Path) -> None:
    begun = datetime.now(timezone.utc)
    said = run("skills", "accept", "pdf", "--by", "ann").stdout
    assert "ann has accepted pdf" in said
    assert "asks for tools, and gets no right: pay" in said

    rows = listed()

    assert rows["word"]["status"] == "new"
    assert (rows["pdf"]["status"], rows["pdf"]["accepted_by"]) == ("accepted", "ann")
    accepted_at = datetime.fromisoformat(rows["pdf"]["accepted_at"])
    assert begun <= accepted_at <= datetime.now(timezone.utc)
    assert rows["pdf"]["digest"] == rows["pdf"]["accepted_digest"] == Skills(folder).digests["pdf"]
    assert "pdf\taccepted\tann\t" in run("skills", "list").stdout


def test_check_says_file_by_file_what_has_changed_and_fails(folder: Path) -> None:
    run("skills", "accept", "--all", "--by", "ann")
    assert "accepted  pdf (accepted by ann)" in run("skills", "check").stdout
    (folder / "pdf" / "a.md").write_text("22")
    (folder / "pdf" / "b.md").write_text("333")
    (folder / "word" / "a.md").unlink()

    said = run("skills", "check", code=1).stdout

    assert "changed   pdf (accepted by ann)" in said
    assert "+ b.md (3 bytes)" in said
    assert "~ a.md (2 bytes)" in said
    assert "- a.md" in said
    found = json.loads(run("skills", "check", "--json", code=1).stdout)
    assert found["ok"] is False
    pdf, word = found["skills"]
    assert (pdf["added"], pdf["changed"], pdf["removed"]) == (["b.md"], ["a.md"], [])
    assert (word["added"], word["changed"], word["removed"]) == ([], [], ["a.md"])


def test_another_acceptance_keeps_the_name_of_the_first_where_nothing_has_changed(
    folder: Path,
) -> None:
    run("skills", "accept", "--all", "--by", "ann")
    (folder / "pdf" / "a.md").write_text("2")
    run("skills", "accept", "--all", "--by", "bob")
    rows = listed()
    assert (rows["pdf"]["accepted_by"], rows["word"]["accepted_by"]) == ("bob", "ann")
    assert "nothing has changed" in run("skills", "accept", "pdf", "--by", "eve").stdout


def test_what_is_gone_is_forgotten_when_it_is_accepted(folder: Path) -> None:
    run("skills", "accept", "--all", "--by", "ann")
    (folder / "pdf").rename(folder.parent / "pdf")
    assert "gone      pdf" in run("skills", "check", code=1).stdout
    assert "has pdf no longer" in run("skills", "accept", "--all", "--by", "bob").stdout
    assert [*listed()] == ["word"]


def test_a_digest_accepts_only_what_was_looked_at(folder: Path) -> None:
    digest = listed()["pdf"]["digest"]
    (folder / "pdf" / "a.md").write_text("2")
    asked = ("skills", "accept", "pdf", "--by", "ann", "--digest")
    assert "look at it again" in run(*asked, digest, code=4).stderr
    assert not (folder.parent / "skills.lock").exists()
    run(*asked, listed()["pdf"]["digest"])
    assert listed()["pdf"]["status"] == "accepted"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("accept", "--by", "ann"), 2, "or all of them by --all"),
        (("accept", "pdf", "--all", "--by", "ann"), 2, "or all of them by --all"),
        (("accept", "pdf"), 2, "--by"),
        (("accept", "pdf", "--by", "understudy"), 2, "the library uses this name itself"),
        (("accept", "pfd", "--by", "ann"), 3, "no skill 'pfd': it has pdf, word"),
        (("accept", "--all", "--by", "ann", "--digest", "x"), 2, "is for one skill"),
        (("list", "nowhere"), 2, "Skills takes a folder"),
    ],
)
def test_a_mistake_is_told_and_changes_nothing(
    folder: Path, arguments: tuple[str, ...], code: int, told: str
) -> None:
    assert told in run("skills", *arguments, code=code).stderr
    assert not (folder.parent / "skills.lock").exists()


def test_the_lock_file_may_be_elsewhere(folder: Path, tmp_path: Path) -> None:
    lock = tmp_path / "locks.json"
    run("skills", "accept", "pdf", "--by", "ann", "--lock", str(lock))
    assert listed()["pdf"]["status"] == "new"
    assert listed("--lock", str(lock))["pdf"]["status"] == "accepted"
    assert [*Skills(folder, lock=lock).digests] == ["pdf"]
