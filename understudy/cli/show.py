"""The texts for people in a terminal: rows of a conversation, requests, trees."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from understudy._base.grant_terms import SCOPES, GrantOffer, GrantTerms
from understudy._base.request_summary import decision_word
from understudy.cli.text import as_json, clean, line, marked_letters, shown_json, utc
from understudy.cli.words import allowed_words, kind_word

MARKS = {
    "user": "»",
    "text": " ",
    "thinking": "…",
    "file": "□",
    "request": "?",
    "notice": "·",
    "cancelled": "■",
    "error": "!",
}
CALL_MARKS = {
    "success": "✓",
    "failed": "✗",
    "denied": "✗",
    "interrupted": "■",
    "asked": "?",
    "running": "→",
    "waiting": "⧖",
    "announced": "→",
    "ready": "→",
}
STYLES = {
    "user": "bold",
    "thinking": "dim",
    "request": "yellow",
    "notice": "dim",
    "cancelled": "yellow",
    "error": "red",
}
CALL_STYLES = {"success": "green", "failed": "red", "denied": "yellow", "interrupted": "yellow"}
RESULT = 160
"""The maximum characters of a result in one line; `--json` has the whole result."""


def row_lines(row: Mapping[str, Any], width: int | None = None) -> list[tuple[str, str]]:
    """The lines of a row, each with its style."""
    indent = "  " * int(row.get("depth") or 0)
    kind, state, detail = row["kind"], row["state"], row.get("detail") or {}
    style = STYLES.get(kind, "")
    text = clean(row["text"])
    mark = MARKS.get(kind, " ")
    if kind in ("call", "native_call"):
        mark, style = CALL_MARKS.get(state, "→"), CALL_STYLES.get(state, "cyan")
        text = line(_call_text(row))
        text += _call_end(state, detail)
    elif kind == "request":
        text = line(f"{row['text']} ({_decision(state, detail)})")
    elif kind in ("user", "cancelled", "notice"):
        facts = [] if kind != "user" or state == "done" else [state]
        facts += [f"by {author_text(detail['by'], detail)}"] if detail.get("by") else []
        text += f" ({', '.join(facts)})" if facts else ""
    room = None if width is None else max(width - len(indent) - 2, 20)
    found: list[tuple[str, str]] = []
    for number, each in enumerate(text.split("\n")):
        for piece in [each] if room is None else _wrapped(each, room):
            first = number == 0 and not found
            found.append((f"{indent}{mark if first else ' '} {piece}", style))
    return found


def author_text(name: str, detail: Mapping[str, Any]) -> str:
    """The author of something, with the login of an identity provider: two names may be equal."""
    ids = [line(each["subject"]) for each in detail.get("logins") or ()]
    return f"{line(name)} ({', '.join(ids)})" if ids else line(name)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, wrapped by cells: letters of some scripts take two."""
    from rich.console import Console  # a pipe needs none of it
    from rich.text import Text

    lines = Text(text).wrap(Console(width=width), width)
    return [each.plain.rstrip() for each in lines] or [""]


def _call_text(row: Mapping[str, Any]) -> str:
    name = row.get("detail", {}).get("tool_name")
    if name and row["text"] == name:
        arguments = row["detail"].get("arguments")
        return f"{name} {line(shown_json(arguments), RESULT)}" if arguments else str(name)
    return str(row["text"])


def _call_end(state: str, detail: Mapping[str, Any]) -> str:
    if state == "asked":
        return " (a person decides)"
    if state == "waiting":
        waits = detail.get("waits_for") or {}
        until = f" until {waits['until']}" if waits.get("until") else ""
        if waits.get("what") == "check":
            return f" (its effect is not known; waits for its check{until})"
        return f" (waits{': ' + line(waits['name']) if waits else ''}{until})"
    if state in ("announced", "ready", "running"):
        progress = detail.get("progress")
        return f" {line(progress, RESULT)}" if progress else ""
    result = detail.get("result_display") or detail.get("result")
    is_unknown = detail.get("in_doubt") or detail.get("doubt_ended")
    doubt = " (its effect is not known)" if is_unknown else ""
    return f"{': ' + line(result, RESULT) if result else ''}{doubt}"


def _decision(state: str, detail: Mapping[str, Any]) -> str:
    if state != "decided":
        votes = [_vote(vote) for vote in detail.get("votes") or ()]
        return "; ".join([state, *votes])
    decision = detail.get("decision") or {}
    by = f" by {author_text(detail['by'], detail)}" if detail.get("by") else ""
    why = f": {line(decision.get('note') or '')}" if decision.get("break_glass") else ""
    granted = decision.get("by_grant")
    grant = f", by grant {line(granted)}" if granted else ""
    return f"{decision_word(decision) if decision else 'decided'}{by}{grant}{why}"


def request_text(request: Mapping[str, Any]) -> str:
    """Everything that a person approves; nothing is cut."""
    path = " / ".join(_name(name) for name in request["agent_path"])
    title = request.get("title")
    lines = [
        *([f"title     {_name(title)}"] if title else []),
        f"request   {clean(request['id'], lines=False)}",
        f"agent     {_name(request['agent_id'])}  ({path})",
        f"kind      {clean(kind_word(request['kind']), lines=False)}",
        *([f"tool      {_name(request['tool_name'])}"] if request["tool_name"] else []),
        *([f"asked by  {_name(request['source'])}"] if request.get("question_key") else []),
        f"can be    {allowed_words(request['allowed'])}",
    ]
    if request.get("expires_at"):
        lines.append(f"expires   {request['expires_at']}")
    if request.get("impossible"):
        lines.append(f"no approval: {line(request['impossible'])}")
    if request.get("asked_again"):
        lines.append(f"again     {line(request['asked_again'])}")
    if request.get("rule"):
        lines.append(f"rule      {line(request['rule'])}")
    if request.get("budget"):
        lines.append(f"budget    {line(request['budget'])}: no room; what is approved counts")
    if request.get("must_agree"):
        lines.append(f"must agree: {line(request['must_agree'])}")
        lines += [f"vote      {_vote(vote)}" for vote in request["votes"]]
        lines += [f"terms     {line(term)}" for term in request["terms"]]
        lines += [f"missing   {line(request['missing'])}"] if request["missing"] else []
        if request["approved_at"]:
            lines.append(f"agreed    it starts at {request['approved_at']}")
        lines += [f"you       {each}" for each in _standing(request)]
    offered = request.get("offer")
    if offered is not None:
        lines.append(f"later calls may be decided too, {_offer(offered)}")
    lines += _block("arguments", request["arguments"])
    for name in ("payload", "display", "schema"):
        if request.get(name) is not None:
            lines += _block(name, request[name])
    for doubt in request.get("doubts") or ():
        what = {"open": "under way", "done": "done before"}.get(doubt["status"], "in doubt")
        of = f", {_name(doubt['tool_name'])} of {_name(doubt['agent_id'])}"
        title = f"{what}{of if doubt['agent_id'] else ''}: {line(doubt['reason'])}"
        settled = doubt.get("settled")
        if settled:
            how = settled["how"]
            since = "ended unsettled" if how is None else f"settled since: {line(how)}"
            title = f"{since} (was {title})"
        lines += _block(title, doubt["arguments"])
    earlier = [_earlier(call) for call in request.get("earlier") or ()]
    if earlier:
        lines += ["the same call before", *(f"  {each}" for each in earlier)]
    return "\n".join(lines)


def _standing(request: Mapping[str, Any]) -> Iterator[str]:
    """The lines on how the user's vote counts, or why the user may not vote. A store knows no
    user.
    """
    if request.get("why_no_vote"):
        does = "answer" if request.get("kind") == "doubt" else "vote"
        yield f"may not {does}: {line(request['why_no_vote'])}"
    elif request.get("counts_as"):
        other, roles = request["votes_for"], ", ".join(map(_name, request["counts_as"]))
        does = "have voted" if request["has_voted"] else "vote"
        whose = f" for {_name(other['name'])} until {line(other['until'])}" if other else ""
        yield f"{does}{whose}, as {roles}"
    if request.get("login_until"):
        yield f"log in again to vote after {line(request['login_until'])}"
    if request.get("may_break_glass"):
        yield "may break the glass: --break-glass --note WHY"


def _vote(vote: Mapping[str, Any]) -> str:
    """The text of a person's vote on a request to several persons."""
    said = {"approve": "approved", "reject": "rejected"}.get(vote["type"], line(vote["type"]))
    why = f": {line(vote['note'])}" if vote["break_glass"] else ""
    said = "glass broken" if vote["break_glass"] else said
    terms = vote.get("grant")
    later = f", also for later calls {terms_text(terms)}" if terms else ""
    return f"{said} by {_name(vote['name'])}, {line(vote['at'])}{later}{why}"


def _offer(offered: Mapping[str, Any]) -> str:
    """The largest grant that a request offers, in words; as data if a part is hidden."""
    given = _terms_of(offered, "free", scopes=SCOPES)
    return line(as_json(offered) if given is None else GrantOffer(**given).text)


def terms_text(terms: Mapping[str, Any]) -> str:
    """The terms of a decision for later calls, in words; as data if a part is hidden."""
    given = _terms_of(terms, "match", scopes=(*SCOPES, None))
    try:
        until = terms.get("until")
        at = None if until is None else datetime.fromisoformat(until)
    except (AttributeError, TypeError, ValueError):
        given = None
    return line(as_json(terms) if given is None else GrantTerms(until=at, **given).text)


def _terms_of(data: Any, names: str, *, scopes: tuple[Any, ...]) -> dict[str, Any] | None:
    """The fields of terms or of an offer; None if a field has an unexpected value.

    A hidden value may be replaced by anything.
    """
    if not isinstance(data, Mapping):
        return None
    seconds, uses, scope = data.get("seconds"), data.get("uses"), data.get("scope")
    named = data.get(names)
    fits = (
        (seconds is None or isinstance(seconds, (int, float)))
        and (uses is None or isinstance(uses, int))
        and (named is None or _is_names(named))
        and scope in scopes
    )
    given = None if named is None else tuple(named)
    return {"seconds": seconds, "uses": uses, names: given, "scope": scope} if fits else None


def _is_names(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(each, str) for each in given)


def grant_text(grant: Mapping[str, Any]) -> str:
    """The text of a grant: the later calls that it decides, who gave it, and its remaining uses."""
    free = grant["free"]
    others = "any" if free is None else ", ".join(map(_name, free)) or "no other"
    path = " / ".join(_name(name) for name in grant["agent_path"])
    left = grant["left"]
    decides = {"approve": "approves", "reject": "rejects"}.get(grant["type"], _name(grant["type"]))
    parts = [
        f"{decides} {_name(grant['tool_name'])} of {path}",
        *([f"with {line(shown_json(grant['arguments']))}"] if grant["arguments"] else []),
        f"and {others} arguments" if grant["arguments"] else f"with {others} arguments",
        *(["in this run"] if grant["scope"] == "run" else []),
        *([f"until {utc(grant['until'])}"] if grant["until"] is not None else []),
        f"used {grant['used']} times" if left is None else f"{left} uses left",
        *([f"by {_name(grant['by'])}"] if grant["by"] is not None else []),
    ]
    return ", ".join(parts)


def _earlier(call: Mapping[str, Any]) -> str:
    """The text of an earlier call with the same arguments."""
    words = {"open": "in the same reply", "success": "done"}
    what = [words.get(call["outcome"], call["outcome"])]
    what += [call["at"]] if call["at"] else []
    what += [f"by {_name(call['agent'])}"] if call["agent"] else []
    content = f": {line(call['content'])}" if call["content"] else ""
    found = f": {line(call['found'])}" if call["found"] else ""
    said = f"; {_name(call['found_by'])} said what it did{found}" if call["found_by"] else ""
    return f"{', '.join(what)}{content}{said}"


def _name(text: object) -> str:
    return marked_letters(clean(text, lines=False))


def _with_marked_letters(data: Any) -> Any:
    """The data with marked letters in each text: the judgement of one text does not depend on
    others.
    """
    if isinstance(data, str):
        return marked_letters(data)
    if isinstance(data, Mapping):
        return {
            marked_letters(str(name)): _with_marked_letters(value) for name, value in data.items()
        }
    return (
        [_with_marked_letters(each) for each in data] if isinstance(data, (list, tuple)) else data
    )


def _block(title: str, data: Any) -> list[str]:
    data = _with_marked_letters(data)
    text = clean(data) if isinstance(data, str) else shown_json(data, indent=2)
    return [title, textwrap.indent(text, "  ")]


def indented(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of a tree."""
    for row in rows:
        mark = CALL_MARKS.get(row["state"], " ") if row["what"] == "call" else ""
        name = line(row["name"])
        yield f"{'  ' * row['depth']}{mark + ' ' if mark else ''}{name} ({row['state']})"
