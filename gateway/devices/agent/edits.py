"""The protocol of the editors of settings files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

MISSING = object()


class NotEditable(Exception):
    """Raised if a settings file is malformed, or the editor cannot change it safely."""


class Editor(Protocol):
    """
    The interface of a module that edits settings files of one format. Unchanged parts of the text stay byte
    for byte.
    """

    def parse(self, text: str) -> Any: ...

    def get(self, text: str, path: Sequence[str]) -> Any: ...

    def put(self, text: str, path: Sequence[str], value: Any) -> str: ...

    def remove(self, text: str, path: Sequence[str]) -> str: ...
