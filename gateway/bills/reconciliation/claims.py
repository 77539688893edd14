"""What explains a difference, and what is left of it: each claim takes its exact share before the next test. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from gateway.bills.reconciliation.cells import Entry, Split
from gateway.bills.reconciliation.rate_series import of_model
from gateway.bills.reconciliation.sides import OTHER, RATE, VOLUME, Cell, Place
from gateway.bills.reconciliation.wording import dollars

# How sure a claim is: an identity or an id; two independent numbers that agree; the shape of the difference
# alone.
EXACT, STRONG, WEAK = "exact", "strong", "weak"
APART = 50  # one in so many dollars of a claim about tokens may be of their price without a word
# In place of a name: what else is claimed of the same days and models, what is claimed of their prices, and what
# of kinds of input.
OTHERS, PRICES, KINDS = "(others)", "(prices)", "(kinds)"
OF_PRICES = frozenset({"price_change", "price_on_days", "discount", "tier", "region", "long_context"})
OF_KINDS = frozenset({"cache_split", "cache_ttl_1h"})
EXCHANGED = 0.1  # of the tokens that one side lacks, so many may be too many elsewhere
MOST_NAMES = 20  # of models, keys or regions that a claim lists


class Portion(NamedTuple):
    """What is claimed of an entry: of its amount, and of its tokens."""

    amount: int
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """
    A cause and its share of the difference. `amount` and `tokens` are billed less counted; `moved` is the
    same without regard to sign, day by day, and halved where days only exchange: the size of the cause.
    `is_of_tokens`: it is about tokens or their prices, and not about other lines of a bill.
    """

    cause: str
    amount: int
    tokens: int
    moved: int
    sure: str
    evidence: str
    advice: str
    days: tuple[int, ...] = ()
    models: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    by_cell: Mapping[Cell, int] = field(default_factory=dict, repr=False)
    since: int = 0  # the day from which it holds; 0: from the first
    is_of_tokens: bool = True
    beside: tuple[str, ...] = ()  # causes that hold in its place as well, and cannot be told apart from it


@dataclass(frozen=True, kw_only=True)
class Case:
    """
    What the tests look at. `key_tokens`: billed tokens by key, and by day and model, of keys that no key of
    ours is known for; `own_keys`: tokens by day of our keys that none of the provider is known for. `hours`:
    counted tokens by hour, also of a day before and after. `precision`: by day, the last digit in which the
    statement writes amounts.
    """

    split: Split
    left: Left
    key_tokens: Mapping[str, Mapping[tuple[int, str], int]] = field(default_factory=dict)
    own_keys: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    hours: Mapping[int, int] = field(default_factory=dict)
    days: tuple[int, ...] = ()
    precision: Mapping[int, int] = field(default_factory=dict)

    def is_rounded(self, entry: Entry) -> bool:
        """True if the rest of a rate is at most half of the last digit of each of its lines."""
        _, cell, meter = entry
        digit = self.precision.get(cell.day, 0)
        return 2 * abs(self.left.amounts.get(entry, 0)) <= digit * max(
            1, self.split.lines.get((cell, meter), 0)
        )

    def taken(
        self,
        cause: str,
        entries: list[Entry],
        sure: str,
        evidence: str,
        advice: str,
        portions: Mapping[Entry, Portion] | None = None,
        beside: Sequence[str] = (),
    ) -> Iterator[Claim]:
        """Claim portions of entries, or all with the rates of their cells; none if nothing is left."""
        entries = entries if portions else self.left.with_rates(entries)
        claim = self.left.take(
            cause, entries, sure=sure, evidence=evidence, advice=advice, portions=portions, beside=beside
        )
        if claim is not None:
            yield claim

    def models(self) -> list[str]:
        return sorted(
            {cell.model for cell in (*self.split.billed, *self.split.counted, *self.split.billed_money)}
        )


class Left:
    """The parts that no cause has claimed yet, and the tokens behind them."""

    def __init__(self, split: Split) -> None:
        self._split = split
        self.amounts: dict[Entry, int] = dict(split.parts)
        self.extra: dict[Place, int] = dict(split.extra)
        self.told: set[Cell] = set()  # whose calls are explained: those of one side alone
        self.untold_tiers: set[tuple[str, str]] = (
            set()
        )  # keys and models some calls of which name another tier
        self.counted_again: set[str] = set()  # models of which more was counted than billed
        self.may_be_silent: list[int] = []  # days with hours without a call, which may lack them by chance
        self.shift = 0  # hours by which the ledger's times are ahead of the statement's days
        self._priced: set[Place] = set()  # whose rate was claimed as a whole
        self._fine: dict[Place, list[Cell]] = defaultdict(list)  # cells of each cell of money

    @property
    def unexplained(self) -> int:
        return sum(self.amounts.values())

    def paid(self, cell: Cell, meter: str) -> int | None:
        """
        Return the money billed for tokens, less the claimed portions of their rate; None if all of it was
        claimed, or if one side alone has the tokens, whose price may be another.
        """
        entry = (RATE, cell, meter)
        if (cell, meter) in self._priced or (entry not in self.amounts and self._are_told(cell, meter)):
            return None
        return self._split.paid[cell, meter] - self._split.parts.get(entry, 0) + self.amounts.get(entry, 0)

    def _are_told(self, cell: Cell, meter: str) -> bool:
        """True if all calls with tokens of a kind are explained, of a cell of money."""
        if not self._fine:
            for fine, kind in self._split.values:
                self._fine[self._split.levels.coarse(fine), kind].append(fine)
        cells = self._fine.get((cell, meter), ())
        return bool(cells) and all(each in self.told for each in cells)

    def volume(self) -> list[Entry]:
        """Entries of volume that are left, also those without a price."""
        return [(VOLUME, cell, meter) for cell, meter in self.extra]

    def with_rates(self, volume: Iterable[Entry]) -> list[Entry]:
        """
        Entries of volume, and those of the rates in their cells that no price explains.

        Calls that one side has alone may be larger than the others, or of a tier that is not told: their
        price then shows as a rate that comes and goes with them, while a price that differs is the same from
        day to day. Where every call of a model has the listed price, it is theirs only if it is one share of
        what they are worth.
        """
        entries = list(volume)
        coarse = {self._split.levels.coarse(cell) for _, cell, _ in entries}
        for model in {cell.model for cell in coarse}:
            rates = [entry for entry in self.rates(model) if entry[1] in coarse]
            series = of_model(self._split, model, {meter for _, _, meter in rates}, self.paid)
            unsteady = {meter for meter, each in series.items() if not each.is_steady()}
            of_calls = [entry for entry in rates if entry[2] in unsteady or entry[2] not in series]
            if (
                model in self._split.varying
                or not self._split.levels.tier
                or self._is_one_share(entries, of_calls)
            ):
                entries += of_calls
        return entries

    def shares_of_rates(self, entries: Sequence[Entry]) -> dict[Entry, Portion]:
        """
        Return the portions of rates among entries, if tokens that are not among them are of one side in the
        same place of money: each has as much of a rate as of the worth of these tokens.
        """
        chosen = set(entries)
        own: dict[Place, int] = defaultdict(int)
        whole: dict[Place, int] = defaultdict(int)
        for entry in self.volume():
            place = self._split.levels.coarse(entry[1]), entry[2]
            worth = abs(self.amounts.get(entry, 0))
            whole[place] += worth
            own[place] += worth if entry in chosen else 0
        return {
            entry: self.portion(entry, Fraction(own[place], whole[place]))
            for entry in entries
            if entry[0] == RATE and 0 < own[place := (entry[1], entry[2])] < whole[place]
        }

    def _is_one_share(self, volume: Sequence[Entry], rates: Sequence[Entry]) -> bool:
        """True if rates are the same share of the tokens of one side in each cell."""
        worth: dict[Place, int] = defaultdict(int)
        for entry in volume:
            if entry[0] == VOLUME:
                worth[self._split.levels.coarse(entry[1]), entry[2]] += self.amounts.get(entry, 0)
        whole = sum(worth[cell, meter] for _, cell, meter in rates)
        if not whole:
            return False
        share = Fraction(sum(self.amounts[entry] for entry in rates), whole)
        apart = sum(abs(self.amounts[entry] - share * worth[entry[1], entry[2]]) for entry in rates)
        return apart * APART <= sum(abs(self.amounts[entry]) for entry in rates)

    def of(self, part: str) -> list[Entry]:
        return [entry for entry in self.amounts if entry[0] == part]

    def rates(self, model: str) -> list[Entry]:
        """Entries of a model's rates that are left."""
        return [entry for entry in self.of(RATE) if entry[1].model == model]

    def take(
        self,
        cause: str,
        entries: Iterable[Entry],
        *,
        sure: str,
        evidence: str,
        advice: str,
        exchange: bool = False,
        since: int = 0,
        regions: Iterable[str] = (),
        portions: Mapping[Entry, Portion] | None = None,
        tells_calls: bool = False,
        beside: Iterable[str] = (),
    ) -> Claim | None:
        """
        Claim these entries as a whole, or the `portions` given of some, also of those that came to nothing
        because two causes undo each other; None if nothing of them is left.

        `tells_calls`: all calls of their cells are of one side, so that no number of calls is compared there
        any more. `beside`: causes that cannot be told apart from this one; OTHERS, PRICES and KINDS stand for
        those that other tests claim in the same place.
        """
        amount = tokens = priced = prices = 0
        by_cell: dict[Cell, int] = defaultdict(int)
        by_day: dict[int, int] = defaultdict(int)
        taken, parts = False, set()
        priced_whole: set[Place] = set()
        for entry in entries:
            part, cell, meter = entry
            share = self.amounts.pop(entry, None)
            moved_tokens = self.extra.pop((cell, meter), None) if part == VOLUME else None
            portion = portions.get(entry) if portions else None
            if share is None and moved_tokens is None and portion is None:
                continue
            if portion is not None:
                share, moved_tokens = self._leave(entry, share, moved_tokens, portion)
            taken = True
            parts.add(part)
            if part == RATE and portion is None:
                priced_whole.add((cell, meter))
            if part == VOLUME and tells_calls:
                self.told.add(cell)
            amount += share or 0
            priced += (share or 0) if part == RATE else 0
            prices += abs(share or 0) if part == RATE else 0
            tokens += moved_tokens or 0
            by_cell[cell] += share or 0
            by_day[cell.day] += share or 0
        if not taken:
            return None
        if not portions or VOLUME in parts:  # what a claim of tokens has taken tells no price any more
            self._priced |= priced_whole
        moved = sum(map(abs, by_day.values()))
        if VOLUME in parts and prices * APART > abs(amount):  # also where they undo each other
            evidence += f"; {dollars(priced)} of it is another price of these tokens"
            beside = (*beside, PRICES)
        return Claim(
            cause=cause,
            amount=amount,
            tokens=tokens,
            moved=moved // 2 if exchange else moved,
            sure=sure,
            evidence=evidence,
            advice=advice,
            days=tuple(sorted(by_day)),
            models=tuple(sorted({cell.model for cell in by_cell if cell.model})[:MOST_NAMES]),
            keys=tuple(sorted({cell.key for cell in by_cell if cell.key})[:MOST_NAMES]),
            regions=tuple(sorted(regions)[:MOST_NAMES]),
            by_cell=dict(by_cell),
            since=since,
            is_of_tokens=parts != {OTHER},
            beside=tuple(dict.fromkeys(beside)),
        )

    def portion(self, entry: Entry, share: Fraction) -> Portion:
        """A share of what is left of an entry."""
        part, cell, meter = entry
        tokens = self.extra.get((cell, meter), 0) if part == VOLUME else 0
        return Portion(round(self.amounts.get(entry, 0) * share), round(tokens * share))

    def beside(self, entry: Entry, portion: Portion) -> Portion:
        """Return the rest of an entry after a portion of it."""
        _, cell, meter = entry
        amount = self.amounts.get(entry, 0)
        tokens = self.extra.get((cell, meter), 0)
        return Portion(amount - portion.amount, tokens - portion.tokens)

    def said(self, entry: Entry) -> Portion:
        """Return the statement's part of an entry of volume, at our prices and in tokens."""
        _, cell, meter = entry
        split = self._split
        return Portion(
            split.values.get((cell, meter), 0) + split.parts.get(entry, 0), self.said_tokens(cell, meter)
        )

    def said_tokens(self, cell: Cell, meter: str) -> int:
        """Return the tokens of a place that the statement tells."""
        split = self._split
        own = split.counted[cell].tokens.get(meter, 0) if cell in split.counted else 0
        return own + split.extra.get((cell, meter), 0)

    def _leave(
        self, entry: Entry, share: int | None, tokens: int | None, portion: Portion
    ) -> tuple[int, int | None]:
        """A portion of an entry that was taken out; what is beside it is left again."""
        part, cell, meter = entry
        is_all = part == VOLUME and tokens is not None and abs(tokens - portion.tokens) <= 1
        if is_all:
            return share or 0, tokens
        if (share or 0) != portion.amount:
            self.amounts[entry] = (share or 0) - portion.amount
        if part == VOLUME and (tokens or 0) != portion.tokens:
            self.extra[cell, meter] = (tokens or 0) - portion.tokens
        return portion.amount, portion.tokens
