"""What we use of Pykka, asyncio and threading that they do not promise: it must still be there."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from typing import Any

import pykka
import pytest
from pykka._envelope import Envelope
from pykka.messages import ProxyGetAttr, _ActorStop

from understudy.actors import Future, LoopActor, LoopActorRef, LoopActorRegistry
from understudy.loop_actors.mailbox import Mailbox
from understudy.loop_actors.monitor import Lifetime


class Plain(pykka.ThreadingActor):
    def _start_actor_loop(self) -> None:
        """It does not run: its parts are looked at."""


def test_start_makes_registers_and_starts_the_loop_through_the_extension_points() -> None:
    source = inspect.getsource(pykka.Actor.start)
    steps = ["cls(*args, **kwargs)", "ActorRegistry.register(", "._start_actor_loop()"]
    positions = [source.index(step) for step in steps]
    assert positions == sorted(positions)
    for name in ("_create_actor_inbox", "_create_future"):
        assert isinstance(inspect.getattr_static(pykka.Actor, name), staticmethod)
    assert pykka.Actor.__abstractmethods__ == {
        "_create_actor_inbox",
        "_create_future",
        "_start_actor_loop",
    }


def test_init_makes_no_other_attributes_than_ours_does() -> None:
    """`LoopActor.__init__` replaces it."""
    theirs = vars(Plain())
    assert set(theirs) == {"actor_urn", "actor_inbox", "actor_stopped", "_actor_ref"}

    class Ours(LoopActor):
        pass

    assert set(vars(Ours())) == set(theirs)
    assert type(theirs["actor_stopped"]) is threading.Event
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", theirs["actor_urn"])


def test_a_ref_takes_what_it_needs_from_the_actor_and_holds_it_weakly() -> None:
    actor = Plain()
    assert set(vars(actor.actor_ref)) == {
        "_actor_weakref",
        "actor_class",
        "actor_urn",
        "actor_inbox",
        "actor_stopped",
    }
    assert actor.actor_ref._actor_weakref() is actor


def test_a_ref_has_no_public_method_that_ours_does_not_know() -> None:
    theirs = {name for name in vars(pykka.ActorRef) if not name.startswith("_")}
    assert theirs == {"is_alive", "tell", "ask", "stop", "proxy"}
    assert theirs - {"is_alive", "proxy"} <= set(vars(LoopActorRef))


def test_messages_travel_in_envelopes() -> None:
    envelope = Envelope("message")
    assert (envelope.message, envelope.reply_to) == ("message", None)
    assert Envelope("message", reply_to=Future()).reply_to is not None


def test_handle_receive_returns_what_the_handler_returns_and_does_the_proxy_messages() -> None:
    class Returning(Plain):
        field = "field"

        def on_receive(self, message: Any) -> Any:
            return ("handled", message)

    actor = Returning()
    assert actor._handle_receive("m") == ("handled", "m")
    assert actor._handle_receive(ProxyGetAttr(attr_path=("field",))) == "field"


def test_no_loop_actor_goes_to_pykkas_registry_as_it_starts_fails_and_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The parts of Pykka's actor that do are replaced, or called by Pykka's own loop alone."""
    calls: list[str] = []
    for name in ("register", "unregister", "stop_all"):
        monkeypatch.setattr(pykka.ActorRegistry, name, lambda *_, name=name: calls.append(name))

    class Failing(LoopActor):
        def on_receive(self, message: Any) -> None:
            raise message

        def on_stop(self) -> None:
            raise ValueError("on_stop")

    for error in (ValueError("v"), SystemExit(1)):
        ref = Failing.start()
        ref.tell(error)
        assert ref.actor_stopped.wait(60)
        assert ref.stop() is False
    assert Failing.start().stop() is True
    assert calls == []


def test_a_stop_request_is_the_private_message_of_its_own_type() -> None:
    actor = Plain()
    actor.stop()
    assert type(actor.actor_inbox.get().message) is _ActorStop


def test_an_inbox_is_used_by_put_get_and_empty_alone() -> None:
    from pykka._actor import ActorInbox

    names = {name for name in vars(ActorInbox) if not name.startswith("_")}
    assert names == {"put", "get", "empty"}
    assert all(callable(getattr(Mailbox, name)) for name in names)


def test_our_registry_has_the_methods_of_pykkas_with_their_parameters() -> None:
    def methods(registry: type) -> dict[str, list[tuple[str, Any, Any]]]:
        return {
            name: [
                (parameter.name, parameter.kind, parameter.default)
                for parameter in inspect.signature(getattr(registry, name)).parameters.values()
            ]
            for name, member in vars(registry).items()
            if isinstance(member, classmethod) and not name.startswith("_")
        }

    assert methods(LoopActorRegistry) == methods(pykka.ActorRegistry)
    assert len(methods(LoopActorRegistry)) == 8


def test_a_future_has_no_public_method_that_ours_does_not_have_itself() -> None:
    theirs = {name for name in vars(pykka.Future) if not name.startswith("_")}
    assert theirs == {
        *("filter", "get", "join", "map", "reduce"),
        *("set", "set_exception", "set_get_hook"),
    }
    assert theirs | {"__await__", "__iter__"} <= set(vars(Future))
    assert set(vars(pykka.Future())) == {"_get_hook", "_get_hook_result"}


def test_pykkas_own_future_is_asked_without_waiting_by_a_timeout_of_zero() -> None:
    future: pykka.ThreadingFuture[int] = pykka.ThreadingFuture()
    with pytest.raises(pykka.Timeout):
        future.get(timeout=0)


def test_an_event_has_no_public_method_that_a_lifetime_does_not_have_itself() -> None:
    theirs = {name for name in vars(threading.Event) if not name.startswith("_")} - {"isSet"}
    assert theirs == {"is_set", "set", "clear", "wait"} <= set(vars(Lifetime))
    lifetime = Lifetime()
    lifetime.set()
    assert lifetime.wait() is True
    lifetime.clear()
    assert lifetime.wait(0) is False


def test_asyncio_tells_the_running_loop_or_none() -> None:
    assert asyncio._get_running_loop() is None

    async def main() -> bool:
        return asyncio._get_running_loop() is asyncio.get_running_loop()

    assert asyncio.run(main())


def test_a_loop_that_shuts_down_closes_the_generators_that_began_on_it() -> None:
    """How actors learn that their loop is about to end."""
    closed: list[bool] = []

    async def guard() -> Any:
        try:
            yield
        finally:
            closed.append(True)

    generator = guard()

    async def main() -> None:
        with pytest.raises(StopIteration):
            generator.__anext__().send(None)

    asyncio.run(main())
    assert closed == [True]
