"""The root of all errors: facts as attributes, plain data, and back."""

from __future__ import annotations

from typing import Any, ClassVar


class UnderstudyError(Exception):
    """The base class of all errors of this library.

    The facts of an error are its attributes. They are JSON-able, so an error can be pickled, stored
    with a run's outcome and rebuilt in another process.
    """

    ends_with_runtime: ClassVar[bool] = False
    """Whether the error only says that a runtime has stopped. The next runtime may have another
    answer."""
    message: str
    facts: dict[str, Any]

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts
        """The attributes of the error, by name, JSON-able."""
        for name, value in facts.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        notes = {name: notes for name, notes in vars(self).items() if name == "__notes__"}
        return _rebuild, (type(self), self.message, self.facts), notes or None

    def to_dict(self) -> dict[str, Any]:
        """Return the error as plain data: the name of its type, its message and its facts."""
        return {"type": type(self).__name__, "message": self.message, "facts": self.facts}


def _rebuild(cls: type[UnderstudyError], message: str, facts: dict[str, Any]) -> UnderstudyError:
    error = cls.__new__(cls)
    UnderstudyError.__init__(error, message, **facts)
    return error
