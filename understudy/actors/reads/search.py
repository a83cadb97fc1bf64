"""`SearchHit`: what a search finds in requests and conversations; and how the index keeps up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from understudy._base.lookout import Lookout
from understudy._base.points_in_time import time_text
from understudy.actors.reads.listing import Page
from understudy.journal import Store
from understudy.journal.opening import open_store
from understudy.journal.search import StoredHit
from understudy.journal.search_texts import SaidKind, text_of_request, text_of_row
from understudy.journal.search_words import SearchQuery, Snippet, words_of

PERIOD = 1.0
"""Seconds between two looks whether the index is behind."""
AT_ONCE = 1.0
"""Seconds for which a search lets the index catch up before it looks into it."""
LONGEST_PAUSE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A text that has all the words of a search: a waiting request, or a part of a conversation."""

    agent_id: str
    """The id of the agent."""
    agent: str
    """The name of the agent's definition."""
    where: Literal["request", "conversation"]
    """The place of the text: a `request` or a `conversation`."""
    kind: Literal["request"] | SaidKind
    """The kind of the text.

    `request`; or, in a conversation, what a `user` or the `agent` said, a `call` of a tool, or the
    `result` of a call.
    """
    at: datetime | None
    """The time of the request or of the text; None if it is not known."""
    request_id: str | None = None
    """The id of the request; None in a conversation."""
    seq: int | None = None
    """The number of the record that has the text; None for a request."""
    row: int = 0
    """The index, from 0, of the row with the text, among the rows that the record makes."""
    tool_call_id: str | None = None
    """The id of the call, for a `call` or a `result`; else None."""
    inside: tuple[str, ...] = ()
    """The names of the agents inside the agent, down to the agent that said it."""
    tool_name: str = ""
    """The name of the tool that the text is about; empty if it is about no tool."""
    snippet: Snippet
    """The text around the first word that was found, and the places of the words in it."""
    cursor: str = ""
    """The value of `after` that continues the search after this hit."""
    content: Mapping[str, Any] = field(repr=False)
    """The request or the row of the conversation with the words, as plain data."""

    def to_dict(self) -> dict[str, Any]:
        """Return the hit as JSON-able data, without its content."""
        return {
            "agent_id": self.agent_id,
            "agent": self.agent,
            "where": self.where,
            "kind": self.kind,
            "at": time_text(self.at),
            "request_id": self.request_id,
            "seq": self.seq,
            "row": self.row,
            "tool_call_id": self.tool_call_id,
            "inside": list(self.inside),
            "tool_name": self.tool_name,
            "snippet": self.snippet.text,
            "marks": [list(mark) for mark in self.snippet.marks],
        }

    def seen_as(self, query: SearchQuery, content: Any) -> SearchHit | None:
        """Return the hit as a person sees it to whom some values are hidden.

        None if the content that the person sees lacks the words.

        Args:
            query: the words that were searched for.
            content: the content, with other values in the place of hidden values.

        """
        if content == self.content:
            return self
        if not isinstance(content, Mapping):
            return None
        text, tool_name = _text_and_tool(self.where, content)
        if not query.matches(words_of(text)):
            return None
        return replace(self, content=content, snippet=query.snippet(text), tool_name=tool_name)


class SearchPage(Page[SearchHit]):
    """A page of search hits, the newest first."""

    behind: int

    def __init__(
        self, items: Iterable[SearchHit] = (), after: str | None = None, behind: int = 0
    ) -> None:
        super().__init__(items, after)
        self.behind = behind
        """The number of agents, at least, with texts that the index does not have yet."""


def hit_of(stored: StoredHit, query: SearchQuery, cursor: str) -> SearchHit:
    """The search hit that a store has found, as it is told to callers.

    Raises:
        SchemaVersionError, StoreDamaged: if a request cannot be read.

    """
    if stored.ask is not None:
        request = stored.ask.request()
        content: dict[str, Any] = request.to_dict()
        more: dict[str, Any] = {"kind": "request", "at": request.created_at}
        more |= {"request_id": request.id, "inside": request.agent_path[1:]}
    else:
        assert stored.said is not None, "a hit is a request, or was said"
        said = stored.said
        content = said.row
        more = {"kind": said.kind, "at": said.at, "seq": stored.seq, "row": stored.row}
        more |= {"inside": said.inside, "tool_call_id": said.tool_call_id}
    where: Literal["request", "conversation"] = "conversation" if stored.ask is None else "request"
    text, tool_name = _text_and_tool(where, content)
    return SearchHit(
        agent_id=stored.agent_id,
        agent=stored.agent,
        where=where,
        tool_name=tool_name,
        snippet=query.snippet(text),
        cursor=cursor,
        content=content,
        **more,
    )


def _text_and_tool(where: str, content: Mapping[str, Any]) -> tuple[str, str]:
    if where == "request":
        text, tool = text_of_request(content), content.get("tool_name")
    else:
        detail = content.get("detail")
        text = text_of_row(content)
        tool = detail.get("tool_name") if isinstance(detail, Mapping) else ""
    return text, tool if isinstance(tool, str) else ""


async def remove_search(url: str) -> bool:
    """Remove the index from a store. Returns whether there was one.

    Raises:
        UsageError, StoreInUse, StoreUnavailable, StoreBroken, SchemaVersionError: if the store
            cannot be opened: that of one host is for who has it open.

    """
    store = open_store(url)
    await store.open(lambda: None)
    try:
        was_there = (await store.search_state()).is_on
        await store.turn_search(False)
    finally:
        await store.close()
    return was_there


class SearchKeeper:
    """Keeps the search index of a store up with its records, slice by slice.

    Args:
        store: it is of.
        start_task: starts a task that ends with the runtime at the latest.

    """

    def __init__(
        self,
        store: Store,
        start_task: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._store = store
        self._one = asyncio.Lock()
        what = "what the search does not have yet"
        self._lookout = Lookout(what, lambda: PERIOD, self._look, start_task)

    def begin(self) -> None:
        """Keep the index up from now on, by real time, whatever the clock of the runtime is."""
        self._lookout.hint()
        self._lookout.begin()

    def close(self) -> None:
        """Keep the index up no more."""
        self._lookout.close()

    async def _look(self, is_hinted: bool) -> None:
        loop = asyncio.get_running_loop()
        while True:
            start = loop.time()
            async with self._one:
                if not await self._store.index_more():
                    return
            # Half of the time is for the others: an old store may take minutes.
            await asyncio.sleep(min(loop.time() - start, LONGEST_PAUSE))

    async def catch_up(self) -> None:
        """Let the index have all that is recorded now, as far as a second is enough."""
        loop = asyncio.get_running_loop()
        end = loop.time() + AT_ONCE
        while loop.time() < end:
            async with self._one:
                if not await self._store.index_more():
                    return
