"""Why a run ended as `Failed`; a run never raises one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from understudy.errors.base import UnderstudyError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class RunError(UnderstudyError):
    """The reason why a run ended as `Failed`: the `error` of the outcome. A run never raises it."""


class ModelFailed(RunError):
    """No model answered: each raised, refused, or gave an empty reply.

    `__cause__` is the last exception that a model raised.
    """

    failures: list[dict[str, str]]
    """The failure of each model: its name as `model`, and the `type` and `message` of what it
    raised.

    The type is `RefusedReply` or `EmptyReply` if the model raised nothing. A long message, such as
    a page of HTML, is cut to its first lines; `__cause__` has all of it.
    """

    def __init__(self, *, failures: Sequence[Mapping[str, str]]) -> None:
        causes = "; ".join(f"{f['model']}: {f['type']}: {f['message']}" for f in failures)
        super().__init__(f"{self._what}: {causes}", failures=[dict(f) for f in failures])

    _what = "No model answered"


class ModelRefused(ModelFailed):
    """The model and every fallback refused to answer, or were stopped by a content filter."""

    _what = "The model refused to answer"


class StreamBroken(RunError):
    """The stream of a reply broke in the middle. The part that was received is kept in the state.

    A reply without a finish reason counts as broken if the provider always gives one. For a server
    that speaks OpenAI's format and leaves out the finish reason, make the model with
    `profile=OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=False)`.
    """

    model: str
    cause: str

    def __init__(self, *, model: str, cause: str) -> None:
        super().__init__(
            f"The stream of {model!r} broke in the middle of a reply: {cause}",
            model=model,
            cause=cause,
        )


class ReplyCut(RunError):
    """Two replies in a row were cut by their length limit, at the same length.

    Another request would cost the same again, and end in the same way.
    """

    max_tokens: int | None
    """The limit in the agent's `model_settings`, in tokens; None if the model's own limit holds."""
    output_tokens: int
    """The tokens of the reply, as the provider counts them; 0 if it does not count them."""

    def __init__(self, *, max_tokens: int | None, output_tokens: int) -> None:
        limit = "the model's own" if max_tokens is None else f"max_tokens={max_tokens}"
        length = f" after {output_tokens} tokens" if output_tokens else ""
        super().__init__(
            f"The reply was cut by its length limit ({limit}){length}, like the reply before it: "
            "raise max_tokens in the model_settings, or ask for less at once.",
            max_tokens=max_tokens,
            output_tokens=output_tokens,
        )


class RunLimitExceeded(RunError):
    """The run needed one more model call than `max_runs` allows. The state is kept."""

    max_runs: int

    def __init__(self, *, max_runs: int) -> None:
        super().__init__(
            f"The run made its {max_runs} model calls and was not finished: raise max_runs, or "
            "run it again from the state of this outcome.",
            max_runs=max_runs,
        )


class UntilToolNotCalled(RunError):
    """The model stopped without a result of the until tool, or without a successful result."""

    tools: list[str]
    success_required: bool

    def __init__(self, *, tools: Sequence[str], success_required: bool) -> None:
        names = ", ".join(repr(name) for name in tools)
        result = "a successful result" if success_required else "a result"
        super().__init__(
            f"The model stopped without {result} of {names}.",
            tools=list(tools),
            success_required=success_required,
        )


class MiddlewareError(RunError):
    """A hook raised an exception.

    The error names the middleware and the hook. `__cause__` is the exception.
    """

    middleware: str
    hook: str

    def __init__(self, *, middleware: str, hook: str, cause: str) -> None:
        super().__init__(
            f"{hook} of middleware {middleware!r} raised {cause}",
            middleware=middleware,
            hook=hook,
            cause=cause,
        )


class CostUnknown(MiddlewareError):
    """A limit needs the cost of the run, and a model that was asked has no price."""

    models: list[str]
    requests: int

    def __init__(self, *, middleware: str, hook: str, models: Sequence[str], requests: int) -> None:
        named = ", ".join(map(repr, models)) or "a model without a name"
        cause = (
            f"nobody knows what {requests} of its requests to {named} cost: give the model a price "
            "in the `pricing` of Limits or Runtime"
        )
        RunError.__init__(
            self,
            f"{middleware} cannot tell the cost of the run: {cause}",
            middleware=middleware,
            hook=hook,
            cause=cause,
            models=list(models),
            requests=requests,
        )


class BudgetUsedUp(RunError):
    """A budget has no room for a request to a model. Nothing was sent."""

    budgets: list[str]

    def __init__(self, *, budgets: Sequence[str], cause: str) -> None:
        super().__init__(cause, budgets=list(budgets), cause=cause)


class BudgetUnknown(RunError):
    """A budget cannot be kept, because nobody knows what a request may cost. Nothing was sent."""

    budget: str

    def __init__(self, *, budget: str, cause: str) -> None:
        super().__init__(
            f"The budget {budget!r} cannot be kept: {cause}", budget=budget, cause=cause
        )


class StepFailed(RunError):
    """A step of the pipeline raised. `__cause__` is the exception."""

    step: str

    def __init__(self, *, step: str, cause: str) -> None:
        super().__init__(f"Step {step!r} raised {cause}", step=step, cause=cause)


class ToolRaised(RunError):
    """A tool raised an exception, and the agent or its runtime has `tool_errors="raise"`.

    `__cause__` is the exception. All calls of the reply are recorded with their results.
    """

    tool: str
    call_key: str

    def __init__(self, *, tool: str, call_key: str, cause: str) -> None:
        super().__init__(f"Tool {tool!r} raised {cause}", tool=tool, call_key=call_key, cause=cause)


class EffectUnknown(RunError):
    """Nobody knows what a call did, so the run must not continue and call the tool again.

    A run that ends by this tool fails with it, and so does a loop. The doubt stays in the state:
    see `AgentState.doubts`. If the call is known to have run, the error is `ResultNotKept`.
    """

    tool: str
    call_key: str

    def __init__(self, *, tool: str, call_key: str, reason: str) -> None:
        super().__init__(
            f"The outcome of a call of {tool!r} is unknown: {reason}. Find out what it did before "
            "anything calls it again",
            tool=tool,
            call_key=call_key,
            reason=reason,
        )


class ResultNotKept(RunError):
    """The tool that ends the run has run, and its return value cannot be kept."""

    tool: str
    call_key: str

    def __init__(self, *, tool: str, call_key: str, text: str) -> None:
        super().__init__(text, tool=tool, call_key=call_key, text=text)


class AgentFailed(RunError):
    """An agent of a workflow failed, and so the workflow failed.

    `error` is the agent's own error as plain data: `error_from_dict(failed.error)` rebuilds it.
    """

    agent: str
    error: dict[str, Any]
    did: str
    """What the workflow has done and may have done, as text; empty if nothing."""

    def __init__(self, *, agent: str, error: Mapping[str, Any], did: str = "") -> None:
        inside = (error.get("facts") or {}).get("did") if error["type"] == "AgentFailed" else None
        # What a workflow inside has done is in `did`, too.
        message = error["message"].removesuffix(f"\n{inside}") if inside else error["message"]
        why = f"Agent {agent!r} failed: {error['type']}: {message}"
        super().__init__(
            "\n".join(filter(None, (why, did))),
            agent=agent,
            error=dict(error),
            did=did,
        )


class DefinitionChanged(RunError):
    """The agents of a workflow are not the agents with which its run started."""

    agent: str
    was: str
    now: str

    def __init__(self, *, agent: str, was: str, now: str) -> None:
        super().__init__(
            f"The workflow {agent!r} was {was} when its run started and is {now} now: continue "
            "with the definition that it started with, or start a new run.",
            agent=agent,
            was=was,
            now=now,
        )


class NotHaltable(RunError):
    """A tool raised `Halt`, and no agent from it up to the root has the `Haltable` middleware.

    The run ends nevertheless: a halt is never ignored.
    """

    tool: str
    agent_path: list[str]

    def __init__(self, *, tool: str, agent_path: Sequence[str], message: str) -> None:
        super().__init__(
            f"{tool!r} halted the run ({message}), but none of {' > '.join(agent_path)} has the "
            "Haltable middleware: add middleware=[Haltable()], so that a person gets the request.",
            tool=tool,
            agent_path=list(agent_path),
        )


class Quarantined(RunError):
    """The run was cut off several times in a row without progress.

    It keeps its state. Only `ref.retry()` continues it.
    """

    attempts: int
    cause: str

    def __init__(self, *, attempts: int, cause: str) -> None:
        super().__init__(
            f"The run was cut off {attempts} times in a row without progress, last by {cause}: "
            "remove the cause, then call ref.retry()",
            attempts=attempts,
            cause=cause,
        )
