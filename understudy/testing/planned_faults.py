"""`faults`: for the length of a block, models, tools and stores fail at the calls that it names."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from understudy._base.json_values import checked_flag, shown
from understudy.errors import UsageError
from understudy.testing import seams
from understudy.testing.block import Block
from understudy.testing.model_faults import Asked, ModelFault
from understudy.testing.placed_fault import BlockCallbacks, PlacedFault
from understudy.testing.plan import Planned
from understudy.testing.tool_faults import FaultyBody, ToolFault

if TYPE_CHECKING:
    from understudy.loop_actors.future import Future
    from understudy.testing.store_faults import StoreFault

FaultT = TypeVar("FaultT", bound=PlacedFault)

GivenModelFaults = (
    ModelFault | Sequence[ModelFault] | Mapping[str, ModelFault | Sequence[ModelFault]]
)
GivenToolFaults = Mapping[str, ToolFault | Sequence[ToolFault]]
GivenStoreFaults: TypeAlias = "StoreFault | Sequence[StoreFault]"

ANY = ""
"""The name for faults that apply to each agent."""


def faults(
    *,
    model: GivenModelFaults = (),
    tool: GivenToolFaults | None = None,
    store: GivenStoreFaults = (),
    must_happen: bool = True,
) -> PlannedFaults:
    """Plan faults that happen in a `with` block, or while a decorated test runs.

    ```python
    with faults(tool={"pay": ToolFault.answer_lost()}):
        outcome = desk.execute_sync("Pay order 17.")
    ```

    The faults apply to all calls of agents in this process during the block, in all threads, also
    in a runtime that was opened before. Models and tools are not changed. Calls without a planned
    fault work as usual. A decorated test, plain or async, plans its faults again each time it is
    called.

    Args:
        model: faults of the requests to models: one or several `ModelFault`, which count the
            requests of all agents; or a mapping of agent names to faults.
        tool: faults of tools: a mapping of tool names to one or several `ToolFault`.
        store: faults of the writes of database stores: one or several `StoreFault`.
        must_happen: whether a fault that has not happened by the end of the block is an error,
            because such a test proves nothing. Use False for a block that runs several times,
            as in a story that is stopped at each point.

    Raises:
        UsageError: if there is no fault, a fault is in the wrong place, or two faults would
            happen at the same call. At the end of the block: if a fault could not happen.
        AssertionError: at the end of the block, if it ends well and a fault has not happened.

    """
    stores: tuple[StoreFault, ...] = ()
    if store != ():
        from understudy.testing.store_faults import StoreFault  # it needs a database's packages

        stores = _checked(store, StoreFault, "store", "store").get(ANY, ())
    return PlannedFaults(
        models=_checked(model, ModelFault, "model", "agent", may_be_named=True),
        tools=_checked(tool or {}, ToolFault, "tool", "tool", must_be_named=True),
        stores=stores,
        must_happen=checked_flag(must_happen, what="faults: `must_happen`"),
    )


def _checked(
    given: Any,
    kind: type[FaultT],
    option: str,
    named: str,
    *,
    may_be_named: bool = False,
    must_be_named: bool = False,
) -> dict[str, tuple[FaultT, ...]]:
    """The faults by name, with `ANY` for faults without a name."""
    is_named = isinstance(given, Mapping)
    if is_named and not (may_be_named or must_be_named):
        raise UsageError(f"faults: `{option}` takes faults without a name, got {shown(given)}")
    if not is_named and must_be_named:
        raise UsageError(
            f"faults: `{option}` takes faults by the name of the {named}, such as "
            f"{{'pay': {kind.__name__}.answer_lost()}}, got {shown(given)}"
        )
    found: dict[str, tuple[FaultT, ...]] = {}
    for name, each in (given if is_named else {ANY: given}).items():
        planned = (each,) if isinstance(each, PlacedFault) else each
        if not isinstance(planned, (list, tuple)) or not all(isinstance(p, kind) for p in planned):
            raise UsageError(
                f"faults: `{option}` takes {kind.__name__} objects, one or a list of them, got "
                f"{shown(each)}"
            )
        if is_named and (not isinstance(name, str) or not name):
            raise UsageError(
                f"faults: `{option}` has the name of the {named} as its key, got {shown(name)}"
            )
        for index, first in enumerate(planned):
            for second in planned[index + 1 :]:
                if _overlap(first, second) and _of(first) == _of(second):
                    raise UsageError(
                        f"faults: `{option}` has {first.what} and {second.what} at the same call: "
                        "give one of them another `at`"
                    )
        if planned:
            found[name] = tuple(planned)
    return found


def _overlap(one: PlacedFault, other: PlacedFault) -> bool:
    """Whether both would happen at one call, if they count the same calls."""
    first, second = sorted((one, other), key=lambda each: each.at)
    return first.times is None or second.at < first.at + first.times


def _of(fault: PlacedFault) -> str | None:
    return getattr(fault, "of", None)  # only faults of stores have it


@dataclass(frozen=True, slots=True)
class _Placed(Generic[FaultT]):
    """A fault in a block."""

    fault: FaultT
    where: str
    """The model, tool or store of the fault, for messages."""
    call: str
    """The word for a call at this place."""
    planned: Planned

    def missing(self) -> str:
        fault, planned = self.fault, self.planned
        counted = f"{self.call}s" if _of(fault) is None else f"{self.call}s of {_of(fault)!r}"
        when = f"at {self.call} {fault.at}"
        if fault.times is None:
            when += " and each one after it"
        elif fault.times > 1:
            when = f"at {self.call}s {fault.at} to {fault.at + fault.times - 1}"
            reached = "1 was" if planned.happened == 1 else f"{planned.happened} were"
            when += f", of which {reached} reached" if planned.happened else ""
        return f"{self.where}: {fault.what}, {when}; {counted} in the block: {planned.seen}"


class _Faults(Generic[FaultT]):
    """The faults of one place in a block, by name."""

    def __init__(self, given: Mapping[str, tuple[FaultT, ...]], place: str, call: str) -> None:
        self._placed = {
            name: [
                _Placed(
                    each, f"{place} {name!r}" if name else place, call, Planned(each.at, each.times)
                )
                for each in placed
            ]
            for name, placed in given.items()
        }
        self.names: set[str] = set()
        """The names of everything that was called."""
        self._lock = threading.Lock()

    def has(self, *names: str) -> bool:
        """Whether faults are planned for something with one of these names."""
        self.names.add(names[0])
        return any(name in self._placed for name in (*names, ANY))

    def next(self, *names: str, counts: Callable[[FaultT], bool] = lambda _: True) -> FaultT | None:
        """Count a call of something with these names. Returns the fault that happens at it, if any.

        Args:
            names: the names of what is called.
            counts: whether a fault counts the call.

        """
        with self._lock:
            each = [p for name in {*names, ANY} for p in self._placed.get(name, ())]
            due = [p for p in each if counts(p.fault) and p.planned.is_due()]
            if not due:
                return None
            due[0].planned.note()
            return due[0].fault

    def __iter__(self) -> Iterator[_Placed[FaultT]]:
        for placed in self._placed.values():
            yield from placed


class PlannedFaults(Block):
    """The faults of a block, planned by `faults(...)`. A context manager, and a decorator."""

    def __init__(
        self,
        *,
        models: Mapping[str, tuple[ModelFault, ...]],
        tools: Mapping[str, tuple[ToolFault, ...]],
        stores: tuple[StoreFault, ...],
        must_happen: bool,
    ) -> None:
        if not (models or tools or stores):
            raise UsageError(
                "faults(...) plans nothing: give `model`, `tool` or `store`, such as "
                "faults(tool={'pay': ToolFault.answer_lost()})"
            )
        self._given = {"models": models, "tools": tools, "stores": stores}
        self._must_happen = must_happen
        self._models: _Faults[ModelFault] = _Faults(
            models, "model of agent" if ANY not in models else "model", "request"
        )
        self._tools: _Faults[ToolFault] = _Faults(tools, "tool", "call")
        self._stores: _Faults[StoreFault] = _Faults({ANY: stores}, "store", "write")
        self._impossible: list[str] = []
        self._callbacks = BlockCallbacks(self._refuse, self._note_wait)
        self._slow = 0
        """The number of calls that wait for the clock without a waiter in `until_slow`."""
        self._waiters: deque[Future[None]] = deque()
        self._lock = threading.Lock()

    def _begin(self, stack: ExitStack) -> None:
        between = stack.enter_context
        if self._given["models"]:
            between(seams.MODEL_REQUEST.between(self._around_request))
        if self._given["tools"]:
            between(seams.TOOL_BODY.between(self._around_body))
        if self._given["stores"]:
            from understudy.testing.store_faults import FaultyWrites

            writes = FaultyWrites(self._next_write, self._refuse)
            between(seams.TRANSACTION.between(writes.transaction))
            between(seams.COMMIT.between(writes.commit))
            if any(placed.fault._failure == "lease_lost" for placed in self._stores):
                between(seams.RENEWAL.between(writes.renewal))

    def _wrong(self) -> BaseException | None:
        if self._impossible:
            return UsageError("\n".join(self._impossible))
        missing = self._missing_text() if self._must_happen else ""
        return AssertionError(missing) if missing else None

    def _anew(self) -> PlannedFaults:
        given: Any = self._given
        return PlannedFaults(**given, must_happen=self._must_happen)

    @property
    def missing(self) -> tuple[str, ...]:
        """A line for each fault that has not happened as often as planned."""
        return tuple(
            placed.missing()
            for place in (self._models, self._tools, self._stores)
            for placed in cast("Iterator[_Placed[PlacedFault]]", iter(place))
            if not placed.planned.is_complete
        )

    def assert_complete(self) -> None:
        """Assert that each fault has happened as often as planned.

        The end of the block does this by itself. Inside the block, it checks the progress.

        Raises:
            AssertionError: if a fault is missing. The error names the fault and the number of
                calls.

        """
        missing = self._missing_text()
        if missing:
            raise AssertionError(missing)

    def _missing_text(self) -> str:
        missing = self.missing
        if not missing:
            return ""
        lines = ["planned faults that did not happen, so the test proves nothing about them:"]
        lines += [f"  {line}" for line in missing]
        for names, asked in (
            (self._models.names, "agents that asked a model"),
            (self._tools.names, "tools that were called"),
            (self._stores.names, "records that were written"),
        ):
            if names:
                lines.append(f"  {asked}: {', '.join(map(repr, sorted(names)))}")
        if self._given["stores"] and not self._stores.names:
            lines.append(
                "  nothing was written to a database, as a store in memory has none: give the "
                "runtime one, such as store='sqlite:///...'"
            )
        return "\n".join(lines)

    def until_slow(self) -> Future[None]:
        """Wait until a slow model or tool waits for the clock. Then advance the clock.

        Each call waits for one slow call, in their order.

        Returns:
            A future: `await` it, or call `.get(timeout=seconds)` on it in a thread.

        """
        from understudy.loop_actors.future import Future

        future: Future[None] = Future()
        with self._lock:
            if self._slow:
                self._slow -= 1
                future.set(None)
            else:
                self._waiters.append(future)
        return future

    def _note_wait(self) -> None:
        with self._lock:
            if not self._waiters:
                self._slow += 1
                return
            future = self._waiters.popleft()
        future.set(None)

    def _refuse(self, why: str) -> UsageError:
        self._impossible.append(why)
        return UsageError(why)

    # ------------------------------------------------------------------- at the seams

    def _around_request(
        self, inner: Callable[..., Any], call: Any, model: Any, request: Any, parameters: Any
    ) -> Any:
        run = call._run
        name = run.definition.name
        fault = self._models.next(name) if self._models.has(name) else None
        asked = model if fault is None else fault._play(Asked(model, run.clock, self._callbacks))
        return inner(call, asked, request, parameters)

    def _around_body(self, inner: Callable[..., Any], run: Any, ready: Any) -> Any:
        tool = ready.tool
        if not self._tools.has(*tool.names):
            return inner(run, ready)
        body = FaultyBody(tool, lambda: self._tools.next(*tool.names), run.clock, self._callbacks)
        return inner(run, replace(ready, tool=body.as_tool()))

    def _next_write(self, kinds: frozenset[str]) -> StoreFault | None:
        self._stores.names.update(kinds)
        return self._stores.next(ANY, counts=lambda fault: fault.of is None or fault.of in kinds)
