"""Faults of a definition, collected so that all are reported at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Path: TypeAlias = "tuple[str | int, ...]"
# Maximum faults in one response. After repairing these, the user sees the remaining ones.
MAX_FAULTS = 100
_SHOWN = 100  # maximum characters of a value that a message quotes


class Fault(NamedTuple):
    """
    A fault of a definition. `error` says how to repair it. `path` has the keys and list indexes (from 0) that
    lead to `value`.
    """

    error: str
    value: str
    path: list[str | int]


class InvalidDefinition(Exception):
    """
    Raised for an invalid definition. `place` has line and column, both from 1, if the text is no readable
    YAML.
    """

    def __init__(self, faults: Sequence[Fault], place: tuple[int, int] = (1, 1)) -> None:
        first = faults[0]
        prefix = f"{'.'.join(map(str, first.path))}: " if first.path else ""
        suffix = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"{prefix}{first.error}{suffix}")
        self.faults = list(faults)
        self.place = place


class DefinitionFaults:
    def __init__(self) -> None:
        self._found: list[Fault] = []

    def add_fault(self, error: str, value: object, path: Path) -> None:
        if len(self._found) < MAX_FAULTS:
            self._found.append(Fault(error, _describe_value(value), list(path)))

    @property
    def found_faults(self) -> Sequence[Fault]:
        return self._found

    def raise_if_any(self) -> None:
        if self._found:
            raise InvalidDefinition(self._found)


def _describe_value(value: object) -> str:
    if isinstance(value, str):
        return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
    if value is None:
        return ""
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else str(value)
