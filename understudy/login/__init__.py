"""The login of requests over HTTP, and the checks on each before it is answered.

The pages of `understudy.web` and the endpoints of `understudy.ag_ui` share it.
"""

from understudy.actors.verbs import Right

try:
    from understudy.login.tokens import HideToken, TokenAuth
    from understudy.login.users import Auth, User, loopback_only
except ImportError as _error:
    raise ImportError(
        "understudy.login needs more: pip install 'understudy[web]', or 'understudy[oidc]' for "
        "tokens of an identity provider"
    ) from _error

token_auth: type[TokenAuth] = TokenAuth
"""`TokenAuth` under the name for `ui(auth=token_auth(...))`."""

__all__ = ["Auth", "HideToken", "Right", "TokenAuth", "User", "loopback_only", "token_auth"]
