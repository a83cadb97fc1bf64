"""Finds the store or server of a command."""

from __future__ import annotations

from typing import Annotated

import typer

from understudy.cli import servers
from understudy.cli.api import Api
from understudy.cli.exits import STORE, USAGE, close_at_end, refuse
from understudy.cli.sources import ApiSource, Source

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="UNDERSTUDY_STORE",
        metavar="URL",
        help=(
            "Read this store, beside the runtime that has it open: sqlite:///path, "
            "postgresql://host/database."
        ),
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="UNDERSTUDY_URL",
        metavar="URL",
        help=(
            "Use this server: `understudy serve`, or the pages that an application has "
            "mounted. By default your running server."
        ),
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="UNDERSTUDY_TOKEN",
        metavar="TOKEN",
        help="The token for --url.",
        show_default=False,
    ),
]

AsOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="NAME",
        help=(
            "Act in the name of another person. The act counts as yours, and both names "
            "are recorded. Needs the right `impersonate`."
        ),
        show_default=False,
    ),
]


def looking(store: str | None, url: str | None, token: str | None) -> Source:
    """The source of a command that changes nothing."""
    if url is None and store is not None:
        from understudy.cli.store_source import StoreSource  # a server needs none of its imports

        return StoreSource(store)
    return ApiSource(changing(store, url, token))


def changing(
    store: str | None, url: str | None, token: str | None, acting_for: str | None = None
) -> Api:
    """The server through which a command changes something."""
    found = servers.running()
    if url is not None:
        known = next(
            (server for server in found if server.url.rstrip("/") == url.rstrip("/")), None
        )
        own = token if token is not None or known is None else known.token
        return _opened(url, own, acting_for)
    if store is not None:
        name = servers.store_name(store)
        found = [server for server in found if server.store == name]
        if not found:
            refuse(STORE, f"no server of yours has {name} open: {_way_out(store)}")
    if not found:
        refuse(
            USAGE, "say which agents: --store URL to look, --url URL, or start `understudy serve`"
        )
    if len(found) > 1:
        urls = ", ".join(
            f"{server.url} ({server.store or 'a store without a name'})" for server in found
        )
        refuse(USAGE, f"several servers run: choose one by --url or --store: {urls}")
    return _opened(found[0].url, found[0].token if token is None else token, acting_for)


def _opened(url: str, token: str | None, acting_for: str | None) -> Api:
    api = Api(url, token, acting_for)
    close_at_end(api.close)
    return api


def _way_out(store: str) -> str:
    """The hint how the store gets a server: only one program can have a SQLite file open."""
    file = servers.file_of(store)
    holder = None if file is None else servers.holder_of(file)
    if holder is None or not holder.may_run:
        return "start `understudy serve`, or give --url"
    return (
        f"{holder.name} has, or had it last. Mount `understudy.web.ui` in that program and give "
        "its --url; or end it, and start `understudy serve`"
    )
