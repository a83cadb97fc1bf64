"""`CallsElsewhere`: the calls that a host has posted to the owners of agents that run there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from dataclasses import replace
from typing import Any, Protocol

from pydantic_core import from_json

from understudy._base.json_values import text_of
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.call_bodies import body_of, moment_of_reply, value_of_reply
from understudy.actors.known_calls import latest_state, run_of_call
from understudy.actors.messages import (
    NO_MESSAGE,
    AgentMessage,
    Cancel,
    ChangePlans,
    Passivate,
    Pause,
    Retry,
    RunRequest,
    Send,
    Unpause,
    WaitOutcome,
)
from understudy.actors.ref_call import RefCall
from understudy.actors.replies import runtime_stopped
from understudy.actors.run_outcomes import Moment, has_outcome
from understudy.actors.shared_host import SharedHost
from understudy.errors import JournalFailed, OtherRun, error_from_dict
from understudy.journal.shared import Place, Post, PostState
from understudy.state.agent_state import AgentState
from understudy.state.plans import requested_pause

logger: logging.Logger = logging.getLogger(__name__)

POLL = 0.5
"""Seconds between two looks at the calls that this host has posted."""
PATIENCE = 1.0
"""Seconds that a living owner has for a call, before one of an agent at rest is taken back."""

AT_ONCE = 100
"""Calls that are posted at a time: their bodies are in memory together."""


class Office(Protocol):
    """Who has calls posted, and gives the answers to their callers."""

    @property
    def calls(self) -> Set[RefCall]:
        """Those whose callers wait."""

    def answer(self, call: RefCall, value: Any) -> None:
        """Give its caller the answer."""

    def refuse(self, call: RefCall, error: BaseException) -> None:
        """Give its caller the error."""

    def again(self, call: RefCall) -> None:
        """Have it done by the host that can do it now."""

    def take_back(self, slot: AgentSlot, *, is_free: bool) -> None:
        """Have what is posted to an agent done by the host that can do it now."""

    async def follow(self, call: RefCall, run_id: str, moment: Moment | None) -> None:
        """Answer by the outcome of a run, wherever it goes on; by the one of that moment."""

    async def of_other_run(self, call: RefCall, error: Exception) -> None:
        """The run that a repeated call was for is over, and others came after it."""


class CallsElsewhere:
    """The calls of one runtime that other hosts do. Lives on its loop.

    Args:
        host: the runtime, and the store that it shares.
        office: whose calls they are.

    """

    def __init__(self, host: SharedHost, office: Office) -> None:
        self._services = host.services
        self._shared = host.store
        self._office = office
        self._posted: dict[int, RefCall] = {}
        """By the ids of their rows."""
        self._by_agent: dict[str, dict[int, RefCall]] = {}
        """The same, by agent."""
        self._told: set[int] = set()
        """Of these the owner has said that there is a reply."""
        self._look_at_all = False
        self._look_now = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def post(self, slot: AgentSlot, place: Place, calls: list[RefCall]) -> None:
        """Have calls done by the host that owns their agent.

        Args:
            slot: of the agent.
            place: where it is.
            calls: in their order.

        """
        for first in range(0, len(calls), AT_ONCE):
            if not await self._post(slot, place, calls[first : first + AT_ONCE]):
                for call in calls[first + AT_ONCE :]:
                    self._office.again(call)
                return

    async def _post(self, slot: AgentSlot, place: Place, calls: list[RefCall]) -> bool:
        """Post calls; False if there was no owner to post to any more."""
        assert place.host is not None, "what has no owner is claimed"
        posts: list[Post] = []
        posted: list[RefCall] = []
        for call in calls:
            try:
                post = await self._post_of(call, place.host)
            except Exception as error:  # told to its caller, before anything is kept
                self._office.refuse(call, error)
                continue
            if post is None:
                self._office.answer(call, None)
            else:
                posts.append(post)
                posted.append(call)
        if not posts:
            return True
        ids = await self._shared.post(slot.id, place.incarnation, posts)
        if not ids:  # it has another owner by now
            for call in posted:
                self._office.again(call)
            return False
        if self._services.closing:
            # Their owner does them. It may be that no task looks for the replies any more
            # (test_a_call_on_its_way_to_another_host_is_told_at_once_that_its_runtime_stops).
            for call in posted:
                self._office.refuse(call, runtime_stopped(slot.id))
            return True
        by_id = self._by_agent.setdefault(slot.id, {})
        if not by_id:  # who has posted runs looks for their outcomes, one after the other
            self._services.looks.keep(slot.id)
        for id, call in zip(ids, posted, strict=True):
            call.posted_at, call.epoch = self._services.loop.time(), place.epoch
            call.incarnation = place.incarnation
            self._posted[id] = by_id[id] = call
        # Race: the owner may have replied by now, and its hint is spent. Or the agent has another
        # owner, whose claim did not see the call yet, nor was it told of it
        # (test_a_call_that_crosses_a_change_of_owner_is_told_to_the_new_one).
        self._told.update(ids)
        self._look_now.set()
        if self._looking is None:
            self._looking = self._services.start_task(self._look_again_and_again(), "post")
        return True

    def has_posted(self, agent_id: str) -> bool:
        """Whether a call for this agent is posted that has no reply yet. From any thread."""
        return agent_id in self._by_agent

    def _drop(self, id: int) -> RefCall:
        call = self._posted.pop(id)
        by_id = self._by_agent[call.slot.id]
        del by_id[id]
        if not by_id:
            del self._by_agent[call.slot.id]
            self._services.looks.let_go(call.slot.id)
        return call

    async def withdraw(self, agent_id: str, *, is_free: bool) -> list[RefCall]:
        """Take calls for an agent back, all at once, so that none stays before an earlier one.

        Args:
            agent_id: its id.
            is_free: as of `Office.take_back`.

        Returns:
            Those that had no reply.

        """
        by_id = self._by_agent.get(agent_id, {})
        ids = [id for id, call in by_id.items() if is_free or _can_be_taken(call)]
        begun = await self._shared.withdraw(ids) if ids else {}
        for id in ids:
            if id in self._posted and id not in begun:
                self.look(id)  # it has its reply
        calls = []
        for id in begun:
            if id in self._posted:
                call = self._drop(id)
                self._take_up(call, begun=begun[id])
                calls.append(call)
        return calls

    def _calls_before(self, call: RefCall) -> list[RefCall]:
        """Those here that were made before it and are under way, in their order."""
        before = [
            other
            for other in self._office.calls
            if other.slot is call.slot and other.number < call.number
        ]
        return sorted(before, key=lambda each: each.number)

    def _may_be_paused(self, state: AgentState | None, call: RefCall) -> bool:
        """Whether the next run of the agent is to be paused, by what is recorded or on its way."""
        if state is not None and requested_pause(state.plans) is not None:
            return True
        return any(isinstance(other.message, Pause) for other in self._calls_before(call))

    def _message_before(self, state: AgentState | None, call: RefCall) -> str | None:
        """The id of the message of the call before it by which the next run begins, if any does.

        That is the first of those under way whose message no run has taken yet: what comes behind
        it waits for its turn (test_a_cancel_behind_several_runs_is_for_the_first_of_them).
        """
        taken = {} if state is None else state.message_ids
        for other in self._calls_before(call):
            id = self._begins_by(other.message)
            if id is not None and taken.get(id) is None:
                return id
        return None

    def _begins_by(self, message: AgentMessage) -> str | None:
        """The id of the message by which a call may begin a run at once."""
        match message:
            case RunRequest():
                return message.message_id
            case Send(due=due):
                is_due = due is None or due <= self._services.clock.now()
                return message.message_id if is_due else None
            case ChangePlans(change=change):
                return change.message_id or None
        return None

    async def _post_of(self, call: RefCall, owner: str) -> Post | None:
        """Its row; None for a cancellation where there is nothing to cancel."""
        message = call.message
        if isinstance(message, RunRequest) and message.message_id is None:
            # So that the host that does it again knows it
            # (test_a_run_whose_owner_dies_between_record_and_reply_is_run_once).
            message = call.message = replace(message, message_id=self._services.new_id())
        if isinstance(message, Cancel | Pause | Unpause | Retry) and message.run_id is None:
            # It comes late where its owner goes away: it is for the run of now
            # (test_a_cancel_that_comes_late_does_not_cancel_the_next_run).
            is_named = isinstance(message, Cancel) and message.message_id is not None
            if call.run_id is None and not is_named:
                state = await latest_state(self._services.store, call.slot.id)
                run = run_of_call(state, message)
                call.run_id = None if run is None else run.run_id
                # That it rests, its status says; who has its outcome may be faster
                # (test_a_cancel_behind_a_run_that_withdraws_one_that_asks_just_now).
                rests = state is not None and has_outcome(state)
                if isinstance(message, Cancel) and (run is None or run.suspended_since or rests):
                    # It is for the run that a call before it begins, or for none
                    # (test_a_cancel_of_nothing_that_comes_late_does_not_cancel_the_next_run,
                    # test_a_cancel_behind_a_call_is_for_the_run_of_that_call). That call may
                    # withdraw a run at rest
                    # (test_a_cancel_behind_a_run_that_withdraws_another_is_for_that_run).
                    before = self._message_before(state, call)
                    if run is None and before is None:
                        if not self._may_be_paused(state, call):
                            return None
                        # Of that alone the owner is told
                        # (test_a_cancel_of_an_idle_agent_ends_the_pause_that_is_asked_of_it).
                        before = NO_MESSAGE
                    message = call.message = replace(message, message_id=before)
            message = replace(message, run_id=call.run_id)
        expects = None
        if call.expectation is not None and not call.expectation.is_met:
            expects = call.expectation.agent.name
        has_deps = call.slot.has_deps()
        kind, body = body_of(message, owner=owner, expects=expects, has_deps=has_deps)
        call.nonce = self._services.new_id()
        return Post(kind, body, call.nonce)

    def look(self, id: int | None = None) -> None:
        """Look at a call that this host has posted, or at all of them, at once."""
        if id is None:
            self._look_at_all = True
        else:
            self._told.add(id)
        self._look_now.set()

    async def _look_again_and_again(self) -> None:
        try:
            while self._posted:
                try:
                    async with asyncio.timeout(POLL):
                        await self._look_now.wait()
                except TimeoutError:
                    self._look_at_all = True
                self._look_now.clear()
                try:
                    await self._look()
                except JournalFailed as error:  # it is away: the next look tries again
                    logger.warning("what became of calls is not known: %s", text_of(error))
        finally:
            self._looking = None

    async def _look(self) -> None:
        # A reply tells which call it is for: thousands are not read again for each of them.
        ids = list(self._posted) if self._look_at_all else [*self._told & self._posted.keys()]
        self._look_at_all = False
        self._told.clear()
        states = await self._shared.post_states(ids) if ids else {}
        replied = [id for id, state in states.items() if state.reply is not None]
        untold: dict[str, int] = {}
        for id in ids:
            state, call = states.get(id), self._posted.get(id)
            if call is None:
                pass  # it is withdrawn
            elif state is None:  # the store is another one by now, or an older copy
                self._take_up(self._drop(id), begun=True)
                self._office.again(call)
            elif state.reply is not None:
                self._replied(self._drop(id), from_json(state.reply))
            elif self._is_untold(call, state):
                untold[call.slot.id] = id
        if replied:
            self._start(self._remove(replied))
        # Who is told of one call reads all that are posted to its agent: told of each, as often
        # (test_the_owner_of_an_agent_is_told_again_once_for_all_that_is_posted_to_it).
        for id in untold.values():
            await self._shared.retell(id)

    async def _remove(self, ids: list[int]) -> None:
        try:
            await self._shared.remove_posts(ids)
        except JournalFailed as error:  # a later sweep removes them
            logger.info("replies that were read are not removed yet: %s", text_of(error))

    def _is_untold(self, call: RefCall, state: PostState) -> bool:
        """Whether its owner may not have heard of a call.

        One whose owner is gone, or that any host can do by now, is taken back.
        """
        age = self._services.loop.time() - call.posted_at
        is_late = age > PATIENCE
        takes = state.is_takeable and not state.begun and is_late and _can_be_taken(call)
        if state.is_free or takes:
            self._office.take_back(call.slot, is_free=state.is_free)
            return False
        if not is_late and state.epoch == call.epoch:
            return False
        call.posted_at, call.epoch = self._services.loop.time(), state.epoch
        return True

    def _take_up(self, call: RefCall, *, begun: bool) -> None:
        """It is ours again. Whether it was done is known by its ids, or not at all."""
        call.was_handled = True if not call.is_once_at_most else begun
        call.in_doubt = True

    def _replied(self, call: RefCall, reply: dict[str, Any]) -> None:
        try:
            if "error" in reply:
                error = error_from_dict(reply["error"])
                if isinstance(error, OtherRun):
                    self._start(self._office.of_other_run(call, error))
                else:
                    self._office.refuse(call, error)
                return
            if call.expectation is not None:
                call.expectation.is_met = True
            run_id = reply.get("run")
            if run_id is not None:
                self._start(self._office.follow(call, run_id, moment_of_reply(reply)))
            else:
                self._office.answer(call, value_of_reply(reply))
        except Exception as error:
            self._office.refuse(call, error)

    def _start(self, work: Any) -> None:
        self._services.start_task(work, "calling")


def _can_be_taken(call: RefCall) -> bool:
    """Whether a call can be taken from a living owner that has not done it."""
    return not (call.is_once_at_most or isinstance(call.message, Passivate | WaitOutcome))
