"""What `ask_model` returns, as type checkers see it."""

from __future__ import annotations

from typing import assert_type

from pydantic import BaseModel

from understudy import Run, ToolContext


class Verdict(BaseModel):
    ok: bool


async def in_a_hook(run: Run) -> None:
    assert_type(await run.ask_model("k", "Fine?"), str)
    assert_type(await run.ask_model("k", "Fine?", "openai:gpt-5-mini"), str)
    assert_type(await run.ask_model("k", "Fine?", output_type=Verdict), Verdict)
    assert_type(await run.ask_model("k", "Fine?", None, output_type=list[str]), list[str])
    await run.ask_model("k", 7)  # error: no message


async def in_a_tool(ctx: ToolContext) -> None:
    assert_type(await ctx.ask_model("k", "Fine?"), str)
    assert_type(await ctx.ask_model("k", "Fine?", output_type=Verdict), Verdict)
    await ctx.ask_model(7, "Fine?")  # error: the key is a text
