"""A real file system that is small enough to be filled: a tmpfs, which needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(directory: Path, *, mib: int, inodes: int = 0) -> Iterator[Path]:
    """Mounts a tmpfs of that size on a new directory; skips the test where that is not allowed."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a file system needs root")
    directory.mkdir()
    options = f"size={mib}m,nr_inodes={inodes}"  # 0: as many as there may be
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)], check=False)
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def take_inodes(disk: Path) -> Path:
    """A directory with empty files until no further file can be made."""
    filler = disk / "files"
    filler.mkdir()
    touch_all(filler, "first")
    return filler


def touch_all(filler: Path, name: str) -> None:
    """Empty files with names that begin so, until no further one can be made."""
    with suppress(OSError):
        for number in range(1_000_000):
            (filler / f"{name}-{number}").touch()


def fill(disk: Path) -> Path:
    """A file that takes every byte that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for block in (1 << 20, 4096):
            try:
                while file.write(bytes(block)):
                    pass
            except OSError:
                continue
    return filler
