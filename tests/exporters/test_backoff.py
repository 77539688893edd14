from __future__ import annotations

import pytest

from exporters.pace import LONGEST_HINT_S, Backoff


@pytest.mark.parametrize(
    ("failures", "shortest", "longest"),
    [(1, 1, 2), (2, 2, 4), (3, 4, 8), (4, 8, 16), (5, 15, 30), (1000, 15, 30)],
)
def test_the_wait_doubles_from_one_second_to_thirty(failures: int, shortest: float, longest: float) -> None:
    """Jitter keeps a wait within the upper half of its step."""
    backoff = Backoff()
    assert backoff.delay_s(failures, chance=0.0) == shortest
    assert backoff.delay_s(failures, chance=1.0) == longest
    assert shortest <= backoff.delay_s(failures) <= longest


def test_the_destination_is_obeyed() -> None:
    """
    Retry-After is a minimum, even beyond thirty seconds. A date in the far future counts as a wrong clock.
    """
    assert 120 == Backoff().delay_s(1, 120)
    assert 1 == Backoff().delay_s(1, 0, chance=0.0)
    assert LONGEST_HINT_S == Backoff().delay_s(1, 1e12)
