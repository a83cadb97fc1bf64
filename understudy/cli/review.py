"""`review`: decide request after request, as `git add -p` goes from hunk to hunk."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from understudy._base.request_summary import ALONE, summary, why_alone
from understudy.cli.api import Api, agent_path
from understudy.cli.ctrl_c import CutOff
from understudy.cli.deciding import done_text
from understudy.cli.editor import edited
from understudy.cli.exits import USAGE, ApiProblem, NoAnswer, Refusal, refuse
from understudy.cli.inspect import AgentOption, KindOption, OrderOption, ToolOption
from understudy.cli.options import Where
from understudy.cli.output import Output
from understudy.cli.pages import Shown, forget_typed, is_terminal
from understudy.cli.show import request_text
from understudy.cli.sources import ApiSource, every_row
from understudy.cli.text import clean, line, shown_json
from understudy.cli.words import decided_word, kind_of, kind_word

KEYS = {
    "approve": ("a", "approve"),
    "edit": ("e", "edit the arguments in your editor, and approve"),
    "reject": ("r", "reject, with a reason for the model"),
    "respond": ("w", "write the answer; of a call: its result, and the call does not run"),
    "dismiss": ("d", "dismiss: the run has been stopped, and ends"),
}
"""The keys and what they do, by the type of the decision."""
DOUBT_CHOICES = {
    "respond": ("happened", "it happened: you write its result, and it does not run again"),
    "approve": ("run it", "it did not happen: it runs now. If it did happen, it happens twice"),
    "reject": ("leave it", "it did not happen: the model gets your reason"),
}
"""The choices for a call in doubt, which are typed in full: nobody knows what it did, so no key is
usual."""
End = Literal["over", "changed"]
"""What comes next: another request, or the same request in its new form."""
USUAL_KEYS = ("s  skip it for now", "q  quit", "?  this help")


def review(
    tool: ToolOption = None,
    agent: AgentOption = None,
    kind: KindOption = None,
    order: OrderOption = "oldest",
    *,
    where: Where,
) -> None:
    """Decide requests one after the other. Each request is shown in full.

    A long request is shown screen by screen. You can decide once all of it was shown. If another
    person has decided first, or the request has changed, nothing is decided, and the review says
    so.
    """
    if not is_terminal():
        refuse(
            USAGE,
            "`review` asks a person in a terminal. In a script, use `pending --json`, then "
            "`approve`, `reject`, `edit`, `respond` or `dismiss` with --yes",
        )
    given = {"tool": tool, "agent": agent, "kind": kind_of(kind), "order": order}
    filters = {name: value for name, value in given.items() if value is not None}
    found = Review(where.changing(), filters)
    try:
        found.go()
    except CutOff as error:
        raise CutOff(f"{error}; {found.summary}") from None
    except KeyboardInterrupt:
        raise CutOff(found.summary) from None


class _Quit(Exception):
    """The signal that the person quits."""


@dataclass(slots=True)
class _Typed:
    """The texts that a person has typed about a request, kept in case they do not fit."""

    arguments: str | None = None


@dataclass(slots=True)
class Review:
    """A person's way through the waiting requests."""

    api: Api
    filters: Mapping[str, Any]
    out: Output = field(default_factory=Output)
    decided: int = 0
    skipped: int = 0
    lost: int = 0
    """The number of requests that wait no more, or that another person has decided."""

    @property
    def summary(self) -> str:
        """The result of the review, in words."""
        parts = [f"{self.decided} decided", f"{self.skipped} skipped"]
        if self.lost:
            parts.append(f"{self.lost} were decided or withdrawn meanwhile")
        return ", ".join(parts)

    def go(self) -> None:
        """Ask about each request, also about requests that come meanwhile."""
        seen: set[str] = set()
        try:
            while rows := [row for row in self._waiting() if row["id"] not in seen]:
                if seen:
                    self._say(f"\n{len(rows)} more came meanwhile", "bold")
                for number, row in enumerate(rows, start=1):
                    seen.add(row["id"])
                    self._ask(row, f"{number} of {len(rows)}")
        except _Quit:
            pass
        if not seen:
            self._say("nothing waits for a person")
        else:
            self._say(f"\n{self.summary}", "bold")

    def _waiting(self) -> Iterator[dict[str, Any]]:
        return every_row(ApiSource(self.api).pending, None, **self.filters)

    # ------------------------------------------------------------------ one request

    def _ask(self, listed: dict[str, Any], where: str) -> None:
        row = self._as_it_is_now(listed)
        if row is None:
            return
        title = line(row.get("title") or summary(row) or row["tool_name"] or row["source"])
        about = line(row["tool_name"] or row["source"])
        self._say(f"\n{where} · {kind_word(row['kind'])} · {about} · {title}", "bold")
        forget_typed()
        shown = Shown(request_text(row), self._say)
        if not self._is_read(shown):
            return
        typed = _Typed()
        while True:
            given = self._typed(self._question(row))
            if given in ("q", "quit"):
                raise _Quit
            if given in ("s", "skip"):
                self.skipped += 1
                return
            if given == "?":
                self._help(row)
                continue
            type = _choice(row, given)
            if type is None:
                self._unknown(row, given)
                continue
            decision = self._decision(row, type, typed)
            if decision is None:
                continue
            end = self._send(row, decision)
            if end == "changed":
                self._ask(listed, where)
            if end is not None:
                return

    def _as_it_is_now(self, listed: dict[str, Any]) -> dict[str, Any] | None:
        """The request in its present form; None, with a line about it, if it waits no more."""
        path = agent_path(listed["agent_id"], f"/requests/{listed['id']}")
        try:
            page = self.api.get(path)
        except ApiProblem as problem:
            if problem.status != 404:
                raise
            page = {"is_pending": False, "story": None, "request": None}
        if not page["is_pending"] or page["request"] is None:
            self.lost += 1
            self._say(f"\n{line(listed['id'])}: {_what_became(page['story'])}", "yellow")
            return None
        # The page also has the votes, and who may vote.
        rest = {name: value for name, value in page.items() if name in listed}
        return {**listed, **page["request"], **rest}

    def _is_read(self, shown: Shown) -> bool:
        """Show the whole request, before anything is decided. False if the person skips it."""
        while not shown.is_whole:
            given = self._typed(f"-- {shown.progress}: Enter shows more, `all` the rest, s, q -- ")
            if given == "":
                shown.more()
            elif given == "all":
                shown.rest()
            elif given in ("q", "quit"):
                raise _Quit
            elif given in ("s", "skip"):
                self.skipped += 1
                return False
            else:
                self._say("all of it has to be shown before it is decided", "yellow")
        return True

    def _question(self, row: Mapping[str, Any]) -> str:
        if row["kind"] == "doubt":
            words = [DOUBT_CHOICES[type][0] for type in DOUBT_CHOICES if type in row["allowed"]]
            for type, (word, does) in DOUBT_CHOICES.items():
                if type in row["allowed"]:
                    self._say(f"  {word:10}{does}")
            return f"Nobody knows what the call did. Type {' / '.join(words)}, or s, q, ?: "
        keys = [KEYS[type][0] for type in KEYS if type in row["allowed"]]
        return f"Decide it [{','.join([*keys, 's', 'q', '?'])}]: "

    def _help(self, row: Mapping[str, Any]) -> None:
        if row["kind"] != "doubt":
            for type, (key, does) in KEYS.items():
                if type in row["allowed"]:
                    self._say(f"{key}  {does}")
        for key_text in USUAL_KEYS:
            self._say(key_text)

    def _unknown(self, row: Mapping[str, Any], given: str) -> None:
        if row["kind"] == "doubt" and given in {key for key, _ in KEYS.values()}:
            self._say("a call in doubt is decided by the whole word", "yellow")
        else:
            self._say(f"{line(given)!r} is none of the keys; ? explains them", "yellow")

    # --------------------------------------------------------------------- decisions

    def _decision(self, row: dict[str, Any], type: str, typed: _Typed) -> dict[str, Any] | None:
        """The decision as the API takes it; None if the person has changed their mind."""
        if type == "edit":
            return self._edited(row, typed)
        if type == "reject":
            reason = self._typed("Why, for the model (Enter: no reason): ")
            return {"type": "reject", "message": reason or None}
        if type == "respond":
            return self._answered(row)
        if type == "approve" and row["kind"] != "doubt" and why_alone(row) == ALONE:
            self._say("An equal call is in doubt: if it happened, this is the second one.", "red")
            if self._typed("Type `run it` to approve it all the same: ") != "run it":
                self._say("nothing was decided")
                return None
        return {"type": type}

    def _edited(self, row: dict[str, Any], typed: _Typed) -> dict[str, Any] | None:
        before = json_module.dumps(row["arguments"], indent=2, ensure_ascii=False) + "\n"
        text = before if typed.arguments is None else typed.arguments
        while True:
            try:
                text = edited(text, "arguments.json")
            except Refusal as refusal:
                self._say(str(refusal), "red")
                return None
            if text == before:
                self._say("nothing was changed, so nothing was decided")
                return None
            typed.arguments = text
            arguments, wrong = _parsed(text)
            if wrong is None:
                break
            self._say(wrong, "red")
            if self._typed("Enter edits it again, n leaves it: ") == "n":
                return None
        self._say(f"with these arguments:\n{shown_json(arguments, indent=2)}")
        if self._typed("Approve it so? [y/N]: ").lower() not in ("y", "yes"):
            self._say("nothing was decided")
            return None
        return {"type": "edit", "arguments": arguments}

    def _answered(self, row: dict[str, Any]) -> dict[str, Any] | None:
        what = "Its result" if row["kind"] != "interrupt" else "Your answer"
        given = self._typed(f"{what}, a text or JSON (Enter: in your editor): ", keep=True)
        if not given.strip():
            try:
                given = edited("", "answer.txt").strip()
            except Refusal as refusal:
                self._say(str(refusal), "red")
                return None
        if not given:
            self._say("nothing was written, so nothing was decided")
            return None
        try:
            return {"type": "respond", "value": json_module.loads(given)}
        except (ValueError, RecursionError):
            return {"type": "respond", "value": given}

    def _send(self, row: dict[str, Any], decision: dict[str, Any]) -> End | None:
        """Send the decision, and print the result. None if another decision can be tried."""
        sent = {name: value for name, value in decision.items() if value is not None}
        sent.setdefault("type", decision["type"])
        if decision["type"] == "respond":
            sent["value"] = decision["value"]
        body = {"decisions": {row["id"]: sent}, "expect": {row["id"]: row["digest"]}}
        try:
            done = self.api.post(agent_path(row["agent_id"], "/decisions"), body)
        except NoAnswer as error:
            # The same decision again is a success, so a person may send it again.
            self._say(f"the server does not answer ({line(str(error))}): try again, or quit", "red")
            return None
        except ApiProblem as problem:
            self._say(clean(str(problem)), "red")
            if problem.error == "RequestChanged":
                return "changed"
            if problem.status not in (404, 409):
                return None
            self.lost += 1
            return "over"
        self.decided += 1
        self._say(done_text(decision["type"], done), "green")
        for missing in done.get("open", {}).values():
            self._say(f"it still waits: {line(missing)}", "yellow")
        return "over"

    # ---------------------------------------------------------------------- terminal

    def _typed(self, question: str, *, keep: bool = False) -> str:
        """The text that a person types; the end of the input counts as `q`."""
        sys.stdout.write(clean(question))
        sys.stdout.flush()
        given = sys.stdin.readline()
        if not given:
            sys.stdout.write("\n")
            raise _Quit
        return given.rstrip("\n") if keep else given.strip()

    def _say(self, text: str, style: str = "") -> None:
        self.out.say(text, style)


def _choice(row: Mapping[str, Any], given: str) -> str | None:
    """The type of the decision that was typed, if the request allows it."""
    known = DOUBT_CHOICES if row["kind"] == "doubt" else KEYS
    words = ((type, key) for type, (key, _) in known.items() if type in row["allowed"])
    return next((type for type, key in words if given == key), None)


def _parsed(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments that were written, or the error in them."""
    try:
        found = json_module.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"this is no JSON: {error}"
    if not isinstance(found, dict):
        return {}, "the arguments must be a JSON object, by the names of the parameters"
    return found, None


def _what_became(story: Mapping[str, Any] | None) -> str:
    """What became of a request that waits no more."""
    if story is None:
        return "it waits no more"
    by = f" by {line(story['by'])}" if story.get("by") else ""
    decision = story.get("decision") or {}
    word = decided_word(decision["type"]) if story["what"] == "decided" else story["what"]
    return f"{word}{by} meanwhile"
