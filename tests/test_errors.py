"""Errors are known by one name, wherever they are defined."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

from tests.support.sources import parsed
from understudy import errors
from understudy.errors import RequestChanged

PICKLED = (
    b"cunderstudy.errors\n_rebuild\np0\n(cunderstudy.errors\nRequestChanged\np1\nVnot as shown\n"
    b"p2\n(dp3\nVrequest_id\np4\nVq1\np5\nstp6\nRp7\n."
)
"""As it was pickled when all of them were in one module."""


def test_an_error_has_the_name_under_which_it_is_imported() -> None:
    for name in errors.__all__:
        found = getattr(errors, name)
        assert (found.__module__, found.__qualname__) == ("understudy.errors", name)


def test_an_error_that_was_pickled_before_is_read_and_is_pickled_so_again() -> None:
    error = pickle.loads(PICKLED)
    assert type(error) is RequestChanged
    assert (error.message, error.request_id) == ("not as shown", "q1")
    assert pickle.dumps(error, protocol=0) == PICKLED


def test_an_end_of_a_runtime_or_a_cluster_has_an_error_of_its_own() -> None:
    """A8: `RuntimeStopped`, by which a caller tells it from the death of an actor."""
    root = Path(errors.__file__).parent.parent
    plain = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in root.rglob("*.py")
        if "loop_actors" not in path.parts and "ActorDeadError" in path.read_text(encoding="utf-8")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and "ActorDeadError" in ast.unparse(node.func)
    ]
    assert plain == []
