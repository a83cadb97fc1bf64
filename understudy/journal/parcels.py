"""Parcels: what a host sends to others at once, in texts of which each may be lost.

A database carries short texts between hosts, so a parcel is compressed, and cut into pieces. A host
that lacks one of them lacks the parcel.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from understudy.journal.shared import Hint

PARCELS = frozenset({"follow", "follow_feed", "live"})
"""The kinds of hints that are pieces of parcels: whom a host follows; that it follows the feed;
what happened."""
PIECE = 7_800
"""Characters of a piece. PostgreSQL takes less than 8,000 bytes, with what says whose it is."""


def pieces_of(kind: str, host_id: int, number: int, content: Any) -> list[str]:
    """The texts of a parcel.

    Args:
        kind: of the `Hint` that each of them is.
        host_id: of the host that sends it.
        number: of the parcel, at this host.
        content: JSON-able.

    """
    packed = base64.b64encode(zlib.compress(json.dumps(content).encode("ascii"))).decode("ascii")
    pieces = [packed[at : at + PIECE] for at in range(0, len(packed), PIECE)]
    return [
        str(Hint(kind, host_id, f"{number} {at} {len(pieces)} {piece}"))
        for at, piece in enumerate(pieces)
    ]


class Parcels:
    """Puts parcels of other hosts together."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int], tuple[int, dict[int, str]]] = {}
        """By kind and host, the number of its last parcel, and the pieces of it."""

    def add(self, hint: Hint) -> Any:
        """The content, with its last piece; None before. It comes once."""
        number, at, count, piece = hint.agent_id.split(" ")
        key = hint.kind, hint.number
        last, pieces = self._begun.get(key, (-1, {}))
        if int(number) != last:
            pieces = {}
            self._begun[key] = int(number), pieces
        is_new = int(at) not in pieces
        pieces[int(at)] = piece
        if not is_new or len(pieces) < int(count):
            return None
        packed = "".join(pieces[each] for each in range(int(count)))
        # What was repeated because the answer was lost comes once: the places stay taken.
        self._begun[key] = int(number), dict.fromkeys(pieces, "")
        return json.loads(zlib.decompress(base64.b64decode(packed)))
