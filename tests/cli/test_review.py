"""`review`: a person decides request after request in a terminal.

Rules: J41, I17.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.agents import by_turn, interrupted
from tests.support.command_line import TOKEN, Desk, found_by_commands, run
from tests.support.terminals import Terminal, in_a_terminal
from tests.support.web_server import served
from understudy import Agent, Interrupt, Runtime, ToolContext, approve, call, tool
from understudy.trust import Rules, approval
from understudy.trust import ask as ask_rule
from understudy.web import TokenAuth, ui

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo-terminal"),
]
DECIDE = "?]: "


def ask(desk: Desk, id: str = "t-1") -> str:
    return str(interrupted(desk.runtime.spawn("desk", id).run("Pay 17.").get()).requests[0].id)


@contextmanager
def reviewing(*arguments: str, lines: int = 24, **env: str) -> Iterator[Terminal]:
    with in_a_terminal("-m", "understudy", "review", *arguments, env=env, lines=lines) as terminal:
        yield terminal


def editor_of(tmp_path: Path, *lines: str) -> str:
    """An editor that runs these lines of Python on the text, one each time that it is opened."""
    program = tmp_path / "editor.py"
    turns = tmp_path / "turns"
    program.write_text(
        "import sys, pathlib\n"
        f"turns = pathlib.Path({str(turns)!r})\n"
        "turn = int(turns.read_text()) if turns.exists() else 0\n"
        "turns.write_text(str(turn + 1))\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "text = path.read_text()\n"
        f"text = eval({list(lines)!r}[turn])\n"
        "path.write_text(text)\n"
    )
    return f"{sys.executable} {program}"


def test_requests_are_approved_rejected_edited_answered_and_skipped(
    desk: Desk, tmp_path: Path
) -> None:
    for number in range(5):
        ask(desk, f"t-{number}")
    editor = editor_of(tmp_path, "text.replace('20', '5')")
    with reviewing(EDITOR=editor, VISUAL="") as terminal:
        shown = terminal.answer(DECIDE, "?")
        assert "1 of 5 · approval · pay · order=17, amount=20" in shown
        assert '"amount": 20' in shown
        assert "a  approve" in terminal.answer(DECIDE, "a")
        assert "approved" in terminal.answer(DECIDE, "r")
        terminal.answer("reason): ", "too much")
        assert "rejected" in terminal.answer(DECIDE, "e")
        assert '"amount": 5' in terminal.answer("[y/N]: ", "y")
        assert "approved with other arguments" in terminal.answer(DECIDE, "w")
        terminal.answer("editor): ", "paid by hand")
        assert "answered" in terminal.answer(DECIDE, "nonsense")
        assert "none of the keys" in terminal.answer(DECIDE, "s")
        told, code = terminal.rest()
    assert (code, "4 decided, 1 skipped" in told) == (0, True)
    assert sorted(desk.paid) == [("17", 5), ("17", 20)]
    assert [row["agent_id"] for row in desk.json("pending")["requests"]] == ["t-4"]
    found = desk.json("history", "t-1")["entries"]
    assert "too much" in json.dumps([entry["detail"] for entry in found])


def test_a_quit_decides_nothing_and_filters_choose(desk: Desk) -> None:
    ask(desk)
    with reviewing("--tool", "nothing") as terminal:
        told, code = terminal.rest()
        assert (code, told.strip()) == (0, "nothing waits for a person")
    with reviewing("--kind", "question", "--agent", "desk") as terminal:
        assert "nothing waits" in terminal.rest()[0]
    with reviewing("--tool", "pay", "--kind", "approval") as terminal:
        terminal.answer(DECIDE, "q")
        told, code = terminal.rest()
    assert (code, "0 decided, 0 skipped" in told) == (0, True)
    assert desk.paid == []


def test_what_is_longer_than_the_screen_is_decided_when_all_of_it_was_shown(
    tmp_path: Path,
) -> None:
    texts: list[str] = []

    @tool
    def mail(text: str) -> str:
        texts.append(text)
        return "sent"

    letter = "\n".join(f"line {number}" for number in range(300)) + " end of the letter"
    store = f"sqlite:///{tmp_path / 'a.db'}"
    agent = Agent(
        "desk", by_turn(call("mail", {"text": letter})), tools=[mail], interrupt_on={"mail": True}
    )
    with Runtime([agent], store=store) as runtime, found_by_commands(runtime, store):
        runtime.spawn("desk", "t-1").run("go").get(timeout=60)
        with reviewing(lines=12) as terminal:
            assert "end of the letter" not in terminal.until("Enter shows more")
            terminal.answer("-- ", "a")
            assert "all of it has to be shown" in terminal.until("Enter shows more")
            terminal.answer("-- ", "")
            terminal.answer("-- ", "all")
            assert "end of the letter" in terminal.until(DECIDE).replace("\n", "")
            terminal.type("a\n")
            assert "1 decided" in terminal.rest()[0]
        with reviewing() as terminal:
            assert "nothing waits" in terminal.rest()[0]


def test_what_was_typed_before_its_question_decides_nothing(desk: Desk) -> None:
    ask(desk, "t-1")
    ask(desk, "t-2")
    with reviewing() as terminal:
        terminal.until(DECIDE)
        terminal.type("a\na\na\n")  # the second one is not shown yet
        assert "2 of 2" in terminal.until("2 of 2")
        terminal.until(DECIDE)
        terminal.type("q\n")
        told, _ = terminal.rest()
    assert "1 decided" in told
    assert len(desk.paid) == 1


def test_who_was_faster_is_said_and_the_next_request_comes(desk: Desk) -> None:
    first, second = ask(desk, "t-1"), ask(desk, "t-2")
    third = ask(desk, "t-3")
    with reviewing() as terminal:
        terminal.until(DECIDE)
        desk.runtime.get("t-1").resume({first: approve(by="bob")}).get(timeout=60)
        desk.runtime.get("t-2").resume({second: approve(by="eve")}).get(timeout=60)
        terminal.type("r\n")
        terminal.answer("reason): ", "no")
        shown = terminal.until(DECIDE)
        assert "bob approved it" in shown, shown
        assert "approved by eve meanwhile" in shown, shown
        assert f"request   {third}" in shown
        terminal.type("a\n")
        told, _ = terminal.rest()
    assert "1 decided, 0 skipped, 2 were decided or withdrawn meanwhile" in told
    assert len(desk.paid) == 3


def test_requests_that_come_meanwhile_are_asked_too(desk: Desk) -> None:
    ask(desk, "t-1")
    with reviewing() as terminal:
        terminal.until(DECIDE)
        ask(desk, "t-2")
        terminal.type("a\n")
        assert "1 more came meanwhile" in terminal.answer(DECIDE, "a")
        assert "2 decided" in terminal.rest()[0]


def test_wrong_json_is_asked_for_again_and_keeps_what_was_typed(desk: Desk, tmp_path: Path) -> None:
    ask(desk)
    editor = editor_of(
        tmp_path,
        "text.replace('20', '5').rstrip().rstrip('}')",
        "'[1]'",
        '\'{"order": "17", "amount": "much"}\'',
        "text.replace('\"much\"', '6')",
    )
    with reviewing(EDITOR=editor, VISUAL="") as terminal:
        terminal.answer(DECIDE, "e")
        assert "this is no JSON" in terminal.answer("n leaves it: ", "")
        assert "must be a JSON object" in terminal.answer("n leaves it: ", "")
        terminal.answer("[y/N]: ", "y")
        assert "amount" in terminal.answer(DECIDE, "e")  # the server says what is wrong
        assert '"amount": 6' in terminal.answer("[y/N]: ", "y")
        assert "1 decided" in terminal.rest()[0]
    assert desk.paid == [("17", 6)]


def test_a_question_is_answered_and_a_doubt_takes_the_whole_word(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'a.db'}"
    begun = threading.Event()
    blocks = [True]
    calls: list[str] = []
    answers: list[Any] = []

    @tool
    def where(ctx: ToolContext) -> str:
        if not ctx.resumed:
            raise Interrupt({"question": "Which address?"})
        answers.append(ctx.resume_value)
        return "noted"

    @tool(on_unknown="ask")
    async def book(order: str) -> str:
        import asyncio

        calls.append(order)
        begun.set()
        if blocks[0]:
            await asyncio.Event().wait()
        return "booked"

    def agents() -> list[Agent[Any, str]]:
        return [
            Agent("asker", by_turn(call("where"), "Done."), tools=[where]),
            Agent("booker", by_turn(call("book", {"order": "1"}), "Done."), tools=[book]),
        ]

    cut_off = Runtime(agents(), store=store, cancel_timeout=0.1)
    with cut_off:
        cut_off.spawn("asker", "a-1").run("go").get(timeout=60)
        cut_off.spawn("booker", "b-1").run("go")
        assert begun.wait(60)
        cut_off.stop(timeout=0)
    blocks[0] = False
    with Runtime(agents(), store=store) as runtime, found_by_commands(runtime, store):
        for recovered in runtime.recover().get(timeout=60):
            recovered.get(timeout=60) if hasattr(recovered, "get") else None
        runtime.get("b-1").state().get(timeout=60)
        with reviewing("--kind", "question") as terminal:
            assert "Which address?" in terminal.answer("?]: ", "w")
            terminal.answer("editor): ", "12 Main Street")
            assert "answered" in terminal.rest()[0]
        with reviewing("--kind", "doubt") as terminal:
            shown = terminal.answer("q, ?: ", "a")
            assert "happened / run it / leave it" in shown
            assert "the whole word" in terminal.answer("q, ?: ", "run it")
            assert "approved" in terminal.rest()[0]
    assert answers == ["12 Main Street"]
    assert calls == ["1", "1"]


def test_a_vote_says_what_is_missing(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'a.db'}"

    @tool
    def pay(amount: int) -> str:
        return f"paid {amount}"

    rules = Rules(ask_rule("pay", approval({"finance": 2})))
    people: Any = {"ann": ["finance"], "bob": ["finance"]}
    agent = Agent("desk", by_turn(call("pay", {"amount": 1}), "Done."), tools=[pay])
    with (
        Runtime([agent], store=store, rules=rules, people=people) as runtime,
        found_by_commands(runtime, store),
    ):
        runtime.spawn("desk", "t-1").run("go").get(timeout=60)
        with reviewing() as terminal:
            assert "missing   2 more of finance" in terminal.answer(DECIDE, "a")
            told, _ = terminal.rest()
    assert "your vote is recorded: approved" in told
    assert "it still waits: 1 more of finance is missing" in told


def test_it_needs_a_terminal(desk: Desk) -> None:
    ask(desk)
    assert "pending --json" in run("review", code=2).stderr


@pytest.mark.parametrize("where", ["the decision", "the pager", "a text"])
def test_ctrl_c_ends_a_review_with_one_line(desk: Desk, where: str) -> None:
    ask(desk)
    with reviewing(lines=6 if where == "the pager" else 24) as terminal:
        if where == "the pager":
            terminal.until("q -- ")
        else:
            terminal.until(DECIDE)
        if where == "a text":
            terminal.type("r\n")
            terminal.until("reason): ")
        terminal.program.send_signal(signal.SIGINT)
        told, code = terminal.rest()
    assert (code, told) == (130, "\nunderstudy: ended by Ctrl-C: 0 decided, 0 skipped\n")
    assert desk.paid == []


def test_ctrl_c_in_the_editor_is_the_editors(desk: Desk, tmp_path: Path) -> None:
    ask(desk)
    program = tmp_path / "editor.py"
    program.write_text(
        "import os, pathlib, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.kill(os.getppid(), signal.SIGINT)  # as a terminal sends it to both\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "path.write_text(path.read_text().replace('20', '4'))\n"
    )
    with reviewing(EDITOR=f"{sys.executable} {program}", VISUAL="") as terminal:
        terminal.answer(DECIDE, "e")
        terminal.answer("[y/N]: ", "y")
        assert "1 decided" in terminal.rest()[0]
    assert desk.paid == [("17", 4)]


def held_app(runtime: Runtime, held: threading.Event) -> ASGIApp:
    """The pages, which never answer a decision."""
    pages = ui(runtime, auth=TokenAuth(TOKEN, name="ann"))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            held.set()
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        await pages(scope, receive, send)

    return app


def test_ctrl_c_while_a_decision_is_sent_says_that_it_may_be_done(desk: Desk) -> None:
    ask(desk)
    held = threading.Event()
    with (
        served(held_app(desk.runtime, held)) as url,
        reviewing(UNDERSTUDY_TOKEN=TOKEN, UNDERSTUDY_URL=url) as terminal,
    ):
        terminal.answer(DECIDE, "a")
        assert held.wait(60)
        terminal.program.send_signal(signal.SIGINT)
        told, code = terminal.rest()
    assert code == 130
    assert told.count("understudy: ended by Ctrl-C") == 1
    assert "may be done all the same; 0 decided" in told
    assert "Traceback" not in told
