"""What a command imports before it does anything: that is nearly all that a short one costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import TOKEN, Desk
from tests.support.programs import ran
from understudy.cli.app import COMMANDS

pytestmark = pytest.mark.slow
PROGRAM = """
import runpy, sys
try:
    runpy.run_module("understudy", run_name="__main__")
except SystemExit as end:
    code = end.code
print("\\nLOADED", code, *sys.modules, file=sys.stderr)
"""
HEAVY = {
    *("pydantic", "pydantic_ai", "httpx", "httpx2", "asyncio", "jsonschema", "pykka", "tenacity"),
    *("sqlite3", "psycopg", "starlette", "uvicorn", "rich"),
}
OURS = {"understudy._base", "understudy.cli", "understudy.errors", "understudy.__main__"}
"""What of the library a command of these loads, by its rooms."""
MOST = 420
"""Modules of a command: 330 now, most of them of the standard library. `import pydantic_ai` has
more than 1,500."""


def loaded(*arguments: str, code: int = 0) -> set[str]:
    """The modules that are there when the command ends."""
    done = ran("-c", PROGRAM, *arguments, is_fresh=True)
    told, _, found = done.stderr.rpartition("LOADED ")
    ended, *modules = found.split()
    assert ended in (str(code), "None"), told
    return set(modules)


PROGRAMS = {"serve", "mcp", "demo", "doctor", "replay", "rules"}
"""Commands that import what a server needs of the standard library."""


def assert_light(modules: set[str], *, may: set[str] | None = None) -> None:
    assert {name.partition(".")[0] for name in modules} & HEAVY <= (may or set())
    ours = {".".join(name.split(".")[:2]) for name in modules if name.startswith("understudy.")}
    assert ours <= OURS
    assert len(modules) <= MOST


HELPS = [
    ("--version",),
    ("--help",),
    *((name, "--help") for listed in COMMANDS.values() for name in listed),
    ("rules", "trial", "--help"),
    ("trust", "status", "--help"),
]


@pytest.mark.parametrize("arguments", HELPS, ids=" ".join)
def test_a_help_imports_no_more_than_it_needs(arguments: tuple[str, ...]) -> None:
    may = {"asyncio", "sqlite3"} if arguments[0] in PROGRAMS else None
    assert_light(loaded(*arguments), may=may)


@pytest.mark.parametrize(
    "command",
    [
        *("ls", "pending", "doubts", "reviews", "show t-1", "tree", "history t-1", "schedules t-1"),
        *("events t-1", "export t-1", "pending --limit 1 --json", "delegations", "freezes"),
        *("approve {id} --yes", "reject {id} --yes", "edit {id} --args {{}} --yes"),
        *("send t-1 hello", "pause t-1", "cancel t-1", "budgets", "recover"),
    ],
)
def test_a_command_that_asks_a_server_imports_no_more_than_it_needs(
    desk: Desk, command: str
) -> None:
    outcome = desk.runtime.spawn("desk", "t-1").run("Pay 17.").get(timeout=60)
    id = outcome.requests[0].id  # type: ignore[union-attr]
    arguments = command.format(id=id).split()
    code = 4 if "--args" in command else 0
    at = ("--url", desk.url, "--token", TOKEN)
    assert_light(loaded(*arguments, *at, code=code))


@pytest.mark.parametrize("command", ["list", "check", "accept pdf --by ann"])
def test_a_command_about_skills_imports_no_agents(tmp_path: Path, command: str) -> None:
    skill = tmp_path / "skills" / "pdf"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: pdf\ndescription: About PDF.\n---\nDo it.")
    name, *rest = command.split()
    arguments = (name, *rest, "--folder") if name == "accept" else (name,)
    code = 1 if name == "check" else 0
    modules = loaded("skills", *arguments, str(skill.parent), code=code)
    assert_light(modules, may={"pydantic"})
