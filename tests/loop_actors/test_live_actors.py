"""The actors of a loop that shuts down while another one starts there."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from tests.support.children import error_of, in_child
from tests.support.loop_actors import Actor
from understudy.actors import LoopActorRegistry
from understudy.loop_actors.live_actors import LiveActor, end_actors_of_closed_loops, register

WAIT = 0.2
"""Seconds that the other thread gets. It needs none where nothing keeps it out."""


class Listed(LiveActor):
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

    def _forked(self) -> None:
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_the_actors_of_the_parent_are_dead_in_the_child_of_a_fork() -> None:
    """Their loop runs in no thread of the child: what is sent to them would wait for ever."""
    ref = Actor.start()
    try:
        seen: list[object] = []

        def use() -> list[str]:
            ref.monitor(seen.append)
            said = [
                error_of(lambda: ref.ask("go", timeout=60)),
                error_of(lambda: ref.ask("go", block=False).get(timeout=60)),
                error_of(lambda: ref.tell("go")),
                error_of(lambda: ref.stop(timeout=60)),
                error_of(lambda: ref.stop_now().get(timeout=60)),
                error_of(ref.is_alive),
                error_of(lambda: len(seen)),
            ]
            LoopActorRegistry.stop_all(timeout=60)
            return said

        dead = "ActorDeadError"
        assert in_child(use) == [dead, dead, dead, "False", "False", "False", "1"]
        assert ref.is_alive()
    finally:
        ref.stop()
