"""`Effects`: what has happened in the world, and how often."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass


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
    """Counts effects, in the order in which they came. Thread-safe: plain tools run in threads."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._lock = threading.Lock()

    def add(self, what: str, key: str = "") -> None:
        """Note that it has happened, perhaps once more."""
        with self._lock:
            self._effects.append(Effect(what, key))

    def add_once(self, what: str, key: str) -> bool:
        """Note that it has happened, unless a request with this key has had its effect before.

        Returns:
            Whether it is noted.

        """
        with self._lock:
            if any(effect.key == key for effect in self._effects):
                return False
            self._effects.append(Effect(what, key))
            return True

    def of(self, what: str) -> tuple[Effect, ...]:
        """The effects of this text: more than one is a repetition."""
        return tuple(effect for effect in self if effect.what == what)

    def repeated(self) -> dict[str, int]:
        """What has happened more than once, and how often."""
        counted = Counter(effect.what for effect in self)
        return {what: times for what, times in counted.items() if times > 1}

    def __iter__(self) -> Iterator[Effect]:
        with self._lock:
            return iter(tuple(self._effects))

    def __len__(self) -> int:
        return len(self._effects)
