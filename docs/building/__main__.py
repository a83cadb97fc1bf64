"""Builds the site into `site/`: `python -m docs.building`, as `make docs` does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from docs.building.check import foreign, undescribed
from docs.building.reference import public_names
from docs.building.search import index_of, unfound
from docs.building.stage import ROOT, STAGE, stage

SITE = ROOT / "site"


def main() -> None:
    """Stage, build, and check; each warning is an error."""
    stage()
    shutil.rmtree(SITE, ignore_errors=True)
    zensical = Path(sys.executable).with_name("zensical")
    done = subprocess.run(  # its messages are one screen for each warning, in colours
        [zensical, "build", "--strict", "--clean"],
        cwd=ROOT,
        env={"NO_COLOR": "1", "PATH": str(zensical.parent), "HOME": str(Path.home())},
        stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nThe site is not built: see the warnings above.")
    for page in STAGE.rglob("*.md"):  # `llms.txt` leads to them
        if page.parent.name != "reference":
            shutil.copyfile(page, SITE / page.relative_to(STAGE))
    index = (SITE / "search.json").read_text(encoding="utf-8")
    # What the search reads where a page is opened as a file, which may not fetch another.
    (SITE / "search.js").write_text(f"var __index = {index}", encoding="utf-8")
    missing = unfound(index_of(SITE))
    if found := [*foreign(SITE), *undescribed(SITE, public_names(ROOT)), *missing]:
        sys.exit("\n".join(found))
    count = len(list(SITE.rglob("*.html")))
    print(f"{count} pages in {SITE}: open {SITE / 'index.html'}")


if __name__ == "__main__":
    main()
