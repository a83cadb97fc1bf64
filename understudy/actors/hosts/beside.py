"""`Beside`: tells the other hosts of a store who looks at requests here, and what is written there.

All of it are hints, and none is stored. One that is lost is made up for: who looks is said again,
and open pages look by themselves every few seconds.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from typing import Any

from understudy._base.lookout import Lookout
from understudy.actors.agent.services import RuntimeServices
from understudy.actors.hosts.incoming import SendTexts, unless_away
from understudy.actors.presence import Presence
from understudy.journal.chunks import BESIDE, Chunks, chunks_of
from understudy.journal.shared import Hint, Sent
from understudy.journal.shared_store import SharedStore

RENEWAL = 4.0
"""Seconds after which a host says again who looks there."""
PAUSE = 0.1
"""Seconds between two hints of a host, at least."""


class Beside:
    """What one runtime tells the other hosts, and hears of them. Lives on its loop.

    Args:
        services: of the runtime.
        shared: what hosts share of its store.
        presence: who looks.
        send: sends texts to other hosts.

    """

    def __init__(
        self,
        services: RuntimeServices[Any, Any],
        shared: SharedStore,
        presence: Presence,
        send: SendTexts,
    ) -> None:
        self._services = services
        self._shared = shared
        self._presence = presence
        self._send_to = send
        self._chunks = Chunks()
        self._numbers = itertools.count(1)
        self._was_told = False
        """Whether the others believe that somebody looks here."""
        self._lookout = Lookout(
            "who looks at requests", self._seconds, self._send, services.start_task
        )
        presence.on_changed = self._changed

    def close(self) -> None:
        """Tell nothing any more."""
        self._presence.on_changed = None
        self._lookout.close()

    def heard(self, hint: Hint) -> None:
        """Handle the notification of another host."""
        content = self._chunks.add(hint)
        if content is not None:
            self._presence.heard(hint.number, content)

    def _changed(self) -> None:
        loop = self._services.loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if not self._services.closing:
            self._lookout.hint()
            self._lookout.begin()

    def _seconds(self) -> float | None:
        return RENEWAL if self._presence.is_told or self._was_told else None

    async def _send(self, is_hinted: bool) -> None:
        own_id, content = self._shared.host_id, self._presence.content()
        looks = bool(content["looking"])
        if own_id is not None and (looks or self._was_told or content["noted"]):
            texts = chunks_of(BESIDE, own_id, next(self._numbers), content)
            sent = [Sent(None, text) for text in texts]
            what = "other hosts are not told who looks at requests"
            await unless_away(partial(self._send_to, sent), what)
        self._was_told = looks
        await asyncio.sleep(PAUSE)
