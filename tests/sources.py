"""Parsed source files for the architecture tests. Each module is parsed once for all tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Half of all nodes. They have neither texts nor statements in them.
WITHOUT_TEXT = (ast.Name, ast.expr_context, ast.operator, ast.cmpop)


class Contents(NamedTuple):
    """
    The parts of a source file that architecture tests check. `members` are the names imported from modules.
    """

    modules: list[str]
    members: list[str]
    texts: list[str]
    inner_texts: list[str]  # texts within the bodies of functions
    classes: list[str]  # only the classes at the top level
    statements: int  # without docstrings
    idle_lines: set[int]  # of docstrings, and of dots instead of a body


@cache
def contents(path: Path) -> Contents:
    """
    Parse a file once per process. The tree is not cached, because all trees together have a million objects.
    """
    tree = ast.parse(path.read_text())
    modules: list[str] = []
    members: list[str] = []
    texts: list[str] = []
    inner_texts: list[str] = []
    statements: list[ast.stmt] = []
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, is_inner = waiting.pop()
        if isinstance(node, ast.stmt):
            statements.append(node)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                texts.append(node.value)
                if is_inner:
                    inner_texts.append(node.value)
        elif isinstance(node, ast.Import):
            modules.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.append(node.module)
            members.extend(f"{node.module}.{alias.name}" for alias in node.names)
        else:
            is_function = isinstance(node, FUNCTIONS)
            for field in node._fields:
                value = getattr(node, field)
                for each in value if isinstance(value, list) else (value,):
                    if isinstance(each, ast.AST) and not isinstance(each, WITHOUT_TEXT):
                        waiting.append((each, is_inner or (is_function and isinstance(each, ast.stmt))))
    idle = [
        node for node in statements if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    return Contents(
        modules,
        members,
        texts,
        inner_texts,
        classes=[node.name for node in tree.body if isinstance(node, ast.ClassDef)],
        statements=sum(not is_text(node) for node in statements),
        idle_lines={line for node in idle for line in range(node.lineno, (node.end_lineno or 0) + 1)},
    )


def is_text(node: ast.AST) -> bool:
    """Return whether a statement is a docstring or another string alone."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
