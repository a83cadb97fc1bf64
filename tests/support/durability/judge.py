"""What must hold of each story when it is over, read from the side log."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tests.support.durability.side_log import SideLog

__all__ = ["violations"]

REPEATABLE = ("note",)
TWICE = ("mail", "one")
"""The tool, and its argument, that the story calls twice."""


def violations(log: SideLog, expected: dict[str, Any] | None) -> list[str]:
    """Everything that is wrong with a story; nothing, if all is well.

    Args:
        expected: the end of each agent; None if the story itself is what others compare with.

    """
    found = [entry.of[0] for entry in log.read("violation")]
    found += _repeated(log)
    found += _effects(log)
    found += _once(log)
    found += _ends(log, expected)
    found += _doubts(log)
    return found


def _repeated(log: SideLog) -> Iterator[str]:
    """A finished call never runs again; one that was started, not without a person (J3, J4)."""
    since: dict[str, int] = {}
    for entry in log.read("finished"):
        since.setdefault(entry.of[0], entry.life)
    allowed = Counter(entry.of[0] for entry in log.read("repeat allowed"))
    entered: Counter[str] = Counter()
    for entry in log.read("enter"):
        key, tool, what = entry.of
        entered[key] += 1
        if key in since and entry.life >= since[key]:
            yield f"finished call {key} ({tool} of {what}) ran again in life {entry.life}"
    tools = {entry.of[0]: entry.of[1] for entry in log.read("enter")}
    for key, times in entered.items():
        if tools[key] not in REPEATABLE and times > 1 + allowed[key]:
            yield f"call {key} of {tools[key]} ran {times} times, without a person"


def _effects(log: SideLog) -> Iterator[str]:
    """Each effect happened once for each call; of what may be repeated at least once (J11)."""
    keys: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for entry in log.read("effect"):
        key, tool, what = entry.of
        keys[key.partition(".")[0], tool, what][key] += 1
    for (_, tool, what), counted in keys.items():
        if len(counted) > (2 if (tool, what) == TWICE else 1):
            yield f"{tool} of {what} took effect under {len(counted)} call keys"
        if tool not in REPEATABLE and max(counted.values()) > 1:
            yield f"{tool} of {what} took effect {counted.total()} times"


def _once(log: SideLog) -> Iterator[str]:
    """What `run.once` has done is not done again (J15)."""
    since: dict[tuple[str, ...], int] = {}
    for entry in log.read("once finished"):
        since.setdefault(entry.of, entry.life)
    for entry in log.read("once"):
        if entry.of in since and entry.life >= since[entry.of]:
            yield f"once {entry.of[1]!r} was done again"


def _ends(log: SideLog, expected: dict[str, Any] | None) -> Iterator[str]:
    ends = {entry.of[0]: json.loads(entry.of[1]) for entry in log.read("end")}
    if not log.read("served"):
        yield "it did not come to its end"
    for agent_id, end in ends.items():
        said = Counter(part[1] for part in end["conversation"] if part[0] == "user")
        if said != {"begin": 1, "and then?": 1}:
            yield f"{agent_id} was told {dict(said)}"
        if not end["over"]:
            yield f"{agent_id} has not finished"
    for agent_id, end in ends.items():
        wanted = expected.get(agent_id) if expected is not None else end
        if _settled(end) != _settled(wanted):
            yield f"{agent_id} ended differently: {_difference(wanted, end)}"


def _settled(end: Any) -> Any:
    """The end without what a doubt may change in it: the text for the model about a mail."""
    conversation = [
        part[:2] if part[:2] == ["result", "mail"] else part for part in end["conversation"]
    ]
    return {**end, "conversation": conversation, "doubts": []}


def _doubts(log: SideLog) -> Iterator[str]:
    """While a call is in doubt, an equal one needs a person, and another one needs nobody (J4)."""
    approved = {entry.of[0] for entry in log.read("approved")}
    mails = {entry.of[0]: entry.of[2] for entry in log.read("enter") if entry.of[1] == "mail"}
    for entry in log.read("end"):
        if entry.of[0] != "letter":
            continue
        doubts = set(json.loads(entry.of[1])["doubts"])
        for key, what in mails.items():
            equal = {doubt for doubt in doubts if doubt < key and mails.get(doubt, what) == what}
            if what == "one" and equal and key not in approved:
                yield f"mail of {what} ran without a person while {sorted(equal)} is in doubt"
            if what == "two" and key in approved:
                yield f"a person was asked about the mail of {what}, which equals no other one"


def _difference(expected: Any, end: Any) -> str:
    if not isinstance(expected, dict):
        return f"{end} instead of {expected}"
    other = [key for key in end if end[key] != expected.get(key)]
    return "; ".join(f"{key}: {end[key]} instead of {expected.get(key)}" for key in other)
