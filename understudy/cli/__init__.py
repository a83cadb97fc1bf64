"""`understudy` on the command line. Needs the extra `cli`: `pip install 'understudy[cli]'`."""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command in the arguments of the process, and end the process."""
    try:
        _main()
    except KeyboardInterrupt as error:  # during the import: a running command reports it itself
        from understudy.cli.ctrl_c import end_by_ctrl_c

        end_by_ctrl_c(error)
    finally:
        # The command has printed everything: a Ctrl-C from here on only ends the process.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _main() -> None:
    try:
        import typer  # noqa: F401  # only whether it is there
    except ImportError as error:
        hint = f"understudy: the command line needs {error.name}: pip install 'understudy[cli]'"
        print(hint, file=sys.stderr)  # noqa: T201  # there is nothing else to print with
        raise SystemExit(2) from None
    from understudy.cli.app import app

    app(prog_name="understudy")
