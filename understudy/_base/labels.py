"""Labels: short texts that say what a host has, and what an agent needs of one."""

from __future__ import annotations

from collections.abc import Iterable

from understudy._base.json_values import is_storable_text, shown
from understudy.errors import UsageError

LONGEST = 100
"""Characters of a label."""
MOST = 100
"""Labels of a host, or of an agent."""


def checked_labels(given: object, *, what: str) -> frozenset[str]:
    """The labels, as a set.

    Raises:
        UsageError: if they are not some short texts.

    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise UsageError(f"{what} must be a set of texts, such as {{'gpu'}}, got {shown(given)}")
    labels = list(given)
    for label in labels:
        is_text = isinstance(label, str) and is_storable_text(label) and label.isprintable()
        if not is_text or label != label.strip() or not 1 <= len(label) <= LONGEST:
            raise UsageError(
                f"{what}: a label is a text of 1 to {LONGEST} printable characters, without spaces "
                f"around it, such as 'gpu', got {shown(label)}"
            )
    if len(labels) > MOST:
        raise UsageError(f"{what} must be at most {MOST} labels, got {len(labels)}")
    return frozenset(labels)
