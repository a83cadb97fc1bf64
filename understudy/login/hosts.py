"""The check of the `Host` header, against sites that point their own name at this server.

A browser believes that `http://evil.example:8420` is one origin, whatever address the name has. So
a request by name is answered only if the application has listed the name. An address is no name,
and `localhost` is resolved by the browser itself.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from understudy._base.json_values import shown
from understudy.errors import UsageError

_HOST = re.compile(
    r"(?P<name>\[[0-9a-f:.]+\]|[^\s\[\]:@/?#\\,%*\x00-\x20\x7f]+)(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII | re.IGNORECASE,
)
"""The valid form of a `Host` header, with nothing that a program could misread."""


def host_name(header: str) -> str | None:
    """The name in a `Host` header, without its port and a last dot; None if it has no name."""
    found = _HOST.fullmatch(header)
    if found is None or int(found["port"] or 0) > 65_535:
        return None
    name = found["name"].lower()
    if name.startswith("["):
        name = name[1:-1]
        try:
            ipaddress.IPv6Address(name)
        except ValueError:
            return None
    return name.removesuffix(".") or None


def is_local(name: str) -> bool:
    """Whether the name is a loopback address or `localhost`."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Hosts:
    """The names under which the pages are served.

    Args:
        allowed: the names, in addition to addresses and `localhost`; `"*.example.com"` for all
            names below.

    Raises:
        UsageError: for an invalid name. No name allows all names.

    """

    def __init__(self, allowed: Iterable[str]) -> None:
        if isinstance(allowed, str) or not isinstance(allowed, Iterable):
            raise UsageError(f"`allowed_hosts` takes a list of names, got {shown(allowed)}")
        self._names: set[str] = set()
        self._endings: list[str] = []
        for given in allowed:
            pattern = given if isinstance(given, str) else ""
            name = host_name(pattern.removeprefix("*."))
            if name is None or "*" in name or ":" in pattern:
                raise UsageError(
                    f"`allowed_hosts` holds {shown(given)}: give a name without port, such as "
                    "'ops.example.com', or '*.example.com' for all below one"
                )
            if pattern.startswith("*."):
                self._endings.append(f".{name}")
            else:
                self._names.add(name)

    def allows(self, header: str) -> bool:
        """Whether a request with this `Host` header is answered."""
        name = host_name(header)
        if name is None:
            return False
        if name in self._names or is_local(name):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return any(name.endswith(ending) for ending in self._endings)
        return True


def checked_origins(given: Iterable[str]) -> frozenset[str]:
    """Origins, as the header `Origin` of a browser has them.

    Raises:
        UsageError: for an invalid origin. No origin allows all origins.

    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"`allowed_origins` takes a list of origins, got {shown(given)}")
    found = frozenset(given)
    for origin in found:
        scheme, _, name = origin.partition("://") if isinstance(origin, str) else ("", "", "")
        if (
            scheme not in ("http", "https")
            or host_name(name) is None
            or "*" in name
            or name != name.lower()
        ):
            raise UsageError(
                f"`allowed_origins` holds {shown(origin)}: give a scheme, a name in lower case and "
                "a port if it has one, such as 'https://app.example.com'"
            )
    return found
