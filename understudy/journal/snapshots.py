"""Snapshots of long conversations: their messages follow in records of their own.

A record is written and read in one piece, and that of a whole conversation would stop all other
agents of the loop. Its messages are known to be what a record can hold: each came in one. So they
are written by Pydantic's own code, and read back, for what was changed since.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from datetime import datetime

from pydantic_ai.messages import ModelMessage
from pydantic_core import to_json

from understudy._base.pieces import ITEMS
from understudy.errors import RecordRefused
from understudy.journal.codec import EncodedRecord
from understudy.models.messages import (
    Messages,
    messages_from_json,
    messages_to_dicts,
    messages_to_json,
)
from understudy.state.agent_state import AgentState
from understudy.state.record_format import FORMAT_VERSION
from understudy.state.records import Snapshot, SnapshotMessages

_PART_BYTES = 1024 * 1024
"""Messages that are larger together have a record each."""


def snapshot_of(state: AgentState, *, at: datetime, by: str | None) -> Snapshot:
    """The snapshot of a state whose messages follow: see `SnapshotMessages`."""
    return Snapshot(state=state.head(), following=len(state.messages), at=at, by=by)


def parts_of(messages: Messages, at: datetime | None) -> list[SnapshotMessages]:
    """The records of the messages of a snapshot."""
    return [
        SnapshotMessages(messages=tuple(messages[start : start + ITEMS]), at=at)
        for start in range(0, len(messages), ITEMS)
    ]


def encoding_parts(
    messages: Messages, at: datetime | None, *, max_bytes: int
) -> Generator[None, None, list[EncodedRecord]]:
    """The work of encoding the records of the messages of a snapshot, for `in_pieces`.

    Raises:
        RecordRefused: if a message cannot be written any more, or is larger than `max_bytes`.

    """
    yield from messages.reading()
    time = b"" if at is None else b',"at":' + to_json(at)
    encoded: list[EncodedRecord] = []
    for start in range(0, len(messages), ITEMS):
        yield
        part = messages[start : start + ITEMS]
        payloads = [(yield from _encoding(part))]
        if len(payloads[0]) > _PART_BYTES:
            payloads = []
            for message in part:
                yield
                payloads.append((yield from _encoding([message])))
        for payload in payloads:
            if len(payload) > max_bytes:
                why = f"it has {len(payload):,} bytes; at most {max_bytes:,} are kept"
                raise RecordRefused(kind="snapshot_messages", why=why)
            row = b'{"messages":%b%b}' % (payload, time)
            encoded.append(EncodedRecord("snapshot_messages", FORMAT_VERSION, row))
    return encoded


def _encoding(messages: list[ModelMessage]) -> Generator[None, None, bytes]:
    try:
        payload = messages_to_json(messages)
        yield
        with suppress(ValueError):
            if messages_from_json(payload) == messages:
                return payload
        yield
        payload = to_json(messages_to_dicts(messages))
        yield
        messages_from_json(payload)
    except Exception as error:  # what a hook or tool has put into a message may raise anything
        why = f"it could not be read again: {type(error).__name__}: {error}"
        raise RecordRefused(kind="snapshot_messages", why=why) from None
    return payload
