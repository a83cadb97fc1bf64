"""What is written for speed or for memory where plain Python would do, and what that saves.

Everything else is plain. A place is kept if it saves more than 1 % of what its benchmark measures,
or more than 50 bytes of an agent; else it is written plainly. The comment at the place says what
plain code takes, and `tests/benchmarks/test_defended.py` holds both together.

Figures are of CPython 3.11 on Linux. Instructions and bytes are counted, and times are the shortest
of many: a core step takes 75 µs, of 4,420 bytecodes of this library, and an idle agent 6.0 KB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DEFENDED", "Benchmark", "Defended"]

Benchmark = Literal[
    "core step",
    "durable step",
    "run of one step",
    "idle agent",
    "actor",
    "many records",
]
"""What is measured: `python -m benchmarks.compare` measures a core step and a run of one step,
`python -m benchmarks.durable` a durable step, an idle agent and a store of many records, and
`python -m benchmarks.actors` an actor."""


@dataclass(frozen=True, slots=True)
class Defended:
    """A place that is not written plainly."""

    where: str
    """The module, class or function, without the name of the package."""
    what: str
    """What is there in place of plain code."""
    saves: str
    """What plain code would take more."""
    of: Benchmark
    """Of what it saves this."""


DEFENDED: tuple[Defended, ...] = (
    # ------------------------------------------------------------------------- speed
    Defended(
        "journal.readable",
        "records are known to be readable by one look at their values",
        "150 of 170 µs",
        "durable step",
    ),
    Defended(
        "_base.quickly_made.quickly_made",
        "frozen records are made by assignments",
        "37,000 instructions, 7.8 %",
        "core step",
    ),
    Defended(
        "state.records.record",
        "a new result is told in place that it closes its turn",
        "3 of 55 µs",
        "core step",
    ),
    Defended(
        "models.reply_text.copied",
        "a reply and its calls are copied attribute by attribute",
        "2 µs, and 64 bytes of an idle agent for each of them",
        "core step",
    ),
    Defended(
        "state.folds.replies._add",
        "what a reply used is added without `RunUsage.incr`, and kept without dicts",
        "66 bytecodes and 3 calls, and 128 bytes of an idle agent for each reply",
        "core step",
    ),
    Defended(
        "modes.steps.conditions",
        "functions say which steps need not be called",
        "100 bytecodes and 3 coroutines",
        "core step",
    ),
    Defended(
        "run.ledger.Ledger.record_sound",
        "what was checked where it came from is not checked again",
        "340 bytecodes, 2.5 µs",
        "core step",
    ),
    Defended(
        "models.messages._Borrowed",
        "a class in place of `contextmanager`",
        "1.5 µs",
        "core step",
    ),
    Defended(
        "state.run_state.Turn.has_all_results",
        "loops in place of generators, here, in `has_requests` and in `may_wait`",
        "1.7 µs: 53 bytecodes and 5 generators",
        "core step",
    ),
    Defended(
        "state.done_calls.DoneCall",
        "the only dataclass of a step that is not frozen",
        "0.8 µs",
        "core step",
    ),
    Defended(
        "state.run_state._twin",
        "a state is copied slot by slot",
        "2 %",
        "run of one step",
    ),
    Defended(
        "_base.clock.new_random_id",
        "random bytes in place of a `uuid4`",
        "25 µs where caches are cold, 2 %",
        "run of one step",
    ),
    Defended(
        "_base.json_values.unsendable",
        "a dict is asked for before a `Mapping`",
        "9 of 10 parts of the time for each dict",
        "core step",
    ),
    Defended(
        "journal.lease.Lease.wait_until_settled",
        "no timeout where the lease holds",
        "8 µs",
        "durable step",
    ),
    Defended(
        "journal.agent_journal.Lingering",
        "records wait for a commit on the loop, without a turn of it",
        "10 of 190 µs",
        "durable step",
    ),
    Defended(
        "journal.sqlite.backend.SqliteBackend.commit",
        "two calls of `stat` in place of a look at the content",
        "all but 3 µs",
        "durable step",
    ),
    Defended(
        "journal.sqlite.writer.append",
        "a bytearray in place of bytes of another kind",
        "9 of 10 parts of the time to pass a payload on",
        "durable step",
    ),
    Defended(
        "journal.sqlite.schema",
        "one key of agent and number in a table with rowids",
        "a third of the time, and 10 to 20 % of the bytes",
        "many records",
    ),
    Defended(
        "journal.committer.Committer",
        "a thread of its own in place of an executor",
        "4 to 8 % of the time of a job",
        "durable step",
    ),
    Defended(
        "journal.reads.DatabaseReads.__init__",
        "worker threads in place of an executor",
        "10 to 17 % of the time of a read",
        "durable step",
    ),
    Defended(
        "journal.postgres.connection.PostgresConnection",
        "a connection in place of a pool",
        "4 threads; no time",
        "durable step",
    ),
    # ------------------------------------------------------------------------- memory
    Defended(
        "state.shared_empties",
        "empty dicts and lists of states are shared",
        "770 bytes",
        "idle agent",
    ),
    Defended(
        "loop_actors.monitor.Lifetime",
        "no condition before the first wait; watchers in a tuple",
        "2,470 bytes; 120 bytes",
        "idle agent",
    ),
    Defended(
        "loop_actors.future.Future",
        "a future of its own in place of one of `concurrent.futures`",
        "1,400 bytes of each future",
        "actor",
    ),
    Defended(
        "loop_actors.mailbox",
        "one lock for all mailboxes",
        "96 bytes",
        "idle agent",
    ),
    Defended(
        "loop_actors.mailbox.Mailbox",
        "no queue while no message waits",
        "750 bytes",
        "idle agent",
    ),
    Defended(
        "loop_actors.live_actors._LoopActors.__init__",
        "a dict in place of a set",
        "50 bytes",
        "actor",
    ),
    Defended(
        "loop_actors.ref.LoopActorRef.__init__",
        "no weak reference beside the mailbox, which has the actor while it lives",
        "80 bytes",
        "idle agent",
    ),
    Defended(
        "loop_actors.supervisor.child_actors.ChildActors.__init__",
        "one bound method for all children",
        "64 bytes",
        "idle agent",
    ),
    Defended(
        "loop_actors.supervisor.child_actors._Watch",
        "an object with slots in place of a function",
        "220 bytes",
        "idle agent",
    ),
    Defended(
        "models.messages._Log.__init__",
        "a tuple of ids of calls while there are few",
        "170 bytes",
        "idle agent",
    ),
    Defended(
        "run.ledger.Ledger.__init__",
        "one object in place of two bound methods; no deque while nothing waits for its commit",
        "128 bytes; 700 bytes",
        "idle agent",
    ),
    Defended(
        "journal.owned_journal.JournalledAgent",
        "one object in place of three bound methods",
        "192 bytes",
        "idle agent",
    ),
    Defended(
        "journal.agent_journal.AgentJournal.__init__",
        "a tuple of waiters in place of a list",
        "56 bytes",
        "idle agent",
    ),
    Defended(
        "actors.activator._StartActor",
        "an object with slots in place of a `partial`",
        "200 bytes",
        "idle agent",
    ),
    Defended(
        "actors.agent.activation",
        "one empty set for all agents",
        "200 bytes",
        "idle agent",
    ),
    Defended(
        "actors.agent.actor.AgentActor.on_receive",
        "the task of the activation is dropped",
        "600 bytes",
        "idle agent",
    ),
    Defended(
        "actors.agent.directory.Directory._keep",
        "a slot that is kept is in no dict of known slots",
        "100 bytes",
        "idle agent",
    ),
    Defended(
        "actors.agent.slot.AgentSlot",
        "an inbox that is a list in place of a deque",
        "700 bytes",
        "idle agent",
    ),
    Defended(
        "actors.agent_ref.AgentRef.actor_urn",
        "the urn of a ref is made when it is asked for",
        "100 bytes",
        "idle agent",
    ),
)
"""All places that are not written plainly, the dearest first."""
