"""Ctrl-C: a command ends with one line and the code 130, whatever it is doing."""

from __future__ import annotations

import sys
from typing import NoReturn

BY_SIGNAL = 130
"""The exit code of a command that Ctrl-C ends."""


class CutOff(KeyboardInterrupt):
    """Ctrl-C, with the text for a person about what it cut off."""


def end_by_ctrl_c(error: BaseException | None = None) -> NoReturn:
    """Say in one line that Ctrl-C has ended the command, and end the process.

    Args:
        error: the `KeyboardInterrupt`; a `CutOff` says what it cut off.

    """
    detail = f": {error}" if isinstance(error, CutOff) else ""
    # A terminal shows `^C` where the cursor is: the line begins below it.
    begin = "\n" if sys.stderr.isatty() else ""
    sys.stderr.write(f"{begin}understudy: ended by Ctrl-C{detail}\n")
    sys.stderr.flush()
    raise SystemExit(BY_SIGNAL)
