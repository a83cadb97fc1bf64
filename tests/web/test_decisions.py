"""What is shown is what is decided: the digest, stale answers, the same twice, many at once.

Rules: I16, I17.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.agents import by_turn, results
from tests.support.loops import soon
from tests.support.places import Place
from tests.support.web_site import (
    TABS,
    Done,
    asked,
    desk,
    logged_in,
    only_request,
    refund,
    rest,
    site_of,
)
from understudy import (
    Agent,
    Interrupt,
    Runtime,
    SimulatedClock,
    Status,
    ToolContext,
    approve,
    call,
    reject,
    tool,
)
from understudy.interrupts import Decision
from understudy.middleware import AskUser


def answer_to(row: dict[str, Any], type: str = "approve", **more: Any) -> dict[str, Any]:
    """The body that answers a request of the inbox."""
    decision = {"type": type, **more}
    return {"decisions": {row["id"]: decision}, "expect": {row["id"]: row["digest"]}}


async def post(client: httpx.AsyncClient, row: dict[str, Any], **body: Any) -> httpx.Response:
    return await client.post(f"/api/agents/{row['agent_id']}/decisions", json=body)


async def test_an_approval_is_recorded_and_the_call_runs(place: Place) -> None:
    done = Done()
    async with Runtime([desk(done, refund())], store=place.store()) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            assert row["arguments"] == {"order_id": "17", "amount": 49.9, "reason": ""}
            found = await post(client, row, **answer_to(row))
            done_so = {"agent_id": "a1", "recorded": [row["id"]], "repeated": False, "open": {}}
            assert found.json() == done_so
            await rest(ref)
            assert [name for name, _ in done.calls] == ["refund"]
            # The same once more is a success, also when the run has ended, and runs nothing.
            again = await post(client, row, **answer_to(row))
            assert (again.status_code, again.json()["repeated"]) == (200, True)
            await soon(ref.run("something else"))
            later = await post(client, row, **answer_to(row))
            assert (later.status_code, later.json()["repeated"]) == (200, True)
            assert len(done.calls) == 1


async def test_a_form_without_a_decision_decides_nothing_and_keeps_what_was_typed() -> None:
    async with Runtime([desk(Done(), refund())]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            page = f"/agents/a1/requests/{row['id']}"
            typed = {
                "digest": row["digest"],
                "message": "why not",
                "note": "seen",
                "grant": "no end",
            }
            typed["value"] = ""
            for decision, said in (("", "Nothing is decided yet"), ("respond", "A reason for the")):
                shown = await client.post(page, data={**typed, "decision": decision})
                assert (shown.status_code, said in shown.text) == (422, True)
                assert "why not</textarea>" in shown.text
                assert "seen</textarea>" in shown.text
                assert 'value="no end" selected' in shown.text
        assert ref.status() is Status.INTERRUPTED


async def test_another_answer_is_told_who_decided_what_and_when() -> None:
    done = Done()
    async with Runtime([desk(done, refund())]) as runtime:
        ref = await asked(runtime)
        async with (
            site_of(runtime, auth=logged_in("ann")) as ann,
            site_of(runtime, auth=logged_in("bob")) as bob,
        ):
            row = await only_request(bob)
            assert (await post(ann, row, **answer_to(row, "reject"))).status_code == 200
            await rest(ref)
            stale = await post(bob, row, **answer_to(row))
            assert stale.status_code == 409
            problem = stale.json()
            assert problem["detail"] == "ann rejected it."
            assert problem["story"]["by"] == "ann"
            assert problem["story"]["at"] is not None
            page = f"/agents/a1/requests/{row['id']}"
            form = {"decision": "approve", "digest": row["digest"]}
            shown = await bob.post(page, data=form)
            assert shown.status_code == 409
            assert "ann rejected it." in shown.text
            assert "Your answer changed nothing" in shown.text
            assert "ann rejected it." in (await bob.get(page)).text
    assert done.calls == []


@pytest.mark.parametrize(
    ("origin", "says"),
    [
        ("expiry", "Its time was over before somebody answered."),
        ("executor", "Nobody decided it: the program of ann, which executes the call, failed."),
    ],
)
async def test_nobody_is_said_to_have_rejected_what_nobody_decided(origin: Any, says: str) -> None:
    """I14: on each page about it, and in what the model gets."""
    clock = SimulatedClock()

    @tool
    def scan(ctx: ToolContext) -> str:
        """Scan a label at the desk."""
        raise Interrupt("Scan it.", allowed=("respond", "reject"), expires_after=60)

    agent = Agent("desk", by_turn(call("scan"), "ok"), tools=[scan])
    async with Runtime([agent], clock=clock) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            forged = answer_to(row, "reject", origin=origin)
            assert (await post(client, row, **forged)).status_code == 400
            if origin == "expiry":
                await clock.advance(61)
                await rest(ref)
            else:
                failed = Decision(type="reject", origin=origin, message="No light.", by="ann")
                await soon(ref.resume({row["id"]: failed}))
            page = (await client.get(f"/agents/a1/requests/{row['id']}")).text
            assert says in page
            tabs = [(await client.get(f"/agents/a1{tab}")).text for tab in TABS]
        (part,) = results(await soon(ref.state()))
        rows = (await soon(ref.display())).rows
    assert [each.detail["decision"]["origin"] for each in rows if each.kind == "request"] == [
        origin
    ]
    for text in (page, *tabs, str(part.content)):
        assert "rejected" not in text
        assert "a person decided" not in text
    assert not any(">reject<" in text for text in tabs)
    assert part.outcome == ("denied" if origin == "expiry" else "failed")


async def test_a_decision_on_something_else_than_was_shown_is_refused() -> None:
    """I16."""
    done = Done()
    async with Runtime([desk(done, refund())]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            wrong = await post(client, {**row}, **answer_to({**row, "digest": "another"}))
            assert (wrong.status_code, wrong.json()["error"]) == (409, "RequestChanged")
            without = answer_to(row) | {"expect": {}}
            assert (await post(client, row, **without)).status_code == 400
            form = {"decision": "approve"}  # no digest
            page = f"/agents/a1/requests/{row['id']}"
            assert (await client.post(page, data=form)).status_code == 409
            await post(client, row, **answer_to(row))
            await rest(ref)
            again = await post(client, row, **answer_to({**row, "digest": "another"}))
            assert again.status_code == 409  # also where it is answered, and the same
        assert ref.status() is Status.IDLE
    assert len(done.calls) == 1


@pytest.mark.parametrize("how", ["withdrawn", "deleted", "cancelled", "expired"])
async def test_an_answer_that_comes_too_late_changes_nothing(how: str) -> None:
    done = Done()
    clock = SimulatedClock()
    agent = desk(done, refund(), "ok", gate={"expires_after": 60.0})
    async with Runtime([agent], clock=clock) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            page = f"/agents/a1/requests/{row['id']}"
            assert (await client.get(page)).status_code == 200
            if how == "withdrawn":
                await soon(ref.run("never mind"))
            elif how == "deleted":
                await soon(runtime.delete("a1"))
            elif how == "cancelled":
                await soon(ref.cancel())
            else:
                await clock.advance(61)
                await rest(ref)
            late = await post(client, row, **answer_to(row))
            assert late.status_code == 409, late.json()
            words = {
                "withdrawn": "A new message",
                "deleted": "does not exist any more",
                "cancelled": "no longer asked",
                "expired": "Its time was over",
            }
            assert words[how] in late.json()["detail"]
            form = {"decision": "approve", "digest": row["digest"]}
            assert (await client.post(page, data=form)).status_code == 409
            assert (await client.get(page)).status_code == (404 if how == "deleted" else 200)
    assert done.calls == []


async def test_a_decision_that_does_not_fit_is_refused_and_the_request_stands() -> None:
    done = Done()
    async with Runtime([desk(done, refund())]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            edited = answer_to(row, "edit", arguments={"order_id": "17", "amount": "much"})
            wrong = await post(client, row, **edited)
            assert wrong.status_code == 422
            assert "amount" in wrong.json()["detail"]
            assert (await post(client, row, **answer_to(row, "dismiss"))).status_code == 422
            for type, lacks in (("respond", "value"), ("edit", "arguments")):
                short = await post(client, row, **answer_to(row, type))
                assert short.status_code == 422
                assert f"'{type}' needs" in short.json()["detail"]
                assert f"`{lacks}`" in short.json()["detail"]
            assert (await post(client, row, **answer_to(row, "fly"))).status_code == 400
            unknown = answer_to({**row, "id": "none"})
            assert (await post(client, row, **unknown)).status_code == 409
        assert ref.status() is Status.INTERRUPTED
        await soon(ref.resume({row["id"]: reject()}))


async def test_what_is_about_something_expired_is_not_taken_for_an_expired_request() -> None:
    @tool(ask=True)
    def renew_expired(days: int) -> str:
        return "renewed"

    agent = Agent("desk", by_turn(call("renew_expired", {"days": 1})), tools=[renew_expired])
    async with Runtime([agent]) as runtime:
        await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            wrong = await post(client, row, **answer_to(row, "edit", arguments={"days": "many"}))
    assert (wrong.status_code, wrong.json()["error"]) == (422, "DecisionError")
    assert "days" in wrong.json()["detail"]


async def test_of_a_reply_with_three_calls_nothing_starts_until_all_are_answered() -> None:
    done = Done()
    turn = [refund("1"), refund("2"), refund("3")]
    async with Runtime([desk(done, turn)]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            rows = (await client.get("/api/pending")).json()["requests"]
            assert [(row["reply_answered"], row["reply_size"]) for row in rows] == [(0, 3)] * 3
            await post(client, rows[1], **answer_to(rows[1]))
            await rest(ref, Status.INTERRUPTED)
            rows = (await client.get("/api/pending")).json()["requests"]
            assert [(row["reply_answered"], row["reply_size"]) for row in rows] == [(1, 3)] * 2
            page = (await client.get("/")).text
            assert "1 of 3 answered; nothing starts until all are." in page
            assert done.calls == []
            for row in rows:
                await post(client, row, **answer_to(row))
            await rest(ref)
    assert len(done.calls) == 3


async def test_the_inbox_says_how_many_are_answered_and_wakes_no_agent_that_it_has_whole(
    place: Place,
) -> None:
    done = Done()
    turn = [refund("1"), refund("2"), refund("3")]
    async with Runtime([desk(done, turn)], store=place.store()) as runtime:
        for number in range(3):
            ref = await asked(runtime, id=f"a{number}")
        request = (await runtime.pending())[-1].request
        await soon(ref.resume({request.id: approve()}))
        await rest(ref, Status.INTERRUPTED)
    async with (
        Runtime([desk(done, turn)], store=place.store()) as runtime,
        site_of(runtime) as client,
    ):
        page = (await client.get("/")).text
        assert page.count("0 of 3 answered; nothing starts until all are.") == 2
        assert "1 of 3 answered; nothing starts until all are." in page
        assert not [info.id for info in await runtime.agents() if info.is_active]
        found = (await client.get("/api/pending?tool=refund&limit=1")).json()["requests"]
        assert [(row["reply_answered"], row["reply_size"]) for row in found] == [(0, 3)]


async def test_many_are_decided_each_for_itself() -> None:
    done = Done()
    async with Runtime(
        [desk(done, refund()), desk(done, call("question"), name="asker")]
    ) as runtime:
        refs = [await asked(runtime, id=f"a{n:02}") for n in range(8)]
        await asked(runtime, "asker", "q1")
        async with site_of(runtime) as client:
            rows = (await client.get("/api/pending")).json()["requests"]
            chosen = [row for row in rows if row["tool_name"] == "refund"]
            await soon(refs[0].resume({chosen[0]["id"]: reject(by="bob")}))
            await soon(runtime.delete("a01"))
            items = [
                {"agent_id": r["agent_id"], "request_id": r["id"], "digest": r["digest"]}
                for r in chosen
            ]
            items[2]["digest"] = "another"
            body = {"decision": {"type": "approve", "note": "all"}, "requests": items}
            result = (await client.post("/api/bulk", json=body)).json()
            assert (result["recorded"], result["refused"]) == (5, 3)
            told = {row["agent_id"]: row["detail"] for row in result["results"] if not row["ok"]}
            assert told["a00"] == "bob rejected it."
            assert "does not exist" in told["a01"]
            assert "is not what was shown" in told["a02"]
            for ref in refs[3:]:
                await rest(ref)
            audit = await soon(refs[3].decisions())
            assert (audit[0].decision.by, audit[0].decision.note) == ("ann", "all")
            for wrong in ("edit", "respond", "dismiss"):
                body = {"decision": {"type": wrong, "arguments": {}}, "requests": items}
                assert (await client.post("/api/bulk", json=body)).status_code == 400
    assert len(done.calls) == 5


async def test_many_are_shown_in_full_before_they_are_decided() -> None:
    done = Done()
    reason = "a long reason " * 40 + "and its end"
    async with Runtime(
        [desk(done, refund(reason=reason)), desk(done, call("question"), name="asker")]
    ) as runtime:
        refs = [await asked(runtime, id=f"a{n}") for n in range(3)]
        await asked(runtime, "asker", "q1")
        async with site_of(runtime) as client:
            rows = (await client.get("/api/pending")).json()["requests"]
            values = [f"{row['agent_id']}/{row['id']}/{row['digest']}" for row in rows]
            refunds = values[:3]
            shown = (await client.post("/bulk", data={"chosen": refunds})).text
            assert shown.count("and its end") == 1, "once: it is the same in all of them"
            assert 'value="approve"' in shown
            mixed = (await client.post("/bulk", data={"chosen": values})).text
            assert 'value="approve"' not in mixed  # a question cannot be approved
            assert 'value="reject"' in mixed
            assert all(ref.status() is Status.INTERRUPTED for ref in refs)
            await soon(refs[2].resume({rows[2]["id"]: approve(by="bob")}))
            form = {"chosen": refunds, "decision": "reject", "confirmed": "yes", "message": "no"}
            table = (await client.post("/bulk", data=form)).text
            assert "2 recorded, 1 refused" in table
            assert "bob approved it." in table
            assert (await client.post("/bulk", data={"decision": "reject"})).status_code == 400
            broken = await client.post("/bulk", data={"chosen": "a/b"})
            assert broken.status_code == 400
    assert len(done.calls) == 1


async def test_every_kind_of_request_is_shown_with_its_decisions_alone() -> None:
    done = Done()
    agents = [
        desk(done, refund(), "ok"),
        desk(done, call("question"), "ok", name="asker"),
        desk(done, call("stop_all"), "ok", name="halter"),
    ]
    async with Runtime(agents) as runtime:
        refs = {
            "approval": await asked(runtime),
            "interrupt": await asked(runtime, "asker", "q1"),
            "halt": await asked(runtime, "halter", "h1"),
        }
        buttons = {
            "approval": {"approve", "edit", "reject", "respond"},
            "interrupt": {"respond", "reject"},
            "halt": {"dismiss"},
        }
        async with site_of(runtime) as client:
            for row in (await client.get("/api/pending")).json()["requests"]:
                page = f"/agents/{row['agent_id']}/requests/{row['id']}"
                text = (await client.get(page)).text
                shown = {
                    word
                    for word in ("approve", "edit", "reject", "respond", "dismiss")
                    if f'name="decision" value="{word}"' in text
                }
                assert shown == buttons[row["kind"]]
            rows = {r["kind"]: r for r in (await client.get("/api/pending")).json()["requests"]}
            question = f"/agents/q1/requests/{rows['interrupt']['id']}"
            form = {"decision": "respond", "digest": rows["interrupt"]["digest"]}
            wrong = await client.post(question, data={**form, "value": "{", "value_is": "json"})
            assert wrong.status_code == 422
            assert "no JSON" in wrong.text
            right = await client.post(question, data={**form, "value": "A"})
            assert right.status_code == 303
            halt = f"/agents/h1/requests/{rows['halt']['id']}"
            form = {"decision": "dismiss", "digest": rows["halt"]["digest"]}
            assert (await client.post(halt, data=form)).status_code == 303
            await rest(refs["interrupt"])
        assert done.calls == [("question", {"value": "A"})]


@pytest.mark.parametrize(
    ("decision", "more", "says"),
    [
        ("approve", {"message": "too much"}, "A reason for the model is written"),
        ("respond", {"value": "x", "message": "too much"}, "A reason for the model is written"),
        ("approve", {"value": "refunded by hand"}, "An answer is written"),
        ("reject", {"value": "refunded by hand"}, "An answer is written"),
        ("respond", {"value": "x", "grant": "no end"}, "Later calls can be approved"),
    ],
)
async def test_what_was_filled_in_for_another_decision_is_not_dropped_without_a_word(
    decision: str, more: dict[str, str], says: str
) -> None:
    done = Done()
    async with Runtime([desk(done, refund(), "ok")]) as runtime:
        ref = await asked(runtime)
        async with site_of(runtime) as client:
            row = await only_request(client)
            page = f"/agents/a1/requests/{row['id']}"
            form = {"digest": row["digest"], "decision": decision, **more}
            answer = await client.post(page, data=form)
            assert answer.status_code == 422
            assert says in answer.text
            assert all(text == "yes" or text in answer.text for text in more.values())
        assert ref.status() is Status.INTERRUPTED
    assert done.calls == []


async def test_an_answer_in_fields_is_not_dropped_by_a_rejection() -> None:
    questions = [{"question": "Who pays?"}, {"question": "How many?", "kind": "number"}]
    asks = call("ask_user", {"questions": questions})
    asker = Agent("asker", by_turn(asks, "Thanks."), middleware=[AskUser()])
    async with Runtime([asker]) as runtime, site_of(runtime) as client:
        await asked(runtime, "asker")
        row = await only_request(client)
        page = f"/agents/a1/requests/{row['id']}"
        fields = {"v:/answer/Who pays?": "", "v:/answer/How many?": ""}
        form = {"digest": row["digest"], "decision": "reject", **fields}
        written = await client.post(page, data={**form, "v:/answer/Who pays?": "Ann"})
        assert written.status_code == 422
        assert "An answer is written" in written.text
        assert (await client.post(page, data=form)).status_code == 303
