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
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, cast, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from understudy.actors.agent import messages as m
from understudy.actors.agent.messages import AgentMessage
from understudy.state.plans import Occurrence, Schedule

Right = Literal["read", "decide", "act", "admin", "budget", "freeze", "impersonate"]
"""A right of a user, by its name.

- `read`: look at everything.
- `decide`: answer requests.
- `act`: write to agents and steer them.
- `admin`: export, compact and delete agents.
- `budget`: raise budgets.
- `freeze`: freeze and thaw.
- `impersonate`: do any of this in the name of another person, which is recorded.
"""
RIGHTS: frozenset[Right] = frozenset(get_args(Right))
USUAL_RIGHTS: frozenset[Right] = RIGHTS - {"impersonate"}
"""The rights of a user who may do everything, in their own name."""

Way = Literal["row", "cluster", "api", "cli", "mcp", "ag_ui"]
"""The way in which a verb is called other than by a ref of this process."""


class Repeat(Enum):
    """Whether a call may be made again where nobody knows whether it was done."""

    ALWAYS = "always"  # it is known by an id, only looks, or comes to the same
    OF_RUN = "of_run"  # if it names its run: it does nothing to a later one. A row names the run
    POSTED = "posted"  # as a row alone, which has an id of its own, or what must be there before
    NEVER = "never"  # nothing tells it from a second call


_WHY: Mapping[str, str] = {
    "row": "any host reads it from the store",
    "api": "only the program that has the agents knows what to give",
    "cli": "only the program that has the agents knows what to give",
    "mcp": "a client of MCP is a program, mostly a model: it looks, writes and decides",
    "ag_ui": "a frontend writes, decides and cancels; its events tell the rest",
}
"""The usual reason why a verb lacks a way, by the way."""


def _without(*ways: Way, **reasons: str) -> Mapping[Way, str]:
    """The ways that a verb lacks, by way, for the usual reasons or for given reasons."""
    return cast("Mapping[Way, str]", {**{way: _WHY[way] for way in ways}, **reasons})


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: something that can be asked of agents, and what each way to ask it must know.

    Args:
        name: its method's name; of a method of `Schedules` with `schedules.` before it.
        right: what a person needs who asks for it from outside of the program.
        message: what an agent gets; None where nobody asks the agent.
        lacks: the ways by which it cannot be called, each with the reason.
        repeat: whether it may be made again.
        is_long: whether the host that does it may need more than a moment.
        of_run: whether it is answered by the outcome of a run, which goes on when the call is done.
        kind: the kind of its rows; its name by default. Verbs with one message have one kind.
        result: what its reply brings, where that is no plain JSON and no run.
        is_list: whether it is a list, which is read in pages.
        plain: whether pages, API and command line call it by its arguments alone.
        said: what a person is told when it is done.
        unsigned: why it does not say who did it (`by=`), though it is more than a look.

    """

    name: str
    right: Right
    message: type[AgentMessage] | None = None
    lacks: Mapping[Way, str] = field(default_factory=lambda: _without("mcp", "ag_ui"))
    repeat: Repeat = Repeat.ALWAYS
    _: KW_ONLY
    is_long: bool = False
    of_run: bool = False
    kind: str = ""
    result: Any = Any
    is_list: bool = False
    plain: bool = False
    said: str = ""
    unsigned: str = ""

    @property
    def row_kind(self) -> str:
        """The kind of the verb's rows in the store."""
        return self.kind or self.name

    @property
    def is_signed(self) -> bool:
        """Whether the verb takes `by`: the person who asks, whom a record or a log names."""
        return self.name == "export" or (self.right != "read" and not self.unsigned)

    @property
    def method(self) -> str:
        """The name of the verb's method."""
        return self.name.rpartition(".")[2]


_IN_MEMORY = _without(**dict.fromkeys(("api", "cli", "mcp", "ag_ui"), "it is about one process"))
_HERE: Mapping[Way, str] = {**_IN_MEMORY, "row": "it is about one process"}
_READS = _without("row", "ag_ui", mcp="`read_history` has it")
_PROGRAM = _without("api", "cli", "mcp", "ag_ui")
_DECIDES = dict.fromkeys(("api", "cli", "mcp"), "`decide` is enough where nobody waits for the run")
_WEBHOOK = _without("mcp", "ag_ui", api="a webhook calls `wait_route`", cli="as of `api`")
_TRUST = _without("mcp", "ag_ui", row="the store has it for all hosts")
_BESIDE = _without("mcp", "ag_ui", row="it is written beside the request, and no agent is asked")
_SIGNED = "each of the decisions has its own `by`"
_OWN = "the program itself does it: no person can ask for it from outside"
_HOLDER = "who has the token answers: nobody is logged in, and the program may say who it is"
_LIST: dict[str, Any] = {"is_list": True}
_PLAN: dict[str, Any] = {"kind": "plans", "result": Schedule | Occurrence | None}

_TABLE = (
    Verb("run", "act", m.RunRequest, _without(mcp="a client does not wait for hours: it sends"),
         of_run=True, said="the message is recorded"),
    Verb("send", "act", m.Send, _without(ag_ui="a frontend waits for the run of its message"),
         said="the message is recorded"),
    Verb("cancel_message", "act", m.CancelMessage,
         plain=True, said="no run takes the message any more"),
    Verb("resume", "decide", m.Resume, _without(**_DECIDES), of_run=True,
         unsigned=_SIGNED),
    Verb("decide", "decide", m.Decide, _without(ag_ui="a frontend waits for the run: `resume`"),
         unsigned=_SIGNED),
    Verb("cancel", "act", m.Cancel, _without("mcp"), Repeat.OF_RUN, of_run=True,
         plain=True, said="the run is stopped"),
    Verb("pause", "act", m.Pause, repeat=Repeat.OF_RUN,
         plain=True, said="the run pauses after its next model reply"),
    Verb("unpause", "act", m.Unpause, repeat=Repeat.OF_RUN, plain=True, said="the run continues"),
    Verb("retry", "act", m.Retry, repeat=Repeat.OF_RUN, of_run=True,
         plain=True, said="the run continues where it failed"),
    Verb("settle", "act", m.RecordFact, kind="record", plain=True, said="the doubt is settled"),
    Verb("revoke", "act", m.RecordFact, kind="record",
         plain=True, said="it is revoked: people are asked again"),
    Verb("close_review", "decide", m.RecordFact, kind="record", plain=True,
         said="the review is closed"),
    Verb("notify", "act", m.Notify, _PROGRAM, Repeat.NEVER, is_long=True, unsigned=_OWN),
    Verb("change_files", "act", m.ChangeFiles, _PROGRAM, Repeat.POSTED, unsigned=_OWN),
    Verb("compact", "admin", m.Compact, is_long=True,
         plain=True, said="the records are replaced by a snapshot"),
    Verb("delete", "admin", m.Delete, is_long=True, said="the agent is deleted"),
    Verb("stop", "admin", m.Passivate, _IN_MEMORY, is_long=True,
         unsigned="it changes nothing of the agent"),
    Verb("outcome", "read", None, _without("row", "ag_ui", cli="`run --wait` ends with it",
         mcp="`read_history` has it")),
    *(Verb(name, "read", None, _READS) for name in ("info", "state", "display")),
    Verb("events", "read", None, _without("row", mcp="`read_history` has it")),
    Verb("queue", "read", None, {**_READS, "api": "the page of its agent has it",
         "cli": "`show` has it"}),
    Verb("decisions", "read", None, _READS),
    Verb("display_events", "read", None, _without("row", mcp="a client follows nothing",
         ag_ui="its own events are made of `events`")),
    Verb("history", "read", None, _without("row", "ag_ui")),
    Verb("load_blobs", "read", None, _without("row", "mcp", "ag_ui", cli="an export has them")),
    *(Verb(name, "read", None, _HERE) for name in ("status", "subscribers")),
    Verb("schedules.list", "read", None, _without("row", "mcp", "ag_ui")),
    Verb("schedules.set", "act", m.ChangePlans, _PROGRAM, **_PLAN),
    Verb("schedules.trigger", "act", m.ChangePlans, repeat=Repeat.POSTED, **_PLAN),
    Verb("schedules.pause", "act", m.ChangePlans, **_PLAN),
    Verb("schedules.resume", "act", m.ChangePlans, **_PLAN),
    Verb("schedules.remove", "act", m.ChangePlans, **_PLAN),
    Verb("resolve", "act", m.AnswerWait, _WEBHOOK, kind="answer", unsigned=_HOLDER),
    Verb("reject", "act", m.AnswerWait, _WEBHOOK, kind="answer", unsigned=_HOLDER),
    Verb("take", "decide", None, _BESIDE, said="it is yours for now"),
    Verb("comment", "decide", None, _BESIDE, said="the comment is written"),
    Verb("snooze", "decide", None, _BESIDE, said="you do not see it until then"),
    Verb("assign", "decide", None, _BESIDE, said="it is assigned"),
    Verb("notes", "read", None, _BESIDE),
    Verb("delegate", "decide", None, _TRUST, said="it is delegated"),
    Verb("end_delegation", "decide", None, _TRUST, said="the delegation has ended"),
    *(Verb(name, "read", None, _TRUST) for name in ("delegations", "administration")),
    Verb("budgets", "read", None, _TRUST),
    Verb("raise_budget", "budget", None, _TRUST, said="the budget is raised"),
    Verb("vote", "decide", None, _TRUST, said="the vote is recorded", unsigned=_SIGNED),
    Verb("freeze", "freeze", None, _TRUST, said="nothing of it begins any more"),
    Verb("thaw", "freeze", None, _TRUST, said="what waited begins"),
    Verb("freezes", "read", None, _TRUST),
    Verb("require", "admin", None, _TRUST, said="it is set"),
    Verb("required", "read", None, _TRUST),
    Verb("export", "admin", None, _without("row", "mcp", "ag_ui")),
    Verb("import_", "admin", None, _without("mcp", "ag_ui", row="no host has the agent yet"),
         Repeat.NEVER, said="it is imported"),
    Verb("recover", "admin", None, _without("mcp", "ag_ui", row="each host does it by itself")),
    *(Verb(name, "read", None, _without("row", "ag_ui"), **_LIST)
      for name in ("agents", "pending")),
    *(Verb(name, "read", None, _without("row", "mcp", "ag_ui"), **_LIST)
      for name in ("doubts", "reviews", "decided", "search")),
    *(Verb(name, "read", None, _without("row", "mcp", "ag_ui")) for name in ("attention", "usage")),
    Verb("waiting", "read", None, _without("row", "mcp", "ag_ui", api="the page of an agent has "
         "its own", cli="`show` has the agent's"), **_LIST),
    Verb("notices", "read", None, _TRUST, **_LIST),
    Verb("retry_notice", "act", None, _TRUST, said="it is delivered again"),
    Verb("pending_place", "read", None, _without("row", "mcp", "ag_ui", api="a page lists requests "
         "in order", cli="`pending` lists them in order")),
    Verb("count_pending", "read", None, _without("row", "mcp", "ag_ui", cli="`pending` has it")),
    *(Verb(name, "read", None, _without("row", "mcp", "ag_ui", cli="`ls` has it"))
      for name in ("count", "now")),
)  # fmt: skip
VERBS: Mapping[str, Verb] = MappingProxyType({verb.name: verb for verb in _TABLE})
"""The verbs by name."""
VERB_OF: Mapping[type[AgentMessage], Verb] = MappingProxyType(
    {verb.message: verb for verb in reversed(_TABLE) if verb.message is not None}
)
"""A verb by its message. What a row needs to know is the same for all verbs with a message."""
ROWS: Mapping[str, Verb] = MappingProxyType({verb.row_kind: verb for verb in VERB_OF.values()})
"""The verbs that have a message, by the kind of their rows."""


class Arguments(BaseModel):
    """The arguments of a call, by name."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


@cache
def arguments_of(method: Callable[..., Any]) -> type[Arguments]:
    """The arguments of a method as a Pydantic model, from its signature.

    Without `context` and `by`: who asks from outside does not say who they are.
    """
    parameters = list(inspect.signature(method).parameters.values())[1:]
    hints = get_type_hints(method)
    fields: dict[str, Any] = {
        each.name: (hints[each.name], ... if each.default is each.empty else each.default)
        for each in parameters
        if each.name not in ("context", "by")
    }
    name = f"{method.__name__.title().replace('_', '')}Body"
    made: type[Arguments] = create_model(name, __base__=Arguments, __doc__=None, **fields)
    return made
