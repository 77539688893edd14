"""A secret in a file of the deployment, read at the start and again when the file changes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from gateway.configuration.attribution import SourceSettings
from gateway.configuration.values import ConfigError

_log = logging.getLogger(__name__)

MIN_LENGTH = 8  # minimum characters of a secret, because shorter secrets can be guessed


class SecretFile:
    """
    A secret in a file. `setting` is its name in messages, which never contain the value.

    If the file cannot be read at the start, ConfigError is raised. If it becomes unreadable later, the last
    secret stays in effect.
    """

    def __init__(self, setting: str, path: Path) -> None:
        self.setting = setting
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._complained = False
        self.modified = 0.0
        self.value = ""
        try:
            self._read_if_changed()
        except (OSError, ValueError) as error:
            raise ConfigError([f"{setting}: {self._describe_error(error)}"]) from error

    def refresh(self) -> bool:
        """
        Read a changed file, and return whether the secret changed. If the file cannot be read, log it once.
        """
        try:
            changed = self._read_if_changed()
        except (OSError, ValueError) as error:
            if not self._complained:
                _log.warning(
                    "%s: %s; the earlier secret stays in effect", self.setting, self._describe_error(error)
                )
            self._complained = True
            return False
        self._complained = False
        return changed

    def _read_if_changed(self) -> bool:
        status = self._path.stat()
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._stamp:
            return False
        secret = self._path.read_text("utf-8").strip()
        if len(secret) < MIN_LENGTH or len(secret.split()) != 1:
            raise ValueError("too short, or more than one word")
        self.value, self.modified, self._stamp = secret, status.st_mtime, stamp
        return True

    def _describe_error(self, error: OSError | ValueError) -> str:
        if isinstance(error, OSError):
            return f"cannot read {self._path} ({error.strerror})"
        if isinstance(error, UnicodeDecodeError):
            return f"{self._path} must be UTF-8 text"
        return f"{self._path} must contain one secret of at least {MIN_LENGTH} characters and nothing else"


def signing_secret(sources: Mapping[str, SourceSettings]) -> SecretFile | None:
    """
    Return the secret that verifies Helicone's webhooks, or None if none is configured. Raises ConfigError if
    the file cannot be read.
    """
    path = sources["helicone"].signing_secret_file if "helicone" in sources else None
    return SecretFile("sources.helicone.signing_secret_file", path) if path else None
