"""`serve`: one runtime and its pages, in one process."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json as json_module
import logging
import os
import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.exits import FAILED, USAGE, Refusal, code_of, message_of, refuse
from understudy.cli.many_processes import SETTINGS, Processes, check, parent_ends
from understudy.cli.output import JsonOption, Output, complain, note
from understudy.cli.servers import Server, announced, store_name

if TYPE_CHECKING:  # the help of the command needs none of it
    import uvicorn
    from starlette.types import ASGIApp

    from understudy.actors import Runtime
    from understudy.agent.agent import Agent
    from understudy.tools.tool_defaults import ToolDefaults

PORT = 8420
TargetArgument = Annotated[
    str,
    typer.Argument(
        envvar="UNDERSTUDY_APP",
        metavar="MODULE:ATTR",
        help="A Runtime that is not open, a function that returns it, or agents with --store.",
    ),
]
AgentsStoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", envvar="UNDERSTUDY_STORE", metavar="URL", help="The store of the agents."
    ),
]
PortOption = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any free port.")
]
HostOption = Annotated[
    str, typer.Option("--host", help="The address to listen on; this machine alone by default.")
]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="A host name under which the server is reached."),
]
ReadOnlyOption = Annotated[bool, typer.Option("--read-only", help="Allow no changes.")]
AuthOption = Annotated[
    str | None,
    typer.Option(
        "--auth",
        metavar="MODULE:ATTR",
        help="The function that says who makes a request, instead of a token.",
    ),
]
ProxyOption = Annotated[
    str | None,
    typer.Option(
        "--proxy",
        metavar="ADDRESS",
        help="The address of your proxy, whose X-Forwarded-For is trusted.",
    ),
]
RedactOption = Annotated[
    str | None,
    typer.Option(
        "--redact",
        metavar="MODULE:ATTR",
        help="The function that hides values, as `redact=` of `ui`.",
    ),
]
ProcessesOption = Annotated[
    int,
    typer.Option("--processes", min=1, metavar="N", help="Use N cores. It needs PostgreSQL."),
]
OwnTokenOption = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="UNDERSTUDY_TOKEN", help="The token to use, instead of a new token."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of `serve`."""

    target: str
    store: str | None = None
    host: str = "127.0.0.1"
    port: int = PORT
    token: str | None = None
    auth: str | None = None
    read_only: bool = False
    allowed_hosts: tuple[str, ...] = ()
    redact: str | None = None
    proxy: str | None = None


def serve(
    target: TargetArgument,
    store: AgentsStoreOption = None,
    port: PortOption = PORT,
    host: HostOption = "127.0.0.1",
    allow_host: AllowHostOption = None,
    open: Annotated[bool, typer.Option("--open", help="Open a browser.")] = False,
    reload: Annotated[bool, typer.Option("--reload", help="Restart when code changes.")] = False,
    read_only: ReadOnlyOption = False,
    auth: AuthOption = None,
    token: OwnTokenOption = None,
    redact: RedactOption = None,
    proxy: ProxyOption = None,
    processes: ProcessesOption = 1,
    json: JsonOption = False,
) -> None:
    """Run the agents of your program, with an inbox and an inspector in the browser."""
    settings = Settings(
        target=target,
        store=store,
        host=host,
        port=port,
        token=None if auth is not None else token or secrets.token_urlsafe(32),
        auth=auth,
        read_only=read_only,
        allowed_hosts=tuple(allow_host or ()),
        redact=redact,
        proxy=proxy,
    )
    out = Output(json=json)
    run_settings(settings, out, browser=open, reload=reload, processes=processes)


def run_settings(
    settings: Settings, out: Output, *, browser: bool, reload: bool, processes: int = 1
) -> None:
    """Serve until the process is asked to end."""
    check_web()
    if reload and settings.port == 0:
        refuse(USAGE, "--reload needs a port: it is the same after each restart")
    if settings.host not in ("127.0.0.1", "::1", "localhost"):
        note(
            f"others reach {settings.host}, and nothing is encrypted here: put a proxy with TLS "
            "in front of it"
        )
    if reload:
        if processes > 1:
            check(processes, None, reload=True)
        _serve_reloading(settings, out, browser=browser)
        return
    runtime, name = load_runtime(settings)
    if processes > 1:
        _serve_by_processes(settings, name, out, browser=browser, processes=processes)
        return
    with listening(settings.host, settings.port) as listener:
        asyncio.run(serve_runtime(settings, runtime, name, listener, out, browser=browser))


def check_web() -> None:
    """Refuse if the extra `web` is not installed."""
    try:
        import uvicorn  # noqa: F401  # only whether they are there

        import understudy.web  # noqa: F401
    except ImportError:
        refuse(USAGE, "this needs the extra `web`: pip install 'understudy[cli,web]'")


@contextlib.contextmanager
def listening(host: str, port: int) -> Any:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            # A client that reads the address may connect at once: it waits until the server has
            # begun (test_who_connects_before_the_server_has_begun_waits_for_it).
            listener.listen(2048)
        except OSError as error:
            refuse(FAILED, f"{host}:{port} cannot be listened on: {error.strerror}")
        listener.set_inheritable(True)
        yield listener


async def serve_runtime(
    settings: Settings,
    runtime: Runtime,
    name: str | None,
    listener: socket.socket,
    out: Output,
    *,
    browser: bool,
) -> None:
    """Serve a runtime on a socket, until the process is asked to end.

    Args:
        settings: the settings, with the rights of users.
        runtime: the runtime, not entered yet.
        name: the name of its store, for the file by which commands find this process.
        listener: the socket, bound to its port.
        out: the output for the URL.
        browser: whether a browser is opened.

    """
    server = quiet_server(new_app(settings, lambda: runtime), settings.proxy)
    async with runtime:
        await runtime.recover()
        with _announced(settings, name, listener.getsockname()[1]) as url:
            tell(settings, url, out, browser=browser)
            await server.serve(sockets=[listener])


async def serve_quietly(
    settings: Settings, runtime: Runtime, listener: socket.socket, ends: Coroutine[Any, Any, None]
) -> None:
    """Serve as `serve_runtime` does, in one of several processes. The parent process prints the
    URL.

    Args:
        settings, runtime, listener: as in `serve_runtime`. ends: a coroutine that returns when the
        parent process has ended.

    """
    server = quiet_server(new_app(settings, lambda: runtime), settings.proxy)

    async def end() -> None:
        await ends
        server.should_exit = True

    watching = asyncio.create_task(end())
    try:
        async with runtime:
            await runtime.recover()
            print("ready", flush=True)  # noqa: T201  # its parent reads it
            await server.serve(sockets=[listener])
    finally:
        watching.cancel()


def _serve_by_processes(
    settings: Settings, name: str | None, out: Output, *, browser: bool, processes: int
) -> None:
    check(processes, name, reload=False)
    given = json_module.dumps(asdict(settings))
    with (
        listening(settings.host, settings.port) as listener,
        _announced(settings, name, listener.getsockname()[1]) as url,
    ):
        tell(settings, url, out, browser=browser)

        async def serve() -> int:
            return await Processes(given, processes, listener).run()

        code = asyncio.run(serve())
    if code:
        raise SystemExit(code)


def serve_one(listener: int, watched: int) -> None:
    """Serve in a process that another process has started."""
    from understudy.errors import UnderstudyError

    given = json_module.loads(os.environ.pop(SETTINGS))
    settings = Settings(**{**given, "allowed_hosts": tuple(given["allowed_hosts"])})
    try:
        runtime, _ = load_runtime(settings)
        with socket.socket(fileno=listener) as shared:
            shared.setblocking(False)
            asyncio.run(serve_quietly(settings, runtime, shared, parent_ends(watched)))
    except (Refusal, UnderstudyError) as error:
        complain(message_of(error))
        raise SystemExit(code_of(error)) from None


def server_options(proxy: str | None) -> dict[str, Any]:
    """The options of uvicorn.

    Only a proxy with this address may set the client by `X-Forwarded-For`: by default uvicorn
    believes any client on this machine.
    """
    return {
        "log_level": "warning",
        "access_log": False,
        "timeout_graceful_shutdown": 5,
        "proxy_headers": proxy is not None,
        "forwarded_allow_ips": proxy or "",
    }


def quiet_server(app: ASGIApp, proxy: str | None = None) -> uvicorn.Server:
    """A server on this loop. SIGINT and SIGTERM end it, so that the runtime ends in peace."""
    import uvicorn

    class UvicornServer(uvicorn.Server):
        """A server that ends when it is asked to. Signals are handled below."""

        @contextlib.contextmanager
        def capture_signals(self) -> Any:
            yield

    from understudy.cli.slow_clients import timed_protocol

    protocol = timed_protocol()
    config = uvicorn.Config(app, lifespan="off", http=protocol, **server_options(proxy))
    server = UvicornServer(config)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows
            # sse-starlette learns by this method that its streams are to end
            # (test_a_server_with_an_open_stream_ends_when_it_is_told_to).
            loop.add_signal_handler(number, server.handle_exit, number, None)
    return server


@contextlib.contextmanager
def _announced(settings: Settings, name: str | None, port: int) -> Any:
    url = url_of(settings.host, port)
    server = Server(url=url, token=settings.token, pid=os.getpid(), store=name)
    with announced(server):
        yield url


def url_of(host: str, port: int) -> str:
    """The URL at which this machine reaches the pages of a server that listens there."""
    if host in ("0.0.0.0", "::"):  # noqa: S104  # to connect to
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def tell(settings: Settings, url: str, out: Output, *, browser: bool) -> None:
    """Print the URL of the pages."""
    page = f"{url}/"
    if settings.token is not None:
        from understudy.login import TokenAuth

        page = TokenAuth(settings.token).login_url(page)
    if out.is_data:
        out.document({"url": url, "token": settings.token, "page": page, "pid": os.getpid()})
    else:
        note(f"agents are served at\n\n    {page}\n\nCtrl-C ends it.")
        if settings.token is not None:
            note(f"The link works once. After that the page asks for the token: {settings.token}")
    if browser:
        webbrowser.open(page)


# ----------------------------------------------------------------------------- what


def load_runtime(settings: Settings) -> tuple[Runtime, str | None]:
    """The runtime of the target, and the name of its store."""
    from understudy.actors import Runtime

    found = load_target(settings.target)
    if isinstance(found, Runtime):
        if settings.store is not None:
            without = "leave --store and UNDERSTUDY_STORE out"
            refuse(USAGE, f"{settings.target} has its own store: {without}")
        return found, None if found.store_name is None else store_name(found.store_name)
    if settings.store is None:
        refuse(USAGE, f"{settings.target} are agents: say where they are kept, by --store URL")
    return Runtime(found, store=settings.store), store_name(settings.store)


def store_of(found: object) -> str | None:
    """The store of a runtime, if other processes can read it; None otherwise."""
    from understudy.actors import Runtime

    name = found.store_name if isinstance(found, Runtime) else None
    return None if name is None or name.startswith("memory:") else name


def load_definitions(target: str) -> tuple[Sequence[Agent[Any, Any]], ToolDefaults]:
    """The definitions of the runtime, or of the agents, that `module:attr` names.

    They come with the runtime's defaults for tools that do not declare their effects.
    """
    return definitions_of(load_target(target), target)


def definitions_of(
    found: Runtime | Sequence[Agent[Any, Any]], target: str
) -> tuple[Sequence[Agent[Any, Any]], ToolDefaults]:
    """The `load_definitions` of an object that is loaded."""
    from understudy.actors import Runtime
    from understudy.tools.tool_defaults import NO_DEFAULTS

    if not isinstance(found, Runtime):
        return found, NO_DEFAULTS
    if not found.definitions:  # a cluster, or a runtime with only a factory
        refuse(USAGE, f"{target} declares no agents itself: name a function that makes them")
    return found.definitions, found.tool_defaults


def load_target(target: str) -> Runtime | list[Agent[Any, Any]]:
    """The runtime, or the agents, that `module:attr` names, or that a function of this name
    makes.
    """
    from understudy._base.json_values import shown, text_of
    from understudy.actors import Runtime
    from understudy.agent.agent import Agent

    found = load(target)
    if callable(found) and not isinstance(found, (Agent, Runtime)):
        try:
            found = found()
        except Exception as error:  # the application's code may raise anything
            refuse(USAGE, f"{target}() raised {type(error).__name__}: {text_of(error)}")
    if inspect.iscoroutine(found):
        found.close()
        refuse(USAGE, f"{target} is async: name a plain function, which may use asyncio.run()")
    if isinstance(found, Runtime):
        return found
    agents = [found] if isinstance(found, Agent) else found
    if not isinstance(agents, Iterable) or not (agents := list(agents)):
        refuse(USAGE, f"{target} must be a Runtime or agents, got {shown(found)}")
    if not all(isinstance(agent, Agent) for agent in agents):
        refuse(USAGE, f"{target} must be a Runtime or agents, got {shown(found)}")
    return agents


def load(target: str) -> Any:
    """The object that `module:attr` names."""
    from understudy._base.json_values import text_of

    module_name, separator, path = target.partition(":")
    if not separator or not module_name or not path:
        refuse(USAGE, f"{target!r} names nothing: write module:attr, such as my_app.agents:runtime")
    here = str(Path.cwd())  # as `python -m` does
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        refuse(USAGE, f"{target}: there is no module {error.name}")
    except Exception as error:  # the application's code may raise anything
        refuse(USAGE, f"{target}: the module raised {type(error).__name__}: {text_of(error)}")
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            refuse(USAGE, f"{target}: {module_name} has no {path}")
    return found


def load_auth(target: str) -> Any:
    """The function that says who makes a request."""
    from understudy._base.json_values import shown

    found = load(target)
    if not callable(found):
        refuse(
            USAGE, f"--auth {target} must be a function that takes the request, got {shown(found)}"
        )
    return found


def load_redact(target: str | None) -> Any:
    """The function that hides values; None without one."""
    from understudy._base.json_values import shown

    found = None if target is None else load(target)
    if target is not None and not callable(found):
        what = f"--redact {target} must be a function of a path and a value"
        refuse(USAGE, f"{what}, got {shown(found)}")
    return found


def new_app(settings: Settings, runtime: Callable[[], Runtime]) -> ASGIApp:
    """The pages."""
    from understudy.web import HideToken, TokenAuth, ui

    logging.getLogger("uvicorn.access").addFilter(HideToken())
    auth = TokenAuth(settings.token) if settings.auth is None else load_auth(settings.auth)
    app: ASGIApp = ui(
        runtime,
        auth=auth,
        read_only=settings.read_only,
        allowed_hosts=settings.allowed_hosts,
        redact=load_redact(settings.redact),
    )
    return app


# --------------------------------------------------------------------------- reload


def _serve_reloading(settings: Settings, out: Output, *, browser: bool) -> None:
    import uvicorn

    os.environ[SETTINGS] = json_module.dumps(asdict(settings))
    tell(settings, url_of(settings.host, settings.port), out, browser=browser)
    uvicorn.run(
        "understudy.cli.serve:reloaded",
        factory=True,
        reload=True,
        host=settings.host,
        port=settings.port,
        **server_options(settings.proxy),
    )


def reloaded() -> ASGIApp:
    """The application of a process that `--reload` starts."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    data = json_module.loads(os.environ[SETTINGS])
    settings = Settings(**{**data, "allowed_hosts": tuple(data["allowed_hosts"])})
    try:
        runtime, name = load_runtime(settings)
        app = new_app(settings, lambda: runtime)
    except Refusal as error:  # the next change of the code may fix it
        complain(str(error))
        raise SystemExit(error.code) from None

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with runtime:
            await runtime.recover()
            with _announced(settings, name, settings.port):
                yield

    return Starlette(routes=[Mount("/", app)], lifespan=lifespan)


if __name__ == "__main__":  # as one of several processes
    serve_one(int(sys.argv[1]), int(sys.argv[2]))
