"""A real file system that is small enough to fill: a tmpfs, which only root can mount."""

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
    """Mount a tmpfs of `mib` MiB on a new directory. Skip the test if mounting is not permitted."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a file system needs root")
    directory.mkdir()
    options = f"size={mib}m,nr_inodes={inodes}"  # tmpfs has no limit of inodes if nr_inodes=0
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)], check=False)
    if mounted.returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def take_inodes(disk: Path) -> Path:
    """Create empty files in a new directory until the file system has no inode left."""
    filler = disk / "files"
    filler.mkdir()
    touch_all(filler, "first")
    return filler


def touch_all(filler: Path, name: str) -> None:
    """Create empty files with this prefix until the file system refuses one."""
    with suppress(OSError):
        for number in range(1_000_000):
            (filler / f"{name}-{number}").touch()


def fill(disk: Path) -> Path:
    """Create a file that takes every free byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for block in (1 << 20, 4096):
            try:
                while file.write(bytes(block)):
                    pass
            except OSError:
                continue
    return filler
