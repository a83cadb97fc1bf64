"""`crash_points`: a test is played once for each point at which its host may be killed."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import os
import random
import shlex
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from understudy._base.json_values import shown
from understudy.actors import Runtime, SimulatedClock
from understudy.errors import UsageError
from understudy.journal import MemoryStore, Store
from understudy.journal.opening import open_store
from understudy.testing import seams
from understudy.testing.effects import Effects, Gone, current_host
from understudy.testing.points import Entry, Watch
from understudy.testing.story import Story, StoryFailed
from understudy.testing.story_hosts import (
    WATCHED,
    Hangs,
    InProcessHost,
    Setting,
    StoryHost,
)
from understudy.tools.context import ToolContext
from understudy.tools.function_tool import Tool

Kill = Literal["in-process", "process"]
CRASH_AT = "UNDERSTUDY_CRASH_AT"
SEED = "UNDERSTUDY_SEED"
POSTGRESQL = "UNDERSTUDY_POSTGRESQL"
SHOWN_BEFORE, SHOWN_AFTER = 30, 40
"""The numbers of lines of a story that are shown before and after the point of the kill."""
MOST_PAIRS = 200
"""The maximum number of pairs of points that are played. If there are more, the seed draws some."""
OF_THE_STORY = frozenset({"agents", "store", "clock", "deps_for"})
"""The options of a runtime that the story itself sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options for playing a story."""

    store: str
    kill: Kill = "in-process"
    twice: bool = False
    two_hosts: bool = False
    control: bool = True
    seed: int = 1
    runtime: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Play:
    """One play of a story, with what happened in it."""

    watch: Watch
    ends: dict[str, tuple[str, str]] = field(default_factory=dict)
    error: BaseException | None = None
    effects: int = 0

    @property
    def has_failed_by_test(self) -> bool:
        """Whether an assertion of the test has failed, and not the story itself."""
        failed = isinstance(self.error, _failures(AssertionError))
        return failed and not isinstance(self.error, StoryFailed)


def _failures(of: type[Exception] = Exception) -> tuple[type[BaseException], ...]:
    """This class, and the exception of `pytest.fail` and of a `pytest.raises` without an error."""
    pytest = sys.modules.get("pytest")
    return (of,) if pytest is None else (of, pytest.fail.Exception)  # no subclass of Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The result of all plays of a story on one store."""

    store: str
    points: int
    """The number of points at which the host was killed."""
    plays: int
    control: str
    """The point at which the careless build was found; empty if no control was played."""


def crash_points(
    *,
    store: str | Sequence[str] = ("memory", "sqlite"),
    kill: Kill | None = None,
    twice: bool = False,
    two_hosts: bool = False,
    control: bool = True,
    **runtime: Any,
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Play a test once undisturbed, and once for each point at which its host may be killed.

    ```python
    @crash_points()
    def pays_once(story):
        bank = story.remote(dedupe=True)
        story.spawn(make_desk(bank))
        story.say("Refund order 17")
        story.answer(approve())
        story.finish()
        story.effects.once("17")
        story.same_outcome()
    ```

    There is a point before and after each record becomes durable (or records that are always
    written together), and after each effect. The name of a point has the number of the record, so
    it is the same in each play. At the end a *control* is played: the same test in a world where
    keys and look-ups are ignored, and each cut-off call is repeated. The test must fail in the
    control. If it does not, it can never fail, and this is reported as a failure.

    The parameter `story` of the test is the `Story`; without a parameter of this name, the first
    parameter. The others are fixtures of pytest, which are made once for all plays. The test is a
    plain function or method, or an async one. `--understudy-crash-at "after desk#9"` (without
    pytest the environment variable `UNDERSTUDY_CRASH_AT`) plays only one point; two points are
    `"before desk#3 then after desk#9"`.

    The kit does not see: effects that are counted elsewhere than in `story.effects`; a repetition
    whose text differs; what a thread does that a tool started itself; and the loss of unsynced
    writes in a power cut. A tool that swallows `BaseException` in an endless loop hangs when its
    host is cut off in-process: use `kill="process"`.

    Args:
        store: `"memory"`, `"sqlite"`, `"postgresql"` (the URL of a server in the environment,
            as `UNDERSTUDY_POSTGRESQL`, or in `--understudy-postgresql`), or several: under
            pytest each is a test of its own.
        kill: `"in-process"`: the host is cut off, which takes milliseconds. `"process"`: the
            host is a process, and gets `SIGKILL`. By default `"in-process"`; with `two_hosts`
            `"process"`.
        two_hosts: a second host takes over where the first is killed. It needs
            `store="postgresql"`.
        twice: kill the next host too, at each later point. If there are more than 200 such
            pairs for a point, some are drawn by `--understudy-seed`.
        control: whether the control is played.
        runtime: options of the runtimes, such as `rules` or `people`.

    Raises:
        UsageError: if the options do not fit together, or the test has no parameter for the
            story.

    """
    stores = [store] if isinstance(store, str) else list(store)
    if not stores:
        raise UsageError("crash_points: `store` names no store, so nothing would be played")
    how = kill or ("process" if two_hosts else "in-process")
    for each in stores:
        _check(each, how, two_hosts=two_hosts)
    _check_runtime(runtime)

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        parameters = dict(inspect.signature(test).parameters)
        named = (
            "story" if "story" in parameters else next((n for n in parameters if n != "self"), "")
        )
        if not named:
            raise UsageError(
                f"crash_points: {test.__qualname__} has no parameter for the story: "
                f"def {test.__name__}(story)"
            )
        del parameters[named]

        @functools.wraps(test)
        def played(*args: Any, **given: Any) -> None:
            __tracebackhide__ = True
            chosen = given.pop("on_store", None)
            for each in stores if chosen is None else [chosen]:
                options = Options(
                    store=each,
                    kill=how,
                    twice=twice,
                    two_hosts=two_hosts,
                    control=control,
                    seed=int(os.environ.get(SEED, "1")),
                    runtime=runtime,
                )

                def play_of(story: Story) -> Any:
                    __tracebackhide__ = True
                    return test(*args, **given, **{named: story})

                play_all(play_of, options, name=test.__qualname__)

        del played.__wrapped__  # its signature differs from the test's
        fixtures = list(parameters.values())
        pytest = sys.modules.get("pytest")
        if pytest is not None and len(stores) > 1:
            fixtures.append(inspect.Parameter("on_store", inspect.Parameter.KEYWORD_ONLY))
            played = pytest.mark.parametrize("on_store", stores)(played)
        played.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
        return played

    return decorate


def _check(store: str, kill: str, *, two_hosts: bool) -> None:
    if store not in ("memory", "sqlite", "postgresql"):
        raise UsageError(
            f"crash_points: `store` is 'memory', 'sqlite' or 'postgresql', got {shown(store)}"
        )
    if kill not in ("in-process", "process"):
        raise UsageError(f"crash_points: `kill` is 'in-process' or 'process', got {shown(kill)}")
    if kill == "process" and store == "memory":
        raise UsageError(
            "crash_points: what is in memory is lost with its process, so kill='process' needs "
            "store='sqlite' or 'postgresql'"
        )
    if two_hosts and store != "postgresql":
        raise UsageError(
            f"crash_points: two_hosts needs store='postgresql', got {store!r}: no other store "
            "is for several hosts"
        )
    if two_hosts and kill != "process":
        raise UsageError(
            "crash_points: two_hosts needs kill='process': a host that is cut off in-process gives "
            "its lease up, and so would be no test of a takeover"
        )
    if kill == "process" and not hasattr(os, "fork"):
        raise UsageError("crash_points: kill='process' needs os.fork, which this system lacks")


def _check_runtime(options: dict[str, Any]) -> None:
    known = set(inspect.signature(Runtime).parameters) - OF_THE_STORY
    for name in options:
        if name in OF_THE_STORY:
            raise UsageError(
                f"crash_points: `{name}` is of the story itself: agents and their `deps` come by "
                "story.spawn(agent, deps=...), and the clock is simulated"
            )
        if name not in known:
            raise UsageError(
                f"crash_points: there is no option {name!r}; those of a Runtime are "
                f"{', '.join(sorted(known))}"
            )


def play_all(test: Callable[[Story], Any], options: Options, *, name: str = "the story") -> Played:
    """Play a story undisturbed, at each point, and its control.

    Raises:
        StoryFailed: if a play fails, or the control does not.

    """
    __tracebackhide__ = True
    baseline = _play(test, options, ())
    if isinstance(baseline.error, StoryFailed):
        raise _failure(name, options, (), baseline) from baseline.error
    if baseline.error is not None:
        baseline.error.add_note("\n".join(_report(options, (), baseline)))
        raise baseline.error
    wanted = os.environ.get(CRASH_AT)
    points = list(dict.fromkeys(baseline.watch.passed))
    chosen: list[tuple[str, ...]]
    if wanted:
        chosen = [_points_of(wanted, points, name)]
    else:
        _check_health(baseline)
        chosen = [(point,) for point in points]
    plays = 1
    for kills in chosen:
        play = _play(test, options, kills, baseline)
        plays += 1
        if play.error is not None:
            raise _failure(name, options, kills, play) from play.error
        if options.twice and not wanted:
            for pair in _pairs(kills[0], play, options):
                second = _play(test, options, pair, baseline)
                plays += 1
                if second.error is not None:
                    raise _failure(name, options, pair, second) from second.error
    found = ""
    if options.control and not wanted:
        found = _control(test, options, points, baseline, name)
    return Played(store=options.store, points=len(points), plays=plays, control=found)


def _points_of(wanted: str, points: Sequence[str], name: str) -> tuple[str, ...]:
    """The named point, or the two named points. The text of an effect may have a "then" too."""
    if wanted in points:
        return (wanted,)
    parts = wanted.split(" then ")
    for at in range(1, len(parts)):
        first = " then ".join(parts[:at])
        if first in points:
            return first, " then ".join(parts[at:])
    raise UsageError(f"{name} passes no point {parts[0]!r}. Its points are: {'; '.join(points)}")


def _pairs(first: str, play: Play, options: Options) -> list[tuple[str, str]]:
    """Pairs of this point and each point that the next host passes, up to the maximum number."""
    at = play.watch.passed.index(first) if first in play.watch.passed else 0
    later = [point for point in dict.fromkeys(play.watch.passed[at + 1 :]) if point != first]
    if len(later) > MOST_PAIRS:
        later = random.Random(f"{options.seed} {first}").sample(later, MOST_PAIRS)  # noqa: S311
    return [(first, second) for second in later]


def _check_health(baseline: Play) -> None:
    entries = baseline.watch.entries
    effects = [at for at, entry in enumerate(entries) if entry.what == "effect"]
    if not effects:
        raise StoryFailed(
            "No effect was reached: this test proves nothing about what happens once. Effects are "
            "what agents add to story.effects, and do to services that story.remote() makes; what "
            "a tool does elsewhere, as into a list of its own, is not seen."
        )
    last = max((at for at, entry in enumerate(entries) if entry.what == "records"), default=-1)
    if min(effects) > last:
        raise StoryFailed(
            "No point lies between an effect and a record: the effects come after all records, so "
            "no crash can repeat them. Have a tool make them."
        )


def _control(
    test: Callable[[Story], Any], options: Options, points: list[str], baseline: Play, name: str
) -> str:
    """The point at which the careless build is found out; "undisturbed" if it takes no crash.

    At this point something happened more often than in the real world, and the test failed. Other
    failures do not show that the test sees a repetition.
    """
    __tracebackhide__ = True
    # A repeated effect happened before the kill, so the points after effects come first.
    at_effects = [point for point in points if point.startswith("after effect")]
    others = [point for point in points if not point.startswith("after effect")]
    otherwise: tuple[str, BaseException] | None = None
    for kills in ((), *((point,) for point in (*at_effects, *others))):
        play = _play(test, options, kills, baseline, is_careless=True)
        at = kills[0] if kills else "undisturbed"
        if play.has_failed_by_test and play.effects > baseline.effects:
            return at
        if play.error is not None:
            otherwise = otherwise or (at, play.error)
            if not kills:
                break  # it would fail in this way at each point, which shows nothing
    world = (
        "in a world where keys and look-ups are ignored, and each call that was cut off is repeated"
    )
    if otherwise is None:
        raise StoryFailed(
            f"{name} cannot fail: {world}, it passes at all of its {len(points)} points. Assert "
            "what must hold, behind story.finish(): story.effects.once(...)"
        )
    at, error = otherwise
    raise StoryFailed(
        f"{name} is not known to see a repetition: {world}, it fails for another reason ({at}): "
        f"{error}. Take that assertion into a test of its own, or play no control: control=False"
    ) from error


def _play(
    test: Callable[[Story], Any],
    options: Options,
    kills: tuple[str, ...],
    baseline: Play | None = None,
    *,
    is_careless: bool = False,
) -> Play:
    """Play a story, and kill its host at these points."""
    __tracebackhide__ = True
    watch = Watch(kills=list(kills))
    effects = Effects().in_story(
        is_careless=is_careless, excused=lambda: "in doubt" if watch.excuses() else ""
    )
    play = Play(watch)
    with _stores(options) as (open_next, folder):
        setting = Setting(
            open_store=open_next,
            watch=watch,
            effects=effects,
            clock=SimulatedClock(),
            options=options.runtime,
        )

        start: Callable[[Setting], StoryHost] = InProcessHost
        if options.kill == "process":
            from understudy.testing.forked_hosts import ForkedHost, Notes  # no fork on Windows

            start = functools.partial(ForkedHost, notes=Notes(folder / "notes"))
        careless = (
            seams.TOOL_OF.between(_Careless(setting).around) if is_careless else nullcontext()
        )
        # A control is a different world, so its outcomes do not show the effect of a crash.
        ends = None if baseline is None or is_careless else baseline.ends
        story = Story(
            setting,
            start,
            hosts=2 if options.two_hosts else 1,
            baseline=ends,
            is_careless=is_careless,
        )
        try:
            with careless, seams.REST.between(_rest_not), _gone_without_a_word():
                result = test(story)
                if inspect.isawaitable(result):
                    asyncio.run(_awaited(result))
                if not story.is_finished:
                    asserted_of = len(effects)
                    story.finish()
                    if len(effects) > asserted_of:  # a host had effects after the assertion
                        effects.check_again()
                if kills and watch.kills:
                    raise StoryFailed(_not_reached(watch, baseline))
        except Hangs as hang:
            play.error = StoryFailed("The story hangs: a call has no answer, and all is still.")
            play.error.__cause__ = hang
        except _failures() as error:
            play.error = error
        finally:
            story.destroy()
        play.ends, play.effects = story.ends(), len(effects)
    return play


def _rest_not(rest: Callable[[float], Any], seconds: float) -> Any:
    """Skip the wait of a story's host before it calls a tool again, so that a play is quick."""
    return rest(0 if isinstance(current_host.get(), InProcessHost) else seconds)


@contextmanager
def _gone_without_a_word() -> Iterator[None]:
    """Let a thread of a tool end silently when its host is killed, as with a process."""
    before = threading.excepthook

    def said(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, Gone):
            before(args)

    threading.excepthook = said
    try:
        yield
    finally:
        if threading.excepthook is said:  # otherwise another play has begun meanwhile, in a thread
            threading.excepthook = before


async def _awaited(work: Any) -> None:
    await work


def _not_reached(watch: Watch, baseline: Play | None) -> str:
    """The error for a point that was not passed: the story is not the same each time."""
    before = [] if baseline is None else baseline.watch.passed
    for number, (was, now) in enumerate(zip(before, watch.passed, strict=False)):
        if was != now:
            return (
                f"The story is not the same each time: its point {number + 1} was {was!r}, and is "
                f"{now!r}. Take away what differs: random numbers, times of the machine, the order "
                "of threads."
            )
    return (
        f"The story is not the same each time: it has passed {len(watch.passed)} points and not "
        f"{watch.kills[0]!r}, which it has passed before."
    )


class _Careless:
    """Repeats the tools of a story's agents after each crash, each time under another key.

    No service is asked what they did, and no service knows the key of an earlier attempt. The tools
    themselves stay unchanged, so other users of the tools see nothing of it.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._twins: dict[int, tuple[Tool, Tool]] = {}
        """By tool id: the tool, which is held so that its id stays in use, and its careless
        twin."""

    def around(self, tool_of: Callable[..., Any], definition: Any, name: str) -> Any:
        """The tool that an agent has by this name; at a host of this play, its careless twin."""
        tool = tool_of(definition, name)
        host = current_host.get()
        if not isinstance(host, InProcessHost) or host.setting is not self._setting:
            return tool
        if tool is None or tool.effect == "read_only":
            return tool
        if tool.name in definition.background:
            return tool  # this tool only starts the call: the agent that makes the call is careless
        _, twin = self._twins.setdefault(id(tool), (tool, _careless_twin(tool)))
        return twin


def _careless_twin(tool: Tool) -> Tool:
    twin = copy(tool)
    twin.effect, twin.check = "idempotent", None
    twin.function = _under_new_keys(tool.function)
    return twin


def _under_new_keys(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a tool, with another `call_key` in each attempt."""
    attempts = itertools.count()

    def anew(given: tuple[Any, ...]) -> None:
        number = next(attempts)
        for context in given:
            if isinstance(context, ToolContext):
                context.call_key += f"/{number}"

    @functools.wraps(function)
    def plain(*given: Any, **keywords: Any) -> Any:
        anew((*given, *keywords.values()))
        return function(*given, **keywords)

    @functools.wraps(function)
    async def on_loop(*given: Any, **keywords: Any) -> Any:
        anew((*given, *keywords.values()))
        return await function(*given, **keywords)

    return on_loop if inspect.iscoroutinefunction(function) else plain


# ------------------------------------------------------------------------------ stores

_postgres_numbers = iter(range(1, 1_000_000))


@contextmanager
def _stores(options: Options) -> Iterator[tuple[Callable[[], Store], Path]]:
    """For each store, a function that opens it as a host does, and a folder of the play."""
    # The folder is in memory if there is room: no story is about the disk.
    memory = Path("/dev/shm")  # noqa: S108
    room = memory if memory.is_dir() else None
    # A host that hangs may still write into it; this must not hide why the play failed.
    with tempfile.TemporaryDirectory(
        prefix="understudy-", dir=room, ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        if options.store == "memory":
            last = MemoryStore()

            def next_one() -> Store:
                nonlocal last
                last = copy(last)  # a new store with the same records, not the store of a dead host
                for name in WATCHED:
                    vars(last).pop(name, None)
                return last

            yield next_one, folder
        elif options.store == "sqlite":
            yield lambda: open_store(f"sqlite:///{folder}/store.db", durability="off"), folder
        else:
            yield from _postgres_store(folder)


def _postgres_store(folder: Path) -> Iterator[tuple[Callable[[], Store], Path]]:
    from understudy.journal.database_store import DatabaseStore
    from understudy.journal.postgres.backend import PostgresBackend

    url = os.environ.get(POSTGRESQL)
    if not url:
        raise UsageError(
            "crash_points: store='postgresql' needs a server: --understudy-postgresql=URL, or "
            f"{POSTGRESQL} in the environment"
        )
    schema = f"story_{os.getpid()}_{next(_postgres_numbers)}"
    numbers = iter(range(1, 1_000_000))

    def next_one() -> Store:
        host = f"host {next(numbers)}"
        backend = PostgresBackend(url, host=host, schema=schema, durability="off", lease=1.0)
        return DatabaseStore(backend)

    try:
        yield next_one, folder
    finally:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE'.encode())


# ------------------------------------------------------------------------------ what a failure says


def _failure(name: str, options: Options, kills: Sequence[str], play: Play) -> StoryFailed:
    lines = [f"{play.error}", "", *_report(options, kills, play)]
    if kills:
        lines += ["", f"Once more: {_again(name, ' then '.join(kills))}"]
    return StoryFailed("\n".join(lines))


def _report(options: Options, kills: Sequence[str], play: Play) -> Iterator[str]:
    """The lines about what happened in a play."""
    killed = f"The host was killed {' then '.join(kills)}" if kills else "No host was killed"
    yield from (f"{killed} (store: {options.store}):", "")
    yield from _shown(play.watch.entries)


def _again(name: str, at: str) -> str:
    """The command that plays only this point."""
    point = f'"{at}"' if not set(at) & set('"$`\\!') else shlex.quote(at)
    # The name is pytest's own, from its folder on, with the class and the parameters.
    running = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if running and Path(running.partition("::")[0]).exists():
        return f"pytest {shlex.quote(running)} --understudy-crash-at {point}"
    return f"pytest -k {name.rpartition('.')[2]} --understudy-crash-at {point}"


def _shown(entries: Sequence[Entry]) -> Iterator[str]:
    """The story, one line per entry, without the lines long before the point."""
    at = next((n for n, entry in enumerate(entries) if entry.what == "killed"), len(entries))
    first = max(0, at - SHOWN_BEFORE)
    if first:
        yield f"  ... {first} lines before"
    for entry in entries[first : at + SHOWN_AFTER]:
        match entry.what:
            case "records":
                yield f"    {entry.name:<14} {entry.text}"
            case "effect":
                yield f"    effect         {entry.text!r}"
            case "request":
                pass
            case "killed":
                yield f">>> killed         {entry.text}"
            case "host":
                yield f"  the host {entry.text}"
            case verb:
                yield f"  {' '.join(filter(None, (verb, entry.agent)))}: {entry.text}".rstrip(": ")
