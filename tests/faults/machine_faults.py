"""
Faults of the machine under a server, by a C library that is built here and preloaded (`machine_faults.c`).
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
_CONTROL = struct.Struct("=iiiiiid")


class MachineFaults:
    """Faults for servers that were started with `environment`, controlled through a shared page."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("needs a C compiler")
        library, page = directory / "machine_faults.so", directory / "machine_faults.page"
        if not library.exists():
            subprocess.run(
                [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True
            )
        page.write_bytes(bytes(_CONTROL.size))
        with page.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _CONTROL.size)
        self.environment = {"LD_PRELOAD": str(library), "TOLLHOUSE_MACHINE_FAULTS": str(page)}

    @property
    def injected(self) -> int:
        """Return the number of calls that failed on purpose."""
        return self._count(3)

    @property
    def hung(self) -> int:
        """Return the number of delayed flushes."""
        return self._count(4)

    @contextmanager
    def failing(self, *, sync: int = 0, write: int = 0) -> Iterator[None]:
        """Let flushes or writes of the databases fail with that error number."""
        self._set(sync=sync, write=write)
        yield
        self._set()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let flushes of the databases hang."""
        self._set(hang=1)
        yield
        self._set()

    def move_clock(self, seconds: float) -> None:
        """Set how far the wall clock is ahead."""
        self._set(ahead=seconds)

    def _set(self, *, sync: int = 0, write: int = 0, hang: int = 0, ahead: float = 0.0) -> None:
        self._page[:] = _CONTROL.pack(sync, write, hang, self.injected, self.hung, 0, ahead)

    def _count(self, place: int) -> int:
        count: int = _CONTROL.unpack(self._page[:])[place]
        return count
