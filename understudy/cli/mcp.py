"""`mcp`: the agents of a program as an MCP server, over standard streams or HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.exits import USAGE, refuse
from understudy.cli.output import JsonOption, Output, note
from understudy.cli.serve import (
    AgentsStoreOption,
    AllowHostOption,
    AuthOption,
    HostOption,
    OwnTokenOption,
    PortOption,
    ProxyOption,
    ReadOnlyOption,
    RedactOption,
    Settings,
    TargetArgument,
    listening,
    load_auth,
    load_redact,
    load_runtime,
    quiet_server,
    url_of,
)

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from understudy.actors import Runtime

PORT = 8421


def mcp(
    target: TargetArgument,
    store: AgentsStoreOption = None,
    http: Annotated[
        bool, typer.Option("--http", help="Serve over HTTP, not over stdin/stdout.")
    ] = False,
    port: PortOption = PORT,
    host: HostOption = "127.0.0.1",
    allow_host: AllowHostOption = None,
    read_only: ReadOnlyOption = False,
    decisions: Annotated[
        bool,
        typer.Option("--decisions", help="Let people who log in decide requests. Needs --auth."),
    ] = False,
    auth: AuthOption = None,
    token: OwnTokenOption = None,
    redact: RedactOption = None,
    proxy: ProxyOption = None,
    json: JsonOption = False,
) -> None:
    """Run the agents of your program, with an MCP server for other programs."""
    try:
        import understudy.mcp.agents_server  # noqa: F401  # only whether it is there
    except ImportError:
        refuse(
            USAGE, "this needs the extras `mcp` and `web`: pip install 'understudy[cli,mcp,web]'"
        )
    if not http:
        if decisions or auth is not None:
            refuse(USAGE, "nobody logs in over stdin: --decisions and --auth are for --http")
    elif decisions and auth is None:
        refuse(USAGE, "--decisions needs --auth: a token is of its holder, and of no person")
    elif decisions and read_only:
        refuse(USAGE, "--read-only and --decisions exclude each other")
    settings = Settings(
        target=target,
        store=store,
        host=host,
        port=port,
        token=None if auth is not None or not http else token or secrets.token_urlsafe(32),
        auth=auth,
        read_only=read_only,
        allowed_hosts=tuple(allow_host or ()),
        redact=redact,
        proxy=proxy,
    )
    runtime, _ = load_runtime(settings)
    if not http:
        asyncio.run(_over_streams(settings, runtime))
        return
    app = _new_app(settings, runtime, decisions=decisions)
    with listening(host, port) as listener:
        asyncio.run(_over_http(settings, runtime, app, listener, Output(json=json)))


async def _over_streams(settings: Settings, runtime: Runtime) -> None:
    """Serve until standard input ends, or the process is asked to end."""
    from understudy.login.users import User
    from understudy.mcp.agents_server import agents_server

    program = User("a program over stdin", frozenset({"read", "act"}))
    server = agents_server(
        lambda: runtime,
        user=program,
        read_only=settings.read_only,
        redact=load_redact(settings.redact),
    )
    loop = asyncio.get_running_loop()
    async with runtime:
        await runtime.recover()
        serving = asyncio.create_task(server.run_stdio_async())
        stop_asked = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # Windows
                loop.add_signal_handler(number, stop_asked.set)
        stopped = asyncio.create_task(stop_asked.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if serving.done():
            await serving
    if not serving.done():
        # A thread of the SDK reads standard input, and would keep the process alive until it ends.
        # The runtime has stopped, and everything is stored.
        os._exit(0)


def _new_app(settings: Settings, runtime: Runtime, *, decisions: bool) -> Starlette:
    from understudy.login import TokenAuth
    from understudy.mcp.agents_server import agents_app

    auth = TokenAuth(settings.token) if settings.auth is None else load_auth(settings.auth)
    return agents_app(
        lambda: runtime,
        auth=auth,
        read_only=settings.read_only,
        decisions=decisions,
        allowed_hosts=settings.allowed_hosts,
        redact=load_redact(settings.redact),
    )


async def _over_http(
    settings: Settings, runtime: Runtime, app: Any, listener: socket.socket, out: Output
) -> None:
    server = quiet_server(app, settings.proxy)
    async with runtime, app.router.lifespan_context(app):
        await runtime.recover()
        url = f"{url_of(settings.host, listener.getsockname()[1])}/mcp"
        if out.is_data:
            out.document({"url": url, "token": settings.token, "pid": os.getpid()})
        else:
            note(f"an MCP server is at\n\n    {url}\n\nCtrl-C ends it.")
            if settings.token is not None:
                note(f"Its token, as `Authorization: Bearer`: {settings.token}")
        await server.serve(sockets=[listener])
