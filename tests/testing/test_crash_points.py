"""K1, K2: a test is played at every point at which its host may be killed, and can fail."""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import shlex
import signal
import threading
import time
from typing import Any

import pytest

from understudy import (
    Agent,
    Completed,
    ScriptedModel,
    ToolContext,
    approve,
    call,
    reject,
    tool,
)
from understudy.errors import UsageError
from understudy.middleware import Middleware, SubAgent
from understudy.models import ScriptedRequest
from understudy.testing import (
    FakePeople,
    FakeRemote,
    Fault,
    Story,
    StoryFailed,
    crash_points,
)
from understudy.tools import DidNotHappen, Happened, Tool
from understudy.trust import approval

MEMORY = {"store": "memory"}


def clerk(bank: FakeRemote, *turns: Any, gated: bool = False, **options: Any) -> Agent:
    """An agent that pays, and that says "done" then."""

    @tool(**options)
    async def pay(ctx: ToolContext, order: str) -> str:
        return bank.send(order, key=ctx.call_key)

    gates = {"pay": True} if gated else None
    script = turns or (call("pay", {"order": "17"}), "done")
    return Agent("clerk", ScriptedModel(script), tools=[pay], interrupt_on=gates)


def played(test: Any, **options: Any) -> str:
    """Play the test; what it says where it fails."""
    with pytest.raises(StoryFailed) as failed:
        crash_points(**{**MEMORY, **options})(test)()
    return str(failed.value)


@pytest.mark.slow
@crash_points()
def test_a_payment_under_its_key_is_made_once_at_every_point(story: Story) -> None:
    """K1."""
    bank = story.remote(dedupe=True)
    story.spawn(clerk(bank, idempotent=True))
    assert isinstance(story.say("pay"), Completed)
    story.finish()
    story.effects.once("17")
    story.same_outcome()


@pytest.mark.slow
@crash_points(store=["memory", "sqlite"])
def test_a_call_in_doubt_is_not_repeated_by_itself(story: Story) -> None:
    story.spawn(clerk(story.remote(), gated=True))
    story.say("pay")
    story.answer(approve())
    story.finish()
    story.effects.once("17")
    story.same_outcome()


@pytest.mark.slow
@crash_points(store="memory", twice=True)
def test_a_check_settles_what_two_crashes_in_a_row_have_left(story: Story) -> None:
    bank = story.remote()
    story.spawn(clerk(bank, check=lambda ctx, arguments: bank.find(key=ctx.call_key)))
    story.say("pay")
    story.finish()
    story.effects.once("17")


@pytest.mark.slow
@crash_points(store="sqlite", kill="process")
def test_a_process_that_is_killed_leaves_nothing_that_happens_twice(story: Story) -> None:
    bank = story.remote(dedupe=True)
    story.spawn(clerk(bank, idempotent=True))
    story.say("pay")
    story.finish()
    story.effects.once("17")
    assert bank.requests, "what was asked of it in the process that is gone is known"


@pytest.mark.slow
def test_another_host_takes_over_where_the_first_one_is_killed(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERSTUDY_POSTGRESQL", postgres_url)

    def test(story: Story) -> None:
        story.spawn(clerk(story.remote(dedupe=True), idempotent=True, gated=True))
        story.say("pay")
        story.answer(approve())
        story.finish()
        story.effects.once("17")
        story.same_outcome()

    crash_points(store="postgresql")(test)()
    crash_points(store="postgresql", two_hosts=True)(test)()


@pytest.mark.slow
@crash_points(store="memory")
async def test_an_async_story_with_an_agent_inside_an_agent(story: Story) -> None:
    bank = story.remote(dedupe=True)
    inner = clerk(bank, idempotent=True, gated=True)
    script = [call("task", {"task_name": "clerk", "instructions": "pay"}), "all is paid"]
    team = SubAgent([inner], general_purpose=False)
    boss = Agent("boss", ScriptedModel(script), middleware=[team])
    story.spawn(boss)
    story.say("see that it is paid")
    story.answer(approve())
    story.finish()
    story.effects.once("17")
    story.same_outcome()


@pytest.mark.slow
@crash_points(store="memory")
def test_what_is_due_in_days_happens_once_whoever_is_killed_meanwhile(story: Story) -> None:
    bank = story.remote(dedupe=True)

    @tool(idempotent=True)
    async def pay_later(ctx: ToolContext) -> str:
        await ctx.sleep("a while", 2 * 86_400)
        return bank.send("17", key=ctx.call_key)

    story.spawn(Agent("clerk", ScriptedModel([call("pay_later"), "done"]), tools=[pay_later]))
    story.say("pay")
    story.wait("3 days")
    story.finish()
    story.effects.once("17")
    story.same_outcome()


@pytest.mark.slow
@crash_points(store="memory")
def test_another_version_is_deployed_while_a_person_is_asked(story: Story) -> None:
    bank = story.remote(dedupe=True)
    story.spawn(clerk(bank, gated=True, idempotent=True))
    story.say("pay")
    story.deploy(clerk(bank, gated=True, idempotent=True))
    story.answer(approve())
    story.finish()
    story.effects.once("17")


@pytest.mark.slow
@crash_points(store="memory", people=FakePeople({"ann": ["boss"], "bob": ["boss"]}))
def test_two_votes_are_two_votes_whoever_is_killed_between_them(story: Story) -> None:
    """V2."""
    bank = story.remote(dedupe=True)
    story.spawn(clerk(bank, ask={"approval": approval({"boss": 2})}, idempotent=True))
    story.say("pay")
    story.vote("ann")
    assert not story.effects
    story.vote("bob")
    story.finish()
    story.effects.once("17")


@pytest.mark.slow
@crash_points(store="memory", people=FakePeople({"cy": [], "ann": ["boss"], "bob": ["boss"]}))
def test_a_voted_call_in_doubt_that_took_no_effect_is_voted_on_again(story: Story) -> None:
    """V47, V48: by logins, and the requester says nothing."""
    bank = story.remote()

    @tool
    async def pay() -> str:
        return bank.send("17")

    def replies(request: ScriptedRequest) -> Any:
        told = request.results[-1].model_response_str() if request.results else ""
        return call("pay") if not told or "make the call again" in told else "done"

    two = approval({"boss": 2}, never=["requester"], assurance="login")
    gate: dict[str, Any] = {"pay": {"approval": two}}
    story.spawn(Agent("clerk", ScriptedModel(replies), tools=[pay], interrupt_on=gate))
    story.say("pay", by="cy")
    with pytest.raises(UsageError, match="must be 'host' or 'login'"):
        story.vote("ann", assurance="idp")  # type: ignore[arg-type]
    story.vote("ann", assurance="login")
    assert isinstance(story.vote("bob", assurance="login"), Completed)
    story.finish()
    story.effects.once("17")


def test_an_agent_that_pays_twice_is_found_at_the_point_where_it_does() -> None:
    """K1."""

    def test(story: Story) -> None:
        story.spawn(clerk(story.remote(), idempotent=True))
        story.say("pay")
        story.finish()
        story.effects.once("17")

    said = played(test)
    assert said.startswith("'17' has happened 2 times")
    assert ">>> killed         after effect '17'" in said
    assert "--understudy-crash-at \"after effect '17'\"" in said


def test_one_point_alone_is_played_where_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = 0

    @crash_points(store="memory")
    def test(story: Story) -> None:
        nonlocal plays
        plays += 1
        story.spawn(clerk(story.remote(dedupe=True), idempotent=True))
        story.say("pay")
        story.effects.once("17")

    monkeypatch.setenv("UNDERSTUDY_CRASH_AT", "before clerk#3")
    test()
    assert plays == 2, "undisturbed, and at the point"
    monkeypatch.setenv("UNDERSTUDY_CRASH_AT", "before clerk#333")
    with pytest.raises(UsageError, match=r"passes no point 'before clerk#333'. Its points are: "):
        test()


@pytest.mark.slow
def test_a_test_that_asserts_nothing_cannot_fail_and_fails_for_that() -> None:
    """K2."""

    def test(story: Story) -> None:
        story.spawn(clerk(story.remote(dedupe=True), idempotent=True))
        story.say("pay")

    assert "cannot fail" in played(test)
    crash_points(store="memory", control=False)(test)()


def test_a_story_without_an_effect_is_refused_with_a_hint() -> None:
    """K2."""
    elsewhere: list[str] = []

    @tool
    async def pay() -> str:
        elsewhere.append("17")
        return "paid"

    def test(story: Story) -> None:
        story.spawn(Agent("clerk", ScriptedModel([call("pay"), "done"]), tools=[pay]))
        story.say("pay")

    said = played(test)
    assert said.startswith("No effect was reached")
    assert "is not seen" in said


def test_an_effect_that_no_record_follows_is_refused() -> None:
    """K2."""

    def test(story: Story) -> None:
        class Leaves(Middleware):
            async def on_passivated(self, actor: Any, reason: Any) -> None:
                story.effects.add("17")

        story.spawn(Agent("clerk", ScriptedModel(["done"]), middleware=[Leaves()]))
        story.say("pay")
        story.finish()

    assert played(test).startswith("No point lies between an effect and a record")


@pytest.mark.slow
def test_a_story_that_is_another_one_each_time_is_named_with_the_first_difference() -> None:
    """K1."""
    chance = random.Random(1)

    def test(story: Story) -> None:
        turns = [call("pay", {"order": str(n)}) for n in range(chance.randrange(1, 9))]
        story.spawn(clerk(story.remote(dedupe=True), *turns, "done", idempotent=True))
        story.say("pay")

    assert "The story is not the same each time" in played(test)


@pytest.mark.slow
def test_a_story_that_hangs_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """K1."""
    monkeypatch.setattr("understudy.testing.story_hosts.PATIENCE", 0.3)

    @tool
    async def wait_for_ever() -> str:
        await asyncio.Event().wait()
        return "never"

    def test(story: Story) -> None:
        script = ScriptedModel([call("wait_for_ever"), "done"])
        story.spawn(Agent("clerk", script, tools=[wait_for_ever]))
        story.say("pay")

    said = played(test)
    assert said.startswith("The story hangs")
    assert "started wait_for_ever" in said


def test_a_person_says_what_becomes_of_a_doubt_where_the_test_says_how() -> None:
    asked: list[str] = []

    @crash_points(store="memory", control=False)
    def test(story: Story) -> None:
        def say(request: Any) -> Any:
            asked.append(request.kind)
            return reject("it is paid") if story.effects.of("17") else approve()

        story.answer_doubts(say)
        story.spawn(clerk(story.remote(), on_unknown="ask"))
        story.say("pay")
        story.finish()
        story.effects.once("17")

    test()
    assert set(asked) == {"doubt"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"store": "memory", "kill": "process"}, "lost with its process"),
        ({"store": "sqlite", "two_hosts": True}, "two_hosts needs store='postgresql'"),
        ({"store": "postgresql", "two_hosts": True, "kill": "in-process"}, "needs kill='process'"),
        ({"store": "mysql"}, "'memory', 'sqlite' or 'postgresql'"),
        ({"kill": "gently"}, "'in-process' or 'process'"),
    ],
)
def test_options_that_cannot_go_together_are_refused_with_the_reason(
    options: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        crash_points(**options)


def test_what_a_story_is_asked_that_it_cannot_do_names_the_remedy() -> None:
    @crash_points(store="memory", control=False)
    def test(story: Story) -> None:
        with pytest.raises(UsageError, match="which agent"):
            story.say("pay")
        agent = clerk(story.remote(dedupe=True), idempotent=True)
        story.spawn(agent)
        with pytest.raises(UsageError, match=r"put the new one in its place by story\.deploy"):
            story.spawn(clerk(story.remote()))
        with pytest.raises(UsageError, match="no agent 'other' is in the story: clerk"):
            story.say("pay", to="other")
        with pytest.raises(UsageError, match="takes a span as '3 days'"):
            story.wait("soon")
        with pytest.raises(UsageError, match="needs persons whose roles can change"):
            story.lose_role("ann", "boss")
        story.say("pay")
        with pytest.raises(AssertionError, match="no request is pending"):
            story.answer(approve())

    test()


def test_fixtures_come_behind_the_story_and_each_store_is_a_test_of_its_own() -> None:
    @crash_points(store=["memory", "sqlite"])
    def test(story: Story, tmp_path: object) -> None: ...

    assert list(inspect.signature(test).parameters) == ["tmp_path", "on_store"]
    assert [mark.args[1] for mark in test.pytestmark] == [["memory", "sqlite"]]  # type: ignore[attr-defined]


PROCESS: dict[str, Any] = {"store": "sqlite", "kill": "process", "control": False}


def test_a_check_that_says_what_did_not_happen_is_found_out() -> None:
    def test(story: Story) -> None:
        story.spawn(clerk(story.remote(), check=lambda ctx, arguments: Happened("paid")))
        story.say("pay")
        story.finish()
        story.effects.once("17")

    assert played(test).startswith("'17' has not happened")


def test_a_check_that_sees_the_first_of_two_effects_leaves_the_second_one_missing() -> None:
    def test(story: Story) -> None:
        bank = story.remote()

        @tool(check=lambda ctx, arguments: bank.find(key=ctx.call_key))
        async def pay(ctx: ToolContext) -> str:
            bank.send("17", key=ctx.call_key)
            return bank.send("a receipt", key=ctx.call_key)

        story.spawn(Agent("clerk", ScriptedModel([call("pay"), "done"]), tools=[pay]))
        story.say("pay")
        story.finish()
        story.effects.once("17", "a receipt")

    said = played(test)
    assert said.startswith("'a receipt' has not happened")
    assert ">>> killed         after effect '17'" in said


@crash_points(store="memory")
def test_what_a_check_finds_not_done_may_be_missing(story: Story) -> None:
    story.spawn(clerk(story.remote(), check=lambda ctx, arguments: DidNotHappen()))
    story.say("pay")
    story.finish()
    story.effects.once("17")


def test_a_story_that_fails_undisturbed_shows_what_has_happened_and_why_a_call_failed() -> None:
    def test(story: Story) -> None:
        @tool
        async def pay(ctx: ToolContext) -> str:
            raise ValueError("no such account")

        story.spawn(Agent("clerk", ScriptedModel([call("pay"), "done"]), tools=[pay]))
        story.say("pay")
        story.finish()
        story.effects.once("17")

    with pytest.raises(AssertionError, match="has not happened") as failed:
        crash_points(store="memory")(test)()
    (note,) = failed.value.__notes__
    assert note.startswith("No host was killed")
    assert "result pay (failed: " in note
    assert "no such account" in note


@pytest.mark.slow
def test_what_pytest_fails_with_is_shown_with_its_point_and_convinces_a_control() -> None:
    def test(story: Story, *, dedupe: bool) -> None:
        story.spawn(clerk(story.remote(dedupe=dedupe), idempotent=True))
        story.say("pay")
        story.finish()
        if story.effects.repeated():
            pytest.fail("paid twice")

    assert played(lambda story: test(story, dedupe=False)).startswith("paid twice\n\nThe host was")
    crash_points(store="memory")(lambda story: test(story, dedupe=True))()


def test_a_failure_that_has_nothing_to_do_with_a_repetition_convinces_no_control() -> None:
    def test(story: Story) -> None:
        bank = story.remote(dedupe=True)
        keys: list[str] = []

        @tool(idempotent=True)
        async def pay(ctx: ToolContext) -> str:
            keys.append(ctx.call_key)
            return bank.send("17", key=ctx.call_key)

        story.spawn(Agent("clerk", ScriptedModel([call("pay"), "done"]), tools=[pay]))
        story.say("pay")
        story.finish()
        assert not any("/" in key for key in keys), "a key of a control"

    said = played(test)
    assert "is not known to see a repetition" in said
    assert "it fails for another reason (undisturbed): a key of a control" in said


@pytest.mark.slow
def test_a_control_leaves_the_tools_as_they_are_and_reaches_each_agent_that_a_tool_runs() -> None:
    seen: list[tuple[Any, ...]] = []

    def test(story: Story) -> None:
        bank = story.remote()

        @tool
        async def pay(ctx: ToolContext) -> str:
            seen.append((pay.effect, pay.check, pay.function))
            return bank.send("17", key=ctx.call_key)

        inner = Agent("inner", ScriptedModel([call("pay"), "done"]), tools=[pay])

        @tool(read_only=True)
        async def ask(ctx: ToolContext) -> Any:
            return (await ctx.run_agent(inner, "pay")).usage.requests

        story.spawn(Agent("boss", ScriptedModel([call("ask"), "done"]), tools=[ask]))
        story.say("pay")
        story.finish()
        story.effects.once("17")
        assert isinstance(pay, Tool)

    crash_points(store="memory")(test)()
    assert {(effect, check) for effect, check, _ in seen} == {(None, None)}


def test_what_is_asserted_holds_for_a_host_that_comes_behind_the_last_assertion() -> None:
    def test(story: Story) -> None:
        story.spawn(clerk(story.remote(), idempotent=True))
        story.send("pay")
        story.effects.once()

    assert played(test).startswith("'17' has happened 2 times")


@pytest.mark.slow
@crash_points(store="memory")
def test_a_story_may_begin_anew_behind_its_finish_and_add_effects_of_its_own(story: Story) -> None:
    story.effects.add("a letter")
    story.spawn(clerk(story.remote(dedupe=True), idempotent=True))
    story.say("pay")
    story.finish()
    story.effects.add("another letter")
    story.say("thanks")
    story.effects.once("17", "a letter", "another letter")


@crash_points(store="memory")
def test_what_a_thread_of_an_executor_does_is_of_its_host(story: Story) -> None:
    bank = story.remote(dedupe=True)

    @tool(idempotent=True)
    async def pay(ctx: ToolContext) -> str:
        def send() -> str:
            return bank.send("17", key=ctx.call_key)

        return await asyncio.get_running_loop().run_in_executor(None, send)

    story.spawn(Agent("clerk", ScriptedModel([call("pay"), "done"]), tools=[pay]))
    story.say("pay")
    story.finish()
    story.effects.once("17")


@crash_points(store="memory")
def test_a_thread_that_a_tool_starts_ends_in_silence_with_its_host(story: Story) -> None:
    bank = story.remote(dedupe=True)

    @tool(idempotent=True)
    def pay(ctx: ToolContext) -> str:
        thread = threading.Thread(target=bank.send, args=("17",), kwargs={"key": ctx.call_key})
        thread.start()
        thread.join()
        return "paid"

    story.spawn(Agent("clerk", ScriptedModel([call("pay"), "done"]), tools=[pay]))
    story.say("pay")
    story.finish()
    story.effects.once("17")


@pytest.mark.slow
def test_a_call_that_is_repeated_by_itself_costs_a_play_no_time() -> None:
    begun = time.monotonic()

    @crash_points(store="memory")
    def test(story: Story) -> None:
        bank = story.remote(dedupe=True, fails=[Fault.no_answer()])
        story.spawn(clerk(bank, idempotent=True))
        story.say("pay")
        story.finish()
        story.effects.once("17")
        story.same_outcome()

    test()
    assert time.monotonic() - begun < 30 * 0.5, "in each of 30 plays the bank is asked once more"


class TestInAClass:
    @crash_points(store="memory")
    def test_a_method_is_played_as_a_function_is(self, story: Story) -> None:
        story.spawn(clerk(story.remote(dedupe=True), idempotent=True))
        story.say("pay")
        story.finish()
        story.effects.once("17")

    @crash_points(store="memory")
    def test_fixtures_may_come_before_the_story(self, tmp_path: object, story: Story) -> None:
        assert tmp_path
        story.spawn(clerk(story.remote(dedupe=True), idempotent=True))
        story.say("pay")
        story.finish()
        story.effects.once("17")


def test_a_point_whose_effect_has_a_then_and_quotes_is_named_by_a_line_that_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    what = 'pay "17" then $mail'

    def test(story: Story) -> None:
        story.spawn(clerk(story.remote(), call("pay", {"order": what}), "done", idempotent=True))
        story.say("pay")
        story.finish()
        story.effects.once()

    *_, point = shlex.split(played(test).splitlines()[-1])
    assert point == f"after effect {what!r}"
    monkeypatch.setenv("UNDERSTUDY_CRASH_AT", point)
    assert "has happened 2 times" in played(test)
    monkeypatch.setenv("UNDERSTUDY_CRASH_AT", f"{point} then after clerk#7")
    assert "has happened 2 times" in played(test)


def test_a_host_that_was_killed_says_nothing_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def test(story: Story) -> None:
        story.spawn(clerk(story.remote(), idempotent=True))
        story.say("pay")
        story.finish()
        story.effects.once("17")

    played(test)
    assert not caplog.records


def test_an_interruption_in_the_middle_of_a_play_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())

    @crash_points(store="memory")
    def test(story: Story) -> None:
        @tool
        async def pay() -> str:
            raise_in_main_thread()
            await asyncio.Event().wait()
            return "never"

        story.spawn(Agent("clerk", ScriptedModel([call("pay"), "done"]), tools=[pay]))
        story.say("pay")

    def raise_in_main_thread() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    # A shell starts what runs in the background with the signal ignored.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            test()
    finally:
        signal.signal(signal.SIGINT, handler)
    left = {each for each in threading.enumerate() if each.name.startswith("understudy-story")}
    for thread in left - before:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"store": []}, "names no store"),
        ({"stores": "memory"}, "there is no option 'stores'; those of a Runtime are .*rules"),
        ({"clock": None}, "`clock` is of the story itself"),
    ],
)
def test_options_that_mean_nothing_are_refused_before_anything_is_played(
    options: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        crash_points(**options)


def test_a_test_without_a_parameter_for_the_story_is_refused() -> None:
    def test() -> None: ...

    with pytest.raises(UsageError, match=r"has no parameter for the story: def test\(story\)"):
        crash_points()(test)


@crash_points(store="memory", control=False)
def test_what_a_story_is_given_that_it_cannot_take_is_refused(story: Story) -> None:
    with pytest.raises(UsageError, match=r"story\.spawn takes an Agent, got 'clerk'"):
        story.spawn("clerk")  # type: ignore[arg-type]
    story.spawn(clerk(story.remote(dedupe=True), idempotent=True))
    assert story.outcome() is None
    assert story.cancel() is None
    with pytest.raises(UsageError, match=r"story\.answer takes a decision"):
        story.answer("yes")  # type: ignore[arg-type]
    with pytest.raises(StoryFailed, match="nothing was said to it yet"):
        story.answer(approve())
    with pytest.raises(UsageError, match=r"story\.deploy takes an Agent"):
        story.deploy(None)  # type: ignore[arg-type]
    for span in (-1, None, float("nan"), True):
        with pytest.raises(UsageError, match=r"story\.wait takes a span"):
            story.wait(span)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"effects\.add takes a text"):
        story.effects.add(17)  # type: ignore[arg-type]
    story.say("pay")


def test_a_process_that_cannot_start_or_ends_by_itself_says_so(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def test(story: Story, ends: bool) -> None:
        @tool
        async def pay() -> str:
            os._exit(3)

        reply = call("pay") if ends else "done"
        story.spawn(Agent("clerk", ScriptedModel([reply, "done"]), tools=[pay]))
        story.say("pay")

    with pytest.raises(UsageError, match="max_threads"):
        crash_points(**PROCESS, max_threads=-1)(lambda story: test(story, False))()
    with pytest.raises(RuntimeError, match="ended by itself, with the exit code 3"):
        crash_points(**PROCESS)(lambda story: test(story, True))()


def test_what_cannot_be_sent_to_another_process_is_named() -> None:
    def told(story: Story, prompt: Any) -> None:
        story.spawn(Agent("clerk", ScriptedModel(["done"])))
        story.say(prompt)

    with pytest.raises(UsageError, match="all that a story says goes to another process"):
        crash_points(**PROCESS)(lambda story: told(story, lambda: None))()
