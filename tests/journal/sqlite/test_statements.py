"""What SQLite is asked, as a Python that reads statements more strictly sees it."""

from __future__ import annotations

import re
import sqlite3
import warnings
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import FakeClock
from understudy import Agent, Runtime, ScriptedModel, Status, approve, call, tool

NAMED = re.compile(r"(?<![\w?])(\?\d+|[:@$][A-Za-z_]\w*)")


class StrictConnection(sqlite3.Connection):
    """Warns as Python 3.12.0 to 3.12.3, where a numbered value is a name and needs a mapping."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        _check(sql, parameters)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        rows = list(parameters)
        for row in rows:
            _check(sql, row)
        return super().executemany(sql, rows)


def _check(sql: str, parameters: object) -> None:
    text = re.sub(r"'[^']*'", "", sql)
    found = NAMED.search(text)
    if found is not None and not isinstance(parameters, Mapping):
        warnings.warn(f"{found[0]} is a name, in {sql}", DeprecationWarning, stacklevel=3)


@tool(key=lambda arguments: f"refund:{arguments['order_id']}")
def refund(order_id: str) -> str:
    """Refund an order."""
    return f"refunded {order_id}"


def test_no_statement_warns_in_a_python_that_takes_numbered_values_for_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=StrictConnection))
    clock = FakeClock()
    model = ScriptedModel([call("refund", {"order_id": "17"}), "Done.", "Again.", "Once more."])
    desk = Agent(
        "desk",
        model,
        tools=[refund],
        interrupt_on={"refund": {"remind_after": 60, "expires_after": 3600}},
    )
    url = f"sqlite:///{tmp_path}/desk.db"
    with Runtime([desk], store=url, feed=True, clock=clock) as runtime:
        ref = runtime.spawn("desk", "d1", values={"customer": "Ada"})
        asked = ref.run("Refund order 17.").get(timeout=60)
        (pending,) = runtime.pending().get(timeout=60)
        assert runtime.count().get(timeout=60)[Status.INTERRUPTED] == 1
        ref.resume({pending.request.id: approve(by="ada")}).get(timeout=60)
        ref.send("Later.", at=clock.now() + timedelta(hours=1)).get(timeout=60)
        ref.compact().get(timeout=60)
        ref.run("And now?").get(timeout=60)
        exported = runtime.export("d1").get(timeout=60)
        runtime.delete("d1").get(timeout=60)
        runtime.import_(exported).get(timeout=60)
        assert asked.run_id
    with Runtime([desk], store=url, clock=clock) as runtime:
        assert runtime.get("d1").state().get(timeout=60).messages


def test_the_strict_connection_finds_a_numbered_value() -> None:
    connection = sqlite3.connect(":memory:", factory=StrictConnection)
    try:
        with pytest.raises(DeprecationWarning, match=r"\?1 is a name"):
            connection.execute("SELECT ?1", (1,))
        assert connection.execute("SELECT :one", {"one": 1}).fetchone() == (1,)
    finally:
        connection.close()
