"""How a broken build of the library is kept by what is wrong with it, and made for a while."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from understudy.errors import UnderstudyError

__all__ = ["BROKEN", "OF_MORE", "OF_STORY", "Patch", "build", "built", "is_found_out", "wrap"]

Patch = pytest.MonkeyPatch
BROKEN: dict[str, Callable[[Patch], None]] = {}
"""Each broken build, by what is wrong with it."""
OF_STORY: list[str] = []
"""The broken builds that the random story must find, whatever its seed."""
OF_MORE: list[str] = []
"""Those that its scenes of delegations, terms, grants and versions must find."""


async def is_found_out(broken: str, attack: Callable[[], Awaitable[None]]) -> bool:
    """Whether an attack fails on a broken build: something is not as it says, or is refused.

    Args:
        broken: the build.
        attack: a test.

    """
    with built(broken):
        try:
            await attack()
        except (AssertionError, pytest.fail.Exception, UnderstudyError):
            return True
    return False


@contextmanager
def built(name: str) -> Iterator[None]:
    """Meanwhile the library is the broken build of that name."""
    with pytest.MonkeyPatch.context() as patch:
        BROKEN[name](patch)
        yield


def build(
    name: str, *, story: bool = True, more: bool = False
) -> Callable[[Callable[[Patch], None]], None]:
    """Keep how a broken build is made.

    Args:
        name: what is wrong with it.
        story: whether the random story must find it, by its first scenes.
        more: whether it must, by those of delegations, terms, grants and versions.

    """

    def keep(make: Callable[[Patch], None]) -> None:
        BROKEN[name] = make
        if more:
            OF_MORE.append(name)
        elif story:
            OF_STORY.append(name)

    return keep


def wrap(patch: Patch, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a name that is there: one that the library has no more fails here."""
    inner = getattr(owner, name)
    patch.setattr(owner, name, functools.wraps(inner)(make(inner)))
