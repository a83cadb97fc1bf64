"""The input of commands: standard input, files, and arguments."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from understudy.cli.exits import FAILED, USAGE, refuse
from understudy.cli.text import clean


def read_input(file: str) -> str:
    """The text of a file; `-` is standard input."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        refuse(USAGE, f"{'standard input' if file == '-' else file} cannot be read: {error}")


def given_text(given: str) -> str:
    """An argument; the content of a file, after `@`; or of standard input, for `-`."""
    return read_input(given.removeprefix("@")) if given == "-" or given[:1] == "@" else given


def parsed_json(text: str, what: str) -> Any:
    """The data of JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        refuse(USAGE, f"{what} no JSON: {error}")


_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def span_or_time(
    given: str, option: str, examples: Sequence[str], *, digits: int
) -> int | datetime:
    """The seconds of a span such as `15m`, or a time with a zone.

    Args:
        given: what was given.
        option: the name of the option, as in `--until`.
        examples: spans that the refusal names; only their units are taken.
        digits: the maximum digits of the number of a span.

    """
    number, unit = given[:-1], given[-1:]
    is_number = number.isascii() and number.isdecimal() and len(number) <= digits
    if is_number and any(unit == each[-1] for each in examples):
        return int(number) * _SECONDS[unit]
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        refuse(
            USAGE,
            f"{option} must be a span such as {', '.join(examples[:-1])} or {examples[-1]}, or a "
            f"time with a zone such as 2030-05-01T18:00+00:00, got {given!r}",
        )
    return at


_SPAN = re.compile(r"([0-9]{1,9})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def span_of(given: str, *, option: str = "--since") -> timedelta:
    """The time of a span such as `30d`.

    Args:
        given: what was given.
        option: the name of the option.

    """
    found = _SPAN.fullmatch(given)
    if found is None:
        refuse(USAGE, f"{option} {given!r}: write a number and a unit, such as 30d, 12h, 90m or 2w")
    try:
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError:
        refuse(USAGE, f"{option} {given!r} is too long")


def confirm(question: str, *, to: str, otherwise: str) -> None:
    """Continue only if the person at the terminal says yes.

    Args:
        question: the question, asked on standard error.
        to: what is to be confirmed, for the error if nobody is at a terminal.
        otherwise: the text for any other answer.

    """
    if not sys.stdin.isatty():
        refuse(USAGE, f"nobody is here to confirm {to}: give --yes")
    sys.stderr.write(f"{clean(question)} [y/N]: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        refuse(FAILED, otherwise)
