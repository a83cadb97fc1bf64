"""`Children`: the agents that a state runs now, found without a look at all of them.

A workflow may run a thousand agents at once, and each of their calls asks what others do: which
agents the call runs, and where in the tree a call may be in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from understudy.state.run_state import is_child_of

S = TypeVar("S")


class Children(dict[str, S]):
    """Agents by child key."""

    __slots__ = ("_numbered", "in_doubt")

    def __init__(self, items: Iterable[tuple[str, S]] = ()) -> None:
        super().__init__()
        self._numbered: dict[str, dict[str, None]] = {}
        """The keys of a call's agents after its first one, by call key, for calls that run
        several."""
        self.in_doubt: dict[str, None] = {}
        """The keys of the agents whose calls, or those of agents inside, may be in doubt."""
        for key, child in items:
            self[key] = child

    def of_call(self, call_key: str) -> list[str]:
        """The keys of the agents that this call runs."""
        first = [call_key] if call_key in self else []
        return [*first, *self._numbered[call_key]] if call_key in self._numbered else first

    def __setitem__(self, key: str, child: S) -> None:
        super().__setitem__(key, child)
        call_key, plus, number = key.rpartition("+")
        if plus and number.isdecimal():
            self._numbered.setdefault(call_key, {})[key] = None

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.in_doubt.pop(key, None)
        call_key = key.rpartition("+")[0]
        numbered = self._numbered.get(call_key)
        if numbered is not None and numbered.pop(key, self) is None and not numbered:
            del self._numbered[call_key]


def with_child(children: dict[str, S], key: str, child: S) -> Children[S]:
    """The agents with this one: the same object, or a new one if there was none."""
    if not isinstance(children, Children):
        children = Children(children.items())
    children[key] = child
    return children


def agents_of_call(children: Mapping[str, S], call_key: str) -> list[str]:
    """The keys of the agents that this call runs, or has left."""
    if isinstance(children, Children):
        return children.of_call(call_key)
    return [key for key in children if is_child_of(key, call_key)]
