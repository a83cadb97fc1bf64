"""`Desk`: the support agent on one framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version

from benchmarks.service.model import FakeModel

__all__ = ["BARE", "DESKS", "OURS", "Desk", "Listed", "load"]

OURS = "understudy"
BARE = "bare loop"


@dataclass(frozen=True, slots=True)
class Listed:
    """Where a desk is, and what must be installed for it. No framework is imported for that."""

    module: str
    packages: tuple[str, ...] = ()

    def versions(self) -> dict[str, str]:
        """The versions of its packages.

        Raises:
            PackageNotFoundError: if one is not installed.

        """
        return {package: version(package) for package in self.packages}


DESKS = {
    OURS: Listed("ours", ("pydantic-ai-slim", "pydantic")),
    "langgraph": Listed(
        "langgraph_desk",
        (
            *("langgraph", "langchain-core"),
            *("langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres"),
        ),
    ),
    "pydantic-ai + dbos": Listed("dbos_desk", ("pydantic-ai-slim", "dbos", "sqlalchemy")),
    BARE: Listed("bare"),
}
"""By name. The web server of an app imports the module of its own desk alone."""


class Desk(ABC):
    """The agent, written as the documentation of its framework says."""

    def __init__(self, model: FakeModel) -> None:
        self.model = model

    @abstractmethod
    def opened(self, store: str) -> AbstractAsyncContextManager[None]:
        """Open the store of this URL for as long as the app runs."""

    @abstractmethod
    async def ask(self, id: str) -> str:
        """Begin a conversation, and return the id of the request for an approval."""

    @abstractmethod
    async def approve(self, id: str, request: str) -> str:
        """Approve the request, and return the agent's last reply."""


def load(name: str) -> type[Desk]:
    """The desk of this name: the class that its module calls `DESK`."""
    desk: type[Desk] = import_module(f"benchmarks.service.{DESKS[name].module}").DESK
    return desk
