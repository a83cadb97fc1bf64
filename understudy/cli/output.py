"""The output of commands: data on standard output, everything else on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.text import as_json, clean, line

if TYPE_CHECKING:  # output into a pipe needs none of it
    from rich.console import Console
    from rich.text import Text

LEAST = 16
"""The minimum characters of a wide column."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print only one JSON document.")]
JsonlOption = Annotated[bool, typer.Option("--jsonl", help="Print only JSON, one document a line.")]


def complain(message: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(f"understudy: {clean(message)}\n")
    sys.stderr.flush()


def note(message: str) -> None:
    """Print a line on standard error that is no error."""
    sys.stderr.write(clean(message) + "\n")
    sys.stderr.flush()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    field: str
    style: str = ""
    wide: bool = False
    """Whether it takes the remaining room, and is cut first."""
    optional: bool = False
    """Whether a terminal shows it only if a row has a value in it. In a pipe each column has a
    place."""


class Output:
    """Prints the results of one command."""

    def __init__(self, *, json: bool = False, jsonl: bool = False) -> None:
        if json and jsonl:
            raise typer.BadParameter("use --json or --jsonl, not both")
        self.is_json = json
        self.is_jsonl = jsonl

    @cached_property
    def console(self) -> Console:
        """The console for people, in colours if it is a terminal."""
        from rich.console import Console

        class BrokenConsole(Console):
            """A console that leaves a broken pipe to the command; otherwise it would end the
            process as failed.
            """

            def on_broken_pipe(self) -> None:
                raise BrokenPipeError

        return BrokenConsole(highlight=False, soft_wrap=False, emoji=False, markup=False)

    @property
    def _is_plain(self) -> bool:
        """Whether the output has neither colours nor a width."""
        forced = any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
        return "console" not in self.__dict__ and not sys.stdout.isatty() and not forced

    @property
    def is_data(self) -> bool:
        """Whether a program reads the output."""
        return self.is_json or self.is_jsonl

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads the output in a terminal."""
        return not self.is_data and not self._is_plain and self.console.is_terminal

    def write(self, text: str) -> None:
        """Print a line of data."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def document(self, data: Any) -> None:
        """Print one JSON document."""
        self.write(as_json(data, indent=2 if self.is_json and sys.stdout.isatty() else None))

    def say(self, text: str, style: str = "") -> None:
        """Print a line for people, not cut."""
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
        """Print a list: a document, a document per row, a table in a terminal, or tabs between
        fields.

        Args:
            name: the name of the list in the document.
            rows: the rows for a program.
            columns: the columns of the table.
            shown: the rows for people, by the fields of the columns; `rows` by default.
            more: further data of the document.
            empty: the text on standard error if there is no row.

        """
        found = list(rows)
        if self.is_json:
            self.document({name: found, **(more or {})})
            return
        if self.is_jsonl:
            for row in found:
                self.document(row)
            return
        printed = found if shown is None else list(shown)
        if not printed and empty:
            note(empty)
        elif self.is_terminal:
            filled = [c for c in columns if not c.optional or any(row[c.field] for row in printed)]
            self._print_table(printed, filled)
        else:
            for row in printed:
                self.write("\t".join(_field(row, column) for column in columns))

    def _print_table(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
        """Print a table; if the terminal is too narrow, a paragraph for each row.

        Only a wide field is cut, because ids are copied from the other fields.
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
            text = Text()
            for cell, column, width in zip(row, columns, shown, strict=True):
                cut = cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"
                text.append(set_cell_size(cut, width) + "  ", column.style)
            self._line(text)

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
