"""Which sessions of gateways nobody may count as over."""

from __future__ import annotations

SESSION_S = 5.0  # without a renewal, and it is over
LIVE = f"seen_at > {{now}} - {SESSION_S}"
