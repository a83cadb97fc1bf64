"""What the command line finds in each of its tests: a folder of its own, a server, a database."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import typer.testing

from tests.support.certificates import one_certificate
from tests.support.command_line import Desk, agents, found_by_commands
from tests.support.postgres import new_database
from understudy import Runtime

__all__ = ["one_certificate"]


@pytest.fixture(autouse=True, scope="package")
def made_once() -> Iterator[None]:
    """The commands are made of their functions once: that takes longer than most of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of a server that runs beside the tests is seen."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    for name in ("UNDERSTUDY_STORE", "UNDERSTUDY_URL", "UNDERSTUDY_TOKEN", "UNDERSTUDY_APP"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A runtime with its pages, and the file by which commands find them."""
    store = f"sqlite:///{tmp_path / 'desk.db'}"
    paid: list[tuple[str, int]] = []
    with (
        Runtime(agents(paid), store=store, feed=True) as runtime,
        found_by_commands(runtime, store) as url,
    ):
        yield Desk(store, url, runtime, paid)


@pytest.fixture
def postgres_store(postgres_url: str) -> Iterator[str]:
    """The URL of a database of its own: a store that is named by a URL has a fixed schema."""
    with new_database(postgres_url) as url:
        yield url
