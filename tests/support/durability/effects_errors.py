"""Errors of 20 kinds after a payment, and as many before it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import http.client
import smtplib
import socket
import sqlite3
import ssl
import subprocess
import urllib.error
from collections.abc import Callable

import anyio
import httpx
import psycopg
import requests
import urllib3

from understudy import Retry
from understudy.testing import StatusError
from understudy.tools import OutcomeUnknown, ToolFailed

__all__ = ["AFTER", "BEFORE", "OF_NO_REQUEST"]

Make = Callable[[], BaseException]
POST = httpx.Request("POST", "http://bank/payments")
GET = httpx.Request("GET", "http://bank/receipts")


def _status(code: int, request: httpx.Request = POST) -> BaseException:
    answer = httpx.Response(code, request=request)
    return httpx.HTTPStatusError(f"{code}", request=request, response=answer)


def _from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def _while_handling(error: BaseException, other: BaseException) -> BaseException:
    error.__context__ = other
    return error


def _requests_status(code: int) -> BaseException:
    response = requests.Response()
    response.status_code = code
    error: BaseException = requests.HTTPError(f"{code}", response=response)
    return error


AFTER: dict[str, Make] = {
    "TimeoutError": lambda: TimeoutError("no answer"),
    "ConnectionError": lambda: ConnectionError("lost"),
    "ConnectionResetError": lambda: ConnectionResetError(errno.ECONNRESET, "reset"),
    "BrokenPipeError": lambda: BrokenPipeError(errno.EPIPE, "broken"),
    "an OSError of the network": lambda: OSError(errno.ENETDOWN, "the network is down"),
    "asyncio.IncompleteReadError": lambda: asyncio.IncompleteReadError(b"{", 2),
    "http.client.RemoteDisconnected": lambda: http.client.RemoteDisconnected("closed"),
    "urllib.error.URLError of a reset": lambda: urllib.error.URLError(ConnectionResetError()),
    "ssl.SSLError": lambda: ssl.SSLError("bad record"),
    "httpx.ReadTimeout": lambda: httpx.ReadTimeout("slow", request=POST),
    "httpx.RemoteProtocolError": lambda: httpx.RemoteProtocolError("closed", request=POST),
    "httpx status 500": lambda: _status(500),
    "status 503": lambda: StatusError(503),
    "requests.ReadTimeout": lambda: requests.ReadTimeout("slow"),
    "requests status 502": lambda: _requests_status(502),
    "urllib3.ProtocolError": lambda: urllib3.exceptions.ProtocolError("closed"),
    "smtplib.SMTPServerDisconnected": lambda: smtplib.SMTPServerDisconnected("closed"),
    "subprocess.TimeoutExpired": lambda: subprocess.TimeoutExpired("pay", 1),
    "a program that a signal has ended": lambda: subprocess.CalledProcessError(-9, "pay"),
    "psycopg.OperationalError": lambda: psycopg.errors.AdminShutdown("terminating"),
    "anyio.EndOfStream": anyio.EndOfStream,
    "a broken pool of processes": lambda: concurrent.futures.BrokenExecutor("died"),
    "OutcomeUnknown": lambda: OutcomeUnknown("who knows"),
    "a group with one of them": lambda: ExceptionGroup("two", [ValueError("a"), TimeoutError()]),
    "a ValueError from one of them": lambda: _from(
        ValueError("payment failed"), httpx.ReadTimeout("slow", request=POST)
    ),
    "a refused connection while one of them is handled": lambda: _while_handling(
        ConnectionRefusedError("the second server"), TimeoutError("the first server")
    ),
    "an sqlite3 error of the disk": lambda: _sqlite(sqlite3.OperationalError("disk"), 10),
}
"""By which nobody knows whether the payment was made. It was."""


def _sqlite(error: sqlite3.Error, code: int) -> BaseException:
    error.sqlite_errorcode = code
    return error


BEFORE: dict[str, Make] = {
    "ConnectionRefusedError": lambda: ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
    "socket.gaierror": lambda: socket.gaierror(socket.EAI_NONAME, "unknown name"),
    "urllib.error.URLError of a refusal": lambda: urllib.error.URLError(ConnectionRefusedError()),
    "ssl.SSLCertVerificationError": lambda: ssl.SSLCertVerificationError("expired"),
    "httpx.ConnectError": lambda: httpx.ConnectError("refused", request=POST),
    "httpx.ConnectTimeout": lambda: httpx.ConnectTimeout("slow", request=POST),
    "httpx.PoolTimeout": lambda: httpx.PoolTimeout("busy", request=POST),
    "httpx.ReadTimeout of a GET": lambda: httpx.ReadTimeout("slow", request=GET),
    "httpx status 503 of a GET": lambda: _status(503, GET),
    "httpx status 400": lambda: _status(400),
    "httpx status 401": lambda: _status(401),
    "httpx status 409": lambda: _status(409),
    "httpx status 429": lambda: _status(429),
    "httpx status 501": lambda: _status(501),
    "status 422": lambda: StatusError(422),
    "requests.ConnectTimeout": lambda: requests.ConnectTimeout("slow"),
    "requests status 403": lambda: _requests_status(403),
    "smtplib.SMTPRecipientsRefused": lambda: smtplib.SMTPRecipientsRefused({}),
    "sqlite3.IntegrityError": lambda: sqlite3.IntegrityError("not unique"),
    "psycopg.errors.UniqueViolation": lambda: psycopg.errors.UniqueViolation("not unique"),
    "Retry": lambda: Retry("another order"),
    "ToolFailed": lambda: ToolFailed("no money"),
    "a RuntimeError from a refusal": lambda: _from(
        RuntimeError("payment failed"), ConnectionRefusedError("refused")
    ),
    "a group of refusals": lambda: ExceptionGroup("two", [ConnectionRefusedError(), Retry()]),
    "ValueError": lambda: ValueError("no such order"),
    "KeyError": lambda: KeyError("order"),
}
"""The payment was not made, and the error proves it; or it is of no request at all."""

OF_NO_REQUEST: dict[str, Make] = {
    "ValueError": lambda: ValueError("the receipt cannot be read"),
    "KeyError": lambda: KeyError("receipt"),
}
"""By the documented rule these are failures, also after a payment."""
