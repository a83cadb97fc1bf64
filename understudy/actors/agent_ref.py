"""`AgentRef`: the reference through which an agent is called. It addresses an id, not an actor."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
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
from understudy.approvals import Caller, Voter, caller_deciding, caller_named
from understudy.display import DisplayUpdate
from understudy.errors import (
    ForkedRuntime,
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
    """The address of an agent. Most calls return a `Future`: `.get()` it or `await` it.

    The ref stays valid while the agent is passive, and when its actor is restarted. The next call
    activates the agent.
    """

    _expectation: Expectation | None = None
    _caller: Caller | None = None
    """The logged-in caller; None where code of the host application calls."""
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
        """The agent's id as a URN. It does not change."""
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
        """The id of the agent."""
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
        """Run the agent on a message; the future resolves to the outcome of the run.

        While another run is open, the new run is queued, also if the tools of the other run sleep
        or wait. A queued run is recorded. It begins even after a crash, and after a run that failed
        or was cancelled. The future stays open until the run ends or asks a person.

        `future.message_id` is set at once. If you lose the future, for example in a crash, call
        `outcome(message_id=...)`. Do not send the message again.

        Args:
            input: the user's message.
            until_tool: end the run as soon as this tool has a result.
            until_tool_success: end the run as soon as this tool has a result that is not an
                error.
            force: make the model call the until tool, and no other tool, in each of its
                replies.
            max_runs: the maximum number of model calls in this run; the agent's own by default.
            deadline: seconds after which the run is stopped. The time for which the run waits
                does not count.
            early_stopping_prompt: the user message that asks for the last answer at a limit;
                the agent's own by default.
            ends_at: the time, with a time zone, at which the run is stopped, even while it
                waits for a person or the agent is passive. A run that still waits its turn then
                is stopped at its turn, without a model call. A time in the past stops the run
                at once.
            message_id: the caller's id of this message. A message with an id that was used
                before is not run again: its future resolves to the outcome of the first
                message.
            if_interrupted: what to do if requests of an earlier run are pending. `"withdraw"`
                withdraws them, and ends that run unless it also waits. `"error"` refuses the
                new run: its future raises `NotInterrupted`.
            go_on: continue the run before this one if it failed, as `retry` does, with this
                message and these options. The future may then raise what the future of `retry`
                raises. If the run before did not fail, this option has no effect.
            by: the person who sends the message, for the record.

        Raises:
            UsageError: if an argument is wrong.
            WouldDeadlock: inside this agent's own run, which would wait for itself. Use `send`
                there.

        """
        slot = self._slot
        if slot.key in running_agents.get():
            raise WouldDeadlock(what="run", remedy=f"use send() from inside agent {slot.id!r}")
        if if_interrupted not in ("withdraw", "error"):
            raise UsageError(
                f"`if_interrupted` must be 'withdraw' or 'error', got {if_interrupted!r}"
            )
        checked_flag(go_on, what="run(go_on=...)")
        who = self._signed("run", by)
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
            by=who,
        )
        self._ask(RunRequest(queued, if_interrupted == "error", running_agents.get()), future)
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

        When the current run ends, one run begins with all messages of the queue. After a run that
        failed or was cancelled, the messages wait for the next message or `run`. A tool may send to
        its own agent; at most 10 runs in a row begin in this way (`SelfRunsBounded`).

        Args:
            input: the user's message.
            at: the time, with a time zone, at which the message is queued. A time in the past
                means now. Until then the agent may be passive, and `cancel_message` takes the
                message back. If an earlier run waits for a person at that time, the message
                waits too; it withdraws no request.
            steer: add the message to the current run, before its next model call.
            message_id: the caller's id of this message; a new id by default. A message with an
                id that was used before is not queued again: its future resolves to the same id.
            by: the person who sends the message, for the record.

        Raises:
            UsageError: if the message is empty, `message_id` is not text, `steer` is not a
                bool, or `at` is not a time with a time zone. The future raises it if 1,000
                messages already wait for their times.

        """
        if message_id is not None:
            check_message_id(message_id, is_new=True)
        checked_flag(steer, what="send(steer=...)")
        who = self._signed("send", by)
        due = None if at is None else checked_time(at, what="send(at=...)")
        slot = self._slot
        queued = MessageQueued(
            message_id=message_id or slot.services.new_id(),
            message=user_message(input, at=slot.services.clock.now()),
            steer=steer,
            self_sent=slot.key in running_agents.get(),
            due=due,
            context={**slot.services.codecs.capture()},
            by=who,
        )
        return self._ask(Send(queued))

    def cancel_message(self, message_id: str, *, by: str | None = None) -> Future[bool]:
        """Cancel a message that no run has taken yet, whether it has a time or not.

        The message may also be a queued `run()`; the future of that run raises `UnknownMessage`.
        The future resolves to True if the message was cancelled, and to False if a run has taken it
        or there is no such message. A cancelled id may be used again.

        Args:
            message_id: the id of the message.
            by: the person who cancels it, for the record.

        Raises:
            UsageError: if `message_id` is not text, or `by` is not a name.

        """
        check_message_id(message_id)
        return self._ask(CancelMessage(message_id, self._signed("cancel_message", by)))

    def queue(self) -> Future[list[QueuedMessage]]:
        """Return the messages that wait for a run, in the order in which they came.

        A message that steers is for the run that is open. The others are taken in this order, but
        an occurrence of a schedule goes before the messages that were sent just before it, and has
        a run of its own. Messages whose time has not come are not included; `state().plans.timed`
        has them. A queued `run` has `choices`; a message that was sent has none.
        """
        return self._ask(Query(lambda state: list(state.queue.values())))

    def resume(
        self,
        decisions: GivenDecisions,
        *,
        expect: Mapping[str, str] | None = None,
    ) -> Future[OutcomeOf[OutputT_co]]:
        """Answer requests and continue the run; the future resolves to its outcome.

        The future raises `DecisionError` if a request is unknown or withdrawn, or if a decision
        does not fit its request. It raises `NotInterrupted` if the request already has another
        answer.

        Args:
            decisions: the decisions by request id, or by request. You need not answer all
                requests; the others stay pending. A single decision, such as `approve()`, is
                enough if exactly one request is pending.
            expect: by request id, the `digest` of what the person was shown. If a request now
                has another digest, the future raises `RequestChanged`, and no decision is
                taken.

        Raises:
            DecisionError: inside a tool, a hook or a model. Decisions must come from the
                application. This check stops accidents, not code that means to decide.
            UsageError: if `expect` is not a mapping to text, or names a request without a
                decision.

        """
        return self._decided(Resume, decisions, expect)

    def decide(
        self,
        decisions: GivenDecisions,
        *,
        expect: Mapping[str, str] | None = None,
    ) -> Future[None]:
        """Answer requests as `resume` does; the future settles once the decisions are recorded.

        Use it for a web page, which does not wait for the run. The future raises the errors of
        `resume`. It also raises `NotInterrupted` for a run in quarantine.

        Raises:
            DecisionError: as `resume`.
            UsageError: as `resume`.

        """
        return self._decided(Decide, decisions, expect)

    @overload
    def extract(
        self,
        tool: Callable[..., Coroutine[Any, Any, ToolResult[T]] | ToolResult[T]],
        input: UserInput,
        **options: Unpack[RefExtractOptions],
    ) -> RunFuture[T]: ...
    @overload
    def extract(
        self,
        tool: Callable[..., Coroutine[Any, Any, T]],
        input: UserInput,
        **options: Unpack[RefExtractOptions],
    ) -> RunFuture[T]: ...
    @overload
    def extract(
        self, tool: Callable[..., T], input: UserInput, **options: Unpack[RefExtractOptions]
    ) -> RunFuture[T]: ...
    @overload
    def extract(
        self,
        tool: str | Sequence[str | Callable[..., Any]],
        input: UserInput,
        **options: Unpack[RefExtractOptions],
    ) -> RunFuture[Any]: ...
    def extract(
        self, tool: UntilTool, input: UserInput, **options: Unpack[RefExtractOptions]
    ) -> RunFuture[Any]:
        """Run until `tool`, or one of several tools, succeeds; the future resolves to its result.

        It takes the options of `run` except `until_tool` and `until_tool_success`, and its future
        has a `message_id`, too. The future raises `NotExtracted` if the run ends in another way;
        the run's own error is its cause.
        """
        refuse_until(tool, options)
        run = self.run(input, until_tool_success=tool, **options)

        async def extracted() -> Any:
            return value_of(tool, await run)

        future: RunFuture[Any] = run.beside()
        self.on_loop(extracted, future)
        return future

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

        The future resolves to the outcome of the run, or to None without a run. Finished calls are
        kept. A running call with effects becomes in doubt. A call that was not started is marked as
        not run. Async code that ignores the cancellation is abandoned after the `cancel_timeout` of
        the runtime.

        Args:
            message: the reason; the message of the run's stop signal.
            context: more facts about the reason, JSON-able; kept in the signal.
            run_id: cancel only this run. If it is the last run and has ended, the future
                resolves to its outcome. If another run is open or came later, the future raises
                `OtherRun`, and nothing is done. An outcome, a state and an entry of the history
                have the id of their run.
            by: the person who cancels the run; the `by` of the signal's context.

        Raises:
            UsageError: if the message is not text, or the context cannot be stored.

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

        If no run is open, the next run is paused. The pause is recorded, so it holds after a
        restart too.

        Args:
            reason: why the run is paused.
            run_id: pause only this run. If it is not the open run, the future raises
                `OtherRun`.
            by: the person who asks for the pause, for the record.

        Raises:
            UsageError: if `reason` is empty, not text, or not valid Unicode.

        """
        checked_text(reason, what="`reason`")
        return self._ask(Pause(_checked_run_id(run_id), self._signed("pause", by), reason))

    def unpause(self, *, run_id: str | None = None, by: str | None = None) -> Future[None]:
        """Continue a paused run where it stopped.

        Args:
            run_id: continue only this run. If it is not the open run, the future raises
                `OtherRun`.
            by: the person who asks for it, for the record.

        """
        return self._ask(Unpause(_checked_run_id(run_id), by=self._signed("unpause", by)))

    def retry(
        self, *, run_id: str | None = None, by: str | None = None
    ) -> Future[OutcomeOf[OutputT_co]]:
        """Continue the last run where it failed, in a new run; the future resolves to its outcome.

        Everything that the failed run has finished is kept: agents of a workflow that have ended,
        results of tools, replies of models. A call that was started and has no result is in doubt,
        as after a crash, unless it is idempotent or read-only. The new run has the options of the
        failed run. Its limits count from zero, and its hooks run. A run in quarantine is released
        and continues itself.

        The future raises `NotInterrupted` if the last run did not fail and no run is in quarantine;
        `NoProgress` if five retries in a row got no further; and `OtherWorkflow` if the workflow
        has other agents now.

        Args:
            run_id: retry only this run. If it was retried or released before, the future
                resolves to the outcome of that retry. If it is neither the open run nor the
                last run, and was not retried, the future raises `OtherRun`.
            by: the person who asks for the retry, for the record.

        """
        return self._ask(Retry(_checked_run_id(run_id), by=self._signed("retry", by)))

    def outcome(self, *, message_id: str | None = None) -> Future[OutcomeOf[OutputT_co] | None]:
        """Return the outcome of the current run, or of the last run; None if there was no run.

        Use it if your code did not start the run: after `runtime.recover()`, or after `send`. It
        waits while the run continues, on any host. It activates the agent only to continue a run
        without an owner. Otherwise it answers from the store. It needs the agent's definition, to
        turn the text into a value of the `output_type`.

        Args:
            message_id: return the outcome of the run that took this message, even if later runs
                followed. The call waits while the message is in the queue.

        Raises:
            UsageError: if `message_id` is not text. The future raises it if the definition is
                not known here, the message waits for its time, or the records of its run are
                compacted away. It raises `UnknownMessage` if there is no such message.

        """
        if message_id is not None:
            check_message_id(message_id)
        return self._ask(WaitOutcome(message_id, is_look=True))

    def notify(self, middleware: str, message: Any) -> Future[None]:
        """Pass a message to a middleware of the agent, also during a run.

        Its hook `on_message` is called. The values that the hook returns are merged into the values
        of the agent. The future settles when they are recorded.

        Args:
            middleware: the name of the middleware; by default the name of its class.
            message: any object. It is not recorded. If another host owns the agent, the message
                must be JSON, because it is posted to that host.

        """
        return self._ask(Notify(middleware, message))

    def compact(self, *, by: str | None = None) -> Future[None]:
        """Replace the agent's records by a snapshot of its state, so that the agent loads fast.

        Earlier events cannot be read afterwards: `events(after=0)` begins with a `Gap`. The call
        waits until no run is open.

        Args:
            by: the person who asks for it, for the record.

        """
        author = checked_author(by, what="compact(by=...)")
        security_log.note("act", "compact", who=author, agent=self.id)
        guard, id = self._slot.services.runs.trust.guard, self.id
        if guard is None:
            return self._ask(Compact(author))
        caller = None if author is None else caller_named(author, self._caller)

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
        """Change files of the agent, also during a run. `Workspace.of(ref)` uses this call.

        The future settles when the change is recorded. If a path does not match `expected`, the
        future raises `UsageError` and nothing is changed.

        Args:
            changes: the new file by path.
            blobs: the bytes to keep of these files, as `understudy.state.blobs.pack` returns
                them.
            expected: by path, the file that must be there now.

        """
        fact = FilesChanged(files=tuple(changes))
        return self._ask(ChangeFiles(fact, dict(blobs), {**(expected or {})}))

    # --------------------------------------------------------------------- looking

    def load_blobs(self, hashes: Sequence[str]) -> Future[dict[str, bytes]]:
        """Return the bytes that the store keeps of the agent's files under these hashes.

        Hashes that the store does not have are left out. Bytes that no file uses are removed by the
        next compaction. The call works on any host and does not activate the agent.
        `Workspace.of(ref)` uses it.

        Raises:
            UsageError: if a value is not a hash.

        """
        slot, wanted = self._slot, checked_hashes(hashes)
        return self.on_loop(lambda: slot.services.store.load_blobs(slot.id, wanted)).map(dict)

    def on_loop(
        self, work: Callable[[], Coroutine[Any, Any, T]], future: Future[T] | None = None
    ) -> Future[T]:
        """Run `work` on the loop of the runtime; the future, a new or the given one, gets its
        result or its error.
        """
        self._refuse_unusable()
        slot = self._slot
        settled: Future[T] = Future(slot.services.loop) if future is None else future
        slot.services.loop.call_soon_threadsafe(lambda: answer_with(slot, settled, work))
        return settled

    def status(self) -> Status:
        """Return the agent's status in this runtime, now; `PASSIVE` if it is not in memory here.

        The call never waits, and does not activate the agent. `info()` returns the recorded status,
        on any host.
        """
        self._refuse_in_fork()
        return self._slot.status

    def subscribers(self) -> int:
        """Return the number of open subscriptions to the agent's events in this runtime.

        Subscriptions of `display_events` count too. The call never waits, and does not activate the
        agent.
        """
        self._refuse_in_fork()
        return self._slot.log.count()

    def info(self) -> Future[AgentInfo]:
        """Return the agent as `runtime.agents()` lists it: its recorded status and its owner.

        The data comes from the store's index, on any host. The agent is not activated. The future
        raises `UnknownAgent` if there is no such agent.
        """
        slot = self._slot
        return self.on_loop(lambda: slot.services.looks.info(slot))

    def state(self) -> Future[AgentState]:
        """Return a copy of the agent's state, on any host. The agent is not activated."""
        return self._ask(Query(AgentState.copied))

    def decisions(self) -> Future[list[DecisionRecord]]:
        """Return the audit: every decision that was recorded, oldest first.

        Works on any host. The agent is not activated.
        """
        return self._ask(Query(_decisions_of))

    def events(self, after: int | str = 0) -> Subscription:
        """Return the recorded events after `after`, then the live events.

        Iterate with `for` in a thread, or with `async for` on an event loop. The iteration ends
        when the runtime stops. Call `close()` on the subscription to end it earlier.

        Args:
            after: the `position` of the last event that you have. Or the number of a record, if
                you have all its events.

        Raises:
            UsageError: if `after` is neither a position nor a number from 0 up.

        """
        self._refuse_in_fork()
        return self._slot.subscribe(after)

    def revoke(self, grant_id: str, *, by: str | None = None) -> Future[None]:
        """Revoke a grant, so that persons are asked again. A grant is a decision for later calls.

        A call that the grant let through does not run if its body has not been entered yet. The
        future raises `UsageError` if there is no such grant.

        Args:
            grant_id: the id of the grant; `state.grants` lists the grants.
            by: the person who revokes it, for the record.

        Raises:
            UsageError: if `grant_id` is not text.

        """
        checked_text(grant_id, what="revoke(grant_id)")
        revoked = Revoked(grant_id=grant_id, by=self._signed("revoke", by))
        security_log.note("act", "revoke", who=by, agent=self.id)
        return self._ask(RecordFact(revoked))

    def settle(
        self, call_key: str, *, how: str, happened: bool = True, by: str | None = None
    ) -> Future[None]:
        """Settle the doubt about a call: say what the call did.

        A call that waits for its check continues: the model gets the text of `how`, and the check
        is not called again. The future raises `UsageError` if there is no such doubt. It raises
        `VoteRefused` if the approval of the call has `never=["requester"]`, and the person is a
        requester, not known or not named.

        Args:
            call_key: the key of the call in doubt; `state.doubts_in_tree` lists the doubts.
            how: what was found out, for the record.
            happened: whether the call took effect, or may have. It decides about calls with the
                same key (`@tool(key=)`): if True, the call counts as done for them; if False,
                the call does not count.
            by: the person who found it out, for the record.

        Raises:
            UsageError: if `how` is not text, or not valid Unicode.

        """
        checked_text(how, what="`how`", may_be_empty=True)
        checked_flag(happened, what="`happened`")
        author = checked_author(by, what="settle(by=...)")
        fact = Settled(call_key=call_key, how=how, happened=happened, by=self._by(author))
        trust, clock = self._slot.services.runs.trust, self._slot.services.clock
        if trust.people is None or author is None:
            return self._ask(RecordFact(fact))
        caller = caller_deciding(author, self._caller)

        async def settled() -> None:
            about = f"The doubt about {call_key!r}"
            voter = await trust.known_voter(caller, clock.now(), about)
            await self._ask(RecordFact(fact, voter=voter))

        return self.on_loop(settled)

    def close_review(
        self, review_id: str, *, note: str | None = None, by: str | None = None
    ) -> Future[None]:
        """Close the review of a call that a person let run alone by breaking the glass.

        The future raises `UsageError` if there is no such review. It raises `VoteRefused` if the
        person is not known to `Runtime(people=)`, broke the glass themselves, or asked for the call
        while requesters must not vote.

        Args:
            review_id: the id, from `runtime.reviews()`.
            note: the comment of the reviewer, for the record.
            by: the person who closes the review. A name is required.

        Raises:
            UsageError: if `review_id` or `note` is not text.

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
        """The person with this name, who closes a review.

        Raises:
            PeopleUnavailable: if nobody can say now who it is.
            VoteRefused: if it is nobody, or no person.

        """
        trust, clock = self._slot.services.runs.trust, self._slot.services.clock
        why: str | None
        if by is None:
            why = "nobody is named: close_review(by=...)"
        elif trust.people is None:
            why = "no people are known: give Runtime(people=...)"
        else:
            caller, about = caller_deciding(by, self._caller), f"Review {review_id!r}"
            voter = await trust.known_voter(caller, clock.now(), about)
            why = voter.why_no_person("review")
            if why is None:
                return voter
        message = f"Review {review_id!r} of agent {self.id!r}: {why}"
        raise VoteRefused(message, request_id=review_id, person=by or "")

    # --------------------------------------------------------------- Pykka's calls

    def is_alive(self) -> bool:
        """Return True until the runtime stops. A passive agent is alive: a message activates it."""
        return super().is_alive()

    def tell(self, message: Any) -> None:
        """Send a message as `send` does, without an answer.

        Errors are lost. If there is no agent of this id, the message is lost without an error.
        """
        self.send(message)

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Run the agent as `run` does, and wait for the outcome; without `block`, return the
        future.

        Args:
            message: the user's message.
            block: wait in this thread.
            timeout: seconds to wait; None = no limit. The run continues after the timeout.

        Raises:
            TimeoutError: if `timeout` passes.
            WouldDeadlock: with `block` on the runtime's event loop, or inside the agent's own
                run.

        """
        future = self.run(message)
        return future.get(timeout=timeout) if block else future

    def proxy(self) -> Any:
        """Refuse a proxy: an agent changes only through its records.

        Raises:
            UsageError: always. Use the methods of the ref.

        """
        raise UsageError(f"{self!r} has no proxy: use its own methods, such as run() and state()")

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """Passivate the agent once the step in progress is recorded. Nothing is lost.

        The next message activates the agent, and its run continues.

        Args:
            block: wait in this thread.
            timeout: seconds to wait; None = no limit. The agent is passivated even after the
                timeout.

        Returns:
            True if the agent was in memory. With `block=False`, a future of this value.

        Raises:
            WouldDeadlock: with `block` inside the agent's own run, or on the runtime's event
                loop.
            TimeoutError: if `timeout` passes.

        """
        if block:
            if self._slot.key in running_agents.get():
                raise WouldDeadlock(what="stop", remedy="use stop(block=False) inside its own run")
            refuse_on_its_loop(self._slot.services.loop, "stop", "await stop(block=False)")
        future: Future[bool] = Future(self._slot.services.loop)
        is_shared = self._slot.services.calls is not None
        if self.is_alive() and (is_shared or self._slot.status is not Status.PASSIVE):
            self._ask(Passivate(), future)
        else:
            future.set(False)
        return future.get(timeout=timeout) if block else future

    def history(
        self, *, after: int = 0, limit: int = 100, before: int | None = None
    ) -> Future[HistoryPage]:
        """Return what happened to the agent, oldest first, from the store.

        The agent is not activated. Each entry is complete in itself, is JSON-able and has a
        duration, unlike an event. The future raises `UnknownAgent` if there is no such agent.

        Args:
            after: the `next` of the page before; 0 for the first page.
            limit: the number of entries, from 1 up. Entries of one record stay together, so a
                page may have a few more.
            before: the `next` of the page of later entries. For the newest page, use any number
                above all. The page has the entries of the last `limit` records below it; at
                most twice as many records are read. Something that began before these records
                has no duration, and its run may be unknown (None).

        Raises:
            UsageError: if `after` is below 0, if `limit` or `before` is below 1, or if both
                `after` and `before` are given.

        """
        check_page(after, limit, before)
        slot = self._slot
        return self.on_loop(lambda: slot.services.histories.page(slot.id, after, limit, before))

    def display(self, *, after: int | None = 0, limit: int | None = None) -> Future[DisplayUpdate]:
        """Return what happened as rows for a chat screen, from the store.

        The agent is not activated. The future raises `UnknownAgent` if there is no such agent.

        Args:
            after: the `seq` of the last update: only rows that changed later are returned. 0 or
                None for all rows; an update with live rows alone has the `seq` None.
            limit: the number of rows, from 1 up; rows of one record stay together. None = all
                rows.

        Raises:
            UsageError: if `after` is below 0 or `limit` below 1.

        """
        after = 0 if after is None else after
        check_page(after, 1 if limit is None else limit)
        slot = self._slot
        return self.on_loop(lambda: stored_display(slot.services.store, slot.id, after, limit))

    def display_events(self, after: int | None = 0) -> DisplaySubscription:
        """Return the rows that change, as they change, for a live screen.

        The first update has everything that changed after number `after`. Each later update has the
        changes since the last update, with live text and thinking, announced calls, and what tools
        emit. Iterate with `for` in a thread, or with `async for` on an event loop.

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
        """Decide about the agent's only request, by id and digest: another may come meanwhile."""

        async def decided() -> T:
            requests = (await self.state()).requests
            given = decision_on_only(requests, decision)
            return await act(given, expect={each.id: each.digest for each in requests})

        return self.on_loop(decided)

    def _decided(
        self, kind: type[Decide], decisions: GivenDecisions, expect: Mapping[str, str] | None
    ) -> Future[Any]:
        """Ask the agent with these decisions, with the persons who decide if people are known."""
        refuse_inside_run()
        if isinstance(decisions, Decision):
            return self._decide_only(decisions, partial(self._decided, kind))
        given = decisions_by_id(decisions)
        services = self._slot.services
        message = kind(
            given, checked_expect(expect, given), services.codecs.capture(), login=self._login
        )
        callers = {name: caller_deciding(name, self._caller) for name in _names_in(given)}
        trust = services.runs.trust
        if trust.people is None:
            return self._ask(message)

        async def asked() -> Any:
            now = services.clock.now()
            voters = {name: await trust.voter(caller, now) for name, caller in callers.items()}
            return await self._ask(replace(message, voters=voters))

        return self.on_loop(asked)

    @property
    def _login(self) -> Login | None:
        """The login to record for what the caller does; None if a name says it all."""
        return None if self._caller is None else self._caller.login

    def _signed(self, verb: str, by: str | None) -> By | None:
        """The author to record for a call of this verb, after a check of the name."""
        return self._by(checked_author(by, what=f"{verb}(by=...)"))

    def _by(self, author: str | None) -> By | None:
        """The author as it is kept: the whole login, if the login is this author's."""
        login = self._login
        return login if login is not None and author == login.shown else author

    def _ask(self, message: AgentMessage, future: Future[Any] | None = None) -> Future[Any]:
        """Ask the agent what the message says; a new or the given future gets the answer.

        A look activates no agent.
        """
        self._refuse_unusable()
        slot = self._slot
        call = AgentCall(message, future or Future(slot.services.loop), self._expectation)
        if isinstance(message, Query | WaitOutcome):
            slot.put(call)
        else:
            slot.ask(call)
        return call.future


def of_login(ref: AgentRef[OutputT_co], caller: Caller) -> AgentRef[OutputT_co]:
    """A copy of the ref whose calls are those of a logged-in caller.

    For servers alone: the names in decisions must be those of logins, and never a client's own.
    """
    found = copy(ref)
    found._caller = caller  # a name of no other module: host code has no way to say it
    return found


def _names_in(decisions: object) -> Iterator[str]:
    """The names of the persons in decisions."""
    for each in decisions.values() if isinstance(decisions, Mapping) else ():
        name = each.by if isinstance(each, Decision) else None
        name = each.get("by") if isinstance(each, Mapping) else name
        if isinstance(name, str):
            yield name


def _decisions_of(state: AgentState) -> list[DecisionRecord]:
    made = (record for inner in state.tree for record in inner.decisions)
    return sorted(made, key=lambda record: record.at)


def _checked_run_id(given: object) -> str | None:
    return None if given is None else checked_text(given, what="`run_id`")
