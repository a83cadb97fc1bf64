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
"""Seconds for which another host is believed that does not say it again."""
MOST = 200
"""Who looks at requests, of one host, as far as the others are told."""


class Look(NamedTuple):
    """Somebody who looks at a request."""

    agent_id: str
    request_id: str
    key: str
    """Tells persons apart, as `person_key`."""
    name: str
    """To be shown."""


class Presence:
    """Who looks at which request now. Thread-safe; it survives no process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._here: Counter[Look] = Counter()
        self._there: dict[int, tuple[float, frozenset[Look]]] = {}
        """By host: until when it is believed, and who looks there."""
        self._noted: list[tuple[str, str]] = []
        """Requests beside which something has happened that the other hosts were not told yet."""
        self._listeners: dict[object, Callable[[str, str], None]] = {}
        self.on_changed: Callable[[], None] | None = None
        """Called in any thread when other hosts are to be told something."""

    def look(self, agent_id: str, request_id: str, who: Caller) -> Callable[[], None]:
        """Somebody looks at a request.

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
        """Something has happened beside a request: have open pages look, here and elsewhere."""
        if self.on_changed is not None:
            with self._lock:
                self._noted.append((agent_id, request_id))
        self._changed(agent_id, request_id)

    def listen(self, hear: Callable[[str, str], None]) -> Callable[[], None]:
        """Call a function on the running loop, with agent and request, whenever something happens.

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
        """What other hosts are told, as JSON. What has happened is told once."""
        with self._lock:
            looking, noted = list(self._here)[:MOST], self._noted[:MOST]
            self._noted.clear()
        return {"looking": looking, "noted": list(dict.fromkeys(noted))}

    def heard(self, host_id: int, content: Any) -> None:
        """Another host has told its `content`."""
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
