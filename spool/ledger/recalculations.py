"""
Recalculations of estimates, and the estimate that each call has after them.

The newest recalculation decides that covers the call, was made after the call was counted, and has a price.
If there is none, the record's own estimate stays. Each record of a call follows this rule with its own
tokens, so the order of late reports, corrections and rebuilds does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from zlib import compress, decompress

from spool.cost_kinds import ESTIMATED, REPORTED
from spool.ledger.counting import RECALCULATED, finest_stored_period, read_state
from spool.ledger.ledger_rows import LedgerRows, Recalculation, new_data_version
from spool.ledger.repricing import Pricer, new_cost_estimate
from spool.ledger.sums import Dimensions, call_sum
from spool.log.amendments import replace_fields
from spool.record import Inference

# opens a price book from `Pricer.encode_rate_card_and_overrides`
OpenBook = Callable[[bytes, bytes], Pricer]
BookOf = Callable[[], Pricer]
# function that gets a recalculation, the start of a period, a call's dimensions, and whether it has a price
NotePriced = Callable[[int, int, Dimensions, bool], None]
_OPEN_BOOKS = 64  # limit of price books in memory; recalculations with one price list share a book


class Recalculations:
    """
    The recalculations at one moment, with their price books. `mark`: a number in the state of the totals that
    changes with each recalculation.
    """

    def __init__(self, mark: int = 0, made: Sequence[tuple[Recalculation, BookOf]] = ()) -> None:
        self.mark = mark
        self.reach = max((each.reach for each, _ in made), default=0)
        self._newest_first = made[::-1]

    def covers(self, period_s: int, start: int) -> bool:
        return any(start + period_s > made.since for made, _ in self._newest_first)

    def recalculated_call(
        self,
        call: Inference,
        record_number: int | None,
        hour: int,
        *,
        note_recalculation: NotePriced | None = None,
    ) -> Inference:
        """
        Return a call with the estimate that recalculations gave to its sums. If the record's `record_number` is
        unknown, return the call unchanged. `note_recalculation` is called with each recalculation that covers the call,
        until one has a price.
        """
        if record_number is None or record_number >= self.reach or (row := call_sum(call)) is None:
            return call
        for index, (made, book) in enumerate(self._newest_first):
            width, start = finest_stored_period(hour, made.hourly)
            if record_number >= made.reach or start < made.since:
                continue
            estimate = new_cost_estimate(book(), width, start, *row)
            if note_recalculation is not None:
                note_recalculation(index, start, row[0], estimate is not None)
            if estimate is not None:
                source = call.cost_source if call.cost_source == REPORTED else ESTIMATED
                return replace_fields(call, {"estimated_cost": estimate, "cost_source": source})
        return call


class RecalculationPriceBooks:
    """
    The price books of recalculations, a few of them cached. `open`: opens a book; set when the storage is
    opened.
    """

    def __init__(self) -> None:
        self.open: OpenBook | None = None
        self._opened: dict[tuple[str, bytes], Pricer] = {}

    def recalculations(self, ledger_rows: LedgerRows) -> Recalculations:
        lists = ledger_rows.price_lists()
        made = [
            (each, partial(self._open_book, each, lists[each.list])) for each in ledger_rows.recalculations()
        ]
        return Recalculations(ledger_rows.state_values().get(RECALCULATED, 0), made)

    def store_recalculation(
        self, ledger_rows: LedgerRows, book: Pricer, *, since_s: int, began: float
    ) -> None:
        state = read_state(ledger_rows)
        text, own = book.encode_rate_card_and_overrides()
        digest = blake2b(text, digest_size=16).hexdigest()
        # while a rebuild runs, `reach` starts again, but records before `rebuilding` were counted earlier
        reach = max(state["reach"], state["rebuilding"])
        made = Recalculation(began, since_s, reach, state["hourly"], digest, own)
        ledger_rows.add_price_list(digest, compress(text))
        ledger_rows.add_recalculation(made)
        ledger_rows.set_state(**{RECALCULATED: new_data_version()})
        self._remember_book(made, book)

    def _open_book(self, recalculation: Recalculation, packed: bytes) -> Pricer:
        book = self._opened.get((recalculation.list, recalculation.own))
        if book is None:
            assert self.open is not None, "the ledger has no function that opens price books"
            self._remember_book(recalculation, book := self.open(decompress(packed), recalculation.own))
        return book

    def _remember_book(self, recalculation: Recalculation, book: Pricer) -> None:
        if len(self._opened) >= _OPEN_BOOKS:
            self._opened.clear()
        self._opened[recalculation.list, recalculation.own] = book
