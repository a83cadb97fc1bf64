"""Cancelling runs from another process: a flag in an SQLite database."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from understudy import Agent, AgentState, Completed, ScriptedModel, Stopped, StopSignal, call, tool
from understudy.middleware import Cancellation


# 1. A cancellation source is any object with `check(state)`. A plain one is asked in a worker
#    thread, so it may wait for a database; here it opens the file anew each time.
class SqliteFlags:
    """Runs are cancelled by agent id or by run id, from any process that can open the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as database:
            database.execute("CREATE TABLE IF NOT EXISTS cancelled (id TEXT PRIMARY KEY, why TEXT)")

    def check(self, state: AgentState) -> StopSignal | None:
        """Asked at the start of a run and before each step of it, and of agents inside it."""
        assert state.run is not None
        ids = (state.run.agent_id, state.run.run_id)
        with self._open() as database:
            found = database.execute(
                "SELECT id, why FROM cancelled WHERE id IN (?, ?)", ids
            ).fetchone()
        if found is None:
            return None
        return StopSignal.user_requested(found[1], source="flags", id=found[0])

    def cancel(self, id: str, why: str) -> None:
        """Raise the flag: also `sqlite3 flags.db "INSERT INTO cancelled VALUES ('...', '...')"`."""
        with self._open() as database:
            database.execute("INSERT OR REPLACE INTO cancelled VALUES (?, ?)", (id, why))

    def reset(self, id: str) -> None:
        """Lower the flag: runs that start or continue from now on are not cancelled."""
        with self._open() as database:
            database.execute("DELETE FROM cancelled WHERE id = ?", (id,))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self.path)
        try:
            with database:
                yield database
        finally:
            database.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        flags = SqliteFlags(Path(folder) / "flags.db")

        @tool
        async def count_shelf(number: int) -> str:
            """Count what is on a shelf."""
            print(f"  ... counting shelf {number}")
            if number == 2:  # at the same time, in another process
                flags.cancel("inventory", "the shop closes")
            return f"{number} kettles"

        # 2. As a middleware it is part of the agent, under a `Runtime` too. For one run alone:
        #    `agent.execute(..., cancellation=flags)`.
        shelves = [call("count_shelf", {"number": number}) for number in (1, 2, 3)]
        agent = Agent(
            "inventory",
            ScriptedModel([*shelves, "never asked"]),
            tools=[count_shelf],
            middleware=[Cancellation(flags)],
        )

        # 3. The flag is seen before the next step; what was counted is in the state.
        outcome = agent.execute_sync("Count the shop.")
        assert isinstance(outcome, Stopped), outcome
        print(outcome.explain())

        # 4. While the flag is raised, no run of this agent makes a model call.
        outcome = agent.execute_sync("Go on counting.", state=outcome.state)
        print("again, with the flag still raised:")
        print(outcome.explain())

        # 5. With the flag lowered, runs work again.
        flags.reset("inventory")
        agent = Agent(
            "inventory", ScriptedModel(["3 kettles so far."]), middleware=[Cancellation(flags)]
        )
        outcome = agent.execute_sync("What have you got?", state=outcome.state)
        assert isinstance(outcome, Completed), outcome
        print("and with the flag lowered:")
        print(outcome.text)


if __name__ == "__main__":
    main()
