"""`note`: who logged in, who was refused, who read, and who did what only few may do.

Entries of the logger `understudy.security`, at INFO, with `extra=`: so an application sends them
where it likes, by a handler of its own. While nobody listens at that level they cost one look.
What is secret is no part of them: no token, no argument of a call, no text.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

logger: logging.Logger = logging.getLogger("understudy.security")

Event = Literal["login", "refused", "read", "act"]
_address: ContextVar[str | None] = ContextVar("understudy_address", default=None)


@contextmanager
def asked_from(address: str | None) -> Iterator[None]:
    """Note this client address in the entries that are made inside of the `with` block."""
    token = _address.set(address)
    try:
        yield
    finally:
        _address.reset(token)


def current_address() -> str | None:
    """The address from which is asked now; None where it is not asked over a network."""
    return _address.get()


def note(event: Event, what: str, *, who: str | None, agent: str | None = None) -> None:
    """Log one event.

    Args:
        event: its kind.
        what: how a login ended, the right that lacks, the path that is read, or the verb.
        who: the name of the person; None where nobody is logged in or named.
        agent: the id of the agent that it is about, if it is about one.

    """
    if logger.isEnabledFor(logging.INFO):
        # Of an act of the program itself: a task of it has the address of whoever woke the agent.
        address = _address.get() if event != "act" or who is not None else None
        told = {"event": event, "what": what, "who": who, "agent_id": agent, "address": address}
        text = "%s: %s by %r, agent %r, from %r"
        logger.info(text, event, what, who, agent, address, extra=told)
