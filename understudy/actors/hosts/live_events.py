"""`LiveEvents`: what hosts of a store tell each other that is not stored.

- Events that have no record, from the host of a run to the hosts that follow its agent. While an
  agent of another host has no subscriber, nothing is sent.
- That the feed has new rows, to the hosts that follow it. Which rows, the table says.
- Who looks at requests, and what is written beside them, to all hosts: `Presence`.

Each hint may be lost. What an event tells is in the records that come later, but for what tools
emit. Who looks is said again, and open pages look by themselves every few seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from pydantic import Discriminator, TypeAdapter, ValidationError

from understudy._base.event_loops import call_soon_on
from understudy._base.json_values import jsonable
from understudy._base.lookout import Lookout
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.events import (
    MAX_DELTAS,
    Emitted,
    EventLog,
    EventsDropped,
    EventSink,
)
from understudy.actors.agent.services import Live
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.hosts.incoming import SendTexts, unless_away
from understudy.events import (
    ReplyStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallAnnounced,
    ToolEmitted,
)
from understudy.journal.chunks import Chunks, chunks_of
from understudy.journal.feed import FeedHint
from understudy.journal.shared import Hint, Sent
from understudy.journal.shared_store import SharedStore

logger: logging.Logger = logging.getLogger(__name__)

PAUSE = 0.1
"""The least seconds between two batches of events that a host sends."""
RENEWAL = 2.0
"""Seconds after which a host says again which agents it follows."""
PRESENCE_RENEWAL = 4.0
"""Seconds after which a host says again who looks at requests at this host."""
LIFE = 5.0
"""Seconds for which a host is told of an agent's events without saying again that it follows."""
FEED = ""
"""The agent id that stands for the feed: no agent's id is empty."""
MOST_HINTS = 50
"""The most hints of new feed rows that a host wants in a second, from all other hosts together."""
MOST_IDS = 200
"""The most agents that one hint names. If a hint is lost, the next hint follows them."""
MOST_SENT = 200_000
"""Characters of one event as JSON, and about as many of one hint. A larger event is dropped."""

_Sent = ReplyStarted | TextDelta | ThinkingDelta | ToolCallAnnounced | ToolEmitted
_SENT: TypeAdapter[_Sent] = TypeAdapter(Annotated[_Sent, Discriminator("kind")])


class _Relay(EventSink):
    """Collects the events of an agent for the hosts that follow it."""

    _view = staticmethod(lambda *_: iter(()))  # records come to the other hosts by the store

    def __init__(self, slot: AgentSlot, number: int, has_some: Callable[[], None]) -> None:
        self.slot = slot
        """The slot of the agent, kept so that an agent that is activated here has this slot."""
        self.number = number
        self.until: dict[int, float] = {}
        """The loop's time until which a host is told of new events, by host id."""
        self.is_over = False
        self.owned = 0, 0
        """The incarnation and the epoch in which the waiting events were emitted."""
        self.waiting: deque[tuple[int, int, _Sent]] = deque(maxlen=MAX_DELTAS)
        """The events to send, each with its number and the number of the record before it."""
        self._log: EventLog = slot.log
        self._has_some = has_some
        self._count = 0
        # Not of the newest record: text may wait for the commit of the records before it
        # (test_text_keeps_its_place_where_a_host_begins_to_follow_during_a_commit).
        self._seq = 0 if slot.activation is None else slot.activation.ledger.last_reported
        self._log.add(self)

    def remove(self) -> None:
        self._log.remove(self)

    def _put(self, emitted: Emitted) -> None:
        seq, events, behind = emitted
        if behind is not None:
            return  # the host of the event sends it itself
        if seq is not None:
            self._seq = max(self._seq, seq)
        for each in events:
            if isinstance(each.event, _Sent) and self.slot.activation is not None:
                owned = self.slot.activation.journal.owned
                now = owned.incarnation, owned.epoch
                if now != self.owned:  # another host had the agent since
                    self.waiting.clear()
                    self.owned = now
                self.waiting.append((self._count, self._seq, each.event))
                self._count += 1
                self._has_some()

    def _end(self) -> None:
        self.is_over = True

    def items(self, now: float) -> Iterator[list[Any]]:
        """Take the events that wait, and yield each as it is sent."""
        while self.waiting:
            number, behind, event = self.waiting.popleft()
            if isinstance(event, ToolEmitted):  # a tool emits what it likes
                event = replace(event, data=jsonable(event.data))
            yield [*self.owned, self.number, number, behind, _SENT.dump_python(event, mode="json")]


class _FeedRelay:
    """Tells the hosts that follow the feed when rows were added to it here."""

    def __init__(self, hint: FeedHint, has_some: Callable[[], None]) -> None:
        self.until: dict[int, float] = {}
        """The loop's time until which a host is told of new rows, by host id."""
        self.is_over = False
        self._hint = hint
        self._has_some = has_some
        self._has_rows = False
        self._pause = PAUSE
        self._next_at = -math.inf

    def follow(self, host_id: int, until: float, pause: float) -> None:
        """Note that a host follows the feed until a time, with a pause in seconds between hints."""
        self._hint.on_added = self._add
        if host_id not in self.until:
            # Race: this against rows that were added before this host heard of that one
            # (test_what_happens_before_a_host_hears_that_the_feed_is_followed_is_told_of).
            self._add()
        self.until[host_id] = until
        self._pause = pause

    def remove(self) -> None:
        self._hint.on_added = None
        self._has_rows = False

    def _add(self) -> None:
        self._has_rows = True
        self._has_some()

    def due_at(self) -> float:
        """The loop's time at which the hosts are to be told next; infinite for never."""
        return self._next_at if self._has_rows else math.inf

    def items(self, now: float) -> Iterator[list[Any]]:
        """One empty item if the hosts are to be told: the rows themselves are in the store."""
        if now >= self.due_at():
            self._has_rows = False
            self._next_at = now + self._pause
            yield []


class LiveEvents(Live):
    """The live events of a runtime that shares its store with hosts. Lives on the runtime's loop.

    Args:
        directory: of the agents of the runtime.
        shared: what hosts share of its store.
        send: sends texts to other hosts.

    """

    def __init__(self, directory: Directory, shared: SharedStore, send: SendTexts) -> None:
        services = self._services = directory.services
        self._directory = directory
        self._shared = shared
        self._send_to = send
        self._relays: dict[str, _Relay] = {}
        """The relay of an agent that other hosts follow, by agent id."""
        self._wanted: set[str] = set()
        """The ids of agents whose subscribers here asked for events since the last renewal."""
        self._followed: set[str] = set()
        """The ids of the agents that this host follows, as the other hosts were told."""
        self._renewed_at = -math.inf
        self._epochs: dict[str, int] = {}
        """The epoch of an agent that is followed here, as far as it is known, by agent id."""
        self._expected: dict[str, tuple[tuple[int, int, int], int]] = {}
        """The relay that an agent's events come from, and the next event's number, by agent id."""
        self._chunks = Chunks()
        self._numbers = itertools.count(1)
        self._lookout = Lookout(
            "what other hosts are to know",
            self._seconds,
            self._send_all,
            services.start_task,
        )
        self._feed_hint = services.store.feed_hint
        self._feed_hint.on_wait = partial(self.follow, FEED)
        self._feed_relay = _FeedRelay(self._feed_hint, self._lookout.hint)
        self._feed_pause = PAUSE
        """Seconds that this host wants between two feed hints of another host."""
        self._feed_hosts: set[int] = set()
        """The ids of the hosts that have told of new feed rows since the last renewal."""
        self._presence = services.presence
        self._presence.on_changed = self._presence_changed
        self._presence_due = math.inf
        """The loop's time at which the other hosts next hear who looks at requests here."""
        self._was_looking = False
        """Whether the other hosts believe that somebody looks here."""

    def close(self) -> None:
        """Send nothing any more."""
        self._presence.on_changed = None
        self._feed_hint.on_wait = None
        self._feed_relay.remove()
        self._lookout.close()

    def follow(self, agent_id: str, epoch: int | None = None) -> None:
        """Follow the agent of another host for a subscriber here. Call again at each look.

        Args:
            agent_id: its id.
            epoch: of its owner now.

        """
        if epoch is not None:
            self._epochs[agent_id] = max(epoch, self._epochs.get(agent_id, 0))
        if agent_id in self._wanted:
            return
        self._wanted.add(agent_id)
        if agent_id not in self._followed:
            self._lookout.hint()
        self._start()

    def notified(self, hint: Hint) -> None:
        """Handle the notification of another host, of a kind of `journal.chunks`."""
        content = self._chunks.add(hint)
        if content is None or self._services.closing:
            return
        if hint.kind == "beside":
            self._presence.heard(hint.number, content)
        elif hint.kind == "follow":
            self._relay_to(hint.number, content)
        elif hint.kind == "follow_feed":
            until = self._services.loop.time() + LIFE
            self._feed_relay.follow(hint.number, until, content)
            self._start()
        else:
            for agent_id, *sent in content:
                if agent_id == FEED:
                    self._feed_hosts.add(hint.number)
                    self._feed_hint.give()
                else:
                    self._take(hint.number, agent_id, *sent)

    def _start(self) -> None:
        if not self._services.closing:
            self._lookout.begin()

    # ------------------------------------------------------------- the host that follows

    def _take(self, host_id: int, agent_id: str, *sent: Any) -> None:
        incarnation, epoch, relay, number, behind, data = sent
        slot = self._directory.find(agent_id)
        if slot is None or not slot.log.count():
            return
        own = slot.activation.journal.owned.epoch if slot.activation is not None else 0
        # A host that has lost the agent may send on for a moment. Of the same epoch are only those
        # of one host, and this is not it.
        if epoch <= own or epoch < self._epochs.get(agent_id, 0):
            return
        self._epochs[agent_id] = epoch
        slot.log.note(incarnation)
        source = host_id, epoch, relay
        before, expected = self._expected.get(agent_id, (None, 0))
        self._expected[agent_id] = source, number + 1
        if source == before and number > expected:
            slot.log.emit(EventsDropped(count=number - expected), behind)
        with suppress(ValidationError):  # an event of a later version
            slot.log.emit(_SENT.validate_python(data), behind)

    def _follows(self, now: float) -> Iterable[tuple[int | None, str, Any]]:
        if not self._wanted and not self._followed:
            return
        new = self._wanted - self._followed
        if now - self._renewed_at >= RENEWAL:
            if self._feed_hint.is_awaited:
                self._wanted.add(FEED)
            # The more hosts have something to tell, the less often each of them: any hint leads to
            # the rows of all.
            pause = len(self._feed_hosts) / MOST_HINTS
            self._feed_pause = min(max(PAUSE, pause), RENEWAL)
            self._feed_hosts.clear()
            self._renewed_at, new = now, self._wanted
            self._followed, self._wanted = self._wanted, set()
            for known in (self._epochs, self._expected):
                for agent_id in known.keys() - self._followed:
                    del known[agent_id]
        else:
            self._followed |= new
        if FEED in new:
            yield None, "follow_feed", self._feed_pause
        ids = sorted(new - {FEED})
        for at in range(0, len(ids), MOST_IDS):
            yield None, "follow", ids[at : at + MOST_IDS]

    # ------------------------------------------------------------- the host of the run

    def _relay_to(self, host_id: int, agent_ids: list[str]) -> None:
        until = self._services.loop.time() + LIFE
        for agent_id in agent_ids:
            relay = self._relays.get(agent_id)
            if relay is None or relay.is_over:
                slot = self._directory.get(agent_id)
                relay = self._relays[agent_id] = _Relay(
                    slot, next(self._numbers), self._lookout.hint
                )
            relay.until[host_id] = until
        self._start()

    def _batches(self, now: float) -> Iterable[tuple[int | None, str, Any]]:
        hints: dict[int, list[list[Any]]] = {}
        """The contents of the hints for a host, by host id."""
        sizes: dict[int, int] = {}
        """The characters of the last hint's content for a host, by host id."""
        relays: list[tuple[str, _Relay | _FeedRelay]] = [*self._relays.items()]
        for agent_id, relay in [*relays, (FEED, self._feed_relay)]:
            relay.until = {host: until for host, until in relay.until.items() if until > now}
            if relay.is_over or not relay.until:
                relay.remove()
                self._relays.pop(agent_id, None)
                continue
            for item in relay.items(now):
                sent = [agent_id, *item]
                size = len(json.dumps(sent))
                if size > MOST_SENT:
                    continue  # its number will be missed
                for host_id in relay.until:
                    sizes[host_id] = sizes.get(host_id, 0) + size
                    if host_id not in hints or sizes[host_id] > MOST_SENT:
                        hints.setdefault(host_id, []).append([])
                        sizes[host_id] = size
                    hints[host_id][-1].append(sent)
        for host_id, contents in hints.items():
            for content in contents:
                yield host_id, "live", content

    # ------------------------------------------------------------------- who looks

    def _presence_changed(self) -> None:
        """Tell the other hosts soon who looks at requests. Called in any thread."""

        def tell_soon() -> None:
            self._presence_due = -math.inf
            self._lookout.hint()
            self._start()

        call_soon_on(self._services.loop, tell_soon)

    def _who_looks(self, now: float) -> Iterable[tuple[int | None, str, Any]]:
        if now < self._presence_due:
            return
        content = self._presence.content()
        looks = bool(content["looking"])
        if looks or self._was_looking or content["noted"]:
            yield None, "beside", content
        self._was_looking = looks
        self._presence_due = now + PRESENCE_RENEWAL if looks else math.inf

    # ------------------------------------------------------------------- sending

    def _seconds(self) -> float | None:
        """Seconds until the host has something to send by itself; None if nobody follows."""
        ends = [until for relay in self._relays.values() for until in relay.until.values()]
        ends += self._feed_relay.until.values()
        ends += [self._feed_relay.due_at(), self._presence_due]
        if self._wanted or self._followed:
            ends.append(self._renewed_at + RENEWAL)
        first = min(ends)
        return None if first == math.inf else max(first - self._services.loop.time(), 0.0)

    async def _send_all(self, is_hinted: bool) -> None:
        now, own_id = self._services.loop.time(), self._shared.host_id
        hints = [*self._follows(now), *self._batches(now), *self._who_looks(now)]
        sent = [
            Sent(host_id, text)
            for host_id, kind, content in hints
            for text in chunks_of(kind, own_id or 0, next(self._numbers), content)
        ]
        if own_id is not None and sent:
            # Who follows gets the records later.
            await unless_away(partial(self._send_to, sent), "other hosts are not told what goes on")
        await asyncio.sleep(PAUSE)
