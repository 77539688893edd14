"""Recognition of the file system under a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from spool import disks
from spool.disks import FSYNC, MEMORY, find_mount

TABLE = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:25 / /tmp rw - tmpfs tmpfs rw
31 22 0:26 / /srv/with\040space rw - nfs4 server:/export rw
32 22 0:27 / /srv/data rw - xfs /dev/vdb rw
33 22 0:28 / /srv/data ro shared:7 - overlay overlay rw
not a line of the table
"""


@pytest.mark.parametrize(
    ("path", "kind", "durability", "warning"),
    [
        ("/var/lib/tollhouse", "ext4", FSYNC, ""),
        ("/tmp/not/there/yet", "tmpfs", MEMORY, "memory"),
        ("/tmpfile", "ext4", FSYNC, ""),
        ("/srv/with space/data", "nfs4", FSYNC, "network"),
        ("/srv/data", "overlay", FSYNC, "container"),
    ],
)
def test_the_innermost_mount_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, kind: str, durability: str, warning: str
) -> None:
    """Of several mounts on one directory the last counts. Names with spaces are read."""
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    monkeypatch.setattr(disks, "MOUNTS", table)
    monkeypatch.setattr(disks, "nearest_existing_path", lambda asked: asked)
    mount = find_mount(Path(path))
    assert mount is not None
    assert mount.kind == kind
    assert mount.flush_durability == durability
    assert warning in mount.warning
    assert bool(warning) == bool(mount.warning)


def test_where_there_is_no_table_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a table of mounts, which exists only on Linux, there is no warning."""
    monkeypatch.setattr(disks, "MOUNTS", tmp_path / "missing")
    assert find_mount(tmp_path) is None
