"""`Listing`: a list in pages, with cursors that name a place in it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from understudy._base.json_values import digest, is_storable_text, shown
from understudy.errors import UsageError
from understudy.loop_actors.future import Future, LazyFuture, refuse_on_its_loop
from understudy.loop_actors.stream import Stream

T = TypeVar("T")

MAX_LIMIT = 10_000
"""The most items of a page of a list."""
PAGE = 500
"""The number of items that a read has when a caller wants all items."""


class Page(list[T]):
    """Some items of a list, in the list's order."""

    after: str | None
    """The cursor after the last item, for the next page; None if there are no more items now."""

    def __init__(self, items: Iterable[T] = (), after: str | None = None) -> None:
        super().__init__(items)
        self.after = after


ReadPage = Callable[[str | None, int], Coroutine[Any, Any, Page[T]]]
"""A function that reads the page behind a cursor, with at most so many items."""


Call = Callable[..., Future[Any]]
"""A function that calls a coroutine function on the loop of a runtime; a new or the given future
gets the result."""


class Listing(Stream[T], LazyFuture[Page[T]]):
    """A list to read: `await` it or `.get()` it for a page, or iterate over all items.

    Nothing is read before that. A page has up to `limit` items after `after`; without a `limit` it
    has all of them. `async for`, and `for` in a thread, go over all items after `after`. They read
    `limit` items at a time, so only one page is in memory.
    """

    def __init__(
        self,
        call: Call,
        read: ReadPage[T],
        *,
        after: str | None,
        limit: int | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        async def first() -> Page[T]:
            if limit is not None:
                return await read(after, limit)
            found = Page[T]()
            page = await read(after, PAGE)
            while page.after is not None:
                found += page
                page = await read(page.after, PAGE)
            found += page
            return found

        super().__init__(lambda: call(first, self), loop)
        self._call = call
        self._read = read
        self._after = after
        self._page_size = PAGE if limit is None else limit

    # Pykka's futures have an `__iter__` that is their `__await__`.
    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        refuse_on_its_loop(self._loop, "for", "use `async for` instead")
        return super().__iter__()

    def _steps(self) -> Iterator[T | Future[Page[T]]]:
        after, is_last = self._after, False
        while not is_last:
            reading: Future[Page[T]] = self._call(partial(self._read, after, self._page_size))
            yield reading
            page = reading.get()
            yield from page
            after, is_last = page.after, page.after is None


def checked_limit(limit: object) -> int | None:
    """The `limit` of a list, checked.

    Raises:
        UsageError: if it is no size of a page.

    """
    if limit is None:
        return None
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
        raise UsageError(
            f"`limit` must be an integer from 1 to {MAX_LIMIT:,}, got {shown(limit)}; for more, "
            "pass the `after` of a page on to the next one, or use `async for`"
        )
    return limit


def checked_name(what: str, given: object) -> str | None:
    """A text by which a list is filtered, checked.

    Raises:
        UsageError: if it is no text, or one that no store can have.

    """
    if given is None or (isinstance(given, str) and _is_comparable(given)):
        return given
    raise UsageError(f"{what} must be text without NUL, got {shown(given)}")


class Cursors:
    """The cursors of one list: opaque texts that name the list, its filters, and a place in it.

    Args:
        name: of the list.
        filters: what else makes it another list.
        types: of the values of a key.

    """

    def __init__(self, name: str, filters: object, *types: type) -> None:
        self._name = name
        self._types = types
        self._filters = digest(json.loads(json.dumps(filters, default=str)))[:12]

    def cursor(self, key: tuple[Any, ...]) -> str:
        """The cursor behind the item with a key."""
        text = json.dumps([self._name, self._filters, *key], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def key(self, after: object) -> tuple[Any, ...] | None:
        """The key in a cursor: the page begins behind it.

        Raises:
            UsageError: if it is no cursor, or a cursor of another list.

        """
        if after is None:
            return None
        remedy = f"pass on the `after` of a page of {self._name}()"
        if not isinstance(after, str) or len(after) > MAX_CURSOR:
            raise UsageError(f"`after` must be a cursor, got {shown(after)}: {remedy}")
        try:
            data = after.encode("ascii") + b"=" * (-len(after) % 4)
            found = json.loads(base64.b64decode(data, altchars=b"-_", validate=True))
        except ValueError:
            found = None
        name, filters, *key = found if isinstance(found, list) and len(found) > 1 else (0, 0)
        if isinstance(name, str) and name != self._name:
            raise UsageError(f"`after` is a cursor of {shown(name)}: {remedy}")
        if name == self._name and filters != self._filters:
            raise UsageError(
                f"`after` is a cursor of {self._name}() with other filters: pass on the `after` "
                "of a page with the same ones"
            )
        if name != self._name or not _are(key, self._types):
            raise UsageError(f"`after` must be a cursor, got {shown(after)}: {remedy}")
        return tuple(key)


MAX_CURSOR = 8000
"""The most characters of a cursor: one with the longest id, escaped, fits."""


def _are(values: list[Any], types: tuple[type, ...]) -> bool:
    """Whether the values have these types, and a database can compare them."""
    return len(values) == len(types) and all(
        type(value) is kind and _is_comparable(value)
        for value, kind in zip(values, types, strict=True)
    )


def _is_comparable(value: Any) -> bool:
    if isinstance(value, int):
        return -1 << 63 <= value < 1 << 63
    return is_storable_text(value) and "\0" not in value
