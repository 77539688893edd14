"""A product is added in one Python file, and the memory remembers its spans without a word about them."""

from __future__ import annotations

import json
import subprocess
import sys

from spool.packed.native import Native
from tests.packed.memory import new_product
from tests.packed.memory.new_product import LEARNED, SENT


def test_spans_of_a_product_that_is_added_are_remembered(native: Native) -> None:
    """In a process of its own, as lists are collected at its start: no difference, and nine in ten by the memory."""
    program = subprocess.run(
        [sys.executable, "-m", new_product.__name__], capture_output=True, text=True, timeout=300, check=False
    )
    assert 0 == program.returncode, program.stderr
    found = json.loads(program.stdout)
    remembered, by_rules = found.pop("remembered"), found.pop("by_rules")
    assert found == {
        "different": 0,
        "sources": ["madeup"],
        "calls": 3 * SENT,
        "drafts": SENT,
        "input_tokens": 3 * sum(100 + 3 * number for number in range(SENT)),
        "sessions": SENT,
    }
    assert 4 * (SENT - LEARNED) >= remembered > 9 * by_rules
