"""A store that fails: nothing goes on unrecorded, all are told, and the agent goes on later.

Rules: J14, P1.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.agents import (
    Held,
    assert_valid_history,
    by_turn,
    completed,
    interrupted,
    results,
    wake,
)
from tests.support.held_commits import HeldCommits
from tests.support.hosts import opened
from tests.support.loops import soon
from tests.support.places import SqlitePlace
from understudy import (
    Agent,
    AgentRef,
    Completed,
    Decision,
    DecisionError,
    Failed,
    Halt,
    Interrupted,
    Outcome,
    Run,
    ScriptedModel,
    Status,
    StopAgent,
    Stopped,
    StopReason,
    StopSignal,
    StoreError,
    ToolContext,
    approve,
    call,
    edit,
    reject,
    respond,
    tool,
)
from understudy.actors import AgentEvent, Gap
from understudy.errors import (
    RecordRefused,
    StoreBroken,
    StoreDamaged,
    StoreUnavailable,
    UnknownAgent,
)
from understudy.journal.database_store import DatabaseStore
from understudy.middleware import Haltable, SubAgent
from understudy.modes import Mode
from understudy.testing import FaultyBackend


def pay(ran: list[str]) -> Any:
    @tool
    async def pay(context: ToolContext) -> str:
        ran.append(f"pay {context.call_key}")
        return "paid"

    return pay


def desk(ran: list[str], *turns: Any, tools: Sequence[Any] | None = None, **options: Any) -> Agent:
    given = [pay(ran)] if tools is None else tools
    return Agent("desk", by_turn(*turns), tools=given, **options)


Fault = Callable[[], BaseException]


def unavailable() -> BaseException:
    return StoreUnavailable(cause="the test says so")


def broken() -> BaseException:
    return StoreBroken(cause="the disk is full, says the test", remedy="Make room.")


def unexpected() -> BaseException:
    return ZeroDivisionError("a defect of the backend, says the test")


async def settled(future: Any) -> Any:
    """What it brings, or the error of the store that it raises."""
    try:
        return await soon(future)
    except (StoreError, ZeroDivisionError):
        return None


# -------------------------------------------------------------------------- any failure

WRITERS = ["begin", "claim", "append_all", "commit", "is_committed", "reconnect"]


@pytest.mark.slow
@given(
    method=st.sampled_from([*WRITERS, "load", "agents", "release", "compact", "delete"]),
    at=st.integers(1, 12),
    times=st.integers(1, 3),
    fault=st.sampled_from([unavailable, broken, unexpected]),
    after=st.booleans(),
    patience=st.sampled_from([0.0, 5.0]),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_wherever_the_store_fails_everybody_is_told_and_the_agent_goes_on_when_it_is_well(
    tmp_path_factory: pytest.TempPathFactory,
    method: str,
    at: int,
    times: int,
    fault: Fault,
    after: bool,
    patience: float,
    ran: list[str],
) -> None:
    """J16, J4: a finished call is never repeated, one whose end is unknown is in doubt."""
    place = SqlitePlace(tmp_path_factory.mktemp("faulty"))
    ran.clear()

    backend = FaultyBackend(place.backend())
    agent = desk(ran, call("pay"), [call("pay"), call("pay")], "paid all", "more")
    async with opened(DatabaseStore(backend, patience=patience), agent) as runtime:
        ref = runtime.spawn("desk", "t")
        subscription = ref.events()
        backend.fail(method, at=at, times=times, fault=fault, after=after)
        futures: list[Any] = [
            ref.run("go", message_id="m1"),
            ref.send("and this", message_id="m2"),
            ref.compact(),
            ref.state(),
        ]
        for future in futures:
            await settled(future)
        await settled(ref.stop(block=False))
        for future in (runtime.agents(), runtime.delete("nobody"), ref.state()):
            await settled(future)
        backend.mend()

        state = await soon(ref.state())
        refs = await soon(runtime.recover())
        assert all(each == ref for each in refs)
        if "m1" not in state.message_ids:
            await soon(ref.run("go", message_id="m1"))
        outcome = await _finished(ref)
        await soon(ref.state())
        subscription.close()
        live = [event async for event in _read(subscription)]
        assert_valid_history(outcome.state)
        assert len(ran) == len(set(ran)), "no call ran twice"
        kept = [part for part in results(outcome.state) if part.outcome == "success"]
        doubtful = [part for part in results(outcome.state) if part.outcome == "interrupted"]
        assert len(kept) + len(doubtful) <= 3
        assert len(ran) <= len(kept) + len(doubtful)
        stored = await _kept(ref)
        if not any(isinstance(e.event, Gap) for e in stored):
            early = [e for e in live if e.seq is not None and e not in stored]
            assert early == [], "told before it was kept"
    async with opened(place.store(), agent) as again:
        known = list(outcome.state.messages)
        found = await soon(again.get("t").state())
        assert list(found.messages)[: len(known)] == known


async def _finished(ref: AgentRef) -> Completed:
    """The outcome of its run; what follows a doubtful call is approved (J4)."""
    outcome = await soon(ref.outcome())
    while isinstance(outcome, Interrupted):
        outcome = await soon(ref.resume({each.id: approve() for each in outcome.requests}))
    assert isinstance(outcome, Completed), outcome
    return outcome


async def _read(subscription: Any) -> Any:
    try:
        async for event in subscription:
            yield event
    except (StoreError, ZeroDivisionError):
        return


async def _kept(ref: AgentRef) -> list[AgentEvent]:
    subscription = ref.events()
    subscription.close()
    return [event async for event in subscription]


@pytest.mark.parametrize("fault", [unavailable, broken, unexpected])
async def test_a_failure_of_one_commit_leaves_other_agents_and_later_messages_alone(
    sqlite: SqlitePlace, fault: Fault, ran: list[str]
) -> None:
    """J16: the very next message goes on."""
    backend = FaultyBackend(sqlite.backend())
    async with opened(DatabaseStore(backend, patience=0), desk(ran, "one", "two")) as runtime:
        ref, other = runtime.spawn("desk", "t"), runtime.spawn("desk", "other")
        assert isinstance(await soon(ref.run("go")), Completed)
        assert isinstance(await soon(other.run("go")), Completed)
        await soon(ref.state())  # what they noted afterwards is durable
        await soon(other.state())
        backend.fail("commit", fault=fault)
        with pytest.raises(StoreError):
            await soon(ref.send("lost"))
        backend.mend()
        assert completed(await soon(other.run("go"))).text == "two"
        done = completed(await soon(ref.run("go")))
        assert done.text == "two"
        assert "lost" not in str(done.state.to_dict())


async def test_a_status_that_could_not_be_kept_does_not_fail_the_next_message(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J16: nobody waited for it; whoever comes next finds the agent as the store has it."""
    backend = FaultyBackend(sqlite.backend())
    async with opened(DatabaseStore(backend, patience=0), desk(ran, "one", "two")) as runtime:
        ref = runtime.spawn("desk", "t")
        run = ref.run("go")
        await soon(run)
        backend.fail("commit", times=100)  # the next one: its status is noted by now, or never
        with pytest.raises(StoreError):
            await soon(runtime.delete("nobody"))
        backend.mend()
        assert completed(await soon(ref.run("go"))).text == "two"
        assert ref.status() is Status.IDLE


@pytest.mark.parametrize("method", ["claim", "compact", "delete", "release"])
async def test_a_change_that_the_store_cannot_make_is_tried_again_or_told(
    sqlite: SqlitePlace, method: str, ran: list[str]
) -> None:
    """J16: one that is away for a moment is waited for, one that is broken is not."""
    backend = FaultyBackend(sqlite.backend())
    backend.lease = 60.0  # else nothing need be released
    async with opened(DatabaseStore(backend), desk(ran, "one", "two")) as runtime:
        ref = runtime.spawn("desk", "t")
        ask: dict[str, Callable[[], Awaitable[Any]]] = {
            "claim": lambda: runtime.spawn("desk", "new").run("go"),
            "compact": ref.compact,
            "delete": lambda: runtime.delete("t"),
            "release": ref.compact,  # it is passivated for that
        }
        assert isinstance(await soon(ref.run("go")), Completed)
        backend.fail(method, fault=broken, times=100)
        with pytest.raises(StoreBroken):
            await soon(ask[method]())
        assert backend.mend()
        assert isinstance(await soon(ref.run("go")), Completed)
        backend.fail(method)
        await soon(ask[method]())
        assert backend.mend()


# --------------------------------------------------------------- unknown outcome (J16)


async def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J16: it is read back before it is tried again."""
    for at in range(1, 9):
        backend = FaultyBackend(sqlite.backend())
        agent = desk(ran, call("pay"), "done")
        async with opened(DatabaseStore(backend), agent) as runtime:
            ref = runtime.spawn("desk", f"t{at}")
            backend.fail("commit", at=at, after=True)
            assert completed(await soon(ref.run("go"))).text == "done"
            await soon(ref.stop(block=False))
            backend.mend()
            first = (await soon(ref.state())).messages
            assert len(first) == 4
            assert len(ran) == at


@pytest.mark.parametrize("method", ["append_all", "claim", "commit"])
async def test_a_transaction_that_finds_the_store_damaged_is_made_once_more(
    sqlite: SqlitePlace, ran: list[str], method: str
) -> None:
    """J16: perhaps one read of the disk has failed, and none of the next ones."""
    backend = FaultyBackend(sqlite.backend())
    agent = desk(ran, call("pay"), "done")
    async with opened(DatabaseStore(backend), agent) as runtime:
        ref = runtime.spawn("desk", "t")
        backend.fail(method, fault=lambda: StoreDamaged(what="a page", cause="the test says so"))
        assert completed(await soon(ref.run("go"))).text == "done"
        assert backend.mend()
    assert len(ran) == 1


async def test_nothing_is_visible_before_its_commit(sqlite: SqlitePlace, ran: list[str]) -> None:
    """J16: no answer, no event, no request, no export, no outcome, no tool."""
    backend = HeldCommits(sqlite.backend())
    agent = desk(ran, call("pay"), "done", interrupt_on={"pay": True})
    async with opened(DatabaseStore(backend), agent) as runtime:
        ref = runtime.spawn("desk", "t")
        await wake(ref)
        subscription = ref.events()
        with backend.held():
            run = ref.run("go")
            sent = ref.send("later")
            await backend.reached()
            assert not run.done()
            assert not sent.done()
            assert await soon(runtime.pending()) == []
            looking = ref.state()
            assert (await soon(runtime.export("t")))["records"] == []
            await soon(runtime.agents())
            assert not looking.done()
            told = [e.event for e in subscription._buffer if e.seq is not None]  # nothing yet
            assert told == []
        asked = interrupted(await soon(run))
        await soon(sent)
        await soon(looking)
        assert len(await soon(runtime.pending())) == 1

        with backend.held():
            done = ref.resume(asked.decide(approve()))
            await backend.reached()
            assert ran == [], "the tool is not entered before its start is durable"
        assert completed(await soon(done)).text == "done"
        assert len(ran) == 1


# ------------------------------------------------------------------ what happens to files


async def test_a_full_disk_stops_runs_where_they_are_and_they_go_on_when_there_is_room(
    tmp_path: Path, ran: list[str]
) -> None:
    """J16: no call after the full disk is lost or repeated; the remedy is told."""
    place = SqlitePlace(tmp_path)

    @tool(idempotent=True)
    async def write() -> str:
        ran.append("write")
        return "x" * 20_000

    def agent() -> Agent:
        return desk(ran, *[call("write")] * 20, "done", tools=[write])

    async with opened(DatabaseStore(place.backend(max_pages=60)), agent()) as runtime:
        ref = runtime.spawn("desk", "t")
        with pytest.raises(StoreBroken, match="Make room"):
            await soon(ref.run("go"))
        assert ref.status() is not Status.RUNNING
        with pytest.raises(StoreBroken, match="Make room"):
            await soon(ref.outcome())
        before = len(ran)
        assert 2 < before < 20
    async with opened(place.store(), agent()) as runtime:
        (ref,) = await soon(runtime.recover())
        outcome = await soon(ref.outcome())
        assert isinstance(outcome, Completed)
        assert [part.outcome for part in results(outcome.state)] == ["success"] * 20
        assert 20 <= len(ran) <= 22, "only the call that was under way is made again"
        assert_valid_history(outcome.state)


@pytest.mark.parametrize("patience", [20.0, 0.0], ids=["for a moment", "for longer than patience"])
async def test_a_locked_database_is_waited_for_or_told(
    sqlite: SqlitePlace, patience: float, ran: list[str]
) -> None:
    """J16: SQLite itself waits a little before it says so."""
    store = DatabaseStore(sqlite.backend(), patience=patience)
    async with opened(store, desk(ran, "one", "two")) as runtime:
        ref = runtime.spawn("desk", "t")
        completed(await soon(ref.run("go")))
        await soon(ref.stop(block=False))
        other = sqlite3.connect(sqlite.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        run = ref.run("go")
        try:
            if not patience:
                with pytest.raises(StoreUnavailable, match="locked"):
                    async with asyncio.timeout(60):
                        await run
            else:
                await soon(runtime.agents())
                assert not run.done()
        finally:
            other.execute("ROLLBACK")
            other.close()
        if not patience:
            run = ref.run("go")
        async with asyncio.timeout(60):
            assert completed(await run).text == "two"


async def test_a_damaged_agent_is_told_and_the_others_go_on(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J16: `recover` and the start of a runtime leave it out; what it asks has rows of its own."""

    def agent() -> Agent:
        return desk(ran, call("pay"), "done", interrupt_on={"pay": True})

    asked = {}
    async with opened(sqlite.store(), agent()) as runtime:
        for id in ("bad", "good", "worse"):
            asked[id] = interrupted(await soon(runtime.spawn("desk", id).run("go")))
    db = sqlite3.connect(sqlite.path)
    number = "(SELECT key FROM agents WHERE agent_id = ?) << 32"
    db.execute(f"UPDATE records SET payload = x'7b' WHERE id = ({number}) + 2", ("bad",))
    db.execute(f"DELETE FROM records WHERE id = ({number}) + 2", ("worse",))
    db.commit()
    db.close()
    async with opened(sqlite.store(), agent()) as runtime:
        assert {p.agent_id for p in await soon(runtime.pending())} == {"bad", "good", "worse"}
        for id in ("bad", "worse"):
            with pytest.raises(StoreDamaged, match=r"damaged: .* cannot be read"):
                await soon(runtime.get(id).run("hello"))
        good = runtime.get("good")
        completed(await soon(good.resume(asked["good"].decide(approve()))))
        assert await soon(runtime.delete("bad")) is True
        with pytest.raises(UnknownAgent):
            await soon(runtime.get("bad").state())


@pytest.mark.parametrize(
    "damage",
    ["epoch = -1", "floor = -5", "index_status = 'rexx'", "definition = CAST(x'ff' AS TEXT)"],
)
async def test_an_agent_with_a_damaged_row_is_listed_as_such_and_the_others_as_ever(
    sqlite: SqlitePlace, ran: list[str], damage: str
) -> None:
    """J16: nobody is left out in silence."""

    def agent() -> Agent:
        return desk(ran, call("pay"), "done", interrupt_on={"pay": True})

    async with opened(sqlite.store(), agent()) as runtime:
        for id in ("bad", "good"):
            interrupted(await soon(runtime.spawn("desk", id).run("go")))
    db = sqlite3.connect(sqlite.path)
    db.execute(f"UPDATE agents SET {damage} WHERE agent_id = 'bad'")
    db.commit()
    db.close()
    async with opened(sqlite.store(), agent()) as runtime:
        bad, good = await soon(runtime.agents())
        assert isinstance(bad.damage, StoreDamaged)
        assert "'bad'" in str(bad.damage)
        assert (good.id, good.agent, good.damage) == ("good", "desk", None)
        assert [p.agent_id for p in await soon(runtime.pending())] == ["bad", "good"]
        with pytest.raises(StoreDamaged):
            await soon(runtime.get("bad").state())


async def test_a_damaged_row_keeps_no_other_agent_from_being_recovered(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J16, J20."""
    held = Held()

    @tool(idempotent=True)
    async def slow() -> str:
        ran.append("slow")
        if ran.count("slow") == 2:
            held.entered.set()
        await held.wait()
        return "slow"

    agent = desk(ran, call("slow"), "done", tools=[slow])
    async with opened(sqlite.store(), agent) as runtime:
        for id in ("bad", "good"):
            runtime.spawn("desk", id).run("go")
        await soon(held.entered.wait())
    held.release.set()
    db = sqlite3.connect(sqlite.path)
    db.execute("UPDATE agents SET epoch = -1 WHERE agent_id = 'bad'")
    db.commit()
    db.close()
    async with opened(sqlite.store(), agent) as runtime:
        (good,) = recovery = await soon(runtime.recover())
        assert isinstance(await soon(good.outcome()), Completed)
        assert [(id, type(error)) for id, error in recovery.left.items()] == [("bad", StoreDamaged)]


async def test_a_file_that_is_no_database_or_cannot_be_written_is_told_when_the_runtime_begins(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J16: and nothing of it is left open."""

    async def begin() -> None:
        async with opened(sqlite.store(), desk(ran, "one")) as runtime:
            await soon(runtime.spawn("desk", "t").run("go"))

    sqlite.path.write_bytes(b"this is no database" * 1000)
    with pytest.raises(StoreBroken):
        await begin()
    sqlite.path.unlink()
    await begin()


# -------------------------------------------------------------------------- sizes (J16)


def small(sqlite: SqlitePlace) -> DatabaseStore:
    return DatabaseStore(sqlite.backend(), max_record_bytes=5_000)


BIG = "x" * 6_000


async def test_an_input_that_is_too_large_is_refused_before_anything_runs(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J16: the agent is as it was."""
    async with opened(small(sqlite), desk(ran, "one", "two")) as runtime:
        ref = runtime.spawn("desk", "t")
        for future in (ref.run(BIG, message_id="m"), ref.send(BIG, message_id="m")):
            with pytest.raises(RecordRefused, match="bytes; at most"):
                await soon(future)
        assert ref.status() is not Status.FAILED
        assert completed(await soon(ref.run("small", message_id="m"))).text == "one"


async def test_an_input_that_is_too_large_withdraws_nothing(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J16, I10: it was not accepted."""
    agent = desk(ran, call("pay"), "done", interrupt_on={"pay": True})
    async with opened(small(sqlite), agent) as runtime:
        ref = runtime.spawn("desk", "t")
        asked = interrupted(await soon(ref.run("go")))
        with pytest.raises(RecordRefused):
            await soon(ref.run(BIG))
        assert ref.status() is Status.INTERRUPTED
        assert [p.request for p in await soon(runtime.pending())] == list(asked.requests)
        assert completed(await soon(ref.resume(asked.decide(approve())))).text == "done"


async def test_messages_that_are_too_large_together_are_run_one_after_the_other(
    sqlite: SqlitePlace,
) -> None:
    """J16, A2: each was accepted, so each is run."""
    held = Held("first")

    model = ScriptedModel([held, *["ok"] * 5])
    async with opened(small(sqlite), Agent("desk", model)) as runtime:
        ref = runtime.spawn("desk", "t")
        run = ref.run("go")
        await soon(held.entered.wait())
        for letter in "abc":
            await soon(ref.send(letter * 3_000))
        last = ref.run("d" * 3_000)
        held.release.set()
        assert completed(await soon(run)).text == "first"
        done = completed(await soon(last))
        said = str(list(done.state.messages))
        assert [said.count(letter * 3_000) for letter in "abcd"] == [1, 1, 1, 1]
        assert not done.state.queue


async def test_a_message_that_could_never_begin_a_run_is_not_accepted(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J16: what is queued must fit into a run's first record as well."""
    async with opened(small(sqlite), desk(ran, "one", "two", "three")) as runtime:
        ref = runtime.spawn("desk", "t")
        for size in range(4_000, 5_100, 50):
            try:
                await soon(ref.send("y" * size))
            except RecordRefused:
                break
            outcome = await soon(ref.outcome())
            assert isinstance(outcome, Completed), size
        else:
            raise AssertionError("nothing was too large")
        assert isinstance(await soon(ref.run("go")), Completed)


async def test_a_result_that_is_too_large_is_an_error_and_its_tool_does_not_run_again(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J16."""

    @tool
    async def fetch() -> str:
        ran.append("fetch")
        return BIG

    def agent() -> Agent:
        return desk(ran, call("fetch"), "done", tools=[fetch])

    async with opened(small(sqlite), agent()) as runtime:
        done = completed(await soon(runtime.spawn("desk", "t").run("go")))
        (part,) = results(done.state)
        assert part.outcome == "failed"
        assert "'fetch' ran, but its result cannot be kept" in str(part.content)
    async with opened(small(sqlite), agent()) as runtime:
        await soon(runtime.get("t").outcome())
        assert ran == ["fetch"]


async def test_a_reply_that_is_too_large_fails_the_run_and_the_agent_goes_on(
    sqlite: SqlitePlace,
) -> None:
    """J16."""
    model = ScriptedModel([BIG, "small"])
    async with opened(small(sqlite), Agent("desk", model)) as runtime:
        ref = runtime.spawn("desk", "t")
        failed = await soon(ref.run("go"))
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, RecordRefused)
        assert ref.status() is Status.FAILED
        assert completed(await soon(ref.run("again"))).text == "small"


async def test_an_end_that_is_too_large_to_be_recorded_fails_the_run(sqlite: SqlitePlace) -> None:
    """J16: as with a step of one's own that ends a run with far too much text."""
    texts = [BIG, "small"]

    async def speak(run: Run) -> Outcome:
        return run.completed(texts.pop(0))

    async with opened(small(sqlite), Agent("desk", mode=Mode([speak]))) as runtime:
        ref = runtime.spawn("desk", "t")
        failed = await soon(ref.run("go"))
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, RecordRefused)
        assert completed(await soon(ref.run("again"))).text == "small"


@pytest.mark.parametrize("nested", [False, True], ids=["", "nested"])
@pytest.mark.parametrize(
    "decision",
    [respond(BIG), edit({"note": BIG}), reject(BIG), approve(note=BIG)],
    ids=lambda decision: decision.type,
)
async def test_a_decision_that_is_too_large_is_refused_and_leaves_all_requests_pending(
    sqlite: SqlitePlace, ran: list[str], decision: Decision, nested: bool
) -> None:
    """J16, I5: also the one that was right, whichever comes first."""

    @tool
    async def note(note: str = "") -> str:
        ran.append(note)
        return "noted"

    calls = [call("note"), call("note", {"note": "b"})]
    model = ScriptedModel([calls, "done"])
    agent = Agent("desk", model, tools=[note], interrupt_on={"note": True})
    if nested:
        task = call("task", {"task_name": "desk", "instructions": "go"})
        below = SubAgent([agent], general_purpose=False)
        agent = Agent("boss", ScriptedModel([task, "done"]), middleware=[below])
    async with opened(small(sqlite), agent) as runtime:
        ref = runtime.spawn(agent, "t")
        asked = interrupted(await soon(ref.run("go")))
        first, second = asked.requests
        for given in ({first.id: approve(), second.id: decision}, {first.id: decision}):
            with pytest.raises(DecisionError, match=r"cannot be kept.*at most") as raised:
                await soon(ref.resume(given))
            assert raised.value.request_id == list(given)[-1]
            assert (await soon(ref.state())).requests == asked.requests
            assert await soon(ref.decisions()) == []
        right = asked.decide(approve(), edit({"note": "b2"}))
        assert completed(await soon(ref.resume(right))).text == "done"
        assert ran == ["", "b2"]


async def test_an_answer_that_is_accepted_becomes_the_result_of_its_call(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J16, I5: what fits must fit into the result as well."""
    agent = desk(ran, call("pay"), "done", interrupt_on={"pay": True})
    refused = 0
    async with opened(small(sqlite), agent) as runtime:
        for size in range(3_000, 5_100, 50):
            ref = runtime.spawn("desk", f"t{size}")
            asked = interrupted(await soon(ref.run("go")))
            try:
                outcome = await soon(ref.resume(asked.decide(respond("y" * size))))
            except DecisionError:
                refused += 1
                assert (await soon(ref.state())).requests
            else:
                assert isinstance(outcome, Completed), size
    assert refused


@pytest.mark.parametrize("raised", ["stop", "halt"])
async def test_a_stop_and_a_halt_stand_whose_message_is_too_large(
    sqlite: SqlitePlace, ran: list[str], raised: str
) -> None:
    """J16: the model is not told of an error instead, and does not go on."""

    @tool
    async def ends() -> str:
        raise StopAgent(StopSignal.error(BIG, why=BIG)) if raised == "stop" else Halt(BIG)

    model = ScriptedModel([call("ends"), "went on"])
    agent = Agent("desk", model, tools=[ends], middleware=[Haltable()])
    async with opened(small(sqlite), agent) as runtime:
        outcome = await soon(runtime.spawn("desk", "t").run("go"))
        assert len(model.requests) == 1
        if raised == "stop":
            assert isinstance(outcome, Stopped)
            (signal,) = outcome.signals
            assert signal.reason is StopReason.ERROR
            assert "cannot be kept" in signal.message
        else:
            (request,) = interrupted(outcome).requests
            assert request.kind == "halt"
            assert "cannot be kept" in str(request.payload)


async def test_an_agent_too_large_for_a_snapshot_is_not_compacted_and_goes_on(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J17, J16."""
    async with opened(small(sqlite), desk(ran, "one", "two", "three")) as runtime:
        ref = runtime.spawn("desk", "t")
        for _ in range(2):
            completed(await soon(ref.run("y" * 3_000)))
        with pytest.raises(RecordRefused, match="snapshot"):
            await soon(ref.compact())
        assert completed(await soon(ref.run("go"))).text == "three"


# ------------------------------------------------------------- beginning, and beginning again


async def test_a_store_serves_one_runtime_after_the_other(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """As a name does; and one that could not begin leaves nothing open."""
    backend = FaultyBackend(sqlite.backend())
    store = DatabaseStore(backend, patience=0)

    async def begin() -> str:
        async with opened(store, desk(ran, "one", "two")) as runtime:
            return completed(await soon(runtime.spawn("desk", "t").run("go"))).text

    assert await begin() == "one"
    for method in ("open", "renew"):
        for after in (False, True):
            backend.fail(method, fault=broken, after=after)
            with pytest.raises(StoreBroken):
                await begin()
            backend.mend()
    assert await begin() == "two"


async def test_a_restored_store_with_a_damaged_agent_begins_all_the_same(
    sqlite: SqlitePlace, tmp_path: Path, ran: list[str]
) -> None:
    """J7: that one cannot be woken; what the others were doing is in doubt or asked anew."""

    def agent() -> Agent:
        return desk(ran, call("pay"), "done", interrupt_on={"pay": True})

    older = tmp_path / "older.db"

    async with opened(sqlite.store(), agent()) as runtime:
        asked = interrupted(await soon(runtime.spawn("desk", "good").run("go")))
        interrupted(await soon(runtime.spawn("desk", "bad").run("go")))
    sqlite3.connect(sqlite.path).execute("VACUUM INTO ?", (str(older),)).connection.close()
    async with opened(sqlite.store(), agent()) as runtime:
        completed(await soon(runtime.get("good").resume(asked.decide(approve()))))
    older.replace(sqlite.path)
    db = sqlite3.connect(sqlite.path)
    db.execute(
        "DELETE FROM records WHERE id = ((SELECT key FROM agents WHERE agent_id = 'bad') << 32) + 2"
    )
    db.commit()
    db.close()
    async with opened(sqlite.store(), agent()) as runtime:
        good = runtime.get("good")
        with pytest.raises(StoreDamaged):
            await soon(runtime.get("bad").outcome())
        anew = await soon(good.outcome())
        assert isinstance(anew, Interrupted)
        assert not {r.id for r in anew.requests} & {r.id for r in asked.requests}
        pending = {p.agent_id: p.request for p in await soon(runtime.pending())}
        assert pending["good"] == anew.requests[0]


async def test_one_agent_that_cannot_be_read_keeps_no_other_from_being_recovered(
    sqlite: SqlitePlace, ran: list[str]
) -> None:
    """J10, J20: suspects too, which come last."""
    held = Held()

    @tool(idempotent=True)
    async def slow() -> str:
        ran.append("slow")
        if ran.count("slow") == 3:
            held.entered.set()
        if not held.release.is_set():
            await asyncio.get_running_loop().create_future()
        return "slow"

    def agent() -> Agent:
        return desk(ran, call("slow"), "done", tools=[slow])

    async with opened(sqlite.store(), agent()) as runtime:
        for id in ("a", "b", "c"):
            runtime.spawn("desk", id).run("go")
        await soon(held.entered.wait())
    db = sqlite3.connect(sqlite.path)
    db.execute(
        "DELETE FROM records WHERE id = ((SELECT key FROM agents WHERE agent_id = 'a') << 32) + 2"
    )
    db.execute("UPDATE agents SET index_status = 'suspect' WHERE agent_id = 'c'")
    db.commit()
    db.close()
    held.release.set()
    async with opened(sqlite.store(), agent()) as runtime:
        refs = await soon(runtime.recover(at_once=1))
        assert [ref.id for ref in refs] == ["a", "b", "c"]
        for ref in refs[1:]:
            assert isinstance(await soon(ref.outcome()), Completed)
