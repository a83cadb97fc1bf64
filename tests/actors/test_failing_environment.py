"""What the application gives a runtime raises again and again: no agent restarts without end (J10).

Each function is called by the runtime around the beginning of a run. It works for the first run,
and raises from then on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

import pytest

from tests.support.agents import completed
from understudy import (
    Agent,
    Failed,
    Runtime,
    ScriptedModel,
    Status,
    tool,
)
from understudy.middleware import Middleware

MOST = 50
"""Calls of a function that fails; a loop makes hundreds a second."""


class Failing:
    """Functions of an application, one of which fails once `name` is set."""

    def __init__(self) -> None:
        self.name = ""
        self.calls = 0

    def check(self, name: str) -> None:
        if name == self.name:
            self.calls += 1
            raise RuntimeError(f"{name} is broken")

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.check(name)
            return function(*args)

        return call


class Clock:
    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    def now(self) -> datetime:
        self._failing.check("now")
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        self._failing.check("monotonic")
        return time.monotonic()


class Codec:
    name = "tenant"

    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    def capture(self) -> str | None:
        self._failing.check("capture")
        return "acme"

    @contextmanager
    def apply(self, value: object) -> Iterator[None]:
        self._failing.check("apply")
        yield


class Hooks(Middleware[Any]):
    def __init__(self, failing: Failing) -> None:
        self._failing = failing

    async def on_run_start(self, run: Any) -> None:
        self._failing.check("on_run_start")

    async def before_model(self, run: Any, request: Any) -> None:
        self._failing.check("before_model")

    async def on_passivated(self, actor: Any, reason: str) -> None:
        self._failing.check("on_passivated")

    async def on_completed(self, actor: Any, outcome: Any) -> None:
        self._failing.check("on_completed")


@tool
def look() -> str:
    """Look."""
    return "seen"


NAMES = [
    "now",
    "monotonic",
    "new_id",
    "deps_for",
    "capture",
    "apply",
    "on_run_start",
    "before_model",
    "on_completed",
    "on_passivated",
    "pause_when",
    "instructions",
    "model",
    "pricing",
]


def agent(failing: Failing) -> Agent:
    ids = iter(range(100))

    def answer(_: object) -> str:
        failing.check("model")
        return f"Hello {next(ids)}."

    return Agent(
        "desk",
        ScriptedModel(answer),
        instructions=failing.wrap("instructions", lambda _: "Be brief."),
        tools=[look],
        middleware=[Hooks(failing)],
        pause_when=failing.wrap("pause_when", lambda: False),
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_function_of_the_application_that_fails_makes_no_loop(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    failing = Failing()
    ids = iter(range(10_000))
    options: Mapping[str, Any] = {
        "clock": Clock(failing),
        "new_id": failing.wrap("new_id", lambda: f"id{next(ids)}"),
        "deps_for": failing.wrap("deps_for", lambda _: "deps"),
        "context": [Codec(failing)],
        "pricing": failing.wrap("pricing", lambda _: None),
    }
    with Runtime([agent(failing)], **options) as runtime:
        ref = runtime.spawn("desk", "d1")
        completed(ref.run("Hello.").get(timeout=60))
        failing.name = name
        try:
            ref.run("Again.").get(timeout=60)
        except TimeoutError:
            raise
        except Exception as error:  # a call may be refused, as long as it is answered
            assert name in str(error) or "broken" in str(error.__cause__)  # noqa: PT017
        assert failing.calls <= MOST
        failing.name = ""


def test_a_run_that_crashes_before_its_first_record_is_quarantined(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    failing = Failing()
    with Runtime([agent(failing)], clock=Clock(failing)) as runtime:
        ref = runtime.spawn("desk", "d1")
        completed(ref.run("Hello.").get(timeout=60))
        failing.name = "monotonic"
        outcome = ref.run("Again.").get(timeout=60)
        assert isinstance(outcome, Failed)
        assert "monotonic is broken" in str(outcome.error)
        assert ref.status() is Status.FAILED
        assert failing.calls == 3
        failing.name = ""
        assert completed(ref.retry().get(timeout=60)).text == "Hello 1."
