"""Supervision: actors that start other actors, and start them again, by OTP's rules."""

from understudy.actors.supervisor.errors import (
    ChildNotRunning,
    ChildStartFailed,
    NoSuchChild,
    RestartIntensityExceeded,
    Shutdown,
)
from understudy.actors.supervisor.lifecycle import Sleep
from understudy.actors.supervisor.ref import SupervisorRef
from understudy.actors.supervisor.restart_policy import Strategy
from understudy.actors.supervisor.snapshots import (
    ChildCounts,
    ChildInfo,
    ChildStatus,
    SupervisorTree,
)
from understudy.actors.supervisor.spec import ChildSpec, Restart, StartChild
from understudy.actors.supervisor.supervisor import Supervisor

__all__ = [
    "ChildCounts",
    "ChildInfo",
    "ChildNotRunning",
    "ChildSpec",
    "ChildStartFailed",
    "ChildStatus",
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
]
