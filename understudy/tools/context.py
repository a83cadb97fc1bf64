"""`ToolContext`: what a tool can read and do in its call."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, overload

from understudy._base.type_variables import DepsT_co, OutputT
from understudy.models.messages import UserInput
from understudy.state.agent_state import AgentState

if TYPE_CHECKING:
    from understudy.agent.agent import Agent
    from understudy.outcomes import Completed, Failed, Stopped


class ToolContext(Generic[DepsT_co]):
    """What a tool can read and do in its call: a first parameter of this type.

    `ToolContext[Db]` says of which type the `deps` are.
    """

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
    deps: DepsT_co
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
        deps: DepsT_co,
        resumed: bool,
        resume_value: Any,
        emit: Callable[[ToolContext[Any], Any], None],
        run_agent: Callable[
            [Any, UserInput, int], Coroutine[Any, Any, Completed | Stopped | Failed]
        ],
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

    @overload
    async def run_agent(
        self, agent: Agent[DepsT_co, OutputT], input: UserInput, *, max_depth: int = 5
    ) -> Completed[OutputT] | Stopped | Failed: ...
    @overload
    async def run_agent(
        self, agent: str, input: UserInput, *, max_depth: int = 5
    ) -> Completed | Stopped | Failed: ...
    async def run_agent(
        self, agent: Agent[DepsT_co, Any] | str, input: UserInput, *, max_depth: int = 5
    ) -> Completed | Stopped | Failed:
        """Run another agent inside this call, and return its outcome.

        If it waits for a person, so does this call. After the decision the tool runs again from
        its start, and the agent continues where it stopped. Its requests, usage and events are
        part of this run.

        Args:
            agent: an `Agent`, which gets the same `deps`, or the name of one that a `SubAgent` of
                this agent offers.
            input: its input.
            max_depth: how many levels of agents may nest, including the root.

        Raises:
            UsageError: if `agent` is not an agent, `input` is empty, or the nesting is too deep.

        """
        return await self._run_agent(agent, input, max_depth)

    def emit(self, data: Any) -> None:
        """Emit a `ToolEmitted` event with `data` to the run's subscribers."""
        self._emit(self, data)
