from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from tests import mutants
from tests.mutants import FOLDER, SURVIVED, TEST, Clone, judge, mutants_of

MODULE = '''"""A module."""

LIMIT = 7


def small(number: int = 1) -> bool:
    """Return whether a number is small."""
    return number < 3 and not number == 0


def unused(text: str) -> str:
    found = "é" + text
    return f"{found + '1'}"


class Other:
    def sum(self) -> int:
        @staticmethod
        def two() -> int:
            return 2

        return two() + two()
'''
HERE = """
from gateway.some import small

def test_one():
    assert [False, True, False] == [small(0), small(2), small(3)]
"""
THERE = "from gateway.some import Other\n\n\ndef test_other():\n    assert 4 == Other().sum()\n"


def test_each_kind_of_place_is_changed_in_functions_only() -> None:
    found = list(mutants_of("gateway/some.py", MODULE))
    assert {
        "number < 3 and not number == 0 -> (None)",
        "number < 3 and not number == 0 -> (number < 3 or not number == 0)",
        "number < 3 -> (number <= 3)",
        "not number == 0 -> (number == 0)",
        "number == 0 -> (number != 0)",
        "3 -> (4)",
        "0 -> (1)",
        "\"é\" + text -> ('é' - text)",
        "f\"{found + '1'}\" -> (None)",
        "2 -> (None)",
        "2 -> (3)",
        "two() + two() -> (None)",
        "two() + two() -> (two() - two())",
    } == {f"{one.before} -> {one.after}" for one in found}
    for one in found:
        ast.parse(one.change(MODULE.encode()))


@pytest.mark.proof
def test_a_mutant_dies_in_its_folder_elsewhere_or_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that mirrors the module comes first, then other files that execute the function."""
    source = tmp_path / "source"
    files = {
        "gateway/__init__.py": "",
        "gateway/some.py": MODULE,
        "tests/__init__.py": "",
        "tests/gateway/test_here.py": HERE,
        "tests/test_there.py": THERE,
        "tests/mutants.toml": "",
        "tests/executed.py": Path(mutants.__file__).with_name("executed.py").read_text(),
        ".gitignore": ".venv\n",
    }
    for name, text in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    own = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    for words in (["init", "-q"], ["add", "."], [*own, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=source, check=True)
    monkeypatch.setattr(mutants, "ROOT", source)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    chosen = {"number < 3": FOLDER, "two() + two()": TEST, '"é" + text': SURVIVED}
    drawn = [one for one in mutants_of("gateway/some.py", MODULE) if one.before in chosen]
    drawn = list({one.before: one for one in drawn}.values())
    assert chosen == {one.before: outcome for one, outcome in judge(Clone(tmp_path / "clone"), drawn)}
