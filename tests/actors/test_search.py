"""A search looks into requests and conversations: what is there, and nothing else (J39)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agents import completed, interrupted
from tests.support.batches import batch
from tests.support.loops import SECONDS, soon
from tests.support.places import Place, SqlitePlace
from tests.support.postgres import Hosts
from tests.support.searched import agents, begin
from understudy import (
    Agent,
    AgentRef,
    Observer,
    Request,
    Runtime,
    ScriptedModel,
    Status,
    UsageError,
    approve,
    call,
)
from understudy.actors import SearchHit, SearchPage
from understudy.errors import SearchOff
from understudy.journal import DatabaseStore, IndexEntry, IndexStatus, MemoryStore
from understudy.journal.asks import Ask
from understudy.journal.search_words import query_of, words_of
from understudy.journal.sql_search import SLICE_TEXTS, SLICE_WORDS
from understudy.middleware import SubAgent


def asked_by(ref: AgentRef) -> Request:
    outcome = ref.outcome().get(timeout=SECONDS)
    assert outcome is not None
    return interrupted(outcome).requests[0]


def found(runtime: Runtime | Observer, text: str, **options: Any) -> list[SearchHit]:
    """The hits. A runtime's index has all that is recorded: a busy machine needs longer for that
    than a search takes.
    """
    while runtime.has_search and behind(runtime):
        pass
    return list(runtime.search(text, **options).get(timeout=SECONDS))


def behind(runtime: Runtime | Observer) -> int:
    """The number of agents of which the index lacks something."""
    page = runtime.search("hello", limit=1).get(timeout=SECONDS)
    assert isinstance(page, SearchPage)
    return page.behind


def places(hits: list[SearchHit]) -> set[tuple[str, str]]:
    return {(hit.agent_id, hit.kind) for hit in hits}


async def test_a_search_finds_what_an_agent_waits_for_once_its_status_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J30: what is committed while the search begins is indexed before it looks."""
    async with Runtime(agents(), store=f"sqlite:///{tmp_path}/store.db", search=True) as runtime:
        await soon(runtime.search("sister"))
        ready, ref = runtime._ready, runtime.spawn("desk", "a")

        async def commits() -> None:
            if ref.status() is Status.PASSIVE:
                interrupted(await soon(ref.run("refund 17 to my sister")))
            await ready()

        monkeypatch.setattr(runtime, "_ready", commits)
        assert runtime._searching is not None
        runtime._searching.close()  # only the search itself indexes
        assert [hit.agent_id for hit in await soon(runtime.search("sister"))] == ["a"]


def test_a_search_finds_requests_and_all_that_was_said(place: Place) -> None:
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        ref = begin(runtime, "a", "refund 17 to my sister")
        begin(runtime, "b", "hello")
        assert places(found(runtime, "ada 17")) == {("a", "request"), ("a", "call")}
        assert places(found(runtime, "sister")) == {("a", "user")}
        (request,) = found(runtime, "lovelace", where="requests")
        (pending,) = runtime.pending().get(timeout=SECONDS)
        assert request.request_id == pending.request.id
        assert (request.where, request.tool_name, request.agent) == ("request", "refund", "desk")
        completed(ref.resume(pending.decide(approve())).get(timeout=SECONDS))
        assert places(found(runtime, "receipt R 17")) == {("a", "result")}
        assert places(found(runtime, "zoe")) == {("a", "agent")}
        (said,) = found(runtime, "hello you")
        assert (said.agent_id, said.kind, said.request_id) == ("b", "agent", None)
        assert said.snippet.text == "You said: hello"
        assert [said.snippet.text[a:b] for a, b in said.snippet.marks] == ["You", "hello"]


def test_a_hit_of_a_conversation_names_its_record(place: Place) -> None:
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        ref = begin(runtime, "a", "hello")
        (said,) = found(runtime, "you said hello")
        rows = ref.display().get(timeout=SECONDS).rows
        (row,) = [row for row in rows if row.text == "You said: hello"]
        assert said.seq == row.position[0]


def test_an_answered_request_is_found_no_more(place: Place) -> None:
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        refs = [begin(runtime, id, "refund 17") for id in ("a", "b")]
        assert places(found(runtime, "17", where="requests")) == {
            ("a", "request"),
            ("b", "request"),
        }
        request = asked_by(refs[0])
        completed(refs[0].resume({request: approve()}).get(timeout=SECONDS))
        assert places(found(runtime, "17", where="requests")) == {("b", "request")}
        completed(refs[1].run("never mind").get(timeout=SECONDS))
        assert found(runtime, "17", where="requests") == []


def test_the_newest_come_first_page_by_page(place: Place) -> None:
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        for number in range(5):
            begin(runtime, f"a{number}", "hello")
        every = found(runtime, "hello")
        assert [hit.agent_id for hit in every if hit.kind == "user"] == [
            f"a{number}" for number in reversed(range(5))
        ]
        page = runtime.search("hello", limit=4).get(timeout=SECONDS)
        assert isinstance(page, SearchPage)
        assert page.behind == 0
        rest = runtime.search("hello", after=page.after, limit=10).get(timeout=SECONDS)
        assert [*page, *rest] == every
        assert rest.after is None
        assert found(runtime, "hello", after=every[6].cursor) == every[7:]
        with pytest.raises(UsageError, match="other filters"):
            runtime.search("hallo", after=page.after)


@pytest.mark.parametrize(
    ("text", "query", "is_there"),
    [
        ("Straße, Ångström und Łódź", "strasse", True),
        ("Straße, Ångström und Łódź", "LODZ angstrom", True),
        ("cafe\u0301 au lait", "café", True),
        ("order_id=A-17", "order id a 17", True),
        ("order_id=A-17", "a-17", True),
        ("refund 1234", "123", False),
        ("refund 1234", "123*", True),
        ("refund 1234", "*234", False),
        ("подача документов", "Подача", True),
        ("one two", "one three", False),
        ("one two", "two one", True),
        ("one two", '"one two"', True),
        ("x" * 80, "x" * 70, True),
    ],
)
def test_words_count_and_neither_case_nor_accents(
    place: Place, text: str, query: str, is_there: bool
) -> None:
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        begin(runtime, "a", text)
        assert (("a", "user") in places(found(runtime, query))) is is_there
        assert query_of(query).matches(words_of(text)) is is_there


HOSTILE = [
    'a"',
    '"a" OR "b"',
    "a AND NOT b",
    "NEAR(a b, 3)",
    "words:a",
    "^a + b",
    "a' | 'b",
    "a & !b <-> c:*A",
    "(a",
    "a\0b",
    "a' || pg_sleep(9) --",
    "'; DROP TABLE search_texts; --",
    "%s %(a)s ? :1",
    "a\\' b",
    "\ue000r a",
    "ﷺ a",
    "a\U0001f600",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_typed_is_words_and_never_a_language(place: Place, text: str) -> None:
    """J39."""
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        begin(runtime, "a", f"hello {text}")
        begin(runtime, "other", "a b")
        assert ("a", "user") in places(found(runtime, text)), "what is there is found"
        assert found(runtime, f"{text} nowhere") == []
        with pytest.raises(UsageError, match="a word of letters or digits"):
            runtime.search('*"*\0')
        assert ("other", "user") in places(found(runtime, "a b"))


@given(st.text(max_size=60), st.text(max_size=200))
def test_a_snippet_marks_what_was_looked_for(asked: str, text: str) -> None:
    try:
        query = query_of(asked)
    except UsageError:
        return
    snippet = query.snippet(f"{text} {asked}")
    for start, end in snippet.marks:
        assert 0 <= start < end <= len(snippet.text)
    assert query.matches(words_of(f"{text} {asked}"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"text": ""}, "must have a word"),
        ({"text": 7}, "takes a text"),
        ({"text": "a " * 400}, "at most 500 characters"),
        ({"text": " ".join(map(str, range(30)))}, "at most 20 words"),
        ({"text": "a", "where": "files"}, "'requests' or 'conversations'"),
        ({"text": "a", "limit": 0}, "`limit`"),
        ({"text": "a", "after": "x"}, "`after`"),
    ],
)
def test_a_wrong_search_is_refused_at_once(given: dict[str, Any], told: str) -> None:
    with Runtime(agents(), search=True) as runtime, pytest.raises(UsageError, match=told):
        runtime.search(**given)


def test_a_search_is_off_unless_it_is_turned_on(place: Place) -> None:
    with Runtime(agents(), store=place.store()) as runtime:
        begin(runtime, "a", "hello")
        with pytest.raises(SearchOff, match=r"Runtime\(search=True\)"):
            found(runtime, "hello")
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        assert ("a", "user") in places(found(runtime, "hello"))
    with Runtime(agents(), store=place.store()) as runtime:
        assert ("a", "user") in places(found(runtime, "hello")), "it stays"
    with Runtime(agents(), store=place.store(), search=False) as runtime:
        with pytest.raises(SearchOff):
            found(runtime, "hello")
        begin(runtime, "b", "refund 9")


def test_it_cannot_be_turned_on_where_a_store_keeps_none() -> None:
    class Plain(MemoryStore):
        keeps = ()

    with pytest.raises(UsageError, match="keeps no search"):
        Runtime(agents(), store=Plain(), search=True)
    with pytest.raises(UsageError, match="`search` must be True or False"):
        Runtime(agents(), search="yes")  # type: ignore[call-overload]


def test_what_a_host_without_the_option_has_written_is_found(place: Place) -> None:
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        begin(runtime, "a", "hello")
        begin(runtime, "gone", "hello")
    with Runtime(agents(), store=place.store()) as runtime:
        begin(runtime, "a", "good morning")
        begin(runtime, "b", "refund 17")
        runtime.delete("gone").get(timeout=SECONDS)
        assert "gone" not in {hit.agent_id for hit in found(runtime, "hello")}
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        assert ("a", "user") in places(found(runtime, "morning"))
        assert ("b", "request") in places(found(runtime, "17"))
        assert {hit.agent_id for hit in found(runtime, "hello")} == {"a"}


def test_what_a_crash_has_cut_off_is_done_again(place: Place) -> None:
    """The index is behind the commits when the process ends: J39."""
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        begin(runtime, "a", "hello")
    with Runtime(agents(), store=place.store()) as runtime:  # nothing keeps the index up
        begin(runtime, "a", "refund 17")
        crashed = place.after_crash()
        with Runtime(agents(), store=crashed, search=True) as second:
            assert ("a", "request") in places(found(second, "17"))
            kinds = [hit.kind for hit in found(second, "17", where="conversations")]
            assert sorted(kinds) == ["call", "user"], "each of them once"


KILLED = """
import os, signal
from tests.support.searched import agents, begin
from understudy import Runtime

runtime = Runtime(agents(), store=%r, search=True)
runtime.__enter__()
for number in range(20):
    begin(runtime, f"a{number}", f"refund {number} quickly")
print("committed", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_host_leaves_nothing_out(sqlite: SqlitePlace) -> None:
    """J39."""
    url = f"sqlite:///{sqlite.path}"
    child = subprocess.run(
        [sys.executable, "-c", KILLED % url], capture_output=True, text=True, check=False
    )
    assert child.stdout == "committed\n", child.stderr
    assert child.returncode == -signal.SIGKILL
    with Runtime(agents(), store=url, search=True) as runtime:
        assert len(found(runtime, "quickly")) == 20
        assert len(found(runtime, "lovelace", where="requests")) == 20


def test_a_compacted_agent_is_found_in_its_snapshot(place: Place) -> None:
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        ref = begin(runtime, "a", "refund 17 please")
        begin(runtime, "b", "hello")
        request = asked_by(ref)
        completed(ref.resume({request: approve()}).get(timeout=SECONDS))
        before = places(found(runtime, "17"))
        assert before == {("a", "user"), ("a", "call"), ("a", "result")}
        runtime.compact("a").get(timeout=SECONDS)
        assert places(found(runtime, "17")) == before
        assert len(found(runtime, "17")) == 3, "each of them once"
        seqs = {hit.seq for hit in found(runtime, "17")}
        assert len(seqs) == 1, "all are in the snapshot"
        completed(ref.run("hello again").get(timeout=SECONDS))
        assert ("a", "user") in places(found(runtime, "again"))


def test_a_deleted_agent_leaves_nothing(place: Place) -> None:
    """J39."""
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        begin(runtime, "a", "refund 17 secretly")
        begin(runtime, "b", "hello")
        assert found(runtime, "secretly")
        runtime.delete("a").get(timeout=SECONDS)
        assert found(runtime, "secretly") == []
        assert found(runtime, "17") == []
        begin(runtime, "a", "hello")
        assert found(runtime, "secretly") == []
        assert places(found(runtime, "hello")) == {
            (id, kind) for id in ("a", "b") for kind in ("user", "agent")
        }


def test_an_imported_agent_is_found(place: Place) -> None:
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        begin(runtime, "a", "hello")
        data = runtime.export("a").get(timeout=SECONDS)
        runtime.import_(data, "copy").get(timeout=SECONDS)
        assert ("copy", "user") in places(found(runtime, "hello"))


def test_what_an_agent_inside_says_is_found_and_says_where_it_is(place: Place) -> None:
    inner = Agent("researcher", ScriptedModel(["It is in Vilnius."]), description="Looks it up.")
    task = {"task_name": "researcher", "instructions": "where is it"}
    sub_agents = SubAgent([inner], general_purpose=False)
    outer = Agent("desk", ScriptedModel([call("task", task), "done"]), middleware=[sub_agents])
    with Runtime([outer], store=place.store(), search=True) as runtime:
        runtime.spawn("desk", "a").run("go").get(timeout=SECONDS)
        hits = found(runtime, "vilnius")
        said = [hit for hit in hits if hit.kind == "agent"]
        assert [hit.inside for hit in said] == [("researcher",)], hits
        assert {hit.agent_id for hit in hits} == {"a"}


def test_an_old_store_is_indexed_in_slices(place: Place) -> None:
    with Runtime(agents(), store=place.store()) as runtime:
        for number in range(40):
            begin(runtime, f"a{number}", f"refund {number} hello")
        ref = runtime.get("a0")
        for number in range(SLICE_TEXTS):
            ref.send(f"word{number}").get(timeout=SECONDS)
        completed(ref.run("now").get(timeout=SECONDS))
        runtime.compact("a0").get(timeout=SECONDS)  # one record with more texts than a slice
    with Runtime(agents(), store=place.store(), search=True) as runtime:
        assert len(found(runtime, "hello")) == 40
        assert len(found(runtime, "lovelace", where="requests")) == 39
        last = f"word{SLICE_TEXTS - 1}"
        assert ("a0", "user") in places(found(runtime, last))


@pytest.mark.slow
async def test_no_slice_adds_more_than_so_many_texts(sqlite: SqlitePlace) -> None:
    """No transaction holds up a commit for long: J39."""
    async with Runtime(agents(), store=sqlite.store()) as runtime:
        for number in range(60):
            text = "".join(f" {number}x{word}" for word in range(50 * number))
            await runtime.spawn("desk", f"a{number}").run(f"refund {number}{text}")
    backend = sqlite.backend()
    store = DatabaseStore(backend)
    await store.open(lambda: None)
    try:
        await store.turn_search(True)
        last, texts = 0, 0
        while (work := backend.unindexed(last)) is not None:
            new = sum(len(each.new) for each in work.agents)
            assert new <= SLICE_TEXTS
            words = [len(text.words) for each in work.agents for text in each.new]
            assert sum(words) - max(words, default=0) < SLICE_WORDS
            texts, last = texts + new, work.last
            await store.change(partial(backend.index, work))
        assert texts >= 180
    finally:
        await store.close()


def test_an_observer_searches_what_is_indexed(sqlite: SqlitePlace) -> None:
    url = f"sqlite:///{sqlite.path}"
    with Runtime(agents(), store=url, search=True) as runtime:
        begin(runtime, "a", "hello")
        assert found(runtime, "hello")
        with Observer(url) as observer:
            assert ("a", "user") in places(found(observer, "hello"))
    with Runtime(agents(), store=url) as runtime:
        begin(runtime, "b", "hello")
        with Observer(url) as observer:
            page = observer.search("hello", limit=10).get(timeout=SECONDS)
            assert isinstance(page, SearchPage)
            assert page.behind == 1, "nobody has indexed it"


def test_turned_off_it_leaves_no_table(sqlite: SqlitePlace) -> None:
    """J39."""
    url = f"sqlite:///{sqlite.path}"

    def tables() -> set[str]:
        backend = sqlite.backend()
        backend.open()
        try:
            rows = backend._fetch("SELECT name FROM sqlite_schema WHERE name LIKE 'search%'")
            return {str(name) for (name,) in rows}
        finally:
            backend.close()

    with Runtime(agents(), store=url) as runtime:
        begin(runtime, "a", "hello")
    assert tables() == set(), "without the option there is none"
    with Runtime(agents(), store=url, search=True) as runtime:
        assert found(runtime, "hello")
    assert "search_texts" in tables()
    with Runtime(agents(), store=url, search=False):
        pass
    assert tables() == set()


@pytest.mark.postgres
def test_two_hosts_index_each_text_once(hosts: Hosts) -> None:
    stores = [DatabaseStore(hosts.new(name)) for name in ("a", "b")]
    with (
        Runtime(agents(), store=stores[0], search=True) as first,
        Runtime(agents(), store=stores[1], search=True) as second,
    ):
        for number in range(12):
            begin((first, second)[number % 2], f"a{number}", "refund 17 hello")
            listings = [runtime.search("hello") for runtime in (first, second)]
            for listing in listings:
                assert len(listing.get(timeout=SECONDS)) == number + 1
        assert len(found(first, "17", where="requests")) == 12
        first.delete("a0").get(timeout=SECONDS)
        assert len(found(second, "hello")) == 11
    assert hosts.sql("SELECT count(*) FROM search_todo") == [(0,)]


@pytest.mark.postgres
def test_a_host_that_stands_still_in_a_slice_holds_up_nobody(hosts: Hosts) -> None:
    with Runtime(agents(), store=DatabaseStore(hosts.new()), search=True) as runtime:
        begin(runtime, "a", "hello")
        assert found(runtime, "hello")
        with hosts.connection() as other:  # as another host in the middle of a slice
            other.execute("BEGIN")
            other.execute("SELECT pg_advisory_xact_lock(x'756e64657275'::bigint)")
            other.execute("UPDATE search_agents SET version = version + 1")
            other.execute("DELETE FROM search_todo")
            begin(runtime, "a", "good morning")
            begin(runtime, "b", "good morning")
            page = runtime.search("hello", limit=10).get(timeout=SECONDS)
            assert isinstance(page, SearchPage)
            assert {hit.agent_id for hit in page} == {"a"}, "what is indexed is found"
            assert page.behind == 2
            other.execute("ROLLBACK")
        assert {hit.agent_id for hit in found(runtime, "morning")} == {"a", "b"}


@pytest.mark.postgres
def test_hosts_turn_it_on_at_once_beside_one_that_writes(hosts: Hosts) -> None:
    with Runtime(agents(), store=DatabaseStore(hosts.new("writer"))) as writer:
        for number in range(30):
            begin(writer, f"a{number}", "hello")
        runtimes = [
            Runtime(agents(), store=DatabaseStore(hosts.new(name)), search=True)
            for name in ("a", "b")
        ]
        with runtimes[0], runtimes[1]:
            begin(writer, "late", "hello")
            assert ("late", "user") in places(found(runtimes[1], "hello"))
            assert len({hit.agent_id for hit in found(runtimes[0], "hello")}) == 31


@pytest.mark.slow
def test_a_search_over_ten_thousand_requests_costs_little(sqlite: SqlitePlace) -> None:
    url = f"sqlite:///{sqlite.path}"
    with Runtime(agents(), store=url, search=True) as runtime:
        request = asked_by(begin(runtime, "first", "refund 17"))
    backend = sqlite.backend()
    backend.open()
    for number in range(100):
        asked = [
            replace(request, id=f"{number}.{n}", arguments={"order": f"o{100 * number + n}"})
            for n in range(100)
        ]
        asks = [Ask(id=r.id, tool="refund", asked_at=r.created_at, asked=r) for r in asked]
        entry = IndexEntry(IndexStatus.WAITS, None, "interrupted", tuple(asks))
        backend.begin()
        owned = backend.claim(f"a{number}", "desk")
        assert owned is not None
        backend.append(replace(batch(owned, "asks"), entry=entry))
        backend.commit()
    backend.close()
    with Runtime(agents(), store=url, search=True) as runtime:
        while behind(runtime):
            pass

        def seconds(search: Callable[[], Any]) -> float:
            start = time.process_time()
            search()
            return time.process_time() - start

        def one() -> None:
            (hit,) = runtime.search("o7777", where="requests").get(timeout=SECONDS)
            assert hit.request_id == "77.77"

        def many() -> None:
            page = runtime.search("refund", where="requests", limit=30).get(timeout=SECONDS)
            assert len(page) == 30

        for search in (one, many):
            assert min(seconds(search) for _ in range(5)) < 0.1, "some ms; all would be a second"


@pytest.mark.slow
def test_a_search_that_is_off_loads_no_module_of_it() -> None:
    code = (
        "import sys\nfrom understudy import Agent, Runtime, ScriptedModel\n"
        "with Runtime([Agent('a', ScriptedModel(['hi']))]) as runtime:\n"
        "    runtime.spawn('a', 'a').run('x').get(timeout=60)\n"
        "print([name for name in sys.modules if 'search' in name and 'understudy' in name])"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert child.stdout.strip() == "[]"
