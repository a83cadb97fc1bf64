"""`Calls`: brings each call of a cluster to a host, and again to another one if that host ends."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import pykka

from understudy._base.clock import new_random_id
from understudy._base.context_codecs import Context, ContextCodecs
from understudy._base.security_log import current_address
from understudy.actors.verbs import VERBS, Repeat
from understudy.cluster.frames import Greeting, Target, dump_arguments, with_state
from understudy.cluster.hosts import HostEnd, HostLost, HostPhase
from understudy.errors import CallLost, UsageError
from understudy.loop_actors.errors import RuntimeStopped
from understudy.loop_actors.future import Future, refuse, settle_in_task

T = TypeVar("T")

ROUTES = 100_000
"""The number of agents whose definitions and hosts are remembered."""


class Calls:
    """The calls of one cluster. All but `call` and `on_loop` is on the cluster's loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        hosts: list[HostEnd],
        greetings: Mapping[str, Greeting | None],
        codecs: ContextCodecs,
    ) -> None:
        self.loop = loop
        self._hosts = hosts
        self._greetings = greetings
        self._codecs = codecs
        self._waiting: list[Wanted] = []
        """Calls that no host can take now, in order."""
        self._locating: dict[str, list[Wanted]] = {}
        """Calls of agents whose definition is being looked up, in order."""
        self._agent_of: OrderedDict[str, str] = OrderedDict()
        self._host_of: OrderedDict[str, HostEnd] = OrderedDict()
        self._has_ended = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.new_id = new_random_id

    # ---------------------------------------------------------------- from any thread

    def call(
        self,
        target: Target,
        method: str,
        arguments: tuple[Any, ...] = (),
        named: dict[str, Any] | None = None,
        future: Future[Any] | None = None,
        *,
        route: str = "",
        met: Callable[[], None] | None = None,
    ) -> Future[Any]:
        """Call some host; the future, a new one or this, gets the answer.

        Args:
            route: the id of the agent that it is about, where the target is a runtime.
            met: called once the target has answered.

        Raises:
            UsageError: if an argument, or the context of the caller, cannot be sent.

        """
        given = arguments, named or {}, self._codecs.capture(), current_address()
        wanted = Wanted(self, target, method, given, future, route or target.id, met)
        if self._has_ended:
            raise stopped()
        self.loop.call_soon_threadsafe(self.dispatch, wanted)
        return wanted.future

    def on_loop(
        self, function: Callable[[], Coroutine[Any, Any, T]], future: Future[T] | None = None
    ) -> Future[T]:
        """Call a function on the loop; the future, a new one or this, gets what comes of it."""
        settled: Future[T] = Future(self.loop) if future is None else future

        def begin() -> None:
            settle_in_task(
                settled, function, self._start_task, told=lambda error: error, gone=stopped
            )

        if self._has_ended:
            raise stopped()
        self.loop.call_soon_threadsafe(begin)
        return settled

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def call_host(self, target: Target, method: str, *arguments: Any) -> tuple[Any, HostEnd]:
        """Call some host from the loop; its answer, and which it was."""
        wanted = Wanted(
            self, target, method, (arguments, {}, {}, current_address()), route=target.id
        )
        self.dispatch(wanted)
        answer = await wanted.future
        assert wanted.host is not None, "it has answered"
        return answer, wanted.host

    # ------------------------------------------------------------------------ routing

    def dispatch(self, wanted: Wanted) -> None:
        """Send a call to a host, which finds the owner of its agent by the store."""
        if self._has_ended:
            refuse(wanted.future, stopped())
            return
        if wanted.route in self._locating:
            self._locating[wanted.route].append(wanted)
            return
        running = [host for host in self._hosts if host.phase is HostPhase.RUNNING]
        agent = wanted.target.agent or self._agent_of.get(wanted.route)
        is_to_be_located = wanted.route and agent is None and not wanted.is_nowhere
        if is_to_be_located and self._pools_differ():
            self._locating[wanted.route] = [wanted]
            self._start_task(self._locate(wanted.route))
            return
        pool = running if agent is None else self._pool_of(agent, running)
        if not pool:
            self._waiting.append(wanted)
            return
        host = self._host_for(wanted.route, pool)
        host.send(wanted.answered, wanted.target, wanted.method, wanted.payload)

    def _pool_of(self, agent: str, running: list[HostEnd]) -> list[HostEnd]:
        """The running hosts that have this definition, or else those that make definitions."""
        pools = self._greetings.values()
        if any(agent in pool.agents for pool in pools if pool is not None):
            return [host for host in running if agent in host.agents]
        if any(pool.makes for pool in pools if pool is not None):
            return [host for host in running if host.makes]
        if None in pools:  # it may be one of these
            return []
        return running  # it says what is wrong

    def _pools_differ(self) -> bool:
        """Whether there are definitions that hosts of some pool lack."""
        pools = self._greetings.values()
        return len({pool and (frozenset(pool.agents), pool.makes) for pool in pools}) > 1

    def _host_for(self, route: str, pool: list[HostEnd]) -> HostEnd:
        known = self._host_of.get(route)
        if known is not None and known in pool:
            return known
        # Each host gets a number of its own for each agent, so where hosts come and go only the
        # agents of these hosts move.
        host = max(pool, key=lambda host: _number(route or self.new_id(), host.name))
        if route:
            # Whichever host owns the agent, this one finds it. Later calls go the same way, also
            # once a host has come that the hash prefers: they must not overtake this call.
            _remember(self._host_of, route, host)
        return host

    async def _locate(self, route: str) -> None:
        """Look up the definition of the agent, for hosts have different ones."""
        options = {"prefix": route, "limit": 1}
        try:
            page, _ = await self.call_host(Target(), "page", "agents", options)
        except Exception as error:
            for each in self._locating.pop(route, ()):
                refuse(each.future, error)
            return
        found = [info.agent for info in page if info.id == route]
        if found:
            _remember(self._agent_of, route, found[0])
        for each in self._locating.pop(route, ()):
            if not found:  # there is none: any host says so
                each.target = each.target._replace(agent=None, values=None)
                each.is_nowhere = True
            self.dispatch(each)

    def learn(self, wanted: Wanted) -> None:
        """A call is answered: what is known of its agent by that."""
        if wanted.method == "delete":
            self._agent_of.pop(wanted.route, None)
            self._host_of.pop(wanted.route, None)
        elif wanted.target.agent is not None:
            _remember(self._agent_of, wanted.route, wanted.target.agent)

    def host_changed(self) -> None:
        """Send what waits for a host."""
        waiting, self._waiting = self._waiting, []
        for wanted in waiting:
            self.dispatch(wanted)

    def end(self) -> None:
        """Refuse what still waits, and all that comes."""
        self._has_ended = True
        waiting = [*self._waiting, *(w for ws in self._locating.values() for w in ws)]
        self._waiting, self._locating = [], {}
        for wanted in waiting:
            refuse(wanted.future, stopped())

    @property
    def has_ended(self) -> bool:
        """Whether the cluster has stopped."""
        return self._has_ended


class Wanted:
    """One call, on its way to hosts until one of them answers."""

    __slots__ = (
        "_calls", "_met", "future", "host", "is_nowhere", "is_repeatable", "method", "payload",
        "route", "target",
    )  # fmt: skip

    def __init__(
        self,
        calls: Calls,
        target: Target,
        method: str,
        arguments: tuple[tuple[Any, ...], dict[str, Any], Context, str | None],
        future: Future[Any] | None = None,
        route: str = "",
        met: Callable[[], None] | None = None,
    ) -> None:
        self._calls = calls
        self._met = met
        self.target: Target = target
        self.method: str = method
        self.payload: bytes = dump_arguments(method, arguments)
        # What a cluster asks for itself only looks.
        repeat = VERBS[method].repeat if method in VERBS else Repeat.ALWAYS
        names_run = arguments[1].get("run_id") is not None
        self.is_repeatable: bool = repeat is Repeat.ALWAYS or (
            repeat is Repeat.OF_RUN and names_run
        )
        self.route: str = route
        self.future: Future[Any] = Future(calls.loop) if future is None else future
        self.host: HostEnd | None = None
        """The host that has answered."""
        self.is_nowhere: bool = False
        """No host has the agent that it is about."""

    def answered(self, host: HostEnd, value: Any, error: Exception | None) -> None:
        """As of `hosts.Answered`."""
        is_refused = isinstance(error, pykka.ActorDeadError | UsageError)
        if isinstance(error, HostLost) or (is_refused and host.phase is HostPhase.DRAINING):
            self._lost(host)
        elif error is not None:
            refuse(self.future, error)
        else:
            self.host = host
            self._calls.learn(self)
            if self._met is not None:
                self._met()
            calls, agent_id = self._calls, self.target.id
            value = with_state(
                value, lambda place: calls.call(Target(agent_id), "state_at", (place,)).get()
            )
            self.future.set(value)

    def _lost(self, host: HostEnd) -> None:
        if self._calls.has_ended:
            refuse(self.future, stopped())
        elif self.is_repeatable:
            self._calls.dispatch(self)
        else:
            refuse(self.future, CallLost(call=self.method, host=host.name))


def stopped() -> RuntimeStopped:
    """The error of every call that the end of the cluster leaves without an answer."""
    return RuntimeStopped("the cluster has stopped")


def _remember(routes: OrderedDict[str, T], id: str, what: T) -> None:
    routes[id] = what
    routes.move_to_end(id)
    if len(routes) > ROUTES:
        routes.popitem(last=False)


def _number(route: str, host: str) -> bytes:
    return hashlib.blake2b(f"{route}\0{host}".encode(), digest_size=8).digest()
