"""The protocol of the editors of settings files: four functions on text, and one error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

MISSING = object()


class NotEditable(Exception):
    """The file is malformed, or is written in a way that the editor cannot change safely."""


class Editor(Protocol):
    """A module with these functions. What is not changed stays byte for byte."""

    def parse(self, text: str) -> Any: ...

    def get(self, text: str, path: Sequence[str]) -> Any:
        """Returns the value at a path; MISSING if there is none."""
        ...

    def put(self, text: str, path: Sequence[str], value: Any) -> str: ...

    def remove(self, text: str, path: Sequence[str]) -> str: ...
