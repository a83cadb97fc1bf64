"""What a runtime promises, a cluster promises: the same calls, outcomes and errors (R8) (J61).

Rules: J80.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support import cluster_app
from tests.support.agents import completed, interrupted
from tests.support.cluster_app import measure
from tests.support.clusters import APP
from tests.support.inline_engine import Inline
from tests.support.loops import SECONDS
from tests.support.outages import failed
from tests.support.processes import until
from understudy import (
    Agent,
    AgentRef,
    Doubt,
    Paused,
    Runtime,
    ScriptedModel,
    Status,
    approve,
    reject,
    respond,
)
from understudy.actors import FeedEvent, Future, Schedules, SearchPage
from understudy.cluster import Cluster, ClusterRef, ClusterSchedules, Hosts
from understudy.errors import (
    AlreadyDecided,
    DecisionError,
    NotInterrupted,
    SearchOff,
    UnknownAgent,
    UnknownToken,
    UsageError,
)
from understudy.middleware import Workspace
from understudy.models.messages import UserInput
from understudy.state.agent_state import AgentState

_numbers = count(1)


def new_id() -> str:
    return f"agent-{next(_numbers)}"


def desk(runtime: Runtime, id: str | None = None) -> AgentRef:
    return runtime.spawn("desk", id or new_id())


def status_of(ref: AgentRef) -> Status:
    found: Any = ref.status()
    status: Status = found.get(timeout=SECONDS) if hasattr(found, "get") else found
    return status


def raised(call: Callable[[], Any]) -> BaseException:
    """What a call raises, at once or by its future."""
    with pytest.raises(BaseException) as error:  # its type is what is looked at
        call().get(timeout=SECONDS)
    return error.value


def said(state: AgentState) -> list[UserInput]:
    return [
        part.content
        for message in state.messages
        for part in message.parts
        if part.part_kind == "user-prompt"
    ]


def test_a_person_decides_and_the_run_goes_on(runtime: Runtime) -> None:
    ref = desk(runtime)
    outcome = interrupted(ref.run("refund 17").get(timeout=SECONDS))
    assert type(outcome).__name__ == "Interrupted"
    assert status_of(ref) is Status.INTERRUPTED
    (pending,) = [p for p in runtime.pending().get(timeout=SECONDS) if p.agent_id == ref.id]
    assert pending.request == outcome.requests[0]
    assert pending.tool_description == "Pay money back."
    done = completed(ref.resume({pending.request: approve(by="ann")}).get(timeout=SECONDS))
    assert done.text == "done"
    (decision,) = ref.decisions().get(timeout=SECONDS)
    assert decision.decision.by == "ann"


def test_people_write_beside_a_request(runtime: Runtime) -> None:
    ref = desk(runtime)
    (request,) = interrupted(ref.run("refund 17").get(timeout=SECONDS)).requests
    taken = runtime.take(ref.id, request.id, by="ann").get(timeout=SECONDS)
    assert taken.claim is not None
    assert taken.claim.by == "ann"
    runtime.comment(ref.id, request.id, "I call her first.", by="ann").get(timeout=SECONDS)
    runtime.assign(ref.id, request.id, to="bob", by="ann").get(timeout=SECONDS)
    later = runtime.now().get(timeout=SECONDS) + timedelta(hours=2)
    runtime.snooze(ref.id, request.id, until=later, by="ann").get(timeout=SECONDS)
    found = runtime.notes(ref.id, request.id).get(timeout=SECONDS)
    assert [each.text for each in found.comments] == ["I call her first."]
    for of, is_listed in (
        ({"viewer": "bob", "mine": True}, True),
        ({"viewer": "ann"}, False),
        ({"viewer": "ann", "snoozed": True}, True),
        ({"unassigned": True}, False),
    ):
        listed = {each.agent_id: each for each in runtime.pending(**of).get(timeout=SECONDS)}
        assert (ref.id in listed) is is_listed, of
    assert type(raised(lambda: runtime.take(ref.id, "none", by="ann"))) is DecisionError
    assert runtime.presence.looking(ref.id, request.id) == []


def test_a_failed_run_is_retried_once(runtime: Runtime, tmp_path: Path) -> None:
    """W8."""
    ref, file = desk(runtime), tmp_path / "model"
    first = failed(ref.run(f"fail {file}").get(timeout=SECONDS))
    (tmp_path / "model.released").touch()
    ends = [completed(ref.retry(run_id=first.run_id).get(timeout=SECONDS)) for _ in range(2)]
    assert ends[0].run_id == ends[1].run_id != first.run_id
    assert ends[0].text == f"heard {file}"
    assert type(raised(ref.retry)) is NotInterrupted


def test_a_message_continues_a_failed_run(runtime: Runtime, tmp_path: Path) -> None:
    """W8."""
    ref, file = desk(runtime), tmp_path / "model"
    first = failed(ref.run(f"fail {file}").get(timeout=SECONDS))
    end = completed(ref.run("Hello!", go_on=True).get(timeout=SECONDS))
    assert end.text == "heard Hello!"
    assert end.state.run is not None
    assert end.state.run.continues is not None
    assert end.state.run.continues.run_id == first.run_id


def test_an_answer_that_does_not_fit_its_schema_is_refused(runtime: Runtime) -> None:
    ref = desk(runtime)
    (request,) = interrupted(ref.run("count").get(timeout=SECONDS)).requests
    for door in (ref.resume, ref.decide):
        error = raised(functools.partial(door, {request.id: respond("many")}))
        assert type(error) is DecisionError
        assert "'many' is not of type 'integer'" in str(error)
    assert status_of(ref) is Status.INTERRUPTED
    assert completed(ref.resume({request.id: respond(12)}).get(timeout=SECONDS)).text == "done"


def test_an_outcome_has_its_state(runtime: Runtime) -> None:
    ref = desk(runtime)
    outcome = completed(ref.run("Hello!").get(timeout=SECONDS))
    assert outcome.text == "heard Hello!"
    assert isinstance(outcome.state, AgentState)
    assert outcome.explain() == "Completed after 1 model call: the model gave its final answer."
    state = ref.state().get(timeout=SECONDS)
    assert outcome.state.to_dict()["messages"] == state.to_dict()["messages"]


def test_an_outcome_has_its_state_after_later_runs(runtime: Runtime) -> None:
    ref = desk(runtime)
    ref.pause("wait").get(timeout=SECONDS)
    held = ref.run("measure x").get(timeout=SECONDS)
    assert isinstance(held, Paused)
    ref.unpause().get(timeout=SECONDS)
    measured = completed(ref.outcome().get(timeout=SECONDS) or held)
    asked = interrupted(ref.run("refund 17").get(timeout=SECONDS))
    refunded = completed(ref.resume(asked.decide(approve())).get(timeout=SECONDS))
    ref.run("Hello!").get(timeout=SECONDS)
    how = [outcome.explain().partition(":")[0] for outcome in (held, measured, asked, refunded)]
    assert how == [
        "Paused after 1 model call",
        "Completed after 2 model calls",
        "Waits for a person after 1 model call",
        "Completed after 2 model calls",
    ]
    assert [outcome.cost.requests for outcome in (held, measured, asked)] == [1, 2, 1]
    assert said(refunded.state) == ["measure x", "refund 17"]
    assert (asked.state.decisions, len(refunded.state.decisions)) == ([], 1)


@pytest.mark.parametrize("gone", ["deleted", "replaced", "compacted"])
def test_an_outcome_whose_state_is_gone_names_its_run(tmp_path: Path, gone: str) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    with Cluster(f"{APP}:desks", 1, store=store, engine=Inline()) as cluster:
        ref = desk(cluster, "ann")
        outcome = completed(ref.run("Hello!").get(timeout=SECONDS))
        read = completed(ref.outcome().get(timeout=SECONDS) or outcome)
        assert read.explain().startswith("Completed")
        if gone != "compacted":
            cluster.delete("ann").get(timeout=SECONDS)
        if gone != "deleted":
            desk(cluster, "ann").run("Hello again!").get(timeout=SECONDS)
            cluster.compact("ann").get(timeout=SECONDS)
        named = (
            rf"'ann', run '{outcome.run_id}'.* compacted or deleted. Read `outcome.state` before"
        )
        with pytest.raises(UsageError, match=named):
            outcome.explain()
        with pytest.raises(UsageError, match=named):
            outcome.cost  # noqa: B018  # reading it is what is tested
        assert read.explain().startswith("Completed"), "what was read before stays"


async def test_futures_are_awaited_on_the_loop_of_the_application(runtime: Runtime) -> None:
    ref = desk(runtime)
    async with asyncio.timeout(SECONDS):
        outcome = completed(await ref.run("Hello!"))
        assert len(outcome.state.messages) == 2
        assert ref.id in [info.id async for info in runtime.agents(prefix=ref.id)]


def test_in_a_thread_a_plain_for_goes_over_all_pages_of_a_list(runtime: Runtime) -> None:
    prefix = new_id()
    ids = [f"{prefix}:{n}" for n in range(3)]
    for id in ids:
        completed(desk(runtime, id).run("Hello!").get(timeout=SECONDS))
    assert [info.id for info in runtime.agents(prefix=prefix, limit=2)] == ids


def test_errors_are_of_their_own_types(runtime: Runtime) -> None:
    """J61."""
    ref = desk(runtime)
    outcome = interrupted(ref.run("refund 17").get(timeout=SECONDS))
    (request,) = outcome.requests
    error = raised(lambda: runtime.get("nobody").state())
    assert type(error) is UnknownAgent
    assert error.agent_id == "nobody"
    assert type(raised(lambda: ref.run(""))) is UsageError
    assert type(raised(lambda: ref.resume({"unknown": approve()}))) is DecisionError
    assert type(raised(lambda: ref.run("again", if_interrupted="error"))) is NotInterrupted
    error = raised(lambda: ref.resume({request.id: {"type": "respond"}}))
    assert type(error) is DecisionError
    assert request.id in str(error)
    assert "'respond' needs a `value`" in str(error)
    ref.resume(reject("no")).get(timeout=SECONDS)
    assert type(raised(lambda: ref.resume(reject("no")))) is DecisionError
    assert type(raised(lambda: ref.resume({request.id: approve()}))) is AlreadyDecided
    assert type(raised(lambda: runtime.resolve("no-token", 1))) is UnknownToken
    assert type(raised(lambda: runtime.spawn("nobody"))) is UsageError
    assert type(raised(lambda: runtime.spawn("desk", values={"shop": print}))) is UsageError
    assert type(raised(lambda: runtime.get("a/b"))) is UsageError
    assert type(raised(lambda: ref.run("x", until_tool="no_tool"))) is UsageError
    assert type(raised(lambda: runtime.agents(status="perhaps"))) is UsageError


def test_the_application_has_the_files_of_an_agent(runtime: Runtime) -> None:
    files = Workspace.of(desk(runtime))
    files.write_all({"a.md": "one", "b.bin": b"\0" * 100_000}).get(timeout=SECONDS)
    files.move("a.md", "c/d.md").get(timeout=SECONDS)
    assert [file.path for file in files.list().get(timeout=SECONDS)] == ["b.bin", "c/d.md"]
    assert files.read("c/d.md").get(timeout=SECONDS) == "one"
    assert files.read_bytes("b.bin").get(timeout=SECONDS) == b"\0" * 100_000
    assert type(raised(lambda: files.read("nothing"))) is UsageError
    assert type(raised(lambda: files.write("../a", "x"))) is UsageError
    assert "a.md" not in (files.state().get(timeout=SECONDS).files or {})


def test_the_calls_of_one_caller_keep_their_order(runtime: Runtime) -> None:
    """J61."""
    ref = desk(runtime)
    futures = [ref.send(f"number {n}") for n in range(200)]
    for future in futures:
        future.get(timeout=SECONDS)
    ref.outcome().get(timeout=SECONDS)
    while (state := ref.state().get(timeout=SECONDS)).queue:
        ref.outcome().get(timeout=SECONDS)
    assert said(state) == [f"number {n}" for n in range(200)]


def test_a_cancel_does_not_wait_behind_runs(runtime: Runtime, tmp_path: Path) -> None:
    busy = [desk(runtime) for _ in range(20)]
    runs = [ref.run(f"wait {tmp_path}/{ref.id}") for ref in busy]
    for ref in busy:
        until((tmp_path / f"{ref.id}.entered").exists)
    outcomes = [ref.cancel("enough") for ref in busy]
    for outcome, run in zip(outcomes, runs, strict=True):
        assert type(outcome.get(timeout=SECONDS)).__name__ == "Stopped"
        assert type(run.get(timeout=SECONDS)).__name__ == "Stopped"
    assert {status_of(ref) for ref in busy} == {Status.CANCELLED}


def test_calls_are_answered_while_more_runs_are_waited_for_than_ray_has_slots(
    runtime: Runtime, tmp_path: Path
) -> None:
    """Ray calls at most 1,000 functions of an actor at a time; each waiting run would be one."""
    ref = desk(runtime)
    ref.run(f"wait {tmp_path}/held")
    until((tmp_path / "held.entered").exists)
    waiting = [ref.run(f"number {n}") for n in range(1100)]
    assert len(ref.state().get(timeout=SECONDS).queue) <= 1100
    ref.pause("hold the next one").get(timeout=SECONDS)
    assert not any(run.done() for run in waiting)
    assert runtime.delete(ref.id).get(timeout=SECONDS) is True
    for run in waiting:
        assert raised(functools.partial(_itself, run)) is not None


def _itself(future: Future[Any]) -> Future[Any]:
    return future


def test_events_come_recorded_and_live_and_go_on_after_a_number(runtime: Runtime) -> None:
    ref = desk(runtime)
    ref.run("Hello!").get(timeout=SECONDS)
    events = ref.events()
    seen = []
    for event in events:
        seen.append(event)
        if event.event.kind == "run_finished":
            ref.send("again")
            break
    numbers = [event.seq for event in seen if event.seq is not None]
    assert numbers == sorted(numbers)
    for event in ref.events(after=numbers[-1]):
        assert event.seq is None or event.seq > numbers[-1]
        if event.event.kind == "run_finished":
            break
    events.close()


def test_what_happens_to_all_agents_is_one_feed(runtime: Runtime) -> None:
    feed = runtime.events()
    feed.position().get(timeout=SECONDS)
    ref = desk(runtime)
    ref.run("refund 17").get(timeout=SECONDS)
    seen: list[FeedEvent] = []
    for event in feed:
        if event.agent_id == ref.id:
            seen.append(event)
        if event.event.kind == "request_made":
            break
    again = next(iter(runtime.events(after=seen[0].cursor)))
    assert again == seen[1]


def test_lists_come_in_pages(runtime: Runtime) -> None:
    page = f"{new_id()}-"
    refs = [desk(runtime, f"{page}{n}") for n in range(5)]
    for ref in refs:
        ref.run("Hello!").get(timeout=SECONDS)
    first = runtime.agents(prefix=page, limit=2).get(timeout=SECONDS)
    assert [info.id for info in first] == [f"{page}0", f"{page}1"]
    rest = runtime.agents(prefix=page, after=first.after).get(timeout=SECONDS)
    assert [info.id for info in rest] == [f"{page}2", f"{page}3", f"{page}4"]
    assert runtime.count().get(timeout=SECONDS)[Status.IDLE] >= 5


def test_what_is_in_doubt_is_listed_until_it_is_settled(runtime: Runtime) -> None:
    ref = desk(runtime)
    completed(ref.run("lose 17").get(timeout=SECONDS))

    def doubts() -> list[Doubt]:
        found = runtime.doubts(tool="lose", agent="desk").get(timeout=SECONDS)
        return [doubt for doubt in found if doubt.agent_id == ref.id]

    (doubt,) = doubts()
    assert (doubt.arguments, doubt.is_asked) == ({"order_id": "17"}, False)
    ref.settle(doubt.call_key, how="it was paid").get(timeout=SECONDS)
    assert doubts() == []


def test_a_wait_is_answered_by_its_token(runtime: Runtime, tmp_path: Path) -> None:
    ref = desk(runtime)
    run = ref.run(f"outside {tmp_path}/token")
    until((tmp_path / "token").exists)
    token = (tmp_path / "token").read_text()
    assert runtime.resolve(token, {"paid": 20}, by="bank").get(timeout=SECONDS) is True
    assert runtime.resolve(token, {"paid": 20}).get(timeout=SECONDS) is True
    assert runtime.resolve(token, {"paid": 30}).get(timeout=SECONDS) is False
    assert completed(run.get(timeout=SECONDS)).text == "done"
    assert runtime.waiting(agent="desk").get(timeout=SECONDS) == []


def test_a_tools_value_is_extracted(runtime: Runtime) -> None:
    ref = desk(runtime)
    assert ref.extract(measure, "measure four").get(timeout=SECONDS) == 4
    assert ref.extract("measure", "measure fives").get(timeout=SECONDS) == 5


def test_the_future_of_a_run_has_the_id_of_its_message_at_once(runtime: Runtime) -> None:
    ref = desk(runtime)
    for future in (
        ref.run("measure four"),
        ref.run("measure four", message_id="mine"),
        ref.extract(measure, "measure four"),
    ):
        future.get(timeout=SECONDS)
        outcome = ref.outcome(message_id=future.message_id).get(timeout=SECONDS)
        assert outcome is not None
        completed(outcome)
    assert ref.run("x", message_id="later").message_id == "later"


def test_a_message_with_a_known_id_is_not_run_again(runtime: Runtime) -> None:
    ref = desk(runtime)
    first = completed(ref.run("Hello!", message_id="mail-1").get(timeout=SECONDS))
    again = completed(ref.run("Hello!", message_id="mail-1").get(timeout=SECONDS))
    assert first.run_id == again.run_id


def test_a_middleware_is_told_and_values_are_given(runtime: Runtime) -> None:
    ref = runtime.spawn("desk", new_id(), values={"shop": "Acme"})
    ref.notify("Notes", {"by": "ann"}).get(timeout=SECONDS)
    values = ref.state().get(timeout=SECONDS).values
    assert dict(values) == {"shop": "Acme", "note": {"by": "ann"}}


def test_a_pause_holds_the_next_run(runtime: Runtime) -> None:
    ref = desk(runtime)
    ref.pause("wait").get(timeout=SECONDS)
    outcome = ref.run("measure x").get(timeout=SECONDS)
    assert type(outcome).__name__ == "Paused"
    ref.unpause().get(timeout=SECONDS)
    assert completed(ref.outcome().get(timeout=SECONDS) or outcome).text == "done"


def test_schedules_are_set_listed_and_removed(runtime: Runtime) -> None:
    ref = desk(runtime)
    ref.run("Hello!").get(timeout=SECONDS)
    made = runtime.schedule(ref, "daily", cron="0 9 * * *", input="Report.").get(timeout=SECONDS)
    assert runtime.schedules(ref.id).list().get(timeout=SECONDS) == [made]
    runtime.schedules(ref).pause("daily").get(timeout=SECONDS)
    runtime.schedules(ref).remove("daily").get(timeout=SECONDS)
    assert runtime.schedules(ref).list().get(timeout=SECONDS) == []
    assert type(raised(lambda: runtime.schedules(ref).pause("daily"))) is UsageError


def test_the_agent_of_another_runtime_is_not_scheduled(runtime: Runtime) -> None:
    with Runtime(cluster_app.desks()) as other:
        for one, ref in ((runtime, desk(other)), (other, desk(runtime))):
            with pytest.raises(UsageError, match=rf"{ref.id}.*another runtime.*get\('{ref.id}'\)"):
                one.schedule(ref, "daily", cron="0 9 * * *", input="Report.")
            with pytest.raises(UsageError, match="another runtime"):
                one.schedules(ref)


def test_an_agent_is_exported_deleted_and_imported(runtime: Runtime) -> None:
    ref = desk(runtime)
    ref.run("Hello!").get(timeout=SECONDS)
    data = runtime.export(ref.id).get(timeout=SECONDS)
    assert runtime.delete(ref.id).get(timeout=SECONDS) is True
    assert type(raised(lambda: runtime.get(ref.id).state())) is UnknownAgent
    there = runtime.import_(data).get(timeout=SECONDS)
    assert said(there.state().get(timeout=SECONDS)) == ["Hello!"]
    runtime.compact(ref.id).get(timeout=SECONDS)
    assert there.history().get(timeout=SECONDS).entries


def test_agents_at_rest_are_retired_to_an_archive_or_deleted_without_one(
    runtime: Runtime, tmp_path: Path
) -> None:
    desk(runtime).run("Hello!").get(timeout=SECONDS)
    # Hosts of processes have those of other tests, too.
    rest = runtime.retire(older_than=0, dry_run=True).get(timeout=SECONDS).agents
    assert rest >= 1
    assert "or None to delete" in str(raised(lambda: runtime.retire(older_than=0)))
    done = runtime.retire(older_than=0, to=tmp_path / "x.jsonl").get(timeout=SECONDS)
    assert (done.agents, done.archive) == (rest, tmp_path / "x.jsonl")
    desk(runtime).run("Hello!").get(timeout=SECONDS)
    done = runtime.retire(older_than=0, to=None).get(timeout=SECONDS)
    assert (done.agents, done.archive) == (1, None)


def test_an_agent_is_passivated_and_answers_again(runtime: Runtime) -> None:
    ref = desk(runtime)
    ref.run("Hello!").get(timeout=SECONDS)
    assert ref.stop(timeout=SECONDS) is True
    assert ref.stop(timeout=SECONDS) is False
    assert completed(ref.run("Hello again!").get(timeout=SECONDS)).text == "heard again!"


def test_rows_for_a_screen_come_stored_and_live(runtime: Runtime) -> None:
    ref = desk(runtime)
    ref.run("Hello!").get(timeout=SECONDS)
    update = ref.display().get(timeout=SECONDS)
    followed = ref.display_events()
    rows: dict[str, Any] = {}
    for live in followed:
        rows.update((row.id, row) for row in live.rows)
        if set(rows) >= {row.id for row in update.rows}:
            break
    followed.close()
    assert ref.info().get(timeout=SECONDS).id == ref.id


def test_a_decision_is_recorded_without_waiting_for_the_run(runtime: Runtime) -> None:
    ref = desk(runtime)
    outcome = interrupted(ref.run("refund 17").get(timeout=SECONDS))
    assert ref.decide(outcome.decide(approve(by="ann"))).get(timeout=SECONDS) is None
    assert completed(ref.outcome().get(timeout=SECONDS) or outcome).text == "done"
    first = runtime.outcome(ref.id).get(timeout=SECONDS)
    assert first is not None
    assert first.run_id == outcome.run_id


def test_without_prices_there_are_none(runtime: Runtime) -> None:
    assert runtime.prices is None


def test_the_actors_are_drawn(runtime: Runtime) -> None:
    ref = desk(runtime)
    ref.run("Hello!").get(timeout=SECONDS)
    found: Any = runtime.tree()
    tree = found.get(timeout=SECONDS) if hasattr(found, "get") else found
    assert ref.id in str(tree)


@pytest.fixture(params=["runtime", "inline"])
def making(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runtime]:
    """What makes definitions when they are wanted: a runtime, or a cluster."""
    store = f"sqlite:///{tmp_path}/store.db"
    if request.param == "runtime":
        made = cluster_app.making()
        with Runtime(made.agents, factory=made.factory, store=store) as plain:
            yield plain
    else:
        with Cluster(f"{APP}:making", 1, store=store, engine=Inline()) as cluster:
            yield cluster


@pytest.mark.parametrize("kind", ["runtime", "cluster"])
def test_a_recovery_tells_what_it_does_not_continue(tmp_path: Path, kind: str) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    stranger = Agent(
        "stranger", ScriptedModel(cluster_app.clerk), tools=[cluster_app.wait_for_file]
    )
    with Runtime([stranger], store=store, stop_timeout=0.1) as runtime:
        runtime.spawn("stranger", "ann").run(f"wait {tmp_path}/ann")
        until((tmp_path / "ann.entered").exists)
    opened: Runtime = (
        Runtime(cluster_app.desks(), store=store)
        if kind == "runtime"
        else Cluster(f"{APP}:desks", 1, store=store, engine=Inline())
    )
    with opened:
        recovery = opened.recover().get(timeout=SECONDS)
        assert [ref.id for ref in recovery] == ["ann"]
        assert recovery.settled.get(timeout=SECONDS) is recovery
        assert (recovery.waiting, list(recovery.left)) == ({}, ["ann"])
        assert type(recovery.left["ann"]) is UsageError
        assert "'stranger'" in str(recovery.left["ann"])
        assert type(raised(lambda: opened.recover(at_once=0))) is UsageError


def test_a_definition_is_made_by_a_factory(making: Runtime) -> None:
    """A11: at each activation, from the values that the agent began with."""
    ref = making.spawn("till-1", new_id(), values={"shop": "Acme"})
    assert completed(ref.run("Hello!").get(timeout=SECONDS)).text == "till-1 of Acme"
    assert ref.stop(timeout=SECONDS) is True
    again = making.get(ref.id).run("Hello again!")
    assert completed(again.get(timeout=SECONDS)).text == "till-1 of Acme"
    assert completed(desk(making).run("Hello!").get(timeout=SECONDS)).text == "heard Hello!"
    unknown = making.spawn("nobody", new_id())
    error = raised(lambda: unknown.run("Hello!"))
    assert type(error) is UsageError
    assert "factory" in str(error)
    assert type(raised(lambda: making.spawn("no name"))) is UsageError


def test_an_agent_that_is_made_is_asked_of_a_pool_that_makes_it(database: str) -> None:
    """A11: others are asked of those that declare it, whether or not these make any."""
    pools = [Hosts(f"{APP}:making", 1, name="makes"), Hosts(f"{APP}:vision", 2, name="vision")]
    with Cluster(pools, store=database, engine=Inline()) as cluster:
        tills = [cluster.spawn("till", new_id(), values={"shop": n}) for n in range(4)]
        eyes = [cluster.spawn("vision", new_id()) for _ in range(4)]
        for n, ref in enumerate(tills):
            assert completed(ref.run("Hi!").get(timeout=SECONDS)).text == f"till of {n}"
            assert completed(cluster.get(ref.id).run("Hi!").get(timeout=SECONDS)).text
        for ref in eyes:
            assert completed(ref.run("Hi!").get(timeout=SECONDS)).text == "heard Hi!"


def test_what_is_no_factory_ends_the_start_of_a_cluster(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    with pytest.raises(UsageError, match="`factory`"):
        Cluster(f"{APP}:wrong_factory", 1, store=store, engine=Inline()).__enter__()


LOCAL = {"actor_class", "actor_urn", "actor_stopped"}
"""What tells of objects of one process."""


@pytest.mark.slow
def test_every_call_of_a_runtime_and_of_its_refs_is_one_of_a_cluster() -> None:
    """J61: a call that is new in a runtime, and forgotten here, would look into an empty slot."""
    made_of_others = {"ask", "tell", "extract", "is_alive", "proxy"}
    for kind, whose, others in [
        (ClusterRef, AgentRef, made_of_others),
        (ClusterSchedules, Schedules, set[str]()),
        (Cluster, Runtime, set[str]()),
    ]:
        calls = {name for name, _ in inspect.getmembers(whose) if not name.startswith("_")}
        own = {name for name in vars(kind) if not name.startswith("_")}
        assert calls - own - others - LOCAL == set(), whose


def test_the_author_of_an_act_goes_to_the_host_and_is_checked_there(runtime: Runtime) -> None:
    ref = desk(runtime)
    at = datetime(2999, 1, 1, tzinfo=timezone.utc)
    ref.send("later", at=at, message_id="m", by="ann").get(timeout=SECONDS)
    assert ref.cancel_message("m", by="bob").get(timeout=SECONDS)
    told = {entry.what: entry.who for entry in ref.history().get(timeout=SECONDS)}
    assert (told["message_queued"], told["message_cancelled"]) == ("ann", "bob")
    assert runtime.delete(ref.id, by="ann").get(timeout=SECONDS)
    with pytest.raises(UnknownAgent, match="by ann"):
        runtime.get(ref.id).state().get(timeout=SECONDS)
    assert isinstance(raised(lambda: ref.send("go", by="nobody").get(timeout=SECONDS)), UsageError)


def test_a_search_is_off_unless_the_hosts_have_it(runtime: Runtime) -> None:
    assert type(raised(lambda: runtime.search("hello"))) is SearchOff


def test_a_cluster_searches_where_its_hosts_do(tmp_path: Path) -> None:
    store, inline = f"sqlite:///{tmp_path}/store.db", Inline()
    with Cluster(f"{APP}:desks", 1, store=store, engine=inline, search=True) as cluster:
        ref = desk(cluster)
        ref.run("refund 17").get(timeout=SECONDS)
        page = cluster.search("refund", where="requests", limit=10).get(timeout=SECONDS)
        assert [hit.agent_id for hit in page] == [ref.id]
        assert isinstance(page, SearchPage)
