"""What callers do at random hosts, and what must come of it."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

from tests.support.durability.fleet import NAMES, Answer, Fleet, Script, Stuck

__all__ = ["BUSY", "KINDS", "Callers"]

Steps = Generator[Callable[[], bool], None, Answer]
MOST_STEPS = 20
LEFT = """
SELECT FROM inbox i WHERE i.reply IS NULL OR EXISTS (
    SELECT FROM hosts h WHERE h.id = i.asker AND h.lease_until > clock_timestamp())"""
"""The reply to an asker who died is kept for an hour: who was only stopped comes for it."""
BUSY = """
SELECT a.agent_id, a.index_status, a.takeable, a.status, h.name
FROM agents a LEFT JOIN hosts h ON h.id = a.owner AND h.lease_until > clock_timestamp()
WHERE a.agent_id LIKE %s AND NOT a.deleted
    AND (a.index_status <> 'rest' OR (NOT a.takeable AND h.id IS NOT NULL))"""
"""Agents with open work. A host that dies between the end of a run and the status that follows
leaves one that is at rest, and that everybody may claim: it has no owner."""
TOO_LATE = ("AlreadyDecided", "NotInterrupted")
"""The answer to the second of two people who decide differently."""


class Callers:
    """Callers of agents; keeps the answers that each got, and what must be true at the end.

    Args:
        fleet: the hosts.
        chance: chooses hosts and calls.

    """

    def __init__(self, fleet: Fleet, chance: random.Random) -> None:
        self.fleet = fleet
        self.chance = chance
        self.doubts = 0
        self.asked = 0
        self._numbers = 0
        self._effects: dict[str, tuple[int, ...]] = {}
        """By prompt, how often it may have its effect."""
        self._messages: dict[str, str] = {}
        """By id, the prompts that must be in the store once."""

    def wrong(self, what: str) -> None:
        self.fleet.violations.append(what)

    def host(self, *others: str) -> str:
        """A random one, but for these."""
        return self.chance.choice([name for name in NAMES if name not in others])

    def hosts(self) -> list[str]:
        """All of them, in a random order."""
        return self.chance.sample(NAMES, len(NAMES))

    def prompt(self, verb: str, *effects: int) -> str:
        """Another one, and how often it may have its effect. To hold has none."""
        self._numbers += 1
        prompt = f"{verb} {self._numbers}"
        self._effects[prompt] = effects or ((0,) if verb == "hold" else (1,))
        return prompt

    def may_have(self, prompt: str, *effects: int) -> None:
        self._effects[prompt] = effects

    def must_keep(self, message_id: str, prompt: str) -> None:
        """The message was taken: it must be there, once."""
        self._messages[message_id] = prompt

    # ------------------------------------------------------------------- calls

    def ask(self, host: str, do: str, id: str, **given: Any) -> int:
        self.asked += 1
        return self.fleet.ask(host, do, id, **given)

    def run(self, host: str, id: str, prompt: str, **given: Any) -> int:
        self.must_keep(f"m-{prompt}", prompt)
        return self.ask(host, "run", id, prompt=prompt, message_id=f"m-{prompt}", **given)

    def send(self, host: str, id: str, prompt: str, *, steer: bool = False, **given: Any) -> int:
        given |= {"prompt": prompt, "message_id": f"m-{prompt}", "steer": steer}
        return self.ask(host, "send", id, **given)

    def is_entered(self, prompt: str) -> Callable[[], bool]:
        return lambda: self.times_entered(prompt) > 0

    def entered(self, id: str, run: int, prompt: str) -> Generator[Callable[[], bool], None, int]:
        """Wait until the call of a prompt is entered; the number of the call to wait for.

        A person approves a call that a doubt binds: that of a run that was cancelled before.
        """
        yield lambda: self.is_entered(prompt)() or self.fleet.is_answered(run)
        while not self.is_entered(prompt)():
            told = self.fleet.answer(run)
            if told["is"] != "Interrupted":
                self.wrong(f"the caller of {prompt!r} at {id} was told {told}")
                break
            decisions = [(request, "approve", prompt) for request, *_ in told["requests"]]
            run = self.ask(self.host(), "resume", id, decisions=decisions)
            yield lambda: self.is_entered(prompt)() or self.fleet.is_answered(run)  # noqa: B023
        return run

    def release(self, prompt: str) -> None:
        self.fleet.log.write("release", prompt)

    def times_entered(self, prompt: str) -> int:
        return sum(entry.of[1] == prompt for entry in self.fleet.log.read("entered"))

    def pause(self, seconds: float) -> Steps:
        end = time.monotonic() + seconds
        yield lambda: time.monotonic() > end
        return {}

    def end_of(self, id: str, number: int, message_id: str | None = None) -> Steps:
        """The answer to a call, once its doubts are decided and the run continues.

        Args:
            id: of the agent.
            number: of the call.
            message_id: of the run that it is about, if others may follow.

        """
        told = yield from self.fleet.told(number)
        for _ in range(MOST_STEPS):
            match told["is"]:
                case "DecisionError" if message_id is not None and number in self.fleet.repeated:
                    # Decided before, and another run has begun since: it was made again too late.
                    again = self.ask(self.host(), "outcome", id, message_id=message_id)
                case "Interrupted" if all(kind == "doubt" for _, kind, *_ in told["requests"]):
                    decisions = [self._decision(*request) for request in told["requests"]]
                    again = self.ask(self.host(), "resume", id, decisions=decisions)
                case "Held":
                    again = self.ask(self.host(), "retry", id)
                case "Paused":
                    yield from self.fleet.told(self.ask(self.host(), "unpause", id))
                    again = self.ask(self.host(), "outcome", id, message_id=message_id)
                case _:
                    return told
            number = again
            told = yield from self.fleet.told(number)
        raise AssertionError(f"{id} comes to no end: {told}")

    def _decision(self, id: str, _: str, key: str, name: str, what: str) -> tuple[str, str, str]:
        """What a person says about a call in doubt, who can see what it did."""
        self.doubts += 1
        if not self.fleet.was_away:
            self.wrong(f"{what} is in doubt, and no host was away")
        done = self.fleet.log.has("effect", key, name, what, _agent_of(key, what, self.fleet))
        return id, "respond" if done else "approve", what

    def completed(self, id: str, prompt: str, number: int) -> Steps:
        """The run of a prompt has its own outcome."""
        told = yield from self.end_of(id, number, f"m-{prompt}")
        if told["is"] != "Completed" or prompt not in told["text"].split("|"):
            self.wrong(f"the caller of {prompt!r} at {id} was told {told}")
        return told

    def check_cancelled(self, id: str, prompt: str, cancel: int, told: Answer) -> None:
        """Check the answer to the caller who cancels the run of a prompt."""
        # Made again, it finds no run: it was done before.
        was_done = told["is"] == "NoneType" and cancel in self.fleet.repeated
        if told["is"] != "Stopped" and not was_done:
            self.wrong(f"who cancels {prompt!r} at {id} was told {told}")

    # ------------------------------------------------------------------- callers

    def simple(self, id: str) -> Script:
        """Asks, and gets the answer."""
        prompt = self.prompt("do")
        yield from self.completed(id, prompt, self.run(self.host(), id, prompt))

    def two_persons(self, id: str) -> Script:
        """Answer one request, at two hosts at once."""
        prompt = self.prompt("ask", 0, 1)
        told = yield from self.end_of(id, self.run(self.host(), id, prompt))
        requests = told.get("requests", [])
        if told["is"] != "Interrupted" or len(requests) != 1:
            self.wrong(f"the caller of {prompt!r} at {id} was told {told}")
            return
        ((request, *_),) = requests
        second = self.chance.choice(("approve", "reject"))
        persons = [
            self.ask(host, "resume", id, decisions=[(request, said, prompt)])
            for host, said in zip(self.hosts(), ("approve", second), strict=False)
        ]
        answers = []
        for person in persons:
            answers.append((yield from self.end_of(id, person)))
        are = [answer["is"] for answer in answers]
        if second == "approve":
            self.may_have(prompt, 1)
            if are != ["Completed", "Completed"]:
                self.wrong(f"both approve {prompt!r} at {id}: {answers}")
        elif sorted(each in TOO_LATE for each in are) == [False, True] and "Completed" in are:
            self.may_have(prompt, int(are[0] == "Completed"))
        else:
            self.wrong(f"one approves and one rejects {prompt!r} at {id}: {answers}")

    def canceller(self, id: str) -> Script:
        """Cancels a run from another host; the next run is none of its business."""
        prompt, after = self.prompt("hold"), self.prompt("do")
        run = self.run(self.host(), id, prompt)
        run = yield from self.entered(id, run, prompt)
        cancel = self.ask(self.host(), "cancel", id)
        told = yield from self.end_of(id, cancel)
        self.check_cancelled(id, prompt, cancel, told)
        told = yield from self.end_of(id, run)
        if told["is"] != "Stopped":
            self.wrong(f"the caller of {prompt!r} at {id}, cancelled, was told {told}")
        yield from self.completed(id, after, self.run(self.host(), id, after))

    def pauser(self, id: str) -> Script:
        """Pauses a run and continues it, each at some host."""
        prompt = self.prompt("hold")
        run = self.run(self.host(), id, prompt)
        run = yield from self.entered(id, run, prompt)
        for do in ("pause", "unpause"):
            told = yield from self.fleet.told(self.ask(self.host(), do, id))
            if told["is"] != "NoneType":
                self.wrong(f"{do} at {id}: {told}")
        self.release(prompt)
        yield from self.completed(id, prompt, run)

    def steerer(self, id: str) -> Script:
        """Adds to an open run from another host."""
        prompt = self.prompt("hold")
        run = self.run(self.host(), id, prompt)
        run = yield from self.entered(id, run, prompt)
        prompts: list[str] = []
        for steer in (True, self.chance.random() < 0.5):
            added = self.prompt("do")
            prompts.append(added)
            told = yield from self.fleet.told(self.send(self.host(), id, added, steer=steer))
            if told != {"is": "str", "value": f"m-{added}"}:
                self.wrong(f"who sends {added!r} to {id} was told {told}")
            self.must_keep(f"m-{added}", added)
        self.release(prompt)
        yield from self.completed(id, prompt, run)
        # What was not added to this run is the next one's. A host may die in that, too: somebody
        # has to decide what is in doubt then.
        for added in prompts:
            message_id = f"m-{added}"
            outcome = self.ask(self.host(), "outcome", id, message_id=message_id)
            yield from self.end_of(id, outcome, message_id)
        yield lambda: _is_idle(self.fleet, id)

    def user(self, id: str, until: Callable[[], bool]) -> Script:
        """Does one of these after the other."""
        while not until():
            yield from self.chance.choice(KINDS)(self, id)

    # ------------------------------------------------------------------- the end

    def check_entered(self) -> None:
        """No call is made twice, unless its host was away meanwhile."""
        entered = Counter(entry.of[0] for entry in self.fleet.log.read("entered"))
        if max(entered.values(), default=0) > 1 and not self.fleet.was_away:
            self.wrong("a call was entered twice, and no host was away")

    def judge(self) -> None:
        """Look at what is left when all callers have their answers."""
        fleet = self.fleet
        try:
            fleet.until(lambda: not fleet.find(LEFT), "the inbox is empty")
        except Stuck:
            rows = fleet.find("SELECT id, kind, begun, reply FROM inbox")
            self.wrong(f"left in the inbox: {rows}")
        try:
            fleet.until(lambda: _is_idle(fleet, "%"), "all agents are at rest")
        except Stuck:
            found = fleet.find(BUSY, "%")
            self.wrong(f"not all agents are at rest: {found}")
        effects = Counter(entry.of[2] for entry in fleet.log.read("effect"))
        for prompt, may in self._effects.items():
            if effects[prompt] not in may:
                self.wrong(f"{prompt!r} had its effect {effects[prompt]} times, not {may}")
        self.check_entered()
        kept: Counter[str] = Counter()
        begun: Counter[str] = Counter()
        runs: Counter[str] = Counter()
        for id, kind, payload in fleet.find(
            "SELECT a.agent_id, r.kind, r.payload FROM records r JOIN agents a ON a.key = r.agent"
            " WHERE r.kind IN ('run_started', 'message_queued', 'run_ended')"
        ):
            record = json.loads(bytes(payload))
            runs[id] += {"run_started": 1, "run_ended": -1}.get(kind, 0)
            if kind == "message_queued":
                kept[record["message_id"]] += 1
            elif kind == "run_started":
                begun.update(str(part["content"]) for part in record["message"]["parts"])
            for message_id in record.get("message_ids", ()):
                kept[f"run of {message_id}"] += 1
        for message_id, prompt in self._messages.items():
            of_id, queued = kept[f"run of {message_id}"], kept[message_id]
            if max(of_id, queued) != 1:
                self.wrong(f"{prompt!r} is kept {queued} times, and begun {of_id} times")
        for prompt, times in begun.items():
            if times > 1:
                self.wrong(f"{prompt!r} is the input of {times} runs")
        for id, open_runs in runs.items():
            if open_runs:
                self.wrong(f"{open_runs} runs of {id} have no end")


KINDS: tuple[Callable[[Callers, str], Script], ...] = (
    Callers.simple,
    Callers.two_persons,
    Callers.canceller,
    Callers.pauser,
    Callers.steerer,
)


def _agent_of(key: str, what: str, fleet: Fleet) -> str:
    for entry in fleet.log.read("effect"):
        if entry.of[0] == key and entry.of[2] == what:
            return entry.of[3]
    return ""


def _is_idle(fleet: Fleet, id: str) -> bool:
    return not fleet.find(BUSY, id)
