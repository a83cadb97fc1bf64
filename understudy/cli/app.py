"""The command `understudy`, with all that it can do."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Annotated, Any

import typer

from understudy.actors.verbs import VERBS
from understudy.cli import (
    acting,
    administering,
    attention,
    budgets,
    decided,
    deciding,
    demo,
    doctor,
    freezing,
    inspect,
    mcp,
    replay,
    requiring,
    rules,
    serve,
    usage,
)
from understudy.cli.exits import told
from understudy.cli.options import spread

HELP: str = """Look at agents, decide what they ask, and steer them.

What changes nothing looks into a store (--store) or asks a running server. What changes
something goes through a running server: `understudy serve`, or --url.

Exit codes: 0 done; 1 failed; 2 usage; 3 no such agent or request; 4 stale, or a decision that
does not fit; 5 the store or the server cannot be used; of `run --wait`: 10 interrupted, 11
paused, 12 stopped, 13 failed; 130 by Ctrl-C.
"""

app: typer.Typer = typer.Typer(
    name="understudy",
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"understudy {importlib.metadata.version('understudy')}")
        raise typer.Exit


@app.callback()
def understudy(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which it is.")
    ] = False,
) -> None:
    """See the help of the application."""


_COMMANDS: tuple[Callable[..., Any], ...] = (
    serve.serve,
    mcp.mcp,
    demo.demo,
    inspect.ls,
    inspect.show,
    inspect.tree,
    inspect.pending,
    inspect.doubts,
    inspect.reviews,
    decided.decisions,
    attention.attention,
    usage.usage,
    deciding.approve,
    deciding.edit,
    deciding.reject,
    deciding.respond,
    deciding.dismiss,
    inspect.events,
    inspect.history,
    acting.send,
    acting.run,
    *(acting.command_of(verb) for verb in VERBS.values() if verb.plain),
    inspect.schedules,
    acting.export,
    acting.import_,
    acting.delete,
    acting.recover,
    administering.administration,
    administering.vote,
    administering.delegate,
    administering.delegations,
    administering.end_delegation,
    freezing.freeze,
    freezing.thaw,
    freezing.freezes,
    budgets.budgets,
    budgets.raise_budget,
    replay.replay,
    doctor.doctor,
)
for _function in _COMMANDS:
    app.command(_function.__name__.strip("_").replace("_", "-"))(told(spread(_function)))
for _function in (rules.check, rules.trial, rules.retire):
    rules.app.command(_function.__name__)(told(spread(_function)))
app.add_typer(rules.app)
for _function in (requiring.enable, requiring.disable, requiring.status):
    requiring.app.command(_function.__name__)(told(spread(_function)))
app.add_typer(requiring.app)
