"""`AgentRef`: the reference through which an agent is called. It addresses an id, not an actor."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

import pykka

from understudy._base import forks, security_log
from understudy._base.authors import By, Login, checked_author
from understudy._base.json_values import checked_flag, checked_text
from understudy._base.points_in_time import checked_time
from understudy._base.type_variables import OutputT_co
from understudy.actors.agent.actor import AgentActor
from understudy.actors.agent.events import Status, Subscription
from understudy.actors.agent.factory import MadeAtActivation
from understudy.actors.agent.message_ids import check_message_id
from understudy.actors.agent.messages import (
    AgentCall,
    AgentMessage,
    Cancel,
    CancelMessage,
    ChangeFiles,
    Compact,
    Decide,
    Expectation,
    Notify,
    Passivate,
    Pause,
    Query,
    RecordFact,
    Resume,
    Retry,
    RunFuture,
    RunRequest,
    Send,
    Unpause,
    WaitOutcome,
    options_of,
)
from understudy.actors.agent.replies import answer_with
from understudy.actors.agent.slot import AgentSlot, running_agents
from understudy.actors.agent.stored_agents import AgentInfo
from understudy.actors.displays import DisplaySubscription, recorded, stored_display
from understudy.agent.agent import Agent, RunLimits
from understudy.agent.build_definition import check_ends_at
from understudy.agent.decisions import refuse_inside_run
from understudy.agent.value_of_tool import refuse_until, value_of
from understudy.approvals import Caller, Voter
from understudy.display import DisplayUpdate
from understudy.errors import (
    ForkedRuntime,
    PeopleUnavailable,
    UsageError,
    VoteRefused,
    WouldDeadlock,
)
from understudy.history import HistoryPage, check_page
from understudy.interrupts import (
    Decision,
    DecisionRecord,
    GivenDecisions,
    checked_expect,
    decision_on_only,
    decisions_by_id,
)
from understudy.loop_actors.errors import RuntimeStopped
from understudy.loop_actors.future import Future, refuse_closed, refuse_on_its_loop
from understudy.loop_actors.monitor import Lifetime
from understudy.models.messages import UserInput, user_message
from understudy.outcomes import OutcomeOf
from understudy.run.until_tool import UntilTool, collapse_until_tool, refuse_both
from understudy.state.agent_state import AgentState
from understudy.state.blobs import checked_hashes
from understudy.state.files import FileChange, StoredFile
from understudy.state.plans import QueuedMessage, RunChoices, run_message_id
from understudy.state.records import FilesChanged, MessageQueued, ReviewClosed, Revoked, Settled
from understudy.stopping import StopReason, StopSignal
from understudy.tools import ToolResult

T = TypeVar("T")


class RefExtractOptions(RunLimits, total=False):
    """The options of `AgentRef.extract`."""

    message_id: str | None
    if_interrupted: Literal["withdraw", "error"]
    by: str | None


class AgentRef(pykka.ActorRef[AgentActor], Generic[OutputT_co]):
    """An agent's address. Each call that answers returns a `Future`: `.get()` it or `await` it.

    It stays valid when the agent's actor is restarted and while the agent is passive: the next call
    activates it.
    """

    _expectation: Expectation | None = None
    _caller: Caller | None = None
    """Who calls, where a login says it; None where code of the host application does."""
    actor_class: type[AgentActor] = AgentActor

    def __init__(
        self, slot: AgentSlot, alive: Lifetime, expected: Agent | MadeAtActivation | None = None
    ) -> None:
        # Not Pykka's __init__, which needs an actor: there may be none now.
        self._slot = slot
        if expected is not None:
            self._expectation = Expectation(expected.name)
        self.actor_stopped: Lifetime = alive

    @property
    def actor_urn(self) -> str:  # type: ignore[override]  # kept, it would take 0.1 KB of each ref
        """The agent's id, as a URN. It does not change."""
        return f"urn:understudy:agent:{self.id}"

    def __repr__(self) -> str:
        agent = self._slot.agent
        what = f" of agent {agent.name!r}" if agent is not None else ""
        return f"<AgentRef {self._slot.id!r}{what}>"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgentRef) and other._slot is self._slot

    def __hash__(self) -> int:
        return hash(self._slot)

    @property
    def id(self) -> str:
        """The agent's id."""
        return self._slot.id

    # ------------------------------------------------------------------- messages

    def run(
        self,
        input: UserInput,
        *,
        until_tool: UntilTool | None = None,
        until_tool_success: UntilTool | None = None,
        force: bool = False,
        max_runs: int | None = None,
        deadline: float | None = None,
        early_stopping_prompt: str | None = None,
        ends_at: datetime | None = None,
        message_id: str | None = None,
        if_interrupted: Literal["withdraw", "error"] = "withdraw",
        go_on: bool = False,
        by: str | None = None,
    ) -> RunFuture[OutcomeOf[OutputT_co]]:
        """Run the agent on a message; the future resolves to the outcome.

        While another run is under way this one is queued; also where the tools of that run sleep or
        wait for the outside. A queued run is recorded: it begins also after a crash, and after a
        run that failed or was cancelled. Its future stays open until it ends, or asks a person.

        `future.message_id` is there at once. Who lost the future, in a crash for instance, asks for
        `outcome(message_id=...)`, and does not send the message again.

        Args:
            input: the user's message.
            until_tool: end the run as soon as this tool has a result.
            until_tool_success: the same, but only for a result that is not an error.
            force: make the model call the until tool, and no other one, in each of its replies.
            max_runs: the maximum number of model calls in this run; the agent's own by default.
            deadline: seconds after which the run is stopped, without the time that it waits.
            early_stopping_prompt: the user message that asks for the last answer at a limit; the
                agent's own by default.
            ends_at: the time of day, with a time zone, at which the run is stopped; also while it
                waits for a person, and while the agent is passive. A time that has passed stops it
                at once.
            message_id: the caller's id of this message. A message with the same id again is not
                run again: its future resolves to the outcome of the first.
            if_interrupted: what to do while requests of an earlier run are pending: `"withdraw"`
                withdraws them, and ends that run unless it also waits; `"error"` refuses this one,
                so that its future raises `NotInterrupted`.
            go_on: where the run before this one failed, continue it as `retry` does, with this
                message and these options. Then the future may raise what that of `retry` does. Any
                other run begins as without it.
            by: the person who sends it, for the record.

        Raises:
            UsageError: if an argument is wrong.
            WouldDeadlock: inside this agent's own run, which would wait for itself: use `send`.

        """
        slot = self._slot
        if slot.key in running_agents.get():
            raise WouldDeadlock(what="run", remedy=f"use send() from inside agent {slot.id!r}")
        if if_interrupted not in ("withdraw", "error"):
            raise UsageError(
                f"`if_interrupted` must be 'withdraw' or 'error', got {if_interrupted!r}"
            )
        checked_flag(go_on, what="run(go_on=...)")
        author = checked_author(by, what="run(by=...)")
        if message_id is None:
            message_id = run_message_id(slot.services.new_id())
        else:
            check_message_id(message_id, is_new=True)
        refuse_both(until_tool, until_tool_success)
        names, needs_success = collapse_until_tool(until_tool, until_tool_success)
        choices = RunChoices(
            until_tool=names,
            require_tool_success=needs_success,
            force=force,
            max_runs=max_runs,
            deadline=deadline,
            early_stopping_prompt=early_stopping_prompt,
            ends_at=check_ends_at(ends_at),
            go_on=go_on,
        )
        if isinstance(slot.agent, Agent):
            # Where the definition is not known yet, they are checked once the agent is read.
            options_of(choices, slot.agent)
        future: RunFuture[OutcomeOf[OutputT_co]] = RunFuture(message_id, slot.services.loop)
        queued = MessageQueued(
            message_id=message_id,
            message=user_message(input, at=slot.services.clock.now()),
            context={**slot.services.codecs.capture()},
            choices=choices,
            by=self._by(author),
        )
        request = RunRequest(queued, if_interrupted == "error", running_agents.get())
        slot.ask(self._asked(request, future))
        return future

    def send(
        self,
        input: UserInput,
        *,
        at: datetime | None = None,
        steer: bool = False,
        message_id: str | None = None,
        by: str | None = None,
    ) -> Future[str]:
        """Queue a message; the future resolves to its id once it is recorded.

        When the current run has ended, one run begins with all messages of the queue. After a run
        that failed or was cancelled, they wait for the next message or `run`. A tool may send to
        its own agent; at most 10 runs in a row begin that way (`SelfRunsBounded`).

        Args:
            input: the user's message.
            at: the time at which it is queued, with a time zone; at once if that has passed. Until
                then the agent may be passive, and `cancel_message` takes it back. When it comes
                while an earlier run waits for a person, it waits as well: it withdraws no request.
            steer: add it to the current run, before its next model call.
            message_id: the caller's id of this message; a new one by default. A message with the
                same id again is not queued again: its future resolves to the same id.
            by: the person who sends it, for the record.

        Raises:
            UsageError: if the message is empty, `message_id` is not text, `steer` is no bool, or
                `at` is no time with a time zone. The future raises it where 1,000 messages wait for
                their times already.

        """
        if message_id is not None:
            check_message_id(message_id, is_new=True)
        checked_flag(steer, what="send(steer=...)")
        author = checked_author(by, what="send(by=...)")
        due = None if at is None else checked_time(at, what="send(at=...)")
        slot = self._slot
        queued = MessageQueued(
            message_id=message_id or slot.services.new_id(),
            message=user_message(input, at=slot.services.clock.now()),
            steer=steer,
            self_sent=slot.key in running_agents.get(),
            due=due,
            context={**slot.services.codecs.capture()},
            by=self._by(author),
        )
        return self._ask(Send(queued))

    def cancel_message(self, message_id: str, *, by: str | None = None) -> Future[bool]:
        """Cancel a message that no run has taken yet, one with a time or any other in the queue.

        Also a `run()` that is queued behind another one: its future raises `UnknownMessage`. The
        future resolves to whether it was there: False if a run has taken it, or there is none. Its
        id may be used again.

        Args:
            message_id: of the message.
            by: the person who cancels it, for the record.

        Raises:
            UsageError: if `message_id` is not text, or `by` no name.

        """
        check_message_id(message_id)
        author = checked_author(by, what="cancel_message(by=...)")
        return self._ask(CancelMessage(message_id, self._by(author)))

    def queue(self) -> Future[list[QueuedMessage]]:
        """The messages that wait for a run, in the order in which runs take them.

        Those with a time that has not come are in `state().plans.timed`. A `run` that waits has
        `choices`, and a message that was sent has none.
        """
        return self._look(Query(_queue_of))

    def resume(
        self,
        decisions: GivenDecisions,
        *,
        expect: Mapping[str, str] | None = None,
    ) -> Future[OutcomeOf[OutputT_co]]:
        """Answer requests and continue the run; the future resolves to its outcome.

        The future raises `DecisionError` if a request is unknown or withdrawn, or a decision does
        not fit it, and `NotInterrupted` if the request was answered differently before.

        Args:
            decisions: by request id, or by request. Some of them are enough: the others stay
                pending. One alone, such as `approve()`, is for the request that is pending now,
                if it is the only one.
            expect: by request id, the `digest` of what the person was shown. Where it is another
                one, the future raises `RequestChanged`, and no decision is taken.

        Raises:
            DecisionError: inside a tool, a hook or a model, where it is a mistake: the application
                decides for people. This stops accidents, not code that means to decide.
            UsageError: if `expect` is no mapping to text, or names a request that is not decided.

        """
        refuse_inside_run()
        if isinstance(decisions, Decision):
            return self._decide_only(decisions, self.resume)
        given = decisions_by_id(decisions)
        checked = checked_expect(expect, given)
        context, login = self._slot.services.codecs.capture(), self._login
        return self._ask_deciding(Resume(given, checked, context, login=login))

    def decide(
        self,
        decisions: GivenDecisions,
        *,
        expect: Mapping[str, str] | None = None,
    ) -> Future[None]:
        """As `resume`, but the future settles as soon as the decisions are recorded.

        For a web page, which does not wait for the run. The future raises what that of `resume`
        raises, and `NotInterrupted` for a run in quarantine.

        Raises:
            DecisionError: as `resume`.
            UsageError: as `resume`.

        """
        refuse_inside_run()
        if isinstance(decisions, Decision):
            return self._decide_only(decisions, self.decide)
        given = decisions_by_id(decisions)
        checked = checked_expect(expect, given)
        context, login = self._slot.services.codecs.capture(), self._login
        return self._ask_deciding(Decide(given, checked, context, login=login))

    @overload
    def extract(
        self,
        tool: Callable[..., Coroutine[Any, Any, ToolResult[T]] | ToolResult[T]],
        input: UserInput,
        **options: Unpack[RefExtractOptions],
    ) -> Future[T]: ...
    @overload
    def extract(
        self,
        tool: Callable[..., Coroutine[Any, Any, T]],
        input: UserInput,
        **options: Unpack[RefExtractOptions],
    ) -> Future[T]: ...
    @overload
    def extract(
        self, tool: Callable[..., T], input: UserInput, **options: Unpack[RefExtractOptions]
    ) -> Future[T]: ...
    @overload
    def extract(
        self,
        tool: str | Sequence[str | Callable[..., Any]],
        input: UserInput,
        **options: Unpack[RefExtractOptions],
    ) -> Future[Any]: ...
    def extract(
        self, tool: UntilTool, input: UserInput, **options: Unpack[RefExtractOptions]
    ) -> Future[Any]:
        """Run until `tool`, or one of several, succeeds; the future resolves to its return value.

        Takes the options of `run` but the two that say until which tool. The future raises
        `NotExtracted` if the run ends in another way; the run's own error is its cause.
        """
        refuse_until(tool, options)
        future = self.run(input, until_tool_success=tool, **options)
        return future.map(lambda outcome: value_of(tool, outcome))

    # -------------------------------------------------------------------- steering

    def cancel(
        self,
        message: str = "cancelled",
        *,
        context: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        by: str | None = None,
    ) -> Future[OutcomeOf[OutputT_co] | None]:
        """Stop the current run at once.

        The future resolves to its outcome, or to None if there is no run. Finished calls are kept,
        a call with effects that was running is in doubt, and what never started is marked as not
        run. Async code that goes on is abandoned after the `cancel_timeout` of the runtime.

        Args:
            message: why; the message of the run's stop signal.
            context: more about it; JSON-able, kept in the signal.
            run_id: only this run. If it is the last one and over, the future resolves to its
                outcome; if another one is open, or came after it, the future raises `OtherRun` and
                nothing is done. An outcome, a state and an entry of the history name their run.
            by: the person who cancels it, for the record: the `by` of the signal's context.

        Raises:
            UsageError: for a message that is not text, or a context that cannot be stored.

        """
        author = checked_author(by, what="cancel(by=...)")
        told = {} if context is None else context
        told = told if author is None else {**told, "by": author}
        login = self._by(author)
        if isinstance(login, Login) and login.issuer:  # a name of a provider is not theirs alone
            told = {**told, "login": asdict(login)}
        signal = StopSignal(StopReason.USER_REQUESTED, message, told, source="cancel")
        return self._ask(Cancel(signal, _checked_run_id(run_id)))

    def pause(
        self, reason: str = "pause", *, run_id: str | None = None, by: str | None = None
    ) -> Future[None]:
        """Pause the run after its next model reply, before the tool calls in that reply.

        Without a run under way, the next one. It is recorded, so it holds after a restart too.

        Args:
            reason: why.
            run_id: only this run. If it is not the open one, the future raises `OtherRun`.
            by: the person who asks for it, for the record.

        Raises:
            UsageError: if `reason` is empty, not text, or not valid Unicode.

        """
        checked_text(reason, what="`reason`")
        author = checked_author(by, what="pause(by=...)")
        return self._ask(Pause(reason, _checked_run_id(run_id), by=self._by(author)))

    def unpause(self, *, run_id: str | None = None, by: str | None = None) -> Future[None]:
        """Continue a paused run where it is.

        Args:
            run_id: only this run. If it is not the open one, the future raises `OtherRun`.
            by: the person who asks for it, for the record.

        """
        author = checked_author(by, what="unpause(by=...)")
        return self._ask(Unpause(_checked_run_id(run_id), by=self._by(author)))

    def retry(
        self, *, run_id: str | None = None, by: str | None = None
    ) -> Future[OutcomeOf[OutputT_co]]:
        """Continue the last run where it failed, in a new run; the future resolves to its outcome.

        What the failed run has finished stays: agents of a workflow that have ended, results of
        tools, replies of models. A call that was started and has no result is in doubt, unless it
        is idempotent or read-only: as after a crash. The new run has the options of the failed
        one; its limits count anew, and its hooks run. A run in quarantine is released, and
        continues itself.

        The future raises `NotInterrupted` if the last run has not failed and none is quarantined,
        `NoProgress` if five retries in a row got no further, and `OtherWorkflow` if the agents of
        the workflow are others now.

        Args:
            run_id: only this run. If it was retried or released before, the future resolves to the
                outcome of that; if it is neither the open run nor the last one, and was not
                retried, it raises `OtherRun`.
            by: the person who asks for it, for the record.

        """
        author = checked_author(by, what="retry(by=...)")
        return self._ask(Retry(_checked_run_id(run_id), by=self._by(author)))

    def outcome(self, *, message_id: str | None = None) -> Future[OutcomeOf[OutputT_co] | None]:
        """The outcome of the current run, or of the last one; None if there was none.

        For a caller that did not start the run: after `runtime.recover()`, or after `send`. It
        waits while the run goes on, on whatever host. An agent is activated for it only to continue
        a run without an owner. Otherwise what the store has is told, which needs the agent's
        definition here: the text becomes a value of its `output_type`.

        Args:
            message_id: of the run that took this message instead, also after later runs. It waits
                while the message is in the queue.

        Raises:
            UsageError: if `message_id` is not text. The future raises it if the definition is not
                known here, the message waits for its time, or the records of its run are compacted
                away; and `UnknownMessage` if there is no such message.

        """
        if message_id is not None:
            check_message_id(message_id)
        return self._look(WaitOutcome(message_id, is_look=True))

    def notify(self, middleware: str, message: Any) -> Future[None]:
        """Pass a message to a middleware of the agent, also during a run.

        Its hook `on_message` is called, and the values that it returns are merged into those of the
        agent's state. The future settles when they are recorded.

        Args:
            middleware: its name; by default that is its class's name.
            message: any object; the agent's records do not keep it. On a store that hosts share it
                must be JSON where another host owns the agent: it is posted there.

        """
        return self._ask(Notify(middleware, message))

    def compact(self, *, by: str | None = None) -> Future[None]:
        """Replace the agent's records by a snapshot of its state, so that it loads fast.

        The events so far cannot be read afterwards: `events(after=0)` begins with a `Gap`. Waits
        until no run is under way.

        Args:
            by: the person who asks for it, for the record.

        """
        author = checked_author(by, what="compact(by=...)")
        security_log.note("act", "compact", who=author, agent=self.id)
        guard, id = self._slot.services.runs.trust.guard, self.id
        if guard is None:
            return self._ask(Compact(author))
        caller = None if author is None else self._caller_for(author)

        async def allowed() -> None:
            await guard("compact", f"compact agent {id!r}", {"id": id}, caller)
            await self._ask(Compact(author))

        return self.on_loop(allowed)

    def change_files(
        self,
        changes: Sequence[FileChange],
        blobs: Mapping[str, bytes],
        expected: Mapping[str, StoredFile | None] | None = None,
    ) -> Future[None]:
        """Change files of the agent, also during a run: `Workspace.of(ref)` is made of this.

        The future settles when that is recorded. It raises `UsageError`, and nothing is changed, if
        a path is not what `expected` says.

        Args:
            changes: each path, with what it is from now on.
            blobs: what is to be kept of these files, as `understudy.state.blobs.pack` brings it.
            expected: by path, what it must be now.

        """
        fact = FilesChanged(files=tuple(changes))
        return self._ask(ChangeFiles(fact, dict(blobs), {**(expected or {})}))

    # --------------------------------------------------------------------- looking

    def load_blobs(self, hashes: Sequence[str]) -> Future[dict[str, bytes]]:
        """The bytes that the store keeps of the agent's files under these hashes.

        Those that are there: what no file has any more goes with the next compaction. On any host;
        the agent is not activated. `Workspace.of(ref)` is made of this.

        Raises:
            UsageError: for what is no hash.

        """
        slot, wanted = self._slot, checked_hashes(hashes)
        return self._from_store(lambda: slot.services.store.load_blobs(slot.id, wanted)).map(dict)

    def on_loop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run `work` on the loop of the runtime; the future gets what it returns or raises."""
        return self._from_store(work)

    def status(self) -> Status:
        """The agent's status in this runtime, now; `PASSIVE` where it is not in its memory.

        Never waits, and does not activate the agent. `info()` tells the status that is recorded,
        on whatever host.
        """
        self._refuse_in_fork()
        return self._slot.status

    def subscribers(self) -> int:
        """How many subscriptions to its events are open in this runtime, now: who is present.

        Those of `display_events` count as well. Never waits, and does not activate the agent.
        """
        self._refuse_in_fork()
        return self._slot.log.count()

    def info(self) -> Future[AgentInfo]:
        """The agent as `runtime.agents()` lists it: its recorded status, and the host that owns it.

        From the store's index, on any host. The agent is not activated. The future raises
        `UnknownAgent` if there is no such agent.
        """
        slot = self._slot
        return self._from_store(lambda: slot.services.looks.info(slot))

    def state(self) -> Future[AgentState]:
        """A copy of the agent's state, on any host. The agent is not activated."""
        return self._look(Query(AgentState.copied))

    def decisions(self) -> Future[list[DecisionRecord]]:
        """The audit: every decision ever recorded, oldest first. As `state`, on any host."""
        return self._look(Query(_decisions_of))

    def events(self, after: int | str = 0) -> Subscription:
        """The recorded events after `after`, then the live ones.

        Iterate with `for` in a thread, or with `async for` on an event loop. The iteration ends
        when the runtime stops; call `close()` on the subscription to end it earlier.

        Args:
            after: the `position` of the last event that you have. Or the number of a record, of
                which you have all events.

        Raises:
            UsageError: if `after` is neither a position nor a number from 0 on.

        """
        self._refuse_in_fork()
        return self._slot.subscribe(after)

    def revoke(self, grant_id: str, *, by: str | None = None) -> Future[None]:
        """Revoke a grant: a decision that holds for later calls. Persons are asked again.

        A call that it let through, and whose body is not entered yet, does not run. The future
        raises `UsageError` if there is no such grant.

        Args:
            grant_id: of the grant; `state.grants` lists them.
            by: the person who revokes it, for the record.

        Raises:
            UsageError: if `grant_id` is no text.

        """
        checked_text(grant_id, what="revoke(grant_id)")
        author = checked_author(by, what="revoke(by=...)")
        revoked = Revoked(grant_id=grant_id, by=self._by(author))
        security_log.note("act", "revoke", who=by, agent=self.id)
        return self._ask(RecordFact(revoked))

    def settle(
        self, call_key: str, *, how: str, happened: bool = True, by: str | None = None
    ) -> Future[None]:
        """Settle the doubt about a call: it is known now what the call did.

        A call that waits for its check goes on: the model is told `how`, and the check is not asked
        any more.

        The future raises `UsageError` if there is no such doubt.

        Args:
            call_key: the call in doubt; `state.doubts_in_tree` lists them.
            how: what was found out, for the record.
            happened: whether the call took effect, or may have. It decides about calls with the
                same key (`@tool(key=)`): for them the call counts as done, or as if it never was.
            by: the person who found it out, for the record.

        Raises:
            UsageError: if `how` is not text, or not valid Unicode.

        """
        checked_text(how, what="`how`", may_be_empty=True)
        checked_flag(happened, what="`happened`")
        author = checked_author(by, what="settle(by=...)")
        settled = Settled(call_key=call_key, how=how, happened=happened, by=self._by(author))
        return self._ask(RecordFact(settled))

    def close_review(
        self, review_id: str, *, note: str | None = None, by: str | None = None
    ) -> Future[None]:
        """Close the review of a call that a person alone has let run by breaking the glass.

        The future raises `UsageError` if there is no such review, and `VoteRefused` if the person
        is not known to `Runtime(people=)`, has broken the glass, or has asked for the call where
        who has must not vote.

        Args:
            review_id: of `runtime.reviews()`.
            note: what is to be said of it, for the record.
            by: the person who closes it; a name is needed.

        Raises:
            UsageError: if `review_id` or `note` is no text.

        """
        checked_text(review_id, what="`review_id`")
        if note is not None:
            checked_text(note, what="close_review(note=...)", may_be_empty=True)
        author = checked_author(by, what="close_review(by=...)")
        security_log.note("act", "close_review", who=by, agent=self.id)

        async def closed() -> None:
            voter = await self._reviewer(review_id, author)
            fact = ReviewClosed(review_id=review_id, person=voter.person, by=voter.name, note=note)
            await self._ask(RecordFact(fact))

        return self.on_loop(closed)

    async def _reviewer(self, review_id: str, by: str | None) -> Voter:
        """The person of this name.

        Raises:
            PeopleUnavailable: if nobody can say now who it is.
            VoteRefused: if it is nobody, or no person.

        """
        people = self._slot.services.runs.trust.people
        why: str | None
        if by is None:
            why = "nobody is named: close_review(by=...)"
        elif people is None:
            why = "no people are known: give Runtime(people=...)"
        else:
            voter = await people.voter(self._caller_named(by))
            if voter.why_unknown:
                unknown = f"Review {review_id!r}: {voter.why_unknown}. Try again later"
                raise PeopleUnavailable(unknown)
            why = voter.why_no_person("review")
            if why is None:
                return voter
        message = f"Review {review_id!r} of agent {self.id!r}: {why}"
        raise VoteRefused(message, request_id=review_id, person=by or "")

    # --------------------------------------------------------------- Pykka's calls

    def is_alive(self) -> bool:
        """Whether the runtime has not stopped. A passive agent is alive: a message activates it."""
        return super().is_alive()

    def tell(self, message: Any) -> None:
        """`send` without an answer.

        What the future of `send` would raise is lost: where there is no agent of this id, the
        message is lost without an error.
        """
        self.send(message)

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """`run`: with `block` it waits for the outcome, else it returns the future.

        Args:
            message: the user's message.
            block: wait in this thread.
            timeout: seconds to wait; None = no limit. The run goes on after it.

        Raises:
            TimeoutError: if `timeout` passes.
            WouldDeadlock: with `block` on the runtime's event loop, or inside the agent's own run.

        """
        future = self.run(message)
        return future.get(timeout=timeout) if block else future

    def proxy(self) -> Any:
        """Refused: an agent changes by its records alone.

        Raises:
            UsageError: always. The ref has a method for everything that an agent can be asked.

        """
        raise UsageError(f"{self!r} has no proxy: use its own methods, such as run() and state()")

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """Passivate the agent, once the step in progress is recorded. Nothing is lost.

        The next message activates it, and its run continues.

        Args:
            block: wait in this thread.
            timeout: seconds to wait; None = no limit. The agent is passivated after it, too.

        Returns:
            True if it was in memory; with `block=False` the future of that.

        Raises:
            WouldDeadlock: with `block` inside the agent's own run, or on the runtime's event loop.
            TimeoutError: if `timeout` passes.

        """
        if block:
            if self._slot.key in running_agents.get():
                raise WouldDeadlock(what="stop", remedy="use stop(block=False) inside its own run")
            refuse_on_its_loop(self._slot.services.loop, "stop", "await stop(block=False)")
        future: Future[bool] = Future(self._slot.services.loop)
        is_shared = self._slot.services.calls is not None
        if self.is_alive() and (is_shared or self._slot.status is not Status.PASSIVE):
            self._slot.ask(self._asked(Passivate(), future))
        else:
            future.set(False)
        return future.get(timeout=timeout) if block else future

    def history(
        self, *, after: int = 0, limit: int = 100, before: int | None = None
    ) -> Future[HistoryPage]:
        """What happened to the agent, oldest first, from the store. The agent is not activated.

        Unlike events, the entries are complete without what came before them, are JSON-able, and
        have durations. The future raises `UnknownAgent` if there is no such agent.

        Args:
            after: the `next` of the page before; 0 for the first one.
            limit: how many entries, from 1 on. Those of one record stay together, so a page may
                have some more.
            before: the `next` of the page of later entries; for the newest page any number above
                all. The page has the entries of the last `limit` records below it, and no more than
                twice as many are read, however many there are. What began before those has no
                duration, and its run may be unknown (None).

        Raises:
            UsageError: if `after` is below 0, or `limit` or `before` below 1, or `after` is given
                beside `before`.

        """
        check_page(after, limit, before)
        slot = self._slot
        return self._from_store(lambda: slot.services.histories.page(slot.id, after, limit, before))

    def display(self, *, after: int | None = 0, limit: int | None = None) -> Future[DisplayUpdate]:
        """What happened as rows for a chat screen, from the store. The agent is not activated.

        The future raises `UnknownAgent` if there is no such agent.

        Args:
            after: the `seq` of the update before: only the rows that have changed since; 0 for all,
                and None too, which is the `seq` of an update that has live rows alone.
            limit: how many rows, from 1 on; those of one record stay together. None = all.

        Raises:
            UsageError: if `after` is below 0 or `limit` below 1.

        """
        after = 0 if after is None else after
        check_page(after, 1 if limit is None else limit)
        slot = self._slot
        return self._from_store(lambda: stored_display(slot.services.store, slot.id, after, limit))

    def display_events(self, after: int | None = 0) -> DisplaySubscription:
        """The rows that change, as they do: what a live screen follows.

        The first update has all that has changed after number `after`, each later one what has
        changed since: live text and thinking, announced calls, and what tools emit are among it.
        Iterate with `for` in a thread, or with `async for` on an event loop, as `events`.

        Args:
            after: the `seq` of the last update that you have; 0 or None for all rows.

        Raises:
            UsageError: if `after` is below 0.

        """
        after = 0 if after is None else after
        check_page(after, 1)
        self._refuse_in_fork()
        agent = self._slot.agent
        name = agent.name if agent is not None else None
        return DisplaySubscription(self._slot.subscribe(0, recorded), after, name)

    def _refuse_unusable(self) -> None:
        self._refuse_in_fork()
        if not self.is_alive():
            raise RuntimeStopped(f"{self!r}: its runtime has stopped", agent_id=self._slot.id)
        refuse_closed(self._slot.services.loop)

    def _refuse_in_fork(self) -> None:
        if self._slot.services.forks != forks.count:
            raise ForkedRuntime

    def _decide_only(self, decision: Decision, act: Callable[..., Future[T]]) -> Future[T]:
        """Decide about the only request. By its id and digest: another one may come meanwhile."""

        async def decided() -> T:
            requests = (await self.state()).requests
            given = decision_on_only(requests, decision)
            return await act(given, expect={each.id: each.digest for each in requests})

        return self.on_loop(decided)

    def _ask_deciding(self, message: Decide) -> Future[Any]:
        """Ask what the message says, once it is known who decides, where people are known."""
        trust, clock = self._slot.services.runs.trust, self._slot.services.clock
        callers = {name: self._caller_named(name) for name in _names_in(message.decisions)}
        if trust.people is None:
            return self._ask(message)

        async def asked() -> Any:
            now = clock.now()
            voters = {name: await trust.voter(caller, now) for name, caller in callers.items()}
            return await self._ask(replace(message, voters=voters))

        return self.on_loop(asked)

    @property
    def _login(self) -> Login | None:
        """What is kept of who calls, where a name does not say it all."""
        return None if self._caller is None else self._caller.login

    def _by(self, author: str | None) -> By | None:
        """What is kept of this author: all that is known of the login, if it is theirs."""
        login = self._login
        return login if login is not None and author == login.shown else author

    def _caller_for(self, name: str) -> Caller:
        """Who asks under this name: the login, if it is theirs."""
        caller = self._caller
        return caller if caller is not None and caller.shown == name else Caller(name=name)

    def _caller_named(self, name: str) -> Caller:
        """Who decides under this name.

        Raises:
            UsageError: if a login decides under the name of another one.

        """
        caller = self._caller
        if caller is None:
            return Caller(name=name)
        if name != caller.shown:
            raise UsageError(f"{caller.shown!r} is logged in, and {name!r} cannot decide by that")
        return caller

    def _from_store(self, read: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        self._refuse_unusable()
        slot = self._slot
        future: Future[T] = Future(slot.services.loop)
        slot.services.loop.call_soon_threadsafe(lambda: answer_with(slot, future, read))
        return future

    def _ask(self, message: AgentMessage) -> Future[Any]:
        """Ask the agent what the message says; the future gets the answer."""
        call = self._asked(message, Future(self._slot.services.loop))
        self._slot.ask(call)
        return call.future

    def _look(self, message: Query | WaitOutcome) -> Future[Any]:
        """The same of a look, which activates no agent."""
        call = self._asked(message, Future(self._slot.services.loop))
        self._slot.put(call)
        return call.future

    def _asked(self, message: AgentMessage, future: Future[Any]) -> AgentCall:
        self._refuse_unusable()
        return AgentCall(message, future, self._expectation)


def of_login(ref: AgentRef[OutputT_co], caller: Caller) -> AgentRef[OutputT_co]:
    """The ref for calls of somebody who is logged in.

    For servers alone: the names in decisions must be those of logins, and never a client's own.
    """
    found = copy(ref)
    found._caller = caller  # a name of no other module: host code has no way to say it
    return found


def _names_in(decisions: object) -> Iterator[str]:
    """The names of those who decide."""
    for each in decisions.values() if isinstance(decisions, Mapping) else ():
        name = each.by if isinstance(each, Decision) else None
        name = each.get("by") if isinstance(each, Mapping) else name
        if isinstance(name, str):
            yield name


def _queue_of(state: AgentState) -> list[QueuedMessage]:
    return list(state.queue.values())


def _decisions_of(state: AgentState) -> list[DecisionRecord]:
    made = (record for inner in state.tree for record in inner.decisions)
    return sorted(made, key=lambda record: record.at)


def _checked_run_id(given: object) -> str | None:
    return None if given is None else checked_text(given, what="`run_id`")
