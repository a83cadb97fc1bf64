"""Which changes of the code do the tests see? `python -m tests.support.mutation`, `make mutate`.

A sample of all mutants, chosen by a seed. Each is made in a copy of the tree, and run against the
tests that are most likely to see it, then against all others that are fast.

Why not a library: what is broken here is mostly that a line is left out (a wait, a lock, a check),
and no well-kept library leaves out statements. mutmut puts a trampoline before each function, which
changes what is async and what a step is called; Cosmic Ray has one command for all modules and no
sample.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pydantic_ai  # noqa: F401  # once, and not in each process of tests
import pytest

from tests.support.mutation.modules import MODULES
from tests.support.mutation.mutants import Mutant, mutants_of

__all__ = ["main"]

ROOT = Path(__file__).parents[3]
NOT_COPIED = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis")
TEST_SECONDS = 60
"""For one test: a mutant that hangs is seen."""
RUN_SECONDS = 600
OPTIONS = (
    *("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header"),
    *("-m", "not slow and not postgres", "--timeout", str(TEST_SECONDS)),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)


class Tree:
    """A copy of the tree, in which one mutant at a time is made."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(*NOT_COPIED))
        self._log = folder / "log"
        self._made = 0

    def verdict(self, mutant: Mutant, *, quick: bool) -> str:
        """By what the mutant was killed; empty if it survived."""
        path = self.root / mutant.path
        original, times = path.read_text(encoding="utf-8"), path.stat()
        path.write_text(mutant.text, encoding="utf-8")
        self._made += 1  # a time of its own: else the bytecode of another text may be taken for its
        os.utime(path, (self._made, self._made))
        try:
            first = MODULES[str(mutant.path)]
            others = [f"--ignore={test}" for test in first]
            return self.failure(first) or ("" if quick else self.failure(["tests", *others]))
        finally:
            path.write_text(original, encoding="utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def failure(self, arguments: Sequence[str]) -> str:
        """What is wrong, of these tests; empty if they pass."""
        pid = os.fork()
        if pid == 0:
            self._run_tests(arguments)
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return self._meaning(os.waitstatus_to_exitcode(status))
            time.sleep(0.02)
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return "it hangs"

    def _run_tests(self, arguments: Sequence[str]) -> None:
        """In the child: run them on the tree, and end."""
        code = 70
        try:
            os.setsid()
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(self.root)
            os.environ["PYTHONPATH"] = sys.path[0] = str(self.root)
            for name in [each for each in sys.modules if each.split(".")[0] == "tests"]:
                del sys.modules[name]
            code = int(pytest.main([*OPTIONS, *arguments]))
        finally:
            os._exit(code)

    def _meaning(self, code: int) -> str:
        """What the exit code of pytest means; 2 and 3 are those of a module that fails to load."""
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return ""
        log = self._log.read_text(encoding="utf-8", errors="replace")
        if code == pytest.ExitCode.USAGE_ERROR and "ImportError while loading conftest" not in log:
            raise RuntimeError(f"pytest does not run:\n{log}")
        failed = [line for line in log.splitlines() if line.startswith(("FAILED ", "ERROR tests"))]
        return failed[0].split(" - ")[0] if failed else f"it ends the tests, with code {code}"


def sample(seed: int, count: int, only: Sequence[str]) -> list[Mutant]:
    """So many mutants of the modules whose path has one of the texts; the same for one seed."""
    paths = [Path(path) for path in MODULES if any(text in path for text in only)]
    mutants = [mutant for path in paths for mutant in mutants_of(path, ROOT)]
    print(f"{len(mutants):,} mutants of {len(paths)} modules; seed {seed}")
    return random.Random(seed).sample(mutants, min(count, len(mutants)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the modules' paths")
    parser.add_argument("--quick", action="store_true", help="the most likely tests alone")
    given = parser.parse_args()
    sys.dont_write_bytecode = False
    chosen = sample(given.seed, given.count, given.only)
    killed = 0
    with tempfile.TemporaryDirectory(prefix="understudy-mutation-") as folder:
        tree = Tree(Path(folder))
        tests = sorted({test for mutant in chosen for test in MODULES[str(mutant.path)]})
        if wrong := tree.failure(tests):
            sys.exit(f"The tests fail without any change: {wrong}")
        for number, mutant in enumerate(chosen, 1):
            begun = time.monotonic()
            verdict = tree.verdict(mutant, quick=given.quick)
            killed += bool(verdict)
            seconds = time.monotonic() - begun
            shown = f"killed by {verdict}" if verdict else "SURVIVED"
            print(f"{number}/{len(chosen)} {mutant}\n    {shown} ({seconds:.0f} s)", flush=True)
    print(f"{killed} of {len(chosen)} mutants were seen: {killed / len(chosen):.0%}")


if __name__ == "__main__":
    main()
