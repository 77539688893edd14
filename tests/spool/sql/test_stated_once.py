"""A statement that is the same on both engines is in `spool/sql`, once."""

from __future__ import annotations

import ast
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

PACKAGES = ("spool.sqlite", "spool.postgres", "spool.sql")
_STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|LOCK|CREATE|ALTER|DROP)\b")
_CAST = re.compile(r"CAST\((\?) AS [\w\[\]]+\)|(\?)::\w+(?:\[\])?")
_PLACEHOLDER = re.compile(r"%\(\w+\)s|%s|\?\d*|(?<![:\w]):[a-z]\w*")


def test_both_engines_state_no_statement_twice() -> None:
    """If two of the packages have the same statement, both places are named."""
    places = defaultdict[str, dict[str, str]](dict)
    for package in PACKAGES:
        for place, statement in _statements(package):
            places[_unified(statement)].setdefault(package, place)
    assert all(any(package in named for named in places.values()) for package in PACKAGES)
    stated_twice = [" is ".join(named.values()) for named in places.values() if len(named) > 1]
    assert not stated_twice, "\n".join(stated_twice)


def test_statements_are_compared_without_the_ways_of_an_engine() -> None:
    """Placeholders, their types, schema and white space do not make two statements different."""
    forms = (
        "SELECT value FROM facts WHERE name = ?1",
        "SELECT value FROM facts\n WHERE name = ?",
        "SELECT value FROM {schema}.facts WHERE name = :name",
        "SELECT value FROM {schema}.facts WHERE name = CAST(:name AS text)",
        "SELECT value FROM {schema}.facts WHERE name = %s",
        "SELECT value FROM {schema}.facts WHERE name = %(name)s::text",
    )
    assert {"select value from facts where name = ?"} == set(map(_unified, forms))
    assert _unified("SELECT a::text FROM b") != _unified("SELECT a FROM b")


def _statements(package: str) -> Iterator[tuple[str, str]]:
    """Yield each statement of a package with its place."""
    path = import_module(package).__path__
    for found in pkgutil.walk_packages(path, f"{package}."):
        module = import_module(found.name)
        for place, text in _texts(module):
            if _STATEMENT.match(text):
                yield f"{module.__name__}:{place}", text


def _texts(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the texts of a module: its constants, by name, and every text as it is written, by line."""
    for part in ast.parse(Path(module.__file__ or "").read_text("utf-8")).body:
        for name in _assigned(part):
            value = getattr(module, name)
            texts = value if isinstance(value, tuple) else (value,)
            yield from ((name, text) for text in texts if isinstance(text, str))
        yield from _written(part)


def _assigned(part: ast.stmt) -> list[str]:
    targets = part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _written(part: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(part):
        if isinstance(node, ast.JoinedStr):
            yield str(node.lineno), "".join(map(_piece, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield str(node.lineno), node.value
        else:
            yield from _written(node)


def _piece(node: ast.expr) -> str:
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    return str(ast.literal_eval(node))


def _unified(statement: str) -> str:
    plain = statement.replace("{schema}.", "").replace("%%", "%")
    unified = _CAST.sub(r"\1\2", _PLACEHOLDER.sub("?", plain))
    return " ".join(unified.split()).casefold()
