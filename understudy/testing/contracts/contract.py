"""`Contract`: tests that judge an implementation, under pytest, or by `judge` without it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import shutil
import tempfile
import threading
import traceback
import unittest
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from understudy.errors import UsageError

ContractT = TypeVar("ContractT", bound="Contract")
ErrorT = TypeVar("ErrorT", bound=BaseException)
T = TypeVar("T")
_TIMEOUT = 60.0
"""Seconds after which a test that waits has failed."""
_CASES = "understudy_cases"


class Contract:
    """Tests that judge an implementation. Inherit from it, and override its factory methods.

    A subclass whose name begins with `Test` is collected by pytest. No fixture and no plugin for
    async tests is needed: each test is a plain function, which runs its own event loop. `judge`
    runs the same tests without pytest.

    A test that does not apply to an implementation is skipped by `unittest.SkipTest`, which pytest
    knows. A subclass that overrides `setup_method` or `teardown_method` must call the method of
    this class.
    """

    _required: ClassVar[tuple[str, ...]] = ()
    """The factory methods that a subclass must override."""

    @cached_property
    def folder(self) -> Path:
        """An empty folder for this test. It is deleted when the test ends."""
        return Path(tempfile.mkdtemp(prefix="understudy-"))

    def setup_method(self) -> None:
        """Called before each test."""

    def teardown_method(self) -> None:
        """Called after each test, also after one that failed."""
        if "folder" in self.__dict__:
            shutil.rmtree(self.folder, ignore_errors=True)

    def skip(self, why: str) -> NoReturn:
        """Skip this test, because it does not apply to the judged implementation."""
        raise unittest.SkipTest(why)

    def _missing(self, method: str) -> UsageError:
        """The error of a factory method that is not overridden."""
        name = type(self).__name__
        return UsageError(f"{name} does not say what it judges: override `{method}`")

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Make a test for each case. It is a hook that pytest calls."""
        found = _cases_of(type(self), metafunc.function.__name__)
        if found is not None:
            metafunc.parametrize("case", list(found.values()), ids=list(found))


def cases(**each: Any) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Run a test once for each of these values, which it gets as `case`."""

    def with_cases(test: Callable[..., T]) -> Callable[..., T]:
        setattr(test, _CASES, each)
        return test

    return with_cases


def _cases_of(contract: type[Contract], test: str) -> Mapping[str, Any] | None:
    """The cases of a test, also if a subclass overrides the test, for instance to mark it."""
    tests = (vars(each).get(test) for each in contract.__mro__)
    return next(
        (vars(each)[_CASES] for each in tests if _CASES in getattr(each, "__dict__", {})), None
    )


def on_a_loop(
    test: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Make a plain test from an async test, which then runs on a new event loop."""

    @functools.wraps(test)
    def plain(*args: Any, **named: Any) -> None:
        run_async(lambda: test(*args, **named))

    # No plugin may take it for the async function, but pytest reads its parameters.
    del plain.__dict__["__wrapped__"]
    plain.__dict__["__signature__"] = inspect.signature(test)
    return plain


def run_async(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on a new loop, also if a loop runs in this thread.

    Raises:
        TimeoutError: if it takes longer than a minute.

    """

    async def in_time() -> T:
        async with asyncio.timeout(_TIMEOUT):
            return await work()

    def run() -> T:
        # With a factory the runner does not change the result of `asyncio.get_event_loop` in this
        # thread.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(in_time())

    return in_thread(run) if _has_loop() else run()


def _has_loop() -> bool:
    """Whether a loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def in_thread(work: Callable[[], T]) -> T:
    """Do work in a new thread, and wait for it.

    Raises:
        AssertionError: if the work does not end within a minute.

    """
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_TIMEOUT)
    if thread.is_alive():
        raise AssertionError("what runs in another thread has not ended within a minute")
    if failed:
        raise failed[0]
    return found[0]


class raised(AbstractContextManager["raised[ErrorT]"], Generic[ErrorT]):  # noqa: N801
    """Fail unless the block raises this error.

    Args:
        expected: the type of the error.
        match: a regular expression that its text must contain.

    """

    error: ErrorT
    """The error, after the block."""

    def __init__(self, expected: type[ErrorT], *, match: str = "") -> None:
        self._expected = expected
        self._match = match

    def __enter__(self) -> raised[ErrorT]:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        name = self._expected.__name__
        if exc is None:
            raise AssertionError(f"{name} was not raised")
        if not isinstance(exc, self._expected):
            return False
        if not re.search(self._match, str(exc)):
            raise AssertionError(f"the text of {name} does not have {self._match!r}: {exc}")
        self.error = exc
        return True


@dataclass(frozen=True, slots=True)
class Violation:
    """A test of a contract that failed."""

    test: str
    """The name of the test, with the name of its case in brackets."""
    rule: str
    """What the test demands, as a sentence."""
    error: BaseException
    where: str
    """The line of the test that failed, with its code."""

    def __str__(self) -> str:
        error = f"{type(self.error).__name__}: {self.error}".rstrip(": ")
        return f"{self.test}: {self.rule}\n    {self.where}\n    {error}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of a contract about an implementation."""

    kept: tuple[str, ...]
    """The names of the tests that passed."""
    skipped: Mapping[str, str]
    """The reasons of skipped tests, by the name of the test."""
    violations: tuple[Violation, ...] = field(default_factory=tuple)
    """The tests that failed, in the order of the contract."""

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the tests that failed."""
        return tuple(each.test for each in self.violations)

    def __bool__(self) -> bool:
        """Whether the contract is kept."""
        return not self.violations

    def __str__(self) -> str:
        counts = (
            f"{len(self.kept)} kept, {len(self.violations)} broken, {len(self.skipped)} not asked"
        )
        return "\n".join([counts, *map(str, self.violations)])


def judge(contract: type[Contract], *, only: Collection[str] = ()) -> Judgement:
    """Run the tests of a contract without pytest.

    Args:
        contract: the subclass for the implementation.
        only: the names of the tests to run; by default all.

    Raises:
        UsageError: if `python -O` runs it, which leaves all assertions out; if the class does not
            override a factory method; or if the contract has no test of a name.

    """
    if not __debug__:
        raise UsageError("`judge` needs assertions: run it without `python -O`")
    for method in contract._required:
        owner = next(each for each in contract.__mro__ if method in vars(each))
        if "_required" in vars(owner):
            raise contract()._missing(method)
    names = [name for name in dir(contract) if name.startswith("test_")]
    unknown = sorted(set(only) - set(names))
    if unknown:
        raise UsageError(f"{contract.__name__} has no test {unknown[0]!r}")
    kept: list[str] = []
    skipped: dict[str, str] = {}
    violations: list[Violation] = []
    for name, run in _runs_of(contract, [each for each in names if not only or each in only]):
        try:
            run()
        except unittest.SkipTest as why:
            skipped[name] = str(why)
        except Exception as error:
            violations.append(_violation(name, error))
        else:
            kept.append(name)
    return Judgement(tuple(kept), skipped, tuple(violations))


def _runs_of(
    contract: type[Contract], names: Collection[str]
) -> Iterator[tuple[str, Callable[[], None]]]:
    for name in names:
        found = _cases_of(contract, name)
        if found is None:
            yield name, functools.partial(_run, contract, name)
        else:
            for case, value in found.items():
                yield f"{name}[{case}]", functools.partial(_run, contract, name, case=value)


def _run(contract: type[Contract], name: str, **case: Any) -> None:
    test = contract()
    test.setup_method()
    try:
        getattr(test, name)(**case)
    except Exception as failed:
        try:
            test.teardown_method()
        except Exception as after:
            failed.add_note(f"After it the test could not be cleaned up: {after!r}")
        raise
    test.teardown_method()


def _violation(name: str, error: Exception) -> Violation:
    rule = name.partition("[")[0].removeprefix("test_").replace("_", " ")
    frames = traceback.extract_tb(error.__traceback__)
    tests = Path(__file__).parent
    own = [
        each
        for each in frames
        if tests in Path(each.filename).parents and each.filename != __file__
    ]
    last = (own or list(frames))[-1]
    return Violation(name, rule, error, f"{Path(last.filename).name}:{last.lineno}: {last.line}")
