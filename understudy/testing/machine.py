"""`AgentMachine`: random lives of agents by Hypothesis, with invariants after each step."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn, TypeVar

from understudy._base.json_values import shown
from understudy.actors import Runtime, SimulatedClock
from understudy.agent.agent import Agent
from understudy.errors import UnknownAgent, UnknownMessage, UsageError
from understudy.interrupts import Decision, Request, approve, dismiss, edit, reject, respond
from understudy.journal import Store, replay
from understudy.outcomes import Interrupted, Outcome
from understudy.state.agent_state import AgentState
from understudy.state.records import (
    Decided,
    InterruptsChecked,
    Record,
    Requested,
    Started,
    innermost,
    record_from_dict,
)
from understudy.testing import crashes
from understudy.testing.effects import Effect, Effects, current_host
from understudy.testing.points import Entry, Watch
from understudy.testing.story import Story
from understudy.testing.story_hosts import PATIENCE, Hangs, InProcessHost, Setting, StoryHost

try:
    from hypothesis import strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
except ModuleNotFoundError as _missing:
    raise UsageError(
        "AgentMachine needs Hypothesis, which is not installed: pip install hypothesis"
    ) from _missing

T = TypeVar("T")


def _is_asking(machine: AgentMachine) -> bool:
    """Whether an agent waits for a person."""
    return bool(machine._asking())


def _is_under_way(machine: AgentMachine) -> bool:
    """Whether a run is open."""
    return bool(machine._under_way())


def _may_crash(machine: AgentMachine) -> bool:
    """Whether no crash is planned yet, and there is something to crash."""
    watch = machine._watch
    return bool(machine._accepted) and watch.left is None and not watch.at_effect


_WHICH = st.integers(0, 7)
"""The number of an agent, from 0. If there are fewer agents, the count continues at the first."""
_MOST_ANSWERS = 50
"""The maximum number of answers to an agent at the end. An agent that asks more often counts as
asking for ever."""


class AgentMachine(RuleBasedStateMachine):
    """A Hypothesis state machine that plays random lives of your agents. Inherit from it.

    The steps: callers `say` and `steer`; persons `approve`, `reject`, `edit` and `vote`; runs are
    cancelled; hosts are killed by `crash` and stopped by `restart`; time passes by `advance`;
    `deploy` replaces the definitions. With a shared store there are two hosts (`second_host`). Add
    rules and invariants of your own as in Hypothesis.

    After each step these invariants hold: `no_effect_twice`, `no_gated_call_without_a_decision`,
    `no_agent_is_lost`, `the_state_is_what_is_stored`. At the end of a life all pending requests are
    approved, each accepted message has an outcome, and no run is left open.

    Only effects that are noted in `self.effects` are seen. Two effects with the same text count as
    a repetition, so let the text say for which message the effect is.

    ```text
    class DeskMachine(AgentMachine):
        prompts = ["Refund order {n}."]
        gated = ["refund"]

        def agents(self, version):
            return [desk(self.effects)]


    TestDesk = DeskMachine.TestCase
    ```
    """

    prompts: ClassVar[Sequence[str]] = ("Order {n}, please.",)
    """The messages of callers. `{n}` is the number of the message in its life, from 1."""
    gated: ClassVar[Sequence[str]] = ()
    """The tools whose calls must not run without a decision that approves them."""
    spans: ClassVar[Sequence[str]] = ("1 minute", "1 hour", "3 days")
    """The durations that `advance` lets pass."""
    voters: ClassVar[Sequence[str]] = ()
    """The persons who vote. If it is empty, nobody votes."""
    versions: ClassVar[int] = 1
    """The number of versions of the definitions. With one version nothing is deployed."""
    store: ClassVar[Literal["memory", "sqlite", "postgresql"]] = "memory"
    """The store of the agents, as in `crash_points`."""
    runtime: ClassVar[Mapping[str, Any]] = {}
    """The options of the runtimes, such as `rules` or `people`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.versions < 1 or not cls.prompts or not cls.spans:
            raise UsageError(
                f"{cls.__name__}: `versions` must be at least 1, and `prompts` and `spans` must not"
                " be empty"
            )
        drawn: dict[str, dict[str, Any]] = {
            "say": {"prompt": st.sampled_from(list(cls.prompts)), "to": _WHICH},
            "steer": {"prompt": st.sampled_from(list(cls.prompts)), "to": _WHICH},
            "advance": {"span": st.sampled_from(list(cls.spans))},
        }
        if cls.voters:
            drawn["vote"] = {"by": st.sampled_from(list(cls.voters)), "to": _WHICH}
        if cls.versions > 1:
            drawn["deploy"] = {"version": st.integers(0, cls.versions - 1)}
        if cls.store == "postgresql":
            drawn["second_host"] = {}
        if cls.edited is not AgentMachine.edited:
            drawn["edit"] = {"to": _WHICH}
        for name, arguments in drawn.items():
            if name not in vars(cls):
                made: Callable[[Any], Any] = rule(**arguments)
                step = vars(AgentMachine)[name]
                if name in (
                    "edit",
                    "vote",
                ):  # marks of a rule are on its function
                    step = precondition(_is_asking)(_copy_of(step))
                setattr(cls, name, made(step))

    def __init__(self) -> None:
        super().__init__()
        self.effects: Effects = Effects()
        """The effects so far."""
        self._left = ExitStack()
        self._accepted: list[tuple[str, str]] = []
        """The accepted messages, each as the agent and the id of the message."""
        self._looked: dict[str, _Look] | None = None
        self._looked_at = 0
        first = self._agents_of(0)
        options = crashes.Options(store=self.store, runtime=dict(self.runtime))
        open_next, _ = self._left.enter_context(crashes._stores(options))
        self._watch = _Countdown()
        self.effects.in_story(is_careless=False, excused=lambda: "")
        self._setting = Setting(
            open_store=lambda: self.new_store() or open_next(),
            watch=self._watch,
            effects=self.effects,
            clock=SimulatedClock(),
            options=dict(self.runtime),
        )
        self.story: Story = Story(self._setting, _start)
        """The story, with the calls of a caller."""
        self._left.callback(self.story.destroy)
        self._ids = [self.story.spawn(agent) for agent in first]

    # ------------------------------------------------------------------- to override

    def agents(self, version: int) -> Sequence[Agent[Any, Any]]:
        """Return the definitions, whose tools note their effects in `self.effects`. Override it.

        Args:
            version: from 0 to `versions - 1`. Each version has agents of the same names.

        """
        raise UsageError(f"{type(self).__name__} does not say which agents live: override `agents`")

    def new_store(self) -> Store | None:
        """Return a store of your own for the next host: each time a new object on the same agents.

        By default None: the agents are kept in `store`.
        """
        return None

    def decision(self, request: Request) -> Decision:
        """Return the decision on a request that is pending at the end of a life; by default to
        approve.
        """
        if "approve" in request.allowed:
            return approve()
        return respond("yes") if "respond" in request.allowed else dismiss()

    def edited(self, request: Request) -> Mapping[str, Any]:
        """Return the arguments with which a person lets the call run. If you override it, calls are
        edited.
        """
        return request.arguments

    # ------------------------------------------------------------------- the steps

    # The attributes of a machine decide which steps it has: `__init_subclass__` makes rules of
    # them.

    def say(self, prompt: str, to: int) -> None:
        """Step: a caller sends a message, and waits for the outcome of its run."""
        id, number = _chosen(self._ids, to), len(self._accepted) + 1
        self.story.say(prompt.replace("{n}", f"{number}"), to=id)
        self._accepted.append((id, f"story-{number}"))

    def steer(self, prompt: str, to: int) -> None:
        """Step: a caller adds a message to the current run."""
        id, number = _chosen(self._ids, to), len(self._accepted) + 1
        message_id = self.story.steer(prompt.replace("{n}", f"{number}"), to=id)
        self._accepted.append((id, message_id))
        self._outcome_of(id)

    def edit(self, to: int) -> None:
        """Step: a person edits the arguments of the calls that an agent asks about."""
        self._decide(to, lambda request: edit(self.edited(request)))

    def vote(self, by: str, to: int) -> None:
        """Step: a person votes on a request that asks several persons."""
        id = _chosen(self._asking(), to)
        if any(each.approval is not None for each in self._asked(id)):
            with self._there(id):
                self.story.vote(by, to=id)

    def advance(self, span: str) -> None:
        """Step: time passes."""
        self.story.wait(span)

    def deploy(self, version: int) -> None:
        """Step: another version of the definitions replaces the current version."""
        self.story.deploy(*self._agents_of(version))

    def second_host(self) -> None:
        """Step: a second host starts. From now on callers use both hosts in turn."""
        self.story._hosts_wanted = 2

    @precondition(_is_asking)
    @rule(to=_WHICH)
    def approve(self, to: int) -> None:
        """Step: a person approves the requests of an agent."""
        self._decide(to, lambda _: approve())

    @precondition(_is_asking)
    @rule(to=_WHICH)
    def reject(self, to: int) -> None:
        """Step: a person rejects the requests of an agent."""
        self._decide(to, lambda _: reject())

    @precondition(_is_under_way)
    @rule(to=_WHICH)
    def cancel(self, to: int) -> None:
        """Step: the run of an agent is cancelled."""
        id = _chosen(self._under_way(), to)
        with self._there(id):
            self.story.cancel(to=id)

    @precondition(_may_crash)
    @rule(after=st.integers(0, 15))
    def crash(self, after: int) -> None:
        """Step: the host is killed after this many more points: records and effects."""
        self._watch.left = after

    @precondition(_may_crash)
    @rule()
    def crash_at_effect(self) -> None:
        """Step: the host is killed right after the next effect, before a record says that it
        happened.
        """
        self._watch.at_effect = True

    @rule()
    def restart(self) -> None:
        """Step: the hosts stop, and new hosts start."""
        self.story.deploy()

    # ------------------------------------------------------------------- what holds

    @invariant()
    def no_effect_twice(self) -> None:
        """Check that no effect has happened more than once."""
        for what, times in self.effects.repeated().items():
            self.fail(f"{what!r} has happened {times} times")

    @invariant()
    def no_gated_call_without_a_decision(self) -> None:
        """Check that no call of a tool in `gated` was started without the approval of a person."""
        for id, look in self._look().items() if self.gated else ():
            for tool_name, call_key in look.undecided(self.gated):
                self.fail(f"{id}: the call {call_key} of {tool_name!r} ran, and nobody approved it")

    @invariant()
    def no_agent_is_lost(self) -> None:
        """Check that each agent that got a message is there, and that its records can be read."""
        found = self._look()
        for id in dict.fromkeys(agent for agent, _ in self._accepted):
            if id not in found:
                self._lost(id)

    @invariant()
    def the_state_is_what_is_stored(self) -> None:
        """Check that the state that a runtime shows of an agent is the fold of its records."""
        for id, look in self._look().items():
            try:
                stored = replay(look.records).to_dict()
            except UsageError as error:
                self.fail(f"{id}: the state is not what is stored: {error}")
            different = _difference(look.state.to_dict(), stored)
            if different is not None:
                self.fail(f"{id}: the state is not what is stored: {different}")

    def fail(self, why: str) -> NoReturn:
        """Fail with the story so far.

        Raises:
            AssertionError: always.

        """
        lines = "\n".join(crashes._shown(self._watch.entries))
        raise AssertionError(f"{why}\n\n{lines}")

    def teardown(self) -> None:
        """End the life. If it has not failed, check that each message has an outcome."""
        try:
            if sys.exc_info()[0] is None:
                self._watch.disarm()
                self._come_to_rest()
        finally:
            self._left.close()
            super().teardown()

    def _come_to_rest(self) -> None:
        spoken_to = list(dict.fromkeys(agent for agent, _ in self._accepted))
        for id in spoken_to:
            self._answer_all(id)
        self.no_agent_is_lost()
        for id, message_id in self._accepted:
            if self._ask(_outcome_of_message, id, message_id) is None:
                self.fail(f"{id}: the message {message_id} was accepted, and has no outcome")
        looked = self._look()
        for id in spoken_to:
            run = looked[id].state.run
            if run is None or not run.over:
                self.fail(f"{id}: its run was left open: {self._outcome_of(id)!r}")
        self.no_effect_twice()
        self.no_gated_call_without_a_decision()
        self.the_state_is_what_is_stored()

    def _answer_all(self, id: str) -> None:
        for _ in range(_MOST_ANSWERS):
            asked = self._asked(id)
            if not asked:
                return
            if any(each.approval is not None for each in asked):
                for voter in self.voters:
                    if self._asked(id):
                        self.story.vote(voter, to=id)
            else:
                self.story.answer(self.decision, to=id)
        self.fail(f"{id} asks for ever: {[each.tool_name for each in self._asked(id)]}")

    # ------------------------------------------------------------------- how it is done

    def _asking(self) -> list[str]:
        """The agents that wait for a person."""
        return [id for id, look in self._look().items() if look.state.requests]

    def _under_way(self) -> list[str]:
        """The agents that have an open run."""
        runs = ((id, look.state.run) for id, look in self._look().items())
        return [id for id, run in runs if run is not None and not run.over]

    def _agents_of(self, version: int) -> list[Agent[Any, Any]]:
        agents = list(self.agents(version))
        if not agents:
            raise UsageError(f"{type(self).__name__}.agents must return at least one agent")
        return agents

    def _outcome_of(self, id: str) -> Outcome | None:
        """The current outcome of an agent; None if nobody has sent it a message."""
        if all(agent != id for agent, _ in self._accepted):
            return None
        with self._there(id):
            return self.story.outcome(of=id)

    @contextmanager
    def _there(self, id: str) -> Iterator[None]:
        """Fail if the store has no agent of this id although it got a message."""
        try:
            yield
        except UnknownAgent:
            self._lost(id)

    def _lost(self, id: str) -> NoReturn:
        self.fail(f"{id} is lost: the store has no agent of this id")

    def _asked(self, id: str) -> list[Request]:
        """The requests of an agent to persons now."""
        outcome = self._outcome_of(id)
        return list(outcome.requests) if isinstance(outcome, Interrupted) else []

    def _decide(self, to: int, decision: Callable[[Request], Decision]) -> None:
        id = _chosen(self._asking(), to)
        asked = self._asked(id)
        if not asked or any(each.approval is not None for each in asked):
            return

        def decided(request: Request) -> Decision:
            wanted = decision(request)
            return wanted if wanted.type in request.allowed else self.decision(request)

        with self._there(id):
            self.story.answer(decided, to=id)

    def _ask(self, ask: Callable[..., T], *given: Any) -> T:
        """Ask the runtime of a host, and that of the next host if the first is killed meanwhile."""
        answer: T = self.story._do(lambda host: host.do("ask", ask, *given))
        return answer

    def _look(self) -> dict[str, _Look]:
        """The visible facts of each agent. They stay the same until something is recorded."""
        at = len(self._watch.passed)
        if self._looked is None or self._looked_at != at:
            self._looked = {}
            for id in dict.fromkeys(agent for agent, _ in self._accepted):
                try:
                    self._looked[id] = self._ask(_look_at, id)
                except UnknownAgent:
                    continue
            self._looked_at = len(self._watch.passed)
        return self._looked


@dataclass(frozen=True, slots=True)
class _Look:
    """The visible facts of an agent."""

    state: AgentState
    """The state, as its runtime shows it."""
    records: Sequence[Record]

    def undecided(self, gated: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The calls of these tools that were started without a decision that approved them."""
        calls: dict[str, str] = {}
        approved: set[str] = set()
        for record in map(innermost, self.records):
            decided: Sequence[Decided] = ()
            match record:
                case InterruptsChecked():
                    calls.update((each.id, each.call_key) for each in record.requests)
                    decided = record.decided
                case Requested():
                    calls[record.request.id] = record.request.call_key
                case Decided():
                    decided = (record,)
                case Started() if record.tool_name in gated and record.call_key not in approved:
                    yield record.tool_name, record.call_key
            approved |= {
                calls.get(each.request_id, "")
                for each in decided
                if each.decision.type in ("approve", "edit")
            }


def _difference(live: Any, stored: Any, where: str = "state") -> str | None:
    """The first difference of two states, with its place; None if they are the same."""
    if isinstance(live, Mapping) and isinstance(stored, Mapping) and live.keys() == stored.keys():
        each = ((live[key], stored[key], f"{where}[{key!r}]") for key in live)
    elif isinstance(live, list) and isinstance(stored, list) and len(live) == len(stored):
        each = (
            (one, other, f"{where}[{at}]")
            for at, (one, other) in enumerate(zip(live, stored, strict=True))
        )
    elif live == stored:
        return None
    else:
        return f"{where} is {shown(live)}, and stored {shown(stored)}"
    return next((found for args in each if (found := _difference(*args)) is not None), None)


def _chosen(ids: Sequence[str], number: int) -> str:
    return ids[number % len(ids)]


def _copy_of(step: Any) -> Any:
    """A copy of a function, with separate marks."""

    @functools.wraps(step)
    def same(self: AgentMachine, **drawn: Any) -> None:
        step(self, **drawn)

    return same


def _look_at(runtime: Runtime, id: str) -> _Look:
    records = runtime.export(id).get(timeout=PATIENCE)["records"]
    while True:
        state, before = runtime.get(id).state().get(timeout=PATIENCE), len(records)
        records = runtime.export(id).get(timeout=PATIENCE)["records"]
        # Race: another host notes a status between two reads. Both reads must be of one moment.
        if len(records) == before:
            return _Look(state, [record_from_dict(record) for record in records])


def _outcome_of_message(runtime: Runtime, id: str, message_id: str) -> Outcome | None:
    try:
        return runtime.outcome(id, message_id=message_id).get(timeout=PATIENCE)
    except UnknownMessage:
        return None


@dataclass(slots=True)
class _Countdown(Watch):
    """A watch that kills the host at the point after a number of other points."""

    left: int | None = None
    at_effect: bool = False
    """Whether the host is killed after the next effect."""

    def disarm(self) -> None:
        """Kill no host any more."""
        self.left, self.at_effect = None, False

    def is_due(self, name: str) -> bool:
        """Whether the host is killed at this point, which is passed now."""
        with self._lock:
            self.passed.append(name)
            if self.left is not None:
                self.left -= 1
            is_at_effect = self.at_effect and name.startswith("after effect")
            if not is_at_effect and (self.left is None or self.left >= 0):
                return False
            self.left, self.at_effect = None, False
        self.note(Entry(what="killed", text=name))
        return True


class _Host(InProcessHost):
    """A host with questions that only a machine asks."""

    def do(self, verb: str, *given: Any) -> Any:
        if verb == "ask" and self._verbs is not None:
            self._verbs.__dict__.setdefault("ask", self._answer_of)
        return super().do(verb, *given)

    def _answer_of(self, ask: Callable[..., Any], *given: Any) -> Any:
        assert self._verbs is not None, "it has started"
        try:
            return ask(self._verbs._runtime, *given)
        except TimeoutError:
            raise Hangs from None


def _start(setting: Setting) -> StoryHost:
    host = _Host(setting)
    # Two hosts in one process count in one place, so each is notified of its own effects.
    setting.effects.watched(_had_effect, _had_request)
    return host


def _had_effect(effect: Effect) -> None:
    host = current_host.get()
    if isinstance(host, InProcessHost):
        host._had_effect(effect)


def _had_request(remote: int, request: Effect) -> None:
    host = current_host.get()
    if isinstance(host, InProcessHost):
        host._had_request(remote, request)
