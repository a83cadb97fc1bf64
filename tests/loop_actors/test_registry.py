"""Pykka's registry, with its list replaced by a table."""

from __future__ import annotations

from typing import Any

import pykka
import pytest

import understudy.loop_actors.registry
from understudy.actors import LoopActor
from understudy.loop_actors.registry import RefTable


class Alpha(LoopActor):
    def __init__(self) -> None:
        super().__init__()
        self.received: list[Any] = []

    def on_receive(self, message: Any) -> None:
        self.received.append(message)


class Beta(Alpha):
    pass


class Gamma(pykka.ThreadingActor):
    def __init__(self) -> None:
        super().__init__()
        self.received: list[Any] = []

    def on_receive(self, message: Any) -> None:
        self.received.append(message)


def test_actors_are_registered_from_start_to_stop_in_order_whatever_their_kind() -> None:
    refs = [cls.start() for cls in (Alpha, Gamma, Beta)]
    assert pykka.ActorRegistry.get_all() == refs
    refs[1].stop()
    assert pykka.ActorRegistry.get_all() == [refs[0], refs[2]]
    refs[0].stop()
    assert pykka.ActorRegistry.get_all() == [refs[2]]


def test_actors_are_found_by_class_class_name_and_urn() -> None:
    alpha, beta, gamma = Alpha.start(), Beta.start(), Gamma.start()
    registry = pykka.ActorRegistry
    assert registry.get_by_class(Alpha) == [alpha, beta]
    assert registry.get_by_class(pykka.ThreadingActor) == [gamma]
    assert registry.get_by_class_name("Alpha") == [alpha]
    assert registry.get_by_urn(beta.actor_urn) is beta
    assert registry.get_by_urn("urn:uuid:none") is None


@pytest.mark.parametrize(
    ("target", "expected"), [(None, 3), (Alpha, 2), ("Beta", 1), ("Nobody", 0)]
)
def test_a_broadcast_reaches_the_actors_of_its_target_class(
    target: type[Alpha] | str | None, expected: int
) -> None:
    refs: list[pykka.ActorRef[Any]] = [Alpha.start(), Beta.start(), Gamma.start()]
    pykka.ActorRegistry.broadcast("hello", target_class=target)
    received = [ref.proxy().received.get() for ref in refs]
    assert sum(messages == ["hello"] for messages in received) == expected


def test_stop_all_stops_the_last_started_first_and_says_what_each_stop_said() -> None:
    stopped: list[str] = []

    class Noting(LoopActor):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.name = name

        def on_stop(self) -> None:
            stopped.append(self.name)

    for name in "abc":
        Noting.start(name)
    assert pykka.ActorRegistry.stop_all(block=True) == [True, True, True]
    assert stopped == ["c", "b", "a"]
    Noting.start("d")
    assert [f.get() for f in pykka.ActorRegistry.stop_all(block=False)] == [True]
    assert pykka.ActorRegistry.get_all() == []


def test_a_ref_may_be_registered_by_hand_and_removed_twice() -> None:
    ref = Alpha.start()
    ref.stop()
    pykka.ActorRegistry.register(ref)
    assert ref in pykka.ActorRegistry.get_all()
    pykka.ActorRegistry.unregister(ref)
    pykka.ActorRegistry.unregister(ref)
    assert pykka.ActorRegistry.get_all() == []


def test_installing_keeps_what_is_registered_and_happens_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ref = Gamma.start()
    monkeypatch.setattr(pykka.ActorRegistry, "_actor_refs", [ref])
    understudy.loop_actors.registry.install()
    table = pykka.ActorRegistry._actor_refs
    assert isinstance(table, RefTable)
    assert list(table) == [ref]
    understudy.loop_actors.registry.install()
    assert pykka.ActorRegistry._actor_refs is table


def test_a_ref_table_behaves_as_the_list_it_replaces() -> None:
    refs = [Alpha.start() for _ in range(3)]
    table, real = RefTable(refs), list(refs)
    assert table == real
    assert table[:] == real[:]
    assert table[0] is real[0]
    assert table[-1] is real[-1]
    assert list(reversed(table)) == list(reversed(real))
    assert len(table) == 3
    table.remove(refs[1])
    assert refs[1] not in table
    assert "a string" not in table
    with pytest.raises(ValueError, match="not registered"):
        table.remove(refs[1])
    table.append(refs[1])
    assert table[:] == [refs[0], refs[2], refs[1]]
    table.clear()
    assert not table[:]


def test_registering_and_unregistering_compare_no_refs() -> None:
    """They are constant: a list would compare the ref with every other one."""
    compared: list[object] = []

    class Comparing(pykka.ActorRef[Any]):
        def __init__(self, urn: str) -> None:
            self.actor_urn = urn

        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return self is other

        __hash__ = pykka.ActorRef.__hash__

    refs = [Comparing(str(number)) for number in range(100)]
    table = RefTable()
    for ref in refs:
        table.append(ref)
    for ref in refs:
        assert ref in table
        table.remove(ref)
    assert compared == []
