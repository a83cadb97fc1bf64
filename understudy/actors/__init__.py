"""Agents as supervised actors: `Runtime`, `AgentRef`, and the actors that agents are built on."""

import typing

from understudy._base.lazy_names import load_lazily as _load_lazily
from understudy.actors.agent.actor import AgentActor
from understudy.actors.agent.events import (
    AgentEvent,
    EventsDropped,
    Gap,
    LoopBlocked,
    SelfRunsBounded,
    Status,
    StatusChanged,
    Subscription,
)
from understudy.actors.agent.factory import AgentFactory
from understudy.actors.agent.messages import RunFuture
from understudy.actors.agent.stored_agents import (
    AgentInfo,
    PendingCounts,
    PendingGroup,
    PendingPlace,
    PendingRequest,
)
from understudy.actors.agent_ref import AgentRef
from understudy.actors.budgets import BudgetUse
from understudy.actors.displays import DisplaySubscription
from understudy.actors.observer import Observer
from understudy.actors.reads.feed import (
    AgentDeleted,
    Feed,
    FeedEvent,
    FeedOptions,
    RequestDecided,
    RequestsWithdrawn,
)
from understudy.actors.reads.listing import Listing, Page
from understudy.actors.recovery import Recovery
from understudy.actors.runtime import Runtime, RuntimeStatus
from understudy.actors.schedules import Schedules
from understudy.actors.simulated_clock import SimulatedClock
from understudy.actors.tree import AgentTree, NestedRun
from understudy.actors.wait_route import WaitRoute
from understudy.display import DisplayUpdate, Row
from understudy.history import HistoryEntry, HistoryPage
from understudy.journal.decided import DecidedRequest
from understudy.loop_actors.errors import ActorDied, RuntimeStopped
from understudy.loop_actors.future import Future
from understudy.loop_actors.loop_actor import LoopActor, async_hook, loop_for_start
from understudy.loop_actors.loop_thread import LoopThread
from understudy.loop_actors.monitor import Down
from understudy.loop_actors.ref import LoopActorRef
from understudy.loop_actors.registry import LoopActorRegistry
from understudy.loop_actors.supervisor import (
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
from understudy.state.plans import Occurrence, Schedule

if typing.TYPE_CHECKING:
    from understudy.actors.reads.archive import read_archive
    from understudy.actors.reads.search import SearchHit, SearchPage
    from understudy.actors.retiring import Retire, Retired
    from understudy.journal.vacuum import Vacuumed
else:  # few stores have a search, and few processes retire agents
    __getattr__, __dir__ = _load_lazily(
        __name__,
        {
            "understudy.actors.reads.archive": ["read_archive"],
            "understudy.actors.reads.search": ["SearchHit", "SearchPage"],
            "understudy.actors.retiring": ["Retire", "Retired"],
            "understudy.journal.vacuum": ["Vacuumed"],
        },
    )

__all__ = [
    "ActorDied",
    "AgentActor",
    "AgentDeleted",
    "AgentEvent",
    "AgentFactory",
    "AgentInfo",
    "AgentRef",
    "AgentTree",
    "BudgetUse",
    "ChildCounts",
    "ChildInfo",
    "ChildNotRunning",
    "ChildSpec",
    "ChildStartFailed",
    "ChildStatus",
    "DecidedRequest",
    "DisplaySubscription",
    "DisplayUpdate",
    "Down",
    "EventsDropped",
    "Feed",
    "FeedEvent",
    "FeedOptions",
    "Future",
    "Gap",
    "HistoryEntry",
    "HistoryPage",
    "Listing",
    "LoopActor",
    "LoopActorRef",
    "LoopActorRegistry",
    "LoopBlocked",
    "LoopThread",
    "NestedRun",
    "NoSuchChild",
    "Observer",
    "Occurrence",
    "Page",
    "PendingCounts",
    "PendingGroup",
    "PendingPlace",
    "PendingRequest",
    "Recovery",
    "RequestDecided",
    "RequestsWithdrawn",
    "Restart",
    "RestartIntensityExceeded",
    "Retire",
    "Retired",
    "Row",
    "RunFuture",
    "Runtime",
    "RuntimeStatus",
    "RuntimeStopped",
    "Schedule",
    "Schedules",
    "SearchHit",
    "SearchPage",
    "SelfRunsBounded",
    "Shutdown",
    "SimulatedClock",
    "Sleep",
    "StartChild",
    "Status",
    "StatusChanged",
    "Strategy",
    "Subscription",
    "Supervisor",
    "SupervisorRef",
    "SupervisorTree",
    "Vacuumed",
    "WaitRoute",
    "async_hook",
    "loop_for_start",
    "read_archive",
]
