"""
Messages to a service manager such as systemd (its sd_notify protocol): ready, reloading, stopping, alive.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

_log = logging.getLogger(__name__)

STARTING_EVERY_S = 10.0
# Each message extends the time limit by 60 s from now, so the service manager still ends a start that hangs.
MORE_TIME = "EXTEND_TIMEOUT_USEC=60000000"


class ServiceManager:
    """The socket of the service manager that the environment names. Without one, nothing is sent."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watchdog_s = int(environ.get("WATCHDOG_USEC", 0)) / 1e6 if is_ours else 0.0

    def send_state(self, *lines: str) -> None:
        """Send one message. A failure is logged and has no other effect."""
        if sys.platform == "win32" or not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            _log.warning(
                "could not notify the service manager of %s: %s",
                lines[0],
                error,
                extra={"action": "notify_failed"},
            )

    def announce_reload(self) -> None:
        """
        Announce a reload. The message has the current time, by which systemd distinguishes it from later reloads.
        """
        self.send_state("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    async def request_more_start_time(self) -> None:
        """
        Request more time until cancelled. A start may take long because the spool is large or damaged, or
        because it waits for space on the disk.
        """
        while True:
            await asyncio.sleep(STARTING_EVERY_S)
            self.send_state(MORE_TIME)

    async def feed_watchdog(self, is_server_live: Callable[[], Awaitable[bool]]) -> None:
        """Report to the watchdog while `is_server_live` returns True, three times per watchdog period."""
        while self._watchdog_s:
            if await is_server_live():
                self.send_state("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s / 3)
