"""Runs the unmarked tests with each other Python, or with the lowest versions of packages.

`python -m tests.support.pythons` makes an environment for each Python in a temporary folder, with
the package and its tools. The Pythons are those of `installs`, without the one that runs this.
`python -m tests.support.pythons lowest` tries, with that one, the lowest versions that
`pyproject.toml` allows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.installs import ROOT, VERSIONS, pythons

LOWEST = "lowest"
HERE = ".".join(map(str, sys.version_info[:2]))
"""The version of the Python that runs this."""
MARKS = "not slow and not postgres and not faults and not ray and not browser and not node"
"""What needs no server and no program besides Python, and says nothing of speed."""


def main() -> None:
    """Run the tests with each; the exit code is 1 if any fails."""
    with tempfile.TemporaryDirectory(prefix="pythons-") as folder:
        if sys.argv[1:] == [LOWEST]:
            constraints = Path(folder) / "lowest.txt"
            lowest_versions(constraints)
            given = ("--constraint", str(constraints))
            failed = [] if _passes(folder, LOWEST, sys.executable, given) else [LOWEST]
        else:
            others = [each for each in pythons() if each.version != HERE]
            for absent in sorted(set(VERSIONS) - {HERE} - {each.version for each in others}):
                print(f"NOT FOUND, so not tested: Python {absent}", flush=True)
            failed = [p.version for p in others if not _passes(folder, p.version, p.path, ())]
    if failed:
        print(f"FAILED with: {', '.join(failed)}", flush=True)
    raise SystemExit(1 if failed else 0)


def lowest_versions(file: Path) -> None:
    """Write the lowest versions that `pyproject.toml` allows of all packages that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = map(Requirement, project["optional-dependencies"]["dev"])
    own = next(each for each in needed if each.name == project["name"])
    extras = [f"--extra={extra}" for extra in sorted(own.extras)]
    command = ["pip", "compile", "--quiet", "--resolution=lowest-direct", *extras]
    given = [f"--python-version={HERE}", f"--output-file={file}", str(ROOT / "pyproject.toml")]
    subprocess.run([sys.executable, "-m", "uv", *command, *given], check=True, timeout=900)


def _passes(folder: str, name: str, python: str, options: tuple[str, ...]) -> bool:
    began, place = time.monotonic(), Path(folder) / name
    subprocess.run([python, "-m", "venv", "--without-pip", str(place)], check=True)
    command = str(place / "bin" / "python")
    # This process's pip, as `installs` does: it is set up for the indexes of this machine.
    pip = [sys.executable, "-m", "pip", "--python", command, "install"]
    wanted = ["--quiet", "--disable-pip-version-check", *options, "--editable", f"{ROOT}[dev]"]
    subprocess.run([*pip, *wanted], check=True, timeout=1200)
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
