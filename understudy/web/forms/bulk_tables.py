"""Tables of requests: common values, differing values, and values that stand out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from statistics import median
from typing import Any, NamedTuple

from understudy._base.json_values import digest

FEWEST = 8
"""The minimum number of rows in which a value can stand out."""
USUAL = 0.8
"""The share of rows with one value from which on a different value stands out."""
FAR = 5
"""The distance from the median at which a number stands out, in multiples of the usual distance."""


class Table(NamedTuple):
    """The requests about one tool."""

    tool: str
    agents: int
    """The number of agents that ask."""
    same: dict[str, Any]
    """The values that all requests have, by name."""
    columns: list[str]
    """The names of the values that differ."""
    rows: list[dict[str, Any]]
    """The rows, each with its `cells` by name, and with `odd`, the names of cells that stand
    out."""
    sums: dict[str, Decimal]
    """The sums of the columns that hold only numbers."""


def tables_of(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """A table for each tool, the largest first.

    Args:
        rows: the rows, each with the `request` as plain data, as its reader may see it.

    """
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        request = row["request"]
        found.setdefault(str(request["tool_name"] or request["source"]), []).append(row)
    tables = [_table(tool, each) for tool, each in found.items()]
    return sorted(tables, key=lambda table: -len(table.rows))


def _table(tool: str, rows: list[dict[str, Any]]) -> Table:
    cells = [_cells(row["request"]) for row in rows]
    names = list(dict.fromkeys(name for each in cells for name in each))
    is_same = {name: _is_same([each.get(name, _NONE) for each in cells]) for name in names}
    columns = [name for name in names if not is_same[name]]
    sums: dict[str, Decimal] = {}
    odd: list[set[str]] = [set() for _ in rows]
    for name in columns:
        values = [each.get(name, _NONE) for each in cells]
        numbers = [_number(value) for value in values]
        known = [number for number in numbers if number is not None]
        if len(known) == len(values):
            sums[name] = sum(known, Decimal(0))
        for at in _odd_places(values, known if len(known) == len(values) else None):
            odd[at].add(name)
    return Table(
        tool=tool,
        agents=len({row["agent_id"] for row in rows}),
        same={name: cells[0][name] for name in names if is_same[name] and len(rows) > 1},
        columns=columns if len(rows) > 1 else names,
        rows=[
            {**row, "cells": each, "odd": odd[at] | _odd_of(row["request"])}
            for at, (row, each) in enumerate(zip(rows, cells, strict=True))
        ],
        sums=sums if len(rows) > 1 else {},
    )


_NONE = object()
BEFORE = "(before)"
"""The name of a cell that stands out: the call was made, or the request asked, before."""


def _odd_of(request: Mapping[str, Any]) -> set[str]:
    return {BEFORE} if request["earlier"] or request["asked_again"] else set()


def _cells(request: Mapping[str, Any]) -> dict[str, Any]:
    """The values to decide on, by name: the arguments, or one value if they are hidden."""
    arguments = request["arguments"]
    cells = dict(arguments) if isinstance(arguments, Mapping) else {"arguments": arguments}
    if request["display"] is not None:
        cells["(display)"] = request["display"]
    if request["payload"] is not None:
        cells["(payload)"] = request["payload"]
    return cells


def _is_same(values: Sequence[Any]) -> bool:
    return _NONE not in values and len({digest(value) for value in values}) == 1


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    number = Decimal(str(value))
    return number if number.is_finite() else None


def _odd_places(values: Sequence[Any], numbers: Sequence[Decimal] | None) -> list[int]:
    """The indices of the values that stand out in their column."""
    if len(values) < FEWEST:
        return []
    if numbers is not None:
        middle = median(numbers)
        distances = [abs(number - middle) for number in numbers]
        usual = median(distances)
        if usual:
            return [at for at, distance in enumerate(distances) if distance > FAR * usual]
    keys = ["" if value is _NONE else digest(value) for value in values]
    [(most, count)] = Counter(keys).most_common(1)
    if count < USUAL * len(values):
        return []
    return [at for at, key in enumerate(keys) if key != most]
