"""A task that is cancelled must end."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("package", ["gateway", "exporters", "spool"])
def test_no_wait_can_lose_a_cancellation(package: str) -> None:
    """
    In Python 3.11 `asyncio.wait_for` loses a cancellation if the awaited result arrives at the same moment, so a
    server that stops would wait for ever. `asyncio.timeout` keeps it.
    """
    sources = {path: path.read_text("utf-8") for path in (ROOT / package).rglob("*.py")}
    assert sources
    assert [] == [
        str(path.relative_to(ROOT)) for path, text in sources.items() if "asyncio.wait_for(" in text
    ]
