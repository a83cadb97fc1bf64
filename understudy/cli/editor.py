"""Lets a person write a text in their own editor."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from understudy.cli.exits import FAILED, refuse
from understudy.cli.inputs import read_input


def edited(text: str, name: str) -> str:
    """The text as a person has edited it.

    Args:
        text: the text before.
        name: the name of the file, whose suffix tells editors the format.

    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="understudy-") as folder:
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8")
        try:
            with _editor_has_ctrl_c():
                done = subprocess.run([*shlex.split(editor), str(path)])  # noqa: S603  # the user's
        except OSError as error:
            refuse(FAILED, f"the editor {editor!r} failed: {error}")
        if done.returncode == -signal.SIGINT:
            raise KeyboardInterrupt
        if done.returncode:
            refuse(FAILED, f"the editor {editor!r} failed: it ended with {done.returncode}")
        return read_input(str(path))


@contextmanager
def _editor_has_ctrl_c() -> Iterator[None]:
    """Leave Ctrl-C to the editor while the context is open: in most editors it ends nothing.

    A handler of Python is not inherited by the editor, as an ignored signal would be.
    """
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
