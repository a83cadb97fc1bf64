"""Builds of the library with one rule left out: each must be found out, or a test proves nothing.

A build is made in a process of its own, before its first runtime; the library knows of no switch.
A name that the library has no more fails here, at once and loudly.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.support.durability.forks import be_hasty
from understudy.actors.agent import activation, task
from understudy.actors.agent.messages import HANDLERS, Send
from understudy.actors.agent.runs import decisions, run_queue
from understudy.agent import nested_runs
from understudy.journal import agent_journal, lease
from understudy.journal.postgres import sql
from understudy.journal.postgres import writer as postgres_writer
from understudy.journal.sqlite import backend, lock, writer
from understudy.modes import agent_execution, pipeline
from understudy.modes.steps import check_interrupts, execute_tools
from understudy.modes.steps.tool_call import arguments, checks
from understudy.run import ledger
from understudy.run.waits import dues, points
from understudy.state import fold
from understudy.state import records as r
from understudy.state.folds import agents as agent_folds
from understudy.stopping import StopReason, StopSignal

__all__ = ["BROKEN", "break_"]

Make = Callable[[], None]
BROKEN: dict[str, Make] = {}
"""Each broken build, by what is wrong with it."""


def break_(name: str | None) -> None:
    """Make this process the broken build of that name; None leaves it as it is."""
    if name is not None:
        be_hasty()
        BROKEN[name]()


def _broken(name: str) -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        BROKEN[name] = make
        return make

    return keep


def _wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    inner = getattr(owner, name)
    setattr(owner, name, functools.wraps(inner)(make(inner)))


async def _at_once(*_: object) -> None:
    """A wait for durability that does not wait."""


def _hasty(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step in which nothing waits until it is durable."""

    async def hasty(run: Any, *rest: Any) -> Any:
        run.durable = _at_once
        try:
            return await step(run, *rest)
        finally:
            del run.durable

    return hasty


# ----------------------------------------------------------------------------- the rules


@_broken("J1: a run that is decided to end asks the model again")
def _j1() -> None:
    def asking(call_llm: Callable[..., Any]) -> Callable[..., Any]:
        async def asks(run: Any) -> Any:
            run.current.closing = None
            return await call_llm(run)

        return asks

    def committing(continue_or_finish: Callable[..., Any]) -> Callable[..., Any]:
        # A process that dies between the decision to end and the end shows this. The two are
        # commonly in one commit, so that only a rare crash comes between them: here they never are.
        async def commits(run: Any) -> Any:
            outcome = await continue_or_finish(run)
            await run.durable()
            return outcome

        return commits

    _wrap(agent_execution, "call_llm", asking)
    _wrap(agent_execution, "continue_or_finish", committing)


@_broken("J2: a reply is accepted before the results that it saw are durable")
def _j2() -> None:
    _wrap(agent_execution, "call_llm", _hasty)


@_broken("J3: a tool is entered before its start is durable")
def _j3() -> None:
    _wrap(agent_execution, "execute_tools", _hasty)


@_broken("J4: a call that was cut off runs again")
def _j4() -> None:
    def releasing(release: Callable[..., Any]) -> Callable[..., Any]:
        def releases(run: Any, call: Any) -> Any:
            call.running = False
            return release(run, call)

        return releases

    _wrap(execute_tools, "_release", releasing)


@_broken("J4: a doubt does not bind the next call that equals it")
def _j4_unbound() -> None:
    _wrap(execute_tools, "blocked_by_doubt", lambda _: lambda *_: False)
    _wrap(check_interrupts, "doubts_about", lambda _: lambda *_: ())


@_broken("J4: a doubt binds each call of its tool")
def _j4_bound() -> None:
    _wrap(arguments, "equals", lambda _: lambda *_: True)


@_broken("J5: an answer outlives the life in which it was given")
def _j5() -> None:
    def keeping(reset: Callable[..., Any]) -> Callable[..., Any]:
        def keeps(state: Any, run: Any, call: Any) -> None:
            requests, decisions = call.requests, call.decisions
            reset(state, run, call)
            call.requests, call.decisions = requests, decisions

        return keeps

    _wrap(agent_folds, "_reset_imported", keeping)


@_broken("J6: whoever comes becomes the owner")
def _j6() -> None:
    def locking(locked: Callable[..., Any]) -> Callable[..., Any]:
        def locks(sidecar: Any) -> Any:
            flock, lock.fcntl.flock = lock.fcntl.flock, lambda *_: None  # type: ignore[attr-defined]  # of a module that is imported where there is one
            try:
                return locked(sidecar)
            finally:
                lock.fcntl.flock = flock  # type: ignore[attr-defined]  # as above

        return locks

    _wrap(lock.SidecarLock, "_open_locked", locking)


@_broken("J7: the epoch is not checked")
def _j7() -> None:
    _wrap(writer, "refusal", lambda _: lambda *_: None)
    writer._RECORD = writer._RECORD.replace("INSERT", "INSERT OR REPLACE")


@_broken("J7: on PostgreSQL, neither epoch nor lease is checked")
def _j7_postgres() -> None:
    checked = ("a.owner = %(owner)b::int8", "a.epoch = (", "a.last_seq = (")
    text = sql.ADD
    for condition in checked:
        assert condition in text
        text = text.replace(condition, condition.replace(" = ", " IS DISTINCT FROM -1 + 0 * ", 1))
    # If the number is taken, the last writer wins.
    wins = (
        " ON CONFLICT (agent, seq) DO UPDATE SET epoch = excluded.epoch,"
        " kind = excluded.kind, payload = excluded.payload\n){parts}"
    )
    assert "\n){parts}" in text
    sql.ADD = text.replace("\n){parts}", wins)
    _wrap(postgres_writer, "refusal", lambda _: lambda *_, **__: None)
    _wrap(lease.Lease, "holds", lambda _: lambda *_: True)


@_broken("J7: after an import, what was started is not in doubt")
def _j7_import() -> None:
    fold._APPLY[r.Imported] = lambda *_: None


@_broken("J8: nobody looks at the lease before a tool")
def _j8() -> None:
    _wrap(ledger.Ledger, "check_owner", lambda _: lambda *_: None)


@_broken("J11: a recovered parent starts another child")
def _j11() -> None:
    def starting(run: Callable[..., Any]) -> Callable[..., Any]:
        async def starts(children: Any, parent: Any, key: str, *rest: Any) -> Any:
            return await run(nested_runs, parent, f"{key}.{os.getpid()}", *rest)

        return starts

    _wrap(nested_runs.NestedRuns, "run", starting)


@_broken("J13: any cancellation makes a run cancelled")
def _j13() -> None:
    def ending(cancelled: Callable[..., Any]) -> Callable[..., Any]:
        async def ends(slot: Any, activation: Any, error: BaseException) -> Any:
            run = activation.state.run
            if run is not None and not run.over and run.cancelled is None:
                signal = StopSignal(StopReason.USER_REQUESTED, "cancelled", source="cancel")
                activation.ledger.record(r.CancelRequested(signal=signal.to_dict()))
            return await cancelled(slot, activation, error)

        return ends

    _wrap(task, "_cancelled", ending)


@_broken("J14: a message is acknowledged before it is durable")
def _j14() -> None:
    _wrap(run_queue, "answer_when_durable", lambda _: lambda _slot, future, v: future.set(v))


@_broken("J14: a repeated message is another one")
def _j14_repeat() -> None:
    def sends(slot: Any, call: Any) -> None:
        queued = call.message.queued
        if queued.message_id in slot.current.state.message_ids:
            queued = replace(queued, message_id=f"{queued.message_id} again")
            call = replace(call, message=replace(call.message, queued=queued))
        run_queue.send(slot, call)

    HANDLERS[Send] = sends


@_broken("J16: an outcome is told before it is durable")
def _j16() -> None:
    _wrap(pipeline, "_finish", _hasty)
    _wrap(ledger.Ledger, "end_is_durable", lambda _: _at_once)


@_broken("J16: events are told before they are durable")
def _j16_events() -> None:
    def recording(record: Callable[..., Any]) -> Callable[..., Any]:
        def records(own: Any, *given: Any) -> None:
            record(own, *given)
            own.tell_until(own.count)

        return records

    _wrap(ledger.Ledger, "record", recording)


@_broken("J16: a commit of unknown outcome is not read back")
def _j16_unread() -> None:
    _wrap(agent_journal.AgentJournal, "is_committed", lambda _: lambda *_: False)


# ----------------------------------------------------------------------------- the dues


@_broken("J21: the index does not know when an agent is due")
def _j21() -> None:
    def forgetting(index_entry: Callable[..., Any]) -> Callable[..., Any]:
        return lambda activation: index_entry(activation)._replace(due=None)

    _wrap(activation.Activation, "index_entry", forgetting)


@_broken("J21: silence approves")
def _j21_silence() -> None:
    _wrap(dues, "Decision", lambda made: lambda **given: made(**{**given, "type": "approve"}))


# ---------------------------------------------------------------------------- the waits


@_broken("T11: what is done once is done in each run of the tool")
def _t11() -> None:
    _wrap(points.Points, "_come_to_once", lambda _: lambda *_: None)


@_broken("J22: a token is handed out before it is durable")
def _j22() -> None:
    def making(token: Callable[..., Any]) -> Callable[..., Any]:
        async def makes(own: Any, *rest: Any) -> Any:
            own._run.durable = _at_once
            try:
                return await token(own, *rest)
            finally:
                del own._run.durable

        return makes

    _wrap(points.Points, "token", making)


@_broken("J22: an answer is told before it is durable")
def _j22_answer() -> None:
    _wrap(decisions, "answer_when_durable", lambda _: lambda _slot, future, v: future.set(v))


# --------------------------------------------------------------------------- the checks


@_broken("T15: what a check does not find too early did not happen")
def _t13_early() -> None:
    assert checks.SETTLES_AFTER == 60.0
    checks.SETTLES_AFTER = 0.0


@_broken("T15: a call in doubt runs again when its check is due")
def _t13_again() -> None:
    def reaching(reached: Callable[..., Any]) -> Callable[..., Any]:
        return lambda **given: reached(**{**given, "what": "sleep"})

    _wrap(checks, "PointReached", reaching)


# --------------------------------------------------------------------------- the store


@_broken("a sync is dropped")
def _no_sync() -> None:
    def connecting(connect: Callable[..., Any]) -> Callable[..., Any]:
        return lambda path, _, *rest: connect(path, "off", *rest)

    _wrap(backend, "connect_writer", connecting)


@_broken("a commit is acknowledged before it is made")
def _no_commit() -> None:
    owed: set[int] = set()

    def committing(commit: Callable[..., Any]) -> Callable[..., Any]:
        def commits(backend: Any) -> None:
            owed.add(id(backend))

        return commits

    def beginning(begin: Callable[..., Any]) -> Callable[..., Any]:
        def begins(backend: Any) -> None:
            pay(backend)
            begin(backend)

        return begins

    def closing(close: Callable[..., Any]) -> Callable[..., Any]:
        def closes(backend: Any) -> None:
            pay(backend)
            close(backend)

        return closes

    really = backend.SqliteBackend.commit

    def pay(backend: Any) -> None:
        if id(backend) in owed:
            owed.discard(id(backend))
            really(backend)

    _wrap(backend.SqliteBackend, "commit", committing)
    _wrap(backend.SqliteBackend, "begin", beginning)
    _wrap(backend.SqliteBackend, "close", closing)
