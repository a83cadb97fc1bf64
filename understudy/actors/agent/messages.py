"""The messages that an agent's actor handles. `AgentRef` puts them into the agent's inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from understudy._base.context_codecs import Context
from understudy.actors.agent.factory import MadeAtActivation
from understudy.actors.agent.planner import PlanChange
from understudy.agent.agent import Agent
from understudy.agent.decisions import Decisions
from understudy.agent.run_environment import RunOptions
from understudy.approvals import Voter
from understudy.errors import OtherAgent
from understudy.loop_actors.future import Future
from understudy.models.messages import StoredRequest
from understudy.outcomes import Outcome
from understudy.run.waits.answers import Answer
from understudy.state.agent_state import AgentState
from understudy.state.files import StoredFile
from understudy.state.plans import RunChoices
from understudy.state.records import FilesChanged, Revoked, Settled
from understudy.stopping import StopSignal

OnRun: TypeAlias = Callable[[str], None] | None
OnRetried: TypeAlias = Callable[[str, str], None] | None
T = TypeVar("T")
AgentKey = tuple[object, str]
"""An agent of one of this process's runtimes: the runtime's services, and the agent's id."""


class RunFuture(Future[T]):
    """The outcome of a `run`, when it is there. The id of its message is there at once.

    Args:
        message_id: of the message.
        loop: of the runtime.

    """

    message_id: str
    """By `outcome(message_id=...)` any process can ask what became of the run."""

    def __init__(self, message_id: str, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__(loop)
        self.message_id = message_id


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Run the agent; the future resolves to the outcome."""

    message: StoredRequest
    choices: RunChoices
    future: Future[Outcome]
    message_id: str
    """A second request with the same id waits for the run of the first one."""
    refuse_if_interrupted: bool = False
    callers: tuple[AgentKey, ...] = ()
    """The agents in whose runs this was requested. They wait for this run."""
    on_run: OnRun = None
    """Gets the id of its run when that begins."""
    on_queued: Callable[[], None] | None = None
    """Called when its message is recorded in the queue."""
    context: Context = field(default_factory=dict)
    """Of the caller."""
    was_elsewhere: bool = False
    """Other hosts may have gone on with the agent since it was sent."""
    by: str | None = None
    """The person who asks for it; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class Send:
    """Queue a message."""

    message: StoredRequest
    message_id: str
    steer: bool
    self_sent: bool
    future: Future[str]
    due: datetime | None = None
    context: Context = field(default_factory=dict)
    """Of the caller."""
    was_elsewhere: bool = False
    """As of `RunRequest`."""
    by: str | None = None
    """The person who asks for it; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class CancelMessage:
    """Cancel a message that no run has taken yet; the future resolves to whether it was there."""

    message_id: str
    future: Future[bool]
    by: str | None = None
    """The person who asks for it; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class ChangePlans:
    """Change the schedules of the agent; the future resolves to what `change` returns."""

    change: PlanChange
    future: Future[Any]


@dataclass(frozen=True, slots=True)
class Resume:
    """Record decisions, and continue the run."""

    decisions: Decisions
    future: Future[Outcome]
    expect: dict[str, str] | None = None
    """By request id, the digest of what was shown."""
    context: Context = field(default_factory=dict)
    """Of the caller."""
    voters: dict[str, Voter] = field(default_factory=dict)
    """The persons who decide, by the names in the decisions; empty without `Runtime(people=)`."""


@dataclass(frozen=True, slots=True)
class Decide:
    """As `Resume`, answered once the decisions are recorded."""

    decisions: Decisions
    expect: dict[str, str] | None
    future: Future[None]
    context: Context = field(default_factory=dict)
    """Of the caller."""
    voters: dict[str, Voter] = field(default_factory=dict)
    """The persons who decide, by the names in the decisions; empty without `Runtime(people=)`."""


@dataclass(frozen=True, slots=True)
class WaitOutcome:
    """Wait for the outcome of the current or the last run, or of the run of a message."""

    future: Future[Any]
    message_id: str | None = None
    run_id: str | None = None
    """Of this run; None: of the current or last one."""
    incarnation: int | None = None
    """Of the agent that has the run; None: of the one that there is when the wait begins."""
    at: int | None = None
    """The number of the record at which the outcome was there; None: whichever comes first."""
    is_look: bool = False
    """It activates no agent: the store answers where the agent is not in memory."""
    by: str | None = None
    """The person who has the agent recovered by it; None where nobody is named."""


NO_MESSAGE = ""
"""The `message_id` of a cancellation that is for no run: no message has this id."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop the current run."""

    signal: StopSignal
    future: Future[Outcome | None]
    run_id: str | None = None
    """Only this run, if it is the open one; None: whatever run is open."""
    on_run: OnRun = None
    """Gets the id of the run that it is for."""
    message_id: str | None = None
    """Only the run that takes this message, or `run_id` before that; None: as `run_id` says."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause the run after its next model reply."""

    reason: str
    future: Future[None]
    run_id: str | None = None
    """As of `Cancel`."""
    on_run: OnRun = None
    """As of `Cancel`."""
    by: str | None = None
    """The person who asks for it; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class Unpause:
    """Continue a paused run."""

    future: Future[None]
    run_id: str | None = None
    """As of `Cancel`."""
    on_run: OnRun = None
    """As of `Cancel`."""
    by: str | None = None
    """The person who asks for it; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Release a quarantined run, and continue it; or begin a run that continues a failed one."""

    future: Future[Outcome]
    run_id: str | None = None
    """The id of the run to retry, which is quarantined or has failed. None: the open run, or the
    last one where none is open."""
    on_run: OnRun = None
    """As of `Cancel`."""
    on_retried: OnRetried = None
    """Gets the ids of the run that failed, and of the one that begins and continues it."""
    by: str | None = None
    """The person who asks for it; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class Query:
    """Read something of the state between two messages. It is a look: it activates no agent."""

    future: Future[Any]
    what: Callable[[AgentState], Any]


@dataclass(frozen=True, slots=True)
class Notify:
    """Pass a message to a middleware of the agent."""

    middleware: str
    message: Any
    future: Future[None]
    on_begun: Callable[[], None] | None = None
    """Called before it is passed on: from then on it may have been done."""


@dataclass(frozen=True, slots=True)
class Passivate:
    """Passivate the agent once the step in progress is recorded."""

    future: Future[bool]


@dataclass(frozen=True, slots=True)
class Compact:
    """Passivate the agent, and replace its records by a snapshot."""

    future: Future[None]
    by: str | None = None
    """The person who asks for it; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Cancel the current run, passivate the agent, and delete it from the store."""

    signal: StopSignal
    future: Future[bool]
    by: str | None = None
    """The person who asks for it; None where nobody is named."""


@dataclass(frozen=True, slots=True)
class RecordFact:
    """Record that a grant is revoked, or a doubt settled."""

    fact: Revoked | Settled
    future: Future[None]


@dataclass(frozen=True, slots=True)
class ChangeFiles:
    """Record that the application has changed files."""

    fact: FilesChanged
    blobs: Mapping[str, bytes]
    """What is to be kept of them, by hash."""
    expected: Mapping[str, StoredFile | None]
    """What these paths must be now."""
    future: Future[None]


@dataclass(frozen=True, slots=True)
class CheckDue:
    """Record what is due by now: of requests, waits and the run, of messages and schedules."""

    future: Future[None]
    reached: datetime | None = None
    """A due time that has come, whatever the clock says: it was set back meanwhile."""


@dataclass(frozen=True, slots=True)
class AnswerWait:
    """Record an answer for the wait with this token; None where it is not known here."""

    token_hash: str
    answer: Answer
    future: Future[bool | None]
    given: GivenToken | None = None
    """How its token was given; None where another host has looked at that."""


@dataclass(slots=True, eq=False)
class GivenToken:
    """A token that a caller gave, and that may be a guess: that activates no agent."""

    is_checked: bool = False
    """Whether the store was asked who has made it."""


@dataclass(slots=True)
class Expectation:
    """What a ref that a `spawn` made expects of the agent of its id."""

    agent: Agent | MadeAtActivation
    """The definition. Whether the store has another one is known only once the agent is read."""
    is_met: bool = False
    """The agent had that definition: from now on the ref addresses the id, as any other."""

    def check(self, agent_id: str, name: str) -> None:
        """Check that the agent of this id, whose definition has this name, is the one.

        Raises:
            OtherAgent: if it is not.

        """
        if not self.is_met and name != self.agent.name:
            raise OtherAgent(agent_id=agent_id, agent=name, wanted=self.agent.name)
        self.is_met = True


@dataclass(frozen=True, slots=True)
class Expecting:
    """A message to the agent only if it has the definition that its ref was spawned with."""

    expectation: Expectation
    message: AgentMessage

    @property
    def future(self) -> Future[Any]:
        return self.message.future


@dataclass(frozen=True, slots=True)
class FromHost:
    """A message that another host has posted."""

    message: AgentMessage
    accepted: Future[Any]
    """Settles when what the message asks for is recorded: to what that host is told."""
    expects: str | None = None
    """The definition that the agent must have for it."""
    number: int = 0
    """Those of one agent are done in the order of their numbers."""
    needs_deps: bool = False
    """At that host the agent was spawned with deps, which stay there."""

    @property
    def future(self) -> Future[Any]:
        return self.accepted


AgentMessage = (
    RunRequest
    | Send
    | CancelMessage
    | ChangePlans
    | Resume
    | Decide
    | WaitOutcome
    | Cancel
    | Pause
    | Unpause
    | Retry
    | Query
    | Notify
    | Passivate
    | Compact
    | Delete
    | RecordFact
    | ChangeFiles
    | CheckDue
    | AnswerWait
    | Expecting
    | FromHost
)


def asked_in(message: AgentMessage) -> AgentMessage:
    """The message inside those that say which host posted it and what it expects of the agent."""
    while isinstance(message, Expecting | FromHost):
        message = message.message
    return message


def is_guess(message: AgentMessage) -> bool:
    """Whether a message comes with a token that may be a guess."""
    given = message.given if isinstance(message, AnswerWait) else None
    return given is not None and not given.is_checked


def query_in(message: AgentMessage) -> tuple[Query | WaitOutcome, Expectation | None] | None:
    """The look that a message is, and what it expects of the agent; None if it is no look."""
    expectation: Expectation | None = None
    while isinstance(message, Expecting):
        expectation, message = message.expectation, message.message
    if isinstance(message, Query) or (isinstance(message, WaitOutcome) and message.is_look):
        return message, expectation
    return None
