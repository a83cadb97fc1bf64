"""A real notebook kernel, whose event loop runs in each cell: the example, and an interrupt.

Rules: A10.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

pytestmark = [
    pytest.mark.slow,
    # Of Jupyter's own: about its transport, its paths and its event loops.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
SECONDS = 60

PRELUDE = """
import asyncio
from understudy import Agent, Runtime, ScriptedModel, WouldDeadlock

notes = []

async def hangs(request):
    try:
        print("begun", flush=True)
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        notes.append("cancelled")
        raise
    return "never"

async def events():
    # The kernel's handler of the signal does not wake a loop that waits for an event.
    while True:
        await asyncio.sleep(0.05)

ticking = asyncio.create_task(events())

def agent(*replies):
    return Agent("a", ScriptedModel([*replies, "Done."]))
"""


@pytest.fixture
def kernel_runs_this_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """With this Python, and the library of this checkout."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def kernel(kernel_runs_this_library: None, tmp_path: Path) -> Iterator[Kernel]:
    manager = KernelManager(kernel_name="python3")
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv[0] = sys.executable
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=SECONDS)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


class Kernel:
    """A kernel, cell by cell."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager = manager
        self._client = client

    def __call__(self, code: str, *, interrupt_at: str | None = None) -> tuple[str, str]:
        """What a cell prints, and the name of the error that it raises, or "".

        It is interrupted once, each time that its output ends with a line `interrupt_at`.
        """
        printed = ""

        def watch(message: dict[str, Any]) -> None:
            nonlocal printed
            if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
                printed += message["content"]["text"]
                if interrupt_at is not None and printed.endswith(f"{interrupt_at}\n"):
                    self._manager.interrupt_kernel()

        reply = self._client.execute_interactive(code, timeout=SECONDS, output_hook=watch)
        return printed, reply["content"].get("ename", "")


def test_the_example_prints_in_a_kernel_what_is_stored_in_it(
    kernel_runs_this_library: None, tmp_path: Path
) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    executed = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        executed, kernel_name="python3", timeout=SECONDS, resources={"metadata": {"path": tmp_path}}
    ).execute()
    cells = [cell for cell in stored.cells if cell.cell_type == "code"]
    again = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.source for cell in cells if not cell.outputs] == [cells[0].source]
    for before, now in zip(cells, again, strict=True):
        assert printed_by(now) == printed_by(before), now.source


def printed_by(cell: Any) -> str:
    assert {output.output_type for output in cell.outputs} <= {"stream"}, cell.outputs
    return "".join(output.text for output in cell.outputs)


@pytest.mark.parametrize(
    "what", ['agent(hangs).execute_sync("go")', 'await agent(hangs).execute("go")']
)
def test_an_interrupt_of_the_kernel_cancels_the_run_of_the_cell(kernel: Kernel, what: str) -> None:
    kernel(PRELUDE)
    printed, error = kernel(what, interrupt_at="begun")
    assert (printed, error) in [("begun\n", "KeyboardInterrupt"), ("begun\n", "CancelledError")]
    assert kernel("print(notes)") == ("['cancelled']\n", "")
    assert kernel('print(agent().execute_sync("go").text)') == ("Done.\n", "")
    assert kernel('print((await agent().execute("go")).text)') == ("Done.\n", "")


def test_an_interrupted_cell_gives_the_store_back_and_the_next_one_continues_the_run(
    kernel: Kernel,
) -> None:
    kernel(PRELUDE)
    kernel(
        """
        store = "sqlite:///agents.db"
        slow = Agent("slow", ScriptedModel([hangs, "Done."]))
        """
    )
    cell = """
        with Runtime([slow], store=store, stop_timeout=0) as runtime:
            print(runtime.spawn("slow", id="one").run("go").get(timeout=60).text)
        """
    printed, error = kernel(cell, interrupt_at="begun")
    assert (printed, error) == ("begun\n", "KeyboardInterrupt")
    cell = """
        with Runtime([slow], store=store) as runtime:
            for ref in runtime.recover().get(timeout=60):
                print(ref.id, ref.outcome().get(timeout=60).text)
        """
    assert kernel(cell) == ("one Done.\n", "")


def test_a_cell_that_raises_in_a_runtime_shows_its_own_error(kernel: Kernel) -> None:
    kernel(PRELUDE)
    cell = """
        with Runtime([agent()], store="sqlite:///agents.db") as runtime:
            runtime.spawn("a", id="one").run("go").get(timeout=60)
            raise LookupError("mine")
        """
    assert kernel(cell) == ("", "LookupError")
    cell = cell.replace('raise LookupError("mine")', 'print(runtime.get("one").status().value)')
    assert kernel(cell) == ("idle\n", "")


def test_in_async_with_a_blocking_call_says_what_to_await(kernel: Kernel) -> None:
    """There it would wait for its own loop."""
    kernel(PRELUDE)
    cell = """
        async with Runtime([agent()]) as runtime:
            future = runtime.spawn("a").run("go")
            for wait in (future.get, lambda: agent().execute_sync("go")):
                try:
                    wait()
                except WouldDeadlock as error:
                    print(error)
            print((await future).text)
        """
    printed, error = kernel(cell)
    assert error == ""
    assert printed.splitlines() == [
        "get would block the event loop that runs in this thread: await it instead.",
        "execute_sync would block the event loop that runs in this thread: "
        "await agent.execute(...) instead.",
        "Done.",
    ]
