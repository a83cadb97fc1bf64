"""`Incoming`: what other hosts have posted for the agents of this one, and the answers to it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pykka

from understudy._base.clock import jittered
from understudy._base.event_loops import call_on
from understudy._base.json_values import text_of
from understudy._base.lookout import Lookout
from understudy.actors.agent.deletion import delete_stored
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.messages import AgentCall, CallNotes, RunRequest
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.replies import answer_when_durable
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.hosts.wire import call_of, message_of, refusal_of, reply_to
from understudy.actors.verbs import ROWS, Repeat, Verb
from understudy.errors import Fenced, JournalFailed, RecordRefused, UnderstudyError, UsageError
from understudy.journal.shared import Hint, Posted, Sent, Wanted, to_reply
from understudy.journal.shared_store import SharedStore
from understudy.loop_actors.future import Future, refuse

logger: logging.Logger = logging.getLogger(__name__)

SendTexts = Callable[[list[Sent]], Coroutine[Any, Any, None]]
"""A function that sends texts to other hosts."""
PAGE = 100
"""How many posted calls are read at a time, and how many of one agent are in memory. The rest waits
in the table."""
BEAT = 2.5
"""Seconds between two looks at what other hosts have posted."""
NOBODY_KNOWS = "its owner went away while it did this call: nobody knows what came of it"


async def unless_away(work: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
    """Run `work`. If the store is away, log `what` is not done; a later look makes up for it.

    It gets a function: a task that is cancelled before it begins leaves no coroutine behind.
    """
    try:
        await work()
    except JournalFailed as error:
        logger.info("%s: %s", what, text_of(error))


class Incoming:
    """Has the agents of this runtime do what was posted for them. Lives on the runtime's loop.

    Args:
        directory: of the agents of the runtime.
        shared: what hosts share of its store.
        tell: tells a host something.

    """

    def __init__(
        self,
        directory: Directory,
        shared: SharedStore,
        tell: Callable[[int, Hint], Coroutine[Any, Any, None]],
    ) -> None:
        self._services = directory.services
        self._directory = directory
        self._shared = shared
        self._reading = asyncio.Lock()
        self._all_wanted = False
        self._wanted: set[str] = set()
        """The ids of the agents whose posted calls are to be read."""
        self._tell = tell
        self._lookout = Lookout(
            "what other hosts have posted",
            lambda: jittered(BEAT),
            self._look,
            directory.services.start_task,
        )
        self._in_hand: defaultdict[str, dict[int, Verb]] = defaultdict(dict)
        """The verbs of the calls that are under way here, by agent id and by row id."""
        self._replied: set[int] = set()
        """The ids of rows that were answered during a read, and may be among the read rows."""
        self._followers: defaultdict[str, set[int]] = defaultdict(set)
        """The ids of the hosts that wait for the outcome of a run, by agent id."""

    def open(self) -> None:
        """Begin to look for what other hosts have posted."""
        self._lookout.begin()
        self.collect()

    def close(self) -> None:
        """Take no posted calls any more. They stay posted, for the next owner."""
        self._lookout.close()

    def collect(self, agent_id: str | None = None) -> None:
        """Have the posted calls of an agent, or of all, read; once more if a read is under way.

        Each agent is read for itself, some calls at a time: thousands for one keep no other waiting
        (test_calls_of_other_agents_do_not_wait_behind_a_thousand_of_one).
        """
        if agent_id is None:
            self._all_wanted = True
        else:
            self._wanted.add(agent_id)
        self._lookout.hint()

    async def _look(self, is_hinted: bool) -> None:
        """Read the posted calls. Without a hint, also look for what a lost hint was about."""
        agent_ids = sorted(self._wanted) if is_hinted and not self._all_wanted else None
        self._all_wanted = False
        self._wanted.clear()
        async with self._reading:
            for slot, call in await self._taken(agent_ids):
                slot.put(call)
        if not is_hinted:
            await self.look_for_taken(awaited=True)

    async def look_for_taken(self, *, awaited: bool = False) -> None:
        """Drop the copies of agents that other hosts have taken, or only of `awaited` agents."""
        active = {
            slot.id: slot
            for slot in self._directory.slots()
            if slot.activation is not None and (slot.waits is not None or not awaited)
        }
        for row in await self._services.store.find_agents(active) if active else ():
            active[row.agent_id].drop_if_older(row.epoch)

    async def claimed(self, slot: AgentSlot) -> None:
        """Put the calls posted for an agent that is claimed now before the calls from here."""
        async with self._reading:
            new = [call for _, call in await self._taken([slot.id])]
            # Those in hand may wait in the inbox already: all are done in the order of their ids.
            slot.inbox[:] = sorted([*new, *slot.inbox], key=lambda call: call.number)

    def answered(self, slot: AgentSlot) -> None:
        """Tell the hosts that wait for a run of the agent that a run has an outcome."""
        for host_id in self._followers.get(slot.id, ()):  # a host that is not told looks for itself
            tell = partial(self._tell, host_id, Hint("ended", 0, slot.id))
            self._services.start_task(unless_away(tell, "a host is not told"), "telling")
        # The run that a host waits for may be in the queue still
        # (test_a_host_that_waits_for_a_queued_run_is_told_of_the_end_of_that_run).
        if not slot.state.queue:
            self._followers.pop(slot.id, None)

    # ------------------------------------------------------------------------- taking

    async def _taken(self, agent_ids: list[str] | None) -> list[tuple[AgentSlot, AgentCall]]:
        """The posted calls to be done now, the calls of each agent in their order."""
        busy = [
            id
            for id, verbs in self._in_hand.items()
            if sum(not verb.is_long for verb in verbs.values()) >= PAGE
        ]
        if agent_ids is not None:
            agent_ids = [id for id in agent_ids if id not in busy]
            if not agent_ids:
                return []
        in_hand = [id for verbs in self._in_hand.values() for id in verbs]
        self._replied.clear()
        rows = await self._shared.posted(Wanted(agent_ids, in_hand, busy, PAGE))
        if len(rows) == PAGE:  # there may be more: it is read behind what is asked for meanwhile
            for id in agent_ids or (None,):
                self.collect(id)
        taken = [await self._taken_up(row) for row in rows]
        return [(slot, call) for slot, call in taken if call is not None]

    # ------------------------------------------------------------------------- one call

    async def _taken_up(self, row: Posted) -> tuple[AgentSlot, AgentCall | None]:
        """The call of a row that is to be done now; None if it is under way, or refused."""
        slot = self._directory.get(row.agent_id)
        if row.id in self._in_hand[row.agent_id] or row.id in self._replied:
            return slot, None
        verb = ROWS.get(row.kind)
        if verb is None:
            what = f"a call {row.kind!r} is not known to the version of this library that is there"
            await self._reply(row, refusal_of(UsageError(what)))
            return slot, None
        self._in_hand[row.agent_id][row.id] = verb
        if verb.repeat is Repeat.NEVER and not await self._begins(row):
            return slot, None
        posted = _PostedCall(slot, row, verb)
        # What comes first is told: that it is recorded, or its answer.
        for each in {posted.accepted, posted.done}:
            settled = partial(self._settled, row, each, (posted.accepted, posted.done))
            each._when_settled(self, partial(call_on, self._services.loop, settled))
        try:
            return slot, posted.call()
        except Exception as error:  # its asker must not wait for ever
            refuse(posted.accepted, error)
            return slot, None

    async def _begins(self, row: Posted) -> bool:
        """Whether a posted call that is done once at most begins now."""
        if not row.begun and await self._shared.begin_post(row.id, secrets.token_hex(8)):
            return True
        if row.begun:
            await self._reply(row, refusal_of(Fenced(agent_id=row.agent_id, why=NOBODY_KNOWS)))
        else:
            self._let_go(row)
        return False

    def _settled(self, row: Posted, first: Future[Any], both: tuple[Future[Any], ...]) -> None:
        for future in both:
            future._remove_waiter(self)
        try:
            value = first.get()
        except Exception as error:
            is_away = isinstance(error, JournalFailed | pykka.ActorDeadError)
            is_lost = is_away and not isinstance(error, RecordRefused)
            if is_lost and ROWS[row.kind].repeat is not Repeat.NEVER:
                # It stays posted, for the next owner or for this one. At once: the host that claims
                # the agent next does it before those that came later.
                self._let_go(row)
            elif row.kind == "delete" and isinstance(error, UnderstudyError) and not is_away:
                work = self._delete_all_the_same(row)
                self._services.start_task(work, f"deleting {row.agent_id}")
            else:
                self._reply_soon(row, refusal_of(error))
            return
        if ROWS[row.kind].of_run and isinstance(value, str | dict):  # its run, or its message
            self._followers[row.agent_id].add(row.asker)
            self._reply_soon(row, to_reply({"run": value} if isinstance(value, str) else value))
        else:
            self._reply_soon(row, reply_to(row.kind, value))

    async def _delete_all_the_same(self, row: Posted) -> None:
        """Delete an agent that could not be activated, as if its deletion was asked for here.

        Its asker would take "there is no such agent" for a deletion that another host has made
        (test_a_deletion_from_another_host_does_not_wait_for_a_start_hook_that_hangs).
        """
        asked: Any = message_of(row.kind, row.body)[0]
        slot = self._directory.get(row.agent_id)
        try:
            gone = await delete_stored(self._services, row.agent_id, asked.by)
            slot.forget()
            self._directory.drop_unless_needed(slot)
            reply = reply_to(row.kind, await gone.end_calls(self._services))
        except JournalFailed:
            self._let_go(row)
        except Exception as error:
            await self._reply(row, refusal_of(error))
        else:
            await self._reply(row, reply)

    def _reply_soon(self, row: Posted, reply: bytes) -> None:
        self._services.start_task(self._reply(row, reply), f"answering {row.kind}")

    async def _reply(self, row: Posted, reply: bytes) -> None:
        try:
            await self._shared.reply(row.id, reply)
            self._replied.add(row.id)
        except JournalFailed as error:  # it stays posted, and is done again by its ids
            logger.warning("a call of another host is not answered yet: %s", text_of(error))
        finally:
            self._let_go(row)

    def _let_go(self, row: Posted) -> None:
        in_hand = self._in_hand[row.agent_id]
        in_hand.pop(row.id, None)
        if not in_hand:
            del self._in_hand[row.agent_id]
        if len(in_hand) == PAGE // 2:  # more may be posted than was in hand
            self.collect(row.agent_id)


class _PostedCall(CallNotes):
    """A call that another host has posted, while the agent does it."""

    def __init__(self, slot: AgentSlot, row: Posted, verb: Verb) -> None:
        self._slot = slot
        self._row = row
        self._verb = verb
        self._message: Any = None
        self.accepted: Future[Any] = Future(slot.services.loop)
        """The future that resolves, once the request is recorded, to what the posting host is
        told."""
        self.done: Future[Any] = Future(slot.services.loop) if verb.of_run else self.accepted
        """The future that gets the result of the call."""

    def call(self) -> AgentCall:
        """The call as the agent gets it.

        Raises:
            Exception: if the row cannot be read.

        """
        row = self._row
        call = call_of(row.kind, row.body, self.done, self, row.id)
        self._message = call.message
        return call

    def on_run(
        self, run_id: str, retries: str | None = None, message_id: str | None = None
    ) -> None:
        # Of a run that is only released its caller is told when that is recorded.
        is_begun = isinstance(self._message, RunRequest) or retries is not None
        if is_begun and self._verb.of_run and self._slot.activation is not None:
            answer_when_durable(self._slot, self.accepted, run_id)

    def on_queued(self) -> None:
        answer_when_durable(self._slot, self.accepted, {"message": self._message.message_id})

    def on_handled(self) -> None:
        """Tell the posting host for which run its caller waits, once that is durable.

        Of a `run` that has not begun it is told when the message is recorded, or the run begins.
        """
        slot, run = self._slot, self._slot.state.run
        if run is None or not self._verb.of_run or slot.phase is Phase.BEGINNING:
            return
        if any(each.future is self.done for each in slot.waiting(run.run_id)):
            answer_when_durable(slot, self.accepted, run.run_id)
