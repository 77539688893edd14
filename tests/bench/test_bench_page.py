"""The page of benchmarks is made from its lines, a worse ratio fails, and a busy machine is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench import page

pytestmark = pytest.mark.bench


def with_ratio(ratio: float) -> dict[str, Any]:
    one = {peer: {"cpu_us": 10.0} for peer in page.COMPARED}
    figures = {scenario: {**one, page.TOLLHOUSE: {"cpu_us": 10.0 * ratio}} for scenario in page.SCENARIOS}
    return {"figures": figures}


def test_the_page_is_what_its_lines_say() -> None:
    lines = page.read()
    assert page.PAGE.read_text() == page.page(lines)
    assert page.PLOT.read_text() == page.plot(lines)


def test_a_ratio_is_compared_with_the_median_of_five() -> None:
    lines = [with_ratio(each) for each in (9.0, 1.0, 1.0, 2.0, 3.0, 3.0)]
    assert [] == list(page.worse([with_ratio(5.0)]))
    assert [] == list(page.worse([*lines, with_ratio(2.19)]))
    assert 7 == len(page.worse([*lines, with_ratio(2.21)]))
    assert [] == list(page.worse([{"figures": {}}, with_ratio(2.21)]))


def test_a_busy_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = iter([100.0, 100.1, 200.0, 200.5])
    monkeypatch.setattr(page, "busy_seconds", lambda: next(counted))
    times = iter([0.0, 2.0, 10.0, 12.0])
    clock = SimpleNamespace(monotonic=lambda: next(times), sleep=lambda seconds: None)
    monkeypatch.setattr("tests.bench.page.time", clock)
    assert 0.05 == pytest.approx(page.check_quiet())
    with pytest.raises(page.Busy, match=r"other processes use 0\.25 cores"):
        page.check_quiet()
