"""The rows of an agent's display: from the store, and live from the agent's subscription."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from understudy._base.pieces import ITEMS
from understudy.actors.agent.events import AgentEvent, Subscription
from understudy.actors.agent.stored_agents import unknown_agent
from understudy.actors.reads.recorded_events import RecordedEvents
from understudy.display import Display, DisplayUpdate, Row
from understudy.journal import StoreReads
from understudy.journal.parts import read_in_parts
from understudy.loop_actors.future import Future
from understudy.loop_actors.stream import PAUSE, Pause, Stream
from understudy.state.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A record of an agent as it is, as the event of a subscription that folds records."""

    record: Record
    path: tuple[str, ...]


def recorded(
    seq: int, record: Record, agent_id: str, path: tuple[str, ...]
) -> Iterator[AgentEvent]:
    """The view of a subscription that folds records: each record is its own event."""
    event: Any = Recorded(record=record, path=path)
    yield AgentEvent(agent_id=agent_id, seq=seq, event=event, at=record.at)


async def stored_display(
    store: StoreReads, id: str, after: int, limit: int | None
) -> DisplayUpdate:
    """The recorded rows of an agent that have changed after a number.

    Raises:
        UnknownAgent: if there is no agent of this id.

    """
    read = await read_in_parts(store, id, lambda agent: Display(agent.agent))
    if read is None:
        raise await unknown_agent(store, id)
    return read[1].update(after, limit)


class DisplaySubscription(Stream[DisplayUpdate]):
    """Updates of an agent's rows, to iterate with `for` in a thread or `async for` on a loop.

    If several changes happen while the reader is busy, they come as one update. The iteration ends
    when the runtime stops. Call `close()` to end it earlier.
    """

    def __init__(
        self, records: Subscription | RecordedEvents, after: int, agent: str | None
    ) -> None:
        self._records = records
        """The subscription to the agent's records, by the view `recorded`."""
        self._after = after
        self._display = Display(agent or "")
        self._told_first = False
        self._changed: dict[str, Row] = {}
        self._reset = False
        self._seq: int | None = None

    def close(self) -> None:
        """End the subscription. Earlier changes can still be read."""
        self._records.close()

    def _steps(self) -> Iterator[DisplayUpdate | Future[Any] | Pause]:
        steps, folded = self._records._steps(), 0
        while True:
            # Asked before the step: what is stored is one update with what has come meanwhile
            # (test_a_live_screen_has_what_the_store_has).
            was_reading = self._records.is_reading
            step = next(steps, None)
            if isinstance(step, AgentEvent):
                self._fold(step)
                folded += 1
                if not folded % ITEMS:
                    yield PAUSE
                continue
            if (step is None or not was_reading) and (update := self._update()) is not None:
                yield update
            if step is None:
                return
            yield step

    def _fold(self, event: AgentEvent) -> None:
        fact = cast("Any", event.event)
        if isinstance(fact, Recorded):
            assert event.seq is not None, "a record has a number"
            if not self._display.seq:
                self._display = Display(fact.path[0])
            update: DisplayUpdate | None = self._display.record(event.seq, fact.record)
            self._seq = event.seq
        else:
            update = self._display.event(fact)
        if update is not None:
            if update.reset:
                self._changed, self._reset = {}, True
            for row in update.rows:
                if self._told_first or row.seq is None:
                    self._changed[row.id] = row
                else:  # the first update has all that is recorded
                    self._changed.pop(row.id, None)

    def _update(self) -> DisplayUpdate | None:
        changed, self._changed = self._changed, {}
        reset, self._reset = self._reset, False
        seq, self._seq = self._seq, None
        if not self._told_first:
            self._told_first = True
            first = self._display.update(self._after)
            known = {row.id for row in first.rows}
            live = [row for row in changed.values() if row.seq is None and row.id not in known]
            shown = [row for row in live if row.state != "void"]
            return DisplayUpdate(rows=(*first.rows, *shown), seq=first.seq, reset=first.reset)
        if not changed and not reset:
            return None
        rows = sorted(changed.values(), key=lambda row: row.position)
        return DisplayUpdate(rows=tuple(rows), seq=seq, reset=reset)
