"""The options of `Agent`'s methods: one list, whichever method takes them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import pytest

from understudy import Agent
from understudy.agent.agent import ExecuteOptions
from understudy.agent.runner import EnvironmentOptions


@pytest.mark.parametrize(
    ("method", "options"),
    [(Agent.execute, ExecuteOptions), (Agent.resume, EnvironmentOptions)],
    ids=["execute", "resume"],
)
def test_the_options_of_the_sync_and_streaming_forms_are_those_of_the_async_one(
    method: Callable[..., Any], options: type
) -> None:
    hints = typing.get_type_hints(method)
    named = {
        name: hints[name]
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert named == typing.get_type_hints(options)
