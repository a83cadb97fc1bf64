"""`Middleware`: the contract between the pipeline and a middleware. All hooks are optional."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import BaseModel

from understudy._base.type_variables import DepsT_contra
from understudy.errors import UsageError
from understudy.interrupts import Decision, Request
from understudy.models.prices import Prices
from understudy.outcomes import Completed, Interrupted, Outcome
from understudy.run.definition import AgentDefinition
from understudy.run.hooks import Hook, Hooks, Passivation
from understudy.run.instructions import Instructions
from understudy.run.model_input import ModelInput
from understudy.run.run import Run
from understudy.run.tool_call import ToolCall
from understudy.state.agent_state import AgentState
from understudy.state.files import FileChange, StoredFile

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse

    from understudy.loop_actors.future import Future

T = TypeVar("T")
Next = Callable[[ToolCall], Awaitable[Any]]
"""The function that runs the rest of a call. It returns what the tool returned, or raises its
error."""
NextModelCall = Callable[[ModelInput], Awaitable["ModelResponse"]]
"""The function that asks the model. It returns the model's reply, or raises its error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The parts that a middleware adds to an agent: `instructions`, `tools`, and `agents` for its
    tools.
    """

    instructions: Instructions = ""
    tools: Sequence[Any] = field(default_factory=tuple)
    agents: Sequence[Any] = field(default_factory=tuple)
    """The agents that its tools may run: each an `Agent`, or a dict of options for an agent."""


class RefOfAgent(Protocol):
    """The part of a ref that a middleware needs to show what it keeps for the agent. It is an
    `AgentRef`.

    The layer `actors` above has the refs: of a runtime, and of a cluster.
    """

    @property
    def id(self) -> str:
        """The agent's id."""

    def state(self) -> Future[AgentState]:
        """The state of the agent: see `AgentRef.state`."""

    def load_blobs(self, hashes: Sequence[str]) -> Future[dict[str, bytes]]:
        """The bytes of files: see `AgentRef.load_blobs`."""

    def change_files(
        self,
        changes: Sequence[FileChange],
        blobs: Mapping[str, bytes],
        expected: Mapping[str, StoredFile | None] | None = None,
    ) -> Future[None]:
        """Change files: see `AgentRef.change_files`."""

    def on_loop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Do work on the loop of the agent: see `AgentRef.on_loop`."""


class Middleware(Generic[DepsT_contra]):
    """One concern of an agent, wrapped around its model and tool calls. The base class of all
    middleware.

    Override the hooks that you need, async or plain; plain hooks run in worker threads. Hooks are
    called in stack order, `after_*` and `on_run_end` in reverse order. A hook that raises ends the
    run as `Failed(MiddlewareError)`. Hooks run at least once: after a crash the last hook may run
    again. So put a side effect into `await run.once(key, fn)`.

    You can also override the class attributes below, such as `state_schema` and `stream_safe`.

    `class Audit(Middleware[Db])` is for agents whose `deps` are a `Db`: its hooks get a `Run[Db]`.
    """

    state_schema: ClassVar[type[BaseModel] | None] = None
    """A Pydantic model of the values that this middleware adds to `state.values`; None for no
    values.

    The values are validated on each change.
    """
    stream_safe: ClassVar[bool] = False
    """Whether text deltas may be emitted before `after_model` has seen the whole reply."""
    wraps_ask_model: ClassVar[bool] = False
    """Whether `wrap_model_call` is also called for each `run.ask_model`."""
    innermost: ClassVar[bool] = False
    """Whether `wrap_model_call` is around each single request, inside `Retry` and `Fallback`.

    The place of the middleware in the stack does not matter then.
    """
    keeps_time: bool = False
    """Whether the middleware reads `run.seconds`, which must then be recorded to survive a
    crash."""
    needs_cost: bool = False
    """Whether the middleware reads what replies cost. Each reply is then priced when it comes."""
    prices: Prices | None = None
    """The prices of the replies; None = the prices of the runtime, or else published prices."""

    @property
    def name(self) -> str:
        """The name of the middleware in errors and requests; by default the name of its class.

        Its questions are kept under this name. So two middlewares that ask in one run need two
        names.
        """
        return type(self).__name__

    def prepare(self, definition: AgentDefinition) -> Prepared:
        """Return the instructions and tools that it adds. Called once, when the agent is made."""
        return Prepared()

    def check(self, definition: AgentDefinition) -> None:
        """Raise a `UsageError` if its options do not fit the complete agent."""

    async def on_start(self, actor: Any) -> None:
        """Called when the agent was activated, for the first time or again. Only under a `Runtime`.

        It is also called after a crash, and in another process. So do not start here what must
        happen once. If it raises, the agent is not activated, and its callers get the error.

        Args:
            actor: an `AgentRef` (not the actor itself), to `send` or `notify` later.

        """

    async def on_completed(self, actor: Any, outcome: Completed) -> None:
        """Called when a run has completed durably. Only under a `Runtime`.

        `on_completed`, `on_interrupted` and `on_passivated` are called once, and not again after a
        crash. Use `on_run_end` for what must not be lost. Their exceptions are logged, and change
        nothing.

        Args:
            actor: an `AgentRef`.
            outcome: the outcome of the run.

        """

    async def on_interrupted(self, actor: Any, outcome: Interrupted) -> None:
        """Called when a run waits for a person, durably. It is called each time that the run waits
        again.

        Args:
            actor: an `AgentRef`.
            outcome: the outcome, with the pending requests.

        """

    async def on_passivated(self, actor: Any, reason: Passivation) -> None:
        """Called when the agent has left the memory of this runtime. All of it is in the store.

        Args:
            actor: an `AgentRef`. A call of it activates the agent again.
            reason: `idle`: nothing was asked of the agent for its `idle_timeout`. `stopped`:
                `stop()` was called, or the runtime drains. `compacted` or `deleted`: a call did
                it. `closing`: the runtime ends. `lost`: the store failed, another host has the
                agent, or its run was abandoned.

        """

    async def on_message(self, run: Run[DepsT_contra], message: Any) -> Mapping[str, Any] | None:
        """Called when the application, or this middleware itself, calls `ref.notify(name,
        message)`.

        The message may come during a run or between runs: read `run.state` and `run.deps`.

        Returns:
            A delta to merge into the agent's values, as a tool's delta; or None.

        """
        return None

    async def on_run_start(self, run: Run[DepsT_contra]) -> None:
        """Called when a run begins."""

    async def before_step(self, run: Run[DepsT_contra]) -> None:
        """Called before a step, which is a model call and its tools: the place for `run.signal`."""

    async def after_step(self, run: Run[DepsT_contra]) -> None:
        """Called after a step: its reply and results are in the state. What follows is decided
        next.

        It is not called if the run ends by its until tool.
        """

    async def before_model(self, run: Run[DepsT_contra], request: ModelInput) -> ModelInput | None:
        """Called before a request to the model. Return another `ModelInput` to send it instead.

        The returned input is sent this time only, and not kept. `await
        run.replace_history(messages)` changes the conversation for good.
        """

    async def after_model(
        self, run: Run[DepsT_contra], reply: ModelResponse
    ) -> ModelResponse | None:
        """Called after a reply of the model. Return another reply to record it instead.

        It is not called for a stream that broke. If a hook asks by `Interrupt`, the reply is held:
        it is neither shown nor in the conversation. After the decision all `after_model` hooks are
        called again, with the original reply.
        """

    async def wrap_model_call(
        self, run: Run[DepsT_contra], request: ModelInput, next: NextModelCall
    ) -> ModelResponse:
        """Called around a request to the model, after all `before_model` hooks. Must be async.

        Args:
            run: the run.
            request: the request; `request.replace(model=...)` asks another model.
            next: asks the model. It returns the reply, and raises what the model raised. You
                may call it again, one call after the other, or leave it out.

        Returns:
            The reply of `await next(request)`, or another reply. Other replies that `next`
                returned count as rejected, and their cost is recorded too.

        """
        return await next(request)

    async def check_tool_calls(
        self, run: Run[DepsT_contra], calls: Sequence[ToolCall]
    ) -> Sequence[Request]:
        """Return a request for each call that needs a decision. Make requests with
        `call.request(...)`.
        """
        return ()

    async def wrap_tool_call(self, run: Run[DepsT_contra], call: ToolCall, next: Next) -> Any:
        """Called around a tool's body. Must be async.

        Args:
            run: the run.
            call: the call; you may change `call.arguments` before `next`.
            next: runs the rest of the call. It returns what the tool returned, and raises what
                it raised. Leave it out, and the tool does not run. You may call it again for a
                read-only or idempotent tool. For any other tool the second `next` does not
                enter the tool, and the call is in doubt.

        Returns:
            The result of `await next(call)`, or another result.

        """
        return await next(call)

    async def on_resume(self, run: Run[DepsT_contra], decisions: dict[str, Decision]) -> None:
        """Called after decisions were made and recorded, before the run continues."""

    async def on_run_end(self, run: Run[DepsT_contra], outcome: Outcome) -> None:
        """Called when the run has ended, with any outcome, but not if it is interrupted or paused.

        It is also called for a run that ended before `on_run_start`. A run that a new message
        withdraws, or that ends with the run around it, is `Stopped`. An exception here makes a
        completed or stopped run `Failed`. For any other run the exception is logged.
        """

    def transform_display_message(self, message: ModelMessage) -> ModelMessage | None:
        """Return the message to display instead of this message; None to display it unchanged."""


_REVERSED = ("after_step", "after_model", "on_run_end")
_TABLE = (
    "on_start",
    "on_message",
    "on_run_start",
    "before_step",
    "after_step",
    "on_completed",
    "on_interrupted",
    "on_passivated",
    "before_model",
    "after_model",
    "wrap_model_call",
    "check_tool_calls",
    "wrap_tool_call",
    "on_resume",
    "on_run_end",
    "transform_display_message",
)


_LOOKS_LIKE_A_HOOK = re.compile(r"(on|before|after|wrap|check|transform)_")


def _refuse_misspelt_hooks(middleware: Middleware) -> None:
    for name in dir(type(middleware)):
        if name.startswith("_") or hasattr(Middleware, name):
            continue
        meant = _hook_meant_by(name)
        if meant is None or not callable(getattr(type(middleware), name)):
            continue
        raise UsageError(
            f"{type(middleware).__name__}.{name} is not a hook: {meant} A method of your own may "
            "have any other name, such as one that begins with an underscore"
        )


def _hook_meant_by(name: str) -> str | None:
    """The error text for a name that is nearly the name of a hook; None for any other name."""
    if _LOOKS_LIKE_A_HOOK.match(name):
        near = difflib.get_close_matches(name, _TABLE, n=1)
        return f"did you mean {near[0]}?" if near else f"the hooks are: {', '.join(_TABLE)}."
    # Only one slip counts: `checked_tool_calls` and `unwrap_tool_call` are good names for own
    # methods.
    slips = (hook for hook in _TABLE if _is_one_slip(_letters(name), _letters(hook)))
    return next((f"did you mean {hook}?" for hook in slips), None)


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def _is_one_slip(given: str, meant: str) -> bool:
    """Whether at most one letter is missing, added or different, or two letters are exchanged."""
    for _ in range(2):  # drop the common beginning, then the common end
        while given and given[:1] == meant[:1]:
            given, meant = given[1:], meant[1:]
        given, meant = given[::-1], meant[::-1]
    return max(len(given), len(meant)) <= 1 or (len(given) == 2 and given == meant[::-1])


def collect_hooks(stack: Sequence[Middleware]) -> Hooks:
    """The hooks that these middlewares override, each in calling order.

    Raises:
        UsageError: for a plain hook that must be async, or an async hook that must be plain; and
            for a method that looks like a hook but is none, because a gate would silently be off.

    """
    for middleware in stack:
        _refuse_misspelt_hooks(middleware)
    table: dict[str, tuple[Hook, ...]] = {}
    around_asks: list[Hook] = []
    inwards = sorted(stack, key=lambda middleware: middleware.innermost)
    for name in _TABLE:
        hooks = []
        for middleware in inwards if name == "wrap_model_call" else stack:
            if getattr(type(middleware), name) is getattr(Middleware, name):
                continue
            hook = Hook.of(middleware, name, getattr(middleware, name))
            if name.startswith("wrap_") and not hook.is_async:
                raise UsageError(f"{middleware.name}.{name} must be async: it awaits next")
            if name == "transform_display_message" and hook.is_async:
                raise UsageError(f"{middleware.name}.transform_display_message must be plain")
            hooks.append(hook)
            if name == "wrap_model_call" and middleware.wraps_ask_model:
                around_asks.append(hook)
        table[name] = tuple(reversed(hooks) if name in _REVERSED else hooks)
    return Hooks(
        **table,
        wrap_ask_model=tuple(around_asks),
        keeps_time=any(m.keeps_time for m in stack),
        streams_safely=all(
            m.stream_safe
            for m in stack
            if type(m).after_model is not Middleware.after_model
            or type(m).wrap_model_call is not Middleware.wrap_model_call
        ),
    )
