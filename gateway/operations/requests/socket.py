"""
The operator API on a unix socket in the data directory, for the command line. The file mode is the sign-in.

A path longer than 100 bytes does not fit into a socket address. Then the socket is in a temporary directory
below /tmp, and `operator.path` in the data directory contains its path.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.core.paths import OPERATOR_API, socket_path
from gateway.http.listening.listener import close_server
from gateway.operations.requests.admission import LOCAL
from spool.disks import replace_file

MAX_PATH_BYTES = 100
STOP_S = 2.0  # seconds that running commands have to finish at a stop; each of two steps may take this long


class SocketFile:
    """
    The file of a socket that this process has bound.

    If nodes share a storage, a successor may create its own socket at the same path before this
    process has stopped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own = _file_identity(path)

    def remove(self) -> None:
        """Delete the file, unless it is gone or belongs to another process."""
        if self._own is not None and _file_identity(self._path) == self._own:
            self._path.unlink(missing_ok=True)


def _file_identity(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        return status.st_ino, status.st_mtime_ns
    return None


class OperatorSocket:
    """The server of the operator application on a unix socket."""

    def __init__(self, directory: Path, application: web.Application) -> None:
        self._directory = directory
        self._root = web.Application(middlewares=[_mark_local])
        self._root.add_subapp(OPERATOR_API, application)
        self._runner = web.AppRunner(self._root, access_log=None, shutdown_timeout=STOP_S)
        self._shelter: Path | None = None
        self._file: SocketFile | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> Path:
        """
        Delete the files of a killed process, listen, and return the socket's path. Nothing listens on
        Windows, where Python has no such sockets.
        """
        if sys.platform == "win32":
            return self._directory / "operator.sock"
        path = self._prepare_path()
        # Bind, restrict the file mode, then listen, so that no other user can connect in between.
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        self._file = SocketFile(path)
        path.chmod(0o600)
        await self._runner.setup()
        assert self._runner.server is not None  # setup() has created the server
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._runner.server, sock=listener)
        if self._shelter:
            _replace_text(self._directory / "operator.path", str(path))
        return path

    async def stop(self) -> None:
        if self._server is not None:
            await close_server(self._server)
        await self._runner.cleanup()
        if self._file:
            self._file.remove()
        if self._shelter:
            if socket_path(self._directory).parent == self._shelter:
                (self._directory / "operator.path").unlink(missing_ok=True)
            shutil.rmtree(self._shelter, ignore_errors=True)
            self._shelter = None

    def _prepare_path(self) -> Path:
        path = self._directory / "operator.sock"
        path.unlink(missing_ok=True)
        self._delete_old_socket_directory()
        if len(bytes(path.absolute())) <= MAX_PATH_BYTES:
            return path
        self._shelter = Path(tempfile.mkdtemp(prefix="tollhouse-", dir="/tmp"))
        return self._shelter / "operator.sock"

    def _delete_old_socket_directory(self) -> None:
        pointer = self._directory / "operator.path"
        old = socket_path(self._directory)
        if pointer.exists() and old.parent.name.startswith("tollhouse-"):
            old.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # the directory was deleted already, or has other files
                old.parent.rmdir()
        pointer.unlink(missing_ok=True)


def _replace_text(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(text, "utf-8")
    replace_file(draft, path)


@web.middleware
async def _mark_local(request: web.Request, handler: Handler) -> web.StreamResponse:
    request[LOCAL] = True
    return await handler(request)
