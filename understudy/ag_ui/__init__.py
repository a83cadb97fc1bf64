"""Frontends talk to agents: an endpoint of AG-UI 1.0, and one for Vercel's AI SDK.

Needs the extra `ag-ui`: `pip install 'understudy[ag-ui]'`.
"""

try:
    import ag_ui as _ag_ui
    import sse_starlette as _sse_starlette
except ImportError as _error:
    raise ImportError("understudy.ag_ui needs more: pip install 'understudy[ag-ui]'") from _error

del _ag_ui, _sse_starlette

from understudy.ag_ui.endpoint import ag_ui, vercel  # noqa: E402
from understudy.ag_ui.frontend_tools import frontend_tool  # noqa: E402
from understudy.login import Auth, Right, User, loopback_only, token_auth  # noqa: E402

__all__ = [
    "Auth",
    "Right",
    "User",
    "ag_ui",
    "frontend_tool",
    "loopback_only",
    "token_auth",
    "vercel",
]
