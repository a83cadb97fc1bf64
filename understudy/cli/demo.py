"""`demo`: a support desk in the browser, without a key."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.output import Output, note
from understudy.cli.serve import PORT, PortOption, Settings, check_web, listening, serve_runtime
from understudy.cli.servers import store_name


def demo(
    port: PortOption = PORT,
    open: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
) -> None:
    """Show a support desk in the browser: approvals, a nested agent, a doubt, a timeline."""
    check_web()
    from secrets import token_urlsafe

    from understudy.cli.demo_desk import new_runtime, set_up

    with tempfile.TemporaryDirectory(prefix="understudy-demo-") as folder:
        store = f"sqlite:///{Path(folder) / 'desk.db'}"
        note("A support desk of a shop; a script plays the model. Its tickets begin ...")
        set_up(store)
        settings = Settings(target="demo", port=port, token=token_urlsafe(32))
        with listening(settings.host, port) as listener:
            note("Beside the browser, in another terminal:\n    understudy pending")
            serving = serve_runtime(
                settings, new_runtime(store), store_name(store), listener, Output(), browser=open
            )
            asyncio.run(serving)
