"""`LoopActorRegistry`: running actors are found, addressed and stopped."""

from __future__ import annotations

import threading
from typing import Any, Self

import pytest

from understudy.actors import LoopActor, LoopActorRef, LoopActorRegistry


class Alpha(LoopActor):
    def __init__(self) -> None:
        super().__init__()
        self.received: list[Any] = []

    def on_receive(self, message: Any) -> None:
        self.received.append(message)


class Beta(Alpha):
    pass


class Gamma(LoopActor):
    def __init__(self) -> None:
        super().__init__()
        self.received: list[Any] = []

    def on_receive(self, message: Any) -> None:
        self.received.append(message)


def test_actors_are_registered_from_start_to_stop_in_order() -> None:
    refs = [cls.start() for cls in (Alpha, Gamma, Beta)]
    assert LoopActorRegistry.get_all() == refs
    refs[1].stop()
    assert LoopActorRegistry.get_all() == [refs[0], refs[2]]
    refs[0].stop()
    assert LoopActorRegistry.get_all() == [refs[2]]


def test_actors_are_found_by_class_class_name_and_urn() -> None:
    alpha, beta, gamma = Alpha.start(), Beta.start(), Gamma.start()
    assert LoopActorRegistry.get_by_class(Alpha) == [alpha, beta]
    assert LoopActorRegistry.get_by_class(LoopActor) == [alpha, beta, gamma]
    assert LoopActorRegistry.get_by_class_name("Alpha") == [alpha]
    assert LoopActorRegistry.get_by_urn(beta.actor_urn) is beta
    assert LoopActorRegistry.get_by_urn("urn:uuid:none") is None


@pytest.mark.parametrize(
    ("target", "expected"), [(None, 3), (Alpha, 2), ("Beta", 1), ("Unknown", 0)]
)
def test_a_broadcast_reaches_the_actors_of_its_target_class(
    target: type[Alpha] | str | None, expected: int
) -> None:
    refs: list[LoopActorRef[Any]] = [Alpha.start(), Beta.start(), Gamma.start()]
    LoopActorRegistry.broadcast("hello", target_class=target)
    received = [ref.proxy().received.get() for ref in refs]
    assert sum(messages == ["hello"] for messages in received) == expected


def test_a_broadcast_leaves_out_an_actor_that_has_stopped_and_reaches_those_after_it() -> None:
    stopped, alive = Alpha.start(), Alpha.start()
    stopped.stop()
    LoopActorRegistry.unregister(alive)
    for ref in (stopped, alive):
        LoopActorRegistry.register(ref)
    LoopActorRegistry.broadcast("hello")
    assert alive.proxy().received.get() == ["hello"]
    LoopActorRegistry.unregister(stopped)


def test_stop_all_stops_the_last_started_first_and_returns_what_each_stop_returned() -> None:
    stopped: list[str] = []

    class Noting(LoopActor):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.name = name

        def on_stop(self) -> None:
            stopped.append(self.name)

    for name in "abc":
        Noting.start(name)
    assert LoopActorRegistry.stop_all(block=True) == [True, True, True]
    assert stopped == ["c", "b", "a"]
    Noting.start("d")
    assert [f.get() for f in LoopActorRegistry.stop_all(block=False)] == [True]
    assert LoopActorRegistry.get_all() == []


def test_a_ref_may_be_registered_by_hand_and_removed_twice() -> None:
    ref = Alpha.start()
    ref.stop()
    LoopActorRegistry.register(ref)
    assert ref in LoopActorRegistry.get_all()
    LoopActorRegistry.unregister(ref)
    LoopActorRegistry.unregister(ref)
    assert LoopActorRegistry.get_all() == []


def test_registering_finding_and_unregistering_compare_no_refs() -> None:
    """They take constant time: a list would compare the ref with every other one."""
    compared: list[object] = []

    class Comparing(LoopActorRef[Any]):
        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return self is other

        __hash__ = LoopActorRef.__hash__

    actors = [Alpha() for _ in range(100)]  # not started: the registry takes any ref
    refs = [Comparing(actor) for actor in actors]
    for ref in refs:
        LoopActorRegistry.register(ref)
    for ref in refs:
        assert LoopActorRegistry.get_by_urn(ref.actor_urn) is ref
        LoopActorRegistry.unregister(ref)
    assert compared == []


def test_threads_may_start_and_stop_actors_while_others_are_listed() -> None:
    enough = threading.Event()

    class Quiet(Alpha):
        @classmethod
        def start(cls, *_args: Any, **_kwargs: Any) -> LoopActorRef[Self]:
            ref: LoopActorRef[Self] = cls().actor_ref
            LoopActorRegistry.register(ref)
            return ref

    def come_and_go() -> None:
        while not enough.is_set():
            refs = [Quiet.start() for _ in range(10)]
            for ref in refs:
                LoopActorRegistry.unregister(ref)

    lasting = Alpha.start()
    threads = [threading.Thread(target=come_and_go) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(1000):
            assert LoopActorRegistry.get_all()[0] is lasting
            assert LoopActorRegistry.get_by_class_name("Alpha") == [lasting]
    finally:
        enough.set()
        for thread in threads:
            thread.join(60)
    assert LoopActorRegistry.get_all() == [lasting]
