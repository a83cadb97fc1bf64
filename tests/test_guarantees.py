"""The table of `docs/guarantees.md` has a line for each way that is played, and no other (J86)."""

from __future__ import annotations

import re

import pytest

import tests.support.durability.effects_served  # noqa: F401 (it adds its rows to the table)
from tests.support.durability.effects_rows import ROWS
from tests.support.sources import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
HEAD = "| What happens | A tool with effects | An idempotent tool | A read-only tool |"
LINES = {
    re.sub(r" \(\[\w+\]\(rules\.md#\w+\)\)$", "", cells[0]): cells[1:]
    for line in PAGE.partition(HEAD)[2].partition("\n\n")[0].splitlines()[2:]
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}
"""What the page says of each kind of tool, by what happens."""

PLAYED: dict[str, tuple[str, ...]] = {
    "An error proves that nothing happened (a 4xx)": ("before paying: ",),
    "An error leaves it open (no answer, a 5xx)": ("after paying",),
    "An error comes after `ctx.once` has done something": ("an error after something was done",),
    "A time limit passes": ("a time limit ",),
    "The call is cancelled from within": ("a cancellation from within",),
    "The run is cancelled, or a message takes its place": ("the run is cancelled",),
    "The process ends before the call was started": ("a crash at each record, before it is",),
    "The process ends in the call": ("a crash at each record", "a crash in the body"),
    "The runtime repeats the call": ("the repeats", "a retry policy"),
    "A fallback model answers after the call": ("a fallback to another model",),
    "A middleware calls `next` again": ("a middleware that calls next",),
    "`until_tool`, `until_tool_success`, `force`, `extract`, a `Loop`": (
        "until_tool",
        "extract",
        "a Loop",
    ),
    "A child has paid, and fails": ("a child that has paid",),
    "A child fails whose call is in doubt": ("a child whose payment is in doubt",),
    "`retry()` of a failed run or workflow": ("retry() of",),
    "A schedule comes due while hosts come and go": ("the occurrences of a schedule",),
    "An occurrence after one whose call is in doubt": ("an occurrence after",),
    "A deploy changes a default under an open call": ("a deploy that changes",),
    "A deploy switches a gate on": ("a deploy that switches a gate on",),
    "An export comes back, here or elsewhere": ("an export that comes back", "a copy of an agent"),
    "The connection to an MCP server is lost": ("an MCP server whose connection",),
    "Two agents pay under one `key`": ("two agents that pay by one key",),
    "A tool in doubt has a `check`": ("a lost answer, and a check", "a lost request, and a check"),
}
"""How the names of the rows begin that play a line of the page. The longest beginning counts."""

BY_TWO_HOSTS = "Another host takes over in the middle of the call"
"""Played by `test_a_host_that_takes_over_repeats_no_effect`, which needs a server."""


def line_of(name: str) -> str:
    """The line of the page that a row plays."""
    begun = [
        (len(beginning), line)
        for line, beginnings in PLAYED.items()
        for beginning in beginnings
        if name.startswith(beginning)
    ]
    assert begun, f"the page has no line for {name!r}"
    return max(begun)[1]


def test_each_line_of_the_page_is_played_and_each_row_has_its_line() -> None:
    """J86."""
    played = {line_of(name) for name in ROWS} | {BY_TWO_HOSTS}
    assert set(LINES) == played


@pytest.mark.parametrize("line", PLAYED)
def test_the_page_says_which_kinds_of_tools_a_line_is_for(line: str) -> None:
    """J86: a line has nothing to say of a kind of tool that no row of it plays."""
    rows = [row for name, row in ROWS.items() if line_of(name) == line]
    only_looks = any(cell.kind == "read_only" for row in rows for cell in row.cells)
    assert LINES[line][2].startswith("has no") != only_looks


def test_each_beginning_is_that_of_a_row() -> None:
    for beginnings in PLAYED.values():
        for beginning in beginnings:
            assert any(name.startswith(beginning) for name in ROWS), beginning
