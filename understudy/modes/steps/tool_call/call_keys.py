"""Calls of tools with `key=`: which calls have an equal key, and whether this one may start.

A store knows which calls of all its agents have a key. Without a store, the calls of this run and
of runs inside it count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from pydantic_ai.messages import ModelResponse, ToolCallPart

from understudy.errors import UsageError
from understudy.interrupts import DoubtfulCall
from understudy.journal.call_keys import CallKeys, KeyTaking, KeyUse, key_hash, may_take
from understudy.modes.steps.run_end import end_agents_of
from understudy.modes.steps.tool_call.arguments import (
    ReadyCall,
    blocked_by_doubt,
    canonical,
    doubts_about,
    request_with_doubts,
)
from understudy.modes.steps.tool_call.body import record_started
from understudy.modes.steps.tool_call.results import failed_result
from understudy.run.run import Run, log_fields
from understudy.state.agent_state import AgentState
from understudy.state.folds.ends import doubtful_call, last_arguments
from understudy.state.folds.places import UNREAD
from understudy.state.run_state import Call, RunState

logger: logging.Logger = logging.getLogger(__name__)

MOST_MESSAGES = 2_000
"""The largest number of messages that are read to find the arguments of a call."""
REPEATED = "Not run: an equal call has run before, and this one must not. Do not call it again."


class _KeysOfRun(CallKeys):
    """The keys of the calls of a run and of runs inside it, where there is no store."""

    def __init__(self, root: Run) -> None:
        self._root = root
        self._taken: dict[str, list[KeyUse]] = {}
        """The uses of keys that were taken and are not recorded yet, by the hash of the key."""

    @property
    def of(self) -> tuple[str, int]:
        return self._root.agent_id, 0

    async def key_hash(self, key: str) -> str:
        return key_hash(key, b"")  # its state has the arguments themselves

    async def key_uses(self, key_hash: str, at: datetime) -> Sequence[KeyUse]:
        agent_id = self._root.agent_id
        recorded = [
            KeyUse(
                agent_id=agent_id,
                incarnation=0,
                call_key=call_key,
                tool_name=held.tool_name,
                tool_call_id=held.tool_call_id,
                taken_at=held.at or UNREAD,
                done_at=(held.at or UNREAD) if held.is_done else None,
            )
            for call_key, held in self._root.state.held_keys_in_tree.items()
            if held.key_hash == key_hash
        ]
        return [*recorded, *self._taken.get(key_hash, ())]

    async def take_key(self, taking: KeyTaking) -> Sequence[KeyUse]:
        uses, agent_id = await self.key_uses(taking.key_hash, taking.at), self._root.agent_id
        if not may_take(taking, agent_id, 0, uses):
            return uses
        self._taken.setdefault(taking.key_hash, []).append(taking.use_of(agent_id, 0))
        return ()

    async def free_key(self, key_hash: str, use: KeyUse) -> None:
        raise AssertionError("a key that the state has is of a call that is open, in doubt or done")

    async def state_of_use(self, use: KeyUse) -> AgentState | None:
        return self._root.state


class _Calls:
    """The keys of calls, as a call of this run sees them."""

    def __init__(self, run: Run) -> None:
        keys = run.ledger.call_keys
        self.keys: CallKeys = _KeysOfRun(run.root) if keys is None else keys
        self.of: tuple[str, int] = self.keys.of
        """The id and the incarnation of the agent whose calls they are."""
        self._run = run

    def taking(self, ready: ReadyCall, hash: str) -> KeyTaking:
        call, rule = ready.call, ready.tool.key
        assert rule is not None, "only of a tool with a key"
        shown = (
            doubt
            for request in call.requests.values()
            if request.kind == "approval"
            for doubt in request.doubts
        )
        return KeyTaking(
            key_hash=hash,
            call_key=call.key,
            tool_name=ready.tool.name,
            tool_call_id=call.part.tool_call_id,
            at=self._run.clock.now(),
            kept=rule.kept,
            # A person has decided about this call and each of these.
            passes=frozenset(self.call_of(doubt) for doubt in shown),
            passes_done=rule.on_repeat == "allow",
        )

    def call_of(self, shown: DoubtfulCall) -> tuple[str, str]:
        """The call that has a key, as in `KeyUse.call`."""
        return shown.agent_id or self.of[0], shown.call_key

    async def hash_of(self, ready: ReadyCall) -> str:
        """The hash of the key of a call.

        Raises:
            UsageError: if its tool's `key` raises, or returns what is no text.

        """
        assert ready.tool.key is not None, "only of a tool with a key"
        return await self.keys.key_hash(ready.tool.key.of(canonical(ready), ready.tool.name))

    async def others(self, taking: KeyTaking) -> list[DoubtfulCall]:
        """The other calls that have a key, as a person is shown them."""
        uses = await self.keys.key_uses(taking.key_hash, taking.at)
        return await self.shown(taking, [use for use in uses if not self._is_call(taking, use)])

    def _is_call(self, taking: KeyTaking, use: KeyUse) -> bool:
        return use[:3] == (*self.of, taking.call_key)

    async def shown(self, taking: KeyTaking, uses: Sequence[KeyUse]) -> list[DoubtfulCall]:
        """The calls among these that count, as a person is shown them.

        A key whose call is over is given back. It was taken right before a process ended, and the
        call was never started.
        """
        shown = []
        for use in uses:
            if taking.passes_done and use.done_at is not None:
                continue
            found = await self._described(use)
            if found is None:
                await self.keys.free_key(taking.key_hash, use)
            else:
                shown.append(found)
        return shown

    async def _described(self, use: KeyUse) -> DoubtfulCall | None:
        """What a person is shown of a call; None if it is over and has done nothing."""
        is_own = use[:2] == self.of
        agent_id = "" if is_own else use.agent_id
        state = self._run.root.state if is_own else None
        if not is_own and not use.is_left:
            state = await self.keys.state_of_use(use)
        if use.done_at is not None:
            at = f" at {use.done_at.isoformat(timespec='seconds')}" if use.done_at > UNREAD else ""
            return DoubtfulCall(
                call_key=use.call_key,
                tool_name=use.tool_name,
                tool_call_id=use.tool_call_id,
                arguments=_arguments_of(state, use),
                reason=f"it was done, or may have been{at}",
                agent=_agent_of(state),
                since=use.done_at,
                agent_id=agent_id,
                status="done",
            )
        if state is None:
            gone = "was deleted before anybody knew what it did"
            return DoubtfulCall(
                call_key=use.call_key,
                tool_name=use.tool_name,
                tool_call_id=use.tool_call_id,
                arguments={},
                reason=f"its agent {gone if use.is_left else 'cannot be read'}",
                agent="",
                since=use.taken_at,
                agent_id=agent_id,
            )
        found = _open_or_doubtful(state, use)
        return None if found is None else replace(found, agent_id=agent_id)


def _agent_of(state: AgentState | None) -> str:
    return "" if state is None or state.run is None else state.run.agent


def _open_or_doubtful(state: AgentState, use: KeyUse) -> DoubtfulCall | None:
    doubt = state.doubts_in_tree.get(use.call_key)
    if doubt is not None:
        return doubt
    for run, call in _calls_of(state):
        if call.key == use.call_key and call.result is None:
            for request in call.pending_requests:
                if request.kind == "doubt":
                    reason, since = request.payload["reason"], request.created_at
                    return doubtful_call(run, call, reason, since)
            under_way = doubtful_call(run, call, "it is under way", use.taken_at)
            return replace(under_way, status="open")
    return None


def _calls_of(state: AgentState) -> Iterator[tuple[RunState, Call]]:
    """The calls of the open turns of the agent and of agents inside it, finished or not."""
    for each in state.tree:
        if each.run is not None and each.run.end is None:
            for call in each.run.calls:
                yield each.run, call


def _arguments_of(state: AgentState | None, use: KeyUse) -> dict[str, Any]:
    """The arguments of a call that is done, as far as its agent has them still."""
    if state is None:
        return {}
    for _, call in _calls_of(state):
        if call.key == use.call_key:
            return last_arguments(call)
    for each in state.tree:
        for message in islice(reversed(each.messages), MOST_MESSAGES):
            for part in message.parts if isinstance(message, ModelResponse) else ():
                if isinstance(part, ToolCallPart) and part.tool_call_id == use.tool_call_id:
                    return part.args_as_dict()
    return {}


# ------------------------------------------------------------- before a person is asked


@dataclass(frozen=True, slots=True)
class KeyLook:
    """What is known of the key of a call before it starts."""

    others: tuple[DoubtfulCall, ...] = ()
    """The calls because of which a person must decide about it."""
    refusal: str | None = None
    """Why it does not run, for the model."""


async def look_at_keys(run: Run, calls: Mapping[str, ReadyCall]) -> dict[str, KeyLook]:
    """The looks at the keys of those calls of a reply that were never started, by call key."""
    of = _Calls(run)
    looks: dict[str, KeyLook] = {}
    before: dict[str, list[DoubtfulCall]] = {}
    for call_key, ready in calls.items():
        if ready.tool.key is None or ready.call.attempts:
            continue  # a call that was started is in doubt, or continues
        try:
            hash = await of.hash_of(ready)
        except UsageError as error:
            looks[call_key] = KeyLook(refusal=_no_key(ready, error))
            continue
        others = await of.others(of.taking(ready, hash))
        refusal = _refusal(ready, others)
        if refusal is None:
            others += before.get(hash, ())
            why = "it comes before this call in the same reply"
            first = replace(
                doubtful_call(run.current, ready.call, why, run.clock.now()),
                arguments=canonical(ready),
                status="open",
            )
            before.setdefault(hash, []).append(first)
        looks[call_key] = KeyLook(tuple(others), refusal)
    return looks


def _no_key(ready: ReadyCall, error: UsageError) -> str:
    """The text for the model if the key of a call cannot be made. The reason is logged."""
    logger.warning("call %s is not run: %s", ready.call.key, error, extra=log_fields())
    return f"Not run: {error}"


def _refusal(ready: ReadyCall, others: Sequence[DoubtfulCall]) -> str | None:
    """Why the call does not run, if nobody is to be asked."""
    assert ready.tool.key is not None, "only of a tool with a key"
    is_refused = ready.tool.key.on_repeat == "refuse" and others
    if not is_refused or any(other.status != "done" for other in others):
        return None
    return REPEATED


# ----------------------------------------------------------------- right before the start


async def start_with_keys(run: Run, batch: Sequence[ReadyCall]) -> list[ReadyCall]:
    """Take the keys of these calls, and record that they start, without the calls that are held up.

    A call takes its key before its start is recorded. Of two calls that do so at once, one is held
    up. A process that ends in between leaves a key that the same call finds again.
    """
    of = _Calls(run)
    hashes: dict[str, str] = {}
    started = []
    for ready in batch:
        held = run.state.held_keys.get(ready.call.key)
        if ready.tool.key is None or (held is not None and not held.is_copied):
            started.append(ready)
            continue
        hash = await _taken(run, of, ready)
        if hash is not None:
            hashes[ready.call.key] = hash
            started.append(ready)
    # Race: while a key was taken, another call may have come into doubt.
    blocked = [ready for ready in started if hashes and blocked_by_doubt(run, ready)]
    started = [ready for ready in started if ready not in blocked]
    for ready in started:
        if ready.call.check is None:  # a call with a check does not start: its check is asked
            record_started(run, ready, hashes.get(ready.call.key))
    for ready in blocked:
        hash = hashes.get(ready.call.key)
        if hash is not None:
            await of.keys.free_key(hash, of.taking(ready, hash).use_of(*of.of))
    return started


async def _taken(run: Run, of: _Calls, ready: ReadyCall) -> str | None:
    """The hash of the key that the call has taken; None if it does not start, which is recorded."""
    try:
        hash = await of.hash_of(ready)
    except UsageError as error:
        await _refuse(run, ready, _no_key(ready, error))
        return None
    while True:
        taking = of.taking(ready, hash)
        uses = await of.keys.take_key(taking)
        if not uses:
            return hash
        others = await of.shown(taking, uses)
        news = [other for other in others if of.call_of(other) not in taking.passes]
        if news:
            break
    refusal = _refusal(ready, news)
    if refusal is not None:
        await _refuse(run, ready, refusal)
        return None
    known = {(other.agent_id, other.call_key) for other in others}
    doubts = [each for each in doubts_about(run, ready) if ("", each.call_key) not in known]
    request_with_doubts(run, ready, (*doubts, *others))
    return None


async def _refuse(run: Run, ready: ReadyCall, text: str) -> None:
    await end_agents_of(run, ready.call.key)
    run.record(failed_result(run, ready.call, text))
