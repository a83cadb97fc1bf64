"""`Effects`: what has happened in the world, and how often."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol, Self

from understudy._base.json_values import shown
from understudy.errors import UsageError


class Gone(BaseException):
    """The host whose code runs is no more: it comes no further than here."""


class Gate(Protocol):
    """A host of a story, which may be killed."""

    @property
    def is_dead(self) -> bool: ...


current_host: ContextVar[Gate | None] = ContextVar("understudy_host_of_a_story", default=None)
"""The host of the story whose code runs. What it does once it is dead has no effect."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect on the world, such as a payment.

    Args:
        what: says which one it is: two effects of the same text are a repetition.
        key: the idempotency key of the request that had the effect; empty for none.

    """

    what: str
    key: str = ""


class Effects:
    """Counts effects, in the order in which they came. Thread-safe: plain tools run in threads.

    Those of a story (`story.effects`) outlive its hosts: what a host has done before it was killed
    is counted, and what its code does afterwards is not.
    """

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._lock = threading.Lock()
        self._is_careless = False
        self._requests: list[tuple[int, Effect]] = []
        self._remotes = 0
        self._refresh: Callable[[], None] = lambda: None
        self._on_effect: Callable[[Effect], None] | None = None
        self._on_request: Callable[[int, Effect], None] | None = None
        self._excused: Callable[[], str] | None = None
        self._asserted: list[tuple[str, ...]] = []
        """What was asserted by `once`, in a story."""

    def add(self, what: str, key: str = "") -> None:
        """Note that it has happened, perhaps once more."""
        self._add(Effect(what, key))

    def add_once(self, what: str, key: str) -> bool:
        """Note that it has happened, unless a request with this key has had its effect before.

        Returns:
            Whether it is noted.

        """
        self._refresh()
        with self._lock:
            is_known = any(effect.key == key for effect in self._effects)
        if is_known and not self._is_careless:
            return False
        self._add(Effect(what, key))
        return True

    def of(self, what: str) -> tuple[Effect, ...]:
        """The effects of this text: more than one is a repetition."""
        return tuple(effect for effect in self if effect.what == what)

    def find(self, what: str = "", *, key: str = "") -> Effect | None:
        """The first effect of this text and this key, as a `check` of a tool asks for it.

        Args:
            what: its text; empty for any.
            key: the key of its request; empty for any.

        """
        if self._is_careless:
            return None  # a story is played with a service that answers no question
        fits = (each for each in self if what in ("", each.what) and key in ("", each.key))
        return next(fits, None)

    def repeated(self) -> dict[str, int]:
        """What has happened more than once, and how often."""
        counted = Counter(effect.what for effect in self)
        return {what: times for what, times in counted.items() if times > 1}

    def once(self, *whats: str) -> None:
        """Assert that each of these has happened once, and that nothing has happened twice.

        In a story whose host was killed, an effect may be missing where a person or the model knows
        that its call is in doubt: a call that may not be repeated was cut off before its effect.

        Args:
            whats: the texts of the effects; without any, all that have happened.

        Raises:
            AssertionError: if an effect is missing, or was repeated.

        """
        __tracebackhide__ = True
        if self._excused is not None:
            self._asserted.append(whats)
        self._none_twice(whats)
        missing = [what for what in whats if not self.of(what)]
        excuse = self._excused() if self._excused is not None else ""
        if missing and not excuse:
            happened = ", ".join(repr(each.what) for each in self) or "nothing"
            raise AssertionError(f"{missing[0]!r} has not happened. What has: {happened}")

    def _none_twice(self, whats: tuple[str, ...]) -> None:
        __tracebackhide__ = True
        for what, times in self.repeated().items():
            if not whats or what in whats:
                raise AssertionError(f"{what!r} has happened {times} times")

    def __iter__(self) -> Iterator[Effect]:
        self._refresh()
        with self._lock:
            return iter(tuple(self._effects))

    def __len__(self) -> int:
        self._refresh()
        return len(self._effects)

    # ------------------------------------------------------------- for services and for stories

    def new_remote(self) -> int:
        """The number of a service whose effects are counted here."""
        self._remotes += 1
        return self._remotes

    def requests_of(self, remote: int) -> list[Effect]:
        """The requests that this service has had, oldest first."""
        self._refresh()
        with self._lock:
            return [request for number, request in self._requests if number == remote]

    def add_request(self, remote: int, request: Effect) -> int:
        """Note a request to a service; how many the service had before."""
        self._refresh()
        with self._lock:
            before = sum(number == remote for number, _ in self._requests)
            self._requests.append((remote, request))
        if self._on_request is not None:
            self._on_request(remote, request)
        return before

    def watched(
        self,
        on_effect: Callable[[Effect], None],
        on_request: Callable[[int, Effect], None],
    ) -> None:
        """Have a host of a story hear of each effect and of each request, once it is counted."""
        self._on_effect, self._on_request = on_effect, on_request

    def in_story(self, *, is_careless: bool, excused: Callable[[], str]) -> Self:
        """Count for a story.

        Args:
            is_careless: whether keys and look-ups are ignored, as in a control.
            excused: says why an effect may be missing; empty where it may not.

        """
        self._is_careless, self._excused = is_careless, excused
        return self

    def refreshed_by(self, refresh: Callable[[], None]) -> None:
        """Call this before each look at what has happened: it has other hosts' effects counted."""
        self._refresh = refresh

    def take(self, effects: Iterable[Effect], requests: Iterable[tuple[int, Effect]]) -> None:
        """Count what a host in another process has counted."""
        with self._lock:
            self._effects += effects
            self._requests += requests

    def check_again(self) -> None:
        """Assert once more that nothing has happened twice of what `once` was asked about.

        Raises:
            AssertionError: if it has.

        """
        for whats in self._asserted:
            self._none_twice(whats)

    def _add(self, effect: Effect) -> None:
        if not isinstance(effect.what, str):
            raise UsageError(f"effects.add takes a text that says what, got {shown(effect.what)}")
        host = current_host.get()
        if host is not None and host.is_dead:
            raise Gone  # nothing that it still does can reach the world
        with self._lock:
            self._effects.append(effect)
        if self._on_effect is not None:
            self._on_effect(effect)
