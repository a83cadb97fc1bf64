"""`PeerCalls`: calls for agents that another process of this machine has, and those from there.

A call by a socket has the guarantees of a call that is made at the owner itself, and no others. The
process that does it never passes it on: who has made the call finds out where the agent is. Where a
connection ends in the middle, the calls that were sent by it are in doubt, as those of an agent
that this host has lost: most are known by their ids, and are made again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pykka
from pydantic_core import from_json

from understudy._base.event_loops import call_on, call_soon_on
from understudy.actors.agent.activation import RunAbandoned
from understudy.actors.agent.directory import Directory
from understudy.actors.agent.messages import (
    AgentCall,
    AnswerWait,
    CallNotes,
    Passivate,
)
from understudy.actors.agent.phase import Phase
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.hosts.peers.frames import (
    Answered,
    Call,
    HasOutcome,
    Hinted,
    Note,
    Refused,
    outcome_frame,
)
from understudy.actors.hosts.peers.link import PATIENCE, Link
from understudy.actors.hosts.peers.peers import Peers
from understudy.actors.hosts.ref_call import CallPhase, RefCall
from understudy.actors.hosts.wire import body_of, call_of, refusal_of, reply_to
from understudy.errors import Fenced, OwnedElsewhere, UnfitHost, UsageError
from understudy.journal.shared_store import SharedStore
from understudy.loop_actors.errors import RuntimeStopped
from understudy.loop_actors.future import Future
from understudy.outcomes import Outcome

Result = Note | Refused | HasOutcome | Answered
"""A frame that comes back from a process that was sent a call."""
FRESH = PATIENCE - 1.0
"""Seconds after which a sent call is not begun any more: its sender may have made it elsewhere by
now. The sender waits longer, by `link.PATIENCE`
(test_a_process_that_was_suspended_begins_no_call_that_may_be_done_elsewhere_by_now)."""
NOT_HERE = (OwnedElsewhere, Fenced, UnfitHost)
"""The errors of a call for an agent that another host has."""
LOST = (Fenced, RuntimeStopped, pykka.ActorDeadError)
"""The errors of a call that may have begun and whose result this host cannot tell."""


class PeerCalls:
    """The calls between one runtime and the other processes of its machine.

    Args:
        directory: of the agents of the runtime.
        shared: what hosts share of its store.
        lock: guards which calls are sent, and in which order.
        put_here: has a call done at this host.
        join: has calls done by whichever host can do them. The process has not done them; or,
            `in_doubt`, it may have.
        hear: handles a hint that another process has sent.

    """

    def __init__(
        self,
        directory: Directory,
        shared: SharedStore,
        lock: threading.RLock,
        *,
        put_here: Callable[[RefCall], None],
        join: Callable[..., None],
        hear: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._services = directory.services
        self._lock = lock
        self._put_here = put_here
        self._join = join
        self._hear = hear
        self.peers: Peers = Peers(directory, shared, self._frame, self._ended)
        self._sent: dict[str, dict[int, RefCall]] = {}
        """The calls that are with another process, by call number, by agent id."""
        self._calls: dict[int, RefCall] = {}
        """The calls that were sent to another process, by call number."""
        self._served: dict[tuple[Link, int], ServedCall] = {}
        """The calls of other processes that are under way here, by connection and call number."""
        self._refused: dict[Link, dict[str, int]] = {}
        """The numbers of a connection's refusals that its other end may not know, by agent id."""
        self._refusals: dict[Link, int] = {}

    # ---------------------------------------------------------- under the lock

    def route(self, call: RefCall) -> Link | None:
        """The process that is to do a call; None for this one. In any thread."""
        slot = call.slot
        before = self._sent.get(slot.id)
        message = call.message
        is_token = isinstance(message, AnswerWait) and message.given is not None
        if is_token or isinstance(message, Passivate):  # whether it is a guess is found out here
            return None
        if before:  # it comes behind what was sent there before
            if call.names_no_run:
                call.run_id = next((each.run_id for each in before.values() if each.run_id), None)
            link: Link | None = next(iter(before.values())).link
            return link
        if not self.peers.has_homes or slot.phase is not Phase.PASSIVE or slot.inbox:
            return None
        # What was given to `spawn` for this process alone stays here, and so does what a run waits
        # for: only in one process is it seen where agents wait for each other.
        if slot.has_deps() or call.asked.callers or slot.change is not None:
            return None
        if slot.agent is not None and not self._directory.knows(slot.agent.name):
            return None
        return self.peers.home(slot.id)

    def has_sent(self, agent_id: str) -> bool:
        """Whether a call of an agent is with another process."""
        return agent_id in self._sent

    def put(self, link: Link, call: RefCall, *, is_for_owner: bool = False) -> None:
        """Send a call to a process soon, in the order in which calls are put."""
        call.phase, call.link = CallPhase.SENT, link
        self._sent.setdefault(call.slot.id, {})[call.number] = call
        call_soon_on(self._services.loop, self._send, link, call, is_for_owner)

    # ------------------------------------------------------------------- on the loop

    def _send(self, link: Link, call: RefCall, is_for_owner: bool) -> None:
        if call.phase is not CallPhase.SENT:
            return  # its runtime has stopped
        if not link.is_ready:
            self._drop(call)
            self._join(call.slot, [call])
            return
        slot, owner = call.slot, f"host {link.host_id}"
        try:
            kind, body = body_of(
                call.as_known(), owner=owner, expects=call.expects, has_deps=slot.has_deps()
            )
        except Exception as error:
            self._drop(call)
            # What is no JSON can be done here, as far as this host may have the agent.
            if is_for_owner:
                call.refuse(error)
            else:
                self._put_here(call)
            return
        is_new = slot.is_spawned
        self._calls[call.number] = call
        link.watch()
        link.send(
            Call(
                call.number,
                time.monotonic(),
                link.refusals,
                slot.id,
                slot.agent.name if is_new and slot.agent is not None else None,
                dict(slot.values) if is_new and slot.values else None,
                kind,
                body,
                is_for_owner,
            )
        )

    def _drop(self, call: RefCall) -> None:
        """Note that a call is not with another process any more."""
        if self._calls.pop(call.number, None) is not None:
            call.link.waits -= 1
        with self._lock:
            call.link = None
            sent = self._sent.get(call.slot.id, {})
            sent.pop(call.number, None)
            if not sent:
                self._sent.pop(call.slot.id, None)

    # ------------------------------------------------------------------- what comes

    def _frame(self, link: Link, frame: Any) -> None:
        if isinstance(frame, Call):
            self._serve(link, frame)
        elif isinstance(frame, Hinted):
            self._hear(frame.text)
        else:
            call = self._calls.get(frame.number)
            if call is not None and call.link is link:
                self._take(link, call, frame)

    def _take(self, link: Link, call: RefCall, frame: Result) -> None:
        if isinstance(frame, Note):
            if frame.run_id is None:
                call.is_queued = True
            else:
                call.on_run(frame.run_id, frame.retries, frame.message_id)
            call.incarnation, call.noted_at = frame.incarnation, frame.seq
            return
        self._drop(call)
        if isinstance(frame, Refused):
            link.refusals += 1
            call.refused_by = link.host_id
            call.was_handled |= frame.is_begun
            in_doubt = frame.is_begun or call.run_id is not None
            self._join(call.slot, [call], in_doubt=in_doubt)
            return
        if isinstance(frame, HasOutcome):
            call.is_met()
            call.answer(frame.read())
        else:
            reply = from_json(frame.reply)
            call.take_reply(reply)
            if "error" in reply:
                return
        if call.slot.is_spawned and call.slot.id not in self._sent:  # the store has it by now
            self._forget(call.slot)

    def _forget(self, slot: AgentSlot) -> None:
        """Keep nothing of an agent that was spawned here and that another process has."""
        if slot.phase is Phase.PASSIVE:
            slot.is_spawned, slot.values = False, None
            self._directory.drop_unless_needed(slot)

    def _ended(self, link: Link) -> None:
        """Take back the calls of a connection that has ended, perhaps with its process."""
        self._refused.pop(link, None)
        self._refusals.pop(link, None)
        for (of, _), served in list(self._served.items()):
            if of is link:
                served.withdraw()
        left: dict[AgentSlot, list[RefCall]] = {}
        for call in [call for call in self._calls.values() if call.link is link]:
            self._drop(call)
            call.was_handled = True  # as far as anybody knows
            left.setdefault(call.slot, []).append(call)
        for slot, calls in left.items():
            self._join(slot, calls, in_doubt=True)

    # ------------------------------------------------------------------- done for others

    def _serve(self, link: Link, call: Call) -> None:
        """Have an agent of this host do a call of another process."""
        refused = self._refused.get(link, {})
        for agent_id in [id for id, number in refused.items() if number <= call.seen]:
            del refused[agent_id]
        age = time.monotonic() - call.sent_at
        # Behind one that was refused, all are, until their caller knows that: else they would be
        # done before it (test_calls_behind_one_that_a_process_refuses_stay_behind_it).
        if call.agent_id in refused or age > FRESH or self._services.closing:
            self._refuse(link, call.number, call.agent_id)
            return
        try:
            served = self._served_call(link, call)
        except Exception as error:  # told to its caller
            link.send(Answered(call.number, refusal_of(error)))
            return
        if served is None:
            self._refuse(link, call.number, call.agent_id)
            return
        key = link, call.number
        self._served[key] = served
        settled = partial(self._settled, key)
        served.done._when_settled(self, partial(call_on, self._services.loop, settled))
        served.slot.put(served.call)

    def _served_call(self, link: Link, call: Call) -> ServedCall | None:
        """The call of another process for its agent; None if this host is not to do the call."""
        found = self._directory.find(call.agent_id)
        is_here = found is not None and found.phase.is_in_memory
        if not is_here and (call.is_for_owner or self._services.placement.is_closed):
            return None
        if call.agent is None or is_here:
            return ServedCall(link, call, self._directory.get(call.agent_id), False)
        if not self._directory.knows(call.agent):
            return None
        is_new = found is None or not found.is_spawned
        slot, _ = self._directory.spawn(call.agent, call.agent_id, deps=None, values=call.values)
        return ServedCall(link, call, slot, is_new)

    def _refuse(self, link: Link, number: int, agent_id: str, *, is_begun: bool = False) -> None:
        count = self._refusals[link] = self._refusals.get(link, 0) + 1
        self._refused.setdefault(link, {})[agent_id] = count
        link.send(Refused(number, is_begun))

    def _settled(self, key: tuple[Link, int]) -> None:
        link, number = key
        served = self._served.pop(key)
        if not link.is_ready:
            return
        slot = served.slot
        try:
            value = served.done.get()
        except Exception as error:
            is_here = isinstance(error, RunAbandoned) or not isinstance(error, LOST + NOT_HERE)
            if is_here or (isinstance(error, NOT_HERE) and error.agent_id not in (slot.id, "*")):
                link.send(Answered(number, refusal_of(error)))
                return
            self._refuse(link, number, slot.id, is_begun=isinstance(error, LOST))
            if served.is_new:
                self._forget(slot)
        else:
            outcome = outcome_frame(number, value) if isinstance(value, Outcome) else None
            link.send(outcome or Answered(number, reply_to(served.kind, value)))


class ServedCall(CallNotes):
    """A call of another process, while an agent of this host does it.

    Args:
        link: the connection with that process.
        call: what it asks.
        slot: of the agent.
        is_new: whether the agent was spawned here for this call.

    Raises:
        Exception: if the call cannot be read.

    """

    def __init__(self, link: Link, call: Call, slot: AgentSlot, is_new: bool) -> None:
        self.slot = slot
        self.kind: str = call.kind
        self.is_new = is_new
        self.done: Future[Any] = Future(slot.services.loop)
        self.call: AgentCall = call_of(call.kind, call.body, self.done, self)
        self._link = link
        self._number = call.number

    def on_run(
        self, run_id: str | None, retries: str | None = None, message_id: str | None = None
    ) -> None:
        if self.slot.activation is not None and self._link.is_ready:
            owned = self.slot.activation.journal.owned
            at = owned.incarnation, owned.last_seq
            self._link.send(Note(self._number, run_id, retries, message_id, *at))

    def on_queued(self) -> None:
        self.on_run(None)

    def withdraw(self) -> None:
        """Drop the call unless it has begun: its caller is gone, or makes it elsewhere."""
        if self.call in self.slot.inbox:
            self.slot.inbox.remove(self.call)
            self.done._fail(UsageError("who has made this call is gone"))
