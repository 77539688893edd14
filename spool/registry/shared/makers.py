"""
Which key made a row of a table that is one for all keys: a document for each such row, none for what a person made.

No key makes more rows than it leaves free; see `spool.shares`. People have all that is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from spool.errors import NotAllowed
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.shares import may_add

VIEWS, CONNECTIONS, ROLES = "views.max", "billing.max_connections", "roles.max"
CHANNELS = "channels.max"
INSIGHTS = "insights"


def held(rows: RegistryRows, limit: str, there: int) -> Mapping[str, int]:
    """Count the existing rows that each key made; those that people made stand under ""."""
    made = Counter(makers(rows, limit).values())
    return {**made, "": max(0, there - made.total())}


def check_share(rows: RegistryRows, limit: str, there: Collection[str], most: int, actor: Actor) -> None:
    """NotAllowed if a key made as many of the ids that are `there` as it leaves free of `most`."""
    if actor.is_key:
        _check(actor.name, list(owners(rows, limit, there)), len(there), most, limit)


def check_made(rows: RegistryRows, limit: str, there: int, most: int, actor: Actor) -> None:
    """
    Check the share of a key as `check_share` does, for a table that is not read as a whole: every deletion of
    its rows forgets the maker.
    """
    if actor.is_key:
        _check(actor.name, list(makers(rows, limit).values()), there, most, limit)


def check_comments(authors: Sequence[str], n: int, most: int, actor: Actor) -> None:
    """NotAllowed if a key that adds `n` would have written more than it leaves free."""
    if actor.is_key and not may_add(authors.count(actor.name), len(authors) + n - 1, n, most):
        raise NotAllowed(
            f"there are {len(authors)} comments, and no key writes more than it leaves free of {most}"
        )


def _check(key: str, made: Sequence[str], there: int, most: int, limit: str) -> None:
    own = made.count(key)
    if not may_add(own, there, 1, most):
        raise NotAllowed(
            f"this key made {own}, and no key makes more than it leaves free of {limit} = {most}: delete "
            "one, or let an"
            " operator make it"
        )


def note_maker(rows: RegistryRows, limit: str, id: str, actor: Actor) -> None:
    if actor.is_key:
        rows.put_document(_kind(limit), id, {"key": actor.name})


def forget_maker(rows: RegistryRows, limit: str, id: str) -> None:
    rows.delete_document(_kind(limit), id)


def makers(rows: RegistryRows, limit: str) -> Mapping[str, str]:
    """The key that made a row, by the row's id."""
    return {id: str(body["key"]) for id, body in rows.documents(_kind(limit)).items()}


def owners(rows: RegistryRows, limit: str, there: Collection[str]) -> Iterator[str]:
    """The key of each row that is there, "" for what a person made."""
    made = makers(rows, limit)
    return (made.get(id, "") for id in there)


def _kind(limit: str) -> str:
    return f"made by key: {limit}"
