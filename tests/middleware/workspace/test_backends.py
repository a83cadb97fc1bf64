"""The files of a conversation as a backend of Pydantic AI, and other backends in their place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.workspaces import LocalWorkspaceBackend
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from tests.support.agents import by_turn, results
from understudy import Agent, Runtime, ToolContext, call, tool
from understudy.middleware import Workspace


class TestConformance(WorkspaceBackendSuite):
    """The suite of Pydantic AI, on the files of an agent."""

    @pytest.fixture
    async def backend(self) -> AsyncIterator[Any]:
        async with Runtime([Agent("writer", by_turn(), middleware=[Workspace()])]) as runtime:
            yield Workspace.of(runtime.spawn("writer", id="a")).backend()

    @pytest.fixture
    def attach_backend(self, backend: Any) -> Any:
        return lambda ref: backend

    @pytest.fixture
    def has_real_posix_shell(self) -> bool:
        return False

    @pytest.fixture
    def filesystem_honors_shell_permissions(self) -> bool:
        return False

    @pytest.fixture
    def enforces_parent_file_errors(self) -> bool:
        return True


async def test_a_tool_hands_the_files_of_its_call_to_code_for_pydantic_ai() -> None:
    from pydantic_ai.workspaces import Workspace as PydanticWorkspace

    @tool
    async def build(ctx: ToolContext) -> str:
        """Build."""
        files = PydanticWorkspace(Workspace.of(ctx).backend())
        await files.write_text("out/a.txt", "built")
        await files.make_dir("empty")
        return ", ".join(entry.name for entry in await files.list_dir("."))

    agent = Agent(
        "writer",
        by_turn(call("build"), call("list_files"), call("move_file", {"path": "empty", "to": "e"})),
        tools=[build],
        middleware=[Workspace()],
    )
    state = (await agent.execute("go")).state
    texts = [str(part.content) for part in results(state)]
    assert texts[:2] == ["empty, out", "empty/\nout/a.txt (5 bytes)"]
    assert set(state.files or {}) == {"out/a.txt", "e/"}


async def test_the_tools_work_on_another_backend(tmp_path: Path) -> None:
    agent = Agent(
        "writer",
        by_turn(
            call("write_file", {"path": "a/b.txt", "text": "one"}),
            call("edit_file", {"path": "a/b.txt", "old": "one", "new": "two"}),
            call("move_file", {"path": "a", "to": "c"}),
            call("read_file", {"path": "c/b.txt"}),
            call("read_file", {"path": "a/b.txt"}),
            call("read_file", {"path": "../secret"}),
            call("search_files", {"text": "two"}),
            call("write_file", {"path": "c/b.txt/d", "text": "x"}),
            call("move_file", {"path": "c", "to": "c/d"}),
            call("delete_file", {"path": "c"}),
            call("delete_file", {"path": "c"}),
            call("list_files"),
        ),
        middleware=[Workspace(backend=LocalWorkspaceBackend(tmp_path))],
    )
    state = (await agent.execute("go")).state
    texts = [str(part.content) for part in results(state)]
    assert texts[2] == "Moved 'a' to 'c', 1 files." or texts[2] == "Moved 'a' to 'c'."
    assert texts[3] == "1\ttwo"
    assert "there is no file 'a/b.txt'" in texts[4]
    assert "'..'" in texts[5]
    assert texts[6] == "c/b.txt:1: two"
    assert "c/b.txt/d" in texts[7]
    assert "into itself" in texts[8]
    assert texts[9] == "Deleted 'c'."
    assert "c" in texts[10]
    assert texts[11] == "There are no files."
    assert state.files is None
