"""`RefCall`: a call of a ref, wherever it is done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from understudy.actors.agent.messages import AgentMessage, Expectation, Expecting, Retry
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.verbs import VERB_OF, Repeat
from understudy.errors import OwnedElsewhere, UnfitHost
from understudy.loop_actors.future import Future


class CallPhase(Enum):
    """Where a call is now."""

    LINE = "line"  # in the line of its agent: which host does it is to be found out
    IN_DOUBT = "in doubt"  # the same, but something of it may be recorded: that comes first
    HERE = "here"  # with its agent, in this runtime
    POSTED = "posted"  # a row in the store, which the owner of its agent does
    FOLLOWED = "followed"  # done; the outcome of its run is waited for
    ANSWERED = "answered"  # its caller has the answer


@dataclass(slots=True, eq=False)
class RefCall:
    """A call of a ref, until its caller has the answer."""

    slot: AgentSlot
    message: AgentMessage
    number: int
    """Calls of one agent are done in the order of their numbers."""
    phase: CallPhase = CallPhase.LINE
    expectation: Expectation | None = None
    outer: Future[Any] = field(init=False)
    """What its caller waits for."""
    fences: int = 0
    """How often this host had its agent for it, and lost it before the call was done."""
    not_here: OwnedElsewhere | UnfitHost | None = None
    """Why this host must not run the agent: only its owner does the call, if it has one."""
    was_elsewhere: bool = False
    """It was not done at once: other hosts may have gone on with the agent meanwhile."""
    was_handled: bool = False
    """It was begun by an owner who then lost the agent."""
    run_id: str | None = None
    """The id of the run that it has begun, or is for."""
    incarnation: int | None = None
    """The incarnation of the agent that has the run, as far as it is known."""
    is_queued: bool = False
    """It is a `run` whose message is recorded in the queue of that agent."""
    posted_at: float = 0.0
    """When the owner was told of it last, by the clock of the loop."""
    epoch: int = 0
    """The epoch of the agent when its owner was told of this call."""

    def __post_init__(self) -> None:
        while isinstance(self.message, Expecting):
            self.expectation, self.message = self.message.expectation, self.message.message
        self.outer = self.message.future

    def on_run(self, run_id: str) -> None:
        """Note which run it begins, or is for."""
        self.run_id = run_id
        self._note_incarnation()

    def on_queued(self) -> None:
        """Note that it waits in the queue of its agent."""
        self.is_queued = True
        self._note_incarnation()

    def _note_incarnation(self) -> None:
        if self.slot.activation is not None:
            self.incarnation = self.slot.activation.journal.owned.incarnation

    def on_retried(self, failed: str, _: str) -> None:
        """Name the run that it retries: repeated, it is known by that, and retries no other."""
        assert isinstance(self.message, Retry), "only a retry is told of it"
        self.message = replace(self.message, run_id=failed)

    def on_begun(self) -> None:
        """Note that it may have been done from now on."""
        self.was_handled = True

    def for_here(self, future: Future[Any]) -> AgentMessage:
        """The message as an agent in memory gets it; its answer goes to `future`."""
        asked: Any = self.message
        local: dict[str, Any] = {
            "future": future,
            "on_run": self.on_run,
            "on_queued": self.on_queued,
            "on_retried": self.on_retried,
            "on_begun": self.on_begun,
            "was_elsewhere": self.was_elsewhere,
        }
        if self.is_of_named_run and self.run_id is not None:
            local["run_id"] = self.run_id
        names = local.keys() & asked.__dataclass_fields__.keys()
        message: AgentMessage = replace(asked, **{name: local[name] for name in names})
        return message if self.expects is None else Expecting(self.expects, message)

    @property
    def expects(self) -> Expectation | None:
        """What its ref expects of the agent, and has not seen yet."""
        expectation = self.expectation
        return None if expectation is None or expectation.is_met else expectation

    def began_before(self, incarnation: int | None) -> bool:
        """Whether its run began, or was queued, in another agent of this id, which is deleted.

        Args:
            incarnation: of the agent that has the id now; None for none.

        """
        is_there = self.run_id is not None or self.is_queued
        return is_there and self.incarnation not in (None, incarnation)

    @property
    def is_once_at_most(self) -> bool:
        """Whether nothing tells it from a second call."""
        return VERB_OF[type(self.message)].repeat is Repeat.NEVER

    @property
    def is_of_named_run(self) -> bool:
        """Whether it is for one run, which its row names."""
        return VERB_OF[type(self.message)].repeat is Repeat.OF_RUN
