"""`understudy retire` and `understudy vacuum`: keep a store small."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from understudy.cli.exits import USAGE, refuse
from understudy.cli.inputs import confirm, span_of
from understudy.cli.inspect import YesOption
from understudy.cli.options import Where
from understudy.cli.output import Output
from understudy.cli.text import line

if TYPE_CHECKING:
    from datetime import timedelta

    from understudy.actors import Retired
    from understudy.journal.vacuum import Vacuumed


def retire(
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="SPAN", help="Only agents at rest for this long: 30d, 12h, 2w."
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="FILE", help="A new file: NAME.jsonl, NAME.jsonl.gz or NAME.jsonl.zst."
        ),
    ] = None,
    without_archive: Annotated[
        bool,
        typer.Option("--without-archive", help="Delete the agents for good, without an archive."),
    ] = False,
    status: Annotated[
        str | None,
        typer.Option("--status", help="Only agents that are `idle`, `failed` or `cancelled`."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the agents.")] = False,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", help="The person who does it, for the record."),
    ] = None,
    yes: YesOption = False,
    *,
    where: Where,
    out: Output,
) -> None:
    """Put agents with nothing open into an archive, and delete them. It needs --store."""
    age = span_of(older_than, option="--older-than")
    if dry_run and (to is not None or without_archive):
        option = "--without-archive" if to is None else "--to"
        refuse(USAGE, f"--dry-run writes and deletes nothing: leave {option} out")
    if to is not None and without_archive:
        refuse(USAGE, "give --to FILE or --without-archive, not both")
    if not dry_run and to is None and not without_archive:
        refuse(
            USAGE,
            "say where the agents are put, by --to FILE; or give --without-archive to delete them "
            "for good, or --dry-run",
        )
    store = where.store
    if store is None or where.url is not None:
        _need_store("retire")
    if not (yes or dry_run):
        confirm(
            f"Delete agents that are at rest for {older_than}, "
            + ("without an archive?" if to is None else f"once they are in {to}?"),
            to="that they are deleted",
            otherwise="nothing was deleted",
        )
    import asyncio

    done = asyncio.run(_retired(store, age, to, status, dry_run=dry_run, by=by))
    if out.is_data:
        archive = None if done.archive is None else str(done.archive)
        out.document(
            {
                "agents": done.agents,
                "archive": archive,
                "bytes": done.bytes,
                "left": dict(done.left),
                "dry_run": done.dry_run,
            }
        )
        return
    for id, why in done.left.items():
        out.say(f"{line(id)} stays: {line(why)}", "dim")
    if done.dry_run:
        out.say(f"{done.agents} agents would be retired")
    elif not done.agents:
        out.say("there is nothing to retire")
    elif done.archive is None:
        out.say(f"{done.agents} agents are deleted", "green")
    else:
        out.say(
            f"{done.agents} agents are retired to {done.archive}, {done.bytes:,} bytes", "green"
        )


async def _retired(
    store: str,
    age: timedelta,
    to: str | None,
    status: str | None,
    *,
    dry_run: bool,
    by: str | None,
) -> Retired:
    from understudy.actors import Runtime

    async with Runtime(store=store, sweep=None) as runtime:
        return await runtime.retire(older_than=age, to=to, status=status, dry_run=dry_run, by=by)


def vacuum(
    *,
    where: Where,
    out: Output,
) -> None:
    """Give back the space that deletions have left. It needs --store.

    A SQLite file must not be open in a runtime. After the first time, `runtime.vacuum()` can do it
    too.
    """
    store = where.store
    if store is None or where.url is not None:
        _need_store("vacuum")
    import asyncio

    done = asyncio.run(_vacuumed(store))
    if out.is_data:
        out.document({"before": done.before, "after": done.after})
    else:
        out.say(f"{done.before:,} bytes before, {done.after:,} bytes now", "green")


async def _vacuumed(url: str) -> Vacuumed:
    from understudy.journal.opening import open_store

    store = open_store(url)
    await store.open(_nothing)
    try:
        return await store.vacuum(whole=True)
    finally:
        await store.close()


def _nothing() -> None:
    """Ignore a lost lease: nothing is owned here."""


def _need_store(command: str) -> NoReturn:
    refuse(
        USAGE,
        f"{command} is about a store: give --store URL, and no --url. In a program that has a "
        f"SQLite file open, call runtime.{command}(...)",
    )
