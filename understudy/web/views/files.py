"""The files of an agent: their list, and a single file."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from understudy.login.problems import refused
from understudy.state.blobs import chunks_of, unpack
from understudy.state.files import listed
from understudy.web.visit import Visit

MAX_TEXT = 200_000
"""The maximum characters of a file that its page shows."""
TRIES = 3
"""The number of tries to read a file whose bytes are gone because it was changed meanwhile."""


async def files(visit: Visit) -> dict[str, Any]:
    """The files of the agent, by path."""
    found = listed((await visit.state()).files)
    return {
        "id": visit.agent_id,
        "files": [{"path": path, "size": file.size} for path, file in found],
    }


async def files_tab(visit: Visit) -> dict[str, Any]:
    """The files of the agent, and the file that the query names."""
    shown = await file(visit) if visit.asked("path") is not None else None
    return {**await files(visit), "shown": shown, "max_text": MAX_TEXT}


async def file(visit: Visit) -> dict[str, Any]:
    """One file, by the `path` of the query: its text, or else its bytes."""
    path, data = await _read(visit)
    text = text_of_file(data)
    # The function that hides values is not asked about bytes.
    has_bytes = text is None and not _hides(visit)
    content = b64encode(data).decode() if has_bytes else None
    return {
        "id": visit.agent_id, "path": path, "size": len(data), "text": text, "base64": content,
    }  # fmt: skip


async def download(visit: Visit) -> Response:
    """The bytes of a file, for a browser to save and never to show, whatever is in them."""
    if _hides(visit):
        raise visit.hidden("download", "Some values are hidden here: it needs the right 'admin'.")
    path, data = await _read(visit)
    if visit.hides({"text": text_of_file(data)}):
        raise visit.hidden("download", "Some of the file is hidden from you: it is kept whole.")
    name = quote(path.rpartition("/")[2], safe="")
    return Response(
        data,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}"},
    )


def text_of_file(data: bytes) -> str | None:
    """The text of a file; None if it is no text."""
    if b"\0" not in data:
        with suppress(UnicodeDecodeError):
            return data.decode()
    return None


def _hides(visit: Visit) -> bool:
    return visit.site.redaction.is_on and "admin" not in visit.user.may


async def _read(visit: Visit) -> tuple[str, bytes]:
    path = visit.asked("path")
    if path is None:
        raise refused(400, "UsageError", "`path` names the file.")
    for _ in range(TRIES):
        found = dict(listed((await visit.state()).files)).get(path)
        if found is None:
            raise refused(404, "UnknownFile", f"There is no file {path!r}.")
        kept = dict(await visit.wait(visit.watched.load_blobs([found.hash])))
        pieces = chunks_of(kept.get(found.hash, b""))
        if pieces:
            kept |= await visit.wait(visit.watched.load_blobs(pieces))
        if found.hash in kept and all(piece in kept for piece in pieces):
            # It runs in a thread: the hash of many megabytes would hold the loop.
            return path, await asyncio.to_thread(unpack, found, kept)
    raise refused(409, "Changed", "The file is changed all the time: try again.")
