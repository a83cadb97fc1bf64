"""`replay`: runs recorded conversations again on today's definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.exits import FAILED, USAGE, refuse
from understudy.cli.inputs import span_of
from understudy.cli.output import JsonOption, Output
from understudy.cli.rules import CHANGE_NAMES, changes_named
from understudy.cli.serve import load_target, store_of
from understudy.cli.targets import StoreOption
from understudy.errors import StoreDamaged, UnknownAgent, UsageError

if TYPE_CHECKING:  # the help of the command needs none of it
    from understudy.actors import Observer
    from understudy.agent.agent import Agent
    from understudy.trust.budgets import Measure

DIFFERENT = "different"
"""The value of `--fail-on` by which the command fails for each first difference."""


def replay(
    target: Annotated[
        str,
        typer.Argument(metavar="MODULE:ATTR", help="The agents to try, or a Runtime."),
    ],
    store: StoreOption = None,
    since: Annotated[
        str, typer.Option("--since", metavar="SPAN", help="How far back: 7d, 12h, 90m, 2w.")
    ] = "7d",
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="Only this agent."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option("--limit", min=1, help="The largest number of conversations of each agent."),
    ] = 1000,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="USD",
            help=(
                "Ask the model, for at most this many USD. By default the model's replies"
                " come from the records, and cost nothing."
            ),
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="CHANGE",
            help=f"Exit with 1 if a call changes in this way: {CHANGE_NAMES}; or "
            f"{DIFFERENT}, if a conversation changes. By default newly-unasked.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Replay recorded conversations on today's agents. No tool runs.

    It reads the store beside the runtime that has it open, and changes nothing. The results of
    tools and the decisions of persons come from the records.
    """
    from understudy.actors import Observer, Runtime
    from understudy.testing.replaying import replay as replayed

    out = Output(json=json)
    wanted = list(fail_on or ["newly-unasked"])
    changes = changes_named([name for name in wanted if name != DIFFERENT])
    measure = _budget_of(budget)
    found = load_target(target)
    store = store or store_of(found)
    if store is None:
        refuse(USAGE, f"{target} names no store: say which, by --store URL or UNDERSTUDY_STORE")
    runtime = found if isinstance(found, Runtime) else None
    agents = _chosen(runtime.definitions if runtime is not None else found, agent, target)
    if measure is not None and len(agents) > 1:
        names = ", ".join(each.name for each in agents)
        refuse(USAGE, f"a budget is for one agent: choose it by --agent, of {names}")
    people = None if runtime is None or runtime.people is None else runtime.people.listed
    reports = []
    with Observer(store) as observer:
        begins = observer.now().get() - span_of(since)
        for each in agents:
            unread: list[tuple[str, str]] = []
            report = replayed(
                _exports(observer, each.name, begins, limit, unread),
                agent=each,
                since=begins,
                ask_model=measure is not None,
                budget=measure,
                rules=None if runtime is None else runtime.rules,
                people=people,
                pricing=True if runtime is None else runtime.prices or True,
            )
            for id, why in unread:
                report.note_unread(id, why)
            reports.append(report)
    if not any(report.runs or report.not_replayed for report in reports):
        names = ", ".join(repr(each.name) for each in agents)
        since_when = begins.astimezone(timezone.utc).isoformat(timespec="minutes")
        refuse(USAGE, f"no run of {names} began since {since_when}: give a longer --since")
    if out.is_data:
        out.document({"replays": [report.to_dict() for report in reports]})
    else:
        _say(out, reports)
    failed = any(report.of(change) for report in reports for change in changes)
    if DIFFERENT in wanted:
        failed = failed or any(report.changes or report.differences for report in reports)
    raise typer.Exit(FAILED if failed else 0)


def _say(out: Output, reports: list[Any]) -> None:
    # The most dangerous changes come first, also among several agents.
    for index, report in enumerate(sorted(reports, key=lambda each: not each.newly_unasked)):
        headline, *lines = str(report).splitlines()
        if index:
            out.say("")
        out.say(headline, "bold red" if report.newly_unasked else "bold")
        for line in lines:
            out.say(line)


def _chosen(agents: Any, name: str | None, target: str) -> list[Agent[Any, Any]]:
    chosen = [each for each in agents if name in (None, each.name)]
    if not chosen:
        known = ", ".join(repr(each.name) for each in agents) or "none"
        refuse(USAGE, f"{target} has no agent {name!r}; it has: {known}")
    return chosen


def _budget_of(text: str | None) -> Measure | None:
    from understudy.trust.budgets import usd

    try:
        return None if text is None else usd(text)
    except UsageError as error:
        refuse(USAGE, f"--budget {text}: {error}")


def _exports(
    observer: Observer,
    agent: str,
    since: datetime,
    limit: int,
    unread: list[tuple[str, str]],
) -> Iterator[Mapping[str, Any]]:
    """The exports of agents with records since a time, one at a time."""
    from understudy._base.json_values import text_of

    found = observer.agents(agent=agent, updated_since=since, limit=limit + 1).get()
    if len(found) > limit:
        unread.append(("", f"there are more than {limit} conversations: give a higher --limit"))
    for info in found[:limit]:
        try:
            yield observer.export(info.id).get()
        except UnknownAgent:
            continue  # the agent is deleted meanwhile
        except StoreDamaged as error:
            unread.append((info.id, f"its records cannot be read: {text_of(error)}"))
