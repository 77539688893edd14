"""A Debian package of the Linux files of a policy bundle. Equal inputs give equal bytes."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

_CONTROL = """\
Package: tollhouse-policy
Version: {version}
Architecture: all
Maintainer: Tollhouse
Section: admin
Priority: optional
Description: managed settings of coding assistants, with which they report to Tollhouse
"""


def build_debian_package(files: Mapping[str, bytes], version: str) -> bytes:
    """
    Return a package that installs files by their absolute paths.

    All are configuration files of the package, so dpkg keeps a file that exists already, or asks.
    """
    conffiles = "".join(f"{path}\n" for path in sorted(files))
    control = {"/control": _CONTROL.format(version=version).encode(), "/conffiles": conffiles.encode()}
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": _tar_archive(control),
        "data.tar.gz": _tar_archive(files),
    }
    return b"!<arch>\n" + b"".join(_archive_member(name, content) for name, content in members.items())


def _archive_member(name: str, content: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n"
    return head.encode() + content + b"\n" * (len(content) % 2)


def _tar_archive(files: Mapping[str, bytes]) -> bytes:
    folders = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(folders | files.keys()):
            row = tarfile.TarInfo("." + path)
            row.uname = row.gname = "root"
            if path in folders:
                row.type, row.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(row)
            else:
                row.size = len(files[path])
                archive.addfile(row, io.BytesIO(files[path]))
    return gzip.compress(buffer.getvalue(), mtime=0)
