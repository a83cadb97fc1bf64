"""Runs the unmarked tests with each other Python, and once with the lowest versions of packages.

`python -m tests.support.pythons` makes an environment for each in a temporary folder, with the
package and its tools. The Pythons are those of `installs`, without the one that runs this; the
lowest versions are tried with that one. `python -m tests.support.pythons lowest` tries these alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from tests.support.installs import ROOT, TOOLS, VERSIONS, pythons

LOWEST = "lowest"
NONE = Version("0")
MARKS = "not slow and not postgres and not faults and not ray and not browser and not node"
"""What needs no server and no program besides Python, and says nothing of speed."""


def main() -> None:
    """Run the tests with each; the exit code is 1 if any fails."""
    here = "%d.%d" % sys.version_info[:2]
    wanted = sys.argv[1:]
    others = [each for each in pythons() if each.version != here]
    tries = [(each.version, each.path, ()) for each in others if not wanted]
    for absent in sorted(set(VERSIONS) - {here} - {each.version for each in others}):
        if not wanted:
            print(f"NOT FOUND, so not tested: Python {absent}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pythons-") as folder:
        if wanted in ([], [LOWEST]):
            constraints = Path(folder) / "lowest.txt"
            constraints.write_text("\n".join(lowest_versions()) + "\n", encoding="utf-8")
            tries.append((LOWEST, sys.executable, ("--constraint", str(constraints))))
        failed = [name for name, path, options in tries if not _passes(folder, name, path, options)]
    if failed:
        print(f"FAILED with: {', '.join(failed)}", flush=True)
    raise SystemExit(1 if failed else 0)


def lowest_versions() -> Iterator[str]:
    """A line for each package that the library names, with the lowest version that it allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    used = [line for extra, lines in extras.items() if extra not in TOOLS for line in lines]
    lowest: dict[str, Version] = {}
    for line in (*project["dependencies"], *used):
        needed = Requirement(line)
        for each in needed.specifier:
            if each.operator == ">=":  # of two parts that need it, the higher one counts
                lowest[needed.name] = max(Version(each.version), lowest.get(needed.name, NONE))
    yield from (f"{name}=={version}" for name, version in lowest.items())


def _passes(folder: str, name: str, python: str, options: tuple[str, ...]) -> bool:
    began, place = time.monotonic(), Path(folder) / name
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    command = str(place / "bin" / "python")
    pip = [command, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *options, "--editable", f"{ROOT}[dev]"], check=True)
    made = time.monotonic()
    tests = [command, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([*tests, "-m", MARKS], cwd=ROOT, env=environment, check=False)
    ended = time.monotonic()
    said = "ok" if done.returncode == 0 else "FAILED"
    print(f"{name}: {said} (made in {made - began:.0f} s, run in {ended - made:.0f} s)", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
