"""`understudy skills`: who has accepted which skill, and what has changed since (J83)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
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


def test_check_shows_the_lines_that_have_changed(folder: Path) -> None:
    """J83."""
    (folder / "pdf" / "a.md").write_text("one\ntwo\nthree\n")
    run("skills", "accept", "pdf", "--by", "ann")
    (folder / "pdf" / "a.md").write_text("one\n2\nthree")
    (folder / "pdf" / "b.md").write_text("new\n")
    expected = {
        "a.md": (
            "--- accepted/a.md\n+++ now/a.md\n@@ -1,3 +1,3 @@\n one\n-two\n-three\n+2\n+three\n"
            "\\ No newline at end of file"
        ),
        "b.md": "--- accepted/b.md\n+++ now/b.md\n@@ -0,0 +1 @@\n+new",
    }

    said = run("skills", "check", code=1).stdout
    pdf, word = json.loads(run("skills", "check", "--json", code=1).stdout)["skills"]

    assert pdf["diff"] == expected
    assert word["diff"] == {}
    lines = [line[10:] for line in said.splitlines() if line.startswith(" " * 10)]
    assert "\n".join([*expected["a.md"].split("\n"), *expected["b.md"].split("\n")]) in "\n".join(
        lines
    )


def test_characters_that_nobody_sees_are_shown_in_changed_lines(folder: Path) -> None:
    run("skills", "accept", "pdf", "--by", "ann")
    (folder / "pdf" / "a.md").write_text("1\u200b\x1b[2J\u202e\U000e0041")
    said = run("skills", "check", code=1).stdout
    assert "+1\\u200b\\x1b[2J\\u202e\\U000e0041" in said


def replaced(folder: Path) -> None:
    (folder.parent / "skills.accepted" / "pdf" / "a.md").write_text("2")


def linked(folder: Path) -> None:
    copy = folder.parent / "skills.accepted" / "pdf" / "a.md"
    copy.unlink()
    copy.symlink_to(folder / "pdf" / "a.md")


def deleted(folder: Path) -> None:
    (folder.parent / "skills.accepted" / "pdf" / "a.md").unlink()


def binary(folder: Path) -> None:
    (folder / "pdf" / "a.md").write_bytes(b"2\0")


def long(folder: Path) -> None:
    (folder / "pdf" / "a.md").write_text("2\n" * 20_001)


@pytest.mark.parametrize("change", [replaced, linked, deleted, binary, long])
def test_what_cannot_be_compared_is_named_and_shown_as_no_change(
    folder: Path, change: Callable[[Path], None]
) -> None:
    """J83."""
    run("skills", "accept", "pdf", "--by", "ann")
    (folder / "pdf" / "a.md").write_text("2")
    change(folder)
    said = run("skills", "check", code=1).stdout
    assert "not shown: a.md" in said
    assert "@@" not in said
    pdf = json.loads(run("skills", "check", "--json", code=1).stdout)["skills"][0]
    assert pdf["diff"] == {"a.md": None}


def test_the_accepted_texts_are_those_of_the_last_acceptance(folder: Path) -> None:
    run("skills", "accept", "--all", "--by", "ann")
    copies = folder.parent / "skills.accepted"
    (folder / "pdf" / "a.md").unlink()
    (folder / "pdf" / "data").write_bytes(b"\0")
    (folder / "word").rename(folder.parent / "word")
    run("skills", "accept", "--all", "--by", "bob")
    kept = [path.relative_to(copies).as_posix() for path in copies.rglob("*") if path.is_file()]
    assert kept == ["pdf/SKILL.md"]


def test_texts_that_are_not_there_any_more_come_back_with_the_next_acceptance(
    folder: Path,
) -> None:
    run("skills", "accept", "pdf", "--by", "ann")
    shutil.rmtree(folder.parent / "skills.accepted")
    run("skills", "accept", "pdf", "--by", "bob")
    assert listed()["pdf"]["accepted_by"] == "ann"
    assert (folder.parent / "skills.accepted" / "pdf" / "a.md").read_text() == "1"


def test_accepted_texts_are_not_written_through_a_link(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "pdf").mkdir(parents=True)
    (other / "pdf" / "mine").write_text("1")
    (folder.parent / "skills.accepted").symlink_to(other)
    said = run("skills", "accept", "pdf", "--by", "ann", code=2).stderr
    assert "is a link: delete it" in said
    assert [path.name for path in (other / "pdf").iterdir()] == ["mine"]
    assert not (folder.parent / "skills.lock").exists()


def test_accept_says_when_programs_load_it(folder: Path) -> None:
    said = run("skills", "accept", "pdf", "--by", "ann").stdout
    assert "programs that run now load what is accepted when they start next" in said
