"""What the rules of the code are about: each module of the packages is parsed once for all of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Contents(NamedTuple):
    """What a file has that the rules of the architecture are about; `members` are what it takes out of modules."""

    modules: list[str]
    members: list[str]
    texts: list[str]
    inner_texts: list[str]  # of them, those in the bodies of functions
    classes: list[str]  # at the top


@cache
def contents(path: Path) -> Contents:
    """
    Parse a file, at most once in a process. The tree is not kept, because all trees together are a million objects.
    """
    tree = ast.parse(path.read_text())
    found = Contents([], [], [], [], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.modules.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.modules.append(node.module)
            found.members.extend(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.texts.append(node.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (each for statement in node.body for each in ast.walk(statement))
            found.inner_texts.extend(
                each.value for each in inner if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )
    found.classes.extend(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return found
