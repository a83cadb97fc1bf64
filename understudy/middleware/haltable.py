"""`Haltable`: a tool may stop the whole run for good, and a person is told (I11).

It says that its agent, and all agents below it, are halted in good order when a tool raises `Halt`;
without it the run fails, for a halt is never ignored. It is no question: nothing of the run goes on
after it, whoever answers. It owns requests of kind `halt`, which can only be dismissed.
"""

from __future__ import annotations

from typing import ClassVar

from understudy.middleware.base import Middleware

__all__ = ["Haltable"]


class Haltable(Middleware):
    """Lets tools halt this agent, and the run that it belongs to, by raising `Halt`.

    One in the outermost agent is enough for all below it.
    """

    halts: ClassVar[bool] = True
