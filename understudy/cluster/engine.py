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
    """A pool: hosts of a cluster with the same definitions and the same resources.

    Args:
        factory: `"module:attribute"`, imported by each host: a function without parameters that
            returns a list of agents, or `Definitions`.
        count: the number of hosts.
        num_cpus, num_gpus, resources: what each host needs, for an engine that places hosts.
            Processes on this machine are not placed: they take no `num_gpus` and `resources`.
        name: the name of the pool; the module of the factory by default.
        options: options of `Runtime`, for the hosts of this pool.

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
    """What a host needs to start. It can be pickled."""

    name: str
    """The name of the host, unique in its cluster. A restarted host keeps it."""
    factory: str
    """The factory, as `"module:attribute"`."""
    store: str
    """The name of the store."""
    options: Mapping[str, Any]
    """The options of `Runtime`."""


class HostLine(ABC):
    """The cluster's end of the connection to one host.

    Both methods are called on the cluster's event loop.
    """

    @abstractmethod
    def received(self, frame: bytes) -> None:
        """Take a frame from the host. Frames come in the order in which they were sent."""

    @abstractmethod
    def lost(self, why: str) -> None:
        """Note that the host's process has ended or cannot be reached. Another process replaces it.

        Frames that were sent to it may have been received or not. Frames that are sent from now on
        go to the next process, whose first frame is its greeting.
        """


class RunningHost(Protocol):
    """A host that an engine keeps running until `end`."""

    def send(self, frame: bytes) -> None:
        """Send a frame to the process. Never waits. The order is kept. Losses are not reported."""

    def restart(self, why: str) -> None:
        """Kill the process, and start another process."""

    async def end(self, timeout: float) -> None:
        """Wait until the process ends by itself, then kill it after this many seconds.

        No other process is started.
        """


class Engine(Protocol):
    """Starts hosts, restarts them when they end, and carries frames to and from them.

    The guarantees of a cluster hold with any engine that does this. If an engine loses a frame,
    that costs only time. All methods are called on the cluster's event loop.
    """

    async def open(self) -> None:
        """Prepare to start hosts."""

    async def close(self) -> None:
        """Release what `open` took. All hosts have ended by then."""

    async def start(self, spec: HostSpec, pool: Hosts, line: HostLine) -> RunningHost:
        """Start a host. It may still be starting on return: its greeting says when it runs."""

    def nodes(self) -> list[NodeStatus]:
        """Return the machines of the cluster, as far as the engine knows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One machine of a cluster."""

    id: str
    """The id of the machine."""
    address: str
    """The network address."""
    is_alive: bool
    """Whether the machine is alive."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """The resources of the machine, by name."""
