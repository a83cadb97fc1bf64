"""Builds of the library that are broken where hosts answer for each other: the controls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from understudy._base.clock import SharedClock, SystemClock
from understudy.actors.agent import replies
from understudy.actors.agent.activation import Activation
from understudy.actors.agent.messages import AgentMessage, Cancel, Send
from understudy.actors.agent.placement import Placement
from understudy.actors.agent.slot import AgentSlot
from understudy.actors.agent_host import AgentHost
from understudy.actors.hosts import outgoing
from understudy.actors.hosts.incoming import Incoming
from understudy.actors.hosts.outgoing import Outgoing
from understudy.actors.hosts.wire import body_of
from understudy.journal import index_status
from understudy.journal.postgres import sql
from understudy.journal.postgres.sharing.notify import NotifyListener
from understudy.journal.shared import to_reply

__all__ = ["HOSTS_BROKEN", "replaced"]


def replaced(owner: Any, name: str, made: Any) -> None:
    """Put something else in the place of what the library has by that name."""
    assert hasattr(owner, name), f"the library has no {name} any more"
    setattr(owner, name, made)


def _take_anything() -> None:
    entry_of = Activation.index_entry
    replaced(Activation, "index_entry", lambda own: entry_of(own)._replace(takeable=True))


def _judge_before() -> None:
    for name in ("CLAIM", "DELETE_AGENT"):
        text = getattr(sql, name)
        assert sql._TAKEABLE in text
        setattr(sql, name, text.replace(sql._TAKEABLE, ""))


def _take_the_halted() -> None:
    replaced(index_status, "nothing_goes_on", lambda _: True)


def _keep_the_copy() -> None:
    replaced(AgentSlot, "drop_if_older", lambda *_: False)

    async def confirmed(_: Any, activation: Activation) -> None:
        await activation.ledger.durable()

    replaced(replies, "confirm", confirmed)


def _new_ids() -> None:
    take_up = Outgoing._take_up

    def takes_up(calls: Outgoing, id: int, *, begun: bool) -> Any:
        call: Any = calls._posted[id]
        if isinstance(call.message, Send):
            queued = replace(call.message.queued, message_id=calls._services.new_id())
            call.message = replace(call.message, queued=queued)
            call.run_id = None
        return take_up(calls, id, begun=begun)

    replaced(Outgoing, "_take_up", takes_up)


def _reply_first() -> None:
    taken_up = Incoming._taken_up

    async def takes_up(calls: Incoming, row: Any) -> Any:
        taken = await taken_up(calls, row)
        if row.kind == "send" and taken[1] is not None:
            sent: Any = taken[1].message
            value = sent.message_id
            await calls._shared.reply(row.id, to_reply({"value": value}))
        return taken

    replaced(Incoming, "_taken_up", takes_up)


def _delete_first() -> None:
    taken_up = Incoming._taken_up

    async def takes_up(calls: Incoming, row: Any) -> Any:
        await calls._shared.withdraw([row.id])
        return await taken_up(calls, row)

    replaced(Incoming, "_taken_up", takes_up)


def _cancel_any_run() -> None:
    def of_any_run(message: AgentMessage, **given: Any) -> tuple[str, bytes]:
        if isinstance(message, Cancel):
            message = replace(message, run_id=None)
        return body_of(message, **given)

    replaced(outgoing, "body_of", of_any_run)


def _no_sweep_after_listen() -> None:
    run = NotifyListener._run

    def runs(ear: NotifyListener, *given: Any) -> None:
        notified = ear._notified

        def notified_with_text(text: str | None) -> None:
            if text is not None:
                notified(text)

        ear._notified = notified_with_text
        run(ear, *given)

    replaced(NotifyListener, "_run", runs)


def _no_poll() -> None:
    """Hosts look when they are notified, and at no other time."""

    # The seconds between two looks are set by each round.
    look = Outgoing._look_at_posted

    async def look_when_hinted(calls: Outgoing, is_hinted: bool) -> None:
        if is_hinted:
            await look(calls, is_hinted)

    read = Incoming._look

    async def read_when_hinted(calls: Incoming, is_hinted: bool) -> None:
        if is_hinted:
            await read(calls, is_hinted)

    replaced(Outgoing, "_look_at_posted", look_when_hinted)
    replaced(Incoming, "_look", read_when_hinted)


def _own_clocks() -> None:
    replaced(SharedClock, "now", SystemClock.now)


def _no_hand_over() -> None:
    async def keeps(*_: Any) -> None: ...

    replaced(AgentHost, "_hand_over", keeps)


def _drain_at_once() -> None:
    """A host that drains gives an agent up in the middle of a call."""
    passivate = AgentHost._passivate

    async def passivates(host: AgentHost, slot: AgentSlot) -> None:
        if slot.activation is not None and slot.activation.task is not None:
            slot.lose("this runtime is being drained")
        await passivate(host, slot)

    replaced(AgentHost, "_passivate", passivates)


def _hand_over_silently() -> None:
    """Another host gets the agent, and is not notified to continue it."""
    notified = Outgoing.notified

    def hears(office: Outgoing, hint: Any) -> None:
        if hint is None or hint.kind != "given":
            notified(office, hint)

    replaced(Outgoing, "notified", hears)


def _drain_and_take() -> None:
    async def drains(_: Placement) -> None: ...

    replaced(Placement, "drain", drains)


HOSTS_BROKEN = {
    "J6: an agent that runs may be taken": _take_anything,
    "J6: whether an agent may be taken is judged before it is taken": _judge_before,
    "J6: a halt with calls under way counts as rest": _take_the_halted,
    "J6: the loser keeps its copy": _keep_the_copy,
    "J70: a call that is made again has another id": _new_ids,
    "J70: a reply precedes its commit": _reply_first,
    "J70: a call is deleted before it is done": _delete_first,
    "J70: a cancel does not name its run": _cancel_any_run,
    "J70: nobody looks after listening again": _no_sweep_after_listen,
    "J70: nobody looks but when told": _no_poll,
    "J53: a host that drains hands nothing over": _no_hand_over,
    "J53: a host that drains waits for no call": _drain_at_once,
    "J53: who is given an agent does not go on with it": _hand_over_silently,
    "J53: a host that drains takes agents": _drain_and_take,
    "J21: each host goes by the clock of its machine": _own_clocks,
}
"""Each of them, by what is wrong with it."""
