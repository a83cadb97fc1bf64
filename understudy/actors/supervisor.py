"""Actors that start other actors, and start them again: OTP's rules by OTP's names.

    root = Supervisor.start([ChildSpec("counter", Counter.start)], strategy="one_for_one")
    counter = await root.child("counter")       # .get() from a thread

What differs from OTP is said in `docs/supervisor.md`.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import inspect
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, get_args

from pykka import Actor, ActorDeadError, ActorRef
from pykka._envelope import Envelope
from pykka.messages import ProxyCall, ProxyGetAttr
from tenacity import RetryCallState, Retrying
from tenacity.wait import wait_base

from understudy.actors.future import Future
from understudy.actors.loop_actor import LoopActor
from understudy.actors.monitor import Down
from understudy.actors.ref import LoopActorRef
from understudy.clock import Clock, SystemClock
from understudy.errors import UnderstudyError, UsageError

__all__ = [
    "ChildCounts",
    "ChildInfo",
    "ChildNotRunning",
    "ChildSpec",
    "ChildStartFailed",
    "ChildStatus",
    "NoSuchChild",
    "Restart",
    "RestartIntensityExceeded",
    "Shutdown",
    "Sleep",
    "StartChild",
    "Strategy",
    "Supervisor",
    "SupervisorRef",
    "SupervisorTree",
]

logger = logging.getLogger(__name__)
P = ParamSpec("P")

Strategy = Literal["one_for_one", "one_for_all", "rest_for_one"]
"""Who starts again when a child fails: it alone, all children, or it and those started after it."""

Restart = Literal["permanent", "transient", "temporary"]
"""When a child that ended is started again: always, after an abnormal end, or never."""

StartChild = Callable[[], ActorRef[Any] | Awaitable[ActorRef[Any]]]
"""Starts a new actor each time it is called, on the supervisor's loop, and returns its ref."""

Sleep = Callable[[float], Awaitable[None]]
"""Waits for so many seconds: `asyncio.sleep`, or a test's own."""

_SHUTDOWN_SECONDS = 5.0
_RETRYING = Retrying()  # Tenacity's waits want one; they read the attempt and the outcome alone


class Shutdown(UnderstudyError):
    """An orderly end that says why: raised by an actor, it counts as a normal exit.

    OTP's `{shutdown, Term}`: a transient child that ends by it is not started again.
    """


class NoSuchChild(UsageError):
    """The supervisor has no child of this id; the error lists those that it has.

    A child that it has, but that does not run now, is `ChildNotRunning` instead.
    """

    child_id: str

    def __init__(self, *, child_id: str, known: Iterable[str]) -> None:
        ids = ", ".join(repr(id) for id in known) or "none"
        super().__init__(
            f"There is no child {child_id!r}; the supervisor has {ids}.", child_id=child_id
        )


class ChildNotRunning(UnderstudyError):
    """The child is known but has no actor now: it is stopped, or about to be started again."""

    child_id: str
    status: str

    def __init__(self, *, child_id: str, status: str) -> None:
        super().__init__(
            f"Child {child_id!r} does not run: it is {status}. One that is stopped comes back by "
            "restart_child; one that restarts comes back by itself.",
            child_id=child_id,
            status=status,
        )


class ChildStartFailed(UnderstudyError):
    """The child's start callable or its `on_start` raised; that is `__cause__`."""

    child_id: str
    cause: str

    def __init__(self, *, child_id: str, cause: str) -> None:
        super().__init__(
            f"Child {child_id!r} did not start: {cause}", child_id=child_id, cause=cause
        )


class RestartIntensityExceeded(UnderstudyError):
    """Why a supervisor gave up: too many restarts in too short a time.

    It is the reason in the supervisor's own `Down`, so the supervisor above sees an abnormal exit.
    `__cause__` is how the last child ended.
    """

    supervisor: str
    child_id: str
    max_restarts: int
    period: float

    def __init__(self, *, supervisor: str, child_id: str, max_restarts: int, period: float) -> None:
        super().__init__(
            f"Supervisor {supervisor!r} gave up with child {child_id!r}: more than {max_restarts} "
            f"restarts within {period:g} s. Mend the child, or raise max_restarts.",
            supervisor=supervisor,
            child_id=child_id,
            max_restarts=max_restarts,
            period=period,
        )


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """The recipe for one child."""

    id: str
    """Names the child within its supervisor."""
    start: StartChild
    """Starts the actor: `Counter.start`, `partial(Counter.start, 3)`, or an async function."""
    restart: Restart = "permanent"
    shutdown: float | Literal["default"] | None = "default"
    """Seconds from `stop()` to `stop_now()`; 0 cancels at once, None waits for ever.

    The default is 5 seconds, and None for a supervisor, so that it can stop its own children.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise UsageError(f"The id of a child must be a non-empty string, not {self.id!r}")
        if isinstance(self.start, type) and issubclass(self.start, Actor):
            name = self.start.__name__
            raise UsageError(
                f"start of child {self.id!r} is the class {name}: give {name}.start, which starts "
                "an actor and returns its ref"
            )
        if not callable(self.start):
            raise UsageError(
                f"start of child {self.id!r} must be a callable that starts an actor and returns "
                f"its ref, not {self.start!r}: give the function, do not call it"
            )
        _check_choice(self.restart, Restart, f"restart of child {self.id!r}")
        if self.shutdown not in (None, "default") and not _is_seconds(self.shutdown):
            raise UsageError(
                f"shutdown of child {self.id!r} must be seconds (0 cancels at once) or None to "
                f"wait for ever, not {self.shutdown!r}"
            )


class ChildStatus(enum.Enum):
    """Where a child stands."""

    STARTING = "starting"  # its start callable or its on_start is under way
    RUNNING = "running"  # it has started
    STOPPING = "stopping"  # the supervisor has told it to stop
    EXITED = "exited"  # it ended by itself; the supervisor has not yet decided what follows
    RESTARTING = "restarting"  # it is to be started again, after a wait or after its siblings
    STOPPED = "stopped"  # terminated, or a transient one that ended normally; its spec is kept


@dataclass(frozen=True, slots=True)
class ChildInfo:
    """One child, as `which_children` found it."""

    id: str
    status: ChildStatus
    restart: Restart
    restarts: int
    """How often it was started again."""
    ref: LoopActorRef[Any] | None
    """None while no actor is there."""


@dataclass(frozen=True, slots=True)
class ChildCounts:
    """How many children a supervisor has; simple ones are in each number."""

    specs: int
    active: int
    """Those that have an actor now."""
    supervisors: int
    workers: int


@dataclass(frozen=True, slots=True)
class SupervisorTree:
    """A supervisor or child and what is below it; `str` draws it."""

    id: str
    class_name: str
    """The actor's class; empty for a child that was never started."""
    status: ChildStatus
    restarts: int
    children: tuple[SupervisorTree, ...] = ()
    simple: int = 0
    """How many simple children it has beside these."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        restarts = f", {_count(self.restarts, 'restart')}" if self.restarts else ""
        yield f"{self.id} ({self.class_name or 'not started'}) {self.status.value}{restarts}"
        branches = [list(child._lines()) for child in self.children]
        if self.simple:
            branches.append([_count(self.simple, "simple child", "simple children")])
        for branch in branches:
            last = branch is branches[-1]
            yield ("└── " if last else "├── ") + branch[0]
            yield from (("    " if last else "│   ") + line for line in branch[1:])


class SupervisorRef(LoopActorRef["Supervisor"]):
    """What others hold of a supervisor.

    Each method but `tree` sends a message and returns a future at once: `.get(timeout=seconds)`
    from a thread, `await` on a loop. The supervisor answers one message after another, also while
    a restart waits, but not while a child takes its time to start or to stop. A child that calls
    its own supervisor from `on_start` therefore waits for itself.

    A future holds an `ActorDeadError` if the supervisor stops before it answers.
    """

    _table: _Table

    def __init__(self, actor: Supervisor) -> None:
        super().__init__(actor)
        self._table = actor._table

    def start_child(self, spec: ChildSpec) -> Future[LoopActorRef[Any]]:
        """Add a child after the others and start it.

        Raises:
            UsageError: if there is a child of this id, stopped or not.
            ChildStartFailed: if it does not start; its spec is not kept.

        """
        return self._call("start_child", spec)

    def start_simple(self, start: StartChild) -> Future[LoopActorRef[Any]]:
        """Start a temporary child that has no id, no spec and no place in the order.

        The cheap way to have thousands. It answers without waiting for `on_start`; a child that
        ends for any reason is forgotten. They are stopped first and all together.

        Raises:
            UsageError: if the strategy is not one_for_one.
            ChildStartFailed: if `start` raises.

        """
        return self._call("start_simple", start)

    def terminate_child(self, id: str) -> Future[None]:
        """Stop a child, within its `shutdown`, and cancel its restart if one waits.

        The spec is kept for `restart_child`, a temporary child's is not. A group restart
        (one_for_all, rest_for_one) starts it again with the others.

        Raises:
            NoSuchChild: if the id is not known.

        """
        return self._call("terminate_child", id)

    def restart_child(self, id: str) -> Future[LoopActorRef[Any]]:
        """Start a stopped child. This counts as no restart.

        Raises:
            NoSuchChild: if the id is not known.
            UsageError: if it is not stopped.
            ChildStartFailed: if it does not start; it stays stopped.

        """
        return self._call("restart_child", id)

    def delete_child(self, id: str) -> Future[None]:
        """Forget the spec of a stopped child; its id is free again.

        Raises:
            NoSuchChild: if the id is not known.
            UsageError: if it is not stopped: `terminate_child` first.

        """
        return self._call("delete_child", id)

    def child(self, id: str) -> Future[LoopActorRef[Any]]:
        """The ref of the child's current actor; a child that was started again has a new one.

        While the child waits for its restart the answer waits too, until the child is back.

        Raises:
            NoSuchChild: if the id is not known.
            ChildNotRunning: if the child is stopped, or is stopped before it is back.

        """
        answer = _ChildAnswer()
        message = ProxyCall(attr_path=("_tell_child",), args=(id, answer), kwargs={})
        if not self.actor_inbox.offer(Envelope(message, reply_to=answer)):
            answer._fail(ActorDeadError(f"{self} not found"))
        return answer

    def which_children(self) -> Future[tuple[ChildInfo, ...]]:
        """The children in start order, without the simple ones."""
        return self._call("which_children")

    def count_children(self) -> Future[ChildCounts]:
        """How many children there are, the simple ones too."""
        return self._call("count_children")

    def tree(self) -> SupervisorTree:
        """A snapshot of everything below, at once: it answers also while a supervisor is busy."""
        return self._table.tree(self._table.name, self.actor_class.__name__, 0)

    def _call(self, method: str, *args: Any) -> Future[Any]:
        message = ProxyCall(attr_path=(method,), args=args, kwargs={})
        return self.ask(message, block=False)


_LATER = object()


class _ChildAnswer(Future[LoopActorRef[Any]]):
    """The reply to `child`: the supervisor may keep it, and answer when the child is back."""

    def _answer(self, value: object) -> bool:
        return value is not _LATER and super()._answer(value)


class _Child:
    """What the supervisor knows of one child."""

    __slots__ = (
        "actor_class", "askers", "attempt", "exit", "gone", "pending", "ref", "restarts", "since",
        "spec", "status",
    )  # fmt: skip

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.status = ChildStatus.STOPPED
        self.ref: LoopActorRef[Any] | None = None
        self.actor_class: type[LoopActor] | None = None  # of its latest actor
        self.restarts = 0
        self.attempt = 0  # restarts since it last stayed up for a whole period
        self.since: float | None = None  # when it was last up
        self.exit: _Exit | None = None  # the end that is not yet dealt with
        self.pending: _Pending | None = None  # the restart that it waits for
        self.gone: asyncio.Future[BaseException | None] | None = None  # who waits for its end
        self.askers: tuple[_ChildAnswer, ...] = ()  # who waits for its return

    @property
    def class_name(self) -> str:
        return self.actor_class.__name__ if self.actor_class is not None else ""

    def answer(self, error: Exception | None = None) -> None:
        """Give those who wait for its return the ref, or the error if it will not come back."""
        askers, self.askers = self.askers, ()
        for asker in askers:
            if self.ref is not None:
                asker._answer(self.ref)
            else:
                asker._fail(error or self.not_running())

    def not_running(self) -> ChildNotRunning:
        return ChildNotRunning(child_id=self.spec.id, status=self.status.value)


@dataclass(frozen=True, slots=True, eq=False)
class _Exit:
    """A child ended by itself. Compared by identity: an older one of the same child is stale."""

    child: _Child
    reason: BaseException | None


class _Pending:
    """One restart of a group: who it is for, and the task that waits for its time."""

    __slots__ = ("group", "left", "task")

    def __init__(self, group: list[_Child]) -> None:
        self.group = group
        self.left = len(group)
        self.task: asyncio.Task[None] | None = None
        for child in group:
            child.pending = self

    def drop(self, child: _Child) -> None:
        """Take a child out; the last one cancels the wait."""
        child.pending = None
        self.left -= 1
        if not self.left and self.task is not None:
            self.task.cancel()


class _Table:
    """The children of one supervisor. Its ref reads it too, so each change is one assignment."""

    __slots__ = ("children", "name", "simple", "status")

    def __init__(self, name: str) -> None:
        self.name = name
        self.status = ChildStatus.STARTING
        self.children: dict[str, _Child] = {}  # in start order
        self.simple: dict[str, LoopActorRef[Any]] = {}

    def tree(self, id: str, class_name: str, restarts: int) -> SupervisorTree:
        return SupervisorTree(
            id=id,
            class_name=class_name,
            status=self.status,
            restarts=restarts,
            children=tuple(self._branch(child) for child in list(self.children.values())),
            simple=len(self.simple),
        )

    @staticmethod
    def _branch(child: _Child) -> SupervisorTree:
        ref, id = child.ref, child.spec.id
        if isinstance(ref, SupervisorRef):
            return ref._table.tree(id, child.class_name, child.restarts)
        return SupervisorTree(id, child.class_name, child.status, child.restarts)


class Supervisor(LoopActor):
    """An actor that starts children in order, starts those that fail again, and stops them all.

    1. It starts its children in order, each when the one before has run its `on_start`. If one
       does not start, those before it are stopped in reverse order and the supervisor fails.
    2. When a child ends, its restart type says whether it comes back, and the strategy who comes
       back with it.
    3. More than `max_restarts` restarts within `period` seconds: it stops its children in reverse
       start order, then itself, with `RestartIntensityExceeded`.
    4. When it stops or fails it stops its children in reverse start order, each within its
       `shutdown`. When it ends in any other way (`stop_now`, the end of its loop) its children
       are cancelled with it, before anybody hears of its end.

    Args of `start`:
        children: the specs, in start order.
        strategy: see `Strategy`.
        max_restarts, period: the intensity; 3 within 5 seconds unless said otherwise.
        wait: a Tenacity wait between a failure and the restart; none by default. Its attempt
            number counts the child's restarts since it last stayed up for a whole `period`. The
            waits pass within `period` like any time, so a longer wait than `period` /
            `max_restarts` means that it never gives up.
        name: shown in its tree and its errors; the class's name by default.
        clock, sleep: the seams of time.
    """

    def __init__(
        self,
        children: Iterable[ChildSpec] = (),
        *,
        strategy: Strategy = "one_for_one",
        max_restarts: int = 3,
        period: float = 5.0,
        wait: wait_base | Callable[[RetryCallState], float] | None = None,
        name: str | None = None,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__()
        _check_choice(strategy, Strategy, "strategy")
        if not isinstance(max_restarts, int) or isinstance(max_restarts, bool) or max_restarts < 0:
            raise UsageError(f"max_restarts must be 0 or more, not {max_restarts!r}")
        if not _is_seconds(period) or period == 0:
            raise UsageError(f"period must be more than 0 seconds, not {period!r}")
        if wait is not None and not callable(wait):
            raise UsageError(f"wait must be a Tenacity wait or None, not {wait!r}")
        self._strategy = strategy
        self._max_restarts = max_restarts
        self._period = period
        self._wait = wait
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._restarts: deque[float] = deque()
        self._simple_gone: asyncio.Future[None] | None = None
        self._simple_started = 0
        self._watch_simple = partial(self._on_loop, self._simple_exited)
        self._table = _Table(name or type(self).__name__)
        self._children = self._table.children
        for spec in children:
            self._add(spec)
        self._actor_ref = SupervisorRef(self)
        self._actor_ref.monitor(self._ended)  # the first watcher: others find no child alive

    if TYPE_CHECKING:
        # Pykka's `start` takes anything; this one takes what `__init__` of the class takes.
        @classmethod
        def start(
            cls: Callable[P, Supervisor], *args: P.args, **kwargs: P.kwargs
        ) -> SupervisorRef: ...

    # What a supervisor is asked: `SupervisorRef` has the contracts.

    async def start_child(self, spec: ChildSpec) -> LoopActorRef[Any]:
        child = self._add(spec)
        try:
            return await self._start_child(child)
        except ChildStartFailed:
            del self._children[spec.id]
            raise

    async def start_simple(self, start: StartChild) -> LoopActorRef[Any]:
        if self._strategy != "one_for_one":
            raise UsageError(
                f"start_simple needs the strategy 'one_for_one', and this is {self._strategy!r}: "
                "use start_child with restart='temporary', or a supervisor of its own"
            )
        self._simple_started += 1
        try:
            ref = await _started_by(start)
        except BaseException as error:  # as in `_start_child`
            if _is_ours(error):
                raise
            raise _start_failed(f"simple-{self._simple_started}", error) from error
        self._table.simple[ref.actor_urn] = ref
        ref.monitor(self._watch_simple)
        return ref

    async def terminate_child(self, id: str) -> None:
        child = self._find(id)
        await self._stop_child(child)
        child.answer()
        if child.spec.restart == "temporary":
            del self._children[id]

    async def restart_child(self, id: str) -> LoopActorRef[Any]:
        child = self._find(id)
        if child.status is not ChildStatus.STOPPED:
            raise UsageError(
                f"Child {id!r} is {child.status.value}: restart_child starts a stopped one; "
                "terminate_child stops it first"
            )
        return await self._start_child(child)

    async def delete_child(self, id: str) -> None:
        child = self._find(id)
        if child.status is not ChildStatus.STOPPED:
            raise UsageError(
                f"Child {id!r} is {child.status.value}: delete_child forgets a stopped one; "
                "terminate_child stops it first"
            )
        del self._children[id]

    def child(self, id: str) -> LoopActorRef[Any]:
        child = self._find(id)
        if child.ref is None:
            raise child.not_running()
        return child.ref

    def _tell_child(self, id: str, answer: _ChildAnswer) -> object:
        child = self._find(id)
        if child.status in (ChildStatus.EXITED, ChildStatus.RESTARTING):
            child.askers += (answer,)
            return _LATER
        return self.child(id)

    def which_children(self) -> tuple[ChildInfo, ...]:
        return tuple(
            ChildInfo(
                id=child.spec.id,
                status=child.status,
                restart=child.spec.restart,
                restarts=child.restarts,
                ref=child.ref,
            )
            for child in self._children.values()
        )

    def count_children(self) -> ChildCounts:
        children, simple = self._children.values(), self._table.simple.values()
        classes = [*(c.actor_class for c in children), *(ref.actor_class for ref in simple)]
        supervisors = sum(c is not None and issubclass(c, Supervisor) for c in classes)
        return ChildCounts(
            specs=len(classes),
            active=len(simple) + sum(child.ref is not None for child in children),
            supervisors=supervisors,
            workers=len(classes) - supervisors,
        )

    # Its life.

    async def on_start(self) -> None:  # type: ignore[override]  # Pykka's is plain
        """Start the children; a subclass that overrides it calls this one."""
        try:
            for child in list(self._children.values()):
                await self._start_child(child)
        except ChildStartFailed:
            await self._stop_children()
            raise
        self._table.status = ChildStatus.RUNNING

    async def on_stop(self) -> None:  # type: ignore[override]  # Pykka's is plain
        """Stop the children; a subclass that overrides it calls this one."""
        await self._stop_children()

    async def on_failure(self, *_exc_info: object) -> None:  # type: ignore[override]  # as above
        """Stop the children; a subclass that overrides it calls this one."""
        await self._stop_children()

    def _ended(self, _down: Down) -> None:
        """Take along what still runs: after `stop_now`, or when the loop shuts down."""
        self._table.status = ChildStatus.STOPPED
        reason = Shutdown(f"its supervisor {self._table.name!r} ended")
        for ref in reversed(list(self._table.simple.values())):
            ref.stop_now(reason)
        for child in reversed(list(self._children.values())):
            if child.pending is not None:
                child.pending.drop(child)
            child.exit = None
            child.status = ChildStatus.STOPPED
            if child.ref is not None:
                child.ref.stop_now(reason)
            child.answer(ActorDeadError(f"{self.actor_ref} stopped before the child was back"))

    # A child ended.

    def _exited(self, child: _Child, down: Down) -> None:
        """Note that a child's actor is gone: on the loop, also while a message is handled."""
        child.ref = None
        if child.gone is not None:  # the supervisor itself waits for this end
            if not child.gone.done():
                child.gone.set_result(down.reason)
        elif child.status is ChildStatus.RUNNING:
            self._note_exit(child, down.reason)

    def _note_exit(self, child: _Child, reason: BaseException | None) -> None:
        child.status = ChildStatus.EXITED
        child.exit = _Exit(child, reason)
        self._post("_handle_exit", child.exit)

    async def _handle_exit(self, exit: _Exit) -> None:
        child = exit.child
        if child.exit is not exit:
            return  # stopped or started again by what was handled in between
        child.exit = None
        kind = child.spec.restart
        if kind == "temporary":
            child.status = ChildStatus.STOPPED
            del self._children[child.spec.id]
            child.answer()
        elif kind == "transient" and _is_orderly(exit.reason):
            child.status = ChildStatus.STOPPED
            child.answer()
        else:
            await self._restart(child, exit.reason)

    async def _restart(self, child: _Child, reason: BaseException | None) -> None:
        """Bring a failed child back.

        1. Count it; beyond the intensity, give up: `on_failure` stops the children.
        2. Stop those that come back with it, in reverse start order.
        3. Wait, without holding up the mailbox.
        4. Start them in start order: `_start_again`.
        """
        if self._counts_too_many(child):
            child.status = ChildStatus.STOPPED
            raise RestartIntensityExceeded(
                supervisor=self._table.name,
                child_id=child.spec.id,
                max_restarts=self._max_restarts,
                period=self._period,
            ) from reason
        group = []
        for sibling in reversed(self._group(child)):
            await self._stop_child(sibling)
            if sibling.spec.restart == "temporary":
                del self._children[sibling.spec.id]
                sibling.answer()
                continue
            sibling.status = ChildStatus.RESTARTING
            group.append(sibling)
        pending = _Pending(group[::-1])
        delay = self._delay(child, reason)
        child_id, name = child.spec.id, self._table.name
        logger.info("child %r of %r starts again in %g s: %r", child_id, name, delay, reason)
        if delay > 0:
            pending.task = self.loop.create_task(self._start_later(delay, pending))
        else:
            await self._start_again(pending)

    def _group(self, child: _Child) -> list[_Child]:
        if self._strategy == "one_for_one":
            return [child]
        children = list(self._children.values())
        return children if self._strategy == "one_for_all" else children[children.index(child) :]

    def _counts_too_many(self, child: _Child) -> bool:
        now = self._clock.monotonic()
        self._restarts.append(now)
        while now - self._restarts[0] > self._period:
            self._restarts.popleft()
        if child.since is not None and now - child.since > self._period:
            child.attempt = 0
        child.since = None
        child.attempt += 1
        return len(self._restarts) > self._max_restarts

    def _delay(self, child: _Child, reason: BaseException | None) -> float:
        if self._wait is None:
            return 0.0
        state = RetryCallState(_RETRYING, None, (), {})
        state.attempt_number = child.attempt
        if reason is None:
            state.set_result(None)
        else:
            state.set_exception((type(reason), reason, reason.__traceback__))
        return float(self._wait(state))

    async def _start_later(self, delay: float, pending: _Pending) -> None:
        await self._sleep(delay)
        self._post("_start_again", pending)

    async def _start_again(self, pending: _Pending) -> None:
        for child in pending.group:
            if child.pending is not pending:
                continue  # terminated while it waited, or in a newer restart
            try:
                await self._start_child(child)
            except ChildStartFailed as error:
                logger.warning("%s", error)
                child.status = ChildStatus.RESTARTING
                # Handled as a message, so that a stop or terminate_child can come first.
                self._post("_handle_failed_start", pending, child, error)
                return
            pending.drop(child)
            child.restarts += 1

    async def _handle_failed_start(
        self, pending: _Pending, child: _Child, error: ChildStartFailed
    ) -> None:
        if child.pending is pending:
            await self._restart(child, error)
        else:
            await self._start_again(pending)

    # Starting and stopping one.

    def _add(self, spec: ChildSpec) -> _Child:
        if not isinstance(spec, ChildSpec):
            raise UsageError(f"A child is given as a ChildSpec, not as {spec!r}")
        if (known := self._children.get(spec.id)) is not None:
            raise UsageError(
                f"There is a child {spec.id!r}, {known.status.value}: choose another id"
                + (", or use restart_child" if known.status is ChildStatus.STOPPED else "")
            )
        child = self._children[spec.id] = _Child(spec)
        return child

    def _find(self, id: str) -> _Child:
        child = self._children.get(id)
        if child is None:
            raise NoSuchChild(child_id=id, known=self._children)
        return child

    async def _start_child(self, child: _Child) -> LoopActorRef[Any]:
        """Start the child's actor and wait until its `on_start` is through."""
        child.status = ChildStatus.STARTING
        gone = child.gone = self.loop.create_future()
        try:
            ref = child.ref = await _started_by(child.spec.start)
            child.actor_class = ref.actor_class
            ref.monitor(partial(self._on_loop, self._exited, child))
            await _until_started(ref, gone)
        except BaseException as error:  # whatever it is, it is the child's
            if _is_ours(error):
                raise
            child.status = ChildStatus.STOPPED
            raise _start_failed(child.spec.id, error) from error
        finally:
            child.gone = None
        child.status = ChildStatus.RUNNING
        child.since = self._clock.monotonic()
        child.answer()
        if gone.done():  # it started, and ended before this line
            self._note_exit(child, gone.result())
        return ref

    async def _stop_child(self, child: _Child) -> None:
        """Stop the child's actor and wait until it is gone; cancel what was planned for it."""
        child.exit = None
        if child.pending is not None:
            child.pending.drop(child)
        if (ref := child.ref) is not None:
            child.status = ChildStatus.STOPPING
            gone = child.gone = self.loop.create_future()
            try:
                await self._stop_within(_deadline(child), ref, gone)
            finally:
                child.gone = None
        child.status = ChildStatus.STOPPED

    async def _stop_within(
        self, seconds: float | None, ref: LoopActorRef[Any], gone: asyncio.Future[Any]
    ) -> None:
        """Tell it to stop, and when the seconds have passed cancel it; wait until it is gone."""
        if seconds != 0:
            ref.stop(block=False)
            if await self._in_time(seconds, gone):
                return
        ref.stop_now(Shutdown(f"it did not stop within {seconds:g} s"))
        await gone

    async def _in_time(self, seconds: float | None, gone: asyncio.Future[Any]) -> bool:
        if seconds is None:
            await gone
            return True
        timer = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait({gone, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        return gone.done()

    async def _stop_children(self) -> None:
        """Stop the simple children together, then the others in reverse start order."""
        self._table.status = ChildStatus.STOPPING
        await self._stop_simple()
        for child in reversed(list(self._children.values())):
            await self._stop_child(child)

    async def _stop_simple(self) -> None:
        simple = self._table.simple
        if not simple:
            return
        gone = self._simple_gone = self.loop.create_future()
        for ref in list(simple.values()):
            ref.stop(block=False)
        if not await self._in_time(_SHUTDOWN_SECONDS, gone):
            for ref in list(simple.values()):
                ref.stop_now(Shutdown(f"it did not stop within {_SHUTDOWN_SECONDS:g} s"))
            await gone

    def _simple_exited(self, down: Down) -> None:
        self._table.simple.pop(down.ref.actor_urn, None)
        if (
            self._simple_gone is not None
            and not self._table.simple
            and not self._simple_gone.done()
        ):
            self._simple_gone.set_result(None)

    def _on_loop(self, function: Callable[..., None], *args: Any) -> None:
        """Call it on this loop: at once if it runs here, soon if the caller is elsewhere."""
        if asyncio._get_running_loop() is self.loop:
            function(*args)
            return
        # A closed loop has ended this supervisor, and it has taken its children along.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *args)

    def _post(self, method: str, *args: Any) -> None:
        """Send a message to itself; one who has ended has nothing more to do."""
        with contextlib.suppress(ActorDeadError):
            self.actor_ref.tell(ProxyCall(attr_path=(method,), args=args, kwargs={}))


async def _started_by(start: StartChild) -> LoopActorRef[Any]:
    ref = start()
    if inspect.isawaitable(ref):
        ref = await ref
    if isinstance(ref, LoopActorRef):
        return ref
    if isinstance(ref, ActorRef):
        ref.stop(block=False)
    raise UsageError(
        f"start must return the ref of a LoopActor, which can be monitored, not {ref!r}"
    )


async def _until_started(
    ref: LoopActorRef[Any], gone: asyncio.Future[BaseException | None]
) -> None:
    """Return when `on_start` is through; raise what it raised."""
    try:
        # Any message is handled after on_start; this one is handled by Pykka, not by the child.
        await ref.ask(ProxyGetAttr(attr_path=("actor_urn",)), block=False)
    except ActorDeadError as error:
        raise await gone or error from None
    except Exception as error:
        # An actor that takes no such message has answered, so it has started.
        logger.debug("%s refused to be asked for its urn: %r", ref, error)


def _is_ours(error: BaseException) -> bool:
    """Whether it ends the supervisor: a cancellation of its own task, not one in a child."""
    task = asyncio.current_task()
    return isinstance(error, GeneratorExit) or (
        isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    )


def _start_failed(id: str, error: BaseException) -> ChildStartFailed:
    return ChildStartFailed(child_id=id, cause=f"{type(error).__name__}: {error}")


def _deadline(child: _Child) -> float | None:
    shutdown = child.spec.shutdown
    if shutdown != "default":
        return shutdown
    return None if isinstance(child.ref, SupervisorRef) else _SHUTDOWN_SECONDS


def _is_orderly(reason: BaseException | None) -> bool:
    return reason is None or isinstance(reason, Shutdown)


def _is_seconds(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )


def _check_choice(value: object, choices: Any, what: str) -> None:
    known = get_args(choices)
    if value not in known:
        told = ", ".join(repr(choice) for choice in known)
        raise UsageError(f"{what} must be one of {told}, not {value!r}")


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
