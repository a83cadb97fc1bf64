"""What a failed or stopped agent tells of what it did, and what is said of calls not entered.

Rules: T17.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.agents import by_turn, completed, contents, interrupted, reloaded, results
from understudy import (
    Agent,
    Failed,
    InMemoryCancellation,
    Interrupt,
    Outcome,
    ScriptedModel,
    StopAgent,
    Stopped,
    StopSignal,
    ToolContext,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.errors import AgentFailed
from understudy.middleware import HumanInTheLoop, Middleware, SubAgent
from understudy.modes import Loop, Parallel, Sequential
from understudy.tools import OutcomeUnknown, ToolFailed

STANDS = "It has done, and this stands:"
UNKNOWN = "Nobody knows whether these took effect:"


@tool
async def pay(n: int = 1) -> str:
    return f"paid {n}"


@tool
async def send(n: int = 1) -> str:
    return f"sent {n}"


@tool(read_only=True)
async def look(n: int = 1) -> str:
    return "seen"


@tool
async def vanish(n: int = 1) -> str:
    raise OutcomeUnknown("no answer")


@tool
async def stop() -> str:
    raise StopAgent(StopSignal.stop_requested("enough"))


@tool
async def gives_up(ctx: ToolContext) -> str:
    await ctx.once("charge", lambda: "charged")
    raise ToolFailed("the shop is closed")


@tool
async def pays_and_waits(ctx: ToolContext) -> str:
    await ctx.once("charge", lambda: "charged")
    await ctx.sleep("settlement", 86_400)
    return "settled"


TOOLS = [pay, send, look, vanish, stop, gives_up, pays_and_waits]


def worker(*turns: Any, name: str = "worker", fails: bool = True, **options: Any) -> Agent:
    """An agent that replies these turns; then its model fails."""
    down = [ConnectionError("the model is down")] if fails else []
    return Agent(name, by_turn(*turns, *down), tools=TOOLS, **options)


def task(agent: str = "worker", told: str = "go") -> Any:
    return call("task", {"task_name": agent, "instructions": told})


def above(inner: Agent, *turns: Any, name: str = "desk", **options: Any) -> Agent:
    """An agent that hands a task to the inner one."""
    stack = [SubAgent([inner], general_purpose=False)]
    return Agent(name, by_turn(*(turns or (task(inner.name),))), middleware=stack, **options)


def lines(outcome: Outcome) -> list[str]:
    """The model's text about its last call, without its first line."""
    return str(results(outcome.state)[-1].content).split("\n")[1:]


def last(outcome: Outcome) -> str:
    """The model's text about its last call."""
    return str(results(outcome.state)[-1].content)


# -------------------------------------------------------------------- agents inside of calls


def test_a_failed_task_tells_what_was_done_and_what_may_have_been() -> None:
    """S4: by tool; read-only calls are not reported."""
    calls = [
        call("pay", {"n": 1}),
        call("send"),
        call("look"),
        call("vanish"),
        call("pay", {"n": 2}),
    ]
    outcome = completed(above(worker(calls)).execute_sync("go"))
    assert contents(outcome.state)[0][0] == "failed"
    assert lines(outcome) == [
        STANDS,
        '- pay({"n":1})',
        '- pay({"n":2})',
        '- send({"n":1})',
        UNKNOWN,
        '- vanish({"n":1})',
    ]


@pytest.mark.parametrize("name", ["pay", "vanish"])
def test_of_many_calls_the_last_twenty_are_told_and_the_others_counted(name: str) -> None:
    """S4."""
    calls = [call(name, {"n": n}) for n in range(23)]
    told = lines(completed(above(worker(calls)).execute_sync("go")))
    assert told[0] == (STANDS if name == "pay" else UNKNOWN)
    assert told[1:-1] == [f'- {name}({{"n":{n}}})' for n in range(3, 23)]
    assert told[-1] == "- and 3 calls before these"


def test_a_task_of_a_failed_task_is_told_with_its_agent() -> None:
    """S4: what the inner agents did is reported once, whether they failed or not."""
    inner = worker([call("pay"), call("vanish")], name="inner", fails=False)
    middle = above(inner, task("inner"), ConnectionError("down"), name="middle")
    told = lines(completed(above(middle).execute_sync("go")))
    assert told == [STANDS, '- inner: pay({"n":1})', UNKNOWN, '- inner: vanish({"n":1})']


def test_a_call_that_stopped_its_agent_was_done() -> None:
    """S4: its body was entered, and ended as it wanted."""
    told = lines(completed(above(worker([call("pay"), call("stop")])).execute_sync("go")))
    assert told == [STANDS, '- pay({"n":1})', "- stop({})"]


def test_what_a_call_has_done_once_before_it_failed_is_told() -> None:
    """S4, T11."""
    told = lines(completed(above(worker(call("gives_up"))).execute_sync("go")))
    assert told == [STANDS, "- gives_up({}) in part: 'charge' once"]


def test_what_a_person_found_done_is_told_and_what_they_did_instead_is_not() -> None:
    """S4, J4: the answer to a doubt says what the call did, that to a gate that it did not run."""
    gates = [HumanInTheLoop({"vanish": True, "send": True})]
    inner = worker([call("vanish"), call("send")], middleware=gates)
    desk = above(inner)
    asked = interrupted(desk.execute_sync("go"))
    answers = {
        request.id: approve() if request.tool_name == "vanish" else respond("by hand")
        for request in asked.requests
    }
    doubt = interrupted(desk.resume_sync(reloaded(asked.state), answers))
    assert [request.kind for request in doubt.requests] == ["doubt"]
    end = completed(desk.resume_sync(reloaded(doubt.state), doubt.decide(respond("it arrived"))))
    assert lines(end) == [STANDS, '- vanish({"n":1})']


class Cached(Middleware):
    """Answers in the place of one tool."""

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        return "from the cache" if call.tool_name == "pay" else await next(call)


def test_what_a_middleware_answered_was_not_done() -> None:
    """S4."""
    inner = worker([call("pay"), call("send")], middleware=[Cached()])
    assert lines(completed(above(inner).execute_sync("go"))) == [STANDS, '- send({"n":1})']


# ------------------------------------------------------------------------------- workflows


def flow(kind: str) -> Any:
    """A workflow whose second step pays and fails, after the first one has paid."""
    first = worker(call("pay", {"n": 1}), name="first", fails=False)
    second = worker([call("pay", {"n": 2}), call("vanish")], name="second")
    return Agent("worker", mode={"Sequential": Sequential, "Loop": Loop}[kind]([first, second]))


TOLD = [
    STANDS,
    '- first: pay({"n":1})',
    '- second: pay({"n":2})',
    UNKNOWN,
    '- second: vanish({"n":1})',
]


@pytest.mark.parametrize("kind", ["Sequential", "Loop"])
@pytest.mark.parametrize("where", ["itself", "task", "step"])
def test_a_failed_workflow_tells_once_what_its_steps_did(kind: str, where: str) -> None:
    """W6, S4: to who runs it, to the model that ordered it, and as a step of another one."""
    if where == "task":
        told = lines(completed(above(flow(kind)).execute_sync("go")))
    else:
        agent = flow(kind)
        agent = Agent("whole", mode=Sequential([agent])) if where == "step" else agent
        outcome = agent.execute_sync("go")
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, AgentFailed)
        assert outcome.error.did == "\n".join(TOLD)
        told = outcome.error.message.split("\n")[1:]
    assert told == TOLD


def test_a_failed_branch_tells_what_those_beside_it_did() -> None:
    """W6: also of one that was stopped because of it, in part."""
    one = worker(call("pays_and_waits"), name="one", fails=False)
    other = worker(call("pay"), call("look"), call("look"), name="other")
    outcome = Agent("whole", mode=Parallel([one, other])).execute_sync("go")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, AgentFailed)
    assert outcome.error.did.split("\n") == [
        STANDS,
        "- one: pays_and_waits({}) in part: 'charge' once",
        '- other: pay({"n":1})',
    ]


def test_a_continued_workflow_that_fails_again_tells_of_both_runs() -> None:
    """W6, S4: what the failed run had done, and what it did not know, stands."""
    first = worker([call("pay"), call("vanish")], name="first", fails=False)
    failing = [ConnectionError("down"), call("send"), ConnectionError("down")]
    turns = iter(failing)
    second = Agent("second", ScriptedModel(lambda request: next(turns)), tools=TOOLS)
    agent = Agent("whole", mode=Sequential([first, second]))
    failed = agent.execute_sync("go")
    again = agent.retry_sync(reloaded(failed.state))
    assert isinstance(again, Failed)
    assert isinstance(again.error, AgentFailed)
    assert again.error.did.split("\n") == [
        STANDS,
        '- first: pay({"n":1})',
        '- second: send({"n":1})',
        UNKNOWN,
        '- first: vanish({"n":1})',
    ]


# ------------------------------------------------------------------ the next request for it


def test_who_decides_about_a_task_sees_what_its_agent_did_that_failed() -> None:
    """S4, I7: with any new instructions; not what another agent did, nor one that succeeded."""
    failing = worker(call("pay"))
    fine = worker(call("send"), name="fine", fails=False)
    stack = [SubAgent([failing, fine], general_purpose=False)]
    turns = [[task("worker", "pay them"), task("fine")], task("worker", "try again")]
    desk = Agent("desk", by_turn(*turns), middleware=stack, interrupt_on={"task": True})
    first = interrupted(desk.execute_sync("go"))
    assert [request.earlier for request in first.requests] == [(), ()]
    answers = {request.id: approve() for request in first.requests}
    (request,) = interrupted(desk.resume_sync(reloaded(first.state), answers)).requests
    (shown,) = request.earlier
    assert shown.outcome == "failed"
    assert shown.content.split("\n")[1:] == [STANDS, '- pay({"n":1})']


def test_the_whole_of_what_a_failed_agent_did_is_shown() -> None:
    """S4, I7."""
    text = "x" * 150
    calls = [call("note", {"text": f"{n} {text}"}) for n in range(20)]

    @tool
    async def note(text: str) -> str:
        return "noted"

    inner = Agent("worker", by_turn(calls, ConnectionError("down")), tools=[note])
    desk = above(inner, task(), task(), interrupt_on={"task": True})
    first = interrupted(desk.execute_sync("go"))
    second = interrupted(desk.resume_sync(reloaded(first.state), first.decide(approve())))
    (shown,) = second.requests[0].earlier
    assert shown.content.count(text) == 20


# ------------------------------------------------------------------ words of what was not entered


class Asks(Middleware):
    """Asks before it passes a call on."""

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        if run.answer("sure") is None:
            raise Interrupt("sure?", key="sure", allowed=("approve", "reject"))
        return await next(call)


class Raises(Middleware):
    """Makes each payment one of 1000, for which a person is asked."""

    async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
        return await next(call.replace({"n": 1000}))


def cancelled(agent: Agent, outcome: Outcome) -> Outcome:
    switch = InMemoryCancellation()
    switch.cancel()
    return agent.resume_sync(reloaded(outcome.state), cancellation=switch)


LARGE = HumanInTheLoop({"pay": {"when": lambda arguments, ctx: arguments["n"] > 100}})
BEFORE: dict[str, list[Middleware]] = {
    "a middleware asks": [Asks()],
    "a middleware changes it": [LARGE, Raises()],
}


@pytest.mark.parametrize("stack", BEFORE.values(), ids=BEFORE)
def test_a_call_that_a_middleware_holds_up_was_not_run(stack: list[Middleware]) -> None:
    """R4: its start is recorded, and its body was not entered."""
    desk = Agent("desk", by_turn(call("pay")), tools=TOOLS, middleware=stack)
    asked = interrupted(desk.execute_sync("go"))
    stopped = cancelled(desk, asked)
    assert isinstance(stopped, Stopped)
    moved_on = completed(desk.execute_sync("never mind", state=reloaded(asked.state)))
    for outcome in (stopped, moved_on):
        assert last(outcome).startswith("Not run: ")
        assert outcome.state.doubts == {}


def test_a_changed_call_that_a_person_rejects_was_not_run() -> None:
    """R4, I1."""
    stack = BEFORE["a middleware changes it"]
    desk = Agent("desk", by_turn(call("pay")), tools=TOOLS, middleware=stack)
    asked = interrupted(desk.execute_sync("go"))
    end = completed(desk.resume_sync(reloaded(asked.state), asked.decide(reject("too much"))))
    assert last(end).startswith("Denied: a person decided that this call must not run.")


def test_a_call_that_was_entered_before_a_middleware_asked_ran_in_part() -> None:
    """R4: in an attempt before."""

    class AsksLater(Middleware):
        async def wrap_tool_call(self, run: Any, call: Any, next: Any) -> Any:
            if call.context.resumed and run.answer("sure") is None:
                raise Interrupt("sure?", key="sure", allowed=("approve", "reject"))
            return await next(call)

    @tool
    async def asks(ctx: ToolContext) -> str:
        await ctx.once("charge", lambda: "charged")
        if not ctx.resumed:
            raise Interrupt("to whom?")
        return "done"

    desk = Agent("desk", by_turn(call("asks")), tools=[asks], middleware=[AsksLater()])
    asked = interrupted(desk.execute_sync("go"))
    again = interrupted(desk.resume_sync(reloaded(asked.state), asked.decide(respond("them"))))
    assert again.requests[0].question_key
    told = last(cancelled(desk, again))
    assert told.startswith("Ran in part: ")
    assert told.endswith("It had done this: 'charge' once.")


def test_a_stopped_task_tells_what_is_in_doubt_inside_of_it() -> None:
    """R4, S4: and what was done in part."""
    calls = [call("pay"), call("vanish"), call("pays_and_waits")]
    desk = above(worker(calls, fails=False))
    told = last(cancelled(desk, desk.execute_sync("go")))
    assert told.startswith("Ran in part: the agent that this call ran was stopped")
    done = """worker: pay({"n":1}), worker: pays_and_waits({}) in part: 'charge' once."""
    assert f"It had done this: {done}" in told
    assert told.endswith(UNKNOWN + ' worker: vanish({"n":1}).')


def test_a_call_that_fails_after_it_paid_says_so_whatever_it_raised() -> None:
    """J4, T11: also what leaves open by itself what happened."""

    @tool(on_unknown="ask")
    async def act(ctx: ToolContext) -> str:
        await ctx.once("charge", lambda: "charged")
        raise ConnectionResetError("gone")

    asked = interrupted(Agent("desk", by_turn(call("act")), tools=[act]).execute_sync("go"))
    reason = asked.requests[0].payload["reason"]
    assert "ConnectionResetError: gone" in reason
    assert reason.endswith("after it had done this: 'charge' once")
