"""The pytest plugin of understudy: options and fixtures for tests of agents.

It imports nothing of the package until a test uses it. `-p no:understudy` turns it off.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

# What a contract asserts is shown as what a test asserts.
pytest.register_assert_rewrite("understudy.testing.contracts")

_OPTIONS = {
    "--understudy-crash-at": "stop at this one point of the stories alone, as a failure names it",
    "--understudy-postgresql": "the URL of a server for stories with store='postgresql'",
    "--understudy-seed": "draw what is random from this number, as a failure names it",
    "--understudy-record": "none, once, new or all: which replies of models cassettes record",
}
"""By option, its help. Tests that run without pytest read the same from the environment:
`UNDERSTUDY_CRASH_AT` for `--understudy-crash-at`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("understudy", "agents of understudy")
    for option, help in _OPTIONS.items():
        group.addoption(option, help=help, default=None)
    help = "refuse requests to real models, in each test that is not marked real_models"
    parser.addini("understudy_block_models", help=help, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Hand the options that are given to the processes of the tests."""
    for option in _OPTIONS:
        given = config.getoption(option)
        if given is not None:
            os.environ[option.removeprefix("--").replace("-", "_").upper()] = given
    config.addinivalue_line("markers", "real_models: may ask real models, whatever blocks them")
    if config.getini("understudy_block_models"):
        config.pluginmanager.register(_InEachTest())


@pytest.fixture
def block_models(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Refuse requests to real models in this test, unless it is marked `real_models`."""
    if request.node.get_closest_marker("real_models") is not None:
        yield None
        return
    from understudy.testing import block_models

    with block_models() as block:
        yield block


class _InEachTest:
    @pytest.fixture(autouse=True)
    def _blocked(self, block_models: Any) -> None: ...


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Any:
    """The cassette of this test: it plays, and records, the replies of models."""
    from understudy.testing.cassettes import cassette_of

    request.node.understudy_cassette = cassette_of(request)
    return request.node.understudy_cassette


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Fail a test of whose requests one is not in its cassette, and write what was recorded."""
    with getattr(item, "understudy_cassette", contextlib.nullcontext()):
        return (yield)
