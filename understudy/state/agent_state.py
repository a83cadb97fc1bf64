"""The state of an agent: the fold of its records.

An outcome carries an `AgentState` and `resume` takes one. It goes through JSON without loss, also
in the middle of an interrupt. `fold` says how each record changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import Base64Bytes, TypeAdapter, ValidationError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.usage import RunUsage

from understudy._base.authors import By, shown_author
from understudy._base.json_values import checked_json, first_difference, reason, shown
from understudy.errors import SchemaVersionError, UsageError
from understudy.interrupts import DecisionRecord, DoubtfulCall, Grant, Request
from understudy.models.messages import (
    Messages,
    messages_from_dicts,
    messages_to_dicts,
    normalised,
)
from understudy.models.retold import view_for
from understudy.state.blobs import dumped_blobs
from understudy.state.children import Children, agents_of_call
from understudy.state.costs import Cost, Lines, adding, below, complete
from understudy.state.doubts import MOST_FINDINGS, Finding, has_doubtful_call
from understudy.state.files import StoredFile
from understudy.state.held_keys import HeldKey
from understudy.state.next_due import next_due
from understudy.state.plans import BackgroundCall, Plans, QueuedMessage, TakenMessage
from understudy.state.reviews import Review
from understudy.state.run_state import RunState
from understudy.state.shared_empties import no_items, no_list, with_item
from understudy.state.state_tree import StateTree
from understudy.state.stored_names import PYDANTIC_NAMES, is_pydantics
from understudy.state.waits import Wait, waits_of

SCHEMA_VERSION = 1
_STORED_KEYS = ("run", "decisions", "grants", "doubts", "queue", "message_ids", "status", "plans")
_RARE_KEYS = (
    "files",
    "blobs",
    "earlier_costs",
    "has_archive",
    "held_keys",
    "refused",
    "authors",
    "reviews",
    "findings",
)
"""The keys of a stored state that are left out if the agent has no such values."""
_KEYS = ("values", "children", *_STORED_KEYS)
"""The keys that are in every stored state, with its messages."""
_OWN = "own_messages"
"""The key of the messages that an agent of a workflow has added to its view of the workflow."""


@dataclass(slots=True)
class StoredState:
    """The part of a state that Pydantic converts; messages have a format of their own."""

    run: RunState | None
    decisions: list[DecisionRecord]
    grants: dict[str, Grant]
    doubts: dict[str, DoubtfulCall]
    queue: dict[str, QueuedMessage]
    message_ids: dict[str, TakenMessage | None]
    status: str
    plans: Plans | None
    files: dict[str, StoredFile] | None = None
    blobs: dict[str, Base64Bytes] | None = None
    earlier_costs: Lines = ()
    has_archive: bool = False
    held_keys: dict[str, HeldKey] | None = None
    authors: tuple[By | None, ...] = ()
    refused: dict[str, dict[str, Any]] | None = None
    reviews: dict[str, Review] | None = None
    findings: dict[str, Finding] | None = None


@cache
def _stored() -> TypeAdapter[StoredState]:
    return TypeAdapter(StoredState)


class AgentState(StateTree):
    """A conversation, the agent's values, and the state of its run.

    Treat it as a value: every outcome has its own state, and continuing from a state never changes
    it.

    Args:
        messages: the conversation so far, for instance as Pydantic AI recorded it. It is made
            valid for any provider.
        values: JSON-able values. `{key}` in instructions reads them, and deltas of tools change
            them.

    Raises:
        UsageError: if a value cannot be stored as JSON.

    """

    __slots__ = (
        "_values",
        "authors",
        "blobs",
        "children",
        "decisions",
        "doubts",
        "earlier_costs",
        "files",
        "findings",
        "grants",
        "has_archive",
        "held_keys",
        "left",
        "may_be_in_doubt",
        "message_ids",
        "messages",
        "plans",
        "queue",
        "refused",
        "reviews",
        "run",
        "status",
    )

    run: RunState | None
    doubts: dict[str, DoubtfulCall]
    children: dict[str, Self]
    left: dict[str, Self]
    plans: Plans | None
    messages: Messages
    """The conversation. The system prompt is not part of it."""
    decisions: list[DecisionRecord]
    """The audit: all decisions on requests, oldest first."""
    grants: dict[str, Grant]
    """The grants that hold for calls of this agent, and of all agents that it runs, by their ids.

    The states of the inner agents have no grants.
    """
    authors: tuple[By | None, ...]
    """The people who sent the messages in the conversation, each once.

    None stands for messages without a name. Empty if no message has a name.
    """
    queue: dict[str, QueuedMessage]
    """Messages that wait for a run, by message id, oldest first."""
    refused: dict[str, dict[str, Any]]
    """The error of each `run` that waited for its turn and could not begin, by message id.

    Only the last 100 are kept, oldest first. The error is empty if the run was cancelled before.
    """
    message_ids: dict[str, TakenMessage | None]
    """The run that took each message, by message id, oldest first; None while the message waits.

    A message with a known id is not taken again. The ids of old messages are in the store alone:
    see `has_archive`.
    """
    has_archive: bool
    """Whether the store's index has ids of older messages, which are not in `message_ids`."""
    status: str
    """The last status of its actor that was emitted to subscribers; `idle` without an actor.

    In the state of an outcome of an actor it is the status that follows from the outcome.
    """
    files: dict[str, StoredFile] | None
    """The files of the agent, by path, without their bytes; None if it has no files of its own."""
    blobs: dict[str, bytes] | None
    """The bytes of files that the state has at hand, by hash, as `understudy.state.blobs` packs
    them.

    A state that a store keeps has none: the bytes are in the store.
    """
    earlier_costs: Lines
    """The costs of earlier runs, counted from the first run that was priced."""
    held_keys: dict[str, HeldKey]
    """The keys of calls (`@tool(key=)`) that are open or in doubt, or that the run has done, by
    call key."""
    reviews: dict[str, Review]
    """The open reviews of calls that a person alone let run, by request id."""
    findings: dict[str, Finding]
    """The newest findings of persons about calls in doubt, by tool call id."""

    def __init__(
        self, messages: Iterable[ModelMessage] = (), values: Mapping[str, Any] | None = None
    ) -> None:
        self.messages = Messages(normalised(messages) if messages else ())
        self._values: dict[str, Any] = (
            checked_json(values, what="AgentState(values=...)") if values else no_items()
        )
        self.run = None
        self.decisions = no_list()
        self.grants = self.doubts = self.queue = self.message_ids = no_items()
        self.held_keys = self.refused = self.reviews = self.findings = no_items()
        self.status = "idle"
        self.plans = None
        self.files = None
        self.blobs = None
        self.earlier_costs = self.authors = ()
        self.has_archive = False
        self.children = self.left = no_items()
        self.may_be_in_doubt: bool = False

    @property
    def values(self) -> Mapping[str, Any]:
        """A read-only view of the values."""
        return MappingProxyType(self._values)

    def stored_values(self) -> dict[str, Any]:
        """Return the values, for a record."""
        return self._values

    @property
    def requests(self) -> tuple[Request, ...]:
        """The pending requests, in call order, including those of all agents that it runs."""
        run = self.run
        if run is None or run.over:
            return ()
        if run.halt is not None:
            return () if run.dismissed else (run.halt,)
        if not self.children:
            return tuple(run.pending_requests)
        pending: list[Request] = []
        for call in run.calls:
            pending += call.pending_requests
            for key in agents_of_call(self.children, call.key):
                pending += self.children[key].requests
        for agent in self.agents.values():
            pending += agent.requests
        return tuple(pending)

    @property
    def next_due(self) -> datetime | None:
        """The next time at which the agent has something to record by itself; None = never.

        It is the time of a reminder, an escalation or the expiry of a pending request; of the end
        of a sleep, of a wait, of a doubt, or of a run with `ends_at`; of a message with a time; or
        of an occurrence of a schedule.
        """
        return next_due(self)

    @property
    def waits(self) -> tuple[Wait, ...]:
        """The sleeps and waits of its tools, oldest first, including those of all agents that it
        runs.
        """
        return waits_of(self)

    @property
    def background(self) -> tuple[BackgroundCall, ...]:
        """The background calls whose results have not come yet, oldest first."""
        return () if self.plans is None else tuple(self.plans.background.values())

    @property
    def usage(self) -> RunUsage:
        """The usage of the run so far, including all agents that it runs now."""
        used = self.run.usage if self.run is not None else RunUsage()
        if not self.children:
            return used
        used = copy(used)
        for child in self.children.values():
            used.incr(child.usage)
        return used

    @property
    def cost(self) -> Cost:
        """The recorded cost of the run so far, including all agents that it runs now.

        A request that was not priced when it was made has an unknown cost here. `costs_of`
        estimates it, from the history.
        """
        if self.run is None:
            return Cost()
        return Cost(complete(self._costs(), self.run.agent, self.usage.requests))

    @property
    def total_cost(self) -> Cost:
        """The cost of all runs of the agent, counted from the first run that was priced."""
        return Cost(adding(self.earlier_costs, self.cost.lines))

    def _costs(self) -> Lines:
        assert self.run is not None, "only called of a state with a run"
        lines = self.run.costs
        for child in self.children.values():
            if child.run is not None:
                lines = adding(lines, below(self.run.agent, child._costs()))
        return lines

    @property
    def held_keys_in_tree(self) -> dict[str, HeldKey]:
        """The keys of all calls of this agent, and of the agents that it runs now, by call key."""
        return {call_key: held for each in self.tree for call_key, held in each.held_keys.items()}

    @property
    def pause(self) -> str | None:
        """The reason why the run, or a run inside it, is paused; None if it is not.

        None also for a halted run, which has a request.
        """
        if self.run is not None and self.run.halt is not None:
            return None
        for state in self.tree:
            if state.run is not None and not state.run.over and state.run.paused is not None:
                return state.run.paused
        return None

    @property
    def paused_by(self) -> str | None:
        """The person who asked for that pause; None if nobody was named."""
        if self.run is not None and self.run.halt is not None:
            return None
        for state in self.tree:
            if state.run is not None and not state.run.over and state.run.paused is not None:
                return shown_author(state.run.paused_by)
        return None

    def copied(self, *, deeply: bool = False) -> AgentState:
        """Return a copy that later records do not change. The messages are shared.

        Args:
            deeply: copy the values deeply, for a caller that may change them.

        """
        twin = AgentState.__new__(AgentState)
        twin.messages = self.messages
        twin._values = deepcopy(self._values) if deeply else self._values
        twin.run = self.run.copied() if self.run is not None else None
        # Empty collections are shared: adding to one makes a new one.
        twin.decisions = self.decisions and list(self.decisions)
        twin.grants = self.grants and dict(self.grants)
        twin.doubts = self.doubts and dict(self.doubts)
        twin.held_keys = self.held_keys and dict(self.held_keys)
        twin.queue = self.queue and dict(self.queue)
        twin.refused = self.refused and dict(self.refused)
        twin.reviews = self.reviews and dict(self.reviews)
        twin.findings = self.findings and dict(self.findings)
        twin.message_ids = self.message_ids and dict(self.message_ids)
        twin.status, twin.plans = self.status, self.plans
        twin.files, twin.blobs = self.files, self.blobs
        twin.earlier_costs, twin.authors = self.earlier_costs, self.authors
        twin.has_archive = self.has_archive
        twin.children = _copied(self.children)
        twin.left = _copied(self.left)
        twin.may_be_in_doubt = self.may_be_in_doubt
        return twin

    def merge(self, delta: Mapping[str, Any]) -> None:
        """Merge a delta into the values: mappings are merged deeply, other values are replaced."""
        self._values = merged(self._values, delta)
        self._note_change("merge", delta)

    def add_doubt(self, doubt: DoubtfulCall) -> None:
        """Add a call that is in doubt, and about which no person is asked."""
        self.doubts = with_item(self.doubts, doubt.call_key, doubt)
        self.may_be_in_doubt = True

    def add_finding(self, tool_call_id: str, finding: Finding) -> None:
        """Add the finding about a call that was in doubt."""
        found = with_item(self.findings, tool_call_id, finding)
        if len(found) > MOST_FINDINGS:
            del found[next(iter(found))]
        self.findings = found

    def note_doubts_of(self, key: str) -> None:
        """Note that a call of a child agent, or of an agent inside it, may be in doubt."""
        self.may_be_in_doubt = True
        if isinstance(self.children, Children):
            self.children.in_doubt[key] = None

    def look_for_doubts(self) -> bool:
        """Note in which agents of the tree a call may be in doubt. Return whether one may be.

        Later records note it themselves. This method is for a state that was read, and for calls
        that an attempt finds started.
        """
        if has_doubtful_call(self):
            self.may_be_in_doubt = True
        for key, child in self.children.items():
            if child.look_for_doubts():
                self.note_doubts_of(key)
        for child in self.left.values():  # a retry makes these agents children again
            child.look_for_doubts()
        return self.may_be_in_doubt

    def put(self, values: Mapping[str, Any]) -> None:
        """Replace the values of these keys."""
        self._values = {**self._values, **values}
        self._note_change("set", values)

    def _note_change(self, how: Literal["merge", "set"], values: Mapping[str, Any]) -> None:
        if self.run is not None and self.run.shared is not None:
            self.run.shared.changes.append((how, dict(values)))

    @classmethod
    def sharing(cls, parent: AgentState, messages: Messages) -> AgentState:
        """Return the state with which an agent of a workflow starts. It shares the workflow's
        values.
        """
        state = cls()
        state.messages = messages
        state._values = parent._values
        return state

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AgentState):
            return NotImplemented
        mine, others = (messages_to_dicts(state.messages) for state in (self, other))
        return self._dumped(mine) == other._dumped(others)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # compared by content

    def __repr__(self) -> str:
        run = "no run" if self.run is None else f"run {self.run.run_id!r}"
        return f"AgentState({len(self.messages)} messages, {run}, values={self._values!r})"

    def _repr_html_(self) -> str:
        """For notebooks: the values, what is asked, what is in doubt, and the last messages."""
        from understudy.state.notebook_html import state_html

        return state_html(
            self, self.status, self.messages, self.values, self.requests, self.doubts_in_tree
        )

    @property
    def file_hashes(self) -> frozenset[str]:
        """The hashes of the files of this agent, and of all agents that it runs or has left."""
        found = (file.hash for state in self.whole_tree for file in (state.files or {}).values())
        return frozenset(hash for hash in found if hash)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state as JSON-able data, with a schema version.

        It includes the bytes of files that the state has at hand.

        Raises:
            UsageError: if these bytes are more than 8 MiB.

        """
        data = self._dumped(messages_to_dicts(self.messages))
        if self.blobs is not None:
            data["blobs"] = dumped_blobs(self.blobs, self.file_hashes)
        return data

    def _dumped_inside(self) -> dict[str, Any]:
        """The `to_dict` of this agent, as a part of the `to_dict` of the agent around it.

        An agent of a workflow stores only the messages that it added itself. Its view of the
        workflow's conversation is made again when it is read. Otherwise the state of a hundred
        agents would hold that conversation a hundred times.
        """
        shared = self.run.shared if self.run is not None else None
        if shared is None or shared.told is None:
            return self.to_dict()
        data = self._dumped(messages_to_dicts(self.messages.since(shared.inherited)))
        data[_OWN] = data.pop("messages")
        if self.blobs is not None:
            data["blobs"] = dumped_blobs(self.blobs, self.file_hashes)
        return data

    def head(self) -> dict[str, Any]:
        """Return the `to_dict` without the messages of this agent. Messages of inner agents are
        included.

        It costs the same however long the conversation is.
        """
        return self._dumped([])

    def _dumped(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        stored = StoredState(
            self.run,
            self.decisions,
            self.grants,
            self.doubts,
            self.queue,
            self.message_ids,
            self.status,
            self.plans,
            self.files,
            earlier_costs=self.earlier_costs,
            has_archive=self.has_archive,
            held_keys=self.held_keys or None,
            refused=self.refused or None,
            reviews=self.reviews or None,
            findings=self.findings or None,
            authors=self.authors,
        )
        data = cast("dict[str, Any]", _stored().dump_python(stored, mode="json"))
        del data["blobs"]
        if self.files is None:
            del data["files"]
        if not self.earlier_costs:
            del data["earlier_costs"]
        if not self.authors:
            del data["authors"]
        if not self.has_archive:
            del data["has_archive"]
        if self.left:
            data["left"] = {key: child._dumped_inside() for key, child in self.left.items()}
        if not self.held_keys:
            del data["held_keys"]
        if not self.refused:
            del data["refused"]
        if not self.reviews:
            del data["reviews"]
        if not self.findings:
            del data["findings"]
        return {
            "schema_version": SCHEMA_VERSION,
            "messages": messages,
            "values": self._values or {},
            "children": {key: child._dumped_inside() for key, child in self.children.items()},
            **data,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AgentState:
        """Return the state from its `to_dict`.

        Raises:
            SchemaVersionError: if the data has another format.
            UsageError: if the data is not a stored state, is incomplete or damaged, or if
                anything in it would be left out or changed. The message names the place.

        """
        state = cls._read(data, "")
        state.look_for_doubts()
        try:
            change = first_difference(
                dict(data),
                state.to_dict(),
                is_foreign=is_pydantics,
                foreign_names=PYDANTIC_NAMES,
            )
        except Exception as error:
            raise UsageError(f"This stored AgentState is damaged: {reason(error)}") from error
        if change is not None:
            raise UsageError(f"This stored AgentState is damaged: {change}")
        return state

    @classmethod
    def from_head(cls, head: Mapping[str, Any], messages: Messages) -> AgentState:
        """Return the state from its `head` and its messages.

        Raises:
            UsageError, SchemaVersionError: as `from_dict` does, but the result is not compared
                with the data.

        """
        state = cls._read(head, "")
        state.look_for_doubts()
        state.messages = messages
        state.let_follow()
        return state

    def let_follow(self) -> None:
        """Update the conversations of inner agents after more of this conversation was read.

        They are made from this conversation.
        """
        for child in (*self.children.values(), *self.left.values()):
            child.messages.follow(self.messages)

    @classmethod
    def _read(cls, data: object, path: str, above: Messages | None = None) -> AgentState:
        """Read the state from its data, at this path of the whole.

        Args:
            data: the data of the state.
            path: the path from the outermost state to this one.
            above: the conversation of the agent around it.

        """
        here = f" at {path!r}" if path else ""
        version = data.get("schema_version") if isinstance(data, Mapping) else None
        if not isinstance(data, Mapping) or version is None:
            raise UsageError(f"This is not a stored AgentState{here}: it has no 'schema_version'")
        if type(version) not in (int, str) or (type(version) is int and version < 1):
            raise UsageError(
                f"This is not a stored AgentState{here}: its 'schema_version' is {shown(version)}"
            )
        if version != SCHEMA_VERSION:
            raise SchemaVersionError(version=version, known=SCHEMA_VERSION)
        place = "messages" if above is None or _OWN not in data else _OWN
        missing = [key for key in (place, *_KEYS) if key not in data]
        if missing:
            raise UsageError(
                f"This stored AgentState is incomplete{here}: {missing[0]!r} is missing"
            )
        state = cls.__new__(cls)
        messages, place = place, "run"
        try:
            keys = (*_STORED_KEYS, *(key for key in _RARE_KEYS if key in data))
            stored = _stored().validate_python({key: data[key] for key in keys})
            place = messages
            state.messages = Messages(messages_from_dicts(data[place]))
            if place == _OWN:
                assert above is not None, "else its place is another"
                state.messages = _inherited_view(stored.run, above).appending(*state.messages)
            place = "values"
            state._values = checked_json(data["values"], what="'values'")
            place = "children"
            children = dict(data[place])
            place = "left"
            left = dict(data.get(place, {}))
        except Exception as error:  # whatever the data is, it is the caller's
            if isinstance(error, ValidationError) and place == "run":
                place = str(error.errors()[0]["loc"][0])
            raise UsageError(
                f"This stored AgentState is damaged, in {path + place!r}: {reason(error)}"
            ) from error
        state.run, state.decisions = stored.run, stored.decisions or no_list()
        if state.run is not None:
            state.run.share_empties()
        state.grants, state.doubts = stored.grants or no_items(), stored.doubts or no_items()
        state.held_keys = stored.held_keys or no_items()
        state.queue = stored.queue or no_items()
        state.refused = stored.refused or no_items()
        state.reviews = stored.reviews or no_items()
        state.findings = stored.findings or no_items()
        state.message_ids = stored.message_ids or no_items()
        state.status, state.plans = stored.status, stored.plans
        state.files = stored.files
        state.blobs = stored.blobs
        state.earlier_costs, state.authors = stored.earlier_costs, stored.authors
        state.has_archive = stored.has_archive
        for name, inside in (("children", children), ("left", left)):
            read = {
                key: cls._read(child, f"{path}{name}.{shown(key)}.", state.messages)
                for key, child in inside.items()
            }
            setattr(state, name, read or no_items())
        if state.children:
            state.children = Children(state.children.items())
        state.may_be_in_doubt = False
        return state


def _copied(states: Mapping[str, AgentState]) -> dict[str, AgentState]:
    if not states:
        return no_items()
    copies = ((key, state.copied()) for key, state in states.items())
    if not isinstance(states, Children):
        return dict(copies)
    twin = Children(copies)
    twin.in_doubt.update(states.in_doubt)
    return twin


def _inherited_view(run: RunState | None, above: Messages) -> Messages:
    """The workflow's conversation as its agent saw it when the agent began."""
    view = run.shared.told if run is not None and run.shared is not None else None
    if run is None or run.shared is None or view is None:
        raise ValueError("it does not say what the agent was shown")

    def make(above: Messages) -> Messages:
        return view_for(
            run.agent,
            above.until(view.end),
            start=view.start,
            at=view.at,
            latest=run.contents == "none",
            raw=run.workflow is not None,
        )

    return Messages.of_another(above, run.shared.inherited, make)


def merged(base: Mapping[str, Any], delta: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `delta` in it: mappings merge deeply, other values are replaced."""
    result = dict(base)
    for key, value in delta.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[key] = merged(before, value)
        else:
            result[key] = value
    return result


def hashes_in(data: Mapping[str, Any]) -> frozenset[str]:
    """The `file_hashes` of a state, from its `to_dict`."""
    here = (file["hash"] for file in (data.get("files") or {}).values())
    children = (*data["children"].values(), *data.get("left", {}).values())
    inside = (hash for child in children for hash in hashes_in(child))
    return frozenset(hash for hash in (*here, *inside) if hash)
