"""`Block`: the base of context managers that also decorate functions, plain or async."""

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
        """Enter the context managers of the block."""

    @abstractmethod
    def _wrong(self) -> BaseException | None:
        """The error to raise after the block; None if the block is right."""

    @abstractmethod
    def _anew(self) -> Self:
        """A new block like this one."""

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
        __tracebackhide__ = True  # these lines are not at fault
        assert self._stack is not None, "it was entered"
        self._stack.close()
        wrong = self._wrong()
        if wrong is None:
            return
        if error is None:
            raise wrong
        error.add_note(str(wrong))

    def __call__(self, function: FunctionT) -> FunctionT:
        """Decorate a function: each call runs in a new block."""
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
