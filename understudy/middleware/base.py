"""The middleware contract. Everything in it is optional."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from understudy.errors import UsageError
from understudy.interrupts import Decision, Request
from understudy.outcomes import Outcome
from understudy.run.definition import AgentDefinition
from understudy.run.hooks import Hook, Hooks
from understudy.run.instructions import Instructions
from understudy.run.model_input import ModelInput
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse

__all__ = ["Middleware", "Next", "Prepared", "collect_hooks"]

Next = Callable[[ToolCall], Awaitable[Any]]
"""Goes on with a call: gives what the tool returned, raises what it raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a middleware adds to an agent."""

    instructions: Instructions = ""
    tools: Sequence[Any] = field(default_factory=tuple)
    agents: Sequence[Any] = field(default_factory=tuple)
    """Agents that its tools may run: each an `Agent`, or a dict of what makes one (S2)."""


class Middleware:
    """One concern of an agent, wrapped around its model and tool calls.

    Override what you need, async or plain (plain hooks run in worker threads). Hooks are called in
    stack order, `after_*` and `on_run_end` in reverse. A hook that raises ends the run as
    `Failed(MiddlewareError)`. Hooks run at least once: a crash may repeat the last one, so a side
    effect belongs into `await run.once(key, fn)` (J15).
    """

    state_schema: ClassVar[type[BaseModel] | None] = None
    """Typed values that this middleware adds to `state.values`: checked on entry and on change."""
    stream_safe: ClassVar[bool] = False
    """Whether text may be shown before `after_model` has seen the whole reply (J15)."""
    keeps_time: bool = False
    """Whether it reads `run.seconds`, so that they are recorded to survive a crash (P5)."""

    @property
    def name(self) -> str:
        """What errors call it."""
        return type(self).__name__

    def prepare(self, definition: AgentDefinition) -> Prepared:
        """The instructions and tools that it adds. Called once, when the agent is made."""
        return Prepared()

    def check(self, definition: AgentDefinition) -> None:
        """Raise a `UsageError` for options that do not fit the finished agent (R8)."""

    async def on_start(self, actor: Any) -> None:
        """The agent is awake, for the first time or again. Only under a `Runtime`.

        Args:
            actor: the agent's ref: keep it to `send` or `notify` later.

        """

    async def on_message(self, run: Run, message: Any) -> Mapping[str, Any] | None:
        """A host, or this middleware itself, sent `ref.notify(name, message)` (A7).

        It may come in the middle of a run, or while none goes on: read `run.state` and `run.deps`.

        Returns:
            A delta to merge into the agent's values, as a tool's; or None.

        """
        return None

    async def on_run_start(self, run: Run) -> None:
        """A run begins."""

    async def before_step(self, run: Run) -> None:
        """A step, a model call and its tools, is about to begin: the place for `run.signal`."""

    async def after_step(self, run: Run) -> None:
        """A step is done, its reply and results are in the state; now it is decided how to go on.

        Not called where the run ends by its until tool.
        """

    async def before_model(self, run: Run, request: ModelInput) -> ModelInput | None:
        """The model is about to be asked `request`; return another one to ask that instead."""

    async def after_model(self, run: Run, reply: ModelResponse) -> ModelResponse | None:
        """The model replied; return another reply to record that instead."""

    async def check_tool_calls(self, run: Run, calls: Sequence[ToolCall]) -> Sequence[Request]:
        """Which of these calls need a person: make each with `call.request(...)`."""
        return ()

    async def wrap_tool_call(self, run: Run, call: ToolCall, next: Next) -> Any:
        """Around a tool's body. Must be async, and give what `await next(call)` gives, or other."""
        return await next(call)

    async def on_resume(self, run: Run, decisions: dict[str, Decision]) -> None:
        """A person answered; the decisions are recorded already."""

    async def on_run_end(self, run: Run, outcome: Outcome) -> None:
        """The run is done: not interrupted, paused or failed (R4)."""

    def transform_display_message(self, message: ModelMessage) -> ModelMessage | None:
        """How a person is shown a message: another one, or None for as it is."""


_REVERSED = ("after_step", "after_model", "on_run_end")
_TABLE = (
    "on_start",
    "on_message",
    "on_run_start",
    "before_step",
    "after_step",
    "before_model",
    "after_model",
    "check_tool_calls",
    "wrap_tool_call",
    "on_resume",
    "on_run_end",
    "transform_display_message",
)


def collect_hooks(stack: Sequence[Middleware]) -> Hooks:
    """The hooks that these middlewares override, each in calling order.

    Raises:
        UsageError: if one that must be async is not, or the other way round.

    """
    table: dict[str, tuple[Hook, ...]] = {}
    for name in _TABLE:
        hooks = []
        for middleware in stack:
            if getattr(type(middleware), name) is getattr(Middleware, name):
                continue
            hook = Hook.of(middleware, name, getattr(middleware, name))
            if name == "wrap_tool_call" and not hook.is_async:
                raise UsageError(f"{middleware.name}.wrap_tool_call must be async: it awaits next")
            if name == "transform_display_message" and hook.is_async:
                raise UsageError(f"{middleware.name}.transform_display_message must be plain")
            hooks.append(hook)
        table[name] = tuple(reversed(hooks) if name in _REVERSED else hooks)
    rewriting = [
        m
        for m in stack
        if getattr(type(m), "after_model") is not Middleware.after_model  # noqa: B009
    ]
    return Hooks(
        **table,
        keeps_time=any(m.keeps_time for m in stack),
        streams_safely=all(m.stream_safe for m in rewriting),
    )
