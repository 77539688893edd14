"""The runs of a unit of work as a tree, with the costs of each run and of the runs that it started. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from spool.ledger import money
from spool.ledger.costs import combined
from spool.ledger.queries import CostRow
from spool.ledger.work import Lineage

MAX_LEVEL = 32  # a deeper run is shown at this level
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(slots=True, kw_only=True)
class RunNode:
    """
    A run with its own calls. `level` is 1 for a run that no other run of the tree started. `aggregated` includes the
    runs below it.
    """

    run: str
    session: str | None
    parent: str | None
    own: CostRow
    aggregated: CostRow
    level: int = 1
    below: list[RunNode] = field(default_factory=list)


def parents_of(lineage: Iterable[Lineage]) -> dict[str, str]:
    """
    Return the run that started each run. Of several, it is the smallest. If runs start each other in a circle, the
    smallest has no parent. Both rules do not depend on the order of the reports.
    """
    parents = {each.run: each.parent for each in lineage if each.parent is not None}
    for run in [*parents]:
        circle, above = {run}, parents.get(run)
        while above is not None and above not in circle:
            circle.add(above)
            above = parents.get(above)
        if above == run == min(circle):
            del parents[run]
    return parents


def runs_above(run: str, parents: Mapping[str, str]) -> Sequence[str]:
    """Return the runs above a run, the nearest first."""
    above = list[str]()
    while (parent := parents.get(above[-1] if above else run)) is not None:
        above.append(parent)
    return above


def tree(
    runs: Iterable[str],
    own: Mapping[str, CostRow],
    parents: Mapping[str, str],
    sessions: Mapping[str, str | None],
) -> Sequence[RunNode]:
    """
    Return `runs` in the order of their tree, the most expensive first among those that one run started. A run whose
    parent is not among them belongs to the next run above.
    """
    nothing = combined([], start=EPOCH, group=())
    nodes = dict[str, RunNode]()
    for run in runs:
        row = own.get(run, nothing)
        nodes[run] = RunNode(run=run, session=sessions.get(run), parent=None, own=row, aggregated=row)
    for node in nodes.values():
        node.parent = next((above for above in runs_above(node.run, parents) if above in nodes), None)
        if node.parent is not None:
            nodes[node.parent].below.append(node)
    roots = [node for node in nodes.values() if node.parent is None]
    for node in reversed([*_ordered(roots)]):
        rows = [node.own, *(below.aggregated for below in node.below)]
        node.aggregated = combined(rows, start=EPOCH, group=())
    for siblings in (roots, *(node.below for node in nodes.values())):
        siblings.sort(key=lambda node: (-money.units(node.aggregated.cost), node.run))
    return [*_ordered(roots)]


def _ordered(roots: Collection[RunNode]) -> Iterator[RunNode]:
    """Yield each run before the runs below it, and set their levels."""
    waiting = [*roots][::-1]
    while waiting:
        node = waiting.pop()
        yield node
        for below in reversed(node.below):
            below.level = min(node.level + 1, MAX_LEVEL)
            waiting.append(below)
