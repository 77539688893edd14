"""
A program with an app whose stop may hang, for tests of forced exits.

`python -m tests.integration.stopping_app HOW SECONDS` stops it at once. HOW is what hangs: `task`, `loop` or nothing.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from functools import partial
from typing import Any
from unittest import mock

from gateway.cli import serve
from gateway.monitoring import logs


class StoppingApp:
    def __init__(self, how: str) -> None:
        self._how = how

    @property
    def services(self) -> Any:
        return self

    single = health = services

    async def is_live(self) -> bool:
        return True

    async def start(self) -> None:
        """Start nothing."""

    async def wait_for_handover(self) -> None:
        await asyncio.sleep(3600)

    async def wait_for_failure(self) -> str:
        return "something"

    async def stop(self) -> None:
        if self._how == "loop":
            time.sleep(3600)
        await self._stop_part()

    async def _stop_part(self) -> None:
        if self._how == "task":
            await asyncio.create_task(asyncio.sleep(3600), name="a part of the app")


async def _announce() -> None:
    """Print nothing."""


def main() -> int:
    """Return the exit code of the server, and 6 more, or 7 if a timer is left that would end the process later."""
    app: Any = StoppingApp(sys.argv[1])
    name = "exit_process_if_block_takes_longer"
    within = partial(serve.exit_process_if_block_takes_longer, within_s=float(sys.argv[2]))
    logs.start_logging("info")
    with mock.patch.object(serve, name, within):
        code = asyncio.run(serve.run_app_until_stopped(app, _announce))
    timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    return code + 6 + any(not each.finished.is_set() for each in timers)


if __name__ == "__main__":
    sys.exit(main())
