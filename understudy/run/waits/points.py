"""The named points of a tool's body: `ctx.sleep`, `ctx.wait_for`, `ctx.token` and `ctx.once`.

A coroutine cannot be stored. So a tool that has to wait is suspended, and run again from its start
once the wait is over. Each answered point then returns at once, by its name.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from copy import deepcopy
from datetime import datetime
from typing import Any, Literal, TypeVar

from understudy._base.json_values import NotJsonError, as_json, checked_text, shown, text_of
from understudy.errors import RecordRefused, UsageError, WaitExpired, WaitRejected
from understudy.run.child_calls import CallSuspended, doing_once, parts_of
from understudy.run.run import Run
from understudy.run.running_parts import RunningParts
from understudy.run.waits.tokens import hash_of, new_token
from understudy.state.records import PointAnswered, PointEnd, PointKind, PointReached, TokenMade
from understudy.state.run_state import Call, Point, PointAnswer
from understudy.tools.context import CallPoints

T = TypeVar("T")

RETRY = "retry/"
"""The prefix of the name of a point at which a failed call waits for its next attempt."""
CHECK = "check/"
"""The prefix of the name of a point at which a call in doubt waits for its check."""
IN_PROCESS = 5.0
"""The longest wait, in seconds, for the next attempt at a tool or a model that is made in
memory."""
_LOOP_CHECK_SECONDS = 0.1


class Points(CallPoints):
    """The points of one attempt at a call."""

    __slots__ = ("_attempt", "_call", "_reached", "_run")

    def __init__(self, run: Run, call: Call, attempt: int) -> None:
        self._run = run
        self._call = call
        self._attempt = attempt
        self._reached: set[str] = set()

    def now(self) -> datetime:
        """The time by the clock of the run."""
        return self._run.clock.now()

    def knows(self, name: str) -> bool:
        """Whether an earlier attempt has come to the point, for `ToolContext.has_come_to`."""
        return name in self._call.points

    async def sleep(self, name: str, due: datetime) -> None:
        """Wait until a time, for `ToolContext.sleep_until`."""
        point = self._come_to(name, "sleep")
        now = self.now()
        if point is None:
            if due > now:
                await self._suspend(name, "sleep", due)
        elif point.answer is None:
            # The run may have been continued before anybody checked what is due.
            if point.due is not None and point.due <= now:
                self._answer(name, "sleep", "over")
            else:
                await self._suspend(name, "sleep", point.due)

    async def token(self, name: str) -> str:
        """Make a token, for `ToolContext.token`."""
        self._check(name, "wait")
        if self._parts().suspended:
            raise CallSuspended
        token = new_token(self._run.root.agent_id)
        record = TokenMade(
            call_key=self._call.key, name=name, token_hash=hash_of(token), at=self.now()
        )
        self._run.record(record)
        # Race: an answer by this token may come as soon as another party knows the token
        # (test_a_token_is_durable_before_anybody_has_it).
        with self._parts().running():  # a concurrent sleep does not end the body meanwhile
            await self._run.durable()
        return token

    async def wait_for(self, name: str, due_at: Callable[[datetime], datetime | None]) -> Any:
        """Wait for an answer, for `ToolContext.wait_for`; `due_at` gives the time of expiry."""
        point = self._come_to(name, "wait")
        if point is None or not (point.token_hashes or point.answer):
            raise UsageError(
                f"Nobody can answer {name!r}: call `await ctx.token({name!r})` first, in each run "
                "of the tool, and hand the token on"
            )
        now = self.now()
        if point.answer is None:
            due = due_at(now) if point.since is None else point.due
            if point.since is not None and due is not None and due <= now:
                self._answer(name, "wait", "expired")
            else:
                await self._suspend(name, "wait", due)
        answer = self._call.points[name].answer
        assert answer is not None, "a wait that is not suspended is answered"
        if answer.how == "expired":
            raise WaitExpired(name=name)
        if answer.how == "rejected":
            raise WaitRejected(name=name, reason=answer.reason or "")
        return deepcopy(answer.value)

    async def once(self, name: str, function: Callable[[], Any]) -> Any:
        """Call a function once, for `ToolContext.once`."""
        _check_function(name, function)
        answer = self._come_to_once(name)
        if answer is not None:
            return _value_of(answer)
        with self._parts().running():
            token = doing_once.set(True)
            try:
                result = function()
                if inspect.isawaitable(result):
                    result = await result
            finally:
                doing_once.reset(token)
            return await self._done(name, result)

    def once_in_thread(self, name: str, function: Callable[[], Any]) -> Any:
        """Call a function once, in the thread of a plain tool."""
        _check_function(name, function)
        part = object()
        answer = self.from_thread(self._begin_in_thread(name, part))
        if answer is not None:
            return _value_of(answer)
        token = doing_once.set(True)
        try:
            result = function()
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise UsageError(
                    f"ctx.sync.once({name!r}): the function must be a plain one, got {function!r}"
                )
            return self.from_thread(self._done(name, result))
        finally:
            doing_once.reset(token)
            with suppress(CallSuspended):  # the loop has stopped
                self.from_thread(self._end_in_thread(part))

    async def ask_model(self, key: str, messages: Any, model: Any, output_type: Any) -> Any:
        """Ask a model, for `ToolContext.ask_model`."""
        checked_text(key, what="ctx.ask_model: `key`")
        parts = self._parts()
        if not self._is_open or parts.suspended or parts.body_ended:
            raise CallSuspended
        with parts.running():  # a concurrent sleep does not cut it off
            own_key = f"{self._call.key}/{key}"
            return await self._run.ask_model(own_key, messages, model, output_type)

    def _come_to_once(self, name: str) -> PointAnswer | None:
        """The result of a `once` that an earlier run of the tool did; None if it is to be done now.

        Its beginning needs no record: the start of the call is durable, so a crash in the middle
        leaves a doubt (test_a_run_that_is_cut_off_at_any_record_does_nothing_twice).
        """
        point = self._come_to(name, "once")
        if point is None and self._parts().suspended:
            raise CallSuspended
        return None if point is None else point.answer

    async def _begin_in_thread(self, name: str, part: object) -> PointAnswer | None:
        answer = self._come_to_once(name)
        if answer is None:
            self._parts().begin(part)
        return answer

    async def _end_in_thread(self, part: object) -> None:
        self._parts().end(part)

    async def _done(self, name: str, result: Any) -> Any:
        """Record that a `once` is done, with its value. Returns the value once the record is
        durable.
        """
        if not self._is_open:
            raise CallSuspended
        try:
            value = as_json(result)
            self._answer(name, "once", "value", value=value)
        except (NotJsonError, RecordRefused) as error:
            reason = f"ctx.once({name!r}) is done, but its value cannot be kept: {text_of(error)}"
            self._answer(name, "once", "failed", reason=reason)
            raise UsageError(reason) from error
        await self._run.durable()
        return deepcopy(value)

    # ------------------------------------------------------------------ how a point works

    def _check(self, name: str, kind: PointKind) -> Point | None:
        """The point of this name, if it exists.

        Raises:
            UsageError: for a bad name, a name of another kind of point, or outside of the tool.
            CallSuspended: if this attempt at the call is over.

        """
        checked_text(name, what="The name of a point")
        for own, option in ((RETRY, "retry"), (CHECK, "check")):
            if name.startswith(own):
                raise UsageError(
                    f"The point name {name!r} begins with {own!r}, which is reserved for "
                    f"@tool({option}=...): give it another name"
                )
        if doing_once.get():
            raise UsageError(
                f"The point {name!r} is inside of ctx.once: what is done once cannot be suspended "
                "in its middle. Do it before or after"
            )
        if self._call.attempts == 0:
            raise UsageError("A call has points only while its tool runs")
        if not self._is_open or self._parts().body_ended:
            raise CallSuspended
        point = self._call.points.get(name)
        if point is not None and point.kind != kind:
            raise UsageError(
                f"The point {name!r} is a {_WORDS[point.kind]}, and cannot be a {_WORDS[kind]}, "
                "too: give each point of a tool a name of its own"
            )
        return point

    def _come_to(self, name: str, kind: PointKind) -> Point | None:
        """Check a point by `_check`. The body comes to it once in each attempt."""
        point = self._check(name, kind)
        if name in self._reached:
            raise UsageError(
                f"The tool came to the point {name!r} twice: give each point a name of its own, "
                "in a loop such as f'wait {n}'"
            )
        self._reached.add(name)
        return point

    @property
    def _is_open(self) -> bool:
        """Whether this attempt at the call may still add records."""
        call = self._call
        return not self._run.closed and call.result is None and call.attempts == self._attempt

    def _parts(self) -> RunningParts:
        return parts_of(self._run, self._call)

    def _answer(
        self,
        name: str,
        what: PointKind,
        how: PointEnd,
        *,
        value: Any = None,
        reason: str | None = None,
    ) -> None:
        self._run.record(
            PointAnswered(
                call_key=self._call.key,
                name=name,
                what=what,
                how=how,
                value=value,
                reason=reason,
                at=self.now(),
            )
        )

    async def _suspend(
        self, name: str, kind: Literal["sleep", "wait"], due: datetime | None
    ) -> None:
        """Record that the call waits here, and end its body; unless the answer comes before.

        Raises:
            CallSuspended: unless the point is answered.

        """
        parts = self._parts()
        # Race: other tasks that the tool created at the same time may not have begun, and their
        # `once` may have no other moment to wait in
        # (test_all_branches_of_a_tool_come_to_their_points_in_one_run_of_it).
        await asyncio.sleep(0)
        if not self._is_open or parts.body_ended:
            raise CallSuspended
        self._run.record(
            PointReached(
                call_key=self._call.key,
                name=name,
                what=kind,
                at=self.now(),
                due=due,
                suspends=not parts.any_runs,
            )
        )
        if parts.any_runs:
            # Race: a `once` or an agent is under way in another task of the tool. It must not be
            # cut off because this task waits
            # (test_what_is_done_once_is_not_cut_off_because_a_task_beside_it_sleeps).
            await parts.wait_until_none_runs()
            if not parts.suspended and self._call.points[name].answer is not None:
                return
        parts.suspended = True
        raise CallSuspended

    # ------------------------------------------------------------------ from a thread

    def from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work on the loop of the run, for a plain tool, which runs in another thread.

        Raises:
            UsageError: on an event loop, which it would block.

        """
        if asyncio._get_running_loop() is not None:
            work.close()
            raise UsageError(
                "ctx.sync is for plain tools, which run in threads: an async tool awaits ctx.sleep "
                "and the others, and a tool with inline=True cannot wait"
            )
        loop = self._run.loop
        try:
            done = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise CallSuspended from None
        # Race: the loop may stop after it took the work, and then never does it.
        while not done.done():
            concurrent.futures.wait((done,), timeout=_LOOP_CHECK_SECONDS)
            if not done.done() and not loop.is_running():
                done.cancel()
                raise CallSuspended
        return done.result()


def _check_function(name: str, function: object) -> None:
    if not callable(function):
        raise UsageError(
            f"once({name!r}) takes a function without arguments, which it calls, got "
            f"{shown(function)}"
        )


def _value_of(answer: PointAnswer) -> Any:
    """The value of a `once` that is done, as a copy."""
    if answer.how == "failed":
        raise UsageError(answer.reason or "")
    return deepcopy(answer.value)


_WORDS = {
    "sleep": "sleep",
    "wait": "wait for an answer",
    "once": "thing that is done once",
    "check": "wait for a check",
}
