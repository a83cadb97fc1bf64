"""W8: a failed run of an agent by id is continued by `retry`, once, whoever asks and wherever."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.agents import Held, completed, told_by_users
from tests.support.loops import soon
from tests.support.outages import Outage, failed
from tests.support.places import Place
from tests.support.plans import DAY, outcome_of
from tests.support.postgres import Hosts
from understudy import (
    Agent,
    AgentRef,
    Price,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    Stopped,
    call,
    tool,
)
from understudy.actors.agent import message_ids
from understudy.errors import (
    NoProgress,
    NotInterrupted,
    OtherRun,
    OtherWorkflow,
    UsageError,
)
from understudy.journal import DatabaseStore, Store
from understudy.modes import Parallel, Sequential


def opened(store: Store, *agents: Agent, **options: Any) -> Runtime:
    options.setdefault("stop_timeout", 0.001)
    options.setdefault("idle_timeout", None)
    options.setdefault("sweep", None)
    return Runtime(agents, store=store, **options)


@pytest.fixture
def outage() -> Outage:
    return Outage()


def noting(ran: list[str]) -> Any:
    @tool
    async def note(text: str) -> str:
        ran.append(text)
        return f"noted {text}"

    return note


def flow(outage: Outage, ran: list[str], *, name: str = "flow", **options: Any) -> Agent:
    """Its first agent notes, its second one fails after it has noted."""
    tools = [noting(ran)]
    first = Agent("first", outage.model([call("note", {"text": "a"})], "a"), tools=tools)
    model = outage.model([call("note", {"text": "b"})], outage.until_over("b"))
    second = Agent("second", model, tools=tools)
    return Agent(name, mode=Sequential([first, second]), **options)


async def test_a_failed_run_is_retried_once_by_its_id(
    place: Place, outage: Outage, ran: list[str]
) -> None:
    """W8, J14: the same retry again brings the outcome of the run that it has begun."""
    async with opened(place.store(), flow(outage, ran)) as runtime:
        ref = runtime.spawn("flow", "t")
        first = failed(await soon(ref.run("go")))
        assert ref.status() is Status.FAILED
        outage.lasts = False
        retries = [ref.retry(run_id=first.run_id) for _ in range(2)]
        second, same = [completed(await soon(retry)) for retry in retries]
        assert second.run_id == same.run_id != first.run_id
        assert second.text == "b"
        again = completed(await soon(ref.retry(run_id=first.run_id)))
        assert again.run_id == second.run_id
        completed(await soon(ref.run("more")))
        late = completed(await soon(ref.retry(run_id=first.run_id)))
        assert (late.run_id, late.text) == (second.run_id, "b")
        assert ran == ["a", "b"]
    async with opened(place.after_crash(), flow(outage, ran)) as runtime:
        late = completed(await soon(runtime.get("t").retry(run_id=first.run_id)))
        assert (late.run_id, late.text) == (second.run_id, "b")
        with pytest.raises(NotInterrupted, match="nothing to retry"):
            await soon(runtime.get("t").retry())
    assert ran == ["a", "b"]


async def test_what_the_runs_cost_is_counted_once(outage: Outage, ran: list[str]) -> None:
    """W8: by the run that has paid it."""
    prices = {"scripted": Price(input=1, output=1)}
    async with Runtime([flow(outage, ran)], pricing=prices) as runtime:
        ref = runtime.spawn("flow")
        first = failed(await soon(ref.run("go")))
        outage.lasts = False
        second = completed(await soon(ref.retry()))
        assert (first.cost.requests, second.cost.requests) == (3, 1)
        total = second.state.total_cost
        assert (total.requests, total.at_least) == (4, first.cost.at_least + second.cost.at_least)


async def test_each_retry_that_fails_is_the_run_that_is_retried_next(
    place: Place, outage: Outage, ran: list[str]
) -> None:
    """W8: five in a row without progress are enough."""
    async with opened(place.store(), flow(outage, ran)) as runtime:
        ref = runtime.spawn("flow", "t")
        runs = [failed(await soon(ref.run("go"))).run_id]
        for _ in range(5):
            runs.append(failed(await soon(ref.retry(run_id=runs[-1]))).run_id)
        assert len(set(runs)) == 6
        for before, after in itertools.pairwise(runs):
            assert failed(await soon(ref.retry(run_id=before))).run_id == after
        for refused in (ref.retry(), ref.retry(run_id=runs[-1]), ref.run("x", go_on=True)):
            with pytest.raises(NoProgress):
                await soon(refused)
        assert ref.status() is Status.FAILED
        outage.lasts = False
        anew = completed(await soon(ref.run("anew")))
        assert anew.state.run is not None
        assert anew.state.run.continues is None


async def test_a_retry_that_is_killed_goes_on_after_the_crash(
    place: Place, outage: Outage, ran: list[str]
) -> None:
    """W8, J3."""
    kills = [True]

    def replies(request: Any) -> Any:
        turn = sum(message.kind == "response" for message in request.messages)
        if turn == 0:
            return [call("note", {"text": "b"})]
        if outage.lasts:
            raise ConnectionError("down")
        if kills:
            kills.clear()
            raise SystemExit("bang")
        return "b"

    tools = [noting(ran)]
    first = Agent("first", outage.model([call("note", {"text": "a"})], "a"), tools=tools)
    second = Agent("second", ScriptedModel(replies), tools=tools)
    agent = Agent("flow", mode=Sequential([first, second]))
    async with opened(place.store(), agent) as runtime:
        ref = runtime.spawn("flow", "t")
        run_id = failed(await soon(ref.run("go"))).run_id
        outage.lasts = False
        end = completed(await soon(ref.retry(run_id=run_id)))
        assert not kills
        assert (end.text, ran) == ("b", ["a", "b"])
        assert completed(await soon(ref.retry(run_id=run_id))).run_id == end.run_id


async def test_a_process_that_dies_in_a_retry_is_continued_by_the_next_one(
    place: Place, outage: Outage, ran: list[str]
) -> None:
    """W8, J3: who asks for the same retry there waits for the run that it has begun."""
    held = Held("never")
    tools = [noting(ran)]

    def make(last: Any) -> Agent:
        first = Agent("first", outage.model([call("note", {"text": "a"})], "a"), tools=tools)
        second = Agent("second", outage.model(outage.until_over("b")))
        return Agent(
            "flow", mode=Sequential([first, second, Agent("third", ScriptedModel([last]))])
        )

    async with opened(place.store(), make(held)) as runtime:
        ref = runtime.spawn("flow", "t")
        run_id = failed(await soon(ref.run("go"))).run_id
        outage.lasts = False
        retry = ref.retry(run_id=run_id)
        await soon(held.entered.wait())
        async with opened(place.after_crash(), make("c")) as later:
            end = completed(await soon(later.get("t").retry(run_id=run_id)))
            assert (end.text, ran) == ("c", ["a"])
        assert retry is not None


async def test_what_is_left_is_kept_over_a_compaction_and_in_a_copy(
    place: Place, outage: Outage, ran: list[str]
) -> None:
    """W8, J12."""
    async with opened(place.store(), flow(outage, ran)) as runtime:
        ref = runtime.spawn("flow", "t")
        run_id = failed(await soon(ref.run("go"))).run_id
        await soon(ref.compact())
        data = await soon(runtime.export("t"))
        copy = await soon(runtime.import_(data, id="copy"))
        outage.lasts = False
        for each in (ref, copy):
            assert completed(await soon(each.retry(run_id=run_id))).text == "b"
        assert ran == ["a", "b"]


async def test_a_retry_is_known_when_its_id_is_in_the_store_alone(
    place: Place, outage: Outage, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """W8, J14."""
    monkeypatch.setattr(message_ids, "KEPT", 3)
    monkeypatch.setattr(message_ids, "AT_ONCE", 2)
    monkeypatch.setattr(message_ids, "KEPT_FOR", message_ids.KEPT_FOR * 0)
    async with opened(place.store(), flow(outage, ran)) as runtime:
        ref = runtime.spawn("flow", "t")
        first = failed(await soon(ref.run("go")))
        outage.lasts = False
        second = completed(await soon(ref.retry(run_id=first.run_id)))
        for number in range(8):
            await soon(ref.run("more", message_id=f"m{number}"))
        state = await soon(ref.state())
        assert not any(id.startswith("retry/") for id in state.message_ids)
        again = completed(await soon(ref.retry(run_id=first.run_id)))
        assert again.run_id == second.run_id


async def test_a_message_id_that_a_retry_could_have_is_refused() -> None:
    """J14."""
    async with Runtime([Agent("a", ScriptedModel([]))]) as runtime:
        with pytest.raises(UsageError, match="must not begin with 'retry/'"):
            runtime.spawn("a").run("go", message_id="retry/1")


async def test_a_run_that_was_cancelled_is_not_retried(outage: Outage) -> None:
    """W8: a call that names it brings its outcome, as for any other run that is over."""
    held = Held()
    async with Runtime([Agent("a", ScriptedModel([held, "done"]))]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        stopped = await soon(ref.cancel())
        assert isinstance(stopped, Stopped)
        assert isinstance(await soon(run), Stopped)
        with pytest.raises(NotInterrupted, match="nothing to retry"):
            await soon(ref.retry())
        assert isinstance(await soon(ref.retry(run_id=stopped.run_id)), Stopped)
        assert completed(await soon(ref.run("go", go_on=True))).text == "done"


async def test_a_failed_run_that_others_came_after_is_not_retried(outage: Outage) -> None:
    """W8."""
    async with Runtime([Agent("a", outage.model(outage.until_over("done")))]) as runtime:
        ref = runtime.spawn("a")
        first = failed(await soon(ref.run("go")))
        second = failed(await soon(ref.run("go")))
        with pytest.raises(OtherRun):
            await soon(ref.retry(run_id=first.run_id))
        outage.lasts = False
        assert completed(await soon(ref.retry(run_id=second.run_id))).text == "done"


async def test_while_a_run_is_under_way_nothing_is_retried(outage: Outage) -> None:
    """W8."""
    held = Held("done")
    replies: list[Any] = [ConnectionError("down"), held]
    async with Runtime([Agent("a", ScriptedModel(replies))]) as runtime:
        ref = runtime.spawn("a")
        first = failed(await soon(ref.run("go")))
        run = ref.run("anew")
        await soon(held.entered.wait())
        with pytest.raises(NotInterrupted):
            await soon(ref.retry())
        with pytest.raises(OtherRun):
            await soon(ref.retry(run_id=first.run_id))
        held.release.set()
        assert completed(await soon(run)).text == "done"


async def test_other_agents_are_refused_and_the_agent_stays_as_it_is(
    place: Place, outage: Outage, ran: list[str]
) -> None:
    """W8."""
    async with opened(place.store(), flow(outage, ran)) as runtime:
        run_id = failed(await soon(runtime.spawn("flow", "t").run("go"))).run_id
    outage.lasts = False
    other = Agent("flow", mode=Parallel([Agent("first", ScriptedModel(["new"]))]))
    async with opened(place.store(), other) as runtime:
        ref = runtime.get("t")
        for refused in (ref.retry(), ref.run("x", go_on=True)):
            with pytest.raises(
                OtherWorkflow, match=r"Sequential\(first, second\).*Parallel\(first\)"
            ):
                await soon(refused)
        assert ref.status() is Status.FAILED
    async with opened(place.store(), flow(outage, ran)) as runtime:
        assert completed(await soon(runtime.get("t").retry(run_id=run_id))).text == "b"
    assert ran == ["a", "b"]


async def test_a_message_continues_a_failed_run_where_it_says_so(
    place: Place, outage: Outage
) -> None:
    """W8: once, whoever sends it again. A retry of that run is answered by the same run."""
    model = outage.model([call("note", {"text": "a"})], outage.until_over("done"))
    ran: list[str] = []
    agent = Agent("a", model, tools=[noting(ran)])
    async with opened(place.store(), agent) as runtime:
        ref = runtime.spawn("a", "t")
        first = failed(await soon(ref.run("go")))
        outage.lasts = False
        runs = [ref.run("and hurry", go_on=True, message_id="m") for _ in range(2)]
        second, same = [completed(await soon(run)) for run in runs]
        assert second.run_id == same.run_id
        assert (second.text, ran) == ("done", ["a"])
        assert told_by_users(model.requests[-1]) == ["go", "and hurry"]
        assert completed(await soon(ref.retry(run_id=first.run_id))).run_id == second.run_id
        usual = completed(await soon(ref.run("more", go_on=True)))
        assert usual.state.run is not None
        assert usual.state.run.continues is None


async def test_a_message_that_waits_behind_a_run_that_fails_continues_that(outage: Outage) -> None:
    """W8."""
    held = Held()

    async def fails(request: Any) -> Any:
        await held(request)
        raise ConnectionError("down")

    model = ScriptedModel([fails, "done"])
    async with Runtime([Agent("a", model)]) as runtime:
        ref = runtime.spawn("a")
        run = ref.run("go")
        await soon(held.entered.wait())
        behind = ref.run("and hurry", go_on=True)
        held.release.set()
        failed(await soon(run))
        end = completed(await soon(behind))
        assert end.state.run is not None
        assert end.state.run.continues is not None
        assert told_by_users(model.requests[-1]) == ["go", "and hurry"]


async def test_an_occurrence_of_a_schedule_begins_anew(clock: SimulatedClock) -> None:
    """W8: a retry continues it, as one that the schedule has begun."""
    model = ScriptedModel([ConnectionError("down"), ConnectionError("down"), "done"])
    async with Runtime([Agent("a", model)], clock=clock) as runtime:
        ref = runtime.spawn("a")
        await soon(runtime.schedule(ref, "daily", cron="0 9 * * *", input="Report."))
        for _ in range(2):
            await soon(clock.advance(DAY))
            last = failed(await outcome_of(ref))
            assert last.state.run is not None
            assert last.state.run.continues is None
        end = completed(await soon(ref.retry(run_id=last.run_id)))
        before, after = last.state.run, end.state.run
        assert before is not None
        assert after is not None
        assert after.occurrence == before.occurrence is not None
        assert told_by_users(model.requests[-1]) == ["Report.", "Report."]


@pytest.mark.quick
async def test_a_retry_continues_from_another_host(
    hosts: Hosts, outage: Outage, ran: list[str]
) -> None:
    """W8, J70: and the host that had the agent knows the run that it has begun."""
    async with (
        opened(DatabaseStore(hosts.new("here")), flow(outage, ran)) as first,
        opened(DatabaseStore(hosts.new("there")), flow(outage, ran)) as second,
    ):
        here, there = first.spawn("flow", "t"), second.get("t")
        run_id = failed(await soon(here.run("go"))).run_id
        outage.lasts = False
        end = completed(await soon(there.retry(run_id=run_id)))
        assert (end.text, ran) == ("b", ["a", "b"])
        assert completed(await soon(here.retry(run_id=run_id))).run_id == end.run_id
        with pytest.raises(NotInterrupted):
            await soon(here.retry())


async def test_two_hosts_that_retry_a_run_at_once_begin_one(
    hosts: Hosts, outage: Outage, ran: list[str]
) -> None:
    """W8, J70."""
    async with (
        opened(DatabaseStore(hosts.new("here")), flow(outage, ran)) as first,
        opened(DatabaseStore(hosts.new("there")), flow(outage, ran)) as second,
    ):
        here, there = first.spawn("flow", "t"), second.get("t")
        run_id = failed(await soon(here.run("go"))).run_id
        outage.lasts = False
        retries = [ref.retry(run_id=run_id) for ref in (here, there) * 3]
        ends = [completed(await soon(retry)) for retry in retries]
        assert len({end.run_id for end in ends}) == 1
        assert ran == ["a", "b"]
    ((begun,),) = hosts.sql("SELECT count(*) FROM records WHERE kind = 'run_started'")
    assert begun == 2


async def test_a_retry_at_a_host_that_must_not_run_the_agent_is_done_by_its_owner(
    hosts: Hosts, outage: Outage, ran: list[str]
) -> None:
    """W8, J70: it is posted there, with the run that it is for. So is a message that continues."""
    async with (
        opened(DatabaseStore(hosts.new("here")), flow(outage, ran, movable=False)) as first,
        opened(DatabaseStore(hosts.new("there")), flow(outage, ran, movable=False)) as second,
    ):
        refs: list[tuple[AgentRef, Callable[[AgentRef], Any]]] = [
            (first.spawn("flow", "a"), lambda ref: ref.retry()),
            (first.spawn("flow", "b"), lambda ref: ref.run("and hurry", go_on=True)),
        ]
        outage.lasts = True
        before = [failed(await soon(ref.run("go"))).run_id for ref, _ in refs]
        outage.lasts = False
        for (ref, asked), run_id in zip(refs, before, strict=True):
            end = completed(await soon(asked(second.get(ref.id))))
            assert end.state.run is not None
            assert end.state.run.continues is not None
            assert end.state.run.continues.run_id == run_id
            assert end.state.run.host == "here"
        assert ran == ["a", "b"] * 2
