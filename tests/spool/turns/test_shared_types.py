"""Threads that use a type for the first time at once must not crash the process."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from spool.registry import documents
from spool.registry.documents import DocumentCollection
from tests.documents import ROOT
from tests.spool.registry.kept_documents import kinds

# The script uses types like those of documents, each from four threads at once.
SCRIPT = """
import dataclasses, sys, threading, msgspec
from spool.turns.threads import prepare_types_for_msgspec

sys.setswitchinterval(1e-6)
for number in range(200):
    part = dataclasses.make_dataclass("Part", [("x", int), ("y", tuple[str, ...], ())], frozen=True)
    row = dataclasses.make_dataclass(
        "Row", [("a", int), ("b", dict[str, str]), ("c", tuple[part, ...]), ("d", dict[str, part])], frozen=True
    )
    prepare_types_for_msgspec(row)
    together = threading.Barrier(4)

    def use() -> None:
        together.wait()
        msgspec.convert({"a": 1, "b": {"x": "y"}, "c": [{"x": 1}], "d": {"k": {"x": 3}}}, row)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
"""


def test_a_prepared_type_is_used_by_several_threads_at_once() -> None:
    """Without `prepare_types_for_msgspec` this process nearly always ends with a segmentation fault."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=False)
    assert done.returncode == 0
    assert done.stderr == b""


@pytest.mark.parametrize(
    "kind", list({each.name: each for each in kinds()}.values()), ids=lambda kind: kind.name
)
def test_every_kind_of_documents_is_prepared(
    kind: DocumentCollection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Every kind of documents is prepared before use, because the connection's thread reads documents while the
    event loop reads others.
    """
    prepared: list[Any] = []
    monkeypatch.setattr(documents, "prepare_types_for_msgspec", prepared.append)
    assert replace(kind) == kind
    assert prepared == [kind.row]


def test_every_type_that_a_table_of_the_registry_decodes_is_prepared() -> None:
    for path in sorted((ROOT / "spool/registry/tables").glob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        decoded, ready = set[str](), set[str]()
        for call in calls:
            match ast.unparse(call.func):
                case "msgspec.convert":
                    decoded.add(ast.unparse(call.args[1]))
                case "msgspec.json.decode" | "msgspec.msgpack.decode":
                    decoded |= {ast.unparse(word.value) for word in call.keywords if word.arg == "type"}
                case "prepare_types_for_msgspec":
                    ready |= {ast.unparse(each) for each in call.args}
        # the others are parameters, whose types the same module prepares
        assert {name for name in decoded if name[0].isupper()} <= ready, path.name
