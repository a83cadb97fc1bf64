"""`Background`: starts and stops agents that make background calls, and brings results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from understudy._base.context_codecs import Context
from understudy._base.json_values import text_of
from understudy._base.log_fields import log_extra
from understudy.actors.agent.activation import Activation
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.messages import (
    AgentCall,
    AgentMessage,
    Cancel,
    CancelMessage,
    Expectation,
    Send,
)
from understudy.actors.agent.services import RuntimeServices
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.agent.stored_agents import latest_state
from understudy.errors import (
    RecordRefused,
    SchemaVersionError,
    StoreDamaged,
    UnderstudyError,
    UnknownAgent,
)
from understudy.journal.lists import AskQuery, key_of
from understudy.loop_actors.future import Future
from understudy.models.messages import user_message
from understudy.run.background import OWNER_DELETED, BackgroundCalls
from understudy.run.run import AttemptEnded
from understudy.state.plans import BackgroundCall, result_id
from understudy.state.records import MessageQueued
from understudy.stopping import StopReason, StopSignal

logger: logging.Logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds between two attempts to bring a result to an owner that cannot be reached."""
LONGEST_END = 30.0
"""Seconds after which a deletion does not wait any longer for the end of a call."""
_PAGE = 100

_TOO_LARGE = "[{code}] The background call is over, and its result is too large: {why}"


class Background(BackgroundCalls):
    """The background calls of one runtime. Used on the runtime's loop.

    Args:
        directory: of its agents.
        services: of the runtime.

    """

    def __init__(
        self, directory: Directory, services: RuntimeServices[AgentSlot, Activation]
    ) -> None:
        self._directory = directory
        self._services = services

    async def free_id(self, agent_id: str) -> str:
        free, number = agent_id, 1
        while await self._services.store.find_agent(free) is not None:
            number += 1
            free = f"{agent_id}.{number}"
        return free

    async def start(
        self,
        definition: str,
        call: BackgroundCall,
        *,
        values: Mapping[str, Any],
        deps: Any,
        context: Context,
    ) -> None:
        if self._services.deps_for is not None:
            deps = None  # it makes them anew for each attempt
        slot, _ = self._directory.spawn(definition, call.agent_id, deps=deps, values=values or None)
        about = f"{call.tool_name} for {call.owner}"
        queued = MessageQueued(
            message_id=result_id(call.code),
            message=user_message(about, at=self._services.clock.now()),
            context=dict(context),
            makes=call,
        )
        end = self._end_of_attempt(call.owner)
        await self._ask(slot, Send(queued), end, Expectation(definition))

    async def bring(self, agent_id: str, owner: str, code: str, text: str) -> None:
        pause, end = FIRST_PAUSE, self._end_of_attempt(agent_id)
        while True:
            queued = MessageQueued(
                message_id=result_id(code),
                message=user_message(text, at=self._services.clock.now()),
                steer=True,
            )
            try:
                await self._ask(self._directory.get(owner), Send(queued), end)
            except UnknownAgent:
                logger.info("%r is gone: it gets no result", owner, extra=log_extra(agent_id))
                return
            except RecordRefused as refused:
                text = _TOO_LARGE.format(code=code, why=text_of(refused))
            except UnderstudyError as error:
                # Its host, or its definition, is away. The call is done: only its result waits, as
                # a run that goes on.
                logger.warning(
                    "the result of %r does not reach %r: %s",
                    agent_id,
                    owner,
                    text_of(error),
                    extra=log_extra(agent_id),
                )
                await _pause(pause, end)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return

    async def cancel(self, call: BackgroundCall, signal: StopSignal) -> str:
        end = self._end_of_attempt(call.owner)
        return await self._stop(call.agent_id, call.code, signal, end)

    async def end_left(self, calls: Mapping[str, str]) -> None:
        signal = StopSignal(StopReason.USER_REQUESTED, "its owner is deleted", {}, OWNER_DELETED)

        async def end(agent_id: str, code: str) -> None:
            try:
                async with asyncio.timeout(LONGEST_END):
                    await self._stop(agent_id, code, signal, asyncio.Event())
            except Exception as error:
                logger.warning(
                    "the background call of a deleted agent is not cancelled, cancel %r: %s",
                    agent_id,
                    "it goes on" if isinstance(error, TimeoutError) else text_of(error),
                    extra=log_extra(agent_id),
                )

        await asyncio.gather(*(end(*call) for call in calls.items()))

    async def statuses(self, calls: Sequence[BackgroundCall]) -> Mapping[str, str]:
        found = await self._services.store.find_agents([call.agent_id for call in calls])
        return {stored.agent_id: stored.agent_status for stored in found}

    async def in_doubt(
        self, definition: str, owner: str, tool_name: str, arguments: Mapping[str, Any]
    ) -> str | None:
        query, after = AskQuery(tool_name, definition, kind="doubt"), None
        while True:
            page = await self._services.store.list_asks(query, after, _PAGE)
            for ask in page:
                if ask.agent_id.rpartition("~")[0] != owner:
                    continue
                try:
                    doubt = ask.doubt()
                except (SchemaVersionError, StoreDamaged):
                    return ask.agent_id  # it may be equal
                if doubt.arguments == arguments:
                    return ask.agent_id
            if len(page) < _PAGE:
                return None
            after = key_of(page[-1], query.order)

    # ------------------------------------------------------------------- asking

    async def _stop(self, agent_id: str, code: str, signal: StopSignal, end: asyncio.Event) -> str:
        """Stop the only run of an agent, or its message. Returns why the agent brings no result."""
        slot = self._directory.get(agent_id)
        message_id = result_id(code) if code else await self._queued(agent_id)
        try:
            # A freeze may hold it back: no run is open then, and the message would begin it later.
            if message_id and await self._ask(slot, CancelMessage(message_id), end):
                return "did not run: it was cancelled"
            await self._ask(slot, Cancel(signal), end)
        except UnknownAgent:  # it was deleted, or what was to start it was cut off
            return "has no agent any more: nobody knows what it did"
        return ""

    async def _queued(self, agent_id: str) -> str:
        """The id of the message by which the run of an agent is to begin; empty if it has begun."""
        state = await latest_state(self._services.store, agent_id)
        queue = () if state is None else state.queue.values()
        return next((queued.message_id for queued in queue if queued.makes is not None), "")

    def _end_of_attempt(self, agent_id: str) -> asyncio.Event:
        """The event by which this host gives up the agent in whose run this is called.

        Raises:
            AttemptEnded: if it has done so.

        """
        slot = self._directory.find(agent_id)
        if slot is None or slot.activation is None:
            raise AttemptEnded
        return slot.activation.end_of_attempt()

    async def _ask(
        self,
        slot: AgentSlot,
        message: AgentMessage,
        end: asyncio.Event,
        expected: Expectation | None = None,
    ) -> Any:
        call = AgentCall(message, Future[Any](self._services.loop), expected)
        slot.ask(call)
        answered = asyncio.ensure_future(call.future)
        ended = asyncio.ensure_future(end.wait())
        try:
            # Race: the runtime may close, and no agent of it take a message any more. It waits for
            # this run, which is to end between two steps.
            await asyncio.wait([answered, ended], return_when=asyncio.FIRST_COMPLETED)
            if not answered.done():
                raise AttemptEnded
            return answered.result()
        finally:
            answered.cancel()
            ended.cancel()


async def _pause(seconds: float, end: asyncio.Event) -> None:
    """Wait for some seconds, unless this host gives the agent up.

    Raises:
        AttemptEnded: if it does.

    """
    try:
        await asyncio.wait_for(end.wait(), seconds)
    except TimeoutError:
        return
    raise AttemptEnded
