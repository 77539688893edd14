"""A secret as the operator gave it: a file that is read again when it changes, or an environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from exporters.errors import Misconfigured


class SecretSource:
    """`name` is how error messages call it. The value never appears in a message or a repr."""

    def __init__(
        self, name: str, *, file: Path | None = None, env: str = "", environ: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._file = file
        self._env = env
        self._environ = os.environ if environ is None else environ
        self._seen: tuple[int, ...] | None = None
        self._value = ""

    def value(self) -> str:
        """The secret; Misconfigured if it cannot be read: the route waits until the operator changes that."""
        if self._file is None:
            value = self._environ.get(self._env, "").strip()
            if not value:
                message = f"{self.name}: the environment variable {self._env} is not set"
                raise Misconfigured(message, answered=False)
            return value
        seen = self.stamp()
        if seen is None or seen != self._seen:
            self._value = self._read(self._file)
            self._seen = seen
        return self._value

    def stamp(self) -> tuple[int, ...] | None:
        """Changes whenever the file does; None without a file or while it is not there."""
        if self._file is None:
            return None
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _read(self, file: Path) -> str:
        try:
            value = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            words = error.strerror if isinstance(error, OSError) else "it is not text"
            raise Misconfigured(f"{self.name}: {file} cannot be read: {words}", answered=False) from error
        if not value or any(character.isspace() or not character.isprintable() for character in value):
            raise Misconfigured(f"{self.name}: {file} must hold one secret on one line", answered=False)
        return value
