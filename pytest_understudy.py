"""The pytest plugin of understudy: options and fixtures for tests of agents.

It imports nothing of the package until a test uses it. `-p no:understudy` turns it off.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest

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


def pytest_configure(config: pytest.Config) -> None:
    """Hand the options that are given to the processes of the tests."""
    for option in _OPTIONS:
        given = config.getoption(option)
        if given is not None:
            os.environ[option.removeprefix("--").replace("-", "_").upper()] = given


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
