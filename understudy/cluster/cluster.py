"""`Cluster`: many hosts on one store, called as one runtime."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, Unpack, cast

from understudy._base.authors import checked_author
from understudy._base.context_codecs import ContextCodec, ContextCodecs
from understudy._base.json_values import checked_limit_seconds, checked_seconds, shown
from understudy._base.request_timing import Seconds
from understudy.actors import (
    AgentRef,
    Feed,
    Page,
    Recovery,
    Runtime,
)
from understudy.actors.agent.directory import checked_id
from understudy.actors.agent.events import Status
from understudy.actors.hosts.recovery import Progress
from understudy.actors.presence import Presence
from understudy.actors.reads.feed import Start
from understudy.actors.reads.listing import Listing, checked_limit
from understudy.actors.runtime import NOT_SAID, RuntimeOptions
from understudy.actors.schedules import own_ref
from understudy.actors.verbs import VERBS
from understudy.agent.agent import Agent
from understudy.agent.build_definition import check_name
from understudy.approvals import Caller
from understudy.cluster.calls import Calls
from understudy.cluster.definitions import Definitions
from understudy.cluster.engine import (
    Engine,
    Hosts,
    checked_count,
)
from understudy.cluster.frames import Target
from understudy.cluster.hosts import HostLost
from understudy.cluster.pools import HostPools, checked_pools
from understudy.cluster.processes import Processes
from understudy.cluster.refs import ClusterRef, ClusterSchedules, forward
from understudy.cluster.status import ClusterStatus, status_of, tree_of
from understudy.errors import CallLost, ForkedRuntime, UsageError
from understudy.interrupts import Request
from understudy.journal.feed import FeedKey, FeedPage
from understudy.loop_actors.future import Future
from understudy.loop_actors.loop_thread import LoopThread
from understudy.loop_actors.monitor import Lifetime
from understudy.loop_actors.supervisor import SupervisorTree
from understudy.run.waits.tokens import agent_of
from understudy.state.agent_state import AgentState
from understudy.tools.tool_defaults import NO_DEFAULTS, ToolDefaults
from understudy.trust.rules import Rules
from understudy.trust.trust import NO_TRUST, Trust

NO_RULES = "A cluster knows no people and has no rules: give them to a Runtime for each host"
NO_FREEZES = (
    "A cluster freezes and requires nothing itself: ask a Runtime of its store, or the command "
    "line: `understudy freeze`, `understudy trust`"
)
NO_BUDGETS = "A cluster has no budgets: give them to a Runtime for each host"
NO_NOTIFY = "A cluster tells nobody of requests itself: ask a Runtime of its store"
START_TIMEOUT = 120.0
HANG_TIMEOUT = 60.0
DRAIN_TIMEOUT = 60.0


if TYPE_CHECKING:
    from understudy.actors.retiring import Retired
    from understudy.journal.vacuum import Vacuumed

    _RuntimeCalls = Runtime
else:  # those that are not below are made by `_forwarded`
    _RuntimeCalls = object


class Cluster(_RuntimeCalls):
    """Many hosts with one store, used as one runtime: the calls of `Runtime`, and refs as
    `AgentRef`.

    Each host is a process with a runtime of its own. A factory makes its agents. A host that ends
    is started again; meanwhile other hosts continue its work. Everything that a host has answered
    is in the store. If the cluster itself ends, a plain `Runtime` on the store continues.

    `with Cluster(...)` and `async with Cluster(...)` both work. Its futures can be awaited on any
    loop, and `get` works in any thread.

    Differences from a runtime: an error for a wrong argument may come from the future, because only
    a host knows the definition. An outcome comes without its state: `outcome.state` asks a host
    when it is first read, and raises `UsageError` if the agent was deleted meanwhile, or compacted
    after its next run. `AgentInfo.is_active` is about the host that answers.

    Args:
        hosts: for one pool, `"module:attribute"`: a function that returns the agents; see
            `Hosts`. For several pools, a list of `Hosts`.
        count: the number of hosts, if `hosts` is a name.
        store: the store that all hosts share: `"postgresql://..."`.
        engine: `"processes"` on this machine, `"ray"`, or an `Engine`.
        start_timeout: seconds that the first host of each pool may take to start.
        hang_timeout: seconds after which a host that does not answer is killed and started
            again; None = never.
        drain_timeout: seconds that a host may take to end its steps in progress.
        context: codecs, as of `Runtime`, for the context of callers in this process. The codecs
            of the hosts, which apply it, come from their factory.
        options: options for the `Runtime` of each host.

    Raises:
        UsageError: if an argument or an option is wrong. `with` and `async with` raise the
            error of a host that cannot start, and `StoreUnavailable` if no host has started in
            time.

    """

    tool_defaults: ToolDefaults = NO_DEFAULTS
    """Nothing: only the hosts know the settings for tools that do not declare their effects."""
    prices: None = None
    """None: only the hosts price replies of models. The cost is recorded with each reply."""

    def __init__(
        self,
        hosts: str | Iterable[Hosts],
        count: int = 1,
        *,
        store: str,
        engine: Literal["processes", "ray"] | Engine = "processes",
        start_timeout: float = START_TIMEOUT,
        hang_timeout: float | None = HANG_TIMEOUT,
        drain_timeout: float = DRAIN_TIMEOUT,
        context: Iterable[ContextCodec] = (),
        **options: Unpack[RuntimeOptions],
    ) -> None:
        self.presence: Presence = Presence()
        """The people who look at requests now, on the pages that this process serves."""
        pools = checked_pools(hosts, count)
        for pool in pools:
            _check_options({**options, **pool.options})
        self._store_url = _checked_store(store, hosts=sum(pool.count for pool in pools))
        self._drain_timeout = checked_seconds(drain_timeout, what="`drain_timeout`")
        self._pools = HostPools(
            pools,
            _engine(engine),
            store=self._store_url,
            options={**options},
            start_timeout=checked_seconds(start_timeout, what="`start_timeout`"),
            hang_timeout=checked_limit_seconds(hang_timeout, what="`hang_timeout`"),
            drain_timeout=self._drain_timeout,
        )
        self._counts_usage = any({**options, **pool.options}.get("usage", False) for pool in pools)
        self._codecs = ContextCodecs(context)
        self._lifetime = Lifetime()
        self._thread: LoopThread | None = None
        self._calls: Calls
        self._process = os.getpid()

    # -------------------------------------------------------------------- life cycle

    def __enter__(self) -> Self:
        begun = self._begin()
        try:
            begun.get()
        except BaseException:
            self.stop(0)
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        begun = self._begin()
        try:
            await begun
        except BaseException:
            await asyncio.to_thread(self.stop, 0)
            raise
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self.stop)

    def _begin(self) -> Future[None]:
        if self._thread is not None or self._lifetime.is_set():
            raise UsageError("a Cluster is entered once: create another one")
        # A loop of its own, also in async code: a busy application delays no host, and a state
        # that is loaded when it is read can be read on the application's loop.
        self._thread = LoopThread("understudy-cluster")
        loop = self._thread.start()
        self._calls = Calls(loop, self._pools.hosts, self._pools.greetings, self._codecs)
        return self._calls.on_loop(lambda: self._pools.open(self._calls))

    def stop(self, timeout: float | None = None) -> None:
        """End all hosts: each host releases its agents when its steps in progress are recorded.

        Args:
            timeout: seconds that a host may take; the `drain_timeout` by default.

        Raises:
            WouldDeadlock: on the cluster's own loop.

        """
        thread = self._thread
        if thread is None or self._process != os.getpid():
            return
        seconds = self._drain_timeout if timeout is None else timeout
        self._thread = None
        self._lifetime.set()
        try:
            asyncio.run_coroutine_threadsafe(self._end(seconds), self._calls.loop).result()
        finally:
            thread.stop(seconds)
            self._lifetime.end(None)

    async def _end(self, timeout: float) -> None:
        self._calls.end()
        await self._pools.end(timeout)

    # ------------------------------------------------------------------------ hosts

    def scale(self, count: int, pool: str | None = None) -> Future[None]:
        """Start or end hosts until a pool has this many.

        Hosts that end release their agents when the steps in progress are recorded; other hosts
        continue the runs. The future settles when these hosts have ended. New hosts may take longer
        to start: see `status`.

        Args:
            count: the number of hosts.
            pool: the name of the pool, if there are several pools.

        Raises:
            UsageError: if an argument is wrong.

        """
        checked_count(count, what="scale(count)")
        found = self._pools.named(pool)
        self._refuse_unusable()
        return self._calls.on_loop(lambda: self._pools.scale(found, count))

    def drain(self, timeout: float | None = None) -> Future[bool]:
        """Drain all hosts, as `Runtime.drain`: they give up all agents and take no more."""
        self._refuse_unusable()
        return self._calls.on_loop(lambda: self._pools.drain(timeout))

    def status(self) -> Future[ClusterStatus]:  # type: ignore[override]
        """Return the hosts and the machines. A host that does not answer soon has no counts."""
        self._refuse_unusable()
        pools = self._pools
        return self._calls.on_loop(lambda: status_of(list(pools.hosts), pools.nodes))

    @property
    def store_name(self) -> str | None:
        """The name of the store, with its login, as `Runtime.store_name`."""
        return self._store_url

    def tree(self) -> Future[SupervisorTree]:  # type: ignore[override]
        """Return the supervisors and actors of all hosts as they are now; `print` it."""
        self._refuse_unusable()
        name = type(self).__name__
        return self._calls.on_loop(lambda: tree_of(list(self._pools.hosts), name))

    # ------------------------------------------------------------------------ agents

    def spawn(  # type: ignore[override]
        self, agent: str, id: str | None = None, *, deps: None = None, values: Any = None
    ) -> ClusterRef[Any]:
        """Return the ref of a new agent, as `Runtime.spawn`. Give the name of a definition of the
        hosts.

        Raises:
            UsageError: for a definition object, or `deps`, because other processes cannot have
                them; and as `Runtime.spawn`.

        """
        self._refuse_unusable()
        if isinstance(agent, Agent):
            raise UsageError(
                f"spawn({agent.name!r}): an agent cannot be sent to another process: give its "
                "name, and let the factory of the hosts ('module:attribute') return it"
            )
        if deps is not None:
            raise UsageError(
                "`deps` cannot be sent to another process: let the factory of the hosts return "
                "Definitions(agents, deps_for=...)"
            )
        pools = list(self._pools.greetings.values())
        known = {name: None for pool in pools if pool is not None for name in pool.agents}
        may_have_others = any(pool is None or pool.makes for pool in pools)
        if agent not in known and isinstance(agent, str) and may_have_others:
            check_name(agent)
        elif agent not in known:
            there = ", ".join(map(repr, known)) or "none"
            raise UsageError(f"No agent is named {shown(agent)}; the hosts have: {there}")
        id = self._calls.new_id() if id is None else checked_id(id)
        kept = dict(AgentState(values=values).values) if values else None
        return ClusterRef(self._calls, self._lifetime, Target(id, agent, kept))

    def get(self, id: str) -> ClusterRef[Any]:
        """Return the ref of an agent, as `Runtime.get`."""
        self._refuse_unusable()
        return ClusterRef(self._calls, self._lifetime, Target(checked_id(id)))

    def schedules(self, agent: AgentRef | str) -> ClusterSchedules:
        """Return the schedules of an agent, as `Runtime.schedules`."""
        self._refuse_unusable()
        return ClusterSchedules(own_ref(agent, self.get, self._lifetime))

    if not TYPE_CHECKING:  # a type checker has them from the base, with their types
        schedule = Runtime.schedule
        compact = Runtime.compact
        outcome = Runtime.outcome

    _caller: Caller | None = None

    def _asked_by(self, caller: Caller) -> Self:
        """This cluster: it protects nothing, so it need not know who calls."""
        return self

    @property
    def people(self) -> None:
        """None: a cluster knows no people, so nobody can vote through it."""
        return None

    @property
    def rules(self) -> Rules | None:
        """None: a cluster has no rules.

        Raises:
            UsageError: where rules are set, which would hold at no host.

        """
        return None

    @rules.setter
    def rules(self, rules: Rules | None) -> None:
        if rules is not None:
            raise UsageError(NO_RULES)

    def set_rules(self, rules: Rules | None) -> NoReturn:
        """Refused: a cluster has no rules.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_RULES)

    def registered_rules(self) -> NoReturn:
        """Refused: a cluster has no rules.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_RULES)

    def retire_rules(self, *, version: int | None = None, by: str | None = None) -> NoReturn:
        """Refused: a cluster has no rules.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_RULES)

    def freeze(
        self,
        *,
        definition: str | None = None,
        tool: str | None = None,
        why: str,
        by: str | None = None,
    ) -> NoReturn:
        """Refused: freeze the store with the program of a host, or on the command line.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_FREEZES)

    def thaw(self, id: str, *, by: str | None = None) -> NoReturn:
        """Refused, as `freeze`.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_FREEZES)

    def require(self, name: str, *, required: bool = True, by: str | None = None) -> NoReturn:
        """Refused, as `freeze`.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_FREEZES)

    def required(self) -> NoReturn:
        """Refused, as `freeze`.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_FREEZES)

    def freezes(self, id: str | None = None) -> NoReturn:
        """Refused, as `freeze`.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_FREEZES)

    @property
    def counts_usage(self) -> bool:
        """Whether some of the hosts count what requests to models use."""
        return self._counts_usage

    @property
    def has_budgets(self) -> bool:
        """False: a cluster has no budgets."""
        return False

    @property
    def low_budgets(self) -> int:
        """0: a cluster has no budgets."""
        return 0

    def budgets(self) -> NoReturn:
        """Refused: a cluster has no budgets.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_BUDGETS)

    def reserved(self, id: str) -> NoReturn:
        """Refused: a cluster has no budgets.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_BUDGETS)

    def raise_budget(
        self,
        name: str,
        amount: Decimal | float | str,
        *,
        why: str,
        key: str = "",
        by: str | None = None,
    ) -> NoReturn:
        """Refused: a cluster has no budgets.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_BUDGETS)

    @property
    def trust(self) -> Trust:
        """An object without people and rules: a cluster has none."""
        return NO_TRUST

    @property
    def definitions(self) -> tuple[()]:
        """Empty: only the hosts have definitions. `status()` lists the pools of the hosts."""
        return ()

    def tool_of(self, request: Request) -> None:
        """Return None: only the hosts have definitions. `pending()` includes the description of a
        tool.
        """
        self._refuse_unusable()

    def why_impossible(self, request: Request) -> None:
        """Return None: only the hosts have definitions. `resume` says why a call cannot run."""
        self._refuse_unusable()

    @property
    def has_search(self) -> bool:
        """False: only the hosts keep an index. They answer `search`."""
        return False

    @property
    def has_notify(self) -> bool:
        """False: a cluster itself tells nobody about requests."""
        return False

    def retry_notice(self, no: int, *, by: str | None = None) -> NoReturn:
        """Refused: use the program of a runtime that has `notify`.

        Raises:
            UsageError: always.

        """
        raise UsageError(NO_NOTIFY)

    def _listing(self, name: str, options: dict[str, Any]) -> Listing[Any]:
        self._refuse_unusable()
        after, limit = options.pop("after", None), checked_limit(options.pop("limit", None))

        async def read(after: str | None, limit: int) -> Page[Any]:
            named = {**options, "after": after, "limit": limit}
            page: Page[Any] = await self._calls.call(Target(), "page", (name, named))
            return page

        return Listing(self._calls.on_loop, read, after=after, limit=limit, loop=self._calls.loop)

    def events(self, after: str | None = None, *, start: Start = "now") -> Feed:
        """Return the events of all agents, as `Runtime.events`."""
        self._refuse_unusable()

        async def read(after: FeedKey | None, limit: int) -> FeedPage | None:
            page: FeedPage | None = await self._calls.call(Target(), "read_feed", (after, limit))
            return page

        return Feed(
            self._calls.on_loop,
            read,
            after=after,
            start=start,
            has_ended=self._lifetime.is_set,
        )

    def recover(self, *, at_once: int = 32, by: str | None = None) -> Future[Recovery]:
        """Continue what was cut off, as `Runtime.recover`, at one host.

        Hosts do this by themselves: see `sweep`. If that host ends before the recovery has settled,
        the agents that still wait are in `left` with `CallLost`; other hosts continue them.
        """
        self._refuse_unusable()
        author = checked_author(by, what="recover(by=...)")
        return self._calls.on_loop(lambda: self._recover(at_once, author))

    async def _recover(self, at_once: int, by: str | None) -> Recovery:
        (number, ids, left), host = await self._calls.call_host(Target(), "recovery", at_once, by)
        progress = Progress(ids, left)
        recovery = Recovery([self.get(id) for id in ids], progress)

        async def settle() -> None:
            try:
                left = await host.ask("settled", number)
            except HostLost:
                left = dict.fromkeys(ids, CallLost(call="recover", host=host.name))
            for id in ids:
                progress.settle(id, left.get(id))
            recovery.settled.set(recovery)

        self._calls.on_loop(settle)
        return recovery

    def import_(  # type: ignore[override]
        self, data: Mapping[str, Any], id: str | None = None, *, by: str | None = None
    ) -> Future[ClusterRef[Any]]:
        """Import an agent, as `Runtime.import_`."""
        if id is not None:
            checked_id(id)
        checked_author(by, what="import_(by=...)")
        return self._runtime_call("import_", (data, id), {"by": by}).map(self.get)

    def retire(
        self,
        *,
        older_than: Seconds,
        to: str | os.PathLike[str] | None = NOT_SAID,
        status: Status | str | None = None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> Future[Retired]:
        """Retire agents, as `Runtime.retire`, at one host. The archive is a file on that host's
        machine.
        """
        checked_author(by, what="retire(by=...)")
        named: dict[str, Any] = {"older_than": older_than, "status": status}
        named |= {"dry_run": dry_run, "by": by} | ({} if to is NOT_SAID else {"to": to})
        return self._runtime_call("retire", (), named)

    def vacuum(self, *, by: str | None = None) -> Future[Vacuumed]:
        """Vacuum the store, as `Runtime.vacuum`, at one host."""
        checked_author(by, what="vacuum(by=...)")
        return self._runtime_call("vacuum", (), {"by": by})

    def _runtime_call(
        self, name: str, arguments: tuple[Any, ...], named: dict[str, Any], route: str = ""
    ) -> Future[Any]:
        self._refuse_unusable()
        return self._calls.call(Target(), name, arguments, named, route=route)

    def _refuse_unusable(self) -> None:
        if self._process != os.getpid():
            raise ForkedRuntime
        if self._lifetime.is_set():
            raise UsageError("this cluster has stopped: create another one")
        if self._thread is None:
            raise UsageError("this cluster is not started: use it in `with` or `async with`")


def _ask(
    cluster: Cluster, name: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Future[Any] | Listing[Any]:
    signature = inspect.signature(getattr(Runtime, name))
    if VERBS[name].is_list:
        bound = signature.bind(cluster, *arguments, **named)
        return cluster._listing(name, dict(list(bound.arguments.items())[1:]))
    # Its first argument says whose agent it is about: an id, or a token with one.
    first, about = list(signature.parameters)[1:2], ""
    if first == ["token"]:
        about = agent_of(arguments[0]) if isinstance(arguments[0], str) else ""
    elif first == ["id"]:
        about = checked_id(arguments[0])
    return cluster._runtime_call(name, arguments, named, about)


forward(Cluster, Runtime, _ask)
# As for a type checker: what takes a runtime takes a cluster.
Runtime.register(Cluster)


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise what each host would raise, once it has started."""
    for name in options:
        if name not in RuntimeOptions.__annotations__:
            remedy = ""
            if name in Definitions.__dataclass_fields__:
                remedy = f": let their factory return Definitions(agents, {name}=...)"
            raise TypeError(f"the hosts of a cluster take no option {name!r}{remedy}")
    Runtime((), store="memory:", **options)  # never started
    if not options.get("any_host", True):
        raise UsageError(
            "any_host=False: a cluster asks any host for any agent, and the host asks the owner"
        )


def _checked_store(store: object, *, hosts: int) -> str:
    if isinstance(store, str) and store.startswith(("postgresql://", "postgres://")):
        return store
    if isinstance(store, str) and store.startswith("sqlite://") and hosts == 1:
        return store
    raise UsageError(
        "`store` must be what many processes can share, 'postgresql://user@host/database', got "
        f"{shown(store) if not isinstance(store, str) else repr(store.partition('://')[0])}"
    )


def _engine(engine: object) -> Engine:
    if engine == "processes":
        return Processes()
    if engine == "ray":
        from understudy.cluster.ray_engine import RayEngine

        return RayEngine()
    if all(callable(getattr(engine, name, None)) for name in ("open", "close", "start", "nodes")):
        return cast("Engine", engine)
    raise UsageError(f"`engine` must be 'processes', 'ray' or an Engine, got {shown(engine)}")
