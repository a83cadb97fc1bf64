"""What may be imported is what `__all__` says, and it says all of it."""

import ast
import importlib
import inspect
import types
from typing import TypeVar

import pytest

import understudy
from tests.support.public_names import MODULES, PACKAGES

INTERNAL = {
    "understudy.mcp.agents_server": {"INSTRUCTIONS", "MOST", "TOOLS"},
    "understudy.history": {"HistoryReader", "check_page"},
    "understudy.interrupts": {
        "DECISION_TYPES",
        "DOUBT_ENDS",
        "approved_at",
        "checked_allowed",
        "decision_by_votes",
        "checked_decision",
        "decision_from_outside",
        "decision_on_only",
        "decisions_by_id",
        "checked_expect",
    },
}
"""What public modules define for the rest of the library alone."""


def defined_in(module: types.ModuleType) -> set[str]:
    """The public names that a module, or a room of its own, binds; other imports live elsewhere."""
    names: set[str] = set()
    for statement in ast.parse(inspect.getsource(module)).body:
        match statement:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.ImportFrom(module=str(source), names=imported):
                if source.startswith(f"{module.__name__}."):
                    names |= {alias.name for alias in imported}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_exports_all_of_its_public_names_and_no_other(package: str) -> None:
    module = importlib.import_module(package)
    public = {
        name
        for name in dir(module)  # also what is loaded when it is asked for
        if not name.startswith("_") and not isinstance(getattr(module, name), types.ModuleType)
    }
    assert set(module.__all__) == public


@pytest.mark.parametrize("name", MODULES)
def test_a_public_module_exports_what_it_defines_itself_and_nothing_else(name: str) -> None:
    module = importlib.import_module(name)
    type_variables = {name for name, value in vars(module).items() if isinstance(value, TypeVar)}
    defined = defined_in(module) - type_variables
    assert set(module.__all__) == defined - INTERNAL.get(name, set())
    assert INTERNAL.get(name, set()) <= defined


@pytest.mark.parametrize("name", [*PACKAGES, *MODULES])
def test_what_is_exported_is_there_sorted_and_named_once(name: str) -> None:
    module = importlib.import_module(name)
    exported = module.__all__
    assert exported == sorted(set(exported))
    assert [missing for missing in exported if not hasattr(module, missing)] == []


def test_a_star_import_brings_exactly_what_is_exported() -> None:
    namespace: dict[str, object] = {}
    exec("from understudy import *", namespace)
    del namespace["__builtins__"]
    assert sorted(namespace) == understudy.__all__
