"""What a reconciliation is asked for: how fine its rows are, and their form."""

from __future__ import annotations

DAY, MODEL, KEY = "day", "model", "key"
LEVELS = (DAY, MODEL, KEY)
FORMATS = ("json", "csv")
