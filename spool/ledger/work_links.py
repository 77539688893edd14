"""
Links between units of work: a session, branch or commit belongs to a pull request or ticket, or a session or
run was started by another. Pure.

A link applies to calls that state no pull request (or ticket, or parent). It changes no sum, because each
query resolves the links. So a new link also applies to past calls, and a deleted link leaves no trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Final, NamedTuple

from spool.ledger.work import NONE, SESSION, TREES, unit_number_from_name_or_digest

BRANCH: Final = "branch"
REPOSITORY: Final = "repository"
# Narrowest first. The first linked unit of a call decides.
LINKED: Final = ("commit", SESSION, BRANCH)
TARGETS: Final = ("pull_request", "ticket")
LINKS_MARK: Final = "links"  # state key: mark of the links in use
BEGINNING, END = 0, 1 << 40  # bounds of a link without limits in time


class WorkUnitLink(NamedTuple):
    """
    One link as stored. `id` and `repository`: numbers of units (`spool.ledger.work`). `name`: the pull
    request or ticket, or the digest of the run or session that started this one.

    Only a branch has a repository and times `since` and `until`. These are midnights in UTC, because old
    calls have only daily sums.
    """

    unit: str
    id: int
    target: str
    name: str
    repository: int = NONE
    since: int = BEGINNING
    until: int = END

    @property
    def target_number(self) -> int:
        return unit_number_from_name_or_digest(self.target, self.name)

    @property
    def linked_unit_and_target_kind(self) -> tuple[str, str, int, int]:
        """
        Return the linked unit and the kind of its target. Links for which these are equal must not overlap in
        time.
        """
        return (self.target, self.unit, self.id, self.repository)

    def overlaps(self, other: WorkUnitLink) -> bool:
        return (
            self.linked_unit_and_target_kind == other.linked_unit_and_target_kind
            and self.since < other.until
            and other.since < self.until
        )


class WorkUnitLinks:
    """
    Links that neither overlap nor form a cycle. Of links that would, the first is kept, because two gateways
    can add such links at the same moment.

    `kept`: units (kind and number) that stay listed without a link.
    """

    def __init__(self, links: Iterable[WorkUnitLink] = (), kept: Iterable[tuple[str, int]] = ()) -> None:
        self.kept = frozenset(kept)
        self._by_place: defaultdict[tuple[str, str, int, int], list[WorkUnitLink]] = defaultdict(list)
        self._parents: dict[tuple[str, int], int] = {}  # parents of sessions and runs
        tops = dict[tuple[str, int], tuple[str, int]]()  # session or run -> one of its ancestors
        for link in links:
            child = (link.target, link.id)
            if link.target in TREES and _topmost_unit(tops, (link.target, link.target_number)) == child:
                continue  # the session or run would be above itself
            at_place = self._by_place[link.linked_unit_and_target_kind]
            if not any(map(link.overlaps, at_place)):
                at_place.append(link)
                if link.target in TREES:
                    self._parents[child] = link.target_number
                    tops[child] = (link.target, link.target_number)

    def can_make_cycle(self, link: WorkUnitLink) -> bool:
        """Return whether the link could put a session or run above itself."""
        above: int | None = link.target_number if link.target in TREES else None
        while above is not None and above != link.id:
            above = self.parent_of(link.target, above)
        return above is not None

    def parent_of(self, unit: str, id: int) -> int | None:
        return self._parents.get((unit, id))

    def find_children(self, unit: str, id: int) -> Sequence[int]:
        return self._children_by_parent.get((unit, id), ())

    @cached_property
    def _children_by_parent(self) -> Mapping[tuple[str, int], Sequence[int]]:
        children = defaultdict[tuple[str, int], list[int]](list)
        for (unit, child), parent in self._parents.items():
            children[unit, parent].append(child)
        return children

    @property
    def links(self) -> Sequence[WorkUnitLink]:
        return [link for links in self._by_place.values() for link in links]

    @cached_property
    def data_version(self) -> int:
        if not self._by_place and not self.kept:
            return 0
        text = repr((sorted(self.links), sorted(self.kept)))
        digest = blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest) >> 2 or 1

    def find_linked_target(
        self, target_kind: str, unit_name_of: Callable[[str], str | None], hour: int
    ) -> str | None:
        """
        Return the pull request or ticket that a call is linked to. `unit_name_of`: returns the name of the call's
        unit of a kind, or the digest of its session.
        """
        for unit in LINKED:
            name = unit_name_of(unit)
            if not name:
                continue
            repository = (
                unit_number_from_name_or_digest(REPOSITORY, unit_name_of(REPOSITORY) or "")
                if unit == BRANCH
                else NONE
            )
            for link in self._by_place.get(
                (target_kind, unit, unit_number_from_name_or_digest(unit, name), repository), ()
            ):
                if link.since <= hour < link.until:
                    return link.name
        return None


def _topmost_unit(
    higher_units: dict[tuple[str, int], tuple[str, int]], unit: tuple[str, int]
) -> tuple[str, int]:
    """
    Return the topmost session or run above a unit. Each search shortens the chain in `higher_units`, so a long chain
    stays cheap.
    """
    while (above := higher_units.get(unit)) is not None:
        higher_units[unit] = unit = higher_units.get(above, above)
    return unit


NO_LINKS: Final = WorkUnitLinks()
