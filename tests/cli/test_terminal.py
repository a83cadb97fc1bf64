"""What reaches a terminal: no escape sequence of an agent, no colour where none is wanted (J41)."""

from __future__ import annotations

import io
import json

import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.support.command_line import Desk, run
from understudy.cli.output import Column, Output
from understudy.cli.progress import Progress
from understudy.cli.show import request_text, row_lines
from understudy.cli.text import ago, as_json, clean, line, utc

HOSTILE = "\x1b[2J\x1b[1;31mall is well\x07\u202egnp.exe\u2066\r\x9b31m\x00 [red]no markup[/red]"


def terminal(width: int, **environment: str) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    console = Console(
        file=file,
        force_terminal=True,
        width=width,
        height=20,
        highlight=False,
        emoji=False,
        markup=False,
        color_system="standard" if "NO_COLOR" not in environment else None,
        _environ=environment,
    )
    return console, file


def assert_harmless(text: str) -> None:
    for char in ("\x1b[2J", "\x07", "\u202e", "\u2066", "\r", "\x9b", "\x00"):
        assert char not in text, repr(text)


def test_text_of_agents_cannot_move_the_cursor_or_turn_around() -> None:
    found = clean(HOSTILE)
    assert_harmless(found)
    assert "\\x1b[2J" in found
    assert "\\u202e" in found
    assert clean("plain\ttext\nlines é 漢字") == "plain\ttext\nlines é 漢字"
    assert clean("a\nb", lines=False) == "a\\nb"
    assert clean("half \ud800") == "half \\ud800"
    assert line("a\n  b\x1b", 5) == "a b\\…"
    assert as_json({"a": HOSTILE}).isascii()
    assert "\x1b" not in as_json({"a": HOSTILE})


@pytest.mark.slow
@pytest.mark.parametrize("at", ["store", "server"])
def test_no_command_prints_what_an_agent_wrote_as_it_is(desk: Desk, at: str) -> None:
    """J41."""
    where = ["--store", desk.store] if at == "store" else []
    desk.runtime.spawn("echo", "t-\x1b[31m").run(HOSTILE).get()
    desk.runtime.spawn("desk", "t-2").run(HOSTILE).get()
    ref = desk.runtime.get("t-2")
    (request,) = ref.state().get().requests
    for command in (
        ["ls"],
        ["pending"],
        ["show", "t-\x1b[31m"],
        ["show", "t-2"],
        ["tree"],
        ["history", "t-2"],
        ["events", "t-2"],
        ["events", "t-2", "--jsonl"],
        ["show", "t-2", "--json"],
        ["ls", "--json"],
    ):
        result = run(*command, *where)
        assert_harmless(result.output)
        assert "\x1b" not in result.output
    edited = json.dumps({"order": HOSTILE, "amount": 1})
    result = run("edit", request.id, "--args", edited, "-y")
    assert "\x1b" not in result.output
    assert_harmless(result.output)


def test_a_table_fits_its_terminal_and_cuts_no_id() -> None:
    rows = [{"id": "a-long-id-of-an-agent-1234567890", "what": "much to say " * 20, "tool": "pay"}]
    columns = [Column("ID", "id"), Column("TOOL", "tool"), Column("WHAT", "what", wide=True)]
    for width in (40, 60, 80, 200):
        out = Output()
        out.console, file = terminal(width, NO_COLOR="1")
        out.rows("rows", rows, columns)
        text = file.getvalue()
        assert "a-long-id-of-an-agent-1234567890" in text
        if width >= 60:
            assert max(len(each) for each in text.splitlines()) <= width
            assert text.startswith("ID ")
        else:
            assert "what: much to say" in text


def test_colours_are_left_out_where_nobody_wants_them() -> None:
    for environment, colours in (({}, True), ({"NO_COLOR": "1"}, False)):
        out = Output()
        out.console, file = terminal(80, **environment)
        out.say("recorded", "green")
        assert ("\x1b[32m" in file.getvalue()) is colours


def test_what_goes_on_is_shown_and_ends_as_lines() -> None:
    console, file = terminal(60, NO_COLOR="1")
    progress = Progress(console)

    def row(id: str, kind: str, state: str, text: str, **detail: object) -> dict[str, object]:
        return {
            "id": id,
            "kind": kind,
            "state": state,
            "text": text,
            "depth": 0,
            "detail": detail,
        }

    with progress.shown():
        progress.take([row("1", "text", "streaming", "Let me\x1b[2J")])
        assert "Let me\\x1b[2J" in file.getvalue()
        progress.take([row("1", "text", "done", "Let me look.")])
        progress.take([row("2", "call", "running", "Searching…", tool_name="s", progress="half")])
        assert "→ Searching… half" in file.getvalue()
        progress.take([row("3", "text", "void", "never said")])
        progress.take([row("2", "call", "success", "Searching…", tool_name="s", result="2 hits")])
        progress.take([row("4", "request", "pending", "approval: pay")])
    text = file.getvalue()
    assert text.count("Let me look.") == 1
    assert "✓ Searching…: 2 hits" in text
    assert "? approval: pay (pending)" in text
    assert "never said" not in text
    assert_harmless(text.replace("\r\x1b[2K", "").replace("\r", ""))


def test_times_are_told_in_short() -> None:
    from datetime import datetime, timedelta, timezone

    at = datetime(2030, 1, 1, tzinfo=timezone.utc)
    told = [ago((at - timedelta(seconds=s)).isoformat(), at) for s in (0, 5, 65, 7300, 200000)]
    assert told == ["now", "5 s", "1 min", "2 h", "2 d"]
    assert ago((at + timedelta(hours=3)).isoformat(), at) == "in 3 h"
    assert ago(None, at) == "-"
    assert utc("2030-01-01T02:00:00+02:00") == "2030-01-01T00:00:00+00:00"
    assert utc(None) is None


def test_letters_that_look_like_others_are_told_apart_where_somebody_decides() -> None:
    request = {
        "id": "r1",
        "agent_id": "desk",
        "agent_path": ["desk"],
        "kind": "approval",
        "tool_name": "p\u0430y",
        "allowed": ["approve"],
        "arguments": {"to": ["p\u0430ypal.example"], "name": "\u0421\u043e\u0440", "n": 1},
    }
    text = request_text(request)
    assert "p\u0430[U+0430]y\n" in text
    assert '"p\u0430[U+0430]ypal.example"' in text
    assert '"\u0421\u043e\u0440"' in text  # a word of a text that is not Latin is what it seems


def test_lines_that_go_on_are_aligned_by_the_cells_that_they_take() -> None:
    for text in ("漢字" * 20, "words of a text that goes on   and on, with some spaces in it" * 2):
        row = {"kind": "text", "state": "done", "text": text, "detail": {}, "depth": 1}
        lines = [line for line, _ in row_lines(row, 30)]
        assert len(lines) > 2
        assert all(cell_len(line) <= 30 for line in lines)
        assert all(line[:4] == "    " and line[4] != " " for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
