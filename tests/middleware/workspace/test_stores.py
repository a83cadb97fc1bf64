"""Files in a store: one fact with the call that writes them, wherever it continues.

Rules: J80, J81, J82.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Held, by_turn, completed, results
from tests.support.loops import soon
from tests.support.places import NewStore, SqlitePlace
from understudy import (
    Agent,
    AgentState,
    Observer,
    Run,
    Runtime,
    ToolContext,
    UsageError,
    call,
    tool,
)
from understudy.errors import UnknownAgent
from understudy.events import FilesUpdated
from understudy.journal import MemoryStore
from understudy.journal.contracts import Batch
from understudy.journal.database_store import DatabaseStore
from understudy.journal.sqlite.backend import SqliteBackend
from understudy.middleware import Middleware, Next, SubAgent, ToolCall, Workspace
from understudy.models import ScriptedModel
from understudy.state.blobs import pack, unpack


def writer(*turns: Any, **options: Any) -> Agent:
    return Agent("writer", by_turn(*turns), middleware=[Workspace(**options)])


def text_of(size: int) -> str:
    """Text of lines that differ, as real ones do."""
    line = "line {0}: {1:x}\n"
    return "".join(line.format(n, n * 2654435761) for n in range(size // 10 + 1))[:size]


WRITE = call("write_file", {"path": "a.md", "text": "first"})
EDIT = call("edit_file", {"path": "a.md", "old": "first", "new": "second"})
READ = call("read_file", {"path": "a.md"})


async def test_files_are_there_after_a_passivation_and_at_the_next_host(
    new_store: NewStore,
) -> None:
    agent = writer(WRITE, "written", EDIT, READ, "read")
    async with Runtime([agent], store=new_store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        completed(await soon(ref.run("go")))
        await soon(ref.stop(block=False))
    async with Runtime([agent], store=new_store()) as runtime:
        outcome = completed(await soon(runtime.get("a").run("go on")))
        assert str(results(outcome.state)[-1].content) == "1\tsecond"


async def test_the_application_reads_and_writes_beside_the_agent(new_store: NewStore) -> None:
    async with Runtime([writer(READ, "read", READ)], store=new_store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        files = Workspace.of(ref)
        await soon(files.write_all({"a.md": "from outside", "b/c.bin": b"\0\xff"}))
        outcome = completed(await soon(ref.run("go")))
        assert str(results(outcome.state)[0].content) == "1\tfrom outside"
        assert [(file.path, file.size) for file in await soon(files.list())] == [
            ("a.md", 12),
            ("b/c.bin", 2),
        ]
        assert await soon(files.read_bytes("b/c.bin")) == b"\0\xff"
        assert await soon(files.move("b", "d")) == 1
        assert await soon(files.exists("d/c.bin"))
        assert not await soon(files.exists("b"))
        assert await soon(files.delete("d")) == 1
        assert [file.path for file in await soon(files.list())] == ["a.md"]
        for wrong in (
            files.read("nothing"),
            files.read_bytes("../a"),
            files.write("a.md/x", "y"),
            files.write("a.md", 5),  # type: ignore[arg-type]
            files.write("a.md", "\ud800"),
            files.list("nowhere"),
            files.delete("nothing"),
            files.move("a.md", "a.md/b"),
        ):
            with pytest.raises(UsageError):
                await soon(wrong)
        with pytest.raises(UsageError, match="takes the ref"):
            Workspace.of("a")  # type: ignore[call-overload]


async def test_an_edit_that_rests_on_a_file_as_it_was_is_refused(new_store: NewStore) -> None:
    """J80."""
    held = Held("x")
    calls = [WRITE, [READ, call("slow_edit")], READ]

    @tool
    async def slow_edit(ctx: ToolContext) -> str:
        """Edit."""
        files = Workspace.of(ctx)
        await files.move("a.md", "b.md")
        await held.wait()
        return "moved"

    agent = Agent("writer", by_turn(*calls), tools=[slow_edit], middleware=[Workspace()])
    async with Runtime([agent], store=new_store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        run = ref.run("go")
        await soon(held.entered.wait())
        await soon(Workspace.of(ref).write("a.md", "outside"))
        held.release.set()
        outcome = completed(await soon(run))
        texts = [str(part.content) for part in results(outcome.state)]
        assert "'a.md' was changed meanwhile" in texts[2]
        assert texts[3] == "1\toutside"


async def test_events_tell_which_files_change_and_by_whom(new_store: NewStore) -> None:
    async with Runtime([writer(WRITE)], store=new_store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        completed(await soon(ref.run("go")))
        await soon(Workspace.of(ref).delete("a.md"))
        events = ref.events()
        told: list[FilesUpdated] = []
        async with asyncio.timeout(60):
            async for stored in events:
                event = getattr(stored, "event", stored)
                if isinstance(event, FilesUpdated):
                    told.append(event)
                    if len(told) == 2:
                        break
        page = await soon(ref.history())
        changed = [entry for entry in page.entries if entry.what == "files_changed"]
        assert [(entry.tool_name, entry.detail["written"]) for entry in changed] == [
            ("write_file", {"a.md": 5}),
            (None, {}),
        ]
        assert changed[1].detail["gone"] == ["a.md"]
        first, second = told
        assert first.call_key is not None
        assert first.files[0].file is not None
        assert (first.files[0].path, first.files[0].file.size) == ("a.md", 5)
        assert (second.call_key, second.files[0].file) == (None, None)


async def kept(runtime: Runtime, id: str = "a") -> dict[str, str]:
    return dict((await soon(runtime.export(id))).get("blobs", {}))


async def test_a_compaction_keeps_what_is_in_use_and_takes_the_rest(new_store: NewStore) -> None:
    """J81."""
    large = text_of(60_000)
    async with Runtime([writer()], store=new_store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        files = Workspace.of(ref)
        await soon(files.write_all({"large": large, "small": "1", "gone": "2"}))
        await soon(files.write("large", large.replace("line 1500:", "line fifteen hundred:")))
        await soon(files.delete("gone"))
        before = await kept(runtime)
        await soon(ref.compact())
        after = await kept(runtime)
        state = await soon(ref.state())
        needed = {
            hash
            for name in ("large", "small")
            for hash in pack(await soon(files.read_bytes(name)))[1]
        }
        assert after.keys() == needed
        assert after.keys() < before.keys()
        assert state.files is not None
        await soon(files.delete("large"))
        await soon(files.delete("small"))
        await soon(ref.compact())
        assert await kept(runtime) == {}


async def test_who_reads_while_files_change_and_are_compacted_gets_one_version(
    new_store: NewStore,
) -> None:
    """J81."""
    versions = [text_of(40_000).replace("line 7:", f"version {n}:") for n in range(5)]
    async with Runtime([writer()], store=new_store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        files = Workspace.of(ref)
        await soon(files.write("a", versions[0]))

        async def read() -> list[str]:
            return [await soon(files.read("a")) for _ in range(10)]

        reading = asyncio.ensure_future(read())
        for version in versions:
            await soon(files.write("a", version))
            await soon(ref.compact())
        assert set(await reading) <= set(versions)
        assert await soon(files.read("a")) == versions[-1]


async def test_an_export_beside_a_compaction_has_the_bytes_of_its_files(
    new_store: NewStore,
) -> None:
    async with Runtime([writer()], store=new_store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        files = Workspace.of(ref)
        await soon(files.write_all({"a": "0", "b": "stays"}))

        async def export() -> None:
            for n in range(5):
                data = await soon(runtime.export("a"))
                await soon(runtime.import_(data, id=f"copy {n}"))

        exporting = asyncio.ensure_future(export())
        for n in range(5):
            await soon(files.write("a", str(n)))
            await soon(ref.compact())
        await exporting
        assert await soon(Workspace.of(runtime.get("copy 4")).read("b")) == "stays"


async def test_a_deletion_takes_the_bytes(new_store: NewStore) -> None:
    """J81."""
    async with Runtime([writer()], store=new_store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        files = Workspace.of(ref)
        await soon(files.write("a", "x"))
        hash = pack(b"x")[0].hash
        assert await soon(ref.load_blobs([hash]))
        await soon(runtime.delete("a"))
        with pytest.raises(UnknownAgent):
            await soon(files.list())
        again = runtime.spawn("writer", id="a")
        assert await soon(Workspace.of(again).list()) == []
        assert await soon(again.load_blobs([hash])) == {}


@pytest.mark.parametrize("wrong", [["zz"], [""], ["A" * 64], [5], "a" * 64, None])
async def test_what_is_no_hash_is_refused_before_anything_is_read(
    new_store: NewStore, wrong: Any
) -> None:
    store = new_store()
    async with Runtime([writer()], store=store) as runtime:
        ref = runtime.spawn("writer", id="a")
        await soon(Workspace.of(ref).write("a", "x"))
        with pytest.raises(UsageError, match=r"^load_blobs\(\) takes"):
            ref.load_blobs(wrong)
        if not isinstance(store, MemoryStore):
            other: Any = new_store()
            async with Observer(other) as observer:
                with pytest.raises(UsageError, match=r"^load_blobs\(\) takes"):
                    observer.load_blobs("a", wrong)


async def test_an_exported_agent_has_its_files_where_it_is_imported(new_store: NewStore) -> None:
    large = text_of(50_000)
    async with Runtime([writer()], store=new_store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        await soon(Workspace.of(ref).write_all({"large": large, "empty": "", "c": b"\0"}))
        await soon(Workspace.of(ref).write("large", large + "more"))
        data = json.loads(json.dumps(await soon(runtime.export("a"))))
        await soon(runtime.import_(data, id="b"))
        copy = Workspace.of(runtime.get("b"))
        assert await soon(copy.read("large")) == large + "more"
        assert await soon(copy.read("empty")) == ""
        assert await soon(copy.read_bytes("c")) == b"\0"
        hash = pack(b"\0")[0].hash
        damaged: tuple[Any, ...] = (
            {**data["blobs"], hash: "AAEB"},
            {key: value for key, value in data["blobs"].items() if key != hash},
            {**data["blobs"], hash: "no base 64"},
            {**data["blobs"], hash: 5},
            [],
        )
        for blobs in damaged:
            with pytest.raises(UsageError, match="damaged"):
                await soon(runtime.import_({**data, "blobs": blobs}, id="c"))


async def test_a_state_that_is_taken_out_of_its_store_has_its_files(new_store: NewStore) -> None:
    agent = writer(WRITE, "done", READ)
    async with Runtime([agent], store=new_store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        completed(await soon(ref.run("go")))
        bare = AgentState.from_dict(json.loads(json.dumps((await soon(ref.state())).to_dict())))
        whole = await soon(Workspace.of(ref).state())
    whole = AgentState.from_dict(json.loads(json.dumps(whole.to_dict())))
    outcome = completed(await agent.execute("go on", state=whole))
    assert str(results(outcome.state)[-1].content) == "1\tfirst"
    outcome = completed(await agent.execute("go on", state=bare))
    assert "are in the store that it was taken from" in str(results(outcome.state)[-1].content)


async def test_the_data_of_a_state_takes_no_more_than_8_mib() -> None:
    noise = random.Random(1)
    agent = writer()
    async with Runtime([agent]) as runtime:
        ref = runtime.spawn("writer", id="a")
        await soon(Workspace.of(ref).write("a", noise.randbytes(9 * 1024 * 1024)))
        state = await soon(Workspace.of(ref).state())
    with pytest.raises(UsageError, match="export and import_"):
        state.to_dict()


async def test_sub_agents_share_the_files_or_have_a_copy_of_their_own(new_store: NewStore) -> None:
    def reply(request: Any) -> Any:
        is_child = "one task" in request.instructions
        turn = sum(message.kind == "response" for message in request.messages)
        turns = [READ, EDIT, "edited"] if is_child else [WRITE, task, READ, "done"]
        return turns[turn]

    task = call("task", {"task_name": "general-purpose", "instructions": "edit"})
    for choice, text in (("share", "1\tsecond"), ("copy", "1\tfirst")):
        workspace: Any = Workspace(sub_agents=choice)  # type: ignore[arg-type]
        agent = Agent("writer", ScriptedModel(reply), middleware=[workspace, SubAgent()])
        async with Runtime([agent], store=new_store()) as runtime:
            ref = runtime.spawn("writer", id=choice)
            outcome = completed(await soon(ref.run("go")))
            told = [str(part.content) for part in results(outcome.state)]
            assert told[1:] == ["edited", text]  # its edit was no error: it has the file, too
            await soon(ref.compact())
            assert await soon(Workspace.of(ref).read("a.md")) == text.removeprefix("1\t")


class HeldCommits(SqliteBackend):
    """From the result of a `write_file` on, each commit waits until it is let through."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), host="here")
        self.holds = False
        self.held = threading.Semaphore(0)
        self.let_through = threading.Semaphore(0)

    def append(self, batch: Batch) -> None:
        payloads = (record.payload for record in batch.records)
        self.holds |= any(b'"result"' in each and b'"write_file"' in each for each in payloads)
        super().append(batch)

    def commit(self) -> None:
        if self.holds:
            self.held.release()
            assert self.let_through.acquire(timeout=60)
        super().commit()


async def test_what_another_sub_agent_has_just_written_is_read(tmp_path: Path) -> None:
    """Its bytes are in a commit that is under way: the start of a read waits for none."""
    found: list[Any] = []
    reads, written = asyncio.Event(), asyncio.Event()

    class Around(Middleware):
        async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
            if call.tool_name == "read_file":
                reads.set()
                await written.wait()
                found.append(await next(call))
                return found[0]
            result = await next(call)
            if call.tool_name == "write_file":
                await reads.wait()
            return result

    def reply(request: Any) -> Any:
        if "one task" not in request.instructions:
            return "done" if len(request.messages) > 1 else tasks
        if len(request.messages) > 1:
            return "done"
        return WRITE if request.prompt == "write" else READ

    tasks = [
        call("task", {"task_name": "general-purpose", "instructions": each})
        for each in ("write", "read")
    ]
    stack = [Workspace(), SubAgent(), Around()]
    agent = Agent("writer", ScriptedModel(reply), middleware=stack)
    backend = HeldCommits(tmp_path / "store.db")
    async with Runtime([agent], store=DatabaseStore(backend)) as runtime:
        run = runtime.spawn("writer", id="a").run("go")
        assert await asyncio.to_thread(backend.held.acquire, timeout=60)
        written.set()
        for _ in range(100):  # it looks for the bytes now
            await asyncio.sleep(0)
        backend.holds = False
        backend.let_through.release(100)
        completed(await soon(run))
    assert found == ["1\tfirst"]


@pytest.mark.slow
async def test_a_large_file_that_is_edited_a_hundred_times_takes_a_few_megabytes(
    sqlite: SqlitePlace,
) -> None:
    text = text_of(1_000_000)
    line = text.splitlines()[25_000]
    lines = [line, *(f"{line} edit {n}" for n in range(100))]
    edits = [
        call("edit_file", {"path": "a", "old": f"{old}\n", "new": f"{new}\n"})
        for old, new in pairwise(lines)
    ]
    async with Runtime([writer(*edits, max_file=2_000_000)], store=sqlite.store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        await soon(Workspace.of(ref).write("a", text))
        completed(await ref.run("go", max_runs=200))
        data = await soon(runtime.export("a"))
        size = sum(len(kept) for kept in data["blobs"].values()) * 3 // 4
        assert 1_000_000 < size < 5_000_000
        assert "edit 99" in await soon(Workspace.of(ref).read("a"))
        await soon(ref.compact())
        data = await soon(runtime.export("a"))
        assert sum(len(kept) for kept in data["blobs"].values()) * 3 // 4 < 1_100_000


@pytest.mark.slow
async def test_ten_thousand_files_are_kept_and_one_more_is_refused(sqlite: SqlitePlace) -> None:
    turns = [call("write_file", {"path": "one/more", "text": "x"}), call("list_files")]
    async with Runtime([writer(*turns)], store=sqlite.store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        files = Workspace.of(ref)
        await soon(files.write_all({f"d{n % 100}/f{n}": str(n) for n in range(10_000)}))
        outcome = completed(await soon(ref.run("go")))
        refused, listed = (str(part.content) for part in results(outcome.state))
        assert "10,001 files: at most 10,000" in refused
        assert listed.endswith("... and 9,000 more: list a folder, or give a pattern")
        with pytest.raises(UsageError, match="10,001"):
            await soon(files.write("one/more", "x"))
        await soon(ref.compact())
        assert await soon(files.read("d99/f9999")) == "9999"


async def test_a_file_of_50_mb_is_refused_and_nothing_is_kept(new_store: NewStore) -> None:
    async with Runtime([writer()], store=new_store()) as runtime:
        ref = runtime.spawn("writer", id="a")
        files = Workspace.of(ref)
        with pytest.raises(UsageError, match="50,000,000 bytes: at most 10,485,760"):
            await soon(files.write_all({"ok": "x", "large": bytes(50_000_000)}))
        assert await soon(files.list()) == []


def test_pieces_come_together_again_whatever_their_sizes() -> None:
    for size in (0, 1, 2047, 2048, 16_384, 16_385, 100_000):
        data = text_of(size).encode()
        file, blobs = pack(data)
        assert unpack(file, blobs) == data
        assert file.size == len(data) == size
