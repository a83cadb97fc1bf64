"""The rows of an agent's history for a chat screen: a fold of its records.

A screen keeps the rows by their ids, sorts them by their positions, and takes each update as it
comes: `ref.display()` brings the rows so far, `ref.display_events()` the changes.
"""

from understudy.display.fold import Display
from understudy.display.rows import DisplayUpdate, Row, RowKind

__all__ = ["Display", "DisplayUpdate", "Row", "RowKind"]
