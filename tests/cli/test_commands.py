"""Each command, by its public entry: what it prints, what it does, and its exit code (T13).

Rules: J41, I18.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import signal
import socket
import sqlite3
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from tests.support.agents import by_turn, interrupted, results
from tests.support.command_line import Desk, agents, found_by_commands, run
from tests.support.processes import until
from tests.support.programs import PIPE, Started, started
from tests.support.web_server import served
from understudy import (
    Agent,
    Completed,
    Interrupt,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    approve,
    call,
    tool,
)
from understudy._base.clock import SystemClock
from understudy.cli.demo_desk import new_runtime, set_up
from understudy.cli.serve import listening, url_of
from understudy.cli.servers import running, store_name
from understudy.cluster import Cluster
from understudy.middleware import AskUser, HumanInTheLoop, SubAgent
from understudy.web import Right, User, ui


def ask(desk: Desk, id: str = "t-1", agent: str = "desk") -> str:
    """An agent that waits for a person; the id of its request."""
    outcome = interrupted(desk.runtime.spawn(agent, id).run("Pay 17.").get())
    return str(outcome.requests[0].id)


@tool
async def pay(order: str, amount: int) -> str:
    return f"paid {amount} for {order}"


# ------------------------------------------------------------------------------ look


@pytest.mark.slow
@pytest.mark.parametrize("where", ["store", "server"])
def test_what_looks_says_the_same_of_a_store_and_of_a_server(desk: Desk, where: str) -> None:
    request = ask(desk)
    ask(desk, "t-2", "boss")
    desk.runtime.spawn("echo", "t-3").run("hi").get()
    at = ["--store", desk.store] if where == "store" else []

    rows = desk.json("ls", *at)["agents"]
    assert [(row["id"], row["agent"], row["status"]) for row in rows] == [
        ("t-1", "desk", "interrupted"),
        ("t-2", "boss", "interrupted"),
        ("t-3", "echo", "idle"),
    ]
    assert [row["id"] for row in desk.json("ls", "--status", "idle", *at)["agents"]] == ["t-3"]
    assert len(desk.json("ls", "--limit", "2", *at)["agents"]) == 2
    lines = run("ls", "--jsonl", *at).stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["t-1", "t-2", "t-3"]

    pending = desk.json("pending", *at)["requests"]
    assert [(row["agent_id"], row["tool_name"]) for row in pending] == [
        ("t-1", "pay"),
        ("t-2", "pay"),
    ]
    assert pending[0]["id"] == request
    assert pending[1]["agent_path"] == ["boss", "cashier"]

    shown = desk.json("show", "t-1", *at)
    assert [row["kind"] for row in shown["rows"]] == ["user", "text", "call", "call", "request"]
    assert shown["requests"][0]["id"] == request
    assert "waits for a person" in shown["why"]
    tree = desk.json("tree", "t-2", *at)["tree"]
    assert [(row["depth"], row["name"]) for row in tree] == [
        (0, "boss"),
        (1, "consult"),
        (2, "cashier"),
        (3, "pay"),
    ]
    history = desk.json("history", "t-1", "--limit", "3", *at)
    assert len(history["entries"]) == 3
    assert history["next"] is not None
    events = desk.json("events", "t-1", *at)["events"]
    assert events[0]["agent_id"] == "t-1"
    assert "request_made" in [event["event"]["kind"] for event in events]
    assert desk.json("schedules", "t-1", *at)["schedules"] == []
    for command in (["show"], ["tree"], ["history"], ["events"], ["schedules"], ["export"]):
        assert run(*command, "nobody", *at, code=3).stdout == ""


@pytest.mark.parametrize("where", ["store", "server"])
def test_what_waits_is_listed_by_kind(desk: Desk, where: str) -> None:
    request = ask(desk)
    at = ["--store", desk.store] if where == "store" else []
    found = desk.json("pending", "--kind", "approval", *at)["requests"]
    assert [row["id"] for row in found] == [request]
    assert desk.json("pending", "--kind", "interrupt", *at)["requests"] == []


@pytest.mark.slow
def test_people_read_a_conversation_and_what_waits(desk: Desk) -> None:
    request = ask(desk)
    shown = run("show", "t-1").stdout
    assert "» Pay 17." in shown
    assert "✓ Looking it up…: order 17: a kettle" in shown
    assert "? pay" in shown
    fields = run("pending").stdout.split("\t")
    assert request.startswith(fields[0])
    assert fields[1] == "t-1"
    assert fields[-1].strip() == "order=17, amount=20"
    assert "pay (asked)" in run("tree").stdout
    assert run("ls", "--status", "failed").stdout == ""


def test_in_a_pipe_the_columns_do_not_depend_on_the_rows(desk: Desk) -> None:
    ask(desk)
    alone = run("pending").stdout.splitlines()[0].split("\t")
    assert alone[2:7] == ["-", "approval", "pay", "now", "-"]
    assert len(alone) == 8
    ask(desk, "t-2", "boss")
    assert [line.split("\t")[2] for line in run("pending").stdout.splitlines()] == ["-", "cashier"]
    lengths = {len(line.split("\t")) for line in run("history", "t-1").stdout.splitlines()}
    assert lengths == {7}


@pytest.mark.parametrize(
    ("store", "name"),
    [
        ("postgresql:///desk?host=/run/pg", "postgresql:///desk?host=/run/pg"),
        ("postgres://ann:secret@DB:5433/desk", "postgresql://db:5433/desk"),
        ("postgresql://[::1]:5433/desk", "postgresql://[::1]:5433/desk"),
        ("postgresql://a:1,b:2/desk", "postgresql://a:1,b:2/desk"),
        ("postgresql://a/desk?user=ann&password=secret", "postgresql://a/desk?user=ann"),
        ("postgresql://a/desk?password=secret", "postgresql://a/desk"),
    ],
)
def test_the_name_of_a_store_is_a_url_without_a_password(store: str, name: str) -> None:
    assert store_name(store) == name


@pytest.mark.slow
@pytest.mark.parametrize("form", [[], ["--jsonl"]])
def test_a_reader_that_has_enough_is_no_error(desk: Desk, form: list[str]) -> None:
    ask(desk)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = ("-m", "understudy", "pending", "--store", desk.store, *form)
        with started(*command, stdout=writing, stderr=PIPE) as reader:
            _, errors = reader.communicate(timeout=60)
    finally:
        os.close(writing)
    assert (reader.returncode, errors) == (0, "")


def test_who_connects_before_the_server_has_begun_waits_for_it() -> None:
    with listening("127.0.0.1", 0) as listener:
        socket.create_connection(listener.getsockname(), timeout=30).close()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("::1", "http://[::1]:8"),
        ("::", "http://127.0.0.1:8"),
        ("0.0.0.0", "http://127.0.0.1:8"),  # nothing listens
        ("localhost", "http://localhost:8"),
    ],
)
def test_the_address_of_a_server_can_be_opened(host: str, url: str) -> None:
    assert url_of(host, 8) == url


@pytest.mark.parametrize("where", ["store", "server"])
def test_the_feed_of_a_store_is_shown(desk: Desk, where: str) -> None:
    ask(desk)
    for event in desk.runtime.events(start="oldest"):  # the last one comes after the outcome
        if event.event.kind == "status_changed" and event.event.status is Status.INTERRUPTED:
            break
    at = ["--store", desk.store] if where == "store" else []
    lines = run("events", "--jsonl", *at).stdout.splitlines()
    kinds = [json.loads(line)["event"]["kind"] for line in lines]
    assert kinds == ["status_changed", "request_made", "status_changed"]


def test_times_are_iso_in_utc(desk: Desk) -> None:
    ask(desk)
    for at in (["--store", desk.store], []):
        assert desk.json("ls", *at)["agents"][0]["status_at"].endswith("+00:00")


# ---------------------------------------------------------------------------- decide


@pytest.mark.slow
def test_a_decision_is_shown_before_it_is_taken_and_is_of_who_is_logged_in(desk: Desk) -> None:
    """J41."""
    request = ask(desk)
    refused = run("approve", request[:8], code=2)
    assert '"amount": 20' in refused.stderr
    assert "--yes" in refused.stderr
    assert desk.paid == []

    done = desk.json("approve", request[:8], "--yes", "--note", "it is due")
    assert (done["agent_id"], done["request_id"]) == ("t-1", request)
    ref = desk.runtime.get("t-1")
    ref.outcome().get()
    assert desk.paid == [("17", 20)]
    (record,) = ref.decisions().get()
    assert (record.decision.by, record.decision.note) == ("ann", "it is due")

    for id in (request, request[:8], f"t-1/{request[:8]}"):
        again = run("approve", id, "-y")
        assert "it was so already" in again.stdout
        assert "approve by ann, at 2" in again.stdout
        assert desk.json("approve", id)["repeated"] is True
        for other in (["reject"], ["approve", "--always"], ["edit"], ["dismiss"],
                      ["edit", "--args", "{}"], ["respond", "--value", "1"]):  # fmt: skip
            stale = run(other[0], id, *other[1:], "-y", code=4)
            assert "approve by ann, at 2" in stale.stderr
    assert run("approve", "none", "-y", code=3).stdout == ""
    assert run("approve", "nobody/none", "-y", code=3).stdout == ""
    assert desk.paid == [("17", 20)]


@contextmanager
def asked_in_a_terminal(*arguments: str) -> Iterator[tuple[Started, int]]:
    """A command that has asked a question, and what types in its terminal."""
    ours, theirs = os.openpty()
    try:
        pipes: dict[str, Any] = {"stdin": theirs, "stdout": PIPE, "stderr": PIPE}
        with started("-m", "understudy", *arguments, **pipes) as command:
            assert command.stderr is not None
            told = ""
            while not told.endswith("[y/N]:"):
                char = command.stderr.read(1)
                assert char, told  # it has ended
                told += char
            yield command, ours
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.slow
def test_a_question_is_answered_or_ended_by_ctrl_c(desk: Desk) -> None:
    request = ask(desk)
    for question in (["approve", request], ["delete", "t-1"]):
        with asked_in_a_terminal(*question) as (command, _):
            command.send_signal(signal.SIGINT)
            assert command.communicate(timeout=60) == ("", " understudy: ended by Ctrl-C\n")
            assert command.returncode == 130
        for answer in (b"n\n", b"\n", b"\x04"):  # the last is the end of the input
            with asked_in_a_terminal(*question) as (command, typing):
                os.write(typing, answer)
                assert "nothing was" in command.communicate(timeout=60)[1]
                assert command.returncode == 1
    with asked_in_a_terminal("approve", request) as (command, typing):
        os.write(typing, b"y\n")
        assert command.communicate(timeout=60)[0] == "approved\n"
        assert command.returncode == 0


@pytest.mark.slow
def test_other_arguments_come_from_the_line_a_file_or_standard_input(
    desk: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "arguments.json"
    file.write_text('{"order": "17", "amount": 2}')
    given = ['{"order": "17", "amount": 1}', f"@{file}", "-"]
    for number, args in enumerate(given):
        request = ask(desk, f"t-{number}")
        run("edit", request, "--args", args, "-y", input='{"order": "17", "amount": 3}')
        desk.runtime.get(f"t-{number}").outcome().get()
    assert desk.paid == [("17", 1), ("17", 2), ("17", 3)]

    request = ask(desk, "t-9")
    for args, code in (("{", 2), ("[1]", 2), ("@/nowhere", 2), ('{"amount": "much"}', 4)):
        assert run("edit", request, "--args", args, "-y", code=code).stdout == ""
    assert len(desk.json("pending")["requests"]) == 1


def test_times_are_told_in_utc_wherever_the_clock_of_the_runtime_is(tmp_path: Path) -> None:
    class There(SystemClock):
        def now(self) -> datetime:
            return super().now().astimezone(timezone(timedelta(hours=2)))

    store = f"sqlite:///{tmp_path / 'desk.db'}"
    with Runtime(agents([]), store=store, clock=There(), feed=True) as runtime:
        runtime.spawn("echo", "t-1").run("Hello!").get(timeout=60)
    for command in (["ls"], ["show", "t-1"], ["events"], ["events", "t-1"], ["history", "t-1"]):
        told = run(*command, "--store", store, "--json").stdout
        times = re.findall(r'"(?:at|status_at)": "([^"]+)"', told)
        assert times, command
        assert {time[-6:] for time in times} == {"+00:00"}, command


def test_an_answer_that_does_not_fit_its_schema_is_refused(tmp_path: Path) -> None:
    @tool
    async def count(ctx: ToolContext) -> int:
        if not ctx.resumed:
            raise Interrupt("How many?", schema=int)
        return int(ctx.resume_value)

    agent = Agent("counter", by_turn(call("count", {}), "Thanks."), tools=[count])
    store = f"sqlite:///{tmp_path / 'desk.db'}"
    with (
        Runtime([agent], store=store) as runtime,
        found_by_commands(runtime, store),
    ):
        request = interrupted(runtime.spawn("counter", "c-1").run("Count.").get()).requests[0].id
        refused = run("respond", request, "--value", "many", "-y", code=4)
        assert "'many' is not of type 'integer'" in refused.stderr
        run("respond", request, "--value", "12", "-y")
        ended = runtime.get("c-1").outcome().get()
        assert isinstance(ended, Completed)
        assert ended.text == "Thanks."


@pytest.mark.slow
def test_the_questions_of_ask_user_are_answered_by_a_document(tmp_path: Path) -> None:
    questions = [
        {
            "question": "Which size?",
            "kind": "one_of",
            "options": ["S", {"label": "M", "value": "2"}],
        },
        {"question": "How many?", "kind": "number", "whole": True, "maximum": 5},
    ]
    model = by_turn(call("ask_user", {"questions": questions}), "Ordered.")
    agent = Agent("shop", model, middleware=[AskUser()])
    store = f"sqlite:///{tmp_path / 'desk.db'}"
    with (
        Runtime([agent], store=store) as runtime,
        found_by_commands(runtime, store),
    ):
        request = interrupted(runtime.spawn("shop", "s-1").run("Order.").get()).requests[0].id
        for wrong, field in (
            ({"Which size?": "XL", "How many?": 2}, "Which size?"),
            ({"Which size?": "M", "How many?": 9}, "How many?"),
            ({"Which size?": "M"}, "How many?"),
        ):
            refused = run("respond", request, "--value", json.dumps(wrong), "-y", code=4)
            assert field in refused.stderr
        answers = {"Which size?": "M", "How many?": 2}
        run("respond", request, "--value", json.dumps(answers), "-y")
        ended = runtime.get("s-1").outcome().get()
        assert isinstance(ended, Completed)
        (result,) = results(ended.state)
        assert result.content == [
            {"question": "Which size?", "answer": "M", "value": "2"},
            {"question": "How many?", "answer": 2},
        ]


@pytest.mark.slow
def test_a_call_is_rejected_or_answered_instead(desk: Desk) -> None:
    run("reject", ask(desk, "t-1"), "-m", "Too much.", "-y")
    run("respond", ask(desk, "t-2"), "--value", '{"paid": "by hand"}', "-y")
    run("respond", ask(desk, "t-3"), "--value", "by hand", "-y")
    run("respond", ask(desk, "t-5"), "--value", "false", "-y")
    run("respond", ask(desk, "t-6"), "--value", "null", "-y")
    for id in ("t-1", "t-2", "t-3", "t-5", "t-6"):
        desk.runtime.get(id).outcome().get()
    told = {id: desk.json("show", id)["rows"][-3]["detail"] for id in ("t-1", "t-2", "t-3")}
    given = [desk.runtime.get(id).decisions().get()[-1].decision for id in ("t-5", "t-6")]
    assert [(one.type, one.value) for one in given] == [("respond", False), ("respond", None)]
    assert "Too much." in told["t-1"]["result"]
    assert json.loads(told["t-2"]["result"]) == {"paid": "by hand"}
    assert told["t-3"]["result"] == "by hand"
    assert desk.paid == []
    assert run("dismiss", ask(desk, "t-4"), "-y", code=4).stdout == ""


@pytest.mark.slow
def test_many_requests_about_a_tool_are_decided_at_once(desk: Desk) -> None:
    for number in range(3):
        ask(desk, f"t-{number}")
    ask(desk, "inner", "boss")
    refused = run("approve", "--all", "--tool", "pay", code=2)
    assert refused.stderr.count('"amount": 20') == 3
    done = desk.json("approve", "--all", "--tool", "pay", "-y")
    assert (done["recorded"], done["refused"]) == (4, 0)
    for id in ("t-0", "t-1", "t-2", "inner"):
        desk.runtime.get(id).outcome().get()
    assert sorted(desk.paid) == [("17", 20)] * 3 + [("9", 7)]
    run("approve", "--all", "--tool", "pay", "-y", code=3)
    run("approve", "--all", "-y", code=2)
    run("approve", "-y", code=2)


def test_a_beginning_of_several_ids_is_refused(desk: Desk) -> None:
    ids = [ask(desk, f"t-{number}") for number in range(20)]
    first = next(c for c in "0123456789abcdef" if sum(id.startswith(c) for id in ids) > 1)
    assert "is the beginning of" in run("approve", first, "-y", code=2).stderr
    assert desk.paid == []


@pytest.mark.slow
def test_an_agent_in_the_place_of_a_request_is_told_so(desk: Desk) -> None:
    request = ask(desk, "z1")
    refused = run("approve", "z1", "-y", code=3)
    assert f"z1 is an agent; its request is {request[:6]} (pay)" in refused.stderr
    desk.runtime.spawn("echo", "z2").run("hi").get()
    assert "no request that waits begins with 'z2'" in run("reject", "z2", "-y", code=3).stderr
    assert desk.paid == []


# ------------------------------------------------------------------------------- act


@pytest.mark.slow
def test_a_run_is_followed_to_its_outcome_which_is_the_exit_code(desk: Desk) -> None:
    done = run("run", "t-1", "hi", "--agent", "echo", "--wait")
    assert "Hello." in done.stdout
    asked = run("run", "t-2", "Pay 17.", "--agent", "desk", "--wait", code=10)
    assert "✓ Looking it up…" in asked.stdout
    assert '"amount": 20' in asked.stderr
    failed = run("run", "t-3", "hi", "--agent", "broken", "--wait", code=13)
    assert "no model today" in failed.stderr
    outcome = desk.json("run", "t-4", "hi", "--agent", "echo", "--wait")
    assert (outcome["outcome"], outcome["text"]) == ("completed", "Hello.")
    lines = run("run", "t-5", "hi", "--agent", "echo", "--wait", "--jsonl").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row.get("text") for row in rows] == ["hi", "Hello.", "Hello."]
    assert rows[-1]["outcome"] == "completed"


@pytest.mark.slow
def test_a_paused_and_a_stopped_run_have_exit_codes_of_their_own(desk: Desk) -> None:
    run("run", "t-1", "hi", "--agent", "echo", "--wait")
    run("pause", "t-2", code=3)
    desk.runtime.spawn("desk", "t-2").pause("for lunch").get()
    assert "for lunch" in run("run", "t-2", "Pay 17.", "--wait", code=11).stderr
    stopped = run("run", "t-3", "Look 17 up.", "--agent", "brief", "--wait", code=12)
    assert "1 of 1 steps were made" in stopped.stderr
    run("unpause", "t-2")
    assert desk.json("cancel", "t-2", "-m", "not today")["done"] is True
    assert "not today" in run("show", "t-2").stdout


def test_messages_are_sent(desk: Desk) -> None:
    sent = desk.json("send", "t-1", "hi", "--agent", "echo", "--message-id", "m1")
    assert sent["message_id"] == "m1"
    run("send", "t-1", "-", input="from a file\n")
    later = desk.json("send", "t-1", "later", "--at", "2100-01-01T00:00:00+00:00")
    assert desk.json("cancel-message", "t-1", later["message_id"]) == {"id": "t-1"}
    assert "nothing to do any more" in run("cancel-message", "t-1", "m1", code=4).stderr
    run("send", "nobody", "hi", code=3)
    for wrong in (["  "], ["hi", "--at", "tomorrow"], ["hi", "--at", "2100-01-01T00:00:00"]):
        assert run("send", "t-1", *wrong, code=2).stdout == ""


@pytest.mark.slow
def test_an_agent_is_exported_deleted_and_imported(desk: Desk, tmp_path: Path) -> None:
    ask(desk)
    file = tmp_path / "t-1.json"

    def stored() -> dict[str, Any]:
        exported: dict[str, Any] = json.loads(run("export", "t-1", "--store", desk.store).stdout)
        return exported

    # Race: the agent notes its status after the outcome of its run.
    until(lambda: stored()["records"][-1]["kind"] == "status_noted")
    run("export", "t-1", "-o", str(file))
    assert stored() == json.loads(file.read_text())
    run("delete", "t-1", code=2)
    assert desk.json("delete", "t-1", "-y")["deleted"] is True
    run("delete", "t-1", "-y", code=3)
    assert desk.json("import", str(file), "--id", "t-7")["id"] == "t-7"
    run("import", str(file), "--id", "t-7", code=2)
    run("import", "-", input="[]", code=2)
    run("import", "/nowhere", code=2)
    assert [row["id"] for row in desk.json("ls")["agents"]] == ["t-7"]


def test_a_failed_run_is_retried_and_continued_by_a_message(desk: Desk) -> None:
    """W8."""
    ref = desk.runtime.spawn("broken", "t-1")
    runs = [ref.run("hi").get().run_id]
    assert run("retry", "t-1").stdout.strip() == "the run continues where it failed"
    assert desk.json("retry", "t-1", "--run", runs[0])["done"] is True
    outcome = desk.json("run", "t-1", "and hurry", "--go-on", "--wait", code=13)
    assert outcome["error"]["type"] == "ModelFailed"
    assert outcome["run_id"] not in runs
    begun = [e.detail.get("continues") for e in ref.history().get() if e.what == "run_started"]
    assert begun[:2] == [None, runs[0]]
    assert len([each for each in begun if each]) == 2
    run("retry", "t-1", "--run", "no-such-run", code=4)


@pytest.mark.slow
def test_an_action_that_has_nothing_to_do_says_so(desk: Desk) -> None:
    run("run", "t-1", "hi", "--agent", "echo", "--wait")
    assert "give --yes" in run("compact", "t-1", code=2).stderr
    run("compact", "t-1", "--yes")
    assert "Hello." in run("show", "t-1").stdout
    run("retry", "t-1", code=4)
    assert run("settle", "t-1", "no.such.call", "--how", "it came", code=2).stdout == ""
    assert "no grant" in run("revoke", "t-1", "q-1", code=2).stderr
    assert desk.json("recover") == {"continued": []}


# --------------------------------------------------------------------------- targets


def test_without_a_store_or_a_server_it_says_what_to_give() -> None:
    assert "--store" in run("ls", code=2).stderr
    assert "--store" in run("doctor", code=2).stderr


def test_a_server_of_another_store_is_not_asked(desk: Desk, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    refused = run("send", "t-1", "hi", "--store", other, code=5)
    assert "understudy serve" in refused.stderr
    run("send", "t-1", "hi", "--agent", "echo", "--store", desk.store)


def test_a_file_that_a_program_without_pages_has_open_is_said_with_the_way_out(
    tmp_path: Path,
) -> None:
    path = tmp_path / "desk.db"
    with Runtime(agents([]), store=f"sqlite:///{path}"):
        refused = run("approve", "89e6", "--store", f"sqlite:///{path}", code=5)
        assert f":{os.getpid()} has, or had it last" in refused.stderr
        assert "understudy.web.ui" in refused.stderr
    # A process that has ended has nothing open, whatever the file says.
    lock = Path(f"{path}.lock")
    lock.write_text(f"{lock.read_text()}{platform.node()}:999999999\n")
    refused = run("approve", "89e6", "--store", f"sqlite:///{path}", code=5)
    assert refused.stderr.endswith("open: start `understudy serve`, or give --url\n")


def test_a_wrong_token_is_refused_and_it_says_how_to_give_one(desk: Desk) -> None:
    for command in (["ls"], ["events", "--follow"], ["approve", "89e6"]):
        refused = run(*command, "--url", desk.url, "--token", "wrong", code=5)
        assert refused.stdout == ""
        assert "give its --token, or UNDERSTUDY_TOKEN" in refused.stderr


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, '{"detail": "Not Found"}'), (404, "Not Found"), (200, "<p>Welcome"), (307, "[]")],
)
def test_a_server_without_pages_of_understudy_is_said_so(status: int, body: str) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(body, status)(scope, receive, send)

    with served(app) as url:
        for command in (["ls"], ["show", "t-1"], ["cancel", "t-1"]):
            refused = run(*command, "--url", url, code=5)
            assert f"no understudy pages at {url}" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("login", "told"),
    [
        (Response(status_code=401), "the server does not know you"),
        (RedirectResponse("/login", 303), "the server sends you to /login"),
        (HTMLResponse("<h1>Log in"), "the server answers with a page, such as a login"),
    ],
    ids=["nobody", "redirect", "page"],
)
def test_a_login_by_cookie_is_said_and_how_commands_come_in(
    login: Response, told: str, desk: Desk
) -> None:
    """By `Authorization: Bearer`, which the application's `auth=` takes beside its cookie."""
    everything: frozenset[Right] = frozenset(("read", "decide", "act", "admin"))

    def who(request: Request) -> User | Response:
        if request.headers.get("authorization") == "Bearer of-a-script":
            return User("script", everything)
        return User("ann", everything) if "session" in request.cookies else login

    with served(ui(desk.runtime, auth=who)) as url:
        for command in (["ls"], ["events", "--follow"], ["approve", "89e6"]):
            refused = run(*command, "--url", url, code=5)
            assert refused.stdout == ""
            assert told in refused.stderr
            assert "`auth=` has to take `Authorization: Bearer` as well" in refused.stderr
            assert "UNDERSTUDY_COOKIE" in refused.stderr
        run("ls", "--url", url, "--token", "of-a-script")


def test_a_cookie_of_a_login_is_sent_from_the_environment(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything: frozenset[Right] = frozenset(("read", "decide", "act", "admin"))

    def who(request: Request) -> User | None:
        is_ann = request.cookies.get("session") == "of-ann"
        return User("ann", everything) if is_ann else None

    with served(ui(desk.runtime, auth=who)) as url:
        run("ls", "--url", url, code=5)
        monkeypatch.setenv("UNDERSTUDY_COOKIE", "theme=dark; session=of-ann")
        run("ls", "--url", url)
        run("recover", "--url", url)  # what changes something comes in too
        run("ls", "--url", url, "--token", "of-nobody", code=5)  # a token is sent alone
        for wrong in ("of-ann", "session=ä"):
            monkeypatch.setenv("UNDERSTUDY_COOKIE", wrong)
            refused = run("ls", "--url", url, code=2)
            assert "UNDERSTUDY_COOKIE takes what a browser sends" in refused.stderr
            assert wrong not in refused.stderr


def test_a_store_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"this is no database" * 100)
    for command in ("ls", "pending", "doctor"):
        run(command, "--store", f"sqlite:///{damaged}", code=5)
    missing = run("ls", "--store", f"sqlite:///{tmp_path / 'none.db'}", code=5)
    assert "cannot be used: there is no SQLite file" in missing.stderr  # nobody wants to write
    run("ls", "--store", "mysql://x/y", code=2)


def test_doctor_tells_all_that_it_found_of_a_damaged_store(tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    with Runtime(agents([]), store=f"sqlite:///{path}") as before:
        before.spawn("desk", "t-1").run("Pay 17.").get(timeout=60)
    with closing(sqlite3.connect(path)) as database:
        of_agents = "SELECT rootpage FROM sqlite_schema WHERE name = 'agents'"
        ((page,), (size,)) = [*database.execute(of_agents), *database.execute("PRAGMA page_size")]
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    told = run("doctor", "--store", f"sqlite:///{path}", "--json", code=5).stdout
    found = [(check["check"], check["state"]) for check in json.loads(told)["checks"]]
    assert {("disk", "ok"), ("database", "bad"), ("store", "bad")} <= set(found)


@pytest.mark.parametrize(
    ("attribute", "options", "message"),
    [
        ("number", [], "program_of_serve:number must be a Runtime or agents, got 7"),
        ("later", [], "program_of_serve:later is async: name a plain function"),
        ("agents", ["--auth", "program_of_serve:number"], "--auth program_of_serve:number must be"),
    ],
)
def test_serve_says_what_is_wrong_with_what_it_is_given(
    attribute: str,
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def later() -> list[Agent]:
        return agents([])

    program = types.ModuleType("program_of_serve")
    vars(program).update(number=7, later=later, agents=agents([]))
    monkeypatch.setitem(sys.modules, "program_of_serve", program)
    store = ["--store", f"sqlite:///{tmp_path / 'new.db'}", "--port", "0"]
    refused = run("serve", f"program_of_serve:{attribute}", *store, *options, code=2)
    assert message in refused.stderr


def test_wrong_arguments_are_usage(desk: Desk) -> None:
    for wrong in (
        ["ls", "--limit", "0"],
        ["ls", "--json", "--jsonl"],
        ["ls", "--status", "busy"],
        ["pending", "--order", "youngest"],
        ["doubts", "--order", "youngest"],
        ["events", "t-1", "--follow", "--json"],
        ["events", "t-1", "--after", "x"],
        ["history", "t-1", "--after", "-1"],
        ["run", "t-1", "hi", "--jsonl"],
        ["nonsense"],
    ):
        assert run(*wrong, code=2).stdout == ""


@pytest.mark.parametrize("given", [b"\xff", b"[" * 100_000], ids=["bytes", "too deep"])
def test_what_cannot_be_read_from_standard_input_is_usage(desk: Desk, given: bytes) -> None:
    request = ask(desk, "t-1")
    commands = [["edit", request, "--args", "-", "-y"], ["import", "-"]]
    if given == b"\xff":  # else it is a text
        commands += [["send", "t-1", "-"], ["respond", request, "--value", "-", "-y"]]
    for command in commands:
        result = run(*command, input=given, code=2)
        assert result.stderr.startswith("understudy: "), command
    assert desk.paid == []


def test_doctor_tells_what_needs_somebody(desk: Desk) -> None:
    ask(desk)
    found = desk.json("doctor", "--store", desk.store)
    assert desk.json("doctor").keys() == found.keys()
    checks = {check["check"]: check for check in found["checks"]}
    assert found["ok"] is True
    assert checks["database"]["detail"] == "whole"
    assert checks["agents"]["detail"] == "1 interrupted"
    assert checks["requests"]["state"] == "note"
    assert checks["definitions"]["detail"] == "all known"


@contextmanager
def doubtful(tmp_path: Path) -> Iterator[Runtime]:
    """A runtime with its pages, whose agent `d-1` is at rest with a call in doubt."""
    entered = threading.Event()

    @tool
    async def send_money(amount: int) -> str:
        entered.set()
        await asyncio.Event().wait()
        return "sent"

    payment = call("send_money", {"amount": 20})
    agent = Agent("bank", by_turn(payment, payment, "Sent."), tools=[send_money])
    store = f"sqlite:///{tmp_path / 'doubtful.db'}"
    with Runtime([agent], store=store) as runtime, found_by_commands(runtime, store):
        ref = runtime.spawn("bank", "d-1")
        running = ref.run("Send 20.")
        assert entered.wait(60)
        ref.cancel().get(timeout=60)
        running.get(timeout=60)
        yield runtime


@pytest.mark.parametrize("form", [["{}"], ["--all", "--tool", "send_money"]], ids=["one", "all"])
def test_a_doubt_that_is_settled_since_a_request_was_asked_is_shown_so(
    form: list[str], tmp_path: Path
) -> None:
    with doubtful(tmp_path) as runtime:
        ref = runtime.get("d-1")
        (request,) = interrupted(ref.run("Send 20 again.").get(timeout=60)).requests
        approval = ["approve", *(each.format(request.id) for each in form)]
        (doubt,) = request.doubts
        if "--all" in form:
            assert "decide each by itself" in run(*approval, code=3).stderr
        else:
            assert f"\nin doubt: {doubt.reason}\n" in run(*approval, code=2).stderr
        run("settle", "d-1", doubt.call_key, "--how", "nothing was sent")
        told = run(*approval, code=2).stderr
        assert "\nin doubt" not in told
        settled = f"settled since: nothing was sent (was in doubt: {doubt.reason})"
        assert f"\n{settled}\n" in told
        ref.cancel().get(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["store", "server"])
def test_what_is_in_doubt_is_listed_with_who_settles_it(where: str, tmp_path: Path) -> None:
    @tool
    def send_money(amount: int) -> str:
        raise ConnectionError("the line is dead")

    turns = [call("send_money", {"amount": 20}), "I do not know."]
    gate = HumanInTheLoop({"send_money": True})
    tellers = [Agent("told", by_turn(*turns), tools=[send_money])]
    tellers += [Agent("asked", by_turn(*turns), tools=[send_money], middleware=[gate])]
    store = f"sqlite:///{tmp_path / 'doubts.db'}"
    at = ["--store", store] if where == "store" else []

    def listed(*options: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(run("doubts", *at, *options, "--json").stdout)[
            "doubts"
        ]
        return rows

    with Runtime(tellers, store=store) as runtime, found_by_commands(runtime, store):
        empty = run("doubts", *at)
        assert (empty.stdout, empty.stderr) == ("", "nothing is in doubt\n")
        runtime.spawn("told", "d-1").run("Send 20.").get(timeout=60)
        ref = runtime.spawn("asked", "d-2")
        outcome = interrupted(ref.run("Send 20.").get(timeout=60))
        (request,) = interrupted(ref.resume(outcome.decide(approve())).get(timeout=60)).requests
        rows = listed()
        assert [(row["agent_id"], row["tool_name"], row["request_id"]) for row in rows] == [
            ("d-1", "send_money", None),
            ("d-2", "send_money", request.id),
        ]
        assert [row["agent_id"] for row in listed("--agent", "asked")] == ["d-2"]
        assert [row["agent_id"] for row in listed("--order", "expiring")] == ["d-1", "d-2"]
        assert [row["agent_id"] for row in listed("--limit", "1")] == ["d-1"]
        assert listed("--tool", "other") == []
        lines = run("doubts", *at, "--jsonl").stdout.splitlines()
        assert [json.loads(text)["call_key"] for text in lines] == [r["call_key"] for r in rows]

        shown = run("doubts", *at)
        first, second = (text.split("\t") for text in shown.stdout.splitlines())
        assert first[:5] == [rows[0]["call_key"], "d-1", "-", "send_money", "-"]
        assert request.id.startswith(second[4])
        assert first[8].startswith("amount=20 (it raised ConnectionError: the line is dead")
        assert "understudy settle AGENT CALL --how TEXT" in shown.stderr
        assert "understudy respond, approve or reject REQUEST" in shown.stderr

        run("settle", "d-1", rows[0]["call_key"], "--how", "it was sent")
        run("respond", request.id, "--value", "sent", "-y")
        assert listed() == []


def test_doctor_tells_a_doubt_of_an_agent_at_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(*options: str) -> dict[str, Any]:
        checks = json.loads(run("doctor", "--json", *options).stdout)["checks"]
        return {check["check"]: check["detail"] for check in checks}

    with doubtful(tmp_path) as runtime:
        for options in ((), ("--quick",)):
            assert told(*options)["in doubt"].startswith("d-1 (send_money)")
            assert "not read" not in told(*options)
        ref = runtime.get("d-1")
        interrupted(ref.run("Send 20 again.").get(timeout=60))
        assert "not read" not in told()
        monkeypatch.setattr("understudy.cli.doctor.MOST", 0)
        assert told()["not read"].startswith("1 agents with an open run")
        ref.cancel().get(timeout=60)


def test_doctor_names_the_definitions_that_the_server_lacks(desk: Desk, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'other.db'}"
    with Runtime(agents([]), store=store) as before:
        before.spawn("desk", "t-1").run("Pay 17.").get(timeout=60)
    with (
        Runtime([], store=store) as runtime,
        found_by_commands(runtime, store),
    ):
        found = desk.json("doctor", "--store", store, code=1)
    checks = {check["check"]: check for check in found["checks"]}
    assert checks["definitions"]["state"] == "bad"
    assert checks["definitions"]["detail"].endswith("that open runs need: desk, of t-1")


def test_doctor_tells_what_is_overdue_and_what_has_expired_unnoticed(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'old.db'}"
    gate = HumanInTheLoop({"pay": True}, expires_after=60.0)
    payment = call("pay", {"order": "17", "amount": 20})
    asking = Agent("desk", by_turn(payment, "ok"), tools=[pay], middleware=[gate])
    long_ago = SimulatedClock(datetime(2020, 1, 1, tzinfo=timezone.utc))
    with Runtime([asking, Agent("echo", by_turn("hi"))], store=store, clock=long_ago) as runtime:
        runtime.spawn("desk", "t-1").run("Pay 17.").get(timeout=60)
        ref = runtime.spawn("echo", "t-2")
        runtime.schedule(ref, "daily", cron="0 6 * * *", input="go").get(timeout=60)
    found = json.loads(run("doctor", "--store", store, "--json", code=1).stdout)
    checks = {check["check"]: check for check in found["checks"]}
    assert checks["overdue"]["state"] == "bad"
    assert checks["overdue"]["detail"].startswith("t-1 (")
    assert "t-2 (" in checks["overdue"]["detail"]
    assert checks["expired"]["detail"].startswith("t-1 (pay)")
    assert checks["schema"]["detail"].startswith("format 1, made by understudy ")


def test_doctor_tells_what_the_tools_of_a_program_do_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    def book(day: date, room: str) -> str:
        return "booked"

    @tool
    def pay_out(amount: int) -> str:
        return "paid"

    @tool
    def look_up(order: str) -> str:
        return "a kettle"

    @tool(read_only=True)
    def read_clock(at: datetime) -> str:
        return "noon"

    @tool(idempotent=True)
    def remind(at: datetime) -> str:
        return "reminded"

    @tool(undeclared="effects")
    def ship(order: str) -> str:
        return "shipped"

    @tool(key=lambda arguments: f"refund:{arguments['order']}")
    def refund(order: str) -> str:
        return "refunded"

    said = [read_clock, remind, ship, refund]
    clerk = Agent("clerk", by_turn("x"), tools=[look_up, pay_out], undeclared="read_only")
    desk = Agent("desk", by_turn("x"), tools=[book, *said], middleware=[SubAgent([clerk])])
    gate = {"pay_out": True}
    gated = Agent("desk", by_turn("x"), tools=[look_up, pay_out], interrupt_on=gate)
    store = f"sqlite:///{tmp_path / 'new.db'}"
    with Runtime([desk], store=store):
        pass
    program = types.ModuleType("program_of_doctor")
    vars(program).update(
        desk=desk,
        said=Agent("desk", by_turn("x"), tools=said),
        gated=Runtime([gated], undeclared="read_only"),
    )
    monkeypatch.setitem(sys.modules, "program_of_doctor", program)

    def told(attribute: str) -> list[tuple[str, str]]:
        target = f"program_of_doctor:{attribute}"
        output = run("doctor", "--store", store, "--app", target, "--json").stdout
        notes = [each for each in json.loads(output)["checks"] if each["state"] == "note"]
        wanted = ("undeclared", "no key")
        return [(each["check"], each["detail"]) for each in notes if each["check"] in wanted]

    harmful, harmless, varying = told("desk")
    assert harmful[1].startswith("count as tools with effects: desk/book. A tool that")
    covered = "count as read-only, by `undeclared`: "
    assert harmless[1] == f"{covered}desk/clerk/look_up, desk/clerk/pay_out"
    assert varying[0] == "no key"
    assert "desk/book (day is a time)" in varying[1]
    assert "read_clock" not in varying[1]
    assert "remind" not in varying[1]
    assert told("said") == []

    harmful, harmless = told("gated")
    assert harmful[1].startswith("count as tools with effects: desk/pay_out.")
    assert harmless[1] == f"{covered}desk/look_up"


def test_doctor_looks_into_the_store_of_a_runtime_unless_another_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = (f"sqlite:///{tmp_path / name}.db" for name in ("own", "other"))
    for each in (store, other):
        with Runtime(agents([]), store=each):
            pass
    program = types.ModuleType("program_with_a_store")
    vars(program).update(
        runtime=Runtime(agents([]), store=store),
        made=lambda: Runtime(agents([]), store=store),
        in_memory=Runtime(agents([])),
        agents=agents([]),
    )
    monkeypatch.setitem(sys.modules, "program_with_a_store", program)

    def told(attribute: str, *options: str, code: int = 0) -> str:
        app = f"program_with_a_store:{attribute}"
        return run("doctor", "--app", app, *options, code=code).output

    assert f"{store} can be read" in told("runtime")
    assert f"{store} can be read" in told("made")
    assert f"{other} can be read" in told("runtime", "--store", other)
    assert "say which store" in told("in_memory", code=2)
    assert "say which store" in told("agents", code=2)


def test_doctor_names_the_agents_whose_definitions_a_program_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path / 'all.db'}"
    with Runtime(agents([]), store=store) as runtime:
        for name in ("desk", "boss"):
            runtime.spawn(name, f"of-{name}").run("Pay 17.").get(timeout=60)
    program = types.ModuleType("program_of_doctor")
    program.all = agents([])  # type: ignore[attr-defined]
    program.runtime = lambda: Runtime(agents([])[:1])  # type: ignore[attr-defined]
    program.cluster = Cluster("my_app:make", 1, store=store)  # type: ignore[attr-defined]
    program.changed = [Agent("desk", by_turn("x")), *agents([])[1:]]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "program_of_doctor", program)

    def told(attribute: str, code: int) -> tuple[str, str]:
        target = f"program_of_doctor:{attribute}"
        output = run("doctor", "--store", store, "--app", target, "--json", code=code).stdout
        checks = {check["check"]: check for check in json.loads(output)["checks"]}
        return checks["app"]["state"], checks["app"]["detail"]

    assert told("all", 0)[0] == "ok"
    assert told("runtime", 1) == (
        "bad",
        "program_of_doctor:runtime has no definition boss, of of-boss",
    )
    state, detail = told("changed", 0)
    assert (state, detail.endswith("desk, of of-desk")) == ("note", True)
    assert run("doctor", "--store", store, "--app", "nothing", code=2).stdout == ""
    of_hosts = run("doctor", "--store", store, "--app", "program_of_doctor:cluster", code=2)
    assert "declares no agents itself" in of_hosts.stderr


@pytest.mark.slow
def test_the_demo_has_approvals_a_nested_agent_a_question_and_a_doubt(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'demo.db'}"
    set_up(store)
    with new_runtime(store) as runtime:
        recovery = runtime.recover().get()
        for ref in recovery:
            ref.outcome().get()
        pending = runtime.pending().get()
        found = [(p.request.kind, p.request.tool_name, len(p.request.agent_path)) for p in pending]
        assert sorted(found) == [
            ("approval", "refund", 1),
            ("approval", "refund", 1),
            ("approval", "refund", 1),
            ("approval", "refund", 1),
            ("approval", "reship", 2),
            ("doubt", "book_courier", 1),
            ("interrupt", "ask_address", 1),
        ]
        one = next(p for p in pending if p.request.tool_name == "reship")
        done = runtime.get(one.agent_id).resume({one.request.id: approve()}).get()
        assert "by express" in done.explain() or "express" in getattr(done, "text", "")


def test_a_server_that_is_gone_is_forgotten(desk: Desk, tmp_path: Path) -> None:
    (server,) = running()
    folder = tmp_path / "run" / "understudy"
    gone = folder / "server-999999999.json"
    gone.write_text(json.dumps({"url": "x", "token": "x", "pid": 999999999, "store": None}))
    gone.chmod(0o600)
    open_to_all = folder / "server-1.json"
    open_to_all.write_text(json.dumps({"url": "x", "token": "x", "pid": 1, "store": None}))
    open_to_all.chmod(0o644)
    assert running() == [server]
    assert not gone.exists()
    assert (folder / f"server-{server.pid}.json").stat().st_mode & 0o777 == 0o600


def test_a_runtime_says_the_name_of_its_store() -> None:
    agent = Agent("echo", ScriptedModel(["hi"]))
    assert Runtime([agent], store="memory:").store_name == "memory:"


@pytest.mark.slow
def test_a_schedule_is_paused_and_continued_triggered_and_removed(desk: Desk) -> None:
    ref = desk.runtime.spawn("echo", "t-9")
    desk.runtime.schedules(ref).set("daily", cron="0 6 * * *", input="go").get(timeout=60)

    def changed(*change: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = desk.json("schedules", "t-9", *change)["schedules"]
        return found

    assert changed("--pause", "daily")[0]["paused"] is True
    assert changed("--unpause", "daily")[0]["paused"] is False
    assert [row["id"] for row in changed("--trigger", "daily")] == ["daily"]
    assert desk.runtime.schedules(ref).list().get(timeout=60)[0].latest is not None
    run("schedules", "t-9", "--pause", "nightly", code=2)
    run("schedules", "t-9", "--pause", "daily", "--remove", "daily", code=2)
    refused = run("schedules", "t-9", "--remove", "daily", code=2)
    assert "give --yes" in refused.stderr
    assert len(desk.json("schedules", "t-9")["schedules"]) == 1
    assert changed("--remove", "daily", "--yes") == []


@pytest.mark.slow
@pytest.mark.parametrize("where", ["store", "server"])
def test_a_list_that_is_cut_says_so(desk: Desk, where: str) -> None:
    """`pending` and `ls` ended after 100 rows, which looked like the whole list to a program."""
    for number in range(3):
        ask(desk, f"t-{number}")
    at = ["--store", desk.store] if where == "store" else []
    for command, name in (("ls", "agents"), ("pending", "requests")):
        assert "more than" not in (whole := run(command, "--limit", "3", "--json", *at)).stderr
        assert json.loads(whole.stdout)["more"] is False
        cut = run(command, "--limit", "2", "--json", *at)
        assert (len(json.loads(cut.stdout)[name]), json.loads(cut.stdout)["more"]) == (2, True)
        for form in ([], ["--json"], ["--jsonl"]):
            said = run(command, "--limit", "2", *form, *at).stderr
            assert "there are more than these 2: without --limit all are listed" in said
    assert desk.json("doubts", *at) == {"doubts": [], "more": False}
    assert "there is more: --after" in run("history", "t-0", "--limit", "1", *at).stderr


def test_no_doubt_is_approved_with_others_at_once(tmp_path: Path) -> None:
    @tool
    def send(to: str) -> str:
        raise ConnectionError("the line is dead")

    gate = HumanInTheLoop({"send": True})
    sender = Agent("sender", by_turn(call("send", {"to": "ann"})), tools=[send], middleware=[gate])
    store = f"sqlite:///{tmp_path / 'doubt.db'}"
    with Runtime([sender], store=store) as runtime, found_by_commands(runtime, store):
        ref = runtime.spawn("sender", "s-1")
        outcome = interrupted(ref.run("Send.").get())
        interrupted(ref.resume(outcome.decide(approve())).get())
        for kind in ("approve", "reject"):
            refused = run(kind, "--all", "--tool", "send", "-y", code=3)
            assert "a call is in doubt, decide each by itself" in refused.stderr
        assert len(runtime.doubts().get()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("where", ["store", "server"])
def test_lists_have_all_rows_without_a_limit(
    desk: Desk, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.cli.sources.PAGE", 3)
    for number in range(8):
        ask(desk, f"t-{number}")
    at = ["--store", desk.store] if where == "store" else []
    for command, name in (("ls", "agents"), ("pending", "requests")):
        found = desk.json(command, *at)
        assert (len(found[name]), found["more"]) == (8, False)
        told = run(command, *at)
        assert (len(told.stdout.splitlines()), told.stderr) == (8, "")
        cut = run(command, "--limit", "5", *at)
        assert len(cut.stdout.splitlines()) == 5
        assert "without --limit all are listed" in cut.stderr


def test_a_kind_is_also_named_by_its_word(desk: Desk) -> None:
    ask(desk)
    assert desk.json("pending", "--kind", "question")["requests"] == []
    assert len(desk.json("pending", "--kind", "approval")["requests"]) == 1


def test_the_help_has_the_commands_in_groups_and_each_of_them_is_there() -> None:
    from typer.main import get_command

    from understudy.cli.app import COMMANDS, app

    told = run("--help").stdout
    listed = [name for group in COMMANDS.values() for name in group]
    assert len(set(listed)) == len(listed)
    found: Any = get_command(app)
    for title, group in COMMANDS.items():
        assert f"\n{title}:\n" in told
        for name, (_, text) in group.items():
            assert re.search(rf"^  {name}  ", told, re.MULTILINE), name
            assert not text.endswith(".")
            assert found.commands[name].help, name
    assert [name for name in found.commands if name not in listed] == []


def test_the_changes_of_a_trial_are_those_that_the_help_names() -> None:
    from understudy.cli.rules import CHANGE_NAMES
    from understudy.trust.trial import CHANGES

    assert CHANGE_NAMES.replace("-", "_").split(", ") == list(CHANGES)
