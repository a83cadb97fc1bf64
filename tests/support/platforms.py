"""What Python's standard library has on each platform, and what code uses of it there.

It is read from the stubs that come with mypy, which say by `sys.platform` what exists where.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

__all__ = ["PLATFORMS", "names_in", "uses_of_what_is_missing"]

PLATFORMS = ("win32", "darwin", "linux")


def names_in(module: str, platform: str) -> frozenset[str]:
    """What a module of the standard library has on a platform; nothing, if it is not there."""
    return _names(_stubs(), module, platform)


def uses_of_what_is_missing(source: str, platform: str) -> list[str]:
    """The lines, with the names, that use what exists on Linux and not on this platform.

    What `if sys.platform ...`, `if hasattr(module, "name")` or a `raise` or `return` under one of
    these keeps from being executed on the platform counts as guarded.
    """
    tree = _tree(source)
    modules = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    found = []
    for node in _executed(tree.body, platform, modules):
        for module, name in _used(node, modules):
            missing = names_in(module, "linux") - names_in(module, platform)
            if name in missing or (not name and missing and not names_in(module, platform)):
                found.append(f"{node.lineno}: {module}{'.' if name else ''}{name}")
    return found


def _used(node: ast.AST, modules: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Import(names=names):
            yield from ((alias.name, "") for alias in names)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            yield module, ""
            yield from ((module, alias.name) for alias in names)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in modules:
            yield modules[name], attribute


def _executed(
    statements: Sequence[ast.stmt], platform: str, modules: Mapping[str, str]
) -> Iterator[ast.expr | ast.stmt]:
    """All nodes below these statements that may be executed on the platform."""
    for statement in statements:
        yield from _below(statement, platform, modules)
        if isinstance(statement, ast.If):
            holds = _holds(statement.test, platform, modules)
            taken = {True: statement.body, False: statement.orelse, None: []}[holds]
            if any(isinstance(last, (ast.Raise, ast.Return)) for last in taken):
                return


def _below(
    node: ast.AST, platform: str, modules: Mapping[str, str]
) -> Iterator[ast.expr | ast.stmt]:
    if isinstance(node, (ast.expr, ast.stmt)):
        yield node
    if isinstance(node, (ast.If, ast.IfExp)):
        yield from _below(node.test, platform, modules)
        holds = _holds(node.test, platform, modules)
        for branch, taken in ((node.body, True), (node.orelse, False)):
            if holds in (taken, None):
                if isinstance(branch, list):
                    yield from _executed(branch, platform, modules)
                else:
                    yield from _below(branch, platform, modules)
        return
    for _, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield from _executed(value, platform, modules)
        else:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _below(child, platform, modules)


def _holds(test: ast.expr, platform: str, modules: Mapping[str, str] | None = None) -> bool | None:
    """Whether a condition holds on the platform; None if it depends on something else."""
    match test:
        case ast.Compare(
            left=ast.Attribute(value=ast.Name(id="sys"), attr="platform"),
            ops=[operator],
            comparators=[ast.Constant(value=other)],
        ):
            return (platform == other) is isinstance(operator, ast.Eq)
        case ast.Compare(
            left=ast.Attribute(value=ast.Name(id="sys"), attr="version_info"),
            ops=[operator],
            comparators=[ast.Tuple() as version],
        ):
            newer = sys.version_info >= ast.literal_eval(version)
            return newer is isinstance(operator, ast.GtE)
        case ast.Call(
            func=ast.Name(id="hasattr"), args=[ast.Name(id=name), ast.Constant(value=str(wanted))]
        ) if modules is not None and name in modules:
            return wanted in names_in(modules[name], platform)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            held = _holds(operand, platform, modules)
            return None if held is None else not held
        case ast.BoolOp(op=operator, values=values):
            each = [_holds(value, platform, modules) for value in values]
            decides = isinstance(operator, ast.Or)
            return decides if decides in each else None if None in each else not decides
    return None


@cache
def _stubs() -> Path:
    spec = importlib.util.find_spec("mypy")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], "typeshed", "stdlib")


@cache
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def _names(stubs: Path, module: str, platform: str) -> frozenset[str]:
    path = stubs.joinpath(*module.split("."))
    for file in (path.with_suffix(".pyi"), path / "__init__.pyi"):
        if file.exists():
            tree = ast.parse(file.read_text(encoding="utf-8"))
            return frozenset(_defined(tree.body, platform))
    return frozenset()


def _defined(statements: Sequence[ast.stmt], platform: str) -> Iterator[str]:
    for statement in statements:
        match statement:
            case ast.If(test=test, body=body, orelse=orelse):
                holds = _holds(test, platform)
                yield from _defined(body if holds is not False else [], platform)
                yield from _defined(orelse if holds is not True else [], platform)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname for alias in names if alias.asname)  # a stub exports these
