"""`understudy search`: looks for words in requests and conversations."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from understudy.cli.exits import USAGE, refuse
from understudy.cli.inputs import confirm
from understudy.cli.inspect import LimitOption, YesOption
from understudy.cli.options import ListOutput, Where
from understudy.cli.output import Column, note
from understudy.cli.sources import first_rows
from understudy.cli.text import ago, line


def search(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT",
            help="The words to find; all must occur. `*` after a word stands for any ending.",
        ),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option("--in", metavar="PLACE", help="Only in `requests`, or in `conversations`."),
    ] = None,
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Remove the index from --store, without a search."),
    ] = False,
    yes: YesOption = False,
    limit: LimitOption = 30,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """Search requests and conversations for words. It needs a store with Runtime(search=True)."""
    if remove:
        _remove(words, yes, where, out)
        return
    if not words:
        refuse(USAGE, "say what to look for: `understudy search refund ada`")
    given: dict[str, Any] = {"text": " ".join(words)}
    if within is not None:
        given["where"] = within
    with where.looking() as source:
        found, at = first_rows(source.search, limit, **given), source.now()
    rows = found.rows
    people = [
        {
            **row,
            "what": {"request": "waits"}.get(row["kind"], row["kind"]),
            "age": ago(row["at"], at),
            "place": line(row["request_id"] or f"record {row['seq']}"),
            "path": " / ".join(line(name) for name in row["inside"]),
        }
        for row in rows
    ]
    columns = [
        Column("AGENT", "agent_id", "bold"),
        Column("INSIDE", "path", optional=True),
        Column("WHAT", "what"),
        Column("AGE", "age"),
        Column("PLACE", "place"),
        Column("TEXT", "snippet", wide=True),
    ]
    more = {"more": found.more}
    out.rows("hits", rows, columns, shown=people, more=more, empty="nothing has all of these words")
    if found.more:
        note(f"there are more than these {limit}: give more words, or --limit")


def _remove(words: list[str] | None, yes: bool, where: Where, out: ListOutput) -> None:
    from understudy.actors.reads.search import remove_search

    if words:
        refuse(USAGE, "--remove looks for nothing: leave the words out")
    if where.store is None or where.url is not None:
        refuse(USAGE, "--remove is about a store: give --store URL, and no --url")
    if not yes:
        question = "Remove the index of the search? A runtime with search=True makes it anew."
        confirm(question, to="that it is removed", otherwise="nothing was removed")
    import asyncio

    was_there = asyncio.run(remove_search(where.store))
    if out.is_data:
        out.document({"removed": was_there})
    else:
        out.say("removed" if was_there else "there is none", "green")
