"""
The secret of one installation: 32 random bytes in a file of their own beside the databases.

What is keyed with it (key hashes, list cursors, receipts) stays valid when a database is restored or thrown away,
and means nothing outside this data directory. Each use derives its own secret, so none can stand in for another.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from pathlib import Path

from spool.disks import flush_directory, new_file
from spool.errors import SpoolError

FILE = "installation.secret"
SIZE = 32


def installation_secret(directory: Path) -> bytes:
    """The secret of a data directory, made on first use. Call it while holding the directory's lock."""
    path = directory / FILE
    try:
        secret = path.read_bytes()
    except FileNotFoundError:
        secret = secrets.token_bytes(SIZE)
        make_secret(path, secret)
        return secret
    if len(secret) != SIZE:
        raise SpoolError(f"{path} is damaged: restore it from a backup, or every key must be created again")
    return secret


def derived(secret: bytes, use: str) -> bytes:
    """A secret for one use alone."""
    return blake2b(use.encode(), key=secret, digest_size=32).digest()


def public_id(secret: bytes) -> str:
    """Return the id under which others know an installation: its metrics and its lakes name it so."""
    # The words are those of an earlier use: other words would be another id.
    return derived(secret, "own telemetry").hex()[:32]


def kept_id(file: Path | None) -> str | None:
    """The public id of the installation whose secret is in a file; None if there is none that can be read."""
    try:
        secret = file.read_bytes() if file else b""
    except OSError:
        return None
    return public_id(secret) if len(secret) == SIZE else None


def make_secret(path: Path, secret: bytes) -> None:
    """Write beside and rename, so that a crash leaves the whole file or none."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with new_file(draft) as file:
        file.write(secret)
    draft.rename(path)
    flush_directory(path.parent)
