"""`Planned`: the calls at which something is to happen, and whether it has happened."""

from __future__ import annotations

import mmap
import struct
import threading

from understudy._base.json_values import shown
from understudy.errors import UsageError

_COUNTS = struct.Struct("=qq")


def checked_calls(at: object, times: object, *, what: str) -> None:
    """Check the calls for which something is planned.

    Raises:
        UsageError: if `at` is no number from 1 on, or `times` is neither such a number nor None.

    """
    for option, given in (("at", at), ("times", times)):
        is_number = isinstance(given, int) and not isinstance(given, bool) and given >= 1
        if not is_number and not (option == "times" and given is None):
            more = ", or None for each call from `at` on" if option == "times" else ""
            raise UsageError(
                f"{what}: `{option}` must be a whole number from 1 on{more}, got {shown(given)}"
            )


class Planned:
    """A counter of calls, which says at which calls something is to happen. Thread-safe.

    The count is shared with processes that are forked from this one, such as the hosts of a story
    that are killed as processes.

    Args:
        at: the first call at which it happens, from 1 on.
        times: the number of calls in a row; None = each call from `at` on.

    """

    def __init__(self, at: int = 1, times: int | None = 1) -> None:
        self.at = at
        self.times = times
        self._counts = mmap.mmap(-1, _COUNTS.size)
        self._lock = threading.Lock()

    @property
    def seen(self) -> int:
        """The number of calls so far."""
        return int(_COUNTS.unpack_from(self._counts)[0])

    @property
    def happened(self) -> int:
        """The number of calls at which it has happened."""
        return int(_COUNTS.unpack_from(self._counts)[1])

    def is_due(self) -> bool:
        """Count one call. Returns whether it is to happen at this call."""
        with self._lock:
            seen = self.seen + 1
            _COUNTS.pack_into(self._counts, 0, seen, self.happened)
        return self.at <= seen and (self.times is None or seen < self.at + self.times)

    def note(self) -> None:
        """Note that it has happened."""
        with self._lock:
            _COUNTS.pack_into(self._counts, 0, self.seen, self.happened + 1)

    @property
    def is_complete(self) -> bool:
        """Whether it has happened as often as planned. For `times=None`, once is enough."""
        return self.happened >= (self.times or 1)
