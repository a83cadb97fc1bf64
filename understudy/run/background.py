"""`BackgroundCalls`: what a runtime does for calls that continue in the background."""

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
    """Makes background calls by separate agents, and brings their results."""

    @abstractmethod
    async def free_id(self, agent_id: str) -> str:
        """This id, or a similar free one: a deleted owner may have left an agent with this id."""

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
        """Start a call. It returns when the start is durable; to repeat it changes nothing.

        Args:
            definition: the name of the agent that makes the call.
            call: the call.
            values: the values with which this agent begins.
            deps: the deps of the run that starts the call.
            context: the context of the sender of this run's message.

        Raises:
            AttemptEnded: if this host stops running the owner.

        """

    @abstractmethod
    async def bring(self, agent_id: str, owner: str, code: str, text: str) -> None:
        """Bring a result to its owner. It returns when the result is durable, or the owner is gone.

        To repeat it changes nothing.

        Args:
            agent_id: the id of the agent in whose run this is called.
            owner: the id of the agent that gets the result.
            code: the code of the call.
            text: the result, for the model.

        Raises:
            AttemptEnded: if this host stops running the agent in whose run this is called.

        """

    @abstractmethod
    async def cancel(self, call: BackgroundCall, signal: StopSignal) -> str:
        """Stop an open call. It returns when the call has ended, and its owner has the result.

        Args:
            call: a call of the agent in whose run this is called.
            signal: the reason.

        Returns:
            The reason why no agent brings the result, for the model; empty if an agent has brought
            it.

        Raises:
            AttemptEnded: if this host stops running the owner.

        """

    @abstractmethod
    async def end_left(self, calls: Mapping[str, str]) -> None:
        """Stop the open calls of a deleted agent. Nobody gets their results.

        Args:
            calls: the codes of the calls by the ids of the agents that make them; empty if not
                known.

        """

    @abstractmethod
    async def statuses(self, calls: Sequence[BackgroundCall]) -> Mapping[str, str]:
        """The statuses of the agents that make these calls, by agent id."""

    @abstractmethod
    async def in_doubt(
        self, definition: str, owner: str, tool_name: str, arguments: Mapping[str, Any]
    ) -> str | None:
        """The id of an agent whose call is in doubt and equals this call; None if there is none.

        Args:
            definition: the name of the agents that make the calls of the owner.
            owner: the id of the owner.
            tool_name: the name of the called tool.
            arguments: the arguments of the call.

        """
