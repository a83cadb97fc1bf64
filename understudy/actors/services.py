"""`RuntimeServices`: what all agents of a runtime share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from understudy._base.clock import Clock, NewId
from understudy._base.worker_threads import WorkerThreads
from understudy.agent.agent import Agent
from understudy.journal import Store

__all__ = ["RuntimeServices"]


C = TypeVar("C")
A = TypeVar("A")


@dataclass(slots=True, eq=False)
class RuntimeServices(Generic[C, A]):
    """What all agents of a runtime share, and what they ask of it.

    `C` is what an agent's id keeps, `A` what the agent is while it is awake: both know of this.
    """

    clock: Clock
    new_id: NewId
    threads: WorkerThreads
    store: Store
    idle_timeout: float | None
    deps_for: Callable[[str], Any] | None
    definition: Callable[[str], Agent]
    """The agent of this name; a `UsageError` names those that there are."""
    wake: Callable[[C], None]
    """Has an agent look into its inbox, from any thread."""
    passivated: Callable[[C, A | None], None]
    """An agent lies passive: it need not be kept in memory, and may be claimed elsewhere.

    Given what it was in memory; None where it could not be read.
    """
    ref_of: Callable[[C], Any]
    """The ref of an agent."""
    loop: asyncio.AbstractEventLoop
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Guards the lists of subscribers."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """What goes on for the runtime besides drives."""
    closing: bool = False
    """The runtime stops: no new drive begins."""
