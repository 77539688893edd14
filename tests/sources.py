"""What the rules of the code are about: each module of the packages is parsed once for all of them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.figures import Figures, figures_of


class Contents(NamedTuple):
    """What a file has that the rules of the architecture are about; `members` are what it takes out of modules."""

    modules: list[str]
    members: list[str]
    texts: list[str]
    classes: list[str]  # at the top


class Source(NamedTuple):
    """What is kept of a file. Its tree is not: those of all files are a million objects."""

    figures: Figures
    contents: Contents


@cache
def source(path: Path) -> Source:
    """Parse a file; at most once in a process."""
    text = path.read_text()
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    return Source(figures_of(path, text, nodes), _contents(tree, nodes))


def _contents(tree: ast.Module, nodes: Sequence[ast.AST]) -> Contents:
    found = Contents([], [], [], [])
    for node in nodes:
        if isinstance(node, ast.Import):
            found.modules.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.modules.append(node.module)
            found.members.extend(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.texts.append(node.value)
    found.classes.extend(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return found
