"""Servers of this machine that notices are sent to: by HTTP, as Slack speaks it, and by SMTP."""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import json
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.loops import soon

__all__ = ["TOKEN", "FakeSlack", "HttpServer", "Posted", "SmtpServer", "http_server", "smtp_server"]


@dataclass(frozen=True)
class Posted:
    """A request that a server has got."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


TOKEN = "xoxb-test-token"
"""Of the bot that Slack knows."""
Answer = tuple[int, Mapping[str, str], bytes]


class HttpServer:
    """Keeps what is posted, and answers as a test says."""

    def __init__(self) -> None:
        self.answer: Callable[[Posted], Answer] = lambda posted: (200, {}, b"{}")
        self._loop = asyncio.get_running_loop()
        self._got: asyncio.Queue[Posted] = asyncio.Queue()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                posted = Posted(self.path, headers, self.rfile.read(length))
                status, more, body = outer.answer(posted)
                self.send_response(status)
                for name, value in {**more, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                outer._loop.call_soon_threadsafe(outer._got.put_nowait, posted)

            def log_message(self, *given: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    async def next(self) -> Posted:
        """The next request that comes."""
        return await soon(self._got.get())

    @property
    def is_quiet(self) -> bool:
        """Whether no request waits to be looked at."""
        return self._got.empty()


@contextmanager
def http_server(server: HttpServer) -> Iterator[HttpServer]:
    with _serving(server._server):
        yield server


class FakeSlack(HttpServer):
    """Slack's Web API, as far as notices need it. It refuses what Slack refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[str, Any] = {}
        """What each message shows now, by its `ts`."""
        self.told: list[tuple[str, str]] = []
        """The messages to single persons."""
        self.answer = self._answer

    def _answer(self, posted: Posted) -> Answer:
        return 200, {"Content-Type": "application/json"}, json.dumps(self._done(posted)).encode()

    def _done(self, posted: Posted) -> dict[str, Any]:
        if posted.headers["authorization"] != f"Bearer {TOKEN}":
            return {"ok": False, "error": "invalid_auth"}
        if posted.headers["content-type"] != "application/json; charset=utf-8":
            return {"ok": False, "error": "invalid_post_type"}
        given = posted.json
        if not _fits(given.get("blocks", [])):
            return {"ok": False, "error": "invalid_blocks"}
        match posted.path:
            case "/api/chat.postMessage":
                ts = f"1700000000.{len(self.messages):06}"
                self.messages[ts] = given
                return {"ok": True, "channel": "C1", "ts": ts, "message": {}}
            case "/api/chat.update":
                if given["ts"] not in self.messages:
                    return {"ok": False, "error": "message_not_found"}
                self.messages[given["ts"]] = given
                return {"ok": True, "channel": "C1", "ts": given["ts"]}
            case "/api/chat.postEphemeral":
                self.told.append((given["user"], given["text"]))
                return {"ok": True, "message_ts": "1"}
        return {"ok": False, "error": "unknown_method"}


def _fits(blocks: list[dict[str, Any]]) -> bool:
    """Whether Slack takes these blocks."""
    for block in blocks:
        texts = [block["text"]] if block["type"] == "section" else block.get("elements", [])
        for each in texts:
            if each["type"] == "plain_text" and not 1 <= len(each["text"]) <= 3000:
                return False
            if each["type"] == "button" and len(each.get("value", "")) > 2000:
                return False
    return len(blocks) <= 50


class SmtpServer:
    """A server of mail that takes STARTTLS and a login, and keeps what it gets."""

    def __init__(self, folder: Path) -> None:
        self.refused: dict[str, str] = {}
        """What is answered to these recipients."""
        self.logins: list[tuple[str, str]] = []
        self.is_encrypted: list[bool] = []
        self.certificate = folder / "smtp.pem"
        _make_certificate(self.certificate)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate)
        self._loop = asyncio.get_running_loop()
        self._got: asyncio.Queue[EmailMessage] = asyncio.Queue()
        self._server = _Threads(("127.0.0.1", 0), _Session)
        self._server.of = self
        self.port = self._server.server_address[1]

    def trusted(self) -> ssl.SSLContext:
        """The context of a client that trusts this server."""
        return ssl.create_default_context(cafile=str(self.certificate))

    async def next(self) -> EmailMessage:
        """The next mail that comes."""
        return await soon(self._got.get())

    def took(self, data: bytes) -> None:
        found = message_from_bytes(data, policy=policy.default)
        assert isinstance(found, EmailMessage)
        self._loop.call_soon_threadsafe(self._got.put_nowait, found)


@contextmanager
def smtp_server(server: SmtpServer) -> Iterator[SmtpServer]:
    with _serving(server._server):
        yield server


@contextmanager
def _serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Threads(socketserver.ThreadingTCPServer):
    daemon_threads = True
    of: SmtpServer


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Threads)
        of, encrypted = server.of, False
        self._say("220 test ESMTP")
        while line := self.rfile.readline():
            words = line.decode().strip()
            match words.partition(" ")[0].upper():
                case "EHLO":
                    self._say("250-test")
                    self._say("250 AUTH PLAIN" if encrypted else "250 STARTTLS")
                case "STARTTLS":
                    self._say("220 go on")
                    self.connection = of._context.wrap_socket(self.connection, server_side=True)
                    self.rfile = self.connection.makefile("rb")
                    self.wfile = self.connection.makefile("wb", 0)
                    encrypted = True
                case "AUTH":
                    _, user, password = base64.b64decode(words.split()[2]).decode().split("\0")
                    of.logins.append((user, password))
                    self._say("235 hello")
                case "RCPT":
                    to = words.partition("<")[2].partition(">")[0]
                    self._say(of.refused.get(to, "250 ok"))
                case "DATA":
                    self._say("354 go on")
                    data = b""
                    while (part := self.rfile.readline()) != b".\r\n":
                        data += part
                    of.is_encrypted.append(encrypted)
                    of.took(data)
                    self._say("250 ok")
                case "QUIT":
                    self._say("221 bye")
                    break
                case _:
                    self._say("250 ok")
        if encrypted:  # the server closes the socket that it has made, and not this one
            self.rfile.close()
            self.wfile.close()
            self.connection.close()

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


def _make_certificate(path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    kept = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(kept + certificate.public_bytes(serialization.Encoding.PEM))
