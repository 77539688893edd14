"""A secret from a file, which is read again when it changes, or from an environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from exporters.errors import Misconfigured


class SecretSource:
    """
    Where to read a secret. Error messages call it `name`. The value never appears in a message or a repr.
    """

    def __init__(
        self,
        name: str,
        *,
        file: Path | None = None,
        env: str = "",
        environ: Mapping[str, str] | None = None,
        most_lines: int = 1,
    ) -> None:
        self.name = name
        self._file = file
        self._most_lines = most_lines
        self._env = env
        self._environ = os.environ if environ is None else environ
        self._seen: tuple[int, ...] | None = None
        self._value = ""

    def value(self) -> str:
        """
        Return the secret. Raises Misconfigured if it cannot be read. The route is then paused until the
        operator fixes the file or variable.
        """
        if self._file is None:
            value = self._environ.get(self._env, "").strip()
            if not value:
                message = f"{self.name}: the environment variable {self._env} is not set"
                raise Misconfigured(message, answered=False)
            return value
        stamp = self.change_stamp()
        if not stamp or stamp != self._seen:
            self._value = self._read_file(self._file)
            self._seen = stamp
        return self._value

    def change_stamp(self) -> tuple[int, ...] | None:
        """
        Return a value that changes whenever the file does. Return () if the file does not exist, and None for an
        environment variable.
        """
        if self._file is None:
            return None
        try:
            status = self._file.stat()
        except OSError:
            return ()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _read_file(self, file: Path) -> str:
        try:
            value = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise Misconfigured(f"{self.name}: cannot read {file}: {reason}", answered=False) from error
        lines = value.split("\n")
        if len(lines) > self._most_lines or not all(map(_is_word, lines)):
            expected = "one secret on one line" if self._most_lines == 1 else f"1 to {self._most_lines} lines"
            raise Misconfigured(f"{self.name}: {file} must contain {expected}", answered=False)
        return value


def _is_word(line: str) -> bool:
    return bool(line) and line.isprintable() and not any(map(str.isspace, line))
