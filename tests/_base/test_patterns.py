"""Patterns that a model, a server or a person brings, and our own on their texts, hold up nobody.

Rules: I18, J82.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from pydantic import BaseModel

import understudy
from understudy import Agent, ScriptedModel, UsageError
from understudy._base.json_schema import faults_of
from understudy._base.patterns import Pattern
from understudy.middleware.workspace.search import MAX_STEPS, line_search, path_filter

SECONDS = 1.0
"""Of the processor. A bounded look takes a twentieth of it, and an unbounded one minutes."""
TIMES = (3, 10, 20, 40, 60, 100, 1000)


def nested() -> Iterator[str]:
    for n in TIMES:
        yield f".*((a{{0,{n}}}){{0,{n}}}){{0,{n}}}!"
        yield f".*(a{{0,{n}}}){{0,{n}}}!"
        yield f"(?:(?:(?:a?){{0,{n}}}b?){{0,{n}}}a?){{0,{n}}}!"
        yield f"(a?){{{n}}}a{{{n}}}!"
        yield f"[ab]*a[ab]{{{n}}}c"
        yield rf"\w*a.{{{n}}}\w!"
        yield "(a*)*" * min(n, 100) + "!"


def texts(length: int) -> Iterator[str]:
    chance = random.Random(1)
    yield "a" * length
    yield "ab" * (length // 2)
    yield "".join(chance.choice("ab") for _ in range(length))


@pytest.mark.parametrize("pattern", [*nested()])
def test_a_pattern_is_refused_or_found_out_about_in_a_bounded_time(pattern: str) -> None:
    began = time.thread_time()
    with suppress(ValueError):
        found = Pattern(pattern)
        for text in texts(MAX_STEPS // found.steps_a_character):
            assert not found.finds(text)
    assert time.thread_time() - began < SECONDS


@pytest.mark.parametrize("pattern", [*nested()])
def test_so_is_one_of_a_schema_for_any_value(pattern: str) -> None:
    for text in texts(5000):
        began = time.thread_time()
        assert faults_of({"pattern": pattern}, text)
        assert time.thread_time() - began < SECONDS


def test_a_regular_expression_as_a_value_is_compiled_only_where_it_is_short() -> None:
    schema = {"format": "regex"}
    assert faults_of(schema, "(a")
    began = time.thread_time()
    assert not faults_of(schema, "(?i)" + "[\1-\U0010ffff]" * 1000)
    assert time.thread_time() - began < SECONDS


@pytest.mark.parametrize(
    "pattern",
    ["**/" * 300 + "x", "*a" * 400, "*" * 1000, "**/*a" * 150, "?" * 1000, "a/" + "*?" * 400],
)
def test_a_pattern_of_paths_takes_a_bounded_time(pattern: str) -> None:
    paths = ["a/" * 100 + "b", "a" * 200, "a" * 255 + "/" + "ab" * 100]
    began = time.thread_time()
    with suppress(UsageError):
        assert set(path_filter(pattern)(paths)) <= set(paths)
    assert time.thread_time() - began < SECONDS


def test_patterns_that_were_too_much_are_refused_and_those_that_people_write_are_not() -> None:
    for pattern in (".*((a{0,40}){0,40}){0,40}!", ".*((a{0,50}){0,50}){0,50}!"):
        with pytest.raises(UsageError, match="repeats too much"):
            line_search(pattern, is_regex=True, ignore_case=False)
    for pattern in (r"\bdef \w{1,80}\(", r"^\s*(import|from) .{0,200}$", "x" * 990, "TODO.*"):
        line_search(pattern, is_regex=True, ignore_case=True)
    with pytest.raises(UsageError, match="`pattern` has more than 1,000 characters"):
        path_filter("x" * 1001)


@pytest.mark.parametrize("pattern", ["**/x.py", "**/**/x.py", "**/**/**/x.py"])
def test_folders_of_any_depth_are_one_thing_however_often_they_are_written(pattern: str) -> None:
    assert path_filter(pattern)(["x.py", "a/x.py", "a/b/x.py", "ax.py"]) == [
        "x.py",
        "a/x.py",
        "a/b/x.py",
    ]


def test_a_line_that_is_too_long_for_its_pattern_is_searched_from_its_beginning() -> None:
    search = line_search("a{0,600}!", is_regex=True, ignore_case=False)
    assert search.finds("x" * 1000 + "!")
    assert not search.finds("x" * 10_000 + "!")


class Found(BaseModel):
    place: str


@pytest.mark.parametrize("inside", ["\n" * 20_000, " " * 20_000, "\n```" * 5_000, "a\n" * 10_000])
async def test_an_answer_in_a_frame_of_code_is_read_in_a_bounded_time(inside: str) -> None:
    answers = [f"```json\n{inside}", f"```\n{inside}```x", '```JSON \n\n{"place": "a"}\n \n```\n']
    agent = Agent("a", ScriptedModel(answers), output_type=Found)
    began = time.thread_time()
    outcome = await agent.execute("Where?")
    assert time.thread_time() - began < SECONDS
    assert outcome.output == Found(place="a")  # type: ignore[union-attr]


OF_TABLES = {("understudy.journal.store_format", name) for name in ("_TABLE", "_COLUMN")}
"""They look through tables of databases, of which nobody but the owner is the author."""


def own_patterns() -> Iterator[re.Pattern[str]]:
    for module in pkgutil.walk_packages(understudy.__path__, "understudy."):
        of_others = module.name.startswith("understudy.tools.foreign.")  # they need its library
        if not module.name.endswith("__main__") and not of_others:
            for name, value in vars(importlib.import_module(module.name)).items():
                is_ours = isinstance(value, re.Pattern) and isinstance(value.pattern, str)
                if is_ours and (module.name, name) not in OF_TABLES:
                    yield value


def test_our_own_patterns_take_a_time_that_grows_with_the_text_alone() -> None:
    pieces = ["```\n", "\n", " ", "a", "{", "{{", "[", "a=", "&", "?token=", "/", "\\", "\\u", "1."]
    patterns = set(own_patterns())
    assert len(patterns) > 20
    for length in (400, 20_000):  # the short ones first, which a pattern of the worst kind survives
        for pattern in patterns:
            for piece in pieces:
                began = time.thread_time()
                pattern.search(piece + "x" + piece * (length // len(piece)))
                pattern.fullmatch(piece * (length // len(piece)) + "\0")
                assert time.thread_time() - began < SECONDS / 4, (pattern, piece)
