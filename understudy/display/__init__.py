"""What happened to an agent as rows for a chat screen: a fold of its records.

A screen keeps the rows by their ids, sorts them by their positions, and takes each update as it
comes: `ref.display()` brings the rows until now, `ref.display_events()` those that change.
"""

from understudy.display.fold import Display
from understudy.display.rows import DisplayUpdate, Row, RowKind

__all__ = ["Display", "DisplayUpdate", "Row", "RowKind"]
