"""
Links of units of work in SQL (spool/ledger/work_links.py): a copy of the registry's links for queries, and
their change mark.

Units that views name have rows without a target. Such units stay listed, but no query joins these rows.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import product

from spool.ledger.work import NONE, REST, TREES, UNITS
from spool.ledger.work_links import BRANCH, LINKED, LINKS_MARK, REPOSITORY, TARGETS, WorkUnitLinks

LINKS = "work_links"
PAIRS = "linked"  # state key: a bit for each of _PAIRS and _PARENTS
COLUMNS = ("target", "unit", "id", "repository", "since", "until", "linked")
_PAIRS = tuple(product(TARGETS, LINKED))
_PARENTS = tuple((unit, unit) for unit in TREES)


def ledger_state_of_unit_links(unit_links: WorkUnitLinks) -> Mapping[str, int]:
    present = {(link.target, link.unit) for link in unit_links.links}
    return {
        LINKS_MARK: unit_links.data_version,
        PAIRS: sum(1 << place for place, pair in enumerate((*_PAIRS, *_PARENTS)) if pair in present),
    }


def has_parent_links(linked_pairs_mask: int, unit: str) -> bool:
    return bool(linked_pairs_mask >> len(_PAIRS) + TREES.index(unit) & 1)


def link_rows(unit_links: WorkUnitLinks) -> list[dict[str, int]]:
    return [
        {
            "target": UNITS[link.target].number,
            "unit": UNITS[link.unit].number,
            "id": link.id,
            "repository": link.repository,
            "since": link.since,
            "until": link.until,
            "linked": link.target_number,
        }
        for link in unit_links.links
    ] + [
        dict(zip(COLUMNS, (0, UNITS[unit].number, id, NONE, 0, 0, NONE), strict=True))
        for unit, id in sorted(unit_links.kept)
    ]


def join_links_sql(
    linked_pairs_mask: int, links_table: str, columns: Mapping[str, str], used_dimensions: Container[str]
) -> tuple[Mapping[str, str], str]:
    """
    Return an expression for each kind of unit that is a link's target, and SQL that joins the links to the
    tables `w` (sums) and `p` (sets of units). Only kinds in `used_dimensions` are joined.

    At most one link of a kind fits a sum, so no sum is counted twice.
    """
    found: dict[str, list[str]] = {}
    joins = ""
    for place, (target, unit) in enumerate(_PAIRS):
        if not linked_pairs_mask & 1 << place or target not in used_dimensions:
            continue
        name = f"link_{place}"
        found.setdefault(target, []).append(f"{name}.linked")
        fits = [
            f"{name}.target = {UNITS[target].number}",
            f"{name}.unit = {UNITS[unit].number}",
            f"{name}.id = p.{columns[unit]}",
        ]
        if unit == BRANCH:
            fits += [
                f"{name}.repository = p.{columns[REPOSITORY]}",
                f"w.start >= {name}.since",
                f"w.start < {name}.until",
            ]
        joins += f" LEFT JOIN {links_table} {name} ON {' AND '.join(fits)}"
    expressions = {
        target: f"CASE p.{columns[target]} WHEN {NONE} THEN COALESCE({', '.join(linked)}, {NONE})"
        f" ELSE p.{columns[target]} END"
        for target, linked in found.items()
    }
    return expressions, joins


def has_links_to(linked_pairs_mask: int, target: str) -> bool:
    return any(linked_pairs_mask & 1 << place and of == target for place, (of, _) in enumerate(_PAIRS))


def has_time_limited_links(linked_pairs_mask: int, used_dimensions: Container[str]) -> bool:
    """
    Return whether a link in use may be limited in time, as a link of a branch is. `linked_pairs_mask`: a bit for each
    pair of kinds that is linked.
    """
    return any(
        linked_pairs_mask & 1 << place and unit == BRANCH and target in used_dimensions
        for place, (target, unit) in enumerate(_PAIRS)
    )


def linked_unit_sets_sql(
    linked_pairs_mask: int,
    links_table: str,
    sets_table: str,
    columns: Mapping[str, str],
    target: str,
    numbers: Sequence[int],
) -> Iterator[str]:
    for place, (of, unit) in enumerate(_PAIRS):
        if of == target and linked_pairs_mask & 1 << place:
            yield (
                f"SELECT s.id FROM {links_table} l JOIN {sets_table} s"
                f" ON s.{columns[unit]} = l.id AND s.{columns[unit]} > {REST}"
                f" WHERE l.target = {UNITS[target].number} AND l.unit = {UNITS[unit].number}"
                f" AND l.linked IN ({', '.join(map(str, numbers))})"
            )


def linked_units_sql(unit: str, links_table: str) -> str:
    """Return SQL for units that must stay listed, so that their links can apply."""
    of_kind = f"SELECT id FROM {links_table} WHERE unit = {UNITS[unit].number}"
    if unit == REPOSITORY:
        of_kind += f" UNION SELECT repository FROM {links_table} WHERE unit = {UNITS[BRANCH].number}"
    if unit in TREES:
        of_kind += f" UNION SELECT linked FROM {links_table} WHERE target = {UNITS[unit].number}"
    return of_kind


def redirect_links_to_unlisted_sql(links_table: str, unlisted_table: str) -> Iterator[str]:
    """Yield statements that redirect links to unlisted units to the sum of unlisted units (REST)."""
    for target in (*TARGETS, *TREES):
        number = UNITS[target].number
        yield (
            f"UPDATE {links_table} SET linked = {REST} WHERE target = {number}"
            f" AND linked IN (SELECT id FROM {unlisted_table} WHERE unit = {number})"
        )
