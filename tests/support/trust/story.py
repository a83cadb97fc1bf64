"""A random story of people who decide, and of all that could let a call run that they forbid.

A seed gives a list of acts, and the same list gives the same story: all chance is drawn before, the
clock stands still unless an act advances it, and an act begins once the act before it is over.
So a failing story is played again with fewer acts, until none can be left out.
"""

from __future__ import annotations

import asyncio
import itertools
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from pydantic_ai.messages import ModelResponse, UserPromptPart

from tests.support.loops import never, soon
from tests.support.places import SqlitePlace
from tests.support.postgres import Hosts
from tests.support.trust.judge import Delegated, DelegationLog, Entered, Judge, RoleLog
from tests.support.trust.specs import FIXED, GATES, RuleSpec, RulesSpec, drawn_rules
from understudy import (
    Agent,
    AgentRef,
    Decision,
    DecisionError,
    NotInterrupted,
    Runtime,
    ScriptedModel,
    SimulatedClock,
    Status,
    ToolContext,
    UnfitHost,
    UsageError,
    approve,
    call,
    edit,
    grant,
    reject,
    respond,
    tool,
)
from understudy.actors import AgentActor, LoopActorRegistry
from understudy.errors import PeopleUnavailable, UnderstudyError, UnknownAgent, VoteRefused
from understudy.journal.database_store import DatabaseStore
from understudy.login import User
from understudy.middleware import Middleware, SubAgent
from understudy.models import ScriptedRequest
from understudy.testing import FakePeople
from understudy.trust import Caller, GrantTerms, Person

__all__ = ["AMONG", "MORE", "Act", "Told", "acts_of", "shortened", "told"]

STAFF = ("ann", "bob", "cy", "dan", "eve", "ann@home", "bot", "amy", "zoe")
"""Who tries to decide: among them a second login, a service, a customer, and a stranger."""
VOTERS = ("ann", "bob", "cy", "dan", "eve")
SENDERS = ("amy", "amy", "amy", "amy", "ann", "bob", "cy", None, "zoe")
AMOUNTS = (50, 150, 300, 700, 700)
SCENES = (
    ("begin never held", "steer", "vote all"),
    ("begin never wire", "edit", "vote all"),
    ("begin never wire", "respond", "vote all"),
    ("begin strict", "vote and lose", "vote all"),
    ("begin deny", "reject a vote", "vote all"),
    ("begin strict", "vote", "move", "vote all"),
    ("begin strict", "vote", "kill", "vote all"),
    ("begin strict", "twice", "vote all"),
    ("begin never held", "kill", "vote all"),
    ("begin both", "vote all"),
    ("begin raises", "vote all"),
    ("begin never held", "steer", "vote all"),
    ("begin strict", "vote and lose", "vote all"),
    ("begin strict", "swap beside", "vote all"),
    ("begin wire", "swap beside", "vote all"),
    ("begin strict", "change", "vote all"),
    ("begin", "vote", "swap", "vote all"),
    ("begin", "vote all", "run", "vote all"),
    ("begin", "move", "run", "vote all"),
)
"""What a round is made of, besides acts of any kind in between. A story has each of them."""
ANY = (
    *("vote", "vote", "twice", "edit", "respond", "vote and lose", "lose", "gain", "reject"),
    *("swap", "swap beside", "change", "steer", "kill", "restart", "crash", "passivate", "move"),
    *("away", "later", "release", "compact", "always", "run"),
)
PLANS = {
    "wire": "plan wire 300;pay 700",
    "beside": "plan pay 700,wire 300",
    "one": "plan pay 700",
    "send": "plan send 300;send 300,send 300;send 700",
    "both": "plan send 300,wire 300",
}
"""What a run does whose calls are not drawn."""
MORE = (
    ("begin paying beside", "edit", "vote as suspects", "vote all"),
    (
        *("begin two wire", "edit", "vote as finance", "vote as finance", "vote as finance"),
        *("vote as suspects", "vote all"),
    ),
    ("begin strict", "delegate", "vote as delegate", "vote all"),
    ("begin two one", "delegate finance", "vote as both", "vote all"),
    ("begin two one", "delegate finance", "vote as delegate", "end delegation", "vote all"),
    ("begin two one", "delegate finance", "vote as delegate", "giver loses", "vote all"),
    ("begin several", "delegate", "vote as delegate", "outlast", "vote all"),
    ("begin within one", "vote as finance", "outlast", "vote all"),
    ("begin within one", "vote all"),
    ("begin cooling one", "vote all"),
    ("begin cooling one", "vote", "twice", "reject a vote", "outlast", "vote all"),
    ("begin soon beside", "vote as finance", "outlast", "vote all"),
    ("begin glass one", "break glass wrongly", "break glass", "review", "vote all"),
    ("begin login", "vote", "vote as login", "vote all"),
    ("begin fresh", "vote as login", "vote by an old login", "vote all"),
    ("begin none send", "give", "run send", "vote all"),
    ("begin none send", "give once", "vote all"),
    ("begin none send", "give for an amount", "vote all"),
    ("begin none send", "give for a run", "run send", "vote all"),
    ("begin none send", "give for a while", "run both", "outlast", "vote all"),
    ("begin none send", "give freely", "run both", "revoke", "vote all"),
    ("begin none send", "give freely", "run both", "granter loses", "vote all"),
    ("begin two one", "older", "vote all"),
    ("begin strict", "vote", "older", "run", "vote all"),
)
"""Rounds of delegations, terms, grants, and rules with a version."""
CALM = ("none", "two", "paying", "within", "cooling", "soon", "glass", "login", "fresh")
"""The rules with which a round begins by a customer whose run waits in no body."""
AMONG = (
    *("vote", "vote", "twice", "vote and lose", "lose", "gain", "reject", "edit", "respond"),
    *("steer", "kill", "restart", "crash", "passivate", "move", "later", "compact", "always"),
    *("delegate", "vote as delegate", "end delegation", "outlast", "give", "revoke", "run"),
)
"""Acts of any kind in between there."""
TOOLS = ("pay", "wire", "grant", "send")
"""The tools that pay; the gate of the last one offers grants."""
TRICKS = (("ann", "ann@home"), ("bob", "bob"), ("bob", "cy"), ("eve", "eve"), ("bot", "ann"), ())
"""Who votes first."""
MOST_VOTES = 20
MOST_LOOKS = 2000
"""So often it is looked whether a run is recorded to rest that nobody continues."""
LONG = 60.0
"""The seconds after which what has not come to rest never will: nothing here takes time."""


@dataclass(frozen=True, slots=True)
class Act:
    """Something that happens, with numbers by which it chooses among what there is."""

    what: str
    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.what} {' '.join(map(str, self.numbers))}"


Scenes = Sequence[tuple[str, ...]]


def acts_of(seed: int, rounds: int, of: Scenes = SCENES, between: Sequence[str] = ANY) -> list[Act]:
    """The acts of a story: rounds, each of a run, what comes between, and votes until its end.

    Args:
        seed: of all chance.
        rounds: the number of them.
        of: what they are made of: `SCENES` or `MORE`.
        between: the acts that may come in between: `ANY` or `AMONG`.

    """
    chance = Random(seed)
    whats: list[str] = []
    scenes: list[tuple[str, ...]] = []
    for _ in range(rounds):
        scenes = scenes or chance.sample(of, len(of))
        scene = list(scenes.pop())
        for each in chance.choices(between, k=chance.randrange(4 if of is SCENES else 2)):
            scene.insert(chance.randrange(1, len(scene) + 1), each)
        whats += scene
    return [Act(what, tuple(chance.randrange(1000) for _ in range(4))) for what in whats]


@dataclass
class Told:
    """What became of a story."""

    violations: list[str]
    acts: int
    """So many acts were played."""
    counts: dict[str, int]
    lines: list[str] = field(default_factory=list)
    """What happened, a line for each act."""


class _Directory(FakePeople):
    """The persons, and what happens while somebody is looked up."""

    def __init__(self) -> None:
        finance = frozenset({"finance"})
        ann = Person(id="p1", name="Ann", roles=finance)
        super().__init__(
            {
                "ann": ann,
                "ann@home": ann,
                "bob": Person(id="p2", name="Bob", roles=frozenset({"finance", "legal"})),
                "cy": Person(id="p3", name="Cy", roles=finance),
                "dan": Person(id="p4", name="Dan", roles=frozenset({"legal"})),
                "eve": Person(id="p5", name="Eve", roles=frozenset({"ceo", "finance"})),
                "amy": Person(id="p6", name="Amy"),
                "kim": Person(id="p8", name="Kim"),
                "bot": Person(id="p7", name="Bot", roles=finance, kind="service"),
            }
        )
        self.meanwhile: Callable[[], None] | None = None
        self._first = dict(self._persons)

    def restore(self) -> None:
        """The persons as they were first."""
        self._persons = dict(self._first)

    async def __call__(self, caller: Caller) -> Person | None:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        return await super().__call__(caller)

    def logins(self) -> dict[str, tuple[str, str, frozenset[str]]]:
        return {name: (each.id, each.kind, each.roles) for name, each in self._persons.items()}


class _Between(Middleware):
    """Does once, around the next call that pays, what an act has prepared."""

    def __init__(self, host: _Host) -> None:
        self._host = host

    async def wrap_tool_call(self, run: Any, given: Any, next: Any) -> Any:
        if given.tool_name in ("look", "task"):
            return await next(given)
        prepared, self._host.prepared = self._host.prepared, None
        if prepared == "change":
            changed = {**given.arguments, "amount": given.arguments["amount"] + 400}
            return await next(given.replace(changed))
        if prepared is not None:
            self._host.swap(prepared)
        return await next(given)


class _Host:
    """A runtime of the story, with its own rules."""

    def __init__(self, story: _Story, store: Any, rules: RulesSpec | None, name: str) -> None:
        self.story = story
        self.name = name
        self.rules = rules
        self.prepared: Any = None
        self.is_gone = False
        self.runtime = Runtime(
            [_agent(self)],
            store=store,
            people=story.people,
            rules=None if rules is None else rules.made(),
            clock=story.clock,
            idle_timeout=None,
            sweep=None,
            stop_timeout=0.001,
            new_id=story.new_id,
        )

    def swap(self, rules: RulesSpec | None) -> None:
        """From now on these hold here."""
        self.rules = rules
        self.runtime.rules = None if rules is None else rules.made()

    @property
    def ref(self) -> AgentRef:
        return self.runtime.spawn("desk", id=self.story.id)


def _agent(host: _Host) -> Agent:
    story = host.story

    async def pay(ctx: ToolContext[Any], order: str, amount: int) -> str:
        await story.entered(host, ctx, {"order": order, "amount": amount})
        return "paid"

    @tool(read_only=True)
    async def look(ctx: ToolContext[Any]) -> str:
        """Look."""
        await story.looked(host, ctx)
        return "seen"

    tools = [
        look,
        *(tool(name=name, description="Pay.")(pay) for name in TOOLS),
    ]
    helper = Agent("helper", ScriptedModel(_reply), tools=tools, middleware=[_Between(host)])
    gates: dict[str, Any] = {
        name: True if who is None else {"approval": who.made(), "grant": name == "send"}
        for name, who in GATES.items()
    }
    return Agent(
        "desk",
        ScriptedModel(_reply),
        tools=tools,
        middleware=[_Between(host), SubAgent([helper], general_purpose=False)],
        interrupt_on=gates,
    )


def _reply(request: ScriptedRequest) -> Any:
    """The next turn of the plan in the last message that has one."""
    turn = 0
    for message in reversed(request.messages):
        if isinstance(message, ModelResponse):
            turn += 1
            continue
        for part in reversed(message.parts):
            text = str(part.content) if isinstance(part, UserPromptPart) else ""
            if text.startswith("plan "):
                turns = text.removeprefix("plan ").split(";")
                return _calls(turns[turn], turn) if turn < len(turns) else "done"
    return "done"


def _calls(turn: str, number: int) -> list[Any]:
    made = []
    for at, each in enumerate(turn.split(",")):
        name, _, amount = each.partition(" ")
        if name == "task":
            plan = f"plan {amount.replace('/', ' ')}"
            given: dict[str, Any] = {"task_name": "helper", "instructions": plan}
        else:
            given = {} if name == "look" else {"order": f"{number}.{at}", "amount": int(amount)}
        made.append(call(name, given))
    return made


class _Story:
    def __init__(self, place: Path | Hosts, seed: int) -> None:
        self.clock = SimulatedClock()
        self.people = _Directory()
        self.roles = RoleLog()
        self.id = "case0"
        """The agent of the round."""
        self.delegations: DelegationLog = {}
        self.version = 0
        """The highest version that rules have had."""
        self.newest: RulesSpec | None = None
        """The rules of a version that each host must have; None if none."""
        self.granter = ""
        self.counts: dict[str, int] = {}
        self.violations: list[str] = []
        self.judges: dict[str, Judge] = {}
        """By agent, also of rounds that are over: what cools off may start later."""
        self.suspects: list[str] = []
        """Who has asked for something in this round, and will try to vote first."""
        chance = Random(f"rules {seed}")
        self.pool: list[RulesSpec | None] = [None, *(drawn_rules(chance) for _ in range(7))]
        self.bodies: list[Entered] = []
        self.lines: list[str] = []
        self.hosts: list[_Host] = []
        self.held: asyncio.Event | None = None
        self.is_held = asyncio.Event()
        self.hangs = False
        self.hung: _Host | None = None
        """Where a body hangs that pays; nothing but the end of its host gets it out."""
        self._entered: dict[str, int] = {}
        self._place = place
        self._numbers, self._ids = itertools.count(1), itertools.count(1)
        self._sqlite = SqlitePlace(place) if isinstance(place, Path) else None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.roles.note(self.clock.now(), self.people.logins())

    @property
    def judge(self) -> Judge:
        """Of the agent of the round."""
        return self._judge_of(self.id)

    def _judge_of(self, id: str) -> Judge:
        if id not in self.judges:
            log = (self.counts, self.delegations, self.violations)
            self.judges[id] = Judge(self.roles, GATES, *log)
        return self.judges[id]

    def new_id(self) -> str:
        """Ids by which a story looks the same each time."""
        return f"id{next(self._ids)}"

    # ------------------------------------------------------------------- what agents do

    async def entered(self, host: _Host, ctx: Any, arguments: dict[str, Any]) -> None:
        """A body that pays."""
        if host.is_gone:
            await never()
        number = self._entered.get(ctx.call_key, 0)
        self._entered[ctx.call_key] = number + 1
        agents = tuple(ctx.agent_path)
        newest = None if self.newest is None else self.newest.version
        body = Entered(
            call_key=ctx.call_key,
            agent_id=ctx.agent_id.partition("/")[0],
            tool=ctx.tool_name,
            agents=agents,
            arguments=arguments,
            rules=host.rules,
            number=number,
            newest=newest,
        )
        self.bodies.append(body)
        if self.hangs:
            self.hangs, self.held, self.hung = False, None, host
            self.is_held.set()
            await never()

    async def looked(self, host: _Host, ctx: Any) -> None:
        """A body that looks something up. It tries to decide, and waits where an act says so."""
        try:
            await host.ref.resume({"any": approve(by="ann")})
        except DecisionError as refused:
            if "from inside a tool" not in refused.message:
                self.violations.append(f"a tool was let decide: {refused}")
        if self.held is not None and not host.is_gone:
            held = self.held
            await self._recorded_to_start(host, ctx)
            self.is_held.set()
            await held.wait()

    async def _recorded_to_start(self, host: _Host, ctx: Any) -> None:
        """Until a store has the start of a call that only reads, which begins before that.

        Else what a kill leaves of the run is a matter of milliseconds.
        """
        agent_id = ctx.agent_id.partition("/")[0]
        while True:
            with suppress(UnknownAgent):  # before the first record
                records = (await host.runtime.export(agent_id))["records"]
                if any(r["kind"] == "started" and r["call_key"] == ctx.call_key for r in records):
                    return
            await asyncio.sleep(0)

    # ------------------------------------------------------------------------- the hosts

    async def opens(self, rules: RulesSpec | None, *, is_old: bool = False) -> _Host:
        """Another host, with the newest rules of a version where the store has some."""
        if self.newest is not None and not is_old:
            rules = self.newest
        name = f"host{next(self._numbers)}"
        if self._sqlite is not None:
            store = self._sqlite.store()
        else:
            assert not isinstance(self._place, Path), "else it is SQLite"
            store = DatabaseStore(self._place.new(name, durability="off"))
        host = _Host(self, store, rules, name)
        await host.runtime.__aenter__()
        self.hosts.append(host)
        return host

    async def closes(self, host: _Host) -> None:
        """The end of a host."""
        self.hosts.remove(host)
        await host.runtime.__aexit__(None, None, None)

    async def lived(self, acts: Sequence[Act]) -> int:
        """Play the acts until something is wrong; how many were played."""
        try:
            count = 2 if self._sqlite is None else 1
            for number in range(count):
                await self.opens(rules=self.pool[1 + number])
            for played, act in enumerate(acts, 1):
                await self._advance(1)
                self.lines.append(str(act))
                await self._acts(act)
                await self._judged()
                if self.violations:
                    return played
            return len(acts)
        finally:
            self._let_go()
            for host in list(self.hosts):
                host.is_gone = True
                await self.closes(host)
            await self._ended()

    async def _advance(self, seconds: float) -> None:
        await soon(self.clock.advance(seconds))

    async def _acts(self, act: Act) -> None:
        first, *words = act.what.split()
        if first == "begin":
            await self._begin(words, *act.numbers)
        else:
            await getattr(self, f"_{act.what.replace(' ', '_')}")(*act.numbers)

    async def _ended(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _host(self, number: int) -> _Host:
        return self.hosts[number % len(self.hosts)]

    async def _judged(self) -> None:
        host = self.hosts[0]
        with suppress(UnderstudyError):  # before the first run
            self.judge.read(await soon(self._records(host)))
        bodies, self.bodies = self.bodies, []
        for id in {body.agent_id for body in bodies} - {self.id}:
            exported = await soon(host.runtime.export(id))
            self._judge_of(id).read(exported["records"])
        for body in bodies:
            self._judge_of(body.agent_id).entered(body)
        if not self._is_held:
            self.judge.at_rest()

    async def _records(self, host: _Host) -> list[dict[str, Any]]:
        """What is recorded, once it is recorded that the run rests, or is over."""
        kinds = ("status_noted", "run_started", "attempt", "run_ended")
        idle = 0
        while True:
            runs = (await host.runtime.get(self.id).info()).status is Status.RUNNING
            records: list[dict[str, Any]] = (await host.runtime.export(self.id))["records"]
            last = next((each for each in reversed(records) if each["kind"] in kinds), None)
            if self._is_held or last is None or last["kind"] == "run_ended":
                return records
            # A host may end when a request is recorded, and not yet that the run rests.
            if not runs or last.get("status", "running") != "running":
                return records
            refs = [each.runtime.get(self.id) for each in self.hosts]
            idle = 0 if any(ref.status() is Status.RUNNING for ref in refs) else idle + 1
            if idle == MOST_LOOKS:
                self.violations.append("it is recorded to run, and nobody runs it")
                return records

    # -------------------------------------------------------------------------- waiting

    @property
    def _is_held(self) -> bool:
        return self.is_held.is_set()

    async def _rests(self, future: Any) -> Exception | None:
        """Until the run rests, or is held in a body; how it was refused."""

        async def settled() -> Any:
            return await future

        task = asyncio.ensure_future(settled())
        held = asyncio.ensure_future(self.is_held.wait())
        self._tasks |= {task, held}
        done, _ = await asyncio.wait({task, held}, timeout=LONG, return_when=FIRST_COMPLETED)
        held.cancel()
        if not done:
            self.violations.append(f"it does not come to rest: {future!r}")
        if not task.done():
            return None
        self._tasks.discard(task)
        error = task.exception()
        if error is not None and not isinstance(error, UnderstudyError):
            raise error
        self._say("" if error is None else f"    {type(error).__name__}: {str(error)[:150]}")
        return error if isinstance(error, Exception) else None

    def _say(self, line: str) -> None:
        if line:
            self.lines.append(line)

    def _let_go(self) -> None:
        held, self.held, self.hangs, self.hung = self.held, None, False, None
        if held is not None:
            held.set()
        self.is_held.clear()

    async def _rest(self) -> None:
        """Until the run rests, on whatever host, and that is recorded."""
        refs = [host.runtime.get(self.id) for host in self.hosts]
        await refs[0].outcome()
        while (
            any(ref.status() is Status.RUNNING for ref in refs)
            or (await refs[0].info()).status is Status.RUNNING
        ):
            await refs[0].outcome()
            await asyncio.sleep(0)

    async def _released(self) -> None:
        """The held body continues, and the run comes to rest."""
        if not self._is_held:
            self.held, self.hangs = None, False
            return
        if self.hung is not None:
            await self._kill(0, 0, 0, 0)
            await self._judged()
            return
        self._let_go()
        await self._rests(self._rest())
        await self._judged()

    # ----------------------------------------------------------------------------- acts

    def _plan(self, a: int, b: int) -> str:
        chance = Random(a * 1000 + b)
        turns = []
        for _ in range(chance.choice((1, 1, 2))):
            calls = []
            for _ in range(chance.choice((1, 1, 2))):
                name, amount = (
                    chance.choice(("pay", "pay", "wire", "grant")),
                    chance.choice(AMOUNTS),
                )
                inside = chance.random() < 0.3
                calls.append(f"task {name}/{amount}" if inside else f"{name} {amount}")
            turns.append(",".join(calls))
        return "plan " + ";".join(turns)

    async def _begin(self, words: Sequence[str], a: int, b: int, c: int, d: int) -> None:
        """A round: another agent, and people as they were in the beginning.

        Args:
            words: which rules hold; whether the run waits in a body first (held), and whether a
                call comes before another one (wire), or beside it, that anybody may edit or answer.
            a, b, c, d: what else is chosen.

        """
        await self._released()
        self.id = f"case{next(self._numbers)}"
        self.people.restore()
        self._note_roles()
        self.suspects.clear()
        self.people.meanwhile = None
        for given in self.delegations.values():
            given.ended = given.ended or self.clock.now()
        for each in await soon(self.hosts[0].runtime.delegations()):
            await soon(self.hosts[0].runtime.end_delegation(each.id))
        pool = next((FIXED[word] for word in words if word in FIXED), self.pool)
        for at, host in enumerate(self.hosts):
            host.prepared = None
            await self._puts(host, pool[(b + at) % len(pool)])
        await self._advance(61)
        self._say(f"    {self.hosts[0].rules}")
        if words and words[0] in CALM:
            c, d = 0, 2  # by a customer, and no body waits
        elif pool is not self.pool and c % 4:
            c = 0  # somebody who is known
        plan = next((PLANS[word] for word in words if word in PLANS), None) or self._plan(a, b)
        await self._runs(plan, c, 21 if "held" in words else d)

    async def _puts(self, host: _Host, rules: RulesSpec | None) -> None:
        """From now on these rules hold at the host, and none of a version in the store."""
        if self.newest is None:
            host.swap(rules)
            return
        await soon(host.runtime.retire_rules())
        host.rules = rules
        try:
            await soon(host.runtime.set_rules(None if rules is None else rules.made()))
        except UsageError as error:
            self.violations.append(f"rules that were retired hold: {error}")
        if host is self.hosts[-1]:
            self.newest = None

    async def _run_send(self, a: int, b: int, c: int, d: int) -> None:
        await self._released()
        await self._runs(PLANS["send"], 0, 2)

    async def _run_both(self, a: int, b: int, c: int, d: int) -> None:
        await self._released()
        await self._runs(PLANS["both"], 0, 2)

    async def _run(self, a: int, b: int, c: int, d: int) -> None:
        await self._released()
        await self._runs(self._plan(a, b), c, d)

    async def _runs(self, plan: str, c: int, d: int) -> None:
        by = SENDERS[c % len(SENDERS)]
        if d % 7 == 1:
            self.hangs = True
        elif d % 3 == 0:
            self.held = asyncio.Event()
            plan = plan.replace("plan ", "plan look 0;")
        self._suspect(by)
        self._say(f"    {by}: {plan}")
        await self._rests(self._host(d).ref.run(plan, by=by))

    async def _steer(self, a: int, b: int, c: int, d: int) -> None:
        by = (*VOTERS, *VOTERS, None)[a % 11]
        self._suspect(by)
        await soon(self._host(b).ref.send("quickly", steer=True, by=by))
        if not self._is_held:
            await self._rests(self._rest())
        elif c % 2:
            await self._released()

    async def _release(self, a: int, b: int, c: int, d: int) -> None:
        await self._released()

    async def _later(self, a: int, b: int, c: int, d: int) -> None:
        await self._advance(61)

    async def _outlast(self, a: int, b: int, c: int, d: int) -> None:
        """More time passes than most terms allow."""
        await self._advance(101)
        if not self._is_held:
            await self._rests(self._rest())

    async def _open(self) -> list[Any]:
        state = await soon(self.hosts[0].runtime.get(self.id).state())
        return sorted(state.requests, key=lambda each: (each.call_key, each.source, each.id))

    async def _decides(
        self, host: _Host, request: Any, decision: Decision, user: User | None = None
    ) -> None:
        is_away, now = self.people.is_away, self.clock.now()
        self._say(f"    {decision.by} {decision.type} {request.source} {request.call_key[-9:]}")
        ref = host.ref if user is None else user.calling(host.ref)
        error = await self._rests(ref.resume({request.id: decision}))
        is_vote = decision.type in ("approve", "reject") and decision.grant is None
        is_plain = is_vote and not decision.break_glass and user is None
        if isinstance(error, VoteRefused) and is_plain and not is_away:
            self.judge.refused(request.id, str(decision.by), now)
        elif error is not None and not isinstance(
            error, (DecisionError, NotInterrupted, PeopleUnavailable, UnfitHost)
        ):
            raise error

    async def _on_one(self, host: int, number: int, decision: Decision, *, plain: bool) -> None:
        if self._is_held:
            return
        requests = [each for each in await self._open() if (each.approval is None) is plain]
        if requests:
            await self._decides(self._host(host), requests[number % len(requests)], decision)

    async def _vote(self, a: int, b: int, c: int, d: int) -> None:
        make = reject if d % 9 == 0 else approve
        await self._on_one(c, b, make(by=STAFF[a % len(STAFF)]), plain=False)

    async def _twice(self, a: int, b: int, c: int, d: int) -> None:
        for login in (("ann", "ann@home"), ("bob", "bob"), ("eve", "eve"), ("ann", "ann"))[a % 4]:
            await self._on_one(c, b, approve(by=login), plain=False)

    async def _reject(self, a: int, b: int, c: int, d: int) -> None:
        await self._on_one(c, b, reject(by=VOTERS[a % len(VOTERS)]), plain=bool(d % 2))

    async def _reject_a_vote(self, a: int, b: int, c: int, d: int) -> None:
        await self._on_one(c, b, reject(by=VOTERS[a % len(VOTERS)]), plain=False)

    async def _edit(self, a: int, b: int, c: int, d: int) -> None:
        given = edit({"order": "edited", "amount": AMOUNTS[d % 5]}, by=VOTERS[a % len(VOTERS)])
        self._suspect(given.by)
        await self._on_one(c, b, given, plain=True)

    async def _respond(self, a: int, b: int, c: int, d: int) -> None:
        given = respond("it is paid", by=VOTERS[a % len(VOTERS)])
        self._suspect(given.by)
        await self._on_one(c, b, given, plain=True)

    async def _always(self, a: int, b: int, c: int, d: int) -> None:
        await self._on_one(c, b, approve(always=True, by="dan"), plain=True)

    async def _vote_all(self, a: int, b: int, c: int, d: int) -> None:
        """All approve, one after the other, until nobody is asked any more, or nobody helps.

        Who must not vote, and who has voted before, tries first.
        """
        await self._released()
        chance = Random(f"{a} {b} {c}")
        tricks = [*self.suspects, *chance.choice(TRICKS)]
        for at in range(MOST_VOTES):
            requests = await self._open()
            if not requests or self._is_held or self.violations:
                break
            request = requests[0] if at < len(tricks) else chance.choice(requests)
            if request.approval is not None:
                login = tricks[at] if at < len(tricks) else chance.choice((*VOTERS, *STAFF))
                given: Any = approve(by=login)
                if request.approval.assurance != "host" and chance.random() < 0.7:
                    await self._votes_as(request, login, chance.randrange(4), d)
                    continue
                if request.approval.use_after is not None and chance.random() < 0.3:
                    await self._outlast(a, b, c, d)
                    continue
            elif d % 3 == 0 and "edit" in request.allowed:
                given = edit({"order": "edited", "amount": chance.choice(AMOUNTS)}, by="cy")
                self._suspect("cy")
            else:
                given = approve(by=chance.choice(("amy", "dan", None)))
            await self._decides(self._host(d), request, given)
            await self._judged()
        await self._released()

    # --------------------------------------------------------- delegations, terms, grants

    async def _delegate(self, a: int, b: int, c: int, d: int) -> None:
        """Somebody lets another one vote with their roles, for a while or for a minute and more."""
        giver, getter = VOTERS[a % len(VOTERS)], ("kim", "kim", "dan", "amy", "bot")[b % 5]
        await self._delegates(giver, getter, c, 90 if d % 2 else 9_000)

    async def _delegate_finance(self, a: int, b: int, c: int, d: int) -> None:
        await self._delegates(("ann", "bob", "cy", "eve")[a % 4], "kim", c, 9_000)

    async def _delegates(self, giver: str, getter: str, c: int, seconds: float) -> None:
        roles = sorted(self.people.logins()[giver][2])
        until = self.clock.now() + timedelta(seconds=seconds)
        if not roles or giver == getter:
            return
        try:
            made = await soon(
                self._host(c).runtime.delegate(
                    from_=giver, to=getter, roles=roles, until=until, reason="away"
                )
            )
        except UnderstudyError as refused:  # a service, or a role that is known to be lost
            self._say(f"    {type(refused).__name__}: {refused}")
            return
        self._say(f"    {giver} to {getter} until {until:%H:%M:%S}: {roles}")
        self.delegations[made.id] = Delegated(giver, getter, frozenset(roles), until)

    def _given(self) -> Delegated | None:
        return next(reversed(self.delegations.values()), None)

    async def _vote_as_delegate(self, a: int, b: int, c: int, d: int) -> None:
        given = self._given()
        if given is not None:
            await self._on_one(c, b, approve(by=given.getter), plain=False)

    async def _vote_as_both(self, a: int, b: int, c: int, d: int) -> None:
        given = self._given()
        if given is not None:
            both = [given.getter, given.giver]
            for login in both if a % 2 else reversed(both):
                await self._on_one(c, 0, approve(by=login), plain=False)
                await self._judged()

    async def _end_delegation(self, a: int, b: int, c: int, d: int) -> None:
        for id, given in self.delegations.items():
            if given.ended is None and await soon(self._host(c).runtime.end_delegation(id)):
                given.ended = self.clock.now()

    async def _giver_loses(self, a: int, b: int, c: int, d: int) -> None:
        given = self._given()
        for role in sorted(given.roles) if given is not None else ():
            self._loses_if_there(given.giver, role)  # type: ignore[union-attr]  # seen above
        await self._advance(61)

    def _loses_if_there(self, login: str, role: str) -> None:
        if role in self.people.logins()[login][2]:
            self._loses(login, role)

    async def _break_glass(self, a: int, b: int, c: int, d: int) -> None:
        await self._on_one(c, d, approve(by="eve", break_glass=True, note="fire"), plain=False)

    async def _break_glass_wrongly(self, a: int, b: int, c: int, d: int) -> None:
        """By somebody without the role, or without a reason."""
        for by, note in (("eve", None), (("bob", "ann", "cy")[a % 3], "fire")):
            given = approve(by=by, break_glass=True, note=note)
            await self._on_one(c, d, given, plain=False)

    async def _review(self, a: int, b: int, c: int, d: int) -> None:
        """Who has broken the glass tries to close the review, and then another person does."""
        runtime = self._host(c).runtime
        for review in await soon(runtime.reviews()):
            for login in ("eve", "bob", "kim"):
                with suppress(UnderstudyError):
                    await soon(runtime.get(review.agent_id).close_review(review.id, by=login))

    async def _vote_as_finance(self, a: int, b: int, c: int, d: int) -> None:
        by = ("ann", "bob", "cy", "eve")[a % 4]
        await self._on_one(c, b, approve(by=by), plain=False)

    async def _vote_as_suspects(self, a: int, b: int, c: int, d: int) -> None:
        """All who have asked for something in this round vote."""
        for login in list(self.suspects):
            await self._on_one(c, 0, approve(by=login), plain=False)

    async def _vote_as_login(self, a: int, b: int, c: int, d: int) -> None:
        requests = [each for each in await self._open() if each.approval is not None]
        if requests and not self._is_held:
            await self._votes_as(requests[0], VOTERS[a % len(VOTERS)], b % 4, c)

    async def _vote_by_an_old_login(self, a: int, b: int, c: int, d: int) -> None:
        requests = [each for each in await self._open() if each.approval is not None]
        if requests and not self._is_held:
            await self._votes_as(requests[0], ("ann", "bob", "cy", "eve")[a % 4], 3, c)

    async def _votes_as(self, request: Any, login: str, how: int, host: int) -> None:
        """Somebody votes who has logged in: here, or at a provider now, long ago, or some time."""
        user = User(login, {"read", "decide"})
        if how:
            ago = (None, timedelta(seconds=5), timedelta(seconds=700))[how - 1]
            at = None if ago is None else self.clock.now() - ago
            issuer = "https://idp.example"
            known = Caller(name=login, assurance="idp", issuer=issuer, subject=login, auth_at=at)
            user = User(login, {"read", "decide"}, verified=known)
        await self._decides(self._host(host), request, approve(by=login), user)
        await self._judged()

    async def _give(self, a: int, b: int, c: int, d: int) -> None:
        """A decision that holds for later calls."""
        terms = grant(
            uses=(None, 1, 2, 3)[b % 4],
            until=(None, 50, 50, 9_000)[c % 4],
            match=(None, ["amount"], [])[d % 3],
            scope="agent" if (a + d) % 4 else "run",
        )
        await self._gives(terms, a, b)

    async def _give_once(self, a: int, b: int, c: int, d: int) -> None:
        await self._gives(grant(uses=1, match=[], scope="agent"), a, b)

    async def _give_for_an_amount(self, a: int, b: int, c: int, d: int) -> None:
        await self._gives(grant(match=["amount"], scope="agent"), a, b)

    async def _give_for_a_run(self, a: int, b: int, c: int, d: int) -> None:
        await self._gives(grant(match=[]), a, b)

    async def _give_for_a_while(self, a: int, b: int, c: int, d: int) -> None:
        await self._gives(grant(until=50, match=[], scope="agent"), a, b)

    async def _give_freely(self, a: int, b: int, c: int, d: int) -> None:
        await self._gives(grant(match=[], scope="agent"), a, b)

    async def _gives(self, terms: GrantTerms, a: int, b: int) -> None:
        if self._is_held:
            return
        requests = [each for each in await self._open() if each.offer is not None]
        if not requests:
            return
        request = requests[0]
        self.granter = ("ann", "bob", "cy")[a % 3]
        await self._decides(self._host(b), request, approve(grant=terms, by=self.granter))

    async def _revoke(self, a: int, b: int, c: int, d: int) -> None:
        if not self._is_held:
            for id in (await soon(self.hosts[0].runtime.get(self.id).state())).grants:
                await soon(self._host(c).runtime.get(self.id).revoke(id))

    async def _granter_loses(self, a: int, b: int, c: int, d: int) -> None:
        if self.granter:
            self._loses_if_there(self.granter, "finance")
        await self._advance(61)

    async def _older(self, a: int, b: int, c: int, d: int) -> None:
        """The rules get a higher version, and a host that has the one before tries to continue."""
        await self._released()
        base = self._host(c).rules or RulesSpec(())
        old, new = replace(base, version=self.version + 1), replace(base, version=self.version + 2)
        self.version += 2
        for host in self.hosts:
            host.rules = old
            await soon(host.runtime.set_rules(old.made()))
        self.newest = new
        for host in self.hosts:
            host.rules = new
            await soon(host.runtime.set_rules(new.made()))
        other = RulesSpec((*base.rules, RuleSpec("deny", "other")), version=new.version)
        with suppress(UsageError):
            await soon(self.hosts[0].runtime.set_rules(other.made()))
            self.violations.append("two sets of rules have one version")
            return
        if self._sqlite is not None:
            await self.closes(self.hosts[0])
        older = await self.opens(old, is_old=True)
        for login in ("ann", "bob", "cy", "eve", "dan"):
            requests = [each for each in await self._open() if each.approval is not None]
            if requests and not self._is_held:
                await self._decides(older, requests[0], approve(by=login))
        await self._judged()
        await self.closes(older)
        if self._sqlite is not None:
            await self._goes_on(await self.opens(new))

    async def _vote_and_lose(self, a: int, b: int, c: int, d: int) -> None:
        """Somebody votes, and loses the role that counted before the call starts."""
        requests = [each for each in await self._open() if each.approval is not None]
        if self._is_held or not requests:
            return
        request = requests[b % len(requests)]
        found = [
            (login, role)
            for login in VOTERS
            for role in sorted(self.people.logins()[login][2] & request.approval.roles)
        ]
        if found:
            login, role = found[a % len(found)]
            await self._decides(self._host(c), request, approve(by=login))
            self._loses(login, role)
            await self._advance(61)

    def _suspect(self, login: str | None) -> None:
        if login is not None and login not in self.suspects:
            self.suspects.append(login)

    def _note_roles(self) -> None:
        self.roles.note(self.clock.now(), self.people.logins())

    async def _lose(self, a: int, b: int, c: int, d: int) -> None:
        login = VOTERS[a % len(VOTERS)]
        roles = sorted(self.people.logins()[login][2])
        if roles:
            self._loses(login, roles[b % len(roles)])
        if d % 3:
            await self._advance(61)

    def _loses(self, login: str, role: str) -> None:
        for each in self._logins_of(login):
            self.people.lose_role(each, role)
        self._say(f"    {login} loses {role}")
        self._note_roles()

    def _logins_of(self, login: str) -> list[str]:
        return [each for each in (login, f"{login}@home") if each in self.people.logins()]

    async def _gain(self, a: int, b: int, c: int, d: int) -> None:
        login, role = VOTERS[a % len(VOTERS)], ("finance", "finance", "legal", "ceo")[b % 4]
        for each in self._logins_of(login):
            self.people.gain_role(each, role)
        self._say(f"    {login} gains {role}")
        self._note_roles()
        if d % 3:
            await self._advance(61)

    async def _away(self, a: int, b: int, c: int, d: int) -> None:
        """The directory is away for one vote."""
        self.people.is_away = True
        await self._advance(61)
        await self._vote(a, b, c, d)
        self.people.is_away = False

    async def _swap(self, a: int, b: int, c: int, d: int) -> None:
        rules = self.pool[a % len(self.pool)]
        self._say(f"    {rules}")
        self._host(c).swap(rules)

    async def _swap_beside(self, a: int, b: int, c: int, d: int) -> None:
        """Rules change while the next call is in a middleware, or somebody is looked up."""
        rules, host = FIXED["sudden"][a % 2], self._host(c)
        self._say(f"    {rules}")
        if d % 2:
            host.prepared = rules
        else:
            self.people.meanwhile = lambda: host.swap(rules)
            await self._advance(61)

    async def _change(self, a: int, b: int, c: int, d: int) -> None:
        """A middleware changes the arguments of the next call that pays."""
        for host in self.hosts:
            host.prepared = "change"

    async def _passivate(self, a: int, b: int, c: int, d: int) -> None:
        if self._is_held:
            return
        await soon(self._host(c).runtime.get(self.id).stop(block=False))

    async def _compact(self, a: int, b: int, c: int, d: int) -> None:
        if self._is_held:
            return
        runtime = self._host(c).runtime
        await soon(runtime.get(self.id).compact())
        self.judge.cursor = len((await soon(runtime.export(self.id)))["records"])

    async def _crash(self, a: int, b: int, c: int, d: int) -> None:
        """The actor of the agent ends behind everybody's back."""
        for actor in LoopActorRegistry.get_by_class(AgentActor):
            await soon(actor.stop_now(RuntimeError("injected")))
        if not self._is_held:
            await self._rests(self._rest())

    async def _kill(self, a: int, b: int, c: int, d: int) -> None:
        """A host ends as by `kill -9`; another host continues, with other rules."""
        host = self.hung or self._host(c)
        host.is_gone = True
        rules = self.pool[a % len(self.pool)] if b % 2 else host.rules
        self._say(f"    {rules}")
        if self._sqlite is not None:
            self._sqlite = self._sqlite.copied()
        else:
            assert not isinstance(self._place, Path), "else it is SQLite"
            self._place.end_lease(host.name)
        self._let_go()
        await self.closes(host)
        await self._goes_on(await self.opens(rules=rules))

    async def _restart(self, a: int, b: int, c: int, d: int) -> None:
        """A host ends in order; another host continues, with other rules."""
        await self._released()
        host = self._host(c)
        rules = self.pool[a % len(self.pool)] if b % 2 else host.rules
        self._say(f"    {rules}")
        await self.closes(host)
        await self._goes_on(await self.opens(rules=rules))

    async def _goes_on(self, host: _Host) -> None:
        async def recovered() -> None:
            await (await host.runtime.recover()).settled
            with suppress(UnknownAgent):  # before the first run
                await self._rest()

        await self._rests(recovered())

    async def _move(self, a: int, b: int, c: int, d: int) -> None:
        """The agent is exported, and continues in another store."""
        await self._released()
        if self._sqlite is None:
            return
        await self._vote(a, b, c, d)
        [host] = self.hosts
        data = await soon(host.runtime.export(self.id))
        rules = None if host.rules is None else replace(host.rules, version=None)
        await self.closes(host)
        self._sqlite = self._sqlite.beside()
        self.newest = None  # the log of trust stays there
        for given in self.delegations.values():
            given.ended = given.ended or self.clock.now()
        new = await self.opens(rules=rules)
        await soon(new.runtime.import_(data, by="amy" if d % 2 else None))
        await self._goes_on(new)


async def told(place: Path | Hosts, seed: int, acts: Sequence[Act]) -> Told:
    """Tell a story, until something is wrong or it is over.

    Args:
        place: a folder for stores of SQLite, one host after the other; or hosts of PostgreSQL, two
            at once.
        seed: of the rules.
        acts: what happens.

    """
    story = _Story(place, seed)
    played = await story.lived(acts)
    return Told(story.violations, played, story.counts, story.lines)


TRIES = 20
"""How often a story that has shown something wrong is played until it shows that again."""


async def shortened(folder: Path, seed: int, acts: Sequence[Act]) -> str:
    """A story in which something is wrong, with as few acts as it takes, as a text.

    Args:
        folder: where nothing is.
        seed: of the rules.
        acts: the acts until that shows.

    """
    kept, numbers = list(acts), itertools.count()

    async def again(fewer: Sequence[Act], tries: int = 1) -> Told:
        """What shows it, of so many tries: votes at once meet in another order each time."""
        for number in itertools.islice(numbers, tries):
            place = folder / f"again{number}"
            place.mkdir()
            found = await told(place, seed, fewer)
            if found.violations:
                break
        return found

    begins = [at for at, act in enumerate(kept) if act.what.startswith("begin")]
    shown = await again(kept[begins[-1] :], TRIES)
    if not shown.violations:
        shown = await again(kept, TRIES)
    else:  # each round is of another agent
        kept = kept[begins[-1] :]
        for at in reversed(range(1, len(kept))):
            fewer = await again([*kept[:at], *kept[at + 1 :]])
            if fewer.violations:
                kept, shown = [*kept[:at], *kept[at + 1 :]], fewer
    return "\n".join([f"seed {seed}:", *shown.lines, *shown.violations])
