"""`Columns`: the rows that a statement takes, as one array for each column, in text.

psycopg makes an array of a list value by value, in Python: the seven arrays of a settlement in 75
µs. Of these texts it makes nothing: 20 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


class Columns:
    """The rows of a kind that a statement takes, in columns.

    Args:
        of: the kind. The names of the statement's values begin with it.
        types: the type of each column, by name.

    """

    def __init__(self, of: str, **types: str) -> None:
        self._types: Mapping[str, str] = {f"{of}_{name}": type for name, type in types.items()}
        self._of = of
        self.names: str = ", ".join(types)
        self.selected: str = ", ".join(f"n.{name}" for name in types)
        """As `names`, of the rows `n`."""
        self.arrays: str = ", ".join(self.array(name) for name in types)
        self.rows: str = self.named("n")
        self.parameters: str = ", ".join(f"{name} {type}[]" for name, type in self._types.items())
        """The parameters of a function of the server that takes `arrays`."""

    def array(self, name: str) -> str:
        """One column in SQL."""
        type = self._types[f"{self._of}_{name}"]
        return f"%({self._of}_{name}){'b' if type == 'bytea' else 's'}::{type}[]"

    def named(self, name: str) -> str:
        """The rows in SQL, each with its number `nth`, from 1."""
        return f"unnest({self.arrays}) WITH ORDINALITY AS {name} ({self.names}, nth)"

    def insert(self, table: str) -> str:
        """The statement that inserts the rows into a table, in their order."""
        return (
            f"INSERT INTO {table} ({self.names}) SELECT {self.selected}"  # noqa: S608 - constants
            f" FROM {self.rows} ORDER BY n.nth"
        )

    def values(self, rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """The values of a statement with these rows."""
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._types)
        return {
            name: _AS_TEXT.get(type, numbers)(column)
            for (name, type), column in zip(self._types.items(), columns, strict=True)
        }


def numbers(values: Iterable[object]) -> str:
    """An array of what has no quotes in its text; None is null."""
    return "{" + ",".join(map(str, values)).replace("None", "NULL") + "}"


def _flags(values: Iterable[bool]) -> str:
    return "{" + ",".join("t" if value else "f" for value in values) + "}"


def _texts(values: Iterable[str | None]) -> str:
    return "{" + ",".join(map(_quoted, values)) + "}"


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


_AS_TEXT: Mapping[str, Callable[[Any], Any]] = {"bool": _flags, "bytea": list, "text": _texts}
