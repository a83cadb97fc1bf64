"""Context: what holds for the code that calls an agent, and then for the code that answers it.

A tenant, a locale, the parent of a trace. It is text by name, kept with what the call has led to,
so that it is there in another thread, at another host, and after a restart.
"""

from __future__ import annotations

import inspect
import logging
import operator
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Annotated, Protocol, runtime_checkable

from pydantic import Field

from understudy._base.error_texts import error_text
from understudy._base.json_values import checked_text, shown
from understudy.errors import UsageError

logger: logging.Logger = logging.getLogger(__name__)

MAX_CHARACTERS = 4096
"""Of one value."""

Context = Mapping[str, str]
"""Values by the names of their codecs."""
StoredContext = Annotated[dict[str, str], Field(exclude_if=operator.not_)]
"""As a field of what is stored: it is not written where it is empty."""

_current: ContextVar[Context] = ContextVar("understudy_context")
"""Set while code runs under a context: also what no codec here knows goes with its own calls."""


@runtime_checkable
class ContextCodec(Protocol):
    """Carries one value from the code that calls an agent to the code that the agent's run
    executes.

    Both methods are called often: they must be fast, and must not block.
    """

    @property
    def name(self) -> str:
        """The name under which its value is kept. It must be the same at all hosts, and for as long
        as runs are kept.
        """

    def capture(self) -> str | None:
        """Return the present value, in the thread and the context variables of the caller; None =
        no value.
        """

    def apply(self, value: str) -> AbstractContextManager[object]:
        """Make the value valid in the `with` block, for its code and for the threads that it
        starts.

        Set context variables: they reach async code, worker threads and inner agents. A
        `threading.local` does not.
        """


class ContextVarCodec:
    """Carries the value of a context variable, which must be text.

    Args:
        variable: the context variable. If it has no value, nothing is carried, whatever its
            default is.
        name: the name of the codec; by default the variable's own.

    Raises:
        UsageError: if `variable` is not a context variable, or `name` is not text.

    """

    def __init__(
        self, variable: ContextVar[str] | ContextVar[str | None], *, name: str | None = None
    ) -> None:
        if not isinstance(variable, ContextVar):
            raise UsageError(f"ContextVarCodec takes a ContextVar, got {shown(variable)}")
        self._variable: ContextVar[str | None] = variable  # type: ignore[assignment]  # it gets text
        self.name: str = checked_text(
            variable.name if name is None else name, what="ContextVarCodec: `name`"
        )

    def __repr__(self) -> str:
        return f"ContextVarCodec({self.name!r})"

    def capture(self) -> str | None:
        """Return the value of the variable here."""
        return self._variable.get(None)

    @contextmanager
    def apply(self, value: str) -> Iterator[None]:
        """Set the variable in the `with` block."""
        token = self._variable.set(value)
        try:
            yield
        finally:
            self._variable.reset(token)


class ContextCodecs:
    """The codecs of a runtime.

    Raises:
        UsageError: for what is no list of codecs, and for two of one name.

    """

    def __init__(self, codecs: Iterable[ContextCodec] = ()) -> None:
        if isinstance(codecs, str) or not isinstance(codecs, Iterable):
            raise UsageError(f"`context` must be a list of codecs, got {shown(codecs)}")
        self._codecs: dict[str, ContextCodec] = {}
        for codec in codecs:
            name = _checked(codec)
            if name in self._codecs:
                raise UsageError(f"`context` has two codecs named {name!r}: rename one")
            self._codecs[name] = codec

    def capture(self) -> Context:
        """The context of the caller.

        Raises:
            UsageError: if a codec raises, or its value is not text that can be kept.

        """
        current = _current.get(None)
        if not self._codecs:
            return current or {}
        context = {name: value for name, value in (current or {}).items() if not self.knows(name)}
        for name, codec in self._codecs.items():
            what = f"the context codec {name!r}: capture()"
            try:
                value = codec.capture()
            except Exception as error:
                raise UsageError(f"{what} raised {error_text(error)}") from error
            if value is None:
                continue
            context[name] = checked_text(value, what=what, may_be_empty=True)
            if len(value) > MAX_CHARACTERS:
                raise UsageError(
                    f"{what} gave {len(value):,} characters, and at most {MAX_CHARACTERS:,} are "
                    "kept: carry an id, and look the rest up by it"
                )
        return context

    def knows(self, name: str) -> bool:
        """Whether there is a codec of this name."""
        return name in self._codecs

    @contextmanager
    def applied(self, context: Context, *, is_strict: bool = True) -> Iterator[None]:
        """Run the block under a context. What no codec here knows is kept, and not applied.

        Args:
            context: as it was captured.
            is_strict: whether the block must not run where a codec fails. Else that is logged.

        Raises:
            UsageError: if a codec fails.

        """
        if not context:
            yield
            return
        entered: list[tuple[str, AbstractContextManager[object]]] = []
        token = _current.set(context)
        try:
            for name, value in context.items():
                codec = self._codecs.get(name)
                if codec is None:
                    continue
                try:
                    manager = codec.apply(value)
                    manager.__enter__()
                except Exception as error:
                    why = f"the context codec {name!r}: apply() raised {error_text(error)}"
                    if is_strict:
                        raise UsageError(why) from error
                    logger.exception(why)
                else:
                    entered.append((name, manager))
            yield
        finally:
            for name, manager in reversed(entered):
                try:  # it is not told of an error, which is not its to swallow
                    manager.__exit__(None, None, None)
                except Exception:
                    logger.exception("the context codec %r raised when it was left", name)
            _current.reset(token)


NO_CODECS = ContextCodecs()


def _checked(codec: object) -> str:
    if isinstance(codec, type) or not isinstance(codec, ContextCodec):
        raise UsageError(
            f"`context` takes codecs, with a name, capture() and apply(value), got {shown(codec)}"
        )
    for method in (codec.capture, codec.apply):
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(
            inspect.unwrap(method)
        ):
            raise UsageError(f"the context codec {shown(codec)}: its methods must not be async")
    return checked_text(codec.name, what=f"the `name` of the context codec {shown(codec)}")
