from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spool.erasure import pseudonyms_by_digest
from spool.listing import ListPage, ListQuery
from spool.people import CallTime
from spool.record import NS
from spool.registry.changes import RegistryChangeWriter
from spool.registry.registry_rows import RegistryRows
from spool.registry.tables.persons import stored_erasures
from spool.registry.viewings import KEPT_S, MOST_A_DAY, Viewing
from spool.statements import day_text
from spool.viewed_people import SEVERAL

_REMEMBERED = 50_000  # maximum rows of a day that are remembered, so that they are not written again


class ViewingTable:
    """The viewings: who saw whose figures. Equal viewings of a day are stored once."""

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer
        self._kept_s, self._most = float(KEPT_S), MOST_A_DAY
        self._stored: set[Viewing] = set()

    def set_limits(self, *, kept_s: float, max_people_per_day: int) -> None:
        """Set the limits. `kept_s`: retention; 0 stores nothing. `max_people_per_day`: people per viewer and day."""
        self._kept_s, self._most = kept_s, max_people_per_day

    def forget_stored_viewings(self) -> None:
        """Forget which rows are known to be stored, because an erasure has changed them."""
        self._stored.clear()

    async def add(self, viewings: Iterable[Viewing], viewed_at: float) -> None:
        """Store the viewings of a request that began at `viewed_at` (epoch seconds). Delete old viewings."""
        new = {*viewings} - self._stored
        if not new or not self._kept_s:
            return

        def add_viewings(registry_rows: RegistryRows) -> None:
            registry_rows.delete_viewings_before(day_text(int(viewed_at - self._kept_s)))
            for viewing in self._merge_beyond_limit(
                registry_rows, self._replace_erased(registry_rows, new, viewed_at)
            ):
                registry_rows.add_viewing(viewing)

        def remember_stored_viewings(_: None) -> None:
            if len(self._stored) > _REMEMBERED or any(
                each.day != day_text(int(viewed_at)) for each in self._stored
            ):
                self.forget_stored_viewings()
            self._stored |= new

        await self._changes.change_rows(add_viewings, remember_stored_viewings)

    def _replace_erased(
        self, registry_rows: RegistryRows, viewings: Iterable[Viewing], viewed_at: float
    ) -> list[Viewing]:
        erased = pseudonyms_by_digest(stored_erasures(registry_rows))
        people, viewed = self._changes.people, CallTime(int(viewed_at * NS) - 1)
        return [
            replace(
                each,
                viewer=people.pseudonym(each.viewer, viewed, erased),
                person=people.pseudonym(each.person, viewed, erased),
            )
            for each in viewings
        ]

    def _merge_beyond_limit(
        self, registry_rows: RegistryRows, viewings: Sequence[Viewing]
    ) -> Iterable[Viewing]:
        known = registry_rows.viewed_people(viewings[0].day, viewings[0].viewer) - {SEVERAL}
        for person in sorted({each.person for each in viewings}):
            if len(known) < self._most:
                known.add(person)
        return [each if each.person in known else replace(each, person=SEVERAL) for each in viewings]

    async def page(self, query: ListQuery) -> ListPage[Viewing]:
        return await self._changes.read(lambda rows: rows.viewing_page(query))

    async def viewings_naming(self, names: Iterable[str]) -> Sequence[Viewing]:
        return await self._changes.read(
            lambda rows: [row for name in names for row in rows.viewings_naming(name)]
        )
