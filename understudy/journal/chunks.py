"""Large hints between hosts: compressed, and cut into chunks that a database carries.

A database carries short texts between hosts. Each chunk may be lost; a host that lacks a chunk
lacks the whole content.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from understudy.journal.shared import Hint

CHUNKED = frozenset({"follow", "follow_feed", "live", "beside"})
"""The kinds of hints that come in chunks: whom a host follows; that it follows the feed;
what happened; who looks at requests, and what is written beside them."""
CHUNK_SIZE = 7_800
"""Characters of a chunk. PostgreSQL takes less than 8,000 bytes, with what says whose it is."""


def chunks_of(kind: str, host_id: int, number: int, content: Any) -> list[str]:
    """The content as hints, each with one chunk.

    Args:
        kind: of the `Hint` that each of them is.
        host_id: of the host that sends it.
        number: of the content, at this host; it grows.
        content: JSON-able.

    """
    packed = base64.b64encode(zlib.compress(json.dumps(content).encode("ascii"))).decode("ascii")
    chunks = [packed[at : at + CHUNK_SIZE] for at in range(0, len(packed), CHUNK_SIZE)]
    return [
        str(Hint(kind, host_id, f"{number} {at} {len(chunks)} {chunk}"))
        for at, chunk in enumerate(chunks)
    ]


class Chunks:
    """Puts the chunks of other hosts together."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int], tuple[int, dict[int, str]]] = {}
        """The newest content by kind and host: its number, and its chunks so far by place."""

    def add(self, hint: Hint) -> Any:
        """The content, with its last chunk; None before. It comes once."""
        number, at, count, chunk = hint.agent_id.split(" ")
        key = hint.kind, hint.number
        last, chunks = self._begun.get(key, (-1, {}))
        if int(number) != last:
            chunks = {}
            self._begun[key] = int(number), chunks
        is_new = int(at) not in chunks
        chunks[int(at)] = chunk
        if not is_new or len(chunks) < int(count):
            return None
        packed = "".join(chunks[each] for each in range(int(count)))
        # What was repeated because the answer was lost comes once: the places stay taken.
        self._begun[key] = int(number), dict.fromkeys(chunks, "")
        return json.loads(zlib.decompress(base64.b64decode(packed)))
