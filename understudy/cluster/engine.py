"""What a cluster needs of what starts its hosts: processes, and a line of frames to each."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from understudy._base.json_values import checked_text, shown
from understudy.errors import UsageError


@dataclass(frozen=True, slots=True)
class Hosts:
    """Some hosts of a cluster that have the same definitions and the same resources: a pool.

    Args:
        factory: `"module:attribute"`, which each host imports: a function without parameters that
            returns a list of agents, or `Definitions`.
        count: how many hosts.
        num_cpus, num_gpus, resources: what each of them needs, for an engine that places hosts by
            that. Processes on this machine are not placed: they take no `num_gpus` and `resources`.
        name: of the pool; the module of the factory by default.
        options: of `Runtime`, for these hosts alone.

    Raises:
        UsageError: if an argument is wrong.

    """

    factory: str
    count: int = 1
    _: KW_ONLY
    num_cpus: float = 1
    num_gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        checked_factory(self.factory)
        what = f"Hosts({self.factory!r}, %s=...)"
        checked_text(self.name, what=what % "name", may_be_empty=True)
        if not self.name:
            object.__setattr__(self, "name", self.factory.partition(":")[0])
        checked_count(self.count, what=what % "count")
        for given, name in ((self.resources, "resources"), (self.options, "options")):
            if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
                raise UsageError(f"{what % name} must be a mapping of names, got {shown(given)}")
        for amount in (self.num_cpus, self.num_gpus, *self.resources.values()):
            is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not is_number or not 0 <= amount < math.inf:
                raise UsageError(
                    f"Hosts({self.factory!r}): `num_cpus`, `num_gpus` and each of `resources` must "
                    f"be a number from 0 on, got {shown(amount)}"
                )


def checked_factory(factory: object) -> str:
    """The name of a factory.

    Raises:
        UsageError: if it is none, with the name that it could have.

    """
    remedy = (
        "a host is a process of its own, which makes its agents by itself: give the name of a "
        "function that returns them, as 'my_app.agents:make'"
    )
    found = ""
    if isinstance(factory, str):
        module, colon, attribute = factory.partition(":")
        if colon and all(part.isidentifier() for part in f"{module}.{attribute}".split(".")):
            if module != "__main__":  # which in a host is another program
                return factory
            found = attribute
    elif callable(factory):
        module, found = factory.__module__, getattr(factory, "__qualname__", "<")
    if found and "<" not in found:  # one inside another function cannot be imported
        module = _name_of_script() if module == "__main__" else module
        if module:
            remedy = f"{remedy}; this one is '{module}:{found}'"
    raise UsageError(f"`factory` must be text 'module:attribute', got {shown(factory)}: {remedy}")


def _name_of_script() -> str:
    """The name by which another process imports the main program of this one; "" if it cannot."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    name: str = spec.name if spec is not None else Path(file or "").stem
    return name if all(part.isidentifier() for part in name.split(".")) else ""


def checked_count(count: object, *, what: str) -> int:
    """A number of hosts."""
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 10_000:
        raise UsageError(f"{what} must be an integer from 0 to 10,000, got {shown(count)}")
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """What a host is started with. It can be pickled."""

    name: str
    """Unique in its cluster; a host that is started again has the same."""
    factory: str
    store: str
    options: Mapping[str, Any]
    """Options of `Runtime`."""


class HostLine(ABC):
    """The cluster's end of the line to one host. Both are called on the cluster's event loop."""

    @abstractmethod
    def received(self, frame: bytes) -> None:
        """The host has sent a frame. Frames come in the order in which they were sent."""

    @abstractmethod
    def lost(self, why: str) -> None:
        """The process of the host has ended, or cannot be reached, and another one takes its place.

        What was sent to it may have been received or not. Frames that are sent from now on are for
        the next process, whose first frame is its greeting.
        """


class RunningHost(Protocol):
    """A host that an engine runs, until it is told to end it."""

    def send(self, frame: bytes) -> None:
        """Send a frame to the process. Never waits; the order is kept. What is lost is not told."""

    def restart(self, why: str) -> None:
        """Kill the process, and start another one."""

    async def end(self, timeout: float) -> None:
        """Wait until the process ends by itself, at most so many seconds, then kill it.

        No other one is started.
        """


class Engine(Protocol):
    """Starts hosts, starts them again when they end, and carries frames to and from them.

    Everything that a cluster promises holds for any engine that does this: what an engine loses
    costs time. All methods are called on the cluster's event loop.
    """

    async def open(self) -> None:
        """Get ready to start hosts."""

    async def close(self) -> None:
        """Release what `open` took. All hosts have ended."""

    async def start(self, spec: HostSpec, pool: Hosts, line: HostLine) -> RunningHost:
        """Start a host. It need not run on return: its greeting says when it does."""

    def nodes(self) -> list[NodeStatus]:
        """The machines of the cluster, as far as the engine knows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One machine of a cluster."""

    id: str
    address: str
    is_alive: bool
    resources: Mapping[str, float] = field(default_factory=dict)
