"""The pytest plugin of understudy: options and fixtures for tests of agents.

It imports nothing of the package until a test uses it. `-p no:understudy` turns it off.
"""

from __future__ import annotations

import os

import pytest

# What a contract asserts is shown as what a test asserts.
pytest.register_assert_rewrite("understudy.testing.contracts")

_OPTIONS = {
    "--understudy-crash-at": "stop at this one point of the stories alone, as a failure names it",
    "--understudy-postgresql": "the URL of a server for stories with store='postgresql'",
    "--understudy-seed": "draw what is random from this number, as a failure names it",
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
