"""The calls of commands to a server: streams, and how they end."""

from __future__ import annotations

import queue
import sys
import threading
import time

import pytest
from starlette.types import Receive, Scope, Send

from tests.support.frozen.samples import sample_errors
from tests.support.web_server import served
from understudy import UnderstudyError
from understudy.cli.api import Api
from understudy.cli.exits import ApiProblem, code_of
from understudy.login.problems import problem_of


async def tells_once(scope: Scope, receive: Receive, send: Send) -> None:
    """A stream of one event that stays open until the client has gone."""
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"id: 1\ndata: first\n\n", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


def wait_until_reading(thread: threading.Thread) -> None:
    """Until it waits for what a socket brings."""
    end = time.monotonic() + 60
    while sys._current_frames()[thread.ident or 0].f_code.co_name != "readinto":
        assert time.monotonic() < end, "the thread does not read"
        time.sleep(0)


def test_a_stream_that_is_closed_by_another_thread_ends_at_once() -> None:
    """The end of a run that is followed does not wait for the next event."""
    with served(tells_once) as url:
        api = Api(url, None)
        came: queue.SimpleQueue[tuple[str | None, str] | Exception] = queue.SimpleQueue()

        def follow() -> None:
            try:
                for event in api.stream("/events", None):
                    came.put(event)
            except Exception as error:  # that it is cut off may be told
                came.put(error)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        assert came.get(timeout=60) == ("1", "first")
        wait_until_reading(follower)
        api.close()
        follower.join(60)
        assert not follower.is_alive()


@pytest.mark.parametrize("error", sample_errors(), ids=lambda error: type(error).__name__)
def test_an_error_has_the_same_exit_code_by_a_server_as_by_a_store(error: UnderstudyError) -> None:
    problem = problem_of(error)
    assert ApiProblem(problem.status, problem.to_dict()).code == code_of(error)
