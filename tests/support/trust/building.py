"""How a broken build of the library is kept by what is wrong with it, and made for a while."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from understudy.errors import UnderstudyError

__all__ = ["BROKEN", "OF_STORY", "Patch", "build", "built", "is_found_out", "wrap"]

Patch = pytest.MonkeyPatch
BROKEN: dict[str, Callable[[Patch], None]] = {}
"""Each broken build, by what is wrong with it."""
OF_STORY: list[str] = []
"""The broken builds that the random story must find, whatever its seed."""


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


def build(name: str, *, story: bool = True) -> Callable[[Callable[[Patch], None]], None]:
    def keep(make: Callable[[Patch], None]) -> None:
        BROKEN[name] = make
        if story:
            OF_STORY.append(name)

    return keep


def wrap(patch: Patch, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a name that is there: one that the library has no more fails here."""
    inner = getattr(owner, name)
    patch.setattr(owner, name, functools.wraps(inner)(make(inner)))
