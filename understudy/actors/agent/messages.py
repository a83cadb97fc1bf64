"""The messages that an agent's actor handles. `AgentRef` puts them into the agent's inbox."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic

from typing_extensions import TypeVar

from understudy._base.authors import By, Login
from understudy._base.context_codecs import Context
from understudy.actors.agent.planner import PlanChange
from understudy.agent.agent import Agent
from understudy.agent.decisions import Decisions
from understudy.agent.run_environment import RunOptions
from understudy.approvals import Voter
from understudy.errors import OtherAgent
from understudy.loop_actors.future import Future
from understudy.run.waits.answers import Answer
from understudy.state.agent_state import AgentState
from understudy.state.files import StoredFile
from understudy.state.plans import RunChoices
from understudy.state.records import FilesChanged, MessageQueued, ReviewClosed, Revoked, Settled
from understudy.stopping import StopSignal

T = TypeVar("T")
AgentKey = tuple[object, str]
"""An agent of one of this process's runtimes: the runtime's services, and the agent's id."""


class RunFuture(Future[T]):
    """A future that gets the outcome of a `run`. The id of its message is known at once.

    Args:
        message_id: of the message.
        loop: of the runtime.

    """

    message_id: str
    """The id of the message. Any process can ask for the outcome: `outcome(message_id=...)`."""

    def __init__(self, message_id: str, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__(loop)
        self.message_id = message_id

    def beside(self) -> RunFuture[Any]:
        """Return a pending future with the id of the same message."""
        return RunFuture(self.message_id, self._loop)


class AgentMessage:
    """A request to an agent, as plain data: it may go to another host."""

    __slots__ = ()


def options_of(choices: RunChoices, agent: Agent) -> RunOptions:
    """The options of a run by what its caller has chosen, checked against the agent's definition.

    Raises:
        UsageError: as `Agent.execute` does.

    """
    names, needs_success = choices.until_tool, choices.require_tool_success
    return agent.run_options(
        None if needs_success else names,
        names if needs_success else None,
        choices.max_runs,
        choices.deadline,
        choices.early_stopping_prompt,
        force=choices.force,
        ends_at=choices.ends_at,
    )


@dataclass(frozen=True, slots=True)
class Send(AgentMessage):
    """Queue a message. A second message with the same id is not queued again."""

    queued: MessageQueued
    """The record by which the message is queued."""

    @property
    def message_id(self) -> str:
        return self.queued.message_id


@dataclass(frozen=True, slots=True)
class RunRequest(Send):
    """Run the agent on a message. The future resolves to the outcome.

    A second one with the same id waits for the run of the first one.
    """

    refuse_if_interrupted: bool = False
    callers: tuple[AgentKey, ...] = ()
    """The agents in whose runs this run was requested. They wait for this run."""


@dataclass(frozen=True, slots=True)
class CancelMessage(AgentMessage):
    """Cancel a message that no run has taken yet; the future resolves to whether it was there."""

    message_id: str
    by: By | None = None
    """The person who asks for the cancellation; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class ChangePlans(AgentMessage):
    """Change the schedules of the agent; the future resolves to what `change` returns."""

    change: PlanChange


@dataclass(frozen=True, slots=True)
class Decide(AgentMessage):
    """Record decisions, and continue the run. The future settles once they are recorded."""

    decisions: Decisions
    expect: dict[str, str] | None = None
    """The digest of the request that the person saw, by request id."""
    context: Context = field(default_factory=dict)
    """The context of the caller: values by the names of their codecs."""
    voters: dict[str, Voter] = field(default_factory=dict)
    """The persons who decide, by the names in the decisions; empty without `Runtime(people=)`."""
    login: Login | None = None
    """The login of the person who decides, if it says more than the name in the decisions."""


@dataclass(frozen=True, slots=True)
class Resume(Decide):
    """Record decisions, and continue the run. The future resolves to the outcome."""


@dataclass(frozen=True, slots=True)
class WaitOutcome(AgentMessage):
    """Wait for the outcome of the current or the last run, or of the run of a message."""

    message_id: str | None = None
    run_id: str | None = None
    """The id of the run that is waited for; None for the current or last run."""
    incarnation: int | None = None
    """The incarnation of the agent with the run; None: the agent's when the wait begins."""
    at: int | None = None
    """The number of the record at which the outcome was there; None: the first outcome."""
    is_look: bool = False
    """Whether the wait activates no agent: the store answers if the agent is not in memory."""
    by: str | None = None
    """The person who has the agent recovered by this wait; None where nobody is named."""


NO_MESSAGE = ""
"""The `message_id` of a cancellation that is for no run: no message has this id."""


@dataclass(frozen=True, slots=True)
class Cancel(AgentMessage):
    """Stop the current run."""

    signal: StopSignal
    run_id: str | None = None
    """The id of the only run to stop, if it is open; None: whatever run is open."""
    message_id: str | None = None
    """The id of the message whose run is stopped; `run_id` counts for None, or before a run takes
    it."""


@dataclass(frozen=True, slots=True)
class OfRun(AgentMessage):
    """A request about one run."""

    run_id: str | None = None
    """The id of the run; None for the run that is open when the request arrives."""
    by: By | None = None
    """The person who makes the request; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class Pause(OfRun):
    """Pause the run after its next model reply."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unpause(OfRun):
    """Continue a paused run."""


@dataclass(frozen=True, slots=True)
class Retry(OfRun):
    """Release a quarantined run, and continue it; or begin a run that continues a failed one.

    Of the run with `run_id`, which is quarantined or has failed; None: of the open run, or of the
    last one where none is open.
    """


@dataclass(frozen=True, slots=True)
class Query(AgentMessage):
    """Read something of the state between two messages. It is a look: it activates no agent."""

    what: Callable[[AgentState], Any]


@dataclass(frozen=True, slots=True)
class Notify(AgentMessage):
    """Pass a message to a middleware of the agent."""

    middleware: str
    message: Any


@dataclass(frozen=True, slots=True)
class Passivate(AgentMessage):
    """Passivate the agent once the step in progress is recorded."""


@dataclass(frozen=True, slots=True)
class Compact(AgentMessage):
    """Passivate the agent, and replace its records by a snapshot."""

    by: str | None = None
    """The person who asks for the compaction; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class Delete(AgentMessage):
    """Cancel the current run, passivate the agent, and delete it from the store."""

    signal: StopSignal
    by: str | None = None
    """The person who asks for the deletion; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class RecordFact(AgentMessage):
    """Record that a grant is revoked, a doubt settled, or a review closed."""

    fact: Revoked | Settled | ReviewClosed
    voter: Voter | None = None
    """The person who settles a doubt; None without a name, or without `Runtime(people=)`."""


@dataclass(frozen=True, slots=True)
class ChangeFiles(AgentMessage):
    """Record that the application has changed files."""

    fact: FilesChanged
    blobs: Mapping[str, bytes]
    """The bytes to keep of the changed files, by hash."""
    expected: Mapping[str, StoredFile | None]
    """The files that must be at these paths now, by path; None for no file."""


@dataclass(frozen=True, slots=True)
class CheckDue(AgentMessage):
    """Record everything that is due: of requests, waits, the run, messages and schedules."""

    reached: datetime | None = None
    """A due time that has come, whatever the clock says: the clock was set back meanwhile."""


@dataclass(frozen=True, slots=True)
class AnswerWait(AgentMessage):
    """Record an answer for the wait with this token; None if the token is not known here."""

    token_hash: str
    answer: Answer
    given: GivenToken | None = None
    """How the token was given; None if another host has looked at it."""
    voter: Voter | None = None
    """The person who gives the answer, where it settles a doubt about which requesters must not
    decide; None where the person was not looked up."""


@dataclass(slots=True, eq=False)
class GivenToken:
    """A token that a caller gave, and that may be a guess: that activates no agent."""

    is_checked: bool = False
    """Whether the store was asked who has made the token."""


@dataclass(slots=True)
class Expectation:
    """What the caller of an agent expects of it, such as a ref that a `spawn` made."""

    name: str
    """The name of the expected definition. The store's is known only once the agent is read."""
    is_met: bool = False
    """Whether the agent had the expected definition. From then on the ref addresses the id
    alone."""

    def check(self, agent_id: str, name: str) -> None:
        """Check that the agent of this id, whose definition has this name, is the expected one.

        Raises:
            OtherAgent: if it is not.

        """
        if not self.is_met and name != self.name:
            raise OtherAgent(agent_id=agent_id, agent=name, wanted=self.name)
        self.is_met = True


class CallNotes:
    """Notes what becomes of a call before it is answered. This class notes nothing.

    A call that may be made again, here or at another host, is known by what was noted of it.
    """

    def on_run(
        self, run_id: str, retries: str | None = None, message_id: str | None = None
    ) -> None:
        """Note that the call is for this run, or waits for it.

        Args:
            run_id: of the run. Its beginning may not be durable yet.
            retries: the run that this one continues.
            message_id: of a message that the run has taken, if it has one.

        """

    def on_queued(self) -> None:
        """Note that the call is a `run` whose message is recorded in the queue of its agent."""

    def on_begun(self) -> None:
        """Note that the call may have been done from now on."""

    def on_handled(self) -> None:
        """Note that the agent has begun with what the call asks for."""


_NO_NOTES = CallNotes()


M = TypeVar("M", bound=AgentMessage, default=Any)


@dataclass(slots=True, eq=False)
class AgentCall(Generic[M]):
    """A message in the inbox of an agent, and who waits for what comes of it."""

    message: M
    future: Future[Any]
    """The future that gets the answer."""
    expectation: Expectation | None = None
    """What the agent must be, else the call is refused."""
    notes: CallNotes = _NO_NOTES
    was_elsewhere: bool = False
    """Whether other hosts may have gone on with the agent since the call was made."""
    number: float = math.inf
    """The number of a call that another host has posted, which is the order of these calls."""
    needs_deps: bool = False
    """Whether the agent was spawned with deps at the host that posted the call, where they stay."""

    @property
    def is_look(self) -> bool:
        """Whether the call activates no agent: the store answers if the agent is not in memory."""
        message = self.message
        return isinstance(message, Query) or (isinstance(message, WaitOutcome) and message.is_look)

    @property
    def is_guess(self) -> bool:
        """Whether the call comes with a token that may be a guess."""
        given = self.message.given if isinstance(self.message, AnswerWait) else None
        return given is not None and not given.is_checked

    @property
    def callers(self) -> tuple[AgentKey, ...]:
        """The agents in whose runs the caller of this call waits."""
        return self.message.callers if isinstance(self.message, RunRequest) else ()


Handler = Callable[[Any, AgentCall], None]
"""A function that does what the message of a call asks of the agent of a slot. It answers the call,
or has the caller wait for what follows."""
HANDLERS: dict[type[AgentMessage], Handler] = {}
"""The handler of each kind of message, by its type."""
H = TypeVar("H", bound=Callable[..., None])


def handles(*messages: type[AgentMessage]) -> Callable[[H], H]:
    """Make a function the handler of messages."""

    def make_handler(function: H) -> H:
        HANDLERS.update(dict.fromkeys(messages, function))
        return function

    return make_handler
