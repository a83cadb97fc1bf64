"""The files of an agent: listed, looked at as text alone, and kept by a download."""

from __future__ import annotations

from base64 import b64decode
from urllib.parse import unquote

from tests.support.loops import soon
from tests.support.places import SqlitePlace
from tests.support.web_site import HOSTILE, Done, asked, desk, logged_in, refund, site_of
from understudy import Observer, Runtime, approve
from understudy.middleware import Workspace

NAME = "notes/a;'x=y, é & z.html"


async def test_a_file_is_only_ever_text_or_a_download() -> None:
    async with Runtime([desk(Done(), refund(), "ok")]) as runtime, site_of(runtime) as client:
        ref = await asked(runtime)
        assert "files" not in (await client.get("/agents/a1")).text
        big = bytes(range(256)) * 400  # of several pieces
        await soon(Workspace.of(ref).write_all({NAME: HOSTILE, "big.bin": big, "empty": ""}))
        about = (await client.get("/api/agents/a1")).json()
        assert about["files"] == 3
        listed = (await client.get("/api/agents/a1/files")).json()["files"]
        assert {row["path"]: row["size"] for row in listed} == {
            NAME: len(HOSTILE.encode()), "big.bin": len(big), "empty": 0,
        }  # fmt: skip
        tab = await client.get("/agents/a1/files")
        assert "/agents/a1/files" in (await client.get("/agents/a1")).text
        for page in (tab, await client.get("/agents/a1/files", params={"path": NAME})):
            assert page.status_code == 200
            assert "<script>" not in page.text
            assert "<img" not in page.text
        kept = await client.get("/agents/a1/files/download", params={"path": NAME})
        assert kept.content == HOSTILE.encode()
        assert kept.headers["content-type"] == "application/octet-stream"
        assert kept.headers["x-content-type-options"] == "nosniff"
        how, _, name = kept.headers["content-disposition"].partition("; filename*=UTF-8''")
        assert (how, unquote(name)) == ("attachment", NAME.partition("/")[2])
        assert (await client.get("/agents/a1/files?path=big.bin")).status_code == 200
        found = (await client.get("/api/agents/a1/file?path=big.bin")).json()
        assert (found["text"], b64decode(found["base64"])) == (None, big)
        found = (await client.get("/api/agents/a1/file?path=empty")).json()
        assert (found["text"], found["base64"], found["size"]) == ("", None, 0)
        for place in ("/api/agents/a1/file", "/agents/a1/files", "/agents/a1/files/download"):
            assert (await client.get(f"{place}?path=../etc/passwd")).status_code == 404
        for place in ("/api/agents/a1/file", "/agents/a1/files/download"):
            assert (await client.get(place)).status_code == 400


async def test_what_is_hidden_is_hidden_in_files_as_well() -> None:
    def hide(path: tuple[str | int, ...], value: object) -> object:
        return "hidden" if isinstance(value, str) and "pin-47-11" in value else value

    async with Runtime([desk(Done(), refund(), "ok")]) as runtime:
        ref = await asked(runtime)
        await soon(Workspace.of(ref).write_all({"pin": "pin-47-11", "raw": b"pin-47-11\0"}))
        reader = logged_in("ann", frozenset({"read"}))
        async with site_of(runtime, redact=hide, auth=reader) as client:
            assert (await client.get("/api/agents/a1/file?path=pin")).json()["text"] == "hidden"
            assert (await client.get("/api/agents/a1/file?path=raw")).json()["base64"] is None
            assert "pin-47-11" not in (await client.get("/agents/a1/files?path=pin")).text
            kept = await client.get("/agents/a1/files/download?path=pin")
            assert (kept.status_code, "pin-47-11" in kept.text) == (403, False)


async def test_an_observer_shows_the_files_beside_the_runtime(sqlite: SqlitePlace) -> None:
    async with Runtime([desk(Done(), refund(), "ok")], store=sqlite.store()) as runtime:
        ref = await asked(runtime)
        await soon(Workspace.of(ref).write("a.txt", "hello"))
        async with Observer(f"sqlite:///{sqlite.path}") as observer, site_of(observer) as client:
            assert (await client.get("/agents/a1/files/download?path=a.txt")).content == b"hello"
            assert "hello" in (await client.get("/agents/a1/files?path=a.txt")).text


async def test_a_form_of_fields_that_enter_sends_decides_nothing() -> None:
    async with Runtime([desk(Done(), refund(), "ok")]) as runtime, site_of(runtime) as client:
        ref = await asked(runtime)
        (row,) = (await client.get("/api/pending")).json()["requests"]
        page = f"/agents/a1/requests/{row['id']}"
        for decision in ("edit", "respond", "approve", "reject"):
            sent = {"do": "nothing", "decision": decision, "digest": row["digest"]}
            answer = await client.post(page, data={**sent, "v:/order_id": "18", "value": "x"})
            assert (answer.status_code, "Nothing is decided yet" in answer.text) == (422, True)
        assert len(await soon(runtime.pending())) == 1
        await soon(ref.resume({row["id"]: approve()}))
