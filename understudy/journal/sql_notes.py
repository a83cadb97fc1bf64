"""`SqlNotes`: what people write beside requests, in an SQL database."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from datetime import datetime
from functools import partial

from understudy._base.log_fields import log_extra
from understudy.journal.contracts import time_number
from understudy.journal.lists import NEVER
from understudy.journal.notes import StoredNote
from understudy.journal.notes_sql import OF_REQUEST
from understudy.journal.sql_backend import Rows, Values, among
from understudy.journal.sql_keys import SqlKeys
from understudy.state.request_notes import KEPT_NOTES, RESTS, RequestNote, note_of

logger: logging.Logger = logging.getLogger(__name__)

_ADD = """
INSERT INTO request_notes
    (agent, incarnation, id, request, kind, slot, person, until, at, payload)
SELECT key, incarnation, %(id)s::text, %(request)s::text, %(kind)s::text, %(slot)s::text,
    %(person)s::text, %(until)s::int8, %(at)s::int8, %(payload)s::bytea
FROM agents WHERE agent_id = %(agent_id)s AND NOT deleted
ON CONFLICT (id) DO NOTHING RETURNING no"""
_THERE = "SELECT no FROM request_notes WHERE id = %s"
_NOTES = """
SELECT a.agent_id, n.request, {payload}
FROM request_notes n JOIN agents a ON a.key = n.agent AND a.incarnation = n.incarnation
WHERE NOT a.deleted"""
_NO_TEXTS = "CASE WHEN n.kind = 'comment' THEN NULL ELSE n.payload END"
_IS_ASKED = f"""EXISTS (
    SELECT 1 FROM asks k JOIN agents a ON a.key = k.agent
    WHERE k.agent = n.agent AND k.kind = 'request' AND a.incarnation = n.incarnation
    AND {OF_REQUEST.format("n")})"""  # noqa: S608 - of a constant
_ANY = "SELECT no FROM request_notes LIMIT 1"
_ASKED_AGAIN = f"""
UPDATE request_notes AS n SET ended_at = NULL
WHERE n.ended_at IS NOT NULL AND {_IS_ASKED} RETURNING no"""  # noqa: S608 - as above
_ENDED = f"""
UPDATE request_notes AS n SET ended_at = %s
WHERE n.ended_at IS NULL AND n.at <= %s AND NOT {_IS_ASKED} RETURNING no"""  # noqa: S608 - as above
_GO = "DELETE FROM request_notes WHERE ended_at <= %s RETURNING no"


class SqlNotes(SqlKeys):
    """The notes beside requests in an SQL database."""

    def _note(self, query: str, values: Values = ()) -> Rows:
        """The rows of a statement that changes notes, in the writer's transaction."""
        return self._fetch(query, values)

    def add_note(self, agent_id: str, request_id: str, note: RequestNote) -> bool:
        if not self._can_keep(agent_id):
            return False
        ends = NEVER if note.kind == "assign" else 0
        values = {
            "agent_id": agent_id,
            "id": note.id,
            "request": request_id,
            "kind": note.kind,
            "slot": note.slot,
            "person": note.person,
            "until": ends if note.until is None else time_number(note.until),
            "at": time_number(note.at),
            "payload": note.to_json(),
        }
        # The answer to an attempt before this one may have been lost
        # (test_notes_are_kept_beside_requests_in_their_order).
        return bool(self._note(_ADD, values) or self._note(_THERE, [note.id]))

    def notes(self, requests: Collection[tuple[str, str]], *, texts: bool) -> list[StoredNote]:
        wanted = {each for each in requests if self._can_keep(each[0])}
        query = _NOTES.format(payload="n.payload" if texts else _NO_TEXTS)
        ids = list(dict.fromkeys(request_id for _, request_id in wanted))
        statements = [
            (f"{text} ORDER BY n.no", values) for text, values in among(query, [], "n.request", ids)
        ]
        return self._look(partial(_stored_notes, wanted), *statements) if ids else []

    def has_notes(self) -> bool:
        return bool(self._look(list, (_ANY, ())))

    def sweep_notes(self, now: datetime) -> None:
        self._note(_ASKED_AGAIN)
        self._note(_ENDED, [time_number(now), time_number(now - RESTS)])
        self._note(_GO, [time_number(now - KEPT_NOTES)])


def _stored_notes(wanted: Collection[tuple[str, str]], *found: Rows) -> list[StoredNote]:
    return list(_each_note(wanted, [row for rows in found for row in rows]))


def _each_note(wanted: Collection[tuple[str, str]], rows: Rows) -> Iterator[StoredNote]:
    for agent_id, request_id, payload in rows:
        if (agent_id, request_id) not in wanted:
            continue
        try:
            note = None if payload is None else note_of(payload)
        except (TypeError, ValueError) as error:  # what waits is listed all the same
            logger.error(
                "a note beside a request of agent %r is left out: %s",
                agent_id,
                error,
                extra=log_extra(agent_id),
            )
        else:
            yield StoredNote(agent_id, request_id, note)
