"""Schedules, waits, lists and the feed: their words, and the types of what they give."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, assert_type

from understudy import AgentRef, Runtime, ToolContext, Wait, tool
from understudy.actors import AgentInfo, FeedEvent, Page, PendingRequest, Schedule

RUNTIME = Runtime()
AT = datetime(2030, 1, 1, tzinfo=timezone.utc)


@tool
async def ship(ctx: ToolContext, order: str) -> str:
    await ctx.sleep("cool down", 60)
    await ctx.sleep("cool down", "a minute")  # error: seconds
    await ctx.sleep_until("noon", "12:00")  # error: a datetime
    assert_type(await ctx.token("paid"), str)
    assert_type(await ctx.wait_for("paid", timeout=60), Any)
    assert_type(await ctx.once("count", lambda: 3), int)
    return order


async def plan(ref: AgentRef) -> None:
    assert_type(await ref.send("later", at=AT), str)
    await ref.send("later", at="tomorrow")  # error: a datetime
    made = await RUNTIME.schedule(ref, "daily", cron="0 9 * * *", input="go", missed="all")
    assert_type(made, Schedule)
    await RUNTIME.schedule(ref, "x", cron="0 9 * * *", input="go", missed="none")  # error: no such
    await RUNTIME.schedule(ref, "x", cron="0 9 * * *", input="go", overlap="run")  # error: no such


async def look() -> None:
    assert_type(await RUNTIME.agents(limit=10), Page[AgentInfo])
    async for pending in RUNTIME.pending(order="expiring"):
        assert_type(pending, PendingRequest)
    RUNTIME.pending(order="newest")  # error: oldest or expiring
    assert_type(await RUNTIME.waiting(), Page[Wait])
    async for told in RUNTIME.events(start="oldest"):
        assert_type(told, FeedEvent)
    RUNTIME.events(start="then")  # error: now or oldest
    assert_type(await RUNTIME.resolve("token", {"paid": True}), bool)
