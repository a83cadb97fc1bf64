"""Tokens: secrets by which outside callers answer a wait of a tool. Only hashes are stored.

A token contains the id of its agent, so no table is needed to find the agent.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from understudy._base.clock import new_secret
from understudy.errors import UnknownToken

MAX_TOKEN = 4096
"""The maximum characters of a token. A longer text is no token."""


def new_token(agent_id: str) -> str:
    """A token for a wait of this agent: safe in URLs, with 256 random bits."""
    encoded = base64.urlsafe_b64encode(agent_id.encode()).decode().rstrip("=")
    return f"{encoded}.{new_secret()}"


def agent_of(token: object) -> str:
    """The id of the agent in this token.

    Raises:
        UnknownToken: if the text is no token.

    """
    if not isinstance(token, str) or len(token) > MAX_TOKEN or not token.isascii():
        raise UnknownToken
    encoded, dot, secret = token.partition(".")
    try:
        agent_id = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except (binascii.Error, ValueError):
        raise UnknownToken from None
    if not dot or not secret or not agent_id:
        raise UnknownToken
    return agent_id


def hash_of(token: str) -> str:
    """The SHA-256 of a token, as it is stored."""
    return hashlib.sha256(token.encode()).hexdigest()
