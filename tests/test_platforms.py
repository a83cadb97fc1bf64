"""What exists on POSIX systems alone is used only where it exists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.platforms import PLATFORMS, names_in, uses_of_what_is_missing

ROOT = Path(__file__).parents[1]
PROGRAMS = [
    path
    for folder in ("understudy", "examples", "benchmarks", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_nothing_is_used_where_the_platform_lacks_it(platform: str) -> None:
    assert len(PROGRAMS) > 150
    found = {
        str(path.relative_to(ROOT)): uses
        for path in PROGRAMS
        if (uses := uses_of_what_is_missing(path.read_text(encoding="utf-8"), platform))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("module", "name", "platforms"),
    [
        ("os", "fork", {"linux", "darwin"}),
        ("os", "getpid", {"linux", "darwin", "win32"}),
        ("os", "register_at_fork", {"linux", "darwin"}),
        ("signal", "SIGKILL", {"linux", "darwin"}),
        ("signal", "SIGINT", {"linux", "darwin", "win32"}),
        ("socket", "AF_UNIX", {"linux", "darwin"}),
        ("time", "CLOCK_BOOTTIME", {"linux"}),
        ("fcntl", "flock", {"linux", "darwin"}),
        ("resource", "getrlimit", {"linux", "darwin"}),
    ],
)
def test_it_is_known_what_exists_where(module: str, name: str, platforms: set[str]) -> None:
    """The check above is worth what these say."""
    assert {platform for platform in PLATFORMS if name in names_in(module, platform)} == platforms


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.fork()",
        "import os as o\ndef f():\n    return [o.fork]",
        "from os import fork",
        "import fcntl",
        "from fcntl import flock",
        "import signal\nclass A:\n    wanted = signal.SIGKILL",
        "import os, sys\nif sys.platform == 'win32' or os.name == 'x':\n    os.fork()",
        "import os, sys\nif sys.platform != 'win32':\n    pass\nelse:\n    os.fork()",
        "import time\nclock = getattr(time, 'CLOCK_BOOTTIME', time.CLOCK_MONOTONIC)",
        "import os\nif hasattr(os, 'getpid'):\n    os.fork()",
        "import sys, os\nif sys.platform == 'linux':\n    raise OSError\nos.fork()",
    ],
)
def test_what_windows_lacks_is_found(source: str) -> None:
    assert uses_of_what_is_missing(source, "win32") != []
    assert uses_of_what_is_missing(source, "linux") == []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nif hasattr(os, 'fork'):\n    os.fork()",
        "import os, sys\nif sys.platform != 'win32':\n    os.fork()",
        "import os, sys\npid = os.fork() if sys.platform != 'win32' else os.getpid()",
        "import sys\nif sys.platform == 'win32':\n    raise ImportError\nimport fcntl",
        "import os, sys\ndef f():\n    if sys.platform == 'win32':\n        return\n    os.fork()",
        "import signal\nkill = getattr(signal, 'SIGKILL', signal.SIGTERM)",
        "import os, sys\nif sys.platform != 'win32' and os.getpid():\n    os.fork()",
    ],
)
def test_what_is_guarded_is_not_found(source: str) -> None:
    assert uses_of_what_is_missing(source, "win32") == []


LIKE_WINDOWS = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import asyncio, importlib, pykka, sqlite3, tenacity, uuid
import pydantic_ai.models, pydantic_ai.messages, pydantic_ai.tools, pydantic_ai.usage
from tests.support.platforms import names_in

for module in ("os", "signal", "time"):
    there = importlib.import_module(module)
    for name in names_in(module, "linux") - names_in(module, "win32"):
        if hasattr(there, name):
            delattr(there, name)
for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
sys.platform = "win32"

from understudy import Agent, Runtime, ScriptedModel, UsageError

agent = Agent("a", ScriptedModel(lambda request: "Done."))
print(agent.execute_sync("go").text)
with Runtime([agent]) as runtime:
    print(runtime.spawn("a").run("go").get(timeout=60).text)
import understudy.journal.lease
try:
    Runtime([agent], store="sqlite:///agents.db")
except UsageError as error:
    print(error)
"""


@pytest.mark.slow
def test_where_nothing_of_posix_exists_it_is_imported_and_runs_agents(tmp_path: Path) -> None:
    """A stand-in for Windows: the names that it lacks are gone. SQLite needs one of them."""
    done = subprocess.run(
        [sys.executable, "-c", LIKE_WINDOWS],
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second, refused = done.stdout.splitlines()
    assert (first, second) == ("Done.", "Done.")
    assert "flock" in refused
    assert "'memory:'" in refused
    assert "postgresql" in refused
