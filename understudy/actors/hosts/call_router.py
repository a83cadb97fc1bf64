"""`CallRouter`: has a call done by whichever host can do it, where hosts share a store.

An agent of which nothing goes on is claimed here, or taken from its owner. One that runs stays
where it is: its owner finds the call in the store. All that hosts tell each other are hints.
The host that waits looks for itself, every now and then.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import threading
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_core import from_json

from understudy._base.clock import jittered
from understudy._base.event_loops import call_on
from understudy._base.json_values import text_of
from understudy._base.log_fields import log_extra
from understudy.actors.agent.activation import RunAbandoned
from understudy.actors.agent.messages import (
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
from understudy.actors.agent.replies import runtime_stopped
from understudy.actors.agent.run_outcomes import Moment, has_outcome
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.hosts.call_bodies import body_of, moment_of_reply, value_of_reply
from understudy.actors.hosts.known_calls import Found, KnownCalls, latest_state, run_of_call
from understudy.actors.hosts.posted_calls import PostedCalls
from understudy.actors.hosts.recovery import continue_one
from understudy.actors.hosts.ref_call import RefCall
from understudy.actors.hosts.shared_host import SharedHost
from understudy.errors import (
    Fenced,
    JournalFailed,
    OtherRun,
    OwnedElsewhere,
    UnfitHost,
    UnknownAgent,
    UnknownMessage,
    error_from_dict,
)
from understudy.journal.shared import Hint, Place, Post, PostState
from understudy.loop_actors.future import Future, refuse
from understudy.state.agent_state import AgentState
from understudy.state.plans import requested_pause

logger: logging.Logger = logging.getLogger(__name__)

POLL = 0.5
"""Seconds between two looks at the calls that this host has posted."""
PATIENCE = 1.0
"""Seconds that a living owner has for a call, before one of an agent at rest is taken back."""
BEAT = 2.5
"""Seconds between two looks at what other hosts have posted."""
MOST_PAUSE = 0.04
"""Seconds that a host waits at most, by chance, before it takes an agent back."""
MOST_TAKES = 3
"""How often a call takes its agent, and loses it again, before it goes to the owner."""
AT_ONCE = 100
"""Calls that are posted at a time: their bodies are in memory together."""


class CallsElsewhere:
    """The calls of one runtime that other hosts do. Lives on its loop.

    Args:
        host: the runtime, and the store that it shares.
        router: has calls posted, and gives the answers to their callers.

    """

    def __init__(self, host: SharedHost, router: CallRouter) -> None:
        self._services = host.services
        self._shared = host.store
        self._router = router
        self._posted: dict[int, RefCall] = {}
        """By the ids of their rows."""
        self._by_agent: dict[str, dict[int, RefCall]] = {}
        """The same, by agent."""
        self._notified: set[int] = set()
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
                    self._router.again(call)
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
                self._router.refuse(call, error)
                continue
            if post is None:
                self._router.answer(call, None)
            else:
                posts.append(post)
                posted.append(call)
        if not posts:
            return True
        ids = await self._shared.post(slot.id, place.incarnation, posts)
        if not ids:  # it has another owner by now
            for call in posted:
                self._router.again(call)
            return False
        if self._services.closing:
            # Their owner does them. It may be that no task looks for the replies any more
            # (test_a_call_on_its_way_to_another_host_is_told_at_once_that_its_runtime_stops).
            for call in posted:
                self._router.refuse(call, runtime_stopped(slot.id))
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
        self._notified.update(ids)
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
            is_free: as of `CallRouter.take_back`.

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
            for other in self._router.calls
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
        if isinstance(message, Cancel | Pause | Unpause | Retry) and message.run_id is None:
            # It comes late where its owner goes away: it is for the run of now
            # (test_a_cancel_that_comes_late_does_not_cancel_the_next_run).
            is_named = isinstance(message, Cancel) and message.message_id is not None
            if call.run_id is None and not is_named:
                state = await latest_state(self._services.store, call.slot.id)
                run = run_of_call(state, message)
                if run is not None and run.has_failed:
                    assert isinstance(message, Retry), "nothing else is for a run that is over"
                    call.message = replace(message, run_id=run.run_id)
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
            self._notified.add(id)
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
        ids = list(self._posted) if self._look_at_all else [*self._notified & self._posted.keys()]
        self._look_at_all = False
        self._notified.clear()
        states = await self._shared.post_states(ids) if ids else {}
        replied = [id for id, state in states.items() if state.reply is not None]
        untold: dict[str, int] = {}
        for id in ids:
            state, call = states.get(id), self._posted.get(id)
            if call is None:
                pass  # it is withdrawn
            elif state is None:  # the store is another one by now, or an older copy
                self._take_up(self._drop(id), begun=True)
                self._router.again(call)
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
            self._router.take_back(call.slot, is_free=state.is_free)
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
                    self._start(self._router.of_other_run(call, error))
                else:
                    self._router.refuse(call, error)
                return
            if call.expectation is not None:
                call.expectation.is_met = True
            run_id = reply.get("run")
            if run_id is not None:
                self._start(self._router.follow(call, run_id, moment_of_reply(reply)))
            else:
                self._router.answer(call, value_of_reply(reply))
        except Exception as error:
            self._router.refuse(call, error)

    def _start(self, work: Any) -> None:
        self._services.start_task(work, "calling")


def _can_be_taken(call: RefCall) -> bool:
    """Whether a call can be taken from a living owner that has not done it."""
    return not (call.is_once_at_most or isinstance(call.message, Passivate | WaitOutcome))


class CallRouter:
    """The calls of one runtime. Lives on its loop, but for `call`.

    Args:
        host: the runtime, and the store that it shares.

    """

    def __init__(self, host: SharedHost) -> None:
        self._services = host.services
        self._directory = host.directory
        self._shared = host.store
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        """Guards what follows, and which calls are put here in which order."""
        self._lines: dict[str, list[RefCall]] = {}
        """By agent, the calls that are to be routed, or come behind such, while that goes on."""
        self._to_withdraw: dict[str, bool] = {}
        """The agents to which nothing is to stay posted, and whether they have no owner."""
        self.calls: set[RefCall] = set()
        """Those whose callers wait."""
        self._elsewhere = CallsElsewhere(host, self)
        self._beating: asyncio.Task[None] | None = None
        self._posted_here = PostedCalls(host)

    def open(self) -> None:
        """Begin to look for what other hosts have posted."""
        self._beating = self._services.start_task(self._heartbeat(), "looking for posted calls")
        self._posted_here.collect()

    def close(self) -> None:
        """Look for nothing any more. Calls that are posted stay so: their owners do them."""
        if self._beating is not None:
            self._beating.cancel()

    def abandon(self) -> None:
        """The runtime has stopped: give all callers what is known by now, or an error."""
        for call in list(self.calls):
            self.refuse(call, runtime_stopped(call.slot.id))

    async def claimed(self, slot: AgentSlot) -> None:
        """As of `PostedCalls`."""
        await self._posted_here.claimed(slot)

    def answered(self, slot: AgentSlot) -> None:
        """As of `PostedCalls`."""
        self._posted_here.answered(slot)

    def answer(self, call: RefCall, value: Any) -> None:
        """Give its caller the answer."""
        self.calls.discard(call)
        call.outer._answer(value)

    def refuse(self, call: RefCall, error: BaseException) -> None:
        """Give its caller the error."""
        self.calls.discard(call)
        refuse(call.outer, error)

    # ------------------------------------------------------------------- from any thread

    def call(self, slot: AgentSlot, message: AgentMessage) -> None:
        """Have it done. Its future gets the answer."""
        call = RefCall(slot, message)
        is_elsewhere = isinstance(call.message, Passivate) and not slot.phase.is_in_memory
        # Race: this in any thread against the loop, on which a call that was made before is refused
        # here, or routed: whatever comes behind it must not go before it
        # (test_a_call_does_not_go_before_one_that_is_on_its_way).
        with self._lock:
            call.number = next(self._numbers)
            self.calls.add(call)
            line = self._lines.get(slot.id)
            if line is not None:
                line.append(call)
                return
            is_elsewhere |= self._elsewhere.has_posted(slot.id)
            if is_elsewhere:
                self._lines[slot.id] = [call]
            else:
                self._put_here([call])
        if is_elsewhere:
            call_on(self._services.loop, self._begin, slot)
        else:
            self._services.check_inbox(slot)

    def call_elsewhere(self, slot: AgentSlot, message: AgentMessage) -> None:
        """The same, of what was found to be another host's. On the loop."""
        call = RefCall(slot, message)
        call.number = next(self._numbers)
        self.calls.add(call)
        self.again(call)

    def _put_here(self, calls: list[RefCall]) -> None:
        for call in calls:
            here = call.here = Future(self._services.loop)
            settled = partial(call_on, self._services.loop, self._settled, call, here)
            here._when_settled(self, settled)
            call.slot.inbox.append(call.for_here(here))

    # ------------------------------------------------------------------- on the loop

    def _start(self, work: Any) -> None:
        self._services.start_task(work, "calling")

    def _settled(self, call: RefCall, here: Future[Any]) -> None:
        """Answer as the agent does in memory here, unless it is not ours to answer.

        Called by the task that settles it: before that one goes on, the call waits in the line
        again, and all that are made from then on wait behind it.
        """
        try:
            value = here.get()
        except RunAbandoned as error:
            self.refuse(call, error)
        except (OwnedElsewhere, Fenced) as error:
            if error.agent_id not in (call.slot.id, "*"):
                self.refuse(call, error)
                return
            if isinstance(error, Fenced):
                call.fences += 1
            elif error.must_post:
                call.not_here = error
            # Who waits for a run gets whatever error a later call meets, which the agent's next
            # owner refuses (test_a_run_that_goes_on_elsewhere_is_not_begun_again_by_a_later_call).
            call.in_doubt = isinstance(error, Fenced) or call.run_id is not None
            self.again(call)
        except UnfitHost as error:
            call.not_here, call.in_doubt = error, call.run_id is not None
            self.again(call)
        except OtherRun as error:
            self._start(self.of_other_run(call, error))
        except Exception as error:
            self.refuse(call, error)
        else:
            self.answer(call, value)

    async def of_other_run(self, call: RefCall, error: Exception) -> None:
        """The run that a repeated call was for is over, and others came after it."""
        meant = getattr(call.message, "run_id", None)
        if meant is not None or call.run_id is None:
            self.refuse(call, error)  # the caller has named it
        elif isinstance(call.message, Cancel | Retry):
            await self.follow(call, call.run_id)
        else:
            self.answer(call, None)

    def again(self, call: RefCall) -> None:
        """Have it done by the host that can do it now."""
        call.here = None
        self._join(call.slot, [call])

    def take_back(self, slot: AgentSlot, *, is_free: bool) -> None:
        """Have what this host has posted to an agent done by the host that can do it now.

        Args:
            slot: of the agent.
            is_free: whether no living host owns it: then also what its owner may have begun.

        """
        self._to_withdraw[slot.id] = is_free or self._to_withdraw.get(slot.id, False)
        self._join(slot, [])

    def _join(self, slot: AgentSlot, calls: list[RefCall]) -> None:
        with self._lock:
            line = self._lines.get(slot.id)
            if line is not None:
                line += calls
                return
            self._lines[slot.id] = calls
        self._begin(slot)

    def _begin(self, slot: AgentSlot) -> None:
        if self._services.closing:
            self._end_line(slot)
        else:
            self._start(self._work_off(slot))

    def _end_line(self, slot: AgentSlot) -> None:
        """The runtime stops: tell that at once, for its end waits for the steps in progress.

        One of them may wait for such a call
        (test_a_call_that_another_host_is_to_do_is_told_at_once_that_its_runtime_stops).
        """
        with self._lock:
            calls = self._lines.pop(slot.id, [])
        for call in calls:
            self.refuse(call, runtime_stopped(slot.id))

    async def _work_off(self, slot: AgentSlot) -> None:
        """Find out where the agent is, and have its calls done there, in their order."""
        line = self._lines[slot.id]
        while self._lines.get(slot.id) is line:
            if self._services.closing:
                self._end_line(slot)
                return
            await self._pause(line)
            with self._lock:
                if not line and slot.id not in self._to_withdraw:
                    del self._lines[slot.id]
                    return
            calls: list[RefCall] = []
            try:
                await self._route(slot, line, calls)
            except Exception as error:  # its callers must not wait for ever
                if not isinstance(error, JournalFailed):
                    logger.exception(
                        "calls of agent %r cannot be done", slot.id, extra=log_extra(slot.id)
                    )
                with self._lock:
                    calls += line
                    self._lines.pop(slot.id, None)
                for call in calls:
                    self.refuse(call, error)

    async def _pause(self, line: list[RefCall]) -> None:
        """Those that were asked together were refused together; two hosts must not take in turn."""
        fences = max((call.fences for call in line), default=0)
        await asyncio.sleep(random.uniform(0, MOST_PAUSE) * fences if fences else 0)  # noqa: S311

    async def _route(self, slot: AgentSlot, line: list[RefCall], calls: list[RefCall]) -> None:
        """Have the calls of a line done, here or elsewhere; `calls` are those under way."""
        if slot.id in self._to_withdraw:
            is_free = self._to_withdraw.pop(slot.id)
            line += await self._elsewhere.withdraw(slot.id, is_free=is_free)
        known = KnownCalls(self._services.store, slot.id)
        done = set[RefCall]()
        for call in [call for call in line if call.in_doubt]:
            call.in_doubt = False
            if await self._is_done(call, known):
                done.add(call)
        if done:
            with self._lock:
                line[:] = [call for call in line if call not in done]
        place = await self._shared.place(slot.id)
        incarnation = None if place is None else place.incarnation
        with self._lock:
            if slot.id in self._to_withdraw or any(call.in_doubt for call in line):
                return  # they have come meanwhile, and may go before all others
            for call in [call for call in line if call.began_before(incarnation)]:
                line.remove(call)
                self.refuse(call, UnknownAgent(agent_id=slot.id))
            calls += sorted(line, key=lambda call: call.number)
            line.clear()
            for call in calls:
                call.was_elsewhere = True
            if place is None or place.host is None:
                # It has no owner that could be asked.
                calls[:] = [call for call in calls if not self._is_refused(call)]
            if place is None:
                is_here = True
            else:
                # What is posted has its turn there: what comes later is posted behind it.
                is_ours = place.host is None or place.host_id == self._shared.host_id
                is_here = not self._elsewhere.has_posted(slot.id) and (
                    is_ours or self._may_take(place, calls)
                )
            if is_here:
                here = [
                    call for call in calls if not isinstance(call.message, Passivate | WaitOutcome)
                ]
                self._put_here(here)
            if is_here or not calls:
                del self._lines[slot.id]
        if place is None or is_here:
            for call in calls:
                if isinstance(call.message, Passivate):
                    # No host has it in memory by now. The owner to which it was posted had
                    # (test_an_agent_that_is_stopped_at_another_host_was_in_memory).
                    self.answer(call, call.was_handled)
                elif isinstance(call.message, WaitOutcome):
                    # No host knows more of it than the store.
                    unknown = call.message.message_id or ""
                    self.refuse(call, UnknownMessage(agent_id=slot.id, message_id=unknown))
            if slot.inbox:
                self._services.check_inbox(slot)
        elif place.host is None:
            self._to_withdraw[slot.id] = True
            self._join(slot, calls)
        elif not place.listens:
            elsewhere = OwnedElsewhere(agent_id=slot.id, host=place.host)
            for call in calls:
                if not self._is_refused(call):
                    self.refuse(call, elsewhere)
        elif calls:
            await self._elsewhere.post(slot, place, calls)

    def _is_refused(self, call: RefCall) -> bool:
        """Refuse a call for which no living host fits; the owner of any other may be gone."""
        if isinstance(call.not_here, UnfitHost):
            self.refuse(call, call.not_here)
            return True
        call.not_here = None
        return False

    def _may_take(self, place: Place, calls: list[RefCall]) -> bool:
        if not (place.takeable and place.listens and self._directory.may_run(place.agent)):
            return False
        if not self._directory.knows(place.agent):
            return False  # whether the factory here knows it is not known: its owner does
        if any(call.not_here is not None for call in calls):
            return False
        if any(isinstance(call.message, Passivate | WaitOutcome) for call in calls):
            return False  # it would be read for nothing
        return all(call.fences <= MOST_TAKES for call in calls) or random.random() < 0.2  # noqa: S311

    async def _is_done(self, call: RefCall, known: KnownCalls) -> bool:
        """Whether the store has what a call was to record, before its owner lost the agent."""
        if call.was_handled and call.is_once_at_most:
            why = "its owner went away while it did this call: nobody knows what came of it"
            self.refuse(call, Fenced(agent_id=call.slot.id, why=why))
            return True
        found = await known.what_became_of(call.message, run_id=call.run_id)
        match found:
            case Found(run_id=str(run_id)):
                self._start(self.follow(call, run_id))
            case Found(value=value):
                self.answer(call, value)
            case None:
                return False
        return True

    async def follow(self, call: RefCall, run_id: str, moment: Moment | None = None) -> None:
        """Answer by the outcome of a run, wherever it goes on; by the one of that moment."""
        try:
            looks = self._services.looks
            outcome = await looks.outcome_of_run(call.slot, run_id, call.incarnation, moment)
            self.answer(call, outcome)
        except Exception as error:
            self.refuse(call, error)

    # ------------------------------------------------------------------- telling

    async def _heartbeat(self) -> None:
        """Look for what no hint told, or what a hint that was lost should have told."""
        while True:
            await asyncio.sleep(jittered(BEAT))
            self._posted_here.collect()
            await self._look_for_taken(
                [slot for slot in self._directory.slots() if _has_waiters(slot)]
            )

    def notified(self, hint: Hint | None) -> None:
        """Handle the notification of another host. None: some may have been lost."""
        if self._services.closing:
            return
        if hint is None:
            self._posted_here.collect()
            self._elsewhere.look()
            self._start(self._look_for_taken(self._directory.slots()))
        elif hint.kind == "taken":
            slot = self._directory.find(hint.agent_id)
            if slot is not None:
                slot.drop_if_older(hint.number)
        elif hint.kind == "posted":
            self._posted_here.collect(hint.agent_id or None)
        elif hint.kind == "look":
            self._elsewhere.look(hint.number or None)
        elif hint.kind == "ended":
            self._services.looks.look_again()
        elif hint.kind == "given":
            self._continue(self._directory.get(hint.agent_id), hint.number)

    def _continue(self, slot: AgentSlot, epoch: int) -> None:
        """Go on with the run of an agent that is this host's by now.

        It may have a copy of it from before, of which it has heard just now, or never, that another
        host has gone on from (test_a_run_that_is_given_to_a_host_with_a_stale_copy_goes_on_there).
        """
        if slot.drop_if_older(epoch) or slot.activation is None:
            self._start(continue_one(slot))

    async def _look_for_taken(self, slots: list[AgentSlot]) -> None:
        ids = [slot.id for slot in slots if slot.activation is not None]
        if not ids:
            return
        try:
            epochs = await self._shared.epochs(ids)
        except JournalFailed as error:  # it is away: the next beat looks again
            logger.info("which agents are taken is not known: %s", text_of(error))
            return
        for slot in slots:
            if slot.id in epochs:
                slot.drop_if_older(epochs[slot.id])


def _has_waiters(slot: AgentSlot) -> bool:
    return slot.activation is not None and slot.waits is not None
