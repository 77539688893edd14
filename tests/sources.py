"""Parsed source files for the architecture tests. Each module is parsed once for all tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Contents(NamedTuple):
    """
    The parts of a source file that architecture tests check. `members` are the names imported from modules.
    """

    modules: list[str]
    members: list[str]
    texts: list[str]
    inner_texts: list[str]  # texts within the bodies of functions
    classes: list[str]  # only the classes at the top level


@cache
def contents(path: Path) -> Contents:
    """
    Parse a file once per process. The tree is not cached, because all trees together have a million objects.
    """
    tree = ast.parse(path.read_text())
    parts = Contents([], [], [], [], [])
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, is_inner = waiting.pop()
        if isinstance(node, ast.Import):
            parts.modules.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts.modules.append(node.module)
            parts.members.extend(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts.texts.append(node.value)
            if is_inner:
                parts.inner_texts.append(node.value)
        elif not isinstance(node, ast.Name | ast.Constant):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for each in ast.iter_child_nodes(node):
                waiting.append((each, is_inner or (is_function and isinstance(each, ast.stmt))))
    parts.classes.extend(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return parts
