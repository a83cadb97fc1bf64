"""What a command reads: from standard input, a file, or its own arguments."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from understudy.cli.exits import USAGE, refuse


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
