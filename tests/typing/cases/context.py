"""Codecs of context variables, and of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import assert_type

from understudy import ContextCodec, ContextVarCodec, Run, Runtime, ToolContext, tool

tenant: ContextVar[str] = ContextVar("tenant")
maybe: ContextVar[str | None] = ContextVar("maybe", default=None)
number: ContextVar[int] = ContextVar("number")


class Trace:
    name = "trace"

    def capture(self) -> str | None:
        return None

    def apply(self, value: str) -> AbstractContextManager[None]:
        return nullcontext()


class Wrong:
    name = "wrong"

    def capture(self) -> int:
        return 5

    def apply(self, value: str) -> AbstractContextManager[None]:
        return nullcontext()


trace: ContextCodec = Trace()
Runtime([], context=[ContextVarCodec(tenant), ContextVarCodec(maybe, name="m"), Trace()])
Runtime([], context=[Wrong()])  # error: it captures a number
ContextVarCodec(number)  # error: its value is no text


@tool
def show(ctx: ToolContext) -> str:
    assert_type(ctx.context, Mapping[str, str])
    ctx.context["tenant"] = "x"  # error: it is read only
    return ctx.context["tenant"]


def reads(run: Run) -> None:
    assert_type(run.context, Mapping[str, str])
