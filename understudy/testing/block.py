"""`Block`: what holds in a `with` block, or while a decorated function runs, plain or async."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from understudy.errors import UsageError

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Block(ABC):
    """A context manager that is used once, and a decorator that makes one for each call.

    A function that is decorated keeps its signature, so pytest finds its fixtures, and a plugin for
    async tests finds that it is async.
    """

    _stack: ExitStack | None = None

    @abstractmethod
    def _begin(self, stack: ExitStack) -> None:
        """Enter what holds in the block."""

    @abstractmethod
    def _wrong(self) -> BaseException | None:
        """After the block: what is wrong with it, if something is."""

    @abstractmethod
    def _anew(self) -> Self:
        """A block like this one, which was not used."""

    def __enter__(self) -> Self:
        if self._stack is not None:
            raise UsageError(
                f"{type(self).__name__}: this block was entered before: make another one"
            )
        with ExitStack() as stack:
            self._begin(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        __tracebackhide__ = True  # what is wrong is none of these lines
        assert self._stack is not None, "it was entered"
        self._stack.close()
        wrong = self._wrong()
        if wrong is None:
            return
        if error is None:
            raise wrong
        error.add_note(str(wrong))

    def __call__(self, function: FunctionT) -> FunctionT:
        """Decorate a function: a block of its own holds while it runs, at each call."""
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def called_on_loop(*args: Any, **keywords: Any) -> Any:
                with self._anew():
                    return await function(*args, **keywords)

            return cast("FunctionT", called_on_loop)

        @wraps(function)
        def called(*args: Any, **keywords: Any) -> Any:
            with self._anew():
                return function(*args, **keywords)

        return cast("FunctionT", called)
