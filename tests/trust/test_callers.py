"""Who calls, by the token of an identity provider: who they are is kept, wherever the call goes.

Rules: V40, V42, V43.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastmcp.client import Client as McpClient
from fastmcp.client.transports import StreamableHttpTransport

from tests.support.ag_ui_client import Client, answer, events_in, said
from tests.support.agents import by_turn, interrupted
from tests.support.hosts import opened, stores
from tests.support.loops import soon
from tests.support.oidc_provider import Provider, provider
from tests.support.plans import outcome_of
from tests.support.postgres import Hosts
from tests.support.trust.broken import is_found_out
from tests.support.web_server import served
from tests.support.web_site import client_of, only_request, rest
from understudy import Agent, Runtime, UsageError, approve, call, tool
from understudy.ag_ui import ag_ui, vercel
from understudy.errors import VoteRefused
from understudy.login import TokenAuth, User, loopback_only
from understudy.mcp.agents_server import agents_app
from understudy.trust import Caller, Login, Person, approval
from understudy.web import ui

MAY: Any = frozenset({"read", "decide", "act"})
EMAIL = "desk@example.com"
FINANCE = frozenset({"finance"})
ONE = approval({"finance": 1}, never=["requester"])
TWO = approval({"finance": 2}, never=["requester"])


@pytest.fixture(scope="module")
def idp() -> Iterator[Provider]:
    with provider() as found:
        yield found


def desk(asks: Any = TWO, *before: str, **options: Any) -> tuple[Agent, list[int]]:
    paid: list[int] = []

    @tool
    def refund(amount: int) -> str:
        """Pay money back."""
        paid.append(amount)
        return "paid"

    gates: Any = {"refund": {"approval": asks}}
    turns = [*before, call("refund", {"amount": 7}), "Paid."]
    agent = Agent("desk", by_turn(*turns), tools=[refund], interrupt_on=gates, **options)
    return agent, paid


def people_of(idp: Provider) -> dict[Any, Person]:
    """Ann has two logins. She and Bob show one address; so does Cy, who only asks."""
    ann = Person(id="p-ann", name="Ann", roles=FINANCE)
    bob, cy = Person(id="p-bob", name="Bob", roles=FINANCE), Person(id="p-cy", name="Cy")
    return {
        (idp.issuer, "ann"): ann,
        (idp.issuer, "ann@home"): ann,
        (idp.issuer, "bob"): bob,
        (idp.issuer, "cy"): cy,
        "ann by host": ann,
        "cy by host": cy,
    }


@asynccontextmanager
async def site(runtime: Runtime, idp: Provider) -> AsyncIterator[httpx.AsyncClient]:
    auth = idp.auth(name="email", may=MAY)
    async with client_of(ui(runtime, auth=auth)) as client:
        yield client


def of(idp: Provider, sub: str, **claims: Any) -> dict[str, str]:
    return idp.bearer(sub=sub, email=EMAIL, **claims)


async def ask(client: httpx.AsyncClient, idp: Provider, sub: str, id: str = "a") -> None:
    body = {"text": "go", "agent": "desk"}
    sent = await client.post(f"/api/agents/{id}/messages", json=body, headers=of(idp, sub))
    assert sent.status_code == 200, sent.text


async def vote(
    client: httpx.AsyncClient, row: dict[str, Any], headers: dict[str, str]
) -> httpx.Response:
    body = {"decisions": {row["id"]: {"type": "approve"}}, "expect": {row["id"]: row["digest"]}}
    return await client.post(f"/api/agents/{row['agent_id']}/decisions", json=body, headers=headers)


async def asked_by(runtime: Runtime, client: httpx.AsyncClient, idp: Provider, sub: str) -> Any:
    await ask(client, idp, sub)
    await soon(runtime.get("a").outcome())
    client.headers.update(of(idp, sub))
    return await only_request(client)


async def test_two_logins_of_one_person_are_one_and_two_with_one_address_are_two(
    idp: Provider,
) -> None:
    """V42."""
    agent, paid = desk()
    async with Runtime([agent], people=people_of(idp)) as runtime, site(runtime, idp) as client:
        row = await asked_by(runtime, client, idp, "cy")
        for sub in ("ann", "ann@home"):
            voted = await vote(client, row, of(idp, sub))
            assert voted.json()["open"] == {row["id"]: "1 more of finance is missing"}
        assert paid == []
        assert (await vote(client, row, of(idp, "bob"))).json()["open"] == {}
        await rest(runtime.get("a"))
        [decided] = await runtime.get("a").decisions()
    assert paid == [7]
    found = [(each.person, each.issuer, each.subject, each.login) for each in decided.votes]
    assert found == [
        ("p-ann", idp.issuer, "ann", EMAIL),
        ("p-bob", idp.issuer, "bob", EMAIL),
    ]
    assert {each.assurance for each in decided.votes} == {"idp"}


async def test_who_has_asked_is_known_by_issuer_and_subject_and_not_by_the_name(
    idp: Provider,
) -> None:
    """V42: all three show the same address."""
    agent, paid = desk(ONE)
    async with Runtime([agent], people=people_of(idp)) as runtime, site(runtime, idp) as client:
        row = await asked_by(runtime, client, idp, "ann@home")
        for headers in (of(idp, "ann"), of(idp, "ann@home")):
            refused = await vote(client, row, headers)
            assert refused.status_code == 403
            assert "has asked for the call" in refused.json()["detail"]
        [request] = (await runtime.get("a").state()).requests
        assert request.requesters == ("p-ann",)
        assert (await vote(client, row, of(idp, "bob"))).status_code == 200
        await rest(runtime.get("a"))
    assert paid == [7]


async def test_a_login_of_a_provider_is_never_known_by_its_name(idp: Provider) -> None:
    """V42: a person who may choose the name at the provider could be anybody."""
    agent, paid = desk(approval({"finance": 1}))
    people: dict[Any, Any] = {
        EMAIL: ["finance"],
        "ann": ["finance"],
        (idp.issuer, "1"): Person(id="cy"),
    }
    async with Runtime([agent], people=people) as runtime, site(runtime, idp) as client:
        row = await asked_by(runtime, client, idp, "7")
        refused = await vote(client, row, of(idp, "7"))
        assert (refused.status_code, paid) == (403, [])
        assert "knows nobody by the name" in refused.json()["detail"]


@pytest.mark.slow
async def test_right_before_the_call_starts_each_is_looked_up_by_issuer_and_subject(
    idp: Provider,
) -> None:
    """V42: two voters with one name are two there, too."""
    agent, paid = desk(approval({"finance": 2}))
    seen: list[Caller] = []

    async def who(caller: Caller) -> Person | None:
        seen.append(caller)
        roles = FINANCE if caller.subject in ("ann", "bob") else frozenset()
        return Person(id=f"{caller.issuer} {caller.subject}", name=caller.name, roles=roles)

    async with Runtime([agent], people=who) as runtime, site(runtime, idp) as client:
        row = await asked_by(runtime, client, idp, "cy")
        seen.clear()  # who reads the list is told whether they may vote
        for sub in ("ann", "bob"):
            headers = of(idp, sub, auth_time=idp.now - 5, groups=["x"])
            assert (await vote(client, row, headers)).status_code == 200
        await outcome_of(runtime.get("a"))
    assert paid == [7]
    with_claims = [each for each in seen if each.claims]
    assert {each.subject for each in with_claims} >= {"ann", "bob"}
    assert all(each.claims["groups"] == ["x"] and each.auth_at for each in with_claims)
    later = seen[seen.index(with_claims[-1]) + 1 :]
    assert [(each.subject, each.assurance, each.claims) for each in later] == [
        ("ann", "idp", {}),
        ("bob", "idp", {}),
    ]


@pytest.mark.postgres
async def test_a_call_at_another_host_keeps_who_has_called(hosts: Hosts, idp: Provider) -> None:
    """V42: messages, steering, decisions and retries go as rows from host to host."""
    here, there = stores(hosts, "here", "there")
    first, paid = desk(ONE, "Hello.", movable=False)
    second, _ = desk(ONE, "Hello.", movable=False)
    people = people_of(idp)
    async with (
        opened(here, first, people=people) as owner,
        opened(there, second, people=people) as other,
        site(other, idp) as client,
    ):
        await soon(owner.spawn("desk", id="a").run("hello", by="cy by host"))
        row = await asked_by(other, client, idp, "ann")
        state = await other.get("a").state()
        login = Login(name=EMAIL, issuer=idp.issuer, subject="ann", assurance="idp")
        assert state.authors == ("cy by host", login)
        assert (await vote(client, row, of(idp, "ann@home"))).status_code == 403
        assert (await vote(client, row, of(idp, "bob"))).status_code == 200
        await soon(owner.get("a").outcome())
        [decided] = await owner.get("a").decisions()
        assert (await other.get("a").info()).host == "here"
    assert paid == [7]
    assert [(each.subject, each.assurance) for each in decided.votes] == [("bob", "idp")]


@pytest.mark.parametrize("make", [ag_ui, vercel])
async def test_frontends_keep_who_has_called_and_whose_conversations_these_are(
    idp: Provider, make: Any
) -> None:
    """V42: AG-UI, and Vercel's stream."""
    agent, paid = desk(ONE)
    async with Runtime([agent], people=people_of(idp)) as runtime:
        auth = idp.auth(name="email", may=MAY)
        own = make(runtime, agent="desk", auth=auth)
        shared = make(runtime, agent="desk", auth=auth, agent_id=lambda user, thread: thread)

        async def sent(app: Any, sub: str, *messages: Any, **more: Any) -> list[dict[str, Any]]:
            client = Client(app, None)
            client.http.headers.update(of(idp, sub))
            if make is ag_ui:
                return await client.events(*messages, **more)
            body = {"id": "t1", "trigger": "submit-message", **more}
            user = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "go"}]}
            return events_in((await client.post({**body, "messages": [user]})).text)

        for sub in ("ann", "bob"):  # with one name: no conversation of one is the other's
            await sent(own, sub, said("go"))
        listed = await runtime.agents()
        assert len({each.id for each in listed}) == 2

        await sent(shared, "ann", said("go"))
        [request] = (await runtime.get("t1").state()).requests
        assert request.requesters == ("p-ann",)
        given = [answer({"id": request.id}, {"approved": True})]
        refused = await sent(shared, "ann@home", resume=given)
        assert "has asked for the call" in json.dumps(refused)
        await sent(shared, "bob", resume=given)
        [decided] = await runtime.get("t1").decisions()
    assert paid == [7]
    assert [(each.person, each.subject) for each in decided.votes] == [("p-bob", "bob")]


@pytest.mark.slow
async def test_mcp_over_http_keeps_who_has_called(idp: Provider) -> None:
    """V42."""
    agent, paid = desk(ONE)
    with Runtime([agent], people=people_of(idp)) as runtime:
        app = agents_app(lambda: runtime, auth=idp.auth(name="email", may=MAY), decisions=True)
        with served(app) as url:

            async def sent(sub: str, tool: str, **arguments: Any) -> tuple[bool, str]:
                transport = StreamableHttpTransport(f"{url}/mcp", headers=of(idp, sub))
                async with McpClient(transport) as client:
                    found = await client.call_tool(tool, arguments, raise_on_error=False)
                    return found.is_error, found.content[0].text

            await sent("ann", "send_message", agent_id="a", text="go", agent="desk")
            outcome = interrupted(await outcome_of(runtime.get("a")))
            given = {
                "agent_id": "a",
                "request_id": outcome.requests[0].id,
                "digest": outcome.requests[0].digest,
                "decision": "approve",
            }
            is_error, told = await sent("ann@home", "decide", **given)
            assert is_error
            assert "has asked for the call" in told
            assert (await sent("bob", "decide", **given))[0] is False
            await soon(runtime.get("a").outcome())
            [decided] = await soon(runtime.get("a").decisions())
    assert paid == [7]
    assert [(each.subject, each.assurance) for each in decided.votes] == [("bob", "idp")]


async def test_code_of_the_host_names_whom_it_likes_and_that_is_recorded(idp: Provider) -> None:
    """V42: by the name alone, which is no login of the provider."""
    agent, _ = desk(ONE)
    async with Runtime([agent], people=people_of(idp)) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ref.run("go", by="ann by host")
        with pytest.raises(VoteRefused, match="has asked for the call"):
            await ref.resume(approve(by="ann by host"))
        with pytest.raises(VoteRefused, match="knows nobody"):
            await ref.resume(approve(by="ann"))


async def test_a_route_of_the_application_calls_for_a_user(idp: Provider) -> None:
    """V42."""
    agent, paid = desk(ONE)
    ann, bob = (
        User(EMAIL, verified=Caller(name=EMAIL, assurance="idp", issuer=idp.issuer, subject=sub))
        for sub in ("ann", "bob")
    )
    async with Runtime([agent], people=people_of(idp)) as runtime:
        ref = runtime.spawn("desk", id="a")
        await ann.calling(ref).run("go", by=ann.by)
        with pytest.raises(VoteRefused, match="has asked for the call"):
            await ann.calling(ref).resume(approve(by=ann.by))
        with pytest.raises(UsageError, match="is logged in, and 'ann by host' cannot decide"):
            await bob.calling(ref).resume(approve(by="ann by host"))
        await bob.calling(ref).resume(approve(by=bob.by))
        [decided] = await ref.decisions()
    assert paid == [7]
    assert [each.subject for each in decided.votes] == ["bob"]


# ------------------------------------------------------------------ in another's name


IN_HIS_NAME = {"Understudy-As": "Bob%20B."}


async def test_to_act_in_another_name_needs_its_right(idp: Provider) -> None:
    """V43: also of the operator, whose token has all other rights."""
    agent, _ = desk(ONE)
    headers = {"Authorization": "Bearer " + "a token that is long enough"}
    async with Runtime([agent], people={"operator": [], "bob": ["finance"]}) as runtime:
        for auth in (
            TokenAuth("a token that is long enough"),
            loopback_only(),
            lambda _: User("ann", MAY),
        ):
            app = ui(runtime, auth=auth)
            async with client_of(app, headers=headers) as client:
                for path in ("/", "/api/pending"):
                    refused = await client.get(path, headers=IN_HIS_NAME)
                    assert refused.status_code == 403
                    assert "impersonate" in refused.text


async def test_what_is_done_in_another_name_counts_as_of_who_has_done_it(idp: Provider) -> None:
    """V43."""
    agent, paid = desk(approval({"finance": 2}))
    people = {"ann": ["finance"], "bob": ["finance"], "Bob B.": ["finance"]}
    async with Runtime([agent], people=people) as runtime:
        auth: Any = lambda request: User(request.headers["x-user"], {*MAY, "impersonate"})  # noqa: E731
        async with client_of(ui(runtime, auth=auth), headers={"x-user": "ann"}) as client:
            body = {"text": "go", "agent": "desk"}
            await client.post("/api/agents/a/messages", json=body, headers=IN_HIS_NAME)
            await soon(runtime.get("a").outcome())
            row = await only_request(client)
            for headers in (IN_HIS_NAME, {}):  # it is ann, both times
                voted = await vote(client, row, headers)
                assert voted.json()["open"] == {row["id"]: "1 more of finance is missing"}
            [pending] = await runtime.pending()
            assert [(each.person, each.acting_for) for each in pending.votes] == [("ann", "Bob B.")]
            assert paid == []
            await vote(client, row, {"x-user": "bob"})
            await rest(runtime.get("a"))
            [decided] = await runtime.get("a").decisions()
            history = (await client.get("/api/agents/a/history")).json()["entries"]
    assert paid == [7]
    assert decided.decision.by == "ann for Bob B., bob"
    assert "ann for Bob B." in {each["who"] for each in history}


async def test_who_has_asked_in_another_name_has_asked(idp: Provider) -> None:
    """V43: and nobody asks in a name to keep that person from voting."""
    agent, paid = desk(ONE)
    people = {"ann": ["finance"], "Bob B.": ["finance"]}
    async with Runtime([agent], people=people) as runtime:
        auth: Any = lambda request: User(request.headers["x-user"], {*MAY, "impersonate"})  # noqa: E731
        async with client_of(ui(runtime, auth=auth), headers={"x-user": "ann"}) as client:
            body = {"text": "go", "agent": "desk"}
            await client.post("/api/agents/a/messages", json=body, headers=IN_HIS_NAME)
            await soon(runtime.get("a").outcome())
            row = await only_request(client)
            assert (await vote(client, row, {})).status_code == 403
            assert (await vote(client, row, IN_HIS_NAME)).status_code == 403
            assert (await vote(client, row, {"x-user": "Bob B."})).status_code == 200
            await rest(runtime.get("a"))
    assert paid == [7]


@pytest.mark.parametrize("name", ["system", "%D0%B0nn", "ann%0A", "%FF", "%20"])
async def test_a_name_that_is_none_is_refused(name: str) -> None:
    """V43."""
    agent, _ = desk()
    async with Runtime([agent]) as runtime:
        app = ui(runtime, auth=lambda _: User("ann", {*MAY, "impersonate"}))
        async with client_of(app) as client:
            refused = await client.get("/api/pending", headers={"Understudy-As": name})
            assert refused.status_code == 400, refused.text


def test_nobody_is_named_as_the_library_names_itself_or_so_that_it_looks_like_another() -> None:
    """V42."""
    agent, _ = desk()
    for name in ("expiry", "System", "check", "\u0430nn", "ann\u202e", "ann\n", "Zoe\u0308"):
        for make in (
            lambda name=name: Person(id="1", name=name),
            lambda name=name: Person(id=name),
            lambda name=name: User(name),
            lambda name=name: Runtime([agent], people={name: ["finance"]}),
        ):
            with pytest.raises(UsageError, match="cannot be"):
                make()


def test_two_logins_that_look_the_same_are_not_of_two_persons() -> None:
    """V42: a name that is wholly in letters that look like others is allowed, but not beside it."""
    agent, _ = desk(ONE)
    alike = "\u0430\u0440\u0435"  # all Cyrillic
    Runtime([agent], people={alike: ["finance"]})
    ape = Person(id="1", name="Ape", roles=FINANCE)
    Runtime([agent], people={"ape": ape, alike: ape})
    with pytest.raises(UsageError, match="look the same"):
        Runtime([agent], people={"ape": ["finance"], alike: ["finance"]})


async def test_a_vote_is_taken_from_a_provider_whose_login_is_new_enough(idp: Provider) -> None:
    """V35."""
    agent, paid = desk(approval({"finance": 1}, assurance="idp", max_auth_age=900))
    async with Runtime([agent], people=people_of(idp)) as runtime, site(runtime, idp) as client:
        row = await asked_by(runtime, client, idp, "cy")
        with pytest.raises(VoteRefused, match="by an identity provider: log in by it"):
            await soon(runtime.get("a").resume(approve(by="ann by host")))
        now = int(time.time())
        for auth_time, told in (
            (now - 1000, "log in again"),
            (None, "the time of this login is not known"),
        ):
            since = {} if auth_time is None else {"auth_time": auth_time}
            refused = await vote(client, row, of(idp, "ann", **since))
            assert (refused.status_code, paid) == (403, [])
            assert told in refused.json()["detail"]
        await vote(client, row, of(idp, "ann", auth_time=now - 10))
        await rest(runtime.get("a"))
        [decided] = await runtime.get("a").decisions()
    [cast] = decided.votes
    assert cast.auth_at is not None
    assert (cast.assurance, int(cast.auth_at.timestamp())) == ("idp", now - 10)
    assert paid == [7]


CONTROLS: list[tuple[str, Any]] = [
    (
        "a login of a provider is known by its name",
        test_a_login_of_a_provider_is_never_known_by_its_name,
    ),
    (
        "who has asked is kept by the name alone",
        test_who_has_asked_is_known_by_issuer_and_subject_and_not_by_the_name,
    ),
    (
        "who has voted is looked up by the name alone",
        test_right_before_the_call_starts_each_is_looked_up_by_issuer_and_subject,
    ),
    ("anybody acts in another name", test_to_act_in_another_name_needs_its_right),
    (
        "what is done in another name is of that name",
        test_what_is_done_in_another_name_counts_as_of_who_has_done_it,
    ),
    ("what is done in another name is of that name", test_who_has_asked_in_another_name_has_asked),
]


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "attack"), CONTROLS)
async def test_a_build_with_one_rule_left_out_is_found_out(
    idp: Provider, broken: str, attack: Any
) -> None:
    """V42, V43: else the attacks would prove nothing."""
    assert await is_found_out(broken, lambda: attack(idp))
