"""Pykka's proxies, with a `LoopActor` behind them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast
from unittest.mock import Mock, PropertyMock

import pykka
import pytest
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr
from pykka.typing import ActorMemberMixin, proxy_field, proxy_method

from understudy.actors import Future, LoopActor


class Nested:
    pykka_traversable = True
    value = "nested"

    def double(self, number: int) -> int:
        return number * 2


class Proxied(LoopActor):
    field = "field"
    nested = pykka.traversable(Nested())
    opaque = object()
    _private = "private"

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.pending: Any = None

    def add(self, number: int, *, twice: bool = False) -> int:
        self.count += number * (2 if twice else 1)
        return self.count

    async def add_later(self, number: int) -> int:
        await asyncio.sleep(0)
        return self.add(number)

    @staticmethod
    def at_rest(number: int) -> int:
        return number + 1

    @staticmethod
    async def at_rest_later(number: int) -> int:
        return number + 2

    def fail(self) -> None:
        raise LookupError("failed")

    @property
    def failing(self) -> None:
        raise LookupError("failed to get")

    @property
    def doubled(self) -> int:
        return self.count * 2

    @doubled.setter
    def doubled(self, value: int) -> None:
        self.count = value // 2

    def a_future(self) -> Future[str]:
        future: Future[str] = Future()
        future.set("inner")
        return future

    def a_method_made_later(self) -> None:
        self.made_later = lambda: "made later"

    def use_it(self) -> Any:
        return cast("Any", self.actor_ref.proxy()).made_later()


@pytest.fixture
def proxy() -> Any:
    return Proxied.start().proxy()


def test_fields_and_methods_give_futures(proxy: Any) -> None:
    assert isinstance(proxy.field, Future)
    assert proxy.field.get() == "field"
    assert proxy.add(2).get() == 2
    assert proxy.add(2, twice=True).get() == 6
    assert proxy.add_later(1).get() == 7
    assert proxy.at_rest(1).get() == 2
    assert proxy.at_rest_later(1).get() == 3


async def test_fields_and_methods_are_awaited() -> None:
    proxy = cast("Any", Proxied.start().proxy())
    assert [await proxy.field, await proxy.add(2), await proxy.add_later(3)] == ["field", 2, 5]


def test_setting_a_field_waits_until_it_is_set(proxy: Any) -> None:
    proxy.count = 10
    assert proxy.add(1).get() == 11
    with pytest.raises(AttributeError):
        proxy.failing = 1


def test_a_property_is_read_and_set_as_a_field_is(proxy: Any) -> None:
    proxy.doubled = 8
    assert proxy.count.get() == 4
    assert proxy.doubled.get() == 8


def test_traversable_attributes_are_reached_through_the_actor(proxy: Any) -> None:
    assert proxy.nested.value.get() == "nested"
    assert proxy.nested.double(4).get() == 8
    proxy.nested.value = "set"
    assert proxy.nested.value.get() == "set"
    assert isinstance(proxy.opaque.get(), object)


def test_private_and_unknown_attributes_are_not_there(proxy: Any) -> None:
    for name in ("_private", "unknown"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            getattr(proxy, name)
    assert not [name for name in dir(proxy) if name == "_drain"]
    assert {"field", "add", "nested"} <= set(dir(proxy))


def test_methods_made_later_are_found(proxy: Any) -> None:
    proxy.a_method_made_later().get()
    assert proxy.made_later().get() == "made later"
    assert proxy.use_it().get().get() == "made later"


def test_methods_and_properties_may_be_mocked(monkeypatch: pytest.MonkeyPatch) -> None:
    add = Mock(return_value="mocked")
    field = PropertyMock(return_value="mocked too")
    monkeypatch.setattr(Proxied, "add", add)
    monkeypatch.setattr(Proxied, "doubled", field)
    proxy = cast("Any", Proxied.start().proxy())
    assert field.call_count == 0  # making a proxy reads no property
    assert proxy.add(1, twice=True).get() == "mocked"
    add.assert_called_once_with(1, twice=True)
    assert proxy.actor_ref.ask(ProxyGetAttr(attr_path=("doubled",))) == "mocked too"


def test_exceptions_of_a_call_or_a_property_go_to_the_asker(proxy: Any) -> None:
    with pytest.raises(LookupError, match="failed"):
        proxy.fail().get()
    with pytest.raises(LookupError, match="failed to get"):
        proxy.actor_ref.ask(ProxyGetAttr(attr_path=("failing",)))
    assert proxy.count.get() == 0


def test_a_deferred_call_gives_no_future(proxy: Any) -> None:
    assert proxy.add.defer(5) is None
    assert proxy.count.get() == 5
    proxy.fail.defer()
    assert proxy.actor_ref.actor_stopped.wait(60)


def test_a_future_returned_by_a_method_is_handed_on_as_it_is(proxy: Any) -> None:
    assert proxy.a_future().get().get() == "inner"


def test_a_coroutine_in_a_field_is_handed_on_as_it_is(proxy: Any) -> None:
    async def nobody_awaits() -> None:
        pass

    coroutine = nobody_awaits()
    proxy.pending = coroutine
    assert proxy.pending.get() is coroutine
    coroutine.close()


def test_pykkas_messages_work_without_a_proxy(proxy: Any) -> None:
    ref = proxy.actor_ref
    assert ref.ask(ProxyCall(attr_path=("add",), args=(3,), kwargs={})) == 3
    assert ref.ask(ProxySetAttr(attr_path=("count",), value=9)) is None
    assert ref.ask(ProxyGetAttr(attr_path=("count",))) == 9
    ref.tell(ProxyCall(attr_path=("add_later",), args=(1,), kwargs={}))
    assert ref.ask(ProxyGetAttr(attr_path=("count",))) == 10


def test_proxies_of_the_same_attribute_of_one_actor_are_equal() -> None:
    one, other = Proxied.start(), Proxied.start()
    assert one.proxy() == one.proxy()
    assert hash(one.proxy()) == hash(one.proxy())
    assert one.proxy() != other.proxy()
    assert repr(one.proxy()) == f"<ActorProxy for {one}, attr_path=()>"


def test_a_proxy_of_a_dead_actor_cannot_be_made_and_an_old_one_fails(proxy: Any) -> None:
    ref = proxy.actor_ref
    proxy.stop()
    assert ref.actor_stopped.wait(60)
    with pytest.raises(pykka.ActorDeadError, match="not found"):
        ref.proxy()
    with pytest.raises(pykka.ActorDeadError):
        proxy.add(1).get()
    with pytest.raises(pykka.ActorDeadError):
        proxy.add.defer(1)
    with pytest.raises(pykka.ActorDeadError):
        proxy.count = 1


def test_an_actor_schedules_work_for_itself_behind_what_waits() -> None:
    class Counting(LoopActor):
        def __init__(self) -> None:
            super().__init__()
            self._in_future: Any = self.actor_ref.proxy()
            self.notes: list[str] = []

        def begin(self) -> None:
            self.notes.append("begin")
            self._in_future.end()

        def end(self) -> None:
            self.notes.append("end")

        def between(self) -> None:
            self.notes.append("between")

    proxy = cast("Any", Counting.start().proxy())
    both = proxy.begin().join(proxy.between())
    both.get()
    proxy.actor_ref.stop()
    assert proxy._actor.notes in (["begin", "between", "end"], ["begin", "end", "between"])


def test_a_public_proxy_to_itself_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    class Mirror(LoopActor):
        def __init__(self) -> None:
            super().__init__()
            self.mirror = self.actor_ref.proxy()

        def touch(self) -> str:
            return "touched"

    with caplog.at_level(logging.WARNING, "pykka"):
        proxy = cast("Any", Mirror.start().proxy())
        assert proxy.touch().get() == "touched"
    assert any("is a proxy to itself" in message for message in caplog.messages)


def test_pykkas_typing_helpers_describe_a_loop_actor() -> None:
    class ProxiedProxy(ActorMemberMixin, pykka.ActorProxy[Proxied]):
        field = proxy_field(Proxied.field)
        add = proxy_method(Proxied.add)

    proxy = cast("ProxiedProxy", Proxied.start().proxy())
    assert proxy.field.get() == "field"
    assert proxy.add(2).get() == 2
