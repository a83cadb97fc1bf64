"""What a store holds of an agent, read by public names alone: the durable side of each story."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from understudy.state import records as r
from understudy.state.records import record_from_dict

__all__ = ["Facts", "facts_of"]


@dataclass(slots=True)
class Facts:
    """The durable facts of an agent, of those that it runs too."""

    newest: int = 0
    """Number of the newest record."""
    started: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    """Runs that are over."""
    messages: set[str] = field(default_factory=set)
    """Ids of the messages that were taken."""
    once: set[tuple[str, str]] = field(default_factory=set)
    calls: dict[str, set[str]] = field(default_factory=dict)
    """Of each reply, `run.turn`, the keys of its calls."""
    epoch_of: dict[str, int] = field(default_factory=dict)
    """Under which each call was started last."""


def facts_of(exported: Mapping[str, Any]) -> Facts:
    """The facts in what `runtime.export` gave."""
    facts = Facts(newest=exported["first_seq"] + len(exported["records"]) - 1)
    runs: dict[str, str] = {}
    for data in exported["records"]:
        record = record_from_dict(data)
        where = "".join(f"/{each.child}" for each in r.agents_inside(record))
        _note(facts, runs, where, r.innermost(record))
    return facts


def _note(facts: Facts, runs: dict[str, str], where: str, record: Any) -> None:
    match record:
        case r.RunStarted(run_id=run_id, message_ids=ids):
            runs[where] = run_id
            facts.messages.update(ids)
        case r.MessageQueued(message_id=message_id):
            facts.messages.add(message_id)
        case r.Reply(turn=turn, response=response):
            reply = f"{runs[where]}.{turn}"
            facts.calls[reply] = {f"{reply}.{n}" for n in range(len(response.tool_calls))}
        case r.Started(call_key=key, epoch=epoch):
            facts.started.add(key)
            facts.epoch_of[key] = epoch
        case r.Result(call_key=key):
            facts.finished.add(key)
        case r.Once(key=key):
            facts.once.add((runs[where], key))
        case r.RunEnded():
            facts.ended.add(runs[where])
