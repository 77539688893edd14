"""The one key that the deployment gives in a file (server.api_key_file), listed as `Legacy API Key`."""

from __future__ import annotations

import hmac
import logging
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from gateway.config import ConfigError
from spool.keys import ENABLED, LEGACY_NAME, Key
from spool.scopes import SEND_AI_TELEMETRY

_log = logging.getLogger(__name__)

LEGACY_ID = 0  # no row of the key table has it
MIN_SECRET = 8
DEPLOYMENT = "deployment"


class LegacyKey:
    """Reads the file at start and again when it changes. A file that became unreadable leaves the last key in force."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._digest = b""
        self._stamp: tuple[int, int, int] | None = None
        self._complained = False
        self.last_accessed: float | None = None
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise ConfigError([f"server.api_key_file: {_reason(error)}"]) from error

    @property
    def key(self) -> Key:
        """It always has the scopes of Send AI Telemetry."""
        return replace(self._key, last_accessed=self.last_accessed)

    def matches(self, secret: str) -> bool:
        return hmac.compare_digest(_digest(secret), self._digest)

    def refresh(self) -> None:
        """Take over a changed file; complain once when it cannot be read."""
        try:
            self._read()
            self._complained = False
        except (OSError, ValueError) as error:
            if not self._complained:
                _log.warning("server.api_key_file: %s; the last key stays", _reason(error))
            self._complained = True

    def _read(self) -> None:
        status = self._path.stat()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._stamp:
            return
        secret = self._path.read_text("utf-8").strip()
        if len(secret) < MIN_SECRET or len(secret.split()) != 1:
            raise ValueError(f"must hold one key of at least {MIN_SECRET} characters and nothing else")
        self._digest = _digest(secret)
        self._stamp = stamp
        self._key = Key(
            id=LEGACY_ID,
            name=LEGACY_NAME,
            status=ENABLED,
            description="Given by the deployment in server.api_key_file",
            use_cases=(SEND_AI_TELEMETRY,),
            created_by=DEPLOYMENT,
            updated_by=DEPLOYMENT,
            last_modified=status.st_mtime,
        )


def _digest(secret: str) -> bytes:
    return blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=32).digest()


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return f"cannot be read ({error.strerror})"
    return "must be UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
