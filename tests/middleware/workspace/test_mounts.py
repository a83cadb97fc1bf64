"""Real folders in a workspace: they are read, and nothing leaves them (J82)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.agents import by_turn, results
from understudy import Agent, call
from understudy.middleware import Workspace


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.md").write_text("first\nneedle\n")
    (folder / "deep" / "b.md").write_text("second")
    (folder / "inside.md").symlink_to("deep/b.md")
    (tmp_path / "secret").write_text("needle: secret")
    (folder / "out.md").symlink_to("../secret")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "pipe")
    return folder


async def told(docs: Path, *calls: tuple[str, dict[str, str]]) -> list[str]:
    agent = Agent(
        "reader",
        by_turn(*(call(name, arguments) for name, arguments in calls)),
        middleware=[Workspace(mounts={"docs": docs}, max_file=100)],
    )
    state = (await agent.execute("go")).state
    assert not state.files
    return [str(part.content) for part in results(state)]


async def test_a_folder_that_is_mounted_is_listed_read_and_searched(docs: Path) -> None:
    listed, read, linked, found, missing, folder = await told(
        docs,
        ("list_files", {}),
        ("read_file", {"path": "docs/deep/b.md"}),
        ("read_file", {"path": "docs/inside.md"}),
        ("search_files", {"text": "needle"}),
        ("read_file", {"path": "docs/nothing"}),
        ("read_file", {"path": "docs/deep"}),
    )
    assert [line.split(" ")[0] for line in listed.splitlines()] == [
        "docs/a.md",
        "docs/deep/b.md",
        "docs/inside.md",
    ]
    assert read == linked == "1\tsecond"
    assert found == "docs/a.md:2: needle"
    assert "there is no file 'docs/nothing'" in missing
    assert "is no file" in folder


async def test_a_link_that_leaves_a_mount_is_refused(docs: Path) -> None:
    """J82."""
    texts = await told(
        docs,
        ("read_file", {"path": "docs/out.md"}),
        ("read_file", {"path": "docs/up/secret"}),
        ("read_file", {"path": "docs/../secret"}),
    )
    assert "leaves the folder that is mounted" in texts[0]
    assert "leaves the folder that is mounted" in texts[1]
    assert "'..'" in texts[2]
    assert not any("needle" in text for text in texts)


async def test_a_mount_is_read_only(docs: Path) -> None:
    texts = await told(
        docs,
        ("write_file", {"path": "docs/new.md", "text": "x"}),
        ("write_file", {"path": "docs", "text": "x"}),
        ("edit_file", {"path": "docs/a.md", "old": "first", "new": "x"}),
        ("delete_file", {"path": "docs"}),
        ("move_file", {"path": "docs/a.md", "to": "a.md"}),
    )
    assert all("'docs' is read-only" in text for text in texts)
    assert (docs / "a.md").read_text() == "first\nneedle\n"


async def test_what_is_no_file_or_too_large_is_refused(docs: Path) -> None:
    (docs / "large").write_bytes(bytes(101))
    pipe, large = await told(
        docs, ("read_file", {"path": "docs/pipe"}), ("read_file", {"path": "docs/large"})
    )
    assert "is no file" in pipe
    assert "more than 100 bytes" in large
