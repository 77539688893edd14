"""Every promise in the documents names a test, and every test that proves a promise names one in the documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.promises import EVIDENCE, TABLES, Proof, evidence, kept_in, promises, proofs

GUARANTEES = "Guarantees"


def unproved(rows: list[str], found: list[Proof]) -> list[str]:
    return [row for row in rows if not any(row == proof.promise and not proof.is_long for proof in found)]


def test_every_promise_has_a_test_in_the_short_run() -> None:
    """A row of a table of promises has a test that is marked `proves` and not `proof`."""
    assert [] == unproved([*promises()], proofs())


def test_every_mark_names_a_promise() -> None:
    assert [] == [proof for proof in proofs() if proof.promise not in promises()]


def test_each_table_has_promises() -> None:
    headings = {heading for each in TABLES.values() for heading in each}
    assert headings == set(promises().values())


def test_the_evidence_names_the_tests_of_each_promise() -> None:
    """If this fails, run `make docs-reference`."""
    assert evidence() == EVIDENCE.read_text()


def test_the_code_of_each_guarantee_is_named() -> None:
    """ARCHITECTURE.md has the code of each guarantee, because `make proofs CHANGED=main` reads it there."""
    assert [*kept_in()] == [name for name, heading in promises().items() if heading == GUARANTEES]
    assert all(kept_in().values())


@pytest.mark.parametrize(
    ("text", "is_long"),
    [
        ("@pytest.mark.proves('a')\ndef test_one(): pass", False),
        ("@pytest.mark.proof\n@pytest.mark.proves('a')\nasync def test_one(): pass", True),
        ("pytestmark = [pytest.mark.proof]\n@pytest.mark.proves('a')\ndef test_one(): pass", True),
        ("pytestmark = pytest.mark.proof\n@pytest.mark.proves('a', 'b')\ndef test_one(): pass", True),
    ],
)
def test_a_proof_is_no_test_of_the_short_run(tmp_path: Path, text: str, is_long: bool) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_it.py").write_text(text)
    assert Proof("a", "tests/test_it.py::test_one", is_long) in proofs(tmp_path)
    assert ["a"] == unproved(["a"], proofs(tmp_path)) if is_long else [] == unproved(["a"], proofs(tmp_path))
