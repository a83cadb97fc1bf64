"""`static/understudy.js` keeps the rows of a conversation in a page, under Node; and its types."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import by_turn
from tests.support.loops import soon
from understudy import Agent, Runtime, call, tool
from understudy.display import DisplayUpdate, Row
from understudy.web.app import STATIC

pytestmark = [pytest.mark.node, pytest.mark.slow]

HERE = Path(__file__).parent
SCRIPT = STATIC / "understudy.js"
SECONDS = 60


def played(*steps: dict[str, Any]) -> dict[str, Any]:
    """What a page connected to, and showed, when its connections went so."""
    node = shutil.which("node")
    assert node, "there is no node"
    lines = "".join(f"{json.dumps(step)}\n" for step in steps)
    done = subprocess.run(
        [node, str(HERE / "rows.mjs"), str(SCRIPT)],
        input=lines,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def row(id: str, position: tuple[int, int], text: str = "", **more: Any) -> Row:
    made: dict[str, Any] = {"kind": "text", "state": "done", "seq": position[0], **more}
    return Row(id=id, text=text, agent_path=("desk",), position=position, **made)


def update(*rows: Row, seq: int | None, reset: bool = False) -> dict[str, Any]:
    return {"update": DisplayUpdate(rows=rows, seq=seq, reset=reset).to_dict()}


def test_rows_are_shown_in_the_order_of_their_positions_and_change_in_place() -> None:
    """As numbers: 9 comes before 10, and 2 before 10 within a record."""
    found = played(
        update(row("c", (10, 0), "c"), row("b", (9, 10), "b"), row("a", (9, 2), "a"), seq=10),
        update(row("b", (9, 10), "B"), seq=11),
        update(row("a", (9, 2), state="void", seq=None), seq=None),
        update(row("x", (1, 0), "x"), seq=12, reset=True),
    )
    assert [[each[1] for each in rows] for rows in found["shown"]] == [
        ["a", "b", "c"],
        ["a", "B", "c"],
        ["B", "c"],
        ["x"],
    ]
    assert found["closed"]


def test_a_connection_that_the_browser_gives_up_is_made_again_by_the_last_number() -> None:
    """What was live there and is not now was never recorded: it goes."""
    live = row("live", (8, 0), "half a rep", state="streaming", seq=None)
    found = played(
        {"open": True},
        update(row("a", (7, 0), "a"), seq=7),
        update(live, seq=None),
        {"error": 0},  # the browser comes back by itself
        {"open": True},
        update(seq=7),
        update(live, seq=None),
        {"error": 2},  # an answer that is no stream: it does not
        {"open": True},
        update(row("b", (9, 0), "b"), seq=9),
    )
    assert found["urls"] == ["/rows?after=3", "/rows?after=7"]
    assert found["states"] == ["on", "off", "on", "off", "on"]
    assert [[each[1] for each in rows] for rows in found["shown"]] == [
        ["a"],
        ["a", "half a rep"],
        ["a"],
        ["a", "half a rep"],
        ["a", "b"],
    ]


async def test_however_the_updates_of_a_conversation_are_cut_the_rows_are_those_of_the_store() -> (
    None
):
    """U11."""

    @tool
    async def look(part: int) -> str:
        """Look."""
        return f"seen {part}"

    turns = [call("look", {"part": part}) for part in range(12)]
    agent = Agent("desk", by_turn(*turns, "done"), tools=[look])
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("desk", "ann")
        await soon(ref.run("go"))
        whole = await soon(ref.display())
        steps: list[dict[str, Any]] = [{"open": True}]
        after, cut = 0, random.Random(24)
        while True:
            page = await soon(ref.display(after=after, limit=cut.randint(1, 5)))
            steps.append({"update": page.to_dict()})
            after = page.seq or after
            if not page.more:
                break
    assert len(steps) > 5
    shown = played(*steps)["shown"][-1]
    assert shown == [[each.id, each.text, each.state] for each in whole.rows]


def test_its_types_are_checked() -> None:
    tsc = HERE / "node_modules" / ".bin" / "tsc"
    assert tsc.exists(), "`make test-node` installs it"
    options = ["--allowJs", "--checkJs", "--strict", "--noEmit", "--target", "es2022"]
    done = subprocess.run(
        [str(tsc), *options, "--module", "es2022", "--lib", "es2022,dom", str(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
