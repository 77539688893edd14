"""Limits of the configuration, and how much of each is in use: see docs/limits.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """`name` is that of the setting, in the user's words."""

    name: str
    allowed: float
    used: float
