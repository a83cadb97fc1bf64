"""Calls of one host to agents of another one, in PostgreSQL: `SharedBackend` on its tables."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.journal.postgres import inbox_sql
from understudy.journal.postgres.sql import Fetch
from understudy.journal.shared import (
    QUEUEING,
    Hint,
    Place,
    Post,
    Posted,
    PostState,
    Sent,
    Wanted,
)


def post(
    fetch: Fetch, own_id: int, agent_id: str, incarnation: int, posts: Sequence[Post]
) -> list[int]:
    values = {
        "agent_id": agent_id,
        "incarnation": incarnation,
        "own_id": own_id,
        "kinds": [each.kind for each in posts],
        "bodies": [each.body for each in posts],
        "nonces": [each.nonce for each in posts],
        "told": str(Hint("posted", 0, agent_id)),
    }
    return [id for id, _ in fetch(inbox_sql.POST, values)]


def begin_post(fetch: Fetch, id: int, attempt: str) -> bool:
    return bool(fetch(inbox_sql.BEGIN_POST, [attempt, id, attempt]))


def reply(fetch: Fetch, id: int, reply: bytes) -> None:
    fetch(inbox_sql.REPLY, {"id": id, "reply": reply, "told": str(Hint("look", id))})


def remove_posts(fetch: Fetch, ids: Sequence[int]) -> None:
    fetch(inbox_sql.REMOVE_POSTS, [list(ids)])


def withdraw(fetch: Fetch, ids: Sequence[int]) -> dict[int, bool]:
    return dict(fetch(inbox_sql.WITHDRAW, [list(ids)]))


def retell(fetch: Fetch, id: int) -> None:
    fetch(inbox_sql.RETELL, [str(Hint("posted")), id])


def tell_askers(fetch: Fetch, agent_id: str) -> None:
    fetch(inbox_sql.TELL_ASKERS, [str(Hint("look")), agent_id])


def tell(fetch: Fetch, host_id: int, hint: Hint) -> None:
    fetch(inbox_sql.TELL_OWNER, [str(hint), host_id])


def posted(fetch: Fetch, own_id: int, wanted: Wanted) -> list[Posted]:
    values = {**wanted._asdict(), "own_id": own_id, "queueing": list(QUEUEING)}
    rows = fetch(inbox_sql.POSTED if wanted.agent_ids is None else inbox_sql.POSTED_TO, values)
    return [Posted(*row) for row in rows]


def post_states(fetch: Fetch, ids: Sequence[int]) -> dict[int, PostState]:
    return {id: PostState(*row) for id, *row in fetch(inbox_sql.POST_STATES, [list(ids)])}


def place(fetch: Fetch, agent_id: str) -> Place | None:
    for row in fetch(inbox_sql.PLACE, [agent_id]):
        return Place(*row)
    return None


def epochs(fetch: Fetch, agent_ids: Sequence[str]) -> dict[str, int]:
    return dict(fetch(inbox_sql.EPOCHS, [list(agent_ids)]))


def orphans(fetch: Fetch, limit: int) -> list[tuple[str, str]]:
    return [(agent_id, agent) for agent_id, agent in fetch(inbox_sql.ORPHANS, [limit])]


def send(fetch: Fetch, own_id: int | None, sent: Sequence[Sent]) -> None:
    ids, texts = [each.host_id for each in sent], [each.text for each in sent]
    fetch(inbox_sql.SEND, {"own_id": own_id, "ids": ids, "texts": texts})
