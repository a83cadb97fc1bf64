"""The tools of a workspace: what a model gets, and the errors of wrong calls (J80, J82)."""

from __future__ import annotations

from typing import Any

import pytest
from tenacity import AsyncRetrying, stop_after_attempt

from tests.support.agents import by_turn, interrupted, reloaded, results
from understudy import Agent, AgentState, ToolContext, UsageError, approve, call, tool
from understudy.middleware import HumanInTheLoop, Workspace

Calls = list[Any]


async def ran(*calls: Any, **options: Any) -> AgentState:
    """The state after these calls, one in each turn, through JSON."""
    agent = Agent("writer", by_turn(*calls), middleware=[Workspace(**options)])
    outcome = await agent.execute("go")
    return reloaded(outcome.state)


def told(state: AgentState) -> list[str]:
    return [str(part.content) for part in results(state)]


async def test_a_search_that_takes_too_long_ends_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """J82."""
    monkeypatch.setattr("understudy.middleware.workspace.search.SEARCH_SECONDS", -1.0)
    state = await ran(
        call("write_file", {"path": "a.md", "text": "x\ny\n"}),
        call("write_file", {"path": "b.md", "text": "x\ny\n"}),
        call("search_files", {"text": "z"}),
        call("list_files", {"pattern": "*.md"}),
    )
    *_, searched, listed = told(state)
    assert "`text` 'z' was searched for -1 seconds and not to the end: make it" in searched
    assert "`pattern` '*.md' was searched for -1 seconds and not to the end" in listed


async def test_files_are_written_read_edited_and_listed() -> None:
    state = await ran(
        call("write_file", {"path": "notes/plan.md", "text": "one\ntwo\nthree\n"}),
        call("edit_file", {"path": "notes/plan.md", "old": "two", "new": "2"}),
        call("read_file", {"path": "notes/plan.md", "first_line": 2, "lines": 1}),
        call("read_file", {"path": "notes/plan.md", "first_line": -1}),
        call("list_files"),
    )
    assert told(state) == [
        "Wrote 'notes/plan.md': 3 lines, 14 bytes.",
        "Edited 'notes/plan.md'.",
        "2\t2\n... lines 3 to 3 follow",
        "3\tthree",
        "notes/plan.md (12 bytes)",
    ]


async def test_writes_of_one_reply_see_each_other_in_their_order() -> None:
    state = await ran(
        [
            call("write_file", {"path": "a", "text": "x"}),
            call("edit_file", {"path": "a", "old": "x", "new": "y"}),
            call("move_file", {"path": "a", "to": "b/c"}),
            call("read_file", {"path": "b/c"}),
        ]
    )
    assert told(state)[-1] == "1\ty"
    assert list(state.files or {}) == ["b/c"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("/etc/passwd", "is absolute"),
        ("../x", "has a part '..'"),
        ("a/../../x", "has a part '..'"),
        ("./x", "has a part '.'"),
        ("a//b", "an empty part"),
        ("a\\b", "backslash"),
        ("a\0b", "characters that a path cannot have"),
        ("a\nb", "characters that a path cannot have"),
        ("a/con.txt", "reserved"),
        ("NUL", "reserved"),
        ("a./b", "a dot"),
        (" a", "a space"),
        ("a:b", "has a ':'"),
        ("x" * 300, "too long"),
        ("/".join(["x" * 100] * 11), "too long"),
    ],
)
async def test_a_path_that_leaves_or_is_none_is_refused_with_a_reason(path: str, why: str) -> None:
    """J82."""
    state = await ran(
        call("write_file", {"path": path, "text": "x"}),
        call("read_file", {"path": path}),
        call("delete_file", {"path": path}),
        call("write_file", {"path": "ok", "text": "x"}),
        call("move_file", {"path": "ok", "to": path}),
    )
    failed = [part for part in results(state) if part.outcome == "failed"]
    assert len(failed) == 4
    assert all(why in str(part.content) for part in failed)
    assert list(state.files or {}) == ["ok"]


async def test_names_that_are_one_on_some_systems_are_one_here() -> None:
    """J82."""
    state = await ran(
        call("write_file", {"path": "Notes/caf\u00e9.md", "text": "x"}),
        call("read_file", {"path": "Notes/cafe\u0301.md"}),
        call("write_file", {"path": "Notes/CAF\u00c9.md", "text": "y"}),
        call("write_file", {"path": "notes/other.md", "text": "y"}),
        call("write_file", {"path": "Notes/caf\u00e9.md/inside", "text": "y"}),
        call("write_file", {"path": "Notes", "text": "y"}),
    )
    read, *refused = told(state)[1:]
    assert read == "1\tx"
    assert ["only in upper and lower case" in text for text in refused] == [1, 1, 0, 0]
    assert "is a file" in refused[2]
    assert "is a folder" in refused[3]
    assert list(state.files or {}) == ["Notes/caf\u00e9.md"]


async def test_an_edit_names_what_to_mend() -> None:
    state = await ran(
        call("write_file", {"path": "a", "text": "x\r\ny\r\nx\r\n"}),
        call("edit_file", {"path": "a", "old": "", "new": "z"}),
        call("edit_file", {"path": "a", "old": "x", "new": "x"}),
        call("edit_file", {"path": "a", "old": "nothing", "new": "z"}),
        call("edit_file", {"path": "a", "old": "x", "new": "z"}),
        call("edit_file", {"path": "a", "old": "x\ny", "new": "1\n2"}),
        call("edit_file", {"path": "b", "old": "x", "new": "z"}),
        call("edit_file", {"path": "a", "old": "\r\n", "new": "\n", "replace_all": True}),
    )
    texts = told(state)
    for text, why in zip(texts[1:], ["empty", "the same", "is not in", "2 times"], strict=False):
        assert why in text
    assert texts[5] == "Edited 'a'."
    assert "there is no file 'b'" in texts[6]
    assert texts[7] == "Edited 'a' at 3 places."


async def test_what_is_no_text_is_told_as_such() -> None:
    @tool
    async def draw(ctx: ToolContext) -> str:
        """Draw."""
        await Workspace.of(ctx).write("a.png", b"\x89PNG\0\xff")
        await Workspace.of(ctx).write("empty", b"")
        return "drawn"

    agent = Agent(
        "writer",
        by_turn(
            call("draw"),
            call("read_file", {"path": "a.png"}),
            call("edit_file", {"path": "a.png", "old": "P", "new": "Q"}),
            call("search_files", {"text": "PNG"}),
            call("read_file", {"path": "empty"}),
        ),
        tools=[draw],
        middleware=[Workspace()],
    )
    texts = told((await agent.execute("go")).state)
    assert "'a.png' is no text: it has 6 bytes" in texts[1]
    assert "is no text" in texts[2]
    assert texts[3] == "'PNG' is in none of 1 text files."
    assert texts[4] == "'empty' is empty."


async def test_files_and_lines_are_found_by_patterns() -> None:
    state = await ran(
        [
            call("write_file", {"path": "src/a.py", "text": "def f():\n    return 1\n"}),
            call("write_file", {"path": "src/deep/b.py", "text": "DEF = 2\n"}),
            call("write_file", {"path": "a.md", "text": "def\n"}),
        ],
        call("list_files", {"pattern": "*.py"}),
        call("list_files", {"pattern": "src/*.py"}),
        call("list_files", {"pattern": "src/**/*.py"}),
        call("list_files", {"folder": "src/deep"}),
        call("search_files", {"text": "def", "pattern": "*.py"}),
        call("search_files", {"text": "DEF", "ignore_case": True, "folder": "src"}),
        call("search_files", {"text": r"^\s+return \d", "regex": True}),
        call("search_files", {"text": "(?=x)", "regex": True}),
        call("search_files", {"text": "def f(", "folder": "nowhere"}),
        call("list_files", {"pattern": "*.txt"}),
    )
    texts = told(state)[3:]
    assert texts[0].count(".py") == 2
    assert texts[1] == "src/a.py (22 bytes)"
    assert texts[2].count(".py") == 2
    assert texts[3] == "src/deep/b.py (8 bytes)"
    assert texts[4] == "src/a.py:1: def f():"
    assert texts[5] == "src/a.py:1: def f():\nsrc/deep/b.py:1: DEF = 2"
    assert texts[6] == "src/a.py:2: return 1"
    assert "no pattern that can be used" in texts[7]
    assert "no file 'nowhere'" in texts[8]
    assert texts[9] == "No path fits '*.txt'."


async def test_what_is_found_and_read_is_bounded() -> None:
    lines = "\n".join(f"line {number}" for number in range(5000))
    state = await ran(
        call("write_file", {"path": "a", "text": lines + "\n" + "y" * 5000}),
        call("search_files", {"text": "line"}),
        call("read_file", {"path": "a"}),
        call("read_file", {"path": "a", "first_line": 5001}),
        call("read_file", {"path": "a", "first_line": 6000}),
        call("read_file", {"path": "a", "lines": 5000}),
        call("read_file", {"path": "a", "first_line": 0}),
        call("search_files", {"text": "(x+x+)+z", "regex": True}),
    )
    texts = told(state)
    assert texts[1].endswith("... and more: search for something longer, or in a folder")
    assert len(texts[1].splitlines()) == 101
    assert texts[2].endswith("... lines 2001 to 5001 follow")
    assert "(4,000 more characters)" in texts[3]
    assert "there is no line 6000" in texts[4]
    assert "`lines` must be 1 to 2000" in texts[5]
    assert "`first_line`" in texts[6]


async def test_limits_are_errors_that_the_model_sees() -> None:
    state = await ran(
        call("write_file", {"path": "a", "text": "12345"}),
        call("write_file", {"path": "b", "text": "123456"}),
        call("write_file", {"path": "c", "text": "1234"}),
        call("write_file", {"path": "d", "text": "1"}),
        call("edit_file", {"path": "a", "old": "1", "new": "111"}),
        max_file=5,
        max_total=9,
        max_files=2,
    )
    texts = told(state)
    assert "'b' would have 6 bytes: at most 5" in texts[1]
    assert "there would be 3 files: at most 2" in texts[3]
    assert "'a' would have 7 bytes" in texts[4]
    assert set(state.files or {}) == {"a", "c"}


async def test_an_edit_that_would_not_fit_into_memory_is_refused_before_it_is_made() -> None:
    large = "b" * 1_000_000
    state = await ran(
        call("write_file", {"path": "a", "text": "a" * 2_000_000}),
        call("edit_file", {"path": "a", "old": "a", "new": large, "replace_all": True}),
    )
    assert "'a' would have 2,000,000,000,000 bytes" in told(state)[1]


async def test_a_folder_is_not_moved_to_where_its_files_have_no_path() -> None:
    deep = "a/" + "/".join(["d" * 200] * 4)
    state = await ran(
        call("write_file", {"path": deep, "text": "1"}),
        call("move_file", {"path": "a", "to": "b" * 250}),
        call("read_file", {"path": deep}),
    )
    assert "is too long" in told(state)[1]
    assert told(state)[2] == "1\t1"


async def test_a_folder_is_moved_and_deleted_whole() -> None:
    state = await ran(
        [
            call("write_file", {"path": "a/1", "text": "1"}),
            call("write_file", {"path": "a/b/2", "text": "2"}),
            call("write_file", {"path": "c", "text": "3"}),
        ],
        call("move_file", {"path": "a", "to": "a/b/d"}),
        call("move_file", {"path": "a", "to": "c"}),
        call("move_file", {"path": "a", "to": "d/e"}),
        call("move_file", {"path": "c", "to": "d/e/1"}),
        call("move_file", {"path": "c", "to": "c"}),
        call("delete_file", {"path": "d/e/b"}),
        call("delete_file", {"path": "d/e/b"}),
    )
    texts = told(state)[3:]
    assert "into itself" in texts[0]
    assert "is a file" in texts[1]
    assert texts[2] == "Moved 'a' to 'd/e', 2 files."
    assert "there is 'd/e/1' already" in texts[3]
    assert "the same" in texts[4]
    assert texts[5] == "Deleted 'd/e/b'."
    assert "there is no file 'd/e/b'" in texts[6]
    assert set(state.files or {}) == {"c", "d/e/1"}


async def test_a_person_is_asked_before_an_operation_that_a_rule_names() -> None:
    agent = Agent(
        "writer",
        by_turn(call("write_file", {"path": "a", "text": "x"}), call("delete_file", {"path": "a"})),
        middleware=[Workspace(), HumanInTheLoop({"delete_file": True})],
    )
    outcome = interrupted(await agent.execute("go"))
    assert outcome.requests[0].tool_name == "delete_file"
    state = reloaded(outcome.state)
    assert set(state.files or {}) == {"a"}
    outcome_after = await agent.resume(state, {outcome.requests[0].id: approve()})
    assert not outcome_after.state.files


async def test_a_tool_that_fails_changes_no_file() -> None:
    @tool
    async def half(ctx: ToolContext) -> str:
        """Half."""
        files = Workspace.of(ctx)
        await files.write("a", "half")
        assert await files.read("a") == "half"
        raise ValueError("no")

    agent = Agent("writer", by_turn(call("half")), tools=[half], middleware=[Workspace()])
    state = (await agent.execute("go")).state
    assert not state.files


async def test_a_call_that_runs_again_begins_with_the_files_as_they_are() -> None:
    seen: list[bool] = []

    @tool(idempotent=True, retry=AsyncRetrying(stop=stop_after_attempt(2)))
    async def twice(ctx: ToolContext) -> str:
        """Twice."""
        files = Workspace.of(ctx)
        seen.append(await files.exists("a"))
        await files.write("a", "x")
        if len(seen) == 1:
            raise ValueError("again")
        return "done"

    agent = Agent("writer", by_turn(call("twice")), tools=[twice], middleware=[Workspace()])
    state = (await agent.execute("go")).state
    assert seen == [False, False]
    assert set(state.files or {}) == {"a"}


async def test_what_a_failed_attempt_has_changed_is_gone() -> None:
    attempts: list[int] = []

    @tool(idempotent=True, retry=AsyncRetrying(stop=stop_after_attempt(2)))
    async def once_only(ctx: ToolContext) -> str:
        """Write in the first attempt alone."""
        attempts.append(1)
        if len(attempts) == 1:
            await Workspace.of(ctx).write("a", "x")
            raise ValueError("again")
        return "done"

    agent = Agent("writer", by_turn(call("once_only")), tools=[once_only], middleware=[Workspace()])
    assert not (await agent.execute("go")).state.files
    assert len(attempts) == 2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_file": 0}, "`max_file`"),
        ({"max_total": True}, "`max_total`"),
        ({"max_files": "1"}, "`max_files`"),
        ({"max_file": 50_000_000}, "at most 10,485,760"),
        ({"sub_agents": "own"}, "'share' or 'copy'"),
        ({"mounts": "docs"}, "`mounts`"),
        ({"mounts": {"docs": "/no/such/folder"}}, "must be a folder"),
        ({"mounts": {"../docs": "/"}}, "'..'"),
        ({"backend": object()}, "SupportsFilesystem"),
    ],
)
def test_options_that_are_wrong_are_named(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Workspace(**options)


def test_an_agent_has_one_workspace() -> None:
    with pytest.raises(UsageError, match="two tools named 'list_files'"):
        Agent("writer", by_turn(), middleware=[Workspace(), Workspace()])
