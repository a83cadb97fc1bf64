"""People see what agents ask, and decide: an inbox and an inspector for the browser, and their API.

Needs the extra `web`: `pip install 'understudy[web]'`.
"""

try:
    import jinja2 as _jinja2
    import sse_starlette as _sse_starlette
except ImportError as _error:
    raise ImportError("understudy.web needs more: pip install 'understudy[web]'") from _error

del _jinja2, _sse_starlette

from understudy.web.app import ui  # noqa: E402
from understudy.web.tokens import HideToken, TokenAuth  # noqa: E402
from understudy.web.users import Auth, Right, User, loopback_only  # noqa: E402

token_auth: type[TokenAuth] = TokenAuth
"""The name of `TokenAuth` as one writes it in `ui(auth=token_auth(...))`."""

__all__ = ["Auth", "HideToken", "Right", "TokenAuth", "User", "loopback_only", "token_auth", "ui"]
