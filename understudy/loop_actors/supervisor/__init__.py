"""Supervisors: actors that start, restart and stop other actors by OTP's rules."""

from understudy.loop_actors.supervisor.errors import (
    ChildNotRunning,
    ChildStartFailed,
    NoSuchChild,
    RestartIntensityExceeded,
    Shutdown,
)
from understudy.loop_actors.supervisor.lifecycle import Sleep
from understudy.loop_actors.supervisor.ref import SupervisorRef
from understudy.loop_actors.supervisor.restart_policy import Strategy
from understudy.loop_actors.supervisor.snapshots import (
    ChildCounts,
    ChildInfo,
    ChildStatus,
    SupervisorTree,
)
from understudy.loop_actors.supervisor.spec import ChildSpec, Restart, StartChild
from understudy.loop_actors.supervisor.supervisor import Supervisor

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
