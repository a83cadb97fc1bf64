"""Accepts skills, as a person does on the command line."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import run

__all__ = ["accept"]


def accept(*names: str, folder: Path, by: str = "ann") -> None:
    """Accept these skills of a folder; all without a name."""
    run("skills", "accept", *(names or ["--all"]), "--by", by, "--folder", str(folder))
