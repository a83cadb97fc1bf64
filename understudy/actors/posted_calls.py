"""`PostedCalls`: what other hosts have posted for the agents of this one, and the answers to it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from typing import Any

import pykka

from understudy._base.json_values import shown, text_of
from understudy.actors.activation import Activation
from understudy.actors.agent_directory import Directory
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.call_bodies import OF_A_RUN, ONCE_AT_MOST, message_of, reply_value
from understudy.actors.messages import FromHost
from understudy.actors.replies import answer_when_durable
from understudy.actors.services import RuntimeServices
from understudy.errors import (
    Fenced,
    JournalFailed,
    RecordRefused,
    UnderstudyError,
)
from understudy.journal.shared import Hint, Posted, SharedStore, error_reply, to_reply
from understudy.loop_actors.future import Future, refuse

logger: logging.Logger = logging.getLogger(__name__)

PAGE = 100
"""Calls that are read at a time."""


class PostedCalls:
    """Has the agents of this runtime do what was posted for them. Lives on the runtime's loop.

    Args:
        services: of the runtime.
        directory: its agents.
        shared: the store, as hosts share it.

    """

    def __init__(
        self,
        services: RuntimeServices[AgentSlot, Activation],
        directory: Directory,
        shared: SharedStore,
    ) -> None:
        self._services = services
        self._directory = directory
        self._shared = shared
        self._reading = asyncio.Lock()
        self._again = False
        self._in_hand: set[int] = set()
        """The calls that are under way here."""
        self._replied: set[int] = set()
        """Those that were answered while calls were read: they may be among them."""
        self._followers: defaultdict[str, set[int]] = defaultdict(set)
        """By agent, the hosts that wait for the outcome of its run."""

    def collect(self) -> None:
        """Read what was posted, unless that is under way: then once more behind it."""
        if self._again:
            return
        self._again = True
        self._services.start_task(self._collect_all(), "reading what was posted")

    async def _collect_all(self) -> None:
        try:
            async with self._reading:
                self._again = False
                self._replied.clear()
                after = 0
                while rows := await self._shared.posted(after, None, PAGE):
                    for row in rows:
                        slot, message = await self._taken_up(row)
                        if message is not None:
                            slot.post(message)
                    after = rows[-1].id
        except JournalFailed as error:  # it is away: the next look tries again
            logger.warning("what other hosts have posted is not known: %s", text_of(error))

    async def claimed(self, slot: AgentSlot) -> None:
        """Put what was posted for an agent that is claimed now before what is asked for here."""
        async with self._reading:
            after, messages = 0, list[FromHost]()
            while rows := await self._shared.posted(after, slot.id, PAGE):
                for row in rows:
                    _, message = await self._taken_up(row)
                    if message is not None:
                        messages.append(message)
                after = rows[-1].id
            slot.inbox[:0] = messages

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

    # ------------------------------------------------------------------------- one call

    async def _taken_up(self, row: Posted) -> tuple[AgentSlot, FromHost | None]:
        """The message of a call that is to be done now; None if it is under way, or refused."""
        slot = self._directory.get(row.agent_id)._slot
        if row.id in self._in_hand or row.id in self._replied:
            return slot, None
        self._in_hand.add(row.id)
        once = row.kind in ONCE_AT_MOST
        if once and not await self._begins(row):
            return slot, None
        accepted: Future[Any] = Future(self._services.loop)
        done = accepted if row.kind not in OF_A_RUN else Future[Any](self._services.loop)

        def on_run(run_id: str) -> None:
            if row.kind == "run" and slot.activation is not None:
                answer_when_durable(slot, accepted, run_id)

        expects: str | None = None
        message: FromHost | None = None
        try:
            expects, posted = message_of(row.kind, row.body, done, on_run)
            message = FromHost(posted, accepted, expects)
        except Exception as error:  # its asker must not wait for ever
            refuse(accepted, error)
        self._services.start_task(self._answer(row, accepted, done), f"answering {row.kind}")
        return slot, message

    async def _begins(self, row: Posted) -> bool:
        """Whether a call that is done once at most begins now."""
        if not row.begun and await self._shared.begin_post(row.id, secrets.token_hex(8)):
            return True
        if row.begun:
            why = "its owner went away while it did this call: nobody knows what came of it"
            await self._reply(row, error_reply(Fenced(agent_id=row.agent_id, why=why)))
        self._in_hand.discard(row.id)
        return False

    async def _answer(self, row: Posted, accepted: Future[Any], done: Future[Any]) -> None:
        try:
            reply = await self._reply_to(row, accepted, done)
            if reply is not None:
                await self._reply(row, reply)
        finally:
            self._in_hand.discard(row.id)

    async def _reply_to(
        self, row: Posted, accepted: Future[Any], done: Future[Any]
    ) -> bytes | None:
        """The reply; None where the call stays posted, for the next owner or for this one."""
        try:
            value = await _first(accepted, done)
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


async def _first(accepted: Future[Any], done: Future[Any]) -> Any:
    """What comes first: that a call is recorded, or its answer."""
    if accepted is done:
        return await accepted
    tasks = [asyncio.ensure_future(_result(each)) for each in (accepted, done)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = next(task for task in tasks if task.done())
        return first.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _result(future: Future[Any]) -> Any:
    return await future
