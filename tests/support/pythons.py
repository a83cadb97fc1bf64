"""Runs the unmarked tests with other Pythons, of which one gets the lowest versions of packages.

`python -m tests.support.pythons` makes an environment for each Python in a temporary folder, with
the package and its tools. The Pythons are those of `installs`, without the one that runs this and
the one of the lowest versions. `python -m tests.support.pythons lowest` tries the lowest versions
that `pyproject.toml` allows, with the oldest other Python; with this one where there is no other.
So each Python runs the tests once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from packaging.requirements import Requirement

from tests.support.installs import ROOT, VERSIONS, Environment, Python, pythons

LOWEST = "lowest"
HERE = ".".join(map(str, sys.version_info[:2]))
"""The version of the Python that runs this."""
APART = ("slow", "postgres", "faults", "ray", "others", "browser", "node")
MARKS = " and ".join(f"not {mark}" for mark in APART)
"""What needs no server and no program besides Python, and says nothing of speed."""

OUTDATED = (
    "'click.utils.",  # typer
    "The anyio.abc.BlockingPortal alias is deprecated",  # the client for tests of starlette
    "_pytest.python.CallSpec2 has been renamed",  # the plugin of anyio
    "websockets.",  # uvicorn
)
"""What the newest packages say of what the lowest versions of others use: it still works."""


def main() -> None:
    """Run the tests with each; the exit code is 1 if any fails."""
    others = [each for each in pythons() if each.version != HERE]
    oldest = others[0] if others else Python(HERE, sys.executable)
    with tempfile.TemporaryDirectory(prefix="pythons-") as folder:
        if sys.argv[1:] == [LOWEST]:
            constraints = Path(folder) / "lowest.txt"
            lowest_versions(constraints, oldest.version)
            given = ("--constraint", str(constraints))
            quiet = [f"-Wignore:{message}:DeprecationWarning" for message in OUTDATED]
            name = f"{LOWEST}, {oldest.version}"
            failed = [] if _passes(folder, name, oldest.path, given, quiet) else [name]
        else:
            for absent in sorted(set(VERSIONS) - {HERE} - {each.version for each in others}):
                print(f"NOT FOUND, so not tested: Python {absent}", flush=True)
            rest = others[1:]
            failed = [p.version for p in rest if not _passes(folder, p.version, p.path, ())]
    if failed:
        print(f"FAILED with: {', '.join(failed)}", flush=True)
    raise SystemExit(1 if failed else 0)


def lowest_versions(file: Path, python: str) -> None:
    """Write the floors of `pyproject.toml`, and versions of all other packages that fit them.

    It fails where the packages do not fit together at their floors: one of the floors is too low
    then, and no test could show that it is enough.

    Args:
        file: the constraints, written for pip.
        python: the version of the Python that gets them.

    """
    needed = map(Requirement, project()["optional-dependencies"]["dev"])
    tried = sorted(next(each for each in needed if each.name == project()["name"]).extras)
    lowest = file.with_name("floors.txt")
    lowest.write_text("".join(f"{name}=={min(of)}\n" for name, of in floors(tried).items() if of))
    extras = [f"--extra={extra}" for extra in tried]
    command = ["pip", "compile", "--quiet", f"--constraint={lowest}", *extras]
    given = [f"--python-version={python}", f"--output-file={file}", str(ROOT / "pyproject.toml")]
    subprocess.run([sys.executable, "-m", "uv", *command, *given], check=True, timeout=900)


def floors(extras: Iterable[str]) -> dict[str, set[str]]:
    """By package, the lowest versions that the library and its extras allow, wherever it is named.

    A package that is named for its own extra alone has none there.
    """
    found: dict[str, set[str]] = {}
    optional = project()["optional-dependencies"]
    for line in [
        *project()["dependencies"],
        *(line for extra in extras for line in optional[extra]),
    ]:
        requirement = Requirement(line)
        lowest = {each.version for each in requirement.specifier if each.operator == ">="}
        found.setdefault(requirement.name, set()).update(lowest)
    return found


def project() -> dict[str, Any]:
    """What `pyproject.toml` says of the package."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return cast("dict[str, Any]", tomllib.loads(text)["project"])


def _passes(
    folder: str, name: str, python: str, options: tuple[str, ...], more: Sequence[str] = ()
) -> bool:
    began, place = time.monotonic(), Path(folder) / name.replace(", ", "-")
    subprocess.run([python, "-m", "venv", "--without-pip", str(place)], check=True)
    environment = Environment(place)
    try:
        environment.install(*options, "--editable", f"{ROOT}[dev]")
    except subprocess.CalledProcessError as error:
        print(f"{name} cannot be installed: {error.stderr}", flush=True)
        return False
    command = str(environment.python)
    made = time.monotonic()
    tests = [command, "-m", "pytest", "-n", "3", "--dist", "worksteal", "-p", "no:cacheprovider"]
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([*tests, *more, "-m", MARKS], cwd=ROOT, env=variables, check=False)
    ended = time.monotonic()
    said = "ok" if done.returncode == 0 else "FAILED"
    print(f"{name}: {said} (made in {made - began:.0f} s, run in {ended - made:.0f} s)", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
