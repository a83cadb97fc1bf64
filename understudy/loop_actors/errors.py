"""What the asker of an actor may be told, beside the handler's own exception."""

from __future__ import annotations

import pykka

from understudy.errors import UnderstudyError

__all__ = ["ActorDied"]


class ActorDied(UnderstudyError, pykka.ActorDeadError):
    """The actor died of something else than this message's own exception.

    Its `__cause__` in this process is what killed it, if anything did. An actor that was dead
    before the message was sent, or stopped on request before it came to the message, gives a
    plain `pykka.ActorDeadError` instead.
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
