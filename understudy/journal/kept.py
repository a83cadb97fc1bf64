"""What a database may keep besides records: which methods of a `Backend` each kind needs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from understudy.errors import UsageError

Kept = Literal[
    "checkpoints",
    "decided",
    "feed",
    "files",
    "keys",
    "messages",
    "notes",
    "notices",
    "search",
    "spending",
    "trust",
    "usage",
]
"""What a store may keep besides records and their index."""
ALL_KEPT: frozenset[Kept] = frozenset(get_args(Kept))


class KeptKind(NamedTuple):
    """What one value of `Backend.keeps` asks of a backend."""

    feature: str
    """What users get by it."""
    methods: tuple[str, ...]
    """The methods of `Backend` that it needs."""
    fields: tuple[str, ...] = ()
    """The fields of `Batch` that `append` keeps for it."""
    shared: tuple[str, ...] | None = None
    """The methods that a `SharedBackend` needs instead; None: the same."""

    def methods_of(self, *, is_shared: bool) -> tuple[str, ...]:
        """The methods that a backend needs which hosts share, or do not."""
        return self.shared if is_shared and self.shared is not None else self.methods


_TRUST = ("trust_seen", "trust_after", "add_trust")
# The docstring of `Backend` has this table, too: tests/journal/test_kept.py compares them.
KEPT: Mapping[Kept, KeptKind] = MappingProxyType(
    {
        "checkpoints": KeptKind(
            "agents that wake from their last state, not from all records",
            ("write_checkpoint", "load_latest"),
        ),
        "decided": KeptKind(
            "decisions on requests, over all agents",
            ("list_decided", "count_decided"),
            ("decided",),
        ),
        "feed": KeptKind(
            "`Runtime(feed=True)`",
            ("turn_feed", "add_deletions", "trim_feed", "read_feed"),
            ("feed",),
        ),
        "files": KeptKind(
            "files of agents, as of `Workspace`", ("load_blobs",), ("blobs", "blobs_in_use")
        ),
        "keys": KeptKind(
            "`@tool(key=...)`",
            (
                *("key_secret", "key_uses", "take_key", "free_key"),
                *("has_old_keys", "delete_old_keys"),
            ),
            ("key_ends",),
        ),
        "messages": KeptKind(
            "ids of old messages, which are not in the agent's state any more",
            ("message_runs",),
            ("message_runs",),
        ),
        "notes": KeptKind(
            "comments beside requests", ("add_note", "notes", "has_notes", "sweep_notes")
        ),
        "notices": KeptKind("`Runtime(notify=...)`", ("outbox", "notices")),
        "search": KeptKind(
            "`Runtime(search=True)`",
            ("turn_search", "search_state", "unindexed", "index", "search"),
        ),
        "spending": KeptKind(
            "budgets",
            ("load_spending", "keep_reserved", "counters"),
            ("settlements",),
            shared=("reserve_all", "open_spending", "counters"),
        ),
        "trust": KeptKind(
            "freezes, rules and delegations of the whole store",
            _TRUST,
            shared=(
                *(*_TRUST, "acknowledge_trust", "hosts_behind", "provide", "hosts_without"),
                "require_trust",
            ),
        ),
        "usage": KeptKind("`Runtime(usage=True)`", ("read_usage",), ("used",)),
    }
)
"""The methods and fields that each value of `Backend.keeps` asks of a backend, by the value."""


def kept_by(method: str) -> Kept | None:
    """The value of `Backend.keeps` that needs this method of a backend; None if none does."""
    return next((kept for kept, kind in KEPT.items() if method in kind.methods), None)


_NOUNS = {
    "decided": "decisions (those of one agent are `ref.decisions()`)",
    "trust": "log of trust",
}


def not_kept(store: object, what: Kept) -> UsageError:
    """The error by which a store or a backend refuses what it does not keep."""
    noun = _NOUNS.get(what, what)
    return UsageError(f"{store!r} keeps no {noun}: {what!r} is not in its `keeps`")
