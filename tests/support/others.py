"""An environment with other libraries, for the tests marked `others`.

`python -m tests.support.others FOLDER` makes it. It sees all packages of the environment that makes
it, and has the libraries beside them: what they need, in other versions too, stays in there.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.pythons import project


def main() -> None:
    """Make it, in a folder that is empty or of an earlier one."""
    folder = Path(sys.argv[1])
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", folder], check=True)
    python = folder / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    beside = Path(own.stdout.strip()) / "beside.pth"
    beside.write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    wanted = [*project()["optional-dependencies"]["others"], *project()["dependencies"]]
    # This process's pip, as `installs` does: it is set up for the indexes of this machine.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", *wanted], check=True, timeout=1200)


if __name__ == "__main__":
    main()
