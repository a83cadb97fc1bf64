"""Three hosts on one PostgreSQL that spend of the same budgets, while they are killed.

Each payment and each request to a model is in the log beside the store. The judge adds them up, and
compares the sums with the counters of the store.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from tests.support.durability.any_host import put_ahead
from tests.support.durability.broken_hosts import replaced
from tests.support.durability.forks import patience
from tests.support.durability.side_log import SideLog
from understudy import Agent, Runtime, ScriptedModel, ToolContext, tool
from understudy.actors import BudgetUse
from understudy.journal import DatabaseStore
from understudy.journal.postgres.backend import PostgresBackend
from understudy.journal.spending import Settlement
from understudy.models import ScriptedRequest
from understudy.run.account import Account
from understudy.state import records as r
from understudy.trust import Budget, calls, day, sum_of, tokens

__all__ = ["BROKEN", "spent"]

NAMES = ("one", "two", "three")
AHEAD = {"one": 0.0, "two": 7200.0, "three": -7200.0}
"""The clocks of the hosts are wrong by so many seconds: that of the server counts."""
MOST = 500
"""The tokens of a reply at most."""
MOST_READ = 4000
"""More tokens than any request of the story is reserved for, besides its reply."""
TURNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    url: str
    schema: str
    folder: Path
    seed: int
    runs: int
    limit: int

    @property
    def budgets(self) -> list[Budget]:
        return [
            Budget("pays", sum_of("pay", "amount", self.limit), window=day()),
            Budget("notes", calls("note", 10**6)),
            Budget("each", calls("pay", 10**6), per="agent"),
            Budget("models", tokens(10**9)),
        ]

    def runtime(self, name: str, agents: list[Agent], *, sweep: float | None) -> Runtime:
        backend = PostgresBackend(self.url, host=name, lease=1.0, schema=self.schema)
        return Runtime(agents, store=DatabaseStore(backend), budgets=self.budgets, sweep=sweep)


# ------------------------------------------------------------------------------ what is done


def _agent(log: SideLog, seed: int) -> Agent:
    @tool
    async def pay(ctx: ToolContext, amount: int) -> str:
        """Pay."""
        log.write("paid", ctx.call_key, str(amount))
        await asyncio.sleep(0.01)  # it takes its time: it is killed in it
        return "paid"

    @tool(idempotent=True)
    async def note(ctx: ToolContext) -> str:
        """Note."""
        log.write("noted", ctx.call_key)
        return "noted"

    model = ScriptedModel(lambda request: _reply(log, seed, request), name="first")
    other = ScriptedModel(lambda request: _reply(log, seed + 1, request), name="second")
    return Agent(
        "desk",
        model,
        tools=[pay, note],
        fallback_models=[other],
        model_settings={"max_tokens": MOST},
    )


async def _reply(log: SideLog, seed: int, request: ScriptedRequest) -> ModelResponse:
    turn = sum(isinstance(each, ModelResponse) for each in request.messages)
    first = str(request.messages[0].parts[0].content)  # type: ignore[union-attr]  # what was sent
    log.write("sent", first, str(turn))
    chance = random.Random(f"{seed} {first} {turn}")
    await asyncio.sleep(chance.random() * 0.02)  # a provider takes its time: it is killed in it
    what = chance.random()
    if what < 0.2:
        raise ConnectionError("the answer was lost")
    if what < 0.26:
        log.write("refused", first, str(turn))
        raise ModelHTTPError(429, "m")
    parts: list[Any] = [TextPart("done")]
    if turn < TURNS:
        parts = [
            ToolCallPart("pay", {"amount": chance.randint(1, 9)})
            if chance.random() < 0.6
            else ToolCallPart("note", {})
            for _ in range(chance.randint(1, 3))
        ]
    usage = RequestUsage(input_tokens=5, output_tokens=chance.randint(1, MOST))
    return ModelResponse(parts=parts, usage=usage, model_name="m")


def _host(setting: _Setting, name: str, life: int) -> None:
    log = SideLog(setting.folder / "log", life)
    if AHEAD[name]:
        put_ahead(AHEAD[name])
    asyncio.run(_serve(setting, name, log))


async def _serve(setting: _Setting, name: str, log: SideLog) -> None:
    runtime = setting.runtime(name, [_agent(log, setting.seed)], sweep=0.2)
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with runtime:
        log.write("open", name)
        for number in range(setting.runs):
            if number % len(NAMES) == NAMES.index(name):
                id = f"a{number}"
                await runtime.spawn("desk", id).send(f"go {id}", message_id=f"{id}/go")
        await over.wait()


# ------------------------------------------------------------------------------ the story


def spent(
    folder: Path,
    *,
    url: str,
    schema: str,
    seed: int,
    runs: int,
    kills: int,
    limit: int,
    broken: str | None = None,
) -> dict[str, Any]:
    """Have the hosts spend, killed and suspended so often, until all runs are over.

    Returns:
        What is wrong, and how much happened.

    """
    if broken is not None:
        BROKEN[broken]()
    setting = _Setting(url=url, schema=schema, folder=folder, seed=seed, runs=runs, limit=limit)
    chance = random.Random(seed)
    log, lives, hosts = SideLog(folder / "log", -1), 0, dict[str, int]()
    lives_of: dict[str, int] = {}
    killed = stopped = 0
    end = time.monotonic() + patience() * 2 + kills
    while not _are_over(log, setting) or killed < kills:
        assert time.monotonic() < end, f"the runs do not end, {killed} kills: {_open(setting)}"
        for name in NAMES:
            if name not in hosts:
                lives += 1
                hosts[name], lives_of[name] = _forked(setting, name, lives), lives
        time.sleep(chance.random() * 0.25)
        name = chance.choice(NAMES)
        if chance.random() < 0.1:  # one that is suspended past its lease stops nobody
            os.kill(hosts[name], signal.SIGSTOP)
            time.sleep(1.3)
            os.kill(hosts[name], signal.SIGCONT)
            stopped += 1
        elif killed < kills:
            name = _at_work(log, lives_of, chance) or name
            os.kill(hosts[name], signal.SIGKILL)
            os.waitpid(hosts.pop(name), 0)
            killed += 1
    for pid in hosts.values():
        os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
        assert not status, f"a host ended with status {status}"
    sums = asyncio.run(_sums(setting))
    wrong = _wrong(setting, log, sums)
    figures = {"killed": killed, "stopped": stopped, **_figures(log, sums)}
    return {"violations": wrong, "figures": figures}


def _at_work(log: SideLog, lives_of: dict[str, int], chance: random.Random) -> str | None:
    """A host that has begun to pay, or to ask a model, just now: it is killed in that."""
    what = chance.choice(["sent", "paid"])
    before = len(log.read(what))
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        for entry in log.read(what)[before:]:
            for name, life in lives_of.items():
                if life == entry.life:
                    return name
        time.sleep(0.002)
    return None


def _forked(setting: _Setting, name: str, life: int) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with open(setting.folder / f"{name}.err", "a") as said:  # noqa: PTH123 - as it is
                os.dup2(said.fileno(), 2)
            _host(setting, name, life)
            status = 0
        finally:
            os._exit(status)
    return pid


def _are_over(log: SideLog, setting: _Setting) -> bool:
    """Whether the runs of all agents are over, or wait for a person, as the store says.

    A person is asked about a payment that equals another one in doubt, and releases a run that was
    cut off too often.
    """
    if not log.read("open"):
        return False
    ended = "index_status IN ('rest', 'quarantined') OR status = 'interrupted'"
    query = f"SELECT count(*) FROM agents WHERE last_seq > 1 AND ({ended})"
    return _find(setting, query) == [(setting.runs,)]


def _open(setting: _Setting) -> list[tuple[Any, ...]]:
    """The agents that are not at rest."""
    return _find(setting, "SELECT agent_id, index_status, status FROM agents")


def _find(setting: _Setting, query: str) -> list[tuple[Any, ...]]:
    import psycopg

    options = f"-c search_path={setting.schema}"
    with psycopg.connect(setting.url, options=options) as connection:
        return connection.execute(query).fetchall()


# ------------------------------------------------------------------------------ the judge


@dataclass(frozen=True, slots=True)
class _Sums:
    """What the store says."""

    uses: dict[tuple[str, str], BudgetUse]
    entered: dict[str, tuple[str, str, Decimal]]
    """By call: its agent, its tool and its amount, of those that records say were entered."""
    held: dict[str, tuple[str, str, Decimal]]
    """As `entered`, of the calls of runs that were cut off too often which no record says were
    entered: what they have reserved stays until a person releases the run."""
    is_held: bool
    """Whether a run was cut off too often: its calls are open."""
    replied: int
    """The tokens of all replies in the records."""
    replies: int


async def _sums(setting: _Setting) -> _Sums:
    entered: dict[str, tuple[str, str, Decimal]] = {}
    held: dict[str, tuple[str, str, Decimal]] = {}
    quarantined = {
        agent_id
        for (agent_id,) in _find(
            setting, "SELECT agent_id FROM agents WHERE index_status = 'quarantined'"
        )
    }
    replied = replies = 0
    store = DatabaseStore(PostgresBackend(setting.url, host="judge", schema=setting.schema))
    async with Runtime(store=store, budgets=setting.budgets, sweep=None) as runtime:
        uses = {(each.budget.name, each.key): each for each in await runtime.budgets()}
        for number in range(setting.runs):
            loaded = await store.load(f"a{number}")
            assert loaded is not None
            starts: Counter[str] = Counter()
            made: dict[str, tuple[str, Decimal]] = {}
            for record in loaded.records:
                match record:
                    case r.Reply(response=response):
                        usages = [response.usage]
                        usages += [a.usage for a in response.failed_attempts or () if a.usage]
                        replied += sum(each.total_tokens for each in usages)
                        replies += len(usages)
                        for index, part in enumerate(response.tool_calls):
                            arguments = part.args_as_dict()
                            key = f"{record.turn}.{index}"
                            made[key] = part.tool_name, Decimal(arguments.get("amount", 0))
                    case r.Started():
                        starts[record.call_key] += 1
                    case r.Suspended(not_entered=True) | r.Result(not_entered=True):
                        starts[record.call_key] -= 1
                    case _:
                        pass
            for key, count in starts.items():
                if count > 0:
                    name, amount = made[key.partition(".")[2]]
                    entered[key] = (f"a{number}", name, amount)
            if f"a{number}" in quarantined:
                assert store.spending is not None
                for each in await store.spending.open_spending(f"a{number}"):
                    key = each.id.what.rpartition("/")[2]
                    call = made.get(key.partition(".")[2])
                    if call is not None and key not in entered:
                        held[key] = (f"a{number}", *call)
    return _Sums(uses, entered, held, bool(quarantined), replied, replies)


def _figures(log: SideLog, sums: _Sums) -> dict[str, Any]:
    return {
        "paid": len(log.read("paid")),
        "noted": len(log.read("noted")),
        "sent": len(log.read("sent")),
        "replies": sums.replies,
        "used": {name: str(use.used) for (name, key), use in sums.uses.items() if not key},
    }


def _wrong(setting: _Setting, log: SideLog, sums: _Sums) -> list[str]:
    wrong = []
    uses = sums.uses

    def used(name: str, key: str = "") -> Decimal:
        return uses[name, key].used if (name, key) in uses else Decimal(0)

    def is_(what: str, found: object, wanted: object) -> None:
        if found != wanted:
            wrong.append(f"{what}: {found}, and it must be {wanted}")

    pays = {key: of for key, of in sums.entered.items() if of[1] == "pay"}
    counted = [*sums.entered.values(), *sums.held.values()]
    paying = [of for of in counted if of[1] == "pay"]
    is_("the sum of payments", used("pays"), sum((of[2] for of in paying), Decimal(0)))
    for id in {of[0] for of in paying}:
        count = sum(of[0] == id for of in paying)
        is_(f"the payments of {id}", used("each", f"agent={id}"), Decimal(count))
    is_("the notes", used("notes"), Decimal(sum(of[1] == "note" for of in counted)))
    if used("pays") > setting.limit:
        wrong.append(f"{used('pays')} of {setting.limit} are paid")
    paid = Counter(entry.of[0] for entry in log.read("paid"))
    wrong += [f"{key} was paid {times} times" for key, times in paid.items() if times > 1]
    wrong += [f"{key} was paid, and no record says so" for key in paid if key not in pays]
    # A request has an outcome in the records, its provider has refused it, or it was cut off.
    cut = len(log.read("sent")) - len(log.read("refused")) - sums.replies
    least, most = sums.replied + cut * MOST, sums.replied + cut * (MOST + MOST_READ)
    if not least <= used("models") <= most:
        wrong.append(f"{used('models')} tokens, and it must be from {least} to {most}")
    for use in uses.values():
        if use.budget.name in ("models", "notes") and use.reserved and not sums.is_held:
            wrong.append(f"{use.reserved} of {use.budget.name} are reserved, and nothing runs")
        if use.budget.name != "models" and use.unknown:
            wrong.append(f"{use.unknown} of {use.budget.name} are unknown: records say it")
    return wrong


# ------------------------------------------------------------------------------ broken builds


def _reserve_nothing() -> None:
    async def reserve(*_: Any, **__: Any) -> list[Any]:
        return []

    replaced(Account, "reserve", reserve)


def _give_back_what_a_crash_left() -> None:
    async def load(own: Account, state: Any) -> None:
        found = await own.keeper.spending.open_spending(own._agent_id)
        zero = [
            Settlement(id=each.id, amounts={c.budget: Decimal(0) for c in each.amounts})
            for each in found
        ]
        if zero:
            own._journal.settle(zero)

    replaced(Account, "load", load)


def _forget_what_a_crash_left() -> None:
    async def load(own: Account, state: Any) -> None:
        return

    replaced(Account, "load", load)


def _count_no_request_that_was_lost() -> None:
    settle = Account.settle

    def nothing(own: Account, what: str, amounts: Any = None, *, unknown: bool = False) -> None:
        if unknown:
            amounts = {budget.id: Decimal(0) for budget in own.keeper.of_models}
        settle(own, what, amounts)

    replaced(Account, "settle", nothing)


def _settle_nothing_at_the_end() -> None:
    replaced(Account, "recorded", lambda *_: None)


BROKEN: dict[str, Callable[[], None]] = {
    "V60: nothing is reserved": _reserve_nothing,
    "V64: what a crash left is given back": _give_back_what_a_crash_left,
    "V64: what a crash left is forgotten": _forget_what_a_crash_left,
    "V67: a lost answer costs nothing": _count_no_request_that_was_lost,
    "V64: what is over is not settled": _settle_nothing_at_the_end,
}
"""Each broken build, by what is wrong with it."""
