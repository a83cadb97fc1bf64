"""The command `understudy`, with all that it can do."""

from __future__ import annotations

from typing import Annotated

import typer

from understudy.cli.lazily import SETTINGS, Listed, group_of
from understudy.cli.targets import AsOption, StoreOption, TokenOption, UrlOption

HELP: str = """Look at agents, decide what they ask, and steer them.

What changes nothing looks into a store (--store) or asks a running server. What changes
something goes through a running server: `understudy serve`, or --url.

Exit codes: 0 done; 1 failed; 2 usage; 3 no such agent or request; 4 decided or changed
meanwhile, or a decision that does not fit; 5 the store or the server cannot be used; of
`run --wait`: 10 it waits for a person, 11 paused, 12 stopped, 13 failed; 130 by Ctrl-C.
"""
COMMANDS: dict[str, Listed] = {
    "Decide what waits": {
        "review": ("review", "Decide request after request, each shown in full"),
        "pending": ("inspect", "List what waits for a person, over all agents"),
        "approve": ("deciding", "Let a call run exactly as it is shown"),
        "edit": ("deciding", "Let a call run with other arguments"),
        "reject": ("deciding", "Do not let a call run; the model gets the reason"),
        "respond": ("deciding", "Answer a question, or give the result of a call yourself"),
        "dismiss": ("deciding", "Acknowledge that a tool has stopped the run"),
        "take": ("notes", "Say that you look after a request; it locks nothing"),
        "comment": ("notes", "Write something beside a request, for the others"),
        "snooze": ("notes", "Leave a request out of your lists for a while"),
        "assign": ("notes", "Say who is to look after a request"),
        "notes": ("notes", "Show what people have written beside a request"),
        "doubts": ("inspect", "List the calls in doubt: nobody knows what they did"),
        "settle": ("steering", "Say what a call in doubt did: it is known now"),
        "reviews": ("inspect", "List the calls that one person alone has approved"),
        "close-review": ("steering", "Close the review of a call that one person alone let run"),
        "revoke": ("steering", "Revoke a decision that holds for later calls"),
    },
    "Look at agents": {
        "attention": ("attention", "Show what needs a person, and what to do next about each"),
        "decisions": ("decided", "List what was decided on the requests of all agents"),
        "usage": ("usage", "Show what models used by day, definition and model"),
        "search": ("searching", "Look for words in requests and conversations"),
        "ls": ("inspect", "List the agents, and what each of them waits for"),
        "show": ("inspect", "Show one agent: what it does now, and its conversation"),
        "tree": ("inspect", "Show which agents run inside an agent"),
        "history": ("inspect", "Show what happened to an agent, with times and durations"),
        "events": ("inspect", "Show the events of an agent, or of all agents"),
        "schedules": ("inspect", "Show at which times an agent runs by itself, or change them"),
        "export": ("acting", "Write all records of an agent as JSON"),
    },
    "Write to agents and steer them": {
        "send": ("acting", "Send an agent a message, without waiting for what comes of it"),
        "run": ("acting", "Run an agent on a message"),
        "cancel": ("steering", "Stop the current run at once"),
        "cancel-message": ("steering", "Take back a message that no run has taken yet"),
        "pause": ("steering", "Pause the run after the model's next reply"),
        "unpause": ("steering", "Continue a paused run where it is"),
        "retry": ("steering", "Continue the last run where it failed"),
        "recover": ("acting", "Continue every run that was cut off"),
        "compact": ("steering", "Replace the records of an agent by a snapshot"),
        "import": ("acting", "Put an exported agent into a store"),
        "delete": ("acting", "Delete an agent and all its records"),
    },
    "What holds for a whole store": {
        "budgets": ("budgets", "List how much of each budget is used"),
        "raise-budget": ("budgets", "Add an amount to a budget, until its window ends"),
        "freeze": ("freezing", "Let nothing of the store begin any more, until it is thawed"),
        "thaw": ("freezing", "End a freeze: what waited begins"),
        "freezes": ("freezing", "List what is frozen, by whom and why"),
        "administration": ("administering", "List the protected acts that wait for votes"),
        "vote": ("administering", "Vote on a protected act that somebody wants"),
        "delegate": ("administering", "Let another person vote with roles of yours"),
        "delegations": ("administering", "List who votes for whom, and until when"),
        "end-delegation": ("administering", "End a delegation"),
        "trust": ("requiring", "What each host of a store must have: enable, disable, status"),
        "retire": ("retiring", "Put agents at rest into an archive, and delete them"),
        "vacuum": ("retiring", "Give back the room that deletions have left"),
        "notify": ("notifying", "What people were told of requests: list, retry, test"),
        "rules": ("rules", "Rules of an application: check, trial, retire"),
        "skills": ("skills", "Skills of agents: list, check, accept"),
    },
    "Run and check a program": {
        "serve": ("serve", "Run the agents of your program, with an inbox in the browser"),
        "mcp": ("mcp", "Run them with an MCP server for other programs"),
        "demo": ("demo", "Show a support desk in the browser, without a key"),
        "replay": ("replay", "Replay recorded conversations on the agents of today"),
        "doctor": ("doctor", "Look whether a store is whole, and what in it needs a person"),
    },
}
"""The commands under the titles of the help."""

app: typer.Typer = typer.Typer(
    name="understudy",
    cls=group_of(COMMANDS),
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=SETTINGS,
)


def _version(asked: bool) -> None:
    if asked:
        import importlib.metadata

        typer.echo(f"understudy {importlib.metadata.version('understudy')}")
        raise typer.Exit


@app.callback()
def understudy(
    store: StoreOption = None,  # these four are for the help: they are moved behind the command
    url: UrlOption = None,
    token: TokenOption = None,
    acting_for: AsOption = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which it is.")
    ] = False,
) -> None:
    """See the help of the application."""
