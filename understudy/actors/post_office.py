"""`PostOffice`: has a call done by whichever host can do it, where hosts share a store.

An agent of which nothing goes on is claimed here, or taken from its owner. One that runs stays
where it is: its owner finds the call in the store. All that hosts tell each other are hints.
Whoever waits looks for itself, every now and then.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from understudy._base.clock import jittered
from understudy._base.event_loops import call_on
from understudy._base.json_values import text_of
from understudy.actors.activation import Activation, RunAbandoned
from understudy.actors.agent_directory import Directory
from understudy.actors.agent_slot import AgentSlot
from understudy.actors.call_bodies import body_of, value_of_reply
from understudy.actors.known_calls import Found, run_of_call, what_became_of
from understudy.actors.messages import (
    AgentMessage,
    Cancel,
    Expectation,
    Expecting,
    Notify,
    Passivate,
    Pause,
    Retry,
    RunRequest,
    Unpause,
    WaitOutcome,
)
from understudy.actors.posted_calls import PostedCalls
from understudy.actors.replies import runtime_stopped
from understudy.actors.services import RuntimeServices
from understudy.errors import (
    Fenced,
    JournalFailed,
    OtherRun,
    OwnedElsewhere,
    UnfitHost,
    error_from_dict,
)
from understudy.journal.shared import Hint, Place, Post, PostState, SharedStore
from understudy.loop_actors.future import Future, refuse

logger: logging.Logger = logging.getLogger(__name__)

BEAT = 2.5
"""Seconds between two looks at what other hosts have posted."""
POLL = 0.5
"""Seconds between two looks at the calls that this host has posted."""
PATIENCE = 1.0
"""Seconds that a living owner has for a call, before one of an agent at rest is taken back."""
MOST_PAUSE = 0.04
"""Seconds that a host waits at most, by chance, before it takes an agent back."""
MOST_TAKES = 3
"""How often a call takes its agent, and loses it again, before it goes to the owner."""


class _Call:
    """A call of a ref, until its caller has the answer."""

    __slots__ = (
        "epoch",
        "expectation",
        "fences",
        "for_owner",
        "here",
        "incarnation",
        "message",
        "nonce",
        "number",
        "outer",
        "posted_at",
        "run_id",
        "slot",
        "unfit",
        "was_handled",
    )

    def __init__(self, slot: AgentSlot, message: AgentMessage, number: int) -> None:
        self.slot = slot
        self.number = number
        """Calls of one agent are done in the order of their numbers."""
        self.expectation: Expectation | None = None
        while isinstance(message, Expecting):
            self.expectation, message = message.expectation, message.message
        self.message = message
        self.outer: Future[Any] = message.future
        self.here: Future[Any] | None = None
        """What comes of it in this runtime's memory."""
        self.fences = 0
        self.unfit: UnfitHost | None = None
        """Why this host must not run the agent."""
        self.for_owner = False
        """This host must not run the agent: only its owner does the call."""
        self.was_handled = False
        """It was begun by an owner who then lost the agent."""
        self.run_id: str | None = None
        """Of the run that it has begun, or is for."""
        self.incarnation: int | None = None
        """Of the agent that has the run, as far as it is known."""
        self.posted_at = 0.0
        self.epoch = 0
        """That the agent had when its owner was told of this call."""
        self.nonce = ""

    def on_run(self, run_id: str) -> None:
        self.run_id = run_id
        if self.slot.activation is not None:
            self.incarnation = self.slot.activation.journal.owned.incarnation

    def on_begun(self) -> None:
        self.was_handled = True

    def for_here(self, future: Future[Any]) -> AgentMessage:
        """The message as an agent in memory gets it."""
        asked: Any = self.message
        message = replace(asked, future=future)
        if isinstance(message, RunRequest | Cancel | Pause | Unpause | Retry):
            message = replace(message, on_run=self.on_run)
        if self.is_once_at_most:
            message = replace(message, on_begun=self.on_begun)
        if isinstance(message, Cancel | Pause | Unpause | Retry) and self.run_id is not None:
            message = replace(message, run_id=self.run_id)
        if self.expectation is not None and not self.expectation.is_met:
            return Expecting(self.expectation, message)
        own: AgentMessage = message
        return own

    @property
    def is_once_at_most(self) -> bool:
        return isinstance(self.message, Notify) or self._is_trigger

    @property
    def _is_trigger(self) -> bool:
        change = getattr(self.message, "change", None)
        return change is not None and change.action == "trigger"


class PostOffice:
    """The calls of one runtime. Lives on its loop, but for `call`.

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
        self._numbers = itertools.count(1)
        self._lines: dict[str, list[_Call]] = {}
        """By agent, the calls that are to be done again, or behind such, while that goes on."""
        self._posted: dict[int, _Call] = {}
        """By the ids of their rows."""
        self._calls: set[_Call] = set()
        """Those whose callers wait."""
        self._look_now = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._posted_here = PostedCalls(services, directory, shared)

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
        for call in list(self._calls):
            if call.here is not None and call.here.done():
                try:
                    self._answer(call, call.here.get())
                except Exception as error:
                    self._refuse(call, error)
            self._refuse(call, runtime_stopped(call.slot.id))

    async def claimed(self, slot: AgentSlot) -> None:
        """As of `PostedCalls`."""
        await self._posted_here.claimed(slot)

    def answered(self, slot: AgentSlot) -> None:
        """As of `PostedCalls`."""
        self._posted_here.answered(slot)

    def _answer(self, call: _Call, value: Any) -> None:
        self._calls.discard(call)
        call.outer._answer(value)

    def _refuse(self, call: _Call, error: BaseException) -> None:
        self._calls.discard(call)
        refuse(call.outer, error)

    # ------------------------------------------------------------------- from any thread

    def call(self, slot: AgentSlot, message: AgentMessage) -> None:
        """Have it done. Its future gets the answer."""
        call = _Call(slot, message, next(self._numbers))
        self._calls.add(call)
        is_elsewhere = isinstance(call.message, Passivate) and not slot.phase.is_in_memory
        if slot.id in self._lines or is_elsewhere:
            call_on(self._services.loop, self._again, call)
        else:
            self._do_here(call)

    def call_elsewhere(self, slot: AgentSlot, message: AgentMessage) -> None:
        """The same, of what was found to be another host's. On the loop."""
        call = _Call(slot, message, next(self._numbers))
        self._calls.add(call)
        self._again(call)

    def _do_here(self, call: _Call) -> None:
        here = call.here = Future(self._services.loop)
        call.slot.post(call.for_here(here))
        call_on(self._services.loop, self._start, self._see(call, here))

    # ------------------------------------------------------------------- on the loop

    def _start(self, work: Any) -> None:
        self._services.start_task(work, "calling")

    async def _see(self, call: _Call, here: Future[Any]) -> None:
        """Answer as the agent does in memory here, unless it is not ours to answer."""
        try:
            value = await here
        except RunAbandoned as error:
            self._refuse(call, error)
        except (OwnedElsewhere, Fenced) as error:
            if error.agent_id not in (call.slot.id, "*") or self._services.closing:
                self._refuse(call, error)
                return
            if isinstance(error, Fenced):
                call.fences += 1
            elif error.must_post:
                call.for_owner = True
            self._again(call)
        except UnfitHost as error:
            call.unfit = error
            self._again(call)
        except OtherRun as error:
            await self._of_other_run(call, error)
        except Exception as error:
            self._refuse(call, error)
        else:
            self._answer(call, value)

    async def _of_other_run(self, call: _Call, error: Exception) -> None:
        """The run that a repeated call was for is over, and others came after it."""
        meant = getattr(call.message, "run_id", None)
        if meant is not None or call.run_id is None:
            self._refuse(call, error)  # the caller has named it
        elif isinstance(call.message, Cancel | Retry):
            await self._follow(call, call.run_id)
        else:
            self._answer(call, None)

    def _again(self, call: _Call) -> None:
        call.here = None
        line = self._lines.get(call.slot.id)
        if line is not None:
            line.append(call)
            return
        self._lines[call.slot.id] = [call]
        self._start(self._work_off(call.slot))

    async def _work_off(self, slot: AgentSlot) -> None:
        """Find out where the agent is, and have its calls done there, in their order."""
        line = self._lines[slot.id]
        try:
            while line and not self._services.closing:
                await self._pause(line)
                calls = sorted(line, key=lambda call: call.number)
                line.clear()
                try:
                    await self._route(slot, calls)
                except JournalFailed as error:
                    for call in calls:
                        self._refuse(call, error)
                except Exception as error:  # its callers must not wait for ever
                    logger.exception("calls of agent %r cannot be done", slot.id)
                    for call in calls:
                        self._refuse(call, error)
        finally:
            del self._lines[slot.id]

    async def _pause(self, line: list[_Call]) -> None:
        """Those that were asked together were refused together; two hosts must not take in turn."""
        fences = max(call.fences for call in line)
        await asyncio.sleep(random.uniform(0, MOST_PAUSE) * fences if fences else 0)  # noqa: S311

    async def _route(self, slot: AgentSlot, calls: list[_Call]) -> None:
        if any(call.fences or call.was_handled for call in calls):
            calls = [call for call in calls if not await self._is_done(call)]
        if not calls:
            return
        place = await self._shared.place(slot.id)
        if place is None or self._is_free(place):
            self._refuse_unfit(calls)  # nobody has it who could be asked
            calls = [call for call in calls if call.unfit is None]
        if place is None or self._is_free(place) or self._may_take(place, calls):
            self._all_here(calls)
        elif not place.listens:
            self._refuse_unfit(calls)
            elsewhere = OwnedElsewhere(agent_id=slot.id, host=place.host or "")
            for call in calls:
                self._refuse(call, elsewhere)
        else:
            await self._post(slot, place, calls)

    def _refuse_unfit(self, calls: list[_Call]) -> None:
        for call in calls:
            if call.unfit is not None:
                self._refuse(call, call.unfit)

    def _is_free(self, place: Place) -> bool:
        return place.host is None or place.host_id == self._shared.host_id

    def _may_take(self, place: Place, calls: list[_Call]) -> bool:
        if not (place.takeable and place.listens and self._directory.may_run(place.agent)):
            return False
        if any(call.for_owner for call in calls):
            return False
        if any(isinstance(call.message, Passivate) for call in calls):
            return False  # taken in order to be passivated, it would be read for nothing
        if any(call.unfit is not None for call in calls):
            return False
        return all(call.fences <= MOST_TAKES for call in calls) or random.random() < 0.2  # noqa: S311

    def _all_here(self, calls: list[_Call]) -> None:
        for call in calls:
            if isinstance(call.message, Passivate):
                self._answer(call, False)  # nobody has it in memory
            else:
                self._do_here(call)

    async def _is_done(self, call: _Call) -> bool:
        """Whether the store has what a call was to record, before its owner lost the agent."""
        if not (call.fences or call.was_handled):
            return False
        if call.was_handled and call.is_once_at_most:
            why = "its owner went away while it did this call: nobody knows what came of it"
            self._refuse(call, Fenced(agent_id=call.slot.id, why=why))
            return True
        found = await what_became_of(
            self._services.store, call.slot.id, call.message, run_id=call.run_id
        )
        match found:
            case Found(run_id=str(run_id)):
                self._start(self._follow(call, run_id))
            case Found(value=value):
                self._answer(call, value)
            case None:
                return False
        return True

    async def _follow(self, call: _Call, run_id: str) -> None:
        """Answer by the outcome of a run, wherever it goes on."""
        try:
            looks = self._services.looks
            outcome = await looks.outcome_of_run(call.slot, run_id, call.incarnation)
            self._answer(call, outcome)
        except Exception as error:
            self._refuse(call, error)

    # ------------------------------------------------------------------- posting

    async def _post(self, slot: AgentSlot, place: Place, calls: list[_Call]) -> None:
        assert place.host is not None, "what has no owner is claimed"
        posts: list[Post] = []
        posted: list[_Call] = []
        for call in calls:
            try:
                posts.append(await self._post_of(call, place.host))
            except Exception as error:  # told to its caller, before anything is kept
                self._refuse(call, error)
            else:
                posted.append(call)
        if not posts:
            return
        ids = await self._shared.post(slot.id, place.incarnation, posts)
        if not ids:  # it has another owner by now
            for call in posted:
                self._again(call)
            return
        for id, call in zip(ids, posted, strict=True):
            call.posted_at, call.epoch = self._services.loop.time(), place.epoch
            call.incarnation = place.incarnation
            self._posted[id] = call
        # Race: the owner may have replied by now, and its hint is spent. Or the agent has another
        # owner, whose claim did not see the call yet, nor was it told of it
        # (test_a_call_that_crosses_a_change_of_owner_is_told_to_the_new_one).
        self.look()
        if self._looking is None:
            self._looking = self._services.start_task(self._look_again_and_again(), "post")

    async def _post_of(self, call: _Call, owner: str) -> Post:
        message = call.message
        if isinstance(message, RunRequest) and message.message_id is None:
            # So that whoever does it again knows it
            # (test_a_run_whose_owner_dies_between_record_and_reply_is_run_once).
            message = call.message = replace(message, message_id=self._services.new_id())
        if isinstance(message, Cancel | Pause | Unpause | Retry) and message.run_id is None:
            # It comes late where its owner goes away: it is for the run of now
            # (test_a_cancel_that_comes_late_does_not_cancel_the_next_run).
            if call.run_id is None:
                call.run_id = await run_of_call(self._services.store, call.slot.id, message)
            message = replace(message, run_id=call.run_id)
        expects = None
        if call.expectation is not None and not call.expectation.is_met:
            expects = call.expectation.agent.name
        kind, body = body_of(message, owner=owner, expects=expects)
        call.nonce = self._services.new_id()
        return Post(kind, body, call.nonce)

    def look(self) -> None:
        """Look at the calls that this host has posted, at once."""
        self._look_now.set()

    async def _look_again_and_again(self) -> None:
        try:
            while self._posted:
                try:
                    async with asyncio.timeout(POLL):
                        await self._look_now.wait()
                except TimeoutError:
                    pass
                self._look_now.clear()
                try:
                    await self._look()
                except JournalFailed as error:  # it is away: the next look tries again
                    logger.warning("what became of calls is not known: %s", text_of(error))
        finally:
            self._looking = None

    async def _look(self) -> None:
        ids = list(self._posted)
        states = await self._shared.post_states(ids)
        replied = [id for id, state in states.items() if state.reply is not None]
        for id in ids:
            state = states.get(id)
            call = self._posted[id]
            if state is None:  # the store is another one by now, or an older copy
                del self._posted[id]
                self._take_up(call, begun=True)
            elif state.reply is not None:
                del self._posted[id]
                self._start(self._replied(call, from_json(state.reply)))
            else:
                await self._look_after(id, call, state)
        if replied:
            self._start(self._remove(replied))

    async def _remove(self, ids: list[int]) -> None:
        try:
            await self._shared.remove_posts(ids)
        except JournalFailed as error:  # a later sweep removes them
            logger.info("replies that were read are not removed yet: %s", text_of(error))

    async def _look_after(self, id: int, call: _Call, state: PostState) -> None:
        """Take a call back whose owner is gone, or that any host can do by now."""
        age = self._services.loop.time() - call.posted_at
        is_late = age > PATIENCE
        takes = state.is_takeable and not state.begun and is_late
        if isinstance(call.message, Passivate):
            takes = False
        if state.is_free or takes:
            begun = await self._shared.withdraw(id)
            if begun is not None:
                del self._posted[id]
                self._take_up(call, begun=begun)
            else:
                self.look()  # it has its reply
        elif is_late or state.epoch != call.epoch:
            call.posted_at, call.epoch = self._services.loop.time(), state.epoch
            await self._shared.retell(id)

    def _take_up(self, call: _Call, *, begun: bool) -> None:
        """It is ours again. Whether it was done is known by its ids, or not at all."""
        call.was_handled = True if not call.is_once_at_most else begun
        self._again(call)

    async def _replied(self, call: _Call, reply: dict[str, Any]) -> None:
        try:
            if "error" in reply:
                error = error_from_dict(reply["error"])
                if isinstance(error, OtherRun):
                    await self._of_other_run(call, error)
                else:
                    self._refuse(call, error)
                return
            if call.expectation is not None:
                call.expectation.is_met = True
            run_id = reply.get("run")
            if run_id is not None:
                await self._follow(call, run_id)
            else:
                self._answer(call, value_of_reply(reply))
        except Exception as error:
            self._refuse(call, error)

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
            self.look()
            self._start(self._look_for_taken(self._directory.slots()))
        elif hint.kind == "taken":
            slot = self._directory.find(hint.agent_id)
            if slot is not None:
                self._drop_if_older(slot, hint.number)
        elif hint.kind == "posted":
            self._posted_here.collect()
        elif hint.kind == "look":
            self.look()
        elif hint.kind == "ended":
            self._services.looks.look_again()
        elif hint.kind == "given" and not self._directory.is_active(hint.agent_id):
            self._directory.get(hint.agent_id)._slot.post(WaitOutcome(Future(self._services.loop)))

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
                self._drop_if_older(slot, epochs[slot.id])

    def _drop_if_older(self, slot: AgentSlot, epoch: int) -> None:
        """Drop a copy that another host has gone on from; no message is needed for it."""
        activation = slot.activation
        if activation is not None and activation.journal.owned.epoch < epoch:
            slot.lose("another runtime has taken it")


def _has_waiters(slot: AgentSlot) -> bool:
    activation = slot.activation
    return activation is not None and bool(
        activation.outcome_futures or activation.message_waits or activation.queued_runs
    )
