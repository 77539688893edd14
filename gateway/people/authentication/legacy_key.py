"""
The key that the deployment provides in a file (server.api_key_file), listed as `Legacy API Key`.

The registry stores it like any other key. This module accepts it until the registry has it, and while the
registry is damaged.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b
from pathlib import Path

from gateway.configuration.secret_file import SecretFile
from spool.registry.keys import ENABLED, LEGACY_NAME, ApiKey
from spool.registry.scopes import SEND_AI_TELEMETRY

LEGACY_ID = 0  # number that no row of the key table has
DEPLOYMENT = "deployment"


class LegacyKey:
    """The key of server.api_key_file. A change of the file changes the key."""

    def __init__(self, path: Path) -> None:
        self._file = SecretFile("server.api_key_file", path)
        self.digest = _digest_secret(self._file.value)
        self.last_accessed: float | None = None

    @property
    def key(self) -> ApiKey:
        """Return the key, which always has the scopes of Send AI Telemetry."""
        return ApiKey(
            id=LEGACY_ID,
            name=LEGACY_NAME,
            status=ENABLED,
            description="Set by the deployment in server.api_key_file",
            use_cases=(SEND_AI_TELEMETRY,),
            created_by=DEPLOYMENT,
            updated_by=DEPLOYMENT,
            last_modified=self._file.modified,
            last_accessed=self.last_accessed,
        )

    @property
    def secret(self) -> str:
        return self._file.value

    def matches(self, secret: str) -> bool:
        return hmac.compare_digest(_digest_secret(secret), self.digest)

    def reload_secret_if_changed(self) -> bool:
        changed = self._file.refresh()
        if changed:
            self.digest = _digest_secret(self._file.value)
        return changed


def _digest_secret(secret: str) -> bytes:
    return blake2b(secret.encode("utf-8", "surrogatepass"), digest_size=32).digest()
