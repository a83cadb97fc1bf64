"""Actors on event loops: Pykka's, but 100,000 of them fit one process."""

from understudy.actors.errors import ActorDied
from understudy.actors.future import Future
from understudy.actors.loop_actor import LoopActor, loop_for_start
from understudy.actors.loop_thread import LoopThread
from understudy.actors.monitor import Down
from understudy.actors.ref import LoopActorRef
from understudy.actors.registry import install as _install_registry
from understudy.actors.supervisor import (
    ChildCounts,
    ChildInfo,
    ChildNotRunning,
    ChildSpec,
    ChildStartFailed,
    ChildStatus,
    NoSuchChild,
    Restart,
    RestartIntensityExceeded,
    Shutdown,
    Sleep,
    StartChild,
    Strategy,
    Supervisor,
    SupervisorRef,
    SupervisorTree,
)

__all__ = [
    "ActorDied",
    "ChildCounts",
    "ChildInfo",
    "ChildNotRunning",
    "ChildSpec",
    "ChildStartFailed",
    "ChildStatus",
    "Down",
    "Future",
    "LoopActor",
    "LoopActorRef",
    "LoopThread",
    "NoSuchChild",
    "Restart",
    "RestartIntensityExceeded",
    "Shutdown",
    "Sleep",
    "StartChild",
    "Strategy",
    "Supervisor",
    "SupervisorRef",
    "SupervisorTree",
    "loop_for_start",
]

_install_registry()
