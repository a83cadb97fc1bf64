"""The commands that decide: `approve`, `edit`, `reject`, `respond`, `dismiss`."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator
from datetime import datetime
from heapq import nlargest
from typing import Annotated, Any

import typer

from understudy._base.grant_terms import SCOPES
from understudy._base.request_summary import LEFT_OUT, decision_word, why_alone
from understudy.cli.api import Api, agent_path
from understudy.cli.editor import edited
from understudy.cli.exits import FAILED, NOT_FOUND, STALE, USAGE, ApiProblem, refuse
from understudy.cli.inputs import confirm, given_text, parsed_json, span_or_time
from understudy.cli.inspect import ToolOption, YesOption, short_id
from understudy.cli.options import Where
from understudy.cli.output import Output, note
from understudy.cli.show import request_text, terms_text
from understudy.cli.sources import ApiSource, every_row
from understudy.cli.text import clean, line, shown_json, some, utc
from understudy.cli.words import allowed_words, decided_word

MOST = 100
"""The maximum number of agents whose decisions are searched for a request that waits no more."""
RequestArgument = Annotated[
    str,
    typer.Argument(
        metavar="REQUEST",
        help="The id of the request, or the beginning of it; with `AGENT/` before it if you like.",
    ),
]
NoteOption = Annotated[str | None, typer.Option("--note", help="The reason, for the audit.")]
AlwaysOption = Annotated[
    bool,
    typer.Option(
        "--always", help="Decide the same for all later calls of this tool, until revoked."
    ),
]
GrantOption = Annotated[
    str | None,
    typer.Option(
        "--grant",
        metavar="SPAN|TIME",
        help=(
            "Decide the same for later calls: for 90s, 15m, 1h or 2d; or until a time "
            "with a time zone."
        ),
    ),
]
UsesOption = Annotated[
    int | None,
    typer.Option("--uses", min=1, help="Decide the same for this number of later calls."),
]
MatchOption = Annotated[
    list[str] | None,
    typer.Option(
        "--match",
        metavar="ARGUMENT",
        help=(
            "Decide the same for later calls with the same value of this argument. Repeat"
            " the option for several arguments."
        ),
    ),
]
AnyArgumentsOption = Annotated[
    bool,
    typer.Option(
        "--any-arguments",
        help="Decide the same for later calls with any arguments.",
    ),
]
ScopeOption = Annotated[
    str | None,
    typer.Option(
        "--scope", help="The later calls: `run` (this run) or `agent` (all runs of the agent)."
    ),
]


def approve(
    request: Annotated[str | None, typer.Argument(metavar="[REQUEST]")] = None,
    all: Annotated[
        bool, typer.Option("--all", help="All waiting requests of one tool; with --tool.")
    ] = False,
    tool: ToolOption = None,
    always: AlwaysOption = False,
    grant: GrantOption = None,
    uses: UsesOption = None,
    match: MatchOption = None,
    any_arguments: AnyArgumentsOption = False,
    scope: ScopeOption = None,
    note: NoteOption = None,
    break_glass: Annotated[
        bool,
        typer.Option(
            "--break-glass",
            help="Approve alone what several persons must agree to; with --note WHY.",
        ),
    ] = False,
    yes: YesOption = False,
    *,
    where: Where,
    out: Output,
) -> None:
    """Let a call run exactly as it is shown."""
    if break_glass and not note:
        refuse(USAGE, "--break-glass goes with --note, which says why")
    later = _later(always, grant, uses, match, any_arguments, scope)
    decision = {"type": "approve", **later, "note": note, "break_glass": break_glass}
    _decide(request, all, tool, decision, yes, where.changing(), out)


def reject(
    request: Annotated[str | None, typer.Argument(metavar="[REQUEST]")] = None,
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="A text for the model.")
    ] = None,
    all: Annotated[
        bool, typer.Option("--all", help="All waiting requests of one tool; with --tool.")
    ] = False,
    tool: ToolOption = None,
    always: AlwaysOption = False,
    grant: GrantOption = None,
    uses: UsesOption = None,
    match: MatchOption = None,
    any_arguments: AnyArgumentsOption = False,
    scope: ScopeOption = None,
    note: NoteOption = None,
    yes: YesOption = False,
    *,
    where: Where,
    out: Output,
) -> None:
    """Do not let a call run; the model gets the reason."""
    later = _later(always, grant, uses, match, any_arguments, scope)
    decision = {"type": "reject", "message": message, **later, "note": note}
    _decide(request, all, tool, decision, yes, where.changing(), out)


def edit(
    request: RequestArgument,
    args: Annotated[
        str | None,
        typer.Option(
            "--args",
            metavar="JSON|@FILE|-",
            help="All arguments, as JSON. By default your editor opens.",
        ),
    ] = None,
    note: NoteOption = None,
    yes: YesOption = False,
    *,
    where: Where,
    out: Output,
) -> None:
    """Let a call run with other arguments; they replace all shown arguments."""
    api = where.changing()
    found = find(api, request)
    if args is None and "decision" in found:
        _repeated(found, {"type": "edit"}, out)  # there is nothing to edit any more
    given = _edited(found) if args is None else given_text(args)
    arguments = parsed_json(given, "the arguments are")
    if not isinstance(arguments, dict):
        refuse(USAGE, "the arguments must be a JSON object, by the names of the parameters")
    _decide_one(found, {"type": "edit", "arguments": arguments, "note": note}, yes, api, out)


def respond(
    request: RequestArgument,
    value: Annotated[
        str,
        typer.Option(
            "--value", metavar="JSON|@FILE|-", help="The answer: JSON, or any other text."
        ),
    ],
    note: NoteOption = None,
    yes: YesOption = False,
    *,
    where: Where,
    out: Output,
) -> None:
    """Answer a tool's question, or give the result of a call yourself; it does not run."""
    api = where.changing()
    found = find(api, request)
    text = given_text(value)
    try:
        answer = json_module.loads(text)
    except (ValueError, RecursionError):
        answer = text
    _decide_one(found, {"type": "respond", "value": answer, "note": note}, yes, api, out)


def dismiss(
    request: RequestArgument,
    note: NoteOption = None,
    yes: YesOption = False,
    *,
    where: Where,
    out: Output,
) -> None:
    """Acknowledge a halt: the run ends."""
    api = where.changing()
    _decide_one(find(api, request), {"type": "dismiss", "note": note}, yes, api, out)


def _later(
    always: bool,
    end: str | None,
    uses: int | None,
    match: list[str] | None,
    any_arguments: bool,
    scope: str | None,
) -> dict[str, Any]:
    """The terms for later calls, as the API takes them; empty for this call only."""
    given = {
        **({} if end is None else _end(end)),
        "uses": uses,
        "match": [] if any_arguments else match or None,
        "scope": scope,
    }
    terms = {name: value for name, value in given.items() if value is not None}
    if scope not in (None, *SCOPES):
        refuse(USAGE, f"--scope must be {' or '.join(SCOPES)}, got {scope}")
    if any_arguments and match:
        refuse(USAGE, "--any-arguments lets no argument have to be equal: leave --match out")
    if always and terms:
        refuse(
            USAGE,
            "--always has no end: give it alone, or --grant, --uses, --match, --any-arguments, "
            "--scope",
        )
    if always:
        return {"always": True}
    return {"grant": terms} if terms else {}


def _end(given: str) -> dict[str, Any]:
    """The end of a grant: after a span such as `90s`, `15m`, `1h` or `2d`, or at a time."""
    end = span_or_time(given, "--grant", ("90s", "15m", "1h", "2d"), digits=9)
    return {"until": given} if isinstance(end, datetime) else {"seconds": float(end)}


# ------------------------------------------------------------------------------ one


def find(api: Api, given: str) -> dict[str, Any]:  # noqa: RET503  # refused otherwise
    """The request with this id, or the only request whose id begins so.

    If none waits, a decided request, with the `decision`, the name (`by`) and the time (`at`).
    """
    agent, _, prefix = given.rpartition("/")
    if not prefix:
        refuse(USAGE, "give the id of a request; `understudy pending` lists them")
    waiting = list(every_row(ApiSource(api).pending, None, of="all"))
    fitting = [
        row
        for row in waiting
        if row["id"].startswith(prefix) and (not agent or row["agent_id"] == agent)
    ]
    fitting = fitting or list(_decided(api, agent, prefix))
    exact = [row for row in fitting if row["id"] == prefix]
    if len(exact or fitting) == 1:
        return (exact or fitting)[0]
    asks = [row for row in waiting if not agent and row["agent_id"] == prefix]
    if not fitting and asks:
        ids = [row["id"] for row in waiting]
        named = [
            f"{short_id(row['id'], ids)} ({row['tool_name'] or row['source']})" for row in asks
        ]
        its = "its request is" if len(named) == 1 else "its requests are"
        refuse(NOT_FOUND, f"{prefix} is an agent; {its} {some(named)}")
    if not fitting:
        more = "" if agent else f"; of one that waits no more, give AGENT/{clean(prefix)}"
        refuse(
            NOT_FOUND,
            f"no request that waits begins with {prefix!r}: see `understudy pending`{more}",
        )
    ids = [row["id"] for row in fitting]
    named = [short_id(id, ids) for id in ids]
    refuse(USAGE, f"{clean(given)} is the beginning of {len(fitting)} requests: {some(named)}")


def _decided(api: Api, agent: str, prefix: str) -> Iterator[dict[str, Any]]:
    """The decided requests of the agent; without an agent, of the agents that changed last."""
    ids = [agent]
    if not agent:
        rows = every_row(ApiSource(api).agents, None)
        changed = nlargest(MOST, rows, key=lambda row: row["status_at"] or "")
        ids = [row["id"] for row in changed]
    for id in ids:
        try:
            decisions = api.get(agent_path(id, "/decisions"))["decisions"]
        except ApiProblem as problem:
            if agent or problem.error != "UnknownAgent":
                raise
            continue  # the agent was deleted since it was listed
        # The last decision on a request: an earlier one may be about its earlier form.
        last = {row["request_id"]: row for row in decisions if row["request_id"].startswith(prefix)}
        for request_id, row in last.items():
            yield {"id": request_id, "agent_id": id, **row}


def _repeated(found: dict[str, Any], decision: dict[str, Any], out: Output) -> None:
    """Say that the decision stands already, or refuse another decision."""
    from understudy.interrupts import Decision  # it knows which decisions are equal

    before = found["decision"]
    who = clean(found["by"] or "nobody by name", lines=False)
    word, at = decision_word(before), utc(found["at"])
    was = f"request {found['id']} was decided: {word} by {who}, at {at}"
    if word != before["type"]:
        was = f"nobody decided request {found['id']}: it {word} at {at}"
    if not Decision.from_dict(decision).same_as(Decision.from_dict(before)):
        refuse(STALE, was)
    if out.is_data:
        about = {"agent_id": found["agent_id"], "request_id": found["id"]}
        out.document({**about, "recorded": [found["id"]], "repeated": True})
    else:
        out.say(f"it was so already: {was}", "green")


def _decide(
    request: str | None,
    all: bool,
    tool: str | None,
    decision: dict[str, Any],
    yes: bool,
    api: Api,
    out: Output,
) -> None:
    if all:
        if request is not None or tool is None:
            refuse(USAGE, "--all goes with --tool, and without a request")
        _decide_all(tool, decision, yes, api, out)
    elif request is None or tool is not None:
        refuse(USAGE, "give the id of a request; or --all --tool TOOL")
    else:
        _decide_one(find(api, request), decision, yes, api, out)


def _decide_one(
    found: dict[str, Any], decision: dict[str, Any], yes: bool, api: Api, out: Output
) -> None:
    decision = _given(decision)
    if "decision" in found:
        _repeated(found, decision, out)
        return
    if found["allowed"] and decision["type"] not in found["allowed"]:
        can, not_ = allowed_words(found["allowed"]), decided_word(decision["type"])
        refuse(STALE, f"this request can be {can}, not {not_}")
    note(request_text(_with_its_doubts(api, found)))
    note(f"decision  {_decision_text(decision)}")
    _confirm(yes)
    body = {"decisions": {found["id"]: decision}, "expect": {found["id"]: found["digest"]}}
    done = api.post(agent_path(found["agent_id"], "/decisions"), body)
    if out.is_data:
        out.document({"agent_id": found["agent_id"], "request_id": found["id"], **done})
    else:
        out.say(done_text(decision["type"], done), "green")
        for missing in done.get("open", {}).values():
            out.say(f"it still waits: {line(missing)}", "yellow")


def done_text(type: str, done: dict[str, Any]) -> str:
    """The text on what a recorded decision has done. A decision that needs more persons is a
    vote.
    """
    vote = "your vote is recorded: " if done.get("open") else ""
    again = " (it was so already)" if done.get("repeated") else ""
    return f"{vote}{decided_word(type)}{again}"


def _with_its_doubts(api: Api, found: dict[str, Any]) -> dict[str, Any]:
    """The request, with the present state of the doubts with which it was asked."""
    if found["doubts"]:
        page = api.get(agent_path(found["agent_id"], f"/requests/{found['id']}"))
        found = {**found, "doubts": page["doubts"]}
    return found


def _given(decision: dict[str, Any]) -> dict[str, Any]:
    """The decision without the options that were not given. An answer may be any value."""
    return {
        name: value
        for name, value in decision.items()
        if name == "value" or (value is not None and value is not False)
    }


def _decision_text(decision: dict[str, Any]) -> str:
    """A decision before it is sent, in words."""
    parts = [{"respond": "answer"}.get(decision["type"], decision["type"])]
    if "arguments" in decision:
        parts.append(f"with the arguments {shown_json(decision['arguments'])}")
    if "value" in decision:
        parts.append(f"with {shown_json(decision['value'])}")
    if decision.get("message"):
        parts.append(f"the model is told: {clean(decision['message'])}")
    if decision.get("always"):
        parts.append("and so for all later calls of this tool, until revoked")
    if decision.get("grant"):
        parts.append(f"and so for later calls {terms_text(decision['grant'])}")
    if decision.get("break_glass"):
        parts.append("alone, by breaking the glass")
    if decision.get("note"):
        parts.append(f"note: {clean(decision['note'])}")
    return "; ".join(parts)


def _decide_all(tool: str, decision: dict[str, Any], yes: bool, api: Api, out: Output) -> None:
    kind = decision["type"]
    waiting = list(every_row(ApiSource(api).pending, None, tool=tool))
    allowed = [_with_its_doubts(api, row) for row in waiting if kind in row["allowed"]]
    fitting = [row for row in allowed if why_alone(row) is None]
    for why, reason in LEFT_OUT.items():
        alone = [row["id"] for row in allowed if why_alone(row) == why]
        if alone:
            is_or_are = "is" if len(alone) == 1 else "are"
            note(f"left out {is_or_are} {some(alone)}: {reason}, decide each by itself")
    if not fitting:
        refuse(NOT_FOUND, f"no request about {tool!r} waits that allows {kind}")
    for row in fitting:
        note(f"{row['id']}  {line(row['agent_id'])}\n{request_text(row)}\n")
    note(f"{kind} all {len(fitting)} requests about {line(tool)}")
    _confirm(yes)
    given = _given(decision)
    results: list[dict[str, Any]] = []
    for start in range(0, len(fitting), 500):
        requests = [
            {"agent_id": row["agent_id"], "request_id": row["id"], "digest": row["digest"]}
            for row in fitting[start : start + 500]
        ]
        results += api.post("/bulk", {"decision": given, "requests": requests})["results"]
    refused = [result for result in results if not result["ok"]]
    if out.is_data:
        out.document(
            {"results": results, "recorded": len(results) - len(refused), "refused": len(refused)}
        )
    else:
        for result in results:
            mark = "recorded" if result["ok"] else "refused"
            agent, detail = line(result["agent_id"]), line(result["detail"])
            out.say(f"{mark}  {result['request_id']}  {agent}  {detail}")
    if refused:
        raise typer.Exit(STALE if all_stale(refused) else FAILED)


def all_stale(refused: list[dict[str, Any]]) -> bool:
    """Whether all decisions were refused because their requests do not stand any more."""
    return all(result.get("status") in (404, 409, 422) for result in refused)


def _confirm(yes: bool) -> None:
    if not yes:
        confirm("Do it?", to="what is shown above", otherwise="nothing was decided")


def _edited(found: dict[str, Any]) -> str:
    if not sys.stdin.isatty():
        refuse(USAGE, "give the arguments: --args JSON, @file, or - for standard input")
    before = json_module.dumps(found["arguments"], indent=2, ensure_ascii=False) + "\n"
    after = edited(before, "arguments.json")
    if after == before:
        refuse(FAILED, "nothing was changed, so nothing was decided")
    return after
