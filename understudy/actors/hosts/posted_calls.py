"""`PostedCalls`: what other hosts have posted for the agents of this one, and the answers to it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

import pykka

from understudy._base.event_loops import call_on
from understudy._base.json_values import shown, text_of
from understudy.actors.agent.messages import FromHost
from understudy.actors.agent.replies import answer_when_durable
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.hosts.call_bodies import OF_A_RUN, ONCE_AT_MOST, message_of, reply_value
from understudy.actors.hosts.shared_host import SharedHost
from understudy.errors import (
    Fenced,
    JournalFailed,
    RecordRefused,
    UnderstudyError,
)
from understudy.journal.shared import Hint, Posted, Wanted, error_reply, to_reply
from understudy.loop_actors.future import Future, refuse

logger: logging.Logger = logging.getLogger(__name__)

PAGE = 100
"""Calls that are read at a time, and how many of one agent are in memory: of those that wait for
their turn, and of the others. The rest waits in the table. Where so many wait for their turn, what
does not (a cancellation) goes before those behind them."""


WAITING = frozenset({"run", "outcome"})
"""Kinds of calls that may be in hand for as long as other runs take."""
LONG = WAITING | {"notify", "compact", "stop", "delete"}
"""Those, and others that may take long."""


class PostedCalls:
    """Has the agents of this runtime do what was posted for them. Lives on the runtime's loop.

    Args:
        host: the runtime, and the store that it shares.

    """

    def __init__(self, host: SharedHost) -> None:
        self._services = host.services
        self._directory = host.directory
        self._shared = host.store
        self._reading = asyncio.Lock()
        self._all_wanted = False
        self._wanted: set[str] = set()
        """The agents whose calls are to be read."""
        self._reader: asyncio.Task[None] | None = None
        self._in_hand: defaultdict[str, dict[int, str]] = defaultdict(dict)
        """The calls that are under way here, with their kinds, by agent."""
        self._left_out: set[str] = set()
        """Agents for which more may be posted than is in hand."""
        self._replied: set[int] = set()
        """Those that were answered while calls were read: they may be among them."""
        self._followers: defaultdict[str, set[int]] = defaultdict(set)
        """By agent, the hosts that wait for the outcome of its run."""

    def collect(self, agent_id: str | None = None) -> None:
        """Read what was posted for an agent, or for all; once more if that is under way.

        Each agent is read for itself, some calls at a time: thousands for one keep no other waiting
        (test_calls_of_other_agents_do_not_wait_behind_a_thousand_of_one).
        """
        if agent_id is None:
            self._all_wanted = True
        else:
            self._wanted.add(agent_id)
        if self._reader is None and not self._services.closing:
            self._reader = self._services.start_task(self._read(), "reading what was posted")

    async def _read(self) -> None:
        try:
            while self._all_wanted or self._wanted:
                agent_ids = None if self._all_wanted else sorted(self._wanted)
                self._all_wanted = False
                self._wanted.clear()
                async with self._reading:
                    for slot, message in await self._taken(agent_ids):
                        slot.post(message)
        except JournalFailed as error:  # it is away: the next look tries again
            logger.warning("what other hosts have posted is not known: %s", text_of(error))
        finally:
            self._reader = None

    async def claimed(self, slot: AgentSlot) -> None:
        """Put what was posted for an agent that is claimed now before what is asked for here."""
        async with self._reading:
            new = [message for _, message in await self._taken([slot.id])]
            # Those in hand may wait in the inbox already: all are done in the order of their ids.
            posted = [message for message in slot.inbox if isinstance(message, FromHost)]
            others = [message for message in slot.inbox if not isinstance(message, FromHost)]
            slot.inbox[:] = [*sorted([*posted, *new], key=lambda each: each.number), *others]

    def answered(self, slot: AgentSlot) -> None:
        """The run of an agent has an outcome: tell the hosts that wait for it."""
        if slot.id in self._followers:
            for host_id in self._followers.pop(slot.id):
                self._services.start_task(self._tell(host_id, Hint("ended", 0, slot.id)), "telling")

    async def _tell(self, host_id: int, hint: Hint) -> None:
        try:
            await self._shared.tell(host_id, hint)
        except JournalFailed as error:  # it looks for itself
            logger.info("a host is not told: %s", text_of(error))

    # ------------------------------------------------------------------------- taking

    async def _taken(self, agent_ids: list[str] | None) -> list[tuple[AgentSlot, FromHost]]:
        """The messages of calls that are to be done now, those of each agent in their order."""
        by_kind = {id: Counter(kinds.values()) for id, kinds in self._in_hand.items()}
        busy = [id for id, each in by_kind.items() if _count(each.keys() - LONG, each) >= PAGE]
        full = [id for id, each in by_kind.items() if _count(WAITING, each) >= PAGE]
        if agent_ids is None:
            self._left_out.update(busy)
        else:
            self._left_out.update(id for id in agent_ids if id in busy)
            agent_ids = [id for id in agent_ids if id not in busy]
            if not agent_ids:
                return []
        in_hand = [id for kinds in self._in_hand.values() for id in kinds]
        self._replied.clear()
        rows = await self._shared.posted(Wanted(agent_ids, in_hand, busy, full, PAGE))
        self._left_out.update(full)
        if len(rows) == PAGE:
            self._read_more(agent_ids)
        taken = []
        for row in rows:
            slot, message = await self._taken_up(row)
            if message is not None:
                taken.append((slot, message))
        return taken

    def _read_more(self, agent_ids: list[str] | None) -> None:
        """There may be more: it is read behind what is asked for meanwhile."""
        if agent_ids is None:
            self._all_wanted = True
        else:
            self._wanted.update(agent_ids)

    # ------------------------------------------------------------------------- one call

    async def _taken_up(self, row: Posted) -> tuple[AgentSlot, FromHost | None]:
        """The message of a call that is to be done now; None if it is under way, or refused."""
        slot = self._directory.get(row.agent_id)
        if row.id in self._in_hand[row.agent_id] or row.id in self._replied:
            return slot, None
        self._in_hand[row.agent_id][row.id] = row.kind
        once = row.kind in ONCE_AT_MOST
        if once and not await self._begins(row):
            return slot, None
        accepted: Future[Any] = Future(self._services.loop)
        done = accepted if row.kind not in OF_A_RUN else Future[Any](self._services.loop)

        def on_run(run_id: str) -> None:
            if row.kind in ("run", "retry") and slot.activation is not None:
                answer_when_durable(slot, accepted, run_id)

        # What comes first is told: that it is recorded, or its answer.
        for each in {accepted, done}:
            settled = partial(self._settled, row, each, (accepted, done))
            each._when_settled(self, partial(call_on, self._services.loop, settled))
        try:
            expects, needs_deps, posted = message_of(row.kind, row.body, done, on_run)
        except Exception as error:  # its asker must not wait for ever
            refuse(accepted, error)
            return slot, None
        return slot, FromHost(posted, accepted, expects, row.id, needs_deps)

    async def _begins(self, row: Posted) -> bool:
        """Whether a call that is done once at most begins now."""
        if not row.begun and await self._shared.begin_post(row.id, secrets.token_hex(8)):
            return True
        if row.begun:
            why = "its owner went away while it did this call: nobody knows what came of it"
            await self._reply(row, error_reply(Fenced(agent_id=row.agent_id, why=why)))
        self._let_go(row)
        return False

    def _settled(self, row: Posted, first: Future[Any], both: tuple[Future[Any], ...]) -> None:
        for future in both:
            future._remove_waiter(self)
        reply = self._reply_to(row, first)
        if reply is None:
            # At once: the host that claims the agent next does it before those that came later.
            self._let_go(row)
        else:
            self._services.start_task(self._answer(row, reply), f"answering {row.kind}")

    async def _answer(self, row: Posted, reply: bytes) -> None:
        try:
            await self._reply(row, reply)
        finally:
            self._let_go(row)

    def _reply_to(self, row: Posted, settled: Future[Any]) -> bytes | None:
        """The reply; None where the call stays posted, for the next owner or for this one."""
        try:
            value = settled.get()
        except Exception as error:
            lost = isinstance(error, JournalFailed) and not isinstance(error, RecordRefused)
            if (lost or isinstance(error, pykka.ActorDeadError)) and row.kind not in ONCE_AT_MOST:
                return None
            if not isinstance(error, UnderstudyError):
                error = UnderstudyError(f"{type(error).__name__}: {shown(error)}")
            return error_reply(error)
        if row.kind in OF_A_RUN and isinstance(value, str):
            self._followers[row.agent_id].add(row.asker)
            return to_reply({"run": value})
        return to_reply(reply_value(value))

    async def _reply(self, row: Posted, reply: bytes) -> None:
        try:
            await self._shared.reply(row.id, reply)
            self._replied.add(row.id)
        except JournalFailed as error:  # it stays posted, and is done again by its ids
            logger.warning("a call of another host is not answered yet: %s", text_of(error))

    def _let_go(self, row: Posted) -> None:
        in_hand = self._in_hand[row.agent_id]
        in_hand.pop(row.id, None)
        if not in_hand:
            del self._in_hand[row.agent_id]
        if row.agent_id in self._left_out and len(in_hand) <= PAGE // 2:
            self._left_out.discard(row.agent_id)
            self.collect(row.agent_id)


def _count(kinds: Iterable[str], among: Counter[str]) -> int:
    return sum(among[kind] for kind in kinds)
