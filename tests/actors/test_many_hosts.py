"""A hundred hosts on one PostgreSQL, by rows and connections: what one of them says and hears."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
from pydantic_ai.messages import ModelRequest

from tests.support.agents import Held, completed
from tests.support.loops import soon, until
from tests.support.postgres import Hosts
from understudy import Agent, Runtime, ScriptedModel, respond
from understudy.actors.agent.messages import Decide, Send
from understudy.actors.hosts.wire import body_of, message_of
from understudy.journal.database_store import DatabaseStore
from understudy.journal.postgres.sharing import inbox, lease
from understudy.journal.shared import Hint, Post, Wanted, to_reply
from understudy.state.records import MessageQueued

MANY = 100
CONNECTIONS = 20
PER_POST = 12
"""Statements for a call that is posted, at most: its row is read, begun, recorded and answered."""


class Said:
    """Counts what this process says to the server, and the rows that it gets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements = self.rows = 0
        lock, execute = threading.Lock(), psycopg.Cursor.execute

        def counted(cursor: Any, *args: Any, **given: Any) -> Any:
            answer = execute(cursor, *args, **given)
            if cursor.connection not in self.others:
                with lock:
                    self.statements += 1
                    self.rows += max(cursor.rowcount, 0)
            return answer

        self.others: set[psycopg.Connection[Any]] = set()
        """Connections of hosts that are not the ones in question."""
        monkeypatch.setattr(psycopg.Cursor, "execute", counted)

    def of(self, work: Callable[[], object]) -> tuple[int, int]:
        """The statements and the rows of what is done."""
        before = self.statements, self.rows
        work()
        return self.statements - before[0], self.rows - before[1]


def test_an_answer_of_null_is_read_as_it_was_posted() -> None:
    answer = Decide({"r": respond(None)})
    kind, body = body_of(answer, owner="owner", expects=None)
    read, *_ = message_of(kind, body)
    assert isinstance(read, Decide)
    assert read.decisions == {"r": {"type": "respond", "value": None}}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    return Said(monkeypatch)


class Crowd:
    """Living hosts, each with a row and an ear; some share a connection."""

    def __init__(self, hosts: Hosts, said: Said, count: int) -> None:
        self._connections = [hosts.connection() for _ in range(CONNECTIONS)]
        said.others.update(self._connections)
        self._heard: list[str] = []
        for connection in self._connections:
            connection.add_notify_handler(lambda notify: self._heard.append(notify.channel))
        self.ids: list[int] = []
        for number in range(count):
            connection = self._of(number)
            connection.execute(f'LISTEN "crowd {number}"')
            ((id, *_),) = connection.execute(
                lease.INSERT_HOST,
                [
                    f"crowd {number}",
                    f"crowd {number}",
                    60.0,
                    0,
                    [],
                    None,
                    None,
                    None,
                    [],
                    [],
                    False,
                ],
            ).fetchall()
            self.ids.append(int(str(id)))
        # Processes of this machine that live, as far as anybody can see: they are this one.
        self._of(0).execute(
            "UPDATE hosts h SET place = o.place, pid = o.pid, started = o.started FROM hosts o"
            " WHERE h.pid IS NULL AND o.pid IS NOT NULL"
        )

    def _of(self, number: int) -> psycopg.Connection[tuple[object, ...]]:
        return self._connections[number % CONNECTIONS]

    def post(self, number: int, agent_id: str, post: Post) -> int:
        """Have one of them post a call."""
        values = {
            "agent_id": agent_id,
            "incarnation": 1,
            "own_id": self.ids[number],
            **inbox.POSTS.values([(post.nonce, post.kind, post.body)]),
            "told": str(Hint("posted", 0, agent_id)),
        }
        ((id, _),) = self._of(number).execute(inbox.POST, values).fetchall()
        assert isinstance(id, int)
        return id

    def is_answered(self) -> bool:
        """Whether each call that was posted has its reply."""
        return not self._of(0).execute("SELECT FROM inbox WHERE reply IS NULL").fetchall()

    def heard(self) -> list[str]:
        """The channels on which one of them was told something, so far."""
        for connection in self._connections:
            connection.execute("SELECT")
        return sorted(self._heard)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


def test_what_a_host_says_to_the_database_does_not_grow_with_the_hosts(
    hosts: Hosts, said: Said
) -> None:
    """A heartbeat reads a short row of each other host; else it is as if there were none."""
    owner, asker = hosts.new("owner"), hosts.new("asker")
    for backend in (owner, asker):
        backend.listen(lambda _: None)
        backend.open()
    owner.begin()
    owner.claim("t", "desk")
    owner.commit()

    def heartbeat() -> None:
        owner.renew()
        owner.end_dead_hosts()
        owner.ended_leases()

    def sweep() -> None:
        owner.begin()
        owner.delete_lost_replies()
        owner.commit()
        assert owner.orphans(100) == []

    def call() -> None:
        place = asker.place("t")
        assert place is not None
        asker.begin()
        (id,) = asker.post("t", place.incarnation, [Post("send", b"{}", f"n{said.statements}")])
        asker.commit()
        (posted,) = owner.posted(Wanted(["t"], [], [], 100))
        owner.begin()
        owner.reply(posted.id, to_reply({"value": "m"}))
        owner.commit()
        assert asker.post_states([id])[id].reply is not None
        asker.begin()
        asker.remove_posts([id])
        asker.commit()

    works = (heartbeat, sweep, call)
    for work in works:
        work()  # a connection is named when it is used first
    few = [said.of(work) for work in works]
    with closing(Crowd(hosts, said, MANY)) as crowd:
        many = [said.of(work) for work in works]
        assert crowd.heard() == [], "nobody is told who is not meant"
    assert [statements for statements, _ in many] == [statements for statements, _ in few]
    (rows, *others), (rows_before, *others_before) = many, few
    assert others == others_before
    assert rows[1] - rows_before[1] == 2 * MANY


def message(number: int) -> Send:
    prompt = ModelRequest.user_text_prompt(f"{number}")
    return Send(MessageQueued(message_id=f"m{number}", message=prompt))


@pytest.mark.slow
async def test_a_hundred_hosts_post_to_one_agent(hosts: Hosts, said: Said) -> None:
    """J70: each is told of its own call alone, and a call costs as much as the only one does."""
    held = Held()
    agent = Agent("desk", ScriptedModel(held))
    store = DatabaseStore(hosts.new("owner"))
    async with Runtime([agent], store=store, sweep=None, stop_timeout=0.001) as runtime:
        run = runtime.spawn("desk", "t").run("go")
        await soon(held.entered.wait())
        with closing(Crowd(hosts, said, MANY)) as crowd:
            before = said.statements
            for number in range(MANY):
                kind, body = body_of(message(number), owner="owner", expects=None)
                crowd.post(number, "t", Post(kind, body, f"n{number}"))
                if number % 2:  # two at a time
                    await soon(until(crowd.is_answered))
            assert said.statements - before < PER_POST * MANY
            each = sorted(f"crowd {number}" for number in range(MANY))
            await soon(until(lambda: len(crowd.heard()) >= MANY))
            assert crowd.heard() == each
        state = await soon(runtime.get("t").state())
        assert list(state.queue) == [f"m{number}" for number in range(MANY)]
        held.release.set()
        completed(await soon(run))
