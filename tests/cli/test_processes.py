"""The command as a process: a server that holds its store, signals, a missing library (J41)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest

from tests.support.processes import SECONDS, is_running, until
from tests.support.programs import PIPE, Started, ran, started
from tests.support.web_server import held_port
from understudy import Observer, Runtime

pytestmark = pytest.mark.slow
COMMAND = ("-m", "understudy")
PROGRAM = """
from understudy import Agent, Runtime, ScriptedModel, call, tool

@tool
async def pay(amount: int) -> str:
    return f"paid {amount}"

def reply(request):
    steps = [call("pay", {"amount": 5}), "It is paid."]
    return steps[(len(request.messages) - 1) // 2 % 2]

desk = Agent("desk", ScriptedModel(reply), tools=[pay], interrupt_on={"pay": True})
agents = [desk]

def runtime():
    return Runtime([desk], store="sqlite:///desk.db", feed=True)

def broken():
    raise RuntimeError("no configuration")

nothing = 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "desk_program.py").write_text(PROGRAM)
    return tmp_path


PAYING = """
import os
from pathlib import Path

from understudy import Agent, Runtime, ScriptedModel, call, tool

@tool
async def pay(amount: int) -> str:
    with Path("paid").open("a") as file:
        print(amount, file=file)
    return f"paid {amount}"

def reply(request):
    return [call("pay", {"amount": 5}), "It is paid."][(len(request.messages) - 1) // 2 % 2]

desk = Agent("desk", ScriptedModel(reply), tools=[pay], interrupt_on={"pay": True})

def runtime():
    return Runtime([desk], store=os.environ["DESK_STORE"], feed=True)
"""


def environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "100"}


def command(folder: Path, *arguments: str, code: int = 0, input: str | None = None) -> str:
    done = ran(*COMMAND, *arguments, cwd=folder, env=environment(folder), input=input)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[Started, Any]]:
    """A server, and what it says of itself."""
    process = started(
        *(*COMMAND, "serve", *arguments, "--port", "0", "--json"),
        cwd=folder,
        env=environment(folder),
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        stdout: IO[str] | None = process.stdout
        assert stdout is not None
        first = stdout.readline()
        if not first:
            yield process, None
        else:
            yield process, json.loads(first)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors, errors


@pytest.mark.parametrize(
    "module",
    ["typer", "understudy.cli.app", "understudy.cli.doctor", "understudy.cli.doctor_store"],
)
def test_ctrl_c_while_a_command_imports_ends_it_with_one_line(tmp_path: Path, module: str) -> None:
    program = """
import signal, sys

class PressesCtrlC:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
for loaded in [name for name in sys.modules if name.startswith(("typer", "understudy.cli"))]:
    del sys.modules[loaded]
sys.meta_path.insert(0, PressesCtrlC())
from understudy.cli import main
main()
"""
    program = program.replace("sys.argv[1]", repr(module))
    done = ran("-c", program, "doctor", cwd=tmp_path, env=environment(tmp_path))
    told = "understudy: ended by Ctrl-C\n"
    assert (done.returncode, done.stdout, done.stderr) == (130, "", told)


def test_a_server_holds_its_store_and_commands_go_beside_it_and_through_it(folder: Path) -> None:
    """J41."""
    store = "sqlite:///desk.db"
    with serving(folder, "desk_program:runtime") as (process, said):
        assert said["page"].startswith(f"{said['url']}/?token=")
        assert said["token"] not in said["page"]
        found = command(folder, "run", "t-1", "pay", "--agent", "desk", "--wait", code=10)
        assert "pay" in found
        assert (
            json.loads(command(folder, "ls", "--store", store, "--json"))["agents"][0]["id"]
            == "t-1"
        )
        (request,) = json.loads(command(folder, "pending", "--json"))["requests"]

        follower = started(
            *(*COMMAND, "events", "t-1", "--follow", "--jsonl"),
            cwd=folder,
            env=environment(folder),
            stdout=PIPE,
        )
        assert follower.stdout is not None
        kinds: list[str] = []
        while "request_made" not in kinds:
            kinds.append(json.loads(follower.stdout.readline())["event"]["kind"])
        command(folder, "approve", request["id"][:6], "--yes", "--store", store)
        while "run_finished" not in kinds:
            kinds.append(json.loads(follower.stdout.readline())["event"]["kind"])
        follower.send_signal(signal.SIGINT)
        assert follower.wait(timeout=60) == 130
        follower.stdout.close()

        # A second server cannot have the store.
        with serving(folder, "desk_program:runtime") as (second, nothing):
            assert nothing is None
            assert second.wait(timeout=60) == 5
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    with Observer(f"sqlite:///{folder / 'desk.db'}") as observer:
        (info,) = observer.agents().get()
        assert info.status.value == "idle"
    command(folder, "send", "t-1", "hi", "--store", store, code=5)


def test_a_server_with_an_open_stream_ends_when_it_is_told_to(folder: Path) -> None:
    with serving(folder, "desk_program:agents", "--store", "sqlite:///a.db") as (process, said):
        command(folder, "run", "t-1", "pay", "--agent", "desk", "--wait", code=10)
        follower = started(
            *(*COMMAND, "events", "t-1", "--follow", "--jsonl", "--url", said["url"]),
            cwd=folder,
            env=environment(folder),
            stdout=PIPE,
            stderr=PIPE,
        )
        assert follower.stdout is not None
        follower.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        follower.communicate(timeout=60)
        assert follower.returncode == 5


def servers_of(folder: Path) -> list[str]:
    return [path.name for path in (folder / "run" / "understudy").glob("server-*.json")]


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as held:
        yield held


def test_a_server_restarts_when_the_code_changes(folder: Path, port: int) -> None:
    program = folder / "desk_program.py"
    who = "\nfrom understudy.web import loopback_only\nwho = loopback_only('eve')\n"
    program.write_text(program.read_text() + who)
    options = ["--reload", "--auth", "desk_program:who", "--port", str(port)]
    process = started(
        *(*COMMAND, "serve", "desk_program:runtime", *options),
        cwd=folder,
        env=environment(folder),
        stderr=PIPE,
        is_fresh=True,
    )
    try:
        before = until(lambda: servers_of(folder))
        command(folder, "run", "t-1", "pay", "--agent", "desk", "--wait", code=10)
        program.write_text(program.read_text() + "# changed\n")
        until(lambda: servers_of(folder) not in ([], before))
        (agent,) = json.loads(command(folder, "ls", "--json"))["agents"]
        assert agent["status"] == "interrupted"
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors, errors
    assert servers_of(folder) == []


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("desk_program", "module:attr"),
        ("no_such_module:x", "no module"),
        ("desk_program:no_such", "has no"),
        ("desk_program:broken", "no configuration"),
        ("desk_program:nothing", "must be a Runtime"),
        ("desk_program:agents", "--store"),
    ],
)
def test_what_cannot_be_served_is_said(folder: Path, target: str, told: str) -> None:
    done = ran(*COMMAND, "serve", target, cwd=folder, env=environment(folder))
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_without_the_libraries_it_says_how_to_get_them(folder: Path) -> None:
    (folder / "typer.py").write_text("raise ImportError('not here', name='typer')")
    code = "from understudy.cli import main; main()"
    done = ran("-c", code, cwd=folder, env=environment(folder), is_fresh=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'understudy[cli]'" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed(folder: Path, shell: str) -> None:
    env = {**environment(folder), "_UNDERSTUDY_COMPLETE": f"source_{shell}"}
    done = ran(*COMMAND, cwd=folder, env=env)
    assert "understudy" in done.stdout.lower(), (done.returncode, done.stdout, done.stderr)


def test_the_package_imports_nothing_of_the_command_line() -> None:
    code = (
        "import sys, understudy, understudy.actors; "
        "print(sorted(n for n in sys.modules if n in ('typer', 'starlette', 'understudy.cli')))"
    )
    done = ran("-c", code, is_fresh=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    assert Runtime is not None


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_what_a_server_asked_before_it_was_killed_is_approved_at_the_next_one(
    folder: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = "sqlite:///desk.db" if kind == "sqlite" else request.getfixturevalue("postgres_store")
    monkeypatch.setenv("DESK_STORE", store)
    (folder / "paying.py").write_text(PAYING)
    with serving(folder, "paying:runtime") as (process, _):
        command(folder, "run", "t-1", "pay", "--agent", "desk", "--wait", code=10)
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL
    assert not (folder / "paid").exists()
    if kind == "postgres":
        with psycopg.connect(store) as connection:  # its lease is over sooner than in a minute
            connection.execute("UPDATE understudy.hosts SET lease_until = clock_timestamp()")
    with serving(folder, "paying:runtime"):
        (asked,) = json.loads(command(folder, "pending", "--json"))["requests"]
        follower = started(
            *(*COMMAND, "events", "t-1", "--follow", "--jsonl"),
            cwd=folder,
            env=environment(folder),
            stdout=PIPE,
        )
        assert follower.stdout is not None
        command(folder, "approve", asked["id"], "--yes")
        kinds = [""]
        while kinds[-1] != "run_finished":
            kinds.append(json.loads(follower.stdout.readline())["event"]["kind"])
        follower.send_signal(signal.SIGINT)
        assert follower.wait(timeout=60) == 130
        follower.stdout.close()
        assert json.loads(command(folder, "pending", "--json"))["requests"] == []
        shown = json.loads(command(folder, "ls", "--json"))["agents"]
        assert [(row["id"], row["status"]) for row in shown] == [("t-1", "idle")]
    assert (folder / "paid").read_text() == "5\n"


@contextmanager
def serving_by_processes(folder: Path, store: str, log: Path) -> Iterator[tuple[Started, Any]]:
    """A server of two processes, which tells what it does in a file."""
    with log.open("w") as errors:
        process = started(
            *(*COMMAND, "serve", "desk_program:agents", "--store", store, "--processes", "2"),
            *("--port", "0", "--json"),
            cwd=folder,
            env=environment(folder),
            stdout=PIPE,
            stderr=errors.fileno(),
            is_fresh=True,
        )
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert "Traceback" not in log.read_text(), log.read_text()


def serving_pids(log: Path) -> list[int]:
    """The processes that have begun to serve, in order."""
    lines = [line.split() for line in log.read_text().splitlines() if " serves (" in line]
    return [int(line[line.index("serves") - 1]) for line in lines]


@pytest.mark.timeout(600)  # it starts four interpreters one after the other
def test_several_processes_serve_one_port_and_one_that_is_killed_is_started_again(
    folder: Path, postgres_store: str
) -> None:
    """J76."""
    log = folder / "log"
    with serving_by_processes(folder, postgres_store, log) as (process, _):
        first = until(lambda: pids if len(pids := serving_pids(log)) == 2 else [])
        command(folder, "run", "t-1", "pay", "--agent", "desk", "--wait", code=10)
        os.kill(first[0], signal.SIGKILL)
        all_three = until(lambda: pids if len(pids := serving_pids(log)) == 3 else [])
        assert f"process {first[0]} has ended by signal 9: another one starts" in log.read_text()
        (agent,) = json.loads(command(folder, "ls", "--json"))["agents"]
        assert agent["status"] == "interrupted"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=SECONDS) == 0
        assert not any(map(is_running, all_three))
    assert servers_of(folder) == []


def test_processes_end_where_the_one_that_watches_them_is_killed(
    folder: Path, postgres_store: str
) -> None:
    """J76."""
    log = folder / "log"
    with serving_by_processes(folder, postgres_store, log) as (process, _):
        pids = until(lambda: pids if len(pids := serving_pids(log)) == 2 else [])
        process.send_signal(signal.SIGKILL)
        until(lambda: not any(map(is_running, pids)))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["desk_program:runtime"], "is for one process"),
        (["desk_program:agents", "--store", "memory:"], "is for one process"),
        (["desk_program:agents", "--store", "postgresql:///a", "--reload"], "for one process"),
    ],
)
def test_what_several_processes_cannot_serve_is_said(
    folder: Path, options: list[str], told: str
) -> None:
    done = ran(
        *(*COMMAND, "serve", *options, "--processes", "2"), cwd=folder, env=environment(folder)
    )
    assert done.returncode == 2
    assert told in done.stderr
