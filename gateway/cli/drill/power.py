"""
A file system of the drill's own whose power can be cut: ext4 in an image file beside the data directory.

Its shutdown drops everything that was written and not flushed, as the kernel's own tests of file systems do.
Mounting it needs root.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

IMAGE_BYTES = 256 << 20  # sparse: it takes what is written
_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_WITHOUT_FLUSH = struct.pack("I", 2)  # EXT4_GOING_FLAGS_NOLOGFLUSH
_UNMOUNT_TRIES = 50


class NoPowerCut(Exception):
    """The message says what is missing on this machine."""


class CutDisk:
    """Mounted from the start; `cut` loses what was not flushed, `remount` replays its journal as a boot does."""

    def __init__(self, scratch: Path) -> None:
        self.directory = scratch / "disk"
        self._image = scratch / "disk.img"
        if os.geteuid() != 0:
            raise NoPowerCut("it needs root, to mount a file system of its own")
        for command in ("mkfs.ext4", "mount", "umount"):
            if shutil.which(command) is None:
                raise NoPowerCut(f"it needs the command {command}")
        self.directory.mkdir()
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.remount()

    def remount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.directory))

    def cut(self) -> None:
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_FLUSH)
        except OSError as error:
            raise NoPowerCut(f"this kernel shuts no file system down: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """Waits for a process that has just ended to let go."""
        for _ in range(_UNMOUNT_TRIES):
            if not os.path.ismount(self.directory):
                return
            subprocess.run(["umount", str(self.directory)], capture_output=True, check=False)
            time.sleep(0.1)
        raise NoPowerCut(f"{self.directory} cannot be unmounted")


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoPowerCut(f"{words[0]} failed: {done.stderr.strip()[-200:]}")
