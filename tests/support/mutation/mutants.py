"""The mutants of a module: each is its text with one place changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Mutant", "mutants_of"]

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_STATEMENTS = (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Delete, ast.Break, ast.Continue)
_NO_GUARANTEE = ("logger.", "_log.", "warnings.")
"""What these calls do is for people to read."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one place changed."""

    path: Path
    line: int
    before: str
    after: str
    text: str
    """Of the whole module."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {_in_one_line(self.before)} -> {self.after}"


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """All mutants of the module at this path below `root`, in the order of its text."""
    text = (root / path).read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()
    found = []
    for node, after in _changes(ast.parse(text)):
        begin = starts[node.lineno - 1] + node.col_offset  # columns count bytes
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        before = data[begin:end].decode()
        changed = (data[:begin] + after.encode() + data[end:]).decode()
        found.append(Mutant(path, node.lineno, before, after, changed))
    return found


Place = ast.expr | ast.stmt


def _changes(tree: ast.AST) -> Iterator[tuple[Place, str]]:
    """Each place that is changed, and the text that takes its place."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef(name="__repr__" | "__str__") | ast.Assert():
                continue  # for people to read; and what an assert says always holds
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.ClassDef(bases=[*bases]) if any("Protocol" in ast.unparse(b) for b in bases):
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for statement in node.body:
                    yield from _changes_within(statement)
            case _:
                yield from _changes(node)


def _changes_within(node: ast.AST) -> Iterator[tuple[Place, str]]:
    match node:
        case ast.Assert() | ast.Expr(value=ast.Constant()):
            return
        case ast.Expr() if ast.unparse(node).startswith(_NO_GUARANTEE):
            return
        case ast.Assign(targets=[ast.Name()]):
            pass  # without it every later use fails
        case ast.stmt() if isinstance(node, _STATEMENTS):
            yield node, "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield node, "return None"
        case ast.If(test=test):
            yield test, "True"
            yield test, "False"
        case ast.With(items=[ast.withitem(context_expr=context, optional_vars=None)]):
            yield context, "__import__('contextlib').nullcontext()"
    yield from _changes_of_expression(node)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr_context) and not _is_annotation(node, child):
            yield from _changes_within(child)


def _changes_of_expression(node: ast.AST) -> Iterator[tuple[Place, str]]:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _OPPOSITE:
            changed = deepcopy(node)
            changed.ops = [_OPPOSITE[type(op)]()]
            yield node, f"({ast.unparse(changed)})"
        case ast.BoolOp(op=op, values=values):
            other = ast.And() if isinstance(op, ast.Or) else ast.Or()
            yield node, f"({ast.unparse(ast.BoolOp(other, values))})"
            for left_out in values:
                rest = [value for value in values if value is not left_out]
                yield node, f"({ast.unparse(ast.BoolOp(op, rest) if rest[1:] else rest[0])})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=ast.Constant(value=int())):
            yield node, f"({ast.unparse(left)})"
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.IfExp(body=body, orelse=orelse):
            yield node, f"({ast.unparse(body)})"
            yield node, f"({ast.unparse(orelse)})"


def _is_annotation(node: ast.AST, child: ast.AST) -> bool:
    return child in (getattr(node, "annotation", None), getattr(node, "returns", None))


def _in_one_line(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) < 100 else f"{joined[:97]}..."
