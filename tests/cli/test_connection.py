"""Calls over HTTP by the standard library: what is kept open, proxies, and wrong URLs."""

from __future__ import annotations

import base64
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.command_line import TOKEN, Desk, run
from understudy.cli.connection import Connection
from understudy.cli.exits import NoAnswer, Refusal


class Server(http.server.ThreadingHTTPServer):
    """Keeps what it was asked, and from which port."""

    asked: list[tuple[str, str, dict[str, str]]]
    ports: list[int]
    closes = False


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.command, self.path, dict(self.headers.items())))
        self.server.ports.append(self.client_address[1])
        body = b'{"agents": [], "next": null, "now": "2030-01-01T00:00:00+00:00"}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        # It goes away without a word, as a server does with a connection that is idle.
        self.close_connection = self.server.closes

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


@contextmanager
def serving(*, closes: bool = False) -> Iterator[tuple[Server, str]]:
    server = Server(("127.0.0.1", 0), Handler)
    server.asked, server.ports, server.closes = [], [], closes
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


@pytest.mark.parametrize("closes", [False, True])
def test_a_connection_is_kept_and_opened_anew_where_the_server_closed_it(closes: bool) -> None:
    with serving(closes=closes) as (server, url):
        connection = Connection(f"{url}/below/", {})
        for _ in range(3):
            assert connection.call("GET", "/api").status == 200
            if closes:  # until the end has come
                connected: Any = connection._open
                connected.sock.settimeout(60)
                assert connected.sock.recv(1, 2) == b""
        connection.close()
        assert [path for _, path, _ in server.asked] == ["/below/api"] * 3
        assert len(set(server.ports)) == (3 if closes else 1)


def test_a_closed_connection_answers_nothing() -> None:
    with serving() as (server, url):
        connection = Connection(url, {})
        connection.close()
        with pytest.raises(NoAnswer):
            connection.call("GET", "/api")
        assert server.asked == []


def test_a_proxy_is_asked_with_its_login_but_not_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as (server, url):
        monkeypatch.setenv("http_proxy", url.replace("http://", "http://ann:a%20word@"))
        connection = Connection("http://agents.example/ops", {})
        assert connection.call("GET", "/api").status == 200
        connection.close()
        [(_, path, headers)] = server.asked
        assert path == "http://agents.example/ops/api"
        assert headers["Host"] == "agents.example"
        login = base64.b64encode(b"ann:a word").decode()
        assert headers["Proxy-Authorization"] == f"Basic {login}"
        connection = Connection(url, {})
        connection.call("GET", "/here")
        connection.close()
        assert server.asked[-1][1] == "/here"


def test_a_proxy_of_another_kind_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "socks5://ann:secret@proxy:1080")
    with pytest.raises(Refusal, match=r"must be http://host:port") as refused:
        Connection("https://agents.example", {})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8420", "ftp://host", "http://", "http://a b", "http://host:x", "http://["],
)
def test_what_is_no_url_of_a_server_is_said(url: str) -> None:
    if url:
        assert "is no URL of a server" in run("ls", "--url", url, code=2).stderr
    with pytest.raises(Refusal, match="is no URL of a server"):
        Connection(url, {})


def test_a_token_that_no_header_can_have_is_said() -> None:
    with pytest.raises(Refusal, match="the token has a character"):
        Connection("http://host", {"Authorization": "Bearer a\nb"})


def test_nobody_who_answers_is_exit_code_5() -> None:
    with serving() as (_, url):
        pass
    done = run("ls", "--url", url, code=5)
    assert "the server does not answer" in done.stderr


def test_options_of_the_place_stand_before_the_command_or_behind_it(desk: Desk) -> None:
    desk.runtime.spawn("echo", "t-1").run("hi").get(timeout=60)
    behind = run("ls", "--url", desk.url, "--token", TOKEN).stdout
    assert "t-1" in behind
    assert run("--url", desk.url, "--token", TOKEN, "ls").stdout == behind
    assert run(f"--url={desk.url}", "ls", f"--token={TOKEN}").stdout == behind
    assert run("--store", desk.store, "ls").stdout == behind
    assert run("--store", "sqlite:///nothing.db", "ls", "--store", desk.store).stdout == behind
    # The one that stands before also wins over the environment.
    assert (
        run("--store", desk.store, "ls", UNDERSTUDY_STORE="sqlite:///nothing.db").stdout == behind
    )
    required = run("trust", "status", "--url", desk.url, "--token", TOKEN).stdout
    assert run("--url", desk.url, "--token", TOKEN, "trust", "status").stdout == required
    told = run("--url", desk.url, "demo", code=2).stderr
    assert "No such option" in told
    assert "--url" in told
