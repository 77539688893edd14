"""How long to wait before the next attempt: pure, from the failures and the destination's own hint."""

from __future__ import annotations

import random
from dataclasses import dataclass

LONGEST_HINT_S = 86_400.0  # a date further away comes from a wrong clock


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Exponential from `first_s` to `most_s`, with jitter so that gateways do not return all at once."""

    first_s: float = 1.0
    most_s: float = 30.0

    def delay_s(self, failures: int, hint_s: float | None = None, *, chance: float | None = None) -> float:
        """
        The wait after `failures` (at least 1) failures in a row, at least as long as the destination asked for.

        `chance` from 0 to 1 is drawn when not given: the wait lies between half and the whole of the step.
        """
        step = min(self.most_s, self.first_s * 2.0 ** min(max(failures, 1), 32))
        drawn = random.random() if chance is None else chance
        waiting = max(self.first_s, step * (0.5 + 0.5 * drawn))
        return max(waiting, min(hint_s or 0.0, LONGEST_HINT_S))
