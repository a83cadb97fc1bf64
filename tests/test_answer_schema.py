"""The schema of a question: what it may be, and that an answer fits it at every door (I18)."""

from __future__ import annotations

import json
from datetime import date
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from pydantic_ai.messages import ToolReturnPart

from tests.support.agents import completed, interrupted, reloaded, results
from tests.support.loops import soon
from tests.support.postgres import Hosts
from tests.support.web_site import only_request, rest, site_of
from understudy import (
    Agent,
    Decision,
    DecisionError,
    Interrupt,
    Runtime,
    ScriptedModel,
    Status,
    ToolContext,
    UsageError,
    approve,
    call,
    reject,
    respond,
    tool,
)
from understudy.journal.database_store import DatabaseStore


class Address(BaseModel):
    street: str = Field(min_length=3)
    floor: int = 0


class Order(BaseModel):
    to: Address
    size: Literal["S", "M"]
    due: date


def _told(result: ToolReturnPart) -> Any:
    """The answer that the tool got."""
    assert isinstance(result.content, str)
    return json.loads(result.content)


GOOD = {"to": {"street": "Long Road", "floor": 2}, "size": "M", "due": "2030-01-02"}


def asking(schema: object, *, movable: bool = True, **options: Any) -> Agent:
    @tool
    def ask(ctx: ToolContext) -> str:
        """Ask a person."""
        if not ctx.resumed:
            raise Interrupt("Which one?", schema=schema, **options)
        return json.dumps(ctx.resume_value)

    model = ScriptedModel([call("ask", {}), "Thanks."])
    return Agent("asker", model, tools=[ask], movable=movable)


@pytest.mark.parametrize(
    ("schema", "fits", "does_not", "field"),
    [
        (Order, GOOD, {**GOOD, "size": "XL"}, "size"),
        (Order, GOOD, {**GOOD, "to": {"street": "ab"}}, "to.street"),
        (Order, GOOD, {"to": {}, "size": "S"}, "due: it is missing; to.street: it is missing"),
        (Order, GOOD, {**GOOD, "due": "tomorrow"}, "due"),
        (int, 3, "3", "'3' is not of type 'integer'"),
        (int, 3, True, "True is not"),
        (list[bool], [True], [True, 1], "1: 1 is not"),
        (Literal["a", "b"], "b", "c", "'c'"),
        ({"type": "string", "format": "date-time"}, "2030-01-01T10:00:00Z", "ten", "date-time"),
        ({"type": "string", "maxLength": 3}, "abc", "x" * 5000, "xxx..."),
        ({"enum": [None, 1]}, None, 0, "0"),
    ],
)
def test_an_answer_that_does_not_fit_names_the_field_and_changes_nothing(
    schema: Any, fits: Any, does_not: Any, field: str
) -> None:
    """I18."""
    agent = asking(schema)
    outcome = interrupted(agent.execute_sync("Ask."))
    (request,) = outcome.requests
    state = reloaded(outcome.state)
    before = state.to_dict()
    for given in (respond(does_not), {"type": "respond", "value": does_not}):
        with pytest.raises(DecisionError) as refused:
            agent.resume_sync(state, {request.id: given})
        assert field.replace("...", "") in str(refused.value)
        assert "(ask)" in str(refused.value)
        assert "Answer by respond(value)" in str(refused.value)
        assert len(str(refused.value)) < 2000
        with pytest.raises(DecisionError):
            outcome.decide(given)
    assert state.to_dict() == before
    after = agent.resume_sync(state, {request.id: respond(fits)})
    assert _told(results(completed(after).state)[0]) == fits


def test_an_answer_may_be_an_object_of_the_model() -> None:
    agent = asking(Address)
    outcome = interrupted(agent.execute_sync("Ask."))
    after = agent.resume_sync(outcome.state, outcome.decide(respond(Address(street="Long Road"))))
    assert _told(results(completed(after).state)[0]) == {
        "street": "Long Road",
        "floor": 0,
    }
    with pytest.raises(DecisionError, match="cannot be stored as JSON"):
        outcome.decide(respond(object()))


@pytest.mark.parametrize("decision", [approve(), reject("no")])
def test_a_rejection_needs_no_value_and_an_approval_neither(decision: Decision) -> None:
    agent = asking(Address, allowed=["approve", "respond", "reject"])
    outcome = interrupted(agent.execute_sync("Ask."))
    completed(agent.resume_sync(outcome.state, outcome.decide(decision)))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"schema": "int"}, "takes a JSON schema as a dict, a Pydantic model or a type, got 'int'"),
        ({"schema": True}, "got True"),
        ({"schema": [int]}, "takes a JSON schema"),
        ({"schema": print}, "takes a JSON schema"),
        ({"schema": {"type": "nope"}}, "is no JSON schema: type"),
        ({"schema": {"pattern": "("}}, "is no JSON schema: pattern"),
        ({"schema": {"type": object}}, "cannot be stored as JSON"),
        ({"schema": {"$ref": "https://example.org/s.json"}}, "nothing is fetched"),
        ({"schema": {"$ref": "#/$defs/Away"}}, "'#/$defs/Away', which it does not hold"),
        ({"schema": object()}, "has no JSON schema"),
        ({"schema": int, "allowed": ["approve"]}, "name 'respond'"),
        ({"key": ""}, "key"),
        ({"key": 3}, "key"),
    ],
)
def test_a_schema_that_can_have_no_answer_is_refused_where_it_is_given(
    options: dict[str, Any], told: str
) -> None:
    """I18."""
    with pytest.raises(UsageError) as refused:
        Interrupt("?", **options)
    assert told in str(refused.value)


def test_a_schema_that_holds_itself_without_end_fits_nothing() -> None:
    agent = asking({"$ref": "#"})
    outcome = interrupted(agent.execute_sync("Ask."))
    with pytest.raises(DecisionError, match="cannot be checked"):
        outcome.decide(respond(1))


async def test_an_agent_in_a_runtime_takes_what_fits_alone() -> None:
    async with Runtime([asking(Order)]) as runtime:
        ref = runtime.spawn("asker", id="a1")
        await soon(ref.run("Ask."))
        ((pending,)) = await soon(runtime.pending())
        assert pending.request.schema is not None
        for door in (ref.decide, ref.resume):
            with pytest.raises(DecisionError, match="size"):
                await soon(door({pending.request.id: respond({**GOOD, "size": "XL"})}))
        await soon(ref.decide({pending.request.id: respond(GOOD)}))
        await rest(ref)


@pytest.mark.slow
async def test_an_answer_that_is_posted_to_the_owner_is_checked_there(hosts: Hosts) -> None:
    stores = [DatabaseStore(hosts.new(name)) for name in ("owner", "other")]
    # The other host cannot take it: it posts the answer.
    agents = [asking(Order, movable=False) for _ in stores]
    async with (
        Runtime(agents[:1], store=stores[0], idle_timeout=None) as owner,
        Runtime(agents[1:], store=stores[1], idle_timeout=None) as other,
    ):
        asked = interrupted(await soon(owner.spawn("asker", id="a1").run("Ask.")))
        (request,) = asked.requests
        there = other.get("a1")
        for door in (there.decide, there.resume):
            with pytest.raises(DecisionError, match="size"):
                await soon(door({request.id: respond({**GOOD, "size": "XL"})}))
        assert (await soon(there.info())).status is Status.INTERRUPTED
        done = completed(await soon(there.resume({request.id: respond(GOOD)})))
        assert _told(results(done.state)[0]) == GOOD
        assert [info.host for info in await soon(other.agents())] == ["owner"]


async def test_the_api_says_which_field_does_not_fit() -> None:
    async with Runtime([asking(Order)]) as runtime:
        ref = runtime.spawn("asker", id="a1")
        await soon(ref.run("Ask."))
        async with site_of(runtime) as client:
            row = await only_request(client)
            assert row["schema"]["properties"]["size"]["enum"] == ["S", "M"]
            body = {
                "decisions": {row["id"]: {"type": "respond", "value": {**GOOD, "size": "XL"}}},
                "expect": {row["id"]: row["digest"]},
            }
            found = await client.post("/api/agents/a1/decisions", json=body)
            assert (found.status_code, "size" in found.json()["detail"]) == (422, True)
            body["decisions"][row["id"]]["value"] = GOOD
            found = await client.post("/api/agents/a1/decisions", json=body)
            assert found.status_code == 200
            await rest(ref)


async def _typed(schema: object, typed: dict[str, str]) -> tuple[Any, list[int], str]:
    """What the tool gets of a form, the statuses, and the last page."""
    async with Runtime([asking(schema)]) as runtime:
        ref = runtime.spawn("asker", id="a1")
        await soon(ref.run("Ask."))
        async with site_of(runtime) as client:
            row = await only_request(client)
            page = f"/agents/a1/requests/{row['id']}"
            shown = await client.get(page)
            assert 'id="answer"' in shown.text
            form = {"digest": row["digest"], "decision": "respond", **typed}
            found = await client.post(page, data=form)
            if found.status_code == 303:
                await rest(ref)
                (result,) = results(await soon(ref.state()))
                return _told(result), [shown.status_code, 303], found.text
            assert ref.status() is Status.INTERRUPTED
            return None, [shown.status_code, found.status_code], found.text


@pytest.mark.parametrize(
    ("schema", "typed", "answer"),
    [
        (Order, {"v:/answer/to/street": "Long Road", "v:/answer/to/floor": "2",
                 "v:/answer/size": '"M"', "v:/answer/due": "2030-01-02"}, GOOD),
        (int, {"v:/answer": "12"}, 12),
        (str, {"v:/answer": "Ann"}, "Ann"),
        (bool, {"v:/answer": "false"}, False),
        (Literal["a", "b"], {"v:/answer": '"b"'}, "b"),
        (list[int], {"n:/answer": "2", "v:/answer/0": "1", "v:/answer/1": "2"}, [1, 2]),
        (dict[str, int], {"v:/answer": '{"a": 1}'}, {"a": 1}),
        (int | None, {"is:/answer": "null", "v:/answer": ""}, None),
    ],
)  # fmt: skip
async def test_the_inbox_asks_for_the_answer_by_a_form(
    schema: object, typed: dict[str, str], answer: Any
) -> None:
    got, statuses, _ = await _typed(schema, typed)
    assert (got, statuses) == (answer, [200, 303])


@pytest.mark.parametrize(
    ("schema", "typed", "place"),
    [
        (int, {"v:/answer": "many"}, "/answer"),
        (dict[str, int], {"v:/answer": "{"}, "/answer"),
        (
            Order,
            {"v:/answer/to/street": "ab", "v:/answer/size": '"M"', "v:/answer/due": "2030-01-02"},
            "/answer/to/street",
        ),
    ],
)
async def test_an_answer_that_does_not_fit_is_told_at_its_field(
    schema: object, typed: dict[str, str], place: str
) -> None:
    got, statuses, page = await _typed(schema, typed)
    assert (got, statuses) == (None, [200, 422])
    assert f'id="e-f{place.encode().hex()}"' in page
    assert next(iter(typed.values())) in page
