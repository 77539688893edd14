"""Faults of the machine under a server: a layer in C that is built here and preloaded (`machine_faults.c`)."""

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
    """One shared page: what the servers that were started with `environment` meet."""

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
        """Calls that were made to fail."""
        return self._count(3)

    @property
    def hung(self) -> int:
        """Flushes that did not return at once."""
        return self._count(4)

    @contextmanager
    def failing(self, *, sync: int = 0, write: int = 0) -> Iterator[None]:
        """Flushes or writes of the databases end with that error."""
        self._set(sync=sync, write=write)
        yield
        self._set()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Flushes of the databases do not return."""
        self._set(hang=1)
        yield
        self._set()

    def move_clock(self, seconds: float) -> None:
        """How far the wall clock is ahead from now on."""
        self._set(ahead=seconds)

    def _set(self, *, sync: int = 0, write: int = 0, hang: int = 0, ahead: float = 0.0) -> None:
        self._page[:] = _CONTROL.pack(sync, write, hang, self.injected, self.hung, 0, ahead)

    def _count(self, place: int) -> int:
        count: int = _CONTROL.unpack(self._page[:])[place]
        return count
