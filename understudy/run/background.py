"""`BackgroundCalls`: what a runtime does for calls that go on in the background."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from understudy._base.context_codecs import Context
from understudy.state.plans import BackgroundCall
from understudy.stopping import StopSignal

OWNER_DELETED = "delete of its owner"
"""The source of the signal that stops the background calls of a deleted agent."""


class BackgroundCalls(ABC):
    """Has background calls made by agents of their own, and brings their results."""

    @abstractmethod
    async def free_id(self, agent_id: str) -> str:
        """This id, or one like it that no agent has: a deleted owner has left the agent of it."""

    @abstractmethod
    async def start(
        self,
        definition: str,
        call: BackgroundCall,
        *,
        values: Mapping[str, Any],
        deps: Any,
        context: Context,
    ) -> None:
        """Have a call made. It returns when that is durable; a second time it changes nothing.

        Args:
            definition: the name of the agent that makes it.
            call: the call.
            values: those that this agent begins with.
            deps: those of the run that starts it.
            context: of who sent the message of that run.

        Raises:
            AttemptEnded: if this host gives the owner up.

        """

    @abstractmethod
    async def bring(self, agent_id: str, owner: str, code: str, text: str) -> None:
        """Bring a result to its owner. It returns when that is durable, or the owner is gone.

        A second time it changes nothing.

        Args:
            agent_id: of the agent in whose run this is called.
            owner: the id of the agent that gets the result.
            code: of the call.
            text: for the model.

        Raises:
            AttemptEnded: if this host gives the agent up in whose run this is called.

        """

    @abstractmethod
    async def cancel(self, call: BackgroundCall, signal: StopSignal) -> str:
        """Stop an open call. It returns when the call has ended, and its owner has the result.

        Args:
            call: of the agent in whose run this is called.
            signal: why.

        Returns:
            Why no agent brings the result, in words for the model; empty where one has brought it.

        Raises:
            AttemptEnded: if this host gives the owner up.

        """

    @abstractmethod
    async def end_left(self, calls: Mapping[str, str]) -> None:
        """Stop the open calls of a deleted agent. Nobody gets their results.

        Args:
            calls: their codes by the ids of the agents that make them; an empty code where it is
                not known.

        """

    @abstractmethod
    async def statuses(self, calls: Sequence[BackgroundCall]) -> Mapping[str, str]:
        """The statuses of the agents that make these calls, by their ids."""

    @abstractmethod
    async def in_doubt(
        self, definition: str, owner: str, tool_name: str, arguments: Mapping[str, Any]
    ) -> str | None:
        """The id of an agent whose call is in doubt, and equal to this one; None where none is.

        Args:
            definition: the name of the agents that make the calls of the owner.
            owner: the id of the owner.
            tool_name: of the call.
            arguments: of the call.

        """
