"""The command `understudy`, with all its subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from understudy.cli.lazily import SETTINGS, Listed, group_of
from understudy.cli.targets import AsOption, StoreOption, TokenOption, UrlOption

HELP: str = """Look at agents, decide what they ask, and steer them.

Commands that only read use a store (--store) or a running server. Commands that change
something need a running server: `understudy serve`, or --url.

Exit codes: 0 done; 1 failed; 2 usage; 3 no such agent or request; 4 the request was
decided or changed meanwhile, or the decision does not fit; 5 the store or the server
cannot be used; 130 Ctrl-C. `run --wait` also: 10 the run waits for a person, 11 paused,
12 stopped, 13 failed.
"""
COMMANDS: dict[str, Listed] = {
    "Decide what waits": {
        "review": ("review", "Decide requests one after the other, each shown in full"),
        "pending": ("inspect", "List the requests that wait for a person, of all agents"),
        "approve": ("deciding", "Let a call run exactly as it is shown"),
        "edit": ("deciding", "Let a call run with other arguments"),
        "reject": ("deciding", "Do not let a call run; the model gets the reason"),
        "respond": ("deciding", "Answer a question, or give the result of a call yourself"),
        "dismiss": ("deciding", "Acknowledge that a tool has stopped the run"),
        "take": ("notes", "Say that you look after a request"),
        "comment": ("notes", "Write a comment beside a request, for other people"),
        "snooze": ("notes", "Hide a request from your lists for a while"),
        "assign": ("notes", "Assign a request to a person"),
        "notes": ("notes", "Show the notes beside a request"),
        "doubts": ("inspect", "List the calls in doubt: nobody knows what they did"),
        "settle": ("steering", "Say what a call in doubt did"),
        "reviews": ("inspect", "List the calls that one person has approved alone"),
        "close-review": (
            "steering",
            "Close the review of a call that one person has let run alone",
        ),
        "revoke": ("steering", "Revoke a decision that holds for later calls"),
    },
    "Look at agents": {
        "attention": ("attention", "Show everything that needs a person, and what to do next"),
        "decisions": ("decided", "List the decisions on the requests of all agents"),
        "usage": ("usage", "Show what models used by day, definition and model"),
        "search": ("searching", "Search requests and conversations for words"),
        "ls": ("inspect", "List the agents, with their status and what they wait for"),
        "show": ("inspect", "Show one agent: what it does now, and its conversation"),
        "tree": ("inspect", "Show the agents inside an agent"),
        "history": ("inspect", "Show what happened to an agent, with times and durations"),
        "events": ("inspect", "Show the events of an agent, or of all agents"),
        "schedules": ("inspect", "Show the schedules of an agent, or change them"),
        "export": ("acting", "Write all records of an agent as JSON"),
    },
    "Write to agents and steer them": {
        "send": ("acting", "Send a message to an agent, without waiting for the outcome"),
        "run": ("acting", "Run an agent on a message"),
        "cancel": ("steering", "Stop the current run at once"),
        "cancel-message": ("steering", "Take back a message that no run has taken yet"),
        "pause": ("steering", "Pause the run after the model's next reply"),
        "unpause": ("steering", "Continue a paused run where it stopped"),
        "retry": ("steering", "Continue the last run where it failed"),
        "recover": ("acting", "Continue every run that was cut off"),
        "compact": ("steering", "Replace the records of an agent by a snapshot"),
        "import": ("acting", "Put an exported agent into a store"),
        "delete": ("acting", "Delete an agent and all its records"),
    },
    "What holds for a whole store": {
        "budgets": ("budgets", "List how much of each budget is used"),
        "raise-budget": ("budgets", "Add an amount to a budget, until its window ends"),
        "freeze": ("freezing", "Freeze the store: nothing begins until it is thawed"),
        "thaw": ("freezing", "End a freeze, so that what waited begins"),
        "freezes": ("freezing", "List what is frozen, by whom and why"),
        "administration": ("administering", "List the protected operations that wait for votes"),
        "vote": ("administering", "Vote on a protected operation"),
        "delegate": ("administering", "Let another person vote with your roles"),
        "delegations": ("administering", "List who votes for whom, and until when"),
        "end-delegation": ("administering", "End a delegation"),
        "trust": ("requiring", "What a store requires of each host: enable, disable, status"),
        "retire": ("retiring", "Put agents at rest into an archive, and delete them"),
        "vacuum": ("retiring", "Give back the space that deletions have left"),
        "notify": ("notifying", "The notices to people about requests: list, retry, test"),
        "rules": ("rules", "Rules of an application: check, trial, retire"),
        "skills": ("skills", "Skills of agents: list, check, accept"),
    },
    "Run and check a program": {
        "serve": ("serve", "Run the agents of your program, with an inbox in the browser"),
        "mcp": ("mcp", "Run the agents of your program, with an MCP server"),
        "demo": ("demo", "Show a support desk in the browser, without a key"),
        "replay": ("replay", "Replay recorded conversations on today's agents"),
        "doctor": ("doctor", "Check whether a store is whole, and show what needs a person"),
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """See the help of the application."""
