"""`AgentRef`: how everybody else speaks to an agent. It addresses an id, not an actor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pykka

from understudy.actors.agent_actor import AgentActor
from understudy.actors.agent_events import Status, Subscription
from understudy.actors.agent_slot import AgentSlot, running_agents
from understudy.actors.messages import (
    AgentMessage,
    Cancel,
    Compact,
    Notify,
    Passivate,
    Pause,
    Query,
    RecordFact,
    Resume,
    Retry,
    RunChoices,
    RunRequest,
    Send,
    Unpause,
    WaitOutcome,
)
from understudy.actors.replies import options_of
from understudy.agent.runner import refuse_inside_run
from understudy.errors import NotExtracted, UsageError, WouldDeadlock
from understudy.interrupts import Decision, DecisionRecord
from understudy.loop_actors.future import Future, refuse_on_a_loop
from understudy.loop_actors.monitor import Lifetime
from understudy.models.messages import UserInput, user_message
from understudy.outcomes import Completed, Outcome
from understudy.run.until_tool import UntilTool
from understudy.state.agent_state import AgentState
from understudy.state.records import Revoked, Settled
from understudy.stopping import StopReason, StopSignal

__all__ = ["AgentRef"]


class AgentRef(pykka.ActorRef[AgentActor]):
    """An agent's address. Each call that answers returns a `Future`: `.get()` it or `await` it.

    It stays good when the agent's actor is restarted or lies passive: the next call wakes it.
    """

    def __init__(self, slot: AgentSlot, alive: Lifetime) -> None:
        # Not Pykka's __init__: there may be no actor at the moment.
        self._slot = slot
        self.actor_class = AgentActor
        self.actor_urn = f"urn:understudy:agent:{slot.id}"
        self.actor_stopped = alive

    def __repr__(self) -> str:
        agent = self._slot.agent
        what = f" of agent {agent.name!r}" if agent is not None else ""
        return f"<AgentRef {self._slot.id!r}{what}>"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgentRef) and other._slot is self._slot

    def __hash__(self) -> int:
        return hash(self.actor_urn)

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
        max_runs: int | None = None,
        deadline: float | None = None,
        message_id: str | None = None,
        if_interrupted: Literal["withdraw", "error"] = "withdraw",
    ) -> Future[Outcome]:
        """Run the agent on a message; the future brings the outcome.

        While a run goes on it waits its turn. A run that waits for a person is withdrawn by it,
        unless `if_interrupted="error"` (I10). After `deadline` seconds, waits for people not
        counted, it is stopped (P9).

        Raises:
            UsageError: for what the caller did wrong, at once.
            WouldDeadlock: from inside this agent's own run: it would wait for itself. Use `send`.

        """
        slot = self._slot
        if slot.id in running_agents.get():
            raise WouldDeadlock(what="run", remedy=f"use send() from inside agent {slot.id!r}")
        if if_interrupted not in ("withdraw", "error"):
            raise UsageError(f"if_interrupted is 'withdraw' or 'error', not {if_interrupted!r}")
        _check_message_id(message_id)
        choices = RunChoices(
            until_tool=until_tool,
            until_tool_success=until_tool_success,
            max_runs=max_runs,
            deadline=deadline,
        )
        if slot.agent is not None:  # else it is checked when the agent has been read back
            options_of(slot.agent, choices)
        future: Future[Outcome] = Future()
        wanted = RunRequest(
            message=user_message(input, at=slot.services.clock.now()),
            choices=choices,
            future=future,
            message_id=message_id,
            callers=running_agents.get(),
            refuse_if_interrupted=if_interrupted == "error",
        )
        self._post(wanted)
        return future

    def send(
        self, input: UserInput, *, steer: bool = False, message_id: str | None = None
    ) -> Future[str]:
        """Queue a message; the future brings its id once it is recorded (A2, J14).

        It is run when the run that goes on has ended, together with all others in the queue. With
        `steer=True` the next model call of that run sees it already.

        Raises:
            UsageError: if the message is empty or cannot be sent.

        """
        _check_message_id(message_id)
        future: Future[str] = Future()
        self._post(
            Send(
                user_message(input, at=self._slot.services.clock.now()),
                message_id or self._slot.services.new_id(),
                steer,
                self._slot.id in running_agents.get(),
                future,
            )
        )
        return future

    def resume(self, decisions: Mapping[str, Decision | Mapping[str, Any]]) -> Future[Outcome]:
        """Answer requests, by their ids; the future brings the outcome of going on (I3).

        Its `get` raises `DecisionError` or `NotInterrupted` where an answer does not fit (I5).

        Raises:
            DecisionError: from inside a tool, a hook or a model: only the host decides (I13).

        """
        refuse_inside_run()
        future: Future[Outcome] = Future()
        self._post(Resume(decisions, future))
        return future

    def extract(self, tool: UntilTool, input: UserInput, **options: Any) -> Future[Any]:
        """Run until `tool` succeeds; the future brings the value that it returned (U7)."""
        future = self.run(input, until_tool_success=tool, **options)

        def value(outcome: Outcome) -> Any:
            if isinstance(outcome, Completed) and outcome.tool_result is not None:
                return outcome.tool_result.value
            raise NotExtracted(tool=str(tool), outcome=repr(outcome))

        return future.map(value)

    # -------------------------------------------------------------------- steering

    def cancel(self, message: str = "cancelled") -> Future[Outcome | None]:
        """Stop the run that goes on, or stands, at once; None if there is none (P7).

        What had finished is kept, a call in the middle is in doubt, the rest is marked as not run.
        """
        future: Future[Outcome | None] = Future()
        self._post(Cancel(StopSignal(StopReason.USER_REQUESTED, message, source="cancel"), future))
        return future

    def pause(self, reason: str = "pause") -> Future[None]:
        """Hold the run after its next model reply, before the tools that it asks for (R7)."""
        if not isinstance(reason, str) or not reason:
            raise UsageError(f"pause takes a reason as text, not {reason!r}")
        future: Future[None] = Future()
        self._post(Pause(reason, future))
        return future

    def unpause(self) -> Future[None]:
        """Let a paused run go on where it stands."""
        future: Future[None] = Future()
        self._post(Unpause(future))
        return future

    def retry(self) -> Future[Outcome]:
        """Release a quarantined run; the future brings its outcome (J10)."""
        future: Future[Outcome] = Future()
        self._post(Retry(future))
        return future

    def outcome(self) -> Future[Outcome | None]:
        """The outcome of the run that goes on, stands or was the last; None if there was none.

        For a host that did not start it: after `runtime.recover()`, or after `send`.
        """
        future: Future[Outcome | None] = Future()
        self._post(WaitOutcome(future))
        return future

    def notify(self, middleware: str, message: Any) -> Future[None]:
        """Hand a message to a middleware of the agent, also while it runs (A7).

        Its hook `on_message` is called, and the values that it returns are merged into the
        agent's. The future settles when they are recorded.

        Args:
            middleware: its name, by default that of its class.
            message: anything; it is not stored.

        """
        future: Future[None] = Future()
        self._post(Notify(middleware, message, future))
        return future

    def compact(self) -> Future[None]:
        """Replace the agent's records by a snapshot of its state, so that it loads fast (J17).

        What happened before cannot be told again afterwards: `events(after=0)` begins with a
        `Gap`. Waits until no run is going on.
        """
        future: Future[None] = Future()
        self._post(Compact(future))
        return future

    # --------------------------------------------------------------------- looking

    def status(self) -> Status:
        """How the agent stands, now. Never waits, and wakes nobody."""
        return self._slot.status

    def state(self) -> Future[AgentState]:
        """The agent's state, between two records."""
        return self._look(lambda activation: activation.state.copied())

    def decisions(self) -> Future[list[DecisionRecord]]:
        """The audit: every answer ever given, oldest first (I14)."""
        return self._look(
            lambda activation: [d for s in activation.state.tree for d in s.decisions]
        )

    def events(self, after: int = 0) -> Subscription:
        """What happened after event number `after`, then what happens, to iterate (A6)."""
        if not isinstance(after, int) or isinstance(after, bool):
            raise UsageError(f"after is the number of an event, not {after!r}")
        return self._slot.subscribe(after)

    def revoke(self, tool: str) -> Future[None]:
        """Take back an answer that was given with `always=True` (I3)."""
        future: Future[None] = Future()
        self._post(RecordFact(Revoked(tool_name=tool), future))
        return future

    def settle(self, call_key: str, *, how: str) -> Future[None]:
        """Somebody found out what a call in doubt did: the doubt is gone (J4)."""
        future: Future[None] = Future()
        self._post(RecordFact(Settled(call_key=call_key, how=how), future))
        return future

    # --------------------------------------------------------------- Pykka's calls

    def tell(self, message: Any) -> None:
        """`send` without an answer."""
        self.send(message)

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """`run`: with `block` it waits for the outcome, else it returns the future."""
        future = self.run(message)
        return future.get(timeout=timeout) if block else future

    def proxy(self) -> Any:
        """Refused: an agent changes by its records alone.

        Raises:
            UsageError: always; the ref has a method for each thing an agent can be asked.

        """
        raise UsageError(f"{self!r} has no proxy: use its own methods, such as run() and state()")

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """Put the agent to rest, once the step in progress is recorded (A5). Nothing is lost.

        The next message wakes it, and it goes on where it stood.

        Returns:
            With `block` True if it was awake, else the future of that.

        """
        if block:
            if self.id in running_agents.get():
                raise WouldDeadlock(what="stop", remedy="use stop(block=False) inside its own run")
            refuse_on_a_loop("stop", "await stop(block=False)")
        future: Future[bool] = Future()
        if self.is_alive() and self._slot.status is not Status.PASSIVE:
            self._post(Passivate(future))
        else:
            future.set(False)
        return future.get(timeout=timeout) if block else future

    def _look(self, what: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._post(Query(future, what))
        return future

    def _post(self, message: AgentMessage) -> None:
        if not self.is_alive():
            raise pykka.ActorDeadError(f"{self!r}: its runtime has stopped")
        self._slot.post(message)


def _check_message_id(given: object) -> None:
    if given is not None and (not isinstance(given, str) or not given):
        raise UsageError(f"message_id is text, not {given!r}")
