"""What a command reads: from standard input, a file, or its own arguments."""

from __future__ import annotations

import json
import sys
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


def confirm(question: str, *, to: str, otherwise: str) -> None:
    """Go on only if the person at the terminal says yes.

    Args:
        question: which is asked, on standard error.
        to: what there is to confirm, said where nobody is there.
        otherwise: what is said if the answer is another one.

    """
    if not sys.stdin.isatty():
        refuse(USAGE, f"nobody is here to confirm {to}: give --yes")
    sys.stderr.write(f"{clean(question)} [y/N]: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        refuse(FAILED, otherwise)
