"""`PostOffice`: has a call done by whichever host can do it, where hosts share a store.

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
from functools import partial
from typing import Any

from understudy._base.clock import jittered
from understudy._base.event_loops import call_on
from understudy._base.json_values import text_of
from understudy._base.log_fields import about
from understudy.actors.activation import RunAbandoned
from understudy.actors.agent_ref import AgentRef
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.calls_elsewhere import CallsElsewhere
from understudy.actors.known_calls import Found, KnownCalls
from understudy.actors.messages import (
    AgentMessage,
    Cancel,
    Passivate,
    Retry,
    WaitOutcome,
)
from understudy.actors.posted_calls import PostedCalls
from understudy.actors.recovery import continue_one
from understudy.actors.ref_call import RefCall
from understudy.actors.replies import runtime_stopped
from understudy.actors.run_outcomes import Moment
from understudy.actors.shared_host import SharedHost
from understudy.errors import (
    Fenced,
    JournalFailed,
    OtherRun,
    OwnedElsewhere,
    UnfitHost,
    UnknownAgent,
    UnknownMessage,
)
from understudy.journal.shared import Hint, Place
from understudy.loop_actors.future import Future, refuse

logger: logging.Logger = logging.getLogger(__name__)

BEAT = 2.5
"""Seconds between two looks at what other hosts have posted."""
MOST_PAUSE = 0.04
"""Seconds that a host waits at most, by chance, before it takes an agent back."""
MOST_TAKES = 3
"""How often a call takes its agent, and loses it again, before it goes to the owner."""


class PostOffice:
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
                        "calls of agent %r cannot be done", slot.id, extra=about(slot.id)
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

    def told(self, hint: Hint | None) -> None:
        """Another host has told something; None: it may have, and was not heard."""
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
            self._go_on(self._directory.get(hint.agent_id), hint.number)

    def _go_on(self, ref: AgentRef, epoch: int) -> None:
        """Go on with the run of an agent that is this host's by now.

        It may have a copy of it from before, of which it has heard just now, or never, that another
        host has gone on from (test_a_run_that_is_given_to_a_host_with_a_stale_copy_goes_on_there).
        """
        if ref._slot.drop_if_older(epoch) or ref._slot.activation is None:
            self._start(continue_one(self._services.start_task, ref))

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
    activation = slot.activation
    return activation is not None and bool(
        activation.outcome_futures or activation.message_waits or activation.queued_runs
    )
