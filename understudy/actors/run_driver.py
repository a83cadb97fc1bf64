"""`RunDriver`: starts and continues an agent's runs, and decides what follows when one ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic_ai.messages import ModelRequest, UserPromptPart

from understudy._base.causes import cause_of
from understudy._base.context_codecs import Context
from understudy._base.log_fields import about
from understudy.actors.activation import Activation, QueuedRun
from understudy.actors.agent_events import Status
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.messages import (
    AgentKey,
    AgentMessage,
    AnswerWait,
    Cancel,
    Decide,
    Expecting,
    OnRun,
    Resume,
    Retry,
    RunRequest,
    Send,
    WaitOutcome,
)
from understudy.actors.phase import Phase
from understudy.actors.plans import RECORD_BYTES, Plans
from understudy.actors.replies import (
    answer_when_durable,
    answer_with,
    as_exception,
    confirm,
    is_refused,
    mirror,
    status_after,
)
from understudy.actors.run_outcomes import earlier_outcome, quarantine_outcome, run_of_message
from understudy.actors.run_task import start_run_task
from understudy.agent.runner import RunOptions, decide, unpause, withdraw_requests
from understudy.errors import (
    JournalFailed,
    NotInterrupted,
    OtherRun,
    RecordRefused,
    UnderstudyError,
    UnknownAgent,
    UnknownMessage,
    UsageError,
)
from understudy.journal import has_next_run, is_busy, is_waiting, rest_status
from understudy.loop_actors.future import Future, refuse
from understudy.outcomes import Completed, Interrupted, Outcome, Paused, Waiting
from understudy.run.answers import record_answer
from understudy.run.dues import record_dues
from understudy.state.dues import due_of_plans
from understudy.state.plans import (
    Occurrence,
    QueuedMessage,
    next_occurrence,
    requested_pause,
)
from understudy.state.records import (
    CancelRequested,
    MessageCancelled,
    MessageQueued,
    PauseRequested,
    Quarantined,
    Released,
)
from understudy.state.run_state import RunState
from understudy.state.waits import has_waits, is_woken
from understudy.stopping import StopSignal

logger: logging.Logger = logging.getLogger(__name__)

MAX_SELF_STARTED_RUNS = 10
"""How many runs in a row an agent may start by messages to itself."""
MAX_ATTEMPTS_WITHOUT_PROGRESS = 3
"""How often a run may be cut off without getting further; then it is quarantined."""
MAX_LOST_ATTEMPTS = 10
"""How often, where lost leases count as well: a run may be what its hosts lose them by."""


class RunCrashed(UnderstudyError):
    """A run task crashed, so its actor does: the supervisor starts another, which continues."""

    agent_id: str

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"the run of agent {agent_id!r} crashed", agent_id=agent_id)


class RunDriver:
    """The runs of one agent that is in memory. Called by its actor, on the loop.

    Every method may raise a `JournalFailed`: then the actor passivates the agent.
    """

    __slots__ = ("_slot",)

    def __init__(self, slot: AgentSlot) -> None:
        self._slot = slot

    @property
    def _plans(self) -> Plans:
        services = self._slot.services
        return Plans(self._activation.ledger, services.clock, services.new_id)

    @property
    def _activation(self) -> Activation:
        return self._slot.current

    @property
    def _last_run(self) -> str | None:
        run = self._activation.state.run
        return None if run is None else run.run_id

    @property
    def _open_run(self) -> RunState | None:
        """The run that is not over, if there is one."""
        run = self._activation.state.run
        return run if run is not None and not run.over else None

    # ------------------------------------------------------------------ what callers ask for

    def request(self, request: RunRequest) -> None:
        """Start a run, queue it behind others, or wait for the one that its message id names."""
        slot, activation = self._slot, self._activation
        options = request.options or request.choices.options_for(activation.agent)
        message_id = request.message_id
        if message_id in activation.state.message_ids:
            # What the first future brought may be old by now: the run has gone on
            # (test_a_message_id_sent_again_brings_the_outcome_of_its_run_as_it_stands_now).
            self._wait_for_run_of(message_id, request, options)
            return
        first = None
        if message_id is not None:
            first = (activation.runs_by_message_id or {}).get(message_id)
        if first is not None and not is_refused(first):
            mirror(slot, first, request.future)  # it is not recorded before its run begins
            return
        if self._answer_if_quarantined(request.future):
            return
        is_suspended = self._open_run is not None and not slot.phase.has_run_task
        is_kept = is_suspended and self._keeps_run
        asks = is_suspended and (not is_kept or bool(activation.state.requests))
        if asks and request.refuse_if_interrupted:
            raise NotInterrupted(
                f"Agent {slot.id!r} waits for a person: answer its requests first, or leave "
                "if_interrupted='withdraw'"
            )
        activation.self_started_runs = 0
        if message_id is not None:
            known = activation.runs_by_message_id or {}
            activation.runs_by_message_id = {**known, message_id: request.future}
        if is_suspended and not is_kept:
            self.request_pause(None)  # it was for the run that this one withdraws
        activation.queue_run(request, options)
        if is_kept:
            self._withdraw_requests()
        else:
            self.start_next()

    def _wait_for_run_of(self, message_id: str, request: RunRequest, options: RunOptions) -> None:
        """The message was accepted before: its run answers this request, too."""
        activation = self._activation
        run_id = run_of_message(self._slot.id, activation.state, message_id)
        if run_id is not None:
            self.wait_outcome(WaitOutcome(request.future, run_id=run_id))
        elif not self._answer_if_quarantined(request.future):  # still in the queue
            activation.queue_run(replace(request, message=None), options)
            self.start_next()

    def _answer_earlier(self, future: Future[Any], run_id: str) -> None:
        """Answer with the outcome of a run that others came after."""
        slot, activation = self._slot, self._activation

        async def outcome() -> Outcome:
            await confirm(slot, activation)
            store, owned = slot.services.store, activation.journal.owned
            return await earlier_outcome(
                store, slot.id, activation.agent, run_id, owned.incarnation
            )

        answer_with(slot, future, outcome)

    def wait_outcome(self, waiting: WaitOutcome) -> None:
        """Answer with the outcome of the current run, or of the last one; None without any.

        Or with that of the run, or of the run of the message, that is named.

        Raises:
            UnknownAgent: if another agent had the run, which is deleted.
            UnknownMessage: if there is no such message.
            UsageError: if it waits for its time.

        """
        if not self._is_for_current_run(waiting):
            return
        future = waiting.future
        activation, phase = self._activation, self._slot.phase
        runner, state = activation.agent.runner, activation.state
        has_run_task, has_queued = phase.has_run_task, bool(activation.queued_runs)
        if waiting.run_id is not None or waiting.message_id is not None:
            # The run that is meant is recorded: it is not one that begins, or is to begin
            # (test_a_message_id_sent_again_while_the_next_run_begins_brings_its_own_outcome).
            has_run_task, has_queued = phase is Phase.RUNNING, False
        if self._open_run is None and not has_run_task and not has_queued:
            ended = runner.ended(state) if state.run is not None else None
            answer_when_durable(self._slot, future, ended)
            return
        if self._answer_if_quarantined(future):
            return
        suspended = None if has_run_task else runner.suspended_outcome(state)
        if suspended is not None:
            answer_when_durable(self._slot, future, suspended)
            return
        activation.outcome_futures += (future,)
        if not phase.has_run_task and not is_waiting(state):
            self.continue_run()

    def _is_for_current_run(self, waiting: WaitOutcome) -> bool:
        """Whether the current or last run is meant; if not, the waiter is seen to."""
        activation, slot = self._activation, self._slot
        state, run_id, message_id = activation.state, waiting.run_id, waiting.message_id
        if waiting.incarnation not in (None, activation.journal.owned.incarnation):
            raise UnknownAgent(agent_id=slot.id)  # another one has its id by now
        if message_id is not None:
            asked = (activation.runs_by_message_id or {}).get(message_id)
            if message_id not in state.message_ids and asked is not None and not is_refused(asked):
                mirror(slot, asked, waiting.future)  # it is not recorded before its run begins
                return False
            run_id = run_of_message(slot.id, state, message_id)
            if run_id is None:
                activation.message_waits += (waiting,)
                return False
        if run_id is not None and (state.run is None or state.run.run_id != run_id):
            self._answer_earlier(waiting.future, run_id)
            return False
        return True

    def answer_message_waits(self, outcome: Outcome | None = None) -> None:
        """Answer who waits for the run of a message that is in the queue no longer.

        Args:
            outcome: of the run that has just ended, or come to rest.

        """
        activation = self._activation
        if not activation.message_waits:
            return
        waits, activation.message_waits = activation.message_waits, ()
        for waiting in waits:
            assert waiting.message_id is not None, "else it waits for the current run"
            run_id = activation.state.message_ids.get(waiting.message_id, "")
            if outcome is not None and run_id == outcome.run_id:
                waiting.future.set(outcome)
            elif run_id == "":
                error = UnknownMessage(agent_id=self._slot.id, message_id=waiting.message_id)
                refuse(waiting.future, error)
            elif run_id is None or outcome is None:
                activation.message_waits += (waiting,)
            else:
                self._answer_earlier(waiting.future, run_id)

    def accept(self, posted: AgentMessage, accepted: Future[Any]) -> None:
        """Tell the host that has posted a message that it is handled, when that is durable.

        It is told the run for whose outcome its caller waits. A run that waits for its turn is not
        recorded yet: it says itself when it has begun.
        """
        slot, state = self._slot, self._activation.state
        if posted.future is accepted:
            return
        if posted.future.done():
            done: Future[Any] = posted.future
            mirror(slot, done, accepted)
        elif isinstance(posted, RunRequest):
            run_id = state.message_ids.get(posted.message_id or "")
            if run_id is not None:
                answer_when_durable(slot, accepted, run_id)
        elif (
            state.run is not None
            and slot.phase is not Phase.BEGINNING
            and any(each is posted.future for each in self._activation.outcome_futures)
        ):
            answer_when_durable(slot, accepted, state.run.run_id)

    def note_run(self, on_run: OnRun) -> None:
        """Say which run is open."""
        if on_run is not None and self._open_run is not None:
            on_run(self._open_run.run_id)

    def check_run(self, run_id: str | None) -> None:
        """Check that the open run is this one; None: whatever run is meant.

        Raises:
            OtherRun: if it is not.

        """
        if run_id is None:
            return
        run = self._open_run
        open_run = None if run is None else run.run_id
        # A run that begins takes the place of the one that is open before it.
        if open_run != run_id or self._slot.phase is Phase.BEGINNING:
            raise OtherRun(agent_id=self._slot.id, run_id=run_id, open_run=open_run)

    def _answer_if_over(self, future: Future[Any], run_id: str | None) -> bool:
        """Answer a call that names the last run, if that is over: it has done its work."""
        run = self._activation.state.run
        if run_id is None or run is None or run.run_id != run_id or not run.over:
            return False
        answer_when_durable(
            self._slot, future, self._activation.agent.runner.ended(self._activation.state)
        )
        return True

    def send(self, sent: Send) -> None:
        """Record a message in the queue, and start a run if the agent is free for one."""
        slot, activation = self._slot, self._activation
        if sent.message_id in activation.state.message_ids:
            answer_when_durable(slot, sent.future, sent.message_id)
            return
        is_due = sent.due is None or sent.due <= slot.services.clock.now()
        if not is_due:
            self._plans.check_room()
        queued = MessageQueued(
            message_id=sent.message_id,
            message=sent.message,
            steer=sent.steer,
            self_sent=sent.self_sent,
            due=None if is_due else sent.due,
            context={**sent.context},
        )
        activation.ledger.check(queued, spare=RECORD_BYTES)
        activation.ledger.record(queued)
        answer_when_durable(slot, sent.future, sent.message_id)
        if not is_due:
            return
        if not sent.self_sent:
            activation.self_started_runs = 0
        run = self._open_run
        if run is None or not (sent.self_sent or run.quarantined is not None):
            if run is not None and not slot.phase.has_run_task and self._keeps_run:
                self._withdraw_requests()
            else:
                self.start_next()

    @property
    def _keeps_run(self) -> bool:
        """Whether a tool of the open run sleeps or waits, or did: no message ends such a run."""
        state = self._activation.state
        if state.run is None or state.run.halt is not None:
            return False
        return has_waits(state) or is_woken(state)

    def _withdraw_requests(self) -> None:
        """A message of the user came to a run that also waits: only its requests are withdrawn."""
        ledger = self._activation.ledger
        if ledger.state.requests:
            withdraw_requests(ledger)
            self.continue_run()

    def cancel_message(self, message_id: str) -> bool:
        """Cancel a queued run, or record that a message is; False if none of this id waits."""
        activation, state = self._activation, self._activation.state
        for queued in activation.queued_runs:
            request = queued.request
            if request.message is not None and request.message_id == message_id:
                activation.queued_runs.remove(queued)
                self._refuse_cancelled(request)
                return True
        if message_id not in state.message_ids or state.message_ids[message_id] is not None:
            return False
        now = self._slot.services.clock.now()
        activation.ledger.record(MessageCancelled(message_id=message_id, at=now))
        return True

    def _refuse_cancelled(self, request: RunRequest) -> None:
        refuse(request.future, UsageError(f"Message {request.message_id!r} is cancelled"))

    def change_plans(self, change: Callable[[Plans], Any]) -> Any:
        """Change a schedule, and start the run of what is triggered."""
        changed = change(self._plans)
        self._start_what_came(message=False)
        return changed

    def must_wait(self, message: AgentMessage) -> bool:
        """Whether a message is an answer that comes while the run that asks is under way.

        Race: who has read of a request answers it, while its run task has not ended yet, or goes on
        because of another answer, or with a call beside it. The answer waits in the inbox until the
        run has come to rest (test_a_request_that_is_listed_can_be_answered_at_any_moment).
        """
        if isinstance(message, Expecting):
            message = message.message
        if not isinstance(message, (Resume, Decide)) or self._slot.phase is not Phase.RUNNING:
            return False
        decisions = message.decisions
        pending = self._activation.state.requests
        return isinstance(decisions, Mapping) and any(each.id in decisions for each in pending)

    def resume(self, resume: Resume) -> None:
        """Record decisions and continue the run.

        Raises:
            DecisionError: if a decision does not fit, or its request is not pending.
            NotInterrupted: if the request has another decision already, or the run goes on now.

        """
        slot, activation = self._slot, self._activation
        state = activation.state
        is_open = self._decide(resume)
        if self._answer_if_quarantined(resume.future):
            return
        if is_open:
            activation.outcome_futures += (resume.future,)
        else:
            answer_when_durable(slot, resume.future, activation.agent.runner.ended(state))

    def record_decisions(self, message: Decide) -> None:
        """As `resume`, but answers when the decisions are recorded.

        Raises:
            DecisionError: as `resume`.
            NotInterrupted: as `resume`, and for a quarantined run, whose requests stay.

        """
        self._decide(message)
        run = self._open_run
        if run is not None and run.quarantined is not None:
            raise NotInterrupted(
                f"Agent {self._slot.id!r} is quarantined: release its run by retry() first"
            )
        answer_when_durable(self._slot, message.future, None)

    def _decide(self, message: Resume | Decide) -> bool:
        """Record decisions and continue the run; whether it is open. A quarantined one stays so."""
        slot, activation = self._slot, self._activation
        runner, run = activation.agent.runner, activation.state.run
        new = runner.check_decisions(
            activation.state, message.decisions, slot.services.clock, expect=message.expect
        )
        assert run is not None, "what was decided about is a request of a run"
        if run.over or run.quarantined is not None:
            return not run.over
        if slot.phase.has_run_task:
            if new:
                raise NotInterrupted(
                    f"Agent {slot.id!r} begins a new run, which withdraws what it had asked"
                )
        else:
            decide(activation.ledger, new, slot.services.clock, message.context)
            self.continue_run()
        return True

    def cancel(self, cancel: Cancel) -> None:
        """Stop the current run.

        Raises:
            OtherRun: if it is for another run than the open one, or than the last one.

        """
        slot, activation = self._slot, self._activation
        if cancel.message_id is not None:
            if not self._has_begun(cancel.message_id):
                answer_when_durable(slot, cancel.future, None)
                return
            run_id, last = activation.state.message_ids.get(cancel.message_id), self._last_run
            if run_id is not None and run_id != last:
                self._answer_earlier(cancel.future, run_id)
                return
            cancel = replace(cancel, run_id=run_id, message_id=None)
        if self._answer_if_over(cancel.future, cancel.run_id):
            return
        self.note_run(cancel.on_run)
        self.check_run(cancel.run_id)
        self.request_pause(None)
        if slot.phase is Phase.BEGINNING:
            # Closes the race of a cancel with the first record of the run that it is for: a run
            # that was open before is withdrawn by this one, and must not take the signal.
            # tests: test_a_cancel_before_a_run_begins_over_a_standing_one_is_for_the_new_run
            activation.early_cancel = cancel.signal
            activation.outcome_futures += (cancel.future,)
            slot.expect_end()  # the hooks of the run that it withdraws may go on for ever
            return
        run = self._open_run
        if run is None:
            answer_when_durable(slot, cancel.future, None)
            return
        # Also where one is recorded: this one cuts off the `on_run_end` hooks that it led to.
        signal = run.cancelled if run.cancelled is not None else cancel.signal.to_dict()
        activation.ledger.record(CancelRequested(signal=dict(signal)))
        if activation.task is not None:
            slot.cut_off()
        else:
            self._stop_run(StopSignal.from_dict(signal))
        activation.outcome_futures += (cancel.future,)

    def _has_begun(self, message_id: str) -> bool:
        """Whether the run of a message has begun, or begins now."""
        activation, phase = self._activation, self._slot.phase
        if activation.state.message_ids.get(message_id) is not None:
            return True
        known = {*activation.state.message_ids, *(activation.runs_by_message_id or {})}
        waiting = {queued.request.message_id for queued in activation.queued_runs}
        return phase is Phase.BEGINNING and message_id in known - waiting

    def request_pause(self, reason: str | None) -> None:
        """Record that the run is to be paused after its next model reply; None: that it is not."""
        ledger = self._activation.ledger
        if reason is not None:
            self._activation.is_to_unpause = False
        if requested_pause(ledger.state) != reason:
            ledger.record(PauseRequested(reason=reason, at=self._slot.services.clock.now()))

    def unpause(self) -> None:
        """Continue a paused run."""
        slot, activation = self._slot, self._activation
        self.request_pause(None)
        run = self._open_run
        if run is None or run.quarantined is not None:
            return
        if slot.phase.has_run_task:
            # Race: the run may have been paused already, and its task has not ended: then it is
            # continued when it has (test_an_unpause_that_comes_while_the_run_pauses_is_not_lost).
            activation.is_to_unpause = True
            return
        # A run that lacks its deps is paused too, though no record says so.
        if activation.state.pause is not None or slot.status is Status.PAUSED:
            unpause(activation.ledger)
            self.continue_run()

    def retry(self, retry: Retry) -> None:
        """Release a quarantined run, and continue it.

        Raises:
            NotInterrupted: if no run is quarantined.
            OtherRun: if it is for another run than the open one, or than the last one.

        """
        slot, activation, future = self._slot, self._activation, retry.future
        if self._answer_if_over(future, retry.run_id):
            return
        self.check_run(retry.run_id)
        run = self._open_run
        if retry.run_id is not None and run is not None and run.quarantined is None:
            self.wait_outcome(WaitOutcome(future))  # it was released before
            return
        if run is None or run.quarantined is None:
            raise NotInterrupted(f"Agent {slot.id!r} is not quarantined: there is nothing to retry")
        # Of no other run: where this copy is stale, the call would have released nothing, and would
        # be taken for one that did (test_a_retry_of_no_quarantine_at_a_stale_copy_is_refused).
        self.note_run(retry.on_run)
        activation.ledger.record(Released())
        self.continue_run()
        activation.outcome_futures += (future,)

    def check_due(self) -> None:
        """Record what is due by now, and start or continue what follows.

        A run that is under way looks for what is due in it when it continues, and says so again
        when it ends.
        """
        slot, activation = self._slot, self._activation
        if slot.services.closing:
            return
        has_message = self._plans.record_due()
        if slot.phase.has_run_task:
            return
        if not record_dues(activation.ledger, slot.services.clock.now()):
            self._start_what_came(message=has_message)
            return
        run = self._open_run
        assert run is not None, "only of an open run something is due"
        if run.cancelled is not None:
            self._stop_run(StopSignal.from_dict(run.cancelled))
        else:
            self.continue_run()

    def _start_what_came(self, *, message: bool) -> None:
        """Start a run of what is queued by now, unless one is open, which it never withdraws.

        Args:
            message: whether it is a message. All that are queued go with it.

        """
        if self._slot.phase.has_run_task or self._open_run is not None:
            return
        if message:
            self.start_next()
        elif next_occurrence(self._activation.state.queue) is not None:
            self.start_next(only_occurrence=True)

    def answer_wait(self, answer: AnswerWait) -> None:
        """Record an answer for a wait, and let the run go on if it waits there.

        Raises:
            Expired: if the wait is over.
            RecordRefused: if the answer is too large.

        """
        slot, activation = self._slot, self._activation
        now = slot.services.clock.now()
        known = record_answer(
            activation.ledger, answer.token_hash, answer.answer, now, agent_id=slot.id
        )
        answer_when_durable(slot, answer.future, known)
        self._go_on_if_woken()

    def _go_on_if_woken(self) -> None:
        # Race: an answer may come when the run has found that it waits, and its task has not ended
        # (test_an_answer_that_comes_while_the_run_comes_to_rest_is_not_lost).
        run, activation = self._open_run, self._activation
        if run is None or self._slot.phase.has_run_task or self._slot.services.closing:
            return
        if activation.is_to_end_attempt():
            return  # the next activation goes on
        may_go_on = run.quarantined is None and run.halt is None and run.cancelled is None
        if may_go_on and run.paused is None and is_woken(activation.state):
            self.continue_run()

    def tell_due(self) -> None:
        """Say when the agent is due next; while a run task is under way, by its plans alone."""
        slot = self._slot
        if slot.phase is Phase.IDLE:
            slot.services.tell_due(slot.id, self._activation.state.next_due)
        elif slot.phase.has_run_task and self._activation.state.plans is not None:
            slot.services.tell_due(slot.id, due_of_plans(self._activation.state))

    def _answer_if_quarantined(self, future: Future[Any]) -> bool:
        run = self._open_run
        if run is None or run.quarantined is None:
            return False
        answer_when_durable(self._slot, future, quarantine_outcome(self._activation.state))
        return True

    # ------------------------------------------------------------------ starting runs

    def start_next(self, *, only_occurrence: bool = False) -> None:
        """Start the next queued run, or one of the queue; not while a run goes on or waits.

        An occurrence of a schedule has a run of its own, when what was queued before it is over. It
        withdraws no open run: what a person sends does, and goes before it then.

        Args:
            only_occurrence: start the run of the next occurrence, whatever else is queued.

        """
        if self._slot.phase.has_run_task or (self._open_run is not None and self._keeps_run):
            return
        activation = self._activation
        queue = activation.state.queue
        try:
            at = self._slot.services.clock.now()
        except BaseException as error:  # the application's clock: the waiters get its error
            logger.exception(
                "the clock raised: agent %r starts no run",
                self._slot.id,
                extra=about(self._slot.id),
            )
            self._slot.refuse_waiters(as_exception(self._slot.id, error))
            return
        occurrence = next_occurrence(queue) if queue else None
        if occurrence is not None and (only_occurrence or self._is_next(occurrence)):
            self._start_occurrence(occurrence, at)
        elif activation.queued_runs:
            next_run = activation.queued_runs.pop(0)
            request = next_run.request
            if request.message is None and request.message_id not in queue:
                self._answer_without_run(request, next_run.options)
                self.start_next()
            else:
                self._start_run(next_run, next_run.messages_ahead, at)
        elif queue:
            self._start_run(None, tuple(queue), at)

    def _answer_without_run(self, request: RunRequest, options: RunOptions) -> None:
        """The message that a request waited for is in the queue no longer."""
        if request.message_id in self._activation.state.message_ids:
            self._wait_for_run_of(request.message_id, request, options)
        else:
            self._refuse_cancelled(request)

    def _is_next(self, occurrence: QueuedMessage) -> bool:
        """Whether nothing that was queued before an occurrence is still to be run."""
        if self._open_run is not None:
            return False
        if self._activation.queued_runs:
            return occurrence.message_id in self._activation.queued_runs[0].messages_ahead
        return next(iter(self._activation.state.queue)) == occurrence.message_id

    def _start_occurrence(self, queued: QueuedMessage, at: datetime) -> None:
        parts = [
            replace(part, timestamp=at) if isinstance(part, UserPromptPart) else part
            for part in queued.message.parts
        ]
        message = replace(queued.message, parts=parts, timestamp=at)
        options = self._activation.agent.run_options()
        begun = self._begin(
            message, options, (queued.message_id,), queued.context, queued.occurrence
        )
        self._run(Phase.BEGINNING, begun)

    def _start_run(
        self, queued_run: QueuedRun | None, messages_ahead: tuple[str, ...], at: datetime
    ) -> None:
        """Start a run with the messages that were queued before it and, last, its own message."""
        activation = self._activation
        messages = [
            queued
            for key, queued in activation.state.queue.items()
            if key in messages_ahead and queued.occurrence is None
        ]
        if queued_run is not None and messages:
            own = queued_run.request.message
            if not self._fit_one_record(messages, own):
                # after a run of the messages ahead
                activation.queued_runs = [queued_run, *activation.queued_runs]
                queued_run = None
        while len(messages) > 1 and not self._fit_one_record(messages, None):
            messages.pop()
        parts = [part for queued in messages for part in queued.message.parts]
        ids = [queued.message_id for queued in messages]
        context: Context = messages[-1].context if messages else {}
        options = activation.agent.run_options()
        callers: tuple[AgentKey, ...] = ()
        activation.on_run = queued_run.request.on_run if queued_run is not None else None
        if queued_run is not None:
            request, options = queued_run.request, queued_run.options
            callers = request.callers
            if request.message is not None:
                parts += request.message.parts
                context = request.context
                ids += [request.message_id] if request.message_id is not None else []
            activation.outcome_futures += (request.future,)
        message = ModelRequest(parts=parts, timestamp=at)
        self._run(Phase.BEGINNING, self._begin(message, options, tuple(ids), context), callers)

    def _fit_one_record(self, queued: list[QueuedMessage], last: ModelRequest | None) -> bool:
        """Whether these messages together are small enough for the first record of one run."""
        messages = [item.message for item in queued] + ([last] if last is not None else [])
        if len(messages) == 1:
            return True  # checked when it was accepted
        merged = ModelRequest(parts=[part for message in messages for part in message.parts])
        ids = "".join(item.message_id for item in queued)
        record = MessageQueued(message_id=ids, message=merged, steer=False, self_sent=False)
        try:
            self._activation.ledger.check(record, spare=RECORD_BYTES + 8 * len(queued))
        except RecordRefused:
            return False
        return True

    async def _begin(
        self,
        message: ModelRequest,
        options: RunOptions,
        message_ids: tuple[str, ...],
        context: Context,
        occurrence: Occurrence | None = None,
    ) -> Outcome:
        activation = self._activation
        runner = activation.agent.runner
        await runner.check_start(activation.state)
        return await runner.begin(
            activation.ledger,
            message,
            options=options,
            environment=self._slot.environment(),
            message_ids=message_ids,
            occurrence=occurrence,
            context=context,
            signal=self._run_recorded,
        )

    def _run_recorded(self) -> StopSignal | None:
        """Called when the run's first record is made; the cancel that came before it, if any."""
        if self._slot.phase is Phase.BEGINNING:
            self._slot.enter(Phase.RUNNING)
        activation = self._activation
        activation.cancellation_arrived()
        if activation.on_run is not None:
            self.note_run(activation.on_run)
            activation.on_run = None
        signal, activation.early_cancel = activation.early_cancel, None
        return signal

    def continue_run(self) -> None:
        """Continue the open run where it is."""
        runner, ledger = self._activation.agent.runner, self._activation.ledger
        environment = self._slot.environment_to_continue()
        self._run(Phase.RUNNING, runner.go_on(ledger, environment=environment))

    def _stop_run(self, signal: StopSignal) -> None:
        runner, ledger = self._activation.agent.runner, self._activation.ledger
        environment = self._slot.environment_to_continue()
        self._run(Phase.RUNNING, runner.stop(ledger, signal, environment=environment))

    def _run(
        self,
        phase: Phase,
        coroutine: Coroutine[Any, Any, Outcome],
        callers: tuple[AgentKey, ...] = (),
    ) -> None:
        try:
            self._slot.set_status(Status.RUNNING)
        except JournalFailed:
            coroutine.close()
            raise
        self._slot.enter(phase)
        self._activation.is_to_unpause = False
        start_run_task(self._slot, coroutine, callers)

    # ------------------------------------------------------------------ what follows

    def recover(self) -> None:
        """After activation or a crash: continue an open run that neither waits nor pauses."""
        slot, state = self._slot, self._activation.state
        run = self._open_run
        if slot.services.closing:
            return
        if run is None:
            if has_next_run(state):
                self.start_next(only_occurrence=self._status_without_run() is not Status.IDLE)
        elif run.quarantined is not None:
            return
        elif run.cancelled is not None:
            self._stop_run(StopSignal.from_dict(run.cancelled))
        elif (status := self._suspended_status()) is Status.WAITING or (
            status is not None and not self._activation.outcome_futures
        ):
            return  # who waits for a run that waits goes on waiting
        elif self._is_fruitless(run):
            self._quarantine("the process went away")
        else:
            self.continue_run()

    def settle_status(self) -> None:
        """Set the status of an agent that was activated, or crashed, and that nothing runs now.

        Called when the inbox is empty: an agent that is activated for a run is never seen idle
        before it.
        """
        slot, run = self._slot, self._open_run
        if slot.phase is not Phase.IDLE or slot.status not in (Status.PASSIVE, Status.RUNNING):
            return
        if run is None or slot.services.closing:
            slot.set_status(self._status_without_run())
        elif run.quarantined is not None:
            slot.set_status(Status.FAILED)
        else:
            slot.set_status(self._suspended_status() or self._status_without_run())

    def _suspended_status(self) -> Status | None:
        """The status of a run that waits, or is paused."""
        state = self._activation.state
        is_at_rest = not is_busy(state)
        if state.requests and is_at_rest:
            return Status.INTERRUPTED
        if state.pause is not None:
            return Status.PAUSED
        return Status.WAITING if is_at_rest and is_waiting(state) else None

    def _status_without_run(self) -> Status:
        return Status(rest_status(self._activation.state))

    def after_run_task(self, *, activating: bool = False) -> None:
        """A run task has ended: answer its waiters, then start what is queued.

        Args:
            activating: this actor has just started, perhaps because of this crash.

        Raises:
            RunCrashed: if the task crashed; it ends the actor, and the next one recovers.

        """
        slot, activation = self._slot, self._activation
        result, activation.result = activation.result, None
        activation.early_cancel = None
        assert result is not None, "a run task that has ended leaves its result"
        slot.enter(Phase.IDLE)
        self.tell_due()  # before its waiters learn that it waits: they may advance the clock
        if result.crash is not None:
            self._after_crash(result.crash, activating=activating, is_refused=result.is_refused)
        elif result.outcome is not None:  # else it was halted between two steps
            self._after_outcome(result.outcome)

    def _after_outcome(self, outcome: Outcome) -> None:
        slot, activation = self._slot, self._activation
        if isinstance(outcome, Waiting):
            self._after_waiting()
            return
        status = status_after(outcome)
        is_idle = status is Status.IDLE
        has_next = self._has_next(is_idle=is_idle)
        try:
            if not has_next:
                slot.set_status(status)
        finally:
            slot.answer(outcome)  # it is recorded, whatever becomes of the status
            self.answer_message_waits(outcome)
            self._tell_hooks(outcome)
        if has_next and not activation.is_to_end_attempt():
            self.start_next(only_occurrence=not is_idle and not activation.queued_runs)
            return
        if isinstance(outcome, (Interrupted, Paused)) and activation.is_to_unpause:
            self.unpause()
        if isinstance(outcome, Interrupted):
            self._go_on_if_woken()

    def _tell_hooks(self, outcome: Outcome) -> None:
        slot, hooks = self._slot, self._activation.agent.definition.hooks
        told = hooks.on_completed if isinstance(outcome, Completed) else ()
        told = hooks.on_interrupted if isinstance(outcome, Interrupted) else told
        if told and outcome.state.run is not None:
            slot.tell_hooks(told, outcome, outcome.state.run.context)

    def _after_waiting(self) -> None:
        """The run has come to rest at its waits: whoever waits for its outcome goes on waiting."""
        self._slot.set_status(Status.WAITING)
        self._go_on_if_woken()

    def _has_next(self, *, is_idle: bool) -> bool:
        """Whether another run follows at once, without an idle status in between."""
        activation = self._activation
        queue = activation.state.queue
        if self._open_run is not None or activation.delete_futures:
            return False  # a suspended run: everything else waits
        if activation.queued_runs or (queue and next_occurrence(queue) is not None):
            return True
        if not is_idle or not queue:  # as `journal.has_next_run`, by which hosts go
            return False
        if all(item.self_sent for item in queue.values()):
            activation.self_started_runs += 1
            if activation.self_started_runs > MAX_SELF_STARTED_RUNS:
                self._slot.set_status(Status.IDLE, runs=MAX_SELF_STARTED_RUNS)
                return False
        return True

    def _after_crash(self, crash: BaseException, *, activating: bool, is_refused: bool) -> None:
        if self._slot.services.closing:
            return
        if isinstance(crash, JournalFailed) and not isinstance(crash, RecordRefused):
            raise crash
        run = self._open_run
        if run is None or is_refused or isinstance(crash, RecordRefused):
            self._refuse_run(crash)
        elif run.cancelled is not None:
            self.recover()  # cancelled before its first step
        elif self._is_fruitless(run):
            self._quarantine(cause_of(crash))
        elif activating:
            self.recover()
        else:
            raise RunCrashed(self._slot.id) from crash

    def _refuse_run(self, error: BaseException) -> None:
        """A run could not begin: its waiters get the error; without any, the status shows it."""
        slot, activation = self._slot, self._activation
        suspended = activation.agent.runner.suspended_outcome(activation.state)
        if suspended is not None:
            slot.set_status(status_after(suspended))
        elif activation.outcome_futures:
            slot.set_status(self._status_without_run())
        else:
            slot.set_status(Status.FAILED)
        slot.refuse(error)
        if activation.queued_runs:
            self.start_next()

    def _is_fruitless(self, run: RunState) -> bool:
        """Whether it was cut off too often since it last got further.

        An attempt that another runtime cut off by taking over is no crash, if the runtime that lost
        it lived to say so. Until that has said so, it counts.
        """
        first = run.attempts - run.fruitless
        lost = sum(number > first for number in self._activation.lost_attempts)
        crashes = run.fruitless - lost
        return crashes >= MAX_ATTEMPTS_WITHOUT_PROGRESS or run.fruitless >= MAX_LOST_ATTEMPTS

    def _quarantine(self, cause: str) -> None:
        activation = self._activation
        activation.ledger.record(Quarantined(cause=cause))
        self._slot.set_status(Status.FAILED)
        outcome = quarantine_outcome(activation.state)
        for future in activation.take_waiters():
            answer_when_durable(self._slot, future, outcome)
