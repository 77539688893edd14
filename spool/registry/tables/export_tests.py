"""When a product last sent a span to test its export, by key, over all processes and restarts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spool.registry.changes import RegistryChangeWriter
from spool.registry.registry_rows import RegistryRows

KIND, ID = "export_tests", "last"


class ExportTestTable:
    """When the newest test span of each key arrived, in one document."""

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer

    async def add(self, times: Mapping[int, float], *, keys: Collection[int]) -> None:
        """
        Store arrival times of test spans by key id, if they are later than the stored ones. Times of keys not
        in `keys` are deleted.
        """

        def store_export_test_times(registry_rows: RegistryRows) -> None:
            stored = _read_times(registry_rows)
            stored |= {id: max(at, stored.get(id, 0.0)) for id, at in times.items()}
            registry_rows.put_document(KIND, ID, {str(id): at for id, at in stored.items() if id in keys})

        await self._changes.change_rows(store_export_test_times)

    async def all(self) -> Mapping[int, float]:
        return await self._changes.read(_read_times)


def _read_times(registry_rows: RegistryRows) -> dict[int, float]:
    return {int(id): at for id, at in (registry_rows.document(KIND, ID) or {}).items()}
