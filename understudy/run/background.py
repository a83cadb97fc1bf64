"""`BackgroundCalls`: what a runtime does for calls that go on in the background."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from understudy._base.context_codecs import Context
from understudy.state.plans import BackgroundCall


class BackgroundCalls(ABC):
    """Has background calls made by agents of their own, and brings their results."""

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

        """

    @abstractmethod
    async def bring(
        self,
        agent_id: str,
        owner: str,
        code: str,
        text: str,
        *,
        is_to_end: Callable[[], bool] | None,
    ) -> None:
        """Bring a result to its owner. It returns when that is durable, or the owner is gone.

        A second time it changes nothing.

        Args:
            agent_id: of the agent that has made the call.
            owner: the id of the agent that gets the result.
            code: of the call.
            text: for the model.
            is_to_end: whether this host gives the agent up now; None: it never does.

        Raises:
            AttemptEnded: if it does.

        """
