"""Two hosts on one PostgreSQL want the same agents, and an owner sleeps past its lease."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.durability.broken import break_
from tests.support.durability.facts import facts_of
from tests.support.durability.forks import forked, patience
from tests.support.durability.lives import in_time, is_held
from tests.support.durability.points import kill
from tests.support.durability.side_log import SideLog
from tests.support.durability.stage import Stage, call_of, decision, mail, note
from understudy import (
    Agent,
    AgentState,
    Interrupted,
    Runtime,
    ScriptedModel,
    StoreError,
    UnderstudyError,
    tool,
)
from understudy.journal import DatabaseStore

__all__ = ["fight", "left_open", "stale_records"]

LEASE = 1.0
NAMES = ("first", "second", "last")


def _reply(request: Any) -> Any:
    """Note each message, mail it, and say so."""
    last = request.messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        return call_of("note", request.prompt)
    return call_of("mail", request.prompt) if last.tool_name == "note" else "ok"


def _poster() -> Agent:
    return Agent("poster", ScriptedModel(_reply), tools=[note, mail])


def _runtime(url: str, schema: str, host: str, log: SideLog) -> Runtime:
    from understudy.journal.postgres.backend import PostgresBackend

    backend = PostgresBackend(url, host=host, lease=LEASE, schema=schema)
    stage = Stage(log, lambda _: None)
    return Runtime(
        [_poster()], store=DatabaseStore(backend), deps_for=lambda _: stage, any_host=False
    )


def fight(
    folder: Path,
    *,
    url: str,
    schema: str,
    seconds: float,
    agents: int = 6,
    seed: int = 1,
    broken: str | None = None,
) -> dict[str, Any]:
    """Two hosts send to the same agents; again and again one of them is stopped past its lease."""
    break_(broken)
    chance = random.Random(seed)
    over = folder / "over"
    ids = [f"p{number}" for number in range(agents)]
    opened, opens = os.pipe()

    def host(life: int) -> int:
        pid = os.fork()
        if pid == 0:
            status = 1
            faulthandler.dump_traceback_later(seconds + patience(), exit=True)
            try:
                asyncio.run(_fought(folder, life, url, schema, ids, over, seed + life, opens))
                status = 0
            finally:
                os._exit(status)
        return pid

    pids = [host(0), host(1)]
    os.close(opens)
    # Race: this against the begin of a host on a busy machine. One that is stopped for so long in
    # the transaction that makes the tables finds its connection closed, and ends.
    while os.read(opened, 1):  # until both have closed it
        pass
    os.close(opened)
    end, frozen = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        time.sleep(0.6 + chance.random() * 0.4)
        victim = chance.choice(pids)
        os.kill(victim, signal.SIGSTOP)
        time.sleep(LEASE * 1.3)
        os.kill(victim, signal.SIGCONT)
        frozen += 1
    over.touch()
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    forked(lambda: asyncio.run(_counted(folder, url, schema, ids)), killed=False)
    log = SideLog(folder / "log", -1)
    found = [entry.of[0] for entry in log.read("violation")]
    found += [f"host {n} ended with status {s}" for n, s in enumerate(statuses) if s]
    found += stale_records(url, schema)
    return {
        "violations": found,
        "frozen": frozen,
        "quarantined": len(log.read("quarantined")),
        "acked": len(log.read("acked")),
        "refused": dict(Counter(entry.of[0] for entry in log.read("refused"))),
        "epochs": len({entry.of for entry in log.read("epoch")}),
    }


async def _fought(
    folder: Path,
    life: int,
    url: str,
    schema: str,
    ids: list[str],
    over: Path,
    seed: int,
    opens: int,
) -> None:
    log, chance = SideLog(folder / "log", life), random.Random(seed)
    runtime = _runtime(url, schema, NAMES[life], log)
    await runtime.__aenter__()
    os.close(opens)
    try:
        number = 0
        while not os.path.exists(over):  # noqa: ASYNC240, PTH110  # it takes no time
            number += 1
            id, message = chance.choice(ids), f"{NAMES[life]}-{number}"
            try:
                async with asyncio.timeout(4):
                    ref = runtime.spawn("poster", id=id)
                    await ref.send(message, message_id=message)
                    log.write("acked", id, message)
                    if chance.random() < 0.3:
                        await ref.stop(block=False)  # whoever wants it next may have it
                    if chance.random() < 0.1:
                        await runtime.recover()
            except (UnderstudyError, TimeoutError) as error:
                log.write("refused", type(error).__name__)
            await asyncio.sleep(0.002)
    finally:
        await in_time(runtime.__aexit__(None, None, None))


async def _counted(folder: Path, url: str, schema: str, ids: list[str]) -> None:
    """Bring everything to its end, and count."""
    log = SideLog(folder / "log", 2)
    async with _runtime(url, schema, NAMES[2], log) as runtime:
        await runtime.recover()
        for id in ids:
            await in_time(_finished(runtime, log, id))
            exported = await runtime.export(id)
            _count(log, id, await runtime.get(id).state(), facts_of(exported).epoch_of)


async def _finished(runtime: Runtime, log: SideLog, id: str) -> None:
    ref = runtime.spawn("poster", id=id)
    while True:
        outcome = await ref.outcome()
        if isinstance(outcome, Interrupted):
            answers = {each.id: decision(log, each) for each in outcome.requests}
            with contextlib.suppress(StoreError):
                await ref.resume(answers)
        elif is_held(outcome):  # cut off too often before it got further (J10)
            log.write("quarantined", id)
            await ref.retry()
        elif not (await ref.state()).queue:
            return
        else:
            await ref.run("and all that is queued")


def _count(log: SideLog, id: str, state: AgentState, epochs: dict[str, int]) -> None:
    said = Counter(
        str(part.content)
        for message in state.messages
        for part in message.parts
        if part.part_kind == "user-prompt"
    )
    for message, times in said.items():
        if times > 1 and message.startswith(NAMES[:2]):
            log.write("violation", f"{id} was told {message!r} {times} times")
    for entry in log.read("acked"):
        if entry.of[0] == id and not said[entry.of[1]]:
            log.write("violation", f"{id}: message {entry.of[1]!r} was acknowledged and is lost")
    owners: dict[int, set[int]] = defaultdict(set)
    effects: Counter[str] = Counter()
    for entry in log.read("effect"):
        key, tool, _ = entry.of
        if key in epochs and tool == "mail":
            effects[key] += 1
            owners[epochs[key]].add(entry.life)
    for key, times in effects.items():
        if times > 1:
            log.write("violation", f"mail {key} went off {times} times")
    for epoch, lives in owners.items():
        log.write("epoch", id, str(epoch))
        if len(lives) > 1:
            log.write("violation", f"{id}: epoch {epoch} had {len(lives)} owners")


def stale_records(url: str, schema: str) -> Iterator[str]:
    """Records of an epoch behind those of a later one (J7)."""
    import psycopg

    with psycopg.connect(url, options=f"-c search_path={schema}") as connection:
        rows = connection.execute("SELECT agent, epoch FROM records ORDER BY agent, seq").fetchall()
    newest: dict[int, int] = {}
    for agent, epoch in rows:
        if epoch < newest.get(agent, 0):
            yield f"J7: a record of epoch {epoch} stands behind one of epoch {newest[agent]}"
        newest[agent] = epoch


def left_open(folder: Path, *, url: str, schema: str, agents: int) -> dict[str, Any]:
    """A host with so many agents, each in the middle of a tool, killed."""
    from understudy.journal.postgres.backend import PostgresBackend

    entered: list[str] = []

    @tool(idempotent=True)
    async def note(what: str) -> str:
        entered.append(what)
        if len(entered) == agents:
            kill()
        await asyncio.get_running_loop().create_future()  # for ever
        return what

    async def main() -> None:
        poster = Agent("poster", ScriptedModel(_reply), tools=[note])
        backend = PostgresBackend(url, host=NAMES[0], schema=schema)
        async with Runtime([poster], store=DatabaseStore(backend), any_host=False) as runtime:
            refs = [runtime.spawn("poster", id=f"s{number}") for number in range(agents)]
            for running in [ref.run(f"to {ref.id}") for ref in refs]:
                await running

    forked(lambda: asyncio.run(in_time(main())), killed=True)
    return {"violations": [], "agents": [f"s{number}" for number in range(agents)]}
