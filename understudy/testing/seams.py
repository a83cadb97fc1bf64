"""The seams of the library: functions around which the kit can stand during a test.

A seam is the last function of the library before a model, the body of a tool, or a database. So a
fault there takes the same path as a real fault. Outside of a block the library is unchanged: its
functions check nothing.

A block holds for the process, with all its threads and runtimes. Blocks end in any order.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

Around = Callable[..., Any]
"""A function that is called with the function around which it stands, and then with the call's
arguments."""


class Seam:
    """A function of the library around which other functions may stand. Thread-safe.

    Args:
        module: the module of the function.
        owner: the class that has it; empty for a function of the module itself.
        name: the name of the function.

    """

    def __init__(self, module: str, owner: str, name: str) -> None:
        self._module = module
        self._owner = owner
        self._name = name
        self._lock = threading.Lock()
        self._around: tuple[Around, ...] = ()
        self._original: Any = None

    @contextmanager
    def between(self, around: Around) -> Iterator[None]:
        """Stand around the function, outside of all that stand there already."""
        with self._lock:
            if not self._around:
                self._install()
            self._around += (around,)
        try:
            yield
        finally:
            with self._lock:
                self._around = tuple(each for each in self._around if each is not around)
                if not self._around:
                    setattr(self._place(), self._name, self._original)

    def _place(self) -> Any:
        module: Any = importlib.import_module(self._module)
        return getattr(module, self._owner) if self._owner else module

    def _install(self) -> None:
        place = self._place()
        original = self._original = vars(place)[self._name]

        @wraps(original)
        def outer(*args: Any) -> Any:
            call = original
            for around in self._around:
                call = partial(around, call)
            return call(*args)

        setattr(place, self._name, outer)


MODEL_REQUEST = Seam("understudy.modes.steps.model_call.ask_model", "ModelCall", "_answered")
"""One request to a model: `(call, model, request, parameters)`."""
TOOL_BODY = Seam("understudy.modes.steps.tool_call.body", "", "_body")
"""One attempt at the body of a tool: `(run, ready)`."""
TOOL_OF = Seam("understudy.run.definition", "AgentDefinition", "tool_of")
"""The tool of a name, as an agent has it: `(definition, name)`."""
REST = Seam("understudy.modes.steps.tool_call.retry", "", "_rest")
"""A short wait before a tool is called again: `(seconds)`."""
TRANSACTION = Seam("understudy.journal.committer", "Committer", "_run_transaction")
"""One attempt at a transaction of a database: `(committer, group)`."""
COMMIT = Seam("understudy.journal.committer", "Committer", "_commit")
"""A transaction of a database, with its further attempts: `(committer, group)`."""
RENEWAL = Seam("understudy.journal.lease", "Lease", "_renew")
"""A renewal of the lease of a host: `(lease)`."""
