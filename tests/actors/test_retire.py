"""Agents of which nothing is open are put into an archive, and deleted (J87)."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Held, by_turn, completed, desk, interrupted, until_status
from tests.support.hosts import stores
from tests.support.loops import soon
from tests.support.places import MemoryPlace, Place
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    approve,
    call,
    reject,
    tool,
)
from understudy.actors import Retire, read_archive
from understudy.approvals import approval
from understudy.errors import ApprovalNeeded, UnknownAgent, UsageError
from understudy.middleware import Workspace
from understudy.state.records import record_from_dict, record_to_dict

MONTH = timedelta(days=30)
SECONDS = MONTH.total_seconds()


@tool
def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: how much.
    """
    return f"paid {amount}"


async def rest(runtime: Runtime, *ids: str) -> None:
    """Have agents come to rest."""
    for id in ids:
        ref = runtime.spawn("desk", id=id)
        await soon(ref.run("go"))
        await soon(ref.state())  # its status is recorded, too


async def ids(runtime: Runtime) -> list[str]:
    return [info.id for info in await soon(runtime.agents())]


def archived(path: Path) -> list[str]:
    return [data["agent_id"] for data in read_archive(path)]


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
async def test_what_is_retired_can_be_imported_again(
    place: Place, clock: SimulatedClock, tmp_path: Path, ending: str
) -> None:
    if ending == ".jsonl.zst":
        pytest.importorskip("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")
    path = tmp_path / f"archive{ending}"
    async with Runtime([desk("hello")], store=place.store(), clock=clock) as runtime:
        await rest(runtime, "a", "b")
        before = (await soon(runtime.get("a").state())).to_dict()
        clock.advance(SECONDS)
        await rest(runtime, "young")
        done = await soon(runtime.retire(older_than=MONTH, to=path, by="ann"))
        assert (done.agents, done.archive, done.left, done.dry_run) == (2, path, {}, False)
        assert done.bytes == path.stat().st_size
        assert archived(path) == ["a", "b"]
        assert await ids(runtime) == ["young"]
        with pytest.raises(UnknownAgent, match=r"was deleted at .* by ann"):
            await soon(runtime.get("a").state())
        (first, _) = read_archive(path)
        assert first["retired"]["by"] == "ann"
        ref = await soon(runtime.import_(first))
        after = (await soon(ref.state())).to_dict()
        assert after["messages"] == before["messages"]
        completed(await soon(ref.run("again")))


async def test_files_and_the_ids_of_old_messages_are_in_the_archive(
    place: Place, clock: SimulatedClock, tmp_path: Path
) -> None:
    writes = call("write_file", {"path": "a.txt", "text": "some text"})
    agent = Agent("desk", by_turn(writes), middleware=[Workspace()])
    async with Runtime([agent], store=place.store(), clock=clock) as runtime:
        await soon(runtime.spawn("desk", id="a").run("go", message_id="mail-1"))
        await soon(runtime.compact("a"))
        whole = await soon(runtime.export("a"))
        assert (await soon(runtime.retire(older_than=0, to=tmp_path / "x.jsonl"))).agents == 1
        (line,) = read_archive(tmp_path / "x.jsonl")
        assert line.pop("retired")
        # What a record lacks, and what it has as null, are the same record.
        for each in (line, whole):
            each["records"] = [*map(record_from_dict, each["records"])]
        assert line == whole
        line["records"] = [*map(record_to_dict, line["records"])]
        ref = await soon(runtime.import_(line))
        state = await soon(ref.state())
        assert list(state.files or ()) == ["a.txt"]
        assert await soon(ref.load_blobs([*state.file_hashes]))


async def test_agents_of_which_something_is_open_stay_whatever_status_is_asked_for(
    place: Place, clock: SimulatedClock, tmp_path: Path
) -> None:
    """J87."""

    @tool
    async def nap(ctx: ToolContext) -> str:
        await ctx.sleep("nap", 99)
        return "slept"

    def fail(_request: Any) -> Any:
        raise RuntimeError("no model")

    held = Held()
    agents = [
        desk(),
        Agent("asks", by_turn(call("pay", {"amount": 1})), tools=[pay], interrupt_on={"pay": True}),
        Agent("naps", by_turn(call("nap")), tools=[nap]),
        Agent("fails", ScriptedModel(fail)),
        Agent("holds", ScriptedModel([held])),
    ]
    async with Runtime(agents, store=place.store(), clock=clock) as runtime:
        for name in ("asks", "naps", "fails"):
            runtime.spawn(name, id=name).run("go")
        await until_status(runtime.get("asks"), Status.INTERRUPTED)
        await until_status(runtime.get("naps"), Status.WAITING)
        await until_status(runtime.get("fails"), Status.FAILED)
        await rest(runtime, "schedule", "paused schedule", "timed", "rests")
        for id in ("schedule", "paused schedule"):
            await soon(runtime.schedule(id, "s", cron="0 9 * * *", input="go"))
        await soon(runtime.schedules("paused schedule").pause("s"))
        await soon(runtime.get("timed").send("later", at=clock.now() + timedelta(days=99)))
        holds = runtime.spawn("holds", id="holds")
        run = holds.run("go")
        await soon(held.entered.wait())
        await soon(holds.send("for the next run"))
        await soon(holds.cancel())
        await soon(run)
        for status in (None, "idle", "failed", "cancelled"):
            found = await soon(runtime.retire(older_than=0, status=status, dry_run=True))
            expected = {None: 2, "idle": 1, "failed": 1, "cancelled": 0}
            assert (found.agents, found.archive) == (expected[status], None), found
        done = await soon(runtime.retire(older_than=0, to=tmp_path / "x.jsonl"))
        assert sorted(archived(tmp_path / "x.jsonl")) == ["fails", "rests"]
        assert done.left == {
            "holds": "a message is queued",
            "paused schedule": "it has a schedule, or a message with a time",
        }
        left = ["asks", "holds", "naps", "paused schedule", "schedule", "timed"]
        assert await ids(runtime) == left


async def test_an_agent_in_doubt_stays(clock: SimulatedClock, tmp_path: Path) -> None:
    @tool
    async def charge() -> str:
        """Charge."""
        raise ConnectionError

    def of(request: Any) -> Any:
        return "done" if len(request.messages) > 2 else call("charge")

    agent = Agent("desk", ScriptedModel(of), tools=[charge], unknown_after=ConnectionError)
    async with Runtime([agent], clock=clock) as runtime:
        await rest(runtime, "a")
        assert len(await soon(runtime.doubts())) == 1
        assert (await soon(runtime.retire(older_than=0, dry_run=True))).agents == 0


async def test_a_message_that_comes_between_the_look_and_the_deletion_keeps_its_agent(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J87."""
    store = place.store()
    async with Runtime([desk("hello", "again")], store=store) as runtime:
        await rest(runtime, "a", "b")
        load = store.load_whole

        async def loaded(of: Any) -> Any:
            found = await load(of)
            await soon(runtime.get("a").run("one more"))
            return found

        monkeypatch.setattr(store, "load_whole", loaded)
        done = await soon(runtime.retire(older_than=0, to=tmp_path / "x.jsonl"))
        assert done.agents == 1
        assert done.left == {"a": "it has changed meanwhile, or is in use"}
        assert archived(tmp_path / "x.jsonl") == ["a", "b"]
        assert await ids(runtime) == ["a"]
        assert len((await soon(runtime.get("a").state())).messages) == 4


async def test_a_message_that_comes_during_the_deletion_is_refused_or_begins_an_agent(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.store()
    async with Runtime([desk("hello")], store=store) as runtime:
        await rest(runtime, "a", "b")
        retire = store.retire
        sent: list[Any] = []

        async def retired(agents: Any, by: Any = None) -> Any:
            gone = await retire(agents, by)
            sent.append(runtime.get("a").run("too late"))
            sent.append(runtime.spawn("desk", id="b").run("anew"))
            return gone

        monkeypatch.setattr(store, "retire", retired)
        assert (await soon(runtime.retire(older_than=0, to=tmp_path / "x.jsonl"))).agents == 2
        with pytest.raises(UnknownAgent):
            await soon(sent[0])
        completed(await soon(sent[1]))
        assert await ids(runtime) == ["b"]
        assert len((await soon(runtime.get("b").state())).messages) == 2


@pytest.mark.parametrize("at", ["archive", "deletion"])
async def test_where_it_is_cut_off_each_agent_is_in_the_store_or_in_the_archive(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """J87."""
    monkeypatch.setattr("understudy.actors.retiring.AT_ONCE", 2)
    store, path = place.store(), tmp_path / "x.jsonl.gz"
    names = [f"a{number}" for number in range(5)]
    async with Runtime([desk("hello")], store=store) as runtime:
        await rest(runtime, *names)
        calls = 0

        async def cut() -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise asyncio.CancelledError

        method = "retire" if at == "deletion" else "load_whole"
        do = getattr(store, method)

        async def done(*of: Any) -> Any:
            await cut()
            return await do(*of)

        monkeypatch.setattr(store, method, done)
        with pytest.raises(BaseException):  # noqa: B017  # however it ends
            await soon(runtime.retire(older_than=0, to=path))
        left = await ids(runtime)
        assert left == names[2:]
        assert {*left, *archived(path)} == {*names}
        monkeypatch.undo()
        second = tmp_path / "y.jsonl.gz"
        assert (await soon(runtime.retire(older_than=0, to=second))).agents == 3
        assert archived(second) == names[2:]
        assert await ids(runtime) == []


async def test_nothing_is_deleted_that_cannot_be_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.jsonl"
    read = os.read
    async with Runtime([desk("hello")]) as runtime:
        await rest(runtime, "a")
        monkeypatch.setattr(os, "read", lambda *of: read(*of).replace(b"hello", b"hallo"))
        with pytest.raises(OSError, match="what was read back is not what was written"):
            await soon(runtime.retire(older_than=0, to=path))
        monkeypatch.undo()
        assert await ids(runtime) == ["a"]
        assert path.read_bytes() == b""


def test_an_archive_whose_writer_was_killed_is_read_up_to_the_part_that_is_not_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "x.jsonl.gz"
    parts = [gzip.compress(json.dumps({"agent_id": id}).encode() + b"\n") for id in "ab"]
    path.write_bytes(parts[0] + parts[1][:-12])
    assert archived(path)[:1] == ["a"]
    assert "ends in the middle of a" in caplog.text


@pytest.mark.postgres
@pytest.mark.quick
async def test_of_two_hosts_that_retire_at_once_each_agent_is_deleted_once(
    hosts: Hosts, tmp_path: Path
) -> None:
    """J87."""
    here, there = stores(hosts, "here", "there")
    async with (
        Runtime([desk("hello")], store=here) as first,
        Runtime([desk("hello")], store=there) as second,
    ):
        names = [f"a{number}" for number in range(20)]
        await rest(first, *names[:10])
        await rest(second, *names[10:])
        paths = [tmp_path / "x.jsonl", tmp_path / "y.jsonl"]
        done = await asyncio.gather(
            *(
                soon(runtime.retire(older_than=0, to=path))
                for runtime, path in zip((first, second), paths, strict=True)
            )
        )
        # What one has locked the other leaves, though it may stay for another reason.
        paths.append(tmp_path / "z.jsonl")
        done.append(await soon(first.retire(older_than=0, to=paths[-1])))
        assert sum(each.agents for each in done) == 20, done
        found = [archived(path) for path in paths if path.exists()]
        assert {id for each in found for id in each} == {*names}
        assert await ids(first) == await ids(second) == []
        # What was taken from the memory of a living host is not known there any more.
        for runtime in (first, second):
            with pytest.raises(UnknownAgent):
                await soon(runtime.get("a1").run("go"))


@pytest.mark.postgres
async def test_an_agent_for_which_another_host_has_posted_something_stays(
    hosts: Hosts, tmp_path: Path
) -> None:
    here, there = stores(hosts, "here", "there")
    held = Held("done")
    slow = Agent("slow", ScriptedModel([held, "then"]), movable=False)
    async with (
        Runtime([desk("hello"), slow], store=here) as first,
        Runtime([desk("hello"), slow], store=there) as second,
    ):
        run = second.spawn("slow", id="t").run("go")
        await soon(held.entered.wait())
        posted = first.get("t").run("then this")
        await until_status(second.get("t"), Status.RUNNING)
        assert (await soon(first.retire(older_than=0, to=tmp_path / "x.jsonl"))).agents == 0
        held.release.set()
        await soon(run)
        completed(await soon(posted))


async def test_who_asks_needs_the_votes_for_a_deletion_and_an_export(tmp_path: Path) -> None:
    people = {"ann": ["ops"], "bob": ["ops"], "cy": ["audit"]}
    protect: dict[Any, Any] = {
        "delete": approval({"ops": 1}, never=["requester"]),
        "export": approval({"audit": 1}),
    }
    async with Runtime([desk("hello")], people=people, protect=protect) as runtime:
        await rest(runtime, "a")
        path = tmp_path / "x.jsonl"
        with pytest.raises(ApprovalNeeded, match="retire agents that are at rest for 1 hour") as it:
            await soon(runtime.retire(older_than=3600, to=path, by="ann"))
        await soon(runtime.vote(it.value.request_id, approve(by="bob")))
        with pytest.raises(ApprovalNeeded, match="audit"):
            await soon(runtime.retire(older_than=3600, to=path, by="ann"))
        await soon(runtime.vote(it.value.request_id, approve(by="cy")))
        assert (await soon(runtime.retire(older_than=3600, to=path, by="ann"))).agents == 0
        assert (await soon(runtime.retire(older_than=0, dry_run=True))).agents == 1
    with pytest.raises(UsageError, match="nobody can vote on what a runtime does by itself"):
        Runtime(
            [desk("hello")],
            people=people,
            protect={"delete": protect["delete"]},
            retire=Retire(older_than=MONTH, to=tmp_path),
        )


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"older_than": -1}, "older_than=...\\) must be seconds from 0 on"),
        ({"older_than": "30d"}, "older_than=...\\) must be seconds from 0 on"),
        ({"status": "sleepy"}, "must be one of 'idle', 'failed', 'cancelled', got 'sleepy'"),
        ({"status": "running"}, "agents that are 'running' have something open, and stay"),
        ({"to": ...}, "must say where the agents are put: the file of an archive, or None to"),
        ({"to": "x.json"}, "must end with .jsonl, .jsonl.gz or .jsonl.zst, got 'x.json'"),
        ({"to": "no-folder/x.jsonl"}, "there is no folder 'no-folder': make it first"),
        ({"to": __file__ + ".jsonl", "dry_run": True}, "writes nothing: leave `to` out"),
        ({"by": ""}, "by"),
    ],
)
async def test_a_wrong_argument_is_refused_before_anything_happens(
    given: dict[str, Any], error: str
) -> None:
    async with Runtime([desk()]) as runtime:
        with pytest.raises(UsageError, match=error):
            runtime.retire(**{"older_than": 0, "to": "x.jsonl", **given})


async def test_a_file_that_is_there_and_a_folder_that_cannot_be_written_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.jsonl").touch()
    async with Runtime([desk()]) as runtime:
        with pytest.raises(UsageError, match="is there already: give another name"):
            runtime.retire(older_than=0, to=tmp_path / "x.jsonl")
        monkeypatch.setattr(os, "access", lambda *of: False)
        with pytest.raises(UsageError, match="this user may not write into"):
            runtime.retire(older_than=0, to=tmp_path / "y.jsonl")
        with pytest.raises(UsageError, match="this user may not write into"):
            Retire(older_than=0, to=tmp_path)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def test_a_runtime_retires_by_itself_as_its_clock_says(
    clock: SimulatedClock, tmp_path: Path
) -> None:
    retire = Retire(older_than=MONTH, to=tmp_path, every=timedelta(hours=6))
    async with Runtime([desk("hello")], clock=clock, retire=retire) as runtime:
        await rest(runtime, "a")
        await soon(clock.advance(SECONDS - 1))
        assert files(tmp_path) == []
        await soon(clock.advance(1))
        assert [archived(path) for path in files(tmp_path)] == [["a"]]
        assert await ids(runtime) == []
        await rest(runtime, "b")
        await soon(clock.advance(SECONDS))
        assert [archived(path) for path in files(tmp_path)] == [["a"], ["b"]]


def test_who_advances_the_clock_right_after_the_start_waits_for_the_first_look(
    clock: SimulatedClock, tmp_path: Path
) -> None:
    with Runtime([desk("hello")], clock=clock) as runtime:
        runtime.spawn("desk", id="a").run("go").get(timeout=60)
        exported = runtime.export("a").get(timeout=60)
    retire = Retire(older_than=0, to=tmp_path, every=60)
    with Runtime([desk("hello")], clock=clock, retire=retire) as runtime:
        runtime.import_(exported).get(timeout=60)
        clock.advance(60).get(timeout=60)
        assert [archived(path) for path in files(tmp_path)] == [["a"]]


async def test_a_look_that_fails_is_logged_and_is_not_the_last(
    clock: SimulatedClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "archives"
    folder.mkdir()
    retire = Retire(older_than=0, to=folder, every=60)
    async with Runtime([desk("hello")], clock=clock, retire=retire) as runtime:
        await rest(runtime, "a")
        folder.rmdir()
        await soon(clock.advance(60))
        assert "which agents are retired is not known" in caplog.text
        assert await ids(runtime) == ["a"]
        folder.mkdir()
        await soon(clock.advance(60))
        assert await ids(runtime) == []


async def test_a_runtime_that_has_stopped_keeps_no_clock_waiting(
    clock: SimulatedClock, tmp_path: Path
) -> None:
    retire = Retire(older_than=MONTH, to=tmp_path, every=60)
    async with Runtime([desk("hello")], clock=clock, retire=retire):
        pass
    await soon(clock.advance(600))


async def test_agents_are_deleted_without_an_archive_only_if_nothing_of_them_is_open(
    place: Place, clock: SimulatedClock, tmp_path: Path
) -> None:
    """J87."""
    asks = call("pay", {"amount": 1})
    agents = [desk("hello"), Agent("asks", by_turn(asks), tools=[pay], interrupt_on={"pay": True})]
    async with Runtime(agents, store=place.store(), clock=clock) as runtime:
        await rest(runtime, "a", "timed")
        interrupted(await soon(runtime.spawn("asks", id="asks").run("go")))
        await soon(runtime.get("timed").send("later", at=clock.now() + timedelta(days=99)))
        before = files(tmp_path)
        done = await soon(runtime.retire(older_than=0, to=None, by="ann"))
        assert (done.agents, done.archive, done.bytes) == (1, None, 0)
        assert await ids(runtime) == ["asks", "timed"]
        assert files(tmp_path) == before
        with pytest.raises(UnknownAgent, match=r"was deleted at .* by ann"):
            await soon(runtime.get("a").state())


async def test_a_runtime_deletes_by_itself_without_an_archive(clock: SimulatedClock) -> None:
    retire = Retire(older_than=MONTH, to=None)
    async with Runtime([desk("hello")], clock=clock, retire=retire) as runtime:
        await rest(runtime, "a")
        await soon(clock.advance(SECONDS))
        assert await ids(runtime) == []


async def test_votes_for_an_archive_are_none_for_a_deletion_without_one(tmp_path: Path) -> None:
    people = {"ann": ["ops"], "bob": ["ops"]}
    protect: dict[Any, Any] = {"retire": approval({"ops": 1}, never=["requester"])}
    async with Runtime([desk("hello")], people=people, protect=protect) as runtime:
        await rest(runtime, "a")
        with pytest.raises(ApprovalNeeded) as it:
            await soon(runtime.retire(older_than=0, to=tmp_path / "x.jsonl", by="ann"))
        await soon(runtime.vote(it.value.request_id, approve(by="bob")))
        with pytest.raises(ApprovalNeeded, match="without an archive") as it:
            await soon(runtime.retire(older_than=0, to=None, by="ann"))
        await soon(runtime.vote(it.value.request_id, approve(by="bob")))
        assert (await soon(runtime.retire(older_than=0, to=None, by="ann"))).agents == 1


async def test_a_tombstone_goes_when_it_is_old_and_nothing_names_its_agent(
    place: Place, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(place, MemoryPlace):
        pytest.skip("it keeps the last thousand")

    def reply(request: Any) -> Any:
        asked = "pay" in str(request.messages[0]) and len(request.messages) < 3
        return call("pay", {"amount": 1}) if asked else "done"

    agent = Agent("desk", ScriptedModel(reply), tools=[pay], interrupt_on={"pay": True})
    store = place.store()
    async with Runtime([agent], store=store, clock=clock, sweep=None) as runtime:
        await rest(runtime, "a", "b", "last")
        decided = runtime.spawn("desk", id="decided")
        asked = interrupted(await soon(decided.run("pay")))
        await soon(decided.resume({asked.requests[0].id: reject("no", by="ann")}))
        for id in ("a", "b", "decided", "last"):
            assert await soon(runtime.delete(id, by="ann"))
        await soon(runtime.spawn("desk", id="z").run("go"))
        clock.advance(29 * 86_400)
        await store.delete_old_tombstones(clock.now() - MONTH)
        assert await store.deletion("a") is not None
        clock.advance(2 * 86_400)
        await store.delete_old_tombstones(clock.now() - MONTH)
        assert await store.deletion("a") is None
        assert await store.deletion("b") is None
        assert await store.deletion("decided") is not None
        (row,) = await soon(runtime.decided())
        assert row.agent_id == "decided"
        with pytest.raises(UnknownAgent, match=r"^(?!.*deleted at)"):
            await soon(runtime.get("a").state())
        completed(await soon(runtime.spawn("desk", id="a").run("anew")))
