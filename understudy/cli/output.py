"""What the commands print: data on standard output, all else on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.text import as_json, clean, line

if TYPE_CHECKING:  # what is written into a pipe needs none of it
    from rich.console import Console
    from rich.text import Text

LEAST = 16
"""Characters of a wide column, at least."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print only one JSON document.")]
JsonlOption = Annotated[bool, typer.Option("--jsonl", help="Print only JSON, one document a line.")]


def complain(message: str) -> None:
    """A line on standard error."""
    sys.stderr.write(f"understudy: {clean(message)}\n")
    sys.stderr.flush()


def note(message: str) -> None:
    """A line on standard error that is no error."""
    sys.stderr.write(clean(message) + "\n")
    sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    field: str
    style: str = ""
    wide: bool = False
    """It takes the room that is left, and is cut first."""
    optional: bool = False
    """A terminal has it only where a row has something in it. In a pipe each column has a place."""


class Output:
    """Prints what one command has found."""

    def __init__(self, *, json: bool = False, jsonl: bool = False) -> None:
        if json and jsonl:
            raise typer.BadParameter("use --json or --jsonl, not both")
        self.is_json = json
        self.is_jsonl = jsonl

    @cached_property
    def console(self) -> Console:
        """Where people read, in colours if it is a terminal."""
        from rich.console import Console

        class BrokenConsole(Console):
            """Leaves a broken pipe to the command; else it would end the process as failed."""

            def on_broken_pipe(self) -> None:
                raise BrokenPipeError

        return BrokenConsole(highlight=False, soft_wrap=False, emoji=False, markup=False)

    @property
    def _is_plain(self) -> bool:
        """Whether what is written has neither colours nor a width."""
        forced = any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
        return "console" not in self.__dict__ and not sys.stdout.isatty() and not forced

    @property
    def is_data(self) -> bool:
        """Whether it is read by a program."""
        return self.is_json or self.is_jsonl

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads it in a terminal."""
        return not self.is_data and not self._is_plain and self.console.is_terminal

    def write(self, text: str) -> None:
        """A line of data."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def document(self, data: Any) -> None:
        """One JSON document."""
        self.write(as_json(data, indent=2 if self.is_json and sys.stdout.isatty() else None))

    def say(self, text: str, style: str = "") -> None:
        """A line for people, not cut."""
        if self._is_plain:
            self.write(clean(text))
            return
        from rich.text import Text

        self.console.print(Text(clean(text), style=style), soft_wrap=True)

    def rows(
        self,
        name: str,
        rows: Iterable[Mapping[str, Any]],
        columns: Sequence[Column],
        *,
        shown: Iterable[Mapping[str, Any]] | None = None,
        more: Mapping[str, Any] | None = None,
        empty: str = "",
    ) -> None:
        """A list: a document, a document a row, a table in a terminal, or tabs between fields.

        Args:
            name: of the list in the document.
            rows: as a program gets them.
            columns: of the table.
            shown: as people get them, by the fields of the columns; `rows` by default.
            more: what else is in the document.
            empty: said on standard error where there is no row.

        """
        found = list(rows)
        if self.is_json:
            self.document({name: found, **(more or {})})
            return
        if self.is_jsonl:
            for row in found:
                self.document(row)
            return
        told = found if shown is None else list(shown)
        if not told and empty:
            note(empty)
        elif self.is_terminal:
            filled = [c for c in columns if not c.optional or any(row[c.field] for row in told)]
            self._print_table(told, filled)
        else:
            for row in told:
                self.write("\t".join(_field(row, column) for column in columns))

    def _print_table(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
        """A table; where the terminal is too narrow for it, a paragraph for each row.

        No field but a wide one is cut: ids are copied from it.
        """
        from rich.cells import cell_len, set_cell_size
        from rich.text import Text

        cells = [[_field(row, column) for column in columns] for row in rows]
        widths = [
            max([cell_len(column.title), *(cell_len(row[at]) for row in cells)])
            for at, column in enumerate(columns)
        ]
        fixed = sum(w + 2 for w, column in zip(widths, columns, strict=True) if not column.wide)
        room = self.console.width - fixed
        if room < (LEAST if any(column.wide for column in columns) else -2):
            self._print_paragraphs(cells, columns)
            return
        shown = [min(w, room) if c.wide else w for w, c in zip(widths, columns, strict=True)]
        titles = Text()
        for column, width in zip(columns, shown, strict=True):
            titles.append(set_cell_size(column.title, width) + "  ", "bold")
        self._line(titles)
        for row in cells:
            told = Text()
            for cell, column, width in zip(row, columns, shown, strict=True):
                cut = cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"
                told.append(set_cell_size(cut, width) + "  ", column.style)
            self._line(told)

    def _line(self, text: Text) -> None:
        text.rstrip()
        self.console.print(text, soft_wrap=True)

    def _print_paragraphs(self, cells: list[list[str]], columns: Sequence[Column]) -> None:
        from rich.text import Text

        for row in cells:
            self.console.print(Text(row[0], style="bold"))
            for cell, column in zip(row[1:], columns[1:], strict=True):
                if cell != "-":
                    self.console.print(Text(f"  {column.title.lower()}: {cell}", column.style))


def _field(row: Mapping[str, Any], column: Column) -> str:
    value = row.get(column.field)
    return "-" if value is None or value == "" else line(value)
