"""Pykka's registry with registering and unregistering in constant time.

Pykka keeps a list, so stopping an actor walks past all the others: with 100,000 actors that is
most of the time that stopping takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast, overload

import pykka

__all__ = ["RefTable", "install"]


class RefTable:
    """What `ActorRegistry` uses of a list, keyed by actor URN, in the order of registration.

    It has no lock of its own: the registry holds its lock around each use.
    """

    __slots__ = ("_refs",)

    def __init__(self, refs: Iterable[pykka.ActorRef[Any]] = ()) -> None:
        self._refs = {ref.actor_urn: ref for ref in refs}

    def append(self, ref: pykka.ActorRef[Any]) -> None:
        self._refs[ref.actor_urn] = ref

    def remove(self, ref: pykka.ActorRef[Any]) -> None:
        if ref not in self:
            raise ValueError(f"{ref} is not registered")
        del self._refs[ref.actor_urn]

    def clear(self) -> None:
        self._refs.clear()

    def __contains__(self, ref: object) -> bool:
        return isinstance(ref, pykka.ActorRef) and ref.actor_urn in self._refs

    def __iter__(self) -> Iterator[pykka.ActorRef[Any]]:
        return iter(self._refs.values())

    def __reversed__(self) -> Iterator[pykka.ActorRef[Any]]:
        return reversed(self._refs.values())

    def __len__(self) -> int:
        return len(self._refs)

    @overload
    def __getitem__(self, index: int) -> pykka.ActorRef[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[pykka.ActorRef[Any]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return list(self._refs.values())[index]

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, RefTable) else other)

    __hash__ = None  # type: ignore[assignment]  # as a list: it changes


def install() -> None:
    """Put a `RefTable` in the place of the registry's list, once, keeping what is in it."""
    registry = pykka.ActorRegistry
    with registry._actor_refs_lock:
        if not isinstance(registry._actor_refs, RefTable):
            registry._actor_refs = cast("list[pykka.ActorRef[Any]]", RefTable(registry._actor_refs))
