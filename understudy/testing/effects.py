"""`Effects`: the effects on the world, and how often each has happened."""

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
    """The host of the running code is dead: its code stops here."""


class Gate(Protocol):
    """A host of a story, which may be killed."""

    @property
    def is_dead(self) -> bool: ...


current_host: ContextVar[Gate | None] = ContextVar("understudy_host_of_a_story", default=None)
"""The host of the running code in a story. What it does once it is dead has no effect."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect on the world, such as a payment.

    Args:
        what: the text that identifies the effect. Two effects with the same text count as a
            repetition.
        key: the idempotency key of the request that had the effect; empty without a key.

    """

    what: str
    key: str = ""


class Effects:
    """A list of effects, in the order in which they came. Thread-safe: plain tools run in threads.

    The effects of a story (`story.effects`) outlive its hosts. What a host did before it was killed
    is counted. What its code does afterwards is not counted.
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
        """The assertions by `once`, in a story."""

    def add(self, what: str, key: str = "") -> None:
        """Note an effect, even if it has happened before."""
        self._add(Effect(what, key))

    def add_once(self, what: str, key: str) -> bool:
        """Note an effect, unless a request with this key has already had its effect.

        Returns:
            Whether the effect was noted.

        """
        self._refresh()
        with self._lock:
            is_known = any(effect.key == key for effect in self._effects)
        if is_known and not self._is_careless:
            return False
        self._add(Effect(what, key))
        return True

    def of(self, what: str) -> tuple[Effect, ...]:
        """Return the effects with this text. More than one is a repetition."""
        return tuple(effect for effect in self if effect.what == what)

    def find(self, what: str = "", *, key: str = "") -> Effect | None:
        """Return the first effect with this text and this key, for a `check` of a tool.

        Args:
            what: the text; empty for any text.
            key: the key of the request; empty for any key.

        """
        if self._is_careless:
            return None  # in a control the service answers no question
        fits = (each for each in self if what in ("", each.what) and key in ("", each.key))
        return next(fits, None)

    def repeated(self) -> dict[str, int]:
        """Return the effects that happened more than once, with their numbers."""
        counted = Counter(effect.what for effect in self)
        return {what: times for what, times in counted.items() if times > 1}

    def once(self, *whats: str) -> None:
        """Assert that each of these effects has happened once, and that no effect has happened
        twice.

        In a story whose host was killed, an effect may be missing if its call was cut off before
        the effect, may not be repeated, and is known to be in doubt by a person or the model.

        Args:
            whats: the texts of the effects; by default all that have happened.

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
        """Return a number for a service whose effects are counted here."""
        self._remotes += 1
        return self._remotes

    def requests_of(self, remote: int) -> list[Effect]:
        """Return the requests to this service, oldest first."""
        self._refresh()
        with self._lock:
            return [request for number, request in self._requests if number == remote]

    def add_request(self, remote: int, request: Effect) -> int:
        """Note a request to a service. Return the number of its requests before."""
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
        """Notify a host of a story of each effect and each request, once it is counted."""
        self._on_effect, self._on_request = on_effect, on_request

    def in_story(self, *, is_careless: bool, excused: Callable[[], str]) -> Self:
        """Begin to count for a story.

        Args:
            is_careless: whether keys and look-ups are ignored, as in a control.
            excused: returns why an effect may be missing; empty if it may not.

        """
        self._is_careless, self._excused = is_careless, excused
        return self

    def refreshed_by(self, refresh: Callable[[], None]) -> None:
        """Call a function before each look at the effects, to count the effects of other hosts."""
        self._refresh = refresh

    def take(self, effects: Iterable[Effect], requests: Iterable[tuple[int, Effect]]) -> None:
        """Count the effects that a host in another process has counted."""
        with self._lock:
            self._effects += effects
            self._requests += requests

    def check_again(self) -> None:
        """Assert again that no effect asserted by `once` has happened twice.

        Raises:
            AssertionError: if an effect has happened twice.

        """
        for whats in self._asserted:
            self._none_twice(whats)

    def _add(self, effect: Effect) -> None:
        if not isinstance(effect.what, str):
            raise UsageError(f"effects.add takes a text that says what, got {shown(effect.what)}")
        host = current_host.get()
        if host is not None and host.is_dead:
            raise Gone  # nothing that the dead host still does can reach the world
        with self._lock:
            self._effects.append(effect)
        if self._on_effect is not None:
            self._on_effect(effect)
