"""`SharedBackend`: a database that hosts share, who take agents from each other and post calls."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import to_json

from understudy.errors import UnderstudyError, UnknownAgent, UsageError
from understudy.journal.backend import Backend
from understudy.journal.codec import EncodedRecord
from understudy.journal.contracts import LostAttempt, Owned, StoredRecords
from understudy.journal.kept import KEPT
from understudy.journal.loaded import Loaded

if TYPE_CHECKING:
    from understudy.errors import StoreError
    from understudy.journal.spending import OpenSpending, Reservation, Reserved

Notified = Callable[[str | None], None]
"""A function that gets what other hosts tell this one: see `Hint`. None: something may have been
missed."""


class Hint(NamedTuple):
    """What one host tells another one. It may be lost, or come twice: the tables are the truth.

    As text: its words, the agent's id last.
    """

    kind: str
    """`taken`: an agent of the host has another owner. `posted`: there is a call for one of its
    agents. `look`: a call of the host has its reply, or can be taken back. `ended`: a run that the
    host follows has an outcome. `given`: the host owns one more agent, which it did not claim.
    `left`: a host has closed, and there are runs without an owner. `trust`: the log of trust has
    another fact.
    `follow`, `follow_feed`, `live`, `beside`: see `journal.chunks`."""
    number: int = 0
    """The number of the hint. For `taken` and `given` the new epoch; for `look` the call that has
    its reply, 0 for calls of an agent that is released or deleted; for a chunk the host that says
    it; for `trust` the number of the fact."""
    agent_id: str = ""
    """The id of an agent; for the kinds of `journal.chunks` a chunk of the content."""

    def __str__(self) -> str:
        return f"{self.kind} {self.number} {self.agent_id}"


def hint_of(text: str) -> Hint | None:
    """The hint; None for one that a later version has sent."""
    kind, _, rest = text.partition(" ")
    number, _, agent_id = rest.partition(" ")
    return Hint(kind, int(number), agent_id) if number.isdigit() else None


class Post(NamedTuple):
    """A call for an agent that runs at another host."""

    kind: str
    body: bytes
    """The content of the call, as JSON."""
    nonce: str
    """The text that no other call has: a call that is posted twice is kept once."""


class Posted(NamedTuple):
    """A call for an agent of this host, which is not done yet."""

    id: int
    """The id of the call. The calls for one agent are done in the order of their ids."""
    agent_id: str
    kind: str
    body: bytes
    asker: int
    """The host that has posted it."""
    begun: bool
    """Whether the call was begun, if it is a call that is done once at most."""


class Wanted(NamedTuple):
    """Which calls for agents of this host are read."""

    agent_ids: list[str] | None
    """The agents whose calls are read; None: all."""
    in_hand: list[int]
    """The calls that are not read again."""
    busy: list[str]
    """The agents whose calls are not read where the calls of all agents are read."""
    limit: int
    """The most calls that are read. All first calls of agents come before any second call."""


class Sent(NamedTuple):
    """A text for another host, which it may never get."""

    host_id: int | None
    """The id of the host that gets the text; None: all other living hosts."""
    text: str
    """The text: ASCII, shorter than 8,000 characters."""


class PostState(NamedTuple):
    """What became of a call that this host has posted."""

    reply: bytes | None
    begun: bool
    is_free: bool
    """Whether no living host owns the agent."""
    is_takeable: bool
    epoch: int
    """The epoch of the agent now: another one if it has changed hands since."""


class Place(NamedTuple):
    """The place of an agent: the host that owns it now."""

    incarnation: int
    epoch: int
    last_seq: int
    host_id: int | None
    host: str | None
    """The name of the living host that owns the agent."""
    listens: bool
    """Whether the owner can be posted to, and taken from."""
    takeable: bool
    """Whether nothing of the agent goes on: another host may take it."""
    agent: str
    """The name of the agent's definition."""


class Process(NamedTuple):
    """A process of one boot of one machine."""

    place: str
    """The scope of the pid: the boot of the machine, and the namespaces of pids and of times."""
    pid: int
    started: int
    """The start of the process, in ticks of the machine's clock since the boot."""


class Neighbours(NamedTuple):
    """The hosts of other processes of this machine, as of the last heartbeat."""

    host_id: int
    """The id of this host."""
    own: Process
    others: Mapping[int, Process]
    """The processes of the other hosts, by host id."""
    are_all: bool
    """Whether no other host lives, on any machine."""


class Taken(NamedTuple):
    """An agent that this host has claimed."""

    owned: Owned
    loaded: Loaded | None = None
    """What the agent wakes from, where that was read with the claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedDefinition:
    """A definition that a host has, as other hosts need to know it."""

    agent: str
    """The name of the definition."""
    fingerprint: str
    """The fingerprint, which tells the definition from the other definitions of this name."""
    version: int = 0
    """The version of the definition. A higher version is newer. Of one version, the definition is
    newer that was seen later."""
    needs: frozenset[str] = frozenset()
    """The labels that a host must have to run the agent."""
    continues_older: bool = True
    """Whether runs that an older definition has begun go on on this one."""


class SharedBackend(Backend):
    """A backend that hosts may share: they know each other, and answer for each other's agents.

    It has all of these methods. Whoever calls each is as of `Backend`: the writer's are changes in
    its transaction.
    """

    @abstractmethod
    def listen(self, notified: Notified | None) -> None:
        """Listen from the next `open` on, so that other hosts may take and post; None: do not.

        `notified` is called in a thread.
        """

    @property
    @abstractmethod
    def host_id(self) -> int | None:
        """The number of this host; another one after a lost lease. None while it is not open."""

    on_neighbours: Callable[[], None] | None = None
    """Called in the heartbeat's thread when `neighbours` are others than before."""

    @property
    def neighbours(self) -> Neighbours | None:
        """The hosts of other processes of this machine; None where there are none.

        Also where nobody can tell for certain which process is which.
        """
        return None

    @abstractmethod
    def introduce(self, labels: Collection[str]) -> None:
        """Before `open`: say which labels this host has."""

    # ------------------------------------------------------------------- the writer

    @abstractmethod
    def register(self, definitions: Sequence[HostedDefinition]) -> None:
        """Say which definitions this host has, besides those that it has said already.

        From then on `claim` refuses agents of theirs that this host must not run, by `UnfitHost`.
        """

    @abstractmethod
    def set_draining(self, draining: bool = True, held: str = "") -> None:
        """Say that this host takes no agents any more: `claim` refuses all by `UnfitHost`.

        Args:
            draining: False: it takes agents again.
            held: why no call may start at it, where that is why.

        """

    @abstractmethod
    def give(
        self,
        agent_id: str,
        agent: str,
        created: EncodedRecord | None,
        needs: Collection[str] | None = None,
    ) -> str | None:
        """Make another living host that may run an agent its owner, where it has none.

        That host has it in no memory: the host that gives it posts to it then.

        Args:
            agent_id: its id. If there is no such agent, it begins.
            agent: the name of its definition.
            created: its first record, if it begins.
            needs: where its definition is made: what it needs of a host that makes definitions
                (agent `"*"`). None: only a host that has its definition fits.

        Returns:
            The name of that host; None where none lives, and nothing has changed.

        Raises:
            OwnedElsewhere: if a living host owns it.

        """

    @abstractmethod
    def note_lost_attempt(self, agent_id: str, lost: LostAttempt) -> None:
        """Keep that an attempt was no crash, beside those of the same run. Any host may say so.

        The next owner cannot see whether the owner died or only lost its lease. The owner itself
        can say so when it is fenced, but not in the journal, where it must not write any more.
        """

    @abstractmethod
    def take(
        self,
        agent_id: str,
        agent: str | None,
        *,
        at_rest: bool = True,
        creates: bool = True,
        runs: bool = True,
    ) -> Owned | None:
        """Claim an agent as by `claim`, also from a living host if nothing of the agent goes on.

        That is judged in the statement that takes it. The host that loses it must listen, and is
        told.

        Args:
            agent_id, agent: as of `claim`.
            at_rest: whether it is taken from a living host.
            creates: whether an agent begins where there is none; else the result is None.
            runs: whether this host is to run it, for which it must fit; else it is written alone.

        """

    @abstractmethod
    def load_claimed(self, agent_id: str, after: int) -> tuple[int, StoredRecords] | None:
        """The records of an agent that is claimed in this transaction; see `load_behind`."""

    @abstractmethod
    def delete(self, agent_id: str, *, at_rest: bool = False) -> bool:
        """Delete an agent; see `Backend.delete`. For `at_rest` see `take`."""

    @abstractmethod
    def post(self, agent_id: str, incarnation: int, posts: Sequence[Post]) -> list[int]:
        """Keep calls for an agent that a living host owns, and tell that host; their ids in order.

        None is kept, and the list is empty, if there is no such owner by now, or it does not
        listen.
        """

    @abstractmethod
    def begin_post(self, id: int, attempt: str) -> bool:
        """Mark a call that is to be done once at most; False if another attempt has, or it is gone.

        A second mark by the same attempt is none.
        """

    @abstractmethod
    def reply(self, id: int, reply: bytes) -> None:
        """Keep what came of a call, unless it was taken back, and tell its asker."""

    @abstractmethod
    def remove_posts(self, ids: Sequence[int]) -> None:
        """Remove calls whose replies have been read."""

    @abstractmethod
    def withdraw(self, ids: Sequence[int]) -> dict[int, bool]:
        """Take back those of these calls that have no reply; whether each was begun."""

    @abstractmethod
    def retell(self, id: int) -> None:
        """Tell the owner of an agent once more that a call is posted for it."""

    @abstractmethod
    def delete_lost_replies(self) -> None:
        """Remove the replies for hosts that are gone."""

    @abstractmethod
    def tell(self, host_id: int, hint: Hint) -> None:
        """Tell another host something, at the commit."""

    # ------------------------------------------------------------------- the reader

    @abstractmethod
    def posted(self, wanted: Wanted) -> list[Posted]:
        """Calls for agents of this host; those for each agent in their order."""

    @abstractmethod
    def post_states(self, ids: Sequence[int]) -> dict[int, PostState]:
        """What became of these calls; one that is gone is left out."""

    @abstractmethod
    def place(self, agent_id: str) -> Place | None:
        """The place of an agent now; None if there is no such agent."""

    @abstractmethod
    def orphans(self, limit: int) -> list[tuple[str, str]]:
        """The agents without an owner for which there are calls; with their definitions."""

    @abstractmethod
    def load_behind(self, agent_id: str, after: int) -> tuple[int, StoredRecords] | None:
        """The records of an agent above a number, as by `load`; None if there is no such agent.

        With the number of the record that its checkpoint is of, of the same moment; 0 = it has
        none.
        """

    @abstractmethod
    def send(self, sent: Sequence[Sent]) -> None:
        """Send texts to hosts that listen, in order. None of it is kept: no commit waits for it."""

    @abstractmethod
    def lost_attempts(self, agent_id: str, run_id: str) -> frozenset[int]:
        """The numbers of the attempts of a run that were no crashes."""

    # ------------------------------------------------------------------- "spending"
    # In the place of `load_spending` and `keep_reserved`: the database decides.

    def reserve_all(self, asked: Sequence[Reservation]) -> Sequence[Reserved | StoreError | None]:
        """Make reservations, in order, in one transaction that locks no agent's row.

        It is called by a thread of its own, and needs a connection of its own. It may be called
        again with the same reservations, if the answer is lost. No host that is suspended in the
        middle of it keeps others from reserving, and neither does one in a commit that settles.

        Args:
            asked: no two of one call, and no two that count one counter from different buckets
                on: see `Line.since`.

        Returns:
            Of each, in the same order, what came of it, or `Fenced`, as of `Spending.reserve`. None
            if another host is about to change what the call has: try again.

        """
        self._refuse("spending")

    def open_spending(self, agent_id: str) -> Sequence[OpenSpending]:
        """The reader's: the open reservations of an agent; see `Spending.open_spending`."""
        self._refuse("spending")

    # ----------------------------------------------------------------- the heartbeat

    @abstractmethod
    def end_dead_hosts(self) -> int:
        """End the leases of hosts whose processes have ended for certain.

        Those of the same boot of the same machine, with the same pids. A process that is stopped
        has not ended, and of those elsewhere nothing is known: their leases judge.

        Returns:
            How many there were.

        """

    @abstractmethod
    def ended_leases(self) -> tuple[int, float]:
        """Look for hosts whose leases have ended by themselves.

        Returns:
            How many there are of which that was not told before; and the seconds until the next of
            the others ends, if that host does not renew it. Infinity if there is none.

        """


def check_kept(backend: Backend) -> None:
    """Check that a backend has the methods of what it keeps.

    Raises:
        UsageError: if it has not.

    """
    given, is_shared = backend.__class__, isinstance(backend, SharedBackend)
    name = given.__name__
    for kept in backend.keeps:
        if kept not in KEPT:
            known = ", ".join(map(repr, KEPT))
            raise UsageError(
                f"`{name}` declares {kept!r} in `keeps`, which must have values of {known}"
            )
        missing = [
            f"`{method}`"
            for method in KEPT[kept].methods_of(is_shared=is_shared)
            if getattr(given, method, None) in (None, getattr(SharedBackend, method))
        ]
        if missing:
            raise UsageError(
                f"`{name}` declares {kept!r} in `keeps` but does not define {', '.join(missing)}: "
                f"define what is missing, or leave {kept!r} out of `keeps`"
            )


def answers_of_deleted(agent_id: str) -> tuple[bytes, bytes]:
    """The replies to the calls for an agent that is deleted: to a deletion, and to any other."""
    return to_reply({"value": True}), error_reply(UnknownAgent(agent_id=agent_id))


def to_reply(data: object) -> bytes:
    """A reply as it is kept."""
    return to_json(data)


def error_reply(error: UnderstudyError) -> bytes:
    """The reply to a call that was refused."""
    return to_json({"error": error.to_dict()})
