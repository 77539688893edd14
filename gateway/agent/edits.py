"""What every editor of settings files is: four functions on text, and one way to say no."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

MISSING = object()


class NotEditable(Exception):
    """The file is not what it should be, or is written in a way that is not changed here."""


class Editor(Protocol):
    """A module is one. What is not changed stays byte for byte."""

    def parse(self, text: str) -> Any: ...

    def get(self, text: str, path: Sequence[str]) -> Any:
        """The value at a path; MISSING when there is none."""
        ...

    def put(self, text: str, path: Sequence[str], value: Any) -> str: ...

    def remove(self, text: str, path: Sequence[str]) -> str: ...
