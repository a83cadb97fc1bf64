"""`VERBS`: what can be asked of agents, and what each way to ask it must know of each.

The types of the arguments and of the result of a verb are those of its method: of `AgentRef`, of
`Schedules`, or of `Runtime`. From this table come the rows by which hosts of a store call each
other (`hosts.wire`), the calls of a cluster, the actions of the JSON API and of the pages, and the
commands that are plain calls. `tests/actors/test_verbs.py` proves that each way has each verb, or
that the verb says here why not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from understudy.actors.agent import messages
from understudy.actors.agent.messages import AgentMessage
from understudy.state.plans import Occurrence, Schedule

Right = Literal["read", "decide", "act", "admin"]
"""To look; to answer requests; to write to agents and steer them; to export and delete them."""
RIGHTS: frozenset[Right] = frozenset(get_args(Right))

Way = Literal["row", "cluster", "api", "cli", "mcp", "ag_ui"]
"""How a verb is called other than by a ref of this process."""


class Repeat(Enum):
    """Whether a call may be made again where nobody knows whether it was done."""

    ALWAYS = "always"  # it is known by an id, only looks, or comes to the same
    OF_RUN = "of_run"  # if it names its run: it does nothing to a later one. A row names the run
    POSTED = "posted"  # as a row alone, which has an id of its own, or what must be there before
    NEVER = "never"  # nothing tells it from a second call


class Lasts(Enum):
    """How long the host that does a call may take for it."""

    MOMENT = "moment"
    LONG = "long"
    TURN = "turn"  # as long as other runs take: it waits for its turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One verb.

    Args:
        name: its method's name; of a method of `Schedules` with `schedules.` before it.
        right: what a person needs who asks for it from outside of the program.
        message: what an agent gets; None where nobody asks the agent.
        kind: the kind of its rows. Verbs with the same message have the same kind.
        result: what its reply brings, where that is no plain JSON and no run.
        repeat: whether it may be made again.
        of_run: whether it is answered by the outcome of a run, which goes on when the call is done.
        lasts: how long it may take.
        said: what a person is told when it is done.
        lacks: the ways by which it cannot be called, each with the reason.

    """

    name: str
    right: Right
    message: type[AgentMessage] | None = None
    kind: str = ""
    result: Any = Any
    repeat: Repeat = Repeat.ALWAYS
    of_run: bool = False
    lasts: Lasts = Lasts.MOMENT
    said: str = ""
    lacks: Mapping[Way, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def row_kind(self) -> str:
        """The kind of its rows in the store."""
        return self.kind or self.name

    @property
    def method(self) -> str:
        """The name of its method."""
        return self.name.rpartition(".")[2]


_STORE = "any host reads it from the store"
_HERE = "it is about the memory of one process"
_PROGRAM = "only the program that has the agents knows what to give"
_PEOPLE = "a client of MCP is a program, mostly a model: it looks, writes and decides"
_FRONTEND = "a frontend writes, decides and cancels; its events tell the rest"
_DECIDE = "`decide` is enough where nobody waits for the run"
_RUNTIME = "it is about all agents of the store"
_STEERS: Mapping[Way, str] = {"mcp": _PEOPLE, "ag_ui": _FRONTEND}
_PROGRAMS: Mapping[Way, str] = {"api": _PROGRAM, "cli": _PROGRAM, **_STEERS}
_READS: Mapping[Way, str] = {"row": _STORE, "mcp": "`read_history` has it", "ag_ui": _FRONTEND}
_TOKENS: Mapping[Way, str] = {
    "api": "a webhook has its own route: `wait_route`",
    "cli": "who has the token calls `wait_route`",
    **_STEERS,
}
_SCHEDULE: Mapping[Way, str] = {"cli": "the pages have a button for it", **_STEERS}

_PLAN = Schedule | Occurrence | None

_TABLE = (
    Verb(
        name="run", right="act", message=messages.RunRequest, of_run=True, lasts=Lasts.TURN,
        said="the message is recorded",
        lacks={"mcp": "a client does not wait for hours: `send_message`, then `read_history`"},
    ),
    Verb(
        name="send", right="act", message=messages.Send, said="the message is recorded",
        lacks={"ag_ui": "a frontend waits for the run of its message"},
    ),
    Verb(
        name="cancel_message", right="act", message=messages.CancelMessage,
        said="no run takes the message any more", lacks=_STEERS,
    ),
    Verb(
        name="resume", right="decide", message=messages.Resume, of_run=True,
        lacks={"api": _DECIDE, "cli": _DECIDE, "mcp": _DECIDE},
    ),
    Verb(
        name="decide", right="decide", message=messages.Decide,
        lacks={"ag_ui": "a frontend waits for the run: `resume`"},
    ),
    Verb(
        name="cancel", right="act", message=messages.Cancel, repeat=Repeat.OF_RUN, of_run=True,
        said="the run is stopped", lacks={"mcp": _PEOPLE},
    ),
    Verb(
        name="pause", right="act", message=messages.Pause, repeat=Repeat.OF_RUN,
        said="the run pauses after its next model reply", lacks=_STEERS,
    ),
    Verb(
        name="unpause", right="act", message=messages.Unpause, repeat=Repeat.OF_RUN,
        said="the run continues", lacks=_STEERS,
    ),
    Verb(
        name="retry", right="act", message=messages.Retry, repeat=Repeat.OF_RUN, of_run=True,
        said="the run continues where it failed", lacks=_STEERS,
    ),
    Verb(
        name="settle", right="act", message=messages.RecordFact, kind="record",
        said="the doubt is settled", lacks=_STEERS,
    ),
    Verb(
        name="revoke", right="act", message=messages.RecordFact, kind="record",
        said="it is revoked: people are asked again", lacks=_STEERS,
    ),
    Verb(
        name="notify", right="act", message=messages.Notify, repeat=Repeat.NEVER, lasts=Lasts.LONG,
        lacks=_PROGRAMS,
    ),
    Verb(
        name="change_files", right="act", message=messages.ChangeFiles, repeat=Repeat.POSTED,
        lacks=_PROGRAMS,
    ),
    Verb(
        name="compact", right="admin", message=messages.Compact, lasts=Lasts.LONG,
        said="the records are replaced by a snapshot", lacks=_STEERS,
    ),
    Verb(
        name="stop", right="admin", message=messages.Passivate, lasts=Lasts.LONG,
        lacks={"api": _HERE, "cli": _HERE, **_STEERS},
    ),
    Verb(
        name="outcome", right="read", message=messages.WaitOutcome, lasts=Lasts.TURN,
        lacks={"cli": "`run --wait` ends with it", "mcp": "`read_history` has it",
               "ag_ui": _FRONTEND},
    ),
    *(
        Verb(name=name, right="read", lacks=_READS)
        for name in ("info", "state", "decisions", "display", "events")
    ),
    Verb(name="history", right="read", lacks={"row": _STORE, "ag_ui": _FRONTEND}),
    Verb(
        name="display_events", right="read",
        lacks={"row": _STORE, "mcp": "`read_history` has what is recorded"},
    ),
    Verb(
        name="load_blobs", right="read",
        lacks={**_READS, "cli": "an export has them", "mcp": "a client sees no files"},
    ),
    *(
        Verb(
            name=name, right="read",
            lacks={"row": _HERE, "api": _HERE, "cli": _HERE, "mcp": _HERE, "ag_ui": _HERE},
        )
        for name in ("status", "subscribers")
    ),
    Verb(name="schedules.list", right="read", lacks={**_READS, "mcp": _PEOPLE}),
    Verb(
        name="schedules.set", right="act", message=messages.ChangePlans, kind="plans",
        result=_PLAN, lacks=_PROGRAMS,
    ),
    Verb(
        name="schedules.trigger", right="act", message=messages.ChangePlans, kind="plans",
        result=_PLAN, repeat=Repeat.POSTED, lacks=_SCHEDULE,
    ),
    *(
        Verb(
            name=f"schedules.{name}", right="act", message=messages.ChangePlans, kind="plans",
            result=_PLAN, lacks=_SCHEDULE,
        )
        for name in ("pause", "resume", "remove")
    ),
    Verb(
        name="delete", right="admin", message=messages.Delete, lasts=Lasts.LONG,
        said="the agent is deleted", lacks=_STEERS,
    ),
    *(
        Verb(name=name, right="act", message=messages.AnswerWait, kind="answer", lacks=_TOKENS)
        for name in ("resolve", "reject")
    ),
    Verb(name="export", right="admin", lacks={"row": _STORE, **_STEERS}),
    Verb(
        name="import_", right="admin", repeat=Repeat.NEVER, said="it is imported",
        lacks={"row": _RUNTIME, **_STEERS},
    ),
    Verb(name="recover", right="admin", lacks={"row": _RUNTIME, **_STEERS}),
    *(
        Verb(name=name, right="read", lacks={"row": _STORE, "ag_ui": _FRONTEND})
        for name in ("agents", "pending")
    ),
    Verb(name="doubts", right="read", lacks={"row": _STORE, "mcp": _PEOPLE, "ag_ui": _FRONTEND}),
    Verb(
        name="waiting", right="read",
        lacks={"row": _STORE, "api": "each agent's page has its own", "cli": "`show` has an "
               "agent's", "mcp": _PEOPLE, "ag_ui": _FRONTEND},
    ),
    *(
        Verb(name=name, right="read", lacks={**_READS, "cli": "`ls` has it", "mcp": _PEOPLE})
        for name in ("count", "now")
    ),
)  # fmt: skip
VERBS: Mapping[str, Verb] = MappingProxyType({verb.name: verb for verb in _TABLE})
"""The verbs by their names."""
VERB_OF: Mapping[type[AgentMessage], Verb] = MappingProxyType(
    {verb.message: verb for verb in reversed(_TABLE) if verb.message is not None}
)
"""A verb by its message: what a row needs to know is the same for all verbs with that message."""
ROWS: Mapping[str, Verb] = MappingProxyType({verb.row_kind: verb for verb in VERB_OF.values()})
"""The same verbs by the kinds of their rows."""


class Arguments(BaseModel):
    """The arguments of a call, by their names."""

    model_config = ConfigDict(extra="forbid")


@cache
def arguments_of(method: Callable[..., Any], *without: str) -> type[Arguments]:
    """The arguments of a method as a Pydantic model, from its signature.

    Args:
        method: a function of a class.
        without: names of arguments that the model does not take.

    """
    parameters = list(inspect.signature(method).parameters.values())[1:]
    hints = get_type_hints(method)
    fields: dict[str, Any] = {
        each.name: (hints[each.name], ... if each.default is each.empty else each.default)
        for each in parameters
        if each.name not in without
    }
    name = f"{method.__name__.title().replace('_', '')}Body"
    made: type[Arguments] = create_model(name, __base__=Arguments, __doc__=None, **fields)
    return made
