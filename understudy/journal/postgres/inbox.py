"""Calls of one host to agents of another one, in PostgreSQL: `SharedBackend` on its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from understudy.journal.postgres import sql
from understudy.journal.postgres.asks import Rows
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

Fetch = Callable[[str, Sequence[Any] | dict[str, Any]], Rows]
"""The rows of a statement, in the writer's transaction or on the reader's connection."""


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
    return [id for id, _ in fetch(sql.POST, values)]


def begin_post(fetch: Fetch, id: int, attempt: str) -> bool:
    return bool(fetch(sql.BEGIN_POST, [attempt, id, attempt]))


def reply(fetch: Fetch, id: int, reply: bytes) -> None:
    fetch(sql.REPLY, {"id": id, "reply": reply, "told": str(Hint("look", id))})


def remove_posts(fetch: Fetch, ids: Sequence[int]) -> None:
    fetch(sql.REMOVE_POSTS, [list(ids)])


def withdraw(fetch: Fetch, ids: Sequence[int]) -> dict[int, bool]:
    return dict(fetch(sql.WITHDRAW, [list(ids)]))


def retell(fetch: Fetch, id: int) -> None:
    fetch(sql.RETELL, [str(Hint("posted")), id])


def tell_askers(fetch: Fetch, agent_id: str) -> None:
    fetch(sql.TELL_ASKERS, [str(Hint("look")), agent_id])


def tell(fetch: Fetch, host_id: int, hint: Hint) -> None:
    fetch(sql.TELL_OWNER, [str(hint), host_id])


def posted(fetch: Fetch, own_id: int, wanted: Wanted) -> list[Posted]:
    values = {**wanted._asdict(), "own_id": own_id, "queueing": list(QUEUEING)}
    rows = fetch(sql.POSTED if wanted.agent_ids is None else sql.POSTED_TO, values)
    return [Posted(*row) for row in rows]


def post_states(fetch: Fetch, ids: Sequence[int]) -> dict[int, PostState]:
    return {id: PostState(*row) for id, *row in fetch(sql.POST_STATES, [list(ids)])}


def place(fetch: Fetch, agent_id: str) -> Place | None:
    for row in fetch(sql.PLACE, [agent_id]):
        return Place(*row)
    return None


def epochs(fetch: Fetch, agent_ids: Sequence[str]) -> dict[str, int]:
    return dict(fetch(sql.EPOCHS, [list(agent_ids)]))


def orphans(fetch: Fetch, limit: int) -> list[tuple[str, str]]:
    return [(agent_id, agent) for agent_id, agent in fetch(sql.ORPHANS, [limit])]


def send(fetch: Fetch, own_id: int | None, sent: Sequence[Sent]) -> None:
    ids, texts = [each.host_id for each in sent], [each.text for each in sent]
    fetch(sql.SEND, {"own_id": own_id, "ids": ids, "texts": texts})
