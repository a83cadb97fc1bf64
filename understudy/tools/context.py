"""`ToolContext`: what a tool can read and do in its call."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from understudy.state.agent_state import AgentState


class ToolContext:
    """What a tool can read and do in its call: a first parameter of this type."""

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
    """The names of the agents from the root to this one."""
    run_id: str
    call_key: str
    """The same in every attempt of this call: send it to a target as the idempotency key."""
    tool_call_id: str
    tool_name: str
    deps: Any
    """What the run was given as `deps`: connections, settings, a user. Never stored."""
    resumed: bool
    """Whether this call raised `Interrupt` before and has an answer now."""
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
        """A copy of the agent's state, made at the first access in this call."""
        if self._state is None:
            self._state = self._read_state()
        return self._state

    async def run_agent(self, agent: Any, input: Any, *, max_depth: int = 5) -> Any:
        """Run another agent inside this call, and return its outcome.

        If it waits for a person, so does this call. After the decision the tool runs again from
        its start, and the agent continues where it stopped. Its requests, usage and events are
        part of this run.

        Args:
            agent: an `Agent`, or the name of one that a `SubAgent` of this agent offers.
            input: its input.
            max_depth: how many levels of agents may nest, including the root.

        Raises:
            UsageError: if `agent` is not an agent, `input` is empty, or the nesting is too deep.

        """
        return await self._run_agent(agent, input, max_depth)

    def emit(self, data: Any) -> None:
        """Emit a `ToolEmitted` event with `data` to the run's subscribers."""
        self._emit(self, data)
