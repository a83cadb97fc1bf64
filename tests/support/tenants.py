"""A tenant, as a host carries one: a context variable of the caller, and its codec."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from understudy import ContextVarCodec

__all__ = ["CODECS", "TENANT", "of", "tenant"]

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
TENANT = ContextVarCodec(tenant)
CODECS: dict[str, Any] = {"context": [TENANT]}


@contextmanager
def of(value: str) -> Iterator[None]:
    """As a caller of this tenant."""
    token = tenant.set(value)
    try:
        yield
    finally:
        tenant.reset(token)
