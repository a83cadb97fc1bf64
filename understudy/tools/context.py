"""`ToolContext`: what a tool can read and do in its call."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from pydantic_ai.messages import ModelMessage

from understudy._base.context_codecs import Context
from understudy._base.points_in_time import checked_time
from understudy._base.request_timing import Seconds, checked_delay
from understudy._base.type_variables import DepsT_co, OutputT
from understudy.errors import UsageError
from understudy.models.messages import UserInput
from understudy.state.agent_state import AgentState
from understudy.tools.base_agent import BaseAgent
from understudy.tools.shared_resources import SharedResources, ToolSource

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from understudy.outcomes import Completed, Failed, Stopped


T = TypeVar("T")


class ToolContext(Generic[DepsT_co]):
    """What a tool can read and do in its call. Declare it as the type of the tool's first
    parameter.

    `ToolContext[Db]` declares that `deps` is a `Db`.
    """

    __slots__ = (
        "_begins_with_nothing",
        "_context",
        "_emit",
        "_limit",
        "_make_points",
        "_points",
        "_read_state",
        "_run_agent",
        "_shared",
        "_state",
        "agent_id",
        "agent_path",
        "answers",
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
    """The names of the agents, from the root to the agent that calls the tool."""
    run_id: str
    call_key: str
    """The key of the call, the same in all its attempts. Send it as idempotency key to other
    systems."""
    tool_call_id: str
    tool_name: str
    deps: DepsT_co
    """The `deps` of the run: connections, settings, a user. They are never stored."""
    resumed: bool
    """Whether this call raised `Interrupt` before, and now has an answer."""
    resume_value: Any
    """The answer to the `Interrupt` that this call raised before; None if there is no answer."""
    answers: Mapping[str, Any]
    """The answers by request id, because several questions may have been raised at once."""

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
        answers: Mapping[str, Any],
        emit: Callable[[ToolContext[Any], Any], None],
        run_agent: Callable[..., Coroutine[Any, Any, Completed | Stopped | Failed]],
        make_points: Callable[[], CallPoints],
        context: Context,
        shared: SharedResources,
        limit: CallLimit | None = None,
        begins_with_nothing: Callable[[], None] | None = None,
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
        self.answers = answers
        self._emit = emit
        self._run_agent = run_agent
        self._make_points = make_points
        self._points: CallPoints | None = None
        self._context = context
        self._shared = shared
        self._limit = limit
        self._begins_with_nothing = begins_with_nothing

    @property
    def context(self) -> Context:
        """The context that was captured when the run's message was sent, by the names of the
        codecs.
        """
        return MappingProxyType(self._context)

    @property
    def state(self) -> AgentState:
        """A copy of the agent's state, made at the first access in this call."""
        if self._state is None:
            self._state = self._read_state()
        return self._state

    @overload
    async def run_agent(
        self,
        agent: BaseAgent[DepsT_co, OutputT],
        input: UserInput,
        *,
        max_depth: int = 5,
        instructions: str = "",
        initial_messages: Sequence[ModelMessage] = (),
    ) -> Completed[OutputT] | Stopped | Failed: ...
    @overload
    async def run_agent(
        self,
        agent: str,
        input: UserInput,
        *,
        max_depth: int = 5,
        instructions: str = "",
        initial_messages: Sequence[ModelMessage] = (),
    ) -> Completed | Stopped | Failed: ...
    async def run_agent(
        self,
        agent: BaseAgent[DepsT_co, Any] | str,
        input: UserInput,
        *,
        max_depth: int = 5,
        instructions: str = "",
        initial_messages: Sequence[ModelMessage] = (),
    ) -> Completed | Stopped | Failed:
        """Run another agent inside this call, and return its outcome.

        If that agent waits for a person, this call waits too. After the decision the tool runs
        again from its start, and the agent continues where it stopped. Its requests, usage and
        events are part of this run.

        The tool finds its agents by the order of the `run_agent` calls. So run the same agents in
        the same order, and put other effects after them. If agents have finished calls with
        effects, an error of the tool leaves the call in doubt, unless it is a `Retry` or a
        `ToolFailed`.

        Args:
            agent: an `Agent`, which gets the same `deps`, or the name of an agent that a
                `SubAgent` of this agent offers.
            input: the user's message to the agent.
            max_depth: the number of levels of agents that may nest, including the root.
            instructions: instructions for this run in addition to the agent's own; sent as they
                are.
            initial_messages: the conversation that it begins with; it is made valid for any
                provider.

        Raises:
            UsageError: if `agent` is not an agent, `input` is empty, or the nesting is too
                deep.

        """
        return await self._run_agent(agent, input, max_depth, instructions, initial_messages)

    # ------------------------------------------------------------------ points

    def sleep(self, name: str, seconds: Seconds) -> Coroutine[Any, Any, None]:
        """Wait for some time, which may be days: `await ctx.sleep("cool down", 3600)`.

        The call is suspended: nothing of it stays in memory. When the time has come, the tool runs
        again from its start, and passes this point at once. So put a side effect that must not
        happen twice into `ctx.once`.

        Args:
            name: the name of this point. No other point of the tool may have it.
            seconds: seconds, or a timedelta, from 0 to 100 years.

        Raises:
            UsageError: if an argument is invalid, if another point has the name, or if the tool
                is plain: call `ctx.sync.sleep` there.

        """
        points = self._on_loop("sleep")
        return points.sleep(
            name, points.now() + checked_delay(seconds, what="ctx.sleep: `seconds`")
        )

    def sleep_until(self, name: str, at: datetime) -> Coroutine[Any, Any, None]:
        """Wait until a point in time, as `sleep` does. If the time has passed, the wait is over at
        once.

        Args:
            name: the name of this point.
            at: the point in time, with a time zone.

        Raises:
            UsageError: as `sleep` does.

        """
        return self._on_loop("sleep_until").sleep(
            name, checked_time(at, what="ctx.sleep_until: `at`")
        )

    def token(self, name: str) -> Coroutine[Any, Any, str]:
        """Return a new secret by which an outside caller can answer the wait with this name.

        The caller uses `runtime.resolve(token, value)` or `runtime.reject(token, reason)`, or the
        route of `WaitRoute`. The token is returned once it is durable; the store keeps only a hash
        of it. Each run of the tool makes another token, and all of them are valid.

        Args:
            name: the name of the wait.

        Raises:
            UsageError: as `sleep` does.

        """
        return self._on_loop("token").token(name)

    def wait_for(self, name: str, *, timeout: Seconds | None = None) -> Coroutine[Any, Any, Any]:
        """Wait until an outside caller answers with a token of this name. Return the value of the
        answer.

        The call is suspended, as with `sleep`. An answer that came earlier counts. Do not race
        points with `asyncio.wait(return_when=FIRST_COMPLETED)`. Give a `timeout`, or give several
        people tokens of one wait.

        Args:
            name: the name of the wait; call `ctx.token(name)` before it.
            timeout: seconds, counted from when the tool first comes here; None = no limit.

        Raises:
            WaitExpired: if nobody has answered within `timeout`.
            WaitRejected: if the answer is `reject(token, reason)`.
            UsageError: as `sleep` does, and if there is no token.

        """
        return self._on_loop("wait_for").wait_for(name, _expiry(timeout))

    @overload
    def once(
        self, name: str, function: Callable[[], Coroutine[Any, Any, T]]
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def once(self, name: str, function: Callable[[], T]) -> Coroutine[Any, Any, T]: ...
    def once(self, name: str, function: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        """Call `function` once in this call. Each later run of the tool gets the stored value.

        If it raises, it is not done, and is called again when the tool runs again. A crash in its
        middle leaves the call in doubt, unless the tool is idempotent or read-only. After it is
        done, every error of the tool except `Retry` and `ToolFailed` leaves the call in doubt.

        Args:
            name: the name of this point.
            function: a function without arguments, plain or async, whose value is JSON-able. It
                must not contain points. A plain function is called on the event loop, so it
                must not block.

        Raises:
            UsageError: as `sleep` does, and if the value cannot be stored.

        """
        return self._on_loop("once").once(name, function)

    @overload
    def ask_model(
        self,
        key: str,
        messages: UserInput | Sequence[ModelMessage],
        model: str | Model | None = None,
        output_type: None = None,
    ) -> Coroutine[Any, Any, str]: ...
    @overload
    def ask_model(
        self,
        key: str,
        messages: UserInput | Sequence[ModelMessage],
        model: str | Model | None = None,
        *,
        output_type: type[T],
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def ask_model(
        self,
        key: str,
        messages: UserInput | Sequence[ModelMessage],
        model: str | Model | None = None,
        output_type: Any = None,
    ) -> Coroutine[Any, Any, Any]: ...
    def ask_model(
        self,
        key: str,
        messages: UserInput | Sequence[ModelMessage],
        model: str | Model | None = None,
        output_type: Any = None,
    ) -> Coroutine[Any, Any, Any]:
        """Ask a model outside the conversation. Each run of the tool gets the recorded answer.

        It works as `Run.ask_model`, but the key is valid for this call alone.

        Raises:
            ModelFailed: if no model answers, or the answers do not fit.
            UsageError: if an argument is invalid, or if the tool is plain: call
                `ctx.sync.ask_model` there.

        """
        return self._on_loop("ask_model").ask_model(key, messages, model, output_type)

    @property
    def sync(self) -> SyncPoints:
        """The same points for plain tools, which cannot await: `ctx.sync.sleep("a", 60)`."""
        return SyncPoints(self._own_points)

    def has_come_to(self, name: str) -> bool:
        """Return whether an earlier run of the tool in this call has reached the point with this
        name.
        """
        return self._own_points.knows(name)

    @property
    def _own_points(self) -> CallPoints:
        if self._points is None:
            self._points = self._make_points()
        return self._points

    def _on_loop(self, what: str) -> CallPoints:
        """The points, for a coroutine. In a thread nobody would await the coroutine, so it is
        refused.
        """
        if asyncio._get_running_loop() is None:
            raise UsageError(
                f"ctx.{what} is for async tools, which await it: a plain tool calls "
                f"ctx.sync.{what}(...)"
            )
        return self._own_points

    async def shared(self, source: ToolSource[T], *, instead_of: T | None = None) -> T:
        """Return what the tools of this runtime share. `source.open()` is called at the first use.

        Args:
            source: the source that opens it; all tools that share it use the same object.
            instead_of: a lost value, such as a broken connection. Unless it was reopened
                meanwhile, it is opened again now.

        Raises:
            RuntimeError: if the runtime has stopped.
            Exception: what `source.open()` raises.

        """
        return await self._shared.get(source, instead_of=instead_of)

    def pause_timeout(self) -> None:
        """Stop counting the `timeout` of the tool until `restart_timeout`.

        Use it before the effect, for work with a limit of its own, such as opening a connection. An
        async tool that is cut off by its `timeout` is in doubt.

        Raises:
            UsageError: in a plain tool, which a limit cannot cut off.

        """
        limit = self._on_its_loop("pause_timeout")
        if limit is not None:
            limit.pause()

    def restart_timeout(self) -> None:
        """Count the whole `timeout` of the tool again from now on. Call it when the tool makes
        progress.

        Raises:
            UsageError: in a plain tool, which a limit cannot cut off.

        """
        limit = self._on_its_loop("restart_timeout")
        if limit is not None:
            limit.restart()

    @contextmanager
    def before_effect(self) -> Iterator[None]:
        """Mark what is awaited in this `with` block as coming before the effect of the call.

        Use it for opening a connection, for instance. A call that is cancelled in the block did
        nothing: it is not in doubt, and may run again. In a plain tool it has no effect, because
        its thread continues.
        """
        try:
            yield
        except asyncio.CancelledError:
            if self._begins_with_nothing is not None:
                self._begins_with_nothing()
            raise

    def _on_its_loop(self, what: str) -> CallLimit | None:
        if asyncio._get_running_loop() is None:
            raise UsageError(f"ctx.{what} is for async tools: a thread is not cut off by a limit")
        return self._limit

    def emit(self, data: Any) -> None:
        """Emit a `ToolEmitted` event with `data` to the run's subscribers."""
        self._emit(self, data)


class SyncPoints:
    """The points of a plain tool, which runs in a thread: `ctx.sync`."""

    __slots__ = ("_points",)

    def __init__(self, points: CallPoints) -> None:
        self._points = points

    def sleep(self, name: str, seconds: Seconds) -> None:
        """Wait for some time, as `ToolContext.sleep` does."""
        points = self._points
        due = points.now() + checked_delay(seconds, what="ctx.sync.sleep: `seconds`")
        points.from_thread(points.sleep(name, due))

    def sleep_until(self, name: str, at: datetime) -> None:
        """Wait until a time, as `ToolContext.sleep_until` does."""
        points = self._points
        points.from_thread(points.sleep(name, checked_time(at, what="ctx.sync.sleep_until: `at`")))

    def token(self, name: str) -> str:
        """Make a token, as `ToolContext.token` does."""
        return self._points.from_thread(self._points.token(name))

    def wait_for(self, name: str, *, timeout: Seconds | None = None) -> Any:
        """Wait for an answer, as `ToolContext.wait_for` does."""
        return self._points.from_thread(self._points.wait_for(name, _expiry(timeout)))

    def once(self, name: str, function: Callable[[], T]) -> T:
        """Call a plain function once, in this thread, as `ToolContext.once` does."""
        value: T = self._points.once_in_thread(name, function)
        return value

    def ask_model(
        self,
        key: str,
        messages: UserInput | Sequence[ModelMessage],
        model: str | Model | None = None,
        output_type: Any = None,
    ) -> Any:
        """Ask a model, as `ToolContext.ask_model` does."""
        points = self._points
        return points.from_thread(points.ask_model(key, messages, model, output_type))


class CallLimit(ABC):
    """The time limit of one attempt at a call. It is a `TimeLimit`, in the layer `modes` above."""

    @abstractmethod
    def pause(self) -> None:
        """Pause the limit, for `ToolContext.pause_timeout`."""

    @abstractmethod
    def restart(self) -> None:
        """Restart the limit, for `ToolContext.restart_timeout`."""


class CallPoints(ABC):
    """The points of one attempt at a call. They are `Points`, in the layer `run` above."""

    @abstractmethod
    def now(self) -> datetime:
        """The time by the clock of the run."""

    @abstractmethod
    async def sleep(self, name: str, due: datetime) -> None:
        """Wait until a time, as `ToolContext.sleep_until` does."""

    @abstractmethod
    async def token(self, name: str) -> str:
        """Make a token, as `ToolContext.token` does."""

    @abstractmethod
    async def wait_for(self, name: str, due_at: Callable[[datetime], datetime | None]) -> Any:
        """Wait for an answer, for `ToolContext.wait_for`; `due_at` gives the time of expiry."""

    @abstractmethod
    def knows(self, name: str) -> bool:
        """Whether an earlier attempt at the call has come to a point of this name."""

    @abstractmethod
    async def once(self, name: str, function: Callable[[], Any]) -> Any:
        """Call a function once, for `ToolContext.once`."""

    @abstractmethod
    def once_in_thread(self, name: str, function: Callable[[], Any]) -> Any:
        """Call a function once, in the thread of a plain tool."""

    @abstractmethod
    async def ask_model(self, key: str, messages: Any, model: Any, output_type: Any) -> Any:
        """Ask a model, as `ToolContext.ask_model` does."""

    @abstractmethod
    def from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work on the loop of the run, for a plain tool."""


def _expiry(timeout: Seconds | None) -> Callable[[datetime], datetime | None]:
    """A function from the time at which a wait begins to the time at which it expires.

    Raises:
        UsageError: for a timeout that is not possible.

    """
    if timeout is None:
        return lambda _: None
    span = checked_delay(timeout, what="ctx.wait_for: `timeout`")
    if not span:
        raise UsageError("ctx.wait_for: `timeout` must be above 0 seconds, or None")
    return lambda now: now + span
