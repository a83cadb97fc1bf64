"""`Haltable`: a tool may end the whole run for good, and a person is informed.

With it, a `Halt` raised by a tool of its agent, or of any agent below, interrupts the run in an
orderly way. Without it the run fails, since a halt is never ignored. The run does not continue
after a halt. It owns requests of kind `halt`, which can only be dismissed.
"""

from __future__ import annotations

from typing import ClassVar

from understudy.middleware.base import Middleware


class Haltable(Middleware):
    """A middleware that lets tools halt the run with `Halt`. One in the outermost agent is
    enough.
    """

    halts: ClassVar[bool] = True
