"""
`python -m tests.bench.profiled FILE serve ...`: the same program under cProfile, every thread by itself.

At the end FILE has the profiles put together, for `python -m pstats`. From Python 3.12 on one thread alone
can be profiled: the main one, which runs the event loop.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import threading

from gateway.cli import main

if __name__ == "__main__":
    path = sys.argv.pop(1)
    profiles: list[cProfile.Profile] = []
    run_plain = threading.Thread.run

    def run(self: threading.Thread) -> None:
        own = cProfile.Profile()
        profiles.append(own)
        own.runcall(run_plain, self)

    if sys.version_info < (3, 12):
        threading.Thread.run = run  # type: ignore[method-assign]
    profiles.append(cProfile.Profile())
    try:
        profiles[0].runcall(main)
    finally:
        pstats.Stats(*profiles).dump_stats(path)
