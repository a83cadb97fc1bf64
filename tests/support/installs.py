"""Installs the built package as users do: in empty environments, with each Python and each extra.

`python -m tests.support.installs` builds the wheel and the sdist, looks at what is in them, and
runs code with them that needs nothing of the checkout. Without an extra, what it is for must say
how to install it. The Pythons are those of `PYTHONS`, else 3.11 to 3.13 where they are found. With
the first one each extra has an environment of its own, with the others all extras share one. What
has no extra is installed with pip, the rest with uv, which copies no package twice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
Tool = Literal["pip", "uv"]

PLAIN = """
from understudy import Agent, Runtime, ScriptedModel, call, tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

agent = Agent("sums", ScriptedModel([call("add", {"a": 1, "b": 2}), "It is 3."] * 2), tools=[add])
assert agent.execute_sync("1 + 2?").text == "It is 3."
with Runtime([agent], store="sqlite:///agents.db") as runtime:
    assert runtime.spawn("sums", "s1").run("1 + 2?").get(timeout=60).text == "It is 3."
with Runtime([agent], store="sqlite:///agents.db") as runtime:
    assert runtime.get("s1").state().get(timeout=60).messages

import understudy.testing
for name in set(understudy.testing.__all__) - {"AgentMachine"}:  # that needs Hypothesis
    getattr(understudy.testing, name)
"""
"""What works without any extra."""

_MODEL = """
import os
os.environ["{key}"] = "none"
from understudy.models.model_names import resolve_model
resolve_model("{name}")
"""

EXTRAS = {
    "openai": _MODEL.format(key="OPENAI_API_KEY", name="openai:gpt-5"),
    "anthropic": _MODEL.format(key="ANTHROPIC_API_KEY", name="anthropic:claude-sonnet-4-5"),
    "google": _MODEL.format(key="GOOGLE_API_KEY", name="google:gemini-2.5-pro"),
    "groq": _MODEL.format(key="GROQ_API_KEY", name="groq:llama-3.3-70b-versatile"),
    "mistral": _MODEL.format(key="MISTRAL_API_KEY", name="mistral:mistral-large-latest"),
    "postgres": """
from understudy import Runtime
from understudy.errors import StoreError
try:
    with Runtime([], store="postgresql://127.0.0.1:9/none"):
        raise SystemExit("no server was needed")
except StoreError:
    pass
""",
    "ray": """
from understudy.cluster import Cluster
from understudy.errors import UsageError
try:
    with Cluster("none:make", 1, engine="ray", store="postgresql://127.0.0.1:9/none"):
        raise SystemExit("there is no such factory")
except UsageError as error:  # which a host has said
    if "none:make" not in str(error):
        raise
""",
    "skills": """
import tempfile
from pathlib import Path
from understudy.middleware import Skills
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "pdf").mkdir()
    (Path(folder) / "pdf" / "SKILL.md").write_text("---\\nname: pdf\\ndescription: x\\n---")
    assert list(Skills(folder).not_loaded) == ["pdf"]
""",
    "zstd": """
import tempfile
from pathlib import Path
from understudy import Agent, Runtime, ScriptedModel
from understudy.actors import read_archive
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "archive.jsonl.zst"
    with Runtime([Agent("desk", ScriptedModel(["hello"]))]) as runtime:
        runtime.spawn("desk", id="a").run("go").get(timeout=60)
        runtime.retire(older_than=0, to=path).get(timeout=60)
    print(*(data["agent_id"] for data in read_archive(path)))
""",
    "schedules": """
from understudy import Agent, Runtime, ScriptedModel
with Runtime([Agent("a", ScriptedModel(["hello"]))]) as runtime:
    runtime.spawn("a", "a1")
    runtime.schedule("a1", "report", cron="0 9 * * mon-fri", input="Go.").get(timeout=60)
""",
    "cli": """
import sys
from understudy.cli import main
sys.argv = ["understudy", "--version"]
main()
""",
    "web": """
from understudy import Runtime
from understudy.web import loopback_only, ui
with Runtime([]) as runtime:
    assert callable(ui(runtime, auth=loopback_only))
from understudy.web.markdown import as_markdown
assert "<strong>" in as_markdown("**bold**")
""",
    "oidc": """
from understudy.login.oidc import oidc
assert callable(oidc("https://idp.example", audience="desk"))
""",
    "ag-ui": "from understudy.ag_ui import ag_ui, vercel",
    "mcp": "from understudy.mcp import mcp_tools",
    "telemetry": "from understudy.telemetry import Telemetry\nTelemetry()",
    "demo": "import rich",
}
"""What needs the extra: it must run with it, and say how to install it without it."""
SILENT = frozenset({"demo", "telemetry"})
"""Extras for the examples: nothing in the package needs them."""
NOT_INSTALLED = frozenset({"local"})
"""For the demos and a few tests alone: `make local`."""
TOOLS = frozenset({"bench", "browser", "dev", "docs", "others", "release", "supply"})
"""For those who work on the library, not for those who use it."""


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter, and the version that it is."""

    version: str
    path: str


@dataclass(frozen=True, slots=True)
class Environment:
    """An empty environment with the package in it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def install(self, *wanted: str, tool: Tool = "uv") -> None:
        """Install these with a tool of this process; the environment needs none of its own."""
        pip = ["pip", "--python", str(self.python), "install", "--disable-pip-version-check"]
        uv = ["uv", "pip", "install", "--python", str(self.python)]
        _output(sys.executable, "-m", *(pip if tool == "pip" else uv), "--quiet", *wanted)

    def run(self, code: str) -> subprocess.CompletedProcess[str]:
        """Run code in an empty folder."""
        place = Path(tempfile.mkdtemp(dir=self.folder))
        return subprocess.run(
            [str(self.python), "-I", "-c", code],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def main() -> None:
    """Build and check everything; the exit code is 1 if anything is wrong."""
    found = list(pythons())
    absent = set(VERSIONS) - {python.version for python in found}
    print(f"Python {', '.join(python.version for python in found)}", flush=True)
    if absent and "PYTHONS" not in os.environ:
        print(f"NOT FOUND, so not checked: Python {', '.join(sorted(absent))}", flush=True)
    with tempfile.TemporaryDirectory(prefix="installs-") as folder:
        wheel, sdist = _build(Path(folder) / "dist")
        wrong = [*_contents(wheel, sdist)]
        with ThreadPoolExecutor(max_workers=2) as pool:
            tasks = [pool.submit(_check, Path(folder), found[0], sdist, ())]
            for python in found:
                apart = [(extra,) for extra in EXTRAS] if python == found[0] else [(*EXTRAS,)]
                for extras in [(), *apart]:
                    tasks.append(pool.submit(_check, Path(folder), python, wheel, extras))
            wrong += [line for task in tasks for line in task.result()]
    for line in wrong:
        print(f"WRONG: {line}", flush=True)
    raise SystemExit(1 if wrong else 0)


def pythons() -> Iterator[Python]:
    """The Pythons to try, in the order of their versions."""
    named = os.environ.get("PYTHONS", "").split()
    for path in named or [found for version in VERSIONS if (found := _found(version))]:
        said = _output(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        yield Python(said.strip(), path)


def _found(version: str) -> str | None:
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [
        shutil.which(f"python{version}"),
        *sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python"))),
    ]
    for path in filter(None, candidates):
        # A shim of pyenv is there for versions that are not chosen, too.
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None


def _build(folder: Path) -> tuple[Path, Path]:
    """The wheel, made from the sdist as an index's users get it, and the sdist."""
    _output(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    _output(sys.executable, "-m", "twine", "check", "--strict", *map(str, folder.iterdir()))
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def _contents(wheel: Path, sdist: Path) -> Iterator[str]:
    """What is not as it should be in the two."""
    source = {
        str(path.relative_to(ROOT))
        for path in [*(ROOT / "understudy").rglob("*"), ROOT / "pytest_understudy.py"]
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    yield from (f"{name} is not in the wheel" for name in sorted(source - packed))
    yield from (f"{name} is in the wheel" for name in sorted(packed - source))
    with tarfile.open(sdist) as archive:
        kept = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "pyproject.toml", *source}
    yield from (f"{name} is not in the sdist" for name in sorted(wanted - kept))


def _check(folder: Path, python: Python, package: Path, extras: tuple[str, ...]) -> list[str]:
    """What is wrong with this package in an environment with these extras."""
    began = time.monotonic()
    what = f"{python.version} {package.suffix.removeprefix('.')} {','.join(extras)}".rstrip()
    environment = Environment(folder / what.replace(" ", "-")[:40])
    _output(python.path, "-m", "venv", "--without-pip", str(environment.folder))
    try:
        wanted = f"{package}[{','.join(extras)}]" if extras else str(package)
        environment.install(wanted, tool="uv" if extras else "pip")
        wrong = [f"{what}: {line}" for line in _runs(environment, extras)]
    except subprocess.CalledProcessError as error:
        wrong = [f"{what} cannot be installed: {error.stderr[-2000:]}"]
    finally:
        shutil.rmtree(environment.folder)
    print(f"{what}: {'WRONG' if wrong else 'ok'} ({time.monotonic() - began:.0f} s)", flush=True)
    return wrong


def _runs(environment: Environment, extras: tuple[str, ...]) -> Iterator[str]:
    for code in [EXTRAS[extra] for extra in extras] or [PLAIN]:
        done = environment.run(code)
        if done.returncode:
            yield f"{done.stdout[-1000:]}{done.stderr[-2000:]}"
    if not extras:
        for absent in EXTRAS.keys() - SILENT:
            done = environment.run(EXTRAS[absent])
            if not done.returncode or f"understudy[{absent}]" not in done.stderr:
                yield f"without {absent} it does not say how to install it: {done.stderr}"


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=1200).stdout


if __name__ == "__main__":
    main()
