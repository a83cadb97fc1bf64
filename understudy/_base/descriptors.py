"""File descriptors: whether a process has any left."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack

from understudy.errors.calls import MORE_DESCRIPTORS


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether it says that no file descriptor is left, in this process or on its machine."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def lacks_descriptors(count: int) -> bool:
    """Whether fewer than so many can be opened now.

    For libraries that do not say why they could not open what needs so many: they have closed what
    they had opened by then.
    """
    with ExitStack() as opened:
        try:
            for _ in range(count):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            return is_out_of_descriptors(error)
    return False


def no_descriptor(what: str) -> str:
    """A sentence which says that no file descriptor is left for `what`, and the remedy."""
    return f"no file descriptor is left for {what}. {MORE_DESCRIPTORS}"
