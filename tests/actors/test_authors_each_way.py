"""Each verb is really asked for by each way that it has, and its author arrives (A12)."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import acts
from tests.support.acts import (
    BESIDE,
    BUDGETS,
    BY,
    NEED_RUNTIME,
    PEOPLE,
    PREPARED,
    SIGNED,
    Act,
    asked_by,
)
from tests.support.hosts import opened, stores
from tests.support.inline_engine import Inline
from tests.support.loops import soon
from tests.support.postgres import Hosts
from tests.support.web_site import ALL, logged_in, site_of
from understudy import Runtime, UnknownAgent
from understudy.actors.verbs import Verb, Way
from understudy.cluster import Cluster
from understudy.login import User
from understudy.trust import Caller, Person


def by_verb(*ways: Way) -> pytest.MarkDecorator:
    """Each verb that has these ways."""
    having = [verb for verb in SIGNED if not verb.lacks.keys() & set(ways)]
    if "cluster" in ways:
        having = [verb for verb in having if verb.name not in NEED_RUNTIME]
    assert len(having) > 10
    return pytest.mark.parametrize("verb", having, ids=lambda verb: verb.name)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "understudy.security")
    return caplog


async def arrived(runtime: Any, verb: Verb, log: pytest.LogCaptureFixture) -> None:
    """Its author is in the records of an agent, or in the security log with this verb."""
    if verb.name in BESIDE:
        assert BY in await beside(runtime)
        return
    acts_of = [
        each.__dict__["what"]
        for each in log.records
        if each.__dict__.get("who") == BY and each.__dict__.get("event") == "act"
    ]
    stored = ""
    for info in await soon(runtime.agents()):
        stored += json.dumps((await soon(runtime.export(info.id)))["records"])
    assert f'"{BY}"' in stored or acts_of == [verb.name], (verb.name, acts_of)
    logged_too = ("schedules.", "revoke", *NEED_RUNTIME)
    is_administration = verb.right == "admin" or verb.name.startswith(logged_too)
    assert acts_of == ([verb.name] if is_administration else [])
    if verb.name == "delete":
        with pytest.raises(UnknownAgent, match=rf"by {BY}"):
            await soon(runtime.get("a").state())


async def beside(runtime: Any) -> str:
    """What is written beside the request of the agent `g`, as text."""
    [pending] = await soon(runtime.pending())
    found = await soon(runtime.notes("g", pending.request.id))
    comments = [each.to_dict() for each in found.comments]
    return json.dumps([found.to_dict(), comments, list(found.snoozes)])


def test_each_verb_that_has_an_author_has_an_agent_here() -> None:
    assert PREPARED.keys() == {verb.name for verb in SIGNED}


@by_verb()
async def test_an_act_is_recorded_or_logged_with_its_author(
    verb: Verb, log: pytest.LogCaptureFixture
) -> None:
    """A12."""
    async with Runtime(acts.agents(), people=PEOPLE, budgets=BUDGETS) as runtime:
        act = await PREPARED[verb.name](runtime)
        log.clear()
        await asked_by(runtime, verb, act)
        await arrived(runtime, verb, log)


@by_verb("cluster")
async def test_an_author_arrives_from_a_ref_of_a_cluster(
    verb: Verb, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    async with Cluster(f"{acts.__name__}:agents", 1, store=store, engine=Inline()) as cluster:
        act = await PREPARED[verb.name](cluster)
        log.clear()
        await asked_by(cluster, verb, act)
        await arrived(cluster, verb, log)


@by_verb("row")
async def test_an_author_arrives_by_a_row_of_another_host(
    verb: Verb, hosts: Hosts, log: pytest.LogCaptureFixture
) -> None:
    """A12."""
    here, there = stores(hosts, "here", "there")
    assert here.shared is not None
    kinds: list[str] = []
    read = here.shared.posted

    async def posted(wanted: Any) -> Any:
        rows = await read(wanted)
        kinds.extend(row.kind for row in rows)
        return rows

    here.shared.posted = posted  # type: ignore[misc, method-assign]
    async with (
        opened(here, *acts.immovable_agents(), people=PEOPLE) as owner,
        opened(there, *acts.immovable_agents(), people=PEOPLE) as other,
    ):
        act = await PREPARED[verb.name](owner)
        log.clear()
        await asked_by(other, verb, act)
        assert verb.row_kind in kinds
        await arrived(owner, verb, log)


async def over_http(client: httpx.AsyncClient, verb: Verb, act: Act) -> httpx.Response:
    """Ask for it by the API."""
    at, given = f"/api/agents/{act.id}", dict(act.arguments)
    match verb.name:
        case "run" | "send":
            body = {"text": given["input"], "go_on": verb.name == "run"}
            return await client.post(f"{at}/messages", json=body)
        case "delete":
            return await client.request("DELETE", at, json={"confirm": act.id})
        case "export":
            return await client.get(f"{at}/export")
        case "import_" | "recover":
            return await client.post(f"/api/{verb.name.strip('_')}", json=given)
        case "delegate":
            body = {name: given[name] for name in ("to", "roles", "reason")}
            body["until"] = given["until"].isoformat()
            return await client.post("/api/delegations", json=body)
        case "take" | "comment" | "snooze" | "assign":
            request_id = given.pop("request_id")
            if "until" in given:
                given["until"] = given["until"].isoformat()
            return await client.post(f"{at}/requests/{request_id}/{verb.name}", json=given)
        case "end_delegation":
            return await client.post("/api/delegations/end", json=given)
        case "freeze":
            return await client.post("/api/freezes", json=given)
        case "require":
            return await client.post("/api/requirements", json=given)
        case "thaw":
            return await client.post("/api/freezes/thaw", json=given)
        case "retry_notice":
            return await client.post("/api/notifications/retry", json=given)
        case "raise_budget":
            return await client.post("/api/budgets/raise", json=given)
        case name if name.startswith("schedules."):
            action = {"resume": "unpause"}.get(verb.method, verb.method)
            return await client.post(f"{at}/schedules", json={**given, "action": action})
        case _:
            return await client.post(f"{at}/{verb.name}", json=given)


@by_verb("api")
async def test_an_author_arrives_over_http(verb: Verb, log: pytest.LogCaptureFixture) -> None:
    async with (
        Runtime(acts.agents(), people=PEOPLE, budgets=BUDGETS) as runtime,
        site_of(runtime, auth=logged_in(BY)) as client,
    ):
        act = await PREPARED[verb.name](runtime)
        if verb.name == "run":  # by HTTP a run continues one that has failed; else it is a `send`
            act = Act((await PREPARED["retry"](runtime)).id, act.arguments)
        log.clear()
        done = await over_http(client, verb, act)
        assert done.status_code == 200, done.text
        if verb.of_run:  # its record comes with the run
            await soon(runtime.get(act.id).outcome())
        await arrived(runtime, verb, log)


OF_NO_AGENT = NEED_RUNTIME - {"close_review"} | {
    "compact",
    "delete",
    "export",
    "import_",
    "recover",
}
"""Administration: the security log and the log of trust have the names."""
IDP, SUBJECT = "https://idp.example", "00u1"


@by_verb("api")
async def test_of_two_logins_of_one_name_it_is_recorded_which_has_done_it(verb: Verb) -> None:
    """V42: the name is to be shown, and many may choose the same."""
    caller = Caller(name=BY, assurance="idp", issuer=IDP, subject=SUBJECT)
    person = Person(id="person-7", name=BY, roles=frozenset({"ops"}))
    people: Any = {**PEOPLE, (IDP, SUBJECT): person}
    async with (
        Runtime(acts.agents(), people=people, budgets=BUDGETS) as runtime,
        site_of(runtime, auth=lambda request: User(BY, ALL, verified=caller)) as client,
    ):
        act = await PREPARED[verb.name](runtime)
        if verb.name == "run":
            act = Act((await PREPARED["retry"](runtime)).id, act.arguments)
        done = await over_http(client, verb, act)
        assert done.status_code == 200, done.text
        if verb.of_run:
            await soon(runtime.get(act.id).outcome())
        stored = await beside(runtime) if verb.name in BESIDE else ""
        for info in await soon(runtime.agents()):
            stored += json.dumps((await soon(runtime.export(info.id)))["records"])
        assert (SUBJECT in stored or "person-7" in stored) is (verb.name not in OF_NO_AGENT)
