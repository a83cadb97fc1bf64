"""`understudy search`: what it prints, and how the index is removed (J39)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Desk, agents, found_by_commands, run
from tests.support.loops import SECONDS
from understudy import Runtime


@pytest.mark.slow
def test_words_are_looked_for_through_a_server_and_in_a_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'desk.db'}"
    paid: list[tuple[str, int]] = []
    with (
        Runtime(agents(paid), store=store, search=True) as runtime,
        found_by_commands(runtime, store) as url,
    ):
        desk = Desk(store, url, runtime, paid)
        runtime.spawn("desk", "t-1").run("Pay 17, says Ada.").get(timeout=SECONDS)
        runtime.search("ada").get(timeout=SECONDS)  # an observer sees what is indexed
        for at in (("--url", url), ("--store", store)):
            found = desk.json("search", "says", "ADA", *at)
            assert [(hit["agent_id"], hit["kind"]) for hit in found["hits"]] == [("t-1", "user")]
            assert not found["more"]
            asked = desk.json("search", "17", "--in", "requests", *at)["hits"]
            assert [hit["where"] for hit in asked] == ["request"]
            assert desk.json("search", "nowhere", *at)["hits"] == []
            shown = run("search", "ada", *at)
            assert "Pay 17, says Ada." in shown.output
            assert "a word of letters" in run("search", "***", *at, code=2).output
        run("search", "--remove", "--yes", "--store", store, code=5)  # a runtime has it open
    assert run("search", "--remove", "--yes", "--store", store).output == "removed\n"
    assert "Runtime(search=True)" in run("search", "ada", "--store", store, code=2).output
    assert run("search", "--remove", "--yes", "--store", store).output == "there is none\n"


def test_a_search_for_nothing_is_refused() -> None:
    for given in (
        ["search"],
        ["search", "--remove"],
        ["search", "ada", "--remove", "--store", "sqlite:///a.db"],
    ):
        assert run(*given, code=2).output.startswith("understudy: ")
