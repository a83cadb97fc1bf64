"""Arguments of a call have one shape wherever they leave us, whatever the provider has sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ag_ui_client import Client, by_header, of_type, said
from tests.support.agents import by_turn, calls_made, completed
from tests.support.command_line import run
from understudy import Agent, Runtime, call, tool
from understudy.ag_ui import ag_ui

GIVEN = {"order": "17", "amount": 2.5, "to": {"name": "Ann", "since": None}}
SENT: dict[str, Any] = {
    "data": GIVEN,
    "text": json.dumps(GIVEN),
    "text with spaces": json.dumps(GIVEN, indent=2),
}


@tool
def look(order: str, amount: float, to: Any = None) -> str:
    """Look."""
    return "seen"


def written_twice(found: object) -> Iterator[str]:
    """The texts in this data that are objects as JSON.

    But the beginnings that a state has of the calls that are done, for a sentence about them.
    """
    if isinstance(found, dict):
        for name, value in found.items():
            if name != "done":
                yield from written_twice(value)
    elif isinstance(found, list):
        for value in found:
            yield from written_twice(value)
    elif isinstance(found, str) and found.lstrip().startswith("{"):
        yield found


@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
async def test_rows_history_exports_and_the_command_line_have_arguments_as_data(
    tmp_path: Path, sent: Any
) -> None:
    store = f"sqlite:///{tmp_path / 'agents.db'}"
    agent = Agent("a", by_turn(call("look", sent)), tools=[look])
    async with Runtime([agent], store=store) as runtime:
        ref = runtime.spawn("a", id="t-1")
        state = completed(await ref.run("go")).state
        (made,) = calls_made(state)
        assert made.args == GIVEN
        rows = [row.to_dict() for row in (await ref.display()).rows]
        history = [entry.to_dict() for entry in (await ref.history())]
        exported = await runtime.export("t-1")
    (row,) = [row for row in rows if row["kind"] == "call"]
    assert row["detail"]["arguments"] == GIVEN
    for found in (rows, history, exported, state.to_dict()):
        assert list(written_twice(found)) == []
    shown = run("show", "t-1", "--store", store).stdout
    assert '{"order": "17", "amount": 2.5' in shown
    assert "\\" not in shown
    assert (
        list(written_twice(json.loads(run("show", "t-1", "--store", store, "--json").stdout))) == []
    )


async def test_a_page_gets_the_same_text_of_them_whatever_was_sent() -> None:
    told = []
    for sent in SENT.values():
        async with Runtime([Agent("a", by_turn(call("look", sent)), tools=[look])]) as runtime:
            client = Client(ag_ui(runtime, agent="a", auth=by_header), "ann")
            events = await client.events(said("go"))
        told.append("".join(event["delta"] for event in of_type(events, "TOOL_CALL_ARGS")))
    assert json.loads(told[0]) == GIVEN
    assert len(set(told)) == 1
