"""`replay`: runs recorded conversations again on another definition, in a closed world."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

from pydantic_ai.messages import ModelResponse, ToolReturn
from pydantic_ai.models import ModelRequestParameters

from understudy._base.clock import new_random_id
from understudy._base.json_values import digest, shown, text_of
from understudy._base.points_in_time import checked_time
from understudy.actors.reads.export import Exported, read_export
from understudy.agent.agent import Agent
from understudy.agent.run_environment import RunOptions
from understudy.agent.run_sync import run_sync
from understudy.agent.runner import Runner, unpause
from understudy.approvals import Caller
from understudy.errors import UnderstudyError, UsageError
from understudy.interrupts import Decision, Halt, Interrupt, Request
from understudy.models.prices import Prices, Pricing
from understudy.modes.steps.check_stop import ANSWER_PROMPT
from understudy.modes.steps.tool_call.earlier_calls import EDITED
from understudy.outcomes import Interrupted, Outcome, Paused, Waiting
from understudy.run.child_calls import CallSuspended
from understudy.run.definition import AgentDefinition
from understudy.run.environment import RunEnvironment
from understudy.run.hooks import Hook
from understudy.run.ledger import Ledger, ledger_tree
from understudy.run.model_input import ModelInput
from understudy.run.run import AttemptEnded, Run
from understudy.state.agent_state import AgentState
from understudy.state.records import (
    Decided,
    ModelAsked,
    Once,
    Record,
    Result,
    UserMessage,
)
from understudy.state.run_state import is_child_of
from understudy.stopping import StopAgent, StopSignal
from understudy.testing.altered import AlteredRuns, StandIn
from understudy.testing.recorded_runs import CallOfRun, Key, RecordedRun, Story, recorded_runs
from understudy.testing.replay_report import (
    ChangedCall,
    CostOf,
    Difference,
    NotReplayed,
    Replay,
)
from understudy.testing.sealed import Seal, Sealed, sealed, unsealed
from understudy.tools import InvalidArguments, OutcomeUnknown, Tool, ToolFailed
from understudy.tools.result import ToolResult
from understudy.trust.budgets import Budget, Measure
from understudy.trust.people import GivenPeople, People, Person
from understudy.trust.rules import Rules
from understudy.trust.trial import change_of
from understudy.trust.trust import Trust

REPLAYER = "a replay"
"""The name of the approver of a call that ran unasked, and about which persons would now be
asked."""
BUDGET_USED_UP = "the budget of the replay is used up"


def replay(
    exports: Iterable[Mapping[str, Any]],
    *,
    agent: Agent[Any, Any],
    since: datetime | None = None,
    ask_model: bool = False,
    budget: Measure | Budget | None = None,
    rules: Rules | None = None,
    people: GivenPeople | None = None,
    deps: Any = None,
    pricing: Pricing | None = True,
) -> Replay:
    """Run recorded conversations again, on today's definition, without any effect on the world.

    Each run begins with the state that it really began with, so a difference in one run does not
    hide differences in later runs. The replies of the model come from the records; so do results of
    tools, decisions, values of `run.once`, and replies to `run.ask_model`. The definition runs: its
    instructions, gates, middleware and rules. The time is the time of the records.

    A tool's body, its `check`, a notifier and a directory of people are never called. Other code is
    stopped when it opens a connection, starts a program or writes a file. If something is not in
    the records, the replay of its run ends, and the report says why. Not stopped are: threads that
    the code starts itself before Python 3.14, connections that were already open, and C libraries
    that connect without Python, such as libpq.

    Records do not have the instructions and tool schemas that the model saw. Without `ask_model` a
    changed prompt makes no difference, unless code reads it. Not replayed are: budgets of a
    runtime, changes of files by calls, messages to sub-agents, and agents that a tool runs by
    `ctx.run_agent`. `max_runs` is that of the definition.

    Args:
        exports: exports of agents, made by `runtime.export` or `observer.export`, in a list or
            from a generator.
        agent: the definition to try.
        since: leave out runs that began earlier; a time with a time zone.
        ask_model: ask the model of the definition, instead of taking its replies from the
            records. It costs money. Tools still answer from the records, to calls that were
            made then.
        budget: the limit of that cost: `usd(5)`, `tokens(100_000)`, or a `Budget` of these. It
            is checked before each request, so the request that passes the limit is still paid.
        rules: as in `Runtime(rules=...)`.
        people: as in `Runtime(people=...)`. Only a mapping is used; a function is not called.
        deps: the deps for hooks that read `run.deps`. They must not reach the world.
        pricing: as in `Runtime(pricing=...)`.

    Raises:
        UsageError: if an export is damaged, not an export, or of another agent; if only one of
            `budget` and `ask_model` is given; or if an option is wrong.
        SchemaVersionError: if an export has another format.

    """
    if not isinstance(agent, Agent):
        raise UsageError(f"replay(agent=...) takes an Agent, got {shown(agent)}")
    if isinstance(exports, Mapping):
        exports = [exports]
    if isinstance(exports, (str, bytes)) or not isinstance(exports, Iterable):
        raise UsageError(
            f"replay(...) takes exports, such as [runtime.export(id).get()], got {shown(exports)}"
        )
    if rules is not None and not isinstance(rules, Rules):
        raise UsageError(f"replay(rules=...) takes Rules(...), got {shown(rules)}")
    replayer = _Replayer(
        agent,
        since=None if since is None else checked_time(since, what="replay(since=...)"),
        ask_model=ask_model,
        budget=_checked_budget(budget, ask_model=ask_model),
        rules=rules,
        people=people,
        deps=deps,
        prices=Prices.given(pricing, what="replay(pricing=...)"),
    )
    return run_sync(lambda: replayer.replay(exports))


def _checked_budget(budget: object, *, ask_model: bool) -> Measure | None:
    if not ask_model:
        if budget is not None:
            raise UsageError(
                "replay(budget=...) is for ask_model=True: replies of the record cost nothing"
            )
        return None
    measure = budget.measure if isinstance(budget, Budget) else budget
    if not isinstance(measure, Measure) or not measure.is_of_models:
        raise UsageError(
            "replay(ask_model=True) pays for replies: say how much at most, by budget=usd(5) or "
            f"budget=tokens(100_000) of understudy.trust, got {shown(budget)}"
        )
    return measure


class _RecordedClock:
    """A clock with the time of the record."""

    def __init__(self, at: datetime) -> None:
        self._at = at

    def now(self) -> datetime:
        return self._at

    def monotonic(self) -> float:
        return self._at.timestamp()

    def reach(self, at: datetime | None) -> None:
        """Advance the clock to this time, if it is later."""
        if at is not None and at > self._at:
            self._at = at


class _Tape(Ledger):
    """The ledger of a replay, whose records are kept only in a story."""

    def __init__(self, state: AgentState, story: Story, run_id: str, path: tuple[str, ...]) -> None:
        super().__init__(state, agent_path=path)
        self._story = story
        self._run_id = run_id

    def record_sound(self, *records: Record) -> None:
        super().record_sound(*records)
        for record in records:
            self._story.add(record, self._run_id)


class _ReplayedRun(Run):
    """A run whose hooks repeat no `once`, and ask no model beside the conversation."""

    async def recorded(self, key: str, make: Callable[[], Awaitable[Once | ModelAsked]]) -> Any:
        playing = _playing.get()
        known = playing.then.once

        async def made() -> Once:
            if (self.run_id, key) not in known:
                playing.stop(
                    f"a hook does {key!r} once, or asks a model: that is not in the record"
                )
                raise AttemptEnded
            return Once(key=key, value=known[self.run_id, key])

        return await super().recorded(key, made)


class _ClosedRuns(AlteredRuns):
    run_type = _ReplayedRun


class _Played(StandIn):
    """A model that answers one request with a recorded reply."""

    def __init__(self, given: Any, reply: ModelResponse) -> None:
        super().__init__(given)
        self._reply = reply

    async def request(
        self,
        messages: Any,
        model_settings: Any,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return self._reply


class _Playing:
    """The replay of one run.

    Args:
        recorded: the recorded run.
        replayer: the replayer that replays it.

    """

    def __init__(self, recorded: RecordedRun, replayer: _Replayer) -> None:
        self.recorded = recorded
        self.then = recorded.story
        self.now = Story(recorded.started.agent)
        self.now.take_over(recorded)
        self.replayer = replayer
        self.clock = _RecordedClock(recorded.started.at)
        self.seal = Seal()
        self.pairs: dict[str, CallOfRun] = {}
        """The recorded calls, by the key of the call now."""
        self.is_stopped = False
        self.why: str | None = None
        """The reason why the rest could not be replayed; None if the record ends there too."""
        self.goes_on: str | None = None
        """What happens now at the place at which the run had ended."""
        self.left_out: set[str] = set()
        """The keys of calls whose agents are not replayed."""
        self._used: set[str] = set()
        self._asked_again: set[str] = set()
        """The keys of calls whose tools have asked again, or are in doubt again."""
        self._read = 0
        self.ledger = _Tape(
            recorded.before, self.now, recorded.started.run_id, (recorded.started.agent,)
        )

    # ------------------------------------------------------------------------ what is asked

    def stop(self, why: str | None) -> None:
        """End the replay of this run before its next step."""
        if not self.is_stopped:
            self.is_stopped, self.why = True, why

    def before_step(self) -> bool:
        """Whether the attempt ends. Messages that came during the run come here again."""
        run = self.ledger.state.run
        if run is not None and run.turn is None and not self.is_stopped:
            for turn in range(self._read, run.turns + 1):
                for message in self.then.messages.get(turn, ()):
                    self.clock.reach(message.at)
                    self.ledger.record(UserMessage(message=message.message, by=message.by))
            self._read = max(self._read, run.turns + 1)
        return self.is_stopped

    async def reply(self, run: Run, request: ModelInput, next: Any) -> ModelResponse:
        """The reply to a request of the conversation."""
        if self.is_stopped:
            raise AttemptEnded
        key = (run.run_id, str(run.current.turns))
        if self.replayer.ask_model:
            return await self._asked(run, request, next)
        reply = self.then.replies.get(key)
        if reply is None:
            end = self.then.ends.get(run.run_id)
            if end is not None and end.outcome == "completed":
                self.goes_on = f"{run.definition.name} asks its model once more"
            why = None
            if end is not None and end.outcome == "failed":
                why = "the run had failed here, by its model or its middleware"
            self.stop(why)
            raise AttemptEnded
        happened = self.then.times.get(("reply", f"{key[0]}.{key[1]}"))
        self.clock.reach(happened)
        model = request.model or run.definition.model
        played = _Played(model, copy(reply))
        return cast("ModelResponse", await next(request.replace(model=played)))

    async def _asked(self, run: Run, request: ModelInput, next: Any) -> ModelResponse:
        replayer = self.replayer
        if replayer.is_used_up:
            self.stop(BUDGET_USED_UP)
            raise AttemptEnded
        with unsealed():
            reply = cast("ModelResponse", await next(request))
        if not replayer.pay(reply):
            self.stop("what a reply of the model costs is not known, so its budget cannot be kept")
            raise AttemptEnded
        return reply

    def answer(self, ctx: Any, tool: Tool[Any]) -> Any:
        """Return what a tool returned then, or raise what it raised.

        If the record does not have it, the replay of the run ends.
        """
        call = self.now.calls.get(ctx.call_key)
        then = None if call is None else self.pair(call, tool)
        if then is None:
            self.stop(f"the tool {tool.name!r} was not called so: its result is not in the record")
            raise CallSuspended
        result = then.result
        if any(is_child_of(key, then.key) for key, _ in self.then.replies):
            self.left_out.add(then.key)
        if then.started and then.question is not None and then.key not in self._asked_again:
            self._ask_again(then, then.question)
        if result is None:
            self.stop(None)
            raise CallSuspended
        if not then.started or result.not_entered or result.value_is == "given":
            self.stop(
                f"{tool.name!r} did not run then ({then.decided}): its result is not in the record"
            )
            raise CallSuspended
        self.clock.reach(result.at or result.part.timestamp)
        return self._returned(result)

    def _ask_again(self, then: CallOfRun, question: Request) -> None:
        """Ask the tool's question, if its result came from the answer alone, or raise its doubt."""
        self._asked_again.add(then.key)
        result = then.result
        if question.kind == "doubt":
            raise OutcomeUnknown(str(question.payload["reason"]))
        if result is None or result.part.outcome == "denied":
            raise Interrupt(
                question.payload,
                title=question.title_format,
                allowed=question.allowed,
                schema=question.schema,
            )

    def _returned(self, result: Result) -> Any:
        part = result.part
        content = part.content
        if isinstance(content, dict) and EDITED in content:
            content = content.get("result")
        if result.signal is not None:
            raise StopAgent(StopSignal.from_dict(result.signal))
        if result.halt is not None:
            raise Halt(str(result.halt.payload))
        if result.doubt is not None:
            raise OutcomeUnknown(result.doubt)
        if part.outcome == "failed":
            raise ToolFailed(str(content))
        if part.outcome != "success":
            self.stop(None)  # the call was cut off
            raise CallSuspended
        if result.user_prompt is not None or part.metadata is not None:
            beside = None if result.user_prompt is None else result.user_prompt.content
            content = ToolReturn(content, content=beside, metadata=part.metadata)
        value = {} if result.value_is != "separate" else {"value": result.value}
        return ToolResult(
            content,
            state=result.state,
            escalate=result.escalate,
            skip_summarization=result.skip_summarization,
            **value,
        )

    def pair(self, call: CallOfRun, tool: Tool[Any] | None = None) -> CallOfRun | None:
        """The recorded call of a call now: with the same key, or with the same tool and
        arguments.
        """
        found = self.pairs.get(call.key)
        if found is not None:
            return found
        if tool is None and len(call.path) == 1:
            tool = self.replayer.tool_of(call.part.tool_name)
        names = {call.part.tool_name} if tool is None else set(tool.names)
        same = self.then.calls.get(call.key)
        candidates = [same] if same is not None else []
        if self.replayer.ask_model:
            candidates += self.then.calls.values()
        wanted = _arguments(call, tool)
        for each in candidates:
            if each.key in self._used or each.part.tool_name not in names:
                continue
            if self.replayer.ask_model and (
                each.path != call.path or _arguments(each, tool) != wanted
            ):
                continue
            self._used.add(each.key)
            self.pairs[call.key] = each
            return each
        return None

    # ------------------------------------------------------------------------ what persons say

    def decide(self) -> bool:
        """Record the old decisions on what is asked now. Returns whether there was any."""
        found = False
        for place in list(ledger_tree(self.ledger)):
            run = place.state.run
            if run is None or run.over:
                continue
            for request in run.pending_requests:
                decision = self._decision_on(request)
                if decision is not None:
                    place.record(
                        Decided(request_id=request.id, decision=decision, at=self.clock.now())
                    )
                    found = True
        return found

    def wait(self) -> bool:
        """Let the time come for which the run waits. Returns whether it is within the recorded
        time.
        """
        due, ended_at = self.ledger.state.next_due, self.recorded.ended_at
        if due is None or ended_at is None or due > ended_at or due <= self.clock.now():
            return False
        self.clock.reach(due)
        return True

    def _decision_on(self, request: Request) -> Decision | None:
        call = self.now.calls.get(request.call_key)
        then = None if call is None else self.pair(call)
        if request.question_key:  # a middleware asks
            of = (request.question_key, request.source, request.run_id)
            for asked, decision in self.then.questions:
                if (asked.question_key, asked.source, asked.run_id) == of:
                    return decision
            return None
        if then is None:
            return None
        if request.kind != "approval":
            answers = [
                decision
                for asked, decision in self.then.questions
                if asked.call_key == then.key and asked.kind == request.kind
            ]
            return answers[-1] if answers else None
        if then.decisions:
            by_source = [each for asked, each in then.decisions if asked.source == request.source]
            decision = (by_source or [each for _, each in then.decisions])[-1]
            if decision.by_grant is not None:
                decision = replace(decision, by_grant=None, grant=None)
            return decision
        if then.fate == "unasked" and then.started:
            return Decision(type="approve", by=REPLAYER)
        return None

    # ------------------------------------------------------------------------ what came of it

    def difference(self) -> tuple[str, str] | None:
        """The first difference: what happened then, and what happens now."""
        then, now = self.then.happened, self.now.happened
        for key, happened in now.items():
            skipped = self._skipped(key)
            if skipped is not None:
                return skipped
            before = then.get(key)
            if before is None:
                return "", happened.text
            if before.value != happened.value:
                return before.text, happened.text
        for call in self.now.calls.values():
            unasked = self._skipped(("runs", call.key)) if call.is_judged else None
            if unasked is not None:  # the call waits for its siblings
                return unasked
        if self.goes_on is not None:
            return "the run had ended", self.goes_on
        if self.is_stopped or self.is_suspended:
            return None
        for key, happened in then.items():
            if key not in now and not self._is_left_out(key):
                return happened.text, ""
        return None

    def _skipped(self, key: Key) -> tuple[str, str] | None:
        """The difference that persons were asked about a call that now runs unasked; None
        otherwise.
        """
        what, of = key
        asked = ("asked", of)
        if what != "runs" or asked in self.now.happened or asked not in self.then.happened:
            return None
        return self.then.happened[asked].text, f"nobody is asked about {self.now.calls[of].text}"

    is_suspended = False
    """Whether the run waits now for something that never comes in the record."""

    def _is_left_out(self, key: Key) -> bool:
        """Whether an event is of an agent that is not replayed, because a tool ran the agent
        itself.
        """
        what, of = key
        return any(
            of.startswith((f"{call}.", f"{call}+")) or (what == "end" and of == call)
            for call in self.left_out
        )


_playing: ContextVar[_Playing] = ContextVar("understudy_playing")


def _arguments(call: CallOfRun, tool: Tool[Any] | None) -> str:
    """The digest of the arguments of a call, as today's tool reads them."""
    given = call.given
    if tool is not None:
        with suppress(InvalidArguments):  # invalid arguments stay as they are
            given = tool.canonical(tool.validate(given))
    return digest(given)


class _Replayer:
    """Replays conversations, one after the other."""

    def __init__(
        self,
        agent: Agent[Any, Any],
        *,
        since: datetime | None,
        ask_model: bool,
        budget: Measure | None,
        rules: Rules | None,
        people: GivenPeople | None,
        deps: Any,
        prices: Prices | None,
    ) -> None:
        self._since = since
        self.ask_model = ask_model
        self._budget = budget
        self._spent = Decimal(0)
        self._prices = prices
        self._deps = deps
        self._rules = rules
        self._people = people
        runs = _ClosedRuns(self._closed)
        self._definition = runs.altered(agent.definition)
        self._runner = Runner(self._definition, runs)
        if budget is not None and budget.unit == "usd":
            self._check_prices()
        self.found = Replay(agent.name, ask_model)

    def tool_of(self, name: str) -> Tool[Any] | None:
        """The tool of this name of the outermost agent."""
        return self._definition.tool_of(name)

    def _check_prices(self) -> None:
        """Refuse to pay unknown prices. Agents that only a tool runs are not known yet."""
        for model in self._runner.all_models:
            if self._prices is None or not self._prices.knows(model):
                raise UsageError(
                    f"a replay that asks the model {model.model_name!r} needs to know what it "
                    "costs: give replay(pricing={name: Price(input='0.25', output=2)}), or a "
                    "budget in tokens(...)"
                )

    async def replay(self, exports: Iterable[Mapping[str, Any]]) -> Replay:
        """Replay all exports."""
        found = self.found
        async with AsyncExitStack() as clients:
            if self.ask_model:
                for model in self._runner.all_models:
                    await clients.enter_async_context(model)
            for data in exports:
                await self._conversation(read_export(data))
        return found

    async def _conversation(self, export: Exported) -> None:
        if export.agent != self._definition.name:
            raise UsageError(
                f"the export of {export.agent_id!r} is of an agent {export.agent!r}, and "
                f"{self._definition.name!r} is tried: replay it with a definition of that name"
            )
        has_runs = has_difference = False
        for recorded in recorded_runs(export, self._since):
            if isinstance(recorded, str):
                self._note(export, None, recorded)
                continue
            has_runs = True
            playing = _Playing(recorded, self)
            why = await self._run(playing)
            self.found.runs += 1
            self._compare(export, playing)
            reason = (
                f"code of the agent tried to {playing.seal.tried[0]}" if playing.seal.tried else why
            )
            if reason is not None:
                self._note(export, recorded.started.run_id, reason)
            for key in sorted(playing.left_out):
                name = playing.then.calls[key].part.tool_name
                why = f"the agent that {name!r} ran itself, by ctx.run_agent: no tool is entered"
                self._note(export, recorded.started.run_id, why)
            # A difference made by the closed world is no difference of the definitions.
            difference = None if playing.seal.tried else playing.difference()
            if difference is not None and not has_difference:
                has_difference = True
                before, now = difference
                self.found.differences.append(
                    Difference(
                        agent_id=export.agent_id,
                        run_id=recorded.started.run_id,
                        before=before,
                        now=now,
                    )
                )
        self.found.conversations += has_runs

    def _note(self, export: Exported, run_id: str | None, why: str) -> None:
        self.found.not_replayed.append(
            NotReplayed(agent_id=export.agent_id, run_id=run_id, why=why)
        )

    async def _run(self, playing: _Playing) -> str | None:
        """Replay one run. Returns why a part could not be replayed; None if all was replayed."""
        started = playing.recorded.started
        options = RunOptions(
            until_tool=started.until_tool,
            require_tool_success=started.require_tool_success,
            force=started.forced and self.ask_model,
            max_runs=self._definition.max_runs,
            deadline=started.deadline,
            early_stopping_prompt=playing.then.once.get((started.run_id, ANSWER_PROMPT)),
            ends_at=started.ends_at,
        )
        known = self._definition.tools
        for name in started.until_tool or ():
            if self._definition.tool_of(name) is None:
                have = ", ".join(known) or "none"
                return f"the run was to end with the tool {name!r}, and the tools are: {have}"
        environment = RunEnvironment(
            deps=self._deps,
            clock=playing.clock,
            new_id=new_random_id,
            agent_id=started.agent_id or None,
            is_to_end_attempt=playing.before_step,
            # A recorded reply keeps the cost that is recorded: to price each anew takes as long as
            # all the rest of its step.
            prices=self._prices if self.ask_model else None,
            trust=self._trust(playing),
            doubt_ends=started.doubt_ends,
        )

        async def go() -> str | None:
            _playing.set(playing)
            with sealed(playing.seal):
                try:
                    outcome = await self._runner.begin(
                        playing.ledger,
                        started.message,
                        options=options,
                        environment=environment,
                        run_id=started.run_id,
                        context=started.context,
                        go_on=started.continues is not None,
                        by=started.by,
                        also_unnamed=started.also_unnamed,
                    )
                    return await self._to_its_end(playing, outcome, environment)
                except AttemptEnded:
                    return playing.why
                except (UnderstudyError, Sealed) as error:
                    playing.stop(text_of(error))
                    return playing.why
                finally:
                    await environment.shared.close()

        # It runs in a new task, so that its changes of the context end with it.
        return await asyncio.create_task(go())

    async def _to_its_end(
        self, playing: _Playing, outcome: Outcome, environment: RunEnvironment
    ) -> str | None:
        while isinstance(outcome, (Interrupted, Paused, Waiting)):
            if isinstance(outcome, Paused):
                unpause(playing.ledger)
            elif isinstance(outcome, Interrupted) and not playing.decide():
                playing.is_suspended = True
                return self._why_undecided(playing)
            elif isinstance(outcome, Waiting) and not playing.wait():
                playing.is_suspended = True
                return "the run waits now, for longer than it took then, or for an answer"
            outcome = await self._runner.go_on(playing.ledger, environment=environment)
        return None

    def _why_undecided(self, playing: _Playing) -> str | None:
        """Why nobody decides what is asked; None if it was open in the record too."""
        for place in ledger_tree(playing.ledger):
            run = place.state.run
            for request in () if run is None or run.over else run.pending_requests:
                call = playing.now.calls.get(request.call_key)
                then = None if call is None else playing.pair(call)
                if then is None or not (then.fate == "asked" and then.result is None):
                    what = request.tool_name or request.source
                    return f"nobody had decided about {what!r} then, so nobody does now"
        return None

    def _trust(self, playing: _Playing) -> Trust:
        if self._rules is None and self._people is None:
            return Trust()
        given = self._people if isinstance(self._people, Mapping) else _nobody_is_asked
        return Trust(People(given, playing.clock), self._rules)

    def _compare(self, export: Exported, playing: _Playing) -> None:
        found = self.found
        for call in playing.now.calls.values():
            if not call.is_judged:
                continue  # the replay has ended before
            then = playing.pair(call)
            if then is None or not then.is_judged:
                continue
            found.calls += 1
            change = change_of(then.fate, call.fate, then.asked, call.asked)
            if change is None:
                continue
            rejected = any(each.type == "reject" for _, each in then.decisions)
            is_denied = then.fate == "denied"
            found.changes.append(
                ChangedCall(
                    change=change,
                    agent_id=export.agent_id,
                    call_key=then.key,
                    agent_path=then.path,
                    tool=call.part.tool_name,
                    text=then.text,
                    at=then.at,
                    before=then.fate,
                    now=call.fate,
                    decided="a rule DENIED it" if is_denied else then.decided,
                    was_rejected=rejected or is_denied,
                )
            )
        for _, reply in playing.then.model_replies:
            self._add_cost(found.cost_before, reply)
        if self.ask_model:
            for _, reply in playing.now.model_replies:
                self._add_cost(found.cost_now, reply)

    def _cost_of(self, reply: ModelResponse) -> Decimal | None:
        """The cost of a reply, with the rejected replies before it."""
        found = self._own_cost_of(reply)
        for attempt in reply.failed_attempts or ():
            if attempt.usage is not None and found is not None:
                rejected = ModelResponse(
                    parts=[],
                    usage=attempt.usage,
                    model_name=attempt.model_name,
                    provider_name=attempt.provider_name,
                )
                more = self._own_cost_of(rejected)
                found = None if more is None else found + more
        return found

    def _own_cost_of(self, reply: ModelResponse) -> Decimal | None:
        cost = reply.usage.cost
        if cost is not None:
            return Decimal(str(cost))
        return None if self._prices is None else self._prices.of(reply)

    def _add_cost(self, cost: CostOf, reply: ModelResponse) -> None:
        cost.replies += 1
        found = self._cost_of(reply)
        if found is None:
            cost.unknown += 1
        else:
            cost.usd += found

    # ------------------------------------------------------------------------ the model

    @property
    def is_used_up(self) -> bool:
        """Whether the budget is used up."""
        return self._budget is not None and self._spent >= self._budget.limit

    def pay(self, reply: ModelResponse) -> bool:
        """Count the cost of a reply. Returns whether it is known."""
        assert self._budget is not None, "no model is asked without one"
        if self._budget.unit == "tokens":
            self._spent += reply.usage.total_tokens
            return True
        cost = self._cost_of(reply)
        if cost is not None:
            self._spent += cost
        return cost is not None

    # ------------------------------------------------------------------------ what is closed

    def _closed(self, definition: AgentDefinition) -> AgentDefinition:
        """The definition with tools that answer from the record, and models that do so or cost
        money.
        """
        tools = {name: _closed_tool(tool) for name, tool in definition.tools.items()}
        model, others = definition.model, definition.fallback_models
        if not self.ask_model:
            model = None if model is None else StandIn(model)
            others = tuple(StandIn(each) for each in others)

        async def answered(run: Run, request: ModelInput, next: Any) -> ModelResponse:
            return await _playing.get().reply(run, request, next)

        innermost = Hook(
            middleware="replay", name="wrap_model_call", function=answered, is_async=True
        )
        hooks = definition.hooks
        return replace(
            definition,
            tools=tools,
            output_tools=tuple(tools[each.name] for each in definition.output_tools),
            model=model,
            fallback_models=others,
            hooks=replace(hooks, wrap_model_call=(*hooks.wrap_model_call, innermost)),
        )


def _closed_tool(tool: Tool[Any]) -> Tool[Any]:
    """The tool without its check, with a body that answers from the record.

    If a tool only runs an inner agent, its body runs, and the agent is closed in the same way.
    """
    if tool.agent_argument:
        return tool
    twin = copy(tool)

    async def answered(ctx: Any, /, *positional: Any, **keywords: Any) -> Any:
        return _playing.get().answer(ctx, tool)

    twin.function = answered
    twin.takes_context, twin.is_async, twin.inline = True, True, False
    if tool.check is not None and tool.on_unknown is None:
        twin.on_unknown = "ask"  # as if it had its check
    twin.check, twin.timeout, twin.retry = None, None, None
    return twin


async def _nobody_is_asked(caller: Caller) -> Person | None:
    """Return no person: a directory is outside of the closed world."""
    raise ConnectionError("a replay asks no directory of people")
