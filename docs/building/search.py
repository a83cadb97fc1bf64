"""What people look for by the search of the site, and whether it is found.

The search of the site finds a section that has all words of a query, each at least as the beginning
of a word; words of titles count most. `found` does the same with the index that the build has made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

LOOKED_FOR: Mapping[str, str] = {
    "inbox": "inbox.html",
    "inbox in ten seconds": "inbox.html#the-inbox-in-ten-seconds",
    "keyboard": "inbox.html#the-keyboard",
    "claim a request": "inbox.html#together",
    "snooze": "inbox.html#together",
    "notifications": "inbox.html#notifications",
    "approve from slack": "slack.html",
    "attention": "inbox.html",
    "approve many at once": "inbox.html#many-at-once-and-groups",
    "in doubt": "inbox.html#in-doubt",
    "grafana dashboard": "telemetry.html#dashboard-and-alerts",
    "notebook cell shows": "notebooks.html#what-a-cell-shows",
    "finished call never runs again": "rules.html#j3",
    "who may decide": "trust.html",
    "kill -9": "guarantees.html#crashes-and-restarts",
    "two approvers": "howto.html#let-people-decide",
    "four eyes": "howto.html#let-people-decide",
    "kill switch": "howto.html#let-people-decide",
    "retry a failed workflow": "workflows.html",
    "rename a tool": "effects.html",
    "delete old agents": "keeping_small.html",
    "gdpr": "howto.html#survive-crashes-and-deploys",
    "what happens on deploy": "howto.html#survive-crashes-and-deploys",
    "rolling deploy": "hosts.html",
    "what it cost": "cost.html",
    "vllm": "models.html",
    "structured output": "howto.html#write-an-agent",
    "dependencies": "howto.html#write-an-agent",
    "prompt injection": "howto.html#write-an-agent",
    "jupyter": "howto.html#write-an-agent",
    "flask": "howto.html#serve-users",
    "typescript": "howto.html#serve-users",
    "health checks": "howto.html#run-many-agents",
    "pytest-asyncio": "howto.html#test",
    "evaluate": "howto.html#test",
    "mysql": "howto.html#survive-crashes-and-deploys",
    "postgresql": "postgresql.html",
    "fastapi": "web.html",
    "tools of langchain": "other_tools.html",
    "wait for a webhook": "howto.html#wait-and-begin-at-a-time",
    "extras": "install.html#extras",
}
"""Words that people look for, each with the section or the page that is among the first results."""
FIRST = 6
"""The results that are seen without scrolling."""
WORD = re.compile(r"[^\W_]+")


def found(items: Iterable[Mapping[str, Any]], query: str) -> list[str]:
    """Where the words of a query are, best first."""
    words = WORD.findall(query.lower())
    ranked = []
    for place, item in enumerate(items):
        title = WORD.findall(item["title"].lower())
        text = WORD.findall(re.sub(r"<[^>]*>", " ", item["text"]).lower())
        score = 0.0
        for word in words:
            in_title, in_text = _fits(word, title), _fits(word, text)
            if not in_title and not in_text:
                break
            score += 8 * in_title / max(len(title), 1) ** 0.5 + in_text
        else:
            ranked.append((-score, place, item["location"]))
    return [location for *_, location in sorted(ranked)]


def _fits(word: str, words: list[str]) -> float:
    """How much of the word that fits best is the word of the query."""
    return max((len(word) / len(each) for each in words if each.startswith(word)), default=0)


def unfound(items: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What people look for, and do not find among the first results."""
    known = list(items)
    for query, wanted in LOOKED_FOR.items():
        first = found(known, query)[:FIRST]
        if not any(wanted in (location, location.partition("#")[0]) for location in first):
            others = ", ".join(first) or "nothing"
            yield f"The search for {query!r} does not find {wanted}, but {others}"


def index_of(site: Path) -> list[dict[str, Any]]:
    """The sections that the search of a built site knows."""
    items: list[dict[str, Any]] = json.loads((site / "search.json").read_text("utf-8"))["items"]
    return items
