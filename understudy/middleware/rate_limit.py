"""`RateLimit`: limits the requests and tokens per minute from this process to one provider.

It keeps no count in the state: the limit belongs to the process, not to a run. It owns no requests.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar
from weakref import WeakKeyDictionary

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model

from understudy._base.clock import Clock, SharedClock, SystemClock
from understudy._base.clock_waits import wait_by
from understudy._base.event_loops import call_on
from understudy._base.json_values import checked_text, shown
from understudy._base.request_timing import Seconds, checked_delay
from understudy.errors import UsageError
from understudy.interrupts import Defer
from understudy.middleware.base import Middleware, NextModelCall
from understudy.models.token_counts import estimated_tokens, last_counted, text_tokens
from understudy.run.definition import AgentDefinition
from understudy.run.model_input import ModelInput
from understudy.run.run import Run
from understudy.run.waits.points import IN_PROCESS

MINUTE = 60.0
KEPT = 10.0
"""Seconds after its time for which a request that was put off keeps its place in the line."""
_NOW = 1e-6
"""Seconds that count as no wait, because a clock counts microseconds."""


class RateLimit(Middleware):
    """A middleware that limits requests and tokens to a provider in any 60 seconds.

    It counts what this *process* sends. All agents of the process that have a `RateLimit` with the
    same `key` share a count for each provider, by its name and address. Other processes have their
    own counts. Requests above the limit wait, in the order in which they came. A cancellation of
    the run ends the wait.

    A wait of up to `defer_after` seconds is in memory. For a longer wait the model call is put off,
    as by `Defer`: the run waits, its agent may be passive, and its process may end. Its place in
    the line is kept until ten seconds after its time. If it comes back in another process, it takes
    the last place there. A request of `run.ask_model`, or one that `Retry` or `Fallback` makes
    again, waits in memory.

    Every single request counts, including those of `Retry`, `Fallback` and `run.ask_model`. The
    place of the middleware in the stack does not matter. The tokens of a waiting request are an
    estimate: those of the last reply, and of what came since. Its own reply corrects the count. A
    request with more tokens than the limit is sent alone.

    Args:
        requests_per_minute: the maximum number of requests; None = no limit.
        tokens_per_minute: the maximum number of input and output tokens together; None = no
            limit.
        key: tells accounts of one provider apart, such as API keys with their own limits.
        defer_after: the seconds that a request waits in memory at most; None = no maximum.

    Raises:
        UsageError: if there is no limit, a limit is not an integer of at least 1, or
            `defer_after` is not a number of seconds.

    """

    stream_safe: ClassVar[bool] = True
    wraps_ask_model: ClassVar[bool] = True
    innermost: ClassVar[bool] = True

    def __init__(
        self,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        *,
        key: str = "",
        defer_after: Seconds | None = IN_PROCESS,
    ) -> None:
        given = {"requests_per_minute": requests_per_minute, "tokens_per_minute": tokens_per_minute}
        if requests_per_minute is None and tokens_per_minute is None:
            raise UsageError(f"RateLimit: give {' or '.join(given)}")
        for option, limit in given.items():
            if limit is None:
                continue
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
                raise UsageError(
                    f"RateLimit: `{option}` must be an integer of at least 1, or None for no "
                    f"limit, got {shown(limit)}"
                )
        self._defer_after = math.inf
        if defer_after is not None:
            delay = checked_delay(defer_after, what="RateLimit: `defer_after`, if it is not None,")
            self._defer_after = delay.total_seconds()
        self._requests = requests_per_minute
        self._tokens = tokens_per_minute
        self._key = checked_text(key, what="RateLimit: `key`", may_be_empty=True)

    def check(self, definition: AgentDefinition) -> None:
        if sum(isinstance(item, RateLimit) for item in definition.middleware) > 1:
            raise UsageError(
                f"Agent {definition.name!r} has two RateLimits, which would count each request "
                "twice: give both limits to one RateLimit"
            )

    async def wrap_model_call(
        self, run: Run, request: ModelInput, next: NextModelCall
    ) -> ModelResponse:
        model = run.models[0] if request.model is None else request.model
        line = _line_of(model, self._key, run.clock)
        tokens = 0 if self._tokens is None else _tokens_of(request)
        call_key = run.current.model_call_key if request.ask_key is None else None
        with _LOCK:
            # An unrecorded failure in this attempt would be forgotten
            # (test_a_request_that_is_made_again_waits_in_memory).
            may_defer = call_key is not None and _asked.get(run) != call_key
        with line.queued(self._requests, self._tokens, tokens, call_key) as entry:
            seconds = await line.wait(entry, self._defer_after if may_defer else math.inf)
        if seconds:
            limits = {"requests": self._requests, "tokens": self._tokens}
            limited = " and ".join(f"{limit} {what}" for what, limit in limits.items() if limit)
            raise Defer(seconds, reason=f"{model.system} gets {limited} a minute at most")
        if call_key is not None:
            with _LOCK:
                _asked[run] = call_key
        reply = await next(request)
        if self._tokens is not None and reply.usage.total_tokens:
            line.correct(entry, reply.usage.total_tokens)
        return reply


def _tokens_of(request: ModelInput) -> int:
    """The tokens of a request, as far as a reply counted them; the rest is an estimate."""
    counted = last_counted(request.messages)
    if counted is not None:
        tokens, index = counted
        return tokens + estimated_tokens(request.messages[index + 1 :])
    return estimated_tokens(request.messages) + text_tokens(request.instructions)


# ------------------------------------------------------------------------- who comes next


@dataclass(slots=True, eq=False)
class _Entry:
    """A request that was made in the last minute, or that waits."""

    requests_limit: int | None
    tokens_limit: int | None
    tokens: int
    at: float = 0.0
    """The time at which it may be made, or was made."""
    waits: bool = True
    wake: Callable[[], object] = field(default=lambda: None)
    """A function that is called, with the lock held, when `at` has changed."""
    call_key: str | None = None
    """The key of the model call for which it is made."""
    until: float = 0.0
    """The time at which its place is given up, if it was put off and does not come back."""


class _Line:
    """The requests to one provider with one key, in order. Thread-safe: loops share it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []
        self._put_off: dict[str, _Entry] = {}
        """The requests that come back at their time, by the key of their model call."""

    @contextmanager
    def queued(
        self,
        requests_limit: int | None,
        tokens_limit: int | None,
        tokens: int,
        call_key: str | None = None,
    ) -> Iterator[_Entry]:
        """Hold a request in the line: at its end, or at the place of the request that was put off.

        A request that leaves before it was made is not counted.
        """
        entry = _Entry(requests_limit, tokens_limit, tokens, call_key=call_key)
        with self._lock:
            self._forget_old()
            index = len(self._entries)
            put_off = self._put_off.pop(call_key or "", None)
            if put_off is not None:
                index = self._entries.index(put_off)
                del self._entries[index]
                if put_off.at - self._clock.monotonic() <= _NOW:  # its time has come
                    index = 1 + max(
                        (n for n, e in enumerate(self._entries) if not e.waits), default=-1
                    )
            self._entries.insert(index, entry)
            self._plan(index)
        try:
            yield entry
        except BaseException:
            with self._lock:
                self._leave(entry)
            raise

    def _leave(self, entry: _Entry) -> None:
        index = self._entries.index(entry)
        del self._entries[index]
        self._plan(index)

    async def wait(self, entry: _Entry, most: float) -> float:
        """Wait until the request may be made, and return 0.

        If the wait would be longer than `most` seconds, return its seconds at once: the request is
        to be put off.
        """
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        entry.wake = lambda: call_on(loop, changed.set)
        while True:
            with self._lock:
                seconds = entry.at - self._clock.monotonic()
                if seconds <= _NOW:
                    entry.waits, entry.wake = False, lambda: None
                    return 0.0
                if seconds > most:
                    entry.wake, entry.until = lambda: None, entry.at + KEPT
                    self._put_off[entry.call_key or ""] = entry
                    return seconds
            await wait_by(self._clock, seconds, changed)
            changed.clear()

    def correct(self, entry: _Entry, tokens: int) -> None:
        """Correct the tokens of a request to this number."""
        with self._lock:
            entry.tokens = tokens
            if entry in self._entries:
                self._plan(self._entries.index(entry) + 1)

    def _plan(self, start: int) -> None:
        """Compute anew when each waiting request may be made, from this index in the line on."""
        now = self._clock.monotonic()
        for index in range(start, len(self._entries)):
            entry = self._entries[index]
            if entry.waits:
                at = self._first_time(entry, index, now)
                if at != entry.at:
                    entry.at = at
                    entry.wake()

    def _first_time(self, entry: _Entry, index: int, now: float) -> float:
        """The time at which this request may be made: not before earlier requests in the line."""
        entries = self._entries
        at = max(now, entries[index - 1].at if index else now, entry.until - KEPT)
        limit = entry.requests_limit
        if limit is not None and index >= limit:
            at = max(at, entries[index - limit].at + MINUTE)
        if entry.tokens_limit is not None:
            left = max(entry.tokens_limit - entry.tokens, 0)
            for earlier in range(index - 1, -1, -1):
                if entries[earlier].at + MINUTE <= at:
                    break
                left -= entries[earlier].tokens
                if left < 0:
                    at = entries[earlier].at + MINUTE
                    break
        return at

    def _forget_old(self) -> None:
        now = self._clock.monotonic()
        while self._put_off:
            call_key, entry = next(iter(self._put_off.items()))
            if entry.until > now:
                break
            del self._put_off[call_key]
            self._leave(entry)
        oldest = now - MINUTE
        entries = self._entries
        while entries and not entries[0].waits and entries[0].at <= oldest:
            del entries[0]


# ------------------------------------------------------------------------- the lines

_Lines = dict[tuple[str, str, str], _Line]
_LOCK = threading.Lock()
_MACHINE = SystemClock()
_lines: _Lines = {}
"""The lines by the machine's clock, for the whole process."""
_simulated: WeakKeyDictionary[Clock, _Lines] = WeakKeyDictionary()
"""The lines by any other clock."""
_asked: WeakKeyDictionary[Run, str] = WeakKeyDictionary()
"""The key of the model call of the last request in an attempt, by run."""


def _line_of(model: Model, key: str, clock: Clock) -> _Line:
    place = model.system, model.base_url or "", key
    with _LOCK:
        lines = _lines
        if isinstance(clock, (SystemClock, SharedClock)):
            clock = _MACHINE  # all machine clocks count the same seconds
        else:
            lines = _simulated.setdefault(clock, {})
        if place not in lines:
            lines[place] = _Line(clock)
        return lines[place]
