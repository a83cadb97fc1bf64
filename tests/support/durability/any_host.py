"""One of the hosts that share a store: it does what callers ask of it, and stops itself at a point.

What is asked of it comes through a pipe, and what came of it goes into the log beside the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.support.durability.broken_hosts import replaced
from tests.support.durability.commits import Answers, around_commits
from tests.support.durability.lives import is_held
from tests.support.durability.side_log import SideLog
from tests.support.durability.stage import call_of
from understudy import (
    Agent,
    Halt,
    Interrupted,
    Runtime,
    ScriptedModel,
    ToolContext,
    approve,
    dismiss,
    reject,
    respond,
    tool,
)
from understudy._base import clock
from understudy.actors.hosts import incoming, outgoing
from understudy.actors.hosts.incoming import Incoming
from understudy.actors.hosts.outgoing import Outgoing
from understudy.journal import DatabaseStore
from understudy.journal.contracts import Batch
from understudy.journal.postgres import backend
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.postgres.writer import PostgresWriter
from understudy.journal.shared import Hint
from understudy.journal.shared_store import SharedStore
from understudy.middleware import Haltable

__all__ = ["ASKER_POINTS", "OWNER_POINTS", "TAKER_POINTS", "Setting", "play", "put_ahead"]

ASKER_POINTS = (
    "before insert",
    "after insert",  # not committed: nobody is notified
    "after notify",
    "before delete",
    "after delete",
)
OWNER_POINTS = (
    "before hearing",
    "before act",
    "after act",
    "before commit",
    "after commit",
    "before reply",
    "after reply",
)
TAKER_POINTS = ("judged", "before withdraw", "after withdraw")
"""Where a host stops itself, while it asks for a call, does one for another host, or takes an agent
or a call."""
AGENT = "desk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the hosts of a play have in common."""

    url: str
    schema: str
    lease: float = 1.0
    beat: float = 0.5
    patience: float = 0.3
    poll: float = 0.1
    sweep: float | None = 0.4
    has_peers: bool = False
    """Whether calls go by sockets: else all go by the tables, whose points are aimed at."""
    ahead: Mapping[str, float] = field(default_factory=dict)
    """By host, the seconds by which the clock of its machine is ahead of the right time."""


class _Stops:
    """Stops this process at the n-th time that it passes a point."""

    def __init__(self, log: SideLog, host: str) -> None:
        self._log = log
        self._host = host
        self._point, self._action, self._left = "", "", 0
        self._pause: float | None = None
        self._is_deaf = False
        self.acting = threading.Lock()
        """Held by a tool from its entry to its effect: no host stops in between."""
        self._acted = False

    def arm(self, point: str, action: str, nth: int, pause: float | None) -> None:
        self._point, self._action, self._left, self._pause = point, action, nth, pause
        self._log.write("armed", self._host, point)

    def deafen(self) -> None:
        """From now on it hears nothing of what other hosts tell."""
        self._is_deaf = True
        self._log.write("armed", self._host, "deaf")

    def __call__(self, point: str) -> None:
        if point != self._point:
            return
        self._left -= 1
        if self._left:
            return
        self._point = ""
        with self.acting:
            self._log.write("stops", self._host, point, self._action, json.dumps(self._pause))
            if self._action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            # A signal to the process may stop another thread first, while this one continues.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def install(self) -> None:
        """Have this process pass all points."""
        self._around(PostgresBackend, "post", "insert")
        self._around_async(SharedStore, "post", "", "after notify")
        self._around_async(SharedStore, "reply", "before reply", "after reply")
        self._around_async(SharedStore, "remove_posts", "before delete", "after delete")
        self._around_async(SharedStore, "withdraw", "before withdraw", "after withdraw")
        self._around_looks()
        self._around_told()
        self._around_act()
        self._around_commit()
        self._around_judging()

    def _around(self, owner: Any, name: str, what: str) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def outer(*args: Any, **given: Any) -> Any:
            self(f"before {what}")
            returned = inner(*args, **given)
            self(f"after {what}")
            return returned

        setattr(owner, name, outer)

    def _around_async(self, owner: Any, name: str, before: str, after: str) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        async def outer(*args: Any) -> Any:
            self(before)
            returned = await inner(*args)
            self(after)
            return returned

        setattr(owner, name, outer)

    def _around_looks(self) -> None:
        """Note each look at the calls that this host has posted."""
        inner = SharedStore.post_states

        @functools.wraps(inner)
        async def looks(shared: SharedStore, ids: Any) -> Any:
            states = await inner(shared, ids)
            self._log.write("looked", self._host)
            return states

        replaced(SharedStore, "post_states", looks)

    def _around_told(self) -> None:
        inner = Outgoing.notified

        @functools.wraps(inner)
        def told(office: Outgoing, hint: Hint | None) -> None:
            if self._is_deaf:
                return
            if hint is not None and hint.kind == "posted":
                self("before hearing")
            inner(office, hint)

        replaced(Outgoing, "notified", told)

    def _around_act(self) -> None:
        inner = Incoming._taken_up

        @functools.wraps(inner)
        async def taken_up(calls: Incoming, row: Any) -> Any:
            self("before act")
            taken = await inner(calls, row)
            self._acted = True
            # The agent gets the message behind this, in the same step of the loop.
            asyncio.get_running_loop().call_soon(self, "after act")
            return taken

        replaced(Incoming, "_taken_up", taken_up)

    def _around_commit(self) -> None:
        """The first commit of records behind an act."""

        def around(batches: Sequence[Batch], commit: Callable[[], Answers]) -> Answers:
            wrote = self._acted and bool(batches)
            if wrote:
                self._acted = False
                self("before commit")
            answers = commit()
            if wrote:
                self("after commit")
            return answers

        around_commits(PostgresBackend, around)

    def _around_judging(self) -> None:
        inner = PostgresWriter._claimable

        @functools.wraps(inner)
        def claimable(writer: PostgresWriter, *args: Any, **given: Any) -> Any:
            found = inner(writer, *args, **given)
            if found is not None and found.get("take"):
                self("judged")
            return found

        replaced(PostgresWriter, "_claimable", claimable)


# ------------------------------------------------------------------------------ agents


@dataclass(frozen=True, slots=True)
class _Scene:
    """What the tools get as `deps`."""

    log: SideLog
    stops: _Stops

    def act(self, ctx: ToolContext, what: str) -> str:
        with self.stops.acting:
            self.log.write("effect", ctx.call_key, ctx.tool_name, what, ctx.agent_id)
        return what

    async def released(self, ctx: ToolContext, what: str) -> None:
        """The body is entered, and lasts until another process releases it."""
        self.log.write("entered", ctx.call_key, what)
        while not self.log.has("release", what):  # noqa: ASYNC110  # it is a file that tells
            await asyncio.sleep(0.01)


@tool(on_unknown="ask")
async def note(ctx: ToolContext, what: str) -> str:
    """Has its effect at once."""
    scene: _Scene = ctx.deps
    return scene.act(ctx, what)


@tool(on_unknown="ask")
async def gated(ctx: ToolContext, what: str) -> str:
    """As `note`, if a person approves."""
    scene: _Scene = ctx.deps
    return scene.act(ctx, what)


@tool(idempotent=True)
async def hold(ctx: ToolContext, what: str) -> str:
    """Lasts until it is released. May be repeated: a doubt would bind the next call of it."""
    scene: _Scene = ctx.deps
    await scene.released(ctx, what)
    return what


@tool(on_unknown="ask")
async def last(ctx: ToolContext, what: str) -> str:
    """Lasts until it is released, and has its effect then."""
    scene: _Scene = ctx.deps
    await scene.released(ctx, what)
    return scene.act(ctx, what)


@tool(on_unknown="ask")
async def stop(ctx: ToolContext, what: str) -> str:
    """Halts the run."""
    raise Halt(what)


@tool(on_unknown="ask")
async def brief(ctx: ToolContext, what: str) -> str:
    """As `gated`, but it is asked about for a second."""
    scene: _Scene = ctx.deps
    return scene.act(ctx, what)


@tool(on_unknown="ask")
async def long(ctx: ToolContext, what: str) -> str:
    """As `gated`, but it is asked about for an hour."""
    scene: _Scene = ctx.deps
    return scene.act(ctx, what)


TOOLS = {
    "ask": ["gated"],
    "brief": ["brief"],
    "long": ["long"],
    "hold": ["hold"],
    "halt": ["last", "stop"],
}


def _reply(request: Any) -> Any:
    """A call for each prompt; at the end, the prompts that were done since the last answer."""
    prompts: list[Any] = []
    for message in request.messages:
        if message.kind == "response":
            prompts.clear()
        prompts += [part.content for part in message.parts if part.part_kind == "user-prompt"]
    if prompts:
        return [
            call_of(name, what) for what in prompts for name in TOOLS.get(what.split()[0], ["note"])
        ]
    asked: list[str] = []
    for message in request.messages:
        kinds = {part.part_kind for part in message.parts}
        if message.kind == "response" and kinds == {"text"}:
            asked.clear()
        asked += [str(p.content) for p in message.parts if p.part_kind == "user-prompt"]
    return "|".join(asked)


def _agent() -> Agent:
    model = ScriptedModel(_reply)
    return Agent(
        AGENT,
        model,
        tools=[note, gated, brief, long, hold, last, stop],
        middleware=[Haltable()],
        interrupt_on={
            "gated": True,
            "brief": {"expires_after": 1.0},
            "long": {"expires_after": 3600.0},
        },
    )


# -------------------------------------------------------------------------------- host


def play(setting: Setting, host: str, log: SideLog, commands: int) -> None:
    """Do what the commands say, until they end."""
    incoming.BEAT = setting.beat
    outgoing.PATIENCE = setting.patience
    outgoing.POLL = setting.poll
    if host in setting.ahead:
        put_ahead(setting.ahead[host])
    stops = _Stops(log, host)
    stops.install()
    asyncio.run(_Host(setting, host, log, stops).follow(commands))


def put_ahead(seconds: float) -> None:
    """Have the clock of this process's machine be wrong."""

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=seconds)

    right = clock.wall_seconds
    replaced(clock, "datetime", Wrong)
    replaced(backend, "wall_seconds", lambda: right() + seconds)


class _Host:
    def __init__(self, setting: Setting, host: str, log: SideLog, stops: _Stops) -> None:
        self._name = host
        self._log = log
        self._stops = stops
        database = PostgresBackend(
            setting.url, host=host, lease=setting.lease, schema=setting.schema
        )
        scene = _Scene(log, stops)
        self._runtime = Runtime(
            [_agent()],
            store=DatabaseStore(database),
            deps_for=lambda _: scene,
            sweep=setting.sweep,
        )
        self._runtime._agent_host.has_peers = setting.has_peers

    async def follow(self, commands: int) -> None:
        """Until there are no more."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, _say_where)
        with os.fdopen(commands, "rb") as pipe:
            transport, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), pipe
            )
            tasks: list[asyncio.Task[None]] = []
            async with self._runtime:
                self._log.write("open", self._name)
                while (command := json.loads(await reader.readline())) is not None:
                    if command["do"] == "arm":
                        del command["do"]
                        self._stops.arm(**command)
                    elif command["do"] == "deafen":
                        self._stops.deafen()
                    else:
                        tasks.append(asyncio.ensure_future(self._tell(**command)))
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            transport.close()

    async def _tell(self, *, number: int, do: str, id: str, given: dict[str, Any]) -> None:
        """Do a call, and write down its answer."""
        try:
            told = _told(await self._call(do, id, given))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            told = {"is": type(error).__name__, "why": str(error)}
            if os.environ.get("CHAOS_TRACE"):
                traceback.print_exc()
        with contextlib.suppress(OSError):
            self._log.write("told", str(number), json.dumps(told), self._name)

    async def _call(self, do: str, id: str, given: Mapping[str, Any]) -> Any:
        creates = do in ("run", "send")
        ref = self._runtime.spawn(AGENT, id=id) if creates else self._runtime.get(id)
        match do:
            case "run":
                return await ref.run(given["prompt"], message_id=given["message_id"])
            case "send":
                at = datetime.fromisoformat(given["at"]) if "at" in given else None
                return await ref.send(
                    given["prompt"], message_id=given["message_id"], steer=given["steer"], at=at
                )
            case "resume":
                decisions = {key: _DECISIONS[what](said) for key, what, said in given["decisions"]}
                return await ref.resume(decisions)
            case "state":
                state = await ref.state()
                return "|".join(sorted(state.message_ids))
            case "outcome":
                return await ref.outcome(**given)
            case "drain":
                return await self._runtime.drain()
        answer: Callable[..., Any] = getattr(ref, do)
        return await answer(**given)


_DECISIONS: dict[str, Callable[[str], Any]] = {
    "approve": lambda _: approve(),
    "reject": lambda _: reject(),
    "respond": respond,
    "dismiss": lambda _: dismiss(),
}


def _told(answer: Any) -> dict[str, Any]:
    """An answer, as JSON."""
    if answer is None or isinstance(answer, str | bool):
        return {"is": type(answer).__name__, "value": answer}
    told = {"is": type(answer).__name__, "run_id": answer.run_id}
    if is_held(answer):
        told["is"] = "Held"
    if isinstance(answer, Interrupted):
        told["requests"] = [
            [each.id, each.kind, each.call_key, each.tool_name, str(each.arguments.get("what"))]
            for each in answer.requests
        ]
    told["text"] = getattr(answer, "text", None) or str(getattr(answer, "error", ""))
    return told


def _say_where() -> None:
    """Where each task of this process waits, and each thread."""
    for task in asyncio.all_tasks():
        coro: Any = task.get_coro()
        lines = []
        while (frame := getattr(coro, "cr_frame", None)) is not None:
            lines.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")
            coro = coro.cr_await
        sys.stderr.write(f"{task.get_name()}: {' > '.join(lines)} > {coro}\n")
    sys.stderr.flush()
    faulthandler.dump_traceback()
