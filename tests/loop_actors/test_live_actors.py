"""The actors of a loop that shuts down while another one starts there."""

from __future__ import annotations

import asyncio
import threading

from understudy.loop_actors.live_actors import end_actors_of_closed_loops, register

WAIT = 0.2
"""Seconds that the other thread gets. It needs none where nothing keeps it out."""


class Listed:
    """In the list of live actors; another thread may act just before."""

    def __init__(self, meanwhile: threading.Thread | None = None) -> None:
        self.meanwhile = meanwhile
        self.ended = False

    def __hash__(self) -> int:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile.start()
            meanwhile.join(WAIT)
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def _loop_closed(self) -> None:
        self.ended = True


def test_an_actor_that_is_registered_while_its_loop_is_shut_down_is_ended() -> None:
    """A8: it is either in the list that is ended, or in a new one."""
    loop = asyncio.new_event_loop()
    before = Listed()
    register(before, loop)
    loop.close()
    shutting = threading.Thread(target=end_actors_of_closed_loops)
    late = Listed(shutting)
    register(late, loop)
    shutting.join()
    end_actors_of_closed_loops()
    assert before.ended
    assert late.ended
