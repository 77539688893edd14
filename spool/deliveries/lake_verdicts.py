"""What the newest look at a lake found, and when a topic got a delivery. Kept beside the states of pulls, by route."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from spool.statements.protocols import Statements

_KEPT_AS: Final = "lake of "  # no pull has a name with a blank
_LANDED_AS: Final = "landed of "


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeVerdict:
    """`differences`: how many of each kind there are, none of a sound lake; `words` are those of the first."""

    route: str
    at: float
    files: int
    rows: int
    differences: Mapping[str, int]
    words: str = ""


async def kept_verdict(table: Statements, route: str) -> LakeVerdict | None:
    """None if nobody looked at the lake of the route yet."""
    kept = await table.pull_state(_KEPT_AS + route)
    return None if kept is None else LakeVerdict(route=route, **kept)


async def keep_verdict(table: Statements, verdict: LakeVerdict) -> None:
    """Keep it in place of the one before."""
    state = asdict(verdict)
    del state["route"]
    await table.keep_pull_state(_KEPT_AS + verdict.route, state)


async def kept_landed(table: Statements, route: str) -> float | None:
    """When a delivery of a topic or a table landed last, to the minute; None if none did."""
    kept = await table.pull_state(_LANDED_AS + route)
    return None if kept is None else float(kept["at"])


async def keep_landed(table: Statements, route: str, at: float) -> None:
    await table.keep_pull_state(_LANDED_AS + route, {"at": at})


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRepairs:
    """Names of files that were put again, and of those that could not be, with the reason."""

    put: Sequence[str]
    lost: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeRecount:
    """
    Deliveries whose rows the log gives otherwise now, by the names of their manifests; `compared` are those that it
    has the records of. `after` is where the next answer begins, None if there is nothing more. `editions` are all that
    the route had.
    """

    differs: Mapping[str, str]
    editions: Sequence[str]
    compared: int
    after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeState:
    """What is known of the lake of a route; None: nothing landed yet, or nobody looked."""

    route: str
    landed_at: float | None
    verdict: LakeVerdict | None
