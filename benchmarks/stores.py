"""The frameworks under measurement with a SQLite file under them, each as its docs say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

from benchmarks.adapter import PROMPT, Adapter
from benchmarks.ours import Understudy
from benchmarks.rivals import LangChain, PydanticAI

__all__ = ["STORES", "DbosStore", "Durability", "LangChainStore", "OurStore", "Stored"]

Durability = Literal["full", "normal", "off"]


class Stored(Adapter, ABC):
    """A framework that keeps a run in a SQLite file while it goes on."""

    durabilities: ClassVar[tuple[Durability, ...]]
    """Those that it can be told, the one that survives a power cut first."""

    @abstractmethod
    async def open(self, path: str, durability: Durability, lengths: tuple[int, ...]) -> None:
        """Open the file, to be ready for runs of so many steps."""

    @abstractmethod
    async def run_stored(self, steps: int) -> None:
        """One new conversation of so many steps."""

    @abstractmethod
    async def close(self) -> None:
        """Close what was opened."""


class OurStore(Stored, Understudy):
    """`Runtime(store="sqlite:///...")`, each conversation an agent of its own."""

    name = "understudy"
    durabilities = ("full", "normal", "off")

    async def open(self, path: str, durability: Durability, lengths: tuple[int, ...]) -> None:
        from understudy import Runtime

        url = f"sqlite:///{path}"
        agents: Any = [self.agent(n) for n in lengths]
        self.runtime = Runtime(agents, store=url, durability=durability, idle_timeout=None)
        await self.runtime.__aenter__()

    def build(self, steps: int) -> Any:
        async def add(a: int, b: int) -> int:
            """Add two integers."""
            self.tool_calls += 1
            return a + b

        return self._agent(f"bench{steps}", self._fake(steps), tools=[add], max_runs=10**6)

    async def run_stored(self, steps: int) -> None:
        outcome = await self.runtime.spawn(f"bench{steps}").run(PROMPT)
        if not isinstance(outcome, self._completed):
            raise AssertionError(f"{self.name} ended with {outcome!r}")
        self.check(outcome.text)

    async def close(self) -> None:
        await self.runtime.__aexit__(None, None, None)


class LangChainStore(Stored, LangChain):
    """`create_agent` with an `AsyncSqliteSaver`, in its default mode of durability.

    In that mode a step does not wait for the step before it to be on the disk. SQLite's own
    default is `synchronous=FULL`.
    """

    name = "langchain + langgraph"
    packages = (*LangChain.packages, "langgraph-checkpoint-sqlite")
    durabilities = ("full", "normal")

    async def open(self, path: str, durability: Durability, lengths: tuple[int, ...]) -> None:
        from langchain.agents import create_agent
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        self._manager = AsyncSqliteSaver.from_conn_string(path)
        saver = await self._manager.__aenter__()
        await saver.setup()
        await saver.conn.execute(f"PRAGMA synchronous = {durability}")
        self._stored = {
            n: create_agent(self._fake(steps=n), [self._tool], checkpointer=saver) for n in lengths
        }
        self._threads = 0

    async def run_stored(self, steps: int) -> None:
        self._threads += 1
        result = await self._stored[steps].ainvoke(
            {"messages": [("user", PROMPT)]},
            {
                "recursion_limit": 4 * steps + 10,
                "configurable": {"thread_id": f"t{self._threads}"},
            },
        )
        self.check(result["messages"][-1].content)

    async def close(self) -> None:
        await self._manager.__aexit__(None, None, None)


class DbosStore(Stored, PydanticAI):
    """Pydantic AI's durable execution by DBOS: model calls and the tool are steps of a workflow."""

    name = "pydantic-ai + dbos"
    packages = (*PydanticAI.packages, "dbos", "sqlalchemy")
    durabilities = ("full",)

    async def open(self, path: str, durability: Durability, lengths: tuple[int, ...]) -> None:
        from dbos import DBOS
        from pydantic_ai.durable_exec.dbos import DBOSDurability

        self._dbos = DBOS
        DBOS(
            config={
                "name": "bench",
                "system_database_url": f"sqlite:///{path}",
                "log_level": "ERROR",
                "run_admin_server": False,
                "enable_otlp": False,
            }
        )
        self._flows = {n: self._flow(n, DBOSDurability) for n in lengths}
        DBOS.launch()

    def _flow(self, steps: int, durability: Any) -> Any:
        @self._dbos.step(name=f"add{steps}")  # type: ignore[untyped-decorator]  # rivals are read as untyped
        async def add(a: int, b: int) -> int:
            """Add two integers."""
            self.tool_calls += 1
            return a + b

        agent = self._agent(
            self._fake(steps), tools=[add], name=f"bench{steps}", capabilities=[durability()]
        )

        @self._dbos.workflow(name=f"flow{steps}")  # type: ignore[untyped-decorator]  # as above
        async def flow(prompt: str) -> str:
            return str((await agent.run(prompt, usage_limits=self._limits)).output)

        return flow

    async def run_stored(self, steps: int) -> None:
        self.check(await self._flows[steps](PROMPT))

    async def close(self) -> None:
        self._dbos.destroy()


STORES: dict[str, type[Stored]] = {
    store.name: store for store in (OurStore, LangChainStore, DbosStore)
}
