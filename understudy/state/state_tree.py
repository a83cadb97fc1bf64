"""The part of a state that is read across a whole tree of agents: runs, doubts, plans.

Questions about a tree (when it is due, what it waits for) are answered by modules below
`AgentState`, which read this class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from understudy.interrupts import DoubtfulCall
from understudy.state.children import Children
from understudy.state.plans import Plans
from understudy.state.run_state import RunState


class StateTree:
    """An agent's state, with the states of the agents that it runs. It is always an
    `AgentState`.
    """

    __slots__ = ()

    run: RunState | None
    """The run in progress, or the last one."""
    doubts: dict[str, DoubtfulCall]
    """The calls in doubt about which no person is asked, by call key."""
    children: dict[str, Self]
    """The states of the agents that open calls, or the workflow, run now, by child key."""
    left: dict[str, Self]
    """The states of the agents that had begun when the last run failed, by child key."""
    plans: Plans | None
    """The actions that the agent will do later by itself; None if nothing is planned."""
    may_be_in_doubt: bool
    """Whether a call of the agent, or of an agent that it runs, may be in doubt.

    It is not stored, and stays True if no call is in doubt any more.
    """

    @property
    def agents(self) -> dict[str, Self]:
        """The agents of this workflow that run now, by child key."""
        return {
            key: child
            for key, child in self.children.items()
            if child.run is not None and child.run.shared is not None
        }

    @property
    def tree(self) -> Iterator[Self]:
        """This state and the states of all agents that it runs now."""
        yield self
        for child in self.children.values():
            yield from child.tree

    @property
    def tree_in_doubt(self) -> Iterator[Self]:
        """The states of `tree` whose calls may be in doubt. Other states are not looked at."""
        if self.may_be_in_doubt:
            yield self
            if isinstance(self.children, Children):
                for key in self.children.in_doubt:
                    yield from self.children[key].tree_in_doubt

    @property
    def whole_tree(self) -> Iterator[Self]:
        """The states of `tree`, and the states of the agents that a failed run left."""
        yield self
        for child in (*self.children.values(), *self.left.values()):
            yield from child.whole_tree

    @property
    def doubts_in_tree(self) -> dict[str, DoubtfulCall]:
        """The calls in doubt of this agent and of all that it runs now, by call key."""
        return {key: doubt for state in self.tree_in_doubt for key, doubt in state.doubts.items()}
