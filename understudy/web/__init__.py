"""People see what agents ask, and decide: an inbox and an inspector for the browser, and their API.

Needs the extra `web`: `pip install 'understudy[web]'`.
"""

from importlib.util import find_spec as _find_spec

try:
    import jinja2 as _jinja2
    import sse_starlette as _sse_starlette

    if _find_spec("markdown_it") is None:  # imported with the first text that it lays out
        raise ImportError("No module named 'markdown_it'")
except ImportError as _error:
    raise ImportError("understudy.web needs more: pip install 'understudy[web]'") from _error

del _find_spec, _jinja2, _sse_starlette

from understudy.login import (  # noqa: E402
    Auth,
    HideToken,
    Right,
    TokenAuth,
    User,
    loopback_only,
    token_auth,
)
from understudy.login.error_handlers import DjangoErrors, add_error_handlers  # noqa: E402
from understudy.web.app import ui  # noqa: E402
from understudy.web.responses import events_response, rows_response  # noqa: E402

__all__ = [
    "Auth",
    "DjangoErrors",
    "HideToken",
    "Right",
    "TokenAuth",
    "User",
    "add_error_handlers",
    "events_response",
    "loopback_only",
    "rows_response",
    "token_auth",
    "ui",
]
