"""What a forked child of this process does."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["Hangs", "error_of", "in_child"]

HANGS = 60
"""Seconds after which a child is killed: only a failing test waits so long."""


class Hangs(Exception):
    """A child did not come to its end."""


def in_child(body: Callable[[], Any]) -> Any:
    """What `body`, called in a forked child, returns; or `{"raised": traceback}`. It goes as JSON.

    Raises:
        Hangs: if the child had to be killed.

    """
    assert sys.platform != "win32"
    with tempfile.TemporaryFile("w+") as answer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
            child = os.fork()
        if child == 0:
            # No faulthandler here: it would wait for a thread of the parent that pytest has begun.
            try:
                json.dump(body(), answer)
            except BaseException:
                json.dump({"raised": traceback.format_exc()}, answer)
            finally:
                answer.flush()
                os._exit(0)
        deadline = time.monotonic() + HANGS
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise Hangs
            time.sleep(0.001)
        answer.seek(0)
        return json.load(answer)


def error_of(call: Callable[[], object]) -> str:
    """The name of what it raises; else what it returns."""
    try:
        return repr(call())
    except Exception as error:
        return type(error).__name__
