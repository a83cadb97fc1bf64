"""`Runtime`: runs agents. One event loop, a supervisor, and the agents by id."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack, overload

from understudy._base import security_log
from understudy._base.authors import By, checked_author
from understudy._base.clock import Clock, NewId, SharedClock, SystemClock, new_random_id
from understudy._base.context_codecs import ContextCodec
from understudy._base.json_values import (
    checked_callable,
    checked_count,
    checked_flag,
    checked_json,
    checked_limit_seconds,
    checked_seconds,
    checked_text,
    digest,
    shown,
)
from understudy._base.points_in_time import checked_clock
from understudy._base.request_timing import Seconds, checked_delay, span_text
from understudy._base.type_variables import DepsT, OutputT
from understudy._base.worker_threads import WorkerThreads
from understudy.actors.administration import Administration, Protected, checked_protect
from understudy.actors.agent.abandoned_tasks import AbandonedTasks
from understudy.actors.agent.activation import Activation
from understudy.actors.agent.directory import Directory, checked_id
from understudy.actors.agent.events import Status
from understudy.actors.agent.factory import AgentFactory
from understudy.actors.agent.placement import Placement
from understudy.actors.agent.services import (
    RuntimeServices,
    RuntimeTelemetry,
    checked_runtime_telemetry,
    codecs_with,
)
from understudy.actors.agent.slot import AgentSlot, running_agents
from understudy.actors.agent_host import AgentHost
from understudy.actors.agent_ref import AgentRef, of_login
from understudy.actors.beside_requests import BesideRequests, checked_comment
from understudy.actors.budgets import BudgetDesk, BudgetUse, budgets_of_rules
from understudy.actors.freezing import Freezing
from understudy.actors.notifying import NotifyHost, Notifying, checked_notify
from understudy.actors.opened import Opened
from understudy.actors.reads.export import export, import_
from understudy.actors.reads.feed import Feed, FeedOptions, Start, checked_feed
from understudy.actors.recovery import Recovery, recover
from understudy.actors.requirements import Requirements
from understudy.actors.schedules import ScheduleOptions, Schedules, own_ref
from understudy.actors.sweep import Sweep
from understudy.agent.agent import Agent
from understudy.agent.build_definition import checked_labels
from understudy.agent.rule_checks import check_approvals, rules_that_match_nothing
from understudy.approvals import Approval, Caller, caller_deciding, caller_named
from understudy.errors import UsageError, WouldDeadlock
from understudy.interrupts import DOUBT_ENDS, Decision
from understudy.journal import Store
from understudy.journal.contracts import Durability
from understudy.journal.opening import open_store
from understudy.loop_actors.future import Future, refuse_on_its_loop
from understudy.loop_actors.supervisor import SupervisorTree
from understudy.models.prices import Prices, Pricing
from understudy.outcomes import Outcome
from understudy.run.account import BudgetKeeper
from understudy.run.environment import RunEnvironment
from understudy.run.waits.answers import Answer, rejected, resolved
from understudy.state.agent_state import AgentState
from understudy.state.plans import Schedule
from understudy.state.request_notes import RequestNotes, checked_request_id
from understudy.tools.effects import Errors
from understudy.tools.tool_defaults import ToolDefaults, Undeclared
from understudy.tools.tool_errors import ToolErrors
from understudy.trust.budgets import GivenBudgets, checked_budgets
from understudy.trust.delegations import checked_party, checked_terms
from understudy.trust.fold import AdminRequest, Delegation, RegisteredRules
from understudy.trust.freezes import Freeze, checked_target
from understudy.trust.people import GivenPeople, People
from understudy.trust.registration import to_retire
from understudy.trust.required import Requirable, Requirement, checked_requirable
from understudy.trust.rules import Rules, checked_rules
from understudy.trust.trust import Trust

if TYPE_CHECKING:
    from understudy.actors.reads.search import SearchKeeper
    from understudy.actors.retiring import Retire, Retired
    from understudy.journal.vacuum import Vacuumed

logger: logging.Logger = logging.getLogger(__name__)

IDLE_TIMEOUT = 300.0
SWEEP_SECONDS = 30.0
CANCEL_TIMEOUT = 5.0
NOT_SAID: Any = ...
"""The default of an argument whose None has a meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStatus:
    """Counts of a runtime, at one moment."""

    agents: int
    """The number of agents in memory, including agents that are not in the store yet."""
    running: int
    """The number of agents with a run in progress."""
    abandoned_threads: int
    """The number of threads of plain tools that still run although no call waits for them."""
    abandoned_tasks: int
    """The number of tasks of async code that still run `cancel_timeout` seconds after their
    cancellation."""
    draining: bool = False
    """Whether the runtime takes no more agents: see `Runtime.drain`.

    Also True while no call may start here, for example because its rules are older than the rules
    of the store.
    """
    held: str = ""
    """The reason why no call may start here now; empty if calls may start."""
    frozen: tuple[str, ...] = ()
    """The freezes of the store, with who set each and why: see `Runtime.freeze`. Messages are still
    accepted."""

    @property
    def ready(self) -> bool:
        """Whether a load balancer should send requests here. False once the runtime drains."""
        return not self.draining


class RuntimeOptions(TypedDict, total=False):
    """The options of `Runtime` that all hosts of a cluster may get."""

    durability: Durability
    idle_timeout: float | None
    sweep: float | None
    max_threads: int
    stop_timeout: float | None
    cancel_timeout: float
    feed: FeedOptions | bool | None
    usage: bool
    search: bool | None
    lease: float | None
    labels: Collection[str]
    any_host: bool
    doubt_ends: Seconds | None


class RuntimeSettings(RuntimeOptions, total=False):
    """The options of `Runtime` but `deps_for`, whose type goes with that of the agents."""

    store: str | Store
    factory: AgentFactory | None
    host: str | None
    context: Iterable[ContextCodec]
    telemetry: RuntimeTelemetry | None
    pricing: Pricing | None
    undeclared: Undeclared | None
    unknown_after: Errors
    tool_errors: ToolErrors | None
    people: GivenPeople | None
    rules: Rules | None
    protect: Mapping[Protected, Approval] | None
    budgets: GivenBudgets
    notify: Notifying | Literal[False] | None
    retire: Retire | None
    clock: Clock | None
    new_id: NewId | None


T = TypeVar("T")


class Runtime(Opened):
    """Starts agents, supervises them, and finds them by id.

    `with Runtime(...)` starts an event loop in a thread of its own. `async with Runtime(...)` uses
    the running loop, so async tools can use the connections of the application.

    Args:
        agents: the definitions that can be spawned by name.
        store: where agents are kept: `"memory:"` while the process lives, `"sqlite:///path"`
            for one runtime, `"postgresql://..."` for many; or a `Store` of your own.
        durability: what a record survives. `"full"`: a power loss. `"normal"` and `"off"`: the
            end of the process, but not of the machine.
        deps_for: returns the `deps` of an agent by its id, if `spawn` got none. It is a plain
            function that is called on the event loop, so it must not block.
        factory: makes the definition of an agent whose name is not among `agents`, at each
            activation: see `AgentFactory`.
        idle_timeout: seconds after which an idle agent is passivated; None = never.
        sweep: seconds between two searches of the store for agents that have work to continue
            and no owner, because their process ended. They are continued as by `recover()`. The
            first search comes after one such time; if hosts share the store, at once. None = no
            searches.
        stop_timeout: seconds that steps in progress may take when the runtime stops; None = no
            limit.
        cancel_timeout: seconds that async code may take to end after it is cancelled: by
            `cancel`, a deadline, `delete`, or the end of the runtime. Then it is abandoned,
            with a warning in the log.
        max_threads: the size of the thread pool for plain tools and hooks.
        usage: whether to count what requests to models use, by day, definition and model, for
            `usage()` and the page. It adds a row to each commit with a reply. Earlier counts
            stay when it is off.
        feed: True or options turn on the feed of the store, which `events()` reads. The feed
            stays on for all runtimes of the store until a runtime is given False, which empties
            it. None = leave it as it is.
        search: True makes an index of the words of requests and conversations, for `search()`,
            and keeps it up to date. The index stays in the store until a runtime is given
            False, which removes it. None = leave it as it is.
        lease: seconds for which this runtime owns its agents in a shared store without a
            heartbeat. If its machine is lost, other hosts continue its agents after this time.
            10 by default.
        host: the name of this runtime, for others; by default the name of the machine with the
            number of the process. Two runtimes may have the same name.
        labels: what this host has. It runs only agents whose needs (`Agent(needs=...)`) are
            among these labels.
        any_host: whether a call to an agent of another runtime is answered here, on a shared
            store. False = such a call is refused with `OwnedElsewhere`, and no other host takes
            an agent of this runtime.
        context: codecs, such as `ContextVarCodec`. They carry values such as a tenant or a
            trace from the code that calls an agent to the code that runs it. A run, with its
            agents and threads, has the context of the sender of its message.
        telemetry: a `Telemetry` of `understudy.telemetry`, which makes spans and metrics.
        undeclared: what is assumed of tools that do not declare their effects, if their agents
            do not say it either: `"effects"` or `"read_only"`. See `Agent`.
        unknown_after: for all agents, the errors after which nobody knows what a call did. See
            `Agent`.
        tool_errors: what happens with errors that tools raise by accident: `"log"`,
            `"traceback"` or `"raise"`, see `Agent`. The agent's own setting wins, but `"raise"`
            holds for all agents.
        doubt_ends: seconds or a timedelta after which a doubt ends if only the model was told
            about it. Then it holds no other call, and `doubts()` does not list it. None = it
            ends only when it is settled. It holds for runs that begin with this runtime.
        pricing: prices for the replies, so that the cost of each reply is recorded with it.
            True = the prices of `genai-prices`. Your own prices are asked first: a `Price` by
            the name of its model, a function of a reply, or `Prices(...)`. None = only what
            `Limits(max_cost=)` needs is priced.
        people: who may vote on requests that ask several persons (`approval`). Either a mapping
            of login names to roles, or to a `Person` of `understudy.trust`; or a function,
            plain or async, that takes a `Caller` and returns a `Person`, or None for an unknown
            caller. An answer holds for a minute. No answer within two seconds counts as no
            answer.
        rules: `Rules` of `understudy.trust`: which calls of all agents are denied, ask persons,
            or run. They hold in addition to the gates of the agents. `runtime.rules = ...`
            replaces them.
        protect: the operations that need the agreement of persons: `{"delete": approval({"ops":
            2})}`. Possible keys: `compact`, `delegate` (for others), `delete`, `export`,
            `import`, `recover`, `retire` (it also needs what `delete` and `export` need),
            `retire_rules` and `thaw`. The person who asks gets `ApprovalNeeded`; others `vote`;
            then the person asks again. It holds for this runtime only, so give it to all hosts
            of the store.
        budgets: how much the calls of all agents may spend together: a list of `Budget` of
            `understudy.trust`. Give the same list to each host of the store.
        notify: a `Notify` of `understudy.notify`, which tells people about requests. From then
            on the store keeps what is to be told, whichever host writes it, until a runtime is
            given False. None = this runtime tells nobody, and changes nothing.
        retire: `Retire(...)`: agents that are old enough, and have nothing open, are regularly
            put into archives and deleted: see `retire()`. None = they stay.
        clock, new_id: the sources of times and ids. By default times come from the machine; if
            hosts share a database, from its server.

    Raises:
        UsageError: if an argument is wrong; the error names the argument.
        StoreInUse, StoreUnavailable, StoreBroken, SchemaVersionError: by `with` and `async
            with`, if the store cannot be opened.

    """

    _caller: Caller | None = None
    """The logged-in caller; None where code of the host application calls."""

    _closed_too_soon = "the runtime stopped before it answered"

    @overload
    def __init__(
        self,
        agents: Iterable[Agent] = (),
        *,
        deps_for: None = None,
        **options: Unpack[RuntimeSettings],
    ) -> None: ...
    @overload
    def __init__(
        self,
        agents: Iterable[Agent[DepsT, Any]] = (),
        *,
        deps_for: Callable[[str], DepsT | None],
        **options: Unpack[RuntimeSettings],
    ) -> None: ...
    def __init__(
        self,
        agents: Iterable[Agent] = (),
        *,
        store: str | Store = "memory:",
        durability: Durability = "full",
        deps_for: Callable[[str], Any] | None = None,
        factory: AgentFactory | None = None,
        idle_timeout: float | None = IDLE_TIMEOUT,
        sweep: float | None = SWEEP_SECONDS,
        max_threads: int = 64,
        stop_timeout: float | None = None,
        cancel_timeout: float = CANCEL_TIMEOUT,
        feed: FeedOptions | bool | None = None,
        usage: bool = False,
        search: bool | None = None,
        lease: float | None = None,
        host: str | None = None,
        labels: Collection[str] = frozenset(),
        any_host: bool = True,
        context: Iterable[ContextCodec] = (),
        telemetry: RuntimeTelemetry | None = None,
        pricing: Pricing | None = None,
        undeclared: Undeclared | None = None,
        unknown_after: Errors = (),
        tool_errors: ToolErrors | None = None,
        doubt_ends: Seconds | None = DOUBT_ENDS,
        people: GivenPeople | None = None,
        rules: Rules | None = None,
        protect: Mapping[Protected, Approval] | None = None,
        budgets: GivenBudgets = (),
        notify: Notifying | Literal[False] | None = None,
        retire: Retire | None = None,
        clock: Clock | None = None,
        new_id: NewId | None = None,
    ) -> None:
        idle_timeout = checked_limit_seconds(idle_timeout, what="`idle_timeout`")
        self._sweep_seconds = checked_limit_seconds(sweep, what="`sweep`")
        checked_seconds(cancel_timeout, what="`cancel_timeout`")
        super().__init__(
            stop_timeout=_checked_timeout(stop_timeout, "`stop_timeout`"),
            cancel_timeout=cancel_timeout,
        )
        checked_callable(deps_for, what="`deps_for`", takes="of an agent's id")
        checked_callable(factory, what="`factory`", takes="of an agent's name, id and values")
        checked_callable(new_id, what="`new_id`", takes="without arguments")
        checked_clock(clock, what="`clock`")
        if isinstance(agents, Agent) or not isinstance(agents, Iterable):
            raise UsageError(
                f"`agents` must be a list of agents: Runtime([agent]), got {shown(agents)}"
            )
        checked_flag(any_host, what="`any_host`")
        if doubt_ends is not None:
            doubt_ends = checked_delay(doubt_ends, what="`doubt_ends`").total_seconds()
        telemetry = checked_runtime_telemetry(telemetry)
        self.prices: Prices | None = Prices.given(pricing, what="`pricing`")
        """The prices by which replies are priced when they come."""
        self.tool_defaults: ToolDefaults = ToolDefaults.given(
            undeclared, unknown_after, tool_errors, what="Runtime"
        )
        """The settings for tools that neither the tools nor their agents say."""
        opened = self._store = open_store(store, durability=durability, lease=lease, host=host)
        # Where hosts share a database, its clock is that of all: they agree on what is due.
        shared = None if opened.shared is None else SharedClock(lambda: opened.time_offset)
        self._clock = clock or shared or SystemClock()
        self._store_name = store if isinstance(store, str) else None
        self._threads = WorkerThreads(max_threads)
        self._abandoned = AbandonedTasks(cancel_timeout)
        given_budgets = checked_budgets(budgets)
        has_factory = factory is not None
        self._directory = Directory(agents, has_factory=has_factory)
        labels = checked_labels(labels, what="`labels`")
        known = None if people is None else People(people, self._clock)
        self._trust = Trust(known, checked_rules(rules))
        self._protect = checked_protect(protect, has_people=known is not None)
        check_approvals(self._directory.definitions(), self._trust.rules, known)
        self._retire: Retire | None = None
        if retire is not None:  # who retires nothing imports nothing of it
            from understudy.actors.retiring import checked_retire

            self._retire = checked_retire(retire)
            if "retire" in self._protect:
                raise UsageError(
                    "`retire` and `protect` do not go together: nobody can vote on what a runtime "
                    "does by itself. Call runtime.retire(...), which asks for votes"
                )
        self._has_factory = has_factory
        within = budgets_of_rules(self._trust.rules)
        self._budgets: BudgetKeeper | None = None
        if given_budgets or within:
            checked_budgets([*given_budgets, *within])  # no two have one name
            self._budgets = BudgetKeeper(given_budgets, within, self._trust, self._clock)
        self._trust.provided |= {"budgets"} if self._budgets is not None else set()
        self._trust.provided |= {"protect"} if self._protect else set()
        if self.prices is None and any(each.measure.unit == "usd" for each in given_budgets):
            self.prices = Prices()
        runs = RunEnvironment(
            clock=self._clock,
            new_id=new_id or new_random_id,
            threads=self._threads,
            codecs=codecs_with(telemetry, context),
            prices=self.prices,
            tool_defaults=self.tool_defaults,
            trust=self._trust,
            doubt_ends=doubt_ends,
        )
        make_services = partial(
            RuntimeServices[AgentSlot, Activation],
            placement=Placement(opened, labels, any_host=any_host, has_factory=has_factory),
            store=opened,
            abandoned=self._abandoned,
            idle_timeout=idle_timeout,
            deps_for=deps_for,
            factory=factory,
            runs=runs,
            budgets=self._budgets,
            presence=self.presence,
        )
        self._agent_host = AgentHost(self._directory, make_services, telemetry)
        self._feed_options = checked_feed(feed)
        self._notify = checked_notify(notify)
        opened.counts_usage = checked_flag(usage, what="`usage`")
        self._search_on = None if search is None else checked_flag(search, what="`search`")
        for name, is_used, kept in (
            ("notify", bool(notify), "notices"),
            ("feed", feed is not None, "feed"),
            ("usage", usage, "usage"),
            ("search", search is not None, "search"),
        ):
            if is_used and kept not in opened.keeps:
                raise UsageError(f"`{name}` cannot be used with {opened!r}: it keeps no {kept}")
        self._searching: SearchKeeper | None = None
        self._seconds_to_stop: float | None = 0  # of a runtime that fails to open

    @property
    def people(self) -> People | None:
        """The persons who may vote on requests that ask several persons; None if `people` was not
        given.
        """
        return self._trust.people

    @property
    def rules(self) -> Rules | None:
        """The rules for the calls of all agents. New rules hold for each call that starts
        afterwards.

        Setting rules waits for the store if the rules have a version, or the store has rules with a
        version. On the runtime's own loop, await `set_rules` instead.

        Raises:
            UsageError: if the value is neither `Rules` nor None, or as of `set_rules`.
            WouldDeadlock: on the runtime's loop, if the store has to be asked.

        """
        return self._trust.rules

    @rules.setter
    def rules(self, rules: Rules | None) -> None:
        rules = self._usable(rules)
        self._trust.check_required(rules)
        is_of_host = rules is None or rules.version is None
        if self._loop is None or (is_of_host and self._trust.state.rules is None):
            self._trust.rules = rules
            self._put_within(rules)
        else:
            refuse_on_its_loop(self._loop, "set `rules`", "await runtime.set_rules(rules)")
            self.set_rules(rules).get()

    def set_rules(self, rules: Rules | None) -> Future[None]:
        """Replace the rules of this runtime. Rules with a version are registered for the whole
        store.

        The future resolves once the rules hold here. Other hosts learn of a new version within one
        or two seconds. They then start no calls until they have these rules.

        Raises:
            UsageError: if the value is neither `Rules` nor None. By the future: if the version
                is registered with other rules, or is older than the newest version; or if the
                rules have no version, and the store has rules with a version.

        """
        checked = self._usable(rules)

        async def put() -> None:
            await self._agent_host.trust.put_rules(checked)
            self._put_within(checked)

        return self._call(put)

    def _put_within(self, rules: Rules | None) -> None:
        if self._budgets is not None:
            self._budgets.put_within(budgets_of_rules(rules))

    def _usable(self, given: Rules | None) -> Rules | None:
        """The rules, if they fit the agents, the people and the budgets of this runtime."""
        rules = checked_rules(given)
        check_approvals(self._directory.definitions(), rules, self._trust.people)
        known = () if self._budgets is None else self._budgets.within
        ids = {each.id for each in known}
        new = [each.name for each in budgets_of_rules(rules) if each.id not in ids]
        if new:
            raise UsageError(
                f"The rules allow within the budget {new[0]!r}, which this runtime did not begin "
                "with: start it with these rules, as Runtime(rules=...)"
            )
        return rules

    def registered_rules(self) -> Future[list[RegisteredRules]]:
        """Return all rules with a version that hosts have registered in the store, the newest
        first.

        `runtime.trust.state.rules` has the rules that hold.
        """
        return self._call(lambda: self._agent_host.trust.registered_rules())

    def retire_rules(self, *, version: int | None = None, by: str | None = None) -> Future[bool]:
        """End the rules of the whole store, until a higher version is registered.

        Each host keeps its own rules. Hosts without rules may open again.

        Args:
            version: the version of the rules to end; None = the rules that hold.
            by: the person who decides it; kept in the store.

        Returns:
            Whether rules held.

        Raises:
            UsageError: if the version or the name is wrong. By the future: if rules of another
                version hold.

        """
        if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
            raise UsageError(f"retire_rules(version=...) must be a number, got {shown(version)}")

        trust = self._trust

        async def retired(name: str | None) -> bool:
            await trust.look()
            # Votes are for these rules: they do not retire others, which came meanwhile
            # (test_votes_to_retire_rules_do_not_retire_newer_ones).
            rules = to_retire(trust.state, version)
            wanted = None if rules is None else rules.version
            if trust.guard is not None:
                about = "retire the rules" + ("" if wanted is None else f" of version {wanted}")
                what = {"version": wanted}
                await trust.guard("retire_rules", about, what, self._caller_of(name))
            if trust.log is None:
                return False  # the store has none
            return await trust.retire_rules(at=self._clock.now(), by=name, version=wanted)

        return self._act("retire_rules", by, retired)

    @property
    def trust(self) -> Trust:
        """The people, the rules, and what holds for the whole store."""
        return self._trust

    def freeze(
        self,
        *,
        definition: str | None = None,
        tool: str | None = None,
        why: str,
        by: str | None = None,
    ) -> Future[Freeze]:
        """Freeze the store: nothing begins at any host until it is thawed.

        No run begins, no model is asked, and no call starts. Messages are still recorded, and
        people may decide and cancel. Calls whose bodies were already entered end, and their results
        are recorded.

        The freeze is kept in the store. The future resolves once each living host obeys it, or the
        lease of the host has ended. After that no frozen body is entered.

        Args:
            definition: freeze only the agents of this definition, also inside other agents. The
                call that runs such an agent waits.
            tool: freeze only the calls of tools with this name. A run rests at such a call.
            why: the reason, for whoever finds the freeze.
            by: the person who asks for it.

        Returns:
            The freeze, with the calls under way. If the same person asks for the same freeze
                again, it is the same freeze.

        Raises:
            UsageError: if both `definition` and `tool` are given, if a name or the reason is
                empty, or if `by` is not a name.

        """
        what, name, reason = checked_target(definition, tool, why)
        return self._act("freeze", by, lambda who: self._freezing.freeze(what, name, reason, who))

    def thaw(self, id: str, *, by: str | None = None) -> Future[bool]:
        """End a freeze. Everything that waited for it begins by itself, unless another freeze holds
        it.

        The future resolves to whether the freeze was in force.

        Args:
            id: the id of the freeze.
            by: the person who asks for it.

        Raises:
            UsageError: if `id` is not text, or `by` is not a name.
            ApprovalNeeded: by the future, if `Runtime(protect={"thaw": ...})` asks persons.

        """
        checked_text(id, what="thaw(id)")
        freeze = self._trust.state.freezes.get(id)
        # Persons vote on what it is, not on an id.
        about = f"thaw freeze {id!r}" if freeze is None else f"thaw {freeze.about} ({freeze.text})"
        protected = about, {"id": id}
        return self._act("thaw", by, lambda who: self._freezing.thaw(id, who), protected)

    def require(
        self, name: Requirable, *, required: bool = True, by: str | None = None
    ) -> Future[bool]:
        """Require a feature of every host of the store, from now on.

        All living hosts must have the feature now. Later, a host without it does not open; its
        error names the feature and how to add it.

        Args:
            name: `"rules"`, `"budgets"` or `"protect"`: the option must have been given to
                `Runtime`. Or `"freeze"`: the host must know of freezes, as all hosts of this
                version do.
            required: False = stop requiring it.
            by: the person who decides it; kept in the store.

        Returns:
            Whether this is a change.

        Raises:
            UsageError: for another name. By the future: if this host or another living host
                lacks the feature; the error names the hosts.

        """
        wanted = checked_requirable(name, what="require(name)")
        checked_flag(required, what="require(required=...)")

        async def put(who: str | None) -> bool:
            desk = self._requirements
            return await (desk.require if required else desk.release)(wanted, who)

        return self._act("require", by, put)

    def required(self) -> Future[list[Requirement]]:
        """Return the features that a store may require, whether it does, and which hosts
        lack them.
        """
        return self._call(lambda: self._requirements.required())

    def freezes(self, id: str | None = None) -> Future[list[Freeze]]:
        """Return what is frozen now, the oldest first, without the calls under way.

        Args:
            id: the id of a freeze. The future then resolves to this freeze alone, with the
                calls under way now and all hosts that have not answered yet. The list is empty
                if the freeze is over.

        Raises:
            UsageError: if `id` is not text.

        """
        if id is not None:
            checked_text(id, what="freezes(id)")
        return self._call(lambda: self._freezing.freezes(id))

    @property
    def has_budgets(self) -> bool:
        """Whether the runtime or its rules have budgets."""
        return self._budgets is not None

    @property
    def low_budgets(self) -> int:
        """The number of budgets with at least four fifths used, as far as calls at this host
        show.
        """
        return 0 if self._budgets is None else self._budgets.low()

    def budgets(self) -> Future[list[BudgetUse]]:
        """Return the use of each budget, one entry for each counter. Empty without budgets."""

        async def uses() -> list[BudgetUse]:
            return [] if self._budgets is None else await self._budget_desk.uses()

        return self._call(uses)

    @property
    def has_notify(self) -> bool:
        """Whether the runtime tells people about requests: `Runtime(notify=...)`."""
        return isinstance(self._notify, Notifying)

    def retry_notice(self, no: int, *, by: str | None = None) -> Future[bool]:
        """Deliver a failed notice once more: see `notices`.

        Args:
            no: the number of the notice.
            by: the person who asks for it, for the security log.

        Returns:
            Whether there was a failed notice with this number.

        Raises:
            UsageError: if the number or the name is wrong. By the future: if the store keeps no
                notices.

        """
        checked_count(no, what="retry_notice(no)")

        async def again(_who: str | None) -> bool:
            store, now = self._agent_host.services.store, self._clock.now()
            return await store.change_outbox(lambda outbox: outbox.retry(no, now))

        return self._act("retry_notice", by, again)

    def reserved(self, id: str) -> Future[dict[str, str]]:
        """Return what an agent has reserved of budgets now, as text for people, by the budget's
        name.

        Raises:
            UsageError: for a bad id.

        """
        checked_id(id)

        async def reserved() -> dict[str, str]:
            return {} if self._budgets is None else await self._budget_desk.reserved(id)

        return self._call(reserved)

    def raise_budget(
        self,
        name: str,
        amount: Decimal | float | str,
        *,
        why: str,
        key: str = "",
        by: str | None = None,
    ) -> Future[BudgetUse]:
        """Add an amount to a budget for its current window, at all hosts of the store.

        Args:
            name: the name of the budget.
            amount: the amount that is added to its limit.
            why: the reason, for the record.
            key: the key of the counter, as `budgets()` lists it.
            by: the person who decides it, for the record.

        Returns:
            The budget after the change.

        Raises:
            UsageError: if there is no such budget or key, or the amount is wrong.

        """

        async def raised(who: str | None) -> BudgetUse:
            return await self._budget_desk.raise_budget(name, amount, key, why, who)

        return self._act("raise_budget", by, raised)

    @property
    def _budget_desk(self) -> BudgetDesk:
        if self._budgets is None:
            raise UsageError("this runtime has no budgets: give Runtime(budgets=[...])")
        return BudgetDesk(self._agent_host.services, self._budgets)

    def take(
        self,
        id: str,
        request_id: str,
        *,
        until: datetime | None = None,
        release: bool = False,
        by: str,
    ) -> Future[RequestNotes]:
        """Claim a request: say that somebody looks after it until a time. Others may still decide
        it.

        Another person may take it over; `RequestNotes.claim.over` then names the person before. The
        claim ends at its time, when the request is answered, or when it is released.

        Args:
            id: the id of the agent.
            request_id: the id of its request.
            until: the end of the claim, with a time zone; in an hour by default, in 30 days at
                most.
            release: end the claim. Nothing happens if this person does not have it.
            by: the person who takes it.

        Returns:
            A future of the notes beside the request.

        Raises:
            UsageError: for a wrong argument. By the future: if the time is over or too late, or
                if the request already has 500 notes.
            UnknownAgent: by the future, if there is no such agent.
            DecisionError: by the future, if the request does not wait for a person.

        """
        checked_flag(release, what="take(release=...)")
        if release and until is not None:
            raise UsageError("take(release=True) ends it at once: leave `until` out")
        who = self._author("take", id, request_id, by)
        return self._call(lambda: self._desk.take(id, request_id, until, release, who))

    def comment(self, id: str, request_id: str, text: str, *, by: str) -> Future[RequestNotes]:
        """Write a comment beside a request, for other people who look at it. No agent reads it.

        Args:
            id: the id of the agent.
            request_id: the id of its request. The request may be decided already.
            text: at most 4,000 characters.
            by: the person who writes it.

        Returns, Raises:
            As `take`.

        """
        said = checked_comment(text)
        who = self._author("comment", id, request_id, by)
        return self._call(lambda: self._desk.comment(id, request_id, said, who))

    def snooze(
        self, id: str, request_id: str, *, until: datetime | None, by: str
    ) -> Future[RequestNotes]:
        """Hide a request from the lists of one person until a time: `pending(viewer=...)`.

        Others still see it. It comes back at its time, or an hour before it expires.

        Args:
            id: the id of the agent.
            request_id: the id of its request.
            until: the end, with a time zone, within 30 days; None = show it again.
            by: the person who does not want to see it.

        Returns, Raises:
            As `take`.

        """
        who = self._author("snooze", id, request_id, by)
        return self._call(lambda: self._desk.snooze(id, request_id, until, who))

    def assign(
        self,
        id: str,
        request_id: str,
        *,
        to: str | tuple[str, str] | Caller | None,
        by: str,
    ) -> Future[RequestNotes]:
        """Assign a request to a person. Other people may still decide it.

        Args:
            id: the id of the agent.
            request_id: the id of its request.
            to: the name of a login; or issuer and subject of an identity provider; None =
                nobody.
            by: the person who assigns it.

        Returns, Raises:
            As `take`. With `people`, the future raises `UsageError` for an unknown person, and
            `PeopleUnavailable` if `people` does not answer.

        """
        who = self._author("assign", id, request_id, by)
        party = None if to is None else checked_party(to, what="assign(to=...)")
        if party is not None and not party.issuer:
            checked_author(party.name, what="assign(to=...)")

        async def assigned() -> RequestNotes:
            if party is not None and self.people is not None:
                now = self._clock.now()
                voter = await self._trust.known_voter(party, now, "assign(to=...)")
                if not voter.person:
                    raise UsageError(f"assign(to=...): `people` knows nobody by {party.name!r}")
            return await self._desk.assign(id, request_id, party, who)

        return self._call(assigned)

    def _author(self, verb: str, id: str, request_id: str, by: str) -> By:
        """The author of something that is written beside a request."""
        checked_id(id)
        checked_request_id(request_id, what=f"{verb}(request_id)")
        if by is None:
            raise UsageError(f"{verb}(by=...) must be the name of a person, got None")
        checked_author(by, what=f"{verb}(by=...)")
        caller = caller_named(by, self._caller)
        return caller.login or caller.name

    @property
    def _desk(self) -> BesideRequests:
        async def state_of(id: str) -> AgentState:
            return await self.get(id).state()

        store = self._agent_host.services.store
        return BesideRequests(store, self._clock, self.presence, state_of)

    def delegate(
        self,
        *,
        from_: str | tuple[str, str] | Caller,
        to: str | tuple[str, str] | Caller,
        roles: Sequence[str],
        until: datetime,
        reason: str,
        by: str | None = None,
    ) -> Future[Delegation]:
        """Let a person vote with the roles of another person, until a time, at all hosts of the
        store.

        A vote with these roles counts for both persons: neither can vote again. Delegated roles
        cannot be delegated further. The delegation is checked when a vote is cast, and again right
        before the call starts.

        Args:
            from_: the person who has the roles: the name of a login; or issuer and subject of
                an identity provider.
            to: the person who gets the roles, in the same form.
            roles: the roles to delegate, of the roles that `people` gives the person.
            until: the end, with a time zone.
            reason: the reason, for the record.
            by: the person who asks for it; `from_` by default.

        Raises:
            UsageError: for a wrong argument. By the future: if a person is not known, or the
                giver does not have a role.
            PeopleUnavailable: by the future, if `people` does not answer now.

        """
        self._need_people("delegate(...)")
        giver = checked_party(from_, what="delegate(from_=...)")
        getter = checked_party(to, what="delegate(to=...)")
        author = checked_author(giver.shown if by is None else by, what="delegate(by=...)")

        async def delegated() -> Delegation:
            now = self._agent_host.services.clock.now()
            names, due, why = checked_terms(roles, until, reason, now)
            security_log.note("act", "delegate", who=author)
            caller = giver if by is None else self._caller_of(author)
            if self._trust.guard is not None and not await self._is_same(giver, caller):
                about = f"let {getter.name!r} vote for {giver.name!r} as {', '.join(names)}"
                parties = [
                    [each.issuer, each.subject, "" if each.issuer else each.name]
                    for each in (giver, getter)
                ]
                what = [parties, list(names), due.isoformat(), why]
                await self._trust.guard("delegate", about, what, caller)
            return await self._agent_host.trust.delegate(giver, getter, names, due, why, author)

        return self._call(delegated)

    async def _is_same(self, one: Caller, other: Caller | None) -> bool:
        """Whether two callers are the same person."""
        people = self._trust.people
        if people is None or other is None:
            return False
        found = [(await people.voter(each)).person for each in (one, other)]
        return bool(found[0]) and found[0] == found[1]

    def delegations(self) -> Future[list[Delegation]]:
        """Return the delegations that hold now, the oldest first.

        Raises:
            UsageError: if `people` was not given.

        """
        self._need_people("delegations()")
        return self._call(lambda: self._agent_host.trust.delegations())

    def end_delegation(self, id: str, *, by: str | None = None) -> Future[bool]:
        """End a delegation. The future resolves to whether it was in force.

        A call that was approved by a vote with the delegation, and has not started, asks persons
        again.

        Args:
            id: the id of the delegation.
            by: the person who asks for it, for the record.

        Raises:
            UsageError: if `id` is not text, or `by` is not a name.

        """
        self._need_people("end_delegation(...)")
        checked_text(id, what="end_delegation(id)")
        return self._act(
            "end_delegation", by, lambda who: self._agent_host.trust.end_delegation(id, who)
        )

    def vote(self, request_id: str, decision: Decision) -> Future[AdminRequest]:
        """Vote on an operation that is protected by `Runtime(protect=...)`.

        The future resolves to the request with its votes.

        Args:
            request_id: the id of the request, from `ApprovalNeeded` or `administration()`.
            decision: `approve(by="ann")` or `reject(by="ann")`.

        Raises:
            UsageError: if the decision is wrong or has no name.
            DecisionError: by the future, if there is no such request any more.
            VoteRefused: by the future, if the person may not vote on it.
            PeopleUnavailable: by the future, if `people` does not answer now.

        """
        self._need_people("vote(...)")
        checked_text(request_id, what="vote(request_id)")
        if not isinstance(decision, Decision) or decision.by is None:
            raise UsageError(
                f'vote(...) takes approve(by="ann") or reject(by="ann"), got {shown(decision)}'
            )
        caller = caller_deciding(decision.by, self._caller)
        return self._act(
            "vote",
            decision.by,
            lambda _who: self._administration.vote(request_id, decision, caller),
        )

    def administration(self) -> Future[list[AdminRequest]]:
        """Return the protected operations that wait for votes, or are agreed to and not done yet.

        The oldest comes first.

        Raises:
            UsageError: if `people` was not given.

        """
        self._need_people("administration()")
        return self._call(lambda: self._administration.requests())

    def _need_people(self, what: str) -> None:
        if self.people is None:
            raise UsageError(f"{what}: no people are known: give Runtime(people=...)")

    def _asked_by(self, caller: Caller) -> Self:
        """Return a copy of this runtime whose calls are a logged-in caller's. For servers alone."""
        found = copy(self)
        found._caller = caller
        return found

    def _caller_of(self, by: str | None) -> Caller | None:
        return None if by is None else caller_named(by, self._caller)

    def _act(
        self,
        verb: str,
        by: str | None,
        work: Callable[[str | None], Coroutine[Any, Any, T]],
        protected: tuple[str, Any] | None = None,
        *,
        agent: str | None = None,
    ) -> Future[T]:
        """Do an operation for a person, and note it in the security log.

        Args:
            verb: the method of this class.
            by: the person.
            work: does it; it gets the person.
            protected: what it is in words, and with which arguments, if `protect` may ask persons
                to agree to it first.
            agent: the id of the agent.

        """
        author = checked_author(by, what=f"{verb}(by=...)")
        security_log.note("act", verb, who=author, agent=agent)
        return self._guarded(verb, author, partial(work, author), protected)

    def _guarded(
        self,
        verb: str,
        by: str | None,
        work: Callable[[], Coroutine[Any, Any, T]],
        protected: tuple[str, Any] | None,
    ) -> Future[T]:
        """Do an operation if persons have agreed to it, or need not."""
        guard, caller = self._trust.guard, self._caller_of(by)
        if guard is None or protected is None:
            return self._call(work)
        about, arguments = protected

        async def allowed() -> T:
            await guard(verb, about, arguments, caller)
            return await work()

        return self._call(allowed)

    # -------------------------------------------------------------------- life cycle

    def stop(self, timeout: float | None = None) -> None:
        """Passivate all agents, each after its step in progress is recorded, then end the loop.

        Calls that still wait get `RuntimeStopped`. Async code that ignores its cancellation is
        abandoned. Inside `async with`, leave the block instead of calling this.

        Args:
            timeout: seconds for the steps in progress. Then they are cut off, as by a crash.

        Raises:
            WouldDeadlock: inside a run of this runtime, or on its event loop.
            UsageError: inside `async with`, or if the timeout is not a number of seconds.

        """
        seconds = _checked_timeout(timeout, "`timeout`")
        if self._thread is not None:
            self._refuse_inside_run("stop", "a run cannot stop the runtime it runs in")
        self._leave(self._stop_timeout if seconds is None else seconds)

    def _warn_of_rules(self) -> None:
        """Say which rules are about no tool: a typo in a denial would deny nothing, silently."""
        agents = self._directory.definitions()
        if self._trust.rules is None or not agents or self._has_factory:
            return
        for problem in rules_that_match_nothing(agents, self._trust.rules):
            logger.warning("%s", problem)

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        self._warn_of_rules()
        host = self._agent_host
        async with contextlib.AsyncExitStack() as opened:
            await host.open(loop)
            opened.push_async_callback(lambda: host.close(self._seconds_to_stop))
            services, watch = host.services, host.trust
            self._administration = Administration(watch, self._protect)
            self._trust.guard = self._administration.allow if self._protect else None
            self._freezing = Freezing(self._directory, watch)
            self._requirements = Requirements(watch)
            feed = FeedOptions() if self._feed_options is True else self._feed_options
            if feed is not None:
                await services.store.turn_feed(feed is not False)
            if self._search_on is not None:
                await services.store.turn_search(self._search_on)
            if isinstance(self._notify, Notifying):
                state = lambda agent_id: self.get(agent_id).state()  # noqa: E731
                await self._notify.begin(NotifyHost(services.store, self._clock, state))
                opened.push_async_callback(self._notify.end)
            elif self._notify is False and "notices" in self._store.keeps:
                await services.store.change_outbox(lambda outbox: outbox.turn(False))
            if self._search_on:
                from understudy.actors.reads.search import SearchKeeper  # few runtimes have one

                self._searching = SearchKeeper(services.store, services.start_task)
                self._searching.begin()
                opened.callback(self._searching.close)
            self._sweep = Sweep(host, self._sweep_seconds, feed or None)
            watch.on_released, watch.on_thawed = self._sweep.hint, self._thawed
            self._sweep.open()
            opened.callback(self._sweep.close)
            if self._retire is not None:
                from understudy.actors.retiring import retire_regularly

                retiring = retire_regularly(host, self._retire)
                retiring.open()
                opened.callback(retiring.close)
            self._seconds_to_stop, self._opened = None, opened.pop_all()

    async def _close(self, timeout: float | None) -> None:
        self._seconds_to_stop = timeout
        await self._opened.aclose()

    def _thawed(self) -> None:
        self._agent_host.go_on()
        self._sweep.hint()

    @property
    def counts_usage(self) -> bool:
        """Whether the runtime counts what requests to models use."""
        return self._store.counts_usage

    @property
    def has_search(self) -> bool:
        return self._search_on is True

    async def _keep_searchable(self) -> None:
        if self._searching is not None:
            await self._searching.catch_up()

    # ------------------------------------------------------------------- agents

    @overload
    def spawn(
        self,
        agent: Agent[DepsT, OutputT],
        id: str | None = None,
        *,
        deps: DepsT | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> AgentRef[OutputT]: ...
    @overload
    def spawn(
        self,
        agent: str,
        id: str | None = None,
        *,
        deps: Any = None,
        values: Mapping[str, Any] | None = None,
    ) -> AgentRef: ...
    def spawn(
        self,
        agent: str | Agent,
        id: str | None = None,
        *,
        deps: Any = None,
        values: Mapping[str, Any] | None = None,
    ) -> AgentRef:
        """Return the ref of a new agent, or of the agent that has this id. Never waits, does no
        I/O.

        Args:
            agent: a definition or its name.
            id: text without `/`; a new id by default.
            deps: an object that is passed to the agent's tools; never stored.
            values: the values of a new agent. Instructions read them by `{key}`.

        Raises:
            UsageError: for an unknown name, a bad id, or the id of an agent with another
                definition (`OtherAgent`). If only the store or the factory knows this, the
                futures of the ref raise it.

        """
        self._running_loop()
        host = self._agent_host
        return host.ref(*host.directory.spawn(agent, id, deps=deps, values=values))

    def get(self, id: str) -> AgentRef:
        """Return the ref of the agent with this id, in memory or stored. Never waits, does no I/O.

        If there is no such agent, the first future of the ref raises `UnknownAgent`.

        Raises:
            UsageError: for a bad id.

        """
        self._running_loop()
        return self._agent_host.ref(self._agent_host.directory.get(id))

    def events(self, after: str | None = None, *, start: Start = "now") -> Feed:
        """Return the events of all agents of the store, on all hosts, in the order of the commits.

        The events are: changes of status; requests that are made, decided, withdrawn, reminded of
        and escalated; ends of runs; and deletions. Iterate with `async for`, or with `for` in a
        thread. No event is left out and none comes twice. A `Gap` says that earlier events are not
        kept any more.

        Args:
            after: the cursor of the last event that you have. The feed continues after it.
            start: without `after`: begin `"now"`, or at the `"oldest"` event that is kept.

        Raises:
            UsageError: if an argument is wrong, or the store keeps no feed. The iteration
                raises it if the feed is off: see `Runtime(feed=...)`.

        """
        self._running_loop()
        if "feed" not in self._store.keeps:
            raise UsageError(f"{self._store!r} keeps no feed")
        return self._feed(after, start)

    def resolve(self, token: str, value: Any, *, by: str | None = None) -> Future[bool]:
        """Answer the wait that has this token: `await ctx.wait_for(name)` returns the value.

        An answer that comes before the tool waits is kept for it. The agent may be passive, and the
        token may be older than this process.

        Args:
            token: the token, from `ctx.token(name)`.
            value: the answer, JSON-able.
            by: the person or service that answers. They count as a requester of the calls that
                follow. After an answer without a name, nobody can vote on a call with
                `approval(never=["requester"])`.

        Returns:
            A future of whether this is the answer. It settles when the answer is durable. A
                second call with the same value also returns True. A second call with another
                value returns False, and the first answer stands.

        Raises:
            UsageError: if the value cannot be stored as JSON, or `by` is not a name.
            UnknownToken: by the future, if no wait of this store has this token.
            Expired: by the future, if the wait ended without this answer, or its run was
                cancelled.
            VoteRefused: by the future, if `by` is a requester, and the answer would settle the
                doubt about a call with `approval(never=["requester"])`.
            RecordRefused: by the future, if the value is too large.
            OwnedElsewhere: by the future, if the agent is in the memory of another runtime that
                cannot be asked (`any_host=False`).

        """
        return self._answer_wait(token, resolved(value, by))

    def reject(self, token: str, reason: str, *, by: str | None = None) -> Future[bool]:
        """End the wait that has this token without a value: the tool gets `WaitRejected`.

        It returns and raises what `resolve` does.

        Args:
            token: the token, from `ctx.token(name)`.
            reason: a text. The model sees it if the tool does not catch the error.
            by: as of `resolve`.

        Raises:
            UsageError: if the reason is empty or not text, or `by` is not a name.

        """
        return self._answer_wait(token, rejected(reason, by))

    def _answer_wait(self, token: str, answer: Answer) -> Future[bool]:
        self._running_loop()
        return self._call(self._agent_host.answer_wait(token, answer))

    def recover(self, *, at_once: int = 32, by: str | None = None) -> Future[Recovery]:
        """Continue every run that was cut off, and start what is queued.

        Agents that wait for a person are left alone: see `pending()`. Agents that were cut off
        before without progress come last, one by one.

        The agents are continued in the background, until the run of each has an outcome. If the
        store is unavailable meanwhile, they are tried again when it answers, after growing pauses
        of at most 10 seconds, until the runtime stops.

        Args:
            at_once: the number of agents that run at a time, until each has made progress.
            by: the person who asks for it, for the record.

        Returns:
            A future of the refs of the agents. It settles when the agents are known; `await
                ref.outcome()` waits for a run. The list also says which agents have made no
                progress yet (`waiting`), which agents are not continued here and why (`left`),
                and when all this is known (`await recovery.settled`).

        Raises:
            UsageError: if `at_once` is below 1, or `by` is not a name.
            StoreUnavailable: by the future, if the list cannot be read. Nothing is continued
                then.

        """
        checked_count(at_once, what="`at_once`")
        author, host = checked_author(by, what="recover(by=...)"), self._agent_host
        if author is not None:  # hosts recover by themselves, too
            security_log.note("act", "recover", who=author)
        protected: tuple[str, Any] = "recover what was cut off", {}
        return self._guarded("recover", author, lambda: recover(host, at_once, author), protected)

    def outcome(self, id: str, *, message_id: str | None = None) -> Future[Outcome | None]:
        """Return the outcome as `ref.outcome`; the future raises `UnknownAgent` without such an
        agent.
        """
        return self.get(id).outcome(message_id=message_id)

    def delete(self, id: str, *, by: str | None = None) -> Future[bool]:
        """Delete an agent and all its records; an open run is cancelled first.

        Its id may be used again: nothing of the old agent reaches the new agent. The future
        resolves to whether there was such an agent.

        Args:
            id: the id of the agent.
            by: the person who deletes it. The store keeps the time and the person;
                `UnknownAgent` says so until there is another agent with this id.

        """
        checked_id(id)
        delete = partial(self._agent_host.activator.delete, id)
        return self._act("delete", by, delete, (f"delete agent {id!r}", {"id": id}), agent=id)

    def retire(
        self,
        *,
        older_than: Seconds,
        to: str | os.PathLike[str] | None = NOT_SAID,
        status: Status | str | None = None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> Future[Retired]:
        """Put agents of which nothing is open into an archive, and delete them.

        Nothing is open of an agent that has no run, request, wait, doubt, review, schedule, queued
        message, or anything that is due, reserved or to be told. An agent is deleted once it was
        read back from the archive, unless it has changed meanwhile. Whatever ends this in the
        middle, each agent is in the store, or in the archive, or in both. `import_` takes each line
        of an archive: see `read_archive`.

        Args:
            older_than: seconds or a timedelta since the agent has come to rest.
            to: the file, which must not be there: its name ends with `.jsonl`, `.jsonl.gz` or
                `.jsonl.zst`. It is made once there is something to put into it. None: there is no
                archive, and the agents are deleted for good.
            status: only agents of this status: `"idle"`, `"failed"` or `"cancelled"`. None: any of
                these.
            dry_run: only count them; without a file.
            by: the person who asks for it, for the record.

        Raises:
            UsageError: for a wrong argument, or a file that is there already or cannot be made.
            OSError: by the future, if the archive cannot be written. What is not in it is still in
                the store.
            ApprovalNeeded: by the future, where `Runtime(protect=...)` asks persons for `"retire"`,
                `"delete"` or `"export"`.

        """
        from understudy.actors.reads.archive import Archive, checked_archive
        from understudy.actors.retiring import Retiring, Terms, checked_status

        age = checked_delay(older_than, what="retire(older_than=...)")
        wanted = checked_status(status, what="retire(status=...)")
        checked_flag(dry_run, what="retire(dry_run=...)")
        author = checked_author(by, what="retire(by=...)")
        if dry_run and to is not NOT_SAID and to is not None:
            raise UsageError("retire(dry_run=True) writes nothing: leave `to` out")
        if not dry_run and to is NOT_SAID:
            raise UsageError(
                "retire(to=...) must say where the agents are put: the file of an archive, or None "
                "to delete them for good; or give dry_run=True"
            )
        has_archive = to is not NOT_SAID and to is not None
        path = checked_archive(to, what="retire(to=...)") if has_archive else None

        async def retired(who: str | None) -> Retired:
            archive = None if path is None else Archive(path)
            terms = Terms(age, wanted, who, dry_run=dry_run)
            return await Retiring(self._agent_host, terms, archive).run()

        if dry_run:
            return self._call(partial(retired, author))
        what: dict[str, Any] = {"older_than": age.total_seconds(), "status": wanted}
        about = f"retire agents that are at rest for {span_text(age.total_seconds())}"
        if not has_archive:  # votes for an archive are none for a deletion without one
            what["archive"] = False
            about += ", without an archive"
        return self._act("retire", author, retired, (about, what))

    def vacuum(self, *, by: str | None = None) -> Future[Vacuumed]:
        """Give the room back that deletions have left in the store; agents go on meanwhile.

        A SQLite file becomes smaller, in steps of 1 MiB, if `understudy vacuum` was run on it once.
        On PostgreSQL it is `VACUUM (ANALYZE)` of each table of the store: what is free there is
        used again.

        Args:
            by: the person who asks for it, for the security log.

        Raises:
            UsageError: if `by` is no name. By the future: if the store cannot do so.

        """
        return self._act("vacuum", by, lambda _who: self._agent_host.services.store.vacuum())

    def compact(self, id: str, *, by: str | None = None) -> Future[None]:
        """Compact an agent as `ref.compact()`; the future raises `UnknownAgent` without such an
        agent.
        """
        ref = self.get(id)
        return (ref if self._caller is None else of_login(ref, self._caller)).compact(by=by)

    def import_(
        self, data: Mapping[str, Any], id: str | None = None, *, by: str | None = None
    ) -> Future[AgentRef]:
        """Put an exported agent into this store, as a new incarnation.

        An open run in it may have continued elsewhere. So every call that was started and not
        finished is in doubt, and people are asked their requests again. Its schedules are paused.
        None of its grants holds, because the data cannot prove who gave them.

        Args:
            data: the export, as `export` returned it.
            id: a new id for the agent; by default the id in the data.
            by: the person who imports it, for the record.

        Raises:
            UsageError: for a bad id, or if `by` is not text. The future raises it if an agent
                has this id, or the data is not an export.
            SchemaVersionError: by the future, if it is an export of another format.

        """
        if id is not None:
            checked_id(id)
        author = checked_author(by, what="import_(by=...)")

        async def imported() -> AgentRef:
            services = self._agent_host.services
            imported_id, due = await import_(services.store, data, id, services.clock, author)
            security_log.note("act", "import_", who=author, agent=imported_id)
            if self._agent_host.directory.may_run(str(data["agent"])):
                services.tell_due(imported_id, due)
            return self.get(imported_id)

        if self._trust.guard is None:
            return self._call(imported)
        what = {"id": id, "data": digest(checked_json({"data": data}, what="import_(data)"))}
        about = f"import {'an agent' if id is None else f'agent {id!r}'}"
        return self._guarded("import", author, imported, (about, what))

    def export(self, id: str, *, by: str | None = None) -> Future[dict[str, Any]]:
        """Export an agent, as `Observer.export`. If it is protected, enough votes are needed."""
        checked_id(id)
        about = f"export agent {id!r}", {"id": id}
        return self._act("export", by, lambda _who: export(self._store, id), about, agent=id)

    def schedule(
        self,
        agent: AgentRef | str,
        id: str,
        **options: Unpack[ScheduleOptions],
    ) -> Future[Schedule]:
        """Let an agent run by itself, at the times of a cron line.

        The schedule is recorded with the agent, which may be passive meanwhile. Each occurrence is
        a run of its own. With a schedule of the same id again, nothing changes; if it is another
        one, it takes the place of that.

        Args:
            agent: its ref, of this runtime, or its id.
            id: of the schedule, unique in its agent.
            cron: five fields, as `"0 9 * * mon-fri"`.
            input: the user's message of each run.
            timezone: by whose clocks; an IANA name such as `"Europe/Berlin"`.
            name: for people; the id by default.
            missed: what becomes of occurrences that are noticed more than a minute late, because no
                runtime was there: `"skip"` leaves them out, `"one"` runs the last of them, `"all"`
                each of the last 100.
            overlap: what becomes of an occurrence while the one before waits or runs: `"skip"`
                leaves it out, `"queue"` lets it wait, and up to 100 of them.
            by: the person who sets it, for the record.

        Returns:
            A future of the schedule, with its next time. It raises `UsageError` if the agent has
            100 schedules already.

        Raises:
            UsageError: for a wrong argument, a line that never comes true, or an unknown zone.

        """
        return self.schedules(agent).set(id, **options)

    def schedules(self, agent: AgentRef | str) -> Schedules:
        """Return the schedules of an agent, to list, pause, resume, trigger and remove them.

        Raises:
            UsageError: if the argument is neither a ref of this runtime nor the id of an agent.

        """
        self._running_loop()
        return Schedules(own_ref(agent, self.get, self._agent_host.lifetime))

    def drain(self, timeout: float | None = None) -> Future[bool]:
        """Give up all agents in order, and take no more. Use it before you end this process.

        Each agent is passivated: at once if it is at rest, otherwise after the step in progress.
        Other hosts of a shared store continue the agents. Calls here are answered by them (see
        `any_host`), and raise `UnfitHost` if no other host can be reached. `status()` says that the
        runtime drains. Then leave the runtime.

        Args:
            timeout: seconds to wait for the steps in progress; None = no limit. The draining
                continues after the timeout: call this again, or leave the runtime.

        Returns:
            A future of whether no agent is left here.

        Raises:
            WouldDeadlock: inside a run of this runtime.
            UsageError: for a wrong argument, or if the runtime is not running.

        """
        if timeout is not None:
            checked_seconds(timeout, what="`timeout`")
        self._running_loop()
        self._refuse_inside_run("drain", "a run cannot drain the runtime it runs in")
        return self._call(lambda: self._agent_host.drain(timeout))

    def tree(self) -> SupervisorTree:
        """Return the supervisor and the actors as they are now, with the nested runs;
        `print` it.
        """
        self._running_loop()
        return self._agent_host.tree()

    @property
    def store_name(self) -> str | None:
        """The name of the store that was given, with its login; None for a `Store` of your own."""
        return self._store_name

    @property
    def definitions(self) -> tuple[Agent[Any, Any], ...]:
        """The definitions that were given, and the definitions of agents that were spawned by one.

        Definitions made by a factory are not included, nor definitions of background calls.
        """
        all_known = self._agent_host.directory.definitions()
        return tuple(each for each in all_known if not each.definition.background_of)

    def status(self) -> RuntimeStatus:
        """Return how many agents are in memory now, and how many of them run."""
        self._refuse_in_fork()
        slots = self._agent_host.directory.slots()
        return RuntimeStatus(
            agents=len(slots),
            running=sum(slot.status is Status.RUNNING for slot in slots),
            abandoned_threads=self._threads.abandoned,
            abandoned_tasks=len(self._abandoned),
            draining=self._agent_host.services.placement.is_closed,
            held=self._agent_host.services.placement.held,
            frozen=tuple(each.text for each in self._trust.state.freezes.values()),
        )

    # -------------------------------------------------------------------- inside

    def _refuse_ended(self) -> None:
        if self._has_ended():
            raise UsageError("this runtime has stopped: create another one")

    def _refuse_inside_run(self, what: str, remedy: str) -> None:
        """Raise a `WouldDeadlock` in code of a run of this runtime."""
        services = None if self._loop is None else self._agent_host.services
        if any(each is services for each, _ in running_agents.get()):
            raise WouldDeadlock(what=what, remedy=remedy)

    async def _frozen(self) -> Collection[Freeze]:
        return self.trust.state.freezes.values()

    def _has_ended(self) -> bool:
        return self._agent_host.lifetime.is_set()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._agent_host.services.start_task(work)


def _checked_timeout(given: object, what: str) -> float | None:
    return checked_limit_seconds(given, what=what, may_be_zero=True)
