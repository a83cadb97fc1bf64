"""The report of a replay: calls that are decided differently, first differences, costs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from understudy._base.usd import NOTHING, shown_usd, usd_text
from understudy.trust.trial import Change, Fate

ORDER: tuple[Change, ...] = (
    "newly_unasked",
    "no_longer_denied",
    "asked_others",
    "newly_denied",
    "newly_asked",
)
"""The changes, the most dangerous first."""
_SAID: dict[Change, str] = {
    "newly_unasked": "would now run UNASKED: persons were asked, or a rule denied it",
    "no_longer_denied": "a rule denied it, and now persons would be asked",
    "asked_others": "other persons would be asked",
    "newly_denied": "would now be denied by a rule",
    "newly_asked": "persons would now be asked, who were not",
}
SHOWN = 10
"""The maximum number of calls and conversations in the text; `to_dict` has all."""
WIDTH = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCall:
    """A call that would now be decided differently."""

    change: Change
    agent_id: str
    call_key: str
    agent_path: tuple[str, ...]
    tool: str
    text: str
    """The call with its arguments, as text for people."""
    at: datetime | None
    before: Fate
    now: Fate
    decided: str
    """The recorded decision of persons, in words."""
    was_rejected: bool
    """Whether a person had rejected the call, or a rule had denied it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the call as plain data."""
        return {
            "change": self.change,
            "agent_id": self.agent_id,
            "call": self.call_key,
            "agent_path": list(self.agent_path),
            "tool": self.tool,
            "text": self.text,
            "at": None if self.at is None else self.at.isoformat(),
            "before": self.before,
            "now": self.now,
            "decided": self.decided,
            "was_rejected": self.was_rejected,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place at which a conversation goes another way."""

    agent_id: str
    run_id: str
    before: str
    """What happened before, in words; empty if nothing happened."""
    now: str
    """What happens now, in words."""

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return {
            "agent_id": self.agent_id,
            "run": self.run_id,
            "before": self.before,
            "now": self.now,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReplayed:
    """A run, or the rest of a run, that could not be replayed."""

    agent_id: str
    run_id: str | None
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"agent_id": self.agent_id, "run": self.run_id, "why": self.why}


@dataclass(slots=True)
class CostOf:
    """The cost of replies of models."""

    usd: Decimal = NOTHING
    """The cost in USD."""
    replies: int = 0
    """The number of replies."""
    unknown: int = 0
    """The number of replies whose cost is not known."""

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as plain data."""
        return {"usd": usd_text(self.usd), "replies": self.replies, "unknown": self.unknown}

    def __str__(self) -> str:
        more = f", and {self.unknown} replies of unknown cost" if self.unknown else ""
        return f"{shown_usd(self.usd)}{more}"


@dataclass(slots=True)
class Replay:
    """The result of a replay. `str` of it is a text for people, the most dangerous changes first.

    `assert not found.newly_unasked, found` is a test of a new version.
    """

    agent: str
    """The name of the agent's definition."""
    asked_model: bool
    """Whether the model was asked. If not, its replies came from the records."""
    conversations: int = 0
    runs: int = 0
    """The number of runs that were replayed, at least in part."""
    calls: int = 0
    """The number of calls of tools on which gates, rules and middleware were asked before
    and now."""
    changes: list[ChangedCall] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    """The first difference of each conversation that has one."""
    not_replayed: list[NotReplayed] = field(default_factory=list)
    cost_before: CostOf = field(default_factory=CostOf)
    """The cost of the recorded replies."""
    cost_now: CostOf = field(default_factory=CostOf)
    """The cost of the replay itself: nothing if no model is asked."""

    @property
    def newly_unasked(self) -> list[ChangedCall]:
        """The calls that persons were asked about, or that a rule denied, and that would now
        run.
        """
        return self.of("newly_unasked")

    @property
    def newly_asked(self) -> list[ChangedCall]:
        """The calls that nobody was asked about, and that persons would now be asked about."""
        return self.of("newly_asked")

    def of(self, change: Change) -> list[ChangedCall]:
        """Return the calls with this change; calls that were rejected come first."""
        found = [each for each in self.changes if each.change == change]
        return sorted(found, key=lambda each: not each.was_rejected)

    def note_unread(self, agent_id: str, why: str) -> None:
        """Note an agent whose records could not be read."""
        self.not_replayed.append(NotReplayed(agent_id=agent_id, run_id=None, why=why))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "agent": self.agent,
            "asked_model": self.asked_model,
            "conversations": self.conversations,
            "runs": self.runs,
            "calls": self.calls,
            "changes": {change: [e.to_dict() for e in self.of(change)] for change in ORDER},
            "differences": [each.to_dict() for each in self.differences],
            "not_replayed": [each.to_dict() for each in self.not_replayed],
            "cost": {"before": self.cost_before.to_dict(), "now": self.cost_now.to_dict()},
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    @property
    def headline(self) -> str:
        """The first line, with the most important result."""
        unasked = self.newly_unasked
        if unasked:
            tools = Counter(each.tool for each in unasked)
            named = ", ".join(f"{tool} ({count})" for tool, count in tools.most_common(3))
            more = f" and {len(tools) - 3} other tools" if len(tools) > 3 else ""
            rejected = sum(each.was_rejected for each in unasked)
            also = f", {rejected} of them rejected then" if rejected else ""
            calls = "1 call" if len(unasked) == 1 else f"{len(unasked)} calls"
            return f"DANGER: {calls} would now run unasked: {named}{more}{also}"
        if not self.runs:
            return "Nothing was replayed."
        of = f"{_count(self.runs, 'run')} of {_count(self.conversations, 'conversation')}"
        if self.changes:
            return f"{_count(len(self.changes), 'call')} asked about otherwise, in {of}"
        if self.differences:
            return f"{_count(len(self.differences), 'conversation')} went otherwise, of {of}"
        if self.not_replayed:
            return f"No difference in what could be replayed of {of}"
        return f"No difference in {of}"

    def _lines(self) -> Iterator[str]:
        yield from _wrapped(self.headline, "", "  ")
        model = (
            "the model was asked"
            if self.asked_model
            else "the model's replies are the recorded ones"
        )
        yield from _wrapped(
            f"agent {self.agent!r}: {_count(self.runs, 'run')} of "
            f"{_count(self.conversations, 'conversation')}, {_count(self.calls, 'call')} of tools; "
            f"{model}",
            "",
            "  ",
        )
        for change in ORDER:
            found = self.of(change)
            if not found:
                continue
            yield ""
            yield from _wrapped(
                f"{change.replace('_', ' ')}: {len(found)} ({_SAID[change]})", "", "  "
            )
            for each in found[:SHOWN]:
                at = "" if each.at is None else f", {each.at:%Y-%m-%d}"
                yield from _wrapped(each.text, "  ", "    ")
                yield from _wrapped(f"{each.agent_id}{at}: {each.decided}", "      ", "      ")
            yield from _more(len(found))
        if self.differences:
            yield ""
            yield f"first differences: {_count(len(self.differences), 'conversation')}"
            for difference in self.differences[:SHOWN]:
                yield from _wrapped(difference.agent_id, "  ", "  ")
                yield from _wrapped(f"then: {difference.before or '-'}", "    ", "      ")
                yield from _wrapped(f"now:  {difference.now or '-'}", "    ", "      ")
            yield from _more(len(self.differences))
        if self.not_replayed:
            yield ""
            reasons = Counter(each.why for each in self.not_replayed)
            yield f"not replayed, at least in part: {len(self.not_replayed)}"
            for why, count in reasons.most_common(SHOWN):
                yield from _wrapped(f"{count}: {why}", "  ", "     ")
            yield from _more(len(reasons))
        yield ""
        yield from _wrapped(
            f"cost: {self.cost_before} then; {self.cost_now} for this replay", "", "  "
        )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _more(count: int) -> Iterator[str]:
    if count > SHOWN:
        yield f"  and {count - SHOWN} more"


def _wrapped(text: str, first: str, then: str) -> list[str]:
    line = " ".join(text.split())
    return textwrap.wrap(
        line, WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False
    ) or [first]
