"""`ToolContext`: what a tool may know of its call."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from understudy.state.agent_state import AgentState

__all__ = ["ToolContext"]


class ToolContext:
    """What a tool may know of its call. Annotate the first parameter with it to get one (T3)."""

    __slots__ = (
        "_emit",
        "_read_state",
        "_run_agent",
        "_state",
        "agent_id",
        "agent_path",
        "call_key",
        "deps",
        "resume_value",
        "resumed",
        "run_id",
        "tool_call_id",
        "tool_name",
    )

    agent_id: str
    agent_path: tuple[str, ...]
    """Names of the agents from the root down to this one."""
    run_id: str
    call_key: str
    """The same whenever this very call runs: hand it to the target as its idempotency key."""
    tool_call_id: str
    tool_name: str
    deps: Any
    """What the host gave to the run: connections, settings, a user. Never stored."""
    resumed: bool
    """Whether the `Interrupt` that this call raised before was answered."""
    resume_value: Any
    """That answer, or None."""

    def __init__(
        self,
        *,
        read_state: Callable[[], AgentState],
        agent_id: str,
        agent_path: tuple[str, ...],
        run_id: str,
        call_key: str,
        tool_call_id: str,
        tool_name: str,
        deps: Any,
        resumed: bool,
        resume_value: Any,
        emit: Callable[[ToolContext, Any], None],
        run_agent: Callable[[Any, Any, int], Coroutine[Any, Any, Any]],
    ) -> None:
        self._read_state = read_state
        self._state: AgentState | None = None
        self.agent_id = agent_id
        self.agent_path = agent_path
        self.run_id = run_id
        self.call_key = call_key
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
        self.deps = deps
        self.resumed = resumed
        self.resume_value = resume_value
        self._emit = emit
        self._run_agent = run_agent

    @property
    def state(self) -> AgentState:
        """The agent's state, to read: a copy, made when first asked for in this call."""
        if self._state is None:
            self._state = self._read_state()
        return self._state

    async def run_agent(self, agent: Any, input: Any, *, max_depth: int = 5) -> Any:
        """Run another agent inside this call, and give its outcome (T3).

        If it waits for a person, so does this call: afterwards the tool runs again from its
        start, and the agent goes on where it was. Its requests, usage and events are this run's.

        Args:
            agent: an `Agent`, or the name of one that a `SubAgent` of this agent offers.
            input: what it is told.
            max_depth: how deep agents may nest, the root counted (S7).

        Raises:
            UsageError: for what is no agent, an empty input, or one level too deep.

        """
        return await self._run_agent(agent, input, max_depth)

    def emit(self, data: Any) -> None:
        """Tell the run's subscribers something: they get a `ToolEmitted` event with `data`."""
        self._emit(self, data)
