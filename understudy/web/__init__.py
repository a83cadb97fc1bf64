"""People see what agents ask, and decide: an inbox and an inspector for the browser, and their API.

Needs the extra `web`: `pip install 'understudy[web]'`.
"""

from understudy.web.app import ui
from understudy.web.tokens import HideToken, TokenAuth
from understudy.web.users import Auth, Right, User, loopback_only

token_auth = TokenAuth

__all__ = ["Auth", "HideToken", "Right", "TokenAuth", "User", "loopback_only", "token_auth", "ui"]
