"""`RefCall`: a call of a ref, wherever it is done, until its caller has the answer."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from understudy.actors.agent.messages import AgentCall, CallNotes, Cancel, Retry, WaitOutcome
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.hosts.wire import value_of_reply
from understudy.actors.verbs import VERB_OF, Repeat
from understudy.errors import (
    NotInterrupted,
    OtherRun,
    OwnedElsewhere,
    UnfitHost,
    error_from_dict,
)
from understudy.loop_actors.future import Future, refuse


class CallPhase(Enum):
    """The place of a call on its way to its answer."""

    LINE = "line"  # in the line of its agent: which host does it is to be found out
    IN_DOUBT = "in doubt"  # the same, but something of it may be recorded: that comes first
    HERE = "here"  # with its agent, in this runtime
    SENT = "sent"  # with another process of this machine
    POSTED = "posted"  # a row in the store, which the owner of its agent does
    FOLLOWED = "followed"  # done; the outcome of its run is waited for
    ANSWERED = "answered"  # its caller has the answer


@dataclass(slots=True, eq=False)
class RefCall(CallNotes):
    """A call of a ref, until its caller has the answer."""

    slot: AgentSlot
    asked: AgentCall
    """The call as its caller made it."""
    number: int
    """The number of the call: calls of an agent are done in the order of their numbers."""
    unanswered: set[RefCall]
    """The calls of the runtime whose callers wait: this call is in it until it is answered."""
    phase: CallPhase = CallPhase.LINE
    message: Any = field(init=False)
    """The message of the call; if the call is made again, for the run that it was for before."""
    fences: int = 0
    """How often this host claimed the agent for the call, and lost it before the call was done."""
    not_here: OwnedElsewhere | UnfitHost | None = None
    """Why this host must not run the agent: only its owner, if any, does the call."""
    was_elsewhere: bool = False
    """Whether the call was not done at once: other hosts may have had the agent meanwhile."""
    was_handled: bool = False
    """Whether an owner has begun the call, or may have, and then lost the agent."""
    run_id: str | None = None
    """The id of the run that the call has begun, or is for."""
    run_message: str | None = None
    """The id of a message that was taken by the run that the call is for."""
    incarnation: int | None = None
    """The incarnation of the agent that has the run, as far as it is known."""
    noted_at: int = 0
    """The number of the newest record of that agent when its run was noted, durable or not."""
    is_queued: bool = False
    """Whether the call is a `run` whose message is recorded in the queue of its agent."""
    was_looked_up: bool = False
    """Whether the run that the call is for was looked for in the store. It is done once."""
    posted_at: float = 0.0
    """The loop's time at which the owner was last told of the call."""
    epoch: int = 0
    """The epoch of the agent when its owner was told of the call."""
    reads: ExitStack | None = None
    """The stack that keeps what is read of the agent while the call is posted."""
    link: Any = None
    """The connection with the process that has the call: a `hosts.peers.link.Link`."""
    refused_by: int | None = None
    """The id of the last host of another process on this machine that has not done the call."""

    def __post_init__(self) -> None:
        self.message = self.asked.message
        self.unanswered.add(self)

    # ------------------------------------------------------------------- the answer

    def answer(self, value: Any) -> None:
        """Give the caller of the call the answer."""
        self._end()
        self.asked.future._answer(value)

    def refuse(self, error: BaseException) -> None:
        """Give the caller of the call an error."""
        self._end()
        refuse(self.asked.future, error)

    def _end(self) -> None:
        self.phase = CallPhase.ANSWERED
        self.unanswered.discard(self)

    def is_met(self) -> None:
        """Note that the agent has the expected definition, as another host has done the call."""
        if self.asked.expectation is not None:
            self.asked.expectation.is_met = True

    def take_reply(self, reply: dict[str, Any]) -> None:
        """Answer the caller by the reply of another host."""
        try:
            if "error" in reply:
                raise error_from_dict(reply["error"])
            self.is_met()
            if "run" in reply or "message" in reply:
                self.follow(reply.get("run"), reply.get("message"), reply.get("at"))
            else:
                self.answer(value_of_reply(self.message, reply))
        except OtherRun as error:
            self.refuse_of_other_run(error)
        except Exception as error:
            self.refuse(error)

    def follow(
        self, run_id: str | None, message_id: str | None = None, at: int | None = None
    ) -> None:
        """Answer the caller by the outcome of a run, whichever host continues it.

        Args:
            run_id: of the run, if it has begun.
            message_id: of the message that waits for its run.
            at: as of `WaitOutcome`.

        """
        look = WaitOutcome(message_id, run_id, self.incarnation, at)

        async def follow() -> None:
            try:
                self.answer(await self.slot.services.looks.outcome_of(self.slot, look))
            except Exception as error:
                self.refuse(error)

        self.phase = CallPhase.FOLLOWED
        self.slot.services.start_task(follow(), "calling")

    def refuse_of_other_run(self, error: OtherRun) -> None:
        """Answer a repeated call whose run is over, and followed by others."""
        named = getattr(self.asked.message, "run_id", None)
        known = getattr(self.message, "run_id", None)
        if named is not None or (known is None and self.run_id is None):
            self.refuse(error)
        elif isinstance(self.message, Retry) and known is not None:
            # The run that had failed when its caller asked, and named no run.
            why = "is not the last run any more: there is nothing to retry"
            self.refuse(NotInterrupted(f"The failed run {known!r} of {self.slot.id!r} {why}"))
        elif isinstance(self.message, Cancel | Retry):
            self.follow(self.run_id)
        else:
            self.answer(None)

    # ------------------------------------------------------------------- what is noted

    def on_run(
        self, run_id: str, retries: str | None = None, message_id: str | None = None
    ) -> None:
        if retries is not None and isinstance(self.message, Retry):
            # Repeated, it is known by the run that it retries, and retries no other.
            self.message = replace(self.message, run_id=retries)
        else:
            self.run_id = run_id
            self.run_message = message_id
            self._note_incarnation()

    def never_began(self) -> None:
        """Note that the call's run was not recorded before this host lost the agent.

        Whoever has the agent now begins the message of that run: the call is for the run that takes
        it.
        """
        self.run_id = None
        if isinstance(self.message, Cancel) and self.run_message is not None:
            self.message = replace(self.message, message_id=self.run_message)

    def on_queued(self) -> None:
        self.is_queued = True
        self._note_incarnation()

    def _note_incarnation(self) -> None:
        if self.slot.activation is not None:
            owned = self.slot.activation.journal.owned
            self.incarnation, self.noted_at = owned.incarnation, owned.last_seq

    def on_begun(self) -> None:
        self.was_handled = True

    def for_here(self, future: Future[Any]) -> AgentCall:
        """The call as an agent in memory gets it; its answer goes to `future`."""
        message = self.as_known()
        return AgentCall(message, future, self.asked.expectation, self, self.was_elsewhere)

    def as_known(self) -> Any:
        """The message of the call, for the run that it was for before."""
        if self.is_of_named_run and self.run_id is not None:
            return replace(self.message, run_id=self.run_id)
        return self.message

    @property
    def expects(self) -> str | None:
        """The name of the definition that the call's ref expects, and has not seen yet."""
        expectation = self.asked.expectation
        return None if expectation is None or expectation.is_met else expectation.name

    def began_before(self, incarnation: int | None) -> bool:
        """Whether the call's run began, or was queued, in an earlier, deleted agent of this id.

        Args:
            incarnation: of the agent that has the id now; None for none.

        """
        is_there = self.run_id is not None or self.is_queued
        return is_there and self.incarnation not in (None, incarnation)

    @property
    def is_once_at_most(self) -> bool:
        """Whether nothing tells the call from a second call."""
        return VERB_OF[type(self.message)].repeat is Repeat.NEVER

    @property
    def is_of_named_run(self) -> bool:
        """Whether the call is for one run, which its row names."""
        return VERB_OF[type(self.message)].repeat is Repeat.OF_RUN

    @property
    def names_no_run(self) -> bool:
        """Whether the call is for one run, and nothing says which run."""
        message = self.message
        return (
            self.is_of_named_run
            and self.run_id is None
            and message.run_id is None
            and getattr(message, "message_id", None) is None
        )
