"""The errors of waiting for an actor: it died, or the time is over."""

from __future__ import annotations

import pykka

from understudy.errors import UnderstudyError


class WaitTimeout(pykka.Timeout, TimeoutError):
    """A wait took longer than its `timeout`. Catch it by either of its base classes."""


class ActorDied(UnderstudyError, pykka.ActorDeadError):
    """The actor died before it answered, and the handler of this message did not raise.

    In the actor's process, `__cause__` is the exception that killed the actor, if there was one.

    A message gets a plain `pykka.ActorDeadError` instead if the actor was dead before the message
    was sent, or stopped on request before it handled the message.
    """

    actor_urn: str
    actor_class: str
    cause: str

    def __init__(self, *, actor_urn: str, actor_class: str, cause: str) -> None:
        super().__init__(
            f"{actor_class} ({actor_urn}) died before it answered: {cause}",
            actor_urn=actor_urn,
            actor_class=actor_class,
            cause=cause,
        )


class RuntimeStopped(UnderstudyError, pykka.ActorDeadError):
    """The runtime or the cluster has stopped, so this call gets no answer.

    Everything recorded stays: the next runtime on the store continues it. If an actor of your own
    ended by itself, the error is `ActorDied` or a plain `pykka.ActorDeadError`.
    """

    ends_with_runtime = True
    agent_id: str | None
    """The id of the agent that was called; None for a cluster."""

    def __init__(self, message: str, *, agent_id: str | None = None) -> None:
        super().__init__(message, agent_id=agent_id)
