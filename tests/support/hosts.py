"""Hosts that share a store: their runtimes, what others see of them, and hosts that hear less."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.agents import Held
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import Agent, Runtime, tool
from understudy.actors.hosts import incoming
from understudy.journal import Store
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres import sql
from understudy.journal.shared import Notified

__all__ = [
    "Point",
    "Stopping",
    "deaf_to",
    "host",
    "keep_stale_copies",
    "may_be_taken",
    "noted_hints",
    "opened",
    "pay",
    "posts",
    "recorded",
    "running",
    "stores",
    "unheard",
]

Point = Callable[..., Awaitable[Any]]


def pay(ran: list[str]) -> Any:
    @tool
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    return pay


def opened(store: Store | str, *agents: Agent, **options: Any) -> Runtime:
    """A runtime that ends at once, and does nothing by itself as time passes."""
    options.setdefault("stop_timeout", 0.001)
    options.setdefault("idle_timeout", None)
    options.setdefault("sweep", None)  # what is to be continued is asked for
    return Runtime(agents, store=store, **options)


def host(hosts: Hosts, name: str, **options: Any) -> DatabaseStore:
    return DatabaseStore(hosts.new(name, **options))


def stores(hosts: Hosts, *names: str) -> list[DatabaseStore]:
    return [host(hosts, name) for name in names]


# ------------------------------------------------------------------- what others see


def posts(hosts: Hosts) -> list[tuple[object, ...]]:
    """The calls that are posted, and what each was answered."""
    return hosts.sql("SELECT kind, reply FROM inbox")


def recorded(hosts: Hosts, kind: str) -> int:
    """How many records of this kind there are."""
    ((count,),) = hosts.sql("SELECT count(*) FROM records WHERE kind = %s", kind)
    assert isinstance(count, int)
    return count


def noted_hints(store: DatabaseStore) -> list[str]:
    """The hints that this host gets from others, as it gets them."""
    assert store.shared is not None
    heard: list[str] = []
    listen = store.shared.listen

    def noting(notified: Notified | None) -> None:
        assert notified is not None

        def note(text: str | None) -> None:
            notified(text)
            heard.append(str(text))

        listen(note)

    store.shared.listen = noting  # type: ignore[method-assign]
    return heard


async def running(runtime: Runtime, held: Held, id: str = "t") -> Any:
    """An agent in the middle of its first model call; the future of its run."""
    run = runtime.spawn("desk", id).run("go")
    await soon(held.entered.wait())
    async with asyncio.timeout(60):  # what other hosts see of it is what is recorded
        while "run_started" not in [each["kind"] for each in (await runtime.export(id))["records"]]:
            pass
    return run


async def may_be_taken(hosts: Hosts, id: str = "t") -> None:
    """Until a host that is asked may take the agent: its owner tells that after its run's end."""
    query = "SELECT takeable FROM agents WHERE agent_id = %s"
    await until(lambda: hosts.sql(query, id) == [(True,)])


# ------------------------------------------------------------------- hosts that hear less


class Stopping:
    """A host that stops at one point of its work for others, as one that is suspended."""

    def __init__(self, store: DatabaseStore, method: str, *, before: bool = True) -> None:
        assert store.shared is not None
        self.reached = asyncio.Event()
        self.released = asyncio.Event()
        self._before = before
        self._method: Point = getattr(store.shared, method)
        setattr(store.shared, method, self._stop)

    async def _stop(self, *args: Any, **options: Any) -> Any:
        done = None if self._before else await self._method(*args, **options)
        self.reached.set()
        await self.released.wait()
        return await self._method(*args, **options) if self._before else done


def deaf_to(store: DatabaseStore, kind: str) -> None:
    """Its host hears no hints of this kind."""
    assert store.shared is not None
    listen = store.shared.listen

    def listen_to_others(notified: Notified | None) -> None:
        assert notified is not None

        def hear(text: str | None) -> None:
            if text is None or not text.startswith(kind):
                notified(text)

        listen(hear)

    store.shared.listen = listen_to_others  # type: ignore[method-assign]


def unheard(statement: str) -> str:
    """The statement, which tells nobody."""
    silent = statement.replace("pg_notify(", "concat(").replace("%(told)s", "%(told)s::text")
    return silent.replace("channel, %s", "channel, %s::text")


def keep_stale_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host is not notified that another host has taken an agent, and does not look by itself."""
    monkeypatch.setattr(sql, "CLAIM", unheard(sql.CLAIM))
    monkeypatch.setattr(incoming, "BEAT", 1000.0)
