"""
The note in a data directory that `tollhouse demo` filled. A server that runs on the directory reads it, says that the
data is made up, and keeps the made-up laptops and destinations alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

FILE = "demo.json"
CHANNEL = "planted-chat"
REFUSAL = "401: the key is unknown"  # response of the demo's receiver that rejects every request


class DemoNote(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a demo planted. `planted` are the planted problems, in words. `laptops` send heartbeats and calls,
    and `losing_laptops` only heartbeats. The receiver of `routes` accepts everything, and that of
    `paused_routes` refuses Tollhouse's key. The receiver of `channels` accepts every notification.
    """

    planted: Sequence[str]
    laptops: Sequence[str] = ()
    losing_laptops: Sequence[str] = ()
    routes: Sequence[str] = ()
    paused_routes: Sequence[str] = ()
    channels: Sequence[str] = ()


def read_note(data_dir: Path) -> DemoNote | None:
    """Return the note of a demo. Return None for other data directories, and for a note that cannot be read."""
    try:
        return msgspec.json.decode((data_dir / FILE).read_bytes(), type=DemoNote)
    except (OSError, msgspec.MsgspecError):
        return None


def write_note(data_dir: Path, note: DemoNote) -> None:
    (data_dir / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(note)) + b"\n")
