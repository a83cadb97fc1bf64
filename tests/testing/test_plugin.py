"""The plugin of pytest costs nothing where no test uses it, and its options reach the tests."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

STORY = """
from understudy import Agent, ScriptedModel, ToolContext, call, tool
from understudy.testing import crash_points


@crash_points({stores})
{kind}def test_it_is_paid_once(story, tmp_path):
    bank = story.remote(dedupe={dedupe})

    @tool(idempotent=True)
    async def pay(ctx: ToolContext) -> str:
        return bank.send("17", key=ctx.call_key)

    story.spawn(Agent("clerk", ScriptedModel([call("pay"), "done"]), tools=[pay]))
    story.say("pay")
    story.finish()
    story.effects.once("17")
"""
PLAIN = """
import sys


def test_nothing_of_the_package_is_loaded():
    assert "understudy" not in sys.modules
    assert ("pytest_understudy" in sys.modules) is {is_on}
"""


def ran(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run one test module in a process of its own."""
    (folder / "test_it.py").write_text(text)
    # Of ours alone: other plugins, in the lowest versions that are allowed, warn of each other.
    ours = "filterwarnings =\n    error:::understudy\n    error:::pytest_understudy\n"
    (folder / "pytest.ini").write_text(f"[pytest]\n{ours}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("is_on", [True, False])
def test_a_run_that_uses_nothing_of_the_kit_loads_nothing_of_the_package(
    tmp_path: Path, is_on: bool
) -> None:
    options = () if is_on else ("-p", "no:understudy")
    told = ran(tmp_path, PLAIN.format(is_on=is_on), *options)
    assert told.returncode == 0, told.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [("", ("-p", "no:understudy")), ("", ("-n", "1")), ("async ", ("-p", "no:anyio"))],
)
def test_a_story_is_played_under_whichever_plugins_there_are(
    tmp_path: Path, kind: str, options: tuple[str, ...]
) -> None:
    told = ran(tmp_path, STORY.format(kind=kind, dedupe=True, stores="store='memory'"), *options)
    assert told.returncode == 0, told.stdout
    assert "1 passed" in told.stdout or "[100%]" in told.stdout


@pytest.mark.slow
def test_a_failure_names_the_line_that_plays_its_point_alone(tmp_path: Path) -> None:
    module = STORY.format(kind="", dedupe=False, stores="")
    told = ran(tmp_path, module)
    # Where CI is set, pytest repeats the whole message in its summary.
    found = list(dict.fromkeys(re.findall("Once more: pytest (.*)", told.stdout)))
    assert len(found) == 2, "one for each store"
    told = ran(tmp_path, module, *shlex.split(found[0]))
    assert "has happened 2 times" in told.stdout
    assert "1 failed" in told.stdout, "the test of this store alone"
