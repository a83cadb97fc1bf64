"""What an exception of a tool's body proves about the effect of the call.

The proof is about the request that failed, not about the body. A body that makes a payment, and
then reads the receipt by a GET that times out, raises an error by which nothing happened: a GET
harms nothing. The payment was made nevertheless. The remedy is to make the payment inside of
`ctx.once`, or to declare the tool with `key=` or `check=`. The same holds for clients that hide one
request inside another: a client that repeats requests by itself shows its last error alone, and a
client that follows a redirect of a POST shows the error of the GET after it.

Classes of other libraries are known by their module and name, and are not imported.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from enum import Enum
from functools import lru_cache
from typing import Any

from understudy._base.json_values import shown, text_of
from understudy.errors import UsageError
from understudy.tools.result import FAILURES, RETRIES, InvalidArguments, OutcomeUnknown


class Known(Enum):
    """The knowledge about the effect of a call whose body raised."""

    NOTHING_HAPPENED = "nothing_happened"
    """The request had no effect: the model may call again."""
    FAILED = "failed"
    """The error is about no request, like a `ValueError`: the call failed, and nobody is asked."""
    UNKNOWN = "unknown"
    """The request may have had its effect: the call is in doubt."""


ErrorClass = type[BaseException] | str
"""An error class, or its name with its module: `"stripe.APIConnectionError"`."""
Errors = ErrorClass | Sequence[ErrorClass]
"""What `nothing_happened=` and `unknown_after=` take."""
CheckedErrors = tuple[ErrorClass, ...]
"""`Errors`, as `checked_errors` makes them."""

_NOTHING = Known.NOTHING_HAPPENED
_FAILED = Known.FAILED
_UNKNOWN = Known.UNKNOWN

_OWN_WORDS: dict[type, Known] = {
    **dict.fromkeys((*RETRIES, *FAILURES), _NOTHING),
    InvalidArguments: _NOTHING,
    OutcomeUnknown: _UNKNOWN,
}
"""The errors that a tool raises on purpose. No table may say otherwise."""


# ------------------------------------------------------------------------- tables of users


def checked_errors(given: object, *, what: str) -> CheckedErrors:
    """The errors that were given, each once, in their order.

    Args:
        given: a class, a name, or a list or tuple of both.
        what: names the option, for the error.

    Raises:
        UsageError: for anything else, for a name without a module, and for a group of exceptions,
            which counts by its members.

    """
    each = given if isinstance(given, (list, tuple)) else (given,)
    return tuple(dict.fromkeys(_checked(error, what) for error in each))


def _checked(given: object, what: str) -> ErrorClass:
    if isinstance(given, type) and issubclass(given, BaseExceptionGroup):
        raise UsageError(
            f"{what} names {given.__qualname__}: a group counts by its members, name their classes"
        )
    if isinstance(given, type) and issubclass(given, BaseException):
        return given
    if not isinstance(given, str):
        raise UsageError(
            f"{what} takes exception classes, names of them such as 'stripe.APIConnectionError', "
            f"or a list of both, got {shown(given)}"
        )
    if given.isidentifier():
        raise UsageError(
            f"{what}: {given!r} names no module, and other libraries have errors of this name: "
            f"write 'module.{given}', or give the class"
        )
    if not all(part.isidentifier() or part == "<locals>" for part in given.split(".")):
        raise UsageError(f"{what}: {shown(given)} is no name of a class, as 'module.Class' is")
    return given


def check_tables(
    nothing_happened: CheckedErrors, unknown_after: CheckedErrors, *, what: str
) -> None:
    """Check that no class is in both tables; a class and its base class may be in different tables.

    `Retry`, `ToolFailed` and `InvalidArguments` always count as in the first table,
    `OutcomeUnknown` as in the second.

    Args:
        nothing_happened: as `checked_errors` made them.
        unknown_after: the same.
        what: the tool, agent or runtime that has them, for the error.

    Raises:
        UsageError: if a class is in both tables; the error names both options.

    """
    for given in nothing_happened:
        for other in unknown_after:
            if _is_same(given, other):
                raise UsageError(
                    f"{what} has {_name(given)} in nothing_happened= and {_name(other)} in "
                    "unknown_after=: the same error cannot prove both, take it out of one"
                )
    for own, known in _OWN_WORDS.items():
        proves = known is _NOTHING
        option = "unknown_after=" if proves else "nothing_happened="
        for given in unknown_after if proves else nothing_happened:
            if _is_same(given, own):
                meaning = "nothing happened" if proves else "nobody knows what happened"
                raise UsageError(
                    f"{what} has {_name(given)} in {option}, and a tool raises {own.__name__} to "
                    f"say that {meaning}: take it out"
                )


def _name(given: ErrorClass) -> str:
    return given if isinstance(given, str) else f"{given.__module__}.{given.__qualname__}"


def _is_same(given: type | str, other: type | str) -> bool:
    """Whether both are one class, as far as is known before their libraries are imported."""
    if isinstance(given, str):
        given = _loaded(given) or given
    if isinstance(other, str):
        other = _loaded(other) or other
    if isinstance(given, str):
        return given == other if isinstance(other, str) else given in _names(other)
    return other in _names(given) if isinstance(other, str) else given is other


def _names(kind: type) -> Iterator[str]:
    """The names of a class, by its module and by the packages of its module, the longest first.

    A class is known by its package too: the package may export it from a private module, which may
    change in the next version.
    """
    module = str(kind.__module__)
    while module:
        yield f"{module}.{kind.__qualname__}"
        module = module.rpartition(".")[0]


def _loaded(name: str) -> type | None:
    """The class of this name, if its module is imported already. Nothing is imported for it.

    So a class is found by each module that has it, not only by the module that defines it.
    """
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        found: object = sys.modules.get(".".join(parts[:length]))
        if found is not None:
            for part in parts[length:]:
                found = getattr(found, "__dict__", {}).get(part)
            return found if isinstance(found, type) else None
    return None


# --------------------------------------------------------------------------- what is known


def what_is_known(
    error: BaseException,
    *,
    nothing_happened: CheckedErrors = (),
    unknown_after: CheckedErrors = (),
    is_strict: bool = False,
) -> Known:
    """What an exception of a tool's body proves about the effect of the call.

    The proof is about the request that failed, not about the body: if a body pays and then fails to
    read the receipt, only the error of the second request is seen. See the module.

    1. A group of exceptions counts by its worst member: UNKNOWN, then FAILED, then
       NOTHING_HAPPENED.
    2. What the tool says itself counts, and nothing else is looked at: `Retry`, `ToolFailed` and
       `InvalidArguments` for NOTHING_HAPPENED, `OutcomeUnknown` for UNKNOWN, and the two tables. A
       class in a table covers all its subclasses, as in `except`; of two classes in the tables the
       more specific one counts.
    3. Then counts what is known of the most specific class that is known, by its module and name:
       of the built-in errors and of those of common libraries. Status and method of a request of
       HTTP are read from the error.
    4. An error that is FAILED by its class is what its `__cause__` is: `RuntimeError("payment
       failed") from ReadTimeout()` is UNKNOWN, as the timeout is.
    5. An error that was raised while another one was handled, which is its `__context__` unless
       that is suppressed, does not undo that one: it is UNKNOWN if that one is, also if it is
       itself proof that nothing happened. `except ReadTimeout:` and then a refused connection to a
       second server is UNKNOWN, for the first server may have done it. Nothing else follows from a
       context: it proves nothing of what the handler did.
    6. Any other error is FAILED.

    Args:
        error: what the body raised.
        nothing_happened: the tool's own table, as `checked_errors` made it.
        unknown_after: the same.
        is_strict: the tool's author knows that it has effects (it has `key=` or `check=`): only 1
            and 2 count, and any other error is UNKNOWN.

    """
    return _Tables(nothing_happened, unknown_after, is_strict).known(error, frozenset())


class _Tables:
    """The tables of one tool, and what they say about errors."""

    __slots__ = ("_is_strict", "_nothing_happened", "_unknown_after")

    def __init__(
        self, nothing_happened: CheckedErrors, unknown_after: CheckedErrors, is_strict: bool
    ) -> None:
        self._nothing_happened = nothing_happened
        self._unknown_after = unknown_after
        self._is_strict = is_strict

    def known(self, error: BaseException, above: Set[int]) -> Known:
        """What is known of an error, including the errors that led to it.

        Args:
            error: the error.
            above: the ids of the errors of which this one is a part: a chain can be a circle.

        """
        answer: Known | None = None
        seen = set(above)
        link: BaseException | None = error
        while link is not None and id(link) not in seen:
            seen.add(id(link))
            said = self._said_of(link)
            if said is not None:
                return _UNKNOWN if said is _UNKNOWN else answer or said
            known = self._of_link(link, seen)
            if known is _UNKNOWN or self._is_strict:
                return known
            if known is _FAILED and link.__cause__ is not None:
                link = link.__cause__
                continue
            answer = answer or known
            link = _handled_before(link, known)
        return answer or _FAILED

    def _said_of(self, error: BaseException) -> Known | None:
        if isinstance(error, BaseExceptionGroup):
            return None  # a table's entry for `Exception` means the members of a group
        kind: type = type(error)
        return _said(kind, self._nothing_happened, self._unknown_after)

    def _of_link(self, error: BaseException, seen: Set[int]) -> Known:
        """What is known of one error of a chain alone."""
        if isinstance(error, BaseExceptionGroup):
            found = {self.known(member, seen) for member in error.exceptions}
            return next(known for known in (_UNKNOWN, _FAILED, _NOTHING) if known in found)
        if self._is_strict:
            return _UNKNOWN
        verdict = _verdict(error)
        if isinstance(verdict, BaseException):
            verdict = _NOTHING if self.known(verdict, seen) is _NOTHING else _UNKNOWN
        return verdict if verdict is _NOTHING else _by_http(error, verdict)


def _handled_before(error: BaseException, known: Known) -> BaseException | None:
    """The error that was handled when this one was raised, if it is another failure.

    A client that makes its own error of a lower error holds the lower error: in its arguments
    (`requests`), in an attribute (`pymysql`), or in a dict in an attribute (`botocore`). It is the
    same failure, of which the client knows more.
    """
    context = None if error.__suppress_context__ else error.__context__
    if known is _FAILED:
        return context
    held = [*error.args]
    for value in getattr(error, "__dict__", {}).values():
        held += value.values() if isinstance(value, dict) else (value,)
    return None if any(each is context for each in held) else context


@lru_cache(maxsize=1024)
def _said(
    kind: type, nothing_happened: CheckedErrors, unknown_after: CheckedErrors
) -> Known | None:
    """What the tool says about an error class, by its tables and by the errors it raises on
    purpose.
    """
    for base in kind.__mro__:
        if base in _OWN_WORDS:
            return _OWN_WORDS[base]
        if any(_is_same(given, base) for given in unknown_after):
            return _UNKNOWN
        if any(_is_same(given, base) for given in nothing_happened):
            return _NOTHING
    return None


@lru_cache(maxsize=1024)
def _row(kind: type) -> _Verdict | None:
    """The row of the most specific class in the table of libraries; None if none is there."""
    for base in kind.__mro__:
        for name in _names(base):
            if name in _TABLE:
                return _TABLE[name]
    return None


def _verdict(error: BaseException) -> Known | BaseException | None:
    kind: type = type(error)
    row = _row(kind)
    if not callable(row):
        return row
    try:
        return row(error)
    except Exception:  # this version of the library keeps the facts elsewhere
        return _UNKNOWN


# -------------------------------------------------------------------------- what HTTP says

_HARMLESS_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
_NOT_IMPLEMENTED = 501
_VERSION_NOT_SUPPORTED = 505
_REPEATED_AS_IT_IS = frozenset((307, 308))
"""Redirects that a server sends instead of an effect: the request is made again elsewhere."""


def _by_http(error: BaseException, verdict: Known | None) -> Known:
    """The verdict by HTTP status and method, for an error that is no proof by its class.

    It is used for unknown classes too: most clients keep the status in the places that are
    searched.
    """
    status = _status(error)
    if status is not None:
        verdict = _of_status(status)
    if verdict is not _NOTHING and _method(error) in _HARMLESS_METHODS:
        verdict = _NOTHING
    if verdict is _NOTHING and _was_redirected(error):
        verdict = _UNKNOWN
    return verdict or _FAILED


def _of_status(status: int) -> Known:
    is_refused = 400 <= status < 500 or status in (_NOT_IMPLEMENTED, _VERSION_NOT_SUPPORTED)
    return _NOTHING if is_refused else _UNKNOWN


def _status(error: BaseException) -> int | None:
    """The status of the answer that is the error; None without an answer."""
    for holder in (error, _attribute(error, "response")):
        for name in ("status_code", "http_status", "status"):
            status = _attribute(holder, name)
            if isinstance(status, int) and 400 <= status < 600:
                return status
    return None


def _method(error: BaseException) -> str:
    """The method of the request, in capital letters; empty if the error has none."""
    requests = (
        _attribute(error, "request"),
        _attribute(error, "request_info"),
        _attribute(_attribute(error, "response"), "request"),
    )
    for request in requests:
        method = _attribute(request, "method")
        if isinstance(method, str):
            return method.upper()
    return ""


def _was_redirected(error: BaseException) -> bool:
    """Whether a request with an effect was answered by a redirect before the failed request.

    For instance, the client has followed a POST by a GET: then the POST is done.
    """
    history = _attribute(_attribute(error, "response"), "history") or _attribute(error, "history")
    for answer in history if isinstance(history, (list, tuple)) else ():
        method = _attribute(_attribute(answer, "request"), "method") or _attribute(answer, "method")
        status = _attribute(answer, "status_code") or _attribute(answer, "status")
        if str(method).upper() not in _HARMLESS_METHODS and status not in _REPEATED_AS_IT_IS:
            return True
    return False


def _attribute(value: object, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # httpx raises RuntimeError if no request was set
        return None


# ------------------------------------------------------- what errors of some libraries say

_Verdict = Known | Callable[[Any], Known | BaseException | None]
"""The verdict of an error class, or a function that reads it from the error.

The function may return another error, which then decides whether nothing happened.
"""


def _by_wrapped(error: Any) -> Known | BaseException:
    """The verdict by the wrapped error: clients use one class for every stage of a request."""
    inside = (_attribute(error, "reason"), _attribute(error, "orig"), *error.args, error.__cause__)
    return next((each for each in inside if isinstance(each, BaseException)), _UNKNOWN)


def _by_url_error(error: Any) -> Known | BaseException:
    """The verdict by the reason, which is a text if the URL is wrong."""
    return error.reason if isinstance(error.reason, BaseException) else _FAILED


_UNREACHABLE = frozenset(
    (errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH)
)


def _by_errno(error: OSError) -> Known | None:
    """The verdict for a connection lost with its network; asyncio uses the same for a new
    connection.
    """
    if error.errno not in _UNREACHABLE:
        return None
    return _NOTHING if "Connect call failed" in text_of(error) else _UNKNOWN


def _by_exit_status(error: Any) -> Known:
    """The verdict by a program's exit status: a program that ended by itself failed, one cut off
    did not say.

    A signal is a negative number, and above 128 what a shell makes of it. `ssh` exits with 255 when
    it loses its connection.
    """
    return _FAILED if 0 <= error.returncode <= 128 else _UNKNOWN


_GRPC_REFUSED = frozenset(
    (
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "FAILED_PRECONDITION",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "RESOURCE_EXHAUSTED",
    )
)


def _by_grpc_code(error: Any) -> Known:
    return _of_grpc_code(error.code())


def _of_grpc_code(code: object) -> Known:
    return _NOTHING if _attribute(code, "name") in _GRPC_REFUSED else _UNKNOWN


def _by_google_api(error: Any) -> Known:
    """The verdict by the code of gRPC, which a class has for calls over HTTP too; else by the
    status.
    """
    code = error.grpc_status_code
    return _of_status(error.code) if code is None else _of_grpc_code(code)


def _by_code(error: Any) -> Known:
    return _of_status(error.code)


def _by_botocore_response(error: Any) -> Known:
    return _of_status(error.response["ResponseMetadata"]["HTTPStatusCode"])


_MCP_REFUSED = frozenset((-32601, -32602))
"""MCP codes of a refused request: no such method, and invalid parameters."""
_MCP_UNCLEAR = frozenset((-32000, -32001, 408, -32603, -32700, -32600))
"""MCP codes of an unclear end: closed, timed out (408 in version 1 of the SDK), internal error, and
invalid answers."""


def _by_mcp_code(error: Any) -> Known:
    """The verdict by an MCP code. Any other code is the server's own error, as `isError` in a
    result is.
    """
    code = _attribute(_attribute(error, "error"), "code")
    if code in _MCP_REFUSED:
        return _NOTHING
    return _UNKNOWN if code in _MCP_UNCLEAR else _FAILED


_SQLSTATE_UNKNOWN = re.compile("08(?!001|004)|57P(?!03)|40003")
"""SQL states after which the effect is unknown: the connection is lost, the server stops, or it
does not know. 08001, 08004 and 57P03 refuse a new connection."""


_IS_CONNECTING = re.compile(
    "connection to server (at|on) |(failed to resolve|could not translate) host|"  # PostgreSQL
    "^(Error|Timeout).* connecting to "  # Redis
)
"""The messages about a connection that was not made, of clients with one class for all errors."""


def _by_text(error: BaseException) -> Known:
    return _NOTHING if _IS_CONNECTING.search(text_of(error)) else _UNKNOWN


def _by_sqlstate(error: Any) -> Known:
    """The verdict by PostgreSQL's answer, which undoes a failed statement. Without an answer,
    UNKNOWN.

    An attempt to connect that failed has no code either: psycopg keeps its connection in the error.
    """
    state = _attribute(error, "sqlstate") or _attribute(error, "pgcode")
    if isinstance(state, str):
        return _UNKNOWN if _SQLSTATE_UNKNOWN.match(state) else _NOTHING
    return _by_text(error) if _attribute(error, "pgconn") is None else _NOTHING


_MYSQL_CONNECTING = frozenset((2001, 2002, 2003, 2004, 2005))
_MYSQL_UNKNOWN = frozenset((1053, 1152, 1158, 1159, 1160, 1161, 1180, 1184, 1927))
"""MySQL codes of an unknown effect: the server stops, the connection is lost, or COMMIT itself
failed."""


def _by_mysql_code(error: Any) -> Known:
    """The verdict by MySQL's code: the server undoes a failed statement. 2000 to 2999 are the
    client's.
    """
    code = _attribute(error, "errno")
    if code is None:
        code = error.args[0]
    if code in _MYSQL_CONNECTING:
        return _NOTHING
    is_answer = 1000 <= code < 2000 or code >= 3000
    return _NOTHING if is_answer and code not in _MYSQL_UNKNOWN else _UNKNOWN


_SQLITE_DAMAGED = frozenset((10, 11))
"""SQLITE_IOERR and SQLITE_CORRUPT, after which the content of the disk is unknown."""


def _by_sqlite_code(error: Any) -> Known:
    code = _attribute(error, "sqlite_errorcode")
    return _UNKNOWN if code is not None and code & 0xFF in _SQLITE_DAMAGED else _NOTHING


# ------------------------------------------------------------------- the table of libraries

_HTTPCORE: dict[_Verdict, str] = {
    _NOTHING: "ConnectError ConnectTimeout PoolTimeout ProxyError",
    _FAILED: "UnsupportedProtocol LocalProtocolError",  # the tool's own mistake, as a ValueError is
    _UNKNOWN: "TimeoutException NetworkError ProtocolError",
}
_HTTPX: dict[_Verdict, str] = {**_HTTPCORE, _UNKNOWN: "HTTPError"}
_UNDONE = "IntegrityError ProgrammingError DataError NotSupportedError"
"""Error classes of PEP 249 after which the database has refused the statement and undone it."""
_MYSQL: dict[_Verdict, str] = {_NOTHING: _UNDONE, _by_mysql_code: "Error"}

_LIBRARIES: dict[str, dict[_Verdict, str]] = {
    # Python's own
    "builtins": {
        _NOTHING: "ConnectionRefusedError",
        _UNKNOWN: "ConnectionError TimeoutError",
        _by_errno: "OSError",
    },
    "asyncio": {_UNKNOWN: "CancelledError IncompleteReadError"},
    "socket": {_NOTHING: "gaierror herror"},
    "ssl": {_NOTHING: "SSLCertVerificationError", _UNKNOWN: "SSLError"},
    "http.client": {_FAILED: "InvalidURL", _UNKNOWN: "HTTPException"},
    "urllib.error": {_by_url_error: "URLError", _UNKNOWN: "HTTPError ContentTooShortError"},
    "smtplib": {
        _NOTHING: "SMTPResponseException SMTPRecipientsRefused",
        _UNKNOWN: "SMTPServerDisconnected",
    },
    "subprocess": {_UNKNOWN: "TimeoutExpired", _by_exit_status: "CalledProcessError"},
    "concurrent.futures": {_UNKNOWN: "BrokenExecutor CancelledError"},
    "multiprocessing": {_UNKNOWN: "TimeoutError"},
    "sqlite3": {_NOTHING: _UNDONE, _by_sqlite_code: "Error"},
    # this library's own
    "understudy.errors": {_UNKNOWN: "CallLost"},
    "understudy.loop_actors": {_UNKNOWN: "ActorDied"},
    # clients of HTTP
    "httpx": _HTTPX,
    "httpx2": _HTTPX,
    "httpcore": _HTTPCORE,
    "httpcore2": _HTTPCORE,
    "requests": {
        _NOTHING: "ConnectTimeout",
        _FAILED: "InvalidURL InvalidSchema MissingSchema URLRequired InvalidHeader "
        "InvalidJSONError",
        _by_wrapped: "ConnectionError",
        _UNKNOWN: "RequestException",
    },
    "urllib3": {
        _NOTHING: "ConnectTimeoutError NewConnectionError EmptyPoolError ClosedPoolError",
        _FAILED: "LocationValueError",
        _by_wrapped: "MaxRetryError ProxyError SSLError",
        _UNKNOWN: "HTTPError",
    },
    "aiohttp": {
        _NOTHING: "ClientConnectorError ClientHttpProxyError ConnectionTimeoutError "
        "ServerFingerprintMismatch",
        _FAILED: "InvalidURL NonHttpUrlClientError",
        _UNKNOWN: "ClientError InvalidUrlRedirectClientError NonHttpUrlRedirectClientError",
    },
    "websockets": {_NOTHING: "InvalidHandshake", _UNKNOWN: "ConnectionClosed"},
    # remote calls
    "grpc": {_by_grpc_code: "RpcError", _UNKNOWN: "FutureTimeoutError FutureCancelledError"},
    "google.api_core": {_by_google_api: "GoogleAPICallError", _UNKNOWN: "RetryError"},
    "google.auth": {_NOTHING: "GoogleAuthError"},  # no credentials, so no request
    "google.genai": {_by_code: "APIError"},
    "botocore": {
        _NOTHING: "EndpointConnectionError ConnectTimeoutError ProxyConnectionError",
        _by_botocore_response: "ClientError",
        _UNKNOWN: "ConnectionError HTTPClientError IncompleteReadError",
    },
    "mcp": {_by_mcp_code: "MCPError McpError"},
    "anyio": {
        _NOTHING: "ConnectionFailed",
        _UNKNOWN: "ClosedResourceError BrokenResourceError EndOfStream IncompleteRead "
        "BrokenWorkerProcess BrokenWorkerInterpreter",
    },
    # databases
    "psycopg": {_NOTHING: f"{_UNDONE} ConnectionTimeout", _by_sqlstate: "Error"},
    "psycopg2": {_NOTHING: _UNDONE, _by_sqlstate: "Error"},
    "psycopg_pool": {_NOTHING: "PoolTimeout PoolClosed TooManyRequests"},
    "asyncpg": {
        _NOTHING: "DataError",
        _by_sqlstate: "PostgresError",
        _UNKNOWN: "InterfaceError InternalClientError",
    },
    "pymysql": _MYSQL,
    "MySQLdb": _MYSQL,
    "mysql.connector": {
        _NOTHING: f"{_UNDONE} PoolError ConnectionTimeoutError",
        _by_mysql_code: "Error",
        _UNKNOWN: "ReadTimeoutError WriteTimeoutError",
    },
    "sqlalchemy": {_NOTHING: f"{_UNDONE} TimeoutError", _by_wrapped: "DBAPIError"},
    "redis": {
        _NOTHING: "AuthenticationError AuthorizationError BusyLoadingError MaxConnectionsError "
        "MasterNotFoundError SlaveNotFoundError",
        _by_text: "ConnectionError TimeoutError",
        _UNKNOWN: "InvalidResponse",
    },
    # mail
    "aiosmtplib": {
        _NOTHING: "SMTPConnectError SMTPConnectTimeoutError SMTPResponseException "
        "SMTPRecipientsRefused",
        _UNKNOWN: "SMTPServerDisconnected SMTPTimeoutError",
    },
}
"""The verdicts of error classes, by package. The row of a class covers subclasses without a row."""

_TABLE: dict[str, _Verdict] = {
    f"{package}.{name}": verdict
    for package, rows in _LIBRARIES.items()
    for verdict, names in rows.items()
    for name in names.split()
}
