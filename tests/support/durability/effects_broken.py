"""Builds with one hole through which an effect is repeated, or something false is reported."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from understudy.actors.agent.planner import Plans
from understudy.agent.run_environment import RunOptions
from understudy.agent.runner import Runner
from understudy.middleware import Fallback
from understudy.models.messages import user_message
from understudy.modes import agent_execution
from understudy.modes.steps import check_interrupts, execute_tools
from understudy.modes.steps.tool_call import body, call_keys, ends, invocation, middleware, results
from understudy.modes.workflows import loop
from understudy.run import child_calls, ledger
from understudy.state import records
from understudy.state.folds import ends as folded_ends
from understudy.tools import DidNotHappen, Tool

__all__ = ["HOLES"]

Patch = pytest.MonkeyPatch
HOLES: dict[str, Callable[[Patch], None]] = {}
"""Each broken build, by what is wrong with it."""


def _hole(name: str) -> Callable[[Callable[[Patch], None]], None]:
    def keep(make: Callable[[Patch], None]) -> None:
        HOLES[name] = make

    return keep


def _wrap(patch: Patch, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a name that is there: one that the library has no more fails here."""
    inner = getattr(owner, name)
    patch.setattr(owner, name, functools.wraps(inner)(make(inner)))


# ------------------------------------------------------------------- what is known


@_hole("each error is a failure")
def _failures(patch: Patch) -> None:
    _wrap(patch, ends, "doubt_after", lambda _: lambda *_: None)


@_hole("each error is a doubt")
def _doubts(patch: Patch) -> None:
    _wrap(patch, ends, "doubt_after", lambda _: lambda *_: ends.InDoubt("it raised an error"))


@_hole("what once did is forgotten")
def _forgotten(patch: Patch) -> None:
    _wrap(patch, ends, "done_by_call", lambda _: lambda *_: "")


@_hole("a limit that passes is a failure")
def _limit(patch: Patch) -> None:
    patch.setattr(body, "InDoubt", lambda reason, error: TimeoutError(reason))


@_hole("a cancellation from within is a failure")
def _cancelled(patch: Patch) -> None:
    def failing(_: Any) -> Any:
        return lambda run, ready: results.failed_result(run, ready.call, "it was cancelled")

    _wrap(patch, invocation, "cancelled_inside_result", failing)
    _wrap(patch, ends, "doubt_after", lambda _: lambda *_: None)


@_hole("a run that ends leaves no doubt")
def _left(patch: Patch) -> None:
    def closing(inner: Any) -> Any:
        def close(state: Any, call: Any, at: Any) -> Any:
            part = folded_ends._part(call, "Failed: the run ended.", "failed", at)
            return records.Result(call_key=call.key, part=part, at=at)

        return close

    _wrap(patch, folded_ends, "closing_result", closing)
    _wrap(patch, ledger, "closing_result", closing)


# ------------------------------------------------------------------------ crashes


@_hole("a call that was cut off runs again")
def _again(patch: Patch) -> None:
    def releasing(release: Any) -> Any:
        def releases(run: Any, call: Any) -> Any:
            call.running = False
            return release(run, call)

        return releases

    _wrap(patch, execute_tools, "_release", releasing)
    _wrap(patch, check_interrupts, "_is_doubt", lambda _: lambda *_: False)


@_hole("what was cut off is said not to have run")
def _not_run(patch: Patch) -> None:
    def denying(inner: Any) -> Any:
        def deny(run: Any, call: Any, reason: str) -> Any:
            part = results.make_part(run, call, execute_tools.STOPPED, "interrupted")
            return records.Result(call_key=call.key, part=part)

        return deny

    _wrap(patch, execute_tools, "in_doubt_result", denying)


@_hole("a tool starts before that is durable")
def _hasty(patch: Patch) -> None:
    async def at_once(*_: object) -> None:
        """A wait for durability that does not wait."""

    def hastily(step: Any) -> Any:
        async def hasty(run: Any, *rest: Any) -> Any:
            run.durable = at_once
            try:
                return await step(run, *rest)
            finally:
                del run.durable

        return hasty

    _wrap(patch, agent_execution, "execute_tools", hastily)


@_hole("a doubt holds up nothing")
def _unbound(patch: Patch) -> None:
    _wrap(patch, execute_tools, "blocked_by_doubt", lambda _: lambda *_: False)
    _wrap(patch, check_interrupts, "doubts_about", lambda _: lambda *_: ())


# ------------------------------------------------------------------------ repeats


@_hole("each tool is repeated")
def _repeated(patch: Patch) -> None:
    def always(inner: Any) -> Any:
        return lambda run, tool: "idempotent"

    _wrap(patch, body, "effect_of", always)


@_hole("the last error counts")
def _last(patch: Patch) -> None:
    _wrap(patch, invocation, "_was_unknown", lambda _: lambda *_: False)


@_hole("a fallback model forgets what ran")
def _forgets(patch: Patch) -> None:
    def forgetting(wrap: Any) -> Any:
        async def forgets(own: Any, run: Any, request: Any, next: Any) -> Any:
            try:
                return await next(request)
            except Exception:
                short = request.replace(messages=request.messages[:1], model=own.models[-1])
                return await next(short)

        return forgets

    _wrap(patch, Fallback, "wrap_model_call", forgetting)


@_hole("a middleware may repeat a call")
def _wrapper(patch: Patch) -> None:
    _wrap(patch, middleware, "_may_repeat", lambda _: lambda call: True)


@_hole("a doubt does not end a loop")
def _loop(patch: Patch) -> None:
    _wrap(patch, loop, "_is_of", lambda _: lambda *_: False)


# ------------------------------------------------------- children, workflows, deploys


@_hole("a failed child does not tell what it did")
def _silent(patch: Patch) -> None:
    _wrap(patch, child_calls, "what_it_did", lambda _: lambda *_: "")


@_hole("a retry begins anew")
def _anew(patch: Patch) -> None:
    def beginning(_: Any) -> Any:
        async def begins(runner: Any, state: Any, *, environment: Any) -> Any:
            given = runner._ledger(state, environment, fresh=False)
            message = user_message("go", at=environment.clock.now())
            options = RunOptions()
            return await runner.begin(given, message, options=options, environment=environment)

        return begins

    _wrap(patch, Runner, "retry", beginning)


@_hole("the arguments of a call are made anew")
def _made(patch: Patch) -> None:
    _wrap(patch, Tool, "made", lambda _: lambda *_: None)


@_hole("gates of today are not asked")
def _gates(patch: Patch) -> None:
    async def nobody(*_: object) -> None:
        """A deploy that asks none of its gates."""

    patch.setattr(check_interrupts, "_ask_gates_of_today", nobody)


@_hole("an occurrence is twice")
def _twice(patch: Patch) -> None:
    def doubled(inner: Any) -> Any:
        return lambda *given: [*inner(*given), *inner(*given)]

    _wrap(patch, Plans, "_occurrences", doubled)


@_hole("keys are not taken")
def _keyless(patch: Patch) -> None:
    async def look_at_none(*_: object) -> dict[str, Any]:
        return {}

    async def start_without(run: Any, batch: Any) -> Any:
        for item in batch:
            if item.call.check is None:
                body.record_started(run, item)
        return batch

    _wrap(patch, call_keys, "look_at_keys", lambda _: look_at_none)
    _wrap(patch, call_keys, "start_with_keys", lambda _: start_without)


# ------------------------------------------------------------------------- checks


@_hole("a check says that nothing happened")
def _check(patch: Patch) -> None:
    def saying(_: Any) -> Any:
        async def says(*_: object) -> DidNotHappen:
            return DidNotHappen()

        return says

    _wrap(patch, invocation, "ask_check", saying)


@_hole("each doubt is put to a person")
def _unchecked(patch: Patch) -> None:
    _wrap(patch, results, "wait_for_check", lambda _: lambda *_: False)
