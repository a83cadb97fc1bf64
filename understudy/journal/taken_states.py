"""`TakenStates`: the states of agents that other hosts have taken, kept for a while.

Hosts that are called in turn take an agent from each other again and again. The one that takes it
back continues from the state that it had, and reads and folds only what was recorded since. Such a
state is a checkpoint in memory, and a cache: it is used only where the store has the record that it
ends with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from understudy.errors import SchemaVersionError, StoreDamaged
from understudy.journal.checkpoints import WokenState
from understudy.journal.contracts import StoredRecords
from understudy.journal.loaded import Loaded, decoded

LoadBehind = Callable[[str, int], tuple[int, StoredRecords] | None]
MOST = 256
"""Agents whose states are kept. Those that were taken last replace the others."""
SECONDS = 60.0
"""Seconds for which a state is kept."""


@dataclass(frozen=True, slots=True)
class TakenState:
    """The state of an agent at rest, when another host took it."""

    agent_id: str
    incarnation: int
    at: datetime
    """The time of the last record that the state is the fold of."""
    in_store: int
    """The number of the record that the store's checkpoint was of then; 0 = it had none."""
    woken: WokenState

    def read(self, load_behind: LoadBehind) -> Loaded | None:
        """The state with what was recorded since; None if the store does not have the state.

        Args:
            load_behind: as of `SharedBackend`, in the thread that calls this.

        Raises:
            StoreUnavailable, StoreBroken: if the store cannot be read.

        """
        seq = self.woken.seq
        try:
            found = load_behind(self.agent_id, seq - 1)
            if found is None:
                return None
            in_store, stored = found
            # Race: this against whatever the other hosts did meanwhile. They may have deleted the
            # agent and made another one, or compacted its records
            # (test_the_state_of_an_agent_that_was_deleted_meanwhile_is_not_used,
            # test_the_state_of_an_agent_that_was_compacted_meanwhile_is_not_used).
            if stored.agent.incarnation != self.incarnation or stored.first_seq != seq:
                return None
            # Once they have written a checkpoint, the segments of its messages are not those that
            # this state was told of, and the checkpoint is nearer to the newest record
            # (test_the_checkpoint_of_another_host_takes_the_place_of_the_state).
            if in_store != self.in_store:
                return None
            loaded = decoded(stored)
        except (StoreDamaged, SchemaVersionError):
            # A read of all of it says what it is. Here it may be in a transaction with commits
            # of others (test_records_of_a_later_version_break_no_commit_beside_the_claim).
            return None
        # A server that has lost its last commits, as a standby may that took over, gets others
        # under the same numbers, and may give an epoch twice
        # (test_a_state_is_not_used_where_the_store_has_other_records_by_now).
        if not loaded.records or loaded.records[0].at != self.at:
            return None
        return replace(loaded, first_seq=seq + 1, records=loaded.records[1:], checkpoint=self.woken)


class TakenStates:
    """The states of agents that other hosts have taken. Lives on the runtime's loop.

    Each is kept for `SECONDS`, and `MOST` of them at most: what was taken must not stay in memory.
    """

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, TakenState]] = {}
        """The states by agent id, each with the time of the loop until which it is kept. The oldest
        comes first."""
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, left: TakenState) -> None:
        """Keep a state, in the place of an earlier one of the same agent."""
        loop = asyncio.get_running_loop()
        self._left.pop(left.agent_id, None)
        self._left[left.agent_id] = loop.time() + SECONDS, left
        if len(self._left) > MOST:
            del self._left[next(iter(self._left))]
        if self._timer is None:
            self._timer = loop.call_later(SECONDS, self._forget_old, loop)

    def find(self, agent_id: str) -> TakenState | None:
        """The state of an agent, if one is kept."""
        kept = self._left.get(agent_id)
        return None if kept is None else kept[1]

    def forget(self, agent_id: str) -> None:
        """Keep no state of this agent."""
        self._left.pop(agent_id, None)

    def clear(self) -> None:
        """Keep no state of any agent."""
        self._left.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget_old(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        for agent_id, (until, _) in list(self._left.items()):
            if until > now:
                self._timer = loop.call_at(until, self._forget_old, loop)
                return
            del self._left[agent_id]
