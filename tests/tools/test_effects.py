"""What an exception of a tool's body proves about the effect of the call."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import http.client
import smtplib
import socket
import sqlite3
import ssl
import struct
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import anyio
import google.genai.errors
import httpcore
import httpx
import httpx2
import openai
import psycopg
import pytest
import requests
import urllib3
import websockets.exceptions
from mcp import MCPError

from tests.support.agents import completed
from tests.support.loops import soon
from understudy import Agent, Runtime, ScriptedModel, UsageError, call, tool
from understudy.actors import ActorDied
from understudy.errors import CallLost, WaitExpired
from understudy.tools import InvalidArguments, OutcomeUnknown, Retry, ToolFailed
from understudy.tools.effects import Known, check_tables, checked_errors, what_is_known

NOTHING, FAILED, UNKNOWN = Known.NOTHING_HAPPENED, Known.FAILED, Known.UNKNOWN


def raised(function: Callable[[], object]) -> BaseException:
    """What the function raises, as a tool's body would."""
    try:
        function()
    except BaseException as error:
        return error
    pytest.fail("nothing was raised")


def of_library(*names: str, text: str = "", base: type = Exception, **facts: Any) -> BaseException:
    """An error of a library that is not installed here.

    Args:
        names: of its class and of those above it, with their modules.
        text: what it says.
        base: a built-in class above them all.
        facts: its attributes.

    """
    kind = base
    for name in reversed(names):
        module, _, qualname = name.rpartition(".")
        kind = type(qualname, (kind,), {"__module__": module})
    error: BaseException = kind(text)
    for fact, value in facts.items():
        setattr(error, fact, value)
    return error


def chained(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def while_handling(error: BaseException, other: BaseException) -> BaseException:
    """The error, raised in an `except` for the other one."""

    def fail() -> None:
        try:
            raise other
        except BaseException:
            raise error  # noqa: B904  # without a cause, as it often is

    return raised(fail)


# ---------------------------------------------------------------------------- a bad server


def _more(client: socket.socket) -> bytes:
    data = client.recv(65536)
    if not data:
        raise ConnectionError("the client has hung up")
    return data


def _read_request(client: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(client)
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().splitlines():
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        body += _more(client)


def reset(client: socket.socket) -> None:
    _read_request(client)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang_up(client: socket.socket) -> None:
    _read_request(client)


def hang_up_in_the_answer(client: socket.socket) -> None:
    _read_request(client)
    client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")


def say_nothing(client: socket.socket) -> None:
    _read_request(client)
    client.recv(1)  # until the client gives up


def answer(status: int, *headers: str) -> Callable[[socket.socket], None]:
    lines = [f"HTTP/1.1 {status} No", *headers, "content-length: 2", "connection: close"]

    def send(client: socket.socket) -> None:
        _read_request(client)
        client.sendall("\r\n".join(lines).encode() + b"\r\n\r\n{}")

    return send


@contextmanager
def serving(*behaviours: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that takes one connection for each behaviour."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)

    def serve() -> None:
        for behave in behaviours:
            with suppress(ConnectionError), listener.accept()[0] as client:
                client.settimeout(60)
                behave(client)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()
        listener.close()


@contextmanager
def refusing() -> Iterator[int]:
    """A port at which nobody listens, and that nobody else gets."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


# ------------------------------------------------------------------- clients, as they fail

Request = Callable[[str, str, float], object]
"""With a method and a URL, and the seconds for which it waits for the answer."""


def by_httpx(method: str, url: str, seconds: float = 30) -> object:
    limits = httpx.Timeout(30, read=seconds)
    with httpx.Client(timeout=limits, trust_env=False, verify=False) as client:
        return client.request(method, url, content=b"{}").raise_for_status()


def by_httpx_async(method: str, url: str, seconds: float = 30) -> object:
    async def send() -> object:
        limits = httpx.Timeout(30, read=seconds)
        async with httpx.AsyncClient(timeout=limits, trust_env=False, verify=False) as client:
            return (await client.request(method, url, content=b"{}")).raise_for_status()

    return asyncio.run(send())


def by_httpx2(method: str, url: str, seconds: float = 30) -> object:
    limits = httpx2.Timeout(30, read=seconds)
    with httpx2.Client(timeout=limits, trust_env=False, verify=False) as client:
        return client.request(method, url, content=b"{}").raise_for_status()


def by_httpcore(method: str, url: str, seconds: float = 30) -> object:
    with httpcore.ConnectionPool() as pool:
        limits = {"timeout": {"read": seconds}}
        return pool.request(method, url, content=b"{}", extensions=limits)


def by_requests(method: str, url: str, seconds: float = 30) -> object:
    with requests.Session() as session:
        session.trust_env = False
        answer = session.request(method, url, data=b"{}", timeout=(30, seconds))
        return answer.raise_for_status()


def by_urllib3(method: str, url: str, seconds: float = 30) -> object:
    limits = urllib3.Timeout(connect=30, read=seconds)
    with urllib3.PoolManager(retries=False) as pool:
        return pool.request(method, url, body=b"{}", timeout=limits)


def by_urllib3_with_retries(method: str, url: str, seconds: float = 30) -> object:
    limits = urllib3.Timeout(connect=30, read=seconds)
    with urllib3.PoolManager(retries=urllib3.Retry(1, backoff_factor=0)) as pool:
        return pool.request(method, url, body=b"{}", timeout=limits)


def by_urllib(method: str, url: str, seconds: float = 30) -> object:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, data=b"{}", method=method)
    try:
        with opener.open(request, timeout=seconds) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        error.close()  # it is the answer, too
        raise


def by_http_client(method: str, url: str, seconds: float = 30) -> object:
    connection = http.client.HTTPConnection(url.split("/")[2], timeout=seconds)
    try:
        connection.request(method, "/", body=b"{}")
        return connection.getresponse().read()
    finally:
        connection.close()


def by_openai(method: str, url: str, seconds: float = 30) -> object:
    limits = httpx2.Timeout(30, read=seconds)
    with openai.OpenAI(api_key="k", base_url=url, max_retries=0, timeout=limits) as client:
        return client.post("/", body={}, cast_to=dict[str, Any])


def by_wrapping(method: str, url: str, seconds: float = 30) -> object:
    """As most applications do."""
    try:
        return by_httpx(method, url, seconds)
    except httpx.HTTPError as error:
        raise RuntimeError("payment failed") from error


CLIENTS = [
    by_httpx,
    by_httpx_async,
    by_httpx2,
    by_httpcore,
    by_requests,
    by_urllib3,
    by_urllib3_with_retries,
    by_urllib,
    by_http_client,
    by_openai,
    by_wrapping,
]
WITH_STATUS = [by_httpx, by_httpx_async, by_httpx2, by_requests, by_urllib, by_openai, by_wrapping]
WITH_METHOD = [by_httpx, by_httpx_async, by_httpx2, by_requests, by_wrapping]


@pytest.mark.parametrize("send", CLIENTS)
def test_nothing_happened_where_the_connection_was_refused(send: Request) -> None:
    """T16."""
    with refusing() as port:
        error = raised(lambda: send("POST", f"http://127.0.0.1:{port}/", 30))
    assert what_is_known(error) is NOTHING


@pytest.mark.parametrize("fault", [reset, hang_up, hang_up_in_the_answer])
@pytest.mark.parametrize("send", CLIENTS)
def test_nobody_knows_what_happened_where_the_connection_was_lost(
    send: Request, fault: Callable[[socket.socket], None]
) -> None:
    """T16."""
    with serving(fault) as port:
        error = raised(lambda: send("POST", f"http://127.0.0.1:{port}/", 30))
    assert what_is_known(error) is UNKNOWN


@pytest.mark.parametrize("send", CLIENTS)
def test_nobody_knows_what_happened_where_the_answer_did_not_come_in_time(send: Request) -> None:
    with serving(say_nothing) as port:
        error = raised(lambda: send("POST", f"http://127.0.0.1:{port}/", 0.05))
    assert what_is_known(error) is UNKNOWN


@pytest.mark.parametrize(("status", "known"), [(404, NOTHING), (503, UNKNOWN)])
@pytest.mark.parametrize("send", WITH_STATUS)
def test_the_status_of_the_answer_says_whether_something_happened(
    send: Request, status: int, known: Known
) -> None:
    """T16."""
    with serving(answer(status)) as port:
        error = raised(lambda: send("POST", f"http://127.0.0.1:{port}/", 30))
    assert what_is_known(error) is known


@pytest.mark.parametrize(
    ("known", "statuses"),
    [
        (NOTHING, (400, 401, 402, 403, 404, 408, 409, 410, 422, 425, 429, 451, 499, 501, 505)),
        (UNKNOWN, (500, 502, 503, 504, 506, 507, 520, 524, 529, 599)),
        (UNKNOWN, (301, 302, 303, 307)),  # answered, and the client does not follow
    ],
)
def test_a_server_that_refuses_a_request_has_done_nothing(
    known: Known, statuses: tuple[int, ...]
) -> None:
    request = httpx.Request("POST", "http://bank.test")
    for status in statuses:
        response = httpx.Response(status, request=request)
        assert what_is_known(raised(response.raise_for_status)) is known, status


@pytest.mark.parametrize("fault", [hang_up, answer(503)])
@pytest.mark.parametrize("send", WITH_METHOD)
def test_nothing_happened_by_a_request_that_only_reads(
    send: Request, fault: Callable[[socket.socket], None]
) -> None:
    with serving(fault) as port:
        error = raised(lambda: send("GET", f"http://127.0.0.1:{port}/", 30))
    assert what_is_known(error) is NOTHING


@pytest.mark.parametrize(
    ("method", "known"),
    [
        ("GET", NOTHING),
        ("get", NOTHING),
        ("HEAD", NOTHING),
        ("OPTIONS", NOTHING),
        ("POST", UNKNOWN),
        ("PUT", UNKNOWN),
        ("DELETE", UNKNOWN),
        ("PATCH", UNKNOWN),
        ("PROPFIND", UNKNOWN),
    ],
)
def test_methods_that_only_read(method: str, known: Known) -> None:
    assert what_is_known(requests.ReadTimeout(request=requests.Request(method))) is known


def test_a_redirect_of_a_post_is_an_effect_whatever_the_page_after_it_says() -> None:
    with serving(answer(303, "location: /done"), answer(404)) as port:
        error = raised(lambda: by_requests("POST", f"http://127.0.0.1:{port}/"))
    assert isinstance(error, requests.HTTPError)
    assert error.request.method == "GET"
    assert what_is_known(error) is UNKNOWN


def test_a_redirect_that_repeats_the_post_elsewhere_is_no_effect() -> None:
    with serving(answer(307, "location: /there"), answer(404)) as port:
        error = raised(lambda: by_requests("POST", f"http://127.0.0.1:{port}/"))
    assert what_is_known(error) is NOTHING


def test_a_redirect_of_a_request_that_only_reads_is_no_effect() -> None:
    with serving(answer(302, "location: /there"), answer(404)) as port:
        error = raised(lambda: by_requests("GET", f"http://127.0.0.1:{port}/"))
    assert what_is_known(error) is NOTHING


def test_a_name_that_is_not_found_is_no_request() -> None:
    found = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert what_is_known(found) is NOTHING
    assert what_is_known(urllib.error.URLError(found)) is NOTHING
    assert what_is_known(chained(httpx.ConnectError("no such name"), found)) is NOTHING


def test_a_proxy_that_hangs_up_after_the_request_leaves_it_unknown() -> None:
    """The class is the one of a proxy that was never reached."""

    def send(port: int) -> object:
        proxies = {"http": f"http://127.0.0.1:{port}"}
        with requests.Session() as session:
            return session.post("http://bank.test/", data=b"{}", proxies=proxies)

    with serving(hang_up) as port:
        lost = raised(lambda: send(port))
    with refusing() as port:
        refused = raised(lambda: send(port))
    assert isinstance(lost, requests.exceptions.ProxyError)
    assert isinstance(refused, requests.exceptions.ProxyError)
    assert what_is_known(lost) is UNKNOWN
    assert what_is_known(refused) is NOTHING


def test_a_connection_that_took_too_long_to_make_or_to_get_is_no_request() -> None:
    assert what_is_known(httpx.ConnectTimeout("too long")) is NOTHING
    assert what_is_known(httpx.PoolTimeout("too long")) is NOTHING
    assert what_is_known(httpx2.PoolTimeout("too long")) is NOTHING
    assert what_is_known(requests.ConnectTimeout("too long")) is NOTHING
    assert what_is_known(httpx.WriteTimeout("too long")) is UNKNOWN


@pytest.mark.parametrize(
    "send",
    [
        lambda: by_httpx("POST", "bank.test"),
        lambda: by_httpx2("POST", "bank.test"),
        lambda: by_requests("POST", "bank.test"),
        lambda: by_requests("POST", "gopher://bank.test"),
        lambda: by_urllib("POST", "gopher://bank.test"),
        lambda: urllib3.PoolManager().request("POST", "gopher://bank.test"),
    ],
)
def test_a_wrong_address_fails_as_a_value_error_does(send: Callable[[], object]) -> None:
    assert what_is_known(raised(send)) is FAILED


def test_a_certificate_that_is_refused_stops_the_request_before_it_is_sent() -> None:
    refused = ssl.SSLCertVerificationError(1, "certificate verify failed")
    assert what_is_known(refused) is NOTHING
    assert what_is_known(requests.exceptions.SSLError(urllib3.exceptions.SSLError(refused))) is (
        NOTHING
    )
    assert what_is_known(ssl.SSLEOFError(8, "EOF occurred")) is UNKNOWN
    assert what_is_known(requests.exceptions.SSLError(ssl.SSLEOFError(8, "EOF"))) is UNKNOWN


# ----------------------------------------------------------------------------- Python's own


def test_time_limits_are_unknown() -> None:
    async def too_slow() -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    async def too_slow_for_anyio() -> None:
        with anyio.fail_after(0):
            await anyio.sleep_forever()

    for function in (too_slow, too_slow_for_anyio):
        assert what_is_known(raised(lambda function=function: asyncio.run(function()))) is UNKNOWN  # type: ignore[misc]
    assert what_is_known(TimeoutError()) is UNKNOWN
    assert what_is_known(concurrent.futures.TimeoutError()) is UNKNOWN
    assert what_is_known(asyncio.CancelledError()) is UNKNOWN
    assert what_is_known(concurrent.futures.CancelledError()) is UNKNOWN


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (ConnectionRefusedError(), NOTHING),
        (ConnectionResetError(), UNKNOWN),
        (ConnectionAbortedError(), UNKNOWN),
        (BrokenPipeError(), UNKNOWN),
        (ConnectionError(), UNKNOWN),
        (OSError(errno.EHOSTUNREACH, "No route to host"), UNKNOWN),
        (OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 80)"), NOTHING),
        (asyncio.IncompleteReadError(b"", 10), UNKNOWN),
        (concurrent.futures.BrokenExecutor(), UNKNOWN),
        (ValueError(), FAILED),
        (KeyError("amount"), FAILED),
        (ZeroDivisionError(), FAILED),
        (FileNotFoundError(errno.ENOENT, "no such file"), FAILED),
        (OSError("no space"), FAILED),
        (asyncio.QueueFull(), FAILED),
    ],
)
def test_built_in_errors(error: BaseException, known: Known) -> None:
    assert what_is_known(error) is known


def test_a_subclass_is_known_by_its_most_specific_base() -> None:
    class BankIsSlow(TimeoutError):
        pass

    class NoBank(ConnectionRefusedError):
        pass

    class BadAmount(ValueError):
        pass

    assert what_is_known(BankIsSlow()) is UNKNOWN
    assert what_is_known(NoBank()) is NOTHING
    assert what_is_known(BadAmount()) is FAILED


def test_a_program_that_ends_by_itself_has_failed_and_one_that_is_cut_off_is_unknown() -> None:
    def run(script: str, timeout: float | None = None) -> object:
        return subprocess.run(["/bin/sh", "-c", script], check=True, timeout=timeout)

    assert what_is_known(raised(lambda: run("exit 3"))) is FAILED
    assert what_is_known(raised(lambda: run("kill -9 $$"))) is UNKNOWN
    assert what_is_known(raised(lambda: run("/bin/sh -c 'kill -9 $$'; exit $?"))) is UNKNOWN
    assert what_is_known(raised(lambda: run("exec sleep 60", timeout=0.01))) is UNKNOWN
    assert what_is_known(raised(lambda: subprocess.run(["/no/such/program"]))) is FAILED


def test_mail_that_the_server_refuses_is_not_sent() -> None:
    def refuse(client: socket.socket) -> None:
        client.sendall(b"554 no\r\n")
        client.recv(100)

    def hang_up_at_once(client: socket.socket) -> None:
        client.sendall(b"220 hello\r\n")
        client.recv(100)

    def send(port: int) -> object:
        with smtplib.SMTP("127.0.0.1", port, timeout=30) as server:
            return server.sendmail("a@a.test", "b@b.test", "hello")

    with serving(refuse) as port:
        assert what_is_known(raised(lambda: send(port))) is NOTHING
    with serving(hang_up_at_once) as port:
        assert what_is_known(raised(lambda: send(port))) is UNKNOWN
    with refusing() as port:
        assert what_is_known(raised(lambda: send(port))) is NOTHING
    assert what_is_known(smtplib.SMTPRecipientsRefused({"b@b.test": (550, b"no")})) is NOTHING
    assert what_is_known(smtplib.SMTPAuthenticationError(535, b"no")) is NOTHING


# ------------------------------------------------------------------------------- databases


def test_a_statement_that_sqlite_refuses_had_no_effect() -> None:
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE paid (id PRIMARY KEY)")
        database.execute("INSERT INTO paid VALUES (1)")
        again = raised(lambda: database.execute("INSERT INTO paid VALUES (1)"))
        no_table = raised(lambda: database.execute("INSERT INTO none VALUES (1)"))
    database.close()
    closed = raised(lambda: database.execute("SELECT 1"))
    assert what_is_known(sqlite3.OperationalError("an extension has refused")) is NOTHING
    assert isinstance(again, sqlite3.IntegrityError)
    assert isinstance(no_table, sqlite3.OperationalError)
    assert [what_is_known(error) for error in (again, no_table, closed)] == [NOTHING] * 3


def test_a_disk_that_fails_leaves_it_unknown_what_sqlite_has_written() -> None:
    broken = sqlite3.OperationalError("disk I/O error")
    broken.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    assert what_is_known(broken) is UNKNOWN


def test_a_postgresql_server_that_hangs_up_leaves_the_statement_unknown() -> None:
    def hang_up_at_the_statement(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")  # signed in, and ready
        client.recv(65536)

    def connect(port: int) -> psycopg.Connection[Any]:
        options = "sslmode=disable gssencmode=disable connect_timeout=30 user=u"
        return psycopg.connect(f"host=127.0.0.1 port={port} {options}", autocommit=True)

    with serving(hang_up_at_the_statement) as port, connect(port) as connection:
        lost = raised(lambda: connection.execute("SELECT pay()"))
    with serving(lambda client: None) as port:
        while_connecting = raised(lambda: connect(port))
    with refusing() as port:
        refused = raised(lambda: connect(port))
    assert isinstance(lost, psycopg.OperationalError)
    assert isinstance(while_connecting, psycopg.OperationalError)
    assert isinstance(refused, psycopg.OperationalError)
    assert what_is_known(lost) is UNKNOWN
    assert what_is_known(while_connecting) is NOTHING
    assert what_is_known(refused) is NOTHING


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (psycopg.errors.UniqueViolation(), NOTHING),
        (psycopg.errors.SyntaxError(), NOTHING),
        (psycopg.errors.InvalidTextRepresentation(), NOTHING),
        (psycopg.errors.SerializationFailure(), NOTHING),
        (psycopg.errors.DeadlockDetected(), NOTHING),
        (psycopg.errors.QueryCanceled(), NOTHING),
        (psycopg.errors.TooManyConnections(), NOTHING),
        (psycopg.errors.CannotConnectNow(), NOTHING),
        (psycopg.errors.ConnectionTimeout(), NOTHING),
        (psycopg.errors.AdminShutdown(), UNKNOWN),
        (psycopg.errors.ConnectionFailure(), UNKNOWN),
        (psycopg.errors.TransactionResolutionUnknown(), UNKNOWN),
        (psycopg.errors.StatementCompletionUnknown(), UNKNOWN),
        (psycopg.OperationalError("the connection is closed"), UNKNOWN),
        (psycopg.InterfaceError("the connection is lost"), UNKNOWN),
    ],
)
def test_postgresql_undoes_what_it_refuses(error: BaseException, known: Known) -> None:
    assert what_is_known(error) is known


# ------------------------------------------------------- libraries that are not installed here

PSYCOPG2 = ("psycopg2.OperationalError", "psycopg2.DatabaseError", "psycopg2.Error")
ASYNCPG = ("asyncpg.exceptions.E", "asyncpg.exceptions._base.PostgresError")
PYMYSQL = ("pymysql.err.OperationalError", "pymysql.err.DatabaseError", "pymysql.err.Error")
REDIS = ("redis.exceptions.ConnectionError", "redis.exceptions.RedisError")
SQLALCHEMY = ("sqlalchemy.exc.OperationalError", "sqlalchemy.exc.DBAPIError")
AIOHTTP = (
    "aiohttp.client_exceptions.ClientConnectionError",
    "aiohttp.client_exceptions.ClientError",
)
BOTOCORE = ("botocore.exceptions.HTTPClientError", "botocore.exceptions.BotoCoreError")
GOOGLE = ("google.api_core.exceptions.E", "google.api_core.exceptions.GoogleAPICallError")


def _botocore_answer(status: int) -> BaseException:
    answered = {"Error": {"Code": "No"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return of_library(
        "botocore.exceptions.ClientError", response=answered, operation_name="GetObject"
    )


def _aiohttp_answer(status: int, method: str, *history: SimpleNamespace) -> BaseException:
    return of_library(
        "aiohttp.client_exceptions.ClientResponseError",
        "aiohttp.client_exceptions.ClientError",
        status=status,
        request_info=SimpleNamespace(method=method),
        history=history,
    )


def _google_answer(grpc_code: str | None, status: int) -> BaseException:
    code = None if grpc_code is None else SimpleNamespace(name=grpc_code)
    return of_library(*GOOGLE, code=status, grpc_status_code=code)


LIBRARIES = [
    # aiohttp: the class of the connection's errors, and what is below it
    (of_library(*AIOHTTP), UNKNOWN),
    (of_library("aiohttp.client_exceptions.ServerDisconnectedError", *AIOHTTP), UNKNOWN),
    (of_library("aiohttp.client_exceptions.ClientPayloadError", AIOHTTP[1]), UNKNOWN),
    (
        of_library(
            "aiohttp.client_exceptions.SocketTimeoutError",
            "aiohttp.client_exceptions.ServerTimeoutError",
            *AIOHTTP,
            base=TimeoutError,
        ),
        UNKNOWN,
    ),
    (
        of_library(
            "aiohttp.client_exceptions.ConnectionTimeoutError",
            "aiohttp.client_exceptions.ServerTimeoutError",
            *AIOHTTP,
            base=TimeoutError,
        ),
        NOTHING,
    ),
    (
        of_library(
            "aiohttp.client_exceptions.ClientConnectorDNSError",
            "aiohttp.client_exceptions.ClientConnectorError",
            "aiohttp.client_exceptions.ClientOSError",
            *AIOHTTP,
            base=OSError,
        ),
        NOTHING,
    ),
    (
        of_library(
            "aiohttp.client_exceptions.ClientHttpProxyError",
            "aiohttp.client_exceptions.ClientResponseError",
            AIOHTTP[1],
            status=503,  # of the proxy, which does not connect
        ),
        NOTHING,
    ),
    (of_library("aiohttp.client_exceptions.InvalidURL", AIOHTTP[1], base=ValueError), FAILED),
    (
        of_library(
            "aiohttp.client_exceptions.InvalidUrlRedirectClientError",
            "aiohttp.client_exceptions.InvalidURL",
            AIOHTTP[1],
            base=ValueError,
        ),
        UNKNOWN,
    ),
    (_aiohttp_answer(404, "POST"), NOTHING),
    (_aiohttp_answer(503, "POST"), UNKNOWN),
    (_aiohttp_answer(503, "GET"), NOTHING),
    (_aiohttp_answer(200, "POST"), UNKNOWN),  # ContentTypeError: the answer cannot be read
    (_aiohttp_answer(404, "GET", SimpleNamespace(method="POST", status=302)), UNKNOWN),
    (_aiohttp_answer(404, "POST", SimpleNamespace(method="POST", status=308)), NOTHING),
    (_aiohttp_answer(404, "GET", SimpleNamespace(method="GET", status=302)), NOTHING),
    # botocore
    (of_library("botocore.exceptions.ReadTimeoutError", *BOTOCORE), UNKNOWN),
    (of_library("botocore.exceptions.ConnectionClosedError", *BOTOCORE), UNKNOWN),
    (of_library("botocore.exceptions.ConnectionError", BOTOCORE[1]), UNKNOWN),
    (
        of_library(
            "botocore.exceptions.EndpointConnectionError", "botocore.exceptions.ConnectionError"
        ),
        NOTHING,
    ),
    (
        of_library(
            "botocore.exceptions.ConnectTimeoutError", "botocore.exceptions.ConnectionError"
        ),
        NOTHING,
    ),
    (of_library("botocore.exceptions.ParamValidationError", BOTOCORE[1]), FAILED),
    (_botocore_answer(400), NOTHING),
    (_botocore_answer(500), UNKNOWN),  # the name of the operation is no method
    # redis
    (of_library(*REDIS, text="Connection closed by server."), UNKNOWN),
    (of_library(*REDIS, text="Error while reading from localhost:6379 : (104, 'reset')"), UNKNOWN),
    (of_library(*REDIS, text="Error 111 connecting to localhost:6379. Refused."), NOTHING),
    (of_library("redis.exceptions.TimeoutError", text="Timeout reading from socket"), UNKNOWN),
    (of_library("redis.exceptions.TimeoutError", text="Timeout connecting to server"), NOTHING),
    (of_library("redis.exceptions.AuthenticationError", *REDIS), NOTHING),
    (of_library("redis.exceptions.MaxConnectionsError", *REDIS), NOTHING),
    (of_library("redis.exceptions.ResponseError", REDIS[1]), FAILED),
    # PostgreSQL
    (of_library("psycopg2.errors.UniqueViolation", "psycopg2.IntegrityError"), NOTHING),
    (of_library(*PSYCOPG2, pgcode="40P01"), NOTHING),
    (of_library(*PSYCOPG2, pgcode="57P01"), UNKNOWN),
    (
        of_library(*PSYCOPG2, pgcode=None, text="server closed the connection unexpectedly"),
        UNKNOWN,
    ),
    (
        of_library(
            *PSYCOPG2, pgcode=None, text='connection to server at "::1", port 1 failed: refused'
        ),
        NOTHING,
    ),
    (of_library("psycopg_pool.PoolTimeout", "psycopg.OperationalError", "psycopg.Error"), NOTHING),
    (of_library(*ASYNCPG, sqlstate="23505"), NOTHING),
    (of_library(*ASYNCPG, sqlstate="08003"), UNKNOWN),
    (of_library(*ASYNCPG, sqlstate="08001"), NOTHING),
    (of_library("asyncpg.exceptions._base.InterfaceError"), UNKNOWN),
    (
        of_library("psycopg.OperationalError", "psycopg.Error", text="nicht da", pgconn=object()),
        NOTHING,
    ),
    # MySQL
    (of_library("pymysql.err.IntegrityError", "pymysql.err.Error"), NOTHING),
    (of_library(*PYMYSQL, args=(2003, "cannot connect")), NOTHING),
    (of_library(*PYMYSQL, args=(2006, "gone away")), UNKNOWN),
    (of_library(*PYMYSQL, args=(2013, "lost connection")), UNKNOWN),
    (of_library(*PYMYSQL, args=(1213, "deadlock")), NOTHING),
    (of_library(*PYMYSQL, args=(1180, "error during COMMIT")), UNKNOWN),
    (of_library(*PYMYSQL, args=(3819, "a constraint is violated")), NOTHING),
    (of_library(*PYMYSQL, args=("already closed",)), UNKNOWN),
    (of_library("pymysql.err.InterfaceError", "pymysql.err.Error", args=(0, "")), UNKNOWN),
    (of_library("MySQLdb.OperationalError", "MySQLdb.Error", args=(1205, "lock wait")), NOTHING),
    (of_library("mysql.connector.errors.DatabaseError", "mysql.connector.errors.Error"), UNKNOWN),
    (
        of_library(
            "mysql.connector.errors.InterfaceError", "mysql.connector.errors.Error", errno=2003
        ),
        NOTHING,
    ),
    (
        of_library(
            "mysql.connector.errors.ReadTimeoutError", "mysql.connector.errors.Error", errno=3024
        ),
        UNKNOWN,
    ),
    # SQLAlchemy, by the error of its driver
    (of_library(*SQLALCHEMY, orig=psycopg.OperationalError("lost")), UNKNOWN),
    (of_library(*SQLALCHEMY, orig=psycopg.errors.DeadlockDetected()), NOTHING),
    (of_library(*SQLALCHEMY, orig=RuntimeError("a driver that nobody knows")), UNKNOWN),
    (of_library("sqlalchemy.exc.IntegrityError", SQLALCHEMY[1]), NOTHING),
    (of_library("sqlalchemy.exc.TimeoutError"), NOTHING),
    (of_library("sqlalchemy.exc.NoResultFound"), FAILED),
    # Google's clients
    (_google_answer("ABORTED", 409), UNKNOWN),
    (_google_answer("NOT_FOUND", 404), NOTHING),
    (_google_answer(None, 409), NOTHING),
    (_google_answer(None, 503), UNKNOWN),
    (of_library("google.api_core.exceptions.RetryError"), UNKNOWN),
    (
        of_library(
            "google.auth.exceptions.TransportError", "google.auth.exceptions.GoogleAuthError"
        ),
        NOTHING,
    ),
    (google.genai.errors.ClientError(404, {}), NOTHING),
    (google.genai.errors.ServerError(503, {}), UNKNOWN),
    # SDKs that only keep a status
    (of_library("stripe._error.CardError", "stripe._error.StripeError", http_status=402), NOTHING),
    (of_library("stripe._error.APIError", "stripe._error.StripeError", http_status=503), UNKNOWN),
    (of_library("kubernetes.client.exceptions.ApiException", status=500), UNKNOWN),
    (of_library("bank.Error", response=SimpleNamespace(status_code=502)), UNKNOWN),
    (of_library("bank.Error", response=SimpleNamespace(status_code=422)), NOTHING),
    (of_library("bank.Error", status=7), FAILED),
    (of_library("bank.Error", status=True), FAILED),
    # mail
    (of_library("aiosmtplib.errors.SMTPConnectError", base=ConnectionError), NOTHING),
    (of_library("aiosmtplib.errors.SMTPServerDisconnected", base=ConnectionError), UNKNOWN),
    (of_library("aiosmtplib.errors.SMTPReadTimeoutError", base=TimeoutError), UNKNOWN),
    (
        of_library(
            "aiosmtplib.errors.SMTPConnectTimeoutError",
            "aiosmtplib.errors.SMTPTimeoutError",
            base=TimeoutError,
        ),
        NOTHING,
    ),
    (
        of_library("aiosmtplib.errors.SMTPDataError", "aiosmtplib.errors.SMTPResponseException"),
        NOTHING,
    ),
    # WebSockets, MCP, anyio
    (websockets.exceptions.ConnectionClosedError(None, None), UNKNOWN),
    (websockets.exceptions.InvalidUpgrade("upgrade"), NOTHING),
    (anyio.ClosedResourceError(), UNKNOWN),
    (anyio.BrokenResourceError(), UNKNOWN),
    (anyio.EndOfStream(), UNKNOWN),
    (MCPError(-32000, "Connection closed"), UNKNOWN),
    (MCPError(-32001, "Request timed out"), UNKNOWN),
    (MCPError(-32602, "Invalid params"), NOTHING),
    (MCPError(-32042, "the server's own error"), FAILED),
    (
        of_library("mcp.shared.exceptions.McpError", error=SimpleNamespace(code=408)),
        UNKNOWN,
    ),
    (of_library("fastmcp.exceptions.ToolError"), FAILED),
    # this library's own
    (CallLost(call="run", host="a"), UNKNOWN),
    (ActorDied(actor_urn="u", actor_class="A", cause="it was stopped"), UNKNOWN),
    (WaitExpired(name="approval"), FAILED),
]


@pytest.mark.parametrize(
    ("error", "known"), [pytest.param(*row, id=type(row[0]).__name__) for row in LIBRARIES]
)
def test_errors_of_libraries(error: BaseException, known: Known) -> None:
    assert what_is_known(error) is known


@pytest.mark.parametrize(
    ("code", "known"),
    [
        *((code, UNKNOWN) for code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN", "INTERNAL")),
        *((code, UNKNOWN) for code in ("ABORTED", "DATA_LOSS", "CANCELLED")),
        *((code, NOTHING) for code in ("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS")),
        *((code, NOTHING) for code in ("PERMISSION_DENIED", "UNAUTHENTICATED", "UNIMPLEMENTED")),
        *((code, NOTHING) for code in ("FAILED_PRECONDITION", "OUT_OF_RANGE")),
        ("RESOURCE_EXHAUSTED", NOTHING),
    ],
)
@pytest.mark.parametrize("name", ["grpc._channel._InactiveRpcError", "grpc.aio._call.AioRpcError"])
def test_errors_of_grpc_by_their_code(name: str, code: str, known: Known) -> None:
    error = of_library(name, "grpc.RpcError", code=lambda: SimpleNamespace(name=code))
    assert what_is_known(error) is known


def test_an_error_that_lacks_what_its_library_gives_it_is_unknown() -> None:
    assert what_is_known(of_library("grpc.RpcError")) is UNKNOWN
    assert what_is_known(of_library("botocore.exceptions.ClientError")) is UNKNOWN
    assert what_is_known(of_library("google.genai.errors.APIError")) is UNKNOWN
    assert what_is_known(httpx.ReadTimeout("it has no request")) is UNKNOWN


def test_an_error_of_the_same_name_of_another_library_is_not_ours() -> None:
    playwright = of_library(
        "playwright._impl._errors.TimeoutError", "playwright._impl._errors.Error"
    )
    assert what_is_known(playwright) is FAILED
    assert what_is_known(of_library("bank.ReadTimeout")) is FAILED
    assert what_is_known(of_library("bank.httpx.ReadTimeout", "bank.httpx.HTTPError")) is FAILED
    assert what_is_known(of_library("httpxx.HTTPError")) is FAILED


def test_a_class_is_known_by_its_package_wherever_that_defines_it() -> None:
    for module in ("httpx", "httpx._exceptions", "httpx2._exceptions", "httpx2.core.errors"):
        assert what_is_known(of_library(f"{module}.HTTPError")) is UNKNOWN
        assert what_is_known(of_library(f"{module}.ConnectError")) is NOTHING


# ------------------------------------------------------------------------ chains and groups

LOST = httpx.ReadTimeout("too slow")
NOT_SENT = httpx.ConnectError("refused")
DO_NOT_CARE = ValueError("not an amount")


def test_the_cause_explains_an_error_that_proves_nothing() -> None:
    failed = RuntimeError("payment failed")
    assert what_is_known(chained(failed, LOST)) is UNKNOWN
    assert what_is_known(chained(failed, NOT_SENT)) is NOTHING
    assert what_is_known(chained(failed, DO_NOT_CARE)) is FAILED
    assert what_is_known(chained(KeyError(), chained(failed, LOST))) is UNKNOWN


def test_the_class_of_an_error_counts_before_its_cause() -> None:
    assert what_is_known(chained(NOT_SENT, TimeoutError())) is NOTHING
    assert what_is_known(chained(httpx.ReadTimeout(""), ConnectionRefusedError())) is UNKNOWN


def test_an_error_while_another_one_is_handled_does_not_undo_what_is_unknown() -> None:
    assert what_is_known(while_handling(KeyError("status"), LOST)) is UNKNOWN
    assert what_is_known(while_handling(ConnectionRefusedError(), LOST)) is UNKNOWN
    receipt = httpx.ReadTimeout("too slow", request=httpx.Request("GET", "http://bank.test"))
    assert what_is_known(while_handling(receipt, httpx.ReadTimeout("too slow"))) is UNKNOWN
    low = TimeoutError()
    assert what_is_known(while_handling(RuntimeError(low), low)) is UNKNOWN


def test_what_was_handled_proves_nothing_of_what_its_handler_did() -> None:
    assert what_is_known(while_handling(KeyError("status"), NOT_SENT)) is FAILED
    assert what_is_known(while_handling(KeyError("status"), Retry("again"))) is FAILED
    assert what_is_known(while_handling(ConnectionRefusedError(), DO_NOT_CARE)) is NOTHING
    assert what_is_known(while_handling(TimeoutError(), NOT_SENT)) is UNKNOWN


def test_a_context_that_is_suppressed_is_not_looked_at() -> None:
    def fail() -> None:
        try:
            raise TimeoutError
        except TimeoutError:
            raise KeyError("status") from None

    assert what_is_known(raised(fail)) is FAILED


def test_an_error_that_holds_the_one_it_was_made_of_is_the_same_failure() -> None:
    """As clients do that name no cause."""
    low = TimeoutError()
    by_argument = requests.ReadTimeout(low, request=requests.Request("GET"))
    by_attribute = of_library(*PYMYSQL, args=(2003, "cannot connect"), original_exception=low)
    in_a_dict = of_library("botocore.exceptions.ConnectTimeoutError", kwargs={"error": low})
    for error in (by_argument, by_attribute, in_a_dict):
        assert what_is_known(while_handling(error, low)) is NOTHING
        assert what_is_known(while_handling(error, TimeoutError())) is UNKNOWN


def test_a_chain_that_is_a_circle_ends() -> None:
    first, second = KeyError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert what_is_known(first) is FAILED
    group = ExceptionGroup("", [first])
    second.__cause__ = group
    assert what_is_known(group) is FAILED
    wrapped = requests.ConnectionError()
    wrapped.args = (wrapped,)
    assert what_is_known(wrapped) is UNKNOWN


def test_a_long_chain_is_followed_to_its_end() -> None:
    error: BaseException = TimeoutError()
    for _ in range(10_000):
        error = chained(ValueError(), error)
    assert what_is_known(error) is UNKNOWN


def test_a_group_counts_by_its_worst_member() -> None:
    def known(*members: Exception) -> Known:
        return what_is_known(ExceptionGroup("two requests", members))

    assert known(NOT_SENT, httpx.ReadTimeout("")) is UNKNOWN
    assert known(NOT_SENT, ValueError()) is FAILED
    assert known(ValueError(), TimeoutError()) is UNKNOWN
    assert known(httpx.ConnectError(""), Retry()) is NOTHING
    assert known(ValueError(), ExceptionGroup("", [KeyError(), TimeoutError()])) is UNKNOWN
    assert what_is_known(BaseExceptionGroup("", [asyncio.CancelledError()])) is UNKNOWN


def test_a_group_is_explained_by_its_cause_and_context_too() -> None:
    def group() -> BaseException:
        return ExceptionGroup("", [ValueError()])

    assert what_is_known(chained(group(), TimeoutError())) is UNKNOWN
    assert what_is_known(while_handling(group(), TimeoutError())) is UNKNOWN
    refused = ExceptionGroup("", [ConnectionRefusedError(), ConnectionRefusedError()])
    assert what_is_known(chained(OSError("All connection attempts failed"), refused)) is NOTHING


async def test_task_groups_raise_such_groups() -> None:
    async def fail(error: Exception) -> None:
        raise error

    async def pay_two() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(ConnectionRefusedError()))
            group.create_task(fail(ConnectionResetError()))

    with pytest.raises(ExceptionGroup) as caught:
        await pay_two()
    assert what_is_known(caught.value) is UNKNOWN


# ------------------------------------------------------------------- what the tool says itself


def test_what_a_tool_raises_on_purpose_counts_whatever_led_to_it() -> None:
    for said in (Retry("again"), ToolFailed("no"), InvalidArguments("no amount")):
        assert what_is_known(said) is NOTHING
        assert what_is_known(while_handling(said, TimeoutError())) is NOTHING
        assert what_is_known(chained(said, TimeoutError())) is NOTHING
        assert what_is_known(said, is_strict=True) is NOTHING
        assert what_is_known(said, unknown_after=(Exception,)) is NOTHING
    assert what_is_known(chained(OutcomeUnknown(), ConnectionRefusedError())) is UNKNOWN
    assert what_is_known(OutcomeUnknown(), nothing_happened=(Exception,)) is UNKNOWN


class Declined(Exception):
    pass


class DeclinedForNow(Declined):
    pass


STRIPE = type(of_library("stripe._error.CardError", "stripe._error.StripeError"))


def test_the_tables_of_a_tool_count_before_what_is_known_of_the_class() -> None:
    """T16."""
    assert what_is_known(Declined(), nothing_happened=(Declined,)) is NOTHING
    assert what_is_known(Declined(), unknown_after=(Declined,)) is UNKNOWN
    assert what_is_known(TimeoutError(), nothing_happened=(TimeoutError,)) is NOTHING
    assert what_is_known(ConnectionRefusedError(), unknown_after=(OSError,)) is UNKNOWN
    assert what_is_known(httpx.ReadTimeout(""), nothing_happened=(httpx.HTTPError,)) is NOTHING
    assert what_is_known(ValueError(), unknown_after=(Exception,)) is UNKNOWN


def test_the_more_specific_class_of_two_tables_counts() -> None:
    def known(error: BaseException) -> Known:
        return what_is_known(
            error, nothing_happened=(DeclinedForNow,), unknown_after=(Declined, "builtins.OSError")
        )

    assert known(DeclinedForNow()) is NOTHING
    assert known(Declined()) is UNKNOWN
    assert known(FileNotFoundError()) is UNKNOWN


def test_a_class_of_a_table_explains_an_error_as_its_cause() -> None:
    failed = chained(RuntimeError("payment failed"), Declined())
    assert what_is_known(failed, unknown_after=(Declined,)) is UNKNOWN
    assert what_is_known(failed, nothing_happened=(Declined,)) is NOTHING
    assert (
        what_is_known(while_handling(KeyError(), Declined()), unknown_after=(Declined,)) is UNKNOWN
    )


def test_what_a_table_says_of_exception_is_for_the_members_of_a_group() -> None:
    group = ExceptionGroup("", [ValueError(), Declined()])
    assert what_is_known(group, nothing_happened=(Exception,)) is NOTHING
    known = what_is_known(group, nothing_happened=(Exception,), unknown_after=(Declined,))
    assert known is UNKNOWN


def test_a_class_is_named_by_any_module_that_has_it() -> None:
    error = httpx.ConnectError("refused")
    for name in ("httpx.ConnectError", "httpx._exceptions.ConnectError", "httpx.NetworkError"):
        assert what_is_known(error, unknown_after=(name,)) is UNKNOWN
    assert what_is_known(TimeoutError(), nothing_happened=("asyncio.TimeoutError",)) is NOTHING
    for name in ("stripe.CardError", "stripe._error.CardError", "stripe.StripeError"):
        assert what_is_known(STRIPE(), unknown_after=(name,)) is UNKNOWN
    for name in ("stripe.error.CardError", "other.CardError", "stripe.RateLimitError"):
        assert what_is_known(STRIPE(), unknown_after=(name,)) is FAILED


def test_a_name_is_that_of_one_class_where_its_module_is_loaded() -> None:
    """`tests.tools.test_effects` has a class of this name; another one is in a module below it."""
    name = f"{__name__}.Declined"
    other = of_library(f"{__name__}.elsewhere.Declined")
    assert what_is_known(Declined(), unknown_after=(name,)) is UNKNOWN
    assert what_is_known(other, unknown_after=(name,)) is FAILED


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        ConnectionRefusedError(),
        httpx.ConnectError("refused"),
        of_library("bank.Error", status=404),
        httpx.ReadTimeout("", request=httpx.Request("GET", "http://bank.test")),
        chained(RuntimeError(), Declined()),
        ExceptionGroup("", [Retry(), ValueError()]),
        OutcomeUnknown(),
    ],
)
def test_of_a_tool_that_is_known_to_have_effects_every_other_error_is_unknown(
    error: BaseException,
) -> None:
    assert what_is_known(error, nothing_happened=(Declined,), is_strict=True) is UNKNOWN


def test_of_a_tool_that_is_known_to_have_effects_its_own_table_proves_that_nothing_happened() -> (
    None
):
    def known(error: BaseException) -> Known:
        return what_is_known(error, nothing_happened=(Declined,), is_strict=True)

    assert known(DeclinedForNow()) is NOTHING
    assert known(while_handling(Declined(), TimeoutError())) is NOTHING
    assert known(ExceptionGroup("", [Declined(), ToolFailed()])) is NOTHING
    assert known(while_handling(ExceptionGroup("", [Retry()]), TimeoutError())) is NOTHING


# ------------------------------------------------------------------------ tables, as they are given


def test_errors_are_given_as_a_class_a_name_or_a_list_of_both() -> None:
    def checked(given: object) -> tuple[object, ...]:
        return checked_errors(given, what="unknown_after=")

    assert checked(Declined) == (Declined,)
    assert checked("stripe.CardError") == ("stripe.CardError",)
    assert checked([Declined, "a.b.C.D"]) == (Declined, "a.b.C.D")
    assert checked((TimeoutError, asyncio.TimeoutError)) == (TimeoutError,)
    assert checked("bank.pay.<locals>.Declined") == ("bank.pay.<locals>.Declined",)
    assert checked(()) == ()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "unknown_after= takes exception classes, .* got None"),
        (int, "got <class 'int'>"),
        (ValueError("x"), "got ValueError"),
        ([Declined, 7], "got 7"),
        ({Declined}, "or a list of both"),
        ([[Declined]], "or a list of both"),
        ("TimeoutError", "'TimeoutError' names no module.*'module.TimeoutError'"),
        ("", "'' is no name of a class"),
        ("stripe.", "is no name of a class"),
        ("stripe CardError", "is no name of a class"),
        (".CardError", "is no name of a class"),
        (ExceptionGroup, "names ExceptionGroup: a group counts by its members"),
    ],
)
def test_anything_else_is_refused(given: object, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        checked_errors(given, what="unknown_after=")


@pytest.mark.parametrize(
    ("nothing_happened", "unknown_after"),
    [
        (Declined, Declined),
        ([ValueError, Declined], (KeyError, Declined)),
        ("stripe.CardError", "stripe.CardError"),
        (Declined, f"{__name__}.Declined"),
        ("httpx.ReadTimeout", httpx.ReadTimeout),
        (STRIPE, "stripe.CardError"),
        ("stripe._error.CardError", STRIPE),
        ("httpx.ReadTimeout", "httpx._exceptions.ReadTimeout"),
        ("builtins.TimeoutError", asyncio.TimeoutError),
    ],
)
def test_a_class_in_both_tables_is_refused(nothing_happened: object, unknown_after: object) -> None:
    first = checked_errors(nothing_happened, what="nothing_happened=")
    second = checked_errors(unknown_after, what="unknown_after=")
    with pytest.raises(UsageError, match=r"'pay' has .* in nothing_happened= and .* in unknown_"):
        check_tables(first, second, what="tool 'pay'")


def test_a_class_in_the_tables_of_a_tool_and_its_agent_is_refused() -> None:
    """T16."""

    @tool(nothing_happened=Declined)
    def pay() -> None:
        """Pay."""

    text = r"Agent 'desk', with its tool 'pay', has .*Declined in nothing_happened= and .*Declined"
    with pytest.raises(UsageError, match=text):
        Agent("desk", ScriptedModel(["Done."]), tools=[pay], unknown_after=Declined)
    Agent("desk", ScriptedModel(["Done."]), tools=[pay], unknown_after=Exception)


async def test_what_a_tool_says_of_a_class_beats_what_its_runtime_says_of_it() -> None:
    """T16."""

    @tool(nothing_happened=Declined)
    def pay() -> None:
        """Pay."""
        raise Declined

    agent = Agent("desk", ScriptedModel([call("pay"), "Done."]), tools=[pay])
    async with Runtime([agent], unknown_after=Declined) as runtime:
        outcome = completed(await soon(runtime.spawn("desk", "d").run("Pay.")))
        assert outcome.state.doubts == {}


def test_what_a_tool_raises_on_purpose_is_refused_of_an_agent_and_of_a_runtime_too() -> None:
    """T16."""
    with pytest.raises(UsageError, match=r"Agent 'desk' has .*Retry in unknown_after="):
        Agent("desk", ScriptedModel(["Done."]), unknown_after=Retry)
    with pytest.raises(UsageError, match=r"Runtime has .*ToolFailed in unknown_after="):
        Runtime([], unknown_after=ToolFailed)


def test_a_class_and_its_base_class_may_be_in_both_tables() -> None:
    check_tables((DeclinedForNow,), (Declined,), what="tool 'pay'")
    check_tables((Declined,), (DeclinedForNow, Exception), what="tool 'pay'")
    check_tables(("bank.orders.Declined",), ("bank.payments.Declined",), what="tool 'pay'")
    check_tables((STRIPE,), ("stripe.StripeError", "other.CardError"), what="tool 'pay'")
    check_tables(("stripe.StripeError", "other.CardError"), (STRIPE,), what="tool 'pay'")
    check_tables((), (), what="tool 'pay'")


@pytest.mark.parametrize("own", [Retry, ToolFailed, InvalidArguments, "understudy.tools.Retry"])
def test_what_a_tool_raises_on_purpose_cannot_be_unknown(own: type[Exception] | str) -> None:
    text = r"'pay' has understudy.* in unknown_after=, and a tool .* that nothing happened: take"
    with pytest.raises(UsageError, match=text):
        check_tables((), (own,), what="tool 'pay'")


def test_an_unknown_outcome_cannot_prove_that_nothing_happened() -> None:
    with pytest.raises(UsageError, match=r"OutcomeUnknown in nothing_happened=.*nobody knows"):
        check_tables((OutcomeUnknown,), (), what="tool 'pay'")
