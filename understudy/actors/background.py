"""`Background`: starts the agents that make background calls, and brings their results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from understudy._base.context_codecs import Context
from understudy._base.json_values import text_of
from understudy._base.log_fields import log_extra
from understudy.actors.agent.activation import Activation
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.messages import AgentCall, Expectation, Send
from understudy.actors.agent.services import RuntimeServices
from understudy.actors.agent.slot import AgentSlot
from understudy.errors import RecordRefused, UnderstudyError, UnknownAgent
from understudy.loop_actors.future import Future
from understudy.models.messages import user_message
from understudy.run.background import BackgroundCalls
from understudy.run.run import AttemptEnded
from understudy.state.plans import BackgroundCall, result_id
from understudy.state.records import MessageQueued

logger: logging.Logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
"""Seconds between two attempts to bring a result to an owner that cannot be reached."""

_TOO_LARGE = "[{code}] The background call is over, and its result is too large: {why}"


class Background(BackgroundCalls):
    """The background calls of one runtime. On its loop.

    Args:
        directory: of its agents.
        services: of the runtime.

    """

    def __init__(
        self, directory: Directory, services: RuntimeServices[AgentSlot, Activation]
    ) -> None:
        self._directory = directory
        self._services = services

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
        await self._send(slot, queued, Expectation(definition))

    async def bring(
        self,
        agent_id: str,
        owner: str,
        code: str,
        text: str,
        *,
        is_to_end: Callable[[], bool] | None,
    ) -> None:
        pause = FIRST_PAUSE
        while True:
            queued = MessageQueued(
                message_id=result_id(code),
                message=user_message(text, at=self._services.clock.now()),
                steer=True,
            )
            try:
                await self._send(self._directory.get(owner), queued, None, is_to_end)
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
                await _wait(pause, is_to_end)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return

    async def _send(
        self,
        slot: AgentSlot,
        queued: MessageQueued,
        expected: Expectation | None,
        is_to_end: Callable[[], bool] | None = None,
    ) -> None:
        call = AgentCall(Send(queued), Future[Any](self._services.loop), expected)
        slot.ask(call)
        sent = asyncio.ensure_future(_answer(call.future))
        try:
            # Race: the runtime may close, and no agent of it take a message any more. It waits for
            # this run, which is to end between two steps.
            while not (await asyncio.wait([sent], timeout=FIRST_PAUSE))[0]:
                if is_to_end is not None and is_to_end():
                    raise AttemptEnded
            sent.result()
        finally:
            sent.cancel()


async def _answer(future: Future[Any]) -> None:
    await future


async def _wait(seconds: float, is_to_end: Callable[[], bool] | None) -> None:
    """Wait for some time, unless this host gives the agent up.

    Raises:
        AttemptEnded: if it does.

    """
    for _ in range(round(seconds / FIRST_PAUSE)):
        if is_to_end is not None and is_to_end():
            raise AttemptEnded
        await asyncio.sleep(FIRST_PAUSE)
