"""The books of container metrics: how many were ever named, and what became of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from spool.container_files.values import (
    KINDS,
    REFERENCES,
    STATES,
    SUMMED,
    SUPERSEDED,
    UPLOADED,
    BookChange,
    ContainerBooks,
    ContainerFile,
)

ROW_TERMS = frozenset(STATES)  # those that rows show

Kept = Mapping[tuple[str, str], tuple[int, int]]


def changes_of(
    pairs: Sequence[tuple[ContainerFile | None, ContainerFile]], gone: Sequence[ContainerFile]
) -> list[BookChange]:
    """List what changed and removed rows add to the books. A removed row stays in them under its last state."""
    changes = []
    for before, after in pairs:
        if before is None:
            changes.append(BookChange(kind=after.kind, term=REFERENCES, n=1, carried=0))
        elif before.state == after.state:
            continue
        else:
            changes.append(BookChange(kind=before.kind, term=before.state, n=-1))
        changes.append(BookChange(kind=after.kind, term=after.state, n=1))
    for file in gone:
        if file.state == UPLOADED:  # replaced by a newer one before it left
            changes.append(BookChange(kind=file.kind, term=UPLOADED, n=-1))
            changes.append(BookChange(kind=file.kind, term=SUPERSEDED, n=1, carried=1))
        else:
            changes.append(BookChange(kind=file.kind, term=file.state, n=0, carried=1))
    return changes


def terms_of(kept: Kept) -> Mapping[str, Mapping[str, int]]:
    found: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    for (kind, term), (n, _) in kept.items():
        found[kind][term] = n
    return found


def recounted(kept: Kept, rows: Mapping[tuple[str, str], int]) -> ContainerBooks:
    """The terms from the rows and what was carried forward, and each place where the running numbers differ."""
    terms: defaultdict[str, dict[str, int]] = defaultdict(dict)
    imbalances = []
    for kind in KINDS:
        of_kind = {term: number for (one, term), number in kept.items() if one == kind}
        for term in SUMMED:
            n, carried = of_kind.get(term, (0, 0))
            counted = rows.get((kind, term), 0) + carried
            if counted or n:
                terms[kind][term] = counted
            if counted != n:
                imbalances.append(f"{kind}: {term} is {n} in the books, and {counted} are counted")
        total = sum(terms[kind].values())
        named = of_kind.get(REFERENCES, (0, 0))[0]
        terms[kind][REFERENCES] = named
        if named != total:
            imbalances.append(f"{kind}: {named} were named, and {total} are accounted for")
        for term, (n, _) in of_kind.items():
            terms[kind].setdefault(term, n)
    return ContainerBooks(terms=dict(terms), imbalances=tuple(imbalances))
