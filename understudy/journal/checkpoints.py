"""Checkpoints: the folded states of agents, kept beside their records, to activate them.

A checkpoint is a cache. It is a head, which is the state without its messages, and segments of
messages, which are written once and never changed: so the checkpoints of an agent take up linear
time and space. Its records say the same, and are folded where a checkpoint is missing, damaged, or
of another version of the fold.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pydantic_ai
from pydantic_ai.messages import ModelMessage

from understudy._base.pieces import ITEMS
from understudy.errors import SchemaVersionError, UsageError
from understudy.journal.codec import encode_messages
from understudy.models.messages import Messages
from understudy.state.agent_state import AgentState
from understudy.state.fold import FOLD_VERSION

VERSION: str = f"{FOLD_VERSION}/{pydantic_ai.__version__}"
"""The version of the code that makes and reads states and messages. Another one reads records."""
SEGMENT_MESSAGES = ITEMS
"""Messages in one segment, at most. A segment is decoded in one piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Some messages of an agent, as a store keeps them."""

    number: int
    """The number of the segment, from 0."""
    messages: int
    """How many messages it has."""
    payload: bytes
    """The messages, as JSON in UTF-8. A store keeps the bytes as they are."""
    crc: int
    """The checksum of the payload and its place: 0 to 4,294,967,295. Whoever reads the checkpoint
    compares it; a store only keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The state of an agent after one of its records, as a store keeps it."""

    seq: int
    """The number of the record after which the state is."""
    head: bytes
    """The state without its messages, as JSON in UTF-8. A store keeps the bytes as they are."""
    crc: int
    """The checksum of the head: 0 to 4,294,967,295."""
    segments: tuple[Segment, ...]
    """The segments of the agent, in order: all of them where the checkpoint is read. Where it is
    written: only the segments that the store does not have yet, if any."""
    first_segment: int = 0
    """The number from which on stored segments are replaced by `segments`, where the checkpoint is
    written. Stored segments with lower numbers stay. 0: none stays."""


class KeptMessages(NamedTuple):
    """Which messages of an agent are in the segments of its store."""

    lineage: object
    """The lineage of the conversation: see `Messages.lineage`."""
    origin: int
    """The `seq` of the checkpoint with the first of these segments."""
    segments: int
    messages: int


class WokenState(NamedTuple):
    """The state of a checkpoint."""

    state: AgentState
    seq: int
    kept: KeptMessages | None
    """The messages in the segments of the store; None where the store has no checkpoint: this state
    comes from memory."""
    since: int
    """The number behind which records are counted until the next checkpoint."""


def after_writing(kept: KeptMessages, messages: int) -> KeptMessages:
    """What is in segments once so many further messages are."""
    return kept._replace(
        segments=kept.segments + -(-messages // SEGMENT_MESSAGES),
        messages=kept.messages + messages,
    )


def dump_head(state: AgentState, kept: KeptMessages) -> bytes:
    """The state without its messages, which are those that are kept.

    Raises:
        Exception: if it holds what no record can hold.

    """
    data = {
        "version": VERSION,
        "origin": kept.origin,
        "segments": kept.segments,
        "messages": kept.messages,
        "state": state.head(),
    }
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def make_checkpoint(
    incarnation: int,
    seq: int,
    head: bytes,
    kept: KeptMessages,
    messages: Sequence[ModelMessage],
) -> Checkpoint:
    """The checkpoint to write.

    Args:
        incarnation: of the agent.
        seq: of the record that the head is of.
        head: of `dump_head`.
        kept: what the store has in segments so far.
        messages: those that follow.

    Raises:
        Exception: if a message is not what it was when it was recorded.

    """
    encoded = encode_messages(messages)
    segments: list[Segment] = []
    for start in range(0, len(encoded), SEGMENT_MESSAGES):
        part = encoded[start : start + SEGMENT_MESSAGES]
        number, payload = kept.segments + len(segments), b"[%b]" % b",".join(part)
        crc = _segment_crc(incarnation, kept.origin, number, len(part), payload)
        segments.append(Segment(number=number, messages=len(part), payload=payload, crc=crc))
    return Checkpoint(
        seq=seq,
        head=head,
        crc=_head_crc(incarnation, seq, head),
        segments=tuple(segments),
        first_segment=kept.segments,
    )


def read_checkpoint(found: Checkpoint, incarnation: int) -> WokenState | None:
    """The state of a stored checkpoint; None if it cannot be used. It decodes no message."""
    try:
        if _head_crc(incarnation, found.seq, found.head) != found.crc:
            return None
        data: dict[str, Any] = json.loads(found.head)
        if data["version"] != VERSION:
            return None
        kept = KeptMessages(object(), data["origin"], data["segments"], data["messages"])
        if not _are_whole(found.segments, incarnation, kept):
            return None
        messages = Messages.packed([each.payload for each in found.segments], kept.messages)
        state = AgentState.from_head(data["state"], messages)
    except (UsageError, SchemaVersionError, ValueError, LookupError, TypeError):
        return None  # a newer version writes it in another form; or damage made text of its bytes
    return WokenState(state, found.seq, kept._replace(lineage=messages.lineage), found.seq)


def _are_whole(segments: Sequence[Segment], incarnation: int, kept: KeptMessages) -> bool:
    """Whether these are the segments of the head, as they were written."""
    return (
        [each.number for each in segments] == list(range(kept.segments))
        and sum(each.messages for each in segments) == kept.messages
        and all(
            _segment_crc(incarnation, kept.origin, each.number, each.messages, each.payload)
            == each.crc
            for each in segments
        )
    )


def _head_crc(incarnation: int, seq: int, head: bytes) -> int:
    return zlib.crc32(head, zlib.crc32(b"%d/%d" % (incarnation, seq)))


def _segment_crc(incarnation: int, origin: int, number: int, messages: int, payload: bytes) -> int:
    """The sum of a segment and its place: what another checkpoint left there is not taken."""
    place = b"%d/%d/%d/%d" % (incarnation, origin, number, messages)
    return zlib.crc32(payload, zlib.crc32(place))
