"""A program with Pykka actors of its own behaves the same with `understudy` beside them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SNAPSHOT = '''
import asyncio, logging, signal, sys, threading
import pykka, pykka.debug, pykka.messages


def members():
    """Every global of Pykka, and every member of its classes, by identity."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "pykka":
            continue
        for key, value in vars(module).items():
            found[name, key] = id(value)
            if isinstance(value, type) and value.__module__.startswith("pykka"):
                for attribute, member in vars(value).items():
                    # abc replaces its caches whenever a class is made.
                    if not attribute.startswith("_abc_"):
                        found[name, key, attribute] = id(member)
    return found


def process():
    """What belongs to the whole process, and a library should leave alone."""
    return {
        "threads": [thread.name for thread in threading.enumerate()],
        "signals": [repr(signal.getsignal(number)) for number in signal.valid_signals()],
        "hooks": [sys.excepthook, threading.excepthook, sys.unraisablehook, sys.displayhook],
        "loops": [asyncio.new_event_loop, asyncio.run, asyncio.Task, asyncio.get_event_loop_policy],
        "logging": [
            logging.root.level, list(logging.root.handlers), logging.getLogger("pykka").level,
            logging.getLoggerClass(), logging.getLogger("pykka").handlers,
            logging.getLogger("asyncio").level, logging.getLogger("asyncio").handlers,
        ],
        "switch interval": sys.getswitchinterval(),
        "recursion": sys.getrecursionlimit(),
    }
'''

HOST = '''
import json


class Counter(pykka.ThreadingActor):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def on_receive(self, message):
        if isinstance(message, Exception):
            raise message
        self.number += message
        return self.number

    def on_stop(self):
        stopped.append(self.number)


class Special(Counter):
    pass


stopped = []
registry = pykka.ActorRegistry
names = {}


def named(refs):
    return [names.get(ref.actor_urn, str(ref)) for ref in refs]


def operations():
    """What a program does with its actors and the registry, and what it sees."""
    stopped.clear()
    refs = [Counter.start(10), Special.start(20), Counter.start(30)]
    names.update(zip((ref.actor_urn for ref in refs), "abc"))
    seen = [named(registry.get_all())]
    registry.broadcast(1)
    registry.broadcast(2, target_class=Special)
    registry.broadcast(3, target_class="Counter")
    seen.append([ref.proxy().number.get() for ref in refs])
    seen.append(named(registry.get_by_class(Counter)))
    seen.append(named(registry.get_by_class(pykka.Actor)))
    seen.append(named(registry.get_by_class_name("Special")))
    seen.append(named([registry.get_by_urn(refs[1].actor_urn)]))
    registry.unregister(refs[0])
    seen.append(named(registry.get_all()))
    registry.register(refs[0])
    seen.append(named(registry.get_all()))
    try:
        refs[2].ask(ValueError("v"))
    except ValueError as error:
        seen.append(str(error))
    seen.append(pykka.get_all([ref.ask(1, block=False) for ref in refs]))
    seen.append(refs[1].stop())
    seen.append(registry.stop_all())
    seen.append(named(registry.get_all()))
    seen.append(stopped[:])
    seen.append([type(value).__name__ for value in vars(registry).values()])
    seen.append([type(registry._actor_refs).__name__, len(registry._actor_refs)])
    return seen
'''

ALONE = "print(json.dumps([operations(), operations()]))\n"

BESIDE = """
members(), process()
before = members(), process()
import understudy, understudy.actors
assert "pydantic_ai" in sys.modules
after = members(), process()
changed = {key for key in before[0] | after[0] if before[0].get(key) != after[0].get(key)}
assert not changed, changed
assert before[1] == after[1], (before[1], after[1])
first = operations()

from understudy import Agent, Runtime, ScriptedModel
from understudy.actors import LoopActor, LoopActorRegistry

with Runtime([Agent("desk", ScriptedModel(lambda _: "hello"))]) as runtime:
    agent = runtime.spawn("desk")
    assert agent.run("Hi!").get(timeout=60).text == "hello"
    mine = LoopActor.start()
    ours = LoopActorRegistry.get_all()
    assert mine in ours and len(ours) > 2
    second = operations()  # it ends by `stop_all`
    assert LoopActorRegistry.get_all() == ours
    assert all(ref.is_alive() for ref in ours)
    assert agent.run("Hi again!").get(timeout=60).text == "hello"
theirs = Counter.start(1)
assert LoopActorRegistry.stop_all(timeout=60) == [True]
assert not mine.is_alive() and LoopActorRegistry.get_all() == []
assert registry.get_all() == [theirs] and theirs.ask(1) == 2
assert theirs.stop()
changed = {key for key in before[0] | members() if before[0].get(key) != members().get(key)}
assert not changed, changed
print(json.dumps([first, second]))
"""


def played(script: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_host_and_its_pykka_actors_notice_nothing_of_us() -> None:
    """Nothing of Pykka is replaced, and neither registry lists or stops actors of the other."""
    alone = played(SNAPSHOT + HOST + ALONE)
    assert alone[0] == alone[1]
    assert alone[0][0] == ["a", "b", "c"]
    assert played(SNAPSHOT + HOST + BESIDE) == alone


@pytest.mark.slow
def test_it_is_imported_where_the_platform_has_no_fork() -> None:
    script = (
        "import os\n"
        "for name in ('fork', 'register_at_fork'):\n"
        "    vars(os).pop(name, None)\n"
        "import understudy\n"
        "print(understudy.LoopActor.start().stop(timeout=60) * 1)\n"
    )
    assert played(script) == 1
