"""
Tollhouse that retries paused routes after two seconds: `python -m tests.acceptance.lifecycle.parked_soon`

tests/exporters/test_route_loop.py tests the default of one minute with a fake clock.
"""

from __future__ import annotations

import sys

import exporters.route_loop
from gateway.cli import main

COMMAND = (sys.executable, "-m", "tests.acceptance.lifecycle.parked_soon")

if __name__ == "__main__":
    exporters.route_loop.PARKED_S = 2.0
    main()
