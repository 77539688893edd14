"""
Daily counts of reports that arrived too late for their calls, by source and kind, over all processes and
restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from spool.registry.changes import RegistryChangeWriter
from spool.registry.registry_rows import RegistryRows

KIND = "late_reports"
MAX_SOURCES = 500  # sources per day and kind, because another Tollhouse may name any source
OTHER = "other"

Counts = Mapping[tuple[str, str], int]  # counts by kind and source


class LateReportTable:
    """The daily counts of late reports, with one document per day."""

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer

    async def add(self, days: Mapping[int, Counts], *, oldest: int) -> None:

        def add_late_report_counts(registry_rows: RegistryRows) -> None:
            for day, counts in days.items():
                stored = {
                    kind: dict(sources)
                    for kind, sources in (registry_rows.document(KIND, str(day)) or {}).items()
                }
                for (kind, source), n in counts.items():
                    sources = stored.setdefault(kind, {})
                    name = source if source in sources or len(sources) < MAX_SOURCES else OTHER
                    sources[name] = sources.get(name, 0) + n
                registry_rows.put_document(KIND, str(day), stored)
            for id in registry_rows.documents(KIND):
                if int(id) < oldest:
                    registry_rows.delete_document(KIND, id)

        await self._changes.change_rows(add_late_report_counts)

    async def sums_since(self, oldest: int) -> Counts:
        sums: Counter[tuple[str, str]] = Counter()
        for id, counts in (await self._changes.read(lambda rows: rows.documents(KIND))).items():
            if int(id) >= oldest:
                for kind, sources in counts.items():
                    sums.update({(kind, source): n for source, n in sources.items()})
        return sums
