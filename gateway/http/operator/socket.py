"""
The operator API on a unix socket in the data directory, for the command line. Its file mode is the sign-in.

A path of more than 100 bytes does not fit into a socket address: then the socket lies in the system's
temporary directory and `operator.path` in the data directory says where.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.http.operator.admission import LOCAL
from gateway.service.mounts import OPERATOR_API, socket_path

MAX_PATH_BYTES = 100
STOP_S = 2.0  # twice at most: the time that running commands get to finish at a stop


class SocketFile:
    """
    The file of a socket that this process bound. A process that takes over may put its own in the same place before
    this one has stopped: with a storage that nodes share, nothing keeps two from one directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own = _file_at(path)

    def remove(self) -> None:
        """Remove it unless it is gone, or another process's by now."""
        if self._own is not None and _file_at(self._path) == self._own:
            self._path.unlink(missing_ok=True)


def _file_at(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns
    return None


class OperatorSocket:
    """Serves the operator application to every process that may open the socket."""

    def __init__(self, directory: Path, application: web.Application) -> None:
        self._directory = directory
        self._root = web.Application(middlewares=[_local])
        self._root.add_subapp(OPERATOR_API, application)
        self._runner = web.AppRunner(self._root, access_log=None, shutdown_timeout=STOP_S)
        self._shelter: Path | None = None
        self._file: SocketFile | None = None

    async def start(self) -> Path:
        """Remove what a killed process left behind, listen, and return the socket's path."""
        path = self._place()
        # Bound, closed to others, and only then listening: nobody can connect in between.
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        self._file = SocketFile(path)
        path.chmod(0o600)
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        if self._shelter:
            _write(self._directory / "operator.path", str(path))
        return path

    async def stop(self) -> None:
        await self._runner.cleanup()
        if self._file:
            self._file.remove()
        if self._shelter:
            if socket_path(self._directory).parent == self._shelter:
                (self._directory / "operator.path").unlink(missing_ok=True)
            shutil.rmtree(self._shelter, ignore_errors=True)
            self._shelter = None

    def _place(self) -> Path:
        path = self._directory / "operator.sock"
        path.unlink(missing_ok=True)
        self._forget_old_shelter()
        if len(bytes(path.absolute())) <= MAX_PATH_BYTES:
            return path
        self._shelter = Path(tempfile.mkdtemp(prefix="tollhouse-", dir="/tmp"))
        return self._shelter / "operator.sock"

    def _forget_old_shelter(self) -> None:
        pointer = self._directory / "operator.path"
        old = socket_path(self._directory)
        if pointer.exists() and old.parent.name.startswith("tollhouse-"):
            old.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # gone already, or somebody else's things are in it
                old.parent.rmdir()
        pointer.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(text, "utf-8")
    draft.rename(path)


@web.middleware
async def _local(request: web.Request, handler: Handler) -> web.StreamResponse:
    request[LOCAL] = True
    return await handler(request)
