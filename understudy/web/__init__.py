"""People see what agents ask, and decide: an inbox and an inspector for the browser, and their API.

Needs the extra `web`: `pip install 'understudy[web]'`.
"""

try:
    import jinja2 as _jinja2  # noqa: F401
    import sse_starlette as _sse_starlette  # noqa: F401
except ImportError as error:
    raise ImportError("understudy.web needs more: pip install 'understudy[web]'") from error

from understudy.web.app import ui
from understudy.web.tokens import HideToken, TokenAuth
from understudy.web.users import Auth, Right, User, loopback_only

token_auth = TokenAuth

__all__ = ["Auth", "HideToken", "Right", "TokenAuth", "User", "loopback_only", "token_auth", "ui"]
