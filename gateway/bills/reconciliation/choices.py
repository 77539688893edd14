"""What a reconciliation is asked for: how fine its rows are, and their form; and the parts of a difference."""

from __future__ import annotations

DAY, MODEL, KEY = "day", "model", "key"
LEVELS = (DAY, MODEL, KEY)
FORMATS = ("json", "csv")
VOLUME, RATE, OTHER, OWN = "volume", "rate", "other", "own"
PARTS = (VOLUME, RATE, OTHER, OWN)
