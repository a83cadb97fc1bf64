"""What a store is to hosts that share it: they take agents from each other, and post calls.

An optional part of a store and of a backend. A store for one host has none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from pydantic_core import to_json

from understudy.errors import UnderstudyError, UnknownAgent
from understudy.journal.contracts import Journal, Owned, StoredRecords, TellsTime

if TYPE_CHECKING:
    from understudy.journal.store_reader import Loaded

Notified = Callable[[str | None], None]
"""Gets what other hosts tell this one: see `Hint`. None: something may have been missed."""


class Hint(NamedTuple):
    """What one host tells another one. It may be lost, or come twice: the tables are the truth.

    As text: its words, the agent's id last.
    """

    kind: str
    """`taken`: an agent of the host has another owner. `posted`: there is a call for one of its
    agents. `look`: a call of the host has its reply, or can be taken back. `ended`: a run that the
    host follows has an outcome. `given`: the host owns one more agent, which it did not claim.
    `left`: a host has closed, and there are runs without an owner.
    `follow`, `follow_feed`, `live`: see `journal.chunks`."""
    number: int = 0
    """Of `taken` and `given` the new epoch; of `look` the call that has its reply, 0 for calls of
    an agent that is released or deleted; of a chunk the host that says it."""
    agent_id: str = ""
    """Of `follow`, `follow_feed` and `live`: a chunk of the content."""

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
    """JSON."""
    nonce: str
    """Unlike that of any other: one that is posted twice is kept once."""


class Posted(NamedTuple):
    """A call for an agent of this host, which is not done yet."""

    id: int
    """Those of one agent are done in the order of their ids."""
    agent_id: str
    kind: str
    body: bytes
    asker: int
    """The host that has posted it."""
    begun: bool
    """It is done once at most, and was begun."""


class Wanted(NamedTuple):
    """Which calls for agents of this host are read."""

    agent_ids: list[str] | None
    """Those for these agents; None: for all."""
    in_hand: list[int]
    """But these."""
    busy: list[str]
    """None for these agents, where all are read."""
    limit: int
    """At most so many; and none of an agent before each other one has had as many."""


class Sent(NamedTuple):
    """A text for another host, which it may never get."""

    host_id: int | None
    """None: for all other living hosts."""
    text: str
    """ASCII, shorter than 8,000 characters."""


class PostState(NamedTuple):
    """What became of a call that this host has posted."""

    reply: bytes | None
    begun: bool
    is_free: bool
    """No living host owns the agent."""
    is_takeable: bool
    epoch: int
    """Of the agent now: another one if it has changed hands since."""


class Place(NamedTuple):
    """Where an agent is now."""

    incarnation: int
    epoch: int
    last_seq: int
    host_id: int | None
    host: str | None
    """The living host that owns it."""
    listens: bool
    """Whether that host can be posted to, and taken from."""
    takeable: bool
    """Nothing of the agent goes on."""
    agent: str
    """The name of its definition."""


class Taken(NamedTuple):
    """An agent that this host has claimed."""

    owned: Owned
    loaded: Loaded | None = None
    """What it wakes from, where that was read with the claim."""


@runtime_checkable
class SharedBackend(TellsTime, Protocol):
    """An optional part of a backend: hosts that share it answer for each other's agents.

    Whoever calls each method is as of `Backend`: the writer's are changes in its transaction.
    """

    def listen(self, notified: Notified | None) -> None:
        """Listen from the next `open` on, so that other hosts may take and post; None: do not.

        `notified` is called in a thread.
        """

    @property
    def host_id(self) -> int | None:
        """The number of this host; another one after a lost lease. None while it is not open."""

    # ------------------------------------------------------------------- the writer

    def take(
        self, agent_id: str, agent: str | None, *, at_rest: bool = True, creates: bool = True
    ) -> Owned | None:
        """As `claim`, but also of an agent that a living host owns, if nothing of it goes on.

        That is judged in the statement that takes it. The host that loses it must listen, and is
        told.

        Args:
            agent_id, agent: as of `claim`.
            at_rest: whether it is taken from a living host.
            creates: whether an agent begins where there is none; else the result is None.

        """

    def load_claimed(self, agent_id: str, after: int) -> tuple[int, StoredRecords] | None:
        """As `load_behind`, of an agent that is claimed in this transaction."""

    def take_to_delete(self, agent_id: str) -> bool:
        """As `delete`, in the same way."""

    def post(self, agent_id: str, incarnation: int, posts: Sequence[Post]) -> list[int]:
        """Keep calls for an agent that a living host owns, and tell that host; their ids in order.

        None is kept, and the list is empty, if there is no such owner by now, or it does not
        listen.
        """

    def begin_post(self, id: int, attempt: str) -> bool:
        """Mark a call that is to be done once at most; False if another attempt has, or it is gone.

        A second mark by the same attempt is none.
        """

    def reply(self, id: int, reply: bytes) -> None:
        """Keep what came of a call, unless it was taken back, and tell its asker."""

    def remove_posts(self, ids: Sequence[int]) -> None:
        """Remove calls whose replies have been read."""

    def withdraw(self, ids: Sequence[int]) -> dict[int, bool]:
        """Take back those of these calls that have no reply; whether each was begun."""

    def retell(self, id: int) -> None:
        """Tell the owner of an agent once more that a call is posted for it."""

    def delete_lost_replies(self) -> None:
        """Remove the replies for hosts that are gone."""

    def tell(self, host_id: int, hint: Hint) -> None:
        """Tell another host something, at the commit."""

    # ------------------------------------------------------------------- the reader

    def posted(self, wanted: Wanted) -> list[Posted]:
        """Calls for agents of this host; those for each agent in their order."""

    def post_states(self, ids: Sequence[int]) -> dict[int, PostState]:
        """What became of these calls; one that is gone is left out."""

    def place(self, agent_id: str) -> Place | None:
        """Where an agent is now; None if there is none."""

    def epochs(self, agent_ids: Sequence[str]) -> dict[str, int]:
        """The epochs of those of these agents that there are."""

    def orphans(self, limit: int) -> list[tuple[str, str]]:
        """The agents without an owner for which there are calls; with their definitions."""

    def load_behind(self, agent_id: str, after: int) -> tuple[int, StoredRecords] | None:
        """The records of an agent above a number, as by `load`; None if there is no such agent.

        With the number of the record that its checkpoint is of, of the same moment; 0 = it has
        none.
        """

    def send(self, sent: Sequence[Sent]) -> None:
        """Send texts to hosts that listen, in order. None of it is kept: no commit waits for it."""


class SharedStore(Protocol):
    """The part of a store for hosts that share it. Used on the runtime's loop, as `Store`."""

    @property
    def host_id(self) -> int | None:
        """As of `SharedBackend`."""

    @property
    def time_offset(self) -> float:
        """As of `TellsTime`."""

    def listen(self, notified: Notified | None) -> None:
        """Listen from the next `Store.open` on. `notified` is called on the loop."""

    async def take(
        self,
        agent_id: str,
        agent: str | None,
        *,
        at_rest: bool = True,
        creates: bool = True,
        loads: bool = False,
    ) -> Taken | None:
        """As of `SharedBackend`.

        Args:
            agent_id, agent, at_rest, creates: as of `SharedBackend`.
            loads: whether it is read, too, where that takes no more than a few records.

        """

    async def post(self, agent_id: str, incarnation: int, posts: Sequence[Post]) -> list[int]:
        """As of `SharedBackend`."""

    async def begin_post(self, id: int, attempt: str) -> bool:
        """As of `SharedBackend`."""

    async def reply(self, id: int, reply: bytes) -> None:
        """As of `SharedBackend`."""

    async def remove_posts(self, ids: Sequence[int]) -> None:
        """As of `SharedBackend`."""

    async def withdraw(self, ids: Sequence[int]) -> Mapping[int, bool]:
        """As of `SharedBackend`."""

    async def retell(self, id: int) -> None:
        """As of `SharedBackend`."""

    async def delete_lost_replies(self) -> None:
        """As of `SharedBackend`."""

    async def tell(self, host_id: int, hint: Hint) -> None:
        """As of `SharedBackend`."""

    async def posted(self, wanted: Wanted) -> Sequence[Posted]:
        """As of `SharedBackend`."""

    async def post_states(self, ids: Sequence[int]) -> Mapping[int, PostState]:
        """As of `SharedBackend`."""

    async def place(self, agent_id: str) -> Place | None:
        """As of `SharedBackend`."""

    async def epochs(self, agent_ids: Sequence[str]) -> Mapping[str, int]:
        """As of `SharedBackend`."""

    async def orphans(self, limit: int) -> Sequence[tuple[str, str]]:
        """As of `SharedBackend`."""

    async def send(self, sent: Sequence[Sent]) -> None:
        """As of `SharedBackend`."""

    def keep_left(self, journal: Journal) -> None:
        """Another host has taken the agent of this journal: keep its state for a while."""


@runtime_checkable
class HostedStore(Protocol):
    """A store in which each runtime has a name."""

    @property
    def host(self) -> str:
        """The name of this runtime in the index of the agents."""

    @property
    def shared(self) -> SharedStore | None:
        """What hosts that share the store have of it; None where it is for one host."""


def shared_part(store: object) -> SharedStore | None:
    """What hosts that share the store have of it; None where it is for one host."""
    return store.shared if isinstance(store, HostedStore) else None


def host_of(store: object) -> str | None:
    """The name of this runtime in the store's index; None where it needs none."""
    return store.host if isinstance(store, HostedStore) else None


def is_shared(store: object) -> bool:
    """Whether other hosts may write to this store while one has it open."""
    return shared_part(store) is not None


def answers_of_deleted(agent_id: str) -> tuple[bytes, bytes]:
    """The replies to the calls for an agent that is deleted: to a deletion, and to any other."""
    return to_reply({"value": True}), error_reply(UnknownAgent(agent_id=agent_id))


def to_reply(data: object) -> bytes:
    """A reply as it is kept."""
    return to_json(data)


def error_reply(error: UnderstudyError) -> bytes:
    """The reply to a call that was refused."""
    return to_json({"error": error.to_dict()})
