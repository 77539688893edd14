"""The comparison with bills as `/metrics` shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciledRatio:
    """
    What was counted, of what a provider billed: `measure` is tokens or money. 1 is everything, above it too
    much.
    """

    provider: str
    measure: str
    ratio: float
