"""The hooks of middleware around a call, of a tool or of a model: each stands around the next.

A hook may turn an error of the call into a result, call `next` once more, or return a result of its
own. What a hook raises itself is a failure of the hook, and no hook around it makes a result of it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from understudy._base.event_loops import is_cancelled
from understudy.errors import JournalFailed
from understudy.run.hooks import Hook, HookFailed
from understudy.run.run import Run

S = TypeVar("S")
R = TypeVar("R")


class HooksAround(ABC, Generic[S, R]):
    """One call through the hooks around it.

    `S` is what a hook passes on, `R` is what it returns.
    """

    ended: BaseException | None = None
    """The exception that ends the call, whatever a hook does with it.

    So a hook that fails inside another one fails the run, also if the outer one catches it
    (`test_a_wrapper_that_fails_inside_another_one_fails_the_run_whatever_that_one_does`).
    """
    caught: ClassVar[tuple[type[BaseException], ...]] = (Exception,)
    """What counts as a failure of the hook that raises it."""

    @abstractmethod
    async def innermost(self, passed: S) -> R:
        """Make the call, as the hooks have passed it on."""

    @abstractmethod
    def raised_inside(self, error: BaseException) -> bool:
        """Whether the call raised this error: a hook that lets it pass has not failed."""

    @abstractmethod
    def check_passed_on(self, hook: Hook, given: S, passed: object) -> None:
        """Raise what is wrong with what a hook passes to `next`.

        It is checked where it is passed on, so that the error names the middleware that did it.
        """

    def check_returned(self, returned: object) -> None:
        """Raise a `UsageError` if a hook may not return this."""

    def end_by(
        self, hook: Hook, given: S, error: BaseException, *, has_passed_on: bool
    ) -> BaseException:
        """The exception that ends the call because this hook raised an error of its own."""
        failed = HookFailed(hook.failure(error))
        failed.__cause__ = error
        return failed

    async def through(self, run: Run, hooks: Sequence[Hook], given: S) -> R:
        """The result of the call, through these hooks."""
        chain: Callable[[S], Awaitable[R]] = self.innermost
        for hook in reversed(hooks):
            chain = self._link(run, hook, chain)
        returned = await chain(given)
        if self.ended is not None:
            raise self.ended
        return returned

    def _link(
        self, run: Run, hook: Hook, inner: Callable[[S], Awaitable[R]]
    ) -> Callable[[S], Awaitable[R]]:
        has_passed_on = False

        async def link(given: S) -> R:
            async def rest(passed: S) -> R:
                nonlocal has_passed_on
                self.check_passed_on(hook, given, passed)
                has_passed_on = True
                return await inner(passed)

            try:
                returned = await hook.around(run, given, rest)
                self.check_returned(returned)
                return returned
            except self.caught as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                if self.ended is not None:
                    if error is self.ended:
                        raise
                    raise self.ended from error
                if self.raised_inside(error):
                    raise
                if isinstance(error, (HookFailed, JournalFailed)):
                    self.ended = error
                    raise
                ended = self.end_by(hook, given, error, has_passed_on=has_passed_on)
                self.ended = ended
                raise ended from ended.__cause__ or error

        return link
