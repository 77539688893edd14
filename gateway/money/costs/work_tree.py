"""The runs of a unit of work as a tree, with the costs of each run and of the runs that it started. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from spool import money
from spool.ledger.costs import combine_rows
from spool.ledger.queries import CostRow
from spool.ledger.work import RunLineage, break_cycles

MAX_LEVEL = 32  # deepest level that is shown; deeper runs appear at this level
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(slots=True, kw_only=True)
class RunNode:
    """
    A run in a tree. `level` is 1 for a run that no other run of the tree started. `aggregated` includes the
    runs below it.
    """

    run: str
    session: str | None
    parent: str | None
    own: CostRow
    aggregated: CostRow
    level: int = 1
    below: list[RunNode] = field(default_factory=list)


def parents_by_run(lineage: Iterable[RunLineage]) -> dict[str, str]:
    """
    Map each run to the run that started it. If a run has several entries, the last one counts. In a cycle,
    the run with the smallest name has no parent.
    """
    return break_cycles({each.run: each.parent for each in lineage if each.parent is not None})


def ancestor_runs(runs: Iterable[str], parents: Mapping[str, str]) -> Collection[str]:
    above: dict[str, None] = {}
    for run in runs:
        parent = parents.get(run)
        while parent is not None and parent not in above:
            above[parent] = None
            parent = parents.get(parent)
    return above


def nearest_listed_ancestors(
    runs: Iterable[str], among: Container[str], parents: Mapping[str, str]
) -> Mapping[str, str | None]:
    nearest = dict[str, str | None]()
    for run in runs:
        passed, above = list[str](), run
        while above not in nearest:
            passed.append(above)
            parent = parents.get(above)
            if parent is None or parent in among:
                nearest[above] = parent
                break
            above = parent
        nearest.update(dict.fromkeys(passed, nearest[above]))
    return nearest


def build_run_tree(
    runs: Iterable[str],
    own: Mapping[str, CostRow],
    parents: Mapping[str, str],
    sessions: Mapping[str, str | None],
) -> Sequence[RunNode]:
    """
    Return the nodes of the tree, each parent before its children. The most expensive of several siblings is
    first.

    If the parent of a run is not in `runs`, the nearest ancestor in `runs` is its parent.
    """
    nothing = combine_rows([], start=EPOCH, group=())
    nodes = dict[str, RunNode]()
    for run in runs:
        row = own.get(run, nothing)
        nodes[run] = RunNode(run=run, session=sessions.get(run), parent=None, own=row, aggregated=row)
    above = nearest_listed_ancestors(nodes, nodes, parents)
    for node in nodes.values():
        node.parent = above[node.run]
        if node.parent is not None:
            nodes[node.parent].below.append(node)
    roots = [node for node in nodes.values() if node.parent is None]
    for node in reversed([*_set_levels_depth_first(roots)]):
        rows = [node.own, *(below.aggregated for below in node.below)]
        node.aggregated = combine_rows(rows, start=EPOCH, group=())
    for siblings in (roots, *(node.below for node in nodes.values())):
        siblings.sort(key=lambda node: (-money.text_to_units(node.aggregated.cost), node.run))
    return [*_set_levels_depth_first(roots)]


def _set_levels_depth_first(roots: Collection[RunNode]) -> Iterator[RunNode]:
    waiting = [*roots][::-1]
    while waiting:
        node = waiting.pop()
        yield node
        for below in reversed(node.below):
            below.level = min(node.level + 1, MAX_LEVEL)
            waiting.append(below)
