"""One payment, a model that asks for it until it learns that it is made, and a person who looks.

A story notes what really happened. What the library tells of it, to the model, to the person and in
events, is compared with that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart, UserPromptPart

from tests.support.agents import FakeClock, reloaded, results
from tests.support.cut_off import Crash, Disk
from understudy import (
    Agent,
    AgentState,
    Decision,
    Interrupted,
    Outcome,
    Request,
    ScriptedModel,
    Tool,
    ToolContext,
    Waiting,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.events import Event, ToolEnded, ToolStarted
from understudy.history import HistoryEntry
from understudy.models import ScriptedRequest
from understudy.testing import FakeRemote, Fault

__all__ = [
    "CELLS",
    "ORDER",
    "Cell",
    "Kind",
    "Lagging",
    "Story",
    "eager",
    "false_words",
    "paid_or_not",
    "played",
]

Kind = Literal["plain", "idempotent", "read_only"]
ORDER = "17"
"""What there is to pay for, once."""
MOST_TURNS = 6
"""After so many replies the model gives up."""
MOST_ROUNDS = 40
"""Answers of people and ends of waits, after which a story hangs."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What the tool declares, whether a gate names it, and whether its bank knows keys."""

    kind: Kind = "plain"
    gated: bool = False
    keys: bool = False

    def __str__(self) -> str:
        words = [self.kind, "gated" if self.gated else "free"]
        return " ".join([*words, "by keys"] if self.keys else words)


CELLS = [
    Cell(kind, gated, keys)
    for kind in get_args(Kind)
    for gated in (False, True)
    for keys in (False, True)
    if kind != "read_only" or not keys  # who has no effect needs no key
]


class Lagging(Disk):
    """Keeps records when they are waited for; a crash loses those that are not."""

    def __init__(self, limit: int | None = None, *, behind: Sequence[str] = ()) -> None:
        super().__init__(limit)
        self.lines = list(behind)
        self.count = 0
        """The records of this process."""
        self._pending: list[Any] = []

    def append(self, records: Sequence[Any]) -> None:
        self.count += len(records)
        if self.limit is not None and self.count > self.limit:
            raise Crash
        self._pending.extend(records)

    @property
    def has_unflushed(self) -> bool:
        return bool(self._pending)

    async def durable(self) -> None:
        pending, self._pending = self._pending, []
        limit, self.limit = self.limit, None
        super().append(pending)
        self.limit = limit


@dataclass
class Story:
    """What happens in one cell, and what is wrong with it."""

    cell: Cell
    violations: list[str] = field(default_factory=list)
    entered: Counter[str] = field(default_factory=Counter)
    """By call key, how often the body was entered."""
    did: Counter[str] = field(default_factory=Counter)
    """By call key, how often the bank was asked to pay, and has."""
    ids: dict[str, str] = field(default_factory=dict)
    """The call keys, by the ids that the model knows."""
    asked: list[Request] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    crashes: int = 0
    rejections: int = 0
    payments: list[str] = field(default_factory=lambda: [ORDER])
    """What is intended, each once."""

    def __post_init__(self) -> None:
        self.bank = FakeRemote(dedupe=self.cell.keys, verb="paid")
        self.clock = FakeClock()
        self.lives = 0
        self.what_of: Callable[[str], str] = str
        """What a call for an order pays."""

    def fails_by(self, *faults: Fault | None) -> None:
        """The first requests to the bank fail so."""
        self.bank = FakeRemote(fails=faults, dedupe=self.cell.keys, verb="paid")

    def anew(self, *faults: Fault | None) -> Story:
        """Another story of the same cell, whose first requests to the bank fail so."""
        story = Story(self.cell)
        story.fails_by(*faults)
        return story

    # ------------------------------------------------------------------ the tool, the agent

    def act(self, ctx: ToolContext[Any], order: str) -> str:
        """What the body does: a request to the bank, which the story notes."""
        self.enters(ctx)
        return self.requests(ctx, order)

    def enters(self, ctx: ToolContext[Any]) -> None:
        """Note that the body is entered."""
        self.ids[ctx.tool_call_id] = ctx.call_key
        self.entered[ctx.call_key] += 1

    def requests(self, ctx: ToolContext[Any], order: str) -> str:
        """Make a request to the bank."""
        return self._request(ctx.call_key, order)

    def answer(self, call_key: str, order: str) -> str:
        """What a server does that another process has asked for this call."""
        self.entered[call_key] += 1
        return self._request(call_key, order)

    def _request(self, call_key: str, order: str) -> str:
        if self.cell.kind == "read_only":
            return self.bank.look_up(order, key=call_key)
        before = len(self.bank.effects)
        try:
            return self.bank.send(order, key=call_key)
        finally:
            self.did[call_key] += len(self.bank.effects) - before

    @property
    def declared(self) -> dict[str, Any]:
        """The options of the tool, by the cell."""
        return self.declared_as(self.cell.kind)

    def declared_as(self, kind: Kind) -> dict[str, Any]:
        """The options of a tool of this kind."""
        return {each: each == kind for each in ("read_only", "idempotent")}

    def tool(self, body: Callable[..., Any] | None = None, **options: Any) -> Tool[Any]:
        """The tool of the cell; its body does what `act` does unless another one is given."""

        async def pay(ctx: ToolContext[Any], order: str) -> str:
            return self.act(ctx, order)

        given: Any = {"name": "pay", "ask": self.cell.gated, **self.declared, **options}
        return tool(**given)(body or pay)

    def agent(self, tools: Sequence[Any] | None = None, **options: Any) -> Agent:
        """The agent as each process builds it."""
        given = [self.tool()] if tools is None else tools
        return Agent("desk", options.pop("model", None) or eager(), tools=given, **options)

    # ------------------------------------------------------------------------ the person

    def decide(self, request: Request) -> Decision:
        """What a careful person answers, who looks into the bank where the request tells them to.

        They approve what is asked for the first time, and know nothing else.
        """
        self.asked.append(request)
        self.ids[request.tool_call_id] = request.call_key
        self._check_request(request)
        if not (request.doubts or request.kind == "doubt" or request.earlier):
            return approve()
        what = self.what_of(str(request.arguments.get("order", ORDER)))
        if self.bank.effects.of(what) or self.cell.kind == "read_only":
            if request.kind == "doubt" or self.rejections:
                return respond("paid")
            self.rejections += 1
            return reject("it is paid")
        return approve()

    def decide_all(self, requests: Sequence[Request]) -> Mapping[str, Decision]:
        return {request.id: self.decide(request) for request in requests}

    # ------------------------------------------------------------------------ how it goes

    async def lived(
        self,
        build: Callable[[], Agent],
        outcome: Outcome | AgentState | None = None,
        *,
        journal: Disk | None = None,
        **options: Any,
    ) -> Outcome:
        """Begin, or continue from there, until the run is over; each time as another process."""
        given: dict[str, Any] = {
            "journal": journal,
            "clock": self.clock,
            "on_event": self.events.append,
        }
        if outcome is None:
            outcome = await build().execute("go", **given, **options)
        elif isinstance(outcome, AgentState):
            outcome = await build().resume(reloaded(outcome), **given)
        for _ in range(MOST_ROUNDS):
            decisions: Mapping[str, Decision] | None = None
            if isinstance(outcome, Interrupted):
                decisions = self.decide_all(outcome.requests)
            elif isinstance(outcome, Waiting):
                self.clock.advance(3600)
            else:
                self.told(outcome.state)
                return outcome
            outcome = await build().resume(reloaded(outcome.state), decisions, **given)
        self.violations.append("it never ends")
        return outcome

    async def died(
        self,
        build: Callable[[], Agent],
        journal: Disk,
        state: AgentState | None = None,
        **options: Any,
    ) -> AgentState | None:
        """Live until the process goes away; the state that is left. None if it does not."""
        try:
            await self.lived(build, state, journal=journal, **options)
        except Crash:
            self.crashes += 1
            self.events.clear()  # who follows an agent hears the records that were kept
            return journal.load()
        return None

    # ------------------------------------------------------------------------ what is true

    def told(self, state: AgentState) -> None:
        """Compare what the conversation, and the list of doubts, say with what happened."""
        for event in self.events:
            if isinstance(event, ToolStarted):
                self.ids[event.tool_call_id] = event.call_key
        for part in results(state):
            if part.tool_name == "pay":
                self._check_result(part)
        for doubt in state.doubts_in_tree.values():
            self._check_started(doubt.call_key, "a doubt that is listed")
            if self.cell.kind == "read_only":
                self.violations.append("a call that only looks something up is in doubt")

    def _check_result(self, part: ToolReturnPart) -> None:
        key = self.ids.get(part.tool_call_id, "")
        self._check_end(key, str(part.content), part.outcome, "the model is told")

    @property
    def _may_be_lost(self) -> bool:
        return self.cell.kind == "read_only" and bool(self.crashes)

    def _check_request(self, request: Request) -> None:
        if request.kind == "doubt":
            self._check_started(request.call_key, "a question about a doubt")
        elif request.kind == "approval" and self.entered[request.call_key] and not self.crashes:
            self.violations.append("a person is asked whether a call may run that was entered")
        for doubt in request.doubts:
            self._check_started(doubt.call_key, "a doubt that a person is shown")
        for earlier in request.earlier:
            key = self.ids.get(earlier.tool_call_id, "")
            ran = self.entered[key] if earlier.tool_call_id else self.entered.total()
            is_given = any(asked.tool_call_id == earlier.tool_call_id for asked in self.asked)
            if earlier.outcome == "success" and not (ran or is_given):
                self.violations.append("a person is shown a success of a call that never ran")

    def _check_started(self, call_key: str, what: str) -> None:
        if not self.entered[call_key] and not self.crashes:
            self.violations.append(f"{what} is of a call that was never entered")

    def read(self, entries: Iterable[HistoryEntry]) -> None:
        """Compare what a person reads in the history of an agent with what happened."""
        open_calls: set[str] = set()
        for entry in entries:
            key = entry.call_key or ""
            if entry.what == "tool_started":
                open_calls.add(key)
            elif entry.what == "tool_ended" and entry.tool_name == "pay":
                open_calls.discard(key)
                outcome, content = entry.detail["outcome"], str(entry.detail["text"])
                self._check_end(key, content, outcome, "the history tells")
        if open_calls:
            self.violations.append(f"{len(open_calls)} starts of calls have no end in the history")

    def _check_end(self, key: str, content: str, outcome: str, teller: str) -> None:
        for what in false_words(
            content,
            outcome,
            entered=self.entered[key],
            did=self.did[key],
            may_be_started=bool(self.crashes),
            is_settled=any(request.call_key == key for request in self.asked),
            may_be_lost=self._may_be_lost,
        ):
            self.violations.append(f"{teller} {what}: {content!r}")

    def _check_events(self) -> None:
        """Each start has an end: of the call, or of the run or agent that was notified of it."""
        open_calls: set[str] = set()
        for event in self.events:
            match event:
                case ToolStarted():
                    open_calls.add(event.call_key)
                case ToolEnded():
                    open_calls.discard(event.call_key)
                    if event.tool_name == "pay":
                        content = str(event.content)
                        self._check_end(event.call_key, content, event.outcome, "an event tells")
        if open_calls:
            self.violations.append(f"{len(open_calls)} starts of calls have no end in the events")

    # ------------------------------------------------------------------------- the verdict

    def judge(self, *, times: int | None = 1, no_person: bool = False) -> None:
        """Note what is wrong in the end: with effects, and with who was asked.

        Args:
            times: how often each intended payment is made; None if that may be once or never.
            no_person: nobody is asked but by the gate, once for each call.

        """
        self.judge_effects(times=times)
        if self.asked and not self.cell.gated:
            if no_person:
                self.violations.append(f"a person is asked by {self.asked[0].kind!r}")
            needless = [r for r in self.asked if r.kind != "doubt" and not r.doubts]
            if needless:
                self.violations.append("a person is asked about a call that nothing speaks against")
        if self.cell.gated and not self.asked:
            self.violations.append("no gate has asked")

    def judge_effects(self, *, times: int | None) -> None:
        """Note what is wrong with the effects, and with the ends of calls in events."""
        self._check_events()
        effects = self.bank.effects
        if self.cell.kind == "read_only":
            if len(effects):
                self.violations.append("a look-up had an effect")
            if any(request.kind == "doubt" or request.doubts for request in self.asked):
                self.violations.append("a person is asked about a doubt of what only looks")
            if not self.bank.requests:
                self.violations.append("nothing was looked up: the cell shows nothing")
        for payment in () if self.cell.kind == "read_only" else self.payments:
            made = effects.of(payment)
            # A bank that knows no keys makes each payment that it is asked for: that the tool is
            # idempotent was said, and is not so. What can be kept is that the key is one.
            counts_keys = self.cell.kind == "idempotent" and not self.cell.keys
            count = len({effect.key for effect in made}) if counts_keys else len(made)
            if count > 1 or (times is not None and count != times):
                self.violations.append(f"{payment!r} is paid {count} times")


def false_words(
    text: str,
    outcome: str,
    *,
    entered: int,
    did: int,
    may_be_started: bool,
    is_settled: bool,
    may_be_lost: bool,
) -> Iterator[str]:
    """What is false of the result of a call.

    Args:
        text: the text for the model.
        outcome: of the result.
        entered: how often the body of the call was entered.
        did: how often it had its effect.
        may_be_started: the process has gone away, so a start may be recorded of what never ran.
        is_settled: a person has given the result.
        may_be_lost: the process has gone away, and a start need not have been durable: the call
            may have been entered, and no record knows of it.

    """
    says_unknown = "outcome of this call is unknown" in text
    if text.startswith(("Not run", "Not executed")) or "was not started" in text:
        if entered and not may_be_lost:
            yield "that it was not run, and it was entered"
    elif says_unknown:
        if not entered and not may_be_started:
            yield "that it was started, and it was not"
    elif "must not run" in text or "whether this call may run" in text:
        if entered and not may_be_lost and "took no effect" not in text:
            yield "that it must not run, and it was entered"
    elif "Ran in part" in text and not entered:
        yield "that it ran in part, and it was not entered"
    if ("took no effect" in text or "did not take effect" in text) and did:
        yield "that it had no effect, and it had"
    if outcome == "failed" and did and "ran, but" not in text:
        yield "that it failed, and it had its effect"
    if outcome == "success" and not entered and not is_settled:
        yield "that it succeeded, and it was never entered"
    says_what = says_unknown or "Ran in part" in text or "It is known now" in text or is_settled
    if outcome == "interrupted" and did and not says_what:
        yield "something else than that it is unknown, or what it did"


# ------------------------------------------------------------------------------- models


def eager(
    order: str = ORDER,
    *,
    tool_name: str = "pay",
    id: str = "c",
    heeds: Callable[[str], bool] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> ScriptedModel:
    """A model that calls again until it has a result, whatever the results of the earlier calls
    say.

    It reads what came after the last message of a user.

    Args:
        order: what it wants paid.
        tool_name: the tool.
        id: how the ids of its calls begin.
        heeds: the texts that keep it from calling again; by default none.
        arguments: of the call, in the place of the order.

    """

    def reply(request: ScriptedRequest) -> Any:
        ends = list(_ends_of(request.messages, tool_name))
        turn = sum(isinstance(message, ModelResponse) for message in request.messages)
        if any(outcome == "success" for outcome, _ in ends):
            return "done"
        if heeds is not None and any(heeds(text) for _, text in ends):
            return "it may be done"
        if len(ends) >= MOST_TURNS:
            return "given up"
        given = {"order": order} if arguments is None else arguments
        return call(tool_name, given, id=f"{id}{turn}")

    return ScriptedModel(reply)


def _ends_of(messages: Sequence[ModelMessage], tool_name: str) -> Iterator[tuple[str, str]]:
    parts = [part for message in messages for part in message.parts]
    asked = [at for at, part in enumerate(parts) if isinstance(part, UserPromptPart)]
    for part in parts[asked[-1] :] if asked else parts:
        if isinstance(part, ToolReturnPart) and part.tool_name == tool_name:
            yield part.outcome, str(part.content)


def paid_or_not(text: str) -> bool:
    """Whether a text tells a model that a payment was made, or may have been made."""
    return "pay" in text and ORDER in text


def played(play: Callable[[Story], Coroutine[Any, Any, None]], cell: Cell) -> list[str]:
    """What is wrong with a row in a cell."""
    story = Story(cell)
    asyncio.run(play(story))
    return story.violations
