"""`RefCall`: a call of a ref, wherever it is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from understudy.actors.agent.messages import (
    AgentMessage,
    Cancel,
    Expectation,
    Expecting,
    Notify,
    Pause,
    Retry,
    RunRequest,
    Send,
    Unpause,
)
from understudy.actors.agent.slot import AgentSlot
from understudy.errors import OwnedElsewhere, UnfitHost
from understudy.loop_actors.future import Future


class RefCall:
    """A call of a ref, until its caller has the answer."""

    __slots__ = (
        "epoch",
        "expectation",
        "fences",
        "here",
        "in_doubt",
        "incarnation",
        "is_queued",
        "message",
        "nonce",
        "not_here",
        "number",
        "outer",
        "posted_at",
        "run_id",
        "slot",
        "was_elsewhere",
        "was_handled",
    )

    def __init__(self, slot: AgentSlot, message: AgentMessage) -> None:
        self.slot: AgentSlot = slot
        self.number: int = 0
        """Calls of one agent are done in the order of their numbers."""
        self.expectation: Expectation | None = None
        while isinstance(message, Expecting):
            self.expectation, message = message.expectation, message.message
        self.message: AgentMessage = message
        self.outer: Future[Any] = message.future
        self.here: Future[Any] | None = None
        """What comes of it in this runtime's memory."""
        self.fences: int = 0
        self.in_doubt: bool = False
        """Something of it may be recorded, which is to be found out."""
        self.not_here: OwnedElsewhere | UnfitHost | None = None
        """Why this host must not run the agent: only its owner does the call, if it has one."""
        self.was_elsewhere: bool = False
        """It was not done at once: other hosts may have gone on with the agent meanwhile."""
        self.was_handled: bool = False
        """It was begun by an owner who then lost the agent."""
        self.run_id: str | None = None
        """Of the run that it has begun, or is for."""
        self.incarnation: int | None = None
        """Of the agent that has the run, as far as it is known."""
        self.is_queued: bool = False
        """It is a `run` whose message is recorded in the queue of that agent."""
        self.posted_at: float = 0.0
        self.epoch: int = 0
        """That the agent had when its owner was told of this call."""
        self.nonce: str = ""

    def on_run(self, run_id: str) -> None:
        self.run_id = run_id
        if self.slot.activation is not None:
            self.incarnation = self.slot.activation.journal.owned.incarnation

    def on_queued(self) -> None:
        self.is_queued = True
        if self.slot.activation is not None:
            self.incarnation = self.slot.activation.journal.owned.incarnation

    def on_retried(self, failed: str, _: str) -> None:
        """Name the run that it retries: repeated, it is known by that, and retries no other."""
        assert isinstance(self.message, Retry), "only a retry is told of it"
        self.message = replace(self.message, run_id=failed)

    def on_begun(self) -> None:
        self.was_handled = True

    def for_here(self, future: Future[Any]) -> AgentMessage:
        """The message as an agent in memory gets it."""
        asked: Any = self.message
        message = replace(asked, future=future)
        if isinstance(message, RunRequest | Cancel | Pause | Unpause | Retry):
            message = replace(message, on_run=self.on_run)
        if isinstance(message, RunRequest):
            message = replace(message, on_queued=self.on_queued)
        if isinstance(message, Retry):
            message = replace(message, on_retried=self.on_retried)
        if isinstance(message, RunRequest | Send):
            message = replace(message, was_elsewhere=self.was_elsewhere)
        if isinstance(message, Notify):
            message = replace(message, on_begun=self.on_begun)
        if isinstance(message, Cancel | Pause | Unpause | Retry) and self.run_id is not None:
            message = replace(message, run_id=self.run_id)
        if self.expectation is not None and not self.expectation.is_met:
            return Expecting(self.expectation, message)
        own: AgentMessage = message
        return own

    def began_before(self, incarnation: int | None) -> bool:
        """Whether its run began, or was queued, in another agent of this id, which is deleted.

        Args:
            incarnation: of the agent that has the id now; None for none.

        """
        is_there = self.run_id is not None or self.is_queued
        return is_there and self.incarnation not in (None, incarnation)

    @property
    def is_once_at_most(self) -> bool:
        return isinstance(self.message, Notify)
