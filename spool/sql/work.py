"""Sums of units of work in SQL (spool/ledger/work.py)."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from spool.ledger.counting import MAX_TEXT, cut_and_cleaned_text, new_data_versions_by_month
from spool.ledger.ledger_rows import FoundNumbers, WorkSum
from spool.ledger.sums import DAY_S, Dimensions, Measures
from spool.ledger.work import (
    FORGOTTEN,
    KINDS,
    NONE,
    OTHER,
    REST,
    RUN,
    SESSION,
    TREES,
    UNITS,
    UNLISTS,
    RunLineage,
    RunTree,
    break_cycles,
    unit_digest_text,
    unit_number_from_name_or_digest,
    unit_numbers,
    unit_set_number,
)
from spool.ledger.work_links import TARGETS, WorkUnitLinks
from spool.sql import work_links
from spool.sql.columns import insert_sql
from spool.sql.connection import SqlConnection
from spool.sql.dimensions import KEY
from spool.sql.run_trees import (
    ancestor_runs_sql,
    descendant_runs_sql,
    lineage_sql,
    used_unit_sets_and_run_links_sql,
)

if TYPE_CHECKING:
    from spool.ledger.dimensions import DerivedDimension
    from spool.ledger.queries import CostQuery
    from spool.ledger.work import Units

WORK, SETS, NAMES, UNLISTED = "work", "work_units", "work_names", "work_unlisted"
_COLUMNS = {name: f"unit_{name}" for name in UNITS}
_PARENT = "parent_run"
_SET = (*_COLUMNS.values(), _PARENT)
_NAMES = ", ".join(_SET)
_RUN = _SET.index(_COLUMNS[RUN])
# Columns of a place in the trees of runs. The parent matters only for an unlisted run.
_OF_PLACE = (
    f"h.{_COLUMNS[RUN]}",
    f"h.{_COLUMNS[SESSION]}",
    f"CASE h.{_COLUMNS[RUN]} WHEN {REST} THEN h.{_PARENT} ELSE {NONE} END",
)
_PLACE = " || ' ' || ".join(f"CAST({column} AS text)" for column in _OF_PLACE)
_WIDTH = len(Dimensions._fields)
_MOST_UNLISTED = 10_000  # maximum units of work that one step unlists, because it holds their sums in memory
_MOST_SETS = 5000  # maximum sets of units that are looked up; for more, the whole time range is read


class SqlWorkRows(ABC):
    """The part of `spool.ledger.ledger_rows.LedgerRows` for units of work."""

    columns: ClassVar[Sequence[str]]
    shown: ClassVar[Sequence[str]]
    about: ClassVar[str]
    prefix: ClassVar[str]
    cast: ClassVar[Mapping[str, str]] = {}  # column types other than bigint
    listed: ClassVar[str]  # SQL template: {} is a list of numbers, and the query returns one row each
    hexadecimal: ClassVar[str]  # SQL template: the number {} as 16 hexadecimal digits
    _tables: SqlConnection

    if TYPE_CHECKING:
        state_values: Callable[[], Mapping[str, int]]
        set_state: Callable[..., None]

    @abstractmethod
    def _read_measures(self, values: Sequence[Any]) -> Measures: ...

    @abstractmethod
    def _table(self, table: str) -> str: ...

    @abstractmethod
    def numbers_with_derived_value(self, dimension: DerivedDimension) -> Sequence[int]:
        """Return the numbers of the sets of dimensions that have a value in a derived dimension."""

    @abstractmethod
    def _add_measures_to_table(
        self, table: str, key_columns: Sequence[str], sums: Iterable[tuple[tuple[int, ...], Measures]]
    ) -> None: ...

    def add_unit_sums(
        self, sums: Iterable[WorkSum], names: Mapping[int, str], run_start_sets: Collection[Units] = ()
    ) -> None:
        sums = list(sums)
        found = {*run_start_sets, *[units for _, units, _, _ in sums]}
        unlisted = self._parent_by_merged_unit(found)
        if unlisted:
            self._note_last_seen(unlisted, max(start for start, *_ in sums))
        sets = {units: _replace_merged_units_with_rest(units, unlisted) for units in found}
        numbers = self._store_unit_sets_and_return_numbers({*sets.values()})
        self._add_unit_names(names)
        self._add_unit_sums(
            (start, numbers[sets[units]], key, measures) for start, units, key, measures in sums
        )

    def _store_unit_sets_and_return_numbers(self, unit_sets: Collection[Units]) -> Mapping[Units, int]:
        numbers = {units: unit_set_number(units) for units in unit_sets}
        values = ", ".join(f":{name}" for name in _SET)
        self._tables.run_each(
            f"INSERT INTO {self._table(SETS)} (id, {_NAMES}) VALUES (:id, {values}) ON CONFLICT (id) DO NOTHING",
            [
                dict(zip(("id", *_SET), (number, *units), strict=True))
                # sets with close numbers are on one page
                for units, number in sorted(numbers.items(), key=itemgetter(1))
            ],
        )
        return numbers

    def _add_unit_names(self, names: Mapping[int, str]) -> None:
        self._tables.run_each(
            f"INSERT INTO {self._table(NAMES)} (id, name) VALUES (:id, :name) ON CONFLICT (id) DO NOTHING",
            [{"id": id, "name": cut_and_cleaned_text(name)} for id, name in sorted(names.items())],
        )

    def _add_unit_sums(self, sums: Iterable[tuple[int, int, int, Measures]]) -> None:
        places = (((start, units, key), measures) for start, units, key, measures in sums)
        self._add_measures_to_table(WORK, ("start", "units", "key"), places)

    def ids_merged_into_other(self, unit_kind: str, ids: Collection[int]) -> Collection[int]:
        return {id for _, id in self._read_parent_by_merged_unit(UNITS[unit_kind].number, ids)}

    def merged_unit_count_by_kind(self) -> Mapping[str, int]:
        counts = dict(self._tables.all(f"SELECT unit, COUNT(*) FROM {self._table(UNLISTED)} GROUP BY unit"))
        return {name: int(counts.get(unit.number, 0)) for name, unit in UNITS.items()}

    def _parent_by_merged_unit(self, unit_sets: Iterable[Units]) -> Mapping[tuple[int, int], int]:
        found: dict[tuple[int, int], int] = {}
        numbers = (
            [{*column} for column in zip(*unit_sets, strict=True)] if self.state_values().get(UNLISTS) else []
        )
        for kind, among in zip(KINDS, numbers, strict=False):
            found |= self._read_parent_by_merged_unit(kind, among)
        runs = {*found.values()}
        while runs := {run for run in runs if run > REST and (KINDS[-1], run) not in found}:
            noted = self._read_parent_by_merged_unit(KINDS[-1], runs)
            found |= noted
            runs = {*noted.values()}
        return found

    def _read_parent_by_merged_unit(
        self, unit_kind: int, numbers: Collection[int]
    ) -> Mapping[tuple[int, int], int]:
        statement = f"SELECT id, {_PARENT} FROM {self._table(UNLISTED)} WHERE unit = :kind AND id IN :ids"
        ids = sorted(number for number in numbers if number > REST)
        rows = self._tables.all(statement, kind=unit_kind, ids=ids) if ids else ()
        return {(unit_kind, id): parent for id, parent in rows}

    def _note_last_seen(self, unlisted: Collection[tuple[int, int]], start: int) -> None:
        where = "unit = :unit AND id = :id AND seen < :start"
        statement = f"UPDATE {self._table(UNLISTED)} SET seen = :start WHERE {where}"
        self._tables.run_each(
            statement, [{"unit": unit, "id": id, "start": start} for unit, id in sorted(unlisted)]
        )

    def unit_sums_of_calls(self, start: int) -> Sequence[tuple[int, int, Dimensions, Measures]]:
        rows = self._tables.all(
            f"SELECT h.units, h.key, {KEY}, {', '.join(self.shown)} FROM {self._table(WORK)} h"
            f" JOIN {self._table('keys')} k ON k.id = h.key WHERE h.start = :start AND k.kind = 'call'",
            start=start,
        )
        end = 2 + _WIDTH
        return [(row[0], row[1], Dimensions(*row[2:end]), self._read_measures(row[end:])) for row in rows]

    def unit_sums_page(
        self, start: int, after: tuple[int, int], max_sums: int
    ) -> Sequence[tuple[int, int, Measures]]:
        rows = self._tables.all(
            f"SELECT h.units, h.key, {', '.join(self.shown)} FROM {self._table(WORK)} h"
            " WHERE h.start = :start AND (h.units, h.key) > (:units, :key) ORDER BY h.units, h.key LIMIT :most",
            start=start,
            units=after[0],
            key=after[1],
            most=max_sums,
        )
        return [(units, key, self._read_measures(values)) for units, key, *values in rows]

    def numbers_of_counted_unit_sets(self, unit_sets: Collection[Units]) -> Mapping[Units, int]:
        unlisted = self._parent_by_merged_unit(unit_sets)
        return {
            units: unit_set_number(_replace_merged_units_with_rest(units, unlisted)) for units in unit_sets
        }

    def units_of_set_number(self, set_number: int) -> Mapping[str, str]:
        row = self._tables.first_row(
            f"SELECT {_NAMES} FROM {self._table(SETS)} WHERE id = :id", id=set_number
        )
        named = f"SELECT id, name FROM {self._table(NAMES)} WHERE id IN :ids"
        names = dict(self._tables.all(named, ids=[id for id in row if id > REST])) if row else {}
        return {
            unit: OTHER
            if id == REST
            else names.get(id, unit_digest_text(RUN if unit == _PARENT else unit, id))
            for unit, id in zip((*UNITS, _PARENT), row or (), strict=bool(row))
            if id != NONE
        }

    def unit_sets_with_wrong_hash(self, after_number: int, most: int) -> FoundNumbers:
        statement = f"SELECT id, {_NAMES} FROM {self._table(SETS)} WHERE id > :after ORDER BY id LIMIT :most"
        rows = self._tables.all(statement, after=after_number, most=most)
        wrong = [id for id, *units in rows if id != unit_set_number(tuple(units))]
        return wrong, rows[-1][0] if rows else None

    def unit_names_with_wrong_hash(self, after_number: int, most: int) -> FoundNumbers:
        statement = f"SELECT id, name FROM {self._table(NAMES)} WHERE id > :after ORDER BY id LIMIT :most"
        rows = self._tables.all(statement, after=after_number, most=most)
        named = [unit for unit in UNITS if UNITS[unit].is_named]
        wrong = [
            id
            for id, name in rows
            if len(name) < MAX_TEXT
            and id not in {unit_number_from_name_or_digest(unit, name) for unit in named}
        ]
        return wrong, rows[-1][0] if rows else None

    def delete_damaged_rows(self) -> None:
        used = f"SELECT units FROM {self._table(WORK)}"
        for find, table, kept in (
            (self.unit_sets_with_wrong_hash, SETS, f" AND id NOT IN ({used})"),
            (self.unit_names_with_wrong_hash, NAMES, ""),
        ):
            after: int | None = -1
            while after is not None:
                wrong, after = find(after, _MOST_SETS)
                self._tables.run(f"DELETE FROM {self._table(table)} WHERE id IN :wrong{kept}", wrong=wrong)

    def replace_unit_sums(
        self,
        start: int,
        removed_keys: Iterable[tuple[int, int]],
        added_sums: Iterable[tuple[int, int, Measures]],
    ) -> None:
        self._tables.run_each(
            f"DELETE FROM {self._table(WORK)} WHERE start = :start AND units = :units AND key = :key",
            [{"start": start, "units": units, "key": key} for units, key in sorted(removed_keys)],
        )
        self._add_unit_sums((start, units, key, measures) for units, key, measures in added_sums)

    def delete_unit_sums(self, start: int) -> None:
        self._tables.run(f"DELETE FROM {self._table(WORK)} WHERE start = :start", start=start)

    def work_unit_names_containing(
        self, text: str, max_units: int, skipped_units: int
    ) -> Sequence[tuple[int, str]]:
        literal = re.sub("[!%_]", r"!\g<0>", text.lower())
        fits = "lower(name) LIKE :{} ESCAPE '!'".format
        rank = f"CASE WHEN {fits('number')} THEN 0 WHEN {fits('begin')} THEN 1 ELSE 2 END"
        rows = self._tables.all(
            f"SELECT id, name FROM {self._table(NAMES)} WHERE {fits('part')} ORDER BY {rank}, name, id"
            " LIMIT :most OFFSET :skipped",
            part=f"%{literal}%",
            number=f"%#{literal.removeprefix('#')}",
            begin=f"{literal}%",
            most=max_units,
            skipped=skipped_units,
        )
        return [(id, name) for id, name in rows]

    def individual_unit_count_by_kind(self, since_s: int, until_s: int) -> Mapping[str, int]:
        counts = ", ".join(
            f"COUNT(DISTINCT CASE WHEN {name} > {REST} THEN {name} END)" for name in _COLUMNS.values()
        )
        row = self._tables.first_row(
            f"SELECT {counts} FROM {self._sums_with_units_sql()} "
            "WHERE calls <> 0 AND start >= :since AND start < :until",
            since=since_s,
            until=until_s,
        )
        return dict(zip(_COLUMNS, map(int, row), strict=True))

    def cheapest_unit_ids_and_last_use(
        self, unit_kind: str, called_period: tuple[int, int], cost_period: tuple[int, int], most: int
    ) -> Sequence[tuple[int, int]]:
        column = _COLUMNS[unit_kind]
        among = (
            f"{self._sums_with_units_sql()} WHERE {column} > {REST} AND calls <> 0 AND start >= :begin AND start < :end"
            f" AND {column} NOT IN ({self._linked_units_sql(unit_kind)})"
        )
        return self._tables.all(
            f"SELECT h.{column}, MAX(h.start) FROM (SELECT * FROM {among}) h"
            f" JOIN {self._table('keys')} k ON k.id = h.key GROUP BY h.{column}"
            " HAVING MAX(CASE WHEN h.start >= :since AND h.start < :until THEN 1 ELSE 0 END) = 1"
            f" ORDER BY SUM({self.about}), h.{column} LIMIT :most",
            since=called_period[0],
            until=called_period[1],
            begin=cost_period[0],
            end=cost_period[1],
            most=most,
        )

    def _sums_with_units_sql(self, query: CostQuery | None = None, sums_sql: str = "") -> str:
        """
        Return SQL for sums with the columns of their units of work. A call without its own unit of a kind
        counts under the unit that a link gives it. `sums_sql`: replaces the table of sums.
        """
        pairs, named = self._linked_pairs_mask(), UNITS if query is None else query.used_dimensions
        linked, links = work_links.join_links_sql(pairs, self._table(work_links.LINKS), _COLUMNS, named)
        units = {name: linked.get(name, f"p.{column}") for name, column in _COLUMNS.items()}
        joined = f"{'sums' if sums_sql else self._table(WORK)} w JOIN {self._table(SETS)} p ON p.id = w.units{links}"
        shown = ", ".join(f"{units[name]} AS {column}" for name, column in _COLUMNS.items())
        rows = (
            f"{sums_sql and f'WITH sums AS MATERIALIZED ({sums_sql}) '}"
            f"SELECT w.*, {shown}, p.{_PARENT} FROM {joined}"
        )
        return f"({rows}) of_units"

    def run_tree(self, query: CostQuery, since_s: int, until_s: int) -> RunTree:
        sets, pairs, seen = self._table(SETS), self._linked_pairs_mask(), self._visible_sets_sql(query)
        few = self._condition_if_few_unit_sets(query)
        used = f"SELECT units FROM {self._table(WORK)} WHERE start >= {since_s} AND start < {until_s}"
        links = self._table(work_links.LINKS) if work_links.has_parent_links(pairs, RUN) else ""
        rows = self._tables.all(
            ancestor_runs_sql(
                sets, f"{used}{few and f' AND {few}'}", links_table=links, visible_unit_sets_sql=seen
            )
        )
        parents, sessions = dict[int, int](), defaultdict[int, list[int]](list)
        for run, session, parent in rows:
            sessions[run].append(session)
            if parent is not None:
                parents[run] = min(parent, parents.get(run, parent))
        for run, parent in self._parent_number_by_linked_unit(RUN).items():
            if run in sessions or not seen:
                parents.setdefault(run, parent)
        forks = self._parent_number_by_linked_unit(SESSION) if query.unit_of_work == SESSION else {}
        hidden = {*parents.values()} - sessions.keys() if seen and query.unit_of_work == RUN else set[int]()
        if forks and seen:
            ends = _number_list_sql({*forks, *forks.values()})
            found = (
                f"SELECT DISTINCT unit_session FROM {sets} WHERE unit_session IN ({ends}) AND id IN ({seen})"
            )
            visible = {session for (session,) in self._tables.all(found)}
            hidden = {*forks.values()} - visible
            forks = {session: above for session, above in forks.items() if session in visible}
        return RunTree(parents=break_cycles(parents), sessions=sessions, forks=forks, hidden=hidden)

    def _parent_number_by_linked_unit(self, unit_kind: str) -> Mapping[int, int]:
        if not work_links.has_parent_links(self._linked_pairs_mask(), unit_kind):
            return {}
        links = (
            f"SELECT id, linked FROM {self._table(work_links.LINKS)} WHERE target = {UNITS[unit_kind].number}"
        )
        return dict(self._tables.all(f"{links} AND linked > {REST}"))

    def _visible_sets_sql(self, query: CostQuery) -> str:
        if query.trees_of is None:
            return ""
        keys = self.listed.format(",".join(map(str, self.numbers_with_derived_value(query.trees_of))))
        since, until = _query_bounds_with_day_margins(query)
        return self._unit_sets_with_calls_sql(f"({keys})", str(since), str(until))

    def _unit_sets_with_calls_sql(self, keys: str, since_sql: str, until_sql: str) -> str:
        work = self._table(WORK)  # not DISTINCT, which takes most of the time
        with_calls = f"start >= {since_sql} AND start < {until_sql} AND calls <> 0"
        return f"SELECT units FROM {work} WHERE {with_calls} AND key IN {keys}"

    def _condition_if_few_unit_sets(self, query: CostQuery) -> str:
        """
        Return a condition on the sets of units that can pass, or "" if they are too many to list. For
        restricted people, it is always "", because the running time would reveal how many hidden sums pass.
        """
        if query.has_slice_filter:
            return ""
        sets, links = self._table(SETS), self._table(work_links.LINKS)
        few: set[int] | None = None
        for name, numbers in _chosen_units(query):
            # only for sessions, the index has unlisted units (REST) as well
            if not numbers or (min(numbers) <= REST and name != SESSION):
                continue
            found = [_unit_sets_with_any_number_sql(sets, name, numbers)]
            if query.aggregated and name == query.unit_of_work:
                linked = self._units_perhaps_linked_below(name, numbers)
                found = [descendant_runs_sql(sets, [*numbers, *linked], starts_from_runs=name == RUN)]
                if name == SESSION and (runs := self._units_perhaps_linked_below(RUN, ())):
                    found.append(
                        f"SELECT id FROM ({descendant_runs_sql(sets, runs, starts_from_runs=True)}) linked"
                    )
            elif name in TARGETS:
                found += work_links.linked_unit_sets_sql(
                    self._linked_pairs_mask(), links, sets, _COLUMNS, name, numbers
                )
            rows = self._tables.all(f"SELECT id FROM ({' UNION '.join(found)}) few LIMIT {_MOST_SETS + 1}")
            if len(rows) <= _MOST_SETS:
                ids = {id for (id,) in rows}
                few = ids if few is None else few & ids
        return "" if few is None else f"units IN ({_number_list_sql(sorted(few))})"

    def _units_perhaps_linked_below(self, unit_kind: str, unit_numbers: Sequence[int]) -> Collection[int]:
        """
        Return the numbers of sessions that are linked below these. For runs, return all linked runs, because
        reports may place them below.
        """
        parents = self._parent_number_by_linked_unit(unit_kind)
        if unit_kind == RUN:
            return parents.keys()
        children = defaultdict[int, list[int]](list)
        for child, parent in parents.items():
            children[parent].append(child)
        found, waiting = set[int](), [*unit_numbers]
        while waiting:
            below = children.pop(waiting.pop(), ())
            found.update(below)
            waiting += below
        return found

    def _can_add_up_by_unit_set(self, query: CostQuery) -> bool:
        """
        Return whether all calls with a set of units count under one unit of the query. If a link applies only
        for some time, such as a link of a branch, they may count under several.
        """
        is_by_unit = query.unit_of_work is not None and [*query.group_by] == [query.unit_of_work]
        return is_by_unit and not work_links.has_time_limited_links(
            self._linked_pairs_mask(), query.used_dimensions
        )

    def _condition_on_unit_sets_in_range(self, query: CostQuery, since_s: int, until_s: int) -> str:
        """
        Return a condition on the sets of units that can pass the filters and have sums in a range. It is ""
        for restricted people, because the time would reveal how many hidden sums pass.
        """
        if query.has_slice_filter:
            return ""
        pairs = self._linked_pairs_mask()
        terms = [
            f" AND p.{_COLUMNS[name]} IN ({_number_list_sql(numbers)})"
            for name, numbers in _chosen_units(query)
            if not (query.aggregated and name == query.unit_of_work)
            and not work_links.has_links_to(pairs, name)
        ]
        if not terms:
            return ""
        used = f"SELECT units FROM {self._table(WORK)} WHERE start >= {since_s} AND start < {until_s}"
        # the plus makes SQLite read the range instead of looking up each set
        return f"+units IN (SELECT p.id FROM {self._table(SETS)} p WHERE p.id IN ({used}){''.join(terms)})"

    def _linked_pairs_mask(self) -> int:
        return self.state_values().get(work_links.PAIRS, 0)

    def _linked_units_sql(self, unit_kind: str) -> str:
        return work_links.linked_units_sql(unit_kind, self._table(work_links.LINKS))

    def pull_requests_and_tickets_since(self, since_s: int) -> Collection[tuple[str, int]]:
        pairs = self._linked_pairs_mask()
        linked = {
            unit: self._linked_units_sql(unit) for unit in TREES if work_links.has_parent_links(pairs, unit)
        }
        return {
            (unit, number)
            for unit in (*TARGETS, *linked)
            for (number,) in self._tables.all(
                f"SELECT DISTINCT {_COLUMNS[unit]} FROM {self._sums_with_units_sql()} WHERE start >= :since"
                + (f" AND {_COLUMNS[unit]} IN ({linked[unit]})" if unit in linked else ""),
                since=since_s,
            )
        }

    def replace_links(self, unit_links: WorkUnitLinks) -> None:
        table = self._table(work_links.LINKS)
        self._tables.run(f"DELETE FROM {table}")
        self._tables.run_each(
            insert_sql(f"{self.prefix}{work_links.LINKS}", work_links.COLUMNS),
            work_links.link_rows(unit_links),
        )
        self._add_unit_names(
            {link.target_number: link.name for link in unit_links.links if link.target in TARGETS}
        )
        for statement in work_links.redirect_links_to_unlisted_sql(table, self._table(UNLISTED)):
            self._tables.run(statement)
        self.set_state(**work_links.ledger_state_of_unit_links(unit_links), **new_data_versions_by_month())

    def merge_units_into_other(self, unit_kind: str, ids: Collection[int]) -> None:
        [newest] = self._tables.first_row(f"SELECT COALESCE(MAX(start), 0) FROM {self._table(WORK)}")
        self._merge_units_into_other_in_steps(unit_kind, ids, newest)

    def merge_idle_units_into_other(self, unit_kind: str, before_s: int) -> None:
        column = _COLUMNS[unit_kind]
        expired = self._tables.all(
            f"SELECT {column} FROM {self._sums_with_units_sql()} WHERE {column} > {REST} AND calls <> 0"
            f" AND {column} NOT IN ({self._linked_units_sql(unit_kind)})"
            f" GROUP BY {column} HAVING MAX(start) < :before",
            before=before_s,
        )
        self._merge_units_into_other_in_steps(unit_kind, [id for (id,) in expired], before_s)

    def _merge_units_into_other_in_steps(self, unit_kind: str, ids: Collection[int], last_seen: int) -> None:
        ordered = sorted(ids)
        for first in range(0, len(ordered), _MOST_UNLISTED):
            self._merge_some_units_into_other(unit_kind, ordered[first : first + _MOST_UNLISTED], last_seen)

    def _merge_some_units_into_other(self, unit_kind: str, ids: Sequence[int], last_seen: int) -> None:
        changed = self._unit_sets_by_number(_COLUMNS[unit_kind], ids)
        parents = dict[int, int]()
        if unit_kind == RUN:
            for run, parent in sorted(
                {(units[_RUN], units[-1]) for units in changed.values() if units[-1] > REST}
            ):
                parents.setdefault(run, parent)
            changed |= self._unit_sets_by_number(_PARENT, ids)
        self._tables.run_each(
            f"INSERT INTO {self._table(UNLISTED)} (unit, id, {_PARENT}, seen) VALUES (:unit, :id, :parent, :seen)"
            " ON CONFLICT DO NOTHING",
            [
                {
                    "unit": UNITS[unit_kind].number,
                    "id": id,
                    "parent": parents.get(id, NONE),
                    "seen": last_seen,
                }
                for id in ids
            ],
        )
        self.set_state(**{UNLISTS: self.state_values().get(UNLISTS, 0) + 1}, **new_data_versions_by_month())
        for linked in work_links.redirect_links_to_unlisted_sql(
            self._table(work_links.LINKS), self._table(UNLISTED)
        ):
            self._tables.run(linked)
        self._move_sums_to_sets_without_merged_units(changed)

    def _unit_sets_by_number(self, column: str, numbers: Collection[int]) -> dict[int, Units]:
        statement = (
            f"SELECT id, {_NAMES} FROM {self._table(SETS)} WHERE {column} > {REST} AND {column} IN :numbers"
        )
        return {id: tuple(units) for id, *units in self._tables.all(statement, numbers=sorted(numbers))}

    def _move_sums_to_sets_without_merged_units(self, unit_sets: Mapping[int, Units]) -> None:
        unlisted = self._parent_by_merged_unit(unit_sets.values())
        listed = {
            number: _replace_merged_units_with_rest(units, unlisted) for number, units in unit_sets.items()
        }
        numbers = self._store_unit_sets_and_return_numbers({*listed.values()})
        work, moved = self._table(WORK), "units IN :sets"
        rows = self._tables.all(
            f"SELECT start, units, key, {', '.join(self.shown)} FROM {work} h WHERE {moved}",
            sets=sorted(unit_sets),
        )
        self._tables.run(f"DELETE FROM {work} WHERE {moved}", sets=sorted(unit_sets))
        self._tables.run(f"DELETE FROM {self._table(SETS)} WHERE id IN :sets", sets=sorted(unit_sets))
        self._add_unit_sums(
            (start, numbers[listed[units]], key, self._read_measures(values))
            for start, units, key, *values in rows
        )

    def forget_merges_of_idle_units(self, unit_kind: str, before_s: int) -> None:
        statement = f"DELETE FROM {self._table(UNLISTED)} WHERE unit = :unit AND seen < :before"
        if self._tables.run(statement, unit=UNITS[unit_kind].number, before=before_s):
            self.set_state(**{FORGOTTEN: max(before_s, self.state_values().get(FORGOTTEN, 0))})

    def _move_hours_to_days(self, before_s: int) -> None:
        hours = f"FROM {self._table(WORK)} w WHERE w.start < :before AND w.start % {DAY_S} <> 0"
        self._add_selected_sums(
            f"w.start - w.start % {DAY_S}, w.units, w.key, {self._sum_columns_sql('w.')} {hours}",
            before=before_s,
        )
        hours = f"{self._table(WORK)} WHERE start < :before AND start % {DAY_S} <> 0"
        self._tables.run(f"DELETE FROM {hours}", before=before_s)

    def _sum_columns_sql(self, column_prefix: str) -> str:
        return ", ".join(
            f"CAST(sum({column_prefix}{name}) AS {self.cast.get(name, 'bigint')})" for name in self.columns
        )

    def _add_selected_sums(self, select_list_sql: str, **values: object) -> None:
        added = ", ".join(f"{name} = old.{name} + excluded.{name}" for name in self.columns)
        self._tables.run(
            f"INSERT INTO {self._table(WORK)} AS old (start, units, key, {', '.join(self.columns)})"
            f" SELECT {select_list_sql} GROUP BY 1, 2, 3 ON CONFLICT (start, units, key) DO UPDATE SET {added}",
            **values,
        )

    def run_lineage(
        self,
        unit_kind: str,
        names: Sequence[str],
        max_runs: int,
        *,
        includes_runs_below: bool,
        limiting_query: CostQuery | None = None,
    ) -> Sequence[RunLineage]:
        seen, values = "", dict[str, object](numbers=unit_numbers(unit_kind, names), most=max_runs)
        if limiting_query is not None and limiting_query.trees_of is not None:
            seen = self._unit_sets_with_calls_sql(":keys", ":since", ":until")
            since, until = _query_bounds_with_day_margins(limiting_query)
            values |= {
                "keys": self.numbers_with_derived_value(limiting_query.trees_of),
                "since": since,
                "until": until,
            }
        statement = lineage_sql(
            self._table(SETS), _COLUMNS[unit_kind], has_below=includes_runs_below, visible_unit_sets_sql=seen
        )
        rows = self._tables.all(statement, **values)
        return [
            RunLineage(
                unit_digest_text(RUN, run),
                parent and unit_digest_text(RUN, parent),
                session and unit_digest_text(SESSION, session),
            )
            for run, parent, session in rows
        ]

    def drop_unused_units(self) -> None:
        nothing = " AND ".join(f"{name} = 0" for name in self.columns)
        self._tables.run(f"DELETE FROM {self._table(WORK)} WHERE {nothing}")
        sets, used = self._table(SETS), f"SELECT units FROM {self._table(WORK)}"
        # in PostgreSQL, a large NOT IN has no hash table
        unused = f"SELECT id FROM {sets} EXCEPT SELECT id FROM kept"
        self._tables.run(
            f"{used_unit_sets_and_run_links_sql(sets, used)} DELETE FROM {sets} WHERE id IN ({unused})"
        )
        kept = " UNION ".join(
            f"SELECT {_COLUMNS[name]} FROM {sets}" for name, unit in UNITS.items() if unit.is_named
        )
        kept += f" UNION SELECT linked FROM {self._table(work_links.LINKS)}"
        names = self._table(NAMES)
        unused = f"SELECT id FROM {names} EXCEPT SELECT * FROM ({kept}) kept"
        self._tables.run(f"DELETE FROM {names} WHERE id IN ({unused})")

    def _filtered_sums_table_sql(self, query: CostQuery, sums: str = "") -> str:
        """
        Return SQL: a table of sums, WHERE, and the query's filters by units of work, each followed by AND,
        so that another condition must follow.

        `sums`: a table to use instead, limited to the sets of dimensions that can pass the filters.
        """
        # the filter by this unit applies to aggregated costs
        of_tree = query.unit_of_work if query.aggregated else None
        # `+ 0 * units` keeps the database from searching an index for the unit first. The time of such a search
        # would reveal whether hidden calls have the unit.
        visible = " + 0 * units" if query.has_slice_filter else ""
        terms = [
            f"{_COLUMNS[name]}{visible} IN ({_number_list_sql(numbers)})"
            for name, numbers in _chosen_units(query)
            if name != of_tree
        ]
        terms += [
            f"{_COLUMNS[name]}{visible} NOT IN ({_number_list_sql(unit_numbers(name, values))})"
            for name, values in query.exclude.items()
            if name in UNITS and values and name != of_tree
        ]
        if not terms and query.work_unit_group_index is None:
            return f"{self._table(WORK)} WHERE"
        if not sums and (few := self._condition_if_few_unit_sets(query)):
            terms.append(few)
        return f"{self._sums_with_units_sql(query, sums)} WHERE {''.join(f'{term} AND ' for term in terms)}"

    def _group_by_terms_sql(self, query: CostQuery, first_column: int) -> list[str]:
        """
        Return the GROUP BY terms from result column `first_column` on. A unit is grouped by its number, because its
        name needs a lookup.
        """
        names = enumerate(query.group_by, first_column)
        units = {name: f"h.{column}" for name, column in _COLUMNS.items()}
        if query.aggregated and query.unit_of_work is not None:
            units[query.unit_of_work] = ", ".join(_OF_PLACE)
        return [units.get(name, str(place)) for place, name in names]

    def _unit_name_sql(self, unit_kind: str, query: CostQuery) -> str:
        if query.aggregated and unit_kind == query.unit_of_work:
            return _PLACE
        column = f"h.{_COLUMNS[unit_kind]}"
        name = f"'{unit_kind}:' || {self.hexadecimal.format(column)}"
        if UNITS[unit_kind].is_named:
            name = f"COALESCE((SELECT n.name FROM {self._table(NAMES)} n WHERE n.id = {column}), '{OTHER}')"
        return f"CASE {column} WHEN {NONE} THEN '' WHEN {REST} THEN '{OTHER}' ELSE {name} END"


def _query_bounds_with_day_margins(query: CostQuery) -> tuple[int, int]:
    return int(query.since.timestamp()) - DAY_S, int(query.until.timestamp()) + DAY_S


def _chosen_units(query: CostQuery) -> list[tuple[str, Sequence[int]]]:
    chosen: list[tuple[str, Sequence[str]]] = [each for each in query.include.items() if each[0] in UNITS]
    if query.only is not None and (place := query.work_unit_group_index) is not None:
        chosen.append((query.group_by[place], [group[place] or "" for group in query.only]))
    return [(name, unit_numbers(name, values)) for name, values in chosen]


def _unit_sets_with_any_number_sql(sets_table: str, unit_kind: str, numbers: Sequence[int]) -> str:
    column = _COLUMNS[unit_kind]
    is_listed = "" if unit_kind == SESSION else f" AND {column} > {REST}"
    return f"SELECT id FROM {sets_table} WHERE {column} IN ({_number_list_sql(numbers)}){is_listed}"


def _number_list_sql(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) or "NULL"


def _replace_merged_units_with_rest(
    units: Units, parent_by_merged_unit: Mapping[tuple[int, int], int]
) -> Units:
    if not parent_by_merged_unit:
        return units
    *own, parent = units
    passed = set[int]()
    while (KINDS[-1], parent) in parent_by_merged_unit and parent not in passed:
        passed.add(parent)
        parent = parent_by_merged_unit[KINDS[-1], parent]
    listed = [REST if place in parent_by_merged_unit else place[1] for place in zip(KINDS, own, strict=False)]
    return (*listed, NONE if parent in passed else parent)
