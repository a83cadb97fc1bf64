"""`Outgoing`: has each call done by whichever host can do it, where hosts share a store.

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
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pykka
from pydantic_core import from_json

from understudy._base.event_loops import call_on
from understudy._base.log_fields import log_extra
from understudy._base.lookout import Lookout
from understudy.actors.agent.activation import RunAbandoned
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.message_ids import RecordedRuns, recorded_runs
from understudy.actors.agent.messages import (
    NO_MESSAGE,
    AgentCall,
    AgentMessage,
    Cancel,
    CancelMessage,
    ChangePlans,
    Passivate,
    Pause,
    Retry,
    RunRequest,
    Send,
)
from understudy.actors.agent.replies import runtime_stopped
from understudy.actors.agent.run_outcomes import has_outcome, refusal
from understudy.actors.agent.services import Calls
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.agent.stored_agents import latest_state
from understudy.actors.hosts.incoming import NOBODY_KNOWS, Incoming, unless_away
from understudy.actors.hosts.live_events import LiveEvents
from understudy.actors.hosts.recovery import Progress, Recovering
from understudy.actors.hosts.ref_call import CallPhase, RefCall
from understudy.actors.hosts.wire import body_of
from understudy.errors import (
    Fenced,
    JournalFailed,
    OtherRun,
    OwnedElsewhere,
    UnfitHost,
    UnknownAgent,
)
from understudy.journal.chunks import CHUNKED
from understudy.journal.shared import Hint, Place, Post, PostState, Sent, hint_of
from understudy.journal.shared_store import SharedStore
from understudy.loop_actors.future import Future
from understudy.state.agent_state import AgentState
from understudy.state.plans import requested_pause, run_named_by
from understudy.state.run_state import RunState

if TYPE_CHECKING:
    from understudy.actors.hosts.peers.calls import PeerCalls
    from understudy.actors.hosts.peers.link import Link

logger: logging.Logger = logging.getLogger(__name__)

POLL = 0.5
"""Seconds between two looks at the calls that this host has posted."""
PATIENCE = 1.0
"""Seconds that a living owner has for a call, before a call of an agent at rest is taken back."""
MOST_PAUSE = 0.04
"""The most seconds that a host waits, by chance, before it takes an agent back."""
MOST_TAKES = 3
"""How often a call takes its agent, and loses it again, before it goes to the owner."""
ON_ITS_WAY = (CallPhase.LINE, CallPhase.IN_DOUBT, CallPhase.SENT, CallPhase.POSTED)
AT_ONCE = 100
"""The most calls that are posted at a time: their bodies are in memory together."""


class Outgoing(Calls[AgentSlot]):
    """The calls of one runtime, and the way to its `Incoming`. Used on the loop, except `call`.

    A call is put here at once, or waits in the line of its agent until it is known which host does
    it. `RefCall.phase` says where it is.

    Args:
        directory: of the agents of the runtime.
        shared: what hosts share of its store.
        has_peers: whether calls go to other processes of this machine by a socket.

    """

    def __init__(self, directory: Directory, shared: SharedStore, *, has_peers: bool) -> None:
        services = self._services = directory.services
        self._directory = directory
        self._shared = shared
        self._has_peers = has_peers
        self._peers: PeerCalls | None = None
        """The other processes of this machine; None until one is seen."""
        self._live = services.live = LiveEvents(directory, shared, self._send)
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        """The lock that guards the tables of calls, and the order in which calls are put here."""
        self._lines: dict[str, list[RefCall]] = {}
        """The calls that are being routed, or come behind such calls, by agent id."""
        self._to_withdraw: dict[str, bool] = {}
        """Whether an agent whose posted calls are to be taken back has no owner, by agent id."""
        self._calls: set[RefCall] = set()
        """The calls of this runtime whose callers wait."""
        self._posted: dict[int, RefCall] = {}
        """The posted calls by row id."""
        self._by_agent: dict[str, dict[int, RefCall]] = {}
        """The posted calls by row id, by agent id."""
        self._to_look_at: set[int] = set()
        """The ids of the posted rows to look at after the next hint."""
        self._is_open = False
        self._lookout = Lookout(
            "what became of calls",
            lambda: POLL if self._posted else None,
            self._look_at_posted,
            services.start_task,
        )
        self._incoming = Incoming(directory, shared, self._tell)
        if has_peers:
            shared.tell_neighbours(self._see_neighbours)

    def open(self) -> None:
        """Begin to look for what other hosts have posted."""
        self._is_open = True
        self._incoming.open()
        self._see_neighbours()

    def _see_neighbours(self) -> None:
        """Connect with the hosts of other processes of this machine, which have changed."""
        if not self._is_open or not self._has_peers or self._services.closing:
            return  # it is looked at when this opens
        if self._peers is None:
            if self._shared.neighbours is None:
                return
            from understudy.actors.hosts.peers.calls import PeerCalls

            self._peers = PeerCalls(
                self._directory,
                self._shared,
                self._lock,
                put_here=self._put_one_here,
                join=self._join,
                hear=self.hear,
            )
            self._services.placement.on_said = self._peers.peers.tell_about
        self._peers.peers.refresh()

    async def _send(self, sent: list[Sent]) -> None:
        """Send texts to other hosts."""
        if self._peers is not None:
            sent = self._peers.peers.send(sent)
        if sent:
            await self._shared.send(sent)

    async def _tell(self, host_id: int, hint: Hint) -> None:
        """Tell another host a hint."""
        if self._peers is None or self._peers.peers.send([Sent(host_id, str(hint))]):
            await self._shared.tell(host_id, hint)

    def close(self) -> None:
        """Look for nothing any more. Posted calls stay posted: their owners do them."""
        self._incoming.close()
        self._live.close()
        if self._peers is not None:
            self._services.loop.call_soon(self._peers.peers.tell_about)  # it closes then

    def abandon(self) -> None:
        """Give all waiting callers what is known by now, or an error: the runtime has stopped."""
        if self._peers is not None:
            self._peers.peers.close()
        for call in list(self._calls):
            call.refuse(runtime_stopped(call.slot.id))

    async def claimed(self, slot: AgentSlot) -> None:
        """Put the calls posted for an agent that is claimed now first; see `Incoming.claimed`."""
        await self._incoming.claimed(slot)

    def answered(self, slot: AgentSlot) -> None:
        """Tell the hosts that wait for a run of the agent; see `Incoming.answered`."""
        self._incoming.answered(slot)

    # ------------------------------------------------------------------- from any thread

    def call(self, slot: AgentSlot, asked: AgentCall) -> None:
        """Have a call done, at whatever host can do it. Its future gets the answer."""
        # Race: this in any thread against the loop, on which a call that was made before is refused
        # here, or routed: whatever comes behind it must not go before it
        # (test_a_call_does_not_go_before_one_that_is_on_its_way).
        with self._lock:
            call = RefCall(slot, asked, next(self._numbers), self._calls)
            line = self._lines.get(slot.id)
            if line is not None:
                line.append(call)
                return
            is_passive = isinstance(call.message, Passivate) and not slot.phase.is_in_memory
            peers = self._peers
            # Race: a claim for a call that names no run against another host that begins a run
            # meanwhile: its run is found out first, else the call would be for that run
            # (test_a_cancel_of_nothing_cancels_no_run_that_begins_elsewhere,
            # test_every_call_at_a_random_process_is_done_once_by_sockets).
            is_sent = peers is not None and peers.has_sent(slot.id)
            is_away = not (slot.phase.is_in_memory or slot.inbox or is_sent)
            is_unknown = is_away and call.names_no_run
            is_elsewhere = is_passive or is_unknown or slot.id in self._by_agent
            if is_elsewhere:
                self._lines[slot.id] = [call]
            elif peers is not None and (link := peers.route(call)) is not None:
                peers.put(link, call)
                return
            else:
                self._put_here([call])
        if is_elsewhere:
            call_on(self._services.loop, self._begin, slot)
        else:
            self._services.check_inbox(slot)

    def call_elsewhere(self, slot: AgentSlot, asked: AgentCall) -> None:
        """Have a call done that was found to be another host's. Called on the loop."""
        self._join(slot, [RefCall(slot, asked, next(self._numbers), self._calls)])

    def asked(self, slot: AgentSlot, message_id: str) -> Future[Any] | None:
        """The future of a call that brings this message to another host; None for no such call.

        The message may be in no record yet. Of a call that is followed, it is.
        """
        with self._lock:
            calls = [call for call in self._calls if call.slot is slot and call.phase in ON_ITS_WAY]
        for call in calls:
            message = call.message
            if isinstance(message, Send) and message.message_id == message_id:
                return call.asked.future
        return None

    def _put_one_here(self, call: RefCall) -> None:
        with self._lock:
            self._put_here([call])
        self._services.check_inbox(call.slot)

    def _put_here(self, calls: list[RefCall]) -> None:
        for call in calls:
            call.phase = CallPhase.HERE
            here: Future[Any] = Future(self._services.loop)
            settled = partial(call_on, self._services.loop, self._settled, call, here)
            here._when_settled(self, settled)
            call.slot.inbox.append(call.for_here(here))

    # ------------------------------------------------------------------- done here

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._services.start_task(work, "calling")

    def _settled(self, call: RefCall, here: Future[Any]) -> None:
        """Answer a call as the agent in memory here did, unless another host must answer it.

        Called by the task that settles it: before that one goes on, the call waits in the line
        again, and all that are made from then on wait behind it.
        """
        try:
            value = here.get()
        except RunAbandoned as error:
            call.refuse(error)
        except (OwnedElsewhere, Fenced, UnfitHost) as error:
            if error.agent_id not in (call.slot.id, "*"):
                call.refuse(error)
                return
            if isinstance(error, Fenced):
                call.fences += 1
            elif isinstance(error, UnfitHost) or error.must_post:
                call.not_here = error
            # Who waits for a run gets whatever error a later call meets, which the agent's next
            # owner refuses (test_a_run_that_goes_on_elsewhere_is_not_begun_again_by_a_later_call).
            in_doubt = isinstance(error, Fenced) or call.run_id is not None
            self._join(call.slot, [call], in_doubt=in_doubt)
        except OtherRun as error:
            call.refuse_of_other_run(error)
        except Exception as error:
            call.refuse(error)
        else:
            call.answer(value)

    # ------------------------------------------------------------------- the line of an agent

    def _take_back(self, slot: AgentSlot, calls: list[RefCall], *, is_free: bool) -> None:
        """Have this host's posted calls of an agent done by the host that can do them now.

        Args:
            slot: of the agent.
            calls: that come behind it.
            is_free: whether no living host owns it: then also what its owner may have begun.

        """
        self._to_withdraw[slot.id] = is_free or self._to_withdraw.get(slot.id, False)
        self._join(slot, calls)

    def _join(self, slot: AgentSlot, calls: list[RefCall], *, in_doubt: bool = False) -> None:
        """Have calls done by the host that can do them now, whichever it is."""
        with self._lock:
            for call in calls:
                if call.phase is not CallPhase.IN_DOUBT:
                    call.phase = CallPhase.IN_DOUBT if in_doubt else CallPhase.LINE
            line = self._lines.get(slot.id)
            if line is not None:
                line += calls
                return
            self._lines[slot.id] = calls
        self._begin(slot)

    def _begin(self, slot: AgentSlot) -> None:
        if self._services.closing:
            self._end_line(slot, runtime_stopped(slot.id))
        else:
            self._start(self._work_off(slot))

    def _end_line(self, slot: AgentSlot, error: Exception, calls: Iterable[RefCall] = ()) -> None:
        """Tell the callers of a line, and of its calls under way, that nothing is done.

        Where the runtime stops, at once, for its end waits for the steps in progress. One of them
        may wait for such a call
        (test_a_call_that_another_host_is_to_do_is_told_at_once_that_its_runtime_stops).
        """
        with self._lock:
            line = self._lines.pop(slot.id, [])
        for call in [*calls, *line]:
            call.refuse(error)

    async def _work_off(self, slot: AgentSlot) -> None:
        """Find out where the agent is, and have its calls done there, in their order."""
        line = self._lines[slot.id]
        calls: list[RefCall] = []
        try:
            while self._lines.get(slot.id) is line:
                calls.clear()
                if self._services.closing:
                    raise runtime_stopped(slot.id)
                # Hosts that asked together were refused together: two must not take in turn.
                if fences := max((call.fences for call in line), default=0):
                    await asyncio.sleep(random.uniform(0, MOST_PAUSE) * fences)  # noqa: S311
                with self._lock:
                    if not line and slot.id not in self._to_withdraw:
                        del self._lines[slot.id]
                        return
                await self._route(slot, line, calls)
        except Exception as error:  # its callers must not wait for ever
            if not isinstance(error, (JournalFailed, pykka.ActorDeadError)):
                extra = log_extra(slot.id)
                logger.exception("calls of agent %r cannot be done", slot.id, extra=extra)
            self._end_line(slot, error, calls)

    async def _route(self, slot: AgentSlot, line: list[RefCall], calls: list[RefCall]) -> None:
        """Have the calls of a line done, here or elsewhere; `calls` are those under way."""
        if slot.id in self._to_withdraw:
            line += await self._withdraw(slot.id, is_free=self._to_withdraw.pop(slot.id))
        await self._answer_known(slot, line)
        place = await self._shared.place(slot.id)
        with self._lock:
            if slot.id in self._to_withdraw or any(map(_is_in_doubt, line)):
                return  # they have come meanwhile, and may go before all others
            line[:] = [call for call in line if not self._is_refused(call, place)]
            link = None if place is None else self._link_to(place, slot, line)
            # What is posted has its turn there: what comes later is posted behind it.
            is_here = link is None and (
                place is None
                or (slot.id not in self._by_agent and self._may_be_done_here(place, line))
            )
            unknown = [call for call in line if call.names_no_run and not call.was_looked_up]
            if is_here and slot.phase.is_in_memory:
                unknown = []
            if not unknown:
                calls += sorted(line, key=lambda call: call.number)
                line.clear()
                for call in calls:
                    call.was_elsewhere = True
                if is_here or link is not None or not calls:
                    del self._lines[slot.id]
            if is_here and not unknown:
                self._put_here([call for call in calls if not isinstance(call.message, Passivate)])
            elif self._peers is not None and link is not None and not unknown:
                for call in calls:
                    self._peers.put(link, call, is_for_owner=True)
                return
        if unknown:
            await self._find_runs(unknown)
            with self._lock:
                line[:] = [call for call in line if call.phase is not CallPhase.ANSWERED]
        elif is_here:
            for call in calls:
                if isinstance(call.message, Passivate):
                    # No host has it in memory by now. The owner to which it was posted had
                    # (test_an_agent_that_is_stopped_at_another_host_was_in_memory).
                    call.answer(call.was_handled)
            if slot.inbox:
                self._services.check_inbox(slot)
        elif place is not None and place.host is None:
            self._take_back(slot, calls, is_free=True)
        elif place is not None:
            for first in range(0, len(calls), AT_ONCE):
                if not await self._post(slot, place, calls[first : first + AT_ONCE]):
                    self._join(slot, calls[first + AT_ONCE :])
                    return

    def _link_to(self, place: Place, slot: AgentSlot, calls: list[RefCall]) -> Link | None:
        """The connection with the owner of an agent, if calls go to the owner by a connection."""
        if self._peers is None or slot.id in self._by_agent:
            return None
        link = self._peers.peers.link_of(place.host_id)
        # What that process has not done goes as a row: it may have lost the agent just now. So does
        # what is for no run, though it was looked for.
        if link is None or any(
            call.refused_by == link.host_id or (call.names_no_run and call.was_looked_up)
            for call in calls
        ):
            return None
        return link

    async def _answer_known(self, slot: AgentSlot, line: list[RefCall]) -> None:
        """Answer the calls in doubt that are not to be made again.

        Most are: their agent knows them by an id, by the run that they name, or by the decisions
        that it has. A `run` that began here at once, with an id that its agent has made itself, is
        known only while its run is the last one.
        """
        in_doubt = list(filter(_is_in_doubt, line))
        state = await latest_state(self._services.store, slot.id) if in_doubt else None
        known: RecordedRuns | None = None

        async def recorded() -> RecordedRuns:
            nonlocal known
            if known is None:
                known = await recorded_runs(self._services.store, slot.id)
            return known

        for call in in_doubt:
            call.phase = CallPhase.LINE
            message = call.message
            if call.was_handled and call.is_once_at_most:
                call.refuse(Fenced(agent_id=slot.id, why=NOBODY_KNOWS))
            elif isinstance(message, RunRequest):
                if call.is_queued and state is not None and message.message_id in state.refused:
                    call.refuse(refusal(slot.id, state, message.message_id))
                    continue
                run_id = run_named_by(message.message_id)
                if run_id is not None and run_id in (await recorded()).ids:
                    call.follow(run_id)
            elif call.is_of_named_run and call.run_id is not None and message.run_id is None:
                # Race: this host may have lost the agent before it had recorded the run
                # (test_a_cancel_of_a_run_that_was_never_recorded_is_for_the_run_of_its_message).
                runs = await recorded()
                if call.run_id not in runs.ids and runs.floor <= call.noted_at:
                    call.never_began()
            elif (
                isinstance(message, CancelMessage)
                and state is not None
                and state.refused.get(message.message_id) == {}
            ):
                call.answer(True)  # it may be this call that has cancelled it
        with self._lock:
            line[:] = [call for call in line if call.phase in (CallPhase.LINE, CallPhase.IN_DOUBT)]

    def _is_refused(self, call: RefCall, place: Place | None) -> bool:
        """Refuse a call that nobody can do where its agent is now."""
        error: Exception | None = None
        if call.began_before(None if place is None else place.incarnation):
            error = UnknownAgent(agent_id=call.slot.id)
        elif place is None or place.host is None:  # it has no owner that could be asked
            # The owner of which this host was told may be gone; that no living host fits, stays.
            error = call.not_here if isinstance(call.not_here, UnfitHost) else None
            call.not_here = call.not_here if error is not None else None
        elif not place.listens and not self._may_be_done_here(place, [call]):
            unfit = call.not_here if isinstance(call.not_here, UnfitHost) else None
            error = unfit or OwnedElsewhere(agent_id=call.slot.id, host=place.host)
        if error is not None:
            call.refuse(error)
        return error is not None

    def _may_be_done_here(self, place: Place, calls: list[RefCall]) -> bool:
        """Whether this host has the agent, claims it, or takes it from its owner."""
        if place.host is None or place.host_id == self._shared.host_id:
            return True
        if not (place.takeable and place.listens and self._directory.may_run(place.agent)):
            return False
        if not self._directory.knows(place.agent):
            return False  # whether the factory here knows it is not known: its owner does
        if any(call.not_here is not None for call in calls):
            return False
        if any(isinstance(call.message, Passivate) for call in calls):
            return False  # it would be read for nothing
        return all(call.fences <= MOST_TAKES for call in calls) or random.random() < 0.2  # noqa: S311

    # ------------------------------------------------------------------- posting

    async def _post(self, slot: AgentSlot, place: Place, calls: list[RefCall]) -> bool:
        """Post calls; False if there was no owner to post to any more."""
        assert place.host is not None, "what has no owner is claimed"
        posts: dict[RefCall, Post] = {}
        for call in calls:
            try:
                row = body_of(
                    call.as_known(),
                    owner=place.host,
                    expects=call.expects,
                    has_deps=slot.has_deps(),
                )
            except Exception as error:  # told to its caller, before anything is kept
                call.refuse(error)
                continue
            posts[call] = Post(*row, nonce=self._services.new_id())
        if not posts:
            return True
        ids = await self._shared.post(slot.id, place.incarnation, list(posts.values()))
        if not ids:  # it has another owner by now
            self._join(slot, list(posts))
            return False
        if self._services.closing:
            # Their owner does them. It may be that no task looks for the replies any more
            # (test_a_call_on_its_way_to_another_host_is_told_at_once_that_its_runtime_stops).
            for call in posts:
                call.refuse(runtime_stopped(slot.id))
            return True
        by_id = self._by_agent.setdefault(slot.id, {})
        for id, call in zip(ids, posts, strict=True):
            call.phase = CallPhase.POSTED
            call.posted_at, call.epoch = self._services.loop.time(), place.epoch
            call.incarnation = place.incarnation
            call.reads = ExitStack()
            call.reads.enter_context(self._services.looks.looking(slot.id))
            self._posted[id] = by_id[id] = call
        # Race: the owner may have replied by now, and its hint is spent. Or the agent has another
        # owner, whose claim did not see the call yet, nor was it told of it
        # (test_a_call_that_crosses_a_change_of_owner_is_told_to_the_new_one).
        self._to_look_at.update(ids)
        self._lookout.hint()
        self._lookout.begin()
        return True

    async def _find_runs(self, calls: list[RefCall]) -> None:
        """Find the runs of calls that name no run."""
        for call in calls:
            try:
                await self._find_run(call)
            except Exception as error:  # its caller gets it, before anything is kept
                call.refuse(error)

    async def _find_run(self, call: RefCall) -> None:
        """Find the run of a call that names no run: the current run.

        The call may come late where its owner goes away
        (test_a_cancel_that_comes_late_does_not_cancel_the_next_run). A cancellation is answered
        where there is nothing to cancel.
        """
        message, call.was_looked_up = call.message, True
        state = await latest_state(self._services.store, call.slot.id)
        run = _run_of_call(state, message)
        if isinstance(message, Retry) and run is not None and run.has_failed:
            call.message = replace(message, run_id=run.run_id)
        call.run_id = None if run is None else run.run_id
        # That it rests, its status says; who has its outcome may be faster
        # (test_a_cancel_behind_a_run_that_withdraws_one_that_asks_just_now).
        rests = state is not None and has_outcome(state)
        if isinstance(message, Cancel) and (run is None or run.suspended_since or rests):
            # It is for the run that a call before it begins, or for none
            # (test_a_cancel_of_nothing_that_comes_late_does_not_cancel_the_next_run,
            # test_a_cancel_behind_a_call_is_for_the_run_of_that_call). That call may withdraw a run
            # at rest (test_a_cancel_behind_a_run_that_withdraws_another_is_for_that_run).
            earlier = [
                other.message
                for other in sorted(self._calls, key=lambda each: each.number)
                if other.slot is call.slot and other.number < call.number
            ]
            before = self._first_to_begin(state, earlier)
            if run is None and before is None:
                is_asked = state is not None and requested_pause(state.plans) is not None
                if not is_asked and not any(isinstance(each, Pause) for each in earlier):
                    call.answer(None)
                    return
                # Of the pause alone the owner is told
                # (test_a_cancel_of_an_idle_agent_ends_the_pause_that_is_asked_of_it).
                before = NO_MESSAGE
            call.message = replace(message, message_id=before)

    def _first_to_begin(self, state: AgentState | None, calls: list[AgentMessage]) -> str | None:
        """The id of the message by which the next run begins, if one of these calls begins a run.

        That is the first whose message no run has taken yet: what comes behind it waits for its
        turn (test_a_cancel_behind_several_runs_is_for_the_first_of_them).
        """
        taken = {} if state is None else state.message_ids
        run = None if state is None else state.run
        for message in calls:
            id: str | None = None
            match message:
                case Send(queued=queued) if (
                    queued.due is None or queued.due <= self._services.clock.now()
                ):
                    id = queued.message_id
                case ChangePlans(change=change):
                    id = change.message_id or None
            if id is None or taken.get(id) is not None:
                continue
            if run is None or run.run_id != run_named_by(id):
                return id
        return None

    # ------------------------------------------------------------------- posted

    def _drop(self, id: int) -> RefCall:
        call = self._posted.pop(id)
        by_id = self._by_agent[call.slot.id]
        del by_id[id]
        if not by_id:
            del self._by_agent[call.slot.id]
        if call.reads is not None:
            call.reads.close()
        return call

    def _take_up(self, id: int, *, begun: bool) -> RefCall:
        """Take a posted call back, in doubt: its ids tell whether it was done, or nothing does."""
        call = self._drop(id)
        call.was_handled = begun or not call.is_once_at_most
        call.phase = CallPhase.IN_DOUBT
        return call

    async def _withdraw(self, agent_id: str, *, is_free: bool) -> list[RefCall]:
        """Take the calls for an agent back, all at once, so that none overtakes an earlier call.

        Args:
            agent_id: its id.
            is_free: as of `_take_back`.

        Returns:
            The calls that had no reply.

        """
        by_id = self._by_agent.get(agent_id, {})
        ids = [id for id, call in by_id.items() if is_free or _can_be_taken(call)]
        begun = await self._shared.withdraw(ids) if ids else {}
        for id in ids:
            if id in self._posted and id not in begun:
                self._look(id)  # it has its reply
        return [self._take_up(id, begun=begun[id]) for id in begun if id in self._posted]

    def _look(self, id: int | None = None) -> None:
        """Look at a call that this host has posted, or at all posted calls, at once."""
        self._to_look_at.update(self._posted if id is None else (id,))
        self._lookout.hint()

    async def _look_at_posted(self, is_hinted: bool) -> None:
        # A reply tells which call it is for: thousands are not read again for each of them.
        ids = sorted(self._to_look_at & self._posted.keys()) if is_hinted else list(self._posted)
        self._to_look_at.clear()
        states = await self._shared.post_states(ids) if ids else {}
        replied = [id for id, state in states.items() if state.reply is not None]
        untold: dict[str, int] = {}
        for id in ids:
            state, call = states.get(id), self._posted.get(id)
            if call is None:
                pass  # it is withdrawn
            elif state is None:  # the store is another one by now, or an older copy
                self._join(call.slot, [self._take_up(id, begun=True)])
            elif state.reply is not None:
                self._drop(id).take_reply(from_json(state.reply))
            elif self._is_untold(call, state):
                untold[call.slot.id] = id
        if replied:  # else a later sweep removes them
            what = "replies that were read are not removed yet"
            self._start(unless_away(partial(self._shared.remove_posts, replied), what))
        # Who is told of one call reads all that are posted to its agent: told of each, as often
        # (test_the_owner_of_an_agent_is_told_again_once_for_all_that_is_posted_to_it).
        for id in untold.values():
            await self._shared.retell(id)

    def _is_untold(self, call: RefCall, state: PostState) -> bool:
        """Whether the owner of a call's agent may not have heard of the call.

        A call whose owner is gone, or that any host can do by now, is taken back.
        """
        is_late = self._services.loop.time() - call.posted_at > PATIENCE
        if state.is_free or (state.is_takeable and is_late and _can_be_taken(call)):
            self._take_back(call.slot, [], is_free=state.is_free)
            return False
        if not is_late and state.epoch == call.epoch:
            return False
        call.posted_at, call.epoch = self._services.loop.time(), state.epoch
        return True

    # ------------------------------------------------------------------- telling

    def hear(self, text: str | None) -> None:
        """Handle the text of another host's notification. None: some may have been lost."""
        hint = None if text is None else hint_of(text)
        if hint is not None and hint.kind in CHUNKED:
            self._live.notified(hint)
        elif text is None or hint is not None:
            self.notified(hint)

    def notified(self, hint: Hint | None) -> None:
        """Handle a hint of another host. None: hints may have been lost."""
        if self._services.closing:
            return
        if hint is None:
            self._incoming.collect()
            self._look()
            what = "which agents are taken is not known"
            self._start(unless_away(self._incoming.look_for_taken, what))
        elif hint.kind == "taken":
            slot = self._directory.find(hint.agent_id)
            if slot is not None:
                slot.drop_if_older(hint.number)
        elif hint.kind == "posted":
            self._incoming.collect(hint.agent_id or None)
        elif hint.kind == "look":
            self._look(hint.number or None)
        elif hint.kind == "ended":
            self._services.looks.look_again()
        elif hint.kind == "given":
            # The run of an agent that is this host's by now goes on. There may be a copy of the
            # agent from before, of which this host has heard just now, or never, that another host
            # has gone on from (test_a_run_that_is_given_to_a_host_with_a_stale_copy_goes_on_there).
            slot = self._directory.get(hint.agent_id)
            if slot.drop_if_older(hint.number) or slot.activation is None:
                self._start(Recovering(Progress(), at_once=1).run([slot]))


def _is_in_doubt(call: RefCall) -> bool:
    return call.phase is CallPhase.IN_DOUBT


def _can_be_taken(call: RefCall) -> bool:
    """Whether a call can be taken from a living owner that has not done it."""
    return not (call.is_once_at_most or isinstance(call.message, Passivate))


def _run_of_call(state: AgentState | None, message: AgentMessage) -> RunState | None:
    """The run of a call that names no run: the open run, if the call may mean it.

    A retry is for the last one, if that has failed.
    """
    run = state.run if state is not None else None
    if run is None:
        return None
    if isinstance(message, Retry):
        return run if run.has_failed or (run.is_held and not run.over) else None
    return None if run.over else run
