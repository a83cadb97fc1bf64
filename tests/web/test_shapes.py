"""Each answer of the API has exactly the shape that its document describes."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.support.loops import soon
from tests.support.notified import EVERY, Kept, told
from tests.support.notified import asked as asked_of
from tests.support.notified import desk as asking
from tests.support.web_demo import agents, filled
from tests.support.web_site import Done, site_of
from understudy import Runtime
from understudy.errors import ApprovalNeeded
from understudy.notify import Notify, Rule
from understudy.trust import Budget, Rules, approval, calls, day
from understudy.trust import ask as ask_rule
from understudy.web.api import ENDPOINTS, Endpoint

adapter = functools.cache(TypeAdapter[Any])
"""It takes longer to make one than to check all answers by it."""


def checked(endpoint: Endpoint, answer: Any) -> Any:
    """The answer, which is of the shape."""
    adapter(endpoint.answer).validate_python(answer)
    return answer


@pytest.mark.slow
async def test_each_answer_is_of_the_shape_that_the_document_says() -> None:
    by_route = {(endpoint.method, endpoint.path): endpoint for endpoint in ENDPOINTS}
    left = {route for route, endpoint in by_route.items() if endpoint.answer is not None}
    options: Any = {"feed": True, "search": True, "usage": True}
    async with Runtime(agents(Done()), **options) as runtime, site_of(runtime) as client:
        await filled(runtime, more=2)
        daily = runtime.schedule("ticket-2046", "daily", cron="0 6 * * *", input="go")
        await soon(daily)

        async def ask(method: str, route: str, path: str = "", **body: Any) -> Any:
            left.discard((method, route))
            sent = None if method == "GET" else body
            found = await client.request(method, f"/api{path or route}", json=sent)
            assert found.status_code == 200, (method, path or route, found.text)
            return checked(by_route[method, route], found.json())

        await ask("GET", "")
        rows = (await ask("GET", "/pending"))["requests"]
        assert len((await ask("GET", "/doubts"))["doubts"]) == 3
        assert (await ask("GET", "/reviews"))["reviews"] == []
        found = (await ask("GET", "/search", "/search?text=refund"))["hits"]
        assert {hit["where"] for hit in found} == {"request", "conversation"}
        listed = (await ask("GET", "/agents", "/agents?limit=100"))["agents"]
        agent = "/agents/{agent_id}"
        named = {f"{agent}/file"}  # it needs a path
        await ask("GET", f"{agent}/file", "/agents/ticket-2041/file?path=lamp.png")
        await ask("GET", f"{agent}/files", "/agents/ticket-2041/files")
        for row in listed:
            for endpoint in ENDPOINTS:
                if endpoint.method == "GET" and endpoint.path.startswith(agent):
                    path = endpoint.path.replace("{agent_id}", row["id"])
                    if (
                        endpoint.answer is not None
                        and "{" not in path
                        and endpoint.path not in named
                    ):
                        await ask("GET", endpoint.path, path)
        for row in rows:
            path = f"/agents/{row['agent_id']}/requests/{row['id']}"
            await ask("GET", f"{agent}/requests/{{request_id}}", path)
            after = f"/agents/{row['agent_id']}/conversation?after=1"
            await ask("GET", f"{agent}/conversation", after)

        at = f"/agents/{rows[0]['agent_id']}/requests/{rows[0]['id']}"
        of = f"{agent}/requests/{{request_id}}"
        later = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
        await ask("POST", f"{of}/assign", f"{at}/assign", to="bob")
        await ask("POST", f"{of}/take", f"{at}/take", until=later)
        await ask("POST", f"{of}/comment", f"{at}/comment", text="Who is that?")
        await ask("POST", f"{of}/snooze", f"{at}/snooze", until=later)
        found = await ask("GET", f"{of}/notes", f"{at}/notes")
        assert (found["is_yours"], len(found["comments"])) == (True, 1)
        assert found["snoozed_until"] is not None
        await ask("GET", of, at)
        await ask("GET", "/pending", "/pending?of=all")
        asked = next(row for row in rows if row["tool_name"] == "refund" and row["reply_size"] == 1)
        id, request = asked["agent_id"], asked["id"]
        about = f"/agents/{id}"
        bulk = {"agent_id": id, "request_id": request, "digest": "another"}
        await ask("POST", "/bulk", decision={"type": "reject"}, requests=[bulk])
        given = {request: {"type": "reject"}}
        expect = {request: asked["digest"]}
        path = f"{about}/decisions"
        await ask("POST", f"{agent}/decisions", path, decisions=given, expect=expect)
        await ask("GET", f"{agent}/requests/{{request_id}}", f"{about}/requests/{request}")
        await ask("GET", f"{agent}/decisions", f"{about}/decisions")
        assert len((await ask("GET", "/decisions", "/decisions?limit=2"))["decisions"]) == 2
        assert (await ask("GET", "/attention"))["doubts"]["count"] == 3
        assert (await ask("GET", "/usage"))["total"]["requests"] > 0

        def doing(name: str, id: str, **body: Any) -> Any:
            return ask("POST", f"{agent}/{name}", f"/agents/{id}/{name}", **body)

        await doing("schedules", "ticket-2046", schedule="daily", action="trigger")
        await doing("schedules", "ticket-2046", schedule="daily", action="remove")
        at = "2100-01-01T00:00:00+00:00"
        sent = await doing("messages", "ticket-2046", text="later", at=at)
        await ask("GET", agent, "/agents/ticket-2046")
        await doing("cancel_message", "ticket-2046", message_id=sent["message_id"])
        await doing("pause", "ticket-2045")
        await doing("unpause", "ticket-2045")
        await doing("cancel", "ticket-2048")
        await doing("retry", "ticket-2046")
        doubts = (await ask("GET", agent, "/agents/ticket-2049"))["doubts"]
        await doing("settle", "ticket-2049", call_key=doubts[0]["call_key"], how="it came")
        await doing("compact", "ticket-2048")
        exported = await ask("GET", f"{agent}/export", "/agents/ticket-2048/export")
        await ask("POST", "/import", data=exported, id="copy")
        await ask("DELETE", agent, "/agents/copy", confirm="copy")
        await ask("POST", "/recover")
    people: Any = {"ann": ["ops"], "bob": ["ops"]}
    protect: Any = {"delete": approval({"ops": 2})}
    async with (
        Runtime(agents(Done()), people=people, protect=protect) as runtime,
        site_of(runtime) as client,
    ):
        until = (await soon(runtime.now()) + timedelta(days=1)).isoformat()
        giving: Any = {"to": "bob", "roles": ["ops"], "until": until, "reason": "away"}
        made = await ask("POST", "/delegations", **giving)
        assert len((await ask("GET", "/delegations"))["delegations"]) == 1
        await ask("POST", "/delegations/end", id=made["id"])
        with pytest.raises(ApprovalNeeded) as needed:
            await soon(runtime.delete("ticket-2041", by="bob"))
        asked = needed.value.request_id
        await ask("POST", "/administration/vote", request_id=asked, type="approve")
        assert len((await ask("GET", "/administration"))["requests"]) == 1
        frozen = await ask("POST", "/freezes", why="a leak", tool="refund")
        for path in ("/freezes", f"/freezes?id={frozen['id']}"):
            assert len((await ask("GET", "/freezes", path))["freezes"]) == 1
        await ask("POST", "/freezes/thaw", id=frozen["id"])
        await ask("POST", "/requirements", name="freeze")
        assert len((await ask("GET", "/requirements"))["requirements"]) == 4
    rules = Rules(ask_rule("refund", name="refunds"), version=7)
    async with (
        Runtime(agents(Done()), rules=rules) as runtime,
        site_of(runtime) as client,
    ):
        assert (await ask("GET", "/rules"))["holds"] == 7
        await ask("POST", "/rules/retire", version=7)
    kept = Kept(fails=1, is_final=True)
    notify = Notify(Rule(kept), base_url="https://ops.example.com", every=EVERY)
    async with Runtime([asking()], notify=notify) as runtime, site_of(runtime) as client:
        await asked_of(runtime)
        [row] = await told(runtime, lambda rows: [each.state for each in rows] == ["failed"])
        [seen] = (await ask("GET", "/notifications"))["notifications"]
        assert seen["no"] == row.no
        await ask("POST", "/notifications/retry", no=row.no)
    budgets = [
        Budget("refunds", calls("refund", 5), window=day()),
        Budget("each", calls("refund", 5), per="agent"),
    ]
    async with Runtime(agents(Done()), budgets=budgets) as runtime, site_of(runtime) as client:
        for raising in ({"name": "refunds"}, {"name": "each", "key": "agent=ticket-2041"}):
            await ask("POST", "/budgets/raise", amount=3, why="a recall", **raising)
        assert len((await ask("GET", "/budgets"))["budgets"]) == 2
    # These need a grant, and a broken glass; both answer as `cancel`.
    assert left == {("POST", f"{agent}/revoke"), ("POST", f"{agent}/close_review")}


def test_the_document_describes_each_answer() -> None:
    from understudy.web.api import document

    found = document()
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            for media, content in operation["responses"]["200"]["content"].items():
                schema = content["schema"]
                is_export = path.endswith("/export")
                is_stream = media in ("text/event-stream", "application/jsonl")
                assert is_stream or is_export or "$ref" in schema, (method, path)
    used = str(found)
    for name in found["components"]["schemas"]:
        assert used.count(f"schemas/{name}'") >= 1, name
