"""URLs of databases as they may be shown: without what only their owner knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

_SECRET = re.compile(r"pass|pwd|secret|token|scram|credential", re.IGNORECASE)
HIDDEN = "***"


def is_secret_option(name: str) -> bool:
    """Whether an option of a URL holds a secret, however its name is written."""
    return _SECRET.search(unquote(name)) is not None


def without_secrets(url: str) -> str:
    """The URL with marks in the place of its password, and of each option that holds a secret."""
    scheme, mark, rest = url.partition("://")
    place, question, query = rest.partition("?")
    if "@" in query and "@" not in place:  # a password with a question mark, not percent-encoded
        return f"{scheme}{mark}{HIDDEN}"
    login, at, place = place.rpartition("@")
    user, colon, _ = login.partition(":")
    options = "&".join(_shown(each) for each in query.split("&"))
    return f"{scheme}{mark}{user}{colon}{HIDDEN if colon else ''}{at}{place}{question}{options}"


def secrets_of(url: str) -> Iterator[str]:
    """The parts of the URL that are secrets, as they are written and as they are meant."""
    rest = url.partition("://")[2]
    place, _, query = rest.partition("?")
    found = [place.rpartition("@")[0].partition(":")[2], rest.rpartition("@")[0].partition(":")[2]]
    for option in query.split("&"):
        name, _, value = option.partition("=")
        if is_secret_option(name):
            found.append(value)
    for secret in found:
        if secret:
            yield secret
            yield unquote(secret)


def _shown(option: str) -> str:
    name, sign, _ = option.partition("=")
    return f"{name}{sign}{HIDDEN}" if sign and is_secret_option(name) else option
