"""`understudy` on the command line. Needs the extra `cli`: `pip install 'understudy[cli]'`."""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments of the process say, and end the process."""
    try:
        _main()
    except KeyboardInterrupt as error:  # while it imports: a command that runs says so by itself
        from understudy.cli.ctrl_c import end_by_ctrl_c

        end_by_ctrl_c(error)
    finally:
        # The command has said all that it has to say: a Ctrl-C from here on ends the process only.
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
