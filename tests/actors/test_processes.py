"""Processes of one machine keep an agent's calls at the process that has it (J76)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.agents import completed
from tests.support.hosts import host
from tests.support.loops import soon
from tests.support.peer_process import THERE, desk, entered, lines, one_that_lives_at, peer
from tests.support.postgres import Hosts
from understudy import Runtime, Stopped
from understudy.errors import Fenced

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes so"),
]
HERE = "here"


@asynccontextmanager
async def opened(hosts: Hosts, folder: Path) -> AsyncIterator[Runtime]:
    async with Runtime([desk(folder)], store=host(hosts, HERE, lease=2)) as runtime:
        yield runtime


def rows_ever_posted(hosts: Hosts) -> int:
    """How many calls went by the store, since it was made."""
    ((is_called, last),) = hosts.sql("SELECT is_called, last_value FROM inbox_id_seq")
    assert isinstance(last, int)
    return last if is_called else 0


def epoch_of(hosts: Hosts, id: str) -> object:
    """How often the agent was claimed."""
    ((epoch,),) = hosts.sql("SELECT epoch FROM agents WHERE agent_id = %s", id)
    return epoch


async def test_each_call_goes_to_the_process_that_has_the_agent(
    hosts: Hosts, tmp_path: Path
) -> None:
    """J76."""
    (tmp_path / "go").touch()
    with peer(hosts, tmp_path) as other:
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE) as ref:
            before = epoch_of(hosts, ref.id)
            outcome = completed(await soon(ref.run("work")))
            assert outcome.text == "done"
            assert len(outcome.state.messages) == 8
            assert outcome.state.run is not None
            assert outcome.explain().startswith("Completed after 3 model calls")
            assert lines(tmp_path / "paid") == [str(other.pid)]
            asked = await soon(ref.outcome())
            assert completed(asked).text == "done"
            await soon(ref.notify("Told", "news"))
            assert lines(tmp_path / "told") == ["news"]
            await soon(ref.send("hello"))
            assert (await ref.info()).host == THERE
            assert (epoch_of(hosts, ref.id), rows_ever_posted(hosts)) == (before, 0)


async def test_a_run_that_goes_on_there_is_cancelled_from_here(
    hosts: Hosts, tmp_path: Path
) -> None:
    with peer(hosts, tmp_path):
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE) as ref:
            run = ref.run("work")
            await entered(tmp_path / "held")
            await soon(ref.cancel())
            assert isinstance(await soon(run), Stopped)
            assert rows_ever_posted(hosts) == 0


async def test_without_the_socket_an_agent_at_rest_changes_hands(
    hosts: Hosts, tmp_path: Path
) -> None:
    """The control: a process of another version is none of these processes."""
    with peer(hosts, tmp_path, without="version"):
        async with opened(hosts, tmp_path) as runtime:
            ref = runtime.spawn("desk", "t")
            for _ in range(20):
                await soon(ref.run("hello"))
                assert (await ref.info()).host == HERE


@pytest.mark.faults
async def test_a_process_that_is_killed_in_the_middle_of_a_call_loses_nothing(
    hosts: Hosts, tmp_path: Path
) -> None:
    """J76: what had finished is not repeated, and who waits gets the outcome."""
    with peer(hosts, tmp_path) as other:
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE) as ref:
            run = ref.run("work")
            await entered(tmp_path / "held")
            behind = ref.send("hello")
            await soon(behind)
            other.send(signal.SIGKILL)
            await entered(tmp_path / "held", 2)
            (tmp_path / "go").touch()
            assert completed(await soon(run)).text == "done"
            assert lines(tmp_path / "paid") == [str(other.pid)]


@pytest.mark.faults
async def test_a_call_that_may_have_been_done_is_not_made_again(
    hosts: Hosts, tmp_path: Path
) -> None:
    """J76."""
    with peer(hosts, tmp_path) as other:
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE) as ref:
            other.send(signal.SIGSTOP)
            told = ref.notify("Told", "news")
            await asyncio.sleep(0)
            other.send(signal.SIGKILL)
            with pytest.raises(Fenced, match="nobody knows"):
                await soon(told)
            assert lines(tmp_path / "told") == []


@pytest.mark.faults
@pytest.mark.parametrize("without", ["", "freshness"])
async def test_a_process_that_was_suspended_begins_no_call_that_may_be_done_elsewhere_by_now(
    hosts: Hosts, tmp_path: Path, without: str
) -> None:
    """J76: what is not known by an id would be done twice: the control does it once it is awake.

    Nobody takes the agent meanwhile: else its epoch would refuse the call as well.
    """
    with peer(hosts, tmp_path, without=without) as other:
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE) as ref:
            other.send(signal.SIGSTOP)
            told = ref.notify("Told", "late")
            with pytest.raises(Fenced, match="nobody knows"):
                await soon(told)
            other.send(signal.SIGCONT)
            if without:
                await entered(tmp_path / "told")
                return
            async with one_that_lives_at(runtime, THERE, "again"):
                assert lines(tmp_path / "told") == []


@pytest.mark.faults
async def test_an_agent_at_rest_is_taken_from_a_process_that_is_suspended(
    hosts: Hosts, tmp_path: Path
) -> None:
    """J76: nothing of it goes on, so its lease is not waited for."""
    with peer(hosts, tmp_path) as other:
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE) as ref:
            other.send(signal.SIGSTOP)
            told = ref.notify("Told", "late")
            run = ref.run("hello")
            with pytest.raises(Fenced, match="nobody knows"):
                await soon(told)
            assert completed(await soon(run)).text == "hello"
            assert (await ref.info()).host == HERE
            other.send(signal.SIGCONT)
            async with one_that_lives_at(runtime, THERE, "again"):
                assert lines(tmp_path / "told") == []


@pytest.mark.faults
async def test_a_run_of_a_process_that_is_suspended_goes_on_here_once_its_lease_has_ended(
    hosts: Hosts, tmp_path: Path
) -> None:
    with peer(hosts, tmp_path, lease=4) as other:
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE) as ref:
            run = ref.run("work")
            await entered(tmp_path / "held")
            other.send(signal.SIGSTOP)
            await entered(tmp_path / "held", 2)
            (tmp_path / "go").touch()
            outcome = completed(await soon(run))
            other.send(signal.SIGCONT)
            assert outcome.text == "done"
            assert lines(tmp_path / "paid") == [str(other.pid)]
            async with one_that_lives_at(runtime, THERE, "again"):
                state = await soon(ref.state())
            assert len(state.messages) == len(outcome.state.messages)


async def test_a_process_that_leaves_hands_its_agents_over(hosts: Hosts, tmp_path: Path) -> None:
    with peer(hosts, tmp_path) as other:
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE) as ref:
            run = ref.run("work")
            await entered(tmp_path / "held")
            other.send(signal.SIGTERM)  # as nobody handles it, it is killed
            (tmp_path / "go").touch()
            assert completed(await soon(run)).text == "done"
            assert completed(await soon(ref.run("hello"))).text == "hello"
            assert len(lines(tmp_path / "paid")) == 1


async def test_what_is_no_json_is_done_by_the_process_that_has_it(
    hosts: Hosts, tmp_path: Path
) -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    with peer(hosts, tmp_path):
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE) as ref:
            await soon(ref.notify("Told", Odd()))
            assert lines(tmp_path / "told") == ["odd"]
            assert (await ref.info()).host == HERE


@pytest.mark.faults
async def test_calls_behind_one_that_a_process_refuses_stay_behind_it(
    hosts: Hosts, tmp_path: Path
) -> None:
    """J76."""
    with peer(hosts, tmp_path, without="one"):
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE) as ref:
            (tmp_path / "refuse").touch()
            await soon(asyncio.gather(*(ref.send(each, message_id=each) for each in "ab")))
            await soon(asyncio.gather(*(ref.outcome(message_id=each) for each in "ab")))
            prompts = [
                part.content
                for message in (await soon(ref.state())).messages
                for part in message.parts
                if part.part_kind == "user-prompt"
            ]
            assert prompts[-2:] == ["a", "b"]


def _listening() -> list[str]:
    """The addresses at which processes listen for others."""
    names = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()]
    return [name for name in names if name.startswith("@understudy-")]


async def test_a_stranger_is_told_nothing(hosts: Hosts, tmp_path: Path) -> None:
    """J76."""
    with peer(hosts, tmp_path):
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE) as ref:
            spoken = 0
            for name in _listening():
                with (
                    socket.socket(socket.AF_UNIX) as stranger,
                    # One of another test, which has ended meanwhile.
                    contextlib.suppress(ConnectionRefusedError),
                ):
                    stranger.settimeout(60)
                    stranger.connect(b"\0" + name[1:].encode())
                    stranger.sendall(b"\0\0\0\x02[]" if spoken else b"\0\0\0\x01.")
                    assert await asyncio.to_thread(stranger.recv, 1) == b""
                    spoken += 1
            assert spoken >= 2
            assert completed(await soon(ref.run("hello"))).text == "hello"
            assert (await ref.info()).host == THERE


async def test_calls_with_what_stays_in_a_process_are_done_there(
    hosts: Hosts, tmp_path: Path
) -> None:
    with peer(hosts, tmp_path):
        async with opened(hosts, tmp_path) as runtime, one_that_lives_at(runtime, THERE):
            for number in range(10):
                ref = runtime.spawn("desk", f"own{number}", deps={"a": object()})
                await soon(ref.run("hello"))
                assert (await ref.info()).host == HERE


def test_where_one_process_runs_nothing_of_it_is_imported(hosts: Hosts, tmp_path: Path) -> None:
    """J76."""
    program = f"""
import asyncio, sys
from pathlib import Path
from understudy import Runtime
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend
from tests.support.peer_process import desk

async def main():
    backend = PostgresBackend({hosts.url!r}, host="a", schema={hosts.schema!r})
    async with Runtime([desk(Path("."))], store=DatabaseStore(backend)) as runtime:
        await runtime.spawn("desk", "t").run("hello")
    assert not [name for name in sys.modules if name.startswith("understudy.actors.hosts.peers")]

asyncio.run(main())
"""
    subprocess.run(
        [sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2], timeout=120
    )
