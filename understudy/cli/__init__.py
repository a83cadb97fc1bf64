"""`understudy` on the command line. Needs the extra `cli`: `pip install 'understudy[cli]'`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the arguments of the process say, and end the process."""
    try:
        _main()
    except KeyboardInterrupt:  # while it imports: a command that runs ends by it itself
        raise SystemExit(130) from None


def _main() -> None:
    try:
        import httpx2  # noqa: F401  # only whether they are there
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        hint = f"understudy: the command line needs {error.name}: pip install 'understudy[cli]'"
        print(hint, file=sys.stderr)  # noqa: T201  # there is nothing else to print with
        raise SystemExit(2) from None
    from understudy.cli.app import app

    app(prog_name="understudy")
