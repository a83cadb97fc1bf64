"""The frames between two processes of one machine."""

from __future__ import annotations

import dataclasses
import json
import pickle  # both ends are processes of one user, with one store and one version: see `Greeting`
from functools import partial
from typing import Any, NamedTuple

from understudy._base.json_values import text_of
from understudy.errors import UsageError
from understudy.outcomes import Outcome
from understudy.state.agent_state import AgentState
from understudy.state.loaded_later import LoadedLater

MOST_MESSAGES = 500
"""The most messages of a conversation that is sent with an outcome. A longer conversation is read
from the store, in pieces: so many messages hold the loop for 6 ms."""
MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of an outcome that is sent. A larger outcome is read from the store."""


class Greeting(NamedTuple):
    """The first frame of each end. It is JSON: nothing of an unknown end is unpickled."""

    library: str
    """The version of this library and of its frames."""
    host_id: int
    """The number of the host that sends it."""
    pid: int
    """The process id of that host."""
    proof: str
    """The HMAC that shows that the sender knows the secret of the store."""

    def dump(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def read(cls, frame: bytes) -> Greeting:
        """Read the greeting in a frame.

        Raises:
            ValueError: if it is none.

        """
        given = json.loads(frame)
        if not isinstance(given, list) or list(map(type, given)) != [str, int, int, str]:
            raise ValueError("it is no greeting")
        return cls(*given)


class About(NamedTuple):
    """Describes the host that sends it. It is sent again whenever the description changes."""

    definitions: str
    """A hash of the definitions and labels of the host: equal hosts can run the same agents."""
    is_closed: bool
    """Whether the host takes no agents."""


class Call(NamedTuple):
    """Asks the other end to make a call of one of its agents."""

    number: int
    """The number of the call, by which later frames name it."""
    sent_at: float
    """The time at which the call was sent, in seconds of the machine's monotonic clock."""
    seen: int
    """The number of refusals by the other end that the sender knew when it sent the call."""
    agent_id: str
    agent: str | None
    """The name of the definition with which the call spawns the agent; None if it spawns none."""
    values: dict[str, Any] | None
    """The values with which the call spawns the agent."""
    kind: str
    """The kind of the message, as `hosts.wire` names it."""
    body: bytes
    """The body of the message, as `hosts.wire` makes it."""
    is_for_owner: bool
    """Whether the call is dropped unless the agent is in the memory of the other end."""


class Note(NamedTuple):
    """The run that a call was found to be for, before it is answered; see `CallNotes.on_run`."""

    number: int
    run_id: str | None
    """The id of the run that the call is for; None if the call's message is in the queue."""
    retries: str | None
    message_id: str | None
    incarnation: int | None
    seq: int
    """The number of the agent's newest record when the run was noted."""


class Answered(NamedTuple):
    """The reply to a call."""

    number: int
    reply: bytes
    """The reply as JSON, as a row in the store has it."""


class HasOutcome(NamedTuple):
    """The outcome of a run that a call waited for."""

    number: int
    outcome: bytes
    state: bytes
    """The state of the outcome, pickled on its own: most callers read nothing of it."""

    def read(self) -> Outcome:
        """The outcome in this frame. Its state is read when it is first used."""
        outcome: Outcome
        outcome, seq = pickle.loads(self.outcome)  # noqa: S301  # see the import
        assert isinstance(outcome.state, LoadedLater), "it is sent so"
        outcome.state.load_by(partial(_loaded, self.state))
        object.__setattr__(outcome, "_seq", seq)
        return outcome


class Refused(NamedTuple):
    """Tells that a call was not done: the agent is not at this host, or no longer."""

    number: int
    is_begun: bool
    """Whether the call was begun before the agent was lost."""


class Hinted(NamedTuple):
    """Carries a hint of a host to another: a `journal.shared.Hint` as text."""

    text: str


class Asked(NamedTuple):
    """Asks the other end to say that it is there."""


class There(NamedTuple):
    """Says that this end is there, in answer to `Asked`."""


def dump(frame: object) -> bytes:
    return pickle.dumps(frame, protocol=pickle.HIGHEST_PROTOCOL)


def load(frame: bytes) -> Any:
    return pickle.loads(frame)  # noqa: S301  # see the import


def outcome_frame(number: int, outcome: Outcome) -> HasOutcome | None:
    """The frame of an outcome; None if the other end must read the outcome from the store.

    There its state is long, or a tool has returned what cannot be sent.
    """
    state: AgentState = outcome.state
    if sum(len(each.messages) for each in state.tree) > MOST_MESSAGES:
        return None
    later = LoadedLater((outcome.run_id, outcome._seq, state.status))
    try:
        bare = dump((dataclasses.replace(outcome, state=later), outcome._seq))
        frame = HasOutcome(number, bare, dump(state))
    except Exception:  # the methods of an object in it may raise anything
        return None
    return frame if len(frame.outcome) + len(frame.state) <= MOST_BYTES else None


def _loaded(state: bytes, _place: object) -> AgentState:
    try:
        found: AgentState = load(state)
    except Exception as error:
        what = f"the state of an outcome cannot be read in this process: {text_of(error)}"
        raise UsageError(what) from error
    return found
