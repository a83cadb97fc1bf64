"""Processes by the dozen: a server that has imported everything is forked for each.

The server never runs an event loop or a thread, so that what it forks is as good as new.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.machine import ROOT
from tests.support.scratch import scratch

__all__ = ["Died", "Forks", "be_hasty", "forked", "patience"]

_patience = 60.0


def patience() -> float:
    """Seconds after which a life of a story counts as hanging.

    Nothing takes as long, also if a machine that others use too leaves it little.
    """
    return _patience


def be_hasty() -> None:
    """Wait less long in this process: it is to be wrong, and may be so by doing nothing."""
    global _patience
    _patience = 12.0


class Died(Exception):
    """A process ended in another way than it was meant to."""


def forked(body: Callable[[], None], *, killed: bool) -> bool:
    """Call `body` in a process of its own, and wait for that.

    Args:
        killed: it may also be killed.

    Returns:
        Whether it came to its end.

    Raises:
        Died: if it raised, hung, or was killed unasked; with what it said.

    """
    with tempfile.TemporaryFile("w+") as said:
        pid = os.fork()
        if pid == 0:
            _in_child(body, said)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == 9 and killed:
            return False
        if status:
            said.seek(0)
            raise Died(said.read()[-6000:] or f"ended with status {status}")
        return True


def _in_child(body: Callable[[], None], said: Any) -> None:
    status = 1
    try:
        os.dup2(said.fileno(), 2)
        faulthandler.dump_traceback_later(2 * patience() + 1, exit=True)  # with its stacks
        body()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


class Forks:
    """So many servers, each playing one story at a time.

    Args:
        module: whose functions are the stories; the servers import it.
        count: how many there are.

    """

    def __init__(self, module: str, count: int = 2) -> None:
        self._module = module
        self._count = count
        self._idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        self._servers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        for _ in range(self._count):
            server = subprocess.Popen(
                [sys.executable, "-m", "tests.support.durability.forks", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            self._servers.append(server)
            self._idle.put(server)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self._servers:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.close()
            server.wait()
            server.stdout.close()

    def play(self, story: str, **arguments: Any) -> Any:
        """What this function of the module returned, in a process of its own.

        Raises:
            Died: with its traceback, if it raised.

        """
        server = self._idle.get()
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps({"story": story, "arguments": arguments}) + "\n")
            server.stdin.flush()
            answer = json.loads(server.stdout.readline() or '{"error": "the server is gone"}')
        finally:
            self._idle.put(server)
        if "error" in answer:
            raise Died(f"{story}({arguments}): {answer['error']}")
        return answer["value"]

    def play_all(self, story: str, each: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
        """`play` for each of these arguments, several at a time; in order."""
        with ThreadPoolExecutor(self._count) as pool:
            yield from pool.map(lambda arguments: self.play(story, **arguments), each)


def serve(module: str) -> None:
    """Fork for each line of the standard input, and print what came of it."""
    stories = importlib.import_module(module)
    stories.warm_up()
    for line in sys.stdin:
        wanted = json.loads(line)
        story = getattr(stories, wanted["story"])
        print(json.dumps(_played(story, wanted["arguments"])), flush=True)


def _played(story: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        answer = Path(folder, "answer.json")

        def body() -> None:
            faulthandler.cancel_dump_traceback_later()  # its own children are watched
            value = story(Path(folder), **arguments)
            answer.write_text(json.dumps({"value": value}))

        try:
            forked(body, killed=False)
        except Died as died:
            return {"error": str(died)}
        value: dict[str, Any] = json.loads(answer.read_text())
        return value


def main(given: Sequence[str]) -> None:
    serve(*given)


if __name__ == "__main__":
    main(sys.argv[1:])
