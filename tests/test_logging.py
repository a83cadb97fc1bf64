"""What is logged, and that `docs/logging.md` names it."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator

import pytest

from tests.support.agents import completed
from tests.support.sources import ROOT, parsed, sources
from understudy import Agent, Failed, Retry, Runtime, ScriptedModel, call, tool

PAGE = (ROOT / "docs" / "logging.md").read_text(encoding="utf-8")


@tool
def search(words: str) -> str:
    """Search the archive."""
    if words == "nothing":
        raise Retry("Search for something.")
    return "a kettle"


def logged_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        f"{entry.levelname} {entry.name} {entry.getMessage()}"
        for entry in caplog.records
        if entry.name.startswith(("understudy", "pykka"))
    ]


async def test_what_goes_as_it_should_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel(
        [call("search", {"words": "nothing"}), call("search", {"words": "kettles"}), "A kettle."]
    )
    with caplog.at_level(logging.INFO):
        async with Runtime([Agent("finder", model, tools=[search])]) as runtime:
            completed(await runtime.spawn("finder", id="1").run("Kettles?"))

    assert logged_in(caplog) == []


async def test_a_run_that_failed_says_so_by_its_outcome_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        async with Runtime([Agent("finder", ScriptedModel([OSError("no network")]))]) as runtime:
            outcome = await runtime.spawn("finder", id="1").run("Kettles?")

    assert isinstance(outcome, Failed)
    assert logged_in(caplog) == []


def test_the_page_names_each_part_that_logs() -> None:
    named = set(re.findall(r"`(understudy\.\w+)`", PAGE.partition("## Loggers")[2]))
    parts = {
        f"understudy.{path.relative_to(ROOT / 'understudy').parts[0].removesuffix('.py')}"
        for path in sources("understudy")
        if "logging.getLogger(__name__)" in path.read_text(encoding="utf-8")
    }

    assert named - {"understudy.events", "understudy.security"} == parts


def log_calls() -> Iterator[tuple[str, ast.Call]]:
    """All calls of the library that log, with their texts."""
    for path in sources("understudy"):
        for node in ast.walk(parsed(path)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "logger"
            ):
                texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
                yield " ".join(map(str, texts)), node


@pytest.mark.slow
def test_each_entry_that_names_an_agent_has_its_id_as_a_field() -> None:
    lacking = [
        text
        for text, node in log_calls()
        if "agent %r" in text and "extra" not in {keyword.arg for keyword in node.keywords}
    ]

    assert lacking == []


async def test_an_entry_about_a_run_has_the_ids_of_both(caplog: pytest.LogCaptureFixture) -> None:
    crashes: list[BaseException | str] = [SystemExit("bang"), "through"]
    async with Runtime([Agent("finder", ScriptedModel(crashes))]) as runtime:
        outcome = completed(await runtime.spawn("finder", id="f-1").run("Kettles?"))

    (entry,) = [each for each in caplog.records if "crashed" in each.getMessage()]
    fields = vars(entry)
    assert (fields["agent_id"], fields["run_id"]) == ("f-1", outcome.run_id)
