"""`Adapter`: one framework under measurement. The workload is the same for all of them.

An agent has one async tool `add(a, b)`. A fake model in the same process answers N-1 times with one
tool call and the Nth time with text. A *step* is one model call and the tool call that it asks for,
so a run of N steps is N model calls and N-1 tool calls, and the time of a step is that of the run
divided by N. No network, no real model: what is left is the framework's own cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

__all__ = ["FINAL", "PROMPT", "Adapter", "next_call"]

PROMPT = "add"
FINAL = "done"


def next_call(steps: int, messages: int) -> int | None:
    """The number of the tool call to ask for after so many messages; None for the final text.

    Stateless, so that runs may overlap: a conversation is one user message, then two a step.
    """
    step = (messages + 1) // 2
    return None if step >= steps else step


class Adapter(ABC):
    """Builds agents of one framework and runs them.

    The constructor imports the framework (an `ImportError` means that it is not installed). It
    imports nothing of another framework: what one drags in must not slow down its neighbour.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    """Distributions whose versions are told."""
    import_statement: ClassVar[str] = ""
    """What a minimal program imports."""

    def __init__(self) -> None:
        self.tool_calls = 0
        """Counted by the tool itself; checked after each run."""
        self._agents: dict[int, Any] = {}

    @abstractmethod
    def build(self, steps: int) -> Any:
        """A new agent whose fake model ends the run after `steps` model calls."""

    @abstractmethod
    async def run(self, steps: int) -> None:
        """One new conversation of so many steps, nothing stored."""

    @abstractmethod
    def answer(self) -> None:
        """What the fake model does for one call, alone: the part of a step that is not theirs."""

    def agent(self, steps: int) -> Any:
        """The agent for so many steps, built once."""
        if steps not in self._agents:
            self._agents[steps] = self.build(steps)
        return self._agents[steps]

    def check(self, text: object) -> None:
        """Refuse a run that did not end with the final text."""
        if text != FINAL:
            raise AssertionError(f"{self.name} ended with {text!r}")

    @classmethod
    def versions(cls) -> dict[str, str]:
        """The versions of what is installed of `packages`."""
        found = {}
        for package in cls.packages:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found
