"""`ClusterRef`: the ref of an agent that runs on some host of a cluster."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from understudy._base.type_variables import OutputT_co
from understudy.actors import AgentRef, Schedules, Status
from understudy.actors.agent.messages import RunFuture
from understudy.actors.verbs import VERBS
from understudy.cluster.events import ClusterDisplay, ClusterSubscription
from understudy.cluster.frames import Target
from understudy.interrupts import Decision, decisions_by_id
from understudy.loop_actors.future import Future
from understudy.loop_actors.monitor import Lifetime
from understudy.run.until_tool import collapse_until_tool, refuse_both

if TYPE_CHECKING:
    from understudy.cluster.calls import Calls

T = TypeVar("T")


class ClusterRef(AgentRef[OutputT_co]):
    """The address of an agent of a cluster: the calls of an `AgentRef`. A host answers them.

    If only a host can find an error, the future raises it, and not the call. `status()` returns a
    future too.
    """

    def __init__(self, calls: Calls, alive: Lifetime, target: Target) -> None:
        # Not the one of AgentRef, which needs a slot: the agent is in none of this process.
        self._calls = calls
        self._target = target
        self._is_met = target.agent is None
        self.actor_stopped: Lifetime = alive

    def __repr__(self) -> str:
        agent = self._target.agent
        what = f" of agent {agent!r}" if agent is not None else ""
        return f"<ClusterRef {self.id!r}{what}>"

    def __str__(self) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterRef) and other._calls is self._calls and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.actor_urn)

    @property
    def id(self) -> str:
        """The id of the agent."""
        return self._target.id

    def _call(
        self,
        method: str,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        future: Future[Any] | None = None,
    ) -> Future[Any]:
        # The definition is expected of the agent until it has answered once: from then on the ref
        # addresses the id, as any other.
        target = Target(self.id) if self._is_met else self._target
        if self._caller is not None:
            target = target._replace(caller=self._caller)
        return self._calls.call(target, method, arguments, named, future, met=self._met)

    def _met(self) -> None:
        self._is_met = True

    def events(self, after: int | str = 0) -> ClusterSubscription:  # type: ignore[override]
        """Return the events, as `AgentRef.events`. If the host ends, another host continues
        them.
        """
        return ClusterSubscription(self._calls, self._target, after)

    def status(self) -> Future[Status]:  # type: ignore[override]
        """Return the recorded status, as `info()`. It is never `PASSIVE`, because it belongs to no
        host.

        The future raises `UnknownAgent` if there is no such agent.
        """
        return self._call("info", (), {}).map(lambda info: info.status)

    def subscribers(self) -> Future[int]:  # type: ignore[override]
        """Return the number of the cluster's subscriptions to the agent's events, at its host."""
        return self._call("subscribers", (), {})

    def display_events(self, after: int | None = 0) -> ClusterDisplay:  # type: ignore[override]
        """Return the changing rows, as `AgentRef.display_events`. If the host ends, another
        continues.
        """
        return ClusterDisplay(self._calls, self._target, after or 0)

    def on_loop(
        self, work: Callable[[], Coroutine[Any, Any, T]], future: Future[T] | None = None
    ) -> Future[T]:
        """Run work on the loop of the cluster, as `AgentRef.on_loop`."""
        return self._calls.on_loop(work, future)

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """Passivate the agent, as `AgentRef.stop`."""
        future = self._call("stop", (), {"block": False})
        return future.get(timeout=timeout) if block else future


def forward(
    there: type[Any],
    here: type[Any],
    ask: Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Any],
    *,
    prefix: str = "",
) -> None:
    """Give a class of a cluster the verbs of a class of a runtime that it does not write out.

    Args:
        there: the class of a cluster.
        here: the class of a runtime.
        ask: asks a host. It gets the object, the name of the verb, and the arguments: by place and
            by name.
        prefix: of the names of the verbs.

    """
    for verb in VERBS.values():
        is_of_class = verb.name == prefix + verb.method and hasattr(here, verb.method)
        if is_of_class and verb.method not in vars(there):
            setattr(there, verb.method, _forwarded(getattr(here, verb.method), verb.name, ask))


def _forwarded(original: Callable[..., Any], name: str, ask: Callable[..., Any]) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        bound = signature.bind(self, *arguments, **named)  # a TypeError is the caller's
        return ask(self, name, bound.args[1:], dict(bound.kwargs))

    return call


def _ask(
    ref: ClusterRef[Any], name: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Future[Any]:
    if name in ("resume", "decide"):
        if isinstance(arguments[0], Decision):
            return ref._decide_only(arguments[0], getattr(ref, name))
        arguments = (decisions_by_id(arguments[0]),)
    if name == "run":
        _name_tools(named)
    if name in ("run", "send") and named.get("message_id") is None:
        named["message_id"] = ref._calls.new_id()  # so that it can be repeated
    future = RunFuture[Any](named["message_id"], ref._calls.loop) if name == "run" else None
    return ref._call(name, arguments, named, future)


def _name_tools(options: dict[str, Any]) -> None:
    """Name the until tools of a run: a tool itself cannot be sent.

    Raises:
        UsageError: for until tools that are none.

    """
    until, success = options.get("until_tool"), options.get("until_tool_success")
    refuse_both(until, success)
    names, _ = collapse_until_tool(until, success)
    if names is not None:
        options["until_tool" if until is not None else "until_tool_success"] = names


forward(ClusterRef, AgentRef, _ask)


class ClusterSchedules(Schedules):
    """The schedules of one agent. A host changes them."""

    def __init__(self, ref: ClusterRef[Any]) -> None:
        self._ref = ref


def _ask_schedules(
    schedules: ClusterSchedules, name: str, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Future[Any]:
    ref: ClusterRef[Any] = schedules._ref  # type: ignore[assignment]
    return ref._call(name, arguments, named)


forward(ClusterSchedules, Schedules, _ask_schedules, prefix="schedules.")
