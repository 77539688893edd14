"""A product added in one Python file is remembered, although the file does not mention the memory."""

from __future__ import annotations

import json
import subprocess
import sys

from spool.packed.native import NativeModule
from tests.packed.memory import new_product
from tests.packed.memory.new_product import LEARNED, SENT


def test_spans_of_a_product_that_is_added_are_remembered(native: NativeModule) -> None:
    """
    A separate process adds the new product to the lists that it reads. The memory then reads 90 % of the
    product's spans without a difference.
    """
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
