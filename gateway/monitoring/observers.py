"""Several observers of the log as one."""

from __future__ import annotations

from collections.abc import Sequence

from spool.log.protocols import Observer
from spool.log.values import Commit


class Observers:
    """Notifies each, in order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def committed(self, commit: Commit) -> None:
        for observer in self._observers:
            observer.committed(commit)
