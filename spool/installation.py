"""
The installation's secret: 32 random bytes in a file next to the databases.

Hashes of keys, list cursors and receipts depend on it. They stay valid if a database is restored or deleted,
and are useless in another installation. Each purpose uses a key derived from the secret.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b
from pathlib import Path

from spool.disks import create_flushed_file, flush_directory, replace_file
from spool.errors import SpoolError

FILE = "installation.secret"
SIZE = 32


def installation_secret(directory: Path) -> bytes:
    """Return the secret. The first call creates it. The caller must hold the directory's lock."""
    path = directory / FILE
    try:
        secret = path.read_bytes()
    except FileNotFoundError:
        secret = secrets.token_bytes(SIZE)
        store_secret(path, secret)
        return secret
    if len(secret) != SIZE:
        raise SpoolError(f"{path} is damaged. Restore it from a backup, or create every key again")
    return secret


def derive_secret(secret: bytes, use: str) -> bytes:
    return blake2b(use.encode(), key=secret, digest_size=32).digest()


def public_id(secret: bytes) -> str:
    """Return the id that names this installation in metrics and data lakes."""
    # this text must not change: every public id depends on it
    return derive_secret(secret, "own telemetry").hex()[:32]


def read_public_id(file: Path | None) -> str | None:
    try:
        secret = file.read_bytes() if file else b""
    except OSError:
        return None
    return public_id(secret) if len(secret) == SIZE else None


def store_secret(path: Path, secret: bytes) -> None:
    """Write the secret to a new file. A crash leaves either the complete file or none."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with create_flushed_file(draft) as file:
        file.write(secret)
    replace_file(draft, path)
    flush_directory(path.parent)
