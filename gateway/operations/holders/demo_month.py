"""
A demo month, stored in a folder of its own within the data directory of a running server.

A separate process fills the folder, and the operator API reads it. Removing the folder removes the month. The
month shares no file with real data, so no demo record is forwarded or counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Generic, TypeVar

from gateway.core.errors import Refusal

_log = logging.getLogger(__name__)

NONE, LOADING, LOADED = "none", "loading", "loaded"
FOLDER = "demo"  # name of the demo's folder in the data directory
DAYS, RECORDS = 30, 6000
# The only environment variables of the process that fills the folder, because any other may contain a secret.
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
_PASSED_ON_PREFIX = "PYTHON"
_NO_DEMO = "no demo month is loaded; load one from the empty Overview of the console"

Month = TypeVar("Month")


def environment_of_demo_filling_process(server_environment: Mapping[str, str]) -> dict[str, str]:
    """
    Return the environment variables that the process that fills the demo needs to find its modules and to
    read text.
    """
    return {
        name: value
        for name, value in server_environment.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIX)
    }


class DemoMonth(Generic[Month]):
    """
    The demo month of a data directory. `open_month` opens its folder, and the module `filling_module` fills it.

    Call `close` when the server stops. A loaded month stays on disk until `remove`.
    """

    def __init__(
        self,
        data_dir: Path,
        open_month: Callable[[Path], AbstractAsyncContextManager[Month]],
        filling_module: str,
    ) -> None:
        self._folder = data_dir / FOLDER
        # name of the folder while the month is filled or removed
        self._unfinished = data_dir / f"{FOLDER}.unfinished"
        self._open = open_month
        self._filling_module = filling_module
        self._changing = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._month: Month | None = None
        self._readers = 0
        self._unread = asyncio.Event()
        self._unread.set()
        self._filling: asyncio.subprocess.Process | None = None

    @property
    def state(self) -> str:
        if self._filling is not None:
            return LOADING
        return LOADED if self._folder.is_dir() else NONE

    async def load(self) -> None:
        """
        Fill the folder, unless it is filled. If that fails, delete the partial data and raise Refusal 503.
        """
        async with self._changing:
            if self.state == LOADED:
                return
            await asyncio.to_thread(shutil.rmtree, self._unfinished, True)
            try:
                await self._run_filling_process()
                self._unfinished.rename(self._folder)
            finally:
                await asyncio.to_thread(shutil.rmtree, self._unfinished, True)

    async def remove(self) -> None:
        """Wait until no request reads the folder, then delete it. Do nothing if it does not exist."""
        async with self._changing:
            if self.state == NONE:
                return
            await asyncio.to_thread(shutil.rmtree, self._unfinished, True)
            self._folder.rename(self._unfinished)  # rename the folder first, so that no new reader finds it
            await self._unread.wait()
            await self._stack.aclose()
            self._month = None
            await asyncio.to_thread(shutil.rmtree, self._unfinished)

    @asynccontextmanager
    async def open_month_for_request(self) -> AsyncIterator[Month]:
        """Open the month for one request. Raises Refusal 404 if none is loaded."""
        if self._month is None:
            async with self._changing:
                if self._month is None and self.state == LOADED:
                    self._month = await self._stack.enter_async_context(self._open(self._folder))
        if self._month is None or self.state != LOADED:
            raise Refusal(404, "no_demo", _NO_DEMO)
        self._readers += 1
        self._unread.clear()
        try:
            yield self._month
        finally:
            self._readers -= 1
            if not self._readers:
                self._unread.set()

    async def close(self) -> None:
        """Stop the filling process and close the open files."""
        if self._filling is not None:
            self._filling.kill()
        async with self._changing:
            await self._stack.aclose()
            self._month = None

    async def _run_filling_process(self) -> None:
        command = [
            sys.executable,
            "-P",
            "-m",
            self._filling_module,
            str(self._unfinished),
            str(DAYS),
            str(RECORDS),
        ]
        pipe = asyncio.subprocess.PIPE
        nothing = asyncio.subprocess.DEVNULL
        self._filling = await asyncio.create_subprocess_exec(
            *command,
            stdin=nothing,
            stdout=nothing,
            stderr=pipe,
            env=environment_of_demo_filling_process(os.environ),
        )
        try:
            _, stderr = await self._filling.communicate()
            code = self._filling.returncode
        except asyncio.CancelledError:
            self._filling.kill()
            raise
        finally:
            self._filling = None
        if code:
            reason = stderr.decode(errors="replace").strip().rpartition("\n")[2]
            extra = {"action": "demo_not_loaded", "reason": reason}
            _log.warning("the demo month could not be loaded", extra=extra)
            raise Refusal(
                503, "demo_failed", "the demo month could not be loaded; the server log has the reason"
            )
