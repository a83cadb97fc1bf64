"""`rules check`, `rules trial`, `rules retire`: checks of an application's rules before they
hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.exits import FAILED, USAGE, refuse
from understudy.cli.inputs import span_of
from understudy.cli.lazily import SETTINGS, Listed, group_of
from understudy.cli.output import JsonOption, Output
from understudy.cli.serve import load, load_definitions, store_of
from understudy.cli.targets import StoreOption
from understudy.cli.text import some

if TYPE_CHECKING:  # the help of a command needs none of it
    from understudy.actors import Runtime
    from understudy.agent.agent import Agent
    from understudy.trust.check import RuleCheck
    from understudy.trust.people import GivenPeople
    from understudy.trust.rules import Rules
    from understudy.trust.trial import Change, Trial

CHANGE_NAMES = "newly-denied, newly-asked, newly-unasked, no-longer-denied, asked-others"
"""The changes of a trial, for the help."""
RulesArgument = Annotated[
    str,
    typer.Argument(metavar="MODULE:ATTR", help="The Rules, or a Runtime that has them."),
]
AgentsOption = Annotated[
    str | None,
    typer.Option(
        "--agents",
        metavar="MODULE:ATTR",
        help="The agents, or a Runtime that has them; by default the agents of a named Runtime.",
    ),
]


def check(
    rules: RulesArgument,
    agents: AgentsOption = None,
    people: Annotated[
        str | None,
        typer.Option(
            "--people",
            metavar="MODULE:ATTR",
            help="As of Runtime(people=...); by default the people of a named Runtime.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the tools that each rule matches. Exits with 1 if a rule cannot work."""
    from understudy._base.clock import SystemClock
    from understudy.agent.rule_checks import reachable_tools
    from understudy.trust.check import check_rules
    from understudy.trust.people import People

    out = Output(json=json)
    found, runtime = _rules_of(rules)
    definitions = _agents_of(agents, rules, runtime)
    if not definitions:
        refuse(USAGE, f"{rules} names no agents: say which, by --agents MODULE:ATTR")
    known = None if runtime is None else runtime.people
    if people is not None:
        given: GivenPeople = load(people)
        known = People(given, SystemClock())
    checks = check_rules(found, reachable_tools(definitions), known)
    bad = [each for each in checks if each.problems]
    if out.is_data:
        rows = [each.to_dict() for each in checks]
        document = {"ok": not bad, "version": found.version, "default": found.default}
        out.document({**document, "rules": rows})
    else:
        for each in checks:
            _say(out, each)
    raise typer.Exit(FAILED if bad else 0)


def _say(out: Output, found: RuleCheck) -> None:
    rule = found.rule
    state, style = ("bad", "red") if found.problems else ("ok", "green")
    who = "" if rule.approval is None else f" [{rule.approval.text}]"
    out.say(f"{state:4}  {rule.name}: {rule.kind} {rule.tool}{who}", style)
    for match in found.matches:
        out.say(f"        {match}")
    for problem in found.problems:
        out.say(f"      ! {problem}", "red")
    for note in found.notes:
        out.say(f"      - {note}", "yellow")


def trial(
    rules: RulesArgument,
    store: StoreOption = None,
    since: Annotated[
        str, typer.Option("--since", metavar="SPAN", help="How far back: 30d, 12h, 90m, 2w.")
    ] = "30d",
    agents: AgentsOption = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="CHANGE",
            help=f"Exit with 1 if a call changes in this way: {CHANGE_NAMES}.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Try rules on the recorded calls of a store. It changes nothing."""
    from understudy.actors import Observer

    out = Output(json=json)
    wanted = changes_named(fail_on or ())
    found, runtime = _rules_of(rules)
    store = store or store_of(runtime)
    if store is None:
        refuse(USAGE, f"{rules} names no store: say which, by --store URL or UNDERSTUDY_STORE")
    definitions = _agents_of(agents, rules, runtime)
    with Observer(store) as observer:
        tried = observer.try_rules(found, since=span_of(since), agents=definitions).get()
    if out.is_data:
        out.document(tried.to_dict())
    else:
        _say_trial(out, tried)
    raise typer.Exit(FAILED if any(map(tried.count, wanted)) else 0)


def changes_named(names: Iterable[str]) -> list[Change]:
    """The changes of `--fail-on`."""
    from understudy.trust.trial import CHANGES

    wanted = [name.replace("-", "_") for name in names]
    unknown = next((name for name in wanted if name not in CHANGES), None)
    if unknown is not None:
        refuse(USAGE, f"--fail-on {unknown}: use {', '.join(CHANGES)}")
    return [change for change in CHANGES if change in wanted]


def _say_trial(out: Output, tried: Trial) -> None:
    from understudy.trust.trial import CHANGES

    out.say(f"{tried.calls} calls of {tried.agents} agents")
    for tool, counted in sorted(tried.by_tool.items()):
        asked = f"asked about: {counted['asked_before']} before, {counted['asked_now']} now"
        denied = f"denied: {counted['denied_before']} before, {counted['denied_now']} now"
        out.say(f"  {tool}: {counted['calls']} calls; {asked}; {denied}")
    for change in CHANGES:
        count = tried.count(change)
        if not count:
            continue
        out.say(f"{change.replace('_', ' ')}: {count}", "yellow")
        for each in tried.examples[change]:
            by = f" by {some([repr(rule) for rule in each.rules])}" if each.rules else ""
            path = "/".join((*each.agent_path, each.tool))
            out.say(f"  {each.agent_id}  {path}  {each.call_key}{by}")
    for reason, count in sorted(tried.untried.items()):
        out.say(f"not tried: {count} {reason}", "yellow")
    for rule, count in sorted(tried.unknown.items()):
        out.say(f"rule {rule!r}: its `when` failed for {count} calls", "yellow")


def retire(
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="NAME", help="The person who decides it; the store keeps the name."
        ),
    ],
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """End the rules of a whole store, so that hosts without rules may open.

    It writes to the store itself. A SQLite file must not be open elsewhere.
    """
    from understudy._base.authors import checked_author

    out = Output(json=json)
    if store is None:
        refuse(USAGE, "say which store: --store URL, or UNDERSTUDY_STORE")
    name = checked_author(by, what="--by")
    version = asyncio.run(_retired(store, name))
    if out.is_data:
        out.document({"retired": version})
    elif version is None:
        out.say("no rules hold for this store")
    else:
        out.say(f"rules version {version} hold no longer")


async def _retired(url: str, by: str | None) -> int | None:
    """The version of the retired rules; None if no rules held."""
    from understudy._base.clock import SystemClock
    from understudy.journal.opening import open_store
    from understudy.trust.trust import Trust

    store = open_store(url)
    await store.open(_nothing)
    try:
        trust = Trust()
        trust.follow(store)
        await trust.look()
        rules = trust.state.rules
        is_retired = await trust.retire_rules(at=SystemClock().now(), by=by)
        return None if rules is None or not is_retired else rules.version
    finally:
        await store.close()


def _nothing() -> None:
    """Ignore a lost lease: nothing is owned here."""


def _rules_of(target: str) -> tuple[Rules, Runtime | None]:
    """The rules that `module:attr` names, and the runtime if that has them."""
    from understudy._base.json_values import shown
    from understudy.actors import Runtime
    from understudy.trust.rules import Rules

    found = load(target)
    if callable(found) and not isinstance(found, (Rules, Runtime)):
        found = found()
    runtime = found if isinstance(found, Runtime) else None
    rules = found.rules if isinstance(found, Runtime) else found
    if not isinstance(rules, Rules):
        refuse(USAGE, f"{target} must be Rules(...), or a Runtime with rules, got {shown(found)}")
    return rules, runtime


def _agents_of(
    target: str | None, rules: str, runtime: Runtime | None
) -> tuple[Agent[Any, Any], ...]:
    if target is not None:
        return tuple(load_definitions(target)[0])
    return () if runtime is None else runtime.definitions


COMMANDS: dict[str, Listed] = {
    "Commands": {
        "check": ("rules", "List the tools that each rule matches"),
        "trial": ("rules", "Try rules on the recorded calls of a store"),
        "retire": ("rules", "End the rules of a whole store"),
    }
}
app: typer.Typer = typer.Typer(
    name="rules",
    cls=group_of(COMMANDS),
    context_settings=SETTINGS,
    help="The rules of an application: what they match, and what they would have decided.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def rules() -> None:
    """See the help of the group."""
