"""`Presence`: who looks at which request now, and who is told when something is written beside it.

It is in memory alone: of the pages that this process serves, and of what other hosts of the store
say of theirs.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any, NamedTuple

from understudy.approvals import Caller
from understudy.state.request_notes import person_key

LIFE = 12.0
"""Seconds for which looks at another host are believed, unless the host says them again."""
MOST = 200
"""The most looks, and the most news beside requests, that the other hosts are told at once."""


class Look(NamedTuple):
    """Somebody who looks at a request."""

    agent_id: str
    request_id: str
    key: str
    """The key that tells the person apart from others, as `person_key` makes it."""
    name: str
    """The person's name, as other people see it."""


class Presence:
    """The people who look at requests now. Thread-safe, and kept in memory alone."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._here: Counter[Look] = Counter()
        self._there: dict[int, tuple[float, frozenset[Look]]] = {}
        """The looks at other hosts, with the monotonic second until which they are believed, by
        host id."""
        self._noted: list[tuple[str, str]] = []
        """The agent and request ids of news beside requests that other hosts were not told yet."""
        self._listeners: dict[object, Callable[[str, str], None]] = {}
        self.on_changed: Callable[[], None] | None = None
        """The function to call, in any thread, when other hosts are to be told something."""

    def look(self, agent_id: str, request_id: str, who: Caller) -> Callable[[], None]:
        """Note that somebody looks at a request.

        Returns:
            What ends that. It is called once.

        """
        look = Look(agent_id, request_id, person_key(who.login or who.name), who.shown)
        self._count(look, 1)
        return lambda: self._count(look, -1)

    def looking(self, agent_id: str, request_id: str, *, but: Caller | None = None) -> list[str]:
        """The names of those who look at a request now, each once, in order.

        Args:
            agent_id: of the agent.
            request_id: of its request.
            but: who is left out, such as who asks.

        """
        own = None if but is None else person_key(but.login or but.name)
        now = time.monotonic()
        with self._lock:
            looks = [*self._here]
            for until, there in self._there.values():
                looks += there if until > now else ()
        about = agent_id, request_id
        return sorted({each.name for each in looks if each[:2] == about and each.key != own})

    def tell(self, agent_id: str, request_id: str) -> None:
        """Have open pages, here and elsewhere, look at a request: something happened beside it."""
        if self.on_changed is not None:
            with self._lock:
                self._noted.append((agent_id, request_id))
        self._changed(agent_id, request_id)

    def listen(self, hear: Callable[[str, str], None]) -> Callable[[], None]:
        """Call a function on the running loop, with agent and request id, when something happens.

        Returns:
            What ends that.

        """
        loop, key = asyncio.get_running_loop(), object()

        def tell(agent_id: str, request_id: str) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(hear, agent_id, request_id)

        with self._lock:
            self._listeners[key] = tell
        return lambda: self._forget(key)

    # ------------------------------------------------------------------------ other hosts

    def content(self) -> dict[str, Any]:
        """The looks and the news that other hosts are told, as JSON. News is told once."""
        with self._lock:
            looking, noted = list(self._here)[:MOST], self._noted[:MOST]
            self._noted.clear()
        return {"looking": looking, "noted": list(dict.fromkeys(noted))}

    def heard(self, host_id: int, content: Any) -> None:
        """Take in the `content` of another host."""
        looks = frozenset(Look(*each) for each in content["looking"])
        now = time.monotonic()
        with self._lock:
            _, before = self._there.pop(host_id, (now, frozenset[Look]()))
            self._there = {id: told for id, told in self._there.items() if told[0] > now}
            if looks:
                self._there[host_id] = now + LIFE, looks
        changed = {(each.agent_id, each.request_id) for each in before ^ looks}
        for agent_id, request_id in changed | {(each[0], each[1]) for each in content["noted"]}:
            self._wake(agent_id, request_id)

    # ------------------------------------------------------------------------ inside

    def _count(self, look: Look, by: int) -> None:
        with self._lock:
            self._here[look] += by
            if not self._here[look]:
                del self._here[look]
        self._changed(look.agent_id, look.request_id)

    def _changed(self, agent_id: str, request_id: str) -> None:
        self._wake(agent_id, request_id)
        if self.on_changed is not None:
            self.on_changed()

    def _wake(self, agent_id: str, request_id: str) -> None:
        with self._lock:
            listeners = list(self._listeners.values())
        for tell in listeners:
            tell(agent_id, request_id)

    def _forget(self, key: object) -> None:
        with self._lock:
            self._listeners.pop(key, None)
