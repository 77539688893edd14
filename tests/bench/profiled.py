"""
`python -m tests.bench.profiled FILE serve ...` runs the server under cProfile, with one profile per thread.

At the end, FILE has the merged profiles for `python -m pstats`. From Python 3.12 on, only one thread can be
profiled, so the profile covers only the main thread, which runs the event loop.
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
