"""`ToolSource`: what the tools of one kind share, such as a connection."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)


class ToolSource(Protocol[T_co]):
    """What tools share and open once: a connection, a pool. `ctx.shared(source)` brings it.

    A runtime opens it for all its agents, at its first use, and closes it when it stops. A call of
    `Agent.execute` or `resume` opens one of its own, and closes it at its end.
    """

    def open(self) -> AbstractAsyncContextManager[T_co]:
        """Open it, on the loop of the runtime. It is closed by leaving the context."""
