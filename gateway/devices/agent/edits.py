"""The protocol of the editors of settings files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

MISSING = object()


class NotEditable(Exception):
    """Raised if a settings file is malformed, or the editor cannot change it safely."""


class SettingsEditor(Protocol):
    """
    The interface of a module that edits settings files of one format. Unchanged parts of the text stay byte
    for byte.
    """

    def parse_settings(self, text: str) -> Any: ...

    def get_value(self, text: str, path: Sequence[str]) -> Any: ...

    def put_value(self, text: str, path: Sequence[str], value: Any) -> str: ...

    def remove_value(self, text: str, path: Sequence[str]) -> str: ...
